/* SPDX-License-Identifier: Apache-2.0 */
/* The tape as text, one op per line, for people and for bug reports. */
#include "nn/tape.h"
#include "tensor/mat.h"

static const char *const names[NN_OP_KINDS] = {
    [NN_OP_EMBED] = "embed",
    [NN_OP_EMBED_POS] = "embed_pos",
    [NN_OP_EMBED_SEG] = "embed_seg",
    [NN_OP_ADD_SUPPLIED] = "add_supplied",
    [NN_OP_NORM] = "norm",
    [NN_OP_LINEAR] = "linear",
    [NN_OP_HEAD_LINEAR] = "head_linear",
    [NN_OP_ROPE] = "rope",
    [NN_OP_POS_SCALE] = "pos_scale",
    [NN_OP_KV_STORE] = "kv_store",
    [NN_OP_ATTN] = "attention",
    [NN_OP_LATENT_STORE] = "latent_store",
    [NN_OP_LATENT_ATTN] = "latent_attention",
    [NN_OP_INDEX_STORE] = "index_store",
    [NN_OP_CHOOSE] = "choose",
    [NN_OP_GLU] = "glu",
    [NN_OP_ACT] = "act",
    [NN_OP_ADD] = "add",
    [NN_OP_SCALE] = "scale",
    [NN_OP_CLIP] = "clip",
    [NN_OP_CLAMP] = "clamp",
    [NN_OP_SPARSIFY] = "sparsify",
    [NN_OP_SCALE_EACH] = "scale_each",
    [NN_OP_ADD_EACH] = "add_each",
    [NN_OP_ADD_BY] = "add_by",
    [NN_OP_MATCH_SIZE] = "match_size",
    [NN_OP_GATE] = "gate",
    [NN_OP_TAKE] = "take",
    [NN_OP_JOIN] = "join",
    [NN_OP_ROUTE] = "route",
    [NN_OP_EXPERTS] = "experts",
    [NN_OP_WEIGH] = "weigh",
    [NN_OP_COMBINE] = "combine",
    [NN_OP_CONV] = "conv",
    [NN_OP_DECAY] = "decay",
    [NN_OP_DELTA] = "delta",
    [NN_OP_SSM] = "ssm",
    [NN_OP_SCAN] = "scan",
    [NN_OP_OUTPUTS] = "outputs",
    [NN_OP_SOFTCAP] = "softcap",
    [NN_OP_XIELU] = "xielu",
};

static const char *const acts[] = {
    "none", "silu", "gelu", "gelu_tanh", "relu", "relu2", "sigmoid", "softplus", "tanh"
};

const char *nn_op_name(nn_op_kind kind) { return names[kind]; }

static void put_buf(const nn_tape *t, nn_buf b, str *out) {
    const nn_buf_info *i = &t->bufs[b];
    str_printf(out, "b%d[%s", b, i->rows == NN_ROWS_TOKENS ? "tok" : "out");
    if (i->mult != 1) str_printf(out, "*%d", i->mult);
    str_printf(out, ",%lld]", (long long)i->width);
}

static void put_mat(const nn_mat *m, bool bare, str *out) {
    if (!m) return;
    if (!bare) str_printf(out, " %s %s", m->name, m->at ? tensor_type_name(m->at[0].type) : "?");
    str_printf(out, "(%lld,%lld", (long long)m->rows, (long long)m->cols);
    if (m->n_stack) str_printf(out, ",x%d", m->n_stack);
    str_push(out, ')');
}

static void put_vec(const char *label, const nn_vec *v, bool bare, str *out) {
    if (v) str_printf(out, " %s%s(%lld)", label, bare ? "" : v->name, (long long)v->n);
}

static void put_norm(const nn_op *op, bool bare, str *out) {
    static const char *const kinds[] = { "rms", "layer", "l2" };
    str_printf(out, " %s group=%d eps=%g", kinds[op->u.norm.kind], op->u.norm.group, (double)op->u.norm.eps);
    put_vec("", op->u.norm.w, bare, out);
    put_vec("+", op->u.norm.b, bare, out);
}

static void put_attn(const nn_op *op, bool bare, str *out) {
    const nn_attn_spec *a = &op->u.attn;
    str_printf(out, " heads=%d/%d dim=%d,%d scale=%g", a->n_head, a->n_kv, a->dim_k, a->dim_v, (double)a->scale);
    if (a->window) str_printf(out, " window=%d", a->window);
    if (a->reach) str_printf(out, " reach=%d", a->reach);
    if (a->spans) str_puts(out, " spans");
    if (a->strict) str_puts(out, " strict");
    if (a->softcap != 0) str_printf(out, " softcap=%g", (double)a->softcap);
    if (a->chunk) str_printf(out, " chunk=%d", a->chunk);
    if (a->until) str_printf(out, " until=%d", a->until);
    put_vec("sinks=", a->sinks, bare, out);
    put_vec("bias=", a->bias, bare, out);
    if (a->alibi) str_puts(out, " alibi");
    if (a->apart.which) str_printf(out, " apart=%d/%lld", a->apart.n, (long long)a->apart.which->n);
    if (a->choice.ids) str_puts(out, " chosen");
}

static void put_choose(const nn_op *op, str *out) {
    const nn_choose_spec *s = &op->u.choose;
    str_printf(out, " heads=%d/%d top=%d", s->n_head, s->n_group, s->top);
    if (s->block > 1) str_printf(out, " blocks of %d, %d local", s->block, s->local);
}

static void put_route(const nn_op *op, bool bare, str *out) {
    static const char *const scores[] = { "softmax", "sigmoid", "sparsemixer" };
    str_printf(out, " %d of %d %s", op->u.route.n_used, op->u.route.n_expert, scores[op->u.route.score]);
    if (op->u.route.n_group > 1)
        str_printf(out, " groups=%d/%d%s", op->u.route.top_group, op->u.route.n_group,
                   op->u.route.group_best ? " by their best" : "");
    if (op->u.route.renorm) str_puts(out, " renorm");
    if (op->u.route.scale != 1.0f) str_printf(out, " scale=%g", (double)op->u.route.scale);
    put_vec("bias=", op->u.route.bias, bare, out);
}

/* Which pairs turn together is a matter of how a file orders rows; how fast they turn is the model's. */
static void put_rope(const nn_op *op, bool bare, str *out) {
    const nn_rope *r = &op->u.rope.rope;
    str_printf(out, " head=%d rot=%d from=%d", op->u.rope.head_dim, r->n_rot, op->u.rope.offset);
    if (!bare) str_puts(out, r->interleaved ? " interleaved" : " half");
    for (int i = 0; bare && i < r->n_rot / 2; i++) str_printf(out, " %.5g", (double)r->inv_freq[i]);
    if (r->scale != 1.0f) str_printf(out, " scale=%g", (double)r->scale);
}

static void put_params(const nn_op *op, bool bare, str *out) {
    switch (op->kind) {
    case NN_OP_EMBED:
    case NN_OP_EMBED_POS:
    case NN_OP_EMBED_SEG:
        put_mat(op->u.embed.table, bare, out);
        if (op->u.embed.scale != 1.0f) str_printf(out, " scale=%g", (double)op->u.embed.scale);
        break;
    case NN_OP_ADD_SUPPLIED: str_printf(out, " part %d", op->u.part); break;
    case NN_OP_CLAMP: str_printf(out, " %g..%g", (double)op->u.clamp.lo, (double)op->u.clamp.hi); break;
    case NN_OP_NORM: put_norm(op, bare, out); break;
    case NN_OP_LINEAR:
    case NN_OP_HEAD_LINEAR:
    case NN_OP_EXPERTS:
        put_mat(op->u.linear.w, bare, out);
        put_vec("+", op->u.linear.b, bare, out);
        break;
    case NN_OP_ROPE: put_rope(op, bare, out); break;
    case NN_OP_ATTN:
    case NN_OP_LATENT_ATTN: put_attn(op, bare, out); break;
    case NN_OP_CHOOSE: put_choose(op, out); break;
    case NN_OP_GLU:
        str_printf(out, " %s", acts[op->u.glu.act]);
        if (op->u.glu.limit != 0)
            str_printf(out, " limit=%g alpha=%g", (double)op->u.glu.limit, (double)op->u.glu.alpha);
        break;
    case NN_OP_ACT:
    case NN_OP_GATE: str_printf(out, " %s", acts[op->u.act]); break;
    case NN_OP_ADD:
    case NN_OP_SCALE:
    case NN_OP_CLIP:
    case NN_OP_SPARSIFY:
    case NN_OP_MATCH_SIZE:
    case NN_OP_SOFTCAP: str_printf(out, " %g", (double)op->u.scale); break;
    case NN_OP_POS_SCALE:
        str_printf(out, " beta=%g period=%d offset=%d", (double)op->u.pos_scale.beta, op->u.pos_scale.period,
                   op->u.pos_scale.offset);
        break;
    case NN_OP_TAKE:
        str_printf(out, " %d from %d of each %d", op->u.take.width, op->u.take.offset, op->u.take.group);
        break;
    case NN_OP_SCALE_EACH: put_vec("", op->u.each, bare, out); break;
    case NN_OP_ADD_EACH: put_vec("", op->u.add_each.w, bare, out); break;
    case NN_OP_ADD_BY: str_printf(out, " column %d", op->u.column); break;
    case NN_OP_ROUTE: put_route(op, bare, out); break;
    case NN_OP_CONV:
        str_printf(out, " kernel=%d %s", op->u.conv.kernel, acts[op->u.conv.act]);
        put_vec("", op->u.conv.w, bare, out);
        break;
    case NN_OP_DECAY: put_vec("", op->u.decay.a, bare, out); break;
    case NN_OP_DELTA:
        str_printf(out, " heads=%d/%d dim=%d,%d", op->u.delta.heads_v, op->u.delta.heads_k, op->u.delta.dim_k,
                   op->u.delta.dim_v);
        break;
    case NN_OP_SSM:
        str_printf(out, " heads=%d dim=%d groups=%d state=%d", op->u.ssm.n_head, op->u.ssm.dim, op->u.ssm.n_group,
                   op->u.ssm.n_state);
        break;
    case NN_OP_SCAN: str_printf(out, " channels=%d state=%d", op->u.scan.n_channel, op->u.scan.n_state); break;
    default: break;
    }
}

static void put_op(const nn_tape *t, const nn_op *op, bool bare, str *out) {
    str_printf(out, "%-12s", nn_op_name(op->kind));
    if (op->layer >= 0) str_printf(out, " layer %d", op->layer);
    if (op->out) {
        str_push(out, ' ');
        put_buf(t, op->out, out);
        str_puts(out, op->acc ? " +=" : " =");
    }
    for (int i = 0; i < NN_MAX_IN && op->in[i]; i++) {
        str_push(out, ' ');
        put_buf(t, op->in[i], out);
    }
    put_params(op, bare, out);
}

void nn_op_print(const nn_tape *t, const nn_op *op, str *out) { put_op(t, op, false, out); }

void nn_tape_outline(const nn_tape *t, str *out) {
    for (int i = 0; i < t->n_ops; i++) {
        put_op(t, &t->ops[i], true, out);
        str_push(out, '\n');
    }
}

void nn_tape_print(const nn_tape *t, str *out) {
    for (int i = 0; i < t->n_ops; i++) {
        str_printf(out, "%4d  ", i);
        nn_op_print(t, &t->ops[i], out);
        str_push(out, '\n');
    }
}
