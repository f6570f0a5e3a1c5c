/* SPDX-License-Identifier: Apache-2.0 */
/* Strings: patterns, lengths and formats are intersected as expressions over the decoded text. */
#include "grammar/schema/priv.h"

#include <string.h>

bool schema_pattern(schema_ctx *c, const json_value *s, view pattern, ir_rx *out) {
    uint64_t known;
    err      why = { 0 };
    if (map_get(&c->patterns, pattern.data, pattern.len, &known)) {
        *out = (ir_rx)known;
        return true;
    }
    if (ir_rx_parse(c->g, pattern.data, pattern.len, IR_RX_SEARCH, out, &why) < 0) {
        schema_fail(c, s, why.code, "pattern: %.300s", why.msg);
        return false;
    }
    if (!map_put(&c->patterns, pattern.data, pattern.len, (uint64_t)*out)) {
        schema_fail(c, s, ERR_NOMEM, "out of memory");
        return false;
    }
    return true;
}

ir_rx schema_world_text(schema_ctx *c, const schema_world *w) {
    ir_rx  out = ir_rx_all(c->g), *list;
    size_t n = 0;
    if (w->min_length > w->max_length) return ir_rx_none(c->g);
    if (w->min_length > UINT32_MAX || (w->max_length != SCHEMA_NO_LIMIT && w->max_length > UINT32_MAX)) {
        schema_fail(c, w->at, ERR_LIMIT, "'minLength' or 'maxLength' is too large");
        return out;
    }
    if (w->min_length || w->max_length != SCHEMA_NO_LIMIT) {
        int64_t max = w->max_length == SCHEMA_NO_LIMIT ? -1 : (int64_t)w->max_length;
        out = ir_rx_repeat(c->g, ir_rx_any(c->g), (uint32_t)w->min_length, max);
    }
    for (const schema_texts *t = w->texts; t; t = t->next) out = ir_rx_and(c->g, out, t->rx);
    for (const schema_values *v = w->excluded; v; v = v->next) n += v->value->kind == JSON_K_STRING;
    if (!n) return out;
    list = schema_alloc(c, n * sizeof *list);
    if (!list) return out;
    n = 0;
    for (const schema_values *v = w->excluded; v; v = v->next) {
        if (v->value->kind == JSON_K_STRING)
            list[n++] = ir_rx_bytes(c->g, v->value->u.string.data, v->value->u.string.len);
    }
    return ir_rx_and(c->g, out, ir_rx_not(c->g, ir_rx_alt_n(c->g, list, n)));
}

ir_rx schema_node_text(schema_ctx *c, schema_node *n) {
    ir_rx out = ir_rx_none(c->g);
    if (n->text >= 0) return n->text;
    if (!schema_node_expand(c, n)) {
        schema_fail(c, NULL, ERR_UNSUPPORTED, "'propertyNames' refers to itself");
        return out;
    }
    for (const schema_world *w = n->worlds; w && !c->rc; w = w->next) {
        if (!(w->types & SCHEMA_STRING)) continue;
        if (!w->has_only) {
            out = ir_rx_alt(c->g, out, schema_world_text(c, w));
            continue;
        }
        for (const schema_values *v = w->only; v; v = v->next) {
            if (v->value->kind == JSON_K_STRING && schema_world_accepts(c, w, v->value))
                out = ir_rx_alt(c->g, out, ir_rx_bytes(c->g, v->value->u.string.data, v->value->u.string.len));
        }
    }
    n->text = out;
    return out;
}
