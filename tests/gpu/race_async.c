/* SPDX-License-Identifier: Apache-2.0 */
/* Barriers in shared memory hand over what those who arrived know; copies are accesses of others until one has waited. */
#include "gpu/race_parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- barriers in shared memory ---- */

static race_mbar *mbar_of(warp_state *s, const insn *i, uint32_t rank, uint32_t offset) {
    race_cluster *c = s->block->cluster->races;
    uint16_t     *at = &c->mbar_at[rank][offset / 8];
    if (*at) return &c->mbars[*at - 1];
    if (c->n_mbars == c->cap_mbars) gpu_fault(s, i, "more barriers than the race detector has room for");
    *at = (uint16_t)(c->n_mbars + 1);
    race_mbar *b = &c->mbars[c->n_mbars++];
    *b = (race_mbar){ .rank = rank, .offset = offset, .agent = (uint32_t)c->n_agents++ };
    return b;
}

static race_mbar *mbar_at(warp_state *s, const insn *i, uint64_t at, const uint8_t **memory) {
    uint32_t   offset;
    bool       nothing;
    gpu_block *b = race_shared_at(s, i, at, &offset, &nothing);
    if (!b || offset < SMEM_BASE || offset + 8 > b->smem_bytes) return NULL; /* the access itself faults */
    *memory = b->smem + offset;
    return mbar_of(s, i, b->rank, offset);
}

/* The layout is async.c's. Where the parity is another one the phase is over: what was let go can be taken up. */
static bool parity_of(const uint8_t *memory) { return memory[5] & 1; }

static void phase_check(race_cluster *c, race_mbar *b, bool before, const uint8_t *memory) {
    if (parity_of(memory) == before) return;
    b->phase++;
    race_clock_drop(b->done);
    b->done = NULL;
    race_clock *done = race_clock_own(&b->pending, c->n_agents);
    know        over = { .all = b->phase };
    know_join(&done->of[b->agent][KNOW_SHARED], &over);
    know_join(&done->of[b->agent][KNOW_OUTSIDE], &over);
    b->done = done;
    b->pending = NULL;
}

static void touch_mbar(warp_state *s, const insn *i, int lane, uint64_t at, unsigned kind) {
    const race_touch x = race_touch_of(s, i, 1u << lane, kind);
    race_touch_at(&x, at, 8);
}

void race_mbar_init(warp *w, const insn *i, uint32_t m) {
    EACH_LANE(m, l) {
        const uint8_t *memory;
        const uint64_t at = lane_address(w, i, i->o[1], l);
        race_mbar     *b = mbar_at(state_of(w), i, at, &memory);
        touch_mbar(state_of(w), i, l, at, TOUCH_WRITES);
        if (!b) continue;
        race_clock_drop(b->pending);
        race_clock_drop(b->done);
        b->pending = b->done = NULL;
        b->by = (uint32_t)race_warp_number(state_of(w));
        b->lane = (uint32_t)l;
        b->line = i->line;
        b->open = true;
    }
    do_mbar_init(w, i, m);
}

void race_mbar_arrive(warp *w, const insn *i, uint32_t m) {
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
            race_release(c, race_warp_number(s), with, &b->pending, RACE_EVERYTHING);
            left &= ~with;
        }
        do_mbar_arrive(w, i, 1u << l);
        phase_check(c, b, before, memory);
    }
}

void race_mbar_wait(warp *w, const insn *i, uint32_t m) {
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
        if (b && b != mine) race_acquire(c, race_warp_of(s), got, b->done), got = 0;
        b = mine;
        got |= 1u << l;
    }
    if (got) race_acquire(c, race_warp_of(s), got, b->done);
}

/* ---- copies ---- */

/* Asked for by a lane, done by an agent that it does not know of until it has waited. */
static race_touch copy_of(warp_state *s, const insn *i, int lane, unsigned kind, uint32_t agent, uint32_t t) {
    race_touch x = race_touch_of(s, i, 1u << lane, kind);
    x.agent = agent;
    x.t = t;
    return x;
}

void race_bulk_copy(warp *w, const insn *i, uint32_t m) {
    warp_state   *s = state_of(w);
    race_cluster *c = s->block->cluster->races;
    EACH_LANE(m, l) {
        const uint32_t to = (uint32_t)lane_address(w, i, i->o[0], l), bar = (uint32_t)lane_address(w, i, i->o[3], l);
        const uint32_t bytes = lanes32(w, i->o[2])[l], inside = (1u << RANK_SHIFT) - 1;
        const uint32_t rank = to >> RANK_SHIFT ? (to >> RANK_SHIFT) - 1 : s->block->rank;
        const uint32_t blocks = i->n < 5 ? 1u << rank : lanes32(w, i->o[4])[l];
        for (int k = 0; k < c->cluster->n; k++) {
            if (!(blocks >> k & 1)) continue;
            if ((bar & inside) + 8 > c->cluster->blocks[k].smem_bytes) continue; /* faults by itself */
            const race_mbar *b = mbar_of(s, i, (uint32_t)k, bar & inside);
            race_touch       x = race_touch_of(s, i, 1u << l, TOUCH_WRITES | TOUCH_STRONG);
            race_touch_shared(&x, &c->cluster->blocks[k], bar & inside, 8);
            if (b->open)
                race_report(&x,
                            &(race_slot){ .run = c->run,
                                          .lanes = 1u << b->lane,
                                          .kind = TOUCH_WRITES,
                                          .line = b->line & 0x1fffff,
                                          .agent = b->by & 0x7ff },
                            "a barrier without a fence", 8, false);
            x = copy_of(s, i, l, TOUCH_ASYNC | TOUCH_WRITES, b->agent, b->phase + 1);
            x.stamp_lanes = 1;
            race_touch_shared(&x, &c->cluster->blocks[k], to & inside, bytes);
            x.kind = TOUCH_ASYNC;
            race_touch_global(&x, lane_address(w, i, i->o[1], l), bytes);
        }
    }
    do_bulk_copy(w, i, m);
}

void race_copy_async(warp *w, const insn *i, uint32_t m) {
    warp_state    *s = state_of(w);
    race_cluster  *c = s->block->cluster->races;
    const uint32_t agent = (uint32_t)(2 * c->n_warps + race_warp_number(s));
    EACH_LANE(m, l) {
        uint32_t   read = i->n > 3 ? lanes32(w, i->o[2])[l] : i->bytes;
        race_touch x = copy_of(s, i, l, TOUCH_WRITES, agent, race_warp_of(s)->now);
        race_touch_shared(&x, s->block, (uint32_t)lane_address(w, i, i->o[0], l), i->bytes);
        x.kind = 0;
        if (read) race_touch_global(&x, lane_address(w, i, i->o[1], l), read < i->bytes ? read : i->bytes);
    }
    do_copy_async(w, i, m);
}

void race_copy_commit(warp *w, const insn *i, uint32_t m) {
    warp_state *s = state_of(w);
    race_warp  *p = race_warp_of(s);
    EACH_LANE(m, l) p->committed[l][s->copy_group[l] % 16] = p->now;
    p->now++;
    do_copy_commit(w, i, m);
}

/* Lanes know of their own copies up to times[l]. */
static void copies_over(race_cluster *c, int w, uint32_t m, const uint32_t *times) {
    race_warp *p = &c->warps[w];
    EACH_CLOCK(p, m, lanes, l) {
        (void)l;
        race_clock *mine = race_lanes_clock(c, p, lanes);
        race_add_times(&mine->of[2 * c->n_warps + w][KNOW_SHARED], times, lanes, p->full);
        race_add_times(&mine->of[2 * c->n_warps + w][KNOW_OUTSIDE], times, lanes, p->full);
    }
}

void race_copy_wait(warp *w, const insn *i, uint32_t m) {
    warp_state *s = state_of(w);
    race_warp  *p = race_warp_of(s);
    uint32_t    times[LANES] = { 0 };
    EACH_LANE(m, l) {
        const uint32_t made = s->copy_group[l], under_way = (uint32_t)i->offset;
        if (i->mode)
            times[l] = p->now;
        else if (made > under_way)
            times[l] = p->committed[l][(made - under_way - 1) % 16];
    }
    copies_over(s->block->cluster->races, race_warp_number(s), m, times);
    p->now++;
    do_copy_wait(w, i, m);
}

/* The lane's copies until now are told of at the barrier, and nothing else that it did. */
void race_copy_arrive(warp *w, const insn *i, uint32_t m) {
    warp_state    *s = state_of(w);
    race_cluster  *c = s->block->cluster->races;
    race_warp     *p = race_warp_of(s);
    const int      agent = 2 * c->n_warps + race_warp_number(s);
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
        race_clock *to = race_clock_own(&b->pending, c->n_agents);
        const bool  before = parity_of(memory);
        know_add(&to->of[agent][KNOW_SHARED], 1u << l, now, p->full);
        know_add(&to->of[agent][KNOW_OUTSIDE], 1u << l, now, p->full);
        do_copy_arrive(w, i, 1u << l);
        phase_check(c, b, before, memory);
    }
}
