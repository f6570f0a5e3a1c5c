/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stop strings in a stream of text.
 *
 * Text goes in piece by piece; what can no longer belong to a stop string comes out. A stop string that spans pieces is
 * found, and no part of it is ever given out. Without stop strings everything comes out at once.
 */
#ifndef SAMPLING_STOP_H
#define SAMPLING_STOP_H

#include "base/err.h"
#include "base/str.h"

typedef struct stop_matcher stop_matcher;

/* Copies the strings. Empty strings are refused. */
int  stop_open(stop_matcher **out, const char *const *strings, const size_t *lengths, size_t count, err *e);
void stop_free(stop_matcher *m); /* accepts NULL */

/* Appends to out what is safe to show. Returns the index of the stop string that was reached, or -1; behind it nothing
 * comes out any more. Of several that end in the piece the one that begins first wins, then the longest. Where memory
 * is out, out->failed is set: text is missing. */
int stop_feed(stop_matcher *m, const char *text, size_t bytes, str *out);

/* The text is over: appends what was held back. */
void stop_finish(stop_matcher *m, str *out);

#endif
