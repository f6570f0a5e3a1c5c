/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inner loops are written for a compiler to vectorise without changing a result: codes go to a small array first,
 * sums run in eight fixed lanes. Inputs are divided by their largest magnitude (or range), so that float sums neither
 * overflow nor vanish.
 */
#include "tensor/quant_fit.h"

enum { LANES = 8 };

static const float ROUND = 0x1.8p23f; /* adding and subtracting it rounds small numbers to integers, ties to even */

static float lane_sum(const float s[LANES]) {
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

/* sum a * b; n is a multiple of 8. */
static float dot(const float *a, const float *b, int n) {
    float s[LANES] = { 0 };
    for (int i = 0; i < n; i += LANES)
        for (int j = 0; j < LANES; j++) s[j] += a[i + j] * b[i + j];
    return lane_sum(s);
}

static float sum(const float *a, int n) {
    float s[LANES] = { 0 };
    for (int i = 0; i < n; i += LANES)
        for (int j = 0; j < LANES; j++) s[j] += a[i + j];
    return lane_sum(s);
}

int fit_code(const fit_codes *c, float v) {
    if (!c->values) return fit_round(v, c->lo, c->hi);
    int best = 0;
    while (best < 15 && v > 0.5f * (float)(c->values[best] + c->values[best + 1])) best++;
    return best;
}

int fit_value(const fit_codes *c, int code) { return c->values ? c->values[code] : code; }

/* The values of the codes nearest to x / scale. */
static void fit_values(const fit_codes *c, const float *x, int n, float scale, float *v) {
    float inverse = scale == 0 ? 0 : 1 / scale;
    if (!c->values) {
        float lo = (float)c->lo, hi = (float)c->hi;
        for (int i = 0; i < n; i++) {
            float t = x[i] * inverse;
            t = t > lo ? t : lo;
            t = t < hi ? t : hi;
            v[i] = t + ROUND - ROUND;
        }
        return;
    }
    for (int i = 0; i < n; i++) v[i] = (float)c->values[0];
    for (int k = 0; k < 15; k++) { /* one step up for every middle that lies below */
        float middle = 0.5f * (float)(c->values[k] + c->values[k + 1]), step = (float)(c->values[k + 1] - c->values[k]);
        for (int i = 0; i < n; i++) v[i] += x[i] * inverse > middle ? step : 0;
    }
}

/* The best scale for the codes that x gets under `scale`, and by how much it lowers sum x^2 (larger is better). */
static float refit(const fit_codes *c, const float *x, int n, float scale, float *out) {
    float v[FIT_MAX], xv, vv;
    fit_values(c, x, n, scale, v);
    xv = dot(x, v, n);
    vv = dot(v, v, n);
    *out = vv > 0 ? xv / vv : 0;
    return vv > 0 ? xv * xv / vv : 0;
}

float fit_symmetric(const fit_codes *c, const float *src, int n) {
    float peak = 0, best = 0, best_gain = 0, x[FIT_MAX];
    for (int i = 0; i < n; i++) {
        if (fabsf(src[i]) > fabsf(peak)) peak = src[i];
    }
    if (peak == 0) return 0;
    for (int i = 0; i < n; i++) x[i] = src[i] / peak; /* the peak is 1 now */
    int ends[2] = { fit_value(c, c->values ? 0 : c->lo), fit_value(c, c->values ? 15 : c->hi) };
    for (int side = 0; side < 2; side++) {
        /* The peak lands on the outermost code (t = 1), inside it (headroom) or beyond it (clipped). Few levels want
         * more clipping: with three of them the best scale is well under half the peak. */
        int steps = ends[1] <= 1 ? 32 : 20;
        for (int k = 0; k < steps; k++) {
            float t = ends[1] <= 1 ? 1.0f + 0.15f * (float)k : 0.8f + 0.03f * (float)k;
            float fitted, gain = refit(c, x, n, 1 / ((float)ends[side] * t), &fitted);
            if (gain > best_gain) best_gain = gain, best = fitted;
        }
    }
    for (int k = 0; k < 2 && best != 0; k++) { /* the fitted scale may round some elements better */
        float fitted, gain = refit(c, x, n, best, &fitted);
        if (!(gain > best_gain)) break;
        best_gain = gain;
        best = fitted;
    }
    return best * peak;
}

float fit_error(const fit_codes *c, const float *x, int n, float scale) {
    float v[FIT_MAX], s[LANES] = { 0 };
    fit_values(c, x, n, scale, v);
    for (int i = 0; i < n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            float e = x[i + j] - scale * v[i + j];
            s[j] += e * e;
        }
    return lane_sum(s);
}

static void affine_codes(const float *x, int n, int qmax, float scale, float offset, float *q) {
    float inverse = scale == 0 ? 0 : 1 / scale, hi = (float)qmax;
    for (int i = 0; i < n; i++) {
        float t = (x[i] - offset) * inverse;
        t = t > 0 ? t : 0;
        t = t < hi ? t : hi;
        q[i] = t + ROUND - ROUND;
    }
}

float fit_affine_error(const float *x, int n, int qmax, float scale, float offset) {
    float q[FIT_MAX], s[LANES] = { 0 };
    affine_codes(x, n, qmax, scale, offset, q);
    for (int i = 0; i < n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            float e = x[i + j] - (scale * q[i + j] + offset);
            s[j] += e * e;
        }
    return lane_sum(s);
}

/* What of a group does not depend on the trial; x lies in 0..1. */
typedef struct affine_group {
    float x[FIT_MAX], x1, x2, top; /* sums of x and x^2; the largest offset allowed */
    int   n, qmax;
} affine_group;

/* Codes under (scale, offset), then the least-squares line through them; returns its squared error. */
static float refit_affine(const affine_group *g, float *scale, float *offset) {
    float q[FIT_MAX];
    affine_codes(g->x, g->n, g->qmax, *scale, *offset, q);
    float n = (float)g->n, q1 = sum(q, g->n), q2 = dot(q, q, g->n), xq = dot(g->x, q, g->n); /* q1, q2: exact */
    float det = n * q2 - q1 * q1;
    if (!(det > 0)) return INFINITY;
    float s = (n * xq - g->x1 * q1) / det, b = (g->x1 - s * q1) / n;
    if (b > g->top) b = g->top, s = (xq - b * q1) / q2;
    if (!(s > 0)) return INFINITY;
    *scale = s;
    *offset = b;
    return g->x2 + s * s * q2 + n * b * b - 2 * s * xq - 2 * b * g->x1 + 2 * s * b * q1;
}

void fit_affine(const float *src, int n, int qmax, int below_zero, float *scale, float *offset) {
    float        low = below_zero ? 0 : src[0], high = src[0], best = INFINITY, best_s = 0, best_b = 0;
    affine_group g = { .n = n, .qmax = qmax };
    for (int i = 0; i < n; i++) {
        if (src[i] < low) low = src[i];
        if (src[i] > high) high = src[i];
    }
    float range = high - low;
    *scale = 0;
    *offset = low;
    if (!(range > 0)) return;
    for (int i = 0; i < n; i++) g.x[i] = (src[i] - low) / range;
    g.x1 = sum(g.x, n);
    g.x2 = dot(g.x, g.x, n);
    g.top = below_zero ? -low / range : INFINITY;
    /* Lower end clipped by a fraction of the range, and the number of steps that the rest is cut into. */
    for (int k = 0; k < 24; k++) {
        for (int clip = 0; clip < 3; clip++) {
            float b = 0.04f * (float)clip, s = (1 - b) / ((float)qmax * (0.8f + 0.02f * (float)k) + 0.2f);
            float e = refit_affine(&g, &s, &b);
            if (e < best) best = e, best_s = s, best_b = b;
        }
    }
    for (int k = 0; k < 3; k++) {
        float s = best_s, b = best_b, e = s > 0 ? refit_affine(&g, &s, &b) : INFINITY;
        if (!(e < best)) break;
        best = e;
        best_s = s;
        best_b = b;
    }
    if (best_s == 0) best_s = 1 / (float)qmax; /* nothing could be fitted: the plain range */
    *scale = best_s * range;
    *offset = low + best_b * range;
    if (below_zero && *offset > 0) *offset = 0;
}
