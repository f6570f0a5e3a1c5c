/* SPDX-License-Identifier: Apache-2.0 */
/* JSON without its end: what it is so far as an object, and what its unfinished string says. */
#include "unit/support/support.h"

#include "base/json.h"
#include "chat/partial.h"

#include <string.h>

static void test_close(void **state) {
    static const struct {
        const char *text, *closed, *kept; /* kept: with strings; NULL: the same */
    } list[] = {
        { "", "{}", NULL },
        { "{", "{}", NULL },
        { "{\"", "{}", NULL },
        { "{\"city\"", "{}", NULL },
        { "{\"city\": ", "{}", NULL },
        { "{\"city\": \"", "{}", "{\"city\": \"\"}" },
        { "{\"city\": \"Par", "{}", "{\"city\": \"Par\"}" },
        { "{\"city\": \"Paris\"", "{\"city\": \"Paris\"}", NULL },
        { "{\"city\": \"Paris\", ", "{\"city\": \"Paris\"}", NULL },
        { "{\"city\": \"Paris\"}", "{\"city\": \"Paris\"}", NULL },
        { "{\"a\": 12", "{}", NULL },
        { "{\"a\": 12 ", "{\"a\": 12 }", NULL },
        { "{\"a\": [1, 2", "{\"a\": [1]}", NULL },
        { "{\"a\": 12, \"b", "{\"a\": 12}", NULL },
        { "{\"a\": 1.", "{}", NULL },
        { "{\"a\": -", "{}", NULL },
        { "{\"a\": 1e", "{}", NULL },
        { "{\"b\": 1, \"a\": 1.5e-", "{\"b\": 1}", NULL },
        { "{\"a\": tru", "{}", NULL },
        { "{\"a\": true", "{\"a\": true}", NULL },
        { "{\"a\": [1, [2, {\"b\": ", "{\"a\": [1, [2, {}]]}", NULL },
        { "{\"a\": [1, \"x", "{\"a\": [1]}", "{\"a\": [1, \"x\"]}" },
        { "{\"a\": \"x\\", "{}", "{\"a\": \"x\"}" },
        { "{\"a\": \"x\\u00", "{}", "{\"a\": \"x\"}" },
        { "{\"a\": \"x\\\\", "{}", "{\"a\": \"x\\\\\"}" },
        { "{\"a\": \"x\\ud83d", "{}", "{\"a\": \"x\"}" },
        { "{\"a\": \"x\\ud83d\\ude", "{}", "{\"a\": \"x\"}" },
        { "{\"a\": \"x\\\\ud83d", "{}", "{\"a\": \"x\\\\ud83d\"}" },
        { "{\"a\": \"x\\ud83d\\ude00", "{}", "{\"a\": \"x\\ud83d\\ude00\"}" },
        { "[1, 2", "{}", NULL },
        { "nonsense", "{}", NULL },
    };
    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        for (int keep = 0; keep < 2; keep++) {
            str got;
            str_init(&got);
            chat_json_close(view_of(list[i].text), keep, &got);
            assert_string_equal(str_cstr(&got), keep && list[i].kept ? list[i].kept : list[i].closed);
            str_deinit(&got);
        }
    }
}

/* Wherever a document is cut, it is an object, and its members are those of the whole one or their beginnings. */
static void test_every_cut(void **state) {
    static const char whole[] = "{\"a\": {\"b\": [1, 2.5e3, {\"c\": null, \"d\": \"x\\\"\\u00e9\\n\"}], \"e\": {}}, "
                                "\"f\": [], \"g\": [[-0, true], false], \"h\": \"\\ud83d\\ude00\"}";
    (void)state;
    for (size_t n = 0; n <= strlen(whole); n++) {
        for (int keep = 0; keep < 2; keep++) {
            const json_value *v;
            arena             a;
            str               got;
            str_init(&got);
            arena_init(&a, 0);
            chat_json_close((view){ whole, n }, keep, &got);
            if (json_parse(&v, str_cstr(&got), got.len, &a, NULL) < 0) fail_msg("%s", str_cstr(&got));
            assert_true(json_is(v, JSON_K_OBJECT));
            if (n == strlen(whole)) assert_string_equal(str_cstr(&got), whole);
            arena_deinit(&a);
            str_deinit(&got);
        }
    }
}

static void test_strings(void **state) {
    static const char *const list[][2] = {
        { "\"", "" },
        { "\"ab", "ab" },
        { "\"ab\"", "ab" },
        { "\"a\\n\\", "a\n" },
        { "\"a\\u00e9\\u0", "a\xc3\xa9" },
        { "\"\\ud83d", "" },
        { "\"\\ud83d\\ude00", "\xf0\x9f\x98\x80" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        str got;
        str_init(&got);
        chat_json_string_begun(view_of(list[i][0]), &got);
        assert_string_equal(str_cstr(&got), list[i][1]);
        str_deinit(&got);
    }
}

static void test_markers(void **state) {
    (void)state;
    assert_int_equal(chat_begun_marker(view_of("abc</pa"), "</parameter>", 3), 4);
    assert_int_equal(chat_begun_marker(view_of("abc</"), "</parameter>", 3), 0);
    assert_int_equal(chat_begun_marker(view_of("abc</"), "</parameter>", 1), 2);
    assert_int_equal(chat_begun_marker(view_of("</p"), "</parameter>", 1), 3);
    assert_int_equal(chat_begun_marker(view_of("abc"), "</parameter>", 1), 0);
    assert_int_equal(chat_begun_marker(view_of(""), "</parameter>", 1), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_close),
        cmocka_unit_test(test_every_cut),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_markers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
