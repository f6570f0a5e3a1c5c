/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scalar twins of matmul: quantizer, tiles, and the table. fmaf stands where the vector versions use their fused
 * multiply-add, so every set follows the order of operations of kernels/matmul.h.
 */
#include "kernels/cpu/matmul_floats.h"

#include "tensor/half.h"

#include <math.h>
#include <string.h>

static void act_quantize_scalar(act8 *out, const float *x, int64_t n) {
    for (; n > 0; n -= ACT8_BLOCK, x += ACT8_BLOCK, out++) {
        uint32_t bits = 0;
        int      sum[2] = { 0, 0 };
        for (int i = 0; i < ACT8_BLOCK; i++) {
            uint32_t b = tensor_f32_bits(x[i]) & 0x7fffffffu;
            if (b > bits) bits = b;
        }
        float m = tensor_bits_f32(bits);
        memset(out, 0, sizeof *out);
        if (!(m <= ACT8_HUGE)) {
            out->d = out->ds = tensor_bits_f32(0x7fc00000u);
            continue;
        }
        if (m < ACT8_TINY) continue;
        out->d = act8_scale(m);
        float inverse = 1.0f / out->d;
        for (int i = 0; i < ACT8_BLOCK; i++) {
            out->q[i] = (int8_t)lrintf(x[i] * inverse);
            sum[i / 16] += out->q[i];
        }
        out->s[0] = (int16_t)sum[0];
        out->s[1] = (int16_t)sum[1];
        out->sum = sum[0] + sum[1];
        out->ds = out->d * (float)out->sum;
    }
}

/* Integer sum of n inputs of one lane, minus zero * sum of the activations. */
static int32_t dot(const uint8_t *q, const int8_t *x, int n, int start) {
    int32_t sum = start;
    for (int k = 0; k < n; k++) sum += q[k / 4 * 64 + k % 4] * x[k];
    return sum;
}

static inline void tile8(const matmul_panel8 *p, int zero, int kn, const act8 *const *x, float *c, bool first, int wide,
                         int rows, int group, bool min) {
    for (int r = 0; r < rows; r++)
        for (int lane = 0; lane < wide * MATMUL_PANEL; lane++) {
            const matmul_panel8 *pp = p + lane / MATMUL_PANEL;
            int                  l = lane % MATMUL_PANEL;
            float                acc = first ? 0 : c[r * MATMUL_LANES + lane];
            for (int k = 0; k < kn; k += group) {
                const act8 *b = &x[r][k / 32];
                int         half = k % 32 / 16, sum = group == 32 ? b->sum : b->s[half];
                float       scale = pp->scale[k / group * MATMUL_PANEL + l] * b->d;
                int32_t     i = dot(pp->q + k * MATMUL_PANEL + l * 4, b->q + k % 32, group, -zero * sum);
                acc = fmaf((float)i, scale, acc);
                if (min)
                    acc = fmaf(pp->min[k / group * MATMUL_PANEL + l], group == 32 ? b->ds : b->d * (float)sum, acc);
            }
            c[r * MATMUL_LANES + lane] = acc;
        }
}

extern matmul_tile8_fn *const matmul_tile8_scalar[MATMUL_FORMS][MATMUL_WIDE][MATMUL_ROWS8];
MATMUL_TILES8(scalar)

static const matmul_isa isa = {
    .tile8 = matmul_tile8_scalar,
    .floats = &matmul_floats_scalar,
};

static void matmul_scalar(const matmul_args *a, int64_t p0, int64_t p1, void *scratch) {
    matmul_drive(&isa, a, p0, p1, scratch);
}

void kernels_matmul_init_scalar(kernels_matmul *t) {
    KERNEL_USE(t, act_quantize, act_quantize_scalar, "scalar");
    KERNEL_USE(t, run, matmul_scalar, "scalar");
}
