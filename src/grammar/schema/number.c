/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers: bounds and multiples as regular expressions over their decimal texts.
 *
 * A bound is compared as text: digits before the point by length, then from the left; digits behind it from the left.
 * Exponents are allowed where the whole range of the exponent's form lies inside the bounds. Digits are limited (see
 * schema.h): a text of more digits could be rounded across an exclusive bound by whoever reads it as a double.
 */
#include "grammar/schema/priv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WHOLE = 24, MAX_FRAC = 24, EXACT_DIGITS = 15 };

typedef enum compare { CMP_GT, CMP_GE, CMP_LT, CMP_LE } compare;

static void dec_trim(schema_dec *d) {
    size_t zeros = 0;
    while (zeros + 1 < d->n_whole && d->whole[zeros] == '0') zeros++;
    memmove(d->whole, d->whole + zeros, d->n_whole - zeros);
    d->n_whole = (uint8_t)(d->n_whole - zeros);
    while (d->n_frac && d->frac[d->n_frac - 1] == '0') d->n_frac--;
    if (d->n_whole == 1 && d->whole[0] == '0' && !d->n_frac) d->negative = false;
}

/* From digits with a decimal exponent: value = 0.digits * 10^point. */
static bool dec_from_digits(schema_dec *d, const char *digits, int n, int point) {
    int n_whole = point > 0 ? point : 1, n_frac = n - point > 0 ? n - point : 0;
    if (n_whole > SCHEMA_DEC_MAX || n_frac > SCHEMA_DEC_MAX) return false;
    for (int i = 0; i < n_whole; i++) d->whole[i] = point > 0 && i < n ? digits[i] : '0';
    for (int i = 0; i < n_frac; i++) d->frac[i] = point + i < 0 ? '0' : digits[point + i];
    d->n_whole = (uint8_t)n_whole;
    d->n_frac = (uint8_t)n_frac;
    dec_trim(d);
    return true;
}

/* The shortest decimal text that reads as the same double. False: too many digits. */
bool schema_dec_read(const json_value *v, schema_dec *out) {
    char   text[64], digits[40];
    int    n = 0, exponent = 0;
    double x;
    memset(out, 0, sizeof *out);
    if (v->kind == JSON_K_INT) {
        int len = snprintf(text, sizeof text, "%lld", (long long)v->u.integer);
        out->negative = text[0] == '-';
        return dec_from_digits(out, text + out->negative, len - out->negative, len - out->negative);
    }
    if (!json_number(v, &x) || !isfinite(x)) return false;
    out->negative = x < 0;
    for (int precision = 14; precision <= 16; precision++) {
        snprintf(text, sizeof text, "%.*e", precision, fabs(x));
        if (!(strtod(text, NULL) < fabs(x)) && !(strtod(text, NULL) > fabs(x))) break;
    }
    for (const char *p = text; *p; p++) {
        if (*p == 'e') {
            exponent = atoi(p + 1);
            break;
        }
        if (*p >= '0' && *p <= '9') digits[n++] = *p;
    }
    while (n > 1 && digits[n - 1] == '0') n--;
    return dec_from_digits(out, digits, n, exponent + 1);
}

static int magnitude_compare(const schema_dec *a, const schema_dec *b) {
    int n, r;
    if (a->n_whole != b->n_whole) return a->n_whole < b->n_whole ? -1 : 1;
    r = memcmp(a->whole, b->whole, a->n_whole);
    if (r) return r < 0 ? -1 : 1;
    n = a->n_frac < b->n_frac ? a->n_frac : b->n_frac;
    r = memcmp(a->frac, b->frac, (size_t)n);
    if (r) return r < 0 ? -1 : 1;
    return a->n_frac < b->n_frac ? -1 : a->n_frac > b->n_frac;
}

int schema_dec_compare(const schema_dec *a, const schema_dec *b) {
    if (a->negative != b->negative) return a->negative ? -1 : 1;
    return a->negative ? magnitude_compare(b, a) : magnitude_compare(a, b);
}

static const schema_dec *dec_keep(schema_ctx *c, const json_value *s, const char *name, const json_value *v) {
    schema_dec *d = schema_alloc(c, sizeof *d);
    if (!d) return NULL;
    if (v->kind != JSON_K_INT && v->kind != JSON_K_REAL) {
        schema_fail(c, s, ERR_FORMAT, "'%s' is not a number", name);
        return NULL;
    }
    if (!schema_dec_read(v, d)) {
        schema_fail(c, s, ERR_UNSUPPORTED, "'%s' has too many digits", name);
        return NULL;
    }
    return d;
}

void schema_bound_add(schema_ctx *c, schema_world *w, const json_value *s, const json_value *v, bool upper,
                      bool exclusive) {
    schema_bound     *b = upper ? &w->hi : &w->lo;
    const schema_dec *d;
    double            x;
    int               order;
    /* Beyond what may be written anyway: no bound, or nothing left. */
    if (json_number(v, &x) && fabs(x) >= 1e24) {
        if (upper != (x > 0)) w->types &= ~(unsigned)SCHEMA_NUMBER;
        return;
    }
    d = dec_keep(c, s, upper ? "maximum" : "minimum", v);
    if (!d) return;
    order = b->at ? schema_dec_compare(d, b->at) : (upper ? -1 : 1);
    if (order == 0) {
        b->exclusive |= exclusive;
    } else if (upper ? order < 0 : order > 0) {
        *b = (schema_bound){ d, exclusive };
    }
}

void schema_multiple_add(schema_ctx *c, schema_world *w, const json_value *s, const json_value *v, bool negate) {
    schema_multiple  *t = schema_alloc(c, sizeof *t);
    const schema_dec *d = dec_keep(c, s, "multipleOf", v);
    double            x = 0;
    if (!t || !d) return;
    if (!json_number(v, &x) || x <= 0) {
        schema_fail(c, s, ERR_FORMAT, "'multipleOf' must be greater than 0");
        return;
    }
    *t = (schema_multiple){ d, negate, w->multiples };
    w->multiples = t;
}

/* Small builders. */

static ir_rx digit(schema_ctx *c, char first, char last) {
    ir_range r = { (uint32_t)first, (uint32_t)last };
    return first > last ? ir_rx_none(c->g) : ir_rx_class(c->g, &r, 1, false);
}

static ir_rx digits(schema_ctx *c, size_t min, size_t max) {
    return ir_rx_repeat(c->g, digit(c, '0', '9'), (uint32_t)min, (int64_t)max);
}

static ir_rx text(schema_ctx *c, const char *bytes, size_t n) { return ir_rx_bytes(c->g, bytes, n); }

static ir_rx cat3(schema_ctx *c, ir_rx a, ir_rx b, ir_rx d) { return ir_rx_cat(c->g, a, ir_rx_cat(c->g, b, d)); }

static ir_rx either(schema_ctx *c, ir_rx a, ir_rx b) { return ir_rx_alt(c->g, a, b); }

/* Whole numbers without a leading zero, greater (or less) than w. */
static ir_rx whole_beyond(schema_ctx *c, const char *w, size_t n, bool greater) {
    ir_rx out = ir_rx_none(c->g);
    if (greater && n < MAX_WHOLE) out = ir_rx_cat(c->g, digit(c, '1', '9'), digits(c, n, MAX_WHOLE - 1));
    if (!greater && n > 1) {
        out = either(c, text(c, "0", 1), ir_rx_cat(c->g, digit(c, '1', '9'), digits(c, 0, n - 2)));
    }
    for (size_t i = 0; i < n; i++) {
        char  least = i == 0 && n > 1 ? '1' : '0';
        ir_rx differs = greater ? digit(c, (char)(w[i] + 1), '9') : digit(c, least, (char)(w[i] - 1));
        out = either(c, out, cat3(c, text(c, w, i), differs, digits(c, n - i - 1, n - i - 1)));
    }
    return out;
}

/* What follows the whole part, with its point, when that is equal. max_frac limits the digits. */
static ir_rx frac_beyond(schema_ctx *c, const schema_dec *d, compare op, size_t max_frac) {
    size_t n = d->n_frac;
    bool   greater = op == CMP_GT || op == CMP_GE, equal = op == CMP_GE || op == CMP_LE;
    ir_rx  point = text(c, ".", 1), zeros = ir_rx_repeat(c->g, text(c, "0", 1), 0, (int64_t)max_frac);
    ir_rx  tail = ir_rx_none(c->g), out;
    if (max_frac < n + 1) max_frac = n + 1;
    for (size_t i = 0; i < n; i++) {
        ir_rx differs = greater ? digit(c, (char)(d->frac[i] + 1), '9') : digit(c, '0', (char)(d->frac[i] - 1));
        tail = either(c, tail, cat3(c, text(c, d->frac, i), differs, digits(c, 0, max_frac - i - 1)));
        if (!greater && i) tail = either(c, tail, text(c, d->frac, i));
    }
    if (greater && equal) {
        tail = either(c, tail, ir_rx_cat(c->g, text(c, d->frac, n), digits(c, n ? 0 : 1, max_frac - n)));
    } else if (greater) {
        ir_rx more = cat3(c, zeros, digit(c, '1', '9'), digits(c, 0, max_frac - n - 1));
        tail = either(c, tail, ir_rx_cat(c->g, text(c, d->frac, n), more));
    } else if (equal) {
        tail = either(c, tail, cat3(c, text(c, d->frac, n), n ? text(c, "", 0) : text(c, "0", 1), zeros));
    }
    out = ir_rx_cat(c->g, point, tail);
    if (n ? !greater : equal) out = either(c, out, text(c, "", 0));
    return out;
}

/* Texts of numbers without sign and exponent that compare so with |d|. */
static ir_rx magnitude(schema_ctx *c, const schema_dec *d, compare op, bool whole, size_t max_frac, ir_rx zero_frac) {
    bool  greater = op == CMP_GT || op == CMP_GE;
    ir_rx beyond = whole_beyond(c, d->whole, d->n_whole, greater), same = text(c, d->whole, d->n_whole);
    if (whole) {
        bool with_same = greater ? op == CMP_GE && !d->n_frac : op == CMP_LE || d->n_frac;
        return ir_rx_cat(c->g, with_same ? either(c, beyond, same) : beyond, zero_frac);
    }
    return either(c, ir_rx_cat(c->g, beyond, ir_rx_opt(c->g, ir_rx_cat(c->g, text(c, ".", 1), digits(c, 1, max_frac)))),
                  ir_rx_cat(c->g, same, frac_beyond(c, d, op, max_frac)));
}

typedef struct shape {
    bool   whole;
    size_t max_frac;
    ir_rx  zero_frac; /* what may follow a whole number: nothing, or ".0" */
} shape;

static ir_rx unbounded(schema_ctx *c, const shape *sh) {
    ir_rx whole = either(c, text(c, "0", 1), ir_rx_cat(c->g, digit(c, '1', '9'), digits(c, 0, MAX_WHOLE - 1)));
    if (sh->whole) return ir_rx_cat(c->g, whole, sh->zero_frac);
    return ir_rx_cat(c->g, whole, ir_rx_opt(c->g, ir_rx_cat(c->g, text(c, ".", 1), digits(c, 1, sh->max_frac))));
}

/* The magnitudes m with near <= m <= far; either may be missing. */
static ir_rx between(schema_ctx *c, const shape *sh, schema_bound near, schema_bound far) {
    ir_rx out;
    if (!near.at && !far.at) return unbounded(c, sh);
    if (!near.at) return magnitude(c, far.at, far.exclusive ? CMP_LT : CMP_LE, sh->whole, sh->max_frac, sh->zero_frac);
    out = magnitude(c, near.at, near.exclusive ? CMP_GT : CMP_GE, sh->whole, sh->max_frac, sh->zero_frac);
    if (!far.at) return out;
    return ir_rx_and(c->g, out,
                     magnitude(c, far.at, far.exclusive ? CMP_LT : CMP_LE, sh->whole, sh->max_frac, sh->zero_frac));
}

static bool is_zero(const schema_dec *d) { return d->n_whole == 1 && d->whole[0] == '0' && !d->n_frac; }

static ir_rx scientific(schema_ctx *c, bool small) {
    ir_rx mantissa =
        ir_rx_cat(c->g, digit(c, '1', '9'), ir_rx_opt(c->g, ir_rx_cat(c->g, text(c, ".", 1), digits(c, 1, 17))));
    ir_rx e = either(c, text(c, "e", 1), text(c, "E", 1)), exponent;
    if (small)
        exponent = ir_rx_cat(c->g, text(c, "-", 1),
                             either(c, ir_rx_cat(c->g, ir_rx_opt(c->g, text(c, "0", 1)), digit(c, '1', '9')),
                                    ir_rx_cat(c->g, digit(c, '1', '9'), digit(c, '0', '9'))));
    else
        exponent = ir_rx_cat(c->g, ir_rx_opt(c->g, text(c, "+", 1)), digits(c, 1, 2));
    return cat3(c, mantissa, e, exponent);
}

/* One side of zero: near and far are magnitudes. */
static ir_rx side(schema_ctx *c, const shape *sh, schema_bound near, schema_bound far) {
    static const schema_dec one = { .n_whole = 1, .whole = "1" };
    ir_rx                   out = between(c, sh, near, far);
    if (sh->whole) return out;
    if (!near.at && !far.at) {
        ir_rx e = either(c, text(c, "e", 1), text(c, "E", 1));
        ir_rx sign = ir_rx_opt(c->g, either(c, text(c, "+", 1), text(c, "-", 1)));
        return ir_rx_cat(c->g, out, ir_rx_opt(c->g, cat3(c, e, sign, digits(c, 1, 2))));
    }
    if ((!near.at || is_zero(near.at)) && (!far.at || (!far.exclusive && magnitude_compare(far.at, &one) >= 0)))
        out = either(c, out, scientific(c, true));
    if ((!near.at || magnitude_compare(near.at, &one) < 0) && !far.at) out = either(c, out, scientific(c, false));
    return out;
}

static ir_rx range(schema_ctx *c, const schema_world *w, bool whole) {
    static const schema_dec zero = { .n_whole = 1, .whole = "0" };
    schema_bound            lo = w->lo, hi = w->hi, none = { 0 }, over_zero = { &zero, true };
    shape                   sh = { whole, MAX_FRAC, text(c, "", 0) };
    ir_rx                   out = ir_rx_none(c->g);
    bool exclusive = (lo.at && lo.exclusive && !is_zero(lo.at)) || (hi.at && hi.exclusive && !is_zero(hi.at));
    if (exclusive) {
        size_t longest = lo.at ? lo.at->n_whole : 1;
        if (hi.at && hi.at->n_whole > longest) longest = hi.at->n_whole;
        sh.max_frac = longest < EXACT_DIGITS ? EXACT_DIGITS - longest : 1;
    }
    if (whole && c->draft > 4 && !(c->flags & SCHEMA_STEERED))
        sh.zero_frac = ir_rx_opt(c->g, ir_rx_cat(c->g, text(c, ".", 1), ir_rx_repeat(c->g, text(c, "0", 1), 1, 8)));
    if (lo.at && hi.at) {
        int order = schema_dec_compare(lo.at, hi.at);
        if (order > 0 || (order == 0 && (lo.exclusive || hi.exclusive))) return out;
    }
    if (!hi.at || !(hi.at->negative || (is_zero(hi.at) && hi.exclusive))) {
        bool above = lo.at && !lo.at->negative && (!is_zero(lo.at) || lo.exclusive);
        out = side(c, &sh, above ? lo : none, hi);
    }
    if (!lo.at || lo.at->negative) {
        bool below = hi.at && (hi.at->negative || is_zero(hi.at));
        /* "-0" is a zero: leave it out where zero itself is not allowed. */
        schema_bound near = !below ? none : is_zero(hi.at) ? (hi.exclusive ? over_zero : none) : hi;
        out = either(c, out, ir_rx_cat(c->g, text(c, "-", 1), side(c, &sh, near, lo)));
    }
    return out;
}

ir_rx schema_number_equal(schema_ctx *c, const schema_dec *d) {
    bool  steered = c->flags & SCHEMA_STEERED;
    ir_rx zeros = ir_rx_repeat(c->g, text(c, "0", 1), 0, steered ? 0 : 8), out;
    if (d->n_frac) {
        out = ir_rx_cat(c->g, text(c, d->whole, d->n_whole),
                        cat3(c, text(c, ".", 1), text(c, d->frac, d->n_frac), zeros));
    } else {
        out = text(c, d->whole, d->n_whole);
        if (c->draft > 4 && !steered)
            out = ir_rx_cat(c->g, out, ir_rx_opt(c->g, cat3(c, text(c, ".0", 2), zeros, text(c, "", 0))));
    }
    return d->negative ? ir_rx_cat(c->g, text(c, "-", 1), out) : out;
}

/* Every text of the number, whatever zeros follow. */
static ir_rx spelled(schema_ctx *c, const schema_dec *d) {
    ir_rx zeros = ir_rx_repeat(c->g, text(c, "0", 1), 0, -1), point = text(c, ".", 1);
    ir_rx out = text(c, d->whole, d->n_whole), frac = cat3(c, point, text(c, d->frac, d->n_frac), zeros);
    out = ir_rx_cat(c->g, out, d->n_frac ? frac : ir_rx_opt(c->g, frac));
    if (is_zero(d)) return ir_rx_cat(c->g, ir_rx_opt(c->g, text(c, "-", 1)), out);
    return d->negative ? ir_rx_cat(c->g, text(c, "-", 1), out) : out;
}

/* d * 10^scale as an integer; 0: does not fit. */
static uint64_t scaled(const schema_dec *d, size_t scale) {
    uint64_t n = 0;
    if (d->n_whole + scale > 17) return 0;
    for (size_t i = 0; i < d->n_whole; i++) n = n * 10 + (uint64_t)(d->whole[i] - '0');
    for (size_t i = 0; i < scale; i++) n = n * 10 + (uint64_t)(i < d->n_frac ? d->frac[i] - '0' : 0);
    return n;
}

static uint64_t gcd(uint64_t a, uint64_t b) {
    while (b) {
        uint64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

/* Multiples of step / 10^k: with k digits behind the point the number without its point is a multiple of step. Fewer
 * digits are as if zeros followed; more must be zeros. */
static ir_rx multiple(schema_ctx *c, const schema_world *w, uint64_t step, size_t k) {
    ir_rx out = ir_rx_none(c->g), sign = ir_rx_opt(c->g, text(c, "-", 1));
    ir_rx zeros = ir_rx_repeat(c->g, text(c, "0", 1), 0, 8), syntax;
    if (!step || step > 1000000 || k > 9) {
        schema_fail(c, w->at, ERR_UNSUPPORTED, "'multipleOf' of this size is not supported");
        return out;
    }
    for (size_t shown = 0; shown <= k; shown++) { /* digits behind the point that are written */
        uint64_t hidden = 1;
        ir_rx    body;
        for (size_t i = shown; i < k; i++) hidden *= 10;
        body = ir_rx_multiple(c->g, (uint32_t)(step / gcd(step, hidden)), (uint32_t)shown);
        if (shown == k) {
            ir_rx more = k ? zeros : ir_rx_opt(c->g, ir_rx_cat(c->g, text(c, ".0", 2), zeros));
            body = ir_rx_cat(c->g, body, more);
        }
        out = either(c, out, body);
    }
    syntax = unbounded(c, &(shape){ .max_frac = MAX_FRAC });
    return ir_rx_cat(c->g, sign, ir_rx_and(c->g, out, syntax));
}

/* What all multipleOf say together: one multiple, the least common one, and what is forbidden. */
static ir_rx multiples(schema_ctx *c, const schema_world *w, ir_rx out) {
    uint64_t all = 0;
    size_t   k = 0;
    for (const schema_multiple *m = w->multiples; m; m = m->next) {
        if (m->of->n_frac > k) k = m->of->n_frac;
    }
    for (int negate = 0; negate < 2; negate++) {
        for (const schema_multiple *m = w->multiples; m && !c->rc; m = m->next) {
            uint64_t step = scaled(m->of, k);
            if (m->negate != negate) continue;
            if (!step || step > 1000000000 || all > 1000000000) {
                schema_fail(c, w->at, ERR_UNSUPPORTED, "'multipleOf' of this size is not supported");
                return out;
            }
            if (!negate)
                all = all ? all / gcd(all, step) * step : step;
            else if (all && all % step == 0)
                return ir_rx_none(c->g); /* every multiple of the one is a multiple of the other */
            else
                out = ir_rx_and(c->g, out, ir_rx_not(c->g, multiple(c, w, step, k)));
        }
    }
    return all && !c->rc ? ir_rx_and(c->g, out, multiple(c, w, all, k)) : out;
}

/* Short enough that different texts are different doubles: 15 digits, or 14 and a point. */
static ir_rx exact(schema_ctx *c) {
    ir_range r[2] = { { '0', '9' }, { '.', '.' } };
    ir_rx    part = ir_rx_repeat(c->g, ir_rx_class(c->g, r, 2, false), 1, EXACT_DIGITS);
    return ir_rx_cat(c->g, ir_rx_opt(c->g, text(c, "-", 1)), part);
}

/* Whatever of these numbers has only zeros behind the point, or no point. */
static ir_rx wholes(schema_ctx *c) {
    ir_rx zeros = ir_rx_cat(c->g, text(c, ".", 1), ir_rx_repeat(c->g, text(c, "0", 1), 1, -1));
    return cat3(c, ir_rx_opt(c->g, text(c, "-", 1)), digits(c, 1, MAX_WHOLE), ir_rx_opt(c->g, zeros));
}

static ir_rx world_number(schema_ctx *c, const schema_world *w, unsigned types) {
    ir_rx out = range(c, w, types == SCHEMA_INT);
    bool  close = types == SCHEMA_FRAC || w->multiples;
    for (const schema_values *v = w->excluded; v && !close; v = v->next)
        close = schema_type_of(v->value) & SCHEMA_NUMBER;
    if (close) out = ir_rx_and(c->g, out, exact(c));
    if (types == SCHEMA_FRAC) out = ir_rx_and(c->g, out, ir_rx_not(c->g, wholes(c)));
    out = multiples(c, w, out);
    for (const schema_values *v = w->excluded; v && !c->rc; v = v->next) {
        schema_dec d;
        if (!(schema_type_of(v->value) & types)) continue;
        if (!schema_dec_read(v->value, &d)) {
            schema_fail(c, w->at, ERR_UNSUPPORTED, "an excluded number has too many digits");
            break;
        }
        out = ir_rx_and(c->g, out, ir_rx_not(c->g, spelled(c, &d)));
    }
    return out;
}

ir_rx schema_world_number(schema_ctx *c, const schema_world *w, unsigned types) {
    if (w->lo.at || w->hi.at || w->multiples || w->excluded) return world_number(c, w, types);
    if (c->plain_number[types] < 0) c->plain_number[types] = world_number(c, w, types);
    return c->plain_number[types];
}
