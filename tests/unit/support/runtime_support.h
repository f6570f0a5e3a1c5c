/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the runtime share: a request from its beginning to its end, and all that came out of it. */
#ifndef TESTS_RUNTIME_SUPPORT_H
#define TESTS_RUNTIME_SUPPORT_H

#include "runtime/runtime.h"

#include <pthread.h>

#define TEST_DEMO HEARTH_SOURCE_DIR "/models/demo/demo.gguf"

enum { TEST_MAX_CHOICES = 4, TEST_MAX_IDS = 2048 };

typedef struct test_answer {
    str            content, reasoning;
    str            calls; /* name arguments; name arguments; */
    int            n_calls;
    char           ids[4][32];
    runtime_finish finish;
    int            stop_index;
    runtime_usage  usage;
    bool           done;
    int            n_tokens;
    int32_t        tokens[TEST_MAX_IDS];
    double         logprob; /* sum */
} test_answer;

typedef struct test_result {
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t  moved;
    test_answer     a[TEST_MAX_CHOICES];
    int             n_events, n_progress, prompt_tokens, n_started, n_over;
    bool            last, failed;
    bool            bad; /* events came in a wrong order */
    err             why;
    float           vector[1024];
    int             n_vector;
    char            labels[256]; /* of classes, as JSON */
} test_result;

void     test_collect(void *ctx, const runtime_event *ev); /* the callback; ctx is a test_result */
void     test_result_init(test_result *r);
void     test_result_deinit(test_result *r);
void     test_result_wait(test_result *r); /* fails the test when the order of events was wrong */
uint64_t test_submit(runtime *m, runtime_request *q, test_result *r);
void     test_ask(runtime *m, runtime_request *q, test_result *r); /* init, submit, wait */

/* A chat with temperature 0 and without thoughts. */
void test_greedy(runtime_request *q, const char *messages);

/* Group set-up and tear-down: *state is a runtime with the demo model on one thread. */
int test_demo_open(void **state);
int test_demo_close(void **state);

/* The one event of a request that is wrong: this code, and a sentence that holds the text. */
void test_request_refused(runtime *m, runtime_request *q, int code, const char *sentence);

#endif
