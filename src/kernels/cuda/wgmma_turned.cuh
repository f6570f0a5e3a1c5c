/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wgmma with f16 values of `a` in registers and a `b` that lies column by column: rows of 64 of its n columns for each of
 * its k, as values lie in pages. 8 such rows are 1024 bytes in the swizzle of an image, the next 8 follow.
 */
#ifndef KERNELS_CUDA_WGMMA_TURNED_CUH
#define KERNELS_CUDA_WGMMA_TURNED_CUH

#include "kernels/cuda/wgmma.cuh"

#ifdef CUDA_WGMMA

template <int N> struct wgmma_turned;

#define WGMMA_TURNED_SIZE(N, outs, a0, a1, a2, a3, b, c, ...)                                                          \
    template <> struct wgmma_turned<N> {                                                                               \
        __device__ static inline void run(float *d, const uint32_t a[4], uint64_t db, int add) {                       \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #c ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N           \
                         "k16.f32.f16.f16 {" outs "}, {%" #a0 ",%" #a1 ",%" #a2 ",%" #a3 "}, %" #b                     \
                         ", p, 1, 1, 1;\n}"                                                                            \
                         : __VA_ARGS__                                                                                 \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(db), "r"(add));                             \
        }                                                                                                              \
    };

WGMMA_TURNED_SIZE(64, WGMMA_OUT_32, 32, 33, 34, 35, 36, 37, WGMMA_D32(d, 0))
WGMMA_TURNED_SIZE(128, WGMMA_OUT_64, 64, 65, 66, 67, 68, 69, WGMMA_D32(d, 0), WGMMA_D32(d, 32))

/* Its descriptor; the next 64 n lie `apart` bytes further. */
__device__ static inline uint64_t wgmma_turned_at(uint32_t smem, uint32_t apart) {
    return (uint64_t)((smem & 0x3ffff) >> 4) | (uint64_t)(apart >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 |
           (uint64_t)1 << 62;
}

/* What this thread wrote to shared memory is seen by wgmma, once whoever starts it has met this thread. */
__device__ static inline void wgmma_wrote() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

#endif
#endif
