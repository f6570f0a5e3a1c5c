/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions: builders, derivatives, JSON spellings, emptiness, limits. */
#include "unit/support/support.h"

#include "base/str.h"
#include "grammar/ir.h"

#include <stdio.h>
#include <string.h>

static bool m(ir *g, ir_rx a, const char *text) { return ir_rx_matches(g, a, text, strlen(text)); }

static void test_basic(void **state) {
    (void)state;
    err      e = { 0 };
    ir      *g;
    ir_range az = { 'a', 'z' };
    assert_int_equal(ir_open(&g, &e), 0);
    ir_rx word = ir_rx_repeat(g, ir_rx_class(g, &az, 1, false), 1, -1);
    assert_true(m(g, word, "abc"));
    assert_false(m(g, word, ""));
    assert_false(m(g, word, "aBc"));
    ir_rx not_word = ir_rx_not(g, word);
    assert_true(m(g, not_word, ""));
    assert_true(m(g, not_word, "1"));
    assert_true(m(g, not_word, "abcé"));
    assert_false(m(g, not_word, "abc\xC3"));
    assert_false(m(g, not_word, "zz"));
    ir_rx five = ir_rx_and(g, word, ir_rx_repeat(g, ir_rx_any(g), 5, 5));
    assert_true(m(g, five, "abcde"));
    assert_false(m(g, five, "abcd"));
    assert_false(ir_rx_is_empty(g, five));
    assert_true(ir_rx_is_empty(g, ir_rx_and(g, word, not_word)));
    ir_rx big = ir_rx_repeat(g, ir_rx_text(g, "ab"), 3, 1000000);
    assert_true(m(g, big, "ababab"));
    assert_false(m(g, big, "abab"));
    assert_int_equal(ir_rx_cat(g, ir_rx_text(g, "ab"), ir_rx_text(g, "cd")), ir_rx_text(g, "abcd"));
    assert_int_equal(ir_error(g, &e), 0);
    ir_free(g);
}

static void test_classes(void **state) {
    (void)state;
    err      e = { 0 };
    ir      *g;
    ir_range greek = { 0x370, 0x3FF }, more[3] = { { 0x7F, 0x801 }, { 0xD000, 0xE001 }, { 0xFFFF, 0x10001 } };
    char     text[8];
    assert_int_equal(ir_open(&g, &e), 0);
    ir_rx in = ir_rx_class(g, &greek, 1, false), out = ir_rx_class(g, &greek, 1, true),
          mixed = ir_rx_class(g, more, 3, false);
    for (unsigned c = 0; c < 0x110000; c += c < 0x1000 ? 1 : 13) {
        str one;
        if (c >= 0xD800 && c <= 0xDFFF) continue;
        str_init(&one);
        str_put_utf8(&one, c);
        memcpy(text, str_cstr(&one), one.len);
        bool is_greek = c >= 0x370 && c <= 0x3FF;
        bool is_mixed = (c >= 0x7F && c <= 0x801) || (c >= 0xD000 && c <= 0xE001) || (c >= 0xFFFF && c <= 0x10001);
        assert_int_equal(ir_rx_matches(g, in, text, one.len), is_greek);
        assert_int_equal(ir_rx_matches(g, out, text, one.len), !is_greek);
        assert_int_equal(ir_rx_matches(g, mixed, text, one.len), is_mixed);
        assert_true(ir_rx_matches(g, ir_rx_any(g), text, one.len));
        str_deinit(&one);
    }
    assert_false(ir_rx_matches(g, ir_rx_any(g), "\xED\xA0\x80", 3)); /* a surrogate */
    assert_false(ir_rx_matches(g, ir_rx_any(g), "\xC0\x80", 2));     /* overlong */
    assert_false(ir_rx_matches(g, ir_rx_any(g), "\xF4\x90\x80\x80", 4));
    ir_free(g);
}

static void test_json_string(void **state) {
    (void)state;
    err e = { 0 };
    ir *g;
    assert_int_equal(ir_open(&g, &e), 0);
    ir_rx s = ir_rx_json_string(g, ir_rx_text(g, "a\n\"é😀/"));
    assert_true(m(g, s, "\"a\\n\\\"é😀/\""));
    assert_true(m(g, s, "\"\\u0061\\u000A\\u0022\\u00e9\\uD83d\\ude00\\/\""));
    assert_false(m(g, s, "\"a\n\\\"é😀/\""));
    assert_false(m(g, s, "\"a\\n\\\"é\\uD83D/\""));
    assert_false(m(g, s, "\"a\\n\\\"é\\uDE00/\""));
    assert_false(m(g, s, "a\\n\\\"é😀/"));
    ir_rx all = ir_rx_json_string(g, ir_rx_all(g));
    assert_true(m(g, all, "\"\""));
    assert_true(m(g, all, "\"\\u0000\""));
    assert_false(m(g, all, "\"\\ud800\""));
    assert_false(m(g, all, "\"\\x\""));
    assert_false(m(g, all, "\"a\"b"));
    ir_rx key = ir_rx_json_string(g, ir_rx_not(g, ir_rx_alt(g, ir_rx_text(g, "foo"), ir_rx_text(g, "bar"))));
    assert_true(m(g, key, "\"fo\""));
    assert_true(m(g, key, "\"fooo\""));
    assert_false(m(g, key, "\"f\\u006fo\""));
    assert_false(m(g, key, "\"bar\""));
    assert_false(ir_rx_is_empty(g, key));
    ir_free(g);
}

/* Every character by every spelling, in texts of one free character, of many, and of a class with holes. */
static void test_json_escapes(void **state) {
    ir_range holes[] = { { 'a', 0x4FF }, { 0x3000, 0xD7FF }, { 0xF000, 0xFFFF }, { 0x1F000, 0x1F6FF } };
    err      e = { 0 };
    ir      *g;
    (void)state;
    assert_int_equal(ir_open(&g, &e), 0);
    ir_rx one = ir_rx_json_string(g, ir_rx_any(g)), many = ir_rx_json_string(g, ir_rx_repeat(g, ir_rx_any(g), 1, 40)),
          some = ir_rx_json_string(g, ir_rx_repeat(g, ir_rx_class(g, holes, 4, false), 0, 5));
    for (unsigned c = 0; c < 0x110000; c += c < 0x200 ? 1 : 37) {
        char text[32];
        bool surrogate = c >= 0xD800 && c <= 0xDFFF, in = false;
        for (int i = 0; i < 4; i++) in |= c >= holes[i].first && c <= holes[i].last;
        if (c < 0x10000)
            snprintf(text, sizeof text, c & 1 ? "\"\\u%04x\"" : "\"\\u%04X\"", c);
        else
            snprintf(text, sizeof text, "\"\\u%04x\\u%04X\"", 0xD800 + ((c - 0x10000) >> 10), 0xDC00 + (c & 0x3FF));
        assert_int_equal(m(g, one, text), !surrogate);
        assert_int_equal(m(g, many, text), !surrogate);
        assert_int_equal(m(g, some, text), in && !surrogate);
    }
    assert_false(m(g, many, "\"\\ud83d\\u0041\""));
    assert_false(m(g, many, "\"\\ud83dx\""));
    assert_int_equal(ir_error(g, &e), 0);
    ir_free(g);
}

static void test_limits(void **state) {
    (void)state;
    err e = { 0 };
    ir *g;
    assert_int_equal(ir_open(&g, &e), 0);
    assert_int_equal(ir_error(g, &e), 0);
    ir_rx_repeat(g, ir_rx_text(g, "a"), 0, (int64_t)1 << 40);
    assert_int_equal(ir_error(g, &e), ERR_LIMIT);
    ir_rx_text(g, "x");
    ir_seq(g, (ir_sym[]){ ir_rule(g, "a"), ir_terminal(g, 99) }, 2);
    assert_int_equal(ir_error(g, &e), ERR_LIMIT);
    ir_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_basic),        cmocka_unit_test(test_classes), cmocka_unit_test(test_json_string),
        cmocka_unit_test(test_json_escapes), cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
