/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of single rows over f16 pages by tensor cores: decode steps. The same values as attn_mma.cu, bit for bit,
 * with the work cut for speed of one row:
 *
 * A block takes one row of the batch, one key head, and one chunk of positions at a time. The query heads that share the
 * key head are the 16 rows of the tensor-core tiles. Each of four warps has the scores of 32 positions (the groups in
 * which probabilities are summed), then a quarter of the columns of the values over all positions; it loads its own keys
 * and its own columns of the values, so that warps meet only where probabilities are exchanged.
 *
 * Chunks are left as parts. The last block of a row and key head to finish folds them in order, where there are few; a
 * kernel of its own (attn.cu) does it for long contexts.
 */
#include "kernels/cuda/attn_tile.cuh"

#define WARPS 4
#define THREADS (WARPS * 32)
#define GROUP (CHUNK / WARPS) /* positions of a warp */
#define FOLDED 8              /* chunks that the last block folds itself */

static_assert(GROUP == 32, "probabilities are summed in groups of 32 positions");

/* What the warps tell each other of a chunk. */
struct one_room {
    float most[WARPS][16], sum[WARPS][16];
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
    } else if (D == 128) { /* element f and f + 64 */
        const int    f = lane * 2;
        const float2 va = v[0], vb = v[D / 128];
        v[0].x = va.x * c[f] - vb.x * s[f];
        v[0].y = va.y * c[f + 1] - vb.y * s[f + 1];
        v[D / 128].x = va.x * s[f] + vb.x * c[f];
        v[D / 128].y = va.y * s[f + 1] + vb.y * c[f + 1];
    }
}

/* The row's own key or value, by one warp: turned, to its page and to the tile. */
template <int D, bool KEYS>
__device__ static inline void one_store(const cuda_attn &a, uint8_t *tile, int t, int s, int kv, int pos, int lane) {
    const float *from = (KEYS ? a.k : a.v) + ((int64_t)t * a.pages.n_kv + kv) * D;
    int          in_page;
    uint8_t     *page = page_at(a.pages, a.batch, s, pos, &in_page);
    uint8_t     *to = KEYS ? page_k(a.pages, page, kv, in_page) : page_v(a.pages, page, kv, in_page);
    float2       v[(D + 63) / 64];
#pragma unroll
    for (int i = 0; i < (D + 63) / 64; i++) v[i] = *reinterpret_cast<const float2 *>(from + i * 64 + lane * 2);
    if (KEYS) one_turn<D>(a, v, t, lane);
#pragma unroll
    for (int i = 0; i < (D + 63) / 64; i++) {
        const int      at = i * 64 + lane * 2;
        const uint32_t both = pack_halves(v[i].x, v[i].y);
        *reinterpret_cast<uint32_t *>(to + at * 2) = both;
        *reinterpret_cast<uint32_t *>(tile + tile_at<D>(0, pos % CHUNK, at / 8) + at % 8 * 2) = both;
    }
}

/* Queries of the heads from `head` on to f16, a head per warp at a time. */
template <int D>
__device__ static inline void one_load_q(const cuda_attn &a, one_room &m, uint8_t *to, int t, int head, int rep) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    for (int r = warp; r < rep; r += WARPS) {
        const float *q = a.q + ((int64_t)t * a.n_head + head + r) * D;
        float2       v[(D + 63) / 64];
        uint32_t     top = 0;
#pragma unroll
        for (int i = 0; i < (D + 63) / 64; i++) {
            const int at = i * 64 + lane * 2;
            v[i] = at < D ? *reinterpret_cast<const float2 *>(q + at) : make_float2(0, 0);
        }
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
 * one_store brings. */
template <int D, bool KEYS>
__device__ static inline void one_load(const cuda_attn &a, uint8_t *to, int s, int kv, int c0, int lo, int hi, int own,
                                       int warp, int lane) {
    constexpr int PIECES = KEYS ? D / 8 : D / 8 / WARPS, FIRST = KEYS ? 0 : D / 8 / WARPS; /* of 16 bytes */
    const int     first = KEYS ? warp * GROUP : 0, n = KEYS ? GROUP : CHUNK;
    for (int i = lane; i < n * PIECES; i += 32) {
        const int row = first + i / PIECES, piece = warp * FIRST + i % PIECES, p = c0 + row;
        if (p == own) continue;
        if (p >= lo && p < hi) {
            int            in_page;
            uint8_t       *page = page_at(a.pages, a.batch, s, p, &in_page);
            const uint8_t *from = KEYS ? page_k(a.pages, page, kv, in_page) : page_v(a.pages, page, kv, in_page);
            copy16(tile_at<D>(smem_at(to), row, piece), from + piece * 16);
        } else {
            *reinterpret_cast<uint4 *>(to + tile_at<D>(0, row, piece)) = make_uint4(0, 0, 0, 0);
        }
    }
    copy_commit();
}

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
        if (a.softcap != 0) v = a.softcap * tanhf(v / a.softcap);
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
__device__ static inline void one_values(float o[D / 8 / WARPS][4], uint32_t p, uint32_t v, int warp, int lane) {
    constexpr int N = D / 8 / WARPS;
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

/* The parts of this block's heads, in order; several are on their way at a time. */
template <int D> __device__ static inline void one_fold(const cuda_attn &a, int t, int head, int rep, int first, int end) {
    for (int i = (int)threadIdx.x; i < rep * D; i += THREADS) {
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

template <int D> static __global__ __launch_bounds__(THREADS) void attn_one_kernel(const cuda_attn a) {
    extern __shared__ __align__(128) uint8_t smem[];
    __shared__ one_room                      m;
    uint8_t  *k = smem, *v = k + CHUNK * D * 2, *q = v + CHUNK * D * 2, *p = q + 16 * D * 2;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, rep = a.n_head / a.pages.n_kv;
    const int chunk = (int)blockIdx.x % a.chunks, at = (int)blockIdx.x / a.chunks, kv = at % a.pages.n_kv,
              t = at / a.pages.n_kv, head = kv * rep, s = a.batch.seq_of[t], c0 = chunk * CHUNK;
    int lo, hi;
    launch_next();
    attn_range(a, t, &lo, &hi);
    const int first = lo / CHUNK, end = (hi + CHUNK - 1) / CHUNK;
    if (chunk < first || chunk >= end) return;
    launch_wait(); /* the batch was there before; queries, keys and values come from the kernels in front */
    const int own = a.table ? hi - 1 : -1;
    one_load<D, true>(a, k, s, kv, c0, lo, hi, own, warp, lane);
    one_load<D, false>(a, v, s, kv, c0, lo, hi, own, warp, lane);
    if (own / CHUNK == chunk && own >= 0 && warp == WARPS - 1) {
        one_store<D, true>(a, k, t, s, kv, own, lane);
        one_store<D, false>(a, v, t, s, kv, own, lane);
    }
    one_load_q<D>(a, m, q, t, head, rep);
    copy_wait<1>();
    __syncthreads(); /* queries; zeros among the values of other warps are not looked at before the next meeting */
    const float factor[2] = { m.factor[lane / 4], m.factor[lane / 4 + 8] };
    float       sc[GROUP / 8][4], most[2], sum[2];
    one_scores<D>(a, sc, most, smem_at(q), smem_at(k) + warp * GROUP * D * 2, c0 + warp * GROUP, lo, hi, factor, lane);
    if (lane % 4 == 0) m.most[warp][lane / 4] = most[0], m.most[warp][lane / 4 + 8] = most[1];
    __syncthreads();
#pragma unroll
    for (int r = 0; r < 2; r++) {
        most[r] = m.most[0][lane / 4 + r * 8];
#pragma unroll
        for (int w = 1; w < WARPS; w++) most[r] = fmaxf(most[r], m.most[w][lane / 4 + r * 8]);
    }
    one_chances(sc, most, sum, p, warp, c0 + warp * GROUP, lo, hi, lane);
    if (lane % 4 == 0) m.sum[warp][lane / 4] = sum[0], m.sum[warp][lane / 4 + 8] = sum[1];
    copy_wait<0>();
    __syncthreads();
    float o[D / 8 / WARPS][4];
    one_values<D>(o, smem_at(p), smem_at(v), warp, lane);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int row = lane / 4 + r * 8;
        if (row >= rep) continue;
        float *part = a.parts + (((int64_t)t * a.n_head + head + row) * a.chunks + chunk) * (D + 2);
        if (warp == 0 && lane % 4 == 0) {
            float all = 0;
#pragma unroll
            for (int w = 0; w < WARPS; w++) all += m.sum[w][row];
            part[0] = most[r], part[1] = all;
        }
#pragma unroll
        for (int i = 0; i < D / 4 / WARPS; i++)
            part[2 + warp * (D / WARPS) + i / 2 * 8 + lane % 4 * 2 + i % 2] = o[i / 2][r * 2 + i % 2];
    }
    if (a.chunks > FOLDED) return;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) m.last = atomicInc(&a.counts[at], (unsigned)(end - first - 1)) == (unsigned)(end - first - 1);
    __syncthreads();
    if (!m.last) return;
    __threadfence();
    one_fold<D>(a, t, head, rep, first, end);
}

bool cuda_attn_single(const cuda_attn *a) {
    return attn_mma_can(a) && !a->pages.step && a->dim_q != 96 && a->n_head / a->pages.n_kv <= 16;
}

bool cuda_attn_turns(const cuda_attn *a, const cuda_rope *r) {
    return cuda_attn_single(a) && r->offset == 0 && r->head_dim == a->dim_q &&
           (r->interleaved || (a->dim_q == 128 && r->n == 64));
}

template <int D> static int start(const cuda_attn *a, cuda_stream s, err *e) {
    const int64_t    blocks = (int64_t)a->batch.n_tok * a->pages.n_kv * a->chunks;
    const cuda_shape shape = { (unsigned)blocks, THREADS, 1, (size_t)(2 * CHUNK + 16) * D * 2 + 16 * CHUNK * 2, true };
    return cuda_launch(attn_one_kernel<D>, shape, s, e, *a);
}

int attn_one(const cuda_attn *a, bool *folded, cuda_stream s, err *e) {
    *folded = a->chunks <= FOLDED;
    return a->dim_q == 64 ? start<64>(a, s, e) : start<128>(a, s, e);
}
