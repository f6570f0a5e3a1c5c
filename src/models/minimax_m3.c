/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MiniMax M3, its text: norms on each head, part of a head rotated, gpt-oss's gated unit in every feed-forward, experts
 * behind sigmoids with a correction and a shared one beside them. Norms are stored as w - 1.
 *
 * In most layers an indexer chooses the blocks of keys that attention sees. As long as a sequence has no more blocks
 * than it chooses, it chooses all of them; longer ones are refused (nn_dims.limit), and the indexer's tensors are not
 * read.
 */
#include "nn/nn.h"

typedef struct hparams {
    nn_dims d;
    int     n_expert, n_used, n_ff_expert, n_ff_shared, n_dense, rotary, block, top_blocks;
    float   scale, alpha, limit;
    nn_rope rope;
} hparams;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm;
    nn_heads      attn;
    nn_ffn        ffn;
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
    NN_FLOAT(scale, "expert_weights_scale", "routed_scaling_factor", 1),
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

static bool is_sparse(nn_config *c, const hparams *h) {
    bool named = nn_config_count(c, NULL, "layer_types") > 0, sparse = nn_config_gguf(c);
    for (int i = 0; i < h->d.n_layer; i++)
        sparse |= named ? nn_config_letter_at(c, "layer_types", i, 0, "minimax_m3_sparse")
                        : nn_config_real_at(c, "sparse_attention_config.sparse_attention_freq", i, 0) != 0;
    return sparse;
}

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    nn_config_known(c, "use_qk_norm", "true");
    nn_config_known(c, "qk_norm_type", "per_head");
    nn_config_known(c, "scoring_func", "sigmoid");
    nn_config_known(c, "use_routing_bias", "true");
    nn_config_known(c, "use_gemma_norm", "true");
    nn_config_known(c, "attn_type_list", "1");
    nn_config_only_number(c, "expert_gating_func", NULL, 2);
    nn_config_only_number(c, "expert_weights_norm", NULL, 1);
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
    if (is_sparse(c, h)) h->d.limit = h->block * h->top_blocks;
    nn_config_unsaid(c, "index_topk_blocks"); /* the file would lack the indexer */
    h->rope = nn_rope_read(
        c, &h->d, (nn_rope_want){ .base = 5000000, .partial = h->rotary ? (double)h->rotary / h->d.head_dim : 0 });
}

static void bind_top(nn_binder *b, void *out, const void *p) { nn_bind_ends(b, out, p, NN_PLUS_ONE); }

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    int            n = d->n_embd;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", n, NN_PLUS_ONE);
    nn_bind_qkvo(b, &w->attn, d);
    nn_bind_head_norms(b, &w->attn, d->head_dim, d->head_dim, NN_PLUS_ONE);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "post_attention_layernorm", n, NN_PLUS_ONE);
    if (i < h->n_dense) {
        nn_bind_ffn(b, &w->ffn, "mlp|block_sparse_moe", n, d->n_ff);
        return;
    }
    nn_bind_ffn_experts(b, &w->ffn, "block_sparse_moe|mlp", n, h->n_ff_expert, h->n_expert, 0);
    nn_bind_ffn_shared(b, &w->ffn, "block_sparse_moe.shared_experts|mlp.shared_experts", n, h->n_ff_shared);
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
        nn_project_add(t, x, nn_attend(t, i, n, &w->attn, &h->rope, nn_attn_plain(d, 0), d->eps), w->attn.o);
        nn_add(t, x, nn_ffn_apply(t, nn_rms_norm(t, x, w->ffn_norm, d->eps), &w->ffn, how));
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps), tw->head, 1.0f, 0.0f);
}

const nn_arch models_minimax_m3 = { NN_PARTS,
                                    .top_size = sizeof(nn_ends),
                                    .bind_top = bind_top,
                                    .state = nn_state_plain,
                                    .gguf_only = true,
                                    .names = NN_NAMES("minimax-m3", "minimax_m3_vl_text"),
                                    .act = "silu|swish|swigluoai",
                                    .kinds = "minimax_m3_sparse|full_attention" };
