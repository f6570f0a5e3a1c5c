/* SPDX-License-Identifier: Apache-2.0 */
/* Which experts a row takes (a warp per row), and the list of rows per expert (one block). */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"

#define THREADS 1024

/* The largest of v[0..n) that is not NaN's equal -INFINITY by mark; among equals the lowest index; -1: none. */
__device__ static inline int best_of(const float *v, const uint8_t *taken, int n, int lane) {
    float most = 0;
    int   at = -1;
    for (int i = lane; i < n; i += 32) {
        if (!taken[i] && (at < 0 || v[i] > most)) most = v[i], at = i;
    }
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) {
        const float m = __shfl_xor_sync(0xffffffffu, most, o);
        const int   k = __shfl_xor_sync(0xffffffffu, at, o);
        if (k >= 0 && (at < 0 || m > most || (m == most && k < at))) most = m, at = k;
    }
    return at;
}

/* Marks the experts outside of the best groups; a group scores as its best two. */
__device__ static inline void mask_groups(const cuda_route &a, const float *choice, uint8_t *taken, float *value,
                                          uint8_t *used, int lane) {
    const int per = a.n_expert / a.n_group;
    for (int g = 0; g < a.n_group; g++) {
        const int i = best_of(choice + g * per, taken + g * per, per, lane);
        __syncwarp();
        if (lane == 0) taken[g * per + i] = 1;
        __syncwarp();
        const int k = per > 1 ? best_of(choice + g * per, taken + g * per, per, lane) : -1;
        __syncwarp();
        if (lane == 0) {
            taken[g * per + i] = 0;
            value[g] = choice[g * per + i] + (k >= 0 && !a.group_best ? choice[g * per + k] : 0.0f);
            used[g] = 0;
        }
        __syncwarp();
    }
    for (int i = 0; i < a.top_group; i++) {
        const int g = best_of(value, used, a.n_group, lane);
        __syncwarp();
        if (lane == 0 && g >= 0) used[g] = 1;
        __syncwarp();
    }
    for (int i = lane; i < a.n_expert; i += 32) taken[i] = !used[i / per];
    __syncwarp();
}

/* Twice the best that is left; its weight is its share among those that come near it. */
__device__ static inline void route_sparsemixer(const cuda_route &a, const float *v, uint8_t *taken, float *out,
                                                int lane) {
    for (int i = lane; i < a.n_expert; i += 32) taken[i] = 0;
    __syncwarp();
    for (int k = 0; k < 2; k++) {
        const int id = max(0, best_of(v, taken, a.n_expert, lane));
        float     sum = 0;
        for (int i = lane; i < a.n_expert; i += 32) {
            const bool near = v[id] - v[i] <= 2 * a.jitter * fmaxf(fabsf(v[i]), v[id]);
            if (near && !taken[i]) sum += expf(v[i] - v[id]);
        }
        sum = warp_sum(sum);
        __syncwarp();
        if (lane == 0) {
            taken[id] = 1;
            reinterpret_cast<int32_t *>(out)[k * 2] = id;
            out[k * 2 + 1] = 1.0f / sum * a.scale * (a.expert_scale ? a.expert_scale[id] : 1.0f);
        }
        __syncwarp();
    }
}

static __global__ __launch_bounds__(32) void route_kernel(const cuda_route a) {
    launch_begin();
    extern __shared__ float room[]; /* scores, choices, group values; then marks of experts and groups */
    float                  *score = room, *choice = score + a.n_expert, *value = choice + a.n_expert;
    uint8_t                *taken = reinterpret_cast<uint8_t *>(value + a.n_expert), *used = taken + a.n_expert;
    const int               lane = (int)threadIdx.x;
    const float            *logits = a.logits + (int64_t)blockIdx.x * a.n_expert;
    float                  *out = a.out + (int64_t)blockIdx.x * a.n_used * 2;
    float                   most = -INFINITY, sum = 0, total = 0;
    if (a.sparsemixer) {
        route_sparsemixer(a, logits, taken, out, lane);
        return;
    }
    for (int i = lane; i < a.n_expert; i += 32) most = fmaxf(most, logits[i]);
    most = warp_max(most);
    for (int i = lane; i < a.n_expert; i += 32) {
        score[i] = a.softmax ? expf(logits[i] - most) : 1.0f / (1.0f + expf(-logits[i]));
        sum += score[i];
        taken[i] = 0;
    }
    sum = warp_sum(sum);
    for (int i = lane; i < a.n_expert; i += 32) {
        if (a.softmax) score[i] /= sum;
        choice[i] = score[i] + (a.bias ? a.bias[i] : 0.0f);
    }
    __syncwarp();
    if (a.n_group > 1) mask_groups(a, choice, taken, value, used, lane);
    for (int k = 0; k < a.n_used; k++) {
        int i = best_of(choice, taken, a.n_expert, lane);
        __syncwarp();
        if (i < 0) i = 0;
        if (lane == 0) taken[i] = 1, reinterpret_cast<int32_t *>(out)[k * 2] = i;
        __syncwarp();
        total += score[i];
    }
    __syncwarp();
    for (int k = lane; k < a.n_used; k += 32) {
        const int i = reinterpret_cast<const int32_t *>(out)[k * 2];
        float     w = score[i];
        if (a.renorm) w /= total + a.renorm_eps;
        w *= a.scale;
        if (a.expert_scale) w *= a.expert_scale[i];
        out[k * 2 + 1] = w;
    }
}

int cuda_op_route(const cuda_route *a, cuda_stream s, err *e) {
    const cuda_shape shape = { (unsigned)a->rows, 32, 1, (size_t)a->n_expert * (3 * sizeof(float) + 2), true };
    return a->rows ? cuda_launch(route_kernel, shape, s, e, *a) : 0;
}

int64_t cuda_items_max(int64_t rows, int n_expert) {
    const int64_t n = rows / CUDA_ITEM_ROWS + n_expert;
    return n < rows ? n : rows;
}

/* Sums of two numbers over all threads in front of this one, and of all; room: one entry per warp. */
__device__ static inline int2 sums_before(int2 v, int2 *room, int2 *all) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    int2      sum = v;
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
        const int x = __shfl_up_sync(0xffffffffu, sum.x, o), y = __shfl_up_sync(0xffffffffu, sum.y, o);
        if (lane >= o) sum.x += x, sum.y += y;
    }
    __syncthreads();
    if (lane == 31) room[warp] = sum;
    __syncthreads();
    int2 before = make_int2(sum.x - v.x, sum.y - v.y);
    *all = make_int2(0, 0);
    for (int w = 0; w < THREADS / 32; w++) {
        if (w < warp) before.x += room[w].x, before.y += room[w].y;
        all->x += room[w].x, all->y += room[w].y;
    }
    return before;
}

/* The place of a row among those of its expert is left to chance: no result depends on it. */
static __global__ __launch_bounds__(THREADS) void sort_kernel(int32_t *order, int32_t *items, const float *chosen,
                                                              int64_t rows, int n_expert) {
    launch_begin();
    __shared__ int  count[CUDA_MAX_EXPERTS], first[CUDA_MAX_EXPERTS];
    __shared__ int2 room[THREADS / 32];
    const int32_t *id = reinterpret_cast<const int32_t *>(chosen);
    for (int i = (int)threadIdx.x; i < n_expert; i += THREADS) count[i] = 0;
    __syncthreads();
    for (int64_t r = threadIdx.x; r < rows; r += THREADS) atomicAdd(&count[id[r * 2]], 1);
    __syncthreads();
    int2 base = make_int2(0, 0); /* rows and items of the experts in front */
    for (int i0 = 0; i0 < n_expert; i0 += THREADS) {
        const int i = i0 + (int)threadIdx.x, c = i < n_expert ? count[i] : 0;
        int2      all, before = sums_before(make_int2(c, (c + CUDA_ITEM_ROWS - 1) / CUDA_ITEM_ROWS), room, &all);
        const int at = base.x + before.x;
        int       n = base.y + before.y;
        if (i < n_expert) first[i] = at;
        for (int k = 0; k < c; k += CUDA_ITEM_ROWS, n++) {
            items[1 + n * 3] = i;
            items[2 + n * 3] = at + k;
            items[3 + n * 3] = min(CUDA_ITEM_ROWS, c - k);
        }
        base.x += all.x, base.y += all.y;
    }
    if (threadIdx.x == 0) items[0] = base.y;
    __syncthreads();
    for (int64_t r = threadIdx.x; r < rows; r += THREADS) order[atomicAdd(&first[id[r * 2]], 1)] = (int32_t)r;
}

int cuda_op_sort(int32_t *order, int32_t *items, const float *chosen, int64_t rows, int n_expert, cuda_stream s,
                 err *e) {
    const cuda_shape shape = { 1, THREADS, 1, 0, true };
    return cuda_launch(sort_kernel, shape, s, e, order, items, chosen, rows, n_expert);
}
