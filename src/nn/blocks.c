/* SPDX-License-Identifier: Apache-2.0 */
/* Parts that many families share: the four projections of attention, the feed-forward. */
#include "nn/nn.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void nn_bind_qkvo(nn_binder *b, nn_qkvo *out, const nn_dims *d) {
    int n = d->n_embd, q = d->n_head * d->head_dim, kv = d->n_kv * d->head_dim;
    nn_bind_linear(b, &out->q, "attn_q", "self_attn.q_proj", n, q, NN_ROTARY);
    nn_bind_linear(b, &out->k, "attn_k", "self_attn.k_proj", n, kv, NN_ROTARY);
    nn_bind_linear(b, &out->v, "attn_v", "self_attn.v_proj", n, kv, 0);
    nn_bind_linear(b, &out->o, "attn_output", "self_attn.o_proj|self_attn.dense|self_attn.out_proj", q, n, 0);
}

void nn_bind_mlp(nn_binder *b, nn_mlp *out, const nn_dims *d, bool gated) {
    out->gate = (nn_linear){ 0 };
    if (gated) nn_bind_linear(b, &out->gate, "ffn_gate", "mlp.gate_proj", d->n_embd, d->n_ff, 0);
    nn_bind_linear(b, &out->up, "ffn_up", "mlp.up_proj|mlp.fc1|fc1|mlp.c_fc|mlp.dense_h_to_4h", d->n_embd, d->n_ff, 0);
    nn_bind_linear(b, &out->down, "ffn_down", "mlp.down_proj|mlp.fc2|fc2|mlp.c_proj|mlp.dense_4h_to_h", d->n_ff,
                   d->n_embd, 0);
}

nn_attn_spec nn_attn_plain(const nn_dims *d, int window) {
    return (nn_attn_spec){ .n_head = d->n_head,
                           .n_kv = d->n_kv,
                           .dim_k = d->head_dim,
                           .window = window,
                           .scale = 1.0f / sqrtf((float)d->head_dim) };
}

nn_buf nn_attend(nn_tape *t, int layer, nn_buf n, const nn_qkvo *w, const nn_rope *rope, nn_attn_spec a) {
    nn_buf q = nn_project(t, n, w->q), k = nn_project(t, n, w->k), v = nn_project(t, n, w->v);
    if (rope) {
        nn_rope_apply(t, q, a.dim_k, rope);
        nn_rope_apply(t, k, a.dim_k, rope);
    }
    nn_kv_store(t, layer, k, v);
    return nn_attention(t, layer, q, a);
}

nn_buf nn_feed(nn_tape *t, nn_buf n, const nn_mlp *w, nn_act_kind act) {
    if (w->gate.w) return nn_glu(t, n, w->gate, w->up, act);
    nn_buf y = nn_project(t, n, w->up);
    nn_act(t, y, act);
    return y;
}
