/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts without their end: markers, and the arguments of a call that the limit cut off.
 *
 * Where a protocol gives them as text they are given as they are. Where it gives an object, it is what the libraries of
 * those protocols make of such a text in a stream: everything that is complete, and the brackets that are missing. A
 * string without its end does not count, nor a number that might go on, nor a key without a value.
 */
#ifndef CHAT_PARTIAL_H
#define CHAT_PARTIAL_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

/* How many bytes at the end of a text begin this marker; 0 for fewer than `least`. */
size_t chat_begun_marker(view text, const char *marker, size_t least);

/* Appends as much of a text as is the beginning of a JSON value, as chat_json_scan writes it down. */
void chat_json_begun(view text, str *out);

/* Appends the object that the text, which begins one, is so far; "{}" for a text that does not. keep_strings: a string
 * without its end is closed instead, for who wants to know what it says. */
void chat_json_close(view text, bool keep_strings, str *out);

/* Appends what a quoted string says that may have no end. */
void chat_json_string_begun(view quoted, str *out);

#endif
