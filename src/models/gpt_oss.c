/* SPDX-License-Identifier: Apache-2.0 */
/* gpt-oss: alternating windows, attention sinks, biases everywhere, experts with a clamped SwiGLU. */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_dims    d;
    int        window, n_expert, n_used, n_ff_expert;
    float      limit;
    const int *slides;
    nn_rope    rope;
} hparams;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm, *sinks;
    nn_linear     q, k, v, o, router, gate, up, down;
} layer;

static const nn_key keys[] = {
    NN_INT(window, "attention.sliding_window", "sliding_window", NN_REQUIRED),
    NN_INT(n_expert, "expert_count", "num_local_experts|num_experts", NN_REQUIRED),
    NN_INT(n_used, "expert_used_count", "num_experts_per_tok|experts_per_token", NN_REQUIRED),
    NN_INT(n_ff_expert, "expert_feed_forward_length", "intermediate_size", 0),
    NN_FLOAT(limit, NULL, "swiglu_limit", 7),
    { 0 },
};

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    nn_config_only(c, NULL, "hidden_act", "silu");
    if (h->n_ff_expert == 0) h->n_ff_expert = h->d.n_ff;
    h->slides = nn_config_layer_is(c, "attention.sliding_window_pattern", "layer_types", "sliding_attention", 2);
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ .base = 150000, .untruncated = true });
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    int n = d->n_embd, q = d->n_head * d->head_dim, kv = d->n_kv * d->head_dim, e = h->n_expert, ff = h->n_ff_expert;
    (void)i;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", n, 0);
    nn_bind_linear(b, &w->q, "attn_q", "self_attn.q_proj", n, q, 0);
    nn_bind_linear(b, &w->k, "attn_k", "self_attn.k_proj", n, kv, 0);
    nn_bind_linear(b, &w->v, "attn_v", "self_attn.v_proj", n, kv, 0);
    nn_bind_linear(b, &w->o, "attn_output", "self_attn.o_proj", q, n, 0);
    nn_bind_vec(b, &w->sinks, "attn_sinks", "self_attn.sinks", d->n_head, 0);
    nn_bind_vec(b, &w->ffn_norm, "post_attention_norm|ffn_norm", "post_attention_layernorm", n, 0);
    nn_bind_linear(b, &w->router, "ffn_gate_inp", "mlp.router", n, e, 0);
    nn_bind_experts(b, &w->gate, "ffn_gate_exps", "mlp.experts.gate_up_proj^#0%2|mlp.experts.gate_proj", e, n, ff, 0);
    nn_bind_experts(b, &w->up, "ffn_up_exps", "mlp.experts.gate_up_proj^#1%2|mlp.experts.up_proj", e, n, ff, 0);
    nn_bind_experts(b, &w->down, "ffn_down_exps", "mlp.experts.down_proj.weight|mlp.experts.down_proj^", e, ff, n, 0);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    return nn_state_kv(h->d.n_kv, h->d.head_dim, h->slides[i] ? h->window : 0);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->d;
    const nn_ends *tw = net->top;
    const layer   *lw = net->layers;

    nn_buf x = nn_embed(t, tw->embd, 1.0f);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = &lw[i];
        nn_buf       n = nn_rms_norm(t, x, w->attn_norm, d->eps);
        nn_buf       q = nn_project(t, n, w->q), k = nn_project(t, n, w->k), v = nn_project(t, n, w->v);
        nn_rotate(t, q, k, d->head_dim, &h->rope);
        nn_kv_store(t, i, k, v);
        nn_project_add(t, x,
                       nn_attention(t, i, q,
                                    (nn_attn_spec){ .n_head = d->n_head,
                                                    .n_kv = d->n_kv,
                                                    .dim_k = d->head_dim,
                                                    .window = h->slides[i] ? h->window : 0,
                                                    .scale = 1.0f / sqrtf((float)d->head_dim),
                                                    .sinks = w->sinks }),
                       w->o);
        nn_add(t, x,
               nn_moe(t, nn_rms_norm(t, x, w->ffn_norm, d->eps),
                      (nn_moe_spec){ .router = w->router,
                                     .gate = w->gate,
                                     .up = w->up,
                                     .down = w->down,
                                     .n_expert = h->n_expert,
                                     .n_used = h->n_used,
                                     .score = NN_SCORE_SOFTMAX,
                                     .renorm = true,
                                     .glu = { .act = NN_ACT_SILU, .limit = h->limit, .alpha = 1.702f } }));
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps), tw->head, 1.0f, 0.0f);
}

const nn_arch models_gpt_oss = { NN_DECODER, .gguf_only = true, .names = NN_NAMES("gpt-oss", "gpt_oss"),
                                 .act = "silu" };
