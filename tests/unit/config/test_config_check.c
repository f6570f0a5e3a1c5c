/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hearth config check on tests/config/bad: every file says in its head what must be said about it.
 *
 *     # expect: 3:9: kv_cache.type: ...     a line of the output, and there are no others
 *     # expect-some: anchors ...            somewhere in the output, which may have more
 */
#include "unit/support/support.h"

#include "base/file.h"
#include "base/str.h"
#include "unit/support/program.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BAD HEARTH_SOURCE_DIR "/tests/config/bad"

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static size_t list_files(char **out, size_t cap) {
    DIR   *d = opendir(BAD);
    size_t n = 0;
    assert_non_null(d);
    for (struct dirent *f; (f = readdir(d)) && n < cap;)
        if (f->d_name[0] != '.') out[n++] = strdup(f->d_name);
    closedir(d);
    qsort(out, n, sizeof *out, by_name);
    return n;
}

/* The lines about one file, without its name. */
static size_t lines_about(const char *output, const char *name, const char **out, size_t cap) {
    size_t n = 0, len;
    for (const char *p = output; *p && n < cap; p += len + (p[len] == '\n')) {
        const char *at = strstr(p, name);
        len = strcspn(p, "\n");
        if (at && at < p + len) out[n++] = at + strlen(name) + 1;
    }
    return n;
}

static bool line_is(const char *line, const char *want, size_t n) {
    return strncmp(line, want, n) == 0 && (line[n] == '\n' || line[n] == '\0');
}

static void check_one(const char *name, const char *output) {
    const char *got[64];
    size_t      n_got = lines_about(output, name, got, 64), n_text, wanted = 0;
    bool        some = false;
    str         path;
    char       *text;
    str_init(&path);
    str_printf(&path, "%s/%s", BAD, name);
    assert_int_equal(file_read(&text, &n_text, str_cstr(&path), 1 << 20, NULL), 0);
    for (char *p = text; strncmp(p, "# expect", 8) == 0; p += strcspn(p, "\n") + 1) {
        bool        loose = strncmp(p, "# expect-some: ", 15) == 0, found = false;
        const char *want = p + (loose ? 15 : 10);
        size_t      len = strcspn(want, "\n");
        some = some || loose;
        wanted++;
        for (size_t i = 0; i < n_got; i++) {
            if (loose) {
                const char *at = memmem(got[i], strcspn(got[i], "\n"), want, len);
                found = found || at;
            } else {
                found = found || line_is(got[i], want, len);
            }
        }
        if (!found) fail_msg("%s: no line \"%.*s\" in:\n%s", name, (int)len, want, n_got ? got[0] : "(nothing)");
    }
    if (wanted == 0) fail_msg("%s says nothing about what is expected", name);
    if (!some && n_got != wanted) fail_msg("%s: %zu lines instead of %zu", name, n_got, wanted);
    free(text);
    str_deinit(&path);
}

static void test_bad_files(void **state) {
    char  *names[256], *output;
    size_t n = list_files(names, 256);
    str    command;
    (void)state;
    assert_true(n >= 30);
    str_init(&command);
    str_puts(&command, "config check");
    for (size_t i = 0; i < n; i++) str_printf(&command, " '%s/%s'", BAD, names[i]);
    str_puts(&command, " 2>&1");
    assert_int_equal(program_run("", str_cstr(&command), &output), 1);
    for (size_t i = 0; i < n; i++) {
        check_one(names[i], output);
        free(names[i]);
    }
    free(output);
    str_deinit(&command);
}

static void test_good_files(void **state) {
    char *dir = test_temp_dir(), *output;
    (void)state;
    setenv("XDG_CONFIG_HOME", dir, 1);
    assert_int_equal(program_run("", "config check '" HEARTH_SOURCE_DIR "/tests/config/good/all.yaml'", &output), 0);
    free(output);
    /* What init writes passes; what show prints does, too, and both mean the defaults. */
    assert_int_equal(program_run("", "config check", &output), 0);
    assert_non_null(strstr(output, "does not exist; the defaults apply"));
    free(output);
    assert_int_equal(program_run("", "config show >\"$XDG_CONFIG_HOME/shown.yaml\"", &output), 0);
    free(output);
    assert_int_equal(program_run("", "config init", &output), 0);
    free(output);
    program_fails("config init", 1, "already exists; replace it with --force");
    assert_int_equal(program_run("", "config init --force && \"$HEARTH_PROGRAM\" config init --model a/b:c", &output),
                     0);
    assert_non_null(strstr(output, "/models/a__b__c.yaml"));
    free(output);
    assert_int_equal(
        program_run("", "config check && \"$HEARTH_PROGRAM\" config check \"$XDG_CONFIG_HOME/shown.yaml\"", &output),
        0);
    assert_non_null(strstr(output, "server.yaml: ok"));
    assert_non_null(strstr(output, "a__b__c.yaml: ok"));
    free(output);
    assert_int_equal(program_run("", "config show | diff - \"$XDG_CONFIG_HOME/shown.yaml\"", &output), 0);
    free(output);
    /* Every comment that could be a value is one: uncommented, the file still passes and says the defaults. */
    assert_int_equal(
        program_run("sed -E 's/^( *)#([a-z_]+: .+)$/\\1\\2/' \"$XDG_CONFIG_HOME/hearth/server.yaml\" "
                    ">\"$XDG_CONFIG_HOME/on.yaml\";",
                    "config check \"$XDG_CONFIG_HOME/on.yaml\" && \"$HEARTH_PROGRAM\" config show --config "
                    "\"$XDG_CONFIG_HOME/on.yaml\" | diff - \"$XDG_CONFIG_HOME/shown.yaml\"",
                    &output),
        0);
    free(output);
    test_temp_dir_remove(dir);
}

static void test_huge(void **state) {
    char *dir = test_temp_dir(), *output;
    (void)state;
    setenv("XDG_CONFIG_HOME", dir, 1);
    assert_int_equal(program_run("yes '# nothing' | head -c 3000000 >\"$XDG_CONFIG_HOME/huge.yaml\";",
                                 "config check \"$XDG_CONFIG_HOME/huge.yaml\" 2>&1", &output),
                     1);
    assert_non_null(strstr(output, "1048577")); /* the limit */
    free(output);
    assert_int_equal(program_run("(echo transport:; yes '  a: 1' | head -n 200 | awk '{print \"  k\" NR \": 1\"}') "
                                 ">\"$XDG_CONFIG_HOME/many.yaml\";",
                                 "config check \"$XDG_CONFIG_HOME/many.yaml\" 2>&1", &output),
                     1);
    assert_non_null(strstr(output, "150 more problems are not shown"));
    free(output);
    program_fails("config check /nowhere/x.yaml", 1, "/nowhere/x.yaml: ");
    test_temp_dir_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_good_files),
        cmocka_unit_test(test_huge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
