/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that treat every element by itself, columns and rows that are picked, the sum over a token's experts. */
#include "kernels/cuda/act.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/ops.h"

#define THREADS 256

static cuda_shape elems_shape(int64_t n) {
    const int64_t blocks = (n + THREADS - 1) / THREADS;
    return { (unsigned)(blocks < 1 ? 1 : blocks), THREADS, 1, 0, true };
}

__device__ static inline int64_t this_elem() { return (int64_t)blockIdx.x * THREADS + threadIdx.x; }

__device__ static inline float xielu(const cuda_each &a, float v) {
    const float bent = v > 0 ? a.xielu[0] * v * v : a.xielu[1] * (expm1f(fminf(v, a.xielu[3])) - v);
    return bent + a.xielu[2] * v;
}

static __global__ __launch_bounds__(THREADS) void each_kernel(const cuda_each a) {
    launch_begin();
    const int64_t i = this_elem();
    if (i >= a.rows * a.width) return;
    const int64_t row = i / a.width, col = i % a.width;
    float         y = a.y[i];
    switch (a.kind) {
    case CUDA_EACH_ADD: y += a.scale * a.a[i]; break;
    case CUDA_EACH_SCALE: y *= a.scale; break;
    case CUDA_EACH_ACT: y = act_of(a.act, y); break;
    case CUDA_EACH_GATE: y *= act_of(a.act, a.a[row * a.a_width + col / (a.width / a.a_width)]); break;
    case CUDA_EACH_SOFTCAP: y = a.scale * tanhf(y / a.scale); break;
    case CUDA_EACH_POS_SCALE: y *= 1.0f + a.scale * log1pf((float)((a.pos[row] + a.offset) / a.period)); break;
    case CUDA_EACH_DECAY:
        y = a.a[col / (a.width / a.a_width)] * act_of(CUDA_ACT_SOFTPLUS, a.b ? y + a.b[col] : y);
        break;
    case CUDA_EACH_SCALE_BY: y *= a.a[col]; break;
    case CUDA_EACH_ADD_BY: y += a.a[i] * a.b[row * a.a_width]; break;
    case CUDA_EACH_WEIGH: y *= a.a[row * 2 + 1]; break;
    case CUDA_EACH_CLIP: y = fminf(fmaxf(y, -a.scale), a.scale); break;
    case CUDA_EACH_CLAMP: y = fminf(fmaxf(y, a.scale), a.alpha); break;
    case CUDA_EACH_ADD_EACH: y += a.scale * a.a[col]; break;
    case CUDA_EACH_XIELU: y = xielu(a, y); break;
    case CUDA_EACH_GLU: y = a.scale != 0 ? clamped_glu(y, a.a[i], a.scale, a.alpha) : act_of(a.act, y) * a.a[i]; break;
    }
    a.y[i] = y;
}

int cuda_op_each(const cuda_each *a, cuda_stream s, err *e) {
    return a->rows ? cuda_launch(each_kernel, elems_shape(a->rows * a->width), s, e, *a) : 0;
}

static __global__ __launch_bounds__(THREADS) void take_kernel(const cuda_take a) {
    launch_begin();
    const int64_t out_width = a.in_width / a.group * a.width, i = this_elem();
    if (i >= a.rows * out_width) return;
    const int64_t row = i / out_width, col = i % out_width;
    a.out[i] = a.x[row * a.in_width + col / a.width * a.group + a.offset + col % a.width];
}

int cuda_op_take(const cuda_take *a, cuda_stream s, err *e) {
    const int64_t n = a->rows * (a->in_width / a->group * a->width);
    return n ? cuda_launch(take_kernel, elems_shape(n), s, e, *a) : 0;
}

static __global__ __launch_bounds__(THREADS) void gather_kernel(float *out, const float *x, const int32_t *rows,
                                                                int64_t n, int64_t width) {
    launch_begin();
    const int64_t i = this_elem();
    if (i < n * width) out[i] = x[rows[i / width] * width + i % width];
}

int cuda_op_gather(float *out, const float *x, const int32_t *rows, int64_t n, int64_t width, cuda_stream s, err *e) {
    return n ? cuda_launch(gather_kernel, elems_shape(n * width), s, e, out, x, rows, n, width) : 0;
}

static __global__ __launch_bounds__(THREADS) void combine_kernel(float *out, const float *y, const float *chosen,
                                                                 int64_t rows, int n_used, int64_t width, bool add) {
    launch_begin();
    const int64_t i = this_elem(), row = i / width;
    if (row >= rows) return;
    float sum = 0;
    for (int k = 0; k < n_used; k++) {
        const int64_t r = row * n_used + k;
        sum = fmaf(chosen ? chosen[r * 2 + 1] : 1.0f, y[r * width + i % width], sum);
    }
    out[i] = add ? out[i] + sum : sum;
}

int cuda_op_combine(float *out, const float *y, const float *chosen, int64_t rows, int n_used, int64_t width, bool add,
                    cuda_stream s, err *e) {
    if (rows == 0) return 0;
    return cuda_launch(combine_kernel, elems_shape(rows * width), s, e, out, y, chosen, rows, n_used, width, add);
}
