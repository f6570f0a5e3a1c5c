/* SPDX-License-Identifier: Apache-2.0 */
/* The compute pool: every worker runs once per round, barriers hold, fewer workers are advised
 * when the others make the first one wait, an idle pool uses no CPU. */
#include "unit/support/support.h"

#include "base/pool.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 150, PHASES = 5 };

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
        pool_barrier(s->p, worker);
        for (int w = 0; w < n_workers; w++) {
            if (s->phase[w] != phase) atomic_fetch_add(&s->wrong, 1);
        }
        pool_barrier(s->p, worker);
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

/* Runs of different sizes after each other: those who take part do so once, the others not at all. */
static void test_some(void **state) {
    shared s;
    int    wanted[4] = { 0 };
    (void)state;
    memset(&s, 0, sizeof s);
    assert_int_equal(pool_open(&s.p, 4, false, NULL), 0);
    for (int i = 0; i < ROUNDS; i++) {
        int n = 1 + i * 7 / 3 % 4;
        pool_run_some(s.p, n, work, &s);
        for (int w = 0; w < n; w++) wanted[w]++;
        for (int w = 0; w < 4; w++) assert_int_equal(atomic_load(&s.runs[w]), wanted[w]);
    }
    assert_int_equal(atomic_load(&s.wrong), 0);
    pool_free(s.p);
}

/* Every worker but the first takes 3 ms, as if its core were taken away. */
static void slow_others(void *ctx, int worker, int n_workers) {
    struct timespec t = { 0, 3000000 };
    (void)ctx, (void)n_workers;
    if (worker > 0) nanosleep(&t, NULL);
}

static void test_advice(void **state) {
    pool *p;
    (void)state;
    assert_int_equal(pool_open(&p, 4, false, NULL), 0);
    assert_int_equal(pool_advice(p), 4);
#if !defined(__SANITIZE_THREAD__)
    for (int i = 0; i < 1000 && pool_advice(p) > 1; i++) pool_run_some(p, pool_advice(p), slow_others, NULL);
    assert_int_equal(pool_advice(p), 1);
    while (pool_advice(p) == 1) pool_run_some(p, 1, slow_others, NULL); /* it is tried again */
    assert_int_equal(pool_advice(p), 2);
#endif
    pool_free(p);
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
        cmocka_unit_test(test_rounds_and_barriers), cmocka_unit_test(test_some),       cmocka_unit_test(test_advice),
        cmocka_unit_test(test_idle_uses_no_cpu),    cmocka_unit_test(test_bad_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
