/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON answers, written straight into a string: no tree, no allocation per value. A streamed token costs one such text
 * on the I/O thread, which is why this is not jansson's. Commas are put by the writer; text that is not UTF-8 gets
 * U+FFFD.
 */
#ifndef SERVER_HTTP_JSON_OUT_H
#define SERVER_HTTP_JSON_OUT_H

#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct jw {
    str *out;
    bool comma; /* a value stands before this one */
} jw;

static inline jw jw_of(str *out) { return (jw){ out, false }; }

void jw_open(jw *w, char bracket); /* '{' or '[' */
void jw_close(jw *w, char bracket);
void jw_key(jw *w, const char *key);
void jw_text(jw *w, view text);
void jw_cstr(jw *w, const char *text); /* NULL: null */
void jw_int(jw *w, int64_t v);
void jw_real(jw *w, double v); /* null if not finite */
void jw_bool(jw *w, bool v);
void jw_null(jw *w);
void jw_raw(jw *w, view json);

/* {"object":"list","data":[ ... ]}: the items come in between. */
jw   jw_list(str *out);
void jw_list_end(jw *w);

/* A member each. */
void jw_put_text(jw *w, const char *key, view text);
void jw_put_cstr(jw *w, const char *key, const char *text);
void jw_put_int(jw *w, const char *key, int64_t v);
void jw_put_real(jw *w, const char *key, double v);
void jw_put_bool(jw *w, const char *key, bool v);
void jw_put_null(jw *w, const char *key);

#endif
