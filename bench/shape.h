/* SPDX-License-Identifier: Apache-2.0 */
/* The model that benchmarks share. */
#ifndef BENCH_SHAPE_H
#define BENCH_SHAPE_H

#include "base/err.h"

/* Writes a GGUF file of 1.24 billion random weights, a Llama in Q4_K. */
int shape_1b(const char *path, err *e);

#endif
