/* SPDX-License-Identifier: Apache-2.0 */
/* Messages as JSON and back, by their tables. Beside json_in.c the only place that knows jansson. */
#include "server/grpc/pb.h"
#include "server/http/base64.h"
#include "server/http/json_in.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reading {
    err   *e;
    size_t values; /* so far */
} reading;

static int read_fields(reading *r, const pb_message *m, view bytes, int depth, json_t *into);

static int wrong(reading *r, const pb_message *m, const pb_field *f, const char *what) {
    const char *dot = strrchr(m->name, '.');
    return err_set(r->e, ERR_FORMAT, "%s.%s: %s", dot ? dot + 1 : m->name, f->name, what);
}

/* --- places --- */

/* The object that holds the last member of a path, made where it is missing; the member's name is *last. */
static json_t *walk(json_t *object, const char *path, const char **last) {
    const char *dot;
    while ((dot = strchr(path, '.'))) {
        char    key[64];
        size_t  n = (size_t)(dot - path) < sizeof key ? (size_t)(dot - path) : sizeof key - 1;
        json_t *inner;
        memcpy(key, path, n);
        key[n] = '\0';
        inner = json_object_get(object, key);
        if (!json_is_object(inner)) {
            inner = json_object();
            if (!inner || json_object_set_new(object, key, inner) != 0) return NULL;
        }
        object = inner;
        path = dot + 1;
    }
    *last = path;
    return object;
}

static const json_t *find(const json_t *object, const char *path) {
    const char *dot;
    while ((dot = strchr(path, '.'))) {
        char   key[64];
        size_t n = (size_t)(dot - path) < sizeof key ? (size_t)(dot - path) : sizeof key - 1;
        memcpy(key, path, n);
        key[n] = '\0';
        object = json_object_get(object, key);
        path = dot + 1;
    }
    return json_object_get(object, path);
}

static const char *path_of(const pb_field *f) { return f->json ? f->json : f->name; }

static int put_beside(reading *r, json_t *object, const char *members) {
    json_t *more = members ? json_loads(members, 0, NULL) : NULL;
    if (!members) return 0;
    int rc = more && json_object_update_recursive(object, more) == 0 ? 0 : err_set_nomem(r->e);
    json_decref(more);
    return rc;
}

/* Removes what a field has put: the first member of its path, and those beside it. */
static void forget(const pb_field *f, json_t *object) {
    char        key[64];
    const char *path = path_of(f);
    json_t     *more;
    snprintf(key, sizeof key, "%.*s", (int)strcspn(path, "."), path);
    if (f->type != PB_BOOL && json_object_del(object, key) != 0) return; /* it was not there */
    more = f->beside ? json_loads(f->beside, 0, NULL) : NULL;
    for (void *at = json_object_iter(more); at; at = json_object_iter_next(more, at))
        json_object_del(object, json_object_iter_key(at));
    json_decref(more);
}

/* Of a group of which one counts, the last that was sent does. */
static void forget_others(const pb_message *m, const pb_field *f, json_t *object) {
    for (const pb_field *o = m->fields; f->oneof && o->number; o++) {
        if (o != f && o->oneof && strcmp(o->oneof, f->oneof) == 0) forget(o, object);
    }
}

/* Takes the value, also when it fails. */
static int place(reading *r, const pb_message *m, const pb_field *f, json_t *object, json_t *value) {
    const char *last;
    if (!value) return err_set_nomem(r->e);
    if (++r->values > JSON_IN_MAX_VALUES) {
        json_decref(value);
        return err_set(r->e, ERR_LIMIT, "the message contains more than %d values", JSON_IN_MAX_VALUES);
    }
    forget_others(m, f, object);
    json_t *at = walk(object, path_of(f), &last);
    if (!at) {
        json_decref(value);
        return err_set_nomem(r->e);
    }
    if (!(f->flags & PB_REPEATED))
        return json_object_set_new(at, last, value) == 0 ? put_beside(r, object, f->beside) : err_set_nomem(r->e);
    json_t *list = json_object_get(at, last);
    if (list && !json_is_array(list)) {
        json_decref(value);
        return wrong(r, m, f, "cannot be used together with another form of the same");
    }
    if (!list) {
        list = json_array();
        if (!list || json_object_set_new(at, last, list) != 0) {
            json_decref(value);
            return err_set_nomem(r->e);
        }
    }
    return json_array_append_new(list, value) == 0 ? 0 : err_set_nomem(r->e);
}

/* --- values --- */

static json_t *number_of(pb_type type, uint64_t bits) {
    float  f;
    double d;
    switch (type) {
    case PB_FLOAT: {
        uint32_t low = (uint32_t)bits;
        memcpy(&f, &low, sizeof f);
        return json_real((double)f);
    }
    case PB_DOUBLE: memcpy(&d, &bits, sizeof d); return json_real(d);
    case PB_BOOL: return json_boolean(bits != 0);
    case PB_INT32:
    case PB_ENUM: return json_integer((int32_t)(uint32_t)bits);
    default: return json_integer((json_int_t)bits);
    }
}

static pb_wire wire_of(pb_type type) {
    switch (type) {
    case PB_DOUBLE: return PB_FIXED64;
    case PB_FLOAT: return PB_FIXED32;
    case PB_STRING:
    case PB_BYTES:
    case PB_MESSAGE: return PB_LENGTH;
    default: return PB_VARINT;
    }
}

static int place_number(reading *r, const pb_message *m, const pb_field *f, json_t *into, uint64_t bits) {
    double d = 0;
    float  s = 0;
    if (f->type == PB_DOUBLE) memcpy(&d, &bits, sizeof d);
    if (f->type == PB_FLOAT) memcpy(&s, &bits, sizeof s); /* little-endian, as everything here */
    if (!isfinite(d) || !isfinite(s)) return wrong(r, m, f, "is not a finite number");
    if (f->beside && f->type == PB_BOOL) { /* says nothing by itself */
        forget_others(m, f, into);
        return bits ? put_beside(r, into, f->beside) : 0;
    }
    return place(r, m, f, into, number_of(f->type, bits));
}

static int place_packed(reading *r, const pb_message *m, const pb_field *f, json_t *into, view bytes) {
    const uint8_t *p = (const uint8_t *)bytes.data, *end = p + bytes.len;
    size_t         size = f->type == PB_DOUBLE ? 8 : f->type == PB_FLOAT ? 4 : 0;
    int            rc = 0;
    if (size && bytes.len % size) return wrong(r, m, f, "is cut off");
    while (rc == 0 && p < end) {
        uint64_t v = 0;
        for (size_t i = 0; i < size; i++) v |= (uint64_t)p[i] << (8 * i);
        p += size;
        for (unsigned shift = 0; !size; shift += 7) {
            if (p == end || shift > 63) return wrong(r, m, f, "is not a list of numbers");
            v |= (uint64_t)(*p & 0x7f) << shift;
            if (!(*p++ & 0x80)) break;
        }
        rc = place_number(r, m, f, into, v);
    }
    return rc;
}

static int place_text(reading *r, const pb_message *m, const pb_field *f, json_t *into, view text) {
    json_t *value = NULL;
    if (f->flags & PB_DATA) {
        str base64;
        str_init(&base64);
        if (f->prefix) str_puts(&base64, f->prefix);
        base64_put(&base64, text.data, text.len);
        if (str_ok(&base64)) value = json_stringn_nocheck(str_cstr(&base64), base64.len);
        str_deinit(&base64);
        return place(r, m, f, into, value);
    }
    if (!pb_is_utf8(text)) return wrong(r, m, f, "is not valid UTF-8");
    if (f->flags & PB_JSON) {
        err why = { 0 };
        int rc = json_value_parse(&value, text.data, text.len, &why);
        if (rc < 0) return rc == ERR_NOMEM ? err_set_nomem(r->e) : wrong(r, m, f, why.msg);
    } else {
        value = json_stringn_nocheck(text.data, text.len);
    }
    return place(r, m, f, into, value);
}

/* The entry of a map: its key and its value. */
static int place_entry(reading *r, const pb_field *f, json_t *into, view bytes) {
    json_t     *entry = json_object(), *map = json_object_get(into, path_of(f));
    char        key[32];
    int         rc = entry ? read_fields(r, f->message, bytes, 1, entry) : err_set_nomem(r->e);
    const char *name = f->message->fields[1].name;
    if (rc == 0 && !map) {
        map = json_object();
        if (!map || json_object_set_new(into, path_of(f), map) != 0) rc = err_set_nomem(r->e);
    }
    if (rc == 0) {
        json_t *value = json_object_get(entry, name);
        snprintf(key, sizeof key, "%lld",
                 (long long)json_integer_value(json_object_get(entry, f->message->fields[0].name)));
        if (json_object_set_new(map, key, value ? json_incref(value) : json_real(0)) != 0) rc = err_set_nomem(r->e);
    }
    json_decref(entry);
    return rc;
}

static int place_message(reading *r, const pb_message *m, const pb_field *f, json_t *into, view bytes, int depth) {
    const char *last;
    json_t     *old = NULL, *value;
    if (depth >= PB_MAX_DEPTH)
        return err_set(r->e, ERR_LIMIT, "the message is nested deeper than %d levels", PB_MAX_DEPTH);
    if (f->flags & PB_MAP) return place_entry(r, f, into, bytes);
    if (f->flags & PB_INLINE) return read_fields(r, f->message, bytes, depth + 1, into);
    if (!(f->flags & PB_REPEATED) && !f->message->list) { /* sent twice: the second adds to the first */
        json_t *at = walk(into, path_of(f), &last);
        old = at ? json_object_get(at, last) : NULL;
    }
    value = json_is_object(old) ? json_incref(old) : json_object();
    int rc = value ? read_fields(r, f->message, bytes, depth + 1, value) : err_set_nomem(r->e);
    if (rc == 0 && f->message->list) {
        json_t *list = json_incref(json_object_get(value, path_of(f->message->fields)));
        json_decref(value);
        value = list;
    }
    if (rc == 0) return place(r, m, f, into, value);
    json_decref(value);
    return rc;
}

static int read_one(reading *r, const pb_message *m, const pb_field *f, const pb_item *it, int depth, json_t *into) {
    pb_wire wire = wire_of(f->type);
    bool    number = wire != PB_LENGTH;
    if (number && it->wire == PB_LENGTH && (f->flags & PB_REPEATED)) return place_packed(r, m, f, into, it->bytes);
    if (it->wire != wire) return 0; /* unknown, as the standard has it */
    if (number) return place_number(r, m, f, into, it->value);
    if (f->type == PB_MESSAGE) return place_message(r, m, f, into, it->bytes, depth);
    return place_text(r, m, f, into, it->bytes);
}

/* What is not there and yet has a value. */
static int set_defaults(reading *r, const pb_message *m, json_t *into) {
    for (const pb_field *f = m->fields; f->number; f++) {
        const char *last;
        if (!(f->flags & PB_DEFAULT) || find(into, path_of(f))) continue;
        json_t *at = walk(into, path_of(f), &last);
        json_t *value = (f->flags & PB_REPEATED) ? json_array()
                        : f->type == PB_STRING   ? json_string("")
                                                 : json_integer(0);
        if (!at || json_object_set_new(at, last, value) != 0) return err_set_nomem(r->e);
    }
    return put_beside(r, into, m->beside);
}

static int read_fields(reading *r, const pb_message *m, view bytes, int depth, json_t *into) {
    pb_reader in = pb_reader_of(bytes);
    pb_item   it;
    int       rc = 0;
    while (rc == 0 && pb_next(&in, &it)) {
        for (const pb_field *f = m->fields; f->number; f++) {
            if ((uint32_t)f->number != it.number) continue;
            rc = read_one(r, m, f, &it, depth, into);
            break;
        }
    }
    if (rc == 0 && in.failed) return err_set(r->e, ERR_FORMAT, "the bytes are not a message %s", m->name);
    return rc == 0 ? set_defaults(r, m, into) : rc;
}

int pb_read(const pb_message *m, view bytes, struct json_t **out, err *e) {
    reading r = { e, 0 };
    *out = json_object();
    if (!*out) return err_set_nomem(e);
    int rc = read_fields(&r, m, bytes, 0, *out);
    if (rc == 0) return 0;
    json_decref(*out);
    *out = NULL;
    return rc;
}

/* --- writing --- */

static void put_number(str *out, pb_type type, const json_t *v) {
    double d = json_number_value(v);
    switch (type) {
    case PB_DOUBLE: str_append(out, &d, 8); break;
    case PB_FLOAT: {
        float f = (float)d;
        str_append(out, &f, 4);
        break;
    }
    case PB_BOOL: pb_put_varint(out, json_is_true(v)); break;
    default: pb_put_varint(out, (uint64_t)(json_is_real(v) ? (json_int_t)d : json_integer_value(v)));
    }
}

static bool is_default(pb_type type, const json_t *v) {
    if (type == PB_STRING || type == PB_BYTES) return json_string_length(v) == 0;
    if (type == PB_BOOL) return !json_is_true(v);
    return json_number_value(v) == 0;
}

static int put_value(const pb_field *f, const json_t *v, str *out, err *e) {
    pb_wire wire = wire_of(f->type);
    if (f->type == PB_MESSAGE) {
        size_t at = pb_open(out, f->number);
        int    rc = pb_write(f->message, v, out, e);
        pb_close(out, at);
        return rc;
    }
    pb_put_tag(out, f->number, wire);
    if (wire == PB_LENGTH) {
        pb_put_varint(out, json_string_length(v));
        str_append(out, json_string_value(v), json_string_length(v));
    } else {
        put_number(out, f->type, v);
    }
    return 0;
}

static bool fits(const pb_field *f, const json_t *v) {
    switch (f->type) {
    case PB_MESSAGE: return json_is_object(v);
    case PB_STRING:
    case PB_BYTES: return json_is_string(v);
    case PB_BOOL: return json_is_boolean(v);
    default: return json_is_number(v);
    }
}

static int put_list(const pb_field *f, const json_t *list, str *out, err *e) {
    bool   packed = wire_of(f->type) != PB_LENGTH;
    size_t n = json_array_size(list), at = 0;
    int    rc = 0;
    if (packed && n) at = pb_open(out, f->number);
    for (size_t i = 0; i < n && rc == 0; i++) {
        const json_t *v = json_array_get(list, i);
        if (!fits(f, v)) return err_set(e, ERR_UNSUPPORTED, "an answer does not fit the field %s", f->name);
        if (packed)
            put_number(out, f->type, v);
        else
            rc = put_value(f, v, out, e);
    }
    if (packed && n) pb_close(out, at);
    return rc;
}

int pb_write(const pb_message *m, const struct json_t *object, str *out, err *e) {
    int rc = 0;
    for (const pb_field *f = m->fields; f->number && rc == 0; f++) {
        const json_t *v = find(object, path_of(f));
        if (!v || json_is_null(v)) continue;
        if (f->flags & PB_REPEATED) {
            if (!json_is_array(v)) return err_set(e, ERR_UNSUPPORTED, "an answer does not fit the field %s", f->name);
            rc = put_list(f, v, out, e);
        } else if (!fits(f, v)) {
            return err_set(e, ERR_UNSUPPORTED, "an answer does not fit the field %s", f->name);
        } else if (f->type == PB_MESSAGE || (f->flags & PB_OPTIONAL) || !is_default(f->type, v)) {
            rc = put_value(f, v, out, e);
        }
    }
    return rc;
}
