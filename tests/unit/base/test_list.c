/* SPDX-License-Identifier: Apache-2.0 */
/* hearth create, list, cp and rm, run as programs: a name for a file, and what can be done with it. */
#include "unit/support/support.h"

#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "unit/support/model.h"
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
    contains("", str_cstr(&home), "mine:small now names /");
    program_fails(str_cstr(&home), 1, "already");
    str_puts(&home, " --replace");
    contains("", str_cstr(&home), "mine:small now names /");
    program_prints("", "run mine:small 'What is 12 plus 30?' --temp 0", "12 plus 30 is 42.\n");
    program_fails("run mien:small x", 1, "did you mean 'mine:small'?");
    program_prints("", "cp mine:small other", "");
    program_fails("cp mine:small other", 1, "already");
    program_prints("", "cp mine:small other --replace", "");
    program_prints("", "run other 'What is 12 plus 30?' --temp 0", "12 plus 30 is 42.\n");
    assert_int_equal(program_run("", "list --json", &text), 0);
    arena_init(&a, 0);
    assert_int_equal(json_parse(&v, text, strlen(text), &a, NULL), 0);
    assert_int_equal(json_count(v), 2);
    assert_string_equal(json_cstr(json_get(json_at(v, 0), "name")), "mine:small");
    assert_string_equal(json_cstr(json_get(json_at(v, 0), "family")), "llama");
    assert_string_equal(json_cstr(json_get(json_at(v, 0), "quant")), "Q8_0");
    assert_true(json_int(json_get(json_at(v, 0), "n_ctx"), &n) && n == 4096);
    assert_true(json_int(json_get(json_at(v, 0), "last_used"), &n) && n > 1700000000);
    arena_deinit(&a);
    free(text);
    contains("", "list", "mine:small");
    program_fails("rm other nobody", 1, "there is no model 'nobody'"); /* and other is still there */
    program_prints("", "rm other mine:small", "removed other\nremoved mine:small\n");
    program_prints("", "list --json", "[]\n");
    program_fails("run other x --no-pull", 1, "there is no model 'other'");
    str_deinit(&home);
    test_temp_dir_remove(dir);
}

static void test_mistakes(void **state) {
    char *dir = test_temp_dir();
    (void)state;
    setenv("XDG_DATA_HOME", dir, 1);
    program_fails("create 'bad name' x", 2, "is not a name");
    program_fails("create good /nowhere/x.gguf", 1, "/nowhere/x.gguf");
    program_fails("create good /dev/null", 1, "");
    program_fails("create good", 2, "./Modelfile does not exist");
    program_fails("create good x -f y", 2, "not both");
    program_fails("create good -f /nowhere/Modelfile", 1, "/nowhere/Modelfile");
    program_fails("show demo --gguf --mlx", 2, "--gguf or --mlx");
    program_fails("show nobody --modelfile", 1, "there is no model 'nobody'");
    program_fails("rm nobody", 1, "there is no model 'nobody'");
    program_fails("cp nobody x", 1, "there is no model 'nobody'");
    program_fails("list x", 2, "");
    test_temp_dir_remove(dir);
}

static char *printed(const char *arguments) {
    char *text;
    if (program_run("", arguments, &text) != 0) fail_msg("%s: %s", arguments, text);
    return text;
}

/* A Modelfile makes a model; what `show --modelfile` prints makes the same one again. */
static void test_modelfile(void **state) {
    char *dir = test_temp_dir(), *file = path_join(dir, "Modelfile"), *again = path_join(dir, "again"), *first, *second;
    str   text;
    (void)state;
    setenv("XDG_DATA_HOME", dir, 1);
    str_init(&text);
    str_printf(&text,
               "# a calm one\nFROM %s/models/demo/demo.gguf\nPARAMETER temperature 0\nPARAMETER stop \"\"\"a \"b\"\n"
               "c\"\"\"\nSYSTEM \"\"\"Be brief.\n \"Yes.\" \"\"\"\nMESSAGE user Hi.\nMESSAGE assistant Hello.\n"
               "LICENSE Apache-2.0\nPARAMETER num_gpu 1\n",
               HEARTH_SOURCE_DIR);
    test_write_file(file, text.data, text.len);
    str_clear(&text);
    str_printf(&text, "create calm -f '%s' 2>&1", file);
    contains("", str_cstr(&text), "num_gpu is set aside");
    first = printed("show calm --modelfile");
    if (!strstr(first, "PARAMETER temperature 0\n") || !strstr(first, "MESSAGE user Hi.\n")) fail_msg("%s", first);
    test_write_file(again, first, strlen(first));
    str_clear(&text);
    str_printf(&text, "create calm2 -f '%s'", again);
    contains("", str_cstr(&text), "calm2 now names /");
    second = printed("show calm2 --modelfile");
    assert_string_equal(second, first);
    contains("", "show calm", "temperature 0");
    contains("", "show calm --json", "\"registered\":{\"name\":\"calm\",\"source\":\"local\",\"settings\":{");
    /* from a model: its settings are the base */
    test_write_file(file, "FROM calm\nPARAMETER top_k 5\n", 28);
    str_clear(&text);
    str_printf(&text, "create calmer -f '%s'", file);
    contains("", str_cstr(&text), "calmer now names /");
    contains("", "show calmer --modelfile", "PARAMETER temperature 0\nPARAMETER top_k 5\n");
    contains("cat /dev/null; echo FROM demo |", "create piped -f -", "piped now names /");
    test_write_file(file, "FROM calm\nPARAMETER top_kk 5\n", 29);
    program_fails("create x -f \"$XDG_DATA_HOME/Modelfile\"", 1,
                  "Modelfile: line 2: there is no parameter 'top_kk'; did you mean 'top_k'");
    test_write_file(file, "FROM nobody\n", 12);
    program_fails("create x --no-pull -f \"$XDG_DATA_HOME/Modelfile\"", 1, "FROM: there is no model 'nobody'");
    test_write_file(file, "FROM calm\nADAPTER nowhere.gguf\n", 31);
    program_fails("create x -f \"$XDG_DATA_HOME/Modelfile\"", 1, "ADAPTER nowhere.gguf");
    test_write_file(file, "FROM calm\nTEMPLATE {% if %}\n", 28);
    program_fails("create x -f \"$XDG_DATA_HOME/Modelfile\"", 1, "the template");
    program_fails("create calm -f \"$XDG_DATA_HOME/again\"", 1, "already");
    program_prints("", "rm calm calm2 calmer piped", "removed calm\nremoved calm2\nremoved calmer\nremoved piped\n");
    free(first);
    free(second);
    free(file);
    free(again);
    str_deinit(&text);
    test_temp_dir_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_modelfile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
