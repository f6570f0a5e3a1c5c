/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Into and out of cache pages (layouts in kernels/kvpage.h, numbers in kv_pack.h), for every instruction set (see
 * vec/scalar.h). Stored numbers and scales become f32 apart from one another; attention puts them together.
 */
#ifndef KERNELS_CPU_IMPL_KV_IMPL_H
#define KERNELS_CPU_IMPL_KV_IMPL_H

#define INLINE static inline __attribute__((always_inline))

#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#define UNROLL16 _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 8")
#define UNROLL16 _Pragma("GCC unroll 16")
#endif

#include "kernels/cpu/impl/kv_pack.h"
#include "kernels/cpu/impl/kv_rotate.h"

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

/* x, or its rotation in y where the side has one. */
static const float *kv_store_row(const float *x, int dim, int block, float *y) {
    const float most = 0x1p20f;
    if (!block) return x;
    for (int i = 0; i < dim; i++) {
        const float v = x[i] == x[i] ? x[i] : 0.0f;
        y[i] = v > most ? most : v < -most ? -most : v;
    }
    kv_rotate(y, dim, block, y);
    return y;
}

static void kv_store_k_float(const kv_layout *l, uint8_t *area, int slot, const float *x) {
    const size_t tokens = (size_t)l->tokens;
    const int    dim = l->k_dim;
    uint16_t     h[KV_DIM_MAX];
    if (l->k_type == KV_F32) {
        float *k = (float *)(void *)area + slot;
        for (int d = 0; d < dim; d++) k[(size_t)d * tokens] = x[d];
        return;
    }
    uint16_t *k = (uint16_t *)(void *)area + slot;
    if (l->k_type == KV_F16) {
        kv_row_f16(x, dim, h);
    } else {
        kv_row_bf16(x, dim, h);
    }
    for (int d = 0; d < dim; d++) k[(size_t)d * tokens] = h[d];
}

/* Bytes of a side's values in front of its scales. */
static inline size_t kv_value_bytes(kv_type type, int tokens, int dim) {
    return (size_t)tokens * (size_t)dim * (size_t)kv_type_get((int)type)->value_bits / 8;
}

static void kv_store_k(const kv_layout *l, uint8_t *area, int slot, const float *x) {
    const size_t        tokens = (size_t)l->tokens;
    const kv_type_info *t = kv_type_get((int)l->k_type);
    const int           dim = l->k_dim, groups = t->scaled ? kv_k_groups(l) : 0;
    uint16_t            scale[KV_DIM_MAX / 8];
    int8_t              n[KV_DIM_MAX];
    float               y[KV_DIM_MAX];
    if (t->value_bits > 8) {
        kv_store_k_float(l, area, slot, x);
        return;
    }
    kv_numbers(l->k_type, kv_store_row(x, dim, l->k_block, y), dim, l->k_block, n, scale);
    uint16_t *s = (uint16_t *)(void *)(area + kv_value_bytes(l->k_type, l->tokens, dim)) + slot;
    area += slot;
    for (int d = 0; d < dim; d += 8, area += (size_t)t->value_bits * tokens) {
        if (t->value_bits < 8) {
            kv_pack_k8(l->k_type, n + d, area, tokens);
            continue;
        }
        for (int i = 0; i < 8; i++) area[(size_t)i * tokens] = (uint8_t)n[d + i];
    }
    for (int g = 0; g < groups; g++) s[(size_t)g * tokens] = scale[g];
}

static void kv_store_v(const kv_layout *l, uint8_t *area, int slot, const float *x) {
    const size_t        dim = (size_t)l->v_dim, at = (size_t)slot;
    const kv_type_info *t = kv_type_get((int)l->v_type);
    uint16_t           *s = (uint16_t *)(void *)(area + kv_value_bytes(l->v_type, l->tokens, l->v_dim));
    uint8_t            *row = area + at * dim * (size_t)t->value_bits / 8;
    int8_t              n[KV_DIM_MAX];
    float               y[KV_DIM_MAX];
    switch (l->v_type) {
    case KV_F32: memcpy(row, x, dim * sizeof *x); return;
    case KV_F16: kv_row_f16(x, l->v_dim, (uint16_t *)(void *)row); return;
    case KV_BF16: kv_row_bf16(x, l->v_dim, (uint16_t *)(void *)row); return;
    case KV_Q8_0:
    case KV_Q5_0:
    case KV_Q4_0:
    case KV_TQ4:
    case KV_TQ3:
    case KV_TQ2:
    case KV_FP8:
        kv_numbers(l->v_type, kv_store_row(x, l->v_dim, l->v_block, y), l->v_dim, l->v_block, n,
                   s + at * (size_t)kv_v_groups(l));
        if (t->value_bits == 8) {
            memcpy(row, n, dim);
        } else {
            kv_pack_v(l->v_type, n, l->v_dim, row);
        }
        return;
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

#define KV_FP8_UNIT 256.0f

/* What turns a type's stored numbers into whole numbers: q4_0 is a codebook too. */
INLINE vcode kv_vcode(kv_type type) {
    static const int8_t nibbles[16] = { -8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7 };
    return vcode_make(type == KV_TQ4 || type == KV_TQ3 || type == KV_TQ2 ? kv_codes(type) : nibbles);
}

INLINE bool kv_scaled(kv_type type) { return type >= KV_Q8_0 && type <= KV_TQ2; }

/* Dimensions of K that are packed together. */
INLINE int kv_k_step(kv_type type) { return type == KV_TQ3 || type == KV_TQ2 || type == KV_Q5_0 ? 8 : 2; }

/*
 * VW positions of K: number e of the kv_k_step dimensions at p (first row, first of the positions), rows `row` bytes
 * apart, before scaling. type and e are constants at every call.
 */
INLINE vf kv_k_vector(kv_type type, const uint8_t *p, size_t row, int e, vcode code) {
    vf lo, hi;
    vi w;
    switch (type) {
    case KV_F32: return vf_load((const float *)(const void *)(p + (size_t)e * row));
    case KV_F16: return vf_load_f16((const uint16_t *)(const void *)(p + (size_t)e * row));
    case KV_BF16: return vf_load_bf16((const uint16_t *)(const void *)(p + (size_t)e * row));
    case KV_FP8: return vf_mul(vf_load_fp8_part(p + (size_t)e * row), vf_set1(KV_FP8_UNIT));
    case KV_Q8_0: return vf_load_i8((const int8_t *)p + (size_t)e * row);
    case KV_Q4_0:
    case KV_TQ4: vf_load_nib_code(p + (size_t)(e / 2) * row, code, &lo, &hi); return e % 2 ? hi : lo;
    case KV_Q5_0:
        w = vi_load_u8(p + 4 * row); /* bit e to bit 4 */
        w = e < 4 ? vi_shl(w, 4 - e) : vi_shr(w, e - 4);
        w = vi_mix(vi_shr(vi_load_u8(p + (size_t)(e / 2) * row), e % 2 * 4), w, 16);
        return vf_sub(vf_from_vi(vi_and(w, 31)), vf_set1(16.0f));
    case KV_TQ3:
        w = vi_or(vi_load_u8(p), vi_or(vi_shl(vi_load_u8(p + row), 8), vi_shl(vi_load_u8(p + 2 * row), 16)));
        return vf_code(code, vi_shr(w, 3 * e));
    case KV_TQ2: return vf_code(code, vi_shr(vi_load_u8(p + (size_t)(e / 4) * row), e % 4 * 2));
    case KV_TYPE_COUNT: break;
    }
    return vf_zero();
}

/* VW dimensions of V, before scaling: dimensions in .. of the group of 32 at p (value 0 of f16: at the row's start). */
INLINE vf kv_v_vector(kv_type type, const uint8_t *p, int in, vcode code) {
    vf lo, hi;
    switch (type) {
    case KV_F32: return vf_load((const float *)(const void *)p + in);
    case KV_F16: return vf_load_f16((const uint16_t *)(const void *)p + in);
    case KV_BF16: return vf_load_bf16((const uint16_t *)(const void *)p + in);
    case KV_FP8: return vf_mul(vf_load_fp8_part(p + in), vf_set1(KV_FP8_UNIT));
    case KV_Q8_0: return vf_load_i8((const int8_t *)p + in);
    case KV_Q4_0:
    case KV_TQ4: vf_load_nib_code(p + in % 16, code, &lo, &hi); return in < 16 ? lo : hi;
    case KV_Q5_0: return vf_sub(vf_from_vi(vi_mix(vi_nibs(p, in), vi_bits(p + 16, in, 4), 16)), vf_set1(16.0f));
    case KV_TQ3: return vf_code(code, vi_thirds(p, in));
    case KV_TQ2: return vf_code(code, vi_crumbs(p, in));
    case KV_TYPE_COUNT: break;
    }
    return vf_zero();
}

/* kv_load_k for one type. */
INLINE void kv_load_k_type(kv_type type, const kv_layout *l, const uint8_t *area, int s0, int n, float *y, float *scale,
                           int ld) {
    const size_t    tokens = (size_t)l->tokens, bits = (size_t)kv_type_get((int)type)->value_bits;
    const size_t    unit = bits < 8 ? 1 : bits / 8, row = tokens * unit;
    const int       step = kv_k_step(type);
    const uint16_t *s = (const uint16_t *)(const void *)(area + (size_t)l->k_dim * tokens * bits / 8) + s0;
    const vcode     code = kv_vcode(type);
    area += (size_t)s0 * unit;
    for (int d = 0; d < l->k_dim; d += step, area += tokens * bits * (size_t)step / 8, y += step * ld) {
        for (int i = 0; i < n; i += VW) {
            for (int e = 0; e < step; e++) {
                vf_store(y + e * ld + i, kv_k_vector(type, area + (size_t)i * unit, row, e, code));
            }
        }
    }
    for (int g = 0; kv_scaled(type) && g < kv_k_groups(l); g++, s += tokens, scale += ld) {
        for (int i = 0; i < n; i += VW) vf_store(scale + i, vf_load_f16(s + i));
    }
}

/* Slots [s0, s0 + n) of one head's K before scaling: dimension d, slot s0 + i at y + d * ld + i, and the scale of group g
 * at scale + g * ld + i. n is a multiple of 16. */
static void kv_load_k(const kv_layout *l, const uint8_t *area, int s0, int n, float *y, float *scale, int ld) {
    switch (l->k_type) {
    case KV_F32: kv_load_k_type(KV_F32, l, area, s0, n, y, scale, ld); return;
    case KV_F16: kv_load_k_type(KV_F16, l, area, s0, n, y, scale, ld); return;
    case KV_BF16: kv_load_k_type(KV_BF16, l, area, s0, n, y, scale, ld); return;
    case KV_Q8_0: kv_load_k_type(KV_Q8_0, l, area, s0, n, y, scale, ld); return;
    case KV_Q4_0: kv_load_k_type(KV_Q4_0, l, area, s0, n, y, scale, ld); return;
    case KV_Q5_0: kv_load_k_type(KV_Q5_0, l, area, s0, n, y, scale, ld); return;
    case KV_TQ4: kv_load_k_type(KV_TQ4, l, area, s0, n, y, scale, ld); return;
    case KV_TQ3: kv_load_k_type(KV_TQ3, l, area, s0, n, y, scale, ld); return;
    case KV_TQ2: kv_load_k_type(KV_TQ2, l, area, s0, n, y, scale, ld); return;
    case KV_FP8: kv_load_k_type(KV_FP8, l, area, s0, n, y, scale, ld); return;
    case KV_TYPE_COUNT: return;
    }
}

/* Dimensions behind the last whole vector or group of a row, one by one: only types that may have such. */
static void kv_load_v_rest(kv_type type, const uint8_t *row, int d, int dim, float *y) {
    const int first = d / KV_GROUP * KV_GROUP, half = (dim - first < KV_GROUP ? dim - first : KV_GROUP) / 2;
    for (; d < dim; d++) {
        uint16_t h;
        int      n;
        switch (type) {
        case KV_F16:
        case KV_BF16:
            memcpy(&h, row + d * 2, sizeof h);
            y[d] = type == KV_F16 ? tensor_f16_to_f32(h) : tensor_bf16_to_f32(h);
            break;
        case KV_FP8: y[d] = tensor_f16_to_f32((uint16_t)((row[d] & 0x80) << 8 | (row[d] & 0x7f) << 7)) * 256.0f; break;
        case KV_Q8_0: y[d] = (float)(int8_t)row[d]; break;
        default: /* q4_0 */
            n = row[first / 2 + (d - first) % half];
            y[d] = (float)((d - first < half ? n & 15 : n >> 4) - 8);
        }
    }
}

/* The scales of n slots of V as f32: group g of slot i at to + g * ld + i. */
static void kv_load_v_scales(const uint16_t *s, int n, int groups, float *to, int ld) {
    float own[KV_BLOCK_MAX * KV_DIM_MAX / KV_GROUP + 16];
    int   i = 0;
#ifdef VQUADS
    for (; groups == 4 && i + VW <= n; i += VW) {
        vf r[4];
        vf_load_f16_by4(s + 4 * i, r);
        UNROLL for (int g = 0; g < 4; g++) vf_store(to + g * ld + i, r[g]);
    }
    if (groups == 4 && i == n) return;
    i = 0;
#endif
    float *y = groups == 1 ? to : own;
    for (; i + VW <= n * groups; i += VW) vf_store(y + i, vf_load_f16(s + i));
    if (i < n * groups) vf_storen(y + i, vf_loadn_f16(s + i, n * groups - i), n * groups - i);
    for (int g = 0; groups > 1 && g < groups; g++) {
        for (i = 0; i < n; i++) to[g * ld + i] = y[i * groups + g];
    }
}

/* kv_load_v for one type. */
INLINE void kv_load_v_type(kv_type type, const kv_layout *l, const uint8_t *area, int s0, int n, float *y) {
    const size_t bits = (size_t)kv_type_get((int)type)->value_bits, bytes = (size_t)l->v_dim * bits / 8;
    const int    whole = l->v_dim / KV_GROUP * KV_GROUP;
    const vcode  code = kv_vcode(type);
    for (int i = 0; i < n; i++, y += l->v_dim) {
        const uint8_t *p = area + (size_t)(s0 + i) * bytes;
        for (int d = 0; d < whole; d += KV_GROUP) {
            for (int in = 0; in < KV_GROUP; in += VW) {
                vf_store(y + d + in, kv_v_vector(type, p + (size_t)d * bits / 8, in, code));
            }
        }
        if (whole < l->v_dim) kv_load_v_rest(type, p, whole, l->v_dim, y);
    }
}

/* Slots [s0, s0 + n) of one head's V before scaling: slot s0 + i, dimension d at y + i * v_dim + d, and the scale of group g
 * at scale + g * ld + i. */
static void kv_load_v(const kv_layout *l, const uint8_t *area, int s0, int n, float *y, float *scale, int ld) {
    const size_t    row = (size_t)l->v_dim, groups = (size_t)kv_v_groups(l);
    const uint16_t *s = (const uint16_t *)(const void *)(area + kv_value_bytes(l->v_type, l->tokens, l->v_dim));
    if (kv_scaled(l->v_type)) kv_load_v_scales(s + (size_t)s0 * groups, n, (int)groups, scale, ld);
    switch (l->v_type) {
    case KV_F32: memcpy(y, area + (size_t)s0 * row * sizeof *y, (size_t)n * row * sizeof *y); return;
    case KV_F16: kv_load_v_type(KV_F16, l, area, s0, n, y); return;
    case KV_BF16: kv_load_v_type(KV_BF16, l, area, s0, n, y); return;
    case KV_Q8_0: kv_load_v_type(KV_Q8_0, l, area, s0, n, y); return;
    case KV_Q4_0: kv_load_v_type(KV_Q4_0, l, area, s0, n, y); return;
    case KV_Q5_0: kv_load_v_type(KV_Q5_0, l, area, s0, n, y); return;
    case KV_TQ4: kv_load_v_type(KV_TQ4, l, area, s0, n, y); return;
    case KV_TQ3: kv_load_v_type(KV_TQ3, l, area, s0, n, y); return;
    case KV_TQ2: kv_load_v_type(KV_TQ2, l, area, s0, n, y); return;
    case KV_FP8: kv_load_v_type(KV_FP8, l, area, s0, n, y); return;
    case KV_TYPE_COUNT: return;
    }
}

#endif
