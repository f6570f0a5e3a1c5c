/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The norm of a few rows, a router's product and the choice of experts in one kernel: the values of norm.cu, plain.cu and
 * route.cu, bit for bit.
 *
 * Every block norms the rows itself and multiplies its share of the router's weights, which were under way before the
 * kernel in front had ended. The last block to finish makes the choice.
 */
#include "kernels/cuda/router.cuh"

#define BLOCKS 128 /* at most */
#define ROOM (160 * 1024)

static __global__ __launch_bounds__(ROUTER_THREADS) void router_kernel(const router_args g) {
    extern __shared__ __align__(16) float smem[]; /* weights, rows; the last block: room of the choice, logits */
    __shared__ bool                       last;
    const cuda_router                    &a = g.a;
    const int n_tok = (int)a.route.rows, n_expert = a.route.n_expert;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    launch_next();
    (void)router_rows(g, smem);
    router_dots(g, smem, [&](int t, int e, float logit) { a.logits[t * n_expert + e] = logit; });
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicInc(a.count, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last || warp >= n_tok) return;
    __threadfence();
    float *room = reinterpret_cast<float *>(reinterpret_cast<uint8_t *>(smem) + warp * route_bytes(n_expert));
    float *logits = reinterpret_cast<float *>(reinterpret_cast<uint8_t *>(smem) + n_tok * route_bytes(n_expert)) +
                    warp * n_expert;
    for (int i = lane; i < n_expert; i += 32) logits[i] = __ldcg(a.logits + warp * n_expert + i);
    __syncwarp();
    route_row(a.route, logits, a.route.out + (int64_t)warp * a.route.n_used * 2, room, lane);
}

static size_t bytes_of(int64_t cols, int n_expert, int64_t rows) {
    const int64_t each = (n_expert + BLOCKS - 1) / BLOCKS;
    const size_t  multiplied = (size_t)((each + rows) * cols) * sizeof(float),
                 chosen = (size_t)rows * (route_bytes(n_expert) + (size_t)n_expert * sizeof(float));
    return multiplied > chosen ? multiplied : chosen;
}

bool cuda_can_router(int64_t cols, int n_expert, int64_t rows) {
    return rows <= CUDA_EXPERTS_TOKENS && cols > CUDA_NORM_HEADS && row_fits(cols, ROUTER_THREADS * 8 * ROUTER_CHUNKS) &&
           bytes_of(cols, n_expert, rows) <= ROOM;
}

int cuda_op_router(const cuda_router *a, cuda_stream s, err *e) {
    const int         each = (a->route.n_expert + BLOCKS - 1) / BLOCKS;
    const router_args g = { *a, rows_args_of(&a->rows16, a->normed, a->cols), each };
    const cuda_shape  shape = { (unsigned)((a->route.n_expert + each - 1) / each), ROUTER_THREADS, 1,
                                bytes_of(a->cols, a->route.n_expert, a->route.rows), true };
    return a->route.rows ? cuda_launch(router_kernel, shape, s, e, g) : 0;
}
