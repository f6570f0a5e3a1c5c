/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types for a wanted size: every matrix is tried in every type on a sample of its rows, and bits go where they lower the
 * damage most.
 *
 * The noise of a type in a matrix is the part of its output's energy that becomes noise: the importance-weighted squared
 * error over the weighted squares. The damage is the noise times how much of it is heard at the end: by the kind of the
 * matrix (target.c), or measured with a text (quantize_options.judge, target_trials.c). Damages are added. Starting from
 * the cheapest type everywhere, the step with the largest gain per bit is taken until the bits are spent.
 */
#ifndef CONVERT_TARGET_H
#define CONVERT_TARGET_H

#include "convert/quantize.h"

/* The published mixes as one array of types per tensor each, for the judge to compare with. */
typedef struct target_mixes {
    tensor_type *types; /* [n * n_tensors] */
    size_t       n;
} target_mixes;

/* Sets types[i] of every tensor that is quantized and has none (-1). ERR_ARG: even the cheapest types are too large. */
int target_types(const model_file *in, const quantize_options *o, const target_mixes *mixes, pool *p, int *types,
                 err *e);

#endif
