/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products: plain, one matrix per head, one per chosen expert; and the int8 copies they read. */
#include "backend/cpu/cpu.h"

#include <string.h>

void cpu_quant(cpu_exec *x, const cpu_item *it, int worker) {
    int64_t      width = x->base.x.model->tape->bufs[it->buf].width, rows = cpu_rows(x, it, it->buf), lo, hi;
    const float *in = local_buf(&x->base, it->buf);
    act8        *out = x->areas[it->aux];
    /* Shared by blocks of 8 * 32 values: a single row is cut, too, and every block stands alone. */
    int64_t blocks = width / ACT8_BLOCK, units = (blocks + 7) / 8;
    cpu_share(rows * units, worker, x->n_workers, &lo, &hi);
    for (int64_t u = lo; u < hi; u++) {
        int64_t row = cpu_row(x, it, u / units), b0 = u % units * 8, b1 = b0 + 8 < blocks ? b0 + 8 : blocks;
        x->k.matmul.act_quantize(out + row * blocks + b0, in + row * width + b0 * ACT8_BLOCK, (b1 - b0) * ACT8_BLOCK);
    }
}

void cpu_quant_piece(cpu_exec *x, int area, nn_buf b, int64_t at, int64_t n) {
    x->k.matmul.act_quantize(x->areas[area] + at / ACT8_BLOCK, local_buf(&x->base, b) + at, n);
}

/* x and its stride for a product of this item. */
static void input_of(cpu_exec *x, const cpu_item *it, const nn_op *op, matmul_args *a) {
    int64_t width = x->base.x.model->tape->bufs[op->in[0]].width;
    if (it->aux >= 0) {
        a->x = x->areas[it->aux];
        a->x_stride = act8_row_bytes(width);
    } else {
        a->x = local_buf(&x->base, op->in[0]);
        a->x_stride = (size_t)width * sizeof(float);
    }
}

void cpu_linear(cpu_exec *x, const cpu_item *it, const nn_op *op, int worker) {
    const nn_linear *w = &op->u.linear;
    matmul_args      a = { .w = w->w->at,
                           .n_rows = local_rows(&x->base, op->out),
                           .out = local_buf(&x->base, op->out),
                           .out_stride = (size_t)w->w->rows,
                           .bias = w->b ? w->b->data : NULL,
                           .accumulate = op->acc,
                           .tiles = x->tiles };
    int64_t          lo, hi;
    if (a.n_rows == 0) return;
    input_of(x, it, op, &a);
    /* In units of three panels, which the matrix-matrix kernel takes at once. Three quarters are shared evenly, the
     * rest goes to whoever is done first: cores differ in speed. */
    int64_t panels = matmul_panels(a.w), units = (panels + 2) / 3;
    int64_t fixed = units >= 8 * x->n_workers ? units * 3 / 4 : units, chunk = (units - fixed) / (4 * x->n_workers) + 1;
    cpu_share(fixed, worker, x->n_workers, &lo, &hi);
    if (x->adapt.on) cpu_adapt_shrink(x, it, op, worker);
    while (lo < hi) {
        int64_t p1 = hi * 3 < panels ? hi * 3 : panels;
        if (!x->adapt.on || !cpu_adapt_product(x, it, op, &a, lo * 3, p1, worker))
            x->k.matmul.run(&a, lo * 3, p1, cpu_scratch(x, worker));
        if (fixed == units) break;
        lo = fixed + chunk * atomic_fetch_add_explicit(&x->counters[it->next], 1, memory_order_relaxed);
        hi = lo + chunk < units ? lo + chunk : units;
    }
}

void cpu_head_linear(cpu_exec *x, const cpu_item *it, const nn_op *op, int worker) {
    const nn_mat *w = op->u.linear.w;
    matmul_args   a = { .n_rows = local_rows(&x->base, op->out),
                        .out_stride = (size_t)(w->rows * w->n_stack),
                        .tiles = x->tiles };
    int64_t       panels = matmul_panels(w->at), lo, hi;
    float        *out = local_buf(&x->base, op->out);
    input_of(x, it, op, &a);
    const uint8_t *in = a.x;
    size_t         head_bytes = it->aux >= 0 ? act8_row_bytes(w->cols) : (size_t)w->cols * sizeof(float);
    cpu_share(panels * w->n_stack, worker, x->n_workers, &lo, &hi);
    while (lo < hi) {
        int64_t h = lo / panels, p0 = lo % panels, p1 = p0 + (hi - lo) < panels ? p0 + (hi - lo) : panels;
        a.w = &w->at[h];
        a.x = in + (size_t)h * head_bytes;
        a.out = out + h * w->rows;
        x->k.matmul.run(&a, p0, p1, cpu_scratch(x, worker));
        lo += p1 - p0;
    }
}

static int32_t expert_at(const float *chosen, int64_t row) {
    int32_t e;
    memcpy(&e, &chosen[row * 2], sizeof e);
    return e;
}

/* The experts that have rows, in their order; streamed ones that are there in front of those that are not. */
static void list_groups(cpu_exec *x, const cpu_item *it, int n_expert) {
    bool streams = x->store && it->mixture >= 0;
    x->n_groups = 0;
    for (int pass = 0; pass < (streams ? 2 : 1); pass++) {
        for (int e = 0; e < n_expert; e++) {
            if (x->counts[e] && (!streams || store_has(x->store, it->mixture, e) == (pass == 0)))
                x->expert[x->n_groups++] = e;
        }
    }
}

/* A counting sort; rows of one expert keep their order. Small, so one worker does it. */
void cpu_group(cpu_exec *x, const cpu_item *it, const nn_op *op, int worker) {
    const float *chosen = local_buf(&x->base, op->in[1]);
    int64_t      rows = local_rows(&x->base, op->out);
    int          n = op->u.linear.w->n_stack, n_used = x->base.x.model->tape->bufs[op->out].mult;
    int32_t      at = 0;
    if (worker != 0) return;
    memset(x->counts, 0, (size_t)n * sizeof *x->counts);
    for (int64_t r = 0; r < rows; r++) x->counts[expert_at(chosen, r)]++;
    list_groups(x, it, n);
    for (int g = 0; g < x->n_groups; g++) { /* from now on counts says where an expert's next row goes */
        int32_t e = x->expert[g], count = x->counts[e];
        x->start[g] = x->counts[e] = at;
        at += count;
    }
    x->start[x->n_groups] = at;
    for (int64_t r = 0; r < rows; r++) {
        int32_t to = x->counts[expert_at(chosen, r)]++;
        x->row_of[to] = (int32_t)r;
        x->in_of[to] = (int32_t)(r / n_used);
    }
    x->wave.first = 0;
    x->wave.end = x->n_groups;
}

void cpu_experts(cpu_exec *x, const cpu_item *it, const nn_op *op, int worker) {
    const nn_linear *w = &op->u.linear;
    bool             per_token = x->base.x.model->tape->bufs[op->in[0]].mult == 1;
    matmul_args      a = { .out = local_buf(&x->base, op->out), .out_stride = (size_t)w->w->rows, .tiles = x->tiles };
    int64_t          panels = matmul_panels(w->w->at), lo, hi;
    input_of(x, it, op, &a);
    if (x->adapt.on) cpu_adapt_shrink(x, it, op, worker);
    cpu_share((x->wave.end - x->wave.first) * panels, worker, x->n_workers, &lo, &hi);
    while (lo < hi) {
        int        g = x->wave.first + (int)(lo / panels);
        int64_t    p0 = lo % panels, p1 = p0 + (hi - lo) < panels ? p0 + (hi - lo) : panels;
        int32_t    e = x->expert[g], r0 = x->start[g];
        tensor_mat there;
        a.w = &w->w->at[e];
        if (it->waved) {
            there = store_mat_of(x->store, x->wave.slots[g], it->which);
            a.w = &there;
        }
        a.n_rows = x->start[g + 1] - r0;
        a.x_rows = (per_token ? x->in_of : x->row_of) + r0;
        a.out_rows = x->row_of + r0;
        a.bias = w->b ? w->b->data + (int64_t)e * w->w->rows : NULL;
        x->k.matmul.run(&a, p0, p1, cpu_scratch(x, worker));
        lo += p1 - p0;
    }
}

void cpu_observe(cpu_exec *x, const nn_op *op, int worker) {
    nn_observe see = x->base.x.options.observe;
    void      *ctx = x->base.x.options.observe_ctx;
    if (!see || worker != 0 || (op->kind != NN_OP_LINEAR && op->kind != NN_OP_EXPERTS)) return;
    const nn_mat *w = op->u.linear.w;
    const float  *in = local_buf(&x->base, op->in[0]);
    if (op->kind == NN_OP_LINEAR) {
        for (int64_t r = 0; r < local_rows(&x->base, op->out); r++) see(ctx, w, 0, in + r * w->cols);
        return;
    }
    bool per_token = x->base.x.model->tape->bufs[op->in[0]].mult == 1;
    for (int g = x->wave.first; g < x->wave.end; g++)
        for (int32_t i = x->start[g]; i < x->start[g + 1]; i++)
            see(ctx, w, x->expert[g], in + (int64_t)(per_token ? x->in_of : x->row_of)[i] * w->cols);
}
