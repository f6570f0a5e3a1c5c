/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MiniMax M3, its text: norms on each head, part of a head rotated, gpt-oss's gated unit in every feed-forward, experts
 * behind sigmoids with a correction and a shared one beside them. Norms are stored as w - 1.
 *
 * In most layers an indexer chooses the blocks of keys that attention sees, for each key head by a query of its own. A
 * block counts as its best key, and the last ones are always seen.
 */
#include "nn/nn.h"

typedef struct hparams {
    nn_dims d;
    int     n_expert, n_used, n_ff_expert, n_ff_shared, n_dense, rotary;
    int     index_heads, index_dim, block, top_blocks, local_blocks;
    float   scale, alpha, limit;
    nn_rope rope;

    const int *sparse; /* [n_layer]: has an indexer */
} hparams;

typedef struct indexer {
    nn_linear     q, k;
    const nn_vec *q_norm, *k_norm;
} indexer;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm;
    nn_heads      attn;
    nn_ffn        ffn;
    indexer       index;
} layer;

static const nn_key keys[] = {
    NN_INT(d.n_ff, "feed_forward_length", "dense_intermediate_size", 12288),
    NN_INT(n_expert, "expert_count", "num_local_experts|num_experts", NN_REQUIRED),
    NN_INT(n_used, "expert_used_count", "num_experts_per_tok", NN_REQUIRED),
    NN_INT(n_ff_expert, "expert_feed_forward_length", "intermediate_size", NN_REQUIRED),
    NN_INT(n_ff_shared, NULL, "shared_intermediate_size", 0),
    NN_INT(rotary, NULL, "rotary_dim", 0),
    NN_INT(block, "attention.indexer.block_size", "sparse_attention_config.sparse_block_size|index_block_size", 128),
    NN_INT(top_blocks, "attention.indexer.top_k", "sparse_attention_config.sparse_topk_blocks|index_topk_blocks", 16),
    NN_FLOAT(alpha, NULL, "swiglu_alpha", 1.702),
    NN_FLOAT(limit, NULL, "swiglu_limit", 7),
    { 0 },
};

/* Layers without experts come first: named, or 0 in a list. */
static int read_dense(nn_config *c, const hparams *h) {
    if (nn_config_gguf(c) || nn_config_count(c, NULL, "mlp_layer_types") > 0)
        return nn_config_leading(c, "leading_dense_block_count", NULL, 0, "mlp_layer_types", "dense");
    int n = 0;
    for (int i = 0; i < h->d.n_layer; i++) {
        bool dense = nn_config_real_at(c, "moe_layer_freq", i, 1) == 0;
        if (dense && n < i)
            nn_config_fail(c, "the field \"moe_layer_freq\" has layer %d without experts behind others", i);
        n += dense;
    }
    return n;
}

/* Layers with an indexer: named, or those with a 1 in a list. GGUF files do not say; their tensors do. An indexer that
 * adds values of its own to what attention gives is said layer by layer, too; no published one does. */
static const int *read_sparse(nn_config *c, const hparams *h) {
    static const char values[] = "sparse_attention_config.sparse_disable_index_value";
    const bool named = nn_config_count(c, NULL, "layer_types") > 0, listed = nn_config_count(c, NULL, values) > 0;
    const bool all = nn_config_bool(c, NULL, listed ? NULL : values, true);
    int       *sparse = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *sparse);
    for (int i = 0; sparse && i < h->d.n_layer; i++) {
        sparse[i] = nn_config_gguf(c) ? nn_config_layer_has(c, i, "indexer.k_proj.weight")
                    : named           ? nn_config_letter_at(c, "layer_types", i, 0, "minimax_m3_sparse")
                            : nn_config_real_at(c, "sparse_attention_config.sparse_attention_freq", i, 0) != 0;
        if (sparse[i] && !(listed ? nn_config_real_at(c, values, i, 1) != 0 : all))
            nn_config_fail(c, "the field \"%s\" says that the indexer of layer %d has values; that is not supported",
                           values, i);
    }
    return sparse;
}

/* GGUF files name all sizes of the indexer. Each key head sees what one head of the indexer chose. */
static void read_indexer(nn_config *c, hparams *h) {
    const bool    gguf = nn_config_gguf(c);
    const int64_t must = NN_REQUIRED_INT;
    h->index_heads =
        (int)nn_config_int(c, "attention.indexer.head_count",
                           "sparse_attention_config.sparse_num_index_heads|index_n_heads", gguf ? must : 4);
    h->index_dim = (int)nn_config_int(c, "attention.indexer.key_length",
                                      "sparse_attention_config.sparse_index_dim|index_head_dim", gguf ? must : 128);
    h->local_blocks = (int)nn_config_int(c, "attention.indexer.local_blocks",
                                         "sparse_attention_config.sparse_local_block|index_local_blocks", 1);
    nn_config_only_number(c, NULL, "sparse_attention_config.sparse_init_block|index_init_blocks", 0);
    nn_config_only(c, NULL, "sparse_attention_config.sparse_score_type", "max");
    h->sparse = read_sparse(c, h);
    if (h->index_heads < 1 || h->d.n_kv % h->index_heads || h->index_dim < 8 || h->index_dim > 1024 ||
        h->index_dim % 8 || h->index_dim < h->rope.n_rot || h->local_blocks < 0 || h->local_blocks > h->top_blocks)
        nn_config_fail(c,
                       "an indexer of %d heads of %d elements, %d of them rotated, for %d key heads, and %d local "
                       "blocks of %d: that makes no sense",
                       h->index_heads, h->index_dim, h->rope.n_rot, h->d.n_kv, h->local_blocks, h->top_blocks);
}

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    nn_config_known(c, "use_qk_norm", "true");
    nn_config_known(c, "qk_norm_type", "per_head");
    nn_config_known(c, "scoring_func", "sigmoid");
    nn_config_known(c, "use_routing_bias", "true");
    nn_config_known(c, "use_gemma_norm", "true");
    nn_config_known(c, "attn_type_list", "1");
    nn_config_known(c, "attention_output_gate", "false");
    nn_config_only_number(c, "expert_gating_func", NULL, 2);
    nn_config_only_number(c, "expert_weights_norm", NULL, 1);
    h->scale = (float)nn_config_real(c, "expert_weights_scale", "routed_scaling_factor", nn_config_gguf(c) ? 1 : 2);
    nn_config_derived(c, "expert_weights_scale", (double)h->scale);
    if (nn_config_gguf(c)) {
        int64_t n = nn_config_int(c, "expert_shared_count", NULL, 1);
        h->n_ff_shared = n >= 0 && n <= 1024 && h->n_ff_expert <= 1 << 20 ? (int)n * h->n_ff_expert : 0;
    } else if (h->n_ff_shared == 0) {
        h->n_ff_shared = 3072;
    }
    if (h->n_ff_expert < 1 || h->n_ff_expert > 1 << 20 || h->n_ff_shared < 1 || h->n_ff_shared > 1 << 20 ||
        h->rotary < 0 || h->rotary > h->d.head_dim || h->block < 1 || h->block > 1 << 16 || h->top_blocks < 1 ||
        h->top_blocks > 1 << 12 || !(h->alpha > 0) || !(h->limit > 0)) {
        nn_config_fail(c,
                       "experts of width %d, a shared one of %d, %d rotated elements, %d blocks of %d keys, limits of "
                       "%g and %g: that makes no sense",
                       h->n_ff_expert, h->n_ff_shared, h->rotary, h->top_blocks, h->block, (double)h->alpha,
                       (double)h->limit);
        return;
    }
    h->n_dense = read_dense(c, h);
    nn_config_derived_int(c, "leading_dense_block_count", h->n_dense);
    nn_config_derived_int(c, "expert_gating_func", 2);
    nn_config_derived_bool(c, "expert_weights_norm", true);
    nn_config_derived_int(c, "expert_shared_count", h->n_ff_shared / h->n_ff_expert);
    if (h->n_ff_shared % h->n_ff_expert) nn_config_unsaid(c, "shared_intermediate_size");
    if (h->alpha != 1.702f || h->limit != 7.0f) nn_config_unsaid(c, "swiglu_limit");
    h->rope = nn_rope_read(
        c, &h->d, (nn_rope_want){ .base = 5000000, .partial = h->rotary ? (double)h->rotary / h->d.head_dim : 0 });
    read_indexer(c, h);
}

static void bind_top(nn_binder *b, void *out, const void *p) { nn_bind_ends(b, out, p, NN_PLUS_ONE); }

static void bind_indexer(nn_binder *b, indexer *w, const hparams *h) {
    const int n = h->d.n_embd, dim = h->index_dim;
    nn_bind_linear(b, &w->q, "indexer.q_proj", "self_attn.index_q_proj|self_attn.indexer.q_proj", n,
                   (int64_t)h->index_heads * dim, NN_NO_BIAS);
    nn_bind_linear(b, &w->k, "indexer.k_proj", "self_attn.index_k_proj|self_attn.indexer.k_proj", n, dim, NN_NO_BIAS);
    nn_bind_vec(b, &w->q_norm, "indexer.q_norm.weight", "self_attn.index_q_norm|self_attn.indexer.q_norm", dim,
                NN_PLUS_ONE);
    nn_bind_vec(b, &w->k_norm, "indexer.k_norm.weight", "self_attn.index_k_norm|self_attn.indexer.k_norm", dim,
                NN_PLUS_ONE);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    int            n = d->n_embd;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", n, NN_PLUS_ONE);
    nn_bind_qkvo(b, &w->attn, d);
    nn_bind_head_norms(b, &w->attn, d->head_dim, d->head_dim, NN_PLUS_ONE);
    if (h->sparse[i]) bind_indexer(b, &w->index, h);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "post_attention_layernorm", n, NN_PLUS_ONE);
    if (i < h->n_dense) {
        nn_bind_ffn(b, &w->ffn, "mlp|block_sparse_moe", n, d->n_ff);
        return;
    }
    nn_bind_ffn_experts(b, &w->ffn, "block_sparse_moe|mlp", n, h->n_ff_expert, h->n_expert, 0);
    nn_bind_ffn_shared(b, &w->ffn, "block_sparse_moe.shared_experts|mlp.shared_experts", n, h->n_ff_shared);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    nn_state       s = nn_state_plain(p, i);
    if (h->sparse[i]) s.dim_index = h->index_dim;
    return s;
}

/* What layer i sees of its normed input n. */
static nn_choice choose(nn_tape *t, int i, nn_buf n, const hparams *h, const indexer *w) {
    nn_buf q = nn_rms_norm_groups(t, nn_project(t, n, w->q), h->index_dim, w->q_norm, h->d.eps);
    nn_buf k = nn_rms_norm(t, nn_project(t, n, w->k), w->k_norm, h->d.eps);
    nn_rotate(t, q, k, h->index_dim, &h->rope);
    nn_index_store(t, i, k);
    return nn_choose(t, i, q, 0,
                     (nn_choose_spec){ .n_head = h->index_heads,
                                       .n_group = h->index_heads,
                                       .top = h->top_blocks,
                                       .block = h->block,
                                       .local = h->local_blocks });
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams    *h = net->hp;
    const nn_dims    *d = &h->d;
    const nn_ends    *tw = net->top;
    const layer      *lw = net->layers;
    const nn_moe_spec how = { .n_expert = h->n_expert,
                              .n_used = h->n_used,
                              .score = NN_SCORE_SIGMOID,
                              .renorm = true,
                              .scale = h->scale,
                              .glu = { .act = NN_ACT_SILU, .limit = h->limit, .alpha = h->alpha } };

    nn_buf x = nn_embed(t, tw->embd, 1.0f);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = &lw[i];
        nn_buf       n = nn_rms_norm(t, x, w->attn_norm, d->eps);
        nn_attn_spec a = nn_attn_plain(d, 0);
        if (w->index.k.w) a.choice = choose(t, i, n, h, &w->index);
        nn_project_add(t, x, nn_attend(t, i, n, &w->attn, &h->rope, a, d->eps), w->attn.o);
        nn_add(t, x, nn_ffn_apply(t, nn_rms_norm(t, x, w->ffn_norm, d->eps), &w->ffn, how));
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps), tw->head, 1.0f, 0.0f);
}

const nn_arch models_minimax_m3 = { NN_PARTS,
                                    .top_size = sizeof(nn_ends),
                                    .bind_top = bind_top,
                                    .state = state,
                                    .gguf_only = true,
                                    .names =
                                        NN_NAMES("minimax-m3", "minimax_m3_vl_text", "minimax_m3_vl", "minimax_m3"),
                                    .act = "silu|swish|swigluoai",
                                    .kinds = "minimax_m3_sparse|full_attention" };
