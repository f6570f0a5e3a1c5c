/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strings out of untrusted files, made fit for an error sentence or a terminal.
 *
 * Names of tensors and metadata keys are checked once, when they are read, so that every later sentence may quote them.
 * Other strings (a dtype, a mode, a file name) pass text_safe where they are quoted.
 */
#ifndef FORMATS_TEXT_H
#define FORMATS_TEXT_H

#include "base/err.h"
#include "base/str.h"

/* A name: 1 to max bytes of valid UTF-8 without control characters. The sentence says what is wrong, not with which. */
int text_name_check(view name, size_t max, err *e);

/* Copies text into buffer with control characters (C0, DEL, C1) and bad UTF-8 written as \xNN; a long text is cut with
 * "...". Returns buffer. cap is at least 16. */
const char *text_safe(char *buffer, size_t cap, view text);

/* The same without a limit, onto a string. Tabs and newlines are escaped too. */
void text_put_safe(str *out, view text);

#endif
