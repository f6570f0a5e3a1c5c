/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kimi Linear: three layers of KDA (a delta rule whose state decays per key channel) to one of MLA without positions;
 * a dense SwiGLU layer first, then sigmoid-routed experts beside shared ones.
 */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_dims    d;
    int        kda_heads, kda_dim, taps;
    int        rank, nope, pe, dim_v; /* MLA */
    int        n_expert, n_used, n_ff_exp, n_shared, n_dense, n_group, top_group;
    bool       renorm;
    float      scale;
    const int *mla; /* per layer: MLA, else KDA */
} hparams;

static const nn_key keys[] = {
    NN_INT(kda_heads, "attention.head_count", "linear_attn_config.num_heads|linear_num_heads", NN_REQUIRED),
    NN_INT(kda_dim, "kda.head_dim", "linear_attn_config.head_dim|linear_head_dim", NN_REQUIRED),
    NN_INT(taps, "ssm.conv_kernel", "linear_attn_config.short_conv_kernel_size|linear_conv_kernel_dim", 4),
    NN_INT(rank, "attention.kv_lora_rank", "kv_lora_rank", NN_REQUIRED),
    NN_INT(nope, NULL, "qk_nope_head_dim", 0),
    NN_INT(pe, "rope.dimension_count", "qk_rope_head_dim", NN_REQUIRED),
    NN_INT(dim_v, "attention.value_length_mla", "v_head_dim", NN_REQUIRED),
    NN_INT(n_expert, "expert_count", "num_experts|num_local_experts|n_routed_experts", NN_REQUIRED),
    NN_INT(n_used, "expert_used_count", "num_experts_per_token|num_experts_per_tok", NN_REQUIRED),
    NN_INT(n_ff_exp, "expert_feed_forward_length", "moe_intermediate_size", NN_REQUIRED),
    NN_INT(n_shared, "expert_shared_count", "num_shared_experts|n_shared_experts", 1),
    NN_INT(n_group, "expert_group_count", "num_expert_group|n_group", 1),
    NN_INT(top_group, "expert_group_used_count", "topk_group", 1),
    NN_BOOL(renorm, "expert_weights_norm", "moe_renormalize|norm_topk_prob", 1),
    NN_FLOAT(scale, "expert_weights_scale", "routed_scaling_factor", 1),
    { 0 },
};

typedef nn_ends top;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm;
    nn_linear     q, k, v, o;
    /* KDA */
    const nn_vec *conv_q, *conv_k, *conv_v, *a, *dt_bias, *o_norm;
    nn_linear     f_a, f_b, g_a, g_b, beta;
    /* MLA */
    nn_linear     kv_a;
    const nn_vec *kv_norm;
    const nn_mat *k_b, *v_b;
    /* feed-forward */
    nn_linear     gate, up, down, router, sh_gate, sh_up, sh_down;
    const nn_vec *route_bias;
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
    if (h->nope == 0) h->nope = (int)(nn_config_int(c, "attention.key_length_mla", NULL, 0) - h->pe);
    nn_config_derived_int(c, "attention.key_length_mla", (int64_t)h->nope + h->pe);
    nn_config_derived_int(c, "attention.key_length", (int64_t)h->rank + h->pe); /* GGUF: the latent as one key head */
    nn_config_derived_int(c, "attention.value_length", h->rank);
    if (h->kda_heads < 1 || h->kda_heads > 4096 || h->kda_dim < 1 || h->kda_dim > 4096 || h->taps < 2 || h->taps > 8)
        nn_config_fail(c, "delta attention with %d heads of %d and %d taps makes no sense", h->kda_heads, h->kda_dim,
                       h->taps);
    if (h->rank < 1 || h->nope < 1 || h->pe < 1 || h->dim_v < 1 || h->rank > 65536 || h->nope > 65536 ||
        h->pe > 65536 || h->dim_v > 65536)
        nn_config_fail(c, "latent attention with rank %d and heads of %d + %d makes no sense", h->rank, h->nope, h->pe);
    if (h->n_expert < 1 || h->n_used < 1 || h->n_used > h->n_expert || h->n_ff_exp < 1 || h->n_shared < 0 ||
        h->n_shared > 1024)
        nn_config_fail(c, "%d of %d experts of width %d make no sense", h->n_used, h->n_expert, h->n_ff_exp);
    if (nn_config_has(c, NULL, "mla_use_nope") && !nn_config_bool(c, NULL, "mla_use_nope", true))
        nn_config_fail(c, "latent attention with rotated keys is not supported in this family");
}

static void bind_top(nn_binder *b, void *out, const void *hp) { nn_bind_ends(b, out, hp, 0); }

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
    nn_bind_vec(b, &w->a, "ssm_a", "self_attn.A_log", h->kda_heads, NN_NEG_EXP);
    nn_bind_vec(b, &w->dt_bias, "ssm_dt.bias", "self_attn.dt_bias", inner, 0);
    nn_bind_vec(b, &w->o_norm, "ssm_norm", "self_attn.o_norm", dim, 0);
}

static void bind_mla(nn_binder *b, layer *w, const hparams *h) {
    const int64_t d = h->d.n_embd, n = h->d.n_head;
    nn_bind_linear(b, &w->q, "attn_q", "self_attn.q_proj", d, n * (h->nope + h->pe), 0);
    nn_bind_linear(b, &w->kv_a, "attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa", d, h->rank + h->pe, 0);
    nn_bind_vec(b, &w->kv_norm, "attn_kv_a_norm", "self_attn.kv_a_layernorm", h->rank, 0);
    nn_bind_heads(b, &w->k_b, "attn_k_b", "self_attn.kv_b_proj", h->d.n_head, h->nope, h->rank, 0, h->nope + h->dim_v,
                  NN_HEADS_T);
    nn_bind_heads(b, &w->v_b, "attn_v_b", "self_attn.kv_b_proj", h->d.n_head, h->rank, h->dim_v, h->nope,
                  h->nope + h->dim_v, 0);
    nn_bind_linear(b, &w->o, "attn_output", "self_attn.o_proj", n * h->dim_v, d, 0);
}

static void bind_layer(nn_binder *b, void *out, const void *hp, int i) {
    const hparams *h = hp;
    layer         *w = out;
    const int64_t  d = h->d.n_embd, ff = h->n_ff_exp, shared = ff * h->n_shared;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", d, 0);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "post_attention_layernorm", d, 0);
    if (h->mla[i])
        bind_mla(b, w, h);
    else
        bind_kda(b, w, h);
    if (i < h->n_dense) { /* transformers saves these, too, under the name of the experts' block */
        nn_bind_linear(b, &w->gate, "ffn_gate", "mlp.gate_proj|block_sparse_moe.gate_proj", d, h->d.n_ff, 0);
        nn_bind_linear(b, &w->up, "ffn_up", "mlp.up_proj|block_sparse_moe.up_proj", d, h->d.n_ff, 0);
        nn_bind_linear(b, &w->down, "ffn_down", "mlp.down_proj|block_sparse_moe.down_proj", h->d.n_ff, d, 0);
        return;
    }
    nn_bind_linear(b, &w->router, "ffn_gate_inp", "block_sparse_moe.gate|mlp.gate", d, h->n_expert, NN_NO_BIAS);
    nn_bind_vec(b, &w->route_bias, "exp_probs_b.bias|exp_probs_b",
                "block_sparse_moe.gate.e_score_correction_bias|mlp.gate.e_score_correction_bias", h->n_expert,
                NN_OPTIONAL);
    nn_bind_experts(b, &w->gate, "ffn_gate_exps", "block_sparse_moe.experts.*.w1|mlp.experts.gate_up_proj#0/2",
                    h->n_expert, d, ff, 0);
    nn_bind_experts(b, &w->up, "ffn_up_exps", "block_sparse_moe.experts.*.w3|mlp.experts.gate_up_proj#1/2", h->n_expert,
                    d, ff, 0);
    nn_bind_experts(b, &w->down, "ffn_down_exps", "block_sparse_moe.experts.*.w2|mlp.experts.down_proj", h->n_expert,
                    ff, d, 0);
    if (shared == 0) return;
    nn_bind_linear(b, &w->sh_gate, "ffn_gate_shexp",
                   "block_sparse_moe.shared_experts.gate_proj|mlp.shared_experts.gate_proj", d, shared, 0);
    nn_bind_linear(b, &w->sh_up, "ffn_up_shexp", "block_sparse_moe.shared_experts.up_proj|mlp.shared_experts.up_proj",
                   d, shared, 0);
    nn_bind_linear(b, &w->sh_down, "ffn_down_shexp",
                   "block_sparse_moe.shared_experts.down_proj|mlp.shared_experts.down_proj", shared, d, 0);
}

static nn_state state(const void *hp, int i) {
    const hparams *h = hp;
    if (h->mla[i]) return (nn_state){ .kind = NN_STATE_PAGED_LATENT, .n_kv = 1, .dim_k = h->rank, .dim_v = h->pe };
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

static void mla(nn_tape *t, const hparams *h, const layer *w, int i, nn_buf x, nn_buf n) {
    const int head = h->nope + h->pe;
    nn_buf    q = nn_project(t, n, w->q), kv = nn_project(t, n, w->kv_a);
    nn_latent_store(t, i, nn_rms_norm(t, nn_take(t, kv, 0, h->rank), w->kv_norm, h->d.eps),
                    nn_take(t, kv, h->rank, h->pe));
    nn_buf absorbed = nn_project_heads(t, nn_take_each(t, q, head, 0, h->nope), w->k_b);
    nn_buf o = nn_latent_attention(t, i, absorbed, nn_take_each(t, q, head, h->nope, h->pe), h->d.n_head,
                                   1.0f / sqrtf((float)head));
    nn_project_add(t, x, nn_project_heads(t, o, w->v_b), w->o);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const top     *tw = net->top;
    nn_buf         x = nn_embed(t, tw->embd, 1);
    for (int i = 0; i < h->d.n_layer; i++) {
        const layer *w = (const layer *)net->layers + i;
        nn_buf       n = nn_rms_norm(t, x, w->attn_norm, h->d.eps);
        if (h->mla[i])
            mla(t, h, w, i, x, n);
        else
            kda(t, h, w, i, x, n);
        n = nn_rms_norm(t, x, w->ffn_norm, h->d.eps);
        if (i < h->n_dense) {
            nn_project_add(t, x, nn_glu(t, n, w->gate, w->up, NN_ACT_SILU), w->down);
            continue;
        }
        nn_moe_spec m = { .router = w->router,
                          .gate = w->gate,
                          .up = w->up,
                          .down = w->down,
                          .n_expert = h->n_expert,
                          .n_used = h->n_used,
                          .score = NN_SCORE_SIGMOID,
                          .bias = w->route_bias,
                          .renorm = h->renorm,
                          .n_group = h->n_group > 1 ? h->n_group : 0,
                          .top_group = h->top_group,
                          .renorm_eps = 1e-20f,
                          .scale = h->scale,
                          .glu = { .act = NN_ACT_SILU } };
        nn_add(t, x, nn_moe(t, n, m));
        if (h->n_shared > 0) nn_project_add(t, x, nn_glu(t, n, w->sh_gate, w->sh_up, NN_ACT_SILU), w->sh_down);
    }
    x = nn_rms_norm(t, nn_outputs(t, x), tw->norm, h->d.eps);
    nn_logits(t, x, tw->head, 1, 0);
}

static const char *const names[] = { "kimi-linear", "kimi_linear", NULL };

const nn_arch models_kimi_linear = { NN_FAMILY, .gguf_only = true, .names = names, .act = "silu|swish" };
