/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The matrix-vector kernel of AVX-512: dots along the rows, as the bytes lie in the file.
 *
 * A register holds 16 bytes of four weight rows (q, q + 4, q + 8, q + 12, one per 128-bit lane). vpdpbusd with 16
 * activations in every lane leaves four partial sums per row; the registers of q = 0..3 are then added across: the
 * result is one register of 16 integer sums, row r in lane r, which goes into one FMA per group as in every other path.
 * Against transposing the weights this takes fewer shuffles, and no chain of dots is longer than two.
 *
 * What a format brings: impl/matmul_row_formats.h. Sums of integers are exact in any order; the float steps are in the
 * order of K (kernels/matmul.h).
 *
 * A step is one q of one part. The schedulers of the vector units see only some 60 instructions ahead, so raw bytes are
 * loaded `early` steps before their use, across units (at the end of the rows the last unit is loaded again).
 */
#ifndef KERNELS_CPU_AVX512_MATMUL_ROWS_H
#define KERNELS_CPU_AVX512_MATMUL_ROWS_H

#include "kernels/cpu/avx512/matmul_avx512.h"

typedef rows16 row_set;
#define rows_of rows_of_four
#define ROW_SIGNED false

INLINE __m512 rows_f16(const rows16 *r, size_t at) { return _mm512_cvtph_ps(rows_column16(r, at)); }

INLINE __m512i rows_u8(const rows16 *r, size_t at) {
    uint8_t b[16];
    UNROLL
    for (int i = 0; i < 16; i++) b[i] = row_of(r, i)[at];
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)b));
}

#include "kernels/cpu/impl/matmul_row_formats.h"

/* Keeps a value where the source made it. */
INLINE __m512i made_here(__m512i v) {
    __asm__ volatile("" : "+v"(v));
    return v;
}

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

/* Groups of 32. All arguments but the first four are constants; n_raw registers are the raw bytes of a step. */
INLINE void gemv_rows(const matmul_src *s, int64_t row0, const act8 *x, float *out, int unit, int part, int zero,
                      int largest, int bytes, int n_raw, row_head_fn *head, scale_fn *scale, scale_fn *min, raw_fn *raw,
                      pieces_fn *pieces, bits_fn *more, bool again) {
    const int groups = part / 32, parts = unit / part, steps = 4 * parts, early = parts == 1 ? 4 : 2;
    /* Rows per step that are read ahead, and how often a row is asked for (see MATMUL_FORMAT). */
    const int    lines = bytes / parts < 32 ? 2 : 4, asks = lines == 2 || !again ? 1 : 3;
    const size_t stride = s->w->row_bytes;
    rows16       r = rows_at(s->data + (size_t)row0 * stride, stride);
    unit_bits    bits;
    __m512i      b[36][2];
    __m512       acc = _mm512_setzero_ps();
    UNROLL
    for (int t = 0; t < early; t++) raw(&r, t % 4, t / 4, b[t]);
    for (int64_t k = 0; k < s->w->cols; k += unit) {
        format_head    h;
        const size_t   off = row_fetch_offset((size_t)(k / unit) * (size_t)bytes, stride, AHEAD);
        const size_t   next = k + unit < s->w->cols ? (size_t)bytes : 0;
        const uint8_t *line = r.lo + off; /* the next to ask for: a row further each time */
        /* Short units and parts: half of the rows in turn. */
        if (lines == 2 && parts == 1) line += (size_t)(k / unit % 2) * 2 * stride;
        head(&r, &h);
        if (more) more(&r, &bits);
        UNROLL
        for (int p = 0; p < parts; p++, x += groups) {
            __m512i d[4][2];
            if (p > 0) {
                line += (size_t)(bytes / parts);
                line -= 16 * stride;
                if (lines != 4) line = p % 2 ? line + 2 * stride : line - 2 * stride;
            }
            UNROLL
            for (int q = 0; q < 4; q++) {
                const int t = 4 * p + q, u = t + early;
                __m512i   v[4];
                if (u == steps) rows_move(&r, next);
                raw(&r, u % 4, u / 4 % parts, b[u]);
                UNROLL
                for (int i = 0; i < n_raw; i++) b[u][i] = made_here(b[u][i]);
                pieces(b[t], &bits, p, q, v);
                UNROLL
                for (int i = 0; i < lines * asks; i++) {
                    const uint8_t *want = line + (size_t)(i / asks) * stride + i % asks * (bytes / parts / asks);
                    v[i % (2 * groups)] = with_fetch(v[i % (2 * groups)], want);
                }
                line += 4 * stride;
                UNROLL
                for (int g = 0; g < groups; g++) {
                    d[q][g] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), v[2 * g], acts16(x + g, 0));
                    d[q][g] = made_here(_mm512_dpbusd_epi32(d[q][g], v[2 * g + 1], acts16(x + g, 1)));
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
        UNROLL
        for (int t = 0; t < early; t++) {
            b[t][0] = b[steps + t][0];
            if (n_raw > 1) b[t][1] = b[steps + t][1];
        }
    }
    _mm512_storeu_ps(out, acc);
}

/*
 * q6_k: its groups are 16 long, and 64 bytes of a row are the values of four groups: a lane is a group, a register one
 * row. Four rows are added across as above (a lane is then a group of four rows), and the lanes of 16 rows gathered.
 */

/* Half a block of one row: groups 0..3 and 4..7. The pairs of bits of a byte of qh belong to groups 0 1, 2 3, 4 5, 6 7;
 * what the shifts leave besides bits 4 and 5 falls under the low nibbles. */
INLINE void q6_k_raw(const rows16 *r, int row, int half, __m512i raw[2]) {
    const uint8_t *p = row_of(r, row);
    raw[0] = made_here(_mm512_loadu_si512(p + 64 * half));
    raw[1] = made_here(_mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)(p + 128 + 32 * half))));
}
INLINE void q6_k_half(const __m512i raw[2], __m512i v[2]) {
    const __m512i pairs = _mm512_inserti64x4(_mm512_set1_epi8(0x33), _mm256_set1_epi8((char)0xcc), 1);
    const __m512i left = _mm512_inserti64x4(_mm512_set1_epi16(4), _mm256_set1_epi16(2), 1);
    const __m512i right = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(2), 1);
    const __m512i low = _mm512_set1_epi8(15);
    __m512i       h = _mm512_and_si512(raw[1], pairs);
    v[0] = v_select(low, raw[0], _mm512_sllv_epi16(h, left));
    v[1] = v_select(low, _mm512_srli_epi16(raw[0], 4), _mm512_srlv_epi16(h, right));
}
INLINE void q6_k_row_head(const rows16 *r, format_head *h) {
    __m512i t[4];
    rows_transpose16(r, 192, t);
    q6_k_fields(_mm512_cvtph_ps(rows_column16(r, 208)), t, h);
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

INLINE void gemv_q6_k(const matmul_src *s, int64_t row0, const act8 *x, float *out, bool again) {
    enum { EARLY = 2 };
    const size_t stride = s->w->row_bytes;
    rows16       r = rows_at(s->data + (size_t)row0 * stride, stride);
    __m512i      b[32 + EARLY][2];
    __m512       acc = _mm512_setzero_ps();
    UNROLL
    for (int t = 0; t < EARLY; t++) q6_k_raw(&r, t, 0, b[t]);
    for (int64_t k = 0; k < s->w->cols; k += 256) {
        format_head  h;
        const size_t off = row_fetch_offset((size_t)k / 256 * q6_k_bytes, stride, 16 * q6_k_bytes);
        const size_t next = k + 256 < s->w->cols ? q6_k_bytes : 0;
        rows16       line = r;
        rows_move(&line, off);
        __asm__("" : "+r"(line.lo), "+r"(line.hi));
        q6_k_row_head(&r, &h);
        UNROLL
        for (int p = 0; p < 2; p++, x += 4) {
            __m512i y[2] = { acts64(x), acts64(x + 2) }, from[2] = { q6_k_start(y[0]), q6_k_start(y[1]) };
            __m512i four[2][4], sum[8];
            UNROLL
            for (int q = 0; q < 4; q++) {
                __m512i d[4][2];
                UNROLL
                for (int i = 0; i < 4; i++) {
                    const int t = 16 * p + 4 * q + i, u = t + EARLY;
                    __m512i   v[2];
                    if (u == 32) rows_move(&r, next);
                    q6_k_raw(&r, u % 16, u / 16 % 2, b[u]);
                    q6_k_half(b[t], v);
                    UNROLL
                    for (int e = 0; e < 2; e++) {
                        v[e] = with_fetch(v[e], row_of(&line, t % 16) + 104 * p + 52 * e);
                        if (again) v[e] = with_fetch(v[e], row_of(&line, t % 16) + 104 * p + 52 * e + 26);
                        d[i][e] = made_here(_mm512_dpbusd_epi32(from[e], v[e], y[e]));
                    }
                }
                UNROLL
                for (int e = 0; e < 2; e++)
                    four[e][q] = add_across(d[0][e], d[1][e], d[2][e], d[3][e], _mm512_setzero_si512(), 32 * 127 * 4);
            }
            gather_lanes(four[0], sum);
            gather_lanes(four[1], sum + 4);
            UNROLL
            for (int g = 0; g < 8; g++) acc = group_add(acc, sum[g], q6_k_scale(&h, 8 * p + g), x + g / 2);
        }
        UNROLL
        for (int t = 0; t < EARLY; t++) b[t][0] = b[32 + t][0], b[t][1] = b[32 + t][1];
    }
    _mm512_storeu_ps(out, acc);
}

#endif
