/* SPDX-License-Identifier: Apache-2.0 */
/* Quantizing of the legacy, ternary and FP4 blocks, of IQ4_NL and of the activation formats Q8_0, Q8_1, Q8_K. */
#include "tensor/blocks.h"
#include "tensor/codec_impl.h"
#include "tensor/half.h"
#include "tensor/iq_grids.h"
#include "tensor/quant_fit.h"

#include <string.h>

static float peak_of(const float *x, int n) {
    float peak = 0;
    for (int i = 0; i < n; i++) {
        if (fabsf(x[i]) > peak) peak = fabsf(x[i]);
    }
    return peak;
}

static float stored_half(uint16_t *out, float v) {
    *out = tensor_f32_to_f16(v);
    return tensor_f16_to_f32(*out);
}

void quant_q4_0(const float *src, void *block) {
    static const fit_codes codes = { -8, 7, NULL };
    block_q4_0            *b = block;
    uint16_t               half;
    float                  d = stored_half(&half, fit_symmetric(&codes, src, 32));
    b->d = half;
    for (int j = 0; j < 16; j++) {
        int low = fit_round(fit_divide(src[j], d), -8, 7) + 8, high = fit_round(fit_divide(src[j + 16], d), -8, 7) + 8;
        b->qs[j] = (uint8_t)(low | high << 4);
    }
}

/* Scale, minimum and 32 codes up to `most`. */
static void affine_codes(const float *src, int most, uint16_t *d_half, uint16_t *m_half, uint8_t codes[32]) {
    float d, m;
    fit_affine(src, 32, most, 0, &d, &m);
    d = stored_half(d_half, d);
    m = stored_half(m_half, m);
    for (int j = 0; j < 32; j++) codes[j] = (uint8_t)fit_round(fit_divide(src[j] - m, d), 0, most);
}

void quant_q4_1(const float *src, void *block) {
    block_q4_1 *b = block;
    uint16_t    d, m;
    uint8_t     q[32];
    affine_codes(src, 15, &d, &m, q);
    b->d = d;
    b->m = m;
    for (int j = 0; j < 16; j++) b->qs[j] = (uint8_t)(q[j] | q[j + 16] << 4);
}

static void pack_five(const uint8_t q[32], uint8_t qs[16], uint8_t qh[4]) {
    memset(qh, 0, 4);
    for (int j = 0; j < 32; j++) qh[j / 8] = (uint8_t)(qh[j / 8] | q[j] >> 4 << (j % 8));
    for (int j = 0; j < 16; j++) qs[j] = (uint8_t)((q[j] & 15) | (q[j + 16] & 15) << 4);
}

void quant_q5_0(const float *src, void *block) {
    static const fit_codes codes = { -16, 15, NULL };
    block_q5_0            *b = block;
    uint8_t                q[32];
    uint16_t               half;
    float                  d = stored_half(&half, fit_symmetric(&codes, src, 32));
    b->d = half;
    for (int j = 0; j < 32; j++) q[j] = (uint8_t)(fit_round(fit_divide(src[j], d), -16, 15) + 16);
    pack_five(q, b->qs, b->qh);
}

void quant_q5_1(const float *src, void *block) {
    block_q5_1 *b = block;
    uint16_t    d, m;
    uint8_t     q[32];
    affine_codes(src, 31, &d, &m, q);
    b->d = d;
    b->m = m;
    pack_five(q, b->qs, b->qh);
}

/* The 8-bit formats take the peak as 127 and no search: they also quantize activations, where speed counts. */
void quant_q8_0(const float *src, void *block) {
    block_q8_0 *b = block;
    float       d = peak_of(src, 32) / 127;
    b->d = tensor_f32_to_f16(d);
    for (int j = 0; j < 32; j++) b->qs[j] = (int8_t)fit_round(fit_divide(src[j], d), -127, 127);
}

void quant_q8_1(const float *src, void *block) {
    block_q8_1 *b = block;
    float       d = peak_of(src, 32) / 127;
    int         sum = 0;
    b->d = tensor_f32_to_f16(d);
    for (int j = 0; j < 32; j++) sum += b->qs[j] = (int8_t)fit_round(fit_divide(src[j], d), -127, 127);
    b->s = tensor_f32_to_f16(d * (float)sum);
}

void quant_q8_k(const float *src, void *block) {
    block_q8_k *b = block;
    float       d = peak_of(src, 256) / 127;
    b->d = d;
    for (int g = 0; g < 16; g++) {
        int sum = 0;
        for (int j = 16 * g; j < 16 * g + 16; j++) {
            sum += b->qs[j] = (int8_t)fit_round(fit_divide(src[j], d), -127, 127);
        }
        b->bsums[g] = (int16_t)sum;
    }
}

void quant_iq4_nl(const float *src, void *block) {
    const fit_codes codes = { 0, 15, tensor_iq4_values };
    block_iq4_nl   *b = block;
    uint16_t        half;
    float           d = stored_half(&half, fit_symmetric(&codes, src, 32));
    b->d = half;
    for (int j = 0; j < 16; j++) {
        int low = fit_code(&codes, fit_divide(src[j], d)), high = fit_code(&codes, fit_divide(src[j + 16], d));
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

void quant_tq1_0(const float *src, void *block) {
    block_tq1_0 *b = block;
    int          q[256], digits[5];
    uint16_t     half;
    float        d = stored_half(&half, fabsf(fit_symmetric(&ternary, src, 256)));
    b->d = half;
    for (int i = 0; i < 256; i++) q[i] = fit_round(fit_divide(src[i], d), -1, 1) + 1;
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

void quant_tq2_0(const float *src, void *block) {
    block_tq2_0 *b = block;
    uint16_t     half;
    float        d = stored_half(&half, fabsf(fit_symmetric(&ternary, src, 256)));
    b->d = half;
    memset(b->qs, 0, sizeof b->qs);
    for (int i = 0; i < 256; i++) {
        int q = fit_round(fit_divide(src[i], d), -1, 1) + 1;
        b->qs[32 * (i / 128) + i % 32] |= (uint8_t)(q << (2 * (i % 128 / 32)));
    }
}

static double e2m1_error(const float *x, int n, float scale) {
    double sum = 0;
    for (int i = 0; i < n; i++) {
        uint8_t code = tensor_f32_to_e2m1(fit_divide(x[i], scale));
        double  e = (double)x[i] - (double)scale * 0.5 * tensor_e2m1_doubled[code];
        sum += e * e;
    }
    return sum;
}

uint8_t quant_e8m0_for_e2m1(const float *x, int n) {
    float   peak = peak_of(x, n);
    int     e;
    uint8_t best = 0;
    double  best_error = INFINITY;
    if (!(peak > 0)) return 0;
    frexpf(peak, &e); /* peak = f * 2^e, f in [.5, 1): 2^(e-1) is its power of two; 4 the largest one of e2m1 */
    for (int k = -1; k <= 1; k++) {
        int    code = e - 1 - 2 + 127 + k;
        double error;
        if (code < 0) code = 0;
        if (code > 254) code = 254;
        error = e2m1_error(x, n, tensor_e8m0_to_f32((uint8_t)code));
        if (error < best_error) best_error = error, best = (uint8_t)code;
    }
    return best;
}

uint8_t quant_e4m3_for_e2m1(const float *x, int n) {
    int    start = tensor_f32_to_e4m3(peak_of(x, n) / 6), best = start;
    double best_error = INFINITY;
    for (int code = start - 3; code <= start + 5; code++) {
        if (code < 0 || code > 0x7e) continue;
        double error = e2m1_error(x, n, tensor_e4m3_to_f32((uint8_t)code));
        if (error < best_error) best_error = error, best = code;
    }
    return (uint8_t)best;
}

void quant_mxfp4(const float *src, void *block) {
    block_mxfp4 *b = block;
    b->e = quant_e8m0_for_e2m1(src, 32);
    float d = tensor_e8m0_to_f32(b->e);
    for (int j = 0; j < 16; j++) {
        unsigned low = tensor_f32_to_e2m1(src[j] / d), high = tensor_f32_to_e2m1(src[j + 16] / d);
        b->qs[j] = (uint8_t)(low | high << 4);
    }
}

void quant_nvfp4(const float *src, void *block) {
    block_nvfp4 *b = block;
    for (int g = 0; g < 4; g++) {
        const float *x = src + 16 * g;
        b->d[g] = quant_e4m3_for_e2m1(x, 16);
        float d = tensor_e4m3_to_f32(b->d[g]);
        for (int j = 0; j < 8; j++) {
            unsigned low = tensor_f32_to_e2m1(fit_divide(x[j], d)), high = tensor_f32_to_e2m1(fit_divide(x[j + 8], d));
            b->qs[8 * g + j] = (uint8_t)(low | high << 4);
        }
    }
}
