/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packing of the IQ types. Each says of a block of its file (tensor/blocks.h) what unpack_grid.cuh wants: d, numbers of
 * codebook rows, signs of eight columns, scales s of a group (the factor is d * (2 s + 1) * 2^-UNIT), and whether eight
 * columns of IQ1 are less one.
 */
#ifndef KERNELS_CUDA_PACK_GRID_CUH
#define KERNELS_CUDA_PACK_GRID_CUH

#include "kernels/cuda/pack.cuh"

__device__ static inline uint32_t byte_four(const uint8_t *p) { return byte_pair(p) | byte_pair(p + 2) << 16; }

/* Four seven-bit sign numbers, and a scale above them: the eighth sign makes the number of minus signs even. */
__device__ static inline uint32_t even_signs(uint32_t seven) { return seven | (__popc(seven) & 1u) << 7; }

struct grid_block {
    enum { UNIT = 3 };
    __device__ static inline float    d(const uint8_t *b) { return half_at(b); }
    __device__ static inline uint32_t signs(const uint8_t *, int) { return 0; }
    __device__ static inline uint32_t less(const uint8_t *, int) { return 0; }
};

struct iq2_xxs_block : grid_block {
    using tile = unpack_iq2_xxs;
    enum { BLOCK = 66 };
    __device__ static inline uint32_t number(const uint8_t *b, int i) { return b[2 + i / 4 * 8 + i % 4]; }
    __device__ static inline uint32_t signs(const uint8_t *b, int i) {
        return even_signs(byte_four(b + 6 + i / 4 * 8) >> (7 * (i % 4)) & 127);
    }
    __device__ static inline uint32_t scale(const uint8_t *b, int g) { return b[9 + g * 8] >> 4; }
};

struct iq2_xs_block : grid_block {
    using tile = unpack_iq2_xs;
    enum { BLOCK = 74 };
    __device__ static inline uint32_t number(const uint8_t *b, int i) { return byte_pair(b + 2 + 2 * i) & 511; }
    __device__ static inline uint32_t signs(const uint8_t *b, int i) { return even_signs(b[3 + 2 * i] >> 1); }
    __device__ static inline uint32_t scale(const uint8_t *b, int g) { return b[66 + g / 2] >> (g % 2 * 4) & 15; }
};

struct iq2_s_block : grid_block {
    using tile = unpack_iq2_s;
    enum { BLOCK = 82 };
    __device__ static inline uint32_t number(const uint8_t *b, int i) {
        return b[2 + i] | (b[66 + i / 4] >> (i % 4 * 2) & 3u) << 8;
    }
    __device__ static inline uint32_t signs(const uint8_t *b, int i) { return b[34 + i]; }
    __device__ static inline uint32_t scale(const uint8_t *b, int g) { return b[74 + g / 2] >> (g % 2 * 4) & 15; }
};

struct iq3_xxs_block : grid_block {
    using tile = unpack_iq3_xxs;
    enum { BLOCK = 98, UNIT = 2 };
    __device__ static inline uint32_t number(const uint8_t *b, int i) { return b[2 + i]; }
    __device__ static inline uint32_t signs(const uint8_t *b, int i) {
        return even_signs(byte_four(b + 66 + i / 4 * 4) >> (7 * (i % 4)) & 127);
    }
    __device__ static inline uint32_t scale(const uint8_t *b, int g) { return b[69 + g * 4] >> 4; }
};

struct iq3_s_block : grid_block {
    using tile = unpack_iq3_s;
    enum { BLOCK = 110, UNIT = 0 };
    __device__ static inline uint32_t number(const uint8_t *b, int i) {
        return b[2 + i] | (b[66 + i / 8] >> (i % 8) & 1u) << 8;
    }
    __device__ static inline uint32_t signs(const uint8_t *b, int i) { return b[74 + i]; }
    __device__ static inline uint32_t scale(const uint8_t *b, int g) { return b[106 + g / 2] >> (g % 2 * 4) & 15; }
};

struct iq1_s_block : grid_block {
    using tile = unpack_iq1_s;
    enum { BLOCK = 50 };
    __device__ static inline uint32_t number(const uint8_t *b, int i) {
        return b[2 + i] | (byte_pair(b + 34 + i / 4 * 2) >> (i % 4 * 3) & 7) << 8;
    }
    __device__ static inline uint32_t less(const uint8_t *b, int i) { return b[35 + i / 4 * 2] >> 7; }
    __device__ static inline uint32_t scale(const uint8_t *b, int g) { return b[35 + g * 2] >> 4 & 7; }
};

struct iq1_m_block : grid_block {
    using tile = unpack_iq1_m;
    enum { BLOCK = 56 };
    __device__ static inline float d(const uint8_t *b) {
        uint32_t h = 0;
        for (int i = 0; i < 4; i++) h |= (uint32_t)(b[49 + 2 * i] >> 4) << (4 * i);
        return __half2float(__ushort_as_half((unsigned short)h));
    }
    __device__ static inline uint32_t nibble(const uint8_t *b, int i) { return b[32 + i / 2] >> (i % 2 * 4) & 15; }
    __device__ static inline uint32_t number(const uint8_t *b, int i) { return b[i] | (nibble(b, i) & 7) << 8; }
    __device__ static inline uint32_t less(const uint8_t *b, int i) { return nibble(b, i) >> 3; }
    __device__ static inline uint32_t scale(const uint8_t *b, int g) {
        return byte_pair(b + 48 + g / 4 * 2) >> (g % 4 * 3) & 7;
    }
};

template <class F> struct pack_grid {
    using tile = typename F::tile;
    using part = typename tile::part;
    enum { BLOCK = F::BLOCK };
    __device__ static inline uint32_t top(const uint8_t *b) {
        uint32_t most = 0;
        for (int g = 0; g < 2 * part::ROW_SCALES; g++) most = max(most, F::scale(b, g));
        return top_of(F::d(b) * (float)(2 * most + 1) * (1.0f / (1 << F::UNIT)));
    }
    __device__ static inline void put(uint8_t *to, uint32_t v) { *reinterpret_cast<uint32_t *>(to) = v; }
    /* IQ3: signs of a lane's 32 elements of 64 columns. Those of pair p of 16 columns j, j + 1 (j even) at bit 2p + j / 2 of
     * the bytes. */
    __device__ static inline uint32_t lane_signs(const pack_args &a, int64_t row0, int64_t col0, int lane) {
        uint32_t w = 0;
        for (int i = 0; i < 32; i++) { /* 16 columns i / 8, pair i / 2 % 4, element i % 2 */
            const int     j = i / 8, p = i / 2 % 4;
            const int64_t row = row0 + lane / 4 + p % 2 * 8, col = col0 + j * 16 + lane % 4 * 2 + p / 2 * 8 + i % 2;
            if (row >= a.rows) continue;
            const uint8_t *b = a.from + row * a.row_bytes + col / 256 * BLOCK;
            w |= (F::signs(b, (int)(col % 256 / 8)) >> (col % 8) & 1) << (8 * (j % 2 * 2 + i % 2) + 2 * p + j / 2);
        }
        return w;
    }
    __device__ static inline void run(const pack_args &a, uint8_t *to, int64_t row0, int64_t col0, int lane) {
        constexpr int  N = part::NUMBERS;
        const int      r = lane % 16, h = lane / 16;
        const int64_t  row = row0 + r;
        const bool     in = row < a.rows;
        const uint8_t *b = a.from + (in ? row : 0) * a.row_bytes + col0 / 256 * BLOCK;
        uint32_t       twos = 0, ones = 0;
        for (int k = 0; k < 4; k++) { /* 64 columns */
            uint32_t low[2] = {}, signs = 0;
            for (int i = 0; i < N; i++) {
                const int      eight = 8 * k + i * 4 / N * 2 + h, at = N * k + i;
                const uint32_t n = in ? F::number(b, N == 8 ? 2 * eight + i % 2 : eight) : 0;
                low[i / 4] |= (n & 0xff) << (i % 4 * 8);
                twos |= (at < 16 ? n >> 8 & 3 : 0) << (2 * at % 32);
                ones |= (n >> (part::TWOS < part::ONES ? 10 : 8) & 1) << at;
            }
            for (int j = 0; j < 4 && in; j++) {
                const int      eight = 8 * k + 2 * j + h;
                const uint32_t s = F::signs(b, eight);
                for (int c = 0; c < 8 && N == 4; c++)
                    signs |= (s >> c & 1) << (4 * (2 * j + c % 2) + part::sign_at(c / 2));
                if (part::SHIFTED) ones |= F::less(b, eight) << (16 + 4 * k + j);
            }
            if (N == 8) signs = lane_signs(a, row0, col0 + 64 * k, lane);
            if (N == 8) put(to + k * 256 + lane * 8 + 4, low[1]);
            put(to + k * 32 * N + lane * N, low[0]);
            if (part::SIGNS < part::TWOS) put(to + part::SIGNS + k * 128 + lane * 4, signs);
        }
        if (part::TWOS < part::ONES) put(to + part::TWOS + lane * 4, twos);
        if (part::ONES < part::SCALES) {
            if (part::ONES_WIDE)
                put(to + part::ONES + lane * 4, ones);
            else
                reinterpret_cast<uint16_t *>(to + part::ONES)[lane] = (uint16_t)ones;
        }
        uint32_t w = 0;
        for (int g = 0; g < 8 && in; g++) { /* scales: of 128 columns h, or of the row */
            const uint32_t s = part::ROW_SCALES == 8 ? F::scale(b, 8 * h + g) : F::scale(b, g) | F::less(b, 4 * g) << 3;
            w |= s << (4 * (g / 2) + 16 * (g % 2));
        }
        if (part::ROW_SCALES == 8 || h == 0)
            put(to + part::SCALES + r * part::ROW_SCALES + (part::ROW_SCALES == 8) * h * 4, w);
        if (h == 0)
            reinterpret_cast<uint16_t *>(to + part::D)[r] =
                (uint16_t)(in ? halved(F::d(b), 24 - F::UNIT - a.power) : 0);
    }
};

#endif
