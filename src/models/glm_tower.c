/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tower of GLM 4.1V, 4.5V, 4.6V and GLM-OCR, and what merges its rows for the language model.
 *
 * As Qwen 2.5 VL's (two frames of the same picture, RMS norms, a gated feed-forward, rotation by row and column), but
 * all layers see the whole picture. Patches are normed before they get their learned positions, which are cubics
 * between those of a square; GLM-OCR has neither that norm nor positions, but norms of queries and keys. A convolution
 * over a square of patches, then a matrix, a norm and a gated feed-forward make a row of the language model.
 */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_tower_dims t;
    int           merge, n_out; /* patches on a side of a square; the language model's width */
    nn_act_kind   act;
    nn_rope       rope;
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
    NN_INT(t.patch, "patch_size", "patch_size", 14),
    NN_INT(t.image, "image_size", "image_size", 336),
    NN_INT(merge, "spatial_merge_size", "spatial_merge_size", 2),
    NN_INT(n_out, "projection_dim", "out_hidden_size", NN_REQUIRED),
    { 0 },
};

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    nn_dims *d = &h->t.d;
    d->n_kv = d->n_head;
    d->eps = (float)nn_config_real(c, "attention.layer_norm_epsilon", "rms_norm_eps", 1e-5);
    if (d->head_dim <= 0 || d->head_dim % 4 || d->head_dim * d->n_head != d->n_embd || h->t.patch < 1 ||
        h->t.patch > 256 || h->t.image < h->t.patch || h->t.image > 16384 || h->merge < 1 || h->merge > 16 ||
        h->n_out < 1 || h->n_out > 1 << 20) {
        nn_config_fail(c, "patches of %d pixels, squares of %d, %d heads in a width of %d, rows of %d", h->t.patch,
                       h->merge, d->n_head, d->n_embd, h->n_out);
        return;
    }
    nn_config_only_number(c, NULL, "temporal_patch_size", 2);
    h->act = nn_config_act(c, NULL, "hidden_act", NN_ACT_SILU);
    h->rope = nn_rope_grid(c, d->head_dim, 10000);
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    top           *t = out;
    const int64_t  n = h->t.d.n_embd, side = h->t.image / h->t.patch;
    nn_bind_frames(b, &t->patch, "v.patch_embd", "model.patch_embed.proj", 3, 2, h->t.patch * h->t.patch, n);
    nn_bind_grid(b, &t->t.positions, "v.position_embd", "model.embeddings.position_embedding", side * side, n,
                 NN_OPTIONAL);
    t->t.side = t->t.positions ? (int)side : 0;
    t->t.between = NN_BETWEEN_CUBIC;
    nn_bind_vec(b, &t->embd_norm, "v.norm_embd", "model.post_conv_layernorm", n, t->t.positions ? 0 : NN_OPTIONAL);
    nn_bind_vec(b, &t->norm, "v.post_ln", "model.post_layernorm", n, 0);
}

/* How wide the feed-forward is, the matrices say: config.json of GLM 4.1V has the merger's width there. */
static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const nn_dims *d = p;
    layer         *w = out;
    const int64_t  n = d->n_embd, ff = nn_bind_width(b, "ffn_down", "mlp.down_proj");
    (void)i;
    nn_bind_vec(b, &w->attn_norm, "ln1", "norm1", n, 0);
    nn_bind_vec(b, &w->ffn_norm, "ln2", "norm2", n, 0);
    nn_bind_qkv(b, &w->attn, "attn_qkv", "attn.qkv", d, false);
    nn_bind_linear(b, &w->attn.o, "attn_out", "attn.proj", n, n, 0);
    nn_bind_vec(b, &w->attn.q_norm, "attn_q_norm", "attn.q_norm", d->head_dim, NN_OPTIONAL);
    nn_bind_vec(b, &w->attn.k_norm, "attn_k_norm", "attn.k_norm", d->head_dim, w->attn.q_norm ? 0 : NN_OPTIONAL);
    nn_bind_linear(b, &w->mlp.gate, "ffn_gate", "mlp.gate_proj", n, ff, 0);
    nn_bind_linear(b, &w->mlp.up, "ffn_up", "mlp.up_proj", n, ff, 0);
    nn_bind_linear(b, &w->mlp.down, "ffn_down", "mlp.down_proj", ff, n, 0);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->t.d;
    const top     *tw = net->top;
    nn_attn_spec   a = nn_attn_plain(d, 0);
    nn_buf         x = nn_tower_input_normed(t, &h->t, tw->patch, tw->embd_norm);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = (const layer *)net->layers + i;
        nn_buf       n = nn_rms_norm(t, x, w->attn_norm, d->eps);
        nn_project_add(t, x, nn_attend(t, i, n, &w->attn, &h->rope, a, d->eps), w->attn.o);
        nn_project_add(t, x, nn_feed(t, nn_rms_norm(t, x, w->ffn_norm, d->eps), &w->mlp, h->act), w->mlp.down);
    }
    nn_vectors(t, nn_outputs(t, nn_rms_norm(t, x, tw->norm, d->eps)));
}

/* --- merging ---------------------------------------------------------------------------------------------------- */

typedef struct merger {
    nn_linear square, first;
    nn_norm   norm;
    nn_mlp    mlp;
} merger;

static void bind_merger(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    merger        *w = out;
    const int64_t  n = h->n_out, ff = nn_bind_width(b, "mm.down", "model.merger.down_proj");
    nn_bind_taps(b, &w->square, "mm.patch_merger", "model.downsample", h->t.d.n_embd, h->merge * h->merge, n);
    nn_bind_linear(b, &w->first, "mm.model.fc", "model.merger.proj", n, n, 0);
    nn_bind_norm(b, &w->norm, "mm.post_norm", "model.merger.post_projection_norm", n, 0);
    nn_bind_linear(b, &w->mlp.gate, "mm.gate", "model.merger.gate_proj", n, ff, 0);
    nn_bind_linear(b, &w->mlp.up, "mm.up", "model.merger.up_proj", n, ff, 0);
    nn_bind_linear(b, &w->mlp.down, "mm.down", "model.merger.down_proj", ff, n, 0);
}

static void merge(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const merger  *w = net->top;
    nn_buf         x = nn_project(t, nn_input(t, (int64_t)h->t.d.n_embd * h->merge * h->merge), w->square);
    x = nn_norm_rows(t, nn_project(t, x, w->first), &w->norm, 1e-5f);
    nn_act(t, x, NN_ACT_GELU);
    x = nn_project(t, nn_feed(t, x, &w->mlp, h->act), w->mlp.down);
    nn_vectors(t, nn_outputs(t, x));
}

static const char *const roots[] = { "model.visual.", "visual.", "vision_tower.", "model.vision_tower.", NULL };
#define LACKS .hf_roots = roots, .lacks = NN_LACKS_VOCAB | NN_LACKS_EPS | NN_LACKS_FF
const nn_arch models_glm_tower = { NN_WHOLE, .names = NN_NAMES("glm4v_vision"), .hf_layers = "model.blocks.",
                                   .gguf_layers = "v.blk.", LACKS };
const nn_arch models_projector_glm = { .names = NN_NAMES("glm4v_merger"),
                                       LACKS,
                                       .hp_size = sizeof(hparams),
                                       .top_size = sizeof(merger),
                                       .layer_size = sizeof(char),
                                       .keys = keys,
                                       .setup = setup,
                                       .bind_top = bind_merger,
                                       .bind_layer = nn_bind_nothing,
                                       .state = nn_state_nothing,
                                       .forward = merge };
