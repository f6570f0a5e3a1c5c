/* SPDX-License-Identifier: Apache-2.0 */
/* The work queue: order, bounds, closing, many threads. */
#include "unit/support/support.h"

#include "base/queue.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

static void test_order_and_bounds(void **state) {
    queue *q;
    void  *item;
    int    a, b, c;
    (void)state;
    assert_int_equal(queue_open(&q, 2, NULL), 0);
    assert_false(queue_try_pop(q, &item));
    assert_true(queue_push(q, &a));
    assert_true(queue_try_push(q, &b));
    assert_false(queue_try_push(q, &c));
    assert_int_equal(queue_count(q), 2);
    assert_true(queue_pop(q, &item));
    assert_ptr_equal(item, &a);
    queue_close(q);
    assert_false(queue_push(q, &c));
    assert_true(queue_pop(q, &item)); /* what it still holds comes out */
    assert_ptr_equal(item, &b);
    assert_false(queue_pop(q, &item));
    queue_free(q);
    assert_int_equal(queue_open(&q, 0, NULL), ERR_ARG);
}

enum { PRODUCERS = 3, CONSUMERS = 3, EACH = 5000 };

static atomic_long total;

static void *produce(void *arg) {
    for (uintptr_t i = 1; i <= EACH; i++) (void)queue_push(arg, (void *)i);
    return NULL;
}

static void *consume(void *arg) {
    void *item;
    while (queue_pop(arg, &item)) atomic_fetch_add(&total, (long)(uintptr_t)item);
    return NULL;
}

static void test_many_threads(void **state) {
    pthread_t threads[PRODUCERS + CONSUMERS];
    queue    *q;
    (void)state;
    assert_int_equal(queue_open(&q, 7, NULL), 0);
    for (int i = 0; i < PRODUCERS + CONSUMERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, i < PRODUCERS ? produce : consume, q), 0);
    for (int i = 0; i < PRODUCERS; i++) pthread_join(threads[i], NULL);
    queue_close(q);
    for (int i = PRODUCERS; i < PRODUCERS + CONSUMERS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&total), (long)PRODUCERS * EACH * (EACH + 1) / 2);
    queue_free(q);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_and_bounds),
        cmocka_unit_test(test_many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
