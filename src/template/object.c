/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attributes, items, slices and calls.
 *
 * Jinja's lookup: x.name tries the attribute, then the item; x['name'] the item, then the attribute; what is in neither
 * is undefined, which fails only when it is used. Methods that would change a list or dict exist, but the sandbox makes
 * them undefined (calling one is an error, as in the reference).
 */
#include "template/ast.h"
#include "template/define.h"

#include <math.h>
#include <string.h>

/* --- arguments --- */

static int param_index(const char *const *names, int n, view name) {
    for (int i = 0; i < n; i++) {
        if (names[i] && view_eq_c(name, names[i])) return i;
    }
    return -1;
}

void tv_bind(tr *r, const char *what, const tv_args *args, const char *const *names, int n, int required, tv *out) {
    for (int i = 0; i < n; i++) out[i] = tv_missing();
    if (args->n_pos > (size_t)n) tr_fail(r, "%s takes at most %d argument(s) (%zu given)", what, n, args->n_pos);
    for (size_t i = 0; i < args->n_pos; i++) out[i] = args->pos[i];
    for (size_t i = 0; i < args->n_kw; i++) {
        int at = param_index(names, n, args->kw_names[i]);
        if (at < 0)
            tr_fail(r, "%s got an unexpected keyword argument '%.*s'", what, (int)args->kw_names[i].len,
                    args->kw_names[i].data);
        if (tv_given(out[at])) tr_fail(r, "%s got multiple values for argument '%s'", what, names[at]);
        out[at] = args->kw[i];
    }
    for (int i = 0; i < required; i++) {
        if (!tv_given(out[i])) tr_fail(r, "%s misses a required argument", what);
    }
}

int64_t tv_index_arg(tr *r, tv v, const char *what) {
    if (v.kind == TV_UNDEF) tr_fail_undef(r, v);
    if (!tv_is_int(v)) tr_fail(r, "'%s' object cannot be interpreted as an integer (%s)", tv_type_name(v), what);
    tv_wide w = tv_wide_get(v);
    return w > INT64_MAX ? INT64_MAX : w < -INT64_MAX ? -INT64_MAX : (int64_t)w;
}

view tv_str_arg(tr *r, tv v, const char *what) {
    if (v.kind != TV_STR) tr_fail(r, "%s: expected str, not %s", what, tv_type_name(v));
    return tv_view(v);
}

/* --- methods of containers and numbers --- */

METHOD(l_index) {
    UNUSED_METHOD;
    int64_t n = (int64_t)s.u.list->count, lo = tv_given(a[1]) ? tv_index_arg(r, a[1], "start") : 0;
    int64_t hi = tv_given(a[2]) ? tv_index_arg(r, a[2], "stop") : n;
    if (lo < 0) lo = lo + n < 0 ? 0 : lo + n;
    if (hi < 0) hi = hi + n < 0 ? 0 : hi + n;
    for (int64_t i = lo; i < hi && i < n; i++) {
        if (tv_identical(s.u.list->items[i], a[0]) || tv_equal(r, s.u.list->items[i], a[0])) return tv_int(i);
    }
    tr_fail(r, "value is not in list");
}

METHOD(l_count) {
    UNUSED_METHOD;
    int64_t n = 0;
    for (size_t i = 0; i < s.u.list->count; i++)
        n += tv_identical(s.u.list->items[i], a[0]) || tv_equal(r, s.u.list->items[i], a[0]);
    return tv_int(n);
}

METHOD(l_copy) {
    UNUSED_METHOD;
    tv v = tv_list_new(r, s.u.list->count);
    if (s.u.list->count) memcpy(v.u.list->items, s.u.list->items, s.u.list->count * sizeof(tv));
    return v;
}

METHOD(d_get) {
    UNUSED_METHOD;
    const tv *v = tv_dict_find(r, s.u.dict, a[0]);
    return v ? *v : tv_given(a[1]) ? a[1] : tv_none();
}

static tv dict_view(tv s, int which) { return (tv){ .kind = TV_VIEW, .sub = (uint16_t)which, .u.dict = s.u.dict }; }

METHOD_IS(d_keys, dict_view(s, TV_KEYS))
METHOD_IS(d_values, dict_view(s, TV_VALUES))
METHOD_IS(d_items, dict_view(s, TV_ITEMS))

METHOD(d_copy) {
    UNUSED_METHOD;
    tv_dict *d = tv_dict_new(r, s.u.dict->count);
    for (size_t i = 0; i < s.u.dict->count; i++)
        tv_dict_put(r, d, s.u.dict->entries[i].key, s.u.dict->entries[i].value);
    return tv_of_dict(d);
}

METHOD(d_fromkeys) {
    UNUSED_METHOD;
    tv_list  l = tv_items(r, a[0]);
    tv_dict *d = tv_dict_new(r, l.count);
    for (size_t i = 0; i < l.count; i++) tv_dict_put(r, d, l.items[i], tv_given(a[1]) ? a[1] : tv_none());
    return tv_of_dict(d);
}

METHOD_IS(n_is_integer, tv_bool(isfinite(s.u.f) && floor(s.u.f) == s.u.f))
METHOD_IS(n_self, tv_positive(r, s))

METHOD(n_bit_length) {
    UNUSED_METHOD;
    tv_wide w = tv_wide_get(s);
    int64_t n = 0;
    for (unsigned __int128 m = w < 0 ? -(unsigned __int128)w : (unsigned __int128)w; m; m >>= 1) n++;
    return tv_int(n);
}

METHOD(c_next) {
    UNUSED_METHOD;
    tv v = s.u.cycler->items.items[s.u.cycler->pos];
    s.u.cycler->pos = (s.u.cycler->pos + 1) % s.u.cycler->items.count;
    return v;
}

METHOD(c_reset) {
    UNUSED_METHOD;
    s.u.cycler->pos = 0;
    return tv_none();
}

METHOD(loop_cycle) {
    UNUSED_METHOD;
    if (!raw->n_pos) tr_fail(r, "no items for cycling given");
    return raw->pos[s.u.loop->index0 % raw->n_pos];
}

METHOD(loop_changed) {
    UNUSED_METHOD;
    tv now = tv_list_new(r, raw->n_pos);
    now.kind = TV_TUPLE;
    if (raw->n_pos) memcpy(now.u.list->items, raw->pos, raw->n_pos * sizeof(tv));
    if (s.u.loop->has_changed && tv_equal(r, s.u.loop->changed, now)) return tv_bool(false);
    s.u.loop->changed = now;
    s.u.loop->has_changed = true;
    return tv_bool(true);
}

/* A NULL function marks a method that would change its object. */
const tv_method tv_methods_list[] = {
    { "index", l_index, { 0 }, 3, 1, false, false }, { "count", l_count, { 0 }, 1, 1, false, false },
    { "copy", l_copy, { 0 }, 0, 0, false, false },   { "append", NULL, { 0 }, 0, 0, false, false },
    { "clear", NULL, { 0 }, 0, 0, false, false },    { "pop", NULL, { 0 }, 0, 0, false, false },
    { "reverse", NULL, { 0 }, 0, 0, false, false },  { "insert", NULL, { 0 }, 0, 0, false, false },
    { "sort", NULL, { 0 }, 0, 0, false, false },     { "extend", NULL, { 0 }, 0, 0, false, false },
    { "remove", NULL, { 0 }, 0, 0, false, false },   { 0 },
};
const tv_method tv_methods_tuple[] = {
    { "index", l_index, { 0 }, 3, 1, false, false },
    { "count", l_count, { 0 }, 1, 1, false, false },
    { 0 },
};
const tv_method tv_methods_dict[] = {
    { "get", d_get, { 0 }, 2, 1, false, false },       { "items", d_items, { 0 }, 0, 0, false, false },
    { "keys", d_keys, { 0 }, 0, 0, false, false },     { "values", d_values, { 0 }, 0, 0, false, false },
    { "copy", d_copy, { 0 }, 0, 0, false, false },     { "fromkeys", d_fromkeys, { 0 }, 2, 1, false, false },
    { "pop", NULL, { 0 }, 0, 0, false, false },        { "update", NULL, { 0 }, 0, 0, false, false },
    { "clear", NULL, { 0 }, 0, 0, false, false },      { "popitem", NULL, { 0 }, 0, 0, false, false },
    { "setdefault", NULL, { 0 }, 0, 0, false, false }, { 0 },
};
static const tv_method FLOAT_METHODS[] = {
    { "is_integer", n_is_integer, { 0 }, 0, 0, false, false },
    { "conjugate", n_self, { 0 }, 0, 0, false, false },
    { 0 },
};
static const tv_method INT_METHODS[] = {
    { "bit_length", n_bit_length, { 0 }, 0, 0, false, false },
    { "conjugate", n_self, { 0 }, 0, 0, false, false },
    { 0 },
};
static const tv_method CYCLER_METHODS[] = {
    { "next", c_next, { 0 }, 0, 0, false, false },
    { "reset", c_reset, { 0 }, 0, 0, false, false },
    { 0 },
};
static const tv_method LOOP_METHODS[] = {
    { "cycle", loop_cycle, { 0 }, 0, 0, false, true },
    { "changed", loop_changed, { 0 }, 0, 0, false, true },
    { 0 },
};

static const tv_method *methods_of(tv v) {
    switch ((tv_kind)v.kind) {
    case TV_STR: return tv_methods_str;
    case TV_LIST: return tv_methods_list;
    case TV_TUPLE: return tv_methods_tuple;
    case TV_DICT: return tv_methods_dict;
    case TV_FLOAT: return FLOAT_METHODS;
    case TV_BOOL:
    case TV_INT:
    case TV_BIG: return INT_METHODS;
    case TV_CYCLER: return CYCLER_METHODS;
    case TV_LOOP: return LOOP_METHODS;
    default: return NULL;
    }
}

/* --- plain attributes --- */

static tv loop_attr(tr *r, tv_loop *l, view name) {
    static const char *const far[] = { "length", "revindex", "revindex0" };
    if (view_eq_c(name, "last") || view_eq_c(name, "nextitem")) tr_loop_fill(r, l, l->index0 + 2);
    for (size_t i = 0; i < 3; i++) {
        if (view_eq_c(name, far[i])) tr_loop_fill(r, l, SIZE_MAX);
    }
    if (view_eq_c(name, "index")) return tv_int((int64_t)l->index0 + 1);
    if (view_eq_c(name, "index0")) return tv_int((int64_t)l->index0);
    if (view_eq_c(name, "first")) return tv_bool(l->index0 == 0);
    if (view_eq_c(name, "last")) return tv_bool(l->index0 + 1 >= l->count);
    if (view_eq_c(name, "length")) return tv_int((int64_t)l->count);
    if (view_eq_c(name, "revindex")) return tv_int((int64_t)(l->count - l->index0));
    if (view_eq_c(name, "revindex0")) return tv_int((int64_t)(l->count - l->index0) - 1);
    if (view_eq_c(name, "depth")) return tv_int(l->depth0 + 1);
    if (view_eq_c(name, "depth0")) return tv_int(l->depth0);
    if (view_eq_c(name, "previtem"))
        return l->index0 ? l->items[l->index0 - 1] : tv_undef_hint(r, "there is no previous item");
    if (view_eq_c(name, "nextitem"))
        return l->index0 + 1 < l->count ? l->items[l->index0 + 1] : tv_undef_hint(r, "there is no next item");
    return tv_missing();
}

static tv macro_attr(tr *r, const tv_macro *m, view name) {
    if (view_eq_c(name, "name")) return m->name ? tv_str(r, m->name, m->name_len) : tv_none();
    if (view_eq_c(name, "catch_kwargs")) return tv_bool(m->def->catch_kwargs);
    if (view_eq_c(name, "catch_varargs")) return tv_bool(m->def->catch_varargs);
    if (view_eq_c(name, "caller")) return tv_bool(m->def->uses_caller);
    if (view_eq_c(name, "explicit_caller")) return tv_bool(m->def->explicit_caller);
    if (!view_eq_c(name, "arguments")) return tv_missing();
    tv v = tv_list_new(r, m->def->params.count);
    v.kind = TV_TUPLE;
    for (size_t i = 0; i < v.u.list->count; i++) {
        view p = m->def->params.items[i]->name;
        v.u.list->items[i] = tv_str(r, p.data, p.len);
    }
    return v;
}

static tv number_attr(tr *r, tv v, view name) {
    bool real = v.kind == TV_FLOAT;
    if (view_eq_c(name, "real") || (!real && view_eq_c(name, "numerator"))) return tv_positive(r, v);
    if (view_eq_c(name, "imag")) return real ? tv_float(0) : tv_int(0);
    if (!real && view_eq_c(name, "denominator")) return tv_int(1);
    return tv_missing();
}

static tv plain_attr(tr *r, tv v, view name) {
    tv *found;
    switch ((tv_kind)v.kind) {
    case TV_LOOP: return loop_attr(r, v.u.loop, name);
    case TV_NAMESPACE: found = tv_dict_find_str(r, v.u.dict, name); return found ? *found : tv_missing();
    case TV_MACRO: return macro_attr(r, v.u.macro, name);
    case TV_BOOL:
    case TV_INT:
    case TV_BIG:
    case TV_FLOAT: return number_attr(r, v, name);
    case TV_TUPLE:
        if (v.flags & TV_GROUP && view_eq_c(name, "grouper")) return v.u.list->items[0];
        if (v.flags & TV_GROUP && view_eq_c(name, "list")) return v.u.list->items[1];
        return tv_missing();
    case TV_RANGE:
        if (view_eq_c(name, "start")) return tv_int(v.u.range->start);
        if (view_eq_c(name, "stop")) return tv_int(v.u.range->stop);
        if (view_eq_c(name, "step")) return tv_int(v.u.range->step);
        return tv_missing();
    case TV_CYCLER:
        if (view_eq_c(name, "current")) return v.u.cycler->items.items[v.u.cycler->pos];
        if (view_eq_c(name, "pos")) return tv_int((int64_t)v.u.cycler->pos);
        if (view_eq_c(name, "items")) {
            tv t = { .kind = TV_TUPLE, .u.list = &v.u.cycler->items };
            return t;
        }
        return tv_missing();
    case TV_JOINER:
        if (view_eq_c(name, "sep")) return v.u.cycler->sep;
        if (view_eq_c(name, "used")) return tv_bool(v.u.cycler->used);
        return tv_missing();
    default: return tv_missing();
    }
}

bool tv_has_attr(tr *r, tv obj, view name, tv *out) {
    const tv_method *m = methods_of(obj);
    for (; m && m->name; m++) {
        if (!view_eq_c(name, m->name)) continue;
        if (!m->fn) {
            *out = tv_undef_hint(r, "access to attribute '%s' of '%s' object is unsafe.", m->name, tv_type_name(obj));
            return true;
        }
        tv_bound *b = tr_alloc(r, sizeof *b);
        *b = (tv_bound){ obj, m, m->name };
        *out = (tv){ .kind = TV_METHOD, .u.bound = b };
        return true;
    }
    *out = plain_attr(r, obj, name);
    return tv_given(*out);
}

tv tv_getattr(tr *r, tv obj, view name) {
    tv v;
    if (obj.kind == TV_UNDEF) tr_fail_undef(r, obj);
    if (tv_has_attr(r, obj, name, &v)) return v;
    if (obj.kind == TV_DICT) {
        const tv *item = tv_dict_find_str(r, obj.u.dict, name);
        if (item) return *item;
    }
    return tv_undef_attr(r, obj, tv_str(r, name.data, name.len));
}

/* obj[key] where Python has it; false where it raises TypeError or LookupError. */
static bool item_of(tr *r, tv obj, tv key, tv *out) {
    size_t  n;
    tv_wide i;
    if (obj.kind == TV_DICT) {
        if (!tv_hashable(key)) return false;
        const tv *v = tv_dict_find(r, obj.u.dict, key);
        if (v) *out = *v;
        return v != NULL;
    }
    if ((obj.kind != TV_STR && !tv_is_seq(obj) && obj.kind != TV_RANGE) || !tv_is_int(key)) return false;
    n = tv_length(r, obj);
    i = tv_wide_get(key);
    if (i < 0) i += (tv_wide)n;
    if (i < 0 || i >= (tv_wide)n) return false;
    if (obj.kind == TV_RANGE) {
        *out = tv_int(obj.u.range->start + (int64_t)i * obj.u.range->step);
    } else if (obj.kind == TV_STR) {
        size_t from = obj.flags & TV_ASCII ? (size_t)i : uc_offset(tv_view(obj), (size_t)i), to = from;
        uc_next(obj.u.s, obj.len, &to);
        *out = tv_sub(r, obj, from, to);
    } else {
        *out = obj.u.list->items[(size_t)i];
    }
    return true;
}

tv tv_getitem(tr *r, tv obj, tv key) {
    tv v;
    if (obj.kind == TV_UNDEF) tr_fail_undef(r, obj);
    if (item_of(r, obj, key, &v)) return v;
    if (key.kind == TV_STR && tv_has_attr(r, obj, tv_view(key), &v)) return v;
    return tv_undef_attr(r, obj, key);
}

/* --- slices --- */

static bool slice_part(tr *r, tv v, int64_t *out) {
    if (v.kind == TV_NONE) return false;
    if (v.kind == TV_UNDEF || !tv_is_int(v)) tr_fail(r, "slice indices must be integers or None");
    *out = tv_index_arg(r, v, "slice");
    return true;
}

static int64_t clamp(int64_t i, int64_t n, int64_t low, int64_t high) {
    if (i < 0) i += n;
    return i < low ? low : i > high ? high : i;
}

tv tv_slice(tr *r, tv obj, tv start, tv stop, tv step) {
    int64_t by = 1, lo, hi;
    if (obj.kind == TV_UNDEF) tr_fail_undef(r, obj);
    if (obj.kind != TV_STR && !tv_is_seq(obj) && obj.kind != TV_RANGE)
        tr_fail(r, "'%s' object is not subscriptable by a slice", tv_type_name(obj));
    int64_t n = (int64_t)tv_length(r, obj);
    if (slice_part(r, step, &by) && by == 0) tr_fail(r, "slice step cannot be zero");
    bool back = by < 0;
    lo = slice_part(r, start, &lo) ? clamp(lo, n, back ? -1 : 0, back ? n - 1 : n) : back ? n - 1 : 0;
    hi = slice_part(r, stop, &hi) ? clamp(hi, n, back ? -1 : 0, back ? n - 1 : n) : back ? -1 : n;
    if (obj.kind == TV_STR && by == 1) {
        if (lo >= hi) return tv_sub(r, obj, 0, 0);
        if (obj.flags & TV_ASCII) return tv_sub(r, obj, (size_t)lo, (size_t)hi);
        size_t from = uc_offset(tv_view(obj), (size_t)lo);
        size_t to = from + uc_offset((view){ obj.u.s + from, obj.len - from }, (size_t)(hi - lo));
        return tv_sub(r, obj, from, to);
    }
    size_t count = 0;
    if (back ? lo > hi : lo < hi) {
        uint64_t span = back ? (uint64_t)(lo - hi) : (uint64_t)(hi - lo),
                 stride = back ? (uint64_t)0 - (uint64_t)by : (uint64_t)by;
        count = (size_t)((span - 1) / stride + 1);
    }
    if (obj.kind == TV_RANGE) {
        tv_range *g = tr_alloc(r, sizeof *g), *o = obj.u.range;
        tv_wide   from = o->start + (tv_wide)lo * o->step, to = o->start + (tv_wide)hi * o->step,
                stride = (tv_wide)o->step * by;
        if (from != (int64_t)from || to != (int64_t)to || stride != (int64_t)stride)
            tr_fail(r, "range bounds are too large");
        *g = (tv_range){ (int64_t)from, (int64_t)to, (int64_t)stride, count };
        return (tv){ .kind = TV_RANGE, .u.range = g };
    }
    tv_list items = tv_items(r, obj);
    tv      v = tv_list_new(r, count);
    for (size_t i = 0; i < count; i++) v.u.list->items[i] = items.items[lo + (int64_t)i * by];
    tr_charge(r, count * sizeof(tv));
    if (obj.kind != TV_STR) {
        v.kind = obj.kind;
        return v;
    }
    size_t mark = tr_mark(r);
    for (size_t i = 0; i < count; i++) tr_put(r, v.u.list->items[i].u.s, v.u.list->items[i].len);
    tv text = tr_take(r, mark);
    text.flags |= obj.flags & TV_SAFE;
    return text;
}

/* --- calls --- */

bool tv_callable(tv v) {
    return v.kind == TV_MACRO || v.kind == TV_METHOD || v.kind == TV_FUNC || v.kind == TV_LOOP || v.kind == TV_JOINER ||
           v.kind == TV_UNDEF;
}

static tv call_method(tr *r, const tv_bound *b, const tv_args *args) {
    const tv_method *m = b->method;
    tv               argv[3] = { { 0 } }; /* all MISSING */
    if (m->raw) return m->fn(r, b->self, argv, args);
    if (args->n_kw && !m->keywords) tr_fail(r, "%s() takes no keyword arguments", m->name);
    tv_bind(r, m->name, args, m->params, m->max, m->required, argv);
    return m->fn(r, b->self, argv, args);
}

tv tv_call(tr *r, tv callee, const tv_args *args) {
    switch ((tv_kind)callee.kind) {
    case TV_METHOD: return call_method(r, callee.u.bound, args);
    case TV_FUNC: return tv_call_global(r, callee.sub, args);
    case TV_MACRO: return tr_call_macro(r, callee.u.macro, args, tv_missing());
    case TV_LOOP:
        if (args->n_pos != 1 || args->n_kw) tr_fail(r, "loop() takes one argument");
        return tr_call_loop(r, callee.u.loop, args->pos[0]);
    case TV_JOINER:
        if (args->n_pos || args->n_kw) tr_fail(r, "a joiner takes no arguments");
        if (callee.u.cycler->used) return callee.u.cycler->sep;
        callee.u.cycler->used = true;
        return tv_str_c("");
    case TV_UNDEF: tr_fail_undef(r, callee);
    default: tr_fail(r, "'%s' object is not callable", tv_type_name(callee));
    }
}
