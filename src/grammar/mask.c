/* SPDX-License-Identifier: Apache-2.0 */
/* Token masks (automaton.h). */
#include "grammar/automaton.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_CACHE_BYTES = 96 << 20, /* of remembered masks per grammar */
    MAX_IDS = 4096,             /* more are kept as bits */
};

/* What a walk of a trie with a lex state alone gives. */
typedef struct found {
    int32_t  *ids;
    lex_exit *exits;
    uint32_t  n_ids, cap_ids, n_exits, cap_exits;
    bool      failed;
} found;

static void found_id(found *f, int32_t id) {
    if (f->n_ids == f->cap_ids) {
        uint32_t cap = f->cap_ids ? f->cap_ids * 2 : 256;
        int32_t *p = realloc(f->ids, cap * sizeof *p);
        if (!p) {
            f->failed = true;
            return;
        }
        f->ids = p;
        f->cap_ids = cap;
    }
    f->ids[f->n_ids++] = id;
}

static void found_exit(found *f, uint32_t node, int32_t state) {
    if (f->n_exits == f->cap_exits) {
        uint32_t  cap = f->cap_exits ? f->cap_exits * 2 : 64;
        lex_exit *p = realloc(f->exits, cap * sizeof *p);
        if (!p) {
            f->failed = true;
            return;
        }
        f->exits = p;
        f->cap_exits = cap;
    }
    f->exits[f->n_exits++] = (lex_exit){ node, state };
}

static void walk_lex(grammar *g, const grammar_vocab *v, int which, int32_t state, found *f) {
    const vocab_trie *t = &v->tries[which];
    int32_t           path[VOCAB_MAX_TOKEN + 1];
    path[0] = state;
    for (uint32_t i = 1; i < t->n;) {
        const vocab_node *n = &t->nodes[i];
        int32_t           to = lex_step(g, path[n->depth - 1], n->byte);
        if (to == LEX_DEAD) {
            i = n->next;
            continue;
        }
        path[n->depth] = to;
        for (int32_t id = n->token; id >= 0; id = v->same[id]) found_id(f, id);
        if (n->next > i + 1 && g->states[to].n_accepts) found_exit(f, i, to);
        i++;
    }
}

static int by_state(const void *a, const void *b) {
    const lex_exit *x = a, *y = b;
    if (x->state != y->state) return x->state < y->state ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

static void lex_mask_free(lex_mask *m) {
    if (!m) return;
    free(m->bits);
    free(m->ids);
    free(m->exits[0]);
    free(m->exits[1]);
    free(m);
}

/* What a lex state allows by itself. A new object, or NULL without memory. */
static lex_mask *lex_mask_new(grammar *g, const grammar_vocab *v, int32_t state) {
    lex_mask *m = calloc(1, sizeof *m);
    found     f = { 0 };
    uint32_t  all, most;
    if (!m) return NULL;
    lex_plain_bounds(g, state, &all, &most);
    m->slice = all < VOCAB_SLICES ? all : VOCAB_SLICES;
    for (int which = 0; which < 2; which++) {
        if (which == VOCAB_PLAIN && (all >= VOCAB_SLICES || most <= all)) continue;
        f.n_exits = 0;
        f.exits = NULL;
        f.cap_exits = 0;
        walk_lex(g, v, which, state, &f);
        if (f.n_exits > 1) qsort(f.exits, f.n_exits, sizeof *f.exits, by_state);
        m->exits[which] = f.exits;
        m->n_exits[which] = f.n_exits;
    }
    if (f.n_ids > MAX_IDS && !f.failed) {
        if (!(m->bits = calloc(v->n_words, sizeof *m->bits))) f.failed = true;
        for (uint32_t i = 0; m->bits && i < f.n_ids; i++) m->bits[f.ids[i] >> 5] |= 1u << (f.ids[i] & 31);
        free(f.ids);
    } else if (f.n_ids) {
        m->ids = realloc(f.ids, f.n_ids * sizeof *f.ids);
        if (!m->ids) m->ids = f.ids;
        m->n_ids = f.n_ids;
    } else {
        free(f.ids);
    }
    if (f.failed) {
        lex_mask_free(m);
        return NULL;
    }
    return m;
}

/* Tokens below a node of the trie, from the row of that node on. */
static void walk_chart(grammar_matcher *m, const vocab_trie *t, uint32_t node, const chart_row *from, uint32_t *mask) {
    const grammar_vocab *v = m->vocab;
    uint32_t             end = t->nodes[node].next;
    chart               *c = &m->chart;
    m->path[t->nodes[node].depth] = *from;
    for (uint32_t i = node + 1; i < end;) {
        const vocab_node *n = &t->nodes[i];
        const chart_row  *row = &m->path[n->depth - 1];
        c->n_threads = row->threads + row->n_threads;
        if (!chart_step(c, m->g, row, n->byte, &m->path[n->depth], true)) {
            if (m->g->rx.error.code) return;
            i = n->next;
            continue;
        }
        for (int32_t id = n->token; id >= 0; id = v->same[id]) mask[id >> 5] |= 1u << (id & 31);
        i++;
    }
}

/* Tokens that leave the terminal of a thread. */
static void mask_exits(grammar_matcher *m, const lex_mask *l, chart_thread t, uint32_t *mask) {
    chart   *c = &m->chart;
    uint32_t base = c->n_threads;
    for (int which = 0; which < 2; which++) {
        int32_t   state = LEX_DEAD;
        chart_row row = { 0 };
        for (uint32_t i = 0; i < l->n_exits[which] && !m->g->rx.error.code; i++) {
            const lex_exit *x = &l->exits[which][i];
            if (x->state != state) {
                uint32_t column = chart_leave(c, m->g, t.column, x->state, true);
                int32_t  lex = column == CHART_NONE ? LEX_DEAD : m->g->cores[c->columns[column].core].lex;
                state = x->state;
                row = (chart_row){ .threads = base, .n_threads = lex != LEX_DEAD };
                c->threads[base] = (chart_thread){ column, lex };
            }
            if (!row.n_threads) continue;
            c->n_threads = base + 1;
            walk_chart(m, &m->vocab->tries[which], x->node, &row, mask);
        }
        c->n_threads = base;
    }
}

static void mask_thread(grammar_matcher *m, chart_thread t, uint32_t *mask) {
    grammar             *g = m->g;
    const grammar_vocab *v = m->vocab;
    lex_mask            *l = g->states[t.state].mask;
    bool                 keep = l != NULL;
    if (!l && !(l = lex_mask_new(g, v, t.state))) {
        rx_store_fail(&g->rx, ERR_NOMEM, "");
        return;
    }
    if (g->rx.error.code) {
        if (!keep) lex_mask_free(l);
        return;
    }
    if (!keep && g->mask_bytes < MAX_CACHE_BYTES) {
        g->mask_bytes += sizeof *l + l->n_ids * sizeof *l->ids + (l->bits ? v->n_words * sizeof *l->bits : 0) +
                         (l->n_exits[0] + l->n_exits[1]) * sizeof **l->exits;
        g->states[t.state].mask = l;
        keep = true;
    }
    if (l->slice)
        for (uint32_t i = 0; i < v->n_words; i++) mask[i] |= v->slices[l->slice][i];
    if (l->bits)
        for (uint32_t i = 0; i < v->n_words; i++) mask[i] |= l->bits[i];
    for (uint32_t i = 0; i < l->n_ids; i++) mask[l->ids[i] >> 5] |= 1u << (l->ids[i] & 31);
    mask_exits(m, l, t, mask);
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
    chart_memo_begin(c);
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
