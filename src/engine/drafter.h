/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A drafter guesses how sequences go on. What it says never changes an answer: the engine evaluates a draft beside the
 * token before it, picks from every row as always and goes on while what was picked is what was drafted.
 *
 * A drafter is called by the engine's thread alone, between steps, and allocates nothing once it is open. A running
 * sequence has a seat, a small number of its own, under which a drafter may keep what it knows of it.
 */
#ifndef ENGINE_DRAFTER_H
#define ENGINE_DRAFTER_H

#include "base/err.h"
#include "nn/backend.h"
#include "nn/next.h"
#include "sampling/sampling.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    DRAFT_MOST = 32,  /* tokens of one draft */
    DRAFT_GRADES = 4, /* a drafter may tell good drafts from poor ones; each grade has its own record of success */
};

/* A running sequence. */
typedef struct draft_seq {
    int            seat;
    const int32_t *tokens; /* prompt and answer; what is here stays */
    int            n_tokens, n_prompt;
    const sampler *sampler; /* how its tokens are picked */
    const int32_t *hint;    /* what the client expects as the answer; NULL: nothing */
    int            n_hint;
} draft_seq;

/* Asks for a draft: n tokens are there already and hold (a guide allows nothing else), more are put behind them. */
typedef struct draft_ask {
    draft_seq seq;
    int32_t  *draft;
    int       n, most;
    float     p_min; /* one that computes stops at a token that it finds less likely than this */
    int       grade; /* set by propose: 0 is the poorest */
} draft_ask;

typedef struct drafter drafter;
struct drafter {
    const char *name;
    bool        costs;   /* guessing takes time that has to be weighed: depth is chosen first, then it is asked */
    double      guess_s; /* then: seconds per drafted token, as it measured lately; 0: not known */
    int reads; /* how many hidden states before the newest token it wants to see (of engine_options.next); 0: none */
    void (*begin)(drafter *d, const draft_seq *s); /* a sequence takes a seat. NULL: nothing to do */
    /* The model's hidden states of n positions of its text, in order; a position that comes again counts anew, and so do
     * all behind it. NULL: it reads none. */
    void (*see)(drafter *d, const draft_seq *s, int position, int n, const float *rows);
    void (*end)(drafter *d, const draft_seq *s); /* and leaves it, with what became of it. NULL: likewise */
    void (*propose)(drafter *d, draft_ask *asks, int n_asks); /* each of another sequence */
    void (*free)(drafter *d);
};

/* Copies what followed the last time that the sequence's newest tokens stood somewhere: in itself, in what the client
 * expects, or in an earlier answer of this engine. */
int    draft_lookup_open(drafter **out, int n_seats, int n_ctx, err *e);
size_t draft_lookup_bytes(int n_seats, int n_ctx);

/* What a drafter that computes is given. */
typedef struct draft_model_shape {
    int        n_places; /* sequences that it serves: those in the first seats */
    int        n_ctx, page_tokens, step_tokens;
    int64_t    n_vocab; /* of the engine's model */
    nn_kv_type k_type, v_type;
    int        precise_layers;
    int        n_threads;
    unsigned   cpu;
} draft_model_shape;
nn_exec_options draft_model_options(const draft_model_shape *s); /* for measuring */

/* Asks a smaller model. */
int draft_model_check(const nn_model *m, err *e); /* whether it can draft at all */
int draft_model_open(drafter **out, const nn_device *device, const nn_backend *backend, const nn_model *m,
                     const draft_model_shape *shape, err *e);

/* Asks a head that goes on from the model's hidden states. */
draft_model_shape draft_next_shape(draft_model_shape s);                             /* what it makes of the shape */
size_t            draft_next_bytes(const nn_next *head, const draft_model_shape *s); /* beside the executor */
int draft_next_open(drafter **out, const nn_device *device, const nn_backend *backend, const nn_next *head,
                    const draft_model_shape *shape, err *e);

#endif
