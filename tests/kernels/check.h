/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernel checkers share. A checker is a plain program tests/kernels/check_NAME.c that links base, tensor and
 * kernels only, so that it also runs cross-compiled under an emulator:
 *
 *     int main(int argc, char **argv) {
 *         check c;
 *         if (!check_begin(&c, argc, argv)) return check_end(&c);
 *         ... kernels_init(&k, c.cpu); CHECK(&c, condition, "what %d", x); ...
 *         return check_end(&c);
 *     }
 *
 * Options: --cpu MASK (see cpu_parse; default: all that this CPU has), --quick (fewer cases, for emulators), --seed N.
 * ctest runs each checker once per instruction set. A set that this CPU lacks is reported as skipped (exit code 77).
 */
#ifndef TESTS_CHECK_H
#define TESTS_CHECK_H

#include "base/err.h"
#include "kernels/cpu.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct check {
    unsigned cpu;
    bool     quick, skipped;
    uint64_t rng;
    long     n_checks, n_failed;
} check;

bool check_begin(check *c, int argc, char **argv); /* false: usage error or skipped; return check_end */
int  check_end(check *c);                          /* prints the counts; the exit code */

/* Counts, and prints the first failures. Evaluates to the condition. */
#define CHECK(c, cond, ...) check_that((c), (cond), __FILE__, __LINE__, __VA_ARGS__)
bool check_that(check *c, bool ok, const char *file, int line, const char *fmt, ...) BASE_PRINTF(5, 6);

uint64_t check_u64(check *c);
int      check_int(check *c, int low, int high); /* both included */
float    check_normal(check *c);                 /* standard normal */
void     check_fill_normal(check *c, float *dst, size_t n, float scale);
void     check_fill_bytes(check *c, void *dst, size_t bytes);

/*
 * Memory with unmapped pages on both sides. The last byte ends `slack` bytes before the page behind it (0: a read or
 * write past the end faults at once); the gap in front is filled with a canary. check_guard_free verifies the canaries
 * around the buffer and returns false when one was overwritten.
 */
typedef struct check_guard {
    uint8_t *data;
    size_t   bytes;
    uint8_t *base;
    size_t   map_bytes;
} check_guard;

check_guard check_guard_alloc(size_t bytes, size_t slack);
bool        check_guard_intact(const check_guard *g);
bool        check_guard_free(check_guard *g);

#endif
