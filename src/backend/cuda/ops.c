/* SPDX-License-Identifier: Apache-2.0 */
/* Ops of the tape as kernel launches. Rows and buffers come from the batch under way; nothing waits. */
#include "backend/cuda/cuda.h"

#include "kernels/cuda/wide.h"
#include "tensor/mat.h"

cuda_act cuda_act_of(nn_act_kind act) {
    static const cuda_act acts[] = {
        [NN_ACT_NONE] = CUDA_ACT_NONE,           [NN_ACT_SILU] = CUDA_ACT_SILU,         [NN_ACT_GELU] = CUDA_ACT_GELU,
        [NN_ACT_GELU_TANH] = CUDA_ACT_GELU_TANH, [NN_ACT_RELU] = CUDA_ACT_RELU,         [NN_ACT_RELU2] = CUDA_ACT_RELU2,
        [NN_ACT_SIGMOID] = CUDA_ACT_SIGMOID,     [NN_ACT_SOFTPLUS] = CUDA_ACT_SOFTPLUS, [NN_ACT_TANH] = CUDA_ACT_TANH,
    };
    return acts[act];
}

/* From the table on the device. */
static int run_lookup(cuda_exec *x, const cuda_embed *m, const nn_op *op, err *e) {
    const tensor_mat *t = op->u.embed.table->at;
    cuda_embed_table  r = { .rows = x->weights + m->table_at,
                            .type = t->type,
                            .n_rows = t->rows,
                            .cols = t->cols,
                            .row_bytes = m->row_bytes,
                            .token = x->on_device.block + x->tokens_at,
                            .lists = x->sampler.picks.likely };
    return cuda_op_embed_tokens(cuda_buf(x, op->out), &r, x->batch.n_tok, op->u.embed.scale, x->stream, e);
}

static int run_embed(cuda_exec *x, int number, const nn_op *op, err *e) {
    float  *rows = NULL, *out = cuda_buf(x, op->out);
    int64_t n = x->batch.n_tok * cuda_info(x, op->out)->width;
    for (int i = 0; i < x->n_embeds; i++) {
        if (x->embeds[i].op != number) continue;
        const tensor_mat *t = op->u.embed.table->at;
        bool              raw = x->raw && x->embeds[i].raw_at;
        if (x->raw && x->embeds[i].there) return run_lookup(x, &x->embeds[i], op, e);
        rows = (float *)(void *)(x->heap + x->embeds[i].at);
        int rc = raw ? cuda_op_embed(op->kind == NN_OP_EMBED ? out : rows, x->heap + x->embeds[i].raw_at, t->type,
                                     x->batch.n_tok, t->cols, t->row_bytes, op->u.embed.scale, x->stream, e)
                     : 0;
        if (rc < 0 || (raw && op->kind == NN_OP_EMBED)) return rc;
    }
    if (op->kind == NN_OP_EMBED) return cuda_copy_within(out, rows, (size_t)n * sizeof *out, x->stream, e);
    cuda_each a = { .kind = CUDA_EACH_ADD, .y = out, .a = rows, .rows = 1, .width = n, .scale = 1.0f };
    return cuda_op_each(&a, x->stream, e);
}

/* Whether op `number + 1`, before `end`, multiplies what op `number` makes in 16 bits, so that it can be left so. */
static bool is_multiplied(const cuda_exec *x, int number, int end) {
    const nn_op *op = &x->x.model->tape->ops[number], *next = op + 1;
    return number + 1 < end && next->kind == NN_OP_LINEAR && next->in[0] == op->out &&
           cuda_info(x, op->out)->rows == cuda_info(x, next->out)->rows &&
           cuda_mat_of(x, next->u.linear.w)->type != TENSOR_F32;
}

/* The image of a buffer's rows, each cut into `split` rows of its own; true: it is there already. */
bool cuda_image_of(cuda_exec *x, nn_buf b, int split, cuda_rows *out) {
    int64_t n = cuda_buf_rows(x, b) * split, cols = cuda_info(x, b)->width / split;
    *out = (cuda_rows){ .n = n,
                        .n_pad = cuda_rows_pad(n),
                        .cols = cols,
                        .data = x->heap + x->areas.image,
                        .scale = (float *)(void *)(x->heap + x->areas.scale) };
    bool there = x->image_of == b && x->image_split == split;
    x->image_of = b;
    x->image_split = split;
    return there || n == 0;
}

int cuda_make_image(cuda_exec *x, nn_buf b, int split, cuda_rows *out, err *e) {
    if (cuda_image_of(x, b, split, out)) return 0;
    return cuda_rows_make(out, cuda_buf(x, b), out->cols, x->stream, e);
}

/* Whether experts multiply what op `number` makes, behind a router that takes it in f32. */
static bool is_for_experts(const cuda_exec *x, int number, int end) {
    const nn_op *op = &x->x.model->tape->ops[number];
    for (int i = 1; i <= 3 && number + i < end; i++) {
        if (op[i].kind == NN_OP_EXPERTS && op[i].in[0] == op->out)
            return cuda_mat_of(x, op[i].u.linear.w)->type != TENSOR_F32;
        if (op[i].out == op->out || (op[i].kind != NN_OP_LINEAR && op[i].kind != NN_OP_ROUTE)) return false;
        if (op[i].kind == NN_OP_LINEAR && cuda_mat_of(x, op[i].u.linear.w)->type != TENSOR_F32) return false;
    }
    return false;
}

/* A row that a product takes in f32. */
static bool is_fused(const cuda_exec *x, nn_buf b, int64_t most) {
    int64_t width = cuda_info(x, b)->width;
    return x->device.code >= 90 && cuda_buf_rows(x, b) == 1 && width % 8 == 0 && width <= most;
}

/* Whether the two buffers share bytes of the arena. */
bool cuda_overlap(const cuda_exec *x, nn_buf a, nn_buf b) {
    size_t from = x->plan.offset[a], to = x->plan.offset[b];
    size_t n = (size_t)(cuda_buf_rows(x, a) * cuda_info(x, a)->width) * sizeof(float),
           m = (size_t)(cuda_buf_rows(x, b) * cuda_info(x, b)->width) * sizeof(float);
    return from < to + m && to < from + n;
}

/* Whether the products behind a norm can do it themselves: blocks still read its row while others write results. */
static bool can_fuse(const cuda_exec *x, int number, int end, const nn_op *op) {
    int64_t width = cuda_info(x, op->out)->width;
    if (op->u.norm.kind != NN_NORM_RMS || op->u.norm.b || op->u.norm.group != width || width <= CUDA_NORM_HEADS ||
        !is_multiplied(x, number, end) || !is_fused(x, op->out, CUDA_NORM_FUSED))
        return false;
    int n = x->together[number + 1] > end - number - 1 ? end - number - 1 : x->together[number + 1];
    for (int i = 1; i <= n; i++) {
        if (cuda_buf_rows(x, op[i].out) != 1 || cuda_overlap(x, op->in[0], op[i].out) ||
            cuda_adapt_scales(x, number + i))
            return false;
    }
    return op->in[0] != op->out && !cuda_overlap(x, op->in[0], op->out);
}

/* Whether the buffer can be fetched when the tape has ended. */
static bool is_fetched(const nn_tape *t, nn_buf b) { return b == t->logits || b == t->hidden || b == t->inner; }

/* Whether only the products behind op `number`, which go together, read what it makes, in 16 bits: the next op that has to
 * do with the buffer writes it anew. */
static bool is_only_multiplied(const cuda_exec *x, int number, int end) {
    const nn_tape *t = x->x.model->tape;
    nn_buf         b = t->ops[number].out;
    int            n = x->together[number + 1];
    if (!x->whole || x->adapt.on || is_fetched(t, b) || !is_multiplied(x, number, end) || number + 1 + n > end)
        return false;
    for (int i = number + 1 + n; i < t->n_ops; i++) {
        const nn_op *op = &t->ops[i];
        for (size_t k = 0; k < sizeof op->in / sizeof *op->in; k++) {
            if (op->in[k] == b) return false;
        }
        if (op->out == b) return op->kind == NN_OP_NORM || (op->kind == NN_OP_LINEAR && !op->acc);
    }
    return true;
}

static int run_norm(cuda_exec *x, int number, int end, const nn_op *op, err *e) {
    static const cuda_norm_kind kinds[] = {
        [NN_NORM_RMS] = CUDA_NORM_RMS, [NN_NORM_LAYER] = CUDA_NORM_LAYER, [NN_NORM_L2] = CUDA_NORM_L2
    };
    int64_t   width = cuda_info(x, op->out)->width, group = op->u.norm.group;
    cuda_norm a = { .kind = kinds[op->u.norm.kind],
                    .x = cuda_buf(x, op->in[0]),
                    .out = cuda_buf(x, op->out),
                    .groups = cuda_buf_rows(x, op->out) * (width / group),
                    .group = (int)group,
                    .w_groups = op->u.norm.w && op->u.norm.w->n == width ? (int)(width / group) : 1,
                    .w = cuda_vector(x, op->u.norm.w),
                    .b = cuda_vector(x, op->u.norm.b),
                    .eps = op->u.norm.eps };
    cuda_rows rows;
    if (can_fuse(x, number, end, op)) {
        x->norm_at = number + 1;
        return 0;
    }
    if (group != width || group <= CUDA_NORM_HEADS ||
        (!is_multiplied(x, number, end) && !is_for_experts(x, number, end)))
        return cuda_op_norm(&a, NULL, x->stream, e);
    x->image_of = 0;
    (void)cuda_image_of(x, op->out, 1, &rows);
    if (cuda_norm_fits(&a) && is_only_multiplied(x, number, end)) a.out = NULL;
    return cuda_op_norm(&a, &rows, x->stream, e);
}

/* Whether no op behind `number` reads what buffer b holds now. An op reads what it names, and where it has `acc` also what it
 * writes. */
bool cuda_is_dead(const cuda_exec *x, nn_buf b, int number) {
    const nn_tape *t = x->x.model->tape;
    if (is_fetched(t, b)) return false;
    for (int i = number + 1; i < t->n_ops; i++) {
        const nn_op *op = &t->ops[i];
        for (size_t k = 0; k < sizeof op->in / sizeof *op->in; k++) {
            if (op->in[k] == b) return false;
        }
        if (op->out == b) return !op->acc;
    }
    return true;
}

/* Whether the product of gate and up can do the gated unit: for one row, or for many where nobody else looks at up. */
static bool can_gate(const cuda_exec *x, int number, const nn_op *op) {
    tensor_type type = cuda_mat_of(x, op->u.linear.w)->type;
    int64_t     n = cuda_buf_rows(x, op->out);
    if (n == 0 || type == TENSOR_F32 || !cuda_product_gates(&x->device, type, n, op->u.linear.w->cols)) return false;
    if (n == 1) return is_fused(x, op->out, INT64_MAX);
    return x->whole && !op[0].u.linear.b && !op[1].u.linear.b && cuda_is_dead(x, op[1].out, number + 2);
}

/* Whether the two products from `number` on are one, and the gated unit of their results follows. */
static bool is_gated(const cuda_exec *x, int number, int end) {
    const nn_op *op = &x->x.model->tape->ops[number], *glu = op + 2;
    return number + 3 <= end && x->together[number] == 2 && glu->kind == NN_OP_GLU && glu->u.glu.limit == 0 &&
           glu->out == op[0].out && glu->in[0] == op[1].out && op[0].u.linear.w->rows == op[1].u.linear.w->rows &&
           op[0].u.linear.w->rows % CUDA_MAT_ROWS == 0 && can_gate(x, number, op);
}

/* Whether what product `number` makes is only added to other rows by the op behind it, so that it can do that itself: not
 * where its blocks may still read those rows. */
static bool is_added(const cuda_exec *x, int number, int end) {
    const nn_op *op = &x->x.model->tape->ops[number], *add = op + 1;
    return x->whole && !x->norm_at && number + 2 <= end && !op->acc && add->kind == NN_OP_ADD &&
           add->in[0] == op->out && add->out != op->out && add->out != op->in[0] && add->u.scale == 1.0f &&
           cuda_info(x, add->out)->rows == cuda_info(x, op->out)->rows &&
           cuda_info(x, add->out)->mult == cuda_info(x, op->out)->mult && cuda_is_dead(x, op->out, number + 1);
}

/* n products of the same rows; glu: NULL, or the gated unit behind them; add: NULL, or the sum behind the one product. */
static int run_linear(cuda_exec *x, const nn_op *op, int n_ops, const nn_op *glu, const nn_op *add, err *e) {
    const nn_mat   *m = op->u.linear.w;
    const cuda_mat *w = cuda_mat_of(x, m);
    const uint8_t  *data = x->weights + w->at;
    cuda_rows       rows;
    int64_t         n = cuda_buf_rows(x, op->out);
    if (w->type == TENSOR_F32) {
        cuda_plain a = { .w = (const float *)(const void *)data,
                         .x = cuda_buf(x, op->in[0]),
                         .bias = cuda_vector(x, op->u.linear.b),
                         .out = cuda_buf(x, add ? add->out : op->out),
                         .rows = m->rows,
                         .cols = m->cols,
                         .n = n,
                         .add = op->acc || add };
        return cuda_op_plain(&a, x->stream, e);
    }
    const nn_op *norm = x->norm_at ? &x->x.model->tape->ops[x->norm_at - 1] : NULL;
    bool         fused = norm || (is_fused(x, op->in[0], CUDA_ROW_FUSED) && x->image_of != op->in[0]);
    int          rc = 0;
    x->norm_at = 0;
    if (fused)
        rows = (cuda_rows){ .n = 1, .n_pad = 8, .cols = m->cols };
    else
        rc = cuda_make_image(x, op->in[0], 1, &rows, e);
    if (rc < 0) return rc;
    rows.n = n; /* logits are made of the first of the output rows */
    int               behind = (int)(op - x->x.model->tape->ops) + n_ops;
    cuda_product_args a = { .w = { w->type, m->rows, m->cols, data, w->pitch },
                            .x = rows,
                            .out = cuda_buf(x, add ? add->out : op->out),
                            .out_stride = m->rows,
                            .scratch = x->heap + x->areas.scratch,
                            .early = true,
                            .w_scale = w->w_scale,
                            .bias = cuda_vector(x, op->u.linear.b),
                            .add = op->acc || add,
                            .n_more = n_ops - 1,
                            .glu = glu,
                            .act = glu ? cuda_act_of(glu->u.glu.act) : CUDA_ACT_NONE,
                            .ahead = cuda_ahead_of(x, behind),
                            .beside = cuda_beside(x, behind) };
    if (fused) a.row = cuda_buf(x, norm ? norm->in[0] : op->in[0]);
    if (norm) a.norm = (cuda_row_norm){ cuda_buf(x, norm->out), cuda_vector(x, norm->u.norm.w), norm->u.norm.eps };
    for (int i = 1; i < n_ops; i++) {
        const nn_linear *l = &op[i].u.linear;
        a.more[i - 1] = (cuda_more){ a.w.rows, cuda_buf(x, op[i].out), l->w->rows, cuda_vector(x, l->b),
                                     cuda_mat_of(x, l->w)->w_scale };
        a.w.rows += l->w->rows;
    }
    return cuda_product(&x->device, &a, x->stream, e);
}

/* One product of several that go together, of which some have gains. */
static int run_adapted(cuda_exec *x, int number, const nn_op *op, err *e) {
    if (cuda_adapt_scales(x, number)) return cuda_adapt_product(x, number, e);
    int rc = run_linear(x, op, 1, NULL, NULL, e);
    return rc < 0 ? rc : cuda_adapt_low(x, number, 1, e);
}

/* The table of a rotation, made where this batch does not have it yet. */
static int rope_table(cuda_exec *x, const nn_rope *r, float **table, err *e) {
    int k = 0, rc = 0;
    while (x->ropes[k].inv_freq != r->inv_freq || x->ropes[k].n_rot != r->n_rot || x->ropes[k].scale != r->scale ||
           x->ropes[k].axis_of != r->axis_of)
        k++;
    *table = (float *)(void *)(x->heap + x->areas.ropes[k]);
    if (!x->rope_made[k])
        rc = cuda_op_rope_table(*table, cuda_vec_of(x, r->inv_freq), cuda_vec_of(x, x->rope_axes[k]), r->n_rot / 2,
                                r->scale, &x->on_device, x->stream, e);
    x->rope_made[k] = rc == 0;
    return rc;
}

static int rope_args(cuda_exec *x, const nn_op *op, cuda_rope *a, err *e) {
    const nn_rope *r = &op->u.rope.rope;
    *a = (cuda_rope){ .x = cuda_buf(x, op->out),
                      .width = cuda_info(x, op->out)->width,
                      .head_dim = op->u.rope.head_dim,
                      .offset = op->u.rope.offset,
                      .n = r->n_rot / 2,
                      .interleaved = r->interleaved,
                      .batch = x->on_device };
    float *table;
    int    rc = rope_table(x, r, &table, e);
    a->table = table;
    return rc;
}

static int run_rope(cuda_exec *x, const nn_op *op, err *e) {
    cuda_rope a;
    int       rc = rope_args(x, op, &a, e);
    return rc < 0 ? rc : cuda_op_rope(&a, x->stream, e);
}

static cuda_pages pages_of(const cuda_exec *x, int layer) {
    cuda_pages p = x->layers[layer].pages;
    p.base = p.step ? x->heap + x->areas.step : x->pages[p.group];
    p.page_bytes = p.step ? 0 : x->x.memory.page_bytes[p.group];
    return p;
}

static cuda_pages index_of(const cuda_exec *x, int layer) {
    cuda_pages p = x->layers[layer].index;
    p.base = x->pages[p.group];
    p.page_bytes = x->x.memory.page_bytes[p.group];
    return p;
}

static int run_index_store(cuda_exec *x, const nn_op *op, err *e) {
    cuda_pages p = index_of(x, op->layer);
    return cuda_op_store_index(&p, cuda_buf(x, op->in[0]), &x->on_device, x->stream, e);
}

static int run_choose(cuda_exec *x, const nn_op *op, err *e) {
    const nn_choose_spec *s = &op->u.choose;
    cuda_choose           a = { .index = index_of(x, op->layer),
                                .batch = x->on_device,
                                .q = cuda_buf(x, op->in[0]),
                                .weights = cuda_buf(x, op->in[1]),
                                .out = (int32_t *)(void *)cuda_buf(x, op->out),
                                .scores = (float *)(void *)(x->heap + x->areas.scores),
                                .score_floats = (int64_t)x->score_floats,
                                .n_head = s->n_head,
                                .n_group = s->n_group,
                                .top = s->top,
                                .block = s->block,
                                .local = s->local,
                                .chunks = x->chunks < x->max_chunks ? x->chunks : x->max_chunks };
    a.line_floats = cuda_choose_floats(s->block, a.chunks);
    return cuda_op_choose(&a, x->stream, e);
}

static int run_store(cuda_exec *x, const nn_op *op, err *e) {
    if (x->layers[op->layer].is_packed) return cuda_packed_put(x, op, e);
    cuda_pages   p = pages_of(x, op->layer);
    const float *k = cuda_buf(x, op->in[0]), *v = cuda_buf(x, op->in[1]);
    if (op->kind == NN_OP_KV_STORE)
        return cuda_can_store_step(&p) ? cuda_op_store_step(&p, k, v, &x->on_device, x->stream, e)
                                       : cuda_op_store(&p, k, v, &x->on_device, x->stream, e);
    return cuda_op_store_latent(&p, k, (int)cuda_info(x, op->in[0])->width, v, (int)cuda_info(x, op->in[1])->width,
                                &x->on_device, x->stream, e);
}

/* Rotations of q and k in the same way, and the store of k. */
static bool is_rope_store(const cuda_exec *x, const nn_op *op) {
    const nn_op   *k = op + 1, *st = op + 2;
    const nn_rope *a = &op->u.rope.rope, *b = &k->u.rope.rope;
    return op->kind == NN_OP_ROPE && k->kind == NN_OP_ROPE && st->kind == NN_OP_KV_STORE && st->in[0] == k->out &&
           op->out != k->out && op->out != st->in[1] && k->out != st->in[1] && a->inv_freq == b->inv_freq &&
           a->axis_of == b->axis_of && a->n_rot == b->n_rot && a->scale == b->scale &&
           a->interleaved == b->interleaved && op->u.rope.offset == k->u.rope.offset &&
           op->u.rope.head_dim == k->u.rope.head_dim && k->u.rope.head_dim == x->layers[st->layer].pages.dim_k;
}

static int run_rope_store(cuda_exec *x, const nn_op *op, err *e) {
    cuda_rope_store a = { .q = cuda_buf(x, op->out),
                          .v = cuda_buf(x, op[2].in[1]),
                          .n_head = (int)(cuda_info(x, op->out)->width / op->u.rope.head_dim),
                          .pages = pages_of(x, op[2].layer) };
    int             rc = rope_args(x, op + 1, &a.rope, e);
    bool            keep = !x->whole || !cuda_is_dead(x, op[1].out, (int)(op - x->x.model->tape->ops) + 2);
    if (rc < 0) return rc;
    return cuda_can_rope_store_step(&a) ? cuda_op_rope_store_step(&a, keep, x->stream, e)
                                        : cuda_op_rope_store(&a, x->stream, e);
}

/* Whether the norms of q and k from `number` on, of each head by itself, lead to their rotations and the store. */
static bool is_normed(const cuda_exec *x, int number) {
    const nn_op *q = &x->x.model->tape->ops[number], *k = q + 1;
    if (k->kind != NN_OP_NORM || !is_rope_store(x, q + 2) || q[2].out != q->out || q[3].out != k->out) return false;
    for (const nn_op *op = q; op <= k; op++) {
        int dim = q[2].u.rope.head_dim;
        if (op->u.norm.kind != NN_NORM_RMS || op->u.norm.b || !op->u.norm.w || op->u.norm.group != dim ||
            op->u.norm.w->n != dim || op->u.norm.eps != q->u.norm.eps)
            return false;
    }
    return cuda_is_dead(x, q->out, number + 5) && cuda_is_dead(x, k->out, number + 5);
}

/*
 * How many chunks the rows are cut into, for different blocks, and how many rows at a time have room for what those leave; 0: one
 * block takes all of a row's chunks. Where rows are few, so that the whole device reads.
 */
static int attn_chunks(const cuda_exec *x, const nn_op *op, cuda_attn *a, bool single) {
    const int     n = x->batch.n_tok, top = a->chosen ? a->chosen_top * a->chosen_block : 0;
    const int     most = a->chosen ? (top + CUDA_ATTN_CHUNK - 1) / CUDA_ATTN_CHUNK : x->max_chunks;
    const int64_t blocks = (int64_t)n * a->pages.n_kv;
    bool          halves = a->pages.step && a->pages.k_type == CUDA_PAGE_F16; /* one kernel for all lengths */
    a->chunks = x->chunks < most ? x->chunks : most;
    int64_t fit = (int64_t)x->parts_floats / cuda_attn_parts(1, a->n_head, a->dim_out, a->chunks);
    /* Other kernels take tiles of rows. */
    bool by_row =
        x->layers[op->layer].is_packed ? single && cuda_packed_direct(x, op, a) : single || cuda_attn_plain(a);
    if (!halves && (single || (a->chunks > 1 && blocks < 4 * (int64_t)x->device.sms)) &&
        (fit >= n || (by_row && fit > 0)))
        return fit < n ? (int)fit : n;
    a->chunks = 0;
    return n;
}

/* The same attention of n rows from row t on. */
static cuda_attn attn_rows(const cuda_attn *a, int t, int n) {
    cuda_attn b = *a;
    b.batch.n_tok = n;
    b.batch.pos += t, b.batch.seq_of += t, b.batch.row_end += t;
    if (b.batch.row_begin) b.batch.row_begin += t;
    b.q += (int64_t)t * a->n_head * a->dim_q;
    if (b.q_turned) b.q_turned += (int64_t)t * a->n_head * a->dim_turned;
    b.out += (int64_t)t * a->n_head * a->dim_out;
    if (b.chosen) b.chosen += (int64_t)t * a->chosen_groups * (1 + a->chosen_top);
    if (b.k) b.k += (int64_t)t * a->pages.n_kv * a->pages.dim_k, b.v += (int64_t)t * a->pages.n_kv * a->pages.dim_v;
    if (b.table) b.table += (int64_t)t * 2 * a->turned;
    return b;
}

static int start_attn(cuda_exec *x, const nn_op *op, const cuda_attn *a, int at_once, err *e) {
    int rc = 0, n = x->batch.n_tok;
    for (int t = 0; t < n && rc == 0; t += at_once) {
        cuda_attn part = attn_rows(a, t, n - t < at_once ? n - t : at_once);
        rc = x->layers[op->layer].is_packed ? cuda_packed_attn(x, op, &part, e) : cuda_op_attn(&part, x->stream, e);
    }
    return rc;
}

/* turn: NULL, or the first of the three ops in front that rotate and store, which are done on the way where possible;
 * norms: NULL, or the first of the two in front of those that norm q and k. */
static int run_attn(cuda_exec *x, const nn_op *op, const nn_op *turn, const nn_op *norms, int *n_ops, err *e) {
    const nn_attn_spec *s = &op->u.attn;
    bool                latent = op->kind == NN_OP_LATENT_ATTN;
    cuda_attn           a = { .pages = pages_of(x, op->layer),
                              .batch = x->on_device,
                              .q = cuda_buf(x, op->in[0]),
                              .q_turned = latent ? cuda_buf(x, op->in[1]) : NULL,
                              .out = cuda_buf(x, op->out),
                              .n_head = s->n_head,
                              .dim_q = s->dim_k,
                              .dim_turned = latent ? s->dim_v : 0,
                              .dim_out = latent ? s->dim_k : s->dim_v,
                              .window = s->window,
                              .scale = s->scale,
                              .softcap = s->softcap,
                              .sinks = cuda_vector(x, s->sinks),
                              .chunk = s->chunk,
                              .until = s->until,
                              .reach = s->reach,
                              .spans = s->spans,
                              .strict = s->strict,
                              .bias = cuda_vector(x, s->bias),
                              .bias_wide = s->bias ? (int)(s->bias->n / s->n_head) : 0,
                              .alibi = cuda_vec_of(x, s->alibi),
                              .apart_q = s->apart.which ? cuda_buf(x, s->apart.q) : NULL,
                              .apart_k = s->apart.which ? cuda_buf(x, s->apart.k) : NULL,
                              .apart_which = cuda_vector(x, s->apart.which),
                              .apart_n = s->apart.n,
                              .apart_wide = s->apart.which ? (int)s->apart.which->n : 0,
                              .parts = (float *)(void *)(x->heap + x->areas.parts) };
    if (s->choice.ids) {
        a.chosen = (const int32_t *)(const void *)cuda_buf(x, s->choice.ids);
        a.chosen_groups = s->choice.n_group, a.chosen_top = s->choice.top, a.chosen_block = s->choice.block;
    }
    bool      single = !a.chosen && x->batch.n_tok == x->batch.n_seq && cuda_attn_single(&a);
    int       at_once = attn_chunks(x, op, &a, single);
    bool      packed = x->layers[op->layer].is_packed;
    cuda_rope r;
    if (turn) {
        int rc = rope_args(x, turn + 1, &r, e);
        if (rc < 0) return rc;
        bool can =
            single && a.chunks && !a.until && (packed ? cuda_packed_turns(x, op, &a, &r) : cuda_attn_turns(&a, &r));
        if (norms && (!can || packed)) {
            *n_ops = 1;
            return run_norm(x, (int)(norms - x->x.model->tape->ops), x->x.model->tape->n_ops, norms, e);
        }
        if (!can) {
            *n_ops = packed ? 1 : 3;
            return packed ? run_rope(x, turn, e) : run_rope_store(x, turn, e);
        }
        a.k = cuda_buf(x, turn[1].out), a.v = cuda_buf(x, turn[2].in[1]), a.table = r.table;
        a.turned = r.n, a.interleaved = r.interleaved;
    }
    if (norms) {
        a.q = cuda_buf(x, norms[0].in[0]), a.k = cuda_buf(x, norms[1].in[0]);
        a.q_norm = cuda_vector(x, norms[0].u.norm.w), a.k_norm = cuda_vector(x, norms[1].u.norm.w);
        a.norm_eps = norms->u.norm.eps;
    }
    if (single && a.chunks) a.counts = (unsigned *)(void *)(x->heap + x->areas.counts);
    return start_attn(x, op, &a, at_once, e);
}

static int run_each(cuda_exec *x, int number, int end, const nn_op *op, err *e) {
    /* One row is brought to 16 bits by the product behind it, and many blocks are faster here. */
    if (op->kind == NN_OP_GLU && op->u.glu.limit == 0 && is_multiplied(x, number, end) &&
        !is_fused(x, op->out, CUDA_ROW_FUSED)) {
        cuda_rows rows;
        x->image_of = 0;
        (void)cuda_image_of(x, op->out, 1, &rows);
        return cuda_op_glu_rows(cuda_act_of(op->u.glu.act), cuda_buf(x, op->out), cuda_buf(x, op->in[0]),
                                !is_only_multiplied(x, number, end), &rows, x->stream, e);
    }
    if (op->kind == NN_OP_ACT && is_multiplied(x, number, end) && !is_fused(x, op->out, CUDA_ROW_FUSED) &&
        cuda_can_act_rows(cuda_info(x, op->out)->width)) {
        bool      keep = !x->whole || x->adapt.on || !cuda_is_dead(x, op->out, number + 1);
        cuda_rows rows;
        x->image_of = 0;
        (void)cuda_image_of(x, op->out, 1, &rows);
        return cuda_op_act_rows(cuda_act_of(op->u.act), cuda_buf(x, op->out), keep, &rows, x->stream, e);
    }
    cuda_each a = { .y = cuda_buf(x, op->out),
                    .a = cuda_buf(x, op->in[0]),
                    .rows = cuda_buf_rows(x, op->out),
                    .width = cuda_info(x, op->out)->width,
                    .a_width = op->in[0] ? cuda_info(x, op->in[0])->width : 0,
                    .pos = x->on_device.pos };
    switch (op->kind) {
    case NN_OP_ADD: a.kind = CUDA_EACH_ADD, a.scale = op->u.scale; break;
    case NN_OP_SCALE: a.kind = CUDA_EACH_SCALE, a.scale = op->u.scale; break;
    case NN_OP_SOFTCAP: a.kind = CUDA_EACH_SOFTCAP, a.scale = op->u.scale; break;
    case NN_OP_ACT: a.kind = CUDA_EACH_ACT, a.act = cuda_act_of(op->u.act); break;
    case NN_OP_GATE: a.kind = CUDA_EACH_GATE, a.act = cuda_act_of(op->u.act); break;
    case NN_OP_POS_SCALE:
        a.kind = CUDA_EACH_POS_SCALE;
        a.scale = op->u.pos_scale.beta;
        a.period = op->u.pos_scale.period;
        a.offset = op->u.pos_scale.offset;
        break;
    case NN_OP_CLIP: a.kind = CUDA_EACH_CLIP, a.scale = op->u.scale; break;
    case NN_OP_CLAMP: a.kind = CUDA_EACH_CLAMP, a.scale = op->u.clamp.lo, a.alpha = op->u.clamp.hi; break;
    case NN_OP_ADD_EACH:
        a.kind = CUDA_EACH_ADD_EACH;
        a.a = cuda_vector(x, op->u.add_each.w);
        a.scale = op->u.add_each.scale;
        break;
    case NN_OP_SCALE_EACH: a.kind = CUDA_EACH_SCALE_BY, a.a = cuda_vector(x, op->u.each); break;
    case NN_OP_WEIGH: a.kind = CUDA_EACH_WEIGH; break;
    case NN_OP_ADD_BY:
        a.kind = CUDA_EACH_ADD_BY;
        a.b = cuda_buf(x, op->in[1]) + op->u.column;
        a.a_width = cuda_info(x, op->in[1])->width;
        break;
    case NN_OP_XIELU:
        a.kind = CUDA_EACH_XIELU;
        a.xielu[0] = op->u.xielu.p, a.xielu[1] = op->u.xielu.n;
        a.xielu[2] = op->u.xielu.beta, a.xielu[3] = op->u.xielu.eps;
        break;
    case NN_OP_DECAY:
        a.kind = CUDA_EACH_DECAY;
        a.a = cuda_vector(x, op->u.decay.a);
        a.a_width = op->u.decay.a->n;
        a.b = cuda_vector(x, op->u.decay.dt_bias);
        break;
    default:
        a.kind = CUDA_EACH_GLU;
        a.act = cuda_act_of(op->u.glu.act);
        a.scale = op->u.glu.limit;
        a.alpha = op->u.glu.alpha;
        break;
    }
    return cuda_op_each(&a, x->stream, e);
}

static cuda_state state_of(const cuda_exec *x, int layer, int64_t offset) {
    return (cuda_state){ .state = (float *)(void *)(x->heap + x->areas.slots),
                         .slot_floats = x->slot_floats,
                         .offset = x->layers[layer].fixed_at + offset,
                         .batch = x->on_device };
}

static int run_conv(cuda_exec *x, const nn_op *op, err *e) {
    cuda_conv a = { .st = state_of(x, op->layer, op->u.conv.channel0),
                    .x = cuda_buf(x, op->in[0]),
                    .w = cuda_vector(x, op->u.conv.w),
                    .bias = cuda_vector(x, op->u.conv.bias),
                    .out = cuda_buf(x, op->out),
                    .width = (int)cuda_info(x, op->out)->width,
                    .kernel = op->u.conv.kernel,
                    .channels = x->x.model->state[op->layer].conv_channels,
                    .act = cuda_act_of(op->u.conv.act) };
    return cuda_op_conv(&a, x->stream, e);
}

static int run_delta(cuda_exec *x, const nn_op *op, err *e) {
    const nn_delta_spec *d = &op->u.delta;
    cuda_delta a = { .st = state_of(x, op->layer, (int64_t)nn_state_conv_floats(&x->x.model->state[op->layer])),
                     .q = cuda_buf(x, op->in[0]),
                     .k = cuda_buf(x, op->in[1]),
                     .v = cuda_buf(x, op->in[2]),
                     .g = cuda_buf(x, op->in[3]),
                     .beta = cuda_buf(x, op->in[4]),
                     .out = cuda_buf(x, op->out),
                     .heads_k = d->heads_k,
                     .heads_v = d->heads_v,
                     .dim_k = d->dim_k,
                     .dim_v = d->dim_v,
                     .scale = d->scale,
                     .tiled = d->k_tiled,
                     .per_channel = cuda_info(x, op->in[3])->width != d->heads_v };
    return cuda_op_delta(&a, x->stream, e);
}

/* What the two kinds of scans share: their fields have the same names. */
#define SCANNED(x, op, spec)                                                                                           \
    .st = state_of(x, (op)->layer, (int64_t)nn_state_conv_floats(&(x)->x.model->state[(op)->layer])),                  \
    .x = cuda_buf(x, (op)->in[0]), .b = cuda_buf(x, (op)->in[1]), .c = cuda_buf(x, (op)->in[2]),                       \
    .dt = cuda_buf(x, (op)->in[3]), .va = cuda_vector(x, (spec)->a), .vd = cuda_vector(x, (spec)->d),                  \
    .dt_bias = cuda_vector(x, (spec)->dt_bias), .out = cuda_buf(x, (op)->out), .n_state = (spec)->n_state

static int run_ssm(cuda_exec *x, const nn_op *op, err *e) {
    const nn_ssm_spec *s = &op->u.ssm;
    cuda_ssm           a = { SCANNED(x, op, s),     .n_head = s->n_head, .dim = s->dim,
                             .n_group = s->n_group, .dt_min = s->dt_min, .dt_max = s->dt_max };
    return cuda_op_ssm(&a, x->stream, e);
}

static int run_scan(cuda_exec *x, const nn_op *op, err *e) {
    const nn_scan_spec *s = &op->u.scan;
    cuda_scan           a = { SCANNED(x, op, s), .n_channel = s->n_channel };
    return cuda_op_scan(&a, x->stream, e);
}
#undef SCANNED

static int run_take(cuda_exec *x, const nn_op *op, err *e) {
    cuda_take a = { .x = cuda_buf(x, op->in[0]),
                    .out = cuda_buf(x, op->out),
                    .rows = cuda_buf_rows(x, op->out),
                    .in_width = cuda_info(x, op->in[0])->width,
                    .group = op->u.take.group,
                    .offset = op->u.take.offset,
                    .width = op->u.take.width };
    return cuda_op_take(&a, x->stream, e);
}

/* Whether attention of the step's rows, each the last of its sequence, follows the rotations and the store from op on:
 * it leaves q and k as they were, so it may do all of it only where nobody looks between the ops. */
static bool is_turned(const cuda_exec *x, const nn_op *op) {
    const nn_op *attn = op + 3;
    return x->whole && !x->batch.row_end && x->batch.n_tok == x->batch.n_seq && attn->kind == NN_OP_ATTN &&
           attn->in[0] == op->out && attn->layer == op[2].layer;
}

static int start(cuda_exec *x, int number, int end, const nn_op *op, err *e) {
    float       *out = cuda_buf(x, op->out);
    const float *in = cuda_buf(x, op->in[0]);
    int          rc;
    switch (op->kind) {
    case NN_OP_EMBED:
    case NN_OP_EMBED_POS:
    case NN_OP_EMBED_SEG: rc = run_embed(x, number, op, e); return rc < 0 ? rc : cuda_adapt_embed(x, number, e);
    case NN_OP_ADD_SUPPLIED: return cuda_deep_add(x, op, e);
    case NN_OP_JOIN: return cuda_join(x, op, e);
    case NN_OP_NORM: return run_norm(x, number, end, op, e);
    case NN_OP_HEAD_LINEAR:
    case NN_OP_EXPERTS:
        rc = cuda_run_grouped(x, op, e);
        return rc < 0 || op->kind == NN_OP_HEAD_LINEAR ? rc : cuda_adapt_low(x, number, 1, e);
    case NN_OP_ROPE: return run_rope(x, op, e);
    case NN_OP_KV_STORE:
    case NN_OP_LATENT_STORE: return run_store(x, op, e);
    case NN_OP_INDEX_STORE: return run_index_store(x, op, e);
    case NN_OP_CHOOSE: return run_choose(x, op, e);
    case NN_OP_ATTN:
    case NN_OP_LATENT_ATTN: return run_attn(x, op, NULL, NULL, NULL, e);
    case NN_OP_TAKE: return run_take(x, op, e);
    case NN_OP_ROUTE: return cuda_run_route(x, op, e);
    case NN_OP_SCAN: return run_scan(x, op, e);
    case NN_OP_SPARSIFY:
        return cuda_op_row_size(out, NULL, cuda_buf_rows(x, op->out), cuda_info(x, op->out)->width, op->u.scale,
                                x->stream, e);
    case NN_OP_MATCH_SIZE:
        return cuda_op_row_size(out, in, cuda_buf_rows(x, op->out), cuda_info(x, op->out)->width, op->u.scale,
                                x->stream, e);
    case NN_OP_CONV: return run_conv(x, op, e);
    case NN_OP_DELTA: return run_delta(x, op, e);
    case NN_OP_SSM: return run_ssm(x, op, e);
    case NN_OP_OUTPUTS:
        return cuda_op_gather(out, in, x->on_device.out_rows, x->batch.n_out, cuda_info(x, op->out)->width, x->stream,
                              e);
    default: return run_each(x, number, end, op, e);
    }
}

/* What was made of a buffer holds no longer when the buffer is written; an op that leaves an image has just done both. */
static void forget_written(cuda_exec *x, const nn_op *op, nn_buf image_before) {
    if (op->out && op->out == x->image_of && image_before == x->image_of) x->image_of = 0;
    if (op->out && op->out == x->sorted_of) x->sorted_of = 0;
}

int cuda_run_ops(cuda_exec *x, int number, int end, err *e) {
    const nn_op *op = &x->x.model->tape->ops[number];
    nn_buf       before = x->image_of;
    int          n = 1, rc;
    if (x->up_end != number) x->up_end = 0;
    if (op->kind == NN_OP_LINEAR) {
        n = x->together[number] > end - number ? end - number : x->together[number];
        bool touched = false, scaled = false;
        for (int i = 0; i < n; i++) {
            touched = touched || cuda_adapt_touches(x, number + i);
            scaled = scaled || cuda_adapt_scales(x, number + i);
        }
        bool gated = n == 2 && !touched && is_gated(x, number, end),
             added = n == 1 && !touched && is_added(x, number, end);
        if (scaled) {
            n = 1;
            rc = run_adapted(x, number, op, e);
        } else {
            rc = run_linear(x, op, n, gated ? op + 2 : NULL, added ? op + 1 : NULL, e);
            if (rc == 0 && touched) rc = cuda_adapt_low(x, number, n, e);
        }
        n += gated + added;
        before = x->image_of;
    } else if (op->kind == NN_OP_EXPERTS && (n = cuda_few_experts(x, number, end)) > 0) {
        rc = cuda_run_few_experts(x, number, n, e);
    } else if (op->kind == NN_OP_EXPERTS && (n = cuda_many_ops(x, number, end)) > 0) {
        rc = cuda_run_many(x, number, n, e);
        if (rc == 0 && n == 1) rc = cuda_adapt_low(x, number, 1, e);
    } else if (op->kind == NN_OP_COMBINE) {
        n = cuda_is_summed(x, number, end) ? 2 : 1;
        rc = cuda_run_combine(x, op, n, e);
    } else if (op->kind == NN_OP_NORM && cuda_is_router(x, number, end)) {
        n = 3;
        before = 0;
        rc = cuda_run_router(x, op, e);
    } else if (op->kind == NN_OP_NORM && number + 6 <= end && is_normed(x, number) && is_turned(x, op + 2)) {
        n = 6;
        rc = run_attn(x, op + 5, op + 2, op, &n, e);
    } else if (number + 4 <= end && is_rope_store(x, op) && is_turned(x, op)) {
        n = 4;
        rc = run_attn(x, op + 3, op, NULL, &n, e);
    } else if (number + 3 <= end && is_rope_store(x, op) && !x->layers[op[2].layer].is_packed) {
        n = 3;
        rc = run_rope_store(x, op, e);
    } else {
        n = 1;
        rc = start(x, number, end, op, e);
    }
    if (rc < 0) return err_wrap(e, rc, "op %d (%s)", number, nn_op_name(op->kind));
    for (int i = 0; i < n; i++) forget_written(x, op + i, before);
    return n;
}
