/* SPDX-License-Identifier: Apache-2.0 */
/* What attention of single rows behind many positions shares (attn_long.cu, attn_packed.cu): chunks in turn, and the ring in
 * shared memory through which they come. */
#ifndef KERNELS_CUDA_ATTN_RING_CUH
#define KERNELS_CUDA_ATTN_RING_CUH

#include "kernels/cuda/attn_one.cuh"

/* A chunk of one row and key head. */
struct ring_item {
    int  number, t, kv, chunk, s, lo, hi;
    bool seen;
};

__device__ static inline ring_item ring_begin() { return { (int)blockIdx.x, -1, 0, 0, 0, 0, 0, false }; }
__device__ static inline void      ring_step(ring_item &it) { it.number += (int)gridDim.x; }

/* The first of this block's chunks that is seen, from it.number on. A row's last chunks come first: what the kernel in front
 * made for them is waited for while the others are on their way. */
__device__ static inline bool ring_next(const cuda_attn &a, ring_item &it, int total) {
    for (; it.number < total; ring_step(it)) {
        const int at = it.number / a.pages.n_kv, row = it.t;
        it.kv = it.number % a.pages.n_kv, it.chunk = a.chunks - 1 - at % a.chunks, it.t = at / a.chunks;
        if (it.t != row) {
            attn_range(a, it.t, &it.lo, &it.hi);
            it.s = a.batch.seq_of[it.t];
        }
        if (it.chunk >= it.lo / CHUNK && it.chunk < (it.hi + CHUNK - 1) / CHUNK) return true;
    }
    return false;
}

/* Every n-th of this block's chunks, also those that are not seen: where several teams take turns. Numbers are divided once. */
struct ring_walk {
    int number, kv, at, t, step, step_kv, step_at, step_t; /* at: of the row's chunks, from the last one on */

    __device__ inline ring_walk(const cuda_attn &a, int first, int n) {
        number = (int)blockIdx.x + first * (int)gridDim.x, step = n * (int)gridDim.x;
        kv = number % a.pages.n_kv, at = number / a.pages.n_kv % a.chunks, t = number / a.pages.n_kv / a.chunks;
        step_kv = step % a.pages.n_kv, step_at = step / a.pages.n_kv % a.chunks, step_t = step / a.pages.n_kv / a.chunks;
    }
    __device__ inline bool next(const cuda_attn &a, ring_item &it, int total) {
        if (number >= total) return false;
        if (it.t != t) {
            attn_range(a, t, &it.lo, &it.hi);
            it.s = a.batch.seq_of[t];
        }
        it.t = t, it.kv = kv, it.chunk = a.chunks - 1 - at;
        it.seen = (it.chunk + 1) * CHUNK > it.lo && it.chunk * CHUNK < it.hi;
        number += step, kv += step_kv, at += step_at, t += step_t;
        if (kv >= a.pages.n_kv) kv -= a.pages.n_kv, at++;
        if (at >= a.chunks) at -= a.chunks, t++;
        return true;
    }
};

/* A place in the ring and the parity of its round. */
struct ring_place {
    uint32_t full, empty; /* barriers of the first place */
    int      slot, stages;
    uint32_t parity;

    __device__ inline uint32_t full_bar() const { return full + slot * 8; }
    __device__ inline uint32_t empty_bar() const { return empty + slot * 8; }
    __device__ inline void     advance() {
        if (++slot == stages) slot = 0, parity ^= 1;
    }
    __device__ inline void advance(int n) {
        for (slot += n; slot >= stages; slot -= stages) parity ^= 1;
    }
};

/* This thread's copies until now arrive at the barrier when they are done. */
__device__ static inline void ring_arrive(uint32_t bar) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(bar) : "memory");
}

/* The first n threads of a block meet. */
template <int N> __device__ static inline void first_sync() { asm volatile("bar.sync 15, %0;" ::"n"(N) : "memory"); }

/* The ONE_THREADS threads of a team meet. */
__device__ static inline void team_sync(int team) { asm volatile("bar.sync %0, 128;" ::"r"(team + 1) : "memory"); }

#endif
