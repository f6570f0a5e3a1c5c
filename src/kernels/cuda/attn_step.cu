/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention among the rows of a step by tensor cores: towers and encoders, whose rows see their whole input, their span of
 * it, or so far to both sides. Keys and values lie in f16, row by row, for heads of 64 to 128 (smaller ones stay in f32,
 * attn.cu).
 *
 * A block takes up to 64 rows of one sequence and one head, 16 per warp; keys and values pass by in pieces of 64 absolute
 * positions, two of each in shared memory. For one row, piece by piece: scores as in attn_mma.cu; the largest score so far;
 * what is there is brought to it; p = 2^(S - largest) in f16, S being counted in powers of two; the weighted values are added to what is there by k16 steps.
 * A piece that a row does not see changes nothing, so neither a row's place nor the rows beside it matter.
 */
#include "kernels/cuda/attn_tile.cuh"

#define WARPS 4
#define LOG2E 1.44269504f
#define ROWS CUDA_TILE_TOKENS
#define PIECE 64

/* Rows of 80 halves are 10 chunks of 16 bytes. */
template <> __device__ inline uint32_t tile_at<80>(uint32_t base, int row, int chunk) {
    return base + row * 160 + (chunk ^ (row >> 2 & 1)) * 16;
}

/* Queries of one warp to f16; lane r < 16 returns the factor of row r. Columns behind the head's are zero. */
template <int D>
__device__ static inline float step_load_q(const cuda_attn &a, uint8_t *to, int t0, int n, int head, int lane) {
    float factor = 0;
    for (int r = 0; r < ROWS; r++) {
        const float *q = a.q + ((int64_t)(t0 + min(r, n - 1)) * a.n_head + head) * a.dim_q;
        uint32_t     top = 0;
        for (int i = lane; i < a.dim_q; i += 32) top = max(top, __float_as_uint(q[i]) & 0x7fffffffu);
        top = __reduce_max_sync(0xffffffffu, top);
        const int   e = cuda_row_exponent(top);
        const float down = __uint_as_float((uint32_t)(127 - e) << 23);
        for (int i = lane * 2; i < D; i += 64)
            *reinterpret_cast<uint32_t *>(to + tile_at<D>(0, r, i / 8) + i % 8 * 2) =
                i < a.dim_q ? pack_halves(q[i] * down, q[i + 1] * down) : 0u;
        if (lane == r) factor = __uint_as_float((uint32_t)(127 + e) << 23) * (a.scale * LOG2E);
    }
    return factor;
}

/* Positions [c0, c0 + PIECE) of a head; those outside of [lo, hi) become zero. */
template <int D>
__device__ static inline void step_load(uint8_t *to, const uint8_t *from, size_t row_bytes, int c0, int lo, int hi,
                                        int pieces) {
    for (int i = (int)threadIdx.x; i < PIECE * (D / 8); i += WARPS * 32) {
        const int row = i / (D / 8), piece = i % (D / 8), at = c0 + row;
        if (at >= lo && at < hi && piece < pieces)
            copy16(tile_at<D>(smem_at(to), row, piece), from + (size_t)at * row_bytes + piece * 16);
        else
            *reinterpret_cast<uint4 *>(to + tile_at<D>(0, row, piece)) = make_uint4(0, 0, 0, 0);
    }
}

/* 2^x; 0 for -INFINITY. */
__device__ static inline float power(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* One piece for a warp's rows: sums and o are brought to the new largest score, p is made. */
template <int D>
__device__ static inline void step_scores(const cuda_attn &a, uint32_t p[PIECE / 16][4], float o[D / 8][4],
                                          attn_sum sums[2], uint32_t q, uint32_t k, int c0,
                                          const int lo[2], const int hi[2], const float factor[2], int lane) {
    float s[PIECE / 8][4];
#pragma unroll
    for (int n = 0; n < PIECE / 8; n++) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
#pragma unroll
    for (int kk = 0; kk < D / 16; kk++) {
        uint32_t fa[4];
        load_matrices(fa, tile_at<D>(q, lane % 16, 2 * kk + lane / 16));
#pragma unroll
        for (int n = 0; n < PIECE / 8; n += 2) {
            uint32_t fb[4];
            load_matrices(fb, tile_at<D>(k, n * 8 + lane / 16 * 8 + lane % 8, 2 * kk + lane / 8 % 2));
            mma16<false>(s[n], fa, fb[0], fb[1]);
            mma16<false>(s[n + 1], fa, fb[2], fb[3]);
        }
    }
    /* In the middle of what all of the warp's rows see nothing is masked. */
    const bool whole =
        __all_sync(0xffffffffu, c0 >= max(lo[0], lo[1]) && c0 + PIECE <= min(hi[0], hi[1])) && a.softcap == 0;
    float most[2] = { -INFINITY, -INFINITY };
    if (whole) {
#pragma unroll
        for (int i = 0; i < PIECE / 2; i++) {
            s[i / 4][i % 4] *= factor[i / 2 % 2];
            most[i / 2 % 2] = fmaxf(most[i / 2 % 2], s[i / 4][i % 4]);
        }
    } else {
#pragma unroll
        for (int i = 0; i < PIECE / 2; i++) {
            const int r = i / 2 % 2, pos = c0 + i / 4 * 8 + lane % 4 * 2 + i % 2;
            float     v = s[i / 4][i % 4] * factor[r];
            if (a.softcap != 0) v = a.softcap * LOG2E * tanhf(v / (a.softcap * LOG2E));
            s[i / 4][i % 4] = pos >= lo[r] && pos < hi[r] ? v : -INFINITY;
            most[r] = fmaxf(most[r], s[i / 4][i % 4]);
        }
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        most[r] = fmaxf(most[r], __shfl_xor_sync(0xffffffffu, most[r], 1));
        most[r] = fmaxf(most[r], __shfl_xor_sync(0xffffffffu, most[r], 2));
        const float now = fmaxf(sums[r].most, most[r]), base = now == -INFINITY ? 0.0f : now;
        const float old = power(sums[r].most - base);
        float       sum = 0;
#pragma unroll
        for (int n = 0; n < PIECE / 8; n++) {
            const uint32_t both = pack_halves(power(s[n][2 * r] - base), power(s[n][2 * r + 1] - base));
            const float2   back = __half22float2(*reinterpret_cast<const __half2 *>(&both));
            p[n / 2][n % 2 * 2 + r] = both;
            sum += back.x + back.y;
        }
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (c0 + PIECE <= lo[r] || c0 >= hi[r]) continue; /* not seen: all p are zero */
        sums[r] = { now, sums[r].sum * old + sum };
#pragma unroll
        for (int i = 0; i < D / 8; i++) o[i][2 * r] *= old, o[i][2 * r + 1] *= old;
    }
}

template <int D>
__device__ static inline void step_values(float o[D / 8][4], const uint32_t p[PIECE / 16][4], uint32_t v, int lane) {
#pragma unroll
    for (int kk = 0; kk < PIECE / 16; kk++) {
#pragma unroll
        for (int n = 0; n < D / 8; n += 2) {
            uint32_t fb[4];
            load_turned(fb, tile_at<D>(v, kk * 16 + lane / 8 % 2 * 8 + lane % 8, n + lane / 16));
            mma16<false>(o[n], p[kk], fb[0], fb[1]);
            mma16<false>(o[n + 1], p[kk], fb[2], fb[3]);
        }
    }
}

template <int D> static __global__ __launch_bounds__(WARPS * 32, D <= 80 ? 4 : 3) void attn_step_kernel(const cuda_attn a) {
    extern __shared__ __align__(128) uint8_t smem[];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int head = (int)blockIdx.x % a.n_head, t0 = a.batch.tiles[blockIdx.x / a.n_head], s = a.batch.seq_of[t0];
    launch_begin();
    const int from = a.batch.q_start[s], end = a.batch.q_start[s + 1];
    if ((t0 - from) / ROWS % WARPS != 0) return; /* a block in front has these rows */
    uint8_t      *k = smem, *v = k + 2 * PIECE * D * 2, *queries = v + 2 * PIECE * D * 2;
    const int     mine = min(t0 + warp * ROWS, end - 1), n = min(ROWS, end - mine), kv = head / (a.n_head / a.pages.n_kv);
    const uint8_t *keys = page_k(a.pages, a.pages.base, kv, from), *values = page_v(a.pages, a.pages.base, kv, from);
    /* What any row of the block sees: rows lie in the order of positions. */
    int       first, last, unused;
    const int last_row = min(t0 + WARPS * ROWS, end) - 1;
    attn_range(a, t0, &first, &unused);
    attn_range(a, last_row, &unused, &last);
    const int c_first = first / PIECE, c_end = (last + PIECE - 1) / PIECE, pieces = a.dim_q / 8;
    step_load<D>(k, keys, a.pages.k_row, c_first * PIECE, first, last, pieces);
    step_load<D>(v, values, a.pages.v_row, c_first * PIECE, first, last, pieces);
    copy_commit();
    uint8_t    *q_tile = queries + warp * ROWS * D * 2;
    const float factors = step_load_q<D>(a, q_tile, mine, n, head, lane);
    float       factor[2], o[D / 8][4];
    uint32_t    p[PIECE / 16][4];
    int         lo[2], hi[2];
    attn_sum    sums[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int row = lane / 4 + r * 8;
        factor[r] = __shfl_sync(0xffffffffu, factors, row);
        attn_range(a, mine + min(row, n - 1), &lo[r], &hi[r]);
        sums[r] = attn_begin(a, head);
        sums[r].most *= LOG2E;
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < D / 8; i++) o[i][0] = o[i][1] = o[i][2] = o[i][3] = 0;
    for (int c = c_first; c < c_end; c++) {
        const int at = (c - c_first) & 1, next = at ^ 1;
        if (c + 1 < c_end) {
            step_load<D>(k + next * PIECE * D * 2, keys, a.pages.k_row, (c + 1) * PIECE, first, last, pieces);
            step_load<D>(v + next * PIECE * D * 2, values, a.pages.v_row, (c + 1) * PIECE, first, last, pieces);
        }
        copy_commit();
        copy_wait<1>();
        __syncthreads();
        step_scores<D>(a, p, o, sums, smem_at(q_tile), smem_at(k) + at * PIECE * D * 2, c * PIECE, lo, hi, factor, lane);
        step_values<D>(o, p, smem_at(v) + at * PIECE * D * 2, lane);
        __syncthreads(); /* the place is filled anew */
    }
    if (t0 + warp * ROWS >= end) return;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int row = lane / 4 + r * 8;
        if (row >= n) continue;
        float *out = a.out + ((int64_t)(mine + row) * a.n_head + head) * a.dim_out;
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
            const int col = i * 8 + lane % 4 * 2;
            if (col < a.dim_out) out[col] = o[i][2 * r] / sums[r].sum, out[col + 1] = o[i][2 * r + 1] / sums[r].sum;
        }
    }
}

bool cuda_attn_step_can(int dim_k, int dim_v) {
    return dim_k == dim_v && dim_k % 8 == 0 && dim_k >= 64 && dim_k <= 128;
}

template <int D> static int start(const cuda_attn *a, cuda_stream s, err *e) {
    const int64_t    blocks = (int64_t)a->batch.n_tiles * a->n_head;
    const cuda_shape shape = { (unsigned)blocks, WARPS * 32, 1, (size_t)(4 * PIECE + WARPS * ROWS) * D * 2, true };
    return cuda_launch(attn_step_kernel<D>, shape, s, e, *a);
}

int attn_step(const cuda_attn *a, cuda_stream s, err *e) {
    return a->dim_q <= 64   ? start<64>(a, s, e)
           : a->dim_q <= 80 ? start<80>(a, s, e)
           : a->dim_q <= 96 ? start<96>(a, s, e)
                            : start<128>(a, s, e);
}
