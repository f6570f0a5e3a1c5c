/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CLOCK_H
#define ENGINE_CLOCK_H

#include <time.h>

/* Seconds; never goes back. */
static inline double engine_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
