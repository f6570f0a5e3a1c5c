/* SPDX-License-Identifier: Apache-2.0 */
/* The runtime on the demo model: complete requests in, events out. */
#include "unit/support/support.h"

#include "base/file.h"
#include "formats/meta.h"
#include "unit/support/runtime_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char SUM[] = "[{\"role\": \"user\", \"content\": \"What is 12 plus 30?\"}]";
static const char STORY[] = "[{\"role\": \"user\", \"content\": \"Tell me a story about a cat and a boat.\"}]";

static void test_describe(void **state) {
    runtime_info i;
    runtime_describe(*state, &i);
    assert_string_equal(i.family, "llama");
    assert_string_equal(i.format, "GGUF");
    assert_string_equal(i.quant, "Q8_0");
    assert_true(i.n_params > 19000000 && i.n_params < 21000000);
    assert_int_equal(i.n_ctx_train, 4096);
    assert_true(i.can_chat && i.can_tools && i.can_think && !i.can_infill);
}

static void test_chat(void **state) {
    runtime_request q;
    test_result     r;
    test_greedy(&q, SUM);
    test_ask(*state, &q, &r);
    assert_string_equal(str_cstr(&r.a[0].content), "12 plus 30 is 42.");
    assert_int_equal(r.a[0].finish, RUNTIME_STOP);
    assert_int_equal(r.a[0].usage.prompt_tokens, r.prompt_tokens);
    assert_int_equal(r.n_started, 1);
    assert_int_equal(r.a[0].usage.generated_tokens, 12);
    test_result_deinit(&r);
}

/* The template's text without the template; tokens instead of text; the prompt's own text in front. */
static void test_complete(void **state) {
    runtime_request chat, q;
    test_result     r;
    str             text, again;
    tok_ids         ids = { 0 };
    size_t          n = 0;
    str_init(&text);
    str_init(&again);
    test_greedy(&chat, SUM);
    assert_int_equal(runtime_render(*state, &chat, &text, NULL), 0);
    assert_non_null(strstr(str_cstr(&text), "What is 12 plus 30?"));
    test_greedy(&q, "");
    q.task = RUNTIME_COMPLETE;
    q.text = (view){ text.data, text.len };
    q.echo = true;
    test_ask(*state, &q, &r);
    assert_memory_equal(r.a[0].content.data, text.data, text.len);
    assert_string_equal(r.a[0].content.data + text.len, "12 plus 30 is 42.");
    test_result_deinit(&r);
    assert_int_equal(runtime_tokenize(*state, q.text, false, true, &ids, NULL), 0);
    assert_int_equal(runtime_detokenize(*state, ids.data, ids.count, true, &again, NULL), 0);
    assert_string_equal(str_cstr(&again), str_cstr(&text));
    assert_int_equal(runtime_count(*state, &chat, &n, NULL), 0);
    assert_int_equal(n, ids.count);
    q.text = (view){ 0 };
    q.tokens = ids.data;
    q.n_tokens = ids.count;
    q.echo = false;
    test_ask(*state, &q, &r);
    assert_string_equal(str_cstr(&r.a[0].content), "12 plus 30 is 42.");
    test_result_deinit(&r);
    tok_ids_deinit(&ids);
    str_deinit(&text);
    str_deinit(&again);
}

static void test_limits_and_stops(void **state) {
    view            stop[] = { view_of("Paris"), view_of(" is") };
    runtime_request q;
    test_result     r;
    test_greedy(&q, "[{\"role\": \"user\", \"content\": \"What is the capital of France?\"}]");
    q.stop = stop;
    q.n_stop = 2;
    test_ask(*state, &q, &r);
    assert_string_equal(str_cstr(&r.a[0].content), "The capital of France");
    assert_int_equal(r.a[0].finish, RUNTIME_STOP_STRING);
    assert_int_equal(r.a[0].stop_index, 1);
    test_result_deinit(&r);
    q.n_stop = 0;
    q.max_tokens = 2;
    test_ask(*state, &q, &r);
    assert_int_equal(r.a[0].finish, RUNTIME_LENGTH);
    assert_int_equal(r.a[0].usage.generated_tokens, 2);
    test_result_deinit(&r);
}

static char *read_tools(void) {
    char *path = test_fixture_path("tools/house.json"), *text;
    err   e = { 0 };
    if (file_read(&text, &(size_t){ 0 }, path, 1 << 16, &e) < 0) fail_msg("%s", e.msg);
    free(path);
    return text;
}

/* Stop texts end the content; thoughts and the arguments of calls may contain them. */
static void test_stops_in_content(void **state) {
    view            stop[] = { view_of(" = "), view_of(" is"), view_of("city") };
    char           *tools = read_tools();
    runtime_request q;
    test_result     r;
    test_greedy(&q, SUM);
    q.thinking = RUNTIME_THINK_ON;
    q.stop = stop;
    q.n_stop = 3;
    q.n_choices = 2;
    test_ask(*state, &q, &r);
    for (int i = 0; i < 2; i++) {
        assert_non_null(strstr(str_cstr(&r.a[i].reasoning), "40 + 2 = 42"));
        assert_string_equal(str_cstr(&r.a[i].content), "12 plus 30");
        assert_int_equal(r.a[i].finish, RUNTIME_STOP_STRING);
        assert_int_equal(r.a[i].stop_index, 1);
        assert_true(r.a[i].usage.generated_tokens > r.a[i].usage.reasoning_tokens);
    }
    test_result_deinit(&r);
    test_greedy(&q, "[{\"role\": \"user\", \"content\": \"What is the weather in Paris?\"}]");
    q.tools = view_of(tools);
    q.stop = stop;
    q.n_stop = 3;
    test_ask(*state, &q, &r);
    assert_string_equal(str_cstr(&r.a[0].calls), "get_weather {\"city\": \"Paris\"}; ");
    assert_int_equal(r.a[0].finish, RUNTIME_TOOL_CALLS);
    test_result_deinit(&r);
    free(tools);
}

/* Several answers of one prompt: seeds follow each other, and each is what it would be alone. */
static void test_choices(void **state) {
    runtime_request q;
    test_result     all, one;
    test_greedy(&q, STORY);
    q.sampling.temperature = 1.2f;
    q.sampling.seed = 7;
    q.sampling_set |= RUNTIME_SET_SEED;
    q.max_tokens = 12;
    q.n_choices = 3;
    q.want_logprob = true;
    q.n_top = 3;
    test_ask(*state, &q, &all);
    assert_int_equal(all.n_over, 3);
    for (uint64_t i = 0; i < 3; i++) {
        q.n_choices = 1;
        q.sampling.seed = 7 + i;
        test_ask(*state, &q, &one);
        assert_string_equal(str_cstr(&one.a[0].content), str_cstr(&all.a[i].content));
        assert_int_equal(one.a[0].n_tokens, all.a[i].n_tokens);
        assert_true(one.a[0].logprob == all.a[i].logprob && one.a[0].logprob < 0);
        test_result_deinit(&one);
    }
    assert_string_not_equal(str_cstr(&all.a[0].content), str_cstr(&all.a[1].content));
    test_result_deinit(&all);
    /* Without a seed every answer is another one. */
    q.sampling_set &= ~(unsigned)RUNTIME_SET_SEED;
    test_ask(*state, &q, &one);
    test_ask(*state, &q, &all);
    assert_string_not_equal(str_cstr(&one.a[0].content), str_cstr(&all.a[0].content));
    test_result_deinit(&one);
    test_result_deinit(&all);
}

static void test_continue(void **state) {
    runtime_request q;
    test_result     r;
    test_greedy(&q, "[{\"role\": \"user\", \"content\": \"What is the capital of France?\"},"
                    " {\"role\": \"assistant\", \"content\": \"The capital of\"}]");
    q.continue_final = true;
    test_ask(*state, &q, &r);
    assert_string_equal(str_cstr(&r.a[0].content), " France is Paris.");
    test_result_deinit(&r);
}

static void test_thinking(void **state) {
    runtime_request q;
    test_result     r;
    test_greedy(&q, SUM);
    q.thinking = RUNTIME_THINK_ON;
    test_ask(*state, &q, &r);
    assert_string_equal(str_cstr(&r.a[0].content), "12 plus 30 is 42.");
    assert_non_null(strstr(str_cstr(&r.a[0].reasoning), "40 + 2 = 42"));
    assert_null(strstr(str_cstr(&r.a[0].reasoning), "think>"));
    assert_true(r.a[0].usage.reasoning_tokens > 10);
    assert_true(r.a[0].usage.reasoning_tokens + 12 <= r.a[0].usage.generated_tokens);
    test_result_deinit(&r);
    q.raw_answer = true;
    test_ask(*state, &q, &r);
    assert_true(view_starts((view){ r.a[0].content.data, r.a[0].content.len }, "<think>"));
    assert_int_equal(r.a[0].reasoning.len, 0);
    test_result_deinit(&r);
}

/* The demo model calls the right tool by itself, twice in one answer if need be, and answers from the result; where no
 * tool fits it just answers. */
static void test_tools_auto(void **state) {
    static const struct {
        const char *question, *calls, *content;
        int         finish;
    } rows[] = {
        { "What is the weather in Paris?", "get_weather {\"city\": \"Paris\"}; ", "", RUNTIME_TOOL_CALLS },
        { "Set a timer for 12 minutes.", "set_timer {\"minutes\": 12}; ", "", RUNTIME_TOOL_CALLS },
        { "Turn off the light in the kitchen.", "switch_light {\"room\": \"kitchen\", \"on\": false}; ", "",
          RUNTIME_TOOL_CALLS },
        { "What is the weather in Rome and in Oslo?",
          "get_weather {\"city\": \"Rome\"}; get_weather {\"city\": \"Oslo\"}; ", "", RUNTIME_TOOL_CALLS },
        { "What is the capital of France?", "", "The capital of France is Paris.", RUNTIME_STOP },
    };
    char *tools = read_tools();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        runtime_request q;
        test_result     r;
        char            messages[256];
        snprintf(messages, sizeof messages, "[{\"role\": \"user\", \"content\": \"%s\"}]", rows[i].question);
        test_greedy(&q, messages);
        q.tools = view_of(tools);
        test_ask(*state, &q, &r);
        assert_string_equal(str_cstr(&r.a[0].calls), rows[i].calls);
        assert_string_equal(str_cstr(&r.a[0].content), rows[i].content);
        assert_int_equal(r.a[0].finish, rows[i].finish);
        if (r.a[0].n_calls) assert_int_equal(strlen(r.a[0].ids[0]), 9);
        if (r.a[0].n_calls > 1) assert_string_not_equal(r.a[0].ids[0], r.a[0].ids[1]);
        test_result_deinit(&r);
    }
    free(tools);
}

/* Arguments as text or as an object, content as text or as parts: the prompt is the same. */
static void test_message_forms(void **state) {
    static const char *const forms[] = {
        "[{\"role\":\"user\",\"content\":\"What is the weather in Paris?\"},{\"role\":\"assistant\",\"content\":\"\","
        "\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"arguments\":"
        "{\"city\":\"Paris\"}}}]},{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"{\\\"weather\\\": "
        "\\\"sunny\\\", \\\"degrees\\\": 21}\"}]",
        "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"What is the weather"
        " in Paris?\"}]},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"1\",\"type\":"
        "\"function\",\"function\":{\"name\":\"get_weather\",\"arguments\":\"{\\\"city\\\": \\\"Paris\\\"}\"}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":[{\"type\":\"text\",\"text\":\"{\\\"weather\\\": "
        "\\\"sunny\\\", \\\"degrees\\\": 21}\"}]}]",
    };
    char *tools = read_tools();
    str   text[2] = { 0 };
    for (int i = 0; i < 2; i++) {
        runtime_request q;
        test_result     r;
        test_greedy(&q, forms[i]);
        q.tools = view_of(tools);
        assert_int_equal(runtime_render(*state, &q, &text[i], NULL), 0);
        test_ask(*state, &q, &r);
        assert_string_equal(str_cstr(&r.a[0].content), "It is sunny in Paris, with 21 degrees.");
        test_result_deinit(&r);
    }
    assert_string_equal(str_cstr(&text[0]), str_cstr(&text[1]));
    str_deinit(&text[0]);
    str_deinit(&text[1]);
    free(tools);
}

static double dot(const float *a, const float *b, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

static void embed(runtime *m, const char *text, int dimensions, runtime_pooling pooling, test_result *r) {
    runtime_request q;
    runtime_request_init(&q);
    q.task = RUNTIME_EMBED;
    q.text = view_of(text);
    q.dimensions = dimensions;
    q.pooling = pooling;
    test_ask(m, &q, r);
    if (r->failed) fail_msg("%s", r->why.msg);
}

/* Vectors have length 1, are alike for alike texts, and can be cut. */
static void test_embed(void **state) {
    static test_result cat, kitten, sum, cut;
    runtime_info       i;
    runtime_describe(*state, &i);
    assert_true(i.can_embed);
    embed(*state, "The cat sat in the boat.", 0, RUNTIME_POOL_DEFAULT, &cat);
    embed(*state, "The cat is in the boat.", 0, RUNTIME_POOL_MEAN, &kitten);
    embed(*state, "12 plus 30 is 42", 0, RUNTIME_POOL_MEAN, &sum);
    assert_int_equal(cat.n_vector, i.n_embd);
    assert_true(fabs(dot(cat.vector, cat.vector, cat.n_vector) - 1) < 1e-5);
    assert_true(dot(cat.vector, kitten.vector, i.n_embd) > dot(cat.vector, sum.vector, i.n_embd) + 0.05);
    embed(*state, "The cat sat in the boat.", 17, RUNTIME_POOL_MEAN, &cut);
    assert_int_equal(cut.n_vector, 17);
    double scale = 1 / sqrt(dot(cat.vector, cat.vector, 17));
    for (int k = 0; k < 17; k++) assert_true(fabs((double)cut.vector[k] - (double)cat.vector[k] * scale) < 1e-5);
    assert_int_equal(cat.a[0].usage.generated_tokens, 0);
    test_result_deinit(&cat);
    test_result_deinit(&kitten);
    test_result_deinit(&sum);
    test_result_deinit(&cut);
    embed(*state, "The cat sat in the boat.", 0, RUNTIME_POOL_LAST, &cut);
    assert_true(fabs(dot(cut.vector, cut.vector, cut.n_vector) - 1) < 1e-5);
    assert_true(dot(cut.vector, cat.vector, i.n_embd) < 0.999);
    test_result_deinit(&cut);
}

/* Another template than the model's own. */
static void test_template(void **state) {
    runtime_options o = { .path = TEST_DEMO,
                          .engine = { .n_threads = 1 },
                          .template_text = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}>" };
    runtime_request q;
    runtime_info    i;
    runtime        *m;
    str             text;
    err             e = { 0 };
    str_init(&text);
    runtime_describe(*state, &i);
    assert_non_null(strstr(i.template_text, "<|im_start|>"));
    assert_int_equal(runtime_open(&m, &o, &e), 0);
    runtime_describe(m, &i);
    assert_string_equal(i.template_text, o.template_text);
    assert_false(i.can_think);
    assert_true(i.can_tools); /* in the generic form */
    test_greedy(&q, SUM);
    assert_int_equal(runtime_render(m, &q, &text, NULL), 0);
    assert_string_equal(str_cstr(&text), "[user] What is 12 plus 30?\n>");
    q.thinking = RUNTIME_THINK_ON;
    test_request_refused(m, &q, ERR_UNSUPPORTED, "thinking");
    str_deinit(&text);
    runtime_free(m);
    o.template_text = "{% for";
    assert_int_equal(runtime_open(&m, &o, &e), ERR_FORMAT);
    assert_non_null(strstr(e.msg, "template"));
}

/* The demo's file with a key in front of the others; 64 bytes, so that everything behind them stays aligned. */
static void put_muted(const char *path, const uint16_t ids[5]) {
    struct __attribute__((packed)) {
        uint64_t length;
        char     key[30];
        uint32_t array, u16;
        uint64_t n;
        uint16_t ids[5];
    } entry = { 30, "tokenizer.ggml.suppress_tokens", META_ARRAY, META_U16, 5, { 0 } };
    char    *data;
    size_t   bytes;
    uint64_t n_keys;
    err      e = { 0 };
    _Static_assert(sizeof entry == 64, "a multiple of 32");
    memcpy(entry.ids, ids, sizeof entry.ids);
    assert_int_equal(file_read(&data, &bytes, TEST_DEMO, 64 << 20, &e), 0);
    memcpy(&n_keys, data + 16, sizeof n_keys);
    n_keys++;
    memcpy(data + 16, &n_keys, sizeof n_keys);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_true(fwrite(data, 24, 1, f) == 1 && fwrite(&entry, sizeof entry, 1, f) == 1 &&
                fwrite(data + 24, bytes - 24, 1, f) == 1);
    assert_int_equal(fclose(f), 0);
    free(data);
}

/* Tokens that the file forbids are not said, whatever the request wants; ids that do not exist are no mistake. */
static void test_muted(void **state) {
    char           *dir = test_temp_dir(), path[256];
    runtime_options o = { .path = path, .engine = { .n_threads = 1 } };
    sampling_bias   wish = { 28, 100 };
    runtime_request q;
    test_result     r;
    runtime        *m;
    err             e = { 0 };
    (void)state;
    snprintf(path, sizeof path, "%s/muted.gguf", dir);
    put_muted(path, (uint16_t[]){ 28, 65535, 26, 28, 26 }); /* 4 and 2 */
    if (runtime_open(&m, &o, &e) < 0) fail_msg("%s", e.msg);
    test_greedy(&q, SUM);
    q.max_tokens = 24;
    test_ask(m, &q, &r);
    assert_true(r.a[0].usage.generated_tokens > 0);
    assert_null(strpbrk(str_cstr(&r.a[0].content), "42"));
    test_result_deinit(&r);
    q.sampling.bias = &wish;
    q.sampling.n_bias = 1;
    test_ask(m, &q, &r);
    assert_null(strpbrk(str_cstr(&r.a[0].content), "42"));
    test_result_deinit(&r);
    runtime_free(m);
    test_temp_dir_remove(dir);
}

static void test_mistakes(void **state) {
    view            empty = { "", 0 };
    int32_t         token = 1 << 28;
    runtime_request q;
    uint64_t        id;
    size_t          n;
    err             e = { 0 };
    test_greedy(&q, "[{\"role\": ");
    test_request_refused(*state, &q, ERR_ARG, "messages: JSON line 1");
    test_greedy(&q, "{}");
    test_request_refused(*state, &q, ERR_ARG, "messages must be an array");
    test_greedy(&q, "[]");
    test_request_refused(*state, &q, ERR_ARG, "messages");
    test_greedy(&q, SUM);
    q.tools = view_of("7");
    test_request_refused(*state, &q, ERR_ARG, "tools must be an array");
    test_greedy(&q, SUM);
    q.sampling.temperature = -1;
    test_request_refused(*state, &q, ERR_ARG, "temperature");
    test_greedy(&q, SUM);
    q.max_tokens = -2;
    test_request_refused(*state, &q, ERR_ARG, "max_tokens");
    test_greedy(&q, SUM);
    q.stop = &empty;
    q.n_stop = 1;
    test_request_refused(*state, &q, ERR_ARG, "stop");
    test_greedy(&q, "");
    q.task = RUNTIME_COMPLETE;
    q.tokens = &token;
    q.n_tokens = 1;
    test_request_refused(*state, &q, ERR_ARG, "token 0 is 268435456");
    test_greedy(&q, "");
    q.task = RUNTIME_INFILL;
    test_request_refused(*state, &q, ERR_UNSUPPORTED, "infill");
    q.task = RUNTIME_RERANK;
    test_request_refused(*state, &q, ERR_UNSUPPORTED, "rerank");
    test_greedy(&q, "");
    q.task = RUNTIME_EMBED;
    test_request_refused(*state, &q, ERR_ARG, "the prompt is empty");
    q.text = view_of("cat");
    q.dimensions = 100000;
    test_request_refused(*state, &q, ERR_ARG, "dimensions");
    test_greedy(&q, SUM);
    q.blobs = &(view){ "\x89PNG", 4 };
    q.n_blobs = 1;
    test_request_refused(*state, &q, ERR_UNSUPPORTED, "cannot see: it takes no pictures");
    assert_int_equal(runtime_count(*state, &q, &n, &e), ERR_UNSUPPORTED);
    test_greedy(&q, SUM);
    q.n_top = 21;
    q.on_event = test_collect;
    assert_int_equal(runtime_submit(*state, &q, &id, &e), ERR_ARG);
    assert_non_null(strstr(e.msg, "top_logprobs"));
}

/* A prompt that does not fit is a mistake of the request as well: one event. */
static void test_too_long(void **state) {
    runtime_request q;
    str             text;
    str_init(&text);
    for (int i = 0; i < 5000; i++) str_puts(&text, "cat ");
    test_greedy(&q, "");
    q.task = RUNTIME_COMPLETE;
    q.text = (view){ text.data, text.len };
    test_request_refused(*state, &q, ERR_CONTEXT, "the context holds 4096");
    str_deinit(&text);
}

/* Many at once, half of them cancelled right away or after their first event; every one ends exactly once. */
static void test_cancel(void **state) {
    enum { N = 16 };
    static test_result r[N];
    uint64_t           ids[N];
    runtime_request    q;
    test_greedy(&q, STORY);
    q.max_tokens = 16;
    q.want_progress = true;
    for (int i = 0; i < N; i++) {
        test_result_init(&r[i]);
        ids[i] = test_submit(*state, &q, &r[i]);
        if (i % 4 == 1) runtime_cancel(*state, ids[i]);
    }
    for (int i = 2; i < N; i += 4) {
        pthread_mutex_lock(&r[i].lock);
        while (r[i].n_events == 0) pthread_cond_wait(&r[i].moved, &r[i].lock);
        pthread_mutex_unlock(&r[i].lock);
        runtime_cancel(*state, ids[i]);
    }
    runtime_cancel(*state, 1u << 30);
    for (int i = 0; i < N; i++) {
        test_result_wait(&r[i]);
        assert_int_equal(r[i].n_over, 1);
        if (i % 4 == 0 || i % 4 == 3) {
            assert_int_equal(r[i].a[0].finish, RUNTIME_LENGTH);
            assert_string_equal(str_cstr(&r[i].a[0].content), str_cstr(&r[0].a[0].content));
        } else {
            assert_false(r[i].failed);
        }
    }
    assert_int_equal(r[1].a[0].finish, RUNTIME_CANCELLED);
    assert_true(r[0].a[0].content.len > 30);
    for (int i = 0; i < N; i++) test_result_deinit(&r[i]);
    runtime_stats st;
    runtime_stat(*state, &st);
    assert_true(st.cancelled > 0 && st.requests >= N);
}

/* Closing with work under way: every request still gets its last event. */
static void test_close(void **state) {
    enum { N = 8 };
    static test_result r[N];
    runtime_request    q;
    void              *own = NULL;
    (void)state;
    test_demo_open(&own);
    test_greedy(&q, STORY);
    for (int i = 0; i < N; i++) {
        test_result_init(&r[i]);
        test_submit(own, &q, &r[i]);
    }
    runtime_request_info list[N];
    assert_true(runtime_requests(own, list, N) <= N);
    runtime_free(own);
    for (int i = 0; i < N; i++) {
        assert_true(r[i].last && !r[i].bad);
        test_result_deinit(&r[i]);
    }
}

/* A full queue is said at once; nothing is lost. */
static void test_queue_full(void **state) {
    enum { N = 32 };
    static test_result r[N];
    runtime_options    o = { .path = TEST_DEMO, .engine = { .n_threads = 1 }, .max_preparing = 1 };
    runtime_request    q;
    runtime           *m;
    err                e = { 0 };
    int                full = 0;
    (void)state;
    assert_int_equal(runtime_open(&m, &o, &e), 0);
    test_greedy(&q, SUM);
    q.max_tokens = 1;
    for (int i = 0; i < N; i++) {
        uint64_t id;
        test_result_init(&r[i]);
        q.on_event = test_collect;
        q.ctx = &r[i];
        int rc = runtime_submit(m, &q, &id, &e);
        if (rc < 0) {
            assert_int_equal(rc, ERR_BUSY);
            full++;
            r[i].last = true;
        }
    }
    for (int i = 0; i < N; i++) {
        test_result_wait(&r[i]);
        test_result_deinit(&r[i]);
    }
    assert_true(full > 0 && full < N);
    runtime_free(m);
}

int main(void) {
    test_filter();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_describe),         cmocka_unit_test(test_chat),
        cmocka_unit_test(test_complete),         cmocka_unit_test(test_limits_and_stops),
        cmocka_unit_test(test_stops_in_content), cmocka_unit_test(test_choices),
        cmocka_unit_test(test_continue),         cmocka_unit_test(test_embed),
        cmocka_unit_test(test_thinking),         cmocka_unit_test(test_tools_auto),
        cmocka_unit_test(test_message_forms),    cmocka_unit_test(test_template),
        cmocka_unit_test(test_mistakes),         cmocka_unit_test(test_too_long),
        cmocka_unit_test(test_cancel),           cmocka_unit_test(test_close),
        cmocka_unit_test(test_queue_full),       cmocka_unit_test(test_muted),
    };
    return cmocka_run_group_tests(tests, test_demo_open, test_demo_close);
}
