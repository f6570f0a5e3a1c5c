/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tower of Ovis 2, and what makes rows of the language model of its own.
 *
 * A ViT without biases: patches are normed before they get their learned positions, RMS norms before attention and a gated
 * feed-forward, and behind the last layer. A matrix and a norm over a square of patches score the words of a visual vocabulary;
 * a row is the mixture of that vocabulary's embeddings by the softmax of these scores, which the vision room takes
 * (vision/families/ovis.c). The last words of the vocabulary are never scored: they part the tiles of a picture.
 */
#include "nn/nn.h"

typedef struct hparams {
    nn_tower_dims t;
    int           merge, n_out; /* patches on a side of a square; the language model's width */
    int           words, marks; /* of the visual vocabulary; its last ones */
    nn_act_kind   act;
} hparams;

typedef struct top {
    nn_tower_top  t;
    nn_linear     patch;
    const nn_vec *embd_norm, *norm;
} top;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm;
    nn_heads      attn;
    nn_mlp        mlp;
} layer;

static const nn_key keys[] = {
    NN_INT(t.patch, NULL, "patch_size", 14),
    NN_INT(t.image, NULL, "image_size", 224),
    NN_INT(merge, NULL, "hidden_stride", 1),
    NN_INT(words, NULL, "vocab_size", 16384),
    NN_INT(marks, NULL, "num_visual_indicator_tokens", 5),
    { 0 },
};

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    nn_dims *d = &h->t.d;
    d->n_kv = d->n_head;
    d->eps = (float)nn_config_real(c, NULL, "rms_norm_eps", 1e-5);
    h->n_out = (int)nn_config_outer_int(c, "projection_dim", "text_config.hidden_size|hidden_size", NN_REQUIRED_INT);
    if (d->head_dim <= 0 || d->head_dim * d->n_head != d->n_embd || h->t.patch < 1 || h->t.patch > 256 ||
        h->t.image < h->t.patch || h->t.image > 16384 || h->merge < 1 || h->merge > 16 || h->n_out < 1 ||
        h->n_out > 1 << 20 || h->marks < 1 || h->marks > 1 << 10 || h->words <= h->marks || h->words > 1 << 20) {
        nn_config_fail(c, "patches of %d pixels, squares of %d, %d heads in a width of %d, rows of %d, %d visual words",
                       h->t.patch, h->merge, d->n_head, d->n_embd, h->n_out, h->words);
        return;
    }
    nn_config_only_number(c, NULL, "num_channels", 3);
    nn_config_only(c, NULL, "tokenize_function", "softmax");
    h->act = nn_config_act(c, NULL, "hidden_act", NN_ACT_SILU);
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    top           *t = out;
    const int64_t  n = h->t.d.n_embd, side = h->t.image / h->t.patch;
    nn_bind_patches(b, &t->patch, "v.patch_embd", "model.embeddings.patch_embedding", 3 * h->t.patch * h->t.patch, n);
    nn_bind_table(b, &t->t.positions, NULL, "model.embeddings.position_embedding", side * side, n);
    nn_bind_vec(b, &t->embd_norm, NULL, "model.embeddings.rms_norm", n, 0);
    nn_bind_vec(b, &t->norm, NULL, "model.rms_norm", n, 0);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const nn_dims *d = p;
    layer         *w = out;
    const int64_t  n = d->n_embd, ff = d->n_ff;
    (void)i;
    nn_bind_vec(b, &w->attn_norm, NULL, "rms_norm1", n, 0);
    nn_bind_vec(b, &w->ffn_norm, NULL, "rms_norm2", n, 0);
    nn_bind_linear(b, &w->attn.q, NULL, "attention.q_proj", n, n, 0);
    nn_bind_linear(b, &w->attn.k, NULL, "attention.k_proj", n, n, 0);
    nn_bind_linear(b, &w->attn.v, NULL, "attention.v_proj", n, n, 0);
    nn_bind_linear(b, &w->attn.o, NULL, "attention.out_proj", n, n, 0);
    nn_bind_linear(b, &w->mlp.gate, NULL, "ffn.gate_proj", n, ff, 0);
    nn_bind_linear(b, &w->mlp.up, NULL, "ffn.up_proj", n, ff, 0);
    nn_bind_linear(b, &w->mlp.down, NULL, "ffn.down_proj", ff, n, 0);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams     *h = net->hp;
    const nn_dims     *d = &h->t.d;
    const top         *tw = net->top;
    const nn_attn_spec a = nn_attn_plain(d, 0);
    nn_buf             x = nn_tower_input_normed(t, &h->t, tw->patch, tw->embd_norm);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = (const layer *)net->layers + i;
        nn_buf       n = nn_rms_norm(t, x, w->attn_norm, d->eps);
        nn_project_add(t, x, nn_attend(t, i, n, &w->attn, NULL, a, d->eps), w->attn.o);
        nn_project_add(t, x, nn_feed(t, nn_rms_norm(t, x, w->ffn_norm, d->eps), &w->mlp, h->act), w->mlp.down);
    }
    nn_vectors(t, nn_outputs(t, nn_rms_norm(t, x, tw->norm, d->eps)));
}

/* --- scores and mixtures ----------------------------------------------------------------------------------------- */

typedef struct head {
    nn_linear w;
    nn_norm   norm;
} head;

static void bind_head(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    head          *w = out;
    const int64_t  in = (int64_t)h->t.d.n_embd * h->merge * h->merge, scored = h->words - h->marks;
    nn_bind_linear(b, &w->w, NULL, "model.head_linear", in, scored, NN_NO_BIAS);
    nn_bind_norm(b, &w->norm, NULL, "model.head_norm", scored, 0);
}

static void score(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const head    *w = net->top;
    nn_buf         x = nn_project(t, nn_input(t, (int64_t)h->t.d.n_embd * h->merge * h->merge), w->w);
    nn_vectors(t, nn_outputs(t, nn_norm_rows(t, x, &w->norm, 1e-5f)));
}

static void bind_mixer(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    nn_bind_linear(b, out, NULL, "model.visual_embeddings_table^", h->words, h->n_out, NN_NO_BIAS);
}

static void mix(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    nn_vectors(t, nn_outputs(t, nn_project(t, nn_input(t, h->words), *(const nn_linear *)net->top)));
}

static const char *const roots[] = { "model.vision_tower.transformer.", "vision_tower.transformer.", NULL };
static const char *const roots_head[] = { "model.vision_tower.", "vision_tower.", NULL };
static const char *const roots_mixer[] = { "model.", "", NULL };
#define PART .lacks = NN_LACKS_VOCAB | NN_LACKS_EPS, .hp_size = sizeof(hparams), .keys = keys, .setup = setup
#define ALONE PART, .layer_size = sizeof(char), .bind_layer = nn_bind_nothing, .state = nn_state_nothing
const nn_arch models_ovis_tower = { PART,
                                    .names = NN_NAMES("ovis2_vision"),
                                    .hf_roots = roots,
                                    .hf_layers = "model.encoder.layers.",
                                    .top_size = sizeof(top),
                                    .layer_size = sizeof(layer),
                                    .bind_top = bind_top,
                                    .bind_layer = bind_layer,
                                    .state = nn_state_whole,
                                    .forward = forward };
const nn_arch models_ovis_head = { ALONE,
                                   .names = NN_NAMES("ovis2_head"),
                                   .hf_roots = roots_head,
                                   .top_size = sizeof(head),
                                   .bind_top = bind_head,
                                   .forward = score };
const nn_arch models_projector_ovis = { ALONE,
                                        .names = NN_NAMES("ovis2_table"),
                                        .hf_roots = roots_mixer,
                                        .top_size = sizeof(nn_linear),
                                        .bind_top = bind_mixer,
                                        .forward = mix };
