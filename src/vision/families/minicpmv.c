/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MiniCPM-V 2.6 and 4.6: the whole of a picture in about as many pixels as a tile has, and a large picture cut into a
 * grid of tiles behind it. Each picture has its number in the prompt.
 */
#include "models/list.h"
#include "vision/family.h"

#include <math.h>
#include <string.h>

enum { MOST_TILES = 64, SQUARE = 2, QUERIES = 64, SCALE = 448 };

static bool is_4x(const json_value *v) {
    const char *mode = json_cstr(v);
    return mode && strcmp(mode, "4x") == 0;
}

static int read(vision_rules *r, const vision_source *s, err *e) {
    const json_value *mode = json_get(s->config, "downsample_mode"), *own = json_get(s->pre, "downsample_mode");
    bool              all = is_4x(mode);
    r->merge = source_number(s, "projector.scale_factor", NULL, all ? SQUARE : SQUARE * SQUARE);
    r->inner = r->merge == SQUARE * SQUARE ? SQUARE : 0;
    r->window = r->inner ? 1 : 0;
    r->side = source_number(s, "image_size", json_get(s->pre, "scale_resolution"), 448);
    r->tiles[1] = source_number(s, NULL, json_get(s->pre, "max_slice_nums"), 9);
    r->split = source_switch(s, "slice_mode", true);
    r->marked = source_switch(s, "use_image_id", true);
    if (!s->mmproj && own && mode && is_4x(own) != all)
        return err_set(e, ERR_UNSUPPORTED, "downsample_mode of the model and of its pictures differ");
    if (json_bool(json_get(s->config, "drop_vision_last_layer"), false))
        return err_set(e, ERR_UNSUPPORTED, "config.json: drop_vision_last_layer is not supported");
    int64_t times = 1, sides[4] = { SQUARE, SQUARE, SQUARE, SQUARE };
    (void)json_int(json_get(s->config, "merger_times"), &times);
    for (size_t i = 0; i < 4; i++)
        (void)json_int(
            json_at(i < 2 ? json_get(s->config, "merge_kernel_size") : json_get(s->vision, "window_kernel_size"),
                    i % 2),
            &sides[i]);
    for (size_t i = 0; i < 4; i++) {
        if (sides[i] != SQUARE || times != 1)
            return err_set(e, ERR_UNSUPPORTED, "config.json: squares of other than %d x %d patches are not supported",
                           SQUARE, SQUARE);
    }
    if (r->patch < 1 || r->patch > 256 || (r->merge != SQUARE && r->merge != SQUARE * SQUARE) || r->side < r->patch ||
        r->tiles[1] < 1 || r->tiles[1] > MOST_TILES)
        return err_set(e, ERR_FORMAT, "%d tiles of %d pixels, patches of %d, squares of %d do not fit each other",
                       r->tiles[1], r->side, r->patch, r->merge);
    return 0;
}

/* As many rows for every tile. Files say which of the models it is: 2.6, the o of 2.6, 4.0 and 4.5 prepare pictures alike. */
static int read_2(vision_rules *r, const vision_source *s, err *e) {
    int64_t version = 3, queries = QUERIES;
    double  of = 2.6;
    r->merge = 1;
    r->side = source_number(s, "image_size", json_get(s->pre, "scale_resolution"), SCALE);
    r->tiles[1] = source_number(s, NULL, json_get(s->pre, "max_slice_nums"), 9);
    r->split = source_switch(s, "slice_mode", true);
    r->marked = source_switch(s, "use_image_id", true);
    if (s->mmproj) {
        (void)meta_int(model_file_meta(s->mmproj, "clip.minicpmv_version"), &version);
        (void)meta_int(model_file_meta(s->mmproj, "clip.minicpmv_query_num"), &queries);
        if (queries == 0) queries = QUERIES; /* older files do not know */
    } else {
        (void)json_int(json_get(s->config, "query_num"), &queries);
        (void)json_number(json_get(s->config, "version"), &of);
    }
    if (version < 3 || version > 6 || fabs(of - 2.6) > 1e-9)
        return err_set(e, ERR_UNSUPPORTED, "MiniCPM-V: a resampler of version %g is not supported",
                       s->mmproj ? (double)version : of);
    if (json_bool(json_get(s->config, "drop_vision_last_layer"), false))
        return err_set(e, ERR_UNSUPPORTED, "config.json: drop_vision_last_layer is not supported");
    r->queries = queries > 0 && queries <= VISION_MOST_ROWS ? (int)queries : 0;
    if (r->patch < 1 || r->patch > 256 || r->side < r->patch || r->tiles[1] < 1 || r->tiles[1] > MOST_TILES ||
        r->queries < 1)
        return err_set(e, ERR_FORMAT, "%d tiles of %d pixels, patches of %d, %lld rows do not fit each other",
                       r->tiles[1], r->side, r->patch, (long long)queries);
    return 0;
}

static void low(vision_rules *r) { r->split = false; }

static int most_tiles(const vision_rules *r) { return (r->split ? r->tiles[1] : 0) + 1; }

/* A tile of any shape has about as many pixels as a square one: sides are rounded to whole squares. */
static int64_t most_patches(const vision_rules *r) {
    int64_t across = r->side / r->patch + SQUARE * SQUARE;
    return 2 * across * across;
}

/* Python's round(), and not nothing. */
static double near(double x, double step) { return fmax(nearbyint(x / step) * step, step); }

/* Within the pixels of a square tile, or as many; in whole squares. */
static void best_size(const vision_rules *r, double w, double h, bool grow, int *to_w, int *to_h) {
    double side = r->side, step = r->queries ? r->patch : r->patch * SQUARE * SQUARE;
    if (h * w > side * side || grow) {
        double ratio = w / h;
        h = floor(side / sqrt(ratio));
        w = floor(h * ratio);
    }
    *to_w = (int)near(w, step);
    *to_h = (int)near(h, step);
}

/* The grid of about as many tiles as the picture has pixels for, whose shape is nearest to the picture's. */
static bool find_grid(vision_plan *p, const vision_rules *r, double w, double h) {
    double shape = log(w / h), nearest = INFINITY;
    int    n = (int)fmin(ceil(w * h / ((double)r->side * r->side)), r->tiles[1]);
    if (n <= 1) return false;
    p->cols = p->rows = 1;
    for (int k = n - 1; k <= n + 1; k++) {
        for (int cols = 1; cols <= k && k > 1 && k <= r->tiles[1]; cols++) {
            double off = fabs(shape - log((double)cols / ((double)k / cols)));
            if (k % cols || off >= nearest) continue;
            nearest = off;
            p->cols = cols;
            p->rows = k / cols;
        }
    }
    return true;
}

static int plan(vision_plan *p, const vision_rules *r, int width, int height, err *e) {
    int  w, h;
    bool cut = r->split && find_grid(p, r, width, height);
    (void)e;
    best_size(r, width, height, !cut, &w, &h);
    if (cut) {
        best_size(r, near(width, p->cols) / p->cols, near(height, p->rows) / p->rows, true, &p->tile_width,
                  &p->tile_height);
        p->width = p->tile_width * p->cols;
        p->height = p->tile_height * p->rows;
        p->n_tiles = p->rows * p->cols + 1;
        p->whole_width = w;
        p->whole_height = h;
        p->whole_first = true;
    } else {
        p->rows = p->cols = 0;
        vision_one_tile(p, w, h);
    }
    return 0;
}

static void write(str *out, const vision_plan *p, const char *row) {
    if (p->marked) str_printf(out, "<image_id>%d</image_id>", p->number);
    str_puts(out, "<image>");
    vision_put_rows(out, row, p->whole_rows);
    str_puts(out, "</image>");
    for (int y = 0; y < p->rows; y++) {
        if (y) str_push(out, '\n');
        for (int x = 0; x < p->cols; x++) {
            str_puts(out, "<slice>");
            vision_put_rows(out, row, p->tile_rows);
            str_puts(out, "</slice>");
        }
    }
}

static void parts(vision_parts *p, const vision_rules *r, const model_file *model) {
    (void)model;
    vision_set(p, "merger", r->inner != 0, false);
}

/* How wide its rows are, files leave to their matrices. */
static void parts_2(vision_parts *p, const vision_rules *r, const model_file *model) {
    double width = vision_matrix_rows(p->from, "resampler.proj.weight", "resampler.proj");
    (void)model;
    vision_set(p, "positions.nearest", 1, false);
    vision_set(p, "queries", r->queries, false);
    vision_set(p, "projection_dim", width, false);
}

static const vision_kin kin[] = {
    { "minicpmv4_6", "minicpmv4_6", NULL, NULL, PIXELS_BICUBIC, &vision_colours_half },
    { 0 },
};
const vision_family vision_minicpmv = { .kin = kin,
                                        .tower = &models_minicpmv_tower,
                                        .middle = &models_minicpmv_rest,
                                        .projector = &models_projector_minicpmv,
                                        .placeholder = "<|image_pad|>",
                                        .row = "<|image_pad|>",
                                        .read = read,
                                        .low = low,
                                        .plan = plan,
                                        .most_patches = most_patches,
                                        .most_tiles = most_tiles,
                                        .write = write,
                                        .parts = parts };

static const vision_kin kin_2[] = {
    { "minicpmv", "resampler", NULL, NULL, PIXELS_BICUBIC, &vision_colours_half },
    { 0 },
};
const vision_family vision_minicpmv_2 = { .kin = kin_2,
                                          .no_switches = true,
                                          .tower = &models_siglip2,
                                          .projector = &models_resampler,
                                          .placeholder = "(<image>./</image>)",
                                          .row = "<unk>",
                                          .read = read_2,
                                          .low = low,
                                          .plan = plan,
                                          .most_patches = most_patches,
                                          .most_tiles = most_tiles,
                                          .write = write,
                                          .parts = parts_2 };
