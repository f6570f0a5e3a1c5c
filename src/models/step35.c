/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Step 3.5 Flash and the text of Step 3.7: one full layer to three with a window, which have more query heads, rotate
 * all of a head instead of half of it and know no scaling rule. Attention is gated per head; a shared expert stands
 * beside the routed ones. The last layers limit what their gated units make. Norms are stored as w - 1.
 */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_dims      d;
    int          n_expert, n_used, n_ff_expert, n_ff_shared, n_next, window;
    float        scale, attn_scale;
    bool         renorm;
    const int   *slides, *heads, *kv;    /* per layer */
    const float *limits, *limits_shared; /* per layer; 0: none */
    nn_rope      rope[2];                /* full, windowed */
} hparams;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm;
    nn_heads      attn;
    nn_linear     gate; /* one logit per head */
    nn_ffn        ffn;
} layer;

static const nn_key keys[] = {
    NN_INT(n_expert, "expert_count", "moe_num_experts|n_routed_experts|num_local_experts", NN_REQUIRED),
    NN_INT(n_used, "expert_used_count", "moe_top_k|num_experts_per_tok", NN_REQUIRED),
    NN_INT(n_ff_expert, "expert_feed_forward_length", "moe_intermediate_size", NN_REQUIRED),
    NN_INT(n_ff_shared, "expert_shared_feed_forward_length", "share_expert_dim|share_expert_dims", NN_REQUIRED),
    NN_INT(n_next, "nextn_predict_layers", NULL, 0),
    NN_INT(window, "attention.sliding_window", "sliding_window", NN_REQUIRED),
    NN_INT(d.n_kv, "attention.head_count_kv", "num_attention_groups|num_key_value_heads", NN_REQUIRED),
    NN_FLOAT(scale, "expert_weights_scale", "moe_router_scaling_factor", 1),
    NN_BOOL(renorm, "expert_weights_norm", "norm_expert_weight", 1),
    { 0 },
};

static void refuse(nn_config *c, const hparams *h) {
    nn_config_only(c, NULL, "moe_router_activation", "sigmoid");
    nn_config_only_number(c, "expert_gating_func", NULL, 2);
    nn_config_known(c, "use_head_wise_attn_gate", "true");
    nn_config_known(c, "use_qk_norm", "true");
    nn_config_known(c, "use_moe_router_bias", "true");
    nn_config_known(c, "zero_centered", "true");
    nn_config_known(c, "norm_expert_weight", "true");
    nn_config_known(c, "yarn_only_types", "full_attention");
    nn_config_known(c, "use_rope_layers", "true");
    nn_config_known(c, "sink", "false");
    nn_config_known(c, "moe_every_n_layer", "1");
    nn_config_only(c, NULL, "attention_other_setting.attention_type", "sliding_attention");
    if (h->n_ff_expert < 1 || h->n_ff_expert > 1 << 20 || h->n_ff_shared < 1 || h->n_ff_shared > 1 << 20 ||
        h->window < 1)
        nn_config_fail(c, "experts of width %d, a shared one of %d, a window of %d: that makes no sense",
                       h->n_ff_expert, h->n_ff_shared, h->window);
    for (int i = 0; i < h->d.n_layer; i++) {
        if (h->heads[i] < 1 || h->heads[i] > 65536 || h->kv[i] < 1 || h->heads[i] % h->kv[i] ||
            (int64_t)h->heads[i] * h->d.head_dim > 1 << 24)
            nn_config_fail(c, "layer %d: %d attention heads cannot share %d key heads", i, h->heads[i], h->kv[i]);
        if (!(h->limits[i] >= 0) || !(h->limits_shared[i] >= 0))
            nn_config_fail(c, "layer %d: its gated units are limited to %g and %g", i, (double)h->limits[i],
                           (double)h->limits_shared[i]);
    }
}

/* As published, attention_other_setting says what windowed layers have; as transformers saves it, per_layer_config. */
static void read_heads(nn_config *c, hparams *h) {
    const int *heads = nn_config_layer_ints(c, "attention.head_count", "num_attention_heads", h->d.n_head);
    const int *kv =
        nn_config_layer_ints(c, "attention.head_count_kv", "num_attention_groups|num_key_value_heads", h->d.n_kv);
    int other = (int)nn_config_int(c, NULL, "attention_other_setting.num_attention_heads", 0),
        other_kv = (int)nn_config_int(c, NULL, "attention_other_setting.num_attention_groups", 0);
    int *own = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *own),
        *own_kv = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *own_kv);
    nn_config_only_number(c, NULL, "attention_other_setting.head_dim", h->d.head_dim);
    for (int i = 0; i < h->d.n_layer && own && own_kv; i++) {
        own[i] = other && h->slides[i] ? other : heads[i];
        own_kv[i] = other_kv && h->slides[i] ? other_kv : kv[i];
    }
    h->heads = own;
    h->kv = own_kv;
    nn_config_derived_layers(c, "attention.head_count", own);
    nn_config_derived_layers(c, "attention.head_count_kv", own_kv);
}

/* What a list says for the layers of one kind; they must agree. */
static double of_kind(nn_config *c, const hparams *h, const char *list, int slides, double dflt) {
    bool seen = false;
    for (int i = 0; i < h->d.n_layer; i++) {
        double x = nn_config_real_at(c, list, i, dflt);
        if (h->slides[i] != slides) continue;
        if (seen && x != dflt) nn_config_fail(c, "the field \"%s\" differs between layers of one kind", list);
        seen = true;
        dflt = x;
    }
    return dflt;
}

/* GGUF: the first key is for windowed layers, and full ones rotate half of that. */
static void read_ropes(nn_config *c, hparams *h) {
    bool listed = nn_config_count(c, NULL, "rope_theta") > 0;
    int  dim = (int)nn_config_int(c, "rope.dimension_count", NULL, h->d.head_dim);
    for (int k = 0; k < 2; k++) {
        nn_rope_want w = { .layer_type = k ? "sliding_attention" : "full_attention",
                           .base = of_kind(c, h, "rope_theta", k, 0),
                           .partial = of_kind(c, h, "partial_rotary_factors", k, 1),
                           .factors = h->d.head_dim / 2,
                           .unscaled = k };
        if (listed) w.hf_base = "rope_parameters.rope_theta";
        if (k) w.gguf_base = "rope.freq_base_swa";
        if (k) w.gguf_dim = "rope.dimension_count_swa";
        if (nn_config_gguf(c)) {
            w.partial = (k ? dim : dim / 2) / (double)h->d.head_dim;
            if (!k) w.gguf_dim = "rope.dimension_count_full"; /* no file has it */
        }
        h->rope[k] = nn_rope_read(c, &h->d, w);
    }
    if (h->rope[0].n_rot != h->d.head_dim / 2) nn_config_unsaid(c, "partial_rotary_factors");
    nn_config_derived_int(c, "rope.dimension_count", dim);
}

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    if (h->n_next < 0 || h->n_next >= h->d.n_layer) {
        nn_config_fail(c, "%d of %d layers are for multi-token prediction", h->n_next, h->d.n_layer);
        return;
    }
    h->slides = nn_config_layer_is(c, "attention.sliding_window_pattern", "layer_types", "sliding_attention", 0);
    /* 0 and null: none */
    h->limits = nn_config_layer_reals(c, "swiglu_clamp_exp", "swiglu_limits", 0);
    h->limits_shared = nn_config_layer_reals(c, "swiglu_clamp_shexp", "swiglu_limits_shared", 0);
    read_heads(c, h);
    refuse(c, h);
    double scalar = nn_config_real(c, NULL, "query_pre_attn_scalar", h->d.head_dim);
    if (!(scalar > 0)) nn_config_fail(c, "the field \"query_pre_attn_scalar\" is %g", scalar);
    if (scalar != h->d.head_dim) nn_config_unsaid(c, "query_pre_attn_scalar");
    h->attn_scale = (float)(1 / sqrt(scalar));
    h->d.n_layer -= h->n_next;
    read_ropes(c, h);
    nn_config_derived_int(c, "expert_gating_func", 2);
    nn_config_derived_bool(c, "expert_weights_norm", h->renorm);
    nn_config_derived_reals(c, "swiglu_clamp_exp", h->limits);
    nn_config_derived_reals(c, "swiglu_clamp_shexp", h->limits_shared);
}

static void bind_experts(nn_binder *b, nn_ffn *w, const hparams *h) {
    int n = h->d.n_embd, ff = h->n_ff_expert;
    nn_bind_linear(b, &w->router, "ffn_gate_inp", "moe.gate|mlp.gate.gate|mlp.gate", n, h->n_expert, NN_NO_BIAS);
    nn_bind_vec(b, &w->route_bias, "exp_probs_b.bias|exp_probs_b",
                "moe.router_bias|mlp.gate.router_bias|mlp.gate.e_score_correction_bias", h->n_expert, 0);
    nn_bind_experts(b, &w->gate, "ffn_gate_exps", "moe.gate_proj|mlp.switch_mlp.gate_proj|mlp.experts.gate_up_proj#0/2",
                    h->n_expert, n, ff, NN_NO_BIAS);
    nn_bind_experts(b, &w->up, "ffn_up_exps", "moe.up_proj|mlp.switch_mlp.up_proj|mlp.experts.gate_up_proj#1/2",
                    h->n_expert, n, ff, NN_NO_BIAS);
    nn_bind_experts(b, &w->down, "ffn_down_exps", "moe.down_proj|mlp.switch_mlp.down_proj|mlp.experts.down_proj",
                    h->n_expert, ff, n, NN_NO_BIAS);
    nn_bind_ffn_shared(b, w, "share_expert|mlp.share_expert|mlp.shared_experts", n, h->n_ff_shared);
}

static void bind_top(nn_binder *b, void *out, const void *p) { nn_bind_ends(b, out, p, NN_PLUS_ONE); }

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    int            n = d->n_embd, q = h->heads[i] * d->head_dim;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", n, NN_PLUS_ONE);
    nn_bind_attention(b, &w->attn, n, q, (int64_t)h->kv[i] * d->head_dim, 0);
    nn_bind_head_norms(b, &w->attn, d->head_dim, d->head_dim, NN_PLUS_ONE);
    nn_bind_linear(b, &w->gate, "attn_gate", "self_attn.g_proj", n, h->heads[i], 0);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "post_attention_layernorm", n, NN_PLUS_ONE);
    if (nn_bind_exists(b, "ffn_gate_inp", "moe.gate|mlp.gate.gate|mlp.gate"))
        bind_experts(b, &w->ffn, h);
    else
        nn_bind_ffn(b, &w->ffn, "mlp", n, d->n_ff);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    return nn_state_kv(h->kv[i], h->d.head_dim, h->slides[i] ? h->window : 0);
}

static nn_buf attend(nn_tape *t, nn_buf n, const hparams *h, const layer *w, int i) {
    nn_attn_spec a = { .n_head = h->heads[i],
                       .n_kv = h->kv[i],
                       .dim_k = h->d.head_dim,
                       .window = h->slides[i] ? h->window : 0,
                       .scale = h->attn_scale };
    nn_buf       y = nn_attend(t, i, n, &w->attn, &h->rope[h->slides[i]], a, h->d.eps);
    nn_gate(t, y, nn_project(t, n, w->gate), NN_ACT_SIGMOID);
    return nn_project(t, y, w->attn.o);
}

static nn_buf feed_forward(nn_tape *t, nn_buf n, const hparams *h, const layer *w, int i) {
    nn_glu_spec routed = { .act = NN_ACT_SILU, .limit = h->limits[i] },
                whole = { .act = NN_ACT_SILU, .limit = h->limits_shared[i] };
    if (!w->ffn.router.w) return nn_project(t, nn_glu_clamped(t, n, w->ffn.gate, w->ffn.up, whole), w->ffn.down);
    nn_buf y = nn_moe(t, n,
                      (nn_moe_spec){ .router = w->ffn.router,
                                     .gate = w->ffn.gate,
                                     .up = w->ffn.up,
                                     .down = w->ffn.down,
                                     .bias = w->ffn.route_bias,
                                     .n_expert = h->n_expert,
                                     .n_used = h->n_used,
                                     .score = NN_SCORE_SIGMOID,
                                     .renorm = h->renorm,
                                     .scale = h->scale,
                                     .glu = routed });
    nn_project_add(t, y, nn_glu_clamped(t, n, w->ffn.shared_gate, w->ffn.shared_up, whole), w->ffn.shared_down);
    return y;
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_ends *tw = net->top;
    const layer   *lw = net->layers;

    nn_buf x = nn_embed(t, tw->embd, 1.0f);
    for (int i = 0; i < h->d.n_layer; i++) {
        nn_add(t, x, attend(t, nn_rms_norm(t, x, lw[i].attn_norm, h->d.eps), h, &lw[i], i));
        nn_add(t, x, feed_forward(t, nn_rms_norm(t, x, lw[i].ffn_norm, h->d.eps), h, &lw[i], i));
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, h->d.eps), tw->head, 1.0f, 0.0f);
}

const nn_arch models_step35 = { NN_PARTS,
                                .top_size = sizeof(nn_ends),
                                .bind_top = bind_top,
                                .state = state,
                                .gguf_only = true,
                                .names = NN_NAMES("step35", "step3p5"),
                                .act = "silu|swish|swigluoai" };
