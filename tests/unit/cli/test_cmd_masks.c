/* SPDX-License-Identifier: Apache-2.0 */
/* `hearth debug masks` from outside: each status, Python's spelling of instances, the totals, broken input. */
#include "unit/support/support.h"

#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static const char cases[] =
    /* the spelling of 1.0 and 1e-05 is the file's; a control character, a quote and non-ASCII text as Python writes
       them */
    "{\"name\":\"good\",\"schema\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"number\"},\"b\":{\"type\":"
    "\"array\",\"items\":{\"type\":\"string\"}}},\"required\":[\"a\"],\"additionalProperties\":false},\"tests\":[{"
    "\"valid\":"
    "true,\"data\":{\"a\":1.0,\"b\":[\"k\\u00e4se "
    "\\ud83d\\ude00\",\"\\u0001\\n\\\"\"]}},{\"valid\":false,\"data\":{\"b\":[]}},"
    "{\"data\":{\"a\":1e-05},\"valid\":true},{\"valid\":false,\"data\":{\"a\":\"x\"}}]}\n"
    /* labels the wrong way round are noticed */
    "{\"name\":\"accepts\",\"schema\":{\"type\":\"integer\"},\"tests\":[{\"valid\":false,\"data\":3}]}\n"
    "\n"
    "{\"tests\":[{\"valid\":true,\"data\":\"s\"}],\"name\":\"rejects\",\"schema\":{\"type\":\"integer\"}}\n"
    "{\"name\":\"refused\",\"schema\":{\"type\":\"string\",\"pattern\":\"(a)\\\\1\"},\"tests\":[]}\n";

static char *output_of(const char *input, int *code) {
    char       *dir = test_temp_dir(), line[1024], *out = calloc(1, 65536);
    const char *program = getenv("HEARTH_PROGRAM");
    FILE       *f;
    assert_non_null(program);
    snprintf(line, sizeof line, "%s/cases.jsonl", dir);
    assert_non_null(f = fopen(line, "w"));
    fputs(input, f);
    fclose(f);
    snprintf(line, sizeof line, "%s debug masks --vocab %s/models/demo/demo.gguf < %s/cases.jsonl 2>/dev/null", program,
             HEARTH_SOURCE_DIR, dir);
    assert_non_null(f = popen(line, "r"));
    (void)!fread(out, 1, 65535, f);
    *code = WEXITSTATUS(pclose(f));
    test_temp_dir_remove(dir);
    return out;
}

static void test_statuses(void **state) {
    static const char *const want[] = { "passed", "invalid_accepted", "valid_rejected", "refused" };
    int                      code;
    char                    *out = output_of(cases, &code), *p = out;
    arena                    a;
    const json_value        *v;
    err                      e;
    int64_t                  n;
    (void)state;
    assert_int_equal(code, 0);
    arena_init(&a, 0);
    for (int i = 0; i < 5; i++) {
        char *end = strchr(p, '\n');
        assert_non_null(end);
        assert_int_equal(json_parse(&v, p, (size_t)(end - p), &a, &e), 0);
        if (i < 4) assert_string_equal(json_cstr(json_get(v, "status")), want[i]);
        if (i == 0) assert_true(json_int(json_get(v, "tests"), &n) && n == 4);
        if (i == 3) assert_non_null(strstr(json_cstr(json_get(v, "reason")), "back reference"));
        p = end + 1;
    }
    v = json_get(v, "totals");
    assert_true(json_int(json_get(v, "schemas"), &n) && n == 4);
    assert_true(json_int(json_get(v, "passed"), &n) && n == 1);
    assert_true(json_int(json_get(json_get(v, "mask_us"), "count"), &n) && n > 20);
    assert_true(json_int(json_get(json_get(v, "compile_us"), "count"), &n) && n == 3);
    assert_int_equal(*p, 0);
    arena_deinit(&a);
    free(out);
}

static void test_broken(void **state) {
    int code;
    (void)state;
    free(output_of("{\"name\":\"x\"}\n", &code));
    assert_int_equal(code, 1);
    free(output_of("{\"name\":\"x\",\"schema\":\n", &code));
    assert_int_equal(code, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_statuses), cmocka_unit_test(test_broken) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
