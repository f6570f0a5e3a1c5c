/* SPDX-License-Identifier: Apache-2.0 */
/* Commands over texts and a tokenizer: what they read is an option's value, all of standard input, or its lines one by
 * one. */
#ifndef CLI_DEV_TEXT_SOURCE_H
#define CLI_DEV_TEXT_SOURCE_H

#include "base/err.h"
#include "cli/options.h"
#include "tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>

enum { TEXT_SOURCE_MAX_BYTES = 1 << 30 };

typedef struct text_source {
    const tok *tok;
    bool       no_bos, no_special, lines;
} text_source;

typedef int text_take_fn(const text_source *s, const char *text, size_t bytes, err *e);

/* Rows for the option table of such a command: what its flags mean, and which pre-tokenizer is used. */
#define TEXT_SOURCE_OPTIONS(NO_BOS, NO_SPECIAL, LINES)                                                                 \
    { "no-bos", CLI_FLAG, NULL, NO_BOS, 0 }, { "no-special", CLI_FLAG, NULL, NO_SPECIAL, 0 },                          \
        { "lines", CLI_FLAG, NULL, LINES, 0 }, CLI_PRE_OPTION

/*
 * The whole command: opens the tokenizer of the first argument and hands over what there is to read. With --lines that
 * is every line that is not blank, until one fails (the error names it); else the value of the option `given`, or all of
 * standard input. Returns the exit code.
 */
int text_source_run(const cli_args *args, const char *given, text_take_fn *take);

#endif
