/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tape for several executors: which one has each op.
 *
 * A layer's state lies with one of them, with all ops that touch it: layers that read what an earlier one stored (Gemma 3n,
 * Gemma 4) are where that one is.
 */
#ifndef NN_DIVIDE_H
#define NN_DIVIDE_H

#include "base/err.h"
#include "nn/tape.h"

#include <stdint.h>

/* The last n_parts executors have n[i] layers each, in their order, and the last one all that follows; the one in front of
 * them, 0, has the rest. They have fewer where the tape cannot be cut there: the cut is where least crosses it.
 * ERR_UNSUPPORTED: there is none. */
int nn_divide_layers(const nn_tape *t, const int *n, int n_parts, uint8_t *side, err *e);

/* Executor 0 has the table of embeddings and the experts of all mixtures but the last n; 1 everything else.
 * ERR_UNSUPPORTED: this model has no experts. */
int nn_divide_experts(const nn_tape *t, int n, uint8_t *side, err *e);

int nn_mixtures(const nn_tape *t); /* layers with experts */

/* The ops behind a choice of experts, from the first product with them to their sum. */
typedef struct nn_mixture {
    int first, sum;
    int last; /* the last product */
    int n_used;
} nn_mixture;
/* The first mixture at or behind an op; false: there is none. */
bool nn_mixture_next(const nn_tape *t, int from, nn_mixture *out);

#endif
