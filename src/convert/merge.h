/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One model out of several: adapters put into the matrices that they change, or models of one shape mixed.
 *
 * The result has the format of the first model: a GGUF file with its metadata, or a directory with its small files and
 * without packing. Types stay unless one is given; a matrix that is quantized is made into numbers, changed and quantized
 * again, and the result says how many those were. Rows are made one by one while the file is written (convert/stream.h).
 *
 * Methods, for the numbers x of one place:
 *     linear  sum of w x over the sum of w
 *     slerp   along the arc between two tensors, each taken as one vector; along the line where they are nearly parallel
 *     task    x0 + lambda * sum of w (x - x0), x0 the first model's
 *     ties    the same, of each model only the largest `density` of the differences by magnitude, and of those only the
 *             ones with the sign of their weighted sum, divided by the sum of their weights
 */
#ifndef CONVERT_MERGE_H
#define CONVERT_MERGE_H

#include "convert/plan.h"
#include "formats/model_file.h"
#include "nn/adapter.h"

typedef struct merge_options {
    int          type;        /* of the matrices that change; -1: their own */
    uint64_t     shard_bytes; /* of directories; 0: 5 GB */
    plan_options write;       /* identity is made here */
} merge_options;

typedef struct merge_result {
    plan_result file;
    size_t      n_tensors, n_changed, n_requantized;
} merge_result;

int merge_adapters(const nn_model *m, const nn_adapter_set *set, const merge_options *o, pool *p, merge_result *out,
                   err *e);

typedef enum merge_method { MERGE_LINEAR, MERGE_SLERP, MERGE_TASK, MERGE_TIES } merge_method;

enum { MERGE_MOST = 16 };

typedef struct merge_recipe {
    merge_method method;
    double       weight[MERGE_MOST]; /* of each model; the first one's counts for linear alone */
    double       t;                  /* slerp: 0 is the first model, 1 the second */
    double       density, lambda;    /* ties; ties and task */
} merge_recipe;

int merge_models(const model_file *const *models, int n, const merge_recipe *r, const merge_options *o, pool *p,
                 merge_result *out, err *e);

#endif
