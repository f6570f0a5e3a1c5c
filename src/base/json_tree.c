/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tree over the streaming reader, in an arena.
 *
 * Children are collected on a stack while their container is open and copied into one array when it closes, so arrays
 * are contiguous and no list is grown in place. The parser itself uses no recursion.
 */
#include "base/json.h"

#include "base/num.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct builder {
    json_member *stack; /* open containers' children, innermost last */
    size_t       count, cap;
    size_t       frames[JSON_MAX_DEPTH]; /* where each open container's children begin */
    json_kind    kinds[JSON_MAX_DEPTH];
    view         keys[JSON_MAX_DEPTH]; /* the key each open container will get */
    int          depth;
    view         key; /* of the next value */
    arena       *a;
} builder;

static bool push(builder *b, json_value v) {
    if (b->count == b->cap) {
        size_t       cap = b->cap ? b->cap * 2 : 64, bytes;
        json_member *stack;
        if (!num_mul_size(cap, sizeof *stack, &bytes)) return false;
        /* The stack counts against the arena's limit too: it is a constant factor of what the arena will hold. */
        if (b->a->limit_bytes && bytes > b->a->limit_bytes * 2 + 65536) {
            b->a->at_limit = true;
            return false;
        }
        stack = realloc(b->stack, bytes);
        if (!stack) return false;
        b->stack = stack;
        b->cap = cap;
    }
    b->stack[b->count++] = (json_member){ b->key, v };
    b->key = (view){ 0 };
    return true;
}

static bool open(builder *b, json_kind kind) {
    b->frames[b->depth] = b->count;
    b->kinds[b->depth] = kind;
    b->keys[b->depth] = b->key;
    b->key = (view){ 0 };
    b->depth++;
    return true;
}

static bool close(builder *b) {
    int        d = --b->depth;
    size_t     begin = b->frames[d], n = b->count - begin;
    json_value v = { .kind = b->kinds[d] };
    if (v.kind == JSON_K_OBJECT) {
        json_member *members = arena_alloc(b->a, n * sizeof *members);
        if (!members) return false;
        if (n) memcpy(members, b->stack + begin, n * sizeof *members);
        v.u.object.members = members;
        v.u.object.count = n;
    } else {
        json_value *items = arena_alloc(b->a, n * sizeof *items);
        if (!items) return false;
        for (size_t i = 0; i < n; i++) items[i] = b->stack[begin + i].value;
        v.u.array.items = items;
        v.u.array.count = n;
    }
    b->count = begin;
    b->key = b->keys[d];
    return push(b, v);
}

static bool copy_text(builder *b, view text, view *out) {
    char *p = arena_strndup(b->a, text.data, text.len);
    *out = (view){ p, text.len };
    return p != NULL;
}

static bool add_event(builder *b, const json_reader *r, json_event ev) {
    view text;
    switch (ev) {
    case JSON_OBJECT_BEGIN: return open(b, JSON_K_OBJECT);
    case JSON_ARRAY_BEGIN: return open(b, JSON_K_ARRAY);
    case JSON_OBJECT_END:
    case JSON_ARRAY_END: return close(b);
    case JSON_KEY: return copy_text(b, r->text, &b->key);
    case JSON_STRING:
        return copy_text(b, r->text, &text) && push(b, (json_value){ .kind = JSON_K_STRING, .u.string = text });
    case JSON_INT: return push(b, (json_value){ .kind = JSON_K_INT, .u.integer = r->integer });
    case JSON_REAL: return push(b, (json_value){ .kind = JSON_K_REAL, .u.real = r->real });
    case JSON_TRUE: return push(b, (json_value){ .kind = JSON_K_BOOL, .u.boolean = true });
    case JSON_FALSE: return push(b, (json_value){ .kind = JSON_K_BOOL, .u.boolean = false });
    default: return push(b, (json_value){ .kind = JSON_K_NULL });
    }
}

int json_parse(const json_value **out, const char *src, size_t len, arena *a, err *e) {
    json_reader r;
    builder     b = { .a = a };
    json_value *root = NULL;
    int         rc = 0;
    *out = NULL;
    json_reader_init(&r, src, len);
    for (;;) {
        json_event ev = json_next(&r);
        if (ev == JSON_END) break;
        if (ev == JSON_ERROR) {
            if (e) *e = r.error;
            rc = r.error.code;
            break;
        }
        if (!add_event(&b, &r, ev)) {
            rc = a->at_limit
                     ? err_set(e, ERR_LIMIT, "JSON: the text needs more than %zu bytes of memory", a->limit_bytes)
                     : err_set_nomem(e);
            break;
        }
    }
    if (rc == 0) {
        root = arena_alloc(a, sizeof *root);
        if (root)
            *root = b.stack[0].value;
        else
            rc = err_set_nomem(e);
    }
    free(b.stack);
    json_reader_deinit(&r);
    *out = root;
    return rc;
}

bool json_is(const json_value *v, json_kind kind) { return v && v->kind == kind; }

const json_value *json_get(const json_value *v, const char *key) {
    if (!json_is(v, JSON_K_OBJECT)) return NULL;
    for (size_t i = v->u.object.count; i-- > 0;) {
        if (view_eq_c(v->u.object.members[i].key, key)) return &v->u.object.members[i].value;
    }
    return NULL;
}

const json_value *json_at(const json_value *v, size_t index) {
    return json_is(v, JSON_K_ARRAY) && index < v->u.array.count ? &v->u.array.items[index] : NULL;
}

size_t json_count(const json_value *v) {
    return json_is(v, JSON_K_ARRAY) ? v->u.array.count : json_is(v, JSON_K_OBJECT) ? v->u.object.count : 0;
}

bool json_int(const json_value *v, int64_t *out) {
    if (json_is(v, JSON_K_INT)) {
        *out = v->u.integer;
        return true;
    }
    if (json_is(v, JSON_K_REAL) && v->u.real == floor(v->u.real) && fabs(v->u.real) <= 9007199254740992.0) {
        *out = (int64_t)v->u.real;
        return true;
    }
    return false;
}

bool json_number(const json_value *v, double *out) {
    if (json_is(v, JSON_K_INT)) {
        *out = (double)v->u.integer;
        return true;
    }
    if (!json_is(v, JSON_K_REAL)) return false;
    *out = v->u.real;
    return true;
}

const char *json_cstr(const json_value *v) { return json_is(v, JSON_K_STRING) ? v->u.string.data : NULL; }

bool json_bool(const json_value *v, bool dflt) { return json_is(v, JSON_K_BOOL) ? v->u.boolean : dflt; }

void json_write(const json_value *v, str *out) {
    switch (v->kind) {
    case JSON_K_NULL: str_puts(out, "null"); break;
    case JSON_K_BOOL: str_puts(out, v->u.boolean ? "true" : "false"); break;
    case JSON_K_INT: str_printf(out, "%" PRId64, v->u.integer); break;
    case JSON_K_REAL: {
        double d = v->u.real;
        if (isnan(d))
            str_puts(out, "NaN");
        else if (isinf(d))
            str_puts(out, d < 0 ? "-Infinity" : "Infinity");
        else
            str_put_real(out, d);
        break;
    }
    case JSON_K_STRING: str_put_json(out, v->u.string.data, v->u.string.len); break;
    case JSON_K_ARRAY:
        str_push(out, '[');
        for (size_t i = 0; i < v->u.array.count; i++) {
            if (i) str_push(out, ',');
            json_write(&v->u.array.items[i], out);
        }
        str_push(out, ']');
        break;
    case JSON_K_OBJECT:
        str_push(out, '{');
        for (size_t i = 0; i < v->u.object.count; i++) {
            if (i) str_push(out, ',');
            str_put_json(out, v->u.object.members[i].key.data, v->u.object.members[i].key.len);
            str_push(out, ':');
            json_write(&v->u.object.members[i].value, out);
        }
        str_push(out, '}');
        break;
    }
}
