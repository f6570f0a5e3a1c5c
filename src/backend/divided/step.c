/* SPDX-License-Identifier: Apache-2.0 */
/* Steps and moves over all devices. */
#include "backend/divided/divided.h"

#include <stdlib.h>
#include <string.h>

/* --- tickets ------------------------------------------------------------------------------------------------------- */

static int wait_parts(divided_exec *x, divided_ticket *t, err *e) {
    divided_ticket of = *t;
    int            rc = 0;
    *t = (divided_ticket){ 0 };
    for (int k = 0; k < x->n_parts; k++) { /* all, whatever the first says */
        int one = of.of[k] ? x->part[k]->backend->wait(x->part[k], of.of[k], rc ? NULL : e) : 0;
        if (rc == 0) rc = one;
    }
    return rc;
}

/* There are never that many at once; if there were, the oldest would be over before this one is given out. */
static int give_ticket(divided_exec *x, const nn_ticket of[BACKEND_MAX_PARTS], nn_ticket *out, err *e) {
    divided_ticket *t = &x->tickets[(x->last + 1) % DIVIDED_TICKETS];
    int             rc = t->mine ? wait_parts(x, t, e) : 0;
    *t = (divided_ticket){ .mine = ++x->last };
    memcpy(t->of, of, sizeof t->of);
    *out = x->last;
    return rc;
}

int divided_wait(nn_exec *base, nn_ticket ticket, err *e) {
    divided_exec   *x = (divided_exec *)base;
    divided_ticket *t = &x->tickets[ticket % DIVIDED_TICKETS];
    if (ticket == 0 || ticket > x->last)
        return err_set(e, ERR_ARG, "ticket %llu was never given out", (unsigned long long)ticket);
    if (x->step == ticket) x->step = 0;
    return t->mine == ticket ? wait_parts(x, t, e) : 0;
}

/* --- steps --------------------------------------------------------------------------------------------------------- */

/* What a segment reads and others have made, one behind the other in `carried`. entry: NULL, or a list of it. */
static int take_over(divided_exec *x, const divided_segment *s, const nn_batch *b, nn_rows *entry, err *e) {
    const nn_tape *t = x->x.model->tape;
    nn_exec       *to = x->part[s->part];
    float         *at = x->carried;
    int            rc = 0;
    for (int i = 0; i < s->n_needs && rc == 0; i++) {
        nn_buf   buf = s->needs[i].buf;
        nn_exec *from = x->part[s->needs[i].from];
        rc = from->backend->read(from, buf, at, e);
        if (rc == 0 && !entry) rc = to->backend->write(to, buf, at, e);
        if (entry) entry[i] = (nn_rows){ buf, at };
        at += nn_batch_rows(b, t, buf) * t->bufs[buf].width;
    }
    return rc;
}

/* The whole of a part, which can record it; only the last one is not waited for. */
static int run_alone(divided_exec *x, const divided_segment *s, const nn_batch *b, nn_ticket of[BACKEND_MAX_PARTS],
                     err *e) {
    nn_exec  *p = x->part[s->part];
    nn_batch  own = *b;
    nn_ticket ticket = 0;
    int       rc = take_over(x, s, b, x->entry, e);
    if (s->n_needs) {
        own.entry = x->entry;
        own.n_entry = s->n_needs;
    }
    if (rc == 0) rc = p->backend->submit(p, &own, &ticket, e);
    if (rc < 0 || s < x->segments + x->n_segments - 1) return rc < 0 ? rc : p->backend->wait(p, ticket, e);
    of[s->part] = ticket;
    return 0;
}

/* One behind the other. */
static int run_segments(divided_exec *x, const nn_batch *b, nn_ticket of[BACKEND_MAX_PARTS], err *e) {
    bool begun[BACKEND_MAX_PARTS] = { false };
    int  rc = 0;
    for (int i = 0; i < x->n_segments && rc == 0; i++) {
        const divided_segment *s = &x->segments[i];
        nn_exec               *p = x->part[s->part];
        if (s->alone) {
            rc = run_alone(x, s, b, of, e);
            continue;
        }
        if (!begun[s->part]) rc = p->backend->begin(p, b, e);
        begun[s->part] = true;
        if (rc == 0) rc = take_over(x, s, b, NULL, e);
        if (rc == 0) rc = p->backend->run(p, s->first, s->end, e);
    }
    return rc;
}

int divided_submit(nn_exec *base, const nn_batch *b, nn_ticket *step, err *e) {
    divided_exec *x = (divided_exec *)base;
    nn_ticket     of[BACKEND_MAX_PARTS] = { 0 };
    int           rc = nn_exec_check(base, b, e);
    if (rc == 0 && x->step) rc = err_set(e, ERR_ARG, "a step is under way");
    if (rc == 0) rc = run_segments(x, b, of, e);
    if (rc == 0) rc = give_ticket(x, of, step, e);
    if (rc == 0) x->step = *step;
    return rc;
}

int divided_fetch(nn_exec *base, nn_fetch_what what, int64_t first, int64_t n, float *to, err *e) {
    divided_exec *x = (divided_exec *)base;
    nn_exec      *p = x->part[divided_part_of(x, nn_fetch_buf(base->model->tape, what), base->options.end_op)];
    return p->backend->fetch(p, what, first, n, to, e);
}

/* By the last part where that was given a step of its own; else the host samples. */
int divided_sample(nn_exec *base, const int32_t *out_rows, const sampling_row *rows, int n, sampling_result *out,
                   err *e) {
    divided_exec          *x = (divided_exec *)base;
    const divided_segment *last = &x->segments[x->n_segments - 1];
    nn_exec               *p = x->part[last->part];
    if (last->alone && p->backend->sample) return p->backend->sample(p, out_rows, rows, n, out, e);
    for (int i = 0; i < n; i++) out[i] = (sampling_result){ .token = SAMPLING_LEFT };
    return 0;
}

/* --- moves --------------------------------------------------------------------------------------------------------- */

static bool make_room(divided_exec *x, int n) {
    if (n <= x->cap_moves) return true;
    nn_move *more = realloc(x->moves, (size_t)n * sizeof *more);
    if (!more) return false;
    x->moves = more;
    x->cap_moves = n;
    return true;
}

/* Where part k's bytes begin in host memory. */
static size_t host_offset(const divided_exec *x, int k, const nn_move *m) {
    size_t at = 0;
    for (int i = 0; i < k; i++) {
        const nn_memory *before = x->part[i] ? &x->part[i]->memory : NULL;
        if (before) at += m->kind == NN_MOVE_PAGE ? before->page_bytes[m->group] : before->slot_bytes;
    }
    return at;
}

static int move_part(divided_exec *x, int k, const nn_move *moves, int n, nn_ticket *of, err *e) {
    for (int i = 0; i < n; i++) {
        x->moves[i] = moves[i];
        if (moves[i].host) x->moves[i].host = (uint8_t *)moves[i].host + host_offset(x, k, &moves[i]);
    }
    return x->part[k]->backend->move(x->part[k], x->moves, n, of, e);
}

int divided_move(nn_exec *base, const nn_move *moves, int n, nn_ticket *ticket, err *e) {
    divided_exec  *x = (divided_exec *)base;
    divided_ticket t = { 0 };
    int            rc = nn_exec_check_moves(base, moves, n, e);
    if (rc == 0 && !make_room(x, n)) rc = err_set_nomem(e);
    for (int k = 0; k < x->n_parts && rc == 0; k++) {
        if (x->part[k]) rc = move_part(x, k, moves, n, &t.of[k], e);
    }
    if (rc == 0) return give_ticket(x, t.of, ticket, e);
    (void)wait_parts(x, &t, NULL); /* nobody will wait for what the others do */
    return rc;
}

/* --- op by op ------------------------------------------------------------------------------------------------------ */

int divided_begin(nn_exec *base, const nn_batch *b, err *e) {
    divided_exec *x = (divided_exec *)base;
    int           rc = 0;
    x->batch = *b;
    x->ran = base->options.first_op;
    for (int k = 0; k < x->n_parts && rc == 0; k++) {
        if (x->part[k]) rc = x->part[k]->backend->begin(x->part[k], b, e);
    }
    return rc;
}

int divided_run(nn_exec *base, int first_op, int end_op, err *e) {
    divided_exec *x = (divided_exec *)base;
    int           rc = 0;
    for (int i = 0; i < x->n_segments && rc == 0; i++) {
        const divided_segment *s = &x->segments[i];
        int first = first_op > s->first ? first_op : s->first, end = end_op < s->end ? end_op : s->end;
        if (first >= end) continue;
        if (first == s->first) rc = take_over(x, s, &x->batch, NULL, e);
        if (rc == 0) rc = x->part[s->part]->backend->run(x->part[s->part], first, end, e);
    }
    x->ran = end_op;
    return rc;
}

int divided_read(nn_exec *base, nn_buf b, float *to, err *e) {
    divided_exec *x = (divided_exec *)base;
    nn_exec      *p = x->part[divided_part_of(x, b, x->ran)];
    return p->backend->read(p, b, to, e);
}

int divided_write(nn_exec *base, nn_buf b, const float *from, err *e) {
    divided_exec *x = (divided_exec *)base;
    int           rc = 0;
    for (int k = 0; k < x->n_parts && rc == 0; k++) {
        if (x->part[k]) rc = x->part[k]->backend->write(x->part[k], b, from, e);
    }
    return rc;
}
