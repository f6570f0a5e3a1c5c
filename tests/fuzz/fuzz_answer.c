/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any text as an answer in every syntax: cut anywhere it gives the same events, with arguments streamed or held; calls
 * name offered tools and their arguments are JSON objects, or begin one where the answer was cut off. Bytes: syntax, flags, seed of the cuts, then the text.
 */
#include "chat/parser.h"
#include "chat/partial.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char TOOLS[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{"
    "\"type\":\"integer\"},\"s\":{\"type\":\"string\"},\"o\":{\"type\":\"object\"},\"u\":{\"type\":[\"string\","
    "\"null\"]}}}}"
    "},{\"type\":\"function\",\"function\":{\"name\":\"g\"}}]";

static bool limit; /* the answer was cut off */

typedef struct record {
    str  lines, text, call, arguments;
    int  kind, open, next;
    bool stream, valid;
} record;

static void check(bool ok) {
    if (!ok) abort();
}

static void flush(record *r) {
    if (r->kind) {
        str_push(&r->lines, (char)r->kind);
        str_append(&r->lines, str_cstr(&r->text), r->text.len);
        str_push(&r->lines, '\n');
    }
    r->kind = 0;
    str_clear(&r->text);
}

static void check_object(const str *text) {
    const json_value *v;
    arena             a;
    arena_init(&a, 0);
    check(json_parse(&v, str_cstr(text), text->len, &a, NULL) == 0 && json_is(v, JSON_K_OBJECT));
    arena_deinit(&a);
}

static void check_call(const record *r, bool cut) {
    view arguments = { str_cstr(&r->arguments), r->arguments.len };
    str  begun, closed;
    if (!r->valid) return;
    if (!cut) {
        check_object(&r->arguments);
        return;
    }
    str_init(&begun);
    str_init(&closed);
    chat_json_begun(arguments, &begun);
    check(view_eq_c(arguments, str_cstr(&begun)));
    chat_json_close(arguments, false, &closed);
    check_object(&closed);
    str_clear(&closed);
    chat_json_close(arguments, true, &closed);
    check_object(&closed);
    str_deinit(&begun);
    str_deinit(&closed);
}

static void sink(void *ctx, const chat_event *ev) {
    record *r = ctx;
    if (ev->part == CHAT_CONTENT || ev->part == CHAT_REASONING) {
        int kind = ev->part == CHAT_CONTENT ? 'C' : 'R';
        check(ev->text.len > 0 && r->open < 0);
        if (r->kind != kind) flush(r);
        r->kind = kind;
        str_append(&r->text, ev->text.data, ev->text.len);
        return;
    }
    if (ev->part == CHAT_TOOL_BEGIN) {
        check(r->open < 0 && ev->index == r->next++ && (view_eq_c(ev->name, "f") || view_eq_c(ev->name, "g")));
        r->open = ev->index;
        str_clear(&r->call);
        str_clear(&r->arguments);
        str_push(&r->call, 'T');
        str_append(&r->call, ev->name.data, ev->name.len);
        str_push(&r->call, ' ');
        str_append(&r->call, ev->id.data, ev->id.len);
        str_push(&r->call, ' ');
        return;
    }
    check(ev->index == r->open);
    if (ev->part == CHAT_TOOL_ARGUMENTS) {
        str_append(&r->arguments, ev->text.data, ev->text.len);
        return;
    }
    check(ev->part != CHAT_TOOL_FAILED || r->stream);
    check(ev->part != CHAT_TOOL_CUT || limit);
    if (ev->part != CHAT_TOOL_FAILED) {
        check_call(r, ev->part == CHAT_TOOL_CUT);
        flush(r);
        if (ev->part == CHAT_TOOL_CUT) r->call.data[0] = 'X';
        str_append(&r->lines, r->call.data, r->call.len);
        str_append(&r->lines, str_cstr(&r->arguments), r->arguments.len);
        str_push(&r->lines, '\n');
    }
    r->open = -1;
}

static bool is_utf8(const char *text, size_t n) {
    unsigned c;
    for (size_t i = 0, k; i < n; i += k) {
        if ((k = utf8_decode(text + i, n - i, &c)) == 0) return false;
    }
    return true;
}

static void parse(const chat_format *f, chat_parser_options o, const char *text, size_t n, unsigned seed, str *out) {
    chat_parser *p;
    record       r = { .open = -1, .stream = o.stream_arguments, .valid = is_utf8(text, n) };
    check(chat_parser_open(&p, f, &o, sink, &r, NULL) == 0);
    for (size_t at = 0; at < n;) {
        size_t k = n - at;
        if (seed) {
            seed = seed * 1103515245u + 12345u;
            size_t piece = 1 + (seed >> 16) % 7;
            if (piece < k) k = piece;
        }
        check(chat_parser_feed(p, text + at, k, NULL) == 0);
        at += k;
    }
    check(chat_parser_finish(p, limit, NULL) == 0);
    flush(&r);
    check(r.open < 0);
    chat_parser_free(p);
    *out = r.lines;
    str_deinit(&r.text);
    str_deinit(&r.call);
    str_deinit(&r.arguments);
}

/* The texts of templates from which each format would be found. */
static void make_format(chat_format *f, unsigned syntax, unsigned flags) {
    memset(f, 0, sizeof *f);
    f->syntax = (chat_syntax)(syntax % CHAT_SYNTAX_COUNT);
    f->row = chat_syntax_get(f->syntax);
    if (flags & 1) return;
    if (f->syntax == CHAT_SYNTAX_TOOL_CALLS) {
        f->think_open = "Here are my reasoning steps:\n";
        f->think_close = "[BEGIN FINAL RESPONSE]";
        f->think_implicit = true;
    } else {
        f->think_open = f->syntax == CHAT_SYNTAX_GEMMA4 ? "<|channel>thought" : "<think>";
        f->think_close = f->syntax == CHAT_SYNTAX_GEMMA4 ? "<channel|>" : "</think>";
        f->think_anywhere = f->row->special;
    }
    if (f->syntax == CHAT_SYNTAX_COMMAND_R) {
        f->content_open = "<|START_RESPONSE|>";
        f->content_close = "<|END_RESPONSE|>";
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const json_value *tools;
    static arena             a;
    chat_format              f;
    if (!tools) {
        arena_init(&a, 0);
        check(json_parse(&tools, TOOLS, sizeof TOOLS - 1, &a, NULL) == 0);
    }
    if (size < 3 || size > 4096) return 0;
    make_format(&f, data[0], data[1]);
    const char         *text = (const char *)data + 3;
    chat_parser_options o = { .tools = data[1] & 2 ? NULL : tools,
                              .starts_in_reasoning = data[1] & 4,
                              .plain_reasoning = data[1] & 8 };
    str                 whole, cut, streamed;
    limit = data[2] & 64;
    parse(&f, o, text, size - 3, 0, &whole);
    parse(&f, o, text, size - 3, 1u + data[2], &cut);
    o.stream_arguments = true;
    parse(&f, o, text, size - 3, 77u + data[2], &streamed);
    check(whole.len == cut.len && memcmp(str_cstr(&whole), str_cstr(&cut), whole.len) == 0);
    check(whole.len == streamed.len && memcmp(str_cstr(&whole), str_cstr(&streamed), whole.len) == 0);
    str_deinit(&whole);
    str_deinit(&cut);
    str_deinit(&streamed);
    return 0;
}
