/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cohere 2 with experts: attention and feed-forward stand side by side behind one norm. Windowed layers rotate; so do
 * leading dense ones that look all the way back, where all of them do.
 */
#include "nn/nn.h"

typedef struct hparams {
    nn_dims    d;
    int        n_expert, n_used, n_ff_expert, n_shared, n_dense, window;
    float      logit_scale, shared_scale;
    bool       sigmoid, renorm, rms, dense_rotates;
    const int *slides;
    nn_rope    rope;
} hparams;

typedef struct layer {
    const nn_vec *norm;
    nn_heads      attn;
    nn_ffn        ffn;
} layer;

static const nn_key keys[] = {
    NN_INT(n_expert, "expert_count", "num_experts", NN_REQUIRED),
    NN_INT(n_used, "expert_used_count", "num_experts_per_tok", NN_REQUIRED),
    NN_INT(n_ff_expert, "expert_feed_forward_length", "intermediate_size", NN_REQUIRED),
    NN_INT(n_shared, "expert_shared_count", "num_shared_experts", 0),
    NN_INT(window, "attention.sliding_window", "sliding_window", NN_REQUIRED),
    NN_FLOAT(logit_scale, "logit_scale", "logit_scale", 0.0625),
    { 0 },
};

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    int     *slides = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *slides);
    int64_t  every = nn_config_int(c, NULL, "sliding_window_pattern", 4),
            lead = nn_config_int(c, NULL, "prefix_dense_sliding_window_pattern", 1);
    nn_config_only(c, NULL, "hidden_act", "silu");
    nn_config_only(c, NULL, "expert_selection_fn", "softmax|sigmoid");
    nn_config_only(c, NULL, "shared_expert_combination_strategy", "sum|average");
    h->n_dense =
        nn_config_leading(c, "leading_dense_block_count", "first_k_dense_replace", 0, "mlp_layer_types", "dense");
    if (!nn_config_gguf(c)) h->d.n_ff = (int)nn_config_int(c, NULL, "prefix_dense_intermediate_size", h->d.n_ff);
    nn_config_derived_int(c, "feed_forward_length", h->d.n_ff);
    if (every < 1 || lead < 1 || h->window < 1 || h->n_shared < 0 || h->n_shared > 1024 || h->n_ff_expert < 1 ||
        h->n_ff_expert > 1 << 20 || h->d.n_ff < 1 || h->d.n_ff > 1 << 24) {
        nn_config_fail(c, "a window of %d, %d shared experts of width %d: that makes no sense", h->window, h->n_shared,
                       h->n_ff_expert);
        return;
    }
    const int *list = nn_config_layer_is(c, "attention.sliding_window_pattern", "layer_types", "sliding_attention", 4);
    for (int i = 0; i < h->d.n_layer; i++) {
        bool dense = i < h->n_dense;
        slides[i] = nn_config_gguf(c) || nn_config_has(c, NULL, "layer_types")
                        ? list[i]
                        : (i - (dense ? 0 : h->n_dense) + 1) % (dense ? lead : every) != 0;
    }
    nn_config_derived_layers(c, "attention.sliding_window_pattern", slides);
    h->slides = slides;
    h->dense_rotates = lead == 1;
    h->sigmoid = nn_config_gguf(c) ? nn_config_int(c, "expert_gating_func", NULL, 1) == 2
                                   : nn_config_is(c, NULL, "expert_selection_fn", "sigmoid", false);
    nn_config_derived_int(c, "expert_gating_func", h->sigmoid ? 2 : 1);
    h->renorm = !h->sigmoid || nn_config_bool(c, "expert_weights_norm", "norm_topk_prob", !nn_config_gguf(c));
    h->shared_scale =
        nn_config_is(c, NULL, "shared_expert_combination_strategy", "sum", false) || h->n_shared == 0 ? 1.0f : 0.5f;
    if (h->n_shared && h->shared_scale == 1.0f) nn_config_unsaid(c, "shared_expert_combination_strategy");
    h->rms = nn_config_has(c, "attention.layer_norm_rms_epsilon", "rms_norm_eps") &&
             !(nn_config_gguf(c) && nn_config_has(c, "attention.layer_norm_epsilon", NULL));
    if (!h->rms) { /* other readers take the plain norm where this one's epsilon is zero */
        h->d.eps = (float)nn_config_real(c, "attention.layer_norm_epsilon", NULL, (double)h->d.eps);
        nn_config_derived(c, "attention.layer_norm_epsilon", (double)h->d.eps);
        nn_config_derived(c, "attention.layer_norm_rms_epsilon", 0);
    }
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ .interleaved = true });
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    int            n = d->n_embd;
    nn_bind_vec(b, &w->norm, "attn_norm", "input_layernorm", n, 0);
    nn_bind_qkvo(b, &w->attn, d);
    if (i < h->n_dense) {
        nn_bind_ffn(b, &w->ffn, "mlp", n, d->n_ff);
        return;
    }
    nn_bind_ffn_experts(b, &w->ffn, "mlp", n, h->n_ff_expert, h->n_expert, NN_OPTIONAL);
    if (h->n_shared) nn_bind_ffn_shared(b, &w->ffn, "mlp.shared_experts", n, (int64_t)h->n_ff_expert * h->n_shared);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    return nn_state_kv(h->d.n_kv, h->d.head_dim, h->slides[i] ? h->window : 0);
}

static nn_buf norm(nn_tape *t, nn_buf x, const hparams *h, const nn_vec *w) {
    return h->rms ? nn_rms_norm(t, x, w, h->d.eps) : nn_layer_norm(t, x, w, NULL, h->d.eps);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams    *h = net->hp;
    const nn_dims    *d = &h->d;
    const nn_ends    *tw = net->top;
    const layer      *lw = net->layers;
    nn_attn_spec      a = nn_attn_plain(d, 0);
    const nn_moe_spec how = { .n_expert = h->n_expert,
                              .n_used = h->n_used,
                              .score = h->sigmoid ? NN_SCORE_SIGMOID : NN_SCORE_SOFTMAX,
                              .renorm = h->renorm,
                              .glu.act = NN_ACT_SILU };

    nn_buf x = nn_embed(t, tw->embd, 1.0f);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = &lw[i];
        nn_buf       n = norm(t, x, h, w->norm);
        bool         rotates = h->slides[i] || (i < h->n_dense && h->dense_rotates);
        a.window = h->slides[i] ? h->window : 0;
        nn_buf y = nn_attend(t, i, n, &w->attn, rotates ? &h->rope : NULL, a, d->eps);
        nn_buf f = nn_ffn_apply(t, n, &w->ffn, how);
        nn_project_add(t, x, y, w->attn.o);
        nn_add_scaled(t, x, f, i < h->n_dense ? 1.0f : h->shared_scale);
    }
    nn_logits(t, norm(t, nn_outputs(t, x), h, tw->norm), tw->head, h->logit_scale, 0.0f);
}

static const char *const names[] = { "cohere2moe", "cohere2_moe", NULL };
const nn_arch            models_cohere2_moe = { NN_DECODER, .gguf_only = true, .names = names, .tied = names };
