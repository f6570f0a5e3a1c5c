/* SPDX-License-Identifier: Apache-2.0 */
/* The likeliest tokens of rows of logits: groups' largest entries, then the groups that have the largest of these. */
#include "kernels/cuda/picks.cuh"

#define WARPS 8 /* groups of a block */

static __global__ __launch_bounds__(WARPS * 32) void tops_kernel(const cuda_picks p, int blocks_of_row) {
    launch_begin();
    const int     row = blockIdx.x / blocks_of_row, lane = threadIdx.x % 32;
    const int     group = (blockIdx.x % blocks_of_row) * WARPS + threadIdx.x / 32;
    const int64_t size = group_size(p.width), from = group * size, end = min(from + size, p.width);
    const row_view x = row_of(p, row);
    float         most = -INFINITY;
    if (from >= p.width) return;
    for (int64_t i = from + lane; i < end; i += 32) most = fmaxf(most, possible(at(x, i)));
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, o));
    if (lane == 0) p.tops[(int64_t)row * CUDA_GROUPS + group] = most;
}

typedef struct list_room {
    float tops[CUDA_GROUPS];
    int   group[CUDA_TAKEN];    /* by rank */
    float top_of[CUDA_TAKEN];   /* by rank */
    float x[CUDA_LIKELY];
    int   token[CUDA_LIKELY], n;
} list_room;

/* Entries above the floor, of the groups that were taken. */
__device__ static void collect(list_room *m, const row_view &x, int64_t width, int taken, float floor) {
    const int64_t size = group_size(width);
    for (int g = threadIdx.x / 32; g < taken; g += CUDA_GROUPS / 32) {
        const int64_t from = m->group[g] * size, end = min(from + size, width);
        for (int64_t i = from + threadIdx.x % 32; i < end; i += 32) {
            if (!(possible(at(x, i)) > floor)) continue;
            const int place = atomicAdd(&m->n, 1);
            if (place >= CUDA_LIKELY) continue;
            m->x[place] = x.x[i];
            m->token[place] = (int)i;
        }
    }
}

__device__ static void write_sorted(const list_room *m, cuda_likely *to) {
    const int i = (int)threadIdx.x;
    int       rank = 0;
    if (i >= m->n) return;
    const float v = possible(m->x[i]);
    for (int k = 0; k < m->n; k++) {
        const float w = possible(m->x[k]);
        rank += w > v || (w == v && m->token[k] < m->token[i]);
    }
    to->token[rank] = m->token[i];
    to->x[rank] = m->x[i];
}

static __global__ __launch_bounds__(CUDA_GROUPS) void list_kernel(const cuda_picks p, cuda_likely *lists) {
    launch_begin();
    __shared__ list_room m;
    const int            i = (int)threadIdx.x, groups = group_count(p.width);
    const row_view       x = row_of(p, (int)blockIdx.x);
    cuda_likely         *to = &lists[blockIdx.x];
    const float          v = i < groups ? p.tops[(int64_t)blockIdx.x * CUDA_GROUPS + i] : -INFINITY;
    int                  rank = 0;
    m.tops[i] = v;
    const int good = __syncthreads_count(v > -INFINITY);
    for (int k = 0; k < groups; k++) rank += m.tops[k] > v || (m.tops[k] == v && k < i);
    if (rank < CUDA_TAKEN) {
        m.group[rank] = i;
        m.top_of[rank] = v;
    }
    if (i == 0) m.n = 0;
    __syncthreads();
    int   taken = min(good, CUDA_TAKEN);
    float floor = good > CUDA_TAKEN ? m.top_of[CUDA_TAKEN - 1] : -INFINITY;
    collect(&m, x, p.width, taken, floor);
    __syncthreads();
    while (m.n > CUDA_LIKELY) { /* many of one group: fewer groups */
        taken /= 2;
        floor = taken > 0 ? m.top_of[taken - 1] : m.top_of[0];
        __syncthreads();
        if (i == 0) m.n = 0;
        __syncthreads();
        collect(&m, x, p.width, taken, floor);
        __syncthreads();
    }
    write_sorted(&m, to);
    if (i > 0) return;
    to->n = m.n;
    to->floor = floor;
    to->most = good > 0 ? m.top_of[0] : -INFINITY;
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
