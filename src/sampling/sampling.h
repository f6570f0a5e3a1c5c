/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From one row of logits to one token.
 *
 * The chain is data: a list of stages run in order over a candidate set. Every stage is a plain function; nothing here
 * knows a model or a tokenizer. The default order is
 *
 *     penalties -> dry -> top_n_sigma -> top_k -> typical -> top_p -> min_p -> xtc -> temperature -> pick
 *
 * Masks and logit bias come before all stages. Random numbers come from a counter-based generator keyed by the
 * request's seed and the token's position, so a draw depends on nothing else. Ties are broken by the lower token id.
 * A row with a NaN is treated as if that token were impossible. params/sampling.h has the parameters and says exactly
 * what a pick is.
 *
 * Picking changes nothing: the same row at the same place gives the same result, however often it is asked for. What a
 * sampler remembers (history and mirostat's mu) changes when a token is accepted, and taking accepted tokens back
 * restores it wholly: afterwards the sampler is the one that never saw them.
 */
#ifndef SAMPLING_SAMPLING_H
#define SAMPLING_SAMPLING_H

#include "base/err.h"
#include "params/sampling.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Scratch memory for rows of n_vocab logits; one per thread that samples. */
typedef struct sampling_work sampling_work;
int                          sampling_work_open(sampling_work **out, size_t n_vocab, err *e);
void                         sampling_work_free(sampling_work *w);

enum { SAMPLER_MAX_ROLLBACK = 256 }; /* tokens: far more than anybody drafts, and 2 KiB of a sequence */

/* What one sequence remembers: its history (seeded with the prompt) and mirostat's state. */
typedef struct sampler sampler;
/* Copies the parameters with their arrays. */
int  sampler_open(sampler **out, const sampling_params *p, size_t max_history, err *e);
void sampler_free(sampler *s);

/* Appends to the history a token that this sampler did not pick: of the prompt, or one that a device picked. Mirostat's
 * mu stays. Never allocates; beyond max_history the oldest tokens are forgotten. */
void sampler_accept(sampler *s, int32_t token);
/* The same for what sampler_pick gave; mirostat learns from it. */
void sampler_accept_pick(sampler *s, const sampling_result *picked);
/* Takes back the last n accepted tokens (a rejected draft): n in one call or several, at most SAMPLER_MAX_ROLLBACK
 * behind the furthest place reached, also when the window of the history has slid since. Never allocates. False: more
 * than that, or more than were accepted; nothing changed. */
bool sampler_rollback(sampler *s, size_t n);

/* For a device that samples (sampling_row): the sampler's own copy of the parameters, and how often each token stands
 * in the penalties' window. Returns the number of distinct tokens (of w's vocabulary); 0 where nothing is penalized.
 * out: room for the smaller of max_history and the vocabulary. */
const sampling_params *sampler_params(const sampler *s);
size_t                 sampler_counts(const sampler *s, sampling_work *w, sampling_count *out);

typedef struct sampling_request {
    float          *logits;   /* n_vocab of them; destroyed */
    const uint32_t *mask;     /* NULL, or one bit per token, lowest first; a 0 forbids */
    uint64_t        position; /* of the token to be picked: keys the random numbers */
    /* Ask for log-probabilities: of the picked token and of the n_top most likely ones. */
    bool              want_logprob;
    int               n_top;
    sampling_logprob *top; /* room for n_top */
} sampling_request;

/* Picks a token; ERR_ARG when the row allows none. Accepts nothing and never allocates. */
int sampler_pick(const sampler *s, sampling_work *w, const sampling_request *r, sampling_result *out, err *e);

#endif
