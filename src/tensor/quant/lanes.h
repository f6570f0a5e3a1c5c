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
#include <stdint.h>
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
static inline vf   v_round_even(vf a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
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
static inline vf   v_round_even(vf a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
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

/* Two halves of 16 lanes: a number for each, or the half of a vector twice. Fewer lanes are never cut. */
#if defined(__AVX512F__)
static inline vf v_halves(float low, float high) {
    return _mm512_mask_broadcastss_ps(_mm512_set1_ps(low), 0xff00, _mm_set_ss(high));
}
static inline vf v_lower(vf a) { return _mm512_shuffle_f32x4(a, a, 0x44); }
static inline vf v_upper(vf a) { return _mm512_shuffle_f32x4(a, a, 0xee); }
#else
static inline vf   v_halves(float low, float high) {
      (void)high;
      return v_set(low);
}
static inline vf v_lower(vf a) { return a; }
static inline vf v_upper(vf a) { return a; }
#endif

static inline vf v_abs(vf a) { return v_max(a, -a); }

/* Rounds numbers well below 2^22 to integers, ties to even; what becomes zero may have either sign. */
static inline vf v_round(vf a) {
#if defined(__AVX2__)
    return v_round_even(a);
#else
    return a + v_set(0x1.8p23f) - v_set(0x1.8p23f);
#endif
}

#if defined(__AVX2__)
/*
 * Sixteen ascending numbers, to find the one that is nearest to each lane: a binary search asks four times whether a lane
 * is above a middle, where counting all middles that lie below would ask fifteen times.
 */
typedef struct v_list {
    vf half, later[3]; /* the middles that are asked for first, and then, by the answers so far */
    vf value[16 / LANES];
} v_list;

static inline v_list v_list_of(const int8_t values[16]) {
    float  value[16], middle[15], later[3][16] = { { 0 } };
    v_list l;
    for (int k = 0; k < 16; k++) value[k] = (float)values[k];
    for (int k = 0; k < 15; k++) middle[k] = 0.5f * (value[k] + value[k + 1]);
    for (int k = 0; k < 2; k++) later[0][k] = middle[8 * k + 3];
    for (int k = 0; k < 4; k++) later[1][k] = middle[4 * k + 1];
    for (int k = 0; k < 8; k++) later[2][k] = middle[2 * k];
    l.half = v_set(middle[7]);
    for (int k = 0; k < 3; k++) l.later[k] = v_load(later[k]);
    for (int k = 0; k < 16 / LANES; k++) l.value[k] = v_load(value + k * LANES);
    return l;
}

static inline vf v_list_nearest(const v_list *l, vf t) {
#if defined(__AVX512F__)
    __m512i one = _mm512_set1_epi32(1), at = _mm512_maskz_mov_epi32(_mm512_cmp_ps_mask(t, l->half, _CMP_GT_OQ), one);
    for (int k = 0; k < 3; k++) {
        __mmask16 above = _mm512_cmp_ps_mask(t, _mm512_permutexvar_ps(at, l->later[k]), _CMP_GT_OQ);
        at = _mm512_add_epi32(at, at);
        at = _mm512_mask_add_epi32(at, above, at, one);
    }
    return _mm512_permutexvar_ps(at, l->value[0]);
#else
    __m256i at = _mm256_srli_epi32(_mm256_castps_si256(_mm256_cmp_ps(t, l->half, _CMP_GT_OQ)), 31);
    for (int k = 0; k < 3; k++) {
        vf above = _mm256_cmp_ps(t, _mm256_permutevar8x32_ps(l->later[k], at), _CMP_GT_OQ);
        at = _mm256_sub_epi32(_mm256_add_epi32(at, at), _mm256_castps_si256(above));
    }
    vf low = _mm256_permutevar8x32_ps(l->value[0], at), high = _mm256_permutevar8x32_ps(l->value[1], at);
    return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(at, 28)));
#endif
}
#endif

#endif
