/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Speculation through the runtime, on the demo model with its own draft and its head: what people ask for (chats, thoughts, calls,
 * schemas, patterns, stop texts, seeds) is answered with the same tokens and log-probabilities whoever drafts; usage says
 * what was drafted; a prediction is used; a draft model that does not fit is refused by name.
 */
#include "unit/support/support.h"

#include "unit/support/runtime_support.h"

#include <string.h>

#define DRAFT HEARTH_SOURCE_DIR "/models/demo/draft.gguf"
#define OTHER HEARTH_SOURCE_DIR "/tests/golden/models/llama"
#define USER(text) "[{\"role\": \"user\", \"content\": \"" text "\"}]"

/* always: whatever the machine is busy with, drafts are made. */
static runtime *open_demo(const char *who, const char *draft, bool always) {
    runtime_options o = { .path = TEST_DEMO,
                          .engine = { .n_threads = 1, .n_ctx = 512, .draft_always = always, .draft_max = 4 } };
    runtime        *r;
    err             e;
    o.settings.speculate = who;
    o.settings.draft = draft;
    if (runtime_open(&r, &o, &e) < 0) fail_msg("%s", e.msg);
    return r;
}

enum { ASKS = 8 };

static void make_ask(runtime_request *q, int i) {
    static const char tools[] = "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"parameters\": "
                                "{\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}}}}}]";
    static const char schema[] = "{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\"}, \"age\": "
                                 "{\"type\": \"integer\"}}, \"required\": [\"name\", \"age\"], "
                                 "\"additionalProperties\": false}";
    static const view stop[] = { { " the", 4 }, { "and", 3 } };
    test_greedy(q, i % 2 ? USER("Tell me a story with the words fox and bread.") : USER("What is 12 plus 30?"));
    q->want_logprob = true;
    q->max_tokens = 60;
    switch (i) {
    case 2:
        q->sampling.temperature = 0.9f;
        q->sampling.seed = 7;
        q->sampling_set |= RUNTIME_SET_TEMPERATURE | RUNTIME_SET_SEED;
        q->n_choices = 2;
        break;
    case 3:
        q->messages = view_of(USER("Extract the name and the age as JSON.\\n\\nText: Tom is 31 years old."));
        q->constraint = (runtime_constraint){ RUNTIME_SCHEMA, view_of(schema) };
        break;
    case 4: q->thinking = RUNTIME_THINK_ON; break;
    case 5:
        q->stop = stop;
        q->n_stop = 2;
        break;
    case 6:
        q->messages = view_of(USER("What is the weather in Paris?"));
        q->tools = view_of(tools);
        q->tool_choice = RUNTIME_TOOLS_REQUIRED;
        break;
    case 7: q->constraint = (runtime_constraint){ RUNTIME_REGEX, view_of("(yes|no), [a-z ]{5,40}\\.") }; break;
    default: break;
    }
}

static void assert_same(const test_result *a, const test_result *b, const char *who, int i) {
    if (a->failed || b->failed) fail_msg("%s, request %d: %s", who, i, a->failed ? a->why.msg : b->why.msg);
    for (int c = 0; c < (i == 2 ? 2 : 1); c++) {
        const test_answer *x = &a->a[c], *y = &b->a[c];
        if (x->n_tokens != y->n_tokens || memcmp(x->tokens, y->tokens, (size_t)x->n_tokens * sizeof *x->tokens) != 0 ||
            x->logprob != y->logprob || x->finish != y->finish || x->stop_index != y->stop_index)
            fail_msg("%s, request %d: '%s', without drafts '%s'", who, i, str_cstr(&y->content), str_cstr(&x->content));
        assert_string_equal(str_cstr(&x->content), str_cstr(&y->content));
        assert_string_equal(str_cstr(&x->reasoning), str_cstr(&y->reasoning));
        assert_string_equal(str_cstr(&x->calls), str_cstr(&y->calls));
    }
}

static void test_same_answers(void **state) {
    static const char *const who[] = { "lookup", "draft", "auto", "mtp", "auto" };
    runtime                 *plain = open_demo("off", NULL, false);
    (void)state;
    for (size_t w = 0; w < sizeof who / sizeof *who; w++) {
        bool     always = w % 2 == 0;
        runtime *m = open_demo(who[w], w < 3 ? DRAFT : NULL, always); /* the head lies beside the model */
        int      drafted = 0;
        for (int i = 0; i < ASKS; i++) {
            runtime_request q;
            test_result     want, got;
            make_ask(&q, i);
            test_ask(plain, &q, &want);
            test_ask(m, &q, &got);
            assert_same(&want, &got, who[w], i);
            assert_int_equal(want.a[0].usage.drafted_tokens, 0);
            assert_true(got.a[0].usage.accepted_tokens <= got.a[0].usage.drafted_tokens);
            drafted += got.a[0].usage.accepted_tokens;
            test_result_deinit(&want);
            test_result_deinit(&got);
        }
        assert_true(drafted > 0 || !always);
        runtime_free(m);
    }
    runtime_free(plain);
}

/* The prediction is the answer with a word changed: most of it is accepted, and the answer stays the model's. */
static void test_prediction(void **state) {
    runtime        *m = open_demo("lookup", NULL, true);
    runtime_request q;
    test_result     first, second, third;
    str             other;
    (void)state;
    make_ask(&q, 1);
    q.no_drafts = true;
    test_ask(m, &q, &first);
    assert_int_equal(first.a[0].usage.drafted_tokens, 0);
    str_init(&other);
    str_puts(&other, str_cstr(&first.a[0].content));
    memcpy(other.data + other.len / 2, "zebra", 5);
    q.no_drafts = false;
    q.prediction = (view){ str_cstr(&other), other.len };
    test_ask(m, &q, &second);
    assert_same(&first, &second, "prediction", 1);
    assert_true(second.a[0].usage.predicted);
    assert_true(second.a[0].usage.accepted_tokens > second.a[0].n_tokens / 2);
    q.prediction = (view){ "", 0 };
    q.draft_max = 1;
    test_ask(m, &q, &third);
    assert_same(&first, &third, "again", 1);
    assert_true(!third.a[0].usage.predicted);
    assert_true(third.a[0].usage.accepted_tokens > 0);
    str_deinit(&other);
    test_result_deinit(&first);
    test_result_deinit(&second);
    test_result_deinit(&third);
    runtime_free(m);
}

/* What a request says about its drafts. */
static void test_limits(void **state) {
    runtime *m = open_demo("mtp", NULL, true);
    (void)state;
    for (int i = 0; i < 4; i++) {
        runtime_request q;
        test_result     got;
        make_ask(&q, 1);
        if (i == 1) q.draft_min = 32;
        if (i == 2) q.draft_p_min = 1;
        if (i == 3) q.draft_max = 1;
        test_ask(m, &q, &got);
        assert_false(got.failed);
        if (i == 0 || i == 3) assert_true(got.a[0].usage.accepted_tokens > 0);
        if (i == 1 || i == 2) assert_int_equal(got.a[0].usage.drafted_tokens, 0);
        test_result_deinit(&got);
    }
    runtime_free(m);
}

static void refused(const char *who, const char *draft, const char *sentence) {
    runtime_options o = { .path = TEST_DEMO, .engine = { .n_threads = 1, .n_ctx = 512 } };
    runtime        *r;
    err             e;
    o.settings.speculate = who;
    o.settings.draft = draft;
    assert_true(runtime_open(&r, &o, &e) < 0);
    if (!strstr(e.msg, sentence)) fail_msg("no '%s' in: %s", sentence, e.msg);
}

static void test_refused(void **state) {
    (void)state;
    refused("sometimes", NULL, "speculate: 'sometimes' is not off, auto, lookup, draft, mtp or eagle");
    refused("draft", NULL, "speculate: draft needs a draft model");
    refused("eagle", NULL, "speculate: eagle needs a head");
    refused("mtp", DRAFT, "this is not a file with a head of that kind alone");
    refused("mtp", HEARTH_SOURCE_DIR "/tests/golden/next/llama", "the head is for hidden states of 64");
    refused("draft", HEARTH_SOURCE_DIR "/tests/golden/next/eagle3", "this is a head of EAGLE-3");
    refused("eagle", HEARTH_SOURCE_DIR "/tests/golden/next/eagle3",
            "it is for inner states of 64, the model's have 512");
    refused("auto", HEARTH_SOURCE_DIR "/no/such.gguf", "draft model");
    refused("auto", OTHER, "draft model");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_answers),
        cmocka_unit_test(test_prediction),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
