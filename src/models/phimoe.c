/* SPDX-License-Identifier: Apache-2.0 */
/* Phi 3.5 MoE: LayerNorms and biases, windowed attention, two experts by the sparse mixer. */
#include "nn/nn.h"

typedef struct hparams {
    nn_dims d;
    int     n_expert, n_used, window;
    float   jitter;
    nn_rope rope;
} hparams;

typedef struct top {
    const nn_mat *embd;
    const nn_vec *norm, *norm_bias;
    nn_linear     head;
} top;

typedef struct layer {
    const nn_vec *attn_norm, *attn_bias, *ffn_norm, *ffn_bias;
    nn_heads      attn;
    nn_ffn        ffn;
} layer;

static const nn_key keys[] = {
    NN_INT(n_expert, "expert_count", "num_local_experts", NN_REQUIRED),
    NN_INT(n_used, "expert_used_count", "num_experts_per_tok", 2),
    NN_INT(window, "attention.sliding_window", "sliding_window", 0),
    NN_FLOAT(jitter, NULL, "router_jitter_noise", 0.01),
    { 0 },
};

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    nn_config_only(c, NULL, "hidden_act", "silu");
    nn_config_only_number(c, "expert_used_count", "num_experts_per_tok", 2);
    if (h->window < 0 || h->jitter < 0)
        nn_config_fail(c, "a window of %d, a jitter of %g", h->window, (double)h->jitter);
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ .base = 1000000, .mscales = true });
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    const nn_dims *d = p;
    top           *t = out;
    nn_bind_mat(b, &t->embd, "token_embd", "model.embed_tokens", d->n_embd, d->n_vocab, NN_AT_LEAST);
    nn_bind_vec(b, &t->norm, "output_norm", "model.norm", d->n_embd, 0);
    nn_bind_vec(b, &t->norm_bias, "output_norm.bias", "model.norm.bias", d->n_embd, 0);
    nn_bind_head(b, &t->head, t->embd, d->n_embd, d->n_vocab);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    int            n = d->n_embd;
    (void)i;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", n, 0);
    nn_bind_vec(b, &w->attn_bias, "attn_norm.bias", "input_layernorm.bias", n, 0);
    nn_bind_attention(b, &w->attn, n, d->n_head * d->head_dim, d->n_kv * d->head_dim, 0);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "post_attention_layernorm", n, 0);
    nn_bind_vec(b, &w->ffn_bias, "ffn_norm.bias", "post_attention_layernorm.bias", n, 0);
    nn_bind_ffn_experts(b, &w->ffn, "block_sparse_moe|mlp", n, d->n_ff, h->n_expert, NN_OPTIONAL);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    (void)i;
    return nn_state_kv(h->d.n_kv, h->d.head_dim, h->window);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams     *h = net->hp;
    const nn_dims     *d = &h->d;
    const top         *tw = net->top;
    const layer       *lw = net->layers;
    const nn_attn_spec a = nn_attn_plain(d, h->window);
    const nn_moe_spec  how = { .n_expert = h->n_expert,
                               .n_used = h->n_used,
                               .score = NN_SCORE_SPARSEMIXER,
                               .jitter = h->jitter,
                               .glu.act = NN_ACT_SILU };

    nn_buf x = nn_embed(t, tw->embd, 1.0f);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = &lw[i];
        nn_buf       n = nn_layer_norm(t, x, w->attn_norm, w->attn_bias, d->eps);
        nn_buf       q = nn_project(t, n, w->attn.q), k = nn_project(t, n, w->attn.k), v = nn_project(t, n, w->attn.v);
        nn_rotate(t, q, k, d->head_dim, &h->rope);
        nn_kv_store(t, i, k, v);
        nn_project_add(t, x, nn_attention(t, i, q, a), w->attn.o);
        nn_add(t, x, nn_ffn_apply(t, nn_layer_norm(t, x, w->ffn_norm, w->ffn_bias, d->eps), &w->ffn, how));
    }
    nn_logits(t, nn_layer_norm(t, nn_outputs(t, x), tw->norm, tw->norm_bias, d->eps), tw->head, 1.0f, 0.0f);
}

const nn_arch models_phimoe = { NN_FAMILY, .names = NN_NAMES("phimoe") };
