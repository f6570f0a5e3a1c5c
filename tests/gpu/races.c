/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the race detector meets the machine: clusters that begin and end, barriers of blocks and clusters (called from
 * run.c), and the functions that stand in front of those that do the work of instructions (races_wrap), so that nothing
 * is asked where races are not looked for.
 */
#include "gpu/race_parts.h"

#include <stdlib.h>
#include <string.h>

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
                         .cap_mbars = RACE_AGENTS - 3 * n - 1,
                         .n_cells = b->smem_bytes / 4 + 1 };
    c->warps = calloc((size_t)n, sizeof *c->warps);
    c->bars = calloc((size_t)cluster->n * (NAMED_BARRIERS + 8), sizeof *c->bars);
    c->mbars = calloc((size_t)c->cap_mbars, sizeof *c->mbars);
    c->mbar_at = calloc((size_t)cluster->n, sizeof *c->mbar_at);
    c->cells = calloc((size_t)cluster->n, sizeof *c->cells);
    bool there = c->warps && c->bars && c->mbars && c->mbar_at && c->cells;
    for (int k = 0; k < cluster->n && there; k++) {
        c->cells[k] = calloc(1, race_cell_bytes(c->n_cells));
        c->mbar_at[k] = calloc(b->smem_bytes / 8 + 1, sizeof *c->mbar_at[k]);
        there = c->cells[k] && c->mbar_at[k];
    }
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
        c->mbar_at[c->mbars[k].rank][c->mbars[k].offset / 8] = 0;
    }
    c->n_mbars = 0;
}

void races_begin(gpu_cluster *cluster, unsigned number) {
    race_cluster *c = cluster->races;
    forget(c);
    c->n_agents = RACE_FRONT(c) + 1;
    c->run = race_run_new(c->launch, number);
    race_clock *first = race_clock_new(c->n_agents);
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
    for (int k = 0; k < cluster->n && c->mbar_at; k++) free(c->mbar_at[k]);
    free(c->mbar_at);
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

/* ---- barriers of run.c ---- */

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
        race_acquire(c, p, m, from);
        return;
    }
    EACH_LANE(m, l) {
        race_clock_keep(from);
        race_clock_drop(p->of[l]);
        p->of[l] = from;
    }
}

/* The four warps of a warpgroup end their products together: what one of them waits for all have waited for. */
static void products_over(race_cluster *c, int w, const insn *i, race_clock **to) {
    race_warp     *p = &c->warps[w];
    const uint32_t open = (uint32_t)i->offset;
    if (!race_is_named(i, "wgmma.wait_group")) return;
    know over = { .all = p->products > open ? p->products - open : 0 };
    know_join(&race_clock_own(to, c->n_agents)->of[c->n_warps + w][KNOW_SHARED], &over);
}

void races_arrive(warp_state *s, const insn *i, uint32_t m, uint32_t id) {
    race_cluster *c = s->block->cluster->races;
    race_warp    *p = race_warp_of(s);
    if (i->mode == BAR_CLUSTER_ARRIVE) {
        race_clock   **to = meeting_clock(&c->meeting, c->cluster->phase);
        const uint32_t shared_only = strstr(i->name, ".relaxed") ? m : 0;
        if (shared_only & p->restricted)
            race_release(c, race_warp_number(s), shared_only & p->restricted, to, SHARED_ONLY);
        if (m & ~shared_only) race_release(c, race_warp_number(s), m & ~shared_only, to, RACE_EVERYTHING);
        p->restricted &= ~m;
        return;
    }
    race_meeting *b = &c->bars[s->block->rank * (NAMED_BARRIERS + 8) + id];
    race_clock  **to = meeting_clock(b, s->block->bars[id].generation);
    if (i->mode == BAR_WARPGROUP)
        products_over(c, race_warp_number(s), i, to);
    else
        race_release(c, race_warp_number(s), m, to, RACE_EVERYTHING);
}

void races_pass(warp_state *s, const insn *i, const group *g) {
    race_cluster *c = s->block->cluster->races;
    race_warp    *p = race_warp_of(s);
    if (i->mode == BAR_GRID) {
        race_launch_waited(c->launch);
        EACH_CLOCK(p, g->mask, lanes, l) {
            (void)l;
            race_lanes_clock(c, p, lanes)->of[RACE_FRONT(c)][KNOW_OUTSIDE].all = 1;
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

/* ---- which instructions ---- */

bool race_is_named(const insn *i, const char *with) { return strncmp(i->name, with, strlen(with)) == 0; }

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
        if (race_is_named(i, "bar.warp.sync")) i->fn = race_warp_sync;
        if (race_is_named(i, "fence.") || race_is_named(i, "membar.")) i->fn = race_fence;
        if (race_is_named(i, "wgmma.commit_group")) i->fn = race_products_commit;
    }
}
