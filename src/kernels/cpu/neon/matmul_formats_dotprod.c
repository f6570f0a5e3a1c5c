/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix-vector kernels with sdot. */
#include "kernels/cpu/neon/matmul_formats.h"

#define GEMV_SET dotprod
#define GEMV_START(x, zero, min, group, half) flipped_start(x, zero, min, group, half)
#define GEMV_FLIP(w, zero, min) veorq_u8(w, flip_mask(zero, min))
#define GEMV_DOT(acc, w, x) vdotq_s32(acc, vreinterpretq_s8_u8(w), vreinterpretq_s8_s32(x))

FORMAT_LIST(FORMAT_GEMV)
