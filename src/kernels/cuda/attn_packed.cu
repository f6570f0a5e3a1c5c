/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of single rows over compressed pages (packed.h) by tensor cores: decode steps. The values of attn_one.cu over the
 * f16 rows that cuda_packed_open would have made, bit for bit, without making them.
 *
 * As attn_long.cu: a block stays for many chunks, one warp has the bytes of keys and values copied as they are into a ring,
 * teams of four warps take chunks in turn. Bytes become fragments in registers (attn_words.cuh): keys and values are the side
 * of tensor cores that has 16 rows, the heads that share them the one that has 8. A warp has the scores of 32 positions, then
 * 32 dimensions of the values.
 */
#include "kernels/cuda/attn_fold.cuh"
#include "kernels/cuda/attn_words.cuh"
#include "kernels/cuda/packed_store.cuh"

#define PACKED_TEAMS 4
#define THREADS (PACKED_TEAMS * ONE_THREADS + 32)
#define STAGES_MOST 12

/* How shared memory is cut: the ring, tables of pairs, then each team's queries and probabilities. */
struct packed_plan {
    int total, stages, room, stage_bytes, k_table, v_table, teams_at;
};

template <int D, int NT> __host__ __device__ static constexpr int team_bytes() { return 8 * NT * (WORDS_ROW(D) + WORDS_ROW(CHUNK)); }

/* Bytes from page to page of a chunk: two pages of 16 positions lie in different banks. */
__host__ static inline int packed_room_of(const kv_layout &l) {
    return (int)l.head_bytes + (l.tokens == 16 && l.head_bytes % 128 == 0 ? 64 : 0);
}

/* ---- bytes on their way ---- */

/* A lane's page of a chunk: pages of several chunks are looked up at once. */
struct packed_source {
    const uint8_t *from; /* NULL: not seen, or not there */
    bool           last; /* of its row */
};

__device__ static inline packed_source packed_look(const cuda_attn &a, const cuda_packed &p, int number, int page, int total) {
    const kv_layout &l = p.layout;
    packed_source    s = { NULL, false };
    if (number >= total) return s;
    const int at = number / a.pages.n_kv, kv = number % a.pages.n_kv, chunk = a.chunks - 1 - at % a.chunks, t = at / a.chunks;
    int       lo, hi;
    attn_range(a, t, &lo, &hi);
    s.last = (chunk + 1) * CHUNK >= hi;
    const int first = chunk * CHUNK + page * l.tokens;
    if (first + l.tokens <= lo || first >= hi) return s;
    const uint8_t *base = packed_page(p, a.batch, a.batch.seq_of[t], first / l.tokens);
    if (base) s.from = base + (size_t)kv * l.head_bytes;
    return s;
}

/* Copies of a chunk's pages, lane by lane, to place `to`. */
__device__ static inline void packed_copy(const packed_source &s, bool mine, uint32_t to, int bytes, uint32_t bar, int lane) {
    const unsigned who = __ballot_sync(0xffffffffu, mine && s.from);
#ifdef CUDA_HOPPER
    if (lane == 0) barrier_expect(bar, (uint32_t)(__popc(who) * bytes));
    __syncwarp();
    if (mine && s.from) bulk_copy(to, s.from, (uint32_t)bytes, bar);
#else
    for (unsigned left = who; left; left &= left - 1) {
        const int      i = __ffs((int)left) - 1;
        const uint32_t there = __shfl_sync(0xffffffffu, to, i);
        const auto     from = (const uint8_t *)__shfl_sync(0xffffffffu, (unsigned long long)s.from, i);
        for (int k = lane * 16; k < bytes; k += 512) copy16(there + k, from + k);
    }
    ring_arrive(bar);
#endif
}

/* Only the last chunk of a row has what the kernel in front stored, if one did. */
__device__ static inline void packed_produce(const cuda_attn &a, const cuda_packed &p, uint32_t ring, ring_place at,
                                             const packed_plan &plan, int lane) {
    const int pages = CHUNK / p.layout.tokens, each = 32 / pages, step = (int)gridDim.x;
    bool      waited = a.table != NULL;
    for (int number = (int)blockIdx.x; number < plan.total; number += each * step) {
        const packed_source s = packed_look(a, p, number + lane / pages * step, lane % pages, plan.total);
        const unsigned      last = __ballot_sync(0xffffffffu, s.last);
        for (int k = 0; k < each && number + k * step < plan.total; k++) {
            if (!waited && (last >> (k * pages) & 1)) {
                launch_wait();
                waited = true;
            }
            barrier_wait(at.empty_bar(), at.parity ^ 1);
            packed_copy(s, lane / pages == k, ring + (uint32_t)(at.slot * plan.stage_bytes + lane % pages * plan.room),
                        (int)p.layout.head_bytes, at.full_bar(), lane);
            at.advance();
        }
    }
#ifndef CUDA_HOPPER
    copy_commit();
    copy_wait<0>();
#endif
}

/* ---- a chunk ---- */

/* A team's memory. */
struct packed_team {
    uint8_t       *q, *chances;
    const __half2 *k_pair, *v_pair;
    int            number;
};

/* What the warps of a team tell each other. */
struct packed_room {
    float most[ONE_WARPS][16], sum[ONE_WARPS][16];
    float factor[16];
};

/* Queries of the heads from `head` on to f16, turned where they are not yet, rotated where the keys are. */
template <int D>
__device__ static inline void packed_load_q(const cuda_attn &a, const cuda_packed &p, packed_room &m, uint8_t *to, int t,
                                            int head, int rep) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % ONE_WARPS,
              place = words_place(p.layout.k_type, lane % 16);
    for (int r = warp; r < rep; r += ONE_WARPS) {
        const float *q = a.q + ((int64_t)t * a.n_head + head + r) * D;
        float        v[D / 32];
        uint32_t     top = 0;
#pragma unroll
        for (int i = 0; i < D / 32; i++)
            v[i] = packed_turned(q, i * 32 + lane, a.table ? a.table + (int64_t)t * 2 * a.turned : NULL, a.turned,
                                 a.interleaved);
        if (p.layout.k_block) { /* D: the largest power of two that divides the head */
#pragma unroll
            for (int i = 0; i < D / 32; i++) v[i] = packed_flip(v[i], p.signs[i], lane);
            packed_hadamard<D / 32>(v, lane);
        }
#pragma unroll
        for (int i = 0; i < D / 32; i++) top = max(top, __float_as_uint(v[i]) & 0x7fffffffu);
        top = __reduce_max_sync(0xffffffffu, top);
        const int   e = cuda_row_exponent(top);
        const float down = __uint_as_float((uint32_t)(127 - e) << 23);
#pragma unroll
        for (int i = 0; i < D / 32; i++)
            *reinterpret_cast<__half *>(to + r * WORDS_ROW(D) + (i * 32 + lane / 16 * 16 + place) * 2) =
                __float2half_rn(v[i] * down);
        if (lane == 0) m.factor[r] = __uint_as_float((uint32_t)(127 + e) << 23) * a.scale;
    }
}

/* What storing a row takes, in shared memory: it is done out of line. */
struct packed_own {
    cuda_packed  p;
    const float *k, *v, *table;
    int          turned;
    bool         interleaved;
};

/* The numbers of a row's own key or value. */
template <int D>
__device__ static __noinline__ void packed_own_numbers(const packed_own &o, packed_row<D> &row, int64_t at, int t, bool is_v) {
    const int lane = (int)threadIdx.x % 32;
    if (is_v)
        packed_numbers_v(o.p, row, o.v + at, lane);
    else
        packed_numbers_k(o.p, row, { o.k + at, o.k + at, o.table + (int64_t)t * 2 * o.turned, D, o.turned, o.interleaved }, lane);
}

/* Their bytes to its page and to the copy of it. */
template <int D>
__device__ static __noinline__ void packed_own_put(const packed_own &o, const packed_row<D> &row, uint8_t *page, uint8_t *copy,
                                                   int slot, bool is_v) {
    const kv_layout &l = o.p.layout;
    const int        lane = (int)threadIdx.x % 32;
    if (is_v) {
        put_v(l, page + l.k_bytes, slot, row, lane);
        put_v(l, copy + l.k_bytes, slot, row, lane);
    } else {
        put_k(l, page, slot, row, lane);
        put_k(l, copy, slot, row, lane);
    }
#ifdef CUDA_HOPPER
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); /* the place is copied to again */
#endif
}

template <int D, int NT, int TOKENS>
__device__ static inline void packed_scores(float s[NT][2][4], const cuda_packed &p, const packed_team &team,
                                            const uint8_t *raw, int room, int warp, int lane) {
    const int      first = warp * GROUP + lane / 4 * 4, tokens = TOKENS ? TOKENS : p.layout.tokens, slot = first & (tokens - 1);
    const uint8_t *area = raw + first / tokens * room;
#pragma unroll
    for (int i = 0; i < NT * 8; i++) s[i / 8][i / 4 % 2][i % 4] = 0;
    switch (p.layout.k_type) {
    case KV_F32: words_scores<D, KV_F32, NT, TOKENS>(s, area, tokens, slot, team.k_pair, team.q, lane); return;
    case KV_F16: words_scores<D, KV_F16, NT, TOKENS>(s, area, tokens, slot, team.k_pair, team.q, lane); return;
    case KV_BF16: words_scores<D, KV_BF16, NT, TOKENS>(s, area, tokens, slot, team.k_pair, team.q, lane); return;
    case KV_Q8_0: words_scores<D, KV_Q8_0, NT, TOKENS>(s, area, tokens, slot, team.k_pair, team.q, lane); return;
    case KV_Q5_0: words_scores<D, KV_Q5_0, NT, TOKENS>(s, area, tokens, slot, team.k_pair, team.q, lane); return;
    case KV_Q4_0: words_scores<D, KV_Q4_0, NT, TOKENS>(s, area, tokens, slot, team.k_pair, team.q, lane); return;
    case KV_TQ3: words_scores<D, KV_TQ3, NT, TOKENS>(s, area, tokens, slot, team.k_pair, team.q, lane); return;
    case KV_TQ2: words_scores<D, KV_TQ2, NT, TOKENS>(s, area, tokens, slot, team.k_pair, team.q, lane); return;
    case KV_FP8: words_scores<D, KV_FP8, NT, TOKENS>(s, area, tokens, slot, team.k_pair, team.q, lane); return;
    default: words_scores<D, KV_TQ4, NT, TOKENS>(s, area, tokens, slot, team.k_pair, team.q, lane); return;
    }
}

/* Largest scores of this warp's positions; those that are not seen (WHOLE: all are) become -INFINITY. */
template <int NT, bool WHOLE>
__device__ static inline void packed_mask(const cuda_attn &a, float s[NT][2][4], float most[NT][2], const packed_room &m,
                                          const ring_item &it, int warp, int lane) {
    const int p0 = it.chunk * CHUNK + warp * GROUP + lane / 4 * 4;
#pragma unroll
    for (int n = 0; n < NT; n++) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const float factor = m.factor[n * 8 + lane % 4 * 2 + r];
            most[n][r] = -INFINITY;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                float v = s[n][j / 2][j % 2 * 2 + r] * factor;
                if (!WHOLE && a.softcap != 0) v = a.softcap * tanhf(v / a.softcap);
                if (!WHOLE) v = p0 + j >= it.lo && p0 + j < it.hi ? v : -INFINITY;
                s[n][j / 2][j % 2 * 2 + r] = v;
                most[n][r] = fmaxf(most[n][r], v);
            }
#pragma unroll
            for (int o = 4; o < 32; o *= 2) most[n][r] = fmaxf(most[n][r], __shfl_xor_sync(0xffffffffu, most[n][r], o));
        }
    }
}

/* Probabilities of this warp's positions to their rows, and their sums in the order of one_chances. */
template <int NT>
__device__ static inline void packed_chances(const float s[NT][2][4], const float most[NT][2], packed_room &m,
                                             uint8_t *chances, const ring_item &it, int warp, int lane) {
    const int g = lane / 4, t = lane % 4, p0 = it.chunk * CHUNK + warp * GROUP + g * 4;
    uint8_t  *to = chances + warp * GROUP * 2;
    const bool whole = it.chunk * CHUNK >= it.lo && (it.chunk + 1) * CHUNK <= it.hi;
#pragma unroll
    for (int n = 0; n < NT; n++) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int   r = i % 2, j = i / 2;
            const float e = expf(s[n][j / 2][j % 2 * 2 + r] - most[n][r]);
            const float v = whole || (p0 + j >= it.lo && p0 + j < it.hi) ? e : 0.0f;
            /* position 4 g + j of 32: of 16 it is number g % 4 of lane j */
            *reinterpret_cast<__half *>(to + (n * 8 + t * 2 + r) * WORDS_ROW(CHUNK) + (g / 4 * 16 + j * 4 + g % 4) * 2) =
                __float2half_rn(v);
        }
    }
    __syncwarp();
#pragma unroll
    for (int n = 0; n < NT; n++) {
        const __half *row = reinterpret_cast<const __half *>(to + (n * 8 + g) * WORDS_ROW(CHUNK));
        float         sum = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) { /* positions 8 i + 2 t and + 1 */
            const int at = i * 8 + t * 2, where = at / 16 * 16 + at % 4 * 4 + at % 16 / 4;
            sum += __half2float(row[where]) + __half2float(row[where + 4]);
        }
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (t == 0) m.sum[warp][n * 8 + g] = sum;
    }
}

template <int D, int NT, int TOKENS>
__device__ static inline void packed_values(float o[NT][2][4], const cuda_packed &p, const packed_team &team,
                                            const words_chunk &c, int warp, int lane) {
#pragma unroll
    for (int i = 0; i < NT * 8; i++) o[i / 8][i / 4 % 2][i % 4] = 0;
    switch (p.layout.v_type) {
    case KV_F32: words_weigh_seen<D, KV_F32, NT, TOKENS>(o, c, warp, team.v_pair, team.chances, lane); return;
    case KV_F16: words_weigh_seen<D, KV_F16, NT, TOKENS>(o, c, warp, team.v_pair, team.chances, lane); return;
    case KV_BF16: words_weigh_seen<D, KV_BF16, NT, TOKENS>(o, c, warp, team.v_pair, team.chances, lane); return;
    case KV_Q8_0: words_weigh_seen<D, KV_Q8_0, NT, TOKENS>(o, c, warp, team.v_pair, team.chances, lane); return;
    case KV_Q5_0: words_weigh_seen<D, KV_Q5_0, NT, TOKENS>(o, c, warp, team.v_pair, team.chances, lane); return;
    case KV_Q4_0: words_weigh_seen<D, KV_Q4_0, NT, TOKENS>(o, c, warp, team.v_pair, team.chances, lane); return;
    case KV_TQ3: words_weigh_seen<D, KV_TQ3, NT, TOKENS>(o, c, warp, team.v_pair, team.chances, lane); return;
    case KV_TQ2: words_weigh_seen<D, KV_TQ2, NT, TOKENS>(o, c, warp, team.v_pair, team.chances, lane); return;
    case KV_FP8: words_weigh_seen<D, KV_FP8, NT, TOKENS>(o, c, warp, team.v_pair, team.chances, lane); return;
    default: words_weigh_seen<D, KV_TQ4, NT, TOKENS>(o, c, warp, team.v_pair, team.chances, lane); return;
    }
}

/* A chunk's part of the result: four dimensions of two heads per lane. */
template <int D, int NT>
__device__ static inline void packed_write(const cuda_attn &a, const packed_room &m, const ring_item &it,
                                           const float most[NT][2], const float o[NT][2][4], int warp, int lane) {
    const int rep = a.n_head / a.pages.n_kv, g = lane / 4;
#pragma unroll
    for (int n = 0; n < NT; n++) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int head = n * 8 + lane % 4 * 2 + r;
            if (head >= rep) continue;
            float *part = a.parts + (((int64_t)it.t * a.n_head + it.kv * rep + head) * a.chunks + it.chunk) * (D + 2);
            if (warp == 0 && g == 0) {
                float all = 0;
#pragma unroll
                for (int w = 0; w < ONE_WARPS; w++) all += m.sum[w][head];
                *reinterpret_cast<float2 *>(part) = make_float2(most[n][r], all);
            }
            if (warp * 32 >= D) continue;
            float2 *to = reinterpret_cast<float2 *>(part + 2 + warp * 32 + g * 4);
            to[0] = make_float2(o[n][0][r], o[n][0][2 + r]);
            to[1] = make_float2(o[n][1][r], o[n][1][2 + r]);
        }
    }
}

template <int D, int NT, int TOKENS>
__device__ static inline void packed_compute(const cuda_attn &a, const cuda_packed &p, const packed_team &team,
                                             packed_room &m, const uint8_t *raw, int room, const ring_item &it,
                                             uint32_t empty) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % ONE_WARPS;
    float     s[NT][2][4], most[NT][2], o[NT][2][4];
    packed_scores<D, NT, TOKENS>(s, p, team, raw, room, warp, lane);
    if (it.chunk * CHUNK >= it.lo && (it.chunk + 1) * CHUNK <= it.hi && a.softcap == 0)
        packed_mask<NT, true>(a, s, most, m, it, warp, lane);
    else
        packed_mask<NT, false>(a, s, most, m, it, warp, lane);
    if (lane < 4) {
#pragma unroll
        for (int i = 0; i < NT * 2; i++) m.most[warp][i / 2 * 8 + lane * 2 + i % 2] = most[i / 2][i % 2];
    }
    team_sync(team.number);
#pragma unroll
    for (int i = 0; i < NT * 2; i++) {
        float &all = most[i / 2][i % 2];
#pragma unroll
        for (int w = 0; w < ONE_WARPS; w++) all = fmaxf(all, m.most[w][i / 2 * 8 + lane % 4 * 2 + i % 2]);
    }
    packed_chances<NT>(s, most, m, team.chances, it, warp, lane);
    team_sync(team.number);
    const int c0 = it.chunk * CHUNK;
    if (warp * 32 < D)
        packed_values<D, NT, TOKENS>(o, p, team, { raw + p.layout.k_bytes, room, p.layout.tokens, it.lo - c0, it.hi - c0 }, warp,
                                     lane);
    __syncwarp();
    if (lane == 0) barrier_arrive(empty);
    packed_write<D, NT>(a, m, it, most, o, warp, lane);
}

/* The team takes every PACKED_TEAMS-th place of the ring. */
template <int D, int NT, int TOKENS>
__device__ static inline void packed_consume(const cuda_attn &a, const cuda_packed &p, const packed_own &o,
                                             const packed_team &team, packed_room &m, uint8_t *ring, ring_place at,
                                             const packed_plan &plan) {
    const int rep = a.n_head / a.pages.n_kv, warp = (int)threadIdx.x / 32 % ONE_WARPS;
    int       row = -1, kv = -1;
    ring_walk walk(a, team.number, PACKED_TEAMS);
    ring_item it = ring_begin();
    at.advance(team.number);
    launch_wait();
    for (; walk.next(a, it, plan.total); at.advance(PACKED_TEAMS)) {
        if (!it.seen) {
            barrier_wait(at.full_bar(), at.parity);
            if (threadIdx.x % 32 == 0) barrier_arrive(at.empty_bar());
            continue;
        }
        if (it.t != row || it.kv != kv) {
            team_sync(team.number); /* nobody reads the last queries and factors any more */
            packed_load_q<D>(a, p, m, team.q, it.t, it.kv * rep, rep);
            row = it.t, kv = it.kv;
            team_sync(team.number);
        }
        uint8_t   *raw = ring + at.slot * plan.stage_bytes;
        const bool own = a.table && (it.hi - 1) / CHUNK == it.chunk, stores = own && warp >= ONE_WARPS - 2;
        auto      *rows = reinterpret_cast<packed_row<D> *>(team.chances);
        if (own) team_sync(team.number); /* nobody reads the last probabilities any more */
        if (stores) /* the last warp the key, the one in front of it the value */
            packed_own_numbers<D>(o, rows[warp % 2], ((int64_t)it.t * a.pages.n_kv + it.kv) * D, it.t, warp % 2 == 0);
        barrier_wait(at.full_bar(), at.parity);
        if (stores) {
            const int pos = it.hi - 1, tokens = p.layout.tokens;
            packed_own_put<D>(o, rows[warp % 2],
                              packed_page(p, a.batch, it.s, pos / tokens) + (size_t)it.kv * p.layout.head_bytes,
                              raw + pos % CHUNK / tokens * plan.room, pos % tokens, warp % 2 == 0);
        }
        if (own) team_sync(team.number);
        packed_compute<D, NT, TOKENS>(a, p, team, m, raw, plan.room, it, at.empty_bar());
    }
}

template <int D> static constexpr size_t fold_bytes() { return sizeof(fold_room<D>) + D * sizeof(float); }

/* The parts of one row and head, in order as attn_fold does it; out of rotated space where the values are in it. */
template <int D>
static __global__ __launch_bounds__(D *FOLD_WARPS) void packed_fold_kernel(const cuda_attn a, const cuda_packed p) {
    extern __shared__ __align__(128) uint8_t smem[];
    fold_room<D>                           &m = *reinterpret_cast<fold_room<D> *>(smem);
    float                                  *room = reinterpret_cast<float *>(smem + sizeof m);
    const int                               i = (int)threadIdx.x, lane = i % 32;
    float                                   v = fold_columns<D>(a, m, blockIdx.x, i % D);
    if (p.layout.v_block) {
#pragma unroll
        for (int h = 1; h < 32; h *= 2) {
            const float other = __shfl_xor_sync(0xffffffffu, v, h);
            v = lane & h ? other - v : v + other;
        }
#pragma unroll
        for (int h = 32; h < D; h *= 2) {
            __syncthreads();
            if (i < D) room[i] = v;
            __syncthreads();
            v = i & h ? room[(i ^ h) % D] - v : v + room[(i ^ h) % D];
        }
        v = packed_flip(v * (1.0f / sqrtf((float)D)), p.signs[i / 32 % (D / 32)], lane);
    }
    if (i < D) a.out[(int64_t)blockIdx.x * D + i] = v;
}

static_assert(2 * sizeof(packed_row<128>) <= 8 * WORDS_ROW(CHUNK) && ONE_WARPS % 2 == 0, "two rows in place of probabilities");

template <int D, int NT, int TOKENS>
static __global__ __launch_bounds__(THREADS, 1) void attn_packed_kernel(const cuda_attn a, const cuda_packed p,
                                                                        const packed_plan plan) {
    extern __shared__ __align__(128) uint8_t smem[];
    __shared__ packed_room                   rooms[PACKED_TEAMS];
    __shared__ packed_own                    own;
    __shared__ __align__(8) uint64_t full[STAGES_MOST], empty[STAGES_MOST];
    const int lane = (int)threadIdx.x % 32, number = (int)threadIdx.x / ONE_THREADS;
    launch_next();
    if ((int)threadIdx.x < plan.stages) {
#ifdef CUDA_HOPPER
        barrier_init(smem_at(&full[threadIdx.x]), 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); /* for copies: no instruction comes of it */
#else
        barrier_init(smem_at(&full[threadIdx.x]), 32);
#endif
        barrier_init(smem_at(&empty[threadIdx.x]), ONE_WARPS);
    }
    __syncthreads();
    const ring_place at = { smem_at(full), smem_at(empty), 0, plan.stages, 0 };
    if (number == PACKED_TEAMS) {
        packed_produce(a, p, smem_at(smem), at, plan, lane);
        return;
    }
    const kv_layout &l = p.layout;
    words_table(reinterpret_cast<__half2 *>(smem + plan.k_table), p.k_codes, words_entries(l.k_type), THREADS - 32);
    if (l.v_type != l.k_type) /* which may have no table: then the places are the same */
        words_table(reinterpret_cast<__half2 *>(smem + plan.v_table), p.v_codes, words_entries(l.v_type), THREADS - 32);
    if (threadIdx.x == 0) own = { p, a.k, a.v, a.table, a.turned, a.interleaved };
    first_sync<PACKED_TEAMS * ONE_THREADS>();
    uint8_t          *mine = smem + plan.teams_at + number * team_bytes<D, NT>();
    const packed_team team = { mine, mine + 8 * NT * WORDS_ROW(D), reinterpret_cast<const __half2 *>(smem + plan.k_table) + lane,
                               reinterpret_cast<const __half2 *>(smem + plan.v_table) + lane, number };
    packed_consume<D, NT, TOKENS>(a, p, own, team, rooms[number], smem, at, plan);
}

/* Shared memory with as many places as fit; 0: there is not enough. */
template <int D, int NT> static size_t packed_cut(packed_plan *plan, const cuda_packed *p, size_t most) {
    const kv_layout *l = &p->layout;
    const int        k = words_entries(l->k_type) * WORDS_COPIES * 4,
              v = l->v_type == l->k_type ? 0 : words_entries(l->v_type) * WORDS_COPIES * 4;
    const size_t fixed = PACKED_TEAMS * (team_bytes<D, NT>() + sizeof(packed_room)) + sizeof(packed_own) + (size_t)(k + v) + 1024;
    plan->room = packed_room_of(*l);
    plan->stage_bytes = CHUNK / l->tokens * plan->room;
    plan->stages = most > fixed ? (int)((most - fixed) / (size_t)plan->stage_bytes) : 0;
    if (plan->stages > STAGES_MOST) plan->stages = STAGES_MOST;
    if (plan->stages < 1) return 0;
    plan->k_table = (plan->stages * plan->stage_bytes + 127) / 128 * 128;
    plan->v_table = l->v_type == l->k_type ? plan->k_table : plan->k_table + k;
    plan->teams_at = plan->k_table + k + v;
    return (size_t)plan->teams_at + PACKED_TEAMS * team_bytes<D, NT>();
}

template <int D> static bool packed_fits(const cuda_packed *p, bool many, size_t most) {
    packed_plan plan = {};
    return (many ? packed_cut<D, 2>(&plan, p, most) : packed_cut<D, 1>(&plan, p, most)) > 0;
}

/* More than 8 heads share a key head. */
static bool has_many(const cuda_attn *a) { return a->n_head / a->pages.n_kv > 8; }

bool cuda_attn_packed_can(const cuda_attn *a, const cuda_packed *p) {
    const kv_layout *l = &p->layout;
    int              device = 0, most = 0;
    if (!cuda_attn_single(a) || (a->dim_q != 64 && a->dim_q != 128) || CHUNK % l->tokens != 0 ||
        (size_t)(CHUNK / l->tokens) * l->head_bytes > 72 * 1024 || cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) != cudaSuccess)
        return false;
    return a->dim_q == 64 ? packed_fits<64>(p, has_many(a), (size_t)most) : packed_fits<128>(p, has_many(a), (size_t)most);
}

template <int D, int NT> static int start(const cuda_attn *a, const cuda_packed *p, cuda_stream s, err *e) {
    int device = 0, sms = 1, smem = 0;
    int rc = cuda_error(e, cudaGetDevice(&device), "the device");
    if (!rc) rc = cuda_error(e, cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device), "the device");
    if (!rc) rc = cuda_error(e, cudaDeviceGetAttribute(&smem, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "memory");
    if (rc) return rc;
    packed_plan plan = {};
    plan.total = (int)((int64_t)a->batch.n_tok * a->pages.n_kv * a->chunks);
    const unsigned blocks = (unsigned)(plan.total < sms ? plan.total : sms);
    const size_t   bytes = packed_cut<D, NT>(&plan, p, (size_t)smem);
    if (bytes == 0) return err_set(e, ERR_UNSUPPORTED, "CUDA: shared memory for a chunk of compressed pages");
    const cuda_shape shape = { blocks, THREADS, 1, bytes, true };
    rc = p->layout.tokens == 32 ? cuda_launch(attn_packed_kernel<D, NT, 32>, shape, s, e, *a, *p, plan)
                                : cuda_launch(attn_packed_kernel<D, NT, 0>, shape, s, e, *a, *p, plan);
    const cuda_shape folds = { (unsigned)((int64_t)a->batch.n_tok * a->n_head), D * FOLD_WARPS, 1, fold_bytes<D>(), true };
    return rc ? rc : cuda_launch(packed_fold_kernel<D>, folds, s, e, *a, *p);
}

int cuda_attn_packed(const cuda_attn *a, const cuda_packed *p, cuda_stream s, err *e) {
    const bool many = has_many(a);
    if (a->dim_q == 64) return many ? start<64, 2>(a, p, s, e) : start<64, 1>(a, p, s, e);
    return many ? start<128, 2>(a, p, s, e) : start<128, 1>(a, p, s, e);
}
