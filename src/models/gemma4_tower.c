/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tower of Gemma 4: pictures of any size within a budget. A patch has a learned position for its column and one for its row;
 * the first half of a head is turned by the column, the second by the row, each as a head of its own. Queries, keys and values
 * are normed, and scores are not scaled. What comes in and goes out of a matrix may be limited (the smaller models). The
 * projector gets the mean of a square of patches.
 */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_tower_dims t;
    float         theta;
    nn_act_kind   act;
    nn_rope       across, down; /* of a head's halves */
} hparams;

typedef struct top {
    nn_tower_top t;
    nn_linear    patch;
} top;

typedef struct layer {
    const nn_vec *attn_norm, *post_attn_norm, *ffn_norm, *post_ffn_norm, *q_norm, *k_norm;
    nn_limited    q, k, v, o, gate, up, down;
} layer;

static const nn_key keys[] = {
    NN_INT(t.patch, "patch_size", "patch_size", 16),
    NN_FLOAT(theta, NULL, "rope_parameters.rope_theta|rope_theta", 100),
    { 0 },
};

/* A half of a head is rotated by itself: its pairs lie half of it apart. */
static nn_rope half_rope(nn_config *c, const hparams *h, uint8_t axis_no) {
    int      n = h->t.d.head_dim / 2, pairs = n / 2;
    float   *freq = nn_config_alloc(c, (size_t)(pairs > 0 ? pairs : 1), sizeof *freq);
    uint8_t *axis = nn_config_alloc(c, (size_t)(pairs > 0 ? pairs : 1), sizeof *axis);
    for (int i = 0; freq && axis && i < pairs; i++) {
        freq[i] = (float)pow((double)h->theta, -2.0 * i / n);
        axis[i] = axis_no;
    }
    return (nn_rope){ .n_rot = n, .scale = 1, .inv_freq = freq, .axis_of = axis };
}

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    nn_dims *d = &h->t.d;
    d->eps = (float)nn_config_real(c, "attention.layer_norm_epsilon", "rms_norm_eps", 1e-6);
    h->act = nn_config_act(c, NULL, "hidden_activation", NN_ACT_GELU_TANH);
    if (nn_config_gguf(c)) d->n_kv = d->n_head;
    if (d->head_dim <= 0 || d->head_dim % 4 || d->n_kv < 1 || d->n_head % d->n_kv || h->t.patch < 1 ||
        h->t.patch > 256 || !(h->theta > 0)) {
        nn_config_fail(c, "%d heads of %d in a width of %d, patches of %d pixels", d->n_head, d->head_dim, d->n_embd,
                       h->t.patch);
        return;
    }
    h->across = half_rope(c, h, 1);
    h->down = half_rope(c, h, 0);
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    static const char *const table[] = { "v.position_embd", "model.patch_embedder.position_embedding_table" };
    const hparams           *h = p;
    top                     *t = out;
    const int64_t            n = h->t.d.n_embd, pixels = 3 * h->t.patch * h->t.patch;
    const nn_mat            *patch = NULL;
    if (nn_bind_exists(b, "v.patch_embd", NULL)) { /* as a convolution has it: [channel][y][x] */
        nn_bind_patches(b, &t->patch, "v.patch_embd", NULL, pixels, n);
    } else { /* [y][x][channel] */
        nn_bind_mat(b, &patch, NULL, "model.patch_embedder.input_proj", pixels, n, 0);
        t->patch.w = patch;
        t->t.channels_last = true;
    }
    nn_bind_table(b, &t->t.positions, table[0], table[1], nn_bind_size(b, table[0], table[1]) / n, n);
    t->t.crossed = true;
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const nn_dims *d = p;
    layer         *w = out;
    const int64_t  n = d->n_embd, q = (int64_t)d->n_head * d->head_dim, kv = (int64_t)d->n_kv * d->head_dim;
    (void)i;
    nn_bind_vec(b, &w->attn_norm, "ln1", "input_layernorm", n, 0);
    nn_bind_vec(b, &w->post_attn_norm, "attn_post_norm", "post_attention_layernorm", n, 0);
    nn_bind_vec(b, &w->ffn_norm, "ln2", "pre_feedforward_layernorm", n, 0);
    nn_bind_vec(b, &w->post_ffn_norm, "ffn_post_norm", "post_feedforward_layernorm", n, 0);
    nn_bind_vec(b, &w->q_norm, "attn_q_norm", "self_attn.q_norm", d->head_dim, 0);
    nn_bind_vec(b, &w->k_norm, "attn_k_norm", "self_attn.k_norm", d->head_dim, 0);
    nn_bind_limited(b, &w->q, "attn_q", "self_attn.q_proj", n, q);
    nn_bind_limited(b, &w->k, "attn_k", "self_attn.k_proj", n, kv);
    nn_bind_limited(b, &w->v, "attn_v", "self_attn.v_proj", n, kv);
    nn_bind_limited(b, &w->o, "attn_out", "self_attn.o_proj", q, n);
    nn_bind_limited(b, &w->gate, "ffn_gate", "mlp.gate_proj", n, d->n_ff);
    nn_bind_limited(b, &w->up, "ffn_up", "mlp.up_proj", n, d->n_ff);
    nn_bind_limited(b, &w->down, "ffn_down", "mlp.down_proj", d->n_ff, n);
}

static void rotate(nn_tape *t, nn_buf x, const hparams *h) {
    int dim = h->t.d.head_dim;
    nn_rope_apply_at(t, x, dim, 0, &h->across);
    nn_rope_apply_at(t, x, dim, dim / 2, &h->down);
}

static nn_buf attend(nn_tape *t, int i, nn_buf n, const hparams *h, const layer *w) {
    const nn_dims *d = &h->t.d;
    nn_buf         q = nn_rms_norm(t, nn_project_limited(t, n, &w->q), w->q_norm, d->eps);
    nn_buf         k = nn_rms_norm(t, nn_project_limited(t, n, &w->k), w->k_norm, d->eps);
    nn_buf         v = nn_rms_norm_groups(t, nn_project_limited(t, n, &w->v), d->head_dim, NULL, d->eps);
    rotate(t, q, h);
    rotate(t, k, h);
    nn_kv_store(t, i, k, v);
    nn_attn_spec a = { .n_head = d->n_head, .n_kv = d->n_kv, .dim_k = d->head_dim, .scale = 1.0f };
    return nn_project_limited(t, nn_attention(t, i, q, a), &w->o);
}

static nn_buf feed(nn_tape *t, nn_buf n, const hparams *h, const layer *w) {
    nn_buf gate = nn_project_limited(t, n, &w->gate), up = nn_project_limited(t, n, &w->up);
    nn_gate(t, up, gate, h->act);
    return nn_project_limited(t, up, &w->down);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->t.d;
    nn_buf         x = nn_tower_input(t, &h->t, ((const top *)net->top)->patch);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = (const layer *)net->layers + i;
        nn_buf       n = nn_rms_norm(t, x, w->attn_norm, d->eps);
        nn_add(t, x, nn_rms_norm(t, attend(t, i, n, h, w), w->post_attn_norm, d->eps));
        n = nn_rms_norm(t, x, w->ffn_norm, d->eps);
        nn_add(t, x, nn_rms_norm(t, feed(t, n, h, w), w->post_ffn_norm, d->eps));
    }
    nn_vectors(t, nn_outputs(t, x));
}

static const char *const roots[] = { "model.vision_tower.", "vision_tower.", NULL };
static const char *const names[] = { "gemma4_vision", NULL };
const nn_arch            models_gemma4_tower = { NN_WHOLE,
                                                 .names = names,
                                                 .hf_layers = "model.encoder.layers.",
                                                 .gguf_layers = "v.blk.",
                                                 .hf_roots = roots,
                                                 .lacks = NN_LACKS_VOCAB | NN_LACKS_EPS };
