/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The eyes of Gemma 4 12B, which have no layers: a large patch is normed, multiplied, normed again, gets a learned position for its
 * column and one for its row, and is normed a third time. Each patch becomes a row of its own.
 */
#include "nn/nn.h"

typedef nn_tower_dims hparams;

typedef struct top {
    nn_tower_top t;
    nn_linear    patch;
    nn_norm      pixel_norm, patch_norm, place_norm;
} top;

static const nn_key keys[] = {
    NN_INT(patch, "patch_size", NULL, NN_REQUIRED), /* the vision room says it: files give the sides of its parts */
    { 0 },
};

static const float EPS = 1e-5f; /* PyTorch's, and no field of the files */

static void setup(nn_config *c, void *p) {
    const hparams *h = p;
    if (h->patch < 1 || h->patch > 1024) nn_config_fail(c, "patches of %d pixels", h->patch);
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    static const char *const table[] = { "v.position_embd", "model.vision_embedder.pos_embedding" };
    const hparams           *h = p;
    top                     *t = out;
    const int64_t            n = h->d.n_embd, pixels = 3 * (int64_t)h->patch * h->patch;
    /* In mmproj files pixels are [channel][y][x], and all columns stand in front of all rows. */
    bool converted = nn_bind_exists(b, "v.patch_embd", NULL);
    nn_bind_norm(b, &t->pixel_norm, "v.patch_norm.1", "model.vision_embedder.patch_ln1", pixels, 0);
    nn_bind_linear(b, &t->patch, "v.patch_embd", "model.vision_embedder.patch_dense", pixels, n, 0);
    nn_bind_norm(b, &t->patch_norm, "v.patch_norm.2", "model.vision_embedder.patch_ln2", n, 0);
    nn_bind_table(b, &t->t.positions, table[0], table[1], nn_bind_size(b, table[0], table[1]) / n, n);
    nn_bind_norm(b, &t->place_norm, "v.patch_norm.3", "model.vision_embedder.pos_norm", n, 0);
    t->t.channels_last = !converted;
    t->t.crossed = true;
    t->t.paired = !converted;
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const top     *tw = net->top;
    int            pixels = 3 * h->patch * h->patch;
    nn_buf         in = nn_input(t, (int64_t)pixels + h->d.n_embd);
    nn_buf         x = nn_norm_rows(t, nn_take(t, in, 0, pixels), &tw->pixel_norm, EPS);
    x = nn_norm_rows(t, nn_project(t, x, tw->patch), &tw->patch_norm, EPS);
    nn_add(t, x, nn_take(t, in, pixels, h->d.n_embd));
    nn_vectors(t, nn_outputs(t, nn_norm_rows(t, x, &tw->place_norm, EPS)));
}

static const char *const roots[] = { "", "model.", NULL };
static const char *const names[] = { "gemma4_unified_vision", NULL };
const nn_arch            models_gemma4_patches = { .names = names,
                                                   .hf_roots = roots,
                                                   .hp_size = sizeof(hparams),
                                                   .top_size = sizeof(top),
                                                   .layer_size = 1,
                                                   .keys = keys,
                                                   .lacks = NN_LACKS_VOCAB | NN_LACKS_EPS | NN_LACKS_FF | NN_LACKS_HEADS,
                                                   .setup = setup,
                                                   .bind_top = bind_top,
                                                   .bind_layer = nn_bind_nothing,
                                                   .state = nn_state_nothing,
                                                   .forward = forward };
