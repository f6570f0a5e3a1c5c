/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A few sequences over one executor, without an engine: for tools, tests and benchmarks.
 *
 * Every sequence has its own pages and state slot from the beginning. Pages are handed out in falling order, so that a
 * mistake in a page table shows.
 */
#ifndef BACKEND_SIMPLE_H
#define BACKEND_SIMPLE_H

#include "nn/backend.h"

typedef struct simple_options {
    int      n_seq;       /* sequences; 0: 1 */
    int      max_len;     /* positions of each */
    int      max_tokens;  /* of one step; 0: 256 */
    int      page_tokens; /* 0: 32 */
    int      n_threads;
    bool     steady;         /* nn_exec_options */
    int      k_type, v_type; /* kv_type */
    unsigned cpu;
} simple_options;

/* Tokens of one sequence in a step. */
typedef struct simple_feed {
    int            seq;
    const int32_t *ids;
    int            n;
    bool           all; /* logits of every token, else of the last one */
} simple_feed;

typedef struct simple {
    nn_exec *exec;
    int32_t *len; /* positions that each sequence has */
    int      n_seq, max_len, max_tokens, page_tokens, max_pages;
    int32_t *token, *pos, *seq_of, *q_start, *kv_len, *slot, *out_rows, *pages;
    nn_batch batch; /* of the last step */
} simple;

int  simple_open(simple *s, const nn_backend *backend, const nn_model *m, const simple_options *o, err *e);
void simple_close(simple *s);

/* Fills s->batch; simple_step also runs it. The logits are nn_exec_logits, row by row in the order of the feeds. */
int  simple_batch(simple *s, const simple_feed *feeds, int n_feeds, err *e);
int  simple_step(simple *s, const simple_feed *feeds, int n_feeds, err *e);
void simple_reset(simple *s, int seq); /* the sequence is empty again */

#endif
