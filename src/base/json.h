/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON of model files: a streaming reader, and a small tree built with it.
 *
 * Model files are untrusted, may be large (a tokenizer.json has tens of megabytes) and come from Python, whose json
 * module also writes NaN, Infinity and -Infinity. The reader walks the text in place, needs no memory of its own beyond
 * one buffer for strings with escapes, limits nesting to JSON_MAX_DEPTH and reports line and column. Keys may repeat;
 * the last one wins in the tree, as in Python. API bodies are not read with this (see server/).
 */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_MAX_DEPTH 128

typedef enum json_event {
    JSON_ERROR = -1, /* the reader's err says what and where; sticky */
    JSON_END = 0,    /* the single top-level value is complete and only white space follows */
    JSON_OBJECT_BEGIN,
    JSON_OBJECT_END,
    JSON_ARRAY_BEGIN,
    JSON_ARRAY_END,
    JSON_KEY,    /* r->text */
    JSON_STRING, /* r->text */
    JSON_INT,    /* r->integer; also r->real */
    JSON_REAL,   /* r->real; integers beyond int64 arrive here too */
    JSON_TRUE,
    JSON_FALSE,
    JSON_NULL,
} json_event;

typedef struct json_reader {
    view    text; /* of KEY and STRING: UTF-8, may hold NULs; valid until the next call */
    int64_t integer;
    double  real;
    size_t  pos;   /* offset of the next unread byte */
    size_t  start; /* offset where the last event's text begins */
    int     depth;

    const char *src;
    size_t      len;
    str         scratch;
    err         error;
    bool        failed, done, expect_value;
    uint8_t     stack[JSON_MAX_DEPTH]; /* '{' or '[' */
    bool        first;                 /* no member of the innermost container was read yet */
} json_reader;

void       json_reader_init(json_reader *r, const char *src, size_t len); /* src is borrowed */
void       json_reader_deinit(json_reader *r);
json_event json_next(json_reader *r);
/* Passes over the value that begins with the event just returned (a whole object or array). */
bool json_skip(json_reader *r, json_event begun);

typedef enum json_kind {
    JSON_K_NULL,
    JSON_K_BOOL,
    JSON_K_INT,
    JSON_K_REAL,
    JSON_K_STRING,
    JSON_K_ARRAY,
    JSON_K_OBJECT
} json_kind;

typedef struct json_value  json_value;
typedef struct json_member json_member;

struct json_value {
    json_kind kind;
    union {
        bool    boolean;
        int64_t integer;
        double  real;
        view    string; /* also NUL-terminated behind its end */
        struct {
            const json_value *items;
            size_t            count;
        } array;
        struct {
            const json_member *members; /* in the text's order */
            size_t             count;
        } object;
    } u;
};

struct json_member {
    view       key;
    json_value value;
};

/* Builds a tree in a; a's limit bounds its memory. On success *out lives as long as a. */
int json_parse(const json_value **out, const char *src, size_t len, arena *a, err *e);

/* Look-ups accept v == NULL and values of another kind, and give NULL, false or the default then. */
const json_value *json_get(const json_value *v, const char *key);
const json_value *json_at(const json_value *v, size_t index);
size_t            json_count(const json_value *v);
bool              json_is(const json_value *v, json_kind kind);
bool              json_int(const json_value *v, int64_t *out);   /* an integer, or a real with an integral value */
bool              json_number(const json_value *v, double *out); /* any number */
const char       *json_cstr(const json_value *v);                /* NULL unless a string */
bool              json_bool(const json_value *v, bool dflt);
void              json_write(const json_value *v, str *out); /* compact */

#endif
