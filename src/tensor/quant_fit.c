/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/quant_fit.h"

int fit_code(const fit_codes *c, float v) {
    if (!c->values) return fit_round(v, c->lo, c->hi);
    int best = 0;
    while (best < 15 && v > 0.5f * (float)(c->values[best] + c->values[best + 1])) best++;
    return best;
}

int fit_value(const fit_codes *c, int code) { return c->values ? c->values[code] : code; }

/* The best scale for the codes that x gets under `scale`, and by how much it lowers sum x^2 (larger is better). */
static double refit(const fit_codes *c, const float *x, int n, float scale, float *out) {
    double xv = 0, vv = 0;
    for (int i = 0; i < n; i++) {
        double v = fit_value(c, fit_code(c, x[i] / scale));
        xv += (double)x[i] * v;
        vv += v * v;
    }
    *out = vv > 0 ? (float)(xv / vv) : 0;
    return vv > 0 ? xv * xv / vv : 0;
}

float fit_symmetric(const fit_codes *c, const float *x, int n) {
    float  peak = 0, best = 0;
    double best_gain = 0;
    for (int i = 0; i < n; i++) {
        if (fabsf(x[i]) > fabsf(peak)) peak = x[i];
    }
    if (peak == 0) return 0;
    int ends[2] = { fit_value(c, c->values ? 0 : c->lo), fit_value(c, c->values ? 15 : c->hi) };
    for (int side = 0; side < 2; side++) {
        /* The peak lands on the outermost code (t = 1), inside it (headroom) or beyond it (clipped). Few levels want
         * more clipping: with three of them the best scale is well under half the peak. */
        int steps = ends[1] <= 1 ? 32 : 20;
        for (int k = 0; k < steps; k++) {
            float t = ends[1] <= 1 ? 1.0f + 0.15f * (float)k : 0.8f + 0.03f * (float)k;
            float scale = peak / ((float)ends[side] * t), fitted;
            if (scale == 0) continue;
            double gain = refit(c, x, n, scale, &fitted);
            if (gain > best_gain) best_gain = gain, best = fitted;
        }
    }
    for (int k = 0; k < 2 && best != 0; k++) { /* the fitted scale may round some elements better */
        float  fitted;
        double gain = refit(c, x, n, best, &fitted);
        if (!(gain > best_gain)) break;
        best_gain = gain;
        best = fitted;
    }
    return best;
}

double fit_error(const fit_codes *c, const float *x, int n, float scale) {
    double sum = 0;
    for (int i = 0; i < n; i++) {
        double e = (double)x[i] - (double)scale * fit_value(c, fit_code(c, fit_divide(x[i], scale)));
        sum += e * e;
    }
    return sum;
}

/* Codes under (scale, offset), then the least-squares line through them; returns its squared error. */
static double refit_affine(const float *x, int n, int qmax, int below_zero, float *scale, float *offset) {
    double q1 = 0, q2 = 0, x1 = 0, xq = 0, x2 = 0;
    for (int i = 0; i < n; i++) {
        double q = fit_round((x[i] - *offset) / *scale, 0, qmax), v = (double)x[i];
        q1 += q;
        q2 += q * q;
        x1 += v;
        xq += v * q;
        x2 += v * v;
    }
    double det = n * q2 - q1 * q1;
    if (!(det > 0)) return INFINITY;
    double s = (n * xq - x1 * q1) / det, b = (q2 * x1 - q1 * xq) / det;
    if (below_zero && b > 0) b = 0, s = xq / q2;
    if (!(s > 0)) return INFINITY;
    *scale = (float)s;
    *offset = (float)b;
    return x2 + s * s * q2 + n * b * b - 2 * s * xq - 2 * b * x1 + 2 * s * b * q1;
}

void fit_affine(const float *x, int n, int qmax, int below_zero, float *scale, float *offset) {
    float  low = below_zero ? 0 : x[0], high = x[0];
    double best = INFINITY;
    for (int i = 0; i < n; i++) {
        if (x[i] < low) low = x[i];
        if (x[i] > high) high = x[i];
    }
    *scale = 0;
    *offset = low;
    if (!(high > low)) return;
    /* Lower end clipped by a fraction of the range, and the number of steps that the rest is cut into. */
    for (int k = 0; k < 24; k++) {
        for (int clip = 0; clip < 3; clip++) {
            float b = low + (high - low) * 0.04f * (float)clip;
            float s = (high - b) / ((float)qmax * (0.8f + 0.02f * (float)k) + 0.2f);
            if (!(s > 0)) continue;
            double e = refit_affine(x, n, qmax, below_zero, &s, &b);
            if (e < best) best = e, *scale = s, *offset = b;
        }
    }
    for (int k = 0; k < 3; k++) {
        float  s = *scale, b = *offset;
        double e = s > 0 ? refit_affine(x, n, qmax, below_zero, &s, &b) : INFINITY;
        if (!(e < best)) break;
        best = e;
        *scale = s;
        *offset = b;
    }
    if (*scale == 0 && high > low) *scale = (high - low) / (float)qmax; /* denormal or enormous: the plain range */
}
