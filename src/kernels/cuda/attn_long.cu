/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn_one.cu for long contexts: the same values, with the next chunk's keys and values on their way while a block works.
 *
 * As many blocks as fit at once take chunks in turn. When the scores of a chunk are there, a warp's keys are done with:
 * those of the next chunk follow into the same place; the same holds for its columns of the values. So at least one of the
 * two tiles of each block is always being read, and reading does not stop where blocks begin and end.
 */
#include "kernels/cuda/attn_one.cuh"

/* One chunk of one row and key head. */
struct long_item {
    int chunk, at, kv, t, s, lo, hi, own;
};

/* The first that has positions in its chunk, of `number` and those behind it in steps; false: there is none. */
__device__ static inline bool long_next(const cuda_attn &a, long_item &it, int &number, int step, int total) {
    for (; number < total; number += step) {
        it.chunk = number % a.chunks;
        it.at = number / a.chunks;
        it.kv = it.at % a.pages.n_kv;
        it.t = it.at / a.pages.n_kv;
        attn_range(a, it.t, &it.lo, &it.hi);
        if (it.chunk < it.lo / CHUNK || it.chunk >= (it.hi + CHUNK - 1) / CHUNK) continue;
        it.s = a.batch.seq_of[it.t];
        it.own = a.table ? it.hi - 1 : -1;
        return true;
    }
    return false;
}

template <int D, bool KEYS>
__device__ static inline void long_load(const cuda_attn &a, uint8_t *to, const long_item &it, bool there, int warp,
                                        int lane) {
    if (there)
        one_load<D, KEYS>(a, to, it.s, it.kv, it.chunk * CHUNK, it.lo, it.hi, it.own, warp, lane);
    else
        copy_commit(); /* waits count groups of copies */
}

/* The row's own position lies in this chunk. */
__device__ static inline bool long_owns(const long_item &it) { return it.own >= 0 && it.own / CHUNK == it.chunk; }

template <int D>
__device__ static inline void long_write(const cuda_attn &a, const one_room &m, const long_item &it, const float most[2],
                                         const float o[D / 8 / ONE_WARPS][4], int warp, int lane) {
    const int rep = a.n_head / a.pages.n_kv;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int row = lane / 4 + r * 8;
        if (row >= rep) continue;
        float *part = a.parts + (((int64_t)it.t * a.n_head + it.kv * rep + row) * a.chunks + it.chunk) * (D + 2);
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

template <int D> static __global__ __launch_bounds__(ONE_THREADS) void attn_long_kernel(const cuda_attn a, int total) {
    extern __shared__ __align__(128) uint8_t smem[];
    __shared__ one_room                      m;
    uint8_t  *k = smem, *v = k + CHUNK * D * 2, *q = v + CHUNK * D * 2, *p = q + 16 * D * 2;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, rep = a.n_head / a.pages.n_kv;
    int       number = (int)blockIdx.x;
    long_item it, next;
    launch_next();
    if (!a.table) launch_wait(); /* another kernel stored the rows' own positions */
    bool there = long_next(a, it, number, (int)gridDim.x, total);
    if (!there) return;
    long_load<D, true>(a, k, it, true, warp, lane);
    long_load<D, false>(a, v, it, true, warp, lane);
    if (a.table) launch_wait();
    one_load_q<D>(a, m, q, it.t, it.kv * rep, rep);
    for (;; it = next) {
        const int p0 = it.chunk * CHUNK + warp * GROUP;
        if (long_owns(it) && warp == ONE_WARPS - 1) one_store<D, true>(a, k, it.t, it.s, it.kv, it.own, lane);
        copy_wait<1>();
        one_sync(); /* keys and queries; nobody reads the last chunk's probabilities and values any more */
        const float factor[2] = { m.factor[lane / 4], m.factor[lane / 4 + 8] };
        float       sc[GROUP / 8][4], most[2], sum[2];
        one_scores<D>(a, sc, most, smem_at(q), smem_at(k) + warp * GROUP * D * 2, p0, it.lo, it.hi, factor, lane);
        if (lane % 4 == 0) m.most[warp][lane / 4] = most[0], m.most[warp][lane / 4 + 8] = most[1];
        number += (int)gridDim.x;
        there = long_next(a, next, number, (int)gridDim.x, total);
        one_sync();
        long_load<D, true>(a, k, next, there, warp, lane);
        if (long_owns(it) && warp == ONE_WARPS - 1) one_store<D, false>(a, v, it.t, it.s, it.kv, it.own, lane);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            most[r] = m.most[0][lane / 4 + r * 8];
#pragma unroll
            for (int w = 1; w < ONE_WARPS; w++) most[r] = fmaxf(most[r], m.most[w][lane / 4 + r * 8]);
        }
        one_chances(sc, most, sum, p, warp, p0, it.lo, it.hi, lane);
        if (lane % 4 == 0) m.sum[warp][lane / 4] = sum[0], m.sum[warp][lane / 4 + 8] = sum[1];
        if (there) one_load_q<D>(a, m, q, next.t, next.kv * rep, rep);
        copy_wait<1>();
        one_sync(); /* values and probabilities */
        float o[D / 8 / ONE_WARPS][4];
        one_values<D>(o, smem_at(p), smem_at(v), warp, lane);
        __syncwarp();
        long_load<D, false>(a, v, next, there, warp, lane);
        long_write<D>(a, m, it, most, o, warp, lane);
        if (!there) return;
    }
}

/* As many as are resident at once; each takes several chunks. */
template <int D> static int start(const cuda_attn *a, cuda_stream s, err *e) {
    const int64_t total = (int64_t)a->batch.n_tok * a->pages.n_kv * a->chunks;
    int           device = 0, sms = 1, smem = 0;
    int           rc = cuda_error(e, cudaGetDevice(&device), "the device");
    if (!rc) rc = cuda_error(e, cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device), "the device");
    if (!rc)
        rc = cuda_error(e, cudaDeviceGetAttribute(&smem, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device), "memory");
    if (rc) return rc;
    const int64_t    fit = (int64_t)sms * (smem / (int)(one_bytes<D>() + sizeof(one_room) + 1024));
    const cuda_shape shape = { (unsigned)(total < fit ? total : fit), ONE_THREADS, 1, one_bytes<D>(), true };
    return cuda_launch(attn_long_kernel<D>, shape, s, e, *a, (int)total);
}

int attn_long(const cuda_attn *a, cuda_stream s, err *e) {
    return a->dim_q == 64 ? start<64>(a, s, e) : start<128>(a, s, e);
}
