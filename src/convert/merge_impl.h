/* SPDX-License-Identifier: Apache-2.0 */
/* What both kinds of merging share: the tensors of a file, and writing it anew. */
#ifndef CONVERT_MERGE_IMPL_H
#define CONVERT_MERGE_IMPL_H

#include "convert/hf_plan.h"
#include "convert/merge.h"

/* The tensors of a model as the result will have them, before anything changes. */
int merge_plan(hf_plan *out, const model_file *m, arena *mem, err *e);

/* A tensor changes: its type, and the result's counts. */
int merge_change(plan_tensor *t, const merge_options *o, merge_result *out, err *e);

int merge_write(const model_file *first, const hf_plan *plan, const merge_options *o, uint64_t identity, pool *p,
                merge_result *out, err *e);

#endif
