/* SPDX-License-Identifier: Apache-2.0 */
/* What rows of pictures need beside the usual ops: columns side by side, and what is added to supplied rows further up. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/ops.h"

#define THREADS 256

static cuda_shape elements(int64_t n) { return { (unsigned)((n + THREADS - 1) / THREADS), THREADS, 1, 0, true }; }

static __global__ __launch_bounds__(THREADS) void join_kernel(float *out, int64_t out_width, int64_t at, const float *x,
                                                              int64_t rows, int64_t width) {
    launch_begin();
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < rows * width) out[i / width * out_width + at + i % width] = x[i];
}

int cuda_op_join(float *out, int64_t out_width, int64_t at, const float *x, int64_t rows, int64_t width, cuda_stream s,
                 err *e) {
    return rows ? cuda_launch(join_kernel, elements(rows * width), s, e, out, out_width, at, x, rows, width) : 0;
}

static __global__ __launch_bounds__(THREADS) void supplied_kernel(float *y, const float *more, int64_t stride,
                                                                  const int32_t *given, int64_t rows, int64_t width) {
    launch_begin();
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, row = i / width;
    if (row < rows && given[row]) y[i] += more[row * stride + i % width];
}

int cuda_op_add_supplied(float *y, const float *more, int64_t stride, const int32_t *given, int64_t rows, int64_t width,
                         cuda_stream s, err *e) {
    return rows ? cuda_launch(supplied_kernel, elements(rows * width), s, e, y, more, stride, given, rows, width) : 0;
}
