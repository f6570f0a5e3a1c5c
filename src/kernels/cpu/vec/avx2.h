/* SPDX-License-Identifier: Apache-2.0 */
/* The vector vocabulary of vec/scalar.h, eight floats wide (AVX2, FMA, F16C). */
#ifndef KERNELS_CPU_VEC_AVX2_H
#define KERNELS_CPU_VEC_AVX2_H

#include "kernels/cpu/vec/bytes32.h"

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define VW 8
#define VREGS 16
#ifdef VNNI /* a file that is compiled with AVX-VNNI's vpdpbusd */
#define VSET "avxvnni"
#define VFN(name) name##_avxvnni
#else
#define VSET "avx2"
#define VFN(name) name##_avx2
#endif

typedef __m256 vf;
typedef __m256 vm;

static inline __m256i vi_iota(void) { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
static inline __m256i vi_clip(int64_t n) { return _mm256_set1_epi32(n < 0 ? 0 : n > 8 ? 8 : (int)n); }
static inline __m256i vi_first(int64_t n) { return _mm256_cmpgt_epi32(vi_clip(n), vi_iota()); }
static inline vm      vm_range(int64_t lo, int64_t hi) {
         return _mm256_castsi256_ps(_mm256_andnot_si256(vi_first(lo), vi_first(hi)));
}

static inline vf vf_zero(void) { return _mm256_setzero_ps(); }
static inline vf vf_set1(float x) { return _mm256_set1_ps(x); }
static inline vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
static inline vf vf_loadn(const float *p, int64_t n) {
    return n >= 8 ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, vi_first(n));
}
static inline void vf_store(float *p, vf a) { _mm256_storeu_ps(p, a); }
static inline void vf_storen(float *p, vf a, int64_t n) {
    if (n >= 8) {
        _mm256_storeu_ps(p, a);
    } else {
        _mm256_maskstore_ps(p, vi_first(n), a);
    }
}

static inline vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
static inline vf vf_div(vf a, vf b) { return _mm256_div_ps(a, b); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
static inline vf vf_fnma(vf a, vf b, vf c) { return _mm256_fnmadd_ps(a, b, c); }
static inline vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
static inline vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }
static inline vf vf_abs(vf a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
static inline vf vf_copysign(vf mag, vf sgn) {
    const vf s = _mm256_set1_ps(-0.0f);
    return _mm256_or_ps(_mm256_andnot_ps(s, mag), _mm256_and_ps(s, sgn));
}
static inline vm  vf_lt(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
static inline vf  vf_sel(vm m, vf a, vf b) { return _mm256_blendv_ps(b, a, m); }
static inline int vm_any(vm m) { return _mm256_movemask_ps(m) != 0; }
static inline vf  vf_round(vf a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/* a * 2^n for whole n in -252..254, in two steps so that results below the normal range come out rounded. */
static inline vf vf_scale2(vf a, vf n) {
    const __m256i i = _mm256_cvtps_epi32(n), h = _mm256_srai_epi32(i, 1), bias = _mm256_set1_epi32(127);
    const __m256i e1 = _mm256_slli_epi32(_mm256_add_epi32(h, bias), 23);
    const __m256i e2 = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(i, h), bias), 23);
    return _mm256_mul_ps(_mm256_mul_ps(a, _mm256_castsi256_ps(e1)), _mm256_castsi256_ps(e2));
}

static inline float vf_sum(vf a) {
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
static inline float vf_hmax(vf a) {
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}

static inline vf      vf_load_f16(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
static inline __m128i vf_load_u16n(const uint16_t *p, int64_t n) {
    uint16_t t[8] = { 0 };
    memcpy(t, p, (size_t)n * 2);
    return _mm_loadu_si128((const __m128i *)t);
}
static inline vf      vf_loadn_f16(const uint16_t *p, int64_t n) { return _mm256_cvtph_ps(vf_load_u16n(p, n)); }
static inline __m128i vf_to_f16(vf a) { return _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline void    vf_store_u16n(uint16_t *p, __m128i h, int64_t n) {
       uint16_t t[8];
       _mm_storeu_si128((__m128i *)t, h);
       memcpy(p, t, (size_t)n * 2);
}
static inline void vf_store_f16(uint16_t *p, vf a) { _mm_storeu_si128((__m128i *)p, vf_to_f16(a)); }
static inline void vf_storen_f16(uint16_t *p, vf a, int64_t n) { vf_store_u16n(p, vf_to_f16(a), n); }

static inline vf vf_from_bf16(__m128i h) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
static inline __m128i vf_to_bf16(vf a) {
    const __m256i b = _mm256_castps_si256(a);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(b, 16), _mm256_set1_epi32(1));
    const __m256i r = _mm256_add_epi32(_mm256_add_epi32(b, odd), _mm256_set1_epi32(0x7fff));
    const __m256i q = _mm256_or_si256(b, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    const __m256i s = _mm256_srli_epi32(_mm256_blendv_epi8(r, q, nan), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
}
static inline vf   vf_load_bf16(const uint16_t *p) { return vf_from_bf16(_mm_loadu_si128((const __m128i *)p)); }
static inline vf   vf_loadn_bf16(const uint16_t *p, int64_t n) { return vf_from_bf16(vf_load_u16n(p, n)); }
static inline void vf_store_bf16(uint16_t *p, vf a) { _mm_storeu_si128((__m128i *)p, vf_to_bf16(a)); }
static inline void vf_storen_bf16(uint16_t *p, vf a, int64_t n) { vf_store_u16n(p, vf_to_bf16(a), n); }

/* One f16 in every lane. */
static inline vf vf_set1_f16(const uint16_t *p) { return _mm256_cvtph_ps(_mm_set1_epi16((short)*p)); }

static inline vf vf_load_i8(const int8_t *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

typedef __m256i vi;
typedef struct vcode {
    __m256  eight; /* the first eight entries */
    __m128i bytes;
} vcode;

static inline vi vi_load_u8(const uint8_t *p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)); }
static inline vi vi_shr(vi a, int n) { return _mm256_srli_epi32(a, n); }
static inline vi vi_shl(vi a, int n) { return _mm256_slli_epi32(a, n); }
static inline vi vi_and(vi a, uint32_t m) { return _mm256_and_si256(a, _mm256_set1_epi32((int)m)); }
static inline vi vi_or(vi a, vi b) { return _mm256_or_si256(a, b); }
static inline vi vi_mix(vi a, vi b, uint32_t m) {
    const __m256i v = _mm256_set1_epi32((int)m);
    return _mm256_or_si256(_mm256_andnot_si256(v, a), _mm256_and_si256(v, b));
}
static inline vf vf_from_vi(vi a) { return _mm256_cvtepi32_ps(a); }
static inline vi vi_crumbs(const uint8_t *p, int in) { return vi_shr(vi_load_u8(p), in / 8 * 2); }
static inline vi vi_thirds(const uint8_t *p, int in) {
    int32_t upper;
    memcpy(&upper, p + 8, sizeof upper);
    const __m256i by = _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4);
    const __m256i u = _mm256_srlv_epi32(_mm256_cvtepu8_epi32(_mm_set1_epi32(upper)), by);
    return vi_shr(_mm256_or_si256(vi_load_u8(p), vi_shl(u, 8)), in / 8 * 3);
}
static inline vi vi_nibs(const uint8_t *p, int in) {
    return in < 16 ? vi_and(vi_load_u8(p + in), 15) : vi_shr(vi_load_u8(p + in - 16), 4);
}
static inline vi vi_bits(const uint8_t *p, int in, int to) {
    const __m256i each = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i b = _mm256_and_si256(_mm256_set1_epi32(p[in / 8]), each);
    return vi_and(_mm256_cmpeq_epi32(b, each), 1u << to);
}
static inline vcode vcode_make(const int8_t *c) {
    const __m128i b = _mm_loadu_si128((const __m128i *)c);
    return (vcode){ _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(b)), b };
}
static inline vf   vf_code(vcode c, vi a) { return _mm256_permutevar8x32_ps(c.eight, a); }
static inline void vf_load_nib_code(const uint8_t *p, vcode c, vf *lo, vf *hi) {
    const __m128i b = _mm_loadl_epi64((const __m128i *)p), low = _mm_set1_epi8(15);
    const __m128i l = _mm_shuffle_epi8(c.bytes, _mm_and_si128(b, low));
    const __m128i h = _mm_shuffle_epi8(c.bytes, _mm_and_si128(_mm_srli_epi16(b, 4), low));
    *lo = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(l));
    *hi = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(h));
}
static inline vf vf_load_fp8_part(const uint8_t *p) {
    const __m128i b = _mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i *)p));
    const __m128i h = _mm_and_si128(_mm_slli_epi16(b, 7), _mm_set1_epi16((short)0xbf80));
    return _mm256_cvtph_ps(h);
}

#define VFP8_TWO
static inline void vf_load_fp8_two(const uint8_t *p, vf *a) {
    const __m256i b = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p));
    const __m256i h = _mm256_and_si256(_mm256_slli_epi16(b, 7), _mm256_set1_epi16((short)0xbf80));
    a[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(h));
    a[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1));
}
static inline vf vf_butterfly(vf a, int h) {
    const vf n = _mm256_set1_ps(-0.0f), z = _mm256_setzero_ps();
    if (h == 1) return _mm256_add_ps(_mm256_permute_ps(a, 0xb1), _mm256_xor_ps(a, _mm256_blend_ps(z, n, 0xaa)));
    if (h == 2) return _mm256_add_ps(_mm256_permute_ps(a, 0x4e), _mm256_xor_ps(a, _mm256_blend_ps(z, n, 0xcc)));
    return _mm256_add_ps(_mm256_permute2f128_ps(a, a, 1), _mm256_xor_ps(a, _mm256_blend_ps(z, n, 0xf0)));
}

/* Whole numbers, and 32 bytes in two halves. */
static inline vi      vi_set1(int32_t x) { return _mm256_set1_epi32(x); }
static inline int32_t vi_sum(vi a) {
    __m128i q = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    q = _mm_add_epi32(q, _mm_shuffle_epi32(q, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(q, _mm_shuffle_epi32(q, 0xb1)));
}
static inline vi     vi_add(vi a, vi b) { return _mm256_add_epi32(a, b); }
static inline vi     vi_round(vf a) { return _mm256_cvtps_epi32(a); }
typedef __m256i      vbytes;
static inline vbytes vb_two(const uint8_t *p, const uint8_t *q) {
    const __m256i a = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)p));
    return _mm256_inserti128_si256(a, _mm_loadu_si128((const __m128i *)q), 1);
}
static inline vbytes vb_and(vbytes a, int m) { return _mm256_and_si256(a, _mm256_set1_epi8((char)m)); }
static inline vbytes vb_or(vbytes a, vbytes b) { return _mm256_or_si256(a, b); }
static inline vbytes vb_flip(vbytes a) { return _mm256_xor_si256(a, _mm256_set1_epi8((char)0x80)); }
static inline vbytes vb_shr(vbytes a, int n) { return n ? _mm256_srli_epi16(a, n) : a; }
static inline vbytes vb_shl(vbytes a, int n) { return n ? _mm256_slli_epi16(a, n) : a; }
static inline vbytes vb_codes(const int8_t *c) {
    return vb_flip(_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)c)));
}
static inline vbytes vb_pick(vbytes code, vbytes n) { return _mm256_shuffle_epi8(code, n); }
static inline void   vf_pair(vf *a, vf *b) {
      const __m256 t = _mm256_permute2f128_ps(*a, *b, 0x31);
      *a = _mm256_permute2f128_ps(*a, *b, 0x20);
      *b = t;
}

#ifndef VNNI
/* Numbers of 16 bits in pairs. */
#define VWHOLE
static inline vi   vi_load(const void *p) { return _mm256_loadu_si256(p); }
static inline vi   vi_dot(vi acc, vi a, vi b) { return _mm256_add_epi32(acc, _mm256_madd_epi16(a, b)); }
static inline void vi_store_i16(int16_t *p, vi a, vi b) {
    _mm256_storeu_si256((__m256i *)p, _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8));
}
static inline void vb_pairs(vbytes a, vbytes b, int32_t *to) {
    const __m256i z = _mm256_setzero_si256(), lo = _mm256_unpacklo_epi8(a, b), hi = _mm256_unpackhi_epi8(a, b);
    _mm256_storeu_si256((__m256i *)to, _mm256_unpacklo_epi8(lo, z));
    _mm256_storeu_si256((__m256i *)(to + 8), _mm256_unpackhi_epi8(lo, z));
    _mm256_storeu_si256((__m256i *)(to + 16), _mm256_unpacklo_epi8(hi, z));
    _mm256_storeu_si256((__m256i *)(to + 24), _mm256_unpackhi_epi8(hi, z));
}
#endif

/* Bytes in fours. */
#define VQUADS
enum { VBYTES = 32, VQN = 2 };
typedef __m256i vq;
#ifdef VNNI
#define VQUADS_ALL
static inline bool vq_fits(int largest) { return (void)largest, true; }
static inline int  vq_most(int largest) { return (void)largest, 8; }
static inline vq   vq_begin(vi total) { return total; }
static inline vq   vq_dot(vq acc, vbytes u, vi s) { return _mm256_dpbusd_avx_epi32(acc, u, s); }
static inline vi   vq_end(vi total, vq acc) { return (void)total, acc; }
#else
/* Products of two neighbours add up in 16 bits, which limits their number; numbers up to 31 only. */
static inline bool vq_fits(int largest) { return largest <= 31; }
static inline int  vq_most(int largest) { return largest <= 15 ? 8 : 4; }
static inline vq   vq_begin(vi total) { return (void)total, _mm256_setzero_si256(); }
static inline vq   vq_dot(vq acc, vbytes u, vi s) {
      acc = _mm256_add_epi16(acc, _mm256_maddubs_epi16(u, s));
      __asm__("" : "+x"(acc)); /* else the compiler sorts the additions anew and runs out of registers */
      return acc;
}
static inline vi vq_end(vi total, vq acc) {
    return _mm256_add_epi32(total, _mm256_madd_epi16(acc, _mm256_set1_epi16(1)));
}
#endif
static inline vbytes vb_load(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)p); }
static inline void   vb_store(uint8_t *p, vbytes a) { _mm256_storeu_si256((__m256i *)p, a); }
static inline vbytes vb_sixteens(const uint8_t *const *p, size_t at) { return vb_two(p[0] + at, p[1] + at); }
static inline void   vb_quads(vbytes a, vbytes b, vbytes c, vbytes d, vbytes y[4]) {
      const __m256i ab = _mm256_unpacklo_epi8(a, b), ab2 = _mm256_unpackhi_epi8(a, b);
      const __m256i cd = _mm256_unpacklo_epi8(c, d), cd2 = _mm256_unpackhi_epi8(c, d);
      y[0] = _mm256_unpacklo_epi16(ab, cd);
      y[1] = _mm256_unpackhi_epi16(ab, cd);
      y[2] = _mm256_unpacklo_epi16(ab2, cd2);
      y[3] = _mm256_unpackhi_epi16(ab2, cd2);
}
static inline vbytes vb_nibs(const uint8_t *p, size_t stride, int n) { return (void)stride, (void)n, b32_nibs(p); }
static inline vbytes vb_fifths(const uint8_t *p, size_t stride, int n) { return (void)stride, (void)n, b32_fifths(p); }
static inline vbytes vb_thirds(const uint8_t *p, size_t stride, int n) { return (void)stride, (void)n, b32_thirds(p); }
static inline vbytes vb_crumbs(const uint8_t *p, size_t stride, int n) { return (void)stride, (void)n, b32_crumbs(p); }
static inline vbytes vb_bytes(const uint8_t *p, int n) { return (void)n, vb_load(p); }
static inline vi     vi_set2(int32_t a, int32_t b) { return (void)b, vi_set1(a); }
static inline vi     vi_shl8(vi a) { return _mm256_slli_epi32(a, 8); }
static inline void   vf_quads(vf v[2]) { vf_pair(&v[0], &v[1]); }
static inline void   vb_split(const vi a[4], int8_t *upper, int8_t *lower) {
      const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7), low = _mm256_set1_epi16(255),
                    half = _mm256_set1_epi16(128);
      const __m256i x = _mm256_packs_epi32(a[0], a[1]), y = _mm256_packs_epi32(a[2], a[3]);
      const __m256i l = _mm256_packus_epi16(_mm256_and_si256(x, low), _mm256_and_si256(y, low));
      const __m256i u = _mm256_packs_epi16(_mm256_srai_epi16(_mm256_add_epi16(x, half), 8),
                                           _mm256_srai_epi16(_mm256_add_epi16(y, half), 8));
      _mm256_storeu_si256((__m256i *)lower, _mm256_permutevar8x32_epi32(l, order));
      _mm256_storeu_si256((__m256i *)upper, _mm256_permutevar8x32_epi32(u, order));
}

/* VW slots of four f16 each: register g gets number g of every slot. */
static inline void vf_load_f16_by4(const uint16_t *p, vf r[4]) {
    const vf a = vf_load_f16(p), b = vf_load_f16(p + 8), c = vf_load_f16(p + 16), d = vf_load_f16(p + 24);
    const vf s0 = _mm256_permute2f128_ps(a, c, 0x20), s1 = _mm256_permute2f128_ps(a, c, 0x31);
    const vf s2 = _mm256_permute2f128_ps(b, d, 0x20), s3 = _mm256_permute2f128_ps(b, d, 0x31);
    const vf t0 = _mm256_unpacklo_ps(s0, s1), t1 = _mm256_unpackhi_ps(s0, s1);
    const vf t2 = _mm256_unpacklo_ps(s2, s3), t3 = _mm256_unpackhi_ps(s2, s3);
    r[0] = _mm256_shuffle_ps(t0, t2, 0x44);
    r[1] = _mm256_shuffle_ps(t0, t2, 0xee);
    r[2] = _mm256_shuffle_ps(t1, t3, 0x44);
    r[3] = _mm256_shuffle_ps(t1, t3, 0xee);
}

#define VTRANSPOSE
static inline void vf_transpose(vf r[8]) {
    vf t[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
    for (int i = 0; i < 8; i++) r[i] = t[i];
}

#endif
