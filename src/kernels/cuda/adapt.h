/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adapter sets on a CUDA device, by row: what nn/adapter.h says, in two halves. The first makes t = A x of every row that
 * has a set, the second adds B t to what the base's product left. A row's own set is looked up on the device, so that
 * recorded launches serve any choice of sets.
 *
 * One order for one value: A x is cut into CUDA_LOW_SLICES slices of the inputs; lane l of a warp adds inputs 8 l .. 8 l
 * + 7 of every 256, then lanes and slices are added in order. B t goes along the ranks, adapter by adapter.
 */
#ifndef KERNELS_CUDA_ADAPT_H
#define KERNELS_CUDA_ADAPT_H

#include "kernels/cuda/device.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CUDA_LOW_SLICES = 8, CUDA_LOW_ROWS = 4, CUDA_LOW_OPS = 3, CUDA_LOW_PARTS = 8, CUDA_LOW_UNIT = 16 };

/* B A of one matrix. */
typedef struct cuda_low {
    const void *a;  /* f16 [ranks][a_stride], zeros behind the inputs; of an embedding: [tokens][a_stride] */
    const void *bt; /* f16 [ranks][bt_stride]: B transposed */
    int64_t     a_stride, bt_stride;
    int         used; /* ranks; 0: this expert has none */
    float       scale;
} cuda_low;

/* What a set does to one op. */
typedef struct cuda_patch {
    struct {
        const cuda_low *low; /* one, or one per expert */
        const float    *gain;
        float           scale;
        int             at; /* its first rank, a multiple of CUDA_LOW_UNIT */
    } parts[CUDA_LOW_PARTS];
    int          n_parts, rank;
    const float *gain, *bias_gain, *in_gain;
} cuda_patch;

/* Which rows a launch is for, and where their sets are. */
typedef struct cuda_low_rows {
    const cuda_patch *const *sets; /* [set][n_ops] */
    int                      n_ops;
    const int32_t           *set_of; /* of row / mult; 0: none */
    int                      mult;
    int64_t                  n;
    /* Not NULL: rows of one set together. Item i is (set, first place in order, rows up to CUDA_LOW_ROWS). */
    const int32_t *order, *items;
    int            n_items;
} cuda_low_rows;

/* Low-rank products of up to CUDA_LOW_OPS ops with the same inputs. */
typedef struct cuda_low_args {
    cuda_low_rows rows;
    const float  *x;
    int64_t       cols;
    int           x_div;  /* row r reads row r / x_div of x */
    const float  *chosen; /* of experts: (expert, weight) by row; NULL: one matrix */
    float        *t;      /* [n][t_stride] */
    int           t_stride, n_ops;
    struct {
        int     number; /* in the tape */
        int     rank;   /* of the largest set, a multiple of CUDA_LOW_UNIT */
        float  *y;
        int64_t width; /* of y's rows */
    } ops[CUDA_LOW_OPS];
    const int32_t *token; /* not NULL: rows of an embedding, t is a row of A */
    float          scale; /* on all of it */
} cuda_low_args;
int cuda_low_shrink(const cuda_low_args *a, cuda_stream s, err *e);
int cuda_low_expand(const cuda_low_args *a, cuda_stream s, err *e);

/* out = x, times the inputs' gains of the row's set for op `number`. */
int cuda_low_gain_in(const cuda_low_rows *r, int number, float *out, const float *x, int64_t width, cuda_stream s,
                     err *e);
/* y = product * gain + bias * bias_gain, added to the old y where `add`. */
typedef struct cuda_low_finish {
    cuda_low_rows rows;
    int           number;
    const float  *product, *bias;
    float        *y;
    int64_t       width;
    bool          add;
} cuda_low_finish;
int cuda_low_gain_out(const cuda_low_finish *a, cuda_stream s, err *e);

#ifdef __cplusplus
}
#endif
#endif
