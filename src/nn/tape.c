/* SPDX-License-Identifier: Apache-2.0 */
/* The recorder: each nn_* op of nn.h checks its shapes and appends to the tape. */
#include "nn/tape.h"

#include "tensor/mat.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_OPS = 1 << 20 };

int nn_tape_open(nn_tape **out, arena *mem, const nn_state *state, int n_layer, err *e) {
    nn_tape *t = arena_calloc(mem, 1, sizeof *t);
    *out = t;
    if (!t) return err_set_nomem(e);
    t->mem = mem;
    t->state = state;
    t->n_layer = n_layer;
    t->n_bufs = 1;
    t->n_parts = 1;
    return 0;
}

static void fail(nn_tape *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void fail(nn_tape *t, const char *fmt, ...) {
    err     why;
    va_list ap;
    if (t->failed) return;
    t->failed = true;
    va_start(ap, fmt);
    err_setv(&why, ERR_FORMAT, fmt, ap);
    va_end(ap);
    err_set(&t->error, why.code, "op %d: %s", t->n_ops, why.msg);
}

/* Doubles an arena array; the old one is left behind. */
static bool grow(nn_tape *t, void **array, int *cap, int need, size_t elem) {
    if (need <= *cap) return true;
    int   n = *cap ? *cap * 2 : 256;
    void *p = need < MAX_OPS ? arena_calloc(t->mem, (size_t)n, elem) : NULL;
    if (!p) {
        if (!t->failed) err_set_nomem(&t->error);
        t->failed = true;
        return false;
    }
    if (*cap) memcpy(p, *array, (size_t)*cap * elem);
    *array = p;
    *cap = n;
    return true;
}

static nn_buf new_buf(nn_tape *t, nn_row_kind rows, int mult, int64_t width) {
    void *p = t->bufs;
    if (t->failed || !grow(t, &p, &t->cap_bufs, t->n_bufs + 1, sizeof *t->bufs)) return 0;
    t->bufs = p;
    if (width <= 0) fail(t, "a buffer of width %lld", (long long)width);
    t->bufs[t->n_bufs] = (nn_buf_info){ rows, mult, width };
    return t->n_bufs++;
}

static nn_buf like(nn_tape *t, nn_buf x, int64_t width) {
    if (t->failed) return 0;
    return new_buf(t, t->bufs[x].rows, t->bufs[x].mult, width);
}

static int64_t width(const nn_tape *t, nn_buf x) { return t->failed ? 1 : t->bufs[x].width; }

/* Checks buffers and appends a zeroed op; NULL after a failure. */
static nn_op *push(nn_tape *t, nn_op_kind kind, int layer, nn_buf out, const nn_buf *in, int n_in) {
    void *p = t->ops;
    if (t->failed) return NULL;
    if (out < 0 || out >= t->n_bufs) fail(t, "%s writes buffer %d, which does not exist", nn_op_name(kind), out);
    for (int i = 0; i < n_in; i++) {
        if (in[i] <= 0 || in[i] >= t->n_bufs)
            fail(t, "%s reads buffer %d, which does not exist", nn_op_name(kind), in[i]);
    }
    if (layer >= t->n_layer) fail(t, "%s touches layer %d of %d", nn_op_name(kind), layer, t->n_layer);
    if (t->failed || !grow(t, &p, &t->cap_ops, t->n_ops + 1, sizeof *t->ops)) return NULL;
    t->ops = p;
    nn_op *op = &t->ops[t->n_ops++];
    memset(op, 0, sizeof *op);
    op->kind = kind;
    op->layer = layer;
    op->out = out;
    for (int i = 0; i < n_in; i++) op->in[i] = in[i];
    return op;
}

#define PUSH(t, kind, layer, out, ...)                                                                                 \
    push(t, kind, layer, out, (const nn_buf[]){ __VA_ARGS__ },                                                         \
         (int)(sizeof((const nn_buf[]){ __VA_ARGS__ }) / sizeof(nn_buf)))

static bool same_rows(nn_tape *t, nn_buf a, nn_buf b, const char *op) {
    if (t->failed) return false;
    if (t->bufs[a].rows != t->bufs[b].rows || t->bufs[a].mult != t->bufs[b].mult)
        fail(t, "%s mixes buffers with other row counts", op);
    return !t->failed;
}

static void want(nn_tape *t, const char *op, const char *what, int64_t is, int64_t should) {
    if (is != should) fail(t, "%s: %s is %lld, expected %lld", op, what, (long long)is, (long long)should);
}

/* --- embedding, norms, linear ----------------------------------------------------------------------------------- */

nn_buf nn_embed(nn_tape *t, const nn_mat *table, float scale) {
    nn_buf out = new_buf(t, NN_ROWS_TOKENS, 1, table ? table->cols : 1);
    nn_op *op = push(t, NN_OP_EMBED, -1, out, NULL, 0);
    if (op) {
        op->u.embed.table = table;
        op->u.embed.scale = scale == 0 ? 1.0f : scale;
    }
    return out;
}

nn_buf nn_embed_tokens(nn_tape *t, const nn_mat *table, float scale) {
    nn_buf out = nn_embed(t, table, scale);
    if (!t->failed) t->ops[t->n_ops - 1].u.embed.by_token = true;
    return out;
}

void nn_add_supplied(nn_tape *t, nn_buf acc, int part) {
    nn_op *op = push(t, NN_OP_ADD_SUPPLIED, -1, acc, NULL, 0);
    if (!op) return;
    if (part < 1 || part > NN_MAX_PARTS || t->ops[0].kind != NN_OP_EMBED)
        fail(t, "add_supplied: there is no part %d", part);
    want(t, "add_supplied", "the width", width(t, acc), width(t, t->ops[0].out));
    same_rows(t, acc, t->ops[0].out, "add_supplied");
    op->acc = true;
    op->u.part = part;
    if (part >= t->n_parts) t->n_parts = part + 1;
}

nn_buf nn_input(nn_tape *t, int64_t columns) {
    tensor_mat *at = arena_calloc(t->mem, 1, sizeof *at);
    nn_mat     *m = arena_calloc(t->mem, 1, sizeof *m);
    float      *none = columns > 0 && columns < MAX_OPS ? arena_calloc(t->mem, (size_t)columns, sizeof *none) : NULL;
    if (!at || !m || !none) {
        fail(t, "an input of width %lld", (long long)columns);
        return 0;
    }
    *at = (tensor_mat){
        .type = TENSOR_F32, .rows = 1, .cols = columns, .data = none, .row_bytes = (size_t)columns * sizeof *none
    };
    *m = (nn_mat){ .name = "input", .rows = 1, .cols = columns, .at = at };
    return nn_embed(t, m, 1.0f);
}

/* Adds rows of a table to rows that are there. */
static nn_op *embed_more(nn_tape *t, nn_op_kind kind, nn_buf acc, const nn_mat *table, const char *name) {
    nn_op *op = push(t, kind, -1, acc, NULL, 0);
    if (!op) return NULL;
    want(t, name, "the table's width", table->cols, width(t, acc));
    op->acc = true;
    op->u.embed.table = table;
    op->u.embed.scale = 1.0f;
    return op;
}

void nn_embed_positions(nn_tape *t, nn_buf acc, const nn_mat *table, int offset) {
    nn_op *op = embed_more(t, NN_OP_EMBED_POS, acc, table, "embed_pos");
    if (op) op->u.embed.offset = offset;
}

void nn_embed_segments(nn_tape *t, nn_buf acc, const nn_mat *table) {
    embed_more(t, NN_OP_EMBED_SEG, acc, table, "embed_seg");
}

static nn_buf norm(nn_tape *t, nn_buf x, nn_norm_kind kind, int64_t group, const nn_vec *w, const nn_vec *b,
                   float eps) {
    nn_buf out = like(t, x, width(t, x));
    nn_op *op = PUSH(t, NN_OP_NORM, -1, out, x);
    if (!op) return out;
    if (group <= 0 || width(t, x) % group)
        fail(t, "norm: groups of %lld in a row of %lld", (long long)group, (long long)width(t, x));
    if (w && w->n != group && w->n != width(t, x))
        fail(t, "norm: %s has %lld weights for groups of %lld", w->name, (long long)w->n, (long long)group);
    if (w && b && b->n != w->n) fail(t, "norm: %s and %s differ in length", w->name, b->name);
    op->u.norm.kind = kind;
    op->u.norm.group = (int)group;
    op->u.norm.w = w;
    op->u.norm.b = b;
    op->u.norm.eps = eps;
    return out;
}

nn_buf nn_rms_norm(nn_tape *t, nn_buf x, const nn_vec *w, float eps) {
    return norm(t, x, NN_NORM_RMS, w ? w->n : width(t, x), w, NULL, eps);
}

nn_buf nn_layer_norm(nn_tape *t, nn_buf x, const nn_vec *w, const nn_vec *b, float eps) {
    return norm(t, x, NN_NORM_LAYER, w ? w->n : width(t, x), w, b, eps);
}

nn_buf nn_norm_rows(nn_tape *t, nn_buf x, const nn_norm *n, float eps) { return nn_layer_norm(t, x, n->w, n->b, eps); }

nn_buf nn_rms_norm_groups(nn_tape *t, nn_buf x, int group, const nn_vec *w, float eps) {
    return norm(t, x, NN_NORM_RMS, group, w, NULL, eps);
}

nn_buf nn_layer_norm_groups(nn_tape *t, nn_buf x, int group, const nn_vec *w, const nn_vec *b, float eps) {
    return norm(t, x, NN_NORM_LAYER, group, w, b, eps);
}

nn_buf nn_l2_norm(nn_tape *t, nn_buf x, int group, float eps) { return norm(t, x, NN_NORM_L2, group, NULL, NULL, eps); }

static nn_op *linear(nn_tape *t, nn_op_kind kind, nn_buf out, nn_buf x, nn_linear w) {
    nn_op *op = PUSH(t, kind, -1, out, x);
    if (!op) return NULL;
    if (!w.w) {
        fail(t, "%s: no matrix was bound", nn_op_name(kind));
        return NULL;
    }
    op->u.linear = w;
    return op;
}

nn_buf nn_project(nn_tape *t, nn_buf x, nn_linear w) {
    nn_buf out = like(t, x, w.w ? w.w->rows : 1);
    if (linear(t, NN_OP_LINEAR, out, x, w)) want(t, w.w->name, "its input", w.w->cols, width(t, x));
    return out;
}

void nn_project_add(nn_tape *t, nn_buf acc, nn_buf x, nn_linear w) {
    nn_op *op = linear(t, NN_OP_LINEAR, acc, x, w);
    if (!op) return;
    op->acc = true;
    same_rows(t, acc, x, w.w->name);
    want(t, w.w->name, "its input", w.w->cols, width(t, x));
    want(t, w.w->name, "its output", w.w->rows, width(t, acc));
}

nn_buf nn_project_heads(nn_tape *t, nn_buf x, const nn_mat *w) {
    nn_buf out = like(t, x, w ? w->rows * w->n_stack : 1);
    if (linear(t, NN_OP_HEAD_LINEAR, out, x, (nn_linear){ w, NULL }))
        want(t, w->name, "its input", w->cols * w->n_stack, width(t, x));
    return out;
}

/* --- positions and attention ------------------------------------------------------------------------------------ */

void nn_rope_apply_at(nn_tape *t, nn_buf x, int head_dim, int offset, const nn_rope *r) {
    if (r->n_rot == 0) return;
    nn_op *op = push(t, NN_OP_ROPE, -1, x, NULL, 0);
    if (!op) return;
    if (head_dim <= 0 || width(t, x) % head_dim || offset + r->n_rot > head_dim)
        fail(t, "rope: %d elements from %d in heads of %d", r->n_rot, offset, head_dim);
    op->acc = true;
    op->u.rope.rope = *r;
    op->u.rope.head_dim = head_dim;
    op->u.rope.offset = offset;
    for (int i = 0; r->axis_of && i < r->n_rot / 2; i++) {
        if (r->axis_of[i] >= t->n_axes) t->n_axes = r->axis_of[i] + 1;
    }
}

void nn_rope_apply(nn_tape *t, nn_buf x, int head_dim, const nn_rope *r) { nn_rope_apply_at(t, x, head_dim, 0, r); }

static void scale_by_position(nn_tape *t, nn_buf x, float beta, int period, int offset) {
    nn_op *op = push(t, NN_OP_POS_SCALE, -1, x, NULL, 0);
    if (!op) return;
    if (period <= 0) fail(t, "scale_by_position: period %d", period);
    op->acc = true;
    op->u.pos_scale.beta = beta;
    op->u.pos_scale.period = period;
    op->u.pos_scale.offset = offset;
}

void nn_scale_by_position(nn_tape *t, nn_buf x, float beta, int period) { scale_by_position(t, x, beta, period, 0); }

void nn_scale_by_next_position(nn_tape *t, nn_buf x, float beta, int period) {
    scale_by_position(t, x, beta, period, 1);
}

static bool has_kv(const nn_state *s) {
    return s->kind == NN_STATE_PAGED_KV || s->kind == NN_STATE_WINDOW || s->kind == NN_STATE_STEP;
}

void nn_kv_store(nn_tape *t, int layer, nn_buf k, nn_buf v) {
    nn_op *op = PUSH(t, NN_OP_KV_STORE, layer, 0, k, v);
    if (!op) return;
    const nn_state *s = &t->state[layer];
    if (!has_kv(s)) fail(t, "kv_store: layer %d declares no keys and values", layer);
    want(t, "kv_store", "the key's width", width(t, k), (int64_t)s->n_kv * s->dim_k);
    want(t, "kv_store", "the value's width", width(t, v), (int64_t)s->n_kv * s->dim_v);
}

static void check_bias(nn_tape *t, const nn_attn_spec *a) {
    if (a->bias && (a->bias->n % a->n_head || a->bias->n / a->n_head % 2 == 0))
        fail(t, "attention: %lld biases for %d heads", (long long)a->bias->n, a->n_head);
}

static void check_apart(nn_tape *t, const nn_state *s, const nn_attn_spec *a, nn_buf q) {
    const nn_apart *p = &a->apart;
    if (s->kind != NN_STATE_STEP || a->softcap != 0 || p->n < 1 || p->n > 1 << 16 || p->which->n % 2 == 0) {
        fail(t, "attention: %d terms for %lld distances do not go with this layer", p->n, (long long)p->which->n);
        return;
    }
    for (int64_t i = 0; i < p->which->n; i++) {
        float w = p->which->data[i];
        if (!(w >= 0 && w < (float)p->n) || w != floorf(w)) fail(t, "attention: term %g of %d", (double)w, p->n);
    }
    if (!same_rows(t, q, p->q, "attention") || !same_rows(t, q, p->k, "attention")) return;
    want(t, "attention", "the width of a query's terms", width(t, p->q), (int64_t)a->n_head * p->n);
    want(t, "attention", "the width of a key's terms", width(t, p->k), (int64_t)a->n_head * p->n);
}

/* Positions that were chosen are gathered: nothing may depend on where they stood. */
static void check_choice(nn_tape *t, int layer, const nn_attn_spec *a) {
    const nn_choice *c = &a->choice;
    nn_state_kind    kind = t->state[layer].kind;
    if (!c->ids) return;
    if ((kind != NN_STATE_PAGED_KV && kind != NN_STATE_PAGED_LATENT) || a->window || a->chunk || a->bias || a->alibi ||
        a->sinks || a->softcap != 0 || c->n_group < 1 || a->n_kv % c->n_group)
        fail(t, "attention: layer %d cannot see what %d groups of heads chose", layer, c->n_group);
    want(t, "attention", "the choice's width", width(t, c->ids), (int64_t)c->n_group * (1 + c->top));
}

nn_buf nn_attention(nn_tape *t, int layer, nn_buf q, nn_attn_spec a) {
    if (a.dim_v == 0) a.dim_v = a.dim_k;
    nn_buf out = like(t, q, (int64_t)a.n_head * a.dim_v), in[NN_MAX_IN] = { q };
    int    n_in = 1;
    if (a.apart.which) {
        in[n_in++] = a.apart.q;
        in[n_in++] = a.apart.k;
    }
    if (a.choice.ids) in[n_in++] = a.choice.ids;
    nn_op *op = push(t, NN_OP_ATTN, layer, out, in, n_in);
    if (!op) return out;
    const nn_state *s = &t->state[layer];
    if (a.apart.which) check_apart(t, s, &a, q);
    if (!has_kv(s) || s->n_kv != a.n_kv || s->dim_k != a.dim_k || s->dim_v != a.dim_v)
        fail(t, "attention: layer %d declares another state", layer);
    if (s->kind == NN_STATE_WINDOW && (a.window <= 0 || a.window > s->window))
        fail(t, "attention: layer %d keeps %d positions, the op reads %d", layer, s->window, a.window);
    if (a.n_kv <= 0 || a.n_head % a.n_kv) fail(t, "attention: %d heads share %d", a.n_head, a.n_kv);
    want(t, "attention", "the query's width", width(t, q), (int64_t)a.n_head * a.dim_k);
    if (s->kind == NN_STATE_STEP ? a.window != 0 : a.reach != 0)
        fail(t, "attention: layer %d has a window that its state does not know", layer);
    if (a.spans && s->kind != NN_STATE_STEP) fail(t, "attention: layer %d keeps more than a step's spans", layer);
    if (a.strict) t->strict = true;
    if (a.window && !a.chunk) t->windows = true;
    check_bias(t, &a);
    check_choice(t, layer, &a);
    if (a.chunk < 0 || (a.chunk && a.window != a.chunk))
        fail(t, "attention: chunks of %d in a window of %d", a.chunk, a.window);
    if (a.until < 0 || (a.until && (s->kind != NN_STATE_PAGED_KV || a.choice.ids)))
        fail(t, "attention: layer %d cannot end at position %d", layer, a.until);
    if (a.sinks) want(t, a.sinks->name, "the number of sinks", a.sinks->n, a.n_head);
    op->u.attn = a;
    return out;
}

void nn_latent_store(nn_tape *t, int layer, nn_buf latent, nn_buf k_rope) {
    nn_op *op = PUSH(t, NN_OP_LATENT_STORE, layer, 0, latent, k_rope);
    if (!op) return;
    const nn_state *s = &t->state[layer];
    if (s->kind != NN_STATE_PAGED_LATENT) fail(t, "latent_store: layer %d declares no latent", layer);
    want(t, "latent_store", "the latent's width", width(t, latent), s->dim_k);
    want(t, "latent_store", "the rotated key's width", width(t, k_rope), s->dim_v);
}

nn_buf nn_latent_attention(nn_tape *t, int layer, nn_buf q, nn_buf q_rope, int n_head, float scale, nn_choice c) {
    nn_buf       out = like(t, q, width(t, q));
    const nn_buf in[] = { q, q_rope, c.ids };
    nn_op       *op = push(t, NN_OP_LATENT_ATTN, layer, out, in, c.ids ? 3 : 2);
    if (!op) return out;
    const nn_state *s = &t->state[layer];
    if (s->kind != NN_STATE_PAGED_LATENT) fail(t, "latent_attention: layer %d declares no latent", layer);
    want(t, "latent_attention", "the query's width", width(t, q), (int64_t)n_head * s->dim_k);
    want(t, "latent_attention", "the rotated query's width", width(t, q_rope), (int64_t)n_head * s->dim_v);
    op->u.attn = (nn_attn_spec){
        .n_head = n_head, .n_kv = 1, .dim_k = s->dim_k, .dim_v = s->dim_v, .scale = scale, .choice = c
    };
    check_choice(t, layer, &op->u.attn);
    return out;
}

void nn_index_store(nn_tape *t, int layer, nn_buf k) {
    nn_op *op = PUSH(t, NN_OP_INDEX_STORE, layer, 0, k);
    if (!op) return;
    if (t->state[layer].dim_index <= 0) fail(t, "index_store: layer %d declares no index", layer);
    want(t, "index_store", "the key's width", width(t, k), t->state[layer].dim_index);
}

nn_choice nn_choose(nn_tape *t, int layer, nn_buf q, nn_buf weights, nn_choose_spec s) {
    nn_choice    c = { .n_group = s.n_group, .top = s.top, .block = s.block };
    const nn_buf in[] = { q, weights };
    if (s.n_head < 1 || s.n_group != (weights ? 1 : s.n_head) || s.top < 1 || s.block < 1 || s.local < 0 ||
        s.local > s.top || (int64_t)s.top * s.block > NN_MAX_CHOSEN ||
        (int64_t)s.n_group * s.top > NN_MAX_CHOICES) { /* every row has a number for each */
        fail(t, "choose: %d heads choose %d times %d blocks of %d, %d of them local", s.n_head, s.n_group, s.top,
             s.block, s.local);
        return c;
    }
    c.ids = like(t, q, (int64_t)s.n_group * (1 + s.top));
    nn_op *op = push(t, NN_OP_CHOOSE, layer, c.ids, in, weights ? 2 : 1);
    if (!op) return c;
    want(t, "choose", "the query's width", width(t, q), (int64_t)s.n_head * t->state[layer].dim_index);
    if (weights) want(t, "choose", "the weights' width", width(t, weights), s.n_head);
    op->u.choose = s;
    return c;
}

/* --- feed-forward ----------------------------------------------------------------------------------------------- */

static void glu_mul(nn_tape *t, nn_buf gate, nn_buf up, nn_glu_spec spec) {
    if (spec.limit > 0 && spec.alpha == 0) {
        nn_act(t, gate, spec.act);
        nn_clamp(t, gate, -INFINITY, spec.limit);
        nn_clamp(t, up, -spec.limit, spec.limit);
        spec = (nn_glu_spec){ .act = NN_ACT_NONE };
    }
    nn_op *op = PUSH(t, NN_OP_GLU, -1, gate, up);
    if (!op) return;
    want(t, "glu", "the gate's width", width(t, gate), width(t, up));
    op->acc = true;
    op->u.glu = spec;
}

nn_buf nn_glu(nn_tape *t, nn_buf x, nn_linear gate, nn_linear up, nn_act_kind act) {
    nn_buf g = nn_project(t, x, gate), u = nn_project(t, x, up);
    glu_mul(t, g, u, (nn_glu_spec){ .act = act });
    return g;
}

nn_buf nn_glu_clamped(nn_tape *t, nn_buf x, nn_linear gate, nn_linear up, nn_glu_spec spec) {
    nn_buf g = nn_project(t, x, gate), u = nn_project(t, x, up);
    glu_mul(t, g, u, spec);
    return g;
}

/* One matrix per chosen expert: n_used rows per token. x has one row per token, or n_used. */
static nn_buf experts(nn_tape *t, nn_buf x, nn_buf chosen, nn_linear w, int n_used) {
    nn_buf out = new_buf(t, NN_ROWS_TOKENS, n_used, w.w ? w.w->rows : 1);
    nn_op *op = PUSH(t, NN_OP_EXPERTS, -1, out, x, chosen);
    if (!op) return out;
    if (!w.w) {
        fail(t, "experts: no matrices were bound");
        return out;
    }
    want(t, w.w->name, "its input", w.w->cols, width(t, x));
    op->u.linear = w;
    return out;
}

static nn_buf route(nn_tape *t, nn_buf logits, const nn_moe_spec *m) {
    nn_buf out = like(t, logits, (int64_t)m->n_used * 2);
    nn_op *op = PUSH(t, NN_OP_ROUTE, -1, out, logits);
    if (!op) return out;
    want(t, "route", "the number of router outputs", width(t, logits), m->n_expert);
    if (m->n_expert > NN_MAX_EXPERTS)
        fail(t, "route: %d experts; at most %d are supported", m->n_expert, NN_MAX_EXPERTS);
    if (m->n_used <= 0 || m->n_used > m->n_expert) fail(t, "route: %d of %d experts", m->n_used, m->n_expert);
    if (m->n_group > 1 && (m->n_expert % m->n_group || m->top_group <= 0 || m->top_group > m->n_group ||
                           m->n_expert / m->n_group * m->top_group < m->n_used))
        fail(t, "route: %d experts in %d groups, %d of them used", m->n_expert, m->n_group, m->top_group);
    if (m->score == NN_SCORE_SPARSEMIXER && (m->n_used != 2 || m->bias || m->n_group > 1))
        fail(t, "route: the sparse mixer picks two experts by their logits, not %d", m->n_used);
    if (m->bias) want(t, m->bias->name, "its length", m->bias->n, m->n_expert);
    if (m->expert_scale) want(t, m->expert_scale->name, "its length", m->expert_scale->n, m->n_expert);
    op->u.route.n_expert = m->n_expert;
    op->u.route.n_used = m->n_used;
    op->u.route.n_group = m->n_group;
    op->u.route.top_group = m->top_group;
    op->u.route.group_best = m->group_best;
    op->u.route.jitter = m->jitter;
    op->u.route.score = m->score;
    op->u.route.renorm = m->renorm;
    op->u.route.renorm_eps = m->renorm_eps;
    op->u.route.scale = m->scale == 0 ? 1.0f : m->scale;
    op->u.route.bias = m->bias;
    op->u.route.expert_scale = m->expert_scale;
    return out;
}

static void by_number(nn_tape *t, nn_op_kind kind, nn_buf x, float number) {
    nn_op *op = push(t, kind, -1, x, NULL, 0);
    if (!op) return;
    op->acc = true;
    op->u.scale = number;
}

static void softcap(nn_tape *t, nn_buf x, float cap) { by_number(t, NN_OP_SOFTCAP, x, cap); }

/* The rows of an expert's first products times its weight. */
static void weigh(nn_tape *t, nn_buf rows, nn_buf chosen, const nn_moe_spec *m) {
    nn_op *op = m->weigh_input ? PUSH(t, NN_OP_WEIGH, -1, rows, chosen) : NULL;
    if (!op) return;
    if (m->gate.b || m->up.b) fail(t, "experts with biases cannot weigh their inputs");
    op->acc = true;
    op->u.combine.n_used = m->n_used;
}

nn_buf nn_moe(nn_tape *t, nn_buf x, nn_moe_spec m) {
    nn_buf logits = nn_project(t, m.router_in ? m.router_in : x, m.router);
    if (m.router_cap != 0) softcap(t, logits, m.router_cap);
    nn_buf chosen = route(t, logits, &m);
    nn_buf g = experts(t, x, chosen, m.gate, m.n_used);
    weigh(t, g, chosen, &m);
    if (m.up.w) {
        nn_buf u = experts(t, x, chosen, m.up, m.n_used);
        weigh(t, u, chosen, &m);
        glu_mul(t, g, u, m.glu);
    } else {
        nn_act(t, g, m.glu.act);
    }
    nn_buf y = experts(t, g, chosen, m.down, m.n_used);
    nn_buf out = like(t, x, width(t, y));
    nn_op *op = PUSH(t, NN_OP_COMBINE, -1, out, y, chosen);
    if (op) {
        op->u.combine.n_used = m.n_used;
        op->u.combine.even = m.weigh_input;
    }
    return out;
}

/* --- small ops -------------------------------------------------------------------------------------------------- */

void nn_act(nn_tape *t, nn_buf x, nn_act_kind act) {
    nn_op *op = push(t, NN_OP_ACT, -1, x, NULL, 0);
    if (!op) return;
    op->acc = true;
    op->u.act = act;
}

void nn_add(nn_tape *t, nn_buf acc, nn_buf x) { nn_add_scaled(t, acc, x, 1.0f); }

void nn_add_scaled(nn_tape *t, nn_buf acc, nn_buf x, float scale) {
    nn_op *op = PUSH(t, NN_OP_ADD, -1, acc, x);
    if (!op) return;
    same_rows(t, acc, x, "add");
    want(t, "add", "the width", width(t, x), width(t, acc));
    op->acc = true;
    op->u.scale = scale;
}

void nn_scale(nn_tape *t, nn_buf x, float scale) { by_number(t, NN_OP_SCALE, x, scale); }

void nn_clip(nn_tape *t, nn_buf x, float limit) {
    if (!(limit > 0)) fail(t, "clip: a limit of %g", (double)limit);
    by_number(t, NN_OP_CLIP, x, limit);
}

void nn_clamp(nn_tape *t, nn_buf x, float lo, float hi) {
    nn_op *op = push(t, NN_OP_CLAMP, -1, x, NULL, 0);
    if (!op) return;
    if (!(lo < hi)) fail(t, "clamp: from %g to %g", (double)lo, (double)hi);
    op->acc = true;
    op->u.clamp.lo = lo;
    op->u.clamp.hi = hi;
}

void nn_sparsify(nn_tape *t, nn_buf x, float deviations) { by_number(t, NN_OP_SPARSIFY, x, deviations); }

void nn_scale_each(nn_tape *t, nn_buf x, const nn_vec *w) {
    nn_op *op = push(t, NN_OP_SCALE_EACH, -1, x, NULL, 0);
    if (!op) return;
    want(t, w->name, "its length", w->n, width(t, x));
    op->acc = true;
    op->u.each = w;
}

void nn_add_each(nn_tape *t, nn_buf x, const nn_vec *w, float scale) {
    nn_op *op = push(t, NN_OP_ADD_EACH, -1, x, NULL, 0);
    if (!op) return;
    want(t, w->name, "its length", w->n, width(t, x));
    op->acc = true;
    op->u.add_each.w = w;
    op->u.add_each.scale = scale;
}

void nn_add_by(nn_tape *t, nn_buf acc, nn_buf x, nn_buf g, int column) {
    nn_op *op = PUSH(t, NN_OP_ADD_BY, -1, acc, x, g);
    if (!op) return;
    same_rows(t, acc, x, "add_by");
    same_rows(t, acc, g, "add_by");
    want(t, "add_by", "the width", width(t, x), width(t, acc));
    if (column < 0 || column >= width(t, g)) fail(t, "add_by: column %d of %lld", column, (long long)width(t, g));
    op->acc = true;
    op->u.column = column;
}

/* An op that changes x by what y has in the same rows. */
static nn_op *change_by(nn_tape *t, nn_op_kind kind, nn_buf x, nn_buf y, const char *name) {
    nn_op *op = PUSH(t, kind, -1, x, y);
    if (!op) return NULL;
    same_rows(t, x, y, name);
    op->acc = true;
    return op;
}

void nn_match_size(nn_tape *t, nn_buf x, nn_buf like_what, float eps) {
    nn_op *op = change_by(t, NN_OP_MATCH_SIZE, x, like_what, "match_size");
    if (!op) return;
    want(t, "match_size", "the width", width(t, like_what), width(t, x));
    op->u.scale = eps;
}

void nn_gate(nn_tape *t, nn_buf x, nn_buf g, nn_act_kind act) {
    nn_op *op = change_by(t, NN_OP_GATE, x, g, "gate");
    if (!op) return;
    if (width(t, x) % width(t, g))
        fail(t, "gate: %lld gates for %lld elements", (long long)width(t, g), (long long)width(t, x));
    op->u.act = act;
}

void nn_xielu_apply(nn_tape *t, nn_buf x, nn_xielu a) {
    nn_op *op = push(t, NN_OP_XIELU, -1, x, NULL, 0);
    if (!op) return;
    op->acc = true;
    op->u.xielu = a;
}

nn_buf nn_take_each(nn_tape *t, nn_buf x, int group, int offset, int w) {
    if (group <= 0 || width(t, x) % group || offset < 0 || w <= 0 || offset + w > group) {
        fail(t, "take: %d from %d in groups of %d, row of %lld", w, offset, group, (long long)width(t, x));
        return 0;
    }
    nn_buf out = like(t, x, width(t, x) / group * w);
    nn_op *op = PUSH(t, NN_OP_TAKE, -1, out, x);
    if (!op) return out;
    op->u.take.group = group;
    op->u.take.offset = offset;
    op->u.take.width = w;
    return out;
}

nn_buf nn_take(nn_tape *t, nn_buf x, int offset, int w) { return nn_take_each(t, x, (int)width(t, x), offset, w); }

nn_buf nn_join(nn_tape *t, const nn_buf *parts, int n) {
    int64_t all = 0;
    if (n < 1 || n > NN_MAX_IN) {
        fail(t, "join: %d parts", n);
        return 0;
    }
    for (int i = 0; i < n; i++) all += width(t, parts[i]);
    nn_buf out = like(t, parts[0], all);
    if (!push(t, NN_OP_JOIN, -1, out, parts, n)) return out;
    for (int i = 1; i < n; i++) same_rows(t, parts[0], parts[i], "join");
    return out;
}

/* --- recurrent layers ------------------------------------------------------------------------------------------- */

nn_buf nn_conv(nn_tape *t, int layer, nn_buf x, const nn_vec *w, const nn_vec *bias, int kernel, int channel0,
               nn_act_kind act) {
    nn_buf out = like(t, x, width(t, x));
    nn_op *op = PUSH(t, NN_OP_CONV, layer, out, x);
    if (!op) return out;
    const nn_state *s = &t->state[layer];
    if (s->conv_kernel != kernel || channel0 < 0 || channel0 + width(t, x) > s->conv_channels)
        fail(t, "conv: layer %d declares %d channels and a kernel of %d", layer, s->conv_channels, s->conv_kernel);
    want(t, w->name, "its length", w->n, width(t, x) * kernel);
    if (bias) want(t, bias->name, "its length", bias->n, width(t, x));
    op->u.conv.w = w;
    op->u.conv.bias = bias;
    op->u.conv.kernel = kernel;
    op->u.conv.channel0 = channel0;
    op->u.conv.act = act;
    return out;
}

void nn_decay(nn_tape *t, nn_buf x, const nn_vec *a, const nn_vec *dt_bias) {
    nn_op *op = push(t, NN_OP_DECAY, -1, x, NULL, 0);
    if (!op) return;
    if (width(t, x) % a->n)
        fail(t, "decay: %s has %lld values for %lld elements", a->name, (long long)a->n, (long long)width(t, x));
    if (dt_bias) want(t, dt_bias->name, "its length", dt_bias->n, width(t, x));
    op->acc = true;
    op->u.decay.a = a;
    op->u.decay.dt_bias = dt_bias;
}

nn_buf nn_delta(nn_tape *t, int layer, nn_buf q, nn_buf k, nn_buf v, nn_buf g, nn_buf beta, nn_delta_spec s) {
    nn_buf out = like(t, v, width(t, v));
    nn_op *op = PUSH(t, NN_OP_DELTA, layer, out, q, k, v, g, beta);
    if (!op) return out;
    const nn_state *st = &t->state[layer];
    if (st->rec_heads != s.heads_v || st->rec_dim_k != s.dim_k || st->rec_dim_v != s.dim_v)
        fail(t, "delta: layer %d declares another recurrent state", layer);
    if (s.heads_k <= 0 || s.heads_v % s.heads_k)
        fail(t, "delta: %d value heads share %d key heads", s.heads_v, s.heads_k);
    want(t, "delta", "the query's width", width(t, q), (int64_t)s.heads_k * s.dim_k);
    want(t, "delta", "the key's width", width(t, k), (int64_t)s.heads_k * s.dim_k);
    want(t, "delta", "the value's width", width(t, v), (int64_t)s.heads_v * s.dim_v);
    want(t, "delta", "beta's width", width(t, beta), s.heads_v);
    if (width(t, g) != s.heads_v) want(t, "delta", "the decay's width", width(t, g), (int64_t)s.heads_v * s.dim_k);
    op->u.delta = s;
    return out;
}

nn_buf nn_ssm(nn_tape *t, int layer, nn_buf x, nn_buf b, nn_buf c, nn_buf dt, nn_ssm_spec s) {
    nn_buf out = like(t, x, width(t, x));
    nn_op *op = push(t, NN_OP_SSM, layer, out, (const nn_buf[]){ x, b, c, dt }, dt ? 4 : 3);
    if (!op) return out;
    const nn_state *st = &t->state[layer];
    if (st->rec_heads != s.n_head || st->rec_dim_k != s.n_state || st->rec_dim_v != s.dim)
        fail(t, "ssm: layer %d declares another recurrent state", layer);
    want(t, "ssm", "the input's width", width(t, x), (int64_t)s.n_head * s.dim);
    want(t, "ssm", "b's width", width(t, b), (int64_t)s.n_group * s.n_state);
    want(t, "ssm", "c's width", width(t, c), (int64_t)s.n_group * s.n_state);
    if (dt) want(t, "ssm", "dt's width", width(t, dt), s.n_head);
    want(t, s.a->name, "its length", s.a->n, s.n_head);
    op->u.ssm = s;
    return out;
}

nn_buf nn_scan(nn_tape *t, int layer, nn_buf x, nn_buf b, nn_buf c, nn_buf dt, nn_scan_spec s) {
    nn_buf out = like(t, x, width(t, x));
    nn_op *op = PUSH(t, NN_OP_SCAN, layer, out, x, b, c, dt);
    if (!op) return out;
    const nn_state *st = &t->state[layer];
    if (st->rec_heads != 1 || st->rec_dim_k != s.n_state || st->rec_dim_v != s.n_channel)
        fail(t, "scan: layer %d declares another recurrent state", layer);
    want(t, "scan", "the input's width", width(t, x), s.n_channel);
    want(t, "scan", "b's width", width(t, b), s.n_state);
    want(t, "scan", "c's width", width(t, c), s.n_state);
    want(t, "scan", "dt's width", width(t, dt), s.n_channel);
    want(t, s.a->name, "its length", s.a->n, (int64_t)s.n_channel * s.n_state);
    want(t, s.d->name, "its length", s.d->n, s.n_channel);
    want(t, s.dt_bias->name, "its length", s.dt_bias->n, s.n_channel);
    op->u.scan = s;
    return out;
}

/* --- output ----------------------------------------------------------------------------------------------------- */

nn_buf nn_outputs(nn_tape *t, nn_buf x) {
    nn_buf out = new_buf(t, NN_ROWS_OUTPUTS, 1, width(t, x));
    PUSH(t, NN_OP_OUTPUTS, -1, out, x);
    return out;
}

void nn_logits(nn_tape *t, nn_buf x, nn_linear head, float scale, float cap) {
    if (!head.w) {
        nn_vectors(t, x);
        return;
    }
    nn_buf out = nn_project(t, x, head);
    if (t->failed) return;
    if (t->bufs[out].rows != NN_ROWS_OUTPUTS) fail(t, "logits: for output rows only (nn_outputs)");
    t->bufs[out].rows = NN_ROWS_LOGITS;
    if (scale != 0 && scale != 1.0f) nn_scale(t, out, scale);
    if (cap != 0) softcap(t, out, cap);
    t->hidden = x;
    t->logits = out;
}

void nn_vectors(nn_tape *t, nn_buf x) {
    if (t->failed) return;
    if (x <= 0 || x >= t->n_bufs || t->bufs[x].rows != NN_ROWS_OUTPUTS)
        fail(t, "vectors: of output rows only (nn_outputs)");
    t->hidden = x;
}

void nn_hand_on(nn_tape *t, nn_buf x) {
    if (t->failed) return;
    if (x <= 0 || x >= t->n_bufs || t->bufs[x].rows != NN_ROWS_OUTPUTS) fail(t, "only output rows are handed on");
    t->hidden = x;
}

const nn_vec *nn_join_vecs(nn_tape *t, const nn_vec *a, const nn_vec *b) {
    if (t->failed) return NULL;
    float  *data = arena_calloc(t->mem, (size_t)(a->n + b->n), sizeof *data);
    nn_vec *v = arena_calloc(t->mem, 1, sizeof *v);
    if (!data || !v) {
        fail(t, "%s: out of memory", a->name);
        return NULL;
    }
    memcpy(data, a->data, (size_t)a->n * sizeof *data);
    memcpy(data + a->n, b->data, (size_t)b->n * sizeof *data);
    *v = (nn_vec){ a->name, a->n + b->n, data };
    return v;
}

const nn_mat *nn_op_weights(const nn_op *op) {
    switch (op->kind) {
    case NN_OP_EMBED:
    case NN_OP_EMBED_POS:
    case NN_OP_EMBED_SEG: return op->u.embed.table;
    case NN_OP_LINEAR:
    case NN_OP_HEAD_LINEAR:
    case NN_OP_EXPERTS: return op->u.linear.w;
    default: return NULL;
    }
}
