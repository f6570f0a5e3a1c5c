/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Indexers: which positions, or blocks of them, a row's attention sees (nn_choose_spec).
 *
 * A line is a row and a group of heads. First scores, 128 positions of a line per block of threads, one each, in f32: a
 * head's product is a chain over the key's elements, heads are added in order, so that a score depends on the row and the
 * position alone. Then a block per line finds the best by value, byte by byte from the highest, of equal ones the first, and
 * writes their numbers in rising order. A line that may see all of its blocks has no scores.
 */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/pages.cuh"

#define CHUNK CUDA_ATTN_CHUNK
#define HEADS 8 /* whose products a thread makes at a time */
#define STEP 8  /* elements of a key at a time */
#define BEST_WARPS 32
#define BEST_THREADS (BEST_WARPS * 32)

/* Elements at .. at + 7 of a key; zeros behind its end. */
__device__ static inline void key_part(float k[STEP], cuda_page_type type, const uint8_t *row, int at, int dim) {
    if (type == CUDA_PAGE_F16 && at + STEP <= dim) {
        const uint4    raw = *reinterpret_cast<const uint4 *>(row + at * 2);
        const uint32_t w[4] = { raw.x, raw.y, raw.z, raw.w };
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float2 two = __half22float2(*reinterpret_cast<const __half2 *>(&w[i]));
            k[2 * i] = two.x, k[2 * i + 1] = two.y;
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < STEP; i++) k[i] = at + i < dim ? page_get(type, row, at + i) : 0.0f;
}

/* Positions and blocks of a line that its row has. */
__device__ static inline int positions_of(const cuda_choose &a, int line) { return a.batch.pos[line / a.n_group] + 1; }
__device__ static inline int blocks_of(const cuda_choose &a, int n) { return (n + a.block - 1) / a.block; }

/* MANY: several heads with weights; else one without. */
template <bool MANY> static __global__ __launch_bounds__(CHUNK) void scores_kernel(const cuda_choose a) {
    constexpr int N = MANY ? HEADS : 1;
    extern __shared__ __align__(16) float q[]; /* [head][element], both rounded up, zeros there */
    launch_begin();
    const int line = a.first + (int)blockIdx.x / a.chunks, chunk = (int)blockIdx.x % a.chunks;
    const int t = line / a.n_group, heads = a.n_head / a.n_group, n = positions_of(a, line);
    const int dim = a.index.dim_k, wide = (dim + STEP - 1) / STEP * STEP, p = chunk * CHUNK + (int)threadIdx.x;
    if (chunk * CHUNK >= n || blocks_of(a, n) <= a.top) return;
    const float *from = a.q + ((int64_t)t * a.n_head + line % a.n_group * heads) * dim;
    for (int i = (int)threadIdx.x; i < (heads + N - 1) / N * N * wide; i += CHUNK) {
        const int h = i / wide, c = i % wide;
        q[i] = h < heads && c < dim ? from[h * dim + c] : 0.0f;
    }
    __syncthreads();
    if (p >= n) return;
    int            in_page;
    uint8_t       *page = page_at(a.index, a.batch, a.batch.seq_of[t], p, &in_page);
    const uint8_t *key = page_k(a.index, page, 0, in_page);
    float          sum = 0;
    for (int h0 = 0; h0 < heads; h0 += N) {
        float each[N] = {};
        for (int c = 0; c < wide; c += STEP) {
            float k[STEP];
            key_part(k, a.index.k_type, key, c, dim);
#pragma unroll
            for (int h = 0; h < N; h++) {
                const float4 *at = reinterpret_cast<const float4 *>(q + (h0 + h) * wide + c);
                const float4  x = at[0], y = at[1];
                each[h] = fmaf(x.x, k[0], each[h]), each[h] = fmaf(x.y, k[1], each[h]);
                each[h] = fmaf(x.z, k[2], each[h]), each[h] = fmaf(x.w, k[3], each[h]);
                each[h] = fmaf(y.x, k[4], each[h]), each[h] = fmaf(y.y, k[5], each[h]);
                each[h] = fmaf(y.z, k[6], each[h]), each[h] = fmaf(y.w, k[7], each[h]);
            }
        }
        if (!MANY) sum = each[0];
#pragma unroll
        for (int h = 0; h < N && MANY; h++) {
            if (h0 + h < heads) sum = fmaf(a.weights[(int64_t)t * heads + h0 + h], fmaxf(each[h], 0.0f), sum);
        }
    }
    a.scores[(int64_t)(line - a.first) * a.line_floats + p] = sum;
}

/* A number that rises with the score, also below zero; both zeros are the same, NaN is least, and nothing is ~0. */
__device__ static inline uint32_t rank_of(float score) {
    if (score != score) return 0;
    const uint32_t bits = __float_as_uint(score + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

struct best_room {
    int      count[256];
    uint32_t found;
    int      above;
    int      more[BEST_WARPS], same[BEST_WARPS];
};

/* The last blocks are always among the best. */
struct best_ranks {
    const float *score;
    int          n, local; /* from number `local` on */

    __device__ inline uint32_t at(int i) const { return i >= local ? 0xffffffffu : rank_of(score[i]); }
};

/* By the first warp: the digit in which the k-th largest number lies, and how many numbers have larger ones. */
__device__ static inline void best_digit(best_room &m, int shift, uint32_t found, int above, int k) {
    const int lane = (int)threadIdx.x, first = 255 - lane * 8; /* eight digits, falling */
    int       mine = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) mine += m.count[first - i];
    int until = mine;
#pragma unroll
    for (int o = 1; o < 32; o *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, until, o);
        if (lane >= o) until += other;
    }
    above += until - mine;
    if (above < k && above + mine >= k) { /* one lane */
        int digit = first;
        while (above + m.count[digit] < k) above += m.count[digit--];
        m.found = found | (uint32_t)digit << shift;
        m.above = above;
    }
}

/* The k-th largest rank; *above: how many are larger. n is at least k. */
__device__ static inline uint32_t best_rank(best_room &m, const best_ranks &r, int k, int *above) {
    uint32_t found = 0, mask = 0;
    *above = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (int i = (int)threadIdx.x; i < 256; i += BEST_THREADS) m.count[i] = 0;
        __syncthreads();
        for (int i = (int)threadIdx.x; i < r.n; i += BEST_THREADS) {
            const uint32_t rank = r.at(i);
            if ((rank & mask) == found) atomicAdd(&m.count[rank >> shift & 255], 1);
        }
        __syncthreads();
        if (threadIdx.x < 32) best_digit(m, shift, found, *above, k);
        __syncthreads();
        found = m.found, *above = m.above;
        mask |= 255u << shift;
        __syncthreads(); /* before counts are cleared */
    }
    return found;
}

/* The numbers of ranks above `least`, and of the first `same` that are equal to it, rising. */
__device__ static inline void best_write(best_room &m, const best_ranks &r, uint32_t least, int same, int32_t *out) {
    const int      lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const uint32_t before = (1u << lane) - 1;
    int            n_more = 0, n_same = 0; /* in front of this round */
    for (int i0 = 0; i0 < r.n; i0 += BEST_THREADS) {
        const int      i = i0 + (int)threadIdx.x;
        const uint32_t rank = i < r.n ? r.at(i) : 0;
        const bool     is_more = i < r.n && rank > least, is_same = i < r.n && rank == least;
        const uint32_t mores = __ballot_sync(0xffffffffu, is_more), sames = __ballot_sync(0xffffffffu, is_same);
        if (lane == 0) m.more[warp] = __popc(mores), m.same[warp] = __popc(sames);
        __syncthreads();
        int my_more = n_more + __popc(mores & before), my_same = n_same + __popc(sames & before);
        for (int w = 0; w < BEST_WARPS; w++) {
            if (w < warp) my_more += m.more[w], my_same += m.same[w];
            n_more += m.more[w], n_same += m.same[w];
        }
        if (is_more || (is_same && my_same < same)) out[my_more + min(my_same, same)] = i;
        __syncthreads();
    }
}

static __global__ __launch_bounds__(BEST_THREADS) void best_kernel(const cuda_choose a) {
    __shared__ best_room m;
    launch_begin();
    const int line = a.first + (int)blockIdx.x, n = positions_of(a, line), n_block = blocks_of(a, n);
    int32_t  *out = a.out + (int64_t)line * (1 + a.top);
    if (n_block <= a.top) {
        for (int i = (int)threadIdx.x; i < a.top; i += BEST_THREADS) out[1 + i] = i < n_block ? i : 0;
        if (threadIdx.x == 0) out[0] = n_block;
        return;
    }
    float *score = a.scores + (int64_t)(line - a.first) * a.line_floats, *best = score;
    if (a.block > 1) {
        best = score + (int64_t)a.chunks * CHUNK;
        for (int i = (int)threadIdx.x; i < n_block; i += BEST_THREADS) {
            float most = score[i * a.block];
            for (int j = i * a.block + 1; j < min((i + 1) * a.block, n); j++) most = score[j] > most ? score[j] : most;
            best[i] = most;
        }
        __syncthreads();
    }
    const best_ranks r = { best, n_block, n_block - a.local };
    int              above;
    const uint32_t   least = best_rank(m, r, a.top, &above);
    best_write(m, r, least, a.top - above, out + 1);
    if (threadIdx.x == 0) out[0] = a.top;
}

static size_t query_bytes(bool many, int heads, int dim) {
    const size_t rounded = many ? (size_t)(heads + HEADS - 1) / HEADS * HEADS : 1;
    return rounded * (size_t)((dim + STEP - 1) / STEP * STEP) * sizeof(float);
}

bool cuda_can_choose(bool weights, int heads, int dim) { return query_bytes(weights, heads, dim) <= 96 * 1024; }

int64_t cuda_choose_floats(int block, int chunks) {
    const int64_t n = (int64_t)chunks * CHUNK;
    return block > 1 ? n + (n + block - 1) / block : n;
}

int cuda_op_choose(const cuda_choose *a, cuda_stream s, err *e) {
    const int   heads = a->n_head / a->n_group, lines = a->batch.n_tok * a->n_group;
    const int   at_once = (int)(a->score_floats / a->line_floats);
    cuda_choose own = *a;
    for (own.first = 0; own.first < lines; own.first += at_once) {
        const int        n = lines - own.first < at_once ? lines - own.first : at_once;
        const size_t     bytes = query_bytes(a->weights != NULL, heads, a->index.dim_k);
        const cuda_shape scores = { (unsigned)n * (unsigned)a->chunks, CHUNK, 1, bytes, true },
                         best = { (unsigned)n, BEST_THREADS, 1, 0, true };
        int rc = a->weights ? cuda_launch(scores_kernel<true>, scores, s, e, own)
                            : cuda_launch(scores_kernel<false>, scores, s, e, own);
        if (rc == 0) rc = cuda_launch(best_kernel, best, s, e, own);
        if (rc != 0) return rc;
    }
    return 0;
}
