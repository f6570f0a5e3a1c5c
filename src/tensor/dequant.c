/* SPDX-License-Identifier: Apache-2.0 */
/* Dequantizing of the legacy, K, ternary and FP4 blocks; the layouts are in blocks.h. */
#include "tensor/blocks.h"
#include "tensor/codec_impl.h"
#include "tensor/half.h"

void dequant_q4_0(const void *block, float *dst) {
    const block_q4_0 *b = block;
    float             d = tensor_f16_to_f32(b->d);
    for (int j = 0; j < 16; j++) {
        dst[j] = d * (float)((b->qs[j] & 15) - 8);
        dst[j + 16] = d * (float)((b->qs[j] >> 4) - 8);
    }
}

void dequant_q4_1(const void *block, float *dst) {
    const block_q4_1 *b = block;
    float             d = tensor_f16_to_f32(b->d), m = tensor_f16_to_f32(b->m);
    for (int j = 0; j < 16; j++) {
        dst[j] = d * (float)(b->qs[j] & 15) + m;
        dst[j + 16] = d * (float)(b->qs[j] >> 4) + m;
    }
}

static int fifth_bit(const uint8_t qh[4], int j) { return (qh[j / 8] >> (j % 8) & 1) << 4; }

void dequant_q5_0(const void *block, float *dst) {
    const block_q5_0 *b = block;
    float             d = tensor_f16_to_f32(b->d);
    for (int j = 0; j < 16; j++) {
        dst[j] = d * (float)(((b->qs[j] & 15) | fifth_bit(b->qh, j)) - 16);
        dst[j + 16] = d * (float)((b->qs[j] >> 4 | fifth_bit(b->qh, j + 16)) - 16);
    }
}

void dequant_q5_1(const void *block, float *dst) {
    const block_q5_1 *b = block;
    float             d = tensor_f16_to_f32(b->d), m = tensor_f16_to_f32(b->m);
    for (int j = 0; j < 16; j++) {
        dst[j] = d * (float)((b->qs[j] & 15) | fifth_bit(b->qh, j)) + m;
        dst[j + 16] = d * (float)(b->qs[j] >> 4 | fifth_bit(b->qh, j + 16)) + m;
    }
}

void dequant_q8_0(const void *block, float *dst) {
    const block_q8_0 *b = block;
    float             d = tensor_f16_to_f32(b->d);
    for (int j = 0; j < 32; j++) dst[j] = d * (float)b->qs[j];
}

void dequant_q8_1(const void *block, float *dst) {
    const block_q8_1 *b = block;
    float             d = tensor_f16_to_f32(b->d);
    for (int j = 0; j < 32; j++) dst[j] = d * (float)b->qs[j];
}

void dequant_q2_k(const void *block, float *dst) {
    const block_q2_k *b = block;
    float             d = tensor_f16_to_f32(b->d), dmin = tensor_f16_to_f32(b->dmin);
    for (int g = 0; g < 16; g++) { /* 16 elements: half g / 8, shift g % 8 / 2 */
        const uint8_t *qs = b->qs + 32 * (g / 8) + 16 * (g % 2);
        int            shift = 2 * (g % 8 / 2);
        float          scale = d * (float)(b->scales[g] & 15), min = dmin * (float)(b->scales[g] >> 4);
        for (int j = 0; j < 16; j++) dst[16 * g + j] = scale * (float)(qs[j] >> shift & 3) - min;
    }
}

void dequant_q3_k(const void *block, float *dst) {
    const block_q3_k *b = block;
    float             d = tensor_f16_to_f32(b->d);
    for (int g = 0; g < 16; g++) {
        const uint8_t *qs = b->qs + 32 * (g / 8) + 16 * (g % 2), *hmask = b->hmask + 16 * (g % 2);
        int            shift = 2 * (g % 8 / 2), bit = g / 2;
        float          scale = d * (float)block_q3_k_scale(b->scales, g);
        for (int j = 0; j < 16; j++) {
            int q = (qs[j] >> shift & 3) | (hmask[j] >> bit & 1) << 2;
            dst[16 * g + j] = scale * (float)(q - 4);
        }
    }
}

/* 256 codes in groups of 32, with a scale and a minimum each. */
static void scale_groups(const uint8_t *codes, uint16_t d_half, uint16_t dmin_half, const uint8_t *scales, float *dst) {
    float d = tensor_f16_to_f32(d_half), dmin = tensor_f16_to_f32(dmin_half);
    for (int g = 0; g < 8; g++) {
        int s, m;
        block_k4_scale_min(scales, g, &s, &m);
        float scale = d * (float)s, min = dmin * (float)m;
        for (int j = 32 * g; j < 32 * g + 32; j++) dst[j] = scale * (float)codes[j] - min;
    }
}

void dequant_q4_k(const void *block, float *dst) {
    const block_q4_k *b = block;
    uint8_t           codes[256];
    for (int i = 0; i < 256; i++) codes[i] = b->qs[32 * (i / 64) + i % 32] >> (4 * (i / 32 % 2)) & 15;
    scale_groups(codes, b->d, b->dmin, b->scales, dst);
}

void dequant_q5_k(const void *block, float *dst) {
    const block_q5_k *b = block;
    uint8_t           codes[256];
    for (int i = 0; i < 256; i++) {
        int g = i / 32;
        codes[i] = (uint8_t)((b->qs[32 * (g / 2) + i % 32] >> (4 * (g % 2)) & 15) | (b->qh[i % 32] >> g & 1) << 4);
    }
    scale_groups(codes, b->d, b->dmin, b->scales, dst);
}

void dequant_q6_k(const void *block, float *dst) {
    const block_q6_k *b = block;
    float             d = tensor_f16_to_f32(b->d);
    for (int i = 0; i < 256; i++) {
        int half = i / 128, quarter = i % 128 / 32, l = i % 32, group = i / 16;
        int low = b->ql[64 * half + 32 * (quarter % 2) + l] >> (quarter < 2 ? 0 : 4) & 15;
        int high = b->qh[32 * half + l] >> (2 * quarter) & 3;
        dst[i] = d * (float)b->scales[group] * (float)((low | high << 4) - 32);
    }
}

void dequant_q8_k(const void *block, float *dst) {
    const block_q8_k *b = block;
    float             d = b->d;
    for (int j = 0; j < 256; j++) dst[j] = d * (float)b->qs[j];
}

/* Digit n (0 first) of a byte that holds ternary digits as a fraction of 256. */
static int ternary_digit(uint8_t byte, int n) {
    static const uint8_t pow3[5] = { 1, 3, 9, 27, 81 };
    uint8_t              rest = (uint8_t)(byte * pow3[n]);
    return rest * 3 >> 8;
}

void dequant_tq1_0(const void *block, float *dst) {
    const block_tq1_0 *b = block;
    float              d = tensor_f16_to_f32(b->d);
    for (int n = 0; n < 5; n++) {
        for (int m = 0; m < 32; m++) dst[32 * n + m] = (float)(ternary_digit(b->qs[m], n) - 1) * d;
        for (int m = 0; m < 16; m++) dst[160 + 16 * n + m] = (float)(ternary_digit(b->qs[32 + m], n) - 1) * d;
    }
    for (int n = 0; n < 4; n++) {
        for (int m = 0; m < 4; m++) dst[240 + 4 * n + m] = (float)(ternary_digit(b->qh[m], n) - 1) * d;
    }
}

void dequant_tq2_0(const void *block, float *dst) {
    const block_tq2_0 *b = block;
    float              d = tensor_f16_to_f32(b->d);
    for (int i = 0; i < 256; i++)
        dst[i] = (float)((b->qs[32 * (i / 128) + i % 32] >> (2 * (i % 128 / 32)) & 3) - 1) * d;
}

void dequant_q1_0(const void *block, float *dst) {
    const block_q1_0 *b = block;
    float             d = tensor_f16_to_f32(b->d);
    for (int i = 0; i < 128; i++) dst[i] = b->qs[i / 8] >> (i % 8) & 1 ? d : -d;
}

void dequant_q2_0(const void *block, float *dst) {
    const block_q2_0 *b = block;
    float             d = tensor_f16_to_f32(b->d);
    for (int i = 0; i < 64; i++) dst[i] = (float)((b->qs[i / 4] >> (2 * (i % 4)) & 3) - 1) * d;
}

void dequant_mxfp4(const void *block, float *dst) {
    const block_mxfp4 *b = block;
    float              d = block_mxfp4_scale(b->e);
    for (int j = 0; j < 16; j++) {
        dst[j] = d * (float)tensor_e2m1_doubled[b->qs[j] & 15];
        dst[j + 16] = d * (float)tensor_e2m1_doubled[b->qs[j] >> 4];
    }
}

void dequant_nvfp4(const void *block, float *dst) {
    const block_nvfp4 *b = block;
    for (int g = 0; g < 4; g++) {
        float d = block_nvfp4_scale(b->d[g]) * 0.5f;
        for (int j = 0; j < 8; j++) {
            uint8_t byte = b->qs[8 * g + j];
            dst[16 * g + j] = d * (float)tensor_e2m1_doubled[byte & 15];
            dst[16 * g + j + 8] = d * (float)tensor_e2m1_doubled[byte >> 4];
        }
    }
}
