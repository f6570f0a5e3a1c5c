/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the symbols of an ir to the tables of a grammar.
 *
 * What is regular and small becomes one terminal first: alternatives of terminals, and sequences of short ones. That
 * moves work from the recognizer to the automaton of the terminals. Rules with one alternative are written out where
 * they are used. Alternatives that can never match are left out, so every state that is reached can be completed.
 */
#include "grammar/compile.h"

#include "grammar/ir_impl.h"
#include "grammar/match/automaton.h"

#include <stdlib.h>
#include <string.h>

enum {
    MEMORY_LIMIT = 512 << 20,
    MAX_POSITIONS = 1 << 24,
    MAX_INLINE_DEPTH = 12,
    MAX_INLINE_LENGTH = 48,
    MAX_JOINED_BYTES = 256, /* of a sequence that becomes one terminal */
    MAX_FOLD_DEPTH = 64,
};

enum { UNKNOWN = 0, BUSY = 1, NOT_REGULAR = 2, REGULAR = 3 };

/* What is known about a symbol of the ir. */
typedef struct info {
    rx      expr;    /* when REGULAR */
    int32_t symbol;  /* in the grammar: see gr_pos; 0: none yet */
    uint8_t regular; /* of the enum above */
    bool    reached, productive, nullable, inlining;
} info;

typedef struct compiler {
    grammar  *g;
    const ir *from;
    rx       *known; /* numbers of from's store in g's; NULL: the same */
    info     *info;
    ir_sym   *order; /* reached symbols, those used before those that use them, but for cycles */
    size_t    n_order;
    int32_t  *terminal_of; /* by expression */
    uint32_t  n_terminal_of;
    ir_sym   *todo; /* rules with a number and no positions yet, by rule number - 1 */
    uint32_t  cap_pos, cap_rules, cap_alts, cap_terminals, cap_todo;
    err      *e;
} compiler;

static const ir_symbol *sym(const compiler *c, ir_sym s) { return &c->from->syms[s]; }

static rx expr_of(compiler *c, ir_rx a) { return c->known ? rx_copy(&c->g->rx, &c->from->rx, a, c->known) : a; }

/* --- what is regular --- */

static bool fold(compiler *c, ir_sym s, rx *out, int depth);

static bool fold_body(compiler *c, const ir_body *b, rx *out, int depth) {
    rx_store *s = &c->g->rx;
    rx        all = RX_EPS, x;
    if (b->n == 1) return fold(c, b->list[0], out, depth + 1);
    for (size_t i = b->n; i-- > 0;) {
        if (!fold(c, b->list[i], &x, depth + 1)) return false;
        if (rx_get(s, x)->max_len > MAX_JOINED_BYTES || (rx_get(s, x)->flags & RX_F_BOOLEAN)) return false;
        all = rx_cat(s, x, all);
        if (rx_get(s, all)->max_len > MAX_JOINED_BYTES) return false;
    }
    *out = all;
    return true;
}

static bool fold_rule(compiler *c, const ir_symbol *s, rx *out, int depth) {
    rx     few[32], *list = few, x;
    size_t n = 0, k = 0;
    bool   ok = true;
    for (const ir_body *b = s->first; b; b = b->next) n++;
    if (n > 32 && !(list = malloc(n * sizeof *list))) return false;
    for (const ir_body *b = s->first; b && ok; b = b->next) {
        ok = fold_body(c, b, &x, depth);
        if (ok) list[k++] = x;
    }
    if (ok) *out = rx_alt_n(&c->g->rx, list, n);
    if (list != few) free(list);
    return ok;
}

/* The symbol as one expression, if it is one. */
static bool fold(compiler *c, ir_sym s, rx *out, int depth) {
    info            *in = &c->info[s];
    const ir_symbol *t = sym(c, s);
    bool             ok = false;
    if (in->regular == REGULAR) *out = in->expr;
    if (in->regular != UNKNOWN) return in->regular == REGULAR;
    if (depth > MAX_FOLD_DEPTH) return false; /* not known, only too deep from here */
    in->regular = BUSY;
    if (t->kind == IR_TERMINAL) {
        *out = expr_of(c, t->expr);
        ok = true;
    } else if (t->kind == IR_RULE) {
        ok = fold_rule(c, t, out, depth);
    } else if (fold(c, t->body, out, depth + 1)) {
        const rx_node *x = rx_get(&c->g->rx, *out);
        uint64_t       bytes = t->max == RX_INF ? RX_INF : (uint64_t)x->max_len * t->max;
        ok = bytes <= MAX_JOINED_BYTES && !(x->flags & RX_F_BOOLEAN);
        if (ok) *out = rx_repeat(&c->g->rx, *out, t->min, t->max);
    }
    in->regular = ok ? REGULAR : NOT_REGULAR;
    in->expr = ok ? *out : RX_NONE;
    return ok;
}

/* --- reach, productive, nullable --- */

/* Children of a symbol one by one; cursor begins at {symbol, NULL, 0}. */
typedef struct cursor {
    ir_sym         s;
    const ir_body *body;
    size_t         at;
    bool           begun;
} cursor;

static bool next_child(compiler *c, cursor *k, ir_sym *out) {
    const ir_symbol *t = sym(c, k->s);
    if (c->info[k->s].regular == REGULAR || t->kind == IR_TERMINAL) return false;
    if (t->kind == IR_REPEAT) {
        if (k->begun) return false;
        k->begun = true;
        *out = t->body;
        return true;
    }
    if (!k->begun) {
        k->begun = true;
        k->body = t->first;
    }
    while (k->body && k->at >= k->body->n) {
        k->body = k->body->next;
        k->at = 0;
    }
    if (!k->body) return false;
    *out = k->body->list[k->at++];
    return true;
}

static int reach(compiler *c, ir_sym start) {
    cursor *stack = malloc((c->from->n_syms + 1) * sizeof *stack);
    size_t  n = 0;
    rx      x;
    if (!stack) return err_set_nomem(c->e);
    c->info[start].reached = true;
    fold(c, start, &x, 0);
    stack[n++] = (cursor){ .s = start };
    while (n) {
        ir_sym child;
        if (!next_child(c, &stack[n - 1], &child)) {
            c->order[c->n_order++] = stack[--n].s;
        } else if (!c->info[child].reached) {
            c->info[child].reached = true;
            fold(c, child, &x, 0);
            stack[n++] = (cursor){ .s = child };
        }
    }
    free(stack);
    return 0;
}

static bool body_all(const compiler *c, const ir_body *b, bool nullable) {
    for (size_t i = 0; i < b->n; i++)
        if (!(nullable ? c->info[b->list[i]].nullable : c->info[b->list[i]].productive)) return false;
    return true;
}

/* One symbol's properties from those of its parts; true when something became true. */
static bool settle(compiler *c, ir_sym s) {
    info            *in = &c->info[s], old = *in;
    const ir_symbol *t = sym(c, s);
    if (in->regular == REGULAR) {
        in->productive = in->expr != RX_NONE && !rx_is_empty(&c->g->rx, in->expr);
        in->nullable = in->productive && rx_nullable(&c->g->rx, in->expr);
    } else if (t->kind == IR_REPEAT) {
        in->productive = t->min == 0 || c->info[t->body].productive;
        in->nullable = t->min == 0 || c->info[t->body].nullable;
    } else {
        for (const ir_body *b = t->first; b; b = b->next) {
            in->productive |= body_all(c, b, false);
            in->nullable |= body_all(c, b, true);
        }
    }
    return in->productive != old.productive || in->nullable != old.nullable;
}

static void settle_all(compiler *c) {
    bool changed = true;
    while (changed) {
        changed = false;
        for (size_t i = 0; i < c->n_order; i++) changed |= settle(c, c->order[i]);
    }
}

/* --- tables --- */

static int reserve(compiler *c, void **p, uint32_t *cap, uint32_t need, size_t size) {
    uint32_t n = *cap ? *cap : 64;
    void    *v;
    if (need <= *cap) return 0;
    if (need > MAX_POSITIONS) return err_set(c->e, ERR_LIMIT, "the grammar is too large");
    while (n < need) n *= 2;
    if (!(v = realloc(*p, n * size))) return err_set_nomem(c->e);
    *p = v;
    *cap = n;
    return 0;
}

static int put_pos(compiler *c, int32_t symbol, uint32_t rule) {
    grammar *g = c->g;
    int      rc = reserve(c, (void **)&g->pos, &c->cap_pos, g->n_pos + 1, sizeof *g->pos);
    if (rc < 0) return rc;
    g->pos[g->n_pos++] = (gr_pos){ symbol, (int32_t)rule };
    return 0;
}

static int put_terminal(compiler *c, rx a, int32_t *out) {
    grammar *g = c->g;
    int      rc;
    if ((uint32_t)a >= c->n_terminal_of) {
        uint32_t n = g->rx.n_nodes + g->rx.n_nodes / 2;
        int32_t *p = realloc(c->terminal_of, n * sizeof *p);
        if (!p) return err_set_nomem(c->e);
        memset(p + c->n_terminal_of, 0, (n - c->n_terminal_of) * sizeof *p);
        c->terminal_of = p;
        c->n_terminal_of = n;
    }
    if (!c->terminal_of[a]) {
        if ((rc = reserve(c, (void **)&g->terminals, &c->cap_terminals, g->n_terminals + 1, sizeof *g->terminals)) < 0)
            return rc;
        g->terminals[g->n_terminals++] = a;
        c->terminal_of[a] = (int32_t)g->n_terminals;
    }
    *out = c->terminal_of[a];
    return 0;
}

/* The grammar's number of a symbol; a rule is put on the list of what is to be written. */
static int symbol_number(compiler *c, ir_sym s, int32_t *out) {
    grammar *g = c->g;
    info    *in = &c->info[s];
    int      rc;
    if (!in->symbol && in->regular == REGULAR) {
        if ((rc = put_terminal(c, in->expr, &in->symbol)) < 0) return rc;
    } else if (!in->symbol) {
        if ((rc = reserve(c, (void **)&g->rules, &c->cap_rules, g->n_rules + 1, sizeof *g->rules)) < 0 ||
            (rc = reserve(c, (void **)&c->todo, &c->cap_todo, g->n_rules + 1, sizeof *c->todo)) < 0)
            return rc;
        c->todo[g->n_rules] = s;
        g->rules[g->n_rules++] = (gr_rule){ .nullable = in->nullable };
        in->symbol = -(int32_t)g->n_rules;
    }
    *out = in->symbol;
    return 0;
}

static const ir_body *only_body(const compiler *c, ir_sym s) {
    const ir_body *one = NULL;
    if (c->info[s].regular == REGULAR || sym(c, s)->kind != IR_RULE) return NULL;
    for (const ir_body *b = sym(c, s)->first; b; b = b->next) {
        if (!body_all(c, b, false)) continue;
        if (one) return NULL;
        one = b;
    }
    return one;
}

/* Two neighbours that are short terminals become one. */
static bool join(compiler *c, int32_t a, int32_t b, int32_t *out, int *rc) {
    rx_store *s = &c->g->rx;
    rx        x, y, both;
    if (a <= 0 || b <= 0) return false;
    x = c->g->terminals[a - 1];
    y = c->g->terminals[b - 1];
    if (((rx_get(s, x)->flags | rx_get(s, y)->flags) & RX_F_BOOLEAN) || rx_get(s, x)->max_len > MAX_JOINED_BYTES ||
        rx_get(s, y)->max_len > MAX_JOINED_BYTES)
        return false;
    both = rx_cat(s, x, y);
    if (rx_get(s, both)->max_len > MAX_JOINED_BYTES) return false;
    *rc = put_terminal(c, both, out);
    return *rc == 0;
}

/* Appends the symbols of a body to list, rules with one alternative written out. */
static int flatten(compiler *c, const ir_body *b, int32_t **list, size_t *n, size_t *cap, int depth) {
    for (size_t i = 0; i < b->n; i++) {
        ir_sym         s = b->list[i];
        const ir_body *inner = depth < MAX_INLINE_DEPTH && !c->info[s].inlining ? only_body(c, s) : NULL;
        int32_t        x;
        int            rc;
        if (inner && inner->n <= MAX_INLINE_LENGTH) {
            c->info[s].inlining = true;
            rc = flatten(c, inner, list, n, cap, depth + 1);
            c->info[s].inlining = false;
            if (rc < 0) return rc;
            continue;
        }
        if ((rc = symbol_number(c, s, &x)) < 0) return rc;
        if (x > 0 && c->g->terminals[x - 1] == RX_EPS) continue;
        rc = 0;
        if (*n && join(c, (*list)[*n - 1], x, &(*list)[*n - 1], &rc)) continue;
        if (rc < 0) return rc;
        if (*n == *cap) {
            size_t   more = *cap ? *cap * 2 : 64;
            int32_t *p = realloc(*list, more * sizeof *p);
            if (!p) return err_set_nomem(c->e);
            *list = p;
            *cap = more;
        }
        (*list)[(*n)++] = x;
    }
    return 0;
}

static int put_alt(compiler *c) {
    grammar *g = c->g;
    int      rc = reserve(c, (void **)&g->alts, &c->cap_alts, g->n_alts + 1, sizeof *g->alts);
    if (rc < 0) return rc;
    g->alts[g->n_alts++] = (int32_t)g->n_pos;
    return 0;
}

static int write_rule(compiler *c, uint32_t rule) {
    grammar         *g = c->g;
    ir_sym           s = c->todo[rule];
    const ir_symbol *t = sym(c, s);
    size_t           n, cap = 0;
    int32_t         *list = NULL, x;
    int              rc = 0;
    g->rules[rule].first_alt = g->n_alts;
    if (t->kind == IR_REPEAT) {
        g->rules[rule].repeat = true;
        g->rules[rule].min = c->info[t->body].nullable ? 0 : t->min;
        g->rules[rule].max = t->max;
        if (c->info[t->body].productive) {
            if ((rc = put_alt(c)) < 0 || (rc = symbol_number(c, t->body, &x)) < 0 || (rc = put_pos(c, x, rule)) < 0 ||
                (rc = put_pos(c, 0, rule)) < 0)
                goto done;
        }
    } else {
        c->info[s].inlining = true;
        for (const ir_body *b = t->first; b; b = b->next) {
            if (!body_all(c, b, false)) continue;
            n = 0;
            if ((rc = flatten(c, b, &list, &n, &cap, 0)) < 0 || (rc = put_alt(c)) < 0) break;
            for (size_t i = 0; i < n && rc == 0; i++) rc = put_pos(c, list[i], rule);
            if (rc < 0 || (rc = put_pos(c, 0, rule)) < 0) break;
        }
        c->info[s].inlining = false;
    }
    g->rules[rule].n_alts = g->n_alts - g->rules[rule].first_alt;
done:
    free(list);
    return rc;
}

static int write_tables(compiler *c, ir_sym start) {
    grammar *g = c->g;
    int32_t  x;
    int      rc;
    /* Rule 0 is "start and then the end"; it has no symbol of its own in the ir. */
    if ((rc = reserve(c, (void **)&g->rules, &c->cap_rules, 1, sizeof *g->rules)) < 0 ||
        (rc = reserve(c, (void **)&c->todo, &c->cap_todo, 1, sizeof *c->todo)) < 0)
        return rc;
    g->rules[g->n_rules++] = (gr_rule){ .n_alts = 1 };
    if ((rc = put_alt(c)) < 0 || (rc = symbol_number(c, start, &x)) < 0 || (rc = put_pos(c, x, 0)) < 0 ||
        (rc = put_pos(c, 0, 0)) < 0)
        return rc;
    g->start = 0;
    for (uint32_t r = 1; r < g->n_rules && rc == 0; r++) rc = write_rule(c, r);
    if (rc == 0 && !(g->stamps = calloc(g->n_pos + 1, sizeof *g->stamps))) rc = err_set_nomem(c->e);
    return rc;
}

static int compile(compiler *c, ir_sym start) {
    size_t n = c->from->n_syms;
    int    rc;
    if (start < 0 || (size_t)start >= n) return err_set(c->e, ERR_ARG, "the grammar has no start symbol");
    c->info = calloc(n + 1, sizeof *c->info);
    c->order = malloc((n + 1) * sizeof *c->order);
    if (!c->info || !c->order) return err_set_nomem(c->e);
    c->g->rx.steps_limit = c->g->rx.steps + 4000000;
    if ((rc = reach(c, start)) < 0) return rc;
    settle_all(c);
    if (!c->info[start].productive && !c->g->rx.error.code)
        return err_set(c->e, ERR_ARG, "the grammar matches no text at all");
    if ((rc = write_tables(c, start)) < 0) return rc;
    if (c->g->rx.error.code) {
        if (c->e) *c->e = c->g->rx.error;
        return c->g->rx.error.code;
    }
    return 0;
}

static void grammar_free(grammar *g) {
    if (!g) return;
    lex_masks_drop(g);
    rx_store_deinit(&g->rx);
    arena_deinit(&g->mem);
    pthread_mutex_destroy(&g->lock);
    free(g->pos);
    free(g->rules);
    free(g->alts);
    free(g->terminals);
    free(g->states);
    free(g->state_table);
    free(g->cores);
    free(g->core_table);
    free(g->stamps);
    free(g->pair_scratch);
    free(g->wait_scratch);
    free(g);
}

grammar *grammar_ref(grammar *g) {
    atomic_fetch_add(&g->refs, 1);
    return g;
}

void grammar_unref(grammar *g) {
    if (g && atomic_fetch_sub(&g->refs, 1) == 1) grammar_free(g);
}

size_t grammar_bytes(grammar *g) {
    if (!g) return 0;
    pthread_mutex_lock(&g->lock);
    size_t n = sizeof *g + g->mem.used_bytes + g->mask_bytes + g->cap_states * sizeof *g->states +
               g->cap_cores * sizeof *g->cores + g->rx.cap_nodes * sizeof *g->rx.nodes + g->rx.data_cap +
               (g->rx.table_cap + g->state_table_cap + g->core_table_cap) * sizeof(int32_t);
    pthread_mutex_unlock(&g->lock);
    return n;
}

/* own: the expressions may be taken. */
static int build(grammar **out, ir *own, const ir *from, ir_sym start, err *e) {
    compiler c = { .from = from, .e = e };
    grammar *g;
    int      rc = ir_error(from, e);
    *out = NULL;
    if (rc < 0) return rc;
    if (!(g = calloc(1, sizeof *g))) return err_set_nomem(e);
    atomic_init(&g->refs, 1);
    pthread_mutex_init(&g->lock, NULL);
    arena_init(&g->mem, MEMORY_LIMIT);
    c.g = g;
    if (own) {
        g->rx = own->rx;
        own->rx = (rx_store){ 0 };
    } else if ((rc = rx_store_init(&g->rx, e)) == 0 && !(c.known = calloc(from->rx.n_nodes + 1, sizeof *c.known))) {
        rc = err_set_nomem(e);
    }
    if (rc == 0) rc = compile(&c, start);
    free(c.known);
    free(c.info);
    free(c.order);
    free(c.terminal_of);
    free(c.todo);
    if (rc < 0) {
        grammar_free(g);
        return rc;
    }
    *out = g;
    return 0;
}

int grammar_compile(grammar **out, const ir *g, ir_sym start, err *e) { return build(out, NULL, g, start, e); }

int grammar_compile_own(grammar **out, ir *g, ir_sym start, err *e) {
    int rc = build(out, g, g, start, e);
    ir_free(g);
    return rc;
}
