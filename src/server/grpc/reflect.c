/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reflection (grpc.reflection.v1 and v1alpha, which differ in their names only): programs such as grpcurl ask a server
 * what it has. Files are described from the tables, byte for byte as protoc describes proto/.
 */
#include "server/grpc/grpc.h"
#include "server/internal.h"

#include <string.h>

/* --- descriptor.proto --- */

enum { FILE_NAME = 1, FILE_PACKAGE, FILE_IMPORT, FILE_MESSAGE, FILE_ENUM, FILE_SERVICE, FILE_SYNTAX = 12 };
enum { MESSAGE_NAME = 1, MESSAGE_FIELD, MESSAGE_NESTED, MESSAGE_ENUM, MESSAGE_OPTIONS = 7, MESSAGE_ONEOF };
enum {
    FIELD_NAME = 1,
    FIELD_NUMBER = 3,
    FIELD_LABEL,
    FIELD_TYPE,
    FIELD_TYPE_NAME,
    FIELD_ONEOF = 9,
    FIELD_JSON_NAME,
    FIELD_OPTIONAL = 17
};
enum { ENUM_NAME = 1, ENUM_VALUE };
enum { SERVICE_NAME = 1, SERVICE_METHOD };
enum { METHOD_NAME = 1, METHOD_INPUT, METHOD_OUTPUT, METHOD_CLIENT_STREAMS = 5, METHOD_SERVER_STREAMS };
enum { LABEL_ONE = 1, LABEL_REPEATED = 3, OPTIONS_MAP_ENTRY = 7 };

static const char *short_name(const char *full) {
    const char *dot = strrchr(full, '.');
    return dot ? dot + 1 : full;
}

static void put_type_name(str *out, int number, const char *full) {
    size_t at = pb_open(out, number);
    str_printf(out, ".%s", full);
    pb_close(out, at);
}

/* Zero counts, too. */
static void put_number(str *out, int number, int64_t v) {
    pb_put_tag(out, number, PB_VARINT);
    pb_put_varint(out, (uint64_t)v);
}

/* Which of the message's groups, in the order of their first fields; -1: none. */
static int oneof_index(const pb_message *m, const char *name) {
    const char *last = NULL;
    int         n = -1;
    for (const pb_field *f = m->fields; f->number; f++) {
        if (!f->oneof || (last && strcmp(f->oneof, last) == 0)) continue;
        last = f->oneof;
        n++;
        if (name && strcmp(name, last) == 0) return n;
    }
    return name ? -1 : n + 1;
}

/* "top_k" is "topK". */
static void put_json_name(str *out, const char *name) {
    size_t at = pb_open(out, FIELD_JSON_NAME);
    for (const char *p = name; *p; p++) {
        if (*p == '_' && p[1]) {
            p++;
            str_push(out, (char)(*p >= 'a' && *p <= 'z' ? *p - 32 : *p));
        } else {
            str_push(out, *p);
        }
    }
    pb_close(out, at);
}

static void put_enum(str *out, int number, const pb_enum *e) {
    size_t at = pb_open(out, number);
    pb_put_text(out, ENUM_NAME, view_of(e->name));
    for (int i = 0; e->values[i]; i++) {
        size_t value = pb_open(out, ENUM_VALUE);
        pb_put_text(out, 1, view_of(e->values[i]));
        put_number(out, 2, i);
        pb_close(out, value);
    }
    pb_close(out, at);
}

/* optional: the number of its own group, which comes behind all others; -1: it has none. */
static void put_field(str *out, const grpc_file *file, const pb_message *m, const pb_field *f, int optional) {
    size_t at = pb_open(out, MESSAGE_FIELD);
    pb_put_text(out, FIELD_NAME, view_of(f->name));
    pb_put_int(out, FIELD_NUMBER, f->number);
    pb_put_int(out, FIELD_LABEL, f->flags & PB_REPEATED ? LABEL_REPEATED : LABEL_ONE);
    pb_put_int(out, FIELD_TYPE, f->type);
    if (f->message) {
        put_type_name(out, FIELD_TYPE_NAME, f->message->name);
    } else if (f->values) {
        size_t name = pb_open(out, FIELD_TYPE_NAME);
        str_printf(out, ".%s.%s", m->nested == f->values ? m->name : file->package, f->values->name);
        pb_close(out, name);
    }
    if (f->oneof) put_number(out, FIELD_ONEOF, oneof_index(m, f->oneof));
    if (optional >= 0) put_number(out, FIELD_ONEOF, optional);
    put_json_name(out, f->name);
    if (optional >= 0) put_number(out, FIELD_OPTIONAL, 1);
    pb_close(out, at);
}

static void put_oneof(str *out, const char *before, const char *name) {
    size_t at = pb_open(out, MESSAGE_ONEOF), inner = pb_open(out, 1);
    str_printf(out, "%s%s", before, name);
    pb_close(out, inner);
    pb_close(out, at);
}

static void put_message(str *out, int number, const grpc_file *file, const pb_message *m, bool entry) {
    size_t      at = pb_open(out, number);
    int         n = oneof_index(m, NULL);
    const char *last = NULL;
    pb_put_text(out, MESSAGE_NAME, view_of(short_name(m->name)));
    for (const pb_field *f = m->fields; f->number; f++) put_field(out, file, m, f, f->flags & PB_OPTIONAL ? n++ : -1);
    for (const pb_field *f = m->fields; f->number; f++) {
        if (f->flags & PB_MAP) put_message(out, MESSAGE_NESTED, file, f->message, true);
    }
    if (m->nested) put_enum(out, MESSAGE_ENUM, m->nested);
    if (entry) {
        size_t options = pb_open(out, MESSAGE_OPTIONS);
        put_number(out, OPTIONS_MAP_ENTRY, 1);
        pb_close(out, options);
    }
    for (const pb_field *f = m->fields; f->number; f++) {
        if (f->oneof && (!last || strcmp(last, f->oneof) != 0)) put_oneof(out, "", last = f->oneof);
    }
    for (const pb_field *f = m->fields; f->number; f++) {
        if (f->flags & PB_OPTIONAL) put_oneof(out, "_", f->name);
    }
    pb_close(out, at);
}

static void put_service(str *out, const grpc_service *s) {
    size_t at = pb_open(out, FILE_SERVICE);
    pb_put_text(out, SERVICE_NAME, view_of(short_name(s->name)));
    for (size_t i = 0; i < s->n_methods; i++) {
        const grpc_method *m = &s->methods[i];
        size_t             one = pb_open(out, SERVICE_METHOD);
        pb_put_text(out, METHOD_NAME, view_of(m->name));
        put_type_name(out, METHOD_INPUT, m->in->name);
        put_type_name(out, METHOD_OUTPUT, m->out->name);
        pb_put_int(out, METHOD_CLIENT_STREAMS, m->client_streams);
        pb_put_int(out, METHOD_SERVER_STREAMS, m->server_streams);
        pb_close(out, one);
    }
    pb_close(out, at);
}

void reflect_file(const grpc_file *f, str *out) {
    pb_put_text(out, FILE_NAME, view_of(f->path));
    pb_put_text(out, FILE_PACKAGE, view_of(f->package));
    for (const char *const *i = f->imports; *i; i++) pb_put_text(out, FILE_IMPORT, view_of(*i));
    for (const pb_message *const *m = f->messages; *m; m++) put_message(out, FILE_MESSAGE, f, *m, false);
    if (f->enumeration) put_enum(out, FILE_ENUM, f->enumeration);
    for (const grpc_service *const *s = f->services; *s; s++) put_service(out, *s);
    pb_put_text(out, FILE_SYNTAX, view_of("proto3"));
}

/* --- what is asked --- */

enum { MAX_ANSWERS = 1 << 20 };

enum { ASK_HOST = 1, ASK_FILE = 3, ASK_SYMBOL = 4, ASK_EXTENSION = 5, ASK_EXTENSIONS = 6, ASK_SERVICES = 7 };
enum { TELL_HOST = 1, TELL_ASKED, TELL_FILES = 4, TELL_SERVICES = 6, TELL_ERROR = 7 };

static const grpc_file *file_by_path(view path) {
    for (const grpc_file *const *f = grpc_files; *f; f++) {
        if ((*f)->path && view_eq_c(path, (*f)->path)) return *f;
    }
    return NULL;
}

/* The name itself, or something inside of it. */
static bool covers(const char *name, view symbol) {
    size_t n = strlen(name);
    return symbol.len >= n && memcmp(symbol.data, name, n) == 0 && (symbol.len == n || symbol.data[n] == '.');
}

static const grpc_file *file_of_symbol(view symbol) {
    for (const grpc_file *const *f = grpc_files; *f; f++) {
        if (!(*f)->path) continue;
        for (const grpc_service *const *s = (*f)->services; *s; s++) {
            if (covers((*s)->name, symbol)) return *f;
        }
        for (const pb_message *const *m = (*f)->messages; *m; m++) {
            if (covers((*m)->name, symbol)) return *f;
        }
        size_t n = strlen((*f)->package);
        if ((*f)->enumeration && covers((*f)->package, symbol) && symbol.len > n + 1 &&
            covers((*f)->enumeration->name, (view){ symbol.data + n + 1, symbol.len - n - 1 }))
            return *f;
    }
    return NULL;
}

static void put_file(str *out, const grpc_file *f) {
    size_t at = pb_open(out, 1);
    reflect_file(f, out);
    pb_close(out, at);
    for (const char *const *i = f->imports; *i; i++) put_file(out, file_by_path(view_of(*i)));
}

static void put_files(str *out, const grpc_file *f) {
    size_t at = pb_open(out, TELL_FILES);
    put_file(out, f);
    pb_close(out, at);
}

static void put_services(str *out) {
    size_t at = pb_open(out, TELL_SERVICES);
    for (const grpc_file *const *f = grpc_files; *f; f++) {
        for (const grpc_service *const *s = (*f)->services; *s; s++) {
            size_t one = pb_open(out, 1);
            pb_put_text(out, 1, view_of((*s)->name));
            pb_close(out, one);
        }
    }
    pb_close(out, at);
}

static void put_error(str *out, int code, const char *text) {
    size_t at = pb_open(out, TELL_ERROR);
    pb_put_int(out, 1, code);
    pb_put_text(out, 2, view_of(text));
    pb_close(out, at);
}

static bool answer(view message, str *out) {
    enum { NOT_FOUND = 5, UNIMPLEMENTED = 12 };
    pb_reader        r = pb_reader_of(message);
    pb_item          it;
    view             valid = { "", 0 }, name = { "", 0 };
    uint32_t         asked = 0;
    const grpc_file *f = NULL;
    while (pb_next(&r, &it)) {
        if (it.wire != PB_LENGTH || it.number > ASK_SERVICES) continue;
        if (it.number == ASK_HOST) {
            valid = it.bytes;
        } else {
            asked = it.number;
            name = it.bytes;
        }
    }
    if (r.failed || !pb_is_utf8(valid) || !pb_is_utf8(name)) return false;
    size_t at = grpc_open(out);
    pb_put_text(out, TELL_HOST, valid);
    pb_put_text(out, TELL_ASKED, message);
    if (asked == ASK_FILE) f = file_by_path(name);
    if (asked == ASK_SYMBOL) f = file_of_symbol(name);
    if (asked == ASK_SERVICES)
        put_services(out);
    else if (f)
        put_files(out, f);
    else if (asked == ASK_EXTENSION || asked == 0)
        put_error(out, UNIMPLEMENTED, "this question is not known here");
    else
        put_error(out, NOT_FOUND, "there is nothing of this name");
    grpc_close(out, at);
    return true;
}

/* Whenever more has come: answers the questions that are complete. Answers are much longer than questions. */
void reflect_call(exchange *x) {
    str *body = &x->http->body, out;
    view rest = { str_cstr(body), body->len }, message;
    err  e = { 0 };
    str_init(&out);
    while (!e.code && grpc_next(&rest, &message, &e)) {
        if (!answer(message, &out)) err_set(&e, ERR_FORMAT, "the bytes are not a message of reflection");
        if (out.len > MAX_ANSWERS || !str_ok(&out)) err_set(&e, ERR_BUSY, "these are too many questions at once");
    }
    if (e.code) {
        exchange_fail(x, &e);
    } else if (out.len) {
        exchange_begin_stream(x);
        exchange_put(x, out.data, out.len);
    }
    str_deinit(&out);
    size_t used = body->len - rest.len;
    if (used) memmove(body->data, body->data + used, rest.len);
    body->len = rest.len;
}
