/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the quantizers: the legacy, ternary and FP4 blocks, IQ4_NL and the formats Q8_0, Q8_1, Q8_K. */
#ifndef TENSOR_QUANT_PLAIN_H
#define TENSOR_QUANT_PLAIN_H

#include "tensor/blocks.h"
#include "tensor/half.h"
#include "tensor/iq_grids.h"
#include "tensor/quant/eight.h"
#include "tensor/quant/fit.h"

#include <string.h>

static inline float stored_half(uint16_t *out, float v) {
    *out = tensor_f32_to_f16(v);
    return tensor_f16_to_f32(*out);
}

static void quant_q4_0(const float *x, const float *w, void *block) {
    static const fit_codes codes = { -8, 7, NULL };
    block_q4_0            *b = block;
    uint16_t               half;
    float                  d = stored_half(&half, fit_symmetric(&codes, x, w, 32));
    b->d = half;
    for (int j = 0; j < 16; j++) {
        int low = fit_round(fit_divide(x[j], d), -8, 7) + 8, high = fit_round(fit_divide(x[j + 16], d), -8, 7) + 8;
        b->qs[j] = (uint8_t)(low | high << 4);
    }
}

/* 32 codes up to `most`, and the scale and minimum with which both kinds of blocks begin. */
static void affine_codes(const float *x, const float *w, int most, void *block, uint8_t codes[32]) {
    float    d, m;
    uint16_t halves[2];
    fit_affine(x, w, 32, most, &d, &m);
    d = stored_half(&halves[0], d);
    m = stored_half(&halves[1], m);
    memcpy(block, halves, sizeof halves);
    for (int j = 0; j < 32; j++) codes[j] = (uint8_t)fit_round(fit_divide(x[j] - m, d), 0, most);
}

static void quant_q4_1(const float *x, const float *w, void *block) {
    block_q4_1 *b = block;
    uint8_t     q[32];
    affine_codes(x, w, 15, block, q);
    for (int j = 0; j < 16; j++) b->qs[j] = (uint8_t)(q[j] | q[j + 16] << 4);
}

static void pack_five(const uint8_t q[32], uint8_t qs[16], uint8_t qh[4]) {
    memset(qh, 0, 4);
    for (int j = 0; j < 32; j++) qh[j / 8] = (uint8_t)(qh[j / 8] | q[j] >> 4 << (j % 8));
    for (int j = 0; j < 16; j++) qs[j] = (uint8_t)((q[j] & 15) | (q[j + 16] & 15) << 4);
}

static void quant_q5_0(const float *x, const float *w, void *block) {
    static const fit_codes codes = { -16, 15, NULL };
    block_q5_0            *b = block;
    uint8_t                q[32];
    uint16_t               half;
    float                  d = stored_half(&half, fit_symmetric(&codes, x, w, 32));
    b->d = half;
    for (int j = 0; j < 32; j++) q[j] = (uint8_t)(fit_round(fit_divide(x[j], d), -16, 15) + 16);
    pack_five(q, b->qs, b->qh);
}

static void quant_q5_1(const float *x, const float *w, void *block) {
    block_q5_1 *b = block;
    uint8_t     q[32];
    affine_codes(x, w, 31, block, q);
    pack_five(q, b->qs, b->qh);
}

/* The 8-bit formats take the peak as 127 and no search: they also quantize activations, where speed counts. */
static void quant_q8_0(const float *x, const float *w, void *block) {
    block_q8_0 *b = block;
    float       d = peak_of(x, 32) / 127;
    (void)w;
    b->d = eight_half(d);
    codes_of_8(x, 32, d, b->qs);
}

static void quant_q8_1(const float *x, const float *w, void *block) {
    block_q8_1 *b = block;
    float       d = peak_of(x, 32) / 127;
    int         sum = 0;
    (void)w;
    b->d = eight_half(d);
    codes_of_8(x, 32, d, b->qs);
    for (int j = 0; j < 32; j++) sum += b->qs[j];
    b->s = tensor_f32_to_f16(d * (float)sum);
}

static void quant_q8_k(const float *x, const float *w, void *block) {
    block_q8_k *b = block;
    float       d = peak_of(x, 256) / 127;
    (void)w;
    b->d = d;
    codes_of_8(x, 256, d, b->qs);
    for (int g = 0; g < 16; g++) {
        int sum = 0;
        for (int j = 16 * g; j < 16 * g + 16; j++) sum += b->qs[j];
        b->bsums[g] = (int16_t)sum;
    }
}

static void quant_iq4_nl(const float *x, const float *w, void *block) {
    const fit_codes codes = { 0, 15, tensor_iq4_values };
    block_iq4_nl   *b = block;
    uint16_t        half;
    float           d = stored_half(&half, fit_symmetric(&codes, x, w, 32));
    b->d = half;
    for (int j = 0; j < 16; j++) {
        int low = fit_code(&codes, fit_divide(x[j], d)), high = fit_code(&codes, fit_divide(x[j + 16], d));
        b->qs[j] = (uint8_t)(low | high << 4);
    }
}

static const fit_codes ternary = { -1, 1, NULL };

/* n digits 0..2, first one most significant, as the fraction of 256 that dequantizing multiplies out again: the
 * smallest byte that is not below the exact value. */
static uint8_t ternary_pack(const int *digits, int n) {
    int v = 0;
    for (int i = 0; i < 5; i++) v = 3 * v + (i < n ? digits[i] : 0);
    return (uint8_t)((v * 256 + 242) / 243);
}

static void quant_tq1_0(const float *x, const float *w, void *block) {
    block_tq1_0 *b = block;
    int          q[256], digits[5];
    uint16_t     half;
    float        d = stored_half(&half, fabsf(fit_symmetric(&ternary, x, w, 256)));
    b->d = half;
    for (int i = 0; i < 256; i++) q[i] = fit_round(fit_divide(x[i], d), -1, 1) + 1;
    for (int m = 0; m < 32; m++) {
        for (int n = 0; n < 5; n++) digits[n] = q[32 * n + m];
        b->qs[m] = ternary_pack(digits, 5);
    }
    for (int m = 0; m < 16; m++) {
        for (int n = 0; n < 5; n++) digits[n] = q[160 + 16 * n + m];
        b->qs[32 + m] = ternary_pack(digits, 5);
    }
    for (int m = 0; m < 4; m++) {
        for (int n = 0; n < 4; n++) digits[n] = q[240 + 4 * n + m];
        b->qh[m] = ternary_pack(digits, 4);
    }
}

static void quant_tq2_0(const float *x, const float *w, void *block) {
    block_tq2_0 *b = block;
    uint16_t     half;
    float        d = stored_half(&half, fabsf(fit_symmetric(&ternary, x, w, 256)));
    b->d = half;
    memset(b->qs, 0, sizeof b->qs);
    for (int i = 0; i < 256; i++) {
        int q = fit_round(fit_divide(x[i], d), -1, 1) + 1;
        b->qs[32 * (i / 128) + i % 32] |= (uint8_t)(q << (2 * (i % 128 / 32)));
    }
}

/* --- e2m1 -------------------------------------------------------------------------------------------------------- */

/* Twice the values of e2m1, ascending. */
static const int8_t    e2m1_values[16] = { -12, -8, -6, -4, -3, -2, -1, 0, 0, 1, 2, 3, 4, 6, 8, 12 };
static const fit_codes e2m1_codes = { 0, 15, e2m1_values };

/* As tensor_f32_to_e2m1, without branches: ties go to the even code. */
static inline uint8_t e2m1_code(float x) {
    float a = fabsf(x);
    int   code = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
    return (uint8_t)(code | (tensor_f32_bits(x) >> 28 & 8u));
}

/* The scale code with the least error for n elements that become e2m1. */
static uint8_t e8m0_for_e2m1(const float *x, const float *w, int n) {
    float peak = peak_of(x, n), scale[16] = { 0 }, error[16];
    int   e, codes[3], best = 0;
    if (!(peak > 0)) return 0;
    frexpf(peak, &e); /* peak = f * 2^e, f in [.5, 1): 2^(e-1) is its power of two; 4 the largest one of e2m1 */
    for (int k = 0; k < 3; k++) {
        int code = e - 1 - 2 + 127 + k - 1;
        codes[k] = code < 0 ? 0 : code > 254 ? 254 : code;
        scale[k] = 0.5f * tensor_e8m0_to_f32((uint8_t)codes[k]);
    }
    fit_errors(&e2m1_codes, x, w, n, scale, 16, error);
    for (int k = 1; k < 3; k++)
        if (error[k] < error[best]) best = k;
    return (uint8_t)codes[best];
}

static uint8_t e4m3_for_e2m1(const float *x, const float *w, int n) {
    float scale[16] = { 0 }, error[16];
    int   start = tensor_f32_to_e4m3(peak_of(x, n) / 6), best = -1;
    for (int k = 0; k < 16; k++) {
        int code = start - 5 + k;
        if (code >= 0 && code <= 0x7e) scale[k] = 0.5f * tensor_e4m3_to_f32((uint8_t)code);
    }
    fit_errors(&e2m1_codes, x, w, n, scale, 16, error);
    for (int k = 0; k < 16; k++) {
        int code = start - 5 + k;
        if (code >= 0 && code <= 0x7e && (best < 0 || error[k] < error[best])) best = k;
    }
    return (uint8_t)(start - 5 + best);
}

static inline void e2m1_pack(const float *x, int half, float d, uint8_t *out) {
    float inverse = d == 0 ? 0 : 1 / d;
    for (int j = 0; j < half; j++)
        out[j] = (uint8_t)(e2m1_code(x[j] * inverse) | e2m1_code(x[j + half] * inverse) << 4);
}

static void quant_mxfp4(const float *x, const float *w, void *block) {
    block_mxfp4 *b = block;
    b->e = e8m0_for_e2m1(x, w, 32);
    e2m1_pack(x, 16, tensor_e8m0_to_f32(b->e), b->qs);
}

static void quant_nvfp4(const float *x, const float *w, void *block) {
    block_nvfp4 *b = block;
    for (int g = 0; g < 4; g++) {
        b->d[g] = e4m3_for_e2m1(x + 16 * g, w + 16 * g, 16);
        e2m1_pack(x + 16 * g, 8, tensor_e4m3_to_f32(b->d[g]), b->qs + 8 * g);
    }
}

/* --- halves ------------------------------------------------------------------------------------------------------ */

static void from_f16(const void *src, float *dst, int64_t n) {
    int64_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)((const char *)src + 2 * i))));
#endif
    for (; i < n; i++) {
        uint16_t h;
        memcpy(&h, (const char *)src + 2 * i, 2);
        dst[i] = tensor_f16_to_f32(h);
    }
}

static void from_bf16(const void *src, float *dst, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, (const char *)src + 2 * i, 2);
        dst[i] = tensor_bf16_to_f32(h);
    }
}

static void to_f16(const float *src, void *dst, int64_t n) {
    int64_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((void *)((char *)dst + 2 * i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#endif
    for (; i < n; i++) {
        uint16_t h = tensor_f32_to_f16(src[i]);
        memcpy((char *)dst + 2 * i, &h, 2);
    }
}

#endif
