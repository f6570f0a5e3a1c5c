/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real templates of the corpus: which syntax each one speaks, how thoughts are switched off, and the way back: calls
 * that a template writes into a conversation are read again by the parser.
 */
#include "unit/support/support.h"

#include "base/file.h"
#include "chat/chat.h"
#include "chat/parser.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEMO HEARTH_SOURCE_DIR "/models/demo/demo.gguf"

/* By reading the templates. off: what the prompt ends with when thoughts are switched off; NULL: not asked. */
static const struct family {
    const char *file, *syntax, *think, *off;
    int         calls; /* how many calls the template shows in one message; 0: none at all */
} families[] = {
    { "Apertus-8B-Instruct", "apertus", "<|inner_prefix|>", "<|assistant_start|>", 2 },
    { "Bielik-11B-v3.0-Instruct", "hermes", "<think>", "<|im_start|>assistant\n", 2 },
    { "ByteDance-Seed-OSS", "seed", "<seed:think>", "</seed:cot_budget_reflect>\n</seed:think>", 2 },
    { "Cohere2MoE", "command-r", "<|START_THINKING|>", "<|START_THINKING|><|END_THINKING|>", 2 },
    { "CohereForAI-c4ai-command-r-plus-tool_use", "command-r-plus", NULL, NULL, 2 },
    { "GLM-4.6", "glm", "<think>", "<|assistant|>\n<think></think>", 2 },
    { "GigaChat3-10B-A1.8B", "gigachat", NULL, NULL, 1 },
    { "HuggingFaceTB-SmolLM3-3B", "none", "<think>", "<think>\n\n</think>\n", 0 },
    { "Kimi-K2-Instruct", "kimi", NULL, NULL, 0 }, /* its calls need list.append, which the sandbox forbids */
    { "Kimi-K2-Thinking", "kimi", "<think>", "<|im_middle|><think></think>", 0 },
    { "LFM2-8B-A1B", "lfm2", NULL, NULL, 2 },
    { "LFM2.5-8B-A1B", "lfm2", "<think>", "<|im_start|>assistant\n<think>\n\n</think>\n\n", 2 },
    { "MiMo-VL", "hermes", NULL, NULL, 2 },
    { "MiniMax-M2", "minimax", "<think>", "]~b]ai\n<think>\n\n</think>\n\n", 2 },
    { "Mistral-Small-3.2-24B-Instruct-2506", "mistral-args", NULL, NULL, 2 },
    { "NVIDIA-Nemotron-Nano-v2", "nemotron", "<think>", "<SPECIAL_11>Assistant\n<think></think>", 2 },
    { "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "hermes", NULL, NULL, 2 },
    { "Qwen-Qwen2.5-7B-Instruct", "hermes", NULL, NULL, 2 },
    { "Qwen-Qwen3-0.6B", "hermes", "<think>", "<think>\n\n</think>\n\n", 2 },
    { "Qwen3.5-4B", "qwen-xml", "<think>", "<think>\n\n</think>\n\n", 2 },
    { "deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "deepseek", "<think>", "<｜Assistant｜><think>\n\n</think>\n\n", 2 },
    { "deepseek-ai-DeepSeek-V3.1", "deepseek", "<think>", "<think></think>", 2 },
    { "google-gemma-2-2b-it", "none", NULL, NULL, 0 },
    { "google-gemma-4-31B-it", "gemma4", "<|channel>thought", "<|channel>thought\n<channel|>", 2 },
    { "ibm-granite-granite-3.3-2B-Instruct", "granite3", "<think>", "<|start_of_role|>assistant<|end_of_role|>", 2 },
    { "ibm-granite-granite-4.0", "hermes", NULL, NULL, 2 },
    { "meta-llama-Llama-3.1-8B-Instruct", "llama3", NULL, NULL, 1 },
    { "microsoft-Phi-3.5-mini-instruct", "none", NULL, NULL, 0 },
    { "mistralai-Mistral-Nemo-Instruct-2407", "mistral", NULL, NULL, 2 },
    { "openai-gpt-oss-120b", "harmony", NULL, "<|start|>assistant<|channel|>final<|message|>", 1 },
    { "poolside-Laguna-XS.2", "glm", "<think>", "<assistant>\n</think>", 2 },
    { "unsloth-Apriel-1.5", "tool-calls", "Here are my reasoning steps:\n", "<|assistant|>\n[BEGIN FINAL RESPONSE]\n",
      2 },
};
enum { N_FAMILIES = sizeof families / sizeof *families };

static chat *open_template(const char *name) {
    char  relative[200], *path, *text;
    chat *c;
    err   e = { 0 };
    snprintf(relative, sizeof relative, "templates/%s.jinja", name);
    if (!(path = test_corpus_path(relative))) return NULL;
    size_t bytes;
    if (file_read(&text, &bytes, path, 1 << 20, &e) < 0) fail_msg("%s", e.msg);
    if (chat_open(&c, DEMO, text, &e) < 0) fail_msg("%s: %s", name, e.msg);
    free(text);
    free(path);
    return c;
}

static const json_value *json(arena *a, const char *text) {
    const json_value *v;
    err               e = { 0 };
    if (json_parse(&v, text, strlen(text), a, &e) < 0) fail_msg("%s in %s", e.msg, text);
    return v;
}

static void test_detected(void **state) {
    (void)state;
    test_need_corpus();
    for (size_t i = 0; i < N_FAMILIES; i++) {
        chat *c = open_template(families[i].file);
        if (!c) return;
        const chat_format *f = chat_answer_format(c);
        const char        *syntax = f->generic ? "none" : f->row->name; /* of its own */
        if (strcmp(syntax, families[i].syntax) != 0)
            fail_msg("%s: %s, not %s", families[i].file, syntax, families[i].syntax);
        if ((f->think_open == NULL) != (families[i].think == NULL) ||
            (f->think_open && strcmp(f->think_open, families[i].think) != 0))
            fail_msg("%s: thoughts begin with %s, not %s", families[i].file, f->think_open ? f->think_open : "nothing",
                     families[i].think ? families[i].think : "nothing");
        chat_free(c);
    }
}

/* --- thoughts --- */

static void prompt(const chat *c, const char *messages, const char *tools, chat_thinking thinking, arena *a,
                   chat_tokens *t) {
    err        e = { 0 };
    chat_input in = { .messages = json(a, messages),
                      .tools = tools ? json(a, tools) : NULL,
                      .add_generation_prompt = true,
                      .thinking = thinking,
                      .now = { 2026, 1, 2, 15, 4, 5 } };
    chat_tokens_init(t);
    if (chat_prompt(c, &in, t, &e) < 0) fail_msg("%s", e.msg);
}

static bool ends(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static void test_thinking(void **state) {
    (void)state;
    test_need_corpus();
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const struct family *f = &families[i];
        chat                *c = open_template(f->file);
        chat_tokens          t;
        arena                a;
        if (!c) return;
        arena_init(&a, 0);
        prompt(c, "[{\"role\":\"user\",\"content\":\"Why?\"}]", NULL, CHAT_THINK_OFF, &a, &t);
        assert_true(t.reasoning_off);
        assert_false(t.in_reasoning);
        if (f->off && !ends(str_cstr(&t.text), f->off)) fail_msg("%s, off: %s", f->file, str_cstr(&t.text));
        chat_tokens_deinit(&t);
        if (f->think && strcmp(f->syntax, "tool-calls") != 0) {
            prompt(c, "[{\"role\":\"user\",\"content\":\"Why?\"}]", NULL, CHAT_THINK_ON, &a, &t);
            assert_false(t.reasoning_off);
            if (t.in_reasoning != (strstr(str_cstr(&t.text) + t.text.len - strlen(f->think) - 1, f->think) != NULL))
                fail_msg("%s, on: %s", f->file, str_cstr(&t.text));
            chat_tokens_deinit(&t);
        }
        arena_deinit(&a);
        chat_free(c);
    }
}

/* --- there and back --- */

#define WEATHER "{\"city\": \"Z\xc3\xbcrich \xe2\x98\x83 <b> it's \\\"q\\\"\", \"unit\": \"celsius\"}"
#define NUMBERS "{\"a\": 19, \"b\": -2.5, \"more\": [1, {\"deep\": true}], \"note\": \"7\"}"

static const char TOOLS[] = "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":\"Weather."
                            "\",\"parameters\":{\"type\":"
                            "\"object\",\"properties\":{\"city\":{\"type\":\"string\",\"description\":\"c\"},\"unit\":{"
                            "\"type\":\"string\",\"description\":"
                            "\"u\"}},\"required\":[\"city\"]}}},{\"type\":\"function\",\"function\":{\"name\":\"add_"
                            "numbers\",\"description\":\"Adds.\","
                            "\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"number\","
                            "\"description\":\"a\"},\"b\":{\"type\":\"number\","
                            "\"description\":\"b\"},\"more\":{\"type\":\"array\",\"description\":\"m\",\"items\":{}},"
                            "\"note\":{\"type\":\"string\","
                            "\"description\":\"n\"}},\"required\":[\"a\",\"b\"]}}}]";

typedef struct answer {
    str content, names[4], arguments[4];
    int n;
} answer;

static void collect(void *ctx, const chat_event *ev) {
    answer *x = ctx;
    switch (ev->part) {
    case CHAT_CONTENT: str_append(&x->content, ev->text.data, ev->text.len); break;
    case CHAT_TOOL_BEGIN:
        assert_true(x->n < 4);
        str_append(&x->names[x->n], ev->name.data, ev->name.len);
        break;
    case CHAT_TOOL_ARGUMENTS: str_append(&x->arguments[x->n], ev->text.data, ev->text.len); break;
    case CHAT_TOOL_END: x->n++; break;
    default: break;
    }
}

static bool same(const json_value *a, const json_value *b) {
    double x, y;
    if (json_number(a, &x) && json_number(b, &y)) return x == y;
    if (a->kind != b->kind || json_count(a) != json_count(b)) return false;
    switch (a->kind) {
    case JSON_K_BOOL: return a->u.boolean == b->u.boolean;
    case JSON_K_STRING: return view_eq(a->u.string, b->u.string);
    case JSON_K_ARRAY:
        for (size_t i = 0; i < json_count(a); i++) {
            if (!same(json_at(a, i), json_at(b, i))) return false;
        }
        return true;
    case JSON_K_OBJECT:
        for (size_t i = 0; i < json_count(a); i++) {
            const json_value *other = json_get(b, a->u.object.members[i].key.data);
            if (!other || !same(&a->u.object.members[i].value, other)) return false;
        }
        return true;
    default: return true;
    }
}

/* The assistant's part: what the conversation has beyond the prompt that the model would have answered. */
static void there_and_back(const struct family *f, chat *c, bool as_text) {
    static const char user[] = "{\"role\":\"user\",\"content\":\"Weather in Z\xc3\xbcrich?\"}";
    const char       *want[2] = { WEATHER, NUMBERS };
    chat_tokens       before, after;
    answer            x = { 0 };
    arena             a;
    err               e = { 0 };
    str               messages;
    chat_parser      *p;
    arena_init(&a, 0);
    str_init(&messages);
    str_printf(&messages, "[%s]", user);
    prompt(c, str_cstr(&messages), TOOLS, CHAT_THINK_DEFAULT, &a, &before);
    str_clear(&messages);
    str_printf(&messages, "[%s,{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[", user);
    for (int i = 0; i < 2; i++) {
        str_printf(&messages,
                   "%s{\"id\":\"call_0%d\",\"type\":\"function\",\"function\":{\"name\":\"%s\",\"arguments\":",
                   i ? "," : "", i, i ? "add_numbers" : "get_weather");
        if (as_text)
            str_put_json(&messages, want[i], strlen(want[i]));
        else
            str_puts(&messages, want[i]);
        str_puts(&messages, "}}");
    }
    str_puts(&messages, "]}");
    for (int i = 0; i < 2; i++)
        str_printf(&messages, ",{\"role\":\"tool\",\"tool_call_id\":\"call_0%d\",\"content\":\"RESULT\"}", i);
    str_puts(&messages, "]");
    prompt(c, str_cstr(&messages), TOOLS, CHAT_THINK_DEFAULT, &a, &after);
    size_t at = 0;
    while (at < before.text.len && at < after.text.len && before.text.data[at] == after.text.data[at]) at++;
    for (size_t back = at; back > 0 && at - back < 24; back--) { /* not in the middle of a tag */
        if (after.text.data[back - 1] == '>' || after.text.data[back - 1] == ']') break;
        if (after.text.data[back - 1] == '<' || after.text.data[back - 1] == '[') at = back - 1;
    }
    const char *part = str_cstr(&after.text) + at, *end = strstr(part, "RESULT");
    if (!end) fail_msg("%s: no result in %s", f->file, part);
    /* One call per message: the second follows the result of the first. */
    const char *second = strstr(end, "add_numbers"), *last = strstr(end + 1, "RESULT");
    if (f->calls == 1 && !(second && last && second < last)) fail_msg("%s: one call is lost: %s", f->file, part);
    const json_value   *tools = json(&a, TOOLS);
    chat_parser_options o = { .tools = tools };
    assert_int_equal(chat_parser_open(&p, chat_answer_format(c), &o, collect, &x, &e), 0);
    assert_int_equal(chat_parser_feed(p, part, (size_t)(end - part), &e), 0);
    assert_int_equal(chat_parser_finish(p, false, &e), 0);
    if (x.n != f->calls) fail_msg("%s: %d calls in %s", f->file, x.n, part);
    for (int i = 0; i < x.n; i++) {
        assert_string_equal(str_cstr(&x.names[i]), i ? "add_numbers" : "get_weather");
        if (!same(json(&a, want[i]), json(&a, str_cstr(&x.arguments[i]))))
            fail_msg("%s: %s, not %s, from %s", f->file, str_cstr(&x.arguments[i]), want[i], part);
    }
    chat_parser_free(p);
    for (int i = 0; i < 4; i++) {
        str_deinit(&x.names[i]);
        str_deinit(&x.arguments[i]);
    }
    str_deinit(&x.content);
    str_deinit(&messages);
    chat_tokens_deinit(&before);
    chat_tokens_deinit(&after);
    arena_deinit(&a);
}

static void test_there_and_back(void **state) {
    int n = 0;
    (void)state;
    test_need_corpus();
    for (size_t i = 0; i < N_FAMILIES; i++) {
        if (families[i].calls == 0) continue;
        chat *c = open_template(families[i].file);
        if (!c) return;
        there_and_back(&families[i], c, false);
        there_and_back(&families[i], c, true);
        chat_free(c);
        n++;
    }
    print_message("%d templates\n", n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_detected),
        cmocka_unit_test(test_thinking),
        cmocka_unit_test(test_there_and_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
