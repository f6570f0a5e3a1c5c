/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays: a tuple of single items, then any number of equal ones.
 *
 * contains asks for a witness: items, one that fulfils it, items. uniqueItems is exact where the items come from a
 * finite list of values (schema_sets.c) or where there is at most one item; elsewhere it is refused.
 */
#include "grammar/schema/priv.h"

#include <string.h>

enum { MAX_PREFIX = 256, MAX_WITNESS = 64, MAX_DEMANDS = 4 };

static size_t schema_prefix_length(const schema_world *w) {
    size_t n = 0;
    for (const schema_items *t = w->items; t; t = t->next) {
        if (json_count(t->prefix) > n) n = json_count(t->prefix);
    }
    for (const schema_item_at *t = w->item_at; t; t = t->next) {
        if (t->index + 1 > n) n = t->index + 1;
    }
    return n;
}

const schema_lits *schema_index_lits(schema_ctx *c, const schema_world *w, size_t index) {
    const schema_lits *out = NULL;
    for (const schema_items *t = w->items; t; t = t->next) {
        if (index < json_count(t->prefix))
            out = schema_lits_add(c, out, schema_lit_of(&t->prefix->u.array.items[index], t->base, false));
        else if (t->has_rest)
            out = schema_lits_add(c, out, t->rest);
    }
    for (const schema_item_at *t = w->item_at; t; t = t->next) {
        if (t->index == index) out = schema_lits_add(c, out, t->l);
    }
    return out;
}

static ir_sym terminal(schema_ctx *c, ir_rx a, ir_rx b) { return ir_terminal(c->g, ir_rx_cat(c->g, a, b)); }

typedef struct array {
    schema_ctx         *c;
    const schema_world *w;
    ir_sym              open, comma, close, empty;
    uint64_t            min, max;
} array;

static ir_sym seq2(const array *a, ir_sym x, ir_sym y) { return ir_seq(a->c->g, (ir_sym[]){ x, y }, 2); }

/* min to max items, each with its comma in front. */
static ir_sym commas(const array *a, ir_sym item, uint64_t min, uint64_t max) {
    if (max == 0) return ir_seq(a->c->g, NULL, 0);
    if (min > UINT32_MAX || (max != SCHEMA_NO_LIMIT && max > UINT32_MAX)) {
        schema_fail(a->c, a->w->at, ERR_LIMIT, "'minItems' or 'maxItems' is too large");
        return item;
    }
    return ir_repeat(a->c->g, seq2(a, a->comma, item), (uint32_t)min, max == SCHEMA_NO_LIMIT ? -1 : (int64_t)max);
}

static uint64_t less(uint64_t n, uint64_t by) { return n == SCHEMA_NO_LIMIT ? n : n > by ? n - by : 0; }

static ir_sym plain(array *a, ir_sym item) {
    ir_sym list[4] = { a->open, item, commas(a, item, less(a->min, 1), less(a->max, 1)), a->close }, full;
    if (a->max == 0) return a->empty;
    full = ir_seq(a->c->g, list, 4);
    return a->min ? full : ir_alt(a->c->g, (ir_sym[]){ a->empty, full }, 2);
}

/* Single items first; built from the last one backwards. */
static ir_sym tuple(array *a, size_t n_prefix) {
    schema_ctx *c = a->c;
    ir_sym      tail = a->close, items[MAX_PREFIX];
    uint64_t    max = a->max;
    size_t      n = 0;
    for (; n < n_prefix && n < max && !c->rc; n++) {
        schema_node *node = schema_node_of(c, schema_index_lits(c, a->w, n));
        if (!node || schema_node_is_empty(c, node)) {
            max = n;
            break;
        }
        items[n] = schema_node_sym(c, node);
    }
    if (max < a->min) return ir_terminal(c->g, ir_rx_none(c->g));
    if (max == 0) return a->empty;
    if (max > n_prefix) {
        schema_node *rest = schema_node_of(c, schema_index_lits(c, a->w, n_prefix));
        if (rest && !schema_node_is_empty(c, rest))
            tail = seq2(a, commas(a, schema_node_sym(c, rest), less(a->min, n_prefix), less(max, n_prefix)), a->close);
        else if (a->min > n_prefix)
            return ir_terminal(c->g, ir_rx_none(c->g));
    }
    for (size_t i = n; i-- > 0;) {
        ir_sym list[3] = { i ? a->comma : a->open, items[i], tail };
        tail = ir_seq(c->g, list, 3);
        if (a->min <= i) tail = ir_alt(c->g, (ir_sym[]){ tail, i ? a->close : a->empty }, 2);
    }
    return tail;
}

/*
 * contains: the state is the set of demands that are met and, as far as it matters, the number of items. Each item
 * meets any of the open demands or none.
 */
typedef struct demands {
    array             *a;
    const schema_lits *list[MAX_DEMANDS];
    size_t             n, n_prefix;
    size_t             n_counts;
    ir_sym            *states; /* [met * n_counts + count] */
} demands;

static ir_sym demand_item(demands *d, size_t met, size_t index) {
    schema_ctx        *c = d->a->c;
    const schema_lits *lits = schema_index_lits(c, d->a->w, index < d->n_prefix ? index : d->n_prefix);
    schema_node       *node;
    for (size_t i = 0; i < d->n; i++) {
        if (met >> i & 1) lits = schema_lits_add(c, lits, d->list[i]->l);
    }
    node = schema_node_of(c, lits);
    return !node || schema_node_is_empty(c, node) ? -1 : schema_node_sym(c, node);
}

static ir_sym demand_state(demands *d, size_t met, size_t count) {
    array *a = d->a;
    ir_sym alts[(1 << MAX_DEMANDS) + 1], out;
    size_t n = 0, full = ((size_t)1 << d->n) - 1, at = met * d->n_counts + count;
    bool   last = count + 1 == d->n_counts;
    ir_sym item;
    if (d->states[at] >= 0) return d->states[at];
    if (met == full && count >= a->min) alts[n++] = count ? a->close : a->empty;
    for (size_t add = 0; add <= full && count < a->max && !a->c->rc; add++) {
        if ((add & met) || (add == 0 && last) || (item = demand_item(d, add, count)) < 0) continue;
        alts[n++] = ir_seq(
            a->c->g,
            (ir_sym[]){ count ? a->comma : a->open, item, demand_state(d, met | add, last ? count : count + 1) }, 3);
    }
    out = ir_alt(a->c->g, alts, n);
    if (last && a->max == SCHEMA_NO_LIMIT && (item = demand_item(d, 0, count)) >= 0)
        out = seq2(a, commas(a, item, 0, SCHEMA_NO_LIMIT), out);
    d->states[at] = out;
    return out;
}

static ir_sym containing(array *a, size_t n_prefix) {
    schema_ctx *c = a->c;
    demands     d = { .a = a, .n_prefix = n_prefix };
    uint64_t    counts = a->max != SCHEMA_NO_LIMIT ? a->max : a->min > n_prefix ? a->min : n_prefix;
    if (counts < 1) counts = 1; /* the first item has no comma */
    for (const schema_lits *l = a->w->contains; l; l = l->next) {
        if (d.n == MAX_DEMANDS) {
            schema_fail(c, a->w->at, ERR_LIMIT, "more than %d 'contains' for one array are not supported", MAX_DEMANDS);
            return 0;
        }
        d.list[d.n++] = l;
    }
    if (counts > MAX_WITNESS) {
        schema_fail(c, a->w->at, ERR_LIMIT,
                    "'contains' together with 'minItems' or 'maxItems' above %d is not supported", MAX_WITNESS);
        return 0;
    }
    d.n_counts = counts + 1;
    d.states = schema_alloc(c, (d.n_counts << d.n) * sizeof *d.states);
    if (!d.states) return 0;
    memset(d.states, 0xFF, (d.n_counts << d.n) * sizeof *d.states);
    return demand_state(&d, 0, 0);
}

typedef struct unique {
    array *a;
    map    sets;
    ir_rx  values[SCHEMA_MAX_SET];
    size_t n;
} unique;

static ir_sym unique_state(unique *u, uint64_t seen) {
    array   *a = u->a;
    ir_sym   alts[SCHEMA_MAX_SET + 1], out;
    size_t   n = 0;
    uint64_t count = (uint64_t)__builtin_popcountll(seen);
    if (count && count == a->max) return a->close;
    if ((out = schema_set_find(&u->sets, 0, seen)) >= 0) return out;
    if (count >= a->min) alts[n++] = seen ? a->close : a->empty;
    for (size_t i = 0; i < u->n && !a->c->rc; i++) {
        if (seen >> i & 1) continue;
        alts[n++] = ir_seq(a->c->g,
                           (ir_sym[]){ seen ? a->comma : a->open, ir_terminal(a->c->g, u->values[i]),
                                       unique_state(u, seen | (uint64_t)1 << i) },
                           3);
    }
    out = n ? ir_alt(a->c->g, alts, n) : ir_terminal(a->c->g, ir_rx_none(a->c->g));
    schema_set_keep(a->c, &u->sets, 0, seen, out);
    return out;
}

static ir_sym distinct(array *a, schema_node *item) {
    schema_ctx       *c = a->c;
    const json_value *values[SCHEMA_MAX_SET];
    unique            u = { .a = a };
    ir_sym            out;
    if (!item || !schema_node_values(c, item, values, SCHEMA_MAX_SET, &u.n) ||
        schema_set_moves(u.n, a->max) > SCHEMA_MAX_SET_MOVES) {
        schema_fail(c, a->w->at, ERR_UNSUPPORTED, "'uniqueItems' is not supported with items of many values");
        return 0;
    }
    for (size_t i = 0; i < u.n; i++) u.values[i] = schema_value_rx(c, values[i]);
    map_init(&u.sets);
    out = unique_state(&u, 0);
    map_deinit(&u.sets);
    return out;
}

ir_sym schema_world_array(schema_ctx *c, const schema_world *w) {
    ir_rx        ws = schema_ws(c), none = ir_rx_none(c->g);
    array        a = { .c = c, .w = w, .min = w->min_items, .max = w->max_items };
    size_t       n_prefix = schema_prefix_length(w);
    schema_node *item;
    if (a.min > a.max) return ir_terminal(c->g, none);
    a.open = terminal(c, ir_rx_text(c->g, "["), ws);
    a.comma = terminal(c, ir_rx_text(c->g, ","), ws);
    a.close = terminal(c, ws, ir_rx_text(c->g, "]"));
    a.empty = ir_terminal(c->g, ir_rx_cat(c->g, ir_rx_text(c->g, "["), ir_rx_cat(c->g, ws, ir_rx_text(c->g, "]"))));
    if (n_prefix > MAX_PREFIX) {
        schema_fail(c, w->at, ERR_LIMIT, "a tuple of more than %d items is not supported", MAX_PREFIX);
        return 0;
    }
    item = schema_node_of(c, schema_index_lits(c, w, 0));
    if (w->unique && a.max > 1) {
        if (w->contains || n_prefix) {
            schema_fail(c, w->at, ERR_UNSUPPORTED, "'uniqueItems' is not supported with 'contains' or with a tuple");
            return 0;
        }
        if (item && schema_node_is_empty(c, item)) return a.min ? ir_terminal(c->g, none) : a.empty;
        return distinct(&a, item);
    }
    if (w->contains) return containing(&a, n_prefix);
    if (n_prefix) return tuple(&a, n_prefix);
    if (!item) return 0;
    if (schema_node_is_empty(c, item)) return a.min ? ir_terminal(c->g, none) : a.empty;
    return plain(&a, schema_node_sym(c, item));
}
