/* SPDX-License-Identifier: Apache-2.0 */
/* The product with F32 weights in f32: a warp per weight row and 8 or 2 activation rows, or of many rows per 4 weight rows
 * and 8 activation rows, in the same order. For routers, small models and the patches of towers. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/plain.cuh"

#define ROWS 8

template <int N> static __global__ __launch_bounds__(PLAIN_WARPS * 32) void plain_kernel(const cuda_plain a) {
    launch_begin();
    const int     lane = (int)threadIdx.x % 32;
    const int64_t i = (int64_t)blockIdx.x * PLAIN_WARPS + threadIdx.x / 32, row = i % a.rows, first = i / a.rows * N;
    if (first >= a.n) return;
    const float *x[N];
    float        sum[N] = {};
#pragma unroll
    for (int k = 0; k < N; k++) x[k] = a.x + min(first + k, a.n - 1) * a.cols;
    plain_dots<N>(sum, a.w + row * a.cols, x, a.cols, lane);
#pragma unroll
    for (int k = 0; k < N; k++) {
        if (lane != k || first + k >= a.n) continue;
        float *out = a.out + (first + k) * a.rows + row, v = sum[k];
        if (a.bias) v += a.bias[row];
        *out = a.add ? *out + v : v;
    }
}

#define TILE 4 /* weight rows */

/* 32 sums over the lanes, in the order of warp_sum: lane l returns sum l. */
template <int N> __device__ static inline float sums_of(float (&v)[N], int lane) {
    constexpr int O = N / 2;
    float         half[O];
#pragma unroll
    for (int i = 0; i < O; i++) {
        const float mine = lane & O ? v[i + O] : v[i], other = lane & O ? v[i] : v[i + O];
        half[i] = mine + __shfl_xor_sync(0xffffffffu, other, O);
    }
    if constexpr (O == 1)
        return half[0];
    else
        return sums_of<O>(half, lane);
}

static __global__ __launch_bounds__(PLAIN_WARPS * 32) void plain_tile_kernel(const cuda_plain a) {
    launch_begin();
    const int     lane = (int)threadIdx.x % 32;
    const int64_t i = (int64_t)blockIdx.x * PLAIN_WARPS + threadIdx.x / 32, tiles = (a.rows + TILE - 1) / TILE;
    const int64_t row = i % tiles * TILE, first = i / tiles * ROWS;
    if (first >= a.n) return;
    const float *x[ROWS], *w[TILE];
    float        sum[TILE * ROWS] = {};
#pragma unroll
    for (int k = 0; k < ROWS; k++) x[k] = a.x + min(first + k, a.n - 1) * a.cols;
#pragma unroll
    for (int k = 0; k < TILE; k++) w[k] = a.w + min(row + k, a.rows - 1) * a.cols;
    for (int64_t c = lane; c < a.cols; c += 32) {
        float vx[ROWS];
#pragma unroll
        for (int k = 0; k < ROWS; k++) vx[k] = x[k][c];
#pragma unroll
        for (int j = 0; j < TILE; j++) {
            const float vw = w[j][c];
#pragma unroll
            for (int k = 0; k < ROWS; k++) sum[k * TILE + j] = fmaf(vw, vx[k], sum[k * TILE + j]);
        }
    }
    float         v = sums_of(sum, lane);
    const int64_t at = first + lane / TILE, col = row + lane % TILE;
    if (at >= a.n || col >= a.rows) return;
    float *out = a.out + at * a.rows + col;
    if (a.bias) v += a.bias[col];
    *out = a.add ? *out + v : v;
}

template <int N> static int start_plain(const cuda_plain *a, cuda_stream s, err *e) {
    const int64_t    warps = (a->n + N - 1) / N * a->rows;
    const cuda_shape shape = { (unsigned)((warps + PLAIN_WARPS - 1) / PLAIN_WARPS), PLAIN_WARPS * 32, 1, 0, true };
    return cuda_launch(plain_kernel<N>, shape, s, e, *a);
}

int cuda_op_plain(const cuda_plain *a, cuda_stream s, err *e) {
    const int64_t    warps = (a->n + ROWS - 1) / ROWS * ((a->rows + TILE - 1) / TILE);
    const cuda_shape shape = { (unsigned)((warps + PLAIN_WARPS - 1) / PLAIN_WARPS), PLAIN_WARPS * 32, 1, 0, true };
    if (a->n == 0) return 0;
    if (a->n >= 64) return cuda_launch(plain_tile_kernel, shape, s, e, *a);
    /* A router's few weight rows: more warps with fewer activation rows each. */
    return a->rows <= 512 && a->n > 2 ? start_plain<2>(a, s, e) : start_plain<ROWS>(a, s, e);
}
