/* SPDX-License-Identifier: Apache-2.0 */
#include "server/vectors.h"

#include <stdlib.h>
#include <string.h>

bool vectors_init(vectors *v, size_t n) {
    memset(v, 0, sizeof *v);
    v->at = calloc(n, sizeof *v->at);
    v->sizes = calloc(n, sizeof *v->sizes);
    v->n = n;
    return v->at && v->sizes;
}

void vectors_deinit(vectors *v) {
    for (size_t i = 0; v->at && i < v->n; i++) free(v->at[i]);
    free(v->at);
    free(v->sizes);
    memset(v, 0, sizeof *v);
}

void vectors_event(vectors *v, size_t request, const runtime_event *ev) {
    if (ev->kind == RUNTIME_STARTED) v->prompt_tokens += ev->prompt_tokens;
    if (ev->kind != RUNTIME_EMBEDDING) return;
    size_t bytes = (size_t)ev->n_vector * sizeof(float);
    free(v->at[request]);
    v->at[request] = malloc(bytes + 1);
    v->sizes[request] = v->at[request] ? ev->n_vector : 0;
    if (v->at[request])
        memcpy(v->at[request], ev->vector, bytes);
    else
        v->failed = true;
}
