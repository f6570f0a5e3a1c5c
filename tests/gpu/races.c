/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What instructions mean for races: which bytes they touch on whose behalf, and what they hand over to whom. The
 * functions here stand in front of those that do the work (races_wrap), so that nothing is asked where races are not
 * looked for. Barriers of blocks and clusters call from run.c.
 */
#include "gpu/race_parts.h"

#include <stdlib.h>
#include <string.h>

enum { MBARS = 48 }; /* of a block; more share their agents */
enum { ORDER_STRONG = 1, ORDER_ACQUIRE = 2, ORDER_RELEASE = 4 };

#define EVERYTHING ((1u << KNOW_KINDS) - 1)
#define SHARED_ONLY (1u << KNOW_SHARED | 1u << KNOW_PROXY)

bool races_told(void) {
    const char *asked = getenv("HEARTH_GPU_RACES");
    return asked && strcmp(asked, "2") == 0;
}

/* ---- clusters ---- */

int races_open(gpu_cluster *cluster) {
    const gpu_block *b = &cluster->blocks[0];
    const int        n = b->n_warps * cluster->n;
    race_cluster    *c = calloc(1, sizeof *c);
    if (!c) return err_set_nomem(cluster->grid->e);
    cluster->races = c;
    *c = (race_cluster){ .cluster = cluster,
                         .launch = cluster->grid->race_launch,
                         .n_warps = n,
                         .per_block = b->n_warps,
                         .cap_agents = 3 * n + 1 + MBARS * cluster->n,
                         .n_cells = b->smem_bytes / 4 + 1 };
    c->warps = calloc((size_t)n, sizeof *c->warps);
    c->bars = calloc((size_t)cluster->n * (NAMED_BARRIERS + 8), sizeof *c->bars);
    c->mbars = calloc((size_t)(MBARS * cluster->n), sizeof *c->mbars);
    c->cells = calloc((size_t)cluster->n, sizeof *c->cells);
    bool there = c->warps && c->bars && c->mbars && c->cells;
    for (int k = 0; k < cluster->n && there; k++)
        there = (c->cells[k] = calloc(1, race_cell_bytes(c->n_cells))) != NULL;
    return there ? 0 : err_set_nomem(cluster->grid->e);
}

static void meeting_forget(race_meeting *m) {
    race_clock_drop(m->at[0].clock);
    race_clock_drop(m->at[1].clock);
    memset(m, 0, sizeof *m);
}

static void forget(race_cluster *c) {
    for (int w = 0; w < c->n_warps && c->warps; w++) {
        for (int l = 0; l < LANES; l++) race_clock_drop(c->warps[w].of[l]);
        memset(&c->warps[w], 0, sizeof c->warps[w]);
    }
    for (int k = 0; k < c->cluster->n * (NAMED_BARRIERS + 8) && c->bars; k++) meeting_forget(&c->bars[k]);
    meeting_forget(&c->meeting);
    for (int k = 0; k < c->n_mbars; k++) {
        race_clock_drop(c->mbars[k].pending);
        race_clock_drop(c->mbars[k].done);
        c->mbars[k] = (race_mbar){ 0 };
    }
    c->n_mbars = 0;
}

void races_begin(gpu_cluster *cluster, unsigned number) {
    race_cluster *c = cluster->races;
    forget(c);
    c->run = race_run_new(c->launch, number);
    race_clock *first = race_clock_new(c->cap_agents);
    if (!race_launch_of(c->launch)->early) first->of[RACE_FRONT(c)][KNOW_OUTSIDE].all = 1;
    for (int w = 0; w < c->n_warps; w++) {
        race_warp *p = &c->warps[w];
        p->now = 1;
        p->full = cluster->blocks[w / c->per_block].warps[w % c->per_block].live;
        for (int l = 0; l < LANES; l++) p->of[l] = race_clock_keep(first);
    }
    race_clock_drop(first);
}

void races_close(gpu_cluster *cluster) {
    race_cluster *c = cluster->races;
    if (!c) return;
    forget(c);
    for (int k = 0; k < cluster->n && c->cells; k++) free(c->cells[k]);
    free(c->cells);
    free(c->mbars);
    free(c->bars);
    free(c->warps);
    free(c);
    cluster->races = NULL;
}

int race_agent_rank(const race_cluster *c, uint32_t agent) {
    const int n = (int)agent - RACE_FRONT(c) - 1;
    if (n < 0) return (int)agent % c->n_warps / c->per_block;
    return n < c->n_mbars ? (int)c->mbars[n].rank : 0;
}

static int warp_number(const warp_state *s) {
    return (int)s->block->rank * s->block->cluster->races->per_block + s->index;
}

static race_warp *warp_of(const warp_state *s) { return &s->block->cluster->races->warps[warp_number(s)]; }

/* ---- handing over ---- */

/* For each set of lanes in m that share a clock: those lanes as `lanes`, the first as `l`. */
#define EACH_CLOCK(p, m, lanes, l)                                                                                     \
    for (uint32_t left_ = (m), lanes = 0; left_ && (lanes = sharing(p, left_), true); left_ &= ~lanes)                 \
        for (int l = __builtin_ctz(lanes), once_ = 1; once_; once_ = 0)

static uint32_t sharing(const race_warp *p, uint32_t m) {
    const race_clock *c = p->of[__builtin_ctz(m)];
    uint32_t          same = 0;
    EACH_LANE(m, l) same |= (uint32_t)(p->of[l] == c) << l;
    return same;
}

/* The clock of those lanes, which share one, to be written. */
static race_clock *lanes_clock(race_cluster *c, race_warp *p, uint32_t lanes) {
    const int   first = __builtin_ctz(lanes);
    race_clock *old = p->of[first];
    if (old->refs == __builtin_popcount(lanes)) return old;
    race_clock *mine = race_clock_keep(old);
    race_clock_own(&mine, c->cap_agents);
    EACH_LANE(lanes, l) {
        race_clock_drop(p->of[l]);
        p->of[l] = race_clock_keep(mine);
    }
    race_clock_drop(mine);
    return p->of[first];
}

/* What times[l] says of the lanes m, those with equal times at once. */
static void add_times(know *k, const uint32_t *times, uint32_t m, uint32_t full) {
    while (m) {
        const uint32_t t = times[__builtin_ctz(m)];
        uint32_t       same = 0;
        EACH_LANE(m, l) same |= (uint32_t)(times[l] == t) << l;
        if (t) know_add(k, same, t, full);
        m &= ~same;
    }
}

/* All that the lanes know and did until now, into *to; what they do from now on is later. */
static void release(race_cluster *c, int w, uint32_t m, race_clock **to, unsigned kinds) {
    race_warp  *p = &c->warps[w];
    race_clock *t = race_clock_own(to, c->cap_agents);
    EACH_CLOCK(p, m, lanes, l) race_clock_join(t, p->of[l], kinds);
    know *own = t->of[w];
    if (kinds >> KNOW_SHARED & 1) know_add(&own[KNOW_SHARED], m, p->now, p->full);
    if (kinds >> KNOW_OUTSIDE & 1) know_add(&own[KNOW_OUTSIDE], m, p->now, p->full);
    if (kinds >> KNOW_PROXY & 1) add_times(&own[KNOW_PROXY], p->proxied, m, p->full);
    if (kinds >> KNOW_PROXY_OUT & 1) add_times(&own[KNOW_PROXY_OUT], p->proxied_out, m, p->full);
    if (kinds >> KNOW_FENCED & 1) add_times(&own[KNOW_FENCED], p->fenced, m, p->full);
    p->now++;
}

static void acquire(race_cluster *c, race_warp *p, uint32_t m, const race_clock *from) {
    if (!from) return;
    EACH_CLOCK(p, m, lanes, l) {
        (void)l;
        race_clock_join(lanes_clock(c, p, lanes), from, EVERYTHING);
    }
}

/* For lanes that arrive. */
static race_clock **meeting_clock(race_meeting *m, uint32_t round) {
    if (m->at[round & 1].round != round) {
        race_clock_drop(m->at[round & 1].clock);
        m->at[round & 1].clock = NULL;
        m->at[round & 1].round = round;
    }
    return &m->at[round & 1].clock;
}

/* For lanes that leave: `adopt` where what they know is part of it. */
static void meeting_leave(race_cluster *c, race_warp *p, uint32_t m, const race_meeting *at, uint32_t round,
                          bool adopt) {
    race_clock *from = at->at[round & 1].clock;
    if (at->at[round & 1].round != round || !from ||
        !adopt) { /* others have met there since: that is all that is left */
        acquire(c, p, m, from);
        return;
    }
    EACH_LANE(m, l) {
        race_clock_keep(from);
        race_clock_drop(p->of[l]);
        p->of[l] = from;
    }
}

/* ---- barriers of run.c ---- */

static bool is_named(const insn *i, const char *with) { return strncmp(i->name, with, strlen(with)) == 0; }

/* The four warps of a warpgroup end their products together: what one of them waits for all have waited for. */
static void products_over(race_cluster *c, int w, const insn *i, race_clock **to) {
    race_warp     *p = &c->warps[w];
    const uint32_t open = (uint32_t)i->offset;
    if (!is_named(i, "wgmma.wait_group")) return;
    know over = { .all = p->products > open ? p->products - open : 0 };
    know_join(&race_clock_own(to, c->cap_agents)->of[c->n_warps + w][KNOW_SHARED], &over);
}

void races_arrive(warp_state *s, const insn *i, uint32_t m, uint32_t id) {
    race_cluster *c = s->block->cluster->races;
    race_warp    *p = warp_of(s);
    if (i->mode == BAR_CLUSTER_ARRIVE) {
        race_clock   **to = meeting_clock(&c->meeting, c->cluster->phase);
        const uint32_t shared_only = strstr(i->name, ".relaxed") ? m : 0;
        if (shared_only & p->restricted) release(c, warp_number(s), shared_only & p->restricted, to, SHARED_ONLY);
        if (m & ~shared_only) release(c, warp_number(s), m & ~shared_only, to, EVERYTHING);
        p->restricted &= ~m;
        return;
    }
    race_meeting *b = &c->bars[s->block->rank * (NAMED_BARRIERS + 8) + id];
    race_clock  **to = meeting_clock(b, s->block->bars[id].generation);
    if (i->mode == BAR_WARPGROUP)
        products_over(c, warp_number(s), i, to);
    else
        release(c, warp_number(s), m, to, EVERYTHING);
}

void races_pass(warp_state *s, const insn *i, const group *g) {
    race_cluster *c = s->block->cluster->races;
    race_warp    *p = warp_of(s);
    if (i->mode == BAR_GRID) {
        race_launch_waited(c->launch);
        EACH_CLOCK(p, g->mask, lanes, l) {
            (void)l;
            lanes_clock(c, p, lanes)->of[RACE_FRONT(c)][KNOW_OUTSIDE].all = 1;
        }
        return;
    }
    if (i->mode == BAR_CLUSTER_WAIT) {
        meeting_leave(c, p, g->mask, &c->meeting, g->generation, false);
        return;
    }
    const race_meeting *b = &c->bars[s->block->rank * (NAMED_BARRIERS + 8) + g->bar];
    meeting_leave(c, p, g->mask, b, g->generation, i->mode != BAR_WARPGROUP);
}

static void race_warp_sync(warp *w, const insn *i, uint32_t m) {
    warp_state   *s = state_of(w);
    race_cluster *c = s->block->cluster->races;
    race_warp    *p = warp_of(s);
    (void)i;
    EACH_LANE(m, l) {
        const uint32_t of = lanes32(w, i->o[0])[l] & m;
        if (__builtin_ctz(of) != l) continue; /* once for all that name each other */
        race_clock *met = race_clock_keep(p->of[l]);
        if (sharing(p, of) == of && met->refs == __builtin_popcount(of) + 1) {
            race_clock_drop(met); /* theirs alone */
            know *own = met->of[warp_number(s)];
            know_add(&own[KNOW_SHARED], of, p->now, p->full);
            know_add(&own[KNOW_OUTSIDE], of, p->now, p->full);
            add_times(&own[KNOW_PROXY], p->proxied, of, p->full);
            add_times(&own[KNOW_PROXY_OUT], p->proxied_out, of, p->full);
            add_times(&own[KNOW_FENCED], p->fenced, of, p->full);
            p->now++;
            continue;
        }
        release(c, warp_number(s), of, &met, EVERYTHING);
        EACH_LANE(of, k) {
            race_clock_drop(p->of[k]);
            p->of[k] = race_clock_keep(met);
        }
        race_clock_drop(met);
    }
}

/* The shared memory that an address is of; NULL: global, or *nothing where it is neither or faults by itself. */
static gpu_block *shared_at(const warp_state *s, const insn *i, uint64_t at, uint32_t *offset, bool *nothing) {
    const gpu_cluster *c = s->block->cluster;
    *nothing = i->space == SPACE_LOCAL || i->space == SPACE_PARAM;
    if (i->space == SPACE_GENERIC) *nothing = (at & TAG_MASK) == TAG_LOCAL;
    if (*nothing || i->space == SPACE_GLOBAL || (i->space == SPACE_GENERIC && (at & TAG_MASK) != TAG_SHARED))
        return NULL;
    const uint32_t rank = (uint32_t)at >> RANK_SHIFT;
    *offset = (uint32_t)at & ((1u << RANK_SHIFT) - 1);
    *nothing = rank > (uint32_t)c->n;
    return *nothing ? NULL : rank ? &c->blocks[rank - 1] : s->block;
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
static uint64_t sync_key(const warp_state *s, const insn *i, uint64_t at) {
    uint32_t         offset = 0;
    bool             nothing;
    const gpu_block *b = shared_at(s, i, at, &offset, &nothing);
    return b ? TAG_SHARED | (uint64_t)s->block->cluster->races->run << 28 | (uint64_t)b->rank << RANK_SHIFT | offset
             : at;
}

static void let_go(race_cluster *c, int w, int lane, uint64_t key) {
    race_warp  *p = &c->warps[w];
    race_clock *what = NULL;
    if (!p->fenced[lane]) {
        bool any = false;
        for (int a = 0; a < c->cap_agents && !any; a++)
            any = p->of[lane]->of[a][KNOW_FENCED].all | p->of[lane]->of[a][KNOW_FENCED].some;
        if (!any) return;
    }
    sync_place *to = sync_at(key, c->launch, true);
    release(c, w, 1u << lane, &what, 1u << KNOW_FENCED);
    place_add(to, c->run, what);
    race_clock_drop(what);
    for (int k = 0; k < p->of[lane]->n_foreign; k++) {
        if (p->of[lane]->foreign[k].fenced) place_add(to, p->of[lane]->foreign[k].run, p->of[lane]->foreign[k].what);
    }
}

static void take_up(race_cluster *c, int w, int lane, uint64_t key) {
    const sync_place *from = sync_at(key, c->launch, false);
    if (!from) return;
    race_clock *mine = lanes_clock(c, &c->warps[w], 1u << lane);
    for (int k = 0; k < from->n; k++) {
        if (from->from[k].run != c->run) {
            race_foreign_add(mine,
                             (race_foreign){ .run = from->from[k].run, .pending = true, .what = from->from[k].what });
            continue;
        }
        for (int a = 0; a < c->cap_agents; a++)
            know_join(&mine->of[a][KNOW_PENDING], &from->from[k].what->of[a][KNOW_FENCED]);
    }
}

/* What atomics brought is known, and what is known by now may be handed over by atomics. */
static void fence(race_cluster *c, int w, uint32_t m) {
    race_warp *p = &c->warps[w];
    EACH_CLOCK(p, m, lanes, l) {
        (void)l;
        race_clock *mine = lanes_clock(c, p, lanes);
        for (int a = 0; a < c->cap_agents; a++) {
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

static void race_fence(warp *w, const insn *i, uint32_t m) {
    warp_state   *s = state_of(w);
    race_cluster *c = s->block->cluster->races;
    race_warp    *p = warp_of(s);
    if (strstr(i->name, "sync_restrict")) {
        if (strstr(i->name, ".release")) p->restricted |= m;
        return;
    }
    if (!is_named(i, "fence.proxy")) {
        fence(c, warp_number(s), m);
        return;
    }
    if (!strstr(i->name, ".async")) return;
    const bool shared = !strstr(i->name, ".global"), outside = !strstr(i->name, ".shared");
    EACH_CLOCK(p, m, lanes, l) {
        (void)l;
        race_clock *mine = lanes_clock(c, p, lanes);
        for (int a = 0; a < c->cap_agents; a++) {
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

/* ---- loads, stores, atomics ---- */

/* An access of those lanes themselves, which share a clock. */
static race_touch touch_of(warp_state *s, const insn *i, uint32_t lanes, unsigned kind) {
    const race_warp *p = warp_of(s);
    const int        first = __builtin_ctz(lanes);
    return (race_touch){ .c = s->block->cluster->races,
                         .s = s,
                         .i = i,
                         .knows = p->of[first],
                         .lanes = lanes,
                         .proxied = p->proxied[first],
                         .proxied_out = p->proxied_out[first],
                         .agent = (uint32_t)warp_number(s),
                         .stamp_lanes = lanes,
                         .t = p->now,
                         .kind = kind };
}

static void touch_at(const race_touch *x, uint64_t at, uint32_t bytes) {
    uint32_t   offset = 0;
    bool       nothing;
    gpu_block *b = shared_at(x->s, x->i, at, &offset, &nothing);
    if (b)
        race_touch_shared(x, b, offset, bytes);
    else if (!nothing)
        race_touch_global(x, at, bytes);
}

static void race_load(warp *w, const insn *i, uint32_t m) {
    warp_state      *s = state_of(w);
    const race_warp *p = warp_of(s);
    const uint32_t   bytes = (uint32_t)(i->bytes * i->listed[0]);
    for (uint32_t left = m; left;) {
        const int      first = __builtin_ctz(left);
        const uint64_t at = lane_address(w, i, i->o[1], first);
        uint32_t       same = 0; /* lanes that read the same, often all */
        EACH_LANE(left, l) {
            if (lane_address(w, i, i->o[1], l) != at || p->of[l] != p->of[first]) break;
            same |= 1u << l;
        }
        const race_touch x = touch_of(s, i, same, i->order ? TOUCH_STRONG : 0);
        touch_at(&x, at, bytes);
        left &= ~same;
    }
    if (i->order) {
        EACH_LANE(m, l)
        take_up(s->block->cluster->races, warp_number(s), l, sync_key(s, i, lane_address(w, i, i->o[1], l)));
        if (i->order & ORDER_ACQUIRE) fence(s->block->cluster->races, warp_number(s), m);
    }
    do_load(w, i, m);
}

static void race_store(warp *w, const insn *i, uint32_t m) {
    warp_state   *s = state_of(w);
    race_cluster *c = s->block->cluster->races;
    const int     n = i->listed[0], bytes = i->bytes;
    if (i->order & ORDER_RELEASE) fence(c, warp_number(s), m);
    EACH_LANE(m, l) {
        uint8_t    value[64];
        race_touch x = touch_of(s, i, 1u << l, TOUCH_WRITES | (i->order ? TOUCH_STRONG : 0));
        for (int k = 0; k < n && n * bytes <= (int)sizeof value; k++) {
            const operand from = i->list[0][k];
            if (from.kind == SLOT_64)
                memcpy(value + k * bytes, &lanes64(w, from)[l], (size_t)bytes);
            else
                memcpy(value + k * bytes, &lanes32(w, from)[l], (size_t)bytes);
        }
        x.value = value;
        touch_at(&x, lane_address(w, i, i->o[1], l), (uint32_t)(n * bytes));
        if (i->order) let_go(c, warp_number(s), l, sync_key(s, i, lane_address(w, i, i->o[1], l)));
        do_store(w, i, 1u << l); /* one behind the other, so that lanes of one store are compared with each other */
    }
}

static void race_atom(warp *w, const insn *i, uint32_t m) {
    warp_state   *s = state_of(w);
    race_cluster *c = s->block->cluster->races;
    if (i->order & ORDER_RELEASE) fence(c, warp_number(s), m);
    EACH_LANE(m, l) {
        const uint64_t   at = lane_address(w, i, i->o[1], l);
        const race_touch x = touch_of(s, i, 1u << l, TOUCH_WRITES | TOUCH_STRONG);
        touch_at(&x, at, i->bytes);
        take_up(c, warp_number(s), l, sync_key(s, i, at));
        let_go(c, warp_number(s), l, sync_key(s, i, at));
    }
    if (i->order & ORDER_ACQUIRE) fence(c, warp_number(s), m);
    do_atom(w, i, m);
}

static void race_ldmatrix(warp *w, const insn *i, uint32_t m) {
    for (int l = 0; l < 8 * i->listed[0]; l++) {
        const race_touch x = touch_of(state_of(w), i, 1u << l, 0);
        race_touch_shared(&x, x.s->block, (uint32_t)lane_address(w, i, i->o[1], l), 16);
    }
    do_ldmatrix(w, i, m);
}

/* ---- wgmma ---- */

/* Of a product that is under way until somebody waits for its group. */
void races_wgmma(warp_state *s, const insn *i, uint32_t offset, uint32_t bytes) {
    race_touch x = touch_of(s, i, ALL_LANES, TOUCH_ASYNC);
    x.agent = (uint32_t)(x.c->n_warps + warp_number(s));
    x.stamp_lanes = 1;
    x.t = warp_of(s)->products + 1;
    race_touch_shared(&x, s->block, offset, bytes);
}

static void race_products_commit(warp *w, const insn *i, uint32_t m) {
    (void)i;
    (void)m;
    warp_of(state_of(w))->products++;
}

/* ---- barriers in shared memory ---- */

static race_mbar *mbar_of(race_cluster *c, uint32_t rank, uint32_t offset) {
    for (int k = 0; k < c->n_mbars; k++) {
        if (c->mbars[k].offset == offset && c->mbars[k].rank == rank) return &c->mbars[k];
    }
    const int  n = c->n_mbars < MBARS * c->cluster->n ? c->n_mbars++ : (int)(offset / 8) % c->n_mbars;
    race_mbar *b = &c->mbars[n];
    if (b->offset) return b; /* more than there is room for share */
    *b = (race_mbar){ .rank = rank, .offset = offset, .agent = (uint32_t)(RACE_FRONT(c) + 1 + n) };
    return b;
}

static race_mbar *mbar_at(const warp_state *s, const insn *i, uint64_t at, const uint8_t **memory) {
    uint32_t   offset;
    bool       nothing;
    gpu_block *b = shared_at(s, i, at, &offset, &nothing);
    if (!b || offset < SMEM_BASE || offset + 8 > b->smem_bytes) return NULL; /* the access itself faults */
    *memory = b->smem + offset;
    return mbar_of(s->block->cluster->races, b->rank, offset);
}

/* Its phase is over where the parity is another one (async.c has the layout): what was let go is there to be taken up. */
static bool parity_of(const uint8_t *memory) { return memory[5] & 1; }

static void phase_check(race_cluster *c, race_mbar *b, bool before, const uint8_t *memory) {
    if (parity_of(memory) == before) return;
    b->phase++;
    race_clock_drop(b->done);
    b->done = NULL;
    race_clock *done = race_clock_own(&b->pending, c->cap_agents);
    know        over = { .all = b->phase };
    know_join(&done->of[b->agent][KNOW_SHARED], &over);
    know_join(&done->of[b->agent][KNOW_OUTSIDE], &over);
    b->done = done;
    b->pending = NULL;
}

static void touch_mbar(warp_state *s, const insn *i, int lane, uint64_t at, unsigned kind) {
    const race_touch x = touch_of(s, i, 1u << lane, kind);
    touch_at(&x, at, 8);
}

static void race_mbar_init(warp *w, const insn *i, uint32_t m) {
    EACH_LANE(m, l) {
        const uint8_t *memory;
        const uint64_t at = lane_address(w, i, i->o[1], l);
        race_mbar     *b = mbar_at(state_of(w), i, at, &memory);
        touch_mbar(state_of(w), i, l, at, TOUCH_WRITES);
        if (!b) continue;
        race_clock_drop(b->pending);
        race_clock_drop(b->done);
        b->pending = b->done = NULL;
    }
    do_mbar_init(w, i, m);
}

static void race_mbar_arrive(warp *w, const insn *i, uint32_t m) {
    warp_state   *s = state_of(w);
    race_cluster *c = s->block->cluster->races;
    uint32_t      left = m;
    EACH_LANE(m, l) {
        const uint8_t *memory;
        const uint64_t at = lane_address(w, i, i->o[1], l);
        race_mbar     *b = mbar_at(s, i, at, &memory);
        touch_mbar(s, i, l, at, TOUCH_WRITES | TOUCH_STRONG);
        if (!b) {
            do_mbar_arrive(w, i, 1u << l);
            continue;
        }
        const bool before = parity_of(memory);
        if (left >> l & 1) { /* with it all that arrive at the same one, unless their phase ends in between */
            uint32_t with = 0;
            EACH_LANE(left, k) {
                if (lane_address(w, i, i->o[1], k) == at) with |= 1u << k;
            }
            release(c, warp_number(s), with, &b->pending, EVERYTHING);
            left &= ~with;
        }
        do_mbar_arrive(w, i, 1u << l);
        phase_check(c, b, before, memory);
    }
}

static void race_mbar_wait(warp *w, const insn *i, uint32_t m) {
    warp_state   *s = state_of(w);
    race_cluster *c = s->block->cluster->races;
    uint32_t      got = 0;
    race_mbar    *b = NULL;
    EACH_LANE(m, l) {
        const uint8_t *memory = NULL;
        const uint64_t at = lane_address(w, i, i->o[1], l);
        race_mbar     *mine = mbar_at(s, i, at, &memory);
        const bool     before = mine && parity_of(memory);
        do_mbar_wait(w, i, 1u << l);
        if (!mine) continue;
        phase_check(c, mine, before, memory);
        if (!(lanes_pred(w, i->o[0]) >> l & 1)) continue;
        touch_mbar(s, i, l, at, TOUCH_STRONG);
        if (b && b != mine) acquire(c, warp_of(s), got, b->done), got = 0;
        b = mine;
        got |= 1u << l;
    }
    if (got) acquire(c, warp_of(s), got, b->done);
}

/* ---- copies ---- */

/* Asked for by a lane, done by an agent that it does not know of until it has waited. */
static race_touch copy_of(warp_state *s, const insn *i, int lane, unsigned kind, uint32_t agent, uint32_t t) {
    race_touch x = touch_of(s, i, 1u << lane, kind);
    x.agent = agent;
    x.t = t;
    return x;
}

static void race_bulk_copy(warp *w, const insn *i, uint32_t m) {
    warp_state   *s = state_of(w);
    race_cluster *c = s->block->cluster->races;
    EACH_LANE(m, l) {
        const uint32_t to = (uint32_t)lane_address(w, i, i->o[0], l), bar = (uint32_t)lane_address(w, i, i->o[3], l);
        const uint32_t bytes = lanes32(w, i->o[2])[l], inside = (1u << RANK_SHIFT) - 1;
        const uint32_t rank = to >> RANK_SHIFT ? (to >> RANK_SHIFT) - 1 : s->block->rank;
        const uint32_t blocks = i->n < 5 ? 1u << rank : lanes32(w, i->o[4])[l];
        for (int k = 0; k < c->cluster->n; k++) {
            if (!(blocks >> k & 1)) continue;
            const race_mbar *b = mbar_of(c, (uint32_t)k, bar & inside);
            race_touch       x = touch_of(s, i, 1u << l, TOUCH_WRITES | TOUCH_STRONG);
            race_touch_shared(&x, &c->cluster->blocks[k], bar & inside, 8);
            x = copy_of(s, i, l, TOUCH_ASYNC | TOUCH_WRITES, b->agent, b->phase + 1);
            x.stamp_lanes = 1;
            race_touch_shared(&x, &c->cluster->blocks[k], to & inside, bytes);
            x.kind = TOUCH_ASYNC;
            race_touch_global(&x, lane_address(w, i, i->o[1], l), bytes);
        }
    }
    do_bulk_copy(w, i, m);
}

static void race_copy_async(warp *w, const insn *i, uint32_t m) {
    warp_state    *s = state_of(w);
    race_cluster  *c = s->block->cluster->races;
    const uint32_t agent = (uint32_t)(2 * c->n_warps + warp_number(s));
    EACH_LANE(m, l) {
        uint32_t   read = i->n > 3 ? lanes32(w, i->o[2])[l] : i->bytes;
        race_touch x = copy_of(s, i, l, TOUCH_WRITES, agent, warp_of(s)->now);
        race_touch_shared(&x, s->block, (uint32_t)lane_address(w, i, i->o[0], l), i->bytes);
        x.kind = 0;
        if (read) race_touch_global(&x, lane_address(w, i, i->o[1], l), read < i->bytes ? read : i->bytes);
    }
    do_copy_async(w, i, m);
}

static void race_copy_commit(warp *w, const insn *i, uint32_t m) {
    warp_state *s = state_of(w);
    race_warp  *p = warp_of(s);
    EACH_LANE(m, l) p->committed[l][s->copy_group[l] % 16] = p->now;
    p->now++;
    do_copy_commit(w, i, m);
}

/* Lanes know of their own copies up to times[l]. */
static void copies_over(race_cluster *c, int w, uint32_t m, const uint32_t *times) {
    race_warp *p = &c->warps[w];
    EACH_CLOCK(p, m, lanes, l) {
        (void)l;
        race_clock *mine = lanes_clock(c, p, lanes);
        add_times(&mine->of[2 * c->n_warps + w][KNOW_SHARED], times, lanes, p->full);
        add_times(&mine->of[2 * c->n_warps + w][KNOW_OUTSIDE], times, lanes, p->full);
    }
}

static void race_copy_wait(warp *w, const insn *i, uint32_t m) {
    warp_state *s = state_of(w);
    race_warp  *p = warp_of(s);
    uint32_t    times[LANES] = { 0 };
    EACH_LANE(m, l) {
        const uint32_t made = s->copy_group[l], under_way = (uint32_t)i->offset;
        if (i->mode)
            times[l] = p->now;
        else if (made > under_way)
            times[l] = p->committed[l][(made - under_way - 1) % 16];
    }
    copies_over(s->block->cluster->races, warp_number(s), m, times);
    p->now++;
    do_copy_wait(w, i, m);
}

/* The lane's copies until now are told of at the barrier, and nothing else that it did. */
static void race_copy_arrive(warp *w, const insn *i, uint32_t m) {
    warp_state    *s = state_of(w);
    race_cluster  *c = s->block->cluster->races;
    race_warp     *p = warp_of(s);
    const int      agent = 2 * c->n_warps + warp_number(s);
    const uint32_t now = p->now++;
    EACH_LANE(m, l) {
        const uint8_t *memory;
        const uint64_t at = lane_address(w, i, i->o[1], l);
        race_mbar     *b = mbar_at(s, i, at, &memory);
        touch_mbar(s, i, l, at, TOUCH_WRITES | TOUCH_STRONG);
        if (!b) {
            do_copy_arrive(w, i, 1u << l);
            continue;
        }
        race_clock *to = race_clock_own(&b->pending, c->cap_agents);
        const bool  before = parity_of(memory);
        know_add(&to->of[agent][KNOW_SHARED], 1u << l, now, p->full);
        know_add(&to->of[agent][KNOW_OUTSIDE], 1u << l, now, p->full);
        do_copy_arrive(w, i, 1u << l);
        phase_check(c, b, before, memory);
    }
}

/* ---- which instructions ---- */

static uint8_t order_of(const char *name) {
    const bool both = strstr(name, ".acq_rel") != NULL, acquires = both || strstr(name, ".acquire");
    const bool releases = both || strstr(name, ".release");
    const bool strong = acquires || releases || strstr(name, ".volatile") || strstr(name, ".relaxed");
    return (uint8_t)((strong ? ORDER_STRONG : 0) | (acquires ? ORDER_ACQUIRE : 0) | (releases ? ORDER_RELEASE : 0));
}

void races_wrap(gpu_kernel *k) {
    static const struct {
        lane_fn from, to;
    } pairs[] = { { do_load, race_load },
                  { do_store, race_store },
                  { do_atom, race_atom },
                  { do_ldmatrix, race_ldmatrix },
                  { do_mbar_init, race_mbar_init },
                  { do_mbar_arrive, race_mbar_arrive },
                  { do_mbar_wait, race_mbar_wait },
                  { do_bulk_copy, race_bulk_copy },
                  { do_copy_async, race_copy_async },
                  { do_copy_commit, race_copy_commit },
                  { do_copy_wait, race_copy_wait },
                  { do_copy_arrive, race_copy_arrive } };
    const char *asked = getenv("HEARTH_GPU_RACES");
    k->races = asked && (strcmp(asked, "1") == 0 || strcmp(asked, "2") == 0);
    for (int n = 0; n < k->n_code && k->races; n++) {
        insn *i = &k->code[n];
        if (i->space == SPACE_PARAM || i->space == SPACE_LOCAL) continue;
        for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++) {
            if (i->fn != pairs[p].from) continue;
            i->fn = pairs[p].to;
            i->order = order_of(i->name);
            break;
        }
        if (is_named(i, "bar.warp.sync")) i->fn = race_warp_sync;
        if (is_named(i, "fence.") || is_named(i, "membar.")) i->fn = race_fence;
        if (is_named(i, "wgmma.commit_group")) i->fn = race_products_commit;
    }
}
