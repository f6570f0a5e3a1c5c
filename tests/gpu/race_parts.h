/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the race detector (races.h): who knows of whose accesses.
 *
 * An agent is whoever touches memory: a warp with its 32 lanes, the matrix products of a warp that are under way, its
 * cp.async copies, and one for each barrier in shared memory, which stands for the bulk copies that complete there. An
 * agent counts its times; an access bears agent, lane and time. A clock says up to which time the accesses of each
 * agent are behind its owner. Lanes whose clocks are equal share one, and nobody writes to a clock that others hold.
 */
#ifndef TESTS_GPU_RACE_PARTS_H
#define TESTS_GPU_RACE_PARTS_H

#include "gpu/races.h"

/* What a clock speaks of. Instructions differ in what they hand over. */
enum {
    KNOW_SHARED,  /* accesses to the shared memory of the agent's own block */
    KNOW_OUTSIDE, /* to global memory and to that of other blocks */
    KNOW_PROXY,   /* writes that a fence.proxy.async stands behind: bulk copies and wgmma see those, in shared memory */
    KNOW_PROXY_OUT, /* and in global memory */
    KNOW_FENCED,    /* what a fence stands behind: a relaxed atomic hands that over */
    KNOW_PENDING,   /* what a relaxed atomic brought: a fence makes it known */
    KNOW_KINDS
};

/* Of all lanes up to `all`, of `lanes` up to `some`. */
typedef struct know {
    uint32_t all, some, lanes;
} know;

typedef struct race_clock race_clock;

/* What is known of another cluster of the same launch: KNOW_FENCED of a clock that it let go. */
typedef struct race_foreign {
    uint32_t    run;
    bool        known, pending, fenced;
    race_clock *what;
} race_foreign;

struct race_clock {
    int           refs, n; /* n: agents that there is room for; of others nothing is known */
    race_foreign *foreign;
    int           n_foreign;
    know          of[][KNOW_KINDS];
};

typedef struct race_warp {
    uint32_t    now, full; /* time; lanes that it began with */
    race_clock *of[LANES];
    uint32_t    proxied[LANES], proxied_out[LANES], fenced[LANES]; /* time of the lane's last fence of that kind */
    uint32_t    committed[LANES][16];                              /* time when a group of copies was closed */
    uint32_t    products;                                          /* groups of wgmma that were closed */
    uint32_t    restricted; /* lanes whose last fence was of shared memory only; for barrier.cluster.arrive.relaxed */
} race_warp;

/* A meeting that two rounds may share: of one all leave while others arrive at the next. */
typedef struct race_meeting {
    struct {
        uint32_t    round;
        race_clock *clock;
    } at[2];
} race_meeting;

/* A barrier in shared memory. */
typedef struct race_mbar {
    uint32_t    rank, offset, agent, phase;
    race_clock *pending, *done;
    uint32_t    by, lane, line; /* who initialized it, where */
    bool        open;           /* and has not told bulk copies by a fence */
} race_mbar;

typedef struct race_cell    race_cell;
typedef struct race_cluster race_cluster;

enum { RACE_AGENTS = 2047 }; /* at most: race_slot.agent */

/* Agents: warps, their products, their copies, then one that stands for the kernels in front, then barriers. */
#define RACE_FRONT(c) (3 * (c)->n_warps)

struct race_cluster {
    gpu_cluster  *cluster;
    uint32_t      run, launch;                  /* which cluster of all that ran, and the launch that it belongs to */
    int           n_warps, per_block, n_agents; /* agents: so far */
    race_warp    *warps;
    race_meeting *bars; /* NAMED_BARRIERS + 8 for each block */
    race_meeting  meeting;
    race_mbar    *mbars;
    int           n_mbars, cap_mbars;
    uint16_t    **mbar_at; /* for each 8 bytes of a block's shared memory which barrier is there, from 1 on */
    race_cell   **cells;   /* of the blocks' shared memory, by 4 bytes */
    size_t        n_cells;
};

/* ---- race_clock.c ---- */

race_clock *race_clock_new(int n);
race_clock *race_clock_keep(race_clock *c);
void        race_clock_drop(race_clock *c); /* NULL is nothing */
/* *to is made one's own, with room for n agents, and may be written. */
race_clock *race_clock_own(race_clock **to, int n);
void        race_clock_join(race_clock *to, const race_clock *from, unsigned kinds);
void        race_foreign_add(race_clock *to, race_foreign f);

bool know_has(const know *k, uint32_t lanes, uint32_t t);
bool race_clock_has(const race_clock *c, uint32_t agent, int kind, uint32_t lanes, uint32_t t);
void know_add(know *k, uint32_t lanes, uint32_t t, uint32_t full);
void know_join(know *k, const know *from);

/* ---- race_hand.c ---- */

#define RACE_EVERYTHING ((1u << KNOW_KINDS) - 1)

int        race_warp_number(const warp_state *s); /* in its cluster */
race_warp *race_warp_of(const warp_state *s);

/* For each set of lanes in m that share a clock: those lanes as `lanes`, the first as `l`. */
#define EACH_CLOCK(p, m, lanes, l)                                                                                     \
    for (uint32_t left_ = (m), lanes = 0; left_ && (lanes = race_sharing(p, left_), true); left_ &= ~lanes)            \
        for (int l = __builtin_ctz(lanes), once_ = 1; once_; once_ = 0)

/* Those of the lanes m whose clock is that of the first of them. */
uint32_t race_sharing(const race_warp *p, uint32_t m);
/* The clock of those lanes, which share one, to be written. */
race_clock *race_lanes_clock(race_cluster *c, race_warp *p, uint32_t lanes);
/* What times[l] says of the lanes m. */
void race_add_times(know *k, const uint32_t *times, uint32_t m, uint32_t full);

/* All that the lanes of warp w know and did until now goes into *to; what they do from now on is later. */
void race_release(race_cluster *c, int w, uint32_t m, race_clock **to, unsigned kinds);
void race_acquire(race_cluster *c, race_warp *p, uint32_t m, const race_clock *from); /* NULL is nothing */

/* What an atomic of a lane leaves in its place, and finds there. */
uint64_t race_sync_key(const warp_state *s, const insn *i, uint64_t at);
void     race_let_go(race_cluster *c, int w, int lane, uint64_t key);
void     race_take_up(race_cluster *c, int w, int lane, uint64_t key);
/* What atomics brought is known, and what is known by now may be handed over by atomics. */
void race_fence_lanes(race_cluster *c, int w, uint32_t m);

/* ---- race_cell.c ---- */

enum { TOUCH_WRITES = 1, TOUCH_STRONG = 2, TOUCH_ASYNC = 4 }; /* strong: atomic, volatile; async: past the proxy */

typedef struct race_touch {
    race_cluster     *c;
    warp_state       *s; /* whose instruction it is */
    const insn       *i;
    const race_clock *knows; /* of the lanes that ask for it */
    uint32_t          lanes, proxied, proxied_out;
    uint32_t          agent, stamp_lanes, t; /* who does it; of an async access not the lanes themselves */
    unsigned          kind;
    const uint8_t    *value; /* what is written, where that is known */
} race_touch;

void race_touch_shared(const race_touch *x, gpu_block *b, uint32_t offset, uint32_t bytes);
void race_touch_global(const race_touch *x, uint64_t at, uint32_t bytes);

size_t race_cell_bytes(size_t n);
/* Gives global memory's back where it is more than that many pages; nothing may be under way. */
void race_cells_forget(size_t more_than);

/* ---- race_access.c ---- */

/* The shared memory that an address is of; NULL: global, or *nothing where it is neither or faults by itself. */
gpu_block *race_shared_at(const warp_state *s, const insn *i, uint64_t at, uint32_t *offset, bool *nothing);
/* An access of those lanes themselves, which share a clock. */
race_touch race_touch_of(warp_state *s, const insn *i, uint32_t lanes, unsigned kind);
void       race_touch_at(const race_touch *x, uint64_t at, uint32_t bytes);

/* ---- instructions: what they mean, then what they do ---- */

enum { ORDER_STRONG = 1, ORDER_ACQUIRE = 2, ORDER_RELEASE = 4 }; /* insn.order */

bool race_is_named(const insn *i, const char *with); /* races.c: its name begins so */

void race_load(warp *w, const insn *i, uint32_t m);
void race_store(warp *w, const insn *i, uint32_t m);
void race_atom(warp *w, const insn *i, uint32_t m);
void race_ldmatrix(warp *w, const insn *i, uint32_t m);
void race_products_commit(warp *w, const insn *i, uint32_t m);
void race_mbar_init(warp *w, const insn *i, uint32_t m);
void race_mbar_arrive(warp *w, const insn *i, uint32_t m);
void race_mbar_wait(warp *w, const insn *i, uint32_t m);
void race_bulk_copy(warp *w, const insn *i, uint32_t m);
void race_copy_async(warp *w, const insn *i, uint32_t m);
void race_copy_commit(warp *w, const insn *i, uint32_t m);
void race_copy_wait(warp *w, const insn *i, uint32_t m);
void race_copy_arrive(warp *w, const insn *i, uint32_t m);
void race_warp_sync(warp *w, const insn *i, uint32_t m);
void race_fence(warp *w, const insn *i, uint32_t m);

/* ---- race_report.c ---- */

/* An access as a cell remembers it. */
typedef struct race_slot {
    uint32_t run, lanes;
    uint32_t t : 24, kind : 4, bytes : 4; /* bytes: which of the four */
    uint32_t line : 21, agent : 11;
} race_slot;

typedef struct race_run { /* a cluster that ran */
    uint32_t launch, number;
} race_run;

typedef struct race_launch_info {
    const gpu_launch *launch;
    const gpu_kernel *kernel;
    int               n_warps, per_block;
    bool              early, front; /* front: some thread of it has waited for the kernel in front, or need not */
} race_launch_info;

const race_run         *race_run_of(uint32_t run); /* NULL: before what counts */
const race_launch_info *race_launch_of(uint32_t number);
uint32_t                race_run_new(uint32_t launch, uint32_t number);
void                    race_launch_waited(uint32_t number); /* a thread of it, for the kernel in front */
/* Whether launch `other` is behind whoever has that clock. */
bool race_launch_behind(const race_cluster *c, const race_clock *knows, uint32_t other);

/* Faults, or only tells where that was asked for. `at`: "16 of shared memory"; same: the bytes were there already. */
void race_report(const race_touch *x, const race_slot *with, const char *at, uint32_t bytes, bool same);

/* Which warp's block; agents of barriers: the barrier's. */
int race_agent_rank(const race_cluster *c, uint32_t agent);

#endif
