/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the quantizers: the searches of quant/fit.h for all groups of a 256-wide block at once. A lane is a group, so that
 * a trial's constants are made once for many groups, and the best trial is found without looking across lanes.
 *
 * A set is what the lanes hold at a time. Where a block has fewer groups than there are lanes, the set has its groups twice
 * and each copy tries one half of the trials. Every lane adds up in the order of its elements, and of equal trials the
 * first counts, so the result does not depend on how many lanes there are.
 */
#ifndef TENSOR_QUANT_GROUPS_H
#define TENSOR_QUANT_GROUPS_H

#include "tensor/quant/fit.h"

#include <string.h>

enum { GROUP_MAX = 32 };

typedef struct group_shape {
    int       groups, size;
    fit_codes codes;      /* symmetric only */
    int       qmax;       /* affine only */
    int       smin, smax; /* range of the stored group scales (affine: also of the minima, from 0) */
} group_shape;

typedef struct group_set {
    vf x[GROUP_MAX], w[GROUP_MAX]; /* an element of every group, and its weight */
} group_set;

/* What was best so far in each lane: the least cost, and two numbers of that trial. */
typedef struct group_best {
    vf cost, a, b;
} group_best;

static inline int group_copies(const group_shape *s) { return LANES > s->groups ? 2 : 1; }
static inline int group_n_sets(const group_shape *s) { return s->groups > LANES ? s->groups / LANES : 1; }

static inline void group_load(const group_shape *s, const float *x, const float *w, group_set *out) {
    for (int k = 0; k < group_n_sets(s); k++) {
        float *to_x = (float *)(void *)out[k].x, *to_w = (float *)(void *)out[k].w;
        for (int l = 0; l < LANES; l++) {
            int from = (k * LANES + l % s->groups) * s->size;
            for (int i = 0; i < s->size; i++) {
                to_x[i * LANES + l] = x[from + i];
                to_w[i * LANES + l] = w[from + i];
            }
        }
    }
}

/* A number of every group of a set, from and to an array of 16, of which a block with eight groups uses half. */
static inline vf group_get(const group_shape *s, const float *of, int set) {
    vf v = v_load(of + set * LANES);
    return group_copies(s) == 1 ? v : v_lower(v);
}

static inline void group_put(float *of, int set, vf v) { v_store(of + set * LANES, v); }

/* The j-th of n constants, where there is a copy also the one that is half of n later. */
static inline vf group_spread(const group_shape *s, const float *of, int j, int n) {
    return group_copies(s) == 1 ? v_set(of[j]) : v_halves(of[j], of[j + n / 2]);
}

static inline void group_take(group_best *t, vf cost, vf a, vf b) {
    t->a = v_pick_less(cost, t->cost, a, t->a);
    t->b = v_pick_less(cost, t->cost, b, t->b);
    t->cost = v_pick_less(cost, t->cost, cost, t->cost);
}

/* Both copies have the better of them; the second made the later trials. */
static inline void group_merge(const group_shape *s, group_best *t) {
    group_best all = *t;
    if (group_copies(s) == 1) return;
    *t = (group_best){ v_lower(all.cost), v_lower(all.a), v_lower(all.b) };
    group_take(t, v_upper(all.cost), v_upper(all.a), v_upper(all.b));
}

static inline vf group_clamp(vf v, float lo, float hi) {
    v = v_pick_less(v_set(lo), v, v, v_set(lo)); /* a NaN becomes lo */
    return v_pick_less(v, v_set(hi), v, v_set(hi));
}

static inline vf group_inverse(vf v) { return v_pick_less(v_set(0), v_abs(v), v_set(1) / v, v_set(0)); }

/* 0, 1, 2, ... */
static const float group_count[16] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };

/* --- symmetric: x ~ scale * value -------------------------------------------------------------------------------- */

/* Tries inverse scales; the best are the sums of w x v and w v v. */
static inline void group_symmetric_trial(const group_shape *s, const vf *x, const vf *w, vf inverse, vf usable,
                                         group_best *t) {
    fit_levels levels = fit_levels_of(&s->codes);
    vf         a = v_set(0), b = v_set(0);
    for (int i = 0; i < s->size; i++) {
        vf v = fit_values(&levels, x[i] * inverse), wv = v * w[i];
        a += wv * x[i];
        b += wv * v;
    }
    vf gain = v_pick_less(v_set(0), b, a * a / b, v_set(0));
    group_take(t, v_pick_less(v_set(0), usable, -gain, v_set(0)), a, b);
}

/* As fit_symmetric. */
static inline vf group_symmetric(const group_shape *s, const group_set *g, bool coarse) {
    float      inverse[FIT_TRIALS], near[16];
    vf         x[GROUP_MAX], peak = v_set(0);
    group_best t = { v_set(0), v_set(0), v_set(1) };
    int        n = fit_symmetric_start(&s->codes, inverse);
    for (int i = 0; i < s->size; i++) peak = v_pick_less(v_abs(peak), v_abs(g->x[i]), g->x[i], peak);
    for (int i = 0; i < s->size; i++) x[i] = g->x[i] / peak;
    for (int j = 0; j < n / group_copies(s); j++)
        group_symmetric_trial(s, x, g->w, group_spread(s, inverse, j, n), v_set(1), &t);
    group_merge(s, &t);
    vf best = t.a / t.b;
    if (coarse) return best * peak;
    for (int k = 0; k < 16; k++) near[k] = 1 + 0.004f * (float)(k - 8);
    for (int j = 0; j < 16 / group_copies(s); j++)
        group_symmetric_trial(s, x, g->w, group_spread(s, near, j, 16) / best, v_abs(best), &t);
    group_merge(s, &t);
    return t.a / t.b * peak;
}

/* Every group takes the best of 16 scales around its present one; the errors. */
static inline vf group_symmetric_choose(const group_shape *s, const group_set *g, float d, vf *scale) {
    vf         first = group_clamp(*scale - v_set(7), (float)s->smin, (float)(s->smax - 15));
    fit_levels levels = fit_levels_of(&s->codes);
    group_best t = { v_set(INFINITY), *scale, v_set(0) };
    for (int j = 0; j < 16 / group_copies(s); j++) {
        vf number = first + group_spread(s, group_count, j, 16), trial = v_set(d) * number,
           inverse = group_inverse(trial), sum = v_set(0);
        for (int i = 0; i < s->size; i++) {
            vf off = g->x[i] - trial * fit_values(&levels, g->x[i] * inverse);
            sum += off * off * g->w[i];
        }
        group_take(&t, sum, number, v_set(0));
    }
    group_merge(s, &t);
    *scale = t.a;
    return t.cost;
}

/* --- affine: x ~ scale * q + offset, q in 0..qmax, offset at most 0 ---------------------------------------------- */

/* What of the groups does not depend on the trial; x lies in 0..1. */
typedef struct group_line {
    vf x[GROUP_MAX], w0, wx, wxx, top; /* sums of w, w x, w x x; the largest offset allowed */
} group_line;

/* The pairs of scale and offset that every group begins with, as what an element is multiplied with and what is then
 * subtracted. */
typedef struct group_start {
    float inverse[FIT_START], shift[FIT_START];
} group_start;

static inline void group_affine_start(const group_shape *s, group_start *out) {
    float scale[FIT_START], offset[FIT_START];
    fit_affine_start(s->qmax, false, scale, offset);
    for (int k = 0; k < FIT_START; k++) out->inverse[k] = 1 / scale[k];
    for (int k = 0; k < FIT_START; k++) out->shift[k] = offset[k] * out->inverse[k];
}

/* Codes of each element, then the least-squares line through them and its error: infinite where there is no such line. */
static inline void group_affine_trial(const group_shape *s, const group_line *g, const vf *w, vf inverse, vf shift,
                                      group_best *t) {
    vf q1 = v_set(0), q2 = v_set(0), xq = v_set(0), most = v_set((float)s->qmax), none = v_set(INFINITY);
    for (int i = 0; i < s->size; i++) {
        vf q = v_round(v_min(v_max(g->x[i] * inverse - shift, v_set(0)), most)), wq = q * w[i];
        q1 += wq;
        q2 += wq * q;
        xq += wq * g->x[i];
    }
    vf det = g->w0 * q2 - q1 * q1;
    vf a = (g->w0 * xq - g->wx * q1) / det, b = (g->wx - a * q1) / g->w0;
    if (v_any_less(g->top, b)) {
        a = v_pick_less(g->top, b, (xq - g->top * q1) / q2, a);
        b = v_pick_less(g->top, b, g->top, b);
    }
    vf error = g->wxx + a * a * q2 + g->w0 * b * b - v_set(2) * a * xq - v_set(2) * b * g->wx + v_set(2) * a * b * q1;
    error = v_pick_less(v_set(0), det, v_pick_less(v_set(0), a, error, none), none);
    group_take(t, error, a, b);
}

static inline void group_affine_first(const group_shape *s, const group_line *g, const vf *w, const group_start *start,
                                      group_best *t) {
    for (int j = 0; j < FIT_START / group_copies(s); j++) {
        vf inverse = group_spread(s, start->inverse, j, FIT_START), shift = group_spread(s, start->shift, j, FIT_START);
        group_affine_trial(s, g, w, inverse, shift, t);
    }
    group_merge(s, t);
}

/* As fit_affine, with an offset of at most 0; the neighbours of a rounded scale are tried later. */
static inline void group_affine(const group_shape *s, const group_set *set, const group_start *start, vf *scale,
                                vf *offset) {
    vf         low = v_set(0), high = set->x[0];
    group_best t = { v_set(INFINITY), v_set(0), v_set(0) };
    group_line g = { .w0 = v_set(0), .wx = v_set(0), .wxx = v_set(0) };
    for (int i = 0; i < s->size; i++) {
        low = v_pick_less(set->x[i], low, set->x[i], low);
        high = v_pick_less(high, set->x[i], set->x[i], high);
    }
    vf range = high - low;
    for (int i = 0; i < s->size; i++) {
        g.x[i] = (set->x[i] - low) / range;
        g.w0 += set->w[i];
        g.wx += set->w[i] * g.x[i];
        g.wxx += set->w[i] * g.x[i] * g.x[i];
    }
    g.top = -low / range;
    group_affine_first(s, &g, set->w, start, &t);
    vf    first_scale = t.a, first_offset = t.b;
    float wide[16], moved[16];
    for (int k = 0; k < 16; k++) {
        int row = k / 4;
        wide[k] = 1 + 0.006f * (float)(k % 4 - 1);
        moved[k] = (float)(row - 1);
    }
    for (int j = 0; j < 16 / group_copies(s); j++) { /* the fitted pair may round some elements better */
        vf inverse = v_set(1) / (first_scale * group_spread(s, wide, j, 16));
        vf shift = (first_offset + first_scale * v_set(0.1f) * group_spread(s, moved, j, 16)) * inverse;
        group_affine_trial(s, &g, set->w, inverse, shift, &t);
    }
    group_merge(s, &t);
    t.a = v_pick_less(v_set(0), first_scale, t.a, v_set(1 / (float)s->qmax)); /* nothing could be fitted: the range */
    t.b = v_pick_less(v_set(0), first_scale, t.b, v_set(0));
    *scale = v_pick_less(v_set(0), range, t.a * range, v_set(0));
    *offset = v_pick_less(v_set(0), range, low + t.b * range, low);
    *offset = v_pick_less(v_set(0), *offset, v_set(0), *offset);
}

/* Every group takes the best of 4 by 4 scales and minima around its present ones; the errors. */
static inline vf group_affine_choose(const group_shape *s, const group_set *g, float d, float dmin, vf *scale,
                                     vf *min) {
    vf         k0 = group_clamp(*scale - v_set(1), 0, (float)(s->smax - 3)), trial[4], inverse[4];
    vf         m0 = group_clamp(*min - v_set(1), 0, (float)(s->smax - 3)), most = v_set((float)s->qmax);
    group_best t = { v_set(INFINITY), *scale, *min };
    for (int k = 0; k < 4; k++) {
        trial[k] = v_set(d) * (k0 + v_set((float)k));
        inverse[k] = group_inverse(trial[k]);
    }
    for (int j = 0; j < 4 / group_copies(s); j++) {
        vf m = m0 + group_spread(s, group_count, j, 4), offset = v_set(-dmin) * m;
        vf sum[4] = { v_set(0), v_set(0), v_set(0), v_set(0) };
        for (int i = 0; i < s->size; i++) {
            vf y = g->x[i] - offset;
            for (int k = 0; k < 4; k++) {
                vf off = y - trial[k] * v_round(v_min(v_max(y * inverse[k], v_set(0)), most));
                sum[k] += off * off * g->w[i];
            }
        }
        for (int k = 0; k < 4; k++) group_take(&t, sum[k], k0 + v_set((float)k), m);
    }
    group_merge(s, &t);
    *scale = t.a;
    *min = t.b;
    return t.cost;
}

/* Sums over the elements of each group, in the order in which 16 lanes would add them up. */
typedef struct group_sums {
    vf q1, q2, xq; /* w q, w q q, w x q */
} group_sums;

static inline group_sums group_affine_sums(const group_shape *s, const group_set *g, vf scale, vf min) {
    group_sums out = { v_set(0), v_set(0), v_set(0) };
    vf         inverse = group_inverse(scale), most = v_set((float)s->qmax);
    for (int j = 0; j < 16; j++) {
        group_sums part = { v_set(0), v_set(0), v_set(0) };
        for (int i = j; i < s->size; i += 16) {
            vf q = v_round(v_min(v_max((g->x[i] + min) * inverse, v_set(0)), most)), wq = g->w[i] * q;
            part.q1 += wq;
            part.q2 += wq * q;
            part.xq += wq * g->x[i];
        }
        out.q1 += part.q1;
        out.q2 += part.q2;
        out.xq += part.xq;
    }
    return out;
}

/* The same of w and w x, which no trial changes. */
static inline void group_weights(const group_shape *s, const group_set *g, vf *w0, vf *wx) {
    *w0 = *wx = v_set(0);
    for (int j = 0; j < 16; j++) {
        vf a = v_set(0), b = v_set(0);
        for (int i = j; i < s->size; i += 16) {
            a += g->w[i];
            b += g->w[i] * g->x[i];
        }
        *w0 += a;
        *wx += b;
    }
}

#endif
