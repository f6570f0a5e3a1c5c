/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instructions of the software GPU against what their names say. Every row of the two tables is run on random and
 * extreme lanes with random masks, and a slow reference that reads the name works out each lane another way: integers
 * in 128 bits, conversions and 16-bit floats as exact 128-bit floats that are rounded by integers, single and double
 * precision by the processor in the rounding mode asked for. Idle lanes must keep what they held. The tensor cores'
 * sums are compared with kernels/cuda/twin.h.
 */
#include "gpu/machine.h"
#include "kernels/cuda/twin.h"
#include "tensor/half.h"

#include <fenv.h>
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

__extension__ typedef __int128          s128;
__extension__ typedef unsigned __int128 u128;
#ifdef __SIZEOF_FLOAT128__
__extension__ typedef __float128 quad;
#else
typedef long double quad;
#endif
_Static_assert(sizeof(quad) == 16, "exact sums need a float of 128 bits");

static uint64_t next_random(void) {
    static uint64_t s = 0x9e3779b97f4a7c15u;
    s ^= s << 13, s ^= s >> 7, s ^= s << 17;
    return s * 0x2545f4914f6cdd1du;
}
static int below(int n) { return (int)(next_random() >> 33) % n; }

/* ---- formats ---- */

typedef enum rounding { NEAR, ZERO, DOWN, UP } rounding;

typedef struct format {
    const char *name;
    char        kind;                      /* f, s, u, b */
    int         bits, mantissa, low, high; /* of a float: exponents of normal numbers */
} format;

static const format formats[] = {
    { "u8", 'u', 8, 0, 0, 0 },         { "s8", 's', 8, 0, 0, 0 },         { "b16", 'b', 16, 0, 0, 0 },
    { "u16", 'u', 16, 0, 0, 0 },       { "s16", 's', 16, 0, 0, 0 },       { "b32", 'b', 32, 0, 0, 0 },
    { "u32", 'u', 32, 0, 0, 0 },       { "s32", 's', 32, 0, 0, 0 },       { "b64", 'b', 64, 0, 0, 0 },
    { "u64", 'u', 64, 0, 0, 0 },       { "s64", 's', 64, 0, 0, 0 },       { "f16", 'f', 16, 10, -14, 15 },
    { "bf16", 'f', 16, 7, -126, 127 }, { "f32", 'f', 32, 23, -126, 127 }, { "f64", 'f', 64, 52, -1022, 1023 },
};

static const format *format_named(const char *name) {
    char   plain[8];
    size_t n = strlen(name);
    if (n > 2 && !strcmp(name + n - 2, "x2")) n -= 2;
    snprintf(plain, sizeof plain, "%.*s", (int)n, name);
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (!strcmp(formats[i].name, plain)) return &formats[i];
    }
    return NULL;
}

static uint64_t mask_of(int bits) { return bits > 63 ? ~(uint64_t)0 : ((uint64_t)1 << bits) - 1; }

static s128 integer_value(const format *f, uint64_t raw) {
    const uint64_t v = raw & mask_of(f->bits);
    return f->kind == 's' && v >> (f->bits - 1) ? (s128)v - ((s128)1 << f->bits) : (s128)v;
}

/* By the definition of its fields; exact. */
static quad float_value(const format *f, uint64_t raw) {
    const uint64_t man = raw & mask_of(f->mantissa);
    const int      exp = (int)((raw & mask_of(f->bits - 1)) >> f->mantissa), bias = f->high;
    quad           v;
    if (exp == 2 * bias + 1)
        v = man ? (quad)NAN : (quad)INFINITY;
    else if (exp)
        v = (quad)ldexp((double)(man | (uint64_t)1 << f->mantissa), exp - bias - f->mantissa);
    else
        v = (quad)ldexp((double)man, f->low - f->mantissa);
    return raw >> (f->bits - 1) & 1 ? -v : v;
}

static uint64_t nan_of(const format *f) { return f->bits == 64 ? 0x7ff8000000000000u : mask_of(f->bits - 1); }

static uint64_t float_code(const format *f, quad v, rounding way) {
    uint64_t part[2];
    memcpy(part, &v, 16);
    const bool     minus = part[1] >> 63;
    const uint64_t sign = minus ? (uint64_t)1 << (f->bits - 1) : 0;
    const uint64_t infinite = mask_of(f->bits - 1 - f->mantissa) << f->mantissa;
    if (v != v) return nan_of(f);
    if ((part[1] << 1 | part[0]) == 0) return sign;
    const int exp = (int)(part[1] >> 48 & 0x7fff);
    if (exp == 0x7fff) return sign | infinite;
    const u128 m = ((u128)(part[1] & mask_of(48)) << 64) | part[0] | (u128)1 << 112;
    int        top = exp - 16383;
    int        unit = (top < f->low ? f->low : top) - f->mantissa;
    const int  shift = unit - (top - 112);
    u128       r = shift > 127 ? 0 : m >> shift, rest = shift > 127 ? m : m - (r << shift);
    const bool more = shift <= 127 && rest > (u128)1 << (shift - 1),
               tie = shift <= 127 && rest == (u128)1 << (shift - 1);
    if (way == NEAR ? more || (tie && (r & 1)) : way == DOWN ? minus && rest : way == UP ? !minus && rest : false) r++;
    if (r >> (f->mantissa + 1)) r >>= 1, unit++;
    if (unit + f->mantissa > f->high)
        return sign | (way == NEAR || way == (minus ? DOWN : UP) ? infinite : infinite - 1);
    if (!(r >> f->mantissa)) return sign | (uint64_t)r;
    return sign | ((uint64_t)(unit + f->mantissa - f->low + 1) << f->mantissa) | ((uint64_t)r & mask_of(f->mantissa));
}

static quad whole(quad v, rounding way) {
    if (v != v || v > (quad)0x1p64 || v < -(quad)0x1p64 || v == 0) return v;
    const s128 t = (s128)v;
    const quad rest = v - (quad)t, size = rest < 0 ? -rest : rest;
    s128       r = t;
    if (way == NEAR && (size > (quad)0.5 || (size == (quad)0.5 && t & 1))) r += v < 0 ? -1 : 1;
    if (way == DOWN && rest < 0) r--;
    if (way == UP && rest > 0) r++;
    return r ? (quad)r : v < 0 ? -(quad)0 : (quad)0;
}

static uint64_t integer_code(const format *to, const format *from, quad v) {
    const int  bits = to->bits;
    const s128 top = to->kind == 's' ? ((s128)1 << (bits - 1)) - 1 : ((s128)1 << bits) - 1;
    const s128 low = to->kind == 's' ? -top - 1 : 0;
    if (v != v) return from->bits == 64 || bits == 64 ? (uint64_t)1 << (bits - 1) : 0;
    return (uint64_t)(v >= (quad)top ? top : v <= (quad)low ? low : (s128)v);
}

/* ---- what an instruction says ---- */

typedef struct words {
    char  text[64];
    char *w[8];
    int   n;
} words;

static void split(words *s, const char *name) {
    snprintf(s->text, sizeof s->text, "%s", name);
    s->n = 0;
    for (char *t = strtok(s->text, "."); t; t = strtok(NULL, ".")) s->w[s->n++] = t;
}
static bool has(const words *s, const char *word) {
    for (int i = 1; i < s->n; i++) {
        if (!strcmp(s->w[i], word)) return true;
    }
    return false;
}
static bool     is(const words *s, const char *op) { return !strcmp(s->w[0], op); }
static rounding way_of(const words *s) {
    static const char *const way[] = { "rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi" };
    for (int i = 0; i < 8; i++) {
        if (has(s, way[i])) return (rounding)(i % 4);
    }
    return NEAR;
}

typedef struct expected {
    uint64_t value, second; /* second: of p|q */
    unsigned carry;
    double   close; /* how many units of the last place it may be off; 0: exact */
} expected;

static uint64_t bits_of(const words *s, const format *f, const uint64_t *x) {
    const int n = f->bits;
    uint64_t  r = 0, v = x[0];
    const int at = (int)(x[1] & 255), len = (int)(x[2] & 255);
    if (is(s, "popc") || is(s, "clz")) {
        int lead = 0;
        for (int i = 0; i < n; i++) r += v >> i & 1, lead = v >> i & 1 ? 0 : lead + 1;
        return is(s, "clz") ? (uint64_t)lead : r;
    }
    if (is(s, "brev")) {
        for (int i = 0; i < n; i++) r |= (v >> i & 1) << (n - 1 - i);
        return r;
    }
    if (is(s, "bfind")) {
        const uint64_t skip = f->kind == 's' ? v >> (n - 1) & 1 : 0;
        for (int i = n - 1; i >= 0; i--) {
            if ((v >> i & 1) != skip) return (uint64_t)(has(s, "shiftamt") ? n - 1 - i : i);
        }
        return 0xffffffff;
    }
    if (is(s, "bfe")) {
        const int last = at + len - 1 < n - 1 ? at + len - 1 : n - 1;
        for (int i = 0; i < n && len; i++) {
            const int  from = at + i;
            const bool in = i < len && from < n;
            r |= (in ? v >> from & 1 : f->kind == 's' ? v >> last & 1 : 0) << i;
        }
        return r;
    }
    r = x[1]; /* bfi */
    for (int i = 0; i < (int)(x[3] & 255); i++) {
        const int to = (int)(x[2] & 255) + i;
        if (to < n) r = (r & ~((uint64_t)1 << to)) | (v >> i & 1) << to;
    }
    return r;
}

static uint64_t dot(const words *s, const uint64_t *x) {
    const bool    four = is(s, "dp4a");
    const format *a = format_named(s->w[s->n - 2]), *b = format_named(s->w[s->n - 1]);
    const format  narrow_a = { "", a->kind, four ? 8 : 16, 0, 0, 0 }, narrow_b = { "", b->kind, 8, 0, 0, 0 };
    s128          sum = (s128)x[2];
    for (int i = 0; i < (four ? 4 : 2); i++)
        sum += integer_value(&narrow_a, x[0] >> narrow_a.bits * i) *
               integer_value(&narrow_b, x[1] >> 8 * (i + (has(s, "hi") ? 2 : 0)));
    return (uint64_t)sum;
}

static uint64_t permuted(const uint64_t *x) {
    uint64_t r = 0;
    for (int i = 0; i < 4; i++) {
        const int s = (int)(x[2] >> 4 * i & 15);
        uint64_t  byte = (x[1] << 32 | x[0]) >> 8 * (s & 7) & 255;
        if (s & 8) byte = byte & 128 ? 255 : 0;
        r |= byte << 8 * i;
    }
    return r;
}

static uint64_t funnel(const words *s, const uint64_t *x) {
    const int  n = has(s, "wrap") ? (int)(x[2] & 31) : x[2] > 32 ? 32 : (int)x[2];
    const u128 v = (u128)x[1] << 32 | x[0];
    return has(s, "l") ? (uint64_t)(v << n >> 32) : (uint64_t)(v >> n);
}

/* Integers in 128 bits. */
static expected integers(const words *s, const format *f, const uint64_t *x, unsigned carry) {
    const s128 a = integer_value(f, x[0]), b = integer_value(f, x[1]);
    const int  n = f->bits;
    expected   e = { 0 };
    s128       r = 0;
    if (!strncmp(s->w[0], "add", 3) || !strncmp(s->w[0], "sub", 3) || !strncmp(s->w[0], "mad", 3) || is(s, "mul")) {
        const bool sub = s->w[0][0] == 's', in = s->w[0][3] == 'c';
        if (s->w[0][0] == 'm') { /* the half of the product as a number without sign */
            const u128 p = (u128)a * (u128)b;
            u128       half = has(s, "wide") ? p & (u128)mask_of(2 * n) : has(s, "hi") ? p >> n : p;
            if (!has(s, "wide")) half &= mask_of(n);
            r = (s128)half + (is(s, "mul") ? 0 : (s128)(x[2] & mask_of(has(s, "wide") ? 2 * n : n))) +
                (in ? (s128)carry : 0);
        } else {
            const s128 ua = (s128)(x[0] & mask_of(n)), ub = (s128)(x[1] & mask_of(n));
            r = sub ? ua - ub - (in ? carry : 0) : ua + ub + (in ? carry : 0);
        }
        e.carry = has(s, "cc") ? (r >> n & 1) != 0 : carry;
    } else if (is(s, "div"))
        r = b ? a / b : -1;
    else if (is(s, "rem"))
        r = b ? a % b : a;
    else if (is(s, "min"))
        r = a < b ? a : b;
    else if (is(s, "max"))
        r = a > b ? a : b;
    else if (is(s, "abs"))
        r = a < 0 ? -a : a;
    else if (is(s, "neg"))
        r = -a;
    else if (is(s, "not"))
        r = ~a;
    else if (is(s, "cnot"))
        r = a == 0;
    else if (is(s, "and"))
        r = a & b;
    else if (is(s, "or"))
        r = a | b;
    else if (is(s, "xor"))
        r = a ^ b;
    else if (is(s, "shl"))
        r = x[1] >= (uint64_t)n ? 0 : (s128)((u128)a << x[1]);
    else if (is(s, "shr"))
        r = x[1] >= (uint64_t)n ? (a < 0 ? -1 : 0) : a >> x[1];
    else if (is(s, "mov"))
        r = a;
    else if (is(s, "selp"))
        r = x[2] ? a : b;
    else if (is(s, "lop3")) {
        for (int i = 0; i < 32; i++)
            r |= (s128)(x[3] >> ((x[0] >> i & 1) * 4 + (x[1] >> i & 1) * 2 + (x[2] >> i & 1)) & 1) << i;
    } else if (is(s, "prmt"))
        r = (s128)permuted(x);
    else if (is(s, "shf"))
        r = (s128)funnel(s, x);
    else if (is(s, "dp4a") || is(s, "dp2a"))
        r = (s128)dot(s, x);
    else
        r = (s128)bits_of(s, f, x);
    e.value = (uint64_t)r;
    return e;
}

static float  f32_of(uint64_t raw) { return tensor_bits_f32((uint32_t)raw); }
static double f64_of(uint64_t raw) {
    double d;
    memcpy(&d, &raw, 8);
    return d;
}
static uint64_t f64_bits(double d) {
    uint64_t u;
    memcpy(&u, &d, 8);
    return u;
}

/* The processor's arithmetic; volatile keeps the operation between the switches of the mode. */
static uint64_t machine_float(const words *s, const format *f, const uint64_t *x) {
    static const int way[] = { FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD };
    volatile float   a = f32_of(x[0]), b = f32_of(x[1]), c = f32_of(x[2]), r = 0;
    volatile double  p = f64_of(x[0]), q = f64_of(x[1]), t = f64_of(x[2]), u = 0;
    const bool       wide = f->bits == 64;
    fesetround(way[way_of(s)]);
    if (is(s, "add")) wide ? (u = p + q) : (double)(r = a + b);
    if (is(s, "sub")) wide ? (u = p - q) : (double)(r = a - b);
    if (is(s, "mul")) wide ? (u = p * q) : (double)(r = a * b);
    if (is(s, "div")) wide ? (u = p / q) : (double)(r = a / b);
    if (is(s, "rcp")) wide ? (u = 1 / p) : (double)(r = 1 / a);
    if (is(s, "sqrt")) wide ? (u = sqrt(p)) : (double)(r = sqrtf(a));
    if (is(s, "fma")) wide ? (u = fma(p, q, t)) : (double)(r = fmaf(a, b, c));
    fesetround(FE_TONEAREST);
    return wide ? f64_bits(u) : isnan(r) ? 0x7fffffffu : tensor_f32_bits(r);
}

/* 16 bits: exact in 113 bits where no operand is infinite. */
static uint64_t small_float(const words *s, const format *f, const uint64_t *x) {
    const quad a = float_value(f, x[0]), b = float_value(f, x[1]), c = float_value(f, x[2]);
    return float_code(f, is(s, "add") ? a + b : is(s, "sub") ? a - b : is(s, "mul") ? a * b : a * b + c, NEAR);
}

static bool compared(const char *how, quad a, quad b) {
    const bool   apart = a != a || b != b;
    const size_t n = strlen(how);
    if (!strcmp(how, "nan")) return apart;
    if (!strcmp(how, "num")) return !apart;
    if (n == 3 && how[2] == 'u' && apart) return true;
    if (!strncmp(how, "eq", 2)) return a == b;
    if (!strncmp(how, "ne", 2)) return !apart && a != b;
    if (!strncmp(how, "lt", 2) || !strcmp(how, "lo")) return a < b;
    if (!strncmp(how, "le", 2) || !strcmp(how, "ls")) return a <= b;
    if (!strncmp(how, "gt", 2) || !strcmp(how, "hi")) return a > b;
    return a >= b;
}

static bool tested(const char *what, const format *f, uint64_t raw) {
    const quad v = float_value(f, raw);
    const bool number = v == v, infinite = number && v - v != 0,
               tiny = !(raw & mask_of(f->bits - 1) & ~mask_of(f->mantissa));
    if (!strcmp(what, "finite")) return number && !infinite;
    if (!strcmp(what, "infinite")) return infinite;
    if (!strcmp(what, "number")) return number;
    if (!strcmp(what, "notanumber")) return !number;
    if (!strcmp(what, "normal")) return number && !infinite && (!tiny || v == 0);
    return tiny && v != 0;
}

static double without_tiny(double v) { return fabs(v) < 0x1p-126 ? copysign(0, v) : v; }

/* Functions that PTX calls approximate, in double. */
static expected approximate(const words *s, const uint64_t *x) {
    const bool ftz = has(s, "ftz");
    double     a = (double)f32_of(x[0]), b = (double)f32_of(x[1]), r;
    if (ftz) a = without_tiny(a), b = without_tiny(b);
    if (is(s, "ex2"))
        r = exp2(a);
    else if (is(s, "lg2"))
        r = log2(a);
    else if (is(s, "sin"))
        r = sin(a);
    else if (is(s, "cos"))
        r = cos(a);
    else if (is(s, "tanh"))
        r = tanh(a);
    else if (is(s, "rsqrt"))
        r = 1 / sqrt(a);
    else if (is(s, "sqrt"))
        r = sqrt(a);
    else if (is(s, "rcp"))
        r = 1 / a;
    else
        r = a / b;
    float f = (float)r;
    if (ftz) f = (float)without_tiny((double)f);
    return (expected){ isnan(f) ? 0x7fffffffu : tensor_f32_bits(f), 0, 0, 1 };
}

static expected floats(const words *s, const format *f, const uint64_t *x) {
    const uint64_t sign = (uint64_t)1 << (f->bits - 1);
    const quad     a = float_value(f, x[0]), b = float_value(f, x[1]);
    expected       e = { 0 };
    if (has(s, "approx") || has(s, "full")) return approximate(s, x);
    if (is(s, "mov"))
        e.value = x[0];
    else if (is(s, "selp"))
        e.value = x[2] ? x[0] : x[1];
    else if (is(s, "neg"))
        e.value = x[0] ^ sign;
    else if (is(s, "abs"))
        e.value = x[0] & ~sign;
    else if (is(s, "copysign"))
        e.value = (x[0] & sign) | (x[1] & ~sign);
    else if (is(s, "min") || is(s, "max")) {
        const bool less = a < b || (a == b && (x[0] & sign) > (x[1] & sign));
        if (a != a || b != b)
            e.value = has(s, "NaN") || (a != a && b != b) ? nan_of(f) : a != a ? x[1] : x[0];
        else
            e.value = less == is(s, "min") ? x[0] : x[1];
    } else
        e.value = f->bits == 16 ? small_float(s, f, x) : machine_float(s, f, x);
    return e;
}

static expected conversion(const words *s, const uint64_t *x) {
    const format *from = format_named(s->w[s->n - 1]), *to = format_named(s->w[s->n - 2]);
    const bool    to_whole = has(s, "rni") || has(s, "rzi") || has(s, "rmi") || has(s, "rpi");
    expected      e = { 0 };
    quad          v = from->kind == 'f' ? float_value(from, x[0]) : (quad)integer_value(from, x[0]);
    if (!strcmp(s->w[s->n - 2], "f16x2") || !strcmp(s->w[s->n - 2], "bf16x2")) {
        e.value = float_code(to, v, NEAR) << 16 | float_code(to, float_value(from, x[1]), NEAR);
        return e;
    }
    if (to_whole) v = whole(v, way_of(s));
    if (to->kind != 'f' && from->kind != 'f') {
        const s128 i = integer_value(from, x[0]);
        e.value = has(s, "sat") ? integer_code(to, from, (quad)i) : (uint64_t)i;
        if (to->bits == 8) e.value = (uint64_t)integer_value(to, e.value); /* in a register of 16 bits */
    } else if (to->kind != 'f')
        e.value = integer_code(to, from, v);
    else if (has(s, "sat"))
        e.value = v > 0 ? float_code(to, v > 1 ? (quad)1 : v, NEAR) : 0;
    else if (from == to && !to_whole)
        e.value = x[0];
    else if (!strcmp(to->name, "f32") && !strcmp(from->name, "bf16"))
        e.value = x[0] << 16; /* a NaN as it is */
    else
        e.value = float_code(to, v, way_of(s));
    return e;
}

static expected comparison(const words *s, const format *f, const uint64_t *x) {
    const bool exact = f->kind == 'f';
    bool       p = compared(s->w[1], exact ? float_value(f, x[0]) : (quad)integer_value(f, x[0]),
                      exact ? float_value(f, x[1]) : (quad)integer_value(f, x[1]));
          bool q = !p;
    if (has(s, "and")) p = p && x[2], q = q && x[2];
    if (has(s, "or")) p = p || x[2], q = q || x[2];
    if (has(s, "xor")) p = p != (x[2] != 0), q = q != (x[2] != 0);
    return (expected){ p, q, 0, 0 };
}

static expected predicates(const words *s, const uint64_t *x) {
    const bool a = x[0] & 1, b = x[1] & 1;
    return (expected){ is(s, "mov")   ? a
                       : is(s, "not") ? !a
                       : is(s, "and") ? a && b
                       : is(s, "or")  ? a || b
                                      : a != b,
                       0, 0, 0 };
}

static expected meaning(const char *name, const uint64_t *x, unsigned carry) {
    words         s;
    expected      e;
    const format *f;
    split(&s, name);
    const char *last = s.w[s.n - 1];
    if (!strcmp(last, "pred")) return predicates(&s, x);
    if (is(&s, "cvt")) return conversion(&s, x);
    f = format_named(last);
    if (!f) fail_msg("%s: what type is that", name);
    if (is(&s, "setp")) return comparison(&s, f, x);
    if (is(&s, "testp")) return (expected){ tested(s.w[1], f, x[0]), 0, 0, 0 };
    if (f->kind != 'f') return integers(&s, f, x, carry);
    if (strcmp(last + strlen(last) - 2, "x2")) return floats(&s, f, x);
    const uint64_t low[4] = { x[0] & 0xffff, x[1] & 0xffff, x[2] & 0xffff, 0 };
    const uint64_t high[4] = { x[0] >> 16, x[1] >> 16, x[2] >> 16, 0 };
    e = floats(&s, f, high);
    e.value = e.value << 16 | floats(&s, f, low).value;
    return e;
}

/* ---- running a row ---- */

enum { SLOTS = 8, Q_SLOT = 7 };

static uint32_t pred[2][SLOTS], r32[2][SLOTS][LANES];
static uint64_t r64[2][SLOTS][LANES];
static int      window[4]; /* exponents of bf16 operands that a sum of 113 bits holds exactly */

/* A float of the format from a neighbourhood of 1, where sums meet, or anywhere. */
static uint64_t random_float(const format *f, int middle, int spread) {
    const int exp = middle + below(2 * spread + 1) - spread, field = exp < 0             ? 0
                                                                     : exp > 2 * f->high ? 2 * f->high
                                                                                         : exp;
    uint64_t  man = next_random() & mask_of(f->mantissa);
    if (below(3) == 0) man &= mask_of(f->mantissa) << below(f->mantissa + 1); /* few bits: ties */
    return (next_random() & 1) << (f->bits - 1) | (uint64_t)field << f->mantissa | man;
}

static uint64_t random_value(const format *f) {
    static const int64_t ints[] = { 0,     1,     -1,        2,         31,         32,        33,
                                    63,    64,    127,       128,       255,        256,       32767,
                                    32768, 65535, INT32_MAX, INT32_MIN, UINT32_MAX, INT64_MAX, INT64_MIN };
    switch (below(4)) {
    case 0: return next_random();
    case 1: return (uint64_t)ints[below((int)(sizeof ints / sizeof *ints))] + (uint64_t)(below(3) - 1);
    case 2: return next_random() >> below(64);
    default: break;
    }
    if (f->kind != 'f') return (uint64_t)(int64_t)(below(80) - 40);
    const uint64_t inf = mask_of(f->bits - 1 - f->mantissa) << f->mantissa;
    const uint64_t edge[] = {
        0, inf, inf - 1, inf + 1, 1, (uint64_t)1 << f->mantissa, mask_of(f->mantissa), nan_of(f)
    };
    return edge[below(8)] | (next_random() & 1) << (f->bits - 1);
}

/* What an operand may hold: 16-bit values lie zero-extended. `from`: what the lanes of a source mean. */
static void fill(const char *name, char shape, int which, int slot, bool constant) {
    words         s;
    uint64_t      v[LANES];
    const format *f;
    split(&s, name);
    f = format_named(s.w[s.n - 1]);
    const bool pair = f && strlen(s.w[s.n - 1]) > 4 && strstr(s.w[s.n - 1], "x2");
    if (!f) f = format_named("u32");
    const bool windows = !is(&s, "cvt") && f->mantissa == 7, sums = f->kind == 'f' && (windows || below(2));
    for (int k = 0; k < LANES; k++) {
        v[k] = random_value(f);
        if (sums) v[k] = random_float(f, windows ? window[which] : f->high, windows ? 8 : f->bits == 16 ? 14 : 30);
        if (pair)
            v[k] = (v[k] & 0xffff) |
                   (sums ? random_float(f, windows ? window[which] : 15, windows ? 8 : 14) : v[k] >> 16) << 16;
        if (constant && k) v[k] = v[0];
    }
    for (int k = 0; k < LANES; k++) {
        if (shape == 'd') r64[constant][slot][k] = v[k];
        if (shape == 'w') r32[constant][slot][k] = (uint32_t)(f->bits == 16 && !pair ? v[k] & 0xffff : v[k]);
    }
    if (shape == 'p') pred[constant][slot] = constant ? (below(2) ? ALL_LANES : 0) : (uint32_t)next_random();
}

static bool near_enough(uint64_t got, uint64_t want, double close) {
    if (got == want) return true;
    if (close == 0) return false;
    const int64_t apart = (int64_t)got - (int64_t)want;
    return llabs(apart) <= (int64_t)close;
}

static uint64_t lane(const warp *w, operand o, int k) {
    return o.kind == SLOT_PRED ? lanes_pred(w, o) >> k & 1 : o.kind == SLOT_64 ? lanes64(w, o)[k] : lanes32(w, o)[k];
}

static slot_kind kind_of(char shape) { return shape == 'p' ? SLOT_PRED : shape == 'd' ? SLOT_64 : SLOT_32; }

static void check_row(const insn_rule *rule) {
    warp           w = { .pred = { pred[0], pred[1] }, .r32 = { r32[0], r32[1] }, .r64 = { r64[0], r64[1] } };
    insn           i = { .fn = rule->fn, .mode = rule->mode, .name = rule->name, .n = (int)strlen(rule->shape) };
    uint64_t       x[LANES][4] = { 0 }, before[LANES];
    const bool     second = !strncmp(rule->name, "setp", 4) && below(2);
    const uint32_t m = below(3) ? ALL_LANES : (uint32_t)next_random() | 1u << below(32);
    const char    *type = strrchr(rule->name, '.') + 1;
    window[0] = 30 + below(100), window[1] = 60 + below(190), window[2] = window[0] + window[1] - 127;
    if (!strncmp(rule->name, "add", 3) || !strncmp(rule->name, "sub", 3)) window[1] = window[0];
    for (int o = 0; o < i.n; o++) {
        const char shape = rule->shape[o];
        const bool constant = o && (!strncmp(rule->name, "lop3", 4) && o == 4 ? true : !below(4));
        i.o[o] = (operand){ .at = (uint32_t)o, .kind = kind_of(shape), .constant = constant };
        if (shape == 'p' && o) i.o[o].negated = below(2);
        fill(rule->name, shape, o ? o - 1 : 0, o, constant);
        /* An amount of a shift or field is often small. */
        if (o && shape == 'w' && strchr("sbp", rule->name[0]) && o > 1 && below(2) && !strchr(type, 'f')) {
            const uint32_t same = (uint32_t)below(70);
            for (int k = 0; k < LANES; k++) r32[constant][o][k] = constant ? same : (uint32_t)below(70);
        }
    }
    /* The destination may be a source. */
    for (int o = 1; o < i.n; o++) {
        if (!i.o[o].constant && i.o[o].kind == i.o[0].kind && !below(4)) i.o[0].at = i.o[o].at;
    }
    if (second) i.o[i.n++] = (operand){ .at = Q_SLOT, .kind = SLOT_PRED };
    w.carry = (uint32_t)next_random();
    const uint32_t carry = w.carry, q = pred[0][Q_SLOT];
    for (int k = 0; k < LANES; k++) {
        before[k] = lane(&w, i.o[0], k);
        for (int o = 1; o < (int)strlen(rule->shape); o++) x[k][o - 1] = lane(&w, i.o[o], k);
    }
    i.fn(&w, &i, m);
    for (int k = 0; k < LANES; k++) {
        expected       e = meaning(rule->name, x[k], carry >> k & 1);
        const uint64_t got = lane(&w, i.o[0], k);
        words          s;
        split(&s, rule->name);
        const format *to = format_named(s.w[is(&s, "cvt") ? s.n - 2 : s.n - 1]);
        if (i.o[0].kind == SLOT_32) {
            const bool paired = strstr(rule->name, "x2") != NULL, wide = has(&s, "wide");
            e.value &= to && to->bits <= 16 && !paired && !wide ? 0xffff : 0xffffffffu;
            if (to && to->bits == 8 && to->kind == 'u') e.value &= 255;
        }
        if (!(m >> k & 1)) e = (expected){ before[k], q >> k & 1, carry >> k & 1, 0 };
        const format *f64 = format_named("f64");
        const bool    both_nan = to == f64 && float_value(f64, got) != float_value(f64, got) &&
                              float_value(f64, e.value) != float_value(f64, e.value);
        if (!both_nan && !near_enough(got, e.value, e.close))
            fail_msg("%s lane %d: %llx, %llx, %llx, %llx gives %llx, not %llx", rule->name, k,
                     (unsigned long long)x[k][0], (unsigned long long)x[k][1], (unsigned long long)x[k][2],
                     (unsigned long long)x[k][3], (unsigned long long)got, (unsigned long long)e.value);
        if (second && (pred[0][Q_SLOT] >> k & 1) != e.second) fail_msg("%s: the second predicate", rule->name);
        if (strstr(rule->name, ".cc") && (w.carry >> k & 1) != e.carry) fail_msg("%s: the carry", rule->name);
        if (!strstr(rule->name, ".cc")) assert_int_equal(w.carry, carry);
    }
}

static void test_alu(void **state) {
    (void)state;
    for (const insn_rule *r = alu_rules; r->name; r++) {
        for (int i = 0; i < 60; i++) check_row(r);
    }
}

static void test_convert(void **state) {
    (void)state;
    for (const insn_rule *r = convert_rules; r->name; r++) {
        for (int i = 0; i < 60; i++) check_row(r);
    }
}

static const insn_rule *rule_named(const insn_rule *r, const char *name) {
    while (r->name && strcmp(r->name, name)) r++;
    if (!r->name) fail_msg("no %s", name);
    return r;
}

static void test_half_fma(void **state) {
    (void)state;
    const insn_rule *r = rule_named(convert_rules, "fma.rn.f16x2"), *b = rule_named(convert_rules, "fma.rn.bf16x2");
    for (int i = 0; i < 20000; i++) check_row(i % 4 ? r : b);
}

/* All halves there and back; what half.h gives for all but a NaN, which is the device's. */
static void test_halves(void **state) {
    (void)state;
    warp             w = { .pred = { pred[0], pred[1] }, .r32 = { r32[0], r32[1] }, .r64 = { r64[0], r64[1] } };
    insn             i = { .o = { { .at = 0, .kind = SLOT_32 }, { .at = 1, .kind = SLOT_32 } }, .n = 2 };
    const insn_rule *wide[] = { rule_named(convert_rules, "cvt.f32.f16"), rule_named(convert_rules, "cvt.f32.bf16") };
    const insn_rule *small[] = { rule_named(convert_rules, "cvt.rn.f16.f32"),
                                 rule_named(convert_rules, "cvt.rn.bf16.f32") };
    for (uint32_t h = 0; h < 65536; h++) {
        const uint32_t f = (uint32_t)next_random();
        for (int t = 0; t < 2; t++) {
            r32[0][1][0] = h;
            i.mode = wide[t]->mode;
            wide[t]->fn(&w, &i, 1);
            const float want = t ? tensor_bf16_to_f32((uint16_t)h) : tensor_f16_to_f32((uint16_t)h);
            if (!isnan(want))
                assert_int_equal(r32[0][0][0], tensor_f32_bits(want));
            else
                assert_true(isnan(tensor_bits_f32(r32[0][0][0])));
            r32[0][1][0] = f;
            i.mode = small[t]->mode;
            small[t]->fn(&w, &i, 1);
            const float x = tensor_bits_f32(f);
            assert_int_equal(r32[0][0][0], isnan(x) ? 0x7fff : t ? tensor_f32_to_bf16(x) : tensor_f32_to_f16(x));
        }
    }
}

/* ---- tensor cores ---- */

/*
 * kind 0: near 1; 1: few exponents and zeros; 2: anything finite; 3: subnormal; 4: anything at all; 5: sums that are
 * subnormal or nearly so, where the format has such
 */
static uint16_t random_factor(bool bf16, int kind) {
    const format *f = format_named(bf16 ? "bf16" : "f16");
    uint16_t      h = (uint16_t)next_random();
    if (kind == 4 && below(8) == 0) return h;
    if (kind == 4 || kind == 0) return (uint16_t)random_float(f, f->high, 3);
    if (kind == 1) return below(3) ? (uint16_t)random_float(f, f->high - 4, 12) : (uint16_t)(h & 0x8000);
    if (kind == 5) return (uint16_t)random_float(f, f->high / 2, 8);
    if (kind == 3 && below(2)) return (uint16_t)(h & (bf16 ? 0x807f : 0x83ff));
    return (uint16_t)random_float(f, f->high, f->high - 1);
}

static float random_sum(int kind) {
    static const float edge[] = {
        0.f, -0.f, FLT_MAX, -FLT_MAX, FLT_MIN, -0x1p-149f, 0x1p-130f, INFINITY, -INFINITY, NAN
    };
    const format *f = format_named("f32");
    if (kind == 5) return f32_of(random_float(f, 3, 10));
    if (kind && below(4) == 0) return edge[below(kind == 4 ? 10 : 7)];
    return f32_of(random_float(f, 127, kind == 0 ? 8 : kind == 1 ? 30 : 126));
}

static void check_mma(mma_chip chip, bool bf16, int m, int n, int kind) {
    static uint16_t a[70 * 16], b[100 * 16];
    static float    c[70 * 100 + 1], want[70 * 100];
    for (int i = 0; i < 16 * m; i++) a[i] = random_factor(bf16, kind);
    for (int i = 0; i < 16 * n; i++) b[i] = random_factor(bf16, kind);
    if (kind == 1) memset(a, 0, 32);
    for (int i = 0; i < m * n; i++) {
        c[i] = random_sum(kind);
        want[i] = cuda_twin_chain((cuda_twin_chip){ chip.group, chip.fraction }, bf16, a + i / n * 16, b + i % n * 16,
                                  16, c[i]);
    }
    c[m * n] = 42;
    mma_k16(chip, bf16, m, n, a, b, c);
    assert_true(c[m * n] == 42);
    for (int i = 0; i < m * n; i++) {
        if (isnan(want[i]) ? tensor_f32_bits(c[i]) != 0x7fffffffu : tensor_f32_bits(c[i]) != tensor_f32_bits(want[i]))
            fail_msg("group %d bf16 %d kind %d, %d x %d at %d: %a, not %a", chip.group, bf16, kind, m, n, i,
                     (double)c[i], (double)want[i]);
    }
}

static void test_mma(void **state) {
    (void)state;
    static const int size[][2] = { { 16, 8 }, { 16, 32 }, { 16, 96 }, { 64, 40 },
                                   { 1, 1 },  { 3, 5 },   { 17, 33 }, { 70, 100 } };
    const mma_chip   chip[2] = { { cuda_twin_hopper.group, cuda_twin_hopper.fraction },
                                 { cuda_twin_ampere.group, cuda_twin_ampere.fraction } };
    for (int round = 0; round < 12; round++) {
        for (int k = 0; k < 2 * 2 * 6 * 8; k++)
            check_mma(chip[k & 1], k >> 1 & 1, size[k >> 2 & 7][0], size[k >> 2 & 7][1], k >> 5);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alu),    cmocka_unit_test(test_convert), cmocka_unit_test(test_half_fma),
        cmocka_unit_test(test_halves), cmocka_unit_test(test_mma),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
