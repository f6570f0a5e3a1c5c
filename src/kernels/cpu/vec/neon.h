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

typedef uint32x4_t vi;
typedef int8x16_t  vcode;

static inline vi vi_load_u8(const uint8_t *p) { return vmovl_u16(vget_low_u16(vmovl_u8(vf_load_4bytes(p)))); }
static inline vi vi_shr(vi a, int n) { return vshlq_u32(a, vdupq_n_s32(-n)); }
static inline vi vi_shl(vi a, int n) { return vshlq_u32(a, vdupq_n_s32(n)); }
static inline vi vi_and(vi a, uint32_t m) { return vandq_u32(a, vdupq_n_u32(m)); }
static inline vi vi_or(vi a, vi b) { return vorrq_u32(a, b); }
static inline vi vi_mix(vi a, vi b, uint32_t m) { return vbslq_u32(vdupq_n_u32(m), b, a); }
static inline vf vf_from_vi(vi a) { return vcvtq_f32_s32(vreinterpretq_s32_u32(a)); }
static inline vi vi_crumbs(const uint8_t *p, int in) { return vi_shr(vi_load_u8(p + in % 8), in / 8 * 2); }
static inline vi vi_thirds(const uint8_t *p, int in) {
    const vi u = vi_load_u8(p + 8), w = vi_load_u8(p + in % 8);
    return vi_shr(vorrq_u32(w, vi_shl(in % 8 ? vi_shr(u, 4) : vi_and(u, 15), 8)), in / 8 * 3);
}
static inline vi vi_nibs(const uint8_t *p, int in) {
    return in < 16 ? vi_and(vi_load_u8(p + in), 15) : vi_shr(vi_load_u8(p + in - 16), 4);
}
static inline vi vi_bits(const uint8_t *p, int in, int to) {
    static const uint32_t each[4] = { 1, 2, 4, 8 };
    return vi_and(vtstq_u32(vdupq_n_u32((uint32_t)p[in / 8] >> (in % 8)), vld1q_u32(each)), 1u << to);
}
static inline vcode vcode_make(const int8_t *c) { return vld1q_s8(c); }
/* The entry comes into a lane's highest byte, so that one shift spreads its sign; indices of 255 give zeros. */
static inline vf vf_code(vcode c, vi a) {
    const uint32x4_t at = vorrq_u32(vshlq_n_u32(vandq_u32(a, vdupq_n_u32(15)), 24), vdupq_n_u32(0x00ffffffu));
    return vcvtq_f32_s32(vshrq_n_s32(vreinterpretq_s32_s8(vqtbl1q_s8(c, vreinterpretq_u8_u32(at))), 24));
}
static inline void vf_load_nib_code(const uint8_t *p, vcode c, vf *lo, vf *hi) {
    const uint8x8_t b = vf_load_4bytes(p);
    const int8x8_t  l = vqtbl1_s8(c, vand_u8(b, vdup_n_u8(15))), h = vqtbl1_s8(c, vshr_n_u8(b, 4));
    *lo = vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(l))));
    *hi = vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(h))));
}
static inline vf vf_load_fp8_part(const uint8_t *p) {
    const int16x4_t b = vget_low_s16(vmovl_s8(vreinterpret_s8_u8(vf_load_4bytes(p))));
    return vf_from_f16(vand_u16(vreinterpret_u16_s16(vshl_n_s16(b, 7)), vdup_n_u16(0xbf80)));
}
static inline vf vf_butterfly(vf a, int h) {
    static const uint32_t odd[4] = { 0, 0x80000000u, 0, 0x80000000u }, high[4] = { 0, 0, 0x80000000u, 0x80000000u };
    const uint32x4_t      n = vld1q_u32(h == 1 ? odd : high);
    const vf              s = h == 1 ? vrev64q_f32(a) : vextq_f32(a, a, 2);
    return vaddq_f32(s, vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(a), n)));
}

#endif
