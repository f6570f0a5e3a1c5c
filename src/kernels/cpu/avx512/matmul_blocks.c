/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AVX-512 unpacking of 32-wide blocks: a scale (f16, for mxfp4 one exponent byte) in front, then 16 bytes of nibbles or
 * 32 bytes of values. Layouts: tensor/blocks.h.
 */
#include "kernels/cpu/avx512/matmul_avx512.h"

#define q4_0_bytes 18
INLINE void q4_0_scales(format_at *at, __m512 *scale, __m512 *min) {
    (void)min;
    scale[0] = column_f16(at->data, at->stride);
}
INLINE void q4_0_part(const format_at *at, int part, void *sink, emit_fn *emit) {
    __m512i v[4];
    (void)part;
    transpose16(at->data + 2, at->stride, v);
    UNROLL
    for (int j = 0; j < 4; j++) emit(sink, j, low_nibbles(v[j]));
    UNROLL
    for (int j = 0; j < 4; j++) emit(sink, 4 + j, high_nibbles(v[j]));
}
MATMUL_FORMAT(q4_0, 32, 32, 32, 8, false)

#define q8_0_bytes 34
INLINE void q8_0_scales(format_at *at, __m512 *scale, __m512 *min) { q4_0_scales(at, scale, min); }
INLINE void q8_0_part(const format_at *at, int part, void *sink, emit_fn *emit) {
    (void)part;
    UNROLL
    for (int h = 0; h < 2; h++) {
        __m512i v[4];
        transpose16(at->data + 2 + 16 * h, at->stride, v);
        UNROLL
        for (int j = 0; j < 4; j++) emit(sink, 4 * h + j, _mm512_xor_si512(v[j], _mm512_set1_epi8((char)0x80)));
    }
}
MATMUL_FORMAT(q8_0, 32, 32, 32, 128, false)

#define iq4_nl_bytes 18
INLINE void iq4_nl_scales(format_at *at, __m512 *scale, __m512 *min) { q4_0_scales(at, scale, min); }
INLINE void iq4_nl_part(const format_at *at, int part, void *sink, emit_fn *emit) {
    (void)part;
    nibble_values(at->data + 2, at->stride, iq4_table(), sink, emit);
}
MATMUL_FORMAT(iq4_nl, 32, 32, 32, 128, false)

#define mxfp4_bytes 17
INLINE void mxfp4_scales(format_at *at, __m512 *scale, __m512 *min) {
    (void)min;
    scale[0] = e8m0_half(_mm512_cvtepu8_epi32(column8(at->data, at->stride)));
}
INLINE void mxfp4_part(const format_at *at, int part, void *sink, emit_fn *emit) {
    (void)part;
    nibble_values(at->data + 1, at->stride, fp4_table(), sink, emit);
}
MATMUL_FORMAT(mxfp4, 32, 32, 32, 12, false)
