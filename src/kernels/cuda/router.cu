/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The norm of a few rows, a router's product and the choice of experts in one kernel: the values of norm.cu, plain.cu and
 * route.cu, bit for bit.
 *
 * Every block norms the rows itself and multiplies its share of the router's weights, which were under way before the
 * kernel in front had ended. The last block to finish makes the choice.
 */
#include "kernels/cuda/plain.cuh"
#include "kernels/cuda/route.cuh"
#include "kernels/cuda/rows.cuh"

#define THREADS 512 /* as in norm.cu: the order of sums follows from it */
#define CHUNKS 2
#define WARPS (THREADS / 32)
#define BLOCKS 128 /* at most */
#define ROOM (160 * 1024)

struct router_args {
    cuda_router a;
    rows_args   rows16;
    int         each; /* experts per block */
};

/* Row t, normed to shared memory; block t leaves it to others. */
__device__ static inline void router_norm(const router_args &g, const row_in_regs<THREADS, CHUNKS> &w, float *to, int t) {
    __shared__ float             room[WARPS];
    const cuda_router           &a = g.a;
    row_in_regs<THREADS, CHUNKS> x;
    float                        part = 0;
    x.load(a.x + t * a.cols, a.cols);
#pragma unroll
    for (int i = 0; i < CHUNKS * 8; i++) part = fmaf(x.v[i / 8][i % 8], x.v[i / 8][i % 8], part);
    part = block_sum<THREADS>(part, room);
    const float scale = 1.0f / sqrtf(part / (float)a.cols + a.eps);
#pragma unroll
    for (int i = 0; i < CHUNKS * 8; i++) {
        float v = x.v[i / 8][i % 8] * scale;
        if (a.norm_w) v *= w.v[i / 8][i % 8];
        x.v[i / 8][i % 8] = v;
    }
    x.store(to, a.cols);
    if ((int)blockIdx.x != t % (int)gridDim.x) return;
    x.store(a.normed + t * a.cols, a.cols);
    x.image(g.rows16, t);
}

static __global__ __launch_bounds__(THREADS) void router_kernel(const router_args g) {
    extern __shared__ __align__(16) float smem[]; /* weights, rows; the last block: room of the choice, logits */
    __shared__ bool                       last;
    const cuda_router                    &a = g.a;
    const int                             n_tok = (int)a.route.rows, n_expert = a.route.n_expert, cols = (int)a.cols;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, first = (int)blockIdx.x * g.each;
    const int n = max(0, min(g.each, n_expert - first));
    float    *rows = smem + g.each * cols;
    row_in_regs<THREADS, CHUNKS> w;
    launch_next();
    for (int i = (int)threadIdx.x; i < n * cols / 4; i += THREADS)
        copy16(smem_at(smem) + i * 16, a.w + (int64_t)first * cols + i * 4);
    copy_commit();
    if (a.norm_w) w.load(a.norm_w, a.cols);
    launch_wait();
    for (int t = 0; t < n_tok; t++) router_norm(g, w, rows + t * cols, t);
    copy_wait<0>();
    __syncthreads();
    for (int i = warp; i < n * n_tok; i += WARPS) {
        const int    e = i % n, t = i / n;
        const float *x = rows + t * cols;
        float        sum[1] = {};
        plain_dots<1>(sum, smem + e * cols, &x, cols, lane);
        if (a.bias) sum[0] += a.bias[first + e];
        if (lane == 0) a.logits[t * n_expert + first + e] = sum[0];
    }
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
    const int room = cuda_block_smem() - 1024; /* beside what the kernel has itself */
    return rows <= CUDA_EXPERTS_TOKENS && cols > CUDA_NORM_HEADS && row_fits(cols, THREADS * 8 * CHUNKS) &&
           bytes_of(cols, n_expert, rows) <= (size_t)(room < ROOM ? room : ROOM);
}

int cuda_op_router(const cuda_router *a, cuda_stream s, err *e) {
    const int         each = (a->route.n_expert + BLOCKS - 1) / BLOCKS;
    const router_args g = { *a, rows_args_of(&a->rows16, a->normed, a->cols), each };
    const cuda_shape  shape = { (unsigned)((a->route.n_expert + each - 1) / each), THREADS, 1,
                                bytes_of(a->cols, a->route.n_expert, a->route.rows), true };
    return a->route.rows ? cuda_launch(router_kernel, shape, s, e, g) : 0;
}
