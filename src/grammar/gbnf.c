/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GBNF, the grammar notation of llama.cpp.
 *
 *     root ::= "1. " move (" " move)* "\n"     # rules; "root" is the start
 *     move ::= [a-h] [1-8] | "O-O" "-O"?       # literals, classes, alternatives, ? * + {m} {m,} {m,n}
 *
 * A rule ends with its line, except inside parentheses and behind "|" and "::=". What is built of literals and classes
 * alone becomes one expression, so that a string or a number of such a grammar is one terminal. Rules may be recursive
 * in any way, also to the left. Token references (<...>) are refused: a grammar here speaks about text.
 */
#include "base/map.h"
#include "grammar/compile.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SOURCE = 4 << 20, MAX_NESTING = 200 };

/* What a part of a rule is: an expression as long as possible, a symbol otherwise. */
typedef struct part {
    bool   is_rx;
    ir_rx  expr;
    ir_sym sym;
} part;

typedef struct parts {
    part  *v;
    size_t n, cap;
} parts;

typedef struct rule {
    ir_sym sym;
    view   name;
    bool   defined;
} rule;

typedef struct gbnf {
    ir         *g;
    const char *text;
    size_t      len, at;
    map         names;
    rule       *rules;
    size_t      n_rules, cap_rules;
    err        *e;
    int         code;
} gbnf;

static bool fail(gbnf *p, int code, const char *fmt, ...) {
    char    msg[300];
    size_t  line = 1;
    va_list ap;
    if (p->code) return false;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    for (size_t i = 0; i < p->at && i < p->len; i++) line += p->text[i] == '\n';
    p->code = err_set(p->e, code, "grammar, line %zu: %s", line, msg);
    return false;
}

static int peek(const gbnf *p) { return p->at < p->len ? (unsigned char)p->text[p->at] : -1; }

static bool take(gbnf *p, char c) {
    if (peek(p) != (unsigned char)c) return false;
    p->at++;
    return true;
}

static void space(gbnf *p, bool newlines) {
    for (;; p->at++) {
        int c = peek(p);
        if (c == '#') {
            while (p->at < p->len && p->text[p->at] != '\n' && p->text[p->at] != '\r') p->at++;
            p->at--;
        } else if (c != ' ' && c != '\t' && !(newlines && (c == '\n' || c == '\r'))) {
            return;
        }
    }
}

static bool name_char(int c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static view take_name(gbnf *p) {
    size_t begin = p->at;
    while (name_char(peek(p))) p->at++;
    return (view){ p->text + begin, p->at - begin };
}

static bool rule_find(gbnf *p, view name, size_t *out) {
    uint64_t at;
    if (map_get(&p->names, name.data, name.len, &at)) {
        *out = (size_t)at;
        return true;
    }
    if (p->n_rules == p->cap_rules) {
        size_t cap = p->cap_rules ? p->cap_rules * 2 : 32;
        rule  *v = realloc(p->rules, cap * sizeof *v);
        if (!v) return fail(p, ERR_NOMEM, "out of memory");
        p->rules = v;
        p->cap_rules = cap;
    }
    if (!map_put(&p->names, name.data, name.len, p->n_rules)) return fail(p, ERR_NOMEM, "out of memory");
    p->rules[p->n_rules] = (rule){ .sym = ir_rule(p->g, NULL), .name = name };
    *out = p->n_rules++;
    return true;
}

static bool hex(gbnf *p, int n, uint32_t *out) {
    uint32_t v = 0;
    for (int i = 0; i < n; i++) {
        int c = peek(p), d;
        d = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
        if (d < 0) return fail(p, ERR_FORMAT, "an escape must have %d hexadecimal digits", n);
        v = v << 4 | (uint32_t)d;
        p->at++;
    }
    if (v > 0x10FFFF || (v >= 0xD800 && v <= 0xDFFF)) return fail(p, ERR_FORMAT, "U+%X is not a character", v);
    *out = v;
    return true;
}

static bool character(gbnf *p, uint32_t *out) {
    unsigned c;
    size_t   k;
    if (take(p, '\\')) {
        int b = peek(p);
        p->at++;
        switch (b) {
        case 'x': return hex(p, 2, out);
        case 'u': return hex(p, 4, out);
        case 'U': return hex(p, 8, out);
        case 't': *out = '\t'; return true;
        case 'r': *out = '\r'; return true;
        case 'n': *out = '\n'; return true;
        default: break;
        }
        /* Punctuation is itself; llama.cpp knows \\ \" \[ \] of these. */
        if (b < 0x21 || b > 0x7E || (name_char(b) && b != '-' && b != '_'))
            return fail(p, ERR_FORMAT, "the escape is not known");
        *out = (uint32_t)b;
        return true;
    }
    if (!(k = utf8_decode(p->text + p->at, p->len - p->at, &c)))
        return fail(p, ERR_FORMAT, "the text is not valid UTF-8");
    p->at += k;
    *out = c;
    return true;
}

/* Behind the opening quote. */
static bool literal(gbnf *p, part *out) {
    str      s;
    uint32_t c;
    bool     ok = true;
    str_init(&s);
    while (ok && peek(p) != '"') {
        if (peek(p) < 0 || peek(p) == '\n') ok = fail(p, ERR_FORMAT, "a literal is not closed");
        if (ok && (ok = character(p, &c))) str_put_utf8(&s, c);
    }
    p->at += ok;
    if (ok && !str_ok(&s)) ok = fail(p, ERR_NOMEM, "out of memory");
    *out = (part){ .is_rx = true, .expr = ir_rx_bytes(p->g, str_cstr(&s), s.len) };
    str_deinit(&s);
    return ok;
}

/* Behind the opening bracket. */
static bool class(gbnf *p, part *out) {
    ir_range *r = NULL;
    size_t    n = 0, cap = 0;
    bool      negate = take(p, '^'), ok = true;
    while (ok && !take(p, ']')) {
        ir_range x;
        if (peek(p) < 0 || peek(p) == '\n') {
            ok = fail(p, ERR_FORMAT, "a character class is not closed");
            break;
        }
        if (!(ok = character(p, &x.first))) break;
        x.last = x.first;
        if (peek(p) == '-' && p->at + 1 < p->len && p->text[p->at + 1] != ']') {
            p->at++;
            if (!(ok = character(p, &x.last))) break;
            if (x.last < x.first) ok = fail(p, ERR_FORMAT, "the ends of a range are in the wrong order");
        }
        if (n == cap) {
            ir_range *v = realloc(r, (cap = cap ? cap * 2 : 16) * sizeof *v);
            if (!v) {
                ok = fail(p, ERR_NOMEM, "out of memory");
                break;
            }
            r = v;
        }
        r[n++] = x;
    }
    if (ok) *out = (part){ .is_rx = true, .expr = ir_rx_class(p->g, r, n, negate) };
    free(r);
    return ok;
}

static bool push(gbnf *p, parts *l, part x) {
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 8;
        part  *v = realloc(l->v, cap * sizeof *v);
        if (!v) return fail(p, ERR_NOMEM, "out of memory");
        l->v = v;
        l->cap = cap;
    }
    l->v[l->n++] = x;
    return true;
}

static ir_sym symbol_of(gbnf *p, part x) { return x.is_rx ? ir_terminal(p->g, x.expr) : x.sym; }

static bool alternatives(gbnf *p, bool nested, int depth, part *out);

static bool atom(gbnf *p, int depth, part *out) {
    int    c = peek(p);
    size_t r;
    if (take(p, '"')) return literal(p, out);
    if (take(p, '[')) return class(p, out);
    if (take(p, '.')) {
        *out = (part){ .is_rx = true, .expr = ir_rx_any(p->g) };
        return true;
    }
    if (take(p, '(')) {
        space(p, true);
        if (!alternatives(p, true, depth + 1, out)) return false;
        return take(p, ')') ? true : fail(p, ERR_FORMAT, "there is a '(' without a ')'");
    }
    if (c == '<' || c == '!') return fail(p, ERR_UNSUPPORTED, "token references (<...>) are not supported");
    if (!name_char(c)) return fail(p, ERR_FORMAT, "unexpected '%c'", c);
    if (!rule_find(p, take_name(p), &r)) return false;
    *out = (part){ .sym = p->rules[r].sym };
    return true;
}

static bool number(gbnf *p, uint64_t *out) {
    bool any = false;
    *out = 0;
    for (; peek(p) >= '0' && peek(p) <= '9'; p->at++) {
        *out = *out * 10 + (uint64_t)(peek(p) - '0');
        if (*out > 0x7FFFFFFF) *out = 0x7FFFFFFF;
        any = true;
    }
    return any;
}

/* Behind "{". */
static bool braces(gbnf *p, uint64_t *min, int64_t *max, bool nested) {
    uint64_t top;
    space(p, nested);
    if (!number(p, min)) return fail(p, ERR_FORMAT, "a repetition must have a number");
    *max = (int64_t)*min;
    space(p, nested);
    if (take(p, ',')) {
        space(p, nested);
        *max = number(p, &top) ? (int64_t)top : -1;
        space(p, nested);
    }
    if (!take(p, '}')) return fail(p, ERR_FORMAT, "there is a '{' without a '}'");
    if (*max >= 0 && (uint64_t)*max < *min)
        return fail(p, ERR_FORMAT, "the numbers of a repetition are in the wrong order");
    return true;
}

static bool repeated(gbnf *p, bool nested, int depth, part *out) {
    if (!atom(p, depth, out)) return false;
    for (;;) {
        uint64_t min = 0;
        int64_t  max = -1;
        space(p, nested);
        if (take(p, '*')) {
        } else if (take(p, '+')) {
            min = 1;
        } else if (take(p, '?')) {
            max = 1;
        } else if (take(p, '{')) {
            if (!braces(p, &min, &max, nested)) return false;
        } else {
            return true;
        }
        if (out->is_rx)
            out->expr = ir_rx_repeat(p->g, out->expr, (uint32_t)min, max);
        else
            out->sym = ir_repeat(p->g, out->sym, (uint32_t)min, max);
        if (ir_error(p->g, NULL)) return fail(p, ir_error(p->g, NULL), "a repetition is too large");
    }
}

static bool sequence(gbnf *p, bool nested, int depth, part *out) {
    parts   l = { 0 };
    ir_sym *list = NULL;
    bool    ok = true;
    while (ok) {
        part x;
        int  c = peek(p);
        if (c < 0 || c == '|' || c == ')' || c == '\n' || c == '\r') break;
        ok = repeated(p, nested, depth, &x);
        if (ok && x.is_rx && l.n && l.v[l.n - 1].is_rx)
            l.v[l.n - 1].expr = ir_rx_cat(p->g, l.v[l.n - 1].expr, x.expr);
        else if (ok)
            ok = push(p, &l, x);
    }
    if (ok && l.n == 0) {
        *out = (part){ .is_rx = true, .expr = ir_rx_bytes(p->g, "", 0) };
    } else if (ok && l.n == 1) {
        *out = l.v[0];
    } else if (ok && !(list = malloc(l.n * sizeof *list))) {
        ok = fail(p, ERR_NOMEM, "out of memory");
    } else if (ok) {
        for (size_t i = 0; i < l.n; i++) list[i] = symbol_of(p, l.v[i]);
        *out = (part){ .sym = ir_seq(p->g, list, l.n) };
    }
    free(list);
    free(l.v);
    return ok;
}

static bool alternatives(gbnf *p, bool nested, int depth, part *out) {
    parts    l = { 0 };
    int32_t *list;
    bool     ok = depth <= MAX_NESTING || fail(p, ERR_LIMIT, "parentheses are nested too deeply"), all = true;
    while (ok) {
        part x;
        ok = sequence(p, nested, depth, &x) && push(p, &l, x);
        if (!ok || !take(p, '|')) break;
        space(p, true);
    }
    if (ok && l.n == 1) {
        *out = l.v[0];
    } else if (ok && !(list = malloc(l.n * sizeof *list))) {
        ok = fail(p, ERR_NOMEM, "out of memory");
    } else if (ok) {
        for (size_t i = 0; i < l.n; i++) all &= l.v[i].is_rx;
        for (size_t i = 0; i < l.n; i++) list[i] = all ? l.v[i].expr : symbol_of(p, l.v[i]);
        *out = all ? (part){ .is_rx = true, .expr = ir_rx_alt_n(p->g, list, l.n) }
                   : (part){ .sym = ir_alt(p->g, list, l.n) };
        free(list);
    }
    free(l.v);
    return ok;
}

static bool one_rule(gbnf *p) {
    view   name = take_name(p);
    size_t r;
    part   body;
    ir_sym sym;
    if (name.len == 0) return fail(p, ERR_FORMAT, "expected the name of a rule");
    if (!rule_find(p, name, &r)) return false;
    if (p->rules[r].defined)
        return fail(p, ERR_FORMAT, "the rule '%.*s' is defined twice", (int)(name.len < 80 ? name.len : 80), name.data);
    space(p, false);
    if (p->at + 3 > p->len || memcmp(p->text + p->at, "::=", 3) != 0) return fail(p, ERR_FORMAT, "expected '::='");
    p->at += 3;
    space(p, true);
    if (!alternatives(p, false, 0, &body)) return false;
    if (peek(p) >= 0 && peek(p) != '\n' && peek(p) != '\r') return fail(p, ERR_FORMAT, "unexpected '%c'", peek(p));
    sym = symbol_of(p, body);
    ir_rule_alt(p->g, p->rules[r].sym, &sym, 1);
    p->rules[r].defined = true;
    return true;
}

static int parse(gbnf *p, ir_sym *root) {
    uint64_t at;
    bool     ok = true;
    space(p, true);
    while (ok && p->at < p->len) {
        ok = one_rule(p);
        space(p, true);
    }
    for (size_t i = 0; ok && i < p->n_rules; i++) {
        view n = p->rules[i].name;
        if (!p->rules[i].defined)
            ok =
                fail(p, ERR_FORMAT, "the rule '%.*s' is used, but not defined", (int)(n.len < 80 ? n.len : 80), n.data);
    }
    if (ok && !map_get_c(&p->names, "root", &at)) ok = fail(p, ERR_FORMAT, "there is no rule 'root'");
    if (ok) *root = p->rules[at].sym;
    return p->code;
}

int grammar_from_gbnf(grammar **out, view source, err *e) {
    gbnf   p = { .text = source.data, .len = source.len, .e = e };
    ir_sym root = 0;
    int    rc;
    *out = NULL;
    if (source.len > MAX_SOURCE) return err_set(e, ERR_LIMIT, "a grammar of %zu bytes is too long", source.len);
    if ((rc = ir_open(&p.g, e)) < 0) return rc;
    map_init(&p.names);
    rc = parse(&p, &root);
    map_deinit(&p.names);
    free(p.rules);
    if (rc < 0) {
        ir_free(p.g);
        return rc;
    }
    return grammar_compile_own(out, p.g, root, e);
}
