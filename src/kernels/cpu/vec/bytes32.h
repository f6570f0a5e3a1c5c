/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of 32 dimensions of V (kernels/kvpage.h) as 32 bytes, for AVX2 and, twice side by side, for AVX-512. */
#ifndef KERNELS_CPU_VEC_BYTES32_H
#define KERNELS_CPU_VEC_BYTES32_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

static inline __m256i b32_nibs(const uint8_t *p) {
    const __m256i x = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p));
    return _mm256_and_si256(_mm256_srlv_epi32(x, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4)), _mm256_set1_epi8(15));
}

static inline __m256i b32_fifths(const uint8_t *p) {
    const __m256i each = _mm256_set1_epi64x((int64_t)0x8040201008040201u);
    const __m256i from = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    int32_t       bits;
    memcpy(&bits, p, sizeof bits);
    const __m256i x = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(bits), from), each);
    return _mm256_and_si256(_mm256_cmpeq_epi8(x, each), _mm256_set1_epi8(16));
}

static inline __m256i b32_thirds(const uint8_t *p) {
    const __m256i x = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p)); /* twelve; scales lie behind */
    const __m256i low =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, -1, 1, -1, 2, -1, 3, -1, 4, -1, 5, -1, 6, -1, 7, -1));
    const __m256i up =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(8, -1, 9, -1, 10, -1, 11, -1, 8, -1, 9, -1, 10, -1, 11, -1));
    const __m256i times = _mm256_broadcastsi128_si256(_mm_setr_epi16(256, 256, 256, 256, 16, 16, 16, 16));
    const __m256i upper = _mm256_mullo_epi16(_mm256_shuffle_epi8(x, up), times), three = _mm256_set1_epi16(7);
    const __m256i w = _mm256_or_si256(_mm256_shuffle_epi8(x, low), _mm256_and_si256(upper, _mm256_set1_epi16(0xf00)));
    const __m256i n = _mm256_srlv_epi32(w, _mm256_setr_epi32(0, 0, 0, 0, 6, 6, 6, 6));
    return _mm256_packus_epi16(_mm256_and_si256(n, three), _mm256_and_si256(_mm256_srli_epi16(n, 3), three));
}

static inline __m256i b32_crumbs(const uint8_t *p) {
    int64_t x;
    memcpy(&x, p, sizeof x);
    return _mm256_and_si256(_mm256_srlv_epi64(_mm256_set1_epi64x(x), _mm256_setr_epi64x(0, 2, 4, 6)),
                            _mm256_set1_epi8(3));
}

#endif
