/* SPDX-License-Identifier: Apache-2.0 */
/* What the wgmma products over images share (many_wgmma.cu, many_halved.cu): the ring, and the end of a tile. */
#ifndef KERNELS_CUDA_MANY_WGMMA_CUH
#define KERNELS_CUDA_MANY_WGMMA_CUH

#include "kernels/cuda/act.cuh"
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
    int            up;                    /* not 0: gates are rows [0, up), what they open for is behind them */
    cuda_act       act;
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

/* A row of a tile of one output. ENDS: there may be biases, or the matrix ends within the tile; tests of either cost the usual
 * tiles 4% of a prompt's time. */
template <int N, bool ENDS>
__device__ static inline void wgmma_store_row(const wgmma_args &a, const float *sum, float *out, float scale, int w0) {
    const int    first = (int)threadIdx.x % 4 * 2;
    const float *bias = ENDS ? wgmma_bias(a.end, w0) : NULL;
    const bool   add = a.end.add;
#pragma unroll
    for (int i = 0; i < N / 8; i++) {
        if (ENDS && w0 + i * 8 >= a.rows) break;
        float2 v = make_float2(sum[4 * i] * scale, sum[4 * i + 1] * scale);
        if (ENDS && bias) {
            v.x += bias[i * 8 + first];
            v.y += bias[i * 8 + first + 1];
        }
        if (add) {
            const float2 old = *reinterpret_cast<const float2 *>(out + i * 8);
            v = make_float2(old.x + v.x, old.y + v.y);
        }
        *reinterpret_cast<float2 *>(out + i * 8) = v;
    }
}

/* Tiles of one output, the usual ones, go a shorter way; whole ones without a bias the shortest. */
template <int N> __device__ static inline void wgmma_store(const wgmma_args &a, const float *sum, int x0, int w0) {
    const int  lane = (int)threadIdx.x % 32, row0 = x0 + (int)threadIdx.x % 128 / 32 * 16 + lane / 4;
    const int  p = a.end.part(w0);
    const bool pairs = a.end.part(min(w0 + N, a.rows) - 1) == p &&
                       ((a.end.stride[0] | a.end.stride[1] | a.end.stride[2]) & 1) == 0 &&
                       (reinterpret_cast<uintptr_t>(a.end.at(0, w0)) & 7) == 0;
    const bool whole = pairs && w0 + N <= a.rows && !a.end.bias[0] && !a.end.bias[1] && !a.end.bias[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = row0 + half * 8;
        if (row >= a.n) continue;
        if (whole || (pairs && a.rows % 8 == 0)) {
            const float scale = a.scale[row] * (p == 0 ? a.end.w_scale[0] : p == 1 ? a.end.w_scale[1] : a.end.w_scale[2]);
            float      *out = a.end.at(row, w0) + lane % 4 * 2;
            if (whole)
                wgmma_store_row<N, false>(a, sum + half * 2, out, scale, w0);
            else
                wgmma_store_row<N, true>(a, sum + half * 2, out, scale, w0);
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

#endif

/* For few tiles, two blocks each (many_halved.cu). */
bool product_halved_can(const cuda_device *d, const wgmma_args &k);
int  product_halved(const wgmma_args &k, bool bf16, bool early, cuda_stream s, err *e);

#endif
