/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scores that depend on how far a key lies before its query (nn_distances in nn.h), as ordinary products.
 *
 * With R[d], d in 0 ... reach - 1, the vector of a head for distance d: q R[d] as a function of d is a sum of
 * a[f] cos(w f d) + b[f] sin(w f d), w = 2 pi / reach, f up to reach / 2, whose a and b are linear in q. A pair (a, -b) that is
 * turned by w f times the query's place and a pair (1, 0) that is turned by w f times the key's have that product.
 */
#include "nn/bind.h"
#include "tensor/codec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_REACH = NN_MAX_REACH };

/* sin and cos of a distance, as wide as the matrix has inputs: all sines, then all cosines. */
static void embed(double *out, int d, int64_t n) {
    int64_t half = n / 2;
    double  step = log(10000.0) / (double)(half > 1 ? half - 1 : 1);
    for (int64_t i = 0; i < half; i++) {
        double angle = d * exp(-step * (double)i);
        out[i] = sin(angle);
        out[half + i] = cos(angle);
    }
}

/* Column i of a head's matrix: what element i of the query brings to each term. p: by distance. */
static void put_terms(float *mat, int64_t i, const nn_distances_want *w, const double *p, double scale) {
    int    terms = w->reach / 2 + 1;
    double turn = 2 * acos(-1.0) / w->reach;
    for (int f = 0; f < terms; f++) {
        double a = 0, b = 0, share = (f == 0 || 2 * f == w->reach ? 1.0 : 2.0) / w->reach;
        for (int d = 0; d < w->reach; d++) {
            a += p[d] * cos(turn * (f * d % w->reach));
            b += p[d] * sin(turn * (f * d % w->reach));
        }
        mat[(w->dim + f) * w->dim + i] = (float)(scale * share * a);
        mat[(w->dim + terms + f) * w->dim + i] = (float)(-scale * share * b);
    }
}

static const nn_mat *new_stack(nn_binder *b, const char *name, const float *data, size_t each, int dim, int wide,
                               int n) {
    tensor_mat *at = arena_calloc(b->mem, (size_t)n, sizeof *at);
    nn_mat     *m = arena_calloc(b->mem, 1, sizeof *m);
    if (!at || !m) {
        bind_fail(b, ERR_NOMEM, "out of memory");
        return NULL;
    }
    for (int h = 0; h < n; h++)
        at[h] = (tensor_mat){ .type = TENSOR_F32,
                              .rows = wide,
                              .cols = dim,
                              .data = data + (size_t)h * each,
                              .row_bytes = (size_t)dim * sizeof(float) };
    *m = (nn_mat){ .name = name, .rows = wide, .cols = dim, .n_stack = n, .at = at };
    return m;
}

/* The queries' matrices: each element scaled, and behind them its terms. */
static void put_queries(float *q, const nn_mat *from, const nn_distances_want *w, double *places, float *row) {
    int64_t n = from->cols;
    for (int64_t r = 0; r < from->rows; r++) {
        int64_t i = r % w->dim;
        float  *mat = q + (size_t)(r / w->dim) * (size_t)(nn_distances_dim(w->dim, w->reach) * w->dim);
        double  p[MAX_REACH], scale = w->q_scale ? w->q_factor * (double)w->q_scale[i] : w->q_factor;
        tensor_mat_dequant_row(from->at, 0, r, row);
        for (int d = 0; d < w->reach; d++) {
            p[d] = 0;
            for (int64_t c = 0; c < n; c++) p[d] += (double)row[c] * places[d * n + c];
        }
        mat[i * w->dim + i] = (float)scale;
        put_terms(mat, i, w, p, scale);
    }
}

nn_rope nn_distances_rope(nn_config *c, int reach) {
    int terms = reach / 2 + 1;
    if (reach < 1 || reach > MAX_REACH) return (nn_rope){ 0 };
    float   *freq = nn_config_alloc(c, (size_t)terms, sizeof *freq);
    uint8_t *axis = nn_config_alloc(c, (size_t)terms, sizeof *axis);
    for (int f = 0; freq && f < terms; f++) freq[f] = (float)(2 * acos(-1.0) * f / reach);
    return (nn_rope){ .n_rot = 2 * terms, .scale = 1, .inv_freq = freq, .axis_of = axis };
}

/* What is added to keys: a one in front of every pair. */
static const nn_vec *make_ones(nn_binder *b, const nn_distances_want *w, int wide) {
    nn_vec *v = arena_calloc(b->mem, 1, sizeof *v);
    float  *x = arena_calloc(b->mem, (size_t)(w->n_head * wide), sizeof *x);
    if (!v || !x) {
        bind_fail(b, ERR_NOMEM, "out of memory");
        return NULL;
    }
    for (int h = 0; h < w->n_head; h++) {
        for (int f = 0; f <= w->reach / 2; f++) x[h * wide + w->dim + f] = 1;
    }
    *v = (nn_vec){ .name = "distances", .n = (int64_t)w->n_head * wide, .data = x };
    return v;
}

void nn_bind_distances(nn_binder *b, nn_distances *out, const char *gguf, const char *hf, const nn_distances_want *w) {
    const nn_mat *from = NULL;
    *out = (nn_distances){ .dim = nn_distances_dim(w->dim, w->reach), .offset = w->dim, .rope = w->rope };
    if (w->reach < 1 || w->reach > MAX_REACH || w->dim < 1 || w->n_head < 1) {
        bind_fail(b, ERR_FORMAT, "%s: distances up to %d for %d heads of %d", gguf, w->reach, w->n_head, w->dim);
        return;
    }
    nn_bind_mat(b, &from, gguf, hf, w->n_in, (int64_t)w->n_head * w->dim, 0);
    if (!from) return;
    size_t  each = (size_t)out->dim * (size_t)w->dim;
    float  *q = arena_calloc(b->mem, each * (size_t)w->n_head, sizeof *q), *k = arena_calloc(b->mem, each, sizeof *k);
    float  *row = calloc((size_t)w->n_in, sizeof *row);
    double *places = calloc((size_t)w->reach * (size_t)w->n_in, sizeof *places);
    if (q && k && row && places) {
        for (int d = 0; d < w->reach; d++) embed(places + d * w->n_in, d, w->n_in);
        put_queries(q, from, w, places, row);
        for (int64_t i = 0; i < w->dim; i++) k[i * w->dim + i] = (float)w->k_factor;
        out->q = new_stack(b, from->name, q, each, w->dim, out->dim, w->n_head);
        out->k = new_stack(b, from->name, k, 0, w->dim, out->dim, w->n_head);
        out->one = make_ones(b, w, out->dim);
    } else {
        bind_fail(b, ERR_NOMEM, "out of memory");
    }
    free(row);
    free(places);
}

nn_buf nn_query_at(nn_tape *t, nn_buf q, const nn_distances *d) {
    nn_buf out = nn_project_heads(t, q, d->q);
    nn_rope_apply_at(t, out, d->dim, d->offset, &d->rope);
    return out;
}

nn_buf nn_key_at(nn_tape *t, nn_buf k, const nn_distances *d) {
    nn_buf out = nn_project_heads(t, k, d->k);
    nn_add_each(t, out, d->one, 1.0f);
    nn_rope_apply_at(t, out, d->dim, d->offset, &d->rope);
    return out;
}
