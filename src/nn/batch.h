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
 * Any row may be an output, and a sequence may have several: the last one of a prompt, all rows of a draft.
 *
 * The last fields are optional (NULL). They are what a batch may hold beyond tokens, each with a bit by which a backend
 * says that it can do it; nn_batch_check refuses by name what the backend at hand cannot:
 *     embd      rows whose embedding is supplied (an image's); the token at such a row is not looked up, and the row is
 *               taken as it is: no scale of the embedding table applies. Where a model adds to such rows further up
 *               (nn_add_supplied), what it adds stands behind the embedding: a row has tape->n_parts parts of its width
 *     row_end   how far a row sees: positions below row_end[t] instead of pos[t] + 1, for a span that sees itself whole;
 *               such a span lies in one batch. Layers may be exempt (nn_attn_spec.strict)
 *     row_begin with row_end, in layers that see the step's own rows: where the span begins that a row sees, for layers
 *               that say so (nn_attn_spec.spans); without it they see everything. Spans rise with the rows; one need not
 *               hold its own row. In layers with a window that keep positions: where a row sees from if its window begins
 *               later, for a span that is longer than the window; the whole span lies in the batch
 *     from      instead of embd: the hidden rows of another executor's last step, which was waited for, of the same backend and
 *               device. They lie one behind the other, so that several of them may be one row of this batch
 *     adapter   an adapter set per row (nn/adapter.h), by the number that the executor was told
 *     pos_axes  rotary positions with several axes; pos stays the place in the cache
 *     segment   which text of a pair a row belongs to, 0 or 1; without it all belong to the first
 */
#ifndef NN_BATCH_H
#define NN_BATCH_H

#include "base/err.h"
#include "nn/nn.h"
#include "params/sampling.h"

#include <stdint.h>

enum { NN_MAX_GROUPS = 4, NN_MAX_AXES = 4 };

/* All rows that a batch has in a buffer. */
typedef struct nn_rows {
    nn_buf       buf;
    const float *rows;
} nn_rows;

/* What a batch may hold beyond tokens. */
enum {
    NN_BATCH_EMBD = 1,
    NN_BATCH_ROW_END = 2,
    NN_BATCH_ADAPTER = 4,
    NN_BATCH_AXES = 8,
    NN_BATCH_SEGMENT = 16,
    NN_BATCH_ROW_BEGIN = 32,
    /* These follow from the model that a batch is for; see nn_batch_for. */
    NN_BATCH_DEEP = 64,    /* supplied rows with several parts */
    NN_BATCH_STRICT = 128, /* spans that only some layers see whole */
    NN_BATCH_FROM = 256,   /* rows that another executor left */
    NN_BATCH_WIDE = 512,   /* spans that are longer than a layer's window; follows from the model, too */
};

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

    const float *const *embd;      /* [n_tok]: the embedding of this row; NULL: look the token up */
    struct nn_exec     *from;      /* all embeddings are what this executor's last step left */
    const int32_t      *row_end;   /* [n_tok] */
    const int32_t      *row_begin; /* [n_tok] */
    const int32_t      *adapter;   /* [n_tok]: which set, 0: none */
    const int32_t      *pos_axes;  /* [n_axes][n_tok] */
    int                 n_axes;
    const int32_t      *segment; /* [n_tok] */

    /* For an executor whose part begins in the middle of the tape: buffers that ops in front of it have left. Read by submit;
     * who runs op by op writes them. */
    const nn_rows *entry; /* [n_entry] */
    int            n_entry;

    /* For steps that begin before the tokens of the one in front are known (nn/backend.h). */
    const sampling_row *guess; /* [n_out - n_hidden]: how the token behind a row of logits will be picked; params NULL:
                                  nobody will go on from there. NULL: from none of them */
    const int32_t      *ahead; /* [n_tok]: the row of logits of the step under way whose guess is the token; -1: `token`
                                  has it */
} nn_batch;

/* Which page table each layer reads. */
typedef struct nn_groups {
    int  n;
    int  window[NN_MAX_GROUPS]; /* 0: everything */
    int *of_layer;              /* [n_layer]; -1: the layer stores no positions */
    bool whole;                 /* layers that see the whole input: a sequence is complete in one batch */
} nn_groups;

typedef struct nn_limits {
    int max_tokens, max_seqs, max_outputs; /* of one batch */
    int max_logits;                        /* of the outputs; 0: all of them */
    int page_tokens, max_pages;            /* positions per page, pages per sequence */
    int n_pages;                           /* per group */
    int n_slots;                           /* fixed states */
} nn_limits;

/* What a batch that holds this holds for this model: NN_BATCH_DEEP, NN_BATCH_STRICT and NN_BATCH_WIDE are added. */
unsigned nn_batch_for(const struct nn_tape *t, unsigned holds);

/* Refuses by name what is in `holds` and not in `can`. */
int nn_batch_allow(unsigned holds, unsigned can, err *e);

/* An error that names the row or sequence when a batch does not keep the rules above. can: NN_BATCH_* bits. */
int nn_batch_check(const nn_batch *b, const struct nn_tape *t, const nn_limits *l, const nn_groups *g, int n_vocab,
                   unsigned can, err *e);

/* Rows that a batch has in a buffer of the tape. */
int64_t nn_batch_rows(const nn_batch *b, const struct nn_tape *t, nn_buf buf);

#endif
