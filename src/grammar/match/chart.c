/* SPDX-License-Identifier: Apache-2.0 */
/* The recognizer: cores, columns and threads (automaton.h). */
#include "base/map.h"
#include "grammar/match/automaton.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_CORES = 1 << 20,
    MAX_COLUMN_ITEMS = 1 << 16, /* of one column */
    MAX_ITEMS = 1 << 23,        /* of one text */
    MAX_THREADS = 1 << 12,      /* at one place */
};

static int rule_of(int32_t sym) { return -sym - 1; }

static bool symbol_nullable(const grammar *g, int32_t sym) {
    if (sym > 0) return rx_nullable(&g->rx, g->terminals[sym - 1]);
    return sym < 0 && g->rules[rule_of(sym)].nullable;
}

/* --- cores --- */

static bool waits_push(grammar *g, uint32_t *n, gr_wait w) {
    if (*n == g->wait_scratch_cap) {
        uint32_t cap = g->wait_scratch_cap ? g->wait_scratch_cap * 2 : 256;
        gr_wait *p = realloc(g->wait_scratch, cap * sizeof *p);
        if (!p) {
            rx_store_fail(&g->rx, ERR_NOMEM, "");
            return false;
        }
        g->wait_scratch = p;
        g->wait_scratch_cap = cap;
    }
    g->wait_scratch[(*n)++] = w;
    return true;
}

static int by_symbol(const void *a, const void *b) {
    const gr_wait *x = a, *y = b;
    if (x->sym != y->sym) return x->sym < y->sym ? -1 : 1;
    return x->entry < y->entry ? -1 : x->entry > y->entry;
}

/* Adds the positions that a symbol before a dot brings with it, and those behind what may be empty. */
static bool predict(grammar *g, uint32_t *n, int32_t pos) {
    for (;; pos++) {
        if (g->stamps[pos] == g->stamp) return true;
        g->stamps[pos] = g->stamp;
        if (g->pos[pos].sym == 0) return true;
        if (!waits_push(g, n, (gr_wait){ g->pos[pos].sym, ~pos })) return false;
        if (g->rules[g->pos[pos].rule].repeat || !symbol_nullable(g, g->pos[pos].sym)) return true;
    }
}

static int32_t core_build(grammar *g, const int32_t *kernel, uint32_t n_kernel, uint32_t hash) {
    gr_core  c = { .n_kernel = n_kernel, .hash = hash };
    uint32_t n = 0, n_terminals = 0, n_live = 0;
    int32_t *terminals;
    if (g->n_cores >= MAX_CORES) {
        rx_store_fail(&g->rx, ERR_LIMIT, "the grammar needs too many states");
        return -1;
    }
    if (g->n_cores == g->cap_cores) {
        uint32_t cap = g->cap_cores ? g->cap_cores * 2 : 64;
        gr_core *p = realloc(g->cores, cap * sizeof *p);
        if (!p) {
            rx_store_fail(&g->rx, ERR_NOMEM, "");
            return -1;
        }
        g->cores = p;
        g->cap_cores = cap;
    }
    if (++g->stamp == 0) {
        memset(g->stamps, 0, g->n_pos * sizeof *g->stamps);
        g->stamp = 1;
    }
    for (uint32_t i = 0; i < n_kernel; i++)
        if (!waits_push(g, &n, (gr_wait){ g->pos[kernel[i]].sym, (int32_t)i })) return -1;
    for (uint32_t i = 0; i < n; i++) {
        int32_t        sym = g->wait_scratch[i].sym;
        const gr_rule *r;
        if (sym >= 0) continue;
        r = &g->rules[rule_of(sym)];
        for (uint32_t k = 0; k < r->n_alts; k++)
            if (!predict(g, &n, g->alts[r->first_alt + k])) return -1;
    }
    qsort(g->wait_scratch, n, sizeof *g->wait_scratch, by_symbol);
    c.n_waits = n;
    c.kernel = arena_alloc(&g->mem, (n_kernel + 1) * sizeof *c.kernel);
    c.waits = arena_alloc(&g->mem, (n + 1) * sizeof *c.waits);
    terminals = malloc((n + 1) * sizeof *terminals);
    if (!c.kernel || !c.waits || !terminals) {
        free(terminals);
        rx_store_fail(&g->rx, g->mem.at_limit ? ERR_LIMIT : ERR_NOMEM, "the grammar's states need too much memory");
        return -1;
    }
    if (n_kernel) memcpy(c.kernel, kernel, n_kernel * sizeof *kernel);
    memcpy(c.waits, g->wait_scratch, n * sizeof *c.waits);
    for (uint32_t i = 0; i < n; i++) {
        int32_t sym = c.waits[i].sym;
        if (sym > 0 && (n_terminals == 0 || terminals[n_terminals - 1] != sym - 1)) terminals[n_terminals++] = sym - 1;
    }
    for (uint32_t i = 0; i < n_terminals; i++) /* a terminal that matches the empty text only needs no thread */
        if (g->terminals[terminals[i]] != RX_EPS) terminals[n_live++] = terminals[i];
    c.lex = n_live ? lex_start(g, terminals, n_live) : LEX_DEAD;
    free(terminals);
    if (g->rx.error.code) return -1;
    g->cores[g->n_cores] = c;
    return (int32_t)g->n_cores++;
}

/* The core of a kernel in ascending order; -1: failed. */
static int32_t core_get(grammar *g, const int32_t *kernel, uint32_t n) {
    uint64_t h = hash_bytes(kernel, n * sizeof *kernel, 7);
    uint32_t hash = (uint32_t)(h ^ h >> 32), at;
    int32_t  id;
    if (g->n_cores * 2 >= g->core_table_cap) {
        uint32_t cap = g->core_table_cap ? g->core_table_cap * 2 : 256;
        int32_t *t = calloc(cap, sizeof *t);
        if (!t) {
            rx_store_fail(&g->rx, ERR_NOMEM, "");
            return -1;
        }
        for (uint32_t i = 0; i < g->n_cores; i++) {
            for (at = g->cores[i].hash & (cap - 1); t[at]; at = (at + 1) & (cap - 1)) {
            }
            t[at] = (int32_t)i + 1;
        }
        free(g->core_table);
        g->core_table = t;
        g->core_table_cap = cap;
    }
    for (at = hash & (g->core_table_cap - 1); g->core_table[at]; at = (at + 1) & (g->core_table_cap - 1)) {
        const gr_core *c = &g->cores[g->core_table[at] - 1];
        if (c->hash == hash && c->n_kernel == n && memcmp(c->kernel, kernel, n * sizeof *kernel) == 0)
            return g->core_table[at] - 1;
    }
    if ((id = core_build(g, kernel, n, hash)) >= 0) g->core_table[at] = id + 1;
    return id;
}

/* The first of the waits for sym; *n of them. */
static const gr_wait *core_waits(const gr_core *c, int32_t sym, uint32_t *n) {
    uint32_t lo = 0, hi = c->n_waits;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (c->waits[mid].sym < sym)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (hi = lo; hi < c->n_waits && c->waits[hi].sym == sym; hi++) {
    }
    *n = hi - lo;
    return c->waits + lo;
}

/* --- columns --- */

/* Grows an array of the chart; false keeps the failure. */
static bool grow(grammar *g, void **p, uint32_t *cap, uint32_t need, size_t size, uint32_t first) {
    uint32_t c = *cap ? *cap : first;
    void    *v;
    if (need <= *cap) return true;
    if (need > MAX_ITEMS) {
        rx_store_fail(&g->rx, ERR_LIMIT, "the text needs too many states");
        return false;
    }
    while (c < need) c *= 2;
    if (!(v = realloc(*p, c * size))) {
        rx_store_fail(&g->rx, ERR_NOMEM, "");
        return false;
    }
    *p = v;
    *cap = c;
    return true;
}

static bool table_reserve(chart *c, grammar *g, uint32_t base) {
    uint32_t used = c->n_items - base, cap = c->table_cap ? c->table_cap : 256;
    if (used * 2 < c->table_cap) return true;
    while (cap <= used * 2) cap *= 2;
    free(c->table);
    free(c->table_stamp);
    c->table = malloc(cap * sizeof *c->table);
    c->table_stamp = calloc(cap, sizeof *c->table_stamp);
    c->table_cap = c->table && c->table_stamp ? cap : 0;
    if (!c->table_cap) {
        rx_store_fail(&g->rx, ERR_NOMEM, "");
        return false;
    }
    c->stamp = 1;
    for (uint32_t i = base; i < c->n_items; i++) {
        uint64_t h = hash_bytes(&c->items[i], sizeof c->items[i], 3);
        uint32_t at = (uint32_t)h & (cap - 1);
        while (c->table_stamp[at] == c->stamp) at = (at + 1) & (cap - 1);
        c->table[at] = i;
        c->table_stamp[at] = c->stamp;
    }
    return true;
}

/* Adds an item to the column that begins at `base`, unless it is there. */
static void item_add(chart *c, grammar *g, uint32_t base, chart_item it) {
    uint64_t h = hash_bytes(&it, sizeof it, 3);
    uint32_t at;
    g->rx.steps += 8; /* about as long as so many derivatives */
    if (g->rx.steps > g->rx.steps_limit) rx_store_fail(&g->rx, ERR_LIMIT, "the grammar is too ambiguous for this text");
    if (g->rx.error.code || !table_reserve(c, g, base)) return;
    for (at = (uint32_t)h & (c->table_cap - 1); c->table_stamp[at] == c->stamp; at = (at + 1) & (c->table_cap - 1)) {
        const chart_item *o = &c->items[c->table[at]];
        if (o->pos == it.pos && o->origin == it.origin && o->count == it.count) return;
    }
    if (c->n_items - base >= MAX_COLUMN_ITEMS) {
        rx_store_fail(&g->rx, ERR_LIMIT, "the grammar is too ambiguous for this text");
        return;
    }
    if (!grow(g, (void **)&c->items, &c->cap_items, c->n_items + 1, sizeof *c->items, 256)) return;
    c->table[at] = c->n_items;
    c->table_stamp[at] = c->stamp;
    c->items[c->n_items++] = it;
}

/* The dot moves over its symbol. A finished rule is an item at its end; a loop is finished beside going on. */
static void item_advance(chart *c, grammar *g, uint32_t base, chart_item it) {
    const gr_rule *r = &g->rules[g->pos[it.pos].rule];
    uint32_t       n;
    if (!r->repeat) {
        it.pos++;
        item_add(c, g, base, it);
        return;
    }
    n = it.count + 1;
    if (n >= r->min) item_add(c, g, base, (chart_item){ it.pos + 1, it.origin, 0 });
    if (r->max == RX_INF || n < r->max) {
        it.count = r->max == RX_INF && n > r->min ? r->min : n;
        item_add(c, g, base, it);
    }
}

/* Moves the dots of everything in a column that waits for sym. */
static void column_advance(chart *c, grammar *g, uint32_t base, uint32_t column, int32_t sym) {
    uint32_t n;
    for (uint32_t i = 0;; i++) {
        const gr_core *k = &g->cores[c->columns[column].core];
        const gr_wait *w = core_waits(k, sym, &n);
        if (i >= n || g->rx.error.code) return;
        if (w[i].entry < 0) {
            item_advance(c, g, base, (chart_item){ ~w[i].entry, column, 0 });
        } else {
            int32_t pos = k->kernel[w[i].entry];
            for (uint32_t j = 0; j < c->columns[column].n_items; j++) {
                chart_item it = c->items[c->columns[column].items + j];
                if (it.pos == pos) item_advance(c, g, base, it);
            }
        }
    }
}

static int by_position(const void *a, const void *b) {
    const chart_item *x = a, *y = b;
    if (x->pos != y->pos) return x->pos < y->pos ? -1 : 1;
    if (x->origin != y->origin) return x->origin < y->origin ? -1 : 1;
    return x->count < y->count ? -1 : x->count > y->count;
}

/*
 * Makes a column of the items from `base` on: follows finished rules and what may be empty, keeps what waits for
 * something. CHART_NONE when nothing is left.
 */
static uint32_t column_finish(chart *c, grammar *g, uint32_t base) {
    chart_column col = { .items = base };
    uint32_t     n_kernel = 0, kept = base;
    int32_t      few[64], *kernel = few;
    for (uint32_t i = base; i < c->n_items && !g->rx.error.code; i++) {
        chart_item it = c->items[i];
        int32_t    sym = g->pos[it.pos].sym;
        if (sym == 0 && it.origin == 0 && g->pos[it.pos].rule == 0)
            col.accepts = true;
        else if (sym == 0)
            column_advance(c, g, base, it.origin, -(g->pos[it.pos].rule + 1));
        else if (!g->rules[g->pos[it.pos].rule].repeat && symbol_nullable(g, sym))
            item_advance(c, g, base, it);
    }
    if (g->rx.error.code) return CHART_NONE;
    for (uint32_t i = base; i < c->n_items; i++)
        if (g->pos[c->items[i].pos].sym != 0) c->items[kept++] = c->items[i];
    c->n_items = kept;
    col.n_items = kept - base;
    if (!col.n_items && !col.accepts) return CHART_NONE;
    if (col.n_items > 1) qsort(c->items + base, col.n_items, sizeof *c->items, by_position);
    if (col.n_items > 64 && !(kernel = malloc(col.n_items * sizeof *kernel))) {
        rx_store_fail(&g->rx, ERR_NOMEM, "");
        return CHART_NONE;
    }
    for (uint32_t i = base; i < kept; i++)
        if (!n_kernel || kernel[n_kernel - 1] != c->items[i].pos) kernel[n_kernel++] = c->items[i].pos;
    col.core = core_get(g, kernel, n_kernel);
    if (kernel != few) free(kernel);
    if (col.core < 0 || !grow(g, (void **)&c->columns, &c->cap_columns, c->n_columns + 1, sizeof *c->columns, 64))
        return CHART_NONE;
    c->columns[c->n_columns] = col;
    return c->n_columns++;
}

static uint32_t column_begin(chart *c) {
    if (++c->stamp == 0) {
        if (c->table_stamp) memset(c->table_stamp, 0, c->table_cap * sizeof *c->table_stamp);
        c->stamp = 1;
    }
    return c->n_items;
}

static void column_scan(chart *c, grammar *g, uint32_t base, uint32_t column, int32_t state) {
    for (uint32_t i = 0; i < g->states[state].n_accepts; i++)
        column_advance(c, g, base, column, g->states[state].accepts[i] + 1);
}

uint32_t chart_leave(chart *c, grammar *g, uint32_t column, int32_t state, bool memo) {
    chart_memo *slot = &g->memo[(column * 31u + (uint32_t)state) * 2654435761u >> 20];
    uint32_t    base, out;
    if (memo && slot->stamp == g->memo_stamp && slot->column == column && slot->state == state) return slot->result;
    base = column_begin(c);
    column_scan(c, g, base, column, state);
    out = column_finish(c, g, base);
    if (memo) *slot = (chart_memo){ column, g->memo_stamp, state, out };
    return out;
}

bool chart_step(chart *c, grammar *g, const chart_row *from, uint8_t b, chart_row *to, bool memo) {
    uint32_t out = c->n_threads, n_leaving = 0, column = CHART_NONE, base;
    bool     accepts = false;
    if (!grow(g, (void **)&c->threads, &c->cap_threads, c->n_threads + from->n_threads * 2 + 1, sizeof *c->threads,
              256))
        return false;
    /* Threads that end a terminal are noted behind those that go on. */
    chart_thread *leaving = c->threads + out + from->n_threads;
    for (uint32_t i = 0; i < from->n_threads; i++) {
        chart_thread t = c->threads[from->threads + i];
        t.state = lex_step(g, t.state, b);
        if (t.state == LEX_DEAD) continue;
        if (g->states[t.state].moves) c->threads[c->n_threads++] = t;
        if (g->states[t.state].n_accepts) leaving[n_leaving++] = t;
    }
    if (n_leaving == 1) {
        column = chart_leave(c, g, leaving[0].column, leaving[0].state, memo);
    } else if (n_leaving > 1) {
        base = column_begin(c);
        for (uint32_t i = 0; i < n_leaving; i++) column_scan(c, g, base, leaving[i].column, leaving[i].state);
        column = column_finish(c, g, base);
    }
    if (column != CHART_NONE) {
        const chart_column *col = &c->columns[column];
        accepts = col->accepts;
        if (g->cores[col->core].lex != LEX_DEAD)
            c->threads[c->n_threads++] = (chart_thread){ column, g->cores[col->core].lex };
    }
    if (c->n_threads - out > MAX_THREADS)
        rx_store_fail(&g->rx, ERR_LIMIT, "the grammar is too ambiguous for this text");
    *to = (chart_row){ .threads = out,
                       .n_threads = c->n_threads - out,
                       .n_columns = c->n_columns,
                       .n_items = c->n_items,
                       .accepts = accepts };
    if (g->rx.error.code || (to->n_threads == 0 && !accepts)) {
        c->n_threads = out;
        return false;
    }
    return true;
}

void chart_deinit(chart *c) {
    free(c->columns);
    free(c->items);
    free(c->threads);
    free(c->table);
    free(c->table_stamp);
    *c = (chart){ 0 };
}

int chart_init(chart *c, grammar *g, chart_row *first) {
    uint32_t base, column;
    *c = (chart){ 0 };
    *first = (chart_row){ 0 };
    base = column_begin(c);
    item_add(c, g, base, (chart_item){ g->start, 0, 0 });
    column = column_finish(c, g, base);
    if (g->rx.error.code || column == CHART_NONE) return g->rx.error.code ? g->rx.error.code : ERR_NOMEM;
    if (!grow(g, (void **)&c->threads, &c->cap_threads, 1, sizeof *c->threads, 256)) return ERR_NOMEM;
    if (g->cores[c->columns[column].core].lex != LEX_DEAD)
        c->threads[c->n_threads++] = (chart_thread){ column, g->cores[c->columns[column].core].lex };
    *first = (chart_row){ .n_threads = c->n_threads,
                          .n_columns = c->n_columns,
                          .n_items = c->n_items,
                          .accepts = c->columns[column].accepts };
    return 0;
}

int chart_copy(chart *to, const chart *from, uint32_t n_columns, uint32_t n_items, uint32_t n_threads) {
    *to = (chart){ .n_columns = n_columns,
                   .cap_columns = n_columns,
                   .n_items = n_items,
                   .cap_items = n_items,
                   .n_threads = n_threads,
                   .cap_threads = n_threads };
    to->columns = malloc((n_columns + 1) * sizeof *to->columns);
    to->items = malloc((n_items + 1) * sizeof *to->items);
    to->threads = malloc((n_threads + 1) * sizeof *to->threads);
    if (!to->columns || !to->items || !to->threads) {
        chart_deinit(to);
        return ERR_NOMEM;
    }
    memcpy(to->columns, from->columns, n_columns * sizeof *to->columns);
    if (n_items) memcpy(to->items, from->items, n_items * sizeof *to->items);
    if (n_threads) memcpy(to->threads, from->threads, n_threads * sizeof *to->threads);
    return 0;
}
