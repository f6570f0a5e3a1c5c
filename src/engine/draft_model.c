/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drafts by a smaller model of the same vocabulary.
 *
 * It has an executor of its own (draft_exec.h). Every seat remembers which tokens stand in its pages: what was drafted and
 * refused is overwritten, and what is new since is evaluated together with the first token of the next draft. A prompt that
 * it has not read yet is read in pieces of a step's size, one per draft that is asked for, so that nobody waits long for it.
 */
#include "backend/backend.h"
#include "base/clock.h"
#include "engine/draft_exec.h"

#include <stdlib.h>

enum { FEW_ROWS = DRAFT_MOST + 1 }; /* per sequence: what a draft that was refused leaves to be evaluated again */

typedef struct place {
    int32_t *seen; /* [n_ctx]: the token at each position */
    int      n;    /* positions that are evaluated */
} place;

typedef struct model_drafter {
    drafter    base;
    draft_exec x;
    place     *places;
    int       *asked; /* [n_places]: which ask has output row i */
} model_drafter;

/* The known tokens, then those of the draft. */
static int32_t token_of(const draft_ask *a, int position) {
    return position < a->seq.n_tokens ? a->seq.tokens[position] : a->draft[position - a->seq.n_tokens];
}

/* Positions that hold this text. */
static int known_of(place *p, const draft_ask *a) {
    int end = a->seq.n_tokens + a->n, from = p->n - 2 * DRAFT_MOST;
    if (p->n > end - 1) p->n = end - 1; /* the last one is evaluated again: its row is wanted */
    for (int i = from > 0 ? from : 0; i < p->n; i++) {
        if (p->seen[i] != token_of(a, i)) p->n = i;
    }
    return p->n;
}

/* Adds a sequence's next tokens to the step. True: the row behind all of them will be there. */
static bool feed(model_drafter *d, nn_batch *b, const draft_ask *a) {
    place *p = &d->places[a->seq.seat];
    int    end = a->seq.n_tokens + a->n, from = known_of(p, a);
    int    n = end - from < d->x.step_tokens - b->n_tok ? end - from : d->x.step_tokens - b->n_tok;
    if (n <= 0) return false;
    for (int i = 0; i < n; i++) d->x.token[b->n_tok + i] = p->seen[from + i] = token_of(a, from + i);
    p->n = from + n;
    draft_exec_add(&d->x, b, a->seq.seat, from, n, p->n == end);
    return p->n == end;
}

/* One step for all that want more. False: nobody does. */
static bool step(model_drafter *d, draft_ask *asks, int n_asks) {
    nn_batch b = draft_exec_batch(&d->x);
    int      n = 0;
    for (int i = 0; i < n_asks; i++) {
        if (asks[i].seq.seat >= d->x.n_places || asks[i].n >= asks[i].most) continue;
        if (feed(d, &b, &asks[i])) d->asked[n++] = i;
    }
    if (b.n_tok == 0) return false;
    double begin = draft_clock(d->x.gpu);
    if (nn_exec_step(d->x.exec, &b, NULL) < 0) {
        for (int i = 0; i < n_asks; i++) {
            if (asks[i].seq.seat < d->x.n_places) d->places[asks[i].seq.seat].n = 0;
        }
        return false;
    }
    /* A step that reads a prompt, too, says nothing about guessing. */
    if (b.n_tok <= FEW_ROWS * b.n_seq) draft_measure(&d->base.guess_s, draft_clock(d->x.gpu) - begin, b.n_seq);
    bool more = false;
    for (int k = 0; k < n; k++) {
        draft_ask *a = &asks[d->asked[k]];
        int32_t    t = draft_exec_pick(&d->x, a, k);
        if (t < 0) {
            a->most = a->n;
            continue;
        }
        a->draft[a->n++] = t;
        more = more || a->n < a->most;
    }
    return more;
}

static void model_propose(drafter *base, draft_ask *asks, int n_asks) {
    model_drafter *d = (model_drafter *)base;
    while (step(d, asks, n_asks)) {
    }
}

static void model_begin(drafter *base, const draft_seq *s) {
    model_drafter *d = (model_drafter *)base;
    if (s->seat < d->x.n_places) d->places[s->seat].n = 0;
}

static void model_free(drafter *base) {
    model_drafter *d = (model_drafter *)base;
    for (int i = 0; d->places && i < d->x.n_places; i++) free(d->places[i].seen);
    free(d->places);
    free(d->asked);
    draft_exec_close(&d->x);
    free(d);
}

int draft_model_check(const nn_model *m, err *e) {
    if (!m->tape->logits) return err_set(e, ERR_UNSUPPORTED, "the draft model does not write");
    for (int i = 0; i < m->dims->n_layer; i++) {
        if (m->state[i].rec_heads || m->state[i].conv_channels)
            return err_set(e, ERR_UNSUPPORTED,
                           "the draft model has layers with a fixed state, which cannot take a draft back");
    }
    return 0;
}

static bool take_places(model_drafter *d) {
    size_t n = (size_t)d->x.n_places;
    bool   ok = (d->places = calloc(n, sizeof *d->places)) && (d->asked = calloc(n, sizeof *d->asked));
    for (size_t i = 0; ok && i < n; i++)
        ok = (d->places[i].seen = calloc((size_t)d->x.n_ctx, sizeof *d->places[i].seen)) != NULL;
    return ok;
}

int draft_model_open(drafter **out, const nn_device *device, const nn_backend *backend, const nn_model *m,
                     const draft_model_shape *shape, err *e) {
    int rc = draft_model_check(m, e);
    *out = NULL;
    if (rc < 0) return rc;
    model_drafter *d = calloc(1, sizeof *d);
    if (!d) return err_set_nomem(e);
    d->base =
        (drafter){ .name = "draft", .costs = true, .begin = model_begin, .propose = model_propose, .free = model_free };
    rc = draft_exec_open(&d->x, device, backend, m, NULL, shape, e);
    if (rc == 0 && !take_places(d)) rc = err_set_nomem(e);
    if (rc < 0) {
        model_free(&d->base);
        return rc;
    }
    *out = &d->base;
    return 0;
}
