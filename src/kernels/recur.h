/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recurrent layers: short causal convolution, gated delta rule (also per channel: KDA), Mamba2 scan.
 *
 * The state goes forward token by token in f32, so any cut of a prompt into calls gives the same bits. The lanes are
 * the value dimensions; every value's chain of operations is fixed. Work is split by channels or by heads: ranges never
 * share state. Rows are f32; strides count floats.
 */
#ifndef KERNELS_RECUR_H
#define KERNELS_RECUR_H

#include "kernels/ops.h"
#include "kernels/slot.h"

enum { RECUR_CONV_MAX = 8, RECUR_DIM_MAX = 512, RECUR_STATE_MAX = 256 };

/*
 * Depthwise causal convolution of n_rows inputs, channels [c0, c1):
 *
 *     y[t][c] = act(bias[c] + sum over i of w[c * width + i] * x[t - width + 1 + i][c]), i rising
 *
 * state holds the last width - 1 inputs, oldest first: [width - 1][state_stride]; it supplies the rows before the first
 * one and is replaced by the last ones. y is not x. width 2..RECUR_CONV_MAX; bias may be NULL; act NONE or SILU.
 */
typedef struct recur_conv {
    float       *y;
    const float *x;
    size_t       y_stride, x_stride;
    int64_t      n_rows;
    const float *w, *bias;
    int          width;
    float       *state;
    size_t       state_stride;
    ops_act      act;
} recur_conv;
typedef void recur_conv1d_fn(const recur_conv *a, int64_t c0, int64_t c1);

/*
 * Gated delta rule, value heads [h0, h1). Per row, with S = state of the head, [k_dim][v_dim]:
 *
 *     S[i] *= exp(g[i])
 *     u     = (v - sum over i of k[i] S[i]) * beta
 *     S[i] += k[i] u
 *     y     = sum over i of (scale q[i]) S[i]
 *
 * g is one number per head (g_per_channel false) or k_dim numbers per head. Value head h uses key head
 * h / (n_vh / n_kh), or h % n_kh when k_tiled. q and k are already normed.
 */
typedef struct recur_delta {
    float       *y; /* row t, head h at y + t * y_stride + h * v_dim */
    const float *q, *k, *v, *g, *beta;
    size_t       y_stride, q_stride, k_stride, v_stride, g_stride, beta_stride;
    int64_t      n_rows;
    int          n_kh, n_vh, k_dim, v_dim; /* dims at most RECUR_DIM_MAX */
    bool         g_per_channel, k_tiled;
    float        scale;
    float       *state; /* head h at state + h * k_dim * v_dim */
} recur_delta;
typedef void recur_delta_fn(const recur_delta *a, int h0, int h1);

/* g = neg_a[h] * softplus(x + dt_bias) for heads of `per` values: the decay of the delta rules. dt_bias: [n_head *
 * per]. */
typedef void recur_decay_fn(float *g, const float *x, const float *neg_a, const float *dt_bias, int64_t n_head,
                            int64_t per);

/*
 * Mamba2 scan, heads [h0, h1). Per row, with S = state of the head, [n_state][head_dim], and a < 0:
 *
 *     dt   = clamp(softplus(dt_raw + dt_bias), dt_min, dt_max)
 *     e    = exp(dt * a)
 *     S[i] = e S[i] + b[i] (dt x)
 *     y    = d x + sum over i of c[i] S[i]
 *
 * Head h uses group h / (n_head / n_group). dt NULL: dt is one, clamped like any other.
 */
typedef struct recur_ssd {
    float       *y;              /* row t, head h at y + t * y_stride + h * head_dim */
    const float *x, *b, *c, *dt; /* dt raw, [row][n_head] */
    size_t       y_stride, x_stride, b_stride, c_stride, dt_stride;
    int64_t      n_rows;
    int          n_head, n_group, head_dim, n_state; /* dims at most RECUR_DIM_MAX */
    const float *a, *dt_bias, *d;                    /* [n_head]; dt_bias and d may be NULL */
    float        dt_min, dt_max;
    float       *state; /* head h at state + h * n_state * head_dim */
} recur_ssd;
typedef void recur_ssd_fn(const recur_ssd *a, int h0, int h1);

/*
 * Mamba scan, channels [c0, c1). Per row and channel: dt = softplus(dt_raw + dt_bias),
 *   S[i] = exp(dt a[i]) S[i] + b[i] (dt x);  y = d x + sum over i of c[i] S[i]      (i rising; b and c for all channels)
 */
typedef struct recur_scan {
    float       *y;              /* row t, channel c at y + t * y_stride + c */
    const float *x, *b, *c, *dt; /* dt raw, one per channel */
    size_t       y_stride, x_stride, b_stride, c_stride, dt_stride;
    int64_t      n_rows, n_channel;
    int          n_state; /* at most RECUR_STATE_MAX */
    const float *a;       /* [n_channel][n_state], below zero */
    const float *dt_bias, *d;
    float       *state; /* [n_state][n_channel] */
} recur_scan;
typedef void recur_scan_fn(const recur_scan *a, int64_t c0, int64_t c1);

#define KERNELS_RECUR_SLOTS(X)                                                                                         \
    X(recur_conv1d_fn, conv1d)                                                                                         \
    X(recur_delta_fn, delta)                                                                                           \
    X(recur_decay_fn, decay)                                                                                           \
    X(recur_ssd_fn, ssd)                                                                                               \
    X(recur_scan_fn, scan)

typedef struct kernels_recur {
    KERNELS_RECUR_SLOTS(KERNEL_SLOT)
} kernels_recur;

void kernels_recur_init_scalar(kernels_recur *t);
void kernels_recur_init_avx2(kernels_recur *t, unsigned cpu);
void kernels_recur_init_avx512(kernels_recur *t, unsigned cpu);
void kernels_recur_init_neon(kernels_recur *t, unsigned cpu);
void kernels_recur_list(const kernels_recur *t, kernels_visit *visit, void *ctx);

#endif
