/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers with a fixed state, position by position: the short convolution (a thread per sequence and channel), the gated
 * delta rule and the state space layer (a warp per sequence, head and 32 columns of the state, which stay in shared
 * memory over all rows of the sequence).
 */
#include "kernels/cuda/act.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"

#define THREADS 128
#define CONV_MOST 16

__device__ static inline bool is_fresh(const cuda_batch &b, int s) { return b.pos[b.q_start[s]] == 0; }

__device__ static inline float *state_of(const cuda_state &st, int s) {
    return st.state + (int64_t)st.batch.slot[s] * st.slot_floats + st.offset;
}

static __global__ __launch_bounds__(THREADS) void conv_kernel(const cuda_conv a) {
    launch_begin();
    const int i = (int)(blockIdx.x * THREADS + threadIdx.x), s = i / a.width, c = i % a.width, last = a.kernel - 1;
    if (s >= a.st.batch.n_seq) return;
    float     *state = state_of(a.st, s) + c, w[CONV_MOST], x[CONV_MOST];
    const bool fresh = is_fresh(a.st.batch, s);
#pragma unroll
    for (int k = 0; k < CONV_MOST; k++) {
        w[k] = k < a.kernel ? a.w[(int64_t)c * a.kernel + k] : 0.0f;
        x[k] = k < last && !fresh ? state[(int64_t)k * a.channels] : 0.0f;
    }
    const float bias = a.bias ? a.bias[c] : 0.0f;
    for (int t = a.st.batch.q_start[s]; t < a.st.batch.q_start[s + 1]; t++) {
        const float in = a.x[(int64_t)t * a.width + c];
        float       sum = bias;
#pragma unroll
        for (int k = 0; k < CONV_MOST; k++) {
            if (k < last) sum = fmaf(w[k], x[k], sum);
            if (k == last) sum = fmaf(w[k], in, sum);
        }
        a.out[(int64_t)t * a.width + c] = act_of(a.act, sum);
#pragma unroll
        for (int k = 0; k + 1 < CONV_MOST; k++) x[k] = k + 1 < last ? x[k + 1] : k + 1 == last ? in : x[k];
    }
#pragma unroll
    for (int k = 0; k < CONV_MOST; k++) {
        if (k < last) state[(int64_t)k * a.channels] = x[k];
    }
}

int cuda_op_conv(const cuda_conv *a, cuda_stream s, err *e) {
    const int64_t    n = (int64_t)a->st.batch.n_seq * a->width;
    const cuda_shape shape = { (unsigned)((n + THREADS - 1) / THREADS), THREADS, 1, 0, true };
    if (a->kernel > CONV_MOST)
        return err_set(e, ERR_UNSUPPORTED, "CUDA: a convolution over %d positions; at most %d are supported", a->kernel,
                       CONV_MOST);
    return cuda_launch(conv_kernel, shape, s, e, *a);
}

/* 32 columns of a head's matrix, [rows][32] in shared memory. */
__device__ static inline void state_load(float *to, const float *from, int rows, int cols, int j, bool zero) {
    for (int i = 0; i < rows; i++) to[i * 32 + threadIdx.x] = j < cols && !zero ? from[(int64_t)i * cols + j] : 0.0f;
}

__device__ static inline void state_save(float *to, const float *from, int rows, int cols, int j) {
    for (int i = 0; i < rows && j < cols; i++) to[(int64_t)i * cols + j] = from[i * 32 + threadIdx.x];
}

static __global__ __launch_bounds__(32) void delta_kernel(const cuda_delta a) {
    launch_begin();
    extern __shared__ float room[]; /* state, then decay, k, q of a row */
    float                  *st = room, *decay = st + a.dim_k * 32, *k = decay + a.dim_k, *q = k + a.dim_k;
    const int tiles = (a.dim_v + 31) / 32, tile = (int)blockIdx.x % tiles, h = (int)blockIdx.x / tiles % a.heads_v,
              s = (int)blockIdx.x / tiles / a.heads_v, j = tile * 32 + (int)threadIdx.x;
    const int kh = a.tiled ? h % a.heads_k : h / (a.heads_v / a.heads_k);
    float    *state = state_of(a.st, s) + (int64_t)h * a.dim_k * a.dim_v;
    state_load(st, state, a.dim_k, a.dim_v, j, is_fresh(a.st.batch, s));
    for (int t = a.st.batch.q_start[s]; t < a.st.batch.q_start[s + 1]; t++) {
        const int64_t hv = (int64_t)t * a.heads_v + h, hk = (int64_t)t * a.heads_k + kh;
        __syncwarp();
        for (int i = (int)threadIdx.x; i < a.dim_k; i += 32) {
            decay[i] = expf(a.per_channel ? a.g[hv * a.dim_k + i] : a.g[hv]);
            k[i] = a.k[hk * a.dim_k + i];
            q[i] = a.q[hk * a.dim_k + i] * a.scale;
        }
        __syncwarp();
        float sum = 0, y = 0;
        for (int i = 0; i < a.dim_k; i++) {
            const float v = st[i * 32 + threadIdx.x] * decay[i];
            st[i * 32 + threadIdx.x] = v;
            sum = fmaf(k[i], v, sum);
        }
        if (j >= a.dim_v) continue;
        const float u = (a.v[hv * a.dim_v + j] - sum) * a.beta[hv];
        for (int i = 0; i < a.dim_k; i++) {
            const float v = fmaf(k[i], u, st[i * 32 + threadIdx.x]);
            st[i * 32 + threadIdx.x] = v;
            y = fmaf(q[i], v, y);
        }
        a.out[hv * a.dim_v + j] = y;
    }
    state_save(state, st, a.dim_k, a.dim_v, j);
}

int cuda_op_delta(const cuda_delta *a, cuda_stream s, err *e) {
    const int64_t    blocks = (int64_t)a->st.batch.n_seq * a->heads_v * ((a->dim_v + 31) / 32);
    const cuda_shape shape = { (unsigned)blocks, 32, 1, (size_t)a->dim_k * (32 + 3) * sizeof(float), true };
    return cuda_launch(delta_kernel, shape, s, e, *a);
}

static __global__ __launch_bounds__(32) void ssm_kernel(const cuda_ssm a) {
    launch_begin();
    extern __shared__ float room[]; /* state, then b and c of a row */
    float                  *st = room, *b = st + a.n_state * 32, *c = b + a.n_state;
    const int tiles = (a.dim + 31) / 32, tile = (int)blockIdx.x % tiles, h = (int)blockIdx.x / tiles % a.n_head,
              s = (int)blockIdx.x / tiles / a.n_head, j = tile * 32 + (int)threadIdx.x, g = h / (a.n_head / a.n_group);
    float *state = state_of(a.st, s) + (int64_t)h * a.n_state * a.dim;
    state_load(st, state, a.n_state, a.dim, j, is_fresh(a.st.batch, s));
    for (int t = a.st.batch.q_start[s]; t < a.st.batch.q_start[s + 1]; t++) {
        const int64_t at = ((int64_t)t * a.n_head + h) * a.dim + j, gg = ((int64_t)t * a.n_group + g) * a.n_state;
        __syncwarp();
        for (int i = (int)threadIdx.x; i < a.n_state; i += 32) b[i] = a.b[gg + i], c[i] = a.c[gg + i];
        __syncwarp();
        if (j >= a.dim) continue;
        float dt = 1.0f;
        if (a.dt) dt = act_of(CUDA_ACT_SOFTPLUS, a.dt[(int64_t)t * a.n_head + h] + (a.dt_bias ? a.dt_bias[h] : 0.0f));
        if (a.dt_max > 0) dt = fminf(dt, a.dt_max);
        dt = fmaxf(dt, a.dt_min);
        const float decay = expf(dt * a.va[h]), x = a.x[at], dx = dt * x;
        float       y = a.vd ? a.vd[h] * x : 0.0f;
        for (int i = 0; i < a.n_state; i++) {
            const float v = fmaf(b[i], dx, decay * st[i * 32 + threadIdx.x]);
            st[i * 32 + threadIdx.x] = v;
            y = fmaf(c[i], v, y);
        }
        a.out[at] = y;
    }
    state_save(state, st, a.n_state, a.dim, j);
}

int cuda_op_ssm(const cuda_ssm *a, cuda_stream s, err *e) {
    const int64_t    blocks = (int64_t)a->st.batch.n_seq * a->n_head * ((a->dim + 31) / 32);
    const cuda_shape shape = { (unsigned)blocks, 32, 1, (size_t)a->n_state * (32 + 2) * sizeof(float), true };
    return cuda_launch(ssm_kernel, shape, s, e, *a);
}

/* Mamba's scan: a thread per sequence and channel, its state where it is kept. */
static __global__ __launch_bounds__(THREADS) void scan_kernel(const cuda_scan a) {
    launch_begin();
    const int i = (int)(blockIdx.x * THREADS + threadIdx.x), s = i / a.n_channel, ch = i % a.n_channel;
    if (s >= a.st.batch.n_seq) return;
    float *state = state_of(a.st, s) + ch;
    bool   zero = is_fresh(a.st.batch, s);
    for (int t = a.st.batch.q_start[s]; t < a.st.batch.q_start[s + 1]; t++, zero = false) {
        const int64_t at = (int64_t)t * a.n_channel + ch;
        const float   dt = act_of(CUDA_ACT_SOFTPLUS, a.dt[at] + a.dt_bias[ch]), x = a.x[at], dx = dt * x;
        float         y = a.vd[ch] * x;
        for (int k = 0; k < a.n_state; k++) {
            float      *st = state + (int64_t)k * a.n_channel;
            const float old = zero ? 0.0f : *st;
            *st = fmaf(a.b[(int64_t)t * a.n_state + k], dx, expf(dt * a.va[(int64_t)ch * a.n_state + k]) * old);
            y = fmaf(a.c[(int64_t)t * a.n_state + k], *st, y);
        }
        a.out[at] = y;
    }
}

int cuda_op_scan(const cuda_scan *a, cuda_stream s, err *e) {
    const int64_t    n = (int64_t)a->st.batch.n_seq * a->n_channel;
    const cuda_shape shape = { (unsigned)((n + THREADS - 1) / THREADS), THREADS, 1, 0, true };
    return cuda_launch(scan_kernel, shape, s, e, *a);
}
