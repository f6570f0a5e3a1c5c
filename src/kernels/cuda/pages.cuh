/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How keys and values lie in pages: one row of `dim` elements per position and head. Compressed ones: packed.h.
 */
#ifndef KERNELS_CUDA_PAGES_CUH
#define KERNELS_CUDA_PAGES_CUH

#include "kernels/cuda/ops.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

enum { PAGE_BLOCK = 32 };

__device__ static inline float page_get(cuda_page_type type, const uint8_t *row, int i) {
    switch (type) {
    case CUDA_PAGE_F32: return reinterpret_cast<const float *>(row)[i];
    case CUDA_PAGE_F16: return __half2float(reinterpret_cast<const __half *>(row)[i]);
    case CUDA_PAGE_BF16: return __bfloat162float(reinterpret_cast<const __nv_bfloat16 *>(row)[i]);
    }
    return 0;
}

/* The page that holds position p of sequence s, and the position's number in it. */
__device__ static inline uint8_t *page_at(const cuda_pages &g, const cuda_batch &b, int s, int p, int *in_page) {
    if (g.step) {
        *in_page = b.q_start[s] + p;
        return g.base;
    }
    const int page = b.block[b.block[1 + g.group] + s * b.block[0] + p / b.page_tokens];
    *in_page = p % b.page_tokens;
    return g.base + (size_t)page * g.page_bytes;
}

__device__ static inline uint8_t *page_k(const cuda_pages &g, uint8_t *page, int head, int in_page) {
    return page + g.offset + ((size_t)head * g.tokens + in_page) * g.k_row;
}

__device__ static inline uint8_t *page_v(const cuda_pages &g, uint8_t *page, int head, int in_page) {
    return page + g.v_offset + ((size_t)head * g.tokens + in_page) * g.v_row;
}

#endif
