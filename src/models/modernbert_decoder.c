/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ModernBERT as a decoder (Ettin): LayerNorms, one full layer to two with a window, each kind with its own rotation, and
 * a dense layer with a norm in front of the head. The first layer's input is normed behind the embedding.
 */
#include "nn/nn.h"

typedef struct hparams {
    nn_dims     d;
    int         window;
    const int  *slides;
    nn_act_kind act, head_act;
    nn_rope     rope[2]; /* full, windowed */
} hparams;

typedef struct top {
    const nn_mat *embd;
    nn_norm       embd_norm, norm, head_norm;
    nn_linear     dense, head;
} top;

typedef struct layer {
    nn_norm   attn_norm, ffn_norm; /* attn_norm.w NULL: none */
    nn_linear q, k, v, o, gate, up, down;
} layer;

static const nn_key keys[] = {
    NN_INT(window, NULL, "local_attention", 128),
    { 0 },
};

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    int64_t  every = nn_config_int(c, NULL, "global_attn_every_n_layers", 3);
    int     *slides = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *slides);
    bool     named = nn_config_count(c, NULL, "layer_types") > 0;
    if (every < 1 || h->window < 2) {
        nn_config_fail(c, "a window of %d in all layers but every %lldth makes no sense", h->window, (long long)every);
        return;
    }
    h->d.n_kv = h->d.n_head;
    const int *list = nn_config_layer_is(c, NULL, "layer_types", "sliding_attention", 0);
    for (int i = 0; i < h->d.n_layer && slides; i++) slides[i] = named ? list[i] : i % every != 0;
    h->slides = slides;
    h->window /= 2; /* the file's reaches to both sides */
    h->act = nn_config_act(c, NULL, "hidden_activation", NN_ACT_GELU);
    h->head_act = nn_config_act(c, NULL, "classifier_activation", NN_ACT_GELU);
    h->rope[0] = nn_rope_read(
        c, &h->d, (nn_rope_want){ .base = 160000, .layer_type = "full_attention", .hf_base = "global_rope_theta" });
    h->rope[1] = nn_rope_read(
        c, &h->d, (nn_rope_want){ .base = 10000, .layer_type = "sliding_attention", .hf_base = "local_rope_theta" });
    nn_config_unsaid(c, "local_attention");
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    const nn_dims *d = p;
    top           *t = out;
    int64_t        n = d->n_embd;
    nn_bind_mat(b, &t->embd, "token_embd", "model.embeddings.tok_embeddings", n, d->n_vocab, NN_AT_LEAST);
    nn_bind_norm(b, &t->embd_norm, "token_embd_norm", "model.embeddings.norm", n, NN_OPTIONAL);
    nn_bind_norm(b, &t->norm, "output_norm", "model.final_norm", n, NN_OPTIONAL);
    nn_bind_linear(b, &t->dense, "head_dense", "lm_head.dense", n, n, 0);
    nn_bind_norm(b, &t->head_norm, "head_norm", "lm_head.norm", n, NN_OPTIONAL);
    nn_bind_linear(b, &t->head, "output", "decoder", n, d->n_vocab, NN_OPTIONAL | NN_AT_LEAST);
    if (!t->head.w) {
        t->head.w = t->embd;
        nn_bind_vec(b, &t->head.b, "output.bias", "decoder.bias", d->n_vocab, NN_OPTIONAL);
    }
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const nn_dims *d = p;
    layer         *w = out;
    const int64_t  n = d->n_embd;
    if (i > 0) nn_bind_norm(b, &w->attn_norm, "attn_norm", "attn_norm", n, NN_OPTIONAL);
    nn_bind_linear(b, &w->q, "attn_q", "attn.q_proj", n, n, 0);
    nn_bind_linear(b, &w->k, "attn_k", "attn.k_proj", n, n, 0);
    nn_bind_linear(b, &w->v, "attn_v", "attn.v_proj", n, n, 0);
    nn_bind_linear(b, &w->o, "attn_output", "attn.Wo", n, n, 0);
    nn_bind_norm(b, &w->ffn_norm, "ffn_norm", "mlp_norm", n, NN_OPTIONAL);
    nn_bind_linear(b, &w->gate, "ffn_up#0/2", "mlp.Wi#0/2", n, d->n_ff, 0);
    nn_bind_linear(b, &w->up, "ffn_up#1/2", "mlp.Wi#1/2", n, d->n_ff, 0);
    nn_bind_linear(b, &w->down, "ffn_down", "mlp.Wo", d->n_ff, n, 0);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    return nn_state_kv(h->d.n_kv, h->d.head_dim, h->slides[i] ? h->window : 0);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const top     *tw = net->top;
    float          eps = h->d.eps;

    nn_buf x = nn_norm_rows(t, nn_embed(t, tw->embd, 1.0f), &tw->embd_norm, eps);
    for (int i = 0; i < h->d.n_layer; i++) {
        const layer *w = (const layer *)net->layers + i;
        nn_buf       n = w->attn_norm.w ? nn_norm_rows(t, x, &w->attn_norm, eps) : x;
        nn_buf       q = nn_project(t, n, w->q), k = nn_project(t, n, w->k);
        nn_rotate(t, q, k, h->d.head_dim, &h->rope[h->slides[i]]);
        nn_kv_store(t, i, k, nn_project(t, n, w->v));
        nn_project_add(t, x, nn_attention(t, i, q, nn_attn_plain(&h->d, h->slides[i] ? h->window : 0)), w->o);
        n = nn_norm_rows(t, x, &w->ffn_norm, eps);
        nn_project_add(t, x, nn_glu(t, n, w->gate, w->up, h->act), w->down);
    }
    x = nn_project(t, nn_norm_rows(t, nn_outputs(t, x), &tw->norm, eps), tw->dense);
    nn_act(t, x, h->head_act);
    nn_logits(t, nn_norm_rows(t, x, &tw->head_norm, eps), tw->head, 1.0f, 0.0f);
}

const nn_arch models_modernbert_decoder = { NN_FAMILY, .hf_only = true, .names = NN_NAMES("modernbert-decoder"),
                                            .tied = NN_NAMES("modernbert-decoder") };
