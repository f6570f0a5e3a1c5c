/* SPDX-License-Identifier: Apache-2.0 */
/* Moves of pages on a stream of their own (moves.h); slots go with the steps. */
#include "backend/cuda/cuda.h"

#include <stdlib.h>
#include <string.h>

/* --- tickets of moves ----------------------------------------------------------------------------------------------- */

static cuda_event event_of(const cuda_exec *x, nn_ticket t) { return x->moves.events[t % CUDA_MOVE_EVENTS]; }

/* Moves are over in the order in which they were started. */
static void is_over(cuda_moves *m, nn_ticket t) {
    if (t > m->done) m->done = t;
}

/* The bytes of the oldest arrival to where they belong. One of the call that is being made has no event yet. */
static int deliver(cuda_exec *x, err *e) {
    cuda_moves   *m = &x->moves;
    cuda_arrival *a = &m->list[m->first];
    int           rc = 0;
    if (a->ticket > m->last)
        rc = cuda_wait(m->stream, e);
    else if (a->ticket > m->done && (rc = cuda_event_wait(event_of(x, a->ticket), e)) == 0)
        is_over(m, a->ticket);
    if (rc < 0) return rc;
    if (a->to) memcpy(a->to, m->ring + a->at, a->bytes);
    m->first++;
    if (m->first == m->n) m->first = m->n = 0;
    return 0;
}

static bool has_arrival(const cuda_moves *m, nn_ticket t) {
    for (int i = m->first; i < m->n; i++) {
        if (m->list[i].ticket == t) return true;
    }
    return false;
}

/* Of a step, or of slots alone: there is nothing to wait for. What arrived before goes where it belongs, too. */
int cuda_moves_wait(cuda_exec *x, nn_ticket t, err *e) {
    cuda_moves *m = &x->moves;
    if (m->of_event[t % CUDA_MOVE_EVENTS] != t && !has_arrival(m, t)) return 0;
    int rc = t > m->done ? cuda_event_wait(event_of(x, t), e) : 0;
    if (rc == 0) is_over(m, t);
    while (rc == 0 && m->first < m->n && m->list[m->first].ticket <= t) rc = deliver(x, e);
    return rc;
}

/* --- the ring ------------------------------------------------------------------------------------------------------- */

/* Whether [at, at + bytes) of the ring is free. */
static bool is_free(const cuda_moves *m, size_t at, size_t bytes) {
    for (int i = m->first; i < m->n; i++) {
        if (m->list[i].at < at + bytes && at < m->list[i].at + m->list[i].bytes) return false;
    }
    return true;
}

/* A place for these bytes, which are fewer than the ring has; those that are in the way are delivered first. */
static int take_place(cuda_exec *x, size_t bytes, size_t *at, err *e) {
    cuda_moves *m = &x->moves;
    *at = m->head + bytes <= m->ring_bytes ? m->head : 0;
    for (int rc; !is_free(m, *at, bytes);) {
        if ((rc = deliver(x, e)) < 0) return rc;
    }
    m->head = *at + bytes;
    return 0;
}

static int note_arrival(cuda_exec *x, cuda_arrival a, err *e) {
    cuda_moves *m = &x->moves;
    if (m->n == m->cap) {
        int           cap = m->cap ? 2 * m->cap : 64;
        cuda_arrival *more = realloc(m->list, (size_t)cap * sizeof *more);
        if (!more) return err_set_nomem(e);
        m->list = more;
        m->cap = cap;
    }
    m->list[m->n++] = a;
    return 0;
}

/* Made for the first page that goes to or comes from the host: most models never need it. */
static int open_ring(cuda_exec *x, err *e) {
    cuda_moves *m = &x->moves;
    size_t      most = CUDA_RING_BYTES;
    void       *p = NULL;
    for (int g = 0; g < x->x.groups.n; g++)
        most = 4 * x->x.memory.page_bytes[g] > most ? 4 * x->x.memory.page_bytes[g] : most;
    int rc = m->ring ? 0 : cuda_host_alloc(&p, most, e);
    if (rc < 0 || m->ring) return rc;
    m->ring = p;
    m->ring_bytes = most;
    return 0;
}

/* --- where steps and moves meet -------------------------------------------------------------------------------------- */

static void touch(cuda_moves *m, int group, int32_t page, bool writes, nn_ticket t) {
    if (page < 0) return;
    /* A move that only reads hides none that writes and may still be under way. */
    bool also = m->touched[group][page] > m->done && m->written[group][page];
    m->touched[group][page] = t;
    m->written[group][page] = writes || also;
}

/* The newest move under way that a step with this batch must wait for; 0: none. */
static nn_ticket meets(const cuda_exec *x, const nn_batch *b) {
    const cuda_moves *m = &x->moves;
    int               tokens = x->x.options.limits.page_tokens;
    nn_ticket         newest = 0;
    for (int g = 0; g < x->x.groups.n; g++) {
        if (!m->touched[g] || !b->pages[g]) continue;
        for (int s = 0; s < b->n_seq; s++) {
            const int32_t *row = b->pages[g] + (size_t)s * (size_t)b->pages_stride;
            int            stored = b->pos[b->q_start[s]] / tokens; /* the first page that the step writes */
            for (int p = 0; p <= (b->kv_len[s] - 1) / tokens; p++) {
                if (row[p] < 0) continue;
                nn_ticket t = m->touched[g][row[p]];
                if (t > newest && (p >= stored || m->written[g][row[p]])) newest = t;
            }
        }
    }
    return newest > m->done ? newest : 0;
}

int cuda_moves_meet(cuda_exec *x, const nn_batch *b, err *e) {
    cuda_moves *m = &x->moves;
    if (m->done < m->last && cuda_event_over(event_of(x, m->last))) is_over(m, m->last);
    if (m->done == m->last) return 0;
    nn_ticket t = meets(x, b);
    return t ? cuda_stream_behind(x->stream, event_of(x, t), e) : 0;
}

/* --- moving --------------------------------------------------------------------------------------------------------- */

static int move_slot(cuda_exec *x, const nn_move *v, err *e) {
    size_t   bytes = x->x.memory.slot_bytes;
    uint8_t *base = x->heap + x->areas.slots;
    if (bytes == 0 || v->from == v->to) return 0;
    if (v->from == NN_HOST) return cuda_send(base + (size_t)v->to * bytes, v->host, bytes, x->stream, e);
    if (v->to == NN_HOST) return cuda_receive(v->host, base + (size_t)v->from * bytes, bytes, x->stream, e);
    return cuda_copy_within(base + (size_t)v->to * bytes, base + (size_t)v->from * bytes, bytes, x->stream, e);
}

/* Between the host and a page, by way of the ring. */
static int move_by_ring(cuda_exec *x, const nn_move *v, uint8_t *page, size_t bytes, nn_ticket ticket, err *e) {
    cuda_moves *m = &x->moves;
    bool        out = v->to == NN_HOST;
    size_t      at = 0;
    int         rc = open_ring(x, e);
    if (rc == 0) rc = take_place(x, bytes, &at, e);
    if (rc < 0) return rc;
    if (!out) memcpy(m->ring + at, v->host, bytes);
    rc = out ? cuda_receive(m->ring + at, page, bytes, m->stream, e)
             : cuda_send(page, m->ring + at, bytes, m->stream, e);
    return rc < 0 ? rc : note_arrival(x, (cuda_arrival){ ticket, out ? v->host : NULL, at, bytes }, e);
}

static int move_page(cuda_exec *x, const nn_move *v, nn_ticket ticket, err *e) {
    cuda_moves *m = &x->moves;
    size_t      bytes = x->x.memory.page_bytes[v->group];
    uint8_t    *base = x->pages[v->group];
    if (bytes == 0 || v->from == v->to) return 0;
    touch(m, v->group, v->from, false, ticket);
    touch(m, v->group, v->to, true, ticket);
    if (v->from != NN_HOST && v->to != NN_HOST)
        return cuda_copy_within(base + (size_t)v->to * bytes, base + (size_t)v->from * bytes, bytes, m->stream, e);
    return move_by_ring(x, v, base + (size_t)(v->to == NN_HOST ? v->from : v->to) * bytes, bytes, ticket, e);
}

static int move_pages(cuda_exec *x, const nn_move *moves, int n, nn_ticket ticket, err *e) {
    cuda_moves *m = &x->moves;
    int         rc = cuda_event_record(m->mark, x->stream, e);
    if (rc == 0) rc = cuda_stream_behind(m->stream, m->mark, e);
    for (int i = 0; i < n && rc == 0; i++) {
        if (moves[i].kind == NN_MOVE_PAGE) rc = move_page(x, &moves[i], ticket, e);
    }
    if (rc == 0) rc = cuda_event_record(event_of(x, ticket), m->stream, e);
    if (rc == 0) m->last = m->of_event[ticket % CUDA_MOVE_EVENTS] = ticket;
    return rc;
}

static int move_all(cuda_exec *x, const nn_move *moves, int n, nn_ticket ticket, err *e) {
    bool pages = false;
    int  rc = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        pages = pages || moves[i].kind == NN_MOVE_PAGE;
        if (moves[i].kind == NN_MOVE_SLOT) rc = move_slot(x, &moves[i], e);
    }
    return rc == 0 && pages ? move_pages(x, moves, n, ticket, e) : rc;
}

/* Nobody will wait for what a call that failed has started, and host buffers go. */
static void forget_move(cuda_exec *x, nn_ticket ticket) {
    cuda_moves *m = &x->moves;
    (void)cuda_wait(m->stream, NULL);
    (void)cuda_wait(x->stream, NULL);
    while (m->n > m->first && m->list[m->n - 1].ticket >= ticket) m->n--;
    if (m->first == m->n) m->first = m->n = 0;
    if (m->last >= ticket) m->last = ticket - 1;
    is_over(m, m->last);
}

int cuda_move(nn_exec *base, const nn_move *moves, int n, nn_ticket *ticket, err *e) {
    cuda_exec *x = (cuda_exec *)base;
    int        rc = cuda_enter(x, e);
    if (rc == 0) rc = nn_exec_check_moves(base, moves, n, e);
    if (rc < 0) return cuda_leave(x, rc);
    nn_ticket mine = x->last + 1;
    rc = move_all(x, moves, n, mine, e);
    if (rc == 0) rc = cuda_give_ticket(x, ticket, e);
    if (rc < 0) forget_move(x, mine);
    return cuda_leave(x, rc);
}

/* --- opening and ending --------------------------------------------------------------------------------------------- */

int cuda_moves_open(cuda_exec *x, err *e) {
    cuda_moves *m = &x->moves;
    size_t      n = (size_t)x->x.options.limits.n_pages;
    int         rc = cuda_stream_open(&m->stream, e);
    if (rc == 0) rc = cuda_event_open(&m->mark, e);
    for (int i = 0; i < CUDA_MOVE_EVENTS && rc == 0; i++) rc = cuda_event_open(&m->events[i], e);
    for (int g = 0; g < x->x.groups.n && rc == 0; g++) {
        if (x->x.memory.page_bytes[g] == 0) continue;
        m->touched[g] = calloc(n, sizeof *m->touched[g]);
        m->written[g] = calloc(n, sizeof *m->written[g]);
        if (!m->touched[g] || !m->written[g]) rc = err_set_nomem(e);
    }
    return rc;
}

/* Nobody waits any more: what was on its way out is lost. */
void cuda_moves_free(cuda_exec *x) {
    cuda_moves *m = &x->moves;
    if (m->stream && !x->lost) (void)cuda_wait(m->stream, NULL);
    for (int i = 0; i < CUDA_MOVE_EVENTS; i++) cuda_event_free(m->events[i]);
    cuda_event_free(m->mark);
    cuda_stream_free(m->stream);
    cuda_host_free(m->ring);
    free(m->list);
    for (int g = 0; g < NN_MAX_GROUPS; g++) {
        free(m->touched[g]);
        free(m->written[g]);
    }
}
