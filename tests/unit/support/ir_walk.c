/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/support/ir_walk.h"

#include "grammar/ir_impl.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* What follows: the rest of an alternative, or further rounds of a repeat. */
typedef struct follow {
    const ir_body *body; /* NULL: a repeat */
    uint32_t       at;   /* next symbol of body, or the repeat symbol */
    uint32_t       rounds;
    int32_t        next; /* index of what follows that; -1: the end */
} follow;

typedef struct config {
    rx      expr;
    int32_t next;
} config;

typedef struct walk {
    ir      *g;
    follow  *follows;
    size_t   n_follows, cap_follows;
    int32_t *table;
    size_t   table_cap;
    config  *now, *then;
    size_t   n_now, n_then, cap_now, cap_then;
    bool     end; /* the end was reached in this step */
    int      depth;
} walk;

static int32_t follow_of(walk *w, follow f) {
    uint64_t h =
        hash_bytes(&f.at, sizeof f.at, (uint64_t)(uintptr_t)f.body ^ (uint64_t)f.next * 0x9E3779B97F4A7C15u ^ f.rounds);
    if (w->n_follows * 2 >= w->table_cap) {
        size_t cap = w->table_cap ? w->table_cap * 2 : 1024;
        free(w->table);
        w->table = malloc(cap * sizeof *w->table);
        memset(w->table, 0xFF, cap * sizeof *w->table);
        w->table_cap = cap;
        for (size_t i = 0; i < w->n_follows; i++) {
            follow  *o = &w->follows[i];
            uint64_t k = hash_bytes(&o->at, sizeof o->at,
                                    (uint64_t)(uintptr_t)o->body ^ (uint64_t)o->next * 0x9E3779B97F4A7C15u ^ o->rounds);
            size_t   at = k & (cap - 1);
            while (w->table[at] >= 0) at = (at + 1) & (cap - 1);
            w->table[at] = (int32_t)i;
        }
    }
    for (size_t at = h & (w->table_cap - 1);; at = (at + 1) & (w->table_cap - 1)) {
        int32_t i = w->table[at];
        if (i < 0) {
            if (w->n_follows == w->cap_follows) {
                w->cap_follows = w->cap_follows ? w->cap_follows * 2 : 256;
                w->follows = realloc(w->follows, w->cap_follows * sizeof *w->follows);
            }
            w->follows[w->n_follows] = f;
            w->table[at] = (int32_t)w->n_follows;
            return (int32_t)w->n_follows++;
        }
        if (w->follows[i].body == f.body && w->follows[i].at == f.at && w->follows[i].rounds == f.rounds &&
            w->follows[i].next == f.next)
            return i;
    }
}

static void proceed(walk *w, int32_t next);

static void enter(walk *w, ir_sym sym, int32_t next) {
    const ir_symbol *s = &w->g->syms[sym];
    if (++w->depth > 2000) {
        w->depth--;
        return;
    }
    if (s->kind == IR_TERMINAL) {
        bool known = false;
        for (size_t i = 0; i < w->n_then && !known; i++) known = w->then[i].expr == s->expr && w->then[i].next == next;
        if (!known && !rx_is_empty(&w->g->rx, s->expr)) {
            if (w->n_then == w->cap_then) {
                w->cap_then = w->cap_then ? w->cap_then * 2 : 64;
                w->then = realloc(w->then, w->cap_then * sizeof *w->then);
            }
            w->then[w->n_then++] = (config){ s->expr, next };
            if (rx_nullable(&w->g->rx, s->expr)) proceed(w, next);
        }
    } else if (s->kind == IR_RULE) {
        for (const ir_body *b = s->first; b; b = b->next) proceed(w, follow_of(w, (follow){ b, 0, 0, next }));
    } else {
        proceed(w, follow_of(w, (follow){ NULL, (uint32_t)sym, 0, next }));
    }
    w->depth--;
}

static void proceed(walk *w, int32_t next) {
    follow f;
    if (next < 0) {
        w->end = true;
        return;
    }
    f = w->follows[next];
    if (f.body) {
        int32_t after = f.at + 1 < f.body->n ? follow_of(w, (follow){ f.body, f.at + 1, 0, f.next }) : f.next;
        if (f.at >= f.body->n)
            proceed(w, f.next);
        else
            enter(w, f.body->list[f.at], after);
    } else {
        const ir_symbol *s = &w->g->syms[f.at];
        if (f.rounds >= s->min) proceed(w, f.next);
        if (s->max == RX_INF || f.rounds < s->max) {
            uint32_t rounds = s->max == RX_INF && f.rounds >= s->min ? f.rounds : f.rounds + 1;
            enter(w, s->body, follow_of(w, (follow){ NULL, f.at, rounds, f.next }));
        }
    }
}

bool ir_walk(ir *g, ir_sym start, const char *text, size_t n, size_t *stop) {
    walk   w = { .g = g };
    size_t i;
    bool   end;
    enter(&w, start, -1);
    for (i = 0; i < n && w.n_then; i++) {
        config *swap = w.now;
        size_t  cap = w.cap_now;
        w.now = w.then;
        w.n_now = w.n_then;
        w.cap_now = w.cap_then;
        w.then = swap;
        w.cap_then = cap;
        w.n_then = 0;
        w.end = false;
        for (size_t k = 0; k < w.n_now; k++) {
            rx_set same = { { ~(uint64_t)0, ~(uint64_t)0, ~(uint64_t)0, ~(uint64_t)0 } };
            rx     d = rx_deriv(&g->rx, w.now[k].expr, (uint8_t)text[i], &same);
            bool   known = false;
            if (d == RX_NONE || rx_is_empty(&g->rx, d)) continue;
            for (size_t j = 0; j < w.n_then && !known; j++)
                known = w.then[j].expr == d && w.then[j].next == w.now[k].next;
            if (known) continue;
            if (w.n_then == w.cap_then) {
                w.cap_then = w.cap_then ? w.cap_then * 2 : 64;
                w.then = realloc(w.then, w.cap_then * sizeof *w.then);
            }
            w.then[w.n_then++] = (config){ d, w.now[k].next };
            if (rx_nullable(&g->rx, d)) proceed(&w, w.now[k].next);
        }
    }
    end = i == n && w.end;
    if (stop) *stop = i == n && (w.n_then || w.end) ? n : i ? i - 1 : 0;
    free(w.follows);
    free(w.table);
    free(w.now);
    free(w.then);
    return end;
}
