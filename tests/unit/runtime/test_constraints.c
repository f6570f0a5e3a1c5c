/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Constrained answers of the demo model through the runtime: what was valid stays as it is, what is cut off is a valid
 * beginning, calls are calls, thoughts have their budget.
 */
#include "unit/support/support.h"

#include "base/file.h"
#include "base/json.h"
#include "bundle/tokenizer.h"
#include "grammar/grammar.h"
#include "unit/support/runtime_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void text_eq(const test_answer *a, const test_answer *b) {
    assert_string_equal(str_cstr(&a->content), str_cstr(&b->content));
    assert_int_equal(a->n_tokens, b->n_tokens);
    assert_memory_equal(a->tokens, b->tokens, (size_t)a->n_tokens * sizeof *a->tokens);
}

static void constrain(runtime_request *q, runtime_constraint_kind kind, const char *text) {
    q->constraint = (runtime_constraint){ kind, view_of(text) };
}

static void user_message(str *out, const char *text) {
    str_clear(out);
    str_puts(out, "[{\"role\": \"user\", \"content\": ");
    str_put_json(out, text, strlen(text));
    str_puts(out, "}]");
}

/* --- what was valid stays as it is --- */

/* An object with exactly these keys: 's' a string, 'i' an integer. Looked at with the JSON reader, not the grammar. */
static bool has_shape(const char *text, const char *const *keys, const char *types, size_t n) {
    const json_value *v;
    arena             a;
    arena_init(&a, 0);
    bool ok = json_parse(&v, text, strlen(text), &a, NULL) == 0 && json_is(v, JSON_K_OBJECT) && json_count(v) == n;
    for (size_t i = 0; i < n && ok; i++)
        ok = json_is(json_get(v, keys[i]), types[i] == 's' ? JSON_K_STRING : JSON_K_INT);
    arena_deinit(&a);
    return ok;
}

/* The schema of the first n keys, and the question that the demo model knows for it. */
static void make_case(str *schema, str *question, const char *const *keys, const char *types, size_t n,
                      const char *about) {
    str_clear(schema);
    str_puts(schema, "{\"type\": \"object\", \"properties\": {");
    for (size_t i = 0; i < n; i++)
        str_printf(schema, "%s\"%s\": {\"type\": \"%s\"}", i ? ", " : "", keys[i],
                   types[i] == 's' ? "string" : "integer");
    str_puts(schema, "}, \"required\": [");
    for (size_t i = 0; i < n; i++) str_printf(schema, "%s\"%s\"", i ? ", " : "", keys[i]);
    str_puts(schema, "]");
    str_clear(question);
    str_printf(question, "Extract the fields as JSON for this schema: %s}\n\nText: %s", str_cstr(schema), about);
    str_puts(schema, ", \"additionalProperties\": false}");
}

/* Greedy answers with and without the schema: the same tokens where the free answer was valid, valid ones elsewhere. */
static void test_extraction(void **state) {
    static const char *const people[] = { "Tom is 31 years old, works as a baker and lives in Oslo.",
                                          "In Rome lives Anna, a teacher, 52 years old.",
                                          "My name is Ben. I am 8, I live in Paris and I am a painter.",
                                          "Clara (77) from Madrid is a doctor." };
    static const char *const keys[] = { "name", "age", "city", "job" };
    str                      schema = { 0 }, question = { 0 }, messages = { 0 };
    int                      same = 0, cases = 0;
    for (size_t i = 0; i < (TEST_SANITIZED ? 1 : 4); i++) {
        for (size_t n = 1 + i % 2; n <= 4; n += 2, cases++) {
            test_result     plain, held;
            runtime_request q;
            make_case(&schema, &question, keys, "siss", n, people[i]);
            user_message(&messages, str_cstr(&question));
            test_greedy(&q, str_cstr(&messages));
            q.want_logprob = true;
            q.max_tokens = 96;
            test_ask(*state, &q, &plain);
            constrain(&q, RUNTIME_SCHEMA, str_cstr(&schema));
            test_ask(*state, &q, &held);
            if (held.failed) fail_msg("%s", held.why.msg);
            const char *text = str_cstr(&held.a[0].content);
            if (has_shape(str_cstr(&plain.a[0].content), keys, "siss", n)) {
                text_eq(&held.a[0], &plain.a[0]);
                same++;
            } else if (held.a[0].finish == RUNTIME_STOP && !has_shape(text, keys, "siss", n)) {
                fail_msg("does not fit: %s", text);
            }
            test_result_deinit(&plain);
            test_result_deinit(&held);
        }
    }
    /* The demo model is good at this, so the comparison has something to compare. */
    if (same < cases * 3 / 4) fail_msg("only %d of %d free answers were valid", same, cases);
    str_deinit(&schema);
    str_deinit(&question);
    str_deinit(&messages);
}

/* Constraints that everything fits: any text as a pattern, any text as a grammar. */
static void test_all_is_allowed(void **state) {
    static const char *const questions[] = { "What is 12 plus 30?", "Tell me a story about a cat and a boat.",
                                             "What is the capital of France?", "What do you know about genetics?" };
    str                      messages = { 0 };
    for (size_t i = 0; i < 4; i++) {
        test_result     plain, held;
        runtime_request q;
        user_message(&messages, questions[i]);
        test_greedy(&q, str_cstr(&messages));
        q.want_logprob = true;
        q.max_tokens = 64;
        test_ask(*state, &q, &plain);
        constrain(&q, RUNTIME_REGEX, "(.|\\n)*");
        test_ask(*state, &q, &held);
        text_eq(&held.a[0], &plain.a[0]);
        assert_int_equal(held.a[0].finish, plain.a[0].finish);
        test_result_deinit(&held);
        constrain(&q, RUNTIME_GBNF, "root ::= [^\\x00]*");
        test_ask(*state, &q, &held);
        text_eq(&held.a[0], &plain.a[0]);
        test_result_deinit(&held);
        test_result_deinit(&plain);
    }
    str_deinit(&messages);
}

/* The tokens of a text that goes on: without the blank that some tokenizers put in front of a text. */
static void encode_inside(const tok *t, const char *text, tok_ids *out) {
    str bytes = { 0 }, longer = { 0 };
    assert_int_equal(tok_encode(t, text, strlen(text), 0, out, NULL), 0);
    tok_bytes(t, out->data[0], &bytes);
    if (bytes.data[0] == ' ' && text[0] != ' ') {
        str_printf(&longer, "\n%s", text);
        out->count = 0;
        assert_int_equal(tok_encode(t, str_cstr(&longer), longer.len, 0, out, NULL), 0);
        out->count -= 2; /* the blank and the line break */
        memmove(out->data, out->data + 2, out->count * sizeof *out->data);
    }
    str_deinit(&bytes);
    str_deinit(&longer);
}

/* A JSON text in the tokenizer's own tokens is allowed token for token, also where a token holds structure and content
 * at once. Returns how many such tokens there were. */
static int walk(const tok *t, grammar_vocab *v, grammar *g, const char *text) {
    grammar_matcher *m;
    uint32_t        *mask = calloc(grammar_vocab_mask_words(v), sizeof *mask);
    tok_ids          ids = { 0 };
    str              bytes = { 0 };
    int              spanning = 0;
    err              e = { 0 };
    assert_non_null(mask);
    encode_inside(t, text, &ids);
    assert_int_equal(grammar_matcher_open(&m, g, v, &e), 0);
    for (size_t i = 0; i < ids.count; i++) {
        int32_t id = ids.data[i];
        if (grammar_matcher_mask(m, mask, &e) < 0) fail_msg("%s", e.msg);
        str_clear(&bytes);
        tok_bytes(t, id, &bytes);
        if (!(mask[id / 32] >> (id % 32) & 1)) fail_msg("token %zu \"%s\" is forbidden in %s", i, bytes.data, text);
        if (grammar_matcher_accept(m, id, &e) < 0) fail_msg("%s", e.msg);
        const char *quote = memchr(bytes.data, '"', bytes.len);
        spanning += quote && bytes.len > 1;
    }
    assert_true(grammar_matcher_may_end(m));
    grammar_matcher_free(m);
    tok_ids_deinit(&ids);
    str_deinit(&bytes);
    free(mask);
    return spanning;
}

/* A string of random characters of all planes, each raw or in one of its escapes. */
static void random_json_string(str *out, uint64_t *seed) {
    static const char *const escapes[] = { "\\\"", "\\\\", "\\/", "\\b", "\\f", "\\n", "\\r", "\\t" };
    str_push(out, '"');
    for (uint64_t n = test_random(seed) % 12; n > 0; n--) {
        static const unsigned limits[] = { 0x80, 0x800, 0x10000, 0x110000 };
        unsigned              cp = (unsigned)(test_random(seed) % limits[test_random(seed) % 4]);
        if (cp >= 0xD800 && cp < 0xE000) cp = 0x4E2D;
        uint64_t how = test_random(seed) % 4;
        if (how == 0)
            str_puts(out, escapes[test_random(seed) % 8]);
        else if (how == 1 || cp < 0x20 || cp == '"' || cp == '\\')
            str_printf(out, how == 1 && cp & 1 ? "\\u%04X" : "\\u%04x", cp < 0x10000 ? cp : 0xFFFD);
        else if (how == 2 && cp >= 0x10000)
            str_printf(out, "\\u%04x\\u%04x", 0xD800 + ((cp - 0x10000) >> 10), 0xDC00 + ((cp - 0x10000) & 0x3FF));
        else
            str_put_utf8(out, cp);
    }
    str_push(out, '"');
}

static void walk_strings(const char *vocab) {
    static const char *const texts[] = {
        "{\"a\": [\"x\", \"y\"], \"b\": {\"c\": \"d\"}}",
        "{\"a\":[\"x\",\"\"],\"b\":{\"c\":\"d\"}}",
        "[\"\", \" \", \"}\"]",
        "{\"na\xC3\xAFve\": \"\xE4\xBD\xA0\xE5\xA5\xBD\", \"\\u00e9\": \"\xF0\x9F\x98\x80 \\ud83d\\ude00\"}",
        "{\n  \"key\": \"value\",\n  \"list\": [\n    1,\n    2.5e-3\n  ]\n}",
        "\"\\\"quoted\\\" \\\\ \\/ \\b\\f\\n\\r\\t \x7F\""
    };
    grammar       *any;
    grammar_vocab *v;
    tok           *t;
    str            text = { 0 };
    uint64_t       seed = 7;
    err            e = { 0 };
    int            spanning = 0;
    if (bundle_tokenizer_open_path(&t, vocab, NULL, &e) < 0) fail_msg("%s", e.msg);
    assert_int_equal(grammar_vocab_open(&v, t, &e), 0);
    if (grammar_from_schema(&any, view_of("{}"), &e) < 0) fail_msg("%s", e.msg);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) spanning += walk(t, v, any, texts[i]);
    if (spanning == 0) fail_msg("%s has no token that spans structure and content", vocab);
    for (int i = 0; i < 100; i++) {
        str_clear(&text);
        random_json_string(&text, &seed);
        walk(t, v, any, str_cstr(&text));
    }
    str_deinit(&text);
    grammar_unref(any);
    grammar_vocab_free(v);
    tok_free(t);
}

static void test_strings(void **state) {
    static const char *const corpus[] = { "vocab/gpt-2.gguf", "vocab/deepseek-llm.gguf", "vocab/llama-spm.gguf" };
    (void)state;
    walk_strings(TEST_DEMO);
    for (size_t i = 0; i < 3; i++) {
        char *path = test_corpus_path(corpus[i]);
        if (path) walk_strings(path);
        free(path);
    }
}

/* --- what is cut off is a valid beginning --- */

static const char ORDER[] =
    "{\"type\": \"object\", \"properties\": {\"id\": {\"type\": \"integer\", \"minimum\": 1, \"maximum\": 5000},"
    " \"kind\": {\"enum\": [\"order\", \"refund\", \"invoice\"]}, \"note\": {\"type\": \"string\", \"maxLength\": 12},"
    " \"date\": {\"type\": \"string\", \"pattern\": \"^[0-9]{4}-[01][0-9]-[0-3][0-9]$\"},"
    " \"tags\": {\"type\": \"array\", \"items\": {\"type\": \"string\", \"minLength\": 1, \"maxLength\": 6}, "
    "\"minItems\": 1, "
    "\"maxItems\": 2}},"
    " \"required\": [\"id\", \"kind\", \"note\", \"date\", \"tags\"], \"additionalProperties\": false}";

static bool order_is_valid(const char *text) {
    const json_value *v;
    arena             a;
    int64_t           id = 0;
    arena_init(&a, 0);
    bool ok = json_parse(&v, text, strlen(text), &a, NULL) == 0 && json_count(v) == 5 &&
              json_int(json_get(v, "id"), &id) && id >= 1 && id <= 5000;
    const char *kind = ok ? json_cstr(json_get(v, "kind")) : NULL, *date = ok ? json_cstr(json_get(v, "date")) : NULL;
    ok = ok && kind && (!strcmp(kind, "order") || !strcmp(kind, "refund") || !strcmp(kind, "invoice")) && date &&
         strlen(date) == 10 && date[4] == '-' && date[7] == '-' && json_cstr(json_get(v, "note")) &&
         json_count(json_get(v, "tags")) >= 1 && json_count(json_get(v, "tags")) <= 2;
    arena_deinit(&a);
    return ok;
}

/* Any logits at all: a high temperature over the whole vocabulary. */
static void wild(runtime_request *q, uint64_t seed) {
    q->sampling.temperature = 3;
    q->sampling.top_k = 0;
    q->sampling.top_p = 1;
    q->sampling.seed = seed;
    q->sampling_set = RUNTIME_SET_TEMPERATURE | RUNTIME_SET_TOP_K | RUNTIME_SET_TOP_P | RUNTIME_SET_SEED;
}

static void test_cut_off(void **state) {
    static const char QUESTION[] = "[{\"role\": \"user\", \"content\": \"What is the capital of France?\"}]";
    grammar          *g;
    grammar_vocab    *v;
    tok              *t;
    int               cut = 0, whole = 0;
    err               e = { 0 };
    assert_int_equal(bundle_tokenizer_open_path(&t, TEST_DEMO, NULL, NULL), 0);
    assert_int_equal(grammar_vocab_open(&v, t, NULL), 0);
    if (grammar_from_schema_steered(&g, view_of(ORDER), &e) < 0) fail_msg("%s", e.msg);
    const int every = TEST_SANITIZED ? 3 : 1; /* the model is slow there */
    for (int i = 0; i < 24; i += every) {
        grammar_matcher *m;
        test_result      r;
        runtime_request  q;
        test_greedy(&q, QUESTION);
        wild(&q, (uint64_t)i);
        constrain(&q, RUNTIME_SCHEMA, ORDER);
        q.max_tokens = i < 16 ? 1 + 2 * i : 120;
        test_ask(*state, &q, &r);
        if (r.failed) fail_msg("%s", r.why.msg);
        const str *text = &r.a[0].content;
        assert_int_equal(grammar_matcher_open(&m, g, v, NULL), 0);
        if (!grammar_matcher_accept_bytes(m, str_cstr(text), text->len)) fail_msg("no valid beginning: %s", text->data);
        if (r.a[0].finish == RUNTIME_STOP) {
            if (!order_is_valid(str_cstr(text))) fail_msg("does not fit: %s", text->data);
            assert_true(grammar_matcher_may_end(m));
            whole++;
        } else {
            assert_int_equal(r.a[0].finish, RUNTIME_LENGTH);
            assert_int_equal(r.a[0].usage.generated_tokens, q.max_tokens);
            cut++;
        }
        grammar_matcher_free(m);
        test_result_deinit(&r);
    }
    assert_true(cut >= 10 / every && whole >= 3 / every);
    grammar_unref(g);
    grammar_vocab_free(v);
    tok_free(t);
}

/* Several answers of one request: each has its own state. */
static void test_choices(void **state) {
    test_result     r;
    runtime_request q;
    test_greedy(&q, "[{\"role\": \"user\", \"content\": \"Yes or no?\"}]");
    wild(&q, 5);
    constrain(&q, RUNTIME_CHOICES, "[\"yes, of course\", \"no\", \"na\xC3\xAFve \xF0\x9F\x98\x80\", \"yes\"]");
    q.n_choices = 4;
    test_ask(*state, &q, &r);
    if (r.failed) fail_msg("%s", r.why.msg);
    for (int i = 0; i < 4; i++) {
        const char *text = str_cstr(&r.a[i].content);
        if (strcmp(text, "yes, of course") && strcmp(text, "no") && strcmp(text, "yes") &&
            strcmp(text, "na\xC3\xAFve \xF0\x9F\x98\x80"))
            fail_msg("none of the choices: %s", text);
        assert_int_equal(r.a[i].finish, RUNTIME_STOP);
    }
    test_result_deinit(&r);
}

static void test_json_and_grammar(void **state) {
    static const char LIST[] = "root ::= \"[\" item (\", \" item)? \"]\"\nitem ::= \"red\" | \"blue\" | [0-9] [0-9]";
    for (uint64_t seed = 0; seed < 4; seed++) {
        const json_value *v;
        test_result       r;
        runtime_request   q;
        arena             a;
        test_greedy(&q, "[{\"role\": \"user\", \"content\": \"Hello!\"}]");
        wild(&q, seed);
        constrain(&q, RUNTIME_GBNF, LIST);
        test_ask(*state, &q, &r);
        if (r.failed) fail_msg("%s", r.why.msg);
        const char *text = str_cstr(&r.a[0].content);
        size_t      n = strlen(text);
        assert_true(n >= 4 && n <= 12 && text[0] == '[' && text[n - 1] == ']');
        test_result_deinit(&r);
        q.constraint = (runtime_constraint){ RUNTIME_JSON, { "", 0 } };
        q.sampling.temperature = 0.5f;
        q.max_tokens = 60;
        test_ask(*state, &q, &r);
        if (r.failed) fail_msg("%s", r.why.msg);
        arena_init(&a, 0);
        if (r.a[0].finish == RUNTIME_STOP) {
            assert_int_equal(json_parse(&v, str_cstr(&r.a[0].content), r.a[0].content.len, &a, NULL), 0);
            assert_true(json_is(v, JSON_K_OBJECT));
        }
        text = str_cstr(&r.a[0].content);
        assert_int_equal(text[strspn(text, " \t\r\n")], '{');
        arena_deinit(&a);
        test_result_deinit(&r);
    }
}

/* --- tools and thoughts --- */

static char *read_tools(void) {
    char  *path = test_fixture_path("tools/house.json"), *text;
    size_t bytes;
    err    e = { 0 };
    if (file_read(&text, &bytes, path, 1 << 16, &e) < 0) fail_msg("%s", e.msg);
    free(path);
    return text;
}

/* One of the three tools with the arguments that its schema wants: "name {...}; ". */
static void check_calls(const test_answer *a, const char *only) {
    const char *at = str_cstr(&a->calls);
    assert_true(a->n_calls >= 1);
    for (int i = 0; i < a->n_calls; i++) {
        const char       *space = strchr(at, ' ');
        const json_value *v;
        json_reader       r;
        arena             mem;
        char              name[32];
        assert_non_null(space);
        snprintf(name, sizeof name, "%.*s", (int)(space - at), at);
        if (only) assert_string_equal(name, only);
        /* The end of the object: a reader finds it. */
        json_reader_init(&r, space + 1, strlen(space + 1));
        assert_int_equal(json_next(&r), JSON_OBJECT_BEGIN);
        assert_true(json_skip(&r, JSON_OBJECT_BEGIN));
        size_t len = r.pos;
        json_reader_deinit(&r);
        arena_init(&mem, 0);
        assert_int_equal(json_parse(&v, space + 1, len, &mem, NULL), 0);
        if (strcmp(name, "get_weather") == 0)
            assert_true(json_is(json_get(v, "city"), JSON_K_STRING));
        else if (strcmp(name, "set_timer") == 0)
            assert_true(json_is(json_get(v, "minutes"), JSON_K_INT));
        else if (strcmp(name, "switch_light") == 0)
            assert_true(json_is(json_get(v, "room"), JSON_K_STRING) && json_is(json_get(v, "on"), JSON_K_BOOL));
        else
            fail_msg("%s was not offered", name);
        arena_deinit(&mem);
        at = space + 1 + len + 2;
    }
    assert_int_equal(a->content.len, 0);
}

static void test_forced_calls(void **state) {
    char *tools = read_tools();
    int   calls = 0;
    for (int i = 0; i < 10; i++) {
        test_result     r;
        runtime_request q;
        test_greedy(&q, "[{\"role\": \"user\", \"content\": \"What is the capital of France?\"}]");
        if (i) wild(&q, (uint64_t)i);
        if (i) q.sampling.temperature = 0.5f + 0.25f * (float)i;
        q.tools = view_of(tools);
        q.tool_choice = i % 2 ? RUNTIME_TOOLS_NAMED : RUNTIME_TOOLS_REQUIRED;
        q.tool_name = view_of("set_timer");
        q.max_tokens = 80;
        test_ask(*state, &q, &r);
        if (r.failed) fail_msg("%s", r.why.msg);
        if (r.a[0].finish == RUNTIME_TOOL_CALLS) {
            check_calls(&r.a[0], i % 2 ? "set_timer" : NULL);
            calls++;
        } else {
            assert_int_equal(r.a[0].finish, RUNTIME_LENGTH); /* a string that found no end */
        }
        test_result_deinit(&r);
    }
    if (calls < 5) fail_msg("only %d of 10 answers were over in time", calls);
    free(tools);
}

/* Thoughts are free and come first; their budget closes them; switched off there are none. */
static void test_thoughts(void **state) {
    static const char SUM[] = "[{\"role\": \"user\", \"content\": \"What is 12 plus 30?\"}]";
    test_result       r;
    runtime_request   q;
    test_greedy(&q, SUM);
    q.thinking = RUNTIME_THINK_ON;
    constrain(&q, RUNTIME_REGEX, "It is [0-9]+\\.");
    test_ask(*state, &q, &r);
    if (r.failed) fail_msg("%s", r.why.msg);
    assert_non_null(strstr(str_cstr(&r.a[0].reasoning), "40 + 2 = 42"));
    assert_true(view_starts((view){ r.a[0].content.data, r.a[0].content.len }, "It is "));
    assert_int_equal(r.a[0].content.data[r.a[0].content.len - 1], '.');
    test_result_deinit(&r);
    for (int budget = 0; budget < 12; budget += 3) {
        test_greedy(&q, "[{\"role\": \"user\", \"content\": \"What is 7 plus 8?\"}]");
        q.thinking = RUNTIME_THINK_ON;
        q.thinking_budget = budget;
        test_ask(*state, &q, &r);
        if (r.failed) fail_msg("%s", r.why.msg);
        assert_non_null(strstr(str_cstr(&r.a[0].content), "7 plus 8"));
        assert_null(strstr(str_cstr(&r.a[0].content), "think>"));
        assert_null(strstr(str_cstr(&r.a[0].reasoning), "think>"));
        if (budget == 0) assert_int_equal(r.a[0].reasoning.len, 0);
        /* The markers and the line breaks around them come on top. */
        assert_true(r.a[0].usage.reasoning_tokens <= budget + 8);
        test_result_deinit(&r);
    }
    test_greedy(&q, SUM);
    constrain(&q, RUNTIME_REGEX, "[0-9]+");
    test_ask(*state, &q, &r);
    assert_int_equal(r.a[0].reasoning.len, 0);
    assert_int_equal(r.a[0].usage.reasoning_tokens, 0);
    assert_true(r.a[0].content.len > 0 && strspn(r.a[0].content.data, "0123456789") == r.a[0].content.len);
    test_result_deinit(&r);
}

/* --- keeping, mistakes --- */

static void test_kept(void **state) {
    runtime_options o = { .path = TEST_DEMO, .engine = { .n_threads = 1 }, .grammar_bytes = 200 };
    runtime_stats   st;
    runtime        *m;
    char            pattern[32];
    (void)state;
    assert_int_equal(runtime_open(&m, &o, NULL), 0);
    for (int i = 0; i < 12; i++) {
        test_result     r;
        runtime_request q;
        test_greedy(&q, "[{\"role\": \"user\", \"content\": \"Hello!\"}]");
        snprintf(pattern, sizeof pattern, "[a-z]{%d}", i < 6 ? 3 : 3 + i);
        constrain(&q, RUNTIME_REGEX, pattern);
        test_ask(m, &q, &r);
        assert_int_equal(r.a[0].content.len, i < 6 ? 3 : 3 + i);
        test_result_deinit(&r);
    }
    runtime_stat(m, &st);
    assert_int_equal(st.grammar_hits, 5);
    assert_int_equal(st.grammar_misses, 7);
    assert_int_equal(st.grammars, 1); /* the newest; there is no room for a second */
    runtime_free(m);
}

static void test_mistakes(void **state) {
    static const struct {
        runtime_constraint_kind kind;
        const char             *text, *sentence;
    } rows[] = { { RUNTIME_SCHEMA, "{\"type\": ", "json_schema" },
                 { RUNTIME_SCHEMA, "{\"type\": \"thing\"}", "json_schema" },
                 { RUNTIME_REGEX, "a(b", "regex" },
                 { RUNTIME_REGEX, "(a)\\1", "regex" },
                 { RUNTIME_GBNF, "root ::= nothing", "grammar" },
                 { RUNTIME_CHOICES, "[]", "choices" },
                 { RUNTIME_CHOICES, "[1]", "choices" } };
    char           *tools = read_tools();
    runtime_request q;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        test_result r;
        test_greedy(&q, "[{\"role\": \"user\", \"content\": \"Hello!\"}]");
        constrain(&q, rows[i].kind, rows[i].text);
        test_ask(*state, &q, &r);
        if (!r.failed || r.n_events != 1 || !strstr(r.why.msg, rows[i].sentence))
            fail_msg("%s: %d %s", rows[i].text, r.why.code, r.why.msg);
        if (r.why.code != ERR_ARG && r.why.code != ERR_UNSUPPORTED) fail_msg("%s: %s", rows[i].text, r.why.msg);
        test_result_deinit(&r);
    }
    test_greedy(&q, "[{\"role\": \"user\", \"content\": \"Hello!\"}]");
    q.tool_choice = RUNTIME_TOOLS_REQUIRED;
    test_request_refused(*state, &q, ERR_ARG, "tool_choice");
    q.tools = view_of(tools);
    q.tool_choice = RUNTIME_TOOLS_NAMED;
    q.tool_name = view_of("fly");
    test_request_refused(*state, &q, ERR_ARG, "fly");
    free(tools);
}

int main(void) {
    test_filter();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_extraction),   cmocka_unit_test(test_all_is_allowed),
        cmocka_unit_test(test_strings),      cmocka_unit_test(test_cut_off),
        cmocka_unit_test(test_choices),      cmocka_unit_test(test_json_and_grammar),
        cmocka_unit_test(test_forced_calls), cmocka_unit_test(test_thoughts),
        cmocka_unit_test(test_kept),         cmocka_unit_test(test_mistakes),
    };
    return cmocka_run_group_tests(tests, test_demo_open, test_demo_close);
}
