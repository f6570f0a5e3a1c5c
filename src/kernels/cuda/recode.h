/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights of types that the device has no layout for, as blocks of types that it has, made when a model is opened.
 *
 * matmul_panel.h says what most types are: small integers times a scale of 16 or 32 columns, and some have a minimum. Those
 * integers are kept; scales and minima become f32 here, which is exact, and a half only where the device packs them, behind
 * the division by the matrix's power of two. So a weight is off by two roundings to 11 bits, of its scale and of itself, as
 * those of Q4_K and Q6_K are, and small scales lose nothing that F16 weights would not lose. The bytes of FP8 are kept in the
 * same way; a byte that is none (E4M3's NaN) makes the scale of its columns NaN, which comes to the same in any product.
 *
 *   MLX mxfp4                                     MXFP4, exactly                             4.5 bits per weight
 *   IQ4_NL IQ4_XS                                 TABLE32: four bits choose among up to 16   4.53
 *   NVFP4, MLX nvfp4                              TABLE16  integers of a byte each           5.03
 *   TQ1_0 TQ2_0 Q1_0 Q2_0                         PAIR2: an integer, a scale and a minimum   2.5
 *   MLX affine of 2, 3 bits, scales of 64 or more PAIR2, PAIR3                               2.5, 3.5
 *   Q4_1, other MLX affine of 2, 3, 4 bits        PAIR4                                      5
 *   Q5_0 Q5_1, MLX affine of 5 bits               PAIR5                                      6
 *   Q8_K, MLX affine of 6, 8 bits                 PAIR8                                      9
 *   FP8 E4M3, scales of 128 columns or more       E4M3_128: bytes of E4M3 and a scale        8.125
 *   FP8 E4M3, scales of 32 or more; MLX mxfp8     E4M3_32                                    8.5
 *   FP8 E5M2, scales of 32 or more                E5M2_32                                    8.5
 *   NF4, scales of 64 columns or more             NF4_64: four bits choose among 16 halves   4.25
 */
#ifndef KERNELS_CUDA_RECODE_H
#define KERNELS_CUDA_RECODE_H

#ifdef __cplusplus
extern "C" {
#endif

#include "tensor/mat.h"

/* TABLE32 and TABLE16 on their way: 256 columns, w = scale * (values[code] - 128); codes 2i | 2i+1 in byte i, a scale for
 * each 16 columns. Rows of the same 16 have the same values at the same columns. */
typedef struct cuda_table_block {
    float   scale[16];
    uint8_t values[16];
    uint8_t codes[128];
} cuda_table_block;

/* PAIR2 to PAIR8 on their way: 32 columns, w = scale * q + min; of PAIR2 and PAIR3 two and two have the same. */
typedef struct cuda_pair_block {
    float   scale, min;
    uint8_t q[32];
} cuda_pair_block;

/* E4M3_128, E4M3_32 and E5M2_32 on their way: 32 columns, w = scale * byte. */
typedef struct cuda_float8_block {
    float   scale;
    uint8_t q[32];
} cuda_float8_block;

/* NF4_64 on its way: 256 columns, w = scale * CUDA_NF4_UNIT * tensor_nf4_values[code]; codes as above, a scale for each 64. */
typedef struct cuda_nf4_block {
    float   scale[4];
    uint8_t codes[128];
} cuda_nf4_block;

/* What a matrix becomes; F16: it cannot be recoded. */
tensor_type cuda_recode_type(const tensor_mat *m);

/* Blocks as cuda_pack takes them, of the types above and of those that come as in the file. */
int    cuda_block_bytes(tensor_type type);
size_t cuda_row_bytes(tensor_type type, int64_t cols);

/* n rows from row0 on, a multiple of 16, as rows of type `to`, one behind the other. */
void cuda_recode(const tensor_mat *m, tensor_type to, int64_t row0, int64_t n, uint8_t *out);

#ifdef __cplusplus
}
#endif
#endif
