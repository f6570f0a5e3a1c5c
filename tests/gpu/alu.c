/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What instructions from registers to registers do: integers, bits, comparisons, and floats of 32 and 64 bits. Integers
 * and rounded float operations are bit for bit what a device computes; a single-precision NaN is the device's. What PTX
 * leaves open is chosen so that nothing traps: a division by zero gives all ones and the dividend as the remainder. The
 * functions that PTX calls approximate (`ex2.approx` and the like) are rounded from a better value and so are not
 * bit for bit those of any chip.
 */
#include "gpu/lanes.h"

#include <fenv.h>

__extension__ typedef unsigned __int128 u128;
__extension__ typedef __int128          s128;

/* ---- integers ---- */

BINARY(add_16, u32, u32, u32, (uint16_t)(x + y))
BINARY(add_32, u32, u32, u32, x + y)
BINARY(add_64, u64, u64, u64, x + y)
BINARY(sub_16, u32, u32, u32, (uint16_t)(x - y))
BINARY(sub_32, u32, u32, u32, x - y)
BINARY(sub_64, u64, u64, u64, x - y)
BINARY(mul_16, u32, u32, u32, (uint16_t)(x *y))
BINARY(mul_32, u32, u32, u32, x *y)
BINARY(mul_64, u64, u64, u64, x *y)
BINARY(mul_hi_u16, u32, u32, u32, (uint16_t)(x *y >> 16))
BINARY(mul_hi_s16, u32, u32, u32, (uint16_t)((int16_t)x *(int16_t)y >> 16))
BINARY(mul_hi_u32, u32, u32, u32, (u64)x *y >> 32)
BINARY(mul_hi_s32, u32, s32, s32, (u32)((u64)((s64)x *y) >> 32))
BINARY(mul_hi_u64, u64, u64, u64, (u128)x *y >> 64)
BINARY(mul_hi_s64, u64, s64, s64, (u64)((u128)((s128)x *y) >> 64))
BINARY(mul_wide_u16, u32, u32, u32, x *y)
BINARY(mul_wide_s16, u32, u32, u32, (u32)((int16_t)x *(int16_t)y))
BINARY(mul_wide_u32, u64, u32, u32, (u64)x *y)
BINARY(mul_wide_s32, u64, s32, s32, (u64)((s64)x *y))
TERNARY(mad_16, u32, u32, u32, u32, (uint16_t)(x *y + z))
TERNARY(mad_32, u32, u32, u32, u32, x *y + z)
TERNARY(mad_64, u64, u64, u64, u64, x *y + z)
TERNARY(mad_hi_u32, u32, u32, u32, u32, (u32)((u64)x *y >> 32) + z)
TERNARY(mad_hi_s32, u32, s32, s32, u32, (u32)((u64)((s64)x *y) >> 32) + z)
TERNARY(mad_hi_u64, u64, u64, u64, u64, (u64)((u128)x *y >> 64) + z)
TERNARY(mad_hi_s64, u64, s64, s64, u64, (u64)((u128)((s128)x *y) >> 64) + z)
TERNARY(mad_wide_u16, u32, u32, u32, u32, x *y + z)
TERNARY(mad_wide_s16, u32, u32, u32, u32, (u32)((int16_t)x *(int16_t)y) + z)
TERNARY(mad_wide_u32, u64, u32, u32, u64, (u64)x *y + z)
TERNARY(mad_wide_s32, u64, s32, s32, u64, (u64)((s64)x *y) + z)

/* mode: CARRY_IN adds the carry flag, CARRY_OUT sets it. */
enum { CARRY_IN = 1, CARRY_OUT = 2 };

#define CARRIED(fn, T, W, bits, sum)                                                                                   \
    static void fn(warp *w, const insn *i, uint32_t m) {                                                               \
        T       *d = LANES_##T(w, i->o[0]), *a = LANES_##T(w, i->o[1]), *b = LANES_##T(w, i->o[2]);                    \
        const T *c = i->n > 3 ? LANES_##T(w, i->o[3]) : b;                                                             \
        u32      out = 0;                                                                                              \
        for (int k = 0; k < LANES; k++) {                                                                              \
            const W x = a[k], y = b[k], z = c[k], in = i->mode & CARRY_IN ? w->carry >> k & 1 : 0, r = (sum);          \
            out |= (u32)(r >> (bits)&1) << k;                                                                          \
            if (m >> k & 1) d[k] = (T)r;                                                                               \
            (void)z;                                                                                                   \
        }                                                                                                              \
        if (i->mode & CARRY_OUT) w->carry = (w->carry & ~m) | (out & m);                                               \
    }

CARRIED(carry_add_32, u32, u64, 32, x + y + in)
CARRIED(carry_add_64, u64, u128, 64, x + y + in)
CARRIED(carry_sub_32, u32, u64, 32, x - y - in)
CARRIED(carry_sub_64, u64, u128, 64, x - y - in)
CARRIED(carry_mad_lo_32, u32, u64, 32, (u32)(x *y) + z + in)
CARRIED(carry_mad_hi_u32, u32, u64, 32, (x * y >> 32) + z + in)
CARRIED(carry_mad_hi_s32, u32, u64, 32, (u32)((u64)((s64)(s32)x *(s32)y) >> 32) + z + in)
CARRIED(carry_mad_lo_64, u64, u128, 64, (u64)(x *y) + z + in)
CARRIED(carry_mad_hi_u64, u64, u128, 64, (x * y >> 64) + z + in)

INLINE u32 div_signed32(s32 x, s32 y) { return !y ? ~0u : y == -1 ? 0u - (u32)x : (u32)(x / y); }
INLINE u32 rem_signed32(s32 x, s32 y) { return !y ? (u32)x : y == -1 ? 0 : (u32)(x % y); }
INLINE u64 div_signed64(s64 x, s64 y) { return !y ? ~(u64)0 : y == -1 ? 0 - (u64)x : (u64)(x / y); }
INLINE u64 rem_signed64(s64 x, s64 y) { return !y ? (u64)x : y == -1 ? 0 : (u64)(x % y); }

BINARY(div_u16, u32, u32, u32, y ? x / y : 0xffff)
BINARY(div_s16, u32, u32, u32, (uint16_t)div_signed32((int16_t)x, (int16_t)y))
BINARY(div_u32, u32, u32, u32, y ? x / y : ~0u)
BINARY(div_s32, u32, s32, s32, div_signed32(x, y))
BINARY(div_u64, u64, u64, u64, y ? x / y : ~(u64)0)
BINARY(div_s64, u64, s64, s64, div_signed64(x, y))
BINARY(rem_u16, u32, u32, u32, y ? x % y : x)
BINARY(rem_s16, u32, u32, u32, (uint16_t)rem_signed32((int16_t)x, (int16_t)y))
BINARY(rem_u32, u32, u32, u32, y ? x % y : x)
BINARY(rem_s32, u32, s32, s32, rem_signed32(x, y))
BINARY(rem_u64, u64, u64, u64, y ? x % y : x)
BINARY(rem_s64, u64, s64, s64, rem_signed64(x, y))

BINARY(min_s16, u32, u32, u32, (int16_t)x < (int16_t)y ? x : y)
BINARY(min_u32, u32, u32, u32, x < y ? x : y)
BINARY(min_s32, s32, s32, s32, x < y ? x : y)
BINARY(min_u64, u64, u64, u64, x < y ? x : y)
BINARY(min_s64, s64, s64, s64, x < y ? x : y)
BINARY(max_s16, u32, u32, u32, (int16_t)x > (int16_t)y ? x : y)
BINARY(max_u32, u32, u32, u32, x > y ? x : y)
BINARY(max_s32, s32, s32, s32, x > y ? x : y)
BINARY(max_u64, u64, u64, u64, x > y ? x : y)
BINARY(max_s64, s64, s64, s64, x > y ? x : y)
UNARY(abs_s16, u32, u32, (uint16_t)((int16_t)x < 0 ? 0u - x : x))
UNARY(abs_s32, u32, u32, (s32)x < 0 ? 0u - x : x)
UNARY(abs_s64, u64, u64, (s64)x < 0 ? 0u - x : x)
UNARY(neg_s16, u32, u32, (uint16_t)(0u - x))
UNARY(neg_s32, u32, u32, 0u - x)
UNARY(neg_s64, u64, u64, 0u - x)

/* ---- bits ---- */

UNARY(not_16, u32, u32, x ^ 0xffff)
UNARY(not_32, u32, u32, ~x)
UNARY(not_64, u64, u64, ~x)
UNARY(cnot_32, u32, u32, x == 0)
BINARY(and_32, u32, u32, u32, x &y)
BINARY(and_64, u64, u64, u64, x &y)
BINARY(or_32, u32, u32, u32, x | y)
BINARY(or_64, u64, u64, u64, x | y)
BINARY(xor_32, u32, u32, u32, x ^ y)
BINARY(xor_64, u64, u64, u64, x ^ y)
BINARY(shl_16, u32, u32, u32, y > 15 ? 0 : (uint16_t)(x << (y & 15)))
BINARY(shl_32, u32, u32, u32, y > 31 ? 0 : x << (y & 31))
BINARY(shl_64, u64, u64, u32, y > 63 ? 0 : x << (y & 63))
BINARY(shr_32, u32, u32, u32, y > 31 ? 0 : x >> (y & 31))
BINARY(shr_64, u64, u64, u32, y > 63 ? 0 : x >> (y & 63))
BINARY(shr_s16, u32, u32, u32, (uint16_t)((int16_t)x >> (y > 15 ? 15 : y)))
BINARY(shr_s32, s32, s32, u32, x >> (y > 31 ? 31 : y))
BINARY(shr_s64, s64, s64, u32, x >> (y > 63 ? 63 : y))
TERNARY(shf_l_wrap, u32, u32, u32, u32, ((u64)y << 32 | x) << (z & 31) >> 32)
TERNARY(shf_r_wrap, u32, u32, u32, u32, (u32)(((u64)y << 32 | x) >> (z & 31)))
TERNARY(shf_l_clamp, u32, u32, u32, u32, ((u64)y << 32 | x) << (z > 32 ? 32 : z) >> 32)
TERNARY(shf_r_clamp, u32, u32, u32, u32, (u32)(((u64)y << 32 | x) >> (z > 32 ? 32 : z)))

INLINE u64 low_bits(u32 n) { return n > 63 ? ~(u64)0 : ((u64)1 << n) - 1; }
INLINE u64 field_mask(u32 at, u32 n) { return at > 63 ? 0 : low_bits(n) << at; }
INLINE u64 shifted(u64 x, u32 at) { return at > 63 ? 0 : x << at; }

/* The field of n bits from `at`; above the number's own bits its sign is repeated. */
INLINE u64 field_signed(s64 x, u32 at, u32 n, u32 bits) {
    const u32 last = at + n - 1 > bits - 1 ? bits - 1 : at + n - 1;
    const u64 sign = n && (x >> last & 1) ? ~(u64)0 : 0;
    const u64 body = (u64)(x >> (at > 63 ? 63 : at));
    return !n ? 0 : (sign & ~low_bits(n)) | (body & low_bits(n));
}

TERNARY(bfe_u32, u32, u32, u32, u32, (u32)((y & 255) > 31 ? 0 : (x >> (y & 31)) & low_bits(z & 255)))
TERNARY(bfe_s32, u32, s32, u32, u32, (u32)field_signed(x, y & 255, z & 255, 32))
TERNARY(bfe_u64, u64, u64, u32, u32, (y & 255) > 63 ? 0 : (x >> (y & 63)) & low_bits(z & 255))
TERNARY(bfe_s64, u64, s64, u32, u32, field_signed(x, y & 255, z & 255, 64))

#define BFI(fn, T)                                                                                                     \
    LANE_FN fn(warp *w, const insn *i, uint32_t m) {                                                                   \
        const T   *a = LANES_##T(w, i->o[1]), *b = LANES_##T(w, i->o[2]);                                              \
        const u32 *at = LANES_u32(w, i->o[3]), *n = LANES_u32(w, i->o[4]);                                             \
        LANE_BODY(T, const T keep = (T)~field_mask(at[k] & 255, n[k] & 255);                                           \
                  , (b[k] & keep) | (T)(shifted(a[k], at[k] & 255) & (T)~keep))                                        \
    }
BFI(bfi_32, u32)
BFI(bfi_64, u64)

INLINE u32 find(u64 x, u32 width, int mode) {
    if (!x) return ~0u;
    const u32 at = 63 - (u32)__builtin_clzll(x);
    return mode ? width - 1 - at : at;
}
INLINE u32 reverse(u32 x) {
    x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
    x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
    x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(x);
}

/* mode: the distance from the top instead of the place. */
UNARY(bfind_u32, u32, u32, find(x, 32, i->mode))
UNARY(bfind_s32, u32, s32, find((u32)(x < 0 ? ~x : x), 32, i->mode))
UNARY(bfind_u64, u32, u64, find(x, 64, i->mode))
UNARY(bfind_s64, u32, s64, find((u64)(x < 0 ? ~x : x), 64, i->mode))
UNARY(brev_32, u32, u32, reverse(x))
UNARY(brev_64, u64, u64, (u64)reverse((u32)x) << 32 | reverse((u32)(x >> 32)))
UNARY(popc_32, u32, u32, (u32)__builtin_popcount(x))
UNARY(popc_64, u32, u64, (u32)__builtin_popcountll(x))
UNARY(clz_32, u32, u32, x ? (u32)__builtin_clz(x) : 32)
UNARY(clz_64, u32, u64, x ? (u32)__builtin_clzll(x) : 64)

/* The last operand is a number: what comes out for each of the eight combinations of bits. */
LANE_FN lop3(warp *w, const insn *i, uint32_t m) {
    const u32 *a = LANES_u32(w, i->o[1]), *b = LANES_u32(w, i->o[2]), *c = LANES_u32(w, i->o[3]);
    const u32  table = LANES_u32(w, i->o[4])[0];
    u32        t[8];
    if (table == 0xea) {
        LANE_BODY(u32, , (a[k] & b[k]) | c[k])
        return;
    }
    for (int j = 0; j < 8; j++) t[j] = table >> j & 1 ? ~0u : 0;
    LANE_BODY(u32, const u32 x = a[k]; const u32 y = b[k]; const u32 z = c[k];
              , (x & ((y & ((z & t[7]) | (~z & t[6]))) | (~y & ((z & t[5]) | (~z & t[4]))))) |
                    (~x & ((y & ((z & t[3]) | (~z & t[2]))) | (~y & ((z & t[1]) | (~z & t[0]))))))
}

INLINE u32 pick_byte(u32 x, u32 y, u32 s) {
    const u32 byte = (s & 4 ? y : x) >> 8 * (s & 3) & 255;
    return s & 8 ? (byte >> 7) * 255 : byte;
}
TERNARY(prmt_any, u32, u32, u32, u32,
        pick_byte(x, y, z) | pick_byte(x, y, z >> 4) << 8 | pick_byte(x, y, z >> 8) << 16 |
            pick_byte(x, y, z >> 12) << 24)

/* Nearly always the bytes are picked by a number, without signs. */
LANE_FN prmt(warp *w, const insn *i, uint32_t m) {
    const u32 *s[4], by = LANES_u32(w, i->o[3])[0];
    u32        at[4];
    if (!i->o[3].constant || by & 0x8888) {
        prmt_any(w, i, m);
        return;
    }
    for (int j = 0; j < 4; j++) {
        s[j] = LANES_u32(w, i->o[by >> 4 * j & 4 ? 2 : 1]);
        at[j] = 8 * (by >> 4 * j & 3);
    }
    LANE_BODY(u32, ,
              (s[0][k] >> at[0] & 255) | (s[1][k] >> at[1] & 255) << 8 | (s[2][k] >> at[2] & 255) << 16 |
                  s[3][k] >> at[3] << 24)
}

#define DOT4(A, B)                                                                                                     \
    z + (u32)((A)x * (B)y) + (u32)((A)(x >> 8) * (B)(y >> 8)) + (u32)((A)(x >> 16) * (B)(y >> 16)) +                   \
        (u32)((A)(x >> 24) * (B)(y >> 24))
#define DOT2(A, B, at) z + (u32)((A)x * (B)(y >> (at))) + (u32)((A)(x >> 16) * (B)(y >> ((at) + 8)))
TERNARY(dp4a_ss, u32, u32, u32, u32, DOT4(int8_t, int8_t))
TERNARY(dp4a_su, u32, u32, u32, u32, DOT4(int8_t, uint8_t))
TERNARY(dp4a_us, u32, u32, u32, u32, DOT4(uint8_t, int8_t))
TERNARY(dp4a_uu, u32, u32, u32, u32, DOT4(uint8_t, uint8_t))
TERNARY(dp2a_ss, u32, u32, u32, u32, DOT2(int16_t, int8_t, i->mode)) /* mode: 0 or 16, the half of y */
TERNARY(dp2a_su, u32, u32, u32, u32, DOT2(int16_t, uint8_t, i->mode))
TERNARY(dp2a_us, u32, u32, u32, u32, DOT2(uint16_t, int8_t, i->mode))
TERNARY(dp2a_uu, u32, u32, u32, u32, DOT2(uint16_t, uint8_t, i->mode))

/* ---- moving and choosing ---- */

UNARY(mov_32, u32, u32, x)
UNARY(mov_64, u64, u64, x)

#define SELECT(fn, T)                                                                                                  \
    LANE_FN fn(warp *w, const insn *i, uint32_t m) {                                                                   \
        const T  *a = LANES_##T(w, i->o[1]), *b = LANES_##T(w, i->o[2]);                                               \
        const u32 p = lanes_pred(w, i->o[3]);                                                                          \
        LANE_BODY(T, , p >> k & 1 ? a[k] : b[k])                                                                       \
    }
SELECT(selp_32, u32)
SELECT(selp_64, u64)

#define PREDICATES(fn, expr)                                                                                           \
    static void fn(warp *w, const insn *i, uint32_t m) {                                                               \
        const u32 x = lanes_pred(w, i->o[1]), y = i->n > 2 ? lanes_pred(w, i->o[2]) : 0;                               \
        (void)y;                                                                                                       \
        set_pred(w, i->o[0], m, expr);                                                                                 \
    }
PREDICATES(mov_pred, x)
PREDICATES(not_pred, ~x)
PREDICATES(and_pred, x &y)
PREDICATES(or_pred, x | y)
PREDICATES(xor_pred, x ^ y)

/* ---- comparisons ---- */

/* mode: a few comparisons make the others by exchanging the operands or the answer; then what a third operand does. */
enum { CMP_SWAP = 1, CMP_NOT = 2, CMP_AND = 4, CMP_OR = 8, CMP_XOR = 12 };

/* The second destination, where there is one, is the last operand. */
static void set_compared(const warp *w, const insn *i, uint32_t m, u32 r) {
    const int how = i->mode & CMP_XOR, n = how ? 4 : 3;
    const u32 c = how ? lanes_pred(w, i->o[3]) : 0;
    u32       p = i->mode & CMP_NOT ? ~r : r, q = ~p;
    if (how == CMP_AND) p &= c, q &= c;
    if (how == CMP_OR) p |= c, q |= c;
    if (how == CMP_XOR) p ^= c, q ^= c;
    set_pred(w, i->o[0], m, p);
    if (i->n > n) set_pred(w, i->o[n], m, q);
}

#define COMPARE(fn, A, W, cond)                                                                                        \
    LANE_FN fn(warp *w, const insn *i, uint32_t m) {                                                                   \
        const int swap = i->mode & CMP_SWAP;                                                                           \
        const A  *a = LANES_##A(w, i->o[1 + swap]), *b = LANES_##A(w, i->o[2 - swap]);                                 \
        W         r = 0;                                                                                               \
        for (int k = 0; k < LANES; k++) {                                                                              \
            const A x = a[k], y = b[k];                                                                                \
            r |= (cond) ? (W)1 << k : 0;                                                                               \
        }                                                                                                              \
        set_compared(w, i, m, (u32)r);                                                                                 \
    }
COMPARE(eq_32, u32, u32, x == y)
COMPARE(eq_64, u64, u64, x == y)
COMPARE(lt_s16, u32, u32, (int16_t)x < (int16_t)y)
COMPARE(lt_u32, u32, u32, x < y)
COMPARE(lt_s32, s32, u32, x < y)
COMPARE(lt_u64, u64, u64, x < y)
COMPARE(lt_s64, s64, u64, x < y)
COMPARE(eq_f32, f32, u32, x == y)
COMPARE(ne_f32, f32, u32, x<y || x> y)
COMPARE(lt_f32, f32, u32, x < y)
COMPARE(le_f32, f32, u32, x <= y)
COMPARE(nan_f32, f32, u32, x != x || y != y)
COMPARE(eq_f64, f64, u64, x == y)
COMPARE(ne_f64, f64, u64, x<y || x> y)
COMPARE(lt_f64, f64, u64, x < y)
COMPARE(le_f64, f64, u64, x <= y)
COMPARE(nan_f64, f64, u64, x != x || y != y)

/* mode of testp */
enum { TEST_FINITE, TEST_INFINITE, TEST_NUMBER, TEST_NAN, TEST_NORMAL, TEST_SUBNORMAL };

static bool tested(int kind, int mode) {
    switch (mode) {
    case TEST_FINITE: return kind != FP_INFINITE && kind != FP_NAN;
    case TEST_INFINITE: return kind == FP_INFINITE;
    case TEST_NUMBER: return kind != FP_NAN;
    case TEST_NAN: return kind == FP_NAN;
    case TEST_NORMAL: return kind == FP_NORMAL || kind == FP_ZERO;
    default: return kind == FP_SUBNORMAL;
    }
}
#define TESTP(fn, T)                                                                                                   \
    static void fn(warp *w, const insn *i, uint32_t m) {                                                               \
        const T *a = LANES_##T(w, i->o[1]);                                                                            \
        u32      r = 0;                                                                                                \
        for (int k = 0; k < LANES; k++) r |= (u32)tested(fpclassify(a[k]), i->mode) << k;                              \
        set_pred(w, i->o[0], m, r);                                                                                    \
    }
TESTP(testp_f32, f32)
TESTP(testp_f64, f64)

/* ---- floats ---- */

BINARY(add_f32, f32, f32, f32, one_nan(x + y))
BINARY(sub_f32, f32, f32, f32, one_nan(x - y))
BINARY(mul_f32, f32, f32, f32, one_nan(x *y))
BINARY(div_f32, f32, f32, f32, one_nan(x / y))
BINARY(div_ftz_f32, f32, f32, f32, flush(one_nan(flush(x) / flush(y))))
TERNARY(fma_f32, f32, f32, f32, f32, one_nan(fmaf(x, y, z)))
UNARY(rcp_f32, f32, f32, one_nan(1.f / x))
UNARY(rcp_ftz_f32, f32, f32, flush(one_nan(1.f / flush(x))))
UNARY(sqrt_f32, f32, f32, one_nan(sqrtf(x)))
UNARY(sqrt_ftz_f32, f32, f32, one_nan(sqrtf(flush(x))))
UNARY(rsqrt_f32, f32, f32, one_nan((float)(1. / sqrt((double)x))))
UNARY(rsqrt_ftz_f32, f32, f32, one_nan((float)(1. / sqrt((double)flush(x)))))
UNARY(lg2_f32, f32, f32, one_nan((float)log2((double)x)))
UNARY(lg2_ftz_f32, f32, f32, one_nan((float)log2((double)flush(x))))
UNARY(sin_f32, f32, f32, one_nan((float)sin((double)x)))
UNARY(cos_f32, f32, f32, one_nan((float)cos((double)x)))
UNARY(tanh_f32, f32, f32, one_nan((float)tanh((double)x)))

/* 2^x, off by less than 0.5001 of the last place: an integer and the series of e^t for a half on either side of it. */
INLINE float power2(float f) {
    const double x = f < -200 ? -200. : f > 200 ? 200. : (double)f, shift = x + 0x1.8p52;
    const double t = (x - (shift - 0x1.8p52)) * 0x1.62e42fefa39efp-1;
    const u64    scale = (bits64(shift) - bits64(0x1.8p52) + 1023) << 52;
    double       p = 1. / 479001600;
    p = p * t + 1. / 39916800;
    p = p * t + 1. / 3628800;
    p = p * t + 1. / 362880;
    p = p * t + 1. / 40320;
    p = p * t + 1. / 5040;
    p = p * t + 1. / 720;
    p = p * t + 1. / 120;
    p = p * t + 1. / 24;
    p = p * t + 1. / 6;
    p = p * t + 1. / 2;
    p = p * t + 1;
    p = p * t + 1;
    return one_nan((float)(p * float64(scale)));
}
UNARY(ex2_f32, f32, f32, power2(x))
UNARY(ex2_ftz_f32, f32, f32, flush(power2(flush(x))))

/* mode: enum rounding. A sum that is zero is minus zero when rounding down, unless both are plus zero. */
INLINE float sum_rounded(double p, double z, int rounding) {
    const double v = sum_odd64(p, z);
    const bool   minus = rounding == ROUND_DOWN && v == 0 && (bits64(p) | bits64(z)) >> 63;
    return minus ? -0.f : one_nan(narrow(v, rounding));
}
BINARY(add_way_f32, f32, f32, f32, sum_rounded((double)x, (double)y, i->mode))
BINARY(sub_way_f32, f32, f32, f32, sum_rounded((double)x, -(double)y, i->mode))
BINARY(mul_way_f32, f32, f32, f32, one_nan(narrow((double)x *(double)y, i->mode)))
TERNARY(fma_way_f32, f32, f32, f32, f32, sum_rounded((double)x *(double)y, (double)z, i->mode))

#define LEAST(x, y, bits, from)                                                                                        \
    ((x) < (y) ? (x) : (x) > (y) ? (y) : (x) != (x) ? (y) : (y) != (y) ? (x) : from(bits(x) | bits(y)))
#define MOST(x, y, bits, from)                                                                                         \
    ((x) > (y) ? (x) : (x) < (y) ? (y) : (x) != (x) ? (y) : (y) != (y) ? (x) : from(bits(x) & bits(y)))
BINARY(min_f32, f32, f32, f32, one_nan(LEAST(x, y, bits32, float32)))
BINARY(max_f32, f32, f32, f32, one_nan(MOST(x, y, bits32, float32)))
BINARY(min_nan_f32, f32, f32, f32, one_nan(x != x || y != y ? NAN : LEAST(x, y, bits32, float32)))
BINARY(max_nan_f32, f32, f32, f32, one_nan(x != x || y != y ? NAN : MOST(x, y, bits32, float32)))
BINARY(min_f64, f64, f64, f64, LEAST(x, y, bits64, float64))
BINARY(max_f64, f64, f64, f64, MOST(x, y, bits64, float64))
UNARY(abs_f32, u32, u32, x & 0x7fffffffu)
UNARY(neg_f32, u32, u32, x ^ 0x80000000u)
BINARY(copysign_f32, u32, u32, u32, (x & 0x80000000u) | (y & 0x7fffffffu)) /* the sign of x, the rest of y */
UNARY(abs_f64, u64, u64, x &INT64_MAX)
UNARY(neg_f64, u64, u64, x ^ (u64)INT64_MIN)
BINARY(copysign_f64, u64, u64, u64, (x & (u64)INT64_MIN) | (y & INT64_MAX))

BINARY(add_f64, f64, f64, f64, x + y)
BINARY(sub_f64, f64, f64, f64, x - y)
BINARY(mul_f64, f64, f64, f64, x *y)
BINARY(div_f64, f64, f64, f64, x / y)
TERNARY(fma_f64, f64, f64, f64, f64, fma(x, y, z))
UNARY(rcp_f64, f64, f64, 1. / x)
UNARY(sqrt_f64, f64, f64, sqrt(x))

/* In the other ways of rounding the processor's own mode does it; nothing may be computed ahead of the switch. */
#define WAY_F64(fn, n, expr)                                                                                           \
    static void fn(warp *w, const insn *i, uint32_t m) {                                                               \
        static const int way[] = { FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD };                              \
        f64             *d = LANES_f64(w, i->o[0]);                                                                    \
        const f64       *a = LANES_f64(w, i->o[1]), *b = LANES_f64(w, i->o[2]), *c = LANES_f64(w, i->o[n]);            \
        fesetround(way[i->mode]);                                                                                      \
        for (int k = 0; k < LANES; k++) {                                                                              \
            volatile double x = a[k], y = b[k], z = c[k], r = (expr);                                                  \
            if (m >> k & 1) d[k] = r;                                                                                  \
            (void)z;                                                                                                   \
        }                                                                                                              \
        fesetround(FE_TONEAREST);                                                                                      \
    }
WAY_F64(add_way_f64, 2, x + y)
WAY_F64(sub_way_f64, 2, x - y)
WAY_F64(mul_way_f64, 2, x *y)
WAY_F64(div_way_f64, 2, x / y)
WAY_F64(fma_way_f64, 3, fma(x, y, z))

/* ---- the table ---- */

#define ROW(name, shape, fn) LANE_ROW(name, shape, fn, 0)
#define BOTH(name, type, shape, fn) ROW(name ".s" type, shape, fn), ROW(name ".u" type, shape, fn)
#define CARRY_ROWS(name, carried, type, shape, fn)                                                                     \
    LANE_ROW(name ".cc." type, shape, fn, CARRY_OUT), LANE_ROW(carried "." type, shape, fn, CARRY_IN),                 \
        LANE_ROW(carried ".cc." type, shape, fn, CARRY_IN | CARRY_OUT)
#define CARRY_BOTH(name, carried, n, shape, fn)                                                                        \
    CARRY_ROWS(name, carried, "s" n, shape, fn), CARRY_ROWS(name, carried, "u" n, shape, fn)
#define WAY_ROWS(name, type, shape, fn)                                                                                \
    LANE_ROW(name ".rz." type, shape, fn, ROUND_ZERO), LANE_ROW(name ".rm." type, shape, fn, ROUND_DOWN),              \
        LANE_ROW(name ".rp." type, shape, fn, ROUND_UP)
#define RN_ROWS(name, type, shape, fn) ROW(name "." type, shape, fn), ROW(name ".rn." type, shape, fn)
#define CMP_ROW(cmp, type, shape, fn, mode)                                                                            \
    LANE_ROW("setp." cmp "." type, "p" shape, fn, mode),                                                               \
        LANE_ROW("setp." cmp ".and." type, "p" shape "p", fn, (mode) | CMP_AND),                                       \
        LANE_ROW("setp." cmp ".or." type, "p" shape "p", fn, (mode) | CMP_OR),                                         \
        LANE_ROW("setp." cmp ".xor." type, "p" shape "p", fn, (mode) | CMP_XOR)
#define EQ_ROWS(type, shape, fn) CMP_ROW("eq", type, shape, fn, 0), CMP_ROW("ne", type, shape, fn, CMP_NOT)
#define LT_ROWS(lt, le, gt, ge, type, shape, fn)                                                                       \
    CMP_ROW(lt, type, shape, fn, 0), CMP_ROW(le, type, shape, fn, CMP_SWAP | CMP_NOT),                                 \
        CMP_ROW(gt, type, shape, fn, CMP_SWAP), CMP_ROW(ge, type, shape, fn, CMP_NOT)
#define FLOAT_ROWS(type, shape, eq, ne, lt, le, nan)                                                                   \
    CMP_ROW("eq", type, shape, eq, 0), CMP_ROW("neu", type, shape, eq, CMP_NOT), CMP_ROW("ne", type, shape, ne, 0),    \
        CMP_ROW("equ", type, shape, ne, CMP_NOT), CMP_ROW("lt", type, shape, lt, 0),                                   \
        CMP_ROW("geu", type, shape, lt, CMP_NOT), CMP_ROW("gt", type, shape, lt, CMP_SWAP),                            \
        CMP_ROW("leu", type, shape, lt, CMP_SWAP | CMP_NOT), CMP_ROW("le", type, shape, le, 0),                        \
        CMP_ROW("gtu", type, shape, le, CMP_NOT), CMP_ROW("ge", type, shape, le, CMP_SWAP),                            \
        CMP_ROW("ltu", type, shape, le, CMP_SWAP | CMP_NOT), CMP_ROW("nan", type, shape, nan, 0),                      \
        CMP_ROW("num", type, shape, nan, CMP_NOT)
#define TESTP_ROWS(type, shape, fn)                                                                                    \
    LANE_ROW("testp.finite." type, shape, fn, TEST_FINITE),                                                            \
        LANE_ROW("testp.infinite." type, shape, fn, TEST_INFINITE),                                                    \
        LANE_ROW("testp.number." type, shape, fn, TEST_NUMBER),                                                        \
        LANE_ROW("testp.notanumber." type, shape, fn, TEST_NAN),                                                       \
        LANE_ROW("testp.normal." type, shape, fn, TEST_NORMAL),                                                        \
        LANE_ROW("testp.subnormal." type, shape, fn, TEST_SUBNORMAL)

/* clang-format off */
const insn_rule alu_rules[] = {
    BOTH("add", "16", "www", add_16), BOTH("add", "32", "www", add_32), BOTH("add", "64", "ddd", add_64),
    BOTH("sub", "16", "www", sub_16), BOTH("sub", "32", "www", sub_32), BOTH("sub", "64", "ddd", sub_64),
    BOTH("mul.lo", "16", "www", mul_16), BOTH("mul.lo", "32", "www", mul_32), BOTH("mul.lo", "64", "ddd", mul_64),
    ROW("mul.hi.u16", "www", mul_hi_u16), ROW("mul.hi.s16", "www", mul_hi_s16),
    ROW("mul.hi.u32", "www", mul_hi_u32), ROW("mul.hi.s32", "www", mul_hi_s32),
    ROW("mul.hi.u64", "ddd", mul_hi_u64), ROW("mul.hi.s64", "ddd", mul_hi_s64),
    ROW("mul.wide.u16", "www", mul_wide_u16), ROW("mul.wide.s16", "www", mul_wide_s16),
    ROW("mul.wide.u32", "dww", mul_wide_u32), ROW("mul.wide.s32", "dww", mul_wide_s32),
    BOTH("mad.lo", "16", "wwww", mad_16), BOTH("mad.lo", "32", "wwww", mad_32), BOTH("mad.lo", "64", "dddd", mad_64),
    ROW("mad.hi.u32", "wwww", mad_hi_u32), ROW("mad.hi.s32", "wwww", mad_hi_s32),
    ROW("mad.hi.u64", "dddd", mad_hi_u64), ROW("mad.hi.s64", "dddd", mad_hi_s64),
    ROW("mad.wide.u16", "wwww", mad_wide_u16), ROW("mad.wide.s16", "wwww", mad_wide_s16),
    ROW("mad.wide.u32", "dwwd", mad_wide_u32), ROW("mad.wide.s32", "dwwd", mad_wide_s32),
    CARRY_BOTH("add", "addc", "32", "www", carry_add_32), CARRY_BOTH("add", "addc", "64", "ddd", carry_add_64),
    CARRY_BOTH("sub", "subc", "32", "www", carry_sub_32), CARRY_BOTH("sub", "subc", "64", "ddd", carry_sub_64),
    CARRY_BOTH("mad.lo", "madc.lo", "32", "wwww", carry_mad_lo_32),
    CARRY_BOTH("mad.lo", "madc.lo", "64", "dddd", carry_mad_lo_64),
    CARRY_ROWS("mad.hi", "madc.hi", "u32", "wwww", carry_mad_hi_u32),
    CARRY_ROWS("mad.hi", "madc.hi", "s32", "wwww", carry_mad_hi_s32),
    CARRY_ROWS("mad.hi", "madc.hi", "u64", "dddd", carry_mad_hi_u64),
    ROW("div.u16", "www", div_u16), ROW("div.u32", "www", div_u32), ROW("div.u64", "ddd", div_u64),
    ROW("div.s16", "www", div_s16), ROW("div.s32", "www", div_s32), ROW("div.s64", "ddd", div_s64),
    ROW("rem.u16", "www", rem_u16), ROW("rem.u32", "www", rem_u32), ROW("rem.u64", "ddd", rem_u64),
    ROW("rem.s16", "www", rem_s16), ROW("rem.s32", "www", rem_s32), ROW("rem.s64", "ddd", rem_s64),
    ROW("min.u16", "www", min_u32), ROW("min.u32", "www", min_u32), ROW("min.u64", "ddd", min_u64),
    ROW("min.s16", "www", min_s16), ROW("min.s32", "www", min_s32), ROW("min.s64", "ddd", min_s64),
    ROW("max.u16", "www", max_u32), ROW("max.u32", "www", max_u32), ROW("max.u64", "ddd", max_u64),
    ROW("max.s16", "www", max_s16), ROW("max.s32", "www", max_s32), ROW("max.s64", "ddd", max_s64),
    ROW("abs.s16", "ww", abs_s16), ROW("abs.s32", "ww", abs_s32), ROW("abs.s64", "dd", abs_s64),
    ROW("neg.s16", "ww", neg_s16), ROW("neg.s32", "ww", neg_s32), ROW("neg.s64", "dd", neg_s64),

    ROW("not.b16", "ww", not_16), ROW("not.b32", "ww", not_32), ROW("not.b64", "dd", not_64),
    ROW("cnot.b16", "ww", cnot_32), ROW("cnot.b32", "ww", cnot_32),
    ROW("and.b16", "www", and_32), ROW("and.b32", "www", and_32), ROW("and.b64", "ddd", and_64),
    ROW("or.b16", "www", or_32), ROW("or.b32", "www", or_32), ROW("or.b64", "ddd", or_64),
    ROW("xor.b16", "www", xor_32), ROW("xor.b32", "www", xor_32), ROW("xor.b64", "ddd", xor_64),
    ROW("shl.b16", "www", shl_16), ROW("shl.b32", "www", shl_32), ROW("shl.b64", "ddw", shl_64),
    ROW("shr.b16", "www", shr_32), ROW("shr.b32", "www", shr_32), ROW("shr.b64", "ddw", shr_64),
    ROW("shr.u16", "www", shr_32), ROW("shr.u32", "www", shr_32), ROW("shr.u64", "ddw", shr_64),
    ROW("shr.s16", "www", shr_s16), ROW("shr.s32", "www", shr_s32), ROW("shr.s64", "ddw", shr_s64),
    ROW("shf.l.wrap.b32", "wwww", shf_l_wrap), ROW("shf.r.wrap.b32", "wwww", shf_r_wrap),
    ROW("shf.l.clamp.b32", "wwww", shf_l_clamp), ROW("shf.r.clamp.b32", "wwww", shf_r_clamp),
    ROW("lop3.b32", "wwwww", lop3), ROW("prmt.b32", "wwww", prmt),
    ROW("bfi.b32", "wwwww", bfi_32), ROW("bfi.b64", "dddww", bfi_64),
    ROW("bfe.u32", "wwww", bfe_u32), ROW("bfe.s32", "wwww", bfe_s32),
    ROW("bfe.u64", "ddww", bfe_u64), ROW("bfe.s64", "ddww", bfe_s64),
    ROW("bfind.u32", "ww", bfind_u32), ROW("bfind.s32", "ww", bfind_s32),
    ROW("bfind.u64", "wd", bfind_u64), ROW("bfind.s64", "wd", bfind_s64),
    LANE_ROW("bfind.shiftamt.u32", "ww", bfind_u32, 1), LANE_ROW("bfind.shiftamt.s32", "ww", bfind_s32, 1),
    LANE_ROW("bfind.shiftamt.u64", "wd", bfind_u64, 1), LANE_ROW("bfind.shiftamt.s64", "wd", bfind_s64, 1),
    ROW("brev.b32", "ww", brev_32), ROW("brev.b64", "dd", brev_64), ROW("popc.b32", "ww", popc_32),
    ROW("popc.b64", "wd", popc_64), ROW("clz.b32", "ww", clz_32), ROW("clz.b64", "wd", clz_64),
    ROW("dp4a.s32.s32", "wwww", dp4a_ss), ROW("dp4a.s32.u32", "wwww", dp4a_su),
    ROW("dp4a.u32.s32", "wwww", dp4a_us), ROW("dp4a.u32.u32", "wwww", dp4a_uu),
    ROW("dp2a.lo.s32.s32", "wwww", dp2a_ss), LANE_ROW("dp2a.hi.s32.s32", "wwww", dp2a_ss, 16),
    ROW("dp2a.lo.s32.u32", "wwww", dp2a_su), LANE_ROW("dp2a.hi.s32.u32", "wwww", dp2a_su, 16),
    ROW("dp2a.lo.u32.s32", "wwww", dp2a_us), LANE_ROW("dp2a.hi.u32.s32", "wwww", dp2a_us, 16),
    ROW("dp2a.lo.u32.u32", "wwww", dp2a_uu), LANE_ROW("dp2a.hi.u32.u32", "wwww", dp2a_uu, 16),

    ROW("mov.b16", "ww", mov_32), BOTH("mov", "16", "ww", mov_32), ROW("mov.b32", "ww", mov_32),
    BOTH("mov", "32", "ww", mov_32), ROW("mov.f32", "ww", mov_32), ROW("mov.b64", "dd", mov_64),
    BOTH("mov", "64", "dd", mov_64), ROW("mov.f64", "dd", mov_64), ROW("mov.pred", "pp", mov_pred),
    ROW("selp.b16", "wwwp", selp_32), BOTH("selp", "16", "wwwp", selp_32), ROW("selp.b32", "wwwp", selp_32),
    BOTH("selp", "32", "wwwp", selp_32), ROW("selp.f32", "wwwp", selp_32), ROW("selp.b64", "dddp", selp_64),
    BOTH("selp", "64", "dddp", selp_64), ROW("selp.f64", "dddp", selp_64),
    ROW("not.pred", "pp", not_pred), ROW("and.pred", "ppp", and_pred),
    ROW("or.pred", "ppp", or_pred), ROW("xor.pred", "ppp", xor_pred),

    EQ_ROWS("b16", "ww", eq_32), EQ_ROWS("s16", "ww", eq_32), EQ_ROWS("u16", "ww", eq_32),
    EQ_ROWS("b32", "ww", eq_32), EQ_ROWS("s32", "ww", eq_32), EQ_ROWS("u32", "ww", eq_32),
    EQ_ROWS("b64", "dd", eq_64), EQ_ROWS("s64", "dd", eq_64), EQ_ROWS("u64", "dd", eq_64),
    LT_ROWS("lt", "le", "gt", "ge", "s16", "ww", lt_s16), LT_ROWS("lt", "le", "gt", "ge", "u16", "ww", lt_u32),
    LT_ROWS("lt", "le", "gt", "ge", "s32", "ww", lt_s32), LT_ROWS("lt", "le", "gt", "ge", "u32", "ww", lt_u32),
    LT_ROWS("lt", "le", "gt", "ge", "s64", "dd", lt_s64), LT_ROWS("lt", "le", "gt", "ge", "u64", "dd", lt_u64),
    LT_ROWS("lo", "ls", "hi", "hs", "u16", "ww", lt_u32), LT_ROWS("lo", "ls", "hi", "hs", "u32", "ww", lt_u32),
    LT_ROWS("lo", "ls", "hi", "hs", "u64", "dd", lt_u64),
    FLOAT_ROWS("f32", "ww", eq_f32, ne_f32, lt_f32, le_f32, nan_f32),
    FLOAT_ROWS("f64", "dd", eq_f64, ne_f64, lt_f64, le_f64, nan_f64),
    TESTP_ROWS("f32", "pw", testp_f32), TESTP_ROWS("f64", "pd", testp_f64),

    RN_ROWS("add", "f32", "www", add_f32), WAY_ROWS("add", "f32", "www", add_way_f32),
    RN_ROWS("sub", "f32", "www", sub_f32), WAY_ROWS("sub", "f32", "www", sub_way_f32),
    RN_ROWS("mul", "f32", "www", mul_f32), WAY_ROWS("mul", "f32", "www", mul_way_f32),
    ROW("fma.rn.f32", "wwww", fma_f32), WAY_ROWS("fma", "f32", "wwww", fma_way_f32),
    ROW("div.rn.f32", "www", div_f32), ROW("div.full.f32", "www", div_f32), ROW("div.approx.f32", "www", div_f32),
    ROW("div.full.ftz.f32", "www", div_ftz_f32), ROW("div.approx.ftz.f32", "www", div_ftz_f32),
    ROW("rcp.rn.f32", "ww", rcp_f32), ROW("rcp.approx.f32", "ww", rcp_f32),
    ROW("rcp.approx.ftz.f32", "ww", rcp_ftz_f32), ROW("sqrt.rn.f32", "ww", sqrt_f32),
    ROW("sqrt.approx.f32", "ww", sqrt_f32), ROW("sqrt.approx.ftz.f32", "ww", sqrt_ftz_f32),
    ROW("rsqrt.approx.f32", "ww", rsqrt_f32), ROW("rsqrt.approx.ftz.f32", "ww", rsqrt_ftz_f32),
    ROW("ex2.approx.f32", "ww", ex2_f32), ROW("ex2.approx.ftz.f32", "ww", ex2_ftz_f32),
    ROW("lg2.approx.f32", "ww", lg2_f32), ROW("lg2.approx.ftz.f32", "ww", lg2_ftz_f32),
    ROW("sin.approx.f32", "ww", sin_f32), ROW("cos.approx.f32", "ww", cos_f32),
    ROW("tanh.approx.f32", "ww", tanh_f32),
    ROW("min.f32", "www", min_f32), ROW("max.f32", "www", max_f32),
    ROW("min.NaN.f32", "www", min_nan_f32), ROW("max.NaN.f32", "www", max_nan_f32),
    ROW("abs.f32", "ww", abs_f32), ROW("neg.f32", "ww", neg_f32), ROW("copysign.f32", "www", copysign_f32),
    RN_ROWS("add", "f64", "ddd", add_f64), WAY_ROWS("add", "f64", "ddd", add_way_f64),
    RN_ROWS("sub", "f64", "ddd", sub_f64), WAY_ROWS("sub", "f64", "ddd", sub_way_f64),
    RN_ROWS("mul", "f64", "ddd", mul_f64), WAY_ROWS("mul", "f64", "ddd", mul_way_f64),
    ROW("fma.rn.f64", "dddd", fma_f64), WAY_ROWS("fma", "f64", "dddd", fma_way_f64),
    ROW("div.rn.f64", "ddd", div_f64), WAY_ROWS("div", "f64", "ddd", div_way_f64),
    ROW("rcp.rn.f64", "dd", rcp_f64), ROW("sqrt.rn.f64", "dd", sqrt_f64),
    ROW("min.f64", "ddd", min_f64), ROW("max.f64", "ddd", max_f64),
    ROW("abs.f64", "dd", abs_f64), ROW("neg.f64", "dd", neg_f64), ROW("copysign.f64", "ddd", copysign_f64),
    { NULL, NULL, NULL, 0, FLOW_NEXT },
};
/* clang-format on */
