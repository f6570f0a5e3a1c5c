/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON request bodies: parsed by jansson, read field by field, every mistake reported with its path.
 *
 * A node is a value with the way to it, so that a wrong one is named as the client wrote it:
 * "messages[2].content[0].type: expected a string". The reader keeps the first mistake; reading goes on without
 * effect, so an adapter reads everything and asks once at the end (reader.failed). A null counts as absent. Members of
 * the body that nobody asked for are known at the end (reader_unknown).
 *
 * Cost is bounded before jansson sees the text: nesting and the number of values. jansson itself stays inside
 * json_in.c, and grpc/pb_json.c, which makes such documents of other bytes.
 */
#ifndef SERVER_HTTP_JSON_IN_H
#define SERVER_HTTP_JSON_IN_H

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JSON_IN_MAX_DEPTH = 64, JSON_IN_MAX_VALUES = 1 << 20, JSON_IN_MAX_FIELDS = 96 };

struct json_t;
typedef struct json_doc {
    struct json_t *root;
} json_doc;

/* ERR_FORMAT with line and column, or ERR_LIMIT. */
int  json_doc_parse(json_doc *out, const char *text, size_t len, err *e);
void json_doc_deinit(json_doc *d);
/* Any value, within the same bounds. */
int json_value_parse(struct json_t **out, const char *text, size_t len, err *e);

typedef enum node_kind { NODE_ABSENT, NODE_BOOL, NODE_INT, NODE_REAL, NODE_STRING, NODE_ARRAY, NODE_OBJECT } node_kind;

typedef struct node node;
struct node {
    struct json_t *json; /* NULL: absent */
    const node    *up;
    const char    *key; /* NULL: an array's element */
    size_t         index;
};

typedef struct reader {
    bool        failed;
    char        param[160];               /* path of the field at fault; may be empty */
    char        message[480];             /* with the path in front */
    const char *seen[JSON_IN_MAX_FIELDS]; /* members of the root that were asked for */
    size_t      n_seen;
} reader;

node      node_root(const json_doc *d);
node_kind node_is(const node *n);
size_t    node_count(const node *n); /* of an array or object, else 0 */
node      node_at(const node *array, size_t index);
node      node_get(const node *object, const char *key); /* without marking it as seen */
view      node_text(const node *n);                      /* a string, else empty */
int64_t   node_int(const node *n);
double    node_real(const node *n);
bool      node_true(const node *n);
bool      node_next(const node *object, void **cursor, const char **key, node *out); /* cursor starts as NULL */
bool      node_set_json(const node *object, const char *key, view json);             /* false: out of memory */
bool      node_set_text(const node *object, const char *key, const char *text);      /* UTF-8; false: out of memory */
void      node_write(const node *n, str *out); /* compact JSON; "null" if absent */

void reader_init(reader *r);
/* Keeps the first mistake: "path: sentence". n may be NULL (no path). */
void reader_fail(reader *r, const node *n, const char *fmt, ...) BASE_PRINTF(3, 4);

/* A member, absent if it is not there, null, or the object is absent. */
node read_any(reader *r, const node *object, const char *key);
/* Each gives true if the member is there and right; a wrong one is reported. */
bool read_string(reader *r, const node *object, const char *key, view *out);
bool read_bool(reader *r, const node *object, const char *key, bool *out);
bool read_int(reader *r, const node *object, const char *key, int64_t low, int64_t high, int64_t *out);
bool read_real(reader *r, const node *object, const char *key, double low, double high, double *out);
bool read_array(reader *r, const node *object, const char *key, size_t max, node *out);
bool read_object(reader *r, const node *object, const char *key, node *out);
/* A string out of a list that ends with NULL; *out is its index. */
bool read_choice(reader *r, const node *object, const char *key, const char *const *names, int *out);
/* As above, for a value that must be there. */
bool need_string(reader *r, const node *object, const char *key, view *out);
bool need_array(reader *r, const node *object, const char *key, size_t max, node *out);
bool need_kind(reader *r, const node *n, node_kind kind); /* the value itself */

/* The next member of the root that was not asked for; cursor starts as NULL. NULL: there is none left. */
const char *reader_unknown(const reader *r, const node *root, void **cursor);

#endif
