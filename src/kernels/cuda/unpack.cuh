/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights of a packed tile (layout.h) to fragments of mma.m16n8k16, in registers: the one place that says which 16-bit
 * value a weight has on the device. All kernels use it, so that decode and prefill multiply the same numbers.
 *
 * A small integer q in the lowest bits of a half is the subnormal number q * 2^-24, in the next four bits q * 2^-20: one
 * fused operation by a scale that is 2^24 or 2^20 times larger makes the weight of it. So that such scales fit into a
 * half, each matrix is divided by a power of two when it is packed (cuda_pack_power) and products are multiplied by it
 * at their end. Below, D is d (of the file) times 2^24 and less that power. Roundings, each to nearest half:
 *
 *     Q4_0, Q8_0,  z = zero * D * 2^-24;                                 D * 2^-24 * q - z, fused
 *     TABLE32, TABLE16: q is one of the tile's 16 bytes
 *     IQ1, IQ2     s = D * (2 s + 1), z = 128 * s * 2^-24; q is 128 + an integer of the codebook; IQ3: s * 2^-24 * q
 *     Q3_K, Q6_K   s = D * scale, z = 4 or 32 * s * 2^-24;               s * 2^-24 * q - z, fused
 *     Q2_K, Q4_K,  s = D * sc, m = dmin * mn, less the matrix's power;   s * 2^-24 * q - m, fused
 *     Q5_K
 *     PAIR2 to PAIR8: m is the minimum;                                  D * 2^-24 * q + m, fused
 *     MXFP4        d * q, which is exact but for weights 2^24 times smaller than the largest
 *     E4M3_128, E4M3_32, E5M2_32: scale * q
 *     NF4_64       u = CUDA_NF4_UNIT * q, s = scale / CUDA_NF4_UNIT;     u * s
 *     F16, BF16    the value itself
 *
 * A type has COLS and BYTES of a tile, BF16 for the kind of multiplication, at() for a tile's address, begin() for what a
 * block does once (SHARED bytes of shared memory that it has itself; the block synchronizes behind it), prepare() for what a
 * warp does once per tile (SCRATCH bytes; the warp synchronizes behind it) and fragments() for one lane's part of 16 rows x
 * 64 columns: a[j] is 16 columns j. Where SHARED is not 0 all lanes of the warp call fragments() together. LEAN: unpacking takes
 * most of the time anyway, so that there are no kernels of their own for 8, 17 to 32 rows, or 16 of an expert.
 */
#ifndef KERNELS_CUDA_UNPACK_CUH
#define KERNELS_CUDA_UNPACK_CUH

#include "kernels/cuda/layout.h"
#include "kernels/cuda/mma.cuh"

/* A type whose scales need no preparation, and which shares nothing. */
struct unpack_plain {
    enum { SCRATCH = 0, SHARED = 0, LEAN = 0 };
    __device__ static inline void begin() {}
    __device__ static inline void prepare(const uint8_t *, uint8_t *, int) {}
};

/* The address of column tile kt of row tile rt; a matrix has n_kt column tiles and rows_pad rows. */
template <int BYTES> struct unpack_tiled : unpack_plain {
    __device__ static inline const uint8_t *at(const uint8_t *w, int64_t rt, int64_t kt, int64_t n_kt, int64_t) {
        return w + (rt * n_kt + kt) * BYTES;
    }
};

__device__ static inline __half2  as_half2(uint32_t u) { return *reinterpret_cast<__half2 *>(&u); }
__device__ static inline uint32_t as_u32(__half2 h) { return *reinterpret_cast<uint32_t *>(&h); }

/* bits & mask | magic in one instruction. */
__device__ static inline uint32_t set_in(uint32_t bits, uint32_t mask, uint32_t magic) {
    uint32_t r;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(bits), "r"(mask), "r"(magic));
    return r;
}

#define HALF2_1024 0x64006400u

/* Bytes of a and b (numbers 0..3 and 4..7) chosen by the lower four hexadecimal digits of select, all below 8. */
__device__ static inline uint32_t choose_bytes(uint32_t a, uint32_t b, uint32_t select) {
    uint32_t r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(select));
    return r;
}

/* q times s less z, for integers q in the masked bits. */
__device__ static inline uint32_t pair_of(uint32_t w, uint32_t mask, __half2 s, __half2 z) {
    return as_u32(__hfma2(as_half2(w & mask), s, z));
}

__device__ static inline uint4 load_lane16(const uint8_t *p) { return *reinterpret_cast<const uint4 *>(p); }
__device__ static inline uint2 load_lane8(const uint8_t *p) { return *reinterpret_cast<const uint2 *>(p); }

/* Two halves of a 32-bit word as a pair of equals. */
__device__ static inline __half2 low_twice(uint32_t w) { return __low2half2(as_half2(w)); }
__device__ static inline __half2 high_twice(uint32_t w) { return __high2half2(as_half2(w)); }

struct unpack_q4_0 : unpack_tiled<1152> {
    enum { COLS = 128, BYTES = 1152, BF16 = 0 };
    __device__ static inline void fragments(uint32_t a[4][4], const uint8_t *tile, const uint8_t *, int block,
                                            int lane) {
        const uint4    q = load_lane16(tile + block * 512 + lane * 16);
        const uint32_t d0 = *reinterpret_cast<const uint32_t *>(tile + 1024 + lane / 4 * 8 + block * 4);
        const uint32_t d8 = *reinterpret_cast<const uint32_t *>(tile + 1024 + lane / 4 * 8 + 64 + block * 4);
        const uint32_t w[4] = { q.x, q.y, q.z, q.w };
        /* -8 d; D of the lower eight rows is for bits 4.. */
        const uint32_t z0 = as_u32(__hmul2_rn(as_half2(d0), __float2half2_rn(-0x1p-21f)));
        const uint32_t z8 = as_u32(__hmul2_rn(as_half2(d8), __float2half2_rn(-0x1p-17f)));
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const __half2 s0 = j < 2 ? low_twice(d0) : high_twice(d0), s8 = j < 2 ? low_twice(d8) : high_twice(d8);
            const __half2 m0 = j < 2 ? low_twice(z0) : high_twice(z0), m8 = j < 2 ? low_twice(z8) : high_twice(z8);
            a[j][0] = pair_of(w[j], 0x000f000fu, s0, m0);
            a[j][1] = pair_of(w[j], 0x00f000f0u, s8, m8);
            a[j][2] = pair_of(w[j] >> 8, 0x000f000fu, s0, m0);
            a[j][3] = pair_of(w[j] >> 8, 0x00f000f0u, s8, m8);
        }
    }
};

/* Three bits of e2m1 are the lowest of an exponent and the highest of a mantissa: 2^-14 of the number. */
struct unpack_mxfp4 : unpack_tiled<1152> {
    enum { COLS = 128, BYTES = 1152, BF16 = 0 };
    /* Signs at bit 15 of one word, the other bits from bit 9 on of another. */
    __device__ static inline uint32_t pair(uint32_t w, uint32_t signs, __half2 s) {
        return as_u32(__hmul2_rn(as_half2(set_in(signs, 0x80008000u, w & 0x0e000e00u)), s));
    }
    __device__ static inline uint32_t pair(uint32_t w, __half2 s) {
        return as_u32(__hmul2_rn(as_half2(w & 0x8e008e00u), s));
    }
    __device__ static inline void fragments(uint32_t a[4][4], const uint8_t *tile, const uint8_t *, int block,
                                            int lane) {
        const uint4    q = load_lane16(tile + block * 512 + lane * 16);
        const uint32_t d0 = *reinterpret_cast<const uint32_t *>(tile + 1024 + lane / 4 * 8 + block * 4);
        const uint32_t d8 = *reinterpret_cast<const uint32_t *>(tile + 1024 + lane / 4 * 8 + 64 + block * 4);
        const uint32_t w[4] = { q.x, q.y, q.z, q.w };
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const __half2 s0 = j < 2 ? low_twice(d0) : high_twice(d0), s8 = j < 2 ? low_twice(d8) : high_twice(d8);
            a[j][0] = pair(w[j], s0);
            a[j][1] = pair(w[j] << 3, s8);
            a[j][2] = pair(w[j] << 6, w[j] << 1, s0);
            a[j][3] = pair(w[j] << 9, w[j] << 2, s8);
        }
    }
};

struct unpack_q8_0 : unpack_tiled<2176> {
    enum { COLS = 128, BYTES = 2176, BF16 = 0 };
    /* Bytes 0, 1 or 2, 3 of a word. */
    __device__ static inline uint32_t pair(uint32_t w, uint32_t select, __half2 s, __half2 z) {
        return as_u32(__hfma2(as_half2(__byte_perm(w, 0, select)), s, z));
    }
    __device__ static inline void fragments(uint32_t a[4][4], const uint8_t *tile, const uint8_t *, int block,
                                            int lane) {
        const uint32_t d0 = *reinterpret_cast<const uint32_t *>(tile + 2048 + lane / 4 * 8 + block * 4);
        const uint32_t d8 = *reinterpret_cast<const uint32_t *>(tile + 2048 + lane / 4 * 8 + 64 + block * 4);
        /* -128 d */
        const uint32_t z0 = as_u32(__hmul2_rn(as_half2(d0), __float2half2_rn(-0x1p-17f)));
        const uint32_t z8 = as_u32(__hmul2_rn(as_half2(d8), __float2half2_rn(-0x1p-17f)));
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint4    q = load_lane16(tile + (block * 2 + i) * 512 + lane * 16);
            const uint32_t w[4] = { q.x, q.y, q.z, q.w };
            const __half2  s0 = i == 0 ? low_twice(d0) : high_twice(d0), s8 = i == 0 ? low_twice(d8) : high_twice(d8);
            const __half2  m0 = i == 0 ? low_twice(z0) : high_twice(z0), m8 = i == 0 ? low_twice(z8) : high_twice(z8);
#pragma unroll
            for (int j = 0; j < 2; j++) {
                a[2 * i + j][0] = pair(w[2 * j], 0x4140, s0, m0);
                a[2 * i + j][1] = pair(w[2 * j], 0x4342, s8, m8);
                a[2 * i + j][2] = pair(w[2 * j + 1], 0x4140, s0, m0);
                a[2 * i + j][3] = pair(w[2 * j + 1], 0x4342, s8, m8);
            }
        }
    }
};

/* Fragments from nibbles of 64 columns, and the scales and minima (D, -m) of two times 32 of them: r0 of row g, r8 of g + 8. */
__device__ static inline void unpack_nibbles(uint32_t a[4][4], const uint4 &q, const uint2 &r0, const uint2 &r8) {
    const uint32_t w[4] = { q.x, q.y, q.z, q.w };
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const uint32_t p0 = j < 2 ? r0.x : r0.y, p8 = j < 2 ? r8.x : r8.y;
        const __half2  d0 = low_twice(p0), m0 = high_twice(p0), d8 = low_twice(p8), m8 = high_twice(p8);
        a[j][0] = pair_of(w[j], 0x000f000fu, d0, m0);
        a[j][1] = pair_of(w[j], 0x00f000f0u, d8, m8);
        a[j][2] = pair_of(w[j] >> 8, 0x000f000fu, d0, m0);
        a[j][3] = pair_of(w[j] >> 8, 0x00f000f0u, d8, m8);
    }
}

/* Two or four bits of w and the bit above them of `high`, times s less m. */
__device__ static inline uint32_t above_of(uint32_t w, uint32_t mask, uint32_t high, uint32_t bit, __half2 s, __half2 m) {
    return as_u32(__hfma2(as_half2(set_in(w, mask, high & bit)), s, m));
}

/* The same with fifth bits h. Those of pairs a0 and a1 (a2 and a3) of 16 columns j are moved to bits 4 and 8 of each half by
 * one shift: they lie at bits k and k + 4, where k = 2j (2j + 1) of j = 0, 1 and 2j + 4 (2j + 5) of others. */
__device__ static inline void unpack_fifths(uint32_t a[4][4], const uint4 &q, uint32_t h, const uint2 &r0,
                                            const uint2 &r8) {
    const uint32_t w[4] = { q.x, q.y, q.z, q.w };
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const uint32_t p0 = j < 2 ? r0.x : r0.y, p8 = j < 2 ? r8.x : r8.y;
        const __half2  d0 = low_twice(p0), m0 = high_twice(p0), d8 = low_twice(p8), m8 = high_twice(p8);
        const uint32_t h0 = j < 2 ? h << (4 - 2 * j) : h >> (2 * j), h2 = j < 2 ? h << (3 - 2 * j) : h >> (2 * j + 1);
        a[j][0] = above_of(w[j], 0x000f000fu, h0, 0x00100010u, d0, m0);
        a[j][1] = above_of(w[j], 0x00f000f0u, h0, 0x01000100u, d8, m8);
        a[j][2] = above_of(w[j] >> 8, 0x000f000fu, h2, 0x00100010u, d0, m0);
        a[j][3] = above_of(w[j] >> 8, 0x00f000f0u, h2, 0x01000100u, d8, m8);
    }
}

/* 1024 + sc and 1024 + mn to sc and mn * 2^-12, times (D, -dmin * 2^12). */
__device__ static inline uint32_t scale_of(uint32_t bits, uint32_t d) {
    const uint32_t by = 0x0c003c00u, less = 0xb400e400u;
    return as_u32(__hmul2_rn(__hfma2(as_half2(bits), as_half2(by), as_half2(less)), as_half2(d)));
}

/*
 * Four lanes share a row, and every lane would decode all scales of its rows: prepare() has each scale decoded once, as
 * (D * sc, -dmin * mn) in the scratch: [128 columns][row][32 columns] 4 bytes. SCALES: where those of a tile begin.
 */
template <int BYTES, int SCALES> struct unpack_k4 : unpack_tiled<BYTES> {
    enum { SCRATCH = 512 };
    /* Lane 2r + h: pairs 4h .. 4h+3 of row r. */
    __device__ static inline void prepare(const uint8_t *tile, uint8_t *scratch, int lane) {
        const int      row = lane / 2, h = lane % 2;
        const uint4    s = load_lane16(tile + SCALES + row * 16);
        const uint32_t w = h ? s.z : s.y, v = h ? s.w >> 8 : s.w;
        *reinterpret_cast<uint4 *>(scratch + h * 256 + row * 16) =
            make_uint4(scale_of(set_in(w, 0x003f003fu, HALF2_1024), s.x),
                       scale_of(set_in(w >> 6, 0x003f003fu, HALF2_1024), s.x),
                       scale_of(set_in(w >> 12, 0x000f000fu, set_in(v << 4, 0x00300030u, HALF2_1024)), s.x),
                       scale_of(set_in(v >> 2, 0x003f003fu, HALF2_1024), s.x));
    }
    /* The pairs of a lane's two rows for 64 columns. */
    __device__ static inline void rows_of(uint2 &r0, uint2 &r8, const uint8_t *scratch, int block, int lane) {
        const uint8_t *rows = scratch + block / 2 * 256 + lane / 4 * 16;
        const uint4    s0 = load_lane16(rows), s8 = load_lane16(rows + 128);
        r0 = block % 2 ? make_uint2(s0.z, s0.w) : make_uint2(s0.x, s0.y);
        r8 = block % 2 ? make_uint2(s8.z, s8.w) : make_uint2(s8.x, s8.y);
    }
};

struct unpack_q4_k : unpack_k4<2304, 2048> {
    enum { COLS = 256, BYTES = 2304, BF16 = 0 };
    __device__ static inline void fragments(uint32_t a[4][4], const uint8_t *tile, const uint8_t *scratch, int block,
                                            int lane) {
        const uint4 q = load_lane16(tile + block * 512 + lane * 16);
        uint2       r0, r8;
        rows_of(r0, r8, scratch, block, lane);
        unpack_nibbles(a, q, r0, r8);
    }
};

struct unpack_q5_k : unpack_k4<2816, 2560> {
    enum { COLS = 256, BYTES = 2816, BF16 = 0 };
    __device__ static inline void fragments(uint32_t a[4][4], const uint8_t *tile, const uint8_t *scratch, int block,
                                            int lane) {
        const uint4    q = load_lane16(tile + block * 512 + lane * 16);
        const uint32_t h = *reinterpret_cast<const uint32_t *>(tile + 2048 + block * 128 + lane * 4);
        uint2          r0, r8;
        rows_of(r0, r8, scratch, block, lane);
        unpack_fifths(a, q, h, r0, r8);
    }
};

/* The scratch: [64 columns][row][16 columns] 4 bytes. */
struct unpack_q2_k : unpack_tiled<1344> {
    enum { COLS = 256, BYTES = 1344, BF16 = 0, SCRATCH = 1024 };
    __device__ static inline uint32_t scale(uint32_t w, int k, uint32_t d) {
        return scale_of(set_in(w >> (4 * k), 0x000f000fu, HALF2_1024), d);
    }
    /* Lane 2r + h: columns 128h .. 128h + 127 of row r. */
    __device__ static inline void prepare(const uint8_t *tile, uint8_t *scratch, int lane) {
        const int      row = lane / 2, h = lane % 2;
        const uint2    s = load_lane8(tile + 1024 + lane * 8);
        const uint32_t d = *reinterpret_cast<const uint32_t *>(tile + 1280 + row * 4);
        uint8_t       *to = scratch + h * 512 + row * 16;
        *reinterpret_cast<uint4 *>(to) = make_uint4(scale(s.x, 0, d), scale(s.x, 1, d), scale(s.x, 2, d), scale(s.x, 3, d));
        *reinterpret_cast<uint4 *>(to + 256) =
            make_uint4(scale(s.y, 0, d), scale(s.y, 1, d), scale(s.y, 2, d), scale(s.y, 3, d));
    }
    __device__ static inline void fragments(uint32_t a[4][4], const uint8_t *tile, const uint8_t *scratch, int block,
                                            int lane) {
        const uint2    q = load_lane8(tile + block * 256 + lane * 8);
        const uint4    r0 = load_lane16(scratch + block * 256 + lane / 4 * 16);
        const uint4    r8 = load_lane16(scratch + block * 256 + lane / 4 * 16 + 128);
        const uint32_t p0[4] = { r0.x, r0.y, r0.z, r0.w }, p8[4] = { r8.x, r8.y, r8.z, r8.w };
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const uint32_t w = (j < 2 ? q.x : q.y) >> (j % 2 * 8);
            const __half2  d0 = low_twice(p0[j]), m0 = high_twice(p0[j]), d8 = low_twice(p8[j]), m8 = high_twice(p8[j]);
            a[j][0] = pair_of(w, 0x00030003u, d0, m0);
            a[j][1] = pair_of(w, 0x000c000cu, d8, m8);
            a[j][2] = pair_of(w >> 4, 0x00030003u, d0, m0);
            a[j][3] = pair_of(w >> 4, 0x000c000cu, d8, m8);
        }
    }
};

/* As Q2_K, with a plane of third bits and -4 times the scale for a minimum. */
struct unpack_q3_k : unpack_tiled<1760> {
    enum { COLS = 256, BYTES = 1760, BF16 = 0, SCRATCH = 1024 };
    /* Lane 2r + h: columns 128h .. 128h + 127 of row r. */
    __device__ static inline void prepare(const uint8_t *tile, uint8_t *scratch, int lane) {
        const int      row = lane / 2, h = lane % 2;
        const uint32_t low = *reinterpret_cast<const uint32_t *>(tile + 1536 + lane * 4);
        const uint32_t high = *reinterpret_cast<const uint32_t *>(tile + 1664 + row * 4) >> (8 * h);
        const __half2  d = __half2half2(reinterpret_cast<const __half *>(tile + 1728)[row]);
        /* -4; D of the lower eight rows is for bits 2.. */
        const __half2 four = __float2half2_rn(row < 8 ? -0x1p-22f : -0x1p-20f);
        uint32_t       first[4], second[4];
#pragma unroll
        for (int k = 0; k < 4; k++) { /* scales k and k + 4 */
            const uint32_t up = k < 3 ? high << (4 - 2 * k) : high >> 2;
            const uint32_t sc = set_in(low >> (4 * k), 0x000f000fu, set_in(up, 0x00300030u, HALF2_1024));
            const __half2  s = __hmul2_rn(__hsub2_rn(as_half2(sc), __float2half2_rn(1056)), d), z = __hmul2_rn(s, four);
            first[k] = choose_bytes(as_u32(s), as_u32(z), 0x5410);
            second[k] = choose_bytes(as_u32(s), as_u32(z), 0x7632);
        }
        uint8_t *to = scratch + h * 512 + row * 16;
        *reinterpret_cast<uint4 *>(to) = make_uint4(first[0], first[1], first[2], first[3]);
        *reinterpret_cast<uint4 *>(to + 256) = make_uint4(second[0], second[1], second[2], second[3]);
    }
    __device__ static inline void fragments(uint32_t a[4][4], const uint8_t *tile, const uint8_t *scratch, int block,
                                            int lane) {
        const uint2    q = load_lane8(tile + block * 256 + lane * 8);
        const uint32_t h = *reinterpret_cast<const uint32_t *>(tile + 1024 + block * 128 + lane * 4);
        const uint4    r0 = load_lane16(scratch + block * 256 + lane / 4 * 16);
        const uint4    r8 = load_lane16(scratch + block * 256 + lane / 4 * 16 + 128);
        const uint32_t p0[4] = { r0.x, r0.y, r0.z, r0.w }, p8[4] = { r8.x, r8.y, r8.z, r8.w };
#pragma unroll
        for (int j = 0; j < 4; j++) { /* one shift moves the third bits of two pairs to bits 2 and 4 */
            const uint32_t w = (j < 2 ? q.x : q.y) >> (j % 2 * 8);
            const uint32_t h0 = j == 0 ? h << 2 : h >> (4 * j - 2), h2 = j == 0 ? h << 1 : h >> (4 * j - 1);
            const __half2  d0 = low_twice(p0[j]), m0 = high_twice(p0[j]), d8 = low_twice(p8[j]), m8 = high_twice(p8[j]);
            a[j][0] = above_of(w, 0x00030003u, h0, 0x00040004u, d0, m0);
            a[j][1] = above_of(w, 0x000c000cu, h0, 0x00100010u, d8, m8);
            a[j][2] = above_of(w >> 4, 0x00030003u, h2, 0x00040004u, d0, m0);
            a[j][3] = above_of(w >> 4, 0x000c000cu, h2, 0x00100010u, d8, m8);
        }
    }
};

struct unpack_q6_k : unpack_tiled<3360> {
    enum { COLS = 256, BYTES = 3360, BF16 = 0 };
    /* d * scale for the 16 columns j of a block from four bytes of scales. */
    __device__ static inline __half2 scale(uint32_t bytes, int j, __half2 d) {
        const uint32_t h = __byte_perm(bytes, 0x64646464u, 0x4040 + j * 0x101);
        return __hmul2_rn(__hsub2_rn(as_half2(h), __float2half2_rn(1152)), d);
    }
    /* Pair p of 16 columns j: low bits at bit 0 of `low`, high bits in `high` (of that word). */
    __device__ static inline uint32_t pair(uint32_t low, uint32_t high, int place, __half2 s, __half2 z) {
        const int      shift = 2 * place - 4;
        const uint32_t up = shift < 0 ? high << -shift : high >> shift;
        return as_u32(__hfma2(as_half2(set_in(low, 0x000f000fu, up & 0x00300030u)), s, z));
    }
    __device__ static inline void fragments(uint32_t a[4][4], const uint8_t *tile, const uint8_t *, int block,
                                            int lane) {
        const int      g = lane / 4;
        const uint4    q = load_lane16(tile + block * 512 + lane * 16);
        const uint2    h = load_lane8(tile + 2048 + block * 256 + lane * 8);
        const uint32_t c0 = *reinterpret_cast<const uint32_t *>(tile + 3072 + g * 16 + block * 4);
        const uint32_t c8 = *reinterpret_cast<const uint32_t *>(tile + 3200 + g * 16 + block * 4);
        const __half2  d0 = __half2half2(reinterpret_cast<const __half *>(tile + 3328)[g]);
        const __half2  d8 = __half2half2(reinterpret_cast<const __half *>(tile + 3328)[g + 8]);
        const uint32_t w[4] = { q.x, q.y, q.z, q.w };
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const __half2  s0 = scale(c0, j, d0), s8 = scale(c8, j, d8);
            const __half2  z0 = __hmul2_rn(s0, __float2half2_rn(-0x1p-19f)); /* -32 s */
            const __half2  z8 = __hmul2_rn(s8, __float2half2_rn(-0x1p-19f));
            const uint32_t high = j < 2 ? h.x : h.y;
            const int      place = j % 2 * 4;
            a[j][0] = pair(w[j], high, place, s0, z0);
            a[j][1] = pair(w[j] >> 4, high, place + 1, s8, z8);
            a[j][2] = pair(w[j] >> 8, high, place + 2, s0, z0);
            a[j][3] = pair(w[j] >> 12, high, place + 3, s8, z8);
        }
    }
};

/* Four bytes of a table of 16: bits 0..2 of each digit choose in both halves of it, bit 3 between them. */
__device__ static inline uint32_t look_up(const uint4 &t, uint32_t digits, uint32_t halves) {
    return choose_bytes(choose_bytes(t.x, t.y, digits), choose_bytes(t.z, t.w, digits), halves);
}

/*
 * Four bits are the number of a byte of the tile's table, whose 16 bytes stand at its end. A scale for each GROUP columns. In
 * the lower half of a word are a0 and a1 of the first columns, then of the second, in the upper half a2 and a3.
 */
template <int GROUP> struct unpack_table : unpack_tiled<GROUP == 16 ? 2576 : 2320> {
    enum { COLS = 256, BYTES = GROUP == 16 ? 2576 : 2320, BF16 = 0, TABLE = BYTES - 16 };
    /* Bytes 0 and 2, or 1 and 3. */
    __device__ static inline uint32_t pair(uint32_t w, uint32_t select, __half2 s, __half2 z) {
        return as_u32(__hfma2(as_half2(__byte_perm(w, 0, select)), s, z));
    }
    __device__ static inline void fragments(uint32_t a[4][4], const uint8_t *tile, const uint8_t *, int block,
                                            int lane) {
        constexpr int  ROW = 256 / GROUP * 2, EACH = 64 / GROUP * 2; /* bytes of scales: of a row, of 64 columns */
        const uint8_t *rows = tile + 2048 + lane / 4 * ROW + block * EACH;
        const uint4    q = load_lane16(tile + block * 512 + lane * 16), t = load_lane16(tile + TABLE);
        uint32_t       d0[2], d8[2]; /* two scales each */
        if constexpr (GROUP == 16) {
            const uint2 s0 = load_lane8(rows), s8 = load_lane8(rows + 8 * ROW);
            d0[0] = s0.x, d0[1] = s0.y, d8[0] = s8.x, d8[1] = s8.y;
        } else {
            d0[0] = d0[1] = *reinterpret_cast<const uint32_t *>(rows);
            d8[0] = d8[1] = *reinterpret_cast<const uint32_t *>(rows + 8 * ROW);
        }
        const uint32_t w[4] = { q.x, q.y, q.z, q.w };
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const bool     high = GROUP == 16 ? j % 2 : j >= 2;
            const uint32_t e0 = d0[j / 2], e8 = d8[j / 2];
            const __half2  s0 = high ? high_twice(e0) : low_twice(e0), s8 = high ? high_twice(e8) : low_twice(e8);
            const __half2  z0 = __hmul2_rn(s0, __float2half2_rn(-0x1p-17f)); /* -128 d */
            const __half2  z8 = __hmul2_rn(s8, __float2half2_rn(-0x1p-17f));
            const uint32_t digits = w[j] & 0x77777777u, halves = set_in(w[j] >> 1, 0x44444444u, 0x32103210u);
            const uint32_t v01 = look_up(t, digits, halves), v23 = look_up(t, digits >> 16, halves >> 16);
            a[j][0] = pair(v01, 0x4240, s0, z0);
            a[j][1] = pair(v01, 0x4341, s8, z8);
            a[j][2] = pair(v23, 0x4240, s0, z0);
            a[j][3] = pair(v23, 0x4341, s8, z8);
        }
    }
};

/* Codes as above that are numbers of halves, which are the same in every matrix: their lower and their upper bytes. */
struct unpack_nf4 : unpack_tiled<2176> {
    enum { COLS = 256, BYTES = 2176, BF16 = 0 };
    /* Bytes 0 and 2 of both, or 1 and 3. */
    __device__ static inline uint32_t pair(uint32_t low, uint32_t high, uint32_t select, __half2 s) {
        return as_u32(__hmul2_rn(as_half2(choose_bytes(low, high, select)), s));
    }
    __device__ static inline void fragments(uint32_t a[4][4], const uint8_t *tile, const uint8_t *, int block,
                                            int lane) {
        const uint4    low = make_uint4(0x2de2908eu, 0x00c6d875u, 0x6e74382cu, 0x8ebd60c7u);
        const uint4    high = make_uint4(0xb5b6b8bau, 0x00acb0b3u, 0x3432302cu, 0x3a383735u);
        const uint4    q = load_lane16(tile + block * 512 + lane * 16);
        const __half  *scale = reinterpret_cast<const __half *>(tile + 2048) + lane / 4 * 4 + block;
        const __half2  s0 = __half2half2(scale[0]), s8 = __half2half2(scale[32]);
        const uint32_t w[4] = { q.x, q.y, q.z, q.w };
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const uint32_t digits = w[j] & 0x77777777u, halves = set_in(w[j] >> 1, 0x44444444u, 0x32103210u);
            const uint32_t l01 = look_up(low, digits, halves), h01 = look_up(high, digits, halves);
            const uint32_t l23 = look_up(low, digits >> 16, halves >> 16);
            const uint32_t h23 = look_up(high, digits >> 16, halves >> 16);
            a[j][0] = pair(l01, h01, 0x6240, s0);
            a[j][1] = pair(l01, h01, 0x7351, s8);
            a[j][2] = pair(l23, h23, 0x6240, s0);
            a[j][3] = pair(l23, h23, 0x7351, s8);
        }
    }
};

/* As Q2_K and Q3_K, with the scale and the minimum of each 64 columns as two halves. */
struct unpack_pair2 : unpack_tiled<1280> {
    enum { COLS = 256, BYTES = 1280, BF16 = 0 };
    __device__ static inline void fragments(uint32_t a[4][4], const uint8_t *tile, const uint8_t *, int block,
                                            int lane) {
        const uint32_t *rows = reinterpret_cast<const uint32_t *>(tile + 1024) + lane / 4 * 4 + block;
        const uint2     q = load_lane8(tile + block * 256 + lane * 8);
        const __half2   d0 = low_twice(rows[0]), m0 = high_twice(rows[0]), d8 = low_twice(rows[32]), m8 = high_twice(rows[32]);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const uint32_t w = (j < 2 ? q.x : q.y) >> (j % 2 * 8);
            a[j][0] = pair_of(w, 0x00030003u, d0, m0);
            a[j][1] = pair_of(w, 0x000c000cu, d8, m8);
            a[j][2] = pair_of(w >> 4, 0x00030003u, d0, m0);
            a[j][3] = pair_of(w >> 4, 0x000c000cu, d8, m8);
        }
    }
};

struct unpack_pair3 : unpack_tiled<1792> {
    enum { COLS = 256, BYTES = 1792, BF16 = 0 };
    __device__ static inline void fragments(uint32_t a[4][4], const uint8_t *tile, const uint8_t *, int block,
                                            int lane) {
        const uint32_t *rows = reinterpret_cast<const uint32_t *>(tile + 1536) + lane / 4 * 4 + block;
        const uint2     q = load_lane8(tile + block * 256 + lane * 8);
        const uint32_t  h = *reinterpret_cast<const uint32_t *>(tile + 1024 + block * 128 + lane * 4);
        const __half2   d0 = low_twice(rows[0]), m0 = high_twice(rows[0]), d8 = low_twice(rows[32]), m8 = high_twice(rows[32]);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const uint32_t w = (j < 2 ? q.x : q.y) >> (j % 2 * 8);
            const uint32_t h0 = j == 0 ? h << 2 : h >> (4 * j - 2), h2 = j == 0 ? h << 1 : h >> (4 * j - 1);
            a[j][0] = above_of(w, 0x00030003u, h0, 0x00040004u, d0, m0);
            a[j][1] = above_of(w, 0x000c000cu, h0, 0x00100010u, d8, m8);
            a[j][2] = above_of(w >> 4, 0x00030003u, h2, 0x00040004u, d0, m0);
            a[j][3] = above_of(w >> 4, 0x000c000cu, h2, 0x00100010u, d8, m8);
        }
    }
};

/* As Q4_K and Q5_K, with the scale and the minimum of each 32 columns as two halves. */
struct unpack_pair4 : unpack_tiled<2560> {
    enum { COLS = 256, BYTES = 2560, BF16 = 0 };
    __device__ static inline void fragments(uint32_t a[4][4], const uint8_t *tile, const uint8_t *, int block,
                                            int lane) {
        const uint8_t *rows = tile + 2048 + lane / 4 * 32 + block * 8;
        unpack_nibbles(a, load_lane16(tile + block * 512 + lane * 16), load_lane8(rows), load_lane8(rows + 256));
    }
};

struct unpack_pair5 : unpack_tiled<3072> {
    enum { COLS = 256, BYTES = 3072, BF16 = 0 };
    __device__ static inline void fragments(uint32_t a[4][4], const uint8_t *tile, const uint8_t *, int block,
                                            int lane) {
        const uint8_t *rows = tile + 2560 + lane / 4 * 32 + block * 8;
        unpack_fifths(a, load_lane16(tile + block * 512 + lane * 16),
                      *reinterpret_cast<const uint32_t *>(tile + 2048 + block * 128 + lane * 4), load_lane8(rows),
                      load_lane8(rows + 256));
    }
};

/* As Q8_0, with pairs. */
struct unpack_pair8 : unpack_tiled<2304> {
    enum { COLS = 128, BYTES = 2304, BF16 = 0 };
    __device__ static inline void fragments(uint32_t a[4][4], const uint8_t *tile, const uint8_t *, int block,
                                            int lane) {
        const uint8_t *rows = tile + 2048 + lane / 4 * 16 + block * 8;
        const uint2    r0 = load_lane8(rows), r8 = load_lane8(rows + 128);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint4    q = load_lane16(tile + (block * 2 + i) * 512 + lane * 16);
            const uint32_t w[4] = { q.x, q.y, q.z, q.w }, p0 = i == 0 ? r0.x : r0.y, p8 = i == 0 ? r8.x : r8.y;
            const __half2  s0 = low_twice(p0), m0 = high_twice(p0), s8 = low_twice(p8), m8 = high_twice(p8);
#pragma unroll
            for (int j = 0; j < 2; j++) {
                a[2 * i + j][0] = unpack_q8_0::pair(w[2 * j], 0x4140, s0, m0);
                a[2 * i + j][1] = unpack_q8_0::pair(w[2 * j], 0x4342, s8, m8);
                a[2 * i + j][2] = unpack_q8_0::pair(w[2 * j + 1], 0x4140, s0, m0);
                a[2 * i + j][3] = unpack_q8_0::pair(w[2 * j + 1], 0x4342, s8, m8);
            }
        }
    }
};

/*
 * Bytes of FP8, two pairs in a word. Seven bits of E4M3 in the lower four of a half's exponent and the upper three of its
 * mantissa are 2^-8 of the number, subnormal ones too; a byte of E5M2 is the upper half of a half. A scale for each GROUP
 * columns.
 */
template <int GROUP, bool E5M2> struct unpack_float8 : unpack_tiled<2048 + 4096 / GROUP> {
    enum { COLS = 128, BYTES = 2048 + 4096 / GROUP, BF16 = 0, SCALES = COLS / GROUP }; /* SCALES: of a row */
    __device__ static inline uint32_t upper(uint32_t w) { return w & (E5M2 ? 0xff00ff00u : 0xbf80bf80u); }
    __device__ static inline uint32_t lower(uint32_t w) {
        return E5M2 ? w << 8 & 0xff00ff00u : set_in(w << 1, 0x80008000u, w << 7 & 0x3f803f80u);
    }
    __device__ static inline uint32_t times(uint32_t w, __half2 s) { return as_u32(__hmul2_rn(as_half2(w), s)); }
    __device__ static inline void fragments(uint32_t a[4][4], const uint8_t *tile, const uint8_t *, int block,
                                            int lane) {
        const __half *scale = reinterpret_cast<const __half *>(tile + 2048) + lane / 4 * SCALES;
        uint32_t      d0, d8; /* of twice 32 columns */
        if constexpr (GROUP == 32) {
            d0 = *reinterpret_cast<const uint32_t *>(scale + block * 2);
            d8 = *reinterpret_cast<const uint32_t *>(scale + 8 * SCALES + block * 2);
        } else {
            d0 = as_u32(__half2half2(scale[0])), d8 = as_u32(__half2half2(scale[8]));
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint4    q = load_lane16(tile + (block * 2 + i) * 512 + lane * 16);
            const uint32_t w[4] = { q.x, q.y, q.z, q.w };
            const __half2  s0 = i == 0 ? low_twice(d0) : high_twice(d0), s8 = i == 0 ? low_twice(d8) : high_twice(d8);
#pragma unroll
            for (int j = 0; j < 2; j++) {
                a[2 * i + j][0] = times(upper(w[2 * j]), s0);
                a[2 * i + j][1] = times(lower(w[2 * j]), s8);
                a[2 * i + j][2] = times(upper(w[2 * j + 1]), s0);
                a[2 * i + j][3] = times(lower(w[2 * j + 1]), s8);
            }
        }
    }
};

using unpack_e4m3_128 = unpack_float8<128, false>;
using unpack_e4m3_32 = unpack_float8<32, false>;
using unpack_e5m2_32 = unpack_float8<32, true>;

#include "kernels/cuda/unpack_grid.cuh"

/* 16 rows of an image block in shared memory. */
template <int IS_BF16> struct unpack_image : unpack_plain {
    enum { COLS = 64, BYTES = 2048, BF16 = IS_BF16 };
    __device__ static inline const uint8_t *at(const uint8_t *w, int64_t rt, int64_t kt, int64_t, int64_t rows_pad) {
        return w + (kt * rows_pad + rt * CUDA_TILE_ROWS) * CUDA_ROW_BYTES;
    }
    __device__ static inline void fragments(uint32_t a[4][4], const uint8_t *tile, const uint8_t *, int, int lane) {
        const uint32_t row = smem_at(tile) + lane % 16 * CUDA_ROW_BYTES;
#pragma unroll
        for (int j = 0; j < 4; j++) load_matrices(a[j], row + ((2 * j + lane / 16) ^ lane % 8) * 16);
    }
};
using unpack_f16 = unpack_image<0>;
using unpack_bf16 = unpack_image<1>;

/* All types that lie in tiles. */
#define UNPACK_TILED(X)                                                                                                \
    X(TENSOR_Q4_0, unpack_q4_0)                                                                                        \
    X(TENSOR_MXFP4, unpack_mxfp4)                                                                                      \
    X(TENSOR_Q8_0, unpack_q8_0)                                                                                        \
    X(TENSOR_Q2_K, unpack_q2_k)                                                                                        \
    X(TENSOR_Q3_K, unpack_q3_k)                                                                                        \
    X(TENSOR_Q4_K, unpack_q4_k)                                                                                        \
    X(TENSOR_Q5_K, unpack_q5_k)                                                                                        \
    X(TENSOR_Q6_K, unpack_q6_k)                                                                                        \
    X(TENSOR_IQ2_XXS, unpack_iq2_xxs)                                                                                  \
    X(TENSOR_IQ2_XS, unpack_iq2_xs)                                                                                    \
    X(TENSOR_IQ2_S, unpack_iq2_s)                                                                                      \
    X(TENSOR_IQ3_XXS, unpack_iq3_xxs)                                                                                  \
    X(TENSOR_IQ3_S, unpack_iq3_s)                                                                                      \
    X(TENSOR_IQ1_S, unpack_iq1_s)                                                                                      \
    X(TENSOR_IQ1_M, unpack_iq1_m)                                                                                      \
    X(TENSOR_TABLE32, unpack_table<32>)                                                                                \
    X(TENSOR_TABLE16, unpack_table<16>)                                                                                \
    X(TENSOR_PAIR2, unpack_pair2)                                                                                      \
    X(TENSOR_PAIR3, unpack_pair3)                                                                                      \
    X(TENSOR_PAIR4, unpack_pair4)                                                                                      \
    X(TENSOR_PAIR5, unpack_pair5)                                                                                      \
    X(TENSOR_PAIR8, unpack_pair8)                                                                                      \
    X(TENSOR_E4M3_128, unpack_e4m3_128)                                                                                \
    X(TENSOR_E4M3_32, unpack_e4m3_32)                                                                                  \
    X(TENSOR_E5M2_32, unpack_e5m2_32)                                                                                  \
    X(TENSOR_NF4_64, unpack_nf4)

#endif
