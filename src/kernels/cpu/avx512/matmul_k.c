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

/* The same, signed. */
INLINE __m512 sbyte_float(__m512i v, int j) {
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(v, 24 - (unsigned)j * 8), 24));
}

/* The 16-byte header of q4_k and q5_k: d, dmin, twelve bytes of 6-bit scales and minima. */
INLINE void k4_scales(format_at *at, __m512 *scale, __m512 *min) {
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
    UNROLL
    for (int j = 0; j < 8; j++) {
        scale[j] = _mm512_mul_ps(d, byte_float(sc[j / 4], j % 4));
        min[j] = _mm512_mul_ps(dmin, byte_float(mn[j / 4], j % 4));
    }
}

#define q4_k_bytes 144
INLINE void q4_k_scales(format_at *at, __m512 *scale, __m512 *min) { k4_scales(at, scale, min); }
INLINE void q4_k_part(const format_at *at, int part, void *sink, emit_fn *emit) {
    __m512i v[8];
    transpose16(at->data + 16 + 32 * part, at->stride, v);
    transpose16(at->data + 32 + 32 * part, at->stride, v + 4);
    UNROLL
    for (int j = 0; j < 8; j++) emit(sink, j, low_nibbles(v[j]));
    UNROLL
    for (int j = 0; j < 8; j++) emit(sink, 8 + j, high_nibbles(v[j]));
}
MATMUL_FORMAT(q4_k, 256, 64, 32, 0, true)

/* (v & 15) | (h & mask & ~15): a choice by mask 15, then the bits that count. */
INLINE __m512i join_bits(__m512i v, __m512i h, int mask) {
    __m512i both = _mm512_ternarylogic_epi32(_mm512_set1_epi8(15), v, h, 0xca);
    return _mm512_and_si512(both, _mm512_set1_epi8((char)(mask | 15)));
}

/* Bit `at` of each byte of h becomes bit 4 above the low nibble of v. */
INLINE __m512i with_fifth(__m512i v, __m512i h, int at) {
    __m512i moved = at <= 4 ? _mm512_slli_epi16(h, 4 - (unsigned)at) : _mm512_srli_epi16(h, (unsigned)at - 4);
    return join_bits(v, moved, 16);
}

#define q5_k_bytes 176
INLINE void q5_k_scales(format_at *at, __m512 *scale, __m512 *min) { k4_scales(at, scale, min); }
INLINE void q5_k_part(const format_at *at, int part, void *sink, emit_fn *emit) {
    UNROLL
    for (int half = 0; half < 2; half++) {
        __m512i v[4], h[4];
        transpose16(at->data + 48 + 32 * part + 16 * half, at->stride, v);
        transpose16(at->data + 16 + 16 * half, at->stride, h);
        UNROLL
        for (int j = 0; j < 4; j++) {
            emit(sink, 4 * half + j, with_fifth(v[j], h[j], 2 * part));
            emit(sink, 8 + 4 * half + j, with_fifth(_mm512_srli_epi16(v[j], 4), h[j], 2 * part + 1));
        }
    }
}
MATMUL_FORMAT(q5_k, 256, 64, 32, 0, true)

#define q6_k_bytes 210
INLINE void q6_k_scales(format_at *at, __m512 *scale, __m512 *min) {
    __m512  d = column_f16(at->data + 208, at->stride);
    __m512i s[4];
    (void)min;
    transpose16(at->data + 192, at->stride, s);
    UNROLL
    for (int j = 0; j < 16; j++) scale[j] = _mm512_mul_ps(d, sbyte_float(s[j / 4], j % 4));
}
/* Half a block: quad 8p + 4h + j of the part is bytes 16h + 4j.. of its quarter p. */
INLINE void q6_k_part(const format_at *at, int part, void *sink, emit_fn *emit) {
    const uint8_t *ql = at->data + 64 * part, *qh = at->data + 128 + 32 * part;
    UNROLL
    for (int half = 0; half < 2; half++) {
        __m512i a[4], b[4], h[4];
        transpose16(ql + 16 * half, at->stride, a);
        transpose16(ql + 32 + 16 * half, at->stride, b);
        transpose16(qh + 16 * half, at->stride, h);
        UNROLL
        for (int j = 0; j < 4; j++) {
            emit(sink, 4 * half + j, join_bits(a[j], _mm512_slli_epi16(h[j], 4), 0x30));
            emit(sink, 8 + 4 * half + j, join_bits(b[j], _mm512_slli_epi16(h[j], 2), 0x30));
            emit(sink, 16 + 4 * half + j, join_bits(_mm512_srli_epi16(a[j], 4), h[j], 0x30));
            emit(sink, 24 + 4 * half + j, join_bits(_mm512_srli_epi16(b[j], 4), _mm512_srli_epi16(h[j], 2), 0x30));
        }
    }
}
MATMUL_FORMAT(q6_k, 256, 128, 16, 32, false)

/* d, scales_h, four bytes of low scale nibbles: one dword and another. */
#define iq4_xs_bytes 136
INLINE void iq4_xs_scales(format_at *at, __m512 *scale, __m512 *min) {
    __m512i h[4];
    (void)min;
    transpose16(at->data, at->stride, h);
    __m512 d = low_f16(h[0]);
    UNROLL
    for (int j = 0; j < 8; j++) {
        __m512i low = _mm512_and_si512(_mm512_srli_epi32(h[1], (unsigned)j * 4), _mm512_set1_epi32(15));
        __m512i two = _mm512_and_si512(_mm512_srli_epi32(h[0], 12 + (unsigned)j * 2), _mm512_set1_epi32(0x30));
        __m512i s = _mm512_sub_epi32(_mm512_or_si512(low, two), _mm512_set1_epi32(32));
        scale[j] = _mm512_mul_ps(d, _mm512_cvtepi32_ps(s));
    }
}
INLINE void iq4_xs_part(const format_at *at, int part, void *sink, emit_fn *emit) {
    nibble_values(at->data + 8 + 16 * part, at->stride, iq4_table(), sink, emit);
}
MATMUL_FORMAT(iq4_xs, 256, 32, 32, 128, false)
