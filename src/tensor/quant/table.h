/* SPDX-License-Identifier: Apache-2.0 */
/* Inside src/tensor: the quantizers of the instruction sets, as tables of functions. */
#ifndef TENSOR_QUANT_TABLE_H
#define TENSOR_QUANT_TABLE_H

#include "tensor/types.h"

/* One block of elements x with positive weights w. */
typedef void quant_block_fn(const float *x, const float *w, void *block);

typedef struct quant_table {
    quant_block_fn *block[TENSOR_GGML_END]; /* NULL: the type has no quantizer */
    /* x ~ scale * q + offset with q in 0..qmax; see quant/fit.h. */
    void (*affine)(const float *x, const float *w, int n, int qmax, float *scale, float *offset);
    /* The scale code, e8m0 or e4m3, with the least squared error for n (at most 256; e4m3: 16) elements as e2m1. */
    uint8_t (*scale_e2m1)(const float *x, int n, bool e4m3);
    void (*from_f16)(const void *src, float *dst, int64_t n); /* any alignment */
    void (*from_bf16)(const void *src, float *dst, int64_t n);
    void (*to_f16)(const float *src, void *dst, int64_t n);
} quant_table;

extern const quant_table quant_table_plain, quant_table_avx2, quant_table_avx512;

/* The one for this machine. */
const quant_table *quant_table_get(void);

#endif
