/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a weight format is written for AVX-512.
 *
 * Sixteen weight rows are the sixteen 32-bit lanes. A format unpacks one unit (a block) of 16 rows at a time, part by
 * part, and hands each register of 16 x 4 values to `emit` together with the number of its quad (inputs 4q..4q+3 of the
 * part). Emitting into a panel stores the register; emitting into dots feeds vpdpbusd at once. So the panel unpacking
 * of the matrix-matrix path and the fused matrix-vector kernel come from the same lines. A format NAME brings
 *
 *     NAME_bytes                                                             bytes of a unit of one row
 *     NAME_scales(format_at *at, __m512 *scale, __m512 *min)                 scales and minima, per group of the unit
 *     NAME_part(const format_at *at, int part, void *sink, emit_fn *emit)    emits the quads of a part
 *
 * and MATMUL_FORMAT(NAME, unit, part, group, zero, min, largest) makes matmul_unpack8_NAME_avx512 and
 * matmul_gemv8_NAME_avx512 of them. Everything is inlined; the function pointers are constants.
 *
 * The matrix-vector kernel asks for the next panel while it works on this one: the 16 rows of a panel are one stretch
 * of memory, so it is fetched in address order, each line once, a panel ahead.
 */
#ifndef KERNELS_CPU_AVX512_MATMUL_AVX512_H
#define KERNELS_CPU_AVX512_MATMUL_AVX512_H

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

    /* Scales and biases of groups [table_from, table_from + 8), for types that keep them in arrays. */
    int64_t table_from;
    __m512  table[2][8];
} format_at;

typedef void emit_fn(void *sink, int quad, __m512i v);

/* The vector words of impl/matmul_formats.h. */
typedef __m512i vi;
typedef __m512  vf;
#define v_and _mm512_and_si512
#define v_or _mm512_or_si512
#define v_xor _mm512_xor_si512
#define v_srl16 _mm512_srli_epi16
#define v_sll16 _mm512_slli_epi16
#define v_srl32 _mm512_srli_epi32
#define v_sll32 _mm512_slli_epi32
#define v_sub32 _mm512_sub_epi32
#define v_set8(x) _mm512_set1_epi8((char)(x))
#define v_set32 _mm512_set1_epi32
#define v_lookup _mm512_shuffle_epi8
#define v_table _mm512_broadcast_i32x4
#define v_float _mm512_cvtepi32_ps
#define v_as_float _mm512_castsi512_ps
#define v_mul _mm512_mul_ps
#define v_fmsub _mm512_fmsub_ps
#define v_setf _mm512_set1_ps
#define v_negate(x) _mm512_sub_ps(_mm512_setzero_ps(), x)
#define v_select(mask, a, b) _mm512_ternarylogic_epi32(mask, a, b, 0xca)
#define v_join(v, h, mask) v_and(v_select(v_set8(15), v, h), v_set8((mask) | 15))
#define v_if_equal(a, b, yes, no) _mm512_mask_mov_epi32(no, _mm512_cmpeq_epi32_mask(a, b), yes)

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

/*
 * Sixteen rows as two pointers and four multiples of the stride: with the scaled addresses of the machine that is all
 * 16 of them in six registers. Left alone, compilers keep one offset per row and move them in and out of registers.
 */
typedef struct rows16 {
    const uint8_t *lo, *hi; /* rows 0 and 8 */
    size_t         s, s3, s5, s7;
} rows16;

INLINE rows16 rows_at(const uint8_t *p, size_t stride) {
    rows16 r = { p, p + 8 * stride, stride, 3 * stride, 5 * stride, 7 * stride };
    __asm__("" : "+r"(r.hi), "+r"(r.s3), "+r"(r.s5), "+r"(r.s7));
    return r;
}

INLINE void rows_move(rows16 *r, size_t bytes) {
    r->lo += bytes;
    r->hi += bytes;
}

INLINE const uint8_t *row_of(const rows16 *r, int i) {
    const uint8_t *p = i < 8 ? r->lo : r->hi;
    switch (i % 8) {
    case 0: return p;
    case 1: return p + r->s;
    case 2: return p + 2 * r->s;
    case 3: return p + r->s3;
    case 4: return p + 4 * r->s;
    case 5: return p + r->s5;
    case 6: return p + 2 * r->s3;
    default: return p + r->s7;
    }
}

/* Rows q, q+4, q+8, q+12: 16 bytes each, one per 128-bit lane. */
INLINE __m512i rows_of_four(const rows16 *r, int q, size_t at) {
    __m256i lo = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const void *)(row_of(r, q) + at))),
                                         _mm_loadu_si128((const void *)(row_of(r, q + 4) + at)), 1);
    __m256i hi = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const void *)(row_of(r, q + 8) + at))),
                                         _mm_loadu_si128((const void *)(row_of(r, q + 12) + at)), 1);
    return _mm512_inserti64x4(_mm512_castsi256_si512(lo), hi, 1);
}

/* 16 bytes of 16 rows, transposed: out[j] holds dword j of every row, row r in lane r. */
INLINE void rows_transpose16(const rows16 *r, size_t at, __m512i out[4]) {
    __m512i a = rows_of_four(r, 0, at), b = rows_of_four(r, 1, at);
    __m512i c = rows_of_four(r, 2, at), d = rows_of_four(r, 3, at);
    __m512i ab0 = _mm512_unpacklo_epi32(a, b), ab1 = _mm512_unpackhi_epi32(a, b);
    __m512i cd0 = _mm512_unpacklo_epi32(c, d), cd1 = _mm512_unpackhi_epi32(c, d);
    out[0] = _mm512_unpacklo_epi64(ab0, cd0);
    out[1] = _mm512_unpackhi_epi64(ab0, cd0);
    out[2] = _mm512_unpacklo_epi64(ab1, cd1);
    out[3] = _mm512_unpackhi_epi64(ab1, cd1);
}

INLINE void transpose16(const uint8_t *p, size_t stride, __m512i out[4]) {
    rows16 r = rows_at(p, stride);
    rows_transpose16(&r, 0, out);
}

/* r[i] = row i; afterwards r[j] = dword j of every row. */
INLINE void transpose64(__m512i r[16]) {
    __m512i t[16];
    UNROLL
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    UNROLL
    for (int i = 0; i < 16; i += 4) { /* r[i + j]: dwords j, 4+j, 8+j, 12+j of rows i..i+3, one per 128-bit lane */
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    UNROLL
    for (int j = 0; j < 4; j++) {
        t[j] = _mm512_shuffle_i32x4(r[j], r[4 + j], 0x88);          /* lanes 0, 2 of rows 0..7 */
        t[4 + j] = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0x88); /* and of rows 8..15 */
        t[8 + j] = _mm512_shuffle_i32x4(r[j], r[4 + j], 0xdd);
        t[12 + j] = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0xdd);
    }
    UNROLL
    for (int j = 0; j < 4; j++) {
        r[j] = _mm512_shuffle_i32x4(t[j], t[4 + j], 0x88);
        r[4 + j] = _mm512_shuffle_i32x4(t[8 + j], t[12 + j], 0x88);
        r[8 + j] = _mm512_shuffle_i32x4(t[j], t[4 + j], 0xdd);
        r[12 + j] = _mm512_shuffle_i32x4(t[8 + j], t[12 + j], 0xdd);
    }
}

INLINE void load64(const uint8_t *p, size_t stride, __m512i r[16]) {
    UNROLL
    for (int i = 0; i < 16; i++) r[i] = _mm512_loadu_si512(p + (size_t)i * stride);
    transpose64(r);
}

/* One u16 of 16 rows. */
INLINE __m256i rows_column16(const rows16 *r, size_t at) {
    __m128i a = _mm_cvtsi32_si128(load_u16(row_of(r, 0) + at)), b = _mm_cvtsi32_si128(load_u16(row_of(r, 8) + at));
#define PUT(i)                                                                                                         \
    a = _mm_insert_epi16(a, load_u16(row_of(r, i) + at), i);                                                           \
    b = _mm_insert_epi16(b, load_u16(row_of(r, 8 + (i)) + at), i);
    PUT(1)
    PUT(2)
    PUT(3)
    PUT(4)
    PUT(5)
    PUT(6)
    PUT(7)
#undef PUT
    return _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
}

INLINE __m256i column16(const uint8_t *p, size_t stride) {
    rows16 r = rows_at(p, stride);
    return rows_column16(&r, 0);
}

INLINE __m512 column_f16(const uint8_t *p, size_t stride) { return _mm512_cvtph_ps(column16(p, stride)); }

/* Halves of 16 dwords, as f16 to f32. */
INLINE __m512 low_f16(__m512i v) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)); }
INLINE __m512 high_f16(__m512i v) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(v, 16))); }

/* One byte of 16 rows. */
INLINE __m512i column_u8(const uint8_t *p, size_t s) {
    uint8_t b[16];
    for (int r = 0; r < 16; r++) b[r] = p[(size_t)r * s];
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)b));
}

INLINE void emit_panel(void *sink, int quad, __m512i v) { _mm512_store_si512((uint8_t *)sink + quad * 64, v); }

/* Sums of a part with one activation row: up to 8 groups of 32 or 16. */
typedef struct dots {
    const act8 *x;
    __m512i     acc[8];
} dots;

INLINE void emit_dots32(void *sink, int quad, __m512i v) {
    dots   *d = sink;
    __m512i x = _mm512_set1_epi32((int)load_u32(d->x[quad / 8].q + quad % 8 * 4));
    d->acc[quad / 8] = _mm512_dpbusd_epi32(d->acc[quad / 8], v, x);
}

INLINE void emit_dots16(void *sink, int quad, __m512i v) {
    dots   *d = sink;
    __m512i x = _mm512_set1_epi32((int)load_u32(d->x[quad / 8].q + quad % 8 * 4));
    d->acc[quad / 4] = _mm512_dpbusd_epi32(d->acc[quad / 4], v, x);
}

/* The pair (-zero, -zero), or for groups of 16 the half of it that counts, to be multiplied with the sums of a block.
 */
INLINE __m512i zero_pair(int zero, int group, int half) {
    uint32_t one = (uint16_t)-zero;
    uint32_t pair = (group == 32 || half == 0 ? one : 0) | (group == 32 || half == 1 ? one << 16 : 0);
    return _mm512_set1_epi32((int)pair);
}

/* -zero * (sum of the group's activations): where the integer sums begin. */
INLINE __m512i zero_start(const act8 *x, __m512i pair) {
    return _mm512_madd_epi16(_mm512_set1_epi32((int)load_u32(x->s)), pair);
}

/* The float steps of a group; both paths use them. */
INLINE __m512 group_add(__m512 acc, __m512i sum, __m512 scale, const act8 *x) {
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(scale, _mm512_set1_ps(x->d)), acc);
}

INLINE __m512 group_add_min(__m512 acc, __m512 min, const act8 *x, int group, int half) {
    float ds = group == 32 ? x->ds : x->d * (float)x->s[half];
    return _mm512_fmadd_ps(min, _mm512_set1_ps(ds), acc);
}

/* To L2: a panel ahead is more than L1 holds. */
INLINE void fetch(const uint8_t *p, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 64) _mm_prefetch((const char *)p + i, _MM_HINT_T1);
}

/*
 * Reading ahead. 16 rows are 16 streams, more than the hardware follows by itself. Each is fetched AHEAD bytes before
 * it is used, on into the next 16 rows, a line or two at every step; that way the hardware helps. (Fetching the next
 * panel in the order of its addresses came at three quarters of that speed, many lines at once or into L1 at half.)
 */
enum { AHEAD = 3456 };

/* How far from here that place lies; `used`: bytes used of this panel's rows. */
INLINE size_t row_fetch_offset(size_t used, size_t stride, size_t ahead) {
    size_t off = ahead;
    if (stride < 256) return ahead; /* a panel is a few KB: nothing to gain */
    for (used += ahead; used >= stride; used -= stride) off += 15 * stride;
    return off;
}

/* Asks for a line between the making of v and its use: compilers gather plain prefetches in one place. */
INLINE __m512i with_fetch(__m512i v, const uint8_t *line) {
    __asm__("prefetcht1 %1" : "+v"(v) : "m"(*line));
    return v;
}

#define MATMUL_UNPACK(NAME, UNIT, PART, GROUP, ZERO, MIN)                                                              \
    void matmul_unpack8_##NAME##_avx512(const matmul_src *s, int64_t row0, int n, int64_t k0, int kn,                  \
                                        matmul_panel8 *p) {                                                            \
        format_at at = { s->data + (size_t)row0 * s->w->row_bytes + (size_t)(k0 / (UNIT)) * NAME##_bytes,              \
                         s->w->row_bytes,                                                                              \
                         s,                                                                                            \
                         row0,                                                                                         \
                         k0,                                                                                           \
                         -8,                                                                                           \
                         { { { 0 } } } };                                                                              \
        (void)n;                                                                                                       \
        for (int k = 0; k < kn; k += (UNIT), at.data += NAME##_bytes, at.k += (UNIT)) {                                \
            __m512 scale[(UNIT) / (GROUP)], min[(UNIT) / (GROUP)];                                                     \
            NAME##_scales(&at, scale, min);                                                                            \
            UNROLL for (int g = 0; g < (UNIT) / (GROUP); g++) {                                                        \
                _mm512_store_ps(p->scale + (k / (GROUP) + g) * MATMUL_PANEL, scale[g]);                                \
                if (MIN) _mm512_store_ps(p->min + (k / (GROUP) + g) * MATMUL_PANEL, min[g]);                           \
            }                                                                                                          \
            UNROLL for (int part = 0; part < (UNIT) / (PART); part++)                                                  \
                NAME##_part(&at, part, p->q + (k + part * (PART)) * MATMUL_PANEL, emit_panel);                         \
        }                                                                                                              \
    }

#define MATMUL_GEMV(NAME, UNIT, PART, GROUP, ZERO, MIN)                                                                \
    void matmul_gemv8_##NAME##_avx512(const matmul_src *s, int64_t row0, const act8 *x, float *out) {                  \
        format_at at = { s->data + (size_t)row0 * s->w->row_bytes, s->w->row_bytes, s, row0, 0, -8, { { { 0 } } } };   \
        const uint8_t *ahead = at.data + 16 * at.stride;                                                               \
        __m512         acc = _mm512_setzero_ps();                                                                      \
        for (; at.k < s->w->cols; at.k += (UNIT), at.data += NAME##_bytes) {                                           \
            __m512 scale[(UNIT) / (GROUP)], min[(UNIT) / (GROUP)];                                                     \
            NAME##_scales(&at, scale, min);                                                                            \
            UNROLL for (int part = 0; part < (UNIT) / (PART); part++, x += (PART) / 32) {                              \
                dots d;                                                                                                \
                fetch(ahead, 16 * NAME##_bytes / ((UNIT) / (PART)));                                                   \
                ahead += 16 * NAME##_bytes / ((UNIT) / (PART));                                                        \
                d.x = x;                                                                                               \
                UNROLL for (int g = 0; g < (PART) / (GROUP); g++) d.acc[g] =                                           \
                    (MIN) ? _mm512_setzero_si512() : zero_start(x + g * (GROUP) / 32, zero_pair(ZERO, GROUP, g % 2));  \
                NAME##_part(&at, part, &d, (GROUP) == 32 ? emit_dots32 : emit_dots16);                                 \
                UNROLL for (int g = 0; g < (PART) / (GROUP); g++) {                                                    \
                    const act8 *b = x + g * (GROUP) / 32;                                                              \
                    int         at_group = part * ((PART) / (GROUP)) + g;                                              \
                    acc = group_add(acc, d.acc[g], scale[at_group], b);                                                \
                    if (MIN) acc = group_add_min(acc, min[at_group], b, GROUP, g % 2);                                 \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
        _mm512_storeu_ps(out, acc);                                                                                    \
    }

/*
 * The matrix-vector kernel of these formats: avx512/matmul_rows.h. There are two. On Zen 4 lines that are asked for again
 * and again come sooner (Q8_0: 80% of plain reading with one request, 93-95% with two). On the Intel processors that have
 * tiles every request takes a place that loads wait for: there each line is asked for once.
 */
#define MATMUL_FORMAT(NAME, UNIT, PART, GROUP, ZERO, MIN, LARGEST)                                                     \
    MATMUL_UNPACK(NAME, UNIT, PART, GROUP, ZERO, MIN)                                                                  \
    void matmul_gemv8_##NAME##_avx512(const matmul_src *s, int64_t row0, const act8 *x, float *out) {                  \
        MATMUL_GEMV_ROWS_##GROUP(NAME, UNIT, PART, ZERO, MIN, LARGEST, true);                                          \
    }                                                                                                                  \
    void matmul_gemv8_##NAME##_once_avx512(const matmul_src *s, int64_t row0, const act8 *x, float *out) {             \
        MATMUL_GEMV_ROWS_##GROUP(NAME, UNIT, PART, ZERO, MIN, LARGEST, false);                                         \
    }                                                                                                                  \
    MATMUL_FEW_ROWS(NAME, UNIT, PART, GROUP, MIN, 2)                                                                   \
    MATMUL_FEW_ROWS(NAME, UNIT, PART, GROUP, MIN, 4)                                                                   \
    MATMUL_FEW_ROWS(NAME, UNIT, PART, GROUP, MIN, 8)
/* The kernels for a few rows: avx512/matmul_few.h. */
#define MATMUL_FEW_ROWS(NAME, UNIT, PART, GROUP, MIN, N)                                                               \
    MATMUL_FEW_KERNEL(NAME, UNIT, PART, GROUP, MATMUL_MIN_##MIN(NAME), N)
#define MATMUL_GEMV_ROWS_16(NAME, UNIT, PART, ZERO, MIN, LARGEST, AGAIN) gemv_##NAME(s, row0, x, out, AGAIN)
#define MATMUL_GEMV_ROWS_32(NAME, UNIT, PART, ZERO, MIN, LARGEST, AGAIN)                                               \
    gemv_rows(s, row0, x, out, UNIT, PART, ZERO, LARGEST, NAME##_bytes, NAME##_n_raw, NAME##_row_head, NAME##_scale,   \
              MATMUL_MIN_##MIN(NAME), NAME##_raw, NAME##_pieces, NAME##_bits, AGAIN)
#define MATMUL_MIN_1(NAME) NAME##_min
#define MATMUL_MIN_0(NAME) NULL

#include "kernels/cpu/impl/matmul_formats.h"

/* Formats with their own unpacking and matrix-vector kernel: X(tensor type, NAME). The first have kernels for a few
 * rows, too. */
#define MATMUL_AVX512_FEW(X)                                                                                           \
    X(Q4_0, q4_0)                                                                                                      \
    X(Q8_0, q8_0)                                                                                                      \
    X(IQ4_NL, iq4_nl)                                                                                                  \
    X(MXFP4, mxfp4)                                                                                                    \
    X(Q4_K, q4_k)                                                                                                      \
    X(Q5_K, q5_k)                                                                                                      \
    X(Q6_K, q6_k)                                                                                                      \
    X(IQ4_XS, iq4_xs)
#define MATMUL_AVX512_MLX(X)                                                                                           \
    X(MLX_AFF4, mlx_aff4)                                                                                              \
    X(MLX_AFF8, mlx_aff8)                                                                                              \
    X(MLX_MXFP4, mlx_mxfp4)
#define MATMUL_AVX512_FORMATS(X) MATMUL_AVX512_FEW(X) MATMUL_AVX512_MLX(X)

#define X(type, name)                                                                                                  \
    matmul_unpack8_fn matmul_unpack8_##name##_avx512;                                                                  \
    matmul_gemv8_fn   matmul_gemv8_##name##_avx512;
MATMUL_AVX512_FORMATS(X)
#undef X

#define X(type, name)                                                                                                  \
    matmul_gemv8_fn matmul_gemv8_##name##_once_avx512;                                                                 \
    matmul_few8_fn  matmul_few8_##name##_2_avx512, matmul_few8_##name##_4_avx512, matmul_few8_##name##_8_avx512;
MATMUL_AVX512_FEW(X)
#undef X

matmul_arrange8_fn            matmul_arrange8_avx512;
extern matmul_tile8_fn *const matmul_tile8_avx512[MATMUL_FORMS][MATMUL_WIDE][MATMUL_ROWS8];

#endif
