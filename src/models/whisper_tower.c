/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whisper's encoder, as Voxtral has it: two convolutions of three taps over the frames of a mel spectrogram, the second one with
 * every other place, positions that the file has, layers with norms before their blocks (keys have no bias), a norm at the end.
 *
 * An input row (nn_ears_row) is what one place of the second convolution sees: five frames, and behind them one, or zero where the
 * first of its three taps lies before the sound and counts as nothing; then the position, which is added.
 */
#include "nn/nn.h"

#include <math.h>

enum { TAPS = 3 };

typedef struct hparams {
    nn_ears_dims e;
    nn_act_kind  act;
} hparams;

typedef struct top {
    nn_ears_top e;
    nn_linear   conv1, conv2;
    nn_norm     post;
} top;

typedef struct layer {
    nn_norm   attn_norm, ffn_norm;
    nn_linear q, k, v, o, up, down;
} layer;

static const nn_key keys[] = {
    NN_INT(e.mels, "num_mel_bins", "num_mel_bins", NN_REQUIRED),
    NN_INT(e.positions, "position_count", "max_source_positions", NN_REQUIRED),
    { 0 },
};

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    nn_dims *d = &h->e.d;
    d->n_kv = d->n_head;
    d->eps = (float)nn_config_real(c, "attention.layer_norm_epsilon", NULL, 1e-5);
    h->act = nn_config_act(c, NULL, "activation_function", NN_ACT_GELU);
    if (d->head_dim <= 0 || d->head_dim * d->n_head != d->n_embd)
        nn_config_fail(c, "%d heads cannot share a width of %d", d->n_head, d->n_embd);
    if (nn_config_bool(c, NULL, "scale_embedding", false)) nn_config_fail(c, "scale_embedding is not supported");
    if (h->e.mels < 1 || h->e.mels > 201 || h->e.positions < 2 || h->e.positions > 1 << 16)
        nn_config_fail(c, "%d mel bins and %d positions make no sense", h->e.mels, h->e.positions);
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    top           *t = out;
    const int64_t  n = h->e.d.n_embd;
    nn_bind_taps(b, &t->conv1, "a.conv1d.1", "model.conv1", h->e.mels, TAPS, n);
    nn_bind_taps(b, &t->conv2, "a.conv1d.2", "model.conv2", n, TAPS, n);
    nn_bind_table(b, &t->e.positions, "a.position_embd", "model.embed_positions", h->e.positions, n);
    nn_bind_norm(b, &t->post, "a.post_ln", "model.layer_norm", n, 0);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const nn_dims *d = p;
    layer         *w = out;
    const int64_t  n = d->n_embd, ff = d->n_ff;
    (void)i;
    nn_bind_norm(b, &w->attn_norm, "ln1", "self_attn_layer_norm", n, 0);
    nn_bind_linear(b, &w->q, "attn_q", "self_attn.q_proj", n, n, 0);
    nn_bind_linear(b, &w->k, "attn_k", "self_attn.k_proj", n, n, 0);
    nn_bind_linear(b, &w->v, "attn_v", "self_attn.v_proj", n, n, 0);
    nn_bind_linear(b, &w->o, "attn_out", "self_attn.out_proj", n, n, 0);
    nn_bind_norm(b, &w->ffn_norm, "ln2", "final_layer_norm", n, 0);
    nn_bind_linear(b, &w->up, "ffn_up", "fc1", n, ff, 0);
    nn_bind_linear(b, &w->down, "ffn_down", "fc2", ff, n, 0);
}

/* The embedded frames with their positions. */
static nn_buf embed(nn_tape *t, const hparams *h, const top *tw) {
    int    n = h->e.d.n_embd, mels = h->e.mels, frames = NN_EARS_FRAMES * mels;
    nn_buf in = nn_input(t, (int64_t)frames + 1 + n), seen[TAPS];
    for (int i = 0; i < TAPS; i++) {
        seen[i] = nn_project(t, nn_take(t, in, i * mels, TAPS * mels), tw->conv1);
        nn_act(t, seen[i], NN_ACT_GELU);
    }
    nn_gate(t, seen[0], nn_take(t, in, frames, 1), NN_ACT_NONE);
    nn_buf x = nn_project(t, nn_join(t, seen, TAPS), tw->conv2);
    nn_act(t, x, NN_ACT_GELU);
    nn_add(t, x, nn_take(t, in, frames + 1, n));
    return x;
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->e.d;
    const top     *tw = net->top;
    nn_attn_spec   a = {
          .n_head = d->n_head, .n_kv = d->n_kv, .dim_k = d->head_dim, .scale = 1.0f / sqrtf((float)d->head_dim)
    };
    nn_buf x = embed(t, h, tw);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = (const layer *)net->layers + i;
        nn_buf       n = nn_norm_rows(t, x, &w->attn_norm, d->eps);
        nn_kv_store(t, i, nn_project(t, n, w->k), nn_project(t, n, w->v));
        nn_project_add(t, x, nn_attention(t, i, nn_project(t, n, w->q), a), w->o);
        nn_buf f = nn_project(t, nn_norm_rows(t, x, &w->ffn_norm, d->eps), w->up);
        nn_act(t, f, h->act);
        nn_project_add(t, x, f, w->down);
    }
    nn_vectors(t, nn_outputs(t, nn_norm_rows(t, x, &tw->post, d->eps)));
}

static const char *const roots[] = { "audio_tower.", "model.audio_tower.", NULL };
static const char *const names[] = { "voxtral_encoder", NULL };
const nn_arch            models_whisper_tower = { NN_WHOLE,
                                                  .names = names,
                                                  .hf_layers = "model.layers.",
                                                  .gguf_layers = "a.blk.",
                                                  .hf_roots = roots,
                                                  .lacks = NN_LACKS_VOCAB | NN_LACKS_EPS };
