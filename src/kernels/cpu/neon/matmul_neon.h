/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the NEON matmul files share. Sixteen weight rows are four vectors of four lanes; the panel order of
 * cpu/matmul_panel.h (four inputs of a row side by side) is what sdot and usdot want.
 *
 * The integer dot product exists three times, chosen at run time, all exact and so all the same:
 *
 *   plain     smull, smlal, sadalp                every AArch64
 *   dotprod   sdot by element                     CPU_DOTPROD
 *   i8mm      usmmla on pairs of rows, usdot      CPU_I8MM
 *
 * smull and sdot want signed weights: bytes that may pass 127 (types with zero 128, and all with a minimum) are flipped
 * by 0x80, which subtracts 128, and 128 * (sum of the activations) is added where the sums begin. Order of float
 * operations: kernels/matmul.h.
 */
#ifndef KERNELS_CPU_NEON_MATMUL_NEON_H
#define KERNELS_CPU_NEON_MATMUL_NEON_H

#include "kernels/cpu/matmul_panel.h"

#include <arm_neon.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* What to flip weight bytes with, and what the integer sum of a group begins with. */
INLINE uint8x16_t flip_mask(int zero, bool min) { return vdupq_n_u8(min || zero == 128 ? 0x80 : 0); }

INLINE int group_sum(const act8 *x, int group, int half) { return group == 32 ? x->sum : x->s[half]; }

INLINE int32x4_t flipped_start(const act8 *x, int zero, bool min, int group, int half) {
    return vdupq_n_s32(((min || zero == 128 ? 128 : 0) - zero) * group_sum(x, group, half));
}

INLINE int32x4_t zero_start(const act8 *x, int zero, int group, int half) {
    return vdupq_n_s32(-zero * group_sum(x, group, half));
}

/* The float steps of a group; every path uses them. */
INLINE float32x4_t group_add(float32x4_t acc, int32x4_t sum, float32x4_t scale, const act8 *x) {
    return vfmaq_f32(acc, vcvtq_f32_s32(sum), vmulq_n_f32(scale, x->d));
}

INLINE float32x4_t group_add_min(float32x4_t acc, float32x4_t min, const act8 *x, int group, int half) {
    float ds = group == 32 ? x->ds : x->d * (float)x->s[half];
    return vfmaq_f32(acc, min, vdupq_n_f32(ds));
}

extern matmul_tile8_fn *const matmul_tile8_neon[MATMUL_FORMS][MATMUL_WIDE][MATMUL_ROWS8];
extern matmul_tile8_fn *const matmul_tile8_dotprod[MATMUL_FORMS][MATMUL_WIDE][MATMUL_ROWS8];
extern matmul_tile8_fn *const matmul_tile8_i8mm[MATMUL_FORMS][MATMUL_WIDE][MATMUL_ROWS8];

/* i8mm reads the values of a panel in another order: see matmul_tile8_i8mm.c. */
void matmul_arrange_i8mm(matmul_panel8 *p, int kn, int group);

/* Formats with vector unpacking and a fused matrix-vector kernel: X(tensor type, name). */
#define MATMUL_NEON_FORMATS(X)                                                                                         \
    X(Q4_0, q4_0)                                                                                                      \
    X(Q8_0, q8_0)                                                                                                      \
    X(IQ4_NL, iq4_nl)                                                                                                  \
    X(MXFP4, mxfp4)                                                                                                    \
    X(Q4_K, q4_k)                                                                                                      \
    X(Q5_K, q5_k)                                                                                                      \
    X(Q6_K, q6_k)                                                                                                      \
    X(IQ4_XS, iq4_xs)                                                                                                  \
    X(MLX_AFF4, mlx4)                                                                                                  \
    X(MLX_AFF8, mlx8)

#define X(type, name)                                                                                                  \
    matmul_unpack8_fn matmul_unpack8_##name##_neon;                                                                    \
    matmul_gemv8_fn   matmul_gemv8_##name##_neon, matmul_gemv8_##name##_dotprod, matmul_gemv8_##name##_i8mm;
MATMUL_NEON_FORMATS(X)
#undef X

#endif
