/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which subschemas speak about a property name.
 *
 * Every subschema of a world has its own properties, patternProperties and additionalProperties (a layer), and
 * additionalProperties speaks about what its own layer leaves over. So a name is asked of each layer in turn, and names
 * that nobody declares fall into classes: the pieces that the layers' patterns cut the set of all names into.
 */
#include "grammar/schema/priv.h"

#include <string.h>

static const json_value *declared(const json_value *props, view name) {
    for (size_t i = props ? props->u.object.count : 0; i-- > 0;) {
        if (view_eq(props->u.object.members[i].key, name)) return &props->u.object.members[i].value;
    }
    return NULL;
}

const schema_lits *schema_name_lits(schema_ctx *c, const schema_world *w, view name) {
    const schema_lits *out = NULL;
    for (const schema_layer *l = w->layers; l && !c->rc; l = l->next) {
        const json_value *s = declared(l->props, name);
        bool              spoken = s != NULL;
        if (s) out = schema_lits_add(c, out, schema_lit_of(s, l->base, false));
        for (size_t i = 0; l->patterns && i < l->patterns->u.object.count && !c->rc; i++) {
            const json_member *m = &l->patterns->u.object.members[i];
            ir_rx              rx;
            if (!schema_pattern(c, l->patterns, m->key, &rx) || !ir_rx_matches(c->g, rx, name.data, name.len)) continue;
            out = schema_lits_add(c, out, schema_lit_of(&m->value, l->base, false));
            spoken = true;
        }
        if (!spoken && l->additional) out = schema_lits_add(c, out, schema_lit_of(l->additional, l->base, false));
    }
    for (const schema_named *n = w->named; n; n = n->next) {
        if (view_eq(n->name, name)) out = schema_lits_add(c, out, n->l);
    }
    return out;
}

bool schema_name_allowed(schema_ctx *c, const schema_world *w, view name) {
    for (const schema_lits *l = w->names; l && !c->rc; l = l->next) {
        schema_node *n = schema_node_of(c, schema_lits_add(c, NULL, l->l));
        if (n && !ir_rx_matches(c->g, schema_node_text(c, n), name.data, name.len)) return false;
    }
    return true;
}

static ir_rx names_of(schema_ctx *c, const json_value *props) {
    size_t n = json_count(props);
    ir_rx *list = schema_alloc(c, (n + 1) * sizeof *list);
    if (!list) return ir_rx_none(c->g);
    for (size_t i = 0; i < n; i++) {
        view k = props->u.object.members[i].key;
        list[i] = ir_rx_bytes(c->g, k.data, k.len);
    }
    return ir_rx_alt_n(c->g, list, n);
}

ir_rx schema_layer_rest(schema_ctx *c, const json_value *s) {
    const json_value *props = schema_get(c, s, "properties"), *patterns = schema_get(c, s, "patternProperties");
    ir_rx             taken = json_is(props, JSON_K_OBJECT) ? names_of(c, props) : ir_rx_none(c->g), rx;
    for (size_t i = 0; json_is(patterns, JSON_K_OBJECT) && i < patterns->u.object.count; i++) {
        if (schema_pattern(c, s, patterns->u.object.members[i].key, &rx)) taken = ir_rx_alt(c->g, taken, rx);
    }
    return ir_rx_not(c->g, taken);
}

typedef struct classes {
    schema_class *v;
    size_t        n;
} classes;

static bool class_add(schema_ctx *c, const schema_world *w, classes *to, ir_rx names, const schema_lits *lits,
                      bool check) {
    if (check && ir_rx_is_empty(c->g, names)) return true;
    if (to->n == SCHEMA_MAX_CLASSES) {
        schema_fail(c, w->at, ERR_LIMIT, "'patternProperties' makes more than %d classes of names", SCHEMA_MAX_CLASSES);
        return false;
    }
    to->v[to->n++] = (schema_class){ names, lits };
    return true;
}

/* Cuts every class along one layer's patterns. */
static bool split(schema_ctx *c, const schema_world *w, const schema_layer *l, classes *all) {
    classes  next = { schema_alloc(c, SCHEMA_MAX_CLASSES * sizeof *next.v), 0 };
    size_t   n = l->patterns->u.object.count;
    uint8_t *spoken = schema_alloc(c, SCHEMA_MAX_CLASSES), *then = schema_alloc(c, SCHEMA_MAX_CLASSES);
    if (!next.v || !spoken || !then) return false;
    memset(spoken, 0, SCHEMA_MAX_CLASSES);
    for (size_t i = 0; i < n; i++) {
        const json_member *m = &l->patterns->u.object.members[i];
        ir_rx              rx;
        classes            old = *all;
        if (!schema_pattern(c, l->patterns, m->key, &rx)) return false;
        next.n = 0;
        for (size_t k = 0; k < old.n; k++) {
            size_t             at = next.n;
            const schema_lits *in = schema_lits_add(c, old.v[k].lits, schema_lit_of(&m->value, l->base, false));
            if (!class_add(c, w, &next, ir_rx_and(c->g, old.v[k].names, rx), in, true)) return false;
            while (at < next.n) then[at++] = 1;
            if (!class_add(c, w, &next, ir_rx_and(c->g, old.v[k].names, ir_rx_not(c->g, rx)), old.v[k].lits, true))
                return false;
            while (at < next.n) then[at++] = spoken[k];
        }
        memcpy(spoken, then, SCHEMA_MAX_CLASSES);
        memcpy(old.v, next.v, next.n * sizeof *next.v);
        all->n = next.n;
    }
    for (size_t k = 0; k < all->n && l->additional; k++) {
        if (!spoken[k])
            all->v[k].lits = schema_lits_add(c, all->v[k].lits, schema_lit_of(l->additional, l->base, false));
    }
    return !c->rc;
}

static bool is_false(const schema_lits *l) {
    for (; l; l = l->next) {
        if (l->l.kind == SCHEMA_IS && l->l.s->kind == JSON_K_BOOL && !l->l.s->u.boolean) return true;
    }
    return false;
}

static size_t find_classes(schema_ctx *c, const schema_world *w, const view *taken, size_t n_taken,
                           schema_class **out) {
    classes all = { schema_alloc(c, SCHEMA_MAX_CLASSES * sizeof *all.v), 0 };
    ir_rx  *list = schema_alloc(c, (n_taken + 1) * sizeof *list), names;
    size_t  kept = 0;
    *out = all.v;
    if (!all.v || !list) return 0;
    for (const schema_layer *l = w->layers; l; l = l->next) {
        if (!l->patterns && json_is(l->additional, JSON_K_BOOL)) return 0; /* closed, and nothing can open it again */
    }
    for (size_t i = 0; i < n_taken; i++) list[i] = ir_rx_bytes(c->g, taken[i].data, taken[i].len);
    names = n_taken ? ir_rx_not(c->g, ir_rx_alt_n(c->g, list, n_taken)) : ir_rx_all(c->g);
    for (const schema_lits *l = w->names; l && !c->rc; l = l->next) {
        schema_node *n = schema_node_of(c, schema_lits_add(c, NULL, l->l));
        if (n) names = ir_rx_and(c->g, names, schema_node_text(c, n));
    }
    if (!class_add(c, w, &all, names, NULL, w->names != NULL)) return 0;
    for (const schema_layer *l = w->layers; l && !c->rc; l = l->next) {
        if (l->patterns) {
            if (!split(c, w, l, &all)) return 0;
        } else if (l->additional) {
            for (size_t k = 0; k < all.n; k++)
                all.v[k].lits = schema_lits_add(c, all.v[k].lits, schema_lit_of(l->additional, l->base, false));
        }
    }
    for (size_t k = 0; k < all.n; k++) {
        if (!is_false(all.v[k].lits)) all.v[kept++] = all.v[k];
    }
    return c->rc ? 0 : kept;
}

/* The ways in which one object's demands are met ask the same question again and again: the last answer is kept. */
size_t schema_name_classes(schema_ctx *c, const schema_world *w, const view *taken, size_t n_taken,
                           schema_class **out) {
    schema_known_classes *k = &c->known_classes;
    bool                  same = k->list && k->layers == w->layers && k->names == w->names && k->n_taken == n_taken;
    for (size_t i = 0; i < n_taken && same; i++) same = view_eq(taken[i], k->taken[i]);
    if (!same) {
        *k = (schema_known_classes){ .layers = w->layers, .names = w->names, .taken = taken, .n_taken = n_taken };
        k->n = find_classes(c, w, taken, n_taken, &k->list);
    }
    *out = k->list;
    return c->rc ? 0 : k->n;
}
