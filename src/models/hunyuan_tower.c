/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tower of HunYuan VL and HunyuanOCR, what merges its rows, and the projector.
 *
 * A ViT with norms before each block, for pictures of any size: learned positions between those of a square, no norm behind the
 * last layer. A convolution over a square of normed patches and a matrix make a row four times as wide as the tower's, the
 * projector one of the language model's width, with a norm behind it. Each line of rows ends with a learned one that passes the
 * projector, too; one in front of the picture and one behind it have the norm alone (vision/families/hunyuan.c). Published
 * directories call some things otherwise than those that transformers has in memory.
 */
#include "nn/nn.h"

typedef struct hparams {
    nn_tower_dims t;
    int           merge, n_out; /* patches on a side of a square; the language model's width */
    nn_between    between;
    nn_act_kind   act;
} hparams;

typedef struct top {
    nn_tower_top t;
    nn_linear    patch;
} top;

typedef struct layer {
    nn_norm   attn_norm, ffn_norm;
    nn_heads  attn;
    nn_linear up, down;
} layer;

static const nn_key keys[] = {
    NN_INT(t.patch, "patch_size", "patch_size", 16),
    NN_INT(t.image, "image_size", "max_image_size", 2048),
    NN_INT(merge, "spatial_merge_size", "spatial_merge_size", 2),
    { 0 },
};

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    nn_dims *d = &h->t.d;
    d->n_kv = d->n_head;
    d->eps = (float)nn_config_real(c, "attention.layer_norm_epsilon", "rms_norm_eps", 1e-5);
    h->n_out = (int)nn_config_outer_int(c, "projection_dim", "text_config.hidden_size|hidden_size", NN_REQUIRED_INT);
    if (d->head_dim <= 0 || d->head_dim * d->n_head != d->n_embd || d->n_embd > 1 << 16 || h->t.patch < 1 ||
        h->t.patch > 256 || h->t.image < h->t.patch || h->t.image > 16384 || h->merge < 1 || h->merge > 16 ||
        h->n_out < 1 || h->n_out > 1 << 20) {
        nn_config_fail(c, "patches of %d pixels, squares of %d, %d heads in a width of %d, rows of %d", h->t.patch,
                       h->merge, d->n_head, d->n_embd, h->n_out);
        return;
    }
    nn_config_only_number(c, NULL, "temporal_patch_size", 1);
    nn_config_only_number(c, NULL, "num_channels", 3);
    nn_config_only_number(c, NULL, "learnable_mlp_pooling_size", 0);
    nn_config_only(c, NULL, "interpolate_mode", "bilinear|bicubic");
    h->between = nn_config_is(c, NULL, "interpolate_mode", "bicubic", false) ? NN_BETWEEN_CUBIC : NN_BETWEEN_LINEAR;
    h->act = nn_config_act(c, NULL, "hidden_act", NN_ACT_GELU);
}

#define POSITIONS "v.position_embd", "model.embeddings.position_embedding"

/* How many positions there are, the table says in GGUF; in directories one that nothing has stands in front of them. */
static void bind_top(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    top           *t = out;
    const int64_t  n = h->t.d.n_embd;
    nn_bind_patches(b, &t->patch, "v.patch_embd", "model.embeddings.patch_embedding", 3 * h->t.patch * h->t.patch, n);
    t->t.unused = nn_bind_exists(b, NULL, "model.embeddings.position_embedding");
    t->t.side = h->t.image / h->t.patch;
    t->t.between = h->between;
    if (!t->t.unused) {
        int64_t all = nn_bind_size(b, POSITIONS) / n;
        t->t.side = 0;
        while ((t->t.side + 1) * (t->t.side + 1) <= all && t->t.side < 1024) t->t.side++;
    }
    nn_bind_table(b, &t->t.positions, POSITIONS, (int64_t)t->t.side * t->t.side + t->t.unused, n);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const nn_dims *d = p;
    layer         *w = out;
    const int64_t  n = d->n_embd, ff = d->n_ff;
    (void)i;
    nn_bind_norm(b, &w->attn_norm, "ln1", "layer_norm1|input_layernorm", n, 0);
    nn_bind_norm(b, &w->ffn_norm, "ln2", "layer_norm2|post_attention_layernorm", n, 0);
    nn_bind_linear(b, &w->attn.q, "attn_q", "self_attn.q_proj", n, n, 0);
    nn_bind_linear(b, &w->attn.k, "attn_k", "self_attn.k_proj", n, n, 0);
    nn_bind_linear(b, &w->attn.v, "attn_v", "self_attn.v_proj", n, n, 0);
    nn_bind_linear(b, &w->attn.o, "attn_out", "self_attn.o_proj", n, n, 0);
    nn_bind_linear(b, &w->up, "ffn_up", "mlp.fc1|mlp.dense_h_to_4h", n, ff, 0);
    nn_bind_linear(b, &w->down, "ffn_down", "mlp.fc2|mlp.dense_4h_to_h", ff, n, 0);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams     *h = net->hp;
    const nn_dims     *d = &h->t.d;
    const nn_attn_spec a = nn_attn_plain(d, 0);
    nn_buf             x = nn_tower_input(t, &h->t, ((const top *)net->top)->patch);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = (const layer *)net->layers + i;
        nn_buf       n = nn_norm_rows(t, x, &w->attn_norm, d->eps);
        nn_project_add(t, x, nn_attend(t, i, n, &w->attn, NULL, a, d->eps), w->attn.o);
        nn_buf f = nn_project(t, nn_norm_rows(t, x, &w->ffn_norm, d->eps), w->up);
        nn_act(t, f, h->act);
        nn_project_add(t, x, f, w->down);
    }
    nn_vectors(t, nn_outputs(t, x));
}

/* --- merging ---------------------------------------------------------------------------------------------------- */

typedef struct merger {
    const nn_vec *norm;
    nn_linear     square, wide;
} merger;

static void bind_merger(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    merger        *w = out;
    const int      n = h->t.d.n_embd;
    nn_bind_vec(b, &w->norm, "mm.pre_norm", "model.patch_merger.before_rms|model.perceive.before_rms", n, 0);
    nn_bind_taps(b, &w->square, "mm.0", "model.patch_merger.proj_conv|model.perceive.proj.0", n, h->merge * h->merge,
                 2 * n);
    nn_bind_taps(b, &w->wide, "mm.2", "model.patch_merger.proj_out|model.perceive.proj.2", 2 * n, 1, 4 * n);
}

static void merge(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const merger  *w = net->top;
    const int      n = h->t.d.n_embd;
    nn_buf         x = nn_input(t, (int64_t)n * h->merge * h->merge);
    x = nn_project(t, nn_rms_norm_groups(t, x, n, w->norm, h->t.d.eps), w->square);
    nn_act(t, x, h->act);
    nn_vectors(t, nn_outputs(t, nn_project(t, x, w->wide)));
}

/* --- the projector ---------------------------------------------------------------------------------------------- */

typedef struct projector {
    nn_lines_top t;
    nn_linear    w;
} projector;

static void bind_projector(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    projector     *w = out;
    const int64_t  in = 4 * (int64_t)h->t.d.n_embd;
    w->t.eps = h->t.d.eps;
    nn_bind_linear(b, &w->w, "mm.model.fc", "model.patch_merger.mlp|model.perceive.mlp", in, h->n_out, 0);
    nn_bind_vec(b, &w->t.newline, "v.image_newline|model.image_newline",
                "model.patch_merger.image_newline|model.perceive.image_newline", in, 0);
    nn_bind_vec(b, &w->t.begin, "mm.image_begin", "model.patch_merger.image_begin|model.perceive.image_begin", h->n_out,
                0);
    nn_bind_vec(b, &w->t.end, "mm.image_end", "model.patch_merger.image_end|model.perceive.image_end", h->n_out, 0);
    nn_bind_vec(b, &w->t.norm, "mm.post_norm", "model.patch_merger.after_rms|model.perceive.after_rms", h->n_out, 0);
}

static void project(nn_tape *t, const nn_net *net) {
    const hparams   *h = net->hp;
    const projector *w = net->top;
    nn_buf           x = nn_project(t, nn_input(t, 4 * (int64_t)h->t.d.n_embd), w->w);
    nn_vectors(t, nn_outputs(t, nn_rms_norm(t, x, w->t.norm, w->t.eps)));
}

static const char *const roots[] = { "vit.", "model.vit.", "model.vision_tower.", "vision_tower.", NULL };
#define PART                                                                                                           \
    .hf_roots = roots, .lacks = NN_LACKS_VOCAB | NN_LACKS_EPS, .hp_size = sizeof(hparams), .keys = keys, .setup = setup
#define ALONE PART, .layer_size = sizeof(char), .bind_layer = nn_bind_nothing, .state = nn_state_nothing
const nn_arch models_hunyuan_tower = { PART,
                                       .names = NN_NAMES("hunyuan_vl_vision"),
                                       .hf_layers = "model.layers.",
                                       .gguf_layers = "v.blk.",
                                       .top_size = sizeof(top),
                                       .layer_size = sizeof(layer),
                                       .bind_top = bind_top,
                                       .bind_layer = bind_layer,
                                       .state = nn_state_whole,
                                       .forward = forward };
const nn_arch models_hunyuan_merger = { ALONE, .names = NN_NAMES("hunyuan_vl_merger"), .top_size = sizeof(merger),
                                        .bind_top = bind_merger, .forward = merge };
const nn_arch models_projector_hunyuan = { ALONE, .names = NN_NAMES("hunyuan_vl_projector"),
                                           .top_size = sizeof(projector), .bind_top = bind_projector,
                                           .forward = project };
