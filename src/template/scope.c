/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which variable a name means. Jinja decides that before rendering, and templates depend on its rules:
 *
 * Every loop body, macro, call block, set block, filter block and with block is a frame of its own; an if is not. A
 * frame owns the names assigned in it, wherever in it that happens. When a frame is entered each of its names gets a
 * first value: a parameter waits for its argument; a name that an outer frame knows starts as a copy of that (ALIAS); a
 * name that is read before it is assigned, or assigned only in some branch of an if, is looked up among the template's
 * variables (RESOLVE); otherwise it is undefined until assigned. So an assignment in a loop ends with the turn of the
 * loop, and a macro sees later assignments of the frame around it.
 *
 * A frame is analyzed completely before its names are bound to (frames up, slot) pairs.
 */
#include "template/ast.h"

#include <string.h>

enum { MAX_WORK = 100 * 1000 * 1000 };

static void spend(parse_state *p, size_t work, int line) {
    p->work += work;
    if (p->work > MAX_WORK) parse_fail(p, line, "the template has too many names and branches");
}

static int find_symbol(parse_state *p, const scope *s, view name) {
    spend(p, (size_t)s->count / 4 + 1, 1);
    for (int i = 0; i < s->count; i++) {
        if (view_eq(s->symbols[i].name, name)) return i;
    }
    return -1;
}

static scope_symbol *add_symbol(parse_state *p, scope *s, view name) {
    int at = find_symbol(p, s, name);
    if (at >= 0) return &s->symbols[at];
    if (s->count == s->cap) {
        int           cap = s->cap ? s->cap * 2 : 8;
        scope_symbol *grown = parse_alloc(p, (size_t)cap * sizeof *grown);
        if (s->count) memcpy(grown, s->symbols, (size_t)s->count * sizeof *grown);
        s->symbols = grown;
        s->cap = cap;
    }
    scope_symbol *y = &s->symbols[s->count++];
    *y = (scope_symbol){ .name = name };
    return y;
}

/* The nearest frame, from s outwards, that has a reference to the name. */
static bool find_ref(parse_state *p, const scope *s, view name, int *hops, int *slot) {
    *hops = 0;
    for (; s; s = s->parent, ++*hops) {
        int at = find_symbol(p, s, name);
        if (at >= 0 && s->symbols[at].has_ref) {
            *slot = at;
            return true;
        }
    }
    return false;
}

static scope *scope_new(parse_state *p, scope *parent) {
    scope *s = parse_alloc(p, sizeof *s);
    s->parent = parent;
    return s;
}

static void alias_or(parse_state *p, scope *s, scope_symbol *y, load_kind otherwise) {
    y->load = s->parent && find_ref(p, s->parent, y->name, &y->hops, &y->slot) ? LOAD_ALIAS : otherwise;
}

static void symbol_store(parse_state *p, scope *s, view name) {
    scope_symbol *y = add_symbol(p, s, name);
    y->stored = true;
    if (y->has_ref) return;
    y->has_ref = true;
    alias_or(p, s, y, LOAD_UNDEFINED);
}

static int symbol_param(parse_state *p, scope *s, view name) {
    scope_symbol *y = add_symbol(p, s, name);
    y->stored = y->has_ref = true;
    y->load = LOAD_PARAM;
    return (int)(y - s->symbols);
}

static void symbol_load(parse_state *p, scope *s, view name) {
    int hops, slot;
    if (find_ref(p, s, name, &hops, &slot)) return;
    scope_symbol *y = add_symbol(p, s, name);
    y->has_ref = true;
    y->load = LOAD_RESOLVE;
}

/* --- analysis of one frame --- */

static void see_all(parse_state *p, scope *s, const node_list *l);

static void see_target(parse_state *p, scope *s, const node *n, bool param) {
    if (n->kind == N_NAME) {
        if (param)
            symbol_param(p, s, n->name);
        else
            symbol_store(p, s, n->name);
    } else if (n->kind == N_NSREF) {
        symbol_load(p, s, n->name);
    } else {
        for (size_t i = 0; i < n->list.count; i++) see_target(p, s, n->list.items[i], param);
    }
}

static void see(parse_state *p, scope *s, const node *n);

/* The branches of an if are analyzed side by side from the same state and merged. */
typedef struct branch {
    scope_symbol *symbols;
    int           count;
} branch;

static branch branch_end(parse_state *p, scope *s, const branch *before, int line) {
    branch b = { NULL, s->count };
    spend(p, (size_t)s->count + 1, line);
    b.symbols = arena_alloc(&p->scratch, (size_t)(s->count + 1) * sizeof *b.symbols);
    if (!b.symbols && !p->scratch.at_limit) parse_nomem(p);
    if (!b.symbols) parse_fail(p, line, "the template has too many names and branches");
    if (s->count) memcpy(b.symbols, s->symbols, (size_t)s->count * sizeof *b.symbols);
    for (int i = 0; before && i < s->count; i++) {
        if (i < before->count)
            s->symbols[i] = before->symbols[i];
        else
            s->symbols[i] = (scope_symbol){ .name = s->symbols[i].name };
    }
    return b;
}

static void see_if(parse_state *p, scope *s, const node *n) {
    see(p, s, n->a);
    branch before = branch_end(p, s, NULL, n->line), parts[3];
    see_all(p, s, &n->body);
    parts[0] = branch_end(p, s, &before, n->line);
    see_all(p, s, &n->list);
    parts[1] = branch_end(p, s, &before, n->line);
    see_all(p, s, &n->other);
    parts[2] = branch_end(p, s, &before, n->line);
    for (int i = 0; i < s->count; i++) {
        scope_symbol *y = &s->symbols[i];
        bool          was_stored = y->stored, now_stored = false;
        for (int k = 0; k < 3; k++) {
            if (i >= parts[k].count || !parts[k].symbols[i].has_ref) continue;
            const scope_symbol *from = &parts[k].symbols[i];
            y->has_ref = true;
            y->load = from->load;
            y->hops = from->hops;
            y->slot = from->slot;
            now_stored |= from->stored;
        }
        y->stored = was_stored || now_stored;
        if (now_stored && !was_stored) alias_or(p, s, y, LOAD_RESOLVE);
    }
}

static void see_args(parse_state *p, scope *s, const call_args *a) {
    if (!a) return;
    see_all(p, s, &a->pos);
    see_all(p, s, &a->kw_values);
    if (a->dyn_pos) see(p, s, a->dyn_pos);
    if (a->dyn_kw) see(p, s, a->dyn_kw);
}

static void see(parse_state *p, scope *s, const node *n) {
    if (!n) return;
    switch ((node_kind)n->kind) {
    case N_NAME:
    case N_NSREF: symbol_load(p, s, n->name); return;
    case N_IF: see_if(p, s, n); return;
    case N_FOR:
    case N_FILTERBLOCK: see(p, s, n->b); return;
    case N_SET:
        see(p, s, n->b);
        see_target(p, s, n->a, false);
        return;
    case N_SETBLOCK: see_target(p, s, n->a, false); return;
    case N_MACRO: symbol_store(p, s, n->name); return;
    case N_CALLBLOCK: see(p, s, n->a); return;
    case N_WITH: see_all(p, s, &n->values); return;
    case N_GENERATION:
    case N_BLOCK:
    case N_BREAK:
    case N_CONTINUE: return;
    default: break;
    }
    see(p, s, n->a);
    see(p, s, n->b);
    see(p, s, n->c);
    see_all(p, s, &n->list);
    see_args(p, s, n->args);
}

static void see_all(parse_state *p, scope *s, const node_list *l) {
    for (size_t i = 0; i < l->count; i++) see(p, s, l->items[i]);
}

/* --- "is this special name read in here before it is assigned": 1 yes, -1 assigned first, 0 not mentioned --- */

static int mentions(parse_state *p, const node *n, const char *name, bool target);

static int mentions_all(parse_state *p, const node_list *l, const char *name, bool target) {
    for (size_t i = 0; i < l->count; i++) {
        int m = mentions(p, l->items[i], name, target);
        if (m) return m;
    }
    return 0;
}

#define TRY(expr)                                                                                                      \
    do {                                                                                                               \
        int m_ = (expr);                                                                                               \
        if (m_) return m_;                                                                                             \
    } while (0)

static int mentions(parse_state *p, const node *n, const char *name, bool target) {
    if (!n) return 0;
    spend(p, 1, n->line);
    if (n->kind == N_NAME) return view_eq_c(n->name, name) ? target ? -1 : 1 : 0;
    if (n->kind == N_NSREF || n->kind == N_BLOCK) return 0;
    bool assigns = n->kind == N_FOR || n->kind == N_SET || n->kind == N_SETBLOCK;
    TRY(mentions(p, n->a, name, assigns || target));
    if (n->kind == N_FILTERBLOCK) {
        TRY(mentions_all(p, &n->body, name, false));
        return mentions(p, n->b, name, false);
    }
    TRY(mentions(p, n->b, name, false));
    if (n->kind != N_FOR) TRY(mentions(p, n->c, name, false));
    TRY(mentions_all(p, &n->params, name, true));
    if (n->kind == N_IF) TRY(mentions_all(p, &n->body, name, false));
    TRY(mentions_all(p, &n->list, name, target || n->kind == N_WITH));
    if (n->args) {
        TRY(mentions_all(p, &n->args->pos, name, false));
        TRY(mentions_all(p, &n->args->kw_values, name, false));
        TRY(mentions(p, n->args->dyn_pos, name, false));
        TRY(mentions(p, n->args->dyn_kw, name, false));
    }
    TRY(mentions_all(p, &n->values, name, false));
    if (n->kind != N_IF) TRY(mentions_all(p, &n->body, name, false));
    TRY(mentions_all(p, &n->other, name, false));
    return n->kind == N_FOR ? mentions(p, n->c, name, false) : 0;
}

/* --- binding --- */

static void bind_all(parse_state *p, scope *s, const node_list *l, bool soft);
static void bind(parse_state *p, scope *s, node *n, bool soft);

static void note_uses(parse_state *p, const scope *s) {
    tmpl *t = p->t;
    for (int i = 0; i < s->count; i++) {
        if (s->symbols[i].load != LOAD_RESOLVE) continue;
        t->uses = parse_grow(p, t->uses, t->n_uses, &t->cap_uses, 16, sizeof *t->uses);
        t->uses[t->n_uses++] = s->symbols[i].name;
    }
}

static void bind_name(parse_state *p, scope *s, node *n) {
    if (!find_ref(p, s, n->name, &n->hops, &n->slot)) parse_fail(p, n->line, "internal: a name is not bound");
}

static void check_loop_name(parse_state *p, const node *target) {
    if (target->kind == N_NAME && view_eq_c(target->name, "loop"))
        parse_fail(p, target->line, "can't assign to special loop variable in for-loop");
    for (size_t i = 0; i < target->list.count; i++) check_loop_name(p, target->list.items[i]);
}

static void bind_for(parse_state *p, scope *s, node *n, bool soft) {
    bind(p, s, n->b, soft);
    p->in_for++;
    check_loop_name(p, n->a);
    n->extended = n->recursive || mentions_all(p, &n->body, "loop", false) == 1;
    scope *body = n->scopes[0] = scope_new(p, s);
    see_target(p, body, n->a, true); /* first, so that the targets have the same slots in body and test */
    if (n->extended) n->loop_slot = symbol_param(p, body, (view){ "loop", 4 });
    see_all(p, body, &n->body);
    note_uses(p, body);
    bind(p, body, n->a, false);
    bind_all(p, body, &n->body, false);
    if (n->other.count) {
        scope *other = n->scopes[1] = scope_new(p, s);
        see_all(p, other, &n->other);
        note_uses(p, other);
        bind_all(p, other, &n->other, false);
    }
    if (n->c) {
        scope *test = n->scopes[2] = scope_new(p, s);
        see_target(p, test, n->a, true);
        see(p, test, n->c);
        note_uses(p, test);
        bind(p, test, n->c, false);
    }
    p->in_for--;
}

static void bind_function(parse_state *p, scope *s, node *n) {
    scope *f = n->scopes[0] = scope_new(p, s);
    n->caller_slot = n->kwargs_slot = n->varargs_slot = -1;
    bool has_kwargs = false, has_varargs = false;
    for (size_t i = 0; i < n->params.count; i++) {
        view name = n->params.items[i]->name;
        symbol_param(p, f, name);
        if (view_eq_c(name, "caller")) n->explicit_caller = true;
        has_kwargs |= view_eq_c(name, "kwargs");
        has_varargs |= view_eq_c(name, "varargs");
    }
    if (mentions_all(p, &n->body, "caller", false) == 1) {
        n->uses_caller = true;
        if (!n->explicit_caller) n->caller_slot = symbol_param(p, f, (view){ "caller", 6 });
        for (size_t i = 0; i < n->params.count; i++) {
            if (view_eq_c(n->params.items[i]->name, "caller") && i + n->values.count < n->params.count)
                parse_fail(p, n->line, "the special 'caller' argument must be omitted or be given a default");
        }
    }
    if (!has_kwargs && mentions_all(p, &n->body, "kwargs", false) == 1) {
        n->catch_kwargs = true;
        n->kwargs_slot = symbol_param(p, f, (view){ "kwargs", 6 });
    }
    if (!has_varargs && mentions_all(p, &n->body, "varargs", false) == 1) {
        n->catch_varargs = true;
        n->varargs_slot = symbol_param(p, f, (view){ "varargs", 7 });
    }
    see_all(p, f, &n->values);
    see_all(p, f, &n->body);
    note_uses(p, f);
    bind_all(p, f, &n->params, false);
    bind_all(p, f, &n->values, false);
    bind_all(p, f, &n->body, false);
}

static void bind_inner(parse_state *p, scope *parent, node *n) {
    scope *s = n->scopes[0] = scope_new(p, parent);
    if (n->kind == N_WITH) {
        for (size_t i = 0; i < n->list.count; i++) see_target(p, s, n->list.items[i], true);
    }
    see_all(p, s, &n->body);
    if (n->b) see(p, s, n->b);
    note_uses(p, s);
    if (n->kind == N_WITH) bind_all(p, s, &n->list, false);
    if (n->b) bind(p, s, n->b, false);
    bind_all(p, s, &n->body, false);
}

static void bind_args(parse_state *p, scope *s, call_args *a, bool soft) {
    if (!a) return;
    bind_all(p, s, &a->pos, soft);
    bind_all(p, s, &a->kw_values, soft);
    if (a->dyn_pos) bind(p, s, a->dyn_pos, soft);
    if (a->dyn_kw) bind(p, s, a->dyn_kw, soft);
}

static void bind_builtin(parse_state *p, node *n, bool soft) {
    n->builtin = n->kind == N_FILTER ? (const void *)tv_filter_find(n->name) : (const void *)tv_test_find(n->name);
    if (n->builtin || soft) return; /* inside an if a missing one is an error only when it is reached */
    parse_fail(p, n->line, "no %s named '%.*s'", n->kind == N_FILTER ? "filter" : "test",
               (int)(n->name.len < 60 ? n->name.len : 60), n->name.data);
}

static void bind(parse_state *p, scope *s, node *n, bool soft) {
    if (!n) return;
    switch ((node_kind)n->kind) {
    case N_NAME:
    case N_NSREF: bind_name(p, s, n); return;
    case N_FOR: bind_for(p, s, n, soft); return;
    case N_MACRO:
        bind_name(p, s, n);
        bind_function(p, s, n);
        return;
    case N_CALLBLOCK:
        bind(p, s, n->a, soft);
        bind_function(p, s, n);
        return;
    case N_SET:
    case N_SETBLOCK:
        if (p->in_for) check_loop_name(p, n->a);
        bind(p, s, n->a, soft);
        if (n->kind == N_SET)
            bind(p, s, n->b, soft);
        else
            bind_inner(p, s, n);
        return;
    case N_WITH:
        bind_all(p, s, &n->values, soft);
        bind_inner(p, s, n);
        return;
    case N_FILTERBLOCK:
    case N_GENERATION: bind_inner(p, s, n); return;
    case N_BLOCK: bind_inner(p, NULL, n); return; /* a block sees the template's variables only */
    case N_IF:
    case N_COND: soft = true; break;
    case N_FILTER:
    case N_TEST: bind_builtin(p, n, soft); break;
    default: break;
    }
    bind(p, s, n->a, soft);
    bind(p, s, n->b, soft);
    bind(p, s, n->c, soft);
    bind_all(p, s, &n->list, soft);
    bind_all(p, s, &n->body, soft);
    bind_all(p, s, &n->other, soft);
    bind_args(p, s, n->args, soft);
}

static void bind_all(parse_state *p, scope *s, const node_list *l, bool soft) {
    for (size_t i = 0; i < l->count; i++) bind(p, s, l->items[i], soft);
}

void scope_bind(parse_state *p) {
    tmpl *t = p->t;
    t->root = scope_new(p, NULL);
    see_all(p, t->root, &t->body);
    note_uses(p, t->root);
    bind_all(p, t->root, &t->body, false);
}

view tmpl_source(const tmpl *t) { return (view){ t->source, t->source_len }; }

bool tmpl_uses(const tmpl *t, const char *name) {
    for (size_t i = 0; i < t->n_uses; i++) {
        if (view_eq_c(t->uses[i], name)) return true;
    }
    return false;
}
