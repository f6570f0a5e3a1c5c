/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Activations in int8: the one format that every quantized weight type multiplies with.
 *
 * A row of n values (n a multiple of 32) is n / 32 blocks of 48 bytes, row after row, nothing interleaved between rows:
 * matmul takes these rows as they are, for any number of rows and through any list of row numbers (for a few rows its
 * kernels want them side by side: it packs them itself, matmul_drive.c). So a quantizing epilogue (norm, GLU, attention
 * output) writes one row at a time: it computes f32 values into a small buffer and calls the act_quantize slot on it,
 * in pieces of any multiple of 32.
 *
 *     value k of a block = d * q[k]
 *     ds  = d * sum                         serves weights with a minimum
 *     sum = the sum of q[0..31]             serves weights with a zero point
 *     s   = sums of q[0..15] and q[16..31]  the same for scales per 16
 *
 * How a block of x becomes q, the same on every instruction set, bit for bit:
 *
 *     m = the largest |x|, compared as bit patterns (so Inf and NaN are larger than all numbers)
 *     m > ACT8_HUGE or NaN: d = ds = NaN, q = 0     the output row becomes NaN, never a made-up number
 *     m < ACT8_TINY:        d = ds = 0, q = 0
 *     otherwise:            d = m / 127, rounded up to a power of two times 1, 9/8, ... 15/8
 *                           q = x * (1 / d) rounded to nearest even, so |q| <= 127
 *
 * Scales of so few digits make every product of a weight's scale and d the product of two small numbers: matrix kernels
 * keep the eight multiples of a weight's scale beside it and are left with a power of two, which costs no multiplier
 * (avx512/matmul_tile8.c). Rounding up widens the steps by 4.5% on average, 12.5% at most.
 */
#ifndef KERNELS_ACT_H
#define KERNELS_ACT_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define ACT8_BLOCK 32
#define ACT8_TINY 1e-30f
#define ACT8_HUGE 1e30f
#define ACT8_STEPS 8 /* scales per power of two */

typedef struct act8 {
    float   d, ds;
    int32_t sum;
    int16_t s[2];
    int8_t  q[ACT8_BLOCK];
} act8;
static_assert(sizeof(act8) == 48, "activation blocks are 48 bytes");

/* The scale of a block whose largest |x| is m, ACT8_TINY <= m <= ACT8_HUGE. */
static inline float act8_scale(float m) {
    const uint32_t below = (1u << 20) - 1; /* digits behind the third */
    float          d = m / 127.0f;
    uint32_t       bits;
    memcpy(&bits, &d, sizeof bits);
    bits = (bits + below) & ~below;
    memcpy(&d, &bits, sizeof d);
    return d;
}

/* Which of the eight multiples of a power of two a scale is. */
static inline uint32_t act8_step(float d) {
    uint32_t bits;
    memcpy(&bits, &d, sizeof bits);
    return bits >> 20 & (ACT8_STEPS - 1);
}

/* Bytes of a row of n values; n is a multiple of 32. */
static inline size_t act8_row_bytes(int64_t n) { return (size_t)n / ACT8_BLOCK * sizeof(act8); }

/* Quantizes n values (a multiple of 32). x and out need no alignment beyond that of their elements. */
typedef void act_quantize_fn(act8 *out, const float *x, int64_t n);

#endif
