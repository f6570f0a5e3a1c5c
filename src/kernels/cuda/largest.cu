/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The likeliest tokens of each row of logits, in order: what a sampler without randomness picks from (params/sampling.h,
 * step 5), also where some tokens are forbidden. Blocks find those of their piece of a row, then a warp those of all.
 */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/ops.h"

#define THREADS 256
#define PER 16 /* logits of a thread */
#define PIECE (THREADS * PER)
#define LARGEST 1e30f /* numbers above count as this one */

typedef unsigned long long key;

/* Value and place as one number whose order is that of the values, lower places first; 0: nothing. */
__device__ static inline key key_of(float v, int64_t i) {
    if (!(v > -INFINITY)) return 0;
    const uint32_t bits = __float_as_uint(fminf(v, LARGEST) + 0.0f); /* -0 becomes 0 */
    const uint32_t rising = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (key)rising << 32 | (uint32_t) ~(uint32_t)i;
}

__device__ static inline key warp_largest(key v) {
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) v = max(v, __shfl_xor_sync(0xffffffffu, v, o));
    return v;
}

static __global__ __launch_bounds__(THREADS) void pieces_kernel(key *parts, const float *logits, int64_t width,
                                                                int pieces) {
    launch_begin();
    __shared__ key room[2][THREADS / 32];
    const int64_t  row = blockIdx.x / pieces, i0 = (int64_t)(blockIdx.x % pieces) * PIECE + threadIdx.x;
    key            mine[PER], before = ~(key)0;
#pragma unroll
    for (int k = 0; k < PER; k++) {
        const int64_t i = i0 + k * THREADS;
        mine[k] = i < width ? key_of(logits[row * width + i], i) : 0;
    }
    for (int n = 0; n < CUDA_LARGEST; n++) {
        key best = 0;
#pragma unroll
        for (int k = 0; k < PER; k++) best = max(best, mine[k] < before ? mine[k] : 0);
        best = warp_largest(best);
        if (threadIdx.x % 32 == 0) room[n & 1][threadIdx.x / 32] = best;
        __syncthreads();
        for (int k = 0; k < THREADS / 32; k++) best = max(best, room[n & 1][k]);
        if (threadIdx.x == 0) parts[(int64_t)blockIdx.x * CUDA_LARGEST + n] = best;
        before = best;
    }
}

static __global__ __launch_bounds__(32) void merge_kernel(int32_t *to, const key *parts, int pieces) {
    launch_begin();
    const key *mine = parts + (int64_t)blockIdx.x * pieces * CUDA_LARGEST;
    key        before = ~(key)0;
    for (int n = 0; n < CUDA_LARGEST; n++) {
        key best = 0;
        for (int k = (int)threadIdx.x; k < pieces * CUDA_LARGEST; k += 32)
            best = max(best, mine[k] < before ? mine[k] : 0);
        best = warp_largest(best);
        if (threadIdx.x == 0) to[(int64_t)blockIdx.x * CUDA_LARGEST + n] = best ? (int32_t) ~(uint32_t)best : -1;
        before = best;
    }
}

static int pieces_of(int64_t width) { return (int)((width + PIECE - 1) / PIECE); }

size_t cuda_largest_bytes(int64_t rows, int64_t width) {
    return (size_t)(rows * pieces_of(width) * CUDA_LARGEST) * sizeof(key);
}

int cuda_op_largest(int32_t *to, void *room, const float *logits, int64_t rows, int64_t width, cuda_stream s, err *e) {
    const int        pieces = pieces_of(width);
    const cuda_shape first = { (unsigned)(rows * pieces), THREADS, 1, 0, true },
                     second = { (unsigned)rows, 32, 1, 0, true };
    if (rows == 0) return 0;
    int rc = cuda_launch(pieces_kernel, first, s, e, (key *)room, logits, width, pieces);
    return rc ? rc : cuda_launch(merge_kernel, second, s, e, to, (const key *)room, pieces);
}
