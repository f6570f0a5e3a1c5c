/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places for registers. PTX has as many registers as values, thousands in an unrolled kernel; a warp with a place for
 * each would not fit a cache. Registers whose lives do not meet share one: liveness by blocks, then one walk over the
 * lives in the order in which they begin. A register that an instruction writes never shares with one that the same
 * instruction reads, so that instructions may write while they still read. Lanes are where they are: each has an
 * element of its own in a place, and follows the program as if it were alone.
 */
#include "gpu/code.h"

#include <stdlib.h>
#include <string.h>

typedef struct block {
    int       from, to; /* instructions, end exclusive */
    int       next[2];  /* blocks behind; -1 */
    uint64_t *in, *out, *def, *use;
} block;

typedef struct life {
    int32_t  from, to; /* instructions, both inclusive; to < 0: never */
    uint32_t reg;
} life;

typedef struct work {
    gpu_kernel *k;
    block      *blocks;
    int         n_blocks, *block_at;
    uint32_t    n; /* registers of all kinds: predicates, 32 bits, 64 bits */
    size_t      words;
    uint64_t   *bits;
    life       *lives;
    uint32_t   *place, *ends;
} work;

static uint32_t number_of(const gpu_kernel *k, operand o) {
    return o.kind == SLOT_PRED ? o.at : o.kind == SLOT_32 ? k->n_pred + o.at : k->n_pred + k->n32 + o.at;
}

typedef void (*visit)(work *w, uint32_t reg, bool written, void *with);

static void visit_operand(work *w, operand o, bool written, visit f, void *with) {
    if (o.kind != SLOT_NONE && !o.constant) f(w, number_of(w->k, o), written, with);
}

/* What is read first, then what is written. A write under a guard leaves the old value to some: it is a read, too. */
static void each_register(work *w, const insn *i, visit f, void *with) {
    if (i->guarded) visit_operand(w, i->guard, false, f, with);
    for (int pass = 0; pass < 2; pass++) {
        const unsigned bits = pass ? i->writes : i->guarded ? (unsigned)(i->reads | i->writes) : i->reads;
        for (int k = 0; k < 5; k++) {
            if (bits >> k & 1) visit_operand(w, i->o[k], pass == 1, f, with);
        }
        for (int k = 0; k < 4; k++) {
            for (int j = 0; (bits >> (5 + k) & 1) && j < i->listed[k]; j++)
                visit_operand(w, i->list[k][j], pass == 1, f, with);
        }
    }
}

static bool has(const uint64_t *set, uint32_t reg) { return set[reg / 64] >> (reg % 64) & 1; }
static void put(uint64_t *set, uint32_t reg) { set[reg / 64] |= 1ull << (reg % 64); }

static void note_use(work *w, uint32_t reg, bool written, void *with) {
    block *b = with;
    (void)w;
    if (written)
        put(b->def, reg);
    else if (!has(b->def, reg))
        put(b->use, reg);
}

static int find_blocks(work *w, err *e) {
    gpu_kernel *k = w->k;
    char       *leads = calloc((size_t)k->n_code + 1, 1);
    w->block_at = malloc(((size_t)k->n_code + 1) * sizeof *w->block_at);
    if (!leads || !w->block_at) {
        free(leads);
        return err_set_nomem(e);
    }
    leads[0] = 1;
    for (int i = 0; i < k->n_code; i++) {
        if (k->code[i].flow == FLOW_BRANCH) leads[k->code[i].target] = 1;
        if (k->code[i].flow == FLOW_BRANCH || k->code[i].flow == FLOW_EXIT) leads[i + 1] = 1;
    }
    for (int i = 0; i < k->n_code; i++) w->n_blocks += leads[i];
    w->blocks = calloc((size_t)w->n_blocks, sizeof *w->blocks);
    w->words = (w->n + 63) / 64;
    w->bits = calloc((size_t)w->n_blocks * 4 * w->words + 1, sizeof *w->bits);
    if (!w->blocks || !w->bits) {
        free(leads);
        return err_set_nomem(e);
    }
    for (int i = 0, b = -1; i < k->n_code; i++) {
        if (leads[i]) {
            b++;
            uint64_t *at = w->bits + (size_t)b * 4 * w->words;
            w->blocks[b] = (block){
                .from = i, .in = at, .out = at + w->words, .def = at + 2 * w->words, .use = at + 3 * w->words
            };
        }
        w->block_at[i] = b;
        w->blocks[b].to = i + 1;
        each_register(w, &k->code[i], note_use, &w->blocks[b]);
    }
    free(leads);
    for (int b = 0; b < w->n_blocks; b++) {
        const insn *last = &k->code[w->blocks[b].to - 1];
        const bool  ends = (last->flow == FLOW_BRANCH || last->flow == FLOW_EXIT) && !last->guarded;
        w->blocks[b].next[0] = ends || w->blocks[b].to == k->n_code ? -1 : b + 1;
        w->blocks[b].next[1] = last->flow == FLOW_BRANCH ? w->block_at[last->target] : -1;
    }
    return 0;
}

static void flow_back(work *w) {
    for (bool changed = true; changed;) {
        changed = false;
        for (int b = w->n_blocks - 1; b >= 0; b--) {
            block *p = &w->blocks[b];
            for (size_t i = 0; i < w->words; i++) {
                uint64_t out = 0;
                for (int s = 0; s < 2; s++) {
                    if (p->next[s] >= 0) out |= w->blocks[p->next[s]].in[i];
                }
                const uint64_t in = p->use[i] | (out & ~p->def[i]);
                changed |= in != p->in[i];
                p->in[i] = in;
                p->out[i] = out;
            }
        }
    }
}

static void extend(life *l, int at) {
    if (l->to < 0) l->from = l->to = at;
    if (at < l->from) l->from = at;
    if (at > l->to) l->to = at;
}

static void note_life(work *w, uint32_t reg, bool written, void *with) {
    (void)written;
    extend(&w->lives[reg], *(const int *)with);
}

static int by_start(const void *a, const void *b) {
    const life *x = a, *y = b;
    return x->from != y->from ? (x->from > y->from) - (x->from < y->from) : (x->reg > y->reg) - (x->reg < y->reg);
}

/* Registers of one kind, in the order in which their lives begin. Returns how many places they need. */
static uint32_t place_kind(work *w, life *sorted, uint32_t n) {
    uint32_t used = 0;
    for (uint32_t i = 0; i < n; i++) {
        life *l = &sorted[i];
        if (l->to < 0) continue;
        uint32_t at = used;
        for (uint32_t p = 0; p < used; p++) {
            if ((int32_t)w->ends[p] < l->from) {
                at = p;
                break;
            }
        }
        if (at == used) used++;
        w->ends[at] = (uint32_t)l->to;
        w->place[l->reg] = at;
    }
    return used ? used : 1;
}

static void move_operand(const work *w, operand *o) {
    if (o->kind != SLOT_NONE && !o->constant) o->at = w->place[number_of(w->k, *o)];
}

/* What is neither read nor written as far as each_register knows must not name a place. */
static void rename_all(work *w) {
    gpu_kernel *k = w->k;
    for (int n = 0; n < k->n_code; n++) {
        insn *i = &k->code[n];
        if (i->guarded) move_operand(w, &i->guard);
        for (int j = 0; j < 5; j++) {
            if ((i->reads | i->writes) >> j & 1) move_operand(w, &i->o[j]);
        }
        for (int j = 0; j < 4; j++) {
            operand *list = (operand *)i->list[j]; /* the kernel's own */
            for (int m = 0; m < i->listed[j]; m++) move_operand(w, &list[m]);
        }
    }
}

/* Registers that are needed where the kernel begins. */
static int note_open(work *w, const uint32_t *firsts, err *e) {
    gpu_kernel *k = w->k;
    for (uint32_t i = 0; i < w->n; i++) k->n_open += has(w->blocks[0].in, i);
    k->open = arena_alloc(&k->mem, ((size_t)k->n_open + 1) * sizeof *k->open);
    if (!k->open) return err_set_nomem(e);
    for (uint32_t i = 0, n = 0; i < w->n; i++) {
        if (!has(w->blocks[0].in, i)) continue;
        k->open[n++] = (operand){ .at = w->place[i],
                                  .kind = i >= firsts[2]   ? SLOT_64
                                          : i >= firsts[1] ? SLOT_32
                                                           : SLOT_PRED };
    }
    return 0;
}

int slots_assign(gpu_kernel *k, err *e) {
    work w = { .k = k, .n = k->n_pred + k->n32 + k->n64 };
    int  rc = find_blocks(&w, e);
    w.lives = calloc((size_t)w.n + 1, sizeof *w.lives);
    w.place = calloc((size_t)w.n + 1, sizeof *w.place);
    w.ends = calloc((size_t)w.n + 1, sizeof *w.ends);
    if (rc == 0 && (!w.lives || !w.place || !w.ends)) rc = err_set_nomem(e);
    if (rc == 0) {
        flow_back(&w);
        for (uint32_t i = 0; i < w.n; i++) w.lives[i] = (life){ .from = 0, .to = -1, .reg = i };
        for (int i = 0; i < k->n_code; i++) each_register(&w, &k->code[i], note_life, &i);
        for (int b = 0; b < w.n_blocks; b++) {
            const block *p = &w.blocks[b];
            for (uint32_t i = 0; i < w.n; i++) {
                if (i % 64 == 0 && !(p->in[i / 64] | p->out[i / 64])) {
                    i += 63;
                    continue;
                }
                if (has(p->in, i)) extend(&w.lives[i], p->from);
                if (has(p->out, i)) extend(&w.lives[i], p->to - 1);
            }
        }
        const uint32_t firsts[3] = { 0, k->n_pred, k->n_pred + k->n32 }, counts[3] = { k->n_pred, k->n32, k->n64 };
        uint32_t       used[3];
        for (int s = 0; s < 3; s++) {
            qsort(w.lives + firsts[s], counts[s], sizeof *w.lives, by_start);
            used[s] = place_kind(&w, w.lives + firsts[s], counts[s]);
        }
        rename_all(&w);
        rc = note_open(&w, firsts, e);
        k->n_pred = used[0];
        k->n32 = used[1];
        k->n64 = used[2];
    }
    free(w.blocks);
    free(w.block_at);
    free(w.bits);
    free(w.lives);
    free(w.place);
    free(w.ends);
    return rc;
}
