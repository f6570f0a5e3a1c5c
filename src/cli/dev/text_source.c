/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/dev/text_source.h"

#include "base/file.h"
#include "bundle/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int each_line(const text_source *s, text_take_fn *take, err *e) {
    char   *line = NULL;
    size_t  cap = 0, number = 0;
    ssize_t n;
    int     rc = 0;
    while (rc == 0 && (n = getline(&line, &cap, stdin)) >= 0) {
        number++;
        if (strspn(line, " \t\r\n") == (size_t)n) continue;
        rc = take(s, line, (size_t)n, e);
        if (rc < 0) err_wrap(e, rc, "line %zu", number);
        if (rc == 0) fflush(stdout); /* whoever sends lines may wait for each answer */
    }
    free(line);
    return rc;
}

static int each(const text_source *s, const char *given, text_take_fn *take, err *e) {
    char  *data = NULL;
    size_t bytes = 0;
    if (s->lines) return each_line(s, take, e);
    if (given) return take(s, given, strlen(given), e);
    int rc = file_read_stream(&data, &bytes, stdin, "standard input", TEXT_SOURCE_MAX_BYTES, e);
    if (rc == 0) rc = take(s, data, bytes, e);
    free(data);
    return rc;
}

int text_source_run(const cli_args *args, const char *given, text_take_fn *take) {
    err         e = { 0 };
    tok        *t = NULL;
    tok_options o = { .pre = cli_string(args, "pre", NULL) };
    int         rc = bundle_tokenizer_open_path(&t, cli_arg(args, 0), &o, &e);
    text_source s = { t, cli_flag(args, "no-bos"), cli_flag(args, "no-special"), cli_flag(args, "lines") };
    if (rc == 0) rc = each(&s, cli_string(args, given, NULL), take, &e);
    tok_free(t);
    return rc < 0 ? cli_fail(args, &e) : CLI_OK;
}
