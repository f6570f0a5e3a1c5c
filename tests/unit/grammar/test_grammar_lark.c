/* SPDX-License-Identifier: Apache-2.0 */
/* Lark grammars and patterns of other programs: texts that they allow, texts that they do not, and what is refused. */
#include "unit/support/support.h"

#include "grammar/ir.h"
#include "grammar/lark.h"

#include <string.h>

enum { MOST = 12 };

typedef struct lark_case {
    const char *source;
    const char *yes[MOST], *no[MOST];
} lark_case;

#define SUMS                                                                                                           \
    "start: expr\n"                                                                                                    \
    "expr: term (SP ADD SP term)* -> add\n"                                                                            \
    "| term\n"                                                                                                         \
    "term: factor (SP MUL SP factor)* -> mul\n"                                                                        \
    "    | factor\n"                                                                                                   \
    "?factor.2: INT   // a number\n"                                                                                   \
    "SP: \" \"\nADD: \"+\"\nMUL: \"*\"\n"                                                                              \
    "%import common.INT\n"

#define EDITS                                                                                                          \
    "start: head edit+ tail\n"                                                                                         \
    "head: \"<<< edits\" LF\n"                                                                                         \
    "tail: \">>> end\" LF?\n"                                                                                          \
    "edit: \"file: \" name LF line+\n"                                                                                 \
    "name: /(.+)/\n"                                                                                                   \
    "line: (\"+\" | \"-\" | \" \") /(.*)/ LF\n"                                                                        \
    "%import common.LF\n"

static const lark_case cases[] = {
    { SUMS, { "1", "1 + 2", "4 + 5 * 6", "12 * 3 + 4" }, { "", "1+2", "1 +", "+ 1", "1 + 2 ", "a" } },
    { EDITS,
      { "<<< edits\nfile: a b.c\n+x\n>>> end", "<<< edits\nfile: a\n-\n y\nfile: b\n+z\n>>> end\n" },
      { "<<< edits\n>>> end", "<<< edits\nfile: \n+x\n>>> end", "<<< edits\nfile: a\nx\n>>> end",
        "<<< edits\nfile: a\n+x\n>>> end\n\n" } },
    { "start: \"select\"i WORD\n%import common.WORD\n%ignore \" \"\n%ignore /\\t+/",
      { "select a", "SELECT  b ", " SeLeCt\tc", "selecta" },
      { "selec a", "select", "select a1", "select\na" } },
    { "start: A~2 [B] (C | D)~1..2\nA: \"a\"..\"c\"\nB: /[x-z]/i\nC: \"\\n\"\nD: \".\"\n",
      { "ab.", "ccX..", "aaz\n", "ab\n." },
      { "a.", "ab", "abxx.", "ab...", "ad.", "ab+" } },
    { "start: (\"a\"\n  | \"b\"\n  )+ item?\n!item: NUM | STR\n%import common (SIGNED_NUMBER)\n%import "
      "common.ESCAPED_STRING -> "
      "STR\nNUM: SIGNED_NUMBER",
      { "a", "ab", "b-1.5e3", "a\"x\\\"y\"", "a\"\"", "a.5" },
      { "", "c", "a\"x", "a1.2.3", "a\"x\ny\"", "a--1" } },
    { "start: /\\s\\S[^\\n]/ /a.b/s\n", { " xya\nb", "\tx/a.b" }, { "xxya.b", "  ya.b", " x\na.b", " xyab" } },
    { "# nothing\nstart: | \"x\"\n", { "", "x" }, { "xx" } },
};

static bool matches(const str *pattern, const char *text) {
    ir   *g;
    ir_rx a;
    err   e = { 0 };
    assert_int_equal(ir_open(&g, &e), 0);
    if (ir_rx_parse(g, str_cstr(pattern), pattern->len, 0, &a, &e) < 0) fail_msg("%s: %s", e.msg, str_cstr(pattern));
    bool yes = ir_rx_matches(g, a, text, strlen(text));
    ir_free(g);
    return yes;
}

static void test_texts(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const lark_case *c = &cases[i];
        err              e = { 0 };
        str              pattern;
        str_init(&pattern);
        if (grammar_lark_pattern(view_of(c->source), &pattern, &e) < 0) fail_msg("%zu: %s", i, e.msg);
        for (int k = 0; k < MOST && c->yes[k]; k++) {
            if (!matches(&pattern, c->yes[k]))
                fail_msg("%zu: '%s' is not allowed by %s", i, c->yes[k], str_cstr(&pattern));
        }
        for (int k = 0; k < MOST && c->no[k]; k++) {
            if (matches(&pattern, c->no[k])) fail_msg("%zu: '%s' is allowed by %s", i, c->no[k], str_cstr(&pattern));
        }
        str_deinit(&pattern);
    }
}

static void test_refused(void **state) {
    static const struct {
        const char *source, *why;
    } bad[] = {
        { "", "start" },
        { "begin: \"a\"", "start" },
        { "start: \"(\" start \")\" | \"x\"", "refer to themselves" },
        { "start: a\na: b\nb: \"x\" a?", "refer to themselves" },
        { "start: missing", "missing" },
        { "start: list{\"a\"}\nlist{x}: x+", "template" },
        { "start: \"a\"\nstart: \"b\"", "two definitions" },
        { "%import python.NAME\nstart: NAME", "python" },
        { "%import common.NOTHING\nstart: NOTHING", "NOTHING" },
        { "%declare A\nstart: A", "declare" },
        { "start: \"a", "not closed" },
        { "start: (\"a\"", "not closed" },
        { "start: \"a\")", "closes nothing" },
        { "start \"a\"", "colon" },
        { "start: A\nA: b\nb: \"x\"", "terminal cannot" },
        { "start: /a(?=b)/", "group" },
        { "start: /^a/", "anchor" },
        { "start: /\\W/", "\\W" },
        { "start: /a/x", "flag x" },
        { "start: \"ab\"..\"c\"", "range" },
        { "start: \"a\" & \"b\"", "not understood" },
        { "start: A~99999\nA: \"a\"", "10000" },
        { "start: a a a a a a a a\na: b b b b b b b b\nb: c c c c c c c c\nc: d d d d d d d d\nd: "
          "/xxxxxxxxxxxxxxxxxxxx/",
          "too long" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        err e = { 0 };
        str pattern;
        str_init(&pattern);
        assert_true(grammar_lark_pattern(view_of(bad[i].source), &pattern, &e) < 0);
        if (!strstr(e.msg, bad[i].why)) fail_msg("%zu: %s", i, e.msg);
        str_deinit(&pattern);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_texts), cmocka_unit_test(test_refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
