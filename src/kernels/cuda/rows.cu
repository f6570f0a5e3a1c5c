/* SPDX-License-Identifier: Apache-2.0 */
/* Activation rows to 16 bits, one block per row; and gated units that leave their rows so, too. */
#include "kernels/cuda/act.cuh"
#include "kernels/cuda/rows.cuh"

#define THREADS 512

template <bool BF16> static __global__ __launch_bounds__(THREADS) void rows_kernel(const rows_args a) {
    launch_begin();
    rows_one<BF16, THREADS>(a, blockIdx.x);
}

#define CHUNKS 4

template <int SOME, int PARTS> static __global__ __launch_bounds__(SOME) void rows_regs_kernel(const rows_args a) {
    row_in_regs<SOME, PARTS> r;
    launch_begin();
    r.load(a.x + (int64_t)blockIdx.x * a.x_stride, a.cols);
    r.image(a, blockIdx.x);
}

size_t cuda_rows_bytes(int64_t n, int64_t cols) {
    return (size_t)(cuda_rows_pad(n) * cuda_round_up(cols, CUDA_SLICE_UNIT) * 2);
}

int cuda_rows_make(const cuda_rows *r, const float *x, int64_t x_stride, cuda_stream s, err *e) {
    const rows_args  a = rows_args_of(r, x, x_stride);
    const cuda_shape shape = { (unsigned)r->n_pad, THREADS, 1, 0, true };
    if (!r->bf16 && row_fits(r->cols, THREADS * 8 * CHUNKS) && x_stride % 4 == 0 && ((uintptr_t)x & 15) == 0) {
        const bool       few = r->cols <= 160 * 8;
        const cuda_shape each = { (unsigned)r->n, few ? 160u : THREADS, 1, 0, true };
        return few ? cuda_launch(rows_regs_kernel<160, 1>, each, s, e, a)
                   : cuda_launch(rows_regs_kernel<THREADS, CHUNKS>, each, s, e, a);
    }
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

/* The usual functions are known when it is compiled: else every one of the unrolled elements has all of them. */
template <int ACT>
static __global__ __launch_bounds__(THREADS) void glu_regs_kernel(cuda_act any, float *y, const float *up, bool keep,
                                                                  const rows_args a) {
    const cuda_act               act = ACT < 0 ? any : (cuda_act)ACT;
    row_in_regs<THREADS, CHUNKS> r, u;
    launch_begin();
    r.load(y + (int64_t)blockIdx.x * a.cols, a.cols);
    u.load(up + (int64_t)blockIdx.x * a.cols, a.cols);
#pragma unroll
    for (int i = 0; i < CHUNKS * 8; i++) r.v[i / 8][i % 8] = act_of(act, r.v[i / 8][i % 8]) * u.v[i / 8][i % 8];
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) { /* act(0) * 0 behind the last column */
        if (r.at(c) >= a.cols) {
#pragma unroll
            for (int i = 0; i < 8; i++) r.v[c][i] = 0;
        }
    }
    if (keep) r.store(y + (int64_t)blockIdx.x * a.cols, a.cols);
    r.image(a, blockIdx.x);
}

int cuda_op_glu_rows(cuda_act act, float *y, const float *up, bool keep, const cuda_rows *r, cuda_stream s, err *e) {
    const cuda_shape shape = { (unsigned)r->n, THREADS, 1, 0, true };
    if (r->n && row_fits(r->cols, THREADS * 8 * CHUNKS)) {
        const rows_args a = rows_args_of(r, y, r->cols);
        return act == CUDA_ACT_SILU ? cuda_launch(glu_regs_kernel<CUDA_ACT_SILU>, shape, s, e, act, y, up, keep, a)
               : act == CUDA_ACT_GELU_TANH
                   ? cuda_launch(glu_regs_kernel<CUDA_ACT_GELU_TANH>, shape, s, e, act, y, up, keep, a)
                   : cuda_launch(glu_regs_kernel<-1>, shape, s, e, act, y, up, keep, a);
    }
    return r->n ? cuda_launch(glu_rows_kernel, shape, s, e, act, y, up, rows_args_of(r, y, r->cols)) : 0;
}
