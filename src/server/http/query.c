/* SPDX-License-Identifier: Apache-2.0 */
#include "server/http/query.h"

#include <string.h>

static int hex(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool decode(view in, char *out, size_t cap) {
    size_t n = 0;
    for (size_t i = 0; i < in.len; i++) {
        if (n + 1 >= cap) return false;
        if (in.data[i] != '%') {
            out[n++] = in.data[i];
            continue;
        }
        if (i + 2 >= in.len || hex(in.data[i + 1]) < 0 || hex(in.data[i + 2]) < 0) return false;
        out[n++] = (char)(hex(in.data[i + 1]) * 16 + hex(in.data[i + 2]));
        i += 2;
    }
    out[n] = '\0';
    return strlen(out) == n; /* no zero bytes inside */
}

bool query_get(view query, const char *name, char *out, size_t cap) {
    size_t n = strlen(name);
    for (size_t at = 0; at < query.len;) {
        size_t len = 0;
        while (at + len < query.len && query.data[at + len] != '&') len++;
        if (len > n && memcmp(query.data + at, name, n) == 0 && query.data[at + n] == '=')
            return decode((view){ query.data + at + n + 1, len - n - 1 }, out, cap);
        at += len + 1;
    }
    return false;
}
