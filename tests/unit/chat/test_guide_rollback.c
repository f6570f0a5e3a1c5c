/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guides take back any number of tokens: random walks say what is allowed (and, where all is, the markers that begin
 * and end thoughts and calls), go back a random number of tokens, often across several phases and sometimes to the
 * beginning of the answer, and go on from there. At every turn masks and must_stop equal those of a fresh guide that
 * was fed the same tokens. Over every syntax of calls, thoughts with and without a budget, and every kind of grammar;
 * and the same through the runtime's guides.
 */
#include "unit/support/support.h"

#include "bundle/tokenizer.h"
#include "chat/constraint.h"
#include "runtime/internal.h"
#include "unit/support/runtime_support.h"

#include <stdlib.h>
#include <string.h>

enum { WALKS = TEST_SANITIZED ? 60 : 500, STEPS = 120, MAX_SAID = 400 };

static const char TOOLS[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{\"type\":\"object\",\"properties\":"
    "{"
    "\"city\":{\"type\":\"string\",\"maxLength\":9},\"days\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":14}},"
    "\"required\":[\"city\"]}}},{\"type\":\"function\",\"function\":{\"name\":\"now\"}}]";

static const char SCHEMA[] =
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":6},\"tags\":{\"type\":\"array\","
    "\"items\":{\"enum\":[\"red\",\"green\",1]},\"maxItems\":3},\"next\":{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":"
    "\"null\"}]}},\"required\":[\"name\",\"next\"],\"additionalProperties\":false}";
static const char REGEX[] = "(yes|no|maybe), [a-z]{2,8}(: [0-9]{1,3})?";
static const char GBNF[] = "root ::= item (\", \" item)* \".\"\nitem ::= [a-z]+ | \"(\" root \")\"\n";
static const char CHOICES[] = "[\"red\", \"red wine\", \"green\", \"\\n\\nblue\"]";

/* --- walks over any guide --- */

typedef struct counts {
    int turns, far, stops, bound, free; /* what the walks met */
} counts;

typedef struct walker {
    engine_guide      *proto; /* never moved; copies are */
    const tok         *t;
    const char *const *texts;
    size_t             n_texts, words;
    uint32_t          *mask, *other;
    int32_t            said[MAX_SAID];
    int                n;
    tok_ids            pending; /* of a text that is being said */
    size_t             at;
    uint64_t           seed;
    counts            *counts;
} walker;

static uint64_t below(walker *w, uint64_t n) { return test_random(&w->seed) % n; }

static bool allowed(const uint32_t *mask, int32_t id) { return mask[id >> 5] >> (id & 31) & 1; }

static engine_guide *copy_of(const walker *w) {
    err           e = { 0 };
    engine_guide *g = w->proto->clone(w->proto, &e);
    if (!g) fail_msg("%s", e.msg);
    return g;
}

/* A guide that never went anywhere else says the same. */
static void compare(walker *w, engine_guide *g) {
    engine_guide *fresh = copy_of(w);
    err           e = { 0 };
    for (int i = 0; i < w->n; i++) {
        if (fresh->accept(fresh, w->said[i], &e) < 0) fail_msg("token %d of %d: %s", i, w->n, e.msg);
    }
    int want = fresh->mask(fresh, w->other, &e), got = g->mask(g, w->mask, &e);
    if (want < 0) fail_msg("%s", e.msg);
    assert_int_equal(got, want);
    if (want == 1) assert_memory_equal(w->mask, w->other, w->words * sizeof *w->mask);
    assert_int_equal(g->must_stop(g), fresh->must_stop(fresh));
    fresh->free(fresh);
    w->counts->turns++;
}

static int32_t any_of(walker *w) {
    size_t count = (size_t)tok_count(w->t), n = 0;
    for (size_t i = 0; i < count; i++) n += allowed(w->mask, (int32_t)i);
    if (n == 0) fail_msg("nothing is allowed");
    size_t k = below(w, n);
    for (int32_t id = 0;; id++) {
        if (allowed(w->mask, id) && k-- == 0) return id;
    }
}

/* The next token to say: of a text, else any. bound: there is a mask. */
static int32_t choose(walker *w, bool bound) {
    if (w->at >= w->pending.count && below(w, 2) == 0) {
        const char *text = w->texts[below(w, w->n_texts)];
        w->pending.count = w->at = 0;
        assert_int_equal(tok_encode(w->t, text, strlen(text), TOK_PARSE_SPECIAL, &w->pending, NULL), 0);
    }
    if (w->at < w->pending.count) {
        int32_t id = w->pending.data[w->at++];
        if (!bound || allowed(w->mask, id)) return id;
        w->at = w->pending.count;
    }
    return bound ? any_of(w) : (int32_t)below(w, (uint64_t)tok_count(w->t));
}

static void go_back(walker *w, engine_guide *g) {
    int most = below(w, 4) == 0 ? w->n : w->n < 12 ? w->n : 12, n = (int)below(w, (uint64_t)most + 1);
    if (below(w, 25) == 0) n = w->n;
    g->rollback(g, n);
    w->n -= n;
    w->at = w->pending.count;
    w->counts->far += n > 12;
    compare(w, g);
}

static void walk(walker *w) {
    engine_guide *g = copy_of(w);
    err           e = { 0 };
    w->n = 0;
    for (int step = 0; step < STEPS; step++) {
        bool stop = g->must_stop(g);
        w->counts->stops += stop;
        if (stop || w->n == MAX_SAID || below(w, 9) == 0) {
            if (stop && w->n == 0) break; /* nothing may be said at all */
            go_back(w, g);
            continue;
        }
        int rc = g->mask(g, w->mask, &e);
        if (rc < 0) fail_msg("%s", e.msg);
        w->counts->bound += rc == 1;
        w->counts->free += rc == 0;
        int32_t id = choose(w, rc == 1);
        if (tok_is_end(w->t, id)) { /* the answer would end here, and the guide would not hear of it */
            go_back(w, g);
            continue;
        }
        if (g->accept(g, id, &e) < 0) fail_msg("an allowed token was refused: %s", e.msg);
        w->said[w->n++] = id;
    }
    compare(w, g);
    g->rollback(g, w->n);
    w->n = 0;
    compare(w, g);
    g->free(g);
}

static void walker_init(walker *w, const tok *t, counts *c, uint64_t seed) {
    *w = (walker){ .t = t, .words = ((size_t)tok_count(t) + 31) / 32, .seed = seed, .counts = c };
    w->mask = calloc(w->words, sizeof *w->mask);
    w->other = calloc(w->words, sizeof *w->other);
    assert_true(w->mask && w->other);
}

static void walker_deinit(walker *w) {
    tok_ids_deinit(&w->pending);
    free(w->mask);
    free(w->other);
}

/* --- a chat's guide in the engine's form --- */

typedef struct chat_wrap {
    engine_guide g;
    chat_guide  *c;
} chat_wrap;

static engine_guide *wrap(chat_guide *c);

static int  wrap_mask(engine_guide *g, uint32_t *mask, err *e) { return chat_guide_mask(((chat_wrap *)g)->c, mask, e); }
static int  wrap_accept(engine_guide *g, int32_t id, err *e) { return chat_guide_accept(((chat_wrap *)g)->c, id, e); }
static void wrap_rollback(engine_guide *g, int n) { chat_guide_rollback(((chat_wrap *)g)->c, n); }
static bool wrap_must_stop(engine_guide *g) { return chat_guide_must_stop(((chat_wrap *)g)->c); }
static engine_guide *wrap_clone(engine_guide *g, err *e) {
    chat_guide *c;
    return chat_guide_clone(&c, ((chat_wrap *)g)->c, e) < 0 ? NULL : wrap(c);
}
static void wrap_free(engine_guide *g) {
    chat_guide_free(((chat_wrap *)g)->c);
    free(g);
}

static engine_guide *wrap(chat_guide *c) {
    chat_wrap *w = malloc(sizeof *w);
    assert_non_null(w);
    *w = (chat_wrap){ { wrap_mask, wrap_accept, wrap_rollback, wrap_must_stop, wrap_clone, wrap_free }, c };
    return &w->g;
}

static grammar *grammar_number(int kind) {
    static const view choices[] = { { "red", 3 }, { "red wine", 8 }, { "\n\nblue", 6 } };
    grammar          *g = NULL;
    err               e = { 0 };
    int               rc = 0;
    switch (kind) {
    case 1: rc = grammar_from_schema_steered(&g, view_of(SCHEMA), &e); break;
    case 2: rc = grammar_from_regex(&g, view_of(REGEX), &e); break;
    case 3: rc = grammar_from_gbnf(&g, view_of(GBNF), &e); break;
    case 4: rc = grammar_from_choices(&g, choices, 3, &e); break;
    case 5: rc = grammar_from_schema(&g, view_of("{\"type\": \"object\"}"), &e); break;
    default: break;
    }
    if (rc < 0) fail_msg("%s", e.msg);
    return g;
}

/* Any syntax, with any marks of thoughts. */
static chat_format random_format(walker *w) {
    chat_syntax s = (chat_syntax)below(w, CHAT_SYNTAX_COUNT);
    chat_format f = { .syntax = s, .row = chat_syntax_get(s) };
    if (below(w, 2) == 0) f = (chat_format){ .syntax = CHAT_SYNTAX_HERMES, .row = chat_syntax_get(CHAT_SYNTAX_HERMES) };
    if (below(w, 6) == 0)
        f = (chat_format){ .syntax = CHAT_SYNTAX_HARMONY, .row = chat_syntax_get(CHAT_SYNTAX_HARMONY) };
    if (f.syntax == CHAT_SYNTAX_HARMONY || below(w, 4) == 0) return f;
    f.think_open = "<think>";
    f.think_close = "</think>";
    f.think_empty = "<think>\n\n</think>\n\n";
    f.think_end = "\n</think>\n\n";
    f.think_anywhere = below(w, 3) == 0;
    if (f.think_anywhere && below(w, 2) == 0) {
        f.content_open = "<answer>";
        f.content_close = "</answer>";
    }
    return f;
}

static void test_chat_guides(void **state) {
    static const int  budgets[] = { -1, -1, 0, 3, 20 };
    tok              *t;
    grammar_vocab    *plain, *marked;
    walker            w;
    counts            met = { 0 };
    arena             a;
    const json_value *tools;
    err               e = { 0 };
    (void)state;
    arena_init(&a, 0);
    assert_int_equal(json_parse(&tools, TOOLS, strlen(TOOLS), &a, &e), 0);
    if (bundle_tokenizer_open_path(&t, TEST_DEMO, NULL, &e) < 0) fail_msg("%s", e.msg);
    assert_int_equal(grammar_vocab_open(&plain, t, &e), 0);
    walker_init(&w, t, &met, 77);
    for (int i = 0; i < WALKS; i++) {
        chat_format f = random_format(&w);
        const char *open = f.row->open ? f.row->open : "{\"name\": \"now\", \"parameters\": {",
                   *close = f.row->close ? f.row->close : "}";
        const char        *texts[] = { "<think>",
                                       "</think>",
                                       "Hm.</think>\n\n",
                                       "<answer>",
                                       "Hello",
                                       "\n\n",
                                       "\"",
                                       "}",
                                       "]",
                                       "get_weather",
                                       "<|channel|>analysis<|message|>",
                                       "<|channel|>final<|message|>",
                                       "<|end|><|start|>assistant",
                                       "<|channel|>commentary to=functions.now",
                                       open,
                                       open,
                                       close };
        chat_guide_options o = { .format = &f,
                                 .t = t,
                                 .text_vocab = plain,
                                 .tools = { .choice = (chat_tool_choice)below(&w, 4),
                                            .name = view_of("now"),
                                            .parallel = below(&w, 2) == 0 },
                                 .starts_in_reasoning = f.think_open && below(&w, 3) == 0,
                                 .reasoning_off = below(&w, 3) == 0,
                                 .budget = budgets[below(&w, 5)] };
        chat_guide        *c;
        if (f.syntax == CHAT_SYNTAX_NONE && o.tools.choice != CHAT_TOOLS_AUTO) o.tools.choice = CHAT_TOOLS_NONE;
        if (o.tools.choice != CHAT_TOOLS_NONE) o.tools.list = tools;
        if (o.tools.choice <= CHAT_TOOLS_NONE) o.content = grammar_number((int)below(&w, 6));
        assert_int_equal(chat_vocab_open(&marked, &f, t, &e), 0);
        o.marker_vocab = marked;
        if (chat_guide_open(&c, &o, &e) < 0) fail_msg("%s: %s", f.row->name, e.msg);
        if (c) {
            w.proto = wrap(c);
            w.texts = texts;
            w.n_texts = sizeof texts / sizeof *texts;
            walk(&w);
            w.proto->free(w.proto);
        }
        grammar_unref(o.content);
        grammar_vocab_free(marked);
    }
    print_message("%d turns, %d far, %d stops, %d masks, %d free\n", met.turns, met.far, met.stops, met.bound,
                  met.free);
    /* The walks were about something. */
    assert_true(met.turns > 10 * WALKS && met.far > WALKS / 4 && met.stops > WALKS / 4);
    assert_true(met.bound > 20 * WALKS && met.free > 5 * WALKS);
    walker_deinit(&w);
    grammar_vocab_free(plain);
    tok_free(t);
    arena_deinit(&a);
}

/* --- the runtime's guides --- */

static void test_runtime_guides(void **state) {
    static const struct {
        runtime_constraint_kind kind;
        const char             *text, *tools;
        runtime_tool_choice     choice;
        int                     budget;
    } rows[] = {
        { RUNTIME_JSON, "", "", RUNTIME_TOOLS_NONE, -1 },       { RUNTIME_SCHEMA, SCHEMA, "", RUNTIME_TOOLS_NONE, -1 },
        { RUNTIME_SCHEMA, SCHEMA, "", RUNTIME_TOOLS_NONE, 4 },  { RUNTIME_REGEX, REGEX, "", RUNTIME_TOOLS_NONE, 0 },
        { RUNTIME_GBNF, GBNF, "", RUNTIME_TOOLS_NONE, -1 },     { RUNTIME_CHOICES, CHOICES, "", RUNTIME_TOOLS_NONE, 2 },
        { RUNTIME_FREE, "", TOOLS, RUNTIME_TOOLS_AUTO, -1 },    { RUNTIME_FREE, "", TOOLS, RUNTIME_TOOLS_AUTO, 5 },
        { RUNTIME_FREE, "", TOOLS, RUNTIME_TOOLS_REQUIRED, 3 }, { RUNTIME_REGEX, REGEX, TOOLS, RUNTIME_TOOLS_AUTO, -1 },
        { RUNTIME_FREE, "", "", RUNTIME_TOOLS_NONE, 6 },
    };
    static const char *const texts[] = { "<think>",     "</think>\n\n", "Hello",
                                         "\n",          "\"",           "}",
                                         "<tool_call>", "</tool_call>", "\n{\"name\": \"now\"",
                                         "red",         "yes, " };
    runtime                 *r = *state;
    counts                   met = { 0 };
    walker                   w;
    walker_init(&w, chat_tokenizer(r->chat), &met, 5);
    /* Nothing else is asked of this runtime meanwhile, so its guides may be made here. */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int inside = 0; inside < 2; inside++) {
            runtime_request q;
            prompt          p;
            bool            calls;
            err             e = { 0 };
            runtime_request_init(&q);
            prompt_init(&p);
            q.task = RUNTIME_CHAT;
            q.constraint = (runtime_constraint){ rows[i].kind, view_of(rows[i].text) };
            q.tools = view_of(rows[i].tools);
            q.tool_choice = rows[i].choice;
            q.thinking_budget = rows[i].budget;
            p.in_reasoning = inside;
            arena mem;
            trees t;
            q.messages = view_of("[]");
            arena_init(&mem, 0);
            if (trees_parse(&q, &mem, &mem, &t, &e) < 0) fail_msg("%zu: %s", i, e.msg);
            if (guides_get(r, &q, &t, &p, &w.proto, &calls, &e) < 0) fail_msg("%zu: %s", i, e.msg);
            assert_non_null(w.proto);
            w.texts = texts;
            w.n_texts = sizeof texts / sizeof *texts;
            for (int k = 0; k < (TEST_SANITIZED ? 1 : 6); k++) walk(&w);
            w.proto->free(w.proto);
            arena_deinit(&mem);
            prompt_deinit(&p);
        }
    }
    print_message("%d turns, %d far, %d stops, %d masks, %d free\n", met.turns, met.far, met.stops, met.bound,
                  met.free);
    assert_true(met.turns > 200 && met.bound > 500 && met.free > 300);
    walker_deinit(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_chat_guides), cmocka_unit_test(test_runtime_guides) };
    return cmocka_run_group_tests(tests, test_demo_open, test_demo_close);
}
