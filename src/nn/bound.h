/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tensors of a model under all names that they may have: those of GGUF and of Hugging Face or MLX, whatever the
 * file's own format is. Binding notes them (bind_record); nn/adapter_names.c looks matrices up for adapters, and
 * convert/hf_plan.c names a GGUF file's tensors as Hugging Face does.
 */
#ifndef NN_BOUND_H
#define NN_BOUND_H

#include "nn/model.h"

typedef struct nn_bound {
    const nn_mat    *mat;
    const nn_vec    *bias;                    /* NULL: none */
    const char      *gguf_prefix, *hf_prefix; /* of the layer; "" outside of layers */
    const char      *gguf, *hf;               /* alternatives as nn.h describes them; NULL: that kind has none */
    int64_t          rows, first, total;      /* as bind_wish has them */
    int              stack;
    bool             rotary, at_least;
    bool             head;   /* the embedding as the head of a model that ties them */
    bool             heads;  /* one matrix per head: rows head_first ... of each head_stride of Hugging Face's tensor */
    bool             turned; /* of heads: they are the columns of the matrices */
    int64_t          head_first, head_stride;
    const int32_t   *hf_rows; /* [rows]: where Hugging Face's tensor has them; NULL: as first and total say */
    int64_t          hf_total;
    struct nn_bound *next; /* the one bound before */
} nn_bound;

/* A vector by its names, for writing files in the layout of Hugging Face. */
typedef struct nn_bound_vec {
    const nn_vec        *vec;
    const char          *hf_prefix, *hf; /* as above; hf may be NULL */
    unsigned             flags;          /* NN_PLUS_ONE, NN_NEG_EXP: what is stored instead */
    int64_t              fold;           /* rows of this many, in one tensor or ('*') each in its own; 0: one row */
    struct nn_bound_vec *next;           /* the one bound before */
} nn_bound_vec;

#endif
