/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adapter sets on the device. A set is uploaded when it gets its number: its matrices, its gains and, per op, a patch that
 * points at them. A step brings the set of every row; kernels look the patch up by set and op (kernels/cuda/adapt.h).
 *
 * Rows without a set are computed as ever: low-rank products do not touch them, and where gains need a product without its
 * end, that end is made up afterwards by the same operations.
 */
#include "backend/cuda/cuda.h"

#include <stdlib.h>
#include <string.h>

/* --- uploading ------------------------------------------------------------------------------------------------------ */

/* Pieces one behind the other; without `host` they are only counted. */
typedef struct packer {
    uint8_t *host;
    uint8_t *device;
    size_t   at;
} packer;

static void *place(packer *p, size_t bytes, const void **there) {
    size_t at = p->at;
    p->at += (bytes + 15) / 16 * 16;
    *there = p->device + at;
    return p->host ? p->host + at : NULL;
}

static const float *place_floats(packer *p, const float *from, int64_t n) {
    const void *there = NULL;
    if (!from) return NULL;
    void *to = place(p, (size_t)n * sizeof *from, &there);
    if (to) memcpy(to, from, (size_t)n * sizeof *from);
    return there;
}

/* A value of a factor: of A by rank and input, of B by output and rank. */
typedef float (*factor_at)(const nn_lora *l, int64_t i, int64_t j);

/* A factor in f16 as rows of `stride`, or with `turned` its columns as rows; filled up with zeros. */
static const void *place_factor(packer *p, const nn_lora *l, factor_at at, bool turned, int64_t rows, int64_t cols,
                                int64_t stride) {
    const void *there;
    uint16_t   *to = place(p, (size_t)(rows * stride) * sizeof *to, &there);
    if (!to) return there;
    memset(to, 0, (size_t)(rows * stride) * sizeof *to);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < cols; c++) to[r * stride + c] = tensor_f32_to_f16(turned ? at(l, c, r) : at(l, r, c));
    }
    return there;
}

/* Kernels read A by rank (an embedding's by token) and B by rank. */
static cuda_low place_low(packer *p, const nn_lora *l, bool embed) {
    cuda_low low = { .used = l->rank ? l->used : 0, .scale = l->scale };
    if (!l->rank) return low;
    int64_t rows = embed ? l->in : l->rank, cols = embed ? l->rank : l->in;
    low.a_stride = (cols + 7) / 8 * 8;
    low.bt_stride = (l->out + 15) / 16 * 16;
    low.a = place_factor(p, l, nn_lora_a, embed, rows, cols, low.a_stride);
    low.bt = place_factor(p, l, nn_lora_b, true, l->used, l->out, low.bt_stride);
    return low;
}

/* The patch of one op; returns where it will be. */
static const void *place_patch(packer *p, const nn_set_op *o, bool embed, int64_t rows, int64_t cols) {
    cuda_patch  patch = { .n_parts = o->n_parts, .rank = o->rank };
    const void *there;
    for (int k = 0; k < o->n_parts; k++) {
        const nn_patch *from = o->parts[k].patch;
        int             n = from->mat->n_stack ? from->mat->n_stack : 1;
        cuda_low       *lows = place(p, (size_t)n * sizeof *lows, &there);
        patch.parts[k].low = there;
        patch.parts[k].at = o->parts[k].at;
        patch.parts[k].scale = o->parts[k].scale;
        patch.parts[k].gain = place_floats(p, o->parts[k].gain, rows);
        for (int e = 0; e < n; e++) {
            cuda_low low = place_low(p, &from->lora[e], embed);
            if (lows) lows[e] = low;
        }
    }
    patch.gain = place_floats(p, o->gain, rows);
    patch.bias_gain = place_floats(p, o->bias_gain, rows);
    patch.in_gain = place_floats(p, o->in_gain, cols);
    cuda_patch *to = place(p, sizeof patch, &there);
    if (to) *to = patch;
    return there;
}

/* What the set does to the ops of this executor. */
static void pack_set(packer *p, const cuda_exec *x, const nn_adapter_set *set, const void **patches) {
    p->at = 0;
    for (int i = x->x.options.first_op; i < x->x.options.end_op; i++) {
        const nn_op  *op = &x->x.model->tape->ops[i];
        bool          embed = op->kind == NN_OP_EMBED;
        const nn_mat *m = embed ? op->u.embed.table : cuda_product_of(op);
        patches[i] =
            set->ops[i] && nn_exec_runs(&x->x.options, i) ? place_patch(p, set->ops[i], embed, m->rows, m->cols) : NULL;
    }
}

/* The set to the device; its row of the table is written to `patches`. */
static int upload(cuda_exec *x, const nn_adapter_set *set, cuda_set *to, const void **patches, err *e) {
    packer p = { 0 };
    void  *memory = NULL;
    pack_set(&p, x, set, patches);
    *to = (cuda_set){ .from = set, .bytes = p.at };
    int rc = (p.host = malloc(p.at + 1)) ? cuda_alloc(&memory, p.at + 16, e) : err_set_nomem(e);
    if (rc == 0) {
        to->memory = p.device = memory;
        pack_set(&p, x, set, patches);
        rc = cuda_copy_in(memory, p.host, p.at, e);
    }
    free(p.host);
    if (rc < 0) cuda_free(memory);
    return rc;
}

/* --- memory, between steps ------------------------------------------------------------------------------------------ */

static size_t block_ints(const nn_limits *l) { return 7 * (size_t)l->max_tokens + 9 * (size_t)l->max_outputs; }

/* What the first set brings. */
static int begin_use(cuda_exec *x, err *e) {
    cuda_adapt *a = &x->adapt;
    size_t      n = (size_t)x->x.model->tape->n_ops, ints = block_ints(&x->x.options.limits);
    void       *p = NULL;
    if (a->sets) return 0;
    if (!(a->ops = arena_calloc(&x->mem, n + 1, sizeof *a->ops))) return err_set_nomem(e);
    int rc = cuda_alloc(&p, (NN_MAX_SETS + 1) * n * sizeof(void *), e);
    a->table = p;
    if (rc == 0) rc = cuda_alloc(&p, ints * sizeof(int32_t), e);
    if (rc == 0) a->block = p;
    if (rc == 0) rc = cuda_host_alloc(&p, ints * sizeof(int32_t), e);
    if (rc == 0) a->host = p;
    if (rc == 0) rc = cuda_event_open(&a->sent, e);
    if (rc == 0 && !(a->sets = calloc(NN_MAX_SETS + 1, sizeof *a->sets))) rc = err_set_nomem(e);
    if (rc == 0) x->x.memory.heap_bytes += (NN_MAX_SETS + 1) * n * sizeof(void *) + ints * sizeof(int32_t);
    if (rc < 0) cuda_adapt_free(x);
    return rc;
}

/* What the sets that are there do to each op. */
static void look_at_sets(cuda_exec *x) {
    cuda_adapt *a = &x->adapt;
    int         n = x->x.model->tape->n_ops;
    memset(a->ops, 0, (size_t)n * sizeof *a->ops);
    for (int s = 1; s <= NN_MAX_SETS; s++) {
        for (int i = 0; a->sets[s].from && i < n; i++) {
            const nn_set_op *o = a->sets[s].from->ops[i];
            if (!o) continue;
            a->ops[i].touched = true;
            a->ops[i].gain = a->ops[i].gain || o->gain;
            a->ops[i].in_gain = a->ops[i].in_gain || o->in_gain;
            if (o->rank > a->ops[i].rank) a->ops[i].rank = o->rank;
        }
    }
}

/* Room for t of products with one input, for products before their gains, for scaled inputs. Where there is none for it,
 * what the other sets have stays. */
static int make_room(cuda_exec *x, err *e) {
    cuda_adapt      *a = &x->adapt;
    const nn_tape   *t = x->x.model->tape;
    const nn_limits *l = &x->x.options.limits;
    size_t           rows = 0, side = 0, scaled = 0;
    int              t_stride = 0;
    void            *p = NULL;
    for (int i = x->x.options.first_op; i < x->x.options.end_op; i++) {
        const nn_mat *m = cuda_product_of(&t->ops[i]);
        if (!m || !a->ops[i].touched || !nn_exec_runs(&x->x.options, i)) continue;
        size_t n = nn_rows_max(l, &t->bufs[t->ops[i].out]);
        rows = n > rows ? n : rows;
        if (a->ops[i].rank * CUDA_LOW_OPS > t_stride) t_stride = a->ops[i].rank * CUDA_LOW_OPS;
        bool beside = a->ops[i].gain || a->ops[i].in_gain; /* a product that is added waits there for its gains */
        if (beside && n * (size_t)m->rows > side) side = n * (size_t)m->rows;
        if (a->ops[i].in_gain && n * (size_t)m->cols > scaled) scaled = n * (size_t)m->cols;
    }
    size_t side_at = cuda_align(rows * (size_t)t_stride * sizeof(float));
    size_t scaled_at = side_at + cuda_align(side * sizeof(float));
    size_t bytes = scaled_at + cuda_align(scaled * sizeof(float));
    int    rc = bytes > a->room_bytes ? cuda_alloc(&p, bytes, e) : 0;
    if (rc < 0) return rc;
    a->t_stride = t_stride;
    a->side_at = side_at;
    a->scaled_at = scaled_at;
    if (bytes <= a->room_bytes) return 0;
    cuda_free(a->room);
    a->room = p;
    x->x.memory.heap_bytes += bytes - a->room_bytes;
    a->room_bytes = bytes;
    return 0;
}

/* The new set takes the place of the old one when all that can fail is done: otherwise the old one stays. */
static int exchange(cuda_exec *x, int number, cuda_set made, const void *const *patches, err *e) {
    cuda_adapt *a = &x->adapt;
    cuda_set    old = a->sets[number];
    size_t      row = (size_t)x->x.model->tape->n_ops * sizeof *patches;
    cuda_steps_forget(x); /* recordings hold ranks and addresses */
    a->sets[number] = made;
    look_at_sets(x);
    int rc = make_room(x, e);
    if (rc == 0) rc = cuda_copy_in(a->table + (size_t)number * row, patches, row, e);
    if (rc < 0) {
        a->sets[number] = old;
        old = made;
        look_at_sets(x);
    } else {
        x->x.memory.heap_bytes += made.bytes - old.bytes;
    }
    cuda_free(old.memory);
    return rc;
}

static int change_set(cuda_exec *x, int number, const nn_adapter_set *set, err *e) {
    cuda_set     made = { 0 };
    const void **patches = calloc((size_t)x->x.model->tape->n_ops + 1, sizeof *patches);
    int          rc = patches ? begin_use(x, e) : err_set_nomem(e);
    if (rc == 0) rc = cuda_wait(x->stream, e);
    if (rc == 0 && set) rc = upload(x, set, &made, patches, e);
    if (rc == 0) rc = exchange(x, number, made, patches, e);
    free((void *)patches);
    return rc;
}

int cuda_adapt_set(nn_exec *base, int number, const nn_adapter_set *set, err *e) {
    cuda_exec *x = (cuda_exec *)base;
    if (number < 1 || number > NN_MAX_SETS) return err_set(e, ERR_LIMIT, "adapter set %d of %d", number, NN_MAX_SETS);
    if (!set && !x->adapt.sets) return 0;
    int rc = cuda_enter(x, e);
    return rc < 0 ? rc : cuda_leave(x, change_set(x, number, set, e));
}

void cuda_adapt_free(cuda_exec *x) {
    cuda_adapt *a = &x->adapt;
    for (int s = 1; a->sets && s <= NN_MAX_SETS; s++) cuda_free(a->sets[s].memory);
    free(a->sets);
    cuda_free(a->table);
    cuda_free(a->room);
    cuda_free(a->block);
    cuda_host_free(a->host);
    cuda_event_free(a->sent);
    *a = (cuda_adapt){ 0 };
}

/* --- rows by set ---------------------------------------------------------------------------------------------------- */

/* The block of a batch while it is filled. */
typedef struct filler {
    cuda_exec *x;
    int32_t   *at;
} filler;

static int32_t *take(filler *f, size_t room, const int32_t **there) {
    const cuda_adapt *a = &f->x->adapt;
    int32_t          *here = f->at;
    *there = (const int32_t *)(const void *)a->block + (here - a->host);
    f->at += room;
    return here;
}

/* Rows of one set in groups; rows without a set are left out. */
static void sort_rows(filler *f, cuda_low_rows *r, const int32_t *set_of, size_t room) {
    int32_t  start[NN_MAX_SETS + 2] = { 0 };
    int32_t *order = take(f, room, &r->order), *items = take(f, 3 * room, &r->items);
    for (int64_t i = 0; i < r->n; i++) start[set_of[i] + 1] += set_of[i] > 0;
    for (int s = 1; s <= NN_MAX_SETS; s++) start[s + 1] += start[s];
    for (int64_t i = 0; i < r->n; i++) {
        if (set_of[i]) order[start[set_of[i]]++] = (int32_t)i;
    }
    for (int s = 1; s <= NN_MAX_SETS; s++) { /* start[s] is the end of set s now */
        for (int32_t at = start[s - 1]; at < start[s]; at += CUDA_LOW_ROWS) {
            int32_t *it = items + 3 * r->n_items++;
            it[0] = s, it[1] = at, it[2] = start[s] - at < CUDA_LOW_ROWS ? start[s] - at : CUDA_LOW_ROWS;
        }
    }
}

static void fill(cuda_exec *x) {
    const nn_batch  *b = &x->batch;
    const nn_limits *l = &x->x.options.limits;
    cuda_adapt      *a = &x->adapt;
    filler           f = { x, a->host };
    const int32_t   *sets, *out_sets;
    int32_t         *tok = take(&f, (size_t)l->max_tokens, &sets);
    int32_t         *given = take(&f, (size_t)l->max_tokens, &a->embed_set);
    int32_t         *token = take(&f, (size_t)l->max_tokens, &a->token);
    int32_t         *out = take(&f, (size_t)l->max_outputs, &out_sets);
    bool             single = b->n_tok == b->n_seq && b->n_tok <= CUDA_ADAPT_SINGLE;
    for (int t = 0; t < b->n_tok; t++) {
        tok[t] = b->adapter[t];
        given[t] = b->embd && b->embd[t] ? 0 : b->adapter[t];
        token[t] = given[t] ? b->token[t] : 0;
    }
    for (int i = 0; i < b->n_out; i++) out[i] = b->adapter[b->out_rows[i]];
    for (int k = 0; k < CUDA_ROW_KINDS; k++) {
        bool tokens = k == NN_ROWS_TOKENS;
        a->rows[k] = (cuda_low_rows){ .sets = (const cuda_patch *const *)(const void *)a->table,
                                      .n_ops = x->x.model->tape->n_ops,
                                      .set_of = tokens ? sets : out_sets,
                                      .mult = 1,
                                      .n = tokens                 ? b->n_tok
                                           : k == NN_ROWS_OUTPUTS ? b->n_out
                                                                  : b->n_out - b->n_hidden };
        if (!single) sort_rows(&f, &a->rows[k], tokens ? tok : out, (size_t)(tokens ? l->max_tokens : l->max_outputs));
    }
}

int cuda_adapt_check(const cuda_exec *x, const nn_batch *b, err *e) {
    const cuda_adapt *a = &x->adapt;
    for (int t = 0; b->adapter && t < b->n_tok; t++) {
        int s = b->adapter[t];
        if (s < 0 || s > NN_MAX_SETS || (s > 0 && (!a->sets || !a->sets[s].from)))
            return err_set(e, ERR_ARG, "row %d: there is no adapter set %d", t, s);
    }
    return 0;
}

int cuda_adapt_begin(cuda_exec *x, err *e) {
    cuda_adapt     *a = &x->adapt;
    const nn_batch *b = &x->batch;
    a->on = false;
    for (int t = 0; b->adapter && t < b->n_tok; t++) a->on = a->on || b->adapter[t] > 0;
    if (!a->on) return 0;
    int rc = cuda_event_wait(a->sent, e); /* of the step before */
    if (rc < 0) return rc;
    fill(x);
    rc = cuda_send(a->block, a->host, block_ints(&x->x.options.limits) * sizeof *a->host, x->stream, e);
    return rc < 0 ? rc : cuda_event_record(a->sent, x->stream, e);
}

/* --- ops ------------------------------------------------------------------------------------------------------------ */

bool cuda_adapt_touches(const cuda_exec *x, int number) { return x->adapt.on && x->adapt.ops[number].touched; }

bool cuda_adapt_scales(const cuda_exec *x, int number) {
    return x->adapt.on && (x->adapt.ops[number].gain || x->adapt.ops[number].in_gain);
}

static cuda_low_args low_args(const cuda_exec *x, const nn_op *op) {
    const nn_buf_info *in = &x->x.model->tape->bufs[op->in[0]], *out = &x->x.model->tape->bufs[op->out];
    bool               experts = op->kind == NN_OP_EXPERTS;
    cuda_low_args      a = { .rows = x->adapt.rows[out->rows],
                             .x = cuda_buf(x, op->in[0]),
                             .cols = in->width,
                             .x_div = experts && in->mult == 1 ? out->mult : 1,
                             .chosen = experts ? cuda_buf(x, op->in[1]) : NULL,
                             .t = (float *)(void *)x->adapt.room,
                             .t_stride = x->adapt.t_stride,
                             .scale = 1 };
    if (experts || out->mult != 1) { /* which rows belong together is not known here */
        a.rows.items = a.rows.order = NULL;
        a.rows.mult = out->mult;
        a.rows.n *= out->mult;
    }
    return a;
}

int cuda_adapt_low(cuda_exec *x, int number, int n, err *e) {
    const nn_op  *op = &x->x.model->tape->ops[number];
    cuda_low_args a = { 0 };
    for (int i = 0; i < n; i++) {
        if (!cuda_adapt_touches(x, number + i) || x->adapt.ops[number + i].rank == 0) continue;
        if (a.n_ops == 0) a = low_args(x, op + i);
        a.ops[a.n_ops].number = number + i;
        a.ops[a.n_ops].rank = x->adapt.ops[number + i].rank;
        a.ops[a.n_ops].y = cuda_buf(x, op[i].out);
        a.ops[a.n_ops++].width = x->x.model->tape->bufs[op[i].out].width;
    }
    if (a.n_ops == 0) return 0;
    int rc = cuda_low_shrink(&a, x->stream, e);
    return rc < 0 ? rc : cuda_low_expand(&a, x->stream, e);
}

int cuda_adapt_embed(cuda_exec *x, int number, err *e) {
    const nn_op *op = &x->x.model->tape->ops[number];
    if (op->kind != NN_OP_EMBED || !cuda_adapt_touches(x, number)) return 0;
    cuda_low_args a = {
        .rows = x->adapt.rows[NN_ROWS_TOKENS], .token = x->adapt.token, .scale = op->u.embed.scale, .n_ops = 1
    };
    a.rows.set_of = x->adapt.embed_set;
    a.rows.items = a.rows.order = NULL;
    a.ops[0].number = number;
    a.ops[0].y = cuda_buf(x, op->out);
    a.ops[0].width = x->x.model->tape->bufs[op->out].width;
    return cuda_low_expand(&a, x->stream, e);
}

/* W x of `in`, without its end. */
static int bare_product(cuda_exec *x, const nn_op *op, const float *in, float *out, int64_t n, err *e) {
    const nn_mat   *m = op->u.linear.w;
    const cuda_mat *w = cuda_mat_of(x, m);
    const uint8_t  *data = x->weights + w->at;
    if (w->type == TENSOR_F32) {
        cuda_plain p = {
            .w = (const float *)(const void *)data, .x = in, .out = out, .rows = m->rows, .cols = m->cols, .n = n
        };
        return cuda_op_plain(&p, x->stream, e);
    }
    cuda_rows rows = { .n = n,
                       .n_pad = cuda_rows_pad(n),
                       .cols = m->cols,
                       .data = x->heap + x->areas.image,
                       .scale = (float *)(void *)(x->heap + x->areas.scale) };
    x->image_of = 0;
    int rc = n ? cuda_rows_make(&rows, in, m->cols, x->stream, e) : 0;
    if (rc < 0 || n == 0) return rc;
    cuda_product_args p = { .w = { w->type, m->rows, m->cols, data, w->pitch },
                            .x = rows,
                            .out = out,
                            .out_stride = m->rows,
                            .scratch = x->heap + x->areas.scratch,
                            .early = true,
                            .w_scale = w->w_scale };
    return cuda_product(&x->device, &p, x->stream, e);
}

int cuda_adapt_product(cuda_exec *x, int number, err *e) {
    const nn_op       *op = &x->x.model->tape->ops[number];
    const cuda_adapted need = x->adapt.ops[number];
    const nn_mat      *m = op->u.linear.w;
    cuda_low_rows      rows = x->adapt.rows[x->x.model->tape->bufs[op->out].rows];
    float             *scaled = (float *)(void *)(x->adapt.room + x->adapt.scaled_at);
    float             *side = (float *)(void *)(x->adapt.room + x->adapt.side_at), *out = cuda_buf(x, op->out);
    const float       *in = cuda_buf(x, op->in[0]);
    int                rc = 0;
    if (need.in_gain) rc = cuda_low_gain_in(&rows, number, scaled, in, m->cols, x->stream, e);
    float *product = op->acc ? side : out;
    if (rc == 0) rc = bare_product(x, op, need.in_gain ? scaled : in, product, rows.n, e);
    cuda_low_finish f = { .rows = rows,
                          .number = number,
                          .product = product,
                          .bias = op->u.linear.b ? cuda_vec_of(x, op->u.linear.b->data) : NULL,
                          .y = out,
                          .width = m->rows,
                          .add = op->acc };
    if (rc == 0) rc = cuda_low_gain_out(&f, x->stream, e);
    return rc < 0 ? rc : cuda_adapt_low(x, number, 1, e);
}
