/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers to events: transcripts written by hand for every syntax, each fed whole, cut in two at every byte, byte by
 * byte and in random pieces. What is expected is written out, not computed.
 */
#include "unit/support/support.h"

#include "chat/parser.h"
#include "chat/partial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wmissing-field-initializers" /* most examples have no flags */

static const char TOOLS[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{\"type\":\"object\",\"properties\":"
    "{"
    "\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"}},\"required\":[\"city\"]}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"note\",\"parameters\":{\"type\":\"object\",\"$defs\":{\"m\":{"
    "\"type\":"
    "\"object\"}},\"properties\":{\"text\":{\"type\":\"string\"},\"tags\":{\"type\":\"array\"},\"meta\":{\"$ref\":"
    "\"#/$defs/m\"},\"flag\":{\"type\":\"boolean\"},\"maybe\":{\"type\":[\"string\",\"null\"]}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"now\"}}]";

/* --- events as lines: adjacent pieces are joined, so that only what was said counts, not how it arrived --- */

typedef struct record {
    str  lines, text, call, arguments;
    int  kind; /* of the text that is being joined: 'C', 'R' or 0 */
    int  next, open;
    bool stream;
} record;

static void flush(record *r) {
    if (r->kind) {
        str_printf(&r->lines, "%c ", r->kind);
        str_put_json(&r->lines, str_cstr(&r->text), r->text.len);
        str_push(&r->lines, '\n');
    }
    r->kind = 0;
    str_clear(&r->text);
}

/* Arguments that were cut off are nothing, or begin an object. */
static void check_begun(const str *arguments) {
    const json_value *v;
    arena             a;
    str               begun, closed;
    str_init(&begun);
    str_init(&closed);
    arena_init(&a, 0);
    chat_json_begun((view){ str_cstr(arguments), arguments->len }, &begun);
    assert_string_equal(str_cstr(&begun), str_cstr(arguments));
    assert_true(arguments->len == 0 || arguments->data[0] == '{');
    for (int keep = 0; keep < 2; keep++) {
        str_clear(&closed);
        chat_json_close((view){ str_cstr(arguments), arguments->len }, keep, &closed);
        assert_int_equal(json_parse(&v, str_cstr(&closed), closed.len, &a, NULL), 0);
        assert_true(json_is(v, JSON_K_OBJECT));
    }
    arena_deinit(&a);
    str_deinit(&begun);
    str_deinit(&closed);
}

static void sink(void *ctx, const chat_event *ev) {
    record *r = ctx;
    int     kind = ev->part == CHAT_CONTENT ? 'C' : ev->part == CHAT_REASONING ? 'R' : 0;
    if (kind) {
        assert_true(ev->text.len > 0);
        assert_int_equal(ev->index, -1);
        assert_int_equal(r->open, -1);
        if (r->kind != kind) flush(r);
        r->kind = kind;
        str_append(&r->text, ev->text.data, ev->text.len);
        return;
    }
    switch (ev->part) {
    case CHAT_TOOL_BEGIN:
        assert_int_equal(ev->index, r->next);
        assert_int_equal(r->open, -1);
        r->open = r->next++;
        str_clear(&r->arguments);
        str_clear(&r->call);
        str_printf(&r->call, "T %.*s %.*s ", (int)ev->name.len, ev->name.data, (int)ev->id.len, ev->id.data);
        break;
    case CHAT_TOOL_ARGUMENTS:
        assert_int_equal(ev->index, r->open);
        str_append(&r->arguments, ev->text.data, ev->text.len);
        break;
    case CHAT_TOOL_CUT:
        check_begun(&r->arguments);
        r->call.data[0] = 'X';
        /* fall through */
    case CHAT_TOOL_END:
        assert_int_equal(ev->index, r->open);
        flush(r);
        str_append(&r->lines, r->call.data, r->call.len);
        str_append(&r->lines, str_cstr(&r->arguments), r->arguments.len);
        str_push(&r->lines, '\n');
        r->open = -1;
        break;
    default: /* a call that was announced and broke: as if it had not been */
        assert_true(r->stream);
        assert_int_equal(ev->part, CHAT_TOOL_FAILED);
        assert_int_equal(ev->index, r->open);
        r->open = -1;
        break;
    }
}

typedef struct example {
    const char *what;
    chat_format format;
    const char *text, *want;
    bool        inside, plain, no_tools, limit;
} example;

/* Cuts: pieces[i] bytes each, the rest at the end. */
static void parse(const example *x, const json_value *tools, const size_t *pieces, size_t n, bool stream, str *out) {
    chat_parser        *p;
    record              r = { .open = -1, .stream = stream };
    chat_parser_options o = { .tools = x->no_tools ? NULL : tools,
                              .starts_in_reasoning = x->inside,
                              .plain_reasoning = x->plain,
                              .stream_arguments = stream };
    size_t              len = strlen(x->text), at = 0;
    assert_int_equal(chat_parser_open(&p, &x->format, &o, sink, &r, NULL), 0);
    for (size_t i = 0; i < n && at < len; i++) {
        size_t k = pieces[i] < len - at ? pieces[i] : len - at;
        assert_int_equal(chat_parser_feed(p, x->text + at, k, NULL), 0);
        at += k;
    }
    assert_int_equal(chat_parser_feed(p, x->text + at, len - at, NULL), 0);
    assert_int_equal(chat_parser_finish(p, x->limit, NULL), 0);
    flush(&r);
    assert_int_equal(r.open, -1);
    chat_parser_free(p);
    str_append(out, str_cstr(&r.lines), r.lines.len);
    str_deinit(&r.lines);
    str_deinit(&r.text);
    str_deinit(&r.call);
    str_deinit(&r.arguments);
}

static void expect(const example *x, const json_value *tools, const size_t *pieces, size_t n, bool stream) {
    str got;
    str_init(&got);
    parse(x, tools, pieces, n, stream, &got);
    if (strcmp(str_cstr(&got), x->want) != 0) {
        char how[200] = "";
        for (size_t i = 0; i < n && i < 12; i++) sprintf(how + strlen(how), " %zu", pieces[i]);
        fail_msg("%s, %s, cut%s%s\n--- text\n%s\n--- got\n%s--- want\n%s", x->format.row->name, x->what,
                 n ? how : " nowhere", stream ? ", streamed" : "", x->text, str_cstr(&got), x->want);
    }
    str_deinit(&got);
}

static void check(const example *x, const json_value *tools) {
    size_t   len = strlen(x->text), pieces[4096];
    uint64_t seed = 7;
    assert_true(len < 4096);
    for (int stream = 0; stream < 2; stream++) {
        expect(x, tools, NULL, 0, stream);
        for (size_t cut = 1; cut < len; cut++) expect(x, tools, &cut, 1, stream);
        for (size_t i = 0; i < len; i++) pieces[i] = 1;
        expect(x, tools, pieces, len, stream);
        for (int round = 0; round < 20; round++) {
            for (size_t i = 0; i < len; i++) pieces[i] = 1 + test_random(&seed) % 9;
            expect(x, tools, pieces, len, stream);
        }
    }
}

/* Wherever the limit cuts an answer off: nothing of a call is content, where nothing is of the whole answer; and with
 * arguments streamed or held, whole or byte by byte, the same is told. */
static void check_limit(const example *x, const json_value *tools) {
    const char *marks[] = { x->format.row->open, x->format.row->call_open, "<|channel|>" };
    char        text[4096];
    size_t      bytes[4096];
    for (size_t i = 0; i < 3; i++) {
        if (marks[i] && strstr(x->want, marks[i])) return;
    }
    for (size_t n = 1; n < strlen(x->text); n++) {
        example half = *x;
        str     got;
        memcpy(text, x->text, n);
        text[n] = '\0';
        half.text = text;
        half.limit = true;
        str_init(&got);
        parse(&half, tools, NULL, 0, false, &got);
        for (size_t i = 0; i < n; i++) bytes[i] = 1;
        half.want = str_cstr(&got);
        expect(&half, tools, bytes, n, false);
        expect(&half, tools, bytes, n, true);
        for (size_t i = 0; i < 3; i++) {
            if (marks[i] && strstr(str_cstr(&got), marks[i]))
                fail_msg("%s, %s: %s\n--- got\n%s", x->format.row->name, x->what, text, str_cstr(&got));
        }
        str_deinit(&got);
    }
}

static void check_all(const example *list, size_t n) {
    const json_value *tools;
    arena             a;
    arena_init(&a, 0);
    assert_int_equal(json_parse(&tools, TOOLS, sizeof TOOLS - 1, &a, NULL), 0);
    for (size_t i = 0; i < n; i++) {
        example x = list[i];
        x.format.row = chat_syntax_get(x.format.syntax);
        check(&x, tools);
        check_limit(&x, tools);
    }
    arena_deinit(&a);
}

#define THINK .think_open = "<think>", .think_close = "</think>"
#define COUNT(list) (sizeof(list) / sizeof *(list))

static void test_hermes(void **state) {
#define F                                                                                                              \
    { .syntax = CHAT_SYNTAX_HERMES, THINK }
    static const example list[] = {
        { "text", F, "Hello, world.\n", "C \"Hello, world.\\n\"\n" },
        { "one call", F, "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>",
          "T get_weather  {\"city\": \"Oslo\"}\n" },
        { "text before, two calls", F,
          "Let me "
          "see.\n\n<tool_call>\n{\"name\":\"get_weather\",\"arguments\":{\"city\":\"Oslo\",\"days\":2}}\n</tool_call>\n"
          "<tool_call>\n{\"name\":\"now\",\"arguments\":{}}\n</tool_call>\n",
          "C \"Let me see.\"\nT get_weather  {\"city\":\"Oslo\",\"days\":2}\nT now  {}\n" },
        { "thoughts before", F,
          "<think>\nThe <tool_call> tag is "
          "next.\n</think>\n\n<tool_call>\n{\"name\":\"now\",\"arguments\":{}}\n</tool_call>",
          "R \"The <tool_call> tag is next.\"\nT now  {}\n" },
        { "prompt opened the thoughts", F, "One < two\n</think>\n\nAnswer", "R \"One < two\"\nC \"Answer\"\n",
          .inside = true },
        { "prompt opened the thoughts, model again", F, "<think>\nA</think>B", "R \"A\"\nC \"B\"\n", .inside = true },
        { "thoughts that do not end", F, "<think>\nhm \n", "R \"hm\"\n" },
        { "empty thoughts", F, "<think>\n\n</think>\n\nHi", "C \"Hi\"\n" },
        { "thoughts as text", F, "<think>\nA\n</think>\n\nB", "C \"<think>\\nA\\n</think>\\n\\nB\"\n", .plain = true },
        { "marker later is text", F, "The tag <think> opens, </think> closes.",
          "C \"The tag <think> opens, </think> closes.\"\n" },
        { "nested and unicode", F,
          "<tool_call>\n{\"name\": \"note\", \"arguments\": {\"text\": \"Z\xc3\xbcrich \\u2603 \xf0\x9f\x98\x80 "
          "</tool_call> "
          "\\\"q\\\" \\\\\", \"meta\": {\"a\": [1, -2.5e3, {\"b\": null}], \"c\": {}}, \"tags\": []}}\n</tool_call>",
          "T note  {\"text\": \"Z\xc3\xbcrich \\u2603 \xf0\x9f\x98\x80 </tool_call> \\\"q\\\" \\\\\", \"meta\": "
          "{\"a\": [1, "
          "-2.5e3, {\"b\": null}], \"c\": {}}, \"tags\": []}\n" },
        { "arguments first, no arguments, arguments as text", F,
          "<tool_call>{\"arguments\": {\"city\": \"A\"}, \"name\": \"get_weather\"}</tool_call><tool_call>{\"name\": "
          "\"now\"}"
          "</tool_call><tool_call>{\"name\": \"now\", \"arguments\": \"{\\\"x\\\": 1}\"}</tool_call>",
          "T get_weather  {\"city\": \"A\"}\nT now  {}\nT now  {\"x\": 1}\n" },
        { "raw line break in a string", F,
          "<tool_call>{\"name\":\"note\",\"arguments\":{\"text\":\"a\nb\"}}</tool_call>",
          "T note  {\"text\":\"a\\nb\"}\n" },
        { "malformed JSON", F, "So:\n<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": }}\n</tool_call>",
          "C \"So:\\n<tool_call>\\n{\\\"name\\\": \\\"now\\\", \\\"arguments\\\": {\\\"a\\\": }}\\n</tool_call>\"\n" },
        { "malformed, then a good one", F,
          "<tool_call>{]</tool_call> <tool_call>{\"name\":\"now\",\"arguments\":{}}</tool_call>",
          "C \"<tool_call>{]</tool_call>\"\nT now  {}\n" },
        { "a tool nobody offered", F, "<tool_call>\n{\"name\": \"rm\", \"arguments\": {}}\n</tool_call>",
          "C \"<tool_call>\\n{\\\"name\\\": \\\"rm\\\", \\\"arguments\\\": {}}\\n</tool_call>\"\n" },
        { "cut off", F, "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": [1,",
          "C \"<tool_call>\\n{\\\"name\\\": \\\"now\\\", \\\"arguments\\\": {\\\"a\\\": [1,\"\n" },
        { "end marker cut off", F, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_c", "T now  {}\n" },
        { "begin marker cut off", F, "a <tool_ca", "C \"a <tool_ca\"\n" },
        { "cut off by the limit", F, "Hm.\n<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": [1,",
          "C \"Hm.\"\nX now  {\"a\": [1,\n", .limit = true },
        { "cut off by the limit in front of the name", F, "<tool_call>\n{\"na", "", .limit = true },
        { "cut off by the limit within the name", F, "<tool_call>\n{\"name\": \"no", "", .limit = true },
        { "cut off by the limit behind the name", F, "<tool_call>\n{\"name\": \"now\"", "X now  \n", .limit = true },
        { "cut off by the limit before the arguments", F,
          "<tool_call>\n{\"name\": \"now\", \"arguments\": ", "X now  \n", .limit = true },
        { "cut off by the limit behind the arguments", F, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}",
          "X now  {}\n", .limit = true },
        { "arguments as text, cut off by the limit", F,
          "<tool_call>{\"name\": \"note\", \"arguments\": \"{\\\"text\\\": \\\"a\\\\n\\", "X note  {\"text\": \"a\\n\n",
          .limit = true },
        { "arguments first, cut off by the limit", F, "<tool_call>{\"arguments\": {\"city\": \"A\"}, \"na", "",
          .limit = true },
        { "half a character, cut off by the limit", F, "<tool_call>{\"name\":\"note\",\"arguments\":{\"text\":\"Z\xc3",
          "X note  {\"text\":\"Z\n", .limit = true },
        { "malformed and cut off by the limit", F, "<tool_call>{\"name\":\"now\",\"arguments\":{]",
          "C \"<tool_call>{\\\"name\\\":\\\"now\\\",\\\"arguments\\\":{]\"\n", .limit = true },
        { "begin marker cut off by the limit", F, "a <tool_ca", "C \"a \"\n", .limit = true },
        { "too short to be a marker", F, "a <t", "C \"a <t\"\n", .limit = true },
        { "a second call cut off by the limit", F,
          "<tool_call>{\"name\":\"now\",\"arguments\":{}}</tool_call>\n<tool_call>{\"name\"", "T now  {}\n",
          .limit = true },
        { "a second call cut off by the limit behind its name", F,
          "<tool_call>{\"name\":\"now\",\"arguments\":{}}</"
          "tool_call>\n<tool_call>{\"name\":\"note\",\"arguments\":{\"te",
          "T now  {}\nX note  {\"te\n", .limit = true },
        { "text behind a call", F, "A \n<tool_call>{\"name\":\"now\"}</tool_call>\n\nB ",
          "C \"A\"\nT now  {}\nC \" \\nB \"\n" },
        { "no tools", F, "<tool_call>{\"name\":\"now\"}</tool_call>",
          "C \"<tool_call>{\\\"name\\\":\\\"now\\\"}</tool_call>\"\n", .no_tools = true },
        { "an empty call", F, "<tool_call></tool_call>", "C \"<tool_call></tool_call>\"\n" },
        { "a call inside a broken call", F, "<tool_call><tool_call>{\"name\":\"now\"}</tool_call>",
          "C \"<tool_call>\"\nT now  {}\n" },
    };
    (void)state;
    check_all(list, COUNT(list));
#undef F
}

static void test_llama3(void **state) {
#define F                                                                                                              \
    { .syntax = CHAT_SYNTAX_LLAMA3 }
    static const example list[] = {
        { "one call", F, "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Oslo\"}}",
          "T get_weather  {\"city\": \"Oslo\"}\n" },
        { "tag in front", F, "<|python_tag|>{\"name\": \"now\", \"parameters\": {}}", "T now  {}\n" },
        { "with a type, two calls", F,
          "{\"type\": \"function\", \"name\": \"now\", \"parameters\": {}}; {\"name\": \"get_weather\", "
          "\"parameters\": {\"city\": "
          "\"\xc3\x85lesund\", \"days\": 3}}",
          "T now  {}\nT get_weather  {\"city\": \"\xc3\x85lesund\", \"days\": 3}\n" },
        { "text before, with the tag", F, "Sure. <|python_tag|>{\"name\": \"now\", \"parameters\": {}}",
          "C \"Sure.\"\nT now  {}\n" },
        { "JSON behind text is text", F, "See {\"name\": \"now\", \"parameters\": {}}",
          "C \"See {\\\"name\\\": \\\"now\\\", \\\"parameters\\\": {}}\"\n" },
        { "an answer in JSON", F, "{\"name\": \"Bob\", \"parameters\": {}}",
          "C \"{\\\"name\\\": \\\"Bob\\\", \\\"parameters\\\": {}}\"\n" },
        { "another answer in JSON", F, " {\"city\": {\"a\": 1}}\n", "C \" {\\\"city\\\": {\\\"a\\\": 1}}\\n\"\n" },
        { "no parameters", F, "{\"name\": \"now\"}", "C \"{\\\"name\\\": \\\"now\\\"}\"\n" },
        { "malformed", F, "{\"name\": \"now\", \"parameters\": {\"a\" 1}}",
          "C \"{\\\"name\\\": \\\"now\\\", \\\"parameters\\\": {\\\"a\\\" 1}}\"\n" },
        { "code behind the tag", F, "<|python_tag|>print(1)", "C \"<|python_tag|>print(1)\"\n" },
        { "no tools", F, "{\"name\": \"now\", \"parameters\": {}}",
          "C \"{\\\"name\\\": \\\"now\\\", \\\"parameters\\\": {}}\"\n", .no_tools = true },
    };
    (void)state;
    check_all(list, COUNT(list));
#undef F
}

static void test_qwen_xml(void **state) {
#define F                                                                                                              \
    { .syntax = CHAT_SYNTAX_QWEN_XML, THINK }
    static const example list[] = {
        { "one call", F,
          "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n2\n"
          "</parameter>\n</function>\n</tool_call>",
          "T get_weather  {\"city\": \"Oslo\", \"days\": 2}\n" },
        { "thoughts, text, two calls", F,
          "<think>\nhm\n</think>\n\nFirst "
          "this.\n\n<tool_call>\n<function=now>\n</function>\n</tool_call>\n<tool_call>\n"
          "<function=get_weather>\n<parameter=city>\n12\n</parameter>\n</function>\n</tool_call>",
          "R \"hm\"\nC \"First this.\"\nT now  {}\nT get_weather  {\"city\": \"12\"}\n" },
        { "types by the schema", F,
          "<tool_call>\n<function=note>\n<parameter=text>\nline \"1\"\n\n\tline <2> \\ "
          "\xe2\x98\x83\n\n</parameter>\n<parameter=tags>\n[\"a\", "
          "{\"b\": [1]}]\n</parameter>\n<parameter=meta>\n{\"k\": {\"n\": "
          "null}}\n</parameter>\n<parameter=flag>\nTrue\n"
          "</parameter>\n<parameter=maybe>\nnull\n</parameter>\n<parameter=other>\nfree "
          "text\n</parameter>\n</function>\n</tool_call>",
          "T note  {\"text\": \"line \\\"1\\\"\\n\\n\\tline <2> \\\\ \xe2\x98\x83\\n\", \"tags\": [\"a\", {\"b\": "
          "[1]}], \"meta\": {\"k\": {\"n\": "
          "null}}, \"flag\": true, \"maybe\": null, \"other\": \"free text\"}\n" },
        { "without line breaks, outer tag forgotten", F,
          "<function=get_weather><parameter=city>Oslo</parameter></function></tool_call>",
          "T get_weather  {\"city\": \"Oslo\"}\n" },
        { "inner end forgotten", F, "<tool_call>\n<function=now>\n</tool_call>", "T now  {}\n" },
        { "JSON in the same marker", F, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
          "T now  {}\n" },
        { "cut off by the limit in a value", F,
          "<tool_call>\n<function=note>\n<parameter=tags>\n[1, \"b\"]\n</parameter>\n<parameter=text>\nOs\n</para",
          "X note  {\"tags\": [1, \"b\"], \"text\": \"Os\n", .limit = true },
        { "cut off by the limit in a value that is JSON", F, "<tool_call>\n<function=note>\n<parameter=tags>\n[1, \"b",
          "X note  {\"tags\": [1, \"b\n", .limit = true },
        { "cut off in a value", F, "Hm\n<tool_call>\n<function=get_weather>\n<parameter=city>\nOs",
          "C \"Hm\\n<tool_call>\\n<function=get_weather>\\n<parameter=city>\\nOs\"\n" },
        { "a tool nobody offered", F, "<tool_call>\n<function=rm>\n</function>\n</tool_call>",
          "C \"<tool_call>\\n<function=rm>\\n</function>\\n</tool_call>\"\n" },
        { "malformed", F, "<tool_call>\n<function=now>\n<param=a>\n</function>\n</tool_call>",
          "C \"<tool_call>\\n<function=now>\\n<param=a>\\n</function>\\n</tool_call>\"\n" },
    };
    (void)state;
    check_all(list, COUNT(list));
#undef F
#define F                                                                                                              \
    { .syntax = CHAT_SYNTAX_SEED, .think_open = "<seed:think>", .think_close = "</seed:think>", .think_anywhere = true }
    static const example seed[] = {
        { "thoughts, text, two calls", F,
          "<seed:think>hm</seed:think>\nText.\n\n<seed:tool_call>\n<function=note>\n<parameter=text>\na\n</"
          "parameter>\n</function>\n"
          "</seed:tool_call>\n<seed:tool_call>\n<function=now>\n</function>\n</seed:tool_call>",
          "R \"hm\"\nC \"Text.\"\nT note  {\"text\": \"\\na\\n\"}\nT now  {}\n" },
        { "malformed", F, "<seed:tool_call>\nnow()\n</seed:tool_call>",
          "C \"<seed:tool_call>\\nnow()\\n</seed:tool_call>\"\n" },
    };
    check_all(seed, COUNT(seed));
#undef F
}

static void test_mistral(void **state) {
#define THINK_M .think_open = "[THINK]", .think_close = "[/THINK]", .think_anywhere = true
#define F                                                                                                              \
    { .syntax = CHAT_SYNTAX_MISTRAL, THINK_M }
    static const example old[] = {
        { "one call", F,
          "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}, \"id\": \"123456789\"}]",
          "T get_weather 123456789 {\"city\": \"Oslo\"}\n" },
        { "thoughts, text, two calls, no ids", F,
          "[THINK]hm[/THINK]Text [1]. [TOOL_CALLS] [{\"name\":\"now\",\"arguments\":{}}, "
          "{\"name\":\"note\",\"arguments\":{\"text\":\"]["
          "TOOL_CALLS]\",\"meta\":{\"a\":{\"b\":[]}}}}]",
          "R \"hm\"\nC \"Text [1].\"\nT now  {}\nT note  {\"text\":\"][TOOL_CALLS]\",\"meta\":{\"a\":{\"b\":[]}}}\n" },
        { "thoughts that end in a call", F, "[THINK]hm [TOOL_CALLS][{\"name\":\"now\",\"arguments\":{}}]",
          "R \"hm\"\nT now  {}\n" },
        { "cut off by the limit in front of its id", F, "[TOOL_CALLS][{\"name\":\"now\",\"arguments\":{}",
          "X now  {}\n", .limit = true },
        { "malformed", F, "[TOOL_CALLS][{\"name\":\"now\",\"arguments\":{}",
          "C \"[TOOL_CALLS][{\\\"name\\\":\\\"now\\\",\\\"arguments\\\":{}\"\n" },
        { "the second is malformed", F, "[TOOL_CALLS][{\"name\":\"now\",\"arguments\":{}}, {\"name\":\"rm\"}]",
          "T now  {}\nC \", {\\\"name\\\":\\\"rm\\\"}]\"\n" },
    };
    (void)state;
    check_all(old, COUNT(old));
#undef F
#define F                                                                                                              \
    { .syntax = CHAT_SYNTAX_MISTRAL_ARGS, THINK_M }
    static const example args[] = {
        { "one call", F, "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Oslo\"}", "T get_weather  {\"city\": \"Oslo\"}\n" },
        { "thoughts, text, two calls, one id", F,
          "[THINK]hm[/THINK]Text.[TOOL_CALLS]now[CALL_ID]abcdefghi[ARGS]{}[TOOL_CALLS]note[ARGS]{\"text\": "
          "\"\xe2\x98\x83 [ARGS]\", "
          "\"tags\": [[], {}]}",
          "R \"hm\"\nC \"Text.\"\nT now abcdefghi {}\nT note  {\"text\": \"\xe2\x98\x83 [ARGS]\", \"tags\": [[], "
          "{}]}\n" },
        { "no separator", F, "[TOOL_CALLS]now{}", "T now  {}\n" },
        { "the older list", F, "[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {}}]", "T now  {}\n" },
        { "malformed", F, "Hm [TOOL_CALLS]now[ARGS]{\"a\"}", "C \"Hm [TOOL_CALLS]now[ARGS]{\\\"a\\\"}\"\n" },
        { "a tool nobody offered", F, "[TOOL_CALLS]rm[ARGS]{}", "C \"[TOOL_CALLS]rm[ARGS]{}\"\n" },
    };
    check_all(args, COUNT(args));
#undef F
}

static void test_deepseek(void **state) {
#define F                                                                                                              \
    { .syntax = CHAT_SYNTAX_DEEPSEEK, THINK }
    static const example list[] = {
        { "one call", F,
          "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": "
          "\"Oslo\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
          "T get_weather  {\"city\": \"Oslo\"}\n" },
        { "thoughts, text, two calls", F,
          "hm｜</"
          "think>Text.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>\n<"
          "｜tool▁call▁begin｜>note<｜tool▁sep｜>"
          "{\"text\": \"｜ \xe2\x98\x83\", \"meta\": {\"a\": [[1]]}}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
          "R \"hm｜\"\nC \"Text.\"\nT now  {}\nT note  {\"text\": \"｜ \xe2\x98\x83\", \"meta\": {\"a\": [[1]]}}\n",
          .inside = true },
        { "R1's fences", F,
          "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": "
          "\"Oslo\"}\n```<｜tool▁call▁end｜>\n"
          "<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
          "T get_weather  {\"city\": \"Oslo\"}\nT now  {}\n" },
        { "section forgotten", F, "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>", "T now  {}\n" },
        { "ends missing", F, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}", "T now  {}\n" },
        { "malformed", F,
          "A<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
          "C "
          "\"A<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
          "\"\n" },
        { "empty section", F, "<｜tool▁calls▁begin｜><｜tool▁calls▁end｜>",
          "C \"<｜tool▁calls▁begin｜><｜tool▁calls▁end｜>\"\n" },
    };
    (void)state;
    check_all(list, COUNT(list));
#undef F
}

static void test_kimi(void **state) {
#define F                                                                                                              \
    { .syntax = CHAT_SYNTAX_KIMI, THINK }
#define SB "<|tool_calls_section_begin|>"
#define SE "<|tool_calls_section_end|>"
#define CB "<|tool_call_begin|>"
#define CA "<|tool_call_argument_begin|>"
#define CE "<|tool_call_end|>"
    static const example list[] = {
        { "one call", F, SB CB "functions.get_weather:0" CA "{\"city\": \"Oslo\"}" CE SE,
          "T get_weather functions.get_weather:0 {\"city\": \"Oslo\"}\n" },
        { "thoughts, text, two calls", F,
          "<think>hm</think>Text." SB CB "functions.now:0" CA "{}" CE CB "functions.note:11" CA
          "{\"text\": \"<|tool_call_end|> \xf0\x9f\x98\x80\", \"meta\": {\"a\": {\"b\": 1}}}" CE SE,
          "R \"hm\"\nC \"Text.\"\nT now functions.now:0 {}\nT note functions.note:11 {\"text\": \"<|tool_call_end|> "
          "\xf0\x9f\x98\x80\", "
          "\"meta\": {\"a\": {\"b\": 1}}}\n" },
        { "thoughts that end in a call", F, "<think>hm " SB CB "functions.now:0" CA "{}" CE SE,
          "R \"hm\"\nT now functions.now:0 {}\n" },
        { "white space between", F, SB " " CB " functions.now:0 " CA " {} " CE "\n" SE "\n",
          "T now functions.now:0 {}\n" },
        { "malformed", F, SB CB "functions.now:0" CA "{]" CE SE, "C \"" SB CB "functions.now:0" CA "{]" CE SE "\"\n" },
        { "a tool nobody offered", F, SB CB "functions.rm:0" CA "{}" CE SE,
          "C \"" SB CB "functions.rm:0" CA "{}" CE SE "\"\n" },
    };
    (void)state;
    check_all(list, COUNT(list));
#undef F
}

static void test_glm(void **state) {
#define F                                                                                                              \
    { .syntax = CHAT_SYNTAX_GLM, THINK }
    static const example list[] = {
        { "one call", F, "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n</tool_call>",
          "T get_weather  {\"city\": \"Oslo\"}\n" },
        { "thoughts, text, two calls", F,
          "\n<think>hm</think>\nText.\n<tool_call>now\n</tool_call>\n<tool_call>get_weather\n<arg_key>city</"
          "arg_key>\n<arg_value>7</arg_value>\n"
          "<arg_key>days</arg_key>\n<arg_value>7</arg_value>\n</tool_call>",
          "R \"hm\"\nC \"Text.\"\nT now  {}\nT get_weather  {\"city\": \"7\", \"days\": 7}\n" },
        { "nested and unicode, without line breaks", F,
          "<tool_call>note<arg_key>text</arg_key><arg_value>\n \"\xe2\x98\x83\" </arg_valu> "
          "</arg_value><arg_key>meta</arg_key><arg_value>{\"a\": "
          "[1, {\"b\": \"c\"}]}</arg_value></tool_call>",
          "T note  {\"text\": \"\\n \\\"\xe2\x98\x83\\\" </arg_valu> \", \"meta\": {\"a\": [1, {\"b\": \"c\"}]}}\n" },
        { "no arguments, one line", F, "<tool_call>now</tool_call>", "T now  {}\n" },
        { "malformed", F, "<tool_call>now\n<arg_key>a</arg_key>\n</tool_call>",
          "C \"<tool_call>now\\n<arg_key>a</arg_key>\\n</tool_call>\"\n" },
        { "cut off by the limit", F, "A\n<tool_call>note\n<arg_key>text</arg_key>\n<arg_value>abc",
          "C \"A\"\nX note  {\"text\": \"abc\n", .limit = true },
        { "cut off by the limit within the name", F, "A\n<tool_call>no", "C \"A\"\n", .limit = true },
        { "cut off", F, "A\n<tool_call>note\n<arg_key>text</arg_key>\n<arg_value>abc",
          "C \"A\\n<tool_call>note\\n<arg_key>text</arg_key>\\n<arg_value>abc\"\n" },
        { "a tool nobody offered", F, "<tool_call>rm\n</tool_call>", "C \"<tool_call>rm\\n</tool_call>\"\n" },
    };
    (void)state;
    check_all(list, COUNT(list));
#undef F
}

static void test_minimax(void **state) {
#define F                                                                                                              \
    { .syntax = CHAT_SYNTAX_MINIMAX, THINK }
    static const example list[] = {
        { "one call", F,
          "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter "
          "name=\"city\">Oslo</parameter>\n</invoke>\n</minimax:tool_call>",
          "T get_weather  {\"city\": \"Oslo\"}\n" },
        { "thoughts, text, two calls", F,
          "hm\n</think>\n\nText.\n\n<minimax:tool_call>\n<invoke name=\"now\">\n</invoke>\n<invoke "
          "name=\"note\">\n<parameter name=\"text\">"
          "a\n\"\xe2\x98\x83\"\n</parameter>\n<parameter name=\"meta\">{\"a\": [{\"b\": "
          "1}]}</parameter>\n</invoke>\n</minimax:tool_call>",
          "R \"hm\"\nC \"Text.\"\nT now  {}\nT note  {\"text\": \"a\\n\\\"\xe2\x98\x83\\\"\\n\", \"meta\": {\"a\": "
          "[{\"b\": 1}]}}\n",
          .inside = true },
        { "malformed", F, "<minimax:tool_call>\n<invoke name=\"now\">\nx</invoke>\n</minimax:tool_call>",
          "C \"<minimax:tool_call>\\n<invoke name=\\\"now\\\">\\nx</invoke>\\n</minimax:tool_call>\"\n" },
        { "end missing", F, "<minimax:tool_call>\n<invoke name=\"now\">\n</invoke>", "T now  {}\n" },
    };
    (void)state;
    check_all(list, COUNT(list));
#undef F
}

static void test_lfm2(void **state) {
#define F                                                                                                              \
    { .syntax = CHAT_SYNTAX_LFM2, THINK }
    static const example list[] = {
        { "one call", F, "<|tool_call_start|>[get_weather(city=\"Oslo\", days=1)]<|tool_call_end|>",
          "T get_weather  {\"city\": \"Oslo\", \"days\": 1}\n" },
        { "thoughts, text behind and before, two calls", F,
          "<think>hm</think>Text.<|tool_call_start|>[now(), note(text='it\\'s \xe2\x98\x83 \\u2603', tags=['a', "
          "\"b\"], meta={'k': {'n': None}}, flag=True)]"
          "<|tool_call_end|>Done.",
          "R \"hm\"\nC \"Text.\"\nT now  {}\nT note  {\"text\": \"it's \xe2\x98\x83 \xe2\x98\x83\", \"tags\": [\"a\", "
          "\"b\"], \"meta\": {\"k\": {\"n\": null}}, "
          "\"flag\": true}\nC \"Done.\"\n" },
        { "end missing", F, "<|tool_call_start|>[now()]", "T now  {}\n" },
        { "malformed", F, "<|tool_call_start|>[now(]<|tool_call_end|>",
          "C \"<|tool_call_start|>[now(]<|tool_call_end|>\"\n" },
        { "a tool nobody offered", F, "<|tool_call_start|>[now(), rm()]<|tool_call_end|>",
          "C \"<|tool_call_start|>[now(), rm()]<|tool_call_end|>\"\n" },
        { "cut off", F, "A <|tool_call_start|>[note(text='a", "C \"A <|tool_call_start|>[note(text='a\"\n" },
        { "cut off by the limit", F, "A <|tool_call_start|>[now(), note(tags=[1, 'b'], text='it\\'s",
          "C \"A\"\nT now  {}\nX note  {\"tags\": [1, \"b\"], \"text\": \"it's\n", .limit = true },
        { "cut off by the limit within the name", F, "<|tool_call_start|>[now(), no", "T now  {}\n", .limit = true },
        { "malformed and cut off by the limit", F, "<|tool_call_start|>[now(], no",
          "C \"<|tool_call_start|>[now(], no\"\n", .limit = true },
    };
    (void)state;
    check_all(list, COUNT(list));
#undef F
}

static void test_gemma4(void **state) {
#define F                                                                                                              \
    {                                                                                                                  \
        .syntax = CHAT_SYNTAX_GEMMA4, .think_open = "<|channel>thought", .think_close = "<channel|>",                  \
        .think_anywhere = true                                                                                         \
    }
#define Q "<|\"|>"
    static const example list[] = {
        { "one call", F, "<|tool_call>call:get_weather{city:" Q "Paris" Q "}<tool_call|>",
          "T get_weather  {\"city\": \"Paris\"}\n" },
        { "thoughts, text, two calls", F,
          "<|channel>thought\nhm\n<channel|>Text.<|tool_call>call:now{}<tool_call|><|tool_call>call:note{flag:true,"
          "meta:{a:[1,{b:" Q "}," Q "}],c:null},text:" Q "\xe2\x98\x83 {\"x\"}" Q "}<tool_call|><|tool_response>",
          "R \"hm\"\nC \"Text.\"\nT now  {}\nT note  {\"flag\": true, \"meta\": {\"a\": [1, {\"b\": \"},\"}], \"c\": "
          "null}, \"text\": \"\xe2\x98\x83 "
          "{\\\"x\\\"}\"}\n" },
        { "thoughts between texts", F, "A <|channel>thought\nhm<channel|> B", "C \"A\"\nR \"hm\"\nC \" B\"\n" },
        { "malformed", F, "<|tool_call>call:now{a:}<tool_call|>", "C \"<|tool_call>call:now{a:}<tool_call|>\"\n" },
        { "cut off", F, "<|tool_call>call:note{text:" Q "a", "C \"<|tool_call>call:note{text:<|\\\"|>a\"\n" },
        { "cut off by the limit", F, "<|tool_call>call:note{flag:true,text:" Q "a\n<|",
          "X note  {\"flag\": true, \"text\": \"a\\n\n", .limit = true },
        { "cut off by the limit within a key", F, "<|tool_call>call:note{flag:true,te", "X note  {\"flag\": true, \n",
          .limit = true },
        { "cut off by the limit within the name", F, "<|tool_call>call:no", "", .limit = true },
    };
    (void)state;
    check_all(list, COUNT(list));
#undef F
}

static void test_command_r(void **state) {
#define F                                                                                                              \
    {                                                                                                                  \
        .syntax = CHAT_SYNTAX_COMMAND_R, .think_open = "<|START_THINKING|>", .think_close = "<|END_THINKING|>",        \
        .think_anywhere = true, .content_open = "<|START_RESPONSE|>", .content_close = "<|END_RESPONSE|>"              \
    }
    static const example list[] = {
        { "one call", F,
          "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"get_weather\", \"parameters\": {\"city\": "
          "\"Oslo\"}}\n]<|END_ACTION|>",
          "T get_weather 0 {\"city\": \"Oslo\"}\n" },
        { "thoughts, two calls", F,
          "I will "
          "look.<|END_THINKING|><|START_ACTION|>[{\"tool_call_id\":\"0\",\"tool_name\":\"now\",\"parameters\":{}},{"
          "\"tool_call_id\":\"1\",\"tool_name\":"
          "\"note\",\"parameters\":{\"text\":\"\xe2\x98\x83<|END_ACTION|>\",\"meta\":{\"a\":{}}}}]<|END_ACTION|>",
          "R \"I will look.\"\nT now 0 {}\nT note 1 {\"text\":\"\xe2\x98\x83<|END_ACTION|>\",\"meta\":{\"a\":{}}}\n",
          .inside = true },
        { "an answer", F, "<|START_THINKING|>hm<|END_THINKING|><|START_RESPONSE|>Hello <|x|>.<|END_RESPONSE|>",
          "R \"hm\"\nC \"Hello <|x|>.\"\n" },
        { "text before", F,
          "<|START_RESPONSE|>A<|END_RESPONSE|><|START_ACTION|>[{\"tool_name\":\"now\"}]<|END_ACTION|>",
          "C \"A\"\nT now  {}\n" },
        { "malformed", F, "<|START_ACTION|>[{\"tool_name\":\"now\",]<|END_ACTION|>",
          "C \"<|START_ACTION|>[{\\\"tool_name\\\":\\\"now\\\",]<|END_ACTION|>\"\n" },
    };
    (void)state;
    check_all(list, COUNT(list));
#undef F
}

static void test_harmony(void **state) {
#define F                                                                                                              \
    { .syntax = CHAT_SYNTAX_HARMONY }
    static const example list[] = {
        { "thoughts and one call", F,
          "<|channel|>analysis<|message|>Need weather.<|end|><|start|>assistant<|channel|>commentary "
          "to=functions.get_weather "
          "<|constrain|>json<|message|>{\"city\": \"Oslo\"}<|call|>",
          "R \"Need weather.\"\nT get_weather  {\"city\": \"Oslo\"}\n" },
        { "thoughts and an answer", F,
          "<|channel|>analysis<|message|>hm <|x|>\n<|end|><|start|>assistant<|channel|>final<|message|>Hello\n",
          "R \"hm <|x|>\\n\"\nC \"Hello\\n\"\n" },
        { "text before, two calls, recipient in front", F,
          "<|channel|>commentary<|message|>Let me see.<|end|><|start|>assistant to=functions.now<|channel|>commentary "
          "json<|message|>{}<|call|>"
          "<|start|>assistant<|channel|>commentary to=functions.note <|constrain|>json<|message|>{\"text\": "
          "\"\xe2\x98\x83\", \"meta\": {\"a\": [{}]}}",
          "C \"Let me see.\"\nT now  {}\nT note  {\"text\": \"\xe2\x98\x83\", \"meta\": {\"a\": [{}]}}\n" },
        { "the recipient first", F, " to=functions.now<|channel|>commentary json<|message|>{}<|call|>", "T now  {}\n" },
        { "two messages of thoughts, text and answer", F,
          "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|><|start|>"
          "assistant<|channel|>commentary<|message|>"
          "c<|end|><|start|>assistant<|channel|>final<|message|>d<|return|>",
          "R \"a\\nb\"\nC \"c\\nd\"\n" },
        { "a prompt that began the answer", F, "Hello < there", "C \"Hello < there\"\n" },
        { "a prompt that began the thoughts", F, "hm<|end|><|start|>assistant<|channel|>final<|message|>A",
          "R \"hm\"\nC \"A\"\n", .inside = true },
        { "malformed", F, "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{\"a\"}<|call|>",
          "C \"<|channel|>commentary to=functions.now <|constrain|>json<|message|>{\\\"a\\\"}\"\n" },
        { "cut off", F, "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{\"a\":",
          "C \"<|channel|>commentary to=functions.now <|constrain|>json<|message|>{\\\"a\\\":\"\n" },
        { "cut off by the limit", F, "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{\"a\":",
          "X now  {\"a\":\n", .limit = true },
        { "cut off by the limit within the header", F, "<|channel|>commentary to=functions.now <|constrain|>js", "",
          .limit = true },
        { "a tool nobody offered", F, "<|channel|>commentary to=functions.rm <|constrain|>json<|message|>{}<|call|>",
          "C \"<|channel|>commentary to=functions.rm <|constrain|>json<|message|>{}\"\n" },
    };
    (void)state;
    check_all(list, COUNT(list));
#undef F
}

static void test_others(void **state) {
    static const example list[] = {
        { "Nemotron",
          { .syntax = CHAT_SYNTAX_NEMOTRON, THINK },
          "hm</think>\nText.\n<TOOLCALL>[{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"get_weather\", "
          "\"arguments\": {\"city\": \"O\"}}]</TOOLCALL>\n",
          "R \"hm\"\nC \"Text.\"\nT now  {}\nT get_weather  {\"city\": \"O\"}\n",
          .inside = true },
        { "Apriel",
          { .syntax = CHAT_SYNTAX_TOOL_CALLS,
            .think_open = "Here are my reasoning steps:\n",
            .think_close = "[BEGIN FINAL RESPONSE]",
            .think_implicit = true,
            .content_open = "[BEGIN FINAL RESPONSE]",
            .content_close = "[END FINAL RESPONSE]" },
          "Here are my reasoning steps:\nhm\n[BEGIN FINAL RESPONSE]\nHello\n[END FINAL RESPONSE]",
          "R \"hm\"\nC \"Hello\"\n",
          .inside = true },
        { "Apriel calls",
          { .syntax = CHAT_SYNTAX_TOOL_CALLS,
            .think_open = "Here are my reasoning steps:\n",
            .think_close = "[BEGIN FINAL RESPONSE]",
            .think_implicit = true },
          "I need it.\n<tool_calls>[{\"name\": \"now\", \"arguments\": {}, \"id\": \"x\"}]</tool_calls>",
          "R \"I need it.\"\nT now  {}\n",
          .inside = true },
        { "Apriel without thoughts",
          { .syntax = CHAT_SYNTAX_TOOL_CALLS,
            .think_open = "Here are my reasoning steps:\n",
            .think_close = "[BEGIN FINAL RESPONSE]",
            .think_implicit = true,
            .content_close = "[END FINAL RESPONSE]" },
          "Hello\n[END FINAL RESPONSE]",
          "C \"Hello\"\n" },
        { "Granite 3",
          { .syntax = CHAT_SYNTAX_GRANITE3 },
          "<|tool_call|>[{\"name\": \"now\", \"arguments\": {}}]",
          "T now  {}\n" },
        { "Apertus",
          { .syntax = CHAT_SYNTAX_APERTUS,
            .think_open = "<|inner_prefix|>",
            .think_close = "<|inner_suffix|>",
            .think_anywhere = true },
          "<|inner_prefix|>hm<|inner_suffix|>Text.<|tools_prefix|>[{\"get_weather\": {\"city\": \"O\"}}, {\"now\": "
          "{}}]<|tools_suffix|>",
          "R \"hm\"\nC \"Text.\"\nT get_weather  {\"city\": \"O\"}\nT now  {}\n" },
        { "Apertus, unknown",
          { .syntax = CHAT_SYNTAX_APERTUS },
          "<|tools_prefix|>[{\"rm\": {}}]<|tools_suffix|>",
          "C \"<|tools_prefix|>[{\\\"rm\\\": {}}]<|tools_suffix|>\"\n" },
        { "Command-R+",
          { .syntax = CHAT_SYNTAX_COMMAND_R_PLUS },
          "Action:\n```json\n[\n    {\n        \"tool_name\": \"now\",\n        \"parameters\": {}\n    }\n]```\n",
          "T now  {}\n" },
        { "GigaChat",
          { .syntax = CHAT_SYNTAX_GIGACHAT },
          "Text.<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"now\", \"arguments\": {}}",
          "C \"Text.\"\nT now  {}\n" },
        { "no syntax",
          { .syntax = CHAT_SYNTAX_NONE, THINK },
          "<think>a</think><tool_call>{\"name\": \"now\"}</tool_call> ",
          "R \"a\"\nC \"<tool_call>{\\\"name\\\": \\\"now\\\"}</tool_call> \"\n" },
    };
    (void)state;
    check_all(list, COUNT(list));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hermes),  cmocka_unit_test(test_llama3),    cmocka_unit_test(test_qwen_xml),
        cmocka_unit_test(test_mistral), cmocka_unit_test(test_deepseek),  cmocka_unit_test(test_kimi),
        cmocka_unit_test(test_glm),     cmocka_unit_test(test_minimax),   cmocka_unit_test(test_lfm2),
        cmocka_unit_test(test_gemma4),  cmocka_unit_test(test_command_r), cmocka_unit_test(test_harmony),
        cmocka_unit_test(test_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
