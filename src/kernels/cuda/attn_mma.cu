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
#include "kernels/cuda/attn_mma.cuh"

#define HEADS 4

/* What one thread has of a chunk: rows lane / 4 and lane / 4 + 8 of its warp's head. */
template <int D> struct mma_chunk {
    float    o[D / 8][4];
    uint32_t p[CHUNK / 16][4];
    attn_sum part[2];
};

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
    const float factors = mma_load_q<D>(a, mine, mma_tile<D>{ 0 }, t0, n, head, lane);
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
        mma_scores<D>(a, m.p, m.part, mma_tile<D>{ smem_at(mine) }, mma_tile<D>{ smem_at(k) }, c0, lo, hi, factor, lane);
        copy_wait<0>();
        __syncthreads();
        if (more) mma_load<D>(smem_at(k), k, rows[(c + 1) & 1].k);
        mma_values<D, false>(m.o, m.p, mma_tile<D>{ smem_at(v) }, c0, 0, 0, lane);
        if (__syncthreads_or(mma_tainted<D>(m.o))) { /* everybody is done with the values; k is their room for this */
            copy_wait<0>();
            __syncthreads();
            mma_values_each<D>(m.o, m.p, mma_tile<D>{ smem_at(v) }, reinterpret_cast<float *>(k) + warp * ROWS * D, ROWS, D, c0,
                               lo, hi, lane);
            __syncthreads();
            if (more) mma_load<D>(smem_at(k), k, rows[(c + 1) & 1].k);
        }
        if (more) mma_load<D>(smem_at(v), v, rows[(c + 1) & 1].v);
        if (chunk >= 0) break;
        mma_fold<D>(all, sums, m.o, m.part, c0, lo, hi);
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
           !a->alibi && !a->apart_which && a->dim_q == a->dim_out && (a->dim_q == 64 || a->dim_q == 96 || a->dim_q == 128);
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
