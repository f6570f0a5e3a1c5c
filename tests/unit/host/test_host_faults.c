/* SPDX-License-Identifier: Apache-2.0 */
/* Workers that fail: the failure stays where it happens. The program itself is run for the workers. */
#include "unit/support/host_cases.h"

#include "base/file.h"

#include <sys/stat.h>

/* One attempt; everybody who waits hears the worker's sentence; nothing else suffers. */
static void test_failed_load(void **state) {
    host_options    o = usual();
    host           *h = open_host(&o);
    char           *dir = test_temp_dir(), path[512];
    test_result     r[4], good;
    runtime_request q[5];
    err             e = { 0 };
    (void)state;
    snprintf(path, sizeof path, "%s/bad.gguf", dir);
    FILE *f = fopen(path, "we");
    fputs("GGUF this is not a model", f);
    fclose(f);
    add(h, "bad", path);
    add(h, "demo", TEST_DEMO);
    for (int i = 0; i < 5; i++) test_greedy(&q[i], SUM);
    for (int i = 0; i < 4; i++) submit(h, "bad", &q[i], &r[i]);
    submit(h, "demo", &q[4], &good);
    for (int i = 0; i < 4; i++) {
        test_result_wait(&r[i]);
        assert_int_equal(r[i].n_events, 1);
        assert_int_equal(r[i].why.code, ERR_UNLOADED);
        assert_failure(&r[i], "cannot load model bad: ");
    }
    test_result_wait(&good);
    assert_answer(&good, "12 plus 30 is 42.");
    assert_true(host_load(h, view_of("bad"), HOST_KEEP_DEFAULT, &e) < 0);
    assert_non_null(strstr(e.msg, "bad.gguf"));
    assert_int_equal(look_up(h, "bad").crashes, 0); /* refusing a file is not crashing */
    host_free(h);
    test_temp_dir_remove(dir);
}

/* A worker that crashes in the middle of an answer: its requests end with one error, its neighbour's do not notice, and
 * after three times the file is left alone until it changes or is loaded by name. */
static void test_crash_and_quarantine(void **state) {
    host_options    o = usual();
    char           *dir = test_temp_dir(), path[512];
    runtime_request q, other;
    test_result     r, second, neighbour;
    err             e = { 0 };
    (void)state;
    snprintf(path, sizeof path, "%s/copy.gguf", dir);
    assert_int_equal(link(TEST_DRAFT, path) == 0 || symlink(TEST_DRAFT, path) == 0, 1);
    o.debug_fault = "frail=segv:6";
    host *h = open_host(&o);
    add(h, "frail", path);
    add(h, "demo", TEST_DEMO);
    test_greedy(&q, STORY);
    test_greedy(&other, SUM);
    for (int i = 0; i < 3; i++) {
        runtime_request same = q;
        submit(h, "demo", &other, &neighbour);
        submit(h, "frail", &q, &r);
        submit(h, "frail", &same, &second);
        test_result_wait(&r);
        test_result_wait(&second);
        assert_int_equal(r.why.code, ERR_IO);
        assert_failure(&r, TEST_SANITIZED ? "ended unexpectedly" : "ended unexpectedly (signal 11");
        assert_failure(&second, "ended unexpectedly");
        test_result_wait(&neighbour);
        assert_answer(&neighbour, "12 plus 30 is 42.");
        assert_int_equal(look_up(h, "frail").crashes, i + 1);
    }
    ask(h, "frail", &q, &r);
    assert_int_equal(r.n_events, 1);
    assert_failure(&r, "crashed 3 times");
    assert_true(look_up(h, "frail").quarantined);
    assert_int_equal(look_up(h, "frail").crashes, 3); /* it was not tried */
    assert_int_equal(host_load(h, view_of("frail"), HOST_KEEP_DEFAULT, &e), 0);
    assert_false(look_up(h, "frail").quarantined);
    for (int i = 0; i < 3; i++) {
        ask(h, "frail", &q, &r);
        assert_failure(&r, "ended unexpectedly");
    }
    ask(h, "frail", &q, &r);
    assert_failure(&r, "crashed 3 times");
    unlink(path); /* another file in its place */
    assert_int_equal(symlink(TEST_DEMO, path), 0);
    ask(h, "frail", &q, &r);
    assert_failure(&r, "ended unexpectedly");
    host_free(h);
    test_temp_dir_remove(dir);
}

static void expect_fault(const char *fault, const char *sentence) {
    host_options    o = usual();
    runtime_request q;
    test_result     r;
    char            spec[64];
    snprintf(spec, sizeof spec, "m=%s", fault);
    o.debug_fault = spec;
    if (strncmp(fault, "hang", 4) == 0) o.hang_ms = TEST_SANITIZED ? 3000 : 400;
    host *h = open_host(&o);
    add(h, "m", TEST_DRAFT);
    test_greedy(&q, STORY);
    ask(h, "m", &q, &r);
    assert_failure(&r, sentence);
    host_free(h);
}

static void test_other_faults(void **state) {
    (void)state;
    expect_fault("hang:4", "did nothing for");
    expect_fault("hang:0", "did nothing for");
    expect_fault("exit:3", "(exit code 7)");
    expect_fault("exit:0", "(exit code 7)");
    expect_fault("garbage:2", "cannot be understood");
    expect_fault("broken:1", "cannot be understood (prompt_tokens lies outside its range)");
    expect_fault("broken:3", "cannot be understood (text is too long)");
    expect_fault("stray:2", "cannot be understood (an event that belongs to no request)");
    expect_fault("nonsense", "ended unexpectedly (exit code 3)");
}

typedef struct first_words {
    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t  moved;
    uint64_t        worker;
    bool            last;
} first_words;

static void on_words(void *ctx, const host_event *ev) {
    first_words *f = ctx;
    pthread_mutex_lock(&f->lock);
    if (ev->worker) f->worker = ev->worker;
    f->last = ev->last;
    pthread_cond_signal(&f->moved);
    pthread_mutex_unlock(&f->lock);
}

/* However often a worker is said to make no sense, it is ended once; a word that comes too late does not hit the next
 * one. */
static void test_distrust(void **state) {
    host_options    o = usual();
    runtime_request q;
    test_result     r;
    host_stats      s;
    first_words     f = { .lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER };
    uint64_t        id;
    err             e = { 0 };
    (void)state;
    host *h = open_host(&o);
    add(h, "m", TEST_DEMO);
    test_greedy(&q, STORY);
    assert_int_equal(host_submit(h, view_of("m"), &q, HOST_KEEP_DEFAULT, on_words, &f, &id, &e), 0);
    pthread_mutex_lock(&f.lock);
    while (!f.worker) pthread_cond_wait(&f.moved, &f.lock);
    pthread_mutex_unlock(&f.lock);
    for (int i = 0; i < 3; i++) {
        err_set(&e, ERR_FORMAT, "a word too many");
        host_distrust(h, f.worker, &e);
        assert_string_equal(e.msg, "the model's worker said something that cannot be understood (a word too many)");
    }
    pthread_mutex_lock(&f.lock);
    while (!f.last) pthread_cond_wait(&f.moved, &f.lock);
    pthread_mutex_unlock(&f.lock);
    for (int i = 0; i < 3; i++) {
        test_greedy(&q, SUM);
        ask(h, "m", &q, &r);
        if (r.failed) fail_msg("%s", r.why.msg);
        test_result_deinit(&r);
        host_distrust(h, f.worker, &e); /* it has gone long ago */
    }
    host_stat(h, &s);
    assert_int_equal(s.crashes, 1);
    host_free(h);
}

/* Behind the walls: neither a socket nor a foreign file. */
static void test_sandboxed(void **state) {
    (void)state;
    expect_fault("socket", "ended unexpectedly (signal 31");
    expect_fault("open:/etc/passwd", "the sandbox refused it: Permission denied");
}

/* A device that is gone for the worker's process: everybody hears it, the process ends by itself, the next request gets
 * a new one, and the model is not blamed. */
static void test_lost(void **state) {
    host_options    o = usual();
    runtime_request q, other, again;
    test_result     r, second, neighbour;
    (void)state;
    o.debug_fault = "frail=lost:6";
    host *h = open_host(&o);
    add(h, "frail", TEST_DRAFT);
    add(h, "demo", TEST_DEMO);
    test_greedy(&q, STORY);
    test_greedy(&other, SUM);
    q.max_tokens = 60;
    for (int i = 0; i < 4; i++) { /* a crash would be three times too many */
        again = q;
        submit(h, "demo", &other, &neighbour);
        submit(h, "frail", &q, &r);
        submit(h, "frail", &again, &second);
        test_result_wait(&r);
        test_result_wait(&second);
        assert_int_equal(r.why.code, ERR_LOST);
        assert_int_equal(second.why.code, ERR_LOST);
        assert_failure(&r, "lost");
        assert_failure(&second, "lost");
        test_result_wait(&neighbour);
        assert_answer(&neighbour, "12 plus 30 is 42.");
        assert_false(look_up(h, "frail").quarantined);
    }
    host_free(h);
}

/* A device that nobody named turns out to be full when the model is loaded: it says anew what it needs, gets a place for
 * that and answers. */
static void test_moved(void **state) {
    host_options    o = usual();
    runtime_request q;
    test_result     r;
    host_stats      st;
    (void)state;
    o.debug_fault = "demo=full:1";
    host *h = open_host(&o);
    add(h, "demo", TEST_DEMO);
    test_greedy(&q, SUM);
    for (int i = 0; i < 2; i++) {
        ask(h, "demo", &q, &r);
        assert_answer(&r, "12 plus 30 is 42.");
    }
    host_model m = look_up(h, "demo");
    assert_true(m.state == HOST_LOADED && m.crashes == 0);
    host_stat(h, &st); /* counted once */
    assert_int_equal(st.need_bytes, m.need_bytes);
    assert_int_equal(device_memory_on(&m.need, DEVICE_CPU), m.need_bytes);
    assert_string_equal(m.device, DEVICE_CPU);
    host_free(h);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failed_load),  cmocka_unit_test(test_crash_and_quarantine),
        cmocka_unit_test(test_other_faults), cmocka_unit_test(test_distrust),
        cmocka_unit_test(test_sandboxed),    cmocka_unit_test(test_lost),
        cmocka_unit_test(test_moved),
    };
    keep_environment();
    test_filter();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
