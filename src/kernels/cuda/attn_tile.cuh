/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles of queries, keys, values and probabilities in shared memory, for attention by tensor cores. */
#ifndef KERNELS_CUDA_ATTN_TILE_CUH
#define KERNELS_CUDA_ATTN_TILE_CUH

#include "kernels/cuda/attn.cuh"
#include "kernels/cuda/internal.cuh"
#include "kernels/cuda/mma.cuh"

#define CHUNK CUDA_ATTN_CHUNK

/* Address of 16 bytes in a tile of rows of D halves: chunks of 16 bytes are swizzled within 128 bytes. */
template <int D> __device__ static inline uint32_t tile_at(uint32_t base, int row, int chunk) {
    return base + row * (D * 2) + ((chunk & ~7) | ((chunk ^ row) & 7)) * 16;
}
/* Rows of 96 halves are 12 chunks: the last 4 are swizzled among themselves. */
template <> __device__ inline uint32_t tile_at<96>(uint32_t base, int row, int chunk) {
    return base + row * 192 + (chunk < 8 ? (chunk ^ row) & 7 : 8 + ((chunk ^ row >> 1) & 3)) * 16;
}

__device__ static inline void load_turned(uint32_t r[4], uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}

__device__ static inline uint32_t pack_halves(float a, float b) {
    const __half2 h = __floats2half2_rn(a, b);
    return *reinterpret_cast<const uint32_t *>(&h);
}

#endif
