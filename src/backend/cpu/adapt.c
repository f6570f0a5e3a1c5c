/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adapter sets in a step.
 *
 * The rows of a batch are sorted by set once per step; rows without a set come first and are computed as if there were
 * no adapters. A low-rank product has two halves: A x beside the base's product, from which it is independent, and
 * y += B (A x) behind a barrier that all products of one input share. Both halves have a fixed order of operations per
 * output, so that neither the rows beside a row, nor its place in the batch, nor the number of workers changes a bit.
 *
 * Where an adapter scales a product (DoRA, IA3), the base's product of such rows is made alone, without bias and not yet
 * added to anything: in the output itself, or in `side` for an op that adds. The second half scales and adds it. Scaled
 * inputs are made by every worker for itself, a few rows at a time.
 */
#include "backend/cpu/cpu.h"

#include "base/num.h"

#include <stdlib.h>
#include <string.h>

enum { ROW_BLOCK = 36, IN_ROWS = 16 };

void cpu_adapt_free(cpu_exec *x) {
    cpu_adapt *a = &x->adapt;
    for (int k = 0; k <= NN_ROWS_LOGITS; k++) free(a->order[k]);
    free(a->used);
    free(a->shrunk);
    free(a->side);
    free(a->scratch);
}

/* --- memory, between steps --------------------------------------------------------------------------------------- */

/* Grows *at; its content is not kept. */
static bool grow(cpu_exec *x, void **at, size_t *have, size_t want) {
    want = (want + 63) / 64 * 64;
    if (*at && *have >= want) return true;
    void *more = aligned_alloc(64, want ? want : 64);
    if (!more) return false;
    free(*at);
    x->base.x.memory.heap_bytes += want - (*at ? *have : 0);
    *at = more;
    *have = want;
    return true;
}

static bool make_room(cpu_exec *x, const nn_adapter_set *set) {
    cpu_adapt       *a = &x->adapt;
    const nn_limits *l = &x->base.x.options.limits;
    size_t           in_bytes = IN_ROWS * (act8_row_bytes((a->max_cols + ACT8_BLOCK - 1) / ACT8_BLOCK * ACT8_BLOCK) +
                                 (size_t)a->max_cols * sizeof(float));
    size_t           rows = (size_t)num_max(l->max_tokens, l->max_outputs);
    int              rank = set->rank > a->rank ? set->rank : a->rank;
    for (int k = 0; k <= NN_ROWS_LOGITS; k++) {
        if (!a->order[k] && !(a->order[k] = calloc(rows, sizeof *a->order[k]))) return false;
    }
    if (!a->used && !(a->used = calloc(NN_MAX_SETS, sizeof *a->used))) return false;
    size_t each = set->in_gains ? (in_bytes + 63) / 64 * 64 : 0, all = a->scratch_bytes * (size_t)x->n_threads;
    if (each > a->scratch_bytes && !grow(x, (void **)&a->scratch, &all, each * (size_t)x->n_threads)) return false;
    if (each > a->scratch_bytes) a->scratch_bytes = each;
    size_t per = (size_t)a->n_slots * (size_t)a->max_rows * sizeof(float), have = per * (size_t)a->rank;
    if (!grow(x, (void **)&a->shrunk, &have, per * (size_t)rank)) return false;
    a->rank = rank;
    have = 0;
    if (!set->gains || a->side || !a->max_acc) return true;
    return grow(x, (void **)&a->side, &have, (size_t)(a->max_rows * a->max_acc) * sizeof(float));
}

int cpu_adapt_set(nn_exec *base, int number, const nn_adapter_set *set, err *e) {
    cpu_exec *x = (cpu_exec *)base;
    if (number < 1 || number > NN_MAX_SETS) return err_set(e, ERR_LIMIT, "adapter set %d of %d", number, NN_MAX_SETS);
    if (set && !make_room(x, set)) return err_set_nomem(e);
    x->adapt.sets[number] = set;
    return 0;
}

/* --- rows by set -------------------------------------------------------------------------------------------------- */

/* The token of a row of this kind. */
static int32_t token_of(const nn_batch *b, nn_row_kind kind, int32_t row) {
    return kind == NN_ROWS_TOKENS ? row : b->out_rows[row];
}

/* A counting sort: start[s] .. start[s + 1] of the order are the rows of set s. */
static void sort_rows(cpu_adapt *a, const nn_batch *b, nn_row_kind kind, int32_t rows) {
    int32_t *start = a->start[kind];
    memset(start, 0, (NN_MAX_SETS + 2) * sizeof *start);
    for (int32_t r = 0; r < rows; r++) start[b->adapter[token_of(b, kind, r)] + 1]++;
    for (int s = 0; s <= NN_MAX_SETS; s++) start[s + 1] += start[s];
    for (int32_t r = 0; r < rows; r++) a->order[kind][start[b->adapter[token_of(b, kind, r)]]++] = r;
    memmove(start + 1, start, (NN_MAX_SETS + 1) * sizeof *start);
    start[0] = 0;
}

int cpu_adapt_begin(cpu_exec *x, err *e) {
    cpu_adapt      *a = &x->adapt;
    const nn_batch *b = &x->base.batch;
    a->on = false;
    for (int t = 0; b->adapter && t < b->n_tok; t++) {
        int s = b->adapter[t];
        if (s < 0 || s > NN_MAX_SETS || (s > 0 && !a->sets[s]))
            return err_set(e, ERR_ARG, "row %d: there is no adapter set %d", t, s);
        a->on = a->on || s > 0;
    }
    if (!a->on) return 0;
    sort_rows(a, b, NN_ROWS_TOKENS, b->n_tok);
    sort_rows(a, b, NN_ROWS_OUTPUTS, b->n_out);
    sort_rows(a, b, NN_ROWS_LOGITS, b->n_out - b->n_hidden);
    a->n_used = 0;
    for (int s = 1; s <= NN_MAX_SETS; s++) {
        if (a->start[NN_ROWS_TOKENS][s + 1] > a->start[NN_ROWS_TOKENS][s]) a->used[a->n_used++] = s;
    }
    return 0;
}

/* Rows of one set. */
typedef struct group {
    const nn_set_op *op;
    const int32_t   *rows;
    int64_t          n;
} group;

/* The rows of the i-th set of the batch in the output of a plain product; op NULL: nothing to do. */
static group group_of(const cpu_exec *x, const nn_op *op, int op_index, int i) {
    const cpu_adapt *a = &x->adapt;
    nn_row_kind      kind = x->base.x.model->tape->bufs[op->out].rows;
    int              s = a->used[i];
    int32_t          at = a->start[kind][s];
    return (group){ .op = a->sets[s]->ops[op_index], .rows = a->order[kind] + at, .n = a->start[kind][s + 1] - at };
}

static float *shrunk_of(const cpu_exec *x, const cpu_item *it) {
    return x->adapt.shrunk + (size_t)it->slot * (size_t)x->adapt.max_rows * (size_t)x->adapt.rank;
}

/* --- the first half ----------------------------------------------------------------------------------------------- */

/* Where the units of a product's first half are counted, so that the workers take turns. */
typedef struct turns {
    cpu_exec *x;
    int       worker;
    int64_t   unit;
} turns;

static bool my_turn(turns *t) { return t->unit++ % t->x->n_workers == t->worker; }

/* A x of n rows: a unit is a panel of A times a block of rows. */
static void shrink_rows(turns *t, const cpu_item *it, const nn_op *op, const nn_set_part *p, const nn_lora *l,
                        const int32_t *in, const int32_t *out, int64_t n) {
    cpu_exec  *x = t->x;
    ops_shrink a = { .t_stride = (size_t)x->adapt.rank,
                     .x = local_buf(&x->base, op->in[0]),
                     .x_stride = (size_t)x->base.x.model->tape->bufs[op->in[0]].width,
                     .type = l->type,
                     .cols = l->in };
    for (int64_t r = 0; r < n; r += ROW_BLOCK) {
        a.x_rows = in + r;
        a.t_rows = out + r;
        a.n_rows = n - r < ROW_BLOCK ? n - r : ROW_BLOCK;
        a.a = l->a;
        for (int j = 0; j < l->rank; j += LOWRANK_PANEL, a.a += lowrank_panel_bytes(l->type, l->in)) {
            a.t = shrunk_of(x, it) + p->at + j;
            if (my_turn(t)) x->k.ops.shrink(&a);
        }
    }
}

/* The set of an expert's row. */
static int set_of(const cpu_exec *x, int32_t row, int n_used) { return x->base.batch.adapter[row / n_used]; }

typedef void expert_fn(turns *t, const cpu_item *it, const nn_op *op, const nn_set_part *p, const nn_lora *l,
                       int32_t at, int32_t n);

/* Calls fn for every run of an expert's rows that have the same set, for each part of it. */
static void each_run(turns *t, const cpu_item *it, const nn_op *op, expert_fn *fn) {
    cpu_exec *x = t->x;
    int       n_used = x->base.x.model->tape->bufs[op->out].mult;
    for (int g = x->wave.first; g < x->wave.end; g++) {
        for (int32_t at = x->start[g], end; at < x->start[g + 1]; at = end) {
            int              s = set_of(x, x->row_of[at], n_used);
            const nn_set_op *o = s ? x->adapt.sets[s]->ops[it->op] : NULL;
            for (end = at + 1; end < x->start[g + 1] && set_of(x, x->row_of[end], n_used) == s;) end++;
            for (int k = 0; o && k < o->n_parts; k++) {
                const nn_lora *l = &o->parts[k].patch->lora[x->expert[g]];
                if (l->rank) fn(t, it, op, &o->parts[k], l, at, end - at);
            }
        }
    }
}

static void shrink_run(turns *t, const cpu_item *it, const nn_op *op, const nn_set_part *p, const nn_lora *l,
                       int32_t at, int32_t n) {
    bool per_token = t->x->base.x.model->tape->bufs[op->in[0]].mult == 1;
    shrink_rows(t, it, op, p, l, (per_token ? t->x->in_of : t->x->row_of) + at, t->x->row_of + at, n);
}

void cpu_adapt_shrink(cpu_exec *x, const cpu_item *it, const nn_op *op, int worker) {
    turns t = { x, worker, it->op };
    if (op->kind == NN_OP_EXPERTS) {
        each_run(&t, it, op, shrink_run);
        return;
    }
    for (int i = 0; i < x->adapt.n_used; i++) {
        group g = group_of(x, op, it->op, i);
        for (int k = 0; g.op && k < g.op->n_parts; k++)
            shrink_rows(&t, it, op, &g.op->parts[k], g.op->parts[k].patch->lora, g.rows, g.rows, g.n);
    }
}

/* --- products whose inputs or outputs are scaled -------------------------------------------------------------------- */

static bool is_scaled(const nn_set_op *o) { return o && (o->gain || o->in_gain); }

/* Scaled copies of up to IN_ROWS rows, as the product reads them. */
static void scale_inputs(cpu_exec *x, const cpu_item *it, const nn_op *op, const group *g, int64_t r, matmul_args *a,
                         uint8_t *to) {
    int64_t      width = x->base.x.model->tape->bufs[op->in[0]].width;
    const float *in = local_buf(&x->base, op->in[0]);
    float       *rows = (float *)(void *)to;
    uint8_t     *packed = to + IN_ROWS * (size_t)x->adapt.max_cols * sizeof(float);
    for (int64_t k = 0; k < a->n_rows; k++) {
        const float *from = in + g->rows[r + k] * width;
        float       *row = rows + k * width;
        for (int64_t i = 0; i < width; i++) row[i] = from[i] * g->op->in_gain[i];
        if (it->aux >= 0)
            x->k.matmul.act_quantize((act8 *)(void *)(packed + (size_t)k * act8_row_bytes(width)), row, width);
    }
    a->x = it->aux >= 0 ? (const void *)packed : rows;
    a->x_rows = NULL;
}

/* The rows of a set with gains: W x alone. */
static void product_scaled(cpu_exec *x, const cpu_item *it, const nn_op *op, const matmul_args *all, const group *g,
                           int64_t p0, int64_t p1, int worker) {
    matmul_args a = *all;
    size_t      scratch = x->adapt.scratch_bytes;
    uint8_t    *inputs = x->adapt.scratch + (size_t)worker * scratch;
    a.bias = NULL;
    a.accumulate = false;
    if (op->acc) a.out = x->adapt.side;
    a.x_rows = a.out_rows = g->rows;
    a.n_rows = g->n;
    if (!g->op->in_gain) {
        x->k.matmul.run(&a, p0, p1, cpu_scratch(x, worker));
        return;
    }
    for (int64_t r = 0; r < g->n; r += IN_ROWS) {
        a.n_rows = g->n - r < IN_ROWS ? g->n - r : IN_ROWS;
        a.out_rows = g->rows + r;
        scale_inputs(x, it, op, g, r, &a, inputs);
        x->k.matmul.run(&a, p0, p1, cpu_scratch(x, worker));
    }
}

bool cpu_adapt_product(cpu_exec *x, const cpu_item *it, const nn_op *op, const matmul_args *all, int64_t p0, int64_t p1,
                       int worker) {
    bool        any = false;
    nn_row_kind kind = x->base.x.model->tape->bufs[op->out].rows;
    for (int i = 0; i < x->adapt.n_used && !any; i++) any = is_scaled(group_of(x, op, it->op, i).op);
    if (!any) return false;
    matmul_args plain = *all;
    plain.n_rows = x->adapt.start[kind][1];
    plain.x_rows = plain.out_rows = x->adapt.order[kind];
    if (plain.n_rows) x->k.matmul.run(&plain, p0, p1, cpu_scratch(x, worker));
    for (int i = 0; i < x->adapt.n_used; i++) {
        group g = group_of(x, op, it->op, i);
        plain.x_rows = plain.out_rows = g.rows;
        plain.n_rows = g.n;
        if (is_scaled(g.op))
            product_scaled(x, it, op, all, &g, p0, p1, worker);
        else if (g.n)
            x->k.matmul.run(&plain, p0, p1, cpu_scratch(x, worker));
    }
    return true;
}

/* y = old + gain * W x + bias_gain * bias for the outputs [lo, hi) of a row. */
static void finish_row(const cpu_exec *x, const nn_op *op, const nn_set_op *o, int32_t row, int64_t lo, int64_t hi) {
    int64_t      width = op->u.linear.w->rows;
    float       *y = local_buf(&x->base, op->out) + row * width;
    const float *from = op->acc ? x->adapt.side + row * width : y, *bias = op->u.linear.b ? op->u.linear.b->data : NULL;
    for (int64_t i = lo; i < hi; i++) {
        float v = o->gain ? from[i] * o->gain[i] : from[i];
        if (bias) v += o->bias_gain ? bias[i] * o->bias_gain[i] : bias[i];
        y[i] = op->acc ? y[i] + v : v;
    }
}

/* --- the second half ------------------------------------------------------------------------------------------------ */

static ops_low_rank half_of(cpu_exec *x, const cpu_item *it, const nn_op *op, const nn_set_part *p, const nn_lora *l) {
    return (ops_low_rank){ .y = local_buf(&x->base, op->out),
                           .y_stride = (size_t)op->u.linear.w->rows,
                           .t = shrunk_of(x, it) + p->at,
                           .t_stride = (size_t)x->adapt.rank,
                           .type = l->type,
                           .b = l->b,
                           .rank = l->used,
                           .scale = l->scale * p->scale,
                           .gain = p->gain };
}

/* Outputs are shared in whole tiles. */
static void expand_share(const cpu_exec *x, const nn_op *op, int worker, int64_t *lo, int64_t *hi) {
    int64_t width = op->u.linear.w->rows;
    cpu_share((width + LOWRANK_TILE - 1) / LOWRANK_TILE, worker, x->n_workers, lo, hi);
    *lo *= LOWRANK_TILE;
    *hi = *hi * LOWRANK_TILE < width ? *hi * LOWRANK_TILE : width;
}

static void expand_run(turns *t, const cpu_item *it, const nn_op *op, const nn_set_part *p, const nn_lora *l,
                       int32_t at, int32_t n) {
    ops_low_rank a = half_of(t->x, it, op, p, l);
    int64_t      lo, hi;
    a.rows = t->x->row_of + at;
    a.n_rows = n;
    expand_share(t->x, op, t->worker, &lo, &hi);
    if (lo < hi) t->x->k.ops.expand(&a, lo, hi);
}

void cpu_adapt_expand(cpu_exec *x, const cpu_item *it, const nn_op *op, int worker) {
    int64_t lo, hi;
    if (op->kind == NN_OP_EXPERTS) {
        each_run(&(turns){ x, worker, 0 }, it, op, expand_run);
        return;
    }
    expand_share(x, op, worker, &lo, &hi);
    for (int i = 0; lo < hi && i < x->adapt.n_used; i++) {
        group g = group_of(x, op, it->op, i);
        if (!g.op) continue;
        for (int64_t r = 0; r < g.n && is_scaled(g.op); r++) finish_row(x, op, g.op, g.rows[r], lo, hi);
        for (int k = 0; k < g.op->n_parts; k++) {
            ops_low_rank a = half_of(x, it, op, &g.op->parts[k], g.op->parts[k].patch->lora);
            a.rows = g.rows;
            a.n_rows = g.n;
            x->k.ops.expand(&a, lo, hi);
        }
    }
}

/* --- embeddings ----------------------------------------------------------------------------------------------------- */

void cpu_adapt_embed(cpu_exec *x, const nn_op *op, int64_t lo, int64_t hi) {
    const nn_batch *b = &x->base.batch;
    int64_t         width = op->u.embed.table->cols, index = op - x->base.x.model->tape->ops;
    float           t[NN_ADAPTER_MAX_RANK];
    for (int64_t row = lo; row < hi; row++) {
        const nn_set_op *o = b->adapter[row] ? x->adapt.sets[b->adapter[row]]->ops[index] : NULL;
        for (int k = 0; o && k < o->n_parts && !(b->embd && b->embd[row]); k++) {
            const nn_lora *l = o->parts[k].patch->lora;
            for (int j = 0; j < l->used; j++) t[j] = nn_lora_a(l, j, b->token[row]);
            ops_low_rank a = { .y = local_buf(&x->base, op->out) + row * width,
                               .t = t,
                               .n_rows = 1,
                               .type = l->type,
                               .b = l->b,
                               .rank = l->used,
                               .scale = l->scale * o->parts[k].scale * op->u.embed.scale };
            x->k.ops.expand(&a, 0, width);
        }
    }
}
