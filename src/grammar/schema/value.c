/* SPDX-License-Identifier: Apache-2.0 */
/* One JSON value as an expression (enum, const), and the question whether a value fulfils a node. */
#include "grammar/schema/priv.h"

/*
 * White space between tokens: none, a space, or a line break with an indentation. Bounded, so that nothing can be
 * written for ever.
 */
ir_rx schema_ws(schema_ctx *c) {
    if (c->ws < 0) {
        ir_rx indent = ir_rx_alt(c->g, ir_rx_repeat(c->g, ir_rx_text(c->g, " "), 0, 32),
                                 ir_rx_repeat(c->g, ir_rx_text(c->g, "\t"), 0, 8));
        ir_rx line =
            ir_rx_cat(c->g, ir_rx_opt(c->g, ir_rx_text(c->g, "\r")), ir_rx_cat(c->g, ir_rx_text(c->g, "\n"), indent));
        c->ws = ir_rx_opt(c->g, ir_rx_alt(c->g, ir_rx_text(c->g, " "), line));
    }
    return c->ws;
}

ir_rx schema_string_rx(schema_ctx *c, ir_rx text) {
    return c->flags & SCHEMA_STEERED ? ir_rx_json_plain(c->g, text) : ir_rx_json_string(c->g, text);
}

static ir_rx wrap(schema_ctx *c, const char *open, ir_rx body, const char *close) {
    ir_rx ws = schema_ws(c);
    body = ir_rx_cat(c->g, ws, ir_rx_cat(c->g, body, ir_rx_cat(c->g, ws, ir_rx_text(c->g, close))));
    return ir_rx_cat(c->g, ir_rx_text(c->g, open), body);
}

/* Recursion is bounded by the JSON reader's depth limit. */
ir_rx schema_value_rx(schema_ctx *c, const json_value *v) {
    ir_rx      comma, colon, body = ir_rx_text(c->g, "");
    schema_dec d;
    switch (v->kind) {
    case JSON_K_NULL: return ir_rx_text(c->g, "null");
    case JSON_K_BOOL: return ir_rx_text(c->g, v->u.boolean ? "true" : "false");
    case JSON_K_STRING: return schema_string_rx(c, ir_rx_bytes(c->g, v->u.string.data, v->u.string.len));
    case JSON_K_INT:
    case JSON_K_REAL:
        if (schema_dec_read(v, &d)) return schema_number_equal(c, &d);
        schema_fail(c, v, ERR_UNSUPPORTED, "'enum' or 'const': a number has too many digits");
        return body;
    default: break;
    }
    comma = ir_rx_cat(c->g, ir_rx_text(c->g, ","), schema_ws(c));
    colon = ir_rx_cat(c->g, ir_rx_text(c->g, ":"), ir_rx_opt(c->g, ir_rx_text(c->g, " ")));
    if (!json_count(v)) {
        bool array = v->kind == JSON_K_ARRAY;
        return ir_rx_cat(c->g, ir_rx_text(c->g, array ? "[" : "{"),
                         ir_rx_cat(c->g, schema_ws(c), ir_rx_text(c->g, array ? "]" : "}")));
    }
    for (size_t i = json_count(v); i-- > 0;) { /* from the end: concatenations grow to the left cheaply */
        if (v->kind == JSON_K_ARRAY) {
            body = ir_rx_cat(c->g, schema_value_rx(c, &v->u.array.items[i]), body);
        } else {
            const json_member *m = &v->u.object.members[i];
            body = ir_rx_cat(c->g, ir_rx_cat(c->g, colon, schema_value_rx(c, &m->value)), body);
            body = ir_rx_cat(c->g, schema_string_rx(c, ir_rx_bytes(c->g, m->key.data, m->key.len)), body);
        }
        if (i) body = ir_rx_cat(c->g, comma, body);
    }
    return v->kind == JSON_K_ARRAY ? wrap(c, "[", body, "]") : wrap(c, "{", body, "}");
}

static bool schema_node_accepts(schema_ctx *c, schema_node *n, const json_value *v);

static bool array_accepts(schema_ctx *c, const schema_world *w, const json_value *v) {
    size_t n = v->u.array.count;
    if (n < w->min_items || n > w->max_items) return false;
    for (size_t i = 0; i < n && w->unique; i++) {
        for (size_t j = 0; j < i; j++) {
            if (schema_values_equal(&v->u.array.items[i], &v->u.array.items[j])) return false;
        }
    }
    for (size_t i = 0; i < n; i++) {
        schema_node *item = schema_node_of(c, schema_index_lits(c, w, i));
        if (!item || !schema_node_accepts(c, item, &v->u.array.items[i])) return false;
    }
    for (const schema_lits *l = w->contains; l; l = l->next) {
        schema_node *some = schema_node_of(c, schema_lits_add(c, NULL, l->l));
        bool         found = false;
        for (size_t i = 0; i < n && some && !found; i++) found = schema_node_accepts(c, some, &v->u.array.items[i]);
        if (!found) return false;
    }
    return true;
}

static bool object_accepts(schema_ctx *c, const schema_world *w, const json_value *v) {
    size_t n = v->u.object.count;
    if (n < w->min_props || n > w->max_props) return false;
    for (const schema_named *r = w->required; r; r = r->next) {
        bool found = false;
        for (size_t i = 0; i < n && !found; i++) found = view_eq(v->u.object.members[i].key, r->name);
        if (!found) return false;
    }
    for (size_t i = 0; i < n; i++) {
        const json_member *m = &v->u.object.members[i];
        schema_node       *value = schema_node_of(c, schema_name_lits(c, w, m->key));
        if (!schema_name_allowed(c, w, m->key) || !value || !schema_node_accepts(c, value, &m->value)) return false;
    }
    for (const schema_some *t = w->some; t; t = t->next) {
        schema_node *some = schema_node_of(c, schema_lits_add(c, NULL, t->l));
        bool         found = false;
        for (size_t i = 0; i < n && some && !found; i++) {
            const json_member *m = &v->u.object.members[i];
            found = ir_rx_matches(c->g, t->names, m->key.data, m->key.len) && schema_node_accepts(c, some, &m->value);
        }
        if (!found) return false;
    }
    return true;
}

/* All but w's own enum, which the value comes from. */
bool schema_world_accepts(schema_ctx *c, const schema_world *w, const json_value *v) {
    unsigned   type = schema_type_of(v);
    schema_dec d;
    if (!(w->types & type)) return false;
    for (const schema_values *x = w->excluded; x; x = x->next) {
        if (schema_values_equal(x->value, v)) return false;
    }
    switch (v->kind) {
    case JSON_K_STRING:
        if (!w->texts && !w->min_length && w->max_length == SCHEMA_NO_LIMIT) return true;
        return ir_rx_matches(c->g, schema_world_text(c, w), v->u.string.data, v->u.string.len);
    case JSON_K_INT:
    case JSON_K_REAL:
        if (!schema_dec_read(v, &d)) return false;
        if (w->lo.at) {
            int order = schema_dec_compare(&d, w->lo.at);
            if (order < 0 || (order == 0 && w->lo.exclusive)) return false;
        }
        if (w->hi.at) {
            int order = schema_dec_compare(&d, w->hi.at);
            if (order > 0 || (order == 0 && w->hi.exclusive)) return false;
        }
        if (w->multiples) {
            ir_rx both =
                ir_rx_and(c->g, schema_world_number(c, w, w->types & SCHEMA_NUMBER), schema_number_equal(c, &d));
            return !ir_rx_is_empty(c->g, both);
        }
        return true;
    case JSON_K_ARRAY: return array_accepts(c, w, v);
    case JSON_K_OBJECT: return object_accepts(c, w, v);
    default: return true;
    }
}

static bool schema_node_accepts(schema_ctx *c, schema_node *n, const json_value *v) {
    if (!schema_node_expand(c, n)) return !c->rc;
    for (const schema_world *w = n->worlds; w && !c->rc; w = w->next) {
        bool listed = !w->has_only;
        for (const schema_values *o = w->only; o && !listed; o = o->next) listed = schema_values_equal(o->value, v);
        if (listed && schema_world_accepts(c, w, v)) return true;
    }
    return false;
}
