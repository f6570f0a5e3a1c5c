/* SPDX-License-Identifier: Apache-2.0 */
/* The public API alone: what a program that embeds the library relies on. */
#include "unit/support/support.h"

#include "hearth.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEMO HEARTH_SOURCE_DIR "/models/demo/demo.gguf"

static const char SUM[] = "[{\"role\": \"user\", \"content\": \"What is 12 plus 30?\"}]";
static const char STORY[] = "[{\"role\": \"user\", \"content\": \"Tell me a story about a cat and a boat.\"}]";

static int open_demo(void **state) {
    hearth_error         e;
    hearth_model_options o;
    hearth_model_options_init(&o, sizeof o);
    o.threads = 1;
    *state = hearth_model_open(DEMO, &o, &e);
    if (!*state) fail_msg("%s", e.text);
    return 0;
}

static int close_demo(void **state) {
    hearth_model_free(*state);
    return 0;
}

static void greedy(hearth_request *q, const char *messages) {
    hearth_request_init(q, sizeof *q);
    q->messages = messages;
    q->thinking = HEARTH_THINK_OFF;
    q->temperature = 0;
}

static hearth_answer *submit(hearth_model *m, const hearth_request *q) {
    hearth_error   e;
    hearth_answer *a = hearth_submit(m, q, &e);
    if (!a) fail_msg("%s", e.text);
    return a;
}

/* Reads to the end; the content of choice 0 in text, the last event in *end. */
static void read_all(hearth_answer *a, char *text, size_t cap, hearth_event *end) {
    size_t n = 0;
    for (const hearth_event *ev; (ev = hearth_next(a, -1)) != NULL;) {
        assert_int_equal(strlen(ev->text), ev->text_bytes);
        if (ev->kind == HEARTH_CONTENT && ev->choice == 0 && n + ev->text_bytes < cap) {
            memcpy(text + n, ev->text, ev->text_bytes);
            n += ev->text_bytes;
        }
        *end = *ev;
    }
    text[n] = '\0';
    assert_true(end->last);
    assert_int_equal(hearth_answer_over(a), 1);
    assert_null(hearth_next(a, 0));
}

static void test_describe(void **state) {
    hearth_model_info i, part;
    hearth_model_describe(*state, &i, sizeof i);
    assert_string_equal(i.family, "llama");
    assert_string_equal(i.quantization, "Q8_0");
    assert_int_equal(i.trained_context, 4096);
    assert_true(i.can_chat && i.can_use_tools && i.can_think);
    /* A program that knows less of the structure gets less. */
    memset(&part, 0x55, sizeof part);
    hearth_model_describe(*state, &part, offsetof(hearth_model_info, layers));
    assert_int_equal(part.trained_context, 4096);
    assert_int_equal(part.layers, 0x55555555);
}

static void test_poll(void **state) {
    hearth_request q;
    hearth_event   end;
    char           text[256];
    greedy(&q, SUM);
    hearth_answer *a = submit(*state, &q);
    read_all(a, text, sizeof text, &end);
    assert_string_equal(text, "12 plus 30 is 42.");
    assert_int_equal(end.kind, HEARTH_DONE);
    assert_int_equal(end.finish, HEARTH_FINISH_STOP);
    assert_int_equal(end.generated_tokens, 12);
    hearth_answer_free(a);
}

static void test_poll_timeout(void **state) {
    hearth_request q;
    int            empty = 0, events = 0;
    greedy(&q, STORY);
    q.max_tokens = 16;
    hearth_answer *a = submit(*state, &q);
    while (!hearth_answer_over(a)) {
        if (hearth_next(a, 0))
            events++;
        else
            empty++;
    }
    assert_true(events > 10 && empty > 0);
    hearth_answer_free(a);
}

typedef struct seen {
    char            text[4096];
    size_t          n;
    int             last, finish;
    hearth_answer  *answer; /* to cancel; guarded by lock */
    pthread_mutex_t lock;
} seen;

static void on_event(void *context, const hearth_event *ev) {
    seen *s = context;
    if (ev->kind == HEARTH_CONTENT && s->n + ev->text_bytes < sizeof s->text) {
        memcpy(s->text + s->n, ev->text, ev->text_bytes);
        s->n += ev->text_bytes;
        pthread_mutex_lock(&s->lock);
        if (s->answer) hearth_cancel(s->answer);
        pthread_mutex_unlock(&s->lock);
    }
    if (ev->last) s->finish = ev->finish;
    s->last += ev->last;
}

static void test_callback(void **state) {
    hearth_request q;
    seen           s = { .lock = PTHREAD_MUTEX_INITIALIZER };
    greedy(&q, SUM);
    q.on_event = on_event;
    q.context = &s;
    hearth_answer *a = submit(*state, &q);
    hearth_answer_wait(a);
    assert_int_equal(hearth_answer_over(a), 1);
    assert_int_equal(s.last, 1);
    assert_string_equal(s.text, "12 plus 30 is 42.");
    hearth_answer_free(a);
}

static void test_cancel(void **state) {
    hearth_request q;
    hearth_event   end;
    char           text[4096];
    seen           s = { .lock = PTHREAD_MUTEX_INITIALIZER };
    greedy(&q, STORY);
    hearth_answer *a = submit(*state, &q);
    hearth_cancel(a);
    read_all(a, text, sizeof text, &end);
    assert_int_equal(end.finish, HEARTH_FINISH_CANCELLED);
    hearth_answer_free(a);
    /* From the callback. */
    q.on_event = on_event;
    q.context = &s;
    pthread_mutex_lock(&s.lock);
    s.answer = a = submit(*state, &q);
    pthread_mutex_unlock(&s.lock);
    hearth_answer_wait(a);
    assert_int_equal(s.last, 1);
    assert_int_equal(s.finish, HEARTH_FINISH_CANCELLED);
    hearth_answer_free(a);
    /* Freed without a word. */
    q.on_event = NULL;
    hearth_answer_free(submit(*state, &q));
    hearth_answer_free(NULL);
}

static void test_logprobs(void **state) {
    const char    *want = "12 plus 30 is 42.";
    hearth_request q;
    char           text[64] = "";
    int            n = 0;
    greedy(&q, SUM);
    q.logprobs = 1;
    q.top_logprobs = 2;
    hearth_answer *a = submit(*state, &q);
    for (const hearth_event *ev; (ev = hearth_next(a, -1)) != NULL;) {
        if (ev->kind != HEARTH_TOKEN) continue;
        assert_int_equal(ev->n_top, 2);
        /* The likeliest is the one that was taken, and it says so itself. */
        assert_int_equal(ev->top[0].token, ev->token);
        assert_true(ev->top[0].logprob == ev->logprob && ev->logprob <= 0 && ev->top[1].logprob <= ev->logprob);
        assert_int_equal(ev->top[0].n_bytes, ev->n_bytes);
        strncat(text, ev->bytes, sizeof text - strlen(text) - 1);
        n++;
    }
    assert_int_equal(n, 11);
    assert_string_equal(text, want);
    hearth_answer_free(a);
}

static void test_tokens(void **state) {
    int32_t        ids[64];
    hearth_request q;
    greedy(&q, SUM);
    char *prompt = hearth_render(*state, &q, NULL);
    assert_non_null(prompt);
    int64_t n = hearth_tokenize(*state, prompt, strlen(prompt), 1, ids, 64, NULL);
    assert_int_equal(n, hearth_count(*state, &q, NULL));
    assert_int_equal(n, hearth_tokenize(*state, prompt, strlen(prompt), 1, NULL, 0, NULL));
    char *again = hearth_detokenize(*state, ids, (size_t)n, 1, NULL);
    assert_string_equal(again, prompt);
    hearth_text_free(again);
    char *plain = hearth_detokenize(*state, ids, (size_t)n, 0, NULL);
    assert_null(strstr(plain, "<|im_start|>"));
    hearth_text_free(plain);
    hearth_text_free(prompt);
    hearth_text_free(NULL);
}

static void refused(hearth_model *m, const hearth_request *q, int code, const char *sentence) {
    hearth_error   e = { 0 };
    hearth_answer *a = hearth_submit(m, q, &e);
    if (a) { /* found later: the only event */
        const hearth_event *ev = hearth_next(a, -1);
        assert_non_null(ev);
        assert_int_equal(ev->kind, HEARTH_FAILED);
        assert_true(ev->last);
        e.code = ev->code;
        snprintf(e.text, sizeof e.text, "%s", ev->text);
        hearth_answer_free(a);
    }
    if (e.code != code || !strstr(e.text, sentence))
        fail_msg("expected %d \"%s\", got %d %s", code, sentence, e.code, e.text);
}

static void test_mistakes(void **state) {
    hearth_request       q;
    hearth_error         e = { 0 };
    hearth_model_options o;
    assert_null(hearth_model_open("/nowhere/model.gguf", NULL, &e));
    assert_int_equal(e.code, HEARTH_ERR_IO);
    assert_non_null(strstr(e.text, "/nowhere/model.gguf"));
    assert_null(hearth_model_open(NULL, NULL, &e));
    assert_int_equal(e.code, HEARTH_ERR_ARG);
    hearth_model_options_init(&o, sizeof o);
    o.cache_type = "q3";
    assert_null(hearth_model_open(DEMO, &o, &e));
    assert_non_null(strstr(e.text, "q3"));
    assert_null(hearth_model_open(DEMO, &o, NULL));
    greedy(&q, "[{");
    refused(*state, &q, HEARTH_ERR_ARG, "messages");
    greedy(&q, NULL);
    refused(*state, &q, HEARTH_ERR_ARG, "messages");
    greedy(&q, SUM);
    q.top_p = 2;
    refused(*state, &q, HEARTH_ERR_ARG, "top_p");
    greedy(&q, SUM);
    q.task = 99;
    refused(*state, &q, HEARTH_ERR_ARG, "task");
    greedy(&q, SUM);
    q.size = 0;
    refused(*state, &q, HEARTH_ERR_ARG, "hearth_request_init");
    greedy(&q, NULL);
    q.task = HEARTH_TASK_INFILL;
    q.text = "int main";
    refused(*state, &q, HEARTH_ERR_UNSUPPORTED, "infill");
}

/* A program that was built when the structure was shorter: what it does not know keeps its default. */
static void test_older_program(void **state) {
    hearth_request q, q_new;
    hearth_event   end;
    char           text[256];
    memset(&q, 0x55, sizeof q);
    hearth_request_init(&q, offsetof(hearth_request, max_tokens));
    q.messages = SUM;
    q.thinking = HEARTH_THINK_OFF;
    q.temperature = 0;
    hearth_answer *a = submit(*state, &q);
    read_all(a, text, sizeof text, &end);
    assert_string_equal(text, "12 plus 30 is 42.");
    hearth_answer_free(a);
    hearth_request_init(&q_new, sizeof q_new);
    assert_true(q_new.temperature == (float)HEARTH_UNSET && q_new.seed == HEARTH_UNSET && q_new.max_tokens == 0);
}

/* Choice auto: the model decides, and decides right. The call comes out apart from the text, and its result goes in. */
static void test_tools(void **state) {
    static const char tools[] =
        "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":\"Get the weather in a city\","
        "\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"}},\"required\":[\"city\"]}}}"
        ","
        "{\"type\":\"function\",\"function\":{\"name\":\"set_timer\",\"description\":\"Start a timer\","
        "\"parameters\":{\"type\":\"object\",\"properties\":{\"minutes\":{\"type\":\"integer\"}},"
        "\"required\":[\"minutes\"]}}}]";
    char           name[64] = "", arguments[64] = "", id[64] = "", messages[1024], text[256];
    hearth_request q;
    hearth_event   end = { 0 };
    greedy(&q, "[{\"role\":\"user\",\"content\":\"What is the weather in Paris?\"}]");
    q.tools = tools;
    hearth_answer *a = submit(*state, &q);
    for (const hearth_event *ev; (ev = hearth_next(a, -1)) != NULL;) {
        assert_int_not_equal(ev->kind, HEARTH_CONTENT);
        if (ev->kind == HEARTH_TOOL_BEGIN) {
            assert_int_equal(ev->call, 0);
            snprintf(name, sizeof name, "%s", ev->name);
            snprintf(id, sizeof id, "%s", ev->id);
        }
        if (ev->kind == HEARTH_TOOL_ARGUMENTS) strncat(arguments, ev->text, sizeof arguments - strlen(arguments) - 1);
        end = *ev;
    }
    assert_int_equal(end.finish, HEARTH_FINISH_TOOL_CALLS);
    assert_string_equal(name, "get_weather");
    assert_string_equal(arguments, "{\"city\": \"Paris\"}");
    assert_true(strlen(id) > 0);
    hearth_answer_free(a);
    snprintf(messages, sizeof messages,
             "[{\"role\":\"user\",\"content\":\"What is the weather in Paris?\"},{\"role\":\"assistant\","
             "\"tool_calls\":[{\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":\"get_weather\","
             "\"arguments\":%s}}]},{\"role\":\"tool\",\"tool_call_id\":\"%s\","
             "\"content\":\"{\\\"weather\\\": \\\"rainy\\\", \\\"degrees\\\": 7}\"}]",
             id, arguments, id);
    q.messages = messages;
    a = submit(*state, &q);
    read_all(a, text, sizeof text, &end);
    assert_string_equal(text, "It is rainy in Paris, with 7 degrees.");
    assert_int_equal(end.finish, HEARTH_FINISH_STOP);
    hearth_answer_free(a);
}

/* An answer of a given shape, and thoughts apart from it. */
static void test_shape(void **state) {
    hearth_request q;
    hearth_event   end = { 0 };
    char           text[256], thoughts[512] = "", content[64] = "";
    greedy(&q,
           "[{\"role\":\"user\",\"content\":\"Give me name, age as JSON: Tom is 31 years old and lives in Oslo.\"}]");
    q.constraint = HEARTH_SCHEMA;
    q.constraint_text =
        "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":\"integer\"}},"
        "\"required\":[\"name\",\"age\"],\"additionalProperties\":false}";
    hearth_answer *a = submit(*state, &q);
    read_all(a, text, sizeof text, &end);
    assert_string_equal(text, "{\"name\": \"Tom\", \"age\": 31}");
    hearth_answer_free(a);
    greedy(&q, SUM);
    q.thinking = HEARTH_THINK_ON;
    q.constraint = HEARTH_ONE_OF;
    q.constraint_text = "[\"42\", \"43\"]";
    a = submit(*state, &q);
    for (const hearth_event *ev; (ev = hearth_next(a, -1)) != NULL; end = *ev) {
        if (ev->kind == HEARTH_REASONING) strncat(thoughts, ev->text, sizeof thoughts - strlen(thoughts) - 1);
        if (ev->kind == HEARTH_CONTENT) strncat(content, ev->text, sizeof content - strlen(content) - 1);
    }
    assert_string_equal(content, "42");
    assert_non_null(strstr(thoughts, "40 + 2 = 42"));
    assert_int_equal(end.finish, HEARTH_FINISH_STOP);
    assert_true(end.reasoning_tokens > 0 && end.reasoning_tokens < end.generated_tokens);
    hearth_answer_free(a);
    q.constraint_text = "{";
    refused(*state, &q, HEARTH_ERR_ARG, "choices");
}

/* What one program computed, the next one finds on disk. */
static void test_disk_cache(void **state) {
    char                *dir = test_temp_dir();
    hearth_model_options o;
    hearth_request       q;
    hearth_event         end;
    char                 text[256];
    (void)state;
    hearth_model_options_init(&o, sizeof o);
    o.threads = 1;
    o.disk_cache_dir = dir;
    /* Longer than a page. */
    greedy(
        &q,
        "[{\"role\":\"system\",\"content\":\"You are a friendly helper. You like cats and boats and the sun, and you "
        "answer every question as well as you can, in one sentence, without anything else in it.\"},"
        "{\"role\":\"user\",\"content\":\"What is 12 plus 30?\"}]");
    for (int i = 0; i < 2; i++) {
        hearth_error  e;
        hearth_model *m = hearth_model_open(DEMO, &o, &e);
        if (!m) fail_msg("%s", e.text);
        hearth_answer *a = submit(m, &q);
        read_all(a, text, sizeof text, &end);
        assert_true(i == 0 ? end.cached_tokens == 0 : end.cached_tokens >= 32);
        hearth_answer_free(a);
        hearth_model_free(m);
    }
    test_temp_dir_remove(dir);
}

typedef struct worker {
    hearth_model *m;
    char          text[256];
    pthread_t     thread;
} worker;

static void *work(void *arg) {
    worker        *w = arg;
    hearth_request q;
    size_t         n = 0;
    greedy(&q, SUM);
    hearth_answer *a = hearth_submit(w->m, &q, NULL);
    if (!a) return NULL;
    for (const hearth_event *ev; (ev = hearth_next(a, -1)) != NULL;) {
        if (ev->kind != HEARTH_CONTENT || n + ev->text_bytes >= sizeof w->text) continue;
        memcpy(w->text + n, ev->text, ev->text_bytes);
        n += ev->text_bytes;
    }
    hearth_answer_free(a);
    return NULL;
}

static void test_threads(void **state) {
    enum { N = 4 };
    static worker w[N];
    hearth_stats  st;
    for (int i = 0; i < N; i++) {
        w[i].m = *state;
        assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
    }
    for (int i = 0; i < N; i++) {
        pthread_join(w[i].thread, NULL);
        assert_string_equal(w[i].text, "12 plus 30 is 42.");
    }
    hearth_model_stats(*state, &st, sizeof st);
    assert_true(st.requests >= N && st.tokens_generated >= 12 * N && st.tokens_cached > 0);
}

int main(void) {
    test_filter();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_describe), cmocka_unit_test(test_poll),     cmocka_unit_test(test_poll_timeout),
        cmocka_unit_test(test_callback), cmocka_unit_test(test_cancel),   cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_tokens),   cmocka_unit_test(test_mistakes), cmocka_unit_test(test_older_program),
        cmocka_unit_test(test_threads),  cmocka_unit_test(test_tools),    cmocka_unit_test(test_disk_cache),
        cmocka_unit_test(test_shape),
    };
    return cmocka_run_group_tests(tests, open_demo, close_demo);
}
