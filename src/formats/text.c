/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/text.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

static bool is_control(unsigned cp) {
    return cp < 0x20 || (cp >= 0x7F && cp < 0xA0) || cp == 0x2028 || cp == 0x2029 || (cp >= 0x202A && cp <= 0x202E) ||
           (cp >= 0x2066 && cp <= 0x2069); /* the last three: line breaks and direction overrides */
}

int text_name_check(view name, size_t max, err *e) {
    if (name.len == 0) return err_set(e, ERR_FORMAT, "its name is empty");
    if (name.len > max) return err_set(e, ERR_FORMAT, "its name has %zu bytes; the limit is %zu", name.len, max);
    for (size_t i = 0; i < name.len;) {
        unsigned cp;
        size_t   n = utf8_decode(name.data + i, name.len - i, &cp);
        if (n == 0) return err_set(e, ERR_FORMAT, "its name is not valid UTF-8 (byte %zu)", i);
        if (is_control(cp)) return err_set(e, ERR_FORMAT, "its name holds the control character U+%04X", cp);
        i += n;
    }
    return 0;
}

/* The next character of text at i, printable, into out (at most 4 * 4 + 1 bytes); returns the bytes of text consumed.
 */
static size_t safe_char(char out[20], view text, size_t i) {
    unsigned cp;
    size_t   n = utf8_decode(text.data + i, text.len - i, &cp), used = 0;
    if (n > 0 && !is_control(cp)) {
        memcpy(out, text.data + i, n);
        out[n] = '\0';
        return n;
    }
    if (n == 0) n = 1;
    for (size_t k = 0; k < n; k++)
        used += (size_t)snprintf(out + used, 20 - used, "\\x%02X", (uint8_t)text.data[i + k]);
    return n;
}

const char *text_safe(char *buffer, size_t cap, view text) {
    char   piece[20];
    size_t used = 0;
    for (size_t i = 0; i < text.len;) {
        size_t n = safe_char(piece, text, i), len = strlen(piece);
        if (used + len + 4 > cap) {
            memcpy(buffer + used, "...", 3);
            used += 3;
            break;
        }
        memcpy(buffer + used, piece, len);
        used += len;
        i += n;
    }
    buffer[used] = '\0';
    return buffer;
}

void text_put_safe(str *out, view text) {
    char piece[20];
    for (size_t i = 0; i < text.len;) {
        i += safe_char(piece, text, i);
        str_puts(out, piece);
    }
}
