/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storing into compressed pages and reading them (packed.h). A warp has one row of one head (packed_store.cuh).
 */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/packed_store.cuh"
#include "kernels/cuda/pages.cuh"

#define WARPS 4

void cuda_packed_init(cuda_packed *p, const kv_layout *l) {
    const kv_type types[2] = { l->k_type, l->v_type };
    p->layout = *l;
    for (int i = 0; i < KV_BLOCK_MAX / 32; i++) p->signs[i] = kv_signs[i];
    for (int side = 0; side < 2; side++) {
        const kv_type_info *t = kv_type_get(types[side]);
        int8_t             *to = side ? p->v_codes : p->k_codes;
        const int           lowest = types[side] == KV_Q5_0 ? 16 : 8;
        for (int n = 0; n < 32; n++) to[n] = (int8_t)(t->coded ? kv_codes(types[side])[n % 16] : n - lowest);
    }
}

/* --- rotation ----------------------------------------------------------------------------------------------------- */

struct rotate_args {
    float       *to;
    const float *from;
    int64_t      blocks;
    bool         back;
    uint32_t     signs[KV_BLOCK_MAX / 32];
};

template <int N> static __global__ __launch_bounds__(WARPS * 32) void rotate_kernel(const rotate_args a) {
    launch_begin();
    const int     lane = (int)threadIdx.x % 32;
    const int64_t block = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (block >= a.blocks) return;
    float v[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        v[i] = a.from[(block * N + i) * 32 + lane];
        if (!a.back) v[i] = packed_flip(v[i], a.signs[i], lane);
    }
    packed_hadamard<N>(v, lane);
#pragma unroll
    for (int i = 0; i < N; i++) a.to[(block * N + i) * 32 + lane] = a.back ? packed_flip(v[i], a.signs[i], lane) : v[i];
}

int cuda_packed_rotate(float *to, const float *from, int64_t n, int dim, int block, bool back, const uint32_t *signs,
                       cuda_stream s, err *e) {
    rotate_args a = { to, from, n * (dim / block), back, {} };
    for (int i = 0; i < KV_BLOCK_MAX / 32; i++) a.signs[i] = signs[i];
    const cuda_shape shape = { (unsigned)((a.blocks + WARPS - 1) / WARPS), WARPS * 32, 1, 0, true };
    if (a.blocks == 0) return 0;
    return block == 128  ? cuda_launch(rotate_kernel<4>, shape, s, e, a)
           : block == 64 ? cuda_launch(rotate_kernel<2>, shape, s, e, a)
                         : cuda_launch(rotate_kernel<1>, shape, s, e, a);
}

/* --- storing ------------------------------------------------------------------------------------------------------ */

struct store_args {
    cuda_packed  p;
    cuda_batch   batch;
    const float *k, *v;
    int          n_first;
};

static __global__ __launch_bounds__(WARPS * 32) void store_kernel(const store_args a) {
    launch_begin();
    __shared__ packed_row<KV_DIM_MAX> rows[WARPS];
    const kv_layout                  &l = a.p.layout;
    const int                         lane = (int)threadIdx.x % 32, sides = l.v_in_k ? 1 : 2;
    packed_row<KV_DIM_MAX>           &row = rows[threadIdx.x / 32];
    const int64_t                     w = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32, t = w / (l.n_kv * sides);
    if (t >= a.batch.n_tok) return;
    const int head = (int)(w % (l.n_kv * sides)) / sides, is_v = (int)(w % sides), pos = a.batch.pos[t];
    uint8_t  *page = packed_page(a.p, a.batch, a.batch.seq_of[t], pos / l.tokens);
    uint8_t  *area = page + (size_t)head * l.head_bytes + (is_v ? l.k_bytes : 0);
    if (is_v) {
        packed_numbers_v(a.p, row, a.v + (t * l.n_kv + head) * l.v_dim, lane);
        put_v(l, area, pos % l.tokens, row, lane);
        return;
    }
    const float *x = a.k + (t * l.n_kv + head) * a.n_first, *rest = l.v_in_k ? a.v + t * (l.k_dim - a.n_first) : x;
    packed_numbers_k(a.p, row, { x, rest, NULL, a.n_first, 0, false }, lane);
    put_k(l, area, pos % l.tokens, row, lane);
}

int cuda_packed_store(const cuda_packed *p, const float *k, int n_first, const float *v, const cuda_batch *b, cuda_stream s,
                      err *e) {
    const int64_t    warps = (int64_t)b->n_tok * p->layout.n_kv * (p->layout.v_in_k ? 1 : 2);
    const cuda_shape shape = { (unsigned)((warps + WARPS - 1) / WARPS), WARPS * 32, 1, 0, true };
    const store_args a = { *p, *b, k, v, n_first };
    return warps ? cuda_launch(store_kernel, shape, s, e, a) : 0;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

__device__ static inline float half_at(const uint8_t *p) {
    return __half2float(*reinterpret_cast<const __half *>(p));
}

/* Dimension d of K in one slot. */
__device__ static inline float k_value(const cuda_packed &p, const uint8_t *area, int slot, int d) {
    const kv_layout &l = p.layout;
    const int        bits = packed_bits(l.k_type), t = l.tokens, u = d / 8, i = d % 8;
    if (bits > 8) return packed_plain(l.k_type, area, (int64_t)d * t + slot);
    const uint8_t *at = area + slot + u * bits * t;
    int            n;
    switch (l.k_type) {
    case KV_FP8: return packed_fp8(at[i * t]);
    case KV_Q8_0: n = (int8_t)at[i * t]; break;
    case KV_TQ3: n = p.k_codes[(at[0] | at[t] << 8 | at[2 * t] << 16) >> (3 * i) & 7]; break;
    case KV_TQ2: n = p.k_codes[at[i / 4 * t] >> (i % 4 * 2) & 3]; break;
    case KV_Q5_0: n = (at[i / 2 * t] >> (i % 2 * 4) & 15) + (at[4 * t] >> i & 1) * 16 - 16; break;
    default: n = p.k_codes[at[i / 2 * t] >> (i % 2 * 4) & 15]; break;
    }
    return (float)n * half_at(area + (size_t)t * l.k_dim * bits / 8 + ((size_t)(d / l.k_group) * t + slot) * 2);
}

__device__ static inline float v_value(const cuda_packed &p, const uint8_t *area, int slot, int d) {
    const kv_layout &l = p.layout;
    const int        bits = packed_bits(l.v_type), first = d / KV_GROUP * KV_GROUP, i = d - first;
    const int        half = min(KV_GROUP, l.v_dim - first) / 2, groups = (l.v_dim + l.v_group - 1) / l.v_group;
    const uint8_t   *row = area + (size_t)slot * l.v_dim * bits / 8, *at = row + first * bits / 8;
    int              n;
    if (bits > 8) return packed_plain(l.v_type, row, d);
    switch (l.v_type) {
    case KV_FP8: return packed_fp8(row[d]);
    case KV_Q8_0: n = (int8_t)row[d]; break;
    case KV_TQ3: {
        const int w = at[i % 8] | (at[8 + i % 4] >> (i % 8 / 4 * 4) & 15) << 8;
        n = p.v_codes[w >> (i / 8 * 3) & 7];
        break;
    }
    case KV_TQ2: n = p.v_codes[at[i % 8] >> (i / 8 * 2) & 3]; break;
    case KV_Q5_0: n = (at[i % 16] >> (i / 16 * 4) & 15) + (at[16 + i / 8] >> (i % 8) & 1) * 16 - 16; break;
    default: n = p.v_codes[at[i % half] >> (i / half * 4) & 15]; break;
    }
    return (float)n * half_at(area + (size_t)l.tokens * l.v_dim * bits / 8 + ((size_t)slot * groups + d / l.v_group) * 2);
}

/* A page of one sequence and head. */
static __global__ __launch_bounds__(256) void open_kernel(const cuda_packed p, const cuda_pages to,
                                                          const cuda_batch batch, int pages) {
    launch_begin();
    const kv_layout &l = p.layout;
    const int        head = (int)blockIdx.x % l.n_kv, page = (int)blockIdx.x / l.n_kv % pages,
              s = (int)blockIdx.x / l.n_kv / pages, last = batch.q_start[s + 1] - 1;
    const int n = min(l.tokens, batch.row_end[last] - page * l.tokens);
    if (n <= 0) return;
    const uint8_t *from = packed_page(p, batch, s, page);
    if (!from) return;
    int      in_page;
    uint8_t *base = page_at(to, batch, s, page * l.tokens, &in_page);
    from += (size_t)head * l.head_bytes;
    for (int i = (int)threadIdx.x; i < n * l.k_dim; i += 256)
        reinterpret_cast<__half *>(page_k(to, base, head, i / l.k_dim))[i % l.k_dim] =
            __float2half_rn(k_value(p, from, i / l.k_dim, i % l.k_dim));
    for (int i = (int)threadIdx.x; !l.v_in_k && i < n * l.v_dim; i += 256)
        reinterpret_cast<__half *>(page_v(to, base, head, i / l.v_dim))[i % l.v_dim] =
            __float2half_rn(v_value(p, from + l.k_bytes, i / l.v_dim, i % l.v_dim));
}

int cuda_packed_open(const cuda_packed *p, const cuda_pages *to, int positions, const cuda_batch *b, cuda_stream s,
                     err *e) {
    const int        pages = (positions + p->layout.tokens - 1) / p->layout.tokens;
    const int64_t    blocks = (int64_t)b->n_seq * pages * p->layout.n_kv;
    const cuda_shape shape = { (unsigned)blocks, 256, 1, 0, true };
    return blocks ? cuda_launch(open_kernel, shape, s, e, *p, *to, *b, pages) : 0;
}
