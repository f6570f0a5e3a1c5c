/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Llama 4: a picture lies in the corner of the grid of tiles that fits it best, and the whole, squeezed into a tile,
 * stands behind its tiles. Words stand between tiles and at the ends of their lines.
 */
#include "models/list.h"
#include "vision/family.h"

#include <math.h>

enum { MOST_TILES = 64 };

static int read(vision_rules *r, const vision_source *s, err *e) {
    const json_value *ratio = json_get(s->vision, "pixel_shuffle_ratio");
    int               image = r->side;
    double            x = 0.5;
    (void)json_number(ratio, &x);
    if (s->mmproj) (void)meta_real(source_meta(s, "pixel_shuffle_ratio"), &x);
    r->merge = source_number(s, "projector.scale_factor", NULL, x >= 1.0 / 16 && x <= 1 ? (int)lround(1 / x) : -1);
    r->side = source_number(s, "image_size", source_size(s, "size", "height"), image);
    r->most = source_number(s, NULL, json_get(s->pre, "max_patches"), 16);
    r->grows = source_switch(s, "resize_to_max_canvas", false);
    if (r->side != image) return err_set(e, ERR_UNSUPPORTED, "tiles of %d pixels for a tower of %d", r->side, image);
    if (r->most < 1 || r->most > MOST_TILES)
        return err_set(e, ERR_FORMAT, "preprocessor_config.json: max_patches is %d", r->most);
    return vision_check_squares(r, e);
}

static void low(vision_rules *r) { r->most = 1; }

static int most_tiles(const vision_rules *r) { return r->most + 1; }

/* Rows and columns of the canvas that a picture fits with the least change of its size: among those where it need not
 * shrink the one where it grows least (grows: most), else the one where it shrinks least, and of several the smallest.
 * In the floats of the reference, since equal ones count as equal. */
static void find_canvas(const vision_rules *r, int width, int height, int *rows, int *cols) {
    float best = 0;
    *rows = *cols = 1;
    for (int i = 0; i < r->most; i++) {
        for (int k = 0; (i + 1) * (k + 1) <= r->most; k++) {
            float across = (float)((k + 1) * r->side) / (float)width, down = (float)((i + 1) * r->side) / (float)height;
            float scale = down > across ? across : down;
            bool  better = best >= 1 && !r->grows ? scale >= 1 && scale < best : scale > best;
            if (best < 1 && scale >= 1) better = true;
            bool smaller = scale == best && (i + 1) * (k + 1) < *rows * *cols;
            if (!better && !smaller) continue;
            best = scale;
            *rows = i + 1;
            *cols = k + 1;
        }
    }
}

/* As large as it fits into to_w x to_h without distortion. */
static void fit(vision_plan *p, int width, int height, int to_w, int to_h) {
    double across = (double)to_w / width, down = (double)to_h / height;
    if (across < down) {
        int h = (int)floor(height * across);
        p->width = to_w;
        p->height = h < to_h ? h : to_h;
    } else {
        int w = (int)floor(width * down);
        p->height = to_h;
        p->width = w < to_w ? w : to_w;
    }
    if (p->width < 1) p->width = 1;
    if (p->height < 1) p->height = 1;
}

static int min_of(int a, int b) { return a < b ? a : b; }
static int max_of(int a, int b) { return a > b ? a : b; }

static int plan(vision_plan *p, const vision_rules *r, int width, int height, err *e) {
    int rows, cols;
    (void)e;
    find_canvas(r, width, height, &rows, &cols);
    int to_w = cols * r->side, to_h = rows * r->side;
    p->tile_width = p->tile_height = r->side;
    p->padded = true;
    if (r->grows)
        fit(p, width, height, to_w, to_h);
    else /* not larger than it is, but for a single tile */
        fit(p, width, height, min_of(max_of(width, r->side), to_w), min_of(max_of(height, r->side), to_h));
    if (rows * cols == 1) return 0;
    p->rows = rows;
    p->cols = cols;
    p->n_tiles = rows * cols + 1;
    p->whole_width = p->whole_height = r->side;
    return 0;
}

static void write(str *out, const vision_plan *p, const char *row) {
    str_puts(out, "<|image_start|>");
    for (int y = 0; y < p->rows; y++) {
        for (int x = 0; x < p->cols; x++) {
            if (x) str_puts(out, "<|tile_x_separator|>");
            vision_put_rows(out, row, p->tile_rows);
        }
        str_puts(out, "<|tile_y_separator|>");
    }
    str_puts(out, "<|image|>");
    vision_put_rows(out, row, p->whole_rows);
    str_puts(out, "<|image_end|>");
}

static const vision_kin kin[] = {
    { "llama4", "llama4", "llama4", NULL, PIXELS_BILINEAR, &vision_colours_half },
    { 0 },
};
const vision_family vision_llama4 = { .kin = kin,
                                      .tower = &models_llama4_tower,
                                      .projector = &models_projector_llama4,
                                      .placeholder = "<|image|>",
                                      .row = "<|patch|>",
                                      .short_colours = true,
                                      .read = read,
                                      .low = low,
                                      .plan = plan,
                                      .most_tiles = most_tiles,
                                      .write = write };
