/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of single rows over compressed pages (packed.h) by tensor cores: decode steps. The values of attn_one.cu over the
 * f16 rows that cuda_packed_open would have made, bit for bit, without making them.
 *
 * As attn_long.cu: a block stays for many chunks, one warp copies the bytes of keys and values as they are into a ring, teams
 * of four warps take every second or third chunk. A team unpacks the keys into a tile (attn_unpack.cuh), multiplies, and
 * unpacks the values into the same place.
 */
#include "kernels/cuda/attn_fold.cuh"
#include "kernels/cuda/attn_unpack.cuh"

#define STAGES_MOST 8

/* How shared memory is cut: the ring, tables of pairs, then each team's tile, queries and probabilities. */
struct packed_plan {
    int total, stages, stage_bytes, k_table, v_table, teams_at; /* tables: -1: none */
};

/* The bytes of a chunk's keys and values, page behind page. Only the last chunk has what the kernel in front stored. */
__device__ static inline void packed_produce(const cuda_attn &a, const cuda_packed &p, uint32_t ring, ring_place at,
                                             const packed_plan &plan, int lane) {
    const kv_layout &l = p.layout;
    const int        pages = CHUNK / l.tokens, pieces = (int)l.head_bytes / 16, room = unpack_room(l);
    ring_item        it = ring_begin();
    bool             waited = false;
    for (; ring_next(a, it, plan.total); ring_step(it), at.advance()) {
        if (!waited && (it.chunk + 1) * CHUNK >= it.hi) {
            launch_wait();
            waited = true;
        }
        barrier_wait(at.empty_bar(), at.parity ^ 1);
        for (int i = 0; i < pages; i++) {
            const int first = it.chunk * CHUNK + i * l.tokens;
            if (first + l.tokens <= it.lo || first >= it.hi) continue;
            const uint8_t *from =
                packed_page(p, a.batch, it.s, it.chunk * pages + i) + (size_t)it.kv * l.head_bytes + lane * 16;
            const uint32_t to = ring + (uint32_t)(at.slot * plan.stage_bytes + i * room) + lane * 16;
            for (int k = lane; k < pieces; k += 32) copy16(to + (k - lane) * 16, from + (k - lane) * 16);
        }
        ring_arrive(at.full_bar());
    }
    copy_commit();
    copy_wait<0>();
}

/* Queries of the heads from `head` on to f16, turned where they are not yet, rotated where the keys are. */
template <int D>
__device__ static inline void packed_load_q(const cuda_attn &a, const cuda_packed &p, one_room &m, uint8_t *to, int t,
                                            int head, int rep) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % ONE_WARPS;
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
        for (int i = 0; i < D / 32; i++) {
            const int at = i * 32 + lane;
            *reinterpret_cast<__half *>(to + tile_at<D>(0, r, at / 8) + at % 8 * 2) = __float2half_rn(v[i] * down);
        }
        if (lane == 0) m.factor[r] = __uint_as_float((uint32_t)(127 + e) << 23) * a.scale;
    }
}

/* A team's memory. */
struct packed_team {
    uint8_t       *tile, *q, *chances;
    const __half2 *k_pair, *v_pair;
    int            number;
};

template <int D>
__device__ static inline void packed_compute(const cuda_attn &a, const cuda_packed &p, const packed_team &team, one_room &m,
                                             const uint8_t *raw, const ring_item &it, uint32_t empty) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % ONE_WARPS,
              p0 = it.chunk * CHUNK + warp * GROUP;
    team_sync(team.number); /* nobody reads the last values any more */
    unpack_keys<D>(p, team.k_pair, team.tile, raw, it);
    team_sync(team.number);
    const float factor[2] = { m.factor[lane / 4], m.factor[lane / 4 + 8] };
    float       sc[GROUP / 8][4], most[2], sum[2], o[D / 8 / ONE_WARPS][4];
    one_scores<D>(a, sc, most, smem_at(team.q), smem_at(team.tile) + warp * GROUP * D * 2, p0, it.lo, it.hi, factor, lane);
    if (lane % 4 == 0) m.most[warp][lane / 4] = most[0], m.most[warp][lane / 4 + 8] = most[1];
    team_sync(team.number);
    one_most(m, most, lane);
    unpack_values<D>(p, team.v_pair, team.tile, raw, it);
    barrier_arrive(empty);
    one_chances(sc, most, sum, team.chances, warp, p0, it.lo, it.hi, lane);
    if (lane % 4 == 0) m.sum[warp][lane / 4] = sum[0], m.sum[warp][lane / 4 + 8] = sum[1];
    team_sync(team.number);
    one_values<D>(o, smem_at(team.chances), smem_at(team.tile), warp, lane);
    one_write<D>(a, m, it.t, it.kv, it.chunk, most, o, warp, lane);
}

/* The table of pairs of codes, a copy for each of COPIES lanes. */
__device__ static inline void packed_table(__half2 *to, const int8_t *codes) {
    for (int i = (int)threadIdx.x; i < 256 * COPIES; i += (int)blockDim.x)
        to[i] = whole(codes[i / COPIES & 15], codes[i / COPIES >> 4]);
}

template <int D> __host__ __device__ static constexpr int packed_team_bytes() { return CHUNK * D * 2 + 16 * D * 2 + 16 * CHUNK * 2; }

template <int D, int TEAMS>
static __global__ __launch_bounds__(TEAMS *ONE_THREADS + 32) void attn_packed_kernel(const cuda_attn a, const cuda_packed p,
                                                                                     const packed_plan plan) {
    extern __shared__ __align__(128) uint8_t smem[];
    __shared__ one_room                      rooms[TEAMS];
    __shared__ __align__(8) uint64_t full[STAGES_MOST], empty[STAGES_MOST];
    const int lane = (int)threadIdx.x % 32, number = (int)threadIdx.x / ONE_THREADS, rep = a.n_head / a.pages.n_kv;
    launch_next();
    if ((int)threadIdx.x < plan.stages) {
        barrier_init(smem_at(&full[threadIdx.x]), 32);
        barrier_init(smem_at(&empty[threadIdx.x]), ONE_THREADS);
    }
    if (plan.k_table >= 0) packed_table(reinterpret_cast<__half2 *>(smem + plan.k_table), p.k_codes);
    if (plan.v_table >= 0) packed_table(reinterpret_cast<__half2 *>(smem + plan.v_table), p.v_codes);
    __syncthreads();
    ring_place at = { smem_at(full), smem_at(empty), 0, plan.stages, 0 };
    if (number == TEAMS) {
        packed_produce(a, p, smem_at(smem), at, plan, lane);
        return;
    }
    uint8_t          *mine = smem + plan.teams_at + number * packed_team_bytes<D>();
    const packed_team team = { mine, mine + CHUNK * D * 2, mine + (CHUNK + 16) * D * 2,
                               reinterpret_cast<const __half2 *>(smem + max(plan.k_table, 0)) + lane % COPIES,
                               reinterpret_cast<const __half2 *>(smem + max(plan.v_table, 0)) + lane % COPIES, number };
    ring_item         it = ring_begin();
    launch_wait();
    for (int turn = 0; ring_next(a, it, plan.total); ring_step(it), at.advance(), turn++) {
        if (turn % TEAMS != number) continue;
        packed_load_q<D>(a, p, rooms[number], team.q, it.t, it.kv * rep, rep);
        barrier_wait(at.full_bar(), at.parity);
        packed_compute<D>(a, p, team, rooms[number], smem + at.slot * plan.stage_bytes, it, at.empty_bar());
    }
}

/* The parts of one row and head, in order as attn_fold does it; out of rotated space where the values are in it. */
template <int D>
static __global__ __launch_bounds__(D *FOLD_WARPS) void packed_fold_kernel(const cuda_attn a, const cuda_packed p) {
    extern __shared__ __align__(128) uint8_t smem[];
    fold_room<D>                           &m = *reinterpret_cast<fold_room<D> *>(smem);
    __shared__ float                        room[D];
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

bool cuda_attn_packed_can(const cuda_attn *a, const cuda_packed *p) {
    const kv_layout *l = &p->layout;
    return cuda_attn_single(a) && (a->dim_q == 64 || a->dim_q == 128) && CHUNK % l->tokens == 0 &&
           (size_t)(CHUNK / l->tokens) * l->head_bytes <= 72 * 1024;
}

static bool has_table(kv_type type) {
    return type == KV_Q4_0 || type == KV_TQ4 || type == KV_TQ3 || type == KV_TQ2;
}

/* Shared memory of that many teams, with as many places as fit; 0: there is none for two, or for one where `least`. */
template <int D> static size_t packed_cut(packed_plan *plan, const cuda_packed *p, int teams, size_t most, int least) {
    const bool   k = has_table(p->layout.k_type), v = has_table(p->layout.v_type);
    const size_t fixed = (size_t)teams * (packed_team_bytes<D>() + sizeof(one_room)) + (size_t)(k + v) * TABLE_BYTES + 1024;
    plan->stage_bytes = CHUNK / p->layout.tokens * unpack_room(p->layout);
    plan->stages = most > fixed ? (int)((most - fixed) / (size_t)plan->stage_bytes) : 0;
    if (plan->stages > STAGES_MOST) plan->stages = STAGES_MOST;
    if (plan->stages < least) return 0;
    int at = (plan->stages * plan->stage_bytes + 127) / 128 * 128;
    plan->k_table = k ? at : -1;
    plan->v_table = v ? at + k * TABLE_BYTES : -1;
    plan->teams_at = at + (k + v) * TABLE_BYTES;
    return (size_t)plan->teams_at + (size_t)teams * packed_team_bytes<D>();
}

template <int D> static int start(const cuda_attn *a, const cuda_packed *p, cuda_stream s, err *e) {
    int device = 0, sms = 1, smem = 0;
    int rc = cuda_error(e, cudaGetDevice(&device), "the device");
    if (!rc) rc = cuda_error(e, cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device), "the device");
    if (!rc) rc = cuda_error(e, cudaDeviceGetAttribute(&smem, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "memory");
    if (rc) return rc;
    packed_plan plan = {};
    plan.total = (int)((int64_t)a->batch.n_tok * a->pages.n_kv * a->chunks);
    const unsigned blocks = (unsigned)(plan.total < sms ? plan.total : sms);
    size_t         bytes;
    if ((bytes = packed_cut<D>(&plan, p, 3, (size_t)smem, 2)) > 0)
        rc = cuda_launch(attn_packed_kernel<D, 3>, { blocks, 3 * ONE_THREADS + 32, 1, bytes, true }, s, e, *a, *p, plan);
    else if ((bytes = packed_cut<D>(&plan, p, 1, (size_t)smem, 1)) > 0)
        rc = cuda_launch(attn_packed_kernel<D, 1>, { blocks, ONE_THREADS + 32, 1, bytes, true }, s, e, *a, *p, plan);
    else
        return err_set(e, ERR_UNSUPPORTED, "CUDA: shared memory for a chunk of compressed pages");
    const cuda_shape folds = { (unsigned)((int64_t)a->batch.n_tok * a->n_head), D * FOLD_WARPS, 1, sizeof(fold_room<D>), true };
    return rc ? rc : cuda_launch(packed_fold_kernel<D>, folds, s, e, *a, *p);
}

int cuda_attn_packed(const cuda_attn *a, const cuda_packed *p, cuda_stream s, err *e) {
    return a->dim_q == 64 ? start<64>(a, p, s, e) : start<128>(a, p, s, e);
}
