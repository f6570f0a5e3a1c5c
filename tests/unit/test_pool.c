/* SPDX-License-Identifier: Apache-2.0 */
/* The compute pool: every worker runs once per round, barriers hold, an idle pool uses no CPU. */
#include "unit/support/support.h"

#include "base/pool.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 500, PHASES = 5 };

typedef struct shared {
    pool      *p;
    atomic_int runs[8];
    int        phase[8]; /* plain on purpose: the barrier must order it, and ThreadSanitizer checks that */
    atomic_int wrong;
} shared;

static void work(void *ctx, int worker, int n_workers) {
    shared *s = ctx;
    atomic_fetch_add(&s->runs[worker], 1);
    for (int phase = 1; phase <= PHASES; phase++) {
        s->phase[worker] = phase;
        pool_barrier(s->p);
        for (int w = 0; w < n_workers; w++) {
            if (s->phase[w] != phase) atomic_fetch_add(&s->wrong, 1);
        }
        pool_barrier(s->p);
    }
}

static void test_rounds_and_barriers(void **state) {
    (void)state;
    for (int n = 1; n <= 4; n++) {
        shared s;
        err    e;
        memset(&s, 0, sizeof s);
        assert_int_equal(pool_open(&s.p, n, n == 2, &e), 0);
        assert_int_equal(pool_threads(s.p), n);
        for (int i = 0; i < ROUNDS; i++) pool_run(s.p, work, &s);
        for (int w = 0; w < n; w++) assert_int_equal(atomic_load(&s.runs[w]), ROUNDS);
        assert_int_equal(atomic_load(&s.wrong), 0);
        pool_free(s.p);
    }
}

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void test_idle_uses_no_cpu(void **state) {
    shared          s;
    struct timespec rest = { 0, 300 * 1000 * 1000 };
    (void)state;
    memset(&s, 0, sizeof s);
    assert_int_equal(pool_open(&s.p, 4, false, NULL), 0);
    pool_run(s.p, work, &s);
    double before = cpu_seconds();
    nanosleep(&rest, NULL); /* the time that is measured, not a synchronisation */
    assert_true(cpu_seconds() - before < 0.1);
    pool_free(s.p);
}

static void test_bad_counts(void **state) {
    pool *p;
    err   e;
    (void)state;
    assert_int_equal(pool_open(&p, 0, false, &e), ERR_ARG);
    assert_null(p);
    assert_int_equal(pool_open(&p, 100000, false, &e), ERR_ARG);
    pool_free(NULL);
    assert_true(pool_default_threads() >= 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounds_and_barriers),
        cmocka_unit_test(test_idle_uses_no_cpu),
        cmocka_unit_test(test_bad_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
