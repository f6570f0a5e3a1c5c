/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drafts by a smaller model of the same vocabulary.
 *
 * It has an executor of its own on the engine's device. Every seat that it serves owns a fixed range of pages, as many as
 * a full sequence needs, and remembers which tokens stand in them: what was drafted and refused is overwritten, and what
 * is new since is evaluated together with the first token of the next draft. A prompt that it has not read yet is read in
 * pieces of a step's size, one per draft that is asked for, so that nobody waits long for it.
 *
 * The draft of a request that draws at random is drawn with the request's own settings and its own random numbers: where
 * both models think alike, the same number picks the same token. Mirostat draws from what came before and is not
 * followed; such drafts are the likeliest tokens.
 */
#include "backend/backend.h"
#include "base/clock.h"
#include "engine/drafter.h"

#include <stdlib.h>
#include <string.h>

enum { FEW_ROWS = DRAFT_MOST + 1 }; /* per sequence: what a draft that was refused leaves to be evaluated again */

typedef struct place {
    int32_t *seen; /* [n_ctx]: the token at each position */
    int      n;    /* positions that are evaluated */
} place;

typedef struct model_drafter {
    drafter        base;
    nn_exec       *exec;
    sampling_work *work;
    place         *places;
    int            n_places, n_ctx, max_pages, step_tokens;
    int64_t        n_vocab, n_rows; /* n_vocab: of the engine's model; n_rows: of this one's logits */
    float         *row;
    int32_t       *token, *pos, *seq_of, *q_start, *kv_len, *slot, *out_rows, *pages, *asked;
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
    int    end = a->seq.n_tokens + a->n, from = known_of(p, a), s = b->n_seq;
    int    n = end - from < d->step_tokens - b->n_tok ? end - from : d->step_tokens - b->n_tok;
    if (n <= 0) return false;
    for (int i = 0; i < n; i++, b->n_tok++) {
        d->token[b->n_tok] = p->seen[from + i] = token_of(a, from + i);
        d->pos[b->n_tok] = from + i;
        d->seq_of[b->n_tok] = s;
    }
    p->n = from + n;
    d->q_start[++b->n_seq] = b->n_tok;
    d->kv_len[s] = p->n;
    d->slot[s] = 0;
    for (int i = 0; i < d->max_pages; i++) d->pages[s * d->max_pages + i] = a->seq.seat * d->max_pages + i;
    if (p->n < end) return false;
    d->out_rows[b->n_out++] = b->n_tok - 1;
    return true;
}

static int32_t likeliest(const float *row, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++) {
        if (row[i] > row[best]) best = i;
    }
    return (int32_t)best;
}

/* The token that the request would draw from this row; -1: none. */
static int32_t pick(model_drafter *d, const draft_ask *a, int out_row) {
    sampling_result  got;
    sampling_request q = { .logits = d->row, .position = (uint64_t)(a->seq.n_tokens + a->n) };
    if (d->exec->backend->fetch(d->exec, NN_FETCH_LOGITS, out_row, 1, d->row, NULL) < 0) return -1;
    const sampling_params *p = a->seq.sampler ? sampler_params(a->seq.sampler) : NULL;
    for (int64_t i = d->n_rows; i < d->n_vocab; i++) d->row[i] = d->row[0] - 1e9f; /* tokens that it does not have */
    if (!p || p->temperature <= 0 || p->mirostat) return likeliest(d->row, d->n_vocab);
    return sampler_pick(a->seq.sampler, d->work, &q, &got, NULL) < 0 ? -1 : got.token;
}

static void measure(model_drafter *d, double seconds, int n) {
    double each = seconds / n, *known = &d->base.guess_s;
    *known = *known > 0 ? *known + 0.2 * ((each < 2 * *known ? each : 2 * *known) - *known) : each;
}

/* One step for all that want more. False: nobody does. */
static bool step(model_drafter *d, draft_ask *asks, int n_asks) {
    nn_batch b = { .token = d->token,
                   .pos = d->pos,
                   .seq_of = d->seq_of,
                   .q_start = d->q_start,
                   .kv_len = d->kv_len,
                   .pages_stride = d->max_pages,
                   .state_slot = d->slot,
                   .out_rows = d->out_rows };
    int      n = 0;
    for (int k = 0; k < d->exec->groups.n; k++) b.pages[k] = d->pages;
    d->q_start[0] = 0;
    for (int i = 0; i < n_asks; i++) {
        if (asks[i].seq.seat >= d->n_places || asks[i].n >= asks[i].most) continue;
        if (feed(d, &b, &asks[i])) d->asked[n++] = i;
    }
    if (b.n_tok == 0) return false;
    double begin = clock_s();
    if (nn_exec_step(d->exec, &b, NULL) < 0) {
        for (int i = 0; i < n_asks; i++) {
            if (asks[i].seq.seat < d->n_places) d->places[asks[i].seq.seat].n = 0;
        }
        return false;
    }
    /* A step that reads a prompt, too, says nothing about guessing. */
    if (b.n_tok <= FEW_ROWS * b.n_seq) measure(d, clock_s() - begin, b.n_seq);
    bool more = false;
    for (int k = 0; k < n; k++) {
        draft_ask *a = &asks[d->asked[k]];
        int32_t    t = pick(d, a, k);
        if (t < 0 || t >= d->n_vocab) {
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
    if (s->seat < d->n_places) d->places[s->seat].n = 0;
}

static void model_free(drafter *base) {
    model_drafter *d = (model_drafter *)base;
    for (int i = 0; d->places && i < d->n_places; i++) free(d->places[i].seen);
    nn_exec_free(d->exec);
    sampling_work_free(d->work);
    free(d->places);
    free(d->row);
    free(d->token);
    free(d->pos);
    free(d->seq_of);
    free(d->q_start);
    free(d->kv_len);
    free(d->slot);
    free(d->out_rows);
    free(d->pages);
    free(d->asked);
    free(d);
}

static bool take_arrays(model_drafter *d, size_t seats) {
    size_t tokens = (size_t)d->step_tokens;
    bool   ok = (d->places = calloc((size_t)d->n_places, sizeof *d->places)) != NULL;
    for (int i = 0; ok && i < d->n_places; i++)
        ok = (d->places[i].seen = calloc((size_t)d->n_ctx, sizeof *d->places[i].seen)) != NULL;
    ok = ok && (d->row = calloc((size_t)(d->n_vocab > d->n_rows ? d->n_vocab : d->n_rows), sizeof *d->row));
    ok = ok && (d->token = calloc(tokens, sizeof *d->token)) && (d->pos = calloc(tokens, sizeof *d->pos));
    ok = ok && (d->seq_of = calloc(tokens, sizeof *d->seq_of)) && (d->asked = calloc(seats, sizeof *d->asked));
    ok = ok && (d->q_start = calloc(seats + 1, sizeof *d->q_start)) && (d->kv_len = calloc(seats, sizeof *d->kv_len));
    ok = ok && (d->slot = calloc(seats, sizeof *d->slot)) && (d->out_rows = calloc(seats, sizeof *d->out_rows));
    return ok && (d->pages = calloc(seats * (size_t)d->max_pages, sizeof *d->pages));
}

nn_exec_options draft_model_options(const draft_model_shape *s) {
    int max_pages = (s->n_ctx + s->page_tokens - 1) / s->page_tokens;
    return (nn_exec_options){ .limits = { .max_tokens = s->step_tokens,
                                          .max_seqs = s->n_places,
                                          .max_outputs = s->n_places,
                                          .page_tokens = s->page_tokens,
                                          .max_pages = max_pages,
                                          .n_pages = s->n_places * max_pages,
                                          .n_slots = 1 },
                              .k_type = s->k_type,
                              .v_type = s->v_type,
                              .precise_layers = s->precise_layers,
                              .n_threads = s->n_threads,
                              .cpu = s->cpu };
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

int draft_model_open(drafter **out, const nn_device *device, const nn_backend *backend, const nn_model *m,
                     const draft_model_shape *shape, err *e) {
    nn_exec_options o = draft_model_options(shape);
    int             rc = draft_model_check(m, e);
    *out = NULL;
    if (rc < 0) return rc;
    model_drafter *d = calloc(1, sizeof *d);
    if (!d) return err_set_nomem(e);
    d->base =
        (drafter){ .name = "draft", .costs = true, .begin = model_begin, .propose = model_propose, .free = model_free };
    d->n_places = shape->n_places;
    d->n_ctx = shape->n_ctx;
    d->max_pages = o.limits.max_pages;
    d->step_tokens = shape->step_tokens;
    d->n_vocab = shape->n_vocab;
    d->n_rows = m->tape->bufs[m->tape->logits].width;
    if (!take_arrays(d, (size_t)shape->n_places)) rc = err_set_nomem(e);
    if (rc == 0) rc = sampling_work_open(&d->work, (size_t)d->n_vocab, e);
    if (rc == 0) rc = backend->open(&d->exec, device, m, &o, e);
    if (rc < 0) {
        model_free(&d->base);
        return rc;
    }
    *out = &d->base;
    return 0;
}
