/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages as data: a table lists the fields of a struct, one encoder writes them and one decoder reads them back.
 *
 * A body is its fields in the order of the table, one behind the other, without padding:
 *
 *     bool                one byte, 0 or 1
 *     numbers             4 or 8 bytes as this machine has them
 *     texts               u32 bytes, then the bytes; one that may be NULL has a bool in front: it is there
 *     structs             their own fields
 *     lists and arrays    u32 count, then the items
 *     blobs               u32 count, then for each u64 bytes and the bytes, not aligned: whoever needs that copies
 *
 * Nothing is known twice: what a table does not list is not sent, and a test holds every byte of the structs against
 * the tables, so that a member is either listed as a field or listed as WIRE_UNSENT.
 *
 * The decoder trusts nothing. It checks every range, length and text, allocates nothing for items that were announced
 * but whose bytes are not there, and gives views into the body instead of copies. The encoder refuses the same values.
 * Both name the field at fault.
 */
#ifndef HOST_WIRE_CODEC_H
#define HOST_WIRE_CODEC_H

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum wire_kind {
    WIRE_K_BOOL,
    WIRE_K_I32, /* also enumerations */
    WIRE_K_U32,
    WIRE_K_I64,
    WIRE_K_U64, /* also sizes */
    WIRE_K_F32,
    WIRE_K_F64,
    WIRE_K_VIEW,    /* a text as a view */
    WIRE_K_CSTR,    /* a text as a pointer; without zero bytes */
    WIRE_K_CHARS,   /* a text inside the struct, terminated; without zero bytes */
    WIRE_K_STRUCT,  /* inside the struct */
    WIRE_K_POINTER, /* one struct elsewhere */
    WIRE_K_LIST,    /* items elsewhere, and how many */
    WIRE_K_ARRAY,   /* items inside the struct, and how many of them count */
    WIRE_K_BLOBS,   /* views, and how many; not more than sum_bytes together */
    WIRE_K_CASES,   /* further fields of the same struct, by an enumeration before; the last field of its table */
    WIRE_K_UNSENT,  /* a member that stays here */
} wire_kind;

enum {
    WIRE_UTF8 = 1 << 0,     /* of a VIEW */
    WIRE_NULLABLE = 1 << 1, /* of a CSTR or a POINTER */
    WIRE_BOUNDED = 1 << 2,  /* of a number: min to max; without it any value, but of a float a NaN, too */
};

typedef struct wire_table wire_table;

typedef struct wire_field {
    const char       *name; /* in sentences; NULL: that of the list it is an item of */
    uint8_t           kind; /* wire_kind */
    uint8_t           flags;
    uint16_t          count_bytes; /* of the member that counts: an int or a size_t */
    uint32_t          offset, bytes;
    uint32_t          count_at;   /* where that member is; of CASES: the enumeration */
    uint32_t          item_bytes; /* of LIST and ARRAY */
    int64_t           min, max;   /* values of a number; max: bytes of a text, items of a list */
    uint64_t          sum_bytes;  /* of BLOBS: of all together */
    const wire_table *of;         /* its fields or those of an item; of CASES: one table per value */
} wire_field;

struct wire_table {
    const char       *name; /* of the struct */
    const wire_field *fields;
    uint32_t          n_fields;
    uint32_t          bytes;       /* of the struct */
    uint16_t          least_bytes; /* of an item in a frame */
    bool              is_plain;    /* an item that lies in memory as in a frame: numbers without gaps */
    /* What no single field can say: a sentence, or NULL where all is well. May be NULL itself. */
    const char *(*check)(const void *message);
};

/* Appends `head` zero bytes, for the caller to fill, and the body. On failure nothing is appended: ERR_ARG, ERR_LIMIT
 * for what is too long, or ERR_NOMEM. */
int wire_encode(str *out, size_t head, const wire_table *t, const void *message, err *e);

/* Reads the whole body. Views point into it; lists, pointers and terminated texts lie in the arena, which may be NULL
 * where the table has none. Members that are not sent keep what they had. ERR_FORMAT or ERR_NOMEM. */
int wire_decode(view body, const wire_table *t, arena *mem, void *message, err *e);

bool wire_is_utf8(view text);

/* --- rows of a table; each checks the type of its member --- */

#define WIRE_MEMBER(T, m, type)                                                                                        \
    .offset = offsetof(T, m) + 0 * _Generic(((T *)0)->m, type : 1), .bytes = sizeof(((T *)0)->m)

#define WIRE_BOOL(T, m, text)                                                                                          \
    { .name = (text), .kind = WIRE_K_BOOL, WIRE_MEMBER(T, m, bool) }
#define WIRE_INT(T, m, text, lo, hi)                                                                                   \
    { .name = (text), .kind = WIRE_K_I32, .flags = WIRE_BOUNDED, WIRE_MEMBER(T, m, int), .min = (lo), .max = (hi) }
#define WIRE_ANY_INT(T, m, text)                                                                                       \
    { .name = (text), .kind = WIRE_K_I32, WIRE_MEMBER(T, m, int) }
#define WIRE_COUNTER(T, m, text) WIRE_INT(T, m, text, 0, INT32_MAX)
#define WIRE_UINT(T, m, text, hi)                                                                                      \
    { .name = (text), .kind = WIRE_K_U32, .flags = WIRE_BOUNDED, WIRE_MEMBER(T, m, unsigned), .max = (hi) }
#define WIRE_INT64(T, m, text, lo, hi)                                                                                 \
    { .name = (text), .kind = WIRE_K_I64, .flags = WIRE_BOUNDED, WIRE_MEMBER(T, m, int64_t), .min = (lo), .max = (hi) }
#define WIRE_UINT64(T, m, text)                                                                                        \
    { .name = (text), .kind = WIRE_K_U64, WIRE_MEMBER(T, m, uint64_t) }
#define WIRE_SIZE(T, m, text)                                                                                          \
    { .name = (text), .kind = WIRE_K_U64, .flags = WIRE_BOUNDED, WIRE_MEMBER(T, m, size_t), .max = INT64_MAX }
#define WIRE_FLOAT(T, m, text)                                                                                         \
    { .name = (text), .kind = WIRE_K_F32, WIRE_MEMBER(T, m, float) }
#define WIRE_DOUBLE(T, m, text)                                                                                        \
    { .name = (text), .kind = WIRE_K_F64, WIRE_MEMBER(T, m, double) }

/* An enumeration with the values 0 .. n - 1. */
#define WIRE_ENUM(T, m, text, n)                                                                                       \
    {                                                                                                                  \
        .name = (text), .kind = WIRE_K_I32, .flags = WIRE_BOUNDED, .offset = offsetof(T, m),                           \
        .bytes = WIRE_ENUM_BYTES(T, m), .max = (n)-1                                                                   \
    }
#define WIRE_ENUM_BYTES(T, m) (sizeof(((T *)0)->m) / (sizeof(((T *)0)->m) == 4))

#define WIRE_TEXT(T, m, text, most)                                                                                    \
    { .name = (text), .kind = WIRE_K_VIEW, .flags = WIRE_UTF8, WIRE_MEMBER(T, m, view), .max = (most) }
#define WIRE_BYTES(T, m, text, most)                                                                                   \
    { .name = (text), .kind = WIRE_K_VIEW, WIRE_MEMBER(T, m, view), .max = (most) }
#define WIRE_CSTR(T, m, text, most)                                                                                    \
    { .name = (text), .kind = WIRE_K_CSTR, WIRE_MEMBER(T, m, const char *), .max = (most) }
#define WIRE_CSTR_OR_NULL(T, m, text, most)                                                                            \
    { .name = (text), .kind = WIRE_K_CSTR, .flags = WIRE_NULLABLE, WIRE_MEMBER(T, m, const char *), .max = (most) }
#define WIRE_CHARS(T, m, text)                                                                                         \
    { .name = (text), .kind = WIRE_K_CHARS, WIRE_MEMBER(T, m, char *), .max = sizeof(((T *)0)->m) - 1 }

#define WIRE_STRUCT(T, m, table)                                                                                       \
    { .kind = WIRE_K_STRUCT, .offset = offsetof(T, m), .bytes = sizeof(((T *)0)->m), .of = &(table) }
#define WIRE_ELSEWHERE(T, m, text, table, how)                                                                         \
    {                                                                                                                  \
        .name = (text), .kind = WIRE_K_POINTER, .flags = (how), .offset = offsetof(T, m),                              \
        .bytes = sizeof(((T *)0)->m), .item_bytes = sizeof(*((T *)0)->m), .of = &(table)                               \
    }
#define WIRE_POINTER(T, m, text, table) WIRE_ELSEWHERE(T, m, text, table, 0)
#define WIRE_POINTER_OR_NULL(T, m, text, table) WIRE_ELSEWHERE(T, m, text, table, WIRE_NULLABLE)
#define WIRE_ITEMS(T, m, n)                                                                                            \
    .offset = offsetof(T, m), .bytes = sizeof(((T *)0)->m), .item_bytes = sizeof(((T *)0)->m[0]),                      \
    .count_at = offsetof(T, n), .count_bytes = sizeof(((T *)0)->n)
#define WIRE_LIST(T, m, n, text, most, table)                                                                          \
    { .name = (text), .kind = WIRE_K_LIST, WIRE_ITEMS(T, m, n), .max = (most), .of = &(table) }
#define WIRE_ARRAY(T, m, n, text, table)                                                                               \
    {                                                                                                                  \
        .name = (text), .kind = WIRE_K_ARRAY, WIRE_ITEMS(T, m, n),                                                     \
        .max = sizeof(((T *)0)->m) / sizeof(((T *)0)->m[0]), .of = &(table)                                            \
    }
#define WIRE_BLOBS(T, m, n, text, most, together)                                                                      \
    { .name = (text), .kind = WIRE_K_BLOBS, WIRE_ITEMS(T, m, n), .max = (most), .sum_bytes = (together) }
#define WIRE_CASES(T, m, tables)                                                                                       \
    {                                                                                                                  \
        .kind = WIRE_K_CASES, .count_at = offsetof(T, m), .count_bytes = sizeof(((T *)0)->m),                          \
        .max = sizeof(tables) / sizeof((tables)[0]), .of = (tables)                                                    \
    }
#define WIRE_UNSENT(T, m)                                                                                              \
    { .kind = WIRE_K_UNSENT, .offset = offsetof(T, m), .bytes = sizeof(((T *)0)->m) }

#define WIRE_ROWS(rows) .fields = (rows), .n_fields = sizeof(rows) / sizeof((rows)[0])
#define WIRE_TABLE(T, rows)                                                                                            \
    { .name = #T, WIRE_ROWS(rows), .bytes = sizeof(T) }
/* Of lists and arrays. A test holds `least` and the plainness against the rows. */
#define WIRE_ITEM(T, rows, least)                                                                                      \
    { .name = #T, WIRE_ROWS(rows), .bytes = sizeof(T), .least_bytes = (least) }
#define WIRE_PLAIN_ITEM(T, rows)                                                                                       \
    { .name = #T, WIRE_ROWS(rows), .bytes = sizeof(T), .least_bytes = sizeof(T), .is_plain = true }

/* Items that are not structs; named by their list. */
extern const wire_table wire_item_int, wire_item_float, wire_item_text, wire_item_cstr;

#endif
