/* SPDX-License-Identifier: Apache-2.0 */
#include "server/http/base64.h"

void base64_put(str *out, const void *data, size_t bytes) {
    static const char    digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i += 3) {
        unsigned v =
            (unsigned)p[i] << 16 | (i + 1 < bytes ? (unsigned)p[i + 1] << 8 : 0) | (i + 2 < bytes ? p[i + 2] : 0);
        char c[4] = { digits[v >> 18], digits[v >> 12 & 63], i + 1 < bytes ? digits[v >> 6 & 63] : '=',
                      i + 2 < bytes ? digits[v & 63] : '=' };
        str_append(out, c, 4);
    }
}
