/* SPDX-License-Identifier: Apache-2.0 */
/* The second half of a low-rank product (ops_low_rank), in tiles of four rows and two registers of outputs. */
#ifndef KERNELS_CPU_IMPL_OPS_EXPAND_H
#define KERNELS_CPU_IMPL_OPS_EXPAND_H

enum { EXPAND_ROWS = 4 };

static inline void VFN(expand_store)(const ops_low_rank *a, float *y, int64_t i, int64_t n, vf acc) {
    const vf k = a->gain ? vf_mul(vf_set1(a->scale), vf_loadn(a->gain + i, n)) : vf_set1(a->scale);
    vf_storen(y + i, vf_fma(acc, k, vf_loadn(y + i, n)), n);
}

/* Outputs i .. i + n of nr rows from row r on; nr is a constant where it is called. */
static inline __attribute__((always_inline)) void VFN(expand_tile)(const ops_low_rank *a, int64_t r, int nr, int64_t i,
                                                                   int64_t n) {
    vf           acc[EXPAND_ROWS][2];
    const float *t[EXPAND_ROWS];
    float       *y[EXPAND_ROWS];
    for (int k = 0; k < nr; k++) {
        const size_t row = (size_t)(a->rows ? a->rows[r + k] : r + k);
        t[k] = a->t + row * a->t_stride;
        y[k] = a->y + row * a->y_stride;
        acc[k][0] = acc[k][1] = vf_zero();
    }
    const bool wide = n > VW;
    for (int j = 0; j < a->rank; j++) {
        const uint16_t *b = a->bt + (size_t)j * a->bt_stride + i;
        const vf        b0 = vf_load_f16(b), b1 = wide ? vf_load_f16(b + VW) : vf_zero();
        for (int k = 0; k < nr; k++) {
            const vf s = vf_set1(t[k][j]);
            acc[k][0] = vf_fma(b0, s, acc[k][0]);
            acc[k][1] = vf_fma(b1, s, acc[k][1]);
        }
    }
    for (int k = 0; k < nr; k++) {
        VFN(expand_store)(a, y[k], i, n, acc[k][0]);
        if (wide) VFN(expand_store)(a, y[k], i + VW, n - VW, acc[k][1]);
    }
}

static void VFN(expand)(const ops_low_rank *a, int64_t lo, int64_t hi) {
    int64_t r = 0;
    for (; r + EXPAND_ROWS <= a->n_rows; r += EXPAND_ROWS) {
        for (int64_t i = lo; i < hi; i += 2 * VW) VFN(expand_tile)(a, r, EXPAND_ROWS, i, hi - i);
    }
    for (; r < a->n_rows; r++) {
        for (int64_t i = lo; i < hi; i += 2 * VW) VFN(expand_tile)(a, r, 1, i, hi - i);
    }
}

#endif
