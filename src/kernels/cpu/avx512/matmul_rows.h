/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The matrix-vector kernel of AVX-512: dots along the rows, as the bytes lie in the file.
 *
 * A register holds 16 bytes of four weight rows (q, q + 4, q + 8, q + 12, one per 128-bit lane). vpdpbusd with 16
 * activations in every lane leaves four partial sums per row; the registers of q = 0..3 are then added across: the
 * result is one register of 16 integer sums, row r in lane r, which goes into one FMA per group as in every other path.
 * Against transposing the weights this takes fewer shuffles, and no chain of dots is longer than two.
 *
 * A format NAME brings, beside NAME_bytes, NAME_head and NAME_scale (impl/matmul_formats.h),
 *
 *     NAME_pieces(const uint8_t *unit, size_t stride, int part, __m512i *v)
 *
 * v[j]: inputs 16j.. of the part, of the rows unit + {0, 4, 8, 12} * stride; two pieces are a group of 32. Sums of
 * integers are exact in any order; the float steps are in the order of K (kernels/matmul.h).
 */
#ifndef KERNELS_CPU_AVX512_MATMUL_ROWS_H
#define KERNELS_CPU_AVX512_MATMUL_ROWS_H

#include "kernels/cpu/avx512/matmul_avx512.h"

typedef void   pieces_fn(const uint8_t *unit, size_t stride, int part, __m512i *v);
typedef void   head_fn(format_at *at, format_head *h);
typedef __m512 scale_fn(const format_head *h, int g);

/*
 * start + the sums of each lane of a, b, c, d. Partial sums are at most `largest` in size: they are added in 16 bits
 * where they fit, which takes half the shuffles.
 */
INLINE __m512i add_across(__m512i a, __m512i b, __m512i c, __m512i d, __m512i start, int largest) {
    const __m512i ones = _mm512_set1_epi16(1);
    if (largest <= 32767) {
        __m512i ab = _mm512_madd_epi16(_mm512_packs_epi32(a, b), ones); /* a01 a23 b01 b23 */
        __m512i cd = _mm512_madd_epi16(_mm512_packs_epi32(c, d), ones);
        if (2 * largest <= 32767) return _mm512_dpwssd_epi32(start, _mm512_packs_epi32(ab, cd), ones);
        __m512  x = _mm512_castsi512_ps(ab), y = _mm512_castsi512_ps(cd);
        __m512i even = _mm512_castps_si512(_mm512_shuffle_ps(x, y, 0x88)),
                odd = _mm512_castps_si512(_mm512_shuffle_ps(x, y, 0xdd));
        return _mm512_add_epi32(start, _mm512_add_epi32(even, odd));
    }
    __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b)); /* a02 b02 a13 b13 */
    __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    __m512i all = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    return _mm512_add_epi32(start, all);
}

/* 16 activations in every lane. */
INLINE __m512i acts16(const act8 *x, int half) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)(x->q + 16 * half)));
}

/* Groups of 32. All arguments but the first four are constants. */
INLINE void gemv_rows(const matmul_src *s, int64_t row0, const act8 *x, float *out, int unit, int part, int zero,
                      int largest, int bytes, head_fn *head, scale_fn *scale, scale_fn *min, pieces_fn *pieces) {
    format_at    at = { s->data + (size_t)row0 * s->w->row_bytes, s->w->row_bytes, s, row0, 0, -8, { { { 0 } } } };
    const int    groups = part / 32, parts = unit / part, lines = bytes / parts < 32 ? 2 : 4;
    const size_t ahead = bytes == 34 ? AHEAD_LONG : AHEAD;
    __m512       acc = _mm512_setzero_ps();
    for (; at.k < s->w->cols; at.k += unit, at.data += bytes) {
        format_head    h;
        const uint8_t *line = at.data + row_fetch_offset((size_t)(at.k / unit) * bytes, at.stride, ahead);
        if (lines == 2 && at.k / unit % 2) line += 2 * at.stride; /* blocks of 18 bytes: half of the rows in turn */
        head(&at, &h);
        UNROLL
        for (int p = 0; p < parts; p++, x += groups) {
            __m512i d[4][2];
            UNROLL
            for (int q = 0; q < 4; q++) {
                __m512i v[4];
                pieces(at.data + (size_t)q * at.stride, at.stride, p, v);
                UNROLL
                for (int i = 0; i < lines; i++)
                    v[i % (2 * groups)] =
                        with_fetch(v[i % (2 * groups)], line + (size_t)(4 * q + i) * at.stride + p * (bytes / parts));
                UNROLL
                for (int g = 0; g < groups; g++) {
                    d[q][g] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), v[2 * g], acts16(x + g, 0));
                    d[q][g] = _mm512_dpbusd_epi32(d[q][g], v[2 * g + 1], acts16(x + g, 1));
                }
            }
            UNROLL
            for (int g = 0; g < groups; g++) {
                __m512i start = zero ? zero_start(x + g, zero_pair(zero, 32, 0)) : _mm512_setzero_si512();
                __m512i sum = add_across(d[0][g], d[1][g], d[2][g], d[3][g], start, largest * 127 * 8);
                acc = group_add(acc, sum, scale(&h, p * groups + g), x + g);
                if (min) acc = group_add_min(acc, min(&h, p * groups + g), x + g, 32, 0);
            }
        }
    }
    _mm512_storeu_ps(out, acc);
}

INLINE void q4_0_pieces(const uint8_t *unit, size_t stride, int part, __m512i *v) {
    __m512i b = rows_of_four(unit + 2, stride);
    (void)part;
    v[0] = low_nibbles(b);
    v[1] = high_nibbles(b);
}

INLINE void q8_0_pieces(const uint8_t *unit, size_t stride, int part, __m512i *v) {
    (void)part;
    for (int h = 0; h < 2; h++)
        v[h] = _mm512_xor_si512(rows_of_four(unit + 2 + 16 * h, stride), _mm512_set1_epi8((char)0x80));
}

INLINE void iq4_nl_pieces(const uint8_t *unit, size_t stride, int part, __m512i *v) {
    q4_0_pieces(unit, stride, part, v);
    for (int h = 0; h < 2; h++) v[h] = _mm512_shuffle_epi8(iq4_table(), v[h]);
}

INLINE void mxfp4_pieces(const uint8_t *unit, size_t stride, int part, __m512i *v) {
    q4_0_pieces(unit - 1, stride, part, v);
    for (int h = 0; h < 2; h++) v[h] = _mm512_shuffle_epi8(fp4_table(), v[h]);
}

INLINE void q4_k_pieces(const uint8_t *unit, size_t stride, int part, __m512i *v) {
    for (int h = 0; h < 2; h++) {
        __m512i b = rows_of_four(unit + 16 + 32 * part + 16 * h, stride);
        v[h] = low_nibbles(b);
        v[2 + h] = high_nibbles(b);
    }
}

INLINE void q5_k_pieces(const uint8_t *unit, size_t stride, int part, __m512i *v) {
    for (int h = 0; h < 2; h++) {
        __m512i b = rows_of_four(unit + 48 + 32 * part + 16 * h, stride), f = rows_of_four(unit + 16 + 16 * h, stride);
        v[h] = with_fifth(b, f, 2 * part);
        v[2 + h] = with_fifth(_mm512_srli_epi16(b, 4), f, 2 * part + 1);
    }
}

INLINE void iq4_xs_pieces(const uint8_t *unit, size_t stride, int part, __m512i *v) {
    iq4_nl_pieces(unit + 6 + 16 * part, stride, part, v);
}

/*
 * q6_k: its groups are 16 long, and 64 bytes of a row are the values of four groups: a lane is a group, a register one
 * row. Four rows are added across as above (a lane is then a group of four rows), and the lanes of 16 rows gathered.
 */

/* Half a block of one row: groups 0..3 and 4..7. The pairs of bits of a byte of qh belong to groups 0 1, 2 3, 4 5, 6 7;
 * what the shifts leave besides bits 4 and 5 falls under the low nibbles. */
INLINE void q6_k_half(const uint8_t *ql, const uint8_t *qh, __m512i v[2]) {
    const __m512i pairs = _mm512_inserti64x4(_mm512_set1_epi8(0x33), _mm256_set1_epi8((char)0xcc), 1);
    const __m512i left = _mm512_inserti64x4(_mm512_set1_epi16(16), _mm256_set1_epi16(4), 1);
    const __m512i right = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(2), 1);
    const __m512i low = _mm512_set1_epi8(15);
    __m512i       l = _mm512_loadu_si512(ql), h = _mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)qh));
    h = _mm512_and_si512(h, pairs);
    v[0] = v_select(low, l, _mm512_mullo_epi16(h, left));
    v[1] = v_select(low, _mm512_srli_epi16(l, 4), _mm512_srlv_epi16(h, right));
}

/* Lane g of the four registers, one after the other: rows 0..15 of group g. */
INLINE void gather_lanes(const __m512i r[4], __m512i out[4]) {
    __m512i a = _mm512_shuffle_i32x4(r[0], r[1], 0x88), b = _mm512_shuffle_i32x4(r[2], r[3], 0x88);
    __m512i c = _mm512_shuffle_i32x4(r[0], r[1], 0xdd), d = _mm512_shuffle_i32x4(r[2], r[3], 0xdd);
    out[0] = _mm512_shuffle_i32x4(a, b, 0x88);
    out[2] = _mm512_shuffle_i32x4(a, b, 0xdd);
    out[1] = _mm512_shuffle_i32x4(c, d, 0x88);
    out[3] = _mm512_shuffle_i32x4(c, d, 0xdd);
}

INLINE __m512i acts64(const act8 *x) {
    __m512i lo = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)x[0].q));
    return _mm512_inserti64x4(lo, _mm256_loadu_si256((const void *)x[1].q), 1);
}

/* Sums of four groups of 64 inputs begin at -32 times each quad's sum: no partial sum passes 14 bits. */
INLINE __m512i q6_k_start(__m512i x) {
    __m512i s = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(32), x);
    return _mm512_sub_epi32(_mm512_setzero_si512(), s);
}

INLINE void gemv_q6_k(const matmul_src *s, int64_t row0, const act8 *x, float *out) {
    format_at at = { s->data + (size_t)row0 * s->w->row_bytes, s->w->row_bytes, s, row0, 0, -8, { { { 0 } } } };
    __m512    acc = _mm512_setzero_ps();
    for (; at.k < s->w->cols; at.k += 256, at.data += q6_k_bytes) {
        format_head h;
        size_t      off = row_fetch_offset((size_t)at.k / 256 * q6_k_bytes, at.stride, AHEAD_LONG);
        q6_k_head(&at, &h);
        UNROLL
        for (int p = 0; p < 2; p++, x += 4) {
            __m512i y[2] = { acts64(x), acts64(x + 2) }, from[2] = { q6_k_start(y[0]), q6_k_start(y[1]) };
            __m512i four[2][4], sum[8];
            UNROLL
            for (int r = 0; r < 4; r++) {
                __m512i d[4][2];
                UNROLL
                for (int i = 0; i < 4; i++) {
                    const uint8_t *row = at.data + (size_t)(4 * r + i) * at.stride;
                    __m512i        v[2];
                    q6_k_half(row + 64 * p, row + 128 + 32 * p, v);
                    v[0] = with_fetch(v[0], row + off + 104 * p);
                    v[1] = with_fetch(v[1], row + off + 104 * p + 64);
                    d[i][0] = _mm512_dpbusd_epi32(from[0], v[0], y[0]);
                    d[i][1] = _mm512_dpbusd_epi32(from[1], v[1], y[1]);
                }
                UNROLL
                for (int e = 0; e < 2; e++)
                    four[e][r] = add_across(d[0][e], d[1][e], d[2][e], d[3][e], _mm512_setzero_si512(), 32 * 127 * 4);
            }
            gather_lanes(four[0], sum);
            gather_lanes(four[1], sum + 4);
            UNROLL
            for (int g = 0; g < 8; g++) acc = group_add(acc, sum[g], q6_k_scale(&h, 8 * p + g), x + g / 2);
        }
    }
    _mm512_storeu_ps(out, acc);
}

#endif
