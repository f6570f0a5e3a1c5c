/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the race detector remembers of memory: for each 4 bytes that were touched up to four accesses, with the bytes of
 * the four that they touched. An access that the new one is ordered behind and that can add nothing to it gives up its
 * place. Where all four are needed a read is forgotten, else an atomic, else any.
 *
 * Nothing is cleared: an access bears the number of its cluster's run, and those of earlier runs do not count.
 */
#include "gpu/race_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 4, PAGE_SHIFT = 10, PAGE_CELLS = 1 << (PAGE_SHIFT - 2) };

struct race_cell {
    race_slot at[SLOTS];
};

size_t race_cell_bytes(size_t n) { return n * sizeof(race_cell); }

/* ---- comparison ---- */

/* Not below the proxy, so that bulk copies and wgmma need a fence to see it. */
static bool is_generic_write(const race_slot *o) { return (o->kind & (TOUCH_WRITES | TOUCH_ASYNC)) == TOUCH_WRITES; }

static bool ordered_here(const race_touch *x, const race_slot *o, int rank) {
    const race_cluster *c = x->c;
    const uint32_t      self = (uint32_t)(x->s->block->rank * (unsigned)c->per_block) + (uint32_t)x->s->index;
    const bool          shared = rank >= 0;
    int                 kind = shared && race_agent_rank(c, o->agent) == rank ? KNOW_SHARED : KNOW_OUTSIDE;
    bool                own = o->agent == self && !(x->lanes & (x->lanes - 1));
    uint32_t            lanes = o->lanes;
    if (x->kind & TOUCH_ASYNC && is_generic_write(o) && !(o->kind & TOUCH_STRONG)) {
        kind = shared ? KNOW_PROXY : KNOW_PROXY_OUT;
        own = own && o->t <= (shared ? x->proxied : x->proxied_out);
    }
    if (own) lanes &= ~x->lanes;
    return !lanes || race_clock_has(x->knows, o->agent, kind, lanes, o->t);
}

/* Of another cluster of the launch, or of another launch. */
static bool ordered_elsewhere(const race_touch *x, const race_slot *o) {
    const race_run *r = race_run_of(o->run);
    if (r->launch != x->c->launch) return race_launch_behind(x->c, x->knows, r->launch);
    for (int k = 0; k < x->knows->n_foreign; k++) {
        const race_foreign *f = &x->knows->foreign[k];
        if (f->run == o->run && f->known && race_clock_has(f->what, o->agent, KNOW_FENCED, o->lanes, o->t)) return true;
    }
    return false;
}

static bool conflicts(unsigned a, unsigned b) { return (a | b) & TOUCH_WRITES && !(a & b & TOUCH_STRONG); }

typedef struct place {
    int            rank;        /* of the block whose memory it is; -1: global */
    uint64_t       at, cell_at; /* of the access; of this cell */
    uint32_t       size;
    const uint8_t *memory; /* of this cell */
} place;

/* Whether what is written lies there already. */
static bool same_bytes(const race_touch *x, const place *p, unsigned bytes) {
    bool same = x->value != NULL;
    for (unsigned k = 0; k < 4 && same; k++)
        same = !(bytes >> k & 1) || p->memory[k] == x->value[p->cell_at + k - p->at];
    return same;
}

static void report(const race_touch *x, const race_slot *o, unsigned bytes, const place *p) {
    char       at[64];
    const bool both_write = x->kind & o->kind & TOUCH_WRITES;
    if (p->rank < 0)
        snprintf(at, sizeof at, "%#llx", (unsigned long long)p->at);
    else if (p->rank == (int)x->s->block->rank)
        snprintf(at, sizeof at, "%d of shared memory", (int)p->at - SMEM_BASE);
    else
        snprintf(at, sizeof at, "%d of block %d's shared memory", (int)p->at - SMEM_BASE, p->rank);
    race_report(x, o, at, p->size, both_write && same_bytes(x, p, bytes));
}

static void touch_cell(const race_touch *x, race_cell *cell, unsigned bytes, const place *p) {
    const bool writes = x->kind & TOUCH_WRITES;
    race_slot *free_slot = NULL, *merged = NULL;
    for (int k = 0; k < SLOTS; k++) {
        race_slot *o = &cell->at[k];
        const bool here = o->run == x->c->run;
        if (!here && (p->rank >= 0 || !race_run_of(o->run))) {
            o->run = 0;
            free_slot = o;
            continue;
        }
        if (here && o->agent == x->agent && o->t == x->t && o->kind == x->kind) {
            if (o->lanes == x->stamp_lanes && (!writes || o->bytes == bytes)) {
                o->bytes |= bytes & 15;
                merged = o;
                if (o->bytes == bytes && !writes) return;
                continue;
            }
            if ((!writes || x->kind & TOUCH_STRONG) && o->bytes == bytes) {
                o->lanes |= x->stamp_lanes;
                merged = o;
                continue;
            }
        }
        if (!(o->bytes & bytes)) continue;
        const bool conflict = conflicts(o->kind, x->kind);
        const bool before = here ? ordered_here(x, o, p->rank) : ordered_elsewhere(x, o);
        if (conflict && !before) report(x, o, o->bytes & bytes, p);
        /* A plain access below a strong one stays: it conflicts with strong ones to come, the new one does not. */
        if (before && !(o->bytes & ~bytes) && (writes || !(o->kind & TOUCH_WRITES)) &&
            (o->kind & TOUCH_STRONG || !(x->kind & TOUCH_STRONG))) {
            o->run = 0;
            free_slot = o;
        }
    }
    if (merged) return;
    if (!free_slot) {
        const unsigned first = (x->t + (unsigned)(p->at >> 2)) % SLOTS;
        for (unsigned k = 0; k < 2 * SLOTS && !free_slot; k++) {
            race_slot *o = &cell->at[(first + k) % SLOTS];
            if (!(o->kind & TOUCH_WRITES) || (k >= SLOTS && o->kind & TOUCH_STRONG)) free_slot = o;
        }
        if (!free_slot) free_slot = &cell->at[first];
    }
    *free_slot = (race_slot){ .run = x->c->run,
                              .lanes = x->stamp_lanes,
                              .t = x->t & 0xffffff,
                              .kind = x->kind & 15,
                              .bytes = bytes & 15,
                              .line = x->i->line & 0x1fffff,
                              .agent = x->agent & 0x7ff };
}

static unsigned bytes_in(uint64_t at, uint64_t end, uint64_t cell_at) {
    const unsigned from = at > cell_at ? (unsigned)(at - cell_at) : 0,
                   to = end < cell_at + 4 ? (unsigned)(end - cell_at) : 4;
    return (0xfu << from & 0xfu) & (0xfu >> (4 - to));
}

/* ---- where cells lie ---- */

void race_touch_shared(const race_touch *x, gpu_block *b, uint32_t offset, uint32_t bytes) {
    const uint64_t end = (uint64_t)offset + bytes;
    if (!bytes || end > b->smem_bytes) return; /* the access itself faults */
    race_cell *cells = x->c->cells[b->rank];
    for (uint64_t cell_at = offset & ~3u; cell_at < end; cell_at += 4) {
        const place p = {
            .rank = (int)b->rank, .at = offset, .cell_at = cell_at, .size = bytes, .memory = b->smem + cell_at
        };
        touch_cell(x, &cells[cell_at / 4], bytes_in(offset, end, cell_at), &p);
    }
}

typedef struct page {
    uint64_t  number;
    race_cell cells[PAGE_CELLS];
} page;

static struct {
    page **at;
    size_t n, cap;
    page  *last[64];
} pages;

static size_t page_hash(uint64_t number) { return (size_t)((number * 0x9e3779b97f4a7c15u) >> 20) & (pages.cap - 1); }

static void pages_grow(void) {
    page       **old = pages.at;
    const size_t cap = pages.cap;
    pages.cap = cap ? cap * 2 : 4096;
    pages.at = calloc(pages.cap, sizeof(page *));
    if (!pages.at) abort(); /* a test without memory */
    for (size_t k = 0; k < cap; k++) {
        if (!old[k]) continue;
        size_t h = page_hash(old[k]->number);
        while (pages.at[h]) h = (h + 1) & (pages.cap - 1);
        pages.at[h] = old[k];
    }
    free(old);
}

static page *page_of(uint64_t number) {
    page **last = &pages.last[number % 64];
    if (*last && (*last)->number == number) return *last;
    if (pages.n * 2 >= pages.cap) pages_grow();
    size_t h = page_hash(number);
    while (pages.at[h] && pages.at[h]->number != number) h = (h + 1) & (pages.cap - 1);
    if (!pages.at[h]) {
        pages.at[h] = calloc(1, sizeof(page));
        if (!pages.at[h]) abort();
        pages.at[h]->number = number;
        pages.n++;
    }
    return *last = pages.at[h];
}

void race_touch_global(const race_touch *x, uint64_t at, uint32_t bytes) {
    const uint64_t end = at + bytes;
    if (end < at) return; /* the access itself faults */
    for (uint64_t cell_at = at & ~(uint64_t)3; cell_at < end; cell_at += 4) {
        const place p = {
            .rank = -1, .at = at, .cell_at = cell_at, .size = bytes, .memory = (const uint8_t *)(uintptr_t)cell_at
        };
        page *g = page_of(cell_at >> PAGE_SHIFT);
        touch_cell(x, &g->cells[cell_at / 4 % PAGE_CELLS], bytes_in(at, end, cell_at), &p);
    }
}

void race_cells_forget(size_t more_than) {
    if (pages.n <= more_than) return;
    for (size_t k = 0; k < pages.cap; k++) free(pages.at[k]);
    free(pages.at);
    memset(&pages, 0, sizeof pages);
}
