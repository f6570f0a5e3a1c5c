/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The product for many activation rows where wgmma does not exist (every chip but 9.0): images in, mma.m16n8k16, one
 * block per 64 activation rows x 128 weight rows. Four warps of 32 x 64 values each; blocks of 64 columns flow through
 * three places in shared memory. At the end of a slice its sum moves to a second accumulator.
 */
#include "kernels/cuda/internal.cuh"
#include "kernels/cuda/mma.cuh"

#define THREADS 128
#define TILE_X 64
#define TILE_W 128
#define STAGES 3
#define STAGE_BYTES ((TILE_X + TILE_W) * CUDA_ROW_BYTES)

struct many_args {
    const uint8_t *w, *x;
    const float   *scale;
    int            rows, rows_pad, pitch, n, n_pad;
    int            blocks, slice_blocks; /* of 64 columns */
    product_end    end;
};

/* `count` rows of 128 bytes, of which `there` exist. */
__device__ static inline void many_load(uint32_t to, const uint8_t *from, int count, int there) {
    for (int i = (int)threadIdx.x; i < count * 8; i += THREADS) {
        if (i / 8 < there) copy16(to + i * 16, from + i * 16);
    }
}

__device__ static inline void many_stage(const many_args &a, uint32_t at, int x0, int w0, int block) {
    if (block < a.blocks) {
        many_load(at, a.x + ((int64_t)block * a.n_pad + x0) * CUDA_ROW_BYTES, TILE_X, a.n_pad - x0);
        many_load(at + TILE_X * CUDA_ROW_BYTES, a.w + ((int64_t)block * a.pitch + w0) * CUDA_ROW_BYTES, TILE_W,
                  a.rows_pad - w0);
    }
    copy_commit();
}

/* One block of 64 columns: 32 x 64 values of this warp. */
template <bool BF16> __device__ static inline void many_multiply(float acc[2][8][4], uint32_t x, uint32_t w, int lane) {
#pragma unroll
    for (int k = 0; k < 4; k++) {
        uint32_t fa[2][4];
#pragma unroll
        for (int m = 0; m < 2; m++)
            load_matrices(fa[m], x + (m * 16 + lane % 16) * CUDA_ROW_BYTES + ((2 * k + lane / 16) ^ lane % 8) * 16);
#pragma unroll
        for (int n = 0; n < 8; n += 2) {
            uint32_t fb[4]; /* two groups of 8 weight rows, two halves of 16 columns each */
            load_matrices(fb, w + (n * 8 + lane / 16 * 8 + lane % 8) * CUDA_ROW_BYTES +
                                  ((2 * k + lane / 8 % 2) ^ lane % 8) * 16);
#pragma unroll
            for (int m = 0; m < 2; m++) {
                mma16<BF16>(acc[m][n], fa[m], fb[0], fb[1]);
                mma16<BF16>(acc[m][n + 1], fa[m], fb[2], fb[3]);
            }
        }
    }
}

__device__ static inline void many_store(const many_args &a, const float sum[2][8][4], int x0, int w0, int lane) {
#pragma unroll
    for (int m = 0; m < 2; m++) {
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const int row = x0 + m * 16 + lane / 4 + i / 2 % 2 * 8, col = w0 + i / 4 * 8 + lane % 4 * 2 + i % 2;
            float    *out = a.end.at(row, col);
            if (row < a.n && col < a.rows) *out = a.end.value(sum[m][i / 4][i % 4], a.scale[row], col, out);
        }
    }
}

template <bool BF16> static __global__ __launch_bounds__(THREADS) void many_mma_kernel(const many_args a) {
    extern __shared__ __align__(128) uint8_t smem[];
    const int      lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, tiles_x = (a.n + TILE_X - 1) / TILE_X;
    const int      x0 = (int)blockIdx.x % tiles_x * TILE_X, w0 = (int)blockIdx.x / tiles_x * TILE_W;
    const uint32_t base = smem_at(smem), mine_x = warp / 2 * 32 * CUDA_ROW_BYTES,
                   mine_w = (TILE_X + warp % 2 * 64) * CUDA_ROW_BYTES;
    float sum[2][8][4] = {};
    launch_wait();
    for (int i = 0; i < STAGES - 1; i++) many_stage(a, base + i * STAGE_BYTES, x0, w0, i);
    for (int k0 = 0; k0 < a.blocks; k0 += a.slice_blocks) {
        float acc[2][8][4] = {};
        for (int k = k0; k < min(k0 + a.slice_blocks, a.blocks); k++) {
            copy_wait<STAGES - 2>();
            __syncthreads();
            many_stage(a, base + (k + STAGES - 1) % STAGES * STAGE_BYTES, x0, w0, k + STAGES - 1);
            const uint32_t at = base + k % STAGES * STAGE_BYTES;
            many_multiply<BF16>(acc, at + mine_x, at + mine_w, lane);
        }
#pragma unroll
        for (int i = 0; i < 64; i++) sum[i / 32][i / 4 % 8][i % 4] += acc[i / 32][i / 4 % 8][i % 4];
    }
    many_store(a, sum, x0 + warp / 2 * 32, w0 + warp % 2 * 64, lane);
}

int product_many_mma(const cuda_device *, const cuda_product_args *a, const product_image *w, cuda_stream s, err *e) {
    const product_shape &p = w->p;
    const many_args      k = { (const uint8_t *)w->image,
                               (const uint8_t *)a->x.data,
                               a->x.scale,
                               (int)p.rows,
                               (int)p.rows_pad,
                               (int)p.pitch,
                               (int)a->x.n,
                               (int)a->x.n_pad,
                               (int)((p.cols + 63) / 64),
                               (int)(p.slice_cols / 64),
                               product_end_of(a) };
    const int64_t        tiles = (p.rows + TILE_W - 1) / TILE_W * ((a->x.n + TILE_X - 1) / TILE_X);
    const cuda_shape     shape = { (unsigned)tiles, THREADS, 1, STAGES * STAGE_BYTES, false };
    return w->bf16 ? cuda_launch(many_mma_kernel<true>, shape, s, e, k)
                   : cuda_launch(many_mma_kernel<false>, shape, s, e, k);
}
