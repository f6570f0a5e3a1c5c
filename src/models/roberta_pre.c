/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RoBERTa with its norms in front of the blocks and one at the end: XLM-RoBERTa-XL, whose embedding has none, and
 * RoBERTa-PreLayerNorm, whose embedding has one.
 */
#include "nn/nn.h"

typedef struct hparams {
    nn_dims     d;
    int         offset; /* of positions: they are counted from behind the padding token's number */
    bool        embd_norm;
    nn_act_kind act;
} hparams;

typedef struct top {
    const nn_mat *embd, *positions, *segments;
    nn_norm       embd_norm, norm;
} top;

typedef struct layer {
    nn_linear q, k, v, o, up, down;
    nn_norm   attn_norm, ffn_norm;
} layer;

static const nn_key keys[] = { { 0 } };

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    h->d.n_kv = h->d.n_head;
    h->embd_norm = nn_config_arch(c, "roberta-prelayernorm");
    if (!nn_config_is(c, NULL, "position_embedding_type", "absolute", true))
        nn_config_fail(c, "position_embedding_type: only \"absolute\" is supported for this family");
    if (nn_config_bool(c, NULL, "is_decoder", false) || nn_config_bool(c, NULL, "add_cross_attention", false))
        nn_config_fail(c, "is_decoder and add_cross_attention are not supported for this family");
    const int64_t padding = nn_config_int(c, NULL, "pad_token_id", 1);
    if (padding < 0 || padding >= h->d.context - 1) {
        nn_config_fail(c, "%d positions do not begin behind the padding token %lld", h->d.context, (long long)padding);
        return;
    }
    h->offset = (int)padding + 1;
    h->d.context -= h->offset;
    h->act = nn_config_act(c, NULL, "hidden_act", NN_ACT_GELU);
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    const int64_t  n = h->d.n_embd;
    top           *t = out;
    nn_bind_mat(b, &t->embd, "token_embd", "model.embeddings.word_embeddings", n, h->d.n_vocab, NN_AT_LEAST);
    nn_bind_mat(b, &t->segments, "token_types", "model.embeddings.token_type_embeddings", n, 1, NN_AT_LEAST);
    nn_bind_mat(b, &t->positions, "position_embd", "model.embeddings.position_embeddings", n,
                (int64_t)h->d.context + h->offset, 0);
    if (h->embd_norm) nn_bind_norm(b, &t->embd_norm, "token_embd_norm", "model.embeddings.LayerNorm", n, 0);
    nn_bind_norm(b, &t->norm, "output_norm", "model.encoder.LayerNorm|model.LayerNorm", n, 0);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    layer         *w = out;
    const int64_t  n = h->d.n_embd, ff = h->d.n_ff;
    (void)i;
    nn_bind_norm(b, &w->attn_norm, "attn_norm", "attention.self_attn_layer_norm|attention.LayerNorm", n, 0);
    nn_bind_linear(b, &w->q, "attn_q", "attention.self.query", n, n, 0);
    nn_bind_linear(b, &w->k, "attn_k", "attention.self.key", n, n, 0);
    nn_bind_linear(b, &w->v, "attn_v", "attention.self.value", n, n, 0);
    nn_bind_linear(b, &w->o, "attn_output", "attention.output.dense", n, n, 0);
    nn_bind_norm(b, &w->ffn_norm, "ffn_norm", "LayerNorm|intermediate.LayerNorm", n, 0);
    nn_bind_linear(b, &w->up, "ffn_up", "intermediate.dense", n, ff, 0);
    nn_bind_linear(b, &w->down, "ffn_down", "output.dense", ff, n, 0);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->d;
    const top     *tw = net->top;
    nn_attn_spec   a = nn_attn_plain(d, 0);
    nn_buf         x = nn_embed(t, tw->embd, 1);
    nn_embed_segments(t, x, tw->segments);
    nn_embed_positions(t, x, tw->positions, h->offset);
    if (tw->embd_norm.w) x = nn_norm_rows(t, x, &tw->embd_norm, d->eps);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = (const layer *)net->layers + i;
        nn_buf       n = nn_norm_rows(t, x, &w->attn_norm, d->eps);
        nn_kv_store(t, i, nn_project(t, n, w->k), nn_project(t, n, w->v));
        nn_project_add(t, x, nn_attention(t, i, nn_project(t, n, w->q), a), w->o);
        nn_buf f = nn_project(t, nn_norm_rows(t, x, &w->ffn_norm, d->eps), w->up);
        nn_act(t, f, h->act);
        nn_project_add(t, x, f, w->down);
    }
    nn_vectors(t, nn_norm_rows(t, nn_outputs(t, x), &tw->norm, d->eps));
}

const nn_arch models_roberta_pre = { NN_WHOLE, .names = NN_NAMES("xlm-roberta-xl", "roberta-prelayernorm"),
                                     .hf_only = true, .hf_layers = "model.encoder.layer." };
