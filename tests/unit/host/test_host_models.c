/* SPDX-License-Identifier: Apache-2.0 */
/* Models come and go while a host runs; what is under way is not disturbed. */
#include "unit/support/support.h"

#include "base/clock.h"
#include "host/host.h"
#include "unit/support/host_support.h"
#include "unit/support/runtime_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* --- names that share a worker --- */

/* What the demo answers under this name. */
static char *answer_of(host *h, const char *name) {
    test_result     r;
    runtime_request q;
    uint64_t        id;
    err             e = { 0 };
    test_result_init(&r);
    test_greedy(&q, "[{\"role\":\"user\",\"content\":\"What is 12 plus 30?\"}]");
    q.on_event = test_collect;
    q.ctx = &r;
    if (test_host_submit(h, name, &q, &id, &e) < 0) fail_msg("%s", e.msg);
    test_result_wait(&r);
    if (r.failed) fail_msg("%s", r.why.msg);
    char *out = strdup(str_cstr(&r.a[0].content));
    test_result_deinit(&r);
    return out;
}

static void assert_answer(host *h, const char *name, const char *want) {
    char *got = answer_of(h, name);
    assert_string_equal(got, want);
    free(got);
}

static host_model look(host *h, const char *name) {
    host_model m;
    err        e = { 0 };
    if (host_find(h, view_of(name), &m, &e) < 0) fail_msg("%s", e.msg);
    return m;
}

/* An adapter of weight 0 makes a model of adapters that computes as its base; a stop text tells the names apart. */
static void add_tuned(host *h, const char *name, const char *stop, bool pinned) {
    runtime_lora       none = { view_of(TEST_DEMO), 0 };
    runtime_settings   s = { .lora = &none, .n_lora = 1, .stop = &stop, .n_stop = 1 };
    host_model_options o = { .settings = &s, .keep_alive_ms = HOST_KEEP_DEFAULT, .pinned = pinned };
    err                e = { 0 };
    if (host_add_model_with(h, name, TEST_DEMO, &o, &e) < 0) fail_msg("%s", e.msg);
}

static int loaded(host *h) {
    host_stats s;
    host_stat(h, &s);
    return s.n_loaded;
}

static void check_sharing(host *h) {
    host_stats s;
    err        e = { 0 };
    assert_answer(h, "base", "12 plus 30 is 42.");
    assert_answer(h, "tuned", "12 plus ");
    int pid = look(h, "base").pid;
    assert_true(pid > 0 && look(h, "tuned").pid == pid);
    assert_int_equal(look(h, "other").state, HOST_UNLOADED); /* nobody has asked for it by this name */
    host_stat(h, &s);
    assert_int_equal(s.n_loaded, 1);
    assert_true(look(h, "base").need_bytes == s.need_bytes && look(h, "tuned").need_bytes == 0);
    /* Unloading a name leaves the worker to the others. */
    assert_int_equal(host_unload(h, view_of("base"), &e), 0);
    assert_int_equal(look(h, "base").state, HOST_UNLOADED);
    assert_true(look(h, "tuned").state == HOST_LOADED && look(h, "tuned").pid == pid);
    assert_true(look(h, "tuned").need_bytes == s.need_bytes);
    assert_answer(h, "other", "12 plus 30");
    assert_int_equal(look(h, "other").pid, pid);
    /* The base goes; the others keep what was its worker, and it comes back to it. */
    assert_int_equal(host_remove_model(h, view_of("base"), &e), 0);
    assert_answer(h, "tuned", "12 plus ");
    assert_int_equal(look(h, "tuned").pid, pid);
    assert_int_equal(host_add_model(h, "base", TEST_DEMO, &e), 0);
    assert_answer(h, "base", "12 plus 30 is 42.");
    assert_int_equal(look(h, "base").pid, pid);
}

static void test_share(void **state) {
    host_options o = { .keep_alive_ms = HOST_KEEP_FOREVER };
    host        *h;
    err          e = { 0 };
    (void)state;
    o.program = getenv("HEARTH_PROGRAM");
    if (!o.program) {
        printf("skipped: HEARTH_PROGRAM is not set\n");
        return;
    }
    o.runtime.engine.n_threads = 1;
    assert_int_equal(host_open(&h, &o, &e), 0);
    assert_int_equal(host_add_model(h, "base", TEST_DEMO, &e), 0);
    add_tuned(h, "tuned", "30", false);
    add_tuned(h, "other", " is", false);
    check_sharing(h);
    /* An adapter that the worker could not read yet: it begins again, and nobody else notices. */
    int pid = look(h, "tuned").pid;
    add_tuned(h, "late", "plus", true);
    assert_answer(h, "late", "12 ");
    assert_true(look(h, "late").pid != pid && loaded(h) == 1);
    assert_answer(h, "tuned", "12 plus ");
    assert_int_equal(look(h, "tuned").pid, look(h, "late").pid);
    assert_true(look(h, "late").pinned && !look(h, "tuned").pinned);
    /* Nobody is left. */
    assert_int_equal(host_unload(h, view_of("tuned"), &e), 0);
    assert_int_equal(host_unload(h, view_of("late"), &e), 0);
    assert_int_equal(loaded(h), 0);
    host_free(h);
}

/* Loaded ahead: nobody waits, and it comes up all the same, behind one that has the only place; a broken file is given up. */
static void test_want(void **state) {
    host_options o = { .keep_alive_ms = HOST_KEEP_FOREVER, .max_loaded = 1 };
    host        *h;
    err          e = { 0 };
    char        *dir = test_temp_dir(), path[600];
    (void)state;
    o.program = getenv("HEARTH_PROGRAM");
    if (!o.program) {
        printf("skipped: HEARTH_PROGRAM is not set\n");
        test_temp_dir_remove(dir);
        return;
    }
    snprintf(path, sizeof path, "%s/broken.gguf", dir);
    FILE *f = fopen(path, "wb");
    assert_true(f && fputs("GGUF nonsense", f) >= 0 && fclose(f) == 0);
    o.runtime.engine.n_threads = 1;
    assert_int_equal(host_open(&h, &o, &e), 0);
    assert_int_equal(host_add_model(h, "one", TEST_DEMO, &e), 0);
    assert_int_equal(host_add_model(h, "two", TEST_DEMO, &e), 0);
    assert_int_equal(host_add_model(h, "broken", path, &e), 0);
    assert_int_equal(host_want(h, view_of("nobody"), &e), ERR_NOTFOUND);
    assert_int_equal(host_load(h, view_of("one"), HOST_KEEP_DEFAULT, &e), 0);
    assert_int_equal(host_want(h, view_of("two"), &e), 0);
    assert_int_equal(host_want(h, view_of("broken"), &e), 0);
    for (int64_t end = clock_ms() + 60000; look(h, "two").state != HOST_LOADED;) {
        if (clock_ms() > end) fail_msg("it was not loaded");
        usleep(2000);
    }
    assert_answer(h, "two", "12 plus 30 is 42.");
    assert_true(host_load(h, view_of("broken"), HOST_KEEP_DEFAULT, &e) < 0);
    assert_int_equal(look(h, "broken").state, HOST_UNLOADED);
    assert_int_equal(host_want(h, view_of("one"), &e), 0); /* on its way when the host ends */
    host_free(h);
    test_temp_dir_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_remove), cmocka_unit_test(test_share),
                                        cmocka_unit_test(test_want) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
