/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/support/runtime_support.h"

#include "unit/support/support.h"

#include <stdio.h>
#include <string.h>

void test_collect(void *ctx, const runtime_event *ev) {
    test_result *r = ctx;
    pthread_mutex_lock(&r->lock);
    test_answer *a = &r->a[ev->choice > 0 ? ev->choice : 0];
    /* Order: STARTED first unless the request fails as a whole; nothing behind the last one or behind a DONE. */
    if (r->last || a->done) r->bad = true;
    if (r->n_events == 0 && ev->kind != RUNTIME_STARTED && ev->kind != RUNTIME_ERROR &&
        !(ev->kind == RUNTIME_DONE && ev->finish == RUNTIME_CANCELLED))
        r->bad = true;
    r->n_events++;
    switch (ev->kind) {
    case RUNTIME_STARTED:
        r->n_started++;
        r->prompt_tokens = ev->prompt_tokens;
        break;
    case RUNTIME_PROGRESS: r->n_progress++; break;
    case RUNTIME_CONTENT: str_append(&a->content, ev->text.data, ev->text.len); break;
    case RUNTIME_REASONING: str_append(&a->reasoning, ev->text.data, ev->text.len); break;
    case RUNTIME_TOOL_BEGIN:
        if (ev->index != a->n_calls || ev->index >= 4) r->bad = true;
        snprintf(a->ids[ev->index & 3], sizeof a->ids[0], "%.*s", (int)ev->id.len, ev->id.data);
        str_append(&a->calls, ev->name.data, ev->name.len);
        str_push(&a->calls, ' ');
        break;
    case RUNTIME_TOOL_ARGUMENTS: str_append(&a->calls, ev->text.data, ev->text.len); break;
    case RUNTIME_TOOL_END:
        a->n_calls++;
        str_puts(&a->calls, "; ");
        break;
    case RUNTIME_TOKEN:
        if (a->n_tokens < TEST_MAX_IDS) a->tokens[a->n_tokens] = ev->token;
        a->n_tokens++;
        a->logprob += (double)ev->logprob;
        for (int i = 1; i < ev->n_top; i++)
            if (ev->top[i].logprob > ev->top[i - 1].logprob) r->bad = true;
        break;
    case RUNTIME_EMBEDDING:
    case RUNTIME_CLASSES:
        snprintf(r->labels, sizeof r->labels, "%.*s", (int)ev->text.len, ev->text.data);
        r->n_vector = ev->n_vector;
        if (ev->n_vector <= 1024) memcpy(r->vector, ev->vector, (size_t)ev->n_vector * sizeof *r->vector);
        break;
    case RUNTIME_DONE:
        a->done = true;
        a->finish = ev->finish;
        a->stop_index = ev->stop_index;
        a->usage = ev->usage;
        r->n_over++;
        break;
    case RUNTIME_ERROR:
        r->failed = true;
        r->why = *ev->error;
        r->n_over++;
        break;
    default: break;
    }
    r->last = ev->last;
    pthread_cond_signal(&r->moved);
    pthread_mutex_unlock(&r->lock);
}

void test_result_init(test_result *r) {
    memset(r, 0, sizeof *r);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->moved, NULL);
}

void test_result_deinit(test_result *r) {
    for (int i = 0; i < TEST_MAX_CHOICES; i++) {
        str_deinit(&r->a[i].content);
        str_deinit(&r->a[i].reasoning);
        str_deinit(&r->a[i].calls);
    }
    pthread_cond_destroy(&r->moved);
    pthread_mutex_destroy(&r->lock);
}

void test_result_wait(test_result *r) {
    pthread_mutex_lock(&r->lock);
    while (!r->last) pthread_cond_wait(&r->moved, &r->lock);
    pthread_mutex_unlock(&r->lock);
    assert_false(r->bad);
}

uint64_t test_submit(runtime *m, runtime_request *q, test_result *r) {
    uint64_t id = 0;
    err      e = { 0 };
    q->on_event = test_collect;
    q->ctx = r;
    if (runtime_submit(m, q, &id, &e) < 0) fail_msg("%s", e.msg);
    return id;
}

/* One request from its beginning to its end. */
void test_ask(runtime *m, runtime_request *q, test_result *r) {
    test_result_init(r);
    test_submit(m, q, r);
    test_result_wait(r);
}

void test_greedy(runtime_request *q, const char *messages) {
    runtime_request_init(q);
    q->task = RUNTIME_CHAT;
    q->messages = view_of(messages);
    q->thinking = RUNTIME_THINK_OFF;
    q->sampling.temperature = 0;
    q->sampling_set = RUNTIME_SET_TEMPERATURE;
}

int test_demo_open(void **state) {
    runtime_options o = { .path = TEST_DEMO, .engine = { .n_threads = 1 } };
    err             e = { 0 };
    runtime        *m;
    if (runtime_open(&m, &o, &e) < 0) fail_msg("%s", e.msg);
    *state = m;
    return 0;
}

int test_demo_close(void **state) {
    runtime_free(*state);
    return 0;
}

void test_request_refused(runtime *m, runtime_request *q, int code, const char *sentence) {
    test_result r;
    test_ask(m, q, &r);
    if (!r.failed || r.why.code != code || !strstr(r.why.msg, sentence))
        fail_msg("expected \"%s\", got %d: %s", sentence, r.why.code, r.why.msg);
    assert_int_equal(r.n_events, 1);
    test_result_deinit(&r);
}
