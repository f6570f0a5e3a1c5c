/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints whose integers are packed by other tools, as the tensors that the rest of the program knows.
 *
 * Weights w[out][in] of b bits in groups along a row, w = s (q - z). GPTQ keeps qweight I32 [in b/32][out], low bits
 * first, qzeros [groups][out b/32] (mostly one less than meant), scales [groups][out] and g_idx, the group of each
 * column. AWQ keeps qweight I32 [in][out/8] whose nibble k is output {0,2,4,6,1,3,5,7}[k], qzeros alike. compressed-tensors
 * keeps weight_packed I32 [out][in b/32] of q + 2^(b-1), weight_scale [out][groups] and maybe packed zero points.
 *
 * Each becomes the packing of MLX, X.weight with X.scales and X.biases in F32: s and -s z, exactly. Where g_idx puts the
 * columns into another order, no packing holds them, and X.weight is F16. The new tensors are in memory.
 *
 * Four-bit floats. bitsandbytes keeps X.weight U8 as flat blocks (64, high nibble first), X.weight.absmax F32, or U8 as
 * nested_quant_map[u8] * nested_absmax[j / 256] + nested_offset, X.weight.quant_map, and the shape in JSON in
 * X.weight.quant_state.bitsandbytes__nf4: NF4 where it lies with X.nf4_scales in F32; F16 where blocks run over the ends
 * of rows or the values are not NF4's. ModelOpt keeps NVFP4 as X.weight U8 [out][in/2], even columns low, X.weight_scale
 * E4M3 per 16 and X.weight_scale_2 F32, which multiplies; compressed-tensors the same as X.weight_packed with
 * X.weight_global_scale, which divides: the blocks of GGUF with X.scale, exactly.
 */
#ifndef FORMATS_PACKED_H
#define FORMATS_PACKED_H

#include "formats/model_impl.h"

/* Adds the tensors to m, whose config and tensors were read. Nothing happens for other checkpoints. */
int packed_expand(model_file *m, err *e);
int packed_floats_expand(model_file *m, err *e);

#endif
