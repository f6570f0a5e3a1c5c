/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contradictions that can be proven cheaply: an empty set of types, bounds that cross, an enum without a value left, a
 * required member or item that cannot exist. "Not proven" is always a safe answer: what is empty and was not found here
 * has no text in the grammar either. The proofs are what makes oneOf exact without negations (disjoint alternatives)
 * and what keeps worlds few.
 */
#include "grammar/schema/priv.h"

enum { MAX_PROBING = 6, MAX_NESTING = 6 };

static bool number_is_empty(const schema_world *w) {
    int order;
    if (!w->lo.at || !w->hi.at) return false;
    order = schema_dec_compare(w->lo.at, w->hi.at);
    return order > 0 || (order == 0 && (w->lo.exclusive || w->hi.exclusive));
}

static bool string_is_empty(schema_ctx *c, const schema_world *w) {
    if (w->min_length > w->max_length) return true;
    /* Patterns cost a search; without one the grammar finds out later that nothing matches. */
    if (!c->proving || !w->texts ||
        (!w->texts->next && !w->min_length && w->max_length == SCHEMA_NO_LIMIT && !w->excluded))
        return false;
    return ir_rx_is_empty(c->g, schema_world_text(c, w));
}

static bool array_is_empty(schema_ctx *c, const schema_world *w) {
    if (w->min_items > w->max_items) return true;
    for (size_t i = 0; i < w->min_items && i < 8; i++) {
        schema_node *item = schema_node_of(c, schema_index_lits(c, w, i));
        if (item && schema_node_is_empty(c, item)) return true;
    }
    return false;
}

/* Values and plain types: looked at before what may lead back to the question that is being asked. */
static bool is_light(const schema_ctx *c, const schema_node *n) {
    for (size_t i = 0; i < n->n_lits; i++) {
        const json_value *s = n->lits[i].s;
        for (size_t k = 0; s->kind == JSON_K_OBJECT && k < s->u.object.count; k++) {
            switch (schema_keyword_of(c, s->u.object.members[k].key)) {
            case KW_REF:
            case KW_ANY_OF:
            case KW_ONE_OF:
            case KW_ALL_OF:
            case KW_IF:
            case KW_NOT:
            case KW_ITEMS:
            case KW_PROPERTIES: return false;
            default: break;
            }
        }
    }
    return true;
}

static bool object_is_empty(schema_ctx *c, const schema_world *w) {
    uint64_t n = 0;
    for (int light = 1; light >= 0; light--) {
        for (const schema_named *r = w->required; r && !c->rc; r = r->next) {
            schema_node *value;
            if (light && !schema_name_allowed(c, w, r->name)) return true;
            value = schema_node_of(c, schema_name_lits(c, w, r->name));
            if (value && is_light(c, value) == light && schema_node_is_empty(c, value)) return true;
            n += (uint64_t)light;
        }
    }
    return n > w->max_props || w->min_props > w->max_props;
}

static bool only_is_empty(schema_ctx *c, const schema_world *w) {
    for (const schema_values *o = w->only; o && !c->rc; o = o->next) {
        if (schema_world_accepts(c, w, o->value)) return false;
    }
    return true;
}

bool schema_world_is_empty(schema_ctx *c, const schema_world *w) {
    bool empty = false;
    if (!w->types) return true;
    if (c->probing >= MAX_PROBING) return false;
    c->probing++;
    if (w->has_only) {
        empty = only_is_empty(c, w);
    } else if (!(w->types & (SCHEMA_NULL | SCHEMA_BOOL))) {
        empty = (!(w->types & SCHEMA_NUMBER) || number_is_empty(w)) &&
                (!(w->types & SCHEMA_STRING) || string_is_empty(c, w)) &&
                (!(w->types & SCHEMA_ARRAY) || array_is_empty(c, w)) &&
                (!(w->types & SCHEMA_OBJECT) || object_is_empty(c, w));
    }
    c->probing--;
    return empty && !c->rc;
}

bool schema_node_is_empty(schema_ctx *c, schema_node *n) {
    bool empty = true;
    if (n->empty || n->tried || (n->looked && !c->proving)) return n->empty;
    if (c->probing >= MAX_PROBING || n->expanding || n->deciding) return false;
    n->deciding = true;
    c->probing++;
    if (!schema_node_expand(c, n)) empty = false;
    for (const schema_world *w = n->worlds; w && empty; w = w->next) empty = schema_world_is_empty(c, w);
    c->probing--;
    n->deciding = false;
    n->empty = empty;
    if (!empty && !c->probing) { /* deep inside other questions "no" may only mean "not looked" */
        n->looked = true;
        n->tried = c->proving;
    }
    return empty;
}

/* A quick look at what both say about types and values, without building anything. */
static unsigned shallow_types(schema_ctx *c, const json_value *s) {
    const json_value *t = schema_get(c, s, "type"), *e = schema_get(c, s, "enum"), *k = schema_get(c, s, "const");
    unsigned          types = SCHEMA_ANY;
    if (t) types &= schema_read_types(c, s, t);
    if (k) types &= schema_type_of(k);
    if (json_is(e, JSON_K_ARRAY)) {
        unsigned all = 0;
        for (size_t i = 0; i < e->u.array.count; i++) all |= schema_type_of(&e->u.array.items[i]);
        types &= all;
    }
    return types;
}

static bool shallow_values(const schema_ctx *c, const json_value *s, const json_value **list, size_t *n) {
    const json_value *e = schema_get(c, s, "enum"), *k = schema_get(c, s, "const");
    if (k) {
        *list = k;
        *n = 1;
        return true;
    }
    if (!json_is(e, JSON_K_ARRAY)) return false;
    *list = e->u.array.items;
    *n = e->u.array.count;
    return true;
}

static bool values_differ(const schema_ctx *c, const json_value *a, const json_value *b) {
    const json_value *x, *y;
    size_t            n, m;
    if (!json_is(a, JSON_K_OBJECT) || !json_is(b, JSON_K_OBJECT) || !shallow_values(c, a, &x, &n) ||
        !shallow_values(c, b, &y, &m))
        return false;
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < m; j++) {
            if (schema_values_equal(&x[i], &y[j])) return false;
        }
    }
    return true;
}

static bool requires(const schema_ctx *c, const json_value *s, view name) {
    const json_value *r = schema_get(c, s, "required");
    for (size_t i = 0; json_is(r, JSON_K_ARRAY) && i < r->u.array.count; i++) {
        if (json_is(&r->u.array.items[i], JSON_K_STRING) && view_eq(r->u.array.items[i].u.string, name)) return true;
    }
    return false;
}

/* Both are objects with a member, required by one of them, whose values differ. */
static bool kinds_differ(const schema_ctx *c, const json_value *a, const json_value *b) {
    const json_value *p = schema_get(c, a, "properties"), *q = schema_get(c, b, "properties");
    if (!json_is(p, JSON_K_OBJECT) || !json_is(q, JSON_K_OBJECT)) return false;
    if (!schema_get(c, a, "type") || !schema_get(c, b, "type")) return false;
    for (size_t i = 0; i < p->u.object.count; i++) {
        const json_member *m = &p->u.object.members[i];
        const json_value  *x;
        size_t             n;
        if (m->value.kind != JSON_K_OBJECT || !shallow_values(c, &m->value, &x, &n)) continue;
        for (size_t j = 0; j < q->u.object.count; j++) {
            if (!view_eq(q->u.object.members[j].key, m->key)) continue;
            if (values_differ(c, &m->value, &q->u.object.members[j].value) &&
                (requires(c, a, m->key) || requires(c, b, m->key)))
                return true;
        }
    }
    return false;
}

bool schema_disjoint(schema_ctx *c, schema_lit a, schema_lit b) {
    const schema_lits *both;
    schema_node       *node;
    unsigned           ta, tb;
    bool               empty, before = c->proving;
    int                probing = c->probing;
    for (int i = 0; i < 16; i++) { /* through plain references */
        schema_lit       *l = i % 2 ? &b : &a;
        const json_value *ref = json_get(l->s, "$ref"), *to;
        uint32_t          base = l->base;
        if (!json_is(ref, JSON_K_STRING) || (c->draft > 7 && l->s->u.object.count > 1)) continue;
        base = schema_base_of(c, l->s, base);
        if (!schema_ref_resolve(c, l->s, base, ref->u.string, &to, &base)) return false;
        l->s = to;
        l->base = base;
    }
    if (a.s == b.s) return false;
    if (json_is(a.s, JSON_K_OBJECT) && json_is(b.s, JSON_K_OBJECT)) {
        ta = shallow_types(c, a.s);
        tb = shallow_types(c, b.s);
        if (c->rc) return false;
        if (!(ta & tb)) return true;
        if (values_differ(c, a.s, b.s)) return true;
        if (ta == SCHEMA_OBJECT && tb == SCHEMA_OBJECT && kinds_differ(c, a.s, b.s)) return true;
    }
    both = schema_lits_add(c, schema_lits_add(c, NULL, a), b);
    node = schema_node_of(c, both);
    if (!node || c->nesting >= MAX_NESTING) return false;
    /* A question of its own, however deep inside others it comes up: its answer stays in the node's worlds. */
    c->nesting++;
    c->probing = 0;
    c->proving = true;
    empty = schema_node_is_empty(c, node);
    c->proving = before;
    c->probing = probing;
    c->nesting--;
    return empty;
}
