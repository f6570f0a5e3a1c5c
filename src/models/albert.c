/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ALBERT: BERT with one layer's weights for all layers and an embedding that is narrower than they are.
 */
#include "nn/nn.h"

typedef struct hparams {
    nn_dims     d;
    int         n_narrow; /* width of the embedding */
    nn_act_kind act;
} hparams;

typedef struct top {
    const nn_mat *embd, *positions, *segments;
    nn_linear     widen, q, k, v, o, up, down;
    nn_norm       norm, attn_norm, out_norm;
} top;

static const nn_key keys[] = {
    NN_INT(n_narrow, NULL, "embedding_size", 128),
    { 0 },
};

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    h->d.n_kv = h->d.n_head;
    nn_config_only_number(c, NULL, "num_hidden_groups", 1);
    nn_config_only_number(c, NULL, "inner_group_num", 1);
    if (!nn_config_is(c, NULL, "position_embedding_type", "absolute", true))
        nn_config_fail(c, "position_embedding_type: only \"absolute\" is supported for this family");
    if (h->n_narrow < 1) nn_config_fail(c, "embedding_size is %d", h->n_narrow);
    if (h->d.context < 1) nn_config_fail(c, "an encoder needs a context length");
    h->act = nn_config_act(c, NULL, "hidden_act", NN_ACT_GELU_TANH);
}

#define LAYER "model.encoder.albert_layer_groups.0.albert_layers.0."

static void bind_top(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    top           *t = out;
    const int64_t  n = h->d.n_embd, ff = h->d.n_ff, narrow = h->n_narrow;
    nn_bind_mat(b, &t->embd, "token_embd", "model.embeddings.word_embeddings", narrow, h->d.n_vocab, NN_AT_LEAST);
    nn_bind_mat(b, &t->segments, "token_types", "model.embeddings.token_type_embeddings", narrow, 1, NN_AT_LEAST);
    nn_bind_mat(b, &t->positions, "position_embd", "model.embeddings.position_embeddings", narrow, h->d.context, 0);
    nn_bind_norm(b, &t->norm, "token_embd_norm", "model.embeddings.LayerNorm", narrow, 0);
    nn_bind_linear(b, &t->widen, "token_embd_up", "model.encoder.embedding_hidden_mapping_in", narrow, n, 0);
    nn_bind_linear(b, &t->q, "attn_q", LAYER "attention.query", n, n, 0);
    nn_bind_linear(b, &t->k, "attn_k", LAYER "attention.key", n, n, 0);
    nn_bind_linear(b, &t->v, "attn_v", LAYER "attention.value", n, n, 0);
    nn_bind_linear(b, &t->o, "attn_output", LAYER "attention.dense", n, n, 0);
    nn_bind_norm(b, &t->attn_norm, "attn_output_norm", LAYER "attention.LayerNorm", n, 0);
    nn_bind_linear(b, &t->up, "ffn_up", LAYER "ffn", n, ff, 0);
    nn_bind_linear(b, &t->down, "ffn_down", LAYER "ffn_output", ff, n, 0);
    nn_bind_norm(b, &t->out_norm, "layer_output_norm", LAYER "full_layer_layer_norm", n, 0);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->d;
    const top     *w = net->top;
    nn_attn_spec   a = nn_attn_plain(d, 0);
    nn_buf         x = nn_embed(t, w->embd, 1);
    nn_embed_segments(t, x, w->segments);
    nn_embed_positions(t, x, w->positions, 0);
    x = nn_project(t, nn_norm_rows(t, x, &w->norm, d->eps), w->widen);
    for (int i = 0; i < d->n_layer; i++) {
        nn_kv_store(t, i, nn_project(t, x, w->k), nn_project(t, x, w->v));
        nn_project_add(t, x, nn_attention(t, i, nn_project(t, x, w->q), a), w->o);
        x = nn_norm_rows(t, x, &w->attn_norm, d->eps);
        nn_buf f = nn_project(t, x, w->up);
        nn_act(t, f, h->act);
        nn_project_add(t, x, f, w->down);
        x = nn_norm_rows(t, x, &w->out_norm, d->eps);
    }
    nn_vectors(t, nn_outputs(t, x));
}

const nn_arch models_albert = { .hp_size = sizeof(hparams),
                                .top_size = sizeof(top),
                                .layer_size = 1,
                                .keys = keys,
                                .setup = setup,
                                .bind_top = bind_top,
                                .bind_layer = nn_bind_nothing,
                                .state = nn_state_whole,
                                .forward = forward,
                                .names = NN_NAMES("albert"),
                                .hf_only = true };
