/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DeepSeek V2/V3/R1, Kimi K2, GLM 4.7 Flash, A.X K1 and Mistral 4: multi-head latent attention and experts in
 * groups. Scores are sigmoids with a correction, and a group counts as its best two; DeepSeek V2 and Mistral 4 take the
 * softmax, and V2's groups count as their best. A.X K1 norms what its feed-forward gave.
 *
 * DeepSeek V3.2 and GLM 5 let a small indexer choose the index_topk positions that attention sees. Up to that length it
 * chooses all of them; longer sequences are refused (nn_dims.limit), and the indexer's tensors are not read.
 */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_dims        d;
    nn_latent_dims m;
    int            n_expert, n_used, n_ff_expert, n_shared, n_dense, n_group, top_group, gating, n_next;
    float          route_scale;
    bool           renorm, softmax, interleaved, group_best, post_norm;
} hparams;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm, *post_norm;
    nn_latent     attn;
    nn_ffn        ffn;
} layer;

static const nn_key keys[] = {
    NN_LATENT_KEYS(m, "attention.value_length_mla|attention.value_length"),
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
    nn_latent_read(c, &h->m);
    if (h->n_shared < 0 || h->n_shared > 1024 || h->n_ff_expert < 0 || h->n_ff_expert > 1 << 20)
        nn_config_fail(c, "%d shared experts of width %d make no sense", h->n_shared, h->n_ff_expert);
    h->n_dense = nn_config_leading(c, "leading_dense_block_count", "first_k_dense_replace",
                                   nn_config_arch(c, "glm4_moe_lite") || nn_config_arch(c, "axk1")     ? 1
                                   : nn_config_arch(c, "deepseek_v2") || nn_config_arch(c, "mistral4") ? 0
                                                                                                       : 3,
                                   "mlp_layer_types", "dense");
    read_router(c, h);
    if (nn_config_arch(c, "deepseek32") || nn_config_arch(c, "deepseek_v32") || nn_config_arch(c, "glm-dsa") ||
        nn_config_arch(c, "glm_moe_dsa")) {
        nn_config_known(c, "layer_types", "deepseek_sparse_attention");
        h->d.limit = (int)nn_config_int(c, "attention.indexer.top_k", "index_topk", 2048);
        if (h->d.limit < 1) nn_config_fail(c, "the field \"index_topk\" is %d", h->d.limit);
        nn_config_unsaid(c, "index_topk"); /* the file would lack the indexer */
    }
    nn_config_derived_int(c, "attention.key_length_mla", h->m.nope + h->m.rot);
    nn_config_derived_int(c, "attention.value_length_mla", h->m.v_dim);
    nn_config_derived_int(c, "attention.head_count_kv", 1); /* GGUF: the latent as one key head */
    nn_config_derived_int(c, "attention.key_length", h->m.kv_rank + h->m.rot);
    nn_config_derived_int(c, "attention.value_length", h->m.kv_rank);
    h->m.rope = nn_rope_read(c, &h->d, (nn_rope_want){ .dim = h->m.rot, .interleaved = h->interleaved, .mla = true });
    h->m.beta = (float)nn_config_real(c, "attention.temperature_scale", "rope_parameters.llama_4_scaling_beta", 0);
    h->m.period = (int)nn_config_int(c, "rope.scaling.original_context_length",
                                     "rope_parameters.original_max_position_embeddings", 0);
    if (h->m.beta != 0) nn_config_derived_int(c, "attention.temperature_length", h->m.period);
    if (h->m.beta != 0 && h->m.period <= 0) nn_config_fail(c, "a temperature of %g needs a period", (double)h->m.beta);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    int            n = d->n_embd;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", n, 0);
    nn_bind_latent(b, &w->attn, &h->m, d);
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
    (void)i;
    return nn_latent_state(&((const hparams *)p)->m);
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

static void block(nn_tape *t, int i, nn_buf x, const void *hp, const void *weights) {
    const hparams *h = hp;
    const nn_dims *d = &h->d;
    const layer   *w = weights;
    nn_buf         n = nn_rms_norm(t, x, w->attn_norm, d->eps), q = nn_latent_query(t, n, &w->attn, &h->m);
    nn_project_add(t, x, nn_latent_attend(t, i, n, q, &w->attn, &h->m, d->n_head), w->attn.o);
    nn_add(t, x, feed_forward(t, nn_rms_norm(t, x, w->ffn_norm, d->eps), h, w));
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->d;
    const nn_ends *tw = net->top;
    const layer   *lw = net->layers;

    nn_buf x = nn_embed(t, tw->embd, 1.0f);
    for (int i = 0; i < d->n_layer; i++) block(t, i, x, h, &lw[i]);
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps), tw->head, 1.0f, 0.0f);
}

static const char *const names[] = { "deepseek2", "deepseek_v3", "deepseek_v2", "kimi_k2", "glm4_moe_lite", NULL },
                         *const names_mistral[] = { "mistral4", NULL }, *const names_axk1[] = { "axk1", NULL };
const nn_arch models_deepseek = { NN_DECODER, .block = block, .gguf_only = true, .names = names, .act = "silu|swish" };
const nn_arch models_mistral4 = { NN_DECODER, .names = names_mistral, .act = "silu|swish" };
const nn_arch models_axk1 = { NN_DECODER, .hf_only = true, .names = names_axk1, .act = "silu|swish" };
const nn_arch models_deepseek32 = { NN_DECODER,
                                    .block = block,
                                    .gguf_only = true,
                                    .act = "silu|swish",
                                    .names = NN_NAMES("deepseek32", "deepseek_v32"),
                                    .kinds = "deepseek_sparse_attention|full_attention" };
const nn_arch models_glm_dsa = { NN_DECODER,
                                 .block = block,
                                 .gguf_only = true,
                                 .act = "silu|swish",
                                 .names = NN_NAMES("glm-dsa", "glm_moe_dsa"),
                                 .kinds = "deepseek_sparse_attention|full_attention" };
