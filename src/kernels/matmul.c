/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matmul above the kernels: which type takes which path, and what is refused. The loops: matmul_drive.c.
 */
#include "kernels/cpu/matmul_floats.h"

#include "base/num.h"
#include "tensor/codec.h"

#include <string.h>

#define I8(f, z, largest)                                                                                              \
    { MATMUL_ACT8, MATMUL_##f, z, largest }
#define F32                                                                                                            \
    { MATMUL_F32, 0, 0, 0 }

static const matmul_form forms[TENSOR_TYPE_COUNT] = {
    [TENSOR_F32] = F32,
    [TENSOR_F16] = F32,
    [TENSOR_BF16] = F32,
    [TENSOR_F8_E4M3] = F32,
    [TENSOR_F8_E5M2] = F32,
    [TENSOR_NF4] = F32,
    [TENSOR_MLX_MXFP8] = F32,
    [TENSOR_Q4_0] = I8(ZERO32, 8, 15),
    [TENSOR_Q5_0] = I8(ZERO32, 16, 31),
    [TENSOR_Q8_0] = I8(ZERO32, 128, 255),
    [TENSOR_Q8_K] = I8(ZERO32, 128, 255),
    [TENSOR_IQ4_NL] = I8(ZERO32, 128, 255),
    [TENSOR_IQ4_XS] = I8(ZERO32, 128, 255),
    [TENSOR_MXFP4] = I8(ZERO32, 12, 24),
    [TENSOR_MLX_MXFP4] = I8(ZERO32, 12, 24),
    [TENSOR_IQ2_XXS] = I8(ZERO32, 64, 107),
    [TENSOR_IQ3_XXS] = I8(ZERO32, 64, 126),
    [TENSOR_IQ3_S] = I8(ZERO32, 64, 79),
    [TENSOR_IQ1_S] = I8(ZERO32, 64, 73),
    [TENSOR_TQ1_0] = I8(ZERO32, 1, 2),
    [TENSOR_TQ2_0] = I8(ZERO32, 1, 3),
    [TENSOR_Q1_0] = I8(ZERO32, 1, 2),
    [TENSOR_Q2_0] = I8(ZERO32, 1, 3),
    [TENSOR_Q4_1] = I8(MIN32, 0, 15),
    [TENSOR_Q5_1] = I8(MIN32, 0, 31),
    [TENSOR_Q4_K] = I8(MIN32, 0, 15),
    [TENSOR_Q5_K] = I8(MIN32, 0, 31),
    [TENSOR_MLX_AFF2] = I8(MIN32, 0, 3),
    [TENSOR_MLX_AFF3] = I8(MIN32, 0, 7),
    [TENSOR_MLX_AFF4] = I8(MIN32, 0, 15),
    [TENSOR_MLX_AFF5] = I8(MIN32, 0, 31),
    [TENSOR_MLX_AFF6] = I8(MIN32, 0, 63),
    [TENSOR_MLX_AFF8] = I8(MIN32, 0, 255),
    [TENSOR_Q6_K] = I8(ZERO16, 32, 63),
    [TENSOR_Q3_K] = I8(ZERO16, 4, 7),
    [TENSOR_IQ2_XS] = I8(ZERO16, 64, 107),
    [TENSOR_IQ2_S] = I8(ZERO16, 64, 107),
    [TENSOR_IQ1_M] = I8(ZERO16, 64, 73),
    [TENSOR_NVFP4] = I8(ZERO16, 12, 24),
    [TENSOR_MLX_NVFP4] = I8(ZERO16, 12, 24),
    [TENSOR_Q2_K] = I8(MIN16, 0, 3),
};

matmul_form matmul_form_of(int type) {
    return type >= 0 && type < TENSOR_TYPE_COUNT ? forms[type] : (matmul_form){ MATMUL_NONE, 0, 0, 0 };
}

matmul_kind matmul_input(int type) { return (matmul_kind)matmul_form_of(type).kind; }

static bool is_affine(int type) { return type >= TENSOR_MLX_AFF2 && type <= TENSOR_MLX_AFF8; }

static bool scale_type_known(int t) {
    return t == TENSOR_F32 || t == TENSOR_F16 || t == TENSOR_BF16 || t == TENSOR_F8_E4M3 || t == TENSOR_F8_E8M0;
}

static int check_scales(const tensor_mat *w, err *e) {
    const char *name = tensor_type_name(w->type);
    bool        needs = w->type == TENSOR_NF4 || w->type >= TENSOR_MLX_AFF2;
    if (!w->scales && needs) return err_set(e, ERR_ARG, "matmul: %s needs a scale array", name);
    if (!w->scales) return 0;
    if (!scale_type_known(w->scale_type))
        return err_set(e, ERR_UNSUPPORTED, "matmul: scales of type %s", tensor_type_name(w->scale_type));
    if (w->group <= 0 || w->group_rows <= 0)
        return err_set(e, ERR_ARG, "matmul: scale group of %d x %d", w->group, w->group_rows);
    if (w->type < TENSOR_GGML_END && !tensor_mat_scale_whole(w))
        return err_set(e, ERR_UNSUPPORTED, "matmul: %s with scales of its own", name);
    if (matmul_input(w->type) == MATMUL_ACT8 && w->type > TENSOR_GGML_END) {
        int unit = w->type == TENSOR_MLX_NVFP4 ? 16 : 32;
        if (w->group % unit != 0 || w->cols % w->group != 0 || w->group_rows != 1)
            return err_set(e, ERR_UNSUPPORTED, "matmul: %s with groups of %d in rows of %lld", name, w->group,
                           (long long)w->cols);
    }
    if (is_affine(w->type) && !w->biases) return err_set(e, ERR_ARG, "matmul: %s needs a bias array", name);
    return 0;
}

int matmul_check(const tensor_mat *w, err *e) {
    const tensor_type_info *t = tensor_type_get(w->type);
    matmul_kind             kind = matmul_input(w->type);
    size_t                  row_bytes;
    if (kind == MATMUL_NONE)
        return err_set(e, ERR_UNSUPPORTED, "matmul: weights of type %s", tensor_type_name(w->type));
    if (w->rows <= 0 || w->cols <= 0 || w->cols % t->block_elems != 0 ||
        (kind == MATMUL_ACT8 && w->cols % ACT8_BLOCK != 0))
        return err_set(e, ERR_ARG, "matmul: %s matrix of %lld x %lld", t->name, (long long)w->rows, (long long)w->cols);
    if (!tensor_row_bytes(w->type, w->cols, &row_bytes) || w->row_bytes < row_bytes)
        return err_set(e, ERR_ARG, "matmul: %s rows of %zu bytes for %lld inputs", t->name, w->row_bytes,
                       (long long)w->cols);
    return check_scales(w, e);
}

void kernels_matmul_list(const kernels_matmul *t, kernels_visit *visit, void *ctx) {
#define X(fn, slot) KERNEL_VISIT(t, "matmul", slot);
    KERNELS_MATMUL_SLOTS(X)
#undef X
}
