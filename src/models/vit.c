/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Towers with learned positions on a fixed grid and norms before each block: SigLIP (Gemma 3, SmolVLM, Idefics 3, Janus)
 * and CLIP (LLaVA). SigLIP 2 (LFM2-VL; MiniCPM-V 2.6's is like it) takes pictures of any shape, with positions in between.
 * In SigLIP for pictures of any size heads rotate by row and column; PaddleOCR-VL has positions, too, between those that
 * were learned, VideoLLaMA 3 has none. CLIP has a class row in front and a norm before the first layer. LLaVA and its
 * kin take what comes out of a layer (the last but one), or of several, side by side, without a norm behind it. The
 * second names of a tensor are those of Ollama's files, which have the tower inside.
 */
#include "nn/nn.h"

#include <math.h>
#include <stdio.h>

enum { MOST_TAPS = 5 };

typedef struct hparams {
    nn_tower_dims t;
    bool          clip, post;     /* post: a norm behind the last layer */
    bool          any;            /* of any size */
    int           n_run;          /* layers that are run */
    int           tap[MOST_TAPS]; /* behind how many layers rows come out; n_taps 0: behind the last */
    int           n_taps;
    bool          nearest; /* SigLIP 2: positions are not mixed, the nearest one counts */
    bool          quick;   /* x * sigmoid(1.702 x) for GELU */
    nn_act_kind   act;
    nn_rope       rope; /* any */
} hparams;

typedef struct top {
    nn_tower_top t;
    nn_linear    patch;
    nn_norm      pre, post;
} top;

typedef struct layer {
    nn_norm   attn_norm, ffn_norm;
    nn_linear q, k, v, o, up, down;
} layer;

static const nn_key keys[] = {
    NN_INT(t.patch, "patch_size", "patch_size", NN_REQUIRED),
    NN_INT(t.image, "image_size", "image_size", NN_REQUIRED),
    { 0 },
};

static void read_tower(nn_config *c, hparams *h) {
    nn_dims *d = &h->t.d;
    d->n_kv = d->n_head;
    if (d->head_dim <= 0 || d->head_dim * d->n_head != d->n_embd)
        nn_config_fail(c, "%d heads cannot share a width of %d", d->n_head, d->n_embd);
    if (h->t.patch < 1 || h->t.patch > 256 || (!h->any && h->t.image < h->t.patch) || h->t.image > 16384)
        nn_config_fail(c, "patches of %d pixels in a picture of %d", h->t.patch, h->t.image);
    h->n_run = d->n_layer;
}

/* Which layers' rows are taken: counted from 0, which is what goes into the first one, or from the end. */
static void read_taps(nn_config *c, hparams *h, int usual) {
    int n_layer = h->t.d.n_layer;
    h->n_taps =
        nn_config_outer_ints(c, "feature_layer", "vision_feature_layer|vision_feature_layers", h->tap, MOST_TAPS);
    int named = (int)nn_config_int(c, "taps", NULL, 0); /* where files say it in another way (Granite 4 Vision) */
    for (int i = 0; i < named && i < MOST_TAPS; i++) {
        char key[16];
        snprintf(key, sizeof key, "tap.%d", i);
        h->tap[i] = (int)nn_config_int(c, key, NULL, 0);
        h->n_taps = i + 1;
    }
    if (!h->n_taps) h->tap[h->n_taps++] = usual;
    h->n_run = 0;
    for (int i = 0; i < h->n_taps; i++) {
        int at = h->tap[i] < 0 ? n_layer + 1 + h->tap[i] : h->tap[i];
        if (at < 1 || at > n_layer)
            nn_config_fail(c, "vision_feature_layer is %d; there are %d layers", h->tap[i], n_layer);
        h->tap[i] = at;
        if (at > h->n_run) h->n_run = at;
    }
}

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    read_tower(c, h);
    h->t.d.eps = (float)nn_config_real(c, "attention.layer_norm_epsilon", "layer_norm_eps", 1e-6);
    h->act = nn_config_act(c, NULL, "hidden_act", NN_ACT_GELU_TANH);
    h->post = true;
}

static void setup_janus(nn_config *c, void *p) {
    hparams *h = p;
    setup(c, p);
    h->act = nn_config_act(c, NULL, "hidden_act", NN_ACT_GELU);
    nn_config_known(c, "use_qk_norm", "false");
}

static void setup_siglip_inner(nn_config *c, void *p) {
    hparams *h = p;
    setup(c, p);
    h->post = false;
    read_taps(c, h, -1);
}

static void setup_any(nn_config *c, void *p) {
    hparams *h = p;
    h->any = true;
    setup(c, p);
    h->rope = nn_rope_grid(c, h->t.d.head_dim, 10000);
}

static const nn_key keys_2[] = { NN_INT(t.patch, "patch_size", "patch_size", NN_REQUIRED), { 0 } };

/* The table of positions says how many there are. */
static void setup_2(nn_config *c, void *p) {
    hparams *h = p;
    h->t.image = h->t.patch;
    setup(c, p);
    h->nearest = nn_config_int(c, "positions.nearest", NULL, 0) != 0;
    if (nn_config_outer_int(c, NULL, "vision_feature_layer", -1) != -1)
        nn_config_fail(c, "vision_feature_layer is not the last one; this is not supported");
}

static void setup_clip(nn_config *c, void *p) {
    hparams *h = p;
    read_tower(c, h);
    h->clip = true;
    h->t.d.eps = (float)nn_config_real(c, "attention.layer_norm_epsilon", "layer_norm_eps", 1e-5);
    h->quick = nn_config_is(c, NULL, "hidden_act", "quick_gelu", true);
    if (!h->quick) h->act = nn_config_act(c, NULL, "hidden_act", NN_ACT_GELU);
    /* Converters leave out what is not run. */
    read_taps(c, h, nn_config_gguf(c) ? -1 : -2);
}

#define POSITIONS "v.position_embd|v.position_embedding", "model.embeddings.position_embedding"

/* How many positions there are, the table says: mmproj files have another size of pictures. */
static int64_t count_side(nn_binder *b, const hparams *h) {
    int64_t n = nn_bind_size(b, POSITIONS) / h->t.d.n_embd, side = 0;
    if (!h->any) return h->t.image / h->t.patch;
    while ((side + 1) * (side + 1) <= n && side < 1024) side++;
    return side;
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    top           *t = out;
    const int64_t  n = h->t.d.n_embd, side = count_side(b, h);
    nn_bind_patches(b, &t->patch, "v.patch_embd|v.patch_embedding", "model.embeddings.patch_embedding",
                    3 * h->t.patch * h->t.patch, n);
    if (side || !h->any) nn_bind_table(b, &t->t.positions, POSITIONS, side * side + h->clip, n);
    if (h->any) t->t.side = (int)side;
    if (h->clip) {
        nn_bind_vec(b, &t->t.class_row, "v.class_embd", "model.embeddings.class_embedding", n, 0);
        nn_bind_norm(b, &t->pre, "v.pre_ln", "model.pre_layrnorm", n, 0);
    } else if (h->post) {
        nn_bind_norm(b, &t->post, "v.post_ln|v.post_layernorm", "model.post_layernorm", n, 0);
    }
}

static void bind_top_2(nn_binder *b, void *out, const void *p) {
    static const char *const table[] = { "v.position_embd", "model.embeddings.position_embedding" };
    const hparams           *h = p;
    top                     *t = out;
    const int64_t            n = h->t.d.n_embd, pixels = 3 * h->t.patch * h->t.patch,
                  all = nn_bind_size(b, table[0], table[1]) / n;
    if (h->nearest || nn_bind_exists(b, "v.patch_embd", NULL)) { /* as a convolution has it: [channel][y][x] */
        nn_bind_patches(b, &t->patch, "v.patch_embd", h->nearest ? "model.embeddings.patch_embedding" : NULL, pixels,
                        n);
    } else {
        nn_bind_linear(b, &t->patch, NULL, "model.embeddings.patch_embedding", pixels, n, 0);
        t->t.channels_last = true;
    }
    while ((t->t.side + 1) * (t->t.side + 1) <= all && t->t.side < NN_MOST_PLACES) t->t.side++;
    t->t.between = h->nearest ? NN_BETWEEN_NEAREST : NN_BETWEEN_SMOOTH;
    nn_bind_table(b, &t->t.positions, table[0], table[1], (int64_t)t->t.side * t->t.side, n);
    nn_bind_norm(b, &t->post, "v.post_ln", "model.post_layernorm", n, 0);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const nn_dims *d = p;
    layer         *w = out;
    const int64_t  n = d->n_embd, ff = d->n_ff;
    /* Older converters exchanged the names of the two. */
    bool swapped = n != ff && nn_bind_width(b, "ffn_down", NULL) == n;
    (void)i;
    nn_bind_norm(b, &w->attn_norm, "ln1|layer_norm1", "layer_norm1", n, 0);
    nn_bind_linear(b, &w->q, "attn_q", "self_attn.q_proj", n, n, 0);
    nn_bind_linear(b, &w->k, "attn_k", "self_attn.k_proj", n, n, 0);
    nn_bind_linear(b, &w->v, "attn_v", "self_attn.v_proj", n, n, 0);
    nn_bind_linear(b, &w->o, "attn_out|attn_output", "self_attn.out_proj|self_attn.projection_layer", n, n, 0);
    nn_bind_norm(b, &w->ffn_norm, "ln2|layer_norm2", "layer_norm2", n, 0);
    nn_bind_linear(b, &w->up, swapped ? "ffn_down" : "ffn_up|mlp.fc1", "mlp.fc1", n, ff, 0);
    nn_bind_linear(b, &w->down, swapped ? "ffn_up" : "ffn_down|mlp.fc2", "mlp.fc2", ff, n, 0);
}

static void activate(nn_tape *t, nn_buf x, const hparams *h) {
    if (!h->quick) {
        nn_act(t, x, h->act);
        return;
    }
    nn_buf gate = nn_take(t, x, 0, h->t.d.n_ff);
    nn_scale(t, gate, 1.702f);
    nn_gate(t, x, gate, NN_ACT_SIGMOID);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->t.d;
    const top     *tw = net->top;
    nn_attn_spec   a = {
          .n_head = d->n_head, .n_kv = d->n_kv, .dim_k = d->head_dim, .scale = 1.0f / sqrtf((float)d->head_dim)
    };
    nn_buf taken[MOST_TAPS] = { 0 };
    nn_buf x = nn_tower_input(t, &h->t, tw->patch);
    if (h->clip) x = nn_norm_rows(t, x, &tw->pre, d->eps);
    for (int i = 0; i < h->n_run; i++) {
        const layer *w = (const layer *)net->layers + i;
        nn_buf       n = nn_norm_rows(t, x, &w->attn_norm, d->eps);
        nn_buf       q = nn_project(t, n, w->q), k = nn_project(t, n, w->k), v = nn_project(t, n, w->v);
        if (h->any) nn_rotate(t, q, k, d->head_dim, &h->rope);
        nn_kv_store(t, i, k, v);
        nn_project_add(t, x, nn_attention(t, i, q, a), w->o);
        nn_buf f = nn_project(t, nn_norm_rows(t, x, &w->ffn_norm, d->eps), w->up);
        activate(t, f, h);
        nn_project_add(t, x, f, w->down);
        for (int at = 0; at < h->n_taps && h->n_taps > 1; at++) {
            if (h->tap[at] == i + 1) taken[at] = nn_take(t, x, 0, d->n_embd);
        }
    }
    if (h->n_taps > 1) x = nn_join(t, taken, h->n_taps);
    if (h->post) x = nn_norm_rows(t, x, &tw->post, d->eps);
    nn_vectors(t, nn_outputs(t, x));
}

static const char *const roots[] = { "vision_tower.vision_model.",
                                     "model.vision_tower.vision_model.",
                                     "vision_tower.",
                                     "model.vision_tower.",
                                     "model.vision_model.",
                                     "vision_model.",
                                     "vpm.",
                                     "model.visual.vision_model.",
                                     "visual.vision_model.",
                                     NULL };
static const char *const names[] = { "siglip_vision_model", NULL };
const nn_arch            models_siglip = { NN_WHOLE,
                                           .names = names,
                                           .hf_layers = "model.encoder.layers.",
                                           .gguf_layers = "v.blk.",
                                           .hf_roots = roots,
                                           .lacks = NN_LACKS_VOCAB | NN_LACKS_EPS };

const nn_arch            models_siglip2 = { .hp_size = sizeof(hparams),
                                            .top_size = sizeof(top),
                                            .layer_size = sizeof(layer),
                                            .keys = keys_2,
                                            .setup = setup_2,
                                            .bind_top = bind_top_2,
                                            .bind_layer = bind_layer,
                                            .state = nn_state_whole,
                                            .forward = forward,
                                            .names = NN_NAMES("siglip2_vision_model"),
                                            .hf_layers = "model.encoder.layers.",
                                            .gguf_layers = "v.blk.",
                                            .hf_roots = roots,
                                            .lacks = NN_LACKS_VOCAB | NN_LACKS_EPS };
static const char *const names_inner[] = { "siglip_vision_model_inner", NULL };
const nn_arch            models_siglip_inner = { .hp_size = sizeof(hparams),
                                                 .top_size = sizeof(top),
                                                 .layer_size = sizeof(layer),
                                                 .keys = keys,
                                                 .setup = setup_siglip_inner,
                                                 .bind_top = bind_top,
                                                 .bind_layer = bind_layer,
                                                 .state = nn_state_whole,
                                                 .forward = forward,
                                                 .names = names_inner,
                                                 .hf_layers = "model.encoder.layers.",
                                                 .gguf_layers = "v.blk.",
                                                 .hf_roots = roots,
                                                 .lacks = NN_LACKS_VOCAB | NN_LACKS_EPS };

static const char *const names_janus[] = { "janus_vision_model", NULL };
const nn_arch            models_janus_tower = { .hp_size = sizeof(hparams),
                                                .top_size = sizeof(top),
                                                .layer_size = sizeof(layer),
                                                .keys = keys,
                                                .setup = setup_janus,
                                                .bind_top = bind_top,
                                                .bind_layer = bind_layer,
                                                .state = nn_state_whole,
                                                .forward = forward,
                                                .names = names_janus,
                                                .hf_layers = "model.encoder.layers.",
                                                .gguf_layers = "v.blk.",
                                                .hf_roots = roots,
                                                .lacks = NN_LACKS_VOCAB | NN_LACKS_EPS };

static const char *const names_clip[] = { "clip_vision_model", NULL };
const nn_arch            models_clip = { .hp_size = sizeof(hparams),
                                         .top_size = sizeof(top),
                                         .layer_size = sizeof(layer),
                                         .keys = keys,
                                         .setup = setup_clip,
                                         .bind_top = bind_top,
                                         .bind_layer = bind_layer,
                                         .state = nn_state_whole,
                                         .forward = forward,
                                         .names = names_clip,
                                         .hf_layers = "model.encoder.layers.",
                                         .gguf_layers = "v.blk.",
                                         .hf_roots = roots,
                                         .lacks = NN_LACKS_VOCAB | NN_LACKS_EPS };

/* Without positions there is no size of pictures. */
static const nn_key keys_any[] = { NN_INT(t.patch, "patch_size", "patch_size", 14), { 0 } };
const nn_arch       models_siglip_any = { .hp_size = sizeof(hparams),
                                          .top_size = sizeof(top),
                                          .layer_size = sizeof(layer),
                                          .keys = keys_any,
                                          .setup = setup_any,
                                          .bind_top = bind_top,
                                          .bind_layer = bind_layer,
                                          .state = nn_state_whole,
                                          .forward = forward,
                                          .names = NN_NAMES("siglip_any_size"),
                                          .hf_layers = "model.encoder.layers.",
                                          .gguf_layers = "v.blk.",
                                          .hf_roots = roots,
                                          .lacks = NN_LACKS_VOCAB | NN_LACKS_EPS };
