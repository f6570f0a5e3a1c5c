/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model on two devices, for one that is larger than a GPU's memory. Two executors have a part of the tape's ops each:
 *
 *     cuda:0/20          the last 20 layers and the head are on cuda:0, the table of embeddings and the first layers on the CPU
 *     cuda:0/experts:8   experts are on the CPU but for those of the last 8 mixtures, and the table; all else is on cuda:0
 *
 * A model with fewer layers than that (one that drafts, say) is on the other device as a whole.
 *
 * Ops of one side that follow each other are a segment. A step goes from segment to segment and carries over what the next
 * one reads and its side does not have. Pages and slots have a part on either side: in host memory the CPU's bytes stand
 * first.
 */
#ifndef BACKEND_PAIR_H
#define BACKEND_PAIR_H

#include "nn/backend.h"

enum { PAIR_CPU, PAIR_OTHER, PAIR_SIDES, PAIR_TICKETS = 256 };

/* What an id says. */
typedef struct pair_place {
    const nn_backend *backend[PAIR_SIDES];
    nn_device         device[PAIR_SIDES];
    int               n;
    bool              experts; /* n counts mixtures, not layers */
} pair_place;

typedef struct pair_segment {
    int     side, first, end; /* ops */
    nn_buf *needs;            /* [n_needs]: what the other side has made for it */
    int     n_needs;
} pair_segment;

/* Work that was started on both sides; a ticket of 0 means none there. */
typedef struct pair_ticket {
    nn_ticket mine, of[PAIR_SIDES];
} pair_ticket;

typedef struct pair_exec {
    nn_exec       x;
    arena         mem;
    nn_exec      *part[PAIR_SIDES]; /* NULL where all ops are the other's */
    uint8_t      *side;             /* [n_ops] */
    bool         *ops[PAIR_SIDES];  /* [n_ops]: the same for each of them */
    pair_segment *segments;
    int           n_segments;
    float        *carried; /* what is on its way */
    nn_rows      *entry;   /* for the last segment, where it is started and not waited for */
    bool          starts;  /* it is: its side has no other one */

    nn_batch              batch;      /* of begin */
    int                   ran;        /* op by op: behind the last one */
    nn_ticket             last, step; /* given out; of the step under way, 0: none */
    pair_ticket           tickets[PAIR_TICKETS];
    nn_move              *moves; /* those of one side, while they are started */
    int                   cap_moves;
    const nn_adapter_set *sets[NN_MAX_SETS + 1];
} pair_exec;

int    pair_plan(pair_exec *x, const pair_place *p, err *e); /* sides, segments and what they need */
size_t pair_carried_bytes(const pair_exec *x);               /* the most that is on its way at once */
/* Which side has what was made of a buffer by the ops in front of `end`. */
int pair_side_of(const pair_exec *x, nn_buf b, int end);

int pair_submit(nn_exec *base, const nn_batch *b, nn_ticket *step, err *e);
int pair_wait(nn_exec *base, nn_ticket ticket, err *e);
int pair_fetch(nn_exec *base, nn_fetch_what what, int64_t first, int64_t n, float *to, err *e);
int pair_sample(nn_exec *base, const int32_t *out_rows, const sampling_row *rows, int n, sampling_result *out, err *e);
int pair_move(nn_exec *base, const nn_move *moves, int n, nn_ticket *ticket, err *e);
int pair_begin(nn_exec *base, const nn_batch *b, err *e);
int pair_run(nn_exec *base, int first_op, int end_op, err *e);
int pair_read(nn_exec *base, nn_buf b, float *to, err *e);
int pair_write(nn_exec *base, nn_buf b, const float *from, err *e);

#endif
