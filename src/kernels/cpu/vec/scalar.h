/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vector vocabulary that the kernels of cpu/impl are written in, here one float wide: the scalar twin.
 *
 * vec/avx2.h, vec/avx512.h and vec/neon.h define the same names for their registers. A file of a set includes its
 * vocabulary and then the implementation, so every set runs the same statements in the same order; what differs is the
 * width VW (lanes of a reduction) and whether a*b+c rounds once (fma) or twice (here).
 *
 *   vf, vm                    VW floats; a mask of VW lanes
 *   vf_loadn, vf_storen       the first n lanes only (the others are zero / untouched); memory behind is not touched
 *   vf_fma, vf_fnma           a * b + c;  c - a * b
 *   vf_max, vf_min            return the second operand when one is NaN
 *   vf_sel(m, a, b)           m ? a : b
 *   vf_scale2(a, n)           a * 2^n for whole n
 *   vf_sum, vf_hmax           over the lanes, in a fixed order
 *   vf_set1_f16               one f16 in every lane
 *   vi, vi_load_u8            VW whole numbers of 32 bits; from VW bytes
 *   vi_mix(a, b, m)           bits of b where m has ones, of a elsewhere
 *   vi_crumbs(p, in)          pairs of bits of dimensions in .. in + VW - 1 of 32: byte i holds those of i, i + 8, i + 16
 *                             and i + 24 from the lowest up; what lies above the pair is undefined
 *   vi_thirds(p, in)          the same for three bits: of 12 bytes, byte i holds the low eight bits of the numbers of i, i + 8,
 *                             i + 16 and i + 24 side by side, byte 8 + i % 4 their upper four: low nibble for i < 4
 *   vi_nibs(p, in)            nibbles of dimensions in .. of 32: byte i holds those of i and i + 16
 *   vi_bits(p, in, to)        bits in .. of 32, little endian, each moved to bit `to` of its lane, all others zero
 *   vcode, vf_code            a codebook of up to 16 signed bytes (shorter ones repeated), and its entries by the low bits of
 *                             the lanes: four bits, on AVX2 three
 *   vf_load_nib_code          the entries for low and high nibbles of VW bytes
 *   vf_load_fp8_part          VW bytes of e4m3, exponent 15 counts like the others, divided by 256
 *   vf_butterfly(a, h)        lane i becomes a[i] + a[i + h], lane i + h becomes a[i] - a[i + h], for h < VW
 *   vf_load_fp8_two           what vf_load_fp8_part gives for sixteen bytes, in two vectors; optional (VFP8_TWO)
 *   vi_round                  floats rounded to nearest; optional with all that follow (VQUADS)
 *   vbytes, VBYTES            4 VW bytes; vb_load, vb_store, vb_and, vb_or
 *   vb_sixteens(p, at)        sixteen bytes at p[i] + at for each i < VBYTES / 16
 *   vb_shr, vb_shl            by bits; what comes in from a neighbour is undefined
 *   vb_flip                   the highest bit of every byte
 *   vb_codes, vb_pick         a codebook whose entries are 128 larger; its entries by the bytes, which are below 16
 *   vb_nibs, vb_thirds, ...   numbers of four, three and two bits of VBYTES dimensions as vi_nibs, vi_thirds and vi_crumbs find them in
 *   vb_fifths                 groups of 32, `stride` bytes apart, of which n are there; the fifth bits as 16 or 0
 *   vb_quads(a, b, c, d, y)   fours of bytes, one of each: y[x] has those of bytes 4 x to 4 x + 3 of every sixteen
 *   vf_quads(v)               VQN vectors, of which vector i has lanes 4 x + .. of every sixteen for x = x0 + i, in the order of the
 *                             lanes, and back: vectors x0 / VQN + i * (4 / VQN) of four
 *   vb_split(a, upper, lower) four vectors of numbers of 16 bits as bytes, 256 upper + lower
 *   vq, vq_dot(acc, u, s)     adds the products of four unsigned and four signed bytes; vq_most(largest) of them between vq_begin and
 *                             vq_end; vq_fits: whether numbers up to `largest` can be multiplied at all
 *   vi_set2(a, b)             a for the first 32 of the bytes, b for the others
 *   vf_load_f16_by4           VW slots of four f16: a register for each of the four
 *   vi_dot(acc, a, b)         optional with all that follow (VWHOLE): adds the products of the 16-bit halves of the lanes to acc
 *   vi_store_i16              two vectors as numbers of 16 bits
 *   vb_two(p, q)              32 bytes: sixteen of p and sixteen of q
 *   vb_pairs(a, b, to)        stores 32 bits for each byte of a (low half) and b (high half): those of bytes 0 to 3 and 16 to 19,
 *                             of 4 to 7 and 20 to 23, and so on
 *   vf_pair(a, b)             exchanges the upper half of a and the lower one of b
 *   vf_transpose              VW registers as a square, in place; optional, VTRANSPOSE says that it exists
 *   VREGS                     how many registers a tile may count on
 *   VFN(name), VSET           the set's suffix and name
 */
#ifndef KERNELS_CPU_VEC_SCALAR_H
#define KERNELS_CPU_VEC_SCALAR_H

#include "tensor/half.h"

#include <math.h>
#include <stdint.h>

#define VW 1
#define VREGS 16
#define VSET "scalar"
#define VFN(name) name##_scalar

typedef float vf;
typedef int   vm;

static inline vm vm_range(int64_t lo, int64_t hi) { return lo <= 0 && hi > 0; }

static inline vf   vf_zero(void) { return 0.0f; }
static inline vf   vf_set1(float x) { return x; }
static inline vf   vf_load(const float *p) { return *p; }
static inline vf   vf_loadn(const float *p, int64_t n) { return n > 0 ? *p : 0.0f; }
static inline void vf_store(float *p, vf a) { *p = a; }
static inline void vf_storen(float *p, vf a, int64_t n) {
    if (n > 0) *p = a;
}

static inline vf    vf_add(vf a, vf b) { return a + b; }
static inline vf    vf_sub(vf a, vf b) { return a - b; }
static inline vf    vf_mul(vf a, vf b) { return a * b; }
static inline vf    vf_div(vf a, vf b) { return a / b; }
static inline vf    vf_fma(vf a, vf b, vf c) { return a * b + c; }
static inline vf    vf_fnma(vf a, vf b, vf c) { return c - a * b; }
static inline vf    vf_max(vf a, vf b) { return a > b ? a : b; }
static inline vf    vf_min(vf a, vf b) { return a < b ? a : b; }
static inline vf    vf_abs(vf a) { return fabsf(a); }
static inline vf    vf_copysign(vf mag, vf sgn) { return copysignf(mag, sgn); }
static inline vm    vf_lt(vf a, vf b) { return a < b; }
static inline vf    vf_sel(vm m, vf a, vf b) { return m ? a : b; }
static inline int   vm_any(vm m) { return m; }
static inline vf    vf_round(vf a) { return rintf(a); }
static inline vf    vf_scale2(vf a, vf n) { return n == n ? ldexpf(a, (int)n) : n; }
static inline float vf_sum(vf a) { return a; }
static inline float vf_hmax(vf a) { return a; }

static inline vf   vf_load_f16(const uint16_t *p) { return tensor_f16_to_f32(*p); }
static inline vf   vf_loadn_f16(const uint16_t *p, int64_t n) { return n > 0 ? tensor_f16_to_f32(*p) : 0.0f; }
static inline void vf_store_f16(uint16_t *p, vf a) { *p = tensor_f32_to_f16(a); }
static inline void vf_storen_f16(uint16_t *p, vf a, int64_t n) {
    if (n > 0) *p = tensor_f32_to_f16(a);
}
static inline vf   vf_load_bf16(const uint16_t *p) { return tensor_bf16_to_f32(*p); }
static inline vf   vf_loadn_bf16(const uint16_t *p, int64_t n) { return n > 0 ? tensor_bf16_to_f32(*p) : 0.0f; }
static inline void vf_store_bf16(uint16_t *p, vf a) { *p = tensor_f32_to_bf16(a); }
static inline void vf_storen_bf16(uint16_t *p, vf a, int64_t n) {
    if (n > 0) *p = tensor_f32_to_bf16(a);
}

static inline vf vf_set1_f16(const uint16_t *p) { return tensor_f16_to_f32(*p); }
static inline vf vf_load_i8(const int8_t *p) { return (float)*p; }

typedef uint32_t      vi;
typedef const int8_t *vcode;

static inline vi vi_load_u8(const uint8_t *p) { return *p; }
static inline vi vi_shr(vi a, int n) { return a >> n; }
static inline vi vi_shl(vi a, int n) { return a << n; }
static inline vi vi_and(vi a, uint32_t m) { return a & m; }
static inline vi vi_or(vi a, vi b) { return a | b; }
static inline vi vi_mix(vi a, vi b, uint32_t m) { return (a & ~m) | (b & m); }
static inline vf vf_from_vi(vi a) { return (float)(int32_t)a; }
static inline vi vi_crumbs(const uint8_t *p, int in) { return (vi)(p[in % 8] >> (in / 8 * 2)); }
static inline vi vi_thirds(const uint8_t *p, int in) {
    const int i = in % 8;
    return (vi)((p[i] | (p[8 + i % 4] >> (i / 4 * 4) & 15) << 8) >> (in / 8 * 3));
}
static inline vi    vi_nibs(const uint8_t *p, int in) { return in < 16 ? p[in] & 15u : (vi)(p[in - 16] >> 4); }
static inline vi    vi_bits(const uint8_t *p, int in, int to) { return (vi)(p[in / 8] >> (in % 8) & 1) << to; }
static inline vcode vcode_make(const int8_t *c) { return c; }
static inline vf    vf_code(vcode c, vi a) { return (float)c[a & 15]; }
static inline void  vf_load_nib_code(const uint8_t *p, vcode c, vf *lo, vf *hi) {
     *lo = (float)c[*p & 15];
     *hi = (float)c[*p >> 4];
}
static inline vf vf_load_fp8_part(const uint8_t *p) {
    return tensor_f16_to_f32((uint16_t)((*p & 0x80) << 8 | (*p & 0x7f) << 7));
}
static inline vf vf_butterfly(vf a, int h) {
    (void)h;
    return a;
}

#endif
