/* SPDX-License-Identifier: Apache-2.0 */
/* Storing keys, values and latents: a warp per row of a page and 32 elements of it. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/pages.cuh"
#include "kernels/cuda/reduce.cuh"

#define WARPS 4

/* Up to 32 elements of a row from block `block` on; v: this lane's, 0 behind the end. */
__device__ static inline void put_block(cuda_page_type type, uint8_t *row, int block, int dim, float v, int lane) {
    const int i = block * PAGE_BLOCK + lane;
    switch (type) {
    case CUDA_PAGE_F32:
        if (i < dim) reinterpret_cast<float *>(row)[i] = v;
        return;
    case CUDA_PAGE_F16:
        if (i < dim) reinterpret_cast<__half *>(row)[i] = __float2half_rn(v);
        return;
    case CUDA_PAGE_BF16:
        if (i < dim) reinterpret_cast<__nv_bfloat16 *>(row)[i] = __float2bfloat16_rn(v);
        return;
    }
}

struct store_args {
    cuda_pages   pages;
    cuda_batch   batch;
    const float *k, *v; /* latent: the two parts of a row */
    int          latent, turned;
    int          k_blocks, v_blocks; /* per head */
};

static __global__ __launch_bounds__(WARPS * 32) void store_kernel(const store_args a) {
    launch_begin();
    const int     lane = (int)threadIdx.x % 32, per_head = a.k_blocks + a.v_blocks, per_row = per_head * a.pages.n_kv;
    const int64_t w = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32, t = w / per_row;
    if (t >= a.batch.n_tok) return;
    const int head = (int)(w % per_row) / per_head, at = (int)(w % per_head),
              block = at < a.k_blocks ? at : at - a.k_blocks;
    const int i = block * PAGE_BLOCK + lane;
    int       in_page;
    uint8_t  *page = page_at(a.pages, a.batch, a.batch.seq_of[t], a.batch.pos[t], &in_page);
    if (a.latent) {
        const int   dim = a.latent + a.turned;
        const float v = i < a.latent ? a.k[t * a.latent + i] : i < dim ? a.v[t * a.turned + i - a.latent] : 0.0f;
        put_block(a.pages.k_type, page_k(a.pages, page, 0, in_page), block, dim, v, lane);
    } else if (at < a.k_blocks) {
        const int   dim = a.pages.dim_k;
        const float v = i < dim ? a.k[(t * a.pages.n_kv + head) * dim + i] : 0.0f;
        put_block(a.pages.k_type, page_k(a.pages, page, head, in_page), block, dim, v, lane);
    } else {
        const int   dim = a.pages.dim_v;
        const float v = i < dim ? a.v[(t * a.pages.n_kv + head) * dim + i] : 0.0f;
        put_block(a.pages.v_type, page_v(a.pages, page, head, in_page), block, dim, v, lane);
    }
}

static int start(const store_args &a, cuda_stream s, err *e) {
    const int64_t    warps = (int64_t)a.batch.n_tok * a.pages.n_kv * (a.k_blocks + a.v_blocks);
    const cuda_shape shape = { (unsigned)((warps + WARPS - 1) / WARPS), WARPS * 32, 1, 0, true };
    return cuda_launch(store_kernel, shape, s, e, a);
}

/* One head of one row by a warp: queries, then keys, then values. */
static __global__ __launch_bounds__(WARPS * 32) void rope_store_kernel(const cuda_rope_store a) {
    launch_begin();
    const cuda_rope &o = a.rope;
    const int        lane = (int)threadIdx.x % 32, n_kv = a.pages.n_kv, per_row = a.n_head + 2 * n_kv;
    const int64_t    w = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32, t = w / per_row;
    if (t >= o.batch.n_tok) return;
    const int  h = (int)(w % per_row), kv = h < a.n_head ? -1 : (h - a.n_head) % n_kv;
    const bool value = h >= a.n_head + n_kv;
    float     *row = kv < 0 ? a.q + (t * a.n_head + h) * o.head_dim : o.x + (t * n_kv + kv) * o.head_dim;
    for (int f = lane; f < o.n && !value; f += 32) {
        float *p = row + o.offset, *pa = o.interleaved ? p + 2 * f : p + f, *pb = o.interleaved ? pa + 1 : pa + o.n;
        const float c = o.table[t * 2 * o.n + f], s = o.table[t * 2 * o.n + o.n + f], va = *pa, vb = *pb;
        *pa = va * c - vb * s;
        *pb = va * s + vb * c;
    }
    if (kv < 0) return;
    __syncwarp();
    int                  in_page;
    uint8_t             *page = page_at(a.pages, o.batch, o.batch.seq_of[t], o.batch.pos[t], &in_page);
    const int            dim = value ? a.pages.dim_v : a.pages.dim_k;
    const cuda_page_type type = value ? a.pages.v_type : a.pages.k_type;
    uint8_t             *to = value ? page_v(a.pages, page, kv, in_page) : page_k(a.pages, page, kv, in_page);
    const float         *from = value ? a.v + (t * n_kv + kv) * dim : row;
    for (int b = 0; b * PAGE_BLOCK < dim; b++) {
        const int i = b * PAGE_BLOCK + lane;
        put_block(type, to, b, dim, i < dim ? from[i] : 0.0f, lane);
    }
}

int cuda_op_rope_store(const cuda_rope_store *a, cuda_stream s, err *e) {
    const int64_t    warps = (int64_t)a->rope.batch.n_tok * (a->n_head + 2 * a->pages.n_kv);
    const cuda_shape shape = { (unsigned)((warps + WARPS - 1) / WARPS), WARPS * 32, 1, 0, true };
    return cuda_launch(rope_store_kernel, shape, s, e, *a);
}

static int blocks_of(int dim) { return (dim + PAGE_BLOCK - 1) / PAGE_BLOCK; }

int cuda_op_store(const cuda_pages *p, const float *k, const float *v, const cuda_batch *b, cuda_stream s, err *e) {
    return start({ *p, *b, k, v, 0, 0, blocks_of(p->dim_k), blocks_of(p->dim_v) }, s, e);
}

int cuda_op_store_latent(const cuda_pages *p, const float *latent, int n_latent, const float *turned, int n_turned,
                         const cuda_batch *b, cuda_stream s, err *e) {
    return start({ *p, *b, latent, turned, n_latent, n_turned, blocks_of(n_latent + n_turned), 0 }, s, e);
}

int cuda_op_store_index(const cuda_pages *p, const float *k, const cuda_batch *b, cuda_stream s, err *e) {
    return start({ *p, *b, k, NULL, 0, 0, blocks_of(p->dim_k), 0 }, s, e);
}

size_t cuda_page_row_bytes(cuda_page_type type, int dim) {
    size_t bytes = 0;
    switch (type) {
    case CUDA_PAGE_F32: bytes = (size_t)dim * 4; break;
    case CUDA_PAGE_F16:
    case CUDA_PAGE_BF16: bytes = (size_t)dim * 2; break;
    }
    return (bytes + 15) / 16 * 16;
}
