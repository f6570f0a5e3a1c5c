/* SPDX-License-Identifier: Apache-2.0 */
/* Norms: a warp per group of up to 512 elements (heads), a block per larger one. Which of the two follows from the
 * group's size, and so does the order of the sums. */
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/wide.h"

#define THREADS 512

/* One group by STEP threads, of which this is number `at`; sum(v) adds over them. */
template <int STEP, class Sum>
__device__ static inline void norm_group(const cuda_norm &a, int64_t g, int at, Sum sum) {
    const float *x = a.x + g * a.group;
    float       *out = a.out + g * a.group;
    const int    w0 = (int)(g % a.w_groups) * a.group;
    float        mean = 0, part = 0;
    if (a.kind == CUDA_NORM_LAYER) {
        for (int i = at; i < a.group; i += STEP) mean += x[i];
        mean = sum(mean) / (float)a.group;
    }
    for (int i = at; i < a.group; i += STEP) part = fmaf(x[i] - mean, x[i] - mean, part);
    part = sum(part);
    const float scale = 1.0f / sqrtf((a.kind == CUDA_NORM_L2 ? part : part / (float)a.group) + a.eps);
    for (int i = at; i < a.group; i += STEP) {
        float v = (x[i] - mean) * scale;
        if (a.w) v *= a.w[w0 + i];
        if (a.b) v += a.b[w0 + i];
        out[i] = v;
    }
}

static __global__ __launch_bounds__(THREADS) void norm_kernel(const cuda_norm a, const rows_args rows) {
    launch_begin();
    __shared__ float room[THREADS / 32];
    norm_group<THREADS>(a, blockIdx.x, (int)threadIdx.x, [](float v) { return block_sum<THREADS>(v, room); });
    if (!rows.image) return;
    __syncthreads();
    rows_one<false, THREADS>(rows, blockIdx.x);
}

static __global__ __launch_bounds__(THREADS) void norm_heads_kernel(const cuda_norm a) {
    launch_begin();
    const int64_t g = (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (g < a.groups) norm_group<32>(a, g, (int)threadIdx.x % 32, [](float v) { return warp_sum(v); });
}

#define MOST_CHUNKS 2

/* The same in one read of the row, for widths that fit: elements of a thread in order, then the threads. Rows that
 * fewer threads hold have the same sums by them: the others would add zeros. */
template <int SOME, int CHUNKS>
static __global__ __launch_bounds__(SOME) void norm_regs_kernel(const cuda_norm a, const rows_args rows) {
    using regs = row_in_regs<SOME, CHUNKS>;
    __shared__ float room[SOME / 32];
    regs             x, w;
    float            mean = 0, part = 0;
    if (a.w) w.load(a.w, a.group); /* known before the kernel in front has ended */
    launch_begin();
    x.load(a.x + (int64_t)blockIdx.x * a.group, a.group);
    if (a.kind == CUDA_NORM_LAYER) {
#pragma unroll
        for (int i = 0; i < CHUNKS * 8; i++) mean += x.v[i / 8][i % 8];
        mean = block_sum<SOME>(mean, room) / (float)a.group;
    }
#pragma unroll
    for (int i = 0; i < CHUNKS * 8; i++) {
        const float d = regs::at(i / 8) < a.group ? x.v[i / 8][i % 8] - mean : 0.0f;
        x.v[i / 8][i % 8] = d;
        part = fmaf(d, d, part);
    }
    part = block_sum<SOME>(part, room);
    const float scale = 1.0f / sqrtf((a.kind == CUDA_NORM_L2 ? part : part / (float)a.group) + a.eps);
#pragma unroll
    for (int i = 0; i < CHUNKS * 8; i++) {
        float v = x.v[i / 8][i % 8] * scale;
        if (a.w) v *= w.v[i / 8][i % 8];
        if (a.b && regs::at(i / 8) < a.group) v += a.b[regs::at(i / 8) + i % 8];
        x.v[i / 8][i % 8] = v;
    }
    if (a.out) x.store(a.out + (int64_t)blockIdx.x * a.group, a.group);
    if (rows.image) x.image(rows, blockIdx.x);
}

template <int SOME, int CHUNKS>
static int start_regs(const cuda_norm *a, const cuda_rows *rows, cuda_stream s, err *e) {
    const cuda_shape shape = { (unsigned)a->groups, SOME, 1, 0, true };
    return cuda_launch(norm_regs_kernel<SOME, CHUNKS>, shape, s, e, *a, rows_args_of(rows, a->out, a->group));
}

bool cuda_norm_fits(const cuda_norm *a) {
    return a->group > CUDA_NORM_HEADS && a->w_groups == 1 && row_fits(a->group, THREADS * 8 * MOST_CHUNKS);
}

int cuda_op_norm(const cuda_norm *a, const cuda_rows *rows, cuda_stream s, err *e) {
    if (a->groups == 0) return 0;
    const bool       heads = a->group <= CUDA_NORM_HEADS;
    const int64_t    blocks = heads ? (a->groups + THREADS / 32 - 1) / (THREADS / 32) : a->groups;
    const cuda_shape shape = { (unsigned)blocks, THREADS, 1, 0, true };
    const cuda_rows  none = {};
    if (cuda_norm_fits(a)) {
        const cuda_rows *r = rows ? rows : &none;
        return a->group <= 160 * 8   ? start_regs<160, 1>(a, r, s, e)
               : a->group <= 256 * 8 ? start_regs<256, 1>(a, r, s, e)
                                     : start_regs<THREADS, MOST_CHUNKS>(a, r, s, e);
    }
    return heads ? cuda_launch(norm_heads_kernel, shape, s, e, *a)
                 : cuda_launch(norm_kernel, shape, s, e, *a, rows_args_of(rows ? rows : &none, a->out, a->group));
}

/* One row per block (ops.h). */
static __global__ __launch_bounds__(THREADS) void row_size_kernel(float *y, const float *like, int64_t width,
                                                                  float by) {
    launch_begin();
    __shared__ float room[THREADS / 32];
    float           *row = y + (int64_t)blockIdx.x * width, mean = 0, part = 0, other = 0;
    for (int64_t i = threadIdx.x; i < width && !like; i += THREADS) mean += row[i];
    mean = block_sum<THREADS>(mean, room) / (float)width;
    for (int64_t i = threadIdx.x; i < width; i += THREADS) {
        part = fmaf(row[i] - mean, row[i] - mean, part);
        if (like) other = fmaf(like[blockIdx.x * width + i], like[blockIdx.x * width + i], other);
    }
    part = block_sum<THREADS>(part, room) / (float)width;
    other = block_sum<THREADS>(other, room) / (float)width;
    const float cut = mean + by * sqrtf(part), scale = sqrtf(other) / sqrtf(fmaxf(part, by));
    for (int64_t i = threadIdx.x; i < width; i += THREADS)
        row[i] = like ? row[i] * scale : row[i] > cut ? row[i] - cut : 0.0f;
}

int cuda_op_row_size(float *y, const float *like, int64_t rows, int64_t width, float by, cuda_stream s, err *e) {
    const cuda_shape shape = { (unsigned)rows, THREADS, 1, 0, true };
    return rows ? cuda_launch(row_size_kernel, shape, s, e, y, like, width, by) : 0;
}
