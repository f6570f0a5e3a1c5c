/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The experts of a few tokens in two kernels instead of nine: gate, up and the gated unit; down and the weighted sum.
 * The same values as grouped.cu, elem.cu and rows.cu give, bit for bit.
 *
 * Steps of few tokens are chains of short kernels, whose borders take longer than their work. Here a block brings the
 * rows that it needs to 16 bits itself and works for one token, so that nobody sorts rows by their experts; an expert
 * that two tokens chose is read twice, mostly from the cache.
 */
#include "kernels/cuda/act.cuh"
#include "kernels/cuda/internal.cuh"
#include "kernels/cuda/unpack.cuh"

#define UP_WARPS CUDA_SLICES_MAX
#define DOWN_WARPS 16

struct experts_args {
    cuda_experts a;
    int          n_kt, slice_kt, slices, rows_pad, tiles;
    int          cols_pad; /* of a row in 16 bits */
};

/* A row in 16 bits by one warp, as rows_one makes it: padded with zeros. Returns its power of two. */
__device__ static inline float row_to_halves(__half *to, const float *x, int cols, int cols_pad, int lane) {
    uint32_t top = 0;
    for (int i = lane; i < cols; i += 32) top = max(top, __float_as_uint(x[i]) & 0x7fffffffu);
    top = __reduce_max_sync(0xffffffffu, top);
    const int   e = cuda_row_exponent(top);
    const float factor = __uint_as_float((uint32_t)(127 - e) << 23);
    for (int i = lane; i < cols_pad; i += 32) to[i] = __float2half_rn(i < cols ? __fmul_rn(x[i], factor) : 0.0f);
    return __uint_as_float((uint32_t)(127 + e) << 23);
}

/* The same by all threads of a block; every one gets the power of two. */
template <int THREADS>
__device__ static inline float block_to_halves(__half *to, const float *x, int cols, int cols_pad) {
    __shared__ uint32_t part[THREADS / 32];
    uint32_t            top = 0;
    for (int i = (int)threadIdx.x; i < cols; i += THREADS) top = max(top, __float_as_uint(x[i]) & 0x7fffffffu);
    top = __reduce_max_sync(0xffffffffu, top);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = top;
    __syncthreads();
    for (int i = 0; i < THREADS / 32; i++) top = max(top, part[i]);
    const int   e = cuda_row_exponent(top);
    const float factor = __uint_as_float((uint32_t)(127 - e) << 23);
    for (int i = (int)threadIdx.x; i < cols_pad; i += THREADS)
        to[i] = __float2half_rn(i < cols ? __fmul_rn(x[i], factor) : 0.0f);
    __syncthreads();
    return __uint_as_float((uint32_t)(127 + e) << 23);
}

/* One slice of 16 weight rows times one row: a chain from zero. sum[0], sum[1]: rows lane / 4 and that + 8. */
template <class T>
__device__ static inline void experts_slice(float sum[2], const experts_args &g, const uint8_t *w, int tile, int slice,
                                            const __half *x, uint8_t *scratch, int lane) {
    constexpr int BLOCKS = T::COLS / CUDA_BLOCK_COLS;
    const int     last = min((slice + 1) * g.slice_kt, g.n_kt);
    float         acc[4] = {};
    for (int kt = slice * g.slice_kt; kt < last; kt++) {
        const uint8_t *at = T::at(w, tile, kt, g.n_kt, g.rows_pad);
        T::prepare(at, scratch, lane);
        __syncwarp();
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) {
            uint32_t fa[4][4];
            T::fragments(fa, at, scratch, b, lane);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const __half *p = x + kt * T::COLS + b * CUDA_BLOCK_COLS + j * 16 + lane % 4 * 2;
                mma16<T::BF16>(acc, fa[j], *reinterpret_cast<const uint32_t *>(p),
                               *reinterpret_cast<const uint32_t *>(p + 8));
            }
        }
        __syncwarp();
    }
    sum[0] = acc[0], sum[1] = acc[2];
}

/* Row r of the result (token r / n_used, choice r % n_used), 16 columns. */
template <class T> static __global__ __launch_bounds__(UP_WARPS * 32) void experts_up_kernel(const experts_args g) {
    extern __shared__ __align__(16) __half x16[];
    __shared__ float                       part[2][UP_WARPS][16];
    __shared__ __align__(16) uint8_t       scratch[2][UP_WARPS][T::SCRATCH ? T::SCRATCH : 16];
    const cuda_experts                    &a = g.a;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, tile = (int)blockIdx.x % g.tiles;
    const int64_t r = blockIdx.x / g.tiles;
    launch_begin();
    const int      mat = reinterpret_cast<const int32_t *>(a.chosen)[r * 2];
    const uint8_t *gate = static_cast<const uint8_t *>(a.gate[mat]), *up = static_cast<const uint8_t *>(a.up[mat]);
    const float    by = block_to_halves<UP_WARPS * 32>(x16, a.x + r / a.n_used * a.cols, (int)a.cols, g.cols_pad);
    float          sum[2][2] = {};
    if (warp < g.slices) {
        experts_slice<T>(sum[0], g, gate, tile, warp, x16, scratch[0][warp], lane);
        experts_slice<T>(sum[1], g, up, tile, warp, x16, scratch[1][warp], lane);
    }
    if (lane % 4 == 0) {
#pragma unroll
        for (int i = 0; i < 4; i++) part[i / 2][warp][lane / 4 + i % 2 * 8] = sum[i / 2][i % 2];
    }
    __syncthreads();
    const int row = tile * 16 + (int)threadIdx.x;
    if (threadIdx.x >= 16 || row >= a.rows) return;
    float v[2] = {};
#pragma unroll
    for (int m = 0; m < 2; m++) {
        for (int s = 0; s < g.slices; s++) v[m] += part[m][s][threadIdx.x];
        const float *bias = m ? a.up_bias : a.gate_bias;
        v[m] = v[m] * by * (m ? a.up_scale : a.gate_scale);
        if (bias) v[m] += bias[(int64_t)mat * a.rows + row];
    }
    a.out[r * a.rows + row] = a.limit != 0 ? clamped_glu(v[0], v[1], a.limit, a.alpha) : act_of(a.act, v[0]) * v[1];
}

/* 16 columns of one token's result: all its experts, then their sum. */
template <class T> static __global__ __launch_bounds__(DOWN_WARPS * 32) void experts_down_kernel(const experts_args g) {
    extern __shared__ __align__(16) __half x16[]; /* [n_used][cols_pad] */
    __shared__ float                       part[CUDA_EXPERTS_FEW][CUDA_SLICES_MAX][16], by[CUDA_EXPERTS_FEW];
    __shared__ __align__(16) uint8_t       scratch[DOWN_WARPS][T::SCRATCH ? T::SCRATCH : 16];
    const cuda_experts                    &a = g.a;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, tile = (int)blockIdx.x % g.tiles;
    const int64_t t = blockIdx.x / g.tiles;
    launch_begin();
    const float *chosen = a.chosen + t * a.n_used * 2;
    for (int k = warp; k < a.n_used; k += DOWN_WARPS) {
        const float f = row_to_halves(x16 + k * g.cols_pad, a.x + (t * a.n_used + k) * a.cols, (int)a.cols, g.cols_pad,
                                      lane);
        if (lane == 0) by[k] = f;
    }
    __syncthreads();
    for (int i = warp; i < a.n_used * g.slices; i += DOWN_WARPS) {
        const int k = i / g.slices, slice = i % g.slices;
        float     sum[2];
        experts_slice<T>(sum, g, static_cast<const uint8_t *>(a.gate[reinterpret_cast<const int32_t *>(chosen)[k * 2]]),
                         tile, slice, x16 + k * g.cols_pad, scratch[warp], lane);
        if (lane % 4 == 0) part[k][slice][lane / 4] = sum[0], part[k][slice][lane / 4 + 8] = sum[1];
    }
    __syncthreads();
    const int row = tile * 16 + (int)threadIdx.x;
    if (threadIdx.x >= 16 || row >= a.rows) return;
    float all = 0;
    for (int k = 0; k < a.n_used; k++) {
        float v = 0;
        for (int s = 0; s < g.slices; s++) v += part[k][s][threadIdx.x];
        v = v * by[k] * a.gate_scale;
        if (a.gate_bias) v += a.gate_bias[reinterpret_cast<const int32_t *>(chosen)[k * 2] * a.rows + row];
        all = fmaf(a.even ? 1.0f : chosen[k * 2 + 1], v, all);
    }
    float *out = a.out + t * a.rows + row;
    *out = a.add ? *out + all : all;
}

bool cuda_can_experts(tensor_type type, int64_t cols, int n_tok, int n_used) {
    const bool known = type == TENSOR_Q4_0 || type == TENSOR_Q8_0 || type == TENSOR_Q4_K || type == TENSOR_Q6_K ||
                       type == TENSOR_MXFP4;
    return known && n_used <= CUDA_EXPERTS_FEW && n_tok <= CUDA_EXPERTS_TOKENS &&
           (int64_t)n_used * cuda_round_up(cols, CUDA_SLICE_UNIT) * 2 <= 64 * 1024;
}

template <class T> static int start(const experts_args &g, cuda_stream s, err *e) {
    const bool       up = g.a.up != NULL;
    const int64_t    rows = (int64_t)g.a.n_tok * (up ? g.a.n_used : 1);
    const cuda_shape shape = { (unsigned)(rows * g.tiles), (up ? UP_WARPS : DOWN_WARPS) * 32u, 1,
                               (size_t)g.cols_pad * 2 * (size_t)(up ? 1 : g.a.n_used), true };
    return cuda_launch(up ? experts_up_kernel<T> : experts_down_kernel<T>, shape, s, e, g);
}

int cuda_op_experts(const cuda_experts *a, cuda_stream s, err *e) {
    const cuda_weight   w = { a->type, a->rows, a->cols, NULL };
    const product_shape p = product_shape_of(&w);
    const experts_args  g = { *a,
                              (int)((a->cols + p.tile_cols - 1) / p.tile_cols),
                              (int)(p.slice_cols / p.tile_cols),
                              p.slices,
                              (int)p.rows_pad,
                              (int)(p.rows_pad / CUDA_TILE_ROWS),
                              (int)cuda_round_up(a->cols, CUDA_SLICE_UNIT) };
    if (a->n_tok == 0) return 0;
    switch (a->type) {
    case TENSOR_MXFP4: return start<unpack_mxfp4>(g, s, e);
    case TENSOR_Q4_0: return start<unpack_q4_0>(g, s, e);
    case TENSOR_Q8_0: return start<unpack_q8_0>(g, s, e);
    case TENSOR_Q4_K: return start<unpack_q4_k>(g, s, e);
    case TENSOR_Q6_K: return start<unpack_q6_k>(g, s, e);
    default: return err_set(e, ERR_UNSUPPORTED, "CUDA: no experts with weights of type %d", (int)a->type);
    }
}
