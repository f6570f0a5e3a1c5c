/* SPDX-License-Identifier: Apache-2.0 */
/* Activation functions that leave their rows in 16 bits for the product behind them, one block per row. */
#include "kernels/cuda/act.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/wide.h"

#define THREADS 256

/* y = act(y) of one row, then its image; keep: y, too. The usual functions are known when it is compiled. */
template <int ACT, int CHUNKS>
static __global__ __launch_bounds__(THREADS) void act_rows_kernel(cuda_act any, float *y, bool keep,
                                                                  const rows_args a) {
    const cuda_act               act = ACT < 0 ? any : (cuda_act)ACT;
    row_in_regs<THREADS, CHUNKS> r;
    launch_begin();
    r.load(y + (int64_t)blockIdx.x * a.cols, a.cols);
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
#pragma unroll
        for (int i = 0; i < 8; i++) r.v[c][i] = r.at(c) < a.cols ? act_of(act, r.v[c][i]) : 0.0f;
    }
    if (keep) r.store(y + (int64_t)blockIdx.x * a.cols, a.cols);
    r.image(a, blockIdx.x);
}

template <int CHUNKS>
static int start(cuda_act act, float *y, bool keep, const cuda_rows *r, cuda_stream s, err *e) {
    const cuda_shape shape = { (unsigned)r->n, THREADS, 1, 0, true };
    const rows_args  a = rows_args_of(r, y, r->cols);
    return act == CUDA_ACT_GELU_TANH
               ? cuda_launch(act_rows_kernel<CUDA_ACT_GELU_TANH, CHUNKS>, shape, s, e, act, y, keep, a)
           : act == CUDA_ACT_GELU ? cuda_launch(act_rows_kernel<CUDA_ACT_GELU, CHUNKS>, shape, s, e, act, y, keep, a)
                                  : cuda_launch(act_rows_kernel<-1, CHUNKS>, shape, s, e, act, y, keep, a);
}

bool cuda_can_act_rows(int64_t cols) { return row_fits(cols, THREADS * 8 * 4); }

int cuda_op_act_rows(cuda_act act, float *y, bool keep, const cuda_rows *r, cuda_stream s, err *e) {
    if (r->n == 0) return 0;
    return r->cols <= THREADS * 8     ? start<1>(act, y, keep, r, s, e)
           : r->cols <= THREADS * 16  ? start<2>(act, y, keep, r, s, e)
           : r->cols <= THREADS * 24  ? start<3>(act, y, keep, r, s, e)
                                      : start<4>(act, y, keep, r, s, e);
}
