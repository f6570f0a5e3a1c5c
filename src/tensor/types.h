/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element and block types of weights, and how many bytes they take.
 *
 * Types below TENSOR_GGML_END carry the number that GGUF files use; the others are ours and never stand in a GGUF file.
 * A GGUF block type packs block_elems consecutive elements of one row into block_bytes. The MLX types keep packed
 * values, scales and biases in three arrays (see tensor_mat), so their block_bytes counts the packed values only.
 */
#ifndef TENSOR_TYPES_H
#define TENSOR_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum tensor_type {
    TENSOR_F32 = 0,
    TENSOR_F16 = 1,
    TENSOR_Q4_0 = 2,
    TENSOR_Q4_1 = 3,
    TENSOR_Q5_0 = 6,
    TENSOR_Q5_1 = 7,
    TENSOR_Q8_0 = 8,
    TENSOR_Q8_1 = 9,
    TENSOR_Q2_K = 10,
    TENSOR_Q3_K = 11,
    TENSOR_Q4_K = 12,
    TENSOR_Q5_K = 13,
    TENSOR_Q6_K = 14,
    TENSOR_Q8_K = 15,
    TENSOR_IQ2_XXS = 16,
    TENSOR_IQ2_XS = 17,
    TENSOR_IQ3_XXS = 18,
    TENSOR_IQ1_S = 19,
    TENSOR_IQ4_NL = 20,
    TENSOR_IQ3_S = 21,
    TENSOR_IQ2_S = 22,
    TENSOR_IQ4_XS = 23,
    TENSOR_I8 = 24,
    TENSOR_I16 = 25,
    TENSOR_I32 = 26,
    TENSOR_I64 = 27,
    TENSOR_F64 = 28,
    TENSOR_IQ1_M = 29,
    TENSOR_BF16 = 30,
    TENSOR_TQ1_0 = 34,
    TENSOR_TQ2_0 = 35,
    TENSOR_MXFP4 = 39,
    TENSOR_NVFP4 = 40,
    TENSOR_Q1_0 = 41,
    TENSOR_Q2_0 = 42,
    TENSOR_GGML_END = 64,

    TENSOR_U8 = 64, /* plain element types of safetensors */
    TENSOR_U16,
    TENSOR_U32,
    TENSOR_U64,
    TENSOR_BOOL,
    TENSOR_F8_E4M3,
    TENSOR_F8_E5M2,
    TENSOR_F8_E8M0,
    TENSOR_NF4,      /* bitsandbytes: two 4-bit indices per byte, high nibble first, one scale per 64 */
    TENSOR_MLX_AFF2, /* MLX affine, by bits; group size in tensor_mat */
    TENSOR_MLX_AFF3,
    TENSOR_MLX_AFF4,
    TENSOR_MLX_AFF5,
    TENSOR_MLX_AFF6,
    TENSOR_MLX_AFF8,
    TENSOR_MLX_MXFP4, /* MLX microscaling: group 32, E8M0 scales */
    TENSOR_MLX_MXFP8,
    TENSOR_MLX_NVFP4, /* group 16, E4M3 scales */

    /* How a device holds weights of types that it has no layout for (kernels/cuda/recode.h): in no file, without a name. */
    TENSOR_TABLE32,
    TENSOR_TABLE16,
    TENSOR_PAIR2,
    TENSOR_PAIR3,
    TENSOR_PAIR4,
    TENSOR_PAIR5,
    TENSOR_PAIR8,
    TENSOR_E4M3_128,
    TENSOR_E4M3_32,
    TENSOR_E5M2_32,
    TENSOR_NF4_64,
    TENSOR_TYPE_COUNT,
} tensor_type;

typedef struct tensor_type_info {
    const char *name;        /* "Q4_K"; NULL: no such type */
    uint16_t    block_elems; /* 1 for plain elements */
    uint16_t    block_bytes;
    bool        quantized;
} tensor_type_info;

/* NULL for a number that is not a type. */
const tensor_type_info *tensor_type_get(int type);
const char             *tensor_type_name(int type);                    /* "?" for a number that is not a type */
bool                    tensor_type_parse(const char *name, int *out); /* case-insensitive */

/* Bytes of n elements in one row; false when n is not a whole number of blocks or the size overflows. */
bool tensor_row_bytes(int type, int64_t n, size_t *out);

#endif
