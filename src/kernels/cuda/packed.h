/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compressed cache pages on a CUDA device: the same bytes as on the CPU (kernels/kvpage.h), stored by the same operations
 * in the same order.
 *
 * A layer with a compressed side lies in a page as kv_layout says, the other side too. Attention reads it by way of f16
 * rows: cuda_packed_open makes them of all pages of a batch, in rotated space; a query is rotated before, the result
 * rotated back. A number times its scale is rounded once, to f16.
 */
#ifndef KERNELS_CUDA_PACKED_H
#define KERNELS_CUDA_PACKED_H

#include "kernels/cuda/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/kvpage.h"

/* One layer's part of the pages. */
typedef struct cuda_packed {
    kv_layout layout;
    uint8_t  *base;
    size_t    page_bytes, offset;
    int       group;
    uint32_t  signs[KV_BLOCK_MAX / 32];
    int8_t    k_codes[32], v_codes[32]; /* what a stored number stands for */
} cuda_packed;

void cuda_packed_init(cuda_packed *p, const kv_layout *l); /* the tables */

/* Rows of k and v to their places. Latent layers (v_in_k): k has the first n_first values of a row, v the others. */
int cuda_packed_store(const cuda_packed *p, const float *k, int n_first, const float *v, const cuda_batch *b,
                      cuda_stream s, err *e);

/* The pages of the batch's sequences, up to `positions` of each, as f16 rows in `to` (its pages have the same numbers). */
int cuda_packed_open(const cuda_packed *p, const cuda_pages *to, int positions, const cuda_batch *b, cuda_stream s,
                     err *e);

/* n rows of `dim` floats into rotated space and back; to may be from. */
int cuda_packed_rotate(float *to, const float *from, int64_t n, int dim, int block, bool back, const uint32_t *signs,
                       cuda_stream s, err *e);

/* Attention of single rows, of which `a` has chunks: q comes as it is, also before its rotation by position, and so does the
 * result. Where there is such a rotation (a->table), the rows of a->k and a->v are stored, too. _can: for heads of 64 and
 * 128. */
bool cuda_attn_packed_can(const cuda_attn *a, const cuda_packed *p);
int  cuda_attn_packed(const cuda_attn *a, const cuda_packed *p, cuda_stream s, err *e);

#ifdef __cplusplus
}
#endif
#endif
