/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which launch and which cluster an access was of, and the sentence about two of them.
 *
 * A launch that begins when no other is under way is behind everything, so nothing of earlier launches counts. One that
 * began early is behind the kernel in front once it has waited for that, and behind those further in front as far as
 * each of them has waited as well.
 */
#include "gpu/race_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAUNCHES = 4096, PAGES_KEPT = 32768 };

static struct {
    uint32_t         launch, first_launch; /* the last one; the first that counts */
    uint32_t         run, first_run;
    int              under_way;
    race_launch_info launches[LAUNCHES]; /* by number */
    race_run        *runs;               /* from first_run on */
    size_t           cap_runs;
} all = { .launch = 0, .run = 0, .first_run = 1 };

/* What was told already. */
typedef struct told {
    const gpu_kernel *kernel;
    uint32_t          a, b;
} told;

static struct {
    told  *at;
    size_t n, cap;
} list;

const race_run *race_run_of(uint32_t run) {
    return run >= all.first_run && run <= all.run ? &all.runs[run - all.first_run] : NULL;
}

const race_launch_info *race_launch_of(uint32_t number) { return &all.launches[number % LAUNCHES]; }

void races_launch(gpu_grid *g) {
    const gpu_launch *l = g->launch;
    const int         threads = (int)(l->block[0] * l->block[1] * l->block[2]), per = (threads + LANES - 1) / LANES;
    if (all.under_way == 0) {
        all.first_launch = all.launch + 1;
        all.first_run = all.run + 1;
        race_cells_forget(PAGES_KEPT);
    }
    g->race_launch = ++all.launch;
    all.under_way++;
    all.launches[all.launch % LAUNCHES] = (race_launch_info){ .kernel = l->kernel,
                                                              .launch = l,
                                                              .per_block = per,
                                                              .n_warps = per * (l->cluster > 1 ? (int)l->cluster : 1),
                                                              .early = g->early,
                                                              .front = !g->early };
}

void races_end(gpu_grid *g) {
    (void)g;
    all.under_way--;
}

uint32_t race_run_new(uint32_t launch, uint32_t number) {
    all.run++;
    const size_t at = all.run - all.first_run;
    if (at >= all.cap_runs) {
        all.cap_runs = all.cap_runs ? all.cap_runs * 2 : 1024;
        all.runs = realloc(all.runs, all.cap_runs * sizeof *all.runs);
        if (!all.runs) abort(); /* a test without memory */
    }
    all.runs[at] = (race_run){ launch, number };
    return all.run;
}

void race_launch_waited(uint32_t number) { all.launches[number % LAUNCHES].front = true; }

bool race_launch_behind(const race_cluster *c, const race_clock *knows, uint32_t other) {
    if (other > c->launch || !knows->of[RACE_FRONT(c)][KNOW_OUTSIDE].all) return false;
    for (uint32_t n = c->launch - 1; n > other; n--) {
        if (!race_launch_of(n)->front) return false;
    }
    return true;
}

/* ---- the sentence ---- */

static const char *did(unsigned kind) {
    const bool strong = kind & TOUCH_STRONG;
    return kind & TOUCH_WRITES ? strong ? "changed by an atomic of" : "written by" : "read by";
}

static const char *does(unsigned kind) {
    const bool strong = kind & TOUCH_STRONG;
    return kind & TOUCH_WRITES ? strong ? "changes" : "writes" : "reads";
}

static const char *insn_at(const gpu_kernel *k, uint32_t line) {
    for (int n = 0; n < k->n_code; n++) {
        if ((k->code[n].line & 0x1fffff) == line) return k->code[n].name;
    }
    return "?";
}

static bool told_before(const gpu_kernel *k, uint32_t a, uint32_t b) {
    for (size_t n = 0; n < list.n; n++) {
        if (list.at[n].kernel == k && list.at[n].a == a && list.at[n].b == b) return true;
    }
    if (list.n == list.cap) {
        list.cap = list.cap ? list.cap * 2 : 64;
        list.at = realloc(list.at, list.cap * sizeof *list.at);
        if (!list.at) abort();
    }
    list.at[list.n++] = (told){ k, a, b };
    return false;
}

void race_report(const race_touch *x, const race_slot *o, const char *at, uint32_t bytes, bool same) {
    const race_run         *r = race_run_of(o->run);
    const race_launch_info *l = race_launch_of(r->launch);
    const gpu_kernel       *k = x->c->cluster->grid->launch->kernel;
    const bool              only_tells = races_told();
    const uint32_t          W = (uint32_t)l->n_warps;
    char                    who[96];
    if (same && !only_tells) return;
    if (only_tells && told_before(k, x->i->line, o->line)) return;
    const uint32_t grid = l->launch->grid[0], blocks = (uint32_t)(l->n_warps / l->per_block);
    const uint32_t rank = (uint32_t)race_agent_rank(x->c, o->agent), in_block = o->agent % W % (uint32_t)l->per_block;
    const uint32_t block = (r->number * blocks + rank) % grid;
    const int      lane = __builtin_ctz(o->lanes), own = __builtin_ctz(x->lanes);
    if (o->agent < W)
        snprintf(who, sizeof who, "lane %d of warp %u", lane, in_block);
    else if (o->agent < 2 * W)
        snprintf(who, sizeof who, "a product under way of warp %u", in_block);
    else if (o->agent < 3 * W)
        snprintf(who, sizeof who, "a copy under way of lane %d of warp %u", lane, in_block);
    else
        snprintf(who, sizeof who, "a bulk copy under way");
    char what[256];
    snprintf(what, sizeof what, "a race%s: lane %d %s %u bytes at %s, %s %s of block %u%s%s in line %u, %s",
             same ? " without effect" : "", own, does(x->kind), bytes, at, did(o->kind), who, block,
             r->launch == x->c->launch ? "" : " of kernel ", r->launch == x->c->launch ? "" : l->kernel->name,
             (unsigned)o->line, insn_at(l->kernel, o->line));
    if (!only_tells) gpu_fault(x->s, x->i, "%s", what);
    fprintf(stderr, "software GPU: %s, block %u, warp %d, line %u, %s: %s\n", k->name, x->s->block->id[0], x->s->index,
            x->i->line, x->i->name, what);
}
