/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AVX2 for F32, F16 and BF16: unpacking to f32 panels, matrix-vector, and the f32 register tile (16 weight rows in two
 * registers x up to 6 activation rows). Eight inputs of 8 rows are transposed at a time. Order of operations:
 * kernels/matmul.h.
 */
#include "kernels/cpu/avx2/matmul_avx2.h"

/* r[i] = 8 inputs of row i; afterwards r[j] = input j of every row. */
INLINE void transpose8(__m256 r[8]) {
    __m256 t[8], u[8];
    UNROLL
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    UNROLL
    for (int i = 0; i < 8; i += 4) {
        u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    UNROLL
    for (int j = 0; j < 4; j++) {
        r[j] = _mm256_permute2f128_ps(u[j], u[4 + j], 0x20);
        r[4 + j] = _mm256_permute2f128_ps(u[j], u[4 + j], 0x31);
    }
}

INLINE __m256 f32_load(const uint8_t *p) { return _mm256_loadu_ps((const float *)(const void *)p); }
INLINE __m256 f16_load(const uint8_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p)); }
INLINE __m256 bf16_load(const uint8_t *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p)), 16));
}

#define MATMUL_FLOAT(NAME, BYTES)                                                                                      \
    void matmul_unpackf_##NAME##_avx2(const matmul_src *s, int64_t row0, int n, int64_t k0, int kn, int64_t ahead,     \
                                      matmul_panelf *p) {                                                              \
        size_t stride = s->w->row_bytes;                                                                               \
        int    k = 0;                                                                                                  \
        for (; k + 8 <= kn; k += 8)                                                                                    \
            for (int side = 0; side < 2; side++) {                                                                     \
                const uint8_t *data = s->data + (size_t)(row0 + 8 * side) * stride + (size_t)(k0 + k) * (BYTES);       \
                __m256         r[8];                                                                                   \
                UNROLL for (int i = 0; i < 8; i++) {                                                                   \
                    r[i] = NAME##_load(data + (size_t)i * stride);                                                     \
                    if (k % (64 / (BYTES)) == 0)                                                                       \
                        _mm_prefetch((const char *)data + ahead + (size_t)i * stride, _MM_HINT_T1);                    \
                }                                                                                                      \
                transpose8(r);                                                                                         \
                UNROLL for (int j = 0; j < 8; j++) _mm256_store_ps(p->w + (k + j) * MATMUL_PANEL + 8 * side, r[j]);    \
            }                                                                                                          \
        if (k < kn) matmul_unpackf_scalar(s, row0, n, k0 + k, kn - k, 0, (matmul_panelf *)(p->w + k * MATMUL_PANEL));  \
    }                                                                                                                  \
                                                                                                                       \
    void matmul_gemvf_##NAME##_avx2(const matmul_src *s, int64_t row0, const float *x, float *out) {                   \
        size_t         stride = s->w->row_bytes;                                                                       \
        const uint8_t *data = s->data + (size_t)row0 * stride, *ahead = data + 16 * stride;                            \
        __m256         acc[2] = { _mm256_setzero_ps(), _mm256_setzero_ps() };                                          \
        int64_t        k = 0;                                                                                          \
        for (; k + 8 <= s->w->cols; k += 8, data += 8 * (BYTES)) {                                                     \
            fetch(ahead, 128 * (BYTES));                                                                               \
            ahead += 128 * (BYTES);                                                                                    \
            UNROLL for (int side = 0; side < 2; side++) {                                                              \
                __m256 r[8];                                                                                           \
                UNROLL for (int i = 0; i < 8; i++) r[i] = NAME##_load(data + (size_t)(8 * side + i) * stride);         \
                transpose8(r);                                                                                         \
                UNROLL for (int j = 0; j < 8; j++) acc[side] =                                                         \
                    _mm256_fmadd_ps(r[j], _mm256_set1_ps(x[k + j]), acc[side]);                                        \
            }                                                                                                          \
        }                                                                                                              \
        if (k < s->w->cols) {                                                                                          \
            int   left = (int)(s->w->cols - k);                                                                        \
            float w[8 * MATMUL_PANEL];                                                                                 \
            matmul_unpackf_scalar(s, row0, 16, k, left, 0, (matmul_panelf *)w);                                        \
            for (int i = 0; i < left; i++)                                                                             \
                for (int side = 0; side < 2; side++)                                                                   \
                    acc[side] = _mm256_fmadd_ps(_mm256_loadu_ps(w + i * MATMUL_PANEL + 8 * side),                      \
                                                _mm256_set1_ps(x[k + i]), acc[side]);                                  \
        }                                                                                                              \
        _mm256_storeu_ps(out, acc[0]);                                                                                 \
        _mm256_storeu_ps(out + 8, acc[1]);                                                                             \
    }

MATMUL_FLOAT(f32, 4)
MATMUL_FLOAT(f16, 2)
MATMUL_FLOAT(bf16, 2)

INLINE void panelf(const float *w, int kn, const float *const *x, float *c, bool first, int n) {
    __m256 f[2][6];
    UNROLL
    for (int r = 0; r < n; r++) {
        f[0][r] = first ? _mm256_setzero_ps() : _mm256_loadu_ps(c + r * MATMUL_LANES);
        f[1][r] = first ? _mm256_setzero_ps() : _mm256_loadu_ps(c + r * MATMUL_LANES + 8);
    }
    for (int k = 0; k < kn; k++) {
        __m256 w0 = _mm256_load_ps(w + k * MATMUL_PANEL), w1 = _mm256_load_ps(w + k * MATMUL_PANEL + 8);
        UNROLL
        for (int r = 0; r < n; r++) {
            __m256 v = _mm256_set1_ps(x[r][k]);
            f[0][r] = _mm256_fmadd_ps(w0, v, f[0][r]);
            f[1][r] = _mm256_fmadd_ps(w1, v, f[1][r]);
        }
    }
    UNROLL
    for (int r = 0; r < n; r++) {
        _mm256_storeu_ps(c + r * MATMUL_LANES, f[0][r]);
        _mm256_storeu_ps(c + r * MATMUL_LANES + 8, f[1][r]);
    }
}

INLINE void tilef(const matmul_panelf *p, int kn, const float *const *rows, float *c, bool first, int wide, int n) {
    int n0 = n > 6 ? 4 : n;
    for (int i = 0; i < wide; i++) {
        panelf(p[i].w, kn, rows, c + i * MATMUL_PANEL, first, n0);
        if (n > n0) panelf(p[i].w, kn, rows + n0, c + i * MATMUL_PANEL + n0 * MATMUL_LANES, first, n - n0);
    }
}

MATMUL_TILESF(avx2)
