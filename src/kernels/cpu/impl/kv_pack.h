/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of floats to the numbers of a page type and their bytes (layouts in kernels/kvpage.h), for every instruction set:
 *
 *     f16    clipped to +-65504, rounded to nearest even
 *     fp8    clipped to +-448, rounded to nearest even; NaN becomes 448
 *     q8_0   d = f16(max|x| / 127),                      q = round(x / d) in +-127
 *     q5_0   d = f16(x of the largest magnitude / -16),  q = round(x / d) in -16..15
 *     q4_0   d = f16(x of the largest magnitude / -8),   q = round(x / d) in -8..7
 *     tq     n = the codebook's entry nearest to x sqrt(B) / |x| (in its units; the lower one of two equally near),
 *            d = f16(|x| / |c[n]|), so that the block keeps its norm
 *
 * Elementwise arithmetic in one order, the same on every set: the stored bytes do not depend on the set.
 */
#ifndef KERNELS_CPU_IMPL_KV_PACK_H
#define KERNELS_CPU_IMPL_KV_PACK_H

#include "tensor/half.h"

#include <math.h>
#include <string.h>

/* A scale as f16; what it cannot hold becomes its largest. */
static inline uint16_t kv_scale(float d) {
    if (d > 65504.0f) d = 65504.0f;
    if (d < -65504.0f) d = -65504.0f;
    return tensor_f32_to_f16(d);
}

/* Whole numbers of one group of n values, from -lowest on (lowest 8 or 16), or +-127 with lowest 0. Returns the scale. */
static inline uint16_t kv_quant_group(const float *x, int n, int lowest, int8_t *q) {
    float top = 0, amax = 0;
    for (int i = 0; i < n; i++) {
        const float a = fabsf(x[i]);
        if (a > amax) amax = a, top = x[i];
    }
    const uint16_t h = kv_scale(lowest ? top / (float)-lowest : amax / 127.0f);
    const float    df = tensor_f16_to_f32(h), lo = lowest ? (float)-lowest : -127.0f;
    const float    hi = lowest ? (float)(lowest - 1) : 127.0f;
    for (int i = 0; i < n; i++) {
        float v = df != 0.0f ? rintf(x[i] / df) : 0.0f;
        v = v < hi ? v : hi; /* NaN becomes hi */
        v = v > lo ? v : lo;
        q[i] = (int8_t)v;
    }
    return h;
}

static inline void kv_quant_row(const float *x, int dim, int lowest, int8_t *q, uint16_t *scale) {
    for (int g = 0; g * KV_GROUP < dim; g++) {
        const int n = dim - g * KV_GROUP < KV_GROUP ? dim - g * KV_GROUP : KV_GROUP;
        scale[g] = kv_quant_group(x + g * KV_GROUP, n, lowest, q + g * KV_GROUP);
    }
    for (int i = 0; lowest && i < dim; i++) q[i] = (int8_t)(q[i] + lowest);
}

/* Sum of squares of a block: 16 chains side by side, then their sums in halves. */
static inline float kv_square(const float *x, int block) {
    float acc[16] = { 0 };
    for (int i = 0; i < block; i += 16) {
        for (int j = 0; j < 16; j++) acc[j] += x[i + j] * x[i + j];
    }
    for (int h = 8; h > 0; h /= 2) {
        for (int j = 0; j < h; j++) acc[j] += acc[j + h];
    }
    return acc[0];
}

/* Indices of one block and its scale. The codebook is symmetric: what lies between its entries is found by counting. */
static inline uint16_t kv_code_block(const float *x, int block, kv_type type, int8_t *n) {
    const int8_t *c = kv_codes(type);
    const int     entries = type == KV_TQ4 ? 16 : type == KV_TQ3 ? 8 : 4;
    const float   top = type == KV_TQ4 ? 2.7326f : type == KV_TQ3 ? 2.1520f : 1.5104f; /* the entry 127 in sigmas */
    const float   norm = sqrtf(kv_square(x, block)), g = norm > 0.0f ? 127.0f / top * sqrtf((float)block) / norm : 0.0f;
    float         r[KV_BLOCK_MAX];
    int32_t       at[KV_BLOCK_MAX] = { 0 }, sum = 0;
    for (int i = 0; i < block; i++) r[i] = x[i] * g;
    for (int k = 0; k + 1 < entries; k++) {
        const float middle = 0.5f * (float)(c[k] + c[k + 1]);
        for (int i = 0; i < block; i++) at[i] += r[i] > middle;
    }
    for (int i = 0; i < block; i++) {
        n[i] = (int8_t)at[i];
        sum += c[at[i]] * c[at[i]];
    }
    return kv_scale(norm / sqrtf((float)sum));
}

/* One f32 as e4m3. */
static inline uint8_t kv_fp8(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    const uint8_t sign = (uint8_t)(u >> 24 & 0x80);
    const float   a = fabsf(x);
    if (x != x) return 0x7e;
    if (a >= 448.0f) return sign | 0x7e;
    if (a < 0x1p-6f) return (uint8_t)(sign | (uint8_t)rintf(a * 512.0f)); /* below the normal range: steps of 2^-9 */
    u &= 0x7fffffffu;
    u = (u + 0x7ffffu + (u >> 20 & 1u)) >> 20;
    return (uint8_t)(sign | (u - (120u << 3)));
}

/* The stored numbers of a row and its scales; unsigned where the type has less than 8 bits. */
static void kv_numbers(kv_type type, const float *x, int dim, int block, int8_t *n, uint16_t *scale) {
    switch (type) {
    case KV_Q8_0: kv_quant_row(x, dim, 0, n, scale); return;
    case KV_Q5_0: kv_quant_row(x, dim, 16, n, scale); return;
    case KV_Q4_0: kv_quant_row(x, dim, 8, n, scale); return;
    case KV_TQ4:
    case KV_TQ3:
    case KV_TQ2:
        for (int i = 0; i < dim; i += block) scale[i / block] = kv_code_block(x + i, block, type, n + i);
        return;
    case KV_FP8:
        for (int i = 0; i < dim; i++) n[i] = (int8_t)kv_fp8(x[i]);
        return;
    case KV_F32:
    case KV_F16:
    case KV_BF16:
    case KV_TYPE_COUNT: return;
    }
}

/* Bits `bit` of 8 numbers as a byte; bits 0-1 of 4 numbers as a byte. */
static inline uint8_t kv_bits8(const int8_t *n, int bit) {
    unsigned b = 0;
    for (int i = 0; i < 8; i++) b |= ((unsigned)n[i] >> bit & 1u) << i;
    return (uint8_t)b;
}
static inline uint8_t kv_crumbs4(const int8_t *n, int step) {
    return (uint8_t)((n[0] & 3) | (n[step] & 3) << 2 | (n[2 * step] & 3) << 4 | (n[3 * step] & 3) << 6);
}

/* 8 dimensions of K: their rows of one slot, `row` bytes apart. */
static inline void kv_pack_k8(kv_type type, const int8_t *n, uint8_t *at, size_t row) {
    if (type == KV_TQ3) {
        unsigned w = 0;
        for (int i = 0; i < 8; i++) w |= (unsigned)n[i] << (3 * i);
        for (size_t i = 0; i < 3; i++) at[i * row] = (uint8_t)(w >> (8 * i));
        return;
    }
    if (type == KV_TQ2) {
        at[0] = kv_crumbs4(n, 1);
        at[row] = kv_crumbs4(n + 4, 1);
        return;
    }
    for (size_t i = 0; i < 4; i++) at[i * row] = (uint8_t)((n[2 * i] & 15) | (n[2 * i + 1] & 15) << 4);
    if (type == KV_Q5_0) at[4 * row] = kv_bits8(n, 4);
}

/* 32 numbers of three bits: vi_thirds reads them. */
static inline void kv_thirds32(const int8_t *n, uint8_t *b) {
    unsigned w[8];
    for (int i = 0; i < 8; i++) {
        w[i] = (unsigned)n[i] | (unsigned)n[i + 8] << 3 | (unsigned)n[i + 16] << 6 | (unsigned)n[i + 24] << 9;
        b[i] = (uint8_t)w[i];
    }
    for (int i = 0; i < 4; i++) b[8 + i] = (uint8_t)(w[i] >> 8 | w[i + 4] >> 8 << 4);
}

/* A row of V of less than 8 bits; the last group of q4_0 may be short. */
static void kv_pack_v(kv_type type, const int8_t *n, int dim, uint8_t *b) {
    for (int g = 0; g < dim; g += KV_GROUP, n += KV_GROUP) {
        const int size = dim - g < KV_GROUP ? dim - g : KV_GROUP, half = size / 2;
        if (type == KV_TQ3) {
            kv_thirds32(n, b);
            b += 12;
        } else if (type == KV_TQ2) {
            for (int i = 0; i < 8; i++) *b++ = kv_crumbs4(n + i, 8);
        } else {
            for (int i = 0; i < half; i++) *b++ = (uint8_t)((n[i] & 15) | (n[half + i] & 15) << 4);
        }
        for (int i = 0; type == KV_Q5_0 && i < size; i += 8) *b++ = kv_bits8(n + i, 4);
    }
}

#endif
