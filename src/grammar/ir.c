/* SPDX-License-Identifier: Apache-2.0 */
/* The builders of ir.h. */
#include "grammar/ir_impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SYMBOLS = 1 << 20, MAX_BODY = 1 << 16 };

int ir_open(ir **out, err *e) {
    ir *g = calloc(1, sizeof *g);
    int rc;
    *out = NULL;
    if (!g) return err_set_nomem(e);
    arena_init(&g->mem, (size_t)128 << 20);
    map_init(&g->known);
    if ((rc = rx_store_init(&g->rx, e)) < 0) {
        ir_free(g);
        return rc;
    }
    *out = g;
    return 0;
}

void ir_free(ir *g) {
    if (!g) return;
    rx_store_deinit(&g->rx);
    map_deinit(&g->known);
    arena_deinit(&g->mem);
    free(g->syms);
    free(g);
}

int ir_error(const ir *g, err *e) {
    const err *first = g->error.code ? &g->error : &g->rx.error;
    if (first->code && e) *e = *first;
    return first->code;
}

void ir_fail(ir *g, int code, const char *fmt, ...) {
    va_list ap;
    if (ir_error(g, NULL)) return;
    va_start(ap, fmt);
    vsnprintf(g->error.msg, sizeof g->error.msg, fmt, ap);
    va_end(ap);
    g->error.code = code;
}

static rx valid(ir *g, ir_rx a) {
    if (a >= 0 && (uint32_t)a < g->rx.n_nodes) return a;
    ir_fail(g, ERR_ARG, "expression %d does not exist", (int)a);
    return RX_NONE;
}

static bool valid_symbol(ir *g, ir_sym a) {
    if (a >= 0 && (size_t)a < g->n_syms) return true;
    ir_fail(g, ERR_ARG, "symbol %d does not exist", (int)a);
    return false;
}

ir_rx ir_rx_none(ir *g) {
    (void)g;
    return RX_NONE;
}

ir_rx ir_rx_bytes(ir *g, const void *bytes, size_t n) { return rx_bytes(&g->rx, bytes, n); }
ir_rx ir_rx_text(ir *g, const char *text) { return rx_bytes(&g->rx, text, strlen(text)); }
ir_rx ir_rx_any(ir *g) { return g->rx.any; }
ir_rx ir_rx_all(ir *g) { return g->rx.all; }

ir_rx ir_rx_class(ir *g, const ir_range *r, size_t n, bool negate) {
    return rx_class(&g->rx, (const rx_range *)r, n, negate);
}
_Static_assert(sizeof(ir_range) == sizeof(rx_range), "one layout");

ir_rx ir_rx_cat(ir *g, ir_rx a, ir_rx b) { return rx_cat(&g->rx, valid(g, a), valid(g, b)); }
ir_rx ir_rx_alt(ir *g, ir_rx a, ir_rx b) { return rx_alt(&g->rx, valid(g, a), valid(g, b)); }

ir_rx ir_rx_alt_n(ir *g, const ir_rx *list, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (valid(g, list[i]) != list[i]) return RX_NONE;
    return rx_alt_n(&g->rx, list, n);
}

ir_rx ir_rx_and(ir *g, ir_rx a, ir_rx b) { return rx_and(&g->rx, valid(g, a), valid(g, b)); }

ir_rx ir_rx_not(ir *g, ir_rx a) { return rx_and(&g->rx, g->rx.all, rx_not(&g->rx, valid(g, a))); }

ir_rx ir_rx_opt(ir *g, ir_rx a) { return rx_alt(&g->rx, RX_EPS, valid(g, a)); }

ir_rx ir_rx_repeat(ir *g, ir_rx a, uint32_t min, int64_t max) {
    if (max >= RX_INF || min == RX_INF) {
        ir_fail(g, ERR_LIMIT, "the repetition count %lld is too large", (long long)max);
        return RX_NONE;
    }
    return rx_repeat(&g->rx, valid(g, a), min, max < 0 ? RX_INF : (uint32_t)max);
}

ir_rx ir_rx_multiple(ir *g, uint32_t step, uint32_t frac) { return rx_multiple(&g->rx, step, 0, 0, frac); }

ir_rx ir_rx_json_string(ir *g, ir_rx text) {
    return rx_cat(&g->rx, rx_bytes(&g->rx, "\"", 1), rx_json(&g->rx, valid(g, text), RX_JSON_ANY));
}

ir_rx ir_rx_json_plain(ir *g, ir_rx text) {
    return rx_cat(&g->rx, rx_bytes(&g->rx, "\"", 1), rx_json(&g->rx, valid(g, text), RX_JSON_PLAIN));
}

bool ir_rx_is_empty(ir *g, ir_rx a) { return rx_is_empty(&g->rx, valid(g, a)); }

bool ir_rx_matches(ir *g, ir_rx a, const void *bytes, size_t n) {
    const uint8_t *p = bytes;
    rx             at = valid(g, a);
    for (size_t i = 0; i < n && at != RX_NONE; i++) {
        rx_set same = { { ~(uint64_t)0, ~(uint64_t)0, ~(uint64_t)0, ~(uint64_t)0 } };
        at = rx_deriv(&g->rx, at, p[i], &same);
    }
    return rx_nullable(&g->rx, at) && !ir_error(g, NULL);
}

/* --- symbols --- */

static ir_sym symbol_add(ir *g, const ir_symbol *s) {
    if (ir_error(g, NULL)) return 0;
    if (g->n_syms == g->cap_syms) {
        size_t     cap = g->cap_syms ? g->cap_syms * 2 : 128;
        ir_symbol *p;
        if (g->n_syms >= MAX_SYMBOLS) {
            ir_fail(g, ERR_LIMIT, "the grammar is too large: more than %d symbols", MAX_SYMBOLS);
            return 0;
        }
        if (!(p = realloc(g->syms, cap * sizeof *p))) {
            ir_fail(g, ERR_NOMEM, "out of memory");
            return 0;
        }
        g->syms = p;
        g->cap_syms = cap;
    }
    g->syms[g->n_syms] = *s;
    return (ir_sym)g->n_syms++;
}

/* Looks an anonymous symbol up by its content; the key is copied when it is new. *found says which. */
static ir_sym known_symbol(ir *g, const void *key, size_t bytes, const ir_symbol *s, bool *found) {
    uint64_t    v;
    const char *copy;
    ir_sym      out;
    *found = map_get(&g->known, key, bytes, &v);
    if (*found) return (ir_sym)v;
    out = symbol_add(g, s);
    copy = arena_strndup(&g->mem, key, bytes);
    if (!copy || !map_put(&g->known, copy, bytes, (uint64_t)out)) ir_fail(g, ERR_NOMEM, "out of memory");
    return out;
}

ir_sym ir_terminal(ir *g, ir_rx a) {
    int32_t key[2] = { 't', valid(g, a) };
    bool    found;
    return known_symbol(g, key, sizeof key, &(ir_symbol){ .kind = IR_TERMINAL, .expr = key[1] }, &found);
}

ir_sym ir_rule(ir *g, const char *name) {
    return symbol_add(g, &(ir_symbol){ .kind = IR_RULE, .name = name ? arena_strdup(&g->mem, name) : NULL });
}

void ir_rule_alt(ir *g, ir_sym rule, const ir_sym *body, size_t n) {
    ir_body *b;
    if (ir_error(g, NULL) || !valid_symbol(g, rule)) return;
    if (g->syms[rule].kind != IR_RULE) {
        ir_fail(g, ERR_ARG, "alternatives belong to rules");
        return;
    }
    if (n > MAX_BODY) {
        ir_fail(g, ERR_LIMIT, "an alternative is too long: more than %d symbols", MAX_BODY);
        return;
    }
    for (size_t i = 0; i < n; i++)
        if (!valid_symbol(g, body[i])) return;
    if (!(b = arena_alloc(&g->mem, sizeof *b + n * sizeof *body))) {
        ir_fail(g, g->mem.at_limit ? ERR_LIMIT : ERR_NOMEM, "the grammar needs too much memory");
        return;
    }
    b->next = NULL;
    b->n = n;
    if (n) memcpy(b->list, body, n * sizeof *body);
    if (g->syms[rule].first)
        *g->syms[rule].last = b;
    else
        g->syms[rule].first = b;
    g->syms[rule].last = &b->next;
}

/* An anonymous rule with one alternative per symbol (kind 'a') or with one of all symbols (kind 's'). */
static ir_sym anonymous(ir *g, int32_t kind, const ir_sym *list, size_t n) {
    int32_t few[64], *key = few;
    ir_sym  out;
    bool    found;
    if (ir_error(g, NULL)) return 0;
    if (n > MAX_SYMBOLS) {
        ir_fail(g, ERR_LIMIT, "a list is too long");
        return 0;
    }
    if (n + 1 > 64 && !(key = malloc((n + 1) * sizeof *key))) {
        ir_fail(g, ERR_NOMEM, "out of memory");
        return 0;
    }
    key[0] = kind;
    if (n) memcpy(key + 1, list, n * sizeof *list);
    out = known_symbol(g, key, (n + 1) * sizeof *key, &(ir_symbol){ .kind = IR_RULE }, &found);
    if (!found && kind == 's') ir_rule_alt(g, out, list, n);
    for (size_t i = 0; !found && kind == 'a' && i < n; i++) ir_rule_alt(g, out, &list[i], 1);
    if (key != few) free(key);
    return out;
}

ir_sym ir_seq(ir *g, const ir_sym *list, size_t n) { return n == 1 ? list[0] : anonymous(g, 's', list, n); }
ir_sym ir_alt(ir *g, const ir_sym *list, size_t n) { return n == 1 ? list[0] : anonymous(g, 'a', list, n); }

ir_sym ir_opt(ir *g, ir_sym a) { return ir_alt(g, (ir_sym[]){ ir_seq(g, NULL, 0), a }, 2); }

ir_sym ir_repeat(ir *g, ir_sym a, uint32_t min, int64_t max) {
    bool found;
    if (max >= RX_INF || min == RX_INF) {
        ir_fail(g, ERR_LIMIT, "the repetition count %lld is too large", (long long)max);
        return 0;
    }
    if (!valid_symbol(g, a)) return 0;
    if (max >= 0 && min > (uint64_t)max) return ir_alt(g, NULL, 0);
    if (max == 0) return ir_seq(g, NULL, 0);
    if (min == 1 && max == 1) return a;
    uint32_t top = max < 0 ? RX_INF : (uint32_t)max;
    int32_t  key[4] = { 'r', a, (int32_t)min, (int32_t)top };
    return known_symbol(g, key, sizeof key, &(ir_symbol){ .kind = IR_REPEAT, .body = a, .min = min, .max = top },
                        &found);
}
