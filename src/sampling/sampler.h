/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sampler is made of; for sampler.c and for tests that compare two of them.
 *
 * The history is one array whose newest part is the window. When it is full, the newest max_history +
 * SAMPLER_MAX_ROLLBACK tokens move to its beginning: a window that slid can slide back. Mirostat's mu before each of
 * the last SAMPLER_MAX_ROLLBACK accepted tokens is kept in a ring; it cannot be computed again, because the rows are
 * gone.
 */
#ifndef SAMPLING_SAMPLER_H
#define SAMPLING_SAMPLER_H

#include "sampling/sampling.h"

struct sampler {
    sampling_params p;
    sampling_bias  *bias;
    int32_t        *breakers;
    int32_t        *history; /* newest last */
    int32_t        *z;       /* max_history of scratch for dry: not part of what is remembered */
    size_t          n_history, cap_history, max_history;
    double          mu;                              /* mirostat's */
    double          mu_before[SAMPLER_MAX_ROLLBACK]; /* token number i (of all accepted): at i % SAMPLER_MAX_ROLLBACK */
    uint64_t        n_accepted;
    size_t          n_undo; /* how many can be taken back */
};

/* The newest tokens, at most last_n of them (-1: the whole window), in order. */
size_t sampler_recent(const sampler *s, int last_n, const int32_t **out);

#endif
