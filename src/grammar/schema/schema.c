/* SPDX-License-Identifier: Apache-2.0 */
/* The schema compiler's frame: context, errors with a path, the queue of rules, scalars. */
#include "grammar/schema/schema.h"

#include "grammar/schema/priv.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void *schema_alloc(schema_ctx *c, size_t bytes) {
    void *p = c->rc ? NULL : arena_alloc(&c->a, bytes);
    if (!p && !c->rc)
        c->rc = c->a.at_limit
                    ? err_set(c->e, ERR_LIMIT, "the schema is too complex (more than %d MiB)", SCHEMA_MAX_MEMORY >> 20)
                    : err_set_nomem(c->e);
    return p;
}

/* The JSON pointer of `what`, found by walking the document: only errors ask. */
static bool path_find(const json_value *at, const json_value *what, str *out) {
    size_t mark = out->len;
    if (at == what) return true;
    for (size_t i = 0; i < json_count(at); i++) {
        if (at->kind == JSON_K_OBJECT) {
            const json_member *m = &at->u.object.members[i];
            str_push(out, '/');
            for (size_t k = 0; k < m->key.len; k++) {
                if (m->key.data[k] == '~' || m->key.data[k] == '/')
                    str_puts(out, m->key.data[k] == '~' ? "~0" : "~1");
                else
                    str_push(out, m->key.data[k]);
            }
            if (path_find(&m->value, what, out)) return true;
        } else {
            str_printf(out, "/%zu", i);
            if (path_find(&at->u.array.items[i], what, out)) return true;
        }
        if (out->data) out->data[mark] = 0;
        out->len = mark;
    }
    return false;
}

int schema_fail(schema_ctx *c, const json_value *at, int code, const char *fmt, ...) {
    char    msg[400];
    va_list args;
    str     path;
    if (c->rc) return c->rc;
    va_start(args, fmt);
    vsnprintf(msg, sizeof msg, fmt, args);
    va_end(args);
    str_init(&path);
    str_push(&path, '#');
    if (!at || !c->root || !path_find(c->root, at, &path)) {
        path.len = 1;
        if (path.data) path.data[1] = 0;
    }
    c->rc = err_set(c->e, code, "schema at %.200s: %s", str_cstr(&path), msg);
    str_deinit(&path);
    return c->rc;
}

/* 0: the schema names none. */
static int draft_of(const json_value *root) {
    static const struct {
        const char *part;
        int         draft;
    } known[] = { { "draft-04", 4 }, { "draft-03", 4 },   { "draft-05", 4 },  { "draft-06", 6 },
                  { "draft-07", 7 }, { "2019-09", 2019 }, { "2020-12", 2020 } };
    const char *uri = json_cstr(json_get(root, "$schema"));
    for (size_t i = 0; uri && i < sizeof known / sizeof *known; i++) {
        if (strstr(uri, known[i].part)) return known[i].draft;
    }
    return 0;
}

/* What a world's scalars may be written as. */
static ir_rx world_scalars(schema_ctx *c, const schema_world *w) {
    ir_rx    list[4];
    size_t   n = 0;
    unsigned types = w->types;
    bool     yes = true, no = true;
    if (w->has_only) {
        ir_rx  all = ir_rx_none(c->g), *each;
        size_t count = 0, k = 0;
        for (const schema_values *v = w->only; v; v = v->next) count++;
        each = schema_alloc(c, (count + 1) * sizeof *each);
        if (!each) return all;
        for (const schema_values *v = w->only; v && !c->rc; v = v->next) {
            if (schema_world_accepts(c, w, v->value)) each[k++] = schema_value_rx(c, v->value);
        }
        return ir_rx_alt_n(c->g, each, k);
    }
    for (const schema_values *v = w->excluded; v; v = v->next) {
        if (v->value->kind == JSON_K_BOOL) *(v->value->u.boolean ? &yes : &no) = false;
    }
    if (types & SCHEMA_NULL) list[n++] = ir_rx_text(c->g, "null");
    if (types & SCHEMA_BOOL) {
        ir_rx t = yes ? ir_rx_text(c->g, "true") : ir_rx_none(c->g),
              f = no ? ir_rx_text(c->g, "false") : ir_rx_none(c->g);
        list[n++] = ir_rx_alt(c->g, t, f);
    }
    if (types & SCHEMA_NUMBER) list[n++] = schema_world_number(c, w, types & SCHEMA_NUMBER);
    if (types & SCHEMA_STRING) list[n++] = schema_string_rx(c, schema_world_text(c, w));
    return ir_rx_alt_n(c->g, list, n);
}

/* Any JSON value: one rule for the whole grammar. */
static ir_sym schema_any(schema_ctx *c) {
    schema_world w = { .types = SCHEMA_ANY & ~(unsigned)(SCHEMA_ARRAY | SCHEMA_OBJECT),
                       .max_length = SCHEMA_NO_LIMIT,
                       .max_items = SCHEMA_NO_LIMIT,
                       .max_props = SCHEMA_NO_LIMIT };
    ir_sym       s;
    if (c->any >= 0) return c->any;
    c->any = ir_rule(c->g, "any");
    s = ir_terminal(c->g, world_scalars(c, &w));
    ir_rule_alt(c->g, c->any, &s, 1);
    s = schema_world_array(c, &w);
    ir_rule_alt(c->g, c->any, &s, 1);
    s = schema_world_object(c, &w);
    ir_rule_alt(c->g, c->any, &s, 1);
    return c->any;
}

static void node_queue(schema_ctx *c, schema_node *n) {
    if (n->queued) return;
    n->queued = true;
    if (c->queue_tail)
        c->queue_tail->next_queued = n;
    else
        c->queue = n;
    c->queue_tail = n;
}

static bool is_structured(const schema_world *w) { return !w->has_only && (w->types & (SCHEMA_ARRAY | SCHEMA_OBJECT)); }

ir_sym schema_node_sym(schema_ctx *c, schema_node *n) {
    bool  structured = false;
    ir_rx scalars = ir_rx_none(c->g);
    if (n->sym >= 0) return n->sym;
    if (!schema_node_expand(c, n)) return ir_terminal(c->g, scalars);
    if (!n->n_lits) {
        n->sym = schema_any(c);
        return n->sym;
    }
    for (const schema_world *w = n->worlds; w && !structured; w = w->next) structured = is_structured(w);
    if (structured) {
        n->sym = ir_rule(c->g, "value");
        node_queue(c, n);
        return n->sym;
    }
    for (const schema_world *w = n->worlds; w && !c->rc; w = w->next)
        scalars = ir_rx_alt(c->g, scalars, world_scalars(c, w));
    n->sym = ir_terminal(c->g, scalars);
    return n->sym;
}

/* Worlds that stray are left out where others do without. */
static bool may_stray(schema_ctx *c, const schema_node *n) {
    for (const schema_world *w = n->worlds; w; w = w->next) {
        if (!w->has_only && (w->types & SCHEMA_OBJECT) && !schema_world_strays(c, w)) return false;
    }
    return true;
}

static void node_compile(schema_ctx *c, schema_node *n) {
    ir_rx scalars = ir_rx_none(c->g);
    bool  stray = may_stray(c, n);
    for (const schema_world *w = n->worlds; w && !c->rc; w = w->next) {
        scalars = ir_rx_alt(c->g, scalars, world_scalars(c, w));
        if (w->has_only || (!stray && schema_world_strays(c, w))) continue;
        for (int object = 0; object < 2 && !c->rc; object++) {
            ir_sym s;
            if (!(w->types & (object ? SCHEMA_OBJECT : SCHEMA_ARRAY))) continue;
            s = object ? schema_world_object(c, w) : schema_world_array(c, w);
            ir_rule_alt(c->g, n->sym, &s, 1);
        }
    }
    if (scalars != ir_rx_none(c->g)) {
        ir_sym s = ir_terminal(c->g, scalars);
        ir_rule_alt(c->g, n->sym, &s, 1);
    }
}

static int compile(schema_ctx *c, ir_sym *start, ir_rx *text) {
    schema_node *root;
    if (schema_resources_find(c) < 0) return c->rc;
    root = schema_node_of(c, schema_lits_add(c, NULL, schema_lit_of(c->root, 0, false)));
    if (!root) return c->rc;
    if (text) {
        *text = schema_node_text(c, root);
        return c->rc;
    }
    *start = schema_node_sym(c, root);
    if (!c->rc && (!root->expanded || (root->n_lits && !root->worlds) || schema_node_is_empty(c, root)))
        return schema_fail(c, c->root, ERR_ARG, "the schema contradicts itself: no instance is valid");
    while (c->queue && !c->rc) {
        schema_node *n = c->queue;
        c->queue = n->next_queued;
        if (!c->queue) c->queue_tail = NULL;
        node_compile(c, n);
        if (!c->rc) {
            err why = { 0 };
            if (ir_error(c->g, &why))
                return schema_fail(c, n->n_lits ? n->lits[0].s : NULL, why.code, "%.380s", why.msg);
        }
    }
    return c->rc;
}

/* About what a tree takes as text. False: more than is left. */
static bool fits(const json_value *v, size_t *left) {
    size_t own = v->kind == JSON_K_STRING ? v->u.string.len + 3 : 6;
    if (own > *left) return false;
    *left -= own;
    for (size_t i = 0; v->kind == JSON_K_ARRAY && i < v->u.array.count; i++) {
        if (!fits(&v->u.array.items[i], left)) return false;
    }
    for (size_t i = 0; v->kind == JSON_K_OBJECT && i < v->u.object.count; i++) {
        const json_member *m = &v->u.object.members[i];
        if (m->key.len > *left) return false;
        *left -= m->key.len;
        if (!fits(&m->value, left)) return false;
    }
    return true;
}

static int refuse_size(err *e) { return err_set(e, ERR_LIMIT, "the schema has more than %u bytes", SCHEMA_MAX_BYTES); }

/* The tree root, or where that is NULL the text json. */
static int read_and_compile(ir *g, view json, const json_value *root, unsigned flags, ir_sym *start, ir_rx *text,
                            err *e) {
    schema_ctx c = { .g = g, .e = e, .flags = flags, .any = -1, .ws = -1, .lead = { -1, -1 }, .colon = -1 };
    err        why = { 0 };
    int        rc = 0;
    for (size_t i = 0; i < sizeof c.plain_number / sizeof *c.plain_number; i++) c.plain_number[i] = -1;
    arena_init(&c.a, SCHEMA_MAX_MEMORY);
    map_init(&c.anchors);
    map_init(&c.refs);
    map_init(&c.nodes);
    map_init(&c.patterns);
    c.root = root;
    if (!root && (rc = json_parse(&c.root, json.data, json.len, &c.a, &why)) < 0) {
        err_set(e, rc, "schema: %.400s", why.msg);
    } else {
        c.draft = draft_of(c.root);
        c.draft_named = c.draft != 0;
        if (!c.draft_named) c.draft = 2020;
        rc = compile(&c, start, text);
    }
    map_deinit(&c.anchors);
    map_deinit(&c.refs);
    map_deinit(&c.nodes);
    map_deinit(&c.patterns);
    arena_deinit(&c.a);
    return rc;
}

int schema_compile(ir *g, view json, ir_sym *start, err *e) { return schema_compile_with(g, json, 0, start, e); }

int schema_compile_with(ir *g, view json, unsigned flags, ir_sym *start, err *e) {
    *start = 0;
    if (json.len > SCHEMA_MAX_BYTES) return refuse_size(e);
    return read_and_compile(g, json, NULL, flags, start, NULL, e);
}

int schema_compile_tree(ir *g, const json_value *schema, unsigned flags, ir_sym *start, err *e) {
    size_t left = SCHEMA_MAX_BYTES;
    *start = 0;
    if (!fits(schema, &left)) return refuse_size(e);
    return read_and_compile(g, (view){ "", 0 }, schema, flags, start, NULL, e);
}

int schema_compile_text(ir *g, const json_value *schema, ir_rx *out, err *e) {
    size_t left = SCHEMA_MAX_BYTES;
    ir_sym none;
    *out = ir_rx_none(g);
    if (!fits(schema, &left)) return refuse_size(e);
    return read_and_compile(g, (view){ "", 0 }, schema, 0, &none, out, e);
}
