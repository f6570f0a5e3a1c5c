/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A few activation rows over 16 weight rows: batched decoding. Weights are transposed as for a panel, but each register
 * goes into the dots of all rows at once and is never stored: a panel's stores and loads cost more than the dots until
 * there are many rows. Activations are read as broadcast operands of the dots, all rows from one pointer: a load or an
 * address of its own for each costs more than it looks, as the vector units see only so many instructions ahead. Order
 * of operations: kernels/matmul.h.
 */
#ifndef KERNELS_CPU_AVX512_MATMUL_FEW_H
#define KERNELS_CPU_AVX512_MATMUL_FEW_H

#include "kernels/cpu/avx512/matmul_rows.h"

#include "kernels/cpu/impl/matmul_few_sums.h"

/* sum + v * (four activations in every lane). Compilers make a register of the broadcast first. */
INLINE __m512i dots_with(__m512i sum, __m512i v, const int8_t *x) {
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(v), "m"(*(const int32_t *)(const void *)x));
    return sum;
}

/* Quads come in the order of K: a group is finished with its last one. All arguments but the first three are constants.
 */
INLINE void few_quad(few *f, int quad, __m512i v, int n, int group, scale_fn *scale_of, scale_fn *min_of) {
    const int per = group / 4, half = group == 32 ? 0 : quad / 4 % 2;
    v = with_fetch(v, f->line);
    f->line += f->stride;
    if (quad == 15) f->line += 52 - 16 * f->stride; /* half a block of q6_k is 105 bytes: a second round */
    const matmul_few *x = f->x + quad / 8 * n;
    UNROLL
    for (int r = 0; r < n; r++) {
        if (quad % per == 0) f->sum[r] = min_of ? _mm512_setzero_si512() : _mm512_set1_epi32(x[r].start[half]);
        f->sum[r] = dots_with(f->sum[r], v, x[r].q + quad % 8 * 4);
    }
    if (quad % per != per - 1) return;
    __m512 scale = scale_of(&f->head, f->at_group + quad / per);
    UNROLL
    for (int r = 0; r < n; r++)
        f->acc[r] =
            _mm512_fmadd_ps(_mm512_cvtepi32_ps(f->sum[r]), _mm512_mul_ps(scale, _mm512_set1_ps(x[r].d)), f->acc[r]);
    if (!min_of) return;
    __m512 min = min_of(&f->head, f->at_group + quad / per);
    UNROLL
    for (int r = 0; r < n; r++) f->acc[r] = _mm512_fmadd_ps(min, _mm512_set1_ps(x[r].ds), f->acc[r]);
}

#define MATMUL_FEW_KERNEL(NAME, UNIT, PART, GROUP, MIN_OF, N)                                                          \
    INLINE void few_emit_##NAME##_##N(void *sink, int quad, __m512i v) {                                               \
        few_quad(sink, quad, v, N, GROUP, NAME##_scale, MIN_OF);                                                       \
    }                                                                                                                  \
    void matmul_few8_##NAME##_##N##_avx512(const matmul_src *s, int64_t row0, const matmul_few *x, float *out) {       \
        format_at at = { s->data + (size_t)row0 * s->w->row_bytes, s->w->row_bytes, s, row0, 0, -8, { { { 0 } } } };   \
        few       f;                                                                                                   \
        f.stride = at.stride;                                                                                          \
        UNROLL for (int r = 0; r < (N); r++) f.acc[r] = _mm512_setzero_ps();                                           \
        for (; at.k < s->w->cols; at.k += (UNIT), at.data += NAME##_bytes) {                                           \
            size_t off = row_fetch_offset((size_t)(at.k / (UNIT)) * NAME##_bytes, at.stride, AHEAD);                   \
            NAME##_head(&at, &f.head);                                                                                 \
            UNROLL for (int p = 0; p < (UNIT) / (PART); p++) {                                                         \
                f.line = at.data + off + p * (NAME##_bytes * (PART) / (UNIT));                                         \
                if ((PART) == 32 && (at.k + p * (PART)) / 32 % 2) f.line += 8 * at.stride; /* 8 rows in turn */        \
                f.x = x;                                                                                               \
                x += (PART) / 32 * (N);                                                                                \
                f.at_group = p * ((PART) / (GROUP));                                                                   \
                NAME##_part(&at, p, &f, few_emit_##NAME##_##N);                                                        \
            }                                                                                                          \
        }                                                                                                              \
        UNROLL for (int r = 0; r < (N); r++) _mm512_storeu_ps(out + r * MATMUL_PANEL, f.acc[r]);                       \
    }

#endif
