/* SPDX-License-Identifier: Apache-2.0 */
#include "server/http/json_in.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* --- the document --- */

/* Counts nesting and values without understanding them: jansson allocates per value and recurses per level. */
static int check_cost(const char *text, size_t len, err *e) {
    size_t depth = 0, values = 1;
    bool   quoted = false;
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (quoted) {
            if (c == '\\') i++;
            if (c == '"') quoted = false;
        } else if (c == '"') {
            quoted = true;
        } else if (c == '[' || c == '{') {
            values++;
            if (++depth > JSON_IN_MAX_DEPTH)
                return err_set(e, ERR_LIMIT, "the JSON is nested deeper than %d levels", JSON_IN_MAX_DEPTH);
        } else if ((c == ']' || c == '}') && depth) {
            depth--;
        } else if (c == ',' || c == ':') {
            values++;
        }
    }
    if (values > JSON_IN_MAX_VALUES)
        return err_set(e, ERR_LIMIT, "the JSON contains more than %d values", JSON_IN_MAX_VALUES);
    return 0;
}

/* Errors begin with the subject. */
static int load(json_t **out, const char *text, size_t len, size_t flags, const char *subject, err *e) {
    json_error_t why;
    int          rc;
    *out = NULL;
    if ((rc = check_cost(text, len, e)) < 0) return rc;
    *out = json_loadb(text, len, flags | JSON_ALLOW_NUL, &why); /* a character like others; names cannot have it */
    if (*out) return 0;
    /* Jansson does not say so everywhere, but every other mistake has a text. */
    if (json_error_code(&why) == json_error_out_of_memory || !why.text[0]) return err_set_nomem(e);
    return err_set(e, ERR_FORMAT, "%sis not valid JSON: line %d, column %d: %s", subject, why.line, why.column,
                   why.text);
}

int json_value_parse(struct json_t **out, const char *text, size_t len, err *e) {
    return load(out, text, len, JSON_DECODE_ANY, "", e);
}

int json_doc_parse(json_doc *out, const char *text, size_t len, err *e) {
    int rc;
    out->root = NULL;
    if (len == 0) return err_set(e, ERR_FORMAT, "the body is empty; expected a JSON object");
    if ((rc = load(&out->root, text, len, 0, "the body ", e)) < 0) return rc;
    if (!json_is_object(out->root)) {
        json_doc_deinit(out);
        return err_set(e, ERR_FORMAT, "the body is not a JSON object");
    }
    return 0;
}

void json_doc_deinit(json_doc *d) {
    json_decref(d->root);
    d->root = NULL;
}

/* --- nodes --- */

node node_root(const json_doc *d) { return (node){ .json = d->root }; }

node_kind node_is(const node *n) {
    if (!n->json) return NODE_ABSENT;
    switch (json_typeof(n->json)) {
    case JSON_OBJECT: return NODE_OBJECT;
    case JSON_ARRAY: return NODE_ARRAY;
    case JSON_STRING: return NODE_STRING;
    case JSON_INTEGER: return NODE_INT;
    case JSON_REAL: return NODE_REAL;
    case JSON_TRUE:
    case JSON_FALSE: return NODE_BOOL;
    default: return NODE_ABSENT;
    }
}

size_t node_count(const node *n) {
    return node_is(n) == NODE_ARRAY    ? json_array_size(n->json)
           : node_is(n) == NODE_OBJECT ? json_object_size(n->json)
                                       : 0;
}

node node_at(const node *array, size_t index) {
    return (node){ .json = node_is(array) == NODE_ARRAY ? json_array_get(array->json, index) : NULL,
                   .up = array,
                   .index = index };
}

node node_get(const node *object, const char *key) {
    node n = { .json = node_is(object) == NODE_OBJECT ? json_object_get(object->json, key) : NULL,
               .up = object,
               .key = key };
    if (n.json && json_typeof(n.json) == JSON_NULL) n.json = NULL;
    return n;
}

view node_text(const node *n) {
    if (node_is(n) != NODE_STRING) return (view){ "", 0 };
    return (view){ json_string_value(n->json), json_string_length(n->json) };
}

int64_t node_int(const node *n) {
    return node_is(n) == NODE_INT    ? json_integer_value(n->json)
           : node_is(n) == NODE_REAL ? (int64_t)json_real_value(n->json)
                                     : 0;
}

double node_real(const node *n) { return n->json ? json_number_value(n->json) : 0.0; }

bool node_true(const node *n) { return n->json && json_typeof(n->json) == JSON_TRUE; }

bool node_next(const node *object, void **cursor, const char **key, node *out) {
    if (node_is(object) != NODE_OBJECT) return false;
    *cursor = *cursor ? json_object_iter_next(object->json, *cursor) : json_object_iter(object->json);
    if (!*cursor) return false;
    *key = json_object_iter_key(*cursor);
    *out = (node){ .json = json_object_iter_value(*cursor), .up = object, .key = *key };
    if (json_is_null(out->json)) out->json = NULL;
    return true;
}

static int put_text(const char *text, size_t len, void *out) {
    str_append(out, text, len);
    return 0;
}

bool node_set_text(const node *object, const char *key, const char *text) {
    return json_object_set_new(object->json, key, json_string(text)) == 0;
}

bool node_set_json(const node *object, const char *key, view json) {
    return json_object_set_new(object->json, key, json_loadb(json.data, json.len, JSON_ALLOW_NUL, NULL)) == 0;
}

void node_write(const node *n, str *out) {
    if (!n->json || json_dump_callback(n->json, put_text, out, JSON_COMPACT | JSON_ENCODE_ANY) != 0)
        str_puts(out, "null");
}

/* --- the reader --- */

void reader_init(reader *r) { memset(r, 0, sizeof *r); }

static void put_path(const node *n, str *out) {
    const node *way[JSON_IN_MAX_DEPTH + 4];
    size_t      len = 0;
    for (; n && n->up && len < sizeof way / sizeof way[0]; n = n->up) way[len++] = n;
    while (len--) {
        if (way[len]->key)
            str_printf(out, "%s%s", out->len ? "." : "", way[len]->key);
        else
            str_printf(out, "[%zu]", way[len]->index);
    }
}

/* Cuts at a character's border. */
static void copy_text(char *out, size_t cap, const char *text) {
    size_t n = strlen(text);
    if (n >= cap) n = cap - 1;
    while (n && text[n] && ((unsigned char)text[n] & 0xc0) == 0x80) n--;
    memcpy(out, text, n);
    out[n] = '\0';
}

void reader_fail(reader *r, const node *n, const char *fmt, ...) {
    char    sentence[400];
    str     path, whole;
    va_list ap;
    if (r->failed) return;
    r->failed = true;
    va_start(ap, fmt);
    vsnprintf(sentence, sizeof sentence, fmt, ap);
    va_end(ap);
    str_init(&path);
    str_init(&whole);
    if (n) put_path(n, &path);
    str_printf(&whole, "%s%s%s", str_cstr(&path), path.len ? ": " : "", sentence);
    copy_text(r->param, sizeof r->param, str_cstr(&path));
    copy_text(r->message, sizeof r->message, whole.len ? str_cstr(&whole) : sentence);
    str_deinit(&path);
    str_deinit(&whole);
}

node read_any(reader *r, const node *object, const char *key) {
    if (!object->up && r->n_seen < JSON_IN_MAX_FIELDS) r->seen[r->n_seen++] = key;
    return node_get(object, key);
}

static const char *kind_name(node_kind k) {
    static const char *const names[] = { "a value",  "a boolean", "an integer", "a number",
                                         "a string", "an array",  "an object" };
    return names[k];
}

bool need_kind(reader *r, const node *n, node_kind kind) {
    if (node_is(n) == kind) return true;
    if (node_is(n) == NODE_ABSENT)
        reader_fail(r, n, "%s is required", kind_name(kind));
    else
        reader_fail(r, n, "expected %s, got %s", kind_name(kind), kind_name(node_is(n)));
    return false;
}

bool read_string(reader *r, const node *object, const char *key, view *out) {
    node n = read_any(r, object, key);
    if (node_is(&n) == NODE_ABSENT || !need_kind(r, &n, NODE_STRING)) return false;
    *out = node_text(&n);
    return true;
}

bool need_string(reader *r, const node *object, const char *key, view *out) {
    node n = read_any(r, object, key);
    if (!need_kind(r, &n, NODE_STRING)) return false;
    *out = node_text(&n);
    return true;
}

bool read_bool(reader *r, const node *object, const char *key, bool *out) {
    node n = read_any(r, object, key);
    if (node_is(&n) == NODE_ABSENT || !need_kind(r, &n, NODE_BOOL)) return false;
    *out = node_true(&n);
    return true;
}

bool read_int(reader *r, const node *object, const char *key, int64_t low, int64_t high, int64_t *out) {
    node   n = read_any(r, object, key);
    double v = node_real(&n);
    if (node_is(&n) == NODE_ABSENT) return false;
    if (node_is(&n) == NODE_REAL && v == floor(v) && fabs(v) < 9e15) {
        *out = (int64_t)v;
    } else {
        if (!need_kind(r, &n, NODE_INT)) return false;
        *out = node_int(&n);
    }
    if (*out >= low && *out <= high) return true;
    reader_fail(r, &n, "must lie between %lld and %lld, got %lld", (long long)low, (long long)high, (long long)*out);
    return false;
}

bool read_real(reader *r, const node *object, const char *key, double low, double high, double *out) {
    node n = read_any(r, object, key);
    if (node_is(&n) == NODE_ABSENT) return false;
    if (node_is(&n) != NODE_INT && !need_kind(r, &n, NODE_REAL)) return false;
    *out = node_real(&n);
    if (*out >= low && *out <= high) return true;
    reader_fail(r, &n, "must lie between %g and %g, got %g", low, high, *out);
    return false;
}

static bool check_array(reader *r, const node *n, size_t max) {
    if (!need_kind(r, n, NODE_ARRAY)) return false;
    if (node_count(n) <= max) return true;
    reader_fail(r, n, "has %zu items; at most %zu are allowed", node_count(n), max);
    return false;
}

bool read_array(reader *r, const node *object, const char *key, size_t max, node *out) {
    *out = read_any(r, object, key);
    return node_is(out) != NODE_ABSENT && check_array(r, out, max);
}

bool need_array(reader *r, const node *object, const char *key, size_t max, node *out) {
    *out = read_any(r, object, key);
    return check_array(r, out, max);
}

bool read_object(reader *r, const node *object, const char *key, node *out) {
    *out = read_any(r, object, key);
    return node_is(out) != NODE_ABSENT && need_kind(r, out, NODE_OBJECT);
}

bool read_choice(reader *r, const node *object, const char *key, const char *const *names, int *out) {
    node n = read_any(r, object, key);
    view v;
    str  list;
    if (node_is(&n) == NODE_ABSENT || !need_kind(r, &n, NODE_STRING)) return false;
    v = node_text(&n);
    for (int i = 0; names[i]; i++) {
        if (view_eq_c(v, names[i])) {
            *out = i;
            return true;
        }
    }
    str_init(&list);
    for (int i = 0; names[i]; i++) str_printf(&list, "%s%s", i ? ", " : "", names[i]);
    reader_fail(r, &n, "expected one of %s; got '%.40s'", str_cstr(&list), v.data);
    str_deinit(&list);
    return false;
}

/* --- unknown members --- */

const char *reader_unknown(const reader *r, const node *root, void **cursor) {
    const char *key;
    node        member;
    while (node_next(root, cursor, &key, &member)) {
        bool known = false;
        for (size_t i = 0; i < r->n_seen && !known; i++) known = strcmp(r->seen[i], key) == 0;
        if (!known) return key;
    }
    return NULL;
}
