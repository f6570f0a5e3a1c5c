/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of hosts with real workers share: opening, asking, judging. */
#ifndef TESTS_HOST_CASES_H
#define TESTS_HOST_CASES_H

#include "host/host.h"
#include "unit/support/host_support.h"
#include "unit/support/runtime_support.h"
#include "unit/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TEST_HELPER __attribute__((unused)) static /* not every test needs each of them */

#define TEST_DRAFT HEARTH_SOURCE_DIR "/models/demo/draft.gguf"

TEST_HELPER const char SUM[] = "[{\"role\": \"user\", \"content\": \"What is 12 plus 30?\"}]";
TEST_HELPER const char STORY[] = "[{\"role\": \"user\", \"content\": \"Tell me a story about a cat and a boat.\"}]";

static char *kept_env[8]; /* what sanitizers read */

/* Without a program the host would start this one as its worker, which would start itself again, without end. */
TEST_HELPER host_options usual(void) {
    const char *program = getenv("HEARTH_PROGRAM");
    if (!program) {
        printf("skipped: HEARTH_PROGRAM is not set\n");
        exit(0);
    }
    return (host_options){ .program = program,
                           .keep_alive_ms = HOST_KEEP_DEFAULT,
                           .budget = { .on = { { DEVICE_CPU, HOST_NO_LIMIT } }, .n = 1 },
                           .runtime = { .engine = { .n_threads = 1 } },
                           .worker_env = kept_env };
}

TEST_HELPER host *open_host(const host_options *o) {
    host *h;
    err   e = { 0 };
    if (host_open(&h, o, &e) < 0) fail_msg("%s", e.msg);
    return h;
}

TEST_HELPER void add(host *h, const char *name, const char *path) {
    err e = { 0 };
    if (host_add_model(h, name, path, &e) < 0) fail_msg("%s", e.msg);
}

TEST_HELPER uint64_t submit(host *h, const char *model, runtime_request *q, test_result *r) {
    uint64_t id = 0;
    err      e = { 0 };
    test_result_init(r);
    q->on_event = test_collect;
    q->ctx = r;
    if (test_host_submit(h, model, q, &id, &e) < 0) fail_msg("%s", e.msg);
    return id;
}

TEST_HELPER void ask(host *h, const char *model, runtime_request *q, test_result *r) {
    submit(h, model, q, r);
    test_result_wait(r);
}

TEST_HELPER void assert_answer(test_result *r, const char *text) {
    if (r->failed) fail_msg("%s", r->why.msg);
    assert_string_equal(str_cstr(&r->a[0].content), text);
    test_result_deinit(r);
}

#define assert_failure(r, p) assert_failure_(r, p, __LINE__)
TEST_HELPER void assert_failure_(test_result *r, const char *part, int line) {
    assert_true(r->failed);
    if (!strstr(r->why.msg, part)) fail_msg("line %d: '%s' is not in '%s'", line, part, r->why.msg);
    test_result_deinit(r);
}

TEST_HELPER host_model look_up(host *h, const char *name) {
    host_model m;
    assert_int_equal(host_find(h, view_of(name), &m, NULL), 0);
    return m;
}

TEST_HELPER void wait_events(test_result *r, int n) {
    pthread_mutex_lock(&r->lock);
    while (r->n_events < n && !r->last) pthread_cond_wait(&r->moved, &r->lock);
    pthread_mutex_unlock(&r->lock);
}

TEST_HELPER void assert_gone(pid_t pid) {
    for (int i = 0; i < 1000; i++) {
        char  path[64], text[256] = "";
        FILE *f;
        snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
        if (!(f = fopen(path, "re"))) return;
        const char *end = fgets(text, sizeof text, f) ? strrchr(text, ')') : NULL;
        fclose(f);
        if (end && end[2] == 'Z') return; /* ended; whoever is its parent now will notice */
        nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
    }
    fail_msg("process %d is still there", (int)pid);
}

/* What sanitizers read is passed on to the workers. */
TEST_HELPER void keep_environment(void) {
    static const char *const names[] = { "ASAN_OPTIONS=", "UBSAN_OPTIONS=", "LSAN_OPTIONS=", "TSAN_OPTIONS=" };
    size_t                   n = 0;
    for (char **v = environ; *v; v++) {
        for (size_t i = 0; i < 4; i++) {
            if (strncmp(*v, names[i], strlen(names[i])) == 0 && n < 7) kept_env[n++] = *v;
        }
    }
}

#endif
