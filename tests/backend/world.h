/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A few sequences over one executor: random tokens, pages and slots anywhere, batches of any cut. A trace keeps what
 * came out by sequence and position, so that two ways to the same place can be compared bit for bit.
 */
#ifndef TESTS_BACKEND_WORLD_H
#define TESTS_BACKEND_WORLD_H

#include "backend/suite.h"

enum { WORLD_SEQS = 5, WORLD_LEN = 72, WORLD_PAGES = 5, WORLD_TOKENS = 160, WORLD_SLOTS = WORLD_SEQS + 3 };

typedef struct world {
    suite          *s;
    const nn_model *m;
    nn_exec_options o;
    nn_exec        *x;
    int             n_seq, len[WORLD_SEQS]; /* positions that are stored */
    int             until[WORLD_SEQS];      /* and that there will be */
    int32_t         tokens[WORLD_SEQS][WORLD_LEN];
    int32_t         pages[NN_MAX_GROUPS][WORLD_SEQS][WORLD_PAGES], slots[WORLD_SEQS];
    bool            all_logits; /* else some outputs want the hidden state only */

    nn_batch batch;
    int32_t  token[WORLD_TOKENS], pos[WORLD_TOKENS], seq_of[WORLD_TOKENS], out_rows[WORLD_TOKENS];
    int32_t  q_start[WORLD_SEQS + 1], kv_len[WORLD_SEQS], state_slot[WORLD_SEQS], of[WORLD_SEQS];
    int32_t  tables[NN_MAX_GROUPS][WORLD_SEQS * WORLD_PAGES];
} world;

/* Limits that every world's batches keep; pages of 16, 32 or 64 positions. */
nn_exec_options world_options(suite *s);

/* Opens an executor on the suite's device. A refusal is a failed fact, false. */
bool world_open(world *w, suite *s, const nn_model *m, const nn_exec_options *o);
/* The same sequences on another executor, which it borrows, in other places. */
void world_copy(world *w, const world *from, nn_exec *x);
void world_close(world *w); /* also the executor */
void world_place(world *w); /* other pages and slots, sequences empty */

void world_begin(world *w);
void world_add(world *w, int seq, int n); /* the sequence's next n tokens */
void world_end(world *w);                 /* every row is an output */
/* Some sequences, some tokens of each; false: everything is stored. twins: sequences 0 and 1 come first, together and
 * in every batch until they are stored. */
bool world_random_batch(world *w, bool twins);
void world_undo(world *w); /* the batch was not run */

typedef struct trace {
    int64_t n_vocab, n_hidden;
    float  *logits, *hidden; /* [WORLD_SEQS][WORLD_LEN][...] */
    bool    has_logits[WORLD_SEQS][WORLD_LEN], has_hidden[WORLD_SEQS][WORLD_LEN];
} trace;

void trace_init(trace *t, const nn_model *m);
void trace_deinit(trace *t);
/* Fetches the rows of the batch that was run. New ones are kept, known ones must be the same bits. */
void trace_take(trace *t, world *w, const char *what);

/* Steps until everything is stored, in random batches; all of them into the trace. */
void world_run(world *w, trace *t, const char *what);

#endif
