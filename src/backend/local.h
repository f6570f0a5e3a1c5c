/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What backends share whose buffers lie in this process's memory: one activation arena, the batch under way, rows
 * copied out of it. Such a backend finishes a step inside submit and a move inside move; wait only checks the ticket.
 */
#ifndef BACKEND_LOCAL_H
#define BACKEND_LOCAL_H

#include "nn/backend.h"
#include "nn/plan.h"

/* A backend's own struct begins with it. */
typedef struct local_exec {
    nn_exec   x;
    nn_plan   plan;
    uint8_t  *arena;   /* activations, 64-byte aligned */
    arena     mem;     /* tables */
    nn_batch  batch;   /* of the step under way, or the last one */
    nn_ticket last;    /* ticket that was given out */
    bool      planned; /* memory is counted, not taken: answers questions and runs nothing */
} local_exec;

/* l->planned is set before. The arena's bytes are the first of memory.heap_bytes. */
int  local_init(local_exec *l, const nn_backend *backend, const nn_device *d, const nn_model *m,
                const nn_exec_options *o, err *e);
void local_deinit(local_exec *l);

static inline float *local_buf(const local_exec *l, nn_buf b) {
    return (float *)(void *)(l->arena + l->plan.offset[b]);
}

static inline int64_t local_rows(const local_exec *l, nn_buf b) {
    return nn_batch_rows(&l->batch, l->x.model->tape, b);
}

/* The backend's functions of these names; submit is begin and run. */
int local_submit(nn_exec *x, const nn_batch *b, nn_ticket *step, err *e);
int local_wait(nn_exec *x, nn_ticket ticket, err *e);
int local_fetch(nn_exec *x, nn_fetch_what what, int64_t first, int64_t n, float *to, err *e);
int local_read(nn_exec *x, nn_buf b, float *to, err *e);
int local_write(nn_exec *x, nn_buf b, const float *from, err *e);

nn_ticket local_ticket(nn_exec *x); /* of work that is done */

#endif
