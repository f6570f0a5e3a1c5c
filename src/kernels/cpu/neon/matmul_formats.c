/* SPDX-License-Identifier: Apache-2.0 */
/* Unpacking of int8 formats, and matrix-vector kernels without dot instructions. */
#include "kernels/cpu/neon/matmul_formats.h"

/* Four bytes of each of four rows: products of 16 bits, added pairwise twice. */
INLINE int32x4_t dot_plain(int32x4_t acc, uint8x16_t w, int32x4_t x) {
    int8x16_t s = vreinterpretq_s8_u8(w), v = vreinterpretq_s8_s32(x);
    int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(s), vget_low_s8(v)));
    int32x4_t high = vpaddlq_s16(vmull_high_s8(s, v));
    return vaddq_s32(acc, vpaddq_s32(low, high));
}

#define GEMV_SET neon
#define GEMV_START(x, zero, min, group, half) flipped_start(x, zero, min, group, half)
#define GEMV_FLIP(w, zero, min) veorq_u8(w, flip_mask(zero, min))
#define GEMV_DOT(acc, w, x) dot_plain(acc, w, x)

FORMAT_LIST(FORMAT_UNPACK)
FORMAT_LIST(FORMAT_GEMV)
