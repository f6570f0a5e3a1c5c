/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A few activation rows over 16 weight rows: batched decoding. Weights are transposed as for a panel, but each register
 * goes into the dots of all rows at once and is never stored: a panel's stores and loads cost more than the dots until
 * there are many rows. Activations are read as broadcast operands. Order of operations: kernels/matmul.h.
 */
#ifndef KERNELS_CPU_AVX512_MATMUL_FEW_H
#define KERNELS_CPU_AVX512_MATMUL_FEW_H

#include "kernels/cpu/avx512/matmul_avx512.h"

typedef void   few_head_fn(format_at *at, format_head *h);
typedef __m512 few_scale_fn(const format_head *h, int g);
typedef void   few_part_fn(const format_at *at, int part, void *sink, emit_fn *emit);

/* The sums under way. All but acc, sum, block and head are constants. */
typedef struct few {
    const act8 *const *x;
    int64_t            block; /* of the part's first inputs */
    const format_head *head;
    __m512             acc[MATMUL_FEW];
    __m512i            sum[MATMUL_FEW];
    few_scale_fn      *scale, *min;
    int                n, group, zero, at_group;
} few;

/* Quads come in the order of K: a group is finished with its last one. */
INLINE void emit_few(void *sink, int quad, __m512i v) {
    few      *f = sink;
    const int per = f->group / 4, half = f->group == 32 ? 0 : quad / 4 % 2;
    UNROLL
    for (int r = 0; r < f->n; r++) {
        const act8 *b = f->x[r] + f->block + quad / 8;
        if (quad % per == 0)
            f->sum[r] = f->zero ? zero_start(b, zero_pair(f->zero, f->group, half)) : _mm512_setzero_si512();
        f->sum[r] = _mm512_dpbusd_epi32(f->sum[r], v, _mm512_set1_epi32((int)load_u32(b->q + quad % 8 * 4)));
    }
    if (quad % per != per - 1) return;
    __m512 scale = f->scale(f->head, f->at_group + quad / per);
    UNROLL
    for (int r = 0; r < f->n; r++) f->acc[r] = group_add(f->acc[r], f->sum[r], scale, f->x[r] + f->block + quad / 8);
    if (!f->min) return;
    __m512 min = f->min(f->head, f->at_group + quad / per);
    UNROLL
    for (int r = 0; r < f->n; r++)
        f->acc[r] = group_add_min(f->acc[r], min, f->x[r] + f->block + quad / 8, f->group, half);
}

/* out: n rows of 16. All arguments from n on are constants. */
INLINE void few_rows(const matmul_src *s, int64_t row0, const act8 *const *x, float *out, int n, int unit, int part,
                     int group, int zero, int bytes, few_head_fn *head, few_scale_fn *scale, few_scale_fn *min,
                     few_part_fn *values) {
    format_at      at = { s->data + (size_t)row0 * s->w->row_bytes, s->w->row_bytes, s, row0, 0, -8, { { { 0 } } } };
    const uint8_t *ahead = at.data + 16 * at.stride;
    format_head    h;
    few            f = { .head = &h, .scale = scale, .min = min, .n = n, .group = group, .zero = zero };
    const act8    *rows[MATMUL_FEW];
    UNROLL
    for (int r = 0; r < n; r++) {
        rows[r] = x[r];
        f.acc[r] = _mm512_setzero_ps();
    }
    f.x = rows;
    for (; at.k < s->w->cols; at.k += unit, at.data += bytes) {
        head(&at, &h);
        UNROLL
        for (int p = 0; p < unit / part; p++) {
            fetch(ahead, (size_t)(16 * bytes * part / unit));
            ahead += 16 * bytes * part / unit;
            f.block = (at.k + p * part) / 32;
            f.at_group = p * part / group;
            values(&at, p, &f, emit_few);
        }
    }
    UNROLL
    for (int r = 0; r < n; r++) _mm512_storeu_ps(out + r * MATMUL_PANEL, f.acc[r]);
}

#endif
