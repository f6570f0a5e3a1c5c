/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compressed keys and values in shared memory (kernels/kvpage.h) to fragments of tensor cores, in registers. A number times
 * its scale is rounded once, to f16.
 *
 * Keys and values are the side with 16 rows, queries and probabilities the one with 8. A word has four neighbours: positions
 * of K, dimensions of V. They are four rows of the tiles of a warp, which has 32: lane / 4 says which word, byte j of it is
 * row lane / 4 + 8 (j % 2) of tile j / 2. What is added up lies in different words: of every 16 dimensions (positions) lane
 * % 4 has four, in pairs. The order within 16 does not matter to the sums.
 */
#ifndef KERNELS_CUDA_ATTN_WORDS_CUH
#define KERNELS_CUDA_ATTN_WORDS_CUH

#include "kernels/cuda/attn_ring.cuh"
#include "kernels/cuda/packed.cuh"

#define WORDS_COPIES 32 /* of a table, one per lane: lanes never meet at a bank */
#define WORDS_ROW(N) ((N) * 2 + 32) /* bytes of a row of N halves: eight rows lie in different banks */

/* Entries of the table of two numbers; 0: the type has none. */
__host__ __device__ static constexpr int words_entries(kv_type type) {
    return type == KV_Q4_0 || type == KV_TQ4 ? 256 : type == KV_TQ3 ? 64 : type == KV_TQ2 ? 16 : 0;
}

__device__ static inline __half2 words_pair_of(uint32_t u) { return *reinterpret_cast<__half2 *>(&u); }
__device__ static inline uint32_t words_bits_of(__half2 h) { return *reinterpret_cast<uint32_t *>(&h); }

/* The table: two codes by their numbers, the first in the lower bits. */
__device__ static inline void words_table(__half2 *to, const int8_t *codes, int entries, int threads) {
    const int bits = entries == 256 ? 4 : entries == 64 ? 3 : 2;
    for (int i = (int)threadIdx.x; i < entries * WORDS_COPIES; i += threads) {
        const int n = i / WORDS_COPIES;
        to[i] = __halves2half2(__int2half_rn(codes[n & ((1 << bits) - 1)]), __int2half_rn(codes[n >> bits]));
    }
}

/* Byte j of two words, as numbers that LOWEST (128: a sign) was added to; 1024 and more have them in their lowest bits.
 * Constants are written as bits, since conversions are not folded. */
template <int LOWEST> __device__ static inline __half2 words_numbers(uint32_t a, uint32_t b, int j) {
    const uint32_t both = __byte_perm(a, b, j | (4 + j) << 8) & 0x00ff00ffu, magic = 0x64006400u + LOWEST * 0x00010001u;
    return __hsub2(words_pair_of(LOWEST == 128 ? both ^ magic : both | 0x64006400u), words_pair_of(magic));
}

/* Byte j of two words of e4m3. */
__device__ static inline __half2 words_fp8(uint32_t a, uint32_t b, int j) {
    const uint32_t w = __byte_perm(a, b, j << 4 | (4 + j) << 12);
    return __hmul2(words_pair_of((w & 0x80008000u) | (w & 0x7f007f00u) >> 1), words_pair_of(0x5c005c00u)); /* 256 */
}

/* What byte j of a word of indices stands for. */
__device__ static inline __half2 words_look(const __half2 *pair, uint32_t w, int j) {
    return pair[__byte_perm(w, 0, 0x4440 | j) * WORDS_COPIES];
}

/* Four neighbours of each of two dimensions (K) or positions (V), whose sums are made together. */
struct words_two {
    uint32_t a, b; /* of coded types a alone, as indices */
    uint32_t c, d; /* the other half of a and b where elements have 16 bits */
};

/* Neighbour j of both, times its scale. */
template <kv_type T>
__device__ static inline uint32_t words_times(const words_two &w, int j, const __half2 *pair, __half2 scale) {
    if constexpr (packed_bits(T) > 8)
        return j < 2 ? __byte_perm(w.a, w.b, j % 2 ? 0x7632 : 0x5410) : __byte_perm(w.c, w.d, j % 2 ? 0x7632 : 0x5410);
    else if constexpr (T == KV_FP8)
        return words_bits_of(words_fp8(w.a, w.b, j));
    else if constexpr (T == KV_Q8_0)
        return words_bits_of(__hmul2(words_numbers<128>(w.a, w.b, j), scale));
    else if constexpr (T == KV_Q5_0)
        return words_bits_of(__hmul2(words_numbers<16>(w.a, w.b, j), scale));
    else
        return words_bits_of(__hmul2(words_look(pair, w.a, j), scale));
}

/* Four elements of more than 8 bits in f16. */
template <kv_type T> __device__ static inline uint2 words_plain(const uint8_t *at) {
    if constexpr (T == KV_F16) return *reinterpret_cast<const uint2 *>(at);
    uint2 r;
    r.x = pack_halves(packed_plain(T, at, 0), packed_plain(T, at, 1));
    r.y = pack_halves(packed_plain(T, at, 2), packed_plain(T, at, 3));
    return r;
}

/* ---- keys ---- */

/* Where element e of a k16 step of the query stands: the four that meet the dimensions of lane t, t + 1 and so on. */
__device__ static inline int words_place(kv_type type, int e) {
    return packed_bits(type) >= 8 ? e % 4 * 4 + e / 4 : e % 8 / 2 * 4 + e / 8 * 2 + e % 2;
}

/* Two of the lane's four dimensions of step kk, of its four positions; `area`: those of dimension 0. */
template <kv_type T>
__device__ static inline words_two words_keys(const uint8_t *area, int tokens, int kk, int half, int t) {
    const int unit = 2 * kk + half;
    words_two w = {};
    if constexpr (packed_bits(T) > 8) {
        constexpr int BYTES = packed_bits(T) / 8;
        const int     d = 16 * kk + t + 8 * half;
        const uint2   a = words_plain<T>(area + d * tokens * BYTES), b = words_plain<T>(area + (d + 4) * tokens * BYTES);
        w.a = a.x, w.c = a.y, w.b = b.x, w.d = b.y;
    } else if constexpr (packed_bits(T) == 8) {
        const int d = 16 * kk + t + 8 * half;
        w.a = *reinterpret_cast<const uint32_t *>(area + d * tokens);
        w.b = *reinterpret_cast<const uint32_t *>(area + (d + 4) * tokens);
    } else if constexpr (T == KV_Q5_0) {
        const uint32_t x = *reinterpret_cast<const uint32_t *>(area + (unit * 5 + t) * tokens),
                       high = *reinterpret_cast<const uint32_t *>(area + (unit * 5 + 4) * tokens) >> (2 * t);
        w.a = (x & 0x0f0f0f0fu) | (high & 0x01010101u) << 4;
        w.b = (x >> 4 & 0x0f0f0f0fu) | (high << 3 & 0x10101010u);
    } else if constexpr (T == KV_TQ3) { /* six bits from 6 t on */
        const int      row = 6 * t / 8, by = 6 * t % 8;
        const uint32_t low = *reinterpret_cast<const uint32_t *>(area + (unit * 3 + row) * tokens),
                       high = *reinterpret_cast<const uint32_t *>(area + (unit * 3 + min(row + 1, 2)) * tokens);
        const uint32_t from_high = 0x01010101u * (0x3fu & 0xffu << (8 - by));
        w.a = (low >> by & (0x3f3f3f3fu & ~from_high)) | (high << (8 - by) & from_high);
    } else if constexpr (T == KV_TQ2) {
        w.a = *reinterpret_cast<const uint32_t *>(area + (unit * 2 + t / 2) * tokens) >> (t % 2 * 4) & 0x0f0f0f0fu;
    } else {
        w.a = *reinterpret_cast<const uint32_t *>(area + (unit * 4 + t) * tokens);
    }
    return w;
}

/* Scores of 32 positions, tiles of 16. q: rows of 8 NT heads, WORDS_ROW(D) bytes apart, in the order of words_place. */
template <int D, kv_type T, int NT, int TOKENS>
__device__ static inline void words_scores(float s[NT][2][4], const uint8_t *area, int any_tokens, int slot,
                                           const __half2 *pair, const uint8_t *q, int lane) {
    const int      tokens = TOKENS ? TOKENS : any_tokens;
    constexpr int  BITS = packed_bits(T), GROUP_STEPS = T == KV_Q8_0 || T == KV_Q4_0 || T == KV_Q5_0 ? KV_GROUP / 16 : D / 16;
    const uint8_t *scales = area + tokens * D * BITS / 8 + slot * 2, *mine = area + slot * (BITS > 8 ? BITS / 8 : 1);
    __half2        scale[4] = {};
    q += lane / 4 * WORDS_ROW(D) + lane % 4 * 8;
#pragma unroll 2
    for (int kk = 0; kk < D / 16; kk++) {
        if (BITS <= 8 && T != KV_FP8 && kk % GROUP_STEPS == 0) {
            const uint2 w = *reinterpret_cast<const uint2 *>(scales + kk / GROUP_STEPS * tokens * 2);
#pragma unroll
            for (int j = 0; j < 4; j++)
                scale[j] = words_pair_of(__byte_perm(j < 2 ? w.x : w.y, 0, j % 2 ? 0x3232 : 0x1010));
        }
        uint32_t f[2][4];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const words_two w = words_keys<T>(mine, tokens, kk, half, lane % 4);
#pragma unroll
            for (int j = 0; j < 4; j++) f[j / 2][half * 2 + j % 2] = words_times<T>(w, j, pair, scale[j]);
        }
#pragma unroll
        for (int n = 0; n < NT; n++) {
            const uint2 b = *reinterpret_cast<const uint2 *>(q + n * 8 * WORDS_ROW(D) + kk * 32);
            mma16<false>(s[n][0], f[0], b.x, b.y);
            mma16<false>(s[n][1], f[1], b.x, b.y);
        }
    }
}

/* ---- values ---- */

/* Four dimensions of one position, 4 g .. of the 32 that begin at `row`. */
template <kv_type T> __device__ static inline uint2 words_value(const uint8_t *row, int g) {
    if constexpr (packed_bits(T) > 8) {
        return words_plain<T>(row + g * 4 * (packed_bits(T) / 8));
    } else if constexpr (packed_bits(T) == 8) {
        return make_uint2(*reinterpret_cast<const uint32_t *>(row + g * 4), 0);
    } else if constexpr (T == KV_Q5_0) {
        const uint32_t x = *reinterpret_cast<const uint32_t *>(row + g % 4 * 4) >> (g / 4 * 4),
                       high = *reinterpret_cast<const uint32_t *>(row + 16) >> (4 * g) & 15;
        return make_uint2((x & 0x0f0f0f0fu) | (high * 0x00204081u & 0x01010101u) << 4, 0);
    } else if constexpr (T == KV_TQ3) { /* bits 3 f .. + 2 of twelve, of which the upper four lie elsewhere */
        const int      f = g / 2, odd = g % 2;
        const uint32_t low = *reinterpret_cast<const uint32_t *>(row + odd * 4),
                       high = *reinterpret_cast<const uint32_t *>(row + 8);
        const uint32_t in_low = f < 2 ? 0x07070707u : f == 2 ? 0x03030303u : 0, in_high = 0x07070707u & ~in_low;
        const int      by = f == 3 ? 1 + 4 * odd : 30 + 4 * odd; /* around */
        return make_uint2((low >> (f < 3 ? 3 * f : 0) & in_low) | (__funnelshift_r(high, high, by) & in_high), 0);
    } else if constexpr (T == KV_TQ2) {
        return make_uint2(*reinterpret_cast<const uint32_t *>(row + g % 2 * 4) >> (g / 2 * 2) & 0x03030303u, 0);
    } else {
        return make_uint2(*reinterpret_cast<const uint32_t *>(row + g % 4 * 4) >> (g / 4 * 4) & 0x0f0f0f0fu, 0);
    }
}

template <kv_type T> __device__ static inline words_two words_values(uint2 a, uint2 b) {
    words_two w = { a.x, b.x, a.y, b.y };
    if (T == KV_Q4_0 || T == KV_TQ4) w.a = a.x | b.x << 4;
    if (T == KV_TQ3) w.a = a.x | b.x << 3;
    if (T == KV_TQ2) w.a = a.x | b.x << 2;
    return w;
}

/* Where the values of a chunk lie: page behind page. */
struct words_chunk {
    const uint8_t *first; /* V area of the first page */
    int            room, tokens, lo, hi; /* bytes from page to page; positions of a page; what is seen */
};

/* Values of 16 positions, of which the lane has four from `row` on, to fragments. seen: bit i: the i-th is. */
template <int D, kv_type T, bool WHOLE>
__device__ static inline void words_rows(uint32_t f[2][4], const uint8_t *row, const uint8_t *scales, const __half2 *pair,
                                         unsigned seen, int g) {
    constexpr int  BITS = packed_bits(T), GROUPS = T == KV_Q8_0 || T == KV_Q4_0 || T == KV_Q5_0 ? D / KV_GROUP : 1;
    constexpr bool SCALED = BITS <= 8 && T != KV_FP8;
    uint2          x[4];
    uint32_t       scale[4] = {};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        x[i] = words_value<T>(row + i * 4 * (D * BITS / 8), g);
        if (SCALED) scale[i] = *reinterpret_cast<const uint16_t *>(scales + i * 4 * GROUPS * 2);
        if (WHOLE || (seen >> i & 1)) continue;
        scale[i] = 0;
        if (!SCALED) x[i] = make_uint2(0, 0);
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const words_two w = words_values<T>(x[2 * half], x[2 * half + 1]);
        const __half2   s = words_pair_of(__byte_perm(scale[2 * half], scale[2 * half + 1], 0x5410));
#pragma unroll
        for (int j = 0; j < 4; j++) f[j / 2][half * 2 + j % 2] = words_times<T>(w, j, pair, s);
    }
}

/* Weighted values of 32 dimensions over a chunk, tiles of 16 dimensions. chances: of head 0, WORDS_ROW(CHUNK) bytes apart,
 * the positions of 16 in the order t, t + 4, t + 8, t + 12 of lanes t. WHOLE: all positions are seen. */
template <int D, kv_type T, int NT, int TOKENS, bool WHOLE>
__device__ static inline void words_weigh(float o[NT][2][4], const words_chunk &c, int part, const __half2 *pair,
                                          const uint8_t *chances, int lane) {
    constexpr int  BITS = packed_bits(T), GROUPS = T == KV_Q8_0 || T == KV_Q4_0 || T == KV_Q5_0 ? D / KV_GROUP : 1;
    constexpr int  EACH = TOKENS == 32 ? 2 : 1; /* steps of 16 positions that lie in one page */
    const int      g = lane / 4, t = lane % 4, tokens = TOKENS ? TOKENS : c.tokens;
    const uint8_t *row = c.first + t * (D * BITS / 8) + part * (32 * BITS / 8),
                  *scales = c.first + tokens * (D * BITS / 8) + (t * GROUPS + (GROUPS > 1 ? part : 0)) * 2;
    chances += g * WORDS_ROW(CHUNK) + t * 8;
#pragma unroll 2
    for (int k0 = 0; k0 < CHUNK / 16; k0 += EACH) {
        const int page = k0 * 16 / tokens * c.room, slot = TOKENS == 32 ? 0 : k0 * 16 & (tokens - 1);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            uint32_t f[2][4];
            unsigned seen = 0;
            for (int n = 0; n < 4 && !WHOLE; n++) {
                const int at = (k0 + i) * 16 + t + 4 * n;
                seen |= (unsigned)(at >= c.lo && at < c.hi) << n;
            }
            words_rows<D, T, WHOLE>(f, row + page + (slot + i * 16) * (D * BITS / 8), scales + page + (slot + i * 16) * GROUPS * 2,
                                    pair, seen, g);
#pragma unroll
            for (int n = 0; n < NT; n++) {
                const uint2 p = *reinterpret_cast<const uint2 *>(chances + n * 8 * WORDS_ROW(CHUNK) + (k0 + i) * 32);
                mma16<false>(o[n][0], f[0], p.x, p.y);
                mma16<false>(o[n][1], f[1], p.x, p.y);
            }
        }
    }
}

template <int D, kv_type T, int NT, int TOKENS>
__device__ static inline void words_weigh_seen(float o[NT][2][4], const words_chunk &c, int part, const __half2 *pair,
                                               const uint8_t *chances, int lane) {
    if (c.lo <= 0 && c.hi >= CHUNK)
        words_weigh<D, T, NT, TOKENS, true>(o, c, part, pair, chances, lane);
    else
        words_weigh<D, T, NT, 0, false>(o, c, part, pair, chances, lane);
}

#endif
