/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/meta.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values are read in the machine's byte order");

size_t meta_type_bytes(int type) {
    static const uint8_t bytes[] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };
    return type >= 0 && type <= META_F64 ? bytes[type] : 0;
}

const char *meta_type_name(int type) {
    static const char *const names[] = { "u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                         "bool", "string", "array", "u64", "i64", "f64" };
    return type >= 0 && type <= META_F64 ? names[type] : "?";
}

void meta_decode(meta_value *out, meta_type type, const uint8_t *p) {
    float   f;
    int16_t i16;
    int32_t i32;
    *out = (meta_value){ .type = type };
    switch (type) {
    case META_I8: out->u.i = (int8_t)p[0]; break;
    case META_I16:
        memcpy(&i16, p, 2);
        out->u.i = i16;
        break;
    case META_I32:
        memcpy(&i32, p, 4);
        out->u.i = i32;
        break;
    case META_I64: memcpy(&out->u.i, p, 8); break;
    case META_F32:
        memcpy(&f, p, 4);
        out->u.f = (double)f;
        break;
    case META_F64: memcpy(&out->u.f, p, 8); break;
    case META_BOOL: out->u.u = p[0] != 0; break;
    default:
        out->u.u = 0;
        memcpy(&out->u.u, p, meta_type_bytes(type));
        break;
    }
}

bool meta_int(const meta_value *v, int64_t *out) {
    if (!v) return false;
    switch (v->type) {
    case META_U8:
    case META_U16:
    case META_U32: *out = (int64_t)v->u.u; return true;
    case META_U64:
        if (v->u.u > INT64_MAX) return false;
        *out = (int64_t)v->u.u;
        return true;
    case META_I8:
    case META_I16:
    case META_I32:
    case META_I64: *out = v->u.i; return true;
    default: return false;
    }
}

bool meta_real(const meta_value *v, double *out) {
    int64_t i;
    if (!v) return false;
    if (v->type == META_F32 || v->type == META_F64) {
        *out = v->u.f;
        return true;
    }
    if (v->type == META_U64) {
        *out = (double)v->u.u;
        return true;
    }
    if (!meta_int(v, &i)) return false;
    *out = (double)i;
    return true;
}

bool meta_bool(const meta_value *v, bool *out) {
    if (!v || v->type != META_BOOL) return false;
    *out = v->u.u != 0;
    return true;
}

bool meta_string(const meta_value *v, view *out) {
    if (!v || v->type != META_STRING) return false;
    *out = v->u.s;
    return true;
}

static bool element(const meta_value *v, size_t index, meta_value *out) {
    if (!v || v->type != META_ARRAY || index >= v->count || !v->data) return false;
    meta_decode(out, v->elem_type, v->data + index * meta_type_bytes(v->elem_type));
    return true;
}

bool meta_at_int(const meta_value *v, size_t index, int64_t *out) {
    meta_value x;
    return element(v, index, &x) && meta_int(&x, out);
}

bool meta_at_real(const meta_value *v, size_t index, double *out) {
    meta_value x;
    return element(v, index, &x) && meta_real(&x, out);
}

bool meta_at_bool(const meta_value *v, size_t index, bool *out) {
    meta_value x;
    return element(v, index, &x) && meta_bool(&x, out);
}

bool meta_at_string(const meta_value *v, size_t index, view *out) {
    if (!v || v->type != META_ARRAY || v->elem_type != META_STRING || index >= v->count) return false;
    *out = v->strings[index];
    return true;
}
