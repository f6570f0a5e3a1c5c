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

/* --- messages as clients send them --- */

static chat *open_with(const char *template) {
    chat *c;
    err   e = { 0 };
    if (chat_open(&c, DEMO, template, &e) < 0) fail_msg("%s", e.msg);
    return c;
}

static void shows(const char *template, const char *messages, const char *want) {
    chat *c = open_with(template);
    made  m;
    make(&m, c, messages, NULL, NULL, false);
    assert_string_equal(str_cstr(&m.t.text), want);
    unmake(&m);
    chat_free(c);
}

#define SHOW                                                                                                           \
    "{% for m in messages %}{{ m.role }}:{{ m.content }}{% for c in m.tool_calls or [] %}<{{ c.id }} {{ c.type }} "    \
    "{{ c.function.name }} {{ c.function.arguments | tojson }}>{% endfor %}"                                           \
    "{% if m.role == 'tool' %}<{{ m.tool_call_id }} {{ m.name }}>{% endif %}"                                          \
    "{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}{{ '\\n' }}{% endfor %}"

static void test_messages(void **state) {
    (void)state;
    /* Arguments as text, no ids, a result without an id, thoughts under another name, parts, null. */
    shows(
        SHOW,
        "[{\"role\":\"developer\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]},"
        "{\"role\":\"user\",\"content\":null},"
        "{\"role\":\"assistant\",\"thinking\":\"hm\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"{"
        "\\\"x\\\": "
        "[1]}\"}},{\"id\":\"my\",\"function\":{\"name\":\"g\",\"arguments\":{\"y\":\"z\"}}}]},"
        "{\"role\":\"tool\",\"content\":\"one\"},{\"role\":\"tool\",\"tool_call_id\":\"my\",\"content\":\"two\"},"
        "{\"role\":\"assistant\",\"content\":\"t\",\"tool_calls\":[]}]",
        "system:a\nb\nuser:\nassistant:<call00000 function f {\"x\": [1]}><my function g {\"y\": \"z\"}>(hm)\n"
        "tool:one<call00000 f>\ntool:two<my g>\nassistant:t\n");
    /* A template that joins arguments as text gets text. */
    shows("{% for m in messages %}{% for c in m.tool_calls or [] %}{{ '[' + c.function.arguments + ']' }}{% endfor "
          "%}{% endfor %}",
          "[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"y\":\"z\"}}},{"
          "\"function\":{\"name\":"
          "\"f\",\"arguments\":\"{\\\"y\\\": 1}\"}},{\"function\":{\"name\":\"f\"}}]}]",
          "[{\"y\":\"z\"}][{\"y\": 1}][{}]");
    /* One that shows no calls gets them in the content, in its own syntax. */
    shows("{# <|tool_call_start|> #}{% for m in messages %}{{ m.content }}{% endfor %}",
          "[{\"role\":\"assistant\",\"content\":\"A "
          "\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"y\":[true,null,\"q\"]}}},{"
          "\"function\":{\"name\":\"g\",\"arguments\":\"{}\"}}]}]",
          "A <|tool_call_start|>[f(y=[True, None, \"q\"]), g()]<|tool_call_end|>");
    /* Nine letters or digits, the same for a call and its result. */
    shows("{# <tool_call> length != 9 #}{% for m in messages %}{{ m.tool_call_id }}{% for c in m.tool_calls or [] %}{{ "
          "c.id|length }}"
          "{{ 'same' if c.id == messages[1].tool_call_id else 'other' }} {{ c.function.arguments.a }}{% endfor %}{% "
          "endfor %}"
          "{{ messages[1].tool_call_id|length }}{% if messages[1].tool_call_id == 'abcdefghi' %}kept{% endif %}|",
          "[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"abcdefghi\",\"function\":{\"name\":\"f\",\"arguments\":{"
          "\"a\":1}}}]},{\"role\":"
          "\"tool\",\"tool_call_id\":\"abcdefghi\",\"content\":\"x\"}]",
          "9same 1abcdefghi9kept|");
    chat *c = open_with("{# <tool_call> length != 9 #}{% for m in messages %}{{ m.tool_call_id }}{% for c in "
                        "m.tool_calls or [] %}{{ c.id }}"
                        "{{ c.function.arguments.a }}{% endfor %}={% endfor %}");
    made  m;
    make(&m, c,
         "[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"call_with_a_long_id\",\"function\":{\"name\":\"f\","
         "\"arguments\":{\"a\":\"!\"}}}]},"
         "{\"role\":\"tool\",\"tool_call_id\":\"call_with_a_long_id\",\"content\":\"x\"}]",
         NULL, NULL, false);
    const char *text = str_cstr(&m.t.text);
    assert_int_equal(strlen(text), 9 + 2 + 9 + 1);
    assert_memory_equal(text, text + 11, 9);
    unmake(&m);
    refused(c, "[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:\"}}]}]", false,
            "image_url");
    refused(c, "[{\"role\":\"user\",\"content\":\"x\"},{\"content\":\"x\"}]", false, "message 2: the role is missing");
    refused(c, "[{\"role\":\"user\",\"content\":7}]", false, "message 1: content must be");
    refused(c, "[{\"role\":\"assistant\",\"tool_calls\":[{}]}]", false, "message 1: a tool call has no function name");
    refused(c, "[7]", false, "message 1");
    chat_free(c);
    /* The template's own words. */
    c = open_with("{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}");
    refused(c, "[{\"role\":\"system\",\"content\":\"x\"}]", false, "System role not supported");
    chat_free(c);
}

/* System messages where the template has no place for them: joined at the beginning, a user's text later. */
static void test_system_places(void **state) {
#define LOOP "{% for m in messages %}[{{ m.role }}|{{ m.content }}]{% endfor %}"
#define FIRST                                                                                                          \
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('first') }}{% endif %}"   \
    "[{{ m.role }}|{{ m.content }}]{% endfor %}"
#define DROPS "{% for m in messages %}{% if m.role != 'system' %}[{{ m.role }}|{{ m.content }}]{% endif %}{% endfor %}"
    static const char talk[] = "[{\"role\":\"system\",\"content\":\"A\"},{\"role\":\"developer\",\"content\":\"B\"},"
                               "{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":\"a\"},"
                               "{\"role\":\"system\",\"content\":\"C\"},{\"role\":\"user\",\"content\":\"v\"},"
                               "{\"role\":\"user\",\"content\":\"w\"},{\"role\":\"system\",\"content\":\"D\"}]";
    static const char *const cases[][2] = {
        { LOOP, "[system|A][system|B][user|u][assistant|a][system|C][user|v][user|w][system|D]" },
        { FIRST, "[system|A\n\nB][user|u][assistant|a][user|C\n\nv][user|w\n\nD]" },
        { DROPS, "[user|A\n\nB\n\nu][assistant|a][user|C\n\nv][user|w\n\nD]" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        chat *c = open_with(cases[i][0]);
        made  m;
        make(&m, c, talk, NULL, NULL, false);
        assert_string_equal(str_cstr(&m.t.text), cases[i][1]);
        unmake(&m);
        chat_free(c);
    }
#undef LOOP
#undef FIRST
#undef DROPS
}

/* Tools for a template that knows none: described to the model, called and answered in plain messages. */
static void test_generic_tools(void **state) {
    static const char tools[] = "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}]";
    static const char talk[] =
        "[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"U\"},"
        "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"1\",\"function\":{\"name\":\"f\","
        "\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"R\"},"
        "{\"role\":\"tool\",\"tool_call_id\":\"2\",\"content\":\"T\"},{\"role\":\"user\",\"content\":\"V\"}]";
    static const char *const templates[] = {
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}",
        "{% for m in messages if m.role in ['user', 'assistant'] %}[{{ m.role }}]{{ m.content }}{% endfor %}",
        ("{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no') }}{% endif %}[{{ m.role }}]"
         "{{ m.content }}{% endfor %}"),
    };
    static const char end[] = "[assistant]<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>[user]"
                              "<tool_response>\nR\n</tool_response>\n<tool_response>\nT\n</tool_response>\nV";
    (void)state;
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
        chat *c = open_with(templates[i]);
        made  m;
        assert_true(chat_answer_format(c)->generic);
        make(&m, c, talk, tools, NULL, false);
        const char *text = str_cstr(&m.t.text),
                   *told = strstr(text, "<tools>\n{\"name\":\"f\",\"parameters\":{}}\n</tools>");
        assert_memory_equal(text, i == 1 ? "[user]You can" : "[system]S\n\nYou can", 13);
        assert_non_null(told);
        assert_true(strlen(text) > strlen(end));
        assert_string_equal(text + strlen(text) - strlen(end), end);
        unmake(&m);
        make(&m, c, "[{\"role\":\"user\",\"content\":\"U\"}]", NULL, NULL, false);
        assert_string_equal(str_cstr(&m.t.text), "[user]U");
        unmake(&m);
        chat_free(c);
    }
}

/* Where each message begins and where the last one ends; bounded, with the first and the latest. */
static void test_marks(void **state) {
    chat *c = open_chat(DEMO);
    made  m;
    str   text;
    (void)state;
    make(&m, c,
         "[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"One\"},{\"role\":\"assistant\","
         "\"content\":\"Two\"},{\"role\":"
         "\"user\",\"content\":\"Three\"}]",
         NULL, NULL, false);
    const char *const before[] = { "One", "Two", "Three", "assistant\n<think>" };
    assert_int_equal(m.t.n_marks, 4);
    for (int i = 0; i < 4; i++) {
        str_init(&text);
        assert_int_equal(tok_decode(chat_tokenizer(c), m.t.ids.data, (size_t)m.t.marks[i], false, &text, NULL), 0);
        /* The text behind the mark begins with the message; the last mark stands before the turn's opening token. */
        const char *rest = str_cstr(&m.t.text) + text.len;
        if (i == 3) rest += strlen("<|im_start|>");
        if (strncmp(rest, before[i], strlen(before[i])) != 0) fail_msg("mark %d stands before: %s", i, rest);
        str_deinit(&text);
    }
    unmake(&m);
    str_init(&text);
    str_puts(&text, "[{\"role\":\"system\",\"content\":\"S\"}");
    for (int i = 0; i < 40; i++)
        str_printf(&text, ",{\"role\":\"%s\",\"content\":\"Message %d\"}", i % 2 ? "assistant" : "user", i);
    str_puts(&text, ",{\"role\":\"user\",\"content\":\"X\"}]");
    make(&m, c, str_cstr(&text), NULL, NULL, false);
    assert_int_equal(m.t.n_marks, CHAT_MARKS);
    for (size_t i = 1; i < m.t.n_marks; i++) assert_true(m.t.marks[i] > m.t.marks[i - 1]);
    assert_true((size_t)m.t.marks[0] < m.t.ids.count / 20 && (size_t)m.t.marks[1] > m.t.ids.count / 2);
    unmake(&m);
    str_deinit(&text);
    chat_free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids),      cmocka_unit_test(test_variables_and_tools),
        cmocka_unit_test(test_continue), cmocka_unit_test(test_begin_token),
        cmocka_unit_test(test_messages), cmocka_unit_test(test_generic_tools),
        cmocka_unit_test(test_marks),    cmocka_unit_test(test_system_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
