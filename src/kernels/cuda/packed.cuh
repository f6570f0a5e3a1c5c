/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels of compressed pages share: the rotation, where a page is, single values. */
#ifndef KERNELS_CUDA_PACKED_CUH
#define KERNELS_CUDA_PACKED_CUH

#include "kernels/cuda/packed.h"

#include <cuda_fp16.h>

/* A block of 32 * N values, lane by lane: sums and differences at distance 1, 2, ..., then the scale. */
template <int N> __device__ static inline void packed_hadamard(float v[N], int lane) {
#pragma unroll
    for (int h = 1; h < 32; h *= 2) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            const float other = __shfl_xor_sync(0xffffffffu, v[i], h);
            v[i] = lane & h ? other - v[i] : v[i] + other;
        }
    }
#pragma unroll
    for (int h = 1; h < N; h *= 2) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            if (i & h) continue;
            const float a = v[i], b = v[i + h];
            v[i] = a + b;
            v[i + h] = a - b;
        }
    }
    const float scale = 1.0f / sqrtf((float)(32 * N));
#pragma unroll
    for (int i = 0; i < N; i++) v[i] *= scale;
}

__device__ static inline float packed_flip(float v, uint32_t signs, int lane) {
    return __uint_as_float(__float_as_uint(v) ^ (signs >> lane & 1u) << 31);
}

__host__ __device__ static constexpr inline int packed_bits(kv_type type) {
    switch (type) {
    case KV_F32: return 32;
    case KV_F16:
    case KV_BF16: return 16;
    case KV_Q8_0:
    case KV_FP8: return 8;
    case KV_Q5_0: return 5;
    case KV_TQ3: return 3;
    case KV_TQ2: return 2;
    default: return 4;
    }
}

/* The page of a sequence's position; NULL: none. */
__device__ static inline uint8_t *packed_page(const cuda_packed &p, const cuda_batch &b, int s, int page) {
    const int number = b.block[b.block[1 + p.group] + s * b.block[0] + page];
    return number < 0 ? NULL : p.base + (size_t)number * p.page_bytes + p.offset;
}

__device__ static inline float packed_fp8(uint8_t b) {
    return __half2float(__ushort_as_half((uint16_t)((b & 0x80) << 8 | (b & 0x7f) << 7))) * 256.0f;
}

__device__ static inline float packed_plain(kv_type type, const uint8_t *area, int64_t at) {
    if (type == KV_F32) return reinterpret_cast<const float *>(area)[at];
    const uint16_t h = reinterpret_cast<const uint16_t *>(area)[at];
    return type == KV_F16 ? __half2float(__ushort_as_half(h)) : __uint_as_float((uint32_t)h << 16);
}

/* Element i of a row that rope.cu would have turned; c: n cosines, then n sines; NULL: it is not turned. */
__device__ static inline float packed_turned(const float *x, int i, const float *c, int n, bool interleaved) {
    if (!c || i >= 2 * n) return x[i];
    const int   f = interleaved ? i / 2 : i % n, a = interleaved ? 2 * f : f, b = interleaved ? a + 1 : f + n;
    const float va = x[a], vb = x[b];
    return i == a ? va * c[f] - vb * c[n + f] : va * c[n + f] + vb * c[f];
}

#endif
