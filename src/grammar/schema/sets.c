/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Things that must differ: items under uniqueItems, names under minProperties.
 *
 * The state is the set of those written so far, so it is exact only where they come from a finite list, and small where
 * the list is short or where few of them need to be remembered. Of endless values no finite state can say whether one
 * was there before.
 */
#include "grammar/schema/priv.h"

typedef struct set_key {
    uint64_t place, set;
} set_key;

ir_sym schema_set_find(const map *sets, uint64_t place, uint64_t set) {
    set_key  key = { place, set };
    uint64_t known;
    return map_get(sets, (const char *)&key, sizeof key, &known) ? (ir_sym)known : -1;
}

void schema_set_keep(schema_ctx *c, map *sets, uint64_t place, uint64_t set, ir_sym sym) {
    set_key *key = schema_alloc(c, sizeof *key);
    if (!key) return;
    *key = (set_key){ place, set };
    if (!map_put(sets, (const char *)key, sizeof *key, (uint64_t)sym)) schema_fail(c, NULL, ERR_NOMEM, "out of memory");
}

uint64_t schema_set_moves(size_t n, uint64_t most) {
    uint64_t all = 0, sets = 1; /* of j things */
    for (size_t j = 0; j < n && j < most && all <= SCHEMA_MAX_SET_MOVES; j++) {
        all += sets * (n - j);
        sets = sets * (n - j) / (j + 1);
    }
    return all;
}

typedef struct value_list {
    const json_value **out;
    size_t             n, cap;
} value_list;

/* False: there are too many. */
static bool value_add(schema_ctx *c, const schema_world *w, const json_value *v, value_list *list) {
    if (!schema_world_accepts(c, w, v)) return true;
    for (size_t i = 0; i < list->n; i++) {
        if (schema_values_equal(list->out[i], v)) return true;
    }
    if (list->n == list->cap) return false;
    list->out[list->n++] = v;
    return true;
}

static int64_t whole_of(const schema_dec *d) {
    int64_t n = 0;
    for (size_t i = 0; i < d->n_whole; i++) n = n * 10 + (d->whole[i] - '0');
    return d->negative ? -n : n;
}

/* The integers between two bounds. */
static bool integers_add(schema_ctx *c, const schema_world *w, value_list *list) {
    int64_t from, to;
    if (!w->lo.at || !w->hi.at || w->lo.at->n_whole > 15 || w->hi.at->n_whole > 15) return false;
    from = whole_of(w->lo.at);
    to = whole_of(w->hi.at);
    if (to - from >= SCHEMA_MAX_SPAN) return false;
    for (int64_t n = from; n <= to && !c->rc; n++) {
        json_value *v = schema_alloc(c, sizeof *v);
        if (!v) return false;
        *v = (json_value){ .kind = JSON_K_INT, .u.integer = n };
        if (!value_add(c, w, v, list)) return false;
    }
    return true;
}

bool schema_node_values(schema_ctx *c, schema_node *n, const json_value **out, size_t cap, size_t *count) {
    static const json_value null = { .kind = JSON_K_NULL };
    value_list              list = { out, 0, cap };
    *count = 0;
    if (!schema_node_expand(c, n)) return false;
    for (const schema_world *w = n->worlds; w && !c->rc; w = w->next) {
        if (w->has_only) {
            for (const schema_values *v = w->only; v; v = v->next) {
                if (!value_add(c, w, v->value, &list)) return false;
            }
            continue;
        }
        if (w->types & ~(unsigned)(SCHEMA_NULL | SCHEMA_BOOL | SCHEMA_INT)) return false;
        if (!value_add(c, w, &null, &list) || !value_add(c, w, schema_make_bool(false), &list) ||
            !value_add(c, w, schema_make_bool(true), &list) || ((w->types & SCHEMA_INT) && !integers_add(c, w, &list)))
            return false;
    }
    *count = list.n;
    return !c->rc;
}
