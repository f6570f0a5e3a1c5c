/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small layers behind a pooled row: the dense layers of an embedding model, the head of a reranker. They are computed
 * once per text, in double precision and in one order; the tape has no part in them.
 */
#ifndef RUNTIME_HEAD_H
#define RUNTIME_HEAD_H

#include "base/arena.h"
#include "base/err.h"
#include "formats/model_file.h"

typedef enum head_act { HEAD_NONE, HEAD_TANH, HEAD_RELU, HEAD_GELU, HEAD_SIGMOID, HEAD_SILU } head_act;

typedef struct head_layer {
    int          in, out;
    const float *w, *b; /* b NULL: none */
    head_act     act;
    const float *norm, *norm_bias; /* a LayerNorm behind the activation; NULL: none */
    double       eps;
} head_layer;

/* `name`.weight and, where it is there, `name`.bias; a copy in mem. */
int head_read(head_layer *out, const model_file *m, const char *name, int in, head_act act, arena *mem, err *e);
int head_norm(head_layer *h, const model_file *m, const char *name, double eps, arena *mem, err *e);

/* y has room for h->out; x and y do not overlap. */
void head_run(const head_layer *h, const float *x, float *y);

#endif
