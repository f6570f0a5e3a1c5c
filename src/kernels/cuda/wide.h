/* SPDX-License-Identifier: Apache-2.0 */
/* What towers and encoders need for thousands of rows at a time. */
#ifndef KERNELS_CUDA_WIDE_H
#define KERNELS_CUDA_WIDE_H

#include "kernels/cuda/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Keys and values to f16 (store_step.cu), where they can be; else cuda_op_store. */
bool cuda_can_store_step(const cuda_pages *p);
int cuda_op_store_step(const cuda_pages *p, const float *k, const float *v, const cuda_batch *b, cuda_stream s, err *e);

/* The same with rotations in front; keep: the turned keys are read again. */
bool cuda_can_rope_store_step(const cuda_rope_store *a);
int  cuda_op_rope_store_step(const cuda_rope_store *a, bool keep, cuda_stream s, err *e);

/* y = act(y) that leaves its rows in 16 bits (act_rows.cu), where the columns can be; keep: y is read again. */
bool cuda_can_act_rows(int64_t cols);
int  cuda_op_act_rows(cuda_act act, float *y, bool keep, const cuda_rows *rows, cuda_stream s, err *e);

/* Whether a norm of these groups holds its rows in registers (norm.cu): with rows in 16 bits it needs no `out` then. */
bool cuda_norm_fits(const cuda_norm *a);

#ifdef __cplusplus
}
#endif
#endif
