/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversions between numbers, and arithmetic on floats of 16 bits: f16, and bf16, which is the upper half of a float.
 *
 * Each 16-bit result is rounded once. The sum of two halves in float, rounded again, is that (24 >= 2 * 11 + 2 bits);
 * a product of halves is exact in float, and a fused multiply-add rounds its sum to odd. bf16 has the range of a float,
 * so its products are made in double. A 16-bit NaN is 0x7fff, as a device makes it.
 *
 * Conversions that kernels are full of are loops of their own; the rest goes through double lane by lane. Every source
 * is exact there, but for 64-bit integers, which are rounded to odd.
 */
#include "gpu/lanes.h"

/* ---- 16-bit floats ---- */

INLINE float from_half(u32 h) {
    const u32   mag = h & 0x7fff;
    const float f = float32(mag << 13) * 0x1p112f; /* subnormal halves too */
    const u32   b = mag > 0x7c00 ? 0x7fffffffu : (mag == 0x7c00 ? 0x7f800000u : bits32(f)) | (h & 0x8000) << 16;
    return float32(b);
}
INLINE u32 to_half(float f) {
    const u32 mag = bits32(f) & 0x7fffffffu, sign = bits32(f) >> 16 & 0x8000;
    const u32 normal = (mag + 0xfff + (mag >> 13 & 1) - (112u << 23)) >> 13;
    const u32 small = bits32(float32(mag) + 0.5f) - 0x3f000000u; /* a float near 0.5 has a subnormal half's spacing */
    const u32 r = mag < 0x38800000u ? small : mag >= 0x477ff000u ? 0x7c00 : normal;
    return mag > 0x7f800000u ? 0x7fff : r | sign;
}
INLINE float from_bf16(u32 h) { return float32(h << 16); }
INLINE u32   to_bf16(float f) {
      const u32 b = bits32(f);
      return f != f ? 0x7fff : (b + 0x7fff + (b >> 16 & 1)) >> 16;
}
INLINE u32 to_bf16_once(double odd) { return to_bf16(narrow_odd(odd)); }

INLINE float least(float x, float y) {
    return x < y ? x : x > y ? y : x != x ? y : y != y ? x : float32(bits32(x) | bits32(y));
}
INLINE float most(float x, float y) {
    return x > y ? x : x < y ? y : x != x ? y : y != y ? x : float32(bits32(x) & bits32(y));
}

INLINE u32 add_half(u32 x, u32 y) { return to_half(from_half(x) + from_half(y)); }
INLINE u32 sub_half(u32 x, u32 y) { return to_half(from_half(x) - from_half(y)); }
INLINE u32 mul_half(u32 x, u32 y) { return to_half(from_half(x) * from_half(y)); }
INLINE u32 fma_half(u32 x, u32 y, u32 z) { return to_half(sum_odd32(from_half(x) * from_half(y), from_half(z))); }
INLINE u32 min_half(u32 x, u32 y) { return to_half(least(from_half(x), from_half(y))); }
INLINE u32 max_half(u32 x, u32 y) { return to_half(most(from_half(x), from_half(y))); }
INLINE u32 min_nan_half(u32 x, u32 y) {
    const float a = from_half(x), b = from_half(y);
    return to_half(a != a || b != b ? NAN : least(a, b));
}
INLINE u32 max_nan_half(u32 x, u32 y) {
    const float a = from_half(x), b = from_half(y);
    return to_half(a != a || b != b ? NAN : most(a, b));
}

INLINE u32 add_bf16(u32 x, u32 y) { return to_bf16_once(sum_odd64((double)from_bf16(x), (double)from_bf16(y))); }
INLINE u32 sub_bf16(u32 x, u32 y) { return to_bf16_once(sum_odd64((double)from_bf16(x), -(double)from_bf16(y))); }
INLINE u32 mul_bf16(u32 x, u32 y) { return to_bf16_once((double)from_bf16(x) * (double)from_bf16(y)); }
INLINE u32 fma_bf16(u32 x, u32 y, u32 z) {
    return to_bf16_once(sum_odd64((double)from_bf16(x) * (double)from_bf16(y), (double)from_bf16(z)));
}
INLINE u32 min_bf16(u32 x, u32 y) { return to_bf16(least(from_bf16(x), from_bf16(y))); }
INLINE u32 max_bf16(u32 x, u32 y) { return to_bf16(most(from_bf16(x), from_bf16(y))); }

#define LOW(v) ((v)&0xffff)
#define HIGH(v) ((v) >> 16)
#define PAIRED(op)                                                                                                     \
    BINARY(one_##op, u32, u32, u32, op(LOW(x), LOW(y)))                                                                \
    BINARY(two_##op, u32, u32, u32, op(LOW(x), LOW(y)) | op(HIGH(x), HIGH(y)) << 16)
#define PAIRED3(op)                                                                                                    \
    TERNARY(one_##op, u32, u32, u32, u32, op(LOW(x), LOW(y), LOW(z)))                                                  \
    TERNARY(two_##op, u32, u32, u32, u32, op(LOW(x), LOW(y), LOW(z)) | op(HIGH(x), HIGH(y), HIGH(z)) << 16)
PAIRED(add_half)
PAIRED(sub_half)
PAIRED(mul_half)
PAIRED3(fma_half)
PAIRED(min_half)
PAIRED(max_half)
PAIRED(min_nan_half)
PAIRED(max_nan_half)
PAIRED(add_bf16)
PAIRED(sub_bf16)
PAIRED(mul_bf16)
PAIRED3(fma_bf16)
PAIRED(min_bf16)
PAIRED(max_bf16)
UNARY(one_neg, u32, u32, x ^ 0x8000)
UNARY(two_neg, u32, u32, x ^ 0x80008000u)
UNARY(one_abs, u32, u32, x & 0x7fff)
UNARY(two_abs, u32, u32, x & 0x7fff7fffu)

/* ---- integers to integers ---- */

/* Where a source lies in a register that is wider than its type, code.c takes its lower half first. */
#define LOW_BITS(fn, expr)                                                                                             \
    UNARY(fn, u32, u32, expr)                                                                                          \
    UNARY(fn##_of_64, u32, u64, expr)
LOW_BITS(low_u8, (uint8_t)x)
LOW_BITS(low_s8_in_16, (uint16_t)(int8_t)x)
LOW_BITS(low_16, (uint16_t)x)
LOW_BITS(low_32, (u32)x)
UNARY(low_s8, u32, u32, (u32)(int8_t)x)
UNARY(low_s16, u32, u32, (u32)(int16_t)x)
UNARY(wide_u8, u64, u32, (uint8_t)x)
UNARY(wide_s8, u64, u32, (u64)(int8_t)x)
UNARY(wide_u16, u64, u32, (uint16_t)x)
UNARY(wide_s16, u64, u32, (u64)(int16_t)x)
UNARY(wide_u32, u64, u32, x)
UNARY(wide_s32, u64, u32, (u64)(s32)x)
UNARY(wide_64, u64, u64, x)

/* ---- the conversions that are frequent ---- */

INLINE s32 clamped(s32 x, s32 limit) { return x > limit ? limit : x < -limit ? -limit : x; }
INLINE s32 whole_s32(float f) {
    const s32 inside = (s32)(f >= -0x1p31f && f < 0x1p31f ? f : 0);
    return f >= 0x1p31f ? INT32_MAX : f < -0x1p31f ? INT32_MIN : inside;
}
INLINE u32 whole_u32(float f) {
    const double inside = f > 0 && f < 0x1p32f ? (double)f : 0;
    return f >= 0x1p32f ? UINT32_MAX : (u32)(s64)inside;
}

UNARY(f32_f16, f32, u32, from_half(LOW(x)))
UNARY(f32_bf16, f32, u32, from_bf16(LOW(x)))
UNARY(f16_f32, u32, f32, to_half(x))
UNARY(bf16_f32, u32, f32, to_bf16(x))
BINARY(f16x2_f32, u32, f32, f32, to_half(x) << 16 | to_half(y)) /* the first source becomes the upper half */
BINARY(bf16x2_f32, u32, f32, f32, to_bf16(x) << 16 | to_bf16(y))
UNARY(f16_s32, u32, s32, to_half((float)clamped(x, 1 << 20))) /* infinite long before */
UNARY(f32_s32, f32, s32, (float)x)
UNARY(f32_u32, f32, u32, (float)x)
UNARY(f64_s32, f64, s32, (double)x)
UNARY(f64_f32, f64, f32, (double)x)
UNARY(f32_f64, f32, f64, one_nan((float)x))
UNARY(f32_rni, f32, f32, one_nan(rintf(x)))
UNARY(f32_rzi, f32, f32, one_nan(truncf(x)))
UNARY(f32_rmi, f32, f32, one_nan(floorf(x)))
UNARY(f32_rpi, f32, f32, one_nan(ceilf(x)))
UNARY(f32_sat, f32, f32, x > 0 ? x < 1 ? x : 1.f : 0.f) /* NaN and minus zero too become zero */
UNARY(f32_copy, f32, f32, x)
UNARY(s32_rzi, s32, f32, whole_s32(x))
UNARY(u32_rzi, u32, f32, whole_u32(x))
UNARY(s32_rni, s32, f32, whole_s32(rintf(x)))
UNARY(u32_rni, u32, f32, whole_u32(rintf(x)))

/* ---- the rest, lane by lane ---- */

enum integer { U8, S8, U16, S16, U32, S32, U64, S64 };
enum floating { F16, BF16, F32, F64 };

/* An integer of the type in a lane: its value where it is negative or below 2^63; `huge`: 2^64 more. */
static s64 integer_of(const warp *w, operand o, int k, int type, bool *huge) {
    const u64 x = o.kind == SLOT_64 ? lanes64(w, o)[k] : lanes32(w, o)[k];
    *huge = type == U64 && x >> 63;
    switch (type) {
    case U8: return (uint8_t)x;
    case S8: return (int8_t)x;
    case U16: return (uint16_t)x;
    case S16: return (int16_t)x;
    case U32: return (u32)x;
    case S32: return (s32)x;
    default: return (s64)x;
    }
}

static void set_integer(const warp *w, operand o, int k, int type, u64 v) {
    if (type >= U64)
        lanes64(w, o)[k] = v;
    else if (type >= U32)
        lanes32(w, o)[k] = (u32)v;
    else if (type == U8)
        lanes32(w, o)[k] = (uint8_t)v;
    else
        lanes32(w, o)[k] = (uint16_t)v;
}

static double floating_of(const warp *w, operand o, int k, int type) {
    if (type == F64) return float64(lanes64(w, o)[k]);
    const u32 x = lanes32(w, o)[k];
    return (double)(type == F32 ? float32(x) : type == F16 ? from_half(LOW(x)) : from_bf16(LOW(x)));
}

static double rounded(double v, int rounding) {
    switch (rounding) {
    case ROUND_NEAR: return rint(v);
    case ROUND_ZERO: return trunc(v);
    case ROUND_DOWN: return floor(v);
    default: return ceil(v);
    }
}

/* v as a number of 16 bits with that many bits after the point, and `least` the exponent of the smallest normal one. */
static float quantized(double v, int bits, int least_exp, double largest, int rounding) {
    int e;
    if (v == 0 || isnan(v) || isinf(v)) return (float)v;
    frexp(v, &e);
    e = (e - 1 < least_exp ? least_exp : e - 1) - bits;
    const double r = ldexp(rounded(ldexp(v, -e), rounding), e);
    const bool   outward = rounding == ROUND_NEAR || rounding == (v < 0 ? ROUND_DOWN : ROUND_UP);
    if (fabs(r) > largest) return (float)copysign(outward ? (double)INFINITY : largest, v);
    return (float)copysign(r, v);
}

static void set_floating(const warp *w, operand o, int k, int type, double v, int rounding) {
    switch (type) {
    case F64: lanes64(w, o)[k] = bits64(v); break;
    case F32: lanes32(w, o)[k] = bits32(one_nan(narrow(v, rounding))); break;
    case F16: lanes32(w, o)[k] = to_half(quantized(v, 10, -14, 65504, rounding)); break;
    default: lanes32(w, o)[k] = to_bf16(quantized(v, 7, -126, 0x1.fep127, rounding));
    }
}

/* mode: the destination's enum integer, 8 * the source's. */
static void integer_sat(warp *w, const insn *i, uint32_t m) {
    const int to = i->mode & 7, from = i->mode >> 3, bits = 8 << (to >> 1);
    const u64 top = to & 1 ? ((u64)1 << (bits - 1)) - 1 : ~(u64)0 >> (64 - bits);
    const s64 low = to & 1 ? -(s64)top - 1 : 0;
    for (int k = 0; k < LANES; k++) {
        bool      huge;
        const s64 v = integer_of(w, i->o[1], k, from, &huge);
        if (!(m >> k & 1)) continue;
        set_integer(w, i->o[0], k, to, !huge && v < low ? (u64)low : (u64)v > top && (huge || v > 0) ? top : (u64)v);
    }
}

/*
 * mode: enum rounding, 4 * the integer, 32 * the float. What is not a number gives 0, or where 64 bits are involved the
 * top bit alone: so the PTX manual.
 */
static void integer_floating(warp *w, const insn *i, uint32_t m) {
    const int    to = i->mode >> 2 & 7, from = i->mode >> 5, bits = 8 << (to >> 1);
    const double top = to & 1 ? ldexp(1, bits - 1) : ldexp(1, bits), low = to & 1 ? -top : 0;
    const u64    highest = to & 1 ? ((u64)1 << (bits - 1)) - 1 : ~(u64)0 >> (64 - bits);
    for (int k = 0; k < LANES; k++) {
        const double v = rounded(floating_of(w, i->o[1], k, from), i->mode & 3);
        u64          r;
        if (!(m >> k & 1)) continue;
        if (isnan(v))
            r = from == F64 || to >= U64 ? (u64)1 << (bits - 1) : 0;
        else if (v >= top)
            r = highest;
        else if (v <= low)
            r = (u64)(s64)low;
        else
            r = v < 0 ? (u64)(s64)v : (u64)v;
        set_integer(w, i->o[0], k, to, r);
    }
}

static double odd_of(s64 x, bool huge) {
    u64        a = x < 0 && !huge ? 0 - (u64)x : (u64)x;
    const bool large = a >> 53;
    if (large) a = a >> 11 | ((a & 2047) != 0);
    const double v = (double)a * (large ? 2048. : 1.);
    return x < 0 && !huge ? -v : v;
}

/* mode: enum rounding, 4 * the integer, 32 * the float. To double only to the nearest. */
static void floating_integer(warp *w, const insn *i, uint32_t m) {
    const int from = i->mode >> 2 & 7, to = i->mode >> 5;
    for (int k = 0; k < LANES; k++) {
        bool      huge;
        const s64 x = integer_of(w, i->o[1], k, from, &huge);
        if (!(m >> k & 1)) continue;
        const double v = to != F64 ? odd_of(x, huge) : huge ? (double)(u64)x : (double)x;
        set_floating(w, i->o[0], k, to, v, i->mode & 3);
    }
}

/* mode: enum rounding, 4: to a whole number, 8 * the destination, 32 * the source. */
static void floating_floating(warp *w, const insn *i, uint32_t m) {
    for (int k = 0; k < LANES; k++) {
        double v = floating_of(w, i->o[1], k, i->mode >> 5);
        if (!(m >> k & 1)) continue;
        if (i->mode & 4) v = rounded(v, i->mode & 3);
        set_floating(w, i->o[0], k, i->mode >> 3 & 3, v, i->mode & 3);
    }
}

/* ---- the table ---- */

#define ROW(name, shape, fn) LANE_ROW(name, shape, fn, 0)
#define PAIR_ROWS(op, type, shape, fn) ROW(op "." type, shape, one_##fn), ROW(op "." type "x2", shape, two_##fn)
#define RN_ROWS(op, type, shape, fn) PAIR_ROWS(op, type, shape, fn), PAIR_ROWS(op ".rn", type, shape, fn)

#define INT_ROW(D, S, s, fn) ROW("cvt." D "." S, s, fn)
#define FROM_ALL(D, d, u8, s8, u16, s16, u32, s32, x64)                                                                \
    INT_ROW(D, "u8", d "w", u8), INT_ROW(D, "s8", d "w", s8), INT_ROW(D, "u16", d "w", u16),                           \
        INT_ROW(D, "s16", d "w", s16), INT_ROW(D, "u32", d "w", u32), INT_ROW(D, "s32", d "w", s32),                   \
        INT_ROW(D, "u64", d "d", x64), INT_ROW(D, "s64", d "d", x64)
#define SAT(D, d, to, S, s, from) LANE_ROW("cvt.sat." D "." S, d s, integer_sat, (to) | 8 * (from))
#define SAT_ROWS(D, d, to)                                                                                             \
    SAT(D, d, to, "u8", "w", U8), SAT(D, d, to, "s8", "w", S8), SAT(D, d, to, "u16", "w", U16),                        \
        SAT(D, d, to, "s16", "w", S16), SAT(D, d, to, "u32", "w", U32), SAT(D, d, to, "s32", "w", S32),                \
        SAT(D, d, to, "u64", "d", U64), SAT(D, d, to, "s64", "d", S64)

/* Both ways between an integer and a float; `near` and `zero` are the functions for the frequent ways to round. */
#define TO_INT(D, d, to, S, s, from, near, zero)                                                                       \
    LANE_ROW("cvt.rni." D "." S, d s, near, ROUND_NEAR | 4 * (to) | 32 * (from)),                                      \
        LANE_ROW("cvt.rzi." D "." S, d s, zero, ROUND_ZERO | 4 * (to) | 32 * (from)),                                  \
        LANE_ROW("cvt.rmi." D "." S, d s, integer_floating, ROUND_DOWN | 4 * (to) | 32 * (from)),                      \
        LANE_ROW("cvt.rpi." D "." S, d s, integer_floating, ROUND_UP | 4 * (to) | 32 * (from))
#define TO_FLOAT_NEAR(D, d, to, S, s, from, near)                                                                      \
    LANE_ROW("cvt.rn." D "." S, d s, near, ROUND_NEAR | 4 * (from) | 32 * (to))
#define TO_FLOAT(D, d, to, S, s, from, near)                                                                           \
    TO_FLOAT_NEAR(D, d, to, S, s, from, near),                                                                         \
        LANE_ROW("cvt.rz." D "." S, d s, floating_integer, ROUND_ZERO | 4 * (from) | 32 * (to)),                       \
        LANE_ROW("cvt.rm." D "." S, d s, floating_integer, ROUND_DOWN | 4 * (from) | 32 * (to)),                       \
        LANE_ROW("cvt.rp." D "." S, d s, floating_integer, ROUND_UP | 4 * (from) | 32 * (to))
#define SLOW_INT(I, i, int_type, F, f, float_type)                                                                     \
    TO_INT(I, i, int_type, F, f, float_type, integer_floating, integer_floating)
#define SLOW_FLOAT(I, i, int_type, F, f, float_type) TO_FLOAT(F, f, float_type, I, i, int_type, floating_integer)
#define SLOW_BOTH(I, i, int_type, F, f, float_type)                                                                    \
    SLOW_INT(I, i, int_type, F, f, float_type), SLOW_FLOAT(I, i, int_type, F, f, float_type)
#define SMALL_BOTH(F, f, float_type)                                                                                   \
    SLOW_BOTH("u8", "w", U8, F, f, float_type), SLOW_BOTH("s8", "w", S8, F, f, float_type),                            \
        SLOW_BOTH("u16", "w", U16, F, f, float_type), SLOW_BOTH("s16", "w", S16, F, f, float_type)

#define FF_MODE(rounding, whole, to, from) (uint8_t)((rounding) | 4 * (whole) | 8 * (to) | 32 * (from))
#define FF_ROW(way, D, S, s, rounding, whole, to, from, fn)                                                            \
    LANE_ROW("cvt." way D "." S, s, fn, FF_MODE(rounding, whole, to, from))
#define WIDEN(D, S, s, to, from, fn) FF_ROW("", D, S, s, 0, 0, to, from, fn)
#define NARROW(D, S, s, to, from, near)                                                                                \
    FF_ROW("rn.", D, S, s, ROUND_NEAR, 0, to, from, near),                                                             \
        FF_ROW("rz.", D, S, s, ROUND_ZERO, 0, to, from, floating_floating),                                            \
        FF_ROW("rm.", D, S, s, ROUND_DOWN, 0, to, from, floating_floating),                                            \
        FF_ROW("rp.", D, S, s, ROUND_UP, 0, to, from, floating_floating)
#define WHOLE(T, s, type, near, zero, down, up)                                                                        \
    FF_ROW("rni.", T, T, s, ROUND_NEAR, 1, type, type, near),                                                          \
        FF_ROW("rzi.", T, T, s, ROUND_ZERO, 1, type, type, zero),                                                      \
        FF_ROW("rmi.", T, T, s, ROUND_DOWN, 1, type, type, down), FF_ROW("rpi.", T, T, s, ROUND_UP, 1, type, type, up)
#define WHOLE_SLOW(T, s, type)                                                                                         \
    WHOLE(T, s, type, floating_floating, floating_floating, floating_floating, floating_floating)

/* clang-format off */
const insn_rule convert_rules[] = {
    RN_ROWS("add", "f16", "www", add_half), RN_ROWS("sub", "f16", "www", sub_half),
    RN_ROWS("mul", "f16", "www", mul_half), PAIR_ROWS("fma.rn", "f16", "wwww", fma_half),
    PAIR_ROWS("min", "f16", "www", min_half), PAIR_ROWS("max", "f16", "www", max_half),
    PAIR_ROWS("min.NaN", "f16", "www", min_nan_half), PAIR_ROWS("max.NaN", "f16", "www", max_nan_half),
    PAIR_ROWS("neg", "f16", "ww", neg), PAIR_ROWS("abs", "f16", "ww", abs),
    RN_ROWS("add", "bf16", "www", add_bf16), RN_ROWS("sub", "bf16", "www", sub_bf16),
    RN_ROWS("mul", "bf16", "www", mul_bf16), PAIR_ROWS("fma.rn", "bf16", "wwww", fma_bf16),
    PAIR_ROWS("min", "bf16", "www", min_bf16), PAIR_ROWS("max", "bf16", "www", max_bf16),
    PAIR_ROWS("neg", "bf16", "ww", neg), PAIR_ROWS("abs", "bf16", "ww", abs),

    FROM_ALL("u8", "w", low_u8, low_u8, low_u8, low_u8, low_u8, low_u8, low_u8_of_64),
    FROM_ALL("s8", "w", low_s8_in_16, low_s8_in_16, low_s8_in_16, low_s8_in_16, low_s8_in_16, low_s8_in_16,
             low_s8_in_16_of_64),
    FROM_ALL("u16", "w", low_u8, low_s8_in_16, low_16, low_16, low_16, low_16, low_16_of_64),
    FROM_ALL("s16", "w", low_u8, low_s8_in_16, low_16, low_16, low_16, low_16, low_16_of_64),
    FROM_ALL("u32", "w", low_u8, low_s8, low_16, low_s16, low_32, low_32, low_32_of_64),
    FROM_ALL("s32", "w", low_u8, low_s8, low_16, low_s16, low_32, low_32, low_32_of_64),
    FROM_ALL("u64", "d", wide_u8, wide_s8, wide_u16, wide_s16, wide_u32, wide_s32, wide_64),
    FROM_ALL("s64", "d", wide_u8, wide_s8, wide_u16, wide_s16, wide_u32, wide_s32, wide_64),
    SAT_ROWS("u8", "w", U8), SAT_ROWS("s8", "w", S8), SAT_ROWS("u16", "w", U16), SAT_ROWS("s16", "w", S16),
    SAT_ROWS("u32", "w", U32), SAT_ROWS("s32", "w", S32), SAT_ROWS("u64", "d", U64), SAT_ROWS("s64", "d", S64),

    SMALL_BOTH("f16", "w", F16), SMALL_BOTH("bf16", "w", BF16), SMALL_BOTH("f32", "w", F32),
    SMALL_BOTH("f64", "d", F64),
    SLOW_BOTH("u32", "w", U32, "f16", "w", F16), SLOW_INT("s32", "w", S32, "f16", "w", F16),
    TO_FLOAT("f16", "w", F16, "s32", "w", S32, f16_s32),
    SLOW_BOTH("u64", "d", U64, "f16", "w", F16), SLOW_BOTH("s64", "d", S64, "f16", "w", F16),
    SLOW_BOTH("u32", "w", U32, "bf16", "w", BF16), SLOW_BOTH("s32", "w", S32, "bf16", "w", BF16),
    SLOW_BOTH("u64", "d", U64, "bf16", "w", BF16), SLOW_BOTH("s64", "d", S64, "bf16", "w", BF16),
    TO_INT("u32", "w", U32, "f32", "w", F32, u32_rni, u32_rzi), TO_FLOAT("f32", "w", F32, "u32", "w", U32, f32_u32),
    TO_INT("s32", "w", S32, "f32", "w", F32, s32_rni, s32_rzi), TO_FLOAT("f32", "w", F32, "s32", "w", S32, f32_s32),
    SLOW_BOTH("u64", "d", U64, "f32", "w", F32), SLOW_BOTH("s64", "d", S64, "f32", "w", F32),
    SLOW_BOTH("u32", "w", U32, "f64", "d", F64), SLOW_INT("s32", "w", S32, "f64", "d", F64),
    TO_FLOAT("f64", "d", F64, "s32", "w", S32, f64_s32),
    SLOW_INT("u64", "d", U64, "f64", "d", F64), TO_FLOAT_NEAR("f64", "d", F64, "u64", "d", U64, floating_integer),
    SLOW_INT("s64", "d", S64, "f64", "d", F64), TO_FLOAT_NEAR("f64", "d", F64, "s64", "d", S64, floating_integer),

    WIDEN("f32", "f16", "ww", F32, F16, f32_f16), WIDEN("f32", "bf16", "ww", F32, BF16, f32_bf16),
    WIDEN("f64", "f16", "dw", F64, F16, floating_floating), WIDEN("f64", "bf16", "dw", F64, BF16, floating_floating),
    WIDEN("f64", "f32", "dw", F64, F32, f64_f32), WIDEN("f32", "f32", "ww", F32, F32, f32_copy),
    WIDEN("f16", "f16", "ww", F16, F16, low_16), WIDEN("f64", "f64", "dd", F64, F64, wide_64),
    NARROW("f16", "f32", "ww", F16, F32, f16_f32), NARROW("bf16", "f32", "ww", BF16, F32, bf16_f32),
    NARROW("f16", "f64", "wd", F16, F64, floating_floating), NARROW("bf16", "f64", "wd", BF16, F64, floating_floating),
    NARROW("f16", "bf16", "ww", F16, BF16, floating_floating),
    NARROW("bf16", "f16", "ww", BF16, F16, floating_floating),
    NARROW("f32", "f64", "wd", F32, F64, f32_f64),
    WHOLE("f32", "ww", F32, f32_rni, f32_rzi, f32_rmi, f32_rpi), WHOLE_SLOW("f16", "ww", F16),
    WHOLE_SLOW("bf16", "ww", BF16), WHOLE_SLOW("f64", "dd", F64),
    ROW("cvt.sat.f32.f32", "ww", f32_sat),
    ROW("cvt.rn.f16x2.f32", "www", f16x2_f32), ROW("cvt.rn.bf16x2.f32", "www", bf16x2_f32),
    { NULL, NULL, NULL, 0, FLOW_NEXT },
};
/* clang-format on */
