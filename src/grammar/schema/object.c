/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects.
 *
 * Members come in any order. Which of the tracked members were written is the state: the required ones, and the
 * optional ones too while there are few (then no name comes twice). Between them the other members may come at any
 * time. States are subsets, so only few are tracked this way; more required members come in one of two fixed orders,
 * that of "properties" or that of "required". Under SCHEMA_STEERED an object whose schema lists its members has no
 * others, and one with required members begins with a declared one.
 *
 * An optional member that is not tracked may be written twice. Readers take the last one, both fulfil the schema, and
 * counts stay right: maxProperties counts every member. minProperties counts names: as long as it is not fulfilled, the
 * state knows which of the declared ones were written; it is refused where endless names could repeat.
 */
#include "grammar/schema/priv.h"

#include <string.h>

enum {
    MAX_SUBSET = 8,
    MAX_EAGER = 8,         /* required members tracked while there are few such objects */
    MAX_GAP = 32,          /* of more, one may be out of place */
    MAX_ALL_STATES = 4096, /* of all those objects */
    MAX_STATES = 16384,
    MAX_WITNESSES = 5,
    MAX_OBJECTS = 256, /* ways in which the witnesses can be found */
};

typedef struct member {
    view   name;
    ir_rx  names;   /* of a member that is known by a pattern only */
    bool   literal; /* has one name */
    bool   required;
    ir_sym value;
    ir_sym sym[2]; /* with what follows a member in front, and as the first one; 0: not built yet */
} member;

/* A member that must exist, among the names of one class. */
typedef struct witness {
    ir_rx              names;
    const schema_lits *lits;
    size_t             in;
} witness;

typedef struct object {
    schema_ctx         *c;
    const schema_world *w;
    member             *members; /* declared ones in the schema's order, then witnesses, then classes */
    size_t              n, cap;
    const witness      *witnesses;
    size_t              n_witnesses;
    ir_sym              loose_first, loose_next;       /* any member that is not tracked; -1: there is none */
    ir_sym              declared_first, declared_next; /* the same without names that the schema does not mention */
    ir_sym              close;
    const size_t       *tracked; /* indices of members */
    size_t              n_tracked, n_required;
    bool                chain;          /* tracked members come in their order */
    bool                gap;            /* but one may be out of place at any time */
    bool                declared_begin; /* the first member is one that the schema mentions */
    uint64_t            min, max;
    size_t              n_counts; /* counts of loose members that are told apart */
    ir_sym             *states;   /* [progress * n_counts + count], -1: not built */
    uint64_t            n_differ; /* loose members that must have different names; 0: need not be known */
    size_t              loose[SCHEMA_MAX_SET], n_loose; /* indices of them, where they must */
    map                 sets;                           /* of less than n_differ loose members */
} object;

static member *member_add(object *o, member m) {
    if (o->n == o->cap) {
        size_t  cap = o->cap ? o->cap * 2 : 16;
        member *grown = schema_alloc(o->c, cap * sizeof *grown);
        if (!grown) return NULL;
        if (o->n) memcpy(grown, o->members, o->n * sizeof *grown);
        o->members = grown;
        o->cap = cap;
    }
    o->members[o->n] = m;
    return &o->members[o->n++];
}

/* The names that propertyNames lists: as declared ones they can be counted. */
static size_t names_listed(schema_ctx *c, const schema_world *w, map *seen, view *out) {
    const json_value *values[SCHEMA_MAX_SET];
    size_t            n = 0, count;
    for (const schema_lits *l = w->names; l && !c->rc; l = l->next) {
        schema_node *node = schema_node_of(c, schema_lits_add(c, NULL, l->l));
        if (!node || !schema_node_values(c, node, values, SCHEMA_MAX_SET, &count)) continue;
        for (size_t i = 0; i < count; i++) {
            view k = values[i]->kind == JSON_K_STRING ? values[i]->u.string : (view){ 0 };
            if (values[i]->kind != JSON_K_STRING || map_get(seen, k.data, k.len, NULL)) continue;
            out[n++] = k;
            if (!map_put(seen, k.data, k.len, 1)) schema_fail(c, NULL, ERR_NOMEM, "out of memory");
        }
    }
    return n;
}

/* Every declared name once, in the order in which the subschemas name them. */
static size_t names_collect(schema_ctx *c, const schema_world *w, view **out) {
    const schema_layer *layers[64];
    size_t              n_layers = 0, n = 0, n_required = 0, cap = 0;
    map                 seen;
    for (const schema_layer *l = w->layers; l; l = l->next) cap += json_count(l->props);
    for (const schema_named *r = w->required; r; r = r->next) n_required++;
    cap += n_required;
    for (const schema_named *r = w->named; r; r = r->next) cap++;
    for (const schema_lits *l = w->names; l; l = l->next) cap += SCHEMA_MAX_SET;
    *out = schema_alloc(c, (cap + 1) * sizeof **out);
    if (!*out) return 0;
    map_init(&seen);
    for (const schema_layer *l = w->layers; l; l = l->next) {
        if (n_layers == sizeof layers / sizeof *layers) {
            schema_fail(c, w->at, ERR_LIMIT, "more than 64 subschemas apply to one object");
            break;
        }
        layers[n_layers++] = l;
    }
    while (n_layers > 0 && !c->rc) {
        const schema_layer *l = layers[--n_layers];
        for (size_t i = 0; i < json_count(l->props); i++) {
            view k = l->props->u.object.members[i].key;
            if (map_get(&seen, k.data, k.len, NULL)) continue;
            (*out)[n++] = k;
            if (!map_put(&seen, k.data, k.len, 1)) schema_fail(c, NULL, ERR_NOMEM, "out of memory");
        }
    }
    for (int part = 0; part < 2; part++) {
        size_t from = n;
        for (const schema_named *r = part ? w->named : w->required; r && !c->rc; r = r->next) {
            if (map_get(&seen, r->name.data, r->name.len, NULL)) continue;
            (*out)[n++] = r->name;
            if (!map_put(&seen, r->name.data, r->name.len, 1)) schema_fail(c, NULL, ERR_NOMEM, "out of memory");
        }
        for (size_t to = n; from + 1 < to; from++) { /* the lists are newest first */
            view swap = (*out)[from];
            (*out)[from] = (*out)[--to];
            (*out)[to] = swap;
        }
    }
    if (w->min_props > n_required + 1) n += names_listed(c, w, &seen, *out + n);
    map_deinit(&seen);
    return c->rc ? 0 : n;
}

static bool is_required(const schema_world *w, view name) {
    for (const schema_named *r = w->required; r; r = r->next) {
        if (view_eq(r->name, name)) return true;
    }
    return false;
}

static const schema_lits *lits_join(schema_ctx *c, const schema_lits *a, const schema_lits *b) {
    for (; a; a = a->next) b = schema_lits_add(c, b, a->l);
    return b;
}

static bool is_listed(const schema_world *w, view name) {
    for (const schema_layer *l = w->layers; l; l = l->next) {
        for (size_t i = 0; i < json_count(l->props); i++) {
            const json_member *m = &l->props->u.object.members[i];
            if (view_eq(m->key, name) && (m->value.kind != JSON_K_BOOL || m->value.u.boolean)) return true;
        }
    }
    return false;
}

/* Steered, and some subschema lists what the object has, while none says that it may have more. A list of names that
 * must not be there is not such a list. */
static bool is_closed(const schema_ctx *c, const schema_world *w) {
    bool listed = false;
    if (!(c->flags & SCHEMA_STEERED)) return false;
    for (const schema_layer *l = w->layers; l; l = l->next) {
        if (l->open || l->additional) return false;
        listed = listed || (l->props && !json_count(l->props));
        for (size_t i = 0; i < json_count(l->props) && !listed; i++)
            listed = is_listed(w, l->props->u.object.members[i].key);
    }
    return listed;
}

bool schema_world_strays(const schema_ctx *c, const schema_world *w) {
    if (!w->named || !is_closed(c, w)) return false;
    for (const schema_named *n = w->named; n; n = n->next) {
        if (is_required(w, n->name) && !is_listed(w, n->name)) return true;
    }
    return false;
}

/* False: an object cannot exist. */
static bool members_collect(object *o) {
    schema_ctx         *c = o->c;
    const schema_world *w = o->w;
    view               *names;
    schema_class       *classes;
    size_t              n = names_collect(c, w, &names), n_classes;
    bool                closed = is_closed(c, w);
    for (size_t i = 0; i < n && !c->rc; i++) {
        bool         required = is_required(w, names[i]);
        schema_node *value =
            schema_name_allowed(c, w, names[i]) ? schema_node_of(c, schema_name_lits(c, w, names[i])) : NULL;
        if (!value || schema_node_is_empty(c, value)) {
            if (required) return false;
            continue;
        }
        if (closed && !required && !is_listed(w, names[i])) continue;
        member_add(
            o, (member){ .name = names[i], .literal = true, .required = required, .value = schema_node_sym(c, value) });
    }
    if (o->n < w->min_props) closed = false; /* more than what is listed must be there */
    n_classes = schema_name_classes(c, w, names, n, &classes);
    for (size_t i = 0; i < o->n_witnesses && !c->rc; i++) {
        const witness *t = &o->witnesses[i];
        schema_node   *value;
        ir_rx          both;
        if (t->in >= n_classes) return false;
        both = ir_rx_and(c->g, classes[t->in].names, t->names);
        value = schema_node_of(c, lits_join(c, t->lits, classes[t->in].lits));
        if (!value || ir_rx_is_empty(c->g, both) || schema_node_is_empty(c, value)) return false;
        member_add(o, (member){ .names = both, .required = true, .value = schema_node_sym(c, value) });
    }
    for (size_t i = 0; i < n_classes && !c->rc; i++) {
        schema_node *value = schema_node_of(c, classes[i].lits);
        if (closed && !classes[i].lits) continue; /* nobody speaks of these names */
        if (!value || schema_node_is_empty(c, value)) continue;
        member_add(o, (member){ .names = classes[i].names, .value = schema_node_sym(c, value) });
    }
    return !c->rc;
}

static ir_rx lead(schema_ctx *c, bool first) {
    if (c->lead[first] < 0) c->lead[first] = ir_rx_cat(c->g, ir_rx_text(c->g, first ? "{" : ","), schema_ws(c));
    return c->lead[first];
}

static ir_rx colon(schema_ctx *c) {
    if (c->colon < 0) c->colon = ir_rx_cat(c->g, ir_rx_text(c->g, ":"), ir_rx_opt(c->g, ir_rx_text(c->g, " ")));
    return c->colon;
}

static ir_rx key_rx(schema_ctx *c, const member *m) {
    return schema_string_rx(c, m->literal ? ir_rx_bytes(c->g, m->name.data, m->name.len) : m->names);
}

/* A key that is free text stays a terminal of its own, shared by all places; a literal one takes in what surrounds it.
 */
static ir_sym member_sym(schema_ctx *c, member *m, bool first) {
    ir_sym list[4];
    if (m->sym[first]) return m->sym[first];
    if (m->literal) {
        list[0] = ir_terminal(c->g, ir_rx_cat(c->g, lead(c, first), ir_rx_cat(c->g, key_rx(c, m), colon(c))));
        list[1] = m->value;
        m->sym[first] = ir_seq(c->g, list, 2);
    } else {
        list[0] = ir_terminal(c->g, lead(c, first));
        list[1] = ir_terminal(c->g, key_rx(c, m));
        list[2] = ir_terminal(c->g, colon(c));
        list[3] = m->value;
        m->sym[first] = ir_seq(c->g, list, 4);
    }
    return m->sym[first];
}

static bool is_tracked(const object *o, size_t i) {
    for (size_t k = 0; k < o->n_tracked; k++) {
        if (o->tracked[k] == i) return true;
    }
    return false;
}

/* All members that are not tracked, as one alternative; literal names with the same value share a terminal. */
static ir_sym loose_sym(object *o, bool first, bool open) {
    schema_ctx *c = o->c;
    ir_sym     *alts = schema_alloc(c, (o->n + 1) * sizeof *alts);
    ir_rx      *keys = schema_alloc(c, (o->n + 1) * sizeof *keys);
    bool       *done = schema_alloc(c, (o->n + 1) * sizeof *done);
    size_t      n = 0;
    if (!alts || !keys || !done) return -1;
    for (size_t i = 0; i < o->n; i++) done[i] = is_tracked(o, i);
    for (size_t i = 0; i < o->n; i++) {
        size_t n_keys = 0;
        ir_sym pair[2];
        if (done[i]) continue;
        if (!o->members[i].literal) {
            if (open) alts[n++] = member_sym(c, &o->members[i], first);
            continue;
        }
        for (size_t k = i; k < o->n; k++) {
            const member *m = &o->members[k];
            if (done[k] || !m->literal || m->value != o->members[i].value) continue;
            keys[n_keys++] = key_rx(c, m);
            done[k] = true;
        }
        pair[0] = ir_terminal(
            c->g, ir_rx_cat(c->g, lead(c, first), ir_rx_cat(c->g, ir_rx_alt_n(c->g, keys, n_keys), colon(c))));
        pair[1] = o->members[i].value;
        alts[n++] = ir_seq(c->g, pair, 2);
    }
    return n ? ir_alt(c->g, alts, n) : -1;
}

/*
 * How far an object is, as a number. Subsets: one bit for each tracked member. Chains: how many were written in order;
 * with `gap` also the states in which one member is out of place, written early or still owed.
 */
typedef struct place {
    size_t at; /* members of the order that lie behind */
    enum { NONE, EARLY, OWED } out;
    size_t which; /* the one out of place */
} place;

static size_t place_number(const object *o, place p) {
    size_t n = o->n_tracked;
    if (p.out == NONE) return p.at;
    return n + 1 + (p.out == OWED ? n * (n + 1) : 0) + p.at * n + p.which;
}

static place place_of(const object *o, size_t progress) {
    size_t n = o->n_tracked, rest;
    bool   owed;
    if (progress <= n) return (place){ progress, NONE, 0 };
    rest = progress - n - 1;
    owed = rest >= n * (n + 1);
    if (owed) rest -= n * (n + 1);
    return (place){ rest / n, owed ? OWED : EARLY, rest % n };
}

static size_t progress_count(const object *o) {
    size_t n = o->n_tracked;
    if (!o->chain) return (size_t)1 << n;
    return n + 1 + (o->gap ? 2 * n * (n + 1) : 0);
}

static size_t progress_seen(const object *o, size_t progress) {
    place p;
    if (!o->chain) return (size_t)__builtin_popcountll(progress);
    p = place_of(o, progress);
    return p.at + (p.out == EARLY) - (p.out == OWED);
}

typedef struct move {
    size_t member, to; /* index into tracked; where it leads */
} move;

static size_t chain_moves(const object *o, place p, move *out) {
    size_t n = o->n_tracked, k = 0;
    bool   skip = p.out == EARLY && p.at + 1 == p.which; /* the next but one was written already */
    if (p.at < n) {
        place next = { p.at + 1 + skip, skip ? NONE : p.out, skip ? 0 : p.which };
        out[k++] = (move){ p.at, place_number(o, next) };
    }
    if (p.out == OWED) out[k++] = (move){ p.which, place_number(o, (place){ p.at, NONE, 0 }) };
    if (p.out != NONE || !o->gap) return k;
    for (size_t j = p.at + 2; j < n; j++) out[k++] = (move){ j, place_number(o, (place){ p.at, EARLY, j }) };
    if (p.at + 1 < n) out[k++] = (move){ p.at + 1, place_number(o, (place){ p.at + 2, OWED, p.at }) };
    return k;
}

/* Which tracked members may come next. */
static size_t moves_of(const object *o, size_t progress, move *out) {
    size_t k = 0;
    if (o->chain) return chain_moves(o, place_of(o, progress), out);
    for (size_t i = 0; i < o->n_tracked; i++) {
        if (!(progress >> i & 1)) out[k++] = (move){ i, progress | (size_t)1 << i };
    }
    return k;
}

static bool may_close(const object *o, size_t progress, size_t count) {
    if (progress_seen(o, progress) + count < o->min) return false;
    if (o->chain) return progress == o->n_tracked;
    for (size_t i = 0; i < o->n_tracked; i++) {
        if (o->members[o->tracked[i]].required && !(progress >> i & 1)) return false;
    }
    return true;
}

static ir_sym state_sym(object *o, size_t progress, size_t count);
static ir_sym set_sym(object *o, size_t progress, uint64_t set);

/* A tracked member and what may follow it, for each that may come; to alts. While names must differ, `set` are those of
 * the loose members. */
static size_t moves_add(object *o, size_t progress, size_t count, uint64_t set, bool first, ir_sym *alts) {
    schema_ctx *c = o->c;
    move       *moves = schema_alloc(c, (o->n_tracked + 3) * sizeof *moves);
    size_t      n = moves ? moves_of(o, progress, moves) : 0;
    for (size_t i = 0; i < n && !c->rc; i++) {
        ir_sym pair[2];
        pair[0] = member_sym(c, &o->members[o->tracked[moves[i].member]], first);
        pair[1] = count < o->n_differ ? set_sym(o, moves[i].to, set) : state_sym(o, moves[i].to, count);
        alts[i] = ir_seq(c->g, pair, 2);
    }
    return c->rc ? 0 : n;
}

/* What may follow a complete member. Recursion is as deep as members are told apart. */
static ir_sym state_sym(object *o, size_t progress, size_t count) {
    schema_ctx *c = o->c;
    ir_sym     *alts, out;
    size_t      n = 0, seen = progress_seen(o, progress), at = progress * o->n_counts + count;
    bool        last = count + 1 == o->n_counts; /* no need to count any further */
    bool        more = seen + count < o->max;
    ir_sym      loose = progress || !o->declared_begin ? o->loose_next : o->declared_next;
    if (o->states[at] >= 0) return o->states[at];
    alts = schema_alloc(c, (o->n_tracked + 5) * sizeof *alts);
    if (!alts) return 0;
    if (may_close(o, progress, count)) alts[n++] = o->close;
    if (more) n += moves_add(o, progress, count, 0, false, alts + n);
    if (loose >= 0 && more && !last) {
        ir_sym pair[2] = { loose, state_sym(o, progress, count + 1) };
        alts[n++] = ir_seq(c->g, pair, 2);
    }
    out = n ? ir_alt(c->g, alts, n) : ir_terminal(c->g, ir_rx_none(c->g));
    if (loose >= 0 && last && o->max == SCHEMA_NO_LIMIT) {
        ir_sym pair[2] = { ir_repeat(c->g, loose, 0, -1), out };
        out = ir_seq(c->g, pair, 2);
    }
    o->states[at] = out;
    return out;
}

/* Any member whose name is not in the set, tracked or loose: how an object goes on while names must differ. */
static ir_sym differing(object *o, size_t progress, uint64_t set, bool first) {
    schema_ctx *c = o->c;
    size_t      count = (size_t)__builtin_popcountll(set), n = 0;
    ir_sym     *alts = schema_alloc(c, (o->n_tracked + o->n_loose + 5) * sizeof *alts);
    if (!alts) return 0;
    if (progress_seen(o, progress) + count < o->max) n = moves_add(o, progress, count, set, first, alts);
    for (size_t i = 0; i < o->n_loose && progress_seen(o, progress) + count < o->max && !c->rc; i++) {
        uint64_t with = set | (uint64_t)1 << i;
        ir_sym   pair[2];
        if (with == set) continue;
        pair[0] = member_sym(c, &o->members[o->loose[i]], first);
        pair[1] = count + 1 < o->n_differ ? set_sym(o, progress, with) : state_sym(o, progress, count + 1);
        alts[n++] = ir_seq(c->g, pair, 2);
    }
    return n ? ir_alt(c->g, alts, n) : ir_terminal(c->g, ir_rx_none(c->g));
}

static ir_sym set_sym(object *o, size_t progress, uint64_t set) {
    ir_sym out = schema_set_find(&o->sets, progress, set);
    if (out >= 0) return out;
    out = differing(o, progress, set, false);
    schema_set_keep(o->c, &o->sets, progress, set, out);
    return out;
}

static ir_sym first_sym(object *o) {
    schema_ctx *c = o->c;
    ir_sym     *alts = schema_alloc(c, (o->n_tracked + 5) * sizeof *alts);
    ir_sym      loose = o->declared_begin ? o->declared_first : o->loose_first;
    size_t      n = 0;
    if (!alts) return 0;
    if (may_close(o, 0, 0)) {
        ir_rx empty = ir_rx_cat(c->g, lead(c, true), ir_rx_text(c->g, "}"));
        alts[n++] = ir_terminal(c->g, empty);
    }
    if (o->max) n += moves_add(o, 0, 0, 0, true, alts + n);
    if (loose >= 0 && o->max) {
        ir_sym pair[2] = { loose, state_sym(o, 0, o->n_counts > 1 ? 1 : 0) };
        alts[n++] = ir_seq(c->g, pair, 2);
    }
    return n ? ir_alt(c->g, alts, n) : ir_terminal(c->g, ir_rx_none(c->g));
}

/* `need` of the loose members must have different names. False: there are too many to know them. */
static bool differ_prepare(object *o, uint64_t need) {
    uint64_t moves;
    o->n_loose = 0;
    for (size_t i = 0; i < o->n; i++) {
        if (is_tracked(o, i)) continue;
        if (!o->members[i].literal || o->n_loose == SCHEMA_MAX_SET) return false;
        o->loose[o->n_loose++] = i;
    }
    moves = schema_set_moves(o->n_loose, need);
    o->n_differ = need;
    return moves <= SCHEMA_MAX_SET_MOVES && moves * progress_count(o) <= SCHEMA_MAX_SET_MOVES;
}

static ir_sym automaton(object *o, const size_t *tracked, size_t n_tracked, bool chain) {
    schema_ctx *c = o->c;
    uint64_t    need, counts = 1;
    size_t      n_states;
    ir_sym      out;
    o->tracked = tracked;
    o->n_tracked = n_tracked;
    o->chain = chain;
    o->loose_first = loose_sym(o, true, true);
    o->loose_next = loose_sym(o, false, true);
    o->declared_first = loose_sym(o, true, false);
    o->declared_next = loose_sym(o, false, false);
    need = o->min > o->n_required ? o->min - o->n_required : 0;
    if (o->loose_first < 0) {
        need = 0;
    } else if (need > 1 && !differ_prepare(o, need)) {
        schema_fail(
            c, o->w->at, ERR_UNSUPPORTED,
            "'minProperties' %llu is not supported with %zu required properties and open names or many declared ones",
            (unsigned long long)o->min, o->n_required);
        return 0;
    }
    if (o->loose_first >= 0 && o->max != SCHEMA_NO_LIMIT)
        counts = o->max + 1;
    else if (need)
        counts = o->min + 1;
    if (counts > 256) {
        schema_fail(c, o->w->at, ERR_LIMIT, "'maxProperties' or 'minProperties' above 255 is not supported");
        return 0;
    }
    o->gap = chain && counts == 1 && n_tracked <= MAX_GAP && c->n_states < MAX_ALL_STATES;
    n_states = progress_count(o) * counts;
    if (o->gap) c->n_states += n_states;
    if (n_states > MAX_STATES) {
        schema_fail(c, o->w->at, ERR_LIMIT, "'maxProperties' is not supported with this many required properties");
        return 0;
    }
    o->n_counts = counts;
    o->states = schema_alloc(c, n_states * sizeof *o->states);
    if (!o->states) return 0;
    memset(o->states, 0xFF, n_states * sizeof *o->states);
    if (!o->n_differ) return first_sym(o);
    map_init(&o->sets);
    out = differing(o, 0, 0, true);
    map_deinit(&o->sets);
    return out;
}

/* The required members in the order of the schema's "required". */
static void required_order(const object *o, size_t *order) {
    size_t n = o->n_required;
    for (const schema_named *r = o->w->required; r; r = r->next) { /* newest first: fill from the end */
        for (size_t i = 0; i < o->n && n; i++) {
            if (o->members[i].literal && o->members[i].required && view_eq(o->members[i].name, r->name)) order[--n] = i;
        }
    }
}

static ir_sym object_sym(schema_ctx *c, const schema_world *w, const witness *witnesses, size_t n_witnesses) {
    object  o = { .c = c, .w = w, .min = w->min_props, .max = w->max_props };
    ir_sym  none = ir_terminal(c->g, ir_rx_none(c->g)), alts[2];
    size_t *tracked, *order, n = 0, n_literal = 0, n_witness = 0, limit = SCHEMA_MAX_TRACKED, few;
    o.witnesses = witnesses;
    o.n_witnesses = n_witnesses;
    if (!members_collect(&o)) return none;
    for (size_t i = 0; i < o.n; i++) {
        n_literal += o.members[i].literal;
        n_witness += !o.members[i].literal && o.members[i].required;
        o.n_required += o.members[i].required;
    }
    o.declared_begin = (c->flags & SCHEMA_STEERED) && o.n_required > 0 && !w->conditional;
    if (o.n_required > o.max) return none;
    o.close = ir_terminal(c->g, ir_rx_cat(c->g, schema_ws(c), ir_rx_text(c->g, "}")));
    tracked = schema_alloc(c, (o.n + 1) * sizeof *tracked);
    order = schema_alloc(c, (o.n + 1) * sizeof *order);
    if (!tracked || !order) return none;
    if (o.min > o.n_required + 1 || n_witness) limit = MAX_SUBSET;
    few = limit;
    if (o.n_required > limit && o.n_required <= MAX_EAGER && c->n_states < MAX_ALL_STATES) {
        limit = MAX_EAGER;
        c->n_states += (size_t)1 << o.n_required;
    }
    if (o.n_required > limit && n_witness) {
        schema_fail(c, w->at, ERR_UNSUPPORTED,
                    "a negation over property names with more than %d required ones is not supported", MAX_SUBSET);
        return none;
    }
    for (size_t i = 0; i < o.n; i++) {
        const member *m = &o.members[i];
        if (m->required || (m->literal && n_literal + n_witness <= few)) tracked[n++] = i;
    }
    if (o.n_required <= limit) return automaton(&o, tracked, n, false);
    alts[0] = automaton(&o, tracked, n, true);
    required_order(&o, order);
    if (c->rc || !memcmp(order, tracked, n * sizeof *order)) return alts[0];
    alts[1] = automaton(&o, order, n, true);
    return ir_alt(c->g, alts, 2);
}

typedef struct search {
    schema_ctx *c;
    ir_sym      found[MAX_OBJECTS];
    size_t      n;
    bool        closed; /* no witness among names that nobody speaks of */
} search;

static void found_add(search *q, const schema_world *w, const witness *list, size_t n) {
    ir_sym none = ir_terminal(q->c->g, ir_rx_none(q->c->g)), s;
    if (q->n == MAX_OBJECTS) {
        schema_fail(q->c, w->at, ERR_LIMIT, "a negation over property names makes more than %d cases", MAX_OBJECTS);
        return;
    }
    s = object_sym(q->c, w, list, n);
    if (s != none) q->found[q->n++] = s;
}

/* Every way in which the next demand is met: by a declared member, by a witness that is there, by a new one. */
static void demands_meet(search *q, const schema_world *w, witness *list, size_t n) {
    schema_ctx        *c = q->c;
    const schema_some *s = w->some;
    schema_world       next = *w;
    schema_class      *classes;
    view              *names;
    size_t             n_names, n_classes;
    if (c->rc) return;
    if (!s) {
        found_add(q, w, list, n);
        return;
    }
    next.some = s->next;
    n_names = names_collect(c, w, &names);
    for (size_t i = 0; i < n_names && !c->rc; i++) {
        schema_world with = next;
        if (!ir_rx_matches(c->g, s->names, names[i].data, names[i].len)) continue;
        schema_required_add(c, &with, names[i]);
        schema_named_add(c, &with, names[i], s->l);
        if (!schema_world_is_empty(c, &with)) demands_meet(q, &with, list, n);
    }
    for (size_t i = 0; i < n && !c->rc; i++) {
        witness before = list[i];
        list[i].names = ir_rx_and(c->g, before.names, s->names);
        list[i].lits = schema_lits_add(c, before.lits, s->l);
        demands_meet(q, &next, list, n);
        list[i] = before;
    }
    n_classes = schema_name_classes(c, w, names, n_names, &classes);
    for (size_t i = 0; i < n_classes && !c->rc; i++) {
        if (q->closed && !classes[i].lits) continue;
        if (ir_rx_is_empty(c->g, ir_rx_and(c->g, classes[i].names, s->names))) continue;
        if (n == MAX_WITNESSES) {
            schema_fail(c, w->at, ERR_LIMIT, "a negation over property names needs more than %d members",
                        MAX_WITNESSES);
            return;
        }
        list[n] = (witness){ s->names, schema_lits_add(c, NULL, s->l), i };
        demands_meet(q, &next, list, n + 1);
    }
}

ir_sym schema_world_object(schema_ctx *c, const schema_world *w) {
    witness list[MAX_WITNESSES];
    search *q;
    if (!w->some) return object_sym(c, w, NULL, 0);
    q = schema_alloc(c, sizeof *q);
    if (!q) return 0;
    q->c = c;
    q->n = 0;
    q->closed = is_closed(c, w);
    demands_meet(q, w, list, 0);
    if (!q->n && q->closed) { /* there is no other way */
        q->closed = false;
        demands_meet(q, w, list, 0);
    }
    return ir_alt(c->g, q->found, q->n);
}
