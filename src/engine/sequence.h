/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the engine: a request as it was submitted, and a sequence for each of its choices.
 *
 * A sequence has tokens (prompt, then what was generated), of which the first n_evaluated are computed. What is left to
 * evaluate is a prompt, a single sampled token, both after it had to give way, or a few sampled ones where a fixed state
 * was taken back (speculate.h); there are no further states. Tables, slot and seat belong to it while it is running.
 * Everything here is owned by the engine thread once it was submitted.
 */
#ifndef ENGINE_SEQUENCE_H
#define ENGINE_SEQUENCE_H

#include "engine/cache.h"
#include "engine/engine.h"
#include "engine/fair.h"
#include "engine/masks.h"
#include "engine/speculate.h"
#include "sampling/stop.h"

typedef struct request {
    uint64_t       id;
    engine_request r; /* arrays are copies; tokens, rows, marks and stop strings live in mem */
    int64_t        input_size;
    arena          mem;
    int            n_open; /* choices that have not ended */
} request;

typedef struct sequence {
    struct sequence *next; /* in the waiting list */
    request         *request;
    int              choice;
    uint64_t         order; /* of arrival; kept when it has to give way */
    int32_t         *tokens;
    kv_text          text; /* the tokens, and what else decides what is computed from them */
    kv_key          *keys; /* of supplied rows, n_ctx; NULL: there are none */
    int              n_tokens, n_prompt, n_evaluated, n_ctx;
    int              n_charged;                  /* tokens that its client has paid for */
    int              n_scored;                   /* tokens of the prompt whose log-probability was given out */
    bool             cancelled, paused, counted; /* counted: the prompt's reuse is in the usage */
    bool             decodes;                    /* all that was known is evaluated; what is left was picked since */
    fair_client     *client;
    cache_tables     tables;
    int32_t          slot;      /* -1: waiting */
    int32_t          twin;      /* during a step with a draft: its fixed state before it; -1: none */
    int              seat;      /* among the running ones, where drafters know it; -1: none */
    sequence_draft   draft;     /* what stands behind the tokens in the next step; never part of them */
    int              adapter;   /* while running: the number of its adapter set on the device; 0: none (adapters.c) */
    bool             whole;     /* computed in one step, and nothing of it is kept */
    bool             in_step;   /* has a share of the step under construction */
    int              held_back; /* steps for which nothing goes ahead on its account (ahead.c) */
    struct sequence *front;     /* while waiting: the running one that computes its beginning; NULL: none (front.c) */
    int              parts_at;  /* and how long that beginning is */
    struct sequence *lead;      /* while running: the most important one of itself and those behind it */
    sampler         *sampler;   /* NULL: an embedding */
    double          *pooled;    /* an embedding: sum or largest of the rows so far, or the last one */
    int              n_pooled;  /* rows of it */
    mask_work        guide;
    err              error; /* why it failed */
    stop_matcher    *stop;  /* NULL: none */
    tok_stream       stream;
    str              piece, out; /* text on its way */
    engine_usage     usage;
    double           submitted_at, started_at, prompt_done_at;
} sequence;

/* What all sequences of an engine have in common. */
typedef struct sequence_shape {
    const cache *cache;
    const tok   *tok;
    int          n_ctx;
    int64_t      n_vocab, n_hidden;
    bool         whole;
    bool         drafts; /* somebody may draft */
} sequence_shape;

/* The first choice has the request's guide, the others have clones of it. While choice 0 is not submitted, take its
 * guide away (guide.guide = NULL) before freeing it. */
int  sequence_open(sequence **out, request *q, int choice, const sequence_shape *shape, err *e);
void sequence_free(sequence *s); /* its pages must be released; accepts NULL */

int  request_keep(request **out, const engine_request *r, int64_t input_size, err *e);
void request_drop(request *q);

static inline bool sequence_embeds(const sequence *s) { return s->request->r.pooling != ENGINE_POOL_NONE; }

/* Whether it may use what others computed, and leave something. A mean and a score need the rows of all positions, CLS
 * the first. */
static inline bool sequence_caches(const sequence *s) {
    engine_pooling p = s->request->r.pooling;
    bool           some = p == ENGINE_POOL_NONE || p == ENGINE_POOL_LAST;
    if (s->request->r.score_prompt) return false;
    return !s->whole && (!s->request->r.no_cache || s->request->r.n_choices > 1) && some;
}

/* Spans that see themselves whole are computed in one step and used again as a whole. This is `position` if a sequence
 * may be cut in front of it, else where the span around it begins. */
int sequence_cut(const sequence *s, int position);
/* Where the span that begins at a position ends; the position itself where none does. What is left of a prompt that sees
 * itself whole is such a span, wherever it begins. */
int sequence_whole(const sequence *s, int position);

/* The supplied embedding at a position; NULL: there is a token. */
const float *sequence_embd(const sequence *s, int position);

/* Where a position stands on each axis: time, row, column. They differ inside of grids, and behind one they are not the
 * position itself. */
enum { ENGINE_AXES = 4, ENGINE_AXES_PLAIN = 3 /* of grids that are not counted */ };
bool sequence_has_grids(const sequence *s);
void sequence_axes(const sequence *s, int position, int32_t out[ENGINE_AXES]);

/* The rows of a prompt that is scored all have logits. */
static inline bool sequence_scores(const sequence *s) {
    return s->request->r.score_prompt && s->n_evaluated < s->n_prompt;
}

static inline int sequence_left(const sequence *s) { return s->n_tokens - s->n_evaluated; }
static inline int sequence_generated(const sequence *s) { return s->n_tokens - s->n_prompt; }

#endif
