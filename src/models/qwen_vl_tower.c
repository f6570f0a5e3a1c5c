/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The towers of Qwen 2 VL, Qwen 2.5 VL, Qwen 3 VL and Qwen 3.5, and what merges their rows for the language model.
 *
 * A patch is the same picture twice in time, so that the two slices of the kernel become one. A head's pairs are turned by the
 * row of a patch (the first half of them) and by its column (the second), with the same frequencies. Squares of patches become
 * a row of the language model.
 *
 *     2     LayerNorms, x * sigmoid(1.702 x) for GELU
 *     2.5   RMS norms, a gated feed-forward; most layers see windows of the picture (the vision room puts rows in their
 *           order and says where each begins). EXAONE 4.5's shares keys among heads
 *     3     LayerNorms, learned positions, and taps: what some layers leave is merged, too, and added to the language
 *           model's first layers (nn_add_supplied). A tower's row has the last layer's result and the taps side by side
 *     3.5   as 3, without taps
 */
#include "nn/nn.h"

#include <math.h>
#include <stdio.h>

enum { MAX_TAPS = 4 };

typedef struct hparams {
    nn_tower_dims t;
    bool          first;        /* 2 */
    bool          second;       /* 2.5 */
    int           merge, n_out; /* patches on a side of a square; the language model's width */
    int           n_taps, taps[MAX_TAPS];
    const int    *whole; /* per layer: sees the whole picture */
    nn_act_kind   act;
    nn_rope       rope;
} hparams;

typedef struct top {
    nn_tower_top t;
    nn_linear    patch;
} top;

typedef struct layer {
    nn_norm  attn_norm, ffn_norm;
    nn_heads attn;
    nn_mlp   mlp;
} layer;

static const nn_key keys[] = {
    NN_INT(t.patch, "patch_size", "patch_size", 14),
    NN_INT(merge, "spatial_merge_size", "spatial_merge_size", 2),
    NN_INT(n_out, "projection_dim", "out_hidden_size", NN_REQUIRED),
    { 0 },
};

static void read_taps(nn_config *c, hparams *h) {
    const int *listed = nn_config_layer_is(c, "is_deepstack_layers", NULL, "", 0);
    for (int i = 0; i < h->t.d.n_layer; i++) {
        if (!listed[i] && !nn_config_lists(c, "deepstack_visual_indexes", "deepstack_visual_indexes", i)) continue;
        if (h->n_taps == MAX_TAPS) {
            nn_config_fail(c, "deepstack_visual_indexes: more than %d layers", MAX_TAPS);
            return;
        }
        h->taps[h->n_taps++] = i;
    }
}

static void read_tower(nn_config *c, hparams *h) {
    nn_dims *d = &h->t.d;
    if (!h->second) d->n_kv = d->n_head;
    d->eps = 1e-6f;
    if (d->head_dim <= 0 || d->head_dim % 4 || d->head_dim * d->n_head != d->n_embd || h->t.patch < 1 ||
        h->t.patch > 256 || h->merge < 1 || h->merge > 16 || h->n_out < 1 || h->n_out > 1 << 20) {
        nn_config_fail(c, "patches of %d pixels, squares of %d, %d heads in a width of %d, rows of %d", h->t.patch,
                       h->merge, d->n_head, d->n_embd, h->n_out);
        return;
    }
    nn_config_only_number(c, NULL, "temporal_patch_size", 2);
    h->rope = nn_rope_grid(c, d->head_dim, 10000);
}

static void see_whole(nn_config *c, hparams *h) {
    int *whole = nn_config_alloc(c, (size_t)h->t.d.n_layer, sizeof *whole);
    for (int i = 0; i < h->t.d.n_layer; i++) whole[i] = 1;
    h->whole = whole;
}

static void setup_first(nn_config *c, void *p) {
    hparams *h = p;
    h->first = true;
    read_tower(c, h);
    see_whole(c, h);
    if (!nn_config_is(c, NULL, "hidden_act", "quick_gelu", true)) nn_config_fail(c, "hidden_act is not quick_gelu");
}

static void setup_second(nn_config *c, void *p) {
    hparams *h = p;
    int     *whole = nn_config_alloc(c, (size_t)h->t.d.n_layer, sizeof *whole);
    int      every = (int)nn_config_int(c, "n_wa_pattern", NULL, 0);
    bool     listed = nn_config_count(c, "fullatt_block_indexes", "fullatt_block_indexes") > 0;
    h->second = true;
    read_tower(c, h);
    h->act = nn_config_act(c, NULL, "hidden_act", NN_ACT_SILU);
    if (nn_config_gguf(c) && !listed && every < 1) nn_config_fail(c, "n_wa_pattern is %d", every);
    if (!every) every = 8;
    for (int i = 0; i < h->t.d.n_layer && !listed; i++) whole[i] = (i + 1) % every == 0;
    for (int i = 0; i < h->t.d.n_layer && listed; i++)
        whole[i] = nn_config_lists(c, "fullatt_block_indexes", "fullatt_block_indexes", i);
    h->whole = whole;
}

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    int      places = (int)nn_config_int(c, NULL, "num_position_embeddings", 0), side = 1;
    read_tower(c, h);
    read_taps(c, h);
    h->act = nn_config_act(c, NULL, "hidden_act", NN_ACT_GELU_TANH);
    while (places && (side + 1) * (side + 1) <= places && side < 1024) side++;
    if (places && side * side != places) nn_config_fail(c, "num_position_embeddings: %d is not a square", places);
    h->t.image = places ? side * h->t.patch : (int)nn_config_int(c, "image_size", "image_size", NN_REQUIRED_INT);
    if (h->t.image < h->t.patch || h->t.image > 16384) nn_config_fail(c, "positions for a picture of %d", h->t.image);
    see_whole(c, h);
}

static void bind_norm(nn_binder *b, nn_norm *out, const char *gguf, const char *hf, int64_t n, const hparams *h) {
    if (h->second)
        nn_bind_vec(b, &out->w, gguf, hf, n, 0);
    else
        nn_bind_norm(b, out, gguf, hf, n, 0);
}

static nn_buf normed(nn_tape *t, nn_buf x, const nn_norm *w, int64_t group, const hparams *h) {
    return h->second ? nn_rms_norm_groups(t, x, (int)group, w->w, h->t.d.eps)
                     : nn_layer_norm_groups(t, x, (int)group, w->w, w->b, h->t.d.eps);
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    top           *t = out;
    const int64_t  n = h->t.d.n_embd, side = h->first || h->second ? 0 : h->t.image / h->t.patch;
    nn_bind_frames(b, &t->patch, "v.patch_embd|v.patch_embd_0|v.patch_embed", "model.patch_embed.proj", 3, 2,
                   h->t.patch * h->t.patch, n);
    if (side) nn_bind_table(b, &t->t.positions, "v.position_embd|v.pos_embed", "model.pos_embed", side * side, n);
    t->t.side = (int)side;
}

/* How wide the feed-forward is, the matrices say: mmproj files of Qwen 2 VL have another number there. */
static void bind_feed_first(nn_binder *b, nn_mlp *mlp, int64_t n) {
    int64_t ff = nn_bind_width(b, "ffn_down", "mlp.fc2");
    bool    swapped = ff == n; /* older converters exchanged the names of the two */
    if (swapped) ff = nn_bind_width(b, "ffn_up", "mlp.fc2");
    nn_bind_linear(b, &mlp->up, swapped ? "ffn_down" : "ffn_up", "mlp.fc1", n, ff, 0);
    nn_bind_linear(b, &mlp->down, swapped ? "ffn_up" : "ffn_down", "mlp.fc2", ff, n, 0);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->t.d;
    layer         *w = out;
    const int64_t  n = d->n_embd, ff = d->n_ff, kv = (int64_t)d->n_kv * d->head_dim;
    (void)i;
    bind_norm(b, &w->attn_norm, "ln1|norm1", "norm1", n, h);
    bind_norm(b, &w->ffn_norm, "ln2|norm2", "norm2", n, h);
    if (nn_bind_exists(b, "attn_qkv", "attn.qkv")) {
        nn_bind_qkv(b, &w->attn, "attn_qkv", "attn.qkv", d, false);
    } else {
        nn_bind_linear(b, &w->attn.q, "attn_q", "attn.q", n, n, 0);
        nn_bind_linear(b, &w->attn.k, "attn_k", "attn.k", n, kv, 0);
        nn_bind_linear(b, &w->attn.v, "attn_v", "attn.v", n, kv, 0);
    }
    nn_bind_linear(b, &w->attn.o, "attn_out", "attn.proj", n, n, 0);
    if (h->first) {
        bind_feed_first(b, &w->mlp, n);
        return;
    }
    if (h->second) nn_bind_linear(b, &w->mlp.gate, "ffn_gate", "mlp.gate_proj", n, ff, 0);
    nn_bind_linear(b, &w->mlp.up, "ffn_up|mlp.linear_fc1", h->second ? "mlp.up_proj" : "mlp.linear_fc1", n, ff, 0);
    nn_bind_linear(b, &w->mlp.down, "ffn_down|mlp.linear_fc2", h->second ? "mlp.down_proj" : "mlp.linear_fc2", ff, n,
                   0);
}

static nn_buf feed(nn_tape *t, nn_buf x, const nn_mlp *mlp, const hparams *h) {
    if (!h->first) return nn_feed(t, x, mlp, h->act);
    nn_buf y = nn_project(t, x, mlp->up), gate = nn_take(t, y, 0, (int)mlp->up.w->rows);
    nn_scale(t, gate, 1.702f);
    nn_gate(t, y, gate, NN_ACT_SIGMOID);
    return y;
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->t.d;
    nn_attn_spec   a = {
          .n_head = d->n_head, .n_kv = d->n_kv, .dim_k = d->head_dim, .scale = 1.0f / sqrtf((float)d->head_dim)
    };
    nn_buf parts[1 + MAX_TAPS];
    int    n_parts = 1;
    nn_buf x = nn_tower_input(t, &h->t, ((const top *)net->top)->patch);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = (const layer *)net->layers + i;
        a.spans = !h->whole[i];
        nn_buf n = normed(t, x, &w->attn_norm, d->n_embd, h);
        nn_project_add(t, x, nn_attend(t, i, n, &w->attn, &h->rope, a, d->eps), w->attn.o);
        nn_project_add(t, x, feed(t, normed(t, x, &w->ffn_norm, d->n_embd, h), &w->mlp, h), w->mlp.down);
        if (n_parts <= h->n_taps && h->taps[n_parts - 1] == i) parts[n_parts++] = nn_take(t, x, 0, d->n_embd);
    }
    parts[0] = x;
    nn_vectors(t, nn_outputs(t, n_parts > 1 ? nn_join(t, parts, n_parts) : x));
}

/* --- merging ---------------------------------------------------------------------------------------------------- */

/* Of the last layer's rows, and of each tap's. */
typedef struct merger {
    nn_norm   norm;
    nn_linear first, second;
} merger;

static void bind_mergers(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    merger        *w = out;
    const int64_t  n = h->t.d.n_embd, wide = n * h->merge * h->merge;
    bind_norm(b, &w[0].norm, "v.post_ln|v.merger.ln_q|v.merger.norm", "model.merger.ln_q|model.merger.norm", n, h);
    nn_bind_linear(b, &w[0].first, "mm.0|v.merger.mlp.0|v.merger.linear_fc1",
                   "model.merger.mlp.0|model.merger.linear_fc1", wide, wide, 0);
    nn_bind_linear(b, &w[0].second, "mm.2|v.merger.mlp.2|v.merger.linear_fc2",
                   "model.merger.mlp.2|model.merger.linear_fc2", wide, h->n_out, 0);
    for (int k = 0; k < h->n_taps; k++) { /* GGUF numbers them by their layers, Ollama from zero */
        static const char *const ends[][3] = { { "norm", "norm", "ln_q" },
                                               { "fc1", "linear_fc1", "mlp.0" },
                                               { "fc2", "linear_fc2", "mlp.2" } };
        merger                  *m = w + 1 + k;
        char                     gguf[3][96], hf[3][96];
        for (int i = 0; i < 3; i++) {
            snprintf(gguf[i], sizeof gguf[i], "v.deepstack.%d.%s|v.deepstack_merger.%d.%s", h->taps[k], ends[i][0], k,
                     ends[i][1]);
            snprintf(hf[i], sizeof hf[i], "model.deepstack_merger_list.%d.%s|model.merger_list.%d.%s", k, ends[i][1], k,
                     ends[i][2]);
        }
        nn_bind_norm(b, &m->norm, gguf[0], hf[0], wide, 0);
        nn_bind_linear(b, &m->first, gguf[1], hf[1], wide, wide, 0);
        nn_bind_linear(b, &m->second, gguf[2], hf[2], wide, h->n_out, 0);
    }
}

static void merge(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const merger  *w = net->top;
    const int      n = h->t.d.n_embd, parts = 1 + h->n_taps, wide = n * h->merge * h->merge;
    nn_buf         in = nn_input(t, (int64_t)wide * parts), out[1 + MAX_TAPS];
    for (int k = 0; k < parts; k++) {
        nn_buf x = nn_take_each(t, in, n * parts, k * n, n);
        x = nn_project(t, normed(t, x, &w[k].norm, k ? wide : n, h), w[k].first);
        nn_act(t, x, NN_ACT_GELU);
        out[k] = nn_project(t, x, w[k].second);
    }
    nn_vectors(t, nn_outputs(t, parts > 1 ? nn_join(t, out, parts) : out[0]));
}

static const char *const roots[] = { "model.visual.",       "visual.",         "vision_tower.",
                                     "model.vision_tower.", "thinker.visual.", NULL };

#define TOWER(name, text, setup_fn, without)                                                                           \
    const nn_arch models_##name##_tower = { .names = NN_NAMES(text),                                                   \
                                            .hf_layers = "model.blocks.",                                              \
                                            .gguf_layers = "v.blk.",                                                   \
                                            .hf_roots = roots,                                                         \
                                            .lacks = NN_LACKS_VOCAB | NN_LACKS_EPS | (without),                        \
                                            .hp_size = sizeof(hparams),                                                \
                                            .top_size = sizeof(top),                                                   \
                                            .layer_size = sizeof(layer),                                               \
                                            .keys = keys,                                                              \
                                            .setup = setup_fn,                                                         \
                                            .bind_top = bind_top,                                                      \
                                            .bind_layer = bind_layer,                                                  \
                                            .state = nn_state_whole,                                                   \
                                            .forward = forward };                                                      \
    const nn_arch models_projector_##name = { .names = NN_NAMES(text "_merger"),                                       \
                                              .hf_roots = roots,                                                       \
                                              .lacks = NN_LACKS_VOCAB | NN_LACKS_EPS | (without),                      \
                                              .hp_size = sizeof(hparams),                                              \
                                              .top_size = sizeof(merger[1 + MAX_TAPS]),                                \
                                              .layer_size = sizeof(char),                                              \
                                              .keys = keys,                                                            \
                                              .setup = setup_fn,                                                       \
                                              .bind_top = bind_mergers,                                                \
                                              .bind_layer = nn_bind_nothing,                                           \
                                              .state = nn_state_nothing,                                               \
                                              .forward = merge }

TOWER(qwen2_vl, "qwen2_vl_vision", setup_first, NN_LACKS_FF);
TOWER(qwen2_5_vl, "qwen2_5_vl_vision", setup_second, 0);
TOWER(qwen3_vl, "qwen3_vl_vision", setup, 0);
