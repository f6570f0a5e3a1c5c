/* SPDX-License-Identifier: Apache-2.0 */
/* Where commands over texts get theirs: an option's value, all of standard input, or its lines one by one. */
#ifndef CLI_DEV_TEXT_SOURCE_H
#define CLI_DEV_TEXT_SOURCE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

enum { TEXT_SOURCE_MAX_BYTES = 1 << 30 };

typedef int text_take_fn(void *ctx, const char *text, size_t bytes, err *e);

/* lines: every line that is not blank, until one fails; the error names it. Else the given text; NULL: standard input. */
int text_source_each(const char *given, bool lines, text_take_fn *take, void *ctx, err *e);

#endif
