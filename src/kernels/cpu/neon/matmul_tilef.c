/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The f32 tile: eight weight rows (two vectors) x up to eight activation rows at a time: sixteen sums; per input two
 * loads of weights, and four inputs of an activation row are loaded at once and used by element.
 */
#include "kernels/cpu/neon/matmul_neon.h"

#define STEP(lane)                                                                                                     \
    do {                                                                                                               \
        float32x4_t w0 = vld1q_f32(w + (k + (lane)) * MATMUL_PANEL),                                                   \
                    w1 = vld1q_f32(w + (k + (lane)) * MATMUL_PANEL + 4);                                               \
        for (int r = 0; r < n; r++) {                                                                                  \
            f[r][0] = vfmaq_laneq_f32(f[r][0], w0, v[r], lane);                                                        \
            f[r][1] = vfmaq_laneq_f32(f[r][1], w1, v[r], lane);                                                        \
        }                                                                                                              \
    } while (0)

INLINE void tilef_half(const float *w, int kn, const float *const *rows, float *c, bool first, int n) {
    float32x4_t f[MATMUL_ROWSF][2];
    int         k = 0;
    for (int r = 0; r < n; r++)
        for (int i = 0; i < 2; i++) f[r][i] = first ? vdupq_n_f32(0) : vld1q_f32(c + r * MATMUL_LANES + 4 * i);
    for (; k + 4 <= kn; k += 4) {
        float32x4_t v[MATMUL_ROWSF];
        for (int r = 0; r < n; r++) v[r] = vld1q_f32(rows[r] + k);
        STEP(0);
        STEP(1);
        STEP(2);
        STEP(3);
    }
    for (; k < kn; k++)
        for (int r = 0; r < n; r++)
            for (int i = 0; i < 2; i++)
                f[r][i] = vfmaq_n_f32(f[r][i], vld1q_f32(w + k * MATMUL_PANEL + 4 * i), rows[r][k]);
    for (int r = 0; r < n; r++)
        for (int i = 0; i < 2; i++) vst1q_f32(c + r * MATMUL_LANES + 4 * i, f[r][i]);
}

INLINE void tilef(const matmul_panelf *p, int kn, const float *const *rows, float *c, bool first, int wide, int n) {
    for (int at = 0; at < wide * MATMUL_PANEL; at += 8)
        tilef_half(p[at / MATMUL_PANEL].w + at % MATMUL_PANEL, kn, rows, c + at, first, n);
}

MATMUL_TILESF(neon)
