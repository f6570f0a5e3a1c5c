/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LLaVA 1.6 (LLaVA-NeXT) and LLaVA-OneVision: the whole picture, squeezed into a tile, and behind it the picture in the middle of
 * the best of some canvases, cut into tiles. Of their rows, put together as the tiles lie, those of the canvas' edges are left out,
 * OneVision scales what is too much, and each line ends with a learned row. Granite 4 Vision does the same with several parts of a
 * row, each from projectors of its own (models/window_qformer.c), a row for four patches.
 */
#include "models/list.h"
#include "vision/family.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tiles that OneVision's lines may have as many rows as, as it says "anyres_max_9"; a scale below this is none. */
enum { MOST_TILES = 9 };
static const double LEAST_SCALE = 1.1;

static const uint8_t grids_next[][2] = { { 1, 2 }, { 2, 1 }, { 2, 2 }, { 3, 1 }, { 1, 3 } };

/* Rows and columns of tiles from a canvas' height and width. */
static int add_grid(vision_rules *r, int64_t height, int64_t width, err *e) {
    int64_t rows = r->side > 0 ? height / r->side : 0, cols = r->side > 0 ? width / r->side : 0;
    if (rows < 1 || cols < 1 || rows > VISION_MOST_TILES || cols > VISION_MOST_TILES || rows * r->side != height ||
        cols * r->side != width || rows * cols > VISION_MOST_TILES)
        return err_set(e, ERR_UNSUPPORTED, "image_grid_pinpoints: %lld x %lld for tiles of %d", (long long)height,
                       (long long)width, r->side);
    if (r->n_grids == VISION_MOST_GRIDS)
        return err_set(e, ERR_UNSUPPORTED, "image_grid_pinpoints has more than %d entries", VISION_MOST_GRIDS);
    r->grid[r->n_grids][0] = (uint8_t)rows;
    r->grid[r->n_grids++][1] = (uint8_t)cols;
    return 0;
}

/* 0 where it is none that a canvas could have. */
static int64_t whole_number(double x) { return x >= 1 && x <= INT32_MAX ? (int64_t)x : 0; }

/* As the language model's rows are made: by config.json, and not by the preprocessor, where they differ. */
static int read_grids(vision_rules *r, const vision_source *s, err *e) {
    const meta_value *meta = s->mmproj ? source_meta(s, "image_grid_pinpoints") : NULL;
    const json_value *list = json_get(s->config, "image_grid_pinpoints");
    double            h, w;
    int               rc = 0;
    if (!json_is(list, JSON_K_ARRAY)) list = json_get(s->pre, "image_grid_pinpoints");
    for (size_t i = 0; rc == 0 && meta_at_real(meta, 2 * i, &h) && meta_at_real(meta, 2 * i + 1, &w); i++)
        rc = add_grid(r, whole_number(h), whole_number(w), e);
    for (size_t i = 0; rc == 0 && i < json_count(list); i++) {
        int64_t height = 0, width = 0;
        (void)json_int(json_at(json_at(list, i), 0), &height);
        (void)json_int(json_at(json_at(list, i), 1), &width);
        rc = add_grid(r, height, width, e);
    }
    if (rc < 0 || r->n_grids) return rc;
    for (int i = 1; r->most_kept && i <= 6; i++) { /* OneVision's */
        for (int j = 1; j <= 6; j++) (void)add_grid(r, i * r->side, j * r->side, NULL);
    }
    for (size_t i = 0; !r->most_kept && i < sizeof grids_next / sizeof *grids_next; i++)
        (void)add_grid(r, grids_next[i][0] * r->side, grids_next[i][1] * r->side, NULL);
    return 0;
}

/* CLIP has a row in front that is left out, SigLIP none. */
static int check_strategy(const vision_source *s, bool next, err *e) {
    const char *tower = json_cstr(json_get(s->vision, "model_type")),
               *strategy = json_cstr(json_get(s->config, "vision_feature_select_strategy"));
    if (s->mmproj) return 0;
    if (!tower) tower = next ? "clip_vision_model" : "siglip_vision_model";
    if (!strategy) strategy = next ? "default" : "full";
    if (strcmp(strategy, strcmp(tower, "clip_vision_model") == 0 ? "default" : "full") == 0) return 0;
    return err_set(e, ERR_UNSUPPORTED, "config.json: vision_feature_select_strategy is %.40s, the tower %.40s",
                   strategy, tower);
}

static int read(vision_rules *r, const vision_source *s, err *e) {
    static const char *const names[] = { "crop_size", "size", "size" }, *const sides[] = { "height", "height",
                                                                                           "shortest_edge" };
    bool        next = r->kind != VISION_LLAVA_ONEVISION;
    const char *ratio = json_cstr(json_get(s->config, "vision_aspect_ratio"));
    int         image = r->side, rc = check_strategy(s, next, e);
    if (rc < 0) return rc;
    r->merge = 1;
    r->split = true;
    if (!next) r->most_kept = MOST_TILES;
    if (!next && ratio) {
        char *end = NULL;
        long  most = strncmp(ratio, "anyres_max_", 11) == 0 ? strtol(ratio + 11, &end, 10) : 0;
        if (!end || *end || most < 1 || most > VISION_MOST_TILES)
            return err_set(e, ERR_UNSUPPORTED, "config.json: vision_aspect_ratio is %.40s", ratio);
        r->most_kept = (int)most;
    }
    for (size_t i = 0; i < 3 && !s->mmproj; i++) {
        const json_value *side = source_size(s, names[i], sides[i]);
        int64_t           x;
        if (!json_int(side, &x)) continue;
        if (x != image)
            return err_set(e, ERR_UNSUPPORTED, "tiles of %lld pixels for a tower of %d", (long long)x, image);
        break;
    }
    rc = vision_check_squares(r, e);
    return rc < 0 ? rc : read_grids(r, s, e);
}

static void low(vision_rules *r) { r->split = false; }

/* The canvas on which the picture keeps the most pixels; of equals the smallest. */
static const uint8_t *choose(const vision_rules *r, int width, int height) {
    const uint8_t *best = r->grid[0];
    int64_t        most = 0, least = INT64_MAX, own = (int64_t)width * height;
    for (int i = 0; i < r->n_grids; i++) {
        int     high = r->grid[i][0] * r->side, wide = r->grid[i][1] * r->side;
        double  scale = fmin((double)wide / width, (double)high / height);
        int64_t kept = (int64_t)(width * scale) * (int64_t)(height * scale);
        if (kept > own) kept = own;
        int64_t wasted = (int64_t)wide * high - kept;
        if (kept < most || (kept == most && wasted >= least)) continue;
        most = kept;
        least = wasted;
        best = r->grid[i];
    }
    return best;
}

/* Python's int(round(x, 7)). */
static int whole(double x) { return (int)floor(x + 5e-8); }

/* Which of the rows stay, from the shapes of the picture and of the grid. */
static void keep_rows(vision_plan *p, const vision_rules *r, int width, int height) {
    int    side = r->side / r->patch / r->merge, across = p->cols * side, down = p->rows * side;
    double ratio = (double)width / height, scale;
    if (ratio > (double)across / down)
        p->grid_top = (down - whole(height * ((double)across / width))) / 2;
    else
        p->grid_left = (across - whole(width * ((double)down / height))) / 2;
    p->kept_width = p->grid_width = across - 2 * p->grid_left;
    p->kept_height = p->grid_height = down - 2 * p->grid_top;
    if (r->most_kept &&
        (scale = sqrt((double)p->grid_width * p->grid_height / (r->most_kept * side * side))) > LEAST_SCALE) {
        p->kept_width = (int)fmax(1, floor(p->grid_width / scale));
        p->kept_height = (int)fmax(1, floor(p->grid_height / scale));
    }
    p->n_rows = side * side + p->kept_height * (p->kept_width + 1);
}

static int plan(vision_plan *p, const vision_rules *r, int width, int height, err *e) {
    int side = r->side / r->patch / r->merge;
    (void)e;
    vision_one_tile(p, r->side, r->side);
    p->n_rows = side * side + 1;
    if (!r->split) return 0;
    const uint8_t *grid = choose(r, width, height);
    p->rows = grid[0];
    p->cols = grid[1];
    p->canvas_width = p->cols * r->side;
    p->canvas_height = p->rows * r->side;
    double by_width = (double)p->canvas_width / width, by_height = (double)p->canvas_height / height;
    p->width = p->canvas_width;
    p->height = p->canvas_height;
    if (by_width < by_height)
        p->height = (int)fmin(ceil(height * by_width), p->canvas_height);
    else
        p->width = (int)fmin(ceil(width * by_height), p->canvas_width);
    p->n_tiles = p->rows * p->cols + 1;
    p->whole_first = p->whole_anew = true;
    keep_rows(p, r, width, height);
    return 0;
}

static int most_tiles(const vision_rules *r) {
    int most = 0;
    for (int i = 0; i < r->n_grids; i++) {
        int n = r->grid[i][0] * r->grid[i][1];
        if (n > most) most = n;
    }
    return most + 1;
}

/* The row at a place of the grid. */
static const float *row_at(const vision_plan *p, const float *rows, size_t width, int y, int x) {
    int down = p->tile_rows / p->across;
    y += p->grid_top;
    x += p->grid_left;
    int tile = 1 + y / down * p->cols + x / p->across, at = y % down * p->across + x % p->across;
    return rows + ((size_t)tile * (size_t)p->tile_rows + (size_t)at) * width;
}

/* Where place `at` of `to` lies among `from`: centres on centres; the neighbours before and behind it, and the share of the
 * latter. */
static float between(int at, int to, int from, int *before, int *behind) {
    float place = ((float)at + 0.5f) * ((float)from / (float)to) - 0.5f;
    if (place < 0) place = 0;
    *before = (int)place;
    *behind = *before + (*before < from - 1);
    return place - (float)*before;
}

static void put_row(float *out, const vision_plan *p, const float *rows, size_t width, int y, int x) {
    if (p->kept_width == p->grid_width && p->kept_height == p->grid_height) {
        memcpy(out, row_at(p, rows, width, y, x), width * sizeof *out);
        return;
    }
    int          y0, y1, x0, x1;
    float        dy = between(y, p->kept_height, p->grid_height, &y0, &y1);
    float        dx = between(x, p->kept_width, p->grid_width, &x0, &x1);
    const float *a = row_at(p, rows, width, y0, x0), *b = row_at(p, rows, width, y0, x1);
    const float *c = row_at(p, rows, width, y1, x0), *d = row_at(p, rows, width, y1, x1);
    for (size_t k = 0; k < width; k++)
        out[k] = (1 - dy) * ((1 - dx) * a[k] + dx * b[k]) + dy * ((1 - dx) * c[k] + dx * d[k]);
}

/* In every part of a row but the first, where there are several. */
static void end_line(float *out, const nn_projector_top *top, size_t width) {
    size_t n = (size_t)top->newline->n, first = width > n ? n : 0;
    for (size_t k = 0; k < first; k++) out[k] = 0;
    for (size_t k = first; k < width; k++) out[k] = top->newline->data[k % n] * top->scale;
}

static void arrange(float *out, const vision *v, const vision_plan *p, const float *rows) {
    const nn_projector_top *top = v->projector.model->net.top;
    size_t                  width = (size_t)v->projector.width_out;
    memcpy(out, rows, (size_t)p->tile_rows * width * sizeof *out);
    out += (size_t)p->tile_rows * width;
    if (p->n_tiles == 1) end_line(out, top, width);
    for (int y = 0; y < p->kept_height; y++) {
        for (int x = 0; x < p->kept_width; x++, out += width) put_row(out, p, rows, width, y, x);
        end_line(out, top, width);
        out += width;
    }
}

static void parts(vision_parts *p, const vision_rules *r, const model_file *model) {
    const char *tower = json_cstr(json_get(p->tower.config, "model_type"));
    double      scale = 1;
    bool        mmproj = !p->tower.config;
    (void)r;
    if (tower && strcmp(tower, "siglip_vision_model") == 0) p->tower.arch = &models_siglip_inner;
    if (tower && strcmp(tower, "clip_vision_model") == 0) p->tower.arch = &models_clip;
    if (mmproj && !model_file_tensor(p->from, "v.class_embd")) p->tower.arch = &models_siglip_inner;
    /* Granite scales all that goes into its first layer. */
    if (!json_number(json_get(model_file_text_config(model), "embedding_multiplier"), &scale))
        (void)meta_real(model_file_meta(model, "granite.embedding_scale"), &scale);
    vision_set(p, "rows.scale", scale, false);
}

#define LLAVA                                                                                                          \
    .silent = &vision_colours_clip, .fixed_tiles = true, .projector = &models_projector_llava_next,                    \
    .placeholder = "<image>", .row = "<image>", .row_else = "<unk>", .read = read, .low = low, .plan = plan,           \
    .most_tiles = most_tiles, .arrange = arrange, .parts = parts

static const vision_kin kin_next[] = {
    { "llava_next", "mlp", NULL, "clip_vision_model", PIXELS_BICUBIC, &vision_colours_clip },
    { "llava_next", NULL, NULL, "siglip_vision_model", PIXELS_BICUBIC, &vision_colours_half },
    { "llava_next_video", NULL, NULL, "clip_vision_model", PIXELS_BICUBIC, &vision_colours_clip },
    { 0 },
};
const vision_family vision_llava_next = { LLAVA, .kin = kin_next, .tower = &models_clip };

static const vision_kin kin_onevision[] = {
    { "llava_onevision", NULL, NULL, "siglip_vision_model", PIXELS_BICUBIC, &vision_colours_clip },
    { 0 },
};
const vision_family vision_llava_onevision = { LLAVA, .kin = kin_onevision, .tower = &models_siglip_inner };

/* --- Granite 4 Vision --- */

enum { MOST_DEEP = NN_WINDOW_MOST - 4 };

/* 0 where it says nonsense. */
static int whole_or(const json_value *v, const char *key, int64_t dflt) {
    enum { MOST = 1 << 20 };
    (void)json_int(json_get(v, key), &dflt);
    return dflt >= -MOST && dflt <= MOST ? (int)dflt : 0;
}

/* Of a projector's attention, as wide as the tower. */
static int check_queries(const vision_source *s, err *e) {
    const json_value *q = json_get(s->config, "qformer_config"), *map = json_get(s->config, "deepstack_layer_map");
    const char       *type = json_cstr(json_get(q, "model_type")), *act = json_cstr(json_get(q, "hidden_act"));
    int               width = whole_or(s->vision, "hidden_size", 768);
    if (!json_is(map, JSON_K_ARRAY) || json_count(map) > MOST_DEEP)
        return err_set(e, ERR_UNSUPPORTED, "config.json: deepstack_layer_map has %zu entries; up to %d are supported",
                       json_count(map), MOST_DEEP);
    if (!json_is(q, JSON_K_OBJECT)) return 0;
    if ((type && strcmp(type, "blip_2_qformer") != 0) || (act && strcmp(act, "gelu") != 0) ||
        whole_or(q, "num_hidden_layers", 12) != 1 || whole_or(q, "hidden_size", 768) != width ||
        whole_or(q, "encoder_hidden_size", 1408) != width)
        return err_set(
            e, ERR_UNSUPPORTED,
            "config.json: qformer_config; one layer of blip_2_qformer with gelu, as wide as the tower (%d), is "
            "supported",
            width);
    return 0;
}

/* The fraction's lower number is the side of a window in patches, and the upper one half of it: a query for four patches, one of
 * which is where the queries of some projectors begin. */
static int read_windows(vision_rules *r, const vision_source *s, err *e) {
    const char *rate = json_cstr(json_get(s->config, "downsample_rate"));
    int         queries, window, end = 0, rc = read(r, s, e);
    if (rc == 0) rc = check_queries(s, e);
    if (rc < 0) return rc;
    if (!rate || strlen(rate) > 8 || sscanf(rate, "%d/%d%n", &queries, &window, &end) != 2 || rate[end] || window < 2 ||
        window > 64 || 2 * queries != window)
        return err_set(e, ERR_UNSUPPORTED, "config.json: downsample_rate is %.40s; one half is supported, as 4/8",
                       rate ? rate : "not there");
    if (r->side / r->patch % window)
        return err_set(e, ERR_UNSUPPORTED, "windows of %d patches in tiles of %d", window, r->side / r->patch);
    r->merge = 2;
    r->edge = window;
    return vision_check_squares(r, e);
}

/* What the projectors' own part of config.json says, and what stands for it where there is none. 0 heads are refused further on. */
static void parts_windows(vision_parts *p, const vision_rules *r, const model_file *model) {
    static const char *const taps[] = { "tap.0", "tap.1", "tap.2", "tap.3", "tap.4" };
    const json_value        *outer = p->tower.outer, *q = json_get(outer, "qformer_config"),
                     *map = json_get(outer, "deepstack_layer_map");
    int    width = whole_or(p->tower.config, "hidden_size", 768);
    size_t deep = json_is(map, JSON_K_ARRAY) && json_count(map) <= MOST_DEEP ? json_count(map) : 0;
    double eps = 1e-12;
    bool   own = json_is(q, JSON_K_OBJECT);
    (void)model;
    (void)json_number(json_get(q, "layer_norm_eps"), &eps);
    for (size_t i = 0; i < deep; i++) {
        int64_t at = 0;
        (void)json_int(json_at(json_at(map, i), 0), &at);
        vision_set(p, taps[i], at >= -4096 && at <= 4096 ? (double)at : 0, false);
    }
    vision_set(p, taps[deep], (double)whole_or(outer, "spatial_vision_layer", -1), false);
    vision_set(p, "taps", (double)deep + 1, false);
    vision_set(p, "qformer.deep", (double)deep, false);
    vision_set(p, "qformer.window", r->edge, false);
    vision_set(p, "qformer.eps", eps, false);
    vision_set(p, "qformer.heads", (double)(own ? whole_or(q, "num_attention_heads", 12) : width / 64), false);
    vision_set(p, "qformer.ff", (double)(own ? whole_or(q, "intermediate_size", 3072) : 3072), false);
}

static const vision_kin kin_granite4[] = {
    { "granite4_vision", NULL, NULL, "siglip_vision_model", PIXELS_BICUBIC, &vision_colours_half },
    { 0 },
};
const vision_family vision_granite4 = { .kin = kin_granite4,
                                        .silent = &vision_colours_clip,
                                        .fixed_tiles = true,
                                        .windows = true,
                                        .tower = &models_siglip_inner,
                                        .middle = &models_window_qformer_asked,
                                        .projector = &models_window_qformer,
                                        .placeholder = "<image>",
                                        .row = "<image>",
                                        .read = read_windows,
                                        .low = low,
                                        .plan = plan,
                                        .most_tiles = most_tiles,
                                        .arrange = arrange,
                                        .parts = parts_windows };
