/* SPDX-License-Identifier: Apache-2.0 */
/* Reading single keywords, JSON equality, and the small synthetic subschemas that other keywords are rewritten to. */
#include "grammar/schema_priv.h"

#include <string.h>

schema_keyword schema_keyword_of(view name) {
    static const struct {
        const char    *name;
        schema_keyword kw;
    } words[] = {
        { "type", KW_TYPE },
        { "properties", KW_PROPERTIES },
        { "required", KW_REQUIRED },
        { "items", KW_ITEMS },
        { "enum", KW_ENUM },
        { "additionalProperties", KW_ADDITIONAL_PROPERTIES },
        { "$ref", KW_REF },
        { "$dynamicRef", KW_DYNAMIC_REF },
        { "$recursiveRef", KW_DYNAMIC_REF },
        { "const", KW_CONST },
        { "not", KW_NOT },
        { "allOf", KW_ALL_OF },
        { "anyOf", KW_ANY_OF },
        { "oneOf", KW_ONE_OF },
        { "if", KW_IF },
        { "dependencies", KW_DEPENDENCIES },
        { "dependentRequired", KW_DEPENDENCIES },
        { "dependentSchemas", KW_DEPENDENCIES },
        { "minLength", KW_MIN_LENGTH },
        { "maxLength", KW_MAX_LENGTH },
        { "pattern", KW_PATTERN },
        { "format", KW_FORMAT },
        { "minimum", KW_MINIMUM },
        { "maximum", KW_MAXIMUM },
        { "exclusiveMinimum", KW_EXCLUSIVE_MINIMUM },
        { "exclusiveMaximum", KW_EXCLUSIVE_MAXIMUM },
        { "multipleOf", KW_MULTIPLE_OF },
        { "prefixItems", KW_ITEMS },
        { "additionalItems", KW_ITEMS },
        { "contains", KW_CONTAINS },
        { "minContains", KW_MIN_CONTAINS },
        { "maxContains", KW_MAX_CONTAINS },
        { "minItems", KW_MIN_ITEMS },
        { "maxItems", KW_MAX_ITEMS },
        { "uniqueItems", KW_UNIQUE_ITEMS },
        { "unevaluatedItems", KW_UNEVALUATED_ITEMS },
        { "patternProperties", KW_PATTERN_PROPERTIES },
        { "unevaluatedProperties", KW_UNEVALUATED_PROPERTIES },
        { "propertyNames", KW_PROPERTY_NAMES },
        { "minProperties", KW_MIN_PROPERTIES },
        { "maxProperties", KW_MAX_PROPERTIES },
    };
    if (!name.len || name.len > 21) return KW_NONE;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (words[i].name[0] == name.data[0] && view_eq_c(name, words[i].name)) return words[i].kw;
    }
    return KW_NONE;
}

const json_value *schema_check(schema_ctx *c, const json_value *s, const char *keyword, const json_value *v,
                               json_kind kind) {
    static const char *const names[] = { "null",     "a boolean", "an integer", "a number",
                                         "a string", "an array",  "an object" };
    if (v->kind == kind) return v;
    schema_fail(c, s, ERR_FORMAT, "'%s' is not %s", keyword, names[kind]);
    return NULL;
}

bool schema_is_true(const json_value *s) {
    if (json_is(s, JSON_K_BOOL)) return s->u.boolean;
    if (!json_is(s, JSON_K_OBJECT)) return false;
    for (size_t i = 0; i < s->u.object.count; i++) {
        if (schema_keyword_of(s->u.object.members[i].key) != KW_NONE) return false;
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
