/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The matrices of a model under all names that an adapter may use for them: those of GGUF and of Hugging Face or MLX,
 * whatever the base's own format is. Binding notes them (bind_record); nn/adapter_names.c looks them up.
 */
#ifndef NN_BOUND_H
#define NN_BOUND_H

#include "nn/model.h"

typedef struct nn_bound {
    const nn_mat    *mat;
    const char      *gguf_prefix, *hf_prefix; /* of the layer; "" outside of layers */
    const char      *gguf, *hf;               /* alternatives as nn.h describes them; NULL: that kind has none */
    int64_t          rows, first, total;      /* as bind_wish has them */
    int              stack;
    bool             rotary, at_least;
    bool             head;    /* the embedding as the head of a model that ties them */
    const int32_t   *hf_rows; /* [rows]: where Hugging Face's tensor has them; NULL: as first and total say */
    int64_t          hf_total;
    struct nn_bound *next; /* the one bound before */
} nn_bound;

#endif
