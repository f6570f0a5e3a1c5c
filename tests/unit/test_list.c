/* SPDX-License-Identifier: Apache-2.0 */
/* hearth create, list, cp and rm, run as programs: a name for a file, and what can be done with it. */
#include "unit/support/support.h"

#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "unit/support/program.h"

#include <stdlib.h>
#include <string.h>

static void contains(const char *before, const char *arguments, const char *want) {
    char *got;
    assert_int_equal(program_run(before, arguments, &got), 0);
    if (!strstr(got, want)) fail_msg("no \"%s\" in: %s", want, got);
    free(got);
}

static void test_names(void **state) {
    char             *dir = test_temp_dir(), *text;
    str               home;
    arena             a;
    const json_value *v;
    int64_t           n;
    (void)state;
    setenv("XDG_DATA_HOME", dir, 1);
    str_init(&home);
    str_printf(&home, "create mine:small '%s/models/demo/demo.gguf'", HEARTH_SOURCE_DIR);
    program_prints("", "list --json", "[]\n"); /* looking makes nothing */
    contains("", str_cstr(&home), "mine:small is /");
    program_fails(str_cstr(&home), 1, "already");
    str_puts(&home, " --replace");
    contains("", str_cstr(&home), "mine:small is /");
    program_prints("", "run mine:small 'What is 12 plus 30?' --temp 0", "12 plus 30 is 42.\n");
    program_prints("", "cp mine:small other", "");
    program_prints("", "run other 'What is 12 plus 30?' --temp 0", "12 plus 30 is 42.\n");
    assert_int_equal(program_run("", "list --json", &text), 0);
    arena_init(&a, 0);
    assert_int_equal(json_parse(&v, text, strlen(text), &a, NULL), 0);
    assert_int_equal(json_count(v), 2);
    assert_string_equal(json_string(json_get(json_at(v, 0), "name")), "mine:small");
    assert_string_equal(json_string(json_get(json_at(v, 0), "family")), "llama");
    assert_string_equal(json_string(json_get(json_at(v, 0), "quant")), "Q8_0");
    assert_true(json_int(json_get(json_at(v, 0), "n_ctx"), &n) && n == 1024);
    assert_true(json_int(json_get(json_at(v, 0), "last_used"), &n) && n > 1700000000);
    arena_deinit(&a);
    free(text);
    contains("", "list", "mine:small");
    program_prints("", "rm other mine:small", "");
    program_prints("", "list --json", "[]\n");
    program_fails("run other x", 1, "there is no model 'other'");
    str_deinit(&home);
    test_temp_dir_remove(dir);
}

static void test_mistakes(void **state) {
    char *dir = test_temp_dir();
    (void)state;
    setenv("XDG_DATA_HOME", dir, 1);
    program_fails("create 'bad name' x", 2, "is no name");
    program_fails("create good /nowhere/x.gguf", 1, "/nowhere/x.gguf");
    program_fails("create good /dev/null", 1, "");
    program_fails("rm nobody", 1, "there is no model 'nobody'");
    program_fails("cp nobody x", 1, "there is no model 'nobody'");
    program_fails("list x", 2, "");
    test_temp_dir_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
