/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of prompts over f16 pages on Hopper: the rows of attn_mma.cu by wgmma, bit for bit.
 *
 * A block takes up to 128 rows of one sequence and one head, 64 per multiplying warpgroup. Chunks of 128 positions come
 * through a ring in shared memory, brought by a warpgroup of their own; keys and values lie there in the swizzle of
 * layout.h, 64 columns at a time. What wgmma leaves in a thread's registers lies as mma.sync would have left it, so that
 * everything between the products is the code of attn_mma.cuh, and a chain of k16 steps adds alike.
 *
 * While one group makes probabilities of its scores the other multiplies, and a group's next scores are under way while it
 * folds a chunk. A chunk's values are summed from zero and folded into the row's, which takes a second set of registers.
 *
 * Where a result is not finite all chunks come by once more, for the way of attn_mma.cu.
 */
#include "kernels/cuda/attn_mma.cuh"
#include "kernels/cuda/wgmma_turned.cuh"

#define GROUP 64 /* rows of a multiplying warpgroup */
#define TILE (2 * GROUP)
#define STAGES 2
#define THREADS 384

/* The rows of a block. */
struct many_rows {
    int t0, n, s, head, kv;
    int lo, hi;     /* positions that any row sees */
    int first, end; /* chunks that any of this group's rows sees */

    __device__ inline int first_chunk() const { return lo / CHUNK; }
    __device__ inline int end_chunk() const { return (hi + CHUNK - 1) / CHUNK; }
};

/* Rows of 64 columns each, N of them one behind the other, then those of the next 64 columns. */
template <int N> struct many_tile {
    enum { STRIDE = CUDA_ROW_BYTES };
    uint32_t base;

    __device__ inline uint32_t at(int row, int chunk) const {
        return base + chunk / 8 * (N * CUDA_ROW_BYTES) + row * CUDA_ROW_BYTES + ((chunk ^ row) & 7) * 16;
    }
};

/* Shared memory: queries of both groups, keys and values of each stage. */
template <int D> struct many_room {
    enum { Q_BYTES = GROUP * D * 2, KV_BYTES = CHUNK * D * 2, BYTES = 2 * Q_BYTES + 2 * STAGES * KV_BYTES };
    uint8_t *base;

    __device__ inline uint8_t *q(int group) const { return base + group * Q_BYTES; }
    __device__ inline uint8_t *k(int slot) const { return base + 2 * Q_BYTES + slot * KV_BYTES; }
    __device__ inline uint8_t *v(int slot) const { return base + 2 * Q_BYTES + (STAGES + slot) * KV_BYTES; }
};

/* A place in the ring and the parity of its round; barriers of keys and values, full and empty. */
struct many_place {
    uint32_t bars;
    int      slot;
    uint32_t parity;

    __device__ inline uint32_t full_k() const { return bars + slot * 8; }
    __device__ inline uint32_t full_v() const { return bars + (STAGES + slot) * 8; }
    __device__ inline uint32_t empty_k() const { return bars + (2 * STAGES + slot) * 8; }
    __device__ inline uint32_t empty_v() const { return bars + (3 * STAGES + slot) * 8; }
    __device__ inline void     advance() {
        if (++slot == STAGES) slot = 0, parity ^= 1;
    }
};

#ifdef CUDA_WGMMA

/* Tiles are counted through the sequences; false: there are not so many. */
__device__ static inline bool many_find(const cuda_batch &b, int number, many_rows &m) {
    for (int s = 0; s < b.n_seq; s++) {
        const int from = b.q_start[s], rows = b.q_start[s + 1] - from, n = (rows + TILE - 1) / TILE;
        if (number < n) {
            m.t0 = from + number * TILE, m.n = min(TILE, rows - number * TILE), m.s = s;
            return true;
        }
        number -= n;
    }
    return false;
}

/* What the rows see, by all threads: the first 128 look at one each. */
__device__ static inline void many_look(const cuda_attn &a, many_rows &m) {
    __shared__ int lows[TILE / 32], highs[TILE / 32];
    if (threadIdx.x < TILE) {
        int lo, hi;
        attn_range(a, m.t0 + min((int)threadIdx.x, m.n - 1), &lo, &hi);
        lo = __reduce_min_sync(0xffffffffu, lo);
        hi = __reduce_max_sync(0xffffffffu, hi);
        if (threadIdx.x % 32 == 0) lows[threadIdx.x / 32] = lo, highs[threadIdx.x / 32] = hi;
    }
    __syncthreads();
    const int second = threadIdx.x >= 2 * TILE ? 2 : 0;
    m.first = min(lows[second], lows[second + 1]) / CHUNK;
    m.end = second / 2 * GROUP < m.n ? (max(highs[second], highs[second + 1]) + CHUNK - 1) / CHUNK : 0;
    m.lo = min(min(lows[0], lows[1]), min(lows[2], lows[3]));
    m.hi = max(max(highs[0], highs[1]), max(highs[2], highs[3]));
}

/* A warp's 32 positions of a chunk, lane i having the address of the i-th; rows that are not there become zero. */
template <int D> __device__ static inline void many_copy(uint8_t *to, const uint8_t *mine, int warp, int lane) {
    constexpr int PER = D / 8, AT_ONCE = 32 / PER; /* pieces of 16 bytes per row, rows of one step */
    const int     piece = lane % PER;
#pragma unroll
    for (int i = 0; i < PER; i++) {
        const int            r = i * AT_ONCE + lane / PER;
        const uint8_t *const from =
            reinterpret_cast<const uint8_t *>(__shfl_sync(0xffffffffu, reinterpret_cast<unsigned long long>(mine), r));
        const uint32_t at = many_tile<CHUNK>{ 0 }.at(warp * 32 + r, piece);
        if (from)
            copy16(smem_at(to) + at, from + piece * 16);
        else
            *reinterpret_cast<uint4 *>(to + at) = make_uint4(0, 0, 0, 0);
    }
    copy_commit();
}

/* This thread's copies but the last group are there for wgmma. */
template <int LEFT> __device__ static inline void many_tell(uint32_t full) {
    copy_wait<LEFT>();
    wgmma_wrote();
    barrier_arrive(full);
}

/* The copying warpgroup: all chunks once. Values are told when the next keys are under way. */
template <int D>
__device__ static inline void many_produce(const cuda_attn &a, const many_rows &m, const many_room<D> room, many_place &at) {
    const int     warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, end = m.end_chunk();
    const int64_t to_v = (int64_t)a.pages.v_offset - (int64_t)a.pages.offset; /* rows of both are of one length */
    many_place    before = at;
    for (int c = m.first_chunk(); c < end; c++) {
        const int      pos = c * CHUNK + warp * 32 + lane;
        const uint8_t *row = NULL;
        int            in_page;
        if (pos >= m.lo && pos < m.hi) {
            uint8_t *page = page_at(a.pages, a.batch, m.s, pos, &in_page);
            row = page_k(a.pages, page, m.kv, in_page);
        }
        barrier_wait(at.empty_k(), at.parity ^ 1);
        many_copy<D>(room.k(at.slot), row, warp, lane);
        if (c > m.first_chunk()) many_tell<1>(before.full_v());
        barrier_wait(at.empty_v(), at.parity ^ 1);
        many_copy<D>(room.v(at.slot), row ? row + to_v : NULL, warp, lane);
        many_tell<1>(at.full_k());
        before = at;
        at.advance();
    }
    if (m.first_chunk() < end) many_tell<0>(before.full_v());
}

__device__ static inline void group_sync(int group) { asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory"); }

/* What a thread of a multiplying group keeps of its two rows. */
template <int D> struct many_mine {
    int      lo[2], hi[2];
    float    factor[2], all[D / 8][4];
    attn_sum sums[2];
};

template <int D>
__device__ static inline void many_begin(const cuda_attn &a, const many_rows &m, many_mine<D> &x, int row0, int lane) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        attn_range(a, m.t0 + min(row0 + lane / 4 + r * 8, m.n - 1), &x.lo[r], &x.hi[r]);
        x.sums[r] = attn_begin(a, m.head);
    }
#pragma unroll
    for (int i = 0; i < D / 8; i++) x.all[i][0] = x.all[i][1] = x.all[i][2] = x.all[i][3] = 0;
}

/* Queries times keys: s of 64 rows, under way. */
template <int D> __device__ static inline void many_scores(float *s, uint32_t q, uint32_t k) {
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < D / 16; j++)
        wgmma<CHUNK, false>::run(s, wgmma_at(q + j / 4 * (GROUP * CUDA_ROW_BYTES)) + j % 4 * 2,
                                 wgmma_at(k + j / 4 * (CHUNK * CUDA_ROW_BYTES)) + j % 4 * 2, j > 0);
    wgmma_commit();
}

/* Probabilities times values, from zero. */
template <int D>
__device__ static inline void many_values(float *o, const uint32_t p[CHUNK / 16][4], uint32_t v) {
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < CHUNK / 16; j++)
        wgmma_turned<D>::run(o, p[j], wgmma_turned_at(v, CHUNK * CUDA_ROW_BYTES) + j * (16 * CUDA_ROW_BYTES >> 4), j > 0);
    wgmma_commit();
    wgmma_wait<0>();
}

/* Chunks [c, end), which no row of the group sees, pass by. */
__device__ static inline void many_skip(many_place &at, int c, int end) {
    for (; c < end; c++, at.advance()) {
        barrier_wait(at.full_k(), at.parity);
        barrier_wait(at.full_v(), at.parity);
        if (threadIdx.x % 128 == 0) barrier_arrive(at.empty_k()), barrier_arrive(at.empty_v());
    }
}

/* All chunks once, for the 64 rows of a group. The next scores are under way while a chunk is folded. */
template <int D>
__device__ static inline void many_consume(const cuda_attn &a, const many_rows &m, many_mine<D> &x,
                                           const many_room<D> room, many_place &at, int group) {
    const int  lane = (int)threadIdx.x % 32, end = m.end_chunk(), from = m.first < m.end ? m.first : end;
    const bool first = threadIdx.x % 128 == 0;
    float      s[CHUNK / 8][4];
    many_skip(at, m.first_chunk(), from);
    if (from < end) barrier_wait(at.full_k(), at.parity);
    many_scores<D>(&s[0][0], smem_at(room.q(group)), smem_at(room.k(at.slot)));
    for (int c = from; c < min(m.end, end); c++) {
        const int c0 = c * CHUNK;
        uint32_t  p[CHUNK / 16][4];
        attn_sum  part[2];
        float     o[D / 8][4];
        wgmma_wait<0>();
        if (first) barrier_arrive(at.empty_k());
        const bool whole = a.softcap == 0 && c0 >= max(x.lo[0], x.lo[1]) && c0 + CHUNK <= min(x.hi[0], x.hi[1]);
        if (__all_sync(0xffffffffu, whole))
            mma_weigh<true>(a, p, part, s, c0, x.lo, x.hi, x.factor, lane);
        else
            mma_weigh<false>(a, p, part, s, c0, x.lo, x.hi, x.factor, lane);
        barrier_wait(at.full_v(), at.parity);
        many_values<D>(&o[0][0], p, smem_at(room.v(at.slot)));
        if (first) barrier_arrive(at.empty_v());
        at.advance();
        if (c + 1 < end) barrier_wait(at.full_k(), at.parity); /* also where only the other group sees it: they are read */
        many_scores<D>(&s[0][0], smem_at(room.q(group)), smem_at(room.k(at.slot))); /* behind the last: of nothing, for nobody */
        mma_fold<D>(x.all, x.sums, o, part, c0, x.lo, x.hi);
    }
    wgmma_wait<0>();
    many_skip(at, max(from, m.end), end);
}

template <int D>
__device__ static inline void many_store(const cuda_attn &a, const many_rows &m, const many_mine<D> &x, int row0, int lane) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int row = row0 + lane / 4 + r * 8;
        if (row >= m.n) continue;
        float *out = a.out + ((int64_t)(m.t0 + row) * a.n_head + m.head) * D + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < D / 8; i++)
            *reinterpret_cast<float2 *>(out + i * 8) =
                make_float2(x.all[i][r * 2] / x.sums[r].sum, x.all[i][r * 2 + 1] / x.sums[r].sum);
    }
}

/* The same by mma.sync, where something is not finite: a function of its own, so that it takes no registers from the usual
 * way. */
template <int D>
__device__ static __noinline__ void many_again(const cuda_attn &a, const many_rows m, const many_room<D> room, many_place at,
                                               float factor0, float factor1, int group) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x % 128 / 32, row0 = group * GROUP + warp * ROWS;
    float    *out = a.out + ((int64_t)(m.t0 + row0) * a.n_head + m.head) * D;
    many_mine<D> x;
    x.factor[0] = factor0, x.factor[1] = factor1;
    many_begin<D>(a, m, x, row0, lane);
    for (int c = m.first_chunk(), end = m.end_chunk(); c < end; c++, at.advance()) {
        uint32_t p[CHUNK / 16][4];
        attn_sum part[2];
        float    o[D / 8][4];
        barrier_wait(at.full_k(), at.parity);
        barrier_wait(at.full_v(), at.parity);
        if (c >= m.first && c < m.end && row0 < m.n) {
            const many_tile<CHUNK> v = { smem_at(room.v(at.slot)) };
            mma_scores<D>(a, p, part, many_tile<GROUP>{ smem_at(room.q(group)) + warp * ROWS * CUDA_ROW_BYTES },
                          many_tile<CHUNK>{ smem_at(room.k(at.slot)) }, c * CHUNK, x.lo, x.hi, x.factor, lane);
            mma_values_each<D>(o, p, v, out, min(ROWS, m.n - row0), (int64_t)a.n_head * D, c * CHUNK, x.lo, x.hi, lane);
            mma_fold<D>(x.all, x.sums, o, part, c * CHUNK, x.lo, x.hi);
        }
        group_sync(group);
        if (threadIdx.x % 128 == 0) barrier_arrive(at.empty_k()), barrier_arrive(at.empty_v());
    }
    many_store<D>(a, m, x, row0, lane);
}

/* A multiplying warpgroup: its queries to f16, then all chunks, and once more where something was not finite. */
template <int D>
__device__ static inline void many_group(const cuda_attn &a, const many_rows &m, const many_room<D> room, many_place at,
                                         int group) {
    const int    lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x % 128 / 32, row0 = group * GROUP + warp * ROWS;
    const int    here = min(row0, m.n - 1);
    many_mine<D> x;
    const float  factors = mma_load_q<D>(a, room.q(group) + warp * ROWS * CUDA_ROW_BYTES, many_tile<GROUP>{ 0 }, m.t0 + here,
                                         min(ROWS, m.n - here), m.head, lane);
#pragma unroll
    for (int r = 0; r < 2; r++) x.factor[r] = __shfl_sync(0xffffffffu, factors, lane / 4 + r * 8);
    wgmma_wrote();
    group_sync(group);
    many_begin<D>(a, m, x, row0, lane);
    many_consume<D>(a, m, x, room, at, group);
    if (__syncthreads_or(mma_tainted<D>(x.all)))
        many_again<D>(a, m, room, at, x.factor[0], x.factor[1], group);
    else
        many_store<D>(a, m, x, row0, lane);
}

#endif

template <int D> static __global__ __launch_bounds__(THREADS, 1) void attn_many_kernel(const __grid_constant__ cuda_attn a,
                                                                                     int tiles) {
#ifdef CUDA_WGMMA
    extern __shared__ __align__(1024) uint8_t smem[];
    __shared__ __align__(8) uint64_t bars[4 * STAGES];
    many_rows                        m;
    const many_room<D>               room = { smem + ((1024 - (smem_at(smem) & 1023)) & 1023) };
    many_place                       at = { smem_at(bars), 0, 0 };
    launch_next();
    /* The last tiles see most: they begin. */
    if (!many_find(a.batch, tiles - 1 - (int)blockIdx.x / a.n_head, m)) return;
    m.head = (int)blockIdx.x % a.n_head, m.kv = m.head / (a.n_head / a.pages.n_kv);
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2 * STAGES; i++) {
            barrier_init(at.bars + i * 8, 128);
            barrier_init(at.bars + (2 * STAGES + i) * 8, 2);
        }
    }
    many_look(a, m);
    launch_wait(); /* the batch was there before; queries, keys and values come from the kernels in front */
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        many_produce<D>(a, m, room, at);
        if (__syncthreads_or(false)) many_produce<D>(a, m, room, at);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        many_group<D>(a, m, room, at, (int)threadIdx.x / 128 - 1);
    }
#else
    (void)a, (void)tiles;
#endif
}

/* Sequences of so many rows on average fill the tiles. */
#define LEAST 96

bool attn_many_can(const cuda_attn *a) {
    cudaFuncAttributes f;
    return attn_mma_can(a) && a->dim_q != 96 && !a->chunks && !a->pages.step && a->batch.n_tok >= LEAST * a->batch.n_seq &&
           cudaFuncGetAttributes(&f, attn_many_kernel<64>) == cudaSuccess && f.ptxVersion == 90;
}

template <int D> static int start(const cuda_attn *a, cuda_stream s, err *e) {
    const int        tiles = a->batch.n_tok / TILE + a->batch.n_seq; /* at most */
    const cuda_shape shape = { (unsigned)(tiles * a->n_head), THREADS, 1, many_room<D>::BYTES + 1024, true };
    return cuda_launch(attn_many_kernel<D>, shape, s, e, *a, tiles);
}

int attn_many(const cuda_attn *a, cuda_stream s, err *e) {
    return a->dim_q == 64 ? start<64>(a, s, e) : start<128>(a, s, e);
}
