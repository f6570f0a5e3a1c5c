/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a weight format is written for AVX2: as for AVX-512 (avx512/matmul_avx512.h), but eight weight rows are the eight
 * 32-bit lanes, and a panel of 16 rows is done in two halves of 8.
 *
 * There is no 4-byte dot product: vpmaddubsw multiplies unsigned weights with signed activations and adds pairs in 16
 * bits, which overflow when weights pass 127. So the largest stored value of a type decides (matmul_form.largest):
 *
 *     up to 127  maddubs(w, x), exact, as 2 * 127 * 127 fits
 *     above      with s = w - 128: maddubs(|s|, x with the sign of s), exact, as 2 * 128 * 127 fits; the sum begins at
 *                (128 - zero) * sum(x)
 *
 * and products are added in 16 bits as long as they fit before they are widened: 8 quads up to 15, 4 up to 31, 2 up
 * to 63. Tiles have better ways for some of this (avx2/matmul_tile8_impl.h).
 */
#ifndef KERNELS_CPU_AVX2_MATMUL_AVX2_H
#define KERNELS_CPU_AVX2_MATMUL_AVX2_H

#include "kernels/cpu/matmul_panel.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16") /* arrays of registers stay in registers only if every index is constant */

/* Where a unit lies: row r at data + r * stride. Types with scale arrays find theirs through src, row0 and k. */
typedef struct format_at {
    const uint8_t    *data;
    size_t            stride;
    const matmul_src *src;
    int64_t           row0, k;
} format_at;

typedef __m256i vi;
typedef __m256  vf;
typedef void    emit_fn(void *sink, int quad, __m256i v);
#define v_and _mm256_and_si256
#define v_or _mm256_or_si256
#define v_xor _mm256_xor_si256
#define v_srl16(v, n) _mm256_srli_epi16(v, (int)(n))
#define v_sll16(v, n) _mm256_slli_epi16(v, (int)(n))
#define v_srl32(v, n) _mm256_srli_epi32(v, (int)(n))
#define v_sll32(v, n) _mm256_slli_epi32(v, (int)(n))
#define v_sub32 _mm256_sub_epi32
#define v_set8(x) _mm256_set1_epi8((char)(x))
#define v_set32 _mm256_set1_epi32
#define v_lookup _mm256_shuffle_epi8
#define v_table _mm256_broadcastsi128_si256
#define v_float _mm256_cvtepi32_ps
#define v_as_float _mm256_castsi256_ps
#define v_mul _mm256_mul_ps
#define v_fmsub _mm256_fmsub_ps
#define v_setf _mm256_set1_ps
#define v_negate(x) _mm256_sub_ps(_mm256_setzero_ps(), x)
#define v_join(v, h, mask) v_or(v_and(v, v_set8(15)), v_and(h, v_set8(mask)))
#define v_if_equal(a, b, yes, no) _mm256_blendv_epi8(no, yes, _mm256_cmpeq_epi32(a, b))

/* Keeps a value where the source made it: sums that compilers put in another order do not fit into 16 registers. */
INLINE __m256i made_here(__m256i v) {
    __asm__ volatile("" : "+x"(v));
    return v;
}

INLINE uint32_t load_u32(const void *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

INLINE uint16_t load_u16(const void *p) {
    uint16_t v;
    memcpy(&v, p, 2);
    return v;
}

INLINE __m256i two_rows(const uint8_t *p, const uint8_t *q) {
    __m256i v = _mm256_castsi128_si256(_mm_loadu_si128((const void *)p));
    return _mm256_inserti128_si256(v, _mm_loadu_si128((const void *)q), 1);
}

/* Registers of rows (0, 4), (1, 5), (2, 6), (3, 7), transposed: out[j] holds dword j of every row, row r in lane r. */
INLINE void transpose_rows(__m256i a, __m256i b, __m256i c, __m256i d, __m256i out[4]) {
    __m256i ab0 = _mm256_unpacklo_epi32(a, b), ab1 = _mm256_unpackhi_epi32(a, b);
    __m256i cd0 = _mm256_unpacklo_epi32(c, d), cd1 = _mm256_unpackhi_epi32(c, d);
    out[0] = _mm256_unpacklo_epi64(ab0, cd0);
    out[1] = _mm256_unpackhi_epi64(ab0, cd0);
    out[2] = _mm256_unpacklo_epi64(ab1, cd1);
    out[3] = _mm256_unpackhi_epi64(ab1, cd1);
}

/* 16 bytes of 8 rows. */
INLINE void transpose16(const uint8_t *p, size_t s, __m256i out[4]) {
    transpose_rows(two_rows(p, p + 4 * s), two_rows(p + s, p + 5 * s), two_rows(p + 2 * s, p + 6 * s),
                   two_rows(p + 3 * s, p + 7 * s), out);
}

/* One u16 of 8 rows. */
INLINE __m128i column16(const uint8_t *p, size_t s) {
    __m128i a = _mm_cvtsi32_si128(load_u16(p));
#define PUT(i) a = _mm_insert_epi16(a, load_u16(p + (i)*s), i)
    PUT(1);
    PUT(2);
    PUT(3);
    PUT(4);
    PUT(5);
    PUT(6);
    PUT(7);
#undef PUT
    return a;
}

INLINE __m256 column_f16(const uint8_t *p, size_t stride) { return _mm256_cvtph_ps(column16(p, stride)); }

/* One byte of 8 rows. */
INLINE __m256i column_u8(const uint8_t *p, size_t s) {
    uint8_t b[8];
    for (int r = 0; r < 8; r++) b[r] = p[(size_t)r * s];
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)b));
}

/* Halves of 8 dwords, as f16 to f32. */
INLINE __m256 pack_f16(__m256i v) {
    return _mm256_cvtph_ps(_mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packus_epi32(v, v), 0x08)));
}
INLINE __m256 low_f16(__m256i v) { return pack_f16(_mm256_and_si256(v, _mm256_set1_epi32(0xffff))); }
INLINE __m256 high_f16(__m256i v) { return pack_f16(_mm256_srli_epi32(v, 16)); }

INLINE void emit_panel(void *sink, int quad, __m256i v) {
    _mm256_store_si256((void *)((uint8_t *)sink + quad * 64), v);
}

/* Pairs of products in 16 bits, exact for any weights. */
INLINE __m256i products(__m256i w, __m256i x, int largest) {
    if (largest <= 127) return _mm256_maddubs_epi16(w, x);
    __m256i s = _mm256_xor_si256(w, _mm256_set1_epi8((char)0x80));
    return _mm256_maddubs_epi16(_mm256_abs_epi8(s), _mm256_sign_epi8(x, s));
}

/* DOT4 is 1 in files compiled for AVX-VNNI, whose vpdpbusd does all of this at once and clips nothing. */
#ifndef DOT4
#define DOT4 0
#endif
#if DOT4
#ifndef MATMUL_DPBUSD
#define MATMUL_DPBUSD _mm256_dpbusd_avx_epi32
#endif
INLINE __m256i dot_add(__m256i acc, __m256i w, __m256i x) { return MATMUL_DPBUSD(acc, w, x); }
#endif

INLINE __m256i widen(__m256i p) { return _mm256_madd_epi16(p, _mm256_set1_epi16(1)); }

/* The pair (-zero, -zero), or for groups of 16 the half of it that counts, to be multiplied with the sums of a block.
 */
INLINE __m256i zero_pair(int zero, int largest, int group, int half) {
    uint32_t one = (uint16_t)((largest > 127 ? 128 : 0) - zero);
    uint32_t pair = (group == 32 || half == 0 ? one : 0) | (group == 32 || half == 1 ? one << 16 : 0);
    return _mm256_set1_epi32((int)pair);
}

INLINE __m256i zero_start(const act8 *x, __m256i pair) {
    return _mm256_madd_epi16(_mm256_set1_epi32((int)load_u32(x->s)), pair);
}

/* The float steps of a group; both paths use them. */
INLINE __m256 group_add(__m256 acc, __m256i sum, __m256 scale, const act8 *x) {
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(scale, _mm256_set1_ps(x->d)), acc);
}

INLINE __m256 group_add_min(__m256 acc, __m256 min, const act8 *x, int group, int half) {
    float ds = group == 32 ? x->ds : x->d * (float)x->s[half];
    return _mm256_fmadd_ps(min, _mm256_set1_ps(ds), acc);
}

/* Sums of a part with one activation row: up to 8 groups of 32 or 16. */
typedef struct dots {
    const act8 *x;
    __m256i     acc[8];
    int         group, largest; /* constants */
} dots;

INLINE void emit_dots(void *sink, int quad, __m256i v) {
    dots   *d = sink;
    __m256i x = _mm256_set1_epi32((int)load_u32(d->x[quad / 8].q + quad % 8 * 4));
    int     g = quad * 4 / d->group;
    d->acc[g] = _mm256_add_epi32(d->acc[g], widen(products(v, x, d->largest)));
}

/* To L2: what lies ahead is more than L1 holds. */
INLINE void fetch(const uint8_t *p, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 64) _mm_prefetch((const char *)p + i, _MM_HINT_T1);
}

#define MATMUL_UNPACK(NAME, UNIT, PART, GROUP, MIN)                                                                    \
    void matmul_unpack8_##NAME##_avx2(const matmul_src *s, int64_t row0, int n, int64_t k0, int kn,                    \
                                      matmul_panel8 *p) {                                                              \
        (void)n;                                                                                                       \
        for (int side = 0; side < 2; side++) {                                                                         \
            format_at at = { s->data + (size_t)(row0 + 8 * side) * s->w->row_bytes +                                   \
                                 (size_t)(k0 / (UNIT)) * NAME##_bytes,                                                 \
                             s->w->row_bytes, s, row0 + 8 * side, k0 };                                                \
            for (int k = 0; k < kn; k += (UNIT), at.data += NAME##_bytes, at.k += (UNIT)) {                            \
                __m256 scale[(UNIT) / (GROUP)], min[(UNIT) / (GROUP)];                                                 \
                NAME##_scales(&at, scale, min);                                                                        \
                UNROLL for (int g = 0; g < (UNIT) / (GROUP); g++) {                                                    \
                    _mm256_store_ps(p->scale + (k / (GROUP) + g) * MATMUL_PANEL + 8 * side, scale[g]);                 \
                    if (MIN) _mm256_store_ps(p->min + (k / (GROUP) + g) * MATMUL_PANEL + 8 * side, min[g]);            \
                }                                                                                                      \
                UNROLL for (int part = 0; part < (UNIT) / (PART); part++)                                              \
                    NAME##_part(&at, part, p->q + (k + part * (PART)) * MATMUL_PANEL + 32 * side, emit_panel);         \
            }                                                                                                          \
        }                                                                                                              \
    }

#define MATMUL_GEMV(NAME, UNIT, PART, GROUP, ZERO, MIN, LARGEST)                                                       \
    void matmul_gemv8_##NAME##_avx2(const matmul_src *s, int64_t row0, const act8 *rows, float *out) {                 \
        for (int side = 0; side < 2; side++) {                                                                         \
            format_at      at = { s->data + (size_t)(row0 + 8 * side) * s->w->row_bytes, s->w->row_bytes, s,           \
                                  row0 + 8 * side, 0 };                                                                \
            const uint8_t *ahead = at.data + 8 * at.stride;                                                            \
            const act8    *x = rows;                                                                                   \
            __m256         acc = _mm256_setzero_ps();                                                                  \
            for (; at.k < s->w->cols; at.k += (UNIT), at.data += NAME##_bytes) {                                       \
                __m256 scale[(UNIT) / (GROUP)], min[(UNIT) / (GROUP)];                                                 \
                NAME##_scales(&at, scale, min);                                                                        \
                UNROLL for (int part = 0; part < (UNIT) / (PART); part++, x += (PART) / 32) {                          \
                    dots d;                                                                                            \
                    fetch(ahead, 8 * NAME##_bytes / ((UNIT) / (PART)));                                                \
                    ahead += 8 * NAME##_bytes / ((UNIT) / (PART));                                                     \
                    d.x = x;                                                                                           \
                    d.group = GROUP;                                                                                   \
                    d.largest = LARGEST;                                                                               \
                    UNROLL for (int g = 0; g < (PART) / (GROUP); g++) d.acc[g] =                                       \
                        (MIN) && (LARGEST) <= 127                                                                      \
                            ? _mm256_setzero_si256()                                                                   \
                            : zero_start(x + g * (GROUP) / 32, zero_pair(ZERO, LARGEST, GROUP, g % 2));                \
                    NAME##_part(&at, part, &d, emit_dots);                                                             \
                    UNROLL for (int g = 0; g < (PART) / (GROUP); g++) {                                                \
                        const act8 *b = x + g * (GROUP) / 32;                                                          \
                        int         at_group = part * ((PART) / (GROUP)) + g;                                          \
                        acc = group_add(acc, d.acc[g], scale[at_group], b);                                            \
                        if (MIN) acc = group_add_min(acc, min[at_group], b, GROUP, g % 2);                             \
                    }                                                                                                  \
                }                                                                                                      \
            }                                                                                                          \
            _mm256_storeu_ps(out + 8 * side, acc);                                                                     \
        }                                                                                                              \
    }

/* The matrix-vector kernel of these formats: avx2/matmul_rows.h. */
#define MATMUL_FORMAT(NAME, UNIT, PART, GROUP, ZERO, MIN, LARGEST)                                                     \
    MATMUL_UNPACK(NAME, UNIT, PART, GROUP, MIN)                                                                        \
    MATMUL_UNIT_##GROUP(NAME, UNIT, PART, ZERO, MIN, LARGEST) MATMUL_GEMV_ROWS(NAME, UNIT)                             \
        MATMUL_FEW_ROWS(NAME, UNIT, PART, GROUP, MIN, LARGEST)
#define MATMUL_UNIT_16(NAME, UNIT, PART, ZERO, MIN, LARGEST) /* has its own */
#define MATMUL_UNIT_32(NAME, UNIT, PART, ZERO, MIN, LARGEST)                                                           \
    INLINE __m256 NAME##_unit(__m256 acc, rows8 r, size_t far, const act8 *x) {                                        \
        return gemv_unit(acc, r, far, x, UNIT, PART, ZERO, LARGEST, NAME##_bytes, NAME##_row_head, NAME##_scale,       \
                         MATMUL_MIN_##MIN(NAME), NAME##_raw, NAME##_pieces, NAME##_bits);                              \
    }
/* The kernels for a few rows: avx2/matmul_few.h. */
#define MATMUL_FEW_ROWS(NAME, UNIT, PART, GROUP, MIN, LARGEST)                                                         \
    MATMUL_FEW_KERNEL(NAME, UNIT, PART, GROUP, MATMUL_MIN_##MIN(NAME), LARGEST, 2)                                     \
    MATMUL_FEW_KERNEL(NAME, UNIT, PART, GROUP, MATMUL_MIN_##MIN(NAME), LARGEST, 4)                                     \
    MATMUL_FEW_KERNEL(NAME, UNIT, PART, GROUP, MATMUL_MIN_##MIN(NAME), LARGEST, 8)
#define MATMUL_MIN_1(NAME) NAME##_min
#define MATMUL_MIN_0(NAME) NULL

#include "kernels/cpu/impl/matmul_formats.h"

/* Formats with their own unpacking and matrix-vector kernel: X(tensor type, NAME). The first have kernels for a few
 * rows, too. */
#define MATMUL_AVX2_FEW(X)                                                                                             \
    X(Q4_0, q4_0)                                                                                                      \
    X(Q8_0, q8_0)                                                                                                      \
    X(IQ4_NL, iq4_nl)                                                                                                  \
    X(MXFP4, mxfp4)                                                                                                    \
    X(Q4_K, q4_k)                                                                                                      \
    X(Q5_K, q5_k)                                                                                                      \
    X(Q6_K, q6_k)                                                                                                      \
    X(IQ4_XS, iq4_xs)
#define MATMUL_AVX2_FORMATS(X)                                                                                         \
    MATMUL_AVX2_FEW(X)                                                                                                 \
    X(MLX_AFF4, mlx_aff4)                                                                                              \
    X(MLX_AFF8, mlx_aff8)                                                                                              \
    X(MLX_MXFP4, mlx_mxfp4)

#define X(type, name)                                                                                                  \
    matmul_unpack8_fn matmul_unpack8_##name##_avx2;                                                                    \
    matmul_gemv8_fn   matmul_gemv8_##name##_avx2;
MATMUL_AVX2_FORMATS(X)
#undef X

#define X(type, name)                                                                                                  \
    matmul_few8_fn matmul_few8_##name##_2_avx2, matmul_few8_##name##_4_avx2, matmul_few8_##name##_8_avx2;              \
    matmul_few8_fn matmul_few8_##name##_2_avxvnni, matmul_few8_##name##_4_avxvnni, matmul_few8_##name##_8_avxvnni;
MATMUL_AVX2_FEW(X)
#undef X

extern matmul_tile8_fn *const matmul_tile8_avx2[MATMUL_FORMS][MATMUL_WIDE][MATMUL_ROWS8];
extern matmul_tile8_fn *const matmul_tile8_avxvnni[MATMUL_FORMS][MATMUL_WIDE][MATMUL_ROWS8];

#endif
