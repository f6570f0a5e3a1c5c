/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Required and named tool calls on models that say anything: walks that pick any allowed token with equal chance, in
 * every syntax, with a real vocabulary. What comes out is read by the parser as calls of offered tools whose arguments
 * their schemas accept. Guides: thoughts with and without a budget, calls bound from their marker on, tokens taken
 * back.
 */
#include "unit/support/support.h"

#include "bundle/tokenizer.h"
#include "chat/chat.h"
#include "chat/constraint.h"
#include "chat/parser.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEMO HEARTH_SOURCE_DIR "/models/demo/demo.gguf"

static const char *const SCHEMAS[][2] = {
    { "get_weather",
      "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":12},\"days\":{"
      "\"type\":\"integer\",\"minimum\":1,\"maximum\":14},\"unit\":{\"enum\":[\"celsius\",\"fahrenheit\"]}},"
      "\"required\":["
      "\"city\"]}" },
    { "add_numbers",
      "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"number\"},\"b\":{\"type\":\"number\",\"minimum\":-5,"
      "\"maximum\":5}},\"required\":[\"a\",\"b\"],\"additionalProperties\":false}" },
    { "file_note",
      "{\"type\":\"object\",\"$defs\":{\"tag\":{\"type\":\"string\",\"pattern\":\"^[a-z]{1,6}$\"}},\"properties\":{"
      "\"path\":{\"type\":\"string\",\"pattern\":\"^/[a-z/"
      "]{0,10}$\"},\"text\":{\"type\":\"string\"},\"flag\":{\"type\":"
      "\"boolean\"},\"tags\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/"
      "tag\"},\"maxItems\":3},\"who\":{\"type\":"
      "\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":8},\"age\":{\"type\":[\"integer\","
      "\"null\"]}},"
      "\"required\":[\"name\"],\"additionalProperties\":false},\"when\":{\"type\":\"string\",\"format\":\"date\"},"
      "\"kind\":{"
      "\"const\":\"note\"}},\"required\":[\"path\",\"when\",\"who\"]}" },
    { "grow_tree",
      "{\"type\":\"object\",\"$defs\":{\"node\":{\"properties\":{\"v\":{\"anyOf\":[{\"type\":\"string\",\"maxLength\":"
      "3},{"
      "\"type\":\"boolean\"}]},\"kids\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/node\"},\"maxItems\":2}},"
      "\"type\":\"object\",\"required\":[\"v\"],\"additionalProperties\":false}},\"properties\":{\"root\":{\"$ref\":"
      "\"#/$defs/node\"}},\"required\":[\"root\"]}" },
    { "now", NULL },
};
enum { N_TOOLS = 5 };

static const json_value *parse(arena *a, const char *text) {
    const json_value *v;
    err               e = { 0 };
    if (json_parse(&v, text, strlen(text), a, &e) < 0) fail_msg("%s in %s", e.msg, text);
    return v;
}

static const json_value *make_tools(arena *a) {
    str text;
    str_init(&text);
    str_push(&text, '[');
    for (int i = 0; i < N_TOOLS; i++) {
        str_printf(&text, "%s{\"type\":\"function\",\"function\":{\"name\":\"%s\"", i ? "," : "", SCHEMAS[i][0]);
        if (SCHEMAS[i][1]) str_printf(&text, ",\"parameters\":%s", SCHEMAS[i][1]);
        str_puts(&text, "}}");
    }
    str_push(&text, ']');
    const json_value *v = parse(a, str_cstr(&text));
    str_deinit(&text);
    return v;
}

/* --- walks --- */

typedef struct model {
    tok           *t;
    grammar_vocab *plain, *marked;
    uint32_t      *mask;
} model;

static bool open_model(model *m, const char *path, const chat_format *f) {
    err e = { 0 };
    memset(m, 0, sizeof *m);
    if (bundle_tokenizer_open_path(&m->t, path, NULL, &e) < 0) fail_msg("%s", e.msg);
    if (grammar_vocab_open(&m->plain, m->t, &e) < 0) fail_msg("%s", e.msg);
    if (chat_vocab_open(&m->marked, f, m->t, &e) < 0) fail_msg("%s", e.msg);
    m->mask = calloc(grammar_vocab_mask_words(m->marked), 4);
    return m->mask != NULL;
}

static void reopen_markers(model *m, const chat_format *f) {
    err e = { 0 };
    grammar_vocab_free(m->marked);
    if (chat_vocab_open(&m->marked, f, m->t, &e) < 0) fail_msg("%s", e.msg);
}

static void close_model(model *m) {
    grammar_vocab_free(m->plain);
    grammar_vocab_free(m->marked);
    tok_free(m->t);
    free(m->mask);
}

static bool allowed(const uint32_t *mask, int32_t id) { return mask[id >> 5] >> (id & 31) & 1; }

/* Any allowed token, each with the same chance. */
static int32_t pick(const model *m, uint64_t *seed) {
    size_t  n = 0, count = (size_t)tok_count(m->t);
    int32_t found = -1;
    for (size_t w = 0; w * 32 < count; w++) n += (size_t)__builtin_popcount(m->mask[w]);
    if (n == 0) return -1;
    size_t k = test_random(seed) % n;
    for (int32_t id = 0; (size_t)id < count; id++) {
        if (allowed(m->mask, id) && k-- == 0) {
            found = id;
            break;
        }
    }
    return found;
}

static void put(const model *m, int32_t id, str *out) {
    size_t before = out->len;
    if (tok_is_end(m->t, id)) return;
    if (!tok_is_special(m->t, id) && tok_bytes(m->t, id, out) && out->len > before) return;
    str_append(out, tok_text(m->t, id).data, tok_text(m->t, id).len);
}

/* A text as the tokenizer writes it, if the guide allows all of it; else nothing happens. */
static bool try_text(chat_guide *g, const model *m, const char *text, str *out) {
    tok_ids ids = { 0 };
    size_t  n = 0, before = out->len;
    assert_int_equal(tok_encode(m->t, text, strlen(text), TOK_PARSE_SPECIAL, &ids, NULL), 0);
    while (n < ids.count) {
        int rc = chat_guide_mask(g, m->mask, NULL);
        assert_true(rc >= 0);
        if ((rc == 1 && !allowed(m->mask, ids.data[n])) || chat_guide_accept(g, ids.data[n], NULL) < 0) break;
        put(m, ids.data[n], out);
        n++;
    }
    bool ok = n == ids.count && ids.count > 0;
    if (!ok) {
        chat_guide_rollback(g, (int)n);
        out->len = before;
    }
    tok_ids_deinit(&ids);
    return ok;
}

/* What closes a value, a call, an answer: tried when the walk has been long enough. */
static const char *const closings[] = { "'",
                                        "\"",
                                        "<|\"|>",
                                        "\n</parameter>\n",
                                        "</parameter>\n",
                                        "</arg_value>\n",
                                        "</arg_value>",
                                        "}",
                                        "]",
                                        ")",
                                        "</function>\n</tool_call>",
                                        "</tool_call>",
                                        ":",
                                        "a",
                                        "0",
                                        "/",
                                        "-01-01" };

/* A walk from the guide's state to the end of the answer. False: it did not end. */
static bool walk(chat_guide *g, const model *m, const char *close, uint64_t *seed, int soft, str *out) {
    for (int n = 0; n < 2500; n++) {
        err e = { 0 };
        if (chat_guide_must_stop(g)) return true;
        int rc = chat_guide_mask(g, m->mask, &e);
        if (rc < 0) fail_msg("%s", e.msg);
        assert_int_equal(rc, 1);
        size_t         n_ends;
        const int32_t *ends = tok_end_ids(m->t, &n_ends);
        for (size_t i = 0; n > soft && i < n_ends; i++) {
            if (allowed(m->mask, ends[i])) return true;
        }
        bool   closed = false;
        size_t kinds = sizeof closings / sizeof *closings;
        for (size_t i = 0; n > soft && !closed && i <= kinds; i++) { /* in turn: each is content somewhere */
            size_t k = ((size_t)n + i) % (kinds + 1);
            closed = k == kinds ? close && try_text(g, m, close, out) : try_text(g, m, closings[k], out);
        }
        if (closed) continue;
        if (n > soft) assert_int_equal(chat_guide_mask(g, m->mask, &e), 1);
        int32_t id = pick(m, seed);
        if (id < 0) fail_msg("nothing is allowed behind: %s", str_cstr(out));
        if (chat_guide_accept(g, id, &e) < 0) fail_msg("an allowed token was refused: %s", e.msg);
        if (tok_is_end(m->t, id)) return true;
        put(m, id, out);
        if (n % 7 == 3) { /* back and forth */
            int back = 1 + (int)(test_random(seed) % 2);
            if (back > n) back = 1;
            if (back == 1) {
                chat_guide_rollback(g, 1);
                assert_int_equal(chat_guide_mask(g, m->mask, &e), 1);
                assert_true(allowed(m->mask, id));
                assert_int_equal(chat_guide_accept(g, id, &e), 0);
            }
        }
    }
    return false;
}

/* --- what came out --- */

typedef struct answer {
    str  content, reasoning, name, arguments;
    int  calls;
    bool ok;
} answer;

static void validate(answer *x) {
    grammar         *g;
    grammar_matcher *mm;
    grammar_vocab   *v;
    err              e = { 0 };
    int              at = 0;
    while (at < N_TOOLS && strcmp(SCHEMAS[at][0], str_cstr(&x->name)) != 0) at++;
    assert_true(at < N_TOOLS);
    if (grammar_from_schema(&g, view_of(SCHEMAS[at][1] ? SCHEMAS[at][1] : "{\"type\":\"object\"}"), &e) < 0)
        fail_msg("%s", e.msg);
    view one = view_of("x");
    assert_int_equal(grammar_vocab_open_texts(&v, &one, 1, NULL, 0, &e), 0);
    assert_int_equal(grammar_matcher_open(&mm, g, v, &e), 0);
    bool ok = grammar_matcher_accept_bytes(mm, x->arguments.data, x->arguments.len) && grammar_matcher_may_end(mm);
    grammar_matcher_free(mm);
    grammar_vocab_free(v);
    grammar_unref(g);
    if (!ok) fail_msg("%s does not accept %s", str_cstr(&x->name), str_cstr(&x->arguments));
}

static void collect(void *ctx, const chat_event *ev) {
    answer *x = ctx;
    switch (ev->part) {
    case CHAT_CONTENT: str_append(&x->content, ev->text.data, ev->text.len); break;
    case CHAT_REASONING: str_append(&x->reasoning, ev->text.data, ev->text.len); break;
    case CHAT_TOOL_BEGIN:
        str_clear(&x->name);
        str_clear(&x->arguments);
        str_append(&x->name, ev->name.data, ev->name.len);
        break;
    case CHAT_TOOL_ARGUMENTS: str_append(&x->arguments, ev->text.data, ev->text.len); break;
    case CHAT_TOOL_END:
        validate(x);
        x->calls++;
        break;
    default: fail(); break;
    }
}

static void read_answer(const chat_format *f, const json_value *tools, const str *text, bool inside, answer *x) {
    chat_parser        *p;
    chat_parser_options o = { .tools = tools, .starts_in_reasoning = inside };
    memset(x, 0, sizeof *x);
    assert_int_equal(chat_parser_open(&p, f, &o, collect, x, NULL), 0);
    assert_int_equal(chat_parser_feed(p, str_cstr(text), text->len, NULL), 0);
    assert_int_equal(chat_parser_finish(p, false, NULL), 0);
    chat_parser_free(p);
}

static void free_answer(answer *x) {
    str_deinit(&x->content);
    str_deinit(&x->reasoning);
    str_deinit(&x->name);
    str_deinit(&x->arguments);
}

/* --- required and named, every syntax --- */

static chat_format format_of(chat_syntax s) {
    chat_format f = { .syntax = s, .row = chat_syntax_get(s) };
    return f;
}

enum { PARALLEL, SINGLE, NAMED, AUTOMATIC, N_MODES };

/* With auto: text, then what begins a call, as a model would write it. */
static void begin_call(chat_guide *g, const model *m, const chat_format *f, str *text) {
    const char *open = f->row->open;
    if (f->syntax == CHAT_SYNTAX_HARMONY)
        open = "<|channel|>commentary<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.";
    else
        assert_true(try_text(g, m, "Hm. ", text));
    assert_int_equal(chat_guide_mask(g, m->mask, NULL), 0);
    if (!try_text(g, m, open, text)) fail_msg("%s: its own marker is not allowed", f->row->name);
    if (chat_guide_mask(g, m->mask, NULL) != 1) fail_msg("%s: free behind its marker", f->row->name);
}

static void walks(model *m, chat_format f, const json_value *tools, int rounds) {
    static const chat_tool_choice choices[] = { CHAT_TOOLS_REQUIRED, CHAT_TOOLS_REQUIRED, CHAT_TOOLS_NAMED,
                                                CHAT_TOOLS_AUTO };
    uint64_t                      seed = 11;
    reopen_markers(m, &f);
    for (int i = 0; i < N_MODES * rounds; i++) {
        int                mode = i % N_MODES;
        chat_guide        *g;
        answer             x;
        str                text;
        err                e = { 0 };
        chat_guide_options o = { .format = &f,
                                 .t = m->t,
                                 .text_vocab = m->plain,
                                 .marker_vocab = m->marked,
                                 .tools = { .list = tools,
                                            .choice = choices[mode],
                                            .name = view_of("file_note"),
                                            .parallel = mode == PARALLEL || mode == AUTOMATIC },
                                 .reasoning_off = mode != AUTOMATIC,
                                 .budget = -1 };
        if (chat_guide_open(&g, &o, &e) < 0) fail_msg("%s: %s", f.row->name, e.msg);
        str_init(&text);
        if (mode == AUTOMATIC) begin_call(g, m, &f, &text);
        if (!walk(g, m, f.row->close, &seed, 20 + 10 * (i / N_MODES), &text))
            fail_msg("%s: no end of %s", f.row->name, str_cstr(&text));
        read_answer(&f, tools, &text, false, &x);
        if (x.calls == 0 || (mode != PARALLEL && mode != AUTOMATIC && x.calls != 1) ||
            strcmp(str_cstr(&x.content), mode == AUTOMATIC ? "Hm." : "") != 0)
            fail_msg("%s: %d calls, content \"%s\", from %s", f.row->name, x.calls, str_cstr(&x.content),
                     str_cstr(&text));
        if (mode == NAMED) assert_string_equal(str_cstr(&x.name), "file_note");
        free_answer(&x);
        str_deinit(&text);
        chat_guide_free(g);
    }
}

static void test_required(void **state) {
    char *path = test_corpus_path("vocab/gpt-2.gguf");
    model m;
    arena a;
    (void)state;
    arena_init(&a, 0);
    const json_value *tools = make_tools(&a);
    chat_format       f = format_of(CHAT_SYNTAX_HERMES);
    assert_true(open_model(&m, path ? path : DEMO, &f));
    for (int s = CHAT_SYNTAX_NONE + 1; s < CHAT_SYNTAX_COUNT; s++) {
        f = format_of((chat_syntax)s);
        walks(&m, f, tools, 3);
        if (s == CHAT_SYNTAX_DEEPSEEK) {
            f.deepseek_fenced = true;
            walks(&m, f, tools, 2);
        }
        if (s == CHAT_SYNTAX_GLM || s == CHAT_SYNTAX_MISTRAL_ARGS) {
            f.compact = true;
            walks(&m, f, tools, 2);
        }
    }
    close_model(&m);
    arena_deinit(&a);
    free(path);
}

/* Tools as coding agents and tool servers declare them: every syntax can enforce them, or says what it cannot. */
static void test_real_tools(void **state) {
    static const char tools[] = "[{\"type\":\"function\",\"function\":{\"name\":\"Bash\",\"strict\":true,"
                                "\"parameters\":{\"$schema\":\"http://json-schema.org/draft-07/"
                                "schema#\",\"type\":\"object\",\"properties\":{\"command\":{\"type\":\"string\","
                                "\"description\":\"c\"},\"timeout\":{\"type\":\"number\","
                                "\"exclusiveMinimum\":0,\"maximum\":600000},\"run_in_background\":{\"type\":"
                                "\"boolean\",\"default\":false}},\"required\":[\"command\"],"
                                "\"additionalProperties\":false}}},"
                                "{\"type\":\"function\",\"function\":{\"name\":\"TodoWrite\",\"parameters\":{\"type\":"
                                "\"object\",\"properties\":{\"todos\":{\"type\":"
                                "\"array\",\"minItems\":1,\"items\":{\"type\":\"object\",\"properties\":{\"content\":{"
                                "\"type\":\"string\",\"minLength\":1},\"status\":{"
                                "\"type\":\"string\",\"enum\":[\"pending\",\"in_progress\",\"completed\"]},"
                                "\"priority\":{\"type\":[\"integer\",\"null\"]}},\"required\":["
                                "\"content\",\"status\"],\"additionalProperties\":false}}},\"required\":[\"todos\"]}}},"
                                "{\"type\":\"function\",\"function\":{\"name\":\"mcp__web-fetch\",\"parameters\":{"
                                "\"type\":\"object\",\"properties\":{\"url\":{\"type\":"
                                "\"string\",\"format\":\"uri\"},\"headers\":{\"type\":\"object\","
                                "\"additionalProperties\":{\"type\":\"string\"}},\"method\":{\"anyOf\":[{"
                                "\"type\":\"string\",\"enum\":[\"GET\",\"POST\"]},{\"type\":\"null\"}],\"default\":"
                                "null}},\"required\":[\"url\"]}}},"
                                "{\"type\":\"function\",\"function\":{\"name\":\"ping\",\"parameters\":{\"type\":"
                                "\"object\",\"properties\":{}}}}]";
    static const char hard[] = "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":"
                               "\"object\",\"properties\":{\"a\":{"
                               "\"type\":\"string\"}},\"minProperties\":1}}}]";
    arena             a;
    (void)state;
    arena_init(&a, 0);
    for (int s = CHAT_SYNTAX_NONE + 1; s < CHAT_SYNTAX_COUNT; s++) {
        chat_format f = format_of((chat_syntax)s);
        for (int choice = 0; choice < 2; choice++) {
            chat_tools t = { .list = parse(&a, tools),
                             .choice = choice ? CHAT_TOOLS_REQUIRED : CHAT_TOOLS_AUTO,
                             .parallel = true };
            ir        *g;
            ir_sym     start;
            grammar   *compiled;
            err        e = { 0 };
            assert_int_equal(ir_open(&g, &e), 0);
            if (chat_tool_grammar(&f, &t, g, &start, &e) < 0) fail_msg("%s: %s", f.row->name, e.msg);
            if (grammar_compile(&compiled, g, start, &e) < 0) fail_msg("%s: %s", f.row->name, e.msg);
            grammar_unref(compiled);
            ir_free(g);
            /* Not in the model's hands and not enforceable: refused by name. In its hands: called all the same. */
            bool json = f.row->shape == CHAT_SHAPE_JSON || f.row->shape == CHAT_SHAPE_BARE ||
                        f.row->shape == CHAT_SHAPE_NAME_JSON || f.row->shape == CHAT_SHAPE_HARMONY;
            t.list = parse(&a, hard);
            assert_int_equal(ir_open(&g, &e), 0);
            int rc = chat_tool_grammar(&f, &t, g, &start, &e);
            assert_int_equal(rc, json || !choice ? 0 : ERR_UNSUPPORTED);
            if (rc < 0) assert_non_null(strstr(e.msg, "minProperties"));
            ir_free(g);
        }
    }
    arena_deinit(&a);
}

/* --- guides, with the demo model's tokens: <think>, </think>, <tool_call> and </tool_call> are tokens there --- */

typedef struct fixture {
    model             m;
    arena             a;
    chat_format       f;
    const json_value *tools;
} fixture;

static void setup(fixture *x, chat_syntax s, bool thinks) {
    x->f = format_of(s);
    if (thinks) {
        x->f.think_open = "<think>";
        x->f.think_close = "</think>";
        x->f.think_empty = "<think>\n\n</think>\n\n";
        x->f.think_end = "\n</think>\n\n";
    }
    arena_init(&x->a, 0);
    x->tools = make_tools(&x->a);
    assert_true(open_model(&x->m, DEMO, &x->f));
}

static void teardown(fixture *x) {
    close_model(&x->m);
    arena_deinit(&x->a);
}

static chat_guide *guide(fixture *x, chat_tool_choice choice, grammar *content, bool inside, bool off, int budget) {
    chat_guide        *g;
    err                e = { 0 };
    chat_guide_options o = {
        .format = &x->f,
        .t = x->m.t,
        .text_vocab = x->m.plain,
        .marker_vocab = x->m.marked,
        .tools = { .list = choice == CHAT_TOOLS_NONE ? NULL : x->tools, .choice = choice, .parallel = true },
        .content = content,
        .starts_in_reasoning = inside,
        .reasoning_off = off,
        .budget = budget
    };
    if (chat_guide_open(&g, &o, &e) < 0) fail_msg("%s", e.msg);
    return g;
}

/* Every token of a text, as the tokenizer writes it; each must be allowed. */
static void say(chat_guide *g, fixture *x, const char *text) {
    str out;
    str_init(&out);
    if (!try_text(g, &x->m, text, &out)) fail_msg("not allowed: %s", text);
    str_deinit(&out);
}

static bool may_say(chat_guide *g, fixture *x, const char *text) {
    str     out;
    bool    ok;
    tok_ids ids = { 0 };
    str_init(&out);
    assert_int_equal(tok_encode(x->m.t, text, strlen(text), TOK_PARSE_SPECIAL, &ids, NULL), 0);
    ok = try_text(g, &x->m, text, &out);
    if (ok) chat_guide_rollback(g, (int)ids.count);
    tok_ids_deinit(&ids);
    str_deinit(&out);
    return ok;
}

static bool is_free(chat_guide *g, fixture *x) { return chat_guide_mask(g, x->m.mask, NULL) == 0; }

static bool may_end(chat_guide *g, fixture *x) {
    size_t         n;
    const int32_t *ends = tok_end_ids(x->m.t, &n);
    if (chat_guide_mask(g, x->m.mask, NULL) == 0) return true;
    for (size_t i = 0; i < n; i++) {
        if (allowed(x->m.mask, ends[i])) return true;
    }
    return false;
}

static void test_nothing_to_guide(void **state) {
    fixture x;
    (void)state;
    setup(&x, CHAT_SYNTAX_HERMES, true);
    assert_null(guide(&x, CHAT_TOOLS_NONE, NULL, true, false, -1));
    x.f = format_of(CHAT_SYNTAX_NONE);
    assert_null(guide(&x, CHAT_TOOLS_AUTO, NULL, false, false, 100));
    chat_guide        *g;
    err                e = { 0 };
    chat_guide_options o = { .format = &x.f,
                             .t = x.m.t,
                             .tools = { .list = x.tools, .choice = CHAT_TOOLS_REQUIRED },
                             .budget = -1,
                             .marker_vocab = x.m.marked };
    assert_int_equal(chat_guide_open(&g, &o, &e), ERR_UNSUPPORTED);
    x.f = format_of(CHAT_SYNTAX_HERMES);
    o.tools.choice = CHAT_TOOLS_NAMED;
    o.tools.name = view_of("rm");
    assert_int_equal(chat_guide_open(&g, &o, &e), ERR_NOTFOUND);
    assert_non_null(strstr(e.msg, "rm"));
    teardown(&x);
}

/* When the budget is spent the marker is the only way on, token by token; then the answer begins. */
static void test_budget(void **state) {
    fixture  x;
    grammar *json;
    (void)state;
    setup(&x, CHAT_SYNTAX_HERMES, true);
    assert_int_equal(grammar_from_regex(&json, view_of("[0-9]{2}"), NULL), 0);
    for (int with = 0; with < 2; with++) {
        chat_guide *g = guide(&x, CHAT_TOOLS_NONE, with ? json : NULL, true, false, 3);
        tok_ids     close = { 0 };
        assert_int_equal(tok_encode(x.m.t, "\n</think>\n\n", 11, TOK_PARSE_SPECIAL, &close, NULL), 0);
        for (int round = 0; round < 2; round++) { /* and once more, taken back */
            for (int i = 0; i < 3; i++) {
                assert_true(is_free(g, &x));
                assert_true(chat_guide_in_reasoning(g));
                assert_int_equal(chat_guide_accept(g, 300 + i, NULL), 0);
            }
            for (size_t i = 0; i < close.count; i++) {
                assert_int_equal(chat_guide_mask(g, x.m.mask, NULL), 1);
                for (int32_t id = 0; id < tok_count(x.m.t); id++)
                    assert_int_equal(allowed(x.m.mask, id), id == close.data[i]);
                assert_int_equal(chat_guide_accept(g, close.data[i], NULL), 0);
            }
            assert_false(chat_guide_in_reasoning(g));
            assert_int_equal(is_free(g, &x), !with);
            if (with) assert_true(may_say(g, &x, "42") && !may_say(g, &x, "a") && !may_end(g, &x));
            chat_guide_rollback(g, (int)close.count + 3 - round);
        }
        chat_guide_free(g);
        g = guide(&x, CHAT_TOOLS_NONE, with ? json : NULL, true, false, 50); /* over before it is spent */
        say(g, &x, "Hm.</think>");
        assert_false(chat_guide_in_reasoning(g));
        say(g, &x, "\n\n");
        say(g, &x, "42");
        if (with) assert_true(chat_guide_must_stop(g));
        chat_guide_free(g);
        g = guide(&x, CHAT_TOOLS_NONE, with ? json : NULL, false, false, 0); /* the model opens the block itself */
        say(g, &x, "<think>");
        assert_int_equal(chat_guide_mask(g, x.m.mask, NULL), 1);
        assert_true(allowed(x.m.mask, close.data[0]));
        chat_guide_free(g);
        tok_ids_deinit(&close);
    }
    grammar_unref(json);
    teardown(&x);
}

/* What looks like a call within the thoughts and is none leaves them as they were, with what is left of the budget. */
static void test_no_call_in_thoughts(void **state) {
    fixture x;
    tok_ids marker = { 0 };
    int     tried = 0;
    (void)state;
    setup(&x, CHAT_SYNTAX_APERTUS, true);
    assert_int_equal(tok_encode(x.m.t, "<|tools_prefix|", 15, 0, &marker, NULL), 0);
    for (int32_t id = 0; id < tok_count(x.m.t); id++) {
        str text;
        str_init(&text);
        put(&x.m, id, &text);
        if (text.len > 1 && text.data[0] == '>' && text.data[1] == '.') { /* a list would have to follow */
            int         budget = (int)marker.count + 3;
            chat_guide *g = guide(&x, CHAT_TOOLS_AUTO, NULL, true, false, budget);
            for (size_t i = 0; i < marker.count; i++) assert_int_equal(chat_guide_accept(g, marker.data[i], NULL), 0);
            for (int i = 0; i < 3; i++) {
                assert_true(is_free(g, &x) && chat_guide_in_reasoning(g));
                assert_int_equal(chat_guide_accept(g, i ? 300 : id, NULL), 0);
            }
            assert_false(is_free(g, &x)); /* the budget is spent */
            assert_true(chat_guide_in_reasoning(g));
            chat_guide_free(g);
            tried++;
        }
        str_deinit(&text);
    }
    assert_true(tried > 0);
    tok_ids_deinit(&marker);
    teardown(&x);
}

/* The constraint begins behind the thoughts; without thoughts at once. */
static void test_thoughts_then_grammar(void **state) {
    fixture  x;
    grammar *two;
    (void)state;
    setup(&x, CHAT_SYNTAX_HERMES, true);
    assert_int_equal(grammar_from_regex(&two, view_of("[0-9]{2}"), NULL), 0);
    chat_guide *g = guide(&x, CHAT_TOOLS_NONE, two, false, false, -1), *copy;
    assert_true(may_say(g, &x, "42") && may_say(g, &x, "<think>") && !may_say(g, &x, "x") && !may_say(g, &x, "\n"));
    say(g, &x, "<think>");
    assert_true(is_free(g, &x) && chat_guide_in_reasoning(g));
    say(g, &x, "\nWords, 1 and <tool_call>.\n</think>\n\n");
    assert_false(may_say(g, &x, "x"));
    say(g, &x, "4");
    assert_int_equal(chat_guide_clone(&copy, g, NULL), 0);
    say(g, &x, "2");
    assert_true(chat_guide_must_stop(g) && may_end(g, &x));
    assert_false(chat_guide_must_stop(copy) || may_end(copy, &x));
    say(copy, &x, "9");
    assert_true(chat_guide_must_stop(copy));
    chat_guide_rollback(g, 3); /* across the beginning of the answer */
    assert_false(chat_guide_must_stop(g));
    chat_guide_free(copy);
    chat_guide_free(g);
    g = guide(&x, CHAT_TOOLS_NONE, two, false, true, -1);
    assert_false(may_say(g, &x, "<think>"));
    say(g, &x, "42");
    assert_true(chat_guide_must_stop(g));
    chat_guide_free(g);
    /* Either a text of the grammar or a call. */
    g = guide(&x, CHAT_TOOLS_AUTO, two, false, true, -1);
    assert_true(may_say(g, &x, "42") &&
                may_say(g, &x, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"));
    assert_false(may_say(g, &x, "x") || may_say(g, &x, "<tool_call>\n{\"name\": \"rm\""));
    chat_guide_free(g);
    grammar_unref(two);
    teardown(&x);
}

/* Free until the marker; then a valid call of an offered tool, or several, and nothing else. */
static void test_auto(void **state) {
    fixture x;
    answer  got;
    str     text;
    (void)state;
    setup(&x, CHAT_SYNTAX_HERMES, true);
    chat_guide *g = guide(&x, CHAT_TOOLS_AUTO, NULL, false, false, -1);
    say(g, &x, "<think>\nThe <tool_call> comes.\n</think>\n\nLet me see: {\"name\": 1}\n");
    assert_true(is_free(g, &x));
    say(g, &x, "<tool_call>");
    assert_false(is_free(g, &x) || may_end(g, &x));
    assert_false(may_say(g, &x, "\n{\"name\": \"rm\"") || may_say(g, &x, "hello"));
    say(g, &x, "\n{\"name\": \"add_numbers\", \"arguments\": {\"a\": 1, \"b\": ");
    assert_false(may_say(g, &x, "6}") || may_say(g, &x, "\"x\""));
    say(g, &x, "-2.5}}\n</tool_call>");
    assert_true(may_end(g, &x) && may_say(g, &x, "\n<tool_call>\n{\"name\": \"now\"") && !may_say(g, &x, "Done"));
    chat_guide_rollback(g, 1000); /* to the start */
    assert_true(is_free(g, &x));
    str_init(&text);
    uint64_t seed = 5;
    say(g, &x, "<tool_call>");
    str_puts(&text, "<tool_call>");
    assert_true(walk(g, &x.m, "</tool_call>", &seed, 30, &text));
    read_answer(&x.f, x.tools, &text, false, &got);
    assert_true(got.calls > 0 && got.content.len == 0);
    free_answer(&got);
    str_deinit(&text);
    chat_guide_free(g);
    teardown(&x);
    /* Llama 3: an object is a call only once it names an offered tool and comes to its parameters. */
    setup(&x, CHAT_SYNTAX_LLAMA3, false);
    g = guide(&x, CHAT_TOOLS_AUTO, NULL, false, false, -1);
    say(g, &x, "{\"name\": \"Bob\", \"parameters\": 3}");
    assert_true(is_free(g, &x));
    chat_guide_free(g);
    g = guide(&x, CHAT_TOOLS_AUTO, NULL, false, false, -1);
    say(g, &x, "{\"name\": \"get_weather\", \"parameters\":");
    assert_false(is_free(g, &x) || may_say(g, &x, " 3"));
    say(g, &x, " {\"city\": \"Oslo\"}}");
    assert_true(may_end(g, &x));
    chat_guide_free(g);
    teardown(&x);
}

/* gpt-oss: channels. Without thoughts the answer or a call follows at once. */
static void test_harmony(void **state) {
    fixture  x;
    grammar *two;
    (void)state;
    setup(&x, CHAT_SYNTAX_HARMONY, false);
    assert_int_equal(grammar_from_regex(&two, view_of("[0-9]{2}"), NULL), 0);
    chat_guide *g = guide(&x, CHAT_TOOLS_AUTO, NULL, false, true, -1);
    assert_true(may_say(g, &x, "<|channel|>final<|message|>Hello") &&
                may_say(g, &x, "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}"));
    assert_false(may_say(g, &x, "<|channel|>analysis") || may_say(g, &x, "Hello"));
    chat_guide_free(g);
    g = guide(&x, CHAT_TOOLS_AUTO, two, false, false, 2);
    say(g, &x, "<|channel|>analysis<|message|>");
    assert_true(chat_guide_in_reasoning(g) && is_free(g, &x));
    say(g, &x, "a");
    chat_guide_accept(g, 300, NULL);
    assert_false(is_free(g, &x));
    say(g, &x, "<|end|><|start|>assistant");
    assert_false(may_say(g, &x, "<|channel|>analysis<|message|>"));
    say(g, &x, "<|channel|>final<|message|>42");
    assert_true(chat_guide_must_stop(g));
    chat_guide_free(g);
    g = guide(&x, CHAT_TOOLS_AUTO, NULL, false, false, -1);
    say(g, &x,
        "<|channel|>analysis<|message|>I could use to=functions.now "
        "here.<|end|><|start|>assistant<|channel|>commentary");
    assert_true(is_free(g, &x));
    say(g, &x, " to=functions.");
    assert_false(is_free(g, &x) || may_say(g, &x, "rm"));
    say(g, &x, "now <|constrain|>json<|message|>{}");
    assert_true(may_end(g, &x));
    chat_guide_free(g);
    grammar_unref(two);
    teardown(&x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_required),
        cmocka_unit_test(test_real_tools),
        cmocka_unit_test(test_nothing_to_guide),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_no_call_in_thoughts),
        cmocka_unit_test(test_thoughts_then_grammar),
        cmocka_unit_test(test_auto),
        cmocka_unit_test(test_harmony),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
