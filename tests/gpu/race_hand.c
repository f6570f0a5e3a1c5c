/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How knowledge goes from lanes to lanes: by a clock that some add to and others take up, within a warp, and by atomics
 * with fences around them.
 */
#include "gpu/race_parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- clocks of lanes ---- */

int race_warp_number(const warp_state *s) {
    return (int)s->block->rank * s->block->cluster->races->per_block + s->index;
}

race_warp *race_warp_of(const warp_state *s) { return &s->block->cluster->races->warps[race_warp_number(s)]; }

uint32_t race_sharing(const race_warp *p, uint32_t m) {
    const race_clock *c = p->of[__builtin_ctz(m)];
    uint32_t          same = 0;
    EACH_LANE(m, l) same |= (uint32_t)(p->of[l] == c) << l;
    return same;
}

/* The clock of those lanes, which share one, to be written. */
race_clock *race_lanes_clock(race_cluster *c, race_warp *p, uint32_t lanes) {
    const int   first = __builtin_ctz(lanes);
    race_clock *old = p->of[first];
    if (old->refs == __builtin_popcount(lanes) && old->n >= c->n_agents) return old;
    race_clock *mine = race_clock_keep(old);
    race_clock_own(&mine, c->n_agents);
    EACH_LANE(lanes, l) {
        race_clock_drop(p->of[l]);
        p->of[l] = race_clock_keep(mine);
    }
    race_clock_drop(mine);
    return p->of[first];
}

/* What times[l] says of the lanes m, those with equal times at once. */
void race_add_times(know *k, const uint32_t *times, uint32_t m, uint32_t full) {
    while (m) {
        const uint32_t t = times[__builtin_ctz(m)];
        uint32_t       same = 0;
        EACH_LANE(m, l) same |= (uint32_t)(times[l] == t) << l;
        if (t) know_add(k, same, t, full);
        m &= ~same;
    }
}

/* All that the lanes know and did until now, into *to; what they do from now on is later. */
void race_release(race_cluster *c, int w, uint32_t m, race_clock **to, unsigned kinds) {
    race_warp  *p = &c->warps[w];
    race_clock *t = race_clock_own(to, c->n_agents);
    EACH_CLOCK(p, m, lanes, l) race_clock_join(t, p->of[l], kinds);
    know *own = t->of[w];
    if (kinds >> KNOW_SHARED & 1) know_add(&own[KNOW_SHARED], m, p->now, p->full);
    if (kinds >> KNOW_OUTSIDE & 1) know_add(&own[KNOW_OUTSIDE], m, p->now, p->full);
    if (kinds >> KNOW_PROXY & 1) race_add_times(&own[KNOW_PROXY], p->proxied, m, p->full);
    if (kinds >> KNOW_PROXY_OUT & 1) race_add_times(&own[KNOW_PROXY_OUT], p->proxied_out, m, p->full);
    if (kinds >> KNOW_FENCED & 1) race_add_times(&own[KNOW_FENCED], p->fenced, m, p->full);
    p->now++;
}

void race_acquire(race_cluster *c, race_warp *p, uint32_t m, const race_clock *from) {
    if (!from) return;
    EACH_CLOCK(p, m, lanes, l) {
        (void)l;
        race_clock_join(race_lanes_clock(c, p, lanes), from, RACE_EVERYTHING);
    }
}

void race_warp_sync(warp *w, const insn *i, uint32_t m) {
    warp_state   *s = state_of(w);
    race_cluster *c = s->block->cluster->races;
    race_warp    *p = race_warp_of(s);
    (void)i;
    EACH_LANE(m, l) {
        const uint32_t of = lanes32(w, i->o[0])[l] & m;
        if (__builtin_ctz(of) != l) continue; /* once for all that name each other */
        race_clock *met = race_clock_keep(p->of[l]);
        if (race_sharing(p, of) == of && met->refs == __builtin_popcount(of) + 1) {
            race_clock_drop(met); /* theirs alone */
            know *own = met->of[race_warp_number(s)];
            know_add(&own[KNOW_SHARED], of, p->now, p->full);
            know_add(&own[KNOW_OUTSIDE], of, p->now, p->full);
            race_add_times(&own[KNOW_PROXY], p->proxied, of, p->full);
            race_add_times(&own[KNOW_PROXY_OUT], p->proxied_out, of, p->full);
            race_add_times(&own[KNOW_FENCED], p->fenced, of, p->full);
            p->now++;
            continue;
        }
        race_release(c, race_warp_number(s), of, &met, RACE_EVERYTHING);
        EACH_LANE(of, k) {
            race_clock_drop(p->of[k]);
            p->of[k] = race_clock_keep(met);
        }
        race_clock_drop(met);
    }
}

/* ---- fences and what atomics hand over ---- */

/* An atomic's place in memory: the clocks that were let go there. */
typedef struct sync_place {
    uint64_t      key; /* 0: none */
    uint32_t      launch;
    race_foreign *from;
    int           n;
} sync_place;

static struct {
    sync_place *at;
    int         n, cap;
} places;

/* NULL: nothing was let go there, unless `make`. Of earlier launches nothing counts: the stream orders those. */
static sync_place *sync_at(uint64_t key, uint32_t launch, bool make) {
    sync_place *old = NULL;
    for (int k = 0; k < places.n; k++) {
        sync_place *p = &places.at[k];
        if (p->key == key && p->launch == launch) return p;
        if (p->launch + 1 < launch) old = p;
    }
    if (!make) return NULL;
    if (!old) {
        if (places.n == places.cap) {
            places.cap = places.cap ? places.cap * 2 : 64;
            places.at = realloc(places.at, (size_t)places.cap * sizeof *places.at);
            if (!places.at) abort(); /* a test without memory */
        }
        old = &places.at[places.n++];
        *old = (sync_place){ 0 };
    }
    for (int k = 0; k < old->n; k++) race_clock_drop(old->from[k].what);
    free(old->from);
    *old = (sync_place){ .key = key, .launch = launch };
    return old;
}

static void place_add(sync_place *p, uint32_t run, race_clock *what) {
    race_foreign *more = realloc(p->from, (size_t)(p->n + 1) * sizeof *more);
    if (!more) abort(); /* a test without memory */
    p->from = more;
    p->from[p->n++] = (race_foreign){ .run = run, .what = race_clock_keep(what) };
}

/* Shared memory is another one in each block of each cluster. */
uint64_t race_sync_key(const warp_state *s, const insn *i, uint64_t at) {
    uint32_t         offset = 0;
    bool             nothing;
    const gpu_block *b = race_shared_at(s, i, at, &offset, &nothing);
    return b ? TAG_SHARED | (uint64_t)s->block->cluster->races->run << 28 | (uint64_t)b->rank << RANK_SHIFT | offset
             : at;
}

void race_let_go(race_cluster *c, int w, int lane, uint64_t key) {
    race_warp  *p = &c->warps[w];
    race_clock *what = NULL;
    if (!p->fenced[lane]) {
        bool any = false;
        for (int a = 0; a < p->of[lane]->n && !any; a++)
            any = p->of[lane]->of[a][KNOW_FENCED].all | p->of[lane]->of[a][KNOW_FENCED].some;
        if (!any) return;
    }
    sync_place *to = sync_at(key, c->launch, true);
    race_release(c, w, 1u << lane, &what, 1u << KNOW_FENCED);
    place_add(to, c->run, what);
    race_clock_drop(what);
    for (int k = 0; k < p->of[lane]->n_foreign; k++) {
        if (p->of[lane]->foreign[k].fenced) place_add(to, p->of[lane]->foreign[k].run, p->of[lane]->foreign[k].what);
    }
}

void race_take_up(race_cluster *c, int w, int lane, uint64_t key) {
    const sync_place *from = sync_at(key, c->launch, false);
    if (!from) return;
    race_clock *mine = race_lanes_clock(c, &c->warps[w], 1u << lane);
    for (int k = 0; k < from->n; k++) {
        if (from->from[k].run != c->run) {
            race_foreign_add(mine,
                             (race_foreign){ .run = from->from[k].run, .pending = true, .what = from->from[k].what });
            continue;
        }
        for (int a = 0; a < mine->n && a < from->from[k].what->n; a++)
            know_join(&mine->of[a][KNOW_PENDING], &from->from[k].what->of[a][KNOW_FENCED]);
    }
}

/* What atomics brought is known, and what is known by now may be handed over by atomics. */
void race_fence_lanes(race_cluster *c, int w, uint32_t m) {
    race_warp *p = &c->warps[w];
    EACH_CLOCK(p, m, lanes, l) {
        (void)l;
        race_clock *mine = race_lanes_clock(c, p, lanes);
        for (int a = 0; a < mine->n; a++) {
            know *k = mine->of[a];
            know_join(&k[KNOW_SHARED], &k[KNOW_PENDING]);
            know_join(&k[KNOW_OUTSIDE], &k[KNOW_PENDING]);
            know_join(&k[KNOW_FENCED], &k[KNOW_OUTSIDE]);
        }
        for (int k = 0; k < mine->n_foreign; k++) {
            race_foreign *f = &mine->foreign[k];
            f->known |= f->pending;
            f->fenced |= f->known;
        }
    }
    EACH_LANE(m, l) p->fenced[l] = p->now;
    p->now++;
}

void race_fence(warp *w, const insn *i, uint32_t m) {
    warp_state   *s = state_of(w);
    race_cluster *c = s->block->cluster->races;
    race_warp    *p = race_warp_of(s);
    if (strstr(i->name, "sync_restrict")) {
        if (strstr(i->name, ".release")) p->restricted |= m;
        return;
    }
    const bool barriers = strstr(i->name, "mbarrier_init"), proxy = race_is_named(i, "fence.proxy.async");
    for (int k = 0; k < c->n_mbars && (barriers || proxy); k++) {
        race_mbar *b = &c->mbars[k];
        if (b->by == (uint32_t)race_warp_number(s) && m >> b->lane & 1) b->open = false;
    }
    if (barriers) return;
    if (!race_is_named(i, "fence.proxy")) {
        race_fence_lanes(c, race_warp_number(s), m);
        return;
    }
    if (!strstr(i->name, ".async")) return;
    const bool shared = !strstr(i->name, ".global"), outside = !strstr(i->name, ".shared");
    EACH_CLOCK(p, m, lanes, l) {
        (void)l;
        race_clock *mine = race_lanes_clock(c, p, lanes);
        for (int a = 0; a < mine->n; a++) {
            know *k = mine->of[a];
            if (shared) know_join(&k[KNOW_PROXY], &k[KNOW_SHARED]);
            if (outside) know_join(&k[KNOW_PROXY_OUT], &k[KNOW_OUTSIDE]);
        }
    }
    EACH_LANE(m, l) {
        if (shared) p->proxied[l] = p->now;
        if (outside) p->proxied_out[l] = p->now;
    }
    p->now++;
}
