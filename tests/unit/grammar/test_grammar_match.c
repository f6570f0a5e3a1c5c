/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matchers. Random grammars against a plain recognizer that tries every split of the text; masks against trying every
 * token; rollback, clone, limits.
 */
#include "unit/support/support.h"

#include "base/str.h"
#include "bundle/tokenizer.h"
#include "grammar/grammar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t seed = 77;

static unsigned pick(unsigned n) { return (unsigned)(test_random(&seed) % n); }

/* --- a reference: spans of the text that a rule matches, to a fixed point --- */

enum { RULES = 5, ALTS = 3, LEN = 4, TEXT = 8 };

/* A symbol: rule number, or 'a'.., or a class of two letters as capital: 'A' = [ab], 'B' = [bc]; '*' = a*. */
typedef struct toy {
    int n_alts[RULES], len[RULES][ALTS], sym[RULES][ALTS][LEN];
    int rep_min[RULES],
        rep_max[RULES]; /* rep_max 0: no loop; else the rule is its first symbol repeated; 9: no limit */
} toy;

static void toy_random(toy *t) {
    static const int terminals[] = { 'a', 'b', 'c', 'A', 'B', '*' };
    memset(t, 0, sizeof *t);
    for (int r = 0; r < RULES; r++) {
        t->n_alts[r] = 1 + (int)pick(ALTS);
        for (int k = 0; k < t->n_alts[r]; k++) {
            t->len[r][k] = (int)pick(LEN + 1);
            for (int i = 0; i < t->len[r][k]; i++) t->sym[r][k][i] = pick(2) ? (int)pick(RULES) : terminals[pick(6)];
        }
        if (pick(4) == 0) {
            t->n_alts[r] = 1;
            t->len[r][0] = 1;
            t->sym[r][0][0] = pick(2) ? (int)pick(RULES) : terminals[pick(6)];
            t->rep_min[r] = (int)pick(3);
            t->rep_max[r] = pick(2) ? 9 : t->rep_min[r] + 1 + (int)pick(2);
        }
    }
}

typedef bool spans[RULES][TEXT + 1][TEXT + 1];

static bool sym_span(const toy *t, spans m, const char *x, int s, int i, int j) {
    (void)t;
    if (s < RULES) return m[s][i][j];
    if (s == '*') {
        for (; i < j; i++)
            if (x[i] != 'a') return false;
        return true;
    }
    if (j != i + 1) return false;
    if (s == 'A') return x[i] == 'a' || x[i] == 'b';
    if (s == 'B') return x[i] == 'b' || x[i] == 'c';
    return x[i] == s;
}

static bool seq_span(const toy *t, spans m, const char *x, const int *s, int n, int i, int j) {
    if (n == 0) return i == j;
    for (int k = i; k <= j; k++)
        if (sym_span(t, m, x, s[0], i, k) && seq_span(t, m, x, s + 1, n - 1, k, j)) return true;
    return false;
}

/* s between min and max times; empty rounds add nothing, so at most j - i rounds that are not. */
static bool loop_span(const toy *t, spans m, const char *x, int s, int min, int max, int i, int j) {
    if (min == 0 && i == j) return true;
    if (max == 0) return false;
    if (sym_span(t, m, x, s, i, i)) min = 0; /* rounds may be empty */
    if (min == 0 && i == j) return true;
    for (int k = i + 1; k <= j; k++)
        if (sym_span(t, m, x, s, i, k) && loop_span(t, m, x, s, min ? min - 1 : 0, max == 99 ? 99 : max - 1, k, j))
            return true;
    return false;
}

static bool toy_matches(const toy *t, const char *x, int n) {
    static spans m;
    bool         changed = true;
    memset(m, 0, sizeof m);
    while (changed) {
        changed = false;
        for (int r = 0; r < RULES; r++)
            for (int i = 0; i <= n; i++)
                for (int j = i; j <= n; j++) {
                    bool ok = false;
                    if (m[r][i][j]) continue;
                    if (t->rep_max[r])
                        ok = loop_span(t, m, x, t->sym[r][0][0], t->rep_min[r], t->rep_max[r] == 9 ? 99 : t->rep_max[r],
                                       i, j);
                    for (int k = 0; k < t->n_alts[r] && !ok && !t->rep_max[r]; k++)
                        ok = seq_span(t, m, x, t->sym[r][k], t->len[r][k], i, j);
                    if (ok) m[r][i][j] = changed = true;
                }
    }
    return m[0][0][n];
}

static ir_sym toy_sym(ir *g, const ir_sym *rules, int s) {
    char     c = (char)s;
    ir_range r = { 'a', 'b' };
    if (s < RULES) return rules[s];
    if (s == '*') return ir_terminal(g, ir_rx_repeat(g, ir_rx_text(g, "a"), 0, -1));
    if (s == 'B') r = (ir_range){ 'b', 'c' };
    if (s == 'A' || s == 'B') return ir_terminal(g, ir_rx_class(g, &r, 1, false));
    return ir_terminal(g, ir_rx_bytes(g, &c, 1));
}

static int toy_compile(const toy *t, grammar **out, err *e) {
    ir    *g;
    ir_sym rules[RULES];
    int    rc;
    assert_int_equal(ir_open(&g, e), 0);
    for (int r = 0; r < RULES; r++) rules[r] = ir_rule(g, "r");
    for (int r = 0; r < RULES; r++)
        for (int k = 0; k < t->n_alts[r]; k++) {
            ir_sym body[LEN];
            for (int i = 0; i < t->len[r][k]; i++) body[i] = toy_sym(g, rules, t->sym[r][k][i]);
            if (t->rep_max[r])
                body[0] = ir_repeat(g, body[0], (uint32_t)t->rep_min[r], t->rep_max[r] == 9 ? -1 : t->rep_max[r]);
            ir_rule_alt(g, rules[r], body, (size_t)t->len[r][k]);
        }
    rc = grammar_compile(out, g, rules[0], e);
    ir_free(g);
    return rc;
}

static const char *const small_texts[] = {
    "a", "b", "c", "ab", "ba", "aab", "abc", "cc", "bca", "aaaa", "b", "acb", ""
};
enum { SMALL = sizeof small_texts / sizeof *small_texts, END = SMALL - 1 };

static grammar_vocab *small_vocab(void) {
    view           texts[SMALL];
    int32_t        end = END;
    grammar_vocab *v;
    err            e = { 0 };
    for (int i = 0; i < SMALL; i++) texts[i] = view_of(small_texts[i]);
    assert_int_equal(grammar_vocab_open_texts(&v, texts, SMALL, &end, 1, &e), 0);
    return v;
}

static void check_mask_by_trying(grammar_matcher *m, const grammar_vocab *v, const char *const *texts, size_t n,
                                 int32_t end) {
    uint32_t *mask = calloc(grammar_vocab_mask_words(v), sizeof *mask);
    err       e = { 0 };
    assert_int_equal(grammar_matcher_mask(m, mask, &e), 0);
    for (size_t i = 0; i < n; i++) {
        bool ok, bit = (mask[i >> 5] >> (i & 31)) & 1;
        if ((int32_t)i == end) {
            ok = grammar_matcher_may_end(m);
        } else {
            ok = texts[i][0] && grammar_matcher_accept_bytes(m, texts[i], strlen(texts[i]));
            if (ok) grammar_matcher_rollback(m, 1);
        }
        if (ok != bit) fail_msg("token %zu '%s': mask %d, trying %d", i, texts[i], bit, ok);
    }
    free(mask);
}

static void test_random_grammars(void **state) {
    grammar_vocab *v = small_vocab();
    size_t         members = 0, compiled = 0;
    (void)state;
    for (int round = 0; round < (TEST_SANITIZED ? 60 : 400); round++) {
        toy      t;
        grammar *g;
        err      e = { 0 };
        toy_random(&t);
        if (toy_compile(&t, &g, &e) < 0) { /* only because it matches nothing */
            assert_int_equal(e.code, ERR_ARG);
            for (int i = 0; i < 40; i++) {
                char x[TEXT];
                int  n = (int)pick(6);
                for (int k = 0; k < n; k++) x[k] = (char)('a' + pick(3));
                assert_false(toy_matches(&t, x, n));
            }
            continue;
        }
        compiled++;
        for (int i = 0; i < 60; i++) {
            char             x[TEXT];
            int              n = (int)pick(TEXT), k;
            bool             expect, got;
            grammar_matcher *m;
            for (k = 0; k < n; k++) x[k] = (char)('a' + pick(3));
            expect = toy_matches(&t, x, n);
            assert_int_equal(grammar_matcher_open(&m, g, v, &e), 0);
            for (k = 0; k < n && grammar_matcher_accept_bytes(m, x + k, 1); k++)
                if (i < 3) check_mask_by_trying(m, v, small_texts, SMALL, END);
            got = k == n && grammar_matcher_may_end(m);
            if (got != expect) fail_msg("round %d text %.*s: expected %d", round, n, x, expect);
            members += expect;
            grammar_matcher_free(m);
        }
        grammar_unref(g);
    }
    assert_true(compiled > (TEST_SANITIZED ? 15 : 100));
    assert_true(members > (TEST_SANITIZED ? 45 : 300));
    grammar_vocab_free(v);
}

/* --- a small grammar of JSON by hand --- */

static grammar *json_like(void) {
    static const char json[] =
        "(?:\"(?:[^\"\\\\\\x00-\\x1f]|\\\\[\"\\\\nu])*\"|-?[0-9]+(?:\\.[0-9]+)?|true|false|null)";
    ir      *g;
    grammar *out;
    err      e = { 0 };
    ir_rx    scalar;
    ir_sym   value, comma, items;
    assert_int_equal(ir_open(&g, &e), 0);
    assert_int_equal(ir_rx_parse(g, json, strlen(json), 0, &scalar, &e), 0);
    value = ir_rule(g, "value");
    ir_rx string = ir_rx_json_string(g, ir_rx_all(g));
    comma = ir_terminal(g, ir_rx_cat(g, ir_rx_text(g, ","), ir_rx_opt(g, ir_rx_text(g, " "))));
    items = ir_opt(g, ir_seq(g, (ir_sym[]){ value, ir_repeat(g, ir_seq(g, (ir_sym[]){ comma, value }, 2), 0, -1) }, 2));
    ir_rule_alt(g, value, (ir_sym[]){ ir_terminal(g, scalar) }, 1);
    ir_rule_alt(g, value, (ir_sym[]){ ir_terminal(g, string) }, 1);
    ir_rule_alt(g, value, (ir_sym[]){ ir_terminal(g, ir_rx_text(g, "[")), items, ir_terminal(g, ir_rx_text(g, "]")) },
                3);
    ir_sym member = ir_seq(g, (ir_sym[]){ ir_terminal(g, string), ir_terminal(g, ir_rx_text(g, ": ")), value }, 3);
    ir_sym members =
        ir_opt(g, ir_seq(g, (ir_sym[]){ member, ir_repeat(g, ir_seq(g, (ir_sym[]){ comma, member }, 2), 0, -1) }, 2));
    ir_rule_alt(g, value, (ir_sym[]){ ir_terminal(g, ir_rx_text(g, "{")), members, ir_terminal(g, ir_rx_text(g, "}")) },
                3);
    if (grammar_compile(&out, g, value, &e) < 0) fail_msg("%s", e.msg);
    ir_free(g);
    return out;
}

static const char sample[] = "{\"a\": [1, 2.5, -3, \"x\\\"y\", {\"käse 😀\": null}], \"long key with words\": true}";

static void test_json_like(void **state) {
    static const char *const bad[] = { "{\"a\" 1}", "[1,,2]", "{\"a\": [1}", "[1]]", "\"\x01\"", "{1: 2}", "tru", "" };
    grammar                 *g = json_like();
    grammar_vocab           *v = small_vocab();
    grammar_matcher         *m;
    err                      e = { 0 };
    (void)state;
    assert_int_equal(grammar_matcher_open(&m, g, v, &e), 0);
    assert_false(grammar_matcher_may_end(m));
    assert_true(grammar_matcher_accept_bytes(m, sample, strlen(sample)));
    assert_true(grammar_matcher_may_end(m));
    assert_true(grammar_matcher_must_end(m));
    grammar_matcher_rollback(m, 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bool ok = grammar_matcher_accept_bytes(m, bad[i], strlen(bad[i]));
        assert_false(ok && grammar_matcher_may_end(m));
        if (ok) grammar_matcher_rollback(m, 1);
    }
    for (int depth = 0; depth < 3000; depth++) assert_true(grammar_matcher_accept_bytes(m, "[[", 2));
    for (int depth = 0; depth < 6000; depth++) {
        assert_false(grammar_matcher_may_end(m));
        assert_true(grammar_matcher_accept_bytes(m, "]", 1));
    }
    assert_true(grammar_matcher_must_end(m));
    grammar_matcher_free(m);
    grammar_vocab_free(v);
    grammar_unref(g);
}

/* Walks the sample with each vocabulary of the corpus; every few tokens every token is tried. */
static void walk_real(const char *name) {
    char            *path = test_corpus_path(name);
    grammar         *g;
    grammar_vocab   *v;
    grammar_matcher *m, *other;
    tok             *t;
    tok_ids          ids = { 0 };
    err              e = { 0 };
    if (!path) return;
    if (bundle_tokenizer_open_path(&t, path, NULL, &e) < 0) fail_msg("%s", e.msg);
    free(path);
    g = json_like();
    assert_int_equal(grammar_vocab_open(&v, t, &e), 0);
    assert_int_equal(grammar_matcher_open(&m, g, v, &e), 0);
    assert_int_equal(tok_encode(t, sample, strlen(sample), 0, &ids, &e), 0);
    uint32_t *mask = malloc(grammar_vocab_mask_words(v) * sizeof *mask),
             *again = malloc(grammar_vocab_mask_words(v) * sizeof *again);
    for (size_t i = 0; i < ids.count; i++) {
        str      text;
        uint32_t wrong = 0;
        if (grammar_matcher_mask(m, mask, &e) < 0) fail_msg("%s", e.msg);
        str_init(&text);
        if (i == 0) { /* a SentencePiece tokenizer begins a text with a space */
            tok_bytes(t, ids.data[0], &text);
            if (text.len && str_cstr(&text)[0] == ' ') {
                assert_true(grammar_matcher_accept_bytes(m, str_cstr(&text) + 1, text.len - 1));
                str_deinit(&text);
                continue;
            }
        }
        for (int32_t id = 0; i % 11 == 1 && id < tok_count(t); id++) {
            bool ok, bit = (mask[id >> 5] >> (id & 31)) & 1;
            ok = grammar_matcher_accept(m, id, NULL) == 0;
            if (ok) grammar_matcher_rollback(m, 1);
            wrong += ok != bit;
        }
        assert_int_equal(wrong, 0);
        assert_int_equal(grammar_matcher_clone(&other, m, &e), 0);
        assert_int_equal(grammar_matcher_mask(other, again, &e), 0);
        assert_memory_equal(mask, again, grammar_vocab_mask_words(v) * sizeof *mask);
        grammar_matcher_free(other);
        assert_true((mask[ids.data[i] >> 5] >> (ids.data[i] & 31)) & 1);
        assert_int_equal(grammar_matcher_accept(m, ids.data[i], &e), 0);
        str_deinit(&text);
    }
    assert_true(grammar_matcher_may_end(m));
    assert_int_equal(grammar_matcher_accept(m, tok_eos(t), &e), 0);
    assert_true(grammar_matcher_must_end(m));
    grammar_matcher_rollback(m, ids.count + 1);
    assert_false(grammar_matcher_may_end(m));
    free(mask);
    free(again);
    grammar_matcher_free(m);
    grammar_vocab_free(v);
    grammar_unref(g);
    tok_ids_deinit(&ids);
    tok_free(t);
}

static void test_real_vocabularies(void **state) {
    (void)state;
    test_need_corpus();
    walk_real("vocab/gpt-2.gguf");
    walk_real("vocab/llama-spm.gguf");
}

static void test_choices(void **state) {
    view             texts[] = { view_of("yes"), view_of("no"), view_of("not sure"), view_of("ünï") };
    grammar         *g;
    grammar_vocab   *v = small_vocab();
    grammar_matcher *m;
    err              e = { 0 };
    (void)state;
    assert_int_equal(grammar_from_choices(&g, texts, 4, &e), 0);
    assert_int_equal(grammar_matcher_open(&m, g, v, &e), 0);
    assert_true(grammar_matcher_accept_bytes(m, "no", 2));
    assert_true(grammar_matcher_may_end(m));
    assert_false(grammar_matcher_must_end(m));
    assert_true(grammar_matcher_accept_bytes(m, "t sure", 6));
    assert_true(grammar_matcher_must_end(m));
    grammar_matcher_rollback(m, 2);
    assert_true(grammar_matcher_accept_bytes(m, "\xC3", 1));
    assert_false(grammar_matcher_accept_bytes(m, "\xA4", 1));
    assert_true(grammar_matcher_accept_bytes(m, "\xBCn\xC3\xAF", 4));
    assert_true(grammar_matcher_must_end(m));
    grammar_matcher_free(m);
    grammar_unref(g);
    assert_int_equal(grammar_from_choices(&g, texts, 0, &e), ERR_ARG);
    grammar_vocab_free(v);
}

static void test_large_counts(void **state) {
    static const char *const patterns[] = { "(a{1,1000000}){1,1000000}", "a{1000,100000}", "(ab?){1,1000000}",
                                            "([ab]{0,50}c){0,1000000}",  "(a|aa|aaa)*",    "(a?){500}a{500}" };
    grammar_vocab           *v = small_vocab();
    err                      e = { 0 };
    (void)state;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        grammar         *g;
        grammar_matcher *m;
        uint32_t         mask[1];
        assert_int_equal(grammar_from_regex(&g, view_of(patterns[i]), &e), 0);
        assert_int_equal(grammar_matcher_open(&m, g, v, &e), 0);
        for (int k = 0; k < (TEST_SANITIZED ? 100 : 300); k++) {
            if (grammar_matcher_mask(m, mask, &e) < 0) {
                assert_int_equal(e.code, ERR_LIMIT);
                break;
            }
            assert_true(mask[0] & 5);
            assert_int_equal(grammar_matcher_accept(m, mask[0] & 1 ? 0 : 2, &e), 0);
        }
        grammar_matcher_free(m);
        grammar_unref(g);
    }
    grammar_vocab_free(v);
}

/* A counted loop of a rule that is not regular keeps one item, whatever the count. */
static void test_counted_rules(void **state) {
    ir              *g;
    grammar         *out;
    grammar_vocab   *v = small_vocab();
    grammar_matcher *m;
    err              e = { 0 };
    (void)state;
    assert_int_equal(ir_open(&g, &e), 0);
    ir_sym nest = ir_rule(g, "nest"), a = ir_terminal(g, ir_rx_text(g, "a")), b = ir_terminal(g, ir_rx_text(g, "b"));
    ir_rule_alt(g, nest, (ir_sym[]){ a, nest, b }, 3);
    ir_rule_alt(g, nest, (ir_sym[]){ a, b }, 2);
    ir_sym list = ir_repeat(g, nest, 1000, 2000);
    assert_int_equal(grammar_compile(&out, g, list, &e), 0);
    ir_free(g);
    assert_int_equal(grammar_matcher_open(&m, out, v, &e), 0);
    for (int i = 1; i <= 2000; i++) {
        assert_true(grammar_matcher_accept_bytes(m, i % 7 ? "ab" : "aaabbb", i % 7 ? 2 : 6));
        assert_int_equal(grammar_matcher_may_end(m), i >= 1000);
    }
    assert_false(grammar_matcher_accept_bytes(m, "a", 1));
    assert_true(grammar_matcher_must_end(m));
    grammar_matcher_rollback(m, 1500);
    assert_false(grammar_matcher_may_end(m));
    grammar_matcher_free(m);
    grammar_unref(out);
    grammar_vocab_free(v);
}

/* Masks of places inside a long bounded text are shared; the counts still hold. */
static void test_long_bounds(void **state) {
    static const char *const patterns[] = { "[ab]{40,90}c", "(?:[ab]{0,70}c){0,50}", "b?(?:a|aab?){3,60}c{0,40}" };
    grammar_vocab           *v = small_vocab();
    err                      e = { 0 };
    (void)state;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        grammar         *g;
        grammar_matcher *m;
        assert_int_equal(grammar_from_regex(&g, view_of(patterns[i]), &e), 0);
        assert_int_equal(grammar_matcher_open(&m, g, v, &e), 0);
        for (int k = 0; k < 200; k++) {
            check_mask_by_trying(m, v, small_texts, SMALL, END);
            if (!grammar_matcher_accept_bytes(m, "a", 1) && !grammar_matcher_accept_bytes(m, "c", 1)) break;
        }
        grammar_matcher_free(m);
        grammar_unref(g);
    }
    grammar_vocab_free(v);
}

/* Work without end ends with an error; the grammar stays usable. */
static void test_ambiguity(void **state) {
    ir              *g;
    grammar         *out;
    grammar_vocab   *v = small_vocab();
    grammar_matcher *m;
    err              e = { 0 };
    uint32_t         mask[1];
    char             text[2000];
    (void)state;
    memset(text, 'a', sizeof text);
    assert_int_equal(ir_open(&g, &e), 0);
    ir_sym s = ir_rule(g, "s"), a = ir_terminal(g, ir_rx_text(g, "a"));
    ir_rule_alt(g, s, (ir_sym[]){ s, s, s }, 3);
    ir_rule_alt(g, s, (ir_sym[]){ s, s }, 2);
    ir_rule_alt(g, s, (ir_sym[]){ a }, 1);
    assert_int_equal(grammar_compile(&out, g, s, &e), 0);
    ir_free(g);
    assert_int_equal(grammar_matcher_open(&m, out, v, &e), 0);
    assert_false(grammar_matcher_accept_bytes(m, text, sizeof text));
    assert_int_equal(grammar_matcher_mask(m, mask, &e), 0);
    assert_int_equal(mask[0], 1u | 1u << 9); /* "a", "aaaa" */
    grammar_matcher_free(m);
    grammar_unref(out);
    grammar_vocab_free(v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_grammars), cmocka_unit_test(test_json_like),
        cmocka_unit_test(test_choices),         cmocka_unit_test(test_large_counts),
        cmocka_unit_test(test_counted_rules),   cmocka_unit_test(test_ambiguity),
        cmocka_unit_test(test_long_bounds),     cmocka_unit_test(test_real_vocabularies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
