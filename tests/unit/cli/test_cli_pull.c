/* SPDX-License-Identifier: Apache-2.0 */
/* hearth pull, run as a program: on a terminal, in a script, with a token, and interrupted. */
#include "unit/support/support.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "unit/support/hub.h"
#include "unit/support/model.h"
#include "unit/support/program.h"

#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static test_hub hub;
static char    *home;

static int setup(void **state) {
    (void)state;
    test_hub_start(&hub);
    test_hub_add(&hub, "hf/acme/tiny-gguf/tiny-Q4_K_M.gguf", "models/demo/draft.gguf");
    test_hub_write(&hub, "ollama/library/tiny/latest.json",
                   "{\"layers\":[[\"model\",\"hf/acme/tiny-gguf/tiny-Q4_K_M.gguf\"],[\"system\",\"Be brief.\"]]}");
    setenv("HF_ENDPOINT", hub.url, 1);
    setenv("HEARTH_OLLAMA_REGISTRY", hub.url, 1);
    unsetenv("HF_TOKEN");
    unsetenv("HEARTH_HF_TOKEN");
    unsetenv("HF_HOME");
    unsetenv("HF_TOKEN_PATH");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("XDG_CONFIG_HOME");
    return 0;
}

static int teardown(void **state) {
    (void)state;
    test_hub_stop(&hub);
    return 0;
}

static int fresh(void **state) {
    (void)state;
    home = test_temp_dir();
    setenv("HOME", home, 1);
    setenv("XDG_DATA_HOME", home, 1);
    test_hub_fault(&hub, "{}");
    return 0;
}

static int done(void **state) {
    (void)state;
    test_temp_dir_remove(home);
    return 0;
}

static void says(const char *arguments, int status, const char *want) {
    char *got;
    assert_int_equal(program_run("", arguments, &got), status);
    if (!strstr(got, want)) fail_msg("hearth %s: no \"%s\" in: %s", arguments, want, got);
    free(got);
}

static void test_text(void **state) {
    (void)state;
    says("pull acme/tiny-gguf 2>/dev/null", 0, "acme/tiny-gguf is ready (2.7 MB)");
    says("pull hf://acme/tiny-gguf 2>/dev/null", 0, "acme/tiny-gguf is up to date");
    says("pull tiny 2>&1", 0, "pulling manifest\n");
    program_prints("", "pull tiny --quiet 2>&1", "");
    says("list", 0, "hf://acme/tiny-gguf/tiny-Q4_K_M.gguf");
    says("pull tiny --as mine 2>/dev/null", 0, "mine is up to date");
    says("pull tiny --as 'a name' 2>&1", 1, "'a name' is not a name for a model");
    says("rm acme/tiny-gguf tiny mine", 0, "freed 2.7 MB");
    char *blobs = path_join(home, "hearth/blobs"), command[600];
    snprintf(command, sizeof command, "test -z \"$(ls -A '%s')\"", blobs);
    assert_int_equal(system(command), 0); /* nothing is left */
    free(blobs);
}

/* Every line is an object; the bytes grow; the last one says where the model is. */
static void test_json(void **state) {
    char   *text, *line, *rest;
    int64_t last = 0;
    bool    success = false;
    (void)state;
    test_hub_fault(&hub, "{\"delay\":0.005}");
    assert_int_equal(program_run("", "pull acme/tiny-gguf --json", &text), 0);
    for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        arena             a;
        const json_value *v;
        int64_t           n;
        arena_init(&a, 0);
        assert_int_equal(json_parse(&v, line, strlen(line), &a, NULL), 0);
        assert_false(success);
        if (json_int(json_get(v, "completed"), &n)) {
            assert_true(n >= last);
            last = n;
            assert_non_null(json_cstr(json_get(v, "digest")));
        }
        success = strcmp(json_cstr(json_get(v, "status")), "success") == 0;
        if (success) {
            assert_string_equal(json_cstr(json_get(v, "name")), "acme/tiny-gguf");
            assert_true(file_exists(json_cstr(json_get(v, "path"))));
            assert_true(json_int(json_get(v, "fetched"), &n) && n == last);
        }
        arena_deinit(&a);
    }
    assert_true(success);
    free(text);
    says("pull acme/nothing --json 2>/dev/null", 1, "{\"error\":\"the repository acme/nothing");
}

static void test_mistakes(void **state) {
    (void)state;
    program_fails("pull", 2, "missing");
    program_fails("pull a/b c/d", 2, "unexpected");
    program_fails("pull a/b --gguf --mlx", 2, "not both");
    program_fails("pull 'a b'", 1, "a b");
    program_fails("pull acme/nothing", 1, "acme/nothing");
    program_fails("pull acme/tiny-gguf:Q8_0", 1, "it has: Q4_K_M (2.7 MB)");
    program_fails("pull acme/tiny-gguf --gguf-file other.gguf", 1, "has no file other.gguf");
    program_fails("pull acme/tiny-gguf --revision nope", 1, "at revision nope");
    program_fails("pull acme/tiny-gguf --mlx", 1, "no safetensors");
    program_fails("pull demo", 1, "ships with Hearth");
    program_fails("pull nothing", 1, "the model nothing:latest");
}

static void test_tokens(void **state) {
    char *folder = path_join(home, ".cache/huggingface"), command[600];
    (void)state;
    test_hub_fault(&hub, "{\"need_token\":\"abc\",\"redirect\":\"host\"}");
    program_fails("pull acme/tiny-gguf", 1, "needs a token (HF_TOKEN)");
    snprintf(command, sizeof command, "mkdir -p '%s' && printf 'abc\\n' > '%s/token'", folder, folder);
    assert_int_equal(system(command), 0);
    says("pull acme/tiny-gguf 2>&1", 0, "is ready");
    char *got;
    assert_int_equal(program_run("HF_TOKEN=wrong", "pull acme/tiny-gguf 2>&1", &got), 1);
    assert_non_null(strstr(got, "although a token was sent"));
    assert_null(strstr(got, "wrong/")); /* and it is not in the message */
    free(got);
    assert_int_equal(program_run("HF_TOKEN=wrong HEARTH_HF_TOKEN=abc", "pull acme/tiny-gguf 2>&1", &got), 0);
    free(got);
    free(folder);
}

/* Runs hearth on a terminal; what it wrote in *out. Gets Ctrl-C as soon as `until` was written, if that is given. */
static int on_terminal(char *const *argv, const char *until, str *out) {
    int            fd, status;
    char           block[4096];
    ssize_t        n;
    struct winsize size = { .ws_row = 24, .ws_col = 100 };
    pid_t          child = forkpty(&fd, NULL, NULL, &size);
    assert_true(child >= 0);
    if (child == 0) {
        execv(getenv("HEARTH_PROGRAM"), argv);
        _exit(127);
    }
    while ((n = read(fd, block, sizeof block)) > 0) {
        str_append(out, block, (size_t)n);
        if (until && strstr(str_cstr(out), until)) {
            until = NULL;
            assert_int_equal(write(fd, "\003", 1), 1); /* what the key sends */
        }
    }
    close(fd);
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_terminal(void **state) {
    char *argv[] = { "hearth", "pull", "acme/tiny-gguf", NULL };
    str   out;
    (void)state;
    if (!getenv("HEARTH_PROGRAM")) skip();
    str_init(&out);
    test_hub_fault(&hub, "{\"delay\":0.05}");
    assert_int_equal(on_terminal(argv, "#.", &out), 1);
    assert_non_null(strstr(str_cstr(&out), "run the same command again to continue"));
    str_clear(&out);
    test_hub_fault(&hub, "{\"delay\":0.05}");
    assert_int_equal(on_terminal(argv, NULL, &out), 0);
    if (!strstr(str_cstr(&out), "% [#") || !strstr(str_cstr(&out), " of 2.7 MB")) fail_msg("%s", str_cstr(&out));
    assert_non_null(strstr(str_cstr(&out), "is ready (2.7 MB)"));
    str_deinit(&out);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, fresh, done)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_text), TEST(test_json), TEST(test_mistakes), TEST(test_tokens), TEST(test_terminal),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
