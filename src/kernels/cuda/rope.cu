/* SPDX-License-Identifier: Apache-2.0 */
/* Rotation by position: a table of the batch's cosines and sines once per step and kind of rotation, then pairs. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/ops.h"

#define THREADS 128

static __global__ __launch_bounds__(THREADS) void table_kernel(float *table, const float *inv_freq,
                                                               const float *axis_of, int n, float scale,
                                                               const int32_t *pos, const int32_t *axes, int n_tok) {
    launch_begin();
    const int i = (int)(blockIdx.x * THREADS + threadIdx.x), t = i / n, f = i % n;
    if (t >= n_tok) return;
    double c, s;
    const int at = axis_of && axes ? axes[(int64_t)axis_of[f] * n_tok + t] : pos[t];
    sincos((double)at * (double)inv_freq[f], &s, &c);
    table[(int64_t)t * 2 * n + f] = (float)(c * (double)scale);
    table[(int64_t)t * 2 * n + n + f] = (float)(s * (double)scale);
}

int cuda_op_rope_table(float *table, const float *inv_freq, const float *axis_of, int n, float scale,
                       const cuda_batch *b, cuda_stream s, err *e) {
    const cuda_shape shape = { (unsigned)(((int64_t)b->n_tok * n + THREADS - 1) / THREADS), THREADS, 1, 0, true };
    return cuda_launch(table_kernel, shape, s, e, table, inv_freq, axis_of, n, scale, b->pos, b->axes, b->n_tok);
}

static __global__ __launch_bounds__(THREADS) void rope_kernel(const cuda_rope a) {
    launch_begin();
    const int64_t per_row = a.width / a.head_dim * a.n, i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int64_t t = i / per_row;
    if (t >= a.batch.n_tok) return;
    const int   h = (int)(i % per_row / a.n), f = (int)(i % a.n);
    float      *p = a.x + t * a.width + (int64_t)h * a.head_dim + a.offset;
    float      *pa = a.interleaved ? p + 2 * f : p + f, *pb = a.interleaved ? pa + 1 : pa + a.n;
    const float c = a.table[t * 2 * a.n + f], s = a.table[t * 2 * a.n + a.n + f], va = *pa, vb = *pb;
    *pa = va * c - vb * s;
    *pb = va * s + vb * c;
}

int cuda_op_rope(const cuda_rope *a, cuda_stream s, err *e) {
    const int64_t    n = a->batch.n_tok * (a->width / a->head_dim) * a->n;
    const cuda_shape shape = { (unsigned)((n + THREADS - 1) / THREADS), THREADS, 1, 0, true };
    return n ? cuda_launch(rope_kernel, shape, s, e, *a) : 0;
}
