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
    SHRINK_SUMS = 4,
    SHRINK_ROWS = 6,
    SHRINK_WIDE = OPS_PANEL / VW, /* registers of a column of A */
    EXPAND_ROWS = 4,
    EXPAND_WIDE = 2, /* registers of outputs at a time */
};

#define LOW_RANK_UNROLLED _Pragma("GCC unroll 32")

static inline void VFN(low_rank_fetch)(const uint16_t *p) {
    __builtin_prefetch((const char *)p + LOW_RANK_AHEAD, 0, 3);
}

/* Sums q .. q + nq of nr rows, over all columns; nr and nq are constants where it is called. */
static inline __attribute__((always_inline)) void VFN(shrink_sums)(const ops_shrink *a, const float *const *x, int nr,
                                                                   int q, int nq, vf *sums) {
    vf      s[SHRINK_ROWS][SHRINK_SUMS][SHRINK_WIDE];
    int64_t i = 0;
    LOW_RANK_UNROLLED for (int r = 0; r < nr; r++) {
        LOW_RANK_UNROLLED for (int k = 0; k < nq; k++) {
            LOW_RANK_UNROLLED for (int w = 0; w < SHRINK_WIDE; w++) s[r][k][w] = vf_zero();
        }
    }
#define SHRINK_COLUMN(K)                                                                                               \
    do {                                                                                                               \
        const uint16_t *c = a->a + (i + q + (K)) * OPS_PANEL;                                                          \
        vf              v[SHRINK_WIDE];                                                                                \
        LOW_RANK_UNROLLED for (int w = 0; w < SHRINK_WIDE; w++) v[w] = vf_load_f16(c + w * VW);                        \
        LOW_RANK_UNROLLED for (int r = 0; r < nr; r++) {                                                               \
            const vf b = vf_set1(x[r][i + q + (K)]);                                                                   \
            LOW_RANK_UNROLLED for (int w = 0; w < SHRINK_WIDE; w++) s[r][K][w] = vf_fma(v[w], b, s[r][K][w]);          \
        }                                                                                                              \
    } while (0)
    for (; i + SHRINK_SUMS <= a->cols; i += SHRINK_SUMS) {
        VFN(low_rank_fetch)(a->a + i * OPS_PANEL);
        VFN(low_rank_fetch)(a->a + (i + 2) * OPS_PANEL);
        LOW_RANK_UNROLLED for (int k = 0; k < nq; k++) SHRINK_COLUMN(k);
    }
    LOW_RANK_UNROLLED for (int k = 0; k < nq; k++) {
        if (i + q + k < a->cols) SHRINK_COLUMN(k);
    }
#undef SHRINK_COLUMN
    LOW_RANK_UNROLLED for (int r = 0; r < nr; r++) {
        LOW_RANK_UNROLLED for (int k = 0; k < nq; k++) {
            LOW_RANK_UNROLLED for (int w = 0; w < SHRINK_WIDE; w++) sums[(r * SHRINK_SUMS + q + k) * SHRINK_WIDE + w] =
                s[r][k][w];
        }
    }
}

static inline __attribute__((always_inline)) void VFN(shrink_rows)(const ops_shrink *a, int64_t r0, int nr,
                                                                   bool apart) {
    vf           sums[SHRINK_ROWS * SHRINK_SUMS * SHRINK_WIDE];
    const float *x[SHRINK_ROWS];
    for (int r = 0; r < nr; r++) x[r] = a->x + (size_t)(a->x_rows ? a->x_rows[r0 + r] : r0 + r) * a->x_stride;
    if (apart) {
        VFN(shrink_sums)(a, x, nr, 0, 1, sums);
        VFN(shrink_sums)(a, x, nr, 1, 1, sums);
        VFN(shrink_sums)(a, x, nr, 2, 1, sums);
        VFN(shrink_sums)(a, x, nr, 3, 1, sums);
    } else {
        VFN(shrink_sums)(a, x, nr, 0, SHRINK_SUMS, sums);
    }
    for (int r = 0; r < nr; r++) {
        float    *t = a->t + (size_t)(a->t_rows ? a->t_rows[r0 + r] : r0 + r) * a->t_stride;
        const vf *s = sums + r * SHRINK_SUMS * SHRINK_WIDE;
        for (int w = 0; w < SHRINK_WIDE; w++, s++)
            vf_store(t + w * VW, vf_add(vf_add(s[0], s[SHRINK_WIDE]), vf_add(s[2 * SHRINK_WIDE], s[3 * SHRINK_WIDE])));
    }
}

static void VFN(shrink)(const ops_shrink *a) {
    enum { ALL = SHRINK_ROWS * SHRINK_SUMS * SHRINK_WIDE < VREGS, ONE = SHRINK_SUMS * SHRINK_WIDE < VREGS };
    int64_t r = 0;
    for (; r + SHRINK_ROWS <= a->n_rows; r += SHRINK_ROWS) VFN(shrink_rows)(a, r, SHRINK_ROWS, !ALL);
    for (; r < a->n_rows; r++) VFN(shrink_rows)(a, r, 1, !ONE);
}

static inline void VFN(expand_store)(const ops_low_rank *a, float *y, int64_t i, int64_t n, vf acc) {
    const vf k = a->gain ? vf_mul(vf_set1(a->scale), vf_loadn(a->gain + i, n)) : vf_set1(a->scale);
    vf_storen(y + i, vf_fma(acc, k, vf_loadn(y + i, n)), n);
}

/* Outputs i .. i + n of nr rows from row r on, at most EXPAND_WIDE registers of them; nr is a constant where it is
 * called. */
static inline __attribute__((always_inline)) void VFN(expand_part)(const ops_low_rank *a, int64_t r, int nr, int64_t i,
                                                                   int64_t n) {
    vf              acc[EXPAND_ROWS][EXPAND_WIDE];
    const float    *t[EXPAND_ROWS];
    float          *y[EXPAND_ROWS];
    const uint16_t *b = a->b + (size_t)(i / OPS_TILE * a->rank * OPS_TILE + i % OPS_TILE);
    for (int k = 0; k < nr; k++) {
        const size_t row = (size_t)(a->rows ? a->rows[r + k] : r + k);
        t[k] = a->t + row * a->t_stride;
        y[k] = a->y + row * a->y_stride;
        acc[k][0] = acc[k][1] = vf_zero();
    }
    for (int j = 0; j < a->rank; j++, b += OPS_TILE) {
        const vf b0 = vf_load_f16(b), b1 = vf_load_f16(b + VW);
        if (i % OPS_TILE == 0) VFN(low_rank_fetch)(b);
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

static void VFN(expand)(const ops_low_rank *a, int64_t lo, int64_t hi) {
    int64_t r = 0;
    for (; r + EXPAND_ROWS <= a->n_rows; r += EXPAND_ROWS) {
        for (int64_t i = lo; i < hi; i += EXPAND_WIDE * VW) VFN(expand_part)(a, r, EXPAND_ROWS, i, hi - i);
    }
    for (; r < a->n_rows; r++) {
        for (int64_t i = lo; i < hi; i += EXPAND_WIDE * VW) VFN(expand_part)(a, r, 1, i, hi - i);
    }
}

#endif
