/* SPDX-License-Identifier: Apache-2.0 */
/* What target.c and target_trials.c share: the matrices whose types are chosen, and what each choice costs. */
#ifndef CONVERT_TARGET_IMPL_H
#define CONVERT_TARGET_IMPL_H

#include "convert/target.h"

#include <stdatomic.h>

enum { TARGET_CHOICES = 14 };

typedef struct target_matrix {
    size_t             at; /* tensor */
    const tensor_type *types;
    int                n, is; /* is: the choice now */
    double             bits[TARGET_CHOICES], noise[TARGET_CHOICES], damage[TARGET_CHOICES];
    double             weight; /* damage per noise when nobody measures it */
} target_matrix;

typedef struct target_search {
    const model_file       *in;
    const quantize_options *o;
    pool                   *p;
    target_matrix          *m;
    size_t                  n;
    double                  budget;  /* bits that all matrices may have together */
    size_t                  longest; /* row */
    float                  *scratch; /* per worker: a row, it decoded again */
    uint8_t                *coded;
    atomic_size_t           next;
} target_search;

/* Rows of all matrices of a tensor, and the importance of the columns of row r; NULL: unknown. */
int64_t      target_rows(const model_tensor *t);
const float *target_importance(const quantize_options *o, const model_tensor *t, int64_t r);

/* Takes, from the choices that are made, the steps with the largest gain per bit until the budget is spent. */
void target_spend(target_search *s);

/* Replaces the damage by what o->judge measures, and chooses: the best of several ways to spend the budget. */
int target_try(target_search *s, const target_mixes *mixes, err *e);

#endif
