/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where activations live, and where workers must meet.
 *
 * One arena holds all buffers of a tape; two buffers share bytes when no op needs both. Offsets are computed once for
 * the largest batch, so nothing moves and nothing is allocated in a step.
 *
 * Barriers follow from a scan: a work item needs one before it when its reads meet a write, or its writes meet a read
 * or write, of any item since the last barrier. Items say what they touch as spans of bytes in one address space; state
 * and scratch get addresses of their own behind the arena.
 */
#ifndef NN_PLAN_H
#define NN_PLAN_H

#include "base/err.h"
#include "nn/batch.h"
#include "nn/model.h"

typedef struct nn_plan {
    size_t *offset; /* [n_bufs] bytes from the arena's start */
    size_t  bytes;  /* of the arena */
} nn_plan;

/* waves: the products of a mixture, with what stands between them, run several times over different rows of its buffers
 * (src/backend/cpu/wave.c), so that what any of them touches lives as long as all of them. */
int nn_plan_arena(nn_plan *p, const nn_tape *t, const nn_limits *l, bool waves, arena *mem, err *e);

/* Rows of the largest batch. */
static inline size_t nn_rows_max(const nn_limits *l, const nn_buf_info *b) {
    int outputs = b->rows == NN_ROWS_LOGITS && l->max_logits ? l->max_logits : l->max_outputs;
    return (size_t)(b->rows == NN_ROWS_TOKENS ? l->max_tokens : outputs) * (size_t)b->mult;
}

typedef struct nn_span {
    size_t lo, hi; /* [lo, hi) */
    bool   write;
} nn_span;

enum { NN_MAX_HAZARDS = 256 };
typedef struct nn_hazards {
    nn_span since[NN_MAX_HAZARDS]; /* touched since the last barrier */
    int     n;
} nn_hazards;

/* True when a barrier must stand before an item that touches these spans; then the scan begins anew behind it. */
bool nn_hazards_next(nn_hazards *h, const nn_span *spans, int n);

/* Page tables that the layers of a model need. */
int nn_groups_make(nn_groups *g, const nn_model *m, arena *mem, err *e);
/* Whether inputs must come whole: a layer sees later positions, too. */
bool nn_model_whole(const nn_model *m);
/* Floats of one layer's fixed state: the convolution's inputs, then the recurrent matrices. */
size_t nn_state_conv_floats(const nn_state *s);
size_t nn_state_fixed_floats(const nn_state *s);

#endif
