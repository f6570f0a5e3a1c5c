/* SPDX-License-Identifier: Apache-2.0 */
/* hearth info as a program: the dry run, what it remembers, what it refuses. */
#include "unit/support/support.h"

#include "base/file.h"
#include "base/json.h"
#include "unit/support/model.h"
#include "unit/support/program.h"
#include "unit/support/serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define DEMO HEARTH_SOURCE_DIR "/models/demo/demo.gguf"
#define DRAFT HEARTH_SOURCE_DIR "/models/demo/draft.gguf"

static arena mem;

static const json_value *ask(const char *arguments) {
    char             *text;
    const json_value *v;
    err               e = { 0 };
    int               status = program_run("", arguments, &text);
    if (status != 0) fail_msg("%s: status %d", arguments, status);
    char *kept = arena_strdup(&mem, text);
    free(text);
    if (json_parse(&v, kept, strlen(kept), &mem, &e) < 0) fail_msg("%s: %s", e.msg, kept);
    return v;
}

static int64_t number(const json_value *v, const char *a, const char *b) {
    int64_t n = 0;
    if (b) v = json_get(v, a);
    if (!json_int(json_get(v, b ? b : a), &n)) fail_msg("no number %s %s", a, b ? b : "");
    return n;
}

static void says(const char *arguments, const char *want) {
    char *got;
    int   status = program_run("", arguments, &got);
    if (status != 0 || !strstr(got, want)) fail_msg("%s: status %d, no \"%s\" in: %s", arguments, status, want, got);
    free(got);
}

static void make(const char *dir, const char *name) {
    char *path = path_join(dir, name);
    assert_true(mkdir(path, 0700) == 0 || dir_exists(path));
    free(path);
}

static void put(const char *dir, const char *name, const char *text) {
    char *path = path_join(dir, name);
    test_write_file(path, text, strlen(text));
    free(path);
}

static void test_dry_run(void **state) {
    char       *dir = test_temp_dir();
    struct stat st, head;
    (void)state;
    serve_isolate(dir);
    arena_init(&mem, 0);
    assert_int_equal(stat(DEMO, &st), 0);
    assert_int_equal(stat(HEARTH_SOURCE_DIR "/models/demo/mtp-demo.gguf", &head), 0);
    const json_value *v = ask("info --json");
    assert_string_equal(json_cstr(json_get(v, "architecture")), "llama");
    assert_string_equal(json_cstr(json_get(v, "type")), "Q8_0");
    assert_int_equal(number(v, "context", NULL), 4096);
    assert_int_equal(number(v, "memory", "weights"), st.st_size + head.st_size);
    assert_string_equal(json_cstr(json_get(v, "drafters")), "lookup, mtp");
    int64_t per_1k = number(v, "memory", "cache_per_1k");
    assert_int_equal(number(v, "memory", "total"), number(v, "memory", "weights") + number(v, "memory", "cache") +
                                                       number(v, "memory", "scratch") + number(v, "memory", "other"));
    assert_true(json_bool(json_get(json_get(v, "memory"), "fits"), false));
    assert_true(json_is(json_get(json_get(v, "speed"), "source"), JSON_K_NULL));
    /* The cache is what the context and the number of sequences make it. */
    v = ask("info demo --ctx 2048 --sequences 3 --json");
    assert_int_equal(number(v, "memory", "cache"), 3 * 2048 * per_1k / 1000);
    assert_int_equal(number(v, "sequences", NULL), 3);
    v = ask("info '" DEMO "' --cache-type q8_0 --json"); /* 34 bytes instead of 64 */
    assert_int_equal(number(v, "memory", "cache_per_1k"), per_1k * 34 / 64);
    says("info", "speed           unknown; measure it with --calibrate");
    says("info --ctx 1000000 --sequences 1000", "DOES NOT FIT");
    v = ask("info --ctx 1000000 --sequences 1000 --json");
    assert_false(json_bool(json_get(json_get(v, "memory"), "fits"), true));
    /* Without flags as the configuration says; a file of the model's own goes before server.yaml. */
    make(dir, "hearth");
    put(dir, "hearth/server.yaml", "models: { context: 512 }\nkv_cache: { type: q8_0 }\n");
    v = ask("info --json");
    assert_int_equal(number(v, "context", NULL), 512);
    assert_string_equal(json_cstr(json_get(v, "cache_type")), "q8_0");
    make(dir, "hearth/models");
    put(dir, "hearth/models/demo.yaml", "context: 256\n");
    assert_int_equal(number(ask("info --json"), "context", NULL), 256);
    assert_int_equal(number(ask("info --ctx 768 --json"), "context", NULL), 768);
    v = ask("info --no-config --json");
    assert_int_equal(number(v, "context", NULL), 4096);
    assert_string_equal(json_cstr(json_get(v, "cache_type")), "f16");
    /* A name works as well as a path; nothing was written. */
    says("create small '" DRAFT "'", "small now names");
    assert_true(number(ask("info small --json"), "memory", "weights") < 3000000);
    arena_deinit(&mem);
    test_temp_dir_remove(dir);
}

static void test_calibration(void **state) {
    char *dir = test_temp_dir(), *path = path_join(dir, "hearth/calibration.json");
    (void)state;
    serve_isolate(dir);
    arena_init(&mem, 0);
    const json_value *v = ask("info demo --ctx 128 --calibrate --json 2>/dev/null"), *speed = json_get(v, "speed");
    double            prompt, generation, again;
    assert_string_equal(json_cstr(json_get(speed, "source")), "calibration");
    assert_true(json_number(json_get(speed, "prompt_tokens_per_second"), &prompt) && prompt > 0);
    assert_true(json_number(json_get(speed, "generation_tokens_per_second"), &generation) && generation > 0);
    assert_true(file_exists(path));
    /* Remembered, also for the same model under another name, but not for other page types. */
    speed = json_get(ask("info '" DEMO "' --json"), "speed");
    assert_string_equal(json_cstr(json_get(speed, "source")), "calibration");
    assert_true(json_number(json_get(speed, "prompt_tokens_per_second"), &again) && again > prompt * 0.99 &&
                again < prompt * 1.01);
    speed = json_get(ask("info demo --cache-type q8_0 --json"), "speed");
    assert_string_equal(json_cstr(json_get(speed, "source")), "estimate");
    /* A model of the same size class is estimated from it, in proportion. */
    speed = json_get(ask("info '" DRAFT "' --json"), "speed");
    assert_string_equal(json_cstr(json_get(speed, "source")), "estimate");
    assert_string_equal(json_cstr(json_get(speed, "measured_model")), "demo");
    assert_true(json_number(json_get(speed, "generation_tokens_per_second"), &again) && again > 4 * generation);
    says("info '" DRAFT "'", "an estimate from 'demo'");
    says("info", "measured 20");
    /* A broken file counts as none and is replaced. */
    test_write_file(path, "{\"version\":1,\"entries\":[{\"model\":3}", 12);
    says("info", "unknown");
    arena_deinit(&mem);
    free(path);
    test_temp_dir_remove(dir);
}

static void test_mistakes(void **state) {
    char *dir = test_temp_dir();
    (void)state;
    serve_isolate(dir);
    says("info --help", "usage: hearth info");
    program_fails("info nobody", 1, "no model");
    program_fails("info /dev/null", 1, "hearth info: ");
    program_fails("info --ctx -1", 2, "--ctx");
    program_fails("info --sequences 5000", 2, "--sequences");
    program_fails("info --cache-type q9", 2, "'q9' is not a page type");
    program_fails("info a b", 2, "unexpected argument");
    test_temp_dir_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dry_run),
        cmocka_unit_test(test_calibration),
        cmocka_unit_test(test_mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
