/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The resampler of MiniCPM-V 2.6 and its kin: learned queries look at all patches of a tile once, and what they see are
 * its rows, as many for every tile. An input row is a patch (what the tower left of it and its position in sines and
 * cosines; no query) or a query (nothing of the others): queries come first, and all rows see the patches only
 * (vision/resample.c).
 */
#include "nn/nn.h"

#include <math.h>

enum { HEAD = 128 };

typedef struct hparams {
    nn_dims d;
    int     queries, n_out;
} hparams;

typedef struct top {
    nn_query_top  t;
    nn_norm       q_norm, kv_norm, post;
    nn_linear     kv, q, k, v, o;
    const nn_vec *bias; /* of q, k and v, one behind the other */
    nn_vec        parts[3];
    const nn_mat *proj;
} top;

static const nn_key keys[] = { { 0 } };

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    h->queries = (int)nn_config_int(c, "queries", NULL, 64);
    h->n_out = (int)nn_config_int(c, "projection_dim", NULL, NN_REQUIRED_INT);
    h->d.eps = 1e-6f;
    if (h->n_out < HEAD || h->n_out % HEAD || h->n_out > 1 << 16 || h->queries < 1 || h->queries > 4096 ||
        h->d.n_embd < 1 || h->d.n_embd > 1 << 16)
        nn_config_fail(c, "a resampler of %d queries from %d to %d", h->queries, h->d.n_embd, h->n_out);
}

static void bind_attention(nn_binder *b, top *t, int64_t n) {
    static const char *const gguf[] = { "resampler.attn.q", "resampler.attn.k", "resampler.attn.v" };
    static const char *const hf[] = { "resampler.attn.in_proj_weight#0/3", "resampler.attn.in_proj_weight#1/3",
                                      "resampler.attn.in_proj_weight#2/3" };
    nn_linear *const         all[] = { &t->q, &t->k, &t->v };
    bool                     split = nn_bind_exists(b, gguf[0], NULL);
    if (!split) nn_bind_vec(b, &t->bias, NULL, "resampler.attn.in_proj_bias", 3 * n, 0);
    for (int i = 0; i < 3; i++) {
        if (split) {
            nn_bind_linear(b, all[i], gguf[i], NULL, n, n, 0);
            continue;
        }
        nn_bind_mat(b, &all[i]->w, NULL, hf[i], n, n, 0);
        if (!t->bias) return;
        t->parts[i] = (nn_vec){ t->bias->name, n, t->bias->data + i * n };
        all[i]->b = &t->parts[i];
    }
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    top           *t = out;
    const int64_t  n = h->n_out;
    nn_bind_table(b, &t->t.queries, "resampler.query", "resampler.query", h->queries, n);
    nn_bind_linear(b, &t->kv, "resampler.kv", "resampler.kv_proj", h->d.n_embd, n, NN_NO_BIAS);
    nn_bind_norm(b, &t->q_norm, "resampler.ln_q", "resampler.ln_q", n, 0);
    nn_bind_norm(b, &t->kv_norm, "resampler.ln_kv", "resampler.ln_kv", n, 0);
    nn_bind_norm(b, &t->post, "resampler.ln_post", "resampler.ln_post", n, 0);
    bind_attention(b, t, n);
    nn_bind_linear(b, &t->o, "resampler.attn.out", "resampler.attn.out_proj", n, n, 0);
    nn_bind_mat(b, &t->proj, "resampler.proj", "resampler.proj^", n, n, 0);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    return i == 0 ? nn_state_step(h->n_out / HEAD, HEAD) : (nn_state){ 0 };
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const top     *w = net->top;
    const int      from = h->d.n_embd, n = h->n_out, heads = n / HEAD;
    nn_buf         in = nn_input(t, (int64_t)from + 2 * n);
    nn_buf         seen = nn_norm_rows(t, nn_project(t, nn_take(t, in, 0, from), w->kv), &w->kv_norm, h->d.eps);
    nn_buf         placed = nn_take(t, in, from, n);
    nn_add(t, placed, seen);
    nn_buf q = nn_project(t, nn_norm_rows(t, nn_take(t, in, from + n, n), &w->q_norm, h->d.eps), w->q);
    nn_kv_store(t, 0, nn_project(t, placed, w->k), nn_project(t, seen, w->v));
    nn_attn_spec a = {
        .n_head = heads, .n_kv = heads, .dim_k = HEAD, .scale = 1.0f / sqrtf((float)HEAD), .spans = true
    };
    nn_buf x = nn_outputs(t, nn_project(t, nn_attention(t, 0, q, a), w->o));
    nn_vectors(t, nn_project(t, nn_norm_rows(t, x, &w->post, h->d.eps), (nn_linear){ .w = w->proj }));
}

static const char *const roots[] = { "", "model.", NULL };
const nn_arch            models_resampler = { .names = NN_NAMES("minicpmv_resampler"),
                                              .hf_roots = roots,
                                              .hp_size = sizeof(hparams),
                                              .top_size = sizeof(top),
                                              .layer_size = sizeof(char),
                                              .keys = keys,
                                              .lacks = NN_LACKS_VOCAB | NN_LACKS_EPS | NN_LACKS_FF,
                                              .setup = setup,
                                              .bind_top = bind_top,
                                              .bind_layer = nn_bind_nothing,
                                              .state = state,
                                              .forward = forward };
