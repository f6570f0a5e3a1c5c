/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The quantizers of one instruction set: a file per set defines QUANT_SET and includes this. All sets give the same
 * bytes: no operation is fused, every sum has one order (quant/lanes.h).
 */
#include "tensor/quant/grid.h"
#include "tensor/quant/plain.h"
#include "tensor/quant/super.h"
#include "tensor/quant/table.h"

static uint8_t scale_e2m1(const float *x, int n, bool e4m3) {
    static const float ones[16] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };
    float              w[FIT_MAX];
    if (e4m3) return e4m3_for_e2m1(x, ones, n);
    for (int i = 0; i < n; i++) w[i] = 1;
    return e8m0_for_e2m1(x, w, n);
}

const quant_table QUANT_SET = {
    .block = { [TENSOR_Q4_0] = quant_q4_0,       [TENSOR_Q4_1] = quant_q4_1,     [TENSOR_Q5_0] = quant_q5_0,
               [TENSOR_Q5_1] = quant_q5_1,       [TENSOR_Q8_0] = quant_q8_0,     [TENSOR_Q8_1] = quant_q8_1,
               [TENSOR_Q2_K] = quant_q2_k,       [TENSOR_Q3_K] = quant_q3_k,     [TENSOR_Q4_K] = quant_q4_k,
               [TENSOR_Q5_K] = quant_q5_k,       [TENSOR_Q6_K] = quant_q6_k,     [TENSOR_Q8_K] = quant_q8_k,
               [TENSOR_IQ2_XXS] = quant_iq2_xxs, [TENSOR_IQ2_XS] = quant_iq2_xs, [TENSOR_IQ2_S] = quant_iq2_s,
               [TENSOR_IQ3_XXS] = quant_iq3_xxs, [TENSOR_IQ3_S] = quant_iq3_s,   [TENSOR_IQ1_S] = quant_iq1_s,
               [TENSOR_IQ1_M] = quant_iq1_m,     [TENSOR_IQ4_NL] = quant_iq4_nl, [TENSOR_IQ4_XS] = quant_iq4_xs,
               [TENSOR_TQ1_0] = quant_tq1_0,     [TENSOR_TQ2_0] = quant_tq2_0,   [TENSOR_MXFP4] = quant_mxfp4,
               [TENSOR_NVFP4] = quant_nvfp4 },
    .affine = fit_affine,
    .scale_e2m1 = scale_e2m1,
    .from_f16 = from_f16,
    .from_bf16 = from_bf16,
    .to_f16 = to_f16,
};
