/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of model files' JSON: what it accepts, what it refuses, where it says the fault is. */
#include "unit/support/support.h"

#include "base/json.h"

#include <math.h>
#include <string.h>

static void test_tree(void **state) {
    const char       *text = " {\"a\": [1, -2.5, true, null, \"x\\u00e9\\ud83d\\ude00\"], \"b\": {\"c\": "
                             "9223372036854775807}, \"b\": {\"c\": 1e2}} ";
    const json_value *v;
    arena             a;
    err               e;
    int64_t           i;
    (void)state;
    arena_init(&a, 0);
    assert_int_equal(json_parse(&v, text, strlen(text), &a, &e), 0);
    assert_int_equal(json_count(json_get(v, "a")), 5);
    assert_string_equal(json_cstr(json_at(json_get(v, "a"), 4)), "x\xC3\xA9\xF0\x9F\x98\x80");
    assert_true(json_int(json_get(json_get(v, "b"), "c"), &i)); /* the last key wins */
    assert_int_equal(i, 100);
    str out;
    str_init(&out);
    json_write(v, &out);
    assert_string_equal(
        str_cstr(&out),
        "{\"a\":[1,-2.5,true,null,\"x\xC3\xA9\xF0\x9F\x98\x80\"],\"b\":{\"c\":9223372036854775807},\"b\":{\"c\":100}}");
    str_deinit(&out);
    arena_deinit(&a);
}

static void test_python_numbers(void **state) {
    const char       *text = "[NaN, Infinity, -Infinity, 18446744073709551616, -9223372036854775808]";
    const json_value *v;
    arena             a;
    double            d;
    int64_t           i;
    (void)state;
    arena_init(&a, 0);
    assert_int_equal(json_parse(&v, text, strlen(text), &a, NULL), 0);
    assert_true(json_number(json_at(v, 0), &d) && isnan(d));
    assert_true(json_number(json_at(v, 1), &d) && isinf(d) && d > 0);
    assert_true(json_number(json_at(v, 2), &d) && isinf(d) && d < 0);
    assert_true(json_number(json_at(v, 3), &d) && d == 18446744073709551616.0);
    assert_true(json_int(json_at(v, 4), &i) && i == INT64_MIN);
    arena_deinit(&a);
}

static void test_refusals(void **state) {
    static const char *const bad[] = { "",      " ",    "{",        "[",         "[1",
                                       "[1,",   "[1,]", "{\"a\"}",  "{\"a\":}",  "{\"a\":1,}",
                                       "{1:2}", "01",   "1.",       "1e",        "-",
                                       "tru",   "\"",   "\"\\",     "\"\\u12",   "\"\\x\"",
                                       "[1 2]", "1 2",  "\"\x01\"", "\"\xff\"",  "\"\xed\xa0\x80\"",
                                       "nul",   "+1",   "'a'",      "{\"a\" 1}", "]" };
    (void)state;
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        const json_value *v;
        arena             a;
        err               e = { 0 };
        arena_init(&a, 0);
        assert_int_equal(json_parse(&v, bad[k], strlen(bad[k]), &a, &e), ERR_FORMAT);
        assert_non_null(strstr(e.msg, "line 1"));
        arena_deinit(&a);
    }
}

static void test_limits(void **state) {
    char              deep[1000];
    const json_value *v;
    arena             a;
    err               e;
    (void)state;
    memset(deep, '[', sizeof deep);
    arena_init(&a, 0);
    assert_int_equal(json_parse(&v, deep, sizeof deep, &a, &e), ERR_LIMIT);
    arena_deinit(&a);
    arena_init(&a, 1000);
    memset(deep, ' ', sizeof deep);
    for (size_t i = 0; i < sizeof deep - 2; i += 2) memcpy(deep + i, i ? ",1" : "[1", 2);
    deep[sizeof deep - 1] = ']';
    assert_int_equal(json_parse(&v, deep, sizeof deep, &a, &e), ERR_LIMIT);
    arena_deinit(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tree),
        cmocka_unit_test(test_python_numbers),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
