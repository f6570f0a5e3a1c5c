/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tower of Kimi VL and Kimi K2.5 (MoonViT), and its projector. Pictures of any size; learned positions in between
 * by a cubic kernel; a head's pairs are turned by a patch's column and row in turn, with the same frequencies. mmproj
 * files of K2.5 have the pairs that columns turn first, then those that rows turn. A square of patches, each with its
 * norm, becomes a row through two layers.
 */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_tower_dims t;
    int           merge, n_out; /* patches on a side of a square; the language model's width */
    nn_rope       rope;
} hparams;

typedef struct top {
    nn_tower_top t;
    nn_linear    patch;
    nn_norm      post;
} top;

typedef struct layer {
    nn_norm   attn_norm, ffn_norm;
    nn_heads  attn;
    nn_linear up, down;
} layer;

static const nn_key keys[] = {
    NN_INT(t.patch, "patch_size", "patch_size", 14),
    NN_INT(merge, "projector.scale_factor", "merge_kernel_size.0|merge_kernel_size", 2),
    { 0 },
};

static void read_rope(nn_config *c, hparams *h) {
    int      pairs = h->t.d.head_dim / 2, half = pairs / 2;
    bool     apart = nn_config_gguf(c) && nn_config_int(c, "rope.apart", NULL, 0);
    float   *freq = nn_config_alloc(c, (size_t)pairs, sizeof *freq);
    uint8_t *axis = nn_config_alloc(c, (size_t)pairs, sizeof *axis);
    for (int i = 0; freq && axis && i < pairs; i++) {
        freq[i] = (float)pow(10000.0, -2.0 * (apart ? i % half : i / 2) / pairs);
        axis[i] = (uint8_t)(apart ? i < half : i % 2 == 0);
    }
    h->rope = (nn_rope){ .n_rot = h->t.d.head_dim, .interleaved = true, .scale = 1, .inv_freq = freq, .axis_of = axis };
}

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    nn_dims *d = &h->t.d;
    d->n_kv = d->n_head;
    d->eps = 1e-5f;
    h->n_out = (int)nn_config_outer_int(c, "projection_dim", "text_config.hidden_size", NN_REQUIRED_INT);
    nn_config_only(c, NULL, "hidden_act", "gelu_pytorch_tanh");
    nn_config_only_number(c, NULL, "rope_parameters.rope_theta", 10000);
    nn_config_only(c, NULL, "pos_emb_type", "divided_fixed");
    nn_config_only(c, NULL, "merge_type", "sd2_tpool");
    nn_config_only(c, NULL, "mm_projector_type", "patchmerger");
    nn_config_only(c, NULL, "projector_hidden_act", "gelu");
    nn_config_only_number(c, NULL, "projector_ln_eps", 1e-5);
    if (d->head_dim <= 0 || d->head_dim % 4 || d->head_dim * d->n_head != d->n_embd || d->n_embd > 1 << 16 ||
        h->t.patch < 1 || h->t.patch > 256 || h->merge < 1 || h->merge > 16 || h->n_out < 1 || h->n_out > 1 << 20) {
        nn_config_fail(c, "patches of %d pixels, squares of %d, %d heads in a width of %d, rows of %d", h->t.patch,
                       h->merge, d->n_head, d->n_embd, h->n_out);
        return;
    }
    read_rope(c, h);
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    static const char *const table[] = { "v.position_embd", "model.patch_embed.pos_emb" };
    const hparams           *h = p;
    top                     *t = out;
    const int64_t            n = h->t.d.n_embd, all = nn_bind_size(b, table[0], table[1]) / n;
    nn_bind_patches(b, &t->patch, "v.patch_embd", "model.patch_embed.proj", 3 * h->t.patch * h->t.patch, n);
    while ((t->t.side + 1) * (t->t.side + 1) <= all && t->t.side < 1024) t->t.side++;
    t->t.between = NN_BETWEEN_CUBIC;
    nn_bind_vec(b, &t->t.positions, table[0], table[1], (int64_t)t->t.side * t->t.side * n, 0);
    nn_bind_norm(b, &t->post, "v.post_ln", "model.encoder.final_layernorm", n, 0);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const nn_dims *d = p;
    layer         *w = out;
    const int64_t  n = d->n_embd, ff = d->n_ff;
    (void)i;
    nn_bind_norm(b, &w->attn_norm, "ln1", "norm0", n, 0);
    nn_bind_norm(b, &w->ffn_norm, "ln2", "norm1", n, 0);
    if (nn_bind_exists(b, "attn_qkv", "wqkv")) {
        nn_bind_qkv(b, &w->attn, "attn_qkv", "wqkv", d, false);
    } else {
        nn_bind_linear(b, &w->attn.q, "attn_q", "wq", n, n, 0);
        nn_bind_linear(b, &w->attn.k, "attn_k", "wk", n, n, 0);
        nn_bind_linear(b, &w->attn.v, "attn_v", "wv", n, n, 0);
    }
    nn_bind_linear(b, &w->attn.o, "attn_out", "wo", n, n, 0);
    nn_bind_linear(b, &w->up, "ffn_up", "mlp.fc0", n, ff, 0);
    nn_bind_linear(b, &w->down, "ffn_down", "mlp.fc1", ff, n, 0);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->t.d;
    const top     *tw = net->top;
    nn_attn_spec   a = nn_attn_plain(d, 0);
    nn_buf         x = nn_tower_input(t, &h->t, tw->patch);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = (const layer *)net->layers + i;
        nn_buf       n = nn_norm_rows(t, x, &w->attn_norm, d->eps);
        nn_project_add(t, x, nn_attend(t, i, n, &w->attn, &h->rope, a, d->eps), w->attn.o);
        nn_buf f = nn_project(t, nn_norm_rows(t, x, &w->ffn_norm, d->eps), w->up);
        nn_act(t, f, NN_ACT_GELU_TANH);
        nn_project_add(t, x, f, w->down);
    }
    nn_vectors(t, nn_outputs(t, nn_norm_rows(t, x, &tw->post, d->eps)));
}

/* --- the projector ---------------------------------------------------------------------------------------------- */

typedef struct projector {
    nn_norm   norm;
    nn_linear first, second;
} projector;

static void bind_projector(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    projector     *w = out;
    const int64_t  n = h->t.d.n_embd, wide = n * h->merge * h->merge;
    const bool new = nn_bind_exists(b, "mm.input_norm", "mm_projector.pre_norm"); /* K2.5 */
    nn_bind_norm(b, &w->norm, "mm.input_norm", new ? "mm_projector.pre_norm" : "multi_modal_projector.pre_norm", n, 0);
    nn_bind_linear(b, &w->first, "mm.1", new ? "mm_projector.proj.0" : "multi_modal_projector.linear_1", wide, wide, 0);
    nn_bind_linear(b, &w->second, "mm.2", new ? "mm_projector.proj.2" : "multi_modal_projector.linear_2", wide,
                   h->n_out, 0);
}

static void project(nn_tape *t, const nn_net *net) {
    const hparams   *h = net->hp;
    const projector *w = net->top;
    const int        n = h->t.d.n_embd;
    nn_buf           x = nn_input(t, (int64_t)n * h->merge * h->merge);
    x = nn_project(t, nn_layer_norm_groups(t, x, n, w->norm.w, w->norm.b, h->t.d.eps), w->first);
    nn_act(t, x, NN_ACT_GELU);
    nn_vectors(t, nn_outputs(t, nn_project(t, x, w->second)));
}

static const char *const roots[] = { "vision_tower.", "model.vision_tower.", NULL };
static const char *const projector_roots[] = { "", "model.", NULL };
const nn_arch            models_moonvit = { NN_WHOLE,
                                            .names = NN_NAMES("moonvit"),
                                            .hf_layers = "model.encoder.blocks.",
                                            .gguf_layers = "v.blk.",
                                            .hf_roots = roots,
                                            .lacks = NN_LACKS_VOCAB | NN_LACKS_EPS };
const nn_arch            models_projector_moonvit = { .names = NN_NAMES("moonvit_projector"),
                                                      .hf_roots = projector_roots,
                                                      .hp_size = sizeof(hparams),
                                                      .top_size = sizeof(projector),
                                                      .layer_size = sizeof(char),
                                                      .keys = keys,
                                                      .lacks = NN_LACKS_VOCAB | NN_LACKS_EPS,
                                                      .setup = setup,
                                                      .bind_top = bind_projector,
                                                      .bind_layer = nn_bind_nothing,
                                                      .state = nn_state_nothing,
                                                      .forward = project };
