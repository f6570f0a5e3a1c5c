/* SPDX-License-Identifier: Apache-2.0 */
/* A typed GGUF metadata value, and readers that convert where nothing is lost. */
#ifndef FORMATS_META_H
#define FORMATS_META_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The numbers are those of the file format. */
typedef enum meta_type {
    META_U8 = 0,
    META_I8 = 1,
    META_U16 = 2,
    META_I16 = 3,
    META_U32 = 4,
    META_I32 = 5,
    META_F32 = 6,
    META_BOOL = 7,
    META_STRING = 8,
    META_ARRAY = 9,
    META_U64 = 10,
    META_I64 = 11,
    META_F64 = 12,
} meta_type;

typedef struct meta_value {
    meta_type type;
    union {
        uint64_t u; /* unsigned types and bool */
        int64_t  i; /* signed types */
        double   f; /* float types */
        view     s; /* points into the mapped file; not terminated */
    } u;
    /* ARRAY: elements of elem_type. Fixed-size elements are read from `data` (unaligned, little-endian); strings were
     * indexed at load. Arrays of arrays are refused. */
    meta_type      elem_type;
    size_t         count;
    const uint8_t *data;
    const view    *strings;
} meta_value;

/* All accept v == NULL and give false then. Integers convert between widths when the value fits. */
bool meta_int(const meta_value *v, int64_t *out);
bool meta_real(const meta_value *v, double *out); /* any number */
bool meta_bool(const meta_value *v, bool *out);
bool meta_string(const meta_value *v, view *out);
bool meta_at_int(const meta_value *v, size_t index, int64_t *out);
bool meta_at_real(const meta_value *v, size_t index, double *out);
bool meta_at_bool(const meta_value *v, size_t index, bool *out);
bool meta_at_string(const meta_value *v, size_t index, view *out);

size_t      meta_type_bytes(int type); /* 0 for strings, arrays and unknown numbers */
const char *meta_type_name(int type);  /* "u32"; "?" for an unknown number */

/* Decodes a fixed-size value from unaligned little-endian bytes. */
void meta_decode(meta_value *out, meta_type type, const uint8_t *bytes);

#endif
