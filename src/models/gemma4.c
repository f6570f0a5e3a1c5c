/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gemma 4 (text): Gemma's block with two head sizes (sliding and full layers), values normed like keys, the last layers
 * reading the keys and values of earlier ones, an input embedding per layer, and optionally experts beside the dense
 * feed-forward.
 */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_dims    d;
    int        window, head_dim_full, kv_full, n_shared, per_layer;
    int        n_expert, n_used, n_ff_expert;
    bool       double_wide, k_eq_v;
    float      logit_softcap;
    const int *slides, *ff;
    nn_rope    rope, rope_sliding;
} hparams;

typedef struct top {
    nn_ends       ends;
    const nn_mat *layer_embd;
    nn_linear     layer_proj;
    const nn_vec *layer_norm;
} top;

typedef struct layer {
    const nn_vec *attn_norm, *post_attn_norm, *ffn_norm, *post_ffn_norm, *q_norm, *k_norm, *scale;
    nn_linear     q, k, v, o, gate, up, down;
    nn_linear     layer_gate, layer_proj; /* the layer's own input */
    const nn_vec *layer_norm;
    const nn_vec *post_ffn_norm_1, *pre_ffn_norm_2, *post_ffn_norm_2, *router_scale, *expert_scale; /* experts */
    nn_linear     router, gate_e, up_e, down_e;
} layer;

static const nn_key keys[] = {
    NN_INT(d.head_dim, "attention.key_length_swa", "head_dim", NN_REQUIRED),
    NN_INT(head_dim_full, "attention.key_length", "global_head_dim", 512),
    NN_INT(window, "attention.sliding_window", "sliding_window", NN_REQUIRED),
    NN_INT(n_shared, "attention.shared_kv_layers", "num_kv_shared_layers", 0),
    NN_INT(per_layer, "embedding_length_per_layer_input", "hidden_size_per_layer_input", 0),
    NN_INT(n_expert, "expert_count", "num_experts|num_local_experts", 0),
    NN_INT(n_used, "expert_used_count", "top_k_experts", 0),
    NN_INT(n_ff_expert, "expert_feed_forward_length", "moe_intermediate_size", 0),
    NN_BOOL(double_wide, NULL, "use_double_wide_mlp", 0),
    NN_BOOL(k_eq_v, NULL, "attention_k_eq_v", 0),
    NN_FLOAT(logit_softcap, "final_logit_softcapping", "final_logit_softcapping", 0),
    { 0 },
};

static int head_dim(const hparams *h, int i) { return h->slides[i] ? h->d.head_dim : h->head_dim_full; }
static int n_kv(const hparams *h, int i) { return h->slides[i] ? h->d.n_kv : h->kv_full; }

/* The layer whose keys and values layer i reads: itself, or the last one of its kind that stores any. */
static int kv_layer(const hparams *h, int i) {
    int first = h->d.n_layer - h->n_shared;
    if (i < first) return i;
    for (int j = first - 1; j >= 0; j--) {
        if (h->slides[j] == h->slides[i]) return j;
    }
    return i;
}

/* The head sizes of both kinds of layer. GGUF lists the key heads and names both sizes; config.json as published says
 * what full layers have (global_head_dim, num_global_key_value_heads), as transformers writes it per_layer_config says
 * it layer by layer. */
static void read_heads(nn_config *c, hparams *h) {
    bool       by_layer = !nn_config_gguf(c) && nn_config_has(c, NULL, "per_layer_config");
    const int *kv = nn_config_layer_ints(c, "attention.head_count_kv", "num_key_value_heads", h->d.n_kv);
    const int *dim = nn_config_layer_ints(c, NULL, "head_dim", h->d.head_dim);
    bool       seen[2] = { false, false };
    h->kv_full = (int)nn_config_int(c, NULL, h->k_eq_v ? "num_global_key_value_heads" : NULL, h->d.n_kv);
    for (int i = 0; i < h->d.n_layer && (by_layer || nn_config_gguf(c)); i++) {
        int *n = h->slides[i] ? &h->d.n_kv : &h->kv_full, *size = h->slides[i] ? &h->d.head_dim : &h->head_dim_full;
        int  own = by_layer ? dim[i] : *size;
        if (seen[h->slides[i]] && (*n != kv[i] || *size != own)) {
            nn_config_fail(c, "layer %d has %d key heads of %d elements, others of its kind %d of %d", i, kv[i], own,
                           *n, *size);
            return;
        }
        seen[h->slides[i]] = true;
        *n = kv[i];
        *size = own;
    }
}

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    nn_config_known(c, "use_bidirectional_attention", "false|vision"); /* vision: inside images only */
    if (h->n_shared < 0 || h->n_shared >= h->d.n_layer)
        nn_config_fail(c, "%d of %d layers share keys", h->n_shared, h->d.n_layer);
    h->slides = nn_config_layer_is(c, "attention.sliding_window_pattern", "layer_types", "sliding_attention", 6);
    for (int i = h->d.n_layer - h->n_shared; h->n_shared > 0 && i >= 0 && i < h->d.n_layer; i++) {
        if (kv_layer(h, i) == i)
            nn_config_fail(c, "num_kv_shared_layers: no layer before layer %d has its kind of keys", i);
    }
    read_heads(c, h);
    int       *ff = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *ff);
    const int *given = nn_config_layer_ints(c, "feed_forward_length", "intermediate_size", h->d.n_ff);
    for (int i = 0; i < h->d.n_layer; i++) {
        ff[i] = given[i] * (h->double_wide && h->n_shared > 0 && i >= h->d.n_layer - h->n_shared ? 2 : 1);
    }
    h->ff = ff;
    if (h->kv_full < 1 || h->kv_full > h->d.n_head || h->head_dim_full < 1 || h->head_dim_full > 65536 ||
        h->d.n_kv < 1 || h->d.n_kv > h->d.n_head || h->d.head_dim < 1 || h->d.head_dim > 65536 || h->per_layer < 0 ||
        h->per_layer > 65536)
        nn_config_fail(c, "%d key heads of %d elements, %d per-layer inputs make no sense", h->kv_full,
                       h->head_dim_full, h->per_layer);
    nn_config_derived_layers(c, "feed_forward_length", ff);
    int *heads = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *heads);
    for (int i = 0; i < h->d.n_layer; i++) heads[i] = n_kv(h, i);
    nn_config_derived_layers(c, "attention.head_count_kv", heads);
    nn_config_derived_int(c, "attention.key_length", h->head_dim_full);
    nn_config_derived_int(c, "attention.key_length_swa", h->d.head_dim);
    nn_config_derived_int(c, "attention.value_length_swa", h->d.head_dim);
    h->rope = nn_rope_read(c, &h->d,
                           (nn_rope_want){ .dim = h->head_dim_full, .base = 1000000, .layer_type = "full_attention" });
    h->rope_sliding = nn_rope_read(c, &h->d,
                                   (nn_rope_want){ .base = 10000,
                                                   .layer_type = "sliding_attention",
                                                   .gguf_base = "rope.freq_base_swa",
                                                   .gguf_dim = "rope.dimension_count_swa",
                                                   .unscaled = true });
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    top           *t = out;
    int            wide = h->d.n_layer * h->per_layer;
    nn_bind_ends(b, &t->ends, &h->d, 0);
    if (h->per_layer == 0) return;
    nn_bind_mat(b, &t->layer_embd, "per_layer_token_embd", "model.embed_tokens_per_layer", wide, h->d.n_vocab,
                NN_AT_LEAST);
    nn_bind_linear(b, &t->layer_proj, "per_layer_model_proj", "model.per_layer_model_projection", h->d.n_embd, wide, 0);
    nn_bind_vec(b, &t->layer_norm, "per_layer_proj_norm", "model.per_layer_projection_norm", h->per_layer, 0);
}

static void bind_experts(nn_binder *b, layer *w, const hparams *h) {
    int n = h->d.n_embd, ff = h->n_ff_expert;
    nn_bind_vec(b, &w->post_ffn_norm_1, "post_ffw_norm_1", "post_feedforward_layernorm_1", n, 0);
    nn_bind_vec(b, &w->pre_ffn_norm_2, "pre_ffw_norm_2", "pre_feedforward_layernorm_2", n, 0);
    nn_bind_vec(b, &w->post_ffn_norm_2, "post_ffw_norm_2", "post_feedforward_layernorm_2", n, 0);
    nn_bind_linear(b, &w->router, "ffn_gate_inp", "router.proj", n, h->n_expert, NN_OWN_SCALE);
    nn_bind_vec(b, &w->router_scale, "ffn_gate_inp.scale", "router.scale", n, 0);
    nn_bind_vec(b, &w->expert_scale, "ffn_down_exps.scale", "router.per_expert_scale", h->n_expert, 0);
    nn_bind_experts(b, &w->gate_e, "ffn_gate_up_exps#0/2|ffn_gate_exps",
                    "experts.gate_up_proj#0/2|experts.switch_glu.gate_proj", h->n_expert, n, ff, 0);
    nn_bind_experts(b, &w->up_e, "ffn_gate_up_exps#1/2|ffn_up_exps",
                    "experts.gate_up_proj#1/2|experts.switch_glu.up_proj", h->n_expert, n, ff, 0);
    nn_bind_experts(b, &w->down_e, "ffn_down_exps", "experts.down_proj|experts.switch_glu.down_proj", h->n_expert, ff,
                    n, NN_OWN_SCALE);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    layer         *w = out;
    int            n = h->d.n_embd, dim = head_dim(h, i), q = h->d.n_head * dim, kv = n_kv(h, i) * dim, ff = h->ff[i];
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", n, 0);
    nn_bind_linear(b, &w->q, "attn_q", "self_attn.q_proj", n, q, 0);
    nn_bind_vec(b, &w->q_norm, "attn_q_norm", "self_attn.q_norm", dim, 0);
    if (kv_layer(h, i) == i) {
        nn_bind_linear(b, &w->k, "attn_k", "self_attn.k_proj", n, kv, 0);
        nn_bind_vec(b, &w->k_norm, "attn_k_norm", "self_attn.k_norm", dim, 0);
        nn_bind_linear(b, &w->v, "attn_v", "self_attn.v_proj", n, kv,
                       h->slides[i] ? 0 : NN_OPTIONAL); /* none: v is k */
    }
    nn_bind_linear(b, &w->o, "attn_output", "self_attn.o_proj", q, n, 0);
    nn_bind_vec(b, &w->post_attn_norm, "post_attention_norm", "post_attention_layernorm", n, 0);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "pre_feedforward_layernorm", n, 0);
    nn_bind_vec(b, &w->post_ffn_norm, "post_ffw_norm", "post_feedforward_layernorm", n, 0);
    nn_bind_linear(b, &w->gate, "ffn_gate", "mlp.gate_proj", n, ff, 0);
    nn_bind_linear(b, &w->up, "ffn_up", "mlp.up_proj", n, ff, 0);
    nn_bind_linear(b, &w->down, "ffn_down", "mlp.down_proj", ff, n, 0);
    nn_bind_vec(b, &w->scale, "layer_output_scale", "layer_scalar", 1, NN_OPTIONAL);
    if (h->n_expert) bind_experts(b, w, h);
    if (h->per_layer == 0) return;
    nn_bind_linear(b, &w->layer_gate, "inp_gate", "per_layer_input_gate", n, h->per_layer, 0);
    nn_bind_linear(b, &w->layer_proj, "proj", "per_layer_projection", h->per_layer, n, 0);
    nn_bind_vec(b, &w->layer_norm, "post_norm", "post_per_layer_input_norm", n, 0);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    if (kv_layer(h, i) != i) return (nn_state){ .kind = NN_STATE_NONE };
    return nn_state_kv(n_kv(h, i), head_dim(h, i), h->slides[i] ? h->window : 0);
}

static nn_buf attend(nn_tape *t, nn_buf n, const hparams *h, const layer *w, int i) {
    const nn_rope *rope = h->slides[i] ? &h->rope_sliding : &h->rope;
    int            dim = head_dim(h, i), from = kv_layer(h, i);
    nn_attn_spec   attn = {
          .n_head = h->d.n_head,
          .n_kv = n_kv(h, i),
          .dim_k = dim,
          .window = h->slides[i] ? h->window : 0,
          .scale = 1.0f,
          .strict = !h->slides[i], /* pictures see themselves whole in sliding layers only */
    };
    nn_buf q = nn_rms_norm(t, nn_project(t, n, w->q), w->q_norm, h->d.eps);
    nn_rope_apply(t, q, dim, rope);
    if (from == i) {
        nn_buf k = nn_project(t, n, w->k), v = w->v.w ? nn_project(t, n, w->v) : k;
        v = nn_rms_norm_groups(t, v, dim, NULL, h->d.eps);
        k = nn_rms_norm(t, k, w->k_norm, h->d.eps);
        nn_rope_apply(t, k, dim, rope);
        nn_kv_store(t, i, k, v);
    }
    return nn_project(t, nn_attention(t, from, q, attn), w->o);
}

static nn_buf feed_forward(nn_tape *t, nn_buf x, const hparams *h, const layer *w) {
    float  eps = h->d.eps;
    nn_buf y = nn_project(t, nn_glu(t, nn_rms_norm(t, x, w->ffn_norm, eps), w->gate, w->up, NN_ACT_GELU_TANH), w->down);
    if (!h->n_expert) return y;
    nn_buf r = nn_rms_norm_groups(t, x, h->d.n_embd, w->router_scale, eps);
    nn_scale(t, r, 1.0f / sqrtf((float)h->d.n_embd));
    nn_buf e = nn_moe(t, nn_rms_norm(t, x, w->pre_ffn_norm_2, eps),
                      (nn_moe_spec){ .router = w->router,
                                     .gate = w->gate_e,
                                     .up = w->up_e,
                                     .down = w->down_e,
                                     .n_expert = h->n_expert,
                                     .n_used = h->n_used,
                                     .score = NN_SCORE_SOFTMAX,
                                     .renorm = true,
                                     .expert_scale = w->expert_scale,
                                     .glu.act = NN_ACT_GELU_TANH,
                                     .router_in = r });
    y = nn_rms_norm(t, y, w->post_ffn_norm_1, eps);
    nn_add(t, y, nn_rms_norm(t, e, w->post_ffn_norm_2, eps));
    return y;
}

/* Every layer's own input: an embedding of the token and a projection of the first layer's input. */
static nn_buf layer_inputs(nn_tape *t, nn_buf x, const hparams *h, const top *tw) {
    nn_buf token = nn_embed_tokens(t, tw->layer_embd, sqrtf((float)h->per_layer)), y = nn_project(t, x, tw->layer_proj);
    nn_scale(t, y, 1.0f / sqrtf((float)h->d.n_embd));
    y = nn_rms_norm(t, y, tw->layer_norm, h->d.eps);
    nn_add(t, y, token);
    nn_scale(t, y, sqrtf(0.5f));
    return y;
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const top     *tw = net->top;
    const layer   *lw = net->layers;
    float          eps = h->d.eps;

    nn_buf x = nn_embed(t, tw->ends.embd, sqrtf((float)h->d.n_embd));
    nn_buf inputs = h->per_layer ? layer_inputs(t, x, h, tw) : 0;
    for (int i = 0; i < h->d.n_layer; i++) {
        const layer *w = &lw[i];
        nn_add(t, x, nn_rms_norm(t, attend(t, nn_rms_norm(t, x, w->attn_norm, eps), h, w, i), w->post_attn_norm, eps));
        nn_add(t, x, nn_rms_norm(t, feed_forward(t, x, h, w), w->post_ffn_norm, eps));
        if (h->per_layer) {
            nn_buf own = nn_take(t, inputs, i * h->per_layer, h->per_layer);
            nn_gate(t, own, nn_project(t, x, w->layer_gate), NN_ACT_GELU_TANH);
            nn_add(t, x, nn_rms_norm(t, nn_project(t, own, w->layer_proj), w->layer_norm, eps));
        }
        if (w->scale) nn_scale(t, x, w->scale->data[0]);
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->ends.norm, eps), tw->ends.head, 1.0f, h->logit_softcap);
}

static const char *const names[] = { "gemma4", "gemma4_text", "gemma4_unified_text", NULL };
const nn_arch            models_gemma4 = { NN_FAMILY, .names = names, .act = "gelu_pytorch_tanh", .tied = names };
