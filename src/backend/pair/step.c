/* SPDX-License-Identifier: Apache-2.0 */
/* Steps and moves over both devices. */
#include "backend/pair/pair.h"

#include "base/num.h"

#include <stdlib.h>

static nn_exec *last_part(const pair_exec *x) { return x->part[x->part[PAIR_OTHER] ? PAIR_OTHER : PAIR_CPU]; }

static bool has_both(const pair_exec *x) { return x->part[PAIR_CPU] && x->part[PAIR_OTHER]; }

/* --- tickets ------------------------------------------------------------------------------------------------------- */

static int wait_parts(pair_exec *x, pair_ticket *t, err *e) {
    pair_ticket of = *t;
    int         rc = 0;
    *t = (pair_ticket){ 0 };
    for (int k = 0; k < PAIR_PARTS; k++) { /* both, whatever the first says */
        int one = of.of[k] ? x->part[k]->backend->wait(x->part[k], of.of[k], rc ? NULL : e) : 0;
        if (rc == 0) rc = one;
    }
    return rc;
}

/* There are never that many at once; if there were, the oldest would be over before this one is given out. */
static int give_ticket(pair_exec *x, const nn_ticket of[PAIR_PARTS], nn_ticket *out, err *e) {
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

/* What the first part has left, for the second. */
static int take_over(pair_exec *x, err *e) {
    nn_exec *from = x->part[PAIR_CPU];
    int      rc = 0;
    for (int i = 0; i < x->cut.n_cross && rc == 0; i++)
        rc = from->backend->read(from, x->cut.cross[i], x->carried[i], e);
    return rc;
}

/* The first part is computed here; the second may still be under way. */
static int start(pair_exec *x, const nn_batch *b, nn_ticket of[PAIR_PARTS], err *e) {
    nn_exec *first = x->part[PAIR_CPU], *second = x->part[PAIR_OTHER];
    nn_batch rest = *b;
    if (!has_both(x)) return last_part(x)->backend->submit(last_part(x), b, &of[second ? PAIR_OTHER : PAIR_CPU], e);
    int rc = nn_exec_step(first, b, e);
    if (rc == 0) rc = take_over(x, e);
    rest.entry = x->entry;
    rest.n_entry = x->cut.n_cross;
    return rc < 0 ? rc : second->backend->submit(second, &rest, &of[PAIR_OTHER], e);
}

int pair_submit(nn_exec *base, const nn_batch *b, nn_ticket *step, err *e) {
    pair_exec *x = (pair_exec *)base;
    nn_ticket  of[PAIR_PARTS] = { 0 };
    int        rc = nn_exec_check(base, b, e);
    if (rc == 0 && x->step) rc = err_set(e, ERR_ARG, "a step is under way");
    if (rc == 0) rc = start(x, b, of, e);
    if (rc == 0) rc = give_ticket(x, of, step, e);
    if (rc == 0) x->step = *step;
    return rc;
}

int pair_fetch(nn_exec *base, nn_fetch_what what, int64_t first, int64_t n, float *to, err *e) {
    nn_exec *p = last_part((pair_exec *)base);
    return p->backend->fetch(p, what, first, n, to, e);
}

/* The host samples where the second device does not. */
int pair_sample(nn_exec *base, const int32_t *out_rows, const sampling_row *rows, int n, sampling_result *out, err *e) {
    nn_exec *p = last_part((pair_exec *)base);
    if (p->backend->sample) return p->backend->sample(p, out_rows, rows, n, out, e);
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
    for (int k = 0; k < PAIR_PARTS && rc == 0; k++) {
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
    for (int k = 0; k < PAIR_PARTS && rc == 0; k++) {
        if (x->part[k]) rc = x->part[k]->backend->begin(x->part[k], b, e);
    }
    return rc;
}

static int carry(pair_exec *x, err *e) {
    nn_exec *to = x->part[PAIR_OTHER];
    int      rc = take_over(x, e);
    for (int i = 0; i < x->cut.n_cross && rc == 0; i++) rc = to->backend->write(to, x->cut.cross[i], x->carried[i], e);
    return rc;
}

int pair_run(nn_exec *base, int first_op, int end_op, err *e) {
    pair_exec *x = (pair_exec *)base;
    nn_exec   *first = x->part[PAIR_CPU], *second = x->part[PAIR_OTHER];
    int        at = !first ? first_op : !second ? end_op : x->cut.at, rc = 0;
    if (first_op < at) rc = first->backend->run(first, first_op, end_op < at ? end_op : at, e);
    if (rc == 0 && end_op > at) {
        if (has_both(x) && first_op <= at) rc = carry(x, e);
        if (rc == 0) rc = second->backend->run(second, first_op > at ? first_op : at, end_op, e);
    }
    x->ran = end_op;
    return rc;
}

/* Whether the second part has a buffer: it was carried over, or made there. */
static bool is_second(const pair_exec *x, nn_buf b) {
    if (!has_both(x) || x->ran <= x->cut.at) return !x->part[PAIR_CPU];
    for (int i = 0; i < x->cut.n_cross; i++) {
        if (x->cut.cross[i] == b) return true;
    }
    for (int i = x->cut.at; i < x->ran; i++) {
        if (x->x.model->tape->ops[i].out == b) return true;
    }
    return false;
}

int pair_read(nn_exec *base, nn_buf b, float *to, err *e) {
    pair_exec *x = (pair_exec *)base;
    nn_exec   *p = x->part[is_second(x, b) ? PAIR_OTHER : PAIR_CPU];
    return p->backend->read(p, b, to, e);
}

int pair_write(nn_exec *base, nn_buf b, const float *from, err *e) {
    pair_exec *x = (pair_exec *)base;
    int        rc = 0;
    for (int k = 0; k < PAIR_PARTS && rc == 0; k++) {
        if (x->part[k]) rc = x->part[k]->backend->write(x->part[k], b, from, e);
    }
    return rc;
}
