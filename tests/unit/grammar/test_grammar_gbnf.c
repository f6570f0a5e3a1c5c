/* SPDX-License-Identifier: Apache-2.0 */
/* GBNF: every construct with texts that belong to it and texts that do not; refusals with the line. */
#include "unit/support/support.h"

#include "base/str.h"
#include "grammar/grammar.h"

#include <string.h>

static grammar_vocab *vocab(void) {
    view           one[2] = { view_of("a"), view_of("") };
    int32_t        end = 1;
    grammar_vocab *v;
    err            e = { 0 };
    assert_int_equal(grammar_vocab_open_texts(&v, one, 2, &end, 1, &e), 0);
    return v;
}

/* yes and no: texts separated by \x01. */
static void check(const char *source, const char *yes, const char *no) {
    grammar_vocab *v = vocab();
    grammar       *g;
    err            e = { 0 };
    if (grammar_from_gbnf(&g, view_of(source), &e) < 0) fail_msg("%s\n%s", source, e.msg);
    for (int side = 0; side < 2; side++) {
        const char *p = side ? no : yes;
        while (p) {
            const char      *end = strchr(p, 1);
            size_t           n = end ? (size_t)(end - p) : strlen(p);
            grammar_matcher *m;
            bool             ok;
            assert_int_equal(grammar_matcher_open(&m, g, v, &e), 0);
            ok = grammar_matcher_accept_bytes(m, p, n) && grammar_matcher_may_end(m);
            if (ok != !side) fail_msg("%s\n'%.*s' should %sbelong", source, (int)n, p, side ? "not " : "");
            grammar_matcher_free(m);
            p = end ? end + 1 : NULL;
        }
    }
    grammar_unref(g);
    grammar_vocab_free(v);
}

static void test_constructs(void **state) {
    (void)state;
    check("root ::= \"a\" [b-d] .", "abx\1adé\1acz", "ab\1aex\1abxy\1");
    check("root ::= (\"x\" | \"y\")* # comment\n", "\1x\1yxy", "z\1xz");
    check("root ::= a? b+ c{2} d{1,} e{0,2}\na ::= \"a\"\nb ::= \"b\"\nc ::= \"c\"\nd ::= \"d\"\ne ::= \"e\"",
          "bccd\1abbccddee", "accd\1bccdeee\1bcd\1bcc");
    check("root ::= \"\\x41\\u00e9\\U0001F600\\t\\\"\\\\\\[\\]\"", "Aé😀\t\"\\[]", "A");
    check("root ::= [^\\n\\]x-z]+", "abc\1[", "a\n\1]\1y");
    check("root ::=\n  \"a\" |\n  \"b\" (\n \"c\"\n | \"d\"\n )\n", "a\1bc\1bd", "b\1acd");
    check("root ::= | item-1\ni ::= \"i\"\nitem-1 ::= \"q\" i", "\1qi", "q");
    check("root ::= [a-]\n", "a\1-", "b");
}

static void test_recursion(void **state) {
    (void)state;
    check("root ::= root \"+\" term | term\nterm ::= [0-9]+ | \"(\" root \")\"",
          "1\1"
          "1+2+3\1(1+(22))+3",
          "1+\1((1)\1+1");
    check("root ::= \"a\" root \"b\" | ", "\1ab\1aaabbb", "a\1aab\1ba");
    check("root ::= root root | \"a\"", "a\1aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "\1b");
    check("root ::= x\nx ::= y? x \"1\" | \"0\"\ny ::= \"1\"?",
          "0\1"
          "01\1"
          "1011",
          "1\1"
          "011x");
}

static void test_json(void **state) {
    static const char json[] =
        "root ::= object\n"
        "value ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\n"
        "object ::= \"{\" ws ( string \":\" ws value (\",\" ws string \":\" ws value)* )? \"}\" ws\n"
        "array ::= \"[\" ws ( value (\",\" ws value)* )? \"]\" ws\n"
        "string ::= \"\\\"\" ( [^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" ([\"\\\\bfnrt/] | \"u\" [0-9a-fA-F]{4}) )* "
        "\"\\\"\" ws\n"
        "number ::= (\"-\"? ([0-9] | [1-9] [0-9]{0,15})) (\".\" [0-9]+)? ([eE] [-+]? [0-9]+)? ws\n"
        "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n";
    (void)state;
    check(json, "{}\1{\"a\": [1, 2.5e-3, \"x\\u00e9\", {\"b\": null}], \"c\": true}\1{\n  \"a\": -0\n}",
          "[]\1{\"a\": 01}\1{\"a\"; 1}\1{\"a\": [1,]}\1{\"a\": \"\\x\"}");
}

static void test_errors(void **state) {
    static const struct {
        const char *source, *says;
        int         code;
    } cases[] = {
        { "root ::= a", "'a' is used, but not defined", ERR_FORMAT },
        { "a ::= \"b\"", "no rule 'root'", ERR_FORMAT },
        { "root ::= \"a\"\nroot ::= \"b\"", "line 2: the rule 'root' is defined twice", ERR_FORMAT },
        { "root ::= \"a", "is not closed", ERR_FORMAT },
        { "root ::= [a", "is not closed", ERR_FORMAT },
        { "root ::= (\"a\"", "without", ERR_FORMAT },
        { "root ::= \"a\" )", "unexpected ')'", ERR_FORMAT },
        { "root ::= \"a\"{2,1}", "order", ERR_FORMAT },
        { "root ::= \"a\"{x}", "number", ERR_FORMAT },
        { "root ::= \"\\q\"", "escape", ERR_FORMAT },
        { "root ::= <think>", "token references", ERR_UNSUPPORTED },
        { "root := \"a\"", "'::='", ERR_FORMAT },
        { "root ::= root \"a\"", "matches no text", ERR_ARG },
        { "", "no rule 'root'", ERR_FORMAT },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        grammar *g;
        err      e = { 0 };
        if (grammar_from_gbnf(&g, view_of(cases[i].source), &e) != cases[i].code || !strstr(e.msg, cases[i].says))
            fail_msg("%s: %d %s", cases[i].source, e.code, e.msg);
        assert_null(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_constructs),
        cmocka_unit_test(test_recursion),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
