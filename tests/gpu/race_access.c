/* SPDX-License-Identifier: Apache-2.0 */
/* Which bytes loads, stores, atomics and matrix instructions touch, and on whose behalf. */
#include "gpu/race_parts.h"

#include <stdlib.h>
#include <string.h>

/* The shared memory that an address is of; NULL: global, or *nothing where it is neither or faults by itself. */
gpu_block *race_shared_at(const warp_state *s, const insn *i, uint64_t at, uint32_t *offset, bool *nothing) {
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

/* ---- loads, stores, atomics ---- */

/* An access of those lanes themselves, which share a clock. */
race_touch race_touch_of(warp_state *s, const insn *i, uint32_t lanes, unsigned kind) {
    const race_warp *p = race_warp_of(s);
    const int        first = __builtin_ctz(lanes);
    return (race_touch){ .c = s->block->cluster->races,
                         .s = s,
                         .i = i,
                         .knows = p->of[first],
                         .lanes = lanes,
                         .proxied = p->proxied[first],
                         .proxied_out = p->proxied_out[first],
                         .agent = (uint32_t)race_warp_number(s),
                         .stamp_lanes = lanes,
                         .t = p->now,
                         .kind = kind };
}

void race_touch_at(const race_touch *x, uint64_t at, uint32_t bytes) {
    uint32_t   offset = 0;
    bool       nothing;
    gpu_block *b = race_shared_at(x->s, x->i, at, &offset, &nothing);
    if (b)
        race_touch_shared(x, b, offset, bytes);
    else if (!nothing)
        race_touch_global(x, at, bytes);
}

void race_load(warp *w, const insn *i, uint32_t m) {
    warp_state      *s = state_of(w);
    const race_warp *p = race_warp_of(s);
    const uint32_t   bytes = (uint32_t)(i->bytes * i->listed[0]);
    for (uint32_t left = m; left;) {
        const int      first = __builtin_ctz(left);
        const uint64_t at = lane_address(w, i, i->o[1], first);
        uint32_t       same = 0; /* lanes that read the same, often all */
        EACH_LANE(left, l) {
            if (lane_address(w, i, i->o[1], l) != at || p->of[l] != p->of[first]) break;
            same |= 1u << l;
        }
        const race_touch x = race_touch_of(s, i, same, i->order ? TOUCH_STRONG : 0);
        race_touch_at(&x, at, bytes);
        left &= ~same;
    }
    if (i->order) {
        EACH_LANE(m, l)
        race_take_up(s->block->cluster->races, race_warp_number(s), l,
                     race_sync_key(s, i, lane_address(w, i, i->o[1], l)));
        if (i->order & ORDER_ACQUIRE) race_fence_lanes(s->block->cluster->races, race_warp_number(s), m);
    }
    do_load(w, i, m);
}

void race_store(warp *w, const insn *i, uint32_t m) {
    warp_state   *s = state_of(w);
    race_cluster *c = s->block->cluster->races;
    const int     n = i->listed[0], bytes = i->bytes;
    if (i->order & ORDER_RELEASE) race_fence_lanes(c, race_warp_number(s), m);
    EACH_LANE(m, l) {
        uint8_t    value[64];
        race_touch x = race_touch_of(s, i, 1u << l, TOUCH_WRITES | (i->order ? TOUCH_STRONG : 0));
        for (int k = 0; k < n && n * bytes <= (int)sizeof value; k++) {
            const operand from = i->list[0][k];
            if (from.kind == SLOT_64)
                memcpy(value + k * bytes, &lanes64(w, from)[l], (size_t)bytes);
            else
                memcpy(value + k * bytes, &lanes32(w, from)[l], (size_t)bytes);
        }
        x.value = value;
        race_touch_at(&x, lane_address(w, i, i->o[1], l), (uint32_t)(n * bytes));
        if (i->order) race_let_go(c, race_warp_number(s), l, race_sync_key(s, i, lane_address(w, i, i->o[1], l)));
        do_store(w, i, 1u << l); /* one behind the other, so that lanes of one store are compared with each other */
    }
}

void race_atom(warp *w, const insn *i, uint32_t m) {
    warp_state   *s = state_of(w);
    race_cluster *c = s->block->cluster->races;
    if (i->order & ORDER_RELEASE) race_fence_lanes(c, race_warp_number(s), m);
    EACH_LANE(m, l) {
        const uint64_t   at = lane_address(w, i, i->o[1], l);
        const race_touch x = race_touch_of(s, i, 1u << l, TOUCH_WRITES | TOUCH_STRONG);
        race_touch_at(&x, at, i->bytes);
        race_take_up(c, race_warp_number(s), l, race_sync_key(s, i, at));
        race_let_go(c, race_warp_number(s), l, race_sync_key(s, i, at));
    }
    if (i->order & ORDER_ACQUIRE) race_fence_lanes(c, race_warp_number(s), m);
    do_atom(w, i, m);
}

void race_ldmatrix(warp *w, const insn *i, uint32_t m) {
    for (int l = 0; l < 8 * i->listed[0]; l++) {
        const race_touch x = race_touch_of(state_of(w), i, 1u << l, 0);
        race_touch_shared(&x, x.s->block, (uint32_t)lane_address(w, i, i->o[1], l), 16);
    }
    do_ldmatrix(w, i, m);
}

/* ---- wgmma ---- */

/* Of a product that is under way until somebody waits for its group. */
void races_wgmma(warp_state *s, const insn *i, uint32_t offset, uint32_t bytes) {
    race_touch x = race_touch_of(s, i, ALL_LANES, TOUCH_ASYNC);
    x.agent = (uint32_t)(x.c->n_warps + race_warp_number(s));
    x.stamp_lanes = 1;
    x.t = race_warp_of(s)->products + 1;
    race_touch_shared(&x, s->block, offset, bytes);
}

void race_products_commit(warp *w, const insn *i, uint32_t m) {
    (void)i;
    (void)m;
    race_warp_of(state_of(w))->products++;
}
