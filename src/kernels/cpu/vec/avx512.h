/* SPDX-License-Identifier: Apache-2.0 */
/* The vector vocabulary of vec/scalar.h, sixteen floats wide (AVX-512 F, BW, DQ, VL). */
#ifndef KERNELS_CPU_VEC_AVX512_H
#define KERNELS_CPU_VEC_AVX512_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define VW 16
#define VREGS 32
#define VSET "avx512"
#define VFN(name) name##_avx512

typedef __m512    vf;
typedef __mmask16 vm;

static inline __mmask16 vm_first(int64_t n) { return (__mmask16)_bzhi_u32(0xffffu, (unsigned)(n > 16 ? 16 : n)); }
/* Lanes i with lo <= i < hi; both may lie outside 0..16. */
static inline vm vm_range(int64_t lo, int64_t hi) {
    if (hi <= 0) return 0;
    return (vm)(vm_first(hi) & ~(lo > 0 ? vm_first(lo) : 0));
}

static inline vf vf_zero(void) { return _mm512_setzero_ps(); }
static inline vf vf_set1(float x) { return _mm512_set1_ps(x); }
static inline vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
static inline vf vf_loadn(const float *p, int64_t n) {
    return n >= 16 ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps(vm_first(n), p);
}
static inline void vf_store(float *p, vf a) { _mm512_storeu_ps(p, a); }
static inline void vf_storen(float *p, vf a, int64_t n) {
    if (n >= 16) {
        _mm512_storeu_ps(p, a);
    } else {
        _mm512_mask_storeu_ps(p, vm_first(n), a);
    }
}

static inline vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
static inline vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
static inline vf vf_fnma(vf a, vf b, vf c) { return _mm512_fnmadd_ps(a, b, c); }
static inline vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
static inline vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
static inline vf vf_abs(vf a) { return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a); }
static inline vf vf_copysign(vf mag, vf sgn) {
    const vf s = _mm512_set1_ps(-0.0f);
    return _mm512_or_ps(_mm512_andnot_ps(s, mag), _mm512_and_ps(s, sgn));
}
static inline vm  vf_lt(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
static inline vf  vf_sel(vm m, vf a, vf b) { return _mm512_mask_blend_ps(m, b, a); }
static inline int vm_any(vm m) { return m != 0; }
static inline vf  vf_round(vf a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline vf  vf_scale2(vf a, vf n) { return _mm512_scalef_ps(a, n); }

static inline float vf_sum(vf a) {
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

/* vf_sum of 16 registers, in two steps that each keep its order: quarters of registers 4 apart, then four of those. A
 * blend in front of a shuffle adds the same pairs as two shuffles would, and only one port shuffles. */
#define VSUM16
static inline vf vf_quarters(vf p, vf q, vf r, vf s) {
    vf pq = vf_add(_mm512_mask_blend_ps(0xff00, p, q), _mm512_shuffle_f32x4(p, q, 0x4e));
    vf rs = vf_add(_mm512_mask_blend_ps(0xff00, r, s), _mm512_shuffle_f32x4(r, s, 0x4e));
    return vf_add(_mm512_shuffle_f32x4(pq, rs, 0x88), _mm512_shuffle_f32x4(pq, rs, 0xdd));
}
static inline vf vf_swap_halves(vf a, vf b) {
    return _mm512_castpd_ps(_mm512_shuffle_pd(_mm512_castps_pd(a), _mm512_castps_pd(b), 0x55));
}
static inline vf vf_quarters_sum(vf p, vf q, vf r, vf s) {
    vf pq = vf_add(_mm512_mask_blend_ps(0xcccc, p, q), vf_swap_halves(p, q));
    vf rs = vf_add(_mm512_mask_blend_ps(0xcccc, r, s), vf_swap_halves(r, s));
    return vf_add(_mm512_shuffle_ps(pq, rs, 0x88), _mm512_shuffle_ps(pq, rs, 0xdd));
}
/* out[i] = vf_sum of the register at c + 16 * i. */
static inline void vf_sum16(const float *c, float *out) {
    vf v[4];
    for (int i = 0; i < 4; i++, c += 16)
        v[i] = vf_quarters(vf_load(c), vf_load(c + 64), vf_load(c + 128), vf_load(c + 192));
    vf_store(out, vf_quarters_sum(v[0], v[1], v[2], v[3]));
}
static inline float vf_hmax(vf a) {
    __m256 h = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}

static inline vf vf_load_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
static inline vf vf_loadn_f16(const uint16_t *p, int64_t n) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(vm_first(n), p));
}
static inline __m256i vf_to_f16(vf a) { return _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline void    vf_store_f16(uint16_t *p, vf a) { _mm256_storeu_si256((__m256i *)p, vf_to_f16(a)); }
static inline void    vf_storen_f16(uint16_t *p, vf a, int64_t n) {
       _mm256_mask_storeu_epi16(p, vm_first(n), vf_to_f16(a));
}

static inline vf vf_from_bf16(__m256i h) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
static inline __m256i vf_to_bf16(vf a) {
    const __m512i b = _mm512_castps_si512(a);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(b, 16), _mm512_set1_epi32(1));
    __m512i       r = _mm512_add_epi32(_mm512_add_epi32(b, odd), _mm512_set1_epi32(0x7fff));
    r = _mm512_mask_or_epi32(r, _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), b, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16));
}
static inline vf vf_load_bf16(const uint16_t *p) { return vf_from_bf16(_mm256_loadu_si256((const __m256i *)p)); }
static inline vf vf_loadn_bf16(const uint16_t *p, int64_t n) {
    return vf_from_bf16(_mm256_maskz_loadu_epi16(vm_first(n), p));
}
static inline void vf_store_bf16(uint16_t *p, vf a) { _mm256_storeu_si256((__m256i *)p, vf_to_bf16(a)); }
static inline void vf_storen_bf16(uint16_t *p, vf a, int64_t n) {
    _mm256_mask_storeu_epi16(p, vm_first(n), vf_to_bf16(a));
}

/* One f16 in every lane. */
static inline vf vf_set1_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_set1_epi16((short)*p)); }

static inline vf vf_load_i8(const int8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

typedef __m512i vi;
typedef __m512  vcode;

static inline vi vi_load_u8(const uint8_t *p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)); }
static inline vi vi_shr(vi a, int n) { return _mm512_srli_epi32(a, (unsigned)n); }
static inline vi vi_shl(vi a, int n) { return _mm512_slli_epi32(a, (unsigned)n); }
static inline vi vi_and(vi a, uint32_t m) { return _mm512_and_si512(a, _mm512_set1_epi32((int)m)); }
static inline vi vi_or(vi a, vi b) { return _mm512_or_si512(a, b); }
static inline vi vi_mix(vi a, vi b, uint32_t m) {
    return _mm512_ternarylogic_epi32(a, b, _mm512_set1_epi32((int)m), 0xd8);
}
static inline vf vf_from_vi(vi a) { return _mm512_cvtepi32_ps(a); }
static inline vi vi_crumbs(const uint8_t *p, int in) {
    const __m128i b = _mm_loadl_epi64((const __m128i *)p);
    const __m512i two = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2);
    const __m512i by = _mm512_add_epi32(two, _mm512_set1_epi32(in / 8 * 2));
    return _mm512_srlv_epi32(_mm512_cvtepu8_epi32(_mm_unpacklo_epi64(b, b)), by);
}
static inline vi vi_thirds(const uint8_t *p, int in) {
    const __m128i b = _mm_loadl_epi64((const __m128i *)p);
    int32_t       upper;
    memcpy(&upper, p + 8, sizeof upper);
    const __m512i half = _mm512_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4, 0, 0, 0, 0, 4, 4, 4, 4);
    const __m512i three = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 3, 3, 3, 3, 3, 3, 3, 3);
    const __m512i u = _mm512_srlv_epi32(_mm512_cvtepu8_epi32(_mm_set1_epi32(upper)), half);
    const __m512i w = _mm512_or_si512(_mm512_cvtepu8_epi32(_mm_unpacklo_epi64(b, b)), vi_shl(u, 8));
    return _mm512_srlv_epi32(w, _mm512_add_epi32(three, _mm512_set1_epi32(in / 8 * 3)));
}
static inline vi vi_nibs(const uint8_t *p, int in) {
    return in < 16 ? vi_and(vi_load_u8(p), 15) : vi_shr(vi_load_u8(p), 4);
}
static inline vi vi_bits(const uint8_t *p, int in, int to) {
    uint16_t m;
    memcpy(&m, p + in / 8, sizeof m);
    return _mm512_maskz_set1_epi32(m, 1 << to);
}
static inline vcode vcode_make(const int8_t *c) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)c)));
}
static inline vf   vf_code(vcode c, vi a) { return _mm512_permutexvar_ps(a, c); }
static inline void vf_load_nib_code(const uint8_t *p, vcode c, vf *lo, vf *hi) {
    const __m512i b = vi_load_u8(p);
    *lo = _mm512_permutexvar_ps(b, c);
    *hi = _mm512_permutexvar_ps(_mm512_srli_epi32(b, 4), c);
}
static inline vf vf_load_fp8_part(const uint8_t *p) {
    const __m256i b = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p));
    const __m256i h = _mm256_and_si256(_mm256_slli_epi16(b, 7), _mm256_set1_epi16((short)0xbf80));
    return _mm512_cvtph_ps(h);
}
static inline vf vf_negate(vf a, __mmask16 m) { return _mm512_mask_xor_ps(a, m, a, _mm512_set1_ps(-0.0f)); }
static inline vf vf_butterfly(vf a, int h) {
    if (h == 1) return _mm512_add_ps(_mm512_permute_ps(a, 0xb1), vf_negate(a, 0xaaaa));
    if (h == 2) return _mm512_add_ps(_mm512_permute_ps(a, 0x4e), vf_negate(a, 0xcccc));
    if (h == 4) return _mm512_add_ps(_mm512_shuffle_f32x4(a, a, 0xb1), vf_negate(a, 0xf0f0));
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, a, 0x4e), vf_negate(a, 0xff00));
}

#define VTRANSPOSE
static inline void vf_transpose(vf r[16]) {
    vf t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
        r[i + 4] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

#endif
