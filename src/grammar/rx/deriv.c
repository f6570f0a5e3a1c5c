/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Derivatives and emptiness of rx.h.
 *
 * A derivative also says for which other bytes it would be the same, so that an automaton's row is filled with as many
 * derivatives as the row has different entries. The sets are sound, not always the largest.
 *
 * The decoder of RX_K_JSON is a state in 32 bits: mode in bits 0-3, hex digits read in 4-7, their value in 8-19, the
 * ten bits of a high surrogate in 20-29, RX_JSON_PLAIN in 30. Escapes that spell half a surrogate pair decode to no
 * text and are not accepted. A plain literal escapes what it must: quote, backslash and control characters, these by
 * their letter where they have one.
 */
#include "grammar/rx/rx.h"

#include "base/str.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_SEARCH = 20000, MAX_SEARCH_STEPS = 1000000, MAX_DERIV_DEPTH = 1500 };

enum { J_TEXT, J_ESCAPE, J_HEX, J_LOW_ESCAPE, J_LOW_U, J_LOW_HEX };

static uint32_t j_state(uint32_t mode, uint32_t digits, uint32_t value, uint32_t high) {
    return mode | digits << 4 | value << 8 | high << 20;
}

static const rx_set continuation = { { 0, 0, ~(uint64_t)0, 0 } };

static void keep_range(rx_set *same, unsigned first, unsigned last) {
    rx_set s = { 0 };
    rx_set_add_range(&s, first, last);
    rx_set_keep(same, &s, true);
}

static void keep_one(rx_set *same, uint8_t b) {
    *same = (rx_set){ 0 };
    rx_set_add(same, b);
}

static bool class_covers(const rx_store *s, const rx_node *t, uint32_t first, uint32_t last) {
    const rx_range *r = (const rx_range *)(s->data + t->data);
    for (uint32_t i = 0; i < t->n; i++)
        if (r[i].first <= first && last <= r[i].last) return true;
    return false;
}

/* The bytes below 128, or the continuation bytes, that the ranges hold. */
static rx_set class_bytes(const rx_store *s, const rx_node *t, unsigned offset, unsigned limit) {
    const rx_range *r = (const rx_range *)(s->data + t->data);
    rx_set          set = { 0 };
    for (uint32_t i = 0; i < t->n && r[i].first < limit; i++)
        rx_set_add_range(&set, r[i].first + offset, (r[i].last < limit ? r[i].last : limit - 1) + offset);
    return set;
}

static rx class_lead_deriv(rx_store *s, rx a, uint8_t b, rx_set *same) {
    const rx_node *t = rx_get(s, a);
    uint32_t       base, first, span, missing;
    if (b < 0xC2 || b > 0xF4) {
        rx_set bad = { 0 };
        rx_set_add_range(&bad, 0x80, 0xC1);
        rx_set_add_range(&bad, 0xF5, 0xFF);
        rx_set_keep(same, &bad, true);
        return RX_NONE;
    }
    if (b < 0xE0) {
        base = (b & 0x1Fu) << 6, span = 64, missing = 1, first = base;
        if (class_covers(s, t, 0x80, 0x7FF))
            keep_range(same, 0xC2, 0xDF);
        else
            keep_one(same, b);
    } else if (b < 0xF0) {
        base = (b & 0xFu) << 12, span = 4096, missing = 2, first = b == 0xE0 ? 0x800 : base;
        if (b != 0xE0 && b < 0xED && class_covers(s, t, 0x1000, 0xCFFF))
            keep_range(same, 0xE1, 0xEC);
        else if (b >= 0xEE && class_covers(s, t, 0xE000, 0xFFFF))
            keep_range(same, 0xEE, 0xEF);
        else
            keep_one(same, b);
    } else {
        base = (b & 7u) << 18, span = 1 << 18, missing = 3, first = b == 0xF0 ? 0x10000 : base;
        if (b != 0xF0 && b != 0xF4 && class_covers(s, t, 0x40000, 0xFFFFF))
            keep_range(same, 0xF1, 0xF3);
        else
            keep_one(same, b);
    }
    return rx_class_part(s, a, first, base + span - 1, base, missing);
}

static rx class_deriv(rx_store *s, rx a, uint8_t b, rx_set *same) {
    const rx_node *t = rx_get(s, a);
    uint32_t       missing = t->a, span;
    if (missing == 0 && b < 0x80) {
        rx_set set = class_bytes(s, t, 0, 0x80);
        bool   has = rx_set_has(&set, b);
        rx_set_keep(same, &set, has);
        if (!has) keep_range(same, 0, 0x7F);
        return has ? RX_EPS : RX_NONE;
    }
    if (missing == 0) return class_lead_deriv(s, a, b, same);
    if (b < 0x80 || b > 0xBF) {
        rx_set_keep(same, &continuation, false);
        return RX_NONE;
    }
    rx_set_keep(same, &continuation, true);
    if (missing == 1) {
        rx_set set = class_bytes(s, t, 0x80, 64);
        bool   has = rx_set_has(&set, b);
        rx_set_keep(same, &set, has);
        return has ? RX_EPS : RX_NONE;
    }
    span = 1u << (6 * (missing - 1));
    if (!class_covers(s, t, 0, (1u << (6 * missing)) - 1)) keep_one(same, b);
    return rx_class_part(s, a, (b & 0x3Fu) * span, (b & 0x3Fu) * span + span - 1, (b & 0x3Fu) * span, missing - 1);
}

static rx code_point_deriv(rx_store *s, rx a, unsigned c) {
    char     text[4];
    unsigned n = 0;
    if (c < 0x80)
        text[n++] = (char)c;
    else if (c < 0x800) {
        text[n++] = (char)(0xC0 | c >> 6);
        text[n++] = (char)(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
        text[n++] = (char)(0xE0 | c >> 12);
        text[n++] = (char)(0x80 | (c >> 6 & 0x3F));
        text[n++] = (char)(0x80 | (c & 0x3F));
    } else {
        text[n++] = (char)(0xF0 | c >> 18);
        text[n++] = (char)(0x80 | (c >> 12 & 0x3F));
        text[n++] = (char)(0x80 | (c >> 6 & 0x3F));
        text[n++] = (char)(0x80 | (c & 0x3F));
    }
    for (unsigned i = 0; i < n && a != RX_NONE; i++) {
        rx_set same = { { ~(uint64_t)0, ~(uint64_t)0, ~(uint64_t)0, ~(uint64_t)0 } };
        a = rx_deriv(s, a, (uint8_t)text[i], &same);
    }
    return a;
}

static rx json_text_deriv(rx_store *s, rx text, uint32_t plain, uint8_t b, rx_set *same) {
    static const rx_set special = { { 0xFFFFFFFFu | (uint64_t)1 << '"', (uint64_t)1 << ('\\' - 64), 0, 0 } };
    rx                  out;
    if (b < 0x20) {
        keep_range(same, 0, 0x1F);
        return RX_NONE;
    }
    if (b == '"') {
        keep_one(same, b);
        return rx_nullable(s, text) ? RX_EPS : RX_NONE;
    }
    if (b == '\\') {
        keep_one(same, b);
        /* An escape spells a whole character, so it cannot begin inside one. */
        if (rx_get(s, text)->max_len == 0 || !(rx_get(s, text)->flags & RX_F_TEXT)) return RX_NONE;
        return rx_json(s, text, plain | J_ESCAPE);
    }
    out = rx_deriv(s, text, b, same);
    rx_set_keep(same, &special, false);
    return rx_json(s, out, plain | J_TEXT);
}

/* The one class that the next character comes from, whatever follows it; RX_NONE: there is no such class. */
static rx next_class(const rx_store *s, rx text) {
    const rx_node *t = rx_get(s, text);
    if (t->kind == RX_K_CAT) {
        t = rx_get(s, (rx)t->a);
        if (t->kind == RX_K_CLASS) return (rx)rx_get(s, text)->a;
        if (t->flags & RX_F_NULLABLE) return RX_NONE;
    }
    if (t->kind != RX_K_REPEAT) return RX_NONE;
    return rx_get(s, (rx)t->a)->kind == RX_K_CLASS ? (rx)t->a : RX_NONE;
}

/*
 * A half-read escape. Where every character that it may still become is as good as any other, the value is replaced by
 * the first one of which that is true, so that a text of free characters has a few such states and not thousands.
 */
static rx json_half(rx_store *s, rx text, uint32_t mode, uint32_t digits, uint32_t value, uint32_t high) {
    rx class = next_class(s, text);
    uint32_t shift = 4 * (4 - digits), lo = value << shift, hi = lo + (1u << shift) - 1;
    if (class == RX_NONE || rx_get(s, class)->a != 0) return rx_json(s, text, j_state(mode, digits, value, high));
    if (mode == J_HEX && digits > 0 && (hi < 0xD800 || lo > 0xDFFF) && class_covers(s, rx_get(s, class), lo, hi)) {
        for (uint32_t first = 0; first < value; first++) {
            if (!class_covers(s, rx_get(s, class), first << shift, ((first + 1) << shift) - 1)) continue;
            value = first;
            break;
        }
    } else if (class_covers(s, rx_get(s, class), 0x10000, 0x10FFFF)) {
        if (mode == J_HEX && digits > 1 && lo >= 0xD800 && hi <= 0xDBFF) value = digits == 2 ? 0xD8 : 0xD80;
        if (mode == J_LOW_HEX && digits > 1) value = digits == 2 ? 0xDC : 0xDC0;
        high = 0;
    }
    return rx_json(s, text, j_state(mode, digits, value, high));
}

static rx json_escape_deriv(rx_store *s, rx text, uint32_t plain, uint8_t b, rx_set *same) {
    static const char from[] = "\"\\/bfnrtu", to[] = "\"\\/\b\f\n\r\t";
    const char       *p = b ? strchr(from, b) : NULL;
    if (plain && b == '/') {
        keep_one(same, b);
        return RX_NONE;
    }
    if (!p) {
        rx_set known = { 0 };
        for (const char *q = from; *q; q++) rx_set_add(&known, (uint8_t)*q);
        rx_set_keep(same, &known, false);
        return RX_NONE;
    }
    keep_one(same, b);
    if (b == 'u') return rx_json(s, text, plain | J_HEX);
    return rx_json(s, code_point_deriv(s, text, (unsigned char)to[p - from]), plain | J_TEXT);
}

/* A control character that has no letter: the only ones that a plain literal spells by their number. */
static rx json_plain_hex(rx_store *s, rx text, uint32_t digits, uint32_t value) {
    if (value > (digits < 3 ? 0u : digits == 3 ? 1u : 0x1Fu)) return RX_NONE;
    if (digits < 4) return rx_json(s, text, RX_JSON_PLAIN | j_state(J_HEX, digits, value, 0));
    if (value && strchr("\b\f\n\r\t", (int)value)) return RX_NONE;
    return rx_json(s, code_point_deriv(s, text, value), RX_JSON_PLAIN | J_TEXT);
}

static rx json_hex_deriv(rx_store *s, rx text, uint32_t state, uint8_t b, rx_set *same) {
    uint32_t mode = state & 15, digits = state >> 4 & 15, value = state >> 8 & 0xFFF, high = state >> 20 & 0x3FF, d;
    uint8_t  lower = b | 0x20;
    if (b >= '0' && b <= '9')
        d = b - '0';
    else if (lower >= 'a' && lower <= 'f')
        d = lower - 'a' + 10u;
    else {
        rx_set hex = { 0 };
        rx_set_add_range(&hex, '0', '9');
        rx_set_add_range(&hex, 'a', 'f');
        rx_set_add_range(&hex, 'A', 'F');
        rx_set_keep(same, &hex, false);
        return RX_NONE;
    }
    keep_one(same, b);
    value = value << 4 | d;
    if (state & RX_JSON_PLAIN) return json_plain_hex(s, text, digits + 1, value);
    if (mode == J_LOW_HEX && digits == 0 && value != 0xD) return RX_NONE;
    if (mode == J_LOW_HEX && digits == 1 && value < 0xDC) return RX_NONE;
    if (mode == J_HEX && digits == 1 && value >= 0xDC && value <= 0xDF) return RX_NONE;
    if (digits < 3) return json_half(s, text, mode, digits + 1, value, high);
    if (mode == J_LOW_HEX)
        return rx_json(s, code_point_deriv(s, text, 0x10000 + (high << 10) + (value & 0x3FF)), J_TEXT);
    if (value >= 0xD800 && value <= 0xDBFF) return json_half(s, text, J_LOW_ESCAPE, 0, 0, value & 0x3FF);
    return rx_json(s, code_point_deriv(s, text, value), J_TEXT);
}

static rx json_deriv(rx_store *s, rx text, uint32_t state, uint8_t b, rx_set *same) {
    uint32_t mode = state & 15, high = state >> 20 & 0x3FF, plain = state & RX_JSON_PLAIN;
    switch (mode) {
    case J_TEXT: return json_text_deriv(s, text, plain, b, same);
    case J_ESCAPE: return json_escape_deriv(s, text, plain, b, same);
    case J_LOW_ESCAPE:
    case J_LOW_U:
        if (b != (mode == J_LOW_U ? 'u' : '\\')) {
            rx_set one = { 0 };
            rx_set_add(&one, mode == J_LOW_U ? 'u' : '\\');
            rx_set_keep(same, &one, false);
            return RX_NONE;
        }
        keep_one(same, b);
        return json_half(s, text, mode == J_LOW_U ? J_LOW_HEX : J_LOW_U, 0, 0, high);
    default: return json_hex_deriv(s, text, state, b, same);
    }
}

/* A union's parts; small ones on the stack. */
typedef struct parts {
    rx    *v;
    size_t n, cap;
    rx     few[16];
} parts;

static bool parts_push(rx_store *s, parts *p, rx a) {
    if (a == RX_NONE) return true;
    if (p->n == p->cap) {
        size_t cap = p->cap * 4;
        rx    *v = p->v == p->few ? malloc(cap * sizeof *v) : realloc(p->v, cap * sizeof *v);
        if (!v) {
            rx_store_fail(s, ERR_NOMEM, "");
            return false;
        }
        if (p->v == p->few) memcpy(v, p->few, sizeof p->few);
        p->v = v;
        p->cap = cap;
    }
    p->v[p->n++] = a;
    return true;
}

static rx cat_deriv(rx_store *s, rx a, uint8_t b, rx_set *same) {
    parts p = { .n = 0, .cap = 16 };
    rx    out;
    p.v = p.few;
    while (rx_get(s, a)->kind == RX_K_CAT) {
        rx head = (rx)rx_get(s, a)->a, rest = (rx)rx_get(s, a)->b;
        if (!parts_push(s, &p, rx_cat(s, rx_deriv(s, head, b, same), rest))) break;
        if (!rx_nullable(s, head)) {
            a = RX_NONE;
            break;
        }
        a = rest;
    }
    if (a != RX_NONE) parts_push(s, &p, rx_deriv(s, a, b, same));
    out = p.n == 1 ? p.v[0] : rx_alt_n(s, p.v, p.n);
    if (p.v != p.few) free(p.v);
    return out;
}

static rx list_deriv(rx_store *s, rx a, uint8_t b, rx_set *same) {
    bool     both = rx_get(s, a)->kind == RX_K_AND;
    uint32_t n = rx_get(s, a)->n;
    parts    p = { .n = 0, .cap = 16 };
    rx       out = RX_NONE;
    p.v = p.few;
    for (uint32_t i = 0; i < n; i++) {
        rx d = rx_deriv(s, rx_kids(s, a)[i], b, same);
        if ((both && d == RX_NONE) || !parts_push(s, &p, d)) goto done;
    }
    out = both ? rx_and_n(s, p.v, p.n) : p.n == 1 ? p.v[0] : rx_alt_n(s, p.v, p.n);
done:
    if (p.v != p.few) free(p.v);
    return out;
}

static rx multiple_deriv(rx_store *s, const rx_node *t, uint8_t b, rx_set *same) {
    uint32_t step = t->a, phase = t->min, frac = t->max;
    if (b == '.' || (b >= '0' && b <= '9')) {
        keep_one(same, b);
    } else {
        rx_set digits = { 0 };
        rx_set_add_range(&digits, '0', '9');
        rx_set_add(&digits, '.');
        rx_set_keep(same, &digits, false);
        return RX_NONE;
    }
    if (b == '.') return phase == 1 && frac ? rx_multiple(s, step, t->b, 2, frac) : RX_NONE;
    if (phase == 2 && !frac) return RX_NONE;
    return rx_multiple(s, step, (uint32_t)(((uint64_t)t->b * 10 + (uint64_t)(b - '0')) % step), phase ? phase : 1,
                       phase == 2 ? frac - 1 : frac);
}

rx rx_deriv(rx_store *s, rx a, uint8_t b, rx_set *same) {
    const rx_node *t = rx_get(s, a);
    rx             out = RX_NONE;
    bool           has;
    if (++s->steps > s->steps_limit || ++s->depth > MAX_DERIV_DEPTH) {
        rx_store_fail(s, ERR_LIMIT, "a pattern is too complex");
        if (s->steps <= s->steps_limit) s->depth--;
        return RX_NONE;
    }
    switch ((rx_kind)t->kind) {
    case RX_K_NONE:
    case RX_K_EPS: break;
    case RX_K_SET:
        has = rx_set_has((const rx_set *)(s->data + t->data), b);
        rx_set_keep(same, (const rx_set *)(s->data + t->data), has);
        out = has ? RX_EPS : RX_NONE;
        break;
    case RX_K_CLASS: out = class_deriv(s, a, b, same); break;
    case RX_K_LIT: {
        uint8_t first = s->data[t->data];
        if (first == b) {
            keep_one(same, b);
            out = rx_bytes(s, s->data + t->data + 1, t->n - 1);
        } else {
            same->w[first >> 6] &= ~((uint64_t)1 << (first & 63));
        }
        break;
    }
    case RX_K_CAT: out = cat_deriv(s, a, b, same); break;
    case RX_K_ALT:
    case RX_K_AND: out = list_deriv(s, a, b, same); break;
    case RX_K_NOT: out = rx_not(s, rx_deriv(s, (rx)t->a, b, same)); break;
    case RX_K_REPEAT: {
        rx       body = (rx)t->a;
        uint32_t min = t->min ? t->min - 1 : 0, max = t->max == RX_INF ? RX_INF : t->max - 1;
        rx       d = rx_deriv(s, body, b, same);
        if (d != RX_NONE) out = rx_cat(s, d, rx_repeat(s, body, min, max));
        break;
    }
    case RX_K_JSON: out = json_deriv(s, (rx)t->a, t->min, b, same); break;
    case RX_K_MULTIPLE: out = multiple_deriv(s, t, b, same); break;
    }
    s->depth--;
    return out;
}

/* Nodes seen by one search, with the one each was reached from. */
typedef struct search {
    rx       *node;
    uint32_t *from;
    uint32_t  n, cap;
    int32_t  *table; /* index + 1 */
    uint32_t  table_cap;
} search;

static bool search_grow(search *q) {
    uint32_t  cap = q->cap ? q->cap * 4 : 64;
    rx       *node = realloc(q->node, cap * sizeof *node);
    uint32_t *from;
    int32_t  *table;
    if (node) q->node = node;
    from = realloc(q->from, cap * sizeof *from);
    if (from) q->from = from;
    table = calloc((size_t)cap * 2, sizeof *table);
    if (!node || !from || !table) {
        free(table);
        return false;
    }
    free(q->table);
    q->table = table;
    q->table_cap = cap * 2;
    q->cap = cap;
    for (uint32_t i = 0; i < q->n; i++) {
        uint32_t at = (uint32_t)q->node[i] * 2654435761u & (q->table_cap - 1);
        while (table[at]) at = (at + 1) & (q->table_cap - 1);
        table[at] = (int32_t)i + 1;
    }
    return true;
}

/* 1: new, 0: known, -1: no memory. */
static int search_add(search *q, rx a, uint32_t from) {
    uint32_t at;
    if (q->n == q->cap && !search_grow(q)) return -1;
    for (at = (uint32_t)a * 2654435761u & (q->table_cap - 1); q->table[at]; at = (at + 1) & (q->table_cap - 1))
        if (q->node[q->table[at] - 1] == a) return 0;
    q->table[at] = (int32_t)q->n + 1;
    q->node[q->n] = a;
    q->from[q->n++] = from;
    return 1;
}

/* Answers without a search: -1 when there is none. */
static int empty_known(const rx_node *t, rx a) {
    if (a == RX_NONE || (t->flags & RX_F_EMPTY)) return 1;
    if (!(t->flags & RX_F_UNSURE) || (t->flags & RX_F_NONEMPTY)) return 0;
    return -1;
}

/* The last entry becomes the one with the least to read; the others keep their order. */
static void nearest_last(const rx_store *s, const search *q, uint32_t *stack, uint32_t n) {
    uint32_t best = n - 1, x;
    for (uint32_t i = 0; i < n; i++)
        if (rx_get(s, q->node[stack[i]])->min_len < rx_get(s, q->node[stack[best]])->min_len) best = i;
    x = stack[best];
    memmove(stack + best, stack + best + 1, (n - 1 - best) * sizeof *stack);
    stack[n - 1] = x;
}

/*
 * Depth first through derivatives, nearest first, until one is known to match something. What lies on the way to it is
 * not empty either; when nothing is found, everything seen is empty.
 */
static bool empty_search(rx_store *s, rx a) {
    search    q = { 0 };
    uint32_t *stack = NULL, n_stack = 0;
    bool      empty = true, ok = search_add(&q, a, 0) == 1;
    uint64_t  limit = s->steps + MAX_SEARCH_STEPS;
    if (ok) stack = malloc((MAX_SEARCH + 512) * sizeof *stack);
    ok = ok && stack;
    if (ok) stack[n_stack++] = 0;
    while (ok && n_stack && empty && !s->error.code) {
        uint32_t at = stack[--n_stack], below = n_stack;
        rx       from = q.node[at];
        rx_set   left = { { ~(uint64_t)0, ~(uint64_t)0, ~(uint64_t)0, ~(uint64_t)0 } };
        for (int w = 0; w < 4 && empty && ok;) {
            rx_set  same = { { ~(uint64_t)0, ~(uint64_t)0, ~(uint64_t)0, ~(uint64_t)0 } };
            uint8_t b;
            rx      d;
            int     added;
            if (!left.w[w]) {
                w++;
                continue;
            }
            b = (uint8_t)(w * 64 + __builtin_ctzll(left.w[w]));
            d = rx_deriv(s, from, b, &same);
            rx_set_keep(&left, &same, false);
            left.w[w] &= ~((uint64_t)1 << (b & 63));
            if (d == RX_NONE) continue;
            if (empty_known(rx_get(s, d), d) == 0) {
                empty = false;
                for (uint32_t i = at;; i = q.from[i]) {
                    s->nodes[q.node[i]].flags |= RX_F_NONEMPTY;
                    if (i == 0) break;
                }
                break;
            }
            if (empty_known(rx_get(s, d), d) == 1) continue;
            if ((added = search_add(&q, d, at)) < 0) ok = false;
            if (added == 1) stack[n_stack++] = q.n - 1;
            if (q.n >= MAX_SEARCH || s->steps > limit) {
                rx_store_fail(s, ERR_LIMIT, "a pattern is too complex: the search for a matching text took too long");
                ok = false;
            }
        }
        if (n_stack > below + 1) nearest_last(s, &q, stack + below, n_stack - below);
    }
    if (!ok) rx_store_fail(s, ERR_NOMEM, "");
    if (ok && empty && !s->error.code)
        for (uint32_t i = 0; i < q.n; i++) s->nodes[q.node[i]].flags |= RX_F_EMPTY;
    else
        empty = false;
    free(q.node);
    free(q.from);
    free(q.table);
    free(stack);
    return empty;
}

/* The same of a plain literal. */
static size_t plain_ranges(uint32_t mode, uint32_t digits, uint32_t value, rx_range *out) {
    static const rx_range escaped[] = { { 0, 0x1F }, { '"', '"' }, { '\\', '\\' } };
    static const rx_range numbered[2][3] = { { { 0, 7 }, { 0xB, 0xB }, { 0xE, 0xF } }, { { 0x10, 0x1F } } };
    size_t                n = 0;
    if (mode == J_ESCAPE) {
        memcpy(out, escaped, sizeof escaped);
        return 3;
    }
    if (digits < 3 || value == 0) {
        memcpy(out, numbered[0], sizeof numbered[0]);
        n = 3;
    }
    if (digits < 3 || value == 1) out[n++] = numbered[1][0];
    return n;
}

/* The code points that a half-read escape may still become. A search through its spellings would visit a million. */
static size_t escape_ranges(uint32_t state, rx_range *out) {
    uint32_t mode = state & 15, digits = state >> 4 & 15, value = state >> 8 & 0xFFF, high = state >> 20 & 0x3FF;
    uint32_t shift = 4 * (4 - digits), first = value << shift, last = ((value + 1) << shift) - 1;
    size_t   n = 0;
    if (state & RX_JSON_PLAIN) return plain_ranges(mode, digits, value, out);
    if (mode == J_ESCAPE) {
        out[n++] = (rx_range){ 0, 0xD7FF };
        out[n++] = (rx_range){ 0xE000, 0x10FFFF };
        return n;
    }
    if (mode != J_HEX) { /* the second half of a pair */
        uint32_t base = 0x10000 + (high << 10);
        if (mode != J_LOW_HEX) first = 0xDC00, last = 0xDFFF;
        if (first < 0xDC00) first = 0xDC00;
        if (last > 0xDFFF) last = 0xDFFF;
        if (first <= last) out[n++] = (rx_range){ base + first - 0xDC00, base + last - 0xDC00 };
        return n;
    }
    if (first < 0xD800) out[n++] = (rx_range){ first, last < 0xD800 ? last : 0xD7FF };
    if (last > 0xDFFF) out[n++] = (rx_range){ first > 0xDFFF ? first : 0xE000, last };
    if (first < 0xD800) first = 0xD800;
    if (last > 0xDBFF) last = 0xDBFF;
    if (first <= last)
        out[n++] = (rx_range){ 0x10000 + ((first - 0xD800) << 10), 0x10000 + ((last - 0xD800) << 10) + 0x3FF };
    return n;
}

bool rx_is_empty(rx_store *s, rx a) {
    const rx_node *t = rx_get(s, a);
    int            known = empty_known(t, a);
    bool           empty;
    if (known >= 0) return known == 1;
    if (++s->depth > MAX_DERIV_DEPTH) {
        rx_store_fail(s, ERR_LIMIT, "an expression is nested too deeply");
        s->depth--;
        return false;
    }
    switch ((rx_kind)t->kind) {
    case RX_K_CAT: {
        rx x = (rx)t->a, y = (rx)t->b;
        empty = rx_is_empty(s, x) || rx_is_empty(s, y);
        break;
    }
    case RX_K_REPEAT: empty = rx_is_empty(s, (rx)t->a); break; /* min > 0, or it would match the empty text */
    case RX_K_ALT: {
        uint32_t n = t->n;
        empty = true;
        for (uint32_t i = 0; i < n && empty; i++) empty = rx_is_empty(s, rx_kids(s, a)[i]);
        break;
    }
    case RX_K_JSON: /* every text has a spelling */
        if (rx_json_between(t->min)) {
            empty = rx_is_empty(s, (rx)t->a);
        } else {
            rx_range ranges[4];
            rx       text = (rx)t->a;
            size_t   n = escape_ranges(t->min, ranges);
            empty = n == 0 || rx_is_empty(s, rx_and(s, text, rx_cat(s, rx_class(s, ranges, n, false), s->all)));
        }
        break;
    default: empty = empty_search(s, a); break;
    }
    s->depth--;
    if (!s->error.code) s->nodes[a].flags |= empty ? RX_F_EMPTY : RX_F_NONEMPTY;
    return empty;
}
