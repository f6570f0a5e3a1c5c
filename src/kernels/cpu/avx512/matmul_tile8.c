/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The int8 register tile: up to 3 panels (48 weight rows) x 4 activation rows.
 *
 * Per quad of inputs: 3 loads of weights, 4 broadcasts of activations, 12 vpdpbusd. Twelve integer sums, twelve float
 * sums, three weights and one broadcast stay in 28 registers.
 *
 * Everything that multiplies shares the same two pipes (Zen 4: one 512-bit dot or FMA per cycle), so what counts is how
 * few multiplications there are beside the dots. The scale of an activation block is a power of two times one of eight
 * steps (kernels/act.h): the panel keeps its scales times each of the steps, vscalefps, which runs in the other pipes,
 * applies the power, and one FMA per group of 32 is left: at most 96 of 108 slots do dots (of 120 with a minimum). The
 * bits are those of scale * d: both factors of the FMA differ from that only by the power of two. Order of operations:
 * kernels/matmul.h.
 */
#include "kernels/cpu/avx512/matmul_avx512.h"

INLINE void tile8(const matmul_panel8 *p, int zero, int kn, const act8 *const *rows, float *c, bool first, int wide,
                  int n, int group, bool min) {
    __m512      f[MATMUL_WIDE][MATMUL_ROWS8];
    const act8 *x[MATMUL_ROWS8];
    for (int r = 0; r < n; r++) {
        x[r] = rows[r];
        for (int i = 0; i < wide; i++)
            f[i][r] = first ? _mm512_setzero_ps() : _mm512_loadu_ps(c + r * MATMUL_LANES + i * MATMUL_PANEL);
    }
    for (int b = 0; b < kn / 32; b++) {
        for (int half = 0; half < 32 / group; half++) {
            const uint8_t *q = p->q + (size_t)(b * 8 + half * 4) * 64;
            const float   *steps = p->steps + (size_t)(b * (32 / group) + half) * ACT8_STEPS * MATMUL_PANEL;
            const float   *mins = p->min + (size_t)(b * (32 / group) + half) * MATMUL_PANEL;
            __m512i        a[MATMUL_WIDE][MATMUL_ROWS8];
            for (int r = 0; r < n; r++) {
                /* Computed outside of the vector units, which are the limit. */
                int     sum = group == 32 ? x[r][b].sum : x[r][b].s[half];
                __m512i start = min ? _mm512_setzero_si512() : _mm512_set1_epi32(-zero * sum);
                for (int i = 0; i < wide; i++) a[i][r] = start;
            }
            for (int quad = 0; quad < group / 4; quad++) {
                __m512i w[MATMUL_WIDE];
                for (int i = 0; i < wide; i++) w[i] = _mm512_load_si512(q + i * sizeof *p + quad * 64);
                for (int r = 0; r < n; r++) {
                    __m512i v = _mm512_set1_epi32((int)load_u32(x[r][b].q + half * 16 + quad * 4));
                    for (int i = 0; i < wide; i++) a[i][r] = _mm512_dpbusd_epi32(a[i][r], w[i], v);
                }
            }
            for (int r = 0; r < n; r++) {
                __m512       power = _mm512_getexp_ps(_mm512_set1_ps(x[r][b].d)); /* -Inf of 0, NaN of NaN */
                const float *scale = steps + act8_step(x[r][b].d) * MATMUL_PANEL;
                for (int i = 0; i < wide; i++)
                    f[i][r] = _mm512_fmadd_ps(_mm512_scalef_ps(_mm512_cvtepi32_ps(a[i][r]), power),
                                              _mm512_load_ps(scale + i * (sizeof *p / 4)), f[i][r]);
            }
            if (min)
                for (int i = 0; i < wide; i++) {
                    __m512 m = _mm512_load_ps(mins + i * (sizeof *p / 4));
                    for (int r = 0; r < n; r++) f[i][r] = group_add_min(f[i][r], m, &x[r][b], group, half);
                }
        }
    }
    for (int r = 0; r < n; r++)
        for (int i = 0; i < wide; i++) _mm512_storeu_ps(c + r * MATMUL_LANES + i * MATMUL_PANEL, f[i][r]);
}

void matmul_arrange8_avx512(matmul_panel8 *p, int kn, int group) {
    for (int g = 0; g < kn / group; g++) {
        __m512 scale = _mm512_load_ps(p->scale + g * MATMUL_PANEL);
        UNROLL
        for (int j = 0; j < ACT8_STEPS; j++)
            _mm512_store_ps(p->steps + (g * ACT8_STEPS + j) * MATMUL_PANEL,
                            _mm512_mul_ps(scale, _mm512_set1_ps(1 + (float)j / ACT8_STEPS)));
    }
}

MATMUL_TILES8(avx512)
