/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/probe.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/layout.h"
#include "kernels/cuda/wgmma.cuh"

#define READ_THREADS 512
#define READ_AHEAD 8

static __global__ __launch_bounds__(READ_THREADS) void read_kernel(const uint4 *from, size_t n, uint32_t *sink) {
    uint32_t     sum = 0;
    const size_t step = (size_t)gridDim.x * READ_THREADS;
    size_t       i = (size_t)blockIdx.x * READ_THREADS + threadIdx.x;
    for (; i + (READ_AHEAD - 1) * step < n; i += READ_AHEAD * step) {
        uint4 v[READ_AHEAD];
#pragma unroll
        for (int j = 0; j < READ_AHEAD; j++) v[j] = __ldcs(from + i + j * step);
#pragma unroll
        for (int j = 0; j < READ_AHEAD; j++) sum ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
    }
    for (; i < n; i += step) sum ^= from[i].x ^ from[i].y ^ from[i].z ^ from[i].w;
    sum = __reduce_xor_sync(0xffffffffu, sum);
    if (threadIdx.x % 32 == 0) sink[(blockIdx.x * (READ_THREADS / 32) + threadIdx.x / 32) % 16384] = sum;
}

int cuda_probe_read(const cuda_device *d, const void *from, size_t bytes, void *sink, cuda_stream s, err *e) {
    const cuda_shape shape = { (unsigned)d->sms * 4, READ_THREADS, 1, 0, false };
    return cuda_launch(read_kernel, shape, s, e, (const uint4 *)from, bytes / 16, (uint32_t *)sink);
}

struct chain_args {
    const uint8_t *a, *b;
    float         *out;
    int            m_pad, n_pad, cols, swap;
};

/* The 16-bit pair at (row, col) of an image. */
__device__ static inline uint32_t pair_at(const uint8_t *image, int row, int col, int rows_pad) {
    return *reinterpret_cast<const uint32_t *>(image + cuda_image_at(row, col, rows_pad));
}

/* One warp per 16 x 8 outputs: rows of the first operand from a, or from b where the sides are exchanged. */
template <bool BF16> static __global__ void chain_mma_kernel(const chain_args c) {
    const uint8_t *first = c.swap ? c.b : c.a, *second = c.swap ? c.a : c.b;
    const int      first_pad = c.swap ? c.n_pad : c.m_pad, second_pad = c.swap ? c.m_pad : c.n_pad;
    const int      tiles = second_pad / 8, lane = (int)threadIdx.x, g = lane / 4, t = lane % 4;
    const int      r0 = (int)blockIdx.x / tiles * 16, c0 = (int)blockIdx.x % tiles * 8;
    float          acc[4] = {};
    for (int k = 0; k < c.cols; k += 16) {
        uint32_t fa[4];
        for (int p = 0; p < 4; p++) fa[p] = pair_at(first, r0 + g + p % 2 * 8, k + 2 * t + p / 2 * 8, first_pad);
        mma16<BF16>(acc, fa, pair_at(second, c0 + g, k + 2 * t, second_pad),
                    pair_at(second, c0 + g, k + 2 * t + 8, second_pad));
    }
    for (int i = 0; i < 4; i++) {
        const int row = r0 + g + i / 2 * 8, col = c0 + 2 * t + i % 2;
        c.out[c.swap ? col * c.n_pad + row : row * c.n_pad + col] = acc[i];
    }
}

/* One warpgroup per 64 x 8 outputs. */
template <bool BF16> static __global__ void chain_wgmma_kernel(const chain_args c) {
#ifdef CUDA_WGMMA
    __shared__ __align__(1024) uint8_t sa[64 * CUDA_ROW_BYTES], sb[8 * CUDA_ROW_BYTES];
    const int tiles = c.n_pad / 8, r0 = (int)blockIdx.x / tiles * 64, c0 = (int)blockIdx.x % tiles * 8;
    const int tid = (int)threadIdx.x;
    float     acc[4] = {};
    for (int k = 0; k < c.cols; k += CUDA_BLOCK_COLS) {
        const int64_t block = k / CUDA_BLOCK_COLS;
        for (int i = tid; i < 64 * 8; i += 128)
            reinterpret_cast<uint4 *>(sa)[i] =
                reinterpret_cast<const uint4 *>(c.a + (block * c.m_pad + r0) * CUDA_ROW_BYTES)[i];
        if (tid < 8 * 8)
            reinterpret_cast<uint4 *>(sb)[tid] =
                reinterpret_cast<const uint4 *>(c.b + (block * c.n_pad + c0) * CUDA_ROW_BYTES)[tid];
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        wgmma_fence();
        for (int j = 0; j < 4; j++)
            wgmma<8, BF16>::run(acc, wgmma_at(smem_at(sa)) + 2 * j, wgmma_at(smem_at(sb)) + 2 * j, k > 0 || j > 0);
        wgmma_commit();
        wgmma_wait<0>();
        __syncthreads();
    }
    for (int i = 0; i < 4; i++) {
        const int row = r0 + tid / 32 * 16 + tid % 32 / 4 + i / 2 * 8, col = c0 + tid % 4 * 2 + i % 2;
        c.out[row * c.n_pad + col] = acc[i];
    }
#else
    (void)c;
#endif
}

int cuda_probe_chain(const cuda_device *d, float *out, const void *a, const void *b, int m_pad, int n_pad, int cols,
                     bool bf16, bool wgmma, bool swap, cuda_stream s, err *e) {
    const chain_args c = { (const uint8_t *)a, (const uint8_t *)b, out, m_pad, n_pad, cols, swap };
    if (wgmma) {
        if (d->code != 90 || swap) return err_set(e, ERR_UNSUPPORTED, "CUDA: no such chain by wgmma on %s", d->name);
        const cuda_shape shape = { (unsigned)(m_pad / 64 * (n_pad / 8)), 128, 1, 0, false };
        return bf16 ? cuda_launch(chain_wgmma_kernel<true>, shape, s, e, c)
                    : cuda_launch(chain_wgmma_kernel<false>, shape, s, e, c);
    }
    const cuda_shape shape = { (unsigned)(m_pad * n_pad / 128), 32, 1, 0, false };
    return bf16 ? cuda_launch(chain_mma_kernel<true>, shape, s, e, c)
                : cuda_launch(chain_mma_kernel<false>, shape, s, e, c);
}
