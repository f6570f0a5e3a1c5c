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
 * `before`: that of everything in front; me: this thread among those that fold. */
template <int COLUMNS, class Sync>
__device__ static inline float fold_factors(fold_room<COLUMNS> &m, float most, float sum, float before, int me, Sync sync) {
    const int lane = me % 32, warp = me / 32;
    float     top = most;
#pragma unroll
    for (int o = 1; o < 32; o *= 2) {
        const float other = __shfl_up_sync(0xffffffffu, top, o);
        if (lane >= o) top = fmaxf(top, other);
    }
    if (warp < FOLD_WARPS && lane == 31) m.top[warp] = top;
    sync();
    float in_front = before, all = before;
    for (int w = 0; w < FOLD_WARPS; w++) {
        if (w < warp) in_front = fmaxf(in_front, m.top[w]);
        all = fmaxf(all, m.top[w]);
    }
    const float left = __shfl_up_sync(0xffffffffu, top, 1), old = lane ? fmaxf(in_front, left) : in_front;
    const float now = fmaxf(old, most);
    if (warp < FOLD_WARPS) {
        m.f_old[me] = old == now ? 1.0f : expf(old - now);
        m.f_part[me] = most == now ? 1.0f : expf(most - now);
        m.sum[me] = sum;
    }
    return all;
}

/* Column `col` of the result of a row and head, for thread me < COLUMNS of COLUMNS * FOLD_WARPS that meet by sync(); others
 * help and get nothing. wait() is called before parts are read. */
template <int COLUMNS, class Wait, class Sync>
__device__ static inline float fold_columns(const cuda_attn &a, fold_room<COLUMNS> &m, int64_t row, int col, int me,
                                            Wait wait, Sync sync) {
    const int64_t stride = a.dim_out + 2;
    const int     mine = me % COLUMNS, from = me / COLUMNS;
    const float  *parts = a.parts + row * a.chunks * stride;
    int           lo, hi;
    attn_range(a, (int)(row / a.n_head), &lo, &hi);
    const int end = (hi + CUDA_ATTN_CHUNK - 1) / CUDA_ATTN_CHUNK;
    attn_sum  sums = attn_begin(a, (int)(row % a.n_head));
    float     all = 0;
    wait();
    for (int c0 = lo / CUDA_ATTN_CHUNK; c0 < end; c0 += FOLD_PARTS) {
        const int    n = min(FOLD_PARTS, end - c0);
        const float *first = parts + c0 * stride, *part = first + min(me, n - 1) * stride;
        const float  most = __ldcg(part), sum = __ldcg(part + 1);
        float        o[FOLD_PARTS / FOLD_WARPS];
#pragma unroll
        for (int i = 0; i < FOLD_PARTS / FOLD_WARPS; i++)
            o[i] = __ldcg(first + min(i * FOLD_WARPS + from, n - 1) * stride + 2 + col);
        sync(); /* the room may still be read */
#pragma unroll
        for (int i = 0; i < FOLD_PARTS / FOLD_WARPS; i++) m.o[i * FOLD_WARPS + from][mine] = o[i];
        sums.most = fold_factors(m, most, sum, sums.most, me, sync);
        sync();
        if (me >= COLUMNS) continue;
#pragma unroll 8
        for (int c = 0; c < n; c++) {
            sums.sum = sums.sum * m.f_old[c] + m.sum[c] * m.f_part[c];
            all = all * m.f_old[c] + m.o[c][mine] * m.f_part[c];
        }
    }
    return all / sums.sum;
}

/* Where blocks that made parts fold them, too: whoever folds waits until all blocks have told that theirs are written. All
 * blocks run at once. One thread calls these; the counter is zero before and afterwards. */
__device__ static inline void fold_tell(unsigned *count) {
    __threadfence();
    atomicAdd(count, 1u);
}

__device__ static inline void fold_wait(unsigned *count, unsigned blocks, unsigned folding) {
    unsigned told;
    do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(told) : "l"(count) : "memory");
    } while (told < blocks);
    if (atomicAdd(count, 1u) == blocks + folding - 1) atomicExch(count, 0u);
}

#endif
