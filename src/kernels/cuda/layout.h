/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How weights and activations lie in a device's memory, and how the sum along K is cut. C and CUDA read this header.
 *
 * Slices. K is cut into S slices of equal length (a multiple of 256; the last ones may be shorter or empty). S and the
 * length follow from the matrix alone, never from the number of activation rows or from the device.
 *
 * Image. 16-bit matrices (F16 and BF16 weights, unpacked weights, activations) lie as Hopper's tensor cores want them
 * in shared memory ("128-byte swizzle"), so that any run of rows of 64 columns is one contiguous copy:
 *
 *     [block of 64 columns][row][8 chunks of 16 bytes], chunk c of row r stands at place c ^ (r & 7)
 *
 * The matrix is padded: rows to `rows_pad`, columns to a multiple of 64 (weights) or 256 (activations); padding columns
 * are zero.
 *
 * Tiles. Quantized weights lie in tiles of 16 rows and 128 or 256 columns, [row tile][column tile], in the order in
 * which the lanes of a warp hold them for mma.m16n8k16: lane l = 4g + t has rows g and g + 8, and of each 16 columns
 * the pairs 2t, 2t+1 and 2t+8, 2t+9. The four pairs are named
 *
 *     a0 = (g, 2t)  a1 = (g+8, 2t)  a2 = (g, 2t+8)  a3 = (g+8, 2t+8)
 *
 *     Q4_0  128 columns, 1152 bytes: [64 columns][lane] 16 bytes, word j = 16 columns j, nibbles p and p + 4 of a word
 *           = pair a_p; then [row][32 columns] D
 *     MXFP4 as Q4_0, but in each half of a word the lower three bits of pair a_p are at bit 9 - 3p, their signs of a0 ..
 *           a3 at bits 15, 12, 14, 13; D is the block's power of two, less that of the matrix and CUDA_MXFP4_TOP, times
 *           2^14
 *     Q2_K  256 columns, 1344 bytes: [64 columns][lane] two words; word j / 2, pair a_p of 16 columns j at bit 2p + 8 (j % 2)
 *           of each half; then [row][64 columns] a word with four times four bits, sc in the lower and mn in the upper half;
 *           then [row] (D, -dmin * 2^12)
 *     Q3_K  256 columns, 1760 bytes: two bits as Q2_K; then [64 columns][lane] a word with the third bits, of pair a_p of 16
 *           columns j at bit 4j + p / 2 + 2 (p % 2) of each half; then [row][128 columns] a word with the lower four bits of
 *           eight scales, of scale i at bit 4 (i % 4) of half i / 4; then [row] a word with their upper two, at bit 2 (i % 4)
 *           of those halves, of the second 128 columns 8 bits higher; then [row] D
 *     Q4_K  256 columns, 2304 bytes: nibbles as Q4_0; then [row] four words: (D, -dmin * 2^12), and 8 pairs (sc, mn) of
 *           6 bits, sc in the lower and mn in the upper half of three words. Each half of word h = 0, 1 has pair 4h, pair
 *           4h+1 and the low 4 bits of pair 4h+2; byte h of each half of word 2 has the high 2 bits of pair 4h+2, and
 *           pair 4h+3
 *     Q5_K  256 columns, 2816 bytes: low nibbles as Q4_0; then [64 columns][lane] a word with the fifth bits, of pair a_p
 *           of 16 columns j at bit 2j + p / 2 + 4 (p % 2), from j = 2 on 4 bits higher, of each half; then as Q4_K
 *     Q6_K  256 columns, 3360 bytes: low nibbles as Q4_0; then [64 columns][lane] two words with the upper two bits:
 *           word j / 2, pair a_p of 16 columns j at bit 2 (4 (j % 2) + p) of each half; then [row][16 columns] scale
 *           + 128; then [row] D
 *     Q8_0  128 columns, 2176 bytes: [32 columns][lane] 16 bytes = two times 8 bytes for 16 columns: a0 a1 a2 a3, each
 *           byte q + 128; then [row][32 columns] D
 *
 *     IQ2   256 columns, 1120 (IQ2_XXS), 1248 (IQ2_XS), 1312 bytes (IQ2_S): [64 columns][lane] the lower eight bits of four
 *           numbers of codebook rows, lane 16h + r having row r and byte j columns 16j + 8h to 16j + 8h + 7; then [64
 *           columns][lane] their signs, of element c of number j at bit 8j + 4 (c % 2) + (2 + c / 2) % 4; then [lane] the
 *           numbers' upper bits, number j of 64 columns b the (4b + j)th: IQ2_XS one in 16 bits, IQ2_S two in 32; then [row]
 *           scales of four bits, IQ2_XXS a word, scale g at bit 4 (g / 2) + 16 (g % 2), else such a word for each 128
 *           columns; then [row] D / 8
 *     IQ3   256 columns, 1632 (IQ3_XXS) or 1760 bytes (IQ3_S): as IQ2_XXS, with two numbers of four columns in the place of
 *           one; signs of the lane's own pairs, of a_p in 16 columns j at bit 2p + j / 2 of bytes 2 (j % 2) and 2 (j % 2) +
 *           1; of IQ3_S the numbers' ninth bits in 32; D / 4 (IQ3_XXS) or D
 *     IQ1   256 columns, 800 (IQ1_S) or 928 bytes (IQ1_M): as IQ2_S without signs; then [lane] a third bit more, of IQ1_S in 16
 *           bits, of IQ1_M in the lower half of 32, whose upper half says where an eighth is subtracted; of IQ1_S bit 3 of the
 *           scale says that; D / 8
 *
 * Types that are not in files (recode.h):
 *
 *     TABLE 256 columns, 2320 (TABLE32) or 2576 bytes (TABLE16): [64 columns][lane] 16 bytes, word j = 16 columns j, four-bit
 *           codes of a0 a1 in columns 2t, then in 2t+1, then of a2 a3 in 2t+8, then in 2t+9; then [row][32 or 16 columns] D;
 *           then the 16 bytes that codes choose among, 128 + the integer
 *     PAIR2 256 columns, 1280 bytes: two bits as Q2_K; then [row][64 columns] D and the minimum
 *     PAIR3 256 columns, 1792 bytes: two and third bits as Q3_K; then as PAIR2
 *     PAIR4 256 columns, 2560 bytes: nibbles as Q4_0; then [row][32 columns] D and the minimum
 *     PAIR5 256 columns, 3072 bytes: low nibbles and fifth bits as Q5_K; then as PAIR4
 *     PAIR8 128 columns, 2304 bytes: bytes as Q8_0, but without 128; then as PAIR4
 *     E4M3  128 columns, 2080 (E4M3_128) or 2176 bytes (E4M3_32): [32 columns][lane] 16 bytes = two times two words for 16
 *           columns; in each half of a word a0 (a2) has its sign at bit 15 and the other seven bits from bit 7 on, a1 (a3)
 *           its sign at bit 14 and the others from bit 0 on; then [row][128 or 32 columns] the scale times 2^8
 *     E5M2  as E4M3_32, but a0 (a2) is the upper and a1 (a3) the lower byte of each half; the scale as it is
 *     NF4   256 columns, 2176 bytes (NF4_64): codes as TABLE; then [row][64 columns] the scale divided by CUDA_NF4_UNIT
 *
 * A tile takes the bytes of the file's blocks, no more; of MXFP4 a byte more per block, of IQ2_XXS, IQ2_XS and IQ3_XXS, whose
 * files leave every eighth sign out, four, of IQ1_M two. All weights of a matrix are divided by two to a power
 * (cuda_pack_power). D is the scale of the file, so divided, times 2^24, or times 2^22 for rows
 * 8 to 15 of Q2_K, Q3_K, PAIR2 and PAIR3 and 2^20 for those of Q4_0, Q4_K, Q5_K, PAIR4 and PAIR5, whose bits are read where they lie
 * (unpack.cuh).
 */
#ifndef KERNELS_CUDA_LAYOUT_H
#define KERNELS_CUDA_LAYOUT_H

#ifdef __cplusplus
extern "C" {
#endif

#include "tensor/types.h"

#ifdef __cplusplus
}
#endif

#ifdef __CUDACC__
#define CUDA_BOTH __host__ __device__
#else
#define CUDA_BOTH
#endif

enum {
    CUDA_TILE_ROWS = 16,
    CUDA_SLICES_MAX = 8,
    CUDA_SLICE_UNIT = 256, /* a slice is a multiple of this */
    CUDA_BLOCK_COLS = 64,  /* of an image */
    CUDA_ROW_BYTES = 128,  /* of an image: one row of a block */
};

/* Blocks of MXFP4 with this scale, less the matrix's power, have weights of e2m1 * 2; more would not fit into 16 bits. */
enum { CUDA_MXFP4_TOP = 128 };

/* NF4's 16 numbers are held as halves times this: so each is rounded by less than 2^-12.5 of itself, instead of 2^-11.5. */
#define CUDA_NF4_UNIT 0.8192496f

/*
 * The power of two that the weights of a matrix are divided by, from its largest block (cuda_pack_top): MXFP4's exponent
 * comes to CUDA_MXFP4_TOP. Of other types `top` is a float's bits: the largest scale of some columns (d, in types K times
 * its small integer), or the largest minimum (in types K dmin) * 2^-12; times 2^24 it comes to [2^14, 2^15). So weights are
 * at most 2^-2, or 2^3 by their minimum, and what is rounded away of the smallest of them, half of 2^-24, is less than the
 * rounding of the largest.
 *
 * Numbers of FP8 reach far down themselves, so the largest weight comes near the largest half: the scale of E4M3 times 2^8
 * to [2^14, 2^15), that of E5M2 to [2^-1, 1). With scales that are powers of two all weights of E4M3 are exact whose scale is
 * not less than 2^-21 of the largest, of E5M2 not less than 2^-7. The scale of NF4 comes to [2^14, 2^15).
 */
CUDA_BOTH static inline int cuda_pack_power(tensor_type type, uint32_t top) {
    int e = (int)(top >> 23) - 127; /* of the largest */
    if (type == TENSOR_MXFP4) return (top < 28 ? 28 : (int)top) - CUDA_MXFP4_TOP;
    if (top == 0) return 0;
    switch (type) {
    case TENSOR_E4M3_128:
    case TENSOR_E4M3_32: e += 8 - 14; break;
    case TENSOR_E5M2_32: e += 1; break;
    case TENSOR_NF4_64: e -= 14; break;
    default: e += 24 - 14; break;
    }
    return e < -126 ? -126 : e > 127 ? 127 : e; /* two to this power is a normal float */
}

CUDA_BOTH static inline int64_t cuda_round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

/* The number of slices of a matrix with this many columns: enough warps for one row, and no slice under 256. */
CUDA_BOTH static inline int cuda_slices(int64_t cols) {
    int64_t units = (cols + CUDA_SLICE_UNIT - 1) / CUDA_SLICE_UNIT;
    return units >= 8 ? 8 : units >= 4 ? 4 : units >= 2 ? 2 : 1;
}

/* Columns of every slice but the last. */
CUDA_BOTH static inline int64_t cuda_slice_cols(int64_t cols) {
    return cuda_round_up((cols + cuda_slices(cols) - 1) / cuda_slices(cols), CUDA_SLICE_UNIT);
}

/*
 * The exponent e that an activation row is divided by before it is rounded to f16: the largest magnitude (`top`, its
 * float bits without sign) comes to lie in [2^14, 2^15), so that values down to 2^-28 of it keep all bits. Rows with an
 * infinity or a NaN stay as they are; their sums are not finite anyway.
 */
CUDA_BOTH static inline int cuda_row_exponent(uint32_t top) {
    int e = (int)(top >> 23) - 127 - 14;
    if (top == 0 || top >= 0x7f800000u) return 0;
    return e < -126 ? -126 : e; /* 2^-e and 2^e are normal floats */
}

/* Byte of element (row, col) in an image of rows_pad rows. */
CUDA_BOTH static inline size_t cuda_image_at(int64_t row, int64_t col, int64_t rows_pad) {
    int64_t block = col / CUDA_BLOCK_COLS, chunk = col % CUDA_BLOCK_COLS / 8;
    return (size_t)((block * rows_pad + row) * CUDA_ROW_BYTES + ((chunk ^ (row & 7)) * 16) + col % 8 * 2);
}

#endif
