/* SPDX-License-Identifier: Apache-2.0 */
/* Parts that many families share: the four projections of attention, the feed-forward. */
#include "nn/nn.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void nn_bind_attention(nn_binder *b, nn_heads *w, int64_t n, int64_t q, int64_t kv, unsigned flags) {
    nn_bind_linear(b, &w->q, "attn_q", "self_attn.q_proj", n, q, flags);
    nn_bind_linear(b, &w->k, "attn_k", "self_attn.k_proj", n, kv, flags);
    nn_bind_linear(b, &w->v, "attn_v", "self_attn.v_proj", n, kv, 0);
    nn_bind_linear(b, &w->o, "attn_output", "self_attn.o_proj|self_attn.dense|self_attn.out_proj", q, n, 0);
}

void nn_bind_qkvo(nn_binder *b, nn_heads *out, const nn_dims *d) {
    nn_bind_attention(b, out, d->n_embd, (int64_t)d->n_head * d->head_dim, (int64_t)d->n_kv * d->head_dim, NN_ROTARY);
}

void nn_bind_head_norms(nn_binder *b, nn_heads *w, int64_t q, int64_t k, unsigned flags) {
    nn_bind_vec(b, &w->q_norm, "attn_q_norm", "self_attn.q_norm|self_attn.query_layernorm", q, flags);
    nn_bind_vec(b, &w->k_norm, "attn_k_norm", "self_attn.k_norm|self_attn.key_layernorm", k,
                w->q_norm ? flags & ~(unsigned)NN_OPTIONAL : flags);
}

void nn_bind_mlp(nn_binder *b, nn_mlp *out, const nn_dims *d, bool gated) {
    out->gate = (nn_linear){ 0 };
    if (gated) nn_bind_linear(b, &out->gate, "ffn_gate", "mlp.gate_proj", d->n_embd, d->n_ff, 0);
    nn_bind_linear(b, &out->up, "ffn_up", "mlp.up_proj|mlp.fc1|fc1|mlp.c_fc|mlp.dense_h_to_4h", d->n_embd, d->n_ff, 0);
    nn_bind_linear(b, &out->down, "ffn_down", "mlp.down_proj|mlp.fc2|fc2|mlp.c_proj|mlp.dense_4h_to_h", d->n_ff,
                   d->n_embd, 0);
}

void nn_bind_top_ends(nn_binder *b, void *top, const void *hp) { nn_bind_ends(b, top, hp, 0); }

nn_state nn_state_plain(const void *hp, int i) {
    const nn_dims *d = hp;
    (void)i;
    return nn_state_kv(d->n_kv, d->head_dim, 0);
}

nn_state nn_state_whole(const void *hp, int i) {
    const nn_dims *d = hp;
    (void)i;
    return nn_state_step(d->n_kv, d->head_dim);
}

nn_state nn_state_nothing(const void *hp, int i) {
    (void)hp;
    (void)i;
    return (nn_state){ .kind = NN_STATE_NONE };
}

void nn_bind_nothing(nn_binder *b, void *layer, const void *hp, int i) {
    (void)b;
    (void)layer;
    (void)hp;
    (void)i;
}

void nn_rotate(nn_tape *t, nn_buf q, nn_buf k, int head_dim, const nn_rope *r) {
    nn_rope_apply(t, q, head_dim, r);
    nn_rope_apply(t, k, head_dim, r);
}

nn_attn_spec nn_attn_plain(const nn_dims *d, int window) {
    return (nn_attn_spec){ .n_head = d->n_head,
                           .n_kv = d->n_kv,
                           .dim_k = d->head_dim,
                           .window = window,
                           .scale = 1.0f / sqrtf((float)d->head_dim) };
}

nn_buf nn_attend(nn_tape *t, int layer, nn_buf n, const nn_heads *w, const nn_rope *rope, nn_attn_spec a, float eps) {
    nn_buf q = nn_project(t, n, w->q), k = nn_project(t, n, w->k), v = nn_project(t, n, w->v);
    if (w->q_norm) q = nn_rms_norm(t, q, w->q_norm, eps);
    if (w->k_norm) k = nn_rms_norm(t, k, w->k_norm, eps);
    if (rope) nn_rotate(t, q, k, a.dim_k, rope);
    nn_kv_store(t, layer, k, v);
    return nn_attention(t, layer, q, a);
}

nn_buf nn_feed(nn_tape *t, nn_buf n, const nn_mlp *w, nn_act_kind act) {
    if (w->gate.w) return nn_glu(t, n, w->gate, w->up, act);
    nn_buf y = nn_project(t, n, w->up);
    nn_act(t, y, act);
    return y;
}
