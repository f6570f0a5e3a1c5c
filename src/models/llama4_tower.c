/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tower of Llama 4, and its projector. Tiles of one size with learned positions, the class row's the last of them;
 * a head's pairs lie side by side, the first half of them turned by a patch's column and the second by its row, counted
 * from one, since the class row is not turned. The projector gets a square of patches side by side: two layers with
 * GELU behind each, and a matrix. The second names of a tensor are those of Ollama's files, which have the tower
 * inside.
 */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_tower_dims t;
    float         theta;
    int           n_in, n_out; /* of the projector */
    nn_rope       rope;
} hparams;

typedef struct top {
    nn_tower_top t;
    nn_linear    patch;
    nn_norm      pre, post;
} top;

typedef struct layer {
    nn_norm   attn_norm, ffn_norm;
    nn_heads  attn;
    nn_linear up, down;
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
    int      pairs = d->head_dim / 2, half = pairs / 2;
    d->n_kv = d->n_head;
    d->eps = 1e-5f; /* whatever norm_eps says: the reference's norms do not take it */
    if (d->head_dim <= 0 || d->head_dim % 4 || d->head_dim * d->n_head != d->n_embd || h->t.patch < 1 ||
        h->t.patch > 256 || h->t.image < h->t.patch || h->t.image > 16384 || !(h->theta > 0)) {
        nn_config_fail(c, "patches of %d pixels in a picture of %d, %d heads in a width of %d", h->t.patch, h->t.image,
                       d->n_head, d->n_embd);
        return;
    }
    nn_config_only(c, NULL, "hidden_act", "gelu");
    nn_config_only(c, NULL, "vision_feature_select_strategy", "default");
    nn_config_only_number(c, NULL, "vision_feature_layer", -1);
    float   *freq = nn_config_alloc(c, (size_t)pairs, sizeof *freq);
    uint8_t *axis = nn_config_alloc(c, (size_t)pairs, sizeof *axis);
    for (int i = 0; freq && axis && i < pairs; i++) {
        freq[i] = (float)pow((double)h->theta, -2.0 * (i % half) / pairs);
        axis[i] = (uint8_t)(i < half);
    }
    h->rope = (nn_rope){ .n_rot = d->head_dim, .interleaved = true, .scale = 1, .inv_freq = freq, .axis_of = axis };
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    top           *t = out;
    const int64_t  n = h->t.d.n_embd, side = h->t.image / h->t.patch;
    nn_bind_patches(b, &t->patch, "v.patch_embd|v.patch_embedding", "model.patch_embedding.linear",
                    3 * h->t.patch * h->t.patch, n);
    nn_bind_table(b, &t->t.positions, "v.position_embd|v.positional_embedding_vlm", "model.positional_embedding_vlm",
                  side * side + 1, n);
    nn_bind_vec(b, &t->t.class_row, "v.class_embd|v.class_embedding", "model.class_embedding", n, 0);
    t->t.class_last = true;
    nn_bind_norm(b, &t->pre, "v.pre_ln|v.layernorm_pre", "model.layernorm_pre", n, 0);
    nn_bind_norm(b, &t->post, "v.post_ln|v.layernorm_post", "model.layernorm_post", n, 0);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const nn_dims *d = p;
    layer         *w = out;
    const int64_t  n = d->n_embd, ff = d->n_ff;
    (void)i;
    nn_bind_norm(b, &w->attn_norm, "ln1|attn_norm", "input_layernorm", n, 0);
    nn_bind_linear(b, &w->attn.q, "attn_q", "self_attn.q_proj", n, n, 0);
    nn_bind_linear(b, &w->attn.k, "attn_k", "self_attn.k_proj", n, n, 0);
    nn_bind_linear(b, &w->attn.v, "attn_v", "self_attn.v_proj", n, n, 0);
    nn_bind_linear(b, &w->attn.o, "attn_out|attn_output", "self_attn.o_proj", n, n, 0);
    nn_bind_norm(b, &w->ffn_norm, "ln2|ffn_norm", "post_attention_layernorm", n, 0);
    nn_bind_linear(b, &w->up, "ffn_up|mlp.fc1", "mlp.fc1", n, ff, 0);
    nn_bind_linear(b, &w->down, "ffn_down|mlp.fc2", "mlp.fc2", ff, n, 0);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->t.d;
    const top     *tw = net->top;
    nn_attn_spec   a = nn_attn_plain(d, 0);
    nn_buf         x = nn_norm_rows(t, nn_tower_input(t, &h->t, tw->patch), &tw->pre, d->eps);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = (const layer *)net->layers + i;
        nn_buf       n = nn_norm_rows(t, x, &w->attn_norm, d->eps);
        nn_project_add(t, x, nn_attend(t, i, n, &w->attn, &h->rope, a, d->eps), w->attn.o);
        nn_buf f = nn_project(t, nn_norm_rows(t, x, &w->ffn_norm, d->eps), w->up);
        nn_act(t, f, NN_ACT_GELU);
        nn_project_add(t, x, f, w->down);
    }
    nn_vectors(t, nn_outputs(t, nn_norm_rows(t, x, &tw->post, d->eps)));
}

static const char *const roots[] = { "vision_model.", "model.vision_model.", NULL };
const nn_arch            models_llama4_tower = { NN_WHOLE,
                                                 .names = NN_NAMES("llama4_vision_model"),
                                                 .hf_layers = "model.model.layers.",
                                                 .gguf_layers = "v.blk.",
                                                 .hf_roots = roots,
                                                 .lacks = NN_LACKS_VOCAB | NN_LACKS_EPS };

/* --- the projector ---------------------------------------------------------------------------------------------- */

typedef struct projector {
    nn_linear first, second, last;
} projector;

static void setup_projector(nn_config *c, void *p) {
    hparams *h = p;
    double   ratio = nn_config_real(c, "pixel_shuffle_ratio", "pixel_shuffle_ratio", 0.5);
    int64_t  side =
        nn_config_int(c, "projector.scale_factor", NULL, ratio >= 1.0 / 16 && ratio <= 1 ? lround(1 / ratio) : 0);
    h->n_out = (int)nn_config_outer_int(c, "projection_dim", "text_config.hidden_size", NN_REQUIRED_INT);
    if (side < 1 || side > 16 || h->t.d.n_embd < 1 || h->t.d.n_embd > 1 << 16 || h->n_out < 1 || h->n_out > 1 << 20)
        nn_config_fail(c, "squares of %lld patches, rows of %d", (long long)side, h->n_out);
    else
        h->n_in = h->t.d.n_embd * (int)(side * side);
}

static void bind_projector(nn_binder *b, void *out, const void *p) {
    static const char *const names[][2] = { { "mm.model.mlp.2|v.vision_adapter.mlp.fc2",
                                              "vision_model.vision_adapter.mlp.fc2" },
                                            { "mm.model.fc|mm.linear_1", "multi_modal_projector.linear_1" } };
    const hparams           *h = p;
    projector               *w = out;
    int64_t first = nn_bind_width(b, names[0][0], names[0][1]), second = nn_bind_width(b, names[1][0], names[1][1]);
    nn_bind_linear(b, &w->first, "mm.model.mlp.1|v.vision_adapter.mlp.fc1", "vision_model.vision_adapter.mlp.fc1",
                   h->n_in, first, NN_NO_BIAS);
    nn_bind_linear(b, &w->second, names[0][0], names[0][1], first, second, NN_NO_BIAS);
    nn_bind_linear(b, &w->last, names[1][0], names[1][1], second, h->n_out, NN_NO_BIAS);
}

static void project(nn_tape *t, const nn_net *net) {
    const hparams   *h = net->hp;
    const projector *w = net->top;
    nn_buf           x = nn_project(t, nn_input(t, h->n_in), w->first);
    nn_act(t, x, NN_ACT_GELU);
    x = nn_project(t, x, w->second);
    nn_act(t, x, NN_ACT_GELU);
    nn_vectors(t, nn_outputs(t, nn_project(t, x, w->last)));
}

static const char *const projector_roots[] = { "", "model.", NULL };
static const nn_key      no_keys[] = { { 0 } };
const nn_arch            models_projector_llama4 = { .names = NN_NAMES("llama4_projector"),
                                                     .hf_roots = projector_roots,
                                                     .hp_size = sizeof(hparams),
                                                     .top_size = sizeof(projector),
                                                     .layer_size = sizeof(char),
                                                     .keys = no_keys,
                                                     .lacks = NN_LACKS_VOCAB | NN_LACKS_EPS | NN_LACKS_FF,
                                                     .setup = setup_projector,
                                                     .bind_top = bind_projector,
                                                     .bind_layer = nn_bind_nothing,
                                                     .state = nn_state_nothing,
                                                     .forward = project };
