/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of a chunk of compressed keys or values in shared memory (kernels/kvpage.h) to a tile of f16 rows there, by the
 * 128 threads of a team. A number times its scale is rounded once.
 *
 * The common types go a fast way. Neighbours of K are positions: a thread has four of them (a word) of eight dimensions,
 * and brings each to its row; words are turned by the lane, so that lanes that store at the same time have rows whose places
 * lie in different banks. Neighbours of V are dimensions. Whole numbers become f16 in the mantissa of 1024; codes are looked
 * up two at a time in a table that lanes have copies of. Pages lie unpack_room apart, for the sake of banks, too.
 */
#ifndef KERNELS_CUDA_ATTN_UNPACK_CUH
#define KERNELS_CUDA_ATTN_UNPACK_CUH

#include "kernels/cuda/attn_ring.cuh"
#include "kernels/cuda/packed.cuh"

#define COPIES 16                         /* of the table of pairs */
#define TABLE_BYTES (256 * COPIES * 4)

/* Bytes from page to page of a chunk. */
__host__ __device__ static inline int unpack_room(const kv_layout &l) {
    return ((int)l.head_bytes + 127) / 128 * 128 + l.tokens;
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
        for (int i = 0; i < 4; i++) x.v[i] = pair[((w >> (6 * i) & 7) | (w >> (6 * i + 3) & 7) << 4) * COPIES];
    } else if constexpr (T == KV_TQ2) {
        const unsigned w = at[0] | at[t] << 8;
#pragma unroll
        for (int i = 0; i < 4; i++) x.v[i] = pair[((w >> (4 * i) & 3) | (w >> (4 * i + 2) & 3) << 4) * COPIES];
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++) x.v[i] = pair[at[i * t] * COPIES];
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
        x.v[i] = T == KV_Q8_0 || T == KV_Q5_0 ? whole(n[2 * i], n[2 * i + 1]) : pair[(n[2 * i] | n[2 * i + 1] << 4) * COPIES];
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

/* Any type: of K a thread has one position, of V 8 dimensions. */
template <int D, kv_type T, bool KEYS>
__device__ static inline void packed_tile(const cuda_packed &p, const __half2 *pair, uint8_t *tile, const uint8_t *raw,
                                          const ring_item &it) {
    constexpr int UNITS = D / 8;
    const int     shift = 31 - __clz(p.layout.tokens), room = unpack_room(p.layout), me = (int)threadIdx.x % ONE_THREADS;
    static_assert(ONE_THREADS == CHUNK, "a thread per position");
#pragma unroll 4
    for (int i = 0; i < UNITS; i++) {
        const int      j = KEYS ? me : i * (CHUNK / UNITS) + me / UNITS, u = KEYS ? i : me % UNITS;
        const int      pos = it.chunk * CHUNK + j, slot = j & ((1 << shift) - 1);
        const uint8_t *head = raw + (j >> shift) * room;
        const bool     seen = pos >= it.lo && pos < it.hi;
        eight          x;
        if (seen) x = any_eight<T, KEYS>(p, pair, head, slot, u);
        put_eight(tile + tile_at<D>(0, j, u), x, seen);
    }
}

/* ---- the common types ---- */

__device__ static inline __half2 as_pair(uint32_t u) { return *reinterpret_cast<__half2 *>(&u); }

/* Two signed bytes at bits 0 and 16. */
__device__ static inline __half2 bytes_pair(uint32_t w) {
    return __hsub2(as_pair((w & 0x00ff00ffu) ^ 0x64806480u), __float2half2_rn(1024 + 128));
}

/* Two numbers of e4m3 at bits 8 and 24. */
__device__ static inline __half2 fp8_pair(uint32_t w) {
    return __hmul2(as_pair((w & 0x80008000u) | (w & 0x7f007f00u) >> 1), __float2half2_rn(256));
}

/* Bits `at` .. at + 7 of w as an index. */
__device__ static inline __half2 code_pair(const __half2 *pair, uint32_t w, int at) {
    return pair[(w >> at & 0xff) * COPIES];
}

/* Words of four positions of row `row` of K, turned by `turn` bits. */
__device__ static inline uint32_t k_word(const uint8_t *area, int row, int tokens, int slot, int turn) {
    const uint32_t w = *reinterpret_cast<const uint32_t *>(area + row * tokens + slot);
    return __funnelshift_r(w, w, turn);
}

template <kv_type T>
__device__ static inline void k_words(uint32_t w[8], const uint8_t *area, int u, int tokens, int slot, int turn) {
    constexpr int ROWS = packed_bits(T);
#pragma unroll
    for (int i = 0; i < ROWS; i++) w[i] = k_word(area, u * ROWS + i, tokens, slot, turn);
}

/* 8 dimensions of the position in byte j of each word. */
template <kv_type T> __device__ static inline eight k_column(const uint32_t w[8], int j, const __half2 *pair, __half scale) {
    eight x;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if constexpr (T == KV_Q8_0)
            x.v[i] = bytes_pair(__byte_perm(w[2 * i], w[2 * i + 1], j | (4 + j) << 8));
        else if constexpr (T == KV_FP8)
            x.v[i] = fp8_pair(__byte_perm(w[2 * i], w[2 * i + 1], j << 4 | (4 + j) << 12));
        else
            x.v[i] = code_pair(pair, w[i], 8 * j);
    }
    return T == KV_FP8 ? x : times(x, scale);
}

/* Positions that nobody sees have what their bytes happen to say: their scores are not looked at. */
template <int D, kv_type T>
__device__ static inline void fast_keys(const cuda_packed &p, const __half2 *pair, uint8_t *tile, const uint8_t *raw) {
    constexpr int    UNITS = D / 8 / ONE_WARPS;
    const kv_layout &l = p.layout;
    const int        lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % ONE_WARPS, shift = log_of(l.tokens);
    const int        first = lane * 4, slot = first & (l.tokens - 1), turn = lane >> 1 & 3;
    const uint8_t   *area = raw + (first >> shift) * unpack_room(l);
    const uint16_t  *scales = reinterpret_cast<const uint16_t *>(area + l.tokens * D * packed_bits(T) / 8) +
                             (warp * UNITS * 8 >> log_of(l.k_group)) * l.tokens + slot;
    __half           scale[4] = {};
#pragma unroll
    for (int j = 0; j < 4 && T != KV_FP8; j++) scale[j] = __ushort_as_half(scales[(j + turn) & 3]);
#pragma unroll
    for (int i = 0; i < UNITS; i++) {
        const int u = warp * UNITS + i;
        uint32_t  w[8];
        k_words<T>(w, area, u, l.tokens, slot, turn * 8);
#pragma unroll
        for (int j = 0; j < 4; j++)
            put_eight(tile + tile_at<D>(0, first + ((j + turn) & 3), u), k_column<T>(w, j, pair, scale[j]), true);
    }
}

template <int D, kv_type T>
__device__ static inline void fast_values_8(const cuda_packed &p, uint8_t *tile, const uint8_t *raw, const ring_item &it) {
    constexpr int    UNITS = D / 8;
    const kv_layout &l = p.layout;
    const int        me = (int)threadIdx.x % ONE_THREADS, u = me % UNITS, shift = log_of(l.tokens), room = unpack_room(l);
#pragma unroll 4
    for (int j = me / UNITS; j < CHUNK; j += ONE_THREADS / UNITS) {
        const int      pos = it.chunk * CHUNK + j, slot = j & (l.tokens - 1);
        const uint8_t *area = raw + (j >> shift) * room + l.k_bytes;
        const uint2    w = *reinterpret_cast<const uint2 *>(area + slot * D + u * 8);
        eight          x;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t half = i < 2 ? w.x : w.y;
            x.v[i] = T == KV_FP8 ? fp8_pair(__byte_perm(half, 0, i % 2 ? 0x3020 : 0x1000))
                                 : bytes_pair(__byte_perm(half, 0, i % 2 ? 0x0302 : 0x0100));
        }
        if (T != KV_FP8) {
            const uint16_t *scales = reinterpret_cast<const uint16_t *>(area + l.tokens * D);
            x = times(x, __ushort_as_half(scales[slot * (D >> log_of(l.v_group)) + (u * 8 >> log_of(l.v_group))]));
        }
        put_eight(tile + tile_at<D>(0, j, u), x, pos >= it.lo && pos < it.hi);
    }
}

/* A thread has 8 bytes: dimensions 8 h .. and 16 + 8 h .. of a group of 32. */
template <int D>
__device__ static inline void fast_values_4(const cuda_packed &p, const __half2 *pair, uint8_t *tile, const uint8_t *raw,
                                            const ring_item &it) {
    constexpr int    PIECES = D / 16;
    const kv_layout &l = p.layout;
    const int        me = (int)threadIdx.x % ONE_THREADS, at = me % PIECES, u = at / 2 * 4 + at % 2;
    const int        shift = log_of(l.tokens), room = unpack_room(l), by = log_of(l.v_group);
#pragma unroll 4
    for (int j = me / PIECES; j < CHUNK; j += ONE_THREADS / PIECES) {
        const int       pos = it.chunk * CHUNK + j, slot = j & (l.tokens - 1);
        const bool      seen = pos >= it.lo && pos < it.hi;
        const uint8_t  *area = raw + (j >> shift) * room + l.k_bytes;
        const uint2     w = *reinterpret_cast<const uint2 *>(area + slot * (D / 2) + at * 8);
        const uint16_t *scales = reinterpret_cast<const uint16_t *>(area + l.tokens * D / 2);
        const __half    scale = __ushort_as_half(scales[slot * (D >> by) + (u * 8 >> by)]);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t a = w.x >> (4 * h) & 0x0f0f0f0fu, b = w.y >> (4 * h) & 0x0f0f0f0fu;
            a |= a >> 4, b |= b >> 4;
            const eight x = { { code_pair(pair, a, 0), code_pair(pair, a, 16), code_pair(pair, b, 0), code_pair(pair, b, 16) } };
            put_eight(tile + tile_at<D>(0, j, u + 2 * h), times(x, scale), seen);
        }
    }
}

/* pair: this lane's copy of the table of two codes, in its first entry. */
template <int D>
__device__ static inline void unpack_keys(const cuda_packed &p, const __half2 *pair, uint8_t *tile, const uint8_t *raw,
                                          const ring_item &it) {
    switch (p.layout.k_type) {
    case KV_F32: packed_tile<D, KV_F32, true>(p, pair, tile, raw, it); return;
    case KV_F16: packed_tile<D, KV_F16, true>(p, pair, tile, raw, it); return;
    case KV_BF16: packed_tile<D, KV_BF16, true>(p, pair, tile, raw, it); return;
    case KV_Q8_0: fast_keys<D, KV_Q8_0>(p, pair, tile, raw); return;
    case KV_Q5_0: packed_tile<D, KV_Q5_0, true>(p, pair, tile, raw, it); return;
    case KV_TQ3: packed_tile<D, KV_TQ3, true>(p, pair, tile, raw, it); return;
    case KV_TQ2: packed_tile<D, KV_TQ2, true>(p, pair, tile, raw, it); return;
    case KV_FP8: fast_keys<D, KV_FP8>(p, pair, tile, raw); return;
    default: fast_keys<D, KV_TQ4>(p, pair, tile, raw); return; /* and q4_0: the pairs differ */
    }
}

template <int D>
__device__ static inline void unpack_values(const cuda_packed &p, const __half2 *pair, uint8_t *tile, const uint8_t *raw,
                                            const ring_item &it) {
    switch (p.layout.v_type) {
    case KV_F32: packed_tile<D, KV_F32, false>(p, pair, tile, raw, it); return;
    case KV_F16: packed_tile<D, KV_F16, false>(p, pair, tile, raw, it); return;
    case KV_BF16: packed_tile<D, KV_BF16, false>(p, pair, tile, raw, it); return;
    case KV_Q8_0: fast_values_8<D, KV_Q8_0>(p, tile, raw, it); return;
    case KV_Q5_0: packed_tile<D, KV_Q5_0, false>(p, pair, tile, raw, it); return;
    case KV_TQ3: packed_tile<D, KV_TQ3, false>(p, pair, tile, raw, it); return;
    case KV_TQ2: packed_tile<D, KV_TQ2, false>(p, pair, tile, raw, it); return;
    case KV_FP8: fast_values_8<D, KV_FP8>(p, tile, raw, it); return;
    default: fast_values_4<D>(p, pair, tile, raw, it); return;
    }
}

#endif
