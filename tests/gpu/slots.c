/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places for registers. PTX has as many registers as values, thousands in an unrolled kernel; a warp with a place for
 * each would not fit a cache. Registers whose lives do not meet share one: liveness by blocks, then one walk over the
 * lives in the order in which they begin. A register that an instruction writes never shares with one that the same
 * instruction reads, so that instructions may write while they still read. Lanes are where they are: each has an
 * element of its own in a place, and follows the program as if it were alone.
 */
#include "gpu/lives.h"

#include <stdlib.h>

typedef struct life {
    int32_t  from, to; /* instructions, both inclusive; to < 0: never */
    uint32_t reg;
} life;

typedef struct work {
    gpu_kernel *k;
    lives       l;
    life       *lives;
    uint32_t   *place, *ends;
    int         at; /* the instruction that is looked at */
} work;

static void extend(life *l, int at) {
    if (l->to < 0) l->from = l->to = at;
    if (at < l->from) l->from = at;
    if (at > l->to) l->to = at;
}

static void note_life(void *with, uint32_t reg, bool written) {
    work *w = with;
    (void)written;
    extend(&w->lives[reg], w->at);
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
    if (o->kind != SLOT_NONE && !o->constant) o->at = w->place[lives_number(w->k, *o)];
}

/* What is neither read nor written as far as lives_each knows must not name a place. */
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
    for (uint32_t i = 0; i < w->l.n; i++) k->n_open += lives_has(w->l.blocks[0].in, i);
    k->open = arena_alloc(&k->mem, ((size_t)k->n_open + 1) * sizeof *k->open);
    if (!k->open) return err_set_nomem(e);
    for (uint32_t i = 0, n = 0; i < w->l.n; i++) {
        if (!lives_has(w->l.blocks[0].in, i)) continue;
        k->open[n++] = (operand){ .at = w->place[i],
                                  .kind = i >= firsts[2]   ? SLOT_64
                                          : i >= firsts[1] ? SLOT_32
                                                           : SLOT_PRED };
    }
    return 0;
}

int slots_assign(gpu_kernel *k, err *e) {
    work w = { .k = k };
    int  rc = lives_open(&w.l, k, e);
    w.lives = calloc((size_t)w.l.n + 1, sizeof *w.lives);
    w.place = calloc((size_t)w.l.n + 1, sizeof *w.place);
    w.ends = calloc((size_t)w.l.n + 1, sizeof *w.ends);
    if (rc == 0 && (!w.lives || !w.place || !w.ends)) rc = err_set_nomem(e);
    if (rc == 0) {
        for (uint32_t i = 0; i < w.l.n; i++) w.lives[i] = (life){ .from = 0, .to = -1, .reg = i };
        for (w.at = 0; w.at < k->n_code; w.at++) lives_each(k, &k->code[w.at], note_life, &w);
        for (int b = 0; b < w.l.n_blocks; b++) {
            const code_block *p = &w.l.blocks[b];
            for (uint32_t i = 0; i < w.l.n; i++) {
                if (i % 64 == 0 && !(p->in[i / 64] | p->out[i / 64])) {
                    i += 63;
                    continue;
                }
                if (lives_has(p->in, i)) extend(&w.lives[i], p->from);
                if (lives_has(p->out, i)) extend(&w.lives[i], p->to - 1);
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
    lives_close(&w.l);
    free(w.lives);
    free(w.place);
    free(w.ends);
    return rc;
}
