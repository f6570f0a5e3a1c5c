/* SPDX-License-Identifier: Apache-2.0 */
/* Steps and moves over both devices. */
#include "backend/pair/pair.h"

#include "base/num.h"

#include <stdlib.h>

/* --- tickets ------------------------------------------------------------------------------------------------------- */

static int wait_parts(pair_exec *x, pair_ticket *t, err *e) {
    pair_ticket of = *t;
    int         rc = 0;
    *t = (pair_ticket){ 0 };
    for (int k = 0; k < PAIR_SIDES; k++) { /* both, whatever the first says */
        int one = of.of[k] ? x->part[k]->backend->wait(x->part[k], of.of[k], rc ? NULL : e) : 0;
        if (rc == 0) rc = one;
    }
    return rc;
}

/* There are never that many at once; if there were, the oldest would be over before this one is given out. */
static int give_ticket(pair_exec *x, const nn_ticket of[PAIR_SIDES], nn_ticket *out, err *e) {
    pair_ticket *t = &x->tickets[(x->last + 1) % PAIR_TICKETS];
    int          rc = t->mine ? wait_parts(x, t, e) : 0;
    *t = (pair_ticket){ ++x->last, { of[PAIR_CPU], of[PAIR_OTHER] } };
    *out = x->last;
    return rc;
}

int pair_wait(nn_exec *base, nn_ticket ticket, err *e) {
    pair_exec   *x = (pair_exec *)base;
    pair_ticket *t = &x->tickets[ticket % PAIR_TICKETS];
    if (ticket == 0 || ticket > x->last)
        return err_set(e, ERR_ARG, "ticket %llu was never given out", (unsigned long long)ticket);
    if (x->step == ticket) x->step = 0;
    return t->mine == ticket ? wait_parts(x, t, e) : 0;
}

/* --- steps --------------------------------------------------------------------------------------------------------- */

/* What a segment reads and the other side has, one behind the other in `carried`. entry: NULL, or a list of it. */
static int take_over(pair_exec *x, const pair_segment *s, const nn_batch *b, nn_rows *entry, err *e) {
    const nn_tape *t = x->x.model->tape;
    nn_exec       *from = x->part[!s->side], *to = x->part[s->side];
    float         *at = x->carried;
    int            rc = 0;
    for (int i = 0; i < s->n_needs && rc == 0; i++) {
        nn_buf buf = s->needs[i];
        rc = from->backend->read(from, buf, at, e);
        if (rc == 0 && !entry) rc = to->backend->write(to, buf, at, e);
        if (entry) entry[i] = (nn_rows){ buf, at };
        at += nn_batch_rows(b, t, buf) * t->bufs[buf].width;
    }
    return rc;
}

/* One behind the other; the last one is only started where its side has no other. */
static int run_segments(pair_exec *x, const nn_batch *b, nn_ticket of[PAIR_SIDES], err *e) {
    bool begun[PAIR_SIDES] = { false };
    int  rc = 0;
    for (int i = 0; i < x->n_segments && rc == 0; i++) {
        const pair_segment *s = &x->segments[i];
        nn_exec            *p = x->part[s->side];
        if (x->starts && i == x->n_segments - 1) {
            nn_batch rest = *b;
            rc = take_over(x, s, b, x->entry, e);
            if (s->n_needs) {
                rest.entry = x->entry;
                rest.n_entry = s->n_needs;
            }
            return rc < 0 ? rc : p->backend->submit(p, &rest, &of[s->side], e);
        }
        if (!begun[s->side]) rc = p->backend->begin(p, b, e);
        begun[s->side] = true;
        if (rc == 0) rc = take_over(x, s, b, NULL, e);
        if (rc == 0) rc = p->backend->run(p, s->first, s->end, e);
    }
    return rc;
}

int pair_submit(nn_exec *base, const nn_batch *b, nn_ticket *step, err *e) {
    pair_exec *x = (pair_exec *)base;
    nn_ticket  of[PAIR_SIDES] = { 0 };
    int        rc = nn_exec_check(base, b, e);
    if (rc == 0 && x->step) rc = err_set(e, ERR_ARG, "a step is under way");
    if (rc == 0) rc = run_segments(x, b, of, e);
    if (rc == 0) rc = give_ticket(x, of, step, e);
    if (rc == 0) x->step = *step;
    return rc;
}

int pair_fetch(nn_exec *base, nn_fetch_what what, int64_t first, int64_t n, float *to, err *e) {
    pair_exec *x = (pair_exec *)base;
    nn_exec   *p = x->part[pair_side_of(x, nn_fetch_buf(base->model->tape, what), base->options.end_op)];
    return p->backend->fetch(p, what, first, n, to, e);
}

/* By the other device where it was given a step of its own; else the host samples. */
int pair_sample(nn_exec *base, const int32_t *out_rows, const sampling_row *rows, int n, sampling_result *out, err *e) {
    pair_exec *x = (pair_exec *)base;
    nn_exec   *p = x->part[x->segments[x->n_segments - 1].side];
    if (x->starts && p->backend->sample) return p->backend->sample(p, out_rows, rows, n, out, e);
    for (int i = 0; i < n; i++) out[i] = (sampling_result){ .token = SAMPLING_LEFT };
    return 0;
}

/* --- moves --------------------------------------------------------------------------------------------------------- */

static bool make_room(pair_exec *x, int n) {
    if (n <= x->cap_moves) return true;
    nn_move *more = realloc(x->moves, (size_t)n * sizeof *more);
    if (!more) return false;
    x->moves = more;
    x->cap_moves = n;
    return true;
}

/* Where side k's bytes begin in host memory. */
static size_t host_offset(const pair_exec *x, int k, const nn_move *m) {
    const nn_exec *first = x->part[PAIR_CPU];
    if (k == PAIR_CPU || !first) return 0;
    return m->kind == NN_MOVE_PAGE ? first->memory.page_bytes[m->group] : first->memory.slot_bytes;
}

static int move_part(pair_exec *x, int k, const nn_move *moves, int n, nn_ticket *of, err *e) {
    for (int i = 0; i < n; i++) {
        x->moves[i] = moves[i];
        if (moves[i].host) x->moves[i].host = (uint8_t *)moves[i].host + host_offset(x, k, &moves[i]);
    }
    return x->part[k]->backend->move(x->part[k], x->moves, n, of, e);
}

int pair_move(nn_exec *base, const nn_move *moves, int n, nn_ticket *ticket, err *e) {
    pair_exec  *x = (pair_exec *)base;
    pair_ticket t = { 0 };
    int         rc = nn_exec_check_moves(base, moves, n, e);
    if (rc == 0 && !make_room(x, n)) rc = err_set_nomem(e);
    for (int k = 0; k < PAIR_SIDES && rc == 0; k++) {
        if (x->part[k]) rc = move_part(x, k, moves, n, &t.of[k], e);
    }
    if (rc == 0) return give_ticket(x, t.of, ticket, e);
    (void)wait_parts(x, &t, NULL); /* nobody will wait for what the first side does */
    return rc;
}

/* --- op by op ------------------------------------------------------------------------------------------------------ */

int pair_begin(nn_exec *base, const nn_batch *b, err *e) {
    pair_exec *x = (pair_exec *)base;
    int        rc = 0;
    x->batch = *b;
    x->ran = base->options.first_op;
    for (int k = 0; k < PAIR_SIDES && rc == 0; k++) {
        if (x->part[k]) rc = x->part[k]->backend->begin(x->part[k], b, e);
    }
    return rc;
}

int pair_run(nn_exec *base, int first_op, int end_op, err *e) {
    pair_exec *x = (pair_exec *)base;
    int        rc = 0;
    for (int i = 0; i < x->n_segments && rc == 0; i++) {
        const pair_segment *s = &x->segments[i];
        int                 first = first_op > s->first ? first_op : s->first, end = end_op < s->end ? end_op : s->end;
        if (first >= end) continue;
        if (first == s->first) rc = take_over(x, s, &x->batch, NULL, e);
        if (rc == 0) rc = x->part[s->side]->backend->run(x->part[s->side], first, end, e);
    }
    x->ran = end_op;
    return rc;
}

int pair_read(nn_exec *base, nn_buf b, float *to, err *e) {
    pair_exec *x = (pair_exec *)base;
    nn_exec   *p = x->part[pair_side_of(x, b, x->ran)];
    return p->backend->read(p, b, to, e);
}

int pair_write(nn_exec *base, nn_buf b, const float *from, err *e) {
    pair_exec *x = (pair_exec *)base;
    int        rc = 0;
    for (int k = 0; k < PAIR_SIDES && rc == 0; k++) {
        if (x->part[k]) rc = x->part[k]->backend->write(x->part[k], b, from, e);
    }
    return rc;
}
