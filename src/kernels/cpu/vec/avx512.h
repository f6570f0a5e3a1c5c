/* SPDX-License-Identifier: Apache-2.0 */
/* The vector vocabulary of vec/scalar.h, sixteen floats wide (AVX-512 F, BW, DQ, VL). */
#ifndef KERNELS_CPU_VEC_AVX512_H
#define KERNELS_CPU_VEC_AVX512_H

#include "kernels/cpu/vec/bytes32.h"

#include <immintrin.h>
#include <stdbool.h>
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

/* Bytes in fours; what is 32 bytes wide in bytes32.h twice side by side. */
#define VQUADS
#define VQUADS_ALL
enum { VBYTES = 64, VQN = 4 };
typedef __m512i      vbytes, vq;
static inline vi     vi_set1(int32_t x) { return _mm512_set1_epi32(x); }
static inline vi     vi_set2(int32_t a, int32_t b) { return _mm512_mask_set1_epi32(vi_set1(a), 0xff00, b); }
static inline vi     vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
static inline vi     vi_shl8(vi a) { return _mm512_slli_epi32(a, 8); }
static inline vi     vi_round(vf a) { return _mm512_cvtps_epi32(a); }
static inline int    vi_sum(vi a) { return _mm512_reduce_add_epi32(a); }
static inline bool   vq_fits(int largest) { return (void)largest, true; }
static inline int    vq_most(int largest) { return (void)largest, 8; }
static inline vq     vq_begin(vi total) { return total; }
static inline vq     vq_dot(vq acc, vbytes u, vi s) { return _mm512_dpbusd_epi32(acc, u, s); }
static inline vi     vq_end(vi total, vq acc) { return (void)total, acc; }
static inline vbytes vb_load(const uint8_t *p) { return _mm512_loadu_si512(p); }
static inline void   vb_store(uint8_t *p, vbytes a) { _mm512_storeu_si512(p, a); }
static inline vbytes vb_sixteens(const uint8_t *const *p, size_t at) {
    const __m256i a = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(p[0] + at))),
                                              _mm_loadu_si128((const __m128i *)(p[1] + at)), 1);
    const __m256i b = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(p[2] + at))),
                                              _mm_loadu_si128((const __m128i *)(p[3] + at)), 1);
    return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
}
static inline vbytes vb_and(vbytes a, int m) { return _mm512_and_si512(a, _mm512_set1_epi8((char)m)); }
static inline vbytes vb_or(vbytes a, vbytes b) { return _mm512_or_si512(a, b); }
static inline vbytes vb_flip(vbytes a) { return _mm512_xor_si512(a, _mm512_set1_epi8((char)0x80)); }
static inline vbytes vb_shr(vbytes a, int n) { return n ? _mm512_srli_epi16(a, (unsigned)n) : a; }
static inline vbytes vb_shl(vbytes a, int n) { return n ? _mm512_slli_epi16(a, (unsigned)n) : a; }
static inline vbytes vb_codes(const int8_t *c) {
    return vb_flip(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)c)));
}
static inline vbytes vb_pick(vbytes code, vbytes n) { return _mm512_shuffle_epi8(code, n); }
static inline void   vb_quads(vbytes a, vbytes b, vbytes c, vbytes d, vbytes y[4]) {
      const __m512i ab = _mm512_unpacklo_epi8(a, b), ab2 = _mm512_unpackhi_epi8(a, b);
      const __m512i cd = _mm512_unpacklo_epi8(c, d), cd2 = _mm512_unpackhi_epi8(c, d);
      y[0] = _mm512_unpacklo_epi16(ab, cd);
      y[1] = _mm512_unpackhi_epi16(ab, cd);
      y[2] = _mm512_unpacklo_epi16(ab2, cd2);
      y[3] = _mm512_unpackhi_epi16(ab2, cd2);
}
static inline vbytes vb_both(__m256i a, __m256i b) { return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1); }
static inline vbytes vb_nibs(const uint8_t *p, size_t stride, int n) {
    if (stride != 16) return vb_both(b32_nibs(p), b32_nibs(n > 1 ? p + stride : p));
    const __m256i both =
        n > 1 ? _mm256_loadu_si256((const __m256i *)p) : _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)p));
    const __m512i x = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 1, 0, 1, 2, 3, 2, 3), _mm512_castsi256_si512(both));
    return vb_and(_mm512_srlv_epi64(x, _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4)), 15);
}
static inline vbytes vb_fifths(const uint8_t *p, size_t stride, int n) {
    uint32_t a, b;
    memcpy(&a, p, sizeof a);
    memcpy(&b, n > 1 ? p + stride : p, sizeof b);
    return _mm512_maskz_set1_epi8((uint64_t)b << 32 | a, 16);
}
static inline vbytes vb_thirds(const uint8_t *p, size_t stride, int n) {
    return vb_both(b32_thirds(p), b32_thirds(n > 1 ? p + stride : p));
}
static inline vbytes vb_crumbs(const uint8_t *p, size_t stride, int n) {
    return vb_both(b32_crumbs(p), b32_crumbs(n > 1 ? p + stride : p));
}
static inline vbytes vb_bytes(const uint8_t *p, int n) {
    return n > 1 ? vb_load(p) : _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)p));
}
static inline void vf_quads(vf v[4]) {
    const vf a = _mm512_shuffle_f32x4(v[0], v[1], 0x44), b = _mm512_shuffle_f32x4(v[0], v[1], 0xee);
    const vf c = _mm512_shuffle_f32x4(v[2], v[3], 0x44), d = _mm512_shuffle_f32x4(v[2], v[3], 0xee);
    v[0] = _mm512_shuffle_f32x4(a, c, 0x88);
    v[1] = _mm512_shuffle_f32x4(a, c, 0xdd);
    v[2] = _mm512_shuffle_f32x4(b, d, 0x88);
    v[3] = _mm512_shuffle_f32x4(b, d, 0xdd);
}
static inline void vb_split(const vi a[4], int8_t *upper, int8_t *lower) {
    const __m512i half = _mm512_set1_epi32(128);
    for (int i = 0; i < 4; i++) {
        _mm_storeu_si128((__m128i *)(lower + 16 * i), _mm512_cvtepi32_epi8(a[i]));
        _mm_storeu_si128((__m128i *)(upper + 16 * i),
                         _mm512_cvtepi32_epi8(_mm512_srai_epi32(_mm512_add_epi32(a[i], half), 8)));
    }
}

/* VW slots of four f16 each: register g gets number g of every slot. */
static inline void vf_load_f16_by4(const uint16_t *p, vf r[4]) {
    const __m512i a = _mm512_loadu_si512(p), b = _mm512_loadu_si512(p + 32);
    const __m512i slot = _mm512_set_epi16(60, 56, 52, 48, 44, 40, 36, 32, 28, 24, 20, 16, 12, 8, 4, 0, 60, 56, 52, 48,
                                          44, 40, 36, 32, 28, 24, 20, 16, 12, 8, 4, 0);
    for (int g = 0; g < 4; g += 2) {
        const __m512i at = _mm512_add_epi16(
            slot, _mm512_inserti64x4(_mm512_set1_epi16((short)g), _mm256_set1_epi16((short)(g + 1)), 1));
        const __m512i x = _mm512_permutex2var_epi16(a, at, b);
        r[g] = _mm512_cvtph_ps(_mm512_castsi512_si256(x));
        r[g + 1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(x, 1));
    }
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
