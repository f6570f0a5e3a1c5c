/* SPDX-License-Identifier: Apache-2.0 */
/* Sums and maxima of a warp or a block in one order: lanes by halving distance, then warps one after the other. */
#ifndef KERNELS_CUDA_REDUCE_CUH
#define KERNELS_CUDA_REDUCE_CUH

__device__ static inline float warp_sum(float v) {
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
    return v;
}

__device__ static inline float warp_max(float v) {
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o));
    return v;
}

/* Every thread gets the sum; room: one float per warp. All threads of the block call it. */
template <int THREADS> __device__ static inline float block_sum(float v, float *room) {
    v = warp_sum(v);
    __syncthreads(); /* the room may still be read */
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = v;
    __syncthreads();
    float sum = 0;
#pragma unroll
    for (int i = 0; i < THREADS / 32; i++) sum += room[i];
    return sum;
}

#endif
