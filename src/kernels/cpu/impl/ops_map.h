/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations that go through a row value by value: activations, gates, softmax, sums of rows, rotary positions,
 * embedding rows. For every instruction set (see vec/scalar.h). Only softmax has an order: its sum runs over one
 * accumulator of VW lanes, then across the lanes.
 */
#ifndef KERNELS_CPU_IMPL_OPS_MAP_H
#define KERNELS_CPU_IMPL_OPS_MAP_H

#include "tensor/codec.h"

#include <math.h>

static inline vf vf_gelu_tanh(vf x) {
    const vf u = vf_mul(vf_mul(x, vf_set1(0.797884561f)), vf_fma(vf_mul(x, x), vf_set1(0.044715f), vf_set1(1.0f)));
    const vf h = vf_mul(x, vf_set1(0.5f));
    return vf_fma(h, vf_tanh(u), h);
}

static inline vf vf_gelu_erf(vf x) {
    const vf h = vf_mul(x, vf_set1(0.5f));
    return vf_fma(h, vf_erf(vf_mul(x, vf_set1(0.707106781f))), h);
}

static inline vf vf_act(vf x, ops_act act) {
    switch (act) {
    case OPS_ACT_SILU: return vf_mul(x, vf_sigmoid(x));
    case OPS_ACT_GELU_TANH: return vf_gelu_tanh(x);
    case OPS_ACT_GELU_ERF: return vf_gelu_erf(x);
    case OPS_ACT_RELU: return vf_max(vf_zero(), x);
    case OPS_ACT_RELU2: {
        const vf r = vf_max(vf_zero(), x);
        return vf_mul(r, r);
    }
    case OPS_ACT_SIGMOID: return vf_sigmoid(x);
    case OPS_ACT_TANH: return vf_tanh(x);
    case OPS_ACT_SOFTPLUS: return vf_softplus(x);
    case OPS_ACT_EXP: return vf_exp(x);
    case OPS_ACT_NONE:
    case OPS_ACT_SWIGLU_CLAMP:
    case OPS_ACT_COUNT: break;
    }
    return x;
}

static void VFN(act)(float *y, const float *x, int64_t n, ops_act act) {
    for (int64_t i = 0; i < n; i += VW) vf_storen(y + i, vf_act(vf_loadn(x + i, n - i), act), n - i);
}

static inline vf vf_swiglu_clamp(vf g, vf u, vf alpha, vf limit) {
    g = vf_min(limit, g);
    u = vf_min(limit, vf_max(vf_sub(vf_zero(), limit), u));
    return vf_mul(vf_add(u, vf_set1(1.0f)), vf_mul(g, vf_sigmoid(vf_mul(g, alpha))));
}

static void VFN(glu)(float *y, const float *gate, const float *up, int64_t n, ops_act act, float alpha, float limit) {
    if (act == OPS_ACT_SWIGLU_CLAMP) {
        const vf a = vf_set1(alpha), l = vf_set1(limit);
        for (int64_t i = 0; i < n; i += VW) {
            vf_storen(y + i, vf_swiglu_clamp(vf_loadn(gate + i, n - i), vf_loadn(up + i, n - i), a, l), n - i);
        }
        return;
    }
    for (int64_t i = 0; i < n; i += VW) {
        vf_storen(y + i, vf_mul(vf_act(vf_loadn(gate + i, n - i), act), vf_loadn(up + i, n - i)), n - i);
    }
}

/* y = softmax(x). */
static void VFN(softmax)(float *y, const float *x, int64_t n) {
    const vf low = vf_set1(-INFINITY);
    vf       m = low, sum = vf_zero();
    for (int64_t i = 0; i < n; i += VW) {
        m = vf_max(m, vf_sel(vm_range(0, n - i), vf_loadn(x + i, n - i), low));
    }
    const vf top = vf_set1(vf_hmax(m));
    for (int64_t i = 0; i < n; i += VW) {
        const vf e = vf_exp(vf_sub(vf_loadn(x + i, n - i), top));
        sum = vf_add(sum, vf_sel(vm_range(0, n - i), e, vf_zero()));
        vf_storen(y + i, e, n - i);
    }
    const vf d = vf_set1(vf_sum(sum));
    for (int64_t i = 0; i < n; i += VW) vf_storen(y + i, vf_div(vf_loadn(y + i, n - i), d), n - i);
}

static void VFN(clip)(float *y, const float *x, int64_t n, float limit) {
    const vf hi = vf_set1(limit), lo = vf_set1(-limit);
    for (int64_t i = 0; i < n; i += VW) vf_storen(y + i, vf_min(hi, vf_max(lo, vf_loadn(x + i, n - i))), n - i);
}

static void VFN(softcap)(float *y, const float *x, int64_t n, float cap) {
    const vf c = vf_set1(cap);
    for (int64_t i = 0; i < n; i += VW) {
        vf_storen(y + i, vf_mul(c, vf_tanh(vf_div(vf_loadn(x + i, n - i), c))), n - i);
    }
}

static void VFN(add)(float *y, const float *a, const float *b, int64_t n) {
    for (int64_t i = 0; i < n; i += VW) {
        vf_storen(y + i, vf_add(vf_loadn(a + i, n - i), vf_loadn(b + i, n - i)), n - i);
    }
}

static void VFN(scale)(float *y, const float *x, float s, int64_t n) {
    const vf k = vf_set1(s);
    for (int64_t i = 0; i < n; i += VW) vf_storen(y + i, vf_mul(vf_loadn(x + i, n - i), k), n - i);
}

static void VFN(axpy)(float *y, const float *x, float s, int64_t n) {
    const vf k = vf_set1(s);
    for (int64_t i = 0; i < n; i += VW) {
        vf_storen(y + i, vf_fma(vf_loadn(x + i, n - i), k, vf_loadn(y + i, n - i)), n - i);
    }
}

static void VFN(weighted_sum)(float *y, const float *const *rows, const float *w, int64_t n_rows, int64_t n) {
    for (int64_t i = 0; i < n; i += VW) {
        vf s = vf_zero();
        for (int64_t r = 0; r < n_rows; r++) s = vf_fma(vf_loadn(rows[r] + i, n - i), vf_set1(w[r]), s);
        vf_storen(y + i, s, n - i);
    }
}

static inline void rope_half(float *x, const float *c, const float *s, int64_t n) {
    for (int64_t i = 0; i < n; i += VW) {
        const vf a = vf_loadn(x + i, n - i), b = vf_loadn(x + n + i, n - i);
        const vf vc = vf_loadn(c + i, n - i), vs = vf_loadn(s + i, n - i);
        vf_storen(x + i, vf_sub(vf_mul(a, vc), vf_mul(b, vs)), n - i);
        vf_storen(x + n + i, vf_add(vf_mul(b, vc), vf_mul(a, vs)), n - i);
    }
}

static inline void rope_pairs(float *x, const float *c, const float *s, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const float a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = a * c[i] - b * s[i];
        x[2 * i + 1] = b * c[i] + a * s[i];
    }
}

static void VFN(rope)(float *x, size_t x_stride, int64_t rows, size_t head_stride, int64_t heads, const float *cs,
                      int64_t n_freq, ops_rope_style style) {
    for (int64_t t = 0; t < rows; t++, x += x_stride, cs += 2 * n_freq) {
        for (int64_t h = 0; h < heads; h++) {
            float *p = x + (size_t)h * head_stride;
            if (style == OPS_ROPE_HALF) {
                rope_half(p, cs, cs + n_freq, n_freq);
            } else {
                rope_pairs(p, cs, cs + n_freq, n_freq);
            }
        }
    }
}

static void VFN(f16_to_f32)(float *y, const uint16_t *x, int64_t n) {
    int64_t i = 0;
    for (; i + VW <= n; i += VW) vf_store(y + i, vf_load_f16(x + i));
    if (i < n) vf_storen(y + i, vf_loadn_f16(x + i, n - i), n - i);
}
static void VFN(bf16_to_f32)(float *y, const uint16_t *x, int64_t n) {
    int64_t i = 0;
    for (; i + VW <= n; i += VW) vf_store(y + i, vf_load_bf16(x + i));
    if (i < n) vf_storen(y + i, vf_loadn_bf16(x + i, n - i), n - i);
}

/* Rows of f16 and bf16 go through the conversions of this set, all others through the codec. */
static void VFN(embed)(float *y, size_t y_stride, const tensor_mat *m, const int32_t *ids, int64_t row0, int64_t row1,
                       float scale) {
    for (int64_t t = row0; t < row1; t++) {
        float          *row = y + (size_t)t * y_stride;
        const uint16_t *h = (const void *)((const uint8_t *)m->data + (size_t)ids[t] * m->row_bytes);
        if (m->type == TENSOR_F16) {
            VFN(f16_to_f32)(row, h, m->cols);
        } else if (m->type == TENSOR_BF16) {
            VFN(bf16_to_f32)(row, h, m->cols);
        } else {
            tensor_mat_dequant_row(m, 0, ids[t], row);
        }
        if (scale != 1.0f) VFN(scale)(row, row, scale, m->cols);
    }
}

#endif
