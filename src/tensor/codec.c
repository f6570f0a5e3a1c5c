/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/codec.h"

#include "tensor/codec_impl.h"
#include "tensor/half.h"
#include "tensor/quant/table.h"

#include <math.h>
#include <string.h>

static dequant_block_fn *const decoders[TENSOR_TYPE_COUNT] = {
    [TENSOR_Q4_0] = dequant_q4_0,     [TENSOR_Q4_1] = dequant_q4_1,     [TENSOR_Q5_0] = dequant_q5_0,
    [TENSOR_Q5_1] = dequant_q5_1,     [TENSOR_Q8_0] = dequant_q8_0,     [TENSOR_Q8_1] = dequant_q8_1,
    [TENSOR_Q2_K] = dequant_q2_k,     [TENSOR_Q3_K] = dequant_q3_k,     [TENSOR_Q4_K] = dequant_q4_k,
    [TENSOR_Q5_K] = dequant_q5_k,     [TENSOR_Q6_K] = dequant_q6_k,     [TENSOR_Q8_K] = dequant_q8_k,
    [TENSOR_IQ1_S] = dequant_iq1_s,   [TENSOR_IQ1_M] = dequant_iq1_m,   [TENSOR_IQ2_XXS] = dequant_iq2_xxs,
    [TENSOR_IQ2_XS] = dequant_iq2_xs, [TENSOR_IQ2_S] = dequant_iq2_s,   [TENSOR_IQ3_XXS] = dequant_iq3_xxs,
    [TENSOR_IQ3_S] = dequant_iq3_s,   [TENSOR_IQ4_NL] = dequant_iq4_nl, [TENSOR_IQ4_XS] = dequant_iq4_xs,
    [TENSOR_TQ1_0] = dequant_tq1_0,   [TENSOR_TQ2_0] = dequant_tq2_0,   [TENSOR_MXFP4] = dequant_mxfp4,
    [TENSOR_NVFP4] = dequant_nvfp4,   [TENSOR_Q1_0] = dequant_q1_0,     [TENSOR_Q2_0] = dequant_q2_0,
};

const quant_table *quant_table_get(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return &quant_table_avx512;
    if (avx2) return &quant_table_avx2; /* F16C is older than AVX2 */
#endif
    return &quant_table_plain;
}

static uint16_t get_u16(const void *p, int64_t i) {
    uint16_t v;
    memcpy(&v, (const char *)p + 2 * i, 2);
    return v;
}

/* One plain number at any alignment; NaN for a type that is not plain. */
static float plain_get(int type, const void *src, int64_t i) {
    const char *p = src;
    int32_t     i32;
    uint32_t    u32;
    int64_t     i64;
    uint64_t    u64;
    float       f32;
    double      f64;
    switch (type) {
    case TENSOR_F32: memcpy(&f32, p + 4 * i, 4); return f32;
    case TENSOR_F16: return tensor_f16_to_f32(get_u16(p, i));
    case TENSOR_BF16: return tensor_bf16_to_f32(get_u16(p, i));
    case TENSOR_F64: memcpy(&f64, p + 8 * i, 8); return (float)f64;
    case TENSOR_I8: return (float)((const int8_t *)src)[i];
    case TENSOR_BOOL:
    case TENSOR_U8: return (float)((const uint8_t *)src)[i];
    case TENSOR_I16: return (float)(int16_t)get_u16(p, i);
    case TENSOR_U16: return (float)get_u16(p, i);
    case TENSOR_I32: memcpy(&i32, p + 4 * i, 4); return (float)i32;
    case TENSOR_U32: memcpy(&u32, p + 4 * i, 4); return (float)u32;
    case TENSOR_I64: memcpy(&i64, p + 8 * i, 8); return (float)i64;
    case TENSOR_U64: memcpy(&u64, p + 8 * i, 8); return (float)u64;
    case TENSOR_F8_E4M3: return tensor_e4m3_to_f32(((const uint8_t *)src)[i]);
    case TENSOR_F8_E5M2: return tensor_e5m2_to_f32(((const uint8_t *)src)[i]);
    case TENSOR_F8_E8M0: return tensor_e8m0_to_f32(((const uint8_t *)src)[i]);
    default: return NAN;
    }
}

static bool is_plain(const tensor_type_info *t) { return t->block_elems == 1; }

bool tensor_can_dequant(int type) {
    const tensor_type_info *t = tensor_type_get(type);
    return t && (is_plain(t) || decoders[type]);
}

bool tensor_can_quant(int type) {
    if (type == TENSOR_F32 || type == TENSOR_F16 || type == TENSOR_BF16) return true;
    if (type == TENSOR_F8_E4M3 || type == TENSOR_F8_E5M2) return true;
    return tensor_type_get(type) && type < TENSOR_GGML_END && quant_table_plain.block[type];
}

bool tensor_dequant_row(int type, const void *src, float *dst, int64_t n) {
    const tensor_type_info *t = tensor_type_get(type);
    if (!tensor_can_dequant(type) || n < 0 || n % t->block_elems != 0) return false;
    if (type == TENSOR_F32) {
        memcpy(dst, src, (size_t)n * sizeof *dst);
        return true;
    }
    if (type == TENSOR_F16 || type == TENSOR_BF16) {
        (type == TENSOR_F16 ? quant_table_get()->from_f16 : quant_table_get()->from_bf16)(src, dst, n);
        return true;
    }
    if (is_plain(t)) {
        for (int64_t i = 0; i < n; i++) dst[i] = plain_get(type, src, i);
        return true;
    }
    const char *block = src;
    for (int64_t i = 0; i < n; i += t->block_elems, block += t->block_bytes) decoders[type](block, dst + i);
    return true;
}

static void put_u16(void *p, int64_t i, uint16_t v) { memcpy((char *)p + 2 * i, &v, 2); }

bool tensor_quant_row(int type, const float *src, void *dst, int64_t n) {
    return tensor_quant_row_weighted(type, src, NULL, dst, n);
}

static void quant_plain(int type, const float *src, void *dst, int64_t n) {
    switch (type) {
    case TENSOR_F32: memcpy(dst, src, (size_t)n * sizeof *src); break;
    case TENSOR_F16: quant_table_get()->to_f16(src, dst, n); break;
    case TENSOR_BF16:
        for (int64_t i = 0; i < n; i++) put_u16(dst, i, tensor_f32_to_bf16(src[i]));
        break;
    case TENSOR_F8_E4M3:
        for (int64_t i = 0; i < n; i++) ((uint8_t *)dst)[i] = tensor_f32_to_e4m3(src[i]);
        break;
    default:
        for (int64_t i = 0; i < n; i++) ((uint8_t *)dst)[i] = tensor_f32_to_e5m2(src[i]);
    }
}

/*
 * Positive weights with a mean near 1 of the columns' importance. Large elements count more than their importance alone
 * says: what multiplies them is mostly larger than the mean, too, because they are what makes the model use the column.
 * The fewer levels a type has, the more it matters; with six bits it no longer does, and with three levels it only widens
 * the scale. A column that was never used must not make the search divide by nothing.
 */
static void weights_of(int type, const float *importance, const float *x, int n, float *w) {
    float sum = 0, squares = 0;
    for (int i = 0; i < n; i++) {
        sum += importance[i];
        squares += x[i] * x[i];
    }
    float mean = sum / (float)n, energy = squares / (float)n;
    bool  coarse = type == TENSOR_Q2_K || type == TENSOR_IQ2_XXS || type == TENSOR_IQ2_XS;
    bool  usable = mean > 0 && isfinite(mean),
         sized = energy > 0 && isfinite(energy) && type != TENSOR_Q6_K && type != TENSOR_TQ1_0 && type != TENSOR_TQ2_0;
    for (int i = 0; i < n; i++) {
        w[i] = usable ? importance[i] / mean + 1e-4f : 1;
        if (sized) w[i] *= sqrtf((coarse ? 1 : 2) + x[i] * x[i] / energy);
    }
}

bool tensor_quant_row_weighted(int type, const float *src, const float *importance, void *dst, int64_t n) {
    const tensor_type_info *t = tensor_type_get(type);
    float                   w[256];
    if (!tensor_can_quant(type) || n < 0 || n % t->block_elems != 0) return false;
    if (is_plain(t)) {
        quant_plain(type, src, dst, n);
        return true;
    }
    quant_block_fn *quant = quant_table_get()->block[type];
    char           *block = dst;
    for (int i = 0; i < 256; i++) w[i] = 1;
    for (int64_t i = 0; i < n; i += t->block_elems, block += t->block_bytes) {
        if (importance) weights_of(type, importance + i, src + i, t->block_elems, w);
        quant(src + i, w, block);
    }
    return true;
}
