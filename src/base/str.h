/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A growing byte string, always NUL-terminated.
 *
 * Appending to a string whose allocation failed once does nothing; the failure is remembered in `failed` and is checked
 * once at the end (str_ok), so that long sequences of appends need no error path each.
 */
#ifndef BASE_STR_H
#define BASE_STR_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct str {
    char  *data; /* NULL until the first append; str_cstr gives "" then */
    size_t len, cap;
    size_t limit; /* 0: no limit; reaching it sets failed */
    bool   failed;
    bool   at_limit; /* it failed for the limit, not for memory */
} str;

void        str_init(str *s);
void        str_deinit(str *s);
void        str_clear(str *s); /* length 0, memory and limit kept */
bool        str_reserve(str *s, size_t extra);
void        str_push(str *s, char c);
void        str_append(str *s, const void *data, size_t bytes);
void        str_puts(str *s, const char *text);
void        str_printf(str *s, const char *fmt, ...) BASE_PRINTF(2, 3);
void        str_put_utf8(str *s, unsigned codepoint); /* invalid code points become U+FFFD */
void        str_put_json(str *s, const char *text,
                         size_t bytes);     /* quoted; control characters escaped, UTF-8 kept, bad bytes as U+FFFD */
void        str_put_real(str *s, double v); /* finite; 0.3 is written so, and every number reads back the same */
const char *str_cstr(const str *s);
char       *str_take(str *s); /* the caller owns the result; s is empty afterwards. NULL if failed */
bool        str_ok(const str *s);

/* Reads one code point; returns its bytes, or 0 where the text is not valid UTF-8 (overlong, surrogate, cut off). */
size_t utf8_decode(const char *text, size_t bytes, unsigned *out);

/* Views: borrowed bytes, not terminated. */
typedef struct view {
    const char *data;
    size_t      len;
} view;

view view_of(const char *text);
bool view_eq(view a, view b);
bool view_eq_c(view a, const char *text);
bool view_starts(view a, const char *prefix);
bool view_ends(view a, const char *suffix);

#endif
