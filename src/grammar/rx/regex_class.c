/* SPDX-License-Identifier: Apache-2.0 */
#include "grammar/rx/regex_class.h"

#include "base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { MAX_RANGES = 1 << 16 };

typedef struct ranges {
    rx_range *v;
    size_t    n, cap;
} ranges;

static const rx_range digits[] = { { '0', '9' } };
static const rx_range words[] = { { '0', '9' }, { 'A', 'Z' }, { '_', '_' }, { 'a', 'z' } };
static const rx_range spaces[] = { { 9, 13 },          { 32, 32 },         { 0xA0, 0xA0 },     { 0x1680, 0x1680 },
                                   { 0x2000, 0x200A }, { 0x2028, 0x2029 }, { 0x202F, 0x202F }, { 0x205F, 0x205F },
                                   { 0x3000, 0x3000 }, { 0xFEFF, 0xFEFF } };
static const rx_range line_ends[] = { { '\n', '\n' }, { '\r', '\r' }, { 0x2028, 0x2029 } };

void *regex_fail(regex *p, int code, const char *fmt, ...) {
    char    msg[300];
    va_list ap;
    if (p->e_code) return NULL;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    p->e_code = err_set(p->e, code, "pattern, offset %zu: %s", p->at, msg);
    return NULL;
}

int regex_peek(const regex *p) { return p->at < p->len ? (unsigned char)p->text[p->at] : -1; }

bool regex_take(regex *p, char c) {
    if (p->at >= p->len || p->text[p->at] != c) return false;
    p->at++;
    return true;
}

static bool ranges_add(regex *p, ranges *r, uint32_t first, uint32_t last) {
    if (r->n == r->cap) {
        size_t    cap = r->cap ? r->cap * 2 : 16;
        rx_range *v;
        if (cap > MAX_RANGES) return regex_fail(p, ERR_LIMIT, "a character class is too large") != NULL;
        if (!(v = realloc(r->v, cap * sizeof *v))) return regex_fail(p, ERR_NOMEM, "out of memory") != NULL;
        r->v = v;
        r->cap = cap;
    }
    r->v[r->n++] = (rx_range){ first, last };
    return true;
}

/* The list, or every character but those of the list (which is in order). */
static bool ranges_add_list(regex *p, ranges *r, const rx_range *list, size_t n, bool negate) {
    uint32_t at = 0;
    bool     ok = true;
    for (size_t i = 0; i < n && ok; i++) {
        if (!negate) ok = ranges_add(p, r, list[i].first, list[i].last);
        if (negate && list[i].first > at) ok = ranges_add(p, r, at, list[i].first - 1);
        at = list[i].last + 1;
    }
    if (negate && ok) ok = ranges_add(p, r, at, 0x10FFFF);
    return ok;
}

/* General categories by their short names; utf8proc numbers them in this order. */
static bool category_mask(view name, uint32_t *mask) {
    static const char two[] = "CnLuLlLtLmLoMnMcMeNdNlNoPcPdPsPePiPfPoSmScSkSoZsZlZpCcCfCsCo";
    static const struct {
        const char *name, *is;
    } names[] = { { "Letter", "L" },  { "Lowercase_Letter", "Ll" }, { "Uppercase_Letter", "Lu" }, { "Mark", "M" },
                  { "Number", "N" },  { "Decimal_Number", "Nd" },   { "Punctuation", "P" },       { "punct", "P" },
                  { "Symbol", "S" },  { "Separator", "Z" },         { "Space_Separator", "Zs" },  { "Other", "C" },
                  { "Control", "Cc" } };
    static const char *const prefixes[] = { "General_Category=", "gc=" };
    for (size_t i = 0; i < 2; i++) {
        if (!view_starts(name, prefixes[i])) continue;
        name.data += strlen(prefixes[i]);
        name.len -= strlen(prefixes[i]);
        break;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (view_eq_c(name, names[i].name)) name = view_of(names[i].is);
    *mask = 0;
    if (name.len != 1 && name.len != 2) return false;
    for (size_t i = 0; two[i * 2]; i++)
        if (memcmp(two + i * 2, name.data, name.len) == 0) *mask |= 1u << i;
    return *mask != 0;
}

/* \p{...} or \P{...}: the escape's letter was read. */
static bool property(regex *p, ranges *r, bool negate) {
    size_t   begin, first = 0;
    uint32_t mask;
    view     name;
    bool     inside = false;
    if (!regex_take(p, '{')) return regex_fail(p, ERR_FORMAT, "\\p must be followed by {name}") != NULL;
    begin = p->at;
    while (p->at < p->len && p->text[p->at] != '}') p->at++;
    name = (view){ p->text + begin, p->at - begin };
    if (!regex_take(p, '}')) return regex_fail(p, ERR_FORMAT, "\\p{ is not closed") != NULL;
    if (view_eq_c(name, "Any")) return negate ? true : ranges_add(p, r, 0, 0x10FFFF);
    if (view_eq_c(name, "ASCII")) return negate ? ranges_add(p, r, 0x80, 0x10FFFF) : ranges_add(p, r, 0, 0x7F);
    if (!category_mask(name, &mask))
        return regex_fail(p, ERR_UNSUPPORTED, "the property \\p{%.*s} is not supported",
                          (int)(name.len < 60 ? name.len : 60), name.data) != NULL;
    for (uint32_t c = 0; c <= 0x110000; c++) {
        bool has = c < 0x110000 && ((mask >> utf8proc_category((utf8proc_int32_t)c) & 1) != 0) != negate;
        if (has && !inside) first = c;
        if (!has && inside && !ranges_add(p, r, (uint32_t)first, c - 1)) return false;
        inside = has;
    }
    return true;
}

static int hex_digits(regex *p, int n) {
    int v = 0;
    for (int i = 0; i < n; i++) {
        int c = p->at + (size_t)i < p->len ? (unsigned char)p->text[p->at + (size_t)i] : -1;
        int d = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
        if (d < 0) return -1;
        v = v * 16 + d;
    }
    p->at += (size_t)n;
    return v;
}

/* \u was read: \uXXXX, a pair of them, or \u{X...}. */
static bool unicode_escape(regex *p, uint32_t *out) {
    int v, low;
    if (regex_take(p, '{')) {
        uint32_t c = 0;
        size_t   begin = p->at;
        while (regex_peek(p) != '}') {
            int d = hex_digits(p, 1);
            if (d < 0 || c > 0x10FFFF) return regex_fail(p, ERR_FORMAT, "\\u{...} is not a valid escape") != NULL;
            c = c * 16 + (uint32_t)d;
        }
        if (p->at == begin || c > 0x10FFFF) return regex_fail(p, ERR_FORMAT, "\\u{...} is not a valid escape") != NULL;
        p->at++;
        *out = c;
        return true;
    }
    if ((v = hex_digits(p, 4)) < 0) return regex_fail(p, ERR_FORMAT, "\\u needs four hexadecimal digits") != NULL;
    if (v >= 0xD800 && v <= 0xDBFF && p->at + 6 <= p->len && p->text[p->at] == '\\' && p->text[p->at + 1] == 'u') {
        size_t back = p->at;
        p->at += 2;
        low = hex_digits(p, 4);
        if (low >= 0xDC00 && low <= 0xDFFF)
            v = 0x10000 + ((v & 0x3FF) << 10) + (low & 0x3FF);
        else
            p->at = back;
    }
    *out = (uint32_t)v;
    return true;
}

/* Behind a backslash. A set of characters goes to r (*is_set), one character to *c. */
static bool escape(regex *p, ranges *r, bool in_class, bool *is_set, uint32_t *c) {
    static const char names[] = "tnvfr", values[] = "\t\n\v\f\r";
    const char       *q;
    unsigned          cp;
    size_t            k;
    int               v;
    char              b;
    *is_set = true;
    if (p->at >= p->len) return regex_fail(p, ERR_FORMAT, "there is a backslash at the end") != NULL;
    b = p->text[p->at++];
    switch (b) {
    case 'd':
    case 'D': return ranges_add_list(p, r, digits, 1, b == 'D');
    case 'w':
    case 'W': return ranges_add_list(p, r, words, sizeof words / sizeof *words, b == 'W');
    case 's':
    case 'S': return ranges_add_list(p, r, spaces, sizeof spaces / sizeof *spaces, b == 'S');
    case 'p':
    case 'P': return property(p, r, b == 'P');
    default: break;
    }
    *is_set = false;
    if (b && (q = strchr(names, b))) {
        *c = (unsigned char)values[q - names];
        return true;
    }
    switch (b) {
    case '0':
        if (regex_peek(p) >= '0' && regex_peek(p) <= '9')
            return regex_fail(p, ERR_UNSUPPORTED, "octal escapes are not supported") != NULL;
        *c = 0;
        return true;
    case 'x':
        if ((v = hex_digits(p, 2)) < 0) return regex_fail(p, ERR_FORMAT, "\\x needs two hexadecimal digits") != NULL;
        *c = (uint32_t)v;
        return true;
    case 'u': return unicode_escape(p, c);
    case 'c':
        v = regex_peek(p) | 32;
        if (v < 'a' || v > 'z') return regex_fail(p, ERR_FORMAT, "\\c needs a letter") != NULL;
        *c = (uint32_t)p->text[p->at++] & 31;
        return true;
    case 'b':
        if (in_class) {
            *c = 8;
            return true;
        }
        return regex_fail(p, ERR_UNSUPPORTED, "the word boundary \\b is not supported") != NULL;
    case 'B': return regex_fail(p, ERR_UNSUPPORTED, "\\B is not supported") != NULL;
    case 'k': return regex_fail(p, ERR_UNSUPPORTED, "back references (\\k) are not supported") != NULL;
    default: break;
    }
    if (b >= '1' && b <= '9')
        return regex_fail(p, ERR_UNSUPPORTED, "back references (\\%c) are not supported", b) != NULL;
    if ((b >= 'a' && b <= 'z') || (b >= 'A' && b <= 'Z'))
        return regex_fail(p, ERR_UNSUPPORTED, "the escape \\%c is not supported", b) != NULL;
    p->at--;
    if (!(k = utf8_decode(p->text + p->at, p->len - p->at, &cp)))
        return regex_fail(p, ERR_FORMAT, "the text is not valid UTF-8") != NULL;
    p->at += k;
    *c = cp;
    return true;
}

static bool one_character(regex *p, uint32_t *c) {
    unsigned cp;
    size_t   k = utf8_decode(p->text + p->at, p->len - p->at, &cp);
    if (!k) return regex_fail(p, ERR_FORMAT, "the text is not valid UTF-8") != NULL;
    p->at += k;
    *c = cp;
    return true;
}

/* One member of a class. */
static bool member(regex *p, ranges *r, bool *is_set, uint32_t *c) {
    *is_set = false;
    return regex_take(p, '\\') ? escape(p, r, true, is_set, c) : one_character(p, c);
}

/* "[" was read. */
static bool class_members(regex *p, ranges *r, bool *negate) {
    *negate = regex_take(p, '^');
    while (!regex_take(p, ']')) {
        uint32_t first, last;
        bool     is_set;
        if (p->at >= p->len) return regex_fail(p, ERR_FORMAT, "a character class is not closed") != NULL;
        if (!member(p, r, &is_set, &first)) return false;
        if (p->at + 1 < p->len && p->text[p->at] == '-' && p->text[p->at + 1] != ']') {
            size_t back = p->at++;
            bool   to_set;
            if (is_set) { /* [\w-.]: the hyphen is itself */
                p->at = back;
                continue;
            }
            if (!member(p, r, &to_set, &last)) return false;
            if (to_set) {
                if (!ranges_add(p, r, first, first) || !ranges_add(p, r, '-', '-')) return false;
                continue;
            }
            if (first > last) return regex_fail(p, ERR_FORMAT, "the ends of a range are in the wrong order") != NULL;
            if (!ranges_add(p, r, first, last)) return false;
        } else if (!is_set && !ranges_add(p, r, first, first)) {
            return false;
        }
    }
    return true;
}

bool regex_atom(regex *p, rx *out) {
    ranges   r = { 0 };
    bool     ok = true, negate = false, is_set = false;
    uint32_t c = 0;
    int      b = regex_peek(p);
    if (b == '*' || b == '+' || b == '?') return regex_fail(p, ERR_FORMAT, "there is nothing to repeat") != NULL;
    if (b == ')') return regex_fail(p, ERR_FORMAT, "there is a ')' without a '('") != NULL;
    if (regex_take(p, '.')) {
        *out = rx_class(p->rx, line_ends, sizeof line_ends / sizeof *line_ends, true);
        return true;
    }
    if (regex_take(p, '['))
        ok = class_members(p, &r, &negate);
    else if (regex_take(p, '\\'))
        ok = escape(p, &r, false, &is_set, &c) && (is_set || ranges_add(p, &r, c, c));
    else
        ok = one_character(p, &c) && ranges_add(p, &r, c, c);
    if (ok) *out = rx_class(p->rx, r.v, r.n, negate);
    free(r.v);
    return ok;
}
