/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a tensor that is written, where they lie: in one matrix or several, in any order. */
#ifndef CONVERT_ROWS_H
#define CONVERT_ROWS_H

#include "base/arena.h"
#include "convert/plan.h"
#include "nn/nn.h"

enum { ROWS_MAX_PARTS = 16 };

typedef struct rows_map {
    const nn_mat *parts[ROWS_MAX_PARTS];
    int           n;
    int64_t       total;      /* rows of the tensor, or of each of a stack */
    int           expert;     /* only this matrix of the stacks; -1: all, one behind the other */
    int64_t      *part, *row; /* of each row of the tensor; NULL: all rows of the only part, in order */
} rows_map;

int  rows_map_alloc(rows_map *x, arena *mem, err *e); /* part and row; part is -1 until it is set */
bool rows_map_complete(const rows_map *x);
/* The type of all parts, when they have one and their rows say everything by themselves; else -1. */
int        rows_map_type(const rows_map *x);
row_source rows_map_source(const rows_map *x); /* x must outlive it. Without a common type only floats */

/* Several sources of equal shape behind each other. */
typedef struct rows_stack {
    const row_source *at;
    int               n;
    int64_t           rows; /* of each */
} rows_stack;
row_source rows_stack_source(const rows_stack *x);

#endif
