/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"

#include "base/num.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void str_init(str *s) { *s = (str){ 0 }; }

void str_deinit(str *s) {
    free(s->data);
    *s = (str){ 0 };
}

void str_clear(str *s) {
    s->len = 0;
    s->failed = s->at_limit = false;
    if (s->data) s->data[0] = '\0';
}

bool str_reserve(str *s, size_t extra) {
    size_t need;
    if (s->failed) return false;
    if (!num_add_size(s->len, extra, &need) || need == SIZE_MAX || (s->limit && need > s->limit)) {
        s->failed = s->at_limit = true;
        return false;
    }
    if (need + 1 <= s->cap) return true;
    size_t cap = s->cap < 64 ? 64 : s->cap + s->cap / 2;
    if (cap < need + 1) cap = need + 1;
    char *data = realloc(s->data, cap);
    if (!data) {
        s->failed = true;
        return false;
    }
    s->data = data;
    s->cap = cap;
    return true;
}

void str_push(str *s, char c) {
    if (s->len + 1 >= s->cap || s->limit || s->failed) {
        if (!str_reserve(s, 1)) return;
    }
    s->data[s->len++] = c;
    s->data[s->len] = '\0';
}

void str_append(str *s, const void *data, size_t bytes) {
    if (bytes == 0 || !str_reserve(s, bytes)) return;
    memcpy(s->data + s->len, data, bytes);
    s->len += bytes;
    s->data[s->len] = '\0';
}

void str_puts(str *s, const char *text) { str_append(s, text, strlen(text)); }

void str_printf(str *s, const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int need = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (need < 0) {
        s->failed = true;
    } else if (str_reserve(s, (size_t)need)) {
        vsnprintf(s->data + s->len, (size_t)need + 1, fmt, again);
        s->len += (size_t)need;
    }
    va_end(again);
}

void str_put_utf8(str *s, unsigned cp) {
    char   out[4];
    size_t n;
    if (cp > 0x10FFFF || (cp >= 0xD800 && cp <= 0xDFFF)) cp = 0xFFFD;
    if (cp < 0x80) {
        out[0] = (char)cp;
        n = 1;
    } else if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 63));
        n = 2;
    } else if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 63));
        out[2] = (char)(0x80 | (cp & 63));
        n = 3;
    } else {
        out[0] = (char)(0xF0 | cp >> 18);
        out[1] = (char)(0x80 | (cp >> 12 & 63));
        out[2] = (char)(0x80 | (cp >> 6 & 63));
        out[3] = (char)(0x80 | (cp & 63));
        n = 4;
    }
    str_append(s, out, n);
}

/* How much of the text stands in JSON as it is. */
static size_t plain_bytes(const char *text, size_t bytes) {
    size_t n = 0;
    while (n < bytes && (unsigned char)text[n] >= 0x20 && (unsigned char)text[n] < 0x80 && text[n] != '"' &&
           text[n] != '\\')
        n++;
    return n;
}

void str_put_json(str *s, const char *text, size_t bytes) {
    str_push(s, '"');
    for (size_t i = 0; i < bytes;) {
        size_t plain = plain_bytes(text + i, bytes - i);
        str_append(s, text + i, plain);
        i += plain;
        if (i == bytes) break;
        unsigned char c = (unsigned char)text[i];
        if (c < 0x80) {
            switch (c) {
            case '"': str_append(s, "\\\"", 2); break;
            case '\\': str_append(s, "\\\\", 2); break;
            case '\n': str_append(s, "\\n", 2); break;
            case '\r': str_append(s, "\\r", 2); break;
            case '\t': str_append(s, "\\t", 2); break;
            case '\b': str_append(s, "\\b", 2); break;
            case '\f': str_append(s, "\\f", 2); break;
            default: {
                char hex[6] = { '\\', 'u', '0', '0', (char)('0' + (c >> 4)), "0123456789abcdef"[c & 15] };
                str_append(s, hex, sizeof hex);
            }
            }
            i++;
        } else {
            unsigned cp;
            size_t   n = utf8_decode(text + i, bytes - i, &cp);
            if (n)
                str_append(s, text + i, n);
            else
                str_put_utf8(s, 0xFFFD);
            i += n ? n : 1;
        }
    }
    str_push(s, '"');
}

void str_put_real(str *s, double v) {
    char text[40];
    snprintf(text, sizeof text, "%.15g", v);
    if (strtod(text, NULL) != v) snprintf(text, sizeof text, "%.17g", v);
    str_puts(s, text);
}

const char *str_cstr(const str *s) { return s->data ? s->data : ""; }

char *str_take(str *s) {
    if (s->failed || (!s->data && !str_reserve(s, 0))) {
        str_deinit(s);
        return NULL;
    }
    char *data = s->data;
    data[s->len] = '\0';
    *s = (str){ .limit = s->limit };
    return data;
}

bool str_ok(const str *s) { return !s->failed; }

view view_of(const char *text) { return (view){ text, strlen(text) }; }

bool view_eq(view a, view b) { return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0); }

bool view_eq_c(view a, const char *text) { return view_eq(a, view_of(text)); }

bool view_starts(view a, const char *prefix) {
    size_t n = strlen(prefix);
    return a.len >= n && memcmp(a.data, prefix, n) == 0;
}

bool view_ends(view a, const char *suffix) {
    size_t n = strlen(suffix);
    return a.len >= n && memcmp(a.data + a.len - n, suffix, n) == 0;
}

size_t utf8_decode(const char *text, size_t bytes, unsigned *out) {
    const unsigned char *p = (const unsigned char *)text;
    unsigned             cp;
    size_t               n;
    if (bytes == 0) return 0;
    if (p[0] < 0x80) {
        *out = p[0];
        return 1;
    }
    if (p[0] >= 0xC2 && p[0] <= 0xDF) {
        n = 2;
        cp = p[0] & 0x1Fu;
    } else if ((p[0] & 0xF0) == 0xE0) {
        n = 3;
        cp = p[0] & 0x0Fu;
    } else if (p[0] >= 0xF0 && p[0] <= 0xF4) {
        n = 4;
        cp = p[0] & 0x07u;
    } else {
        return 0;
    }
    if (bytes < n) return 0;
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xC0) != 0x80) return 0;
        cp = cp << 6 | (p[i] & 0x3Fu);
    }
    static const unsigned smallest[] = { 0, 0, 0x80, 0x800, 0x10000 };
    if (cp < smallest[n] || cp > 0x10FFFF || (cp >= 0xD800 && cp <= 0xDFFF)) return 0;
    *out = cp;
    return n;
}
