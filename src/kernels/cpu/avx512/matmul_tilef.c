/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The f32 register tile: up to 3 panels (48 weight rows) x 8 activation rows; per input 3 loads, 8 broadcasts, 24 FMAs.
 */
#include "kernels/cpu/avx512/matmul_avx512.h"

INLINE void tilef(const matmul_panelf *p, int kn, const float *const *rows, float *c, bool first, int wide, int n) {
    __m512       f[MATMUL_WIDE][MATMUL_ROWSF];
    const float *x[MATMUL_ROWSF];
    for (int r = 0; r < n; r++) {
        x[r] = rows[r];
        for (int i = 0; i < wide; i++)
            f[i][r] = first ? _mm512_setzero_ps() : _mm512_loadu_ps(c + r * MATMUL_LANES + i * MATMUL_PANEL);
    }
    for (int k = 0; k < kn; k++) {
        __m512 w[MATMUL_WIDE];
        for (int i = 0; i < wide; i++) w[i] = _mm512_load_ps(p[i].w + k * MATMUL_PANEL);
        for (int r = 0; r < n; r++) {
            __m512 v = _mm512_set1_ps(x[r][k]);
            for (int i = 0; i < wide; i++) f[i][r] = _mm512_fmadd_ps(w[i], v, f[i][r]);
        }
    }
    for (int r = 0; r < n; r++)
        for (int i = 0; i < wide; i++) _mm512_storeu_ps(c + r * MATMUL_LANES + i * MATMUL_PANEL, f[i][r]);
}

MATMUL_TILESF(avx512)
