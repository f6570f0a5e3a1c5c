/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that were dragged into the terminal: it types their paths, absolute, with spaces quoted or escaped.
 *
 * A word that is such a path of a text file stays where it is, and the file's text follows the message. A word that
 * names no file is a word.
 */
#ifndef CLI_RUN_DRAGGED_H
#define CLI_RUN_DRAGGED_H

#include "base/str.h"

#include <stdbool.h>

enum { DRAGGED_MAX_BYTES = 1 << 20 }; /* of one file */

/* Whether a message begins with the path of a file: then it is not a command, although it begins with a slash. */
bool dragged_first(const char *text);

/* The message with the texts of its files. ERR_UNSUPPORTED: one is an image, or otherwise not text. *n: how many. */
int dragged_add(const char *text, str *out, int *n, err *e);

#endif
