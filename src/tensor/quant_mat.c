/* SPDX-License-Identifier: Apache-2.0 */
/* Quantizing of rows whose scales lie beside the values: MLX, FP8 with scales, NF4. */
#include "tensor/codec.h"
#include "tensor/half.h"
#include "tensor/quant/fit.h"
#include "tensor/quant/table.h"

#include <string.h>

/* Stores a scale and returns what will be read back. */
static float put_scale(int type, void *base, int64_t i, float v) {
    uint16_t h;
    switch (type) {
    case TENSOR_F16:
        h = tensor_f32_to_f16(v);
        memcpy((char *)base + 2 * i, &h, 2);
        return tensor_f16_to_f32(h);
    case TENSOR_BF16:
        h = tensor_f32_to_bf16(v);
        memcpy((char *)base + 2 * i, &h, 2);
        return tensor_bf16_to_f32(h);
    default: memcpy((char *)base + 4 * i, &v, 4); return v;
    }
}

static unsigned nf4_code(float v) {
    unsigned best = 0;
    while (best < 15 && v > 0.5f * (tensor_nf4_values[best] + tensor_nf4_values[best + 1])) best++;
    return best;
}

static float peak_of(const float *x, int64_t n) {
    float peak = 0;
    for (int64_t i = 0; i < n; i++) {
        if (fabsf(x[i]) > peak) peak = fabsf(x[i]);
    }
    return peak;
}

static double e4m3_error(const float *x, int64_t n, float scale) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double e = (double)x[i] - (double)scale * (double)tensor_e4m3_to_f32(tensor_f32_to_e4m3(x[i] / scale));
        sum += e * e;
    }
    return sum;
}

/* The power of two that maps the peak below the largest value of the format, 448 (1.75 * 2^8) or 57344 (1.75 * 2^15).
 */
static uint8_t e8m0_for_f8(const float *x, int64_t n, bool e5m2) {
    int e, code;
    frexpf(peak_of(x, n), &e);
    code = e - 1 - (e5m2 ? 15 : 8) + 127;
    if (code < 0) code = 0;
    if (code > 253) code = 253;
    if (!e5m2 &&
        e4m3_error(x, n, tensor_e8m0_to_f32((uint8_t)(code + 1))) < e4m3_error(x, n, tensor_e8m0_to_f32((uint8_t)code)))
        code++;
    return (uint8_t)code;
}

static void quant_affine_group(const tensor_mat *m, int bits, const float *x, int64_t g, uint8_t *data, void *scales,
                               void *biases) {
    int                qmax = (1 << bits) - 1;
    float              scale, bias;
    static const float ones[128] = { [0 ... 127] = 1 };
    quant_table_get()->affine(x, ones, m->group, qmax, &scale, &bias);
    scale = put_scale(m->scale_type, scales, g, scale);
    bias = put_scale(m->scale_type, biases, g, bias);
    for (int i = 0; i < m->group; i++) {
        int q = fit_round(fit_divide(x[i] - bias, scale), 0, qmax);
        tensor_packed_put(m->type, data, g * m->group + i, (unsigned)q);
    }
}

static void quant_coded_group(const tensor_mat *m, const float *x, int64_t g, int n, uint8_t *data, void *scales) {
    float    scale;
    uint8_t *codes = scales;
    bool     e5m2 = m->type == TENSOR_F8_E5M2;
    switch (m->type) {
    case TENSOR_MLX_MXFP4: scale = tensor_e8m0_to_f32(codes[g] = quant_table_get()->scale_e2m1(x, n, false)); break;
    case TENSOR_MLX_NVFP4: scale = tensor_e4m3_to_f32(codes[g] = quant_table_get()->scale_e2m1(x, n, true)); break;
    case TENSOR_NF4: scale = put_scale(m->scale_type, scales, g, peak_of(x, n)); break;
    default:
        if (m->scale_type == TENSOR_F8_E8M0)
            scale = tensor_e8m0_to_f32(codes[g] = e8m0_for_f8(x, n, e5m2));
        else
            scale = put_scale(m->scale_type, scales, g, peak_of(x, n) / (e5m2 ? 57344.0f : 448.0f));
    }
    for (int i = 0; i < n; i++) {
        float    v = fit_divide(x[i], scale);
        unsigned code;
        switch (m->type) {
        case TENSOR_NF4: code = nf4_code(v); break;
        case TENSOR_MLX_MXFP4:
        case TENSOR_MLX_NVFP4: code = tensor_f32_to_e2m1(v); break;
        default: code = e5m2 ? tensor_f32_to_e5m2(v) : tensor_f32_to_e4m3(v);
        }
        tensor_packed_put(m->type, data, g * m->group + i, code);
    }
}

bool tensor_mat_quant_row(const tensor_mat *m, const float *src, void *data, void *scales, void *biases) {
    static const uint8_t affine_bits[] = { 2, 3, 4, 5, 6, 8 };
    tensor_mat           probe = *m;
    size_t               row_bytes;
    probe.scales = scales;
    if (!tensor_row_bytes(m->type, m->cols, &row_bytes)) return false;
    if (probe.row_bytes == 0) probe.row_bytes = row_bytes;
    if (!scales || !tensor_mat_valid(&probe) || m->group_rows != 1 || m->group <= 0) return false;
    bool affine = m->type >= TENSOR_MLX_AFF2 && m->type <= TENSOR_MLX_AFF8;
    if (!affine && m->type != TENSOR_NF4 && m->type < TENSOR_MLX_MXFP4 && m->type != TENSOR_F8_E4M3 &&
        m->type != TENSOR_F8_E5M2)
        return false;
    memset(data, 0, row_bytes);
    for (int64_t g = 0, col = 0; col < m->cols; g++, col += m->group) {
        int n = m->cols - col < m->group ? (int)(m->cols - col) : m->group;
        if (affine)
            quant_affine_group(m, affine_bits[m->type - TENSOR_MLX_AFF2], src + col, g, data, scales, biases);
        else
            quant_coded_group(m, src + col, g, n, data, scales);
    }
    return true;
}
