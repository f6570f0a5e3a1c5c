/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Patterns of other programs in ECMA-262's dialect. The two differ in few places, and where they do the text is rewritten
 * so that it never allows more than its author said; what cannot be is refused by name.
 */
#include "grammar/lark.h"

#include <ctype.h>
#include <string.h>

typedef struct source {
    view        text;
    size_t      at;
    bool        any_case, dot_all, anchors;
    str        *out;
    const char *why; /* NULL: in order */
} source;

static bool is_letter(char c) { return isalpha((unsigned char)c) && (unsigned char)c < 0x80; }

static char other_case(char c) { return (char)(c ^ 0x20); }

/* Behind a backslash. White space of both dialects is ASCII's and more; only what they share is allowed. */
static void put_escape(source *s, bool in_class) {
    char c = s->at < s->text.len ? s->text.data[s->at++] : '\0';
    switch (c) {
    case '\0': s->why = "ends with a backslash"; return;
    case 's': str_puts(s->out, in_class ? " \\t\\n\\r\\f\\v" : "[ \\t\\n\\r\\f\\v]"); return;
    case 'S':
        if (in_class) s->why = "has \\S inside a class";
        str_puts(s->out, "[^\\s\\x1c-\\x1f\\x85]");
        return;
    case 'D':
    case 'W': s->why = "has \\D or \\W, which mean other characters elsewhere"; return;
    case 'd':
    case 'w':
    case 'n':
    case 'r':
    case 't':
    case 'f':
    case 'v':
    case 'x':
    case 'u': str_printf(s->out, "\\%c", c); return;
    default:
        if (isalnum((unsigned char)c))
            s->why = "has an escape that is not supported here";
        else
            str_printf(s->out, "\\%c", c);
    }
}

/* "[" was read. With any case, letters and ranges of letters stand there twice. */
static void put_class(source *s) {
    bool first = true;
    str_push(s->out, '[');
    if (s->at < s->text.len && s->text.data[s->at] == '^') str_push(s->out, s->text.data[s->at++]);
    for (; s->at < s->text.len && !s->why; first = false) {
        const char *p = s->text.data + s->at;
        size_t      left = s->text.len - s->at;
        if (*p == ']' && !first) {
            s->at++;
            str_push(s->out, ']');
            return;
        }
        if (*p == '[' || (left > 1 && (*p == '&' || *p == '-' || *p == '~') && p[1] == *p)) {
            s->why = "has a class inside a class";
        } else if (*p == '\\') {
            s->at++;
            put_escape(s, true);
        } else if (s->any_case && left > 2 && p[1] == '-' && p[2] != ']') {
            bool letters =
                is_letter(p[0]) && is_letter(p[2]) && !islower((unsigned char)p[0]) == !islower((unsigned char)p[2]);
            if (!letters && (is_letter(p[0]) || is_letter(p[2]) || p[2] == '\\'))
                s->why = "has a range of mixed characters";
            str_printf(s->out, "%.3s", p);
            if (letters) str_printf(s->out, "%c-%c", other_case(p[0]), other_case(p[2]));
            s->at += 3;
        } else {
            if (*p == ']') str_push(s->out, '\\');
            str_push(s->out, *p);
            if (s->any_case && is_letter(*p)) str_push(s->out, other_case(*p));
            s->at++;
        }
    }
    if (!s->why) s->why = "has a class that is not closed";
}

static void put_char(source *s) {
    char c = s->text.data[s->at++];
    if (c == '\\')
        put_escape(s, false);
    else if (c == '[')
        put_class(s);
    else if (c == '.')
        str_puts(s->out, s->dot_all ? "[\\s\\S]" : "[^\\n]");
    else if (c == '(' && s->at < s->text.len && s->text.data[s->at] == '?' &&
             (s->at + 1 >= s->text.len || s->text.data[s->at + 1] != ':'))
        s->why = "has a group that begins with (? and something other than a colon";
    else if ((c == '^' || c == '$') && !s->anchors)
        s->why = "has an anchor inside a grammar";
    else if (s->any_case && is_letter(c))
        str_printf(s->out, "[%c%c]", c, other_case(c));
    else
        str_push(s->out, c);
}

int grammar_plain_pattern(view pattern, view flags, bool anchors, str *out, err *e) {
    source s = { .text = pattern, .out = out, .anchors = anchors };
    int    shown = pattern.len < 80 ? (int)pattern.len : 80;
    for (size_t i = 0; i < flags.len; i++) {
        if (flags.data[i] == 'i')
            s.any_case = true;
        else if (flags.data[i] == 's')
            s.dot_all = true;
        else if (flags.data[i] != 'u')
            return err_set(e, ERR_UNSUPPORTED, "the flag %c of a pattern is not supported", flags.data[i]);
    }
    while (s.at < pattern.len && !s.why) put_char(&s);
    if (s.why) return err_set(e, ERR_UNSUPPORTED, "the pattern %.*s %s", shown, pattern.data, s.why);
    return str_ok(out) ? 0 : err_set_nomem(e);
}
