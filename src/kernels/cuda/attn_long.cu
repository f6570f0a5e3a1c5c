/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of single rows over f16 pages behind many positions: the values of attn_one.cu, bit for bit, at the speed of
 * reading.
 *
 * As many blocks as the device has multiprocessors take chunks of a key head in turn. Four warps copy keys and values into
 * a ring in shared memory; two teams of four warps multiply, each every other chunk. So copies are under way while chunks are
 * computed, and one chunk's meetings and exponentials are hidden behind another's. A row's own position comes from the
 * product in front: the team that has its chunk adds it to the tile and to its page. Copying begins before that product has
 * ended. Chunks are left as parts (attn_fold.cu).
 */
#include "kernels/cuda/attn_ring.cuh"

#define TEAMS 2
#define THREADS ((TEAMS + 1) * ONE_THREADS)
#define RING_BYTES (192 * 1024)

template <int D> struct long_ring {
    enum { SIDE = CHUNK * D * 2, BYTES = 2 * SIDE, STAGES = RING_BYTES / BYTES };
};

/* 16 bytes, or zeros. */
__device__ static inline void copy16_or_zero(uint32_t to, const void *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}

/* Rows 32 warp .. of one side, whose addresses the lanes have. */
template <int D>
__device__ static inline void long_copy(uint32_t tile, unsigned long long mine, const uint8_t *base, int warp, int lane) {
    constexpr int PIECES = D / 8, ROWS = 32 / PIECES;
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        const int                r = i * ROWS + lane / PIECES;
        const unsigned long long from = __shfl_sync(0xffffffffu, mine, r);
        copy16_or_zero(tile_at<D>(tile, warp * GROUP + r, lane % PIECES),
                       (from ? (const uint8_t *)from : base) + lane % PIECES * 16, from != 0);
    }
}

template <int D>
__device__ static inline void long_produce(const cuda_attn &a, uint32_t ring, ring_place at, int total, int warp, int lane) {
    ring_item it = ring_begin();
    for (; ring_next(a, it, total); ring_step(it), at.advance()) {
        const int          p = it.chunk * CHUNK + warp * GROUP + lane;
        unsigned long long k = 0, v = 0;
        if (p >= it.lo && p < it.hi - (a.table ? 1 : 0)) {
            int      in_page;
            uint8_t *page = page_at(a.pages, a.batch, it.s, p, &in_page);
            k = (unsigned long long)page_k(a.pages, page, it.kv, in_page);
            v = (unsigned long long)page_v(a.pages, page, it.kv, in_page);
        }
        const uint32_t to = ring + at.slot * long_ring<D>::BYTES;
        barrier_wait(at.empty_bar(), at.parity ^ 1);
        long_copy<D>(to, k, a.pages.base, warp, lane);
        long_copy<D>(to + long_ring<D>::SIDE, v, a.pages.base, warp, lane);
        ring_arrive(at.full_bar());
    }
    copy_commit();
    copy_wait<0>();
}

template <int D>
__device__ static inline void long_compute(const cuda_attn &a, uint8_t *ring, uint8_t *q, one_room &m, const ring_item &it,
                                           int team, int warp, int lane) {
    uint8_t  *k = ring, *v = k + long_ring<D>::SIDE, *p = q + 16 * D * 2;
    const int own = a.table ? it.hi - 1 : -1, p0 = it.chunk * CHUNK + warp * GROUP;
    if (own >= 0 && own / CHUNK == it.chunk && warp == ONE_WARPS - 1) {
        const one_pages pages = one_pages_of(a, it.s);
        one_store<D, true>(a, pages, k, it.t, it.kv, own, lane);
        one_store<D, false>(a, pages, v, it.t, it.kv, own, lane);
    }
    team_sync(team);
    const float factor[2] = { m.factor[lane / 4], m.factor[lane / 4 + 8] };
    float       sc[GROUP / 8][4], most[2], sum[2], o[D / 8 / ONE_WARPS][4];
    one_scores<D>(a, sc, most, smem_at(q), smem_at(k) + warp * GROUP * D * 2, p0, it.lo, it.hi, factor, lane);
    if (lane % 4 == 0) m.most[warp][lane / 4] = most[0], m.most[warp][lane / 4 + 8] = most[1];
    team_sync(team);
    one_most(m, most, lane);
    one_chances(sc, most, sum, p, warp, p0, it.lo, it.hi, lane);
    if (lane % 4 == 0) m.sum[warp][lane / 4] = sum[0], m.sum[warp][lane / 4 + 8] = sum[1];
    team_sync(team);
    one_values<D>(o, smem_at(p), smem_at(v), warp, lane);
    one_write<D>(a, m, it.t, it.kv, it.chunk, most, o, warp, lane);
}

template <int D>
__device__ static inline void long_consume(const cuda_attn &a, uint8_t *ring, uint8_t *q, one_room &m, ring_place at,
                                           int total, int team, int warp, int lane) {
    const int rep = a.n_head / a.pages.n_kv;
    ring_item it = ring_begin();
    launch_wait();
    for (int turn = 0; ring_next(a, it, total); ring_step(it), at.advance(), turn++) {
        if (turn % TEAMS != team) continue;
        float2 first_q[(D + 63) / 64];
        if (warp < rep) one_fetch_q<D>(a, first_q, it.t, it.kv * rep + warp, lane);
        one_load_q<D>(a, m, q, it.t, it.kv * rep, rep, first_q);
        barrier_wait(at.full_bar(), at.parity);
        long_compute<D>(a, ring + at.slot * long_ring<D>::BYTES, q, m, it, team, warp, lane);
        barrier_arrive(at.empty_bar());
    }
}

template <int D> static __global__ __launch_bounds__(THREADS, 1) void attn_long_kernel(const cuda_attn a, int total) {
    extern __shared__ __align__(128) uint8_t smem[];
    __shared__ one_room                      rooms[TEAMS];
    __shared__ __align__(8) uint64_t full[long_ring<D>::STAGES], empty[long_ring<D>::STAGES];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % ONE_WARPS,
              team = (int)threadIdx.x / ONE_THREADS;
    launch_next();
    if (threadIdx.x < long_ring<D>::STAGES) {
        barrier_init(smem_at(&full[threadIdx.x]), ONE_THREADS);
        barrier_init(smem_at(&empty[threadIdx.x]), ONE_THREADS);
    }
    __syncthreads();
    const ring_place at = { smem_at(full), smem_at(empty), 0, long_ring<D>::STAGES, 0 };
    if (team == TEAMS) {
        if (!a.table) launch_wait(); /* another kernel stored the rows' own positions */
        long_produce<D>(a, smem_at(smem), at, total, warp, lane);
        return;
    }
    uint8_t *q = smem + long_ring<D>::STAGES * long_ring<D>::BYTES + team * (16 * D * 2 + 16 * CHUNK * 2);
    long_consume<D>(a, smem, q, rooms[team], at, total, team, warp, lane);
}

template <int D> static constexpr size_t long_bytes() {
    return (size_t)long_ring<D>::STAGES * long_ring<D>::BYTES + TEAMS * (16 * D * 2 + 16 * CHUNK * 2);
}

bool attn_long_can(const cuda_attn *a) {
    int device = 0, most = 0;
    return a->chunks > FOLDED && cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) == cudaSuccess &&
           (size_t)most >= long_bytes<128>() + 2048;
}

template <int D> static int start(const cuda_attn *a, cuda_stream s, err *e) {
    const int64_t total = (int64_t)a->batch.n_tok * a->pages.n_kv * a->chunks;
    int           device = 0, sms = 1;
    int           rc = cuda_error(e, cudaGetDevice(&device), "the device");
    if (!rc) rc = cuda_error(e, cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device), "the device");
    if (rc) return rc;
    const cuda_shape shape = { (unsigned)(total < sms ? total : sms), THREADS, 1, long_bytes<D>(), true };
    return cuda_launch(attn_long_kernel<D>, shape, s, e, *a, (int)total);
}

int attn_long(const cuda_attn *a, cuda_stream s, err *e) {
    return a->dim_q == 64 ? start<64>(a, s, e) : start<128>(a, s, e);
}
