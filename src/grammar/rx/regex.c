/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ir_rx_parse: ECMA-262 patterns.
 *
 * The parser builds a small tree. Parts without assertions are expressions at once; where a part has some, the tree is
 * kept and turned into an expression together with everything that follows it, because an assertion speaks about what
 * follows: "$" leaves of the rest only the empty text, a lookahead intersects the rest. "^" needs to know whether
 * something was consumed before; the walk carries that as a flag, and splits a part that may be empty in two where the
 * rest contains a "^". A lookbehind is decided where the whole left side is known: in the outermost sequence.
 *
 * Lenient as browsers are without the u flag where that is unambiguous: an escaped punctuation character is itself, a
 * brace that begins no quantifier is a brace.
 */
#include "grammar/rx/regex_class.h"

#include "base/str.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_NESTING = 200, MAX_PATTERN = 1 << 18, MAX_WALK = 20000, MAX_WALK_DEPTH = 3000, MAX_UNROLL = 8 };

typedef enum kind { PLAIN, SEQ, ALT, REPEAT, CARET, DOLLAR, AHEAD, BEHIND } kind;

typedef struct node node;
struct node {
    kind     kind;
    rx       expr;                  /* of PLAIN */
    bool     caret, follow, behind; /* contains "^"; "$" or a lookahead; a lookbehind */
    bool     negative;
    uint32_t min, max;
    node    *child; /* first child, or the body */
    node    *next;  /* in the parent's list */
};

/* What follows a node: further nodes, and in the end an expression. */
typedef struct rest rest;
struct rest {
    const node *n; /* NULL: expr is all that follows */
    rx          expr;
    const rest *next;
    bool        caret;
};

static node *node_new(regex *p, kind k) {
    node *n = arena_calloc(&p->mem, 1, sizeof *n);
    if (!n) {
        regex_fail(p, p->mem.at_limit ? ERR_LIMIT : ERR_NOMEM, "the pattern needs too much memory");
        return NULL;
    }
    n->kind = k;
    return n;
}

static node *plain(regex *p, rx a) {
    node *n = node_new(p, PLAIN);
    if (n) n->expr = a;
    return n;
}

static bool asserts(const node *n) { return n->caret || n->follow || n->behind; }

static void inherit(node *n, const node *child) {
    n->caret |= child->caret;
    n->follow |= child->follow;
    n->behind |= child->behind;
}

static node *parse_alt(regex *p, int depth);

/* "(" was read. */
static node *parse_group(regex *p, int depth) {
    node *n = NULL, *body;
    kind  look = PLAIN;
    bool  negative = false;
    if (regex_take(p, '?')) {
        if (regex_take(p, ':')) {
        } else if (regex_take(p, '=') || regex_peek(p) == '!') {
            look = AHEAD;
            negative = regex_take(p, '!');
        } else if (regex_take(p, '<')) {
            if (regex_peek(p) == '=' || regex_peek(p) == '!') {
                look = BEHIND;
                negative = regex_take(p, '!');
                if (!negative) regex_take(p, '=');
            } else {
                while (p->at < p->len && p->text[p->at] != '>') p->at++;
                if (!regex_take(p, '>')) return regex_fail(p, ERR_FORMAT, "the name of a group is not closed");
            }
        } else {
            return regex_fail(p, ERR_UNSUPPORTED, "groups that begin with (?%.1s are not supported",
                              p->at < p->len ? p->text + p->at : "");
        }
    }
    if (!(body = parse_alt(p, depth + 1))) return NULL;
    if (!regex_take(p, ')')) return regex_fail(p, ERR_FORMAT, "a group is not closed");
    if (look == PLAIN) return body;
    if (!(n = node_new(p, look))) return NULL;
    n->child = body;
    n->negative = negative;
    inherit(n, body);
    if (look == AHEAD)
        n->follow = true;
    else
        n->behind = true;
    return n;
}

static node *parse_atom(regex *p, int depth) {
    node *n;
    rx    a;
    if (regex_take(p, '^')) {
        if ((n = node_new(p, CARET))) n->caret = true;
        return n;
    }
    if (regex_take(p, '$')) {
        if ((n = node_new(p, DOLLAR))) n->follow = true;
        return n;
    }
    if (regex_take(p, '(')) return parse_group(p, depth);
    return regex_atom(p, &a) ? plain(p, a) : NULL;
}

/* Reads {m}, {m,} or {m,n}; false and nothing read when it is none. */
static bool take_braces(regex *p, uint32_t *min, uint32_t *max) {
    size_t   at = p->at + 1;
    uint64_t v[2] = { 0, 0 };
    int      n = 0;
    bool     digits = false, comma = false;
    for (; at < p->len && p->text[at] != '}'; at++) {
        if (p->text[at] == ',' && !comma && digits) {
            comma = true;
            n = 1;
            digits = false;
        } else if (p->text[at] >= '0' && p->text[at] <= '9') {
            v[n] = v[n] * 10 + (uint64_t)(p->text[at] - '0');
            if (v[n] > 0x7FFFFFFF) v[n] = 0x7FFFFFFF;
            digits = true;
        } else {
            return false;
        }
    }
    if (at >= p->len || (!digits && !comma)) return false;
    p->at = at + 1;
    *min = (uint32_t)v[0];
    *max = !comma ? *min : digits ? (uint32_t)v[1] : RX_INF;
    return true;
}

static bool take_quantifier(regex *p, uint32_t *min, uint32_t *max) {
    *min = 0;
    *max = RX_INF;
    if (regex_take(p, '*')) return true;
    if (regex_take(p, '+')) {
        *min = 1;
        return true;
    }
    if (regex_take(p, '?')) {
        *max = 1;
        return true;
    }
    return regex_peek(p) == '{' && take_braces(p, min, max);
}

static node *parse_repeat(regex *p, int depth) {
    node    *n = parse_atom(p, depth), *r;
    uint32_t min, max;
    if (!n) return NULL;
    if (!take_quantifier(p, &min, &max)) return n;
    regex_take(p, '?'); /* lazy: the same texts */
    if (min > max) return regex_fail(p, ERR_FORMAT, "the numbers of a quantifier are in the wrong order");
    if (n->kind == CARET || n->kind == DOLLAR || n->kind == BEHIND)
        return regex_fail(p, ERR_FORMAT, "an assertion cannot be repeated");
    if (regex_peek(p) == '*' || regex_peek(p) == '+' || regex_peek(p) == '?')
        return regex_fail(p, ERR_FORMAT, "there is nothing to repeat");
    if (!asserts(n)) return plain(p, rx_repeat(p->rx, n->expr, min, max));
    if (!(r = node_new(p, REPEAT))) return NULL;
    r->child = n;
    r->min = min;
    r->max = max;
    inherit(r, n);
    return r;
}

/* Joins what has no assertions into one expression, from the right (concatenation is cheap that way). */
static node *seq_finish(regex *p, node **list, size_t n) {
    node *seq, **tail;
    bool  any = false;
    for (size_t i = 0; i < n; i++) any |= asserts(list[i]);
    if (!any) {
        rx all = RX_EPS;
        for (size_t i = n; i-- > 0;) all = rx_cat(p->rx, list[i]->expr, all);
        return plain(p, all);
    }
    if (!(seq = node_new(p, SEQ))) return NULL;
    tail = &seq->child;
    for (size_t i = 0; i < n; i++) {
        inherit(seq, list[i]);
        *tail = list[i];
        tail = &list[i]->next;
    }
    return seq;
}

static node *parse_seq(regex *p, int depth) {
    node **list = NULL, *out = NULL;
    size_t n = 0, cap = 0;
    while (p->at < p->len && regex_peek(p) != '|' && regex_peek(p) != ')') {
        node *x = parse_repeat(p, depth);
        if (!x) goto done;
        if (n == cap) {
            node **grown = realloc(list, (cap = cap ? cap * 2 : 16) * sizeof *list);
            if (!grown) {
                regex_fail(p, ERR_NOMEM, "out of memory");
                goto done;
            }
            list = grown;
        }
        list[n++] = x;
    }
    out = seq_finish(p, list, n);
done:
    free(list);
    return out;
}

static node *parse_alt(regex *p, int depth) {
    node  *first, *last, *alt;
    size_t n = 1;
    bool   any;
    if (depth > MAX_NESTING) return regex_fail(p, ERR_LIMIT, "groups are nested too deeply");
    if (!(first = last = parse_seq(p, depth))) return NULL;
    any = asserts(first);
    while (regex_take(p, '|')) {
        node *x = parse_seq(p, depth);
        if (!x) return NULL;
        last->next = x;
        last = x;
        any |= asserts(x);
        n++;
    }
    if (n == 1) return first;
    if (!any) {
        rx *list = malloc(n * sizeof *list), out;
        if (!list) return regex_fail(p, ERR_NOMEM, "out of memory");
        n = 0;
        for (node *x = first; x; x = x->next) list[n++] = x->expr;
        out = rx_alt_n(p->rx, list, n);
        free(list);
        return plain(p, out);
    }
    if (!(alt = node_new(p, ALT))) return NULL;
    alt->child = first;
    for (node *x = first; x; x = x->next) inherit(alt, x);
    return alt;
}

/* --- the tree with its assertions to an expression --- */

static rx go(regex *p, const node *n, const rest *r, bool start);

static rx go_rest(regex *p, const rest *r, bool start) {
    return r->n ? go(p, r->n, r->next, start && r->caret) : r->expr;
}

static rx go_plain(regex *p, rx a, const rest *r, bool start) {
    rx out;
    if (!start || !r->caret) return rx_cat(p->rx, a, go_rest(p, r, start && a == RX_EPS));
    out = rx_cat(p->rx, rx_and(p->rx, a, rx_not(p->rx, RX_EPS)), go_rest(p, r, false));
    if (rx_nullable(p->rx, a)) out = rx_alt(p->rx, out, go_rest(p, r, true));
    return out;
}

static rx go_seq(regex *p, const node *child, const rest *r, bool start) {
    rest here;
    if (!child) return go_rest(p, r, start);
    if (!child->next) return go(p, child, r, start);
    /* The siblings behind this one are a sequence of their own. */
    node behind = { .kind = SEQ, .child = child->next };
    for (const node *x = child->next; x; x = x->next) inherit(&behind, x);
    here = (rest){ .n = &behind, .next = r, .caret = behind.caret || r->caret };
    return go(p, child, &here, start);
}

static bool has_ahead(const node *n) {
    bool found = n->kind == AHEAD;
    for (const node *x = n->kind == PLAIN ? NULL : n->child; x && !found; x = x->next) found = has_ahead(x);
    return found;
}

/* A round that meets "$" is the last one that reads anything: rounds without it, then one that may have it. */
static rx go_rounds(regex *p, const node *n, const rest *r, bool start) {
    bool before = p->no_end;
    rx   round, out;
    p->no_end = true;
    round = go(p, n->child, &(rest){ .expr = RX_EPS }, false);
    p->no_end = before;
    round = rx_repeat(p->rx, round, n->min ? n->min - 1 : 0, n->max == RX_INF ? RX_INF : n->max - 1);
    out = rx_cat(p->rx, round, go(p, n->child, r, start));
    return n->min ? out : rx_alt(p->rx, out, go_rest(p, r, start));
}

static rx go_repeat(regex *p, const node *n, const rest *r, bool start) {
    node less = *n;
    rest here;
    rx   out = RX_NONE;
    if (n->max == 0) return go_rest(p, r, start);
    if (n->max > MAX_UNROLL && !n->caret && !n->behind && !r->caret && !has_ahead(n)) return go_rounds(p, n, r, start);
    if (n->max > MAX_UNROLL) {
        regex_fail(p, ERR_UNSUPPORTED, "an assertion inside a repeated group is not supported");
        return RX_NONE;
    }
    if (n->min == 0) out = go_rest(p, r, start);
    less.min = n->min ? n->min - 1 : 0;
    less.max = n->max - 1;
    here = (rest){ .n = &less, .next = r, .caret = n->caret || r->caret };
    return rx_alt(p->rx, out, go(p, n->child, &here, start));
}

static rx go_kind(regex *p, const node *n, const rest *r, bool start) {
    rx out = RX_NONE, k;
    switch (n->kind) {
    case PLAIN: return go_plain(p, n->expr, r, start);
    case SEQ: return go_seq(p, n->child, r, start);
    case REPEAT: return go_repeat(p, n, r, start);
    case CARET: return start ? go_rest(p, r, true) : RX_NONE;
    case DOLLAR: return !p->no_end && rx_nullable(p->rx, go_rest(p, r, start)) ? RX_EPS : RX_NONE;
    case ALT: {
        rest once = { .expr = RX_NONE };
        if (!r->caret) { /* the rest is the same for all of them */
            once.expr = go_rest(p, r, false);
            r = &once;
        }
        for (const node *x = n->child; x; x = x->next) out = rx_alt(p->rx, out, go(p, x, r, start));
        return out;
    }
    case AHEAD:
        k = go_rest(p, r, start);
        out = go(p, n->child, &(rest){ .expr = p->rx->all }, start);
        if (n->negative) out = rx_and(p->rx, p->rx->all, rx_not(p->rx, out));
        return rx_and(p->rx, k, out);
    case BEHIND:
        regex_fail(p, ERR_UNSUPPORTED, "a lookbehind inside a group or a lookahead is not supported");
        return RX_NONE;
    }
    return RX_NONE;
}

static rx go(regex *p, const node *n, const rest *r, bool start) {
    rx out;
    if (p->e_code) return RX_NONE;
    if (++p->walk > MAX_WALK || p->depth > MAX_WALK_DEPTH) {
        regex_fail(p, ERR_LIMIT, "the pattern's assertions are too complex");
        return RX_NONE;
    }
    p->depth++;
    out = go_kind(p, n, r, start);
    p->depth--;
    return out;
}

/* The texts in which n matches at the front (or anywhere, when searching), followed by `follow`. */
static rx whole(regex *p, const node *n, rx follow, bool search) {
    rest end = { .expr = follow };
    rx   out;
    if (search && !n->caret) return rx_cat(p->rx, p->rx->all, go(p, n, &end, false));
    out = go(p, n, &end, true);
    if (search) out = rx_alt(p->rx, out, rx_cat(p->rx, rx_repeat(p->rx, p->rx->any, 1, RX_INF), go(p, n, &end, false)));
    return out;
}

/* One alternative of the outermost level. With a lookbehind: what is left of it, cut with "ends in ...", then the rest.
 */
static rx branch(regex *p, const node *n, bool search) {
    rx          follow = search ? p->rx->all : RX_EPS, left, behind;
    node        before = { .kind = SEQ }, after = { .kind = SEQ }, *copy, **tail = &before.child;
    const node *x, *look = NULL;
    if (!n->behind) return whole(p, n, follow, search);
    before.child = NULL;
    for (x = n->kind == SEQ ? n->child : n; x; x = n->kind == SEQ ? x->next : NULL)
        if (x->kind == BEHIND) look = x; /* the last one */
    if (!look) {
        regex_fail(p, ERR_UNSUPPORTED, "a lookbehind inside a group is not supported");
        return RX_NONE;
    }
    for (x = n->kind == SEQ ? n->child : look; x != look; x = x->next) {
        if (!(copy = node_new(p, x->kind))) return RX_NONE;
        *copy = *x;
        copy->next = NULL;
        inherit(&before, x);
        *tail = copy;
        tail = &copy->next;
    }
    if (n->kind == SEQ) after.child = look->next;
    for (x = after.child; x; x = x->next) inherit(&after, x);
    if (before.follow || before.behind || after.caret || after.behind || asserts(look->child)) {
        regex_fail(p, ERR_UNSUPPORTED, "a lookbehind together with this assertion is not supported");
        return RX_NONE;
    }
    left = whole(p, &before, RX_EPS, search);
    behind = rx_cat(p->rx, p->rx->all, look->child->expr);
    if (look->negative) behind = rx_and(p->rx, p->rx->all, rx_not(p->rx, behind));
    left = rx_and(p->rx, left, behind);
    return rx_cat(p->rx, left, go(p, &after, &(rest){ .expr = follow }, false));
}

int ir_rx_parse(ir *g, const char *pattern, size_t n, unsigned flags, ir_rx *out, err *e) {
    bool  search = (flags & IR_RX_SEARCH) != 0;
    regex p = { .rx = &g->rx, .text = pattern, .len = n, .e = e };
    node *root;
    rx    a = RX_NONE;
    int   rc = ir_error(g, e);
    *out = RX_NONE;
    if (rc < 0) return rc;
    if (n > MAX_PATTERN) return err_set(e, ERR_LIMIT, "a pattern of %zu bytes is too long", n);
    arena_init(&p.mem, (size_t)64 << 20);
    if ((root = parse_alt(&p, 0)) && p.at < p.len) root = regex_fail(&p, ERR_FORMAT, "there is a ')' without a '('");
    if (root && root->kind == ALT)
        for (const node *x = root->child; x; x = x->next) a = rx_alt(p.rx, a, branch(&p, x, search));
    else if (root)
        a = branch(&p, root, search);
    arena_deinit(&p.mem);
    if (p.e_code) return p.e_code;
    *out = a;
    return ir_error(g, e);
}
