/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a pick from rows of logits needs of the device (params/sampling.h): the likeliest tokens of each row, rows that
 * masks, biases and penalties have changed, sums of weights, and draws over whole rows.
 *
 * A row is cut into groups of neighbours, at most CUDA_GROUPS. The largest entry of each is found first; groups whose
 * largest is among the CUDA_TAKEN largest are then read once more. What comes out does not depend on other rows.
 *
 * With each list comes a guess at the token that the host will pick from it, for a step that begins before the host has
 * picked: the stages of params/chain.h over the list alone, in the sorted order, without mask, biases and penalties. The
 * host's pick decides.
 */
#ifndef KERNELS_CUDA_PICKS_H
#define KERNELS_CUDA_PICKS_H

#include "kernels/cuda/device.h"
#include "tensor/types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CUDA_GROUPS = 512, CUDA_TAKEN = 80, CUDA_LIKELY = 128 };

/* The largest entries of a row, in descending order, equal ones by ascending id. */
typedef struct cuda_likely {
    int32_t n;
    float   floor; /* no other is above this, none of these below; -INFINITY: no other is possible */
    float   most;  /* the largest, at most 1e30; -INFINITY: none is possible */
    int32_t guess; /* of rows as they came; a token of the vocabulary in any case */
    int32_t token[CUDA_LIKELY];
    float   x[CUDA_LIKELY]; /* as they came */
} cuda_likely;

/* How the token of a row is guessed: four bytes each, so that it lies anywhere in the batch's block. */
typedef struct cuda_guess {
    uint32_t uniform[2]; /* a double, lower half first */
    float    temperature, top_p, log_min_p;
    int32_t  top_k;  /* each: as if off where it does nothing; temperature 0: the first of the list */
    uint32_t stages; /* 4 bits each, the first one lowest: CUDA_GUESS_*, 0 behind the last */
    int32_t  unused;
} cuda_guess;
enum { CUDA_GUESS_TOP_K = 1, CUDA_GUESS_TOP_P, CUDA_GUESS_MIN_P, CUDA_GUESS_TEMPERATURE };

/* Value and place as one number, whose order is that of the values, lower places first; 0: nothing. */
typedef unsigned long long cuda_key;

/* A row that more is asked of. */
typedef struct cuda_ask {
    double  uniform;
    float   temperature; /* weights are those of x / temperature */
    float   repeat, frequency, presence;
    int32_t row;
    int32_t mask;   /* 1 + the number of its mask; 0: none */
    int32_t edited; /* 1 + its place among the changed rows; 0: biases and penalties have not changed it */
    int32_t edits_at, n_bias, n_counts; /* in the list of edits: biases first */
} cuda_ask;

typedef struct cuda_edit {
    int32_t token;
    union {
        float   bias;
        int32_t count;
    } by;
} cuda_edit;

typedef struct cuda_drawn {
    double  sum;    /* of the weights of the row, changed and by its temperature */
    double  raw;    /* of the row as it came */
    double  margin; /* how close the draw was to another token, as a part of the sum */
    int32_t token;  /* -2: none */
    float   x;      /* of that token, as it came */
} cuda_drawn;

typedef struct cuda_picks {
    const float      *logits;
    int64_t           width;
    cuda_key         *tops;   /* [rows or asks][CUDA_GROUPS] */
    cuda_likely      *likely; /* [rows] of the rows as they came */
    const cuda_guess *guess;  /* [rows] */
    const cuda_ask   *asks;
    const cuda_edit  *edits;
    const uint32_t   *masks;  /* [masks][words] */
    float            *edited; /* [changed rows][width] */
    cuda_likely      *asked;  /* [asks] */
    double           *sums;   /* [asks][2][CUDA_GROUPS] */
    cuda_drawn       *drawn;  /* [asks] */
    int               n, n_edited, n_masks;
} cuda_picks;

int cuda_op_likely(const cuda_picks *p, int64_t rows, cuda_stream s, err *e); /* of all rows, as they came */
int cuda_op_ask(const cuda_picks *p, cuda_stream s, err *e);                  /* of n asks; `likely` is there */

/* A table of embeddings on the device, in the file's layout, and which of its rows n tokens take. */
typedef struct cuda_embed_table {
    const void        *rows;
    tensor_type        type;
    int64_t            n_rows, cols;
    size_t             row_bytes;
    const int32_t     *token; /* [n]; ~i: what was guessed with list i; NULL: the rows in their order */
    const cuda_likely *lists;
} cuda_embed_table;

/* To f32, times scale. */
int cuda_op_embed_tokens(float *to, const cuda_embed_table *r, int64_t n, float scale, cuda_stream s, err *e);

#ifdef __cplusplus
}
#endif
#endif
