/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streamed experts in a step: which are computed when.
 *
 * Behind the routing the rows are sorted by expert, those that are in memory in front (cpu_group). Then the workers go
 * through the mixture's items in waves. Before each, worker 0 gives back the slots of the wave that is over, asks for
 * further experts as long as there are slots, and takes the groups that are there, in their order; where not even the
 * first is there, it waits until half of those that it asked for are. So what is there is computed while the rest is
 * read, in few waves, of which the last is short; a prompt that uses more experts than there are slots goes through them
 * in turn, and nothing is read twice in a step.
 *
 * A row belongs to one expert and has its own sum, in the order of rank: which wave it is in changes no bit.
 *
 * A read that fails ends the run: all workers leave the walk behind the same barrier. What was read whole stays.
 */
#include "backend/cpu/cpu.h"

#include <assert.h>

static bool in_run(const cpu_exec *x, const cpu_item *it) { return it->op >= x->op0 && it->op < x->op1; }

/* Whether the run has a product of these items; if not (op by op), no expert is needed. */
static bool reads_experts(const cpu_exec *x, int i, int end) {
    for (; i < end; i++) {
        const cpu_item *it = &x->items[i];
        bool            product = it->kind == CPU_ITEM_OP && x->base.x.model->tape->ops[it->op].kind == NN_OP_EXPERTS;
        if (product && in_run(x, it)) return true;
    }
    return false;
}

void cpu_waves_end(cpu_exec *x) {
    cpu_wave *w = &x->wave;
    for (; w->held < w->held_end; w->held++) store_release(x->store, w->slots[w->held]);
    store_count(x->store);
}

static void begin_waves(cpu_exec *x) {
    cpu_waves_end(x);
    x->wave.held = x->wave.held_end = x->wave.first = x->wave.end = x->wave.asked = 0;
    x->wave.over = false;
}

/* No expert is needed any more, or none can be had. What adapters add behind the last product is for all rows. */
static void end_waves(cpu_exec *x) {
    cpu_wave *w = &x->wave;
    for (int g = w->held; g < w->asked; g++) store_drop(x->store, w->slots[g]);
    w->held = w->held_end = w->asked;
    w->first = 0;
    w->end = x->n_groups;
    w->over = true;
}

/* The next wave, behind the one that ended with group wave.end. */
static void next_wave(cpu_exec *x, int mixture) {
    cpu_wave *w = &x->wave;
    for (; w->held < w->held_end; w->held++) store_release(x->store, w->slots[w->held]);
    w->first = w->end;
    for (; w->asked < x->n_groups; w->asked++) {
        w->slots[w->asked] = store_take(x->store, mixture, x->expert[w->asked]);
        if (w->slots[w->asked] < 0) break;
    }
    assert(w->asked > w->first || w->first == x->n_groups); /* what other waves used was given back */
    int half = w->first + (w->asked - w->first + 1) / 2;
    if (w->first < w->asked && store_is_ready(x->store, w->slots[w->first]))
        half = w->first; /* what is there, at once */
    for (w->end = w->first; w->end < half && x->failed == 0; w->end++)
        x->failed = store_wait(x->store, w->slots[w->end], &x->error);
    if (w->first == x->n_groups || x->failed < 0) {
        end_waves(x);
        return;
    }
    while (w->end < w->asked && store_is_ready(x->store, w->slots[w->end])) w->end++;
    w->held_end = w->end;
}

static void walk_items(cpu_exec *x, cpu_walk *walk, int i, int end, bool first) {
    for (; i < end; i++) {
        if (first || !x->items[i].once) cpu_walk_item(x, walk, &x->items[i]);
    }
}

int cpu_waves(cpu_exec *x, cpu_walk *walk, int i) {
    int  end = i, mixture = x->items[i].mixture;
    bool all = false;
    for (; end < x->n_items && x->items[end].waved && x->items[end].mixture == mixture;) end++;
    if (!reads_experts(x, i, end)) { /* what stands between the products, for all rows */
        walk_items(x, walk, i, end, true);
        return end;
    }
    /* Nobody is in a wave of the last mixture any more: the rows were sorted behind a barrier. */
    if (walk->worker == 0) begin_waves(x);
    for (bool first = true; !all; first = false) {
        if (walk->worker == 0) next_wave(x, mixture);
        pool_barrier(x->pool, walk->worker);
        walk->met = true;
        walk->halves = false;
        if (x->wave.over) break;
        all = x->wave.first == 0 && x->wave.end == x->n_groups; /* what it uses is given back with the next mixture */
        walk_items(x, walk, i, end, first);
        if (!all) pool_barrier(x->pool, walk->worker);
    }
    return x->failed ? x->n_items : end;
}
