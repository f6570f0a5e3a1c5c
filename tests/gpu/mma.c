/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tensor cores add, as kernels/cuda/twin.h describes it, for many columns at once.
 *
 * The largest exponent among the products and the sum so far gives a scale by which every term becomes a number whose
 * whole part is what the chip keeps; conversion to an integer cuts the rest. Halves multiply exactly in float, bf16 in
 * double, and a power of two changes nothing. A factor is below 2 in units of its exponent, 2 - 2^-10 at most, so 16
 * products cut at 25 bits stay below 2^31. With the sum so far they meet in double, which is exact, loses all but its
 * 24 upper bits, and becomes the float. Only bf16 can come out subnormal: products of halves are multiples of 2^-48.
 *
 * A zero has an exponent below all others, and what is not finite one above all others, which makes the result a NaN,
 * the device's. Where all products are zero the sum stays what it is, but zero becomes plus zero.
 */
#include "gpu/lanes.h"

enum { DEPTH = 16, ROWS = 16, WIDE = 32, NARROW = 16, ZERO_EXPONENT = -4000, LOST_EXPONENT = 8000 };

INLINE bool  finite16(bool bf16, uint16_t h) { return bf16 ? (h & 0x7f80) != 0x7f80 : (h & 0x7c00) != 0x7c00; }
INLINE float value16(bool bf16, uint16_t h) {
    const float f = bf16 ? float32((u32)h << 16)
                         : float32(bits32(float32((u32)(h & 0x7fff) << 13) * 0x1p112f) | (u32)(h & 0x8000) << 16);
    return finite16(bf16, h) ? f : 0;
}
INLINE int16_t exponent16(bool bf16, uint16_t h) {
    const int field = bf16 ? h >> 7 & 255 : h >> 10 & 31, e = (field ? field : 1) - (bf16 ? 127 : 15);
    return (int16_t)(!finite16(bf16, h) ? LOST_EXPONENT : h & 0x7fff ? e : ZERO_EXPONENT);
}

INLINE double power_of_two(int e) { return float64((u64)(s64)(1023 + e) << 52); }

/*
 * The sum of one group for the columns of a block; T is the type in which a product is exact, `largest` the largest
 * exponent there can be.
 */
#define GROUP(fn, T, n, largest, from_power, to_float)                                                                 \
    INLINE void fn(int depth, int fraction, const T *av, const int16_t *ae, const T *bv, const int16_t *be,            \
                   float *c) {                                                                                         \
        int16_t top16[n];                                                                                              \
        int32_t top[n], own[n], sum[n];                                                                                \
        T       scale[n];                                                                                              \
        float   r[n];                                                                                                  \
        for (int j = 0; j < (n); j++) {                                                                                \
            int16_t t = 2 * ZERO_EXPONENT;                                                                             \
            for (int k = 0; k < depth; k++) {                                                                          \
                const int16_t e = (int16_t)(ae[k] + be[k * (n) + j]);                                                  \
                t = e > t ? e : t;                                                                                     \
            }                                                                                                          \
            top16[j] = t;                                                                                              \
        }                                                                                                              \
        for (int j = 0; j < (n); j++) {                                                                                \
            const int32_t b = (int32_t)(bits32(c[j]) & 0x7fffffffu), field = b >> 23, e = (field ? field : 1) - 127;   \
            const int32_t mine = b && field != 255 ? e : ZERO_EXPONENT, t = top16[j], most = mine > t ? mine : t;      \
            top[j] = t < ZERO_EXPONENT / 2 ? 0 : most > (largest) ? (largest) : most;                                  \
            scale[j] = from_power(fraction - top[j]);                                                                  \
        }                                                                                                              \
        for (int j = 0; j < (n); j++) {                                                                                \
            int32_t s = 0;                                                                                             \
            for (int k = 0; k < depth; k++) s += (int32_t)(av[k] * (bv[k * (n) + j] * scale[j]));                      \
            sum[j] = s;                                                                                                \
        }                                                                                                              \
        for (int j = 0; j < (n); j++) {                                                                                \
            const T x = (T)c[j] * scale[j];                                                                            \
            own[j] = (int32_t)(x > (T)-0x1p30 && x < (T)0x1p30 ? x : 0);                                               \
        }                                                                                                              \
        for (int j = 0; j < (n); j++) {                                                                                \
            const double s = (double)sum[j] + (double)own[j];                                                          \
            r[j] = to_float(float64(bits64(s) & ~(u64)0x1fffffff) * power_of_two(top[j] - fraction));                  \
        }                                                                                                              \
        for (int j = 0; j < (n); j++) {                                                                                \
            const int32_t t = top16[j];                                                                                \
            const float   kept = t < ZERO_EXPONENT / 2 || !(fabsf(c[j]) < INFINITY) ? c[j] + 0.f : r[j];               \
            c[j] = float32(t > LOST_EXPONENT / 4 || kept != kept ? 0x7fffffffu : bits32(kept));                        \
        }                                                                                                              \
    }

INLINE float scale_float(int e) { return float32((u32)(127 + e) << 23); }
INLINE float plain(double v) { return (float)v; }
/* Subnormal numbers are cut too. */
INLINE float cut(double v) {
    const double small = v > -0x1p-126 && v < 0x1p-126 ? v : 0, whole = (double)(int32_t)(small * 0x1p149) * 0x1p-149;
    return (float)(v > -0x1p-126 && v < 0x1p-126 ? whole : v);
}
GROUP(group_half_wide, float, WIDE, 127, scale_float, plain)
GROUP(group_half_narrow, float, NARROW, 127, scale_float, plain)
GROUP(group_bf16_wide, double, WIDE, 254, power_of_two, cut)
GROUP(group_bf16_narrow, double, NARROW, 254, power_of_two, cut)

/*
 * The products of m rows with `cols` columns, at most n, whose factors are turned so that columns lie side by side;
 * `down` and `across` are what lies between two rows and two columns of c.
 */
#define BLOCK(fn, group_fn, bf16, T, n)                                                                                \
    LANE_CLONES static void fn(mma_chip chip, int m, int cols, const uint16_t *a, const uint16_t *b, float *c,         \
                               size_t down, size_t across) {                                                           \
        uint16_t turned[DEPTH * (n)];                                                                                  \
        T        bv[DEPTH * (n)], av[DEPTH * ROWS];                                                                    \
        int16_t  be[DEPTH * (n)], ae[DEPTH * ROWS];                                                                    \
        float    sum[n];                                                                                               \
        if (cols < (n)) memset(turned, 0, sizeof turned), memset(sum, 0, sizeof sum);                                  \
        for (int j = 0; j < cols; j++) {                                                                               \
            for (int k = 0; k < DEPTH; k++) turned[k * (n) + j] = b[DEPTH * j + k];                                    \
        }                                                                                                              \
        for (int k = 0; k < DEPTH * (n); k++) bv[k] = (T)value16(bf16, turned[k]);                                     \
        for (int k = 0; k < DEPTH * (n); k++) be[k] = exponent16(bf16, turned[k]);                                     \
        for (int i = 0; i < m; i++) {                                                                                  \
            const T       *v = av + i % ROWS * DEPTH;                                                                  \
            const int16_t *e = ae + i % ROWS * DEPTH;                                                                  \
            if (i % ROWS == 0) {                                                                                       \
                const int here = DEPTH * (m - i < ROWS ? m - i : ROWS);                                                \
                for (int k = 0; k < here; k++) av[k] = (T)value16(bf16, a[DEPTH * i + k]);                             \
                for (int k = 0; k < here; k++) ae[k] = exponent16(bf16, a[DEPTH * i + k]);                             \
            }                                                                                                          \
            for (int j = 0; j < cols; j++) sum[j] = c[down * i + across * j];                                          \
            if (chip.group == DEPTH) {                                                                                 \
                group_fn(DEPTH, chip.fraction, v, e, bv, be, sum);                                                     \
            } else {                                                                                                   \
                group_fn(8, chip.fraction, v, e, bv, be, sum);                                                         \
                group_fn(8, chip.fraction, v + 8, e + 8, bv + 8 * (n), be + 8 * (n), sum);                             \
            }                                                                                                          \
            for (int j = 0; j < cols; j++) c[down * i + across * j] = sum[j];                                          \
        }                                                                                                              \
    }
BLOCK(half_wide, group_half_wide, false, float, WIDE)
BLOCK(half_narrow, group_half_narrow, false, float, NARROW)
BLOCK(bf16_wide, group_bf16_wide, true, double, WIDE)
BLOCK(bf16_narrow, group_bf16_narrow, true, double, NARROW)

/* What is too narrow for wide blocks is made with rows and columns exchanged: there are 16 rows nearly always. */
void mma_k16(mma_chip chip, bool bf16, int m, int n, const uint16_t *a, const uint16_t *b, float *c) {
    const int wide = n / WIDE * WIDE;
    for (int j = 0; j < wide; j += WIDE)
        (bf16 ? bf16_wide : half_wide)(chip, m, WIDE, a, b + (size_t)DEPTH * j, c + j, (size_t)n, 1);
    for (int i = 0; i < m && wide < n; i += NARROW) {
        const int rows = m - i < NARROW ? m - i : NARROW;
        (bf16 ? bf16_narrow : half_narrow)(chip, n - wide, rows, b + (size_t)DEPTH * wide, a + (size_t)DEPTH * i,
                                           c + (size_t)i * n + wide, 1, (size_t)n);
    }
}
