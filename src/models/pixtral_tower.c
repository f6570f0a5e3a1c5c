/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tower of Pixtral, Mistral 3 and LightOnOCR: pictures of any size, no learned positions; a head's pairs are turned by the row and the
 * column of a patch (frequencies of even number by the row, then those of odd number by the column). Mistral 3 has a norm
 * behind it, which belongs to its projector but comes before patches are put together. The second names of a tensor are those
 * of Ollama's files, which have the tower inside.
 */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_tower_dims t;
    bool          merges; /* patches: Mistral 3 */
    nn_act_kind   act;
    nn_rope       rope;
    float         theta, eps_behind;
} hparams;

typedef struct top {
    nn_tower_top  t;
    nn_linear     patch;
    const nn_vec *pre, *behind;
} top;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm;
    nn_linear     q, k, v, o, gate, up, down;
} layer;

static const nn_key keys[] = {
    NN_INT(t.patch, "patch_size", "patch_size", NN_REQUIRED),
    NN_INT(t.image, "image_size", "image_size", NN_REQUIRED),
    NN_FLOAT(theta, "rope.freq_base", "rope_parameters.rope_theta|rope_theta", 10000),
    { 0 },
};

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    nn_dims *d = &h->t.d;
    int      pairs = d->head_dim / 2;
    d->n_kv = d->n_head;
    d->eps = 1e-5f;
    if (!(h->theta > 0)) h->theta = 10000; /* a file that had none to copy */
    h->merges = nn_config_outer_int(c, "spatial_merge_size", "spatial_merge_size", 1) > 1;
    h->eps_behind = 1e-5f;
    h->act = nn_config_act(c, NULL, "hidden_act", nn_config_gguf(c) && !h->merges ? NN_ACT_GELU : NN_ACT_SILU);
    if (h->t.patch < 1 || h->t.patch > 256 || h->t.image < h->t.patch || h->t.image > 16384 || d->head_dim % 4)
        nn_config_fail(c, "patches of %d pixels in a picture of %d, heads of %d", h->t.patch, h->t.image, d->head_dim);
    float   *freq = nn_config_alloc(c, (size_t)(pairs > 0 ? pairs : 1), sizeof *freq);
    uint8_t *axis = nn_config_alloc(c, (size_t)(pairs > 0 ? pairs : 1), sizeof *axis);
    for (int i = 0; freq && axis && i < pairs; i++) {
        int half = pairs / 2, number = i < half ? 2 * i : 2 * (i - half) + 1;
        freq[i] = (float)pow((double)h->theta, -2.0 * number / d->head_dim);
        axis[i] = (uint8_t)(i >= half);
    }
    /* Converters of mmproj files put the two of a pair side by side. */
    bool halves = !nn_config_gguf(c) || nn_config_int(c, "rope.halves", NULL, 0);
    h->rope = (nn_rope){ .n_rot = d->head_dim, .interleaved = !halves, .scale = 1, .inv_freq = freq, .axis_of = axis };
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    top           *t = out;
    const int64_t  n = h->t.d.n_embd;
    nn_bind_patches(b, &t->patch, "v.patch_embd|v.patch_conv", "model.patch_conv", 3 * h->t.patch * h->t.patch, n);
    nn_bind_vec(b, &t->pre, "v.pre_ln|v.encoder_norm", "model.ln_pre", n, 0);
    if (h->merges)
        nn_bind_vec(b, &t->behind, "mm.input_norm|mm.norm", "multi_modal_projector.norm|vision_projection.norm", n, 0);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const nn_dims *d = p;
    layer         *w = out;
    const int64_t  n = d->n_embd, q = (int64_t)d->n_head * d->head_dim, ff = d->n_ff;
    (void)i;
    nn_bind_vec(b, &w->attn_norm, "ln1|attn_norm", "attention_norm", n, 0);
    nn_bind_linear(b, &w->q, "attn_q", "attention.q_proj", n, q, 0);
    nn_bind_linear(b, &w->k, "attn_k", "attention.k_proj", n, q, 0);
    nn_bind_linear(b, &w->v, "attn_v", "attention.v_proj", n, q, 0);
    nn_bind_linear(b, &w->o, "attn_out|attn_output", "attention.o_proj", q, n, 0);
    nn_bind_vec(b, &w->ffn_norm, "ln2|ffn_norm", "ffn_norm", n, 0);
    nn_bind_linear(b, &w->gate, "ffn_gate", "feed_forward.gate_proj", n, ff, 0);
    nn_bind_linear(b, &w->up, "ffn_up", "feed_forward.up_proj", n, ff, 0);
    nn_bind_linear(b, &w->down, "ffn_down", "feed_forward.down_proj", ff, n, 0);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->t.d;
    const top     *tw = net->top;
    nn_attn_spec   a = {
          .n_head = d->n_head, .n_kv = d->n_kv, .dim_k = d->head_dim, .scale = 1.0f / sqrtf((float)d->head_dim)
    };
    nn_buf x = nn_rms_norm(t, nn_tower_input(t, &h->t, tw->patch), tw->pre, d->eps);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = (const layer *)net->layers + i;
        nn_buf       n = nn_rms_norm(t, x, w->attn_norm, d->eps);
        nn_buf       q = nn_project(t, n, w->q), k = nn_project(t, n, w->k), v = nn_project(t, n, w->v);
        nn_rope_apply(t, q, d->head_dim, &h->rope);
        nn_rope_apply(t, k, d->head_dim, &h->rope);
        nn_kv_store(t, i, k, v);
        nn_project_add(t, x, nn_attention(t, i, q, a), w->o);
        nn_project_add(t, x, nn_glu(t, nn_rms_norm(t, x, w->ffn_norm, d->eps), w->gate, w->up, h->act), w->down);
    }
    if (tw->behind) x = nn_rms_norm(t, x, tw->behind, h->eps_behind);
    nn_vectors(t, nn_outputs(t, x));
}

static const char *const roots[] = {
    "vision_tower.", "model.vision_tower.", "model.vision_encoder.", "vision_encoder.", "model.", NULL
};
static const char *const names[] = { "pixtral", NULL };
const nn_arch            models_pixtral_tower = { NN_WHOLE,
                                                  .names = names,
                                                  .hf_layers = "model.transformer.layers.",
                                                  .gguf_layers = "v.blk.",
                                                  .hf_roots = roots,
                                                  .lacks = NN_LACKS_VOCAB | NN_LACKS_EPS };
