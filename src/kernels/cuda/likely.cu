/* SPDX-License-Identifier: Apache-2.0 */
/* The likeliest tokens of rows of logits: groups' largest entries, then the groups that have the largest of these. */
#include "kernels/cuda/picks.cuh"

#define WARPS 8 /* groups of a block */

static __global__ __launch_bounds__(WARPS * 32) void tops_kernel(const cuda_picks p, int blocks_of_row) {
    launch_begin();
    const int      row = blockIdx.x / blocks_of_row, lane = threadIdx.x % 32;
    const int      group = (blockIdx.x % blocks_of_row) * WARPS + threadIdx.x / 32;
    const int64_t  size = group_size(p.width), from = group * size, end = min(from + size, p.width);
    const row_view x = row_of(p, row);
    uint32_t       most = 0, place = 0xffffffffu;
    if (from >= p.width) return;
    for (int64_t i = from + lane; i < end; i += 32) {
        const uint32_t v = rising(at(x, i));
        if (v > most) most = v, place = (uint32_t)i;
    }
    const uint32_t best = __reduce_max_sync(0xffffffffu, most);
    place = __reduce_min_sync(0xffffffffu, most == best ? place : 0xffffffffu);
    if (lane == 0) p.tops[(int64_t)row * CUDA_GROUPS + group] = key_of(best, place);
}

typedef struct list_room {
    cuda_key tops[CUDA_GROUPS];
    int      group[CUDA_TAKEN];  /* by rank */
    cuda_key top_of[CUDA_TAKEN]; /* by rank */
    cuda_key keys[CUDA_LIKELY];
    float    x[CUDA_LIKELY];
    int      n;
} list_room;

/* Entries in front of the floor, of the groups that were taken. */
__device__ static void collect(list_room *m, const row_view &x, int64_t width, int taken, cuda_key floor) {
    const int64_t size = group_size(width);
    for (int g = threadIdx.x / 32; g < taken; g += CUDA_GROUPS / 32) {
        const int64_t from = m->group[g] * size, end = min(from + size, width);
        for (int64_t i = from + threadIdx.x % 32; i < end; i += 32) {
            const cuda_key k = key_of(rising(at(x, i)), i);
            if (k <= floor) continue;
            const int place = atomicAdd(&m->n, 1);
            if (place >= CUDA_LIKELY) continue;
            m->keys[place] = k;
            m->x[place] = x.x[i];
        }
    }
}

__device__ static void write_sorted(const list_room *m, cuda_likely *to) {
    const int i = (int)threadIdx.x;
    int       rank = 0;
    if (i >= m->n) return;
    for (int k = 0; k < m->n; k++) rank += m->keys[k] > m->keys[i];
    to->token[rank] = (int32_t) ~(uint32_t)m->keys[i];
    to->x[rank] = m->x[i];
}

/* A warp's four places of a list each, one behind the other. */
#define EACH (CUDA_LIKELY / 32)

/* Weights of the first n places and their running sums; returns the sum of all. */
__device__ static double weigh(const float x[EACH], int n, double first, double running[EACH]) {
    const int lane = threadIdx.x % 32;
    double    mine = 0;
    for (int k = 0; k < EACH; k++) {
        if (lane * EACH + k < n) mine += (double)expf((float)((double)x[k] - first));
        running[k] = mine;
    }
    double before = mine;
    for (int step = 1; step < 32; step *= 2) {
        const double other = __shfl_up_sync(0xffffffffu, before, step);
        if (lane >= step) before += other;
    }
    const double all = __shfl_sync(0xffffffffu, before, 31);
    for (int k = 0; k < EACH; k++) running[k] += before - mine;
    return all;
}

/* The first place whose running sum reaches the target; n - 1: none. */
__device__ static int first_beyond(const double running[EACH], int n, double target, bool equal) {
    const int lane = threadIdx.x % 32;
    int       place = n - 1;
    for (int k = EACH - 1; k >= 0; k--) {
        const bool there = equal ? running[k] >= target : running[k] > target;
        if (there && lane * EACH + k < n) place = lane * EACH + k;
    }
    return __reduce_min_sync(0xffffffffu, place);
}

/* By the first warp, from a list that is written. */
__device__ static int32_t guess_token(const cuda_likely *l, int n, const cuda_guess &g) {
    const int lane = threadIdx.x % 32;
    float     x[EACH];
    double    running[EACH];
    if (n == 0) return 0;
    if (g.temperature <= 0) return l->token[0];
    for (int k = 0; k < EACH; k++) x[k] = lane * EACH + k < n ? fminf(l->x[lane * EACH + k], LARGEST) : 0;
    for (uint32_t stages = g.stages; stages; stages >>= 4) {
        const int stage = stages & 15;
        const double first = (double)__shfl_sync(0xffffffffu, x[0], 0);
        if (stage == CUDA_GUESS_TOP_K) {
            n = min(n, g.top_k);
        } else if (stage == CUDA_GUESS_TOP_P) {
            const double sum = weigh(x, n, first, running);
            n = first_beyond(running, n, (double)g.top_p * sum, true) + 1;
        } else if (stage == CUDA_GUESS_MIN_P) {
            int kept = 0;
            for (int k = 0; k < EACH; k++) kept += lane * EACH + k < n && (double)x[k] >= first + (double)g.log_min_p;
            n = max(1, (int)__reduce_add_sync(0xffffffffu, kept));
        } else {
            for (int k = 0; k < EACH; k++) x[k] /= g.temperature;
        }
    }
    const double sum = weigh(x, n, (double)__shfl_sync(0xffffffffu, x[0], 0), running);
    const double uniform = __hiloint2double((int)g.uniform[1], (int)g.uniform[0]);
    return l->token[first_beyond(running, n, uniform * sum, false)];
}

static __global__ __launch_bounds__(CUDA_GROUPS) void list_kernel(const cuda_picks p, cuda_likely *lists) {
    launch_begin();
    __shared__ list_room m;
    const int            i = (int)threadIdx.x, groups = group_count(p.width);
    const row_view       x = row_of(p, (int)blockIdx.x);
    cuda_likely         *to = &lists[blockIdx.x];
    const cuda_key       v = i < groups ? p.tops[(int64_t)blockIdx.x * CUDA_GROUPS + i] : 0;
    int                  rank = 0;
    m.tops[i] = v;
    if (i == 0) m.n = 0;
    const int good = __syncthreads_count(v > 0);
#pragma unroll 16
    for (int k = 0; k < CUDA_GROUPS; k++) rank += m.tops[k] > v; /* places behind the last group are 0 */
    if (v > 0 && rank < CUDA_TAKEN) {
        m.group[rank] = i;
        m.top_of[rank] = v;
    }
    __syncthreads();
    int      taken = min(good, CUDA_TAKEN);
    cuda_key floor = good > CUDA_TAKEN ? m.top_of[CUDA_TAKEN - 1] : 0;
    collect(&m, x, p.width, taken, floor);
    __syncthreads();
    while (m.n > CUDA_LIKELY) { /* many of one group: fewer groups */
        taken /= 2;
        floor = m.top_of[taken > 0 ? taken - 1 : 0];
        __syncthreads();
        if (i == 0) m.n = 0;
        __syncthreads();
        collect(&m, x, p.width, taken, floor);
        __syncthreads();
    }
    write_sorted(&m, to);
    __syncthreads();
    if (i >= 32) return;
    const int32_t guess = p.guess && !p.asks ? guess_token(to, m.n, p.guess[blockIdx.x]) : 0;
    if (i > 0) return;
    to->guess = guess;
    to->n = m.n;
    to->floor = value_of(floor);
    to->most = good > 0 ? value_of(m.top_of[0]) : -INFINITY;
}

int picks_list(const cuda_picks *p, int n, cuda_stream s, err *e) {
    const int        blocks = (group_count(p->width) + WARPS - 1) / WARPS;
    const cuda_shape first = { (unsigned)(n * blocks), WARPS * 32, 1, 0, true },
                     second = { (unsigned)n, CUDA_GROUPS, 1, 0, true };
    if (n == 0) return 0;
    int rc = cuda_launch(tops_kernel, first, s, e, *p, blocks);
    return rc ? rc : cuda_launch(list_kernel, second, s, e, *p, p->asks ? p->asked : p->likely);
}

int cuda_op_likely(const cuda_picks *p, int64_t rows, cuda_stream s, err *e) {
    cuda_picks raw = *p;
    raw.asks = NULL;
    return picks_list(&raw, (int)rows, s, e);
}
