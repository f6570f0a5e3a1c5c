/* SPDX-License-Identifier: Apache-2.0 */
/* What the attention kernels share: what a row sees, and how chunks are folded. */
#ifndef KERNELS_CUDA_ATTN_CUH
#define KERNELS_CUDA_ATTN_CUH

#include "kernels/cuda/pages.cuh"

/* What a chunk, or all chunks so far, give for one head; o lies elsewhere. */
struct attn_sum {
    float most, sum;
};

/* Factors for the old and the new part when both are brought to the same maximum. */
__device__ static inline attn_sum attn_fold(attn_sum old, attn_sum part, float *f_old, float *f_part) {
    const float most = fmaxf(old.most, part.most);
    *f_old = old.most == most ? 1.0f : expf(old.most - most);
    *f_part = part.most == most ? 1.0f : expf(part.most - most);
    return { most, old.sum * *f_old + part.sum * *f_part };
}

__device__ static inline attn_sum attn_begin(const cuda_attn &a, int head) {
    return a.sinks ? attn_sum{ a.sinks[head], 1.0f } : attn_sum{ -INFINITY, 0.0f };
}

/* Positions [*lo, *hi) that row t sees. Both rise with t within a sequence. */
__device__ static inline void attn_range(const cuda_attn &a, int t, int *lo, int *hi) {
    const int pos = a.batch.pos[t], from = pos + 1 - a.window;
    *lo = a.chunk ? pos / a.chunk * a.chunk : a.window > 0 && from > 0 ? from : 0;
    *hi = a.strict ? pos + 1 : a.batch.row_end[t];
    if (a.until) *hi = min(*hi, a.until);
    if (!a.pages.step) {
        if (a.window > 0 && !a.chunk && !a.strict && a.batch.row_begin) *lo = min(*lo, a.batch.row_begin[t]);
        return;
    }
    if (a.spans && a.batch.row_begin) {
        *lo = a.batch.row_begin[t];
        *hi = a.batch.row_end[t];
        return;
    }
    const int s = a.batch.seq_of[t], len = a.batch.q_start[s + 1] - a.batch.q_start[s];
    *lo = a.reach && pos > a.reach ? pos - a.reach : 0;
    *hi = a.reach && pos + a.reach + 1 < len ? pos + a.reach + 1 : len;
}

/* What row t chose for a key head: n positions, of which number j is at(j). Only what a row may see, whatever stands there. */
struct attn_choice {
    const int32_t *ids;
    int            n, block, pos;

    __device__ inline int at(int j) const { return min(pos, max(0, ids[j / block] * block + j % block)); }
};

__device__ static inline attn_choice attn_chosen(const cuda_attn &a, int t, int kv) {
    const int      group = kv / (a.pages.n_kv / a.chosen_groups), pos = a.batch.pos[t];
    const int32_t *ids = a.chosen + ((int64_t)t * a.chosen_groups + group) * (1 + a.chosen_top);
    const int      count = min(a.chosen_top, max(0, ids[0])), block = a.chosen_block;
    const int      over = count ? (ids[count] + 1) * block - (pos + 1) : 0; /* of the last block, behind the row */
    return { ids + 1, min(pos + 1, count * block - max(0, min(over, block - 1))), block, pos };
}

/* What distance (of the key from the query) adds to a score. */
__device__ static inline float attn_more(const cuda_attn &a, float score, int head, int distance) {
    if (a.bias) {
        const int reach = a.bias_wide / 2;
        score += a.bias[(int64_t)head * a.bias_wide + reach + min(reach, max(-reach, distance))];
    }
    return a.alibi ? score - a.alibi[head] * fabsf((float)distance) : score;
}

/* What the query of row t and the key at position j of its input say about their distance, before the scale. */
__device__ static inline float attn_apart(const cuda_attn &a, int t, int head, int j) {
    if (!a.apart_which) return 0;
    const int     reach = a.apart_wide / 2, distance = j - a.batch.pos[t];
    const int     which = (int)a.apart_which[reach + min(reach, max(-reach, distance))];
    const int64_t of = (int64_t)head * a.apart_n + which, wide = (int64_t)a.n_head * a.apart_n;
    return a.apart_q[t * wide + of] + a.apart_k[(a.batch.q_start[a.batch.seq_of[t]] + j) * wide + of];
}

/* Tensor-core attention (attn_mma.cu): f16 pages and heads of 64, 96 or 128. */
bool attn_mma_can(const cuda_attn *a);
int  attn_mma(const cuda_attn *a, cuda_stream s, err *e);

/* The same for sequences of many rows, on Hopper (attn_many.cu). */
bool attn_many_can(const cuda_attn *a);
int  attn_many(const cuda_attn *a, cuda_stream s, err *e);

/* Among the rows of a step, in f16 (attn_step.cu). */
int attn_step(const cuda_attn *a, cuda_stream s, err *e);

/* The same as attn_mma for one row of each sequence, chunk by chunk (attn_one.cu); *folded: the parts, too. */
int  attn_one(const cuda_attn *a, bool *folded, cuda_stream s, err *e);

/* The same behind many positions (attn_long.cu). */
bool attn_long_can(const cuda_attn *a);
int  attn_long(const cuda_attn *a, cuda_stream s, err *e);

/* Parts of chunks to the result (attn_fold.cu). */
int attn_fold_parts(const cuda_attn *a, cuda_stream s, err *e);

#endif
