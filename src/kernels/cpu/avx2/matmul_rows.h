/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The matrix-vector kernel of AVX2: dots along the rows, as the bytes lie in the file, eight weight rows at a time.
 *
 * A register holds 16 bytes of two weight rows (q and q + 4, one per 128-bit lane). Products with 16 activations in
 * both lanes leave eight partial sums per row; the registers of q = 0..3 are then added across: the result is one
 * register of eight integer sums, row r in lane r, which goes into one FMA per group as in every other path. Partial
 * sums stay in 16 bits as long as they fit, and all that are added across do: 8 products of 31, 4 of 63.
 *
 * What a format brings: impl/matmul_row_formats.h. Pieces are unsigned values up to 63, or signed values (their zero
 * taken off) where they may pass that. Sums of integers are exact in any order; the float steps are in the order of K
 * (kernels/matmul.h).
 */
#ifndef KERNELS_CPU_AVX2_MATMUL_ROWS_H
#define KERNELS_CPU_AVX2_MATMUL_ROWS_H

#include "kernels/cpu/avx2/matmul_avx2.h"

/* Eight rows as one pointer and four multiples of the stride: with the scaled addresses of the machine that is all of
 * them in five registers. */
typedef struct rows8 {
    const uint8_t *p;
    size_t         s, s3, s5, s7;
} rows8;

INLINE rows8 rows_at(const uint8_t *p, size_t stride) {
    rows8 r = { p, stride, 3 * stride, 5 * stride, 7 * stride };
    __asm__("" : "+r"(r.s3), "+r"(r.s5), "+r"(r.s7));
    return r;
}

INLINE rows8 rows_from(const rows8 *r, const uint8_t *p) { return (rows8){ p, r->s, r->s3, r->s5, r->s7 }; }

INLINE const uint8_t *row_of(const rows8 *r, int i) {
    switch (i) {
    case 0: return r->p;
    case 1: return r->p + r->s;
    case 2: return r->p + 2 * r->s;
    case 3: return r->p + r->s3;
    case 4: return r->p + 4 * r->s;
    case 5: return r->p + r->s5;
    case 6: return r->p + 2 * r->s3;
    default: return r->p + r->s7;
    }
}

INLINE __m256i rows_of_two(const rows8 *r, int q, size_t at) {
    return two_rows(row_of(r, q) + at, row_of(r, q + 4) + at);
}

INLINE void rows_transpose16(const rows8 *r, size_t at, __m256i out[4]) {
    transpose_rows(rows_of_two(r, 0, at), rows_of_two(r, 1, at), rows_of_two(r, 2, at), rows_of_two(r, 3, at), out);
}

/* The f16 that 16 bytes of each row begin or end with: fewer instructions than inserting one after the other. */
INLINE __m256 rows_column_f16(const rows8 *r, size_t at, bool last) {
    __m128i v[8];
    UNROLL
    for (int i = 0; i < 8; i++) v[i] = _mm_loadu_si128((const void *)(row_of(r, i) + at));
    UNROLL
    for (int i = 0; i < 8; i += 2)
        v[i] = last ? _mm_unpackhi_epi16(v[i], v[i + 1]) : _mm_unpacklo_epi16(v[i], v[i + 1]);
    UNROLL
    for (int i = 0; i < 8; i += 4)
        v[i] = last ? _mm_unpackhi_epi32(v[i], v[i + 2]) : _mm_unpacklo_epi32(v[i], v[i + 2]);
    return _mm256_cvtph_ps(last ? _mm_unpackhi_epi64(v[0], v[4]) : _mm_unpacklo_epi64(v[0], v[4]));
}

typedef rows8 row_set;
#define rows_of rows_of_two
#define ROW_SIGNED true

INLINE __m256 rows_f16(const rows8 *r, size_t at) { return rows_column_f16(r, at, false); }

INLINE __m256i rows_u8(const rows8 *r, size_t at) {
    uint8_t b[8];
    UNROLL
    for (int i = 0; i < 8; i++) b[i] = row_of(r, i)[at];
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)b));
}

#include "kernels/cpu/impl/matmul_row_formats.h"

/*
 * Reading ahead. Eight or 16 rows are as many streams. Each is fetched AHEAD bytes before it is used, on into the next
 * rows, two at every step (avx512/matmul_avx512.h says what else was tried).
 */
enum { AHEAD = 3456 };

typedef struct ahead {
    size_t off;          /* from the bytes in use to those to ask for */
    size_t at;           /* of these in their row */
    size_t stride, rest; /* a row, the rows between this one and its next */
} ahead;

INLINE ahead ahead_of(size_t stride, int rows) {
    ahead a = { AHEAD, AHEAD, stride, (size_t)(rows - 1) * stride };
    if (stride < 256) a.at = 0; /* all rows are a few KB: nothing to gain */
    for (; a.at >= stride; a.at -= stride) a.off += a.rest;
    return a;
}

INLINE void ahead_move(ahead *a, size_t bytes) {
    a->at += bytes;
    if (a->at >= a->stride) {
        a->at -= a->stride;
        a->off += a->rest;
    }
}

/* Asks for a line between the making of v and its use: compilers gather plain prefetches in one place. */
INLINE __m256i with_fetch(__m256i v, const uint8_t *line) {
    __asm__("prefetcht1 %1" : "+x"(v) : "m"(*line));
    return v;
}

/* made_here of a pointer: what is read through it is read here and not kept from before, and no sum of it and a row's
 * offset is kept where the machine's addresses do without. (Left alone, compilers keep dozens on the stack.) */
INLINE const void *here(const void *p) {
    __asm__ volatile("" : "+r"(p));
    return p;
}

INLINE void rows_here(rows8 *r) {
    __asm__ volatile("" : "+r"(r->p), "+r"(r->s), "+r"(r->s3), "+r"(r->s5), "+r"(r->s7));
}

/* 16 activations in both lanes. */
INLINE __m256i acts16(const act8 *x, int half) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)(x->q + 16 * half)));
}

/* In each lane: halves of a added, halves of b added. */
INLINE __m256i add_halves(__m256i a, __m256i b, bool wide) {
    __m256i x = _mm256_blend_epi32(a, b, 0xcc), y = _mm256_alignr_epi8(b, a, 8);
    return wide ? _mm256_add_epi32(x, y) : _mm256_add_epi16(x, y);
}

/* The same of the halves' halves. */
INLINE __m256i add_quarters(__m256i a, __m256i b, bool wide) {
    __m256  x = _mm256_castsi256_ps(a), y = _mm256_castsi256_ps(b);
    __m256i even = _mm256_castps_si256(_mm256_shuffle_ps(x, y, 0x88)),
            odd = _mm256_castps_si256(_mm256_shuffle_ps(x, y, 0xdd));
    return wide ? _mm256_add_epi32(even, odd) : _mm256_add_epi16(even, odd);
}

/* Sums under way, of one group: those of q = 0, 1 and of q = 2, 3 meet as soon as they are there. */
typedef struct across {
    __m256i first, ab, cd;
} across;

/* Sums of 16 or 32 products of two rows: eight of 16 bits per row, four of 32 bits where values pass 63. */
INLINE __m256i piece_dots(const __m256i *v, const act8 *x, int half, int group, int largest) {
    if (largest <= 63) {
        __m256i d = _mm256_maddubs_epi16(v[0], acts16(x, half));
        return group == 16 ? d : _mm256_add_epi16(d, _mm256_maddubs_epi16(v[1], acts16(x, 1)));
    }
    __m256i a = _mm256_maddubs_epi16(_mm256_abs_epi8(v[0]), _mm256_sign_epi8(acts16(x, half), v[0]));
    if (group == 16) return widen(a);
    __m256i b = _mm256_maddubs_epi16(_mm256_abs_epi8(v[1]), _mm256_sign_epi8(acts16(x, 1), v[1]));
    return _mm256_add_epi32(widen(a), widen(b));
}

INLINE void across_put(across *a, int q, __m256i d, int largest) {
    const bool wide = largest > 63;
    if (q % 2 == 0) a->first = d;
    if (q == 1) a->ab = add_halves(a->first, d, wide);
    if (q == 3) a->cd = add_halves(a->first, d, wide);
}

INLINE __m256i across_sum(const across *a, int group, int largest) {
    if (largest > 63) return add_quarters(a->ab, a->cd, true);
    if (largest * 127 * group / 2 <= 32767) return widen(add_quarters(a->ab, a->cd, false));
    return add_quarters(widen(a->ab), widen(a->cd), true);
}

/* A unit of eight rows, groups of 32. All arguments but the first four are constants. */
INLINE __m256 gemv_unit(__m256 acc, rows8 r, size_t far, const act8 *x, int unit, int part, int zero, int largest,
                        int bytes, row_head_fn *head, scale_fn *scale, scale_fn *min, raw_fn *raw, pieces_fn *pieces,
                        bits_fn *more) {
    const int   groups = part / 32, parts = unit / part;
    rows8       line = rows_from(&r, r.p + far);
    format_head h;
    unit_bits   bits;
    head(&r, &h);
    if (more) more(&r, &bits);
    UNROLL
    for (int p = 0; p < parts; p++, x += groups) {
        across a[2];
        if (parts > 1) {
            rows_here(&r);
            line = rows_from(&r, here(line.p));
        }
        UNROLL
        for (int q = 0; q < 4; q++) {
            __m256i b[2], v[4];
            raw(&r, q, p, b);
            pieces(b, &bits, p, q, v);
            v[0] = with_fetch(v[0], row_of(&line, q) + p * (bytes / parts));
            v[1] = with_fetch(v[1], row_of(&line, q + 4) + p * (bytes / parts));
            UNROLL
            for (int g = 0; g < groups; g++)
                across_put(&a[g], q, made_here(piece_dots(v + 2 * g, x + g, 0, 32, largest)), largest);
        }
        UNROLL
        for (int g = 0; g < groups; g++) {
            __m256i sum = across_sum(&a[g], 32, largest);
            if (zero && largest <= 63) sum = _mm256_add_epi32(sum, zero_start(x + g, zero_pair(zero, largest, 32, 0)));
            acc = group_add(acc, sum, scale(&h, p * groups + g), x + g);
            if (min) acc = group_add_min(acc, min(&h, p * groups + g), x + g, 32, 0);
            if (parts > 1) acc = _mm256_castsi256_ps(made_here(_mm256_castps_si256(acc)));
        }
    }
    return acc;
}

/*
 * The rows of a panel. Short units are done for all 16 side by side, which shares the activations and the steps of the
 * loop; long ones for eight rows and then for the others, as more addresses do not fit into registers.
 */
#define MATMUL_GEMV_ROWS(NAME, UNIT)                                                                                   \
    void matmul_gemv8_##NAME##_avx2(const matmul_src *s, int64_t row0, const act8 *rows, float *out) {                 \
        const size_t stride = s->w->row_bytes;                                                                         \
        const int    sides = (UNIT) == 32 ? 2 : 1;                                                                     \
        for (int side = 0; side < 2; side += sides) {                                                                  \
            rows8       r = rows_at(s->data + (size_t)(row0 + 8 * side) * stride, stride);                             \
            ahead       far = ahead_of(stride, 8 * sides);                                                             \
            const act8 *x = rows;                                                                                      \
            __m256      acc[2] = { _mm256_setzero_ps(), _mm256_setzero_ps() };                                         \
            for (int64_t k = 0; k < s->w->cols; k += (UNIT)) {                                                         \
                acc[0] = NAME##_unit(acc[0], r, far.off, x);                                                           \
                if (sides == 2) acc[1] = NAME##_unit(acc[1], rows_from(&r, r.p + 8 * stride), far.off, x);             \
                r.p += NAME##_bytes;                                                                                   \
                x += (UNIT) / 32;                                                                                      \
                ahead_move(&far, NAME##_bytes);                                                                        \
            }                                                                                                          \
            UNROLL for (int i = 0; i < sides; i++) _mm256_storeu_ps(out + 8 * (side + i), acc[i]);                     \
        }                                                                                                              \
    }

/* q6_k: 16 bytes of ql are the values of groups c and c + 4 of half a block, and the bits above them two pairs of the
 * bytes of qh, at 2 * (c / 2) and four further up. */
INLINE void q6_k_row_head(const rows8 *r, format_head *h) {
    __m256i t[4];
    rows_transpose16(r, 192, t);
    q6_k_fields(rows_column_f16(r, 194, true), t, h);
}
INLINE void q6_k_values(const rows8 *r, int q, int half, int c, __m256i v[2]) {
    __m256i a = rows_of_two(r, q, 64 * (size_t)half + 16 * (size_t)c);
    __m256i h = rows_of_two(r, q, 128 + 32 * (size_t)half + 16 * (size_t)(c % 2));
    v[0] = join_bits(a, c < 2 ? _mm256_slli_epi16(h, 4) : _mm256_slli_epi16(h, 2), 0x30);
    v[1] = join_bits(_mm256_srli_epi16(a, 4), c < 2 ? h : _mm256_srli_epi16(h, 2), 0x30);
}

/* The steps of group g of half a block. */
INLINE __m256 q6_k_add(__m256 acc, __m256i sum, const format_head *h, int half, int g, const act8 *x) {
    sum = _mm256_add_epi32(sum, zero_start(x + g / 2, zero_pair(32, 63, 16, g % 2)));
    acc = group_add(acc, sum, q6_k_scale(h, 8 * half + g), x + g / 2);
    return _mm256_castsi256_ps(made_here(_mm256_castps_si256(acc)));
}

INLINE __m256 q6_k_unit(__m256 acc, rows8 r, size_t far, const act8 *x) {
    rows8       line = rows_from(&r, here(r.p + far));
    format_head h;
    q6_k_row_head(&r, &h);
    UNROLL
    for (int half = 0; half < 2; half++, x += 4) {
        __m256i later[4]; /* sums of groups 4..7 */
        rows_here(&r);
        line = rows_from(&r, here(line.p));
        UNROLL
        for (int c = 0; c < 4; c++) {
            across a[2];
            UNROLL
            for (int q = 0; q < 4; q++) {
                __m256i v[2];
                q6_k_values(&r, q, half, c, v);
                UNROLL
                for (int e = 0; e < 2; e++) {
                    if (c % 2 == 0) v[e] = with_fetch(v[e], row_of(&line, q + 4 * e) + 104 * half + 52 * (c / 2));
                    across_put(&a[e], q, piece_dots(v + e, x + 2 * e + c / 2, c % 2, 16, 63), 63);
                }
            }
            acc = q6_k_add(acc, across_sum(&a[0], 16, 63), &h, half, c, x);
            later[c] = made_here(across_sum(&a[1], 16, 63));
        }
        UNROLL
        for (int c = 0; c < 4; c++) acc = q6_k_add(acc, later[c], &h, half, 4 + c, x);
    }
    return acc;
}

#endif
