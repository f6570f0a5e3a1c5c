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
#include "tensor/quant/groups.h"

#include <string.h>

typedef struct super_fit {
    float    d, dmin; /* as stored */
    uint16_t d_half, dmin_half;
    float    scale[16], min[16]; /* of each group: whole numbers */
    float    error[16];
} super_fit;

/* A block with its groups side by side. */
typedef struct super_block {
    const group_shape *s;
    const float       *x, *w;
    group_set          set[16 / LANES];
} super_block;

static inline void super_set(super_fit *f, float d, float dmin) {
    f->d_half = tensor_f32_to_f16(d);
    f->dmin_half = tensor_f32_to_f16(dmin);
    f->d = tensor_f16_to_f32(f->d_half);
    f->dmin = tensor_f16_to_f32(f->dmin_half);
}

static inline float super_error(const group_shape *s, const super_fit *f) {
    float sum = 0;
    for (int g = 0; g < s->groups; g++) sum += f->error[g];
    return sum;
}

/* Multiples of `by` nearest to the groups' numbers. */
static inline void super_round(const group_shape *s, const float *of, float by, float *out) {
    for (int k = 0; k < group_n_sets(s); k++) {
        vf v = group_get(s, of, k) / v_set(by == 0 ? INFINITY : by);
        group_put(out, k, v_round(group_clamp(v, (float)s->smin, (float)s->smax)));
    }
}

/* --- symmetric --------------------------------------------------------------------------------------------------- */

/* d that fits the present codes best; the group scales stay. */
static inline float symmetric_refit(const super_block *b, const super_fit *f) {
    const group_shape *s = b->s;
    fit_levels         levels = fit_levels_of(&s->codes);
    vf                 xv[16 / LANES], vv[16 / LANES];
    float              all_x[16], all_v[16], sum_x = 0, sum_v = 0;
    for (int j = 0; j < 16 / LANES; j++) xv[j] = vv[j] = v_set(0);
    for (int g = 0; g < s->groups; g++) {
        float k = f->scale[g], inverse = f->d * k == 0 ? 0 : 1 / (f->d * k);
        for (int i = g * s->size; i < (g + 1) * s->size; i += LANES) {
            vf x = v_load(b->x + i), v = fit_values(&levels, x * v_set(inverse)), wv = v * v_load(b->w + i);
            xv[i % 16 / LANES] += wv * x * v_set(k);
            vv[i % 16 / LANES] += wv * v * v_set(k) * v_set(k);
        }
    }
    for (int j = 0; j < 16 / LANES; j++) {
        v_store(all_x + j * LANES, xv[j]);
        v_store(all_v + j * LANES, vv[j]);
    }
    for (int j = 0; j < 16; j++) sum_x += all_x[j], sum_v += all_v[j];
    return sum_v > 0 ? sum_x / sum_v : f->d;
}

static inline void symmetric_choose(const super_block *b, super_fit *f) {
    for (int k = 0; k < group_n_sets(b->s); k++) {
        vf scale = group_get(b->s, f->scale, k);
        group_put(f->error, k, group_symmetric_choose(b->s, &b->set[k], f->d, &scale));
        group_put(f->scale, k, scale);
    }
}

static inline void super_symmetric(const group_shape *s, const float *x, const float *w, super_fit *out) {
    float       scale[16] = { 0 }, peak = 0;
    super_block b = { .s = s, .x = x, .w = w };
    super_fit   f = { 0 };
    bool        fine = s->smax > 63; /* the neighbours of a rounded scale are near enough */
    group_load(s, x, w, b.set);
    for (int k = 0; k < group_n_sets(s); k++) group_put(scale, k, group_symmetric(s, &b.set[k], fine));
    for (int g = 0; g < s->groups; g++)
        if (fabsf(scale[g]) > fabsf(peak)) peak = scale[g];
    super_set(&f, peak / (float)s->smin, 0);
    super_round(s, scale, f.d, f.scale);
    symmetric_choose(&b, &f);
    *out = f;
    for (int k = 0; k < (fine ? 1 : 2); k++) {
        super_set(&f, symmetric_refit(&b, &f), 0);
        symmetric_choose(&b, &f);
        if (!(super_error(s, &f) < super_error(s, out))) break;
        *out = f;
    }
}

/* --- affine ------------------------------------------------------------------------------------------------------ */

static inline void affine_codes_of(const group_shape *s, const super_fit *f, const float *x, uint8_t codes[256]) {
    for (int g = 0; g < s->groups; g++) {
        float scale = f->d * f->scale[g], min = f->dmin * f->min[g], inverse = scale == 0 ? 0 : 1 / scale;
        for (int i = g * s->size; i < (g + 1) * s->size; i++) {
            float t = (x[i] + min) * inverse;
            t = t > 0 ? t : 0;
            t = t < (float)s->qmax ? t : (float)s->qmax;
            codes[i] = (uint8_t)(int)(t + 0x1.8p23f - 0x1.8p23f);
        }
    }
}

/* x ~ d * a - dmin * b with a = scale * q and b = min, all groups together; w0, wx: sums of w and w x. */
static inline void affine_refit(const super_block *block, super_fit *f, const float *w0, const float *wx) {
    const group_shape *s = block->s;
    double             aa = 0, ab = 0, bb = 0, xa = 0, xb = 0;
    float              q1[16] = { 0 }, q2[16] = { 0 }, xq[16] = { 0 };
    for (int k = 0; k < group_n_sets(s); k++) {
        group_sums t = group_affine_sums(s, &block->set[k], v_set(f->d) * group_get(s, f->scale, k),
                                         v_set(f->dmin) * group_get(s, f->min, k));
        group_put(q1, k, t.q1);
        group_put(q2, k, t.q2);
        group_put(xq, k, t.xq);
    }
    for (int g = 0; g < s->groups; g++) {
        double a = (double)f->scale[g], b = (double)f->min[g];
        aa += a * a * (double)q2[g];
        ab += a * b * (double)q1[g];
        bb += b * b * (double)w0[g];
        xa += a * (double)xq[g];
        xb += b * (double)wx[g];
    }
    double det = aa * bb - ab * ab;
    if (det > 0) {
        double d = (xa * bb - xb * ab) / det, dmin = (xa * ab - xb * aa) / det;
        if (d > 0 && dmin >= 0) super_set(f, (float)d, (float)dmin);
    } else if (aa > 0 && xa > 0) {
        super_set(f, (float)(xa / aa), f->dmin);
    }
}

static inline void affine_choose(const super_block *b, super_fit *f) {
    for (int k = 0; k < group_n_sets(b->s); k++) {
        vf scale = group_get(b->s, f->scale, k), min = group_get(b->s, f->min, k);
        group_put(f->error, k, group_affine_choose(b->s, &b->set[k], f->d, f->dmin, &scale, &min));
        group_put(f->scale, k, scale);
        group_put(f->min, k, min);
    }
}

static inline void super_affine(const group_shape *s, const float *x, const float *w, super_fit *out) {
    float       scale[16] = { 0 }, below[16] = { 0 }, w0[16] = { 0 }, wx[16] = { 0 }, top = 0, bottom = 0;
    super_block b = { .s = s, .x = x, .w = w };
    super_fit   f = { 0 };
    group_start start;
    group_load(s, x, w, b.set);
    group_affine_start(s, &start);
    for (int k = 0; k < group_n_sets(s); k++) {
        vf a, offset, u0, ux;
        group_affine(s, &b.set[k], &start, &a, &offset);
        group_weights(s, &b.set[k], &u0, &ux);
        group_put(scale, k, a);
        group_put(below, k, -offset);
        group_put(w0, k, u0);
        group_put(wx, k, ux);
    }
    for (int g = 0; g < s->groups; g++) {
        top = scale[g] > top ? scale[g] : top;
        bottom = below[g] > bottom ? below[g] : bottom;
    }
    super_set(&f, top / (float)s->smax, bottom / (float)s->smax);
    super_round(s, scale, f.d, f.scale);
    super_round(s, below, f.dmin, f.min);
    affine_choose(&b, &f);
    *out = f;
    for (int k = 0; k < 3; k++) {
        affine_refit(&b, &f, w0, wx);
        affine_choose(&b, &f);
        if (!(super_error(s, &f) < super_error(s, out))) break;
        *out = f;
    }
}

/* --- blocks ------------------------------------------------------------------------------------------------------ */

/* Two bits of each code, four codes to a byte, in two halves. */
static inline void pack_pairs(const uint8_t codes[256], uint8_t out[64]) {
    for (int half = 0; half < 2; half++) {
        const uint8_t *q = codes + 128 * half;
        for (int l = 0; l < 32; l++)
            out[32 * half + l] = (uint8_t)((q[l] & 3) | (q[32 + l] & 3) << 2 | (q[64 + l] & 3) << 4 | q[96 + l] << 6);
    }
}

static void quant_q2_k(const float *x, const float *w, void *block) {
    static const group_shape shape = { .groups = 16, .size = 16, .qmax = 3, .smax = 15 };
    block_q2_k              *b = block;
    super_fit                f;
    uint8_t                  codes[256];
    super_affine(&shape, x, w, &f);
    affine_codes_of(&shape, &f, x, codes);
    b->d = f.d_half;
    b->dmin = f.dmin_half;
    for (int g = 0; g < 16; g++) b->scales[g] = (uint8_t)((int)f.scale[g] | (int)f.min[g] << 4);
    pack_pairs(codes, b->qs);
}

static void pack_scale_mins(const super_fit *f, uint8_t s[12]) {
    for (int j = 0; j < 4; j++) {
        int scale = (int)f->scale[j + 4], min = (int)f->min[j + 4];
        s[j] = (uint8_t)((int)f->scale[j] | scale >> 4 << 6);
        s[j + 4] = (uint8_t)((int)f->min[j] | min >> 4 << 6);
        s[j + 8] = (uint8_t)((scale & 15) | (min & 15) << 4);
    }
}

/* What Q4_K and Q5_K share: scales, every value's code, and the lower four bits of it. */
static super_fit fit_groups_of_32(int qmax, const float *x, const float *w, uint8_t scales[12], uint8_t low[128],
                                  uint8_t codes[256]) {
    const group_shape shape = { .groups = 8, .size = 32, .qmax = qmax, .smax = 63 };
    super_fit         f;
    super_affine(&shape, x, w, &f);
    pack_scale_mins(&f, scales);
    affine_codes_of(&shape, &f, x, codes);
    for (int k = 0; k < 4; k++) {
        const uint8_t *q = codes + 64 * k;
        for (int l = 0; l < 32; l++) low[32 * k + l] = (uint8_t)((q[l] & 15) | q[32 + l] << 4);
    }
    return f;
}

/* The highest bit of each code, which is its bit `at`: a byte has those of eight codes that are 32 apart. */
static inline void pack_top_bits(const uint8_t codes[256], int at, uint8_t out[32]) {
    memset(out, 0, 32);
    for (int k = 0; k < 8; k++)
        for (int l = 0; l < 32; l++) out[l] = (uint8_t)(out[l] | codes[32 * k + l] >> at << k);
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
    pack_top_bits(codes, 4, b->qh);
}

/* Scales by super_symmetric, and every value's code. */
static super_fit fit_symmetric_codes(const group_shape *s, const float *x, const float *w, uint8_t codes[256]) {
    super_fit f;
    super_symmetric(s, x, w, &f);
    for (int g = 0; g < s->groups; g++)
        fit_code_span(&s->codes, x + g * s->size, s->size, f.d * f.scale[g], codes + g * s->size);
    return f;
}

static void quant_q3_k(const float *x, const float *w, void *block) {
    static const group_shape shape = { .groups = 16, .size = 16, .codes = { -4, 3, NULL }, .smin = -32, .smax = 31 };
    block_q3_k              *b = block;
    uint8_t                  codes[256];
    super_fit                f = fit_symmetric_codes(&shape, x, w, codes);
    memset(b, 0, sizeof *b);
    b->d = f.d_half;
    for (int j = 0; j < 16; j++) {
        int s = (int)f.scale[j] + 32;
        b->scales[j % 8] |= (uint8_t)((s & 15) << (j < 8 ? 0 : 4));
        b->scales[8 + j % 4] |= (uint8_t)(s >> 4 << (2 * (j / 4)));
    }
    pack_pairs(codes, b->qs);
    pack_top_bits(codes, 2, b->hmask);
}

static void quant_q6_k(const float *x, const float *w, void *block) {
    static const group_shape shape = {
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
    const group_shape shape = {
        .groups = 8, .size = 32, .codes = { 0, 15, tensor_iq4_values }, .smin = -32, .smax = 31
    };
    block_iq4_xs *b = block;
    uint8_t       codes[256];
    super_fit     f = fit_symmetric_codes(&shape, x, w, codes);
    memset(b, 0, sizeof *b);
    b->d = f.d_half;
    unsigned high = 0;
    for (int j = 0; j < 8; j++) {
        unsigned s = (unsigned)((int)f.scale[j] + 32);
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
