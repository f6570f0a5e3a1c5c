/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A text as windows of tokens, for commands that evaluate one: windows of N tokens that do not overlap, what is behind
 * the last whole one left out; or one window per document of a file of JSON lines.
 */
#ifndef CLI_DEV_WINDOWS_H
#define CLI_DEV_WINDOWS_H

#include "base/err.h"
#include "tokenizer/tokenizer.h"

/* Window i is ids[start[i]] .. ids[start[i + 1] - 1]. */
typedef struct windows {
    tok_ids ids;
    size_t *start;
    size_t  n;
} windows;

/* A text shorter than one window is one window of its own length. */
int windows_text(windows *w, const tok *t, const char *path, size_t size, err *e);
/* One JSON value per line, a string or an object with "text"; special tokens are recognised. */
int  windows_documents(windows *w, const tok *t, const char *path, size_t size, err *e);
int  windows_check(const windows *w, int n_vocab, err *e); /* refuses tokens that the model does not have */
void windows_deinit(windows *w);                           /* accepts a zeroed one */

#endif
