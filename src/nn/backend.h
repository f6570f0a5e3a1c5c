/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backend interface: lower a model's tape once, then run steps.
 *
 * open picks kernels, plans memory and refuses an op or type that it cannot run by name; there is no fallback. A step
 * is begin (the batch is checked and its tables are built) and run over all ops; running a range of ops is what the
 * side-by-side comparison uses. Nothing allocates between begin and the end of run. An executor is used by one thread.
 */
#ifndef NN_BACKEND_H
#define NN_BACKEND_H

#include "base/err.h"
#include "nn/batch.h"
#include "nn/model.h"
#include "nn/plan.h"

typedef struct nn_exec    nn_exec;
typedef struct nn_backend nn_backend;

typedef struct nn_exec_options {
    nn_limits limits;
    int       k_type, v_type; /* kv_type of pages */
    int       n_threads;      /* 0: one per core */
    bool      pin;
    bool      steady;    /* all threads in every step, even where other programs hold the cores: for tests */
    unsigned  cpu;       /* instruction sets that may be used; those absent are dropped */
    bool      plan_only; /* memory is counted, not taken: the executor answers questions and runs nothing */
} nn_exec_options;

struct nn_backend {
    const char *name;
    int (*open)(nn_exec **out, const nn_model *m, const nn_exec_options *o, err *e);
    void (*free)(nn_exec *x);
    int (*begin)(nn_exec *x, const nn_batch *b, err *e); /* the batch is borrowed until run returns */
    void (*run)(nn_exec *x, int op0, int op1);

    /* Moving what layers remember, between steps. NULL in a backend that only compares. */
    void (*page_copy)(nn_exec *x, int group, int32_t from, int32_t to);
    size_t (*page_bytes)(const nn_exec *x, int group); /* of one page; its bytes are opaque outside the backend */
    void (*page_read)(const nn_exec *x, int group, int32_t page, void *out);
    void (*page_write)(nn_exec *x, int group, int32_t page, const void *in);
    size_t (*slot_bytes)(const nn_exec *x); /* of one slot's fixed states; 0: the model has none */
    void (*slot_read)(const nn_exec *x, int32_t slot, void *out);
    void (*slot_write)(nn_exec *x, int32_t slot, const void *in);
};

/* Common part; a backend's own struct begins with it. */
struct nn_exec {
    const nn_backend *backend;
    const nn_model   *model;
    nn_exec_options   options;
    nn_groups         groups;
    nn_plan           plan;
    uint8_t          *arena; /* activations, 64-byte aligned */
    size_t            arena_bytes;
    size_t            pages_bytes, heap_bytes; /* taken for cache pages, and for everything else (the arena too) */
    arena             mem;
    nn_batch          batch;
};

int  nn_exec_init(nn_exec *x, const nn_backend *backend, const nn_model *m, const nn_exec_options *o, err *e);
void nn_exec_deinit(nn_exec *x);

int          nn_exec_step(nn_exec *x, const nn_batch *b, err *e);
float       *nn_exec_buf(nn_exec *x, nn_buf b);            /* rows of the current batch, width floats each */
int64_t      nn_exec_rows(const nn_exec *x, nn_buf b);     /* rows of the current batch */
const float *nn_exec_logits(nn_exec *x, int64_t *n_vocab); /* [n_out - n_hidden][n_vocab], until the next step */
const float *nn_exec_hidden(nn_exec *x, int64_t *width);   /* [n_out][width]: what the head reads */
void         nn_exec_free(nn_exec *x);                     /* accepts NULL */

#endif
