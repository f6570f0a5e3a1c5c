/* SPDX-License-Identifier: Apache-2.0 */
/* One activation row to 16 bits (product.h, layout.h) by all threads of a block: the largest magnitude first, then the
 * image. */
#ifndef KERNELS_CUDA_ROWS_CUH
#define KERNELS_CUDA_ROWS_CUH

#include "kernels/cuda/internal.cuh"
#include "kernels/cuda/mma.cuh"

#include <cuda_bf16.h>

struct rows_args {
    const float *x;
    int64_t      x_stride;
    uint8_t     *image; /* NULL: none is wanted */
    float       *scale;
    int64_t      n, n_pad, cols;
};

static inline rows_args rows_args_of(const cuda_rows *r, const float *x, int64_t x_stride) {
    return { x, x_stride, (uint8_t *)r->data, (float *)r->scale, r->n, r->n_pad, r->cols };
}

template <int THREADS> __device__ static inline uint32_t largest_bits(const float *x, int64_t cols) {
    __shared__ uint32_t part[THREADS / 32];
    uint32_t            top = 0;
    for (int64_t i = threadIdx.x; i < cols; i += THREADS) top = max(top, __float_as_uint(x[i]) & 0x7fffffffu);
    top = __reduce_max_sync(0xffffffffu, top);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = top;
    __syncthreads();
    for (int i = 0; i < THREADS / 32; i++) top = max(top, part[i]);
    return top;
}

template <bool BF16> __device__ static inline uint32_t to16(float f, float factor) {
    if constexpr (BF16) return __bfloat16_as_ushort(__float2bfloat16_rn(f));
    return __half_as_ushort(__float2half_rn(__fmul_rn(f, factor)));
}

/* Rows behind the last become zero. */
template <bool BF16, int THREADS> __device__ static inline void rows_one(const rows_args &a, int64_t row) {
    const float *x = a.x + row * a.x_stride;
    const bool   in = row < a.n;
    const int    e = BF16 || !in ? 0 : cuda_row_exponent(largest_bits<THREADS>(x, a.cols));
    const float  factor = __uint_as_float((uint32_t)(127 - e) << 23);
    if (in && threadIdx.x == 0) a.scale[row] = __uint_as_float((uint32_t)(127 + e) << 23);
    const int64_t chunks = cuda_round_up(a.cols, CUDA_SLICE_UNIT) / 8;
    for (int64_t i = threadIdx.x; i < chunks; i += THREADS) {
        uint32_t w[4];
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const int64_t k = i * 8 + c * 2;
            w[c] = in && k < a.cols ? to16<BF16>(x[k], factor) : 0;
            if (in && k + 1 < a.cols) w[c] |= to16<BF16>(x[k + 1], factor) << 16;
        }
        *reinterpret_cast<uint4 *>(a.image + cuda_image_at(row, i * 8, a.n_pad)) = make_uint4(w[0], w[1], w[2], w[3]);
    }
}

/* A row of up to THREADS * 8 * CHUNKS floats in registers: thread i has elements 8 i .. 8 i + 7 of every THREADS * 8. */
template <int THREADS, int CHUNKS> struct row_in_regs {
    float v[CHUNKS][8];

    __device__ static inline int64_t at(int c) { return ((int64_t)c * THREADS + threadIdx.x) * 8; }
    __device__ inline void           load(const float *x, int64_t cols) {
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            const bool   in = at(c) < cols;
            const float4 a = in ? *reinterpret_cast<const float4 *>(x + at(c)) : make_float4(0, 0, 0, 0),
                         b = in ? *reinterpret_cast<const float4 *>(x + at(c) + 4) : make_float4(0, 0, 0, 0);
            v[c][0] = a.x, v[c][1] = a.y, v[c][2] = a.z, v[c][3] = a.w;
            v[c][4] = b.x, v[c][5] = b.y, v[c][6] = b.z, v[c][7] = b.w;
        }
    }
    __device__ inline void store(float *x, int64_t cols) const {
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            if (at(c) >= cols) continue;
            *reinterpret_cast<float4 *>(x + at(c)) = make_float4(v[c][0], v[c][1], v[c][2], v[c][3]);
            *reinterpret_cast<float4 *>(x + at(c) + 4) = make_float4(v[c][4], v[c][5], v[c][6], v[c][7]);
        }
    }
    /* The image of the row, as rows_one makes it in f16. */
    __device__ inline void image(const rows_args &a, int64_t row) const {
        __shared__ uint32_t part[THREADS / 32];
        uint32_t            top = 0;
#pragma unroll
        for (int i = 0; i < CHUNKS * 8; i++) top = max(top, __float_as_uint(v[i / 8][i % 8]) & 0x7fffffffu);
        top = __reduce_max_sync(0xffffffffu, top);
        if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = top;
        __syncthreads();
        for (int i = 0; i < THREADS / 32; i++) top = max(top, part[i]);
        const int   e = cuda_row_exponent(top);
        const float factor = __uint_as_float((uint32_t)(127 - e) << 23);
        if (threadIdx.x == 0) a.scale[row] = __uint_as_float((uint32_t)(127 + e) << 23);
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            if (at(c) >= cuda_round_up(a.cols, CUDA_SLICE_UNIT)) continue; /* zeros behind the last column */
            uint32_t w[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                w[i] = to16<false>(v[c][2 * i], factor) | to16<false>(v[c][2 * i + 1], factor) << 16;
            *reinterpret_cast<uint4 *>(a.image + cuda_image_at(row, at(c), a.n_pad)) =
                make_uint4(w[0], w[1], w[2], w[3]);
        }
    }
};

/* Rows that fit: a whole number of chunks, every row on a 16-byte border. */
static inline bool row_fits(int64_t cols, int64_t most) { return cols % 8 == 0 && cols <= most; }

#endif
