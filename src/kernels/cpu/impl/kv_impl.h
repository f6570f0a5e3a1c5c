/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Into and out of cache pages (layouts in kernels/kvpage.h), for every instruction set (see vec/scalar.h).
 *
 * Storing:
 *
 *     f16    clipped to +-65504, rounded to nearest even
 *     q8_0   d = f16(max|x| / 127),                      q = round(x / d) in +-127
 *     q4_0   d = f16(x of the largest magnitude / -8),   q = round(x / d) in -8..7
 *
 * Scalar arithmetic, the same on every set: the stored bytes do not depend on the set. Loading as f32 is exact: 8 and
 * 11 bit factors fit into 24.
 */
#ifndef KERNELS_CPU_IMPL_KV_IMPL_H
#define KERNELS_CPU_IMPL_KV_IMPL_H

#include "tensor/half.h"

#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* Scale and whole numbers of one group of n values. Returns the scale as f16. */
static inline uint16_t kv_quant_group(const float *x, int n, bool four_bit, int8_t *q) {
    float top = 0, amax = 0;
    for (int i = 0; i < n; i++) {
        const float a = fabsf(x[i]);
        if (a > amax) amax = a, top = x[i];
    }
    float d = four_bit ? top / -8.0f : amax / 127.0f;
    if (d > 65504.0f) d = 65504.0f;
    if (d < -65504.0f) d = -65504.0f;
    const uint16_t h = tensor_f32_to_f16(d);
    const float    df = tensor_f16_to_f32(h), lo = four_bit ? -8.0f : -127.0f, hi = four_bit ? 7.0f : 127.0f;
    for (int i = 0; i < n; i++) {
        float v = df != 0.0f ? rintf(x[i] / df) : 0.0f;
        v = v < hi ? v : hi; /* NaN becomes hi */
        v = v > lo ? v : lo;
        q[i] = (int8_t)v;
    }
    return h;
}

static inline void kv_quant_row(const float *x, int dim, bool four_bit, int8_t *q, uint16_t *scale) {
    for (int g = 0; g * KV_GROUP < dim; g++) {
        const int n = dim - g * KV_GROUP < KV_GROUP ? dim - g * KV_GROUP : KV_GROUP;
        scale[g] = kv_quant_group(x + g * KV_GROUP, n, four_bit, q + g * KV_GROUP);
    }
}

static inline void kv_row_f16(const float *x, int dim, uint16_t *y) {
    const vf top = vf_set1(65504.0f), low = vf_set1(-65504.0f);
    for (int i = 0; i < dim; i += VW) {
        const vf v = vf_min(top, vf_max(low, vf_loadn(x + i, dim - i)));
        if (i + VW <= dim) {
            vf_store_f16(y + i, v);
        } else {
            vf_storen_f16(y + i, v, dim - i);
        }
    }
}

static inline void kv_row_bf16(const float *x, int dim, uint16_t *y) {
    for (int i = 0; i < dim; i += VW) {
        const vf v = vf_loadn(x + i, dim - i);
        if (i + VW <= dim) {
            vf_store_bf16(y + i, v);
        } else {
            vf_storen_bf16(y + i, v, dim - i);
        }
    }
}

static void kv_store_k(const kv_layout *l, uint8_t *area, int slot, const float *x) {
    const size_t tokens = (size_t)l->tokens;
    const int    dim = l->k_dim, groups = kv_groups(dim);
    uint16_t     h[KV_DIM_MAX], scale[KV_DIM_MAX / 8];
    int8_t       q[KV_DIM_MAX];
    switch (l->k_type) {
    case KV_F32: {
        float *k = (float *)(void *)area + slot;
        for (int d = 0; d < dim; d++) k[(size_t)d * tokens] = x[d];
        return;
    }
    case KV_F16:
    case KV_BF16: {
        uint16_t *k = (uint16_t *)(void *)area + slot;
        if (l->k_type == KV_F16) {
            kv_row_f16(x, dim, h);
        } else {
            kv_row_bf16(x, dim, h);
        }
        for (int d = 0; d < dim; d++) k[(size_t)d * tokens] = h[d];
        return;
    }
    case KV_Q8_0: {
        uint16_t *s = (uint16_t *)(void *)(area + (size_t)dim * tokens) + slot;
        kv_quant_row(x, dim, false, q, scale);
        for (int d = 0; d < dim; d++) area[(size_t)d * tokens + (size_t)slot] = (uint8_t)q[d];
        for (int g = 0; g < groups; g++) s[(size_t)g * tokens] = scale[g];
        return;
    }
    case KV_Q4_0: {
        uint16_t *s = (uint16_t *)(void *)(area + (size_t)dim / 2 * tokens) + slot;
        kv_quant_row(x, dim, true, q, scale);
        for (int d = 0; d < dim; d += 2) {
            area[(size_t)d / 2 * tokens + (size_t)slot] = (uint8_t)((q[d] + 8) | (q[d + 1] + 8) << 4);
        }
        for (int g = 0; g < groups; g++) s[(size_t)g * tokens] = scale[g];
        return;
    }
    case KV_TYPE_COUNT: return;
    }
}

static void kv_store_v(const kv_layout *l, uint8_t *area, int slot, const float *x) {
    const size_t tokens = (size_t)l->tokens, dim = (size_t)l->v_dim, at = (size_t)slot;
    const int    groups = kv_groups(l->v_dim);
    int8_t       q[KV_DIM_MAX];
    switch (l->v_type) {
    case KV_F32: memcpy(area + at * dim * 4, x, dim * 4); return;
    case KV_F16: kv_row_f16(x, l->v_dim, (uint16_t *)(void *)area + at * dim); return;
    case KV_BF16: kv_row_bf16(x, l->v_dim, (uint16_t *)(void *)area + at * dim); return;
    case KV_Q8_0:
        kv_quant_row(x, l->v_dim, false, (int8_t *)area + at * dim,
                     (uint16_t *)(void *)(area + tokens * dim) + at * (size_t)groups);
        return;
    case KV_Q4_0: {
        uint8_t *b = area + at * dim / 2;
        kv_quant_row(x, l->v_dim, true, q, (uint16_t *)(void *)(area + tokens * dim / 2) + at * (size_t)groups);
        for (int g = 0; g < groups; g++) {
            const int base = g * KV_GROUP, left = l->v_dim - base, half = (left < KV_GROUP ? left : KV_GROUP) / 2;
            for (int i = 0; i < half; i++) {
                b[base / 2 + i] = (uint8_t)((q[base + i] + 8) | (q[base + half + i] + 8) << 4);
            }
        }
        return;
    }
    case KV_TYPE_COUNT: return;
    }
}

static void VFN(kv_store)(const kv_layout *l, void *page, int slot, int n, int head0, int head1, const float *k,
                          size_t k_stride, const float *v, size_t v_stride) {
    for (int h = head0; h < head1; h++) {
        uint8_t *ka = (uint8_t *)page + kv_k_offset(l, h), *va = (uint8_t *)page + kv_v_offset(l, h);
        for (int i = 0; i < n; i++) {
            kv_store_k(l, ka, slot + i, k + (size_t)i * k_stride + (size_t)h * (size_t)l->k_dim);
            if (!l->v_in_k) kv_store_v(l, va, slot + i, v + (size_t)i * v_stride + (size_t)h * (size_t)l->v_dim);
        }
    }
}

/* Slots [s0, s0 + n) of one head's K as f32: dimension d, slot s0 + i at y + d * ld + i. n is a multiple of 16. */
static void kv_load_k(const kv_layout *l, const uint8_t *area, int s0, int n, float *y, int ld) {
    const size_t    tokens = (size_t)l->tokens;
    const int       dim = l->k_dim;
    const float    *f = (const float *)(const void *)area + s0;
    const uint16_t *h = (const uint16_t *)(const void *)area + s0;
    const size_t    value_bytes = (size_t)dim * tokens / (l->k_type == KV_Q4_0 ? 2 : 1);
    const uint16_t *s = (const uint16_t *)(const void *)(area + value_bytes) + s0;
    switch (l->k_type) {
    case KV_F32:
        for (int d = 0; d < dim; d++, y += ld, f += tokens) memcpy(y, f, (size_t)n * sizeof *y);
        return;
    case KV_F16:
        for (int d = 0; d < dim; d++, y += ld, h += tokens) {
            for (int i = 0; i < n; i += VW) vf_store(y + i, vf_load_f16(h + i));
        }
        return;
    case KV_BF16:
        for (int d = 0; d < dim; d++, y += ld, h += tokens) {
            for (int i = 0; i < n; i += VW) vf_store(y + i, vf_load_bf16(h + i));
        }
        return;
    case KV_Q8_0:
        for (int d = 0; d < dim; d++, y += ld) {
            const int8_t   *q = (const int8_t *)area + (size_t)d * tokens + s0;
            const uint16_t *sc = s + (size_t)(d / KV_GROUP) * tokens;
            for (int i = 0; i < n; i += VW) vf_store(y + i, vf_mul(vf_load_i8(q + i), vf_load_f16(sc + i)));
        }
        return;
    case KV_Q4_0: {
        const vf eight = vf_set1(8.0f);
        for (int d = 0; d < dim; d += 2, y += 2 * ld) {
            const uint8_t  *q = area + (size_t)d / 2 * tokens + s0;
            const uint16_t *sc = s + (size_t)(d / KV_GROUP) * tokens;
            for (int i = 0; i < n; i += VW) {
                vf       lo, hi;
                const vf v = vf_load_f16(sc + i);
                vf_load_nib(q + i, &lo, &hi);
                vf_store(y + i, vf_mul(vf_sub(lo, eight), v));
                vf_store(y + ld + i, vf_mul(vf_sub(hi, eight), v));
            }
        }
        return;
    }
    case KV_TYPE_COUNT: return;
    }
}

static inline void kv_v_q4_row(const uint8_t *b, const uint16_t *scale, int dim, float *y) {
    for (int base = 0; base < dim; base += KV_GROUP) {
        const int   half = (dim - base < KV_GROUP ? dim - base : KV_GROUP) / 2;
        const float s = tensor_f16_to_f32(scale[base / KV_GROUP]);
        int         i = 0;
        for (; i + VW <= half; i += VW) {
            vf lo, hi;
            vf_load_nib(b + base / 2 + i, &lo, &hi);
            vf_store(y + base + i, vf_mul(vf_sub(lo, vf_set1(8.0f)), vf_set1(s)));
            vf_store(y + base + half + i, vf_mul(vf_sub(hi, vf_set1(8.0f)), vf_set1(s)));
        }
        for (; i < half; i++) {
            y[base + i] = (float)((b[base / 2 + i] & 15) - 8) * s;
            y[base + half + i] = (float)((b[base / 2 + i] >> 4) - 8) * s;
        }
    }
}

/* Slots [s0, s0 + n) of one head's V as f32: slot s0 + i, dimension d at y + i * ld + d. */
static void kv_load_v(const kv_layout *l, const uint8_t *area, int s0, int n, float *y, int ld) {
    const size_t tokens = (size_t)l->tokens, dim = (size_t)l->v_dim, groups = (size_t)kv_groups(l->v_dim);
    const int    nd = l->v_dim;
    for (int i = 0; i < n; i++, y += ld) {
        const size_t    at = (size_t)s0 + (size_t)i;
        const uint16_t *h = (const uint16_t *)(const void *)area + at * dim;
        switch (l->v_type) {
        case KV_F32: memcpy(y, area + at * dim * 4, dim * 4); break;
        case KV_F16:
            for (int d = 0; d + VW <= nd; d += VW) vf_store(y + d, vf_load_f16(h + d));
            if (nd % VW) vf_storen(y + nd / VW * VW, vf_loadn_f16(h + nd / VW * VW, nd % VW), nd % VW);
            break;
        case KV_BF16:
            for (int d = 0; d + VW <= nd; d += VW) vf_store(y + d, vf_load_bf16(h + d));
            if (nd % VW) vf_storen(y + nd / VW * VW, vf_loadn_bf16(h + nd / VW * VW, nd % VW), nd % VW);
            break;
        case KV_Q8_0: {
            const int8_t   *q = (const int8_t *)area + at * dim;
            const uint16_t *s = (const uint16_t *)(const void *)(area + tokens * dim) + at * groups;
            int             d = 0;
            for (; d + VW <= nd; d += VW) {
                vf_store(y + d, vf_mul(vf_load_i8(q + d), vf_set1(tensor_f16_to_f32(s[d / KV_GROUP]))));
            }
            for (; d < nd; d++) y[d] = (float)q[d] * tensor_f16_to_f32(s[d / KV_GROUP]);
            break;
        }
        case KV_Q4_0:
            kv_v_q4_row(area + at * dim / 2, (const uint16_t *)(const void *)(area + tokens * dim / 2) + at * groups,
                        nd, y);
            break;
        case KV_TYPE_COUNT: break;
        }
    }
}

#endif
