/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/plain_sample.h"

#include "params/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct item {
    float   x;
    int32_t id;
    double  w;
} item;

/* The candidates of a row, and what became of them. */
typedef struct candidates {
    item  *items;
    size_t n;
    bool   ordered;
    double m, sum, margin;
} candidates;

static bool possible(float x) { return !isnan(x) && x != -INFINITY; }

static int by_logit(const void *a, const void *b) {
    const item *p = a, *q = b;
    if (p->x != q->x) return p->x > q->x ? -1 : 1;
    return p->id < q->id ? -1 : p->id > q->id;
}

static void gather(candidates *c, const float *x, size_t n_vocab) {
    c->n = 0;
    c->ordered = false;
    for (size_t i = 0; i < n_vocab; i++) {
        if (possible(x[i])) c->items[c->n++] = (item){ x[i] > 1e30f ? 1e30f : x[i], (int32_t)i, 0 };
    }
}

static void order(candidates *c) {
    if (!c->ordered) qsort(c->items, c->n, sizeof *c->items, by_logit);
    c->ordered = true;
}

static void weigh(candidates *c) {
    c->m = -INFINITY;
    c->sum = 0;
    for (size_t i = 0; i < c->n; i++) c->m = fmax(c->m, (double)c->items[i].x);
    for (size_t i = 0; i < c->n; i++) c->sum += c->items[i].w = exp((double)c->items[i].x - c->m);
}

static void decided_by(candidates *c, double distance) { c->margin = fmin(c->margin, fabs(distance)); }

/* --- the steps of the definition --- */

static void logprobs(candidates *c, const float *x, size_t n_vocab, const sampling_row *r, double *log_sum) {
    gather(c, x, n_vocab);
    weigh(c);
    *log_sum = c->m + log(c->sum);
    order(c);
    for (int i = 0; i < r->n_top; i++) {
        bool there = (size_t)i < c->n;
        r->top[i].token = there ? c->items[i].id : -1;
        r->top[i].logprob = there ? (float)((double)c->items[i].x - *log_sum) : -INFINITY;
    }
}

static void mask_and_bias(float *x, size_t n_vocab, const sampling_row *r) {
    const sampling_params *p = r->params;
    for (size_t i = 0; r->mask && i < n_vocab; i++) {
        if ((r->mask[i >> 5] >> (i & 31) & 1) == 0) x[i] = -INFINITY;
    }
    for (size_t i = 0; i < p->n_bias; i++) {
        if (p->bias[i].token >= 0 && (size_t)p->bias[i].token < n_vocab) x[p->bias[i].token] += p->bias[i].bias;
    }
}

static void penalties(float *x, const sampling_row *r) {
    const sampling_params *p = r->params;
    for (size_t i = 0; i < r->n_counts; i++) {
        float *v = &x[r->counts[i].token];
        *v = *v > 0 ? *v / p->repeat_penalty : *v * p->repeat_penalty;
        *v = *v - (p->frequency_penalty * (float)r->counts[i].count + p->presence_penalty);
    }
}

static void top_k(candidates *c, int k) {
    if (k <= 0 || (size_t)k >= c->n) return;
    order(c);
    c->n = (size_t)k;
}

static void top_p(candidates *c, double p) {
    double mass = 0;
    if (p >= 1 || c->n < 2) return;
    order(c);
    weigh(c);
    for (size_t i = 0; i < c->n; i++) {
        mass += c->items[i].w / c->sum;
        if (i + 1 < c->n) decided_by(c, mass - p); /* at the last one nothing is decided */
        if (mass >= p) {
            c->n = i + 1;
            return;
        }
    }
}

static void min_p(candidates *c, double p) {
    size_t kept = 0;
    if (p <= 0 || c->n < 2) return;
    weigh(c);
    double limit = c->m + log(p);
    for (size_t i = 0; i < c->n; i++) {
        decided_by(c, ((double)c->items[i].x - limit) / fmax(1, fabs(limit)));
        if ((double)c->items[i].x >= limit) c->items[kept++] = c->items[i];
    }
    c->n = kept;
}

static void temperature(candidates *c, float t) {
    weigh(c);
    for (size_t i = 0; i < c->n; i++) {
        float *x = &c->items[i].x;
        *x = t < 1e-8f ? (*x - (float)c->m) / t : *x / t;
        if (*x < -1e30f) *x = -1e30f;
    }
}

static int32_t draw(candidates *c, double u) {
    double seen = 0;
    weigh(c);
    for (size_t i = 0; i + 1 < c->n; i++) {
        decided_by(c, (seen + c->items[i].w) / c->sum - u);
        seen += c->items[i].w;
        if (seen > u * c->sum) return c->items[i].id;
    }
    return c->items[c->n - 1].id;
}

static int32_t pick(candidates *c, float *x, size_t n_vocab, const sampling_row *r) {
    const sampling_params *p = r->params;
    mask_and_bias(x, n_vocab, r);
    if (sampling_penalizes(p)) penalties(x, r);
    gather(c, x, n_vocab);
    if (c->n == 0) return -1;
    if (p->temperature <= 0 && p->dynatemp_range <= 0) {
        order(c);
        return c->items[0].id;
    }
    for (int i = 0; i < p->n_order; i++) {
        if (p->order[i] == SAMPLING_TOP_K) top_k(c, p->top_k);
        if (p->order[i] == SAMPLING_TOP_P) top_p(c, (double)p->top_p);
        if (p->order[i] == SAMPLING_MIN_P) min_p(c, (double)p->min_p);
        if (p->order[i] == SAMPLING_TEMPERATURE) temperature(c, p->temperature);
    }
    return draw(c, rng_uniform(p->seed, r->position, SAMPLING_DRAW_PICK));
}

int plain_sample(const float *logits, size_t n_vocab, const sampling_row *rows, size_t n_rows, sampling_result *out,
                 double *margin, err *e) {
    float     *x = malloc((n_vocab + 1) * sizeof *x);
    candidates c = { .items = malloc((n_vocab + 1) * sizeof *c.items) };
    int        rc = x && c.items ? 0 : err_set_nomem(e);
    for (size_t i = 0; rc == 0 && i < n_rows; i++) {
        const float        *raw = logits + i * n_vocab;
        const sampling_row *r = &rows[i];
        double              log_sum = 0;
        if (!sampling_on_device(r->params)) {
            rc = err_set(e, ERR_ARG, "row %zu asks for a stage that no device does", i);
            break;
        }
        c.margin = INFINITY;
        if (r->want_logprob || r->n_top > 0) logprobs(&c, raw, n_vocab, r, &log_sum);
        memcpy(x, raw, n_vocab * sizeof *x);
        int32_t token = pick(&c, x, n_vocab, r);
        out[i] = (sampling_result){ .token = token };
        if (token >= 0 && (r->want_logprob || r->n_top > 0))
            out[i].logprob = (float)(fmin((double)raw[token], (double)1e30f) - log_sum);
        if (margin) margin[i] = c.margin;
    }
    free(x);
    free(c.items);
    return rc;
}
