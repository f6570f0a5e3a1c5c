/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drafts by a head that goes on from the model's hidden states (nn/next.h).
 *
 * The engine shows every hidden state that it computes behind which a token may be drafted: those of a generated text, and
 * the last few of a prompt. They are kept in a ring until the first draft that needs them; then the head evaluates, for each
 * position from the first one whose predecessor is known, the row [embedding of its token; hidden state before it]. What a
 * place has evaluated with the model's own states stays. The further tokens of a draft go on from the head's own states, and
 * their positions are written again once the model has been there.
 *
 * A place counts positions from where its knowledge begins. After a beginning that was taken from the cache that is the
 * first position that was computed, and a gap begins anew behind it.
 */
#include "base/clock.h"
#include "engine/draft_exec.h"

#include <stdlib.h>
#include <string.h>

enum {
    READ_ROWS = 256,           /* of a prompt's end */
    STEP_ROWS = 256,           /* of one step: rows of input take much memory */
    FEW_ROWS = DRAFT_MOST + 1, /* of a sequence: what is new since its last draft */
};

typedef struct place {
    float *states; /* [READ_ROWS][n]: hidden states of positions lo to hi, each at its position modulo READ_ROWS */
    int    lo, hi;
    int    base, n; /* the text's positions base to n are evaluated with the model's own states */
    int    at;      /* while drafting: the next position */
    float *chain;   /* [n]: what the head handed on from the one before it */
} place;

typedef struct next_drafter {
    drafter        base;
    draft_exec     x;
    const nn_next *head;
    place         *places;
    float         *rows;  /* [step_tokens][2 n] */
    const float  **embd;  /* into it */
    int           *asked; /* [n_places]: which ask has output row i */
} next_drafter;

static float *state_at(const next_drafter *d, const place *p, int position) {
    return p->states + (size_t)(position % READ_ROWS) * (size_t)d->head->n_hidden;
}

static void next_see(drafter *base, const draft_seq *s, int position, int n, const float *rows) {
    next_drafter *d = (next_drafter *)base;
    if (s->seat >= d->x.n_places) return;
    place *p = &d->places[s->seat];
    if (position > p->hi || position < p->lo) p->lo = position; /* a gap, or older than anything that is known */
    p->hi = position + n;
    for (int i = 0; i < n; i++)
        memcpy(state_at(d, p, position + i), rows + (size_t)i * (size_t)d->head->n_hidden,
               (size_t)d->head->n_hidden * sizeof *rows);
    if (p->hi - p->lo > READ_ROWS) p->lo = p->hi - READ_ROWS;
}

/* Where to go on; false: the state before the newest token is not known. */
static bool resume(place *p, const draft_ask *a) {
    int last = a->seq.n_tokens - 1;
    if (p->hi < last || p->lo >= last) return false;
    if (p->n > last) p->n = last; /* the newest one is evaluated again: its row is wanted */
    if (p->n <= p->base || p->n - 1 < p->lo) p->base = p->n = p->lo + 1;
    p->at = p->n;
    return true;
}

static int32_t token_of(const draft_ask *a, int position) {
    return position < a->seq.n_tokens ? a->seq.tokens[position] : a->draft[position - a->seq.n_tokens];
}

static void put_row(next_drafter *d, int row, const place *p, const draft_ask *a, int position) {
    size_t n = (size_t)d->head->n_hidden;
    float *to = d->rows + (size_t)row * 2 * n;
    bool   known = position < a->seq.n_tokens;
    nn_next_embed(d->head, token_of(a, position), to);
    memcpy(to + n, known ? state_at(d, p, position - 1) : p->chain, n * sizeof *to);
    d->embd[row] = to;
    d->x.token[row] = 0;
}

/* Adds a sequence's next positions to the step: all that the model's states are known for, or one of the draft. True: the
 * last of them is the newest token or behind it, and its row will be there. */
static bool feed(next_drafter *d, nn_batch *b, const draft_ask *a) {
    place *p = &d->places[a->seq.seat];
    int    end = p->at < a->seq.n_tokens ? a->seq.n_tokens : p->at + 1, room = d->x.step_tokens - b->n_tok;
    int    n = end - p->at < room ? end - p->at : room;
    if (n <= 0) return false;
    for (int i = 0; i < n; i++) put_row(d, b->n_tok + i, p, a, p->at + i);
    bool out = p->at + n >= a->seq.n_tokens;
    draft_exec_add(&d->x, b, a->seq.seat, p->at - p->base, n, out);
    p->at += n;
    if (p->at <= a->seq.n_tokens) p->n = p->at;
    return out;
}

/* The token behind what was evaluated, unless it is there already, and the state that its row hands on. */
static bool take(next_drafter *d, draft_ask *a, int out_row) {
    place *p = &d->places[a->seq.seat];
    if (p->at == a->seq.n_tokens + a->n) {
        int32_t t = draft_exec_pick(&d->x, a, out_row);
        if (t < 0) return false;
        a->draft[a->n++] = t;
    }
    return a->n < a->most && d->x.exec->backend->fetch(d->x.exec, NN_FETCH_HIDDEN, out_row, 1, p->chain, NULL) == 0;
}

static bool takes_part(const next_drafter *d, const draft_ask *a) {
    return a->seq.seat < d->x.n_places && a->n < a->most;
}

static void forget(next_drafter *d, draft_ask *asks, int n_asks) {
    for (int i = 0; i < n_asks; i++) {
        if (asks[i].seq.seat >= d->x.n_places) continue;
        place *p = &d->places[asks[i].seq.seat];
        p->n = p->base = 0;
        asks[i].most = asks[i].n;
    }
}

/* One step for all that want more. False: nobody does. */
static bool step(next_drafter *d, draft_ask *asks, int n_asks) {
    nn_batch b = draft_exec_batch(&d->x);
    int      n = 0;
    b.embd = d->embd;
    for (int i = 0; i < n_asks; i++) {
        if (takes_part(d, &asks[i]) && feed(d, &b, &asks[i])) d->asked[n++] = i;
    }
    if (b.n_tok == 0) return false;
    double begin = draft_clock(d->x.gpu);
    if (nn_exec_step(d->x.exec, &b, NULL) < 0) {
        forget(d, asks, n_asks);
        return false;
    }
    for (int k = 0; k < n; k++) {
        draft_ask *a = &asks[d->asked[k]];
        if (!take(d, a, k)) a->most = a->n;
    }
    /* A step that reads much of a prompt says nothing about guessing. */
    if (b.n_tok <= FEW_ROWS * b.n_seq) draft_measure(&d->base.guess_s, draft_clock(d->x.gpu) - begin, b.n_seq);
    return true;
}

static void next_propose(drafter *base, draft_ask *asks, int n_asks) {
    next_drafter *d = (next_drafter *)base;
    for (int i = 0; i < n_asks; i++) {
        if (takes_part(d, &asks[i]) && !resume(&d->places[asks[i].seq.seat], &asks[i])) asks[i].most = asks[i].n;
    }
    while (step(d, asks, n_asks)) {
    }
}

static void next_begin(drafter *base, const draft_seq *s) {
    next_drafter *d = (next_drafter *)base;
    if (s->seat >= d->x.n_places) return;
    place *p = &d->places[s->seat];
    p->lo = p->hi = p->base = p->n = 0;
}

static void next_free(drafter *base) {
    next_drafter *d = (next_drafter *)base;
    for (int i = 0; d->places && i < d->x.n_places; i++) {
        free(d->places[i].states);
        free(d->places[i].chain);
    }
    free(d->places);
    free(d->rows);
    free(d->embd);
    free(d->asked);
    draft_exec_close(&d->x);
    free(d);
}

static bool take_places(next_drafter *d) {
    size_t n = (size_t)d->x.n_places, width = (size_t)d->head->n_hidden, tokens = (size_t)d->x.step_tokens;
    bool   ok = (d->places = calloc(n, sizeof *d->places)) && (d->asked = calloc(n, sizeof *d->asked));
    ok = ok && (d->rows = calloc(tokens * 2 * width, sizeof *d->rows)) && (d->embd = calloc(tokens, sizeof *d->embd));
    for (size_t i = 0; ok && i < n; i++) {
        ok = (d->places[i].states = calloc(READ_ROWS * width, sizeof(float))) &&
             (d->places[i].chain = calloc(width, sizeof(float)));
    }
    return ok;
}

draft_model_shape draft_next_shape(draft_model_shape s) {
    if (s.step_tokens > STEP_ROWS) s.step_tokens = STEP_ROWS > s.n_places ? STEP_ROWS : s.n_places;
    return s;
}

size_t draft_next_bytes(const nn_next *head, const draft_model_shape *s) {
    size_t rows = (size_t)s->n_places * (READ_ROWS + 1) + (size_t)draft_next_shape(*s).step_tokens * 2;
    return rows * (size_t)head->n_hidden * sizeof(float);
}

int draft_next_open(drafter **out, const nn_device *device, const nn_backend *backend, const nn_next *head,
                    const draft_model_shape *shape, err *e) {
    draft_model_shape s = draft_next_shape(*shape);
    *out = NULL;
    next_drafter *d = calloc(1, sizeof *d);
    if (!d) return err_set_nomem(e);
    d->base = (drafter){ .name = head->reads == NN_FETCH_INNER ? "eagle" : "mtp",
                         .costs = true,
                         .reads = READ_ROWS,
                         .begin = next_begin,
                         .see = next_see,
                         .propose = next_propose,
                         .free = next_free };
    d->head = head;
    int rc = draft_exec_open(&d->x, device, backend, head->model, head->ids, &s, e);
    if (rc == 0 && !take_places(d)) rc = err_set_nomem(e);
    if (rc < 0) {
        next_free(&d->base);
        return rc;
    }
    *out = &d->base;
    return 0;
}
