/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scalar unpacking of the plain, K, ternary and fp4 blocks: one block of one row to unsigned values, one scale (and
 * minimum) per group. Layouts are those of tensor/blocks.h, groups and zeros those of matmul_panel.h. Scales are single
 * f32 products in the order written here; the vector versions must round the same way.
 */
#include "kernels/cpu/matmul_panel.h"

#include "tensor/blocks.h"
#include "tensor/codec.h"
#include "tensor/half.h"

#include <string.h>

static void nibbles(const uint8_t *qs, uint8_t *u) {
    for (int j = 0; j < 16; j++) {
        u[j] = qs[j] & 15;
        u[j + 16] = qs[j] >> 4;
    }
}

static void q4_0(const uint8_t *block, uint8_t *u, float *scale, float *min) {
    const block_q4_0 *b = (const block_q4_0 *)block;
    (void)min;
    nibbles(b->qs, u);
    scale[0] = tensor_f16_to_f32(b->d);
}

static void q4_1(const uint8_t *block, uint8_t *u, float *scale, float *min) {
    const block_q4_1 *b = (const block_q4_1 *)block;
    nibbles(b->qs, u);
    scale[0] = tensor_f16_to_f32(b->d);
    min[0] = tensor_f16_to_f32(b->m);
}

static void fifth_bits(const uint8_t *qh, uint8_t *u) {
    for (int j = 0; j < 32; j++) u[j] = (uint8_t)(u[j] | (qh[j / 8] >> (j % 8) & 1) << 4);
}

static void q5_0(const uint8_t *block, uint8_t *u, float *scale, float *min) {
    const block_q5_0 *b = (const block_q5_0 *)block;
    (void)min;
    nibbles(b->qs, u);
    fifth_bits(b->qh, u);
    scale[0] = tensor_f16_to_f32(b->d);
}

static void q5_1(const uint8_t *block, uint8_t *u, float *scale, float *min) {
    const block_q5_1 *b = (const block_q5_1 *)block;
    nibbles(b->qs, u);
    fifth_bits(b->qh, u);
    scale[0] = tensor_f16_to_f32(b->d);
    min[0] = tensor_f16_to_f32(b->m);
}

static void q8_0(const uint8_t *block, uint8_t *u, float *scale, float *min) {
    const block_q8_0 *b = (const block_q8_0 *)block;
    (void)min;
    for (int j = 0; j < 32; j++) u[j] = (uint8_t)(b->qs[j] + 128);
    scale[0] = tensor_f16_to_f32(b->d);
}

static void q8_k(const uint8_t *block, uint8_t *u, float *scale, float *min) {
    const block_q8_k *b = (const block_q8_k *)block;
    (void)min;
    for (int j = 0; j < 256; j++) u[j] = (uint8_t)(b->qs[j] + 128);
    for (int j = 0; j < 8; j++) scale[j] = b->d;
}

static void two_bits(const uint8_t *qs, uint8_t *u) {
    for (int h = 0; h < 2; h++)
        for (int s = 0; s < 4; s++)
            for (int l = 0; l < 32; l++) u[128 * h + 32 * s + l] = qs[32 * h + l] >> (2 * s) & 3;
}

static void q2_k(const uint8_t *block, uint8_t *u, float *scale, float *min) {
    const block_q2_k *b = (const block_q2_k *)block;
    float             d = tensor_f16_to_f32(b->d), dmin = tensor_f16_to_f32(b->dmin);
    two_bits(b->qs, u);
    for (int j = 0; j < 16; j++) {
        scale[j] = d * (float)(b->scales[j] & 15);
        min[j] = -dmin * (float)(b->scales[j] >> 4);
    }
}

static void q3_k(const uint8_t *block, uint8_t *u, float *scale, float *min) {
    const block_q3_k *b = (const block_q3_k *)block;
    float             d = tensor_f16_to_f32(b->d);
    (void)min;
    two_bits(b->qs, u);
    for (int k = 0; k < 256; k++) u[k] = (uint8_t)(u[k] | (b->hmask[k % 32] >> (k / 32) & 1) << 2);
    for (int j = 0; j < 16; j++) scale[j] = d * (float)block_q3_k_scale(b->scales, j);
}

static void k4_scales(uint16_t d16, uint16_t dmin16, const uint8_t *scales, float *scale, float *min) {
    float d = tensor_f16_to_f32(d16), dmin = tensor_f16_to_f32(dmin16);
    for (int j = 0; j < 8; j++) {
        int sc, mn;
        block_k4_scale_min(scales, j, &sc, &mn);
        scale[j] = d * (float)sc;
        min[j] = -dmin * (float)mn;
    }
}

static void q4_k(const uint8_t *block, uint8_t *u, float *scale, float *min) {
    const block_q4_k *b = (const block_q4_k *)block;
    for (int k = 0; k < 256; k++) u[k] = b->qs[k / 64 * 32 + k % 32] >> (k % 64 / 32 * 4) & 15;
    k4_scales(b->d, b->dmin, b->scales, scale, min);
}

static void q5_k(const uint8_t *block, uint8_t *u, float *scale, float *min) {
    const block_q5_k *b = (const block_q5_k *)block;
    for (int k = 0; k < 256; k++) {
        int low = b->qs[k / 64 * 32 + k % 32] >> (k % 64 / 32 * 4) & 15, high = b->qh[k % 32] >> (k / 32) & 1;
        u[k] = (uint8_t)(low | high << 4);
    }
    k4_scales(b->d, b->dmin, b->scales, scale, min);
}

static void q6_k(const uint8_t *block, uint8_t *u, float *scale, float *min) {
    const block_q6_k *b = (const block_q6_k *)block;
    float             d = tensor_f16_to_f32(b->d);
    (void)min;
    for (int k = 0; k < 256; k++) {
        int h = k / 128, part = k % 128 / 32, l = k % 32;
        int low = b->ql[64 * h + 32 * (part & 1) + l] >> (part & 2 ? 4 : 0) & 15;
        int high = b->qh[32 * h + l] >> (2 * part) & 3;
        u[k] = (uint8_t)(low | high << 4);
    }
    for (int j = 0; j < 16; j++) scale[j] = d * (float)b->scales[j];
}

static void tq1_0(const uint8_t *block, uint8_t *u, float *scale, float *min) {
    static const uint8_t power[5] = { 1, 3, 9, 27, 81 };
    const block_tq1_0   *b = (const block_tq1_0 *)block;
    (void)min;
    for (int m = 0; m < 48; m++)
        for (int n = 0; n < 5; n++) {
            uint8_t fraction = (uint8_t)(b->qs[m] * power[n]);
            u[m < 32 ? 32 * n + m : 128 + 16 * n + m] = (uint8_t)(fraction * 3 >> 8);
        }
    for (int m = 0; m < 4; m++)
        for (int n = 0; n < 4; n++) {
            uint8_t fraction = (uint8_t)(b->qh[m] * power[n]);
            u[240 + 4 * n + m] = (uint8_t)(fraction * 3 >> 8);
        }
    for (int j = 0; j < 8; j++) scale[j] = tensor_f16_to_f32(b->d);
}

static void tq2_0(const uint8_t *block, uint8_t *u, float *scale, float *min) {
    const block_tq2_0 *b = (const block_tq2_0 *)block;
    (void)min;
    two_bits(b->qs, u);
    for (int j = 0; j < 8; j++) scale[j] = tensor_f16_to_f32(b->d);
}

static void q1_0(const uint8_t *block, uint8_t *u, float *scale, float *min) {
    const block_q1_0 *b = (const block_q1_0 *)block;
    (void)min;
    for (int i = 0; i < 128; i++) u[i] = (uint8_t)((b->qs[i / 8] >> (i % 8) & 1) * 2);
    for (int j = 0; j < 4; j++) scale[j] = tensor_f16_to_f32(b->d);
}

static void q2_0(const uint8_t *block, uint8_t *u, float *scale, float *min) {
    const block_q2_0 *b = (const block_q2_0 *)block;
    (void)min;
    for (int i = 0; i < 64; i++) u[i] = b->qs[i / 4] >> (2 * (i % 4)) & 3;
    for (int j = 0; j < 2; j++) scale[j] = tensor_f16_to_f32(b->d);
}

static void mxfp4(const uint8_t *block, uint8_t *u, float *scale, float *min) {
    const block_mxfp4 *b = (const block_mxfp4 *)block;
    (void)min;
    nibbles(b->qs, u);
    for (int j = 0; j < 32; j++) u[j] = (uint8_t)(tensor_e2m1_doubled[u[j]] + 12);
    scale[0] = block_mxfp4_scale(b->e);
}

static void nvfp4(const uint8_t *block, uint8_t *u, float *scale, float *min) {
    const block_nvfp4 *b = (const block_nvfp4 *)block;
    (void)min;
    for (int k = 0; k < 64; k++) {
        int code = b->qs[k / 16 * 8 + k % 8] >> (k % 16 / 8 * 4) & 15;
        u[k] = (uint8_t)(tensor_e2m1_doubled[code] + 12);
    }
    for (int g = 0; g < 4; g++) scale[g] = block_nvfp4_scale(b->d[g]) * 0.5f;
}

matmul_unblock_fn *matmul_unblock(int type) {
    switch (type) {
    case TENSOR_Q4_0: return q4_0;
    case TENSOR_Q4_1: return q4_1;
    case TENSOR_Q5_0: return q5_0;
    case TENSOR_Q5_1: return q5_1;
    case TENSOR_Q8_0: return q8_0;
    case TENSOR_Q8_K: return q8_k;
    case TENSOR_Q2_K: return q2_k;
    case TENSOR_Q3_K: return q3_k;
    case TENSOR_Q4_K: return q4_k;
    case TENSOR_Q5_K: return q5_k;
    case TENSOR_Q6_K: return q6_k;
    case TENSOR_TQ1_0: return tq1_0;
    case TENSOR_TQ2_0: return tq2_0;
    case TENSOR_Q1_0: return q1_0;
    case TENSOR_Q2_0: return q2_0;
    case TENSOR_MXFP4: return mxfp4;
    case TENSOR_NVFP4: return nvfp4;
    default: return matmul_unblock_iq(type);
    }
}

/* The values of one row go to their lane. */
static void to_lane(matmul_panel8 *p, int lane, int k, int n, const uint8_t *u) {
    for (int i = 0; i < n; i++) p->q[(k + i) / 4 * 64 + lane * 4 + (k + i) % 4] = u[i];
}

/* MLX: values from a bit stream, scales from their own array. */
static void unpack_mlx(const matmul_src *s, int64_t row, int lane, int64_t k0, int kn, int group, matmul_panel8 *p) {
    bool           affine = s->w->type <= TENSOR_MLX_AFF8;
    const uint8_t *stream = s->data + (size_t)row * s->w->row_bytes;
    for (int k = 0; k < kn; k += group) {
        uint8_t u[32];
        int     at = k / group * MATMUL_PANEL + lane;
        int64_t g = (k0 + k) / s->w->group;
        float   scale = tensor_mat_scale(s->w, s->expert, row, g);
        for (int i = 0; i < group; i++) {
            unsigned v = tensor_packed_get(s->w->type, stream, k0 + k + i);
            u[i] = (uint8_t)(affine ? (int)v : tensor_e2m1_doubled[v] + 12);
        }
        to_lane(p, lane, k, group, u);
        p->scale[at] = affine ? scale : scale * 0.5f;
        if (affine) p->min[at] = tensor_mat_bias(s->w, s->expert, row, g);
    }
}

static void unpack_blocks(const matmul_src *s, int64_t row, int lane, int64_t k0, int kn, int group, matmul_panel8 *p) {
    const tensor_type_info *t = tensor_type_get(s->w->type);
    matmul_unblock_fn      *unblock = matmul_unblock(s->w->type);
    const uint8_t *block = s->data + (size_t)row * s->w->row_bytes + (size_t)(k0 / t->block_elems) * t->block_bytes;
    /* One scale for the whole matrix (NVFP4): no instruction set unpacks that type by itself. */
    const float whole = s->w->scales ? tensor_mat_scale(s->w, s->expert, row, 0) : 1.0f;
    for (int k = 0; k < kn; k += t->block_elems, block += t->block_bytes) {
        uint8_t u[256];
        float   scale[16], min[16] = { 0 };
        unblock(block, u, scale, min);
        to_lane(p, lane, k, t->block_elems, u);
        for (int g = 0; g < t->block_elems / group; g++) {
            p->scale[(k / group + g) * MATMUL_PANEL + lane] = scale[g] * whole;
            p->min[(k / group + g) * MATMUL_PANEL + lane] = min[g];
        }
    }
}

void matmul_unpack8_scalar(const matmul_src *s, int64_t row0, int n, int64_t k0, int kn, matmul_panel8 *p) {
    matmul_form form = matmul_form_of(s->w->type);
    int         group = matmul_group(&form);
    if (n < MATMUL_PANEL) memset(p, 0, offsetof(matmul_panel8, steps));
    for (int lane = 0; lane < n; lane++) {
        if (s->w->type > TENSOR_GGML_END)
            unpack_mlx(s, row0 + lane, lane, k0, kn, group, p);
        else
            unpack_blocks(s, row0 + lane, lane, k0, kn, group, p);
    }
}
