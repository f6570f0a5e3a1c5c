/* SPDX-License-Identifier: Apache-2.0 */
/* Stop strings: found across every split of the text, never shown, and nothing else held back for good. */
#include "unit/support/support.h"

#include "sampling/stop.h"

#include <string.h>

static int run_split(const char *const *stops, size_t n, const char *text, size_t a, size_t b, str *out) {
    stop_matcher *m;
    size_t        lengths[8], len = strlen(text);
    for (size_t i = 0; i < n; i++) lengths[i] = strlen(stops[i]);
    assert_int_equal(stop_open(&m, stops, lengths, n, NULL), 0);
    str_clear(out);
    int hit = stop_feed(m, text, a, out);
    if (hit < 0) hit = stop_feed(m, text + a, b - a, out);
    if (hit < 0) hit = stop_feed(m, text + b, len - b, out);
    stop_finish(m, out);
    stop_free(m);
    return hit;
}

static void test_every_split(void **state) {
    static const struct {
        const char *stops[3];
        size_t      n;
        const char *text, *want;
        int         hit;
    } rows[] = {
        { { "END" }, 1, "hello END world", "hello ", 0 },
        { { "aab" }, 1, "aaaab", "aa", 0 },
        { { "abc", "bcd" }, 2, "xabd", "xabd", -1 },
        { { "abcd", "bc" }, 2, "xabce", "xa", 1 },
        { { "abcd", "bc" }, 2, "xabcd", "x", 0 },
        { { "\n\n", "User:" }, 2, "a\nb\nUser: c", "a\nb\n", 1 },
        { { "###" }, 1, "ends with ##", "ends with ##", -1 },
        { { "x" }, 1, "", "", -1 },
    };
    str out;
    (void)state;
    str_init(&out);
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        size_t len = strlen(rows[k].text);
        for (size_t a = 0; a <= len; a++) {
            for (size_t b = a; b <= len; b++) {
                int hit = run_split(rows[k].stops, rows[k].n, rows[k].text, a, b, &out);
                /* "abcd" against "bc": fed as "xabc" the shorter one is complete first and may win only if it begins
                 * first; here the longer begins first, so the matcher has to wait for it. */
                assert_int_equal(hit, rows[k].hit);
                assert_string_equal(str_cstr(&out), rows[k].want);
            }
        }
    }
    str_deinit(&out);
}

static void test_refuses_empty(void **state) {
    stop_matcher *m;
    const char   *strings[] = { "a", "" };
    size_t        lengths[] = { 1, 0 };
    err           e;
    (void)state;
    assert_int_equal(stop_open(&m, strings, lengths, 2, &e), ERR_ARG);
    assert_string_equal(e.msg, "stop: string 2 is empty");
    assert_int_equal(stop_open(&m, NULL, NULL, 0, &e), 0);
    str out;
    str_init(&out);
    assert_int_equal(stop_feed(m, "abc", 3, &out), -1);
    assert_string_equal(str_cstr(&out), "abc");
    str_deinit(&out);
    stop_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_every_split), cmocka_unit_test(test_refuses_empty) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
