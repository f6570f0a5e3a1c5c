/* SPDX-License-Identifier: Apache-2.0 */
/* What attention of several rows by tensor cores shares (attn_mma.cu, attn_many.cu): a chunk's scores to probabilities, and
 * its values by mma.sync. A warp has 16 rows; a thread has rows lane / 4 and lane / 4 + 8 of them. */
#ifndef KERNELS_CUDA_ATTN_MMA_CUH
#define KERNELS_CUDA_ATTN_MMA_CUH

#include "kernels/cuda/attn_tile.cuh"

#define ROWS CUDA_TILE_TOKENS

/* Where 16 bytes of a row lie: rows one behind the other. */
template <int D> struct mma_tile {
    enum { STRIDE = D * 2 };
    uint32_t base;

    __device__ inline uint32_t at(int row, int chunk) const { return tile_at<D>(base, row, chunk); }
};

/* Queries of one warp to f16; lane r < 16 returns the factor that row r's products are multiplied by. */
template <int D, class Tile>
__device__ static inline float mma_load_q(const cuda_attn &a, uint8_t *to, const Tile tile, int t0, int n, int head,
                                          int lane) {
    const bool in = lane * 4 < D;
    float      factor = 0;
    float4     v[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) { /* rows behind the last: that one again */
        const float *q = a.q + ((int64_t)(t0 + min(r, n - 1)) * a.n_head + head) * D;
        v[r] = in ? *reinterpret_cast<const float4 *>(q + lane * 4) : make_float4(0, 0, 0, 0);
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const float4 q = v[r];
        uint32_t     top = max(max(__float_as_uint(q.x) & 0x7fffffffu, __float_as_uint(q.y) & 0x7fffffffu),
                               max(__float_as_uint(q.z) & 0x7fffffffu, __float_as_uint(q.w) & 0x7fffffffu));
        top = __reduce_max_sync(0xffffffffu, top);
        const int   e = cuda_row_exponent(top);
        const float down = __uint_as_float((uint32_t)(127 - e) << 23);
        if (in)
            *reinterpret_cast<uint2 *>(to + tile.at(r, lane / 2) + lane % 2 * 8) =
                make_uint2(pack_halves(q.x * down, q.y * down), pack_halves(q.z * down, q.w * down));
        if (lane == r) factor = __uint_as_float((uint32_t)(127 + e) << 23) * a.scale;
    }
    return factor;
}

/* Whether any of this thread's sums is not finite. Zero times a value that is not finite is NaN, so no such value lies among
 * those that were added, seen or not, where all are. */
template <int D> __device__ static inline bool mma_tainted(const float o[D / 8][4]) {
    uint32_t top = 0;
#pragma unroll
    for (int i = 0; i < D / 2; i++) top = max(top, __float_as_uint(o[i / 4][i % 4]) & 0x7fffffffu);
    return top >= 0x7f800000u;
}

/* Products of a chunk to probabilities. lo, hi, factor: of this thread's two rows. WHOLE: the warp's rows see all of it. */
template <bool WHOLE>
__device__ static inline void mma_weigh(const cuda_attn &a, uint32_t p[CHUNK / 16][4], attn_sum part[2],
                                        float s[CHUNK / 8][4], int c0, const int lo[2], const int hi[2],
                                        const float factor[2], int lane) {
    float most[2] = { -INFINITY, -INFINITY };
#pragma unroll
    for (int i = 0; i < CHUNK / 2; i++) s[i / 4][i % 4] *= factor[i / 2 % 2];
    if (!WHOLE && a.softcap != 0) {
#pragma unroll
        for (int i = 0; i < CHUNK / 2; i++) s[i / 4][i % 4] = a.softcap * tanhf(s[i / 4][i % 4] / a.softcap);
    }
#pragma unroll
    for (int i = 0; i < CHUNK / 2; i++) {
        const int r = i / 2 % 2, pos = c0 + i / 4 * 8 + lane % 4 * 2 + i % 2;
        if (!WHOLE) s[i / 4][i % 4] = pos >= lo[r] && pos < hi[r] ? s[i / 4][i % 4] : -INFINITY;
        most[r] = fmaxf(most[r], s[i / 4][i % 4]);
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        most[r] = fmaxf(most[r], __shfl_xor_sync(0xffffffffu, most[r], 1));
        most[r] = fmaxf(most[r], __shfl_xor_sync(0xffffffffu, most[r], 2));
    }
    /* What a row does not see becomes 0 by itself, without a branch per position; where it sees nothing, from any base. */
    float base[2];
#pragma unroll
    for (int r = 0; r < 2; r++) base[r] = !WHOLE && (c0 + CHUNK <= lo[r] || c0 >= hi[r]) ? 0.0f : most[r];
    float sum[2] = { 0, 0 };
#pragma unroll
    for (int g = 0; g < CHUNK / 32; g++) {
        float some[2] = { 0, 0 };
#pragma unroll
        for (int n = g * 4; n < g * 4 + 4; n++) {
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const uint32_t both = pack_halves(expf(s[n][2 * r] - base[r]), expf(s[n][2 * r + 1] - base[r]));
                const float2   back = __half22float2(*reinterpret_cast<const __half2 *>(&both));
                p[n / 2][n % 2 * 2 + r] = both;
                some[r] += back.x + back.y;
            }
        }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            some[r] += __shfl_xor_sync(0xffffffffu, some[r], 1);
            some[r] += __shfl_xor_sync(0xffffffffu, some[r], 2);
            sum[r] += some[r];
        }
    }
#pragma unroll
    for (int r = 0; r < 2; r++) part[r] = { most[r], sum[r] };
}

/* Scores of a chunk, masked, to probabilities. */
template <int D, class Q, class K>
__device__ static inline void mma_scores(const cuda_attn &a, uint32_t p[CHUNK / 16][4], attn_sum part[2], const Q q, const K k,
                                         int c0, const int lo[2], const int hi[2], const float factor[2], int lane) {
    float s[CHUNK / 8][4];
#pragma unroll
    for (int n = 0; n < CHUNK / 8; n++) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
#pragma unroll 1 /* registers are short */
    for (int kk = 0; kk < D / 16; kk++) {
        uint32_t       fa[4];
        const uint32_t at = k.at(lane / 16 * 8 + lane % 8, 2 * kk + lane / 8 % 2);
        load_matrices(fa, q.at(lane % 16, 2 * kk + lane / 16));
#pragma unroll
        for (int n = 0; n < CHUNK / 8; n += 2) {
            uint32_t fb[4];
            load_matrices(fb, at + n * 8 * K::STRIDE); /* the swizzle of row + 8 is that of the row */
            mma16<false>(s[n], fa, fb[0], fb[1]);
            mma16<false>(s[n + 1], fa, fb[2], fb[3]);
        }
    }
    mma_weigh<false>(a, p, part, s, c0, lo, hi, factor, lane);
}

/* The weighted values of a chunk; pairs of positions outside of [lo, hi) count as zero. */
template <int D, bool CUT, class Tile>
__device__ static inline void mma_values(float o[D / 8][4], const uint32_t p[CHUNK / 16][4], const Tile v, int c0, int lo,
                                         int hi, int lane) {
#pragma unroll
    for (int n = 0; n < D / 8; n++) o[n][0] = o[n][1] = o[n][2] = o[n][3] = 0;
#pragma unroll
    for (int kk = 0; kk < CHUNK / 16; kk++) {
#pragma unroll
        for (int n = 0; n < D / 8; n += 2) {
            uint32_t fb[4];
            load_turned(fb, v.at(kk * 16 + lane / 8 % 2 * 8 + lane % 8, n + lane / 16));
            if (CUT) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int pos = c0 + kk * 16 + i % 2 * 8 + lane % 4 * 2;
                    if (pos < lo || pos >= hi) fb[i] &= 0xffff0000u;
                    if (pos + 1 < lo || pos + 1 >= hi) fb[i] &= 0x0000ffffu;
                }
            }
            mma16<false>(o[n], p[kk], fb[0], fb[1]);
            mma16<false>(o[n + 1], p[kk], fb[2], fb[3]);
        }
    }
}

/* The same where values that are not finite lie among the unseen: each of n rows by itself, kept in `room` meanwhile. */
template <int D, class Tile>
__device__ static inline void mma_values_each(float o[D / 8][4], const uint32_t p[CHUNK / 16][4], const Tile v, float *room,
                                              int n, int64_t stride, int c0, const int lo[2], const int hi[2], int lane) {
#pragma unroll 1
    for (int row = 0; row < n; row++) {
        const int l0 = __shfl_sync(0xffffffffu, lo[0], row % 8 * 4), l1 = __shfl_sync(0xffffffffu, lo[1], row % 8 * 4),
                  h0 = __shfl_sync(0xffffffffu, hi[0], row % 8 * 4), h1 = __shfl_sync(0xffffffffu, hi[1], row % 8 * 4);
        mma_values<D, true>(o, p, v, c0, row < 8 ? l0 : l1, row < 8 ? h0 : h1, lane);
#pragma unroll
        for (int i = 0; i < D / 2; i++) {
            const int r = lane / 4 + i / 2 % 2 * 8;
            if (r == row) room[r * stride + i / 4 * 8 + lane % 4 * 2 + i % 2] = o[i / 4][i % 4];
        }
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < D / 2; i++) {
        const int r = lane / 4 + i / 2 % 2 * 8;
        if (r < n) o[i / 4][i % 4] = room[r * stride + i / 4 * 8 + lane % 4 * 2 + i % 2];
    }
}

/* A chunk's part to the sums of the thread's two rows, where they see it. */
template <int D>
__device__ static inline void mma_fold(float all[D / 8][4], attn_sum sums[2], const float o[D / 8][4], const attn_sum part[2],
                                       int c0, const int lo[2], const int hi[2]) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        if (c0 + CHUNK <= lo[r] || c0 >= hi[r]) continue;
        float f_old, f_part;
        sums[r] = attn_fold(sums[r], part[r], &f_old, &f_part);
#pragma unroll
        for (int i = 0; i < D / 4; i++) {
            float &sum = all[i / 2][r * 2 + i % 2];
            sum = sum * f_old + o[i / 2][r * 2 + i % 2] * f_part;
        }
    }
}

#endif
