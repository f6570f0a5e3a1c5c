/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ModernBERT: a pre-norm encoder with rotary positions and a gated feed-forward. Every third layer sees the whole input,
 * the others a window to both sides, with a rotation of their own. The first layer has no norm before its attention.
 */
#include "nn/nn.h"

typedef struct hparams {
    nn_dims     d;
    int         window;
    const int  *slides;
    nn_act_kind act;
    nn_rope     rope, rope_sliding;
} hparams;

typedef struct top {
    const nn_mat *embd;
    nn_norm       embd_norm, norm;
} top;

typedef struct layer {
    nn_norm   attn_norm, ffn_norm; /* attn_norm.w NULL: none */
    nn_linear q, k, v, o, gate, up, down;
} layer;

static const nn_key keys[] = {
    NN_INT(window, "attention.sliding_window", "local_attention", 128),
    { 0 },
};

/* Layers are listed, or the first of every n sees everything. */
static const int *which_slide(nn_config *c, const hparams *h) {
    if (nn_config_count(c, "attention.sliding_window_pattern", "layer_types"))
        return nn_config_layer_is(c, "attention.sliding_window_pattern", "layer_types", "sliding_attention", 0);
    int64_t every = nn_config_int(c, "attention.sliding_window_pattern", "global_attn_every_n_layers", 3);
    int    *out = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *out);
    if (every < 1) nn_config_fail(c, "global_attn_every_n_layers is %lld", (long long)every);
    for (int i = 0; i < h->d.n_layer && every > 0; i++) out[i] = i % every != 0;
    nn_config_derived_layers(c, "attention.sliding_window_pattern", out);
    return out;
}

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    h->d.n_kv = h->d.n_head;
    nn_config_derived(c, "attention.layer_norm_epsilon", (double)h->d.eps);
    h->slides = which_slide(c, h);
    if (h->window < 2) nn_config_fail(c, "local_attention is %d", h->window);
    h->act = nn_config_act(c, "hidden_activation", "hidden_activation", NN_ACT_GELU);
    h->rope = nn_rope_read(
        c, &h->d, (nn_rope_want){ .base = 160000, .layer_type = "full_attention", .hf_base = "global_rope_theta" });
    h->rope_sliding = nn_rope_read(c, &h->d,
                                   (nn_rope_want){ .base = 10000,
                                                   .layer_type = "sliding_attention",
                                                   .gguf_base = "rope.freq_base_swa",
                                                   .hf_base = "local_rope_theta",
                                                   .unscaled = true });
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    const nn_dims *d = p;
    top           *t = out;
    nn_bind_mat(b, &t->embd, "token_embd", "model.embeddings.tok_embeddings", d->n_embd, d->n_vocab, NN_AT_LEAST);
    nn_bind_norm(b, &t->embd_norm, "token_embd_norm", "model.embeddings.norm", d->n_embd, NN_OPTIONAL);
    nn_bind_norm(b, &t->norm, "output_norm", "model.final_norm", d->n_embd, NN_OPTIONAL);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const nn_dims *d = p;
    layer         *w = out;
    const int64_t  n = d->n_embd;
    if (i > 0) nn_bind_norm(b, &w->attn_norm, "attn_norm", "attn_norm", n, NN_OPTIONAL);
    nn_bind_linear(b, &w->q, "attn_qkv#0/3", "attn.Wqkv#0/3", n, n, 0);
    nn_bind_linear(b, &w->k, "attn_qkv#1/3", "attn.Wqkv#1/3", n, n, 0);
    nn_bind_linear(b, &w->v, "attn_qkv#2/3", "attn.Wqkv#2/3", n, n, 0);
    nn_bind_linear(b, &w->o, "attn_output", "attn.Wo", n, n, 0);
    nn_bind_norm(b, &w->ffn_norm, "ffn_norm", "mlp_norm", n, NN_OPTIONAL);
    nn_bind_linear(b, &w->gate, "ffn_up#0/2", "mlp.Wi#0/2", n, d->n_ff, 0);
    nn_bind_linear(b, &w->up, "ffn_up#1/2", "mlp.Wi#1/2", n, d->n_ff, 0);
    nn_bind_linear(b, &w->down, "ffn_down", "mlp.Wo", d->n_ff, n, 0);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->d;
    const top     *tw = net->top;
    nn_attn_spec   a = nn_attn_plain(d, 0);
    nn_buf         x = nn_norm_rows(t, nn_embed(t, tw->embd, 1), &tw->embd_norm, d->eps);
    for (int i = 0; i < d->n_layer; i++) {
        const layer   *w = (const layer *)net->layers + i;
        const nn_rope *rope = h->slides[i] ? &h->rope_sliding : &h->rope;
        nn_buf         n = w->attn_norm.w ? nn_norm_rows(t, x, &w->attn_norm, d->eps) : x;
        nn_buf         q = nn_project(t, n, w->q), k = nn_project(t, n, w->k), v = nn_project(t, n, w->v);
        nn_rotate(t, q, k, d->head_dim, rope);
        nn_kv_store(t, i, k, v);
        a.reach = h->slides[i] ? h->window / 2 : 0;
        nn_project_add(t, x, nn_attention(t, i, q, a), w->o);
        n = nn_norm_rows(t, x, &w->ffn_norm, d->eps);
        nn_project_add(t, x, nn_glu(t, n, w->gate, w->up, h->act), w->down);
    }
    nn_vectors(t, nn_norm_rows(t, nn_outputs(t, x), &tw->norm, d->eps));
}

const nn_arch models_modernbert = { NN_WHOLE, .names = NN_NAMES("modern-bert", "modernbert") };
