/* SPDX-License-Identifier: Apache-2.0 */
/* Reading single keywords, JSON equality, and the small synthetic subschemas that other keywords are rewritten to. */
#include "grammar/schema/priv.h"

#include <string.h>

/*
 * The keywords and the first and the last draft that has them: what a draft does not have says nothing under it. A
 * schema that names no draft is read with all of them.
 */
typedef struct word {
    const char    *name;
    schema_keyword kw; /* KW_NONE: read beside another keyword, says nothing alone */
    int            first, last;
} word;

static const word words[] = {
    { "type", KW_TYPE, 4, 2020 },
    { "properties", KW_PROPERTIES, 4, 2020 },
    { "required", KW_REQUIRED, 4, 2020 },
    { "items", KW_ITEMS, 4, 2020 },
    { "enum", KW_ENUM, 4, 2020 },
    { "additionalProperties", KW_ADDITIONAL_PROPERTIES, 4, 2020 },
    { "$ref", KW_REF, 4, 2020 },
    { "$dynamicRef", KW_DYNAMIC_REF, 2020, 2020 },
    { "$recursiveRef", KW_DYNAMIC_REF, 2019, 2019 },
    { "const", KW_CONST, 6, 2020 },
    { "not", KW_NOT, 4, 2020 },
    { "allOf", KW_ALL_OF, 4, 2020 },
    { "anyOf", KW_ANY_OF, 4, 2020 },
    { "oneOf", KW_ONE_OF, 4, 2020 },
    { "if", KW_IF, 7, 2020 },
    { "then", KW_NONE, 7, 2020 },
    { "else", KW_NONE, 7, 2020 },
    { "dependencies", KW_DEPENDENCIES, 4, 2020 }, /* split in 2019-09, but its metaschemas and validators keep it */
    { "dependentRequired", KW_DEPENDENCIES, 2019, 2020 },
    { "dependentSchemas", KW_DEPENDENCIES, 2019, 2020 },
    { "minLength", KW_MIN_LENGTH, 4, 2020 },
    { "maxLength", KW_MAX_LENGTH, 4, 2020 },
    { "pattern", KW_PATTERN, 4, 2020 },
    { "format", KW_FORMAT, 4, 2020 },
    { "minimum", KW_MINIMUM, 4, 2020 },
    { "maximum", KW_MAXIMUM, 4, 2020 },
    { "exclusiveMinimum", KW_EXCLUSIVE_MINIMUM, 4, 2020 },
    { "exclusiveMaximum", KW_EXCLUSIVE_MAXIMUM, 4, 2020 },
    { "multipleOf", KW_MULTIPLE_OF, 4, 2020 },
    { "prefixItems", KW_ITEMS, 2020, 2020 },
    { "additionalItems", KW_ITEMS, 4, 2019 },
    { "contains", KW_CONTAINS, 6, 2020 },
    { "minContains", KW_MIN_CONTAINS, 2019, 2020 },
    { "maxContains", KW_MAX_CONTAINS, 2019, 2020 },
    { "minItems", KW_MIN_ITEMS, 4, 2020 },
    { "maxItems", KW_MAX_ITEMS, 4, 2020 },
    { "uniqueItems", KW_UNIQUE_ITEMS, 4, 2020 },
    { "unevaluatedItems", KW_UNEVALUATED_ITEMS, 2019, 2020 },
    { "patternProperties", KW_PATTERN_PROPERTIES, 4, 2020 },
    { "unevaluatedProperties", KW_UNEVALUATED_PROPERTIES, 2019, 2020 },
    { "propertyNames", KW_PROPERTY_NAMES, 6, 2020 },
    { "minProperties", KW_MIN_PROPERTIES, 4, 2020 },
    { "maxProperties", KW_MAX_PROPERTIES, 4, 2020 },
    { "id", KW_NONE, 4, 4 },
    { "$id", KW_NONE, 6, 2020 },
    { "$anchor", KW_NONE, 2019, 2020 },
    { "$dynamicAnchor", KW_NONE, 2020, 2020 },
};

static const word *word_of(const schema_ctx *c, view name) {
    if (!name.len || name.len > 21) return NULL;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (words[i].name[0] != name.data[0] || !view_eq_c(name, words[i].name)) continue;
        return !c->draft_named || (c->draft >= words[i].first && c->draft <= words[i].last) ? &words[i] : NULL;
    }
    return NULL;
}

schema_keyword schema_keyword_of(const schema_ctx *c, view name) {
    const word *w = word_of(c, name);
    return w ? w->kw : KW_NONE;
}

bool schema_ref_is_all(const schema_ctx *c, const json_value *s) {
    return c->draft <= 7 && json_is(json_get(s, "$ref"), JSON_K_STRING);
}

const json_value *schema_get(const schema_ctx *c, const json_value *s, const char *keyword) {
    const json_value *v = json_get(s, keyword);
    if (!v || !word_of(c, view_of(keyword))) return NULL;
    return schema_ref_is_all(c, s) && strcmp(keyword, "$ref") != 0 ? NULL : v;
}

bool schema_flag_fits(schema_ctx *c, const json_value *s, view keyword, const json_value *v) {
    bool flag = v->kind == JSON_K_BOOL;
    if (!c->draft_named || flag == (c->draft == 4)) return true;
    schema_fail(c, s, ERR_FORMAT, "'%.*s' is %s boolean under the draft that '$schema' names", (int)keyword.len,
                keyword.data, flag ? "not a" : "a");
    return false;
}

const json_value *schema_check(schema_ctx *c, const json_value *s, const char *keyword, const json_value *v,
                               json_kind kind) {
    static const char *const names[] = { "null",     "a boolean", "an integer", "a number",
                                         "a string", "an array",  "an object" };
    if (v->kind == kind) return v;
    schema_fail(c, s, ERR_FORMAT, "'%s' is not %s", keyword, names[kind]);
    return NULL;
}

bool schema_is_true(const schema_ctx *c, const json_value *s) {
    if (json_is(s, JSON_K_BOOL)) return s->u.boolean;
    if (!json_is(s, JSON_K_OBJECT)) return false;
    for (size_t i = 0; i < s->u.object.count; i++) {
        if (schema_keyword_of(c, s->u.object.members[i].key) != KW_NONE) return false;
    }
    return true;
}

bool schema_read_count(schema_ctx *c, const json_value *s, const char *keyword, const json_value *v, uint64_t *out) {
    int64_t n;
    double  d;
    if (json_int(v, &n) && n >= 0) {
        *out = (uint64_t)n;
        return true;
    }
    if (json_number(v, &d) && d >= 9007199254740992.0) {
        *out = SCHEMA_NO_LIMIT;
        return true;
    }
    schema_fail(c, s, ERR_FORMAT, "'%s' is not a non-negative integer", keyword);
    return false;
}

static unsigned one_type(const json_value *v) {
    static const struct {
        const char *name;
        unsigned    bits;
    } names[] = {
        { "string", SCHEMA_STRING }, { "object", SCHEMA_OBJECT }, { "array", SCHEMA_ARRAY }, { "integer", SCHEMA_INT },
        { "number", SCHEMA_NUMBER }, { "boolean", SCHEMA_BOOL },  { "null", SCHEMA_NULL },
    };
    const char *text = json_cstr(v);
    if (!text) return 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!strcmp(text, names[i].name)) return names[i].bits;
    }
    return 0;
}

unsigned schema_read_types(schema_ctx *c, const json_value *s, const json_value *v) {
    unsigned all = 0;
    if (json_is(v, JSON_K_STRING)) {
        all = one_type(v);
        if (!all) schema_fail(c, s, ERR_FORMAT, "'type': unknown type \"%.40s\"", json_cstr(v));
        return all;
    }
    if (!json_is(v, JSON_K_ARRAY)) {
        schema_fail(c, s, ERR_FORMAT, "'type' is neither a string nor an array");
        return 0;
    }
    for (size_t i = 0; i < v->u.array.count; i++) {
        unsigned t = one_type(&v->u.array.items[i]);
        if (!t) schema_fail(c, s, ERR_FORMAT, "'type': unknown type in the list");
        all |= t;
    }
    return all;
}

unsigned schema_type_of(const json_value *v) {
    int64_t n;
    switch (v->kind) {
    case JSON_K_NULL: return SCHEMA_NULL;
    case JSON_K_BOOL: return SCHEMA_BOOL;
    case JSON_K_INT: return SCHEMA_INT;
    case JSON_K_REAL:
        return json_int(v, &n) || v->u.real > 9007199254740992.0 || v->u.real < -9007199254740992.0 ? SCHEMA_INT
                                                                                                    : SCHEMA_FRAC;
    case JSON_K_STRING: return SCHEMA_STRING;
    case JSON_K_ARRAY: return SCHEMA_ARRAY;
    default: return SCHEMA_OBJECT;
    }
}

static const json_value *member(const json_value *o, view key) {
    for (size_t i = o->u.object.count; i-- > 0;) {
        if (view_eq(o->u.object.members[i].key, key)) return &o->u.object.members[i].value;
    }
    return NULL;
}

/* Recursion is bounded by the JSON reader's depth limit. */
bool schema_values_equal(const json_value *a, const json_value *b) {
    double x, y;
    if (json_number(a, &x) && json_number(b, &y)) {
        if (a->kind == JSON_K_INT && b->kind == JSON_K_INT) return a->u.integer == b->u.integer;
        return !(x < y) && !(y < x);
    }
    if (a->kind != b->kind) return false;
    switch (a->kind) {
    case JSON_K_BOOL: return a->u.boolean == b->u.boolean;
    case JSON_K_STRING: return view_eq(a->u.string, b->u.string);
    case JSON_K_ARRAY:
        if (a->u.array.count != b->u.array.count) return false;
        for (size_t i = 0; i < a->u.array.count; i++) {
            if (!schema_values_equal(&a->u.array.items[i], &b->u.array.items[i])) return false;
        }
        return true;
    case JSON_K_OBJECT:
        if (a->u.object.count != b->u.object.count) return false;
        for (size_t i = 0; i < a->u.object.count; i++) {
            const json_value *other = member(b, a->u.object.members[i].key);
            if (!other || !schema_values_equal(&a->u.object.members[i].value, other)) return false;
        }
        return true;
    default: return true;
    }
}

const json_value *schema_make_bool(bool b) {
    static const json_value yes = { .kind = JSON_K_BOOL, .u.boolean = true };
    static const json_value no = { .kind = JSON_K_BOOL, .u.boolean = false };
    return b ? &yes : &no;
}

const json_value *schema_make_without(schema_ctx *c, view name) {
    json_member *props = schema_alloc(c, sizeof *props), *top = schema_alloc(c, sizeof *top);
    json_value  *s = schema_alloc(c, sizeof *s);
    if (!props || !top || !s) return schema_make_bool(true);
    props->key = name;
    props->value = *schema_make_bool(false);
    top->key = view_of("properties");
    top->value = (json_value){ .kind = JSON_K_OBJECT, .u.object = { props, 1 } };
    *s = (json_value){ .kind = JSON_K_OBJECT, .u.object = { top, 1 } };
    return s;
}

schema_lit schema_lit_of(const json_value *s, uint32_t base, bool negate) {
    return (schema_lit){ .s = s, .base = base, .kind = negate ? SCHEMA_IS_NOT : SCHEMA_IS };
}

const schema_lits *schema_lits_add(schema_ctx *c, const schema_lits *list, schema_lit l) {
    schema_lits *n = schema_alloc(c, sizeof *n);
    if (!n) return list;
    n->l = l;
    n->next = list;
    return n;
}
