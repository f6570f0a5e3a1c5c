/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix-vector kernels with usdot: unsigned weights need no flip. */
#include "kernels/cpu/neon/matmul_formats.h"

#define GEMV_SET i8mm
#define GEMV_START(x, zero, min, group, half) zero_start(x, zero, group, half)
#define GEMV_FLIP(w, zero, min) (w)
#define GEMV_DOT(acc, w, x) vusdotq_s32(acc, w, vreinterpretq_s8_s32(x))

FORMAT_LIST(FORMAT_GEMV)
