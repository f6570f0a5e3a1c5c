/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Protocol Buffers: the bytes of messages, and tables that say what messages have.
 *
 * A message is a row of fields, each with its number, its type and the place of its value in JSON. By such a table a
 * message is read into the JSON that the REST paths take, and their answers are written as messages (pb_read,
 * pb_write), so a call of gRPC has the meaning of its REST twin. What is written often (tokens) is put field by field
 * instead. The tables (schema.c) are compared with proto/ by a test.
 *
 * Reading trusts nothing: lengths are checked, strings are UTF-8, numbers finite, messages nested at most
 * PB_MAX_DEPTH deep and values at most JSON_IN_MAX_VALUES; unknown fields, and known ones with another wire type, are
 * skipped.
 */
#ifndef SERVER_GRPC_PB_H
#define SERVER_GRPC_PB_H

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PB_MAX_DEPTH = 32 };

struct json_t;

/* --- fields one by one --- */

typedef enum pb_wire {
    PB_VARINT = 0,
    PB_FIXED64 = 1,
    PB_LENGTH = 2,
    PB_GROUP = 3,
    PB_GROUP_END = 4,
    PB_FIXED32 = 5
} pb_wire;

typedef struct pb_reader {
    const uint8_t *at, *end;
    bool           failed; /* the bytes make no sense from here on */
} pb_reader;

typedef struct pb_item {
    uint32_t number;
    pb_wire  wire;
    uint64_t value; /* of a varint or a fixed number */
    view     bytes; /* of a length */
} pb_item;

pb_reader pb_reader_of(view bytes);
bool      pb_next(pb_reader *r, pb_item *out); /* false: the end, or failed. Groups are skipped */

void pb_put_varint(str *out, uint64_t v);
void pb_put_tag(str *out, int number, pb_wire wire);
/* A field each; what has its default value is left out. */
void pb_put_int(str *out, int number, int64_t v);
void pb_put_double(str *out, int number, double v);
void pb_put_text(str *out, int number, view text); /* bytes, or what is known to be UTF-8 */
void pb_put_utf8(str *out, int number, view text); /* what is not UTF-8 becomes U+FFFD, as in JSON answers */
void pb_put_floats(str *out, int number, const float *v, size_t n); /* packed */
/* A message inside of another: what is put between belongs to it. */
size_t pb_open(str *out, int number);
void   pb_close(str *out, size_t at);

bool pb_is_utf8(view text);

/* --- tables --- */

typedef enum pb_type {
    PB_DOUBLE = 1, /* as descriptor.proto numbers them */
    PB_FLOAT = 2,
    PB_INT64 = 3,
    PB_INT32 = 5,
    PB_BOOL = 8,
    PB_STRING = 9,
    PB_MESSAGE = 11,
    PB_BYTES = 12,
    PB_ENUM = 14,
} pb_type;

enum {
    PB_REPEATED = 1,
    PB_OPTIONAL = 2, /* it matters whether it is there */
    PB_DEFAULT = 4,  /* stands in the JSON even if it is not there */
    PB_JSON = 8,     /* a string that holds JSON: its value */
    PB_INLINE = 16,  /* a message whose fields are those of the message around it */
    PB_MAP = 32,     /* repeated: a map; the message is its entry */
    PB_DATA = 64,    /* bytes: as base64, behind a prefix */
};

typedef struct pb_message pb_message;

typedef struct pb_enum {
    const char        *name;
    const char *const *values; /* the i-th has the number i; ends with NULL */
} pb_enum;

typedef struct pb_field {
    int               number;
    pb_type           type;
    unsigned          flags;
    const char       *name;
    const char       *json;    /* "function.name": members within members; NULL: the name */
    const pb_message *message; /* of a message */
    const char       *oneof;   /* the name of its group; NULL: none */
    const char    *beside; /* what the JSON has beside it: members of an object, as JSON. A bool only stands for it */
    const char    *prefix; /* with PB_DATA */
    const pb_enum *values; /* of an enum */
} pb_field;

struct pb_message {
    const char     *name;   /* "hearth.v1.Answer" */
    const pb_field *fields; /* ends with number 0 */
    bool            list;   /* in JSON it is the array of its only field */
    const char     *beside; /* what its JSON has beside the fields */
    const pb_enum  *nested; /* an enum inside of it; NULL: none */
};

/* Reads a message into a new JSON object. ERR_FORMAT names the field at fault. The caller releases it (json_doc). */
int pb_read(const pb_message *m, view bytes, struct json_t **out, err *e);
/* Appends the message that the object stands for; members that the table does not have are left out. */
int pb_write(const pb_message *m, const struct json_t *object, str *out, err *e);

#endif
