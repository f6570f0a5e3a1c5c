/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unpacking of the common formats, four weight rows at a time, and the matrix-vector kernels that use it in registers.
 *
 * A format NAME is two functions. NAME_quads gives PART inputs of four rows as PART / 4 vectors in panel order (four
 * inputs of each row). NAME_scale gives the scales and minima of one block of one row; the products are those of
 * cpu/scalar/matmul_unpack.c. Included by a .c file per instruction set, which defines GEMV_SET and GEMV_DOT(acc, w,
 * x): acc plus the dot products of unsigned bytes w, already flipped by GEMV_FLIP, with the quad x. Layouts:
 * tensor/blocks.h.
 */
#include "kernels/cpu/neon/matmul_neon.h"

#include "tensor/blocks.h"
#include "tensor/codec.h"
#include "tensor/iq_grids.h"

#ifndef KERNELS_CPU_NEON_MATMUL_FORMATS_H
#define KERNELS_CPU_NEON_MATMUL_FORMATS_H

typedef struct format_at {
    const uint8_t    *data; /* the block of the first row */
    size_t            stride;
    const matmul_src *src;
    int64_t           row0, k;
} format_at;

/* Sixteen bytes of four rows to four quads: out[j] holds bytes 4j..4j+3 of each row. */
INLINE void transpose(const uint8x16_t in[4], uint8x16_t out[4]) {
    uint32x4_t a = vreinterpretq_u32_u8(in[0]), b = vreinterpretq_u32_u8(in[1]), c = vreinterpretq_u32_u8(in[2]),
               d = vreinterpretq_u32_u8(in[3]);
    uint64x2_t ab0 = vreinterpretq_u64_u32(vtrn1q_u32(a, b)), ab1 = vreinterpretq_u64_u32(vtrn2q_u32(a, b));
    uint64x2_t cd0 = vreinterpretq_u64_u32(vtrn1q_u32(c, d)), cd1 = vreinterpretq_u64_u32(vtrn2q_u32(c, d));
    out[0] = vreinterpretq_u8_u64(vtrn1q_u64(ab0, cd0));
    out[1] = vreinterpretq_u8_u64(vtrn1q_u64(ab1, cd1));
    out[2] = vreinterpretq_u8_u64(vtrn2q_u64(ab0, cd0));
    out[3] = vreinterpretq_u8_u64(vtrn2q_u64(ab1, cd1));
}

INLINE void load_quads(const uint8_t *p, size_t stride, uint8x16_t out[4]) {
    uint8x16_t in[4] = { vld1q_u8(p), vld1q_u8(p + stride), vld1q_u8(p + 2 * stride), vld1q_u8(p + 3 * stride) };
    transpose(in, out);
}

INLINE uint8x16_t low_nibbles(uint8x16_t v) { return vandq_u8(v, vdupq_n_u8(15)); }
INLINE uint8x16_t high_nibbles(uint8x16_t v) { return vshrq_n_u8(v, 4); }
INLINE uint8x16_t shift_right(uint8x16_t v, int n) { return vshlq_u8(v, vdupq_n_s8((int8_t)-n)); }

INLINE float half_at(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, 2);
    return tensor_f16_to_f32(h);
}

/* Sixteen bytes of nibbles j | j+16: 32 inputs. */
INLINE void nibble_quads(const uint8_t *p, size_t stride, uint8x16_t *v) {
    uint8x16_t t[4];
    load_quads(p, stride, t);
    for (int j = 0; j < 4; j++) {
        v[j] = low_nibbles(t[j]);
        v[4 + j] = high_nibbles(t[j]);
    }
}

#define q4_0_bytes 18
INLINE void q4_0_quads(const uint8_t *p, size_t stride, int part, uint8x16_t *v) {
    (void)part;
    nibble_quads(p + 2, stride, v);
}
INLINE void q4_0_scale(const format_at *at, const uint8_t *p, int row, float *scale, float *min) {
    (void)at, (void)row, (void)min;
    scale[0] = half_at(p);
}

#define q8_0_bytes 34
INLINE void q8_0_quads(const uint8_t *p, size_t stride, int part, uint8x16_t *v) {
    (void)part;
    load_quads(p + 2, stride, v);
    load_quads(p + 18, stride, v + 4);
    for (int j = 0; j < 8; j++) v[j] = veorq_u8(v[j], vdupq_n_u8(0x80));
}
INLINE void q8_0_scale(const format_at *at, const uint8_t *p, int row, float *scale, float *min) {
    q4_0_scale(at, p, row, scale, min);
}

/* A codebook of 16 small numbers, made unsigned by adding the type's zero. */
INLINE uint8x16_t codebook(const int8_t *values, int zero) {
    return vaddq_u8(vreinterpretq_u8_s8(vld1q_s8(values)), vdupq_n_u8((uint8_t)zero));
}
INLINE void codebook_quads(const uint8_t *p, size_t stride, uint8x16_t table, uint8x16_t *v) {
    nibble_quads(p, stride, v);
    for (int j = 0; j < 8; j++) v[j] = vqtbl1q_u8(table, v[j]);
}

#define iq4_nl_bytes 18
INLINE void iq4_nl_quads(const uint8_t *p, size_t stride, int part, uint8x16_t *v) {
    (void)part;
    codebook_quads(p + 2, stride, codebook(tensor_iq4_values, 128), v);
}
INLINE void iq4_nl_scale(const format_at *at, const uint8_t *p, int row, float *scale, float *min) {
    q4_0_scale(at, p, row, scale, min);
}

#define mxfp4_bytes 17
INLINE void mxfp4_quads(const uint8_t *p, size_t stride, int part, uint8x16_t *v) {
    (void)part;
    codebook_quads(p + 1, stride, codebook(tensor_e2m1_doubled, 12), v);
}
INLINE void mxfp4_scale(const format_at *at, const uint8_t *p, int row, float *scale, float *min) {
    (void)at, (void)row, (void)min;
    scale[0] = block_mxfp4_scale(p[0]);
}

#define q4_k_bytes 144
INLINE void q4_k_quads(const uint8_t *p, size_t stride, int part, uint8x16_t *v) {
    uint8x16_t t[8];
    load_quads(p + 16 + 32 * part, stride, t);
    load_quads(p + 32 + 32 * part, stride, t + 4);
    for (int j = 0; j < 8; j++) {
        v[j] = low_nibbles(t[j]);
        v[8 + j] = high_nibbles(t[j]);
    }
}
INLINE void q4_k_scale(const format_at *at, const uint8_t *p, int row, float *scale, float *min) {
    float d = half_at(p), dmin = half_at(p + 2);
    (void)at, (void)row;
    for (int j = 0; j < 8; j++) {
        int sc, mn;
        block_k4_scale_min(p + 4, j, &sc, &mn);
        scale[j] = d * (float)sc;
        min[j] = -dmin * (float)mn;
    }
}

#define q5_k_bytes 176
INLINE void q5_k_quads(const uint8_t *p, size_t stride, int part, uint8x16_t *v) {
    uint8x16_t t[8], h[8], one = vdupq_n_u8(1);
    load_quads(p + 48 + 32 * part, stride, t);
    load_quads(p + 64 + 32 * part, stride, t + 4);
    load_quads(p + 16, stride, h);
    load_quads(p + 32, stride, h + 4);
    for (int j = 0; j < 8; j++) {
        uint8x16_t bits = shift_right(h[j], 2 * part);
        v[j] = vorrq_u8(low_nibbles(t[j]), vshlq_n_u8(vandq_u8(bits, one), 4));
        v[8 + j] = vorrq_u8(high_nibbles(t[j]), vshlq_n_u8(vandq_u8(vshrq_n_u8(bits, 1), one), 4));
    }
}
INLINE void q5_k_scale(const format_at *at, const uint8_t *p, int row, float *scale, float *min) {
    q4_k_scale(at, p, row, scale, min);
}

#define q6_k_bytes 210
INLINE void q6_k_quads(const uint8_t *p, size_t stride, int part, uint8x16_t *v) {
    for (int i = 0; i < 2; i++) { /* 16 of every 32 inputs */
        uint8x16_t a[4], b[4], h[4], two = vdupq_n_u8(0x30);
        load_quads(p + 64 * part + 16 * i, stride, a);
        load_quads(p + 64 * part + 32 + 16 * i, stride, b);
        load_quads(p + 128 + 32 * part + 16 * i, stride, h);
        for (int j = 0; j < 4; j++) {
            uint8x16_t *out = v + 4 * i + j;
            out[0] = vorrq_u8(low_nibbles(a[j]), vandq_u8(vshlq_n_u8(h[j], 4), two));
            out[8] = vorrq_u8(low_nibbles(b[j]), vandq_u8(vshlq_n_u8(h[j], 2), two));
            out[16] = vorrq_u8(high_nibbles(a[j]), vandq_u8(h[j], two));
            out[24] = vorrq_u8(high_nibbles(b[j]), vandq_u8(vshrq_n_u8(h[j], 2), two));
        }
    }
}
INLINE void q6_k_scale(const format_at *at, const uint8_t *p, int row, float *scale, float *min) {
    float d = half_at(p + 208);
    (void)at, (void)row, (void)min;
    for (int j = 0; j < 16; j++) scale[j] = d * (float)(int8_t)p[192 + j];
}

#define iq4_xs_bytes 136
INLINE void iq4_xs_quads(const uint8_t *p, size_t stride, int part, uint8x16_t *v) {
    codebook_quads(p + 8 + 16 * part, stride, codebook(tensor_iq4_values, 128), v);
}
INLINE void iq4_xs_scale(const format_at *at, const uint8_t *p, int row, float *scale, float *min) {
    float d = half_at(p);
    (void)at, (void)row, (void)min;
    for (int j = 0; j < 8; j++) scale[j] = d * (float)block_iq4_xs_scale((const block_iq4_xs *)p, j);
}

/* MLX: 32 inputs of a bit stream as a block; scale and bias are of the group of 32, 64 or 128 that holds them. */
#define mlx4_bytes 16
INLINE void mlx4_quads(const uint8_t *p, size_t stride, int part, uint8x16_t *v) {
    uint8x16_t low[4], high[4];
    (void)part;
    for (int r = 0; r < 4; r++) {
        uint8x16_t t = vld1q_u8(p + (size_t)r * stride);
        low[r] = vzip1q_u8(low_nibbles(t), high_nibbles(t));
        high[r] = vzip2q_u8(low_nibbles(t), high_nibbles(t));
    }
    transpose(low, v);
    transpose(high, v + 4);
}
INLINE void mlx4_scale(const format_at *at, const uint8_t *p, int row, float *scale, float *min) {
    int64_t g = at->k / at->src->w->group;
    (void)p;
    scale[0] = tensor_mat_scale(at->src->w, at->src->expert, at->row0 + row, g);
    min[0] = tensor_mat_bias(at->src->w, at->src->expert, at->row0 + row, g);
}

#define mlx8_bytes 32
INLINE void mlx8_quads(const uint8_t *p, size_t stride, int part, uint8x16_t *v) {
    (void)part;
    load_quads(p, stride, v);
    load_quads(p + 16, stride, v + 4);
}
INLINE void mlx8_scale(const format_at *at, const uint8_t *p, int row, float *scale, float *min) {
    mlx4_scale(at, p, row, scale, min);
}

/* Scales of one block of 16 rows: [group][row]. */
#define FORMAT_SCALES(NAME, UNIT, GROUP, MIN)                                                                          \
    float scale[(UNIT) / (GROUP)][16], min[(UNIT) / (GROUP)][16];                                                      \
    for (int row = 0; row < 16; row++) {                                                                               \
        float s[(UNIT) / (GROUP)], m[(UNIT) / (GROUP)];                                                                \
        NAME##_scale(&at, at.data + (size_t)row * at.stride, row, s, m);                                               \
        for (int g = 0; g < (UNIT) / (GROUP); g++) {                                                                   \
            scale[g][row] = s[g];                                                                                      \
            if (MIN) min[g][row] = m[g];                                                                               \
        }                                                                                                              \
    }

#define FORMAT_UNPACK(NAME, UNIT, PART, GROUP, ZERO, MIN)                                                              \
    void matmul_unpack8_##NAME##_neon(const matmul_src *src, int64_t row0, int n, int64_t k0, int kn,                  \
                                      matmul_panel8 *p) {                                                              \
        format_at at = { src->data + (size_t)row0 * src->w->row_bytes + (size_t)(k0 / (UNIT)) * NAME##_bytes,          \
                         src->w->row_bytes, src, row0, k0 };                                                           \
        (void)n;                                                                                                       \
        for (int k = 0; k < kn; k += (UNIT), at.data += NAME##_bytes, at.k += (UNIT)) {                                \
            FORMAT_SCALES(NAME, UNIT, GROUP, MIN)                                                                      \
            for (int g = 0; g < (UNIT) / (GROUP); g++) {                                                               \
                memcpy(p->scale + (k / (GROUP) + g) * MATMUL_PANEL, scale[g], sizeof scale[g]);                        \
                if (MIN) memcpy(p->min + (k / (GROUP) + g) * MATMUL_PANEL, min[g], sizeof min[g]);                     \
            }                                                                                                          \
            for (int row = 0; row < 16; row += 4)                                                                      \
                for (int part = 0; part < (UNIT) / (PART); part++) {                                                   \
                    uint8x16_t v[(PART) / 4];                                                                          \
                    uint8_t   *q = p->q + (k + part * (PART)) * MATMUL_PANEL + row * 4;                                \
                    NAME##_quads(at.data + (size_t)row * at.stride, at.stride, part, v);                               \
                    for (int j = 0; j < (PART) / 4; j++) vst1q_u8(q + j * 64, v[j]);                                   \
                }                                                                                                      \
        }                                                                                                              \
    }

INLINE int32x4_t quad_of(const act8 *x, int quad) {
    int32_t v;
    memcpy(&v, x[quad / 8].q + quad % 8 * 4, 4);
    return vdupq_n_s32(v);
}

#endif

#define FORMAT_GEMV_NAME2(name, set) matmul_gemv8_##name##_##set
#define FORMAT_GEMV_NAME(name, set) FORMAT_GEMV_NAME2(name, set)
#define FORMAT_GEMV(NAME, UNIT, PART, GROUP, ZERO, MIN)                                                                \
    void FORMAT_GEMV_NAME(NAME, GEMV_SET)(const matmul_src *src, int64_t row0, const act8 *x, float *out) {            \
        format_at   at = { src->data + (size_t)row0 * src->w->row_bytes, src->w->row_bytes, src, row0, 0 };            \
        float32x4_t f[4] = { vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0) };                         \
        for (; at.k < src->w->cols; at.k += (UNIT), at.data += NAME##_bytes) {                                         \
            FORMAT_SCALES(NAME, UNIT, GROUP, MIN)                                                                      \
            for (int part = 0; part < (UNIT) / (PART); part++, x += (PART) / 32)                                       \
                for (int r = 0; r < 4; r++) {                                                                          \
                    uint8x16_t v[(PART) / 4];                                                                          \
                    NAME##_quads(at.data + (size_t)r * 4 * at.stride, at.stride, part, v);                             \
                    for (int g = 0; g < (PART) / (GROUP); g++) {                                                       \
                        const act8 *b = x + g * (GROUP) / 32;                                                          \
                        int         group = part * ((PART) / (GROUP)) + g, half = g % 2;                               \
                        int32x4_t   a = GEMV_START(b, ZERO, MIN, GROUP, half);                                         \
                        for (int j = g * (GROUP) / 4; j < (g + 1) * (GROUP) / 4; j++)                                  \
                            a = GEMV_DOT(a, GEMV_FLIP(v[j], ZERO, MIN), quad_of(x, j));                                \
                        f[r] = group_add(f[r], a, vld1q_f32(scale[group] + 4 * r), b);                                 \
                        if (MIN) f[r] = group_add_min(f[r], vld1q_f32(min[group] + 4 * r), b, GROUP, half);            \
                    }                                                                                                  \
                }                                                                                                      \
        }                                                                                                              \
        for (int r = 0; r < 4; r++) vst1q_f32(out + 4 * r, f[r]);                                                      \
    }

/* The list: unit of the layout, inputs per call of NAME_quads, scale group, zero, minimum. */
#define FORMAT_LIST(X)                                                                                                 \
    X(q4_0, 32, 32, 32, 8, false)                                                                                      \
    X(q8_0, 32, 32, 32, 128, false)                                                                                    \
    X(iq4_nl, 32, 32, 32, 128, false)                                                                                  \
    X(mxfp4, 32, 32, 32, 12, false)                                                                                    \
    X(q4_k, 256, 64, 32, 0, true)                                                                                      \
    X(q5_k, 256, 64, 32, 0, true)                                                                                      \
    X(q6_k, 256, 128, 16, 32, false)                                                                                   \
    X(iq4_xs, 256, 32, 32, 128, false)                                                                                 \
    X(mlx4, 32, 32, 32, 0, true)                                                                                       \
    X(mlx8, 32, 32, 32, 0, true)
