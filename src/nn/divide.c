/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/divide.h"

#include <stdlib.h>
#include <string.h>

/* --- between layers ------------------------------------------------------------------------------------------------ */

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

static int64_t floats_across(const survey *v, int at) {
    int64_t sum = 0;
    for (nn_buf b = 1; b < v->t->n_bufs; b++) {
        if (v->bufs[b].first < at && v->bufs[b].last >= at) sum += v->t->bufs[b].width * v->t->bufs[b].mult;
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

/* In front of which op the last n layers begin, or fewer; 0: nowhere. */
static int cut_of(const survey *v, int n) {
    int at = 0;
    for (int layer = v->t->n_layer - n; layer < v->t->n_layer && !at; layer++) at = best_cut(v, layer);
    return at;
}

int nn_divide_layers(const nn_tape *t, const int *n, int n_parts, uint8_t *side, err *e) {
    survey v;
    int    rc = survey_open(&v, t) ? 0 : err_set_nomem(e), behind = 0, cuts = 0;
    memset(side, 0, (size_t)t->n_ops);
    for (int i = n_parts - 1; i >= 0 && rc == 0; i--) {
        behind += n[i];
        int at = n[i] ? cut_of(&v, behind) : 0;
        if (!at) continue;
        cuts++;
        for (int op = at; op < t->n_ops && !side[op]; op++) side[op] = (uint8_t)(i + 1);
    }
    if (rc == 0 && !cuts)
        rc = err_set(e, ERR_UNSUPPORTED, "the last %d of %d layers cannot be apart: they read what earlier ones stored",
                     behind, t->n_layer);
    survey_close(&v);
    return rc;
}

/* --- experts ------------------------------------------------------------------------------------------------------- */

bool nn_mixture_next(const nn_tape *t, int from, nn_mixture *out) {
    while (from < t->n_ops && t->ops[from].kind != NN_OP_EXPERTS) from++;
    *out = (nn_mixture){ .first = from, .last = from, .sum = from };
    for (; out->sum < t->n_ops && t->ops[out->sum].kind != NN_OP_COMBINE; out->sum++) {
        if (t->ops[out->sum].kind == NN_OP_EXPERTS) out->last = out->sum;
    }
    if (out->sum >= t->n_ops) return false;
    out->n_used = t->ops[out->sum].u.combine.n_used;
    return true;
}

int nn_mixtures(const nn_tape *t) {
    nn_mixture at;
    int        n = 0;
    for (int from = 0; nn_mixture_next(t, from, &at); from = at.sum + 1) n++;
    return n;
}

int nn_divide_experts(const nn_tape *t, int n, uint8_t *side, err *e) {
    int        first = nn_mixtures(t) - n;
    nn_mixture at;
    if (nn_mixtures(t) == 0) return err_set(e, ERR_UNSUPPORTED, "this model has no experts");
    memset(side, 1, (size_t)t->n_ops);
    for (int i = 0, from = 0; i < first && nn_mixture_next(t, from, &at); i++, from = at.sum + 1)
        memset(side + at.first, 0, (size_t)(at.sum + 1 - at.first));
    for (int i = 0; i < t->n_ops && t->ops[i].kind <= NN_OP_EMBED_SEG; i++) side[i] = 0;
    return 0;
}
