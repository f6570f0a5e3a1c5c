/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kimi Linear: three layers of KDA (a delta rule whose state decays per key channel) to one of MLA without positions;
 * a dense SwiGLU layer first, then sigmoid-routed experts beside shared ones.
 */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_dims        d;
    int            kda_heads, kda_dim, taps;
    nn_latent_dims m;
    int            n_expert, n_used, n_ff_exp, n_shared, n_dense, n_group, top_group;
    bool           renorm;
    float          route_scale;
    const int     *mla; /* per layer: MLA, else KDA */
} hparams;

static const nn_key keys[] = {
    NN_INT(kda_heads, "attention.head_count", "linear_attn_config.num_heads|linear_num_heads", NN_REQUIRED),
    NN_INT(kda_dim, "kda.head_dim", "linear_attn_config.head_dim|linear_head_dim", NN_REQUIRED),
    NN_INT(taps, "ssm.conv_kernel", "linear_attn_config.short_conv_kernel_size|linear_conv_kernel_dim", 4),
    NN_LATENT_KEYS(m, "attention.value_length_mla"),
    NN_INT(n_expert, "expert_count", "num_experts|num_local_experts|n_routed_experts", NN_REQUIRED),
    NN_INT(n_used, "expert_used_count", "num_experts_per_token|num_experts_per_tok", NN_REQUIRED),
    NN_INT(n_ff_exp, "expert_feed_forward_length", "moe_intermediate_size", NN_REQUIRED),
    NN_INT(n_shared, "expert_shared_count", "num_shared_experts|n_shared_experts", 1),
    NN_INT(n_group, "expert_group_count", "num_expert_group|n_group", 1),
    NN_INT(top_group, "expert_group_used_count", "topk_group", 1),
    NN_BOOL(renorm, "expert_weights_norm", "moe_renormalize|norm_topk_prob", 1),
    NN_FLOAT(route_scale, "expert_weights_scale", "routed_scaling_factor", 1),
    { 0 },
};

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm;
    /* KDA */
    nn_linear     q, k, v, o, f_a, f_b, g_a, g_b, beta;
    const nn_vec *conv_q, *conv_k, *conv_v, *a, *dt_bias, *o_norm;
    nn_latent     mla;
    nn_ffn        ffn;
} layer;

static void setup(nn_config *c, void *hp) {
    hparams   *h = hp;
    const int *kv = nn_config_layer_ints(c, "attention.head_count_kv", NULL, 0);
    int       *mla = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *mla);
    bool       listed = nn_config_count(c, NULL, "layer_types") > 0;
    const int *types = nn_config_layer_is(c, NULL, "layer_types", "full_attention", 0);
    nn_config_only(c, NULL, "hidden_act", "silu");
    nn_config_only(c, NULL, "moe_router_activation_func", "sigmoid");
    nn_config_only_number(c, NULL, "moe_layer_freq", 1);
    nn_config_only_number(c, NULL, "mla_use_nope", 1);
    for (int i = 0; i < h->d.n_layer; i++) /* full_attn_layers counts from one */
        mla[i] = nn_config_gguf(c) ? kv[i] > 0
                 : listed          ? types[i]
                                   : nn_config_lists(c, NULL, "linear_attn_config.full_attn_layers", i + 1);
    h->mla = mla;
    nn_config_derived_layers(c, "attention.head_count_kv", mla); /* one latent, or none */
    nn_config_derived_int(c, "expert_gating_func", 2);
    h->n_dense =
        nn_config_leading(c, "leading_dense_block_count", "first_k_dense_replace", 1, "mlp_layer_types", "dense");
    nn_config_only_number(c, NULL, "q_lora_rank", 0);
    nn_latent_read(c, &h->m);
    h->m.eps = h->d.eps;
    nn_config_derived_int(c, "attention.key_length_mla", (int64_t)h->m.nope + h->m.rot);
    nn_config_derived_int(c, "attention.key_length", (int64_t)h->m.kv_rank + h->m.rot); /* GGUF: the latent as a head */
    nn_config_derived_int(c, "attention.value_length", h->m.kv_rank);
    if (h->kda_heads < 1 || h->kda_heads > 4096 || h->kda_dim < 1 || h->kda_dim > 4096 || h->taps < 2 || h->taps > 8)
        nn_config_fail(c, "delta attention with %d heads of %d and %d taps makes no sense", h->kda_heads, h->kda_dim,
                       h->taps);
    if (h->n_expert < 1 || h->n_used < 1 || h->n_used > h->n_expert || h->n_ff_exp < 1 || h->n_shared < 0 ||
        h->n_shared > 1024)
        nn_config_fail(c, "%d of %d experts of width %d make no sense", h->n_used, h->n_expert, h->n_ff_exp);
    if (nn_config_has(c, NULL, "mla_use_nope") && !nn_config_bool(c, NULL, "mla_use_nope", true))
        nn_config_fail(c, "latent attention with rotated keys is not supported in this family");
}

static void bind_kda(nn_binder *b, layer *w, const hparams *h) {
    const int64_t d = h->d.n_embd, dim = h->kda_dim, inner = h->kda_heads * dim;
    nn_bind_linear(b, &w->q, "attn_q", "self_attn.q_proj", d, inner, 0);
    nn_bind_linear(b, &w->k, "attn_k", "self_attn.k_proj", d, inner, 0);
    nn_bind_linear(b, &w->v, "attn_v", "self_attn.v_proj", d, inner, 0);
    nn_bind_linear(b, &w->o, "attn_output", "self_attn.o_proj", inner, d, 0);
    nn_bind_table(b, &w->conv_q, "ssm_conv1d_q", "self_attn.q_conv1d", inner, h->taps);
    nn_bind_table(b, &w->conv_k, "ssm_conv1d_k", "self_attn.k_conv1d", inner, h->taps);
    nn_bind_table(b, &w->conv_v, "ssm_conv1d_v", "self_attn.v_conv1d", inner, h->taps);
    nn_bind_linear(b, &w->f_a, "ssm_f_a", "self_attn.f_a_proj", d, dim, 0);
    nn_bind_linear(b, &w->f_b, "ssm_f_b", "self_attn.f_b_proj", dim, inner, 0);
    nn_bind_linear(b, &w->g_a, "ssm_g_a", "self_attn.g_a_proj", d, dim, 0);
    nn_bind_linear(b, &w->g_b, "ssm_g_b", "self_attn.g_b_proj", dim, inner, 0);
    nn_bind_linear(b, &w->beta, "ssm_beta", "self_attn.b_proj", d, h->kda_heads, 0);
    nn_bind_grid(b, &w->a, "ssm_a", "self_attn.A_log", h->kda_heads, 1, NN_NEG_EXP);
    nn_bind_vec(b, &w->dt_bias, "ssm_dt.bias", "self_attn.dt_bias", inner, 0);
    nn_bind_vec(b, &w->o_norm, "ssm_norm", "self_attn.o_norm", dim, 0);
}

static void bind_layer(nn_binder *b, void *out, const void *hp, int i) {
    const hparams *h = hp;
    layer         *w = out;
    const int64_t  d = h->d.n_embd, shared = (int64_t)h->n_ff_exp * h->n_shared;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", d, 0);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "post_attention_layernorm", d, 0);
    if (h->mla[i])
        nn_bind_latent(b, &w->mla, &h->m, &h->d);
    else
        bind_kda(b, w, h);
    if (i < h->n_dense) { /* transformers saves these, too, under the name of the experts' block */
        nn_bind_ffn(b, &w->ffn, "mlp|block_sparse_moe", d, h->d.n_ff);
        return;
    }
    nn_bind_ffn_experts(b, &w->ffn, "block_sparse_moe|mlp", d, h->n_ff_exp, h->n_expert, NN_OPTIONAL);
    if (shared) nn_bind_ffn_shared(b, &w->ffn, "block_sparse_moe.shared_experts|mlp.shared_experts", d, shared);
}

static nn_state state(const void *hp, int i) {
    const hparams *h = hp;
    if (h->mla[i]) return nn_latent_state(&h->m);
    return (nn_state){ .conv_channels = 3 * h->kda_heads * h->kda_dim,
                       .conv_kernel = h->taps,
                       .rec_heads = h->kda_heads,
                       .rec_dim_k = h->kda_dim,
                       .rec_dim_v = h->kda_dim };
}

static void kda(nn_tape *t, const hparams *h, const layer *w, int i, nn_buf x, nn_buf n) {
    const int dim = h->kda_dim, inner = h->kda_heads * dim;
    nn_buf    q = nn_conv(t, i, nn_project(t, n, w->q), w->conv_q, NULL, h->taps, 0, NN_ACT_SILU);
    nn_buf    k = nn_conv(t, i, nn_project(t, n, w->k), w->conv_k, NULL, h->taps, inner, NN_ACT_SILU);
    nn_buf    v = nn_conv(t, i, nn_project(t, n, w->v), w->conv_v, NULL, h->taps, 2 * inner, NN_ACT_SILU);
    nn_buf    g = nn_project(t, nn_project(t, n, w->f_a), w->f_b);
    nn_buf    beta = nn_project(t, n, w->beta);
    nn_decay(t, g, w->a, w->dt_bias);
    nn_act(t, beta, NN_ACT_SIGMOID);
    nn_delta_spec s = {
        .heads_k = h->kda_heads, .heads_v = h->kda_heads, .dim_k = dim, .dim_v = dim, .scale = 1.0f / sqrtf((float)dim)
    };
    nn_buf o = nn_delta(t, i, nn_l2_norm(t, q, dim, 1e-6f), nn_l2_norm(t, k, dim, 1e-6f), v, g, beta, s);
    o = nn_rms_norm(t, o, w->o_norm, h->d.eps);
    nn_gate(t, o, nn_project(t, nn_project(t, n, w->g_a), w->g_b), NN_ACT_SIGMOID);
    nn_project_add(t, x, o, w->o);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_ends *tw = net->top;
    nn_moe_spec    how = { .n_expert = h->n_expert,
                           .n_used = h->n_used,
                           .score = NN_SCORE_SIGMOID,
                           .renorm = h->renorm,
                           .n_group = h->n_group > 1 ? h->n_group : 0,
                           .top_group = h->top_group,
                           .renorm_eps = 1e-20f,
                           .scale = h->route_scale,
                           .glu.act = NN_ACT_SILU };
    nn_buf         x = nn_embed(t, tw->embd, 1);
    for (int i = 0; i < h->d.n_layer; i++) {
        const layer *w = (const layer *)net->layers + i;
        nn_buf       n = nn_rms_norm(t, x, w->attn_norm, h->d.eps);
        if (h->mla[i])
            nn_project_add(t, x, nn_latent_attend(t, i, n, n, &w->mla, &h->m, h->d.n_head), w->mla.o);
        else
            kda(t, h, w, i, x, n);
        nn_add(t, x, nn_ffn_apply(t, nn_rms_norm(t, x, w->ffn_norm, h->d.eps), &w->ffn, how));
    }
    x = nn_rms_norm(t, nn_outputs(t, x), tw->norm, h->d.eps);
    nn_logits(t, x, tw->head, 1, 0);
}

const nn_arch models_kimi_linear = { NN_DECODER, .gguf_only = true, .names = NN_NAMES("kimi-linear", "kimi_linear"),
                                     .act = "silu|swish", .kinds = "linear_attention|full_attention" };
