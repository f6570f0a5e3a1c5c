/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over pages in f32, for every page type and width of heads; usual ones go to attn_mma.cu. Which of the two
 * follows from the layer and the type of its pages alone.
 *
 * A block takes one row of the batch and up to 8 query heads that share a key head. Per chunk of 128 absolute positions:
 * warps compute scores, a position each, lanes along the dimension; then threads own columns of the values and add
 * positions in order. Chunks are folded in order by the same block, or, where there are few rows, by a second kernel
 * over parts that many blocks left; the operations are the same. Positions that the row does not see are not touched.
 * Where an indexer chose what a row sees, chunks are of the chosen positions; where it chose all, they are the same.
 */
#include "kernels/cuda/attn.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/reduce.cuh"

#define WARPS 4
#define THREADS (WARPS * 32)
#define HEADS 8   /* query heads of a block */
#define COLUMNS 8 /* of the values, per thread: up to 1024 */
#define CHUNK CUDA_ATTN_CHUNK

/* A lane's elements of a query or key row: lane * 4 .. + 3 of every 128 where that is possible, else lane of every 32. */
template <bool F16> struct attn_row {
    __device__ static inline float dot(const float *q, const uint8_t *k, cuda_page_type type, int dim, int lane) {
        float sum = 0;
        if (F16) {
            for (int i = lane * 4; i < dim; i += 128) {
                const uint2  raw = *reinterpret_cast<const uint2 *>(k + i * 2);
                const float2 x = __half22float2(*reinterpret_cast<const __half2 *>(&raw.x)),
                             y = __half22float2(*reinterpret_cast<const __half2 *>(&raw.y));
                const float4 qq = *reinterpret_cast<const float4 *>(q + i);
                sum = fmaf(qq.x, x.x, sum);
                sum = fmaf(qq.y, x.y, sum);
                sum = fmaf(qq.z, y.x, sum);
                sum = fmaf(qq.w, y.y, sum);
            }
        } else {
            for (int i = lane; i < dim; i += 32) sum = fmaf(q[i], page_get(type, k, i), sum);
        }
        return warp_sum(sum);
    }
    __device__ static inline float value(const uint8_t *v, cuda_page_type type, int i) {
        return F16 ? __half2float(reinterpret_cast<const __half *>(v)[i]) : page_get(type, v, i);
    }
};

struct attn_room {
    const uint8_t *k[CHUNK], *v[CHUNK];
    float          p[HEADS][CHUNK];
    attn_sum       part[HEADS];
};

/* Positions [lo, hi) of a chunk, or those with these numbers among the chosen ones, for n heads from `head` on: p, part and o
 * (this thread's columns). */
template <bool F16>
__device__ static inline void attn_chunk(const cuda_attn &a, attn_room &m, const float *q, int dim, int t, int kv,
                                         int head, int n, int lo, int hi, const attn_choice &choice,
                                         float o[HEADS][COLUMNS]) {
    const int s = a.batch.seq_of[t], pos = a.batch.pos[t];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    __syncthreads();
    for (int j = lo + (int)threadIdx.x; j < hi; j += THREADS) {
        int      in_page;
        uint8_t *page = page_at(a.pages, a.batch, s, a.chosen ? choice.at(j) : j, &in_page);
        m.k[j - lo] = page_k(a.pages, page, kv, in_page);
        m.v[j - lo] = a.q_turned ? m.k[j - lo] : page_v(a.pages, page, kv, in_page);
    }
    __syncthreads();
    for (int j = warp; j < hi - lo; j += WARPS) {
        for (int h = 0; h < n; h++) {
            float v = attn_row<F16>::dot(q + h * dim, m.k[j], a.pages.k_type, dim, lane);
            v = (v + attn_apart(a, t, head + h, lo + j)) * a.scale;
            if (a.softcap != 0) v = a.softcap * tanhf(v / a.softcap);
            v = attn_more(a, v, head + h, lo + j - pos);
            if (lane == 0) m.p[h][j] = v;
        }
    }
    __syncthreads();
    for (int h = warp; h < n; h += WARPS) {
        float most = -INFINITY, sum = 0;
        for (int j = lane; j < hi - lo; j += 32) most = fmaxf(most, m.p[h][j]);
        most = warp_max(most);
        for (int j = lane; j < hi - lo; j += 32) sum += m.p[h][j] = expf(m.p[h][j] - most);
        sum = warp_sum(sum);
        if (lane == 0) m.part[h] = { most, sum };
    }
    __syncthreads();
    const cuda_page_type type = a.q_turned ? a.pages.k_type : a.pages.v_type;
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        const int i = c * THREADS + (int)threadIdx.x;
        if (c * THREADS >= a.dim_out) break;
        if (i >= a.dim_out) continue;
#pragma unroll
        for (int h = 0; h < HEADS; h++) o[h][c] = 0;
        for (int j = 0; j < hi - lo; j++) {
            const float v = attn_row<F16>::value(m.v[j], type, i);
#pragma unroll
            for (int h = 0; h < HEADS; h++) {
                if (h < n) o[h][c] = fmaf(m.p[h][j], v, o[h][c]);
            }
        }
    }
}

/* One row, key head and group of query heads; where a chunk's number is in the grid, that chunk alone. */
template <bool F16> static __global__ __launch_bounds__(THREADS) void attn_kernel(const cuda_attn a) {
    launch_begin();
    extern __shared__ __align__(16) float q[];
    __shared__ attn_room                  m;
    const int rep = a.n_head / a.pages.n_kv, teams = (rep + HEADS - 1) / HEADS, dim = a.dim_q + a.dim_turned;
    const int chunk = a.chunks ? (int)blockIdx.x % a.chunks : -1,
              at = a.chunks ? (int)blockIdx.x / a.chunks : (int)blockIdx.x;
    const int team = at % teams, kv = at / teams % a.pages.n_kv, t = at / teams / a.pages.n_kv;
    const int head = kv * rep + team * HEADS, n = min(HEADS, rep - team * HEADS);
    int       lo, hi;
    attn_range(a, t, &lo, &hi);
    attn_choice choice = {};
    if (a.chosen) {
        choice = attn_chosen(a, t, kv);
        lo = 0, hi = choice.n;
    }
    const int first = chunk >= 0 ? chunk : lo / CHUNK, end = chunk >= 0 ? chunk + 1 : (hi + CHUNK - 1) / CHUNK;
    if (chunk >= 0 && ((chunk + 1) * CHUNK <= lo || chunk * CHUNK >= hi)) return;
    for (int i = (int)threadIdx.x; i < n * dim; i += THREADS) {
        const int     h = i / dim, c = i % dim;
        const int64_t row = (int64_t)t * a.n_head + head + h;
        q[i] = c < a.dim_q ? a.q[row * a.dim_q + c] : a.q_turned[row * a.dim_turned + c - a.dim_q];
    }
    float    o[HEADS][COLUMNS], all[HEADS][COLUMNS];
    attn_sum sums[HEADS];
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        sums[h] = h < n ? attn_begin(a, head + h) : attn_sum{ 0, 0 };
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) all[h][c] = 0;
    }
    for (int c = first; c < end; c++) {
        attn_chunk<F16>(a, m, q, dim, t, kv, head, n, max(lo, c * CHUNK), min(hi, (c + 1) * CHUNK), choice, o);
        if (chunk >= 0) break;
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            if (h >= n) continue;
            float f_old, f_part;
            sums[h] = attn_fold(sums[h], m.part[h], &f_old, &f_part);
#pragma unroll
            for (int k = 0; k < COLUMNS; k++) {
                if (k * THREADS < a.dim_out) all[h][k] = all[h][k] * f_old + o[h][k] * f_part;
            }
        }
    }
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        if (h >= n) continue;
        const int64_t row = (int64_t)t * a.n_head + head + h;
        float        *part = a.parts + (row * a.chunks + max(chunk, 0)) * (a.dim_out + 2);
        if (chunk >= 0 && threadIdx.x == 0) part[0] = m.part[h].most, part[1] = m.part[h].sum;
#pragma unroll
        for (int k = 0; k < COLUMNS; k++) {
            const int i = k * THREADS + (int)threadIdx.x;
            if (i >= a.dim_out) continue;
            if (chunk >= 0)
                part[2 + i] = o[h][k];
            else
                a.out[row * a.dim_out + i] = all[h][k] / sums[h].sum;
        }
    }
}

bool cuda_attn_plain(const cuda_attn *a) {
    return !(a->pages.step && a->pages.k_type == CUDA_PAGE_F16) && (a->chosen || (!attn_many_can(a) && !attn_mma_can(a)));
}

int64_t cuda_attn_parts(int64_t rows, int n_head, int dim_out, int chunks) {
    return rows * n_head * chunks * (dim_out + 2);
}

int cuda_op_attn(const cuda_attn *a, cuda_stream s, err *e) {
    const int        rep = a->n_head / a->pages.n_kv, teams = (rep + HEADS - 1) / HEADS, dim = a->dim_q + a->dim_turned;
    const int64_t    blocks = (int64_t)a->batch.n_tok * a->pages.n_kv * teams * (a->chunks ? a->chunks : 1);
    const cuda_shape shape = { (unsigned)blocks, THREADS, 1,
                               (size_t)(rep < HEADS ? rep : HEADS) * (size_t)dim * sizeof(float), true };
    const bool       f16 =
        a->pages.k_type == CUDA_PAGE_F16 && dim % 4 == 0 && (a->q_turned || a->pages.v_type == CUDA_PAGE_F16);
    if (a->dim_out > COLUMNS * THREADS)
        return err_set(e, ERR_UNSUPPORTED, "CUDA: heads of %d values; at most %d are supported", a->dim_out,
                       COLUMNS * THREADS);
    bool folded = !a->chunks;
    int  rc = a->pages.step && a->pages.k_type == CUDA_PAGE_F16 ? attn_step(a, s, e)
              : a->counts                       ? attn_one(a, &folded, s, e)
              : !a->chosen && attn_many_can(a) ? attn_many(a, s, e)
              : !a->chosen && attn_mma_can(a)  ? attn_mma(a, s, e)
              : f16                             ? cuda_launch(attn_kernel<true>, shape, s, e, *a)
                                : cuda_launch(attn_kernel<false>, shape, s, e, *a);
    return rc != 0 || folded ? rc : attn_fold_parts(a, s, e);
}
