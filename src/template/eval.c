/* SPDX-License-Identifier: Apache-2.0 */
/* Walking the tree: expressions to values, statements to text. */
#include "template/ast.h"

#include <string.h>

typedef enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE } flow;

static tv   eval(tr *r, const node *n, frame *f);
static flow exec_list(tr *r, const node_list *l, frame *f);

/* --- frames --- */

static frame *frame_up(frame *f, int hops) {
    while (hops-- > 0) f = f->parent;
    return f;
}

/* What the template's variables or Jinja's globals hold for a name. */
static tv resolve(tr *r, view name) {
    const tv *v = tv_dict_find_str(r, r->vars, name);
    return v ? *v : tv_global(r, name);
}

/* A block is cut off from the frames around it, but sees what the top level has assigned. */
static tv resolve_block(tr *r, view name) {
    const scope *s = r->t->root;
    for (int i = 0; i < s->count; i++) {
        if (view_eq(s->symbols[i].name, name) && tv_given(r->root->slots[i])) return r->root->slots[i];
    }
    return resolve(r, name);
}

static void frame_load(tr *r, const scope *s, frame *f) {
    for (int i = 0; i < s->count; i++) {
        const scope_symbol *y = &s->symbols[i];
        switch (y->load) {
        case LOAD_PARAM: break;
        case LOAD_RESOLVE:
            f->slots[i] = !s->parent && r->root && f != r->root ? resolve_block(r, y->name) : resolve(r, y->name);
            break;
        case LOAD_ALIAS: f->slots[i] = frame_up(f->parent, y->hops)->slots[y->slot]; break;
        default: f->slots[i] = tv_missing();
        }
    }
}

static frame *frame_new(tr *r, const scope *s, frame *parent) {
    frame *f = tr_alloc(r, sizeof *f + (size_t)s->count * sizeof f->slots[0]);
    f->parent = parent;
    for (int i = 0; i < s->count; i++) f->slots[i] = tv_missing();
    return f;
}

static frame *frame_enter(tr *r, const scope *s, frame *parent) {
    frame *f = frame_new(r, s, parent);
    frame_load(r, s, f);
    return f;
}

/* --- assignment --- */

static void assign(tr *r, const node *target, frame *f, tv v) {
    if (target->kind == N_NAME) {
        frame_up(f, target->hops)->slots[target->slot] = v;
        return;
    }
    if (target->kind == N_NSREF) {
        tv ns = frame_up(f, target->hops)->slots[target->slot];
        if (ns.kind != TV_NAMESPACE) tr_fail(r, "cannot assign attribute on non-namespace object");
        tv_dict_put(r, ns.u.dict, tv_str(r, target->value.u.s, target->value.len), v);
        return;
    }
    tv_list l = tv_items(r, v);
    if (l.count != target->list.count)
        tr_fail(r,
                l.count < target->list.count ? "not enough values to unpack (expected %zu, got %zu)"
                                             : "too many values to unpack (expected %zu, got %zu)",
                target->list.count, l.count);
    for (size_t i = 0; i < l.count; i++) assign(r, target->list.items[i], f, l.items[i]);
}

/* --- calls --- */

static void add_kw(tr *r, tv_args *a, size_t *cap, view name, tv v) {
    for (size_t i = 0; i < a->n_kw; i++) {
        if (view_eq(a->kw_names[i], name))
            tr_fail(r, "got multiple values for keyword argument '%.*s'", (int)(name.len < 60 ? name.len : 60),
                    name.data);
    }
    if (a->n_kw == *cap) {
        *cap = *cap ? *cap * 2 : 4;
        view *names = tr_alloc_array(r, *cap, sizeof *names);
        tv   *values = tr_alloc_array(r, *cap, sizeof *values);
        if (a->n_kw) {
            memcpy(names, a->kw_names, a->n_kw * sizeof *names);
            memcpy(values, a->kw, a->n_kw * sizeof *values);
        }
        a->kw_names = names;
        a->kw = values;
    }
    a->kw_names[a->n_kw] = name;
    a->kw[a->n_kw++] = v;
}

static tv_args eval_args(tr *r, const call_args *c, frame *f, tv caller) {
    tv_args a = { .n_pos = c->pos.count };
    size_t  cap = c->kw_values.count;
    if (a.n_pos) a.pos = tr_alloc_array(r, a.n_pos, sizeof *a.pos);
    for (size_t i = 0; i < a.n_pos; i++) a.pos[i] = eval(r, c->pos.items[i], f);
    if (c->dyn_pos) {
        tv_list l = tv_items(r, eval(r, c->dyn_pos, f));
        tv     *all = tr_alloc_array(r, a.n_pos + l.count, sizeof *all);
        if (a.n_pos) memcpy(all, a.pos, a.n_pos * sizeof *all);
        if (l.count) memcpy(all + a.n_pos, l.items, l.count * sizeof *all);
        a.pos = all;
        a.n_pos += l.count;
    }
    if (cap) {
        a.kw_names = tr_alloc_array(r, cap, sizeof *a.kw_names);
        a.kw = tr_alloc_array(r, cap, sizeof *a.kw);
        a.n_kw = cap;
        memcpy(a.kw_names, c->kw_names, cap * sizeof *a.kw_names);
        for (size_t i = 0; i < cap; i++) a.kw[i] = eval(r, c->kw_values.items[i], f);
    }
    if (tv_given(caller)) add_kw(r, &a, &cap, (view){ "caller", 6 }, caller);
    if (c->dyn_kw) {
        tv d = eval(r, c->dyn_kw, f);
        if (d.kind != TV_DICT) tr_fail(r, "argument after ** must be a mapping, not %s", tv_type_name(d));
        for (size_t i = 0; i < d.u.dict->count; i++) {
            tr_charge(r, 16 * a.n_kw);
            add_kw(r, &a, &cap, tv_str_arg(r, d.u.dict->entries[i].key, "keywords"), d.u.dict->entries[i].value);
        }
    }
    return a;
}

static tv make_macro(tr *r, const node *n, frame *f, bool named) {
    tv_macro *m = tr_alloc(r, sizeof *m);
    *m = (tv_macro){ .def = n, .env = f };
    if (named) {
        m->name = n->name.data;
        m->name_len = (uint32_t)n->name.len;
    }
    return (tv){ .kind = TV_MACRO, .u.macro = m };
}

/* Takes a keyword argument out of a; MISSING when it is not there. */
static tv pop_kw(tv_args *a, view name) {
    for (size_t i = 0; i < a->n_kw; i++) {
        if (!view_eq(a->kw_names[i], name)) continue;
        tv v = a->kw[i];
        for (size_t k = i + 1; k < a->n_kw; k++) {
            a->kw[k - 1] = a->kw[k];
            a->kw_names[k - 1] = a->kw_names[k];
        }
        a->n_kw--;
        return v;
    }
    return tv_missing();
}

static void bind_macro_rest(tr *r, const tv_macro *m, tv_args *a, frame *f, bool found_caller) {
    const node *d = m->def;
    if (d->uses_caller && !found_caller) {
        tv c = pop_kw(a, (view){ "caller", 6 });
        if (!tv_given(c) || c.kind == TV_NONE) c = tv_undef_hint(r, "No caller defined");
        if (d->caller_slot >= 0) f->slots[d->caller_slot] = c;
    }
    if (d->catch_kwargs) {
        tv_dict *kw = tv_dict_new(r, a->n_kw);
        for (size_t i = 0; i < a->n_kw; i++)
            tv_dict_put(r, kw, tv_str(r, a->kw_names[i].data, a->kw_names[i].len), a->kw[i]);
        f->slots[d->kwargs_slot] = tv_of_dict(kw);
    } else if (a->n_kw) {
        tr_fail(r, "macro '%.*s' takes no keyword argument '%.*s'", (int)m->name_len, m->name ? m->name : "",
                (int)(a->kw_names[0].len < 60 ? a->kw_names[0].len : 60), a->kw_names[0].data);
    }
    size_t n = d->params.count, extra = a->n_pos > n ? a->n_pos - n : 0;
    if (d->catch_varargs) {
        tv v = tv_list_new(r, extra);
        v.kind = TV_TUPLE;
        if (extra) memcpy(v.u.list->items, a->pos + n, extra * sizeof(tv));
        f->slots[d->varargs_slot] = v;
    } else if (extra) {
        tr_fail(r, "macro '%.*s' takes not more than %zu argument(s)", (int)m->name_len, m->name ? m->name : "", n);
    }
}

tv tr_call_macro(tr *r, tv_macro *m, const tv_args *args, tv caller) {
    const node *d = m->def;
    tv_args     a = *args;
    size_t      n = d->params.count;
    bool        found_caller = a.n_pos >= n ? d->explicit_caller : false;
    (void)caller;
    tr_enter(r);
    if (a.n_kw) { /* arguments are taken out of it below */
        a.kw = tr_alloc_array(r, a.n_kw, sizeof *a.kw);
        a.kw_names = tr_alloc_array(r, a.n_kw, sizeof *a.kw_names);
        memcpy(a.kw, args->kw, a.n_kw * sizeof *a.kw);
        memcpy(a.kw_names, args->kw_names, a.n_kw * sizeof *a.kw_names);
    }
    frame *f = frame_new(r, d->scopes[0], m->env);
    for (size_t i = 0; i < n; i++) {
        const node *param = d->params.items[i];
        tv          v = i < a.n_pos ? a.pos[i] : pop_kw(&a, param->name);
        if (i >= a.n_pos && view_eq_c(param->name, "caller")) found_caller = true;
        f->slots[param->slot] = v;
    }
    bind_macro_rest(r, m, &a, f, found_caller);
    frame_load(r, d->scopes[0], f);
    for (size_t i = 0; i < n; i++) {
        const node *param = d->params.items[i];
        if (tv_given(f->slots[param->slot])) continue;
        size_t without = n - d->values.count;
        f->slots[param->slot] =
            i >= without ? eval(r, d->values.items[i - without], f)
                         : tv_undef_hint(r, "parameter '%.*s' was not provided",
                                         (int)(param->name.len < 60 ? param->name.len : 60), param->name.data);
    }
    size_t mark = tr_mark(r);
    exec_list(r, &d->body, f);
    tr_leave(r);
    return tr_take(r, mark);
}

/* --- expressions --- */

static tv eval_name(tr *r, const node *n, frame *f) {
    tv v = frame_up(f, n->hops)->slots[n->slot];
    return tv_given(v) ? v : tv_undef_name(r, n->name);
}

static tv eval_compare(tr *r, const node *n, frame *f) {
    tv left = eval(r, n->a, f);
    for (size_t i = 0; i < n->list.count; i++) {
        tv right = eval(r, n->list.items[i], f);
        r->line = n->line;
        if (!tv_compare(r, n->ops[i], left, right)) return tv_bool(false);
        left = right;
    }
    return tv_bool(true);
}

static tv eval_concat(tr *r, const node *n, frame *f) {
    tv *parts = tr_alloc_array(r, n->list.count, sizeof *parts);
    for (size_t i = 0; i < n->list.count; i++) parts[i] = eval(r, n->list.items[i], f);
    size_t mark = tr_mark(r);
    for (size_t i = 0; i < n->list.count; i++) tv_put_str(r, parts[i]);
    return tr_take(r, mark);
}

static tv eval_items(tr *r, const node *n, frame *f) {
    tv v = tv_list_new(r, n->list.count);
    v.kind = n->kind == N_TUPLE ? TV_TUPLE : TV_LIST;
    for (size_t i = 0; i < n->list.count; i++) v.u.list->items[i] = eval(r, n->list.items[i], f);
    return v;
}

static tv eval_dict(tr *r, const node *n, frame *f) {
    tv_dict *d = tv_dict_new(r, n->list.count / 2);
    for (size_t i = 0; i + 1 < n->list.count; i += 2) {
        tv key = eval(r, n->list.items[i], f), value = eval(r, n->list.items[i + 1], f);
        r->line = n->line;
        tv_dict_put(r, d, key, value);
    }
    return tv_of_dict(d);
}

static tv eval_slice(tr *r, const node *n, frame *f) {
    tv on = eval(r, n->a, f), part[3];
    for (size_t i = 0; i < 3; i++) part[i] = n->list.items[i] ? eval(r, n->list.items[i], f) : tv_none();
    r->line = n->line;
    return tv_slice(r, on, part[0], part[1], part[2]);
}

static tv eval_filter(tr *r, const node *n, frame *f) {
    tv      on = n->a ? eval(r, n->a, f) : r->captured;
    tv_args args = eval_args(r, n->args, f, tv_missing());
    r->line = n->line;
    if (!n->builtin) tr_fail(r, "no filter named '%.*s'", (int)(n->name.len < 60 ? n->name.len : 60), n->name.data);
    return tv_filter_apply(r, n->builtin, on, &args);
}

static tv eval_test(tr *r, const node *n, frame *f) {
    tv      on = eval(r, n->a, f);
    tv_args args = eval_args(r, n->args, f, tv_missing());
    r->line = n->line;
    if (!n->builtin) tr_fail(r, "no test named '%.*s'", (int)(n->name.len < 60 ? n->name.len : 60), n->name.data);
    return tv_bool(tv_test_apply(r, n->builtin, on, &args));
}

static tv eval_call(tr *r, const node *n, frame *f, tv caller) {
    tv      callee = eval(r, n->a, f);
    tv_args args = eval_args(r, n->args, f, caller);
    r->line = n->line;
    return tv_call(r, callee, &args);
}

static tv eval_inner(tr *r, const node *n, frame *f) {
    tv a, b;
    switch ((node_kind)n->kind) {
    case N_TUPLE:
    case N_LIST: return eval_items(r, n, f);
    case N_DICT: return eval_dict(r, n, f);
    case N_NEG:
        a = eval(r, n->a, f);
        r->line = n->line;
        return tv_negate(r, a);
    case N_POS:
        a = eval(r, n->a, f);
        r->line = n->line;
        return tv_positive(r, a);
    case N_NOT: return tv_bool(!tv_truth(r, eval(r, n->a, f)));
    case N_BINARY:
        a = eval(r, n->a, f);
        b = eval(r, n->b, f);
        r->line = n->line;
        return tv_binary(r, n->op, a, b);
    case N_AND: a = eval(r, n->a, f); return tv_truth(r, a) ? eval(r, n->b, f) : a;
    case N_OR: a = eval(r, n->a, f); return tv_truth(r, a) ? a : eval(r, n->b, f);
    case N_CONCAT: return eval_concat(r, n, f);
    case N_COMPARE: return eval_compare(r, n, f);
    case N_GETATTR:
        a = eval(r, n->a, f);
        r->line = n->line;
        return tv_getattr(r, a, n->name);
    case N_GETITEM:
        a = eval(r, n->a, f);
        b = eval(r, n->b, f);
        r->line = n->line;
        return tv_getitem(r, a, b);
    case N_SLICE: return eval_slice(r, n, f);
    case N_FILTER: return eval_filter(r, n, f);
    case N_TEST: return eval_test(r, n, f);
    case N_CALL: return eval_call(r, n, f, tv_missing());
    case N_COND:
        if (tv_truth(r, eval(r, n->a, f))) return eval(r, n->b, f);
        if (n->c) return eval(r, n->c, f);
        return tv_undef_hint(
            r, "the inline if-expression on line %d evaluated to false and no else section was defined.", n->line);
    default: tr_fail(r, "internal: not an expression");
    }
}

static tv eval(tr *r, const node *n, frame *f) {
    if (n->kind == N_CONST) return n->value;
    r->line = n->line;
    if (n->kind == N_NAME) {
        tr_step(r);
        return eval_name(r, n, f);
    }
    tr_enter(r);
    tv v = eval_inner(r, n, f);
    tr_leave(r);
    return v;
}

/* --- loops --- */

/* A filtered loop passes its items on as tuples of the shape of its target. */
static tv as_target(tr *r, const node *target, tv v) {
    if (target->kind != N_TUPLE) return v;
    tv_list l = tv_items(r, v);
    if (l.count != target->list.count) tr_fail(r, "cannot unpack %zu values into %zu", l.count, target->list.count);
    tv t = tv_list_new(r, l.count);
    t.kind = TV_TUPLE;
    for (size_t i = 0; i < l.count; i++) t.u.list->items[i] = as_target(r, target->list.items[i], l.items[i]);
    return t;
}

void tr_loop_fill(tr *r, tv_loop *l, size_t wanted) {
    while (l->count < wanted && l->source_pos < l->source.count) {
        tv item = l->source.items[l->source_pos++];
        tr_step(r);
        item = as_target(r, l->def->a, item);
        assign(r, l->def->a, l->test, item);
        if (tv_truth(r, eval(r, l->def->c, l->test))) l->items[l->count++] = item;
    }
}

static flow run_loop(tr *r, const node *n, frame *env, tv iterable, int depth0) {
    tv_loop *l = tr_alloc(r, sizeof *l);
    *l = (tv_loop){ .source = tv_items(r, iterable), .depth0 = depth0, .def = n, .env = env };
    if (n->c) {
        l->items = tr_alloc_array(r, l->source.count, sizeof *l->items);
        l->test = frame_enter(r, n->scopes[2], env);
    } else {
        l->items = l->source.items;
        l->count = l->source_pos = l->source.count;
    }
    frame *f = frame_new(r, n->scopes[0], env);
    bool   completed = false;
    for (size_t i = 0;; i++) {
        tr_loop_fill(r, l, i + 1);
        if (i >= l->count) break;
        tr_step(r);
        l->index0 = i;
        assign(r, n->a, f, l->items[i]);
        if (n->extended) f->slots[n->loop_slot] = (tv){ .kind = TV_LOOP, .u.loop = l };
        frame_load(r, n->scopes[0], f);
        flow w = exec_list(r, &n->body, f);
        if (w == FLOW_BREAK) break;
        if (w == FLOW_ON) completed = true; /* the reference runs else also after a break or continue in every turn */
    }
    for (int i = 0; i < n->scopes[0]->count; i++) f->slots[i] = tv_missing();
    if (n->other.count && !completed) return exec_list(r, &n->other, frame_enter(r, n->scopes[1], env));
    return FLOW_ON;
}

tv tr_call_loop(tr *r, tv_loop *l, tv iterable) {
    if (!l->def->recursive) tr_fail(r, "The loop must have the 'recursive' marker to be called recursively.");
    tr_enter(r);
    size_t mark = tr_mark(r);
    run_loop(r, l->def, l->env, iterable, l->depth0 + 1);
    tr_leave(r);
    return tr_take(r, mark);
}

/* --- statements --- */

static flow exec_if(tr *r, const node *n, frame *f) {
    if (tv_truth(r, eval(r, n->a, f))) return exec_list(r, &n->body, f);
    for (size_t i = 0; i < n->list.count; i++) {
        const node *e = n->list.items[i];
        if (tv_truth(r, eval(r, e->a, f))) return exec_list(r, &e->body, f);
    }
    return exec_list(r, &n->other, f);
}

static tv filter_text(tr *r, const node *filter, frame *f, tv text) {
    tv before = r->captured;
    r->captured = text;
    tv v = eval(r, filter, f);
    r->captured = before;
    return v;
}

/* Set and filter blocks: the body becomes text, which is filtered, then assigned or printed. */
static flow exec_capture(tr *r, const node *n, frame *f) {
    frame *inner = frame_enter(r, n->scopes[0], f);
    size_t mark = tr_mark(r);
    flow   w = exec_list(r, &n->body, inner);
    tv     text = tr_take(r, mark);
    if (w != FLOW_ON) return w;
    tv v = n->b ? filter_text(r, n->b, inner, text) : text;
    if (n->kind == N_SETBLOCK)
        assign(r, n->a, f, v);
    else
        tv_put_str(r, v);
    return FLOW_ON;
}

static flow exec_with(tr *r, const node *n, frame *f) {
    frame *inner = frame_enter(r, n->scopes[0], f);
    for (size_t i = 0; i < n->list.count; i++) assign(r, n->list.items[i], inner, eval(r, n->values.items[i], f));
    return exec_list(r, &n->body, inner);
}

static void exec_output(tr *r, const node *n, frame *f) {
    for (size_t i = 0; i < n->list.count; i++) {
        const node *part = n->list.items[i];
        if (part->kind == N_CONST && part->value.kind == TV_STR)
            tr_put(r, part->value.u.s, part->value.len);
        else
            tv_put_str(r, eval(r, part, f));
    }
}

static flow exec(tr *r, const node *n, frame *f) {
    r->line = n->line;
    switch ((node_kind)n->kind) {
    case N_OUTPUT: exec_output(r, n, f); return FLOW_ON;
    case N_IF: return exec_if(r, n, f);
    case N_FOR: return run_loop(r, n, f, eval(r, n->b, f), 0);
    case N_SET: assign(r, n->a, f, eval(r, n->b, f)); return FLOW_ON;
    case N_SETBLOCK:
    case N_FILTERBLOCK: return exec_capture(r, n, f);
    case N_MACRO: frame_up(f, n->hops)->slots[n->slot] = make_macro(r, n, f, true); return FLOW_ON;
    case N_CALLBLOCK: tv_put_str(r, eval_call(r, n->a, f, make_macro(r, n, f, false))); return FLOW_ON;
    case N_WITH: return exec_with(r, n, f);
    case N_GENERATION: exec_list(r, &n->body, frame_enter(r, n->scopes[0], f)); return FLOW_ON;
    case N_BLOCK: exec_list(r, &n->body, frame_enter(r, n->scopes[0], NULL)); return FLOW_ON;
    case N_BREAK: return FLOW_BREAK;
    case N_CONTINUE: return FLOW_CONTINUE;
    default: tr_fail(r, "internal: not a statement");
    }
}

static flow exec_list(tr *r, const node_list *l, frame *f) {
    tr_enter(r);
    for (size_t i = 0; i < l->count; i++) {
        tr_step(r);
        flow w = exec(r, l->items[i], f);
        if (w != FLOW_ON) {
            tr_leave(r);
            return w;
        }
    }
    tr_leave(r);
    return FLOW_ON;
}

void tr_run(tr *r) {
    r->root = frame_new(r, r->t->root, NULL);
    frame_load(r, r->t->root, r->root);
    exec_list(r, &r->t->body, r->root);
}
