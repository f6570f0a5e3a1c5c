/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AVX-512 unpacking of 256-wide blocks. The block headers are transposed like the values, so that scales of 16 rows are
 * decoded together. Layouts: tensor/blocks.h.
 */
#include "kernels/cpu/avx512/matmul_avx512.h"

/* Byte j of each lane, to float. */
INLINE __m512 byte_float(__m512i v, int j) {
    return _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32(v, (unsigned)j * 8), _mm512_set1_epi32(255)));
}

/* The 16-byte header of q4_k and q5_k: d, dmin, twelve bytes of 6-bit scales and minima. */
INLINE void k4_scales(const format_at *at, __m512 *scale, __m512 *min) {
    const __m512i m6 = _mm512_set1_epi8(0x3f), m4 = _mm512_set1_epi8(0x0f), m2 = _mm512_set1_epi8(0x30);
    __m512i       h[4];
    transpose16(at->data, at->stride, h);
    __m512  d = low_f16(h[0]), dmin = _mm512_sub_ps(_mm512_setzero_ps(), high_f16(h[0]));
    __m512i sc[2], mn[2];
    sc[0] = _mm512_and_si512(h[1], m6);
    mn[0] = _mm512_and_si512(h[2], m6);
    sc[1] = _mm512_or_si512(_mm512_and_si512(h[3], m4), _mm512_and_si512(_mm512_srli_epi32(h[1], 2), m2));
    mn[1] = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi32(h[3], 4), m4),
                            _mm512_and_si512(_mm512_srli_epi32(h[2], 2), m2));
    for (int j = 0; j < 8; j++) {
        scale[j] = _mm512_mul_ps(d, byte_float(sc[j / 4], j % 4));
        min[j] = _mm512_mul_ps(dmin, byte_float(mn[j / 4], j % 4));
    }
}

#define q4_k_bytes 144
INLINE void q4_k_scales(const format_at *at, __m512 *scale, __m512 *min) { k4_scales(at, scale, min); }
INLINE void q4_k_part(const format_at *at, int part, void *sink, emit_fn *emit) {
    __m512i v[8];
    transpose16(at->data + 16 + 32 * part, at->stride, v);
    transpose16(at->data + 32 + 32 * part, at->stride, v + 4);
    for (int j = 0; j < 8; j++) emit(sink, j, low_nibbles(v[j]));
    for (int j = 0; j < 8; j++) emit(sink, 8 + j, high_nibbles(v[j]));
}
MATMUL_FORMAT(q4_k, 256, 64, 32, 0, true)
