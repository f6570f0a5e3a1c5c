/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/fair.h"

#include <stddef.h>

/* The time of the busy client that has had the least; it never goes back. */
static void advance(fair *f) {
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < f->n; i++) {
        if (f->of[i].n_open > 0 && f->of[i].time < least) least = f->of[i].time;
    }
    if (least != UINT64_MAX && least > f->now) f->now = least;
}

/* The client's entry, else a fresh one, else that of the idle client that has had the least, else the shared one. */
static fair_client *find(fair *f, uint64_t client) {
    fair_client *idle = NULL;
    if (f->n == 0) f->n = 1;
    for (int i = 1; i < f->n; i++) {
        fair_client *c = &f->of[i];
        if (c->client == client) return c;
        if (c->n_open == 0 && (!idle || c->time < idle->time)) idle = c;
    }
    fair_client *c = f->n < FAIR_CLIENTS ? &f->of[f->n++] : idle;
    if (!c) return &f->of[0];
    *c = (fair_client){ .client = client };
    return c;
}

fair_client *fair_enter(fair *f, uint64_t client) {
    advance(f);
    fair_client *c = find(f, client);
    if (c->n_open++ == 0 && c->time < f->now) c->time = f->now;
    return c;
}

void fair_leave(fair *f, fair_client *c) {
    advance(f);
    c->n_open--;
}
