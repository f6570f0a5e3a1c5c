/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda/drawn.h"

#include "cuda/must.h"
#include "kernels/cuda/layout.h"
#include "kernels/cuda/recode.h"
#include "tensor/blocks.h"
#include "tensor/codec.h"

#include <stdlib.h>
#include <string.h>

static uint16_t draw_half(check *c) { return tensor_f32_to_f16(ldexpf(check_normal(c), check_int(c, -12, -4))); }

/* Where the halves of a block are: d, and a minimum; -1: none. */
static void halves_of(int type, int *d, int *min) {
    *d = 0, *min = -1;
    switch (type) {
    case TENSOR_Q4_1:
    case TENSOR_Q5_1:
    case TENSOR_Q4_K:
    case TENSOR_Q5_K: *min = 2; break;
    case TENSOR_Q2_K: *d = 80, *min = 82; break;
    case TENSOR_Q3_K: *d = 108; break;
    case TENSOR_Q6_K: *d = 208; break;
    case TENSOR_TQ1_0: *d = 52; break;
    case TENSOR_TQ2_0: *d = 64; break;
    case TENSOR_NVFP4:
    case TENSOR_MXFP4:
    case TENSOR_IQ1_M: *d = -1; break;
    default: break;
    }
}

static void draw_block(check *c, int type, uint8_t *b, int bytes) {
    int            d, min;
    const uint16_t one = draw_half(c), other = draw_half(c);
    halves_of(type, &d, &min);
    check_fill_bytes(c, b, (size_t)bytes);
    if (d >= 0) memcpy(b + d, &one, 2);
    if (type == TENSOR_Q8_K) memcpy(b, &(float){ tensor_f16_to_f32(one) }, 4);
    if (min >= 0) memcpy(b + min, &other, 2);
    if (type == TENSOR_MXFP4) b[0] = (uint8_t)check_int(c, CUDA_MXFP4_TOP - 30, CUDA_MXFP4_TOP);
    if (type == TENSOR_IQ1_M) {
        block_iq1_m *q = (block_iq1_m *)(void *)b;
        for (int i = 0; i < 4; i++) q->scales[i] = (uint16_t)((q->scales[i] & 0xfff) | (one >> (4 * i) & 15) << 12);
    }
}

static void draw_row(check *c, int type, uint8_t *row, int64_t cols, size_t row_bytes) {
    const tensor_type_info *t = tensor_type_get(type);
    if (tensor_can_quant(type) && (check_int(c, 0, 1) || !t->quantized)) {
        float *f = alloc((size_t)cols * sizeof *f);
        check_fill_normal(c, f, (size_t)cols, ldexpf(1, check_int(c, -8, 1)));
        if (!tensor_quant_row(type, f, row, cols)) abort();
        free(f);
        return;
    }
    for (uint8_t *b = row; b < row + row_bytes; b += t->block_bytes) draw_block(c, type, b, t->block_bytes);
}

/* Scales and biases of their own arrays. */
static void draw_scales(check *c, tensor_mat *m, void *scales) {
    const int64_t n = (m->rows + m->group_rows - 1) / m->group_rows *
                      (int64_t)(m->scale_row_bytes / tensor_type_get((int)m->scale_type)->block_bytes);
    for (int64_t i = 0; i < n; i++) {
        const float v = ldexpf(check_normal(c), check_int(c, -12, -4));
        uint8_t    *at = (uint8_t *)scales + i * tensor_type_get((int)m->scale_type)->block_bytes;
        switch (m->scale_type) {
        case TENSOR_F32: memcpy(at, &v, 4); break;
        case TENSOR_F16: memcpy(at, &(uint16_t){ tensor_f32_to_f16(v) }, 2); break;
        case TENSOR_BF16: memcpy(at, &(uint16_t){ tensor_f32_to_bf16(v) }, 2); break;
        case TENSOR_F8_E8M0: *at = (uint8_t)check_int(c, CUDA_MXFP4_TOP - 30, CUDA_MXFP4_TOP); break;
        default: *at = (uint8_t)check_int(c, 0, 0x7e); break;
        }
    }
}

static const tensor_type floats[] = { TENSOR_F16, TENSOR_BF16, TENSOR_F32 };

/* FP8: bytes that are numbers; no scale, one for all, one per row, or for blocks of 32 to 128 columns and 1 to 128 rows. */
static void draw_float8(check *c, tensor_mat *m, uint8_t *data) {
    const int nan = m->type == TENSOR_F8_E5M2 ? 0x7c : 0x7f, way = check_int(c, 0, 4);
    for (size_t i = 0; i < (size_t)m->rows * m->row_bytes; i++) {
        data[i] = (uint8_t)check_int(c, 0, 255);
        if ((data[i] & nan) == nan) data[i] ^= 0x40;
    }
    if (way == 0) return;
    m->group = way == 1 || way == 2 ? (int)m->cols : 32 << check_int(c, 0, 2);
    m->group_rows = way == 1 ? (int)m->rows : way == 2 ? 1 : 1 << check_int(c, 0, 7);
    m->scale_type = way == 4 ? TENSOR_F8_E8M0 : floats[check_int(c, 0, 2)];
    m->scale_row_bytes =
        (size_t)((m->cols + m->group - 1) / m->group) * tensor_type_get((int)m->scale_type)->block_bytes;
    void *scales = alloc((size_t)m->rows * m->scale_row_bytes);
    m->scales = scales;
    draw_scales(c, m, scales);
}

bool drawn_open(check *c, tensor_mat *m, int type, int64_t rows, int64_t cols) {
    const bool affine = type >= TENSOR_MLX_AFF2 && type <= TENSOR_MLX_AFF8;
    *m = (tensor_mat){ .type = (tensor_type)type, .rows = rows, .cols = cols };
    if (!tensor_row_bytes(type, cols, &m->row_bytes)) return false;
    uint8_t *data = alloc((size_t)rows * m->row_bytes);
    m->data = data;
    if (type == TENSOR_F8_E4M3 || type == TENSOR_F8_E5M2) {
        draw_float8(c, m, data);
    } else if (type >= TENSOR_NF4) {
        m->group = affine                     ? 32 << check_int(c, 0, cols % 128 ? 0 : 2)
                   : type == TENSOR_NF4       ? 64 << check_int(c, 0, 2)
                   : type == TENSOR_MLX_NVFP4 ? 16
                                              : 32;
        m->group_rows = 1;
        m->scale_type = affine || type == TENSOR_NF4 ? floats[check_int(c, 0, 2)]
                        : type == TENSOR_MLX_NVFP4   ? TENSOR_F8_E4M3
                                                     : TENSOR_F8_E8M0;
        m->scale_row_bytes = (size_t)(cols / m->group) * tensor_type_get((int)m->scale_type)->block_bytes;
        void *scales = alloc((size_t)rows * m->scale_row_bytes), *biases = alloc((size_t)rows * m->scale_row_bytes);
        m->scales = scales;
        if (affine) m->biases = biases;
        draw_scales(c, m, scales);
        if (affine)
            draw_scales(c, m, biases);
        else
            free(biases);
        check_fill_bytes(c, data, (size_t)rows * m->row_bytes);
        for (size_t i = 0; type == TENSOR_MLX_MXFP8 && i < (size_t)rows * m->row_bytes; i++) {
            if ((data[i] & 0x7f) == 0x7f) data[i] ^= 0x40;
        }
    } else {
        for (int64_t r = 0; r < rows; r++) draw_row(c, type, data + (size_t)r * m->row_bytes, cols, m->row_bytes);
    }
    if (tensor_mat_valid(m)) return true;
    drawn_free(m);
    return false;
}

void drawn_free(tensor_mat *m) {
    free((void *)(uintptr_t)m->data);
    free((void *)(uintptr_t)m->scales);
    free((void *)(uintptr_t)m->biases);
}

int drawn_source(check *c, tensor_type type) {
    int from[TENSOR_TYPE_COUNT], n = 0;
    if (tensor_type_get((int)type)) return (int)type;
    if (type == TENSOR_E4M3_32 && check_int(c, 0, 1)) return TENSOR_F8_E4M3; /* by its groups */
    for (int t = 0; t < TENSOR_TYPE_COUNT; t++) {
        const tensor_mat m = { .type = (tensor_type)t };
        if (tensor_type_get(t) && t != TENSOR_Q8_0 && cuda_recode_type(&m) == type) from[n++] = t;
    }
    return from[check_int(c, 0, n - 1)];
}

const char *drawn_name(tensor_type type) {
    static const char *const names[] = { "TABLE32", "TABLE16",  "PAIR2",   "PAIR3",   "PAIR4", "PAIR5",
                                         "PAIR8",   "E4M3_128", "E4M3_32", "E5M2_32", "NF4_64" };
    return tensor_type_get((int)type) ? tensor_type_name((int)type) : names[type - TENSOR_TABLE32];
}

uint8_t *drawn_staged(check *c, tensor_type type, int64_t rows, int64_t cols) {
    uint8_t   *out = alloc((size_t)rows * cuda_row_bytes(type, cols));
    tensor_mat m;
    for (;;) {
        if (!drawn_open(c, &m, drawn_source(c, type), rows, cols)) continue;
        if (m.type == type || cuda_recode_type(&m) == type) break;
        drawn_free(&m);
    }
    if (m.type == type) {
        memcpy(out, m.data, (size_t)rows * m.row_bytes);
    } else {
        cuda_recode(&m, type, 0, rows, out);
    }
    drawn_free(&m);
    return out;
}
