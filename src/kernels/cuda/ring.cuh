/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels of experts share: a warp's packed tiles on their way to shared memory, and one tile times some rows. */
#ifndef KERNELS_CUDA_RING_CUH
#define KERNELS_CUDA_RING_CUH

#include "kernels/cuda/unpack.cuh"

#define RING_STAGES 8

/*
 * Places for packed tiles, filled and used in turn by one warp. Hopper copies a tile in one piece and counts its bytes at
 * a barrier per place; older chips copy 16 bytes per lane and wait for everything that is under way.
 */
template <class T> struct tile_ring {
    const uint8_t *places;
    uint32_t       bars, parity;
    int            stages, slot, lane;

    __device__ inline void init(const uint8_t *at, uint64_t *barriers, int n, int this_lane) {
        places = at, bars = smem_at(barriers), parity = 0, stages = n, slot = 0, lane = this_lane;
#ifdef CUDA_HOPPER
        if (lane < n) barrier_init(bars + lane * 8, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); /* for copies: no instruction comes of it */
        __syncwarp();
#endif
    }

    /* A copy to place i, whose tile nobody reads any more. */
    __device__ inline void fill(int i, const uint8_t *from) const {
        const uint32_t to = smem_at(places) + i * T::BYTES;
#ifdef CUDA_HOPPER
        if (lane == 0) {
            barrier_expect(bars + i * 8, T::BYTES);
            bulk_copy(to, from, T::BYTES, bars + i * 8);
        }
#else
        for (int o = lane * 16; o < T::BYTES; o += 512) copy16(to + o, from + o);
        copy_commit();
#endif
    }

    /* The next tile, when it is there. */
    __device__ inline const uint8_t *wait() const {
#ifdef CUDA_HOPPER
        barrier_wait(bars + slot * 8, parity);
#else
        copy_wait<0>();
        __syncwarp();
#endif
        return places + slot * T::BYTES;
    }

    __device__ inline void next() {
        if (++slot == stages) slot = 0, parity ^= 1;
    }
};

/* One tile times NT * 8 rows of shared memory, [block of 64 columns][row] of an image whose first row has number 0. */
template <class T, int NT>
__device__ static inline void tile_multiply(float acc[NT][4], const uint8_t *tile, uint8_t *scratch, uint32_t x,
                                            int lane) {
    if (T::SCRATCH) {
        T::prepare(tile, scratch, lane);
        __syncwarp();
    }
#pragma unroll
    for (int b = 0; b < T::COLS / CUDA_BLOCK_COLS; b++) {
        uint32_t fa[4][4];
        T::fragments(fa, tile, scratch, b, lane);
#pragma unroll
        for (int h = 0; h < 2; h++) {
#pragma unroll
            for (int nt = 0; nt < NT; nt++) {
                const int row = nt * 8 + lane % 8;
                uint32_t  fb[4];
                load_matrices(fb, x + (b * NT * 8 + row) * CUDA_ROW_BYTES + ((4 * h + lane / 8) ^ (row & 7)) * 16);
                mma16<T::BF16>(acc[nt], fa[2 * h], fb[0], fb[1]);
                mma16<T::BF16>(acc[nt], fa[2 * h + 1], fb[2], fb[3]);
            }
        }
    }
}

/*
 * The same for ONE row that lies as lanes want it: of every 64 columns the four lanes with the first column of the result
 * have 32 bytes each, pair `lane` of each chunk of eight columns. The result's other columns are nothing that anybody reads.
 */
template <class T>
__device__ static inline void tile_multiply_one(float acc[4], const uint8_t *tile, uint8_t *scratch, const uint8_t *x,
                                                int lane) {
    if (T::SCRATCH) {
        T::prepare(tile, scratch, lane);
        __syncwarp();
    }
#pragma unroll
    for (int b = 0; b < T::COLS / CUDA_BLOCK_COLS; b++) {
        uint32_t fa[4][4];
        uint4    p = make_uint4(0, 0, 0, 0), q = p;
        if (lane < 4)
            p = load_lane16(x + b * CUDA_ROW_BYTES + lane * 32),
            q = load_lane16(x + b * CUDA_ROW_BYTES + lane * 32 + 16);
        T::fragments(fa, tile, scratch, b, lane);
        mma16<T::BF16>(acc, fa[0], p.x, p.y);
        mma16<T::BF16>(acc, fa[1], p.z, p.w);
        mma16<T::BF16>(acc, fa[2], q.x, q.y);
        mma16<T::BF16>(acc, fa[3], q.z, q.w);
    }
}

/* Byte of pair `pair` of chunk `chunk` of such a row. */
__device__ static inline int one_at(int chunk, int pair) {
    return chunk / 8 * CUDA_ROW_BYTES + pair * 32 + chunk % 8 * 4;
}

#endif
