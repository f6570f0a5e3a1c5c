/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A.X K2: latent attention whose compressed query, normed and as it is, gives queries and gates of what attention gives;
 * norms in front of attention and of experts are gated by a small network of their own result; experts in groups or not.
 *
 * An indexer chooses the index_topk positions that attention sees. Up to that length it chooses all of them; longer
 * sequences are refused (nn_dims.limit), and the indexer's tensors are not read.
 */
#include "nn/nn.h"

typedef struct hparams {
    nn_dims        d;
    nn_latent_dims m;
    int            n_expert, n_used, n_ff_expert, n_shared, n_dense, n_group, top_group, rank;
    float          route_scale;
    bool           renorm;
} hparams;

typedef struct gated {
    const nn_vec *norm;
    nn_linear     in, out; /* not bound: a plain norm */
} gated;

typedef struct layer {
    gated     attn_norm, ffn_norm;
    nn_latent attn;
    nn_linear both; /* queries and gates, by head */
    nn_ffn    ffn;
} layer;

static const nn_key keys[] = {
    NN_LATENT_KEYS(m, "attention.value_length_mla"),
    NN_INT(n_expert, "expert_count", "n_routed_experts", NN_REQUIRED),
    NN_INT(n_used, "expert_used_count", "num_experts_per_tok", NN_REQUIRED),
    NN_INT(n_ff_expert, "expert_feed_forward_length", "moe_intermediate_size", NN_REQUIRED),
    NN_INT(n_shared, "expert_shared_count", "n_shared_experts", 1),
    NN_INT(n_group, NULL, "n_group", 1),
    NN_INT(top_group, NULL, "topk_group", 1),
    NN_INT(rank, NULL, "gated_norm_rank", 16),
    NN_FLOAT(route_scale, "expert_weights_scale", "routed_scaling_factor", 2.5),
    NN_BOOL(renorm, "expert_weights_norm", "norm_topk_prob", 1),
    { 0 },
};

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    nn_config_known(c, "layer_types", "deepseek_sparse_attention");
    nn_config_only(c, NULL, "topk_method", "noaux_tc");
    nn_config_only(c, NULL, "scoring_func", "sigmoid");
    nn_config_only_number(c, NULL, "moe_layer_freq", 1);
    if (nn_config_gguf(c) && h->m.q_rank == 0) h->m.q_rank = h->m.kv_rank; /* a sketch */
    nn_latent_read(c, &h->m);
    h->d.limit = (int)nn_config_int(c, NULL, "index_topk", 2048);
    if (h->n_shared < 0 || h->n_shared > 1024 || h->n_ff_expert < 1 || h->n_ff_expert > 1 << 20 || h->rank < 1 ||
        h->rank > 1 << 16 || h->m.q_rank < 1 || h->d.limit < 1)
        nn_config_fail(c,
                       "%d shared experts of width %d, gates of rank %d, a query of rank %d, index_topk %d: that makes "
                       "no sense",
                       h->n_shared, h->n_ff_expert, h->rank, h->m.q_rank, h->d.limit);
    h->n_dense =
        nn_config_leading(c, "leading_dense_block_count", "first_k_dense_replace", 1, "mlp_layer_types", "dense");
    nn_config_unsaid(c, "index_topk"); /* the file would lack the indexer */
    h->m.rope = nn_rope_read(c, &h->d, (nn_rope_want){ .dim = h->m.rot, .interleaved = true, .mla = true });
}

static void bind_gated(nn_binder *b, gated *w, const hparams *h, const char *const own[3], const char *const hf[3]) {
    int n = h->d.n_embd;
    nn_bind_vec(b, &w->norm, own[0], hf[0], n, 0);
    nn_bind_linear(b, &w->in, own[1], hf[1], n, h->rank, 0);
    nn_bind_linear(b, &w->out, own[2], hf[2], h->rank, n, 0);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    static const char *const attn_own[] = { "attn_norm", "attn_norm_gate_a", "attn_norm_gate_b" };
    static const char *const attn_hf[] = { "input_layernorm.norm", "input_layernorm.W_down|input_layernorm.mlp.fc1",
                                           "input_layernorm.W_up|input_layernorm.mlp.fc2" };
    static const char *const ffn_own[] = { "ffn_norm", "ffn_norm_gate_a", "ffn_norm_gate_b" };
    static const char *const ffn_hf[] = { "post_attention_layernorm.norm",
                                          "post_attention_layernorm.W_down|post_attention_layernorm.mlp.fc1",
                                          "post_attention_layernorm.W_up|post_attention_layernorm.mlp.fc2" };
    const hparams           *h = p;
    const nn_dims           *d = &h->d;
    layer                   *w = out;
    int                      n = d->n_embd, r = h->m.q_rank, per = h->m.nope + h->m.rot + h->m.v_dim;
    bind_gated(b, &w->attn_norm, h, attn_own, attn_hf);
    nn_bind_linear(b, &w->attn.q_a, "attn_q_a", "self_attn.q_a_proj", n, r, 0);
    nn_bind_vec(b, &w->attn.q_norm, "attn_q_a_norm", "self_attn.q_a_layernorm", r, 0);
    nn_bind_linear(b, &w->both, "attn_q_gate", "self_attn.q_b_proj|self_attn.q_gate_proj", (int64_t)2 * r,
                   (int64_t)d->n_head * per, 0);
    nn_bind_latent_keys(b, &w->attn, &h->m, d);
    if (i < h->n_dense) {
        nn_bind_vec(b, &w->ffn_norm.norm, "ffn_norm", "post_attention_layernorm", n, 0);
        nn_bind_ffn(b, &w->ffn, "mlp", n, d->n_ff);
        return;
    }
    bind_gated(b, &w->ffn_norm, h, ffn_own, ffn_hf);
    nn_bind_ffn_experts(b, &w->ffn, "mlp", n, h->n_ff_expert, h->n_expert, 0);
    if (h->n_shared) nn_bind_ffn_shared(b, &w->ffn, "mlp.shared_experts", n, (int64_t)h->n_ff_expert * h->n_shared);
}

static nn_state state(const void *p, int i) {
    (void)i;
    return nn_latent_state(&((const hparams *)p)->m);
}

static nn_buf norm(nn_tape *t, nn_buf x, const gated *w, float eps) {
    nn_buf y = nn_rms_norm(t, x, w->norm, eps);
    if (!w->in.w) return y;
    nn_buf g = nn_project(t, y, w->in);
    nn_act(t, g, NN_ACT_SILU);
    nn_gate(t, y, nn_project(t, g, w->out), NN_ACT_SIGMOID);
    return y;
}

static nn_buf attend(nn_tape *t, int i, nn_buf n, const hparams *h, const layer *w) {
    int    dim = h->m.nope + h->m.rot, per = dim + h->m.v_dim;
    nn_buf low = nn_project(t, n, w->attn.q_a);
    nn_buf normed = nn_rms_norm(t, low, w->attn.q_norm, h->m.eps);
    nn_buf both = nn_project(t, nn_join(t, (nn_buf[]){ normed, low }, 2), w->both);
    nn_buf y = nn_latent_attend_to(t, i, n, nn_take_each(t, both, per, 0, dim), &w->attn, &h->m, h->d.n_head,
                                   (nn_choice){ 0 });
    nn_gate(t, y, nn_take_each(t, both, per, dim, h->m.v_dim), NN_ACT_SIGMOID);
    return nn_project(t, y, w->attn.o);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams    *h = net->hp;
    const nn_ends    *tw = net->top;
    const layer      *lw = net->layers;
    const nn_moe_spec how = { .n_expert = h->n_expert,
                              .n_used = h->n_used,
                              .score = NN_SCORE_SIGMOID,
                              .n_group = h->n_group,
                              .top_group = h->top_group,
                              .renorm = h->renorm,
                              .renorm_eps = 1e-20f,
                              .scale = h->route_scale,
                              .glu.act = NN_ACT_SILU };

    nn_buf x = nn_embed(t, tw->embd, 1.0f);
    for (int i = 0; i < h->d.n_layer; i++) {
        const layer *w = &lw[i];
        nn_add(t, x, attend(t, i, norm(t, x, &w->attn_norm, h->d.eps), h, w));
        nn_add(t, x, nn_ffn_apply(t, norm(t, x, &w->ffn_norm, h->d.eps), &w->ffn, how));
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, h->d.eps), tw->head, 1.0f, 0.0f);
}

const nn_arch models_axk2 = { NN_DECODER, .hf_only = true, .names = NN_NAMES("axk2"), .act = "silu|swish",
                              .kinds = "deepseek_sparse_attention|full_attention" };
