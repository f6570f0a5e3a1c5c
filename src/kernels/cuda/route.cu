/* SPDX-License-Identifier: Apache-2.0 */
/* Which experts a row takes (a warp per row), and the list of rows per expert (one block). */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/route.cuh"

#define THREADS 1024

static __global__ __launch_bounds__(32) void route_kernel(const cuda_route a) {
    launch_begin();
    extern __shared__ float room[];
    route_row(a, a.logits + (int64_t)blockIdx.x * a.n_expert, a.out + (int64_t)blockIdx.x * a.n_used * 2, room,
              (int)threadIdx.x);
}

int cuda_op_route(const cuda_route *a, cuda_stream s, err *e) {
    const cuda_shape shape = { (unsigned)a->rows, 32, 1, route_bytes(a->n_expert), true };
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
                                                              int64_t rows, int n_expert, int item_rows) {
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
        int2      all, before = sums_before(make_int2(c, (c + item_rows - 1) / item_rows), room, &all);
        const int at = base.x + before.x;
        int       n = base.y + before.y;
        if (i < n_expert) first[i] = at;
        for (int k = 0; k < c; k += item_rows, n++) {
            items[1 + n * 3] = i;
            items[2 + n * 3] = at + k;
            items[3 + n * 3] = min(item_rows, c - k);
        }
        base.x += all.x, base.y += all.y;
    }
    if (threadIdx.x == 0) items[0] = base.y;
    __syncthreads();
    for (int64_t r = threadIdx.x; r < rows; r += THREADS) order[atomicAdd(&first[id[r * 2]], 1)] = (int32_t)r;
}

int cuda_op_sort(int32_t *order, int32_t *items, const float *chosen, int64_t rows, int n_expert, int item_rows,
                 cuda_stream s, err *e) {
    const cuda_shape shape = { 1, THREADS, 1, 0, true };
    return cuda_launch(sort_kernel, shape, s, e, order, items, chosen, rows, n_expert, item_rows);
}
