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
#include "kernels/cuda/internal.cuh"
#include "kernels/cuda/wgmma.cuh"

#define TILE_X 128
#define THREADS 384
#define RING_BYTES (200 * 1024)

struct wgmma_args {
    const uint8_t *w, *x;
    const float   *scale;
    int            rows, rows_pad, pitch, n, n_pad;
    int            blocks, slice_blocks;  /* of 64 columns */
    int            cluster, pairs, tiles; /* activation tiles of a cluster's blocks; all tiles */
    product_end    end;
};

template <int N> struct wgmma_ring {
    enum { X_BYTES = TILE_X * CUDA_ROW_BYTES, BYTES = X_BYTES + N * CUDA_ROW_BYTES, STAGES = RING_BYTES / BYTES };
};

#ifdef CUDA_WGMMA

/* A place in the ring and the parity of its round. */
template <int N> struct wgmma_place {
    uint32_t base, bars; /* bars: full[STAGES], empty[STAGES] */
    int      slot;
    uint32_t parity;

    __device__ inline uint32_t data() const { return base + slot * wgmma_ring<N>::BYTES; }
    __device__ inline uint32_t full() const { return bars + slot * 8; }
    __device__ inline uint32_t empty() const { return bars + (wgmma_ring<N>::STAGES + slot) * 8; }
    __device__ inline void     advance() {
            if (++slot == wgmma_ring<N>::STAGES) slot = 0, parity ^= 1;
    }
};

__device__ static inline int rows_there(int first, int count, int end) { return max(0, min(count, end - first)); }

/* The copying thread: every block of every tile of this block. */
template <int N> __device__ static inline void wgmma_produce(const wgmma_args &a, wgmma_place<N> at, uint32_t rank) {
    const int part = N / a.cluster;
    for (int t = (int)blockIdx.x / a.cluster; t < a.tiles; t += (int)gridDim.x / a.cluster) {
        const int x0 = (t % a.pairs * a.cluster + (int)rank) * TILE_X, w0 = t / a.pairs * N,
                  mine = w0 + (int)rank * part;
        const int x_rows = rows_there(x0, TILE_X, a.n_pad), w_rows = rows_there(w0, N, a.rows_pad),
                  part_rows = rows_there(mine, part, a.rows_pad);
        for (int k = 0; k < a.blocks; k++) {
            barrier_wait(at.empty(), at.parity ^ 1);
            barrier_expect(at.full(), (uint32_t)(x_rows + w_rows) * CUDA_ROW_BYTES);
            if (x_rows)
                bulk_copy(at.data(), a.x + ((int64_t)k * a.n_pad + x0) * CUDA_ROW_BYTES, x_rows * CUDA_ROW_BYTES,
                          at.full());
            if (part_rows) {
                const uint8_t *from = a.w + ((int64_t)k * a.pitch + mine) * CUDA_ROW_BYTES;
                const uint32_t to = at.data() + wgmma_ring<N>::X_BYTES + rank * part * CUDA_ROW_BYTES;
                if (a.cluster > 1)
                    bulk_copy_all(to, from, part_rows * CUDA_ROW_BYTES, at.full(), (uint16_t)((1 << a.cluster) - 1));
                else
                    bulk_copy(to, from, part_rows * CUDA_ROW_BYTES, at.full());
            }
            at.advance();
        }
    }
}

/* The place may be filled again: said to every block that copies into it. */
template <int N> __device__ static inline void wgmma_release(const wgmma_args &a, const wgmma_place<N> &at) {
    if (threadIdx.x % 128 < (unsigned)a.cluster) barrier_arrive_at(at.empty(), threadIdx.x % 128);
}

/* One pair of a row's values, from weight row `col` on. */
__device__ static inline void wgmma_put(const wgmma_args &a, const product_end &end, float *out, float v0, float v1,
                                        float scale, int col) {
    if (col + 1 < a.rows && (reinterpret_cast<uintptr_t>(out) & 7) == 0) {
        const float2 old = end.add ? *reinterpret_cast<const float2 *>(out) : make_float2(0, 0);
        *reinterpret_cast<float2 *>(out) =
            make_float2(end.value(v0, scale, col, &old.x), end.value(v1, scale, col + 1, &old.y));
    } else {
        out[0] = end.value(v0, scale, col, out);
        if (col + 1 < a.rows) out[1] = end.value(v1, scale, col + 1, out + 1);
    }
}

/* The biases from weight row `row` on; NULL: none. */
__device__ static inline const float *wgmma_bias(const product_end &end, int row) {
    const int    p = end.part(row);
    const float *b = p == 0 ? end.bias[0] : p == 1 ? end.bias[1] : end.bias[2];
    return b ? b + row - (p == 0 ? 0 : p == 1 ? end.first[1] : end.first[2]) : NULL;
}

/* Tiles of one output, the usual ones, go a shorter way. */
template <int N> __device__ static inline void wgmma_store(const wgmma_args &a, const float *sum, int x0, int w0) {
    const int  lane = (int)threadIdx.x % 32, row0 = x0 + (int)threadIdx.x % 128 / 32 * 16 + lane / 4;
    const bool plain = a.rows % 8 == 0 && a.end.part(min(w0 + N, a.rows) - 1) == a.end.part(w0) &&
                       ((a.end.stride[0] | a.end.stride[1] | a.end.stride[2]) & 1) == 0 &&
                       (reinterpret_cast<uintptr_t>(a.end.at(0, w0)) & 7) == 0;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = row0 + half * 8;
        if (row >= a.n) continue;
        if (plain) {
            const float scale = a.scale[row] * a.end.w_scale;
            float      *out = a.end.at(row, w0) + lane % 4 * 2;
            const bool  add = a.end.add;
            const float *bias = wgmma_bias(a.end, w0);
#pragma unroll
            for (int i = 0; i < N / 8; i++) {
                if (w0 + i * 8 >= a.rows) break;
                float2 v = make_float2(sum[4 * i + half * 2] * scale, sum[4 * i + half * 2 + 1] * scale);
                if (bias) {
                    v.x += bias[i * 8 + lane % 4 * 2];
                    v.y += bias[i * 8 + lane % 4 * 2 + 1];
                }
                if (add) {
                    const float2 old = *reinterpret_cast<const float2 *>(out + i * 8);
                    v = make_float2(old.x + v.x, old.y + v.y);
                }
                *reinterpret_cast<float2 *>(out + i * 8) = v;
            }
            continue;
        }
        const float scale = a.scale[row];
#pragma unroll
        for (int i = 0; i < N / 8; i++) {
            const int col = w0 + i * 8 + lane % 4 * 2;
            if (col < a.rows)
                wgmma_put(a, a.end, a.end.at(row, col), sum[4 * i + half * 2], sum[4 * i + half * 2 + 1], scale, col);
        }
    }
}

/* A multiplying warpgroup: rows 64 * group.. of the block's activation tile. */
template <int N, bool BF16>
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
        wgmma_store<N>(a, sum, (t % a.pairs * a.cluster + (int)rank) * TILE_X + group * 64, t / a.pairs * N);
    }
}

#endif

template <int N, bool BF16> static __global__ __launch_bounds__(THREADS, 1) void many_wgmma_kernel(const wgmma_args a) {
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
    launch_wait();
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) wgmma_produce<N>(a, start, rank);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        wgmma_consume<N, BF16>(a, start, rank, (int)threadIdx.x / 128 - 1);
    }
    cluster_sync(a.cluster == 1); /* a block's memory is written by its neighbour until the end */
#else
    (void)a;
#endif
}

template <int N>
static int wgmma_start(const cuda_device *d, const product_image *w, wgmma_args k, cuda_stream s, err *e) {
    k.cluster = k.n > TILE_X ? 2 : 1;
    k.pairs = (k.n + TILE_X * k.cluster - 1) / (TILE_X * k.cluster);
    k.tiles = k.pairs * ((k.rows + N - 1) / N);
    const int        most = k.cluster == 1 ? d->sms : d->clusters[1];
    const int        teams = most < k.tiles ? most : k.tiles;
    const cuda_shape shape = { (unsigned)(teams * k.cluster), THREADS, (unsigned)k.cluster,
                               wgmma_ring<N>::STAGES * wgmma_ring<N>::BYTES + 1024, false };
    return w->bf16 ? cuda_launch(many_wgmma_kernel<N, true>, shape, s, e, k)
                   : cuda_launch(many_wgmma_kernel<N, false>, shape, s, e, k);
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
                               0,
                               0,
                               0,
                               product_end_of(a) };
    const int64_t        c64 = wgmma_cost(d, p.rows, a->x.n, 64), c128 = wgmma_cost(d, p.rows, a->x.n, 128),
                  c192 = wgmma_cost(d, p.rows, a->x.n, 192);
    if (c192 <= c128 && c192 <= c64) return wgmma_start<192>(d, w, k, s, e);
    return c128 <= c64 ? wgmma_start<128>(d, w, k, s, e) : wgmma_start<64>(d, w, k, s, e);
}
