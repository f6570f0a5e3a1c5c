/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a function over the 32 lanes of a warp is written in one line: UNARY, BINARY and TERNARY make a function of an
 * expression in x, y, z, which are the operands after the destination. An expression must not trap for any operands:
 * it is evaluated for idle lanes too, whose results are dropped. Slots are the same or apart, never shifted against
 * each other, so the loops have no dependencies and the compiler is told so.
 *
 * Where gcc can, each function exists three times and the loader takes the one for this processor. Sanitizers are not
 * ready when the loader chooses.
 */
#ifndef TESTS_GPU_LANES_H
#define TESTS_GPU_LANES_H

#include "gpu/machine.h"

#include <math.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && defined(__OPTIMIZE__) &&                       \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LANE_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define LANE_CLONES
#endif
#ifdef __clang__
#define LANE_LOOP for (int k = 0; k < LANES; k++)
#else
#define LANE_LOOP _Pragma("GCC ivdep") for (int k = 0; k < LANES; k++)
#endif
#define LANE_FN LANE_CLONES static void
#define INLINE static inline __attribute__((always_inline)) /* a call in a loop keeps it from being vectorized */

typedef uint32_t u32;
typedef int32_t  s32;
typedef uint64_t u64;
typedef int64_t  s64;
typedef float    f32 __attribute__((may_alias));
typedef double   f64 __attribute__((may_alias));

#define LANES_u32(w, o) ((u32 *)lanes32(w, o))
#define LANES_s32(w, o) ((s32 *)lanes32(w, o))
#define LANES_f32(w, o) ((f32 *)lanes32(w, o))
#define LANES_u64(w, o) ((u64 *)lanes64(w, o))
#define LANES_s64(w, o) ((s64 *)lanes64(w, o))
#define LANES_f64(w, o) ((f64 *)lanes64(w, o))

#define LANE_BODY(D, loads, expr)                                                                                      \
    D *d = LANES_##D(w, i->o[0]);                                                                                      \
    if (m == ALL_LANES) {                                                                                              \
        LANE_LOOP { loads d[k] = (D)(expr); }                                                                          \
    } else {                                                                                                           \
        LANE_LOOP {                                                                                                    \
            loads const D v_ = (D)(expr);                                                                              \
            d[k] = m >> k & 1 ? v_ : d[k];                                                                             \
        }                                                                                                              \
    }

#define UNARY(fn, D, A, expr)                                                                                          \
    LANE_FN fn(warp *w, const insn *i, uint32_t m) {                                                                   \
        const A *a = LANES_##A(w, i->o[1]);                                                                            \
        LANE_BODY(D, const A x = a[k];, expr)                                                                          \
    }
#define BINARY(fn, D, A, B, expr)                                                                                      \
    LANE_FN fn(warp *w, const insn *i, uint32_t m) {                                                                   \
        const A *a = LANES_##A(w, i->o[1]);                                                                            \
        const B *b = LANES_##B(w, i->o[2]);                                                                            \
        LANE_BODY(D, const A x = a[k]; const B y = b[k];, expr)                                                        \
    }
#define TERNARY(fn, D, A, B, C, expr)                                                                                  \
    LANE_FN fn(warp *w, const insn *i, uint32_t m) {                                                                   \
        const A *a = LANES_##A(w, i->o[1]);                                                                            \
        const B *b = LANES_##B(w, i->o[2]);                                                                            \
        const C *c = LANES_##C(w, i->o[3]);                                                                            \
        LANE_BODY(D, const A x = a[k]; const B y = b[k]; const C z = c[k];, expr)                                      \
    }

#define LANE_ROW(name, shape, fn, mode)                                                                                \
    { name, shape, fn, mode, FLOW_NEXT }

/* How a result is rounded; the mode of an instruction that rounds. */
enum rounding { ROUND_NEAR, ROUND_ZERO, ROUND_DOWN, ROUND_UP };

INLINE u32 bits32(float f) {
    u32 u;
    memcpy(&u, &f, 4);
    return u;
}
INLINE float float32(u32 u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}
INLINE u64 bits64(double f) {
    u64 u;
    memcpy(&u, &f, 8);
    return u;
}
INLINE double float64(u64 u) {
    double f;
    memcpy(&f, &u, 8);
    return f;
}

/* The one NaN that single precision makes on a device; its sign is plus, where x86 says minus. */
INLINE float one_nan(float f) { return f == f ? f : float32(0x7fffffffu); }

/* Subnormal numbers become zeros of their sign. */
INLINE float flush(float f) { return fabsf(f) < 0x1p-126f ? float32(bits32(f) & 0x80000000u) : f; }

/*
 * Rounding to odd: the sum or number that is not exact takes the neighbour whose last bit is 1. Rounding that again to
 * a format with at least two bits less gives what rounding the exact value once would, in every direction.
 */
INLINE float odd32(float rounded, float error) {
    const u32 b = bits32(rounded), apart = (bits32(error) ^ b) >> 31;
    return (error > 0 || error < 0) && !(b & 1) ? float32(b + 1 - 2 * apart) : rounded;
}
INLINE double odd64(double rounded, double error) {
    const u64 b = bits64(rounded), apart = (bits64(error) ^ b) >> 63;
    return (error > 0 || error < 0) && !(b & 1) ? float64(b + 1 - 2 * apart) : rounded;
}
INLINE float sum_odd32(float p, float z) {
    const float s = p + z, t = s - p;
    return odd32(s, (p - (s - t)) + (z - t));
}
INLINE double sum_odd64(double p, double z) {
    const double s = p + z, t = s - p;
    return odd64(s, (p - (s - t)) + (z - t));
}
INLINE float narrow_odd(double v) {
    const float f = (float)v;
    return odd32(f, (double)f == v ? 0.f : v > (double)f ? 1.f : -1.f);
}

/* A double as a float, rounded in one of the four ways. */
INLINE float narrow(double v, int rounding) {
    const float f = (float)v;
    const u32   b = bits32(f), minus = b >> 31;
    const bool  above = (double)f > v, below = (double)f < v;
    const bool  down = rounding == ROUND_DOWN || (rounding == ROUND_ZERO && !minus);
    const bool  up = rounding == ROUND_UP || (rounding == ROUND_ZERO && minus);
    return above && down ? float32(minus ? b + 1 : b - 1) : below && up ? float32(minus ? b - 1 : b + 1) : f;
}

#endif
