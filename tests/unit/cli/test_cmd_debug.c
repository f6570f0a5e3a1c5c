/* SPDX-License-Identifier: Apache-2.0 */
/* `hearth debug` from outside: blocks go in, floats come out; mistakes are refused with the right exit code. */
#include "unit/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* Runs `hearth ARGUMENTS` in a shell; returns its exit code and the first bytes of its output. */
static int run(const char *arguments, char *out, size_t *bytes) {
    char        line[512];
    const char *program = getenv("HEARTH_PROGRAM");
    assert_non_null(program);
    snprintf(line, sizeof line, "printf '%s' | %s debug %s 2>/dev/null",
             "\\000\\074\\020\\062\\000\\000\\000\\000\\000\\000\\000\\000\\000\\000\\000\\000\\000\\377", program,
             arguments);
    FILE *p = popen(line, "r");
    assert_non_null(p);
    *bytes = fread(out, 1, *bytes, p);
    return WEXITSTATUS(pclose(p));
}

/* One Q4_0 block with d = 1.0 (0x3c00): first bytes 0x10, 0x32, then zeros, last byte 0xff. */
static void test_dequant(void **state) {
    (void)state;
    float  y[64];
    size_t bytes = sizeof y;
    assert_int_equal(run("dequant --type q4_0", (char *)y, &bytes), 0);
    assert_int_equal(bytes, 32 * sizeof *y);
    assert_true(y[0] == -8 && y[16] == -7 && y[1] == -6 && y[17] == -5 && y[2] == -8 && y[15] == 7 && y[31] == 7);
}

static void test_refused(void **state) {
    (void)state;
    char   out[64];
    size_t bytes = sizeof out;
    assert_int_equal(run("dequant --type Q5_0", out, &bytes), 1); /* 18 bytes are not a whole block */
    assert_int_equal(bytes, 0);
    assert_int_equal(run("dequant --type Q9_9", out, &bytes), 2);
    assert_int_equal(run("dequant --type MLX_AFF4", out, &bytes), 2);
    assert_int_equal(run("dequant", out, &bytes), 2);
    assert_int_equal(run("nonsense", out, &bytes), 2);
    assert_int_equal(run("kernels --cpu sse9", out, &bytes), 2);
}

static void test_kernels(void **state) {
    (void)state;
    static char out[65536];
    size_t      bytes = sizeof out - 1;
    assert_int_equal(run("kernels --cpu scalar", out, &bytes), 0);
    out[bytes] = 0;
    assert_non_null(strstr(out, "CPU: "));
    assert_non_null(strstr(out, "in use: scalar\n"));
    bytes = sizeof out - 1;
    assert_int_equal(run("--help", out, &bytes), 0);
    out[bytes] = 0;
    assert_non_null(strstr(out, "dequant"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dequant),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
