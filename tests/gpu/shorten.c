/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes out of a kernel what need not be done. nvcc in haste leaves more copies from register to register than
 * anything else, since ptxas would remove them: a third of all instructions that run.
 *
 * 1. A register that is written once, before anybody can read it, is what it was copied from, if that is written once
 *    as well or is a number.
 * 2. What computes something that nobody reads goes. Loads stay: their address may be wrong.
 * 3. Registers that are copied into each other become one where neither is written while the other is still needed.
 * 4. Branches to the next instruction go.
 *
 * All this holds for each lane by itself, and no instruction looks at a lane that is not at the same instruction.
 */
#include "gpu/lives.h"

#include <stdlib.h>
#include <string.h>

enum { MERGED_MAX = 6000 }; /* registers, for a table of all pairs of them */

typedef struct work {
    gpu_kernel *k;
    lives       l;
    uint32_t   *writes;  /* of each register: how many instructions write it, */
    operand    *same;    /* and what it is a copy of, SLOT_NONE: nothing */
    bool       *guarded; /* written under a guard */
    char       *gone;    /* of each instruction */
    const insn *now;
} work;

/* ---- 1: copies of what stays ---- */

static void count_write(void *with, uint32_t reg, bool written) {
    work *w = with;
    if (!written) return;
    w->writes[reg]++;
    w->guarded[reg] |= w->now->guarded;
}

/* Written once, and before it is read. */
static bool stays(const work *w, operand o) {
    if (o.constant) return true;
    const uint32_t reg = lives_number(w->k, o);
    return w->writes[reg] == 1 && !w->guarded[reg] && !lives_has(w->l.blocks[0].in, reg);
}

static operand origin(const work *w, operand o) {
    bool negated = o.negated;
    while (!o.constant && o.kind != SLOT_NONE && w->same[lives_number(w->k, o)].kind != SLOT_NONE) {
        o = w->same[lives_number(w->k, o)];
        negated ^= o.negated;
    }
    o.negated = negated;
    return o;
}

static void replace_reads(work *w, insn *i) {
    const unsigned only_read = i->reads & ~(unsigned)i->writes;
    if (i->guarded) i->guard = origin(w, i->guard);
    for (int n = 0; n < 5; n++) {
        if (only_read >> n & 1) i->o[n] = origin(w, i->o[n]);
    }
    for (int n = 0; n < 4; n++) {
        operand *list = (operand *)i->list[n]; /* the kernel's own */
        for (int j = 0; (only_read >> (5 + n) & 1) && j < i->listed[n]; j++) list[j] = origin(w, list[j]);
    }
}

static void replace_copies(work *w) {
    gpu_kernel *k = w->k;
    for (int n = 0; n < k->n_code; n++) {
        w->now = &k->code[n];
        lives_each(k, w->now, count_write, w);
    }
    for (uint32_t r = 0; r < w->l.n; r++) w->same[r].kind = SLOT_NONE;
    for (int n = 0; n < k->n_code; n++) {
        const insn *i = &k->code[n];
        if (i->copies == COPIES_NOTHING || i->guarded || !stays(w, i->o[0]) || !stays(w, i->o[1])) continue;
        operand from = i->o[1];
        from.negated ^= i->copies == COPIES_OPPOSITE;
        w->same[lives_number(k, i->o[0])] = from;
    }
    for (int n = 0; n < k->n_code; n++) replace_reads(w, &k->code[n]);
}

/* ---- 2: what nobody reads ---- */

typedef struct live_set {
    uint64_t *set;
    bool      wanted; /* something that is written is needed */
    bool      guarded;
} live_set;

static void ask_wanted(void *with, uint32_t reg, bool written) {
    live_set *s = with;
    s->wanted |= written && lives_has(s->set, reg);
}
static void leave_written(void *with, uint32_t reg, bool written) {
    live_set *s = with;
    if (written && !s->guarded) lives_drop(s->set, reg);
}
static void add_read(void *with, uint32_t reg, bool written) {
    live_set *s = with;
    if (!written) lives_put(s->set, reg);
}

static void step_back(const gpu_kernel *k, const insn *i, live_set *s) {
    s->guarded = i->guarded;
    lives_each(k, i, leave_written, s);
    lives_each(k, i, add_read, s);
}

static void remove_unread(work *w) {
    const gpu_kernel *k = w->k;
    for (int b = 0; b < w->l.n_blocks; b++) {
        live_set s = { .set = w->l.blocks[b].out };
        for (int n = w->l.blocks[b].to - 1; n >= w->l.blocks[b].from; n--) {
            const insn *i = &k->code[n];
            s.wanted = false;
            if (i->pure) lives_each(k, i, ask_wanted, &s);
            if (i->pure && !s.wanted)
                w->gone[n] = 1;
            else
                step_back(k, i, &s);
        }
    }
}

/* ---- 3: registers that become one ---- */

typedef struct merge {
    const gpu_kernel *k;
    int32_t          *index; /* of a register among those that are copied; -1 */
    uint32_t         *reg;   /* and back */
    uint32_t         *one;   /* which register it is now, by index */
    uint32_t          n;
    size_t            words;
    uint64_t         *apart; /* by index: those that it must not become */
    uint64_t         *live, *written;
    bool              guarded;
} merge;

static bool joins(const work *w, const insn *i) {
    return i->copies == COPIES_SAME && !i->guarded && !i->o[1].constant && !i->o[1].negated &&
           !lives_has(w->l.blocks[0].in, lives_number(w->k, i->o[0])) &&
           !lives_has(w->l.blocks[0].in, lives_number(w->k, i->o[1]));
}

static void note_merged(merge *m, uint32_t reg) {
    if (m->index[reg] >= 0 || m->n == MERGED_MAX) return;
    m->reg[m->n] = reg;
    m->index[reg] = (int32_t)m->n++;
}

static void note_written(void *with, uint32_t reg, bool written) {
    merge *m = with;
    if (written && m->index[reg] >= 0) lives_put(m->written, (uint32_t)m->index[reg]);
}
static void merge_leave(void *with, uint32_t reg, bool written) {
    merge *m = with;
    if (written && !m->guarded && m->index[reg] >= 0) lives_drop(m->live, (uint32_t)m->index[reg]);
}
static void merge_read(void *with, uint32_t reg, bool written) {
    merge *m = with;
    if (!written && m->index[reg] >= 0) lives_put(m->live, (uint32_t)m->index[reg]);
}

/* What an instruction writes must not lie where something is that is needed behind it, but for what it copies. */
static void note_apart(merge *m, const insn *i) {
    memset(m->written, 0, m->words * sizeof *m->written);
    lives_each(m->k, i, note_written, m);
    const int32_t from = i->copies == COPIES_SAME && !i->guarded && !i->o[1].constant && !i->o[1].negated
                             ? m->index[lives_number(m->k, i->o[1])]
                             : -1;
    for (uint32_t x = 0; x < m->n; x++) {
        if (x % 64 == 0 && !m->written[x / 64]) {
            x += 63;
            continue;
        }
        if (!lives_has(m->written, x)) continue;
        uint64_t  *row = m->apart + x * m->words;
        const bool had = from >= 0 && lives_has(row, (uint32_t)from);
        for (size_t k = 0; k < m->words; k++) row[k] |= m->live[k] | m->written[k];
        if (from >= 0 && !had) lives_drop(row, (uint32_t)from);
    }
}

static uint32_t find_one(const merge *m, uint32_t x) {
    while (m->one[x] != x) x = m->one[x];
    return x;
}

/* What must not become x must not become z. */
static void keep_apart(merge *m, uint32_t x, uint32_t z) {
    for (size_t k = 0; k < m->words; k++) {
        for (uint64_t rest = m->apart[x * m->words + k]; rest; rest &= rest - 1)
            lives_put(m->apart + (64 * k + (size_t)__builtin_ctzll(rest)) * m->words, z);
    }
}

static void make_one(merge *m, uint32_t a, uint32_t b) {
    for (size_t k = 0; k < m->words; k++) m->apart[a * m->words + k] |= m->apart[b * m->words + k];
    keep_apart(m, b, a);
    m->one[b] = a;
}

static void walk_back(work *w, merge *m) {
    for (int b = 0; b < w->l.n_blocks; b++) {
        memset(m->live, 0, m->words * sizeof *m->live);
        for (uint32_t x = 0; x < m->n; x++) {
            if (lives_has(w->l.blocks[b].out, m->reg[x])) lives_put(m->live, x);
        }
        for (int n = w->l.blocks[b].to - 1; n >= w->l.blocks[b].from; n--) {
            const insn *i = &w->k->code[n];
            note_apart(m, i);
            m->guarded = i->guarded;
            lives_each(w->k, i, merge_leave, m);
            lives_each(w->k, i, merge_read, m);
        }
    }
    for (uint32_t x = 0; x < m->n; x++) keep_apart(m, x, x);
}

static void rename_operand(const merge *m, operand *o) {
    if (o->kind == SLOT_NONE || o->constant) return;
    const int32_t x = m->index[lives_number(m->k, *o)];
    if (x >= 0) o->at = lives_operand(m->k, m->reg[find_one(m, (uint32_t)x)]).at;
}

static void rename_all(const merge *m, insn *i) {
    if (i->guarded) rename_operand(m, &i->guard);
    for (int n = 0; n < 5; n++) {
        if ((i->reads | i->writes) >> n & 1) rename_operand(m, &i->o[n]);
    }
    for (int n = 0; n < 4; n++) {
        operand *list = (operand *)i->list[n]; /* the kernel's own */
        for (int j = 0; ((i->reads | i->writes) >> (5 + n) & 1) && j < i->listed[n]; j++) rename_operand(m, &list[j]);
    }
}

static int merge_copied(work *w, err *e) {
    gpu_kernel *k = w->k;
    merge       m = { .k = k };
    int         rc = 0;
    m.index = malloc(((size_t)w->l.n + 1) * sizeof *m.index);
    m.reg = malloc(MERGED_MAX * sizeof *m.reg);
    m.one = malloc(MERGED_MAX * sizeof *m.one);
    if (!m.index || !m.reg || !m.one) rc = err_set_nomem(e);
    for (uint32_t r = 0; r < w->l.n && rc == 0; r++) m.index[r] = -1;
    for (int n = 0; n < k->n_code && rc == 0; n++) {
        if (!joins(w, &k->code[n])) continue;
        note_merged(&m, lives_number(k, k->code[n].o[0]));
        note_merged(&m, lives_number(k, k->code[n].o[1]));
    }
    m.words = ((size_t)m.n + 63) / 64 + 1;
    if (rc == 0) {
        m.apart = calloc(((size_t)m.n + 2) * m.words, sizeof *m.apart);
        if (!m.apart) rc = err_set_nomem(e);
    }
    if (rc == 0) {
        m.live = m.apart + m.n * m.words;
        m.written = m.live + m.words;
        for (uint32_t x = 0; x < m.n; x++) m.one[x] = x;
        walk_back(w, &m);
        for (int n = 0; n < k->n_code; n++) {
            if (!joins(w, &k->code[n])) continue;
            const int32_t x = m.index[lives_number(k, k->code[n].o[0])], y = m.index[lives_number(k, k->code[n].o[1])];
            if (x < 0 || y < 0) continue;
            const uint32_t a = find_one(&m, (uint32_t)x), b = find_one(&m, (uint32_t)y);
            if (a != b && !lives_has(m.apart + a * m.words, b) && !lives_has(m.apart + b * m.words, a))
                make_one(&m, a, b);
        }
        for (int n = 0; n < k->n_code; n++) rename_all(&m, &k->code[n]);
    }
    free(m.index);
    free(m.reg);
    free(m.one);
    free(m.apart);
    return rc;
}

/* ---- 4 ---- */

static bool same_register(const insn *i) {
    return i->copies == COPIES_SAME && !i->o[1].constant && !i->o[1].negated && i->o[0].at == i->o[1].at;
}

/* Leaves out what is gone; branches go to what is left behind their target. */
static int close_ranks(work *w, err *e) {
    gpu_kernel *k = w->k;
    uint32_t   *at = malloc(((size_t)k->n_code + 1) * sizeof *at);
    if (!at) return err_set_nomem(e);
    for (bool changed = true; changed;) {
        uint32_t n = 0;
        changed = false;
        for (int i = 0; i < k->n_code; i++) {
            at[i] = n;
            n += !w->gone[i];
        }
        at[k->n_code] = n;
        for (int i = 0; i < k->n_code; i++) {
            const insn *p = &k->code[i];
            if (w->gone[i] || p->flow != FLOW_BRANCH || at[p->target] != at[i] + 1) continue;
            w->gone[i] = 1;
            changed = true;
        }
    }
    for (int i = 0; i < k->n_code; i++) {
        if (w->gone[i]) continue;
        insn *to = &k->code[at[i]];
        if (to != &k->code[i]) *to = k->code[i];
        if (to->flow == FLOW_BRANCH) to->target = at[to->target];
    }
    k->n_code = (int)at[k->n_code];
    memset(w->gone, 0, (size_t)k->n_code);
    free(at);
    return 0;
}

static int again(work *w, err *e) {
    lives_close(&w->l);
    return lives_open(&w->l, w->k, e);
}

int kernel_shorten(gpu_kernel *k, err *e) {
    work w = { .k = k };
    int  rc = lives_open(&w.l, k, e);
    w.writes = calloc((size_t)w.l.n + 1, sizeof *w.writes);
    w.same = calloc((size_t)w.l.n + 1, sizeof *w.same);
    w.guarded = calloc((size_t)w.l.n + 1, sizeof *w.guarded);
    w.gone = calloc((size_t)k->n_code + 1, 1);
    if (rc == 0 && (!w.writes || !w.same || !w.guarded || !w.gone)) rc = err_set_nomem(e);
    if (rc == 0) replace_copies(&w);
    if (rc == 0) rc = again(&w, e);
    if (rc == 0) remove_unread(&w);
    if (rc == 0) rc = close_ranks(&w, e);
    if (rc == 0) rc = again(&w, e);
    if (rc == 0) rc = merge_copied(&w, e);
    for (int n = 0; n < k->n_code && rc == 0; n++) w.gone[n] = same_register(&k->code[n]);
    if (rc == 0) rc = close_ranks(&w, e);
    lives_close(&w.l);
    free(w.writes);
    free(w.same);
    free(w.guarded);
    free(w.gone);
    return rc;
}
