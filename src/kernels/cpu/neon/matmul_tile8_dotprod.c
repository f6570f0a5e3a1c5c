/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The int8 tile with sdot: eight weight rows (two vectors) x up to four activation rows at a time, so that eight
 * integer sums, eight float sums, four vectors of activations and the weights stay in registers. Sixteen activation
 * bytes are loaded once and used by element.
 */
#include "kernels/cpu/neon/matmul_neon.h"

#define STEP(lane)                                                                                                     \
    do {                                                                                                               \
        int8x16_t w0 = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(q + (lane)*64), flip));                                   \
        int8x16_t w1 = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(q + (lane)*64 + 16), flip));                              \
        for (int r = 0; r < n; r++) {                                                                                  \
            a[r][0] = vdotq_laneq_s32(a[r][0], w0, v[r], lane);                                                        \
            a[r][1] = vdotq_laneq_s32(a[r][1], w1, v[r], lane);                                                        \
        }                                                                                                              \
    } while (0)

/* Eight rows of a panel, from `lane` on, times n activation rows. */
INLINE void tile8_half(const matmul_panel8 *p, int lane, int zero, int kn, const act8 *const *rows, float *c,
                       bool first, int n, int group, bool min) {
    float32x4_t f[MATMUL_ROWS8][2];
    uint8x16_t  flip = flip_mask(zero, min);
    for (int r = 0; r < n; r++)
        for (int i = 0; i < 2; i++) f[r][i] = first ? vdupq_n_f32(0) : vld1q_f32(c + r * MATMUL_LANES + 4 * i);
    for (int k = 0; k < kn; k += group) {
        int       g = k / group, half = k % 32 / 16;
        int32x4_t a[MATMUL_ROWS8][2];
        for (int r = 0; r < n; r++) a[r][0] = a[r][1] = flipped_start(&rows[r][k / 32], zero, min, group, half);
        for (int part = 0; part < group; part += 16) {
            const uint8_t *q = p->q + (k + part) * MATMUL_PANEL + lane * 4;
            int8x16_t      v[MATMUL_ROWS8];
            for (int r = 0; r < n; r++) v[r] = vld1q_s8(rows[r][k / 32].q + k % 32 + part);
            STEP(0);
            STEP(1);
            STEP(2);
            STEP(3);
        }
        for (int i = 0; i < 2; i++) {
            float32x4_t scale = vld1q_f32(p->scale + g * MATMUL_PANEL + lane + 4 * i);
            for (int r = 0; r < n; r++) f[r][i] = group_add(f[r][i], a[r][i], scale, &rows[r][k / 32]);
            if (min) {
                float32x4_t m = vld1q_f32(p->min + g * MATMUL_PANEL + lane + 4 * i);
                for (int r = 0; r < n; r++) f[r][i] = group_add_min(f[r][i], m, &rows[r][k / 32], group, half);
            }
        }
    }
    for (int r = 0; r < n; r++)
        for (int i = 0; i < 2; i++) vst1q_f32(c + r * MATMUL_LANES + 4 * i, f[r][i]);
}

INLINE void tile8(const matmul_panel8 *p, int zero, int kn, const act8 *const *rows, float *c, bool first, int wide,
                  int n, int group, bool min) {
    for (int at = 0; at < wide * MATMUL_PANEL; at += 8)
        tile8_half(p + at / MATMUL_PANEL, at % MATMUL_PANEL, zero, kn, rows, c + at, first, n, group, min);
}

MATMUL_TILES8(dotprod)
