/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights from the file's blocks to tiles and images (layout.h), and from tiles to images. Runs once per matrix at load
 * (packing) or once per matrix and step of many rows (unpacking). One warp makes one tile, or 16 rows x 64 columns of
 * an image.
 */
#include "kernels/cuda/internal.cuh"
#include "kernels/cuda/pack_grid.cuh"
#include "kernels/cuda/recode.h"

#define WARPS 4

/* A scale of the file times 2^e as a half. */
__device__ static inline uint32_t scaled(const uint8_t *p, int e) {
    return halved(half_at(p), e);
}

/* The two columns of pair p of 16 columns: offset of the first. */
__device__ static inline int pair_col(int p, int lane) { return lane % 4 * 2 + p / 2 * 8; }
__device__ static inline int pair_row(int p, int lane) { return lane / 4 + p % 2 * 8; }

/* Four low bits of each value of a tile, [64 columns][lane] 16 bytes. F::code is 0..15 or more; rows beyond the end are
 * 0. */
template <class F>
__device__ static inline void pack_nibbles(const pack_args &a, uint8_t *to, int64_t row0, int64_t col0, int cols,
                                           int lane) {
    for (int b = 0; b < cols / 64; b++) {
        uint32_t w[4];
        for (int j = 0; j < 4; j++) {
            w[j] = 0;
            for (int p = 0; p < 4; p++) {
                for (int i = 0; i < 2; i++) {
                    const int code =
                        F::code(a, row0 + pair_row(p, lane), col0 + b * 64 + j * 16 + pair_col(p, lane) + i);
                    w[j] |= F::place(code & 15, p) << (16 * i);
                }
            }
        }
        *reinterpret_cast<uint4 *>(to + b * 512 + lane * 16) = make_uint4(w[0], w[1], w[2], w[3]);
    }
}

/* D of blocks of 32 columns, 16 rows of 4 values behind the quants of a tile of 128 columns; `lower`: the factor of the
 * lower eight rows is 2^-lower. */
__device__ static inline void pack_scales32(const pack_args &a, uint8_t *to, int64_t row0, int64_t col0,
                                            int block_bytes, int lower, int lane) {
    for (int i = lane; i < 64; i += 32) {
        const int64_t row = row0 + i / 4, col = col0 + i % 4 * 32;
        const bool    in = row < a.rows && col < a.cols;
        reinterpret_cast<uint16_t *>(to)[i] =
            (uint16_t)(in ? scaled(a.from + row * a.row_bytes + col / 32 * block_bytes,
                                   24 - a.power - (i >= 32 ? lower : 0))
                          : 0);
    }
}

/* Pair p of a half word in nibble p. */
struct pack_in_nibbles {
    __device__ static inline uint32_t place(int code, int p) { return (uint32_t)code << (4 * p); }
};

struct pack_q4_0 : pack_in_nibbles {
    using tile = unpack_q4_0;
    enum { BLOCK = 18 };
    __device__ static inline uint32_t top(const uint8_t *b) { return top_of(half_at(b)); }
    __device__ static inline int code(const pack_args &a, int64_t row, int64_t col) {
        if (row >= a.rows || col >= a.cols) return 8;
        return a.from[row * a.row_bytes + col / 32 * 18 + 2 + col % 16] >> (col % 32 / 16 * 4) & 15;
    }
    __device__ static inline void run(const pack_args &a, uint8_t *to, int64_t row0, int64_t col0, int lane) {
        pack_nibbles<pack_q4_0>(a, to, row0, col0, 128, lane);
        pack_scales32(a, to + 1024, row0, col0, 18, 4, lane);
    }
};

struct pack_mxfp4 {
    using tile = unpack_mxfp4;
    enum { BLOCK = 17 };
    __device__ static inline uint32_t top(const uint8_t *b) { return b[0]; }
    __device__ static inline int code(const pack_args &a, int64_t row, int64_t col) {
        if (row >= a.rows || col >= a.cols) return 0;
        return a.from[row * a.row_bytes + col / 32 * 17 + 1 + col % 16] >> (col % 32 / 16 * 4) & 15;
    }
    __device__ static inline uint32_t place(int code, int p) {
        return (uint32_t)(code & 7) << (9 - 3 * p) | (uint32_t)(code >> 3) << (p == 0 ? 15 : p == 1 ? 12 : 16 - p);
    }
    /* The block's scale as a half; 0 where it is too small for one. */
    __device__ static inline uint16_t scale(int e, int power) {
        const int k = e - power - CUDA_MXFP4_TOP + 15;
        return (uint16_t)(k >= -14 ? (min(k, 15) + 15) << 10 : k >= -24 ? 1 << (k + 24) : 0);
    }
    __device__ static inline void run(const pack_args &a, uint8_t *to, int64_t row0, int64_t col0, int lane) {
        pack_nibbles<pack_mxfp4>(a, to, row0, col0, 128, lane);
        for (int i = lane; i < 64; i += 32) {
            const int64_t row = row0 + i / 4, col = col0 + i % 4 * 32;
            const bool    in = row < a.rows && col < a.cols;
            reinterpret_cast<uint16_t *>(to + 1024)[i] =
                in ? scale(a.from[row * a.row_bytes + col / 32 * 17], a.power) : (uint16_t)0;
        }
    }
};

/* Bytes of a tile of 128 columns. */
template <class F>
__device__ static inline void pack_bytes(const pack_args &a, uint8_t *to, int64_t row0, int64_t col0, int lane) {
    for (int i = 0; i < 32; i++) { /* 16-bit pair i: 16 columns i / 4, pair i % 4 */
        const int64_t row = row0 + pair_row(i % 4, lane), col = col0 + i / 4 * 16 + pair_col(i % 4, lane);
        const int     at = i / 8 * 512 + lane * 16 + i % 8 * 2;
        *reinterpret_cast<uint16_t *>(to + at) = (uint16_t)(F::code(a, row, col) | F::code(a, row, col + 1) << 8);
    }
}

struct pack_q8_0 {
    using tile = unpack_q8_0;
    enum { BLOCK = 34 };
    __device__ static inline uint32_t top(const uint8_t *b) { return top_of(half_at(b)); }
    __device__ static inline int code(const pack_args &a, int64_t row, int64_t col) {
        if (row >= a.rows || col >= a.cols) return 128;
        return a.from[row * a.row_bytes + col / 32 * 34 + 2 + col % 32] ^ 0x80;
    }
    __device__ static inline void run(const pack_args &a, uint8_t *to, int64_t row0, int64_t col0, int lane) {
        pack_bytes<pack_q8_0>(a, to, row0, col0, lane);
        pack_scales32(a, to + 2048, row0, col0, 34, 0, lane);
    }
};

/* Fifth bits of a tile of 256 columns, [64 columns][lane] 4 bytes, where unpack_q5_k has them. */
template <class F>
__device__ static inline void pack_fifth(const pack_args &a, uint8_t *to, int64_t row0, int64_t col0, int lane) {
    for (int b = 0; b < 4; b++) {
        uint32_t w = 0;
        for (int i = 0; i < 32; i++) { /* 16 columns j, pair p, element i % 2 */
            const int j = i / 8, p = i / 2 % 4, k = 2 * j + (j < 2 ? 0 : 4) + p / 2;
            const int code = F::code(a, row0 + pair_row(p, lane), col0 + b * 64 + j * 16 + pair_col(p, lane) + i % 2);
            w |= (uint32_t)(code >> 4 & 1) << (k + 4 * (p % 2) + 16 * (i % 2));
        }
        *reinterpret_cast<uint32_t *>(to + b * 128 + lane * 4) = w;
    }
}

/* Q4_K and Q5_K: d, dmin and the pairs of 6 bits, at the beginning of a block. */
template <int BYTES> struct pack_k4 : pack_in_nibbles {
    enum { BLOCK = BYTES };
    __device__ static inline uint32_t top(const uint8_t *b) {
        int most = 0;
        for (int j = 0; j < 4; j++) most = max(most, max(b[4 + j] & 63, (b[12 + j] & 15) | b[4 + j] >> 6 << 4));
        return max(top_of(half_at(b) * (float)most), top_of(half_at(b + 2) * 0x1p-12f));
    }
    __device__ static inline void scales(const pack_args &a, uint8_t *to, int64_t row0, int64_t col0, int lane) {
        const int64_t row = row0 + lane;
        if (lane >= 16) return;
        uint32_t pair[8] = {}, d = 0;
        if (row < a.rows) {
            const uint8_t *b = a.from + row * a.row_bytes + col0 / 256 * BYTES, *s = b + 4;
            d = scaled(b, (lane < 8 ? 24 : 20) - a.power) | (scaled(b + 2, 12 - a.power) ^ 0x8000u) << 16;
            for (int j = 0; j < 8; j++) {
                const uint32_t sc = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
                const uint32_t mn = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4;
                pair[j] = sc | mn << 16;
            }
        }
        const uint32_t w0 = pair[0] | pair[1] << 6 | (pair[2] & 0x000f000fu) << 12;
        const uint32_t w1 = pair[4] | pair[5] << 6 | (pair[6] & 0x000f000fu) << 12;
        const uint32_t w2 = (pair[2] & 0x00300030u) >> 4 | pair[3] << 2 | (pair[6] & 0x00300030u) << 4 | pair[7] << 10;
        *reinterpret_cast<uint4 *>(to + lane * 16) = make_uint4(d, w0, w1, w2);
    }
    /* Four bits of nibbles that lie as in Q4_K from `qs` on. */
    __device__ static inline int nibble(const uint8_t *qs, int64_t col) {
        return qs[col % 256 / 64 * 32 + col % 32] >> (col % 64 / 32 * 4) & 15;
    }
};

struct pack_q4_k : pack_k4<144> {
    using tile = unpack_q4_k;
    __device__ static inline int code(const pack_args &a, int64_t row, int64_t col) {
        return row >= a.rows ? 0 : nibble(a.from + row * a.row_bytes + col / 256 * BLOCK + 16, col);
    }
    __device__ static inline void run(const pack_args &a, uint8_t *to, int64_t row0, int64_t col0, int lane) {
        pack_nibbles<pack_q4_k>(a, to, row0, col0, 256, lane);
        scales(a, to + 2048, row0, col0, lane);
    }
};

struct pack_q5_k : pack_k4<176> {
    using tile = unpack_q5_k;
    __device__ static inline int code(const pack_args &a, int64_t row, int64_t col) {
        const uint8_t *b = a.from + row * a.row_bytes + col / 256 * BLOCK;
        return row >= a.rows ? 0 : nibble(b + 48, col) | (b[16 + col % 32] >> (col % 256 / 32) & 1) << 4;
    }
    __device__ static inline void run(const pack_args &a, uint8_t *to, int64_t row0, int64_t col0, int lane) {
        pack_nibbles<pack_q5_k>(a, to, row0, col0, 256, lane);
        pack_fifth<pack_q5_k>(a, to + 2048, row0, col0, lane);
        scales(a, to + 2560, row0, col0, lane);
    }
};

/* Two low bits of each value of a tile of 256 columns, [64 columns][lane] two words. */
template <class F>
__device__ static inline void pack_twos(const pack_args &a, uint8_t *to, int64_t row0, int64_t col0, int lane) {
    for (int i = 0; i < 8; i++) { /* word i: 32 columns i */
        uint32_t w = 0;
        for (int k = 0; k < 16; k++) { /* 16 columns k / 8, pair k / 2 % 4, element k % 2 */
            const int p = k / 2 % 4;
            w |= (F::code(a, row0 + pair_row(p, lane), col0 + i * 32 + k / 8 * 16 + pair_col(p, lane) + k % 2) & 3)
                 << (k / 8 * 8 + 2 * p + 16 * (k % 2));
        }
        *reinterpret_cast<uint32_t *>(to + i / 2 * 256 + lane * 8 + i % 2 * 4) = w;
    }
}

/* Third bits of the same, [64 columns][lane] a word. */
template <class F>
__device__ static inline void pack_thirds(const pack_args &a, uint8_t *to, int64_t row0, int64_t col0, int lane) {
    for (int i = 0; i < 4; i++) {
        uint32_t w = 0;
        for (int k = 0; k < 32; k++) { /* 16 columns k / 8, pair k / 2 % 4, element k % 2 */
            const int p = k / 2 % 4;
            w |= (F::code(a, row0 + pair_row(p, lane), col0 + i * 64 + k / 8 * 16 + pair_col(p, lane) + k % 2) >> 2 & 1u)
                 << (k / 8 * 4 + p / 2 + 2 * (p % 2) + 16 * (k % 2));
        }
        *reinterpret_cast<uint32_t *>(to + i * 128 + lane * 4) = w;
    }
}

/* Two bits as Q2_K and Q3_K have them in a file. */
__device__ static inline uint32_t two_bits(const uint8_t *qs, int64_t col) {
    return qs[col % 256 / 128 * 32 + col % 32] >> (col % 128 / 32 * 2) & 3;
}

struct pack_q2_k {
    using tile = unpack_q2_k;
    enum { BLOCK = 84 };
    __device__ static inline uint32_t top(const uint8_t *b) {
        int most = 0;
        for (int i = 0; i < 16; i++) most = max(most, b[i] & 15);
        return max(top_of(half_at(b + 80) * (float)most), top_of(half_at(b + 82) * 0x1p-12f));
    }
    __device__ static inline uint32_t code(const pack_args &a, int64_t row, int64_t col) {
        const uint8_t *b = a.from + row * a.row_bytes + col / 256 * BLOCK;
        return row < a.rows ? two_bits(b + 16, col) : 0;
    }
    __device__ static inline void run(const pack_args &a, uint8_t *to, int64_t row0, int64_t col0, int lane) {
        pack_twos<pack_q2_k>(a, to, row0, col0, lane);
        const int64_t row = row0 + lane;
        if (lane >= 16) return;
        const uint8_t *b = a.from + row * a.row_bytes + col0 / 256 * BLOCK;
        for (int i = 0; i < 4; i++) {
            uint32_t w = 0;
            for (int k = 0; k < 4 && row < a.rows; k++)
                w |= (uint32_t)(b[4 * i + k] & 15) << (4 * k) | (uint32_t)(b[4 * i + k] >> 4) << (16 + 4 * k);
            *reinterpret_cast<uint32_t *>(to + 1024 + lane * 16 + i * 4) = w;
        }
        *reinterpret_cast<uint32_t *>(to + 1280 + lane * 4) =
            row < a.rows
                ? scaled(b + 80, (lane < 8 ? 24 : 22) - a.power) | (scaled(b + 82, 12 - a.power) ^ 0x8000u) << 16
                : 0;
    }
};

struct pack_q3_k {
    using tile = unpack_q3_k;
    enum { BLOCK = 110 };
    /* Scale g of a block, 32 more than it is. */
    __device__ static inline uint32_t scale(const uint8_t *b, int g) {
        const uint8_t *s = b + 96;
        return (s[g % 8] >> (g < 8 ? 0 : 4) & 15) | (uint32_t)(s[8 + g % 4] >> (g / 4 * 2) & 3) << 4;
    }
    __device__ static inline uint32_t top(const uint8_t *b) {
        int most = 0;
        for (int g = 0; g < 16; g++) most = max(most, abs((int)scale(b, g) - 32));
        return top_of(half_at(b + 108) * (float)most);
    }
    __device__ static inline uint32_t code(const pack_args &a, int64_t row, int64_t col) {
        const uint8_t *b = a.from + row * a.row_bytes + col / 256 * BLOCK;
        return row < a.rows ? two_bits(b + 32, col) | (b[col % 32] >> (col % 256 / 32) & 1u) << 2 : 0;
    }
    __device__ static inline void run(const pack_args &a, uint8_t *to, int64_t row0, int64_t col0, int lane) {
        pack_twos<pack_q3_k>(a, to, row0, col0, lane);
        pack_thirds<pack_q3_k>(a, to + 1024, row0, col0, lane);
        const int64_t row = row0 + lane;
        if (lane >= 16) return;
        const uint8_t *b = a.from + row * a.row_bytes + col0 / 256 * BLOCK;
        uint32_t       low[2] = {}, high = 0;
        for (int g = 0; g < 16 && row < a.rows; g++) {
            const uint32_t sc = scale(b, g);
            low[g / 8] |= (sc & 15) << (g % 4 * 4 + g % 8 / 4 * 16);
            high |= sc >> 4 << (g % 4 * 2 + g % 8 / 4 * 16 + g / 8 * 8);
        }
        *reinterpret_cast<uint2 *>(to + 1536 + lane * 8) = make_uint2(low[0], low[1]);
        *reinterpret_cast<uint32_t *>(to + 1664 + lane * 4) = high;
        reinterpret_cast<uint16_t *>(to + 1728)[lane] =
            (uint16_t)(row < a.rows ? scaled(b + 108, (lane < 8 ? 24 : 22) - a.power) : 0);
    }
};

struct pack_q6_k : pack_in_nibbles {
    using tile = unpack_q6_k;
    enum { BLOCK = 210 };
    __device__ static inline uint32_t top(const uint8_t *b) {
        int most = 0;
        for (int i = 0; i < 16; i++) most = max(most, abs((int)(int8_t)b[192 + i]));
        return top_of(half_at(b + 208) * (float)most);
    }
    __device__ static inline int code(const pack_args &a, int64_t row, int64_t col) {
        if (row >= a.rows) return 32;
        const uint8_t *b = a.from + row * a.row_bytes + col / 256 * 210;
        const int      h = (int)(col % 256 / 128), s = (int)(col % 128 / 32), l = (int)(col % 32);
        return (b[64 * h + 32 * (s % 2) + l] >> (s / 2 * 4) & 15) | (b[128 + 32 * h + l] >> (2 * s) & 3) << 4;
    }
    __device__ static inline void run(const pack_args &a, uint8_t *to, int64_t row0, int64_t col0, int lane) {
        pack_nibbles<pack_q6_k>(a, to, row0, col0, 256, lane);
        for (int i = 0; i < 8; i++) { /* word i: 32 columns i */
            uint32_t w = 0;
            for (int p = 0; p < 16; p++) { /* 16 columns p / 8, pair p / 2 % 4, element p % 2 */
                const int pair = p / 2 % 4;
                const int c =
                    code(a, row0 + pair_row(pair, lane), col0 + i * 32 + p / 8 * 16 + pair_col(pair, lane) + p % 2);
                w |= (uint32_t)(c >> 4) << (2 * (p / 8 * 4 + pair) + 16 * (p % 2));
            }
            *reinterpret_cast<uint32_t *>(to + 2048 + i / 2 * 256 + lane * 8 + i % 2 * 4) = w;
        }
        for (int i = lane; i < 256; i += 32) {
            const int64_t row = row0 + i / 16;
            const bool    in = row < a.rows;
            to[3072 + i] = (uint8_t)(in ? a.from[row * a.row_bytes + col0 / 256 * 210 + 192 + i % 16] ^ 0x80 : 128);
        }
        if (lane < 16) {
            const int64_t row = row0 + lane;
            reinterpret_cast<uint16_t *>(to + 3328)[lane] =
                (uint16_t)(row < a.rows ? scaled(a.from + row * a.row_bytes + col0 / 256 * 210 + 208, 24 - a.power)
                                        : 0);
        }
    }
};

/* Four-bit codes of a tile of 256 columns, [64 columns][lane] 16 bytes, where unpack_table has them. */
template <class F>
__device__ static inline void pack_digits(const pack_args &a, uint8_t *to, int64_t row0, int64_t col0, int lane) {
    for (int i = 0; i < 16; i++) { /* word i: 16 columns i; digits a0 a1 a0 a1, a2 a3 a2 a3 */
        uint32_t w = 0;
        for (int k = 0; k < 8; k++) {
            const int p = k / 4 * 2 + k % 2;
            w |= F::code(a, row0 + pair_row(p, lane), col0 + i * 16 + pair_col(p, lane) + k / 2 % 2) << (4 * k);
        }
        *reinterpret_cast<uint32_t *>(to + i / 4 * 512 + lane * 16 + i % 4 * 4) = w;
    }
}

template <int GROUP> struct pack_table {
    using tile = unpack_table<GROUP>;
    enum { BLOCK = sizeof(cuda_table_block) };
    __device__ static inline const cuda_table_block *at(const pack_args &a, int64_t row, int64_t col) {
        return reinterpret_cast<const cuda_table_block *>(a.from + row * a.row_bytes) + col / 256;
    }
    __device__ static inline uint32_t top(const uint8_t *b) {
        uint32_t most = 0;
        for (int i = 0; i < 16; i++) most = max(most, top_of(reinterpret_cast<const cuda_table_block *>(b)->scale[i]));
        return most;
    }
    __device__ static inline uint32_t code(const pack_args &a, int64_t row, int64_t col) {
        return row < a.rows ? at(a, row, col)->codes[col % 256 / 2] >> (col % 2 * 4) & 15 : 0;
    }
    __device__ static inline void run(const pack_args &a, uint8_t *to, int64_t row0, int64_t col0, int lane) {
        constexpr int N = 256 / GROUP; /* scales of a row */
        pack_digits<pack_table<GROUP>>(a, to, row0, col0, lane);
        for (int i = lane; i < 16 * N; i += 32) {
            const int64_t row = row0 + i / N;
            reinterpret_cast<uint16_t *>(to + 2048)[i] =
                (uint16_t)(row < a.rows ? halved(at(a, row, col0)->scale[i % N * (GROUP / 16)], 24 - a.power) : 0);
        }
        if (lane < 16) to[tile::TABLE + lane] = at(a, row0, col0)->values[lane];
    }
};

struct pack_nf4 {
    using tile = unpack_nf4;
    enum { BLOCK = sizeof(cuda_nf4_block) };
    __device__ static inline const cuda_nf4_block *at(const pack_args &a, int64_t row, int64_t col) {
        return reinterpret_cast<const cuda_nf4_block *>(a.from + row * a.row_bytes) + col / 256;
    }
    __device__ static inline uint32_t top(const uint8_t *b) {
        uint32_t most = 0;
        for (int i = 0; i < 4; i++) most = max(most, top_of(reinterpret_cast<const cuda_nf4_block *>(b)->scale[i]));
        return most;
    }
    __device__ static inline uint32_t code(const pack_args &a, int64_t row, int64_t col) {
        return row < a.rows ? at(a, row, col)->codes[col % 256 / 2] >> (col % 2 * 4) & 15 : 0;
    }
    __device__ static inline void run(const pack_args &a, uint8_t *to, int64_t row0, int64_t col0, int lane) {
        pack_digits<pack_nf4>(a, to, row0, col0, lane);
        for (int i = lane; i < 64; i += 32) {
            const int64_t row = row0 + i / 4;
            reinterpret_cast<uint16_t *>(to + 2048)[i] =
                (uint16_t)(row < a.rows ? halved(at(a, row, col0)->scale[i % 4], -a.power) : 0);
        }
    }
};

/* Blocks with a scale and a minimum; a tile has N pairs of them in a row, each of EACH columns. */
template <int N, int EACH = 32> struct pack_pairs : pack_in_nibbles {
    enum { BLOCK = sizeof(cuda_pair_block) };
    __device__ static inline const cuda_pair_block *at(const pack_args &a, int64_t row, int64_t col) {
        return reinterpret_cast<const cuda_pair_block *>(a.from + row * a.row_bytes) + col / 32;
    }
    __device__ static inline uint32_t top(const uint8_t *b) {
        const cuda_pair_block *p = reinterpret_cast<const cuda_pair_block *>(b);
        return max(top_of(p->scale), top_of(p->min * 0x1p-12f));
    }
    __device__ static inline int code(const pack_args &a, int64_t row, int64_t col) {
        return row < a.rows && col < a.cols ? at(a, row, col)->q[col % 32] : 0;
    }
    /* `lower`: the factor of the lower eight rows' scales is 2^-lower. */
    __device__ static inline void pairs(const pack_args &a, uint8_t *to, int64_t row0, int64_t col0, int lower, int lane) {
        for (int i = lane; i < 16 * N; i += 32) {
            const int64_t row = row0 + i / N, col = col0 + i % N * EACH;
            const bool    in = row < a.rows && col < a.cols;
            reinterpret_cast<uint32_t *>(to)[i] =
                in ? halved(at(a, row, col)->scale, 24 - a.power - (i / N < 8 ? 0 : lower)) |
                         halved(at(a, row, col)->min, -a.power) << 16
                   : 0;
        }
    }
};

struct pack_pair2 : pack_pairs<4, 64> {
    using tile = unpack_pair2;
    __device__ static inline void run(const pack_args &a, uint8_t *to, int64_t row0, int64_t col0, int lane) {
        pack_twos<pack_pair2>(a, to, row0, col0, lane);
        pairs(a, to + 1024, row0, col0, 2, lane);
    }
};

struct pack_pair3 : pack_pairs<4, 64> {
    using tile = unpack_pair3;
    __device__ static inline void run(const pack_args &a, uint8_t *to, int64_t row0, int64_t col0, int lane) {
        pack_twos<pack_pair3>(a, to, row0, col0, lane);
        pack_thirds<pack_pair3>(a, to + 1024, row0, col0, lane);
        pairs(a, to + 1536, row0, col0, 2, lane);
    }
};

struct pack_pair4 : pack_pairs<8> {
    using tile = unpack_pair4;
    __device__ static inline void run(const pack_args &a, uint8_t *to, int64_t row0, int64_t col0, int lane) {
        pack_nibbles<pack_pair4>(a, to, row0, col0, 256, lane);
        pairs(a, to + 2048, row0, col0, 4, lane);
    }
};

struct pack_pair5 : pack_pairs<8> {
    using tile = unpack_pair5;
    __device__ static inline void run(const pack_args &a, uint8_t *to, int64_t row0, int64_t col0, int lane) {
        pack_nibbles<pack_pair5>(a, to, row0, col0, 256, lane);
        pack_fifth<pack_pair5>(a, to + 2048, row0, col0, lane);
        pairs(a, to + 2560, row0, col0, 4, lane);
    }
};

struct pack_pair8 : pack_pairs<4> {
    using tile = unpack_pair8;
    __device__ static inline void run(const pack_args &a, uint8_t *to, int64_t row0, int64_t col0, int lane) {
        pack_bytes<pack_pair8>(a, to, row0, col0, lane);
        pairs(a, to + 2048, row0, col0, 0, lane);
    }
};

template <int GROUP, bool E5M2> struct pack_float8 {
    using tile = unpack_float8<GROUP, E5M2>;
    enum { BLOCK = sizeof(cuda_float8_block) };
    __device__ static inline const cuda_float8_block *at(const pack_args &a, int64_t row, int64_t col) {
        return reinterpret_cast<const cuda_float8_block *>(a.from + row * a.row_bytes) + col / 32;
    }
    __device__ static inline uint32_t top(const uint8_t *b) {
        return top_of(reinterpret_cast<const cuda_float8_block *>(b)->scale);
    }
    /* Where a byte lies in half a word: that of pair a0 or a2, or of a1 or a3. */
    __device__ static inline uint32_t place(const pack_args &a, int64_t row, int64_t col, bool upper) {
        const uint32_t c = row < a.rows && col < a.cols ? at(a, row, col)->q[col % 32] : 0;
        if (E5M2) return upper ? c << 8 : c;
        return upper ? (c & 0x80) << 8 | (c & 0x7f) << 7 : (c & 0x80) << 7 | (c & 0x7f);
    }
    __device__ static inline void run(const pack_args &a, uint8_t *to, int64_t row0, int64_t col0, int lane) {
        for (int i = 0; i < 16; i++) { /* word i: 16 columns i / 2, pairs a0 a1 or a2 a3 */
            uint32_t w = 0;
            for (int k = 0; k < 4; k++) { /* pair k / 2, element k % 2 */
                const int p = i % 2 * 2 + k / 2;
                w |= place(a, row0 + pair_row(p, lane), col0 + i / 2 * 16 + pair_col(p, lane) + k % 2, k < 2)
                     << (16 * (k % 2));
            }
            *reinterpret_cast<uint32_t *>(to + i / 4 * 512 + lane * 16 + i % 4 * 4) = w;
        }
        for (int i = lane; i < 16 * tile::SCALES; i += 32) {
            const int64_t row = row0 + i / tile::SCALES, col = col0 + i % tile::SCALES * GROUP;
            const bool    in = row < a.rows && col < a.cols;
            reinterpret_cast<uint16_t *>(to + 2048)[i] =
                (uint16_t)(in ? halved(at(a, row, col)->scale, (E5M2 ? 0 : 8) - a.power) : 0);
        }
    }
};
using pack_e4m3_128 = pack_float8<128, false>;
using pack_e4m3_32 = pack_float8<32, false>;
using pack_e5m2_32 = pack_float8<32, true>;

/* As UNPACK_TILED. */
#define PACK_TILED(X)                                                                                                  \
    X(TENSOR_Q4_0, pack_q4_0)                                                                                          \
    X(TENSOR_MXFP4, pack_mxfp4)                                                                                        \
    X(TENSOR_Q8_0, pack_q8_0)                                                                                          \
    X(TENSOR_Q2_K, pack_q2_k)                                                                                          \
    X(TENSOR_Q3_K, pack_q3_k)                                                                                          \
    X(TENSOR_Q4_K, pack_q4_k)                                                                                          \
    X(TENSOR_Q5_K, pack_q5_k)                                                                                          \
    X(TENSOR_Q6_K, pack_q6_k)                                                                                          \
    X(TENSOR_IQ2_XXS, pack_grid<iq2_xxs_block>)                                                                        \
    X(TENSOR_IQ2_XS, pack_grid<iq2_xs_block>)                                                                          \
    X(TENSOR_IQ2_S, pack_grid<iq2_s_block>)                                                                            \
    X(TENSOR_IQ3_XXS, pack_grid<iq3_xxs_block>)                                                                        \
    X(TENSOR_IQ3_S, pack_grid<iq3_s_block>)                                                                            \
    X(TENSOR_IQ1_S, pack_grid<iq1_s_block>)                                                                            \
    X(TENSOR_IQ1_M, pack_grid<iq1_m_block>)                                                                            \
    X(TENSOR_TABLE32, pack_table<32>)                                                                                  \
    X(TENSOR_TABLE16, pack_table<16>)                                                                                  \
    X(TENSOR_PAIR2, pack_pair2)                                                                                        \
    X(TENSOR_PAIR3, pack_pair3)                                                                                        \
    X(TENSOR_PAIR4, pack_pair4)                                                                                        \
    X(TENSOR_PAIR5, pack_pair5)                                                                                        \
    X(TENSOR_PAIR8, pack_pair8)                                                                                        \
    X(TENSOR_E4M3_128, pack_e4m3_128)                                                                                  \
    X(TENSOR_E4M3_32, pack_e4m3_32)                                                                                    \
    X(TENSOR_E5M2_32, pack_e5m2_32)                                                                                    \
    X(TENSOR_NF4_64, pack_nf4)

/* One warp per tile. */
template <class F> static __global__ void pack_kernel(const pack_args a) {
    const int64_t tile = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (tile >= a.rows_pad / CUDA_TILE_ROWS * a.n_kt) return;
    F::run(a, a.to + tile * F::tile::BYTES, tile / a.n_kt * CUDA_TILE_ROWS, tile % a.n_kt * F::tile::COLS,
           (int)threadIdx.x % 32);
}

/* 16-bit rows to an image: one thread per chunk of 8 columns, read by halves (rows may begin at any even address). */
static __global__ void pack_image_kernel(const pack_args a) {
    const int64_t i = (int64_t)blockIdx.x * (WARPS * 32) + threadIdx.x, row = i / 8 % a.rows_pad,
                  block = i / 8 / a.rows_pad;
    if (block >= a.n_kt) return;
    const int64_t col = block * 64 + i % 8 * 8;
    uint32_t      w[4] = {};
    for (int c = 0; c < 8; c++) {
        if (row < a.rows && col + c < a.cols)
            w[c / 2] |= byte_pair(a.from + row * a.row_bytes + (col + c) * 2) << (c % 2 * 16);
    }
    *reinterpret_cast<uint4 *>(a.to + cuda_image_at(row, col, a.pitch)) = make_uint4(w[0], w[1], w[2], w[3]);
}

/* 16 rows x 64 columns of an image, number i of BLOCKS for each tile; through shared memory so that the rows leave as 2048
 * bytes. */
template <class T>
__device__ static inline void unpack_part(const pack_args &a, int64_t i, uint8_t *part, uint8_t *scratch, int lane) {
    constexpr int BLOCKS = T::COLS / 64;
    const int64_t tile = i / BLOCKS;
    uint32_t      fa[4][4];
    T::prepare(a.from + tile * T::BYTES, scratch, lane);
    __syncwarp();
    T::fragments(fa, a.from + tile * T::BYTES, scratch, (int)(i % BLOCKS), lane);
#pragma unroll
    for (int j = 0; j < 4; j++) {
#pragma unroll
        for (int p = 0; p < 4; p++) {
            const int row = pair_row(p, lane), chunk = 2 * j + p / 2;
            *reinterpret_cast<uint32_t *>(part + row * 128 + (chunk ^ (row & 7)) * 16 + lane % 4 * 4) = fa[j][p];
        }
    }
    __syncwarp();
    const int64_t block = tile % a.n_kt * BLOCKS + i % BLOCKS, row0 = tile / a.n_kt * CUDA_TILE_ROWS;
    if (block * 64 >= cuda_round_up(a.cols, 64)) return;
    uint8_t *to = a.to + (block * a.rows_pad + row0) * CUDA_ROW_BYTES;
#pragma unroll
    for (int o = 0; o < 2048; o += 512)
        *reinterpret_cast<uint4 *>(to + o + lane * 16) = *reinterpret_cast<const uint4 *>(part + o + lane * 16);
}

/* Parts that a warp makes: one, or several where its block brings something for them first. */
template <class T> struct unpack_share {
    enum { PARTS = T::SHARED > 0 ? 8 : 1 };
};

/* Tiles to an image. */
template <class T> static __global__ void unpack_kernel(const pack_args a) {
    __shared__ __align__(16) uint8_t part[WARPS][2048], scratch[WARPS][T::SCRATCH ? T::SCRATCH : 1];
    const int                        lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int64_t first = (int64_t)blockIdx.x * WARPS + warp, n = a.rows_pad / CUDA_TILE_ROWS * a.n_kt * (T::COLS / 64);
    if constexpr (unpack_share<T>::PARTS == 1) {
        if (first < n) unpack_part<T>(a, first, part[warp], scratch[warp], lane);
    } else {
        T::begin();
        __syncthreads();
        for (int64_t i = first; i < n; i += (int64_t)gridDim.x * WARPS) {
            unpack_part<T>(a, i, part[warp], scratch[warp], lane);
            __syncwarp();
        }
    }
}

template <class T> static int unpack_start(const pack_args &a, cuda_stream s, err *e) {
    const int64_t n = a.rows_pad / CUDA_TILE_ROWS * a.n_kt * (T::COLS / 64);
    const int     each = WARPS * unpack_share<T>::PARTS;
    return cuda_launch(unpack_kernel<T>, { (unsigned)((n + each - 1) / each), WARPS * 32, 1, 0, false }, s, e, a);
}

static cuda_shape warps_shape(int64_t n) { return { (unsigned)((n + WARPS - 1) / WARPS), WARPS * 32, 1, 0, false }; }

static int pack(void *to, const void *from, size_t row_bytes, tensor_type type, int64_t rows, int64_t cols, int power,
                int64_t pitch, cuda_stream s, err *e) {
    if (!cuda_can_multiply(type))
        return err_set(e, ERR_UNSUPPORTED, "CUDA: no product with weights of type %d yet", (int)type);
    const cuda_weight   w = { type, rows, cols, to, pitch };
    const product_shape p = product_shape_of(&w);
    const tensor_type_info *t = tensor_type_get(type); /* NULL: recoded, in whole blocks */
    if (rows < 1 || cols < 1 || (t && cols % t->block_elems) || rows > INT32_MAX / 2 || cols > INT32_MAX / 2)
        return err_set(e, ERR_ARG, "CUDA: a matrix of %lld rows and %lld columns", (long long)rows, (long long)cols);
    const pack_args a = {
        (const uint8_t *)from, row_bytes, (uint8_t *)to, rows, cols, p.rows_pad, (cols + p.tile_cols - 1) / p.tile_cols,
        power, p.pitch
    };
    const int64_t tiles = p.rows_pad / CUDA_TILE_ROWS * a.n_kt;
    switch (type) {
#define START(type, F)                                                                                                 \
    case type: return cuda_launch(pack_kernel<F>, warps_shape(tiles), s, e, a);
        PACK_TILED(START)
#undef START
    default: return cuda_launch(pack_image_kernel, warps_shape(a.n_kt * p.rows_pad * 8 / 32), s, e, a);
    }
}

int cuda_pack(void *to, const void *from, size_t row_bytes, tensor_type type, int64_t rows, int64_t cols, int power,
              cuda_stream s, err *e) {
    return pack(to, from, row_bytes, type, rows, cols, power, 0, s, e);
}

int cuda_pack_part(void *to, const void *from, size_t row_bytes, tensor_type type, int64_t rows, int64_t cols,
                   int64_t pitch, cuda_stream s, err *e) {
    return pack(to, from, row_bytes, type, rows, cols, 0, pitch, s, e);
}

template <class F>
static __global__ __launch_bounds__(256) void top_kernel(uint32_t *top, const uint8_t *blocks, int64_t n) {
    uint32_t most = 0;
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < n; i += (int64_t)gridDim.x * 256)
        most = max(most, F::top(blocks + i * F::BLOCK));
    most = __reduce_max_sync(0xffffffffu, most);
    if (threadIdx.x % 32 == 0) atomicMax(top, most);
}

int cuda_pack_top(uint32_t *top, const void *blocks, tensor_type type, int64_t n, cuda_stream s, err *e) {
    const cuda_shape shape = { 512, 256, 1, 0, false };
    const uint8_t   *b = (const uint8_t *)blocks;
    switch (type) {
#define START(type, F)                                                                                                 \
    case type: return cuda_launch(top_kernel<F>, shape, s, e, top, b, n);
        PACK_TILED(START)
#undef START
    default: return 0;
    }
}

int cuda_unpack(void *to, const cuda_weight *w, cuda_stream s, err *e) {
    const product_shape p = product_shape_of(w);
    const pack_args     a = {
            (const uint8_t *)w->data, 0, (uint8_t *)to, p.rows, p.cols, p.rows_pad,
            (p.cols + p.tile_cols - 1) / p.tile_cols, 0, p.pitch
    };
    switch (w->type) {
#define START(type, T)                                                                                                 \
    case type: return unpack_start<T>(a, s, e);
        UNPACK_TILED(START)
#undef START
    default: return err_set(e, ERR_ARG, "CUDA: weights of type %d are not unpacked", (int)w->type);
    }
}
