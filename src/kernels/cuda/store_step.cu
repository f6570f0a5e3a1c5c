/* SPDX-License-Identifier: Apache-2.0 */
/* Storing keys and values in f16, and rotating queries and keys on the way: eight values per
 * thread. */
#include "kernels/cuda/attn_tile.cuh"
#include "kernels/cuda/wide.h"

#define THREADS 256

static __global__ __launch_bounds__(THREADS) void store_step_kernel(const cuda_pages pages, const cuda_batch batch,
                                                                    const float *k, const float *v) {
    launch_begin();
    const int  per_head = pages.dim_k / 8, per_row = pages.n_kv * per_head;
    const int  i = (int)(blockIdx.x * THREADS + threadIdx.x), row = i / per_row, at = i % per_row;
    const bool value = row >= batch.n_tok;
    const int  t = value ? row - batch.n_tok : row, head = at / per_head;
    if (t >= batch.n_tok) return;
    int           in_page;
    uint8_t      *page = page_at(pages, batch, batch.seq_of[t], batch.pos[t], &in_page);
    uint8_t      *to = value ? page_v(pages, page, head, in_page) : page_k(pages, page, head, in_page);
    const float4 *from = reinterpret_cast<const float4 *>((value ? v : k) + (int64_t)t * per_row * 8 + at * 8);
    const float4  a = from[0], b = from[1];
    reinterpret_cast<uint4 *>(to)[at % per_head] =
        make_uint4(pack_halves(a.x, a.y), pack_halves(a.z, a.w), pack_halves(b.x, b.y), pack_halves(b.z, b.w));
}

bool cuda_can_store_step(const cuda_pages *p) {
    return p->k_type == CUDA_PAGE_F16 && p->v_type == CUDA_PAGE_F16 && p->dim_k == p->dim_v &&
           p->dim_k % 8 == 0;
}

/* Four pairs: the first half of v with the second, or side by side. */
template <bool INTERLEAVED>
__device__ static inline void turn(float v[8], const float *c, const float *s) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float &a = v[INTERLEAVED ? 2 * i : i], &b = v[INTERLEAVED ? 2 * i + 1 : i + 4];
        const float was = a;
        a = was * c[i] - b * s[i];
        b = was * s[i] + b * c[i];
    }
}

__device__ static inline void load4(float *to, const float *from) {
    const float4 v = *reinterpret_cast<const float4 *>(from);
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}

__device__ static inline void store4(float *to, const float *v) {
    *reinterpret_cast<float4 *>(to) = make_float4(v[0], v[1], v[2], v[3]);
}

/* Heads of a row: queries, then keys, then values. */
template <bool INTERLEAVED>
static __global__ __launch_bounds__(THREADS) void rope_store_step_kernel(const cuda_rope_store a, bool keep) {
    launch_begin();
    const cuda_rope &o = a.rope;
    const int        per_head = o.n / 4, heads = a.n_head + 2 * a.pages.n_kv;
    const int        i = (int)(blockIdx.x * THREADS + threadIdx.x), h = i / per_head % heads, t = i / per_head / heads;
    if (t >= o.batch.n_tok) return;
    const bool value = h >= a.n_head + a.pages.n_kv;
    const int  kv = h < a.n_head ? -1 : (h - a.n_head) % a.pages.n_kv, f = i % per_head * 4;
    const int  first = INTERLEAVED ? 2 * f : f, second = INTERLEAVED ? 2 * f + 4 : f + o.n;
    float     *row = kv < 0  ? a.q + ((int64_t)t * a.n_head + h) * o.head_dim
                     : value ? const_cast<float *>(a.v) + ((int64_t)t * a.pages.n_kv + kv) * o.head_dim
                             : o.x + ((int64_t)t * a.pages.n_kv + kv) * o.head_dim;
    float v[8], c[4], s[4];
    load4(v, row + first);
    load4(v + 4, row + second);
    if (!value) {
        load4(c, o.table + (int64_t)t * 2 * o.n + f);
        load4(s, o.table + (int64_t)t * 2 * o.n + o.n + f);
        turn<INTERLEAVED>(v, c, s);
    }
    if (kv < 0 || (keep && !value)) {
        store4(row + first, v);
        store4(row + second, v + 4);
    }
    if (kv < 0) return;
    int      in_page;
    uint8_t *page = page_at(a.pages, o.batch, o.batch.seq_of[t], o.batch.pos[t], &in_page);
    uint8_t *to = value ? page_v(a.pages, page, kv, in_page) : page_k(a.pages, page, kv, in_page);
    *reinterpret_cast<uint2 *>(to + first * 2) = make_uint2(pack_halves(v[0], v[1]), pack_halves(v[2], v[3]));
    *reinterpret_cast<uint2 *>(to + second * 2) = make_uint2(pack_halves(v[4], v[5]), pack_halves(v[6], v[7]));
}

bool cuda_can_rope_store_step(const cuda_rope_store *a) {
    const cuda_rope *o = &a->rope;
    return cuda_can_store_step(&a->pages) && o->offset == 0 && 2 * o->n == o->head_dim && o->n % 4 == 0 &&
           o->head_dim == a->pages.dim_k;
}

int cuda_op_rope_store_step(const cuda_rope_store *a, bool keep, cuda_stream s, err *e) {
    const int64_t    n = (int64_t)a->rope.batch.n_tok * (a->n_head + 2 * a->pages.n_kv) * (a->rope.n / 4);
    const cuda_shape shape = { (unsigned)((n + THREADS - 1) / THREADS), THREADS, 1, 0, true };
    if (n == 0) return 0;
    return a->rope.interleaved ? cuda_launch(rope_store_step_kernel<true>, shape, s, e, *a, keep)
                               : cuda_launch(rope_store_step_kernel<false>, shape, s, e, *a, keep);
}

int cuda_op_store_step(const cuda_pages *p, const float *k, const float *v, const cuda_batch *b, cuda_stream s,
                       err *e) {
    const int64_t    n = 2 * (int64_t)b->n_tok * p->n_kv * (p->dim_k / 8);
    const cuda_shape shape = { (unsigned)((n + THREADS - 1) / THREADS), THREADS, 1, 0, true };
    return n ? cuda_launch(store_step_kernel, shape, s, e, *p, *b, k, v) : 0;
}
