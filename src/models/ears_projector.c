/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Projectors of sounds: from the rows of a tower to those of a language model. Neighbours come side by side.
 *
 *     Qwen 2 Audio, Qwen 2.5 Omni  a norm of the mean of two, one matrix
 *     Audio Flamingo 3             the same, two layers
 *     Music Flamingo               the same, but what is normed is turned by the caller before the layers: two parts
 *     GLM-ASR                      two layers over four
 *     Qwen 3 ASR, Qwen 3 Omni      two layers
 *     Ultravox                     a norm over eight, a gated layer, another norm, another layer
 *     Gemma 3n                     a norm, a matrix, a norm without weight; the same, with another norm, for words of
 *     a table
 */
#include "nn/nn.h"

typedef struct hparams {
    nn_dims     d; /* the tower's */
    bool        pooled, norm_alone;
    int         n_side, n_out; /* rows that come side by side; the width of those that go out */
    int         middle;        /* what the first layer gives, where there are two */
    nn_act_kind act;
} hparams;

typedef struct top {
    nn_norm   norm;
    nn_linear first, second;
} top;

typedef char layer;

static const nn_key keys[] = { { 0 } };

static void read_widths(nn_config *c, hparams *h, int side) {
    h->n_side = side;
    h->n_out = (int)nn_config_outer_int(c, "projection_dim", "text_config.hidden_size|hidden_size", NN_REQUIRED_INT);
    h->d.eps = (float)nn_config_real(c, "attention.layer_norm_epsilon", NULL, 1e-5);
    if (side < 1 || side > 64 || h->d.n_embd < 1 || h->d.n_embd > 1 << 14 || h->n_out < 1 || h->n_out > 1 << 20)
        nn_config_fail(c, "a projector from %d rows of %d to %d", side, h->d.n_embd, h->n_out);
}

static void setup_pooled(nn_config *c, void *p) {
    hparams *h = p;
    h->pooled = true;
    h->act = nn_config_outer_act(c, NULL, "projector_hidden_act", NN_ACT_GELU);
    read_widths(c, h, 2);
    h->middle = h->n_out;
}

/* As many as make the width of the tower's feed-forward. */
static void setup_stacked(nn_config *c, void *p) {
    hparams *h = p;
    int64_t  side = nn_config_int(c, "projector.stack_factor", NULL, 0);
    if (!nn_config_gguf(c) && h->d.n_embd > 0)
        side = nn_config_int(c, NULL, "intermediate_size", NN_REQUIRED_INT) / h->d.n_embd;
    (void)nn_config_real(c, NULL, "partial_rotary_factor", 1); /* the tower's */
    h->act = nn_config_outer_act(c, NULL, "projector_hidden_act", NN_ACT_GELU);
    read_widths(c, h, side < 1 || side > 64 ? 0 : (int)side);
    h->middle = 2 * h->n_out;
}

static void setup_single(nn_config *c, void *p) {
    hparams *h = p;
    h->act = nn_config_act(c, NULL, "activation_function", NN_ACT_GELU);
    read_widths(c, h, 1);
    h->middle = h->d.n_embd;
}

static void setup_norm(nn_config *c, void *p) {
    ((hparams *)p)->norm_alone = true;
    setup_pooled(c, p);
}

static void setup_double(nn_config *c, void *p) {
    hparams *h = p;
    h->act = nn_config_outer_act(c, NULL, "projector_hidden_act", NN_ACT_GELU);
    read_widths(c, h, 1);
    h->middle = h->n_out;
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    static const char *const first[] = { "mm.a.mlp.1|mm.a.fc",
                                         "model.multi_modal_projector.linear_1|model.multi_modal_projector.linear|"
                                         "model.audio_tower.proj1|model.audio_tower.proj" };
    static const char *const second[] = { "mm.a.mlp.2",
                                          "model.multi_modal_projector.linear_2|model.audio_tower.proj2" };
    const hparams           *h = p;
    top                     *t = out;
    const int64_t            n = h->d.n_embd, in = h->pooled ? n : n * h->n_side;
    if (h->pooled)
        nn_bind_norm(b, &t->norm, "a.post_ln", "model.audio_tower.layer_norm|model.audio_tower.ln_post", n, 0);
    if (h->norm_alone) return;
    const bool two = nn_bind_exists(b, second[0], second[1]);
    nn_bind_linear(b, &t->first, first[0], first[1], in, two ? h->middle : h->n_out, 0);
    if (two) nn_bind_linear(b, &t->second, second[0], second[1], h->middle, h->n_out, 0);
}

/* The mean of rows that come side by side. */
static nn_buf pool(nn_tape *t, const hparams *h, nn_buf all) {
    nn_buf x = nn_take(t, all, 0, h->d.n_embd);
    for (int k = 1; k < h->n_side; k++) nn_add(t, x, nn_take(t, all, k * h->d.n_embd, h->d.n_embd));
    nn_scale(t, x, 1.0f / (float)h->n_side);
    return x;
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const top     *tw = net->top;
    nn_buf         x = nn_input(t, (int64_t)h->d.n_embd * h->n_side);
    if (h->pooled) x = nn_norm_rows(t, pool(t, h, x), &tw->norm, h->d.eps);
    if (!h->norm_alone) x = nn_project(t, x, tw->first);
    if (tw->second.w) {
        nn_act(t, x, h->act);
        x = nn_project(t, x, tw->second);
    }
    nn_vectors(t, nn_outputs(t, x));
}

#define PROJECTOR(name, text, setup_fn)                                                                                \
    static const char *const names_##name[] = { text, NULL };                                                          \
    const nn_arch            models_projector_##name = { .names = names_##name,                                        \
                                                         .hf_roots = roots,                                            \
                                                         .hp_size = sizeof(hparams),                                   \
                                                         .top_size = sizeof(top),                                      \
                                                         .layer_size = sizeof(layer),                                  \
                                                         .keys = keys,                                                 \
                                                         .lacks = NN_LACKS_VOCAB | NN_LACKS_EPS | NN_LACKS_FF,         \
                                                         .setup = setup_fn,                                            \
                                                         .bind_top = bind_top,                                         \
                                                         .bind_layer = nn_bind_nothing,                                \
                                                         .state = nn_state_nothing,                                    \
                                                         .forward = forward }

static const char *const roots[] = { "", "model.", "thinker.", NULL };
PROJECTOR(ears_pooled, "ears_pooled_projector", setup_pooled);
PROJECTOR(ears_stacked, "ears_stacked_projector", setup_stacked);
PROJECTOR(ears_single, "ears_single_projector", setup_single);
PROJECTOR(ears_norm, "ears_norm", setup_norm);
PROJECTOR(ears_double, "ears_double_projector", setup_double);

/* --- Ultravox --- */

typedef struct gated_top {
    const nn_vec *before, *between;
    nn_linear     gate, up, down;
} gated_top;

static void setup_gated(nn_config *c, void *p) {
    hparams *h = p;
    int64_t  side = nn_config_int(c, "projector.stack_factor", NULL, NN_REQUIRED_INT);
    read_widths(c, h, side < 1 || side > 64 ? 0 : (int)side);
    h->d.eps = 1e-6f; /* of its own norms; the file's is the tower's */
}

static void bind_gated(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    gated_top     *t = out;
    const int64_t  n = (int64_t)h->d.n_embd * h->n_side,
                  middle = n > 0 ? nn_bind_size(b, "mm.a.mlp.1", NULL) / n / 2 : 0;
    nn_bind_vec(b, &t->before, "mm.a.norm_pre", NULL, n, 0);
    nn_bind_linear(b, &t->up, "mm.a.mlp.1#0/2", NULL, n, middle, NN_NO_BIAS);
    nn_bind_linear(b, &t->gate, "mm.a.mlp.1#1/2", NULL, n, middle, NN_NO_BIAS);
    nn_bind_vec(b, &t->between, "mm.a.norm_mid", NULL, middle, 0);
    nn_bind_linear(b, &t->down, "mm.a.mlp.2", NULL, middle, h->n_out, NN_NO_BIAS);
}

static void forward_gated(nn_tape *t, const nn_net *net) {
    const hparams   *h = net->hp;
    const gated_top *tw = net->top;
    nn_buf           x = nn_rms_norm(t, nn_input(t, (int64_t)h->d.n_embd * h->n_side), tw->before, h->d.eps);
    x = nn_rms_norm(t, nn_glu(t, x, tw->gate, tw->up, NN_ACT_SILU), tw->between, h->d.eps);
    nn_vectors(t, nn_outputs(t, nn_project(t, x, tw->down)));
}

static const char *const names_gated[] = { "ultravox_projector", NULL };
const nn_arch            models_projector_ultravox = { .names = names_gated,
                                                       .hf_roots = roots,
                                                       .hp_size = sizeof(hparams),
                                                       .top_size = sizeof(gated_top),
                                                       .layer_size = sizeof(layer),
                                                       .keys = keys,
                                                       .lacks = NN_LACKS_VOCAB | NN_LACKS_EPS | NN_LACKS_FF,
                                                       .setup = setup_gated,
                                                       .bind_top = bind_gated,
                                                       .bind_layer = nn_bind_nothing,
                                                       .state = nn_state_nothing,
                                                       .forward = forward_gated };

/* --- Gemma 3n --- */

static void setup_gemma3n(nn_config *c, void *p) {
    hparams *h = p;
    read_widths(c, h, 1);
    h->d.eps = (float)nn_config_real(c, NULL, "rms_norm_eps", 1e-6);
}

static void bind_gemma3n(nn_binder *b, void *out, const void *p, bool words) {
    static const char table[] = "model.embed_audio.embedding";
    const hparams    *h = p;
    nn_ears_words    *t = out;
    const int64_t     n = h->d.n_embd;
    nn_bind_vec(b, &t->norm, NULL,
                words ? "model.embed_audio.hard_embedding_norm" : "model.embed_audio.soft_embedding_norm", n, 0);
    nn_bind_linear(b, &t->first, NULL, "model.embed_audio.embedding_projection", n, h->n_out, NN_NO_BIAS);
    if (words && n > 0) nn_bind_table(b, &t->table, NULL, table, nn_bind_size(b, NULL, table) / n, n);
}

static void bind_gemma3n_rows(nn_binder *b, void *out, const void *p) { bind_gemma3n(b, out, p, false); }
static void bind_gemma3n_words(nn_binder *b, void *out, const void *p) { bind_gemma3n(b, out, p, true); }

static void forward_gemma3n(nn_tape *t, const nn_net *net) {
    const hparams       *h = net->hp;
    const nn_ears_words *tw = net->top;
    nn_buf               x = nn_project(t, nn_rms_norm(t, nn_input(t, h->d.n_embd), tw->norm, h->d.eps), tw->first);
    nn_vectors(t, nn_outputs(t, nn_rms_norm(t, x, NULL, h->d.eps)));
}

#define GEMMA3N(bind)                                                                                                  \
    {                                                                                                                  \
        .names = names_gemma3n, .hf_roots = roots, .hp_size = sizeof(hparams), .top_size = sizeof(nn_ears_words),      \
        .layer_size = sizeof(layer), .keys = keys, .lacks = NN_LACKS_VOCAB | NN_LACKS_EPS | NN_LACKS_FF,               \
        .setup = setup_gemma3n, .bind_top = (bind), .bind_layer = nn_bind_nothing, .state = nn_state_nothing,          \
        .forward = forward_gemma3n                                                                                     \
    }

static const char *const names_gemma3n[] = { "gemma3n_ears_projector", NULL };
const nn_arch            models_projector_gemma3n_ears[2] = { GEMMA3N(bind_gemma3n_rows), GEMMA3N(bind_gemma3n_words) };
