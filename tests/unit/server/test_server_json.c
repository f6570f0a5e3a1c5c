/* SPDX-License-Identifier: Apache-2.0 */
/* Request bodies: limits, paths of wrong fields; JSON answers; keys and their rates. */
#include "unit/support/support.h"

#include "server/http/auth.h"
#include "server/http/json_in.h"
#include "server/http/json_out.h"
#include "server/ops/metrics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int parse(json_doc *d, const char *text) {
    err e = { 0 };
    int rc = json_doc_parse(d, text, strlen(text), &e);
    if (rc < 0) assert_true(e.msg[0] != '\0');
    return rc;
}

static void test_documents(void **state) {
    static const char *const bad[] = { "",
                                       "[]",
                                       "7",
                                       "{",
                                       "{}{}",
                                       "{\"a\":}",
                                       "{\"a\":NaN}",
                                       "{'a':1}",
                                       "{\"a\":01}",
                                       "{\"a\":\"\x01\"}",
                                       "{\"a\":\"\xff\"}",
                                       "{\"a\":\"\\ud800\"}",
                                       "{\"a\\u0000\":1}",
                                       "{\"a\":99999999999999999999}" };
    json_doc                 d;
    str                      deep;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (parse(&d, bad[i]) == 0) fail_msg("accepted: %s", bad[i]);
        assert_null(d.root);
    }
    str_init(&deep);
    for (int i = 0; i < JSON_IN_MAX_DEPTH; i++) str_puts(&deep, "{\"a\":");
    str_puts(&deep, "1");
    for (int i = 0; i < JSON_IN_MAX_DEPTH; i++) str_push(&deep, '}');
    assert_int_equal(parse(&d, str_cstr(&deep)), 0);
    json_doc_deinit(&d);
    str_clear(&deep);
    for (int i = 0; i <= JSON_IN_MAX_DEPTH; i++) str_puts(&deep, "{\"a\":");
    assert_int_equal(parse(&d, str_cstr(&deep)), ERR_LIMIT);
    str_clear(&deep);
    str_puts(&deep, "{\"a\":[0");
    for (int i = 0; i < JSON_IN_MAX_VALUES; i++) str_puts(&deep, ",0");
    str_puts(&deep, "]}");
    assert_int_equal(parse(&d, str_cstr(&deep)), ERR_LIMIT);
    /* Brackets and commas inside of strings cost nothing. */
    str_clear(&deep);
    str_puts(&deep, "{\"a\":\"\\\"");
    for (int i = 0; i < 1000; i++) str_puts(&deep, "[{,:");
    str_puts(&deep, "\"}");
    assert_int_equal(parse(&d, str_cstr(&deep)), 0);
    json_doc_deinit(&d);
    str_deinit(&deep);
}

static void test_fields(void **state) {
    json_doc d;
    reader   r;
    view     text;
    bool     flag = false;
    int64_t  n = 0;
    double   real = 0;
    node     list;
    (void)state;
    assert_int_equal(parse(&d, "{\"s\":\"x\",\"b\":true,\"n\":5,\"f\":2.0,\"r\":0.5,\"null\":null,\"a\":[1,2]}"), 0);
    node root = node_root(&d);
    reader_init(&r);
    assert_true(read_string(&r, &root, "s", &text) && view_eq_c(text, "x"));
    assert_true(read_bool(&r, &root, "b", &flag) && flag);
    assert_true(read_int(&r, &root, "n", 0, 10, &n) && n == 5);
    assert_true(read_int(&r, &root, "f", 0, 10, &n) && n == 2); /* 2.0 is an integer */
    assert_true(read_real(&r, &root, "r", 0, 1, &real) && real == 0.5);
    assert_true(read_real(&r, &root, "n", 0, 10, &real) && real == 5);
    assert_true(read_array(&r, &root, "a", 2, &list) && node_count(&list) == 2);
    assert_false(read_string(&r, &root, "null", &text));
    assert_false(read_string(&r, &root, "absent", &text));
    assert_false(r.failed);
    assert_false(read_int(&r, &root, "r", 0, 10, &n));
    assert_string_equal(r.message, "r: expected an integer, got a number");
    assert_string_equal(r.param, "r");
    assert_false(read_int(&r, &root, "n", 6, 10, &n)); /* the first mistake stays */
    assert_string_equal(r.param, "r");
    json_doc_deinit(&d);
}

static void test_paths(void **state) {
    static const char *const roles[] = { "user", "tool", NULL };
    json_doc                 d;
    reader                   r;
    view                     text;
    int                      role;
    node                     list;
    (void)state;
    assert_int_equal(parse(&d, "{\"messages\":[{},{},{\"role\":\"x\",\"content\":[{\"type\":7}]}]}"), 0);
    node root = node_root(&d);
    reader_init(&r);
    assert_true(need_array(&r, &root, "messages", 10, &list));
    node message = node_at(&list, 2), content = node_get(&message, "content"), part = node_at(&content, 0);
    assert_false(need_string(&r, &part, "type", &text));
    assert_string_equal(r.message, "messages[2].content[0].type: expected a string, got an integer");
    assert_string_equal(r.param, "messages[2].content[0].type");
    reader_init(&r);
    assert_false(need_string(&r, &part, "text", &text));
    assert_string_equal(r.message, "messages[2].content[0].text: a string is required");
    reader_init(&r);
    assert_false(read_choice(&r, &message, "role", roles, &role));
    assert_string_equal(r.message, "messages[2].role: expected one of user, tool; got 'x'");
    reader_init(&r);
    assert_false(need_array(&r, &root, "messages", 2, &list));
    assert_string_equal(r.message, "messages: has 3 items; at most 2 are allowed");
    json_doc_deinit(&d);
}

static void test_writer(void **state) {
    static const double values[] = { 0, 1, -1, 0.1, 1e-30, 123456.789, 3.4e38 };
    str                 b;
    (void)state;
    str_init(&b);
    jw w = jw_of(&b);
    jw_open(&w, '{');
    jw_put_cstr(&w, "a", "q\"\n");
    jw_put_null(&w, "n");
    jw_put_cstr(&w, "none", NULL);
    jw_key(&w, "l");
    jw_open(&w, '[');
    jw_int(&w, -5);
    jw_bool(&w, true);
    jw_open(&w, '{');
    jw_close(&w, '}');
    jw_raw(&w, view_of("[1]"));
    jw_close(&w, ']');
    jw_put_real(&w, "inf", INFINITY);
    jw_put_text(&w, "bad", (view){ "\xff", 1 });
    jw_close(&w, '}');
    assert_string_equal(
        str_cstr(&b),
        "{\"a\":\"q\\\"\\n\",\"n\":null,\"none\":null,\"l\":[-5,true,{},[1]],\"inf\":null,\"bad\":\"\xef\xbf\xbd\"}");
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        str_clear(&b);
        w = jw_of(&b);
        jw_real(&w, (float)values[i]);
        assert_true((float)strtod(str_cstr(&b), NULL) == (float)values[i]);
    }
    str_deinit(&b);
}

static void test_keys(void **state) {
    auth  *a;
    err    e = { 0 };
    double wait;
    (void)state;
    assert_int_equal(auth_open(&a, &e), 0);
    assert_false(auth_required(a, false));
    auth_set_limits(a, 0, 0);
    assert_int_equal(
        auth_add_lines(
            a, "# keys, of ours\n\none:key-number-1\nkey-number-2 rpm=60\r\n two:key-number-3 rpm=1 tpm=10 # slow\n",
            "f", &e),
        0);
    auth_require(a, true);
    assert_true(auth_required(a, false));
    assert_false(auth_required(a, true));
    assert_null(auth_find(a, view_of("key-number-")));
    assert_null(auth_find(a, view_of("key-number-1x")));
    assert_null(auth_find(a, view_of("")));
    assert_string_equal(auth_key_name(auth_find(a, view_of("key-number-1"))), "one");
    assert_string_equal(auth_key_name(auth_find(a, view_of("key-number-2"))), "key2");
    static const char *const bad[] = { "x:short", "x:key-number-9 rpm=0", "x:key-number-9 rpm=abc",
                                       "x:key-number-9 foo=1", "x:key-number-9 rpm=inf" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) assert_true(auth_add_lines(a, bad[i], "f", &e) < 0);

    auth_key *k = auth_find(a, view_of("key-number-3"));
    assert_true(auth_admit(k, 1000000, &wait));
    assert_false(auth_admit(k, 1000000, &wait));
    assert_true(wait > 59 && wait <= 60);
    assert_false(auth_admit(k, 1000000 + 30 * 1000000LL, &wait));
    assert_true(wait > 29 && wait <= 31);
    assert_true(auth_admit(k, 1000000 + 61 * 1000000LL, &wait));
    auth_charge(k, 1000000 + 61 * 1000000LL, 30); /* three minutes of tokens */
    assert_false(auth_admit(k, 1000000 + 122 * 1000000LL, &wait));
    assert_true(wait > 55 && wait < 70);

    auth *b;
    assert_int_equal(auth_open(&b, &e), 0);
    assert_int_equal(auth_add_lines(b, "two:key-number-3 rpm=1 tpm=10", "f", &e), 0);
    auth_inherit(b, a); /* a reload forgives nothing */
    assert_false(auth_admit(auth_find(b, view_of("key-number-3")), 1000000 + 122 * 1000000LL, &wait));
    auth_free(a);
    auth_free(b);
}

static void test_token_file(void **state) {
    char       *dir = test_temp_dir();
    char        path[512];
    str         first, second;
    err         e = { 0 };
    struct stat st;
    (void)state;
    snprintf(path, sizeof path, "%s/token", dir);
    str_init(&first);
    str_init(&second);
    assert_int_equal(auth_token_file(path, &first, &e), 0);
    assert_true(first.len >= 40);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(auth_token_file(path, &second, &e), 0);
    assert_string_equal(str_cstr(&first), str_cstr(&second));
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(auth_token_file(path, &second, &e), ERR_ARG);
    str_deinit(&first);
    str_deinit(&second);
    test_temp_dir_remove(dir);
}

static void test_histogram(void **state) {
    histogram h = { 0 };
    str       b;
    (void)state;
    for (int i = 0; i < 98; i++) metrics_observe(&h, 0.004);
    metrics_observe(&h, 0.3);
    metrics_observe(&h, 1e6);
    assert_true(metrics_quantile(&h, .5) == .005);
    assert_true(metrics_quantile(&h, .99) == .5);
    str_init(&b);
    metrics_put_histogram(&b, "x", "help", &h);
    assert_non_null(strstr(str_cstr(&b), "# TYPE hearth_x histogram\n"));
    assert_non_null(strstr(str_cstr(&b), "hearth_x_bucket{le=\"0.0025\"} 0\n"));
    assert_non_null(strstr(str_cstr(&b), "hearth_x_bucket{le=\"0.005\"} 98\n"));
    assert_non_null(strstr(str_cstr(&b), "hearth_x_bucket{le=\"1800\"} 99\n"));
    assert_non_null(strstr(str_cstr(&b), "hearth_x_bucket{le=\"+Inf\"} 100\n"));
    assert_non_null(strstr(str_cstr(&b), "hearth_x_count 100\n"));
    str_deinit(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_documents), cmocka_unit_test(test_fields),
                                        cmocka_unit_test(test_paths),     cmocka_unit_test(test_writer),
                                        cmocka_unit_test(test_keys),      cmocka_unit_test(test_token_file),
                                        cmocka_unit_test(test_histogram) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
