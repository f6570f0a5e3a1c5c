/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An allocator that fails on purpose.
 *
 * A program that uses this is linked with the allocator's functions wrapped (tests/CMakeLists.txt, alloc_fail). Every block
 * that our own code takes is known until it is freed; blocks that a library made (a line of getline, say) are not counted.
 *
 * A case is a thing that somebody may try: open a file, answer a request. alloc_fail_each tries it once as it is and counts
 * the allocations, then again and again with the n-th one failing. Each of these tries either gives what the clean one gave
 * (the failure cost an optional thing) or an error code with a sentence; afterwards no block more is alive than before, and
 * the next try, without a failure, gives what the clean one gave.
 *
 * Which n: all up to 300, each that was made from a place not seen before (by its return addresses), and a seeded choice of
 * the rest; all of them if HEARTH_LONG is set. HEARTH_ALLOC_N=7 tries that one alone and says where blocks that
 * leaked came from.
 */
#ifndef TESTS_ALLOC_FAIL_H
#define TESTS_ALLOC_FAIL_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

enum { ALLOC_RESULT_MAX = 4096 };

typedef struct alloc_case {
    const char *name;
    /* One try: frees what it made, and writes what came out of it (no times, no numbers that change) into result. What the
     * test itself needs meanwhile comes from no heap. */
    int (*run)(void *ctx, char *result, err *e);
    void *ctx;
    /* ctx keeps something between tries (a cache): blocks are compared behind the next clean try, not right away. */
    bool keeps;
    /* ctx may keep more after a failure than before (another part of a prompt in its cache): whoever made ctx compares blocks
     * when it is gone. */
    bool grows;
} alloc_case;

void alloc_fail_each(const alloc_case *c);

long alloc_live(void); /* blocks */

#endif
