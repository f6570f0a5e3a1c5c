/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AVX-512 unpacking of MLX matrices: values as a bit stream per row, scales and biases in their own arrays. Nibbles of
 * a 4-bit stream are in the order of K, low first: the low nibbles of 4 bytes are the even, the high ones the odd
 * inputs, and unpacking them bytewise gives two quads.
 */
#include "kernels/cpu/avx512/matmul_avx512.h"

/* Element `group` of a scale or bias array, 16 rows. */
INLINE __m512 array_column(const format_at *at, const uint8_t *array) {
    const tensor_mat *w = at->src->w;
    const uint8_t    *p = array + (size_t)at->row0 * w->scale_row_bytes;
    int64_t           g = at->k / w->group;
    if (w->scale_type == TENSOR_F16) return column_f16(p + 2 * g, w->scale_row_bytes);
    if (w->scale_type == TENSOR_BF16) {
        __m512i v = _mm512_cvtepu16_epi32(column16(p + 2 * g, w->scale_row_bytes));
        return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
    }
    float f[16];
    for (int r = 0; r < 16; r++) {
        uint32_t bits = load_u32(p + (size_t)r * w->scale_row_bytes + 4 * g);
        memcpy(&f[r], &bits, 4);
    }
    return _mm512_loadu_ps(f);
}

INLINE void affine_scales(const format_at *at, __m512 *scale, __m512 *min) {
    scale[0] = array_column(at, at->src->scales);
    min[0] = array_column(at, at->src->biases);
}

/* 16 bytes of 16 rows are 32 inputs: dword j holds inputs 8j..8j+7. */
INLINE void stream_nibbles(const format_at *at, __m512i v[8]) {
    __m512i t[4];
    transpose16(at->data, at->stride, t);
    for (int j = 0; j < 4; j++) {
        /* within each dword: bytes b0 b1 b2 b3 -> b0 b0 b1 b1 and b2 b2 b3 b3, then alternate low and high nibbles */
        const __m512i first = _mm512_set4_epi32(0x0d0d0c0c, 0x09090808, 0x05050404, 0x01010000);
        const __m512i second = _mm512_set4_epi32(0x0f0f0e0e, 0x0b0b0a0a, 0x07070606, 0x03030202);
        __m512i       a = _mm512_shuffle_epi8(t[j], first), b = _mm512_shuffle_epi8(t[j], second);
        __m512i       odd = _mm512_set1_epi16((short)0xff00), m = _mm512_set1_epi8(15);
        v[2 * j] = _mm512_and_si512(_mm512_ternarylogic_epi64(odd, _mm512_srli_epi16(a, 4), a, 0xca), m);
        v[2 * j + 1] = _mm512_and_si512(_mm512_ternarylogic_epi64(odd, _mm512_srli_epi16(b, 4), b, 0xca), m);
    }
}

#define mlx_aff4_bytes 16
INLINE void mlx_aff4_scales(const format_at *at, __m512 *scale, __m512 *min) { affine_scales(at, scale, min); }
INLINE void mlx_aff4_part(const format_at *at, int part, void *sink, emit_fn *emit) {
    __m512i v[8];
    (void)part;
    stream_nibbles(at, v);
    for (int j = 0; j < 8; j++) emit(sink, j, v[j]);
}
MATMUL_FORMAT(mlx_aff4, 32, 32, 32, 0, true)

#define mlx_aff8_bytes 32
INLINE void mlx_aff8_scales(const format_at *at, __m512 *scale, __m512 *min) { affine_scales(at, scale, min); }
INLINE void mlx_aff8_part(const format_at *at, int part, void *sink, emit_fn *emit) {
    (void)part;
    for (int h = 0; h < 2; h++) {
        __m512i v[4];
        transpose16(at->data + 16 * h, at->stride, v);
        for (int j = 0; j < 4; j++) emit(sink, 4 * h + j, v[j]);
    }
}
MATMUL_FORMAT(mlx_aff8, 32, 32, 32, 0, true)

#define mlx_mxfp4_bytes 16
INLINE void mlx_mxfp4_scales(const format_at *at, __m512 *scale, __m512 *min) {
    const tensor_mat *w = at->src->w;
    const uint8_t    *p = at->src->scales + (size_t)at->row0 * w->scale_row_bytes + at->k / 32;
    (void)min;
    scale[0] = e8m0_half(_mm512_cvtepu8_epi32(column8(p, w->scale_row_bytes)));
}
INLINE void mlx_mxfp4_part(const format_at *at, int part, void *sink, emit_fn *emit) {
    __m512i v[8];
    (void)part;
    stream_nibbles(at, v);
    for (int j = 0; j < 8; j++) emit(sink, j, _mm512_shuffle_epi8(fp4_table(), v[j]));
}
MATMUL_FORMAT(mlx_mxfp4, 32, 32, 32, 12, false)
