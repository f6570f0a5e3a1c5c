/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matmul of weights that are not small integers times a scale: f32 rows times F32, F16, BF16, FP8, NF4 or mxfp8 rows.
 *
 * An output is a dot along the row, with `lanes` partial sums: sum l adds the products of inputs k = l, l + lanes, ...
 * in that order, then the sums are added across in a fixed order (impl/matmul_float.h). lanes is a number of the set.
 */
#ifndef KERNELS_CPU_MATMUL_FLOATS_H
#define KERNELS_CPU_MATMUL_FLOATS_H

#include "kernels/cpu/matmul_panel.h"

#define MATMUL_DOTSF 6 /* activation rows of the largest kernel */

/* 16 whole weight rows, `stride` bytes from row to row, times a few activation rows; out: rows of 16. */
typedef void matmul_dotsf_fn(const uint8_t *w, size_t stride, int64_t cols, const float *const *x, float *out);

/* The same for up to MATMUL_BLOCKF rows, with the same bits: a stretch of weights is made f32 once for all of them. scratch:
 * MATMUL_BLOCKF_BYTES, aligned to 64. */
typedef void matmul_blockf_fn(const uint8_t *w, size_t stride, int64_t cols, const float *const *x, int n,
                              void *scratch, float *out);

enum {
    MATMUL_BLOCKF = 256,       /* activation rows: their sums stay in L2 */
    MATMUL_BLOCKF_FEW = 12,    /* fewer are not worth the conversion */
    MATMUL_BLOCKF_COLS = 1024, /* inputs of a stretch: six f32 rows of it fill half of L1, the panel's a part of L2 */
    MATMUL_BLOCKF_STRIDE = MATMUL_BLOCKF_COLS + 16, /* from row to row: not a power of two, for L1's sake */
    MATMUL_BLOCKF_LANES = 16,                       /* of the widest set */
    MATMUL_BLOCKF_BYTES = 4 * MATMUL_PANEL * (MATMUL_BLOCKF_STRIDE + MATMUL_BLOCKF * MATMUL_BLOCKF_LANES),
};

typedef struct matmul_floats {
    matmul_blockf_fn *block[TENSOR_TYPE_COUNT];              /* NULL: dots are as fast */
    matmul_dotsf_fn  *dots[TENSOR_TYPE_COUNT][MATMUL_DOTSF]; /* of 1, 2, ... rows; F32 always, NULL: made f32 first */
    int               rows[TENSOR_TYPE_COUNT];               /* which of them is fastest for many rows */
} matmul_floats;

extern const matmul_floats matmul_floats_scalar, matmul_floats_avx2, matmul_floats_avx512, matmul_floats_neon;

size_t matmul_floats_scratch_bytes(const tensor_mat *w);
void   matmul_drive_floats(const matmul_floats *f, const matmul_args *a, const matmul_src *s, int64_t p0, int64_t p1,
                           void *scratch);

#endif
