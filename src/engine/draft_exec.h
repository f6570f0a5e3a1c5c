/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What drafters that compute have in common: an executor of their own on the engine's device, in which every seat that they
 * serve owns a fixed range of pages, as many as a full sequence needs; a batch; and how a token is picked from a row.
 *
 * The draft of a request that draws at random is drawn with the request's own settings and its own random numbers: where
 * both models think alike, the same number picks the same token. Mirostat draws from what came before and is not
 * followed; such drafts are the likeliest tokens.
 */
#ifndef ENGINE_DRAFT_EXEC_H
#define ENGINE_DRAFT_EXEC_H

#include "base/clock.h"
#include "engine/drafter.h"

typedef struct draft_exec {
    nn_exec       *exec;
    bool           gpu;
    sampling_work *work;
    int            n_places, n_ctx, max_pages, step_tokens;
    int64_t        n_vocab, n_rows; /* n_vocab: of the engine's model; n_rows: of this one's logits */
    const int32_t *ids;             /* the engine's token that each logit is for; NULL: its own number */
    float         *row, *said;      /* of the engine's vocabulary; of this one's where they are numbered differently */
    int32_t       *token, *pos, *seq_of, *q_start, *kv_len, *slot, *out_rows, *pages;
} draft_exec;

int  draft_exec_open(draft_exec *x, const nn_device *device, const nn_backend *backend, const nn_model *m,
                     const int32_t *ids, const draft_model_shape *shape, err *e);
void draft_exec_close(draft_exec *x); /* accepts a zeroed or half-opened one */

/* An empty batch over its arrays. */
nn_batch draft_exec_batch(draft_exec *x);
/* Adds n rows of a seat, the first at this position of its pages; out: the last one's output is wanted. The caller has filled
 * the rows' tokens. */
void draft_exec_add(draft_exec *x, nn_batch *b, int seat, int from, int n, bool out);

/* The token that the request would draw from an output row behind the draft so far; -1: none, or it is too unlikely. */
int32_t draft_exec_pick(draft_exec *x, const draft_ask *a, int out_row);

/* The clock of what steps cost, to compare them. On the CPU the calling thread takes part in every step, and what it
 * computes is not made longer by other programs; a GPU is waited for. */
static inline double draft_clock(bool gpu) { return gpu ? clock_s() : clock_thread_s(); }

/* A running mean of seconds per token; single slow ones count little. */
void draft_measure(double *known, double seconds, int n);

#endif
