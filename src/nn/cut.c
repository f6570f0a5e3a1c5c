/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/cut.h"

#include <stdlib.h>

typedef struct span {
    int first, last; /* ops; first > last: none */
} span;

/* What is known of a tape: where each layer's state is touched, and from where to where each buffer is needed. */
typedef struct survey {
    const nn_tape *t;
    span          *layers, *bufs;
} survey;

static void meet(span *s, int op) {
    if (op < s->first) s->first = op;
    if (op > s->last) s->last = op;
}

static bool survey_open(survey *v, const nn_tape *t) {
    *v = (survey){ t, calloc((size_t)t->n_layer + 1, sizeof *v->layers),
                   calloc((size_t)t->n_bufs + 1, sizeof *v->bufs) };
    if (!v->layers || !v->bufs) return false;
    for (int i = 0; i < t->n_layer; i++) v->layers[i] = (span){ t->n_ops, -1 };
    for (int i = 0; i < t->n_bufs; i++) v->bufs[i] = (span){ t->n_ops, -1 };
    for (int i = 0; i < t->n_ops; i++) {
        const nn_op *op = &t->ops[i];
        if (op->layer >= 0) meet(&v->layers[op->layer], i);
        meet(&v->bufs[op->out], i);
        for (int k = 0; k < NN_MAX_IN; k++) meet(&v->bufs[op->in[k]], i);
    }
    const nn_buf fetched[3] = { t->hidden, t->logits, t->inner };
    for (int k = 0; k < 3; k++) meet(&v->bufs[fetched[k]], t->n_ops);
    return true;
}

static void survey_close(survey *v) {
    free(v->layers);
    free(v->bufs);
}

static bool is_allowed(const survey *v, int at) {
    for (int i = 0; i < v->t->n_layer; i++) {
        if (v->layers[i].first < at && v->layers[i].last >= at) return false;
    }
    return true;
}

static bool crosses(const survey *v, int at, nn_buf b) { return v->bufs[b].first < at && v->bufs[b].last >= at; }

static int64_t floats_across(const survey *v, int at) {
    int64_t sum = 0;
    for (nn_buf b = 1; b < v->t->n_bufs; b++) {
        if (crosses(v, at, b)) sum += v->t->bufs[b].width * v->t->bufs[b].mult;
    }
    return sum;
}

/* The last op in front of which least crosses, between the states of the layers before and this one; 0: none. */
static int best_cut(const survey *v, int layer) {
    int     end = v->t->n_ops, begin = 1, best = 0;
    int64_t least = INT64_MAX;
    for (int i = layer; i < v->t->n_layer; i++) end = v->layers[i].first < end ? v->layers[i].first : end;
    for (int i = 0; i < layer; i++) begin = v->layers[i].last + 1 > begin ? v->layers[i].last + 1 : begin;
    for (int at = begin; at <= end && at < v->t->n_ops; at++) {
        int64_t n = is_allowed(v, at) ? floats_across(v, at) : INT64_MAX;
        if (n == INT64_MAX || n > least) continue;
        least = n;
        best = at;
    }
    return best;
}

int nn_cut_before_layer(nn_cut *out, const nn_tape *t, int layer, arena *mem, err *e) {
    survey v;
    int    rc = 0;
    *out = (nn_cut){ .layer = layer };
    if (!survey_open(&v, t)) rc = err_set_nomem(e);
    while (rc == 0 && out->layer < t->n_layer && !(out->at = best_cut(&v, out->layer))) out->layer++;
    if (rc == 0 && out->layer == t->n_layer)
        rc = err_set(e, ERR_UNSUPPORTED,
                     "this model cannot be divided at or behind layer %d of %d: later layers read "
                     "what earlier ones stored",
                     layer, t->n_layer);
    if (rc == 0 && !(out->cross = arena_calloc(mem, (size_t)t->n_bufs, sizeof *out->cross))) rc = err_set_nomem(e);
    for (nn_buf b = 1; b < t->n_bufs && rc == 0; b++) {
        if (crosses(&v, out->at, b)) out->cross[out->n_cross++] = b;
    }
    survey_close(&v);
    return rc;
}
