/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of a row's chunks to its result, in the order of chunks, by a block for COLUMNS columns of one row and head: all
 * warps bring the parts of up to 128 chunks at once, the first ones fold them, a thread per column. Factors are found
 * beforehand, since the largest score so far does not depend on the order in which it is looked for.
 */
#ifndef KERNELS_CUDA_ATTN_FOLD_CUH
#define KERNELS_CUDA_ATTN_FOLD_CUH

#include "kernels/cuda/attn.cuh"
#include "kernels/cuda/internal.cuh"
#include "kernels/cuda/mma.cuh"

#define FOLD_WARPS 4 /* threads for a column, which bring its parts */
#define FOLD_PARTS (FOLD_WARPS * 32)

template <int COLUMNS> struct fold_room {
    float o[FOLD_PARTS][COLUMNS];
    float f_old[FOLD_PARTS], f_part[FOLD_PARTS], sum[FOLD_PARTS];
    float top[FOLD_WARPS];
};

/* Factors of FOLD_PARTS chunks, one per thread of the first warps. Returns the largest score up to the last of them.
 * `before`: that of everything in front. */
template <int COLUMNS>
__device__ static inline float fold_factors(fold_room<COLUMNS> &m, float most, float sum, float before) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    float     top = most;
#pragma unroll
    for (int o = 1; o < 32; o *= 2) {
        const float other = __shfl_up_sync(0xffffffffu, top, o);
        if (lane >= o) top = fmaxf(top, other);
    }
    if (warp < FOLD_WARPS && lane == 31) m.top[warp] = top;
    __syncthreads();
    float in_front = before, all = before;
    for (int w = 0; w < FOLD_WARPS; w++) {
        if (w < warp) in_front = fmaxf(in_front, m.top[w]);
        all = fmaxf(all, m.top[w]);
    }
    const float left = __shfl_up_sync(0xffffffffu, top, 1), old = lane ? fmaxf(in_front, left) : in_front;
    const float now = fmaxf(old, most);
    if (warp < FOLD_WARPS) {
        m.f_old[threadIdx.x] = old == now ? 1.0f : expf(old - now);
        m.f_part[threadIdx.x] = most == now ? 1.0f : expf(most - now);
        m.sum[threadIdx.x] = sum;
    }
    return all;
}

/* Column `col` of the result of a row and head, for the thread of that number in the block; other threads help and get
 * nothing. Waits for the kernel in front. */
template <int COLUMNS>
__device__ static inline float fold_columns(const cuda_attn &a, fold_room<COLUMNS> &m, int64_t row, int col) {
    const int64_t stride = a.dim_out + 2;
    const int     mine = (int)threadIdx.x % COLUMNS, from = (int)threadIdx.x / COLUMNS;
    const float  *parts = a.parts + row * a.chunks * stride;
    int           lo, hi;
    launch_next();
    attn_range(a, (int)(row / a.n_head), &lo, &hi);
    attn_sum sums = attn_begin(a, (int)(row % a.n_head));
    float    all = 0;
    launch_wait();
    if (a.chosen) {
        const int head = (int)(row % a.n_head);
        lo = 0, hi = attn_chosen(a, (int)(row / a.n_head), head / (a.n_head / a.pages.n_kv)).n;
    }
    const int end = (hi + CUDA_ATTN_CHUNK - 1) / CUDA_ATTN_CHUNK;
    for (int c0 = lo / CUDA_ATTN_CHUNK; c0 < end; c0 += FOLD_PARTS) {
        const int    n = min(FOLD_PARTS, end - c0);
        const float *first = parts + c0 * stride, *part = first + min((int)threadIdx.x, n - 1) * stride;
        const float  most = __ldcg(part), sum = __ldcg(part + 1);
        float        o[FOLD_PARTS / FOLD_WARPS];
#pragma unroll
        for (int i = 0; i < FOLD_PARTS / FOLD_WARPS; i++)
            o[i] = __ldcg(first + min(i * FOLD_WARPS + from, n - 1) * stride + 2 + col);
        __syncthreads(); /* the room may still be read */
#pragma unroll
        for (int i = 0; i < FOLD_PARTS / FOLD_WARPS; i++) m.o[i * FOLD_WARPS + from][mine] = o[i];
        sums.most = fold_factors(m, most, sum, sums.most);
        __syncthreads();
        if ((int)threadIdx.x >= COLUMNS) continue;
#pragma unroll 8
        for (int c = 0; c < n; c++) {
            sums.sum = sums.sum * m.f_old[c] + m.sum[c] * m.f_part[c];
            all = all * m.f_old[c] + m.o[c][mine] * m.f_part[c];
        }
    }
    return all / sums.sum;
}

#endif
