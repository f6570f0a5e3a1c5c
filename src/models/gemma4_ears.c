/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How Gemma 4 and Gemma 3n hear: a conformer over the frames of a mel spectrogram.
 *
 * Two convolutions of 3 x 3 with every other place in time and in pitch, each a part of its own whose rows are single
 * places (what such a place sees, [time][pitch][channel], goes in; its channels come out, normed): the caller puts
 * neighbours side by side. An input row of the tower is then a quarter as often as frames and has all pitches,
 * [pitch][channel].
 *
 * A layer is half a feed-forward, attention to the last places with vectors for the distances (nn_distances), a
 * convolution over the last places behind a gate, the other half, and a norm. Nothing looks ahead. A batch says by its
 * spans which places a row sees.
 *
 * Gemma 3n differs in names and little else: there is no matrix at the end, keys are not scaled, and the norms behind
 * its convolutions are over all that came before, which is the caller's work.
 */
#include "nn/nn.h"

#include <math.h>

enum { TAPS = 9 };

typedef struct hparams {
    nn_reach_dims r;
    int           kernel; /* of the convolution over places */
    float         residual, softcap;
    nn_rope       rope;  /* of the distances */
    bool          third; /* Gemma 3n */
} hparams;

typedef struct top {
    nn_linear in, out;
} top;

typedef struct feed {
    const nn_vec *norm, *post_norm;
    nn_limited    up, down;
} feed;

typedef struct layer {
    feed          first, second;
    const nn_vec *attn_norm, *post_attn_norm, *conv_norm, *taps_norm, *out_norm, *taps;
    nn_limited    q, k, v, o, conv_in, conv_out;
    nn_distances  distances;
} layer;

static const nn_key keys[] = {
    NN_INT(kernel, NULL, "conv_kernel_size|conf_conv_kernel_size", 5),
    NN_FLOAT(residual, NULL, "residual_weight|conf_residual_weight", 0.5),
    NN_FLOAT(softcap, NULL, "attention_logit_cap|conf_attention_logit_cap", 50),
    { 0 },
};

static void check(nn_config *c, hparams *h) {
    const nn_dims *d = &h->r.d;
    if (d->n_head < 1 || d->head_dim * d->n_head != d->n_embd || d->n_embd % 2 || h->r.reach < 1 ||
        h->r.reach > NN_MAX_REACH || h->kernel < 2 || h->kernel > 64)
        nn_config_fail(c, "%d heads of %d in a width of %d, %d places seen, %d in the convolution", d->n_head,
                       d->head_dim, d->n_embd, h->r.reach, h->kernel);
    h->rope = nn_distances_rope(c, h->r.reach);
}

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    nn_dims *d = &h->r.d;
    d->n_kv = d->n_head;
    d->eps = (float)nn_config_real(c, NULL, "rms_norm_eps", 1e-6); /* mmproj files have another one's */
    h->r.reach = (int)nn_config_int(c, NULL, "attention_context_left", 13) - 1;
    nn_config_only_number(c, NULL, "attention_context_right", 0);
    nn_config_only_number(c, NULL, "gradient_clipping", 1e10);
    nn_config_only(c, NULL, "hidden_act", "silu|swish");
    if (nn_config_int(c, NULL, "attention_chunk_size", h->r.reach) != h->r.reach) /* distances count from elsewhere */
        nn_config_fail(c, "attention_chunk_size is not %d", h->r.reach);
    check(c, h);
}

static void setup_third(nn_config *c, void *p) {
    hparams *h = p;
    h->third = true;
    h->r.d.n_kv = h->r.d.n_head;
    h->r.d.eps = (float)nn_config_real(c, NULL, "rms_norm_eps", 1e-6);
    h->r.reach = (int)nn_config_int(c, NULL, "conf_attention_context_left", 13);
    nn_config_only_number(c, NULL, "conf_attention_context_right", 0);
    nn_config_only_number(c, NULL, "gradient_clipping", 1e10);
    check(c, h);
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    static const char *const in[] = { "a.input_projection", "model.subsample_conv_projection.input_proj_linear" };
    const nn_dims           *d = p;
    top                     *t = out;
    int64_t                  size = nn_bind_size(b, "a.pre_encode.out", "model.output_proj");
    nn_bind_linear(b, &t->in, in[0], in[1], nn_bind_width(b, in[0], in[1]), d->n_embd, NN_NO_BIAS);
    if (((const hparams *)p)->third) return;
    nn_bind_linear(b, &t->out, "a.pre_encode.out", "model.output_proj", d->n_embd, size / d->n_embd, 0);
}

/* names: norm, norm behind, up, down of a GGUF file, then of a directory. */
static void bind_feed(nn_binder *b, feed *w, const nn_dims *d, const char *const names[8]) {
    const int64_t n = d->n_embd, ff = 4 * n;
    nn_bind_vec(b, &w->norm, names[0], names[4], n, 0);
    nn_bind_vec(b, &w->post_norm, names[1], names[5], n, 0);
    nn_bind_limited(b, &w->up, names[2], names[6], n, ff);
    nn_bind_limited(b, &w->down, names[3], names[7], ff, n);
}

/* Queries are multiplied by softplus(s) / (sqrt(head) ln 2), of which GGUF files hold the softplus, and keys by what
 * that was for s = 1 and a head of one element. */
static void bind_distances(nn_binder *b, layer *w, const hparams *h) {
    const nn_dims *d = &h->r.d;
    const nn_vec  *scale = NULL;
    float          plain[1024];
    bool           done = nn_bind_exists(b, "per_dim_scale", NULL);
    nn_bind_vec(b, &scale, "per_dim_scale", h->third ? "attention.attn.per_dim_scale" : "self_attn.per_dim_scale",
                d->head_dim, 0);
    if (!scale || d->head_dim > (int)(sizeof plain / sizeof *plain)) return;
    for (int i = 0; i < d->head_dim; i++)
        plain[i] = done || scale->data[i] > 20 ? scale->data[i] : log1pf(expf(scale->data[i]));
    nn_bind_distances(b, &w->distances, "attn_k_rel",
                      h->third ? "attention.attn.relative_position_embedding.pos_proj" : "self_attn.relative_k_proj",
                      &(nn_distances_want){ .n_head = d->n_head,
                                            .dim = d->head_dim,
                                            .reach = h->r.reach,
                                            .n_in = d->n_embd,
                                            .q_factor = 1 / (sqrt(d->head_dim) * log(2)),
                                            .k_factor = h->third ? 1 : log1p(exp(1)) / log(2),
                                            .q_scale = plain,
                                            .rope = h->rope });
}

/* Names of one and the other in directories. */
#define EITHER(fourth, third_) (third ? (third_) : (fourth))

static void bind_feeds(nn_binder *b, layer *w, const nn_dims *d, bool third) {
    const char *const first[] = { "ffn_norm",
                                  "ffn_post_norm",
                                  "ffn_up",
                                  "ffn_down",
                                  EITHER("feed_forward1.pre_layer_norm", "ffw_layer_start.pre_layer_norm"),
                                  EITHER("feed_forward1.post_layer_norm", "ffw_layer_start.post_layer_norm"),
                                  EITHER("feed_forward1.ffw_layer_1", "ffw_layer_start.ffw_layer_1"),
                                  EITHER("feed_forward1.ffw_layer_2", "ffw_layer_start.ffw_layer_2") };
    const char *const second[] = { "ffn_norm_1",
                                   "ffn_post_norm_1",
                                   "ffn_up_1",
                                   "ffn_down_1",
                                   EITHER("feed_forward2.pre_layer_norm", "ffw_layer_end.pre_layer_norm"),
                                   EITHER("feed_forward2.post_layer_norm", "ffw_layer_end.post_layer_norm"),
                                   EITHER("feed_forward2.ffw_layer_1", "ffw_layer_end.ffw_layer_1"),
                                   EITHER("feed_forward2.ffw_layer_2", "ffw_layer_end.ffw_layer_2") };
    bind_feed(b, &w->first, d, first);
    bind_feed(b, &w->second, d, second);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->r.d;
    layer         *w = out;
    const int64_t  n = d->n_embd;
    const bool     third = h->third;
    (void)i;
    bind_feeds(b, w, d, third);
    nn_bind_vec(b, &w->attn_norm, "attn_pre_norm", EITHER("norm_pre_attn", "attention.pre_attn_norm"), n, 0);
    nn_bind_vec(b, &w->post_attn_norm, "attn_post_norm", EITHER("norm_post_attn", "attention.post_norm"), n, 0);
    nn_bind_limited(b, &w->q, "attn_q", EITHER("self_attn.q_proj", "attention.attn.q_proj"), n, n);
    nn_bind_limited(b, &w->k, "attn_k", EITHER("self_attn.k_proj", "attention.attn.k_proj"), n, n);
    nn_bind_limited(b, &w->v, "attn_v", EITHER("self_attn.v_proj", "attention.attn.v_proj"), n, n);
    nn_bind_limited(b, &w->o, "attn_out", EITHER("self_attn.post", "attention.post"), n, n);
    bind_distances(b, w, h);
    /* Converters exchange the names of these two norms. */
    nn_bind_vec(b, &w->conv_norm, "conv_norm", "lconv1d.pre_layer_norm", n, 0);
    nn_bind_vec(b, &w->taps_norm, "norm_conv", "lconv1d.conv_norm", n, 0);
    nn_bind_limited(b, &w->conv_in, "conv_pw1", "lconv1d.linear_start", n, 2 * n);
    nn_bind_limited(b, &w->conv_out, "conv_pw2", "lconv1d.linear_end", n, n);
    nn_bind_table(b, &w->taps, "conv_dw", "lconv1d.depthwise_conv1d", n, h->kernel);
    nn_bind_vec(b, &w->out_norm, "ln2", EITHER("norm_out", "norm"), n, 0);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->r.d;
    (void)i;
    return (nn_state){ .kind = NN_STATE_STEP,
                       .n_kv = d->n_kv,
                       .dim_k = nn_distances_dim(d->head_dim, h->r.reach),
                       .dim_v = d->head_dim,
                       .conv_channels = d->n_embd,
                       .conv_kernel = h->kernel };
}

static void feed_half(nn_tape *t, nn_buf x, const feed *w, const hparams *h) {
    nn_buf f = nn_project_limited(t, nn_rms_norm(t, x, w->norm, h->r.d.eps), &w->up);
    nn_act(t, f, NN_ACT_SILU);
    nn_add_scaled(t, x, nn_rms_norm(t, nn_project_limited(t, f, &w->down), w->post_norm, h->r.d.eps), h->residual);
}

static nn_buf attend(nn_tape *t, int i, nn_buf n, const hparams *h, const layer *w) {
    const nn_dims *d = &h->r.d;
    nn_buf         q = nn_query_at(t, nn_project_limited(t, n, &w->q), &w->distances);
    nn_buf         k = nn_key_at(t, nn_project_limited(t, n, &w->k), &w->distances);
    nn_kv_store(t, i, k, nn_project_limited(t, n, &w->v));
    nn_attn_spec a = { .n_head = d->n_head,
                       .n_kv = d->n_kv,
                       .dim_k = w->distances.dim,
                       .dim_v = d->head_dim,
                       .scale = 1.0f,
                       .softcap = h->softcap,
                       .spans = true };
    return nn_project_limited(t, nn_attention(t, i, q, a), &w->o);
}

static void convolve(nn_tape *t, int i, nn_buf x, const hparams *h, const layer *w) {
    int    n = h->r.d.n_embd;
    nn_buf both = nn_project_limited(t, nn_rms_norm(t, x, w->conv_norm, h->r.d.eps), &w->conv_in);
    nn_buf y = nn_take(t, both, 0, n);
    nn_gate(t, y, nn_take(t, both, n, n), NN_ACT_SIGMOID);
    y = nn_rms_norm(t, nn_conv(t, i, y, w->taps, NULL, h->kernel, 0, NN_ACT_NONE), w->taps_norm, h->r.d.eps);
    nn_act(t, y, NN_ACT_SILU);
    nn_add(t, x, nn_project_limited(t, y, &w->conv_out));
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const top     *tw = net->top;
    nn_buf         x = nn_project(t, nn_input(t, tw->in.w->cols), tw->in);
    for (int i = 0; i < h->r.d.n_layer; i++) {
        const layer *w = (const layer *)net->layers + i;
        feed_half(t, x, &w->first, h);
        nn_buf n = nn_rms_norm(t, x, w->attn_norm, h->r.d.eps);
        nn_add(t, x, nn_rms_norm(t, attend(t, i, n, h, w), w->post_attn_norm, h->r.d.eps));
        convolve(t, i, x, h, w);
        feed_half(t, x, &w->second, h);
        x = nn_rms_norm(t, x, w->out_norm, h->r.d.eps);
    }
    nn_vectors(t, nn_outputs(t, h->third ? x : nn_project(t, x, tw->out)));
}

static const char *const roots[] = { "model.audio_tower.", "audio_tower.", NULL };
static const char *const names[] = { "gemma4_audio", NULL };
const nn_arch            models_gemma4_ears = { NN_FAMILY,
                                                .names = names,
                                                .hf_layers = "model.layers.",
                                                .gguf_layers = "a.blk.",
                                                .hf_roots = roots,
                                                .lacks = NN_LACKS_VOCAB | NN_LACKS_EPS | NN_LACKS_FF };

static const char *const names_third[] = { "gemma3n_audio", NULL };
const nn_arch            models_gemma3n_ears = { .names = names_third,
                                                 .hf_layers = "model.conformer.",
                                                 .gguf_layers = "a.blk.",
                                                 .hf_roots = roots,
                                                 .hp_size = sizeof(hparams),
                                                 .top_size = sizeof(top),
                                                 .layer_size = sizeof(layer),
                                                 .keys = keys,
                                                 .lacks = NN_LACKS_VOCAB | NN_LACKS_EPS | NN_LACKS_FF,
                                                 .setup = setup_third,
                                                 .bind_top = bind_top,
                                                 .bind_layer = bind_layer,
                                                 .state = state,
                                                 .forward = forward };

/* --- the convolutions --- */

typedef nn_ears_conv conv;

typedef struct conv_hparams {
    nn_dims d;
    float   eps;
} conv_hparams;

static const nn_key conv_keys[] = { { 0 } };

static void conv_setup(nn_config *c, void *p) {
    (void)nn_config_int(c, NULL, "attention_chunk_size", 0); /* the tower's */
    ((conv_hparams *)p)->eps = (float)nn_config_real(c, NULL, "rms_norm_eps", 1e-6);
}

static void bind_conv(nn_binder *b, void *out, int no) {
    static const char *const tensors[4][4] = {
        { "a.conv1d.0", "a.conv1d.0.norm", "model.subsample_conv_projection.layer0.conv",
          "model.subsample_conv_projection.layer0.norm" },
        { "a.conv1d.1", "a.conv1d.1.norm", "model.subsample_conv_projection.layer1.conv",
          "model.subsample_conv_projection.layer1.norm" },
        { "a.conv1d.0", "a.conv1d.0.norm", "model.subsample_conv_projection.conv_0.conv",
          "model.subsample_conv_projection.conv_0.norm" },
        { "a.conv1d.1", "a.conv1d.1.norm", "model.subsample_conv_projection.conv_1.conv",
          "model.subsample_conv_projection.conv_1.norm" },
    };
    conv   *t = out;
    int64_t before = no % 2 ? nn_bind_size(b, tensors[no - 1][1], tensors[no - 1][3]) : 1;
    int64_t channels = nn_bind_size(b, tensors[no][1], tensors[no][3]);
    nn_bind_taps(b, &t->w, tensors[no][0], tensors[no][2], before, TAPS, channels);
    nn_bind_vec(b, &t->norm, tensors[no][1], tensors[no][3], channels, 0);
}

static void bind_conv0(nn_binder *b, void *out, const void *p) { (void)p, bind_conv(b, out, 0); }
static void bind_conv1(nn_binder *b, void *out, const void *p) { (void)p, bind_conv(b, out, 1); }
static void bind_conv2(nn_binder *b, void *out, const void *p) { (void)p, bind_conv(b, out, 2); }
static void bind_conv3(nn_binder *b, void *out, const void *p) { (void)p, bind_conv(b, out, 3); }

static void forward_conv(nn_tape *t, const nn_net *net) {
    const conv         *w = net->top;
    const conv_hparams *h = net->hp;
    nn_buf              x = nn_project(t, nn_input(t, w->w.w->cols), w->w);
    x = nn_layer_norm(t, x, w->norm, NULL, h->eps);
    nn_act(t, x, NN_ACT_RELU);
    nn_vectors(t, nn_outputs(t, x));
}

static void forward_third(nn_tape *t, const nn_net *net) {
    const conv *w = net->top;
    nn_vectors(t, nn_outputs(t, nn_project(t, nn_input(t, w->w.w->cols), w->w)));
}

#define CONV(bind, forward_fn)                                                                                         \
    {                                                                                                                  \
        .names = names, .hf_roots = roots, .hp_size = sizeof(conv_hparams), .top_size = sizeof(conv), .layer_size = 1, \
        .keys = conv_keys, .lacks = NN_LACKS_VOCAB | NN_LACKS_EPS | NN_LACKS_FF, .setup = conv_setup,                  \
        .bind_top = (bind), .bind_layer = nn_bind_nothing, .state = nn_state_nothing, .forward = (forward_fn)          \
    }

const nn_arch models_gemma4_ears_conv[2] = { CONV(bind_conv0, forward_conv), CONV(bind_conv1, forward_conv) };
const nn_arch models_gemma3n_ears_conv[2] = { CONV(bind_conv2, forward_third), CONV(bind_conv3, forward_third) };
