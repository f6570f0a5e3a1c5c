/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small floating-point formats to and from float, exact in both directions: reading loses nothing, writing rounds to
 * the nearest value, ties to even. NaNs stay NaNs and become quiet, as the conversion instructions of x86 and Arm do
 * it.
 *
 *   f16    1 sign, 5 exponent (bias 15), 10 mantissa: IEEE half
 *   bf16   the upper half of a float
 *   e4m3   1, 4 (bias 7), 3: no infinity, 0x7f and 0xff are NaN, largest 448
 *   e5m2   the upper byte of an f16, largest 57344
 *   e8m0   no sign, no mantissa: 2^(byte - 127), 255 is NaN
 *   e2m1   1, 2 (bias 1), 1: 0 .5 1 1.5 2 3 4 6 and their negatives
 *
 * Writing e4m3 and e5m2 saturates at the largest finite value: weights are scaled to fit, so an overflow is a rounding
 * accident and infinity would destroy the row.
 */
#ifndef TENSOR_HALF_H
#define TENSOR_HALF_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t tensor_f32_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static inline float tensor_bits_f32(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static inline float tensor_f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, mag = h & 0x7fffu, bits;
    if (mag >= 0x7c00) {
        bits = 0x7f800000u | (mag & 0x3ff) << 13;
        if (mag > 0x7c00) bits |= 0x400000u;
    } else if (mag < 0x400) {
        bits = tensor_f32_bits((float)mag * 0x1p-24f);
    } else {
        bits = (mag << 13) + (112u << 23);
    }
    return tensor_bits_f32(sign | bits);
}

static inline uint16_t tensor_f32_to_f16(float f) {
    uint32_t bits = tensor_f32_bits(f), sign = bits >> 16 & 0x8000u, mag = bits & 0x7fffffffu;
    if (mag > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (mag >> 13 & 0x3ffu));
    if (mag >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and more */
    if (mag < 0x38800000u) { /* below 2^-14: a float near 0.5 has the same spacing as a subnormal half */
        uint32_t sum = tensor_f32_bits(tensor_bits_f32(mag) + 0.5f);
        return (uint16_t)(sign | (sum - 0x3f000000u));
    }
    mag += 0xfffu + (mag >> 13 & 1u);
    return (uint16_t)(sign | (mag - (112u << 23)) >> 13);
}

static inline float tensor_bf16_to_f32(uint16_t h) {
    uint32_t bits = (uint32_t)h << 16;
    if ((bits & 0x7fffffffu) > 0x7f800000u) bits |= 0x400000u;
    return tensor_bits_f32(bits);
}

static inline uint16_t tensor_f32_to_bf16(float f) {
    uint32_t bits = tensor_f32_bits(f);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static inline float tensor_e4m3_to_f32(uint8_t b) {
    uint32_t sign = (uint32_t)(b & 0x80u) << 24, mag = b & 0x7fu;
    if (mag == 0x7f) return tensor_bits_f32(sign | 0x7fc00000u);
    if (mag < 8) return tensor_bits_f32(sign | tensor_f32_bits((float)mag * 0x1p-9f));
    return tensor_bits_f32(sign | ((mag << 20) + (120u << 23)));
}

static inline float tensor_e5m2_to_f32(uint8_t b) { return tensor_f16_to_f32((uint16_t)((uint32_t)b << 8)); }

static inline float tensor_e8m0_to_f32(uint8_t b) {
    if (b == 255) return tensor_bits_f32(0x7fc00000u);
    return tensor_bits_f32(b == 0 ? 0x00400000u : (uint32_t)b << 23);
}

/* Magnitude a (finite, not negative) in units of the format's spacing there: the code without sign. */
static inline unsigned tensor_mini_encode(float a, int min_exp, int mantissa_bits) {
    int e = (int)(tensor_f32_bits(a) >> 23) - 127;
    if (e < min_exp) e = min_exp;
    unsigned q = (unsigned)nearbyintf(ldexpf(a, mantissa_bits - e)); /* exact but for the rounding to an integer */
    return ((unsigned)(e - min_exp) << mantissa_bits) + q;           /* a carry moves into the exponent by itself */
}

static inline uint8_t tensor_f32_to_e4m3(float f) {
    unsigned sign = tensor_f32_bits(f) >> 24 & 0x80u;
    float    a = fabsf(f);
    if (a != a) return (uint8_t)(sign | 0x7f);
    if (a >= 448) return (uint8_t)(sign | 0x7e);
    return (uint8_t)(sign | tensor_mini_encode(a, -6, 3));
}

static inline uint8_t tensor_f32_to_e5m2(float f) {
    unsigned sign = tensor_f32_bits(f) >> 24 & 0x80u;
    float    a = fabsf(f);
    if (a != a) return (uint8_t)(sign | 0x7f);
    if (a >= 57344) return (uint8_t)(sign | 0x7b);
    return (uint8_t)(sign | tensor_mini_encode(a, -14, 2));
}

/* Twice the e2m1 values, so that they are integers. Code 8 (minus zero) reads as zero. */
static const int8_t tensor_e2m1_doubled[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };

static inline uint8_t tensor_f32_to_e2m1(float f) {
    unsigned sign = tensor_f32_bits(f) >> 28 & 0x8u;
    float    a = fabsf(f);
    if (!(a < 6)) return (uint8_t)(sign | 7); /* NaN too: the format has none */
    return (uint8_t)(sign | tensor_mini_encode(a, 0, 1));
}

#endif
