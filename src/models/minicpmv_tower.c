/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tower of MiniCPM-V 4.6, in two parts, and its projector. Behind one of SigLIP's layers the four patches of a
 * square see each other alone, and become one row: their mean, and what two layers make of all four. Fewer rows go
 * through the layers that are left (the second part), and four of them, side by side, through the projector. Without
 * that merger (pictures of four times as many rows) the first part has all layers, and there is no second one.
 */
#include "nn/nn.h"

#include <math.h>

enum { SQUARE = 4 }; /* rows that become one */

typedef struct hparams {
    nn_tower_dims t;
    int           after; /* this layer comes the merger; -1: there is none */
    int           n_layer, n_out;
    nn_act_kind   act;
} hparams;

typedef struct top {
    nn_tower_top t;
    nn_linear    patch;
    nn_norm      post, merger_norm; /* merger_norm: before its attention */
    nn_heads     merger;
} top;

typedef struct layer {
    nn_norm   attn_norm, ffn_norm;
    nn_heads  attn;
    nn_linear up, down;
} layer;

static const nn_key keys[] = { NN_INT(t.patch, "patch_size", "patch_size", NN_REQUIRED), { 0 } };

static void read_tower(nn_config *c, hparams *h) {
    nn_dims *d = &h->t.d;
    bool     merges = nn_config_int(c, "merger", NULL, 1) != 0;
    d->n_kv = d->n_head;
    d->eps = (float)nn_config_real(c, "attention.layer_norm_epsilon", "layer_norm_eps", 1e-6);
    h->n_layer = d->n_layer;
    h->act = nn_config_act(c, NULL, "hidden_act", NN_ACT_GELU_TANH);
    h->after = (int)nn_config_outer_int(c, NULL, "insert_layer_id", 6);
    if (nn_config_gguf(c)) {
        double after = nn_config_real_of(c, "wa_layer_indexes", NULL, 0, 6);
        h->after = after >= 0 && after < h->n_layer ? (int)after : -2;
    }
    h->n_out = (int)nn_config_outer_int(c, "projection_dim", "text_config.hidden_size", NN_REQUIRED_INT);
    if (!merges) h->after = -1;
    if (d->head_dim <= 0 || d->head_dim * d->n_head != d->n_embd || d->n_embd > 1 << 16 || h->t.patch < 1 ||
        h->t.patch > 256 || h->after < -1 || h->after >= h->n_layer || h->n_out < 1 || h->n_out > 1 << 20)
        nn_config_fail(c, "patches of %d pixels, %d heads in a width of %d, a merger behind layer %d of %d", h->t.patch,
                       d->n_head, d->n_embd, h->after, h->n_layer);
}

/* The merger's attention keeps its keys as a layer of its own does. */
static void setup(nn_config *c, void *p) {
    hparams *h = p;
    read_tower(c, h);
    if (h->after >= 0) h->t.d.n_layer = h->after + 2;
}

static void setup_rest(nn_config *c, void *p) { read_tower(c, p); }

static void bind_heads(nn_binder *b, nn_heads *w, const char *const gguf[4], const char *const hf[4], int64_t n) {
    nn_bind_linear(b, &w->q, gguf[0], hf[0], n, n, 0);
    nn_bind_linear(b, &w->k, gguf[1], hf[1], n, n, 0);
    nn_bind_linear(b, &w->v, gguf[2], hf[2], n, n, 0);
    nn_bind_linear(b, &w->o, gguf[3], hf[3], n, n, 0);
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    static const char *const table[] = { "v.position_embd", "model.embeddings.position_embedding" };
    static const char *const gguf[] = { "v.vit_merger.attn_q", "v.vit_merger.attn_k", "v.vit_merger.attn_v",
                                        "v.vit_merger.attn_out" };
    static const char *const hf[] = { "model.vit_merger.self_attn.q_proj", "model.vit_merger.self_attn.k_proj",
                                      "model.vit_merger.self_attn.v_proj", "model.vit_merger.self_attn.out_proj" };
    const hparams           *h = p;
    top                     *t = out;
    const int64_t            n = h->t.d.n_embd, all = nn_bind_size(b, table[0], table[1]) / n;
    nn_bind_patches(b, &t->patch, "v.patch_embd", "model.embeddings.patch_embedding", 3 * h->t.patch * h->t.patch, n);
    while ((t->t.side + 1) * (t->t.side + 1) <= all && t->t.side < 1024) t->t.side++;
    t->t.between = NN_BETWEEN_NEAREST;
    nn_bind_table(b, &t->t.positions, table[0], table[1], (int64_t)t->t.side * t->t.side, n);
    if (h->after < 0) {
        nn_bind_norm(b, &t->post, "v.post_ln", "model.post_layernorm", n, 0);
        return;
    }
    nn_bind_norm(b, &t->merger_norm, "v.vit_merger.ln1", "model.vit_merger.layer_norm1", n, 0);
    bind_heads(b, &t->merger, gguf, hf, n);
}

static void bind_one(nn_binder *b, layer *w, const nn_dims *d) {
    static const char *const gguf[] = { "attn_q", "attn_k", "attn_v", "attn_out" };
    static const char *const hf[] = { "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                      "self_attn.out_proj" };
    nn_bind_norm(b, &w->attn_norm, "ln1", "layer_norm1", d->n_embd, 0);
    bind_heads(b, &w->attn, gguf, hf, d->n_embd);
    nn_bind_norm(b, &w->ffn_norm, "ln2", "layer_norm2", d->n_embd, 0);
    nn_bind_linear(b, &w->up, "ffn_up", "mlp.fc1", d->n_embd, d->n_ff, 0);
    nn_bind_linear(b, &w->down, "ffn_down", "mlp.fc2", d->n_ff, d->n_embd, 0);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    if (h->after < 0 || i <= h->after) bind_one(b, out, &h->t.d);
}

static void bind_rest(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    if (i > h->after) bind_one(b, out, &h->t.d);
}

static nn_attn_spec heads_of(const nn_dims *d, bool spans) {
    return (nn_attn_spec){ .n_head = d->n_head,
                           .n_kv = d->n_kv,
                           .dim_k = d->head_dim,
                           .scale = 1.0f / sqrtf((float)d->head_dim),
                           .spans = spans };
}

static void run_layer(nn_tape *t, nn_buf x, int i, const hparams *h, const layer *w) {
    const nn_dims *d = &h->t.d;
    nn_buf         n = nn_norm_rows(t, x, &w->attn_norm, d->eps);
    nn_project_add(t, x, nn_attend(t, i, n, &w->attn, NULL, heads_of(d, false), d->eps), w->attn.o);
    nn_buf f = nn_project(t, nn_norm_rows(t, x, &w->ffn_norm, d->eps), w->up);
    nn_act(t, f, h->act);
    nn_project_add(t, x, f, w->down);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->t.d;
    const top     *tw = net->top;
    int            n_run = h->after < 0 ? h->n_layer : h->after + 1;
    nn_buf         x = nn_tower_input(t, &h->t, tw->patch);
    for (int i = 0; i < n_run; i++) run_layer(t, x, i, h, (const layer *)net->layers + i);
    if (h->after < 0) {
        x = nn_norm_rows(t, x, &tw->post, d->eps);
    } else {
        nn_buf n = nn_norm_rows(t, x, &tw->merger_norm, d->eps);
        nn_project_add(t, x, nn_attend(t, n_run, n, &tw->merger, NULL, heads_of(d, true), d->eps), tw->merger.o);
    }
    nn_vectors(t, nn_outputs(t, x));
}

/* --- the second part --------------------------------------------------------------------------------------------- */

typedef struct rest {
    nn_norm   norm, post;
    nn_linear up, down;
} rest;

static void bind_rest_top(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    rest          *w = out;
    const int64_t  n = h->t.d.n_embd, wide = n * SQUARE, ff = (int64_t)h->t.d.n_ff * SQUARE;
    nn_bind_norm(b, &w->norm, "v.vit_merger.ds_ln", "model.vit_merger.pre_norm", wide, 0);
    nn_bind_linear(b, &w->up, "v.vit_merger.ds_ffn_up", "model.vit_merger.linear_1", wide, ff, 0);
    nn_bind_linear(b, &w->down, "v.vit_merger.ds_ffn_down", "model.vit_merger.linear_2", ff, n, 0);
    nn_bind_norm(b, &w->post, "v.post_ln", "model.post_layernorm", n, 0);
}

static nn_state state_rest(const void *p, int i) {
    const hparams *h = p;
    return i > h->after ? nn_state_whole(p, i) : (nn_state){ 0 };
}

static void forward_rest(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const rest    *w = net->top;
    const int      n = h->t.d.n_embd;
    nn_buf         all = nn_input(t, (int64_t)n * SQUARE), x = nn_take(t, all, 0, n);
    for (int k = 1; k < SQUARE; k++) nn_add(t, x, nn_take(t, all, k * n, n));
    nn_scale(t, x, 1.0f / SQUARE);
    nn_buf f = nn_project(t, nn_norm_rows(t, all, &w->norm, h->t.d.eps), w->up);
    nn_act(t, f, NN_ACT_GELU_TANH);
    nn_project_add(t, x, f, w->down);
    for (int i = h->after + 1; i < h->n_layer; i++) run_layer(t, x, i, h, (const layer *)net->layers + i);
    nn_vectors(t, nn_outputs(t, nn_norm_rows(t, x, &w->post, h->t.d.eps)));
}

/* --- the projector ----------------------------------------------------------------------------------------------- */

static void bind_projector(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    rest          *w = out;
    const int64_t  wide = (int64_t)h->t.d.n_embd * SQUARE;
    nn_bind_norm(b, &w->norm, "mm.input_norm", "model.merger.mlp.0.pre_norm", wide, 0);
    nn_bind_linear(b, &w->up, "mm.up", "model.merger.mlp.0.linear_1", wide, wide, 0);
    nn_bind_linear(b, &w->down, "mm.down", "model.merger.mlp.0.linear_2", wide, h->n_out, 0);
}

static void project(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const rest    *w = net->top;
    nn_buf         x = nn_norm_rows(t, nn_input(t, (int64_t)h->t.d.n_embd * SQUARE), &w->norm, 1e-6f);
    x = nn_project(t, x, w->up);
    nn_act(t, x, NN_ACT_GELU);
    nn_vectors(t, nn_outputs(t, nn_project(t, x, w->down)));
}

#define PART                                                                                                           \
    .hp_size = sizeof(hparams), .keys = keys, .lacks = NN_LACKS_VOCAB | NN_LACKS_EPS,                                  \
    .hf_layers = "model.encoder.layers.", .gguf_layers = "v.blk."

static const char *const roots[] = { "model.vision_tower.", "vision_tower.", NULL };
static const char *const outer_roots[] = { "model.", "", NULL };
const nn_arch            models_minicpmv_tower = { PART,
                                                   .names = NN_NAMES("minicpmv4_6_vision"),
                                                   .hf_roots = roots,
                                                   .top_size = sizeof(top),
                                                   .layer_size = sizeof(layer),
                                                   .setup = setup,
                                                   .bind_top = bind_top,
                                                   .bind_layer = bind_layer,
                                                   .state = nn_state_whole,
                                                   .forward = forward };
const nn_arch            models_minicpmv_rest = { PART,
                                                  .names = NN_NAMES("minicpmv4_6_vision_rest"),
                                                  .hf_roots = roots,
                                                  .top_size = sizeof(rest),
                                                  .layer_size = sizeof(layer),
                                                  .setup = setup_rest,
                                                  .bind_top = bind_rest_top,
                                                  .bind_layer = bind_rest,
                                                  .state = state_rest,
                                                  .forward = forward_rest };
const nn_arch            models_projector_minicpmv = { PART,
                                                       .names = NN_NAMES("minicpmv4_6_projector"),
                                                       .hf_roots = outer_roots,
                                                       .top_size = sizeof(rest),
                                                       .layer_size = sizeof(char),
                                                       .setup = setup_rest,
                                                       .bind_top = bind_projector,
                                                       .bind_layer = nn_bind_nothing,
                                                       .state = nn_state_nothing,
                                                       .forward = project };
