/* SPDX-License-Identifier: Apache-2.0 */
/* Running the tower and the projector. */
#include "backend/backend.h"
#include "backend/parts.h"
#include "base/page.h"
#include "tensor/half.h"
#include "vision/family.h"

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

/* A tower is small: of several devices that share a model it is on the last one. */
static int find_device(const char *id, const nn_backend **backend, nn_device *device, err *e) {
    backend_parts p;
    int           rc = backend_parts_read(&p, id, e);
    return rc < 0 ? rc : backend_find(p.part[p.n - 1].device, backend, device, e);
}

int stage_open(vision_stage *s, const model_file *f, const nn_part *part, int max_rows, const vision_options *o,
               err *e) {
    const nn_backend *backend;
    nn_device         device;
    nn_exec_options   x = exec_options(max_rows, o);
    int               rc = nn_model_open_part(&s->model, f, part, e);
    if (rc == 0) rc = find_device(o->device, &backend, &device, e);
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
    if (rc == 0) rc = find_device(o->device, &backend, &device, e);
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

int stage_run(vision_stage *s, const stage_step *step, err *e) {
    int           n = step->n, n_out = step->out_rows ? step->n_out : n;
    int32_t       start[2] = { 0, n }, length = n, slot = 0;
    int32_t      *zero = calloc((size_t)n, sizeof *zero), *count = calloc((size_t)n, sizeof *count);
    const float **rows = calloc((size_t)n, sizeof *rows);
    int           rc = zero && count && rows ? 0 : err_set_nomem(e);
    for (int i = 0; i < n && rc == 0; i++) {
        count[i] = i;
        if (step->in) rows[i] = step->in + (size_t)i * (size_t)s->width_in;
    }
    nn_batch b = { .n_tok = n,
                   .n_seq = 1,
                   .n_out = n_out,
                   .token = zero,
                   .pos = count,
                   .seq_of = zero,
                   .q_start = start,
                   .kv_len = &length,
                   .pages_stride = s->exec->options.limits.max_pages,
                   .state_slot = &slot,
                   .out_rows = step->out_rows ? step->out_rows : count,
                   .embd = step->in ? rows : NULL,
                   .from = step->in ? NULL : step->from->exec,
                   .row_begin = step->order ? step->order->begin : NULL,
                   .row_end = step->order ? step->order->end : NULL,
                   .pos_axes = step->axes,
                   .n_axes = step->axes ? AXES : 0 };
    for (int g = 0; g < NN_MAX_GROUPS; g++) b.pages[g] = zero; /* nothing is stored beyond the step */
    if (rc == 0) rc = nn_exec_step(s->exec, &b, e);
    if (rc == 0 && step->out) rc = s->exec->backend->fetch(s->exec, NN_FETCH_HIDDEN, 0, n_out, step->out, e);
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

static float shorten(float x) { return tensor_bf16_to_f32(tensor_f32_to_bf16(x)); }

/* As 16 bits have it, step by step. */
static float short_shade(int i, float mean, float std) {
    return shorten(shorten(shorten((float)i * (1.0f / 255.0f)) - shorten(mean)) / shorten(std));
}

static void make_shades(shades *s, const vision_rules *r) {
    bool short_ones = vision_families[r->kind]->short_colours;
    for (int c = 0; c < PIXELS_CHANNELS; c++) {
        float mean = r->mean[c] * 255.0f, std = r->std[c] * 255.0f;
        for (int i = 0; i < 256; i++)
            s->of[c][i] = short_ones ? short_shade(i, r->mean[c], r->std[c]) : ((float)i - mean) / std;
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

/* The tower's input: all patches in their order, behind the class row where there is one; rows are shared out among the
 * workers. */
typedef struct put_job {
    const vision       *v;
    const pixels       *tile;
    const vision_order *o;
    float              *in;
    int                 n;      /* rows, the class row too */
    bool                placed; /* their positions are there already */
    shades              s;
} put_job;

/* at: of a patch, row by row; the class row's is negative. */
static void put_place(const put_job *j, float *to, size_t width, int at) {
    const nn_tower_top *top = j->v->tower.model->net.top;
    int                 across = j->tile->width / j->v->rules.patch, down = j->tile->height / j->v->rules.patch;
    int                 before = top->class_row && !top->class_last, first = before ? 0 : j->o->n;
    if (!top->positions) memset(to, 0, width * sizeof *to);
    if (top->side || top->crossed)
        place_put(to, top, width, at / across, at % across, down, across);
    else if (top->positions)
        memcpy(to, top->positions->data + (size_t)(at < 0 ? first : at + before) * width, width * sizeof *to);
    const nn_vec *more = at < 0 ? top->class_row : top->patch_bias;
    for (size_t k = 0; more && k < width; k++) to[k] += more->data[k];
}

static void put_some(void *ctx, int worker, int n_workers) {
    const put_job      *j = ctx;
    const vision_stage *tower = &j->v->tower;
    const nn_tower_top *top = tower->model->net.top;
    int                 p = j->v->rules.patch, across = j->tile->width / p, before = 3 * p * p;
    int                 end = (int)((int64_t)j->n * (worker + 1) / n_workers);
    for (int i = (int)((int64_t)j->n * worker / n_workers); i < end; i++) {
        float *row = j->in + (size_t)i * (size_t)tower->width_in;
        int    at = !top->class_row ? j->o->patch[i] : i ? j->o->patch[i - 1] : -1;
        if (at < 0)
            memset(row, 0, (size_t)before * sizeof *row);
        else
            put_patch(row, &j->s, p, j->tile, at / across, at % across, top->channels_last);
        if (!j->placed) put_place(j, row + before, (size_t)(tower->width_in - before), at);
    }
}

/* Positions are the same for all pictures of a size, and stay in an input that is the executor's own. */
static int put_rows(vision *v, const pixels *tile, const vision_order *o, float *in, bool stays) {
    int     across = tile->width / v->rules.patch, down = tile->height / v->rules.patch;
    put_job j = { .v = v, .tile = tile, .o = o, .in = in, .n = o->n };
    j.n += ((const nn_tower_top *)v->tower.model->net.top)->class_row != NULL;
    j.placed = stays && v->placed_across == across && v->placed_down == down;
    make_shades(&j.s, &v->rules);
    pool_run(v->workers, put_some, &j);
    v->placed_across = stays ? across : 0;
    v->placed_down = stays ? down : 0;
    return j.n;
}

/* Rows that come out, of a grid of `across` x `down`: those of a square of m x m one behind the other, so that they are
 * side by side in a row of what comes next. place: where each stands in the batch; NULL: row by row. first: in front of
 * them. Returns how many there are. */
static int list_squares(int m, int across, int down, const int32_t *place, int first, int32_t *out) {
    int n = 0;
    for (int y = 0; y < down / m; y++) {
        for (int x = 0; x < across / m; x++) {
            for (int k = 0; k < m * m; k++) {
                int at = (y * m + k / m) * across + x * m + k % m;
                out[n++] = first + (place ? place[at] : at);
            }
        }
    }
    return n;
}

static int inner_of(const vision_rules *r) { return r->inner ? r->inner : r->merge; }

static bool by_channel(const vision *v) { return vision_families[v->rules.kind]->by_channel && v->rules.merge > 1; }

/* All of the first element of the n patches of a square, then all of the second, ... */
static void put_channels(float *to, const float *from, size_t width, int n, int squares) {
    for (int s = 0; s < squares; s++, to += width * (size_t)n, from += width * (size_t)n) {
        for (int k = 0; k < n; k++) {
            for (size_t i = 0; i < width; i++) to[i * (size_t)n + (size_t)k] = from[(size_t)k * width + i];
        }
    }
}

static int rows_of(const vision *v, const pixels *tile) {
    int square = v->rules.patch * v->rules.merge;
    if (v->rules.queries) return v->rules.queries;
    return tile->width / square * (tile->height / square);
}

/* Where the tower's rows are in the picture, [AXES][rows]; the other way round, [n]; and room for a list of them, [n].
 * With a class row in front (first is 1) the others count from one. */
static int32_t *put_axes(const vision_order *o, int across, int first) {
    int      rows = o->n + first;
    int32_t *axes = calloc((size_t)rows * AXES + 2 * (size_t)o->n, sizeof *axes);
    for (int i = 0; axes && i < o->n; i++) {
        axes[first + i] = first + o->patch[i] / across;
        axes[rows + first + i] = first + o->patch[i] % across;
        axes[AXES * rows + o->patch[i]] = i;
    }
    return axes;
}

/* The stage in front of the projector. */
static const vision_stage *last_of(const vision *v) { return v->middle.model ? &v->middle : &v->tower; }

/* From what the tower left (rows NULL: on the device) to rows of the language model. */
static int project(vision *v, int squares, const float *rows, float *out, err *e) {
    int        n = v->rules.merge * v->rules.merge;
    size_t     width = (size_t)v->tower.width_out;
    float     *turned = NULL;
    stage_step step = { .n = squares, .in = rows, .from = last_of(v), .out = out };
    if (rows && by_channel(v)) {
        if (!(turned = malloc((size_t)squares * (size_t)n * width * sizeof *turned))) return err_set_nomem(e);
        put_channels(turned, rows, width, n, squares);
        step.in = turned;
    }
    int rc = stage_run(&v->projector, &step, e);
    free(turned);
    return rc;
}

/* Merged rows, through what is left of the tower; into the place of the others where those are not on the device. */
static int refine(vision *v, const pixels *tile, float *rows, err *e) {
    const vision_rules *r = &v->rules;
    int                 across = tile->width / r->patch / r->inner, down = tile->height / r->patch / r->inner;
    size_t              n = (size_t)across * (size_t)down;
    int32_t            *list = malloc(n * sizeof *list);
    float              *out = rows ? malloc(n * (size_t)v->middle.width_out * sizeof *out) : NULL;
    int                 rc = list && (out || !rows) ? 0 : err_set_nomem(e);
    if (rc == 0) {
        stage_step step = { .n = (int)n, .in = rows, .from = &v->tower, .out_rows = list, .out = out };
        step.n_out = list_squares(r->merge / r->inner, across, down, NULL, 0, list);
        rc = stage_run(&v->middle, &step, e);
    }
    if (rc == 0 && rows) memcpy(rows, out, n * (size_t)v->middle.width_out * sizeof *out);
    free(list);
    free(out);
    return rc;
}

/* Whether it can take what the other one left. */
static bool stage_follows(const vision_stage *s, const vision_stage *from) {
    return s->exec->backend == from->exec->backend && (s->exec->backend->can & NN_BATCH_FROM) != 0;
}

static int run_tile(vision *v, const pixels *tile, const vision_order *o, float *out, err *e) {
    const nn_tower_top *top = v->tower.model->net.top;
    const nn_backend   *backend = v->tower.exec->backend;
    bool                mixes = vision_families[v->rules.kind]->mixes;
    size_t              most = (size_t)o->n + 1;
    int                 first = top->class_row != NULL, across = tile->width / v->rules.patch;
    bool                windows = vision_families[v->rules.kind]->windows;
    int32_t            *axes = put_axes(o, across, first);
    bool stays = stage_follows(&v->projector, last_of(v)) && !by_channel(v) && !v->rules.queries && !mixes && !windows;
    float *own = backend->input ? backend->input(v->tower.exec) : NULL;
    float *in = own ? own : malloc(most * (size_t)v->tower.width_in * sizeof *in);
    float *rows = stays ? NULL : malloc(most * (size_t)v->tower.width_out * sizeof *rows);
    int    rc = in && axes && (rows || stays) ? 0 : err_set_nomem(e);
    if (rc == 0) {
        int32_t   *place = axes + AXES * (o->n + first), *list = place + o->n;
        stage_step step = { .in = in, .order = o, .out_rows = list, .out = rows };
        step.n = put_rows(v, tile, o, in, own != NULL);
        step.n_out = list_squares(inner_of(&v->rules), across, tile->height / v->rules.patch, place, first, list);
        if (v->tower.model->tape->n_axes > 0) step.axes = axes;
        rc = stage_run(&v->tower, &step, e);
    }
    if (rc == 0 && v->middle.model && !mixes && !windows) rc = refine(v, tile, rows, e);
    if (rc == 0 && mixes)
        rc = mix_rows(v, rows_of(v, tile), rows, out, e);
    else if (rc == 0 && windows)
        rc = windows_run(v, across, o->n / across, rows, out, e);
    else if (rc == 0 && v->rules.queries)
        rc = resample(v, across, o->n / across, rows, out, e);
    else if (rc == 0)
        rc = project(v, rows_of(v, tile), rows, out, e);
    if (!own) free(in);
    free(rows);
    free(axes);
    return rc;
}

static int encode_tile(vision *v, const pixels *tile, float *out, err *e) {
    int    p = v->rules.patch, across = tile->width / p, down = tile->height / p;
    size_t before = 3 * (size_t)p * (size_t)p;
    int    rc = places_check(v->tower.model->net.top, (size_t)v->tower.width_in - before, across, down, e);
    if (rc < 0) return rc;
    vision_order o;
    rc = order_make(&o, &v->rules, across, down, e);
    if (rc == 0) rc = run_tile(v, tile, &o, out, e);
    order_free(&o);
    return rc;
}

/* --- a picture --- */

static int encode_tiles(vision *v, const pixels *tiles, int n_tiles, float **rows, int *n, err *e) {
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

int vision_encode_cut(vision *v, const pixels *picture, const pixels *tiles, int n_tiles, float **rows, int *n,
                      err *e) {
    const vision_family *f = vision_families[v->rules.kind];
    vision_plan          p;
    int                  rc = encode_tiles(v, tiles, n_tiles, rows, n, e);
    float               *all = rc == 0 && f->arrange ? *rows : NULL;
    if (!all) return rc;
    if ((rc = plan_make(&p, &v->rules, picture, e)) == 0 && p.n_tiles != n_tiles)
        rc = err_set(e, ERR_ARG, "a picture of %d tiles is cut into %d", p.n_tiles, n_tiles);
    *rows = rc == 0 ? malloc((size_t)p.n_rows * (size_t)v->projector.width_out * sizeof **rows) : NULL;
    if (rc == 0 && !*rows) rc = err_set_nomem(e);
    if (rc == 0) {
        f->arrange(*rows, v, &p, all);
        *n = p.n_rows;
    }
    free(all);
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
    rc = vision_encode_cut(v, picture, tiles, n_tiles, &made.data, &made.n, e);
    vision_cut_free(tiles, n_tiles);
    return rc < 0 ? rc : keep_add(&v->keep, &made, out, e);
}
