/* SPDX-License-Identifier: Apache-2.0 */
/* Messages to prompt tokens: the demo model's format written out by hand, begin tokens, continued messages. */
#include "unit/support/support.h"

#include "base/file.h"
#include "chat/chat.h"
#include "unit/support/model.h"

#include <stdlib.h>
#include <string.h>

#define DEMO HEARTH_SOURCE_DIR "/models/demo/demo.gguf"

typedef struct made {
    arena       a;
    chat_tokens t;
} made;

static chat *open_chat(const char *path) {
    chat *c;
    err   e = { 0 };
    if (chat_open(&c, path, NULL, &e) < 0) fail_msg("%s", e.msg);
    return c;
}

static const json_value *parse(made *m, const char *text) {
    const json_value *v = NULL;
    err               e = { 0 };
    if (text && json_parse(&v, text, strlen(text), &m->a, &e) < 0) fail_msg("%s", e.msg);
    return v;
}

static void make(made *m, const chat *c, const char *messages, const char *tools, const char *variables,
                 bool continued) {
    err e = { 0 };
    arena_init(&m->a, 0);
    chat_tokens_init(&m->t);
    chat_input in = { .messages = parse(m, messages),
                      .tools = parse(m, tools),
                      .variables = parse(m, variables),
                      .add_generation_prompt = !continued,
                      .continue_final = continued,
                      .now = { 2026, 1, 2, 3, 4, 5 } };
    if (chat_prompt(c, &in, &m->t, &e) < 0) fail_msg("%s", e.msg);
}

static void unmake(made *m) {
    chat_tokens_deinit(&m->t);
    arena_deinit(&m->a);
}

static void refused(const chat *c, const char *messages, bool continued, const char *why) {
    made m;
    err  e = { 0 };
    arena_init(&m.a, 0);
    chat_tokens_init(&m.t);
    chat_input in = { .messages = parse(&m, messages), .continue_final = continued };
    assert_true(chat_prompt(c, &in, &m.t, &e) < 0);
    if (!strstr(e.msg, why)) fail_msg("no \"%s\" in: %s", why, e.msg);
    unmake(&m);
}

/* Special tokens and plain texts, each encoded by itself. */
static void push(tok_ids *ids, const tok *t, const char *special, const char *text) {
    if (special) {
        int32_t id = tok_find(t, special, strlen(special));
        assert_true(id >= 0 && tok_ids_push(ids, id));
    }
    assert_int_equal(tok_encode(t, text, strlen(text), 0, ids, NULL), 0);
}

static void test_ids(void **state) {
    chat      *c = open_chat(DEMO);
    const tok *t = chat_tokenizer(c);
    tok_ids    want = { 0 };
    made       m;
    (void)state;
    make(&m, c, "[{\"role\":\"user\",\"content\":\"What is 12 plus 30?\"}]", NULL, NULL, false);
    assert_string_equal(str_cstr(&m.t.text), "<|im_start|>user\nWhat is 12 plus 30?<|im_end|>\n<|im_start|>assistant\n"
                                             "<think>\n\n</think>\n\n");
    push(&want, t, "<|im_start|>", "user\nWhat is 12 plus 30?");
    push(&want, t, "<|im_end|>", "\n");
    size_t end = want.count;
    push(&want, t, "<|im_start|>", "assistant\n");
    push(&want, t, "<think>", "\n\n");
    push(&want, t, "</think>", "\n\n");
    assert_int_equal(m.t.ids.count, want.count);
    assert_memory_equal(m.t.ids.data, want.data, want.count * sizeof *want.data);
    assert_int_equal(m.t.n_marks, 1);
    assert_int_equal(m.t.marks[0], end);
    assert_true(tok_is_end(t, tok_find(t, "<|im_end|>", 10)));
    tok_ids_deinit(&want);
    unmake(&m);
    chat_free(c);
}

static void test_variables_and_tools(void **state) {
    chat *c = open_chat(DEMO);
    made  m;
    (void)state;
    assert_true(chat_uses(c, "enable_thinking"));
    assert_false(chat_uses(c, "reasoning_effort"));
    make(&m, c, "[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"X\"}]", NULL,
         "{\"enable_thinking\":true,\"messages\":[]}", false);
    assert_string_equal(str_cstr(&m.t.text),
                        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nX<|im_end|>\n<|im_start|>assistant\n");
    unmake(&m);
    make(&m, c, "[{\"role\":\"user\",\"content\":\"X\"}]",
         "[{\"type\":\"function\",\"function\":{\"name\":\"get_time\"}}]", NULL, false);
    assert_non_null(strstr(str_cstr(&m.t.text), "{\"name\": \"get_time\"}\n"));
    unmake(&m);
    refused(c, "[{\"role\":\"wizard\",\"content\":\"X\"}]", false, "unknown role wizard");
    refused(c, "[]", false, "at least one message");
    refused(c, "{}", false, "at least one message");
    chat_free(c);
}

/* The prompt ends with the message's own last byte, blanks included, whatever the template puts behind. */
static void test_continue(void **state) {
    chat *c = open_chat(DEMO);
    made  m;
    (void)state;
    make(&m, c, "[{\"role\":\"user\",\"content\":\"im\"},{\"role\":\"assistant\",\"content\":\"im \"}]", NULL, NULL,
         true);
    assert_string_equal(str_cstr(&m.t.text),
                        "<|im_start|>user\nim<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nim ");
    unmake(&m);
    refused(c, "[{\"role\":\"assistant\",\"content\":null}]", true, "no text that could be continued");
    chat_free(c);
}

/* A tokenizer that adds a begin token: once, whether the template writes it or not. */
static void begin_token(const char *template, const char *text) {
    char       *dir = test_temp_dir(), *path = path_join(dir, "tokenizer.json");
    const char *json =
        "{\"version\":\"1.0\",\"added_tokens\":[{\"id\":0,\"content\":\"<s>\",\"special\":true}],"
        "\"normalizer\":null,\"pre_tokenizer\":null,"
        "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":"
        "0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\","
        "\"ids\":[0],\"tokens\":[\"<s>\"]}}},\"decoder\":null,"
        "\"model\":{\"type\":\"BPE\",\"vocab\":{\"<s>\":0,\"a\":1,\"b\":2},\"merges\":[]}}";
    const char *config = "{\"bos_token\":\"<s>\",\"add_bos_token\":true}";
    test_write_file(path, json, strlen(json));
    free(path);
    path = path_join(dir, "tokenizer_config.json");
    test_write_file(path, config, strlen(config));
    free(path);
    path = path_join(dir, "chat_template.jinja");
    test_write_file(path, template, strlen(template));
    chat *c = open_chat(dir);
    made  m;
    make(&m, c, "[{\"role\":\"user\",\"content\":\"ab\"}]", NULL, NULL, false);
    assert_string_equal(str_cstr(&m.t.text), text);
    const int32_t want[] = { 0, 1, 2 };
    assert_int_equal(m.t.ids.count, 3);
    assert_memory_equal(m.t.ids.data, want, sizeof want);
    unmake(&m);
    chat_free(c);
    free(path);
    test_temp_dir_remove(dir);
}

static void test_begin_token(void **state) {
    (void)state;
    begin_token("{{ bos_token }}{{ messages[0].content }}", "<s>ab");
    begin_token("{{ messages[0].content }}", "ab");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_variables_and_tools),
        cmocka_unit_test(test_continue),
        cmocka_unit_test(test_begin_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
