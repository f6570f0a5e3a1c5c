/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the quantizers: the peak of a block, and codes of 8 bits.
 *
 * Q8_0 has no search: a file becomes it about as fast as it is copied, and what is here is half of the work. The forms with
 * intrinsics give the bytes of the plain ones; compilers make of those a third of the speed.
 */
#ifndef TENSOR_QUANT_EIGHT_H
#define TENSOR_QUANT_EIGHT_H

#include "tensor/half.h"
#include "tensor/quant/lanes.h"

#include <math.h>
#include <stdint.h>

/* Numbers that are not numbers do not count: the maximum of the second operand, where the first is none. */
static inline float peak_of(const float *x, int n) {
    float most = 0;
    int   i = 0;
#if defined(__AVX512F__)
    __m512 peak = _mm512_setzero_ps();
    for (; i + 16 <= n; i += 16) peak = _mm512_max_ps(_mm512_abs_ps(_mm512_loadu_ps(x + i)), peak);
    most = _mm512_reduce_max_ps(peak);
#elif defined(__AVX2__)
    __m256 peak = _mm256_setzero_ps(), sign = _mm256_set1_ps(-0.0f);
    for (; i + 8 <= n; i += 8) peak = _mm256_max_ps(_mm256_andnot_ps(sign, _mm256_loadu_ps(x + i)), peak);
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(peak), _mm256_extractf128_ps(peak, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    most = _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
#else
    float peak[16] = { 0 };
    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 16; j++) peak[j] = fabsf(x[i + j]) > peak[j] ? fabsf(x[i + j]) : peak[j];
    for (int j = 0; j < 16; j++) most = peak[j] > most ? peak[j] : most;
#endif
    for (; i < n; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    return most;
}

/*
 * To the nearest integer, ties away from zero: the largest number below a half is added to the magnitude, and the fraction
 * cut off. A half would not do: with 0.49999997 it makes 1.
 */
#if defined(__AVX512F__)
static inline __m128i eight_codes(const float *x, __m512 inverse) {
    __m512  t = _mm512_mul_ps(_mm512_loadu_ps(x), inverse);
    __m512i half = _mm512_set1_epi32(0x3effffff), sign = _mm512_set1_epi32(INT32_MIN);
    t = _mm512_min_ps(_mm512_max_ps(t, _mm512_set1_ps(-127)), _mm512_set1_ps(127));
    half = _mm512_ternarylogic_epi32(half, _mm512_castps_si512(t), sign, 0xf8); /* half, with the sign of t */
    return _mm512_cvtepi32_epi8(_mm512_cvttps_epi32(_mm512_add_ps(t, _mm512_castsi512_ps(half))));
}
#elif defined(__AVX2__)
static inline __m256i eight_codes(const float *x, __m256 inverse) {
    __m256 t = _mm256_mul_ps(_mm256_loadu_ps(x), inverse), half = _mm256_set1_ps(0x1.fffffep-2f);
    t = _mm256_min_ps(_mm256_max_ps(t, _mm256_set1_ps(-127)), _mm256_set1_ps(127));
    return _mm256_cvttps_epi32(_mm256_add_ps(t, _mm256_or_ps(half, _mm256_and_ps(t, _mm256_set1_ps(-0.0f)))));
}
#endif

static inline uint16_t eight_half(float v) {
#if defined(__F16C__)
    return (uint16_t)_cvtss_sh(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
    return tensor_f32_to_f16(v);
#endif
}

/* Nearest integers of x / d, within -127..127, ties away from zero: what the reference of these formats does. n is a
 * multiple of 32. */
static inline void codes_of_8(const float *x, int n, float d, int8_t *q) {
    float inverse = d == 0 ? 0 : 1 / d;
#if defined(__AVX512F__)
    for (int j = 0; j < n; j += 16)
        _mm_storeu_si128((__m128i *)(void *)(q + j), eight_codes(x + j, _mm512_set1_ps(inverse)));
#elif defined(__AVX2__)
    __m256 v = _mm256_set1_ps(inverse);
    for (int j = 0; j < n; j += 32) { /* packing interleaves the halves; the last step orders them */
        __m256i low = _mm256_packs_epi32(eight_codes(x + j, v), eight_codes(x + j + 8, v));
        __m256i high = _mm256_packs_epi32(eight_codes(x + j + 16, v), eight_codes(x + j + 24, v));
        __m256i all =
            _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        _mm256_storeu_si256((__m256i *)(void *)(q + j), all);
    }
#else
    for (int j = 0; j < n; j++) {
        float t = x[j] * inverse;
        t = t > -127 ? t : -127;
        t = t < 127 ? t : 127;
        float even = t + 0x1.8p23f - 0x1.8p23f, off = t - even;
        float up = off == 0.5f && t > 0 ? 1.0f : 0.0f, down = off == -0.5f && t < 0 ? 1.0f : 0.0f;
        q[j] = (int8_t)(even + up - down);
    }
#endif
}

#endif
