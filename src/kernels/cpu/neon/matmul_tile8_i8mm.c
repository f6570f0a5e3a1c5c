/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The int8 tile with usmmla: 2 weight rows x 8 inputs times 8 inputs x 2 activation rows per instruction, unsigned
 * weights as they are.
 *
 * matmul_arrange_i8mm turns the panel into that order once after unpacking: for every 8 inputs and pair of weight rows
 * one vector of 16 bytes, row 2j in its lower half (vector (k / 8) * 8 + j). Eight weight rows x four activation rows
 * are eight vectors of 2x2 sums; unzipping them at the end of a group gives one vector per activation row. A single
 * activation row takes usdot on the same vectors.
 */
#include "kernels/cpu/neon/matmul_neon.h"

void matmul_arrange_i8mm(matmul_panel8 *p, int kn, int group) {
    (void)group;
    for (int k = 0; k < kn; k += 8) {
        uint8_t   *q = p->q + k * MATMUL_PANEL;
        uint32x4_t a[4], b[4];
        for (int i = 0; i < 4; i++) {
            a[i] = vreinterpretq_u32_u8(vld1q_u8(q + 16 * i));
            b[i] = vreinterpretq_u32_u8(vld1q_u8(q + 64 + 16 * i));
        }
        for (int i = 0; i < 4; i++) {
            vst1q_u8(q + 32 * i, vreinterpretq_u8_u32(vzip1q_u32(a[i], b[i])));
            vst1q_u8(q + 32 * i + 16, vreinterpretq_u8_u32(vzip2q_u32(a[i], b[i])));
        }
    }
}

/* Integer sums of eight weight rows and two activation rows: out[row][vector of four weight rows]. */
INLINE void dots_pair(const uint8_t *q, const act8 *x0, const act8 *x1, int at, int group, int32x4_t out[2][2]) {
    int32x4_t a[4] = { vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0) };
    for (int k = 0; k < group; k += 8) {
        int8x16_t x = vcombine_s8(vld1_s8(x0->q + at + k), vld1_s8(x1->q + at + k));
        for (int j = 0; j < 4; j++) a[j] = vusmmlaq_s32(a[j], vld1q_u8(q + k * MATMUL_PANEL + 16 * j), x);
    }
    for (int i = 0; i < 2; i++) {
        out[0][i] = vuzp1q_s32(a[2 * i], a[2 * i + 1]);
        out[1][i] = vuzp2q_s32(a[2 * i], a[2 * i + 1]);
    }
}

INLINE void dots_one(const uint8_t *q, const act8 *x0, int at, int group, int32x4_t out[2]) {
    int32x4_t a[4] = { vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0) };
    for (int k = 0; k < group; k += 8) {
        int8x8_t  h = vld1_s8(x0->q + at + k);
        int8x16_t x = vcombine_s8(h, h);
        for (int j = 0; j < 4; j++) a[j] = vusdotq_s32(a[j], vld1q_u8(q + k * MATMUL_PANEL + 16 * j), x);
    }
    for (int i = 0; i < 2; i++) out[i] = vpaddq_s32(a[2 * i], a[2 * i + 1]);
}

INLINE void tile8_half(const matmul_panel8 *p, int lane, int zero, int kn, const act8 *const *rows, float *c,
                       bool first, int n, int group, bool min) {
    float32x4_t f[MATMUL_ROWS8][2];
    for (int r = 0; r < n; r++)
        for (int i = 0; i < 2; i++) f[r][i] = first ? vdupq_n_f32(0) : vld1q_f32(c + r * MATMUL_LANES + 4 * i);
    for (int k = 0; k < kn; k += group) {
        int            g = k / group, half = k % 32 / 16, b = k / 32;
        const uint8_t *q = p->q + k * MATMUL_PANEL + lane * 8;
        int32x4_t      a[MATMUL_ROWS8][2];
        for (int r = 0; r + 1 < n; r += 2) dots_pair(q, &rows[r][b], &rows[r + 1][b], k % 32, group, a + r);
        if (n % 2) dots_one(q, &rows[n - 1][b], k % 32, group, a[n - 1]);
        for (int i = 0; i < 2; i++) {
            float32x4_t scale = vld1q_f32(p->scale + g * MATMUL_PANEL + lane + 4 * i);
            for (int r = 0; r < n; r++) {
                int32x4_t sum = vaddq_s32(a[r][i], zero_start(&rows[r][b], zero, group, half));
                f[r][i] = group_add(f[r][i], sum, scale, &rows[r][b]);
            }
            if (min) {
                float32x4_t m = vld1q_f32(p->min + g * MATMUL_PANEL + lane + 4 * i);
                for (int r = 0; r < n; r++) f[r][i] = group_add_min(f[r][i], m, &rows[r][b], group, half);
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

MATMUL_TILES8(i8mm)
