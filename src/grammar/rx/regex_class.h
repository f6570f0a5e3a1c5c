/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of a pattern and its smallest parts: characters, escapes, classes. */
#ifndef GRAMMAR_RX_REGEX_CLASS_H
#define GRAMMAR_RX_REGEX_CLASS_H

#include "base/arena.h"
#include "grammar/ir_impl.h"

typedef struct regex {
    rx_store   *rx;
    const char *text;
    size_t      len, at;
    arena       mem;
    size_t      walk, depth; /* of the conversion, bounded */
    bool        no_end;      /* something follows: "$" does not match */
    err        *e;
    int         e_code; /* the first error */
} regex;

/* Keeps the first error, with the offset; gives NULL for the callers that return a pointer. */
void *regex_fail(regex *p, int code, const char *fmt, ...) BASE_PRINTF(3, 4);
int   regex_peek(const regex *p); /* the next byte, or -1 */
bool  regex_take(regex *p, char c);
bool  regex_atom(regex *p, rx *out); /* one character, escape, class or "." */

#endif
