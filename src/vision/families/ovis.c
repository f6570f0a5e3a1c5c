/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ovis 2: the whole, squeezed into a tile, and behind it a grid of as few tiles as lose less than a tenth of the picture's pixels.
 * Rows are mixtures of the embeddings of a visual vocabulary (mix.c). Its last five words stand in front of the whole, behind
 * it, between tiles, between lines of tiles, and behind all: they are rows of the picture, too, and so have the row's word in the
 * prompt, where the reference has words of their own, whose embeddings it then replaces.
 */
#include "models/list.h"
#include "vision/family.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROW "<IMG_ATOM>"

enum { MARK_START, MARK_GRID, MARK_COLUMN, MARK_LINE, MARK_END, MARKS };
enum { MOST_TILES = 12, LIMIT_TILES = 64 };

static int read(vision_rules *r, const vision_source *s, err *e) {
    int image = json_get(s->vision, "image_size") ? r->side : 224;
    if (!json_get(s->vision, "patch_size")) r->patch = 14;
    r->merge = r->inner = source_number(s, NULL, json_get(s->vision, "hidden_stride"), 1);
    r->marks = source_number(s, NULL, json_get(s->vision, "num_visual_indicator_tokens"), MARKS);
    r->side = source_number(s, NULL, source_size(s, "size", "height"), 384);
    r->split = source_switch(s, "crop_to_patches", false);
    r->covering = source_switch(s, "use_covering_area_grid", true);
    r->least = source_number(s, NULL, json_get(s->pre, "min_patches"), 1);
    r->most = source_number(s, NULL, json_get(s->pre, "max_patches"), MOST_TILES);
    if (r->marks != MARKS)
        return err_set(e, ERR_UNSUPPORTED, "num_visual_indicator_tokens is not %d; this is not supported", MARKS);
    if (source_switch(s, "do_center_crop", false))
        return err_set(e, ERR_UNSUPPORTED, "preprocessor_config.json: do_center_crop is true, which is not supported");
    if (r->least < 1 || r->most < r->least || r->most > LIMIT_TILES)
        return err_set(e, ERR_FORMAT, "a picture of %d to %d tiles", r->least, r->most);
    if (r->side != image || source_number(s, NULL, source_size(s, "size", "width"), 384) != image)
        return err_set(e, ERR_UNSUPPORTED, "tiles of %d pixels for a tower of %d", r->side, image);
    return vision_check_squares(r, e);
}

static void low(vision_rules *r) { r->split = false; }

/* How much of a picture is left where it lies in pieces, none of which keeps a longer side than a tile's. */
static double covered(int width, int height, int down, int across, int side) {
    double sum = 0;
    int    high = height / down, wide = width / across;
    for (int y = 0; y < down; y++) {
        for (int x = 0; x < across; x++) {
            double w = x == across - 1 ? width - x * wide : wide, h = y == down - 1 ? height - y * high : high;
            double longer = fmax(w, h), shorter = fmin(w, h);
            if (longer > side) {
                shorter = shorter / longer * side;
                longer = side;
            }
            sum += longer * shorter;
        }
    }
    return sum / ((double)width * height);
}

/* The fewest tiles that keep more than nine tenths, and of as many those that keep the most; where none do, those that keep the
 * most. The reference takes the picture's lines for columns here. */
static void find_covering(const vision_rules *r, int width, int height, int *cols, int *rows) {
    double best = -1;
    bool   enough = false;
    for (int n = 1; n <= r->most && !enough; n++) {
        for (int a = 1; a <= n; a++) {
            double kept = n % a ? -1 : covered(width, height, a, n / a, r->side);
            if (kept <= best) continue;
            best = kept;
            *cols = a;
            *rows = n / a;
        }
        enough = best > 0.9;
    }
}

static int plan(vision_plan *p, const vision_rules *r, int width, int height, err *e) {
    int square = r->patch * r->merge, tile = r->side / square * (r->side / square);
    (void)e;
    vision_one_tile(p, r->side, r->side);
    if (r->split && r->most > 1 && !r->covering) {
        vision_grid_alike(p, r, width, height);
    } else if (r->split && r->most > 1) {
        int cols = 1, rows = 1;
        find_covering(r, width, height, &cols, &rows);
        vision_put_grid(p, r, cols, rows);
    }
    p->whole_first = p->n_tiles > 1;
    p->n_rows = p->n_tiles * tile + 3;
    if (p->n_tiles > 1) p->n_rows += p->rows * p->cols - 1;
    return 0;
}

/* Rows of the vocabulary's last words, each of which is all of its own mixture. */
static int opened(vision *v, err *e) {
    size_t in = (size_t)v->projector.width_in, width = (size_t)v->projector.width_out;
    float *shares = calloc(in, sizeof *shares);
    int    rc = 0;
    v->fixed = malloc(MARKS * width * sizeof *v->fixed);
    if (!shares || !v->fixed) rc = err_set_nomem(e);
    for (size_t i = 0; i < MARKS && rc == 0; i++) {
        stage_step step = { .n = 1, .in = shares, .out = v->fixed + i * width };
        shares[in - MARKS + i] = 1;
        rc = stage_run(&v->projector, &step, e);
        shares[in - MARKS + i] = 0;
    }
    free(shares);
    return rc;
}

/* Copies n rows and says where the next one belongs. */
static float *put(float *to, const float *from, int n, size_t width) {
    memcpy(to, from, (size_t)n * width * sizeof *to);
    return to + (size_t)n * width;
}

static void arrange(float *out, const vision *v, const vision_plan *p, const float *rows) {
    size_t       width = (size_t)v->projector.width_out, tile = (size_t)p->tile_rows * width;
    const float *marks = v->fixed;
    out = put(out, marks + MARK_START * width, 1, width);
    out = put(out, rows, p->tile_rows, width);
    out = put(out, marks + MARK_GRID * width, 1, width);
    for (int i = 0; i < p->rows * p->cols; i++) {
        if (i) out = put(out, marks + (i % p->cols ? MARK_COLUMN : MARK_LINE) * width, 1, width);
        out = put(out, rows + (size_t)(i + 1) * tile, p->tile_rows, width);
    }
    (void)put(out, marks + MARK_END * width, 1, width);
}

/* What the reference's class takes where the files are silent. */
static void parts(vision_parts *p, const vision_rules *r, const model_file *model) {
    (void)r, (void)model;
    vision_set(p, "block_count", 24, true);
    vision_set(p, "embedding_length", 1024, true);
    vision_set(p, "feed_forward_length", 2816, true);
    vision_set(p, "attention.head_count", 8, true);
}

static const vision_kin kin[] = {
    { "ovis2", NULL, NULL, NULL, PIXELS_BICUBIC, &vision_colours_clip },
    { 0 },
};
const vision_family vision_ovis = { .kin = kin,
                                    .tower = &models_ovis_tower,
                                    .middle = &models_ovis_head,
                                    .projector = &models_projector_ovis,
                                    .placeholder = "<image>",
                                    .row = ROW,
                                    .fixed_tiles = true,
                                    .mixes = true,
                                    .read = read,
                                    .low = low,
                                    .plan = plan,
                                    .most_tiles = vision_grid_most,
                                    .arrange = arrange,
                                    .opened = opened,
                                    .parts = parts };
