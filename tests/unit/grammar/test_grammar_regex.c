/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns: PCRE2 is the reference for random patterns on random texts; what ECMA-262 says else, by hand. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "unit/support/support.h"

#include "base/str.h"
#include "grammar/ir.h"

#include <pcre2.h>
#include <string.h>

static uint64_t seed = 20240611;

static unsigned pick(unsigned n) { return (unsigned)(test_random(&seed) % n); }

static const char *const letters[] = { "a", "b", "c", "é", "€", "😀", "x" };

static void random_atom(str *out) {
    static const char *const atoms[] = { ".",        "[a-c]", "[^a]",   "\\w",   "\\d",   "[^\\w]", "[é-€]", "\\u0061",
                                         "[\\s\\S]", "[b-]",  "[\\-a]", "\\x62", "[^é😀]", "\\D",    "\\.",   "[.x]" };
    if (pick(3))
        str_puts(out, letters[pick(7)]);
    else
        str_puts(out, atoms[pick(sizeof atoms / sizeof *atoms)]);
}

/* asserts: lookaheads and anchors may occur here. */
static void random_pattern(str *out, int depth, bool asserts) {
    unsigned n = 1 + pick(4);
    for (unsigned i = 0; i < n; i++) {
        bool group = depth > 0 && pick(3) == 0;
        if (asserts && pick(12) == 0) str_puts(out, pick(2) ? "^" : "$");
        if (asserts && depth > 0 && pick(8) == 0) {
            str_puts(out, pick(2) ? "(?=" : "(?!");
            random_pattern(out, depth - 1, true);
            str_puts(out, ")");
        }
        if (group) {
            bool     inner = asserts && pick(2);
            unsigned k = 1 + pick(3);
            str_puts(out, pick(2) ? "(" : "(?:");
            for (unsigned j = 0; j < k; j++) {
                if (j) str_puts(out, "|");
                random_pattern(out, depth - 1, inner);
            }
            str_puts(out, ")");
            if (inner) {
                if (pick(4) == 0) str_puts(out, "?");
                continue;
            }
        } else {
            random_atom(out);
        }
        switch (pick(10)) {
        case 0: str_puts(out, "*"); break;
        case 1: str_puts(out, "+"); break;
        case 2: str_puts(out, "?"); break;
        case 3: str_puts(out, "{2}"); break;
        case 4: str_puts(out, "{1,3}"); break;
        case 5: str_puts(out, "{0,2}?"); break;
        case 6: str_puts(out, "{2,}"); break;
        default: break;
        }
    }
}

/* PCRE2 writes \u0061 as \x{61}. */
static void pcre_spelling(const char *from, str *out) {
    for (; *from; from++) {
        if (strncmp(from, "\\u0061", 6) == 0) {
            str_puts(out, "\\x{61}");
            from += 5;
        } else {
            str_push(out, *from);
        }
    }
}

static void compare(int rounds, bool asserts, bool search) {
    size_t               compared = 0, matched = 0;
    pcre2_match_context *mc = pcre2_match_context_create(NULL);
    pcre2_set_match_limit(mc, 50000); /* PCRE2 backtracks; where that takes too long it gives no answer */
    for (int round = 0; round < rounds; round++) {
        str               ours, theirs;
        ir               *g;
        ir_rx             a;
        err               e = { 0 };
        int               code;
        PCRE2_SIZE        at;
        pcre2_code       *re;
        pcre2_match_data *md;
        str_init(&ours);
        str_init(&theirs);
        random_pattern(&ours, 3, asserts);
        str_puts(&theirs, search ? "(?:" : "\\A(?:");
        pcre_spelling(str_cstr(&ours), &theirs);
        str_puts(&theirs, search ? ")" : ")\\z");
        re = pcre2_compile((PCRE2_SPTR)str_cstr(&theirs), theirs.len, PCRE2_UTF | PCRE2_DOLLAR_ENDONLY, &code, &at,
                           NULL);
        assert_non_null(re);
        md = pcre2_match_data_create_from_pattern(re, NULL);
        assert_int_equal(ir_open(&g, &e), 0);
        if (ir_rx_parse(g, str_cstr(&ours), ours.len, search ? IR_RX_SEARCH : 0, &a, &e) < 0)
            fail_msg("%s: %s", str_cstr(&ours), e.msg);
        for (int t = 0; t < 30; t++) {
            str      text;
            unsigned n = pick(t < 20 ? 5 : 8);
            int      rc;
            bool     ok;
            str_init(&text);
            for (unsigned i = 0; i < n; i++) str_puts(&text, letters[pick(pick(2) ? 3 : 7)]);
            rc = pcre2_match(re, (PCRE2_SPTR)str_cstr(&text), text.len, 0, 0, md, mc);
            ok = ir_rx_matches(g, a, str_cstr(&text), text.len);
            if (rc >= 0 || rc == PCRE2_ERROR_NOMATCH) {
                if ((rc >= 0) != ok)
                    fail_msg("pattern %s on '%s': PCRE2 says %d, we say %d", str_cstr(&ours), str_cstr(&text), rc >= 0,
                             ok);
                compared++;
                matched += ok;
            }
            str_deinit(&text);
        }
        assert_int_equal(ir_error(g, &e), 0);
        ir_free(g);
        pcre2_match_data_free(md);
        pcre2_code_free(re);
        str_deinit(&ours);
        str_deinit(&theirs);
    }
    pcre2_match_context_free(mc);
    assert_true(compared > (size_t)rounds * 20);
    assert_true(matched > compared / 50); /* the texts are not all hopeless */
}

static void test_full(void **state) {
    (void)state;
    compare(400, false, false);
}

static void test_search(void **state) {
    (void)state;
    compare(250, false, true);
}

static void test_assertions(void **state) {
    (void)state;
    compare(300, true, false);
    compare(300, true, true);
}

static void test_rules(void **state) {
    static const struct {
        const char *pattern, *text;
        bool        search, match;
    } cases[] = {
        { "^a", "ab", true, true },
        { "^a", "ba", true, false },
        { "a$", "ba", true, true },
        { "^$", "", true, true },
        { "^$", "a", true, false },
        { "", "anything", true, true },
        { "^(?!foo).*$", "foobar", true, false },
        { "^(?!foo).*$", "fobar", true, true },
        { "^(?=.*[A-Z])(?=.*\\d).{4,}$", "abC1", true, true },
        { "^(?=.*[A-Z])(?=.*\\d).{4,}$", "abcd1", true, false },
        { "^.*(?<!-)$", "ab-", true, false },
        { "^.*(?<!-)$", "ab", true, true },
        { "(?<=a)b", "ab", true, true },
        { "(?<=a)b", "bb", true, false },
        { "^[\\w.-]+@[\\w-]+\\.\\w{2,}$", "me@host.org", true, true },
        { "^\\p{Lu}\\p{L}*$", "Élan", true, true },
        { "^\\p{Lu}\\p{L}*$", "élan", true, false },
        { "^\\s$", "\xC2\xA0", true, true },
        { "^.$", "\xE2\x80\xA8", true, false },
        { "^\\u{1F600}$", "😀", true, true },
        { "^\\uD83D\\uDE00$", "😀", true, true },
        { "^[^]$", "\n", true, true },
        { "[]", "a", true, false },
        { "^a{,3}$", "a{,3}", true, true },
        { "^x{$", "x{", true, true },
        { "^\\/\\-\\@$", "/-@", true, true },
        { "^(?<year>\\d{4})-\\d\\d$", "2024-05", true, true },
        { "^\\cA\\0$", "\x01", true, false },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        err   e = { 0 };
        ir   *g;
        ir_rx a;
        assert_int_equal(ir_open(&g, &e), 0);
        if (ir_rx_parse(g, cases[i].pattern, strlen(cases[i].pattern), cases[i].search ? IR_RX_SEARCH : 0, &a, &e) < 0)
            fail_msg("%s: %s", cases[i].pattern, e.msg);
        if (ir_rx_matches(g, a, cases[i].text, strlen(cases[i].text)) != cases[i].match)
            fail_msg("%s on '%s' should be %d", cases[i].pattern, cases[i].text, cases[i].match);
        ir_free(g);
    }
}

static void test_refusals(void **state) {
    static const struct {
        const char *pattern;
        int         code;
        const char *says;
    } cases[] = {
        { "\\bfoo", ERR_UNSUPPORTED, "word boundary" },
        { "(a)\\1", ERR_UNSUPPORTED, "back reference" },
        { "(?<n>a)\\k<n>", ERR_UNSUPPORTED, "back reference" },
        { "(?i)a", ERR_UNSUPPORTED, "(?i" },
        { "(?:(?!foo).)*x", ERR_UNSUPPORTED, "repeated group" },
        { "(a", ERR_FORMAT, "is not closed" },
        { "a)", ERR_FORMAT, "without" },
        { "[a", ERR_FORMAT, "is not closed" },
        { "*a", ERR_FORMAT, "repeat" },
        { "a{3,2}", ERR_FORMAT, "order" },
        { "[z-a]", ERR_FORMAT, "order" },
        { "a\\", ERR_FORMAT, "backslash" },
        { "\\p{Script=Greek}", ERR_UNSUPPORTED, "Script=Greek" },
        { "\\Z", ERR_UNSUPPORTED, "\\Z" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        err   e = { 0 };
        ir   *g;
        ir_rx a;
        assert_int_equal(ir_open(&g, &e), 0);
        assert_int_equal(ir_rx_parse(g, cases[i].pattern, strlen(cases[i].pattern), IR_RX_SEARCH, &a, &e),
                         cases[i].code);
        if (!strstr(e.msg, cases[i].says)) fail_msg("%s: %s", cases[i].pattern, e.msg);
        assert_int_equal(ir_error(g, &e), 0); /* a refused pattern leaves the ir usable */
        ir_free(g);
    }
}

/* Nothing that is written in a few bytes takes long or much memory. */
static void test_catastrophic(void **state) {
    static const char *const patterns[] = { "^(a+)+$",
                                            "^(a|aa)*$",
                                            "^(a{1,1000000}){1,1000000}$",
                                            "^(a?){1000}a{1000}$",
                                            "^((a*)*)*$",
                                            "^.{1,1000000}$",
                                            "^(.*a){50}$",
                                            "(x+x+)+y",
                                            "^(?=.{1,1000000}$)(a|b)*$" };
    char                     text[200];
    (void)state;
    memset(text, 'a', sizeof text);
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        err   e = { 0 };
        ir   *g;
        ir_rx a;
        assert_int_equal(ir_open(&g, &e), 0);
        assert_int_equal(ir_rx_parse(g, patterns[i], strlen(patterns[i]), IR_RX_SEARCH, &a, &e), 0);
        ir_rx_matches(g, a, text, sizeof text);
        ir_free(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full),  cmocka_unit_test(test_search),   cmocka_unit_test(test_assertions),
        cmocka_unit_test(test_rules), cmocka_unit_test(test_refusals), cmocka_unit_test(test_catastrophic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
