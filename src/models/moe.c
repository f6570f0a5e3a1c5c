/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoders of the Llama kind whose feed-forward is a mixture of experts: OLMoE and FlexOLMo (q and k normed over all
 * heads; FlexOLMo norms behind its blocks), ERNIE 4.5 (pairs of neighbours rotate), Hunyuan (norms behind the
 * rotation), Hunyuan 3 and DeepSeek 1. A row of `kinds` says what differs.
 */
#include "nn/nn.h"

enum {
    ROW_NORM = 1,    /* q and k are normed over all heads */
    HEAD_NORM = 2,   /* each head of q and k is normed */
    LATE_NORM = 4,   /* behind the rotation */
    SIGMOID = 8,     /* scores, with a correction */
    NEIGHBOURS = 16, /* rotate */
    POST_NORM = 32,  /* norms stand behind attention and feed-forward */
    ALWAYS_RENORM = 64,
};

typedef struct kind {
    const char *gguf, *hf;
    unsigned    is;
    int         n_dense; /* where config.json is silent */
    double      base, scale;
    const char *shared; /* the shared expert's module */
} kind;

static const kind kinds[] = {
    { "olmoe", "olmoe", ROW_NORM, 0, 10000, 1, NULL },
    { "flex_olmo", "flex_olmo", ROW_NORM | POST_NORM, 0, 500000, 1, NULL },
    { "ernie4_5-moe", "ernie4_5_moe", NEIGHBOURS | ALWAYS_RENORM, 1, 500000, 1, "mlp.shared_experts" },
    { "hunyuan-moe", "hunyuan_v1_moe", HEAD_NORM | LATE_NORM | ALWAYS_RENORM, 0, 10000, 1, "mlp.shared_mlp" },
    { "hy_v3", "hy_v3", HEAD_NORM | SIGMOID | ALWAYS_RENORM, 1, 11158840, 2.826, "mlp.shared_mlp|mlp.shared_experts" },
    { "deepseek", "deepseek", 0, 0, 10000, 1, "mlp.shared_experts" },
};

typedef struct hparams {
    nn_dims     d;
    const kind *k;
    int         n_expert, n_used, n_ff_expert, n_ff_shared, n_dense, n_next;
    float       scale, clip;
    bool        renorm;
    nn_rope     rope;
} hparams;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm;
    nn_heads      attn;
    nn_ffn        ffn;
} layer;

static const nn_key keys[] = {
    NN_INT(n_expert, "expert_count", "num_experts|n_routed_experts|moe_num_experts", NN_REQUIRED),
    NN_INT(n_used, "expert_used_count", "num_experts_per_tok|moe_topk|moe_k", NN_REQUIRED),
    NN_INT(n_next, "nextn_predict_layers", NULL, 0),
    NN_FLOAT(clip, "attention.clamp_kqv", "clip_qkv", 0),
    { 0 },
};

static void refuse(nn_config *c, const hparams *h) {
    bool sigmoid = h->k->is & SIGMOID;
    nn_config_only(c, NULL, "hidden_act", "silu");
    nn_config_only(c, NULL, "scoring_func", sigmoid ? "sigmoid" : "softmax");
    nn_config_only_number(c, "expert_gating_func", NULL, sigmoid ? 2 : 1);
    nn_config_only(c, NULL, "topk_method", "greedy");
    nn_config_only_number(c, NULL, "moe_layer_freq", 1);
    if (h->k->is & ALWAYS_RENORM) nn_config_only_number(c, "expert_weights_norm", "norm_topk_prob|route_norm", 1);
    if (h->k->is & HEAD_NORM) nn_config_only_number(c, NULL, "use_qk_norm|qk_norm", 1);
    nn_config_only_number(c, NULL, "use_cla", 0);
    if (h->n_expert < 1 || h->n_used < 1 || h->n_ff_expert < 1 || h->n_ff_expert > 1 << 20 || h->n_ff_shared < 0 ||
        h->n_ff_shared > 1 << 20 || h->clip < 0)
        nn_config_fail(c, "%d of %d experts of width %d, a shared one of %d, clipped to %g: that makes no sense",
                       h->n_used, h->n_expert, h->n_ff_expert, h->n_ff_shared, (double)h->clip);
}

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    for (h->k = kinds; !nn_config_arch(c, h->k->gguf) && !nn_config_arch(c, h->k->hf);) h->k++;
    if (h->n_next < 0 || h->n_next >= h->d.n_layer) {
        nn_config_fail(c, "%d of %d layers are for multi-token prediction", h->n_next, h->d.n_layer);
        return;
    }
    h->n_expert = nn_config_same_int(c, "expert_count", "num_experts|n_routed_experts|moe_num_experts", h->n_expert);
    h->n_used = nn_config_same_int(c, "expert_used_count", "num_experts_per_tok|moe_topk|moe_k", h->n_used);
    h->n_ff_expert = nn_config_same_int(c, "expert_feed_forward_length", "moe_intermediate_size", 0);
    if (h->n_ff_expert == 0) h->n_ff_expert = h->d.n_ff;
    int n_shared = nn_config_same_int(c, "expert_shared_count",
                                      "n_shared_experts|num_shared_experts|moe_num_shared_experts|num_shared_expert",
                                      h->k->shared && !nn_config_gguf(c));
    h->n_ff_shared = (int)nn_config_int(c, "expert_shared_feed_forward_length", NULL, 0);
    if (h->k->shared && h->n_ff_shared == 0 && n_shared >= 0 && n_shared <= 1024 && h->n_ff_expert <= 1 << 20)
        h->n_ff_shared = n_shared * h->n_ff_expert;
    if (nn_config_arch(c, "ernie4_5_moe")) { /* other readers want both; they count from the first layer with experts */
        nn_config_derived_int(c, "interleave_moe_layer_step", 1);
        nn_config_derived_int(c, "expert_shared_feed_forward_length", h->n_ff_shared);
    }
    h->n_dense = nn_config_leading(c, "leading_dense_block_count",
                                   "first_k_dense_replace|moe_layer_start_index|num_dense_layers", h->k->n_dense,
                                   "mlp_layer_types", "dense");
    h->renorm = (h->k->is & ALWAYS_RENORM) || nn_config_bool(c, "expert_weights_norm", "norm_topk_prob", false);
    h->scale = (float)nn_config_real(c, "expert_weights_scale", "routed_scaling_factor|router_scaling_factor",
                                     nn_config_gguf(c) ? 1 : h->k->scale);
    nn_config_derived_bool(c, "expert_weights_norm",
                           h->renorm); /* defaults of config.json are not the other format's */
    if (h->scale != 1.0f) nn_config_derived(c, "expert_weights_scale", (double)h->scale);
    nn_config_derived_int(c, "expert_gating_func", h->k->is & SIGMOID ? 2 : 1);
    refuse(c, h);
    h->d.n_layer -= h->n_next;
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ .base = h->k->base, .interleaved = h->k->is & NEIGHBOURS });
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    bool           post = h->k->is & POST_NORM;
    int            n = d->n_embd, q = d->n_head * d->head_dim, kv = d->n_kv * d->head_dim;
    nn_bind_vec(b, &w->attn_norm, post ? "post_attention_norm" : "attn_norm",
                post ? "post_attention_layernorm" : "input_layernorm", n, 0);
    nn_bind_attention(b, &w->attn, n, q, kv, NN_ROTARY);
    if (h->k->is & ROW_NORM) nn_bind_head_norms(b, &w->attn, q, kv, 0);
    if (h->k->is & HEAD_NORM) nn_bind_head_norms(b, &w->attn, d->head_dim, d->head_dim, 0);
    nn_bind_vec(b, &w->ffn_norm, post ? "post_ffw_norm" : "ffn_norm",
                post ? "post_feedforward_layernorm" : "post_attention_layernorm", n, 0);
    if (i < h->n_dense || !nn_bind_exists(b, "ffn_gate_inp", "mlp.gate|mlp.gate.wg|mlp.router.gate")) {
        nn_bind_ffn(b, &w->ffn, "mlp", n, d->n_ff);
        return;
    }
    nn_bind_ffn_experts(b, &w->ffn, "mlp", n, h->n_ff_expert, h->n_expert, h->k->is & SIGMOID ? NN_BARE : NN_OPTIONAL);
    if (h->n_ff_shared) nn_bind_ffn_shared(b, &w->ffn, h->k->shared, n, h->n_ff_shared);
}

static nn_buf attend(nn_tape *t, nn_buf n, const hparams *h, const nn_heads *w, int i) {
    const nn_dims *d = &h->d;
    nn_attn_spec   attn = nn_attn_plain(d, 0);
    nn_buf         q = nn_project(t, n, w->q), k = nn_project(t, n, w->k), v = nn_project(t, n, w->v);
    bool           early = w->q_norm && !(h->k->is & LATE_NORM), late = w->q_norm && !early;
    if (early) {
        q = nn_rms_norm(t, q, w->q_norm, d->eps);
        k = nn_rms_norm(t, k, w->k_norm, d->eps);
    }
    if (h->clip > 0) {
        nn_clip(t, q, h->clip);
        nn_clip(t, k, h->clip);
        nn_clip(t, v, h->clip);
    }
    nn_rotate(t, q, k, d->head_dim, &h->rope);
    if (late) {
        q = nn_rms_norm(t, q, w->q_norm, d->eps);
        k = nn_rms_norm(t, k, w->k_norm, d->eps);
    }
    nn_kv_store(t, i, k, v);
    return nn_project(t, nn_attention(t, i, q, attn), w->o);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams    *h = net->hp;
    const nn_dims    *d = &h->d;
    const nn_ends    *tw = net->top;
    const layer      *lw = net->layers;
    bool              post = h->k->is & POST_NORM;
    const nn_moe_spec how = { .n_expert = h->n_expert,
                              .n_used = h->n_used,
                              .score = h->k->is & SIGMOID ? NN_SCORE_SIGMOID : NN_SCORE_SOFTMAX,
                              .renorm = h->renorm,
                              .renorm_eps = 1e-20f,
                              .scale = h->scale,
                              .glu.act = NN_ACT_SILU };

    nn_buf x = nn_embed(t, tw->embd, 1.0f);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = &lw[i];
        nn_buf       y = attend(t, post ? x : nn_rms_norm(t, x, w->attn_norm, d->eps), h, &w->attn, i);
        nn_add(t, x, post ? nn_rms_norm(t, y, w->attn_norm, d->eps) : y);
        y = nn_ffn_apply(t, post ? x : nn_rms_norm(t, x, w->ffn_norm, d->eps), &w->ffn, how);
        nn_add(t, x, post ? nn_rms_norm(t, y, w->ffn_norm, d->eps) : y);
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps), tw->head, 1.0f, 0.0f);
}

#define FAMILY(id, ...) static const char *const names_##id[] = { __VA_ARGS__, NULL }
FAMILY(olmoe, "olmoe");
FAMILY(flex_olmo, "flex_olmo");
FAMILY(ernie4_5_moe, "ernie4_5-moe", "ernie4_5_moe");
FAMILY(hunyuan_moe, "hunyuan-moe", "hunyuan_v1_moe");
FAMILY(hy_v3, "hy_v3");
FAMILY(deepseek_1, "deepseek");
const nn_arch models_olmoe = { NN_PLAIN, .names = names_olmoe };
const nn_arch models_flex_olmo = { NN_PLAIN, .hf_only = true, .names = names_flex_olmo };
const nn_arch models_ernie4_5_moe = { NN_PLAIN, .gguf_only = true, .names = names_ernie4_5_moe,
                                      .tied = names_ernie4_5_moe };
const nn_arch models_hunyuan_moe = { NN_PLAIN, .gguf_only = true, .names = names_hunyuan_moe };
const nn_arch models_hy_v3 = { NN_PLAIN, .names = names_hy_v3 };
const nn_arch models_deepseek_1 = { NN_PLAIN, .names = names_deepseek_1, .permuted_qk = true };
