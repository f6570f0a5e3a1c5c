/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over f16 pages by tensor cores.
 *
 * A block takes up to 16 rows of one sequence and up to 4 query heads that share a key head; a warp has one head, its 16
 * rows are the rows of the tensor-core tiles. Chunks of 128 absolute positions lie in shared memory, keys and values in
 * the swizzle of layout.h. For one row and chunk:
 *
 *     q16   the query in f16 after division by a power of two (layout.h)
 *     S     a chain of k16 steps along the dimension; times that power, times the scale; soft-cap
 *     p     exp(S - largest S of the chunk), rounded to f16; the sum of p is that of the rounded ones, 32 positions at
 *           a time
 *     o     a chain of k16 steps along the positions, from zero
 *
 * Chunks are folded as in attn.cu. A row's place in its tile, the other rows and the split into blocks change nothing:
 * rows of a tile are independent, and a position that a row does not see has p = 0, which takes no part in a sum unless
 * the value is not finite. A chunk whose sums are not finite is computed again row by row, the unseen ones set to zero.
 */
#include "kernels/cuda/attn_tile.cuh"

#define ROWS CUDA_TILE_TOKENS
#define HEADS 4

/* What one thread has of a chunk: rows lane / 4 and lane / 4 + 8 of its warp's head. */
template <int D> struct mma_chunk {
    float    o[D / 8][4];
    uint32_t p[CHUNK / 16][4];
    attn_sum part[2];
};

/* Queries of one warp to f16; lane r < 16 returns the factor that row r's products are multiplied by. */
template <int D>
__device__ static inline float mma_load_q(const cuda_attn &a, uint8_t *to, int t0, int n, int head, int lane) {
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
            *reinterpret_cast<uint2 *>(to + tile_at<D>(0, r, lane / 2) + lane % 2 * 8) =
                make_uint2(pack_halves(q.x * down, q.y * down), pack_halves(q.z * down, q.w * down));
        if (lane == r) factor = __uint_as_float((uint32_t)(127 + e) << 23) * a.scale;
    }
    return factor;
}

/* Where the keys and values of a chunk's positions lie; NULL outside of [lo, hi). */
struct mma_rows {
    const uint8_t *k[CHUNK], *v[CHUNK];
};

__device__ static inline void mma_find(const cuda_attn &a, mma_rows &m, int s, int kv, int c0, int lo, int hi) {
    for (int i = (int)threadIdx.x; i < CHUNK; i += (int)blockDim.x) {
        int        in_page;
        const bool in = c0 + i >= lo && c0 + i < hi;
        uint8_t   *page = in ? page_at(a.pages, a.batch, s, c0 + i, &in_page) : NULL;
        m.k[i] = in ? page_k(a.pages, page, kv, in_page) : NULL;
        m.v[i] = in ? page_v(a.pages, page, kv, in_page) : NULL;
    }
}

/* A chunk's keys or values; rows that are not there become zero. */
template <int D> __device__ static inline void mma_load(uint32_t to, uint8_t *zero, const uint8_t *const *rows) {
    constexpr int PER = D / 8; /* 16-byte pieces of a row */
    for (int i = (int)threadIdx.x; i < CHUNK * PER; i += (int)blockDim.x) {
        const int      row = i / PER, piece = i % PER;
        const uint8_t *from = rows[row];
        if (from) {
            copy16(tile_at<D>(to, row, piece), from + piece * 16);
        } else {
            *reinterpret_cast<uint4 *>(zero + tile_at<D>(0, row, piece)) = make_uint4(0, 0, 0, 0);
        }
    }
    copy_commit();
}

/* Whether any of this thread's sums is not finite. Zero times a value that is not finite is NaN, so no such value lies among
 * those that were added, seen or not, where all are. */
template <int D> __device__ static inline bool mma_tainted(const mma_chunk<D> &m) {
    uint32_t top = 0;
#pragma unroll
    for (int i = 0; i < D / 2; i++) top = max(top, __float_as_uint(m.o[i / 4][i % 4]) & 0x7fffffffu);
    return top >= 0x7f800000u;
}

/* Scores of a chunk, masked, to probabilities. lo, hi, factor: of this thread's two rows. */
template <int D>
__device__ static inline void mma_scores(const cuda_attn &a, mma_chunk<D> &m, uint32_t q, uint32_t k, int c0,
                                         const int lo[2], const int hi[2], const float factor[2], int lane) {
    float s[CHUNK / 8][4];
#pragma unroll
    for (int n = 0; n < CHUNK / 8; n++) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
#pragma unroll 1 /* registers are short */
    for (int kk = 0; kk < D / 16; kk++) {
        uint32_t       fa[4];
        const uint32_t at = tile_at<D>(k, lane / 16 * 8 + lane % 8, 2 * kk + lane / 8 % 2);
        load_matrices(fa, tile_at<D>(q, lane % 16, 2 * kk + lane / 16));
#pragma unroll
        for (int n = 0; n < CHUNK / 8; n += 2) {
            uint32_t fb[4];
            load_matrices(fb, at + n * 8 * (D * 2)); /* the swizzle of row + 8 is that of the row */
            mma16<false>(s[n], fa, fb[0], fb[1]);
            mma16<false>(s[n + 1], fa, fb[2], fb[3]);
        }
    }
    float most[2] = { -INFINITY, -INFINITY };
#pragma unroll
    for (int i = 0; i < CHUNK / 2; i++) {
        const int r = i / 2 % 2, pos = c0 + i / 4 * 8 + lane % 4 * 2 + i % 2;
        float     v = s[i / 4][i % 4] * factor[r];
        if (a.softcap != 0) v = a.softcap * tanhf(v / a.softcap);
        v = pos >= lo[r] && pos < hi[r] ? v : -INFINITY;
        s[i / 4][i % 4] = v;
        most[r] = fmaxf(most[r], v);
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        most[r] = fmaxf(most[r], __shfl_xor_sync(0xffffffffu, most[r], 1));
        most[r] = fmaxf(most[r], __shfl_xor_sync(0xffffffffu, most[r], 2));
    }
    float sum[2] = { 0, 0 };
#pragma unroll
    for (int g = 0; g < CHUNK / 32; g++) {
        float some[2] = { 0, 0 };
#pragma unroll
        for (int n = g * 4; n < g * 4 + 4; n++) {
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const int   pos = c0 + n * 8 + lane % 4 * 2;
                const float p0 = pos >= lo[r] && pos < hi[r] ? expf(s[n][2 * r] - most[r]) : 0.0f,
                            p1 = pos + 1 >= lo[r] && pos + 1 < hi[r] ? expf(s[n][2 * r + 1] - most[r]) : 0.0f;
                const uint32_t both = pack_halves(p0, p1);
                const float2   back = __half22float2(*reinterpret_cast<const __half2 *>(&both));
                m.p[n / 2][n % 2 * 2 + r] = both;
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
    for (int r = 0; r < 2; r++) m.part[r] = { most[r], sum[r] };
}

/* The weighted values of a chunk; pairs of positions outside of [lo, hi) count as zero. */
template <int D, bool CUT>
__device__ static inline void mma_values(float o[D / 8][4], const uint32_t p[CHUNK / 16][4], uint32_t v, int c0, int lo,
                                         int hi, int lane) {
#pragma unroll
    for (int n = 0; n < D / 8; n++) o[n][0] = o[n][1] = o[n][2] = o[n][3] = 0;
#pragma unroll
    for (int kk = 0; kk < CHUNK / 16; kk++) {
#pragma unroll
        for (int n = 0; n < D / 8; n += 2) {
            uint32_t fb[4];
            load_turned(fb, tile_at<D>(v, kk * 16 + lane / 8 % 2 * 8 + lane % 8, n + lane / 16));
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

/* The same where values that are not finite lie among the unseen: each row by itself, kept in `room` meanwhile. */
template <int D>
__device__ static inline void mma_values_each(mma_chunk<D> &m, uint32_t v, float *room, int c0, const int lo[2],
                                              const int hi[2], int lane) {
#pragma unroll 1
    for (int row = 0; row < ROWS; row++) {
        const int l0 = __shfl_sync(0xffffffffu, lo[0], row % 8 * 4), l1 = __shfl_sync(0xffffffffu, lo[1], row % 8 * 4),
                  h0 = __shfl_sync(0xffffffffu, hi[0], row % 8 * 4), h1 = __shfl_sync(0xffffffffu, hi[1], row % 8 * 4);
        mma_values<D, true>(m.o, m.p, v, c0, row < 8 ? l0 : l1, row < 8 ? h0 : h1, lane);
#pragma unroll
        for (int i = 0; i < D / 2; i++) {
            const int r = lane / 4 + i / 2 % 2 * 8;
            if (r == row) room[r * D + i / 4 * 8 + lane % 4 * 2 + i % 2] = m.o[i / 4][i % 4];
        }
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < D / 2; i++)
        m.o[i / 4][i % 4] = room[(lane / 4 + i / 2 % 2 * 8) * D + i / 4 * 8 + lane % 4 * 2 + i % 2];
}

template <int D> static __global__ __launch_bounds__(HEADS * 32) void attn_mma_kernel(const cuda_attn a) {
    extern __shared__ __align__(128) uint8_t smem[];
    __shared__ mma_rows                      rows[2]; /* of this chunk and the next */
    uint8_t                                 *k = smem, *v = k + CHUNK * D * 2, *queries = v + CHUNK * D * 2;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, rep = a.n_head / a.pages.n_kv;
    const int teams = (rep + HEADS - 1) / HEADS, chunk = a.chunks ? (int)blockIdx.x % a.chunks : -1;
    const int at = a.chunks ? (int)blockIdx.x / a.chunks : (int)blockIdx.x, team = at % teams,
              kv = at / teams % a.pages.n_kv;
    const int tile = a.batch.n_tiles - 1 - at / teams / a.pages.n_kv; /* the last ones see most: they begin */
    launch_next();
    const int t0 = a.batch.tiles[tile], s = a.batch.seq_of[t0], n = min(ROWS, a.batch.q_start[s + 1] - t0);
    const int head = kv * rep + min(team * HEADS + warp, rep - 1);
    /* What any row of the tile sees: rows lie in the order of positions. */
    int first_lo, last_hi;
    attn_range(a, t0 + min(lane, n - 1), &first_lo, &last_hi);
    first_lo = __shfl_sync(0xffffffffu, first_lo, 0);
    last_hi = (int)__reduce_max_sync(0xffffffffu, (unsigned)last_hi);
    const int c_first = chunk >= 0 ? chunk : first_lo / CHUNK,
              c_end = chunk >= 0 ? chunk + 1 : (last_hi + CHUNK - 1) / CHUNK;
    if (chunk >= 0 && ((chunk + 1) * CHUNK <= first_lo || chunk * CHUNK >= last_hi)) return;
    mma_find(a, rows[c_first & 1], s, kv, c_first * CHUNK, first_lo, last_hi);
    launch_wait(); /* the batch was there before; queries, keys and values come from the kernels in front */
    __syncthreads();
    mma_load<D>(smem_at(k), k, rows[c_first & 1].k);
    mma_load<D>(smem_at(v), v, rows[c_first & 1].v);

    uint8_t    *mine = queries + warp * ROWS * D * 2;
    const float factors = mma_load_q<D>(a, mine, t0, n, head, lane);
    float       factor[2];
    int         lo[2], hi[2];
    attn_sum    sums[2];
    float       all[D / 8][4];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int row = lane / 4 + r * 8;
        factor[r] = __shfl_sync(0xffffffffu, factors, row);
        attn_range(a, t0 + min(row, n - 1), &lo[r], &hi[r]);
        sums[r] = attn_begin(a, head);
    }
#pragma unroll
    for (int i = 0; i < D / 8; i++) all[i][0] = all[i][1] = all[i][2] = all[i][3] = 0;
    mma_chunk<D> m;
    for (int c = c_first; c < c_end; c++) {
        const int  c0 = c * CHUNK;
        const bool more = c + 1 < c_end;
        if (more) mma_find(a, rows[(c + 1) & 1], s, kv, c0 + CHUNK, first_lo, last_hi);
        copy_wait<1>();
        __syncthreads();
        mma_scores<D>(a, m, smem_at(mine), smem_at(k), c0, lo, hi, factor, lane);
        copy_wait<0>();
        __syncthreads();
        if (more) mma_load<D>(smem_at(k), k, rows[(c + 1) & 1].k);
        mma_values<D, false>(m.o, m.p, smem_at(v), c0, 0, 0, lane);
        if (__syncthreads_or(mma_tainted<D>(m))) { /* everybody is done with the values; k is their room for this */
            copy_wait<0>();
            __syncthreads();
            mma_values_each<D>(m, smem_at(v), reinterpret_cast<float *>(k) + warp * ROWS * D, c0, lo, hi, lane);
            __syncthreads();
            if (more) mma_load<D>(smem_at(k), k, rows[(c + 1) & 1].k);
        }
        if (more) mma_load<D>(smem_at(v), v, rows[(c + 1) & 1].v);
        if (chunk >= 0) break;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            if (c0 + CHUNK <= lo[r] || c0 >= hi[r]) continue;
            float f_old, f_part;
            sums[r] = attn_fold(sums[r], m.part[r], &f_old, &f_part);
#pragma unroll
            for (int i = 0; i < D / 4; i++) {
                float &o = all[i / 2][r * 2 + i % 2];
                o = o * f_old + m.o[i / 2][r * 2 + i % 2] * f_part;
            }
        }
    }
    if (team * HEADS + warp >= rep) return;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int row = lane / 4 + r * 8;
        if (row >= n) continue;
        const int64_t out = (int64_t)(t0 + row) * a.n_head + head;
        float        *part = a.parts + (out * a.chunks + max(chunk, 0)) * (D + 2);
        if (chunk >= 0 && lane % 4 == 0) part[0] = m.part[r].most, part[1] = m.part[r].sum;
#pragma unroll
        for (int i = 0; i < D / 4; i++) {
            const int col = i / 2 * 8 + lane % 4 * 2 + i % 2;
            if (chunk >= 0)
                part[2 + col] = m.o[i / 2][r * 2 + i % 2];
            else
                a.out[out * D + col] = all[i / 2][r * 2 + i % 2] / sums[r].sum;
        }
    }
}

bool attn_mma_can(const cuda_attn *a) {
    return a->pages.k_type == CUDA_PAGE_F16 && a->pages.v_type == CUDA_PAGE_F16 && !a->q_turned && !a->bias &&
           !a->alibi && a->dim_q == a->dim_out && (a->dim_q == 64 || a->dim_q == 96 || a->dim_q == 128);
}

template <int D> static int start(const cuda_attn *a, cuda_stream s, err *e) {
    const int     rep = a->n_head / a->pages.n_kv, warps = rep < HEADS ? rep : HEADS, teams = (rep + HEADS - 1) / HEADS;
    const int64_t blocks = (int64_t)a->batch.n_tiles * a->pages.n_kv * teams * (a->chunks ? a->chunks : 1);
    const cuda_shape shape = { (unsigned)blocks, (unsigned)warps * 32, 1, (size_t)(2 * CHUNK + warps * ROWS) * D * 2,
                               true };
    return cuda_launch(attn_mma_kernel<D>, shape, s, e, *a);
}

int attn_mma(const cuda_attn *a, cuda_stream s, err *e) {
    return a->dim_q == 64 ? start<64>(a, s, e) : a->dim_q == 96 ? start<96>(a, s, e) : start<128>(a, s, e);
}
