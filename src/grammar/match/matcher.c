/* SPDX-License-Identifier: Apache-2.0 */
/* Matchers: the state of one sequence (grammar.h). */
#include "grammar/match/automaton.h"

#include <stdlib.h>
#include <string.h>

/* Steps of one call (derivatives, items): far above what sane patterns need, about a quarter of a second. */
static const uint64_t step_budget = 5000000;

/*
 * A limit that one text ran into is that text's: nothing half-done was kept, so the next call begins without the error.
 */
static void enter(grammar *g) {
    pthread_mutex_lock(&g->lock);
    g->rx.error.code = 0;
    g->rx.depth = 0;
    g->rx.steps_limit = g->rx.steps + step_budget;
}

static void leave(grammar *g) { pthread_mutex_unlock(&g->lock); }

void grammar_matcher_free(grammar_matcher *m) {
    if (!m) return;
    chart_deinit(&m->chart);
    grammar_unref(m->g);
    free(m->rows);
    free(m);
}

int grammar_matcher_open(grammar_matcher **out, grammar *g, const grammar_vocab *v, err *e) {
    grammar_matcher *m = calloc(1, sizeof *m);
    int              rc;
    *out = NULL;
    if (!m) return err_set_nomem(e);
    m->g = grammar_ref(g);
    m->vocab = v;
    m->cap_rows = 64;
    if (!(m->rows = malloc(m->cap_rows * sizeof *m->rows))) {
        grammar_matcher_free(m);
        return err_set_nomem(e);
    }
    enter(g);
    rc = chart_init(&m->chart, g, &m->rows[0]);
    if (rc < 0) {
        err_set_nomem(e);
        if (g->rx.error.code && e) *e = g->rx.error;
    }
    leave(g);
    if (rc < 0) {
        grammar_matcher_free(m);
        return rc;
    }
    m->n_rows = 1;
    *out = m;
    return 0;
}

int grammar_matcher_clone(grammar_matcher **out, const grammar_matcher *m, err *e) {
    grammar_matcher *n = calloc(1, sizeof *n);
    const chart_row *row = &m->rows[m->n_rows - 1];
    *out = NULL;
    if (!n) return err_set_nomem(e);
    n->g = grammar_ref(m->g);
    n->vocab = m->vocab;
    n->n_rows = m->n_rows;
    n->cap_rows = m->n_rows + 64;
    n->rows = malloc(n->cap_rows * sizeof *n->rows);
    if (!n->rows || chart_copy(&n->chart, &m->chart, row->n_columns, row->n_items, row->threads + row->n_threads) < 0) {
        grammar_matcher_free(n);
        return err_set_nomem(e);
    }
    memcpy(n->rows, m->rows, m->n_rows * sizeof *n->rows);
    *out = n;
    return 0;
}

int grammar_matcher_mask(grammar_matcher *m, uint32_t *mask, err *e) {
    int rc;
    enter(m->g);
    rc = mask_fill(m, mask, e);
    leave(m->g);
    return rc;
}

static bool rows_reserve(grammar_matcher *m) {
    chart_row *p;
    if (m->n_rows < m->cap_rows) return true;
    if (!(p = realloc(m->rows, m->cap_rows * 2 * sizeof *p))) return false;
    m->rows = p;
    m->cap_rows *= 2;
    return true;
}

/* Reads bytes as one token; the lock is held. Threads of the places in between are dropped. */
static bool read_bytes(grammar_matcher *m, const uint8_t *p, size_t n) {
    chart    *c = &m->chart;
    chart_row first = m->rows[m->n_rows - 1], row = first, to;
    uint32_t  base = first.threads + first.n_threads;
    if (first.ended) return false;
    for (size_t i = 0; i < n; i++) {
        if (!chart_step(c, m->g, &row, p[i], &to, false)) {
            c->n_columns = first.n_columns;
            c->n_items = first.n_items;
            c->n_threads = base;
            return false;
        }
        memmove(c->threads + base, c->threads + to.threads, to.n_threads * sizeof *c->threads);
        to.threads = base;
        c->n_threads = base + to.n_threads;
        row = to;
    }
    m->rows[m->n_rows++] = row;
    return true;
}

bool grammar_matcher_accept_bytes(grammar_matcher *m, const void *p, size_t n) {
    bool ok;
    if (!rows_reserve(m)) return false;
    enter(m->g);
    ok = read_bytes(m, p, n);
    leave(m->g);
    return ok;
}

int grammar_matcher_accept(grammar_matcher *m, int32_t token, err *e) {
    const grammar_vocab *v = m->vocab;
    size_t               n;
    bool                 ok;
    int                  rc = 0;
    if (token < 0 || (uint32_t)token >= v->n_tokens)
        return err_set(e, ERR_ARG, "token %d is not in the vocabulary", (int)token);
    if (!rows_reserve(m)) return err_set_nomem(e);
    for (uint32_t i = 0; i < v->n_ends; i++) {
        if (v->ends[i] != token) continue;
        if (!grammar_matcher_may_end(m)) return err_set(e, ERR_ARG, "the grammar does not allow the text to end here");
        m->rows[m->n_rows] = m->rows[m->n_rows - 1];
        m->rows[m->n_rows++].ended = true;
        return 0;
    }
    n = v->offsets[token + 1] - v->offsets[token];
    if (n == 0) return err_set(e, ERR_ARG, "the grammar does not allow token %d: it is not text", (int)token);
    enter(m->g);
    ok = read_bytes(m, (const uint8_t *)v->bytes + v->offsets[token], n);
    if (!ok) {
        rc = err_set(e, ERR_ARG, "the grammar does not allow token %d here", (int)token);
        if (m->g->rx.error.code) {
            rc = m->g->rx.error.code;
            if (e) *e = m->g->rx.error;
        }
    }
    leave(m->g);
    return rc;
}

void grammar_matcher_rollback(grammar_matcher *m, size_t n_tokens) {
    const chart_row *row;
    m->n_rows -= n_tokens < m->n_rows - 1 ? n_tokens : m->n_rows - 1;
    row = &m->rows[m->n_rows - 1];
    m->chart.n_columns = row->n_columns;
    m->chart.n_items = row->n_items;
    m->chart.n_threads = row->threads + row->n_threads;
}

bool grammar_matcher_may_end(const grammar_matcher *m) {
    const chart_row *row = &m->rows[m->n_rows - 1];
    return row->accepts || row->ended;
}

bool grammar_matcher_must_end(const grammar_matcher *m) {
    const chart_row *row = &m->rows[m->n_rows - 1];
    return row->ended || (row->accepts && row->n_threads == 0);
}
