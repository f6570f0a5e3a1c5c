/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a launch: clusters in a random order, one behind the other, each to its end. So a block that waits for one that
 * is not in its cluster waits forever, and that is found. Within a cluster warps take turns of random length.
 *
 * Lanes of a warp that took different ways are groups; the one that is furthest back goes first, and groups at the same
 * instruction are one again. That is where a compiler puts the meeting points of ordinary programs. Instructions that
 * need certain lanes wait for those, as a device with independent lanes does, and a group that does not come to an end
 * in its turn lets another one go on a little, since that may be what it waits for.
 */
#include "gpu/races.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SECONDS_AT_MOST = 300, ROUNDS_IN_VAIN = 20000, STARTED_EARLY = 2 };

static _Atomic uint64_t instructions;

uint64_t gpu_instructions(void) { return instructions; }

void gpu_fault(warp_state *s, const insn *i, const char *fmt, ...) {
    gpu_grid *g = s->block->cluster->grid;
    char      what[256];
    va_list   ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    err_set(g->e, ERR_LOST, "%s, block %u, warp %d, line %u, %s: %s", g->launch->kernel->name, s->block->id[0],
            s->index, i->line, i->name, what);
    longjmp(g->fault, 1);
}

static uint32_t random_next(gpu_grid *g) { /* xorshift */
    g->random ^= g->random << 13;
    g->random ^= g->random >> 7;
    g->random ^= g->random << 17;
    return (uint32_t)(g->random >> 32);
}

/* ---- barriers ---- */

static void barrier_check(gpu_block *b, named_barrier *n) {
    if (n->arrived == 0 || n->arrived < (n->wanted ? n->wanted : b->live)) return;
    b->cluster->grid->changes++;
    n->generation++;
    n->result = n->yes;
    n->arrived = n->wanted = n->yes = 0;
}

static void cluster_check(gpu_cluster *c) {
    if (c->arrived == 0 || c->arrived < c->live) return;
    c->grid->changes++;
    c->arrived = 0;
    c->phase++;
}

/* Lanes leave: who waits for all that are left may go on. */
static void lanes_exit(warp_state *s, uint32_t m) {
    gpu_block     *b = s->block;
    const uint32_t n = (uint32_t)__builtin_popcount(m);
    note_change(s);
    s->live &= ~m;
    b->live -= n;
    b->cluster->live -= n;
    for (int i = 0; i < NAMED_BARRIERS; i++) {
        if (!b->bars[i].wanted && b->live) barrier_check(b, &b->bars[i]);
    }
    cluster_check(b->cluster);
}

/* The group arrives; true: it need not wait. */
static bool barrier_arrive(warp_state *s, const insn *i, group *g, uint32_t m) {
    gpu_block  *b = s->block;
    const int   first = __builtin_ctz(m);
    const warp *w = &s->regs;
    if (i->mode == BAR_CLUSTER_ARRIVE) {
        note_change(s);
        EACH_LANE(m, l) s->cluster_phase[l] = b->cluster->phase;
        b->cluster->arrived += (uint32_t)__builtin_popcount(m);
        if (b->cluster->races) races_arrive(s, i, m, 0);
        cluster_check(b->cluster);
        return true;
    }
    if (i->mode == BAR_GRID) {
        if (!b->cluster->grid->early) {
            if (b->cluster->races) races_pass(s, i, &(group){ .mask = m });
            return true;
        }
        g->wait = WAIT_GRID;
        return false;
    }
    if (i->mode == BAR_CLUSTER_WAIT) {
        g->wait = WAIT_CLUSTER;
        g->generation = s->cluster_phase[first];
        return false;
    }
    const bool     four = i->mode == BAR_WARPGROUP;
    const uint32_t id = four ? NAMED_BARRIERS + (uint32_t)s->index / 4 : lanes32(w, i->o[1])[first];
    const uint32_t wanted = four ? 4 * LANES : i->n == 3 ? lanes32(w, i->o[2])[first] : 0;
    if (!four && id >= NAMED_BARRIERS) gpu_fault(s, i, "barrier %u", id);
    named_barrier *n = &b->bars[id];
    if (n->arrived && n->wanted != wanted)
        gpu_fault(s, i, "barrier %u is waited for by %u and by %u threads", id, n->wanted, wanted);
    if (wanted % LANES) gpu_fault(s, i, "barrier %u of %u threads", id, wanted);
    n->wanted = wanted;
    n->arrived += (uint32_t)__builtin_popcount(m);
    if (wanted && n->arrived > wanted) gpu_fault(s, i, "%u threads at barrier %u of %u", n->arrived, id, wanted);
    if (i->mode >= BAR_OR && i->mode <= BAR_POPC) n->yes += (uint32_t)__builtin_popcount(m & lanes_pred(w, i->o[3]));
    note_change(s);
    g->wait = i->mode == BAR_ARRIVE ? WAIT_NOTHING : WAIT_BARRIER;
    g->bar = id;
    g->generation = n->generation;
    if (b->cluster->races) races_arrive(s, i, m, id);
    barrier_check(b, n);
    return i->mode == BAR_ARRIVE;
}

static void barrier_result(warp_state *s, const insn *i, const group *g) {
    const uint32_t yes = s->block->bars[g->bar].result;
    if (i->mode == BAR_POPC) {
        EACH_LANE(g->mask, l) lanes32(&s->regs, i->o[0])[l] = yes;
    } else if (i->mode == BAR_OR) {
        set_pred(&s->regs, i->o[0], g->mask, yes ? ALL_LANES : 0);
    } else if (i->mode == BAR_AND) {
        gpu_fault(s, i, "not known here");
    }
}

/* ---- groups ---- */

/* Those of the lanes that need not wait: all that each of them names are there. */
static uint32_t lanes_met(const warp_state *s, const insn *i, uint32_t m) {
    const uint32_t missing = s->live & ~m;
    uint32_t       met = 0;
    if (!missing) return m;
    if (i->target == MEETS_ALL) return 0;
    EACH_LANE(m, l) met |= (uint32_t) !(lanes32(&s->regs, i->o[i->target])[l] & missing) << l;
    return met;
}

static void group_remove(warp_state *s, int at) { s->groups[at] = s->groups[--s->n_groups]; }

static void group_add(warp_state *s, uint32_t pc, uint32_t mask) {
    if (mask) s->groups[s->n_groups++] = (group){ .pc = pc, .mask = mask };
}

/* Waits for others, having been counted: not to be joined by lanes that have not. */
static bool has_arrived(const group *g) {
    return g->wait == WAIT_BARRIER || g->wait == WAIT_CLUSTER || g->wait == WAIT_GRID;
}

/* The group to run, -1: none can. */
static int group_choose(warp_state *s, const insn *code) {
    int best = -1;
    for (int n = 0; n < s->n_groups; n++) {
        group *g = &s->groups[n];
        if ((g->wait == WAIT_BARRIER && s->block->bars[g->bar].generation != g->generation) ||
            (g->wait == WAIT_CLUSTER && s->block->cluster->phase != g->generation) ||
            (g->wait == WAIT_GRID && !s->block->cluster->grid->early)) {
            if (g->wait == WAIT_BARRIER) barrier_result(s, &code[g->pc], g);
            if (s->block->cluster->races) races_pass(s, &code[g->pc], g);
            g->wait = WAIT_NOTHING;
            g->pc++;
        }
    }
    for (int n = 0; n < s->n_groups; n++) {
        group *g = &s->groups[n];
        for (int k = n + 1; k < s->n_groups; k++) {
            group *o = &s->groups[k];
            if (o->pc != g->pc || has_arrived(g) || has_arrived(o)) continue;
            g->mask |= o->mask;
            if (o->wait == WAIT_NOTHING) g->wait = g->wait == WAIT_TURN ? WAIT_NOTHING : g->wait;
            group_remove(s, k--);
        }
        if (g->wait == WAIT_LANES && lanes_met(s, &code[g->pc], g->mask)) g->wait = WAIT_NOTHING;
        if (g->wait == WAIT_NOTHING && (best < 0 || g->pc < s->groups[best].pc)) best = n;
    }
    return best;
}

/* Another group that can run, each in its turn, where there is one. */
static int group_other(warp_state *s, int chosen) {
    for (int n = 1; n <= s->n_groups; n++) {
        const int at = (s->other + n) % s->n_groups;
        if (at == chosen || s->groups[at].wait != WAIT_NOTHING) continue;
        s->other = at;
        return at;
    }
    return chosen;
}

/* The next instruction at which another group stands that is not further back. */
static uint32_t nearest_other(const warp_state *s, int chosen) {
    uint32_t at = UINT32_MAX;
    for (int n = 0; n < s->n_groups; n++) {
        if (n != chosen && s->groups[n].pc >= s->groups[chosen].pc && s->groups[n].pc < at) at = s->groups[n].pc;
    }
    return at;
}

/* One instruction that is more than its function. Returns false where the group has to be chosen anew. */
static bool control(warp_state *s, const insn *i, int chosen, uint32_t m) {
    group         *g = &s->groups[chosen];
    const uint32_t others = g->mask & ~m;
    switch (i->flow) {
    case FLOW_BRANCH:
        if (!m) {
            g->pc++;
        } else if (!others) {
            g->pc = i->target;
        } else {
            g->mask = others;
            g->pc++;
            group_add(s, i->target, m);
        }
        return s->n_groups == 1;
    case FLOW_EXIT:
        g->mask = others;
        g->pc++;
        if (m) lanes_exit(s, m);
        if (!others) group_remove(s, chosen);
        return false;
    default: break;
    }
    if (!m) {
        g->pc++;
        return true;
    }
    if (others) {
        group_add(s, g->pc + 1, others);
        g->mask = m;
    }
    if (i->flow == FLOW_BARRIER) {
        if (!barrier_arrive(s, i, g, m)) return false;
    } else {
        const uint32_t met = lanes_met(s, i, m);
        if (met != m) { /* the rest stays and waits */
            group_add(s, g->pc, met);
            g->mask = m & ~met;
            g->wait = WAIT_LANES;
            if (!met) return false;
            i->fn(&s->regs, i, met);
            s->groups[s->n_groups - 1].pc++;
            return false;
        }
        i->fn(&s->regs, i, m);
    }
    g->pc++;
    return !others;
}

int warp_turn(warp_state *s, int budget, bool *vain) {
    const insn *const code = s->block->cluster->grid->launch->kernel->code;
    int               left = budget;
    *vain = false;
    for (int n = 0; n < s->n_groups; n++) {
        if (s->groups[n].wait == WAIT_TURN) s->groups[n].wait = WAIT_NOTHING;
    }
    while (left > 0 && s->n_groups) {
        int chosen = group_choose(s, code);
        if (chosen < 0) break;
        if (s->spent) chosen = group_other(s, chosen); /* the first may go round until another one does something */
        s->spent = false;
        group      *g = &s->groups[chosen];
        const insn *i = &code[g->pc], *stop = NULL;
        if (s->n_groups > 1) {
            const uint32_t at = nearest_other(s, chosen);
            if (at != UINT32_MAX) stop = &code[at];
        }
        for (uint32_t all = g->mask; left-- > 0;) {
            const uint32_t m = i->guarded ? all & lanes_pred(&s->regs, i->guard) : all;
            if (i->flow == FLOW_NEXT) {
                if (m) i->fn(&s->regs, i, m);
                i++;
                if (s->ask_again) {
                    s->ask_again = false;
                    *vain = true;
                    g->wait = WAIT_TURN;
                    break;
                }
            } else {
                g->pc = (uint32_t)(i - code);
                const bool goes_on = control(s, i, chosen, m);
                i = NULL; /* its place is in the group now */
                if (!goes_on) break;
                i = &code[g->pc];
            }
            if (i == stop) break;
        }
        if (i) g->pc = (uint32_t)(i - code);
    }
    s->spent = left <= 0;
    return budget - left;
}

/* ---- blocks ---- */

/* Says where everybody is, then faults. */
static void deadlock(gpu_cluster *c) {
    static const char *const why[] = { "runs",        "other lanes",         "a barrier",
                                       "the cluster", "the kernel in front", "its turn" };
    const insn              *code = c->grid->launch->kernel->code;
    warp_state              *first = NULL;
    for (int b = 0; b < c->n; b++) {
        for (int n = 0; n < c->blocks[b].n_warps; n++) {
            warp_state *s = &c->blocks[b].warps[n];
            for (int k = 0; k < s->n_groups; k++) {
                const group *g = &s->groups[k];
                fprintf(stderr, "software GPU: block %u, warp %2d, lanes %08x: line %u, %s: %s\n", c->blocks[b].id[0],
                        n, g->mask, code[g->pc].line, code[g->pc].name, why[g->wait]);
            }
            if (s->n_groups && !first) first = s;
        }
    }
    if (first) gpu_fault(first, &code[first->groups[0].pc], "waits forever");
}

/* Whether somebody waits for the kernel in front, for whom the others may wait in turn. */
static bool waits_for_grid(const gpu_cluster *c) {
    for (int b = 0; b < c->n; b++) {
        for (int n = 0; n < c->blocks[b].n_warps; n++) {
            const warp_state *s = &c->blocks[b].warps[n];
            for (int k = 0; k < s->n_groups; k++) {
                if (s->groups[k].wait == WAIT_GRID) return true;
            }
        }
    }
    return false;
}

/* To its end, or to where it waits for the kernel in front. */
static void cluster_run(gpu_cluster *c) {
    gpu_grid    *g = c->grid;
    const int    per = c->blocks[0].n_warps, n = per * c->n;
    const double until = clock_s() + SECONDS_AT_MOST;
    int          in_vain = 0;
    stuck        still = { .changes = UINT64_MAX };
    for (unsigned round = 1; c->live; round++) {
        const uint32_t first = random_next(g);
        bool           moved = false, alive = false;
        for (int k = 0; k < n; k++) {
            const uint32_t at = (first + (uint32_t)k) % (uint32_t)n;
            warp_state    *s = &c->blocks[at / (uint32_t)per].warps[at % (uint32_t)per];
            if (!s->n_groups) continue;
            bool      vain;
            const int ran = warp_turn(s, 20 + (int)(random_next(g) % 1000), &vain);
            g->steps += (uint64_t)ran;
            moved |= ran > 0 && !vain;
            alive |= ran > 0;
        }
        in_vain = moved ? 0 : in_vain + 1;
        if (!c->live || (!alive && g->early && waits_for_grid(c))) break;
        if (!alive || in_vain > ROUNDS_IN_VAIN || (round % 64 == 0 && clock_s() > until) || stuck_found(&still, c))
            deadlock(c);
    }
}

typedef struct room { /* kept for all clusters of a launch */
    gpu_cluster cluster;
    uint8_t    *memory;
    size_t      memory_bytes, regs_bytes, smem_bytes, warp_bytes;
} room;

static size_t align_up(size_t v) { return (v + 63) & ~(size_t)63; }

static int room_open(room *r, gpu_grid *g) {
    const gpu_launch *l = g->launch;
    const gpu_kernel *k = l->kernel;
    const int         threads = (int)(l->block[0] * l->block[1] * l->block[2]), warps = (threads + LANES - 1) / LANES;
    const int         n = l->cluster > 1 ? (int)l->cluster : 1;
    const size_t      pred = align_up(k->n_pred * sizeof(uint32_t)), r32 = align_up(k->n32 * sizeof *k->c32);
    const size_t      r64 = align_up(k->n64 * sizeof *k->c64), local = align_up(LANES * align_up(k->local_bytes));
    r->regs_bytes = pred + r32 + r64;
    r->warp_bytes = r->regs_bytes + local;
    r->smem_bytes = SMEM_BASE + k->static_smem + l->smem;
    const size_t blocks = align_up((size_t)n * sizeof(gpu_block)),
                 states = align_up((size_t)warps * sizeof(warp_state));
    const size_t each = align_up(r->smem_bytes + 64) + states + (size_t)warps * r->warp_bytes;
    r->memory_bytes = blocks + (size_t)n * each;
    r->memory = spare_take(&r->memory_bytes);
    if (!r->memory) return err_set_nomem(g->e);
    r->cluster = (gpu_cluster){ .grid = g, .n = n, .blocks = (gpu_block *)(void *)r->memory };
    for (int b = 0; b < n; b++) {
        gpu_block *p = &r->cluster.blocks[b];
        uint8_t   *at = r->memory + blocks + (size_t)b * each;
        *p = (gpu_block){
            .cluster = &r->cluster, .rank = (uint32_t)b, .smem = at, .smem_bytes = r->smem_bytes, .n_warps = warps
        };
        at += align_up(r->smem_bytes + 64);
        p->warps = memset(at, 0, states);
        at += states;
        for (int n_warp = 0; n_warp < warps; n_warp++, at += r->warp_bytes) {
            warp_state *s = &p->warps[n_warp];
            s->block = p;
            s->index = n_warp;
            for (unsigned t = (unsigned)n_warp * LANES, lane = 0; lane < LANES; t++, lane++) {
                s->tid[0][lane] = t % l->block[0];
                s->tid[1][lane] = t / l->block[0] % l->block[1];
                s->tid[2][lane] = t / l->block[0] / l->block[1];
            }
            s->regs.pred[0] = (uint32_t *)(void *)at;
            s->regs.r32[0] = (uint32_t(*)[LANES])(void *)(at + pred);
            s->regs.r64[0] = (uint64_t(*)[LANES])(void *)(at + pred + r32);
            s->local = at + r->regs_bytes;
            s->regs.pred[1] = k->c_pred;
            s->regs.r32[1] = k->c32;
            s->regs.r64[1] = k->c64;
        }
    }
    return k->races ? races_open(&r->cluster) : 0;
}

static void room_close(room *r) {
    races_close(&r->cluster);
    for (int b = 0; r->memory && b < r->cluster.n; b++) {
        for (int n = 0; n < r->cluster.blocks[b].n_warps; n++) free(r->cluster.blocks[b].warps[n].copies);
        free(r->cluster.blocks[b].bulk);
    }
    spare_give(r->memory, r->memory_bytes);
}

/*
 * Rubbish in what may be read before it is written: own memory, and those registers of which the program does not say
 * that they are not. Of a warp that is not full all registers: instructions look at lanes that are not there.
 */
static void regs_begin(const room *r, warp_state *s) {
    const gpu_kernel *k = r->cluster.grid->launch->kernel;
    if (s->live != ALL_LANES) {
        memset(s->regs.pred[0], 0xd5, r->warp_bytes);
        return;
    }
    for (int i = 0; i < k->n_open; i++) {
        const operand o = k->open[i];
        if (o.kind == SLOT_PRED)
            memset(&s->regs.pred[0][o.at], 0xd5, sizeof *k->c_pred);
        else if (o.kind == SLOT_32)
            memset(s->regs.r32[0][o.at], 0xd5, sizeof *k->c32);
        else
            memset(s->regs.r64[0][o.at], 0xd5, sizeof *k->c64);
    }
    memset(s->local, 0xd5, r->warp_bytes - r->regs_bytes);
}

/* Everything as before a block's first instruction; what nobody has written is rubbish. */
static void room_begin(room *r, unsigned number) {
    gpu_grid         *g = r->cluster.grid;
    const gpu_launch *l = g->launch;
    const unsigned    threads = l->block[0] * l->block[1] * l->block[2];
    r->cluster.arrived = r->cluster.phase = 0;
    r->cluster.live = threads * (unsigned)r->cluster.n;
    for (int b = 0; b < r->cluster.n; b++) {
        gpu_block *p = &r->cluster.blocks[b];
        unsigned   id = number * (unsigned)r->cluster.n + (unsigned)b;
        p->id[0] = id % l->grid[0];
        p->id[1] = id / l->grid[0] % l->grid[1];
        p->id[2] = id / l->grid[0] / l->grid[1];
        p->live = threads;
        p->lets = false;
        p->n_bulk = 0;
        memset(p->bars, 0, sizeof p->bars);
        memset(p->smem, 0xff, r->smem_bytes);
        for (int n = 0; n < p->n_warps; n++) {
            warp_state    *s = &p->warps[n];
            const unsigned here = threads - (unsigned)n * LANES;
            s->live = here >= LANES ? ALL_LANES : (1u << here) - 1;
            regs_begin(r, s);
            s->n_groups = 0;
            s->n_copies = 0;
            s->ask_again = s->spent = false;
            memset(s->copy_group, 0, sizeof s->copy_group);
            group_add(s, 0, s->live);
        }
    }
    if (r->cluster.races) races_begin(&r->cluster, number);
}

/* A launch whose first clusters may have begun. */
struct gpu_started {
    gpu_grid grid;
    room     rooms[STARTED_EARLY];
    unsigned n, done, step, start; /* clusters; those that have begun; cluster i is start + i * step */
};

static void order_clusters(gpu_started *s) {
    /* Any order that visits each once: a step that has no factor in common with the count. */
    const unsigned n = s->n;
    s->step = n > 1 ? 1 + random_next(&s->grid) % (n - 1) : 1;
    s->start = n ? random_next(&s->grid) % n : 0;
    for (unsigned a = s->step, b = n; b;) {
        const unsigned t = a % b;
        a = b;
        b = t;
        if (!b && a != 1) {
            s->step = s->step % n + 1;
            a = s->step;
            b = n;
        }
    }
}

static unsigned cluster_number(const gpu_started *s, unsigned i) {
    return (unsigned)((s->start + (uint64_t)i * s->step) % s->n);
}

void gpu_abandon(gpu_started *s) {
    if (!s) return;
    instructions += s->grid.steps;
    if (s->grid.launch->kernel->races) races_end(&s->grid);
    for (int i = 0; i < STARTED_EARLY; i++) room_close(&s->rooms[i]);
    free(s);
}

int gpu_start(gpu_started **out, const gpu_chip *chip, const gpu_launch *l, bool early, err *e) {
    static _Atomic uint64_t launches;
    gpu_started            *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return err_set_nomem(e);
    s->grid = (gpu_grid){ .chip = chip, .launch = l, .e = e, .early = early };
    s->grid.random = (launches++ + 1) * 0x9e3779b97f4a7c15u;
    s->n = l->grid[0] * l->grid[1] * l->grid[2] / (l->cluster > 1 ? l->cluster : 1);
    order_clusters(s);
    if (l->kernel->races) races_launch(&s->grid);
    volatile int rc = 0; /* kept over longjmp */
    if (setjmp(s->grid.fault)) {
        rc = ERR_LOST;
    } else {
        for (; early && rc == 0 && s->done < STARTED_EARLY && s->done < s->n; s->done++) {
            rc = room_open(&s->rooms[s->done], &s->grid);
            if (rc == 0) room_begin(&s->rooms[s->done], cluster_number(s, s->done));
            if (rc == 0) cluster_run(&s->rooms[s->done].cluster);
        }
    }
    if (rc != 0) {
        gpu_abandon(s);
        return rc;
    }
    *out = s;
    return 0;
}

bool gpu_lets_begin(const gpu_started *s) {
    for (unsigned i = 0; i < s->done; i++) {
        const gpu_cluster *c = &s->rooms[i].cluster;
        for (int b = 0; b < c->n; b++) {
            if (c->blocks[b].live && !c->blocks[b].lets) return false;
        }
    }
    return true;
}

static void finish_blocks(gpu_cluster *c) {
    for (int b = 0; b < c->n; b++) copies_forget(&c->blocks[b]);
}

int gpu_finish(gpu_started *s, err *e) {
    volatile int rc = 0; /* kept over longjmp */
    s->grid.e = e;
    s->grid.early = false;
    if (setjmp(s->grid.fault)) {
        rc = ERR_LOST;
    } else {
        for (unsigned i = 0; i < s->done; i++) {
            cluster_run(&s->rooms[i].cluster);
            finish_blocks(&s->rooms[i].cluster);
        }
        room *r = &s->rooms[0];
        if (s->done == 0) rc = room_open(r, &s->grid);
        for (unsigned i = s->done; i < s->n && rc == 0; i++) {
            room_begin(r, cluster_number(s, i));
            cluster_run(&r->cluster);
            finish_blocks(&r->cluster);
        }
    }
    gpu_abandon(s);
    return rc;
}

int gpu_run(const gpu_chip *chip, const gpu_launch *l, err *e) {
    gpu_started *s;
    int          rc = gpu_start(&s, chip, l, false, e);
    return rc ? rc : gpu_finish(s, e);
}
