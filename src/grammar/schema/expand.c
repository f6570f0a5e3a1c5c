/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a conjunction of literals to its worlds.
 *
 * Literals are applied until none is left; combinators leave choices behind, which are then tried one after another,
 * each alternative on a copy of the world. A world that is found contradictory is dropped before it branches further:
 * that keeps a row of "if kind is x then ..." linear, though it multiplies on paper.
 */
#include "grammar/schema/priv.h"

#include <stdlib.h>
#include <string.h>

void schema_choice_add(schema_ctx *c, schema_world *w, const schema_lits **alts, size_t n) {
    schema_choice *ch = schema_alloc(c, sizeof *ch);
    if (!ch) return;
    *ch = (schema_choice){ alts, n, w->choices };
    w->choices = ch;
}

void schema_text_add(schema_ctx *c, schema_world *w, ir_rx rx) {
    schema_texts *t = schema_alloc(c, sizeof *t);
    if (!t) return;
    *t = (schema_texts){ rx, w->texts };
    w->texts = t;
}

void schema_named_add(schema_ctx *c, schema_world *w, view name, schema_lit l) {
    schema_named *t = schema_alloc(c, sizeof *t);
    if (!t) return;
    *t = (schema_named){ name, l, w->named };
    w->named = t;
}

void schema_required_add(schema_ctx *c, schema_world *w, view name) {
    schema_named *t;
    for (const schema_named *r = w->required; r; r = r->next) {
        if (view_eq(r->name, name)) return;
    }
    t = schema_alloc(c, sizeof *t);
    if (!t) return;
    *t = (schema_named){ .name = name, .next = w->required };
    w->required = t;
}

void schema_items_add(schema_ctx *c, schema_world *w, const json_value *prefix, bool has_rest, schema_lit rest,
                      uint32_t base) {
    schema_items *t = schema_alloc(c, sizeof *t);
    if (!t) return;
    *t = (schema_items){ prefix, has_rest, rest, base, w->items };
    w->items = t;
}

/* What items, prefixItems and additionalItems of s say together, in the forms of all drafts. */
bool schema_items_of(schema_ctx *c, const json_value *s, uint32_t base, const json_value **prefix, bool *has_rest,
                     schema_lit *rest) {
    const json_value *first = schema_get(c, s, "prefixItems"), *items = schema_get(c, s, "items");
    const json_value *more = schema_get(c, s, "additionalItems"), *tail = NULL;
    if (json_is(items, JSON_K_ARRAY) && c->draft_named && c->draft == 2020) {
        schema_fail(c, s, ERR_FORMAT, "'items' is an array, which draft 2020-12 calls 'prefixItems'");
        return false;
    }
    *prefix = first;
    if (json_is(items, JSON_K_ARRAY)) {
        if (!first) *prefix = items;
        tail = more;
    } else {
        tail = items;
    }
    if (*prefix && !schema_check(c, s, "prefixItems", *prefix, JSON_K_ARRAY)) return false;
    *has_rest = tail && !schema_is_true(c, tail);
    if (*has_rest) *rest = schema_lit_of(tail, base, false);
    return true;
}

static void only_add(schema_ctx *c, schema_world *w, const json_value *const *values, size_t n) {
    const schema_values *kept = NULL;
    for (size_t i = n; i-- > 0;) {
        bool keep = !w->has_only;
        for (const schema_values *o = w->only; o && !keep; o = o->next) keep = schema_values_equal(o->value, values[i]);
        if (keep) {
            schema_values *t = schema_alloc(c, sizeof *t);
            if (!t) return;
            *t = (schema_values){ values[i], kept };
            kept = t;
        }
    }
    w->has_only = true;
    w->only = kept;
}

static void apply_enum(schema_ctx *c, schema_world *w, const json_value *s, const json_value *v) {
    const json_value **list;
    size_t             n;
    unsigned           types = 0;
    if (!schema_check(c, s, "enum", v, JSON_K_ARRAY)) return;
    n = v->u.array.count;
    list = schema_alloc(c, (n + 1) * sizeof *list);
    if (!list) return;
    for (size_t i = 0; i < n; i++) {
        list[i] = &v->u.array.items[i];
        types |= schema_type_of(list[i]);
    }
    only_add(c, w, list, n);
    w->types &= types;
}

static void apply_all_of(schema_ctx *c, const json_value *s, const char *name, const json_value *v, uint32_t base,
                         const schema_lits **todo) {
    if (!schema_check(c, s, name, v, JSON_K_ARRAY)) return;
    for (size_t i = v->u.array.count; i-- > 0;)
        *todo = schema_lits_add(c, *todo, schema_lit_of(&v->u.array.items[i], base, false));
}

static void apply_any_of(schema_ctx *c, schema_world *w, const json_value *s, const json_value *v, uint32_t base) {
    const schema_lits **alts;
    size_t              n;
    if (!schema_check(c, s, "anyOf", v, JSON_K_ARRAY)) return;
    n = v->u.array.count;
    for (size_t i = 0; i < n; i++) {
        if (schema_is_true(c, &v->u.array.items[i])) return;
    }
    alts = schema_alloc(c, (n + 1) * sizeof *alts);
    if (!alts) return;
    for (size_t i = 0; i < n; i++) alts[i] = schema_lits_add(c, NULL, schema_lit_of(&v->u.array.items[i], base, false));
    schema_choice_add(c, w, alts, n);
}

/* Exactly one: each alternative excludes the others, except those that it is provably disjoint with. */
static void apply_one_of(schema_ctx *c, schema_world *w, const json_value *s, const json_value *v, uint32_t base) {
    const schema_lits **alts;
    size_t              n;
    if (!schema_check(c, s, "oneOf", v, JSON_K_ARRAY)) return;
    n = v->u.array.count;
    if (n > SCHEMA_MAX_WORLDS) {
        schema_fail(c, s, ERR_LIMIT, "'oneOf' has more than %d alternatives", SCHEMA_MAX_WORLDS);
        return;
    }
    alts = schema_alloc(c, (n + 1) * sizeof *alts);
    if (!alts) return;
    for (size_t i = 0; i < n; i++) alts[i] = schema_lits_add(c, NULL, schema_lit_of(&v->u.array.items[i], base, false));
    for (size_t i = 0; i < n && !c->rc; i++) {
        for (size_t j = i + 1; j < n && !c->rc; j++) {
            schema_lit a = schema_lit_of(&v->u.array.items[i], base, false);
            schema_lit b = schema_lit_of(&v->u.array.items[j], base, false);
            if (schema_disjoint(c, a, b)) continue;
            a.kind = b.kind = SCHEMA_IS_NOT;
            alts[i] = schema_lits_add(c, alts[i], b);
            alts[j] = schema_lits_add(c, alts[j], a);
        }
    }
    schema_choice_add(c, w, alts, n);
}

static void apply_if(schema_ctx *c, schema_world *w, const json_value *s, const json_value *v, uint32_t base) {
    const json_value   *then = schema_get(c, s, "then"), *other = schema_get(c, s, "else");
    const schema_lits **alts = schema_alloc(c, 2 * sizeof *alts);
    if (!alts || (!then && !other)) return;
    alts[0] = schema_lits_add(c, NULL, schema_lit_of(v, base, false));
    alts[1] = schema_lits_add(c, NULL, schema_lit_of(v, base, true));
    if (then) alts[0] = schema_lits_add(c, alts[0], schema_lit_of(then, base, false));
    if (other) alts[1] = schema_lits_add(c, alts[1], schema_lit_of(other, base, false));
    schema_choice_add(c, w, alts, 2);
}

static const json_value *make_required(schema_ctx *c, const json_value *names) {
    json_member *m = schema_alloc(c, sizeof *m);
    json_value  *s = schema_alloc(c, sizeof *s);
    if (!m || !s) return schema_make_bool(true);
    *m = (json_member){ view_of("required"), *names };
    *s = (json_value){ .kind = JSON_K_OBJECT, .u.object = { m, 1 } };
    return s;
}

static void apply_dependencies(schema_ctx *c, schema_world *w, const json_value *s, const json_value *v,
                               uint32_t base) {
    if (!schema_check(c, s, "dependencies", v, JSON_K_OBJECT)) return;
    for (size_t i = 0; i < v->u.object.count; i++) {
        const json_member  *m = &v->u.object.members[i];
        const json_value   *then = &m->value;
        const schema_lits **alts;
        if (then->kind == JSON_K_STRING) { /* an old form: one name */
            json_value *list = schema_alloc(c, sizeof *list);
            if (!list) return;
            *list = (json_value){ .kind = JSON_K_ARRAY, .u.array = { then, 1 } };
            then = list;
        }
        if (then->kind == JSON_K_ARRAY) {
            if (!then->u.array.count) continue;
            then = make_required(c, then);
        }
        alts = schema_alloc(c, 2 * sizeof *alts);
        if (!alts) return;
        alts[0] = schema_lits_add(c, NULL, schema_lit_of(schema_make_without(c, m->key), base, false));
        alts[1] = schema_lits_add(c, NULL, schema_lit_of(then, base, false));
        schema_choice_add(c, w, alts, 2);
    }
}

static void apply_required(schema_ctx *c, schema_world *w, const json_value *s, const json_value *v) {
    if (v->kind == JSON_K_BOOL) return; /* draft 3's form: it belongs to the parent and has no meaning today */
    if (!schema_check(c, s, "required", v, JSON_K_ARRAY)) return;
    for (size_t i = 0; i < v->u.array.count; i++) {
        const json_value *name = &v->u.array.items[i];
        if (!schema_check(c, s, "required", name, JSON_K_STRING)) return;
        schema_required_add(c, w, name->u.string);
    }
}

static void apply_layer(schema_ctx *c, schema_world *w, const json_value *s, uint32_t base) {
    schema_layer *l = schema_alloc(c, sizeof *l);
    if (!l) return;
    *l = (schema_layer){ .props = json_get(s, "properties"),
                         .patterns = json_get(s, "patternProperties"),
                         .additional = json_get(s, "additionalProperties"),
                         .open = schema_get(c, s, "additionalProperties") || schema_get(c, s, "unevaluatedProperties"),
                         .base = base,
                         .next = w->layers };
    if (l->props && !schema_check(c, s, "properties", l->props, JSON_K_OBJECT)) return;
    if (l->patterns && !schema_check(c, s, "patternProperties", l->patterns, JSON_K_OBJECT)) return;
    if (l->patterns && !l->patterns->u.object.count) l->patterns = NULL;
    if (l->additional && schema_is_true(c, l->additional)) l->additional = NULL;
    w->layers = l;
}

static void apply_contains(schema_ctx *c, schema_world *w, const json_value *s, const json_value *v, uint32_t base) {
    const json_value *min = schema_get(c, s, "minContains"), *max = schema_get(c, s, "maxContains");
    int64_t           n;
    if (max) schema_fail(c, s, ERR_UNSUPPORTED, "'maxContains' is not supported");
    if (min && json_int(min, &n)) {
        if (n == 0) return;
        if (n > 1) schema_fail(c, s, ERR_UNSUPPORTED, "'minContains' above 1 is not supported");
    }
    w->contains = schema_lits_add(c, w->contains, schema_lit_of(v, base, false));
}

/* Without combinators beside it, unevaluatedProperties is additionalProperties. */
static void apply_unevaluated(schema_ctx *c, schema_world *w, const json_value *s, const json_value *v, uint32_t base,
                              bool items) {
    static const char *const in_place[] = {
        "$ref", "allOf", "anyOf", "oneOf", "if", "dependencies", "dependentSchemas", "not", "contains"
    };
    const char   *name = items ? "unevaluatedItems" : "unevaluatedProperties";
    schema_layer *l;
    if (schema_is_true(c, v)) return;
    for (size_t i = 0; i < sizeof in_place / sizeof *in_place; i++) {
        if (schema_get(c, s, in_place[i]))
            schema_fail(c, s, ERR_UNSUPPORTED, "'%s' is not supported together with '%s'", name, in_place[i]);
    }
    if (items) {
        const json_value *rest = schema_get(c, s, "items");
        if (rest && (rest->kind != JSON_K_ARRAY || schema_get(c, s, "additionalItems"))) return;
        schema_items_add(c, w, rest ? rest : schema_get(c, s, "prefixItems"), true, schema_lit_of(v, base, false),
                         base);
        return;
    }
    if (json_get(s, "additionalProperties")) return;
    apply_layer(c, w, s, base);
    l = schema_alloc(c, sizeof *l);
    if (!l || !w->layers) return;
    *l = *w->layers;
    l->additional = v;
    w->layers = l;
}

static void apply_count(schema_ctx *c, const json_value *s, const char *name, const json_value *v, bool upper,
                        uint64_t *bound) {
    uint64_t n;
    if (!schema_read_count(c, s, name, v, &n)) return;
    if (upper ? n < *bound : n > *bound) *bound = n;
}

static void apply_string(schema_ctx *c, schema_world *w, const json_value *s, schema_keyword kw, const json_value *v) {
    ir_rx rx;
    switch (kw) {
    case KW_MIN_LENGTH: apply_count(c, s, "minLength", v, false, &w->min_length); break;
    case KW_MAX_LENGTH: apply_count(c, s, "maxLength", v, true, &w->max_length); break;
    case KW_PATTERN:
        if (schema_check(c, s, "pattern", v, JSON_K_STRING) && schema_pattern(c, s, v->u.string, &rx))
            schema_text_add(c, w, rx);
        break;
    default:
        if (json_is(v, JSON_K_STRING) && schema_format(c, v->u.string, &rx)) schema_text_add(c, w, rx);
    }
}

static void apply_number(schema_ctx *c, schema_world *w, const json_value *s, schema_keyword kw, const json_value *v) {
    bool upper = kw == KW_MAXIMUM || kw == KW_EXCLUSIVE_MAXIMUM;
    if (kw == KW_MULTIPLE_OF) {
        schema_multiple_add(c, w, s, v, false);
    } else if (kw == KW_EXCLUSIVE_MINIMUM || kw == KW_EXCLUSIVE_MAXIMUM) {
        if (schema_flag_fits(c, s, view_of(upper ? "exclusiveMaximum" : "exclusiveMinimum"), v) &&
            v->kind != JSON_K_BOOL)
            schema_bound_add(c, w, s, v, upper, true);
    } else { /* draft 4: a boolean beside it says that the bound is exclusive */
        schema_bound_add(c, w, s, v, upper,
                         json_bool(json_get(s, upper ? "exclusiveMaximum" : "exclusiveMinimum"), false));
    }
}

static void apply_keyword(schema_ctx *c, schema_world *w, const json_value *s, uint32_t base, const json_member *m,
                          const schema_lits **todo) {
    const json_value *v = &m->value;
    schema_keyword    kw = schema_keyword_of(c, m->key);
    if (kw == KW_NOT || kw == KW_IF || kw == KW_DEPENDENCIES) w->conditional = true;
    switch (kw) {
    case KW_NONE: break;
    case KW_REF: {
        const json_value *to;
        uint32_t          to_base;
        if (schema_check(c, s, "$ref", v, JSON_K_STRING) && schema_ref_resolve(c, s, base, v->u.string, &to, &to_base))
            *todo = schema_lits_add(c, *todo, schema_lit_of(to, to_base, false));
        break;
    }
    case KW_DYNAMIC_REF:
        schema_fail(c, s, ERR_UNSUPPORTED, "'%.*s' is not supported", (int)m->key.len, m->key.data);
        break;
    case KW_TYPE: w->types &= schema_read_types(c, s, v); break;
    case KW_ENUM: apply_enum(c, w, s, v); break;
    case KW_CONST:
        only_add(c, w, &v, 1);
        w->types &= schema_type_of(v);
        break;
    case KW_NOT: *todo = schema_lits_add(c, *todo, schema_lit_of(v, base, true)); break;
    case KW_ALL_OF: apply_all_of(c, s, "allOf", v, base, todo); break;
    case KW_ANY_OF: apply_any_of(c, w, s, v, base); break;
    case KW_ONE_OF: apply_one_of(c, w, s, v, base); break;
    case KW_IF: apply_if(c, w, s, v, base); break;
    case KW_DEPENDENCIES: apply_dependencies(c, w, s, v, base); break;
    case KW_MIN_LENGTH:
    case KW_MAX_LENGTH:
    case KW_PATTERN:
    case KW_FORMAT: apply_string(c, w, s, kw, v); break;
    case KW_MINIMUM:
    case KW_MAXIMUM:
    case KW_EXCLUSIVE_MINIMUM:
    case KW_EXCLUSIVE_MAXIMUM:
    case KW_MULTIPLE_OF: apply_number(c, w, s, kw, v); break;
    case KW_CONTAINS: apply_contains(c, w, s, v, base); break;
    case KW_MIN_ITEMS: apply_count(c, s, "minItems", v, false, &w->min_items); break;
    case KW_MAX_ITEMS: apply_count(c, s, "maxItems", v, true, &w->max_items); break;
    case KW_UNIQUE_ITEMS:
        if (json_bool(v, false)) w->unique = true;
        break;
    case KW_UNEVALUATED_ITEMS: apply_unevaluated(c, w, s, v, base, true); break;
    case KW_UNEVALUATED_PROPERTIES: apply_unevaluated(c, w, s, v, base, false); break;
    case KW_PROPERTY_NAMES: w->names = schema_lits_add(c, w->names, schema_lit_of(v, base, false)); break;
    case KW_REQUIRED: apply_required(c, w, s, v); break;
    case KW_MIN_PROPERTIES: apply_count(c, s, "minProperties", v, false, &w->min_props); break;
    case KW_MAX_PROPERTIES: apply_count(c, s, "maxProperties", v, true, &w->max_props); break;
    default: break; /* read together, by schema_world_apply */
    }
}

static void schema_world_apply(schema_ctx *c, schema_world *w, schema_lit l, const schema_lits **todo) {
    const json_value *s = l.s;
    bool              layer = false, items = false;
    if (s->kind == JSON_K_BOOL) {
        if (!s->u.boolean) w->types = 0;
        return;
    }
    if (s->kind != JSON_K_OBJECT) {
        schema_fail(c, s, ERR_FORMAT, "a schema is neither an object nor a boolean");
        return;
    }
    l.base = schema_base_of(c, s, l.base);
    w->at = s;
    if (schema_ref_is_all(c, s)) { /* what is beside it does not count */
        const json_member m = { view_of("$ref"), *json_get(s, "$ref") };
        apply_keyword(c, w, s, l.base, &m, todo);
        return;
    }
    for (size_t i = 0; i < s->u.object.count && !c->rc; i++) {
        const json_member *m = &s->u.object.members[i];
        schema_keyword     kw = schema_keyword_of(c, m->key);
        layer |= kw == KW_PROPERTIES || kw == KW_PATTERN_PROPERTIES || kw == KW_ADDITIONAL_PROPERTIES;
        items |= kw == KW_ITEMS;
        apply_keyword(c, w, s, l.base, m, todo);
    }
    if (layer) apply_layer(c, w, s, l.base);
    if (items) {
        const json_value *prefix;
        bool              has_rest;
        schema_lit        rest = { 0 };
        if (schema_items_of(c, s, l.base, &prefix, &has_rest, &rest) && (prefix || has_rest))
            schema_items_add(c, w, prefix, has_rest, rest, l.base);
    }
}

static bool same_lit(const schema_lit *a, const schema_lit *b) {
    return a->s == b->s && a->base == b->base && a->kind == b->kind && a->member == b->member && a->part == b->part;
}

static void apply_all(schema_ctx *c, schema_world *w, const schema_lits *todo) {
    while (todo && w->types && !c->rc) {
        schema_lit         l = todo->l;
        const schema_lits *seen = w->applied;
        todo = todo->next;
        while (seen && !same_lit(&seen->l, &l)) seen = seen->next;
        if (seen) continue;
        w->applied = schema_lits_add(c, w->applied, l);
        if (++c->n_steps > SCHEMA_MAX_STEPS) {
            schema_fail(c, l.s, ERR_LIMIT, "the schema is too complex (%d steps)", SCHEMA_MAX_STEPS);
            return;
        }
        if (l.kind == SCHEMA_IS)
            schema_world_apply(c, w, l, &todo);
        else
            schema_world_negate(c, w, l, &todo);
    }
}

typedef struct expansion {
    schema_world *first, *last;
    size_t        count;
} expansion;

static void world_keep(schema_ctx *c, const schema_world *w, expansion *x) {
    schema_world *t = schema_alloc(c, sizeof *t);
    if (!t) return;
    if (++x->count > SCHEMA_MAX_WORLDS) {
        schema_fail(c, w->at, ERR_LIMIT, "the combinations of the schema make more than %d alternatives",
                    SCHEMA_MAX_WORLDS);
        return;
    }
    *t = *w;
    t->next = NULL;
    if (x->last)
        x->last->next = t;
    else
        x->first = t;
    x->last = t;
}

/* Takes out the choice with the fewest alternatives, so that forced ones come first. */
static const schema_choice *choice_take(schema_ctx *c, schema_world *w) {
    const schema_choice *best = NULL, *rest = NULL;
    for (const schema_choice *ch = w->choices; ch; ch = ch->next) {
        if (!best || ch->n <= best->n) best = ch;
    }
    for (const schema_choice *ch = w->choices; ch; ch = ch->next) {
        schema_choice *t;
        if (ch == best) continue;
        t = schema_alloc(c, sizeof *t);
        if (!t) return NULL;
        *t = (schema_choice){ ch->alts, ch->n, rest };
        rest = t;
    }
    w->choices = rest;
    return best;
}

/* Among strings alone a choice is a union of expressions, and needs no worlds of its own. */
static bool choice_is_text(schema_ctx *c, schema_world *w, const schema_choice *ch) {
    ir_rx text = ir_rx_none(c->g);
    if (w->types != SCHEMA_STRING) return false;
    for (size_t i = 0; i < ch->n && !c->rc; i++) {
        schema_node *n = schema_node_of(c, ch->alts[i]);
        if (!n || !schema_node_expand(c, n)) return false;
        text = ir_rx_alt(c->g, text, schema_node_text(c, n));
    }
    schema_text_add(c, w, text);
    return !c->rc;
}

static void expand(schema_ctx *c, schema_world *w, const schema_lits *todo, expansion *x, int depth) {
    const schema_choice *ch;
    apply_all(c, w, todo);
    if (c->rc || !w->types) return;
    if (depth > 0 && (++c->n_worlds > SCHEMA_MAX_ALL_WORLDS || depth > SCHEMA_MAX_CHOICES)) {
        schema_fail(c, w->at, ERR_LIMIT, "the combinations of the schema make too many alternatives");
        return;
    }
    if (depth > 0 && schema_world_is_empty(c, w)) return;
    if (!w->choices) {
        world_keep(c, w, x);
        return;
    }
    ch = choice_take(c, w);
    if (ch && choice_is_text(c, w, ch)) {
        expand(c, w, NULL, x, depth + 1);
        return;
    }
    for (size_t i = 0; ch && i < ch->n && !c->rc; i++) {
        schema_world copy = *w;
        expand(c, &copy, ch->alts[i], x, depth + 1);
    }
}

bool schema_node_expand(schema_ctx *c, schema_node *n) {
    expansion          x = { 0 };
    const schema_lits *todo = NULL;
    schema_world       w = {
              .types = SCHEMA_ANY, .max_length = SCHEMA_NO_LIMIT, .max_items = SCHEMA_NO_LIMIT, .max_props = SCHEMA_NO_LIMIT
    };
    if (n->expanded) return !c->rc;
    if (n->expanding) return false;
    n->expanding = true;
    for (size_t i = n->n_lits; i-- > 0;) todo = schema_lits_add(c, todo, n->lits[i]);
    if (n->n_lits) w.at = n->lits[0].s;
    expand(c, &w, todo, &x, 0);
    n->worlds = x.first;
    n->expanding = false;
    n->expanded = true;
    return !c->rc;
}

static int by_address(const void *a, const void *b) {
    const schema_lit *x = a, *y = b;
    if (x->s != y->s) return x->s < y->s ? -1 : 1;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    if (x->member != y->member) return x->member < y->member ? -1 : 1;
    if (x->part != y->part) return x->part < y->part ? -1 : 1;
    return x->base < y->base ? -1 : x->base > y->base;
}

/* Follows a reference that is all its subschema says, so that every use of a definition is the same node. */
static schema_lit settle(schema_ctx *c, schema_lit l) {
    for (int i = 0; i < 64 && l.kind != SCHEMA_BREAKS && l.s->kind == JSON_K_OBJECT; i++) {
        const json_value *ref = json_get(l.s, "$ref"), *to;
        uint32_t          base;
        if (!json_is(ref, JSON_K_STRING)) break;
        if (c->draft > 7) {
            size_t n = 0;
            for (size_t k = 0; k < l.s->u.object.count; k++)
                n += schema_keyword_of(c, l.s->u.object.members[k].key) != KW_NONE;
            if (n > 1) break;
        }
        base = schema_base_of(c, l.s, l.base);
        if (!schema_ref_resolve(c, l.s, base, ref->u.string, &to, &base)) break;
        l.s = to;
        l.base = base;
    }
    return l;
}

schema_node *schema_node_of(schema_ctx *c, const schema_lits *list) {
    schema_lit   buf[32], *lits = buf;
    size_t       n = 0, cap = 32, kept = 0;
    uint64_t     found;
    schema_node *node;
    for (const schema_lits *p = list; p; p = p->next) n++;
    if (n > cap && !(lits = schema_alloc(c, n * sizeof *lits))) return NULL;
    n = 0;
    for (const schema_lits *p = list; p && !c->rc; p = p->next) {
        schema_lit l = settle(c, p->l);
        if (l.kind == SCHEMA_IS && schema_is_true(c, l.s)) continue;
        lits[n++] = l;
    }
    if (c->rc) return NULL;
    if (n > 1) qsort(lits, n, sizeof *lits, by_address);
    for (size_t i = 0; i < n; i++) {
        if (!kept || !same_lit(&lits[kept - 1], &lits[i])) lits[kept++] = lits[i];
    }
    if (map_get(&c->nodes, (const char *)lits, kept * sizeof *lits, &found)) return (schema_node *)(uintptr_t)found;
    if (++c->n_nodes > SCHEMA_MAX_NODES) {
        schema_fail(c, kept ? lits[0].s : NULL, ERR_LIMIT, "the schema needs more than %d rules", SCHEMA_MAX_NODES);
        return NULL;
    }
    node = schema_alloc(c, sizeof *node);
    if (!node) return NULL;
    memset(node, 0, sizeof *node);
    node->sym = -1;
    node->text = -1;
    node->n_lits = kept;
    node->lits = schema_alloc(c, (kept + 1) * sizeof *lits);
    if (!node->lits) return NULL;
    memcpy((void *)node->lits, lits, kept * sizeof *lits);
    if (!map_put(&c->nodes, (const char *)node->lits, kept * sizeof *lits, (uint64_t)(uintptr_t)node)) {
        schema_fail(c, NULL, ERR_NOMEM, "out of memory");
        return NULL;
    }
    return node;
}
