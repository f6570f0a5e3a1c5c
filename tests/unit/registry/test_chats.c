/* SPDX-License-Identifier: Apache-2.0 */
/* Chats that pages keep: owners apart, versions that never come back, a limit, a file that stays. */
#include "registry/chats.h"
#include "unit/support/support.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { LIMIT = 4096 };

static char *folder, path[256];

static int setup(void **state) {
    (void)state;
    folder = test_temp_dir();
    snprintf(path, sizeof path, "%s/below/chats.db", folder);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    test_temp_dir_remove(folder);
    return 0;
}

static chats *open_ok(void) {
    chats *c = NULL;
    err    e = { 0 };
    if (chats_open(&c, path, LIMIT, &e) < 0) fail_msg("%s", e.msg);
    return c;
}

static int put(chats *c, const char *owner, const char *body, int64_t seen, int64_t *version) {
    chats_entry n = { .id = "one", .title = "T \"x\"", .updated = 7, .body = view_of(body), .seen = seen };
    err         e = { 0 };
    return chats_put(c, owner, &n, version, &e);
}

static void assert_body(chats *c, const char *owner, const char *want, int64_t version) {
    int64_t got = 0;
    err     e = { 0 };
    str     b;
    str_init(&b);
    assert_int_equal(chats_get(c, owner, "one", &b, &got, &e), 0);
    assert_string_equal(str_cstr(&b), want);
    assert_true(got == version);
    str_deinit(&b);
}

static void test_versions(void **state) {
    chats  *c = open_ok();
    int64_t first = 0, second = 0, other = 0, third = 0;
    err     e = { 0 };
    (void)state;
    assert_int_equal(put(c, "a", "{1}", 5, &first), ERR_BUSY); /* nothing is there that could have been seen */
    assert_int_equal(put(c, "a", "{1}", CHATS_NEW, &first), 0);
    assert_int_equal(put(c, "a", "{2}", CHATS_NEW, &second), ERR_BUSY);
    assert_int_equal(put(c, "a", "{2}", first, &second), 0);
    assert_true(second > first);
    assert_int_equal(put(c, "a", "{3}", first, &third), ERR_BUSY);
    assert_int_equal(put(c, "b", "{b}", CHATS_ANY, &other), 0);
    assert_body(c, "a", "{2}", second);
    chats_close(c);
    c = open_ok(); /* from the file */
    assert_body(c, "a", "{2}", second);
    assert_int_equal(chats_remove(c, "a", "one", &e), 0);
    assert_int_equal(chats_remove(c, "a", "one", &e), ERR_NOTFOUND);
    assert_int_equal(put(c, "a", "{4}", second, &third), ERR_BUSY);
    assert_int_equal(put(c, "a", "{4}", CHATS_NEW, &third), 0);
    assert_true(third > second);
    assert_body(c, "b", "{b}", other);
    chats_close(c);
}

static void test_list(void **state) {
    chats  *c = open_ok();
    int64_t version = 0;
    err     e = { 0 };
    str     b;
    char    want[160];
    (void)state;
    str_init(&b);
    assert_int_equal(chats_list(c, "nobody", &b, &e), 0);
    assert_string_equal(str_cstr(&b), "[]");
    str_clear(&b);
    assert_int_equal(put(c, "l", "{}", CHATS_ANY, &version), 0);
    snprintf(want, sizeof want, "[{\"id\":\"one\",\"title\":\"T \\\"x\\\"\",\"updated\":7,\"etag\":\"\\\"%lld\\\"\"}]",
             (long long)version);
    assert_int_equal(chats_list(c, "l", &b, &e), 0);
    assert_string_equal(str_cstr(&b), want);
    str_deinit(&b);
    chats_close(c);
}

static void test_limit(void **state) {
    chats      *c = open_ok();
    struct stat st;
    int64_t     version = 0, before = 0;
    char        big[LIMIT + 1];
    (void)state;
    memset(big, 'x', LIMIT);
    big[LIMIT] = '\0';
    assert_int_equal(put(c, "full", "{}", CHATS_ANY, &before), 0);
    assert_int_equal(put(c, "full", big, CHATS_ANY, &version), ERR_LIMIT);
    assert_body(c, "full", "{}", before); /* nothing is lost */
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    chats_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_limit),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
