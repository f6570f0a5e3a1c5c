/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Qwen 2 MoE and Qwen 3 MoE: the Qwen decoder with a mixture of experts. Qwen 2 adds a shared expert behind a gate and
 * leaves the experts' weights as they are; Qwen 3 renormalises them. Some layers may be dense.
 */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_dims d;
    int     n_expert, n_used, n_ff_expert, n_ff_shared;
    bool    renorm;
    nn_rope rope;
} hparams;

typedef nn_ends top;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm, *q_norm, *k_norm;
    nn_linear     q, k, v, o;
    nn_linear     gate, up, down, router;
    nn_linear     shared_gate, shared_up, shared_down, shared_router;
} layer;

static const nn_key keys[] = {
    NN_INT(n_expert, "expert_count", "num_experts|num_local_experts", NN_REQUIRED),
    NN_INT(n_used, "expert_used_count", "num_experts_per_tok", NN_REQUIRED),
    NN_INT(n_ff_expert, "expert_feed_forward_length", "moe_intermediate_size", 0),
    NN_INT(n_ff_shared, "expert_shared_feed_forward_length", "shared_expert_intermediate_size", 0),
    { 0 },
};

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    bool     third = !nn_config_arch(c, "qwen2moe") && !nn_config_arch(c, "qwen2_moe");
    nn_config_only(c, NULL, "hidden_act", "silu");
    h->renorm = nn_config_bool(c, "expert_weights_norm", "norm_topk_prob", third);
    if (nn_config_bool(c, NULL, "use_sliding_window", false))
        nn_config_fail(c, "use_sliding_window is not supported in this family");
    if (h->n_ff_expert == 0) h->n_ff_expert = h->d.n_ff;
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ .base = 1000000 });
}

static void bind_top(nn_binder *b, void *out, const void *p) { nn_bind_ends(b, out, p, 0); }

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    int            n = d->n_embd, q = d->n_head * d->head_dim, kv = d->n_kv * d->head_dim, ff = h->n_ff_expert;
    (void)i;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", n, 0);
    nn_bind_linear(b, &w->q, "attn_q", "self_attn.q_proj", n, q, 0);
    nn_bind_linear(b, &w->k, "attn_k", "self_attn.k_proj", n, kv, 0);
    nn_bind_linear(b, &w->v, "attn_v", "self_attn.v_proj", n, kv, 0);
    nn_bind_linear(b, &w->o, "attn_output", "self_attn.o_proj", q, n, 0);
    nn_bind_vec(b, &w->q_norm, "attn_q_norm", "self_attn.q_norm", d->head_dim, NN_OPTIONAL);
    nn_bind_vec(b, &w->k_norm, "attn_k_norm", "self_attn.k_norm", d->head_dim, w->q_norm ? 0 : NN_OPTIONAL);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "post_attention_layernorm", n, 0);
    if (!nn_bind_exists(b, "ffn_gate_inp", "mlp.gate")) { /* a dense layer */
        nn_bind_linear(b, &w->gate, "ffn_gate", "mlp.gate_proj", n, d->n_ff, 0);
        nn_bind_linear(b, &w->up, "ffn_up", "mlp.up_proj", n, d->n_ff, 0);
        nn_bind_linear(b, &w->down, "ffn_down", "mlp.down_proj", d->n_ff, n, 0);
        return;
    }
    nn_bind_linear(b, &w->router, "ffn_gate_inp", "mlp.gate", n, h->n_expert, 0);
    nn_bind_experts(b, &w->gate, "ffn_gate_exps|ffn_gate_up_exps#0/2",
                    "mlp.experts.*.gate_proj|mlp.switch_mlp.gate_proj|mlp.experts.gate_up_proj#0/2", h->n_expert, n, ff,
                    0);
    nn_bind_experts(b, &w->up, "ffn_up_exps|ffn_gate_up_exps#1/2",
                    "mlp.experts.*.up_proj|mlp.switch_mlp.up_proj|mlp.experts.gate_up_proj#1/2", h->n_expert, n, ff, 0);
    nn_bind_experts(b, &w->down, "ffn_down_exps",
                    "mlp.experts.*.down_proj|mlp.switch_mlp.down_proj|mlp.experts.down_proj", h->n_expert, ff, n, 0);
    if (h->n_ff_shared == 0) return;
    nn_bind_linear(b, &w->shared_router, "ffn_gate_inp_shexp", "mlp.shared_expert_gate", n, 1, 0);
    nn_bind_linear(b, &w->shared_gate, "ffn_gate_shexp", "mlp.shared_expert.gate_proj", n, h->n_ff_shared, 0);
    nn_bind_linear(b, &w->shared_up, "ffn_up_shexp", "mlp.shared_expert.up_proj", n, h->n_ff_shared, 0);
    nn_bind_linear(b, &w->shared_down, "ffn_down_shexp", "mlp.shared_expert.down_proj", h->n_ff_shared, n, 0);
}

static nn_state state(const void *p, int i) {
    const nn_dims *d = p;
    (void)i;
    return nn_state_kv(d->n_kv, d->head_dim, 0);
}

static void feed_forward(nn_tape *t, nn_buf x, nn_buf n, const hparams *h, const layer *w) {
    if (!w->router.w) {
        nn_project_add(t, x, nn_glu(t, n, w->gate, w->up, NN_ACT_SILU), w->down);
        return;
    }
    nn_add(t, x,
           nn_moe(t, n,
                  (nn_moe_spec){ .router = w->router,
                                 .gate = w->gate,
                                 .up = w->up,
                                 .down = w->down,
                                 .n_expert = h->n_expert,
                                 .n_used = h->n_used,
                                 .score = NN_SCORE_SOFTMAX,
                                 .renorm = h->renorm,
                                 .glu.act = NN_ACT_SILU }));
    if (!w->shared_router.w) return;
    nn_buf shared = nn_project(t, nn_glu(t, n, w->shared_gate, w->shared_up, NN_ACT_SILU), w->shared_down);
    nn_gate(t, shared, nn_project(t, n, w->shared_router), NN_ACT_SIGMOID);
    nn_add(t, x, shared);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams     *h = net->hp;
    const nn_dims     *d = &h->d;
    const top         *tw = net->top;
    const layer       *lw = net->layers;
    const nn_attn_spec attn = {
        .n_head = d->n_head, .n_kv = d->n_kv, .dim_k = d->head_dim, .scale = 1.0f / sqrtf((float)d->head_dim)
    };

    nn_buf x = nn_embed(t, tw->embd, 1.0f);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = &lw[i];
        nn_buf       n = nn_rms_norm(t, x, w->attn_norm, d->eps);
        nn_buf       q = nn_project(t, n, w->q), k = nn_project(t, n, w->k), v = nn_project(t, n, w->v);
        if (w->q_norm) {
            q = nn_rms_norm(t, q, w->q_norm, d->eps);
            k = nn_rms_norm(t, k, w->k_norm, d->eps);
        }
        nn_rope_apply(t, q, d->head_dim, &h->rope);
        nn_rope_apply(t, k, d->head_dim, &h->rope);
        nn_kv_store(t, i, k, v);
        nn_project_add(t, x, nn_attention(t, i, q, attn), w->o);
        feed_forward(t, x, nn_rms_norm(t, x, w->ffn_norm, d->eps), h, w);
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps), tw->head, 1.0f, 0.0f);
}

static const char *const names_2[] = { "qwen2moe", "qwen2_moe", NULL }, *const names_3[] = { "qwen3moe", "qwen3_moe",
                                                                                             NULL };
const nn_arch models_qwen2_moe = { NN_FAMILY, .gguf_only = true, .names = names_2, .act = "silu|swish" };
const nn_arch models_qwen3_moe = { NN_FAMILY, .gguf_only = true, .names = names_3, .act = "silu|swish" };

static const char *const names_vl[] = { "qwen3vlmoe", "qwen3_vl_moe", "qwen3_vl_moe_text", NULL };
const nn_arch            models_qwen3vl_moe = { NN_FAMILY, .gguf_only = true, .names = names_vl, .act = "silu|swish" };
