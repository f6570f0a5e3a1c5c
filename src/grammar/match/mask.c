/* SPDX-License-Identifier: Apache-2.0 */
/* Token masks (automaton.h). */
#include "grammar/match/automaton.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_CACHE_BYTES = 96 << 20, /* of remembered masks per grammar */
    MAX_IDS = 4096,             /* more are kept as bits */
};

/* What a walk of a trie with a lex state alone gives. */
typedef struct leaving {
    uint32_t node;  /* behind the end of the terminal */
    int32_t  state; /* in which it ended */
} leaving;

typedef struct found {
    uint32_t *bits; /* one per token */
    leaving  *exits;
    uint32_t  n_ids, n_exits, cap_exits;
    bool      failed;
} found;

static void found_exit(found *f, uint32_t node, int32_t state) {
    if (f->n_exits == f->cap_exits) {
        uint32_t cap = f->cap_exits ? f->cap_exits * 2 : 64;
        leaving *p = realloc(f->exits, cap * sizeof *p);
        if (!p) {
            f->failed = true;
            return;
        }
        f->exits = p;
        f->cap_exits = cap;
    }
    f->exits[f->n_exits++] = (leaving){ node, state };
}

/* known: plain tokens of up to this many characters are allowed anyway. */
static void walk_lex(grammar *g, const grammar_vocab *v, int which, int32_t state, uint32_t known, found *f) {
    const vocab_trie *t = &v->tries[which];
    int32_t           path[VOCAB_MAX_TOKEN + 1];
    const int32_t    *rows[VOCAB_MAX_TOKEN + 1];
    path[0] = state;
    rows[0] = g->states[state].row;
    for (uint32_t i = 1; i < t->n;) {
        const vocab_node *n = &t->nodes[i];
        const int32_t    *row = rows[n->depth - 1];
        int32_t           to = row ? row[n->byte] : -1;
        if (n->longest <= known && which == VOCAB_PLAIN) {
            i = n->next;
            continue;
        }
        if (to < 0) {
            to = lex_step_slow(g, path[n->depth - 1], n->byte);
            rows[n->depth - 1] = g->states[path[n->depth - 1]].row;
        }
        if (to == LEX_DEAD) {
            i = n->next;
            continue;
        }
        path[n->depth] = to;
        rows[n->depth] = g->states[to].row;
        for (int32_t id = n->token; id >= 0; id = v->same[id]) {
            f->bits[id >> 5] |= 1u << (id & 31);
            f->n_ids++;
        }
        if (g->states[to].n_accepts)
            for (uint32_t k = i + 1; k < n->next; k = t->nodes[k].next) found_exit(f, k, to);
        i++;
    }
}

/* One pass of a stable sort by one byte of the key. */
static void sort_pass(const leaving *from, leaving *to, uint32_t n, const vocab_node *nodes, int shift) {
    uint32_t at[257] = { 0 };
#define KEY(x) (shift < 0 ? nodes[(x).node].byte : (uint8_t)((uint32_t)(x).state >> shift))
    for (uint32_t i = 0; i < n; i++) at[KEY(from[i]) + 1]++;
    for (int i = 0; i < 256; i++) at[i + 1] += at[i];
    for (uint32_t i = 0; i < n; i++) to[at[KEY(from[i])]++] = from[i];
#undef KEY
}

/* The exits of f, sorted and packed. False: no memory. */
static bool exits_pack(found *f, const vocab_trie *t, uint32_t n_states, lex_exits *out) {
    uint32_t n = f->n_exits, runs = 0;
    leaving *x = f->exits, *y, *swap;
    if (n == 0) return true;
    if (!(y = malloc(n * sizeof *y))) return false;
    for (int shift = -8; shift < 24; shift += 8) {
        if (shift > 0 && n_states >> shift == 0) break;
        sort_pass(x, y, n, t->nodes, shift);
        swap = x;
        x = y;
        y = swap;
    }
    for (uint32_t i = 0; i < n; i++)
        runs += i == 0 || x[i].state != x[i - 1].state || t->nodes[x[i].node].byte != t->nodes[x[i - 1].node].byte;
    out->nodes = malloc(n * sizeof *out->nodes);
    out->runs = malloc(runs * sizeof *out->runs);
    f->exits = x; /* whichever of the two arrays; both hold n */
    f->cap_exits = n;
    free(y);
    if (!out->nodes || !out->runs) return false;
    for (uint32_t i = 0; i < n; i++) {
        uint8_t b = t->nodes[x[i].node].byte;
        if (i == 0 || x[i].state != x[i - 1].state || b != t->nodes[x[i - 1].node].byte)
            out->runs[out->n_runs++] = (lex_run){ .state = x[i].state, .first = i, .byte = b };
        out->runs[out->n_runs - 1].n++;
        out->nodes[i] = x[i].node;
    }
    out->n_nodes = n;
    return true;
}

static void lex_mask_free(lex_mask *m) {
    if (!m) return;
    free(m->bits);
    free(m->ids);
    for (int i = 0; i < 2; i++) {
        free(m->exits[i].nodes);
        free(m->exits[i].runs);
    }
    free(m);
}

void lex_masks_drop(grammar *g) {
    for (uint32_t i = 0; i < g->n_states; i++) {
        lex_mask_free(g->states[i].mask);
        g->states[i].mask = NULL;
        g->states[i].capped = 0;
    }
    g->mask_bytes = 0;
}

/* What a lex state allows by itself. A new object, or NULL without memory. */
static lex_mask *lex_mask_new(grammar *g, const grammar_vocab *v, int32_t state) {
    lex_mask *m = calloc(1, sizeof *m);
    found     f = { 0 };
    uint32_t  all, most;
    if (!m || !(f.bits = calloc(v->n_words, sizeof *f.bits))) {
        free(m);
        return NULL;
    }
    lex_plain_bounds(g, state, &all, &most);
    m->slice = all < VOCAB_SLICES ? all : VOCAB_SLICES;
    for (int which = 0; which < 2; which++) {
        if (which == VOCAB_PLAIN && (all >= VOCAB_SLICES || most <= all)) continue;
        f.n_exits = 0;
        walk_lex(g, v, which, state, m->slice, &f);
        if (!f.failed && !exits_pack(&f, &v->tries[which], g->n_states, &m->exits[which])) f.failed = true;
    }
    free(f.exits);
    if (f.n_ids > MAX_IDS) {
        m->bits = f.bits;
    } else if (f.n_ids && !(m->ids = malloc(f.n_ids * sizeof *m->ids))) {
        f.failed = true;
    } else {
        for (uint32_t w = 0; w < v->n_words && f.n_ids; w++)
            for (uint32_t x = f.bits[w]; x; x &= x - 1) m->ids[m->n_ids++] = (int32_t)(w * 32) + __builtin_ctz(x);
    }
    if (!m->bits) free(f.bits);
    if (f.failed) {
        lex_mask_free(m);
        return NULL;
    }
    return m;
}

static void mask_token(const grammar_vocab *v, int32_t id, uint32_t *mask) {
    for (; id >= 0; id = v->same[id]) mask[id >> 5] |= 1u << (id & 31);
}

/* Tokens below a node of the trie, from the row of that node on. */
static void walk_chart(grammar_matcher *m, const vocab_trie *t, uint32_t node, const chart_row *from, uint32_t *mask) {
    uint32_t end = t->nodes[node].next;
    chart   *c = &m->chart;
    m->g->path[t->nodes[node].depth] = *from;
    for (uint32_t i = node + 1; i < end;) {
        const vocab_node *n = &t->nodes[i];
        const chart_row  *row = &m->g->path[n->depth - 1];
        c->n_threads = row->threads + row->n_threads;
        if (!chart_step(c, m->g, row, n->byte, &m->g->path[n->depth], true)) {
            if (m->g->rx.error.code) return;
            i = n->next;
            continue;
        }
        mask_token(m->vocab, n->token, mask);
        i++;
    }
}

/* Tokens that leave the terminal of a thread. The byte behind the terminal is read once for all places of a run. */
static void mask_exits(grammar_matcher *m, const lex_exits *x, const vocab_trie *trie, chart_thread t, uint32_t *mask) {
    chart    *c = &m->chart;
    uint32_t  base = c->n_threads;
    int32_t   state = LEX_DEAD;
    chart_row row = { .threads = base }, to;
    for (uint32_t r = 0; r < x->n_runs && !m->g->rx.error.code; r++) {
        const lex_run *run = &x->runs[r];
        if (run->state != state) {
            uint32_t column = chart_leave(c, m->g, t.column, run->state, true);
            int32_t  lex = column == CHART_NONE ? LEX_DEAD : m->g->cores[c->columns[column].core].lex;
            state = run->state;
            row.n_threads = lex != LEX_DEAD;
            c->threads[base] = (chart_thread){ column, lex };
        }
        if (!row.n_threads) continue;
        c->n_threads = base + 1;
        if (!chart_step(c, m->g, &row, run->byte, &to, true)) continue;
        for (uint32_t i = 0; i < run->n && !m->g->rx.error.code; i++) {
            uint32_t node = x->nodes[run->first + i];
            mask_token(m->vocab, trie->nodes[node].token, mask);
            if (trie->nodes[node].next > node + 1) walk_chart(m, trie, node, &to, mask);
        }
    }
    c->n_threads = base;
}

static void mask_thread(grammar_matcher *m, chart_thread t, uint32_t *mask) {
    grammar             *g = m->g;
    const grammar_vocab *v = m->vocab;
    int32_t              state = lex_capped(g, t.state, v->longest);
    lex_mask            *l = g->states[state].mask;
    bool                 keep = l != NULL;
    if (!l && !(l = lex_mask_new(g, v, state))) {
        rx_store_fail(&g->rx, ERR_NOMEM, "");
        return;
    }
    if (g->rx.error.code) {
        if (!keep) lex_mask_free(l);
        return;
    }
    if (!keep && g->mask_bytes < MAX_CACHE_BYTES) {
        g->mask_bytes += sizeof *l + l->n_ids * sizeof *l->ids + (l->bits ? v->n_words * sizeof *l->bits : 0) +
                         (l->exits[0].n_nodes + l->exits[1].n_nodes) * sizeof(uint32_t) +
                         (l->exits[0].n_runs + l->exits[1].n_runs) * sizeof(lex_run);
        g->states[state].mask = l;
        keep = true;
    }
    if (l->slice)
        for (uint32_t i = 0; i < v->n_words; i++) mask[i] |= v->slices[l->slice][i];
    if (l->bits)
        for (uint32_t i = 0; i < v->n_words; i++) mask[i] |= l->bits[i];
    for (uint32_t i = 0; i < l->n_ids; i++) mask[l->ids[i] >> 5] |= 1u << (l->ids[i] & 31);
    for (int which = 0; which < 2; which++) mask_exits(m, &l->exits[which], &v->tries[which], t, mask);
    if (!keep) lex_mask_free(l);
}

int mask_fill(grammar_matcher *m, uint32_t *mask, err *e) {
    const grammar_vocab *v = m->vocab;
    const chart_row      row = m->rows[m->n_rows - 1];
    chart               *c = &m->chart;
    memset(mask, 0, v->n_words * sizeof *mask);
    if (m->g->vocab_id != v->id) {
        lex_masks_drop(m->g);
        m->g->vocab_id = v->id;
    }
    if (++m->g->memo_stamp == 0) {
        memset(m->g->memo, 0, sizeof m->g->memo);
        m->g->memo_stamp = 1;
    }
    if (!row.ended) {
        if (c->n_threads == c->cap_threads) { /* room for the first thread of a walk */
            chart_thread *p = realloc(c->threads, (c->cap_threads * 2 + 64) * sizeof *p);
            if (!p) return err_set_nomem(e);
            c->threads = p;
            c->cap_threads = c->cap_threads * 2 + 64;
        }
        for (uint32_t i = 0; i < row.n_threads && !m->g->rx.error.code; i++)
            mask_thread(m, c->threads[row.threads + i], mask);
    }
    c->n_columns = row.n_columns;
    c->n_items = row.n_items;
    c->n_threads = row.threads + row.n_threads;
    if (m->g->rx.error.code) {
        memset(mask, 0, v->n_words * sizeof *mask);
        if (e) *e = m->g->rx.error;
        return m->g->rx.error.code;
    }
    if (row.accepts || row.ended)
        for (uint32_t i = 0; i < v->n_ends; i++) mask[v->ends[i] >> 5] |= 1u << (v->ends[i] & 31);
    return 0;
}
