/* SPDX-License-Identifier: Apache-2.0 */
/* What the checkers of CUDA kernels share: memory that is there, and calls that must not fail. */
#ifndef TESTS_CUDA_MUST_H
#define TESTS_CUDA_MUST_H

#include "kernels/cuda/device.h"

#include <stdio.h>
#include <stdlib.h>

static inline void *alloc(size_t bytes) {
    void *p = calloc(1, bytes ? bytes : 1);
    if (!p) abort();
    return p;
}

static inline void must(int rc, const err *e) {
    if (rc == 0) return;
    printf("check FAILED: %s\n", e->msg);
    exit(1);
}

#endif
