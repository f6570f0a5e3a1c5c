/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AVX2 unpacking of MLX matrices, 32 inputs of 8 rows at a time: a bit stream per row, scales and biases in their own
 * arrays. Nibbles of a 4-bit stream are in the order of K, low first.
 */
#include "kernels/cpu/avx2/matmul_avx2.h"

/* The scale or bias of the group at at->k, 8 rows. */
INLINE __m256 array_column(const format_at *at, const uint8_t *array) {
    const tensor_mat *w = at->src->w;
    const uint8_t    *p = array + (size_t)at->row0 * w->scale_row_bytes;
    int64_t           g = at->k / w->group;
    if (w->scale_type == TENSOR_F16) return column_f16(p + 2 * g, w->scale_row_bytes);
    if (w->scale_type == TENSOR_BF16) {
        __m256i v = _mm256_cvtepu16_epi32(column16(p + 2 * g, w->scale_row_bytes));
        return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
    }
    float f[8];
    for (int r = 0; r < 8; r++) memcpy(&f[r], p + (size_t)r * w->scale_row_bytes + 4 * g, 4);
    return _mm256_loadu_ps(f);
}

INLINE void affine_scales(const format_at *at, __m256 *scale, __m256 *min) {
    scale[0] = array_column(at, at->src->scales);
    min[0] = array_column(at, at->src->biases);
}

/* Dword j of 16 bytes holds inputs 8j..8j+7: two quads. Bytes b0 b1 b2 b3 become b0 b0 b1 b1 and b2 b2 b3 b3. */
INLINE void stream_nibbles(const format_at *at, bool fp4, void *sink, emit_fn *emit) {
    const __m256i pick = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0, 1, 1, 4, 4, 5, 5, 8, 8, 9, 9, 12, 12, 13, 13));
    const __m256i odd = _mm256_set1_epi16((short)0xff00), m = _mm256_set1_epi8(15);
    __m256i       t[4];
    transpose16(at->data, at->stride, t);
    UNROLL
    for (int j = 0; j < 8; j++) {
        __m256i index = j % 2 ? _mm256_add_epi8(pick, _mm256_set1_epi8(2)) : pick;
        __m256i a = _mm256_shuffle_epi8(t[j / 2], index);
        a = _mm256_and_si256(_mm256_blendv_epi8(a, _mm256_srli_epi16(a, 4), odd), m);
        emit(sink, j, fp4 ? _mm256_shuffle_epi8(fp4_table(), a) : a);
    }
}

#define mlx_aff4_bytes 16
INLINE void mlx_aff4_scales(format_at *at, __m256 *scale, __m256 *min) { affine_scales(at, scale, min); }
INLINE void mlx_aff4_part(const format_at *at, int part, void *sink, emit_fn *emit) {
    (void)part;
    stream_nibbles(at, false, sink, emit);
}
MATMUL_UNPACK(mlx_aff4, 32, 32, 32, true)
MATMUL_GEMV(mlx_aff4, 32, 32, 32, 0, true, 15)

#define mlx_aff8_bytes 32
INLINE void mlx_aff8_scales(format_at *at, __m256 *scale, __m256 *min) { affine_scales(at, scale, min); }
INLINE void mlx_aff8_part(const format_at *at, int part, void *sink, emit_fn *emit) {
    (void)part;
    UNROLL
    for (int h = 0; h < 2; h++) {
        __m256i v[4];
        transpose16(at->data + 16 * h, at->stride, v);
        UNROLL
        for (int j = 0; j < 4; j++) emit(sink, 4 * h + j, v[j]);
    }
}
MATMUL_UNPACK(mlx_aff8, 32, 32, 32, true)
MATMUL_GEMV(mlx_aff8, 32, 32, 32, 0, true, 255)

#define mlx_mxfp4_bytes 16
INLINE void mlx_mxfp4_scales(format_at *at, __m256 *scale, __m256 *min) {
    const tensor_mat *w = at->src->w;
    const uint8_t    *p = at->src->scales + (size_t)at->row0 * w->scale_row_bytes + at->k / 32;
    (void)min;
    scale[0] = e8m0_half(column_u8(p, w->scale_row_bytes));
}
INLINE void mlx_mxfp4_part(const format_at *at, int part, void *sink, emit_fn *emit) {
    (void)part;
    stream_nibbles(at, true, sink, emit);
}
MATMUL_UNPACK(mlx_mxfp4, 32, 32, 32, false)
MATMUL_GEMV(mlx_mxfp4, 32, 32, 32, 12, false, 24)
