/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that remember: pages, attention, recurrences. */
#include "backend/cpu/cpu.h"

#include <string.h>

/* --- pages ------------------------------------------------------------------------------------------------------ */

/* Where packed latents of token t begin. */
static size_t pack_width(const cpu_exec *x, const nn_op *op) {
    const nn_state *s = &x->base.x.model->state[op->layer];
    return (size_t)(s->dim_k + s->dim_v) * (size_t)(op->kind == NN_OP_LATENT_STORE ? 1 : op->u.attn.n_head);
}

void cpu_pack(cpu_exec *x, const cpu_item *it, const nn_op *op, int worker) {
    const nn_state *s = &x->base.x.model->state[op->layer];
    const float    *a = local_buf(&x->base, op->in[0]), *b = local_buf(&x->base, op->in[1]);
    int64_t         heads = op->kind == NN_OP_LATENT_STORE ? 1 : op->u.attn.n_head, lo, hi;
    (void)it;
    cpu_share(x->base.batch.n_tok * heads, worker, x->n_workers, &lo, &hi);
    for (int64_t u = lo; u < hi; u++) {
        float *to = x->packed + u * (s->dim_k + s->dim_v);
        memcpy(to, a + u * s->dim_k, (size_t)s->dim_k * sizeof *to);
        memcpy(to + s->dim_k, b + u * s->dim_v, (size_t)s->dim_v * sizeof *to);
    }
}

const void **cpu_pages_of(const cpu_exec *x, int layer, int s) {
    int g = x->base.x.groups.of_layer[layer];
    if (g < 0) return x->step_ptrs + x->step_first[s];
    return x->page_ptrs[g] + (size_t)s * (size_t)x->base.x.options.limits.max_pages;
}

void cpu_kv_store(cpu_exec *x, const nn_op *op, int worker) {
    const nn_batch  *b = &x->base.batch;
    const cpu_layer *y = &x->layers[op->layer];
    const kv_layout *l = &y->layout;
    bool             latent = op->kind == NN_OP_LATENT_STORE;
    const float     *k = latent ? x->packed : local_buf(&x->base, op->in[0]),
                *v = latent ? NULL : local_buf(&x->base, op->in[1]);
    size_t  ks = (size_t)l->n_kv * (size_t)l->k_dim, vs = (size_t)l->n_kv * (size_t)l->v_dim;
    int64_t h0, h1;
    cpu_share(l->n_kv, worker, x->n_workers, &h0, &h1);
    if (h0 == h1) return;
    for (int s = 0; s < b->n_seq; s++) {
        const void **pages = cpu_pages_of(x, op->layer, s);
        for (int t = b->q_start[s]; t < b->q_start[s + 1];) {
            int slot = b->pos[t] % l->tokens, n = l->tokens - slot;
            if (n > b->q_start[s + 1] - t) n = b->q_start[s + 1] - t;
            /* The table is const for readers; the store is the one writer. */
            uint8_t *page = (uint8_t *)(uintptr_t)pages[b->pos[t] / l->tokens] + y->page_off;
            x->k.attn.kv_store(l, page, slot, n, (int)h0, (int)h1, k + (size_t)t * ks, ks,
                               v ? v + (size_t)t * vs : NULL, vs);
            t += n;
        }
    }
}

/* --- attention -------------------------------------------------------------------------------------------------- */

enum { ROW_BLOCK = 32, LONE_ROWS = 60, SPLIT_CHUNKS = 8, SPLIT_HEADS = 4 };

/* Rows per unit of work. Where a key head has one query head, rows alone are the lanes that share a reading of keys and
 * values: as many as a block of the kernel has, in whole tiles of 4 or 6. */
static int64_t rows_per_unit(int n_head, int n_kv) { return n_head == n_kv ? LONE_ROWS : ROW_BLOCK; }

static int64_t blocks_of(const nn_batch *b, int s, int64_t rows) {
    return (b->q_start[s + 1] - b->q_start[s] + rows - 1) / rows;
}

/* Query heads per unit of work: those of one key head, or fewer when there would be too few units. */
static int heads_per_unit(const cpu_exec *x, int n_head, int n_kv, int64_t blocks) {
    int per = n_head / n_kv;
    while (per > 1 && blocks * (n_head / per) < 2 * x->n_workers && per % 2 == 0) per /= 2;
    return per;
}

attn_args cpu_attn_of(cpu_exec *x, const nn_op *op, int s) {
    const nn_batch     *b = &x->base.batch;
    const nn_attn_spec *spec = &op->u.attn;
    const cpu_layer    *y = &x->layers[op->layer];
    bool                latent = op->kind == NN_OP_LATENT_ATTN;
    size_t              qs = latent ? pack_width(x, op) : (size_t)spec->n_head * (size_t)spec->dim_k;
    size_t              os = (size_t)spec->n_head * (size_t)y->layout.v_dim;
    int                 t0 = b->q_start[s];
    bool                step = x->base.x.model->state[op->layer].kind == NN_STATE_STEP;
    bool                spans = step && spec->spans && b->row_begin;
    bool                ends = b->row_end && !spec->strict && (!step || spans);
    bool                wide = !step && spec->window && !spec->chunk && !spec->strict && b->row_begin;
    const nn_apart     *apart = &spec->apart;
    size_t              as = (size_t)spec->n_head * (size_t)apart->n;
    return (attn_args){ .q = (latent ? x->packed : local_buf(&x->base, op->in[0])) + (size_t)t0 * qs,
                        .out = local_buf(&x->base, op->out) + (size_t)t0 * os,
                        .q_stride = qs,
                        .out_stride = os,
                        .n_rows = b->q_start[s + 1] - t0,
                        .n_head = spec->n_head,
                        .layout = &y->layout,
                        .pages = cpu_pages_of(x, op->layer, s),
                        .page_off = y->page_off,
                        .kv_len = b->kv_len[s],
                        .pos = b->pos + t0,
                        .row_end = ends ? b->row_end + t0 : NULL,
                        .row_begin = spans || wide ? b->row_begin + t0 : NULL,
                        .window = step && spec->reach ? spec->reach + 1 : spec->window,
                        .chunk = spec->chunk,
                        .until = spec->until,
                        .causal = !step,
                        .after = spec->reach,
                        .scale = spec->scale,
                        .softcap = spec->softcap,
                        .sinks = spec->sinks ? spec->sinks->data : NULL,
                        .bias = spec->bias ? spec->bias->data : NULL,
                        .bias_reach = spec->bias ? (int32_t)(spec->bias->n / spec->n_head / 2) : 0,
                        .alibi = spec->alibi,
                        .apart_q = apart->which ? local_buf(&x->base, apart->q) + (size_t)t0 * as : NULL,
                        .apart_k = apart->which ? local_buf(&x->base, apart->k) + (size_t)t0 * as : NULL,
                        .apart_which = apart->which ? apart->which->data : NULL,
                        .apart_reach = apart->which ? (int32_t)(apart->which->n / 2) : 0,
                        .apart_n = apart->n,
                        .apart_stride = as };
}

/* The chunks of positions that a sequence's only row sees: n from *first on. */
static int64_t chunks_of(const attn_args *a, int64_t *first) {
    int64_t lo, hi;
    attn_row_range(a, 0, &lo, &hi);
    *first = lo / ATTN_CHUNK;
    return hi > lo ? (hi - 1) / ATTN_CHUNK - *first + 1 : 0;
}

/*
 * Few sequences that generate, few heads, a long context: the context is shared among the workers, too. True when that
 * is worth it: units of SPLIT_HEADS query heads, which make good use of a key that was read, would not keep all workers
 * busy. Every unit is SPLIT_CHUNKS chunks of one key head; whoever finishes the last unit of a key head folds its
 * chunks, in order.
 */
static bool split_pays(cpu_exec *x, const nn_op *op) {
    const nn_batch *b = &x->base.batch;
    int             n_kv = x->layers[op->layer].layout.n_kv;
    size_t          floats = 0;
    int64_t         most = 0, first;
    int             per = (op->u.attn.n_head / n_kv + SPLIT_HEADS - 1) / SPLIT_HEADS;
    if (x->n_workers == 1 || b->n_tok != b->n_seq || b->n_seq * n_kv * per >= 2 * x->n_workers) return false;
    for (int s = 0; s < b->n_seq; s++) {
        attn_args a = cpu_attn_of(x, op, s);
        int64_t   n = chunks_of(&a, &first);
        floats += (size_t)n * (size_t)a.n_head * attn_part_floats(a.layout->v_dim);
        most = n > most ? n : most;
    }
    return most >= 2 * SPLIT_CHUNKS && floats <= x->parts_floats;
}

static void split_attention(cpu_exec *x, const cpu_item *it, const nn_op *op, int worker) {
    const nn_batch *b = &x->base.batch;
    for (;;) {
        int64_t u = atomic_fetch_add_explicit(&x->counters[it->next], 1, memory_order_relaxed), first = 0, n = 0;
        int     n_kv = x->layers[op->layer].layout.n_kv, s = 0;
        float  *part = x->parts;
        for (; s < b->n_seq; s++) {
            attn_args a = cpu_attn_of(x, op, s);
            n = chunks_of(&a, &first);
            int64_t units = (n + SPLIT_CHUNKS - 1) / SPLIT_CHUNKS * n_kv;
            if (u < units) break;
            u -= units;
            part += (size_t)n * (size_t)a.n_head * attn_part_floats(a.layout->v_dim);
        }
        if (s == b->n_seq) return;
        attn_args a = cpu_attn_of(x, op, s);
        int       pieces = (int)((n + SPLIT_CHUNKS - 1) / SPLIT_CHUNKS), kv = (int)(u / pieces), per = a.n_head / n_kv;
        int64_t   c0 = first + u % pieces * SPLIT_CHUNKS,
                c1 = c0 + SPLIT_CHUNKS < first + n ? c0 + SPLIT_CHUNKS : first + n;
        x->k.attn.partial(&a, 0, kv * per, (kv + 1) * per, c0, c1, part, first, n, cpu_scratch(x, worker));
        atomic_int *done = &x->folds[s * n_kv + kv];
        if (atomic_fetch_add_explicit(done, 1, memory_order_acq_rel) < pieces - 1) continue;
        atomic_store_explicit(done, 0, memory_order_relaxed);
        x->k.attn.combine(&a, 0, kv * per, (kv + 1) * per, part, first, n);
    }
}

void cpu_attention(cpu_exec *x, const cpu_item *it, const nn_op *op, int worker) {
    const nn_batch  *b = &x->base.batch;
    const kv_layout *l = &x->layers[op->layer].layout;
    int64_t          blocks = 0;
    if (cpu_chosen_pays(x, op)) {
        cpu_chosen_attention(x, it, op, worker);
        return;
    }
    if (split_pays(x, op)) {
        split_attention(x, it, op, worker);
        return;
    }
    int64_t rows = rows_per_unit(op->u.attn.n_head, l->n_kv);
    for (int s = 0; s < b->n_seq; s++) blocks += blocks_of(b, s, rows);
    int  per = heads_per_unit(x, op->u.attn.n_head, l->n_kv, blocks), groups = op->u.attn.n_head / per;
    bool even = x->base.x.model->state[op->layer].kind == NN_STATE_STEP;

    /* Units are handed out one by one, the long ones (late rows) first: their cost differs, their bits do not. Where rows see
     * all of the step they cost the same; then those of one head follow each other, while its keys are in the cache. */
    for (;;) {
        int64_t u = atomic_fetch_add_explicit(&x->counters[it->next], 1, memory_order_relaxed);
        if (u >= blocks * groups) return;
        int64_t block = even ? u % blocks : blocks - 1 - u / groups;
        int     head0 = (int)(even ? u / blocks : u % groups) * per, s = 0;
        for (int64_t n; block >= (n = blocks_of(b, s, rows)); s++) block -= n;
        attn_args a = cpu_attn_of(x, op, s);
        int64_t   row0 = block * rows, row1 = row0 + rows < a.n_rows ? row0 + rows : a.n_rows;
        x->k.attn.rows(&a, (int)row0, (int)row1, head0, head0 + per, cpu_scratch(x, worker));
    }
}

/* --- recurrences ------------------------------------------------------------------------------------------------ */

static float *fixed_of(cpu_exec *x, int layer, int s) {
    return x->layers[layer].fixed + (size_t)x->base.batch.state_slot[s] * x->layers[layer].fixed_floats;
}

static int64_t width_of(const cpu_exec *x, nn_buf b) { return x->base.x.model->tape->bufs[b].width; }

void cpu_conv(cpu_exec *x, const nn_op *op, int worker) {
    const nn_batch *b = &x->base.batch;
    int64_t         width = width_of(x, op->out), lo, hi;
    cpu_share((width + 15) / 16, worker, x->n_workers, &lo, &hi);
    lo *= 16;
    hi = hi * 16 < width ? hi * 16 : width;
    for (int s = 0; s < b->n_seq && lo < hi; s++) {
        int64_t    t0 = b->q_start[s];
        recur_conv a = { .y = local_buf(&x->base, op->out) + t0 * width,
                         .x = local_buf(&x->base, op->in[0]) + t0 * width,
                         .y_stride = (size_t)width,
                         .x_stride = (size_t)width,
                         .n_rows = b->q_start[s + 1] - t0,
                         .w = op->u.conv.w->data,
                         .bias = op->u.conv.bias ? op->u.conv.bias->data : NULL,
                         .width = op->u.conv.kernel,
                         .state = fixed_of(x, op->layer, s) + op->u.conv.channel0,
                         .state_stride = (size_t)x->base.x.model->state[op->layer].conv_channels,
                         .act = op->u.conv.act == NN_ACT_SILU ? OPS_ACT_SILU : OPS_ACT_NONE };
        x->k.recur.conv1d(&a, lo, hi);
    }
}

void cpu_delta(cpu_exec *x, const nn_op *op, int worker) {
    const nn_batch      *b = &x->base.batch;
    const nn_delta_spec *d = &op->u.delta;
    size_t               qs = (size_t)d->heads_k * (size_t)d->dim_k, vs = (size_t)d->heads_v * (size_t)d->dim_v,
           gs = (size_t)width_of(x, op->in[3]);
    int64_t lo, hi;
    cpu_share(d->heads_v, worker, x->n_workers, &lo, &hi);
    for (int s = 0; s < b->n_seq && lo < hi; s++) {
        size_t      t0 = (size_t)b->q_start[s];
        recur_delta a = { .y = local_buf(&x->base, op->out) + t0 * vs,
                          .q = local_buf(&x->base, op->in[0]) + t0 * qs,
                          .k = local_buf(&x->base, op->in[1]) + t0 * qs,
                          .v = local_buf(&x->base, op->in[2]) + t0 * vs,
                          .g = local_buf(&x->base, op->in[3]) + t0 * gs,
                          .beta = local_buf(&x->base, op->in[4]) + t0 * (size_t)d->heads_v,
                          .y_stride = vs,
                          .q_stride = qs,
                          .k_stride = qs,
                          .v_stride = vs,
                          .g_stride = gs,
                          .beta_stride = (size_t)d->heads_v,
                          .n_rows = b->q_start[s + 1] - b->q_start[s],
                          .n_kh = d->heads_k,
                          .n_vh = d->heads_v,
                          .k_dim = d->dim_k,
                          .v_dim = d->dim_v,
                          .g_per_channel = gs != (size_t)d->heads_v,
                          .k_tiled = d->k_tiled,
                          .scale = d->scale,
                          .state =
                              fixed_of(x, op->layer, s) + nn_state_conv_floats(&x->base.x.model->state[op->layer]) };
        x->k.recur.delta(&a, (int)lo, (int)hi);
    }
}

void cpu_ssm(cpu_exec *x, const nn_op *op, int worker) {
    const nn_batch    *b = &x->base.batch;
    const nn_ssm_spec *m = &op->u.ssm;
    size_t             xs = (size_t)m->n_head * (size_t)m->dim, bs = (size_t)m->n_group * (size_t)m->n_state;
    int64_t            lo, hi;
    cpu_share(m->n_head, worker, x->n_workers, &lo, &hi);
    for (int s = 0; s < b->n_seq && lo < hi; s++) {
        size_t    t0 = (size_t)b->q_start[s];
        recur_ssd a = { .y = local_buf(&x->base, op->out) + t0 * xs,
                        .x = local_buf(&x->base, op->in[0]) + t0 * xs,
                        .b = local_buf(&x->base, op->in[1]) + t0 * bs,
                        .c = local_buf(&x->base, op->in[2]) + t0 * bs,
                        .dt = op->in[3] ? local_buf(&x->base, op->in[3]) + t0 * (size_t)m->n_head : NULL,
                        .y_stride = xs,
                        .x_stride = xs,
                        .b_stride = bs,
                        .c_stride = bs,
                        .dt_stride = (size_t)m->n_head,
                        .n_rows = b->q_start[s + 1] - b->q_start[s],
                        .n_head = m->n_head,
                        .n_group = m->n_group,
                        .head_dim = m->dim,
                        .n_state = m->n_state,
                        .a = m->a->data,
                        .dt_bias = m->dt_bias ? m->dt_bias->data : NULL,
                        .d = m->d ? m->d->data : NULL,
                        .dt_min = m->dt_min,
                        .dt_max = m->dt_max > 0 ? m->dt_max : 3.4e38f,
                        .state = fixed_of(x, op->layer, s) + nn_state_conv_floats(&x->base.x.model->state[op->layer]) };
        x->k.recur.ssd(&a, (int)lo, (int)hi);
    }
}

void cpu_scan(cpu_exec *x, const nn_op *op, int worker) {
    const nn_batch     *b = &x->base.batch;
    const nn_scan_spec *m = &op->u.scan;
    size_t              cs = (size_t)m->n_channel, ns = (size_t)m->n_state;
    int64_t             lo, hi;
    cpu_share((m->n_channel + 15) / 16, worker, x->n_workers, &lo, &hi);
    lo *= 16;
    hi = hi * 16 < m->n_channel ? hi * 16 : m->n_channel;
    for (int s = 0; s < b->n_seq && lo < hi; s++) {
        size_t     t0 = (size_t)b->q_start[s];
        recur_scan a = { .y = local_buf(&x->base, op->out) + t0 * cs,
                         .x = local_buf(&x->base, op->in[0]) + t0 * cs,
                         .b = local_buf(&x->base, op->in[1]) + t0 * ns,
                         .c = local_buf(&x->base, op->in[2]) + t0 * ns,
                         .dt = local_buf(&x->base, op->in[3]) + t0 * cs,
                         .y_stride = cs,
                         .x_stride = cs,
                         .b_stride = ns,
                         .c_stride = ns,
                         .dt_stride = cs,
                         .n_rows = b->q_start[s + 1] - b->q_start[s],
                         .n_channel = m->n_channel,
                         .n_state = m->n_state,
                         .a = m->a->data,
                         .dt_bias = m->dt_bias->data,
                         .d = m->d->data,
                         .state =
                             fixed_of(x, op->layer, s) + nn_state_conv_floats(&x->base.x.model->state[op->layer]) };
        x->k.recur.scan(&a, lo, hi);
    }
}
