/* SPDX-License-Identifier: Apache-2.0 */
/* Lowering: looks at every op of the executor's part, refuses by name what no kernel can do, and says what memory the
 * rest needs and where it lies. */
#include "backend/cuda/cuda.h"

#include "base/str.h"
#include "tensor/codec.h"

#include <stdio.h>

/* Floats of attention parts, if not one row has more: rows that do not fit go one part after the other. */
enum { PARTS_MOST = 48 << 20 };
/* Floats of an indexer's scores, if not one line has more; lines that do not fit go one behind the other. */
enum { SCORES_MOST = 16 << 20 };

int cuda_refuse(const cuda_exec *x, int op, const char *why, err *e) {
    const nn_tape *t = x->x.model->tape;
    str            line;
    str_init(&line);
    nn_op_print(t, &t->ops[op], &line);
    int rc = err_set(e, ERR_UNSUPPORTED, "the CUDA backend cannot run op %d (%s): %s", op, str_cstr(&line), why);
    str_deinit(&line);
    return rc;
}

static void most(size_t *at, size_t n) {
    if (n > *at) *at = n;
}

static int need_vec(cuda_exec *x, const nn_vec *v, err *e) { return v ? cuda_weights_add_vec(x, v->data, v->n, e) : 0; }

static int lower_product(cuda_exec *x, int i, const nn_op *op, err *e) {
    const nn_tape   *t = x->x.model->tape;
    const nn_mat    *m = op->u.linear.w;
    const nn_limits *l = &x->x.options.limits;
    size_t           rows = nn_rows_max(l, &t->bufs[op->in[0]]), out = nn_rows_max(l, &t->bufs[op->out]);
    int              rc = cuda_weights_add(x, op, i, e);
    if (rc < 0) return rc;
    const cuda_mat *w = cuda_mat_of(x, m);
    if (op->kind == NN_OP_HEAD_LINEAR) rows *= (size_t)m->n_stack;
    if (w->type != TENSOR_F32) {
        most(&x->image_bytes, cuda_rows_bytes((int64_t)rows, m->cols));
        most(&x->image_rows, rows);
    }
    if (op->kind == NN_OP_LINEAR && out > CUDA_FEW)
        most(&x->scratch_bytes, cuda_scratch_bytes(w->type, m->rows, m->cols));
    if (op->kind == NN_OP_EXPERTS) {
        if (m->n_stack > CUDA_MAX_EXPERTS) return cuda_refuse(x, i, "too many experts", e);
        most(&x->group_rows, out);
        most(&x->group_items, (size_t)cuda_items_max((int64_t)out, m->n_stack));
    }
    return 0;
}

static int lower_rope(cuda_exec *x, int i, const nn_op *op, err *e) {
    const nn_rope *r = &op->u.rope.rope;
    for (int k = 0; k < x->n_ropes; k++) {
        if (x->ropes[k].inv_freq == r->inv_freq && x->ropes[k].n_rot == r->n_rot && x->ropes[k].scale == r->scale &&
            x->ropes[k].axis_of == r->axis_of)
            return 0;
    }
    if (x->n_ropes == CUDA_MAX_ROPES) return cuda_refuse(x, i, "more kinds of rotation than there are tables", e);
    float *axis = r->axis_of ? arena_alloc(&x->mem, (size_t)(r->n_rot / 2) * sizeof *axis) : NULL;
    if (r->axis_of && !axis) return err_set_nomem(e);
    for (int f = 0; axis && f < r->n_rot / 2; f++) axis[f] = r->axis_of[f];
    int rc = axis ? cuda_weights_add_vec(x, axis, r->n_rot / 2, e) : 0;
    if (rc < 0) return rc;
    x->rope_axes[x->n_ropes] = axis;
    x->ropes[x->n_ropes++] = *r;
    return cuda_weights_add_vec(x, r->inv_freq, r->n_rot / 2, e);
}

static int lower_attn(cuda_exec *x, int i, const nn_op *op, err *e) {
    const nn_attn_spec *a = &op->u.attn;
    const nn_limits    *l = &x->x.options.limits;
    bool                latent = op->kind == NN_OP_LATENT_ATTN;
    int                 dim_out = latent ? a->dim_k : a->dim_v, dim = latent ? a->dim_k + a->dim_v : a->dim_k;
    if (dim_out > CUDA_ATTN_DIM || dim > 2 * CUDA_ATTN_DIM) return cuda_refuse(x, i, "heads that are too wide", e);
    if (a->until && a->choice.ids) return cuda_refuse(x, i, "a choice among the first positions only", e);
    int64_t parts = cuda_attn_parts(cuda_parts_rows(l), a->n_head, dim_out, x->max_chunks),
            one = cuda_attn_parts(1, a->n_head, dim_out, x->max_chunks);
    most(&x->parts_floats, (size_t)(parts < PARTS_MOST ? parts : one > PARTS_MOST ? one : PARTS_MOST));
    most(&x->most_kv, latent ? 1 : (size_t)a->n_kv);
    int rc = need_vec(x, a->sinks, e);
    if (rc == 0) rc = need_vec(x, a->bias, e);
    if (rc == 0) rc = need_vec(x, a->apart.which, e);
    if (rc == 0 && a->alibi) rc = cuda_weights_add_vec(x, a->alibi, a->n_head, e);
    return rc;
}

static int lower_choose(cuda_exec *x, int i, const nn_op *op, err *e) {
    const nn_choose_spec *s = &op->u.choose;
    const nn_limits      *l = &x->x.options.limits;
    int64_t               line = cuda_choose_floats(s->block, x->max_chunks), all = line * l->max_tokens * s->n_group;
    if (!cuda_can_choose(op->in[1] != 0, s->n_head / s->n_group, x->layers[op->layer].index.dim_k))
        return cuda_refuse(x, i, "an indexer that is too wide", e);
    most(&x->score_floats, (size_t)(all < SCORES_MOST ? all : line > SCORES_MOST ? line : SCORES_MOST));
    return 0;
}

static int lower_embed(cuda_exec *x, int i, const nn_op *op, err *e) {
    char why[160];
    if (!tensor_mat_valid(op->u.embed.table->at)) {
        snprintf(why, sizeof why, "a table of type %s", tensor_type_name((int)op->u.embed.table->at[0].type));
        return cuda_refuse(x, i, why, e);
    }
    if (x->n_embeds == CUDA_MAX_EMBEDS) return cuda_refuse(x, i, "more tables of embeddings than expected", e);
    cuda_embed       *m = &x->embeds[x->n_embeds++];
    const tensor_mat *table = op->u.embed.table->at;
    *m = (cuda_embed){ .op = i };
    m->there = op->kind == NN_OP_EMBED && !op->u.embed.by_token && cuda_can_embed(table->type) && !table->scales;
    if (!m->there) return 0;
    (void)tensor_row_bytes((int)table->type, table->cols, &m->row_bytes);
    m->table_at = x->weights_bytes;
    x->weights_bytes += cuda_align((size_t)table->rows * m->row_bytes);
    return 0;
}

/* The vectors of an op that has no matrix. */
static int lower_vecs(cuda_exec *x, const nn_op *op, err *e) {
    const nn_vec *v[4] = { NULL };
    int           rc = 0;
    switch (op->kind) {
    case NN_OP_NORM: v[0] = op->u.norm.w, v[1] = op->u.norm.b; break;
    case NN_OP_ROUTE: v[0] = op->u.route.bias, v[1] = op->u.route.expert_scale; break;
    case NN_OP_CONV: v[0] = op->u.conv.w, v[1] = op->u.conv.bias; break;
    case NN_OP_DECAY: v[0] = op->u.decay.a, v[1] = op->u.decay.dt_bias; break;
    case NN_OP_SCAN: v[0] = op->u.scan.a, v[1] = op->u.scan.d, v[2] = op->u.scan.dt_bias; break;
    case NN_OP_SCALE_EACH: v[0] = op->u.each; break;
    case NN_OP_ADD_EACH: v[0] = op->u.add_each.w; break;
    case NN_OP_SSM: v[0] = op->u.ssm.a, v[1] = op->u.ssm.d, v[2] = op->u.ssm.dt_bias; break;
    default: break;
    }
    for (int k = 0; k < 4 && rc == 0; k++) rc = need_vec(x, v[k], e);
    return rc;
}

/* Shared memory that a block of these recurrent kernels takes is within 200 KB. */
static int check_recurrent(const cuda_exec *x, int i, const nn_op *op, err *e) {
    int rows = op->kind == NN_OP_DELTA ? op->u.delta.dim_k : op->kind == NN_OP_SSM ? op->u.ssm.n_state : 0;
    if (rows > 1024) return cuda_refuse(x, i, "a recurrent state that is too wide", e);
    if (op->kind == NN_OP_CONV && op->u.conv.kernel > 16) return cuda_refuse(x, i, "a convolution that is too long", e);
    return 0;
}

static int lower_op(cuda_exec *x, int i, err *e) {
    const nn_op *op = &x->x.model->tape->ops[i];
    int          rc;
    switch (op->kind) {
    case NN_OP_EMBED:
    case NN_OP_EMBED_POS:
    case NN_OP_EMBED_SEG: return lower_embed(x, i, op, e);
    case NN_OP_LINEAR:
    case NN_OP_HEAD_LINEAR:
    case NN_OP_EXPERTS: return lower_product(x, i, op, e);
    case NN_OP_ROPE: return lower_rope(x, i, op, e);
    case NN_OP_ATTN:
    case NN_OP_LATENT_ATTN: return lower_attn(x, i, op, e);
    case NN_OP_CONV:
    case NN_OP_DELTA:
    case NN_OP_SSM:
        if ((rc = check_recurrent(x, i, op, e)) < 0) return rc;
        return lower_vecs(x, op, e);
    case NN_OP_NORM:
    case NN_OP_ROUTE:
    case NN_OP_SCAN:
    case NN_OP_SCALE_EACH:
    case NN_OP_ADD_EACH:
    case NN_OP_DECAY: return lower_vecs(x, op, e);
    case NN_OP_ADD_SUPPLIED:
    case NN_OP_JOIN:
    case NN_OP_CLAMP:
    case NN_OP_POS_SCALE:
    case NN_OP_CLIP:
    case NN_OP_SPARSIFY:
    case NN_OP_MATCH_SIZE:
    case NN_OP_ADD_BY:
    case NN_OP_WEIGH:
    case NN_OP_XIELU:
    case NN_OP_KV_STORE:
    case NN_OP_LATENT_STORE:
    case NN_OP_INDEX_STORE:
    case NN_OP_GLU:
    case NN_OP_ACT:
    case NN_OP_ADD:
    case NN_OP_SCALE:
    case NN_OP_GATE:
    case NN_OP_TAKE:
    case NN_OP_COMBINE:
    case NN_OP_OUTPUTS:
    case NN_OP_SOFTCAP: return 0;
    case NN_OP_CHOOSE: return lower_choose(x, i, op, e);
    default: return cuda_refuse(x, i, "this op is not known there", e);
    }
}

static cuda_page_type page_type(nn_kv_type type) {
    return type == NN_KV_F32 ? CUDA_PAGE_F32 : type == NN_KV_F16 ? CUDA_PAGE_F16 : CUDA_PAGE_BF16;
}

/* Whether tensor cores can be used among a step's rows. */
static bool can_be_halves(const cuda_exec *x, int layer, const nn_state *s) {
    const nn_tape *t = x->x.model->tape;
    bool           can = cuda_attn_step_can(s->dim_k, s->dim_v);
    for (int i = 0; i < t->n_ops && can; i++) {
        const nn_op *op = &t->ops[i];
        if (op->kind == NN_OP_ATTN && op->layer == layer)
            can = !op->u.attn.bias && !op->u.attn.alibi && !op->u.attn.apart.which;
    }
    return can;
}

/* Keys and values of the step's own rows: f16 or f32, layer behind layer. */
static void lower_step_layer(cuda_exec *x, int layer, const nn_state *s, cuda_pages *p) {
    size_t         rows = (size_t)x->x.options.limits.max_tokens * (size_t)s->n_kv;
    cuda_page_type type = can_be_halves(x, layer, s) ? CUDA_PAGE_F16 : CUDA_PAGE_F32;
    *p = (cuda_pages){ .step = true,
                       .n_kv = s->n_kv,
                       .dim_k = s->dim_k,
                       .dim_v = s->dim_v,
                       .tokens = x->x.options.limits.max_tokens,
                       .k_type = type,
                       .v_type = type,
                       .offset = x->step_bytes };
    p->k_row = cuda_page_row_bytes(p->k_type, p->dim_k);
    p->v_row = cuda_page_row_bytes(p->v_type, p->dim_v);
    p->v_offset = p->offset + rows * p->k_row;
    x->step_bytes = p->v_offset + rows * p->v_row;
}

/* Keys of an index, behind the layer's keys and values: they decide what is seen at all, and keep 16 bits where pages have
 * fewer. */
static void lower_index(cuda_exec *x, int layer, int dim, nn_kv_type k_type) {
    int         g = x->x.groups.of_layer[layer];
    size_t     *bytes = &x->x.memory.page_bytes[g];
    cuda_pages *p = &x->layers[layer].index;
    *p = (cuda_pages){ .group = g,
                       .n_kv = 1,
                       .dim_k = dim,
                       .tokens = x->x.options.limits.page_tokens,
                       .k_type = cuda_is_packed(k_type) ? CUDA_PAGE_F16 : page_type(k_type),
                       .offset = (*bytes + 15) / 16 * 16 };
    p->k_row = cuda_page_row_bytes(p->k_type, dim);
    *bytes = p->offset + (size_t)p->tokens * p->k_row;
}

/* Where each layer's rows lie in its group's pages and its states in a slot. */
static int lower_layers(cuda_exec *x, err *e) {
    const nn_model  *m = x->x.model;
    const nn_limits *l = &x->x.options.limits;
    nn_memory       *mem = &x->x.memory;
    if (!(x->layers = arena_calloc(&x->mem, (size_t)m->dims->n_layer + 1, sizeof *x->layers))) return err_set_nomem(e);
    for (int i = 0; i < m->dims->n_layer; i++) {
        const nn_state *s = &m->state[i];
        cuda_pages     *p = &x->layers[i].pages;
        int             g = x->x.groups.of_layer[i];
        bool            latent = s->kind == NN_STATE_PAGED_LATENT;
        if (!x->x.has_layer[i]) continue;
        x->layers[i].fixed_at = x->slot_floats;
        x->slot_floats += (int64_t)nn_state_fixed_floats(s);
        if (s->kind == NN_STATE_STEP) lower_step_layer(x, i, s, p);
        if (g < 0) continue;
        nn_kv_type k_type, v_type;
        nn_exec_kv_types(&x->x.options, m, i, &k_type, &v_type);
        if (cuda_is_packed(k_type) || (!latent && cuda_is_packed(v_type))) {
            int rc = cuda_packed_lower(x, i, k_type, v_type, e);
            if (rc < 0) return rc;
            if (s->dim_index) lower_index(x, i, s->dim_index, k_type);
            continue;
        }
        *p = (cuda_pages){ .group = g,
                           .n_kv = latent ? 1 : s->n_kv,
                           .dim_k = latent ? s->dim_k + s->dim_v : s->dim_k,
                           .dim_v = latent ? 0 : s->dim_v,
                           .tokens = l->page_tokens,
                           .k_type = page_type(k_type),
                           .v_type = page_type(v_type),
                           .offset = mem->page_bytes[g] };
        p->k_row = cuda_page_row_bytes(p->k_type, p->dim_k);
        p->v_row = latent ? 0 : cuda_page_row_bytes(p->v_type, p->dim_v);
        p->v_offset = p->offset + (size_t)p->n_kv * (size_t)l->page_tokens * p->k_row;
        mem->page_bytes[g] = p->v_offset + (size_t)p->n_kv * (size_t)l->page_tokens * p->v_row;
        if (s->dim_index) lower_index(x, i, s->dim_index, k_type);
    }
    for (int g = 0; g < x->x.groups.n; g++) mem->pages_bytes += mem->page_bytes[g] * (size_t)l->n_pages;
    mem->slot_bytes = (size_t)x->slot_floats * sizeof(float);
    return 0;
}

static size_t take(size_t *at, size_t bytes) {
    size_t here = *at;
    *at += cuda_align(bytes);
    return here;
}

size_t cuda_block_ints(const nn_limits *l, int n_groups) {
    size_t n_logits = (size_t)(l->max_logits ? l->max_logits : l->max_outputs);
    return 8 + (7 + NN_MAX_AXES) * (size_t)l->max_tokens + 3 * (size_t)l->max_seqs + 1 + (size_t)l->max_outputs +
           n_logits * (sizeof(cuda_guess) / sizeof(int32_t)) +
           (size_t)n_groups * (size_t)l->max_seqs * (size_t)l->max_pages;
}

static void lay_out(cuda_exec *x) {
    const nn_limits *l = &x->x.options.limits;
    cuda_areas      *a = &x->areas;
    size_t           at = 0, staging = cuda_weights_staging(x);
    if (staging > x->scratch_bytes) x->scratch_bytes = staging;
    a->arena = take(&at, x->plan.bytes);
    a->image = take(&at, x->image_bytes);
    a->scale = take(&at, (x->image_rows + 8) * sizeof(float));
    a->scratch = take(&at, x->scratch_bytes);
    a->step = take(&at, x->step_bytes);
    a->parts = take(&at, x->parts_floats * sizeof(float));
    a->scores = take(&at, x->score_floats * sizeof(float));
    a->counts = take(&at, (size_t)l->max_seqs * x->most_kv * sizeof(unsigned));
    a->route = take(&at, sizeof(unsigned));
    a->slots = take(&at, (size_t)l->n_slots * x->x.memory.slot_bytes);
    a->block = take(&at, cuda_block_ints(l, x->x.groups.n) * sizeof(int32_t));
    nn_buf logits = x->x.model->tape->logits;
    int    n_logits = l->max_logits ? l->max_logits : l->max_outputs;
    cuda_sampler_plan(&x->sampler, logits ? n_logits : 0, logits ? x->x.model->tape->bufs[logits].width : 0);
    a->picks = take(&at, cuda_sampler_bytes(&x->sampler));
    for (int i = 0; i < x->n_ropes; i++)
        a->ropes[i] = take(&at, (size_t)l->max_tokens * (size_t)x->ropes[i].n_rot * sizeof(float));
    a->order = take(&at, x->group_rows * sizeof(int32_t));
    a->items = take(&at, (1 + 3 * x->group_items) * sizeof(int32_t));
    for (int i = 0; i < x->n_embeds; i++) {
        const nn_op      *op = &x->x.model->tape->ops[x->embeds[i].op];
        const tensor_mat *m = op->u.embed.table->at;
        x->embeds[i].at = take(&at, (size_t)l->max_tokens * (size_t)op->u.embed.table->cols * sizeof(float));
        if (cuda_can_embed(m->type) && !m->scales && !x->embeds[i].there)
            x->embeds[i].raw_at = take(&at, (size_t)l->max_tokens * m->row_bytes);
    }
    int64_t deep = cuda_deep_width(x);
    a->deep = take(&at, (size_t)l->max_tokens * (size_t)deep * sizeof(float));
    a->turned = take(&at, cuda_packed_turned(x));
    a->open = take(&at, x->open_bytes);
    a->end = at;
    x->x.memory.heap_bytes = at;
    x->x.memory.weights_bytes = x->weights_bytes;
}

/* Products of the same rows with matrices that lie one behind the other in tiles of 16 rows; those of F16 can become one
 * image. */
static bool go_together(const cuda_exec *x, const nn_op *a, const nn_op *b) {
    if (a->kind != NN_OP_LINEAR || b->kind != NN_OP_LINEAR || a->in[0] != b->in[0] || a->acc || b->acc) return false;
    const cuda_mat *m = cuda_mat_of(x, a->u.linear.w), *n = cuda_mat_of(x, b->u.linear.w);
    const nn_tape  *t = x->x.model->tape;
    return m->type == n->type && m->type != TENSOR_F32 && !m->pitch && !n->pitch &&
           cuda_weights_scaled(m) == cuda_weights_scaled(n) && m != n && m->at + m->each == n->at &&
           m->each == cuda_packed_bytes(m->type, m->from->rows, m->from->cols) && m->from->rows % CUDA_MAT_ROWS == 0 &&
           t->bufs[a->out].rows == t->bufs[b->out].rows;
}

static int join_products(cuda_exec *x, err *e) {
    const nn_tape *t = x->x.model->tape;
    if (!(x->together = arena_calloc(&x->mem, (size_t)t->n_ops + 1, 1))) return err_set_nomem(e);
    for (int i = x->x.options.first_op; i < x->x.options.end_op; i++) {
        int n = 1;
        if (x->together[i] || !nn_exec_runs(&x->x.options, i)) continue; /* of an image that begins in front */
        while (n <= CUDA_MORE && nn_exec_runs(&x->x.options, i + n) &&
               go_together(x, &t->ops[i + n - 1], &t->ops[i + n]))
            n++;
        x->together[i] = (uint8_t)n;
        if (n < 2) continue;
        /* Unpacked as one matrix. */
        const cuda_mat *m = cuda_mat_of(x, t->ops[i].u.linear.w);
        int64_t         rows = 0;
        for (int k = 0; k < n; k++) rows += t->ops[i + k].u.linear.w->rows;
        if (m->type == TENSOR_F16) {
            cuda_weights_join(x, &t->ops[i], n);
            for (int k = 1; k < n; k++) x->together[i + k] = (uint8_t)(n - k);
        }
        if (nn_rows_max(&x->x.options.limits, &t->bufs[t->ops[i].out]) > CUDA_FEW)
            most(&x->scratch_bytes, cuda_scratch_bytes(m->type, rows, m->from->cols));
    }
    return 0;
}

/* Behind all matrices, so that those of Q, K and V lie one behind the other. */
static int lower_biases(cuda_exec *x, err *e) {
    const nn_tape *t = x->x.model->tape;
    int            rc = 0;
    for (int i = x->x.options.first_op; i < x->x.options.end_op && rc == 0; i++) {
        if (cuda_product_of(&t->ops[i]) && nn_exec_runs(&x->x.options, i)) rc = need_vec(x, t->ops[i].u.linear.b, e);
    }
    return rc;
}

int cuda_lower(cuda_exec *x, err *e) {
    const nn_limits *l = &x->x.options.limits;
    int              rc = lower_layers(x, e);
    x->max_chunks = (l->page_tokens * l->max_pages + CUDA_ATTN_CHUNK - 1) / CUDA_ATTN_CHUNK;
    for (int i = x->x.options.first_op; i < x->x.options.end_op && rc == 0; i++) {
        if (nn_exec_runs(&x->x.options, i)) rc = lower_op(x, i, e);
    }
    if (rc == 0) rc = lower_biases(x, e);
    if (rc == 0) rc = join_products(x, e);
    if (rc == 0) lay_out(x);
    return rc;
}
