/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tower of ERNIE 4.5 VL, and what makes its rows those of the language model. The tower is Qwen 2 VL's with one
 * frame, and a norm behind it. Two layers with a norm over a square of patches, the same over two frames side by side,
 * which are the same picture here, then a matrix and a norm.
 */
#include "nn/nn.h"

typedef struct hparams {
    nn_tower_dims t;
    int           n_out, merge;
    float         eps_out; /* of the last norm, the language model's */
    bool          quick;   /* x * sigmoid(1.702 x) for GELU */
    nn_act_kind   act;
    nn_rope       rope;
} hparams;

typedef struct top {
    nn_tower_top t;
    nn_linear    patch;
    nn_norm      norm;
} top;

typedef struct layer {
    nn_norm  attn_norm, ffn_norm;
    nn_heads attn;
    nn_mlp   mlp;
} layer;

static const nn_key keys[] = {
    NN_INT(t.patch, NULL, "patch_size", 14),
    NN_INT(merge, NULL, "spatial_merge_size", 2),
    { 0 },
};

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    nn_dims *d = &h->t.d;
    d->n_kv = d->n_head;
    d->eps = (float)nn_config_real(c, NULL, "rms_norm_eps", 1e-6);
    h->eps_out = (float)nn_config_real(c, "attention.layer_norm_rms_epsilon", NULL, 1e-5);
    h->n_out = (int)nn_config_outer_int(c, NULL, "text_config.hidden_size|hidden_size", NN_REQUIRED_INT);
    if (d->head_dim <= 0 || d->head_dim % 4 || d->head_dim * d->n_head != d->n_embd || h->t.patch < 1 ||
        h->t.patch > 256 || h->merge < 1 || h->merge > 16 || h->n_out < 1 || h->n_out > 1 << 20) {
        nn_config_fail(c, "patches of %d pixels, squares of %d, %d heads in a width of %d, rows of %d", h->t.patch,
                       h->merge, d->n_head, d->n_embd, h->n_out);
        return;
    }
    nn_config_only_number(c, NULL, "temporal_merge_size", 2);
    h->quick = nn_config_is(c, NULL, "hidden_act", "quick_gelu", true);
    if (!h->quick) h->act = nn_config_act(c, NULL, "hidden_act", NN_ACT_GELU);
    h->rope = nn_rope_grid(c, d->head_dim, 10000);
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    top           *t = out;
    nn_bind_patches(b, &t->patch, "v.patch_embd", "model.patch_embed.proj", 3 * h->t.patch * h->t.patch, h->t.d.n_embd);
    nn_bind_norm(b, &t->norm, NULL, "model.ln", h->t.d.n_embd, 0);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const nn_dims *d = p;
    layer         *w = out;
    const int64_t  n = d->n_embd;
    (void)i;
    nn_bind_norm(b, &w->attn_norm, NULL, "norm1", n, 0);
    nn_bind_norm(b, &w->ffn_norm, NULL, "norm2", n, 0);
    nn_bind_qkv(b, &w->attn, NULL, "attn.qkv", d, false);
    nn_bind_linear(b, &w->attn.o, NULL, "attn.proj", n, n, 0);
    nn_bind_linear(b, &w->mlp.up, NULL, "mlp.fc1", n, d->n_ff, 0);
    nn_bind_linear(b, &w->mlp.down, NULL, "mlp.fc2", d->n_ff, n, 0);
}

static nn_buf feed(nn_tape *t, nn_buf x, const nn_mlp *mlp, const hparams *h) {
    if (!h->quick) return nn_feed(t, x, mlp, h->act);
    nn_buf y = nn_project(t, x, mlp->up), gate = nn_take(t, y, 0, (int)mlp->up.w->rows);
    nn_scale(t, gate, 1.702f);
    nn_gate(t, y, gate, NN_ACT_SIGMOID);
    return y;
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->t.d;
    const top     *tw = net->top;
    nn_buf         x = nn_tower_input(t, &h->t, tw->patch);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = (const layer *)net->layers + i;
        nn_buf       n = nn_norm_rows(t, x, &w->attn_norm, d->eps);
        nn_project_add(t, x, nn_attend(t, i, n, &w->attn, &h->rope, nn_attn_plain(d, 0), d->eps), w->attn.o);
        nn_project_add(t, x, feed(t, nn_norm_rows(t, x, &w->ffn_norm, d->eps), &w->mlp, h), w->mlp.down);
    }
    nn_vectors(t, nn_outputs(t, nn_norm_rows(t, x, &tw->norm, d->eps)));
}

/* --- merging ---------------------------------------------------------------------------------------------------- */

typedef struct pair {
    nn_linear first, second;
    nn_norm   norm;
} pair;

typedef struct merger {
    pair          square, frames;
    nn_linear     last;
    const nn_vec *norm;
} merger;

static void bind_merger(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    merger        *w = out;
    const int64_t  n = (int64_t)h->t.d.n_embd * h->merge * h->merge;
    nn_bind_linear(b, &w->square.first, NULL, "model.spatial_linear.0|model.spatial_linear.fc1", n, n, 0);
    nn_bind_linear(b, &w->square.second, NULL, "model.spatial_linear.2|model.spatial_linear.fc2", n, n, 0);
    nn_bind_norm(b, &w->square.norm, NULL, "model.spatial_linear.3|model.spatial_linear.ln", n, 0);
    nn_bind_linear(b, &w->frames.first, NULL, "model.temporal_linear.0|model.temporal_linear.fc1", 2 * n, n, 0);
    nn_bind_linear(b, &w->frames.second, NULL, "model.temporal_linear.2|model.temporal_linear.fc2", n, n, 0);
    nn_bind_norm(b, &w->frames.norm, NULL, "model.temporal_linear.3|model.temporal_linear.ln", n, 0);
    nn_bind_linear(b, &w->last, NULL, "model.mlp", n, h->n_out, 0);
    nn_bind_vec(b, &w->norm, NULL, "model.after_norm", h->n_out, 0);
}

static nn_buf run_pair(nn_tape *t, nn_buf x, const pair *w, float eps) {
    x = nn_project(t, x, w->first);
    nn_act(t, x, NN_ACT_GELU);
    return nn_norm_rows(t, nn_project(t, x, w->second), &w->norm, eps);
}

static void merge(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const merger  *w = net->top;
    nn_buf         x = nn_input(t, (int64_t)h->t.d.n_embd * h->merge * h->merge);
    x = run_pair(t, x, &w->square, h->t.d.eps);
    x = run_pair(t, nn_join(t, (const nn_buf[]){ x, x }, 2), &w->frames, h->t.d.eps);
    nn_vectors(t, nn_outputs(t, nn_rms_norm(t, nn_project(t, x, w->last), w->norm, h->eps_out)));
}

static const char *const roots[] = { "model.vision_model.", "model.vision_tower.", "vision_model.", "vision_tower.",
                                     NULL };
static const char *const roots_merger[] = { "model.resampler_model.", "resampler_model.", NULL };
#define LACKS .lacks = NN_LACKS_VOCAB | NN_LACKS_EPS
const nn_arch models_ernie_tower = { NN_WHOLE, .names = NN_NAMES("ernie4_5_vl_moe_vision"),
                                     .hf_layers = "model.blocks.", .hf_roots = roots, LACKS };
const nn_arch models_projector_ernie = { .names = NN_NAMES("ernie4_5_vl_moe_resampler"),
                                         LACKS,
                                         .hf_roots = roots_merger,
                                         .hp_size = sizeof(hparams),
                                         .top_size = sizeof(merger),
                                         .layer_size = sizeof(char),
                                         .keys = keys,
                                         .setup = setup,
                                         .bind_top = bind_merger,
                                         .bind_layer = nn_bind_nothing,
                                         .state = nn_state_nothing,
                                         .forward = merge };
