/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types for a wanted size: every matrix is tried in every type on a sample of its rows, and bits go where they lower the
 * damage most.
 *
 * The damage of a type to a matrix is the part of its output's energy that becomes noise: the importance-weighted squared
 * error over the weighted squares. Noise of every matrix enters the same stream of activations, so the parts are added,
 * each by how much of it is heard at the end (target.c). Starting from the cheapest type everywhere,
 * the step with the largest gain per bit is taken until the bits are spent.
 */
#ifndef CONVERT_TARGET_H
#define CONVERT_TARGET_H

#include "convert/quantize.h"

/* Sets types[i] of every tensor that is quantized and has none (-1). ERR_ARG: even the cheapest types are too large. */
int target_types(const model_file *in, const quantize_options *o, pool *p, int *types, err *e);

#endif
