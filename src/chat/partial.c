/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/partial.h"

#include "base/arena.h"
#include "chat/values.h"

#include <string.h>

size_t chat_begun_marker(view text, const char *marker, size_t least) {
    size_t n = strlen(marker) - 1;
    if (n > text.len) n = text.len;
    while (n >= least && n > 0 && memcmp(text.data + text.len - n, marker, n) != 0) n--;
    return n >= least ? n : 0;
}

void chat_json_begun(view text, str *out) {
    chat_json_scan s;
    chat_scan      r = CHAT_SCAN_MORE;
    str            copy; /* white space in front of a value is left out where nothing stands before it */
    str_init(&copy);
    chat_json_scan_init(&s);
    for (size_t i = 0; i < text.len && r == CHAT_SCAN_MORE; i++) r = chat_json_scan_byte(&s, text.data[i], &copy);
    str_append(out, str_cstr(&copy), copy.len);
    out->failed |= copy.failed;
    str_deinit(&copy);
}

/* How much of an unfinished string can be closed: no half escape, and no half pair of them, at its end. */
static size_t whole_escapes(const char *text, size_t n, bool in_escape) {
    unsigned high = 0;
    if (in_escape) {
        while (n && text[n - 1] != '\\') n--;
        if (n) n--;
    }
    if (n < 6 || text[n - 6] != '\\' || text[n - 5] != 'u') return n;
    size_t before = n - 6;
    while (before && text[before - 1] == '\\') before--;
    if ((n - 6 - before) % 2) return n; /* the backslash is itself escaped */
    for (size_t i = n - 4; i < n; i++) {
        char c = text[i];
        high = high << 4 | (unsigned)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    }
    return high >= 0xd800 && high < 0xdc00 ? n - 6 : n;
}

static void put_brackets(const chat_json_scan *s, str *out) {
    for (size_t i = s->n_depth; i-- > 0;) str_push(out, s->is_object[i] ? '}' : ']');
}

/* good: how much of what was written can be followed by closing brackets. No bracket opens or closes behind it. */
void chat_json_close(view text, bool keep_strings, str *out) {
    chat_json_scan s;
    chat_scan      r = CHAT_SCAN_MORE;
    chat_place     place = CHAT_PLACE_OPEN;
    size_t         good = 0;
    str            copy;
    str_init(&copy);
    chat_json_scan_init(&s);
    for (size_t i = 0; i < text.len && r == CHAT_SCAN_MORE; i++) {
        size_t before = copy.len;
        bool   number = place == CHAT_PLACE_NUMBER;
        r = chat_json_scan_byte(&s, text.data[i], &copy);
        place = chat_json_scan_place(&s);
        if (number && place != CHAT_PLACE_NUMBER) good = before;
        if (place == CHAT_PLACE_CLOSES) good = copy.len;
    }
    bool open_string = keep_strings && place == CHAT_PLACE_STRING;
    if (open_string) good = whole_escapes(str_cstr(&copy), copy.len, s.escape != 0);
    if (s.kind == '{' && r != CHAT_SCAN_BAD) {
        str_append(out, str_cstr(&copy), good);
        if (open_string) str_push(out, '"');
        put_brackets(&s, out);
    } else {
        str_puts(out, "{}");
    }
    out->failed |= copy.failed;
    str_deinit(&copy);
}

void chat_json_string_begun(view quoted, str *out) {
    const json_value *v;
    chat_json_scan    s;
    chat_scan         r = CHAT_SCAN_MORE;
    str               copy;
    arena             a;
    arena_init(&a, 0);
    str_init(&copy);
    chat_json_scan_init(&s);
    for (size_t i = 0; i < quoted.len && r == CHAT_SCAN_MORE; i++) r = chat_json_scan_byte(&s, quoted.data[i], &copy);
    if (chat_json_scan_place(&s) == CHAT_PLACE_STRING) {
        copy.len = whole_escapes(str_cstr(&copy), copy.len, s.escape != 0);
        str_push(&copy, '"');
    }
    int rc = json_parse(&v, str_cstr(&copy), copy.len, &a, NULL);
    if (rc == 0 && json_is(v, JSON_K_STRING)) str_append(out, v->u.string.data, v->u.string.len);
    out->failed |= copy.failed || rc == ERR_NOMEM;
    str_deinit(&copy);
    arena_deinit(&a);
}
