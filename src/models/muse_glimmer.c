/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Muse Glimmer: three layers with a window and a rotation to one that has neither. Embeddings are normed, queries and
 * keys too, all of them without weights; attention gates what it gives. Norms stand around both blocks, those behind
 * them with an eps of their own; their weights are stored as w - 1, but for the last one's.
 */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_dims    d;
    int        window;
    float      qk_scale, post_eps, logit_scale, softcap;
    const int *slides, *rotates; /* per layer */
    nn_rope    rope;
} hparams;

typedef struct layer {
    const nn_vec *attn_norm, *attn_post, *ffn_norm, *ffn_post;
    nn_heads      attn;
    nn_linear     gate;
    nn_mlp        mlp;
} layer;

static const nn_key keys[] = {
    NN_INT(window, "attention.sliding_window", "sliding_window", NN_REQUIRED),
    NN_FLOAT(qk_scale, NULL, "qk_scale_factor", 3.87),
    NN_FLOAT(post_eps, NULL, "post_norm_eps", 1e-8),
    NN_FLOAT(logit_scale, "logit_scale", "output_multiplier", 0.19611613513818404),
    NN_FLOAT(softcap, "final_logit_softcapping", "final_logit_softcapping", 20),
    { 0 },
};

/* Every fourth layer is full, counted from the last. A base of 0 means that a layer does not rotate; others are the
 * model's one. */
static void read_layers(nn_config *c, hparams *h, double base) {
    int        n = h->d.n_layer, *slides = nn_config_alloc(c, (size_t)n, sizeof *slides);
    int       *rotates = nn_config_alloc(c, (size_t)n, sizeof *rotates);
    bool       named = nn_config_has(c, "attention.sliding_window_pattern", "layer_types");
    bool       based = nn_config_count(c, NULL, "layer_rope_theta") > 0;
    const int *list = nn_config_layer_is(c, "attention.sliding_window_pattern", "layer_types", "sliding_attention", 4);
    for (int i = 0; i < n && slides && rotates; i++) {
        bool   last = (n - 1 - i) % 4 == 0;
        double own = based ? nn_config_real_at(c, "layer_rope_theta", i, 0) : last ? 0 : base;
        slides[i] = named ? list[i] : !last;
        rotates[i] = nn_config_gguf(c) ? slides[i] : own != 0;
        if (!nn_config_gguf(c) && own != 0 && own != base)
            nn_config_fail(c,
                           "the field \"layer_rope_theta\" has %g for layer %d; other bases than %g are not supported",
                           own, i, base);
        if (rotates[i] != slides[i]) nn_config_unsaid(c, "layer_rope_theta");
    }
    h->slides = slides;
    h->rotates = rotates;
    nn_config_derived_layers(c, "attention.sliding_window_pattern", slides);
}

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    double   base = nn_config_real(c, NULL, "rope_parameters.rope_theta|rope_theta", 10000);
    read_layers(c, h, base);
    if (h->window < 1 || !(h->post_eps >= 0) || !(h->softcap >= 0))
        nn_config_fail(c, "a window of %d, an eps of %g, a limit of %g: that makes no sense", h->window,
                       (double)h->post_eps, (double)h->softcap);
    nn_config_unsaid(c, "qk_scale_factor"); /* GGUF files have a norm's weight for it */
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ 0 });
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    int            n = d->n_embd;
    (void)i;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", n, NN_PLUS_ONE);
    nn_bind_qkvo(b, &w->attn, d);
    nn_bind_head_norms(b, &w->attn, d->head_dim, d->head_dim, NN_OPTIONAL);
    nn_bind_linear(b, &w->gate, "attn_gate", "self_attn.gate_proj", n, d->n_head * d->head_dim, 0);
    nn_bind_vec(b, &w->attn_post, "post_attention_norm", "post_attention_layernorm", n, NN_PLUS_ONE);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "pre_feedforward_layernorm", n, NN_PLUS_ONE);
    nn_bind_mlp(b, &w->mlp, d, true);
    nn_bind_vec(b, &w->ffn_post, "post_ffw_norm", "post_feedforward_layernorm", n, NN_PLUS_ONE);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    return nn_state_kv(h->d.n_kv, h->d.head_dim, h->slides[i] ? h->window : 0);
}

/* A file with weights for these norms has the scale in them. */
static nn_buf attend(nn_tape *t, nn_buf n, const hparams *h, const layer *w, int i) {
    const int    dim = h->d.head_dim;
    nn_attn_spec a = nn_attn_plain(&h->d, h->slides[i] ? h->window : 0);
    nn_buf       q = nn_rms_norm_groups(t, nn_project(t, n, w->attn.q), dim, w->attn.q_norm, h->d.eps);
    nn_buf       k = nn_rms_norm_groups(t, nn_project(t, n, w->attn.k), dim, w->attn.k_norm, h->d.eps);
    if (!w->attn.q_norm) a.scale *= h->qk_scale;
    if (h->rotates[i]) nn_rotate(t, q, k, dim, &h->rope);
    nn_kv_store(t, i, k, nn_project(t, n, w->attn.v));
    nn_buf y = nn_attention(t, i, q, a);
    nn_gate(t, y, nn_project(t, n, w->gate), NN_ACT_SIGMOID);
    return nn_project(t, y, w->attn.o);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_ends *tw = net->top;
    const layer   *lw = net->layers;
    float          eps = h->d.eps;

    nn_buf x = nn_rms_norm_groups(t, nn_embed(t, tw->embd, 1.0f), h->d.n_embd, NULL, eps);
    for (int i = 0; i < h->d.n_layer; i++) {
        const layer *w = &lw[i];
        nn_buf       y = attend(t, nn_rms_norm(t, x, w->attn_norm, eps), h, w, i);
        nn_add(t, x, nn_rms_norm(t, y, w->attn_post, h->post_eps));
        y = nn_feed(t, nn_rms_norm(t, x, w->ffn_norm, eps), &w->mlp, NN_ACT_SILU);
        nn_add(t, x, nn_rms_norm(t, nn_project(t, y, w->mlp.down), w->ffn_post, h->post_eps));
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, eps), tw->head, h->logit_scale, h->softcap);
}

const nn_arch models_muse_glimmer = { NN_DECODER, .gguf_only = true,
                                      .names = NN_NAMES("muse-glimmer", "muse_glimmer_text"), .act = "silu|swish",
                                      .permuted_qk = true };
