/* SPDX-License-Identifier: Apache-2.0 */
/* Running the tower and the projector. */
#include "backend/backend.h"
#include "base/page.h"
#include "vision/internal.h"

#include <stdlib.h>
#include <string.h>

enum { AXES = 2 }; /* the row and the column of a patch */

/* --- a stage --- */

static nn_exec_options exec_options(int max_rows, const vision_options *o) {
    return (nn_exec_options){ .limits = { .max_tokens = max_rows,
                                          .max_seqs = 1,
                                          .max_outputs = max_rows,
                                          .page_tokens = PAGE_TOKENS,
                                          .max_pages = (max_rows + PAGE_TOKENS - 1) / PAGE_TOKENS,
                                          .n_pages = 1,
                                          .n_slots = 1 },
                              .n_threads = o->n_threads,
                              .cpu = o->cpu };
}

int stage_open(vision_stage *s, const model_file *f, const nn_part *part, int max_rows, const vision_options *o,
               err *e) {
    const nn_backend *backend;
    nn_device         device;
    nn_exec_options   x = exec_options(max_rows, o);
    int               rc = nn_model_open_part(&s->model, f, part, e);
    if (rc == 0) rc = backend_find(o->device, &backend, &device, e);
    if (rc == 0) rc = backend->open(&s->exec, &device, s->model, &x, e);
    if (rc < 0) return rc;
    const nn_tape *t = s->model->tape;
    s->max_rows = max_rows;
    s->width_in = (int)t->bufs[t->ops[0].out].width;
    s->width_out = (int)t->bufs[t->hidden].width;
    return 0;
}

int stage_measure(uint64_t *bytes, uint64_t *on_device, const model_file *f, const nn_part *part, int max_rows,
                  const vision_options *o, err *e) {
    const nn_backend *backend;
    nn_device         device;
    nn_model         *model = NULL;
    nn_memory         m;
    nn_exec_options   x = exec_options(max_rows, o);
    int               rc = nn_model_open_part(&model, f, part, e);
    if (rc == 0) rc = backend_find(o->device, &backend, &device, e);
    if (rc == 0) rc = backend->measure(&m, &device, model, &x, e);
    if (rc == 0) {
        /* The rows that run_tile puts in and takes out lie beside them. */
        const nn_tape *t = model->tape;
        uint64_t       wide = (uint64_t)t->bufs[t->ops[0].out].width + (uint64_t)t->bufs[t->hidden].width;
        uint64_t       own = m.pages_bytes + m.heap_bytes + m.weights_bytes;
        *bytes = own + model->mem.used_bytes + wide * (uint64_t)max_rows * sizeof(float);
        *on_device = device.kind == NN_DEVICE_GPU ? own : 0;
    }
    nn_model_free(model);
    return rc;
}

void stage_close(vision_stage *s) {
    nn_exec_free(s->exec);
    nn_model_free(s->model);
    *s = (vision_stage){ 0 };
}

int stage_run(vision_stage *s, const float *in, int n, const int32_t *axes, const vision_order *o, float *out, err *e) {
    int32_t       start[2] = { 0, n }, length = n, slot = 0;
    int32_t      *zero = calloc((size_t)n, sizeof *zero), *count = calloc((size_t)n, sizeof *count);
    const float **rows = calloc((size_t)n, sizeof *rows);
    int           rc = zero && count && rows ? 0 : err_set_nomem(e);
    for (int i = 0; i < n && rc == 0; i++) {
        count[i] = i;
        rows[i] = in + (size_t)i * (size_t)s->width_in;
    }
    nn_batch b = { .n_tok = n,
                   .n_seq = 1,
                   .n_out = n,
                   .token = zero,
                   .pos = count,
                   .seq_of = zero,
                   .q_start = start,
                   .kv_len = &length,
                   .pages_stride = s->exec->options.limits.max_pages,
                   .state_slot = &slot,
                   .out_rows = count,
                   .embd = rows,
                   .row_begin = o ? o->begin : NULL,
                   .row_end = o ? o->end : NULL,
                   .pos_axes = axes,
                   .n_axes = axes ? AXES : 0 };
    for (int g = 0; g < NN_MAX_GROUPS; g++) b.pages[g] = zero; /* nothing is stored beyond the step */
    if (rc == 0) rc = nn_exec_step(s->exec, &b, e);
    if (rc == 0) rc = s->exec->backend->fetch(s->exec, NN_FETCH_HIDDEN, 0, n, out, e);
    free(zero);
    free(count);
    free(rows);
    return rc;
}

/* --- a tile --- */

/* The range that the tower was trained with, by channel and byte. */
typedef struct shades {
    float of[PIXELS_CHANNELS][256];
} shades;

static void make_shades(shades *s, const vision_rules *r) {
    for (int c = 0; c < PIXELS_CHANNELS; c++) {
        float mean = r->mean[c] * 255.0f, std = r->std[c] * 255.0f;
        for (int i = 0; i < 256; i++) s->of[c][i] = ((float)i - mean) / std;
    }
}

/* A patch of side p, [channel][y][x] or [y][x][channel]. */
static void put_patch(float *to, const shades *s, int p, const pixels *tile, int row, int col, bool last) {
    for (int y = 0; y < p; y++) {
        const uint8_t *from =
            tile->rgb + ((size_t)(row * p + y) * (size_t)tile->width + (size_t)(col * p)) * PIXELS_CHANNELS;
        for (int c = 0; c < PIXELS_CHANNELS; c++) {
            for (int x = 0; x < p; x++)
                to[last ? (y * p + x) * PIXELS_CHANNELS + c : (c * p + y) * p + x] =
                    s->of[c][from[x * PIXELS_CHANNELS + c]];
        }
    }
}

/* Places `at` of `n` on a line of `side` learned positions whose ends are the line's ends: the one before and its share. */
static int between(int at, int n, int side, float *share) {
    float x = n > 1 ? (float)at * ((float)(side - 1) / (float)(n - 1)) : 0;
    int   low = (int)x;
    *share = x - (float)low;
    return low;
}

/* The learned position of a patch. */
static void put_position(float *to, const nn_tower_top *top, size_t width, int row, int col, int down, int across) {
    const float *all = top->positions->data;
    if (top->crossed) {
        size_t per = (size_t)top->positions->n / width / 2;
        for (size_t k = 0; k < width; k++) to[k] = all[(size_t)col * width + k] + all[(per + (size_t)row) * width + k];
        return;
    }
    float        dy, dx;
    int          side = top->side, y = between(row, down, side, &dy), x = between(col, across, side, &dx);
    int          y1 = y + 1 < side ? y + 1 : y, x1 = x + 1 < side ? x + 1 : x;
    const float *a = all + (size_t)(y * side + x) * width, *b = all + (size_t)(y * side + x1) * width;
    const float *c = all + (size_t)(y1 * side + x) * width, *d = all + (size_t)(y1 * side + x1) * width;
    for (size_t k = 0; k < width; k++)
        to[k] = a[k] * ((1 - dy) * (1 - dx)) + b[k] * ((1 - dy) * dx) + c[k] * (dy * (1 - dx)) + d[k] * (dy * dx);
}

/* The tower's input: all patches in their order, behind the class row where there is one. Returns how many rows that are. */
static int put_rows(const vision *v, const pixels *tile, const vision_order *o, float *in) {
    const nn_tower_top *top = v->tower.model->net.top;
    int                 across = tile->width / v->rules.patch, down = tile->height / v->rules.patch, n = 0;
    int                 before = 3 * v->rules.patch * v->rules.patch, width = v->tower.width_in - before;
    shades              s;
    make_shades(&s, &v->rules);
    for (int i = top->class_row ? -1 : 0; i < o->n; i++, n++) {
        float *row = in + (size_t)n * (size_t)v->tower.width_in;
        int    at = i < 0 ? -1 : o->patch[i];
        if (i < 0)
            memset(row, 0, (size_t)before * sizeof *row);
        else
            put_patch(row, &s, v->rules.patch, tile, at / across, at % across, top->channels_last);
        if (!top->positions) memset(row + before, 0, (size_t)width * sizeof *row);
        if (top->side || top->crossed)
            put_position(row + before, top, (size_t)width, at / across, at % across, down, across);
        else if (top->positions)
            memcpy(row + before, top->positions->data + (size_t)n * (size_t)width, (size_t)width * sizeof *row);
        for (int k = 0; i < 0 && k < width; k++) row[before + k] += top->class_row->data[k];
    }
    return n;
}

/* What becomes of the rows of a square of patches. */
typedef enum joining {
    MEAN,
    SIDE_BY_SIDE,
    CHANNELS /* all of the first element, then all of the second, ... */
} joining;

static const joining joinings[] = {
    [VISION_GEMMA3] = MEAN,        [VISION_LLAVA] = SIDE_BY_SIDE, [VISION_IDEFICS3] = SIDE_BY_SIDE,
    [VISION_PIXTRAL] = CHANNELS,   [VISION_QWEN2] = SIDE_BY_SIDE, [VISION_QWEN2_5] = SIDE_BY_SIDE,
    [VISION_QWEN3] = SIDE_BY_SIDE, [VISION_GEMMA4] = MEAN,
};

static void join(float *to, const float *from, size_t w, int k, int n, joining how) {
    switch (how) {
    case MEAN:
        for (size_t i = 0; i < w; i++) to[i] = (k ? to[i] : 0) + from[i];
        for (size_t i = 0; k + 1 == n && i < w; i++) to[i] /= (float)n;
        break;
    case SIDE_BY_SIDE: memcpy(to + (size_t)k * w, from, w * sizeof *to); break;
    case CHANNELS:
        for (size_t i = 0; i < w; i++) to[i * (size_t)n + (size_t)k] = from[i];
        break;
    }
}

/* Squares of patches become a row each. Returns how many there are. place: where each patch is among the tower's rows. */
static int merge(const vision *v, const pixels *tile, const int32_t *place, const float *rows, float *out) {
    int    m = v->rules.merge, across = tile->width / v->rules.patch, down = tile->height / v->rules.patch, n = 0;
    size_t w = (size_t)v->tower.width_out;
    for (int y = 0; y < down / m; y++) {
        for (int x = 0; x < across / m; x++, n++) {
            float *to = out + (size_t)n * (size_t)v->projector.width_in;
            for (int k = 0; k < m * m; k++)
                join(to, rows + (size_t)place[(y * m + k / m) * across + x * m + k % m] * w, w, k, m * m,
                     joinings[v->rules.kind]);
        }
    }
    return n;
}

static int rows_of(const vision *v, const pixels *tile) {
    int square = v->rules.patch * v->rules.merge;
    return tile->width / square * (tile->height / square);
}

/* Where the tower's rows are in the picture, [AXES][n]; and the other way round, [n], behind them. */
static int32_t *put_axes(const vision_order *o, int across) {
    int32_t *axes = calloc((size_t)o->n * (AXES + 1), sizeof *axes);
    for (int i = 0; axes && i < o->n; i++) {
        axes[i] = o->patch[i] / across;
        axes[o->n + i] = o->patch[i] % across;
        axes[AXES * o->n + o->patch[i]] = i;
    }
    return axes;
}

static int run_tile(vision *v, const pixels *tile, const vision_order *o, float *out, err *e) {
    const nn_tower_top *top = v->tower.model->net.top;
    size_t              most = (size_t)o->n + 1, wide = (size_t)v->tower.width_in;
    int32_t            *axes = put_axes(o, tile->width / v->rules.patch);
    bool                turned = v->tower.model->tape->n_axes > 0;
    size_t              merged = most * (size_t)v->projector.width_in;
    float              *in = malloc((most * wide > merged ? most * wide : merged) * sizeof *in),
          *rows = malloc(most * (size_t)v->tower.width_out * sizeof *rows);
    int rc = in && rows && axes ? 0 : err_set_nomem(e);
    int n = rc == 0 ? put_rows(v, tile, o, in) : 0;
    if (rc == 0) rc = stage_run(&v->tower, in, n, turned ? axes : NULL, o, rows, e);
    if (rc == 0) {
        n = merge(v, tile, axes + AXES * o->n, rows + (top->class_row ? v->tower.width_out : 0), in);
        rc = stage_run(&v->projector, in, n, NULL, NULL, out, e);
    }
    free(in);
    free(rows);
    free(axes);
    return rc;
}

static int encode_tile(vision *v, const pixels *tile, float *out, err *e) {
    vision_order o;
    int          rc = order_make(&o, &v->rules, tile->width / v->rules.patch, tile->height / v->rules.patch, e);
    if (rc == 0) rc = run_tile(v, tile, &o, out, e);
    order_free(&o);
    return rc;
}

/* --- a picture --- */

int vision_encode_cut(vision *v, const pixels *tiles, int n_tiles, float **rows, int *n, err *e) {
    size_t width = (size_t)v->projector.width_out, at = 0;
    int    rc = 0;
    *n = 0;
    for (int i = 0; i < n_tiles; i++) *n += rows_of(v, &tiles[i]);
    if (!(*rows = malloc((size_t)*n * width * sizeof **rows))) return err_set_nomem(e);
    for (int i = 0; i < n_tiles && rc == 0; i++) {
        rc = encode_tile(v, &tiles[i], *rows + at * width, e);
        at += (size_t)rows_of(v, &tiles[i]);
    }
    if (rc < 0) free(*rows);
    return rc;
}

int vision_encode(vision *v, const pixels *picture, const vision_rows **out, err *e) {
    vision_rows made = { .width = v->projector.width_out };
    pixels     *tiles;
    int         n_tiles;
    keep_key(v, picture, made.key);
    if ((*out = keep_find(&v->keep, made.key))) return 0;
    int rc = vision_cut(v, picture, &tiles, &n_tiles, e);
    if (rc < 0) return rc;
    rc = vision_encode_cut(v, tiles, n_tiles, &made.data, &made.n, e);
    vision_cut_free(tiles, n_tiles);
    return rc < 0 ? rc : keep_add(&v->keep, &made, out, e);
}
