/* SPDX-License-Identifier: Apache-2.0 */
/* The reference backend's indexers: keys of positions, and the positions that a row's attention may see. */
#include "backend/scalar/scalar.h"

#include <float.h>
#include <math.h>
#include <string.h>

void scalar_index_store(scalar_exec *x, const nn_op *op) {
    const nn_batch *b = &x->base.batch;
    scalar_layer   *y = &x->layers[op->layer];
    const float    *k = local_buf(&x->base, op->in[0]);
    for (int t = 0; t < b->n_tok; t++) {
        size_t at = scalar_slot_of(x, op->layer, b->seq_of[t], b->pos[t]);
        memcpy(y->index + at * (size_t)y->index_width, k + t * y->index_width, (size_t)y->index_width * sizeof *k);
    }
}

static double dot(const float *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

/* How much group g of row t wants to see the position with this key. */
static double score_of(const nn_choose_spec *s, const float *q, const float *w, const float *key, int64_t dim, int g) {
    double sum = 0;
    if (!w) return dot(q + g * dim, key, dim);
    for (int h = 0; h < s->n_head; h++) sum += (double)w[h] * fmax(0, dot(q + h * dim, key, dim));
    return sum;
}

/* The best `top` of n scores, or all of them: how many, and their numbers, rising. */
static void put_best(const double *score, bool *taken, int64_t n, int top, float *out) {
    int32_t count = 0;
    if (n < 1) return;
    memset(taken, 0, (size_t)n * sizeof *taken);
    for (int k = 0; k < top && k < n; k++) {
        int64_t at = -1;
        for (int64_t i = 0; i < n; i++) {
            if (!taken[i] && (at < 0 || score[i] > score[at])) at = i;
        }
        taken[at] = true;
    }
    for (int32_t i = 0; i < n; i++) {
        if (taken[i]) memcpy(&out[1 + count++], &i, sizeof i);
    }
    memcpy(out, &count, sizeof count);
}

void scalar_choose(scalar_exec *x, const nn_op *op) {
    const nn_choose_spec *s = &op->u.choose;
    const nn_batch       *b = &x->base.batch;
    const scalar_layer   *y = &x->layers[op->layer];
    const int64_t         dim = y->index_width;
    const float          *q = local_buf(&x->base, op->in[0]), *w = op->in[1] ? local_buf(&x->base, op->in[1]) : NULL;
    float                *out = local_buf(&x->base, op->out);
    memset(out, 0, (size_t)b->n_tok * (size_t)x->base.x.model->tape->bufs[op->out].width * sizeof *out);
    for (int t = 0; t < b->n_tok; t++, q += s->n_head * dim, w += w ? s->n_head : 0) {
        int64_t n = (int64_t)b->pos[t] + 1, n_block = (n + s->block - 1) / s->block;
        for (int g = 0; g < s->n_group; g++, out += 1 + s->top) {
            for (int64_t j = 0; j < n; j++) {
                size_t at = scalar_slot_of(x, op->layer, b->seq_of[t], j) * (size_t)dim;
                double v = score_of(s, q, w, y->index + at, dim, g), *block = &x->score[j / s->block];
                *block = j % s->block == 0 ? v : fmax(*block, v);
            }
            for (int64_t i = 0; s->local > 0 && i < n_block; i++) {
                if (x->score[i] > (double)FLT_MAX) x->score[i] = (double)FLT_MAX; /* local ones are above every other */
            }
            for (int i = 0; i < s->local && i < n_block; i++) x->score[n_block - 1 - i] = INFINITY;
            put_best(x->score, x->taken, n_block, s->top, out);
        }
    }
}

void scalar_keep_chosen(scalar_exec *x, const nn_choice *c, int t, int g, int n_kv, int64_t hi) {
    if (!c->ids) return;
    const float *row = local_buf(&x->base, c->ids) + ((int64_t)t * c->n_group + g / (n_kv / c->n_group)) * (1 + c->top);
    int32_t      count, at = 0, id = -1;
    memcpy(&count, row, sizeof count);
    for (int64_t j = 0; j < hi; j++) {
        while (id < j / c->block && at < count && at < c->top) memcpy(&id, &row[1 + at++], sizeof id);
        if (id != j / c->block) x->score[j] = -INFINITY;
    }
}
