/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows that are asked more of: a copy with biases and penalties, its likeliest tokens, the sums of its weights by
 * group, and the draw: the group in which the running sum passes the target, then the token inside of it.
 */
#include "kernels/cuda/picks.cuh"

#define WARPS 8
#define COPY 1024 /* entries of a block that copies */

static __global__ __launch_bounds__(256) void copy_kernel(const cuda_picks p, int blocks_of_row) {
    launch_begin();
    const int       ask = blockIdx.x / blocks_of_row;
    const cuda_ask *a = &p.asks[ask];
    if (!a->edited) return;
    const int64_t   from = (int64_t)(blockIdx.x % blocks_of_row) * COPY;
    const float *x = p.logits + a->row * p.width;
    float       *to = p.edited + (a->edited - 1) * p.width;
    for (int64_t i = from + threadIdx.x; i < min(from + COPY, p.width); i += 256) to[i] = x[i];
}

/* Biases in the order of their list, where a token may stand twice; penalties of distinct tokens. */
static __global__ __launch_bounds__(256) void change_kernel(const cuda_picks p) {
    launch_begin();
    const cuda_ask *a = &p.asks[blockIdx.x];
    if (!a->edited) return;
    float           *x = p.edited + (a->edited - 1) * p.width;
    const cuda_edit *e = p.edits + a->edits_at;
    for (int i = 0; i < a->n_bias && threadIdx.x == 0; i++) x[e[i].token] += e[i].by.bias;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < a->n_counts; i += 256) {
        const cuda_edit c = e[a->n_bias + i];
        float           v = x[c.token];
        v = v > 0 ? v / a->repeat : v * a->repeat;
        x[c.token] = v - (a->frequency * (float)c.by.count + a->presence);
    }
}

__device__ static inline float warmed(float x, float t) { return fmaxf(fminf(x, LARGEST) / t, -LARGEST); }

__device__ static inline double weight(float x, float t, double most) {
    return x > -INFINITY ? (double)expf((float)((double)warmed(x, t) - most)) : 0;
}

/* Sums by group; second: of the row as it came, at temperature 1. */
static __global__ __launch_bounds__(WARPS * 32) void sums_kernel(const cuda_picks p, int blocks_of_row, int second) {
    launch_begin();
    const int       ask = blockIdx.x / blocks_of_row, lane = threadIdx.x % 32;
    const int       group = (blockIdx.x % blocks_of_row) * WARPS + threadIdx.x / 32;
    const cuda_ask *a = &p.asks[ask];
    const int64_t   size = group_size(p.width), from = group * size, end = min(from + size, p.width);
    const row_view  raw = { p.logits + a->row * p.width, NULL }, x = second ? raw : row_of(p, ask);
    const float     t = second ? 1.0f : a->temperature;
    const double    most = warmed(second ? p.likely[a->row].most : p.asked[ask].most, t);
    double          sum = 0;
    if (from >= p.width) return;
    for (int64_t i = from + lane; i < end; i += 32) sum += weight(at(x, i), t, most);
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
    if (lane == 0) p.sums[((int64_t)ask * 2 + second) * CUDA_GROUPS + group] = sum;
}

/* Running sums over the block's threads, this one's included; fills to[] and waits for it. */
__device__ static void scan(double *to, double *warps, double v) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
        const double other = __shfl_up_sync(0xffffffffu, v, o);
        if (lane >= o) v += other;
    }
    __syncthreads(); /* whoever still reads the last scan */
    if (lane == 31) warps[warp] = v;
    __syncthreads();
    double before = 0;
    for (int k = 0; k < warp; k++) before += warps[k];
    to[threadIdx.x] = before + v;
    __syncthreads();
}

typedef struct draw_room {
    double running[CUDA_GROUPS], warps[CUDA_GROUPS / 32];
    int    found;
} draw_room;

/* The thread in whose part of the running sum, behind base, the target lies; -1: none. */
__device__ static int find(draw_room *m, double base, double target) {
    const int    i = (int)threadIdx.x;
    const double low = base + (i > 0 ? m->running[i - 1] : 0), high = base + m->running[i];
    if (i == 0) m->found = -1;
    __syncthreads();
    if (low <= target && target < high) m->found = i;
    __syncthreads();
    return m->found;
}

/* The token of this thread's entries at which the running sum passes the target. */
__device__ static void pick(cuda_drawn *d, const row_view &x, int64_t from, int64_t end, float t, double most,
                            double low, double target) {
    for (int64_t i = from; i < end; i++) {
        const double high = low + weight(at(x, i), t, most);
        if (target < high) {
            d->token = (int32_t)i;
            d->margin = fmin(target - low, high - target) / d->sum;
            return;
        }
        low = high;
    }
}

static __global__ __launch_bounds__(CUDA_GROUPS) void draw_kernel(const cuda_picks p) {
    launch_begin();
    __shared__ draw_room m;
    const int            i = (int)threadIdx.x, groups = group_count(p.width);
    const cuda_ask      *a = &p.asks[blockIdx.x];
    const row_view       x = row_of(p, (int)blockIdx.x);
    const double        *sums = p.sums + (int64_t)blockIdx.x * 2 * CUDA_GROUPS;
    cuda_drawn          *d = &p.drawn[blockIdx.x];
    const double         most = warmed(p.asked[blockIdx.x].most, a->temperature);
    scan(m.running, m.warps, i < groups ? sums[CUDA_GROUPS + i] : 0);
    if (i == 0) d->raw = m.running[CUDA_GROUPS - 1];
    scan(m.running, m.warps, i < groups ? sums[i] : 0);
    const double sum = m.running[CUDA_GROUPS - 1], target = a->uniform * sum;
    if (i == 0) {
        d->sum = sum;
        d->token = -2;
        d->margin = 0;
        d->x = 0;
    }
    const int group = find(&m, 0, target);
    if (group < 0) return;
    const double  base = group > 0 ? m.running[group - 1] : 0;
    const int64_t size = group_size(p.width), each = (size + CUDA_GROUPS - 1) / CUDA_GROUPS;
    const int64_t end = min((group + 1) * size, p.width), from = min(group * size + i * each, end);
    double        mine = 0;
    for (int64_t k = from; k < min(from + each, end); k++) mine += weight(at(x, k), a->temperature, most);
    scan(m.running, m.warps, mine);
    if (find(&m, base, target) != i) return;
    pick(d, x, from, min(from + each, end), a->temperature, most, base + (i > 0 ? m.running[i - 1] : 0), target);
    if (d->token >= 0) d->x = p.logits[a->row * p.width + d->token];
}

int cuda_op_ask(const cuda_picks *p, cuda_stream s, err *e) {
    const int        n = p->n, groups = (group_count(p->width) + WARPS - 1) / WARPS;
    const int        pieces = (int)((p->width + COPY - 1) / COPY);
    const cuda_shape copy = { (unsigned)(n * pieces), 256, 1, 0, true }, each = { (unsigned)n, 256, 1, 0, true },
                     sums = { (unsigned)(n * groups), WARPS * 32, 1, 0, true },
                     draw = { (unsigned)n, CUDA_GROUPS, 1, 0, true };
    int rc = p->n_edited ? cuda_launch(copy_kernel, copy, s, e, *p, pieces) : 0;
    if (!rc && p->n_edited) rc = cuda_launch(change_kernel, each, s, e, *p);
    if (!rc) rc = picks_list(p, n, s, e);
    if (!rc) rc = cuda_launch(sums_kernel, sums, s, e, *p, groups, 0);
    if (!rc) rc = cuda_launch(sums_kernel, sums, s, e, *p, groups, 1);
    return rc ? rc : cuda_launch(draw_kernel, draw, s, e, *p);
}
