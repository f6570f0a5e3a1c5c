/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the quantizers: the searches that they share, all static, so that every instruction set has its own.
 *
 * Every search is the same idea: for a range of trial scales round the elements to codes, then solve the least-squares
 * problem for the scale (and offset) that fits those codes best, and keep the trial with the smallest squared error,
 * weighted by the importance of each element. The trials walk from clipping the largest element to leaving headroom,
 * because for bell-shaped weights neither extreme wins. A lane is a trial; sums run over the elements in their order.
 *
 * x are the elements, w their weights (positive), n their number: a multiple of 8, at most FIT_MAX.
 */
#ifndef TENSOR_QUANT_FIT_H
#define TENSOR_QUANT_FIT_H

#include "tensor/quant/lanes.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

enum { FIT_MAX = 256, FIT_TRIALS = 64, FIT_START = 48 };

/* Rounds to nearest even and clamps; a NaN becomes lo. */
static inline int fit_round(float v, int lo, int hi) {
    if (!(v > (float)lo)) return lo;
    if (v >= (float)hi) return hi;
    return (int)(v + 0x1.8p23f - 0x1.8p23f); /* codes are small: the sum keeps no fraction and rounds to even */
}

static inline float fit_divide(float x, float by) { return by == 0 ? 0 : x / by; }

/* The codes of a symmetric format: integers lo..hi, or indices 0..15 into `values` (ascending). */
typedef struct fit_codes {
    int           lo, hi;
    const int8_t *values; /* NULL: the integers themselves */
} fit_codes;

/* The code nearest to v, and what a code stands for. */
static inline int fit_code(const fit_codes *c, float v) {
    if (!c->values) return fit_round(v, c->lo, c->hi);
    int best = 0;
    while (best < 15 && v > 0.5f * (float)(c->values[best] + c->values[best + 1])) best++;
    return best;
}

static inline int fit_value(const fit_codes *c, int code) { return c->values ? c->values[code] : code; }

/* --- symmetric: x ~ scale * value -------------------------------------------------------------------------------- */

/* The values of some codes in the form in which vectors look for the nearest one. */
typedef struct fit_levels {
    vf lo, hi; /* of integers */
#if defined(__AVX2__)
    v_list list; /* of others */
#else
    float middle[15], step[15];
#endif
    bool listed;
} fit_levels;

static inline fit_levels fit_levels_of(const fit_codes *c) {
    fit_levels l = { .lo = v_set((float)c->lo), .hi = v_set((float)c->hi), .listed = c->values };
#if defined(__AVX2__)
    if (c->values) l.list = v_list_of(c->values);
#else
    for (int k = 0; k < 15 && c->values; k++) {
        l.middle[k] = 0.5f * (float)(c->values[k] + c->values[k + 1]);
        l.step[k] = (float)(c->values[k + 1] - c->values[k]);
    }
    if (c->values) l.lo = v_set((float)c->values[0]);
#endif
    return l;
}

/* The values of the codes nearest to t. */
static inline vf fit_values(const fit_levels *l, vf t) {
    if (!l->listed) return v_round(v_min(v_max(t, l->lo), l->hi));
#if defined(__AVX2__)
    return v_list_nearest(&l->list, t);
#else
    vf v = l->lo;
    for (int k = 0; k < 15; k++) /* one step up for every middle that lies below */
        v += v_if_greater(t, v_set(l->middle[k]), v_set(l->step[k]));
    return v;
#endif
}

/* The codes nearest to x / scale, from 0 on: lo or the first value is 0. */
static inline void fit_code_span(const fit_codes *c, const float *x, int n, float scale, uint8_t *codes) {
    float inverse = scale == 0 ? 0 : 1 / scale;
    if (!c->values) {
        for (int i = 0; i < n; i++) {
            float t = x[i] * inverse;
            t = t > (float)c->lo ? t : (float)c->lo;
            t = t < (float)c->hi ? t : (float)c->hi;
            codes[i] = (uint8_t)(int)(t + 0x1.8p23f - 0x1.8p23f - (float)c->lo);
        }
        return;
    }
    for (int i = 0; i < n; i += LANES) {
        vf    t = v_load(x + i) * v_set(inverse), k = v_set(0);
        float out[LANES];
        for (int l = 0; l < 15; l++)
            k += v_if_greater(t, v_set(0.5f * (float)(c->values[l] + c->values[l + 1])), v_set(1));
        v_store(out, k);
        for (int l = 0; l < LANES; l++) codes[i + l] = (uint8_t)out[l];
    }
}

/* For each of n_trials inverse scales: sums of w x v and w v v over the codes that result. */
static inline void fit_products(const fit_codes *c, const float *x, const float *w, int n, const float *inverse,
                                int n_trials, float *xv, float *vv) {
    fit_levels levels = fit_levels_of(c);
    for (int k = 0; k < n_trials; k += LANES) {
        vf inv = v_load(inverse + k), a = v_set(0), b = v_set(0);
        for (int i = 0; i < n; i++) {
            vf v = fit_values(&levels, v_set(x[i]) * inv), wv = v * v_set(w[i]);
            a += wv * v_set(x[i]);
            b += wv * v;
        }
        v_store(xv + k, a);
        v_store(vv + k, b);
    }
}

/* Weighted squared errors of the best codes under n_trials (a multiple of 16) scales. */
static inline void fit_errors(const fit_codes *c, const float *x, const float *w, int n, const float *scale,
                              int n_trials, float *error) {
    fit_levels levels = fit_levels_of(c);
    for (int k = 0; k < n_trials; k += LANES) {
        float inverse[LANES];
        for (int l = 0; l < LANES; l++) inverse[l] = scale[k + l] == 0 ? 0 : 1 / scale[k + l];
        vf inv = v_load(inverse), s = v_load(scale + k), sum = v_set(0);
        for (int i = 0; i < n; i++) {
            vf d = v_set(x[i]) - s * fit_values(&levels, v_set(x[i]) * inv);
            sum += d * d * v_set(w[i]);
        }
        v_store(error + k, sum);
    }
}

/* Inverse scales to begin with, for elements whose peak is 1; how many. */
static inline int fit_symmetric_start(const fit_codes *c, float *inverse) {
    int  ends[2] = { fit_value(c, c->values ? 0 : c->lo), fit_value(c, c->values ? 15 : c->hi) };
    bool few = ends[1] <= 1;
    /* The peak lands on the outermost code (t = 1), inside it (headroom) or beyond it (clipped). Few levels want more
     * clipping: with three of them the best scale is well under half the peak. Many levels want little. */
    bool many = ends[1] - ends[0] >= 31 && !c->values; /* the two ends are almost alike: one is enough */
    int  sides = many ? 1 : 2, steps = few ? 32 : 16;
    for (int side = 0; side < sides; side++) {
        for (int k = 0; k < steps; k++) {
            float t = few ? 1.0f + 0.15f * (float)k : many ? 0.92f + 0.02f * (float)k : 0.86f + 0.04f * (float)k;
            inverse[side * steps + k] = (float)ends[side] * t;
        }
    }
    return sides * steps;
}

/* The scale that minimises the error; may be negative. 0 when all elements are 0. */
static inline float fit_symmetric(const fit_codes *c, const float *src, const float *w, int n) {
    float peak = 0, best = 0, best_gain = 0, x[FIT_MAX], inverse[FIT_TRIALS], xv[FIT_TRIALS], vv[FIT_TRIALS];
    int   n_trials = fit_symmetric_start(c, inverse);
    for (int i = 0; i < n; i++) {
        if (fabsf(src[i]) > fabsf(peak)) peak = src[i];
    }
    if (peak == 0) return 0;
    for (int i = 0; i < n; i++) x[i] = src[i] / peak; /* the peak is 1 now */
    fit_products(c, x, w, n, inverse, n_trials, xv, vv);
    for (int k = 0; k < n_trials; k++) {
        float gain = vv[k] > 0 ? xv[k] * xv[k] / vv[k] : 0;
        if (gain > best_gain) best_gain = gain, best = xv[k] / vv[k];
    }
    if (best == 0) return 0;
    for (int k = 0; k < 16; k++) inverse[k] = (1 + 0.004f * (float)(k - 8)) / best; /* around the best of them */
    fit_products(c, x, w, n, inverse, 16, xv, vv);
    for (int k = 0; k < 16; k++) {
        float gain = vv[k] > 0 ? xv[k] * xv[k] / vv[k] : 0;
        if (gain > best_gain) best_gain = gain, best = xv[k] / vv[k];
    }
    return best * peak;
}

/* --- affine: x ~ scale * q + offset, q in 0..qmax ---------------------------------------------------------------- */

/* Weighted squared errors of the best codes under n_trials pairs (a multiple of 16). */
static inline void fit_affine_errors(const float *x, const float *w, int n, int qmax, const float *scale,
                                     const float *offset, int n_trials, float *error) {
    for (int k = 0; k < n_trials; k += LANES) {
        float inverse[LANES];
        for (int l = 0; l < LANES; l++) inverse[l] = scale[k + l] == 0 ? 0 : 1 / scale[k + l];
        vf inv = v_load(inverse), s = v_load(scale + k), b = v_load(offset + k), sum = v_set(0),
           top = v_set((float)qmax);
        for (int i = 0; i < n; i++) {
            vf y = v_set(x[i]) - b, q = v_round(v_min(v_max(y * inv, v_set(0)), top)), d = y - s * q;
            sum += d * d * v_set(w[i]);
        }
        v_store(error + k, sum);
    }
}

/* What of a group does not depend on the trial; x lies in 0..1. */
typedef struct fit_group {
    float x[FIT_MAX], w0, wx, wxx; /* sums of w, w x, w x x */
    int   n, qmax;
} fit_group;

/* Codes under each (scale, offset), then the least-squares line through them, which replaces the pair, and its error:
 * infinite where there is no such line. */
static inline void fit_affine_trials(const fit_group *g, const float *w, int n_trials, float *scale, float *offset,
                                     float *error) {
    float q1[FIT_TRIALS], q2[FIT_TRIALS], xq[FIT_TRIALS];
    for (int k = 0; k < n_trials; k += LANES) {
        float inverse[LANES];
        for (int l = 0; l < LANES; l++) inverse[l] = 1 / scale[k + l];
        vf inv = v_load(inverse), shift = v_load(offset + k) * inv, top = v_set((float)g->qmax);
        vf a = v_set(0), b = v_set(0), c = v_set(0);
        for (int i = 0; i < g->n; i++) {
            vf q = v_round(v_min(v_max(v_set(g->x[i]) * inv - shift, v_set(0)), top)), wq = q * v_set(w[i]);
            a += wq;
            b += wq * q;
            c += wq * v_set(g->x[i]);
        }
        v_store(q1 + k, a);
        v_store(q2 + k, b);
        v_store(xq + k, c);
    }
    for (int k = 0; k < n_trials; k++) {
        float det = g->w0 * q2[k] - q1[k] * q1[k];
        error[k] = INFINITY;
        if (!(det > 0)) continue;
        float s = (g->w0 * xq[k] - g->wx * q1[k]) / det, b = (g->wx - s * q1[k]) / g->w0;
        if (!(s > 0)) continue;
        scale[k] = s;
        offset[k] = b;
        error[k] = g->wxx + s * s * q2[k] + g->w0 * b * b - 2 * s * xq[k] - 2 * b * g->wx + 2 * s * b * q1[k];
    }
}

/*
 * Pairs to begin with. First the lower end clipped by a fraction of the range, and the number of steps that the rest is cut
 * into: coarse codes gain from clipping, fine ones hardly. Then the whole range, cut into many numbers of steps that are
 * nearly the same: which elements round up is a matter of luck.
 */
static inline void fit_affine_start(int qmax, bool fine, float *s, float *b) {
    float clip = qmax <= 3 ? 0.08f : qmax <= 7 ? 0.05f : 0.03f, first = qmax <= 3 ? 0.66f : 0.84f;
    float step = qmax <= 3 ? 0.04f : 0.025f;
    for (int k = 0; k < FIT_START; k++) {
        int cut = k / 3;
        b[k] = fine ? 0 : clip * (float)(k % 3);
        s[k] = fine ? 1 / ((float)qmax - 0.96f + 0.04f * (float)k)
                    : (1 - b[k]) / ((float)qmax * (first + step * (float)cut) + 0.2f);
    }
}

/* scale >= 0. */
static inline void fit_affine(const float *src, const float *w, int n, int qmax, float *scale, float *offset) {
    float     low = src[0], high = src[0], best = INFINITY, best_s = 0, best_b = 0;
    float     s[FIT_TRIALS], b[FIT_TRIALS], e[FIT_TRIALS];
    fit_group g = { .n = n, .qmax = qmax };
    for (int i = 0; i < n; i++) {
        if (src[i] < low) low = src[i];
        if (src[i] > high) high = src[i];
    }
    float range = high - low;
    *scale = 0;
    *offset = low;
    if (!(range > 0)) return;
    for (int i = 0; i < n; i++) {
        g.x[i] = (src[i] - low) / range;
        g.w0 += w[i];
        g.wx += w[i] * g.x[i];
        g.wxx += w[i] * g.x[i] * g.x[i];
    }
    for (int round = 0; round < 3; round++) {
        int n_trials = round == 2 ? 16 : FIT_START;
        if (round < 2) fit_affine_start(qmax, round, s, b);
        if (round == 2 && best_s == 0) break;
        for (int k = 0; k < 16 && round == 2; k++) { /* the fitted pair may round some elements better */
            int row = k / 4;
            s[k] = best_s * (1 + 0.006f * (float)(k % 4 - 1));
            b[k] = best_b + best_s * 0.1f * (float)(row - 1);
        }
        fit_affine_trials(&g, w, n_trials, s, b, e);
        for (int k = 0; k < n_trials; k++)
            if (e[k] < best) best = e[k], best_s = s[k], best_b = b[k];
    }
    if (qmax > 31) { /* errors so small that the sums above have lost them: measured, and the plain range among them */
        for (int k = 0; k < 15; k++) s[k] = 1 / (float)(qmax - k), b[k] = 0; /* what is on a grid already stays there */
        s[15] = best_s > 0 ? best_s : s[0], b[15] = best_b;
        fit_affine_errors(g.x, w, n, qmax, s, b, 16, e);
        best = INFINITY;
        for (int k = 0; k < 16; k++)
            if (e[k] < best) best = e[k], best_s = s[k], best_b = b[k];
    }
    if (best_s == 0) best_s = 1 / (float)qmax; /* nothing could be fitted: the plain range */
    *scale = best_s * range;
    *offset = low + best_b * range;
}

#endif
