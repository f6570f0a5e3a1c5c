/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reference codecs: blocks to floats and back, plain C, the definition that kernels are measured against.
 *
 * Dequantizing is exact to the last bit of the order written at each type (no fused multiply-add). Quantizing is
 * deterministic: the same input gives the same bytes on every machine. docs/quantization.md has the error of each type.
 */
#ifndef TENSOR_CODEC_H
#define TENSOR_CODEC_H

#include "tensor/mat.h"
#include "tensor/types.h"

/* Types whose row says everything by itself: plain numbers and GGUF blocks, not the MLX types and NF4. */
bool tensor_can_dequant(int type);
bool tensor_can_quant(int type); /* tensor_quant_row knows the type */

/* n elements of one row; false (and nothing written) for another type or when n is not a whole number of blocks. */
bool tensor_dequant_row(int type, const void *src, float *dst, int64_t n);
bool tensor_quant_row(int type, const float *src, void *dst, int64_t n);

/* The same; importance, of n numbers that are not negative, says how much an error in each column counts. NULL: all
 * count alike. Only their ratios matter. Types without a search ignore it. */
bool tensor_quant_row_weighted(int type, const float *src, const float *importance, void *dst, int64_t n);

/*
 * Whether a matrix describes something the codecs can read: type, row size, group and scale type fit together. Does not
 * look at the sizes of the arrays; the reader of the file checks those.
 */
bool tensor_mat_valid(const tensor_mat *m);

/* Row `row` of expert `expert` (0 for a plain matrix), all columns or n columns from col0. The matrix must be valid. */
void tensor_mat_dequant_row(const tensor_mat *m, int64_t expert, int64_t row, float *dst);
void tensor_mat_dequant_span(const tensor_mat *m, int64_t expert, int64_t row, int64_t col0, int64_t n, float *dst);

/* The scales are one F32 for the whole matrix, beside those in its blocks: NVFP4 of GGUF files. */
bool tensor_mat_scale_whole(const tensor_mat *m);

/* The scale and the bias (0 without biases) of a column group of a row; types with separate scales only. */
float tensor_mat_scale(const tensor_mat *m, int64_t expert, int64_t row, int64_t group);
float tensor_mat_bias(const tensor_mat *m, int64_t expert, int64_t row, int64_t group);

/* The packed integer (MLX affine) or code (mxfp, nvfp, NF4, FP8: the byte) of one element of a row's packed data. */
unsigned tensor_packed_get(int type, const void *row, int64_t col);
/* Writes one into a row that was cleared before. */
void tensor_packed_put(int type, void *row, int64_t col, unsigned v);

/*
 * Quantizes one row for a type with separate scales: MLX_*, F8_E4M3, F8_E5M2, NF4. `m` gives type, cols, group,
 * scale_type and group_rows == 1; its pointers are not used. biases is written for MLX affine only. False when m is not
 * valid.
 */
bool tensor_mat_quant_row(const tensor_mat *m, const float *src, void *data, void *scales, void *biases);

/* Elements of NF4: 16 quantiles of a normal distribution, scaled to [-1, 1]. */
extern const float tensor_nf4_values[16];

#endif
