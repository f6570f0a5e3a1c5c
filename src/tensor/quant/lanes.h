/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A vector of floats as wide as the instruction set that a file is compiled for.
 *
 * The quantizers try many scales at once, one per lane: what a lane computes does not depend on how many lanes there
 * are, so the width changes the speed and never a byte. LANES divides 16.
 */
#ifndef TENSOR_QUANT_LANES_H
#define TENSOR_QUANT_LANES_H

#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__AVX512F__)
enum { LANES = 16 };
typedef __m512   vf;
static inline vf v_set(float x) { return _mm512_set1_ps(x); }
static inline vf v_max(vf a, vf b) { return _mm512_max_ps(a, b); }
static inline vf v_min(vf a, vf b) { return _mm512_min_ps(a, b); }
static inline vf v_if_greater(vf a, vf b, vf then) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), then);
}
static inline vf v_pick_less(vf a, vf b, vf then, vf otherwise) {
    return _mm512_mask_mov_ps(otherwise, _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), then);
}
static inline bool v_any_less(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ) != 0; }
#elif defined(__AVX2__)
enum { LANES = 8 };
typedef __m256   vf;
static inline vf v_set(float x) { return _mm256_set1_ps(x); }
static inline vf v_max(vf a, vf b) { return _mm256_max_ps(a, b); }
static inline vf v_min(vf a, vf b) { return _mm256_min_ps(a, b); }
static inline vf v_if_greater(vf a, vf b, vf then) { return _mm256_and_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ), then); }
static inline vf v_pick_less(vf a, vf b, vf then, vf otherwise) {
    return _mm256_blendv_ps(otherwise, then, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
static inline bool v_any_less(vf a, vf b) { return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_LT_OQ)) != 0; }
#elif defined(__x86_64__)
enum { LANES = 4 };
typedef __m128   vf;
static inline vf v_set(float x) { return _mm_set1_ps(x); }
static inline vf v_max(vf a, vf b) { return _mm_max_ps(a, b); }
static inline vf v_min(vf a, vf b) { return _mm_min_ps(a, b); }
static inline vf v_if_greater(vf a, vf b, vf then) { return _mm_and_ps(_mm_cmpgt_ps(a, b), then); }
static inline vf v_pick_less(vf a, vf b, vf then, vf otherwise) {
    vf m = _mm_cmplt_ps(a, b);
    return _mm_or_ps(_mm_and_ps(m, then), _mm_andnot_ps(m, otherwise));
}
static inline bool v_any_less(vf a, vf b) { return _mm_movemask_ps(_mm_cmplt_ps(a, b)) != 0; }
#elif defined(__aarch64__)
enum { LANES = 4 };
typedef float32x4_t vf;
static inline vf    v_set(float x) { return vdupq_n_f32(x); }
static inline vf    v_max(vf a, vf b) { return vmaxq_f32(a, b); }
static inline vf    v_min(vf a, vf b) { return vminq_f32(a, b); }
static inline vf    v_if_greater(vf a, vf b, vf then) {
       return vreinterpretq_f32_u32(vandq_u32(vcgtq_f32(a, b), vreinterpretq_u32_f32(then)));
}
static inline vf v_pick_less(vf a, vf b, vf then, vf otherwise) { return vbslq_f32(vcltq_f32(a, b), then, otherwise); }
static inline bool v_any_less(vf a, vf b) { return vmaxvq_u32(vcltq_f32(a, b)) != 0; }
#else
enum { LANES = 1 };
typedef float      vf;
static inline vf   v_set(float x) { return x; }
static inline vf   v_max(vf a, vf b) { return a > b ? a : b; }
static inline vf   v_min(vf a, vf b) { return a < b ? a : b; }
static inline vf   v_if_greater(vf a, vf b, vf then) { return a > b ? then : 0; }
static inline vf   v_pick_less(vf a, vf b, vf then, vf otherwise) { return a < b ? then : otherwise; }
static inline bool v_any_less(vf a, vf b) { return a < b; }
#endif

static inline vf v_load(const float *p) {
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void v_store(float *p, vf v) { memcpy(p, &v, sizeof v); }

/* Rounds numbers well below 2^22 to integers, ties to even. */
static inline vf v_round(vf a) { return a + v_set(0x1.8p23f) - v_set(0x1.8p23f); }

#endif
