/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantizing of the 256-wide blocks with two levels of scales: Q2_K to Q6_K and IQ4_XS.
 *
 * Each group is fitted alone; the group scales (and minima) are rounded to multiples of the block's d (and dmin); then
 * d and dmin are solved again by least squares for the codes that result, and every group tries the neighbours of its
 * rounded scale. The last step codes the elements with exactly the numbers that are stored.
 */
#include "tensor/blocks.h"
#include "tensor/codec_impl.h"
#include "tensor/half.h"
#include "tensor/iq_grids.h"
#include "tensor/quant_fit.h"

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
} super_fit;

static void set_d(super_fit *f, float d, float dmin) {
    f->d_half = tensor_f32_to_f16(d);
    f->dmin_half = tensor_f32_to_f16(dmin);
    f->d = tensor_f16_to_f32(f->d_half);
    f->dmin = tensor_f16_to_f32(f->dmin_half);
}

static double symmetric_error(const super_shape *s, const super_fit *f, const float *x) {
    double sum = 0;
    for (int g = 0; g < s->groups; g++)
        sum += fit_error(&s->codes, x + g * s->size, s->size, f->d * (float)f->scale[g]);
    return sum;
}

/* d that fits the present codes best; the group scales stay. */
static float symmetric_refit(const super_shape *s, const super_fit *f, const float *x) {
    double xv = 0, vv = 0;
    for (int i = 0; i < 256; i++) {
        int    k = f->scale[i / s->size];
        double v = k * fit_value(&s->codes, fit_code(&s->codes, fit_divide(x[i], f->d * (float)k)));
        xv += (double)x[i] * v;
        vv += v * v;
    }
    return vv > 0 ? (float)(xv / vv) : f->d;
}

static void symmetric_neighbours(const super_shape *s, super_fit *f, const float *x) {
    for (int g = 0; g < s->groups; g++) {
        int    centre = f->scale[g];
        double best = INFINITY;
        for (int k = centre - 1; k <= centre + 1; k++) {
            if (k < s->smin || k > s->smax) continue;
            float e = fit_error(&s->codes, x + g * s->size, s->size, f->d * (float)k);
            if (e < best) best = e, f->scale[g] = k;
        }
    }
}

static void fit_super_symmetric(const super_shape *s, const float *x, super_fit *out) {
    float     scale[16], peak = 0;
    super_fit f = { 0 };
    for (int g = 0; g < s->groups; g++) {
        scale[g] = fit_symmetric(&s->codes, x + g * s->size, s->size);
        if (fabsf(scale[g]) > fabsf(peak)) peak = scale[g];
    }
    set_d(&f, peak / (float)s->smin, 0);
    for (int g = 0; g < s->groups; g++) f.scale[g] = fit_round(fit_divide(scale[g], f.d), s->smin, s->smax);
    double best = symmetric_error(s, &f, x);
    *out = f;
    for (int k = 0; k < 3; k++) {
        set_d(&f, symmetric_refit(s, &f, x), 0);
        symmetric_neighbours(s, &f, x);
        double e = symmetric_error(s, &f, x);
        if (!(e < best)) break;
        best = e;
        *out = f;
    }
}

static int affine_code(const super_shape *s, float x, float scale, float min) {
    return fit_round(fit_divide(x + min, scale), 0, s->qmax);
}

static double affine_error(const super_shape *s, const super_fit *f, const float *x) {
    double sum = 0;
    for (int g = 0; g < s->groups; g++) {
        sum +=
            fit_affine_error(x + g * s->size, s->size, s->qmax, f->d * (float)f->scale[g], -f->dmin * (float)f->min[g]);
    }
    return sum;
}

/* x ~ d * a - dmin * b with a = scale * q and b = min, all groups together. */
static void affine_refit(const super_shape *s, super_fit *f, const float *x) {
    double aa = 0, ab = 0, bb = 0, xa = 0, xb = 0;
    for (int i = 0; i < 256; i++) {
        int    g = i / s->size;
        double b = f->min[g];
        double a = f->scale[g] * affine_code(s, x[i], f->d * (float)f->scale[g], f->dmin * (float)f->min[g]);
        aa += a * a;
        ab += a * b;
        bb += b * b;
        xa += (double)x[i] * a;
        xb += (double)x[i] * b;
    }
    double det = aa * bb - ab * ab;
    if (det > 0) {
        double d = (xa * bb - xb * ab) / det, dmin = (xa * ab - xb * aa) / det;
        if (d > 0 && dmin >= 0) set_d(f, (float)d, (float)dmin);
    } else if (aa > 0 && xa > 0) {
        set_d(f, (float)(xa / aa), f->dmin);
    }
}

static void affine_neighbours(const super_shape *s, super_fit *f, const float *x) {
    for (int g = 0; g < s->groups; g++) {
        int    k0 = f->scale[g], m0 = f->min[g];
        double best = INFINITY;
        for (int k = k0 - 1; k <= k0 + 1; k++) {
            for (int m = m0 - 1; m <= m0 + 1; m++) {
                if (k < 0 || k > s->smax || m < 0 || m > s->smax) continue;
                float e = fit_affine_error(x + g * s->size, s->size, s->qmax, f->d * (float)k, -f->dmin * (float)m);
                if (e < best) best = e, f->scale[g] = k, f->min[g] = m;
            }
        }
    }
}

static void fit_super_affine(const super_shape *s, const float *x, super_fit *out) {
    float     scale[16], offset[16], top = 0, bottom = 0;
    super_fit f = { 0 };
    for (int g = 0; g < s->groups; g++) {
        fit_affine(x + g * s->size, s->size, s->qmax, 1, &scale[g], &offset[g]);
        top = fmaxf(top, scale[g]);
        bottom = fmaxf(bottom, -offset[g]);
    }
    set_d(&f, top / (float)s->smax, bottom / (float)s->smax);
    for (int g = 0; g < s->groups; g++) {
        f.scale[g] = fit_round(fit_divide(scale[g], f.d), 0, s->smax);
        f.min[g] = fit_round(fit_divide(-offset[g], f.dmin), 0, s->smax);
    }
    double best = affine_error(s, &f, x);
    *out = f;
    for (int k = 0; k < 3; k++) {
        affine_neighbours(s, &f, x);
        affine_refit(s, &f, x);
        double e = affine_error(s, &f, x);
        if (!(e < best)) break;
        best = e;
        *out = f;
    }
}

void quant_q2_k(const float *src, void *block) {
    static const super_shape shape = { .groups = 16, .size = 16, .qmax = 3, .smax = 15 };
    block_q2_k              *b = block;
    super_fit                f;
    fit_super_affine(&shape, src, &f);
    b->d = f.d_half;
    b->dmin = f.dmin_half;
    memset(b->qs, 0, sizeof b->qs);
    for (int g = 0; g < 16; g++) b->scales[g] = (uint8_t)(f.scale[g] | f.min[g] << 4);
    for (int i = 0; i < 256; i++) {
        int g = i / 16, q = affine_code(&shape, src[i], f.d * (float)f.scale[g], f.dmin * (float)f.min[g]);
        b->qs[32 * (i / 128) + i % 32] |= (uint8_t)(q << (2 * (i % 128 / 32)));
    }
}

static void pack_scale_mins(const super_fit *f, uint8_t s[12]) {
    for (int j = 0; j < 4; j++) {
        s[j] = (uint8_t)(f->scale[j] | f->scale[j + 4] >> 4 << 6);
        s[j + 4] = (uint8_t)(f->min[j] | f->min[j + 4] >> 4 << 6);
        s[j + 8] = (uint8_t)((f->scale[j + 4] & 15) | (f->min[j + 4] & 15) << 4);
    }
}

/* The part that Q4_K and Q5_K share: scales, and every value's code. */
static super_fit fit_groups_of_32(int qmax, const float *src, uint8_t scales[12], uint8_t codes[256]) {
    const super_shape shape = { .groups = 8, .size = 32, .qmax = qmax, .smax = 63 };
    super_fit         f;
    fit_super_affine(&shape, src, &f);
    pack_scale_mins(&f, scales);
    for (int i = 0; i < 256; i++) {
        int g = i / 32;
        codes[i] = (uint8_t)affine_code(&shape, src[i], f.d * (float)f.scale[g], f.dmin * (float)f.min[g]);
    }
    return f;
}

void quant_q4_k(const float *src, void *block) {
    block_q4_k *b = block;
    uint8_t     codes[256];
    super_fit   f = fit_groups_of_32(15, src, b->scales, codes);
    b->d = f.d_half;
    b->dmin = f.dmin_half;
    memset(b->qs, 0, sizeof b->qs);
    for (int i = 0; i < 256; i++) b->qs[32 * (i / 64) + i % 32] |= (uint8_t)(codes[i] << (4 * (i / 32 % 2)));
}

void quant_q5_k(const float *src, void *block) {
    block_q5_k *b = block;
    uint8_t     codes[256];
    super_fit   f = fit_groups_of_32(31, src, b->scales, codes);
    b->d = f.d_half;
    b->dmin = f.dmin_half;
    memset(b->qs, 0, sizeof b->qs);
    memset(b->qh, 0, sizeof b->qh);
    for (int i = 0; i < 256; i++) {
        int g = i / 32, q = codes[i];
        b->qs[32 * (i / 64) + i % 32] |= (uint8_t)((q & 15) << (4 * (g % 2)));
        b->qh[i % 32] |= (uint8_t)(q >> 4 << g);
    }
}

static int symmetric_code(const super_shape *s, const super_fit *f, const float *x, int i) {
    int group = i / s->size;
    return fit_code(&s->codes, fit_divide(x[i], f->d * (float)f->scale[group]));
}

void quant_q3_k(const float *src, void *block) {
    static const super_shape shape = { .groups = 16, .size = 16, .codes = { -4, 3, NULL }, .smin = -32, .smax = 31 };
    block_q3_k              *b = block;
    super_fit                f;
    fit_super_symmetric(&shape, src, &f);
    memset(b, 0, sizeof *b);
    b->d = f.d_half;
    for (int j = 0; j < 16; j++) {
        int s = f.scale[j] + 32;
        b->scales[j % 8] |= (uint8_t)((s & 15) << (j < 8 ? 0 : 4));
        b->scales[8 + j % 4] |= (uint8_t)(s >> 4 << (2 * (j / 4)));
    }
    for (int i = 0; i < 256; i++) {
        int q = symmetric_code(&shape, &f, src, i) + 4;
        b->qs[32 * (i / 128) + i % 32] |= (uint8_t)((q & 3) << (2 * (i % 128 / 32)));
        b->hmask[i % 32] |= (uint8_t)(q >> 2 << (i / 32));
    }
}

void quant_q6_k(const float *src, void *block) {
    static const super_shape shape = {
        .groups = 16, .size = 16, .codes = { -32, 31, NULL }, .smin = -128, .smax = 127
    };
    block_q6_k *b = block;
    super_fit   f;
    fit_super_symmetric(&shape, src, &f);
    memset(b, 0, sizeof *b);
    b->d = f.d_half;
    for (int g = 0; g < 16; g++) b->scales[g] = (int8_t)f.scale[g];
    for (int i = 0; i < 256; i++) {
        int q = symmetric_code(&shape, &f, src, i) + 32, half = i / 128, quarter = i % 128 / 32, l = i % 32;
        b->ql[64 * half + 32 * (quarter % 2) + l] |= (uint8_t)((q & 15) << (quarter < 2 ? 0 : 4));
        b->qh[32 * half + l] |= (uint8_t)(q >> 4 << (2 * quarter));
    }
}

void quant_iq4_xs(const float *src, void *block) {
    const super_shape shape = {
        .groups = 8, .size = 32, .codes = { 0, 15, tensor_iq4_values }, .smin = -32, .smax = 31
    };
    block_iq4_xs *b = block;
    super_fit     f;
    fit_super_symmetric(&shape, src, &f);
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
        int q = symmetric_code(&shape, &f, src, i);
        b->qs[16 * (i / 32) + i % 16] |= (uint8_t)(q << (i % 32 < 16 ? 0 : 4));
    }
}
