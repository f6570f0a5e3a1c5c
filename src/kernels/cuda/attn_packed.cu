/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of single rows over compressed pages (packed.h) by tensor cores: decode steps. The values of attn_one.cu over the
 * f16 rows that cuda_packed_open would have made, bit for bit, without making them.
 *
 * As many blocks as fit at once take chunks in turn. The bytes of a chunk's keys and values lie one behind the other in each
 * page; they come to shared memory as they are and are unpacked there into the tiles of attn_one.cuh. Then those of the next
 * chunk follow, while this one is computed.
 */
#include "kernels/cuda/attn_one.cuh"
#include "kernels/cuda/packed.cuh"

/* A chunk of one row and key head. */
struct packed_item {
    int chunk, kv, t, s, lo, hi;
};

__device__ static inline bool packed_next(const cuda_attn &a, packed_item &it, int &number, int total) {
    for (; number < total; number += (int)gridDim.x) {
        const int at = number / a.chunks;
        it.chunk = number % a.chunks;
        it.kv = at % a.pages.n_kv;
        it.t = at / a.pages.n_kv;
        attn_range(a, it.t, &it.lo, &it.hi);
        if (it.chunk < it.lo / CHUNK || it.chunk >= (it.hi + CHUNK - 1) / CHUNK) continue;
        it.s = a.batch.seq_of[it.t];
        return true;
    }
    return false;
}

/* The bytes of a chunk's keys and values, page behind page. */
__device__ static inline void packed_fetch(const cuda_attn &a, const cuda_packed &p, uint8_t *raw,
                                           const packed_item &it) {
    const kv_layout &l = p.layout;
    const int        pages = CHUNK / l.tokens, first = it.chunk * pages, pieces = (int)l.head_bytes / 16;
    for (int i = 0; i < pages; i++) {
        const int at = (first + i) * l.tokens;
        if (at + l.tokens <= it.lo || at >= it.hi) continue;
        const uint8_t *from = packed_page(p, a.batch, it.s, first + i) + (size_t)it.kv * l.head_bytes;
        const uint32_t to = smem_at(raw) + (uint32_t)(i * l.head_bytes);
        for (int k = (int)threadIdx.x; k < pieces; k += ONE_THREADS) copy16(to + k * 16, from + k * 16);
    }
    copy_commit();
}

/* Of a power of two. */
__device__ static inline int log_of(int n) { return 31 - __clz(n); }

/* 8 numbers times their scale, in f16. */
struct eight {
    __half2 v[4];
};

__device__ static inline eight times(eight x, __half scale) {
    const __half2 d = __half2half2(scale);
#pragma unroll
    for (int i = 0; i < 4; i++) x.v[i] = __hmul2(x.v[i], d);
    return x;
}

__device__ static inline __half2 whole(int a, int b) { return __halves2half2(__int2half_rn(a), __int2half_rn(b)); }

/* Types without a scale: 8 values, `step` apart from number `first` on. */
template <kv_type T> __device__ static inline eight plain_eight(const uint8_t *area, int first, int step) {
    eight x;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int a = first + 2 * i * step, b = a + step;
        x.v[i] = T == KV_FP8 ? __floats2half2_rn(packed_fp8(area[a]), packed_fp8(area[b]))
                             : __floats2half2_rn(packed_plain(T, area, a), packed_plain(T, area, b));
    }
    return x;
}

/* Dimensions 8 u .. + 7 of K in one slot; pair: two numbers of four bits by their byte. */
template <kv_type T>
__device__ static inline eight k_eight(const cuda_packed &p, const __half2 *pair, const uint8_t *area, int slot, int u) {
    const kv_layout &l = p.layout;
    const int        t = l.tokens;
    constexpr int    BITS = packed_bits(T);
    const uint8_t   *at = area + slot + u * BITS * t;
    eight            x;
    if constexpr (T == KV_Q8_0) {
#pragma unroll
        for (int i = 0; i < 4; i++) x.v[i] = whole((int8_t)at[2 * i * t], (int8_t)at[(2 * i + 1) * t]);
    } else if constexpr (T == KV_Q5_0) {
        const int high = at[4 * t];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int b = at[i * t];
            x.v[i] = whole((b & 15) + (high >> (2 * i) & 1) * 16 - 16, (b >> 4) + (high >> (2 * i + 1) & 1) * 16 - 16);
        }
    } else if constexpr (T == KV_TQ3) {
        const unsigned w = at[0] | at[t] << 8 | at[2 * t] << 16;
#pragma unroll
        for (int i = 0; i < 4; i++) x.v[i] = pair[(w >> (6 * i) & 7) | (w >> (6 * i + 3) & 7) << 4];
    } else if constexpr (T == KV_TQ2) {
        const unsigned w = at[0] | at[t] << 8;
#pragma unroll
        for (int i = 0; i < 4; i++) x.v[i] = pair[(w >> (4 * i) & 3) | (w >> (4 * i + 2) & 3) << 4];
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++) x.v[i] = pair[at[i * t]];
    }
    const uint16_t *scale = reinterpret_cast<const uint16_t *>(area + t * l.k_dim * BITS / 8);
    return times(x, __ushort_as_half(scale[(u * 8 >> log_of(l.k_group)) * t + slot]));
}

/* Dimensions d .. + 7 of V in one slot. */
template <kv_type T>
__device__ static inline eight v_eight(const cuda_packed &p, const __half2 *pair, const uint8_t *area, int slot, int d) {
    const kv_layout &l = p.layout;
    constexpr int    BITS = packed_bits(T);
    const uint8_t   *at = area + slot * l.v_dim * BITS / 8 + d / KV_GROUP * KV_GROUP * BITS / 8;
    const int        in = d % KV_GROUP, by = log_of(l.v_group);
    eight            x;
    int              n[8];
    if constexpr (T == KV_Q8_0) {
        const uint2 w = *reinterpret_cast<const uint2 *>(at + in);
#pragma unroll
        for (int i = 0; i < 8; i++) n[i] = (int8_t)((i < 4 ? w.x : w.y) >> (i % 4 * 8));
    } else if constexpr (T == KV_TQ3) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int w = at[i] | (at[8 + i % 4] >> (i / 4 * 4) & 15) << 8;
            n[i] = w >> (in / 8 * 3) & 7;
        }
    } else if constexpr (T == KV_TQ2) {
#pragma unroll
        for (int i = 0; i < 8; i++) n[i] = at[i] >> (in / 8 * 2) & 3;
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            n[i] = at[in % 16 + i] >> (in / 16 * 4) & 15;
            if (T == KV_Q5_0) n[i] += (at[16 + in / 8] >> i & 1) * 16 - 16;
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        x.v[i] = T == KV_Q8_0 || T == KV_Q5_0 ? whole(n[2 * i], n[2 * i + 1]) : pair[n[2 * i] | n[2 * i + 1] << 4];
    const uint16_t *scale = reinterpret_cast<const uint16_t *>(area + l.tokens * l.v_dim * BITS / 8);
    return times(x, __ushort_as_half(scale[slot * (l.v_dim >> by) + (d >> by)]));
}

/* 8 dimensions of a slot, of either side and any type. */
template <kv_type T, bool KEYS>
__device__ static inline eight any_eight(const cuda_packed &p, const __half2 *pair, const uint8_t *head, int slot, int u) {
    const kv_layout &l = p.layout;
    if constexpr (packed_bits(T) > 8 || T == KV_FP8) {
        return KEYS ? plain_eight<T>(head, u * 8 * l.tokens + slot, l.tokens)
                    : plain_eight<T>(head + l.k_bytes, slot * l.v_dim + u * 8, 1);
    } else if constexpr (KEYS) {
        return k_eight<T>(p, pair, head, slot, u);
    } else {
        return v_eight<T>(p, pair, head + l.k_bytes, slot, u * 8);
    }
}

__device__ static inline void put_eight(uint8_t *to, eight x, bool seen) {
    uint4 w = *reinterpret_cast<const uint4 *>(x.v);
    if (!seen) w = make_uint4(0, 0, 0, 0);
    *reinterpret_cast<uint4 *>(to) = w;
}

/* Neighbours of K are positions, a thread has one of them; those of V are dimensions, a thread has 8 of them. */
template <int D, kv_type T, bool KEYS>
__device__ static inline void packed_tile(const cuda_packed &p, const __half2 *pair, uint8_t *tile, const uint8_t *raw,
                                          const packed_item &it) {
    constexpr int UNITS = D / 8;
    const int     shift = 31 - __clz(p.layout.tokens), head_bytes = (int)p.layout.head_bytes, me = (int)threadIdx.x;
    static_assert(ONE_THREADS == CHUNK, "a thread per position");
#pragma unroll 4
    for (int i = 0; i < UNITS; i++) {
        const int      j = KEYS ? me : i * (CHUNK / UNITS) + me / UNITS, u = KEYS ? i : me % UNITS;
        const int      pos = it.chunk * CHUNK + j, slot = j & ((1 << shift) - 1);
        const uint8_t *head = raw + (j >> shift) * head_bytes;
        const bool     seen = pos >= it.lo && pos < it.hi;
        eight          x;
        if (seen) x = any_eight<T, KEYS>(p, pair, head, slot, u);
        put_eight(tile + tile_at<D>(0, j, u), x, seen);
    }
}

template <int D, bool KEYS>
__device__ static inline void packed_unpack(const cuda_packed &p, const __half2 *pair, uint8_t *tile, const uint8_t *raw,
                                            const packed_item &it) {
    switch (KEYS ? p.layout.k_type : p.layout.v_type) {
    case KV_F32: packed_tile<D, KV_F32, KEYS>(p, pair, tile, raw, it); return;
    case KV_F16: packed_tile<D, KV_F16, KEYS>(p, pair, tile, raw, it); return;
    case KV_BF16: packed_tile<D, KV_BF16, KEYS>(p, pair, tile, raw, it); return;
    case KV_Q8_0: packed_tile<D, KV_Q8_0, KEYS>(p, pair, tile, raw, it); return;
    case KV_Q5_0: packed_tile<D, KV_Q5_0, KEYS>(p, pair, tile, raw, it); return;
    case KV_TQ3: packed_tile<D, KV_TQ3, KEYS>(p, pair, tile, raw, it); return;
    case KV_TQ2: packed_tile<D, KV_TQ2, KEYS>(p, pair, tile, raw, it); return;
    case KV_FP8: packed_tile<D, KV_FP8, KEYS>(p, pair, tile, raw, it); return;
    default: packed_tile<D, KV_TQ4, KEYS>(p, pair, tile, raw, it); return; /* and q4_0: the pairs differ */
    }
}

/* Queries of the heads from `head` on to f16, turned where they are not yet, rotated where the keys are. */
template <int D>
__device__ static inline void packed_load_q(const cuda_attn &a, const cuda_packed &p, one_room &m, uint8_t *to, int t,
                                            int head, int rep) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
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

template <int D>
__device__ static inline void packed_write(const cuda_attn &a, const one_room &m, const packed_item &it,
                                           const float most[2], const float o[D / 8 / ONE_WARPS][4], int warp, int lane) {
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

template <int D>
static __global__ __launch_bounds__(ONE_THREADS) void attn_packed_kernel(const cuda_attn a, const cuda_packed p,
                                                                         int total) {
    extern __shared__ __align__(128) uint8_t smem[];
    __shared__ one_room                      m;
    __shared__ __half2                       k_pair[256], v_pair[256];
    uint8_t  *k = smem, *v = k + CHUNK * D * 2, *q = v + CHUNK * D * 2, *chances = q + 16 * D * 2,
            *raw = chances + 16 * CHUNK * 2;
    const int   lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, rep = a.n_head / a.pages.n_kv;
    int         number = (int)blockIdx.x;
    packed_item it, next;
    for (int i = (int)threadIdx.x; i < 256; i += ONE_THREADS) {
        k_pair[i] = whole(p.k_codes[i & 15], p.k_codes[i >> 4]);
        v_pair[i] = whole(p.v_codes[i & 15], p.v_codes[i >> 4]);
    }
    launch_next();
    launch_wait(); /* another kernel stored the rows' own positions */
    if (!packed_next(a, it, number, total)) return;
    packed_fetch(a, p, raw, it);
    for (bool there = true; there; it = next) {
        const int p0 = it.chunk * CHUNK + warp * GROUP;
        packed_load_q<D>(a, p, m, q, it.t, it.kv * rep, rep);
        copy_wait<0>();
        one_sync(); /* bytes and queries; nobody reads the last chunk's tiles any more */
        packed_unpack<D, true>(p, k_pair, k, raw, it);
        packed_unpack<D, false>(p, v_pair, v, raw, it);
        one_sync();
        number += (int)gridDim.x;
        there = packed_next(a, next, number, total);
        if (there) packed_fetch(a, p, raw, next);
        const float factor[2] = { m.factor[lane / 4], m.factor[lane / 4 + 8] };
        float       sc[GROUP / 8][4], most[2], sum[2], o[D / 8 / ONE_WARPS][4];
        one_scores<D>(a, sc, most, smem_at(q), smem_at(k) + warp * GROUP * D * 2, p0, it.lo, it.hi, factor, lane);
        if (lane % 4 == 0) m.most[warp][lane / 4] = most[0], m.most[warp][lane / 4 + 8] = most[1];
        one_sync();
#pragma unroll
        for (int r = 0; r < 2; r++) {
            most[r] = m.most[0][lane / 4 + r * 8];
#pragma unroll
            for (int w = 1; w < ONE_WARPS; w++) most[r] = fmaxf(most[r], m.most[w][lane / 4 + r * 8]);
        }
        one_chances(sc, most, sum, chances, warp, p0, it.lo, it.hi, lane);
        if (lane % 4 == 0) m.sum[warp][lane / 4] = sum[0], m.sum[warp][lane / 4 + 8] = sum[1];
        one_sync();
        one_values<D>(o, smem_at(chances), smem_at(v), warp, lane);
        packed_write<D>(a, m, it, most, o, warp, lane);
        one_sync(); /* sums and queries are made anew */
    }
}

/* The parts of one row and head, in order as attn_fold does it; out of rotated space where the values are in it. */
template <int D>
static __global__ __launch_bounds__(D) void packed_fold_kernel(const cuda_attn a, const cuda_packed p) {
    launch_begin();
    __shared__ float room[D];
    const int64_t    row = blockIdx.x, stride = D + 2;
    const int        i = (int)threadIdx.x, lane = i % 32;
    const float     *parts = a.parts + row * a.chunks * stride;
    int              lo, hi;
    attn_range(a, (int)(row / a.n_head), &lo, &hi);
    const int first = lo / CHUNK, end = (hi + CHUNK - 1) / CHUNK;
    attn_sum  sums = attn_begin(a, (int)(row % a.n_head));
    float     all = 0;
    for (int c = first; c < end; c += FOLDED) {
        float most[FOLDED], sum[FOLDED], o[FOLDED];
#pragma unroll
        for (int k = 0; k < FOLDED; k++) {
            const float *part = parts + (int64_t)min(c + k, end - 1) * stride;
            most[k] = part[0], sum[k] = part[1], o[k] = part[2 + i];
        }
#pragma unroll
        for (int k = 0; k < FOLDED; k++) {
            if (c + k >= end) continue;
            float f_old, f_part;
            sums = attn_fold(sums, { most[k], sum[k] }, &f_old, &f_part);
            all = all * f_old + o[k] * f_part;
        }
    }
    float v = all / sums.sum;
    if (p.layout.v_block) {
#pragma unroll
        for (int h = 1; h < 32; h *= 2) {
            const float other = __shfl_xor_sync(0xffffffffu, v, h);
            v = lane & h ? other - v : v + other;
        }
#pragma unroll
        for (int h = 32; h < D; h *= 2) {
            __syncthreads();
            room[i] = v;
            __syncthreads();
            v = i & h ? room[i ^ h] - v : v + room[i ^ h];
        }
        v = packed_flip(v * (1.0f / sqrtf((float)D)), p.signs[i / 32], lane);
    }
    a.out[row * D + i] = v;
}

bool cuda_attn_packed_can(const cuda_attn *a, const cuda_packed *p) {
    const kv_layout *l = &p->layout;
    return cuda_attn_single(a) && (a->dim_q == 64 || a->dim_q == 128) && CHUNK % l->tokens == 0 &&
           (size_t)(CHUNK / l->tokens) * l->head_bytes <= 72 * 1024;
}

template <int D> static int start(const cuda_attn *a, const cuda_packed *p, cuda_stream s, err *e) {
    const int64_t total = (int64_t)a->batch.n_tok * a->pages.n_kv * a->chunks;
    const size_t  bytes = one_bytes<D>() + (size_t)(CHUNK / p->layout.tokens) * p->layout.head_bytes;
    int           device = 0, sms = 1, smem = 0;
    int           rc = cuda_error(e, cudaGetDevice(&device), "the device");
    if (!rc) rc = cuda_error(e, cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device), "the device");
    if (!rc)
        rc = cuda_error(e, cudaDeviceGetAttribute(&smem, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device), "memory");
    if (rc) return rc;
    const int64_t    fit = (int64_t)sms * (smem / (int)(bytes + sizeof(one_room) + 3072));
    const cuda_shape shape = { (unsigned)(total < fit ? total : fit), ONE_THREADS, 1, bytes, true };
    rc = cuda_launch(attn_packed_kernel<D>, shape, s, e, *a, *p, (int)total);
    const cuda_shape folds = { (unsigned)((int64_t)a->batch.n_tok * a->n_head), D, 1, 0, true };
    return rc ? rc : cuda_launch(packed_fold_kernel<D>, folds, s, e, *a, *p);
}

int cuda_attn_packed(const cuda_attn *a, const cuda_packed *p, cuda_stream s, err *e) {
    return a->dim_q == 64 ? start<64>(a, p, s, e) : start<128>(a, p, s, e);
}
