/* SPDX-License-Identifier: Apache-2.0 */
/* The product with F32 weights in f32: a warp per weight row and 8 activation rows. For routers and small models. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/plain.cuh"

#define ROWS 8

static __global__ __launch_bounds__(PLAIN_WARPS * 32) void plain_kernel(const cuda_plain a) {
    launch_begin();
    const int     lane = (int)threadIdx.x % 32;
    const int64_t i = (int64_t)blockIdx.x * PLAIN_WARPS + threadIdx.x / 32, row = i % a.rows, first = i / a.rows * ROWS;
    if (first >= a.n) return;
    const float *x[ROWS];
    float        sum[ROWS] = {};
#pragma unroll
    for (int k = 0; k < ROWS; k++) x[k] = a.x + min(first + k, a.n - 1) * a.cols;
    plain_dots<ROWS>(sum, a.w + row * a.cols, x, a.cols, lane);
#pragma unroll
    for (int k = 0; k < ROWS; k++) {
        if (lane != k || first + k >= a.n) continue;
        float *out = a.out + (first + k) * a.rows + row, v = sum[k];
        if (a.bias) v += a.bias[row];
        *out = a.add ? *out + v : v;
    }
}

int cuda_op_plain(const cuda_plain *a, cuda_stream s, err *e) {
    const int64_t    warps = (a->n + ROWS - 1) / ROWS * a->rows;
    const cuda_shape shape = { (unsigned)((warps + PLAIN_WARPS - 1) / PLAIN_WARPS), PLAIN_WARPS * 32, 1, 0, true };
    return a->n ? cuda_launch(plain_kernel, shape, s, e, *a) : 0;
}
