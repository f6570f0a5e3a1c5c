/* SPDX-License-Identifier: Apache-2.0 */
/* Low-rank products and gains of adapter sets (adapt.h). */
#include "kernels/cuda/adapt.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/reduce.cuh"

#include <cuda_fp16.h>

#define SLICES CUDA_LOW_SLICES
#define STEP 256       /* inputs that a warp takes at once */
#define EXPAND 128      /* columns of a block */
#define EXPAND_MORE 4   /* times as many where rows are sorted by set */
#define EXPAND_RANKS 64 /* ranks whose t lie in shared memory at once */
#define THREADS 256

/* The rows of one block, all of one set. */
template <int R> struct low_item {
    int row[R], n, set;
    __device__ inline low_item(const cuda_low_rows &r, int64_t number) {
        if (R == 1 && !r.items) {
            row[0] = (int)number, n = 1, set = r.set_of[number / r.mult];
            return;
        }
        const int32_t *it = r.items + number * 3;
        set = it[0], n = it[2];
#pragma unroll
        for (int i = 0; i < R; i++) row[i] = r.order[it[1] + min(i, n - 1)];
    }
};

__device__ static inline const cuda_patch *low_patch(const cuda_low_rows &r, int set, int number) {
    return set ? r.sets[(int64_t)set * r.n_ops + number] : NULL;
}

__device__ static inline int low_expert(const cuda_low_args &a, int row) {
    return a.chosen ? __float_as_int(a.chosen[(int64_t)row * 2]) : 0;
}

/* 8 inputs of a row, 0 behind its end. */
template <bool VEC> __device__ static inline void low_inputs(float v[8], const float *x, int64_t k, int64_t cols) {
    if (VEC) {
        const float4 a = *reinterpret_cast<const float4 *>(x + k), b = *reinterpret_cast<const float4 *>(x + k + 4);
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = k + i < cols ? x[k + i] : 0.0f;
    }
}

/* Sums over the lanes of 32 values each; lane l gets value l. The pairs are those of warp_sum. */
__device__ static inline float low_sums(float v[32], int lane) {
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) {
        const bool up = lane & o;
#pragma unroll
        for (int i = 0; i < o; i++) {
            const float send = up ? v[i] : v[i + o], keep = up ? v[i + o] : v[i];
            v[i] = keep + __shfl_xor_sync(0xffffffffu, send, o);
        }
    }
    return v[0];
}

/* R rows of one set times J ranks; a warp per slice of the inputs. Sets, patches and A were there before the kernel in
 * front: only inputs and experts are waited for. */
template <int R, int J, bool VEC>
static __global__ __launch_bounds__(SLICES * 32) void shrink_kernel(const cuda_low_args a, int groups) {
    launch_next();
    if (a.chosen) launch_wait();
    __shared__ float  room[SLICES][R * J];
    const int         lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const low_item<R> it(a.rows, blockIdx.x / groups);
    int               slot = (int)(blockIdx.x % groups) * J, k = 0, t_at = slot;
    while (slot >= a.ops[k].rank) slot -= a.ops[k++].rank;
    const cuda_patch *p = low_patch(a.rows, it.set, a.ops[k].number);
    if (!p || slot >= p->rank) {
        launch_wait(); /* a kernel that ends stands for all in front of it */
        return;
    }
    int part = p->n_parts - 1;
    while (p->parts[part].at > slot) part--;
    const cuda_low low = p->parts[part].low[low_expert(a, it.row[0])];
    const int      j0 = slot - p->parts[part].at;
    if (j0 >= low.used) {
        launch_wait();
        return;
    }
    const __half *w = reinterpret_cast<const __half *>(low.a) + (int64_t)j0 * low.a_stride;
    const int64_t slice = ((a.cols + SLICES - 1) / SLICES + STEP - 1) / STEP * STEP,
                  hi = min((warp + 1) * slice, a.cols);
    float sum[R * J];
#pragma unroll
    for (int i = 0; i < R * J; i++) sum[i] = 0;
    constexpr int AHEAD = R * J == 1 ? 8 : 1; /* steps whose A is read before the wait */
    uint4         ahead[AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
        const int64_t c = warp * slice + lane * 8 + i * STEP;
        ahead[i] = c < hi ? *reinterpret_cast<const uint4 *>(w + c) : make_uint4(0, 0, 0, 0);
    }
    launch_wait();
    if constexpr (R * J == 1) {
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const int64_t c = warp * slice + lane * 8 + k * STEP;
            if (c >= hi) break;
            float x[8];
            low_inputs<VEC>(x, a.x + it.row[0] / a.x_div * a.cols, c, a.cols);
            const __half *h = reinterpret_cast<const __half *>(&ahead[k]);
#pragma unroll
            for (int i = 0; i < 8; i++) sum[0] = fmaf(__half2float(h[i]), x[i], sum[0]);
        }
    }
    for (int64_t c = warp * slice + lane * 8 + (R * J == 1 ? AHEAD * STEP : 0); c < hi; c += STEP) {
        float x[R][8];
#pragma unroll
        for (int r = 0; r < R; r++) low_inputs<VEC>(x[r], a.x + it.row[r] / a.x_div * a.cols, c, a.cols);
#pragma unroll
        for (int j = 0; j < J; j++) {
            const uint4   raw = *reinterpret_cast<const uint4 *>(w + j * low.a_stride + c);
            const __half *h = reinterpret_cast<const __half *>(&raw);
#pragma unroll
            for (int i = 0; i < 8; i++) {
#pragma unroll
                for (int r = 0; r < R; r++) sum[r * J + j] = fmaf(__half2float(h[i]), x[r][i], sum[r * J + j]);
            }
        }
    }
    if constexpr (R * J == 32) {
        room[warp][lane] = low_sums(sum, lane);
    } else {
        const float all = warp_sum(sum[0]);
        if (lane == 0) room[warp][0] = all;
    }
    __syncthreads();
    const int i = (int)threadIdx.x, r = i / J, j = i % J;
    if (i >= R * J || r >= it.n || j0 + j >= low.used) return;
    float all = 0;
#pragma unroll
    for (int s = 0; s < SLICES; s++) all += room[s][i];
    int row = it.row[0];
#pragma unroll
    for (int q = 1; q < R; q++) row = r == q ? it.row[q] : row;
    a.t[(int64_t)row * a.t_stride + t_at + j] = all;
}

/* R rows of one set and C times EXPAND columns of one op's output, C of them per thread. */
template <int R, int C>
static __global__ __launch_bounds__(EXPAND) void expand_kernel(const cuda_low_args a, int groups) {
    launch_next();
    if (a.chosen || a.token) launch_wait();
    __shared__ float  t[R][EXPAND_RANKS];
    const low_item<R> it(a.rows, blockIdx.x / groups);
    int               block = (int)(blockIdx.x % groups), k = 0, t_at = 0;
    for (; block >= (a.ops[k].width + C * EXPAND - 1) / (C * EXPAND); k++) {
        block -= (int)((a.ops[k].width + C * EXPAND - 1) / (C * EXPAND));
        t_at += a.ops[k].rank;
    }
    const cuda_patch *p = low_patch(a.rows, it.set, a.ops[k].number);
    const int64_t     width = a.ops[k].width, col = (int64_t)block * C * EXPAND + threadIdx.x;
    if (!p || p->n_parts == 0) {
        launch_wait();
        return;
    }
    int at[C]; /* columns; those behind the end are computed as the last one and not written */
#pragma unroll
    for (int c = 0; c < C; c++) at[c] = (int)min(col + c * EXPAND, width - 1);
    __half early[CUDA_LOW_UNIT]; /* of B, before the wait */
    {
        const cuda_low low = p->parts[0].low[low_expert(a, it.row[0])];
        const __half  *b = reinterpret_cast<const __half *>(low.bt) + at[0];
#pragma unroll
        for (int j = 0; j < CUDA_LOW_UNIT; j++)
            early[j] = C == 1 && j < low.used ? b[j * low.bt_stride] : __float2half(0.0f);
    }
    launch_wait();
    float y[R][C];
#pragma unroll
    for (int r = 0; r < R; r++) {
#pragma unroll
        for (int c = 0; c < C; c++) y[r][c] = a.ops[k].y[it.row[r] * width + at[c]];
    }
    for (int q = 0; q < p->n_parts; q++) {
        const cuda_low low = p->parts[q].low[low_expert(a, it.row[0])];
        const __half  *b = reinterpret_cast<const __half *>(low.bt);
        float          sum[R][C];
#pragma unroll
        for (int i = 0; i < R * C; i++) sum[i / C][i % C] = 0;
        for (int j0 = 0; j0 < low.used; j0 += EXPAND_RANKS) {
            const int n = min(EXPAND_RANKS, low.used - j0);
            __syncthreads();
#pragma unroll
            for (int r = 0; r < R; r++) {
                for (int j = (int)threadIdx.x; j < n; j += EXPAND) {
                    const int row = it.row[r];
                    t[r][j] = a.token ? __half2float(reinterpret_cast<const __half *>(
                                            low.a)[a.token[row] * low.a_stride + j0 + j])
                                      : a.t[(int64_t)row * a.t_stride + t_at + p->parts[q].at + j0 + j];
                }
            }
            __syncthreads();
            const int begin = C == 1 && q == 0 && j0 == 0 ? min(n, CUDA_LOW_UNIT) : 0;
#pragma unroll
            for (int j = 0; j < CUDA_LOW_UNIT; j++) {
                if (j >= begin) break;
#pragma unroll
                for (int r = 0; r < R; r++) sum[r][0] = fmaf(__half2float(early[j]), t[r][j], sum[r][0]);
            }
#pragma unroll 8
            for (int j = begin; j < n; j++) {
#pragma unroll
                for (int c = 0; c < C; c++) {
                    const float w = __half2float(b[(j0 + j) * low.bt_stride + at[c]]);
#pragma unroll
                    for (int r = 0; r < R; r++) sum[r][c] = fmaf(w, t[r][j], sum[r][c]);
                }
            }
        }
        const float scale = low.scale * p->parts[q].scale * a.scale;
#pragma unroll
        for (int c = 0; c < C; c++) {
            const float gain = p->parts[q].gain ? p->parts[q].gain[at[c]] : 1.0f;
#pragma unroll
            for (int r = 0; r < R; r++) y[r][c] += sum[r][c] * scale * gain;
        }
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
#pragma unroll
        for (int c = 0; c < C; c++) {
            if (col + c * EXPAND < width && r < it.n) a.ops[k].y[it.row[r] * width + at[c]] = y[r][c];
        }
    }
}

/* Rows by themselves, or those of one set together. */
static int64_t items_of(const cuda_low_rows *r) { return r->items ? r->n_items : r->n; }

template <bool VEC> static int shrink(const cuda_low_args *a, cuda_stream s, err *e) {
    const int ranks = a->ops[0].rank + (a->n_ops > 1 ? a->ops[1].rank : 0) + (a->n_ops > 2 ? a->ops[2].rank : 0);
    const int groups = a->rows.items ? ranks / 8 : ranks;
    const cuda_shape shape = { (unsigned)(items_of(&a->rows) * groups), SLICES * 32, 1, 0, true };
    if (shape.blocks == 0) return 0;
    return a->rows.items ? cuda_launch(shrink_kernel<CUDA_LOW_ROWS, 8, VEC>, shape, s, e, *a, groups)
                         : cuda_launch(shrink_kernel<1, 1, VEC>, shape, s, e, *a, groups);
}

int cuda_low_shrink(const cuda_low_args *a, cuda_stream s, err *e) {
    return a->cols % 8 == 0 ? shrink<true>(a, s, e) : shrink<false>(a, s, e);
}

int cuda_low_expand(const cuda_low_args *a, cuda_stream s, err *e) {
    const int64_t wide = EXPAND * (a->rows.items ? EXPAND_MORE : 1);
    int64_t       groups = 0;
    for (int i = 0; i < a->n_ops; i++) groups += (a->ops[i].width + wide - 1) / wide;
    const cuda_shape shape = { (unsigned)(items_of(&a->rows) * groups), EXPAND, 1, 0, true };
    if (shape.blocks == 0) return 0;
    return a->rows.items ? cuda_launch(expand_kernel<CUDA_LOW_ROWS, EXPAND_MORE>, shape, s, e, *a, (int)groups)
                         : cuda_launch(expand_kernel<1, 1>, shape, s, e, *a, (int)groups);
}

/* --- gains ------------------------------------------------------------------------------------------------------- */

static cuda_shape elements(int64_t n) { return { (unsigned)((n + THREADS - 1) / THREADS), THREADS, 1, 0, true }; }

static __global__ __launch_bounds__(THREADS) void gain_in_kernel(const cuda_low_rows r, int number, float *out,
                                                                 const float *x, int64_t width) {
    launch_begin();
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= r.n * width) return;
    const cuda_patch *p = low_patch(r, r.set_of[i / width / r.mult], number);
    out[i] = p && p->in_gain ? x[i] * p->in_gain[i % width] : x[i];
}

int cuda_low_gain_in(const cuda_low_rows *r, int number, float *out, const float *x, int64_t width, cuda_stream s,
                     err *e) {
    return r->n ? cuda_launch(gain_in_kernel, elements(r->n * width), s, e, *r, number, out, x, width) : 0;
}

static __global__ __launch_bounds__(THREADS) void gain_out_kernel(const cuda_low_finish a) {
    launch_begin();
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, col = i % a.width;
    if (i >= a.rows.n * a.width) return;
    const cuda_patch *p = low_patch(a.rows, a.rows.set_of[i / a.width / a.rows.mult], a.number);
    float             v = a.product[i];
    if (p && p->gain) v *= p->gain[col];
    if (a.bias) v += p && p->bias_gain ? a.bias[col] * p->bias_gain[col] : a.bias[col];
    a.y[i] = a.add ? a.y[i] + v : v;
}

int cuda_low_gain_out(const cuda_low_finish *a, cuda_stream s, err *e) {
    return a->rows.n ? cuda_launch(gain_out_kernel, elements(a->rows.n * a->width), s, e, *a) : 0;
}
