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
INLINE void transpose_f32(const float32x4_t in[4], float *w) {
    float32x4_t a0 = vtrn1q_f32(in[0], in[1]), a1 = vtrn2q_f32(in[0], in[1]), b0 = vtrn1q_f32(in[2], in[3]),
                b1 = vtrn2q_f32(in[2], in[3]);
    vst1q_f32(w, vcombine_f32(vget_low_f32(a0), vget_low_f32(b0)));
    vst1q_f32(w + MATMUL_PANEL, vcombine_f32(vget_low_f32(a1), vget_low_f32(b1)));
    vst1q_f32(w + 2 * MATMUL_PANEL, vcombine_f32(vget_high_f32(a0), vget_high_f32(b0)));
    vst1q_f32(w + 3 * MATMUL_PANEL, vcombine_f32(vget_high_f32(a1), vget_high_f32(b1)));
}

#define UNPACKF(NAME, TYPE, LOAD, LOADN)                                                                               \
    void matmul_unpackf_##NAME##_neon(const matmul_src *s, int64_t row0, int n, int64_t k0, int kn, int64_t ahead,     \
                                      matmul_panelf *p) {                                                              \
        (void)n, (void)ahead;                                                                                          \
        for (int row = 0; row < 16; row += 4) {                                                                        \
            const TYPE *x[4];                                                                                          \
            for (int r = 0; r < 4; r++)                                                                                \
                x[r] = (const TYPE *)(const void *)(s->data + (size_t)(row0 + row + r) * s->w->row_bytes) + k0;        \
            int k = 0;                                                                                                 \
            for (; k + 4 <= kn; k += 4) {                                                                              \
                float32x4_t v[4];                                                                                      \
                for (int r = 0; r < 4; r++) v[r] = LOAD(x[r] + k);                                                     \
                transpose_f32(v, p->w + k * MATMUL_PANEL + row);                                                       \
            }                                                                                                          \
            for (int r = 0; r < 4 && k < kn; r++) {                                                                    \
                float t[4];                                                                                            \
                vst1q_f32(t, LOADN(x[r] + k, kn - k));                                                                 \
                for (int j = 0; j < kn - k; j++) p->w[(k + j) * MATMUL_PANEL + row + r] = t[j];                        \
            }                                                                                                          \
        }                                                                                                              \
    }

UNPACKF(f32, float, vf_load, vf_loadn)
UNPACKF(f16, uint16_t, vf_load_f16, vf_loadn_f16)
UNPACKF(bf16, uint16_t, vf_load_bf16, vf_loadn_bf16)
