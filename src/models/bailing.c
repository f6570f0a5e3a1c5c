/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ling and Ring (BailingMoE): pre-norm decoder with a fused projection and a mixture of experts. The first generation
 * routes by softmax; the second by sigmoids with a correction, in groups, norms q and k and rotates half of each head.
 * Both call themselves bailing_moe, so the fields decide.
 */
#include "nn/nn.h"

typedef struct hparams {
    nn_dims d;
    int     n_expert, n_used, n_ff_expert, n_ff_shared, n_dense, n_group, top_group, n_next;
    float   route_scale;
    bool    second, renorm;
    nn_rope rope;
} hparams;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm;
    nn_heads      attn;
    nn_ffn        ffn;
} layer;

static const nn_key keys[] = {
    NN_INT(n_expert, "expert_count", "num_experts", NN_REQUIRED),
    NN_INT(n_used, "expert_used_count", "num_experts_per_tok", NN_REQUIRED),
    NN_INT(n_ff_expert, "expert_feed_forward_length", "moe_intermediate_size", NN_REQUIRED),
    NN_INT(n_group, "expert_group_count", "n_group", 1),
    NN_INT(top_group, "expert_group_used_count", "topk_group", 1),
    NN_INT(n_next, "nextn_predict_layers", NULL, 0), /* GGUF counts these layers, which predict further tokens */
    NN_INT(n_dense, "leading_dense_block_count", "first_k_dense_replace", 0),
    { 0 },
};

static void refuse(nn_config *c, const hparams *h) {
    nn_config_known(c, "use_qk_norm", h->second ? "true" : "false");
    nn_config_known(c, "norm_head", "false");
    nn_config_known(c, "norm_softmax", "false");
    nn_config_known(c, "use_bias", "false");
    nn_config_known(c, "use_rmsnorm", "true");
    nn_config_known(c, "use_sliding_window", "false");
    nn_config_only(c, NULL, "score_function", h->second ? "sigmoid" : "softmax");
    nn_config_only_number(c, "expert_gating_func", NULL, h->second ? 2 : 1);
    if (h->n_next < 0 || h->n_next >= h->d.n_layer || h->n_ff_expert < 1 || h->n_ff_expert > 1 << 20 ||
        h->n_ff_shared < 0 || h->n_ff_shared > 1 << 24)
        nn_config_fail(c, "experts of width %d, a shared one of %d, %d of %d layers for further tokens", h->n_ff_expert,
                       h->n_ff_shared, h->n_next, h->d.n_layer);
}

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    int64_t  n_shared = nn_config_int(c, "expert_shared_count", "num_shared_experts", 0);
    h->second = nn_config_arch(c, "bailingmoe2") || nn_config_arch(c, "bailing_moe_v2") ||
                (!nn_config_gguf(c) && nn_config_is(c, NULL, "score_function", "sigmoid", false));
    if (n_shared < 0 || n_shared > 1024) n_shared = -1;
    h->n_ff_shared = (int)nn_config_int(c, h->second ? "expert_shared_feed_forward_length" : NULL,
                                        "moe_shared_expert_intermediate_size", n_shared * (int64_t)h->n_ff_expert);
    refuse(c, h);
    h->d.n_layer -= h->n_next;
    h->renorm = h->second || nn_config_bool(c, "expert_weights_norm", "norm_topk_prob", !nn_config_gguf(c));
    h->route_scale = h->second ? (float)nn_config_real(c, "expert_weights_scale", "routed_scaling_factor", 1) : 1;
    nn_config_derived_int(c, "expert_gating_func", h->second ? 2 : 1);
    h->rope =
        nn_rope_read(c, &h->d, (nn_rope_want){ .base = 600000, .partial = h->second && !nn_config_gguf(c) ? 0.5 : 1 });
}

/* GGUF files of the first generation have q, k and v apart. */
static void bind_heads(nn_binder *b, nn_heads *w, const hparams *h) {
    const nn_dims *d = &h->d;
    const int64_t  n = d->n_embd, q = (int64_t)d->n_head * d->head_dim, kv = (int64_t)d->n_kv * d->head_dim;
    const char    *fused = "attention.query_key_value";
    if (h->second) {
        nn_bind_qkv(b, w, "attn_qkv", fused, d, false);
        nn_bind_vec(b, &w->q_norm, "attn_q_norm", "attention.query_layernorm", d->head_dim, 0);
        nn_bind_vec(b, &w->k_norm, "attn_k_norm", "attention.key_layernorm", d->head_dim, 0);
    } else if (nn_bind_exists(b, NULL, fused)) {
        nn_bind_rows(b, &w->q, "attn_q", fused, n, q, 0, q + 2 * kv, NN_ROTARY);
        nn_bind_rows(b, &w->k, "attn_k", fused, n, kv, q, q + 2 * kv, NN_ROTARY);
        nn_bind_rows(b, &w->v, "attn_v", fused, n, kv, q + kv, q + 2 * kv, 0);
    } else {
        nn_bind_linear(b, &w->q, "attn_q", NULL, n, q, NN_ROTARY);
        nn_bind_linear(b, &w->k, "attn_k", NULL, n, kv, NN_ROTARY);
        nn_bind_linear(b, &w->v, "attn_v", NULL, n, kv, 0);
    }
    nn_bind_linear(b, &w->o, "attn_output", "attention.dense", q, n, 0);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    layer         *w = out;
    int            n = h->d.n_embd;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", n, 0);
    bind_heads(b, &w->attn, h);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "post_attention_layernorm", n, 0);
    if (i < h->n_dense) {
        nn_bind_ffn(b, &w->ffn, "mlp", n, h->d.n_ff);
        return;
    }
    nn_bind_ffn_experts(b, &w->ffn, "mlp", n, h->n_ff_expert, h->n_expert, NN_OPTIONAL);
    if (h->n_ff_shared) nn_bind_ffn_shared(b, &w->ffn, "mlp.shared_experts", n, h->n_ff_shared);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams    *h = net->hp;
    const nn_dims    *d = &h->d;
    const nn_ends    *tw = net->top;
    const nn_moe_spec how = { .n_expert = h->n_expert,
                              .n_used = h->n_used,
                              .score = h->second ? NN_SCORE_SIGMOID : NN_SCORE_SOFTMAX,
                              .n_group = h->second ? h->n_group : 0,
                              .top_group = h->top_group,
                              .renorm = h->renorm,
                              .renorm_eps = h->second ? 1e-20f : 0,
                              .scale = h->route_scale,
                              .glu.act = NN_ACT_SILU };
    nn_buf            x = nn_embed(t, tw->embd, 1);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = (const layer *)net->layers + i;
        nn_buf       n = nn_rms_norm(t, x, w->attn_norm, d->eps);
        nn_project_add(t, x, nn_attend(t, i, n, &w->attn, &h->rope, nn_attn_plain(d, 0), d->eps), w->attn.o);
        nn_add(t, x, nn_ffn_apply(t, nn_rms_norm(t, x, w->ffn_norm, d->eps), &w->ffn, how));
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps), tw->head, 1, 0);
}

#define LING NN_PLAIN, .act = "silu|swish"
const nn_arch models_bailing = { LING, .gguf_only = true, .names = NN_NAMES("bailingmoe", "bailing_moe"),
                                 .permuted_qk = true };
const nn_arch models_bailing_2 = { LING, .gguf_only = true, .names = NN_NAMES("bailingmoe2", "bailing_moe_v2") };
