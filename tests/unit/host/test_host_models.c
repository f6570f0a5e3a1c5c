/* SPDX-License-Identifier: Apache-2.0 */
/* Models come and go while a host runs; what is under way is not disturbed. */
#include "unit/support/support.h"

#include "host/host.h"
#include "unit/support/host_support.h"
#include "unit/support/runtime_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void test_remove(void **state) {
    host_options    o = { .keep_alive_ms = HOST_KEEP_FOREVER };
    host           *h;
    host_model      m, *list;
    test_result     r;
    runtime_request q;
    uint64_t        id;
    size_t          n;
    err             e = { 0 };
    (void)state;
    o.program = getenv("HEARTH_PROGRAM"); /* by default it is this program, which is not a worker */
    if (!o.program) {
        printf("skipped: HEARTH_PROGRAM is not set\n");
        return;
    }
    o.runtime.engine.n_threads = 1;
    assert_int_equal(host_open(&h, &o, &e), 0);
    assert_int_equal(host_add_model(h, "one", TEST_DEMO, &e), 0);
    assert_int_equal(host_add_model(h, "two", TEST_DEMO, &e), 0);
    assert_int_equal(host_remove_model(h, view_of("three"), &e), ERR_NOTFOUND);
    for (int round = 0; round < 3; round++) { /* removed while it loads, and again under the same name */
        test_result_init(&r);
        test_greedy(&q, "[{\"role\":\"user\",\"content\":\"What is 12 plus 30?\"}]");
        q.on_event = test_collect;
        q.ctx = &r;
        assert_int_equal(test_host_submit(h, "one", &q, &id, &e), 0);
        if (round == 1) assert_int_equal(host_load(h, view_of("one"), HOST_KEEP_DEFAULT, &e), 0);
        assert_int_equal(host_remove_model(h, view_of("one:latest"), &e), 0);
        assert_int_equal(host_find(h, view_of("one"), &m, &e), ERR_NOTFOUND);
        assert_int_equal(host_list(h, &list, &n, &e), 0);
        assert_int_equal(n, 1);
        assert_string_equal(list[0].name, "two");
        free(list);
        assert_int_equal(host_add_model(h, "one", TEST_DEMO, &e), 0);
        test_result_wait(&r);
        if (r.failed) fail_msg("%s", r.why.msg);
        assert_string_equal(str_cstr(&r.a[0].content), "12 plus 30 is 42.");
        test_result_deinit(&r);
    }
    assert_int_equal(host_load(h, view_of("two"), HOST_KEEP_DEFAULT, &e), 0);
    assert_int_equal(host_remove_model(h, view_of("two"), &e), 0);
    host_free(h);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_remove) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
