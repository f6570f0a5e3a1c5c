/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A few activation rows over 16 weight rows: batched decoding. Weights are transposed as for a panel, but each register
 * goes into the dots of all rows at once and is never stored: a panel's stores and loads cost more than the dots until
 * there are many rows. Activations are read as broadcast operands. Order of operations: kernels/matmul.h.
 */
#ifndef KERNELS_CPU_AVX512_MATMUL_FEW_H
#define KERNELS_CPU_AVX512_MATMUL_FEW_H

#include "kernels/cpu/avx512/matmul_avx512.h"

typedef __m512 few_scale_fn(const format_head *h, int g);

/* The sums under way. */
typedef struct few {
    const act8    *x[MATMUL_FEW];
    const uint8_t *line; /* the next to ask for */
    size_t         stride;
    int64_t        block; /* of the part's first inputs */
    int            at_group;
    format_head    head;
    __m512         acc[MATMUL_FEW];
    __m512i        sum[MATMUL_FEW];
} few;

/* Quads come in the order of K: a group is finished with its last one. All arguments but the first three are constants.
 */
INLINE void few_quad(few *f, int quad, __m512i v, int n, int group, int zero, few_scale_fn *scale_of,
                     few_scale_fn *min_of) {
    const int per = group / 4, half = group == 32 ? 0 : quad / 4 % 2;
    v = with_fetch(v, f->line);
    f->line += f->stride;
    if (quad == 15) f->line += 52 - 16 * f->stride; /* half a block of q6_k is 105 bytes: a second round */
    UNROLL
    for (int r = 0; r < n; r++) {
        const act8 *b = f->x[r] + f->block + quad / 8;
        if (quad % per == 0) /* outside of the vector units, as in the tile */
            f->sum[r] = _mm512_set1_epi32(-zero * (group == 32 ? b->s[0] + b->s[1] : b->s[half]));
        f->sum[r] = _mm512_dpbusd_epi32(f->sum[r], v, _mm512_set1_epi32((int)load_u32(b->q + quad % 8 * 4)));
    }
    if (quad % per != per - 1) return;
    __m512 scale = scale_of(&f->head, f->at_group + quad / per);
    UNROLL
    for (int r = 0; r < n; r++) f->acc[r] = group_add(f->acc[r], f->sum[r], scale, f->x[r] + f->block + quad / 8);
    if (!min_of) return;
    __m512 min = min_of(&f->head, f->at_group + quad / per);
    UNROLL
    for (int r = 0; r < n; r++) f->acc[r] = group_add_min(f->acc[r], min, f->x[r] + f->block + quad / 8, group, half);
}

#define MATMUL_FEW_KERNEL(NAME, UNIT, PART, GROUP, ZERO, MIN_OF, N)                                                    \
    INLINE void few_emit_##NAME##_##N(void *sink, int quad, __m512i v) {                                               \
        few_quad(sink, quad, v, N, GROUP, ZERO, NAME##_scale, MIN_OF);                                                 \
    }                                                                                                                  \
    void matmul_few8_##NAME##_##N##_avx512(const matmul_src *s, int64_t row0, const act8 *const *x, float *out) {      \
        format_at at = { s->data + (size_t)row0 * s->w->row_bytes, s->w->row_bytes, s, row0, 0, -8, { { { 0 } } } };   \
        few       f;                                                                                                   \
        f.stride = at.stride;                                                                                          \
        UNROLL for (int r = 0; r < (N); r++) {                                                                         \
            f.x[r] = x[r];                                                                                             \
            f.acc[r] = _mm512_setzero_ps();                                                                            \
        }                                                                                                              \
        for (; at.k < s->w->cols; at.k += (UNIT), at.data += NAME##_bytes) {                                           \
            size_t off = row_fetch_offset((size_t)(at.k / (UNIT)) * NAME##_bytes, at.stride, AHEAD);                   \
            NAME##_head(&at, &f.head);                                                                                 \
            UNROLL for (int p = 0; p < (UNIT) / (PART); p++) {                                                         \
                f.line = at.data + off + p * (NAME##_bytes * (PART) / (UNIT));                                         \
                if ((PART) == 32 && (at.k + p * (PART)) / 32 % 2) f.line += 8 * at.stride; /* 8 rows in turn */        \
                f.block = (at.k + p * (PART)) / 32;                                                                    \
                f.at_group = p * ((PART) / (GROUP));                                                                   \
                NAME##_part(&at, p, &f, few_emit_##NAME##_##N);                                                        \
            }                                                                                                          \
        }                                                                                                              \
        UNROLL for (int r = 0; r < (N); r++) _mm512_storeu_ps(out + r * MATMUL_PANEL, f.acc[r]);                       \
    }

#endif
