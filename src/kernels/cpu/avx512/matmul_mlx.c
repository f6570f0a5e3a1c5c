/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AVX-512 unpacking of MLX matrices: values as a bit stream per row, scales and biases in their own arrays.
 *
 * Rows are often a power of two long, so that the lines of 16 rows fall into few sets of L1: a unit is 64 bytes of each
 * row, read once (rows that are not a whole number of units take 16 or 32 bytes at a time). Nibbles of a 4-bit stream are
 * in the order of K, low first: a dword holds 8 inputs, its bytes' low nibbles the even, its high nibbles the odd ones.
 */
#include "kernels/cpu/avx512/matmul_avx512.h"

/* Eight groups from g on of an array of 16-bit scales, 16 rows; fewer at the end of a row, and f32: one by one. */
INLINE void read_table(const format_at *at, const uint8_t *array, int64_t g, __m512 *out) {
    const tensor_mat *w = at->src->w;
    int64_t           n = w->cols / w->group - g;
    const uint8_t    *p = array + (size_t)at->row0 * w->scale_row_bytes;
    if (n >= 8 && w->scale_type != TENSOR_F32) {
        __m512i v[4];
        transpose16(p + 2 * g, w->scale_row_bytes, v);
        for (int i = 0; i < 4; i++) {
            __m512i high = _mm512_set1_epi32((int)0xffff0000);
            out[2 * i] = w->scale_type == TENSOR_F16 ? low_f16(v[i]) : _mm512_castsi512_ps(_mm512_slli_epi32(v[i], 16));
            out[2 * i + 1] =
                w->scale_type == TENSOR_F16 ? high_f16(v[i]) : _mm512_castsi512_ps(_mm512_and_si512(v[i], high));
        }
        return;
    }
    for (int i = 0; i < 8 && i < n; i++) {
        float f[16];
        if (w->scale_type == TENSOR_F16) {
            out[i] = column_f16(p + 2 * (g + i), w->scale_row_bytes);
        } else if (w->scale_type == TENSOR_BF16) {
            __m512i v = _mm512_cvtepu16_epi32(column16(p + 2 * (g + i), w->scale_row_bytes));
            out[i] = _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
        } else {
            for (int r = 0; r < 16; r++) memcpy(&f[r], p + (size_t)r * w->scale_row_bytes + 4 * (g + i), 4);
            out[i] = _mm512_loadu_ps(f);
        }
    }
}

INLINE void affine_scales(format_at *at, __m512 *scale, __m512 *min, int n) {
    UNROLL
    for (int i = 0; i < n; i++) {
        int64_t g = (at->k + 32 * i) / at->src->w->group;
        if (g - at->table_from >= 8) {
            at->table_from = g;
            read_table(at, at->src->scales, g, at->table[0]);
            read_table(at, at->src->biases, g, at->table[1]);
        }
        scale[i] = at->table[0][g - at->table_from];
        min[i] = at->table[1][g - at->table_from];
    }
}

INLINE void e8m0_scales(const format_at *at, __m512 *scale, int n) {
    const tensor_mat *w = at->src->w;
    const uint8_t    *p = at->src->scales + (size_t)at->row0 * w->scale_row_bytes + at->k / 32;
    UNROLL
    for (int i = 0; i < n; i++) scale[i] = e8m0_half(column_u8(p + i, w->scale_row_bytes));
}

/* Eight inputs per lane to two quads: bytes b0 b1 b2 b3 become b0 b0 b1 b1 and b2 b2 b3 b3, low and high nibbles in
 * turn. */
INLINE void split_nibbles(__m512i t, __m512i *first, __m512i *second) {
    const __m512i pick = _mm512_set4_epi32(0x0d0d0c0c, 0x09090808, 0x05050404, 0x01010000);
    const __m512i odd = _mm512_set1_epi16((short)0xff00), m = _mm512_set1_epi8(15);
    __m512i       a = _mm512_shuffle_epi8(t, pick);
    __m512i       b = _mm512_shuffle_epi8(t, _mm512_add_epi8(pick, _mm512_set1_epi8(2)));
    *first = _mm512_and_si512(_mm512_ternarylogic_epi64(odd, _mm512_srli_epi16(a, 4), a, 0xca), m);
    *second = _mm512_and_si512(_mm512_ternarylogic_epi64(odd, _mm512_srli_epi16(b, 4), b, 0xca), m);
}

/* n dwords of 16 rows; fp4 codes are looked up. */
INLINE void emit_nibbles(const __m512i *t, int n, bool fp4, void *sink, emit_fn *emit) {
    UNROLL
    for (int j = 0; j < n; j++) {
        __m512i a, b;
        split_nibbles(t[j], &a, &b);
        emit(sink, 2 * j, fp4 ? _mm512_shuffle_epi8(fp4_table(), a) : a);
        emit(sink, 2 * j + 1, fp4 ? _mm512_shuffle_epi8(fp4_table(), b) : b);
    }
}

INLINE void nibbles16(const format_at *at, bool fp4, void *sink, emit_fn *emit) {
    __m512i t[4];
    transpose16(at->data, at->stride, t);
    emit_nibbles(t, 4, fp4, sink, emit);
}

INLINE void nibbles64(const format_at *at, bool fp4, void *sink, emit_fn *emit) {
    __m512i t[16];
    load64(at->data, at->stride, t);
    emit_nibbles(t, 16, fp4, sink, emit);
}

INLINE void bytes32(const format_at *at, void *sink, emit_fn *emit) {
    UNROLL
    for (int h = 0; h < 2; h++) {
        __m512i v[4];
        transpose16(at->data + 16 * h, at->stride, v);
        UNROLL
        for (int j = 0; j < 4; j++) emit(sink, 4 * h + j, v[j]);
    }
}

INLINE void bytes64(const format_at *at, void *sink, emit_fn *emit) {
    __m512i v[16];
    load64(at->data, at->stride, v);
    UNROLL
    for (int j = 0; j < 16; j++) emit(sink, j, v[j]);
}

/* SCALES(n) and VALUES read at, part, sink, emit, scale, min of the two functions. */
#define MLX_FORMAT(NAME, BYTES, UNIT, ZERO, MIN, SCALES, VALUES)                                                       \
    enum { NAME##_bytes = BYTES };                                                                                     \
    INLINE void NAME##_scales(format_at *at, __m512 *scale, __m512 *min) {                                             \
        (void)min;                                                                                                     \
        SCALES;                                                                                                        \
    }                                                                                                                  \
    INLINE void NAME##_part(const format_at *at, int part, void *sink, emit_fn *emit) {                                \
        (void)part;                                                                                                    \
        VALUES;                                                                                                        \
    }                                                                                                                  \
    static matmul_unpack8_fn matmul_unpack8_##NAME##_avx512;                                                           \
    static matmul_gemv8_fn   matmul_gemv8_##NAME##_avx512;                                                             \
    static MATMUL_UNPACK(NAME, UNIT, UNIT, 32, ZERO, MIN) static MATMUL_GEMV(NAME, UNIT, UNIT, 32, ZERO, MIN)

MLX_FORMAT(aff4_16, 16, 32, 0, true, affine_scales(at, scale, min, 1), nibbles16(at, false, sink, emit))
MLX_FORMAT(aff4_64, 64, 128, 0, true, affine_scales(at, scale, min, 4), nibbles64(at, false, sink, emit))
MLX_FORMAT(aff8_32, 32, 32, 0, true, affine_scales(at, scale, min, 1), bytes32(at, sink, emit))
MLX_FORMAT(aff8_64, 64, 64, 0, true, affine_scales(at, scale, min, 2), bytes64(at, sink, emit))
MLX_FORMAT(mxfp4_16, 16, 32, 12, false, e8m0_scales(at, scale, 1), nibbles16(at, true, sink, emit))
MLX_FORMAT(mxfp4_64, 64, 128, 12, false, e8m0_scales(at, scale, 4), nibbles64(at, true, sink, emit))

#define MLX_CHOOSE(NAME, UNIT, WHOLE, ODD)                                                                             \
    void matmul_unpack8_##NAME##_avx512(const matmul_src *s, int64_t row0, int n, int64_t k0, int kn,                  \
                                        matmul_panel8 *p) {                                                            \
        if (s->w->cols % (UNIT) == 0)                                                                                  \
            matmul_unpack8_##WHOLE##_avx512(s, row0, n, k0, kn, p);                                                    \
        else                                                                                                           \
            matmul_unpack8_##ODD##_avx512(s, row0, n, k0, kn, p);                                                      \
    }                                                                                                                  \
    void matmul_gemv8_##NAME##_avx512(const matmul_src *s, int64_t row0, const act8 *x, float *out) {                  \
        if (s->w->cols % (UNIT) == 0)                                                                                  \
            matmul_gemv8_##WHOLE##_avx512(s, row0, x, out);                                                            \
        else                                                                                                           \
            matmul_gemv8_##ODD##_avx512(s, row0, x, out);                                                              \
    }
MLX_CHOOSE(mlx_aff4, 128, aff4_64, aff4_16)
MLX_CHOOSE(mlx_aff8, 64, aff8_64, aff8_32)
MLX_CHOOSE(mlx_mxfp4, 128, mxfp4_64, mxfp4_16)
