/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/dev/text_source.h"

#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int each_line(text_take_fn *take, void *ctx, err *e) {
    char   *line = NULL;
    size_t  cap = 0, number = 0;
    ssize_t n;
    int     rc = 0;
    while (rc == 0 && (n = getline(&line, &cap, stdin)) >= 0) {
        number++;
        if (strspn(line, " \t\r\n") == (size_t)n) continue;
        rc = take(ctx, line, (size_t)n, e);
        if (rc < 0) err_wrap(e, rc, "line %zu", number);
        if (rc == 0) fflush(stdout); /* whoever sends lines may wait for each answer */
    }
    free(line);
    return rc;
}

int text_source_each(const char *given, bool lines, text_take_fn *take, void *ctx, err *e) {
    char  *data = NULL;
    size_t bytes = 0;
    if (lines) return each_line(take, ctx, e);
    if (given) return take(ctx, given, strlen(given), e);
    int rc = file_read_stream(&data, &bytes, stdin, "standard input", TEXT_SOURCE_MAX_BYTES, e);
    if (rc == 0) rc = take(ctx, data, bytes, e);
    free(data);
    return rc;
}
