/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LFM2-VL: a picture within a budget of rows keeps its shape; a much larger one is cut into a grid of tiles of one
 * size, and the whole, within the budget, stands behind them.
 */
#include "models/list.h"
#include "vision/family.h"

#include <math.h>

enum { MOST_TILES = 64 };

static int number(const vision_source *s, const char *field, int dflt) {
    return source_number(s, NULL, json_get(s->pre, field), dflt);
}

static int read(vision_rules *r, const vision_source *s, err *e) {
    const json_value *merge = json_get(s->pre, "downsample_factor");
    double            tolerance = 2;
    r->merge = source_number(s, "projector.scale_factor", merge ? merge : json_get(s->config, "downsample_factor"), 2);
    r->side = number(s, "tile_size", 512);
    r->least = number(s, "min_image_tokens", 64);
    r->most = number(s, "max_image_tokens", 256);
    r->tiles[0] = number(s, "min_tiles", 2);
    r->tiles[1] = number(s, "max_tiles", 10);
    r->split = source_switch(s, "do_image_splitting", true) && r->tiles[1] > 1;
    r->thumbnail = source_switch(s, "use_thumbnail", true);
    if (!s->mmproj) (void)json_number(json_get(s->pre, "max_pixels_tolerance"), &tolerance);
    r->tolerance = (float)tolerance;
    if (r->least < 1 || r->most < r->least || r->most > VISION_MOST_ROWS || r->tiles[0] < 1 ||
        r->tiles[1] < r->tiles[0] || r->tiles[1] > MOST_TILES || r->side % (r->patch > 0 ? r->patch : 1) ||
        !(r->tolerance > 0) || number(s, "encoder_patch_size", r->patch) != r->patch)
        return err_set(e, ERR_FORMAT, "%d to %d rows, %d to %d tiles of %d pixels, patches of %d do not fit each other",
                       r->least, r->most, r->tiles[0], r->tiles[1], r->side, r->patch);
    return vision_check_squares(r, e);
}

static void low(vision_rules *r) { r->split = false; }

static int most_tiles(const vision_rules *r) { return (r->split ? r->tiles[1] : 0) + 1; }

static int64_t most_patches(const vision_rules *r) {
    int64_t across = r->side / r->patch, tile = r->split ? across * across : 0;
    int64_t whole = (int64_t)r->most * r->merge * r->merge;
    return tile > whole ? tile : whole;
}

/* Python's round() of multiples of f. */
static double multiple(double x, double f, double least) { return fmax(least, nearbyint(x / f) * f); }

/* Whole squares within the budget. */
static void whole_size(const vision_rules *r, double w, double h, int *to_w, int *to_h) {
    double f = r->patch * r->merge, most = r->most * f * f, least = r->least * f * f;
    double high = multiple(h, f, f), wide = multiple(w, f, f);
    if (high * wide > most) {
        double beta = sqrt(h * w / most);
        high = fmax(f, floor(h / beta / f) * f);
        wide = fmax(f, floor(w / beta / f) * f);
    } else if (high * wide < least) {
        double beta = sqrt(least / (h * w));
        high = ceil(h * beta / f) * f;
        wide = ceil(w * beta / f) * f;
    }
    *to_w = (int)wide;
    *to_h = (int)high;
}

/* The grid whose shape is nearest to the picture's; of several with one shape the largest that it half fills. */
static void find_grid(vision_plan *p, const vision_rules *r, int width, int height) {
    double shape = (double)width / height, nearest = INFINITY, area = (double)width * height;
    for (int n = r->tiles[0]; n <= r->tiles[1]; n++) {
        for (int w = 1; w <= n; w++) {
            double off = fabs(shape - (double)w / ((double)n / w)), all = (double)r->side * r->side * n;
            if (n % w || off > nearest || (off == nearest && area <= 0.5 * all)) continue;
            nearest = off;
            p->cols = w;
            p->rows = n / w;
        }
    }
}

static int plan(vision_plan *p, const vision_rules *r, int width, int height, err *e) {
    double f = r->patch * r->merge, most = r->most * f * f;
    double size = multiple(height, f, r->patch) * multiple(width, f, r->patch);
    int    w, h;
    (void)e;
    whole_size(r, width, height, &w, &h);
    if (!r->split || size <= most * (double)r->tolerance) {
        vision_one_tile(p, w, h);
        return 0;
    }
    find_grid(p, r, width, height);
    p->tile_width = p->tile_height = r->side;
    p->width = p->cols * r->side;
    p->height = p->rows * r->side;
    p->n_tiles = p->rows * p->cols;
    if (p->n_tiles == 1) {
        p->rows = p->cols = 0;
    } else if (r->thumbnail) {
        p->n_tiles++;
        p->whole_width = w;
        p->whole_height = h;
    }
    return 0;
}

static void write(str *out, const vision_plan *p, const char *row) {
    bool whole = p->n_tiles > p->rows * p->cols;
    str_puts(out, "<|image_start|>");
    for (int y = 0; y < p->rows; y++) {
        for (int x = 0; x < p->cols; x++) {
            str_printf(out, "<|img_row_%d_col_%d|>", y + 1, x + 1);
            vision_put_rows(out, row, p->tile_rows);
        }
    }
    if (p->rows && whole) str_puts(out, "<|img_thumbnail|>");
    if (whole) vision_put_rows(out, row, p->whole_rows);
    str_puts(out, "<|image_end|>");
}

static const vision_kin kin[] = {
    { "lfm2_vl", "lfm2", NULL, NULL, PIXELS_BILINEAR, &vision_colours_half },
    { 0 },
};
const vision_family vision_lfm2 = { .kin = kin,
                                    .tower = &models_siglip2,
                                    .projector = &models_projector_lfm2,
                                    .placeholder = "<image>",
                                    .row = "<image>",
                                    .resizes = true,
                                    .read = read,
                                    .low = low,
                                    .plan = plan,
                                    .most_patches = most_patches,
                                    .most_tiles = most_tiles,
                                    .write = write };
