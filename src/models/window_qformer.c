/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Granite 4 Vision's projectors: in each window of a tile's patches learned queries, one for every square of four patches, look at
 * each other and then at the window's patches. There are several side by side: some begin with the mean of the square's patches in a
 * layer of the tower of their own, four more with one of the four in one layer, and each makes a part of the rows that is added in
 * front of a layer of the language model of its own (nn_add_supplied). Two models do it, since queries see other rows each time:
 *
 *     asked    the queries look at each other. A row has the four patches, of each what all taken layers left, and the learned
 *              queries of all projectors
 *     seen     they look at the patches, and become rows: nothing for the embedding, then a part from each projector. A row is a query
 *              (nothing of a patch; what the first model left) or a patch (what all taken layers left; its learned positions)
 */
#include "nn/nn.h"

#include <math.h>
#include <stdio.h>

enum { SQUARE = 4, CORNERS = 4 };

typedef struct hparams {
    nn_dims d;
    int     heads, n_ff, deep, n, taps, n_out, window; /* deep: projectors that begin with a mean; n: all of them */
    float   eps;
    bool    seen;
} hparams;

typedef struct projector {
    nn_norm   norm, first, after, last;
    nn_linear q, k, v, o, up, down, out;
} projector;

typedef struct top {
    nn_window_top t;
    projector     p[NN_WINDOW_MOST];
} top;

static const nn_key keys[] = { { 0 } };

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    h->heads = (int)nn_config_int(c, "qformer.heads", NULL, 0);
    h->n_ff = (int)nn_config_int(c, "qformer.ff", NULL, 0);
    h->eps = (float)nn_config_real(c, "qformer.eps", NULL, 1e-12);
    h->deep = (int)nn_config_int(c, "qformer.deep", NULL, 0);
    h->window = (int)nn_config_int(c, "qformer.window", NULL, 0);
    h->taps = h->deep + 1;
    h->n = h->deep + CORNERS;
    h->n_out = (int)nn_config_outer_int(c, NULL, "text_config.hidden_size|hidden_size", NN_REQUIRED_INT);
    if (h->deep < 0 || h->n > NN_WINDOW_MOST || h->n > h->d.n_layer)
        nn_config_fail(c, "%d projectors of a tower of %d layers; up to %d are supported", h->n, h->d.n_layer,
                       NN_WINDOW_MOST);
    else if (h->heads < 1 || h->d.n_embd < 1 || h->d.n_embd > 1 << 13 || h->d.n_embd % h->heads || h->n_ff < 1 ||
             h->n_ff > 1 << 16 || h->n_out < 1 || h->n_out > 1 << 16 || h->window < 2 || h->window > 64)
        nn_config_fail(c, "a projector of %d heads from %d to %d, %d between them, in windows of %d", h->heads,
                       h->d.n_embd, h->n_out, h->n_ff, h->window);
}

static void setup_seen(nn_config *c, void *p) {
    hparams *h = p;
    h->seen = true;
    setup(c, p);
}

/* What a projector calls a thing of its own. */
typedef struct named {
    char text[160];
} named;

static named name_of(const hparams *h, int i, const char *what) {
    named n;
    bool  deep = i < h->deep;
    snprintf(n.text, sizeof n.text, "model.%s_projectors.%d.%s", deep ? "layerwise" : "spatial", deep ? i : i - h->deep,
             what);
    return n;
}

#define LAYER "qformer.encoder.layer.0."

static void bind_one(nn_binder *b, const hparams *h, int i, projector *p) {
    const int64_t n = h->d.n_embd;
    const char   *own = h->seen ? LAYER "crossattention." : LAYER "attention.";
    char          name[96];
#define NAME(what) (snprintf(name, sizeof name, "%s%s", own, what), name_of(h, i, name).text)
    nn_bind_linear(b, &p->q, NULL, NAME("attention.query"), n, n, 0);
    nn_bind_linear(b, &p->k, NULL, NAME("attention.key"), n, n, 0);
    nn_bind_linear(b, &p->v, NULL, NAME("attention.value"), n, n, 0);
    nn_bind_linear(b, &p->o, NULL, NAME("output.dense"), n, n, 0);
    nn_bind_norm(b, &p->after, NULL, NAME("output.LayerNorm"), n, 0);
#undef NAME
    nn_bind_norm(b, &p->norm, NULL, name_of(h, i, "norm").text, n, 0);
    if (!h->seen) {
        nn_bind_norm(b, &p->first, NULL, name_of(h, i, "qformer.layernorm").text, n, 0);
        return;
    }
    nn_bind_linear(b, &p->up, NULL, name_of(h, i, LAYER "intermediate_query.dense").text, n, h->n_ff, 0);
    nn_bind_linear(b, &p->down, NULL, name_of(h, i, LAYER "output_query.dense").text, h->n_ff, n, 0);
    nn_bind_norm(b, &p->last, NULL, name_of(h, i, LAYER "output_query.LayerNorm").text, n, 0);
    nn_bind_linear(b, &p->out, NULL, name_of(h, i, "out_linear").text, n, h->n_out, 0);
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    top           *t = out;
    int64_t        side = h->seen ? h->window : h->window / 2;
    t->t.n = h->n;
    for (int i = 0; i < h->n; i++) {
        bind_one(b, h, i, &t->p[i]);
        nn_bind_table(b, &t->t.learned[i], NULL, name_of(h, i, h->seen ? "image_positions" : "query").text, side * side,
                      h->d.n_embd);
    }
    t->t.line.scale = 1;
    if (h->seen) nn_bind_vec(b, &t->t.line.newline, NULL, "model.image_newline", h->n_out, 0);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    return i < h->n ? nn_state_step(h->heads, h->d.n_embd / h->heads) : (nn_state){ 0 };
}

/* One of the patches that lie side by side, normed by a projector. */
static nn_buf patch_of(nn_tape *t, const hparams *h, const projector *p, nn_buf in, int patch, int i) {
    int tap = i < h->deep ? i : h->deep, n = h->d.n_embd;
    return nn_norm_rows(t, nn_take(t, in, (patch * h->taps + tap) * n, n), &p->norm, 1e-6f);
}

/* x looks at the keys and values of k; with what it was, normed. */
static nn_buf look(nn_tape *t, const hparams *h, const projector *p, int i, nn_buf x, nn_buf k) {
    int          dim = h->d.n_embd / h->heads;
    nn_attn_spec a = {
        .n_head = h->heads, .n_kv = h->heads, .dim_k = dim, .scale = 1.0f / sqrtf((float)dim), .spans = true
    };
    nn_buf q = nn_project(t, x, p->q);
    nn_kv_store(t, i, nn_project(t, k, p->k), nn_project(t, k, p->v));
    nn_buf y = nn_project(t, nn_attention(t, i, q, a), p->o);
    nn_add(t, y, x);
    return nn_norm_rows(t, y, &p->after, h->eps);
}

/* Any number side by side. */
static nn_buf join(nn_tape *t, const nn_buf *parts, int n) {
    nn_buf x = parts[0];
    for (int i = 1, k; i < n; i += k) {
        nn_buf some[5] = { x };
        for (k = 0; k < 4 && i + k < n; k++) some[1 + k] = parts[i + k];
        x = nn_join(t, some, 1 + k);
    }
    return x;
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const top     *w = net->top;
    const int      n = h->d.n_embd, patches = SQUARE * h->taps * n;
    nn_buf         in = nn_input(t, (int64_t)patches + h->n * n), all[NN_WINDOW_MOST] = { 0 };
    for (int i = 0; i < h->n; i++) {
        const projector *p = &w->p[i];
        nn_buf           x = patch_of(t, h, p, in, i < h->deep ? 0 : i - h->deep, i);
        for (int k = 1; k < SQUARE && i < h->deep; k++) nn_add(t, x, patch_of(t, h, p, in, k, i));
        if (i < h->deep) nn_scale(t, x, 1.0f / SQUARE);
        nn_add(t, x, nn_take(t, in, patches + i * n, n));
        x = nn_norm_rows(t, x, &p->first, h->eps);
        all[i] = look(t, h, p, i, x, x);
    }
    nn_vectors(t, nn_outputs(t, join(t, all, h->n)));
}

static void forward_seen(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const top     *w = net->top;
    const int      n = h->d.n_embd, patches = h->taps * n;
    nn_buf         in = nn_input(t, (int64_t)patches + h->n * n), all[1 + NN_WINDOW_MOST] = { 0 };
    for (int i = 0; i < h->n; i++) {
        nn_buf own = nn_take(t, in, patches + i * n, n), seen = patch_of(t, h, &w->p[i], in, 0, i);
        nn_add(t, seen, own);
        all[i] = look(t, h, &w->p[i], i, own, seen);
    }
    nn_buf asked = nn_outputs(t, join(t, all, h->n));
    for (int i = 0; i < h->n; i++) {
        const projector *p = &w->p[i];
        nn_buf           x = nn_take(t, asked, i * n, n), f = nn_project(t, x, p->up);
        nn_act(t, f, NN_ACT_GELU);
        nn_project_add(t, x, f, p->down);
        all[1 + i] = nn_project(t, nn_norm_rows(t, x, &p->last, h->eps), p->out);
    }
    all[0] = nn_take(t, all[1], 0, h->n_out);
    nn_scale(t, all[0], 0);
    nn_vectors(t, join(t, all, 1 + h->n));
}

static const char *const roots[] = { "", "model.", NULL };
#define STAGE(name, text, setup_fn, forward_fn)                                                                        \
    const nn_arch name = { .names = NN_NAMES(text),                                                                    \
                           .hf_roots = roots,                                                                          \
                           .hp_size = sizeof(hparams),                                                                 \
                           .top_size = sizeof(top),                                                                    \
                           .layer_size = sizeof(char),                                                                 \
                           .keys = keys,                                                                               \
                           .lacks = NN_LACKS_VOCAB | NN_LACKS_EPS | NN_LACKS_FF | NN_LACKS_HEADS,                      \
                           .setup = setup_fn,                                                                          \
                           .bind_top = bind_top,                                                                       \
                           .bind_layer = nn_bind_nothing,                                                              \
                           .state = state,                                                                             \
                           .forward = forward_fn }
STAGE(models_window_qformer_asked, "granite4_vision_queries", setup, forward);
STAGE(models_window_qformer, "granite4_vision_projector", setup_seen, forward_seen);
