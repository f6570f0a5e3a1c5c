/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Items other than products and state: norms, rotation, gates, routing, copies.
 *
 * A kernel is always called for a whole row or for a piece of it that begins at a multiple of PIECE, so that vector
 * tails fall on the same elements whatever the number of rows and workers.
 */
#include "backend/cpu/cpu.h"

#include "tensor/codec.h"

#include <math.h>
#include <string.h>

enum { PIECE = 256 };

static int64_t width_of(const cpu_exec *x, nn_buf b) { return x->base.x.model->tape->bufs[b].width; }

static ops_act act_of(nn_act_kind a) {
    static const ops_act map[] = {
        [NN_ACT_NONE] = OPS_ACT_NONE,           [NN_ACT_SILU] = OPS_ACT_SILU,         [NN_ACT_GELU] = OPS_ACT_GELU_ERF,
        [NN_ACT_GELU_TANH] = OPS_ACT_GELU_TANH, [NN_ACT_RELU] = OPS_ACT_RELU,         [NN_ACT_RELU2] = OPS_ACT_RELU2,
        [NN_ACT_SIGMOID] = OPS_ACT_SIGMOID,     [NN_ACT_SOFTPLUS] = OPS_ACT_SOFTPLUS, [NN_ACT_TANH] = OPS_ACT_TANH
    };
    return map[a];
}

/* The rows [lo, hi) of the batch that are tokens are looked up, the others are copied. */
static void embed_rows(cpu_exec *x, const nn_op *op, float *y, int64_t lo, int64_t hi) {
    const nn_batch      *b = &x->base.batch;
    const nn_mat        *m = op->u.embed.table;
    static const int32_t none = 0; /* token 0 */
    while (lo < hi) {
        int64_t end = lo;
        while (end < hi && !(b->embd && b->embd[end])) end++;
        if (lo < end) x->k.ops.embed(y, (size_t)m->cols, m->at, b->token, lo, end, op->u.embed.scale);
        for (; end < hi && b->embd[end]; end++) {
            float *to = y + end * m->cols;
            if (op->u.embed.by_token)
                x->k.ops.embed(to, (size_t)m->cols, m->at, &none, 0, 1, op->u.embed.scale);
            else
                memcpy(to, b->embd[end], (size_t)m->cols * sizeof *y);
        }
        lo = end;
    }
}

static void embed(cpu_exec *x, const nn_op *op, int worker) {
    const nn_batch *b = &x->base.batch;
    const nn_mat   *m = op->u.embed.table;
    float          *y = local_buf(&x->base, op->out), *row = cpu_scratch(x, worker);
    int64_t         lo, hi;
    cpu_share(b->n_tok, worker, x->n_workers, &lo, &hi);
    if (op->kind == NN_OP_EMBED) {
        embed_rows(x, op, y, lo, hi);
        if (x->adapt.on) cpu_adapt_embed(x, op, lo, hi);
        return;
    }
    for (int64_t t = lo; t < hi; t++) {
        int64_t at =
            op->kind == NN_OP_EMBED_SEG ? (b->segment ? b->segment[t] : 0) : (int64_t)b->pos[t] + op->u.embed.offset;
        tensor_mat_dequant_row(m->at, 0, at < 0 ? 0 : at < m->rows ? at : m->rows - 1, row);
        x->k.ops.add(y + t * m->cols, y + t * m->cols, row, m->cols);
    }
}

static void add_supplied(cpu_exec *x, const nn_op *op, int worker) {
    const nn_batch *b = &x->base.batch;
    int64_t         width = width_of(x, op->out), lo, hi;
    float          *y = local_buf(&x->base, op->out);
    if (!b->embd) return;
    cpu_share(b->n_tok, worker, x->n_workers, &lo, &hi);
    for (int64_t t = lo; t < hi; t++) {
        if (b->embd[t]) x->k.ops.add(y + t * width, y + t * width, b->embd[t] + op->u.part * width, width);
    }
}

static void norm(cpu_exec *x, const cpu_item *it, const nn_op *op, int worker) {
    int64_t width = width_of(x, op->out), rows = local_rows(&x->base, op->out), group = op->u.norm.group,
            per = width / group, lo, hi;
    const float  *in = local_buf(&x->base, op->in[0]);
    float        *out = local_buf(&x->base, op->out);
    const nn_vec *w = op->u.norm.w, *b = op->u.norm.b;
    bool          wide = w && w->n != group; /* other weights for each group */
    cpu_share(rows * per, worker, x->n_workers, &lo, &hi);
    for (int64_t g = lo; g < hi;) {
        int64_t      n = wide ? 1 : hi - g, at = g * group;
        const float *wd = w ? w->data + (wide ? at % width : 0) : NULL,
                    *bd = b ? b->data + (wide ? at % width : 0) : NULL;
        if (op->u.norm.kind == NN_NORM_RMS)
            x->k.ops.rms_norm(out + at, (size_t)group, in + at, (size_t)group, n, group, wd, 0.0f, op->u.norm.eps);
        else if (op->u.norm.kind == NN_NORM_LAYER)
            x->k.ops.layer_norm(out + at, (size_t)group, in + at, (size_t)group, n, group, wd, bd, op->u.norm.eps);
        else
            x->k.ops.l2_norm(out + at, (size_t)group, in + at, (size_t)group, n, group, op->u.norm.eps, 1.0f);
        if (it->also >= 0) cpu_quant_piece(x, it->also, op->out, at, n * group);
        g += n;
    }
}

static void rope(cpu_exec *x, const cpu_item *it, const nn_op *op, int worker) {
    const nn_rope *r = &op->u.rope.rope;
    int64_t        width = width_of(x, op->out), heads = width / op->u.rope.head_dim, lo, hi;
    float         *buf = local_buf(&x->base, op->out) + op->u.rope.offset;
    const float   *table = x->ropes[it->aux].table;
    ops_rope_style style = r->interleaved ? OPS_ROPE_PAIRS : OPS_ROPE_HALF;
    /* By heads, as kv_store shares them; see same_heads in lower.c. */
    cpu_share(heads, worker, x->n_workers, &lo, &hi);
    if (lo < hi)
        x->k.ops.rope(buf + lo * op->u.rope.head_dim, (size_t)width, x->base.batch.n_tok, (size_t)op->u.rope.head_dim,
                      hi - lo, table, r->n_rot / 2, style);
}

static void xielu(float *y, int64_t n, nn_xielu a) {
    for (int64_t i = 0; i < n; i++) {
        float x = y[i], bent = x > 0 ? a.p * x * x : a.n * (expm1f(fminf(x, a.eps)) - x);
        y[i] = bent + a.beta * x;
    }
}

static void clamp(float *y, int64_t n, float lo, float hi) {
    for (int64_t i = 0; i < n; i++) {
        float v = y[i] < lo ? lo : y[i];
        y[i] = v > hi ? hi : v;
    }
}

/* One piece of a row of an op that works element by element. */
static void piece(cpu_exec *x, const nn_op *op, int64_t row, int64_t c0, int64_t n) {
    int64_t      width = width_of(x, op->out), iw = op->in[0] ? width_of(x, op->in[0]) : 0;
    float       *y = local_buf(&x->base, op->out) + row * width + c0;
    const float *a = op->in[0] ? local_buf(&x->base, op->in[0]) + row * iw : NULL;
    switch (op->kind) {
    case NN_OP_ADD:
        if (op->u.scale == 1.0f)
            x->k.ops.add(y, y, a + c0, n);
        else
            x->k.ops.axpy(y, a + c0, op->u.scale, n);
        break;
    case NN_OP_SCALE: x->k.ops.scale(y, y, op->u.scale, n); break;
    case NN_OP_CLAMP: clamp(y, n, op->u.clamp.lo, op->u.clamp.hi); break;
    case NN_OP_CLIP: x->k.ops.clip(y, y, n, op->u.scale); break;
    case NN_OP_SCALE_EACH: x->k.ops.glu(y, op->u.each->data + c0, y, n, OPS_ACT_NONE, 0.0f, 0.0f); break;
    case NN_OP_ADD_EACH: x->k.ops.axpy(y, op->u.add_each.w->data + c0, op->u.add_each.scale, n); break;
    case NN_OP_ADD_BY: {
        const float *g = local_buf(&x->base, op->in[1]) + row * width_of(x, op->in[1]);
        x->k.ops.axpy(y, a + c0, g[op->u.column], n);
        break;
    }
    case NN_OP_ACT: x->k.ops.act(y, y, n, act_of(op->u.act)); break;
    case NN_OP_SOFTCAP: x->k.ops.softcap(y, y, n, op->u.scale); break;
    case NN_OP_XIELU: xielu(y, n, op->u.xielu); break;
    case NN_OP_POS_SCALE: {
        double p = (double)x->base.batch.pos[row] + op->u.pos_scale.offset;
        double s = 1 + op->u.pos_scale.beta * log1p(floor(p / op->u.pos_scale.period));
        x->k.ops.scale(y, y, (float)s, n);
        break;
    }
    case NN_OP_GLU:
        x->k.ops.glu(y, y, a + c0, n, op->u.glu.limit != 0 ? OPS_ACT_SWIGLU_CLAMP : act_of(op->u.glu.act),
                     op->u.glu.alpha, op->u.glu.limit);
        break;
    default: break;
    }
}

static void elementwise(cpu_exec *x, const cpu_item *it, const nn_op *op, int worker) {
    int64_t width = width_of(x, op->out), rows = cpu_rows(x, it, op->out), pieces = (width + PIECE - 1) / PIECE, lo, hi;
    cpu_share(rows * pieces, worker, x->n_workers, &lo, &hi);
    while (lo < hi) { /* as many pieces of one row as this worker has */
        int64_t row = cpu_row(x, it, lo / pieces), p0 = lo % pieces,
                p1 = p0 + (hi - lo) < pieces ? p0 + (hi - lo) : pieces;
        int64_t c0 = p0 * PIECE, n = (p1 * PIECE < width ? p1 * PIECE : width) - c0;
        piece(x, op, row, c0, n);
        if (it->also >= 0) cpu_quant_piece(x, it->also, op->out, row * width + c0, n);
        lo += p1 - p0;
    }
}

/* x *= act(g). A gate as wide as x goes by pieces through glu; a narrower one by rows. */
static void gate(cpu_exec *x, const nn_op *op, int worker) {
    int64_t width = width_of(x, op->out), gw = width_of(x, op->in[0]), rows = local_rows(&x->base, op->out), lo, hi;
    float  *y = local_buf(&x->base, op->out);
    const float *g = local_buf(&x->base, op->in[0]);
    ops_act      act = act_of(op->u.act);
    if (gw == width) {
        int64_t pieces = (width + PIECE - 1) / PIECE;
        cpu_share(rows * pieces, worker, x->n_workers, &lo, &hi);
        for (; lo < hi; lo++) {
            int64_t at = lo / pieces * width + lo % pieces * PIECE, n = width - lo % pieces * PIECE;
            x->k.ops.glu(y + at, g + at, y + at, n < PIECE ? n : PIECE, act, 0.0f, 0.0f);
        }
        return;
    }
    int64_t part = width / gw;
    cpu_share(rows * gw, worker, x->n_workers, &lo, &hi);
    for (; lo < hi; lo++) {
        float s;
        x->k.ops.act(&s, g + lo, 1, act);
        x->k.ops.scale(y + lo * part, y + lo * part, s, part);
    }
}

static void decay(cpu_exec *x, const nn_op *op, int worker) {
    int64_t      width = width_of(x, op->out), heads = op->u.decay.a->n, lo, hi;
    float       *y = local_buf(&x->base, op->out);
    const float *bias = op->u.decay.dt_bias ? op->u.decay.dt_bias->data : NULL;
    cpu_share(local_rows(&x->base, op->out), worker, x->n_workers, &lo, &hi);
    for (; lo < hi; lo++)
        x->k.recur.decay(y + lo * width, y + lo * width, op->u.decay.a->data, bias, heads, width / heads);
}

static void take(cpu_exec *x, const nn_op *op, int worker) {
    int64_t      iw = width_of(x, op->in[0]), ow = width_of(x, op->out), groups = iw / op->u.take.group, lo, hi;
    const float *a = local_buf(&x->base, op->in[0]);
    float       *y = local_buf(&x->base, op->out);
    cpu_share(local_rows(&x->base, op->out) * groups, worker, x->n_workers, &lo, &hi);
    for (; lo < hi; lo++) {
        int64_t t = lo / groups, g = lo % groups;
        memcpy(y + t * ow + g * op->u.take.width, a + t * iw + g * op->u.take.group + op->u.take.offset,
               (size_t)op->u.take.width * sizeof *y);
    }
}

static void join(cpu_exec *x, const nn_op *op, int worker) {
    int64_t ow = width_of(x, op->out), at = 0, lo, hi;
    float  *y = local_buf(&x->base, op->out);
    cpu_share(local_rows(&x->base, op->out), worker, x->n_workers, &lo, &hi);
    for (int k = 0; k < NN_MAX_IN && op->in[k]; k++) {
        int64_t      w = width_of(x, op->in[k]);
        const float *a = local_buf(&x->base, op->in[k]);
        for (int64_t t = lo; t < hi; t++) memcpy(y + t * ow + at, a + t * w, (size_t)w * sizeof *y);
        at += w;
    }
}

static ops_score score_of(nn_score s) {
    static const ops_score map[] = { [NN_SCORE_SOFTMAX] = OPS_SCORE_SOFTMAX,
                                     [NN_SCORE_SIGMOID] = OPS_SCORE_SIGMOID,
                                     [NN_SCORE_SPARSEMIXER] = OPS_SCORE_SPARSEMIXER };
    return map[s];
}

static void route(cpu_exec *x, const nn_op *op, int worker) {
    ops_route r = { .n_expert = op->u.route.n_expert,
                    .n_used = op->u.route.n_used,
                    .score = score_of(op->u.route.score),
                    .jitter = op->u.route.jitter,
                    .n_group = op->u.route.n_group,
                    .topk_group = op->u.route.top_group,
                    .group_top2 = !op->u.route.group_best,
                    .renorm = op->u.route.renorm,
                    .renorm_eps = op->u.route.renorm_eps,
                    .scale = op->u.route.scale };
    float    *scratch = cpu_scratch(x, worker), *weight = scratch + 2 * r.n_expert;
    int32_t  *id = (int32_t *)(void *)(weight + r.n_expert);
    int64_t   lo, hi;
    cpu_share(x->base.batch.n_tok, worker, x->n_workers, &lo, &hi);
    for (; lo < hi; lo++) {
        float *out = local_buf(&x->base, op->out) + lo * r.n_used * 2;
        x->k.ops.route(&r, local_buf(&x->base, op->in[0]) + lo * r.n_expert,
                       op->u.route.bias ? op->u.route.bias->data : NULL, id, weight, scratch);
        for (int k = 0; k < r.n_used; k++) {
            memcpy(&out[k * 2], &id[k], sizeof id[k]);
            out[k * 2 + 1] = op->u.route.expert_scale ? weight[k] * op->u.route.expert_scale->data[id[k]] : weight[k];
        }
    }
}

static void weigh(cpu_exec *x, const cpu_item *it, const nn_op *op, int worker) {
    int64_t      width = width_of(x, op->out), lo, hi;
    const float *chosen = local_buf(&x->base, op->in[0]);
    float       *y = local_buf(&x->base, op->out);
    cpu_share(cpu_rows(x, it, op->out), worker, x->n_workers, &lo, &hi);
    for (; lo < hi; lo++) {
        int64_t row = cpu_row(x, it, lo);
        x->k.ops.scale(y + row * width, y + row * width, chosen[row * 2 + 1], width);
    }
}

/* Plain sums in double: a few layers of one family have it, before a product many times as long. */
static void sparsify(cpu_exec *x, const nn_op *op, int worker) {
    int64_t width = width_of(x, op->out), lo, hi;
    cpu_share(local_rows(&x->base, op->out), worker, x->n_workers, &lo, &hi);
    for (; lo < hi; lo++) {
        float *y = local_buf(&x->base, op->out) + lo * width;
        double mean = 0, sum = 0;
        for (int64_t i = 0; i < width; i++) mean += (double)y[i];
        mean /= (double)width;
        for (int64_t i = 0; i < width; i++) sum += ((double)y[i] - mean) * ((double)y[i] - mean);
        float cut = (float)(mean + (double)op->u.scale * sqrt(sum / (double)width));
        for (int64_t i = 0; i < width; i++) y[i] = y[i] > cut ? y[i] - cut : 0.0f;
    }
}

static void match_size(cpu_exec *x, const nn_op *op, int worker) {
    int64_t width = width_of(x, op->out), lo, hi;
    cpu_share(local_rows(&x->base, op->out), worker, x->n_workers, &lo, &hi);
    for (; lo < hi; lo++) {
        const float *a = local_buf(&x->base, op->in[0]) + lo * width;
        float       *y = local_buf(&x->base, op->out) + lo * width;
        double       is = 0, should = 0;
        for (int64_t i = 0; i < width; i++) is += (double)y[i] * (double)y[i];
        for (int64_t i = 0; i < width; i++) should += (double)a[i] * (double)a[i];
        is = fmax(is / (double)width, (double)op->u.scale);
        x->k.ops.scale(y, y, (float)sqrt(should / (double)width / is), width);
    }
}

/* In the order of rank, so that a token's sum does not depend on how rows were grouped. */
static void combine(cpu_exec *x, const nn_op *op, int worker) {
    int64_t      width = width_of(x, op->out), pieces = (width + PIECE - 1) / PIECE, lo, hi;
    int          n = op->u.combine.n_used;
    const float *y = local_buf(&x->base, op->in[0]), *chosen = local_buf(&x->base, op->in[1]);
    float       *out = local_buf(&x->base, op->out);
    cpu_share(x->base.batch.n_tok * pieces, worker, x->n_workers, &lo, &hi);
    for (; lo < hi; lo++) {
        int64_t      t = lo / pieces, c0 = lo % pieces * PIECE, len = width - c0 < PIECE ? width - c0 : PIECE;
        const float *rows[CPU_MAX_USED];
        float        w[CPU_MAX_USED];
        for (int k = 0; k < n; k++) {
            rows[k] = y + (t * n + k) * width + c0;
            w[k] = op->u.combine.even ? 1.0f : chosen[(t * n + k) * 2 + 1];
        }
        x->k.ops.weighted_sum(out + t * width + c0, rows, w, n, len);
    }
}

static void outputs(cpu_exec *x, const nn_op *op, int worker) {
    int64_t      width = width_of(x, op->out), lo, hi;
    const float *a = local_buf(&x->base, op->in[0]);
    float       *y = local_buf(&x->base, op->out);
    cpu_share(x->base.batch.n_out, worker, x->n_workers, &lo, &hi);
    for (; lo < hi; lo++) memcpy(y + lo * width, a + x->base.batch.out_rows[lo] * width, (size_t)width * sizeof *y);
}

static void rope_table(cpu_exec *x, const cpu_item *it, int worker) {
    const nn_batch *b = &x->base.batch;
    cpu_rope       *r = &x->ropes[it->aux];
    bool            axes = r->rope.axis_of && b->pos_axes;
    int64_t         lo, hi;
    cpu_share(b->n_tok, worker, x->n_workers, &lo, &hi);
    if (lo < hi)
        x->k.ops.rope_table(r->table, axes ? b->pos_axes : b->pos, (size_t)b->n_tok, axes ? r->rope.axis_of : NULL, lo,
                            hi, r->rope.inv_freq, r->rope.n_rot / 2, r->rope.scale);
}

static void run_op(cpu_exec *x, const cpu_item *it, const nn_op *op, int worker) {
    switch (op->kind) {
    case NN_OP_EMBED:
    case NN_OP_EMBED_POS:
    case NN_OP_EMBED_SEG: embed(x, op, worker); break;
    case NN_OP_ADD_SUPPLIED: add_supplied(x, op, worker); break;
    case NN_OP_NORM: norm(x, it, op, worker); break;
    case NN_OP_LINEAR: cpu_linear(x, it, op, worker); break;
    case NN_OP_HEAD_LINEAR: cpu_head_linear(x, it, op, worker); break;
    case NN_OP_EXPERTS: cpu_experts(x, it, op, worker); break;
    case NN_OP_ROPE: rope(x, it, op, worker); break;
    case NN_OP_KV_STORE:
    case NN_OP_LATENT_STORE: cpu_kv_store(x, op, worker); break;
    case NN_OP_ATTN:
    case NN_OP_LATENT_ATTN: cpu_attention(x, it, op, worker); break;
    case NN_OP_INDEX_STORE: cpu_index_store(x, op, worker); break;
    case NN_OP_CHOOSE: cpu_choose(x, it, op, worker); break;
    case NN_OP_ROUTE: route(x, op, worker); break;
    case NN_OP_WEIGH: weigh(x, it, op, worker); break;
    case NN_OP_COMBINE: combine(x, op, worker); break;
    case NN_OP_SPARSIFY: sparsify(x, op, worker); break;
    case NN_OP_MATCH_SIZE: match_size(x, op, worker); break;
    case NN_OP_GATE: gate(x, op, worker); break;
    case NN_OP_TAKE: take(x, op, worker); break;
    case NN_OP_JOIN: join(x, op, worker); break;
    case NN_OP_CONV: cpu_conv(x, op, worker); break;
    case NN_OP_DECAY: decay(x, op, worker); break;
    case NN_OP_DELTA: cpu_delta(x, op, worker); break;
    case NN_OP_SSM: cpu_ssm(x, op, worker); break;
    case NN_OP_SCAN: cpu_scan(x, op, worker); break;
    case NN_OP_OUTPUTS: outputs(x, op, worker); break;
    default: elementwise(x, it, op, worker); break;
    }
}

void cpu_run_item(cpu_exec *x, const cpu_item *it, int worker) {
    const nn_op *op = &x->base.x.model->tape->ops[it->op];
    switch (it->kind) {
    case CPU_ITEM_OP:
        cpu_observe(x, op, worker);
        run_op(x, it, op, worker);
        break;
    case CPU_ITEM_ROPE_TABLE: rope_table(x, it, worker); break;
    case CPU_ITEM_QUANT: cpu_quant(x, it, worker); break;
    case CPU_ITEM_GROUP: cpu_group(x, it, op, worker); break;
    case CPU_ITEM_PACK: cpu_pack(x, it, op, worker); break;
    case CPU_ITEM_EXPAND: cpu_adapt_expand(x, it, op, worker); break;
    }
}
