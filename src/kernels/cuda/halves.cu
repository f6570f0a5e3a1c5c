/* SPDX-License-Identifier: Apache-2.0 */
/*
 * BF16 weights as f16. A bf16 number has 8 significant bits, so f16 holds it exactly as long as it lies in f16's range:
 * after division by a power of two everything down to 2^-24 of the largest weight does, and what is smaller is rounded
 * to 2^-34 of it. Activations then keep 11 bits instead of 8.
 */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/product.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define THREADS 256
#define BLOCKS 1024

static __global__ __launch_bounds__(THREADS) void top_kernel(uint32_t *top, const uint16_t *x, int64_t n) {
    uint32_t most = 0;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (int64_t)gridDim.x * THREADS) {
        const uint32_t bits = x[i] & 0x7fffu;
        if (bits < 0x7f80u) most = max(most, bits); /* an infinity says nothing about the others */
    }
    most = __reduce_max_sync(0xffffffffu, most);
    if (threadIdx.x % 32 == 0) atomicMax(top, most);
}

static __global__ __launch_bounds__(THREADS) void turn_kernel(uint16_t *x, int64_t n, float factor) {
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (int64_t)gridDim.x * THREADS)
        x[i] = __half_as_ushort(__float2half_rn(__uint_as_float((uint32_t)x[i] << 16) * factor));
}

int cuda_bf16_top(uint32_t *top, const void *x, int64_t n, cuda_stream s, err *e) {
    const cuda_shape shape = { BLOCKS, THREADS, 1, 0, false };
    return cuda_launch(top_kernel, shape, s, e, top, (const uint16_t *)x, n);
}

int cuda_bf16_turn(void *x, int64_t n, float factor, cuda_stream s, err *e) {
    const cuda_shape shape = { BLOCKS, THREADS, 1, 0, false };
    return cuda_launch(turn_kernel, shape, s, e, (uint16_t *)x, n, factor);
}
