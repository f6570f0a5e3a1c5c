/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A few sequences over one executor, without an engine: for tools, tests and benchmarks.
 *
 * Every sequence has its own pages and state slot from the beginning. Pages are handed out in falling order, so that a
 * mistake in a page table shows.
 */
#ifndef TOOLS_SIMPLE_H
#define TOOLS_SIMPLE_H

#include "nn/backend.h"

typedef struct simple_options {
    int n_seq;       /* sequences; 0: 1 */
    int max_len;     /* positions of each */
    int max_tokens;  /* of one step; 0: 256 */
    int page_tokens; /* 0: PAGE_TOKENS */
    /* nn_exec_options */
    int        n_threads;
    bool       steady;
    nn_kv_type k_type, v_type;
    int        precise_layers;
    bool       k_open;
    unsigned   cpu;
    nn_observe observe;
    void      *observe_ctx;

    size_t                  expert_bytes;
    const file_reader_hook *reader;
} simple_options;

/* Tokens of one sequence in a step. */
typedef struct simple_feed {
    int            seq;
    const int32_t *ids;
    int            n;
    bool           all;      /* logits of every token, else of the last one */
    int            set;      /* adapter set; 0: none */
    int            set_from; /* from this position on */
} simple_feed;

typedef struct simple {
    nn_exec *exec;
    int32_t *len; /* positions that each sequence has */
    int      n_seq, max_len, max_tokens, page_tokens, max_pages;
    int32_t *token, *pos, *seq_of, *q_start, *kv_len, *slot, *out_rows, *pages, *adapter;
    nn_batch batch; /* of the last step */
    float   *rows;  /* what was fetched of it */
    size_t   cap_rows;
} simple;

/* device: as backend_find takes it. */
int  simple_open(simple *s, const char *device, const nn_model *m, const simple_options *o, err *e);
void simple_close(simple *s);

/* Fills s->batch; simple_step also runs it. */
int  simple_batch(simple *s, const simple_feed *feeds, int n_feeds, err *e);
int  simple_step(simple *s, const simple_feed *feeds, int n_feeds, err *e);
void simple_reset(simple *s, int seq); /* the sequence is empty again */

/* All rows of the last step, in the order of the feeds; until the next call. NULL: the error says why. */
const float *simple_fetch(simple *s, nn_fetch_what what, err *e);

#endif
