/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heads that predict further tokens (docs/speculation.md): small models that go on from another one's hidden states.
 *
 * Such a head has a tape of its own. An input row is supplied by the batch: the embedding of the token at a position, then
 * the hidden state of the position before it. What it says is the token behind, and what it hands on (NN_FETCH_HIDDEN) takes
 * the hidden state's place for the position that follows, where the model has not been. Attention sees distances alone, so
 * positions may be counted from wherever its sequence begins.
 *
 * The head of the token after next (MTP) is one more block of its family. It comes in the model's file or in one of its own,
 * which then has the model's embedding and output matrix. It goes on from what the model's own head reads.
 *
 * The head of EAGLE-3 comes in a file of its own. It goes on from three inner states, which the model's tape is taught to put
 * together (NN_FETCH_INNER), and says tokens of a smaller vocabulary.
 */
#ifndef NN_NEXT_H
#define NN_NEXT_H

#include "nn/backend.h"

typedef struct nn_next {
    nn_model      *model;
    const nn_mat  *embd;  /* the table of the embeddings: [vocabulary][n_hidden], read on the host */
    float          scale; /* on them */
    int            n_hidden;
    nn_fetch_what  reads; /* which rows of the model are its hidden states */
    const int32_t *ids;   /* the token that each logit is for; NULL: its own number */
    bool           alone; /* the file has nothing else: it cannot be opened as a model */
} nn_next;

/* The head of `target` in this file; NULL: in the model's own. *out is NULL where the file has none. The head borrows the
 * model and the file. */
int  nn_next_open(nn_next **out, const nn_model *target, const model_file *file, err *e);
void nn_next_free(nn_next *x); /* accepts NULL */

/* EAGLE-3. `arch` reads it; the model's tape is extended, before any executor of it is opened. */
bool nn_eagle_is(const model_file *file);
int  nn_eagle_open(nn_next **out, nn_model *target, const model_file *file, const nn_arch *arch, err *e);

/* The embedding of a token: n_hidden floats, zeros where there is none. */
void nn_next_embed(const nn_next *x, int32_t token, float *out);

#endif
