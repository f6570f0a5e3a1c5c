/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/types.h"

#include "base/num.h"

#include <strings.h>

#define PLAIN(id, bytes) [TENSOR_##id] = { #id, 1, bytes, false }
#define BLOCK(id, elems, bytes) [TENSOR_##id] = { #id, elems, bytes, true }

static const tensor_type_info infos[TENSOR_TYPE_COUNT] = {
    PLAIN(F32, 4),
    PLAIN(F16, 2),
    PLAIN(BF16, 2),
    PLAIN(F64, 8),
    PLAIN(I8, 1),
    PLAIN(I16, 2),
    PLAIN(I32, 4),
    PLAIN(I64, 8),
    PLAIN(U8, 1),
    PLAIN(U16, 2),
    PLAIN(U32, 4),
    PLAIN(U64, 8),
    PLAIN(BOOL, 1),
    BLOCK(Q4_0, 32, 18),
    BLOCK(Q4_1, 32, 20),
    BLOCK(Q5_0, 32, 22),
    BLOCK(Q5_1, 32, 24),
    BLOCK(Q8_0, 32, 34),
    BLOCK(Q8_1, 32, 36),
    BLOCK(Q2_K, 256, 84),
    BLOCK(Q3_K, 256, 110),
    BLOCK(Q4_K, 256, 144),
    BLOCK(Q5_K, 256, 176),
    BLOCK(Q6_K, 256, 210),
    BLOCK(Q8_K, 256, 292),
    BLOCK(IQ2_XXS, 256, 66),
    BLOCK(IQ2_XS, 256, 74),
    BLOCK(IQ2_S, 256, 82),
    BLOCK(IQ3_XXS, 256, 98),
    BLOCK(IQ3_S, 256, 110),
    BLOCK(IQ1_S, 256, 50),
    BLOCK(IQ1_M, 256, 56),
    BLOCK(IQ4_NL, 32, 18),
    BLOCK(IQ4_XS, 256, 136),
    BLOCK(TQ1_0, 256, 54),
    BLOCK(TQ2_0, 256, 66),
    BLOCK(MXFP4, 32, 17),
    BLOCK(NVFP4, 64, 36),
    BLOCK(Q1_0, 128, 18),
    BLOCK(Q2_0, 64, 18),
    PLAIN(F8_E4M3, 1),
    PLAIN(F8_E5M2, 1),
    PLAIN(F8_E8M0, 1),
    BLOCK(NF4, 2, 1),
    BLOCK(MLX_AFF2, 16, 4),
    BLOCK(MLX_AFF3, 32, 12),
    BLOCK(MLX_AFF4, 8, 4),
    BLOCK(MLX_AFF5, 32, 20),
    BLOCK(MLX_AFF6, 16, 12),
    BLOCK(MLX_AFF8, 4, 4),
    BLOCK(MLX_MXFP4, 8, 4),
    BLOCK(MLX_MXFP8, 4, 4),
    BLOCK(MLX_NVFP4, 8, 4),
};

const tensor_type_info *tensor_type_get(int type) {
    return type >= 0 && type < TENSOR_TYPE_COUNT && infos[type].name ? &infos[type] : NULL;
}

const char *tensor_type_name(int type) {
    const tensor_type_info *t = tensor_type_get(type);
    return t ? t->name : "?";
}

bool tensor_type_parse(const char *name, int *out) {
    for (int i = 0; i < TENSOR_TYPE_COUNT; i++) {
        if (infos[i].name && strcasecmp(infos[i].name, name) == 0) {
            *out = i;
            return true;
        }
    }
    return false;
}

bool tensor_row_bytes(int type, int64_t n, size_t *out) {
    const tensor_type_info *t = tensor_type_get(type);
    if (!t || n < 0 || n % t->block_elems != 0) return false;
    return num_mul_size((size_t)(n / t->block_elems), t->block_bytes, out);
}
