/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moving pages beside the steps, on a stream of their own.
 *
 * A move waits for the steps that were started before it. A step waits for a move only where the two meet: it writes a page
 * that the move still reads, or touches one that the move still writes. So what goes to host memory to make room goes while
 * the next step computes.
 *
 * Memory of the host that was not allocated for it is reached by a detour for which a copy stops the caller: bytes pass a
 * pinned ring instead. On the way in they are put there when a move starts, on the way out they are taken from there when its
 * ticket is waited for, or when the ring is needed for others.
 */
#ifndef BACKEND_CUDA_MOVES_H
#define BACKEND_CUDA_MOVES_H

#include "kernels/cuda/device.h"
#include "nn/backend.h"

enum { CUDA_MOVE_EVENTS = 64, CUDA_RING_BYTES = 32 << 20 };

/* Bytes in the ring that belong somewhere in host memory. */
typedef struct cuda_arrival {
    nn_ticket ticket;
    void     *to; /* NULL: nothing to be done but to wait */
    size_t    at, bytes;
} cuda_arrival;

typedef struct cuda_moves {
    cuda_stream   stream;
    cuda_event    events[CUDA_MOVE_EVENTS]; /* behind the pages of ticket t: t % CUDA_MOVE_EVENTS */
    nn_ticket     of_event[CUDA_MOVE_EVENTS];
    cuda_event    mark;             /* of the steps' stream: what a move waits for */
    uint8_t      *ring;             /* pinned; NULL: not needed yet */
    size_t        ring_bytes, head; /* where the next bytes go */
    cuda_arrival *list;             /* in the order of their places in the ring, the oldest first */
    int           n, first, cap;
    /* The last move that touches each page, by group, and whether it writes there. */
    nn_ticket *touched[NN_MAX_GROUPS];
    bool      *written[NN_MAX_GROUPS];
    nn_ticket  last, done; /* tickets of moves: the newest, and the newest that is known to be over */
} cuda_moves;

#endif
