/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/twin.h"

#include "kernels/cuda/layout.h"
#include "kernels/cuda/recode.h"
#include "tensor/blocks.h"
#include "tensor/codec.h"
#include "tensor/half.h"
#include "tensor/iq_grids.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const cuda_twin_chip cuda_twin_hopper = { 16, 25 };
const cuda_twin_chip cuda_twin_ampere = { 8, 24 };

/* value = mant * 2^exp; top is the exponent of the format (the place of the leading bit of a normal number). */
typedef struct term {
    int64_t mant;
    int     exp, top;
} term;

static term split16(bool bf16, uint16_t h) {
    const int bits = bf16 ? 7 : 10, bias = bf16 ? 127 : 15, field = (h & 0x7fff) >> bits;
    int64_t   mant = h & ((1 << bits) - 1);
    if (field) mant |= 1 << bits;
    const int top = (field ? field : 1) - bias;
    return (term){ h & 0x8000 ? -mant : mant, top - bits, top };
}

static term split32(float f) {
    uint32_t  u = tensor_f32_bits(f);
    const int field = u >> 23 & 255;
    int64_t   mant = u & 0x7fffff;
    if (field) mant |= 0x800000;
    const int top = (field ? field : 1) - 127;
    return (term){ u >> 31 ? -mant : mant, top - 23, top };
}

static bool is_finite16(bool bf16, uint16_t h) { return bf16 ? (h & 0x7f80) != 0x7f80 : (h & 0x7c00) != 0x7c00; }

/* t in units of 2^unit, cut towards zero. */
static int64_t cut(term t, int unit) {
    int64_t   m = t.mant < 0 ? -t.mant : t.mant;
    const int shift = t.exp - unit;
    m = shift >= 0 ? m << shift : shift > -63 ? m >> -shift : 0;
    return t.mant < 0 ? -m : m;
}

/* sum * 2^unit as a float, cut towards zero. */
static float to_float(int64_t sum, int unit) {
    uint64_t m = (uint64_t)(sum < 0 ? -sum : sum);
    int      e = unit;
    while (m >= 1u << 24 || (m && e < -149)) m >>= 1, e++;
    float f = ldexpf((float)m, e);
    if (isinf(f)) f = INFINITY;
    return sum < 0 ? -f : f;
}

static float add_group(cuda_twin_chip chip, bool bf16, const uint16_t *a, const uint16_t *b, float acc) {
    term t[17];
    int  n = 0, top = -1000;
    for (int i = 0; i < chip.group; i++) {
        if (!is_finite16(bf16, a[i]) || !is_finite16(bf16, b[i])) return NAN;
        term x = split16(bf16, a[i]), y = split16(bf16, b[i]);
        t[n] = (term){ x.mant * y.mant, x.exp + y.exp, x.top + y.top };
        if (t[n].mant) n++;
    }
    if (!isfinite(acc)) return acc;
    t[n] = split32(acc);
    if (t[n].mant) n++;
    if (n == 0) return 0;
    for (int i = 0; i < n; i++) {
        if (t[i].top > top) top = t[i].top;
    }
    const int unit = top - chip.fraction;
    int64_t   sum = 0;
    for (int i = 0; i < n; i++) sum += cut(t[i], unit);
    return to_float(sum, unit);
}

float cuda_twin_chain(cuda_twin_chip chip, bool bf16, const uint16_t *a, const uint16_t *b, int64_t n, float acc) {
    for (int64_t i = 0; i < n; i += chip.group) acc = add_group(chip, bf16, a + i, b + i, acc);
    return acc;
}

/* A double to the nearest half, ties to even, in one rounding. */
static uint16_t round16(double v) {
    const uint16_t sign = signbit(v) ? 0x8000 : 0;
    double         a = fabs(v);
    int            e;
    if (a == 0) return sign;
    frexp(a, &e); /* a in [2^(e-1), 2^e) */
    if (e < -13) e = -13;
    a = nearbyint(ldexp(a, 11 - e)); /* units of the last place */
    return (uint16_t)(sign | tensor_f32_to_f16((float)ldexp(a, e - 11)));
}

static double half(uint16_t h) { return (double)tensor_f16_to_f32(h); }

/* A scale of the file, divided by 2^power, times 2^e. */
static double scaled(uint16_t h, int power, int e) { return half(round16(ldexp(half(h), e - power))); }

static void weights_q2_k(const block_q2_k *b, int power, uint16_t *out) {
    const double d = scaled(b->d, power, 24), dmin = scaled(b->dmin, power, 12);
    for (int i = 0; i < 256; i++) {
        const double s = half(round16(d * (b->scales[i / 16] & 15)));
        const double m = half(round16(ldexp(dmin * (b->scales[i / 16] >> 4), -12)));
        out[i] = round16(ldexp((b->qs[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3) * s, -24) - m);
    }
}

/* Q4_K, and Q5_K where there are fifth bits. */
static void weights_k4(const block_q4_k *b, const uint8_t *qh, const uint8_t *qs, int power, uint16_t *out) {
    const double d = scaled(b->d, power, 24), dmin = scaled(b->dmin, power, 12);
    for (int j = 0; j < 8; j++) {
        int sc, mn;
        block_k4_scale_min(b->scales, j, &sc, &mn);
        const double s = half(round16(d * sc)), m = half(round16(ldexp(dmin * mn, -12)));
        for (int l = 0; l < 32; l++) {
            const int q = (qs[j / 2 * 32 + l] >> (j % 2 * 4) & 15) | (qh ? (qh[l] >> j & 1) << 4 : 0);
            out[32 * j + l] = round16(ldexp(q * s, -24) - m);
        }
    }
}

static void weights_q4_k(const block_q4_k *b, int power, uint16_t *out) { weights_k4(b, NULL, b->qs, power, out); }

static void weights_q5_k(const block_q5_k *b, int power, uint16_t *out) {
    weights_k4((const block_q4_k *)b, b->qh, b->qs, power, out); /* the same beginning */
}

/* s * 2^-24 * (q - zero), where the subtrahend is rounded. */
static uint16_t less_zero(double s, int q, int zero) {
    return round16(ldexp(q * s, -24) - half(round16(ldexp(zero * s, -24))));
}

static void weights_q3_k(const block_q3_k *b, int power, uint16_t *out) {
    for (int i = 0; i < 256; i++) {
        const int low = b->qs[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3, high = b->hmask[i % 32] >> (i / 32) & 1;
        const int sc = block_q3_k_scale(b->scales, i / 16);
        out[i] = less_zero(half(round16(scaled(b->d, power, 24) * sc)), low | high << 2, 4);
    }
}

static void weights_q6_k(const block_q6_k *b, int power, uint16_t *out) {
    for (int i = 0; i < 256; i++) {
        const int h = i / 128, s = i % 128 / 32, l = i % 32;
        const int low = b->ql[64 * h + 32 * (s % 2) + l] >> (s / 2 * 4) & 15, high = b->qh[32 * h + l] >> (2 * s) & 3;
        const int sc = b->scales[i / 16];
        out[i] = less_zero(half(round16(scaled(b->d, power, 24) * sc)), low | high << 4, 32);
    }
}

static void weights_q4_0(const block_q4_0 *b, int power, uint16_t *out) {
    for (int i = 0; i < 32; i++) out[i] = less_zero(scaled(b->d, power, 24), b->qs[i % 16] >> (i / 16 * 4) & 15, 8);
}

static void weights_mxfp4(const block_mxfp4 *b, int power, uint16_t *out) {
    static const double e2m1[8] = { 0, 0.5, 1, 1.5, 2, 3, 4, 6 };
    for (int i = 0; i < 32; i++) {
        const int q = b->qs[i % 16] >> (i / 16 * 4) & 15;
        out[i] = round16((q & 8 ? -1 : 1) * ldexp(e2m1[q & 7], b->e - power - CUDA_MXFP4_TOP + 1));
    }
}

static void weights_q8_0(const block_q8_0 *b, int power, uint16_t *out) {
    for (int i = 0; i < 32; i++) out[i] = less_zero(scaled(b->d, power, 24), b->qs[i] + 128, 128);
}

/* A float, divided by 2^power, times 2^e. */
static double scaled_float(float f, int power, int e) { return half(round16(ldexp((double)f, e - power))); }

static void weights_table(const cuda_table_block *b, int group, int power, int n, uint16_t *out) {
    for (int i = 0; i < n; i++)
        out[i] = less_zero(scaled_float(b->scale[i / group * group / 16], power, 24),
                           b->values[b->codes[i / 2] >> (i % 2 * 4) & 15], 128);
}

static void weights_pair(const cuda_pair_block *b, int power, uint16_t *out) {
    const double s = scaled_float(b->scale, power, 24), m = scaled_float(b->min, power, 0);
    for (int i = 0; i < 32; i++) out[i] = round16(ldexp(b->q[i] * s, -24) + m);
}

/* Of E4M3 the scale is held times 2^8 and the number divided by it; the code of its NaN is a number like others. */
static void weights_float8(const cuda_float8_block *b, bool e5m2, int power, int n, uint16_t *out) {
    const double s = scaled_float(b->scale, power, e5m2 ? 0 : 8);
    for (int i = 0; i < n; i++) {
        const int    m = b->q[i] & 0x7f;
        const double v = e5m2 ? half((uint16_t)(m << 8)) : m < 8 ? ldexp(m, -9 - 8) : ldexp(8 + m % 8, m / 8 - 10 - 8);
        out[i] = round16(b->q[i] & 0x80 ? -v * s : v * s);
    }
}

static void weights_nf4(const cuda_nf4_block *b, int power, int n, uint16_t *out) {
    for (int i = 0; i < n; i++) {
        const double u = (double)tensor_nf4_values[b->codes[i / 2] >> (i % 2 * 4) & 15] * (double)CUDA_NF4_UNIT;
        out[i] = round16(half(round16(u)) * scaled_float(b->scale[i / 64], power, 0));
    }
}

/* A block of an IQ type in whole numbers: w = d * factor[i / 16] * 2^-unit * q[i]. */
typedef struct whole {
    double d;
    int    unit, factor[16];
    int8_t q[256];
} whole;

static void put_signs(int8_t *q, unsigned signs) {
    for (int i = 0; i < 8; i++) q[i] = (int8_t)(signs >> i & 1 ? -q[i] : q[i]);
}

static void whole_iq2(tensor_type type, const uint8_t *block, whole *w) {
    const block_iq2_xxs *xxs = (const block_iq2_xxs *)block;
    const block_iq2_xs  *xs = (const block_iq2_xs *)block;
    const block_iq2_s   *s = (const block_iq2_s *)block;
    w->d = half(s->d), w->unit = 3;
    for (int i = 0; i < 32; i++) { /* eight elements */
        unsigned row, signs, scale;
        if (type == TENSOR_IQ2_XXS) {
            const uint32_t more = xxs->qs[i / 4 * 4 + 2] | (uint32_t)xxs->qs[i / 4 * 4 + 3] << 16;
            row = tensor_iq2_xxs_grid[xxs->qs[i / 4 * 4 + i % 4 / 2] >> (i % 2 * 8) & 255];
            signs = tensor_iq_signs(more >> (i % 4 * 7) & 127), scale = more >> 28;
        } else if (type == TENSOR_IQ2_XS) {
            row = tensor_iq2_xs_grid[xs->qs[i] & 511];
            signs = tensor_iq_signs(xs->qs[i] >> 9), scale = xs->scales[i / 4] >> (i % 4 / 2 * 4) & 15;
        } else {
            row = tensor_iq2_s_grid[s->qs[i] | (s->qh[i / 4] >> (i % 4 * 2) & 3) << 8];
            signs = s->signs[i], scale = s->scales[i / 4] >> (i % 4 / 2 * 4) & 15;
        }
        tensor_iq2_row(w->q + 8 * i, row);
        put_signs(w->q + 8 * i, signs);
        w->factor[i / 2] = (int)(2 * scale + 1);
    }
}

static void whole_iq3(tensor_type type, const uint8_t *block, whole *w) {
    const block_iq3_xxs *xxs = (const block_iq3_xxs *)block;
    const block_iq3_s   *s = (const block_iq3_s *)block;
    w->d = half(s->d), w->unit = type == TENSOR_IQ3_XXS ? 2 : 0;
    for (int i = 0; i < 32; i++) {
        int8_t  *q = w->q + 8 * i;
        unsigned scale;
        if (type == TENSOR_IQ3_XXS) {
            const uint32_t more = xxs->signs[i / 4];
            for (int k = 0; k < 2; k++) tensor_iq3_xxs_row(q + 4 * k, xxs->qs[2 * i + k]);
            put_signs(q, tensor_iq_signs(more >> (i % 4 * 7) & 127));
            scale = more >> 28;
        } else {
            for (int k = 0; k < 2; k++)
                tensor_iq3_s_row(q + 4 * k, s->qs[2 * i + k] | (s->qh[i / 4] >> (i % 4 * 2 + k) & 1u) << 8);
            put_signs(q, s->signs[i]);
            scale = s->scales[i / 8] >> (i % 8 / 4 * 4) & 15;
        }
        w->factor[i / 2] = (int)(2 * scale + 1);
    }
}

/* The codebook and an eighth, times eight. */
static void whole_iq1(tensor_type type, const uint8_t *block, whole *w) {
    const block_iq1_s *s = (const block_iq1_s *)block;
    const block_iq1_m *m = (const block_iq1_m *)block;
    unsigned           quarters = 0;
    for (int i = 0; type == TENSOR_IQ1_M && i < 4; i++) quarters |= (unsigned)(m->scales[i] >> 12) << (4 * i);
    w->d = half(type == TENSOR_IQ1_S ? s->d : (uint16_t)quarters), w->unit = 3;
    for (int i = 0; i < 32; i++) {
        unsigned row, minus, scale;
        if (type == TENSOR_IQ1_S) {
            row = s->qs[i] | (s->qh[i / 4] >> (i % 4 * 3) & 7u) << 8;
            minus = s->qh[i / 4] >> 15, scale = s->qh[i / 4] >> 12 & 7;
        } else {
            const unsigned high = m->qh[i / 2] >> (i % 2 * 4) & 15;
            row = m->qs[i] | (high & 7) << 8, minus = high >> 3, scale = m->scales[i / 8] >> (i % 8 / 2 * 3) & 7;
        }
        tensor_iq1_row(w->q + 8 * i, row);
        for (int k = 0; k < 8; k++) w->q[8 * i + k] = (int8_t)(8 * w->q[8 * i + k] + (minus ? -1 : 1));
        w->factor[i / 2] = (int)(2 * scale + 1);
    }
}

static bool whole_of(tensor_type type, const void *block, whole *w) {
    switch (type) {
    case TENSOR_IQ2_XXS:
    case TENSOR_IQ2_XS:
    case TENSOR_IQ2_S: whole_iq2(type, block, w); return true;
    case TENSOR_IQ3_XXS:
    case TENSOR_IQ3_S: whole_iq3(type, block, w); return true;
    case TENSOR_IQ1_S:
    case TENSOR_IQ1_M: whole_iq1(type, block, w); return true;
    default: return false;
    }
}

static void weights_iq(tensor_type type, const void *block, int power, uint16_t *out) {
    whole w;
    if (!whole_of(type, block, &w)) return;
    const double d = half(round16(ldexp(w.d, 24 - w.unit - power)));
    for (int i = 0; i < 256; i++) {
        const double s = half(round16(d * w.factor[i / 16]));
        out[i] = type == TENSOR_IQ3_XXS || type == TENSOR_IQ3_S ? round16(ldexp(s * w.q[i], -24))
                                                                : less_zero(s, 128 + w.q[i], 128);
    }
}

bool cuda_twin_weights(tensor_type type, const void *row, int64_t n, int power, uint16_t *out) {
    switch (type) {
    case TENSOR_F16:
    case TENSOR_BF16: memcpy(out, row, (size_t)n * 2); return true;
    case TENSOR_Q4_0:
        for (int64_t i = 0; i < n / 32; i++) weights_q4_0((const block_q4_0 *)row + i, power, out + 32 * i);
        return true;
    case TENSOR_MXFP4:
        for (int64_t i = 0; i < n / 32; i++) weights_mxfp4((const block_mxfp4 *)row + i, power, out + 32 * i);
        return true;
    case TENSOR_Q8_0:
        for (int64_t i = 0; i < n / 32; i++) weights_q8_0((const block_q8_0 *)row + i, power, out + 32 * i);
        return true;
    case TENSOR_Q2_K:
        for (int64_t i = 0; i < n / 256; i++) weights_q2_k((const block_q2_k *)row + i, power, out + 256 * i);
        return true;
    case TENSOR_Q3_K:
        for (int64_t i = 0; i < n / 256; i++) weights_q3_k((const block_q3_k *)row + i, power, out + 256 * i);
        return true;
    case TENSOR_Q4_K:
        for (int64_t i = 0; i < n / 256; i++) weights_q4_k((const block_q4_k *)row + i, power, out + 256 * i);
        return true;
    case TENSOR_Q5_K:
        for (int64_t i = 0; i < n / 256; i++) weights_q5_k((const block_q5_k *)row + i, power, out + 256 * i);
        return true;
    case TENSOR_Q6_K:
        for (int64_t i = 0; i < n / 256; i++) weights_q6_k((const block_q6_k *)row + i, power, out + 256 * i);
        return true;
    case TENSOR_IQ2_XXS:
    case TENSOR_IQ2_XS:
    case TENSOR_IQ2_S:
    case TENSOR_IQ3_XXS:
    case TENSOR_IQ3_S:
    case TENSOR_IQ1_S:
    case TENSOR_IQ1_M:
        for (int64_t i = 0; i < n / 256; i++)
            weights_iq(type, (const uint8_t *)row + i * tensor_type_get((int)type)->block_bytes, power, out + 256 * i);
        return true;
    case TENSOR_TABLE32:
    case TENSOR_TABLE16:
        for (int64_t i = 0; i < n; i += 256)
            weights_table((const cuda_table_block *)row + i / 256, type == TENSOR_TABLE32 ? 32 : 16, power,
                          n - i < 256 ? (int)(n - i) : 256, out + i);
        return true;
    case TENSOR_PAIR2:
    case TENSOR_PAIR3:
    case TENSOR_PAIR4:
    case TENSOR_PAIR5:
    case TENSOR_PAIR8:
        for (int64_t i = 0; i < n / 32; i++) weights_pair((const cuda_pair_block *)row + i, power, out + 32 * i);
        return true;
    case TENSOR_E4M3_128:
    case TENSOR_E4M3_32:
    case TENSOR_E5M2_32:
        for (int64_t i = 0; i < n; i += 32)
            weights_float8((const cuda_float8_block *)row + i / 32, type == TENSOR_E5M2_32, power,
                           n - i < 32 ? (int)(n - i) : 32, out + i);
        return true;
    case TENSOR_NF4_64:
        for (int64_t i = 0; i < n; i += 256)
            weights_nf4((const cuda_nf4_block *)row + i / 256, power, n - i < 256 ? (int)(n - i) : 256, out + i);
        return true;
    default: return false;
    }
}

static uint32_t top_of(float v) { return isfinite(v) ? tensor_f32_bits(fabsf(v)) : 0; }

static uint32_t most_of(uint32_t a, uint32_t b) { return a > b ? a : b; }

static uint32_t magnitude(uint16_t d, double by) {
    const double v = fabs(half(d)) * by;
    return isfinite(v) ? tensor_f32_bits((float)v) : 0;
}

static uint32_t block_top(tensor_type type, const uint8_t *b) {
    int      most = 0, sc, mn;
    uint32_t low;
    whole    w;
    if (whole_of(type, b, &w)) {
        for (int i = 0; i < 16; i++) most = w.factor[i] > most ? w.factor[i] : most;
        return top_of((float)ldexp(w.d * most, -w.unit));
    }
    switch (type) {
    case TENSOR_MXFP4: return ((const block_mxfp4 *)b)->e;
    case TENSOR_Q4_0: return magnitude(((const block_q4_0 *)b)->d, 1);
    case TENSOR_Q8_0: return magnitude(((const block_q8_0 *)b)->d, 1);
    case TENSOR_Q2_K:
        for (int i = 0; i < 16; i++) {
            sc = ((const block_q2_k *)b)->scales[i] & 15;
            most = sc > most ? sc : most;
        }
        return most_of(magnitude(((const block_q2_k *)b)->d, most), magnitude(((const block_q2_k *)b)->dmin, 0x1p-12));
    case TENSOR_TABLE32:
    case TENSOR_TABLE16:
        low = 0;
        for (int i = 0; i < 16; i++) low = most_of(low, top_of(((const cuda_table_block *)b)->scale[i]));
        return low;
    case TENSOR_PAIR2:
    case TENSOR_PAIR3:
    case TENSOR_PAIR4:
    case TENSOR_PAIR5:
    case TENSOR_PAIR8:
        return most_of(top_of(((const cuda_pair_block *)b)->scale),
                       top_of(((const cuda_pair_block *)b)->min * 0x1p-12f));
    case TENSOR_NF4_64:
        low = 0;
        for (int i = 0; i < 4; i++) low = most_of(low, top_of(((const cuda_nf4_block *)b)->scale[i]));
        return low;
    case TENSOR_E4M3_128:
    case TENSOR_E4M3_32:
    case TENSOR_E5M2_32: return top_of(((const cuda_float8_block *)b)->scale);
    case TENSOR_Q3_K:
        for (int i = 0; i < 16; i++) {
            sc = abs(block_q3_k_scale(((const block_q3_k *)b)->scales, i));
            most = sc > most ? sc : most;
        }
        return magnitude(((const block_q3_k *)b)->d, most);
    case TENSOR_Q6_K:
        for (int i = 0; i < 16; i++) {
            sc = abs(((const block_q6_k *)b)->scales[i]);
            most = sc > most ? sc : most;
        }
        return magnitude(((const block_q6_k *)b)->d, most);
    default: /* Q4_K and Q5_K begin alike */
        for (int j = 0; j < 8; j++) {
            block_k4_scale_min(((const block_q4_k *)b)->scales, j, &sc, &mn);
            most = sc > most ? sc : most;
        }
        low = magnitude(((const block_q4_k *)b)->dmin, 0x1p-12);
        return most_of(magnitude(((const block_q4_k *)b)->d, most), low);
    }
}

int cuda_twin_power(tensor_type type, const void *blocks, int64_t n, size_t bytes) {
    uint32_t top = 0;
    if (type == TENSOR_F16 || type == TENSOR_BF16) return 0;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t t = block_top(type, (const uint8_t *)blocks + (size_t)i * bytes);
        if (t > top) top = t;
    }
    return cuda_pack_power(type, top);
}

int cuda_twin_row(bool bf16, const float *x, int64_t n, uint16_t *out) {
    uint32_t top = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t u = tensor_f32_bits(x[i]) & 0x7fffffffu;
        if (u > top) top = u;
    }
    const int e = bf16 ? 0 : cuda_row_exponent(top);
    for (int64_t i = 0; i < n; i++)
        out[i] = bf16 ? tensor_f32_to_bf16(x[i]) : tensor_f32_to_f16(x[i] * tensor_bits_f32((uint32_t)(127 - e) << 23));
    return e;
}

float cuda_twin_product(cuda_twin_chip chip, bool bf16, const uint16_t *w, const uint16_t *x, int64_t cols,
                        int x_exponent) {
    const int64_t step = cuda_slice_cols(cols), padded = cuda_round_up(cols, 16);
    float         sum = 0;
    for (int64_t k = 0; k < padded; k += step)
        sum += cuda_twin_chain(chip, bf16, w + k, x + k, padded - k < step ? padded - k : step, 0);
    return sum * tensor_bits_f32((uint32_t)(127 + x_exponent) << 23);
}
