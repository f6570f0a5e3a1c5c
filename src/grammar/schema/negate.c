/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Literals of the kind "not valid against this subschema".
 *
 * A subschema is a conjunction of keywords, so its negation is a choice of the keyword that breaks; a keyword with
 * parts (properties, required, allOf) breaks in one of them. A keyword that only speaks about one type breaks only on
 * instances of that type. What breaks an annotation is nothing.
 */
#include "grammar/schema/priv.h"

#include <string.h>

typedef struct breaks {
    const schema_lits **alts;
    size_t              n, cap;
} breaks;

static void breaks_add(schema_ctx *c, breaks *b, const schema_lits *alt) {
    if (b->n == b->cap) {
        size_t              cap = b->cap ? b->cap * 2 : 8;
        const schema_lits **grown = schema_alloc(c, cap * sizeof *grown);
        if (!grown) return;
        if (b->n) memcpy(grown, b->alts, b->n * sizeof *grown);
        b->alts = grown;
        b->cap = cap;
    }
    b->alts[b->n++] = alt;
}

/* How many parts a keyword can break in; 0: never. */
static size_t parts_of(schema_ctx *c, const json_value *s, uint32_t base, const json_member *m) {
    const json_value *v = &m->value, *prefix;
    bool              has_rest;
    schema_lit        rest;
    ir_rx             rx;
    switch (schema_keyword_of(c, m->key)) {
    case KW_NONE:
    case KW_MIN_CONTAINS:
    case KW_MAX_CONTAINS: return 0;
    case KW_ALL_OF:
    case KW_REQUIRED: return json_is(v, JSON_K_ARRAY) ? v->u.array.count : 0;
    case KW_ONE_OF:
        return json_is(v, JSON_K_ARRAY) && v->u.array.count < 100 ? 1 + v->u.array.count * v->u.array.count : 9999;
    case KW_PROPERTIES:
    case KW_PATTERN_PROPERTIES:
    case KW_DEPENDENCIES: return json_is(v, JSON_K_OBJECT) ? v->u.object.count : 0;
    case KW_IF: return 2;
    case KW_FORMAT: return json_is(v, JSON_K_STRING) && schema_format(c, v->u.string, &rx);
    case KW_UNIQUE_ITEMS: return json_bool(v, false);
    case KW_EXCLUSIVE_MINIMUM:
    case KW_EXCLUSIVE_MAXIMUM: return schema_flag_fits(c, s, m->key, v) && v->kind != JSON_K_BOOL;
    case KW_ADDITIONAL_PROPERTIES: return !schema_is_true(c, v);
    case KW_UNEVALUATED_ITEMS:
    case KW_UNEVALUATED_PROPERTIES: return !schema_is_true(c, v);
    case KW_ITEMS:
        for (const json_member *p = s->u.object.members; p < m; p++) {
            if (schema_keyword_of(c, p->key) == KW_ITEMS) return 0; /* the first of the three speaks for all */
        }
        if (!schema_items_of(c, s, base, &prefix, &has_rest, &rest)) return 0;
        return json_count(prefix) + has_rest;
    default: return 1;
    }
}

static bool part_is_idle(const schema_ctx *c, const json_member *m, size_t part) {
    size_t n = json_count(&m->value);
    switch (schema_keyword_of(c, m->key)) {
    case KW_PROPERTIES:
    case KW_PATTERN_PROPERTIES: return schema_is_true(c, &m->value.u.object.members[part].value);
    case KW_ALL_OF: return schema_is_true(c, &m->value.u.array.items[part]);
    case KW_ONE_OF: return part && (part - 1) / n >= (part - 1) % n; /* pairs i < j */
    default: return false;
    }
}

static void negate_whole(schema_ctx *c, schema_world *w, schema_lit l, const schema_lits **todo) {
    const json_value *s = l.s;
    breaks            b = { 0 };
    size_t            only = SIZE_MAX;
    if (schema_ref_is_all(c, s)) {
        while (!view_eq_c(s->u.object.members[++only].key, "$ref")) {
        }
    }
    for (size_t i = 0; i < s->u.object.count && !c->rc; i++) {
        size_t parts = only == SIZE_MAX || only == i ? parts_of(c, s, l.base, &s->u.object.members[i]) : 0;
        if (parts > 4096) {
            schema_fail(c, s, ERR_LIMIT, "'%.*s' is too large to be negated", (int)s->u.object.members[i].key.len,
                        s->u.object.members[i].key.data);
            return;
        }
        for (size_t p = 0; p < parts; p++) {
            schema_lit broken = { s, l.base, SCHEMA_BREAKS, (uint32_t)i, (uint32_t)p };
            if (!part_is_idle(c, &s->u.object.members[i], p)) breaks_add(c, &b, schema_lits_add(c, NULL, broken));
        }
    }
    if (!b.n)
        w->types = 0;
    else if (b.n == 1)
        *todo = schema_lits_add(c, *todo, b.alts[0]->l);
    else
        schema_choice_add(c, w, b.alts, b.n);
}

static json_value make_int(int64_t n) { return (json_value){ .kind = JSON_K_INT, .u.integer = n }; }

static json_value make_object(schema_ctx *c, const char *k1, json_value v1, const char *k2, json_value v2) {
    json_member *m = schema_alloc(c, 2 * sizeof *m);
    if (!m) return *schema_make_bool(true);
    m[0] = (json_member){ view_of(k1), v1 };
    if (k2) m[1] = (json_member){ view_of(k2), v2 };
    return (json_value){ .kind = JSON_K_OBJECT, .u.object = { m, k2 ? 2 : 1 } };
}

static json_value make_text(const char *text) {
    return (json_value){ .kind = JSON_K_STRING, .u.string = view_of(text) };
}

/* By enum, which every draft has. */
static json_value not_const(schema_ctx *c, const json_value *v) {
    json_value list = { .kind = JSON_K_ARRAY, .u.array = { v, 1 } };
    return make_object(c, "not", make_object(c, "enum", list, NULL, list), NULL, list);
}

static void way_add(schema_ctx *c, breaks *b, json_value s) {
    json_value *copy = schema_alloc(c, sizeof *copy);
    if (!copy) return;
    *copy = s;
    breaks_add(c, b, schema_lits_add(c, NULL, schema_lit_of(copy, 0, false)));
}

/* Has no names but those of v. */
static json_value names_among(schema_ctx *c, const json_value *v) {
    json_member *list = schema_alloc(c, (v->u.object.count + 1) * sizeof *list);
    if (!list) return *schema_make_bool(true);
    for (size_t i = 0; i < v->u.object.count; i++)
        list[i] = (json_member){ v->u.object.members[i].key, *schema_make_bool(true) };
    return make_object(c, "properties", (json_value){ .kind = JSON_K_OBJECT, .u.object = { list, v->u.object.count } },
                       "additionalProperties", *schema_make_bool(false));
}

/* Differs from an array or object: of another type or size, has another name, or differs in one of its parts. */
static void differs_add(schema_ctx *c, schema_world *w, const json_value *v) {
    bool       is_array = v->kind == JSON_K_ARRAY;
    int64_t    n = (int64_t)json_count(v);
    json_value type = make_object(c, "type", make_text(is_array ? "array" : "object"), NULL, *v);
    json_value none = *schema_make_bool(false);
    breaks     b = { 0 };
    if (n > 256) {
        schema_fail(c, w->at, ERR_LIMIT, "'not' with an array or object of more than 256 parts is not supported");
        return;
    }
    way_add(c, &b, make_object(c, "not", type, NULL, type));
    if (is_array)
        way_add(c, &b, make_object(c, "type", make_text("array"), "minItems", make_int(n + 1)));
    else
        way_add(c, &b, make_object(c, "type", make_text("object"), "not", names_among(c, v)));
    if (is_array && n > 0) way_add(c, &b, make_object(c, "type", make_text("array"), "maxItems", make_int(n - 1)));
    for (int64_t i = 0; i < n && !c->rc; i++) {
        if (is_array) {
            json_value *prefix = schema_alloc(c, (size_t)(i + 1) * sizeof *prefix);
            if (!prefix) return;
            for (int64_t k = 0; k < i; k++) prefix[k] = *schema_make_bool(true);
            prefix[i] = not_const(c, &v->u.array.items[i]);
            way_add(c, &b,
                    make_object(c, c->draft < 2020 ? "items" : "prefixItems",
                                (json_value){ .kind = JSON_K_ARRAY, .u.array = { prefix, (size_t)i + 1 } }, "minItems",
                                make_int(i + 1)));
        } else {
            const json_member *m = &v->u.object.members[i];
            json_member       *without = schema_alloc(c, sizeof *without), *other = schema_alloc(c, sizeof *other);
            if (!without || !other) return;
            *without = (json_member){ m->key, none };
            *other = (json_member){ m->key, not_const(c, &m->value) };
            way_add(c, &b,
                    make_object(c, "type", make_text("object"), "properties",
                                (json_value){ .kind = JSON_K_OBJECT, .u.object = { without, 1 } }));
            way_add(c, &b,
                    make_object(c, "type", make_text("object"), "properties",
                                (json_value){ .kind = JSON_K_OBJECT, .u.object = { other, 1 } }));
        }
    }
    schema_choice_add(c, w, b.alts, b.n);
}

static void excluded_add(schema_ctx *c, schema_world *w, const json_value *v) {
    schema_values *t = schema_alloc(c, sizeof *t);
    if (!t) return;
    if (v->kind == JSON_K_ARRAY || v->kind == JSON_K_OBJECT) {
        if (w->types & schema_type_of(v)) differs_add(c, w, v);
        return;
    }
    *t = (schema_values){ v, w->excluded };
    w->excluded = t;
    if (v->kind == JSON_K_NULL) w->types &= ~(unsigned)SCHEMA_NULL;
}

static void some_add(schema_ctx *c, schema_world *w, ir_rx names, schema_lit l) {
    schema_some *t = schema_alloc(c, sizeof *t);
    if (!t) return;
    *t = (schema_some){ names, l, w->some };
    w->some = t;
}

static void at_least(uint64_t *min, uint64_t n) {
    if (n > *min) *min = n;
}

static void at_most(uint64_t *max, uint64_t n) {
    if (n < *max) *max = n;
}

static void break_array(schema_ctx *c, schema_world *w, schema_lit l, schema_keyword kw, const json_value *v) {
    const json_value *prefix = NULL;
    bool              has_rest = false;
    schema_lit        rest = { 0 };
    uint64_t          n = 0;
    w->types &= SCHEMA_ARRAY;
    switch (kw) {
    case KW_MIN_ITEMS:
        if (!schema_read_count(c, l.s, "minItems", v, &n)) return;
        if (!n) w->types = 0;
        at_most(&w->max_items, n - 1);
        break;
    case KW_MAX_ITEMS:
        if (!schema_read_count(c, l.s, "maxItems", v, &n)) return;
        if (n == SCHEMA_NO_LIMIT) w->types = 0;
        at_least(&w->min_items, n + 1);
        break;
    case KW_CONTAINS:
        if (schema_get(c, l.s, "minContains") || schema_get(c, l.s, "maxContains")) {
            schema_fail(c, l.s, ERR_UNSUPPORTED, "'contains' with counts cannot be negated");
            return;
        }
        schema_items_add(c, w, NULL, true, schema_lit_of(v, l.base, true), l.base);
        break;
    case KW_ITEMS: {
        size_t n_prefix;
        if (!schema_items_of(c, l.s, l.base, &prefix, &has_rest, &rest)) return;
        n_prefix = json_count(prefix);
        if (l.part < n_prefix) {
            schema_item_at *t = schema_alloc(c, sizeof *t);
            if (!t) return;
            *t = (schema_item_at){ l.part, schema_lit_of(json_at(prefix, l.part), l.base, true), w->item_at };
            w->item_at = t;
            at_least(&w->min_items, l.part + 1);
        } else if (n_prefix && json_is(rest.s, JSON_K_BOOL)) {
            at_least(&w->min_items, n_prefix + 1);
        } else if (n_prefix) {
            schema_fail(c, l.s, ERR_UNSUPPORTED, "'items' behind a tuple cannot be negated");
        } else {
            rest.kind = SCHEMA_IS_NOT;
            w->contains = schema_lits_add(c, w->contains, rest);
        }
        break;
    }
    default: schema_fail(c, l.s, ERR_UNSUPPORTED, "'uniqueItems' cannot be negated");
    }
}

static void break_dependency(schema_ctx *c, schema_world *w, schema_lit l, const json_member *m,
                             const schema_lits **todo) {
    schema_required_add(c, w, m->key);
    if (m->value.kind == JSON_K_ARRAY) {
        breaks b = { 0 };
        for (size_t i = 0; i < m->value.u.array.count; i++) {
            const json_value *name = &m->value.u.array.items[i];
            if (name->kind != JSON_K_STRING) continue;
            breaks_add(c, &b,
                       schema_lits_add(c, NULL, schema_lit_of(schema_make_without(c, name->u.string), l.base, false)));
        }
        if (!b.n)
            w->types = 0;
        else
            schema_choice_add(c, w, b.alts, b.n);
    } else {
        *todo = schema_lits_add(c, *todo, schema_lit_of(&m->value, l.base, true));
    }
}

static void break_object(schema_ctx *c, schema_world *w, schema_lit l, schema_keyword kw, const json_value *v,
                         const schema_lits **todo) {
    uint64_t n = 0;
    ir_rx    rx;
    w->types &= SCHEMA_OBJECT;
    switch (kw) {
    case KW_PROPERTIES: {
        const json_member *m = &v->u.object.members[l.part];
        schema_required_add(c, w, m->key);
        schema_named_add(c, w, m->key, schema_lit_of(&m->value, l.base, true));
        break;
    }
    case KW_REQUIRED:
        if (schema_check(c, l.s, "required", json_at(v, l.part), JSON_K_STRING))
            schema_named_add(c, w, json_at(v, l.part)->u.string, schema_lit_of(schema_make_bool(false), 0, false));
        break;
    case KW_PATTERN_PROPERTIES: {
        const json_member *m = &v->u.object.members[l.part];
        if (schema_pattern(c, l.s, m->key, &rx)) some_add(c, w, rx, schema_lit_of(&m->value, l.base, true));
        break;
    }
    case KW_ADDITIONAL_PROPERTIES: some_add(c, w, schema_layer_rest(c, l.s), schema_lit_of(v, l.base, true)); break;
    case KW_PROPERTY_NAMES: {
        schema_node *names = schema_node_of(c, schema_lits_add(c, NULL, schema_lit_of(v, l.base, false)));
        if (names)
            some_add(c, w, ir_rx_not(c->g, schema_node_text(c, names)),
                     schema_lit_of(schema_make_bool(true), 0, false));
        break;
    }
    case KW_MIN_PROPERTIES:
        if (!schema_read_count(c, l.s, "minProperties", v, &n)) return;
        if (!n) w->types = 0;
        at_most(&w->max_props, n - 1);
        break;
    case KW_MAX_PROPERTIES:
        if (!schema_read_count(c, l.s, "maxProperties", v, &n)) return;
        if (n == SCHEMA_NO_LIMIT) w->types = 0;
        at_least(&w->min_props, n + 1);
        break;
    default: break_dependency(c, w, l, &v->u.object.members[l.part], todo);
    }
}

static void break_string(schema_ctx *c, schema_world *w, schema_lit l, schema_keyword kw, const json_value *v) {
    uint64_t n = 0;
    ir_rx    rx;
    w->types &= SCHEMA_STRING;
    switch (kw) {
    case KW_MIN_LENGTH:
        if (!schema_read_count(c, l.s, "minLength", v, &n)) return;
        if (!n) w->types = 0;
        at_most(&w->max_length, n - 1);
        break;
    case KW_MAX_LENGTH:
        if (!schema_read_count(c, l.s, "maxLength", v, &n)) return;
        if (n == SCHEMA_NO_LIMIT) w->types = 0;
        at_least(&w->min_length, n + 1);
        break;
    case KW_PATTERN:
        if (schema_check(c, l.s, "pattern", v, JSON_K_STRING) && schema_pattern(c, l.s, v->u.string, &rx))
            schema_text_add(c, w, ir_rx_not(c->g, rx));
        break;
    default:
        if (schema_format(c, v->u.string, &rx)) schema_text_add(c, w, ir_rx_not(c->g, rx));
    }
}

static void break_combinator(schema_ctx *c, schema_world *w, schema_lit l, schema_keyword kw, const json_value *v,
                             const schema_lits **todo) {
    size_t            n = json_count(v);
    const json_value *branch;
    switch (kw) {
    case KW_NOT: *todo = schema_lits_add(c, *todo, schema_lit_of(v, l.base, false)); break;
    case KW_ALL_OF: *todo = schema_lits_add(c, *todo, schema_lit_of(json_at(v, l.part), l.base, true)); break;
    case KW_IF:
        *todo = schema_lits_add(c, *todo, schema_lit_of(v, l.base, l.part == 1));
        branch = schema_get(c, l.s, l.part ? "else" : "then");
        if (branch)
            *todo = schema_lits_add(c, *todo, schema_lit_of(branch, l.base, true));
        else
            w->types = 0;
        break;
    default: /* anyOf, or no alternative of oneOf: none holds; else two of oneOf do */
        if (kw == KW_ONE_OF && l.part) {
            *todo = schema_lits_add(c, *todo, schema_lit_of(json_at(v, (l.part - 1) / n), l.base, false));
            *todo = schema_lits_add(c, *todo, schema_lit_of(json_at(v, (l.part - 1) % n), l.base, false));
            break;
        }
        for (size_t i = 0; i < n; i++) *todo = schema_lits_add(c, *todo, schema_lit_of(json_at(v, i), l.base, true));
    }
}

static void break_keyword(schema_ctx *c, schema_world *w, schema_lit l, const schema_lits **todo) {
    const json_member *m = &l.s->u.object.members[l.member];
    const json_value  *v = &m->value, *to;
    schema_keyword     kw = schema_keyword_of(c, m->key);
    uint32_t           base;
    bool               draft4;
    switch (kw) {
    case KW_REF:
        if (schema_check(c, l.s, "$ref", v, JSON_K_STRING) &&
            schema_ref_resolve(c, l.s, l.base, v->u.string, &to, &base))
            *todo = schema_lits_add(c, *todo, schema_lit_of(to, base, true));
        break;
    case KW_TYPE: w->types &= ~schema_read_types(c, l.s, v); break;
    case KW_ENUM:
        if (!schema_check(c, l.s, "enum", v, JSON_K_ARRAY)) return;
        for (size_t i = 0; i < v->u.array.count; i++) excluded_add(c, w, &v->u.array.items[i]);
        break;
    case KW_CONST: excluded_add(c, w, v); break;
    case KW_NOT:
    case KW_ALL_OF:
    case KW_ANY_OF:
    case KW_ONE_OF:
    case KW_IF: break_combinator(c, w, l, kw, v, todo); break;
    case KW_MIN_LENGTH:
    case KW_MAX_LENGTH:
    case KW_PATTERN:
    case KW_FORMAT: break_string(c, w, l, kw, v); break;
    case KW_MINIMUM:
    case KW_EXCLUSIVE_MINIMUM:
        w->types &= SCHEMA_NUMBER;
        draft4 = kw == KW_MINIMUM && json_bool(json_get(l.s, "exclusiveMinimum"), false);
        schema_bound_add(c, w, l.s, v, true, kw == KW_MINIMUM && !draft4);
        break;
    case KW_MAXIMUM:
    case KW_EXCLUSIVE_MAXIMUM:
        w->types &= SCHEMA_NUMBER;
        draft4 = kw == KW_MAXIMUM && json_bool(json_get(l.s, "exclusiveMaximum"), false);
        schema_bound_add(c, w, l.s, v, false, kw == KW_MAXIMUM && !draft4);
        break;
    case KW_MULTIPLE_OF:
        w->types &= SCHEMA_NUMBER;
        schema_multiple_add(c, w, l.s, v, true);
        break;
    case KW_ITEMS:
    case KW_CONTAINS:
    case KW_MIN_ITEMS:
    case KW_MAX_ITEMS:
    case KW_UNIQUE_ITEMS: break_array(c, w, l, kw, v); break;
    case KW_PROPERTIES:
    case KW_PATTERN_PROPERTIES:
    case KW_ADDITIONAL_PROPERTIES:
    case KW_PROPERTY_NAMES:
    case KW_REQUIRED:
    case KW_MIN_PROPERTIES:
    case KW_MAX_PROPERTIES:
    case KW_DEPENDENCIES: break_object(c, w, l, kw, v, todo); break;
    default:
        schema_fail(c, l.s, ERR_UNSUPPORTED, "'%.*s' cannot be negated (by 'not', 'oneOf' or 'if')", (int)m->key.len,
                    m->key.data);
    }
}

void schema_world_negate(schema_ctx *c, schema_world *w, schema_lit l, const schema_lits **todo) {
    if (l.s->kind == JSON_K_BOOL) {
        if (l.s->u.boolean) w->types = 0;
        return;
    }
    if (l.s->kind != JSON_K_OBJECT) {
        schema_fail(c, l.s, ERR_FORMAT, "a schema is neither an object nor a boolean");
        return;
    }
    w->at = l.s;
    l.base = schema_base_of(c, l.s, l.base);
    if (l.kind == SCHEMA_IS_NOT)
        negate_whole(c, w, l, todo);
    else
        break_keyword(c, w, l, todo);
}
