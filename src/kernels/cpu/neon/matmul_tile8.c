/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The int8 tile without dot instructions: four weight rows at a time, two activation rows.
 *
 * Two quads of inputs make products of 16 bits that are added in 16 bits (at most 2 * 128 * 127), then pairwise into 32
 * bits: a vector of sums holds two halves of two weight rows, and addp joins the halves at the end of the group.
 */
#include "kernels/cpu/neon/matmul_neon.h"

/* Four consecutive activation bytes in every 32-bit lane. */
INLINE int8x8_t quad_of(const int8_t *q) {
    int32_t v;
    memcpy(&v, q, 4);
    return vreinterpret_s8_s32(vdup_n_s32(v));
}

/* One group of one activation row times four weight rows; q is the panel at those rows. */
INLINE int32x4_t dot_group(const uint8_t *q, const int8_t *x, int group, uint8x16_t flip) {
    int32x4_t low = vdupq_n_s32(0), high = vdupq_n_s32(0);
    for (int quad = 0; quad < group / 4; quad += 2) {
        int8x16_t w0 = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(q + quad * 64), flip));
        int8x16_t w1 = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(q + quad * 64 + 64), flip));
        int8x8_t  x0 = quad_of(x + quad * 4), x1 = quad_of(x + quad * 4 + 4);
        int16x8_t l = vmlal_s8(vmull_s8(vget_low_s8(w0), x0), vget_low_s8(w1), x1);
        int16x8_t h = vmlal_s8(vmull_s8(vget_high_s8(w0), x0), vget_high_s8(w1), x1);
        low = vpadalq_s16(low, l);
        high = vpadalq_s16(high, h);
    }
    return vpaddq_s32(low, high);
}

INLINE void tile8(const matmul_panel8 *p, int zero, int kn, const act8 *const *rows, float *c, bool first, int wide,
                  int n, int group, bool min) {
    uint8x16_t flip = flip_mask(zero, min);
    for (int at = 0; at < wide * MATMUL_PANEL; at += 4) {
        const matmul_panel8 *pp = p + at / MATMUL_PANEL;
        int                  lane = at % MATMUL_PANEL;
        float32x4_t          f[MATMUL_ROWS8];
        for (int r = 0; r < n; r++) f[r] = first ? vdupq_n_f32(0) : vld1q_f32(c + r * MATMUL_LANES + at);
        for (int k = 0; k < kn; k += group) {
            int         g = k / group, half = k % 32 / 16;
            float32x4_t scale = vld1q_f32(pp->scale + g * MATMUL_PANEL + lane);
            for (int r = 0; r < n; r++) {
                const act8 *x = &rows[r][k / 32];
                int32x4_t   sum = dot_group(pp->q + k * MATMUL_PANEL + lane * 4, x->q + k % 32, group, flip);
                sum = vaddq_s32(sum, flipped_start(x, zero, min, group, half));
                f[r] = group_add(f[r], sum, scale, x);
                if (min) f[r] = group_add_min(f[r], vld1q_f32(pp->min + g * MATMUL_PANEL + lane), x, group, half);
            }
        }
        for (int r = 0; r < n; r++) vst1q_f32(c + r * MATMUL_LANES + at, f[r]);
    }
}

MATMUL_TILES8(neon)
