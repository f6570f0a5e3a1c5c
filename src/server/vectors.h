/* SPDX-License-Identifier: Apache-2.0 */
/* Embeddings of one exchange: a vector per request, gathered until all are there. */
#ifndef SERVER_VECTORS_H
#define SERVER_VECTORS_H

#include "runtime/runtime.h"

typedef struct vectors {
    float **at;
    int    *sizes;
    size_t  n;
    int64_t prompt_tokens; /* of all */
    bool    failed;        /* out of memory */
} vectors;

bool vectors_init(vectors *v, size_t n);
void vectors_deinit(vectors *v); /* accepts a zeroed one */
void vectors_event(vectors *v, size_t request, const runtime_event *ev);

#endif
