/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Norms, for every instruction set (see vec/scalar.h).
 *
 * A sum over a row keeps four accumulators of VW lanes: step s of 4 * VW values adds to accumulators 0..3, the rest
 * goes to accumulator 0 vector by vector; the end is vf_sum((a0 + a1) + (a2 + a3)). A norm is then one multiply by the
 * reciprocal root, one by the weight.
 */
#ifndef KERNELS_CPU_IMPL_OPS_NORM_H
#define KERNELS_CPU_IMPL_OPS_NORM_H

#include <math.h>

static inline float row_sum(const float *x, int64_t n) {
    vf      a0 = vf_zero(), a1 = a0, a2 = a0, a3 = a0;
    int64_t i = 0;
    for (; i + 4 * VW <= n; i += 4 * VW) {
        a0 = vf_add(a0, vf_load(x + i));
        a1 = vf_add(a1, vf_load(x + i + VW));
        a2 = vf_add(a2, vf_load(x + i + 2 * VW));
        a3 = vf_add(a3, vf_load(x + i + 3 * VW));
    }
    for (; i < n; i += VW) a0 = vf_add(a0, vf_loadn(x + i, n - i));
    return vf_sum(vf_add(vf_add(a0, a1), vf_add(a2, a3)));
}

/* Sum of (x - mean)^2; the lanes behind the end add nothing. */
static inline float row_sum_sq(const float *x, int64_t n, float mean) {
    const vf m = vf_set1(mean);
    vf       a0 = vf_zero(), a1 = a0, a2 = a0, a3 = a0;
    int64_t  i = 0;
    for (; i + 4 * VW <= n; i += 4 * VW) {
        const vf x0 = vf_sub(vf_load(x + i), m), x1 = vf_sub(vf_load(x + i + VW), m);
        const vf x2 = vf_sub(vf_load(x + i + 2 * VW), m), x3 = vf_sub(vf_load(x + i + 3 * VW), m);
        a0 = vf_fma(x0, x0, a0);
        a1 = vf_fma(x1, x1, a1);
        a2 = vf_fma(x2, x2, a2);
        a3 = vf_fma(x3, x3, a3);
    }
    for (; i < n; i += VW) {
        const vf d = vf_sel(vm_range(0, n - i), vf_sub(vf_loadn(x + i, n - i), m), vf_zero());
        a0 = vf_fma(d, d, a0);
    }
    return vf_sum(vf_add(vf_add(a0, a1), vf_add(a2, a3)));
}

/* y = x * r * (w + w_add) */
static inline void row_apply(float *y, const float *x, int64_t n, float r, const float *w, float w_add) {
    const vf vr = vf_set1(r), va = vf_set1(w_add);
    for (int64_t i = 0; i < n; i += VW) {
        vf v = vf_mul(vf_loadn(x + i, n - i), vr);
        if (w) v = vf_mul(v, vf_add(vf_loadn(w + i, n - i), va));
        vf_storen(y + i, v, n - i);
    }
}

static void VFN(rms_norm)(float *y, size_t y_stride, const float *x, size_t x_stride, int64_t rows, int64_t n,
                          const float *w, float w_add, float eps) {
    for (int64_t r = 0; r < rows; r++, x += x_stride, y += y_stride) {
        const float s = row_sum_sq(x, n, 0.0f) / (float)n;
        row_apply(y, x, n, 1.0f / sqrtf(s + eps), w, w_add);
    }
}

static void VFN(layer_norm)(float *y, size_t y_stride, const float *x, size_t x_stride, int64_t rows, int64_t n,
                            const float *w, const float *b, float eps) {
    for (int64_t r = 0; r < rows; r++, x += x_stride, y += y_stride) {
        const float mean = row_sum(x, n) / (float)n;
        const float var = row_sum_sq(x, n, mean) / (float)n;
        const vf    m = vf_set1(mean), k = vf_set1(1.0f / sqrtf(var + eps));
        for (int64_t i = 0; i < n; i += VW) {
            vf v = vf_mul(vf_sub(vf_loadn(x + i, n - i), m), k);
            if (w) v = vf_mul(v, vf_loadn(w + i, n - i));
            if (b) v = vf_add(v, vf_loadn(b + i, n - i));
            vf_storen(y + i, v, n - i);
        }
    }
}

static void VFN(l2_norm)(float *y, size_t y_stride, const float *x, size_t x_stride, int64_t rows, int64_t n, float eps,
                         float scale) {
    for (int64_t r = 0; r < rows; r++, x += x_stride, y += y_stride) {
        row_apply(y, x, n, scale / sqrtf(row_sum_sq(x, n, 0.0f) + eps), NULL, 0.0f);
    }
}

#endif
