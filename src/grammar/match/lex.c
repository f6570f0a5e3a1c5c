/* SPDX-License-Identifier: Apache-2.0 */
/* The terminals of a grammar as one automaton, built as it is used (automaton.h). */
#include "base/map.h"
#include "grammar/match/automaton.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_STATES = 1 << 18 };

static bool table_grow(grammar *g) {
    uint32_t cap = g->state_table_cap ? g->state_table_cap * 2 : 256;
    int32_t *t = calloc(cap, sizeof *t);
    if (!t) return false;
    for (uint32_t i = 1; i < g->n_states; i++) {
        uint32_t at = g->states[i].hash & (cap - 1);
        while (t[at]) at = (at + 1) & (cap - 1);
        t[at] = (int32_t)i;
    }
    free(g->state_table);
    g->state_table = t;
    g->state_table_cap = cap;
    return true;
}

static bool states_reserve(grammar *g) {
    if (g->n_states * 2 >= g->state_table_cap && !table_grow(g)) {
        rx_store_fail(&g->rx, ERR_NOMEM, "");
        return false;
    }
    if (g->n_states >= MAX_STATES) {
        rx_store_fail(&g->rx, ERR_LIMIT, "the grammar needs too many states (262144)");
        return false;
    }
    if (g->n_states == g->cap_states) {
        uint32_t   cap = g->cap_states ? g->cap_states * 2 : 64;
        lex_state *p = realloc(g->states, cap * sizeof *p);
        if (!p) {
            rx_store_fail(&g->rx, ERR_NOMEM, "");
            return false;
        }
        g->states = p;
        g->cap_states = cap;
    }
    if (g->n_states == 0) g->states[g->n_states++] = (lex_state){ 0 }; /* LEX_DEAD */
    return true;
}

static int32_t state_get(grammar *g, const lex_pair *pairs, uint32_t n) {
    uint64_t  h = hash_bytes(pairs, n * sizeof *pairs, n);
    uint32_t  at;
    lex_state s = { .n_pairs = n, .hash = (uint32_t)(h ^ h >> 32) };
    if (n == 0) return LEX_DEAD;
    if (g->rx.error.code || !states_reserve(g)) return LEX_DEAD;
    for (at = s.hash & (g->state_table_cap - 1); g->state_table[at]; at = (at + 1) & (g->state_table_cap - 1)) {
        const lex_state *o = &g->states[g->state_table[at]];
        if (o->hash == s.hash && o->n_pairs == n && memcmp(o->pairs, pairs, n * sizeof *pairs) == 0)
            return g->state_table[at];
    }
    for (uint32_t i = 0; i < n; i++) {
        s.n_accepts += rx_nullable(&g->rx, pairs[i].expr);
        s.moves |= pairs[i].expr != RX_EPS;
    }
    s.pairs = arena_alloc(&g->mem, n * sizeof *pairs);
    s.accepts = arena_alloc(&g->mem, (s.n_accepts + 1) * sizeof *s.accepts);
    if (!s.pairs || !s.accepts) {
        rx_store_fail(&g->rx, g->mem.at_limit ? ERR_LIMIT : ERR_NOMEM, "the grammar's states need too much memory");
        return LEX_DEAD;
    }
    memcpy(s.pairs, pairs, n * sizeof *pairs);
    s.n_accepts = 0;
    for (uint32_t i = 0; i < n; i++)
        if (rx_nullable(&g->rx, pairs[i].expr)) s.accepts[s.n_accepts++] = pairs[i].terminal;
    g->states[g->n_states] = s;
    g->state_table[at] = (int32_t)g->n_states;
    return (int32_t)g->n_states++;
}

static lex_pair *pairs_scratch(grammar *g, uint32_t n) {
    if (n > g->pair_scratch_cap) {
        lex_pair *p = realloc(g->pair_scratch, (n + 64) * sizeof *p);
        if (!p) {
            rx_store_fail(&g->rx, ERR_NOMEM, "");
            return NULL;
        }
        g->pair_scratch = p;
        g->pair_scratch_cap = n + 64;
    }
    return g->pair_scratch;
}

int32_t lex_start(grammar *g, const int32_t *terminals, uint32_t n) {
    lex_pair *pairs = pairs_scratch(g, n + 1);
    if (!pairs) return LEX_DEAD;
    for (uint32_t i = 0; i < n; i++) pairs[i] = (lex_pair){ terminals[i], g->terminals[terminals[i]] };
    return state_get(g, pairs, n);
}

int32_t lex_step_slow(grammar *g, int32_t state, uint8_t b) {
    rx_set    same = { { ~(uint64_t)0, ~(uint64_t)0, ~(uint64_t)0, ~(uint64_t)0 } };
    uint32_t  n = g->states[state].n_pairs, k = 0;
    lex_pair *pairs = pairs_scratch(g, n + 1);
    int32_t  *row, to;
    if (state == LEX_DEAD || !pairs) return LEX_DEAD;
    for (uint32_t i = 0; i < n; i++) {
        lex_pair p = g->states[state].pairs[i];
        rx       d = rx_deriv(&g->rx, p.expr, b, &same);
        if (d != RX_NONE && !rx_is_empty(&g->rx, d)) pairs[k++] = (lex_pair){ p.terminal, d };
    }
    if (g->rx.error.code) return LEX_DEAD;
    to = state_get(g, pairs, k);
    if (g->rx.error.code) return LEX_DEAD;
    if (!(row = g->states[state].row)) {
        if (!(row = arena_alloc(&g->mem, 256 * sizeof *row))) {
            rx_store_fail(&g->rx, g->mem.at_limit ? ERR_LIMIT : ERR_NOMEM, "the grammar's states need too much memory");
            return LEX_DEAD;
        }
        memset(row, 0xFF, 256 * sizeof *row);
        g->states[state].row = row;
    }
    for (int w = 0; w < 4; w++)
        for (uint64_t bits = same.w[w]; bits; bits &= bits - 1) row[w * 64 + __builtin_ctzll(bits)] = to;
    row[b] = to;
    return to;
}

int32_t lex_capped(grammar *g, int32_t state, uint32_t bytes) {
    uint32_t  n = g->states[state].n_pairs;
    lex_pair *pairs;
    bool      counted = false;
    int32_t   to = state;
    if (g->states[state].capped) return g->states[state].capped;
    for (uint32_t i = 0; i < n; i++)
        counted |= (rx_get(&g->rx, g->states[state].pairs[i].expr)->flags & RX_F_COUNTED) != 0;
    if (counted && (pairs = pairs_scratch(g, n + 1))) {
        for (uint32_t i = 0; i < n; i++) {
            lex_pair p = g->states[state].pairs[i];
            pairs[i] = (lex_pair){ p.terminal, rx_cap(&g->rx, p.expr, bytes + 1) };
        }
        to = state_get(g, pairs, n);
    }
    if (g->rx.error.code) return state;
    g->states[state].capped = to;
    return to;
}

/* --- plain characters --- */

typedef struct bounds {
    uint32_t all, most; /* in characters */
} bounds;

static uint32_t add_sat(uint32_t a, uint32_t b) { return a > RX_INF - b ? RX_INF : a + b; }

static uint32_t mul_sat(uint32_t a, uint32_t b) {
    uint64_t r = (uint64_t)a * b;
    if (a == 0 || b == 0) return 0;
    return a == RX_INF || b == RX_INF || r >= RX_INF ? RX_INF : (uint32_t)r;
}

/* Any plain character is a whole match. */
static bool takes_plain(const rx_store *s, rx a) {
    const rx_node *t = rx_get(s, a);
    if (t->kind == RX_K_CLASS) return (t->flags & RX_F_PLAIN) != 0;
    if (t->kind != RX_K_ALT) return false;
    for (uint32_t i = 0; i < t->n; i++)
        if (takes_plain(s, rx_kids(s, a)[i])) return true;
    return false;
}

static bool few_literals(const rx_store *s, rx a) {
    const rx_node *t = rx_get(s, a);
    if (t->kind == RX_K_LIT || t->kind == RX_K_EPS || t->kind == RX_K_SET) return true;
    if (t->kind != RX_K_ALT || t->n > 10000) return false;
    for (uint32_t i = 0; i < t->n; i++)
        if (!few_literals(s, rx_kids(s, a)[i]) || rx_get(s, rx_kids(s, a)[i])->kind == RX_K_ALT) return false;
    return true;
}

static bounds plain_bounds(const rx_store *s, rx a, int depth);

/*
 * "Anything of this form but these". When the form has no longest text and the exceptions do, a plain prefix goes on
 * beyond them. When the form has one, but there are few exceptions, a prefix that is not yet as long as allowed goes on
 * in more ways than there are exceptions.
 */
static bounds and_bounds(const rx_store *s, rx a, int depth) {
    const rx_node *t = rx_get(s, a);
    bounds         out = { RX_INF, RX_INF };
    uint32_t       positive = 0;
    bool           few = true, finite = true;
    for (uint32_t i = 0; i < t->n; i++) {
        const rx_node *k = rx_get(s, rx_kids(s, a)[i]);
        if (k->kind == RX_K_NOT) {
            few &= few_literals(s, (rx)k->a);
            finite &= rx_get(s, (rx)k->a)->max_len != RX_INF;
        } else {
            bounds b = plain_bounds(s, rx_kids(s, a)[i], depth);
            positive++;
            if (b.all < out.all) out.all = b.all;
            if (b.most < out.most) out.most = b.most;
        }
    }
    if (positive != 1 || !(out.all == RX_INF ? finite : few))
        out.all = 0;
    else if (out.all != RX_INF && out.all > 0)
        out.all--;
    return out;
}

static bounds plain_bounds(const rx_store *s, rx a, int depth) {
    const rx_node *t = rx_get(s, a);
    bounds         out = { 0, RX_INF }, b;
    if (depth == 0) return out;
    switch ((rx_kind)t->kind) {
    case RX_K_NONE:
    case RX_K_EPS: return (bounds){ 0, 0 };
    case RX_K_SET: return (bounds){ 0, 1 };
    case RX_K_CLASS: return (bounds){ takes_plain(s, a), 1 };
    case RX_K_LIT: return (bounds){ 0, t->n };
    case RX_K_REPEAT:
        b = plain_bounds(s, (rx)t->a, depth - 1);
        return (bounds){ takes_plain(s, (rx)t->a) ? t->max : 0, mul_sat(b.most, t->max) };
    case RX_K_CAT: {
        const rx_node *x = rx_get(s, (rx)t->a);
        bounds         y = plain_bounds(s, (rx)t->b, depth - 1);
        b = plain_bounds(s, (rx)t->a, depth - 1);
        out.most = add_sat(b.most, y.most);
        if (rx_get(s, (rx)t->b)->flags & RX_F_UNSURE) return out;
        out.all = b.all;
        if (x->kind == RX_K_CLASS && b.all == 1) out.all = add_sat(1, y.all);
        if (x->kind == RX_K_REPEAT && x->min == x->max && b.all == x->max) out.all = add_sat(b.all, y.all);
        if ((x->flags & RX_F_NULLABLE) && y.all > out.all) out.all = y.all;
        return out;
    }
    case RX_K_ALT:
        out.most = 0;
        for (uint32_t i = 0; i < t->n; i++) {
            rx kid = rx_kids(s, a)[i];
            b = plain_bounds(s, kid, depth - 1);
            if (b.all > out.all && !(rx_get(s, kid)->flags & RX_F_UNSURE)) out.all = b.all;
            if (b.most > out.most) out.most = b.most;
        }
        return out;
    case RX_K_AND: return and_bounds(s, a, depth - 1);
    case RX_K_NOT:
    case RX_K_MULTIPLE: return out;
    case RX_K_JSON: return rx_json_between(t->min) ? plain_bounds(s, (rx)t->a, depth - 1) : (bounds){ 0, RX_INF };
    }
    return out;
}

void lex_plain_bounds(const grammar *g, int32_t state, uint32_t *all, uint32_t *most) {
    const lex_state *s = &g->states[state];
    *all = *most = 0;
    for (uint32_t i = 0; i < s->n_pairs; i++) {
        rx             a = s->pairs[i].expr;
        const rx_node *t = rx_get(&g->rx, a);
        /* Inside a string literal no plain character ends it; elsewhere nothing is known about ends. */
        bool   json = t->kind == RX_K_JSON || (t->kind == RX_K_CAT && rx_get(&g->rx, (rx)t->a)->kind == RX_K_JSON);
        bounds b = { 0, RX_INF };
        if (json) {
            rx head = t->kind == RX_K_JSON ? a : (rx)t->a;
            b = plain_bounds(&g->rx, head, 12);
            if (head != a && (rx_get(&g->rx, (rx)t->b)->flags & RX_F_UNSURE)) b.all = 0;
        } else {
            b.all = plain_bounds(&g->rx, a, 12).all;
        }
        if (b.all > *all) *all = b.all;
        if (b.most > *most) *most = b.most;
    }
}
