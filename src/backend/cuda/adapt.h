/* SPDX-License-Identifier: Apache-2.0 */
/* Adapter sets in the CUDA backend. Its fields are adapt.c's; a part of struct cuda_exec. */
#ifndef BACKEND_CUDA_ADAPT_H
#define BACKEND_CUDA_ADAPT_H

#include "kernels/cuda/adapt.h"
#include "nn/backend.h"
#include "nn/tape.h"

struct cuda_exec;

/* Steps of up to this many sequences with a token each look up sets row by row and are recorded; larger ones are sorted
 * by set, so that an adapter's numbers are read once for several rows. */
enum { CUDA_ADAPT_SINGLE = 32, CUDA_ROW_KINDS = NN_ROWS_LOGITS + 1 };

/* A set on the device: one allocation. */
typedef struct cuda_set {
    const nn_adapter_set *from; /* NULL: this number means nothing */
    uint8_t              *memory;
    size_t                bytes;
} cuda_set;

/* What any of the sets does to an op. */
typedef struct cuda_adapted {
    int  rank;
    bool touched, gain, in_gain;
} cuda_adapted;

typedef struct cuda_adapt {
    cuda_set      *sets;  /* [NN_MAX_SETS + 1]; NULL: there never was one */
    uint8_t       *table; /* on the device: [NN_MAX_SETS + 1][n_ops] pointers to patches */
    cuda_adapted  *ops;   /* [n_ops] */
    uint8_t       *room;  /* on the device: t, then products before their gains, then scaled inputs */
    size_t         room_bytes, side_at, scaled_at;
    int            t_stride;
    int32_t       *host; /* pinned; the same on the device */
    uint8_t       *block;
    cuda_event     sent;
    bool           on; /* rows of this batch have sets */
    cuda_low_rows  rows[CUDA_ROW_KINDS];
    const int32_t *token, *embed_set; /* on the device, [n_tok] */
} cuda_adapt;

int  cuda_adapt_set(nn_exec *base, int number, const nn_adapter_set *set, err *e);
int  cuda_adapt_check(const struct cuda_exec *x, const nn_batch *b, err *e); /* that its sets are there */
int  cuda_adapt_begin(struct cuda_exec *x, err *e);                          /* the batch's rows by set */
void cuda_adapt_free(struct cuda_exec *x);

/* Whether adapters change op `number` in this batch; whether they scale what goes in or comes out of it, so that its
 * product is made by cuda_adapt_product. */
bool cuda_adapt_touches(const struct cuda_exec *x, int number);
bool cuda_adapt_scales(const struct cuda_exec *x, int number);
/* A product with gains; and the low-rank products of n ops with the same inputs, behind the base's. */
int cuda_adapt_product(struct cuda_exec *x, int number, err *e);
int cuda_adapt_low(struct cuda_exec *x, int number, int n, err *e);
int cuda_adapt_embed(struct cuda_exec *x, int number, err *e);

#endif
