/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels of picks.h share. */
#ifndef KERNELS_CUDA_PICKS_CUH
#define KERNELS_CUDA_PICKS_CUH

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/picks.h"

#define LARGEST 1e30f /* numbers above count as this one */

static inline __host__ __device__ int64_t group_size(int64_t width) {
    int64_t n = 1;
    while (n * CUDA_GROUPS < width) n *= 2;
    return n;
}

static inline __host__ __device__ int group_count(int64_t width) {
    const int64_t size = group_size(width);
    return (int)((width + size - 1) / size);
}

/* A row as it is looked at. */
typedef struct row_view {
    const float    *x;
    const uint32_t *mask; /* NULL: none */
} row_view;

/* asks NULL: row i as it came. */
__device__ static inline row_view row_of(const cuda_picks &p, int i) {
    row_view v = { p.logits + i * p.width, NULL };
    if (!p.asks) return v;
    const cuda_ask *a = &p.asks[i];
    v.x = a->edited ? p.edited + (a->edited - 1) * p.width : p.logits + a->row * p.width;
    if (a->mask) v.mask = p.masks + (a->mask - 1) * ((p.width + 31) / 32);
    return v;
}

__device__ static inline float at(const row_view &v, int64_t i) {
    return !v.mask || v.mask[i >> 5] >> (i & 31) & 1 ? v.x[i] : -INFINITY;
}

/* What is compared: -INFINITY where nothing is possible. */
__device__ static inline float possible(float x) { return x > -INFINITY ? fminf(x, LARGEST) : -INFINITY; }

__device__ static inline uint32_t rising(float v) {
    const uint32_t bits = __float_as_uint(fminf(v, LARGEST) + 0.0f); /* -0 becomes 0 */
    return !(v > -INFINITY) ? 0 : bits >> 31 ? ~bits : bits | 0x80000000u;
}

__device__ static inline cuda_key key_of(uint32_t rising, int64_t i) {
    return rising ? (cuda_key)rising << 32 | (uint32_t) ~(uint32_t)i : 0;
}

__device__ static inline float value_of(cuda_key k) {
    const uint32_t r = (uint32_t)(k >> 32);
    return r == 0 ? -INFINITY : __uint_as_float(r >> 31 ? r & 0x7fffffffu : ~r);
}

/* likely.cu: the lists of rows (asks NULL) or of asks */
int picks_list(const cuda_picks *p, int n, cuda_stream s, err *e);

#endif
