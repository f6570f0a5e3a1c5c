/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DeepSeek V2/V3/R1, Kimi K2, GLM 4.7 Flash, A.X K1 and Mistral 4: multi-head latent attention and experts in
 * groups. Scores are sigmoids with a correction, and a group counts as its best two; DeepSeek V2 and Mistral 4 take the
 * softmax, and V2's groups count as their best. A.X K1 norms what its feed-forward gave.
 *
 * Attention runs in its absorbed form: the query is carried into the latent space by the key half of kv_b, scores and
 * sums happen there, and the value half brings the result back. Only the latent and one rotated key are remembered.
 */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_dims d;
    int     q_rank, kv_rank, nope, rot, v_dim;
    int     n_expert, n_used, n_ff_expert, n_shared, n_dense, n_group, top_group, gating, n_next;
    float   route_scale, attn_scale, beta;
    bool    renorm, softmax, interleaved, group_best, post_norm;
    int     period; /* of the positions' scale beta */
    nn_rope rope;
} hparams;

typedef nn_ends top;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm, *post_norm, *q_norm, *kv_norm;
    nn_linear     q_a, q_b, kv, k_rot, o; /* without query compression q_b takes the hidden state */
    const nn_mat *k_b, *v_b;              /* per head */
    nn_ffn        ffn;
} layer;

static const nn_key keys[] = {
    NN_INT(q_rank, "attention.q_lora_rank", "q_lora_rank", 0),
    NN_INT(kv_rank, "attention.kv_lora_rank", "kv_lora_rank", NN_REQUIRED),
    NN_INT(rot, "rope.dimension_count", "qk_rope_head_dim", NN_REQUIRED),
    NN_INT(nope, NULL, "qk_nope_head_dim", 0),
    NN_INT(v_dim, "attention.value_length_mla", "v_head_dim", 0),
    NN_INT(n_expert, "expert_count", "n_routed_experts|num_local_experts|num_experts", 0),
    NN_INT(n_used, "expert_used_count", "num_experts_per_tok", 0),
    NN_INT(n_ff_expert, "expert_feed_forward_length", "moe_intermediate_size", 0),
    NN_INT(n_shared, "expert_shared_count", "n_shared_experts", 0),
    NN_INT(n_group, "expert_group_count", "n_group", 1),
    NN_INT(top_group, "expert_group_used_count", "topk_group", 1),
    NN_INT(gating, "expert_gating_func", NULL, 0),
    NN_INT(n_next, "nextn_predict_layers", NULL, 0),
    NN_FLOAT(route_scale, "expert_weights_scale", "routed_scaling_factor", 1),
    NN_BOOL(interleaved, NULL, "rope_interleave", 1),
    { 0 },
};

/* What the routers know. V2 weighs with plain shares whatever norm_topk_prob says in transformers, and normed without
 * the scale in its authors' code: it is refused. */
static void read_router(nn_config *c, hparams *h) {
    bool v2 = nn_config_arch(c, "deepseek_v2"), mistral = nn_config_arch(c, "mistral4");
    nn_config_only(c, NULL, "hidden_act", "silu");
    nn_config_only(c, NULL, "topk_method", v2 ? "greedy|group_limited_greedy" : "noaux_tc");
    nn_config_only(c, NULL, "scoring_func", v2 || mistral ? "softmax" : "sigmoid");
    nn_config_only_number(c, NULL, "moe_layer_freq", 1);
    if (h->n_group < 1) h->n_group = 1; /* V2-Lite's may be null */
    if (v2) nn_config_only_number(c, NULL, "norm_topk_prob", 0);
    if (v2 && nn_config_is(c, NULL, "topk_method", "greedy", true)) h->n_group = 1;
    h->renorm = nn_config_bool(c, "expert_weights_norm", "norm_topk_prob", !v2 && !nn_config_gguf(c));
    if (nn_config_gguf(c) && (h->gating < 0 || h->gating > 2))
        nn_config_fail(c, "the field \"expert_gating_func\" is %d; this family knows 1 (softmax) and 2 (sigmoid)",
                       h->gating);
    /* DeepSeek V2's files have no such key; a group's value is no key of GGUF, either, but goes with the softmax. */
    h->softmax = nn_config_gguf(c) ? h->gating < 2 : v2 || mistral;
    h->group_best = h->softmax && !mistral;
    h->post_norm = nn_config_arch(c, "axk1");
    nn_config_derived_int(c, "expert_gating_func", h->softmax ? 1 : 2);
    nn_config_derived_int(c, "expert_group_count", h->n_group);
}

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    if (h->n_next < 0 || h->n_next >= h->d.n_layer) {
        nn_config_fail(c, "%d of %d layers are for multi-token prediction", h->n_next, h->d.n_layer);
        return;
    }
    h->d.n_layer -= h->n_next;
    if (nn_config_gguf(c)) {
        h->nope =
            (int)(nn_config_int(c, "attention.key_length_mla|attention.key_length", NULL, NN_REQUIRED_INT) - h->rot);
        if (h->v_dim == 0) h->v_dim = (int)nn_config_int(c, "attention.value_length", NULL, h->nope);
    }
    if (h->d.n_layer <= 0 || h->nope <= 0 || h->v_dim <= 0 || h->kv_rank <= 0 || h->rot <= 0 || h->nope > 65536 ||
        h->v_dim > 65536 || h->kv_rank > 65536 || h->rot > 65536) {
        nn_config_fail(c, "the sizes of the latent attention do not fit: %d + %d per query head, %d per value, rank %d",
                       h->nope, h->rot, h->v_dim, h->kv_rank);
        return;
    }
    if (h->n_shared < 0 || h->n_shared > 1024 || h->n_ff_expert < 0 || h->n_ff_expert > 1 << 20)
        nn_config_fail(c, "%d shared experts of width %d make no sense", h->n_shared, h->n_ff_expert);
    h->n_dense = nn_config_leading(c, "leading_dense_block_count", "first_k_dense_replace",
                                   nn_config_arch(c, "glm4_moe_lite") || nn_config_arch(c, "axk1")     ? 1
                                   : nn_config_arch(c, "deepseek_v2") || nn_config_arch(c, "mistral4") ? 0
                                                                                                       : 3,
                                   "mlp_layer_types", "dense");
    read_router(c, h);
    nn_config_derived_int(c, "attention.key_length_mla", h->nope + h->rot);
    nn_config_derived_int(c, "attention.value_length_mla", h->v_dim);
    nn_config_derived_int(c, "attention.head_count_kv", 1); /* GGUF: the latent as one key head */
    nn_config_derived_int(c, "attention.key_length", h->kv_rank + h->rot);
    nn_config_derived_int(c, "attention.value_length", h->kv_rank);
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ .dim = h->rot, .interleaved = h->interleaved, .mla = true });
    double m = nn_rope_yarn_mscale(c);
    h->attn_scale = (float)(m * m / sqrt(h->nope + h->rot));
    h->beta = (float)nn_config_real(c, "attention.temperature_scale", "rope_parameters.llama_4_scaling_beta", 0);
    h->period = (int)nn_config_int(c, "rope.scaling.original_context_length",
                                   "rope_parameters.original_max_position_embeddings", 0);
    if (h->beta != 0 && h->period <= 0) nn_config_fail(c, "a temperature of %g needs a period", (double)h->beta);
}

static void bind_top(nn_binder *b, void *out, const void *p) { nn_bind_ends(b, out, p, 0); }

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    int n = d->n_embd, q = d->n_head * (h->nope + h->rot), per_head = h->nope + h->v_dim, kv = h->kv_rank + h->rot;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", n, 0);
    if (h->q_rank) {
        nn_bind_linear(b, &w->q_a, "attn_q_a", "self_attn.q_a_proj", n, h->q_rank, 0);
        nn_bind_vec(b, &w->q_norm, "attn_q_a_norm", "self_attn.q_a_layernorm", h->q_rank, 0);
        nn_bind_linear(b, &w->q_b, "attn_q_b", "self_attn.q_b_proj", h->q_rank, q, 0);
    } else {
        nn_bind_linear(b, &w->q_b, "attn_q", "self_attn.q_proj", n, q, 0);
    }
    nn_bind_rows(b, &w->kv, "attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa", n, h->kv_rank, 0, kv, 0);
    nn_bind_rows(b, &w->k_rot, "attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa", n, h->rot, h->kv_rank, kv, 0);
    nn_bind_vec(b, &w->kv_norm, "attn_kv_a_norm", "self_attn.kv_a_layernorm", h->kv_rank, 0);
    nn_bind_heads(b, &w->k_b, "attn_k_b|attn_kv_b", "self_attn.kv_b_proj", d->n_head, h->nope, h->kv_rank, 0, per_head,
                  NN_HEADS_T);
    nn_bind_heads(b, &w->v_b, "attn_v_b|attn_kv_b", "self_attn.kv_b_proj", d->n_head, h->kv_rank, h->v_dim, h->nope,
                  per_head, 0);
    nn_bind_linear(b, &w->o, "attn_output", "self_attn.o_proj", d->n_head * h->v_dim, n, 0);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "post_attention_layernorm", n, 0);
    if (!h->n_expert || i < h->n_dense) {
        nn_bind_ffn(b, &w->ffn, "mlp", n, d->n_ff);
        return;
    }
    nn_bind_ffn_experts(b, &w->ffn, "mlp", n, h->n_ff_expert, h->n_expert, NN_OPTIONAL);
    if (h->n_shared) nn_bind_ffn_shared(b, &w->ffn, "mlp.shared_experts", n, (int64_t)h->n_ff_expert * h->n_shared);
    nn_bind_vec(b, &w->post_norm, "post_ffw_norm", "post_mlp_layernorm|mlp.post_mlp_layernorm", n,
                h->post_norm ? 0 : NN_OPTIONAL);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    (void)i;
    return (nn_state){ .kind = NN_STATE_PAGED_LATENT, .n_kv = 1, .dim_k = h->kv_rank, .dim_v = h->rot };
}

static nn_buf attend(nn_tape *t, nn_buf n, const hparams *h, const layer *w, int i) {
    const float norm_eps = 1e-6f; /* of the two inner norms, whatever the model's own is */
    int         dim = h->nope + h->rot;
    nn_buf      q = n;
    if (h->q_rank) q = nn_rms_norm(t, nn_project(t, n, w->q_a), w->q_norm, norm_eps);
    q = nn_project(t, q, w->q_b);
    nn_buf latent = nn_rms_norm(t, nn_project(t, n, w->kv), w->kv_norm, norm_eps);
    nn_buf k_rot = nn_project(t, n, w->k_rot);
    nn_buf q_nope = nn_take_each(t, q, dim, 0, h->nope), q_rot = nn_take_each(t, q, dim, h->nope, h->rot);
    nn_rope_apply(t, q_rot, h->rot, &h->rope);
    nn_rope_apply(t, k_rot, h->rot, &h->rope);
    if (h->beta != 0) {
        nn_scale_by_position(t, q_nope, h->beta, h->period);
        nn_scale_by_position(t, q_rot, h->beta, h->period);
    }
    nn_latent_store(t, i, latent, k_rot);
    nn_buf y = nn_latent_attention(t, i, nn_project_heads(t, q_nope, w->k_b), q_rot, h->d.n_head, h->attn_scale);
    return nn_project_heads(t, y, w->v_b);
}

static nn_buf feed_forward(nn_tape *t, nn_buf n, const hparams *h, const layer *w) {
    nn_buf y = nn_ffn_apply(t, n, &w->ffn,
                            (nn_moe_spec){ .n_expert = h->n_expert,
                                           .n_used = h->n_used,
                                           .score = h->softmax ? NN_SCORE_SOFTMAX : NN_SCORE_SIGMOID,
                                           .n_group = h->n_group,
                                           .top_group = h->top_group,
                                           .group_best = h->group_best,
                                           .renorm = h->renorm,
                                           .renorm_eps = 1e-20f,
                                           .scale = h->route_scale,
                                           .glu.act = NN_ACT_SILU });
    return w->post_norm ? nn_rms_norm(t, y, w->post_norm, h->d.eps) : y;
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->d;
    const top     *tw = net->top;
    const layer   *lw = net->layers;

    nn_buf x = nn_embed(t, tw->embd, 1.0f);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = &lw[i];
        nn_project_add(t, x, attend(t, nn_rms_norm(t, x, w->attn_norm, d->eps), h, w, i), w->o);
        nn_add(t, x, feed_forward(t, nn_rms_norm(t, x, w->ffn_norm, d->eps), h, w));
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps), tw->head, 1.0f, 0.0f);
}

static const char *const names[] = { "deepseek2", "deepseek_v3", "deepseek_v2", "kimi_k2", "glm4_moe_lite", NULL },
                         *const names_mistral[] = { "mistral4", NULL }, *const names_axk1[] = { "axk1", NULL };
const nn_arch models_deepseek = { NN_FAMILY, .gguf_only = true, .names = names, .act = "silu|swish" };
const nn_arch models_mistral4 = { NN_FAMILY, .names = names_mistral, .act = "silu|swish" };
const nn_arch models_axk1 = { NN_FAMILY, .hf_only = true, .names = names_axk1, .act = "silu|swish" };
