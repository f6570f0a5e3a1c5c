/* SPDX-License-Identifier: Apache-2.0 */
/* One chunk of positions of one row and key head by four warps (attn_one.cu). */
#ifndef KERNELS_CUDA_ATTN_ONE_CUH
#define KERNELS_CUDA_ATTN_ONE_CUH

#include "kernels/cuda/attn_tile.cuh"
#include "kernels/cuda/reduce.cuh"

#define ONE_WARPS 4
#define ONE_THREADS (ONE_WARPS * 32)
#define GROUP (CHUNK / ONE_WARPS) /* positions of a warp */
#define FOLDED 8                  /* chunks that the last block folds itself */

static_assert(GROUP == 32, "probabilities are summed in groups of 32 positions");

/* What the warps tell each other of a chunk. */
struct one_room {
    float most[ONE_WARPS][16], sum[ONE_WARPS][16];
    float factor[16];
    int   last;
};

/* A lane's pairs of a head, 2 lane .. + 1 of every 64 elements, turned by position as rope.cu does it. */
template <int D> __device__ static inline void one_turn(const cuda_attn &a, float2 v[(D + 63) / 64], int t, int lane) {
    const float *c = a.table + (int64_t)t * 2 * a.turned, *s = c + a.turned;
    if (a.interleaved) {
#pragma unroll
        for (int i = 0; i < (D + 63) / 64; i++) {
            const int f = i * 32 + lane;
            if (f >= a.turned) continue;
            const float va = v[i].x, vb = v[i].y;
            v[i].x = va * c[f] - vb * s[f];
            v[i].y = va * s[f] + vb * c[f];
        }
    } else if (D == 64) { /* elements f and f + 32, half a warp apart */
        const int    f = lane % 16 * 2;
        const float2 mine = v[0], other = { __shfl_xor_sync(0xffffffffu, mine.x, 16),
                                            __shfl_xor_sync(0xffffffffu, mine.y, 16) };
        if (lane < 16) {
            v[0].x = mine.x * c[f] - other.x * s[f];
            v[0].y = mine.y * c[f + 1] - other.y * s[f + 1];
        } else {
            v[0].x = other.x * s[f] + mine.x * c[f];
            v[0].y = other.y * s[f + 1] + mine.y * c[f + 1];
        }
    } else if (D == 128) { /* element f and f + 64 */
        const int    f = lane * 2;
        const float2 va = v[0], vb = v[D / 128];
        v[0].x = va.x * c[f] - vb.x * s[f];
        v[0].y = va.y * c[f + 1] - vb.y * s[f + 1];
        v[D / 128].x = va.x * s[f] + vb.x * c[f];
        v[D / 128].y = va.y * s[f + 1] + vb.y * c[f + 1];
    }
}

/* A lane's pairs of a head, normed as norm.cu does it: there lane l adds elements l, l + 32, ... */
template <int D>
__device__ static inline void one_norm(const cuda_attn &a, float2 v[(D + 63) / 64], const float *from, const float *w,
                                       int lane) {
    float part = 0;
#pragma unroll
    for (int i = 0; i < D; i += 32) part = fmaf(from[i + lane], from[i + lane], part);
    part = warp_sum(part);
    const float scale = 1.0f / sqrtf(part / (float)D + a.norm_eps);
#pragma unroll
    for (int i = 0; i < (D + 63) / 64; i++) {
        const float2 by = *reinterpret_cast<const float2 *>(w + i * 64 + lane * 2);
        v[i].x = v[i].x * scale * by.x;
        v[i].y = v[i].y * scale * by.y;
    }
}

/* The pages of one sequence, by their numbers in its table. */
struct one_pages {
    const int32_t *table;

    __device__ inline uint8_t *at(const cuda_attn &a, int p, int *in_page) const {
        *in_page = p % a.batch.page_tokens;
        return a.pages.base + (size_t)table[p / a.batch.page_tokens] * a.pages.page_bytes;
    }
};

__device__ static inline one_pages one_pages_of(const cuda_attn &a, int s) {
    const int32_t *block = a.batch.block;
    return { block + block[1 + a.pages.group] + s * block[0] };
}

/* The row's own key or value, by one warp: turned, to its page and to the tile. */
template <int D, bool KEYS>
__device__ static inline void one_store(const cuda_attn &a, const one_pages &pages, uint8_t *tile, int t, int kv,
                                        int pos, int lane) {
    const float *from = (KEYS ? a.k : a.v) + ((int64_t)t * a.pages.n_kv + kv) * D;
    int          in_page;
    uint8_t     *page = pages.at(a, pos, &in_page);
    uint8_t     *to = KEYS ? page_k(a.pages, page, kv, in_page) : page_v(a.pages, page, kv, in_page);
    float2       v[(D + 63) / 64];
#pragma unroll
    for (int i = 0; i < (D + 63) / 64; i++) v[i] = *reinterpret_cast<const float2 *>(from + i * 64 + lane * 2);
    if (KEYS && a.k_norm) one_norm<D>(a, v, from, a.k_norm, lane);
    if (KEYS) one_turn<D>(a, v, t, lane);
#pragma unroll
    for (int i = 0; i < (D + 63) / 64; i++) {
        const int      at = i * 64 + lane * 2;
        const uint32_t both = pack_halves(v[i].x, v[i].y);
        *reinterpret_cast<uint32_t *>(to + at * 2) = both;
        *reinterpret_cast<uint32_t *>(tile + tile_at<D>(0, pos % CHUNK, at / 8) + at % 8 * 2) = both;
    }
}

/* A lane's pairs of the query of one head. */
template <int D>
__device__ static inline void one_fetch_q(const cuda_attn &a, float2 v[(D + 63) / 64], int t, int head, int lane) {
    const float *q = a.q + ((int64_t)t * a.n_head + head) * D;
#pragma unroll
    for (int i = 0; i < (D + 63) / 64; i++) {
        const int at = i * 64 + lane * 2;
        v[i] = at < D ? *reinterpret_cast<const float2 *>(q + at) : make_float2(0, 0);
    }
}

/* Queries of the heads from `head` on to f16, a head per warp at a time; v: the first of this warp. */
template <int D>
__device__ static inline void one_load_q(const cuda_attn &a, one_room &m, uint8_t *to, int t, int head, int rep,
                                         float2 v[(D + 63) / 64]) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % ONE_WARPS;
    for (int r = warp; r < rep; r += ONE_WARPS) {
        uint32_t top = 0;
        if (r != warp) one_fetch_q<D>(a, v, t, head + r, lane);
        if (a.q_norm) one_norm<D>(a, v, a.q + ((int64_t)t * a.n_head + head + r) * D, a.q_norm, lane);
        if (a.table) one_turn<D>(a, v, t, lane);
#pragma unroll
        for (int i = 0; i < (D + 63) / 64; i++)
            top = max(top, max(__float_as_uint(v[i].x) & 0x7fffffffu, __float_as_uint(v[i].y) & 0x7fffffffu));
        top = __reduce_max_sync(0xffffffffu, top);
        const int   e = cuda_row_exponent(top);
        const float down = __uint_as_float((uint32_t)(127 - e) << 23);
#pragma unroll
        for (int i = 0; i < (D + 63) / 64; i++) {
            const int at = i * 64 + lane * 2;
            if (at < D)
                *reinterpret_cast<uint32_t *>(to + tile_at<D>(0, r, at / 8) + at % 8 * 2) =
                    pack_halves(v[i].x * down, v[i].y * down);
        }
        if (lane == 0) m.factor[r] = __uint_as_float((uint32_t)(127 + e) << 23) * a.scale;
    }
}

/* This warp's keys of a chunk, or its columns of the values; rows outside of [lo, hi) become zero. `own`: a position that
 * one_store brings. Each lane looks up the page of one position, for all that copy its pieces. Loops stay loops: a block runs
 * once through its instructions, which other kernels have driven from the cache, and waits for each line of them. */
template <int D, bool KEYS>
__device__ static inline void one_load(const cuda_attn &a, const one_pages &pages, uint8_t *to, int kv, int c0, int lo,
                                       int hi, int own, int warp, int lane) {
    constexpr int PIECES = KEYS ? D / 8 : D / 8 / ONE_WARPS, ROWS = 32 / PIECES; /* of 16 bytes; rows at a time */
    const int     first = KEYS ? warp * GROUP : 0, n = KEYS ? GROUP : CHUNK;
    const int     piece = (KEYS ? 0 : warp * PIECES) + lane % PIECES;
#pragma unroll 1
    for (int r0 = first; r0 < first + n; r0 += 32) {
        const int          p = c0 + r0 + lane;
        unsigned long long mine = p == own; /* 0: zeros, 1: nothing */
        if (p != own && p >= lo && p < hi) {
            int      in_page;
            uint8_t *page = pages.at(a, p, &in_page);
            mine = (unsigned long long)(KEYS ? page_k(a.pages, page, kv, in_page) : page_v(a.pages, page, kv, in_page));
        }
#pragma unroll 4
        for (int i = 0; i < PIECES; i++) {
            const int                r = i * ROWS + lane / PIECES;
            const unsigned long long from = __shfl_sync(0xffffffffu, mine, r);
            if (from > 1)
                copy16(tile_at<D>(smem_at(to), r0 + r, piece), (const uint8_t *)from + piece * 16);
            else if (from == 0)
                *reinterpret_cast<uint4 *>(to + tile_at<D>(0, r0 + r, piece)) = make_uint4(0, 0, 0, 0);
        }
    }
    copy_commit();
}

/* The largest scores of all warps. */
__device__ static inline void one_most(const one_room &m, float most[2], int lane) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        most[r] = m.most[0][lane / 4 + r * 8];
#pragma unroll
        for (int w = 1; w < ONE_WARPS; w++) most[r] = fmaxf(most[r], m.most[w][lane / 4 + r * 8]);
    }
}

/* A function of its own: few models have it, and inlined it would stand sixteen times between the others' instructions. */
__device__ static __noinline__ float one_cap(float v, float cap) { return cap * tanhf(v / cap); }

/* Scores of this warp's positions; most: of this thread's two heads among them. */
template <int D>
__device__ static inline void one_scores(const cuda_attn &a, float s[GROUP / 8][4], float most[2], uint32_t q,
                                         uint32_t k, int p0, int lo, int hi, const float factor[2], int lane) {
#pragma unroll
    for (int n = 0; n < GROUP / 8; n++) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
#pragma unroll
    for (int kk = 0; kk < D / 16; kk++) {
        uint32_t fa[4];
        load_matrices(fa, tile_at<D>(q, lane % 16, 2 * kk + lane / 16));
#pragma unroll
        for (int n = 0; n < GROUP / 8; n += 2) {
            uint32_t fb[4];
            load_matrices(fb, tile_at<D>(k, n * 8 + lane / 16 * 8 + lane % 8, 2 * kk + lane / 8 % 2));
            mma16<false>(s[n], fa, fb[0], fb[1]);
            mma16<false>(s[n + 1], fa, fb[2], fb[3]);
        }
    }
    most[0] = most[1] = -INFINITY;
#pragma unroll
    for (int i = 0; i < GROUP / 2; i++) {
        const int r = i / 2 % 2, pos = p0 + i / 4 * 8 + lane % 4 * 2 + i % 2;
        float     v = s[i / 4][i % 4] * factor[r];
        if (a.softcap != 0) v = one_cap(v, a.softcap);
        v = pos >= lo && pos < hi ? v : -INFINITY;
        s[i / 4][i % 4] = v;
        most[r] = fmaxf(most[r], v);
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        most[r] = fmaxf(most[r], __shfl_xor_sync(0xffffffffu, most[r], 1));
        most[r] = fmaxf(most[r], __shfl_xor_sync(0xffffffffu, most[r], 2));
    }
}

/* Probabilities of this warp's positions to their tile, and their sum. */
__device__ static inline void one_chances(const float s[GROUP / 8][4], const float most[2], float sum[2], uint8_t *p,
                                          int warp, int p0, int lo, int hi, int lane) {
    sum[0] = sum[1] = 0;
#pragma unroll
    for (int n = 0; n < GROUP / 8; n++) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int   pos = p0 + n * 8 + lane % 4 * 2;
            const float p0f = pos >= lo && pos < hi ? expf(s[n][2 * r] - most[r]) : 0.0f,
                        p1f = pos + 1 >= lo && pos + 1 < hi ? expf(s[n][2 * r + 1] - most[r]) : 0.0f;
            const uint32_t both = pack_halves(p0f, p1f);
            const float2   back = __half22float2(*reinterpret_cast<const __half2 *>(&both));
            *reinterpret_cast<uint32_t *>(p + tile_at<CHUNK>(0, lane / 4 + r * 8, warp * (GROUP / 8) + n) +
                                          lane % 4 * 4) = both;
            sum[r] += back.x + back.y;
        }
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 1);
        sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 2);
    }
}

/* The weighted values of this warp's columns. */
template <int D>
__device__ static inline void one_values(float o[D / 8 / ONE_WARPS][4], uint32_t p, uint32_t v, int warp, int lane) {
    constexpr int N = D / 8 / ONE_WARPS;
#pragma unroll
    for (int n = 0; n < N; n++) o[n][0] = o[n][1] = o[n][2] = o[n][3] = 0;
#pragma unroll
    for (int kk = 0; kk < CHUNK / 16; kk++) {
        uint32_t fa[4];
        load_matrices(fa, tile_at<CHUNK>(p, lane % 16, 2 * kk + lane / 16));
#pragma unroll
        for (int n = 0; n < N; n += 2) { /* where N is odd, the last load reaches into the neighbour's columns */
            uint32_t  fb[4];
            const int piece = min(warp * N + n + lane / 16, D / 8 - 1);
            load_turned(fb, tile_at<D>(v, kk * 16 + lane / 8 % 2 * 8 + lane % 8, piece));
            mma16<false>(o[n], fa, fb[0], fb[1]);
            if (n + 1 < N) mma16<false>(o[n + 1], fa, fb[2], fb[3]);
        }
    }
}

/* A chunk's part of the result, as it is folded later. */
template <int D>
__device__ static inline void one_write(const cuda_attn &a, const one_room &m, int t, int kv, int chunk,
                                        const float most[2], const float o[D / 8 / ONE_WARPS][4], int warp, int lane) {
    const int rep = a.n_head / a.pages.n_kv;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int row = lane / 4 + r * 8;
        if (row >= rep) continue;
        float *part = a.parts + (((int64_t)t * a.n_head + kv * rep + row) * a.chunks + chunk) * (D + 2);
        if (warp == 0 && lane % 4 == 0) {
            float all = 0;
#pragma unroll
            for (int w = 0; w < ONE_WARPS; w++) all += m.sum[w][row];
            part[0] = most[r], part[1] = all;
        }
#pragma unroll
        for (int i = 0; i < D / 4 / ONE_WARPS; i++)
            part[2 + warp * (D / ONE_WARPS) + i / 2 * 8 + lane % 4 * 2 + i % 2] = o[i / 2][r * 2 + i % 2];
    }
}

/* The parts of this block's heads, in order; several are on their way at a time. */
template <int D> __device__ static inline void one_fold(const cuda_attn &a, int t, int head, int rep, int first, int end) {
    for (int i = (int)threadIdx.x; i < rep * D; i += ONE_THREADS) {
        const int     h = head + i / D, col = i % D;
        const int64_t row = (int64_t)t * a.n_head + h;
        const float  *parts = a.parts + row * a.chunks * (D + 2);
        attn_sum      sums = attn_begin(a, h);
        float         all = 0, most[FOLDED], sum[FOLDED], o[FOLDED];
#pragma unroll
        for (int k = 0; k < FOLDED; k++) {
            const float *part = parts + (int64_t)min(first + k, end - 1) * (D + 2);
            most[k] = __ldcg(part), sum[k] = __ldcg(part + 1), o[k] = __ldcg(part + 2 + col);
        }
#pragma unroll
        for (int k = 0; k < FOLDED; k++) {
            if (first + k >= end) continue;
            float f_old, f_part;
            sums = attn_fold(sums, { most[k], sum[k] }, &f_old, &f_part);
            all = all * f_old + o[k] * f_part;
        }
        a.out[row * D + col] = all / sums.sum;
    }
}

/* What one_fold makes of the only part, without a way through memory. */
template <int D>
__device__ static inline void one_alone(const cuda_attn &a, const one_room &m, const float o[D / 8 / ONE_WARPS][4],
                                        const float most[2], int t, int head, int rep) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int row = lane / 4 + r * 8;
        if (row >= rep) continue;
        float *out = a.out + ((int64_t)t * a.n_head + head + row) * D + warp * (D / ONE_WARPS) + lane % 4 * 2;
        float  sum = 0, f_old, f_part;
#pragma unroll
        for (int w = 0; w < ONE_WARPS; w++) sum += m.sum[w][row];
        const attn_sum all = attn_fold(attn_begin(a, head + row), { most[r], sum }, &f_old, &f_part);
#pragma unroll
        for (int i = 0; i < D / 4 / ONE_WARPS; i++)
            out[i / 2 * 8 + i % 2] = (0.0f * f_old + o[i / 2][r * 2 + i % 2] * f_part) / all.sum;
    }
}

/* The threads that work on an item meet. */
__device__ static inline void one_sync() { asm volatile("bar.sync 1, 128;" ::: "memory"); }

/* Bytes of shared memory of an item: keys, values, queries, probabilities. */
template <int D> constexpr size_t one_bytes() { return (size_t)(2 * CHUNK + 16) * D * 2 + 16 * CHUNK * 2; }

/* Chunk number % chunks of row and key head number / chunks, by the first ONE_THREADS threads of a block. wait() is called
 * before queries, keys and values are read that were made in front; the batch and the pages of earlier steps were there
 * before. */
template <int D, class Wait>
__device__ static inline void one_item(const cuda_attn &a, uint8_t *smem, one_room &m, int number, Wait wait) {
    uint8_t  *k = smem, *v = k + CHUNK * D * 2, *q = v + CHUNK * D * 2, *p = q + 16 * D * 2;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, rep = a.n_head / a.pages.n_kv;
    const int chunk = number % a.chunks, at = number / a.chunks, kv = at % a.pages.n_kv,
              t = at / a.pages.n_kv, head = kv * rep, c0 = chunk * CHUNK;
    /* Everything that does not depend on another number from memory is asked for at once. */
    const int32_t  *block = a.batch.block;
    const int       s = a.batch.seq_of[t], stride = block[0], first_table = block[1 + a.pages.group];
    const one_pages pages = { block + first_table + s * stride };
    int             lo, hi;
    attn_range(a, t, &lo, &hi);
    const int first = lo / CHUNK, end = (hi + CHUNK - 1) / CHUNK;
    if (chunk < first || chunk >= end) return;
    const int own = a.table ? hi - 1 : -1;
    if (own < 0) wait(); /* another kernel stored the row's own position */
    one_load<D, true>(a, pages, k, kv, c0, lo, hi, own, warp, lane);
    one_load<D, false>(a, pages, v, kv, c0, lo, hi, own, warp, lane);
    if (own >= 0) wait();
    float2 first_q[(D + 63) / 64]; /* on its way together with the row's own key and value */
    if (warp < rep) one_fetch_q<D>(a, first_q, t, head + warp, lane);
    if (own / CHUNK == chunk && own >= 0) {
        if (warp == ONE_WARPS - 1) one_store<D, true>(a, pages, k, t, kv, own, lane);
        if (warp == ONE_WARPS - 2) one_store<D, false>(a, pages, v, t, kv, own, lane);
    }
    one_load_q<D>(a, m, q, t, head, rep, first_q);
    copy_wait<1>();
    one_sync(); /* queries; zeros among the values of other warps are not looked at before the next meeting */
    const float factor[2] = { m.factor[lane / 4], m.factor[lane / 4 + 8] };
    float       sc[GROUP / 8][4], most[2], sum[2];
    one_scores<D>(a, sc, most, smem_at(q), smem_at(k) + warp * GROUP * D * 2, c0 + warp * GROUP, lo, hi, factor, lane);
    if (lane % 4 == 0) m.most[warp][lane / 4] = most[0], m.most[warp][lane / 4 + 8] = most[1];
    one_sync();
    one_most(m, most, lane);
    one_chances(sc, most, sum, p, warp, c0 + warp * GROUP, lo, hi, lane);
    if (lane % 4 == 0) m.sum[warp][lane / 4] = sum[0], m.sum[warp][lane / 4 + 8] = sum[1];
    copy_wait<0>();
    one_sync();
    float o[D / 8 / ONE_WARPS][4];
    one_values<D>(o, smem_at(p), smem_at(v), warp, lane);
    if (end - first == 1 && a.chunks <= FOLDED) {
        one_alone<D>(a, m, o, most, t, head, rep);
        return;
    }
    one_write<D>(a, m, t, kv, chunk, most, o, warp, lane);
    if (a.chunks > FOLDED) return; /* a kernel behind folds the parts of all rows, also where a row has one */
    __threadfence();
    one_sync();
    if (threadIdx.x == 0) m.last = atomicInc(&a.counts[at], (unsigned)(end - first - 1)) == (unsigned)(end - first - 1);
    one_sync();
    if (!m.last) return;
    __threadfence();
    one_fold<D>(a, t, head, rep, first, end);
}

#endif
