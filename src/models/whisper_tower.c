/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whisper's encoder: two convolutions of three taps over the frames of a mel spectrogram, the second one with every
 * other place, positions, layers with norms before their blocks (keys have no bias), a norm at the end.
 *
 *     Whisper, Voxtral, Ultravox  as it was
 *     Qwen 2 Audio, Audio Flamingo 3, Qwen 2.5 Omni  the mean of two rows is normed: that is the projector's
 *                        (ears_projector.c). Qwen 2.5 Omni sees windows and has sines for positions, which are in no
 *                        file of Hugging Face
 *     GLM-ASR            half of each head is rotated instead; other names
 *     Qwen 3 ASR, Omni   windows; three convolutions over time and pitch come before (each a part of its own, as Gemma
 *                        4's are), and their channels [channel][pitch] go in
 *
 * An input row (nn_ears_dims) is what one place of the second convolution sees: five frames, and behind them one, or
 * zero where the first of its three taps lies before the sound and counts as nothing, and the same for the last one;
 * then the position, which is added.
 */
#include "nn/nn.h"

#include <math.h>

enum { TAPS = 3 };

typedef struct hparams {
    nn_ears_dims e;
    nn_act_kind  act;
    bool         normed, llama; /* a norm at the end; names and rotation of GLM-ASR */
    bool         windows;       /* a row sees its span; positions may be missing */
    bool         convolved;     /* Qwen 3 */
    nn_rope      rope;
} hparams;

typedef struct top {
    nn_ears_top e;
    nn_linear   conv1, conv2, conv_out;
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

/* Fields of a decoder stand beside its own. */
static void setup_whisper(nn_config *c, void *p) {
    nn_config_layers(c, p, nn_config_int(c, NULL, "encoder_layers", NN_REQUIRED_INT));
    setup(c, p);
}

static void setup_windows(nn_config *c, void *p) {
    ((hparams *)p)->windows = true;
    setup_pooled(c, p);
}

static void setup_qwen3(nn_config *c, void *p) {
    hparams *h = p;
    h->windows = h->normed = h->convolved = true;
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
    if (h->convolved) {
        nn_bind_linear(b, &t->conv_out, "a.conv_out", "model.conv_out",
                       nn_bind_width(b, "a.conv_out", "model.conv_out"), n, 0);
    } else {
        nn_bind_taps(b, &t->conv1, "a.conv1d.1", "model.conv1", h->e.mels, TAPS, n);
        nn_bind_taps(b, &t->conv2, "a.conv1d.2", "model.conv2", n, TAPS, n);
    }
    if (!h->llama)
        nn_bind_grid(b, &t->e.positions, "a.position_embd", "model.embed_positions", h->e.positions, n,
                     h->windows ? NN_OPTIONAL : 0);
    if (h->normed)
        nn_bind_norm(b, &t->post, "a.post_ln", h->llama ? "model.norm" : "model.layer_norm|model.ln_post", n, 0);
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

/* Those that were convolved in time and pitch, with theirs. */
static nn_buf embed_convolved(nn_tape *t, const nn_dims *d, const top *tw) {
    int    cols = tw->conv_out.w ? (int)tw->conv_out.w->cols : 0;
    nn_buf in = nn_input(t, (int64_t)cols + d->n_embd), x = nn_project(t, nn_take(t, in, 0, cols), tw->conv_out);
    nn_add(t, x, nn_take(t, in, cols, d->n_embd));
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
                         .spans = h->windows };
    nn_buf         x = h->convolved ? embed_convolved(t, d, tw) : embed(t, h, tw);
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

static const char *const roots[] = { "audio_tower.",   "model.audio_tower.", "thinker.audio_tower.",
                                     "model.encoder.", "encoder.",           NULL };
TOWER(whisper_tower, "voxtral_encoder", setup);
TOWER(whisper_ears, "whisper_encoder", setup_whisper);
TOWER(whisper_pooled, "qwen2_audio_encoder", setup_pooled);
TOWER(whisper_windows, "qwen2_5_omni_audio_encoder", setup_windows);
TOWER(glmasr_tower, "glmasr_encoder", setup_glmasr);
TOWER(qwen3_ears, "qwen3_omni_moe_audio_encoder", setup_qwen3);

/* --- the convolutions of Qwen 3 --- */

typedef char nothing;

static const nn_key no_keys[] = { { 0 } };

static void setup_conv(nn_config *c, void *p) {
    (void)p;
    nn_config_only(c, NULL, "activation_function", "gelu");
    if (nn_config_bool(c, NULL, "scale_embedding", false)) nn_config_fail(c, "scale_embedding is not supported");
}

static void bind_conv(nn_binder *b, void *out, int no) {
    static const char *const gguf[] = { "a.conv2d.1", "a.conv2d.2", "a.conv2d.3" };
    static const char *const hf[] = { "model.conv2d1", "model.conv2d2", "model.conv2d3" };
    static const char *const gguf_bias[] = { "a.conv2d.1.bias", "a.conv2d.2.bias", "a.conv2d.3.bias" };
    static const char *const hf_bias[] = { "model.conv2d1.bias", "model.conv2d2.bias", "model.conv2d3.bias" };
    int64_t                  before = no ? nn_bind_size(b, gguf_bias[no - 1], hf_bias[no - 1]) : 1;
    nn_bind_taps(b, out, gguf[no], hf[no], before, TAPS * TAPS, nn_bind_size(b, gguf_bias[no], hf_bias[no]));
}

static void bind_conv0(nn_binder *b, void *out, const void *p) { (void)p, bind_conv(b, out, 0); }
static void bind_conv1(nn_binder *b, void *out, const void *p) { (void)p, bind_conv(b, out, 1); }
static void bind_conv2(nn_binder *b, void *out, const void *p) { (void)p, bind_conv(b, out, 2); }

static void forward_conv(nn_tape *t, const nn_net *net) {
    const nn_linear *w = net->top;
    nn_buf           x = nn_project(t, nn_input(t, w->w->cols), *w);
    nn_act(t, x, NN_ACT_GELU);
    nn_vectors(t, nn_outputs(t, x));
}

#define CONV(bind)                                                                                                     \
    {                                                                                                                  \
        .names = names_qwen3_ears, .hf_roots = roots, .hp_size = sizeof(nn_dims), .top_size = sizeof(nn_linear),       \
        .layer_size = sizeof(nothing), .keys = no_keys, .lacks = NN_LACKS_VOCAB | NN_LACKS_EPS | NN_LACKS_FF,          \
        .setup = setup_conv, .bind_top = (bind), .bind_layer = nn_bind_nothing, .state = nn_state_nothing,             \
        .forward = forward_conv                                                                                        \
    }

const nn_arch models_qwen3_ears_conv[3] = { CONV(bind_conv0), CONV(bind_conv1), CONV(bind_conv2) };
