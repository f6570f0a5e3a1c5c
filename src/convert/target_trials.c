/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types by what they do to a text's predictions.
 *
 * Every matrix alone is made into two types, one about as large as what is wanted and one a bit smaller, and the judge
 * says how far the model moves each time: divergence over noise is how much the noise of this matrix is heard. The other
 * types follow from their noise. What is spent by that is then tried as a whole, beside what the guess by kinds of
 * matrices gives, and the published mixes that are not larger, filled up with the bits that they leave; the best stays.
 */
#include "base/num.h"
#include "convert/target_impl.h"
#include "tensor/codec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ANCHORS = 2, OWN = -1, ROWS_AT_ONCE = 16, MAX_MIXES = 3 };

typedef struct trials {
    target_search *s;
    uint8_t      **data; /* [n]: what the judge's file has in place of its own */
    int           *has;  /* [n]: as which choice */
    int           *best; /* [n] */
    double         best_kl;
    size_t         done, total;
} trials;

/* --- a matrix in another type ------------------------------------------------------------------------------------- */

typedef struct coding {
    target_search      *s;
    const model_tensor *from;
    tensor_type         type;
    uint8_t            *out;
    size_t              from_bytes, out_bytes; /* of a row */
    atomic_llong        next;
} coding;

static void code_rows(void *ctx, int worker, int n_workers) {
    coding *c = ctx;
    float  *x = c->s->scratch + (size_t)worker * 2 * c->s->longest;
    int64_t rows = target_rows(c->from), cols = c->from->dims[0], r;
    (void)n_workers;
    while ((r = (int64_t)atomic_fetch_add(&c->next, ROWS_AT_ONCE)) < rows) {
        for (int64_t end = num_min(rows, r + ROWS_AT_ONCE); r < end; r++) {
            tensor_dequant_row((int)c->from->type, c->from->data + (size_t)r * c->from_bytes, x, cols);
            tensor_quant_row_weighted((int)c->type, x, target_importance(c->s->o, c->from, r),
                                      c->out + (size_t)r * c->out_bytes, cols);
        }
    }
}

/* Puts choice k of matrix i, or its own bytes, into the judge's file. */
static int put(trials *x, size_t i, int k, err *e) {
    target_search       *s = x->s;
    const target_matrix *m = &s->m[i];
    const model_tensor  *t = model_file_tensor_at(s->in, m->at);
    coding               c = { .s = s, .from = t };
    size_t               bytes;
    if (x->has[i] == k) return 0;
    model_file_replace(s->o->judge->file, m->at, t->type, t->data, t->bytes);
    free(x->data[i]);
    x->data[i] = NULL;
    x->has[i] = OWN;
    if (k == OWN) return 0;
    c.type = m->types[k];
    if (!tensor_row_bytes((int)t->type, t->dims[0], &c.from_bytes) ||
        !tensor_row_bytes((int)c.type, t->dims[0], &c.out_bytes) ||
        !num_mul_size(c.out_bytes, (size_t)target_rows(t), &bytes))
        return err_set(e, ERR_FORMAT, "%s: rows of %lld", t->name, (long long)t->dims[0]);
    if (!(c.out = x->data[i] = aligned_alloc(64, (bytes + 63) & ~(size_t)63))) return err_set_nomem(e);
    pool_run(s->p, code_rows, &c);
    model_file_replace(s->o->judge->file, m->at, c.type, c.out, bytes);
    x->has[i] = k;
    return 0;
}

static int ask(trials *x, double *kl, err *e) {
    const quantize_judge *j = x->s->o->judge;
    return j->divergence(j->ctx, ++x->done, x->total, kl, e);
}

/* --- what is heard of one matrix ---------------------------------------------------------------------------------- */

static double bits_per_weight(const target_matrix *m, int k) {
    const tensor_type_info *i = tensor_type_get((int)m->types[k]);
    return 8.0 * i->block_bytes / i->block_elems;
}

/* The largest choice that has not more bits; the first one where all have. */
static int not_above(const target_matrix *m, double bits) {
    int best = 0;
    for (int k = 1; k < m->n; k++)
        if (bits_per_weight(m, k) <= bits) best = k;
    return best;
}

/* Divergence per noise, between those of the two anchors, coarse and fine. */
static double heard_at(double noise, const double *at, const double *heard) {
    if (!(heard[0] > 0 && heard[1] > 0) || noise >= at[0]) return heard[0];
    if (noise <= at[1]) return heard[1];
    double part = log(at[0] / noise) / log(at[0] / at[1]);
    return exp((1 - part) * log(heard[0]) + part * log(heard[1]));
}

static int listen(trials *x, size_t i, err *e) {
    target_matrix *m = &x->s->m[i];
    double         at[ANCHORS], heard[ANCHORS], bpw = x->s->o->target_bpw;
    int            anchor[ANCHORS] = { not_above(m, bpw - 1), not_above(m, bpw) }, rc = 0;
    if (anchor[1] == anchor[0] && anchor[0] + 1 < m->n)
        anchor[1]++;
    else if (anchor[1] == anchor[0])
        anchor[0]--;
    for (int a = 0; a < ANCHORS && rc == 0; a++) {
        double kl = 0;
        rc = put(x, i, anchor[a], e);
        if (rc == 0) rc = ask(x, &kl, e);
        at[a] = m->noise[anchor[a]];
        heard[a] = at[a] > 0 ? kl / at[a] : 0;
    }
    if (rc == 0) rc = put(x, i, OWN, e);
    for (int k = 0; k < m->n && rc == 0; k++) m->damage[k] = m->noise[k] * heard_at(m->noise[k], at, heard);
    return rc;
}

/* --- ways to spend the bits --------------------------------------------------------------------------------------- */

/* Tries the choices that are made. */
static int rival(trials *x, err *e) {
    target_search *s = x->s;
    double         kl = INFINITY;
    int            rc = 0;
    for (size_t i = 0; i < s->n && rc == 0; i++) rc = put(x, i, s->m[i].is, e);
    if (rc == 0) rc = ask(x, &kl, e);
    if (rc < 0 || !(kl < x->best_kl)) return rc;
    x->best_kl = kl;
    for (size_t i = 0; i < s->n; i++) x->best[i] = s->m[i].is;
    return 0;
}

/* A mix as choices; its bits, INFINITY when it is too large. */
static double take_mix(target_search *s, const tensor_type *types) {
    double bits = 0;
    for (size_t i = 0; i < s->n; i++) {
        const tensor_type_info *t = tensor_type_get((int)types[s->m[i].at]);
        s->m[i].is = not_above(&s->m[i], 8.0 * t->block_bytes / t->block_elems);
        for (int k = 0; k < s->m[i].n; k++)
            if (s->m[i].types[k] == types[s->m[i].at]) s->m[i].is = k;
        bits += s->m[i].bits[s->m[i].is];
    }
    return bits > s->budget ? INFINITY : bits;
}

/* The largest mixes below `bits`, filled up; *bits is then the mix's own. */
static int try_mix(trials *x, const target_mixes *mixes, double *below, err *e) {
    target_search     *s = x->s;
    size_t             n = model_file_tensor_count(s->in);
    const tensor_type *best = NULL;
    double             most = 0;
    for (size_t k = 0; k < mixes->n; k++) {
        double bits = take_mix(s, mixes->types + k * n);
        if (bits < *below && bits > most) most = bits, best = mixes->types + k * n;
    }
    *below = most;
    x->done += !best;
    if (!best) return 0;
    take_mix(s, best);
    target_spend(s);
    return rival(x, e);
}

static int compete(trials *x, const target_mixes *mixes, err *e) {
    target_search *s = x->s;
    double         below = s->budget * (1 + 1e-9);
    int            rc;
    for (size_t i = 0; i < s->n; i++) s->m[i].is = 0;
    target_spend(s);
    rc = rival(x, e);
    for (int k = 0; k < MAX_MIXES && rc == 0; k++) rc = try_mix(x, mixes, &below, e);
    return rc;
}

int target_try(target_search *s, const target_mixes *mixes, err *e) {
    trials x = { .s = s, .best_kl = INFINITY, .total = ANCHORS * s->n + 2 + MAX_MIXES };
    size_t n = s->n ? s->n : 1;
    int    rc;
    x.data = calloc(n, sizeof *x.data);
    x.has = calloc(n, sizeof *x.has);
    x.best = calloc(n, sizeof *x.best);
    rc = x.data && x.has && x.best ? 0 : err_set_nomem(e);
    for (size_t i = 0; i < s->n && rc == 0; i++) x.has[i] = OWN;
    if (rc == 0) rc = rival(&x, e); /* the guess */
    for (size_t i = 0; i < s->n && rc == 0; i++) rc = put(&x, i, OWN, e);
    for (size_t i = 0; i < s->n && rc == 0; i++) rc = listen(&x, i, e);
    if (rc == 0) rc = compete(&x, mixes, e);
    for (size_t i = 0; i < s->n && rc == 0; i++) s->m[i].is = x.best[i];
    for (size_t i = 0; x.data && i < s->n; i++) {
        err unsaid = { 0 };
        if (x.has) (void)put(&x, i, OWN, &unsaid);
    }
    free(x.data);
    free(x.has);
    free(x.best);
    return rc;
}
