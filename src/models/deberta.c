/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DeBERTa, all three versions: an encoder like BERT whose scores have two more terms, the query with a vector for the
 * distance of the key and the key with one for that of the query (nn_apart). Both vectors come from one table that all
 * layers share, through the layer's own matrices of keys and queries or through two more. The first version has
 * queries, keys and values of a head side by side in one matrix, and biases on queries and values alone.
 */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_dims     d;
    int         n_bucket, max_distance; /* n_bucket 0: each distance has its own vector */
    bool        first, shared, normed, positions;
    int         n_narrow; /* width of the embedding */
    nn_act_kind act;
} hparams;

typedef struct top {
    const nn_mat *embd, *positions, *segments, *apart;
    nn_linear     widen;
    nn_norm       norm, apart_norm;
} top;

typedef struct layer {
    nn_heads      h;
    nn_linear     up, down, q_apart, k_apart;
    const nn_vec *q_bias, *v_bias;
    nn_norm       attn_norm, out_norm;
} layer;

static const nn_key keys[] = {
    NN_INT(n_bucket, NULL, "position_buckets", -1),
    NN_INT(max_distance, NULL, "max_relative_positions", -1),
    { 0 },
};

/* Both terms, in a list or as "p2c|c2p". A GGUF file has no words for it; there is none but for tests. */
static void check_terms(nn_config *c) {
    if (nn_config_gguf(c)) return;
    static const char field[] = "pos_att_type", *const c2p = "c2p", *const p2c = "p2c";
    bool listed = nn_config_count(c, NULL, field) == 2 &&
                  (nn_config_letter_at(c, field, 0, '\0', c2p)
                       ? nn_config_letter_at(c, field, 1, '\0', p2c)
                       : nn_config_letter_at(c, field, 0, '\0', p2c) && nn_config_letter_at(c, field, 1, '\0', c2p));
    bool written =
        !listed && (nn_config_is(c, NULL, field, "p2c|c2p", false) || nn_config_is(c, NULL, field, "c2p|p2c", false));
    if (!nn_config_bool(c, NULL, "relative_attention", false) || !(listed || written))
        nn_config_fail(c, "relative_attention and pos_att_type: only true with \"c2p\" and \"p2c\" is supported");
}

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    h->d.n_kv = h->d.n_head;
    h->first = nn_config_arch(c, "deberta");
    if ((int64_t)h->d.n_head * h->d.head_dim != h->d.n_embd)
        nn_config_fail(c, "%d attention heads of %d elements do not make the hidden size of %d", h->d.n_head,
                       h->d.head_dim, h->d.n_embd);
    check_terms(c);
    if (nn_config_bool(c, NULL, "talking_head", false)) nn_config_fail(c, "talking_head is not supported");
    if (h->first) h->n_bucket = 0;
    if (h->n_bucket < 0) h->n_bucket = 0;
    if (h->max_distance < 1) h->max_distance = h->d.context;
    h->shared = !h->first && nn_config_bool(c, NULL, "share_att_key", false);
    h->normed = !h->first && nn_config_is(c, NULL, "norm_rel_ebd", "layer_norm", false);
    if (!h->first && !h->normed && !nn_config_is(c, NULL, "norm_rel_ebd", "none", true))
        nn_config_fail(c, "norm_rel_ebd: only \"none\" and \"layer_norm\" are supported");
    h->positions = nn_config_bool(c, NULL, "position_biased_input", true);
    h->n_narrow = (int)nn_config_int(c, NULL, "embedding_size", h->d.n_embd);
    if (nn_config_int(c, NULL, "conv_kernel_size", 0) > 0)
        nn_config_fail(c, "conv_kernel_size: a convolution behind the first layer is not supported");
    nn_config_only_number(c, NULL, "attention_head_size", h->d.head_dim);
    if (h->n_narrow < 1) nn_config_fail(c, "embedding_size is %d", h->n_narrow);
    if (h->d.context < 1) nn_config_fail(c, "an encoder needs a context length");
    h->act = nn_config_act(c, NULL, "hidden_act", NN_ACT_GELU);
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    top           *t = out;
    const int64_t  span = h->n_bucket ? h->n_bucket : h->max_distance;
    nn_bind_mat(b, &t->embd, "token_embd", "model.embeddings.word_embeddings", h->n_narrow, d->n_vocab, NN_AT_LEAST);
    nn_bind_mat(b, &t->segments, "token_types", "model.embeddings.token_type_embeddings", h->n_narrow, 1,
                NN_OPTIONAL | NN_AT_LEAST);
    if (h->positions)
        nn_bind_mat(b, &t->positions, "position_embd", "model.embeddings.position_embeddings", h->n_narrow, d->context,
                    NN_AT_LEAST);
    if (h->n_narrow != d->n_embd)
        nn_bind_linear(b, &t->widen, "embd_proj", "model.embeddings.embed_proj", h->n_narrow, d->n_embd, 0);
    nn_bind_norm(b, &t->norm, "token_embd_norm", "model.embeddings.LayerNorm", d->n_embd, 0);
    nn_bind_mat(b, &t->apart, "apart_embd", "model.encoder.rel_embeddings", d->n_embd, 2 * span, NN_AT_LEAST);
    if (h->normed) nn_bind_norm(b, &t->apart_norm, "apart_norm", "model.encoder.LayerNorm", d->n_embd, 0);
    nn_bind_none(b, "conv", "model.encoder.conv.conv");
}

static void bind_attention(nn_binder *b, layer *w, const hparams *h) {
    const int64_t n = h->d.n_embd;
    if (h->first) {
        nn_bind_qkv(b, &w->h, "attn_qkv", "attention.self.in_proj", &h->d, true);
        nn_bind_vec(b, &w->q_bias, "attn_q_bias", "attention.self.q_bias", n, 0);
        nn_bind_vec(b, &w->v_bias, "attn_v_bias", "attention.self.v_bias", n, 0);
    } else {
        nn_bind_linear(b, &w->h.q, "attn_q", "attention.self.query_proj", n, n, 0);
        nn_bind_linear(b, &w->h.k, "attn_k", "attention.self.key_proj", n, n, 0);
        nn_bind_linear(b, &w->h.v, "attn_v", "attention.self.value_proj", n, n, 0);
    }
    if (!h->shared) {
        nn_bind_linear(b, &w->q_apart, "attn_q_apart", "attention.self.pos_query_proj|attention.self.pos_q_proj", n, n,
                       0);
        nn_bind_linear(b, &w->k_apart, "attn_k_apart", "attention.self.pos_key_proj|attention.self.pos_proj", n, n, 0);
    }
    nn_bind_linear(b, &w->h.o, "attn_output", "attention.output.dense", n, n, 0);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    layer         *w = out;
    const int64_t  n = h->d.n_embd, ff = h->d.n_ff;
    (void)i;
    bind_attention(b, w, h);
    nn_bind_norm(b, &w->attn_norm, "attn_output_norm", "attention.output.LayerNorm", n, 0);
    nn_bind_linear(b, &w->up, "ffn_up", "intermediate.dense", n, ff, 0);
    nn_bind_linear(b, &w->down, "ffn_down", "output.dense", ff, n, 0);
    nn_bind_norm(b, &w->out_norm, "layer_output_norm", "output.LayerNorm", n, 0);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->d;
    const top     *tw = net->top;
    nn_attn_spec   a = nn_attn_plain(d, 0);
    nn_buf         x = nn_embed(t, tw->embd, 1);
    if (tw->positions) nn_embed_positions(t, x, tw->positions, 0);
    if (tw->segments) nn_embed_segments(t, x, tw->segments);
    if (tw->widen.w) x = nn_project(t, x, tw->widen);
    x = nn_norm_rows(t, x, &tw->norm, d->eps);
    nn_apart_table *far = nn_apart_open(t, tw->apart, &tw->apart_norm, d->eps, h->n_bucket, h->max_distance);
    a.scale /= sqrtf(3); /* as many terms have a score */
    for (int i = 0; i < d->n_layer; i++) {
        const layer  *w = (const layer *)net->layers + i;
        nn_buf        q = nn_project(t, x, w->h.q), k = nn_project(t, x, w->h.k), v = nn_project(t, x, w->h.v);
        const nn_mat *by_key = nn_apart_rows(t, far, h->shared ? w->h.k : w->k_apart, d->n_head),
                     *by_query = nn_apart_rows(t, far, h->shared ? w->h.q : w->q_apart, d->n_head);
        if (w->q_bias) nn_add_each(t, q, w->q_bias, 1);
        if (w->v_bias) nn_add_each(t, v, w->v_bias, 1);
        nn_kv_store(t, i, k, v);
        a.apart = nn_apart_of(t, far, q, by_key, k, by_query);
        nn_project_add(t, x, nn_attention(t, i, q, a), w->h.o);
        x = nn_norm_rows(t, x, &w->attn_norm, d->eps);
        nn_buf f = nn_project(t, x, w->up);
        nn_act(t, f, h->act);
        nn_project_add(t, x, f, w->down);
        x = nn_norm_rows(t, x, &w->out_norm, d->eps);
    }
    nn_vectors(t, nn_outputs(t, x));
}

const nn_arch models_deberta = { NN_WHOLE, .names = NN_NAMES("deberta-v2", "deberta"), .hf_only = true,
                                 .hf_layers = "model.encoder.layer." };
