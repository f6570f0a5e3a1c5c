/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Required and named calls from the request to the events, with a real template of every syntax and a model that
 * knows none of them (the demo model, hot): every answer is a call of an offered tool whose arguments its schema
 * accepts. Wherever the limit cuts it off, its beginning is told, streamed or not.
 */
#include "unit/support/support.h"

#include "base/file.h"
#include "base/json.h"
#include "grammar/grammar.h"
#include "unit/support/runtime_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WEATHER                                                                                                        \
    "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\",\"description\":\"c\",\"maxLength\":12},"      \
    "\"days\":{"                                                                                                       \
    "\"type\":\"integer\",\"description\":\"d\",\"minimum\":1,\"maximum\":9},\"unit\":{\"type\":\"string\","           \
    "\"description\":"                                                                                                 \
    "\"u\",\"enum\":[\"celsius\",\"fahrenheit\"]}},\"required\":[\"city\"],\"additionalProperties\":false}"
#define LIGHT                                                                                                          \
    "{\"type\":\"object\",\"properties\":{\"rooms\":{\"type\":\"array\",\"description\":\"r\",\"items\":{\"type\":"    \
    "\"string\",\"pattern\":\"^[a-z]{1,5}$\"},\"minItems\":1,\"maxItems\":2},\"on\":{\"type\":\"boolean\","            \
    "\"description\":"                                                                                                 \
    "\"o\"}},\"required\":[\"rooms\",\"on\"],\"additionalProperties\":false}"

static const char TOOLS[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":\"Weather\",\"parameters\":" WEATHER
    "}},{\"type\":\"function\",\"function\":{\"name\":\"switch_light\",\"description\":\"Light\",\"parameters\":" LIGHT
    "}}]";

static bool fits(const char *schema, const char *text, size_t n) {
    grammar         *g;
    grammar_matcher *m;
    grammar_vocab   *v;
    view             one = view_of("x");
    err              e = { 0 };
    if (grammar_from_schema(&g, view_of(schema), &e) < 0) fail_msg("%s", e.msg);
    assert_int_equal(grammar_vocab_open_texts(&v, &one, 1, NULL, 0, &e), 0);
    assert_int_equal(grammar_matcher_open(&m, g, v, &e), 0);
    bool ok = grammar_matcher_accept_bytes(m, text, n) && grammar_matcher_may_end(m);
    grammar_matcher_free(m);
    grammar_vocab_free(v);
    grammar_unref(g);
    return ok;
}

/* "name {...}; name {...}; " */
static void check_calls(const char *file, const test_answer *a, const char *only) {
    const char *at = str_cstr(&a->calls);
    if (a->n_calls < 1 || a->content.len) fail_msg("%s: %d calls and \"%s\"", file, a->n_calls, str_cstr(&a->content));
    for (int i = 0; i < a->n_calls; i++) {
        const char *space = strchr(at, ' ');
        json_reader r;
        assert_non_null(space);
        bool weather = strncmp(at, "get_weather ", 12) == 0;
        assert_true(weather || strncmp(at, "switch_light ", 13) == 0);
        if (only) assert_memory_equal(at, only, strlen(only));
        json_reader_init(&r, space + 1, strlen(space + 1));
        assert_int_equal(json_next(&r), JSON_OBJECT_BEGIN);
        assert_true(json_skip(&r, JSON_OBJECT_BEGIN));
        size_t n = r.pos;
        json_reader_deinit(&r);
        if (!fits(weather ? WEATHER : LIGHT, space + 1, n)) fail_msg("%s: %.*s", file, (int)n, space + 1);
        at = space + 1 + n + 2;
    }
}

/* Within the last tokens of an answer of that length. Returns how many different beginnings there were. */
static int cut_off(runtime *m, const char *file, const runtime_request *whole, int length) {
    enum { LAST = 80, CUTS = 3 };
    char before[2048] = "";
    int  n = 0, from = length > LAST ? length - LAST : 1;
    for (int limit = from; limit < length; limit += (length - from) / CUTS + 1) {
        test_result     r[2];
        runtime_request q = *whole;
        q.max_tokens = limit;
        for (int stream = 0; stream < 2; stream++) {
            q.stream_calls = stream;
            test_ask(m, &q, &r[stream]);
            assert_false(r[stream].failed);
        }
        const test_answer *a = &r[0].a[0], *b = &r[1].a[0];
        if (strcmp(str_cstr(&a->calls), str_cstr(&b->calls)) != 0 || a->content.len || b->content.len)
            fail_msg("%s, %d tokens: \"%s\" \"%s\"; streamed \"%s\" \"%s\"", file, limit, str_cstr(&a->calls),
                     str_cstr(&a->content), str_cstr(&b->calls), str_cstr(&b->content));
        assert_int_equal(a->finish, b->finish);
        n += a->calls.len && strcmp(before, str_cstr(&a->calls)) != 0;
        snprintf(before, sizeof before, "%s", str_cstr(&a->calls));
        test_result_deinit(&r[0]);
        test_result_deinit(&r[1]);
    }
    return n;
}

/* How many answers were over in time; -1: the prompt is too long for the demo model, or the family has no calls. */
static int ask(const char *path, const char *file) {
    char    *text;
    size_t   bytes;
    runtime *m;
    err      e = { 0 };
    int      over = 0;
    if (file_read(&text, &bytes, path, 1 << 20, &e) < 0) fail_msg("%s", e.msg);
    runtime_options o = { .path = TEST_DEMO, .engine = { .n_threads = 1 }, .template_text = text };
    if (runtime_open(&m, &o, &e) < 0) fail_msg("%s: %s", file, e.msg);
    for (int i = 0; i < 2 && over >= 0; i++) {
        test_result     r;
        runtime_request q;
        test_greedy(&q, "[{\"role\": \"user\", \"content\": \"What is the capital of France?\"}]");
        q.sampling.temperature = 0.6f + (float)i;
        q.sampling.top_k = 0;
        q.sampling.top_p = 1;
        q.sampling.seed = (uint64_t)i;
        q.sampling_set = RUNTIME_SET_TEMPERATURE | RUNTIME_SET_TOP_K | RUNTIME_SET_TOP_P | RUNTIME_SET_SEED;
        q.tools = view_of(TOOLS);
        q.tool_choice = i % 2 ? RUNTIME_TOOLS_NAMED : RUNTIME_TOOLS_REQUIRED;
        q.tool_name = view_of("switch_light");
        q.max_tokens = 250;
        q.parallel_tools = false;
        test_ask(m, &q, &r);
        if (r.failed) {
            if (!strstr(r.why.msg, "context holds") && !strstr(r.why.msg, "no known way of calling tools"))
                fail_msg("%s: %s", file, r.why.msg);
            over = -1;
        } else if (r.a[0].finish == RUNTIME_TOOL_CALLS) {
            check_calls(file, &r.a[0], i % 2 ? "switch_light " : NULL);
            over++;
        } else if (r.a[0].finish != RUNTIME_LENGTH) {
            fail_msg("%s: finish %d, \"%s\"", file, (int)r.a[0].finish, str_cstr(&r.a[0].content));
        }
        int length = r.a[0].usage.generated_tokens;
        test_result_deinit(&r);
        if (over >= 0 && i == 0 && cut_off(m, file, &q, length) < 1) fail_msg("%s: nothing is told of a call", file);
    }
    runtime_free(m);
    free(text);
    return over;
}

/* One template of each syntax, those with the shortest prompts. */
static void test_every_syntax(void **state) {
    static const char *const files[] = {
        "Qwen-Qwen3-0.6B",
        "meta-llama-Llama-3.1-8B-Instruct",
        "Qwen3.5-4B",
        "mistralai-Mistral-Nemo-Instruct-2407",
        "GLM-4.6",
        "Mistral-Small-3.2-24B-Instruct-2506",
        "Kimi-K2-Instruct",
        "deepseek-ai-DeepSeek-V3.1",
        "openai-gpt-oss-120b",
        "LFM2.5-8B-A1B",
        "MiniMax-M2",
        "google-gemma-4-31B-it",
        "Cohere2MoE",
        "ByteDance-Seed-OSS",
        "Apertus-8B-Instruct",
        "ibm-granite-granite-3.3-2B-Instruct",

        "NVIDIA-Nemotron-Nano-v2",
        "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
    };
    const size_t every = TEST_SANITIZED ? 6 : 1; /* the model is slow there, and what is asked of it is the same */
    size_t       n_files = sizeof files / sizeof *files, n = 0;
    (void)state;
    test_need_corpus();
    for (size_t i = 0; i < n_files; i += every) {
        char relative[128];
        snprintf(relative, sizeof relative, "templates/%s.jinja", files[i]);
        char *path = test_corpus_path(relative);
        if (!path) return;
        int over = ask(path, files[i]);
        if (over < 0) print_message("%s: the prompt is longer than the demo model's context\n", files[i]);
        if (over == 0) fail_msg("%s: no answer was over in time", files[i]);
        n += over > 0;
        free(path);
    }
    if (n < 12 / every) fail_msg("only %zu templates fit", n);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_every_syntax) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
