/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A weight matrix as it lies in the file: `rows` outputs, each a row of `cols` inputs.
 *
 * GGUF types keep everything in `data`; NVFP4 may have one more scale for the whole matrix (one per expert), F32, as a
 * group of all rows and columns. Types with separate scales (MLX, FP8 with block scales, NF4) bring them in
 * `scales` and, for MLX affine, `biases`: row r, group g at scales + r * scale_row_bytes + g * sizeof(element).
 * Expert stacks are 3-D: expert e begins at data + e * expert_bytes (scales and biases at e * scale_expert_bytes).
 * Nothing is owned; everything points into mapped files.
 */
#ifndef TENSOR_MAT_H
#define TENSOR_MAT_H

#include "tensor/types.h"

typedef struct tensor_mat {
    tensor_type type;
    int64_t     rows, cols;
    const void *data;
    size_t      row_bytes;

    int64_t n_experts; /* 0: a plain matrix */
    size_t  expert_bytes;

    /* Separate scales; all zero for types that carry their own. */
    tensor_type scale_type; /* F16, BF16, F32, F8_E4M3 or F8_E8M0 */
    int         group;      /* elements along a row that share a scale */
    int         group_rows; /* rows that share a scale: 1, or 128 for block-scaled FP8 */
    const void *scales, *biases;
    size_t      scale_row_bytes, scale_expert_bytes;
} tensor_mat;

#endif
