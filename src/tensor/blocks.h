/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantized blocks byte by byte, as they stand in GGUF files (little-endian, no padding, no alignment).
 *
 * A block packs consecutive elements of one row. d, m, dmin are IEEE halves; `q` below is the unpacked integer.
 * "Nibbles j | j+16" means: byte j holds element j in its low and element j+16 in its high nibble. The MLX, FP8 and NF4
 * types have no block struct: their packed values and their scales are separate arrays (tensor/mat.h):
 *
 *   MLX     per row one little-endian bit stream of u32, element k in bits [k*b, (k+1)*b); affine w = scale*q + bias
 *   F8_*    one byte per element, w = value * scale of its group of columns (and rows)
 *   NF4     two elements per byte, high nibble first, w = table[q] * absmax of its group
 */
#ifndef TENSOR_BLOCKS_H
#define TENSOR_BLOCKS_H

#include "tensor/half.h"

#include <assert.h>
#include <stdint.h>

#define TENSOR_PACKED __attribute__((packed))

/* w = d * (q - 8); nibbles j | j+16 */
typedef struct TENSOR_PACKED block_q4_0 {
    uint16_t d;
    uint8_t  qs[16];
} block_q4_0;

/* w = d * q + m; nibbles j | j+16 */
typedef struct TENSOR_PACKED block_q4_1 {
    uint16_t d, m;
    uint8_t  qs[16];
} block_q4_1;

/* w = d * (q - 16); nibbles j | j+16, fifth bit of element j in bit j of qh */
typedef struct TENSOR_PACKED block_q5_0 {
    uint16_t d;
    uint8_t  qh[4];
    uint8_t  qs[16];
} block_q5_0;

/* w = d * q + m; as q5_0 */
typedef struct TENSOR_PACKED block_q5_1 {
    uint16_t d, m;
    uint8_t  qh[4];
    uint8_t  qs[16];
} block_q5_1;

/* w = d * q */
typedef struct TENSOR_PACKED block_q8_0 {
    uint16_t d;
    int8_t   qs[32];
} block_q8_0;

/* w = d * q; s = d * sum(q), for kernels whose other operand has a minimum */
typedef struct TENSOR_PACKED block_q8_1 {
    uint16_t d, s;
    int8_t   qs[32];
} block_q8_1;

/*
 * w = d * (scales & 15) * q - dmin * (scales >> 4), one scales byte per 16 elements. Element 128h + 32s + l (h < 2, s <
 * 4, l < 32) is bits 2s, 2s+1 of qs[32h + l].
 */
typedef struct TENSOR_PACKED block_q2_k {
    uint8_t  scales[16];
    uint8_t  qs[64];
    uint16_t d, dmin;
} block_q2_k;

/*
 * w = d * (sc - 32) * (q - 4). Low two bits of q as in q2_k; the third bit of element 32g + l is bit g of hmask[l].
 * sc of the 16-element group j: low four bits in the nibbles of scales[0..7] (low nibbles 0-7, high nibbles 8-15), high
 * two bits in scales[8 + j % 4] at 2 * (j / 4).
 */
typedef struct TENSOR_PACKED block_q3_k {
    uint8_t  hmask[32];
    uint8_t  qs[64];
    uint8_t  scales[12];
    uint16_t d;
} block_q3_k;

/*
 * w = d * sc * q - dmin * mn per 32 elements; eight 6-bit pairs (sc, mn) in twelve bytes: j < 4: sc = s[j] & 63,
 * mn = s[j + 4] & 63; j >= 4: sc = s[j + 4] & 15 | s[j - 4] >> 6 << 4, mn = s[j + 4] >> 4 | s[j] >> 6 << 4.
 * Element 64g + l is the low, 64g + 32 + l the high nibble of qs[32g + l].
 */
typedef struct TENSOR_PACKED block_q4_k {
    uint16_t d, dmin;
    uint8_t  scales[12];
    uint8_t  qs[128];
} block_q4_k;

/* As q4_k; the fifth bit of element 32g + l is bit g of qh[l]. */
typedef struct TENSOR_PACKED block_q5_k {
    uint16_t d, dmin;
    uint8_t  scales[12];
    uint8_t  qh[32];
    uint8_t  qs[128];
} block_q5_k;

/*
 * w = d * scales[j] * (q - 32), j per 16 elements. In each half of 128: elements l, 32+l, 64+l, 96+l (l < 32) have
 * their low four bits in ql[l] low, ql[32+l] low, ql[l] high, ql[32+l] high and their high two bits in qh[l] at 0, 2,
 * 4, 6.
 */
typedef struct TENSOR_PACKED block_q6_k {
    uint8_t  ql[128];
    uint8_t  qh[64];
    int8_t   scales[16];
    uint16_t d;
} block_q6_k;

/* w = d * q; bsums[j] is the sum of the 16 q of group j. An activation format, not found in files. */
typedef struct TENSOR_PACKED block_q8_k {
    float   d;
    int8_t  qs[256];
    int16_t bsums[16];
} block_q8_k;

/*
 * The IQ types: groups of 8 (IQ3: 4) elements are rows of a codebook (tensor/iq_grids.h), with signs beside them. A
 * 7-bit sign index stands for 8 signs: the eighth makes the number of minus signs even.
 *
 * iq2_xxs, per 32 elements two u32: four grid bytes; four 7-bit sign indices and in the top four bits s.
 * w = d * (s + .5) / 4 * grid
 */
typedef struct TENSOR_PACKED block_iq2_xxs {
    uint16_t d;
    uint16_t qs[32];
} block_iq2_xxs;

/* Per 8 elements one u16: 9 bits grid, 7 bits signs. scales: a nibble s per 16 elements, low first. w as iq2_xxs. */
typedef struct TENSOR_PACKED block_iq2_xs {
    uint16_t d;
    uint16_t qs[32];
    uint8_t  scales[8];
} block_iq2_xs;

/* Per 8 elements a grid byte, a sign byte (bit = minus) and two more grid bits in qh. scales as iq2_xs. */
typedef struct TENSOR_PACKED block_iq2_s {
    uint16_t d;
    uint8_t  qs[32];
    uint8_t  signs[32];
    uint8_t  qh[8];
    uint8_t  scales[8];
} block_iq2_s;

/* Per 4 elements a grid byte; per 32 elements a u32 as the second one of iq2_xxs. w = d * (s + .5) / 2 * grid */
typedef struct TENSOR_PACKED block_iq3_xxs {
    uint16_t d;
    uint8_t  qs[64];
    uint32_t signs[8];
} block_iq3_xxs;

/* Per 4 elements a grid byte and a ninth bit in qh; sign bytes; a scale nibble s per 32. w = d * (1 + 2s) * grid */
typedef struct TENSOR_PACKED block_iq3_s {
    uint16_t d;
    uint8_t  qs[64];
    uint8_t  qh[8];
    uint8_t  signs[32];
    uint8_t  scales[4];
} block_iq3_s;

/* Per 8 elements a grid byte; per 32 a u16: four times 3 grid bits, 3 bits s, sign of delta (1/8).
 * w = d * (2s + 1) * (grid + delta) */
typedef struct TENSOR_PACKED block_iq1_s {
    uint16_t d;
    uint8_t  qs[32];
    uint16_t qh[8];
} block_iq1_s;

/* Per 8 elements a grid byte and a nibble: 3 grid bits, sign of delta. scales: four u16, each four 3-bit s (per 16
 * elements) and in its top four bits a quarter of d, lowest first. */
typedef struct TENSOR_PACKED block_iq1_m {
    uint8_t  qs[32];
    uint8_t  qh[16];
    uint16_t scales[4];
} block_iq1_m;

/* w = d * values[q] (tensor_iq4_values); nibbles j | j+16 */
typedef struct TENSOR_PACKED block_iq4_nl {
    uint16_t d;
    uint8_t  qs[16];
} block_iq4_nl;

/* w = d * (s - 32) * values[q] per 32 elements; s: low nibbles in scales_l, 2 bits each in scales_h; nibbles as iq4_nl.
 */
typedef struct TENSOR_PACKED block_iq4_xs {
    uint16_t d;
    uint16_t scales_h;
    uint8_t  scales_l[4];
    uint8_t  qs[128];
} block_iq4_xs;

/*
 * w = d * (t - 1), t in 0..2. A byte holds five (qh: four) ternary digits as a fraction of 256: the first digit is
 * byte * 3 >> 8, the next that of byte * 3 & 255. Digit n of qs[m] is element 32n + m (m < 32), 160 + 16n + m - 32 (m <
 * 48); digit n of qh[m] is element 240 + 4n + m.
 */
typedef struct TENSOR_PACKED block_tq1_0 {
    uint8_t  qs[48];
    uint8_t  qh[4];
    uint16_t d;
} block_tq1_0;

/* w = d * (q - 1); element 128h + 32s + l is bits 2s, 2s+1 of qs[32h + l]. */
typedef struct TENSOR_PACKED block_tq2_0 {
    uint8_t  qs[64];
    uint16_t d;
} block_tq2_0;

/* w = d where bit i % 8 of qs[i / 8] is set, else -d. */
typedef struct TENSOR_PACKED block_q1_0 {
    uint16_t d;
    uint8_t  qs[16];
} block_q1_0;

/* w = d * (q - 1), q the bits 2 (i % 4), 2 (i % 4) + 1 of qs[i / 4]. */
typedef struct TENSOR_PACKED block_q2_0 {
    uint16_t d;
    uint8_t  qs[16];
} block_q2_0;

/* w = 2^(e - 127) * e2m1; nibbles j | j+16 */
typedef struct TENSOR_PACKED block_mxfp4 {
    uint8_t e;
    uint8_t qs[16];
} block_mxfp4;

/* Four groups of 16: w = e4m3(d[g]) * e2m1, the sign of d ignored, 0x7f reads as 0; nibbles j | j+8 in each group. */
typedef struct TENSOR_PACKED block_nvfp4 {
    uint8_t d[4];
    uint8_t qs[32];
} block_nvfp4;

static_assert(sizeof(block_q4_0) == 18, "q4_0");
static_assert(sizeof(block_q4_1) == 20, "q4_1");
static_assert(sizeof(block_q5_0) == 22, "q5_0");
static_assert(sizeof(block_q5_1) == 24, "q5_1");
static_assert(sizeof(block_q8_0) == 34, "q8_0");
static_assert(sizeof(block_q8_1) == 36, "q8_1");
static_assert(sizeof(block_q2_k) == 84, "q2_k");
static_assert(sizeof(block_q3_k) == 110, "q3_k");
static_assert(sizeof(block_q4_k) == 144, "q4_k");
static_assert(sizeof(block_q5_k) == 176, "q5_k");
static_assert(sizeof(block_q6_k) == 210, "q6_k");
static_assert(sizeof(block_q8_k) == 292, "q8_k");
static_assert(sizeof(block_iq2_xxs) == 66, "iq2_xxs");
static_assert(sizeof(block_iq2_xs) == 74, "iq2_xs");
static_assert(sizeof(block_iq2_s) == 82, "iq2_s");
static_assert(sizeof(block_iq3_xxs) == 98, "iq3_xxs");
static_assert(sizeof(block_iq3_s) == 110, "iq3_s");
static_assert(sizeof(block_iq1_s) == 50, "iq1_s");
static_assert(sizeof(block_iq1_m) == 56, "iq1_m");
static_assert(sizeof(block_iq4_nl) == 18, "iq4_nl");
static_assert(sizeof(block_iq4_xs) == 136, "iq4_xs");
static_assert(sizeof(block_tq1_0) == 54, "tq1_0");
static_assert(sizeof(block_tq2_0) == 66, "tq2_0");
static_assert(sizeof(block_mxfp4) == 17, "mxfp4");
static_assert(sizeof(block_nvfp4) == 36, "nvfp4");
static_assert(sizeof(block_q1_0) == 18, "q1_0");
static_assert(sizeof(block_q2_0) == 18, "q2_0");

/* The six-bit scale and minimum of sub-block j (0..7) of q4_k and q5_k. */
static inline void block_k4_scale_min(const uint8_t s[12], int j, int *scale, int *min) {
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
        /* cppcheck-suppress arrayIndexOutOfBoundsCond ; j is at most 7 */
        *min = s[j + 4] >> 4 | s[j] >> 6 << 4;
    }
}

/* The scale of group j (0..15) of q3_k, -32..31. */
static inline int block_q3_k_scale(const uint8_t s[12], int j) {
    int low = s[j % 8] >> (j < 8 ? 0 : 4) & 15, high = s[8 + j % 4] >> (2 * (j / 4)) & 3;
    return (low | high << 4) - 32;
}

/* The scale of sub-block j (0..7) of iq4_xs, -32..31. */
static inline int block_iq4_xs_scale(const block_iq4_xs *b, int j) {
    return ((b->scales_l[j / 2] >> (4 * (j % 2)) & 15) | (b->scales_h >> (2 * j) & 3) << 4) - 32;
}

/* The scale of mxfp4 to go with doubled values: 2^(e - 128). 255 is not a NaN but 2^127, as in other readers. */
static inline float block_mxfp4_scale(uint8_t e) {
    return tensor_bits_f32(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

/* The scale byte of nvfp4: an e4m3 without sign; 0x7f reads as 0, 0xff as 480. */
static inline float block_nvfp4_scale(uint8_t d) {
    int mag = d & 0x7f;
    if (d == 0x7f) return 0;
    return d == 0xff ? 480.0f : tensor_e4m3_to_f32((uint8_t)mag);
}

#endif
