/* SPDX-License-Identifier: Apache-2.0 */
/* The NEON matmul: one table per kind of dot product, and the activation quantizer. */
#include "kernels/cpu/neon/matmul_neon.h"

#include "kernels/cpu.h"
#include "kernels/cpu/matmul_floats.h"
#include "tensor/half.h"

static void act_quantize_neon(act8 *out, const float *x, int64_t n) {
    for (; n > 0; n -= ACT8_BLOCK, x += ACT8_BLOCK, out++) {
        float32x4_t v[8];
        uint32x4_t  top = vdupq_n_u32(0);
        for (int i = 0; i < 8; i++) {
            v[i] = vld1q_f32(x + 4 * i);
            top = vmaxq_u32(top, vreinterpretq_u32_f32(vabsq_f32(v[i])));
        }
        uint32_t bits = vmaxvq_u32(top);
        float    m = tensor_bits_f32(bits);
        if (!(m <= ACT8_HUGE) || m < ACT8_TINY) {
            memset(out, 0, sizeof *out);
            if (!(m <= ACT8_HUGE)) out->d = out->ds = tensor_bits_f32(0x7fc00000u);
            continue;
        }
        float d = act8_scale(m), inverse = 1.0f / d;
        int   sum[2];
        for (int h = 0; h < 2; h++) {
            int32x4_t i[4];
            for (int j = 0; j < 4; j++) i[j] = vcvtnq_s32_f32(vmulq_n_f32(v[4 * h + j], inverse));
            sum[h] = vaddvq_s32(vaddq_s32(vaddq_s32(i[0], i[1]), vaddq_s32(i[2], i[3])));
            int16x8_t a = vcombine_s16(vmovn_s32(i[0]), vmovn_s32(i[1]));
            int16x8_t b = vcombine_s16(vmovn_s32(i[2]), vmovn_s32(i[3]));
            vst1q_s8(out->q + 16 * h, vcombine_s8(vmovn_s16(a), vmovn_s16(b)));
        }
        out->d = d;
        out->s[0] = (int16_t)sum[0];
        out->s[1] = (int16_t)sum[1];
        out->sum = sum[0] + sum[1];
        out->ds = out->d * (float)out->sum;
    }
}

#define UNPACK(type, name) [TENSOR_##type] = matmul_unpack8_##name##_neon,
#define GEMV_PLAIN(type, name) [TENSOR_##type] = matmul_gemv8_##name##_neon,
#define GEMV_DOTPROD(type, name) [TENSOR_##type] = matmul_gemv8_##name##_dotprod,
#define GEMV_I8MM(type, name) [TENSOR_##type] = matmul_gemv8_##name##_i8mm,
#define COMMON .unpack8 = { MATMUL_NEON_FORMATS(UNPACK) }, .floats = &matmul_floats_neon

static const matmul_isa plain = { COMMON, .tile8 = matmul_tile8_neon, .gemv8 = { MATMUL_NEON_FORMATS(GEMV_PLAIN) } };
static const matmul_isa dotprod = { COMMON, .tile8 = matmul_tile8_dotprod,
                                    .gemv8 = { MATMUL_NEON_FORMATS(GEMV_DOTPROD) } };
static const matmul_isa i8mm = { COMMON, .tile8 = matmul_tile8_i8mm, .arrange8 = matmul_arrange_i8mm,
                                 .gemv8 = { MATMUL_NEON_FORMATS(GEMV_I8MM) } };

static void matmul_plain(const matmul_args *a, int64_t p0, int64_t p1, void *scratch) {
    matmul_drive(&plain, a, p0, p1, scratch);
}

static void matmul_dotprod(const matmul_args *a, int64_t p0, int64_t p1, void *scratch) {
    matmul_drive(&dotprod, a, p0, p1, scratch);
}

static void matmul_i8mm(const matmul_args *a, int64_t p0, int64_t p1, void *scratch) {
    matmul_drive(&i8mm, a, p0, p1, scratch);
}

void kernels_matmul_init_neon(kernels_matmul *t, unsigned cpu) {
    KERNEL_USE(t, act_quantize, act_quantize_neon, "neon");
    KERNEL_USE(t, run, matmul_plain, "neon");
    if (cpu & CPU_DOTPROD) KERNEL_USE(t, run, matmul_dotprod, "dotprod");
    if (cpu & CPU_I8MM) KERNEL_USE(t, run, matmul_i8mm, "i8mm");
}
