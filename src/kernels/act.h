/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Activations in int8: the one format that every quantized weight type multiplies with.
 *
 * A row of n values (n a multiple of 32) is n / 32 blocks of 44 bytes, row after row, nothing interleaved between rows
 * and nothing packed later: matmul reads these rows as they are, for any number of rows and through any list of row
 * numbers. So a quantizing epilogue (norm, GLU, attention output) writes one row at a time: it computes f32 values into
 * a small buffer and calls the act_quantize slot on it, in pieces of any multiple of 32.
 *
 *     value k of a block = d * q[k]
 *     ds  = d * (sum of q[0..31])           f32, rounded once; serves weights with a minimum
 *     s   = sums of q[0..15] and q[16..31]  serves weights with a zero point
 *
 * How a block of x becomes q, the same on every instruction set, bit for bit:
 *     m = the largest |x|, compared as bit patterns (so Inf and NaN are larger than all numbers)
 *     m not finite:  d = ds = NaN, q = 0     the output row becomes NaN, never a made-up number
 *     m < ACT8_TINY: d = ds = 0, q = 0       127 / m would overflow
 *     otherwise:     d = m / 127, q = x * (127 / m) rounded to nearest even, so |q| <= 127
 */
#ifndef KERNELS_ACT_H
#define KERNELS_ACT_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define ACT8_BLOCK 32
#define ACT8_TINY 1e-30f

typedef struct act8 {
    float   d, ds;
    int16_t s[2];
    int8_t  q[ACT8_BLOCK];
} act8;
static_assert(sizeof(act8) == 44, "activation blocks are 44 bytes");

/* Bytes of a row of n values; n is a multiple of 32. */
static inline size_t act8_row_bytes(int64_t n) { return (size_t)n / ACT8_BLOCK * sizeof(act8); }

/* Quantizes n values (a multiple of 32). x and out need no alignment beyond that of their elements. */
typedef void act_quantize_fn(act8 *out, const float *x, int64_t n);

#endif
