/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recurrent layers, for every instruction set (see vec/scalar.h; the formulas and the layouts are in kernels/recur.h).
 *
 * Value dimensions are cut into blocks of RB vectors; a block runs through all rows with its slice of the state hot in
 * the cache. Sums over the key dimension are one chain of fma per value in rising order, so blocks change no bit.
 */
#ifndef KERNELS_CPU_IMPL_RECUR_IMPL_H
#define KERNELS_CPU_IMPL_RECUR_IMPL_H

enum { RB = 4 };

#define RECUR_INLINE static inline __attribute__((always_inline))

static inline void conv1d_block(const recur_conv *a, int64_t c, int64_t n) {
    const int width = a->width, hist = width - 1;
    float     wt[RECUR_CONV_MAX][VW];
    vf        w[RECUR_CONV_MAX], in[RECUR_CONV_MAX];
    for (int i = 0; i < width; i++) {
        for (int64_t l = 0; l < VW; l++) wt[i][l] = l < n ? a->w[(c + l) * width + i] : 0.0f;
        w[i] = vf_load(wt[i]);
    }
    const vf bias = a->bias ? vf_loadn(a->bias + c, n) : vf_zero();
    for (int i = 0; i < hist; i++) in[i] = vf_loadn(a->state + (size_t)i * a->state_stride + c, n);
    for (int64_t t = 0; t < a->n_rows; t++) {
        in[hist] = vf_loadn(a->x + (size_t)t * a->x_stride + c, n);
        vf s = bias;
        for (int i = 0; i < width; i++) s = vf_fma(w[i], in[i], s);
        if (a->act == OPS_ACT_SILU) s = vf_mul(s, vf_sigmoid(s));
        vf_storen(a->y + (size_t)t * a->y_stride + c, s, n);
        for (int i = 0; i < hist; i++) in[i] = in[i + 1];
    }
    for (int i = 0; i < hist; i++) vf_storen(a->state + (size_t)i * a->state_stride + c, in[i], n);
}

static void VFN(conv1d)(const recur_conv *a, int64_t c0, int64_t c1) {
    for (int64_t c = c0; c < c1; c += VW) conv1d_block(a, c, c1 - c < VW ? c1 - c : VW);
}

static inline float exp_one(float x) {
    float t[VW];
    vf_store(t, vf_exp(vf_set1(x)));
    return t[0];
}

/* One row of one head for up to RB vectors of value dimensions; n is how many values remain in the block. */
RECUR_INLINE void delta_step(float *s, size_t stride, int64_t n, const float *e, const float *q, const float *k,
                             int k_dim, const float *v, float beta, float scale, float *y) {
    vf mem[RB], out[RB];
    for (int b = 0; b < RB; b++) mem[b] = out[b] = vf_zero();
    for (int i = 0; i < k_dim; i++) {
        const vf ei = vf_set1(e[i]), ki = vf_set1(k[i]);
        for (int b = 0; b < RB; b++) {
            if (b * VW >= n) break;
            const vf x = vf_mul(vf_loadn(s + (size_t)i * stride + b * VW, n - b * VW), ei);
            mem[b] = vf_fma(ki, x, mem[b]);
        }
    }
    const vf vb = vf_set1(beta);
    for (int b = 0; b < RB && b * VW < n; b++) mem[b] = vf_mul(vf_sub(vf_loadn(v + b * VW, n - b * VW), mem[b]), vb);
    for (int i = 0; i < k_dim; i++) {
        const vf ei = vf_set1(e[i]), ki = vf_set1(k[i]), qi = vf_set1(q[i] * scale);
        for (int b = 0; b < RB; b++) {
            if (b * VW >= n) break;
            float   *p = s + (size_t)i * stride + b * VW;
            const vf x = vf_fma(ki, mem[b], vf_mul(vf_loadn(p, n - b * VW), ei));
            vf_storen(p, x, n - b * VW);
            out[b] = vf_fma(qi, x, out[b]);
        }
    }
    for (int b = 0; b < RB && b * VW < n; b++) vf_storen(y + b * VW, out[b], n - b * VW);
}

static void VFN(delta)(const recur_delta *a, int h0, int h1) {
    const int per = a->n_vh / a->n_kh;
    float     e[RECUR_DIM_MAX];
    for (int h = h0; h < h1; h++) {
        const int kh = a->k_tiled ? h % a->n_kh : h / per;
        float    *state = a->state + (size_t)h * (size_t)a->k_dim * (size_t)a->v_dim;
        for (int d = 0; d < a->v_dim; d += RB * VW) {
            for (int64_t t = 0; t < a->n_rows; t++) {
                const size_t row = (size_t)t, kd = (size_t)kh * (size_t)a->k_dim;
                const size_t vd = (size_t)h * (size_t)a->v_dim + (size_t)d;
                if (a->g_per_channel) {
                    const float *g = a->g + row * a->g_stride + (size_t)h * (size_t)a->k_dim;
                    for (int i = 0; i < a->k_dim; i += VW) {
                        vf_storen(e + i, vf_exp(vf_loadn(g + i, a->k_dim - i)), a->k_dim - i);
                    }
                } else {
                    const float g = exp_one(a->g[row * a->g_stride + (size_t)h]);
                    for (int i = 0; i < a->k_dim; i++) e[i] = g;
                }
                const float *q = a->q + row * a->q_stride + kd, *k = a->k + row * a->k_stride + kd;
                const float *v = a->v + row * a->v_stride + vd;
                const float  beta = a->beta[row * a->beta_stride + (size_t)h];
                float       *y = a->y + row * a->y_stride + vd;
                if (a->v_dim - d >= RB * VW) { /* a constant count unrolls */
                    delta_step(state + d, (size_t)a->v_dim, RB * VW, e, q, k, a->k_dim, v, beta, a->scale, y);
                } else {
                    delta_step(state + d, (size_t)a->v_dim, a->v_dim - d, e, q, k, a->k_dim, v, beta, a->scale, y);
                }
            }
        }
    }
}

static void VFN(decay)(float *g, const float *x, const float *neg_a, const float *dt_bias, int64_t n_head,
                       int64_t per) {
    if (per == 1) {
        for (int64_t i = 0; i < n_head; i += VW) {
            const int64_t n = n_head - i;
            const vf      s = vf_softplus(vf_add(vf_loadn(x + i, n), vf_loadn(dt_bias + i, n)));
            vf_storen(g + i, vf_mul(vf_loadn(neg_a + i, n), s), n);
        }
        return;
    }
    for (int64_t h = 0; h < n_head; h++) {
        const vf a = vf_set1(neg_a[h]);
        for (int64_t i = 0; i < per; i += VW) {
            const int64_t at = h * per + i, n = per - i;
            const vf      s = vf_softplus(vf_add(vf_loadn(x + at, n), vf_loadn(dt_bias + at, n)));
            vf_storen(g + at, vf_mul(a, s), n);
        }
    }
}

RECUR_INLINE void ssd_step(float *s, size_t stride, int64_t n, float e, float dt, const float *b, const float *c,
                           int n_state, const float *x, float d, float *y) {
    vf       in[RB], out[RB];
    const vf ve = vf_set1(e);
    for (int k = 0; k < RB; k++) {
        const vf v = k * VW < n ? vf_loadn(x + k * VW, n - k * VW) : vf_zero();
        in[k] = vf_mul(v, vf_set1(dt));
        out[k] = vf_mul(v, vf_set1(d));
    }
    for (int i = 0; i < n_state; i++) {
        const vf bi = vf_set1(b[i]), ci = vf_set1(c[i]);
        for (int k = 0; k < RB; k++) {
            if (k * VW >= n) break;
            float   *p = s + (size_t)i * stride + k * VW;
            const vf v = vf_fma(bi, in[k], vf_mul(vf_loadn(p, n - k * VW), ve));
            vf_storen(p, v, n - k * VW);
            out[k] = vf_fma(ci, v, out[k]);
        }
    }
    for (int k = 0; k < RB && k * VW < n; k++) vf_storen(y + k * VW, out[k], n - k * VW);
}

static void VFN(ssd)(const recur_ssd *a, int h0, int h1) {
    const int per = a->n_head / a->n_group;
    for (int h = h0; h < h1; h++) {
        float       *state = a->state + (size_t)h * (size_t)a->n_state * (size_t)a->head_dim;
        const size_t g = (size_t)(h / per) * (size_t)a->n_state;
        const float  skip = a->d ? a->d[h] : 0.0f, bias = a->dt_bias ? a->dt_bias[h] : 0.0f;
        for (int64_t t = 0; t < a->n_rows; t++) {
            const size_t row = (size_t)t;
            float        sp[VW];
            vf_store(sp, a->dt ? vf_softplus(vf_set1(a->dt[row * a->dt_stride + (size_t)h] + bias)) : vf_set1(1.0f));
            const float dt = sp[0] < a->dt_min ? a->dt_min : sp[0] > a->dt_max ? a->dt_max : sp[0];
            const float e = exp_one(dt * a->a[h]);
            for (int d = 0; d < a->head_dim; d += RB * VW) {
                const size_t at = (size_t)h * (size_t)a->head_dim + (size_t)d;
                const float *b = a->b + row * a->b_stride + g, *c = a->c + row * a->c_stride + g;
                const float *x = a->x + row * a->x_stride + at;
                float       *y = a->y + row * a->y_stride + at;
                if (a->head_dim - d >= RB * VW) {
                    ssd_step(state + d, (size_t)a->head_dim, RB * VW, e, dt, b, c, a->n_state, x, skip, y);
                } else {
                    ssd_step(state + d, (size_t)a->head_dim, a->head_dim - d, e, dt, b, c, a->n_state, x, skip, y);
                }
            }
        }
    }
}

static void scan_block(const recur_scan *a, int64_t c, int64_t n) {
    float    at[RECUR_STATE_MAX][VW]; /* the block's decays by state */
    const vf bias = vf_loadn(a->dt_bias + c, n), skip = vf_loadn(a->d + c, n);
    for (int i = 0; i < a->n_state; i++) {
        for (int64_t l = 0; l < VW; l++) at[i][l] = l < n ? a->a[(c + l) * a->n_state + i] : 0.0f;
    }
    for (int64_t t = 0; t < a->n_rows; t++) {
        const size_t row = (size_t)t;
        const float *b = a->b + row * a->b_stride, *cc = a->c + row * a->c_stride;
        const vf     dt = vf_softplus(vf_add(vf_loadn(a->dt + row * a->dt_stride + c, n), bias));
        const vf     x = vf_loadn(a->x + row * a->x_stride + c, n), in = vf_mul(dt, x);
        vf           out = vf_mul(skip, x);
        for (int i = 0; i < a->n_state; i++) {
            float   *p = a->state + (size_t)i * (size_t)a->n_channel + c;
            const vf e = vf_exp(vf_mul(dt, vf_load(at[i])));
            const vf s = vf_fma(vf_set1(b[i]), in, vf_mul(vf_loadn(p, n), e));
            vf_storen(p, s, n);
            out = vf_fma(vf_set1(cc[i]), s, out);
        }
        vf_storen(a->y + row * a->y_stride + c, out, n);
    }
}

static void VFN(scan)(const recur_scan *a, int64_t c0, int64_t c1) {
    for (int64_t c = c0; c < c1; c += VW) scan_block(a, c, c1 - c < VW ? c1 - c : VW);
}

#endif
