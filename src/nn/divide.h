/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tape for two executors: which ops are the second one's (side[op] is 1).
 *
 * A layer's state lies on one side, with all ops that touch it: layers that read what an earlier one stored (Gemma 3n,
 * Gemma 4) are where that one is.
 */
#ifndef NN_DIVIDE_H
#define NN_DIVIDE_H

#include "base/err.h"
#include "nn/tape.h"

#include <stdint.h>

/* The second side has the last n layers and all that follows; fewer where the tape cannot be cut there. The cut is where
 * least crosses it. ERR_UNSUPPORTED: there is none. */
int nn_divide_layers(const nn_tape *t, int n, uint8_t *side, err *e);

/* The first side has the table of embeddings and the experts of all mixtures but the last n; the second one everything else.
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
