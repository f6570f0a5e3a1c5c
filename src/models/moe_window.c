/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mixtures of experts whose layers look back a window or all the way: EXAONE MoE and AFMoE (only the windowed layers
 * rotate), Laguna, Mellum and MiMo 2 (each kind of layer has its own rotation), dots.1. AFMoE and Laguna gate what
 * attention gives, AFMoE norms it and the feed-forward's result; MiMo 2 has narrower values, scaled, twice the key heads
 * in windows, and sinks there. A row of `kinds` says what differs.
 */
#include "nn/nn.h"

#include <math.h>

enum {
    HEAD_NORM = 1,   /* of q and k */
    SOFTMAX = 2,     /* scores; else sigmoids with a correction */
    ONLY_WINDOW = 4, /* layers without a window do not rotate */
    TWO_ROPES = 8,
    GATED = 16,    /* attention's result, by sigmoids or (Laguna) softplus */
    SANDWICH = 32, /* norms behind attention and feed-forward, too */
    RENORM = 64,   /* always */
    SINKS = 128,   /* in windows */
};

typedef struct kind {
    const char *gguf, *hf;
    unsigned    is;
    int         n_dense, every; /* where config.json is silent; every n-th layer is full */
    double      base, partial, scale;
    const char *shared;
} kind;

static const kind kinds[] = {
    { "exaone-moe", "exaone_moe", HEAD_NORM | ONLY_WINDOW, 1, 4, 1000000, 1, 2.5, "mlp.shared_experts" },
    { "afmoe", "afmoe", HEAD_NORM | ONLY_WINDOW | GATED | SANDWICH | RENORM, 1, 4, 10000, 1, 1, "mlp.shared_experts" },
    { "laguna", "laguna", HEAD_NORM | TWO_ROPES | GATED | RENORM, 1, 0, 500000, 0.5, 1,
      "mlp.shared_expert|mlp.shared_experts" },
    { "mellum", "mellum", HEAD_NORM | SOFTMAX | TWO_ROPES, 0, 0, 500000, 1, 1, NULL },
    { "mimo2", "mimo_v2_flash", TWO_ROPES | SINKS, 1, 0, 5000000, 0.334, 1, NULL },
    { "dots1", "dots1", HEAD_NORM, 0, 0, 10000, 1, 1, "mlp.shared_experts" },
};

typedef struct hparams {
    nn_dims     d;
    const kind *k;
    int         n_expert, n_used, n_ff_expert, n_ff_shared, n_dense, n_group, top_group, n_next, window, v_dim;
    float       scale, cap, value_scale, embd_scale;
    bool        renorm, laguna, gate_all;
    const int  *slides, *heads, *kv; /* per layer */
    nn_rope     rope[2];             /* full, windowed */
} hparams;

typedef struct layer {
    const nn_vec *attn_norm, *attn_post, *ffn_norm, *ffn_post, *sinks;
    nn_heads      attn;
    nn_linear     gate;
    nn_ffn        ffn;
} layer;

static const nn_key keys[] = {
    NN_INT(n_expert, "expert_count", "n_routed_experts|num_experts|num_local_experts", NN_REQUIRED),
    NN_INT(n_used, "expert_used_count", "num_experts_per_tok", NN_REQUIRED),
    NN_INT(n_ff_expert, "expert_feed_forward_length", "moe_intermediate_size", NN_REQUIRED),
    NN_INT(n_group, "expert_group_count", "n_group", 1),
    NN_INT(top_group, "expert_group_used_count", "topk_group", 1),
    NN_INT(n_next, "nextn_predict_layers", NULL, 0),
    NN_INT(window, "attention.sliding_window", "sliding_window", 0),
    NN_INT(v_dim, "attention.value_length", "v_head_dim", 0),
    NN_FLOAT(cap, "router_logit_softcapping", "moe_router_logit_softcapping", 0),
    NN_FLOAT(value_scale, "attention.value_scale", "attention_value_scale", 1),
    { 0 },
};

static void refuse(nn_config *c, const hparams *h) {
    nn_config_only(c, NULL, "hidden_act", "silu");
    nn_config_only(c, NULL, "score_func", "sigmoid");
    nn_config_only(c, NULL, "scoring_func", "sigmoid|noaux_tc"); /* dots.1 has the name of the method here */
    nn_config_only(c, NULL, "topk_method", "noaux_tc");
    nn_config_only_number(c, "expert_gating_func", NULL, h->k->is & SOFTMAX ? 1 : 2);
    nn_config_only_number(c, NULL, "moe_apply_router_weight_on_input", 0);
    nn_config_only_number(c, NULL, "add_full_attention_sink_bias", 0);
    if (h->k->is & SINKS) nn_config_only_number(c, NULL, "add_swa_attention_sink_bias", 1);
    if (h->k->is & RENORM) nn_config_only_number(c, "expert_weights_norm", "norm_topk_prob|route_norm", 1);
    if (h->n_ff_expert < 1 || h->n_ff_expert > 1 << 20 || h->n_ff_shared < 0 || h->n_ff_shared > 1 << 20 ||
        h->window < 0 || h->v_dim < 0 || h->v_dim > 65536)
        nn_config_fail(c, "experts of width %d, a shared one of %d, a window of %d: that makes no sense",
                       h->n_ff_expert, h->n_ff_shared, h->window);
    for (int i = 0; i < h->d.n_layer; i++) {
        if (h->heads[i] < 1 || h->heads[i] > 65536 || h->kv[i] < 1 || h->heads[i] % h->kv[i] ||
            (int64_t)h->heads[i] * h->d.head_dim > 1 << 24)
            nn_config_fail(c, "layer %d: %d attention heads cannot share %d key heads", i, h->heads[i], h->kv[i]);
    }
}

/* Which layers have a window, and how many heads each has. */
static void read_layers(nn_config *c, hparams *h) {
    bool       mimo = h->k->is & SINKS;
    int        after = nn_config_gguf(c) || nn_config_has(c, NULL, "layer_types|hybrid_layer_pattern")
                           ? h->d.n_layer
                           : (int)nn_config_int(c, NULL, "max_window_layers", h->d.n_layer);
    int        swa = (int)nn_config_int(c, NULL, mimo ? "swa_num_key_value_heads" : NULL, (int64_t)2 * h->d.n_kv);
    int       *slides = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *slides);
    int       *kv = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *kv);
    const int *list = nn_config_layer_is(c, "attention.sliding_window_pattern", "layer_types|hybrid_layer_pattern",
                                         "sliding_attention", h->k->every),
              *heads = nn_config_layer_ints(c, "attention.head_count_kv", NULL, h->d.n_kv);
    /* Laguna's files have no such key, or a number: every so many layers, from the first on, one is full. */
    bool counted = h->laguna && nn_config_gguf(c) && nn_config_count(c, "attention.sliding_window_pattern", NULL) == 0;
    int  every = counted ? (int)nn_config_int(c, "attention.sliding_window_pattern", NULL, 4) : 1;
    if (every < 1) nn_config_fail(c, "a full layer in every %d makes no sense", every);
    for (int i = 0; i < h->d.n_layer && every > 0; i++) {
        slides[i] = h->window > 0 && (counted ? i % every != 0 : list[i] || i >= after);
        kv[i] = nn_config_gguf(c) ? heads[i] : mimo && slides[i] ? swa : h->d.n_kv;
    }
    h->slides = slides;
    h->kv = kv;
    nn_config_derived_layers(c, "attention.sliding_window_pattern", slides);
    h->heads = nn_config_layer_ints(c, "attention.head_count", "num_attention_heads_per_layer", h->d.n_head);
    if (mimo) nn_config_derived_layers(c, "attention.head_count_kv", kv);
    nn_config_derived_layers(c, "attention.head_count", h->heads);
}

static void read_ropes(nn_config *c, hparams *h) {
    /* GGUF files say how much of a head rotates. */
    nn_rope_want full = { .base = h->k->base, .partial = nn_config_gguf(c) ? 1 : h->k->partial }, slid = full;
    if (h->k->is & TWO_ROPES) {
        full.layer_type = "full_attention";
        slid = (nn_rope_want){ .base = 10000,
                               .partial = h->laguna || nn_config_gguf(c) ? 1 : h->k->partial,
                               .layer_type = "sliding_attention",
                               .gguf_base = "rope.freq_base_swa",
                               .gguf_dim = "rope.dimension_count_swa",
                               .hf_base = "swa_rope_theta",
                               .unscaled = true };
        if (nn_config_gguf(c) && !nn_config_has(c, "rope.dimension_count_swa", NULL))
            slid.gguf_dim = "rope.dimension_count";
    }
    h->rope[0] = nn_rope_read(c, &h->d, full);
    h->rope[1] = h->k->is & TWO_ROPES ? nn_rope_read(c, &h->d, slid) : h->rope[0];
    if ((h->k->is & ONLY_WINDOW) && h->window > 0) h->rope[0].n_rot = 0;
}

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    for (h->k = kinds; !nn_config_arch(c, h->k->gguf) && !nn_config_arch(c, h->k->hf);) h->k++;
    h->laguna = nn_config_arch(c, "laguna");
    h->gate_all = !h->laguna || nn_config_is(c, NULL, "gating", "per-element", false);
    if (h->n_next < 0 || h->n_next >= h->d.n_layer) {
        nn_config_fail(c, "%d of %d layers are for multi-token prediction", h->n_next, h->d.n_layer);
        return;
    }
    read_layers(c, h);
    h->n_dense = nn_config_leading(c, "leading_dense_block_count", "first_k_dense_replace|num_dense_layers",
                                   h->k->n_dense, "mlp_layer_types", "dense");
    int64_t n_shared = nn_config_int(c, "expert_shared_count", "n_shared_experts|num_shared_experts", 0);
    h->n_ff_shared = (int)nn_config_int(c, "expert_shared_feed_forward_length", "shared_expert_intermediate_size", 0);
    if (h->k->shared && h->n_ff_shared == 0 && n_shared >= 0 && n_shared <= 1024 && h->n_ff_expert <= 1 << 20)
        h->n_ff_shared = (int)n_shared * h->n_ff_expert;
    refuse(c, h);
    h->renorm = (h->k->is & RENORM) || nn_config_bool(c, "expert_weights_norm", "norm_topk_prob", !h->laguna);
    nn_config_derived_bool(c, "expert_weights_norm",
                           h->renorm); /* defaults of config.json are not the other format's */
    h->scale =
        (float)nn_config_real(c, "expert_weights_scale", "routed_scaling_factor|route_scale|moe_routed_scaling_factor",
                              nn_config_gguf(c) ? 1 : h->k->scale);
    if (h->scale != 1.0f) nn_config_derived(c, "expert_weights_scale", (double)h->scale);
    h->embd_scale = nn_config_bool(c, NULL, "mup_enabled", nn_config_gguf(c) && (h->k->is & SANDWICH))
                        ? sqrtf((float)h->d.n_embd)
                        : 1.0f;
    if (h->v_dim == 0) h->v_dim = h->d.head_dim;
    nn_config_derived_int(c, "expert_gating_func", h->k->is & SOFTMAX ? 1 : 2);
    h->d.n_layer -= h->n_next;
    read_ropes(c, h);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    bool           both = h->k->is & SANDWICH;
    int            n = d->n_embd, q = h->heads[i] * d->head_dim;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", n, 0);
    nn_bind_linear(b, &w->attn.q, "attn_q", "self_attn.q_proj", n, q, 0);
    nn_bind_linear(b, &w->attn.k, "attn_k", "self_attn.k_proj", n, h->kv[i] * d->head_dim, 0);
    nn_bind_linear(b, &w->attn.v, "attn_v", "self_attn.v_proj", n, h->kv[i] * h->v_dim, 0);
    nn_bind_linear(b, &w->attn.o, "attn_output", "self_attn.o_proj", h->heads[i] * h->v_dim, n, 0);
    if (h->k->is & HEAD_NORM) nn_bind_head_norms(b, &w->attn, d->head_dim, d->head_dim, 0);
    if ((h->k->is & SINKS) && h->slides[i])
        nn_bind_vec(b, &w->sinks, "attn_sinks", "self_attn.attention_sink_bias|self_attn.sinks", h->heads[i], 0);
    if (h->k->is & GATED)
        nn_bind_linear(b, &w->gate, "attn_gate", "self_attn.gate_proj|self_attn.g_proj", n,
                       h->gate_all ? q : h->heads[i], 0);
    if (both) nn_bind_vec(b, &w->attn_post, "post_attention_norm", "post_attention_layernorm", n, 0);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", both ? "pre_mlp_layernorm" : "post_attention_layernorm", n, 0);
    if (both) nn_bind_vec(b, &w->ffn_post, "post_ffw_norm", "post_mlp_layernorm", n, 0);
    if (i < h->n_dense) {
        nn_bind_ffn(b, &w->ffn, "mlp", n, d->n_ff);
        return;
    }
    nn_bind_ffn_experts(b, &w->ffn, "mlp", n, h->n_ff_expert, h->n_expert, h->k->is & SOFTMAX ? NN_OPTIONAL : 0);
    if (h->n_ff_shared) nn_bind_ffn_shared(b, &w->ffn, h->k->shared, n, h->n_ff_shared);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    nn_state       s = nn_state_kv(h->kv[i], h->d.head_dim, h->slides[i] ? h->window : 0);
    s.dim_v = h->v_dim;
    return s;
}

static nn_buf attend(nn_tape *t, nn_buf n, const hparams *h, const layer *w, int i) {
    const nn_dims *d = &h->d;
    nn_attn_spec   a = { .n_head = h->heads[i],
                         .n_kv = h->kv[i],
                         .dim_k = d->head_dim,
                         .dim_v = h->v_dim,
                         .window = h->slides[i] ? h->window : 0,
                         .scale = 1.0f / sqrtf((float)d->head_dim),
                         .sinks = w->sinks };
    nn_buf         q = nn_project(t, n, w->attn.q), k = nn_project(t, n, w->attn.k), v = nn_project(t, n, w->attn.v);
    if (w->attn.q_norm) {
        q = nn_rms_norm(t, q, w->attn.q_norm, d->eps);
        k = nn_rms_norm(t, k, w->attn.k_norm, d->eps);
    }
    nn_rotate(t, q, k, d->head_dim, &h->rope[h->slides[i]]);
    if (h->value_scale != 1.0f) nn_scale(t, v, h->value_scale);
    nn_kv_store(t, i, k, v);
    nn_buf y = nn_attention(t, i, q, a);
    if (w->gate.w) nn_gate(t, y, nn_project(t, n, w->gate), h->laguna ? NN_ACT_SOFTPLUS : NN_ACT_SIGMOID);
    return nn_project(t, y, w->attn.o);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams    *h = net->hp;
    const nn_dims    *d = &h->d;
    const nn_ends    *tw = net->top;
    const layer      *lw = net->layers;
    const nn_moe_spec how = { .n_expert = h->n_expert,
                              .n_used = h->n_used,
                              .score = h->k->is & SOFTMAX ? NN_SCORE_SOFTMAX : NN_SCORE_SIGMOID,
                              .n_group = h->n_group,
                              .top_group = h->top_group,
                              .renorm = h->renorm,
                              .renorm_eps = 1e-20f,
                              .scale = h->scale,
                              .router_cap = h->cap,
                              .glu.act = NN_ACT_SILU };

    nn_buf x = nn_embed(t, tw->embd, h->embd_scale);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = &lw[i];
        nn_buf       y = attend(t, nn_rms_norm(t, x, w->attn_norm, d->eps), h, w, i);
        nn_add(t, x, w->attn_post ? nn_rms_norm(t, y, w->attn_post, d->eps) : y);
        y = nn_ffn_apply(t, nn_rms_norm(t, x, w->ffn_norm, d->eps), &w->ffn, how);
        nn_add(t, x, w->ffn_post ? nn_rms_norm(t, y, w->ffn_post, d->eps) : y);
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps), tw->head, 1.0f, 0.0f);
}

#define FAMILY(id, ...) static const char *const names_##id[] = { __VA_ARGS__, NULL }
FAMILY(exaone, "exaone-moe", "exaone_moe");
FAMILY(afmoe, "afmoe");
FAMILY(laguna, "laguna");
FAMILY(mellum, "mellum");
FAMILY(mimo2, "mimo2", "mimo_v2_flash");
FAMILY(dots1, "dots1");
const nn_arch models_exaone_moe = { NN_DECODER, .gguf_only = true, .names = names_exaone };
const nn_arch models_afmoe = { NN_DECODER, .names = names_afmoe };
const nn_arch models_laguna = { NN_DECODER, .names = names_laguna };
const nn_arch models_mellum = { NN_DECODER, .names = names_mellum };
const nn_arch models_mimo2 = { NN_DECODER, .gguf_only = true, .names = names_mimo2 };
const nn_arch models_dots1 = { NN_DECODER, .names = names_dots1 };
