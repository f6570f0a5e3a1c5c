/* SPDX-License-Identifier: Apache-2.0 */
/* Paths as terminals type them: quoted, escaped, as URIs; texts follow the message, other files are refused. */
#include "cli/run/dragged.h"
#include "unit/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void write_file(const char *dir, const char *name, const char *data, size_t bytes) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    fclose(f);
}

/* %s in the message is the directory. */
static void becomes(const char *dir, const char *format, int files, const char *added) {
    char text[1400];
    str  out;
    int  n = -1;
    err  e = { 0 };
    snprintf(text, sizeof text, format, dir, dir);
    str_init(&out);
    if (dragged_add(text, &out, &n, &e) < 0) fail_msg("%s", e.msg);
    assert_int_equal(n, files);
    assert_memory_equal(str_cstr(&out), text, strlen(text));
    assert_string_equal(str_cstr(&out) + strlen(text), added);
    str_deinit(&out);
}

static void refused(const char *dir, const char *format, const char *why) {
    char text[1400];
    str  out;
    int  n;
    err  e = { 0 };
    snprintf(text, sizeof text, format, dir);
    str_init(&out);
    assert_true(dragged_add(text, &out, &n, &e) < 0);
    if (!strstr(e.msg, why)) fail_msg("%s", e.msg);
    str_deinit(&out);
}

static void test_files(void **state) {
    static const char png[] = "\x89PNG\r\n\x1a\n\0\0";
    char             *dir = test_temp_dir(), text[700];
    (void)state;
    write_file(dir, "a.txt", "one\ntwo\n", 8);
    write_file(dir, "my notes.md", "x", 1);
    write_file(dir, "p.png", png, sizeof png - 1);
    becomes(dir, "sum up %s/a.txt please", 1, "\n\na.txt:\n```\none\ntwo\n```");
    becomes(dir, "'%s/my notes.md'", 1, "\n\nmy notes.md:\n```\nx\n```");
    becomes(dir, "\"%s/my notes.md\" and %s/a.txt", 2, "\n\nmy notes.md:\n```\nx\n```\n\na.txt:\n```\none\ntwo\n```");
    becomes(dir, "%s/my\\ notes.md", 1, "\n\nmy notes.md:\n```\nx\n```");
    becomes(dir, "file://%s/a.txt", 1, "\n\na.txt:\n```\none\ntwo\n```");
    becomes(dir, "%s/none.txt, a.txt, it's 3/4 \\", 0, "");
    becomes(dir, "%s", 0, ""); /* a directory */
    refused(dir, "what is on %s/p.png", "is not a text file");
    snprintf(text, sizeof text, "%s/a.txt ?", dir);
    assert_true(dragged_first(text));
    assert_false(dragged_first("/help"));
    assert_false(dragged_first(""));
    test_temp_dir_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_files) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
