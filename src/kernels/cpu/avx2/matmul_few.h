/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A few activation rows over 16 weight rows, eight at a time: batched decoding. Weights are transposed as for a panel,
 * but each register goes into the dots of all rows at once and is never stored: a panel's stores and loads cost more
 * than the dots until there are many rows. Sums of a row stay in 16 bits as long as they fit (avx2/matmul_avx2.h); the
 * float sums of 8 rows live in memory. Order of operations: kernels/matmul.h.
 */
#ifndef KERNELS_CPU_AVX2_MATMUL_FEW_H
#define KERNELS_CPU_AVX2_MATMUL_FEW_H

#include "kernels/cpu/avx2/matmul_rows.h"

#include "kernels/cpu/impl/matmul_few_sums.h"

/* Quads come in the order of K: a group is finished with its last one. All arguments but the first three are constants.
 * Weights above 127 have their zero at 128: with signs as in products() sums begin at 0. */
INLINE void few_quad(few *f, int quad, __m256i v, int n, int group, int largest, scale_fn *scale_of, scale_fn *min_of) {
    const int  per = group / 4, half = group == 32 ? 0 : quad / 4 % 2;
    const bool big = largest > 63 && !DOT4;
    const int  most = big ? 1 : largest > 31 ? 2 : largest > 15 ? 4 : 8, run = most < per ? most : per;
    v = with_fetch(v, f->line);
    f->line += f->stride;
    if (quad % 8 == 7) f->line += 52 - 8 * f->stride; /* half a block of q6_k is 105 bytes: further rounds */
    const matmul_few *x = f->x + quad / 8 * n;
    const __m256i     s = _mm256_xor_si256(v, _mm256_set1_epi8((char)0x80)), size = _mm256_abs_epi8(s);
    UNROLL
    for (int r = 0; r < n; r++) {
        __m256i y = _mm256_set1_epi32((int)load_u32(x[r].q + quad % 8 * 4));
#if DOT4
        if (quad % per == 0) f->sum[r] = min_of ? _mm256_setzero_si256() : _mm256_set1_epi32(x[r].start[half]);
        f->sum[r] = made_here(dot_add(f->sum[r], v, y));
        (void)size, (void)run;
#else
        __m256i p = big ? _mm256_maddubs_epi16(size, _mm256_sign_epi8(y, s)) : _mm256_maddubs_epi16(v, y);
        f->run[r] = made_here(quad % run == 0 ? p : _mm256_add_epi16(f->run[r], p));
        if (quad % run != run - 1) continue;
        f->sum[r] = quad % per < run ? widen(f->run[r]) : _mm256_add_epi32(f->sum[r], widen(f->run[r]));
        if (big || group == 16) f->sum[r] = made_here(f->sum[r]);
#endif
    }
    if (quad % per != per - 1) return;
    __m256 scale = scale_of(&f->head, f->at_group + quad / per);
    UNROLL
    for (int r = 0; r < n; r++) {
        __m256i sum = f->sum[r];
        if (!min_of && !big && !DOT4) sum = _mm256_add_epi32(sum, _mm256_set1_epi32(x[r].start[half]));
        f->acc[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(scale, _mm256_set1_ps(x[r].d)), f->acc[r]);
    }
    if (!min_of) return;
    __m256 min = min_of(&f->head, f->at_group + quad / per);
    UNROLL
    for (int r = 0; r < n; r++) f->acc[r] = _mm256_fmadd_ps(min, _mm256_set1_ps(x[r].ds), f->acc[r]);
}

#if DOT4
#define FEW_NAME(NAME, N) matmul_few8_##NAME##_##N##_avxvnni
#else
#define FEW_NAME(NAME, N) matmul_few8_##NAME##_##N##_avx2
#endif

#define MATMUL_FEW_KERNEL(NAME, UNIT, PART, GROUP, MIN_OF, LARGEST, N)                                                 \
    INLINE void few_emit_##NAME##_##N(void *sink, int quad, __m256i v) {                                               \
        few_quad(sink, quad, v, N, GROUP, LARGEST, NAME##_scale, MIN_OF);                                              \
    }                                                                                                                  \
    void FEW_NAME(NAME, N)(const matmul_src *s, int64_t row0, const matmul_few *rows, float *out) {                    \
        for (int side = 0; side < 2; side++) {                                                                         \
            const size_t      stride = s->w->row_bytes;                                                                \
            format_at         at = { s->data + (size_t)(row0 + 8 * side) * stride, stride, s, row0 + 8 * side, 0 };    \
            ahead             far = ahead_of(stride, 8);                                                               \
            const matmul_few *x = rows;                                                                                \
            few               f;                                                                                       \
            f.stride = stride;                                                                                         \
            UNROLL for (int r = 0; r < (N); r++) f.acc[r] = _mm256_setzero_ps();                                       \
            for (; at.k < s->w->cols; at.k += (UNIT), at.data += NAME##_bytes, ahead_move(&far, NAME##_bytes)) {       \
                NAME##_head(&at, &f.head);                                                                             \
                UNROLL for (int p = 0; p < (UNIT) / (PART); p++) {                                                     \
                    f.line = at.data + far.off + p * (NAME##_bytes * (PART) / (UNIT));                                 \
                    f.x = x;                                                                                           \
                    x += (PART) / 32 * (N);                                                                            \
                    f.at_group = p * ((PART) / (GROUP));                                                               \
                    NAME##_part(&at, p, &f, few_emit_##NAME##_##N);                                                    \
                }                                                                                                      \
            }                                                                                                          \
            UNROLL for (int r = 0; r < (N); r++) _mm256_storeu_ps(out + r * MATMUL_PANEL + 8 * side, f.acc[r]);        \
        }                                                                                                              \
    }

#endif
