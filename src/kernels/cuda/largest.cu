/* SPDX-License-Identifier: Apache-2.0 */
/* The likeliest token of each row of logits: what a sampler without randomness picks (params/sampling.h, step 5). */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/ops.h"

#define THREADS 1024
#define LARGEST 1e30f /* numbers above count as this one */

/* Value and place as one number whose order is that of the values, lower places first; 0: nothing. */
__device__ static inline unsigned long long key_of(float v, int64_t i) {
    if (!(v > -INFINITY)) return 0;
    const uint32_t bits = __float_as_uint(fminf(v, LARGEST) + 0.0f); /* -0 becomes 0 */
    const uint32_t rising = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (unsigned long long)rising << 32 | (uint32_t) ~(uint32_t)i;
}

static __global__ __launch_bounds__(THREADS) void largest_kernel(int32_t *to, const float *logits, int64_t width) {
    launch_begin();
    __shared__ unsigned long long part[THREADS / 32];
    const float                  *row = logits + (int64_t)blockIdx.x * width;
    unsigned long long            best = 0;
    for (int64_t i = threadIdx.x; i < width; i += THREADS) best = max(best, key_of(row[i], i));
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) best = max(best, __shfl_xor_sync(0xffffffffu, best, o));
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = best;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int i = 0; i < THREADS / 32; i++) best = max(best, part[i]);
    to[blockIdx.x] = best ? (int32_t) ~(uint32_t)best : -1;
}

int cuda_op_largest(int32_t *to, const float *logits, int64_t rows, int64_t width, cuda_stream s, err *e) {
    const cuda_shape shape = { (unsigned)rows, THREADS, 1, 0, true };
    return rows ? cuda_launch(largest_kernel, shape, s, e, to, logits, width) : 0;
}
