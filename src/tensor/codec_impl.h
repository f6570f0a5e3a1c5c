/* SPDX-License-Identifier: Apache-2.0 */
/* Inside src/tensor: one block each way, by type. A NULL entry means that the type has no such function. */
#ifndef TENSOR_CODEC_IMPL_H
#define TENSOR_CODEC_IMPL_H

#include <stdbool.h>
#include <stdint.h>

typedef void dequant_block_fn(const void *block, float *dst);
typedef void quant_block_fn(const float *src, void *block);

dequant_block_fn dequant_q4_0, dequant_q4_1, dequant_q5_0, dequant_q5_1, dequant_q8_0, dequant_q8_1, dequant_q2_k,
    dequant_q3_k, dequant_q4_k, dequant_q5_k, dequant_q6_k, dequant_q8_k, dequant_tq1_0, dequant_tq2_0, dequant_mxfp4,
    dequant_nvfp4;
dequant_block_fn dequant_iq1_s, dequant_iq1_m, dequant_iq2_xxs, dequant_iq2_xs, dequant_iq2_s, dequant_iq3_xxs,
    dequant_iq3_s, dequant_iq4_nl, dequant_iq4_xs;

quant_block_fn quant_q4_0, quant_q4_1, quant_q5_0, quant_q5_1, quant_q8_0, quant_q8_1, quant_tq1_0, quant_tq2_0,
    quant_mxfp4, quant_nvfp4, quant_iq4_nl;
quant_block_fn quant_q2_k, quant_q3_k, quant_q4_k, quant_q5_k, quant_q6_k, quant_q8_k, quant_iq4_xs;

/* The scale code with the least squared error for n elements that become e2m1. */
uint8_t quant_e8m0_for_e2m1(const float *x, int n);
uint8_t quant_e4m3_for_e2m1(const float *x, int n);

#endif
