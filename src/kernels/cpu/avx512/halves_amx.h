/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of weights and activations, and tiles (cpu/matmul_halves.h). */
#ifndef KERNELS_CPU_AVX512_HALVES_AMX_H
#define KERNELS_CPU_AVX512_HALVES_AMX_H

#include "kernels/cpu/matmul_halves.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16") /* arrays of registers stay in registers only if every index is constant */

/* Compilers do not know that tile loads read memory: what was stored before this is there for them. */
#define TILES_SEE_MEMORY() __asm__ volatile("" ::: "memory")

/* How many rows and bytes of a row each tile register has; the layout is the processor's. */
typedef struct tile_config {
    uint8_t  palette, start, zero[14];
    uint16_t row_bytes[16];
    uint8_t  rows[16];
} tile_config;

/* 32 values as f32 bits: inputs 0..15 and 16..31. */
typedef struct halves_block {
    __m512i a, b;
} halves_block;

INLINE __mmask16 mask16(int64_t n) { return (__mmask16)(n >= 16 ? 0xffff : n <= 0 ? 0 : (1 << n) - 1); }

INLINE __m512i top(__m512i v) {
    v = _mm512_add_epi32(v, _mm512_set1_epi32(0x8000));
    return _mm512_and_si512(v, _mm512_set1_epi32((int)0xffff0000));
}

INLINE __m512i minus(__m512i a, __m512i b) {
    return _mm512_castps_si512(_mm512_sub_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b)));
}

/* The upper halves of a and b as 16 pairs; the lower ones are zero, but for numbers so small that tiles take them as
 * zero. With F16 a pair is inputs i and i + 16, which costs no shuffling; BF16 weights lie as pairs 2i and 2i + 1, so
 * activations follow. */
INLINE __m512i pairs(__m512i a, __m512i b, bool f16) {
    if (f16) /* the lower half of a pair from a, the upper one from b */
        return _mm512_ternarylogic_epi32(_mm512_srli_epi32(a, 16), b, _mm512_set1_epi32((int)0xffff0000), 0xf8);
    const __m512i odd = _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27, 25,
                                         23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return _mm512_permutex2var_epi16(a, odd, b);
}

/* left: inputs from x on, 32 or more for a whole block. */
INLINE void split_x(const float *x, int64_t left, __m512i piece[HALVES_X], bool f16) {
    halves_block v;
    if (left >= HALVES_BLOCK) {
        v = (halves_block){ _mm512_loadu_si512(x), _mm512_loadu_si512(x + 16) };
    } else {
        v.a = _mm512_maskz_loadu_epi32(mask16(left), x);
        v.b = left > 16 ? _mm512_maskz_loadu_epi32(mask16(left - 16), x + 16) : _mm512_setzero_si512();
    }
    halves_block x0 = { top(v.a), top(v.b) };
    v = (halves_block){ minus(v.a, x0.a), minus(v.b, x0.b) };
    halves_block x1 = { top(v.a), top(v.b) };
    v = (halves_block){ minus(v.a, x1.a), minus(v.b, x1.b) };
    piece[0] = pairs(x0.a, x0.b, f16);
    piece[1] = pairs(x1.a, x1.b, f16);
    piece[2] = pairs(v.a, v.b, f16);
}

INLINE __m512i widen(const uint8_t *w, int64_t left, bool whole) {
    __m256i h = whole ? _mm256_loadu_si256((const void *)w) : _mm256_maskz_loadu_epi16(mask16(left), w);
    return _mm512_castps_si512(_mm512_cvtph_ps(h));
}

/* 32 weights as pairs of pieces; whole: left is 32 or more. */
INLINE void split_w(const uint8_t *w, int64_t left, bool whole, __m512i piece[2], bool f16) {
    if (!f16) {
        __mmask32 mask = left >= 32 ? ~0u : (1u << left) - 1;
        piece[0] = whole ? _mm512_loadu_si512(w) : _mm512_maskz_loadu_epi16(mask, w);
        return;
    }
    halves_block v = { widen(w, left, whole), _mm512_setzero_si512() };
    if (whole || left > 16) v.b = widen(w + 32, left - 16, whole);
    halves_block w0 = { top(v.a), top(v.b) };
    piece[0] = pairs(w0.a, w0.b, true);
    piece[1] = pairs(minus(v.a, w0.a), minus(v.b, w0.b), true);
}

#endif
