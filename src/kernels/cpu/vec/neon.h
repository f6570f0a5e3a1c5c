/* SPDX-License-Identifier: Apache-2.0 */
/* The vector vocabulary of vec/scalar.h, four floats wide (Advanced SIMD of every AArch64; nothing optional). */
#ifndef KERNELS_CPU_VEC_NEON_H
#define KERNELS_CPU_VEC_NEON_H

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#define VW 4
#define VREGS 32
#define VSET "neon"
#define VFN(name) name##_neon

typedef float32x4_t vf;
typedef uint32x4_t  vm;

/* Lanes i < n. */
static inline vm vm_first(int64_t n) {
    static const int32_t iota[4] = { 0, 1, 2, 3 };
    return vcltq_s32(vld1q_s32(iota), vdupq_n_s32(n < 0 ? 0 : n > 4 ? 4 : (int32_t)n));
}
static inline vm vm_range(int64_t lo, int64_t hi) { return vbicq_u32(vm_first(hi), vm_first(lo)); }

static inline vf vf_zero(void) { return vdupq_n_f32(0); }
static inline vf vf_set1(float x) { return vdupq_n_f32(x); }
static inline vf vf_load(const float *p) { return vld1q_f32(p); }
static inline vf vf_loadn(const float *p, int64_t n) {
    float t[4] = { 0 };
    if (n >= 4) return vld1q_f32(p);
    for (int64_t i = 0; i < n; i++) t[i] = p[i];
    return vld1q_f32(t);
}
static inline void vf_store(float *p, vf a) { vst1q_f32(p, a); }
static inline void vf_storen(float *p, vf a, int64_t n) {
    float t[4];
    if (n >= 4) {
        vst1q_f32(p, a);
        return;
    }
    vst1q_f32(t, a);
    for (int64_t i = 0; i < n; i++) p[i] = t[i];
}

static inline vf vf_add(vf a, vf b) { return vaddq_f32(a, b); }
static inline vf vf_sub(vf a, vf b) { return vsubq_f32(a, b); }
static inline vf vf_mul(vf a, vf b) { return vmulq_f32(a, b); }
static inline vf vf_div(vf a, vf b) { return vdivq_f32(a, b); }
static inline vf vf_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
static inline vf vf_fnma(vf a, vf b, vf c) { return vfmsq_f32(c, a, b); }
/* Not fmax and fmin: the second operand wins on NaN and on zeros of both signs. */
static inline vf  vf_max(vf a, vf b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
static inline vf  vf_min(vf a, vf b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
static inline vf  vf_abs(vf a) { return vabsq_f32(a); }
static inline vf  vf_copysign(vf mag, vf sgn) { return vbslq_f32(vdupq_n_u32(0x80000000u), sgn, mag); }
static inline vm  vf_lt(vf a, vf b) { return vcltq_f32(a, b); }
static inline vf  vf_sel(vm m, vf a, vf b) { return vbslq_f32(m, a, b); }
static inline int vm_any(vm m) { return vmaxvq_u32(m) != 0; }
static inline vf  vf_round(vf a) { return vrndnq_f32(a); }
/* a * 2^n for whole n in -252..254, in two steps so that results below the normal range come out rounded. */
static inline vf vf_scale2(vf a, vf n) {
    const int32x4_t i = vcvtq_s32_f32(n), h = vshrq_n_s32(i, 1), bias = vdupq_n_s32(127);
    const int32x4_t e1 = vshlq_n_s32(vaddq_s32(h, bias), 23);
    const int32x4_t e2 = vshlq_n_s32(vaddq_s32(vsubq_s32(i, h), bias), 23);
    return vmulq_f32(vmulq_f32(a, vreinterpretq_f32_s32(e1)), vreinterpretq_f32_s32(e2));
}

static inline float vf_sum(vf a) {
    const float32x2_t q = vadd_f32(vget_low_f32(a), vget_high_f32(a));
    return vget_lane_f32(q, 0) + vget_lane_f32(q, 1);
}
static inline float vf_hmax(vf a) {
    const float32x2_t l = vget_low_f32(a), h = vget_high_f32(a), q = vbsl_f32(vcgt_f32(l, h), l, h);
    const float       x = vget_lane_f32(q, 0), y = vget_lane_f32(q, 1);
    return x > y ? x : y;
}

static inline vf         vf_from_f16(uint16x4_t h) { return vcvt_f32_f16(vreinterpret_f16_u16(h)); }
static inline uint16x4_t vf_to_f16(vf a) { return vreinterpret_u16_f16(vcvt_f16_f32(a)); }
static inline uint16x4_t vf_load_u16n(const uint16_t *p, int64_t n) {
    uint16_t t[4] = { 0 };
    memcpy(t, p, (size_t)n * 2);
    return vld1_u16(t);
}
static inline void vf_store_u16n(uint16_t *p, uint16x4_t h, int64_t n) {
    uint16_t t[4];
    vst1_u16(t, h);
    memcpy(p, t, (size_t)n * 2);
}
static inline vf   vf_load_f16(const uint16_t *p) { return vf_from_f16(vld1_u16(p)); }
static inline vf   vf_loadn_f16(const uint16_t *p, int64_t n) { return vf_from_f16(vf_load_u16n(p, n)); }
static inline void vf_store_f16(uint16_t *p, vf a) { vst1_u16(p, vf_to_f16(a)); }
static inline void vf_storen_f16(uint16_t *p, vf a, int64_t n) { vf_store_u16n(p, vf_to_f16(a), n); }

static inline vf vf_set1_f16(const uint16_t *p) { return vf_from_f16(vdup_n_u16(*p)); }

static inline vf         vf_from_bf16(uint16x4_t h) { return vreinterpretq_f32_u32(vshll_n_u16(h, 16)); }
static inline uint16x4_t vf_to_bf16(vf a) {
    const uint32x4_t b = vreinterpretq_u32_f32(a), odd = vandq_u32(vshrq_n_u32(b, 16), vdupq_n_u32(1));
    const uint32x4_t r = vaddq_u32(vaddq_u32(b, odd), vdupq_n_u32(0x7fff));
    const uint32x4_t q = vorrq_u32(b, vdupq_n_u32(0x400000));
    return vshrn_n_u32(vbslq_u32(vceqq_f32(a, a), r, q), 16);
}
static inline vf   vf_load_bf16(const uint16_t *p) { return vf_from_bf16(vld1_u16(p)); }
static inline vf   vf_loadn_bf16(const uint16_t *p, int64_t n) { return vf_from_bf16(vf_load_u16n(p, n)); }
static inline void vf_store_bf16(uint16_t *p, vf a) { vst1_u16(p, vf_to_bf16(a)); }
static inline void vf_storen_bf16(uint16_t *p, vf a, int64_t n) { vf_store_u16n(p, vf_to_bf16(a), n); }

static inline uint8x8_t vf_load_4bytes(const void *p) {
    uint32_t u;
    memcpy(&u, p, 4);
    return vcreate_u8(u);
}
static inline vf vf_load_i8(const int8_t *p) {
    const int16x8_t h = vmovl_s8(vreinterpret_s8_u8(vf_load_4bytes(p)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(h)));
}
static inline void vf_load_nib(const uint8_t *p, vf *lo, vf *hi) {
    const uint8x8_t b = vf_load_4bytes(p);
    *lo = vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(vand_u8(b, vdup_n_u8(15))))));
    *hi = vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(vshr_n_u8(b, 4)))));
}

#endif
