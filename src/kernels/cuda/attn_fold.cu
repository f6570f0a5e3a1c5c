/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of chunks to rows, 32 columns of a row and head per block. */
#include "kernels/cuda/attn_fold.cuh"

#define COLUMNS 32

static __global__ __launch_bounds__(COLUMNS *FOLD_WARPS) void fold_kernel(const cuda_attn a, int groups) {
    __shared__ fold_room<COLUMNS> m;
    const int64_t                 row = blockIdx.x / groups;
    const int                     at = (int)(blockIdx.x % groups) * COLUMNS + (int)threadIdx.x % COLUMNS;
    const float                   v = fold_columns<COLUMNS>(a, m, row, min(at, a.dim_out - 1));
    if (threadIdx.x < COLUMNS && at < a.dim_out) a.out[row * a.dim_out + at] = v;
}

int attn_fold_parts(const cuda_attn *a, cuda_stream s, err *e) {
    const int        groups = (a->dim_out + COLUMNS - 1) / COLUMNS;
    const cuda_shape shape = { (unsigned)((int64_t)a->batch.n_tok * a->n_head * groups), COLUMNS * FOLD_WARPS, 1, 0, true };
    return cuda_launch(fold_kernel, shape, s, e, *a, groups);
}
