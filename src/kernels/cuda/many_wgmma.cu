/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The product for many activation rows on Hopper: images in, wgmma.m64nNk16, 128 activation rows x N weight rows per
 * block.
 *
 * One thread copies blocks of 64 columns (each a contiguous piece of an image) into a ring in shared memory; two
 * warpgroups multiply, 64 activation rows each. Two blocks of a cluster take neighbouring activation tiles of the same
 * weight rows: each fetches half of the weights and sends it to both, because reading both tiles from the L2 cache for
 * every block would exceed what it delivers. A block stays for many tiles; the ring runs on across tiles.
 *
 * At the end of a slice its sum moves to a second accumulator, so N is at most 192: 96 + 96 of the registers.
 */
#include "kernels/cuda/many_wgmma.cuh"

#ifdef CUDA_WGMMA

/* Weight rows of a tile's half `part`: of a gated one the gates, and what they open for. */
template <int N, bool GATED> struct wgmma_half {
    int first, n;

    __device__ inline wgmma_half(const wgmma_args &a, int tile, int part) {
        first = GATED ? tile * (N / 2) + part * a.up : tile * N + part * (N / 2);
        n = rows_there(first, N / 2, GATED ? a.up + part * a.up : a.rows_pad);
    }
};

/* The copying thread: every block of every tile of this block. Two blocks bring a half of the weights each, for both. */
template <int N, bool GATED>
__device__ static inline void wgmma_produce(const wgmma_args &a, wgmma_place<N> at, uint32_t rank) {
    for (int t = (int)blockIdx.x / a.cluster; t < a.tiles; t += (int)gridDim.x / a.cluster) {
        const int                  x0 = (t % a.pairs * a.cluster + (int)rank) * TILE_X;
        const wgmma_half<N, GATED> half[2] = { { a, t / a.pairs, 0 }, { a, t / a.pairs, 1 } };
        const int                  x_rows = rows_there(x0, TILE_X, a.n_pad), w_rows = half[0].n + half[1].n;
        for (int k = 0; k < a.blocks; k++) {
            barrier_wait(at.empty(), at.parity ^ 1);
            barrier_expect(at.full(), (uint32_t)(x_rows + w_rows) * CUDA_ROW_BYTES);
            if (x_rows)
                bulk_copy(at.data(), a.x + ((int64_t)k * a.n_pad + x0) * CUDA_ROW_BYTES, x_rows * CUDA_ROW_BYTES,
                          at.full());
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const uint8_t *from = a.w + ((int64_t)k * a.pitch + half[i].first) * CUDA_ROW_BYTES;
                const uint32_t to = at.data() + wgmma_ring<N>::X_BYTES + i * (N / 2) * CUDA_ROW_BYTES;
                if (half[i].n == 0 || (a.cluster > 1 && i != (int)rank)) continue;
                if (a.cluster > 1)
                    bulk_copy_all(to, from, half[i].n * CUDA_ROW_BYTES, at.full(), 3);
                else
                    bulk_copy(to, from, half[i].n * CUDA_ROW_BYTES, at.full());
            }
            at.advance();
        }
    }
}

/* The place may be filled again: said to every block that copies into it. */
template <int N> __device__ static inline void wgmma_release(const wgmma_args &a, const wgmma_place<N> &at) {
    if (threadIdx.x % 128 < (unsigned)a.cluster) barrier_arrive_at(at.empty(), threadIdx.x % 128);
}

/* The end of a gated tile: columns of the lower half open for those of the upper one. */
template <int N> __device__ static inline void wgmma_store_gated(const wgmma_args &a, const float *sum, int x0, int w0) {
    const int lane = (int)threadIdx.x % 32, row0 = x0 + (int)threadIdx.x % 128 / 32 * 16 + lane / 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = row0 + half * 8;
        if (row >= a.n) continue;
        const float scale = a.scale[row] * a.end.w_scale[0], up_scale = a.scale[row] * a.end.w_scale[1];
        float      *out = a.end.out[0] + row * a.end.stride[0] + w0 + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < N / 16; i++) {
            const float *gate = sum + 4 * i + half * 2, *up = gate + N / 4;
            if (w0 + i * 8 < a.up)
                *reinterpret_cast<float2 *>(out + i * 8) = make_float2(act_of(a.act, gate[0] * scale) * (up[0] * up_scale),
                                                                       act_of(a.act, gate[1] * scale) * (up[1] * up_scale));
        }
    }
}

/* A multiplying warpgroup: rows 64 * group.. of the block's activation tile. */
template <int N, bool BF16, bool GATED>
__device__ static inline void wgmma_consume(const wgmma_args &a, wgmma_place<N> at, uint32_t rank, int group) {
    for (int t = (int)blockIdx.x / a.cluster; t < a.tiles; t += (int)gridDim.x / a.cluster) {
        float sum[N / 2];
#pragma unroll
        for (int i = 0; i < N / 2; i++) sum[i] = 0;
        for (int k0 = 0; k0 < a.blocks; k0 += a.slice_blocks) {
            const int      k1 = min(k0 + a.slice_blocks, a.blocks);
            float          acc[N / 2];
            wgmma_place<N> before = at;
            for (int k = k0; k < k1; k++) {
                barrier_wait(at.full(), at.parity);
                const uint64_t dx = wgmma_at(at.data() + group * 64 * CUDA_ROW_BYTES),
                               dw = wgmma_at(at.data() + wgmma_ring<N>::X_BYTES);
                wgmma_fence();
#pragma unroll
                for (int j = 0; j < 4; j++) wgmma<N, BF16>::run(acc, dx + 2 * j, dw + 2 * j, k > k0 || j > 0);
                wgmma_commit();
                wgmma_wait<1>();
                if (k > k0) wgmma_release(a, before);
                before = at;
                at.advance();
            }
            wgmma_wait<0>();
            wgmma_release(a, before);
#pragma unroll
            for (int i = 0; i < N / 2; i++) sum[i] += acc[i];
        }
        const int x0 = (t % a.pairs * a.cluster + (int)rank) * TILE_X + group * 64;
        if constexpr (GATED)
            wgmma_store_gated<N>(a, sum, x0, t / a.pairs * (N / 2));
        else
            wgmma_store<N>(a, sum, x0, t / a.pairs * N);
    }
}

#endif

template <int N, bool BF16, bool GATED>
static __global__ __launch_bounds__(THREADS, 1) void many_wgmma_kernel(const wgmma_args a) {
#ifdef CUDA_WGMMA
    extern __shared__ __align__(1024) uint8_t smem[];
    __shared__ __align__(8) uint64_t bars[2 * wgmma_ring<N>::STAGES];
    const uint32_t                   rank = a.cluster > 1 ? cluster_rank() : 0;
    const wgmma_place<N>             start = { (smem_at(smem) + 1023) & ~1023u, smem_at(bars), 0, 0 };
    if (threadIdx.x == 0) {
        for (int i = 0; i < wgmma_ring<N>::STAGES; i++) {
            barrier_init(start.bars + i * 8, 1);
            barrier_init(start.bars + (wgmma_ring<N>::STAGES + i) * 8, 2 * a.cluster);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    cluster_sync(a.cluster == 1);
    launch_begin();
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) wgmma_produce<N, GATED>(a, start, rank);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        wgmma_consume<N, BF16, GATED>(a, start, rank, (int)threadIdx.x / 128 - 1);
    }
    cluster_sync(a.cluster == 1); /* a block's memory is written by its neighbour until the end */
#else
    (void)a;
#endif
}

template <int N, bool GATED>
static int wgmma_start(const cuda_device *d, const product_image *w, wgmma_args k, bool early, cuda_stream s,
                       err *e) {
    k.cluster = k.n > TILE_X ? 2 : 1;
    k.pairs = (k.n + TILE_X * k.cluster - 1) / (TILE_X * k.cluster);
    k.tiles = k.pairs * ((k.rows + N - 1) / N);
    const int        most = k.cluster == 1 ? d->sms : d->clusters[1];
    const int        teams = most < k.tiles ? most : k.tiles;
    const cuda_shape shape = { (unsigned)(teams * k.cluster), THREADS, (unsigned)k.cluster,
                               wgmma_ring<N>::STAGES * wgmma_ring<N>::BYTES + 1024, early };
    return w->bf16 ? cuda_launch(many_wgmma_kernel<N, true, GATED>, shape, s, e, k)
                   : cuda_launch(many_wgmma_kernel<N, false, GATED>, shape, s, e, k);
}

/* Rounds over the chip times the work of a tile, a tile's fixed part counted as 32 more columns. */
static int64_t wgmma_cost(const cuda_device *d, int64_t rows, int64_t n, int width) {
    const int64_t tiles = (rows + width - 1) / width * ((n + TILE_X - 1) / TILE_X);
    return (tiles + d->sms - 1) / d->sms * (width + 32);
}

int product_many_wgmma(const cuda_device *d, const cuda_product_args *a, const product_image *w, cuda_stream s,
                       err *e) {
    if (d->code != 90) return err_set(e, ERR_UNSUPPORTED, "CUDA: %s has no wgmma", d->name);
    const product_shape &p = w->p;
    const wgmma_args     k = { (const uint8_t *)w->image,
                               (const uint8_t *)a->x.data,
                               a->x.scale,
                               (int)p.rows,
                               (int)p.rows_pad,
                               (int)p.pitch,
                               (int)a->x.n,
                               (int)a->x.n_pad,
                               (int)((p.cols + 63) / 64),
                               (int)(p.slice_cols / 64),
                               a->glu ? (int)a->more[0].first : 0,
                               a->act,
                               0,
                               0,
                               0,
                               product_end_of(a) };
    const int64_t        c64 = wgmma_cost(d, p.rows, a->x.n, 64), c128 = wgmma_cost(d, p.rows, a->x.n, 128),
                  c192 = wgmma_cost(d, p.rows, a->x.n, 192);
    if (k.up)
        return c192 <= c128 ? wgmma_start<192, true>(d, w, k, a->early, s, e)
                            : wgmma_start<128, true>(d, w, k, a->early, s, e);
    if (product_halved_can(d, k)) return product_halved(k, w->bf16, a->early, s, e);
    if (c192 <= c128 && c192 <= c64) return wgmma_start<192, false>(d, w, k, a->early, s, e);
    return c128 <= c64 ? wgmma_start<128, false>(d, w, k, a->early, s, e)
                       : wgmma_start<64, false>(d, w, k, a->early, s, e);
}
