/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model as a directory in the layout of Hugging Face or MLX.
 *
 * The result is opened again before it gets its name: what the model computes, step by step with all sizes, scales and
 * frequencies, and the tokens of a text of many scripts must be the source's. A file with a value that config.json cannot
 * say is thereby refused instead of written wrong. GGUF files need a row in convert/families.c.
 */
#ifndef CONVERT_TO_DIR_H
#define CONVERT_TO_DIR_H

#include "convert/mlx.h"
#include "tokenizer/tokenizer.h"

typedef struct to_dir_options {
    bool         mlx;
    mlx_recipe   recipe;
    int          type;        /* of numbers; -1: they stay, and what is quantized becomes F16 or what its scales are */
    const tok   *tokenizer;   /* of the source; NULL: none is written */
    uint64_t     shard_bytes; /* 0: 5 GB */
    plan_options write;       /* identity is made here */
} to_dir_options;

/* *n_tensors: how many were written. */
int convert_to_dir(const nn_model *m, const to_dir_options *o, pool *p, plan_result *out, size_t *n_tensors, err *e);

#endif
