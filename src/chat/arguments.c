/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a syntax is not JSON its arguments are written one by one: up to MAX_FREE_ORDER in any order, more in the order
 * of the schema's properties; optional ones may be left out, undeclared ones do not occur and none occurs twice. A
 * value that can only be a string is plain text that does not contain what ends it; any other value is JSON of its
 * schema. Gemma 4 writes strings, keys and so objects its own way, for which the schema is walked here.
 */
#include "chat/arguments.h"

#include "base/arena.h"
#include "base/str.h"
#include "chat/values.h"
#include "grammar/schema/schema.h"

#include <string.h>

enum { MAX_PARAMS = 512, MAX_DEPTH = 16, MAX_FREE_ORDER = 5, MAX_REFS = 128 };

typedef struct maker {
    ir                *g;
    const chat_format *f;
    const json_value  *root; /* the tool's schema: home of $defs */
    bool               lenient;
    unsigned           flags; /* of the schema compiler */
    err               *e;
    int                rc;
    ir_sym             any; /* Gemma: any value; -1: not made yet */
    arena              a;
    struct {
        const json_value *target;
        ir_sym            rule;
    } refs[MAX_REFS]; /* Gemma: what was referred to so far */
    size_t n_refs;
} maker;

/* --- schemas --- */

/* Members that a schema gets for its purpose; values live as long as the maker. */
typedef struct extras {
    json_member items[2];
    size_t      n;
} extras;

static void put_extra(extras *x, const char *key, json_value v) { x->items[x->n++] = (json_member){ view_of(key), v }; }

static json_value text_value(const char *text) {
    return (json_value){ .kind = JSON_K_STRING, .u.string = view_of(text) };
}

/* A subschema as a document of its own: with the definitions that it may refer to. NULL: out of memory. */
static const json_value *document(maker *m, const json_value *s, const extras *x) {
    static const char *const homes[] = { "$defs", "definitions", "$schema" };
    size_t                   n = json_count(s);
    if (!json_is(s, JSON_K_OBJECT) || (s == m->root && !x->n)) return s;
    json_value  *out = arena_alloc(&m->a, sizeof *out);
    json_member *all = arena_calloc(&m->a, n + 3 + x->n, sizeof *all);
    if (!out || !all) return NULL;
    if (n) memcpy(all, s->u.object.members, n * sizeof *all);
    for (size_t i = 0; i < 3 && s != m->root; i++) {
        const json_value *home = json_get(m->root, homes[i]);
        if (home && !json_get(s, homes[i])) all[n++] = (json_member){ view_of(homes[i]), *home };
    }
    for (size_t i = 0; i < x->n; i++) all[n++] = x->items[i];
    *out = (json_value){ .kind = JSON_K_OBJECT, .u.object = { all, n } };
    return out;
}

static ir_sym compiled(maker *m, const json_value *s, const extras *x, const char *fallback) {
    ir_sym out = 0;
    err    why = { 0 };
    if (m->rc < 0) return out;
    const json_value *whole = document(m, s, x ? x : &(extras){ .n = 0 });
    int               rc = whole ? schema_compile_tree(m->g, whole, m->flags, &out, &why) : err_set_nomem(&why);
    if (rc < 0 && m->lenient && rc != ERR_NOMEM)
        rc = schema_compile_with(m->g, view_of(fallback), m->flags, &out, &why);
    if (rc < 0) m->rc = err_set(m->e, rc, "%.480s", why.msg);
    return out;
}

static ir_rx compiled_text(maker *m, const json_value *s) {
    ir_rx out = ir_rx_all(m->g);
    err   why = { 0 };
    if (m->rc < 0) return out;
    const json_value *whole = document(m, s, &(extras){ .n = 0 });
    int               rc = whole ? schema_compile_text(m->g, whole, &out, &why) : err_set_nomem(&why);
    if (rc < 0 && m->lenient && rc != ERR_NOMEM) return ir_rx_all(m->g);
    if (rc < 0) m->rc = err_set(m->e, rc, "%.480s", why.msg);
    return out;
}

static ir_rx without(ir *g, ir_rx text, const char *what) {
    ir_rx has = ir_rx_cat(g, ir_rx_all(g), ir_rx_cat(g, ir_rx_text(g, what), ir_rx_all(g)));
    return ir_rx_and(g, text, ir_rx_not(g, has));
}

/* Keywords that say nothing about an object beyond what is handled here. */
static bool is_plain_keyword(view k) {
    static const char *const plain[] = { "type",     "properties",  "required",    "additionalProperties",
                                         "$defs",    "definitions", "$schema",     "$id",
                                         "$comment", "title",       "description", "default",
                                         "examples", "deprecated",  "readOnly",    "writeOnly",
                                         "strict" };
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        if (view_eq_c(k, plain[i])) return true;
    }
    return k.len > 2 && k.data[0] == 'x' && k.data[1] == '-';
}

static bool is_plain_object(const json_value *s, view *offender) {
    for (size_t i = 0; i < json_count(s); i++) {
        *offender = s->u.object.members[i].key;
        if (!is_plain_keyword(*offender)) return false;
    }
    return true;
}

/* --- parameters in their order --- */

typedef struct param {
    view              key;
    const json_value *schema; /* NULL: anything */
    bool              required;
} param;

static bool is_required(const json_value *schema, view key) {
    const json_value *list = json_get(schema, "required");
    for (size_t i = 0; i < json_count(list); i++) {
        if (json_is(json_at(list, i), JSON_K_STRING) && view_eq(json_at(list, i)->u.string, key)) return true;
    }
    return false;
}

static size_t list_params(maker *m, const json_value *schema, param **out) {
    const json_value *props = json_get(schema, "properties"), *req = json_get(schema, "required");
    size_t            n = 0, max = json_count(props) + json_count(req);
    view              offender = { "", 0 };
    *out = NULL;
    if (schema && !is_plain_object(schema, &offender) && !m->lenient) {
        m->rc = err_set(m->e, ERR_UNSUPPORTED, "'%.*s' of an object cannot be enforced in this model's syntax of calls",
                        (int)(offender.len < 60 ? offender.len : 60), offender.data);
        return 0;
    }
    if (max > MAX_PARAMS) {
        m->rc = err_set(m->e, ERR_LIMIT, "more than %d parameters", MAX_PARAMS);
        return 0;
    }
    param *list = arena_calloc(&m->a, max + 1, sizeof *list);
    if (!list) {
        m->rc = err_set_nomem(m->e);
        return 0;
    }
    for (size_t i = 0; json_is(props, JSON_K_OBJECT) && i < json_count(props); i++) {
        const json_member *k = &props->u.object.members[i];
        if (k->value.kind == JSON_K_BOOL && !k->value.u.boolean) continue; /* false: must not be there */
        list[n++] = (param){ k->key, k->value.kind == JSON_K_OBJECT ? &k->value : NULL, is_required(schema, k->key) };
    }
    for (size_t i = 0; i < json_count(req); i++) {
        const json_value *k = json_at(req, i);
        size_t            have = 0;
        if (!json_is(k, JSON_K_STRING)) continue;
        while (have < n && !view_eq(list[have].key, k->u.string)) have++;
        if (have == n) list[n++] = (param){ k->u.string, NULL, true };
    }
    *out = list;
    return n;
}

/* Items in order, required ones always, with a separator between any two. */
static ir_sym in_order(ir *g, const ir_sym *items, const param *p, size_t n, const char *separator) {
    ir_sym nothing = ir_seq(g, NULL, 0), first = nothing, rest = nothing,
           sep = ir_terminal(g, chat_rx_pieces(g, separator));
    for (size_t i = n; i-- > 0;) {
        ir_sym with_sep[3] = { sep, items[i], rest }, alone[2] = { items[i], rest };
        ir_sym later = *separator ? ir_seq(g, with_sep, 3) : ir_seq(g, alone, 2), here = ir_seq(g, alone, 2);
        ir_sym either_later[2] = { later, rest }, either_first[2] = { here, first };
        first = p[i].required ? here : ir_alt(g, either_first, 2);
        rest = p[i].required ? later : ir_alt(g, either_later, 2);
    }
    return first;
}

/* The same in any order: one symbol for each set of items that are there already. */
static ir_sym any_order(ir *g, const ir_sym *items, const param *p, size_t n, const char *separator) {
    ir_sym   behind[1 << MAX_FREE_ORDER], sep = ir_terminal(g, chat_rx_pieces(g, separator));
    unsigned required = 0, all = (1u << n) - 1;
    if (n > MAX_FREE_ORDER) return in_order(g, items, p, n, separator);
    for (size_t i = 0; i < n; i++) required |= (unsigned)p[i].required << i;
    for (unsigned have = all + 1; have-- > 0;) {
        ir_sym list[MAX_FREE_ORDER + 1];
        size_t k = 0;
        if ((have & required) == required) list[k++] = ir_seq(g, NULL, 0);
        for (unsigned i = 0; i < n; i++) {
            if (have >> i & 1) continue;
            ir_sym next[3] = { sep, items[i], behind[have | 1u << i] };
            list[k++] = have && *separator ? ir_seq(g, next, 3) : ir_seq(g, next + 1, 2);
        }
        behind[have] = ir_alt(g, list, k);
    }
    return behind[0];
}

static const json_value anything = { .kind = JSON_K_OBJECT };

/* --- tags --- */

typedef struct tag_texts {
    const char *key_open, *value_open, *value_close; /* around key and value */
    const char *end;                                 /* what a plain text must not contain */
} tag_texts;

static tag_texts texts_of(const chat_format *f) {
    switch (f->row->shape) {
    case CHAT_SHAPE_PAIRS:
        if (f->compact) return (tag_texts){ "<arg_key>", "</arg_key><arg_value>", "</arg_value>", "</arg_value>" };
        return (tag_texts){ "<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n", "</arg_value>" };
    case CHAT_SHAPE_INVOKE: return (tag_texts){ "<parameter name=\"", "\">", "</parameter>\n", "</parameter>" };
    default:
        if (f->syntax == CHAT_SYNTAX_SEED) return (tag_texts){ "<parameter=", ">", "</parameter>\n", "</parameter>" };
        return (tag_texts){ "<parameter=", ">\n", "\n</parameter>\n", "</parameter>" };
    }
}

static bool good_key(view k) {
    if (k.len == 0 || k.len > 256) return false;
    for (size_t i = 0; i < k.len; i++) {
        if ((unsigned char)k.data[i] < ' ' || strchr("<>\"", k.data[i])) return false;
    }
    return k.data[0] != ' ' && k.data[k.len - 1] != ' ';
}

static bool python_key(view k) {
    for (size_t i = 0; i < k.len; i++) {
        char c = k.data[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (i && c >= '0' && c <= '9')))
            return false;
    }
    return k.len > 0;
}

static void refuse_key(maker *m, view k) {
    m->rc =
        err_set(m->e, ERR_UNSUPPORTED, "the parameter name \"%.*s\" cannot be written in this model's syntax of calls",
                (int)(k.len < 60 ? k.len : 60), k.data);
}

static ir_sym tag_param(maker *m, const param *p, const tag_texts *t) {
    ir      *g = m->g;
    unsigned kinds = chat_param_kinds(m->root, p->key);
    ir_rx    head = ir_rx_cat(g, ir_rx_text(g, t->key_open),
                              ir_rx_cat(g, ir_rx_bytes(g, p->key.data, p->key.len), ir_rx_text(g, t->value_open)));
    if (!good_key(p->key)) refuse_key(m, p->key);
    if (kinds == CHAT_KIND_STRING) {
        ir_rx text = without(g, compiled_text(m, p->schema ? p->schema : &anything), t->end);
        ir_rx tail = ir_rx_text(g, t->value_close);
        return ir_terminal(g, ir_rx_cat(g, head, ir_rx_cat(g, text, tail)));
    }
    ir_sym list[3] = { ir_terminal(g, head), compiled(m, p->schema ? p->schema : &anything, NULL, "{}"),
                       ir_terminal(g, ir_rx_text(g, t->value_close)) };
    return ir_seq(g, list, 3);
}

static ir_sym python_param(maker *m, const param *p) {
    ir      *g = m->g;
    unsigned kinds = chat_param_kinds(m->root, p->key);
    ir_rx    head = ir_rx_cat(g, ir_rx_bytes(g, p->key.data, p->key.len), ir_rx_text(g, "="));
    if (!python_key(p->key)) refuse_key(m, p->key);
    bool plain_bool =
        kinds == 1u << JSON_K_BOOL && p->schema && !json_get(p->schema, "enum") && !json_get(p->schema, "const");
    ir_sym value = plain_bool ? ir_terminal(g, ir_rx_alt(g, ir_rx_text(g, "True"), ir_rx_text(g, "False")))
                              : compiled(m, p->schema ? p->schema : &anything, NULL, "{}");
    if (kinds == CHAT_KIND_STRING && p->schema) { /* in single quotes as well, then without escapes */
        static const ir_range hard[] = { { '\'', '\'' }, { '\\', '\\' }, { 0, 31 } };
        ir_rx                 raw = ir_rx_repeat(g, ir_rx_class(g, hard, 3, true), 0, -1);
        ir_rx                 quoted = ir_rx_cat(g, ir_rx_text(g, "'"),
                                                 ir_rx_cat(g, ir_rx_and(g, compiled_text(m, p->schema), raw), ir_rx_text(g, "'")));
        ir_sym                both[2] = { value, ir_terminal(g, quoted) };
        value = ir_alt(g, both, 2);
    }
    ir_sym list[2] = { ir_terminal(g, head), value };
    return ir_seq(g, list, 2);
}

/* --- Gemma 4 --- */

#define QUOTE "<|\"|>"

static ir_sym gemma_value(maker *m, const json_value *s);

static ir_rx gemma_quoted(maker *m, ir_rx text) {
    ir *g = m->g;
    return ir_rx_cat(g, ir_rx_text(g, QUOTE), ir_rx_cat(g, without(g, text, QUOTE), ir_rx_text(g, QUOTE)));
}

static ir_rx gemma_key(maker *m, view k) {
    ir *g = m->g;
    for (size_t i = 0; i < k.len; i++) {
        if ((unsigned char)k.data[i] <= ' ' || strchr(":{}[],<\"'", k.data[i]))
            return gemma_quoted(m, ir_rx_bytes(g, k.data, k.len));
    }
    return ir_rx_bytes(g, k.data, k.len);
}

static ir_sym gemma_list(ir *g, ir_sym item, uint64_t min, uint64_t max) {
    ir_sym  next[2] = { ir_terminal(g, ir_rx_text(g, ",")), item };
    int64_t most = max == UINT64_MAX ? -1 : (int64_t)max - 1;
    ir_sym  list[2] = { item, ir_repeat(g, ir_seq(g, next, 2), min > 1 ? (uint32_t)min - 1 : 0, most) };
    ir_sym  some = max == 0 ? ir_seq(g, NULL, 0) : ir_seq(g, list, 2);
    ir_sym  all[3] = { ir_terminal(g, ir_rx_text(g, "[")), min == 0 ? ir_opt(g, some) : some,
                       ir_terminal(g, ir_rx_text(g, "]")) };
    return ir_seq(g, all, 3);
}

/* Any value, with keys of letters, digits and _. */
static ir_sym gemma_any(maker *m) {
    static const ir_range letters[] = { { 'a', 'z' }, { 'A', 'Z' }, { '_', '_' }, { '0', '9' } };
    static const char     scalars[] = "{\"type\":[\"number\",\"boolean\",\"null\"]}";
    ir                   *g = m->g;
    ir_sym                s;
    err                   why = { 0 };
    if (m->any >= 0) return m->any;
    m->any = ir_rule(g, "gemma-any");
    if (schema_compile(g, view_of(scalars), &s, &why) < 0) m->rc = err_set(m->e, why.code, "%.480s", why.msg);
    ir_rule_alt(g, m->any, &s, 1);
    s = ir_terminal(g, gemma_quoted(m, ir_rx_all(g)));
    ir_rule_alt(g, m->any, &s, 1);
    s = gemma_list(g, m->any, 0, UINT64_MAX);
    ir_rule_alt(g, m->any, &s, 1);
    ir_rx  key = ir_rx_cat(g, ir_rx_repeat(g, ir_rx_class(g, letters, 4, false), 1, 64), ir_rx_text(g, ":"));
    ir_sym pair[2] = { ir_terminal(g, key), m->any }, one = ir_seq(g, pair, 2);
    ir_sym next[2] = { ir_terminal(g, ir_rx_text(g, ",")), one };
    ir_sym many[2] = { one, ir_repeat(g, ir_seq(g, next, 2), 0, -1) };
    ir_sym all[3] = { ir_terminal(g, ir_rx_text(g, "{")), ir_opt(g, ir_seq(g, many, 2)),
                      ir_terminal(g, ir_rx_text(g, "}")) };
    s = ir_seq(g, all, 3);
    ir_rule_alt(g, m->any, &s, 1);
    return m->any;
}

static ir_sym gemma_members(maker *m, const json_value *s) {
    param  *p;
    size_t  n = list_params(m, s, &p);
    ir_sym *items = arena_calloc(&m->a, n + 1, sizeof *items);
    if (!items) {
        m->rc = err_set_nomem(m->e);
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        ir_rx  key = ir_rx_cat(m->g, gemma_key(m, p[i].key), ir_rx_text(m->g, ":"));
        ir_sym pair[2] = { ir_terminal(m->g, key), p[i].schema ? gemma_value(m, p[i].schema) : gemma_any(m) };
        items[i] = ir_seq(m->g, pair, 2);
        if (m->rc < 0) return 0;
    }
    return any_order(m->g, items, p, n, ",");
}

static ir_sym gemma_widen(maker *m, const char *what) {
    if (!m->lenient && m->rc == 0)
        m->rc = err_set(m->e, ERR_UNSUPPORTED, "'%s' cannot be enforced in this model's syntax of calls", what);
    return gemma_any(m);
}

static ir_sym gemma_array(maker *m, const json_value *s) {
    static const char *const hard[] = { "prefixItems", "contains", "uniqueItems", "additionalItems",
                                        "unevaluatedItems" };
    const json_value        *items = json_get(s, "items");
    int64_t                  min = 0, max = -1;
    for (size_t i = 0; i < sizeof hard / sizeof *hard; i++) {
        const json_value *v = json_get(s, hard[i]);
        if (v && !(v->kind == JSON_K_BOOL && !v->u.boolean)) return gemma_widen(m, hard[i]);
    }
    (void)json_int(json_get(s, "minItems"), &min);
    (void)json_int(json_get(s, "maxItems"), &max);
    if (min < 0 || min > UINT32_MAX || (max >= 0 && max < min)) return gemma_widen(m, "minItems");
    ir_sym item = json_is(items, JSON_K_OBJECT) ? gemma_value(m, items) : gemma_any(m);
    return gemma_list(m->g, item, (uint64_t)min, max < 0 ? UINT64_MAX : (uint64_t)max);
}

/* Texts of given values (enum, const). */
static ir_sym gemma_constant(maker *m, const json_value *v) {
    str text;
    if (v->kind == JSON_K_STRING)
        return ir_terminal(m->g, gemma_quoted(m, ir_rx_bytes(m->g, v->u.string.data, v->u.string.len)));
    if (v->kind == JSON_K_ARRAY || v->kind == JSON_K_OBJECT) return gemma_widen(m, "enum with lists or objects");
    str_init(&text);
    json_write(v, &text);
    ir_sym out = ir_terminal(m->g, ir_rx_bytes(m->g, str_cstr(&text), text.len));
    str_deinit(&text);
    return out;
}

/* What a chain of references leads to; NULL: nowhere that is known. */
static const json_value *follow(maker *m, const json_value *s) {
    for (int i = 0; i < MAX_DEPTH; i++) {
        const json_value *ref = json_get(s, "$ref"), *home;
        if (!json_is(ref, JSON_K_STRING)) return s;
        view v = ref->u.string;
        home = view_starts(v, "#/$defs/")         ? json_get(m->root, "$defs")
               : view_starts(v, "#/definitions/") ? json_get(m->root, "definitions")
                                                  : NULL;
        s = home ? json_get(home, strrchr(v.data, '/') + 1) : NULL;
        if (!json_is(s, JSON_K_OBJECT)) return NULL;
    }
    return NULL;
}

/* [{"type": [...]}] */
static json_value types_schema(maker *m, unsigned scalars) {
    struct parts {
        json_value  names[3], one;
        json_member type;
    } *p = arena_calloc(&m->a, 1, sizeof *p);
    size_t n = 0;
    if (!p) {
        m->rc = err_set_nomem(m->e);
        return (json_value){ .kind = JSON_K_NULL };
    }
    if (scalars & 1u << JSON_K_NULL) p->names[n++] = text_value("null");
    if (scalars & 1u << JSON_K_BOOL) p->names[n++] = text_value("boolean");
    if (scalars & 1u << JSON_K_INT) p->names[n++] = text_value("number");
    p->type = (json_member){ view_of("type"), { .kind = JSON_K_ARRAY, .u.array = { p->names, n } } };
    p->one = (json_value){ .kind = JSON_K_OBJECT, .u.object = { &p->type, 1 } };
    return (json_value){ .kind = JSON_K_ARRAY, .u.array = { &p->one, 1 } };
}

static ir_sym gemma_typed(maker *m, const json_value *s, unsigned kinds) {
    ir_sym list[4];
    size_t n = 0;
    if (kinds & CHAT_KIND_STRING) list[n++] = ir_terminal(m->g, gemma_quoted(m, compiled_text(m, s)));
    if (kinds & 1u << JSON_K_ARRAY) list[n++] = gemma_array(m, s);
    if (kinds & 1u << JSON_K_OBJECT) {
        ir_sym all[3] = { ir_terminal(m->g, ir_rx_text(m->g, "{")), 0, ir_terminal(m->g, ir_rx_text(m->g, "}")) };
        all[1] = gemma_members(m, s);
        list[n++] = ir_seq(m->g, all, 3);
    }
    unsigned scalars = kinds & (1u << JSON_K_NULL | 1u << JSON_K_BOOL | 1u << JSON_K_INT);
    if (scalars) {
        extras x = { .n = 0 };
        put_extra(&x, "allOf", types_schema(m, scalars));
        list[n++] = compiled(m, s, &x, "{\"type\":[\"number\",\"boolean\",\"null\"]}");
    }
    return ir_alt(m->g, list, n);
}

static unsigned kinds_of(const json_value *s) {
    const json_member one = { view_of("x"), *s };
    const json_member outer = { view_of("properties"), { .kind = JSON_K_OBJECT, .u.object = { &one, 1 } } };
    const json_value  wrapper = { .kind = JSON_K_OBJECT, .u.object = { &outer, 1 } };
    return chat_param_kinds(&wrapper, view_of("x"));
}

/* oneOf is a plain choice only where no value can be of two alternatives. */
static bool disjoint(maker *m, const json_value *list) {
    unsigned seen = 0;
    for (size_t i = 0; i < json_count(list); i++) {
        const json_value *s = follow(m, json_at(list, i));
        unsigned          kinds = s ? kinds_of(s) : (unsigned)CHAT_KINDS_ALL;
        if (seen & kinds) return false;
        seen |= kinds;
    }
    return true;
}

/* A schema without a type is narrowed to the one that its keywords speak of: fewer values, all of them valid. */
static unsigned narrowed(maker *m, const json_value *s) {
    static const struct {
        const char *keyword;
        json_kind   kind;
    } about[] = {
        { "properties", JSON_K_OBJECT }, { "required", JSON_K_OBJECT },      { "items", JSON_K_ARRAY },
        { "minItems", JSON_K_ARRAY },    { "maxItems", JSON_K_ARRAY },       { "pattern", JSON_K_STRING },
        { "minLength", JSON_K_STRING },  { "maxLength", JSON_K_STRING },     { "format", JSON_K_STRING },
        { "minimum", JSON_K_INT },       { "exclusiveMinimum", JSON_K_INT }, { "maximum", JSON_K_INT },
        { "multipleOf", JSON_K_INT },    { "exclusiveMaximum", JSON_K_INT },
    };
    unsigned kinds = kinds_of(s);
    view     other;
    if (kinds != CHAT_KINDS_ALL) return kinds & ~(1u << JSON_K_REAL);
    for (size_t i = 0; i < sizeof about / sizeof *about; i++) {
        if (json_get(s, about[i].keyword)) return 1u << about[i].kind;
    }
    if (!is_plain_object(s, &other)) (void)gemma_widen(m, "a schema without a type");
    return kinds;
}

static ir_sym gemma_choice(maker *m, const json_value *s, const json_value *list, bool values) {
    const json_value *one = json_get(s, "oneOf");
    size_t            n = json_count(list);
    ir_sym           *syms = arena_calloc(&m->a, n + 1, sizeof *syms);
    if (!syms) {
        m->rc = err_set_nomem(m->e);
        return 0;
    }
    if (!values && !m->lenient && (json_get(s, "properties") || (list == one && !disjoint(m, list))))
        return gemma_widen(m, list == one ? "oneOf" : "anyOf");
    for (size_t i = 0; i < n; i++)
        syms[i] = values ? gemma_constant(m, json_at(list, i)) : gemma_value(m, json_at(list, i));
    return ir_alt(m->g, syms, n);
}

static ir_sym gemma_plain(maker *m, const json_value *s) {
    static const char *const hard[] = { "allOf", "not", "if", "$dynamicRef", "patternProperties", "dependentRequired" };
    const json_value        *v;
    for (size_t i = 0; i < sizeof hard / sizeof *hard; i++) {
        if (json_get(s, hard[i])) return gemma_widen(m, hard[i]);
    }
    if ((v = json_get(s, "const")) != NULL) return gemma_constant(m, v);
    if (json_is(v = json_get(s, "enum"), JSON_K_ARRAY)) return gemma_choice(m, s, v, true);
    if (json_is(v = json_get(s, "anyOf"), JSON_K_ARRAY)) return gemma_choice(m, s, v, false);
    if (json_is(v = json_get(s, "oneOf"), JSON_K_ARRAY)) return gemma_choice(m, s, v, false);
    unsigned kinds = narrowed(m, s);
    return kinds == CHAT_KINDS_ALL ? gemma_any(m) : gemma_typed(m, s, kinds);
}

/* What a reference leads to is one rule, made once: schemas may refer to themselves. */
static ir_sym gemma_value(maker *m, const json_value *s) {
    const json_value *at = follow(m, s);
    ir_sym            rule, body;
    if (m->rc < 0) return 0;
    if (!at) return gemma_widen(m, "$ref");
    if (at == s) return gemma_plain(m, s);
    for (size_t i = 0; i < m->n_refs; i++) {
        if (m->refs[i].target == at) return m->refs[i].rule;
    }
    if (m->n_refs == MAX_REFS) return gemma_widen(m, "$ref");
    rule = ir_rule(m->g, "gemma-ref");
    m->refs[m->n_refs].target = at;
    m->refs[m->n_refs++].rule = rule;
    body = gemma_plain(m, at);
    ir_rule_alt(m->g, rule, &body, 1);
    return rule;
}

/* --- all shapes --- */

static ir_sym json_arguments(maker *m) {
    static const json_value none = { .kind = JSON_K_OBJECT };
    const json_value       *s = m->root ? m->root : &none;
    view                    offender;
    extras                  x = { .n = 0 };
    if (!json_get(s, "type")) put_extra(&x, "type", text_value("object"));
    /* Members that no property declares are mistakes of the model, unless the schema declares none at all. A tool
     * without a schema takes no arguments. */
    if ((!m->root || (is_plain_object(s, &offender) && json_is(json_get(s, "properties"), JSON_K_OBJECT))) &&
        !json_get(s, "additionalProperties"))
        put_extra(&x, "additionalProperties", (json_value){ .kind = JSON_K_BOOL });
    return compiled(m, s, &x, "{\"type\":\"object\"}");
}

int chat_arguments(ir *g, const chat_format *f, const json_value *schema, unsigned how, ir_sym *out, err *e) {
    maker     m = { .g = g,
                    .f = f,
                    .root = schema,
                    .lenient = how & CHAT_ARGUMENTS_LENIENT,
                    .flags = how & CHAT_ARGUMENTS_FULL_JSON ? 0 : SCHEMA_STEERED,
                    .e = e,
                    .any = -1 };
    tag_texts t = texts_of(f);
    param    *p;
    ir_sym    items[MAX_PARAMS];
    size_t    n;
    *out = 0;
    arena_init(&m.a, 0);
    switch (f->row->shape) {
    case CHAT_SHAPE_TAGS:
    case CHAT_SHAPE_PAIRS:
    case CHAT_SHAPE_INVOKE:
        n = list_params(&m, schema, &p);
        for (size_t i = 0; i < n && m.rc == 0; i++) items[i] = tag_param(&m, &p[i], &t);
        if (m.rc == 0) *out = any_order(g, items, p, n, "");
        break;
    case CHAT_SHAPE_PYTHON:
        n = list_params(&m, schema, &p);
        for (size_t i = 0; i < n && m.rc == 0; i++) items[i] = python_param(&m, &p[i]);
        if (m.rc == 0) *out = any_order(g, items, p, n, ",\1");
        break;
    case CHAT_SHAPE_GEMMA: *out = gemma_members(&m, schema); break;
    default: *out = json_arguments(&m); break;
    }
    arena_deinit(&m.a);
    return m.rc;
}
