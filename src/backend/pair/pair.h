/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model on two devices, for one that is larger than a GPU's memory: its last layers and the head on the GPU, the table of
 * embeddings and the first layers on the CPU.
 *
 * Two executors have a part of the tape each. A step runs the first, carries what crosses over, and starts the second.
 * Pages and slots have a part on either side: in host memory the CPU's bytes stand first. The device's id is that of the
 * other device and a number of layers, "cuda:0/20"; a model with fewer layers than that (one that drafts) is on the
 * other device as a whole.
 */
#ifndef BACKEND_PAIR_H
#define BACKEND_PAIR_H

#include "nn/backend.h"
#include "nn/cut.h"

enum { PAIR_CPU, PAIR_OTHER, PAIR_PARTS, PAIR_TICKETS = 256 };

/* Work that was started on both sides; a ticket of 0 means none there. */
typedef struct pair_ticket {
    nn_ticket mine, of[PAIR_PARTS];
} pair_ticket;

typedef struct pair_exec {
    nn_exec               x;
    arena                 mem;
    nn_exec              *part[PAIR_PARTS]; /* the first is NULL where the other device has everything */
    nn_cut                cut;
    nn_rows              *entry;      /* [cut.n_cross]: what is carried over */
    float               **carried;    /* and where it lies meanwhile */
    nn_batch              batch;      /* of begin */
    int                   ran;        /* op by op: behind the last one */
    nn_ticket             last, step; /* given out; of the step under way, 0: none */
    pair_ticket           tickets[PAIR_TICKETS];
    nn_move              *moves; /* those of one side, while they are started */
    int                   cap_moves;
    const nn_adapter_set *sets[NN_MAX_SETS + 1];
} pair_exec;

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
