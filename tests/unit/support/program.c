/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/support/program.h"

#include "base/file.h"
#include "base/str.h"
#include "unit/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

int program_run(const char *before, const char *arguments, char **out) {
    const char *program = getenv("HEARTH_PROGRAM");
    str         command;
    size_t      len;
    if (!program) {
        printf("skipped: HEARTH_PROGRAM is not set\n");
        skip();
    }
    str_init(&command);
    str_printf(&command, "%s '%s' %s", before, program, arguments);
    FILE *f = popen(str_cstr(&command), "r");
    assert_non_null(f);
    assert_int_equal(file_read_stream(out, &len, f, "hearth", 1 << 20, NULL), 0);
    int status = pclose(f);
    str_deinit(&command);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

void program_prints(const char *before, const char *arguments, const char *want) {
    char *got;
    assert_int_equal(program_run(before, arguments, &got), 0);
    assert_string_equal(got, want);
    free(got);
}

void program_fails(const char *arguments, int status, const char *want) {
    char *got;
    str   both;
    str_init(&both);
    str_printf(&both, "%s 2>&1 </dev/null", arguments);
    assert_int_equal(program_run("", str_cstr(&both), &got), status);
    if (!strstr(got, want)) fail_msg("no \"%s\" in: %s", want, got);
    free(got);
    str_deinit(&both);
}
