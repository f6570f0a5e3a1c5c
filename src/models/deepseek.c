/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DeepSeek V2/V3/R1, Kimi K2, GLM 4.7 Flash, A.X K1 and Mistral 4: multi-head latent attention and experts in
 * groups. Scores are sigmoids with a correction, and a group counts as its best two; DeepSeek V2 and Mistral 4 take the
 * softmax, and V2's groups count as their best. A.X K1 norms what its feed-forward gave.
 *
 * DeepSeek V3.2 and GLM 5 let a small indexer choose the index_topk positions that attention sees: a key per position,
 * a query of several heads from what q_b takes, and weights of these heads. DeepSeek's rotates halves, GLM's pairs. In
 * GLM 5.2 most layers see what the last one with an indexer chose. The head for further tokens has an indexer of its
 * own, or sees everything.
 */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_dims        d;
    nn_latent_dims m;
    int            n_expert, n_used, n_ff_expert, n_shared, n_dense, n_group, top_group, n_next;
    float          route_scale;
    bool           renorm, softmax, interleaved, group_best, post_norm;

    int        index_heads, index_dim, index_top; /* index_dim 0: there is no indexer */
    const int *shares; /* [n_layer + n_next]: has no indexer, and sees what another layer's chose; NULL: all have one */
    nn_rope    index_rope;
} hparams;

/* k.w NULL: the layer has none. */
typedef struct indexer {
    nn_linear q, k, weights;
    nn_norm   k_norm;
} indexer;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm, *post_norm;
    nn_latent     attn;
    nn_ffn        ffn;
    indexer       index;
} layer;

static const nn_key keys[] = {
    NN_LATENT_KEYS(m, "attention.value_length_mla|attention.value_length"),
    NN_INT(n_expert, "expert_count", "n_routed_experts|num_local_experts|num_experts", 0),
    NN_INT(n_used, "expert_used_count", "num_experts_per_tok", 0),
    NN_INT(n_ff_expert, "expert_feed_forward_length", "moe_intermediate_size", 0),
    NN_INT(n_shared, "expert_shared_count", "n_shared_experts", 0),
    NN_INT(n_group, "expert_group_count", "n_group", 1),
    NN_INT(top_group, "expert_group_used_count", "topk_group", 1),
    NN_INT(n_next, "nextn_predict_layers", NULL, 0),
    NN_FLOAT(route_scale, "expert_weights_scale", "routed_scaling_factor", 1),
    NN_BOOL(interleaved, NULL, "rope_interleave", 1),
    { 0 },
};

static bool is_glm_dsa(nn_config *c) { return nn_config_arch(c, "glm-dsa") || nn_config_arch(c, "glm_moe_dsa"); }

/* 1: softmax, 2: sigmoids. GGUF files of DeepSeek V2 and early ones of others have no such key. llama.cpp then takes GLM
 * 5 and what has the size of GLM 4.7 Flash to have sigmoids; DeepSeek V3.2 must say it. */
static int read_gating(nn_config *c, const hparams *h) {
    const bool    must = nn_config_arch(c, "deepseek32");
    const int     n = h->d.n_layer + h->n_next;
    const bool    flash = nn_config_arch(c, "deepseek2") && (n == 47 || n == 48) && h->d.n_vocab == 154880;
    const int64_t given = nn_config_int(c, "expert_gating_func", NULL, must ? NN_REQUIRED_INT : 0);
    if (given == 0 && !must) return is_glm_dsa(c) || flash ? 2 : 1;
    if (given != 1 && given != 2)
        nn_config_fail(c, "the field \"expert_gating_func\" is %lld; this family knows 1 (softmax) and 2 (sigmoid)",
                       (long long)given);
    return (int)given;
}

/* What transformers' classes take where config.json is silent. No groups is said by null. */
static void read_silent(nn_config *c, hparams *h) {
    static const struct {
        const char *arch;
        double      scale;
        int         n_group, top_group;
    } rows[] = { { "deepseek_v3", 2.5, 8, 4 },
                 { "deepseek_v32", 2.5, 8, 4 },
                 { "axk1", 2.5, 8, 4 },
                 { "glm_moe_dsa", 2.5, 1, 1 },
                 { "glm4_moe_lite", 1.8, 1, 1 } };
    if (nn_config_gguf(c)) return; /* A.X K1 has its name there, too */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!nn_config_arch(c, rows[i].arch)) continue;
        h->route_scale = (float)nn_config_real(c, "expert_weights_scale", "routed_scaling_factor", rows[i].scale);
        if (!nn_config_has(c, NULL, "n_group") && !nn_config_null(c, NULL, "n_group")) h->n_group = rows[i].n_group;
        if (!nn_config_has(c, NULL, "topk_group") && !nn_config_null(c, NULL, "topk_group"))
            h->top_group = rows[i].top_group;
        nn_config_derived(c, "expert_weights_scale", (double)h->route_scale);
        nn_config_derived_int(c, "expert_group_used_count", h->top_group);
    }
}

/* What the routers know. V2 weighs with plain shares whatever norm_topk_prob says in transformers, and normed without
 * the scale in its authors' code: it is refused. */
static void read_router(nn_config *c, hparams *h) {
    bool v2 = nn_config_arch(c, "deepseek_v2"), mistral = nn_config_arch(c, "mistral4");
    nn_config_only(c, NULL, "hidden_act", "silu");
    nn_config_only(c, NULL, "topk_method", v2 ? "greedy|group_limited_greedy" : "noaux_tc");
    nn_config_only(c, NULL, "scoring_func", v2 || mistral ? "softmax" : "sigmoid");
    nn_config_only_number(c, NULL, "moe_layer_freq", 1);
    read_silent(c, h);
    if (h->n_group < 1) h->n_group = 1; /* V2-Lite's may be null */
    if (v2) nn_config_only_number(c, NULL, "norm_topk_prob", 0);
    if (v2 && nn_config_is(c, NULL, "topk_method", "greedy", true)) h->n_group = 1;
    h->renorm = nn_config_bool(c, "expert_weights_norm", "norm_topk_prob", !v2 && !nn_config_gguf(c));
    /* GGUF has no key for how a group's value is found: it goes with the softmax. */
    h->softmax = nn_config_gguf(c) ? read_gating(c, h) < 2 : v2 || mistral;
    h->group_best = h->softmax && !mistral;
    h->post_norm = nn_config_arch(c, "axk1");
    nn_config_derived_int(c, "expert_gating_func", h->softmax ? 1 : 2);
    nn_config_derived_int(c, "expert_group_count", h->n_group);
}

/* Which layers see what an earlier one chose: named, or by a text of letters, or every so many have an indexer of their
 * own. A GGUF file without a list says it by what tensors it has, and every GGUF file does so of its heads for further
 * tokens. */
static void read_shares(nn_config *c, hparams *h) {
    const int64_t freq = nn_config_int(c, NULL, "index_topk_freq", 1);
    const int64_t first = nn_config_int(c, NULL, "index_skip_topk_offset", 2);
    const bool    named = nn_config_has(c, "attention.indexer.types", "indexer_types");
    const bool    letters = !named && nn_config_has(c, NULL, "index_topk_pattern");
    const bool    gguf = nn_config_gguf(c); /* there the list ends with the last layer that is not for further tokens */
    const int    *full =
        named && !gguf ? nn_config_layer_is(c, "attention.indexer.types", "indexer_types", "full", 0) : NULL;
    const int n_all = h->d.n_layer + h->n_next;
    int      *shares = nn_config_alloc(c, (size_t)n_all, sizeof *shares);
    bool      some = false;
    if (!shares) return;
    nn_config_known(c, "indexer_types", "full|shared");
    for (int i = h->d.n_layer; i < n_all; i++) shares[i] = !nn_config_layer_has(c, i, "indexer.attn_k.weight");
    for (int i = 0; i < h->d.n_layer; i++) {
        const int64_t past = i - first + 1 > 0 ? i - first + 1 : 0;
        shares[i] = gguf      ? (named ? nn_config_real_of(c, "attention.indexer.types", NULL, i, 1) == 0
                                       : !nn_config_layer_has(c, i, "indexer.attn_k.weight"))
                    : full    ? !full[i]
                    : letters ? nn_config_letter_at(c, "index_topk_pattern", i, 'S', "shared")
                              : freq > 1 && past % freq != 0;
        some = some || shares[i];
        if (letters && !shares[i] && !nn_config_letter_at(c, "index_topk_pattern", i, 'F', "full"))
            nn_config_fail(c, "the field \"index_topk_pattern\" says neither F nor S of layer %d", i);
    }
    if (shares[0] && (named || !gguf)) nn_config_fail(c, "layer 0 shares a choice of positions that nobody made");
    h->shares = shares;
    if (!some || named || gguf) return;
    int *own = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *own);
    for (int i = 0; own && i < h->d.n_layer; i++) own[i] = !shares[i];
    if (own) nn_config_derived_layers(c, "attention.indexer.types", own);
}

/* A size of the indexer: GGUF files name all of them. */
static int index_size(nn_config *c, const char *gguf, const char *hf, int usual) {
    return (int)nn_config_int(c, gguf, hf, nn_config_gguf(c) ? NN_REQUIRED_INT : usual);
}

static void read_indexer(nn_config *c, hparams *h) {
    if (!is_glm_dsa(c) && !nn_config_arch(c, "deepseek32") && !nn_config_arch(c, "deepseek_v32")) return;
    nn_config_known(c, "layer_types", "deepseek_sparse_attention");
    h->m.q_rank = (int)nn_config_int(c, "attention.q_lora_rank", "q_lora_rank", NN_REQUIRED_INT);
    h->index_heads = index_size(c, "attention.indexer.head_count", "index_n_heads", is_glm_dsa(c) ? 32 : 64);
    h->index_dim = index_size(c, "attention.indexer.key_length", "index_head_dim", 128);
    h->index_top = index_size(c, "attention.indexer.top_k", "index_topk", 2048);
    if (h->index_heads < 1 || h->index_heads > 1024 || h->index_dim < h->m.rot || h->index_dim > 1024 ||
        h->index_dim % 8 || h->index_top < 1 || h->index_top > 1 << 16)
        nn_config_fail(c,
                       "the fields \"index_n_heads\", \"index_head_dim\" and \"index_topk\" are %d, %d and %d, with %d "
                       "rotated elements: that makes no sense",
                       h->index_heads, h->index_dim, h->index_top, h->m.rot);
    if (h->m.q_rank < 1) nn_config_fail(c, "an indexer needs a compressed query: \"q_lora_rank\" is %d", h->m.q_rank);
    if (is_glm_dsa(c)) read_shares(c, h);
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
    read_indexer(c, h);
    nn_config_derived_int(c, "attention.key_length_mla", h->m.nope + h->m.rot);
    nn_config_derived_int(c, "attention.value_length_mla", h->m.v_dim);
    nn_config_derived_int(c, "attention.head_count_kv", 1); /* GGUF: the latent as one key head */
    nn_config_derived_int(c, "attention.key_length", h->m.kv_rank + h->m.rot);
    nn_config_derived_int(c, "attention.value_length", h->m.kv_rank);
    h->m.rope = nn_rope_read(c, &h->d, (nn_rope_want){ .dim = h->m.rot, .interleaved = h->interleaved, .mla = true });
    h->index_rope = h->m.rope;
    h->index_rope.interleaved = nn_config_bool(c, NULL, "indexer_rope_interleave", is_glm_dsa(c));
    if (h->index_dim && h->index_rope.interleaved != is_glm_dsa(c)) nn_config_unsaid(c, "indexer_rope_interleave");
    h->m.beta = (float)nn_config_real(c, "attention.temperature_scale", "rope_parameters.llama_4_scaling_beta", 0);
    h->m.period = (int)nn_config_int(c, "rope.scaling.original_context_length",
                                     "rope_parameters.original_max_position_embeddings", 0);
    if (h->m.beta != 0) nn_config_derived_int(c, "attention.temperature_length", h->m.period);
    if (h->m.beta != 0 && h->m.period <= 0) nn_config_fail(c, "a temperature of %g needs a period", (double)h->m.beta);
}

/* A head for further tokens has an indexer or none, whatever the layers have. */
static void bind_indexer(nn_binder *b, indexer *w, const hparams *h, int n, int i) {
    if (i >= h->d.n_layer ? !nn_bind_exists(b, "indexer.attn_k", "self_attn.indexer.wk") : h->shares && h->shares[i])
        return;
    nn_bind_linear(b, &w->q, "indexer.attn_q_b", "self_attn.indexer.wq_b", h->m.q_rank,
                   (int64_t)h->index_heads * h->index_dim, NN_NO_BIAS);
    nn_bind_linear(b, &w->k, "indexer.attn_k", "self_attn.indexer.wk", n, h->index_dim, NN_NO_BIAS);
    nn_bind_vec(b, &w->k_norm.w, "indexer.k_norm.weight", "self_attn.indexer.k_norm", h->index_dim, 0);
    nn_bind_vec(b, &w->k_norm.b, "indexer.k_norm.bias", "self_attn.indexer.k_norm.bias", h->index_dim, 0);
    nn_bind_linear(b, &w->weights, "indexer.proj", "self_attn.indexer.weights_proj", n, h->index_heads, NN_NO_BIAS);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    int            n = d->n_embd;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", n, 0);
    nn_bind_latent(b, &w->attn, &h->m, d);
    if (h->index_dim) bind_indexer(b, &w->index, h, n, i);
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
    nn_state       s = nn_latent_state(&h->m);
    if (!h->shares || i >= h->d.n_layer + h->n_next || !h->shares[i]) s.dim_index = h->index_dim;
    return s;
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

/* What layer i sees, by its normed input n and its compressed query. */
static nn_choice choose(nn_tape *t, int i, nn_buf n, nn_buf query, const hparams *h, const indexer *w) {
    nn_buf q = nn_project(t, query, w->q), k = nn_norm_rows(t, nn_project(t, n, w->k), &w->k_norm, 1e-6f);
    nn_rotate(t, q, k, h->index_dim, &h->index_rope);
    nn_index_store(t, i, k);
    return nn_choose(t, i, q, nn_project(t, n, w->weights),
                     (nn_choose_spec){ .n_head = h->index_heads, .n_group = 1, .top = h->index_top, .block = 1 });
}

/* seen: what the last layer with an indexer chose. */
static void block_over(nn_tape *t, int i, nn_buf x, const hparams *h, const layer *w, nn_choice *seen) {
    const nn_dims *d = &h->d;
    nn_buf         n = nn_rms_norm(t, x, w->attn_norm, d->eps), q = nn_latent_query(t, n, &w->attn, &h->m);
    if (w->index.k.w) *seen = choose(t, i, n, q, h, &w->index);
    nn_project_add(t, x, nn_latent_attend_over(t, i, n, q, &w->attn, &h->m, d->n_head, *seen), w->attn.o);
    nn_add(t, x, feed_forward(t, nn_rms_norm(t, x, w->ffn_norm, d->eps), h, w));
}

static void block(nn_tape *t, int i, nn_buf x, const void *hp, const void *weights) {
    block_over(t, i, x, hp, weights, &(nn_choice){ 0 });
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->d;
    const nn_ends *tw = net->top;
    const layer   *lw = net->layers;

    nn_buf    x = nn_embed(t, tw->embd, 1.0f);
    nn_choice seen = { 0 };
    for (int i = 0; i < d->n_layer; i++) block_over(t, i, x, h, &lw[i], &seen);
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
