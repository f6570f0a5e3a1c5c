/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic and concatenation with Python's results, and the checks that keep them small. */
#include "template/ast.h"

#include <math.h>
#include <string.h>

static const char *op_text(int op) {
    switch (op) {
    case TOK_ADD: return "+";
    case TOK_SUB: return "-";
    case TOK_MUL: return "*";
    case TOK_DIV: return "/";
    case TOK_FLOORDIV: return "//";
    case TOK_MOD: return "%";
    default: return "** or pow()";
    }
}

_Noreturn static void fail_types(tr *r, int op, tv a, tv b) {
    if (a.kind == TV_UNDEF) tr_fail_undef(r, a);
    if (b.kind == TV_UNDEF) tr_fail_undef(r, b);
    if (op == TOK_ADD && a.kind == TV_STR) tr_fail(r, "can only concatenate str (not \"%s\") to str", tv_type_name(b));
    if (op == TOK_ADD && tv_is_seq(a))
        tr_fail(r, "can only concatenate %s (not \"%s\") to %s", tv_type_name(a), tv_type_name(b), tv_type_name(a));
    tr_fail(r, "unsupported operand type(s) for %s: '%s' and '%s'", op_text(op), tv_type_name(a), tv_type_name(b));
}

_Noreturn static void fail_large(tr *r) { tr_fail(r, "integer result is too large (more than 128 bits)"); }

static tv int_pow(tr *r, tv_wide base, tv_wide exp) {
    tv_wide result = 1;
    if (exp < 0) {
        if (base == 0) tr_fail(r, "0.0 cannot be raised to a negative power");
        return tv_float(pow((double)base, (double)exp));
    }
    if (base == 0 || base == 1) return tv_wide_of(r, exp == 0 ? 1 : base);
    if (base == -1) return tv_int(exp & 1 ? -1 : 1);
    if (exp > 127) fail_large(r);
    for (tv_wide i = 0; i < exp; i++) {
        if (__builtin_mul_overflow(result, base, &result)) fail_large(r);
    }
    return tv_wide_of(r, result);
}

static tv int_op(tr *r, int op, tv_wide a, tv_wide b) {
    tv_wide w = 0;
    bool    over = false;
    switch (op) {
    case TOK_ADD: over = __builtin_add_overflow(a, b, &w); break;
    case TOK_SUB: over = __builtin_sub_overflow(a, b, &w); break;
    case TOK_MUL: over = __builtin_mul_overflow(a, b, &w); break;
    case TOK_POW: return int_pow(r, a, b);
    case TOK_DIV:
        if (b == 0) tr_fail(r, "division by zero");
        return tv_float((double)a / (double)b);
    default:
        if (b == 0) tr_fail(r, "integer division or modulo by zero");
        if (b == -1) { /* the most negative number has no counterpart */
            if (op == TOK_MOD) return tv_int(0);
            over = __builtin_sub_overflow((tv_wide)0, a, &w);
            break;
        }
        w = op == TOK_FLOORDIV ? a / b : a % b;
        if (a % b != 0 && (a % b < 0) != (b < 0)) w += op == TOK_FLOORDIV ? -1 : b;
    }
    if (over) fail_large(r);
    return tv_wide_of(r, w);
}

static double float_mod(double a, double b) {
    double m = fmod(a, b);
    if (m != 0) return (b < 0) != (m < 0) ? m + b : m;
    return copysign(0.0, b);
}

static double float_floordiv(double a, double b) {
    double m = fmod(a, b), div = (a - m) / b;
    if (m != 0 && (b < 0) != (m < 0)) div -= 1.0;
    if (div == 0) return copysign(0.0, a / b);
    double whole = floor(div);
    return div - whole > 0.5 ? whole + 1.0 : whole;
}

static tv float_op(tr *r, int op, double a, double b) {
    switch (op) {
    case TOK_ADD: return tv_float(a + b);
    case TOK_SUB: return tv_float(a - b);
    case TOK_MUL: return tv_float(a * b);
    case TOK_POW: {
        if (a == 0 && b < 0) tr_fail(r, "0.0 cannot be raised to a negative power");
        if (a < 0 && isfinite(a) && isfinite(b) && b != floor(b)) tr_fail(r, "complex numbers are not supported");
        double p = pow(a, b);
        if (isinf(p) && isfinite(a) && isfinite(b)) tr_fail(r, "numerical result out of range");
        return tv_float(p);
    }
    default: break;
    }
    if (b == 0) tr_fail(r, op == TOK_MOD ? "float modulo" : "float division by zero");
    if (op == TOK_DIV) return tv_float(a / b);
    return tv_float(op == TOK_MOD ? float_mod(a, b) : float_floordiv(a, b));
}

static tv text_add(tr *r, tv a, tv b) {
    if (a.flags & TV_SAFE || b.flags & TV_SAFE) { /* Markup escapes what it joins with */
        a = tv_escape(r, a);
        b = tv_escape(r, b);
    }
    size_t n = (size_t)a.len + b.len;
    char  *s = tr_alloc(r, n + 1);
    if (a.len) memcpy(s, a.u.s, a.len);
    if (b.len) memcpy(s + a.len, b.u.s, b.len);
    s[n] = '\0';
    tv v = { .kind = TV_STR, .flags = a.flags & b.flags, .len = (uint32_t)n, .u.s = s };
    if (n > UINT32_MAX) tr_fail_limit(r, "memory");
    tr_charge(r, n);
    return v;
}

static tv seq_add(tr *r, tv a, tv b) {
    size_t n = a.u.list->count + b.u.list->count;
    tv     v = tv_list_new(r, n);
    v.kind = a.kind;
    tr_charge(r, n * sizeof(tv));
    if (a.u.list->count) memcpy(v.u.list->items, a.u.list->items, a.u.list->count * sizeof(tv));
    if (b.u.list->count) memcpy(v.u.list->items + a.u.list->count, b.u.list->items, b.u.list->count * sizeof(tv));
    return v;
}

static tv repeat(tr *r, tv what, tv_wide times) {
    if (times < 0) times = 0;
    size_t unit = what.kind == TV_STR ? what.len : what.u.list->count * sizeof(tv), total;
    if (unit == 0) times = 0;
    if (times > INT64_MAX || __builtin_mul_overflow(unit, (size_t)times, &total) || total > r->mem.limit_bytes)
        tr_fail_limit(r, "memory");
    tr_charge(r, total);
    if (what.kind == TV_STR) {
        char *s = tr_alloc(r, total + 1);
        for (size_t i = 0; i < total; i += unit) memcpy(s + i, what.u.s, unit);
        s[total] = '\0';
        return (tv){ .kind = TV_STR, .flags = what.flags, .len = (uint32_t)total, .u.s = s };
    }
    tv v = tv_list_new(r, what.u.list->count * (size_t)times);
    v.kind = what.kind;
    for (size_t i = 0; i < (size_t)times; i++)
        memcpy(v.u.list->items + i * what.u.list->count, what.u.list->items, unit);
    return v;
}

static bool repeatable(tv v) { return v.kind == TV_STR || tv_is_seq(v); }

tv tv_binary(tr *r, int op, tv a, tv b) {
    if (a.kind == TV_INT && b.kind == TV_INT && op != TOK_POW) return int_op(r, op, a.u.i, b.u.i);
    if (tv_is_num(a) && tv_is_num(b)) {
        if (a.kind != TV_FLOAT && b.kind != TV_FLOAT) return int_op(r, op, tv_wide_get(a), tv_wide_get(b));
        return float_op(r, op, tv_double(r, a), tv_double(r, b));
    }
    if (a.kind == TV_STR && op == TOK_MOD) return tv_percent(r, a, b);
    if (op == TOK_ADD) {
        if (a.kind == TV_STR && b.kind == TV_STR) return text_add(r, a, b);
        if (tv_is_seq(a) && a.kind == b.kind) return seq_add(r, a, b);
    } else if (op == TOK_MUL) {
        if (repeatable(a) && tv_is_int(b)) return repeat(r, a, tv_wide_get(b));
        if (repeatable(b) && tv_is_int(a)) return repeat(r, b, tv_wide_get(a));
    }
    fail_types(r, op, a, b);
}

tv tv_negate(tr *r, tv a) {
    tv_wide w;
    if (a.kind == TV_FLOAT) return tv_float(-a.u.f);
    if (tv_is_int(a)) {
        if (__builtin_sub_overflow((tv_wide)0, tv_wide_get(a), &w)) fail_large(r);
        return tv_wide_of(r, w);
    }
    if (a.kind == TV_UNDEF) tr_fail_undef(r, a);
    tr_fail(r, "bad operand type for unary -: '%s'", tv_type_name(a));
}

tv tv_positive(tr *r, tv a) {
    if (a.kind == TV_FLOAT) return a;
    if (tv_is_int(a)) return tv_wide_of(r, tv_wide_get(a));
    if (a.kind == TV_UNDEF) tr_fail_undef(r, a);
    tr_fail(r, "bad operand type for unary +: '%s'", tv_type_name(a));
}
