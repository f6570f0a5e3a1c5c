/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whisper: a decoder that attends to the rows of a sound beside its own.
 *
 * Every sound is as long as all (30 s), so its rows are always as many, `heard`. They are the first positions of a
 * sequence, supplied as those of a sound are in other families, and the text follows. Two layers of the tape are one of
 * the file's: the even one keeps keys and values of the stream and attends within the chunk of `heard` positions that a
 * row is in, which for a text is all of the text; the odd one keeps what the rows of the input become by the other
 * attention's matrices, and nothing from position `heard` on is seen. So a layer's text is computed as if the sound were
 * another input. What layers make of a sound's own rows nobody sees.
 *
 * Positions are learned and begin anew with the text.
 */
#include "nn/nn.h"

typedef struct hparams {
    nn_dims     d;
    int         heard, texts; /* positions of a sound, of a text */
    nn_act_kind act;
} hparams;

typedef struct top {
    const nn_mat *embd, *positions;
    nn_norm       norm;
    nn_linear     head;
} top;

/* One of the two attentions; the feed-forward goes with the second. */
typedef struct layer {
    nn_norm  norm, ffn_norm;
    nn_heads attn;
    nn_mlp   mlp;
} layer;

enum { EACH = 2, MOST_HEARD = 1 << 16 };

static const nn_key keys[] = {
    NN_INT(d.n_head, "attention.head_count", "decoder_attention_heads", NN_REQUIRED),
    NN_INT(d.n_ff, "feed_forward_length", "decoder_ffn_dim", NN_REQUIRED),
    NN_INT(heard, "position_count", "max_source_positions", 1500),
    NN_INT(texts, NULL, "max_target_positions", 448),
    { 0 },
};

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    nn_dims *d = &h->d;
    nn_config_layers(c, d, EACH * nn_config_int(c, "block_count", "decoder_layers", NN_REQUIRED_INT));
    d->eps = (float)nn_config_real(c, "attention.layer_norm_epsilon", NULL, 1e-5);
    if (d->n_head < 1 || d->n_embd % d->n_head)
        nn_config_fail(c, "%d heads cannot share a width of %d", d->n_head, d->n_embd);
    else
        d->head_dim = d->n_embd / d->n_head;
    d->n_kv = d->n_head;
    if (d->n_ff < 1) nn_config_fail(c, "a feed-forward of width %d", d->n_ff);
    if (h->heard < 1 || h->heard > MOST_HEARD || h->texts < 1 || h->texts > h->heard)
        nn_config_fail(c, "%d positions of a sound and %d of a text make no sense", h->heard, h->texts);
    d->context = d->limit = h->heard + h->texts;
    h->act = nn_config_act(c, NULL, "activation_function", NN_ACT_GELU);
    nn_config_known(c, "scale_embedding", "false");
    nn_config_unsaid(c, "encoder_layers"); /* a file without the encoder would be of no use */
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    top           *t = out;
    nn_bind_mat(b, &t->embd, "token_embd", "model.decoder.embed_tokens", d->n_embd, d->n_vocab, NN_AT_LEAST);
    nn_bind_mat(b, &t->positions, "position_embd", "model.decoder.embed_positions", d->n_embd, h->texts, 0);
    nn_bind_norm(b, &t->norm, "output_norm", "model.decoder.layer_norm", d->n_embd, 0);
    nn_bind_head(b, &t->head, t->embd, d->n_embd, d->n_vocab);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    layer         *w = out;
    const int64_t  n = h->d.n_embd;
    bool           across = i % EACH;
    nn_bind_norm(b, &w->norm, across ? "attn_norm_cross" : "attn_norm",
                 across ? "encoder_attn_layer_norm" : "self_attn_layer_norm", n, 0);
    nn_bind_linear(b, &w->attn.q, across ? "cross_attn_q" : "attn_q",
                   across ? "encoder_attn.q_proj" : "self_attn.q_proj", n, n, 0);
    nn_bind_linear(b, &w->attn.k, across ? "cross_attn_k" : "attn_k",
                   across ? "encoder_attn.k_proj" : "self_attn.k_proj", n, n, 0);
    nn_bind_linear(b, &w->attn.v, across ? "cross_attn_v" : "attn_v",
                   across ? "encoder_attn.v_proj" : "self_attn.v_proj", n, n, 0);
    nn_bind_linear(b, &w->attn.o, across ? "cross_attn_output" : "attn_output",
                   across ? "encoder_attn.out_proj" : "self_attn.out_proj", n, n, 0);
    if (!across) return;
    nn_bind_norm(b, &w->ffn_norm, "ffn_norm", "final_layer_norm", n, 0);
    nn_bind_linear(b, &w->mlp.up, "ffn_up", "fc1", n, h->d.n_ff, 0);
    nn_bind_linear(b, &w->mlp.down, "ffn_down", "fc2", h->d.n_ff, n, 0);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    return nn_state_kv(h->d.n_kv, h->d.head_dim, i % EACH ? 0 : h->heard);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->d;
    const top     *tw = net->top;
    nn_attn_spec   own = nn_attn_plain(d, h->heard), across = nn_attn_plain(d, 0);
    nn_buf         heard = nn_embed(t, tw->embd, 1.0f), x = nn_take(t, heard, 0, d->n_embd);
    own.chunk = across.until = h->heard;
    nn_embed_positions(t, x, tw->positions, -h->heard);
    for (int i = 0; i < d->n_layer; i += EACH) {
        const layer *w = (const layer *)net->layers + i, *a = w + 1;
        nn_buf       n = nn_norm_rows(t, x, &w->norm, d->eps);
        nn_project_add(t, x, nn_attend(t, i, n, &w->attn, NULL, own, d->eps), w->attn.o);
        nn_kv_store(t, i + 1, nn_project(t, heard, a->attn.k), nn_project(t, heard, a->attn.v));
        nn_buf q = nn_project(t, nn_norm_rows(t, x, &a->norm, d->eps), a->attn.q);
        nn_project_add(t, x, nn_attention(t, i + 1, q, across), a->attn.o);
        nn_project_add(t, x, nn_feed(t, nn_norm_rows(t, x, &a->ffn_norm, d->eps), &a->mlp, h->act), a->mlp.down);
    }
    nn_logits(t, nn_norm_rows(t, nn_outputs(t, x), &tw->norm, d->eps), tw->head, 1.0f, 0.0f);
}

static const char *const roots[] = { "model.", "", NULL };

const nn_arch models_whisper = { NN_FAMILY,
                                 .hf_only = true,
                                 .names = NN_NAMES("whisper"),
                                 .tied = NN_NAMES("whisper"),
                                 .hf_layers = "model.decoder.layers.",
                                 .hf_roots = roots,
                                 .each = EACH,
                                 .lacks = NN_LACKS_HEADS | NN_LACKS_FF | NN_LACKS_EPS };
