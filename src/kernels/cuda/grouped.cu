/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products where rows have matrices of their own: experts and heads. The order of operations is that of product.h.
 *
 * A block takes 16 weight rows of one matrix and up to 8 activation rows that use it; its warps are the slices of K.
 * Fragments come straight from global memory. F32 weights go through plain sums (plain.cu) with a matrix per row.
 */
#include "kernels/cuda/internal.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/plain.cuh"
#include "kernels/cuda/unpack.cuh"

struct grouped_args {
    cuda_grouped a;
    int          n_kt, slice_kt, rows_pad, tiles, slices;
};

/* 16 rows of an image block in global memory. */
template <int IS_BF16> struct grouped_image : unpack_image<IS_BF16> {
    __device__ static inline void fragments(uint32_t a[4][4], const uint8_t *tile, const uint8_t *, int, int lane) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
#pragma unroll
            for (int p = 0; p < 4; p++) {
                const int row = lane / 4 + p % 2 * 8, chunk = 2 * j + p / 2;
                a[j][p] = *reinterpret_cast<const uint32_t *>(tile + row * CUDA_ROW_BYTES + (chunk ^ (row & 7)) * 16 +
                                                              lane % 4 * 4);
            }
        }
    }
};

/* The rows of one block: their matrix, how many, and the number of each. */
struct grouped_item {
    int mat, n, first;
};

__device__ static inline bool grouped_find(const cuda_grouped &a, int number, grouped_item *it) {
    if (a.chosen) {
        if (number >= a.items[0]) return false;
        *it = { a.items[1 + number * 3], a.items[3 + number * 3], a.items[2 + number * 3] };
        return true;
    }
    const int per = (int)(a.n / a.n_mats), first = number / a.n_mats * CUDA_ITEM_ROWS;
    *it = { number % a.n_mats, min(CUDA_ITEM_ROWS, per - first), first };
    return it->n > 0;
}

__device__ static inline int64_t grouped_row(const cuda_grouped &a, const grouped_item &it, int i) {
    return a.chosen ? a.order[it.first + i] : (int64_t)(it.first + i) * a.n_mats + it.mat;
}

template <class T> static __global__ void grouped_kernel(const grouped_args g) {
    T::begin();
    launch_begin();
    __shared__ float part[CUDA_SLICES_MAX][16][CUDA_ITEM_ROWS];
    __shared__ __align__(16) uint8_t scratch[CUDA_SLICES_MAX][T::SCRATCH ? T::SCRATCH : 16];
    const cuda_grouped              &a = g.a;
    constexpr int                    BLOCKS = T::COLS / CUDA_BLOCK_COLS;
    const int    lane = (int)threadIdx.x % 32, slice = (int)threadIdx.x / 32, tile = (int)blockIdx.x % g.tiles;
    grouped_item it;
    if (!grouped_find(a, (int)blockIdx.x / g.tiles, &it)) return;
    if (T::SHARED) __syncthreads();
    const uint8_t *w = static_cast<const uint8_t *>(a.mats[it.mat]), *image = static_cast<const uint8_t *>(a.x.data);
    const int64_t  row = grouped_row(a, it, min(lane / 4, it.n - 1)) / a.in_div;
    const int      last = min((slice + 1) * g.slice_kt, g.n_kt);
    float          acc[4] = {};
    for (int kt = slice * g.slice_kt; kt < last; kt++) {
        const uint8_t *at = T::at(w, tile, kt, g.n_kt, g.rows_pad);
        T::prepare(at, scratch[slice], lane);
        __syncwarp();
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) {
            uint32_t fa[4][4];
            T::fragments(fa, at, scratch[slice], b, lane);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int64_t col = (int64_t)kt * T::COLS + b * CUDA_BLOCK_COLS + j * 16 + lane % 4 * 2;
                mma16<T::BF16>(acc, fa[j],
                               *reinterpret_cast<const uint32_t *>(image + cuda_image_at(row, col, a.x.n_pad)),
                               *reinterpret_cast<const uint32_t *>(image + cuda_image_at(row, col + 8, a.x.n_pad)));
            }
        }
        __syncwarp();
    }
#pragma unroll
    for (int i = 0; i < 4; i++) part[slice][lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2] = acc[i];
    __syncthreads();
    for (int i = (int)threadIdx.x; i < 16 * it.n; i += (int)blockDim.x) {
        const int     r = i % 16, k = i / 16, w_row = tile * 16 + r;
        const int64_t out_row = grouped_row(a, it, k);
        if (w_row >= a.rows) continue;
        float sum = 0;
        for (int s = 0; s < g.slices; s++) sum += part[s][r][k];
        sum = sum * a.x.scale[out_row / a.in_div] * a.w_scale;
        if (a.bias) sum += a.bias[(int64_t)it.mat * a.rows + w_row];
        a.out[out_row * a.rows + w_row] = sum;
    }
}

static __global__ __launch_bounds__(PLAIN_WARPS * 32) void grouped_plain_kernel(const cuda_grouped a) {
    launch_begin();
    const int     lane = (int)threadIdx.x % 32;
    const int64_t i = (int64_t)blockIdx.x * PLAIN_WARPS + threadIdx.x / 32, row = i / a.rows, w_row = i % a.rows;
    if (row >= a.n) return;
    const int    mat = a.chosen ? reinterpret_cast<const int32_t *>(a.chosen)[row * 2] : (int)(row % a.n_mats);
    const float *w = static_cast<const float *>(a.mats[mat]) + w_row * a.cols, *x = a.xf + row / a.in_div * a.cols;
    float        sum[1] = {};
    plain_dots<1>(sum, w, &x, a.cols, lane);
    if (a.bias) sum[0] += a.bias[mat * a.rows + w_row];
    if (lane == 0) a.out[row * a.rows + w_row] = sum[0];
}

int cuda_op_grouped(const cuda_grouped *a, cuda_stream s, err *e) {
    if (a->n == 0) return 0;
    if (a->type == TENSOR_F32) {
        const cuda_shape shape = { (unsigned)((a->n * a->rows + PLAIN_WARPS - 1) / PLAIN_WARPS), PLAIN_WARPS * 32, 1, 0,
                                   true };
        return cuda_launch(grouped_plain_kernel, shape, s, e, *a);
    }
    const cuda_weight   w = { a->type, a->rows, a->cols, NULL, 0 };
    const product_shape p = product_shape_of(&w);
    const grouped_args  g = { *a,
                              (int)((a->cols + p.tile_cols - 1) / p.tile_cols),
                              (int)(p.slice_cols / p.tile_cols),
                              (int)p.rows_pad,
                              (int)(p.rows_pad / CUDA_TILE_ROWS),
                              p.slices };
    const int64_t       items = a->chosen ? cuda_items_max(a->n, a->n_mats)
                                          : (a->n / a->n_mats + CUDA_ITEM_ROWS - 1) / CUDA_ITEM_ROWS * a->n_mats;
    const cuda_shape    shape = { (unsigned)(items * g.tiles), (unsigned)p.slices * 32, 1, 0, true };
    switch (a->type) {
    case TENSOR_F16: return cuda_launch(grouped_kernel<grouped_image<0>>, shape, s, e, g);
    case TENSOR_BF16: return cuda_launch(grouped_kernel<grouped_image<1>>, shape, s, e, g);
#define START(type, T)                                                                                                 \
    case type: return cuda_launch(grouped_kernel<T>, shape, s, e, g);
        UNPACK_TILED(START)
#undef START
    default: return err_set(e, ERR_UNSUPPORTED, "CUDA: no product with weights of type %d", (int)a->type);
    }
}
