/* SPDX-License-Identifier: Apache-2.0 */
/* Unpacking of int8 and float formats, and matrix-vector kernels without dot instructions. */
#include "kernels/cpu/neon/matmul_formats.h"

#include "kernels/cpu/vec/neon.h"

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

/* Four inputs of four rows to four vectors of rows. */
INLINE void transpose_f32(const float32x4_t in[4], float32x4_t out[4]) {
    float32x4_t a0 = vtrn1q_f32(in[0], in[1]), a1 = vtrn2q_f32(in[0], in[1]), b0 = vtrn1q_f32(in[2], in[3]),
                b1 = vtrn2q_f32(in[2], in[3]);
    out[0] = vcombine_f32(vget_low_f32(a0), vget_low_f32(b0));
    out[1] = vcombine_f32(vget_low_f32(a1), vget_low_f32(b1));
    out[2] = vcombine_f32(vget_high_f32(a0), vget_high_f32(b0));
    out[3] = vcombine_f32(vget_high_f32(a1), vget_high_f32(b1));
}

/* Float rows: LOAD gives four inputs of a row, LOADN the last ones with zeros behind them. */
#define ROWS_OF(TYPE, first, k0)                                                                                       \
    const TYPE *x[4];                                                                                                  \
    for (int r = 0; r < 4; r++)                                                                                        \
        x[r] = (const TYPE *)(const void *)(s->data + (size_t)((first) + r) * s->w->row_bytes) + (k0);

#define FLOAT_FORMAT(NAME, TYPE, LOAD, LOADN)                                                                          \
    void matmul_unpackf_##NAME##_neon(const matmul_src *s, int64_t row0, int n, int64_t k0, int kn, int64_t ahead,     \
                                      matmul_panelf *p) {                                                              \
        (void)n, (void)ahead;                                                                                          \
        for (int row = 0; row < 16; row += 4) {                                                                        \
            ROWS_OF(TYPE, row0 + row, k0)                                                                              \
            for (int k = 0; k < kn; k += 4) {                                                                          \
                float32x4_t v[4], w[4];                                                                                \
                for (int r = 0; r < 4; r++) v[r] = k + 4 <= kn ? LOAD(x[r] + k) : LOADN(x[r] + k, kn - k);             \
                transpose_f32(v, w);                                                                                   \
                for (int j = 0; j < 4 && k + j < kn; j++) vst1q_f32(p->w + (k + j) * MATMUL_PANEL + row, w[j]);        \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    void matmul_gemvf_##NAME##_neon(const matmul_src *s, int64_t row0, const float *in, float *out) {                  \
        float32x4_t f[4] = { vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0) };                         \
        int64_t     cols = s->w->cols, whole = cols / 4 * 4;                                                           \
        for (int64_t k = 0; k < cols; k += 4) { /* all rows together: four independent chains of sums */               \
            float32x4_t a = k < whole ? vld1q_f32(in + k) : vf_loadn(in + k, cols - k);                                \
            for (int g = 0; g < 4; g++) {                                                                              \
                ROWS_OF(TYPE, row0 + 4 * g, k)                                                                         \
                float32x4_t v[4], w[4];                                                                                \
                for (int r = 0; r < 4; r++) v[r] = k < whole ? LOAD(x[r]) : LOADN(x[r], cols - k);                     \
                transpose_f32(v, w);                                                                                   \
                f[g] = vfmaq_laneq_f32(f[g], w[0], a, 0);                                                              \
                if (k + 1 < cols) f[g] = vfmaq_laneq_f32(f[g], w[1], a, 1);                                            \
                if (k + 2 < cols) f[g] = vfmaq_laneq_f32(f[g], w[2], a, 2);                                            \
                if (k + 3 < cols) f[g] = vfmaq_laneq_f32(f[g], w[3], a, 3);                                            \
            }                                                                                                          \
        }                                                                                                              \
        for (int g = 0; g < 4; g++) vst1q_f32(out + 4 * g, f[g]);                                                      \
    }

FLOAT_FORMAT(f32, float, vf_load, vf_loadn)
FLOAT_FORMAT(f16, uint16_t, vf_load_f16, vf_loadn_f16)
FLOAT_FORMAT(bf16, uint16_t, vf_load_bf16, vf_loadn_bf16)
