/* SPDX-License-Identifier: Apache-2.0 */
/* F32 rows times F32 weights: lane l adds the products of k = l, l + 32, ... in order, then the lanes are added. */
#ifndef KERNELS_CUDA_PLAIN_CUH
#define KERNELS_CUDA_PLAIN_CUH

#include "kernels/cuda/reduce.cuh"

#include <stdint.h>

#define PLAIN_WARPS 8

/* One weight row times N activation rows; every lane gets the sums. */
template <int N>
__device__ static inline void plain_dots(float sum[N], const float *w, const float *const x[N], int64_t cols,
                                         int lane) {
    constexpr int AHEAD = N > 4 ? 4 : 8; /* loads under way: a few rows are all waits */
#pragma unroll AHEAD
    for (int64_t k = lane; k < cols; k += 32) {
        const float v = w[k];
#pragma unroll
        for (int i = 0; i < N; i++) sum[i] = fmaf(v, x[i][k], sum[i]);
    }
#pragma unroll
    for (int i = 0; i < N; i++) sum[i] = warp_sum(sum[i]);
}

#endif
