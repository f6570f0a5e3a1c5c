/* SPDX-License-Identifier: Apache-2.0 */
/* Activation rows to 16 bits, one block per row; and gated units that leave their rows so, too. */
#include "kernels/cuda/act.cuh"
#include "kernels/cuda/rows.cuh"

#define THREADS 512

template <bool BF16> static __global__ __launch_bounds__(THREADS) void rows_kernel(const rows_args a) {
    launch_begin();
    rows_one<BF16, THREADS>(a, blockIdx.x);
}

size_t cuda_rows_bytes(int64_t n, int64_t cols) {
    return (size_t)(cuda_rows_pad(n) * cuda_round_up(cols, CUDA_SLICE_UNIT) * 2);
}

int cuda_rows_make(const cuda_rows *r, const float *x, int64_t x_stride, cuda_stream s, err *e) {
    const rows_args  a = rows_args_of(r, x, x_stride);
    const cuda_shape shape = { (unsigned)r->n_pad, THREADS, 1, 0, true };
    return r->bf16 ? cuda_launch(rows_kernel<true>, shape, s, e, a) : cuda_launch(rows_kernel<false>, shape, s, e, a);
}

/* y = act(y) * up of one row, then its image. */
static __global__ __launch_bounds__(THREADS) void glu_rows_kernel(cuda_act act, float *y, const float *up,
                                                                  const rows_args a) {
    launch_begin();
    const int64_t at = (int64_t)blockIdx.x * a.cols;
    for (int64_t i = threadIdx.x; i < a.cols; i += THREADS) y[at + i] = act_of(act, y[at + i]) * up[at + i];
    __syncthreads();
    rows_one<false, THREADS>(a, blockIdx.x);
}

int cuda_op_glu_rows(cuda_act act, float *y, const float *up, const cuda_rows *r, cuda_stream s, err *e) {
    const cuda_shape shape = { (unsigned)r->n, THREADS, 1, 0, true };
    return r->n ? cuda_launch(glu_rows_kernel, shape, s, e, act, y, up, rows_args_of(r, y, r->cols)) : 0;
}
