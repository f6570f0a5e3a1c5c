/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the quantizers: the 256-wide blocks with two levels of scales, Q2_K to Q6_K and IQ4_XS.
 *
 * Each group is fitted alone; the group scales (and minima) are rounded to multiples of the block's d (and dmin); then
 * every group tries the neighbours of its rounded scale, and d and dmin are solved again by least squares for the codes
 * that result. The last step codes the elements with exactly the numbers that are stored.
 */
#ifndef TENSOR_QUANT_SUPER_H
#define TENSOR_QUANT_SUPER_H

#include "tensor/blocks.h"
#include "tensor/half.h"
#include "tensor/iq_grids.h"
#include "tensor/quant/fit.h"

#include <string.h>

typedef struct super_shape {
    int       groups, size;
    fit_codes codes;      /* symmetric only */
    int       qmax;       /* affine only */
    int       smin, smax; /* range of the stored group scales (affine: also of the minima, from 0) */
} super_shape;

typedef struct super_fit {
    float    d, dmin; /* as stored */
    uint16_t d_half, dmin_half;
    int      scale[16], min[16];
    float    error[16]; /* of each group */
} super_fit;

static inline void super_set(super_fit *f, float d, float dmin) {
    f->d_half = tensor_f32_to_f16(d);
    f->dmin_half = tensor_f32_to_f16(dmin);
    f->d = tensor_f16_to_f32(f->d_half);
    f->dmin = tensor_f16_to_f32(f->dmin_half);
}

static inline float super_error(const super_shape *s, const super_fit *f) {
    float sum = 0;
    for (int g = 0; g < s->groups; g++) sum += f->error[g];
    return sum;
}

static inline int super_clamp(int v, int lo, int hi) { return v < lo ? lo : v > hi ? hi : v; }

/* --- symmetric --------------------------------------------------------------------------------------------------- */

/* d that fits the present codes best; the group scales stay. */
static inline float symmetric_refit(const super_shape *s, const super_fit *f, const float *x, const float *w) {
    float xv[16] = { 0 }, vv[16] = { 0 }, sum_x = 0, sum_v = 0;
    for (int g = 0; g < s->groups; g++) {
        float k = (float)f->scale[g], inverse = f->d * k == 0 ? 0 : 1 / (f->d * k);
        for (int i = g * s->size; i < (g + 1) * s->size; i += LANES) {
            vf    v = fit_values(&s->codes, v_load(x + i) * v_set(inverse)), wv = v * v_load(w + i);
            float a[LANES], b[LANES];
            v_store(a, wv * v_load(x + i));
            v_store(b, wv * v);
            for (int l = 0; l < LANES; l++) {
                xv[(i + l) % 16] += a[l] * k;
                vv[(i + l) % 16] += b[l] * k * k;
            }
        }
    }
    for (int j = 0; j < 16; j++) sum_x += xv[j], sum_v += vv[j];
    return sum_v > 0 ? sum_x / sum_v : f->d;
}

/* Every group takes the best of 16 scales around `centre`. */
static inline void symmetric_choose(const super_shape *s, super_fit *f, const float *x, const float *w) {
    for (int g = 0; g < s->groups; g++) {
        float trial[16], error[16];
        int   first = super_clamp(f->scale[g] - 7, s->smin, s->smax - 15);
        for (int k = 0; k < 16; k++) trial[k] = f->d * (float)(first + k);
        fit_errors(&s->codes, x + g * s->size, w + g * s->size, s->size, trial, 16, error);
        f->error[g] = INFINITY;
        for (int k = 0; k < 16; k++)
            if (error[k] < f->error[g]) f->error[g] = error[k], f->scale[g] = first + k;
    }
}

static inline void super_symmetric(const super_shape *s, const float *x, const float *w, super_fit *out) {
    float     scale[16], peak = 0;
    super_fit f = { 0 };
    bool      fine = s->smax > 63; /* the neighbours of a rounded scale are near enough */
    for (int g = 0; g < s->groups; g++) {
        scale[g] = fit_symmetric(&s->codes, x + g * s->size, w + g * s->size, s->size, fine);
        if (fabsf(scale[g]) > fabsf(peak)) peak = scale[g];
    }
    super_set(&f, peak / (float)s->smin, 0);
    for (int g = 0; g < s->groups; g++) f.scale[g] = fit_round(fit_divide(scale[g], f.d), s->smin, s->smax);
    symmetric_choose(s, &f, x, w);
    *out = f;
    for (int k = 0; k < (fine ? 1 : 2); k++) {
        super_set(&f, symmetric_refit(s, &f, x, w), 0);
        symmetric_choose(s, &f, x, w);
        if (!(super_error(s, &f) < super_error(s, out))) break;
        *out = f;
    }
}

/* --- affine ------------------------------------------------------------------------------------------------------ */

static inline void affine_codes_of(const super_shape *s, const super_fit *f, const float *x, uint8_t codes[256]) {
    for (int g = 0; g < s->groups; g++) {
        float scale = f->d * (float)f->scale[g], min = f->dmin * (float)f->min[g], inverse = scale == 0 ? 0 : 1 / scale;
        for (int i = g * s->size; i < (g + 1) * s->size; i++) {
            float t = (x[i] + min) * inverse;
            t = t > 0 ? t : 0;
            t = t < (float)s->qmax ? t : (float)s->qmax;
            codes[i] = (uint8_t)(int)(t + 0x1.8p23f - 0x1.8p23f);
        }
    }
}

/* x ~ d * a - dmin * b with a = scale * q and b = min, all groups together. */
static inline void affine_refit(const super_shape *s, super_fit *f, const float *x, const float *w) {
    double aa = 0, ab = 0, bb = 0, xa = 0, xb = 0;
    for (int g = 0; g < s->groups; g++) {
        float scale = f->d * (float)f->scale[g], min = f->dmin * (float)f->min[g], inverse = scale == 0 ? 0 : 1 / scale;
        float s1[16] = { 0 }, s2[16] = { 0 }, sx[16] = { 0 }, w0[16] = { 0 }, wx[16] = { 0 };
        for (int i = g * s->size; i < (g + 1) * s->size; i += LANES) {
            vf v = v_load(x + i), u = v_load(w + i);
            vf q = v_round(v_min(v_max((v + v_set(min)) * v_set(inverse), v_set(0)), v_set((float)s->qmax))),
               wq = u * q;
            float t[5][LANES];
            v_store(t[0], wq);
            v_store(t[1], wq * q);
            v_store(t[2], wq * v);
            v_store(t[3], u);
            v_store(t[4], u * v);
            for (int l = 0; l < LANES; l++) {
                int j = (i + l) % 16;
                s1[j] += t[0][l];
                s2[j] += t[1][l];
                sx[j] += t[2][l];
                w0[j] += t[3][l];
                wx[j] += t[4][l];
            }
        }
        float t1 = 0, t2 = 0, tx = 0, u0 = 0, ux = 0;
        for (int j = 0; j < 16; j++) t1 += s1[j], t2 += s2[j], tx += sx[j], u0 += w0[j], ux += wx[j];
        double a = f->scale[g], b = f->min[g];
        aa += a * a * (double)t2;
        ab += a * b * (double)t1;
        bb += b * b * (double)u0;
        xa += a * (double)tx;
        xb += b * (double)ux;
    }
    double det = aa * bb - ab * ab;
    if (det > 0) {
        double d = (xa * bb - xb * ab) / det, dmin = (xa * ab - xb * aa) / det;
        if (d > 0 && dmin >= 0) super_set(f, (float)d, (float)dmin);
    } else if (aa > 0 && xa > 0) {
        super_set(f, (float)(xa / aa), f->dmin);
    }
}

/* Every group takes the best of 4 by 4 scales and minima around its present ones. */
static inline void affine_choose(const super_shape *s, super_fit *f, const float *x, const float *w) {
    for (int g = 0; g < s->groups; g++) {
        float scale[16], offset[16], error[16];
        int   k0 = super_clamp(f->scale[g] - 1, 0, s->smax - 3), m0 = super_clamp(f->min[g] - 1, 0, s->smax - 3);
        for (int k = 0; k < 16; k++) {
            scale[k] = f->d * (float)(k0 + k % 4);
            offset[k] = -f->dmin * (float)(m0 + k / 4);
        }
        fit_affine_errors(x + g * s->size, w + g * s->size, s->size, s->qmax, scale, offset, 16, error);
        f->error[g] = INFINITY;
        for (int k = 0; k < 16; k++)
            if (error[k] < f->error[g]) f->error[g] = error[k], f->scale[g] = k0 + k % 4, f->min[g] = m0 + k / 4;
    }
}

static inline void super_affine(const super_shape *s, const float *x, const float *w, super_fit *out) {
    float     scale[16], offset[16], top = 0, bottom = 0;
    super_fit f = { 0 };
    for (int g = 0; g < s->groups; g++) {
        fit_affine(x + g * s->size, w + g * s->size, s->size, s->qmax, true, &scale[g], &offset[g]);
        top = scale[g] > top ? scale[g] : top;
        bottom = -offset[g] > bottom ? -offset[g] : bottom;
    }
    super_set(&f, top / (float)s->smax, bottom / (float)s->smax);
    for (int g = 0; g < s->groups; g++) {
        f.scale[g] = fit_round(fit_divide(scale[g], f.d), 0, s->smax);
        f.min[g] = fit_round(fit_divide(-offset[g], f.dmin), 0, s->smax);
    }
    affine_choose(s, &f, x, w);
    *out = f;
    for (int k = 0; k < 3; k++) {
        affine_refit(s, &f, x, w);
        affine_choose(s, &f, x, w);
        if (!(super_error(s, &f) < super_error(s, out))) break;
        *out = f;
    }
}

/* --- blocks ------------------------------------------------------------------------------------------------------ */

static void quant_q2_k(const float *x, const float *w, void *block) {
    static const super_shape shape = { .groups = 16, .size = 16, .qmax = 3, .smax = 15 };
    block_q2_k              *b = block;
    super_fit                f;
    uint8_t                  codes[256];
    super_affine(&shape, x, w, &f);
    affine_codes_of(&shape, &f, x, codes);
    b->d = f.d_half;
    b->dmin = f.dmin_half;
    memset(b->qs, 0, sizeof b->qs);
    for (int g = 0; g < 16; g++) b->scales[g] = (uint8_t)(f.scale[g] | f.min[g] << 4);
    for (int i = 0; i < 256; i++) {
        b->qs[32 * (i / 128) + i % 32] |= (uint8_t)(codes[i] << (2 * (i % 128 / 32)));
    }
}

static void pack_scale_mins(const super_fit *f, uint8_t s[12]) {
    for (int j = 0; j < 4; j++) {
        s[j] = (uint8_t)(f->scale[j] | f->scale[j + 4] >> 4 << 6);
        s[j + 4] = (uint8_t)(f->min[j] | f->min[j + 4] >> 4 << 6);
        s[j + 8] = (uint8_t)((f->scale[j + 4] & 15) | (f->min[j + 4] & 15) << 4);
    }
}

/* What Q4_K and Q5_K share: scales, every value's code, and the lower four bits of it. */
static super_fit fit_groups_of_32(int qmax, const float *x, const float *w, uint8_t scales[12], uint8_t low[128],
                                  uint8_t codes[256]) {
    const super_shape shape = { .groups = 8, .size = 32, .qmax = qmax, .smax = 63 };
    super_fit         f;
    super_affine(&shape, x, w, &f);
    pack_scale_mins(&f, scales);
    affine_codes_of(&shape, &f, x, codes);
    memset(low, 0, 128);
    for (int i = 0; i < 256; i++) low[32 * (i / 64) + i % 32] |= (uint8_t)((codes[i] & 15) << (4 * (i / 32 % 2)));
    return f;
}

static void quant_q4_k(const float *x, const float *w, void *block) {
    block_q4_k *b = block;
    uint8_t     codes[256];
    super_fit   f = fit_groups_of_32(15, x, w, b->scales, b->qs, codes);
    b->d = f.d_half;
    b->dmin = f.dmin_half;
}

static void quant_q5_k(const float *x, const float *w, void *block) {
    block_q5_k *b = block;
    uint8_t     codes[256];
    super_fit   f = fit_groups_of_32(31, x, w, b->scales, b->qs, codes);
    b->d = f.d_half;
    b->dmin = f.dmin_half;
    memset(b->qh, 0, sizeof b->qh);
    for (int i = 0; i < 256; i++) b->qh[i % 32] |= (uint8_t)(codes[i] >> 4 << (i / 32));
}

/* Scales by super_symmetric, and every value's code. */
static super_fit fit_symmetric_codes(const super_shape *s, const float *x, const float *w, uint8_t codes[256]) {
    super_fit f;
    super_symmetric(s, x, w, &f);
    for (int g = 0; g < s->groups; g++)
        fit_code_span(&s->codes, x + g * s->size, s->size, f.d * (float)f.scale[g], codes + g * s->size);
    return f;
}

static void quant_q3_k(const float *x, const float *w, void *block) {
    static const super_shape shape = { .groups = 16, .size = 16, .codes = { -4, 3, NULL }, .smin = -32, .smax = 31 };
    block_q3_k              *b = block;
    uint8_t                  codes[256];
    super_fit                f = fit_symmetric_codes(&shape, x, w, codes);
    memset(b, 0, sizeof *b);
    b->d = f.d_half;
    for (int j = 0; j < 16; j++) {
        int s = f.scale[j] + 32;
        b->scales[j % 8] |= (uint8_t)((s & 15) << (j < 8 ? 0 : 4));
        b->scales[8 + j % 4] |= (uint8_t)(s >> 4 << (2 * (j / 4)));
    }
    for (int i = 0; i < 256; i++) {
        int q = codes[i];
        b->qs[32 * (i / 128) + i % 32] |= (uint8_t)((q & 3) << (2 * (i % 128 / 32)));
        b->hmask[i % 32] |= (uint8_t)(q >> 2 << (i / 32));
    }
}

static void quant_q6_k(const float *x, const float *w, void *block) {
    static const super_shape shape = {
        .groups = 16, .size = 16, .codes = { -32, 31, NULL }, .smin = -128, .smax = 127
    };
    block_q6_k *b = block;
    uint8_t     codes[256];
    super_fit   f = fit_symmetric_codes(&shape, x, w, codes);
    b->d = f.d_half;
    for (int g = 0; g < 16; g++) b->scales[g] = (int8_t)f.scale[g];
    for (int half = 0; half < 2; half++) {
        const uint8_t *q = codes + 128 * half;
        for (int l = 0; l < 64; l++) b->ql[64 * half + l] = (uint8_t)((q[l] & 15) | q[64 + l] << 4);
        for (int l = 0; l < 32; l++)
            b->qh[32 * half + l] =
                (uint8_t)(q[l] >> 4 | q[32 + l] >> 4 << 2 | q[64 + l] >> 4 << 4 | q[96 + l] >> 4 << 6);
    }
}

static void quant_iq4_xs(const float *x, const float *w, void *block) {
    const super_shape shape = {
        .groups = 8, .size = 32, .codes = { 0, 15, tensor_iq4_values }, .smin = -32, .smax = 31
    };
    block_iq4_xs *b = block;
    uint8_t       codes[256];
    super_fit     f = fit_symmetric_codes(&shape, x, w, codes);
    memset(b, 0, sizeof *b);
    b->d = f.d_half;
    unsigned high = 0;
    for (int j = 0; j < 8; j++) {
        unsigned s = (unsigned)(f.scale[j] + 32);
        b->scales_l[j / 2] |= (uint8_t)((s & 15) << (4 * (j % 2)));
        high |= s >> 4 << (2 * j);
    }
    b->scales_h = (uint16_t)high;
    for (int i = 0; i < 256; i++) {
        int q = codes[i];
        b->qs[16 * (i / 32) + i % 16] |= (uint8_t)(q << (i % 32 < 16 ? 0 : 4));
    }
}

#endif
