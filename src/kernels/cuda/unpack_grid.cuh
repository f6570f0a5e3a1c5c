/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The IQ types in tiles (layout.h): numbers of a codebook's rows, signs beside them, a scale for each 16 or 32 columns.
 *
 * A row of the codebook is eight (IQ3: four) columns of one weight row, of which each of four lanes needs two. So every
 * number is looked up once, by one lane, and lanes exchange what they found by shared memory: of 64 columns lane 16h + r has
 * row r and, for j = 0..3, columns 16j + 8h to 16j + 8h + 7. It puts signs to them and leaves what each of four lanes wants:
 * codes of four bits, the two columns of four pairs in a word. A code is
 *
 *     IQ2   bits 0, 1: which of 8, 25, 43; bit 2: minus
 *     IQ1   bits 0, 1: which of -8, 0, 8, eight times the codebook's; bit 2: less one, else and one
 *     IQ3   which of eight magnitudes; signs lie where the lanes want them
 *
 * It chooses among bytes, 128 + the integer, of IQ3 the magnitude, of which weights are made as those of TABLE32 and TABLE16
 * (unpack.cuh).
 *
 * The codebook lies in the block's shared memory, a word (IQ3: half a word) of such codes for a row, so that 32 lanes with
 * 32 numbers meet in few banks. begin() puts it there, and __syncthreads() behind it is the caller's.
 */
#ifndef KERNELS_CUDA_UNPACK_GRID_CUH
#define KERNELS_CUDA_UNPACK_GRID_CUH

#include "tensor/iq_numbers.h"

/* A codebook of N rows, and the bytes that codes of three bits choose among. */
#define GRID(name, N, numbers, first, second)                                                                          \
    struct name {                                                                                                      \
        enum : uint32_t { ROWS = N, FIRST = first, SECOND = second };                                                  \
        __device__ static inline uint32_t row(int i) {                                                                 \
            static const uint16_t rows[N] = { numbers };                                                               \
            return rows[i];                                                                                            \
        }                                                                                                              \
    };
GRID(grid_iq2_xxs, 256, TENSOR_IQ2_XXS_GRID, 0x80ab9988u, 0x80556778u)
GRID(grid_iq2_xs, 512, TENSOR_IQ2_XS_GRID, 0x80ab9988u, 0x80556778u)
GRID(grid_iq2_s, 1024, TENSOR_IQ2_S_GRID, 0x80ab9988u, 0x80556778u)
GRID(grid_iq3_xxs, 256, TENSOR_IQ3_XXS_GRID, 0x1c140c04u, 0x3e342c24u)
GRID(grid_iq3_s, 512, TENSOR_IQ3_S_GRID, 0x07050301u, 0x0f0d0b09u)
GRID(grid_iq1_s, 2048, TENSOR_IQ1_S_GRID, 0x80898179u, 0x80877f77u)
#undef GRID

/* Where the parts of a tile begin. KIND: of IQ1, IQ2 or IQ3; HIGH: bits of a number above eight. */
template <int KIND, int GROUP, int HIGH> struct grid_tile {
    enum {
        NUMBERS = KIND == 3 ? 8 : 4,        /* of a lane in 64 columns */
        SHIFTED = KIND == 1 && GROUP == 16, /* each row of the codebook has its own "less one" */
        SIGNS = 4 * 32 * NUMBERS,
        TWOS = SIGNS + (KIND == 1 ? 0 : 4 * 32 * 4),
        ONES = TWOS + (HIGH >= 2 ? 32 * 4 : 0),
        ONES_WIDE = KIND == 3 || SHIFTED, /* 32 bits, else 16 */
        SCALES = ONES + (HIGH % 2 ? 32 * (ONES_WIDE ? 4 : 2) : 0),
        ROW_SCALES = 128 / GROUP, /* bytes */
        D = SCALES + 16 * ROW_SCALES,
        BYTES = D + 16 * 2,
    };
    /* IQ2: signs of the codes for four lanes t lie in a word such that one shift brings those of each to bit 2. */
    CUDA_BOTH static constexpr inline int sign_at(int t) { return (2 + t) % 4; }
};

template <class BOOK, int KIND, int GROUP, int HIGH>
struct unpack_grid : unpack_tiled<grid_tile<KIND, GROUP, HIGH>::BYTES> {
    using part = grid_tile<KIND, GROUP, HIGH>;
    enum { COLS = 256, BYTES = part::BYTES, BF16 = 0, SCRATCH = 1024, CODES = 0, FACTORS = 512 };
    enum { VALUES = (int)BOOK::ROWS * (KIND == 3 ? 2 : 4), SHARED = VALUES + 8, LEAN = 1 };

    /* The codebook, then the bytes that codes choose among: as constants they would be moved to registers again and again. */
    __device__ static inline uint8_t *book() {
        __shared__ __align__(8) uint8_t codes[SHARED];
        return codes;
    }
    __device__ static inline void begin() {
        if (threadIdx.x < 2)
            reinterpret_cast<uint32_t *>(book() + VALUES)[threadIdx.x] = threadIdx.x ? BOOK::SECOND : BOOK::FIRST;
#pragma unroll 1
        for (int i = (int)threadIdx.x; i < (int)BOOK::ROWS; i += (int)blockDim.x) {
            uint32_t v = BOOK::row(i), codes = 0;
#pragma unroll
            for (int k = 0; k < (KIND == 3 ? 4 : 8); k++)
                codes |= (KIND == 3 ? v >> 3 * k & 7 : v >> 2 * k & 3) << 4 * k;
            if (KIND == 3)
                reinterpret_cast<uint16_t *>(book())[i] = (uint16_t)codes;
            else
                reinterpret_cast<uint32_t *>(book())[i] = codes;
        }
    }

    __device__ static inline uint32_t word(const uint8_t *p) { return *reinterpret_cast<const uint32_t *>(p); }

    /* D * (2 s + 1), lane 16h + r: of columns 128h .. 128h + 127 of row r. [row][32 columns] or [128 columns][row][16 columns]
     * halves. */
    __device__ static inline void prepare(const uint8_t *tile, uint8_t *scratch, int lane) {
        const int      r = lane % 16, h = lane / 16;
        const uint32_t w =
            word(tile + part::SCALES + r * part::ROW_SCALES + (GROUP == 16 ? h * 4 : 0)) >> (GROUP == 16 ? 0 : 8 * h);
        const __half2 d = __half2half2(reinterpret_cast<const __half *>(tile + part::D)[r]);
        constexpr int N = 64 / GROUP; /* words */
        uint32_t      s[N];
#pragma unroll
        for (int m = 0; m < N; m++) {
            const uint32_t v = set_in(w >> (4 * m), KIND == 1 ? 0x00070007u : 0x000f000fu, HALF2_1024);
            s[m] = as_u32(__hmul2_rn(__hfma2(as_half2(v), __float2half2_rn(2), __float2half2_rn(-2047)), d));
        }
        uint8_t *to = scratch + FACTORS;
        if constexpr (GROUP == 16)
            *reinterpret_cast<uint4 *>(to + h * 256 + r * 16) = make_uint4(s[0], s[1], s[2], s[3]);
        else
            *reinterpret_cast<uint2 *>(to + r * 16 + h * 8) = make_uint2(s[0], s[1]);
    }

    /* Bits from `from` on, at `to`; others may stand beside them. */
    __device__ static inline uint32_t moved(uint32_t w, int from, int to) {
        return from > to ? w >> (from - to) : w << (to - from);
    }

    /* What this lane looks up: the codes of eight columns in each of four words. */
    __device__ static inline void look(uint32_t e[4], const uint8_t *tile, int block, int lane) {
        uint32_t twos = 0, ones = 0, low[2];
        if constexpr (KIND == 3) {
            const uint2 q = load_lane8(tile + block * 256 + lane * 8);
            low[0] = q.x, low[1] = q.y;
        } else {
            low[0] = low[1] = word(tile + block * 128 + lane * 4);
        }
        if (HIGH >= 2) twos = word(tile + part::TWOS + lane * 4);
        if (HIGH % 2)
            ones = part::ONES_WIDE ? word(tile + part::ONES + lane * 4)
                                   : reinterpret_cast<const uint16_t *>(tile + part::ONES)[lane];
        constexpr int UNIT = KIND == 3 ? 1 : 2; /* bytes of a row, as a power of two */
        uint32_t      found[part::NUMBERS];
#pragma unroll
        for (int i = 0; i < part::NUMBERS; i++) {
            const int n = block * part::NUMBERS + i;
            uint32_t  at = moved(low[i / 4], i % 4 * 8, UNIT) & 0xff << UNIT;
            if (HIGH >= 2) at = set_in(moved(twos, 2 * n, 8 + UNIT), 3 << (8 + UNIT), at);
            if (HIGH == 1) at = set_in(moved(ones, n, 8 + UNIT), 1 << (8 + UNIT), at);
            if (HIGH == 3) at = set_in(moved(ones, n, 10 + UNIT), 1 << (10 + UNIT), at);
            found[i] = KIND == 3 ? *reinterpret_cast<const uint16_t *>(book() + at) : word(book() + at);
        }
#pragma unroll
        for (int j = 0; j < 4; j++) e[j] = KIND == 3 ? choose_bytes(found[2 * j], found[2 * j + 1], 0x5410) : found[j];
    }

    /* Bit 2 of the codes of IQ1, in the order of what is exchanged: all eight columns of a number have the same. */
    __device__ static inline uint32_t shifts(const uint8_t *tile, int block, int lane) {
        if (part::SHIFTED) {
            const uint32_t four = word(tile + part::ONES + lane * 4) >> (16 + 4 * block) & 15;
            return (four * 0x00204081u & 0x01010101u) * 0x44;
        }
        return (word(tile + part::SCALES + lane % 16 * part::ROW_SCALES) >> (4 * block + 3) & 0x00010001u) * 0x4444;
    }

    /* Codes of 64 columns to the scratch: [pair][lane] a word, 16 columns j in byte j. */
    __device__ static inline void exchange(const uint8_t *tile, uint8_t *scratch, int block, int lane) {
        uint32_t e[4];
        look(e, tile, block, lane);
        const uint32_t low01 = choose_bytes(e[0], e[1], 0x5140), low23 = choose_bytes(e[2], e[3], 0x5140);
        const uint32_t high01 = choose_bytes(e[0], e[1], 0x7362), high23 = choose_bytes(e[2], e[3], 0x7362);
        uint32_t       c[4] = { choose_bytes(low01, low23, 0x5410), choose_bytes(low01, low23, 0x7632),
                                choose_bytes(high01, high23, 0x5410), choose_bytes(high01, high23, 0x7632) };
        if constexpr (KIND == 1) {
            const uint32_t less = shifts(tile, block, lane);
#pragma unroll
            for (int t = 0; t < 4; t++) c[t] |= less;
        }
        if constexpr (KIND == 2) {
            const uint32_t signs = word(tile + part::SIGNS + block * 128 + lane * 4);
#pragma unroll
            for (int t = 0; t < 4; t++) c[t] = set_in(moved(signs, part::sign_at(t), 2), 0x44444444u, c[t]);
        }
        *reinterpret_cast<uint4 *>(scratch + CODES + lane * 16) = make_uint4(c[0], c[1], c[2], c[3]);
    }

    /* Two bytes of v, for halves of which `signs` has the upper bytes, or 0. */
    __device__ static inline uint32_t pair(uint32_t v, uint32_t signs, uint32_t select, __half2 s, __half2 z) {
        const __half2 q = as_half2(choose_bytes(v, signs, select));
        return as_u32(KIND == 3 ? __hmul2_rn(q, s) : __hfma2(q, s, z));
    }

    __device__ static inline void fragments(uint32_t a[4][4], const uint8_t *tile, uint8_t *scratch, int block,
                                            int lane) {
        __syncwarp(); /* the block before is read */
        exchange(tile, scratch, block, lane);
        __syncwarp();
        const uint2 values = load_lane8(book() + VALUES);
        uint32_t    s[2][2], z[2][2]; /* of rows g and g + 8, a half for each 32 or 16 columns; -128 of them */
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const uint8_t *from = scratch + FACTORS + (lane / 4 + 8 * r) * 16;
            if constexpr (GROUP == 16) {
                const uint2 two = load_lane8(from + block / 2 * 256 + block % 2 * 8);
                s[r][0] = two.x, s[r][1] = two.y;
            } else {
                s[r][0] = s[r][1] = word(from + block * 4);
            }
#pragma unroll
            for (int i = 0; i < 2; i++) z[r][i] = as_u32(__hmul2_rn(as_half2(s[r][i]), __float2half2_rn(-0x1p-17f)));
        }
        const uint32_t signs = KIND == 3 ? word(tile + part::SIGNS + block * 128 + lane * 4) : 0;
#pragma unroll
        for (int p = 0; p < 4; p++) {
            const uint32_t w = word(scratch + CODES + p * 128 + lane * 4);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const bool     high = GROUP == 16 ? j % 2 : j >= 2;
                const uint32_t sj = s[p % 2][j / 2], zj = z[p % 2][j / 2];
                const uint32_t v = choose_bytes(values.x, values.y, j < 2 ? w : w >> 16);
                const uint32_t up = KIND == 3 ? signs << (7 - 2 * p - j / 2) & 0x80808080u : 0;
                a[j][p] = pair(v, up, j % 2 ? (KIND == 3 ? 0x7362 : 0x4342) : (KIND == 3 ? 0x5140 : 0x4140),
                               high ? high_twice(sj) : low_twice(sj), high ? high_twice(zj) : low_twice(zj));
            }
        }
    }
};

using unpack_iq2_xxs = unpack_grid<grid_iq2_xxs, 2, 32, 0>;
using unpack_iq2_xs = unpack_grid<grid_iq2_xs, 2, 16, 1>;
using unpack_iq2_s = unpack_grid<grid_iq2_s, 2, 16, 2>;
using unpack_iq3_xxs = unpack_grid<grid_iq3_xxs, 3, 32, 0>;
using unpack_iq3_s = unpack_grid<grid_iq3_s, 3, 32, 1>;
using unpack_iq1_s = unpack_grid<grid_iq1_s, 1, 32, 3>;
using unpack_iq1_m = unpack_grid<grid_iq1_s, 1, 16, 3>;

#endif
