/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both halves of a low-rank product (ops_shrink, ops_low_rank).
 *
 * With few rows they are bound by memory: a factor is one stream that passes once, and is fetched LOW_RANK_AHEAD bytes
 * before it is used, because processors look ahead within a page of 4 KB only. With many rows a column of A is converted
 * once for SHRINK_ROWS of them. Their sums, four per output, fill the registers where there are enough; elsewhere each
 * of the four passes over A alone.
 */
#ifndef KERNELS_CPU_IMPL_OPS_LOW_RANK_H
#define KERNELS_CPU_IMPL_OPS_LOW_RANK_H

enum {
    LOW_RANK_AHEAD = 2048,
    LOW_RANK_LINE = 64,
    SHRINK_SUMS = 4,
    SHRINK_ROWS = 6,
    SHRINK_WIDE = LOWRANK_PANEL / VW, /* registers of a column of A */
    EXPAND_ROWS = 4,
    EXPAND_WIDE = 2, /* registers of outputs at a time */
};

#define LOW_RANK_UNROLLED _Pragma("GCC unroll 32")
#define LOW_RANK_INLINE static inline __attribute__((always_inline))

/* What will be read after the next `bytes`. */
LOW_RANK_INLINE void VFN(low_rank_fetch)(const uint8_t *p, size_t bytes) {
    for (size_t i = 0; i < bytes; i += LOW_RANK_LINE) __builtin_prefetch(p + LOW_RANK_AHEAD + i, 0, 3);
}

/* Values from the `at`-th of a group on; by: their scales, of bytes alone. Types are constants where it is called. */
LOW_RANK_INLINE vf VFN(low_rank_load)(lowrank_type type, const uint8_t *p, int64_t at, vf by) {
    if (type == LOWRANK_F32) return vf_load((const float *)(const void *)p + at);
    if (type == LOWRANK_F16) return vf_load_f16((const uint16_t *)(const void *)p + at);
    return vf_mul(vf_load_i8((const int8_t *)p + at), by);
}

/* Sums q .. q + nq of nr rows, over all columns; type, nr and nq are constants where it is called. */
LOW_RANK_INLINE void VFN(shrink_sums)(const ops_shrink *a, lowrank_type type, const float *const *x, int nr, int q,
                                      int nq, vf *sums) {
    vf             s[SHRINK_ROWS][SHRINK_SUMS][SHRINK_WIDE], by[SHRINK_WIDE];
    const uint8_t *p = a->a;
    const size_t   step = SHRINK_SUMS * LOWRANK_PANEL * lowrank_value_bytes(type);
    LOW_RANK_UNROLLED for (int w = 0; w < SHRINK_WIDE; w++) by[w] = vf_zero();
    LOW_RANK_UNROLLED for (int r = 0; r < nr; r++) {
        LOW_RANK_UNROLLED for (int k = 0; k < nq; k++) {
            LOW_RANK_UNROLLED for (int w = 0; w < SHRINK_WIDE; w++) s[r][k][w] = vf_zero();
        }
    }
#define SHRINK_COLUMN(K)                                                                                               \
    do {                                                                                                               \
        vf v[SHRINK_WIDE];                                                                                             \
        LOW_RANK_UNROLLED for (int w = 0; w < SHRINK_WIDE; w++) v[w] =                                                 \
            VFN(low_rank_load)(type, p, (q + (K)) * LOWRANK_PANEL + w * VW, by[w]);                                    \
        LOW_RANK_UNROLLED for (int r = 0; r < nr; r++) {                                                               \
            const vf b = vf_set1(x[r][i + q + (K)]);                                                                   \
            LOW_RANK_UNROLLED for (int w = 0; w < SHRINK_WIDE; w++) s[r][K][w] = vf_fma(v[w], b, s[r][K][w]);          \
        }                                                                                                              \
    } while (0)
    for (int64_t i0 = 0, i = 0; i0 < a->cols; i0 += LOWRANK_COLS) {
        const int64_t end = a->cols - i0 < LOWRANK_COLS ? a->cols : i0 + LOWRANK_COLS;
        if (type == LOWRANK_Q8) {
            LOW_RANK_UNROLLED for (int w = 0; w < SHRINK_WIDE; w++) by[w] =
                vf_load_f16((const uint16_t *)(const void *)p + w * VW);
            p += LOWRANK_SCALES;
        }
        for (; i + SHRINK_SUMS <= end; i += SHRINK_SUMS, p += step) {
            VFN(low_rank_fetch)(p, step);
            LOW_RANK_UNROLLED for (int k = 0; k < nq; k++) SHRINK_COLUMN(k);
        }
        LOW_RANK_UNROLLED for (int k = 0; k < nq; k++) {
            if (i + q + k < end) SHRINK_COLUMN(k);
        }
    }
#undef SHRINK_COLUMN
    LOW_RANK_UNROLLED for (int r = 0; r < nr; r++) {
        LOW_RANK_UNROLLED for (int k = 0; k < nq; k++) {
            LOW_RANK_UNROLLED for (int w = 0; w < SHRINK_WIDE; w++) sums[(r * SHRINK_SUMS + q + k) * SHRINK_WIDE + w] =
                s[r][k][w];
        }
    }
}

LOW_RANK_INLINE void VFN(shrink_rows)(const ops_shrink *a, lowrank_type type, int64_t r0, int nr, bool apart) {
    vf           sums[SHRINK_ROWS * SHRINK_SUMS * SHRINK_WIDE];
    const float *x[SHRINK_ROWS];
    for (int r = 0; r < nr; r++) x[r] = a->x + (size_t)(a->x_rows ? a->x_rows[r0 + r] : r0 + r) * a->x_stride;
    if (apart) {
        VFN(shrink_sums)(a, type, x, nr, 0, 1, sums);
        VFN(shrink_sums)(a, type, x, nr, 1, 1, sums);
        VFN(shrink_sums)(a, type, x, nr, 2, 1, sums);
        VFN(shrink_sums)(a, type, x, nr, 3, 1, sums);
    } else {
        VFN(shrink_sums)(a, type, x, nr, 0, SHRINK_SUMS, sums);
    }
    for (int r = 0; r < nr; r++) {
        float    *t = a->t + (size_t)(a->t_rows ? a->t_rows[r0 + r] : r0 + r) * a->t_stride;
        const vf *s = sums + r * SHRINK_SUMS * SHRINK_WIDE;
        for (int w = 0; w < SHRINK_WIDE; w++, s++)
            vf_store(t + w * VW, vf_add(vf_add(s[0], s[SHRINK_WIDE]), vf_add(s[2 * SHRINK_WIDE], s[3 * SHRINK_WIDE])));
    }
}

LOW_RANK_INLINE void VFN(shrink_all)(const ops_shrink *a, lowrank_type type) {
    enum { ALL = SHRINK_ROWS * SHRINK_SUMS * SHRINK_WIDE < VREGS, ONE = SHRINK_SUMS * SHRINK_WIDE < VREGS };
    int64_t r = 0;
    for (; r + SHRINK_ROWS <= a->n_rows; r += SHRINK_ROWS) VFN(shrink_rows)(a, type, r, SHRINK_ROWS, !ALL);
    for (; r < a->n_rows; r++) VFN(shrink_rows)(a, type, r, 1, !ONE);
}

static void VFN(shrink_f16)(const ops_shrink *a) { VFN(shrink_all)(a, LOWRANK_F16); }
static void VFN(shrink_f32)(const ops_shrink *a) { VFN(shrink_all)(a, LOWRANK_F32); }
static void VFN(shrink_q8)(const ops_shrink *a) { VFN(shrink_all)(a, LOWRANK_Q8); }

static void VFN(shrink)(const ops_shrink *a) {
    if (a->type == LOWRANK_Q8)
        VFN(shrink_q8)(a);
    else if (a->type == LOWRANK_F32)
        VFN(shrink_f32)(a);
    else
        VFN(shrink_f16)(a);
}

static inline void VFN(expand_store)(const ops_low_rank *a, float *y, int64_t i, int64_t n, vf acc) {
    const vf k = a->gain ? vf_mul(vf_set1(a->scale), vf_loadn(a->gain + i, n)) : vf_set1(a->scale);
    vf_storen(y + i, vf_fma(acc, k, vf_loadn(y + i, n)), n);
}

/* Outputs i .. i + n of nr rows from row r on, at most EXPAND_WIDE registers of them; type and nr are constants where it
 * is called. */
LOW_RANK_INLINE void VFN(expand_part)(const ops_low_rank *a, lowrank_type type, int64_t r, int nr, int64_t i,
                                      int64_t n) {
    vf             acc[EXPAND_ROWS][EXPAND_WIDE];
    const float   *t[EXPAND_ROWS];
    float         *y[EXPAND_ROWS];
    const int64_t  in = i % LOWRANK_TILE;
    const size_t   step = LOWRANK_TILE * lowrank_value_bytes(type);
    const uint8_t *p = a->b + (size_t)(i / LOWRANK_TILE) * lowrank_tile_bytes(type, a->rank), *scales = p;
    for (int k = 0; k < nr; k++) {
        const size_t row = (size_t)(a->rows ? a->rows[r + k] : r + k);
        t[k] = a->t + row * a->t_stride;
        y[k] = a->y + row * a->y_stride;
        acc[k][0] = acc[k][1] = vf_zero();
    }
    for (int j = 0; j < a->rank; j++, p += step) {
        vf by = vf_zero();
        if (type == LOWRANK_Q8) {
            if (j % LOWRANK_PANEL == 0) scales = p, p += LOWRANK_SCALES;
            by = vf_set1_f16((const uint16_t *)(const void *)scales + j % LOWRANK_PANEL);
        }
        const vf b0 = VFN(low_rank_load)(type, p, in, by), b1 = VFN(low_rank_load)(type, p, in + VW, by);
        if (in == 0) VFN(low_rank_fetch)(p, step);
        for (int k = 0; k < nr; k++) {
            const vf s = vf_set1(t[k][j]);
            acc[k][0] = vf_fma(b0, s, acc[k][0]);
            acc[k][1] = vf_fma(b1, s, acc[k][1]);
        }
    }
    for (int k = 0; k < nr; k++) {
        VFN(expand_store)(a, y[k], i, n, acc[k][0]);
        if (n > VW) VFN(expand_store)(a, y[k], i + VW, n - VW, acc[k][1]);
    }
}

LOW_RANK_INLINE void VFN(expand_all)(const ops_low_rank *a, lowrank_type type, int64_t lo, int64_t hi) {
    int64_t r = 0;
    for (; r + EXPAND_ROWS <= a->n_rows; r += EXPAND_ROWS) {
        for (int64_t i = lo; i < hi; i += EXPAND_WIDE * VW) VFN(expand_part)(a, type, r, EXPAND_ROWS, i, hi - i);
    }
    for (; r < a->n_rows; r++) {
        for (int64_t i = lo; i < hi; i += EXPAND_WIDE * VW) VFN(expand_part)(a, type, r, 1, i, hi - i);
    }
}

static void VFN(expand)(const ops_low_rank *a, int64_t lo, int64_t hi) {
    if (a->type == LOWRANK_Q8)
        VFN(expand_all)(a, LOWRANK_Q8, lo, hi);
    else if (a->type == LOWRANK_F32)
        VFN(expand_all)(a, LOWRANK_F32, lo, hi);
    else
        VFN(expand_all)(a, LOWRANK_F16, lo, hi);
}

#endif
