/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tape in two parts, for two executors: where it may be cut, and what crosses the border.
 *
 * A layer's state lies on one side, so no op behind a cut touches the state of a layer that an op in front of it touches.
 * Layers that read what an earlier layer stored (Gemma 3n, Gemma 4) are on that layer's side.
 */
#ifndef NN_CUT_H
#define NN_CUT_H

#include "base/arena.h"
#include "base/err.h"
#include "nn/tape.h"

typedef struct nn_cut {
    int     at;    /* the first op of the second part */
    int     layer; /* the first layer of the second part */
    nn_buf *cross; /* [n_cross]: made in front of it, read behind it or fetched at the end */
    int     n_cross;
} nn_cut;

/* In front of this layer, or of the first one behind it where the tape can be cut; there the least crosses. ERR_UNSUPPORTED:
 * there is none. */
int nn_cut_before_layer(nn_cut *out, const nn_tape *t, int layer, arena *mem, err *e);

#endif
