/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a step is given: a ragged batch of tokens of many sequences.
 *
 * The tokens of one sequence stand together and in the order of their positions: sequence s owns rows
 * q_start[s] .. q_start[s + 1]. Any mix of prefill chunks and single tokens is allowed. A sequence whose first position
 * in the batch is 0 begins with a zero fixed state; otherwise the state is the one that its slot holds.
 *
 * Page tables hold page numbers by absolute position: position p of sequence s lies in page
 * pages[g][s * pages_stride + p / page_tokens]. There is one table per group of layers with the same window; group 0
 * sees everything. Pages that lie behind a window may be -1.
 *
 * The last fields are optional (NULL) and the place where later features enter: an adapter per token, rows whose
 * embedding is supplied, and positions with several axes.
 */
#ifndef NN_BATCH_H
#define NN_BATCH_H

#include "base/err.h"
#include "nn/nn.h"

#include <stdint.h>

enum { NN_MAX_GROUPS = 4 };

typedef struct nn_batch {
    int            n_tok, n_seq, n_out;
    const int32_t *token;   /* [n_tok] */
    const int32_t *pos;     /* [n_tok] */
    const int32_t *seq_of;  /* [n_tok] */
    const int32_t *q_start; /* [n_seq + 1] */
    const int32_t *kv_len;  /* [n_seq]: positions stored when this step's are in */
    const int32_t *pages[NN_MAX_GROUPS];
    int            pages_stride;
    const int32_t *state_slot; /* [n_seq] */
    const int32_t *out_rows;   /* [n_out]: rows whose logits are wanted, then n_hidden whose hidden state is enough */
    int            n_hidden;

    const int32_t *adapter;  /* [n_tok]: which adapter, -1 none */
    const float   *embd;     /* [rows][n_embd]: supplied embeddings */
    const int32_t *embd_row; /* [n_tok]: row of embd, -1: look the token up */
    const int32_t *pos_axes; /* [n_axes][n_tok] */
    int            n_axes;
} nn_batch;

/* Which page table each layer reads. */
typedef struct nn_groups {
    int  n;
    int  window[NN_MAX_GROUPS]; /* 0: everything */
    int *of_layer;              /* [n_layer]; -1: the layer stores no positions */
} nn_groups;

typedef struct nn_limits {
    int max_tokens, max_seqs, max_outputs; /* of one batch */
    int max_logits;                        /* of the outputs; 0: all of them */
    int page_tokens, max_pages;            /* positions per page, pages per sequence */
    int n_pages;                           /* per group */
    int n_slots;                           /* fixed states */
} nn_limits;

/* An error that names the row or sequence when a batch does not keep the rules above. */
int nn_batch_check(const nn_batch *b, const nn_limits *l, const nn_groups *g, int n_vocab, err *e);

#endif
