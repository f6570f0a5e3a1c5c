/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside src/tensor: the searches that quantizers share.
 *
 * Every search is the same idea: for a range of trial scales round the elements to codes, then solve the least-squares
 * problem for the scale (and minimum) that fits those codes best, and keep the trial with the smallest squared error.
 * The trials walk from clipping the largest element to leaving headroom, because for bell-shaped weights neither
 * extreme wins. Sums run in a fixed order, so results do not depend on the machine.
 */
#ifndef TENSOR_QUANT_FIT_H
#define TENSOR_QUANT_FIT_H

#include <math.h>
#include <stdint.h>

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

int fit_code(const fit_codes *c, float v);   /* the code nearest to v */
int fit_value(const fit_codes *c, int code); /* what a code stands for */

enum { FIT_MAX = 256 }; /* elements of a group; counts are multiples of 8 */

/* The scale s that minimises sum (x - s * value)^2; may be negative. 0 when all elements are 0. */
float fit_symmetric(const fit_codes *c, const float *x, int n);

/* x ~ scale * q + offset with q in 0..qmax, scale >= 0; with below_zero the offset is at most 0. */
void fit_affine(const float *x, int n, int qmax, int below_zero, float *scale, float *offset);

/* Squared error of the best codes under given numbers: used to choose between few of them. */
float fit_error(const fit_codes *c, const float *x, int n, float scale);
float fit_affine_error(const float *x, int n, int qmax, float scale, float offset);

#endif
