/* SPDX-License-Identifier: Apache-2.0 */
/* Inside src/tensor: how a block of each type is read. */
#ifndef TENSOR_CODEC_IMPL_H
#define TENSOR_CODEC_IMPL_H

#include <stdbool.h>
#include <stdint.h>

typedef void dequant_block_fn(const void *block, float *dst);

dequant_block_fn dequant_q4_0, dequant_q4_1, dequant_q5_0, dequant_q5_1, dequant_q8_0, dequant_q8_1, dequant_q2_k,
    dequant_q3_k, dequant_q4_k, dequant_q5_k, dequant_q6_k, dequant_q8_k, dequant_tq1_0, dequant_tq2_0, dequant_q1_0,
    dequant_q2_0, dequant_mxfp4, dequant_nvfp4;
dequant_block_fn dequant_iq1_s, dequant_iq1_m, dequant_iq2_xxs, dequant_iq2_xs, dequant_iq2_s, dequant_iq3_xxs,
    dequant_iq3_s, dequant_iq4_nl, dequant_iq4_xs;

#endif
