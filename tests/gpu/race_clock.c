/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clocks of the race detector. Knowledge of an agent is a time for all its lanes and one exception, a later time for
 * some of them. Where two exceptions meet that cannot be kept apart the clock claims more than is known: a race may be
 * missed then, but nothing is reported that is none.
 */
#include "gpu/race_parts.h"

#include <stdlib.h>
#include <string.h>

static void *or_abort(void *p) {
    if (!p) abort(); /* a test without memory */
    return p;
}

race_clock *race_clock_new(int n) {
    n = (n + 15) & ~15; /* barriers come one behind the other */
    race_clock *c = or_abort(calloc(1, sizeof *c + (size_t)n * sizeof *c->of));
    c->refs = 1;
    c->n = n;
    return c;
}

race_clock *race_clock_keep(race_clock *c) {
    c->refs++;
    return c;
}

void race_clock_drop(race_clock *c) {
    if (!c || --c->refs) return;
    for (int k = 0; k < c->n_foreign; k++) race_clock_drop(c->foreign[k].what);
    free(c->foreign);
    free(c);
}

race_clock *race_clock_own(race_clock **to, int n) {
    race_clock *c = *to;
    if (c && c->refs == 1 && c->n >= n) return c;
    race_clock *mine = race_clock_new(n);
    if (c) {
        memcpy(mine->of, c->of, (size_t)(c->n < n ? c->n : n) * sizeof *c->of);
        for (int k = 0; k < c->n_foreign; k++) race_foreign_add(mine, c->foreign[k]);
        race_clock_drop(c);
    }
    *to = mine;
    return mine;
}

bool know_has(const know *k, uint32_t lanes, uint32_t t) {
    return t <= k->all || (t <= k->some && !(lanes & ~k->lanes));
}

bool race_clock_has(const race_clock *c, uint32_t agent, int kind, uint32_t lanes, uint32_t t) {
    return agent < (uint32_t)c->n && know_has(&c->of[agent][kind], lanes, t);
}

void know_join(know *k, const know *from) {
    if (from->all > k->all) k->all = from->all;
    if (from->some > k->all) {
        if (k->some <= k->all) {
            k->some = from->some;
            k->lanes = from->lanes;
        } else {
            if (from->some > k->some) k->some = from->some;
            k->lanes |= from->lanes;
        }
    }
    if (k->some <= k->all) k->some = k->lanes = 0;
}

void know_add(know *k, uint32_t lanes, uint32_t t, uint32_t full) {
    const know some = { .some = t, .lanes = lanes }, all = { .all = t };
    know_join(k, lanes == full ? &all : &some);
}

void race_foreign_add(race_clock *to, race_foreign f) {
    for (int k = 0; k < to->n_foreign; k++) {
        race_foreign *o = &to->foreign[k];
        if (o->what != f.what || o->run != f.run) continue;
        o->known |= f.known;
        o->pending |= f.pending;
        o->fenced |= f.fenced;
        return;
    }
    to->foreign = or_abort(realloc(to->foreign, (size_t)(to->n_foreign + 1) * sizeof *to->foreign));
    race_clock_keep(f.what);
    to->foreign[to->n_foreign++] = f;
}

void race_clock_join(race_clock *to, const race_clock *from, unsigned kinds) {
    if (to == from) return;
    const int n = from->n < to->n ? from->n : to->n;
    for (int a = 0; a < n; a++) {
        for (int k = 0; k < KNOW_KINDS; k++) {
            const know *f = &from->of[a][k];
            if ((f->all | f->some) && kinds >> k & 1) know_join(&to->of[a][k], f);
        }
    }
    if (!(kinds >> KNOW_OUTSIDE & 1)) return;
    for (int k = 0; k < from->n_foreign; k++) race_foreign_add(to, from->foreign[k]);
}
