/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of LFM2 (Python) and Gemma 4 (its own notation) as JSON; see values.h. */
#include "chat/partial.h"
#include "chat/values.h"

#include <string.h>

enum { MAX_DEPTH = 64 };

#define QUOTE "<|\"|>"
enum { QUOTE_LEN = 5 };

typedef struct reader {
    const char *p, *end;
    bool        gemma, unfinished; /* unfinished: the text ended inside a string */
    bool        partial;           /* the text may end anywhere: out gets as much as is certain */
    int         depth;
    view        called; /* the name of the call that is being read, once it is known */
    str        *out;
} reader;

static void space(reader *r) {
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\n' || *r->p == '\r' || *r->p == '\t')) r->p++;
}

static bool take(reader *r, char c) {
    space(r);
    if (r->p == r->end || *r->p != c) return false;
    r->p++;
    return true;
}

static bool next_is(reader *r, char c) {
    space(r);
    return r->p < r->end && *r->p == c;
}

static bool take_text(reader *r, const char *text) {
    size_t n = strlen(text), have = (size_t)(r->end - r->p);
    if (have < n && r->partial && memcmp(r->p, text, have) == 0) r->p = r->end;
    if (have < n || memcmp(r->p, text, n) != 0) return false;
    r->p += n;
    return true;
}

static bool name_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '-' || (unsigned char)c >= 0x80;
}

static view name(reader *r) {
    space(r);
    view v = { r->p, 0 };
    while (r->p < r->end && name_byte(*r->p)) r->p++;
    v.len = (size_t)(r->p - v.data);
    return v;
}

/* --- strings --- */

static bool hex(reader *r, int n, unsigned *out) {
    *out = 0;
    for (int i = 0; i < n; i++) {
        char     c = r->p < r->end ? *r->p : '\0';
        unsigned d = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                     : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a' + 10)
                     : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A' + 10)
                                            : 16u;
        if (d == 16) return false;
        *out = *out << 4 | d;
        r->p++;
    }
    return true;
}

static bool escape(reader *r, str *text) {
    static const char from[] = "ntrbfav0", to[] = "\n\t\r\b\f\a\v\0";
    unsigned          u, low;
    char              c = r->p < r->end ? *r->p++ : '\0';
    const char       *plain = c ? strchr(from, c) : NULL;
    if (plain) {
        str_push(text, to[plain - from]);
    } else if (c == 'x' || c == 'u' || c == 'U') {
        if (!hex(r, c == 'x' ? 2 : c == 'u' ? 4 : 8, &u)) return false;
        if (u >= 0xd800 && u < 0xdc00 && r->end - r->p >= 6 && r->p[0] == '\\' && r->p[1] == 'u') {
            r->p += 2;
            if (!hex(r, 4, &low)) return false;
            if (low >= 0xdc00 && low < 0xe000)
                u = 0x10000 + ((u - 0xd800) << 10) + (low - 0xdc00);
            else {
                str_put_utf8(text, 0xfffd);
                u = low;
            }
        }
        str_put_utf8(text, u);
    } else if (c == '\\' || c == '\'' || c == '"' || c == '/') {
        str_push(text, c);
    } else if (c) { /* Python keeps an unknown escape as it is */
        str_push(text, '\\');
        if (c != '\n')
            str_push(text, c);
        else
            text->len--; /* a continued line */
    }
    return c != '\0';
}

/* Models write quotes inside strings without escaping them; one that ends the string is followed by what may follow. */
static bool ends_string(const reader *r) {
    const char *p = r->p;
    while (p < r->end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
    return p == r->end || (*p && strchr(",)]}:", *p));
}

static void string_unfinished(reader *r, const char *text, size_t n) {
    r->unfinished = true;
    if (!r->partial) return;
    r->p = r->end;
    str_push(r->out, '"');
    chat_string_to_json((view){ text, n }, r->out);
}

static bool quoted(reader *r) {
    char q = *r->p++;
    str  text;
    bool ok = false;
    str_init(&text);
    while (r->p < r->end) {
        char c = *r->p++;
        if (c == q && ends_string(r) && !(r->partial && r->p == r->end)) {
            ok = true;
            break;
        }
        if (c != '\\')
            str_push(&text, c);
        else if (!escape(r, &text))
            break;
    }
    if (ok)
        str_put_json(r->out, str_cstr(&text), text.len);
    else
        string_unfinished(r, str_cstr(&text), text.len);
    r->out->failed |= text.failed;
    str_deinit(&text);
    return ok;
}

static bool gemma_string(reader *r) {
    const char *end = memmem(r->p, (size_t)(r->end - r->p), QUOTE, QUOTE_LEN);
    if (!end) {
        view rest = { r->p, (size_t)(r->end - r->p) };
        string_unfinished(r, rest.data, rest.len - chat_begun_marker(rest, QUOTE, 1));
        return false;
    }
    str_put_json(r->out, r->p, (size_t)(end - r->p));
    r->p = end + QUOTE_LEN;
    return true;
}

/* --- other values --- */

static bool digits(reader *r, str *text) {
    const char *from = r->p;
    while (r->p < r->end && *r->p >= '0' && *r->p <= '9') str_push(text, *r->p++);
    return r->p > from;
}

/* Python's numbers with a digit missing on one side of the point become JSON's. */
static bool number(reader *r) {
    str  text;
    bool whole, ok, fraction = true, exponent = true;
    str_init(&text);
    if (*r->p == '+')
        r->p++;
    else if (*r->p == '-')
        str_push(&text, *r->p++);
    size_t at = text.len;
    whole = digits(r, &text);
    if (!whole) str_push(&text, '0');
    if (text.len > at + 1 && text.data[at] == '0') whole = fraction = false; /* 007 is neither */
    if (r->p < r->end && *r->p == '.') {
        r->p++;
        str_push(&text, '.');
        if (!digits(r, &text)) {
            str_push(&text, '0');
            fraction = whole;
        }
    } else {
        fraction = fraction && whole;
    }
    if (r->p < r->end && (*r->p == 'e' || *r->p == 'E')) {
        str_push(&text, *r->p++);
        if (r->p < r->end && (*r->p == '+' || *r->p == '-')) str_push(&text, *r->p++);
        exponent = digits(r, &text);
    }
    ok = fraction && exponent;
    if (r->partial && r->p == r->end && r->p[-1] == '.') ok = false; /* the digit behind it was ours */
    if (ok) str_append(r->out, text.data, text.len);
    r->out->failed |= text.failed;
    str_deinit(&text);
    return ok;
}

static bool value(reader *r);

static bool list(reader *r, char close) {
    bool first = true;
    r->p++;
    str_push(r->out, '[');
    while (!next_is(r, close)) {
        if (!first && !take(r, ',')) return false;
        if (next_is(r, close)) break;
        if (!first) str_puts(r->out, ", ");
        if (!value(r)) return false;
        first = false;
    }
    r->p++;
    str_push(r->out, ']');
    return true;
}

static bool key(reader *r) {
    space(r);
    if (r->p == r->end) return false;
    if (r->gemma && take_text(r, QUOTE)) return gemma_string(r);
    if (r->p == r->end) return false;
    if (*r->p == '"' || *r->p == '\'') return quoted(r);
    if (!r->gemma) return false;
    const char *from = r->p;
    while (r->p < r->end && !strchr(":{}[],<\n", *r->p)) r->p++;
    if (r->p == from || (r->partial && r->p == r->end)) return false;
    str_put_json(r->out, from, (size_t)(r->p - from));
    return true;
}

static bool object(reader *r) {
    bool first = true;
    r->p++;
    str_push(r->out, '{');
    while (!next_is(r, '}')) {
        if (!first && !take(r, ',')) return false;
        if (next_is(r, '}')) break;
        if (!first) str_puts(r->out, ", ");
        if (!key(r) || !take(r, ':')) return false;
        str_puts(r->out, ": ");
        if (!value(r)) return false;
        first = false;
    }
    r->p++;
    str_push(r->out, '}');
    return true;
}

static bool word(reader *r) {
    static const char *const words[][2] = { { "True", "true" }, { "False", "false" }, { "None", "null" },
                                            { "true", "true" }, { "false", "false" }, { "null", "null" } };
    view                     v = name(r);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!view_eq_c(v, words[i][0])) continue;
        str_puts(r->out, words[i][1]);
        return true;
    }
    return false;
}

static bool value(reader *r) {
    bool ok;
    space(r);
    if (r->p == r->end || r->depth == MAX_DEPTH) return false;
    char c = *r->p;
    r->depth++;
    if (r->gemma && take_text(r, QUOTE))
        ok = gemma_string(r);
    else if (c == '"' || c == '\'')
        ok = quoted(r);
    else if (c == '[')
        ok = list(r, ']');
    else if (c == '(' && !r->gemma)
        ok = list(r, ')');
    else if (c == '{')
        ok = object(r);
    else if (c == '-' || c == '+' || c == '.' || (c >= '0' && c <= '9'))
        ok = number(r);
    else
        ok = word(r);
    r->depth--;
    return ok;
}

/* --- calls --- */

static bool python_call(reader *r, chat_call_sink sink, void *ctx) {
    view called = name(r);
    bool first = true;
    r->called = (view){ NULL, 0 };
    if (called.len == 0 || !take(r, '(')) return false;
    r->called = called;
    str_clear(r->out);
    str_push(r->out, '{');
    while (!next_is(r, ')')) {
        if (!first && !take(r, ',')) return false;
        if (next_is(r, ')')) break;
        view k = name(r);
        if (k.len == 0 || !take(r, '=')) return false;
        if (!first) str_puts(r->out, ", ");
        str_put_json(r->out, k.data, k.len);
        str_puts(r->out, ": ");
        if (!value(r)) return false;
        first = false;
    }
    r->p++;
    str_push(r->out, '}');
    r->called = (view){ NULL, 0 };
    return sink(ctx, called, (view){ r->out->data, r->out->len });
}

static bool python_calls(reader *r, chat_call_sink sink, void *ctx) {
    bool listed = take(r, '['), ok = python_call(r, sink, ctx);
    while (ok && (next_is(r, ',') || (!listed && next_is(r, ';')))) {
        r->p++;
        if (next_is(r, ']')) break;
        ok = python_call(r, sink, ctx);
    }
    if (listed) ok = ok && take(r, ']');
    space(r);
    return ok && r->p == r->end && !r->out->failed;
}

bool chat_python_calls(view text, chat_call_sink sink, void *ctx, bool *unfinished) {
    str    out;
    reader r = { .p = text.data, .end = text.data + text.len, .out = &out };
    str_init(&out);
    bool ok = python_calls(&r, sink, ctx);
    *unfinished = r.unfinished;
    str_deinit(&out);
    return ok;
}

/* What could not be read goes on behind the end of the text; and it is one of the tools, if it has a name. */
static bool give_begun(const reader *r, chat_call_sink begun, void *ctx) {
    return r->p == r->end && !r->out->failed &&
           (!r->called.len || begun(ctx, r->called, (view){ str_cstr(r->out), r->out->len }));
}

bool chat_python_begun(view text, chat_call_sink sink, chat_call_sink begun, void *ctx) {
    str    out;
    reader r = { .p = text.data, .end = text.data + text.len, .out = &out, .partial = true };
    str_init(&out);
    bool ok = python_calls(&r, sink, ctx) || give_begun(&r, begun, ctx);
    str_deinit(&out);
    return ok;
}

bool chat_python_value(view text, str *out) {
    reader r = { .p = text.data, .end = text.data + text.len, .out = out };
    bool   ok = value(&r);
    space(&r);
    return ok && r.p == r.end;
}

static bool gemma_call(reader *r, chat_call_sink sink, void *ctx) {
    space(r);
    if (!take_text(r, "call:")) return false;
    view called = name(r);
    if (called.len == 0 || !next_is(r, '{')) return false;
    r->called = called;
    bool ok = object(r);
    space(r);
    return ok && r->p == r->end && !r->out->failed && sink(ctx, called, (view){ r->out->data, r->out->len });
}

bool chat_gemma_call(view text, chat_call_sink sink, void *ctx, bool *unfinished) {
    str    out;
    reader r = { .p = text.data, .end = text.data + text.len, .gemma = true, .out = &out };
    str_init(&out);
    bool ok = gemma_call(&r, sink, ctx);
    *unfinished = r.unfinished;
    str_deinit(&out);
    return ok;
}

bool chat_gemma_begun(view text, chat_call_sink sink, chat_call_sink begun, void *ctx) {
    str    out;
    reader r = { .p = text.data, .end = text.data + text.len, .gemma = true, .out = &out, .partial = true };
    str_init(&out);
    bool ok = gemma_call(&r, sink, ctx) || give_begun(&r, begun, ctx);
    str_deinit(&out);
    return ok;
}
