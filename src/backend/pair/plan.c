/* SPDX-License-Identifier: Apache-2.0 */
/* Who computes what of a tape, and what goes from one side to the other. */
#include "nn/plan.h"
#include "backend/pair/pair.h"
#include "nn/divide.h"

#include <stdlib.h>
#include <string.h>

static int choose_sides(pair_exec *x, const pair_place *p, err *e) {
    const nn_tape *t = x->x.model->tape;
    if (p->experts && nn_mixtures(t) >= p->n && nn_mixtures(t) > 0) return nn_divide_experts(t, p->n, x->side, e);
    if (!p->experts && t->n_layer >= p->n) return nn_divide_layers(t, p->n, x->side, e);
    memset(x->side, PAIR_OTHER, (size_t)t->n_ops);
    return 0;
}

/* Runs of ops on one side, within the executor's own part of the tape. */
static int find_segments(pair_exec *x, err *e) {
    const nn_exec_options *o = &x->x.options;
    x->segments = arena_calloc(&x->mem, (size_t)(o->end_op - o->first_op) + 1, sizeof *x->segments);
    if (!x->segments) return err_set_nomem(e);
    for (int i = o->first_op; i < o->end_op; i++) {
        bool more = x->n_segments && x->segments[x->n_segments - 1].side == x->side[i];
        if (!more) x->segments[x->n_segments++] = (pair_segment){ .side = x->side[i], .first = i };
        x->segments[x->n_segments - 1].end = i + 1;
        x->ops[x->side[i]][i] = true;
    }
    return 0;
}

/* Both sides have what nobody has made: whoever begins in the middle of a tape writes it. */
enum { BOTH = 2 };

static int need(pair_exec *x, pair_segment *s, nn_buf b, uint8_t *at, err *e) {
    if (!b || at[b] == BOTH || at[b] == s->side) return 0;
    if (!s->needs && !(s->needs = arena_calloc(&x->mem, (size_t)x->x.model->tape->n_bufs, sizeof *s->needs)))
        return err_set_nomem(e);
    s->needs[s->n_needs++] = b;
    at[b] = BOTH;
    return 0;
}

/* at: where each buffer's rows are. What an op writes is on its own side alone from then on. */
static int find_needs(pair_exec *x, uint8_t *at, err *e) {
    const nn_tape *t = x->x.model->tape;
    int            rc = 0;
    memset(at, BOTH, (size_t)t->n_bufs);
    for (int i = 0; i < x->n_segments; i++) {
        pair_segment *s = &x->segments[i];
        for (int k = s->first; k < s->end && rc == 0; k++) {
            const nn_op *op = &t->ops[k];
            for (int j = 0; j < NN_MAX_IN && rc == 0; j++) rc = need(x, s, op->in[j], at, e);
            if (op->acc && rc == 0) rc = need(x, s, op->out, at, e);
            at[op->out] = (uint8_t)s->side;
        }
    }
    return rc;
}

int pair_plan(pair_exec *x, const pair_place *p, err *e) {
    size_t n = (size_t)x->x.model->tape->n_ops;
    x->side = arena_calloc(&x->mem, n, sizeof *x->side);
    for (int k = 0; k < PAIR_SIDES; k++) x->ops[k] = arena_calloc(&x->mem, n, sizeof *x->ops[k]);
    if (!x->side || !x->ops[PAIR_CPU] || !x->ops[PAIR_OTHER]) return err_set_nomem(e);
    uint8_t *at = malloc((size_t)x->x.model->tape->n_bufs);
    int      rc = at ? choose_sides(x, p, e) : err_set_nomem(e);
    if (rc == 0) rc = find_segments(x, e);
    if (rc == 0) rc = find_needs(x, at, e);
    free(at);
    if (rc < 0) return rc;
    pair_segment *last = &x->segments[x->n_segments - 1];
    x->starts = true;
    for (int i = 0; i < x->n_segments - 1; i++) x->starts = x->starts && x->segments[i].side != last->side;
    x->entry = arena_calloc(&x->mem, (size_t)last->n_needs + 1, sizeof *x->entry);
    return x->entry ? 0 : err_set_nomem(e);
}

size_t pair_carried_bytes(const pair_exec *x) {
    size_t most = 0;
    for (int i = 0; i < x->n_segments; i++) {
        size_t sum = 0;
        for (int k = 0; k < x->segments[i].n_needs; k++) {
            const nn_buf_info *b = &x->x.model->tape->bufs[x->segments[i].needs[k]];
            sum += nn_rows_max(&x->x.options.limits, b) * (size_t)b->width * sizeof(float);
        }
        most = sum > most ? sum : most;
    }
    return most;
}

int pair_side_of(const pair_exec *x, nn_buf b, int end) {
    for (int i = end - 1; i >= x->x.options.first_op; i--) {
        if (x->x.model->tape->ops[i].out == b) return x->side[i];
    }
    return x->part[PAIR_OTHER] ? PAIR_OTHER : PAIR_CPU;
}
