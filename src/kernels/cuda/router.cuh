/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The norm of a few rows, a router's product and the choice of experts, by blocks of ROUTER_THREADS: the values of norm.cu,
 * plain.cu and route.cu, bit for bit. Every block norms the rows itself and multiplies its share of the router's weights.
 */
#ifndef KERNELS_CUDA_ROUTER_CUH
#define KERNELS_CUDA_ROUTER_CUH

#include "kernels/cuda/plain.cuh"
#include "kernels/cuda/ring.cuh"
#include "kernels/cuda/route.cuh"
#include "kernels/cuda/rows.cuh"

#define ROUTER_THREADS 512 /* as in norm.cu: the order of sums follows from it */
#define ROUTER_WARPS (ROUTER_THREADS / 32)
#define ROUTER_CHUNKS 2

using router_row = row_in_regs<ROUTER_THREADS, ROUTER_CHUNKS>;

struct router_args {
    cuda_router a;
    rows_args   rows16;
    int         each; /* experts per block */
};

/* Row t, normed to shared memory; where others want it, block t leaves it to them. */
__device__ static inline void router_norm(const router_args &g, const router_row &w, float *to, int t) {
    __shared__ float   room[ROUTER_WARPS];
    const cuda_router &a = g.a;
    router_row         x;
    float              part = 0;
    x.load(a.x + t * a.cols, a.cols);
#pragma unroll
    for (int i = 0; i < ROUTER_CHUNKS * 8; i++) part = fmaf(x.v[i / 8][i % 8], x.v[i / 8][i % 8], part);
    part = block_sum<ROUTER_THREADS>(part, room);
    const float scale = 1.0f / sqrtf(part / (float)a.cols + a.eps);
#pragma unroll
    for (int i = 0; i < ROUTER_CHUNKS * 8; i++) {
        float v = x.v[i / 8][i % 8] * scale;
        if (a.norm_w) v *= w.v[i / 8][i % 8];
        x.v[i / 8][i % 8] = v;
    }
    x.store(to, a.cols);
    if (!a.normed || (int)blockIdx.x != t % (int)gridDim.x) return;
    x.store(a.normed + t * a.cols, a.cols);
    x.image(g.rows16, t);
}

/* The experts of this block: the first, and how many. */
__device__ static inline int2 router_share(const router_args &g) {
    const int first = (int)blockIdx.x * g.each;
    return make_int2(first, max(0, min(g.each, g.a.route.n_expert - first)));
}

/*
 * Logits that all blocks of a kernel hand to each other: words of a tag and a logit, of which only those with the tag of
 * this kernel count. The first word holds the last kernel's tag.
 */
__device__ static inline uint32_t router_tag(const cuda_router &a) {
    return (uint32_t) * reinterpret_cast<volatile uint64_t *>(a.words) + 1;
}

/* Weights of the block's experts, then the normed rows, to shared memory. Returns the tag. */
__device__ static inline uint32_t router_rows(const router_args &g, float *smem) {
    const cuda_router &a = g.a;
    const int          cols = (int)a.cols;
    const int2         share = router_share(g);
    float             *rows = smem + g.each * cols;
    router_row         w;
    for (int i = (int)threadIdx.x; i < share.y * cols / 4; i += ROUTER_THREADS)
        copy16(smem_at(smem) + i * 16, a.w + (int64_t)share.x * cols + i * 4);
    copy_commit();
    if (a.norm_w) w.load(a.norm_w, a.cols);
    launch_wait();
    const uint32_t tag = a.words ? router_tag(a) : 0;
    for (int t = 0; t < (int)a.route.rows; t++) router_norm(g, w, rows + t * cols, t);
    copy_wait<0>();
    __syncthreads();
    return tag;
}

/* Logits of the block's experts, a warp each; put(token, expert, logit) by one lane. */
template <class Put> __device__ static inline void router_dots(const router_args &g, const float *smem, Put put) {
    const cuda_router &a = g.a;
    const int          lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, cols = (int)a.cols;
    const int2         share = router_share(g);
    for (int i = warp; i < share.y * (int)a.route.rows; i += ROUTER_WARPS) {
        const int    e = i % share.y, t = i / share.y;
        const float *x = smem + (g.each + t) * cols;
        float        sum[1] = {};
        plain_dots<1>(sum, smem + e * cols, &x, cols, lane);
        if (a.bias) sum[0] += a.bias[share.x + e];
        if (lane == 0) put(t, share.x + e, sum[0]);
    }
}

/* Normed rows of shared memory to 16 bits, [row][cols_pad] with zeros at the end, as rows_one makes them and one_at (ring.cuh)
 * says where. */
__device__ static inline void router_halves(const router_args &g, const float *rows, uint8_t *to, float *by,
                                            int cols_pad) {
    __shared__ uint32_t tops[ROUTER_WARPS];
    for (int t = 0; t < (int)g.a.route.rows; t++) {
        router_row x;
        uint32_t   top = 0;
        x.load(rows + t * g.a.cols, g.a.cols);
#pragma unroll
        for (int i = 0; i < ROUTER_CHUNKS * 8; i++) top = max(top, __float_as_uint(x.v[i / 8][i % 8]) & 0x7fffffffu);
        top = __reduce_max_sync(0xffffffffu, top);
        if (threadIdx.x % 32 == 0) tops[threadIdx.x / 32] = top;
        __syncthreads();
        for (int i = 0; i < ROUTER_WARPS; i++) top = max(top, tops[i]);
        const int   e = cuda_row_exponent(top);
        const float factor = __uint_as_float((uint32_t)(127 - e) << 23);
        if (threadIdx.x == 0) by[t] = __uint_as_float((uint32_t)(127 + e) << 23);
#pragma unroll
        for (int c = 0; c < ROUTER_CHUNKS; c++) {
            if (x.at(c) >= cols_pad) continue;
#pragma unroll
            for (int i = 0; i < 4; i++)
                *reinterpret_cast<uint32_t *>(to + t * cols_pad * 2 + one_at((int)x.at(c) / 8, i)) =
                    to16<false>(x.v[c][2 * i], factor) | to16<false>(x.v[c][2 * i + 1], factor) << 16;
        }
        __syncthreads();
    }
}

__device__ static inline void router_put(const cuda_router &a, uint32_t tag, int t, int e, float logit) {
    reinterpret_cast<volatile uint64_t *>(a.words)[1 + t * a.route.n_expert + e] =
        (uint64_t)tag << 32 | __float_as_uint(logit);
}

/* All logits of token t, by one warp, as soon as they are there. */
__device__ static inline void router_get(const cuda_router &a, uint32_t tag, int t, float *logits, int lane) {
    const volatile uint64_t *words = reinterpret_cast<volatile uint64_t *>(a.words) + 1 + t * a.route.n_expert;
    for (int first = lane; first - lane < a.route.n_expert; first += 128) {
        uint64_t v[4];
        bool     there;
        do {
            there = true;
#pragma unroll
            for (int j = 0; j < 4; j++) v[j] = first + j * 32 < a.route.n_expert ? words[first + j * 32] : 0;
#pragma unroll
            for (int j = 0; j < 4; j++)
                there = there && (first + j * 32 >= a.route.n_expert || (uint32_t)(v[j] >> 32) == tag);
        } while (!__all_sync(0xffffffffu, there));
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (first + j * 32 < a.route.n_expert) logits[first + j * 32] = __uint_as_float((uint32_t)v[j]);
        }
    }
    __syncwarp();
}

#endif
