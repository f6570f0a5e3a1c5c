/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The int8 register tile of AVX2 and AVX-VNNI: one half panel pair (16 weight rows, two registers) x up to 4 activation
 * rows, panel after panel. Eight integer sums, two weights, one broadcast and the temporaries fit in 16 registers; the
 * float sums live on the stack and pass through registers once per group. DOT4 is 1 where vpdpbusd exists.
 */
#define MATMUL_TILE8_FORM(form) (form)
#include "kernels/cpu/avx2/matmul_avx2.h"

/* Where the 16-bit sums of each group begin, see start_sums. */
typedef int32_t tile_starts[MATMUL_ROWS8][MATMUL_KC / 16];

#if !DOT4
/*
 * With zero points, a group's products of u - zero fit into 16 bits where those of u do not: u up to 63 and groups of
 * 16, up to 31 and groups of 32. So sums begin at -zero times the activations that go into them, pass through values
 * that do not fit, and end right, as additions wrap. The even 16 bits of a dword sum inputs 0 and 1 of every quad, the
 * odd ones 2 and 3.
 */
INLINE void start_sums(tile_starts starts, const act8 *const *x, int zero, int kn, int n, int group) {
    for (int r = 0; r < n; r++)
        for (int b = 0; b < kn / 32; b++) {
            __m256i q = _mm256_loadu_si256((const void *)x[r][b].q);
            __m256i s = _mm256_maddubs_epi16(_mm256_set1_epi8((char)zero), q);
            s = _mm256_add_epi16(s, _mm256_shuffle_epi32(s, 0x4e));
            s = _mm256_add_epi16(s, _mm256_shuffle_epi32(s, 0xb1));
            s = _mm256_sub_epi16(_mm256_setzero_si256(), s);
            __m128i lo = _mm256_castsi256_si128(s), hi = _mm256_extracti128_si256(s, 1);
            if (group == 32) {
                starts[r][b] = _mm_cvtsi128_si32(_mm_add_epi16(lo, hi));
            } else {
                starts[r][2 * b] = _mm_cvtsi128_si32(lo);
                starts[r][2 * b + 1] = _mm_cvtsi128_si32(hi);
            }
        }
}

/*
 * Sums of a group with weights up to 127. A quad's weights are loaded once for all rows, whose sums stay in 16 bits for
 * `quads` of them, or from their starts to the group's end.
 */
INLINE void run_dots(const uint8_t *q, const act8 *const *x, int b, int half, __m256i a[2][MATMUL_ROWS8], int n,
                     int group, int quads, const tile_starts *starts, int g) {
    const int run = starts || quads > group / 4 ? group / 4 : quads;
    UNROLL
    for (int from = 0; from < group / 4; from += run) {
        __m256i s[2][MATMUL_ROWS8];
        UNROLL
        for (int r = 0; r < n; r++)
            s[0][r] = s[1][r] = starts ? _mm256_set1_epi32((*starts)[r][g]) : _mm256_setzero_si256();
        UNROLL
        for (int quad = from; quad < from + run; quad++) {
            __m256i w0 = _mm256_load_si256((const void *)(q + quad * 64));
            __m256i w1 = _mm256_load_si256((const void *)(q + quad * 64 + 32));
            UNROLL
            for (int r = 0; r < n; r++) {
                __m256i v = _mm256_set1_epi32((int)load_u32(x[r][b].q + half * 16 + quad * 4));
                __m256i p0 = _mm256_maddubs_epi16(w0, v), p1 = _mm256_maddubs_epi16(w1, v);
                s[0][r] = made_here(!starts && quad == from ? p0 : _mm256_add_epi16(s[0][r], p0));
                s[1][r] = made_here(!starts && quad == from ? p1 : _mm256_add_epi16(s[1][r], p1));
            }
        }
        UNROLL
        for (int r = 0; r < n; r++) {
            a[0][r] = from == 0 ? widen(s[0][r]) : _mm256_add_epi32(a[0][r], widen(s[0][r]));
            a[1][r] = from == 0 ? widen(s[1][r]) : _mm256_add_epi32(a[1][r], widen(s[1][r]));
        }
    }
}

/*
 * The same of weights above 127: as 16 * high + low, both nibbles, whose products with a group fit into 16 bits. That
 * is two multiplications and two additions per quad; signs moved to the activations, as in products(), take as many
 * instructions, but a quarter more time.
 */
INLINE void nibble_dots(const uint8_t *q, const act8 *const *x, int b, int half, __m256i a[2][MATMUL_ROWS8], int n,
                        int group) {
    const __m256i low = _mm256_set1_epi8(15), sixteen = _mm256_set1_epi16(16);
    UNROLL
    for (int side = 0; side < 2; side++) {
        __m256i lo[MATMUL_ROWS8], hi[MATMUL_ROWS8];
        __asm__ volatile("" ::: "memory"); /* activations of the other side are not kept on the stack */
        UNROLL
        for (int quad = 0; quad < group / 4; quad++) {
            __m256i w = _mm256_load_si256((const void *)(q + quad * 64 + 32 * side));
            __m256i wl = _mm256_and_si256(w, low), wh = _mm256_and_si256(_mm256_srli_epi16(w, 4), low);
            UNROLL
            for (int r = 0; r < n; r++) {
                __m256i v = _mm256_set1_epi32((int)load_u32(x[r][b].q + half * 16 + quad * 4));
                __m256i pl = _mm256_maddubs_epi16(wl, v), ph = _mm256_maddubs_epi16(wh, v);
                lo[r] = made_here(quad == 0 ? pl : _mm256_add_epi16(lo[r], pl));
                hi[r] = made_here(quad == 0 ? ph : _mm256_add_epi16(hi[r], ph));
            }
        }
        UNROLL
        for (int r = 0; r < n; r++)
            a[side][r] = made_here(_mm256_add_epi32(_mm256_madd_epi16(hi[r], sixteen), widen(lo[r])));
    }
}
#endif

/* quads: how many products fit in 16 bits before they are widened; 0: one by one, weights above 127. */
INLINE void panel8(const matmul_panel8 *p, const matmul_form *form, int kn, const act8 *const *x, float *c, bool first,
                   int n, int group, bool min, int quads, const tile_starts *starts) {
    __m256i zeros[2] = { zero_pair(form->zero, 0, group, 0), zero_pair(form->zero, 0, group, 1) };
    __m256  f[2][MATMUL_ROWS8];
    UNROLL
    for (int r = 0; r < n; r++)
        for (int side = 0; side < 2; side++)
            f[side][r] = first ? _mm256_setzero_ps() : _mm256_loadu_ps(c + r * MATMUL_LANES + 8 * side);
    for (int k = 0; k < kn; k += group) {
        int            b = k / 32, half = k % 32 / 16;
        const uint8_t *q = p->q + (size_t)k * MATMUL_PANEL;
        __m256i        a[2][MATMUL_ROWS8];
#if DOT4
        (void)quads, (void)starts;
        UNROLL
        for (int r = 0; r < n; r++) {
            a[0][r] = min ? _mm256_setzero_si256() : zero_start(&x[r][b], zeros[half]);
            a[1][r] = a[0][r];
        }
        UNROLL
        for (int quad = 0; quad < group / 4; quad++) {
            __m256i w0 = _mm256_load_si256((const void *)(q + quad * 64));
            __m256i w1 = _mm256_load_si256((const void *)(q + quad * 64 + 32));
            UNROLL
            for (int r = 0; r < n; r++) {
                __m256i v = _mm256_set1_epi32((int)load_u32(x[r][b].q + half * 16 + quad * 4));
                a[0][r] = dot_add(a[0][r], w0, v);
                a[1][r] = dot_add(a[1][r], w1, v);
            }
        }
#else
        if (quads)
            run_dots(q, x, b, half, a, n, group, quads, starts, k / group);
        else
            nibble_dots(q, x, b, half, a, n, group);
        UNROLL
        for (int r = 0; r < n; r++) {
            if (min || starts) continue;
            __m256i start = zero_start(&x[r][b], zeros[half]);
            a[0][r] = _mm256_add_epi32(a[0][r], start);
            a[1][r] = _mm256_add_epi32(a[1][r], start);
        }
#endif
        UNROLL
        for (int side = 0; side < 2; side++) {
            __m256 scale = _mm256_load_ps(p->scale + k / group * MATMUL_PANEL + 8 * side);
            UNROLL
            for (int r = 0; r < n; r++) {
                f[side][r] = group_add(f[side][r], a[side][r], scale, &x[r][b]);
                if (min) {
                    __m256 m = _mm256_load_ps(p->min + k / group * MATMUL_PANEL + 8 * side);
                    f[side][r] = group_add_min(f[side][r], m, &x[r][b], group, half);
                }
            }
        }
    }
    UNROLL
    for (int r = 0; r < n; r++)
        for (int side = 0; side < 2; side++) _mm256_storeu_ps(c + r * MATMUL_LANES + 8 * side, f[side][r]);
}

INLINE void tile8(const matmul_panel8 *p, const matmul_form *form, int kn, const act8 *const *rows, float *c,
                  bool first, int wide, int n, int group, bool min) {
    const act8 *x[MATMUL_ROWS8];
    for (int r = 0; r < n; r++) x[r] = rows[r];
#if !DOT4
    const int size = form->zero > form->largest - form->zero ? form->zero : form->largest - form->zero;
    /* Values up to 15 fit as they are. */
    const bool  centred = !min && form->largest > 15 && size * 127 * group / 2 <= 32767;
    tile_starts starts;
    if (centred) start_sums(starts, x, form->zero, kn, n, group);
#endif
    for (int i = 0; i < wide; i++) {
        float *at = c + i * MATMUL_PANEL;
#if DOT4
        panel8(p + i, form, kn, x, at, first, n, group, min, 1, NULL);
#else
        if (centred)
            panel8(p + i, form, kn, x, at, first, n, group, min, 8, &starts);
        else if (form->largest <= 15)
            panel8(p + i, form, kn, x, at, first, n, group, min, 8, NULL);
        else if (form->largest <= 31)
            panel8(p + i, form, kn, x, at, first, n, group, min, 4, NULL);
        else if (form->largest <= 63)
            panel8(p + i, form, kn, x, at, first, n, group, min, 2, NULL);
        else if (form->largest <= 127)
            panel8(p + i, form, kn, x, at, first, n, group, min, 1, NULL);
        else
            panel8(p + i, form, kn, x, at, first, n, group, min, 0, NULL);
#endif
    }
}
