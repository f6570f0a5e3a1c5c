/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whisper's encoder: two convolutions of three taps over the frames of a mel spectrogram, the second one with every other place,
 * positions, layers with norms before their blocks (keys have no bias), a norm at the end.
 *
 *     Voxtral, Ultravox  as it was
 *     Qwen 2 Audio, Audio Flamingo 3, Qwen 2.5 Omni  the mean of two rows is normed: that is the projector's (ears_projector.c).
 *                        Qwen 2.5 Omni sees windows and has sines for positions, which are in no file of Hugging Face
 *     GLM-ASR            half of each head is rotated instead; other names
 *
 * An input row (nn_ears_dims) is what one place of the second convolution sees: five frames, and behind them one, or zero where
 * the first of its three taps lies before the sound and counts as nothing, and the same for the last one; then the position,
 * which is added.
 */
#include "nn/nn.h"

#include <math.h>

enum { TAPS = 3 };

typedef struct hparams {
    nn_ears_dims e;
    nn_act_kind  act;
    bool         normed, sines, llama; /* a norm at the end; positions may be missing; names and rotation of GLM-ASR */
    nn_rope      rope;
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
    NN_INT(e.mels, "num_mel_bins", "num_mel_bins", 128),
    NN_INT(e.positions, "position_count", "max_source_positions|max_position_embeddings", NN_REQUIRED),
    { 0 },
};

static void check(nn_config *c, hparams *h) {
    nn_dims *d = &h->e.d;
    d->eps = (float)nn_config_real(c, "attention.layer_norm_epsilon", NULL, 1e-5);
    if (d->head_dim <= 0 || d->head_dim * d->n_head != d->n_embd || d->n_embd % 4 || d->n_kv < 1 || d->n_head % d->n_kv)
        nn_config_fail(c, "%d heads cannot share a width of %d", d->n_head, d->n_embd);
    if (h->e.mels < 1 || h->e.mels > 201 || h->e.positions < 2 || h->e.positions > 1 << 16)
        nn_config_fail(c, "%d mel bins and %d positions make no sense", h->e.mels, h->e.positions);
}

static void setup_pooled(nn_config *c, void *p) {
    hparams *h = p;
    h->e.d.n_kv = h->e.d.n_head;
    h->act = nn_config_act(c, NULL, "activation_function", NN_ACT_GELU);
    if (nn_config_bool(c, NULL, "scale_embedding", false)) nn_config_fail(c, "scale_embedding is not supported");
    check(c, h);
}

static void setup(nn_config *c, void *p) {
    ((hparams *)p)->normed = true;
    setup_pooled(c, p);
}

static void setup_windows(nn_config *c, void *p) {
    ((hparams *)p)->sines = true;
    setup_pooled(c, p);
}

static void setup_glmasr(nn_config *c, void *p) {
    hparams *h = p;
    h->normed = h->llama = true;
    h->act = nn_config_act(c, NULL, "hidden_act", NN_ACT_GELU);
    h->rope = nn_rope_read(c, &h->e.d, (nn_rope_want){ .partial = 0.5 });
    check(c, h);
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    top           *t = out;
    const int64_t  n = h->e.d.n_embd;
    nn_bind_taps(b, &t->conv1, "a.conv1d.1", "model.conv1", h->e.mels, TAPS, n);
    nn_bind_taps(b, &t->conv2, "a.conv1d.2", "model.conv2", n, TAPS, n);
    if (!h->llama)
        nn_bind_grid(b, &t->e.positions, "a.position_embd", "model.embed_positions", h->e.positions, n,
                     h->sines ? NN_OPTIONAL : 0);
    if (h->normed) nn_bind_norm(b, &t->post, "a.post_ln", h->llama ? "model.norm" : "model.layer_norm", n, 0);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = p;
    layer         *w = out;
    const int64_t  n = d->n_embd, ff = d->n_ff, kv = (int64_t)d->n_kv * d->head_dim;
    const bool     llama = h->llama;
    (void)i;
    nn_bind_norm(b, &w->attn_norm, "ln1", llama ? "input_layernorm" : "self_attn_layer_norm", n, 0);
    nn_bind_linear(b, &w->q, "attn_q", "self_attn.q_proj", n, n, 0);
    nn_bind_linear(b, &w->k, "attn_k", "self_attn.k_proj", n, kv, 0);
    nn_bind_linear(b, &w->v, "attn_v", "self_attn.v_proj", n, kv, 0);
    nn_bind_linear(b, &w->o, "attn_out", llama ? "self_attn.o_proj" : "self_attn.out_proj", n, n, 0);
    nn_bind_norm(b, &w->ffn_norm, "ln2", llama ? "post_attention_layernorm" : "final_layer_norm", n, 0);
    nn_bind_linear(b, &w->up, "ffn_up", llama ? "mlp.fc1" : "fc1", n, ff, 0);
    nn_bind_linear(b, &w->down, "ffn_down", llama ? "mlp.fc2" : "fc2", ff, n, 0);
}

/* The embedded frames with their positions. */
static nn_buf embed(nn_tape *t, const hparams *h, const top *tw) {
    int    n = h->e.d.n_embd, mels = h->e.mels, frames = NN_EARS_FRAMES * mels;
    nn_buf in = nn_input(t, (int64_t)frames + NN_EARS_GATES + (h->llama ? 0 : n)), seen[TAPS];
    for (int i = 0; i < TAPS; i++) {
        seen[i] = nn_project(t, nn_take(t, in, i * mels, TAPS * mels), tw->conv1);
        nn_act(t, seen[i], NN_ACT_GELU);
    }
    nn_gate(t, seen[0], nn_take(t, in, frames, 1), NN_ACT_NONE);
    nn_gate(t, seen[TAPS - 1], nn_take(t, in, frames + 1, 1), NN_ACT_NONE);
    nn_buf x = nn_project(t, nn_join(t, seen, TAPS), tw->conv2);
    nn_act(t, x, NN_ACT_GELU);
    if (!h->llama) nn_add(t, x, nn_take(t, in, frames + NN_EARS_GATES, n));
    return x;
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->e.d;
    const top     *tw = net->top;
    nn_attn_spec   a = { .n_head = d->n_head,
                         .n_kv = d->n_kv,
                         .dim_k = d->head_dim,
                         .scale = 1.0f / sqrtf((float)d->head_dim),
                         .spans = h->sines };
    nn_buf         x = embed(t, h, tw);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = (const layer *)net->layers + i;
        nn_buf       n = nn_norm_rows(t, x, &w->attn_norm, d->eps);
        nn_buf       q = nn_project(t, n, w->q), k = nn_project(t, n, w->k);
        if (h->llama) nn_rotate(t, q, k, d->head_dim, &h->rope);
        nn_kv_store(t, i, k, nn_project(t, n, w->v));
        nn_project_add(t, x, nn_attention(t, i, q, a), w->o);
        nn_buf f = nn_project(t, nn_norm_rows(t, x, &w->ffn_norm, d->eps), w->up);
        nn_act(t, f, h->act);
        nn_project_add(t, x, f, w->down);
    }
    if (h->normed) x = nn_norm_rows(t, x, &tw->post, d->eps);
    nn_vectors(t, nn_outputs(t, x));
}

#define TOWER(arch, text, setup_fn)                                                                                    \
    static const char *const names_##arch[] = { text, NULL };                                                          \
    const nn_arch            models_##arch = { .names = names_##arch,                                                  \
                                               .hf_layers = "model.layers.",                                           \
                                               .gguf_layers = "a.blk.",                                                \
                                               .hf_roots = roots,                                                      \
                                               .hp_size = sizeof(hparams),                                             \
                                               .top_size = sizeof(top),                                                \
                                               .layer_size = sizeof(layer),                                            \
                                               .keys = keys,                                                           \
                                               .lacks = NN_LACKS_VOCAB | NN_LACKS_EPS,                                 \
                                               .setup = setup_fn,                                                      \
                                               .bind_top = bind_top,                                                   \
                                               .bind_layer = bind_layer,                                               \
                                               .state = nn_state_whole,                                                \
                                               .forward = forward }

static const char *const roots[] = { "audio_tower.", "model.audio_tower.", "thinker.audio_tower.", NULL };
TOWER(whisper_tower, "voxtral_encoder", setup);
TOWER(whisper_pooled, "qwen2_audio_encoder", setup_pooled);
TOWER(whisper_windows, "qwen2_5_omni_audio_encoder", setup_windows);
TOWER(glmasr_tower, "glmasr_encoder", setup_glmasr);
