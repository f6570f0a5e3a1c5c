/* SPDX-License-Identifier: Apache-2.0 */
#include "server/http/json_out.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void before(jw *w) {
    if (w->comma) str_push(w->out, ',');
    w->comma = true;
}

void jw_open(jw *w, char bracket) {
    before(w);
    str_push(w->out, bracket);
    w->comma = false;
}

void jw_close(jw *w, char bracket) {
    str_push(w->out, bracket);
    w->comma = true;
}

void jw_key(jw *w, const char *key) {
    before(w);
    str_put_json(w->out, key, strlen(key));
    str_push(w->out, ':');
    w->comma = false;
}

void jw_text(jw *w, view text) {
    before(w);
    str_put_json(w->out, text.data, text.len);
}

void jw_cstr(jw *w, const char *text) {
    if (text)
        jw_text(w, view_of(text));
    else
        jw_null(w);
}

void jw_int(jw *w, int64_t v) {
    char     digits[24], *p = digits + sizeof digits;
    uint64_t rest = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    before(w);
    do *--p = (char)('0' + rest % 10);
    while (rest /= 10);
    if (v < 0) *--p = '-';
    str_append(w->out, p, (size_t)(digits + sizeof digits - p));
}

void jw_real(jw *w, double v) {
    char text[40];
    if (!isfinite(v)) {
        jw_null(w);
        return;
    }
    before(w);
    /* The shortest form that a float keeps its value with; nothing here is more exact. */
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if ((float)strtod(text, NULL) == (float)v) break;
    }
    str_puts(w->out, text);
}

void jw_bool(jw *w, bool v) {
    before(w);
    str_puts(w->out, v ? "true" : "false");
}

void jw_null(jw *w) {
    before(w);
    str_puts(w->out, "null");
}

void jw_raw(jw *w, view json) {
    before(w);
    str_append(w->out, json.data, json.len);
}

void jw_put_text(jw *w, const char *key, view text) {
    jw_key(w, key);
    jw_text(w, text);
}

void jw_put_cstr(jw *w, const char *key, const char *text) {
    jw_key(w, key);
    jw_cstr(w, text);
}

void jw_put_int(jw *w, const char *key, int64_t v) {
    jw_key(w, key);
    jw_int(w, v);
}

void jw_put_real(jw *w, const char *key, double v) {
    jw_key(w, key);
    jw_real(w, v);
}

void jw_put_bool(jw *w, const char *key, bool v) {
    jw_key(w, key);
    jw_bool(w, v);
}

void jw_put_null(jw *w, const char *key) {
    jw_key(w, key);
    jw_null(w);
}

jw jw_list(str *out) {
    jw w = jw_of(out);
    jw_open(&w, '{');
    jw_put_cstr(&w, "object", "list");
    jw_key(&w, "data");
    jw_open(&w, '[');
    return w;
}

void jw_list_end(jw *w) {
    jw_close(w, ']');
    jw_close(w, '}');
}
