/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrices whose scales lie beside their values: MLX (affine, mxfp4, mxfp8, nvfp4), FP8 with scales, NF4; and NVFP4 of
 * GGUF files, whose blocks carry their scales and share one more.
 *
 * Order of operations: affine scale * q, then + bias; all others value * scale.
 */
#include "tensor/blocks.h"
#include "tensor/codec.h"
#include "tensor/half.h"

#include <string.h>

const float tensor_nf4_values[16] = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

/* Bits per packed value; 0 for types whose blocks hold their scales. */
static int packed_bits(int type) {
    switch (type) {
    case TENSOR_MLX_AFF2: return 2;
    case TENSOR_MLX_AFF3: return 3;
    case TENSOR_MLX_AFF4: return 4;
    case TENSOR_MLX_AFF5: return 5;
    case TENSOR_MLX_AFF6: return 6;
    case TENSOR_MLX_AFF8: return 8;
    case TENSOR_MLX_MXFP4:
    case TENSOR_MLX_NVFP4:
    case TENSOR_NF4: return 4;
    case TENSOR_MLX_MXFP8:
    case TENSOR_F8_E4M3:
    case TENSOR_F8_E5M2: return 8;
    default: return 0;
    }
}

static bool is_affine(int type) { return type >= TENSOR_MLX_AFF2 && type <= TENSOR_MLX_AFF8; }
static bool is_f8(int type) { return type == TENSOR_F8_E4M3 || type == TENSOR_F8_E5M2; }

static bool is_float_scale(int type) { return type == TENSOR_F16 || type == TENSOR_BF16 || type == TENSOR_F32; }

static bool scales_valid(const tensor_mat *m) {
    if (m->group <= 0 || m->group_rows <= 0) return false;
    switch (m->type) {
    case TENSOR_MLX_MXFP4:
    case TENSOR_MLX_MXFP8: return m->group == 32 && m->group_rows == 1 && m->scale_type == TENSOR_F8_E8M0;
    case TENSOR_MLX_NVFP4: return m->group == 16 && m->group_rows == 1 && m->scale_type == TENSOR_F8_E4M3;
    case TENSOR_F8_E4M3:
    case TENSOR_F8_E5M2: return is_float_scale(m->scale_type) || m->scale_type == TENSOR_F8_E8M0;
    case TENSOR_NF4: return m->group % 2 == 0 && m->group_rows == 1 && is_float_scale(m->scale_type);
    default:
        if (m->group != 32 && m->group != 64 && m->group != 128) return false;
        return is_affine(m->type) && m->group_rows == 1 && is_float_scale(m->scale_type);
    }
}

bool tensor_mat_scale_whole(const tensor_mat *m) {
    return m->type == TENSOR_NVFP4 && m->scale_type == TENSOR_F32 && m->group >= m->cols && m->group_rows >= m->rows;
}

bool tensor_mat_valid(const tensor_mat *m) {
    size_t row_bytes;
    if (m->rows <= 0 || m->cols <= 0 || !tensor_row_bytes(m->type, m->cols, &row_bytes)) return false;
    if (row_bytes > m->row_bytes) return false;
    if (packed_bits(m->type) == 0) return tensor_can_dequant(m->type) && (!m->scales || tensor_mat_scale_whole(m));
    if (is_f8(m->type) && !m->scales) return tensor_can_dequant(m->type);
    /* FP8 blocks may be cut off at the right edge; the others come in whole groups. */
    return scales_valid(m) && (is_f8(m->type) || m->cols % m->group == 0);
}

static float scale_get(int type, const void *p) {
    uint16_t h;
    float    f;
    switch (type) {
    case TENSOR_F16: memcpy(&h, p, 2); return tensor_f16_to_f32(h);
    case TENSOR_BF16: memcpy(&h, p, 2); return tensor_bf16_to_f32(h);
    case TENSOR_F32: memcpy(&f, p, 4); return f;
    case TENSOR_F8_E4M3: return tensor_e4m3_to_f32(*(const uint8_t *)p);
    default: return tensor_e8m0_to_f32(*(const uint8_t *)p);
    }
}

static float group_get(const tensor_mat *m, const void *base, int64_t expert, int64_t row, int64_t group) {
    size_t at = (size_t)expert * m->scale_expert_bytes + (size_t)(row / m->group_rows) * m->scale_row_bytes +
                (size_t)group * tensor_type_get(m->scale_type)->block_bytes;
    return scale_get(m->scale_type, (const char *)base + at);
}

float tensor_mat_scale(const tensor_mat *m, int64_t expert, int64_t row, int64_t group) {
    return group_get(m, m->scales, expert, row, group);
}

float tensor_mat_bias(const tensor_mat *m, int64_t expert, int64_t row, int64_t group) {
    return m->biases ? group_get(m, m->biases, expert, row, group) : 0;
}

unsigned tensor_packed_get(int type, const void *row, int64_t col) {
    const uint8_t *p = row;
    int            bits = packed_bits(type);
    if (type == TENSOR_NF4) return p[col / 2] >> (col % 2 ? 0 : 4) & 15u;
    size_t   bit = (size_t)col * (size_t)bits;
    unsigned v = p[bit / 8] >> (bit % 8);
    if (bit % 8 + (size_t)bits > 8) v |= (unsigned)p[bit / 8 + 1] << (8 - bit % 8);
    return v & ((1u << bits) - 1);
}

void tensor_packed_put(int type, void *row, int64_t col, unsigned v) {
    uint8_t *p = row;
    int      bits = packed_bits(type);
    if (type == TENSOR_NF4) {
        p[col / 2] |= (uint8_t)(v << (col % 2 ? 0 : 4));
        return;
    }
    size_t bit = (size_t)col * (size_t)bits;
    p[bit / 8] |= (uint8_t)(v << (bit % 8));
    if (bit % 8 + (size_t)bits > 8) p[bit / 8 + 1] |= (uint8_t)(v >> (8 - bit % 8));
}

static float code_value(int type, unsigned code) {
    switch (type) {
    case TENSOR_MLX_MXFP4:
    case TENSOR_MLX_NVFP4: return 0.5f * (float)tensor_e2m1_doubled[code];
    case TENSOR_MLX_MXFP8:
    case TENSOR_F8_E4M3: return tensor_e4m3_to_f32((uint8_t)code);
    case TENSOR_F8_E5M2: return tensor_e5m2_to_f32((uint8_t)code);
    case TENSOR_NF4: return tensor_nf4_values[code];
    default: return (float)code;
    }
}

static void scaled_span(const tensor_mat *m, int64_t expert, int64_t row, int64_t col0, int64_t n, float *dst) {
    const char *data = (const char *)m->data + (size_t)expert * m->expert_bytes + (size_t)row * m->row_bytes;
    for (int64_t i = 0; i < n;) {
        int64_t group = (col0 + i) / m->group, end = (group + 1) * m->group - col0;
        float   scale = tensor_mat_scale(m, expert, row, group), bias = tensor_mat_bias(m, expert, row, group);
        if (end > n) end = n;
        for (; i < end; i++) {
            float v = code_value(m->type, tensor_packed_get(m->type, data, col0 + i));
            dst[i] = is_affine(m->type) ? scale * v + bias : v * scale;
        }
    }
}

static void block_span(const tensor_mat *m, int64_t expert, int64_t row, int64_t col0, int64_t n, float *dst) {
    const tensor_type_info *t = tensor_type_get(m->type);
    const char *data = (const char *)m->data + (size_t)expert * m->expert_bytes + (size_t)row * m->row_bytes;
    float       block[256]; /* the largest block */
    int64_t     size = t->block_elems, at = col0 % size;
    data += (size_t)(col0 / size) * t->block_bytes;
    while (n > 0) {
        int64_t whole = at == 0 ? n / size * size : 0;
        if (whole > 0) {
            tensor_dequant_row(m->type, data, dst, whole);
            data += (size_t)(whole / size) * t->block_bytes;
        } else {
            whole = size - at < n ? size - at : n;
            tensor_dequant_row(m->type, data, block, size);
            memcpy(dst, block + at, (size_t)whole * sizeof *dst);
            data += t->block_bytes;
            at = 0;
        }
        dst += whole;
        n -= whole;
    }
}

void tensor_mat_dequant_span(const tensor_mat *m, int64_t expert, int64_t row, int64_t col0, int64_t n, float *dst) {
    if (m->scales && packed_bits(m->type) > 0) {
        scaled_span(m, expert, row, col0, n, dst);
        return;
    }
    block_span(m, expert, row, col0, n, dst);
    if (!m->scales) return;
    float scale = tensor_mat_scale(m, expert, row, 0);
    for (int64_t i = 0; i < n; i++) dst[i] *= scale;
}

void tensor_mat_dequant_row(const tensor_mat *m, int64_t expert, int64_t row, float *dst) {
    tensor_mat_dequant_span(m, expert, row, 0, m->cols, dst);
}
