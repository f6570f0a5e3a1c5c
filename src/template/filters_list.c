/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filters on sequences. Those that are generators in the reference (map, select, batch, ...) give an iterator that
 * makes its items at the first use and can be consumed once.
 */
#include "template/ast.h"
#include "template/define.h"

#include <math.h>
#include <string.h>

/* --- attribute paths: "a.b.0" --- */

static tv path_get(tr *r, tv item, tv path, tv dflt) {
    if (!tv_given(path) || path.kind == TV_NONE) return item;
    if (path.kind != TV_STR) {
        item = tv_getitem(r, item, path);
        return item.kind == TV_UNDEF && tv_given(dflt) && dflt.kind != TV_NONE ? dflt : item;
    }
    for (size_t from = 0; from <= path.len;) {
        size_t to = from;
        bool   number = true;
        tv     key = { 0 };
        while (to < path.len && path.u.s[to] != '.') {
            number &= path.u.s[to] >= '0' && path.u.s[to] <= '9';
            to++;
        }
        if (!(number && to > from && tv_parse_int(r, (view){ path.u.s + from, to - from }, 10, &key)))
            key = tv_sub(r, path, from, to);
        item = tv_getitem(r, item, key);
        if (item.kind == TV_UNDEF && tv_given(dflt) && dflt.kind != TV_NONE) item = dflt;
        from = to + 1;
    }
    return item;
}

static tv ignore_case(tr *r, tv v, bool case_sensitive) {
    return v.kind == TV_STR && !case_sensitive ? tv_case(r, v, CASE_LOWER) : v;
}

/* --- sorting: stable merge sort of (key, value) pairs --- */

typedef struct keyed {
    tv key, value;
} keyed;

static void merge_sort(tr *r, keyed *x, keyed *tmp, size_t n, bool reverse) {
    if (n < 2) return;
    size_t half = n / 2, i = 0, j = half, k = 0;
    merge_sort(r, x, tmp, half, reverse);
    merge_sort(r, x + half, tmp, n - half, reverse);
    while (i < half && j < n) {
        bool second = reverse ? tv_less(r, x[i].key, x[j].key, "<") : tv_less(r, x[j].key, x[i].key, "<");
        tmp[k++] = second ? x[j++] : x[i++];
    }
    while (i < half) tmp[k++] = x[i++];
    while (j < n) tmp[k++] = x[j++];
    memcpy(x, tmp, n * sizeof *x);
}

static tv values_of(tr *r, const keyed *x, size_t n) {
    tv v = tv_list_new(r, n);
    for (size_t i = 0; i < n; i++) v.u.list->items[i] = x[i].value;
    return v;
}

static keyed *keyed_items(tr *r, const tv_list *l) {
    keyed *x = tr_alloc_array(r, l->count * 2, sizeof *x);
    for (size_t i = 0; i < l->count; i++) x[i] = (keyed){ l->items[i], l->items[i] };
    return x;
}

/* Several paths, separated by commas, make a list of keys. */
static tv multi_key(tr *r, tv item, tv attribute, bool case_sensitive) {
    if (attribute.kind != TV_STR || !memchr(attribute.u.s, ',', attribute.len)) {
        tv key = tv_list_new(r, 1);
        key.u.list->items[0] = ignore_case(r, path_get(r, item, attribute, tv_missing()), case_sensitive);
        return key;
    }
    tv_list paths = *tv_split(r, attribute, tv_str_c(","), -1, false).u.list;
    tv      key = tv_list_new(r, paths.count);
    for (size_t i = 0; i < paths.count; i++)
        key.u.list->items[i] = ignore_case(r, path_get(r, item, paths.items[i], tv_missing()), case_sensitive);
    return key;
}

FILTER(f_sort) {
    UNUSED_FILTER;
    tv_list l = tv_items(r, v);
    keyed  *x = keyed_items(r, &l);
    for (size_t i = 0; i < l.count; i++) x[i].key = multi_key(r, l.items[i], a[2], template_flag(r, a[1]));
    merge_sort(r, x, x + l.count, l.count, template_flag(r, a[0]));
    return values_of(r, x, l.count);
}

FILTER(f_dictsort) {
    UNUSED_FILTER;
    view by = tv_given(a[1]) ? tv_str_arg(r, a[1], "dictsort") : view_of("key");
    if (v.kind == TV_UNDEF) tr_fail_undef(r, v);
    if (!view_eq_c(by, "key") && !view_eq_c(by, "value"))
        tr_fail(r, "You can only sort by either \"key\" or \"value\"");
    if (v.kind != TV_DICT) tr_fail(r, "'%s' object has no attribute 'items'", tv_type_name(v));
    size_t n = v.u.dict->count;
    keyed *x = tr_alloc_array(r, n * 2, sizeof *x);
    for (size_t i = 0; i < n; i++) {
        const tv_entry *e = &v.u.dict->entries[i];
        x[i].value = tv_tuple2(r, e->key, e->value);
        x[i].key = ignore_case(r, view_eq_c(by, "key") ? e->key : e->value, template_flag(r, a[0]));
    }
    merge_sort(r, x, x + n, n, template_flag(r, a[2]));
    return values_of(r, x, n);
}

FILTER(f_groupby) {
    UNUSED_FILTER;
    tv_list l = tv_items(r, v);
    keyed  *x = keyed_items(r, &l);
    bool    sensitive = template_flag(r, a[2]);
    for (size_t i = 0; i < l.count; i++) x[i].key = ignore_case(r, path_get(r, l.items[i], a[0], a[1]), sensitive);
    merge_sort(r, x, x + l.count, l.count, false);
    size_t groups = 0;
    for (size_t i = 0; i < l.count; i++) groups += i == 0 || !tv_equal(r, x[i - 1].key, x[i].key);
    tv out = tv_list_new(r, groups);
    for (size_t from = 0, g = 0; from < l.count; g++) {
        size_t to = from + 1;
        while (to < l.count && tv_equal(r, x[to - 1].key, x[to].key)) to++;
        tv key = sensitive ? x[from].key : path_get(r, x[from].value, a[0], a[1]);
        out.u.list->items[g] = tv_tuple2(r, key, values_of(r, x + from, to - from));
        out.u.list->items[g].flags = TV_GROUP;
        from = to;
    }
    return out;
}

static tv extreme(tr *r, tv v, const tv *a, bool max) {
    tv_list l = tv_items(r, v);
    if (!l.count) return tv_undef_hint(r, "No aggregated item, sequence was empty.");
    size_t best = 0;
    tv     best_key = ignore_case(r, path_get(r, l.items[0], a[1], tv_missing()), template_flag(r, a[0]));
    for (size_t i = 1; i < l.count; i++) {
        tv key = ignore_case(r, path_get(r, l.items[i], a[1], tv_missing()), template_flag(r, a[0]));
        if (max ? tv_less(r, key, best_key, ">") : tv_less(r, key, best_key, "<")) {
            best = i;
            best_key = key;
        }
    }
    return l.items[best];
}

FILTER_IS(f_min, extreme(r, v, a, false))
FILTER_IS(f_max, extreme(r, v, a, true))

FILTER(f_sum) {
    UNUSED_FILTER;
    tv_list l = tv_items(r, v);
    tv      total = tv_given(a[1]) ? a[1] : tv_int(0);
    if (total.kind == TV_STR) tr_fail(r, "sum() can't sum strings [use ''.join(seq) instead]");
    for (size_t i = 0; i < l.count; i++)
        total = tv_binary(r, TOK_ADD, total, path_get(r, l.items[i], a[0], tv_missing()));
    return total;
}

/* --- taking items --- */

static tv iter_next(tr *r, tv v, const char *what) {
    if (v.kind == TV_ITER) {
        tv_iter *it = v.u.iter;
        if (!it->items) it->items = it->make(r, it);
        return it->next < it->items->count ? it->items->items[it->next++]
                                           : tv_undef_hint(r, "No %s item, sequence was empty.", what);
    }
    tv_list l = tv_items(r, v);
    return l.count ? l.items[0] : tv_undef_hint(r, "No %s item, sequence was empty.", what);
}

FILTER_IS(f_first, iter_next(r, v, "first"))

static bool reversible(tv v) {
    return v.kind == TV_STR || tv_is_seq(v) || v.kind == TV_DICT || v.kind == TV_VIEW || v.kind == TV_RANGE ||
           v.kind == TV_UNDEF;
}

FILTER(f_last) {
    UNUSED_FILTER;
    if (!reversible(v)) tr_fail(r, "'%s' object is not reversible", tv_type_name(v));
    tv_list l = tv_items(r, v);
    return l.count ? l.items[l.count - 1] : tv_undef_hint(r, "No last item, sequence was empty.");
}

FILTER_IS(f_length, tv_int((int64_t)tv_length(r, v)))

FILTER(f_list) {
    UNUSED_FILTER;
    tv_list l = tv_items(r, v);
    tv      out = tv_list_new(r, l.count);
    tr_charge(r, l.count * sizeof(tv));
    if (l.count) memcpy(out.u.list->items, l.items, l.count * sizeof(tv));
    return out;
}

FILTER(f_join) {
    UNUSED_FILTER;
    tv      sep = tv_given(a[0]) ? tv_to_str(r, a[0]) : tv_str_c("");
    tv_list l = tv_items(r, v);
    size_t  mark = tr_mark(r);
    for (size_t i = 0; i < l.count; i++) {
        if (i) tr_put(r, sep.u.s, sep.len);
        tv_put_str(r, path_get(r, l.items[i], a[1], tv_missing()));
    }
    return tr_take(r, mark);
}

/* --- generators --- */

static tv new_iter(tr *r, tv source, tv_list *(*make)(tr *, tv_iter *), int mode, const tv_args *args,
                   const char *type_name) {
    tv_iter *it = tr_alloc(r, sizeof *it);
    *it = (tv_iter){ .make = make, .source = source, .mode = mode, .args = *args, .type_name = type_name };
    return (tv){ .kind = TV_ITER, .u.iter = it };
}

static tv_list *list_room(tr *r, size_t n) {
    tv_list *l = tr_alloc(r, sizeof *l);
    *l = (tv_list){ tr_alloc_array(r, n, sizeof(tv)), 0 };
    return l;
}

static tv kw_arg(const tv_args *args, const char *name) {
    for (size_t i = 0; i < args->n_kw; i++) {
        if (view_eq_c(args->kw_names[i], name)) return args->kw[i];
    }
    return tv_missing();
}

static tv_list *make_map(tr *r, tv_iter *it) {
    const tv_args *args = &it->args;
    if (!tv_truth(r, it->source)) return list_room(r, 0);
    tv               attribute = args->n_pos ? tv_missing() : kw_arg(args, "attribute"), dflt = tv_missing();
    const tv_filter *f = NULL;
    tv_args          rest = *args;
    if (tv_given(attribute)) {
        dflt = kw_arg(args, "default");
        if (args->n_kw > 1u + tv_given(dflt)) tr_fail(r, "map got an unexpected keyword argument");
    } else {
        if (!args->n_pos) tr_fail(r, "map requires a filter argument");
        view name = tv_str_arg(r, args->pos[0], "map");
        f = tv_filter_find(name);
        if (!f && tv_truth(r, it->source)) {
            if (tv_items(r, it->source).count == 0) return list_room(r, 0);
            tr_fail(r, "No filter named '%.*s'.", (int)(name.len < 60 ? name.len : 60), name.data);
        }
        rest.pos++;
        rest.n_pos--;
    }
    tv_list  from = tv_items(r, it->source);
    tv_list *out = list_room(r, from.count);
    tr_enter(r);
    for (size_t i = 0; i < from.count; i++) {
        tr_step(r);
        out->items[out->count++] =
            f ? tv_filter_apply(r, f, from.items[i], &rest) : path_get(r, from.items[i], attribute, dflt);
    }
    tr_leave(r);
    return out;
}

FILTER_IS(f_map, new_iter(r, v, make_map, 0, raw, NULL))

enum { SELECT = 0, REJECT = 1, BY_ATTRIBUTE = 2 };

static tv_list *make_select(tr *r, tv_iter *it) {
    tv_args rest = it->args;
    tv      attribute = tv_missing();
    if (!tv_truth(r, it->source)) return list_room(r, 0);
    if (it->mode & BY_ATTRIBUTE) {
        if (!rest.n_pos) tr_fail(r, "Missing parameter for attribute name");
        attribute = rest.pos[0];
        rest.pos++;
        rest.n_pos--;
    }
    const tv_test *t = NULL;
    tv_list        from = tv_items(r, it->source);
    if (rest.n_pos) {
        view name = tv_str_arg(r, rest.pos[0], "select");
        t = tv_test_find(name);
        if (!t && from.count) tr_fail(r, "No test named '%.*s'.", (int)(name.len < 60 ? name.len : 60), name.data);
        rest.pos++;
        rest.n_pos--;
    }
    tv_list *out = list_room(r, from.count);
    tr_enter(r);
    for (size_t i = 0; i < from.count; i++) {
        tv x = path_get(r, from.items[i], attribute, tv_missing());
        tr_step(r);
        bool yes = t ? tv_test_apply(r, t, x, &rest) : tv_truth(r, x);
        if (yes != (bool)(it->mode & REJECT)) out->items[out->count++] = from.items[i];
    }
    tr_leave(r);
    return out;
}

FILTER_IS(f_select, new_iter(r, v, make_select, SELECT, raw, NULL))
FILTER_IS(f_reject, new_iter(r, v, make_select, REJECT, raw, NULL))
FILTER_IS(f_selectattr, new_iter(r, v, make_select, SELECT | BY_ATTRIBUTE, raw, NULL))
FILTER_IS(f_rejectattr, new_iter(r, v, make_select, REJECT | BY_ATTRIBUTE, raw, NULL))

/* Arguments that were bound to parameters travel in the iterator's positional arguments. */
static tv lazy(tr *r, tv v, const tv *a, int n, tv_list *(*make)(tr *, tv_iter *)) {
    tv_args args = { .pos = tr_alloc_array(r, (size_t)n + 1, sizeof(tv)), .n_pos = (size_t)n };
    memcpy(args.pos, a, (size_t)n * sizeof(tv));
    return new_iter(r, v, make, 0, &args, NULL);
}

static tv sub_list(tr *r, const tv *items, size_t n, tv fill, size_t n_fill) {
    tv l = tv_list_new(r, n + n_fill);
    if (n) memcpy(l.u.list->items, items, n * sizeof(tv));
    for (size_t i = 0; i < n_fill; i++) l.u.list->items[n + i] = fill;
    return l;
}

static tv_list *make_batch(tr *r, tv_iter *it) {
    tv_list from = tv_items(r, it->source);
    tv      fill = it->args.pos[1];
    bool    fills = tv_given(fill) && fill.kind != TV_NONE;
    tv      by = it->args.pos[0];
    bool    whole = tv_is_int(by) || (by.kind == TV_FLOAT && by.u.f == floor(by.u.f) && fabs(by.u.f) < 1e15);
    if (!whole) { /* no length ever equals it: one batch */
        tv_list *one = list_room(r, 1);
        if (fills && from.count) tr_fail(r, "batch expects an integer");
        if (from.count) one->items[one->count++] = sub_list(r, from.items, from.count, fill, 0);
        return one;
    }
    int64_t n = tv_is_int(by) ? tv_index_arg(r, by, "batch") : (int64_t)by.u.f;
    size_t  size = n > 0 ? (size_t)n : from.count ? from.count : 1;
    if (n == 0 && from.count) { /* the reference yields an empty batch first and then never matches again */
        tv_list *two = list_room(r, 2);
        two->items[two->count++] = tv_list_new(r, 0);
        two->items[two->count++] = sub_list(r, from.items, from.count, fill, 0);
        return two;
    }
    tv_list *out = list_room(r, from.count / size + 1);
    for (size_t i = 0; i < from.count; i += size) {
        size_t take = from.count - i < size ? from.count - i : size;
        size_t missing = fills && n > 0 && take < size ? size - take : 0;
        if (missing > r->mem.limit_bytes / sizeof(tv)) tr_fail_limit(r, "memory");
        out->items[out->count++] = sub_list(r, from.items + i, take, fill, missing);
    }
    return out;
}

FILTER_IS(f_batch, lazy(r, v, a, 2, make_batch))

static tv_list *make_slice(tr *r, tv_iter *it) {
    tv_list from = tv_items(r, it->source);
    tv      fill = it->args.pos[1];
    int64_t n = tv_index_arg(r, it->args.pos[0], "slice");
    if (n == 0) tr_fail(r, "integer division or modulo by zero");
    if (n < 0) return list_room(r, 0);
    if ((size_t)n > r->mem.limit_bytes / sizeof(tv)) tr_fail_limit(r, "memory");
    size_t   slices = (size_t)n, per = from.count / slices, extra = from.count % slices, at = 0;
    tv_list *out = list_room(r, slices);
    for (size_t i = 0; i < slices; i++) {
        size_t take = per + (i < extra);
        bool   fills = tv_given(fill) && fill.kind != TV_NONE && i >= extra;
        tr_step(r);
        out->items[out->count++] = sub_list(r, from.items + at, take, fill, fills);
        at += take;
    }
    return out;
}

FILTER_IS(f_slice, lazy(r, v, a, 2, make_slice))

static tv_list *make_unique(tr *r, tv_iter *it) {
    tv_list  from = tv_items(r, it->source);
    tv_list *out = list_room(r, from.count);
    tv_dict *seen = tv_dict_new(r, 0);
    for (size_t i = 0; i < from.count; i++) {
        tv key = ignore_case(r, path_get(r, from.items[i], it->args.pos[1], tv_missing()),
                             template_flag(r, it->args.pos[0]));
        tr_step(r);
        if (tv_dict_find(r, seen, key)) continue;
        tv_dict_put(r, seen, key, tv_none());
        out->items[out->count++] = from.items[i];
    }
    return out;
}

FILTER_IS(f_unique, lazy(r, v, a, 2, make_unique))

static tv_list *make_items(tr *r, tv_iter *it) {
    tv_list *out = list_room(r, 0);
    if (it->source.kind == TV_UNDEF) return out;
    if (it->source.kind != TV_DICT) tr_fail(r, "Can only get item pairs from a mapping.");
    *out = tv_items(r, (tv){ .kind = TV_VIEW, .sub = TV_ITEMS, .u.dict = it->source.u.dict });
    return out;
}

FILTER_IS(f_items, lazy(r, v, a, 0, make_items))

static tv_list *make_reversed(tr *r, tv_iter *it) {
    tv_list  from = tv_items(r, it->source);
    tv_list *out = list_room(r, from.count);
    for (size_t i = from.count; i-- > 0;) out->items[out->count++] = from.items[i];
    tr_charge(r, from.count * sizeof(tv));
    return out;
}

FILTER(f_reverse) {
    UNUSED_FILTER;
    if (v.kind == TV_STR) return tv_slice(r, v, tv_none(), tv_none(), tv_int(-1));
    if (!tv_iterable(v)) tr_fail(r, "argument must be iterable");
    tv it = lazy(r, v, a, 0, make_reversed);
    if (reversible(v)) return it;
    tv out = { .kind = TV_LIST, .u.list = make_reversed(r, it.u.iter) }; /* generators come back as a list */
    return out;
}

const tv_filter tv_filters_list[] = {
    { "length", f_length, { 0 }, 0, false },
    { "count", f_length, { 0 }, 0, false },
    { "join", f_join, { "d", "attribute" }, 0, false },
    { "list", f_list, { 0 }, 0, false },
    { "first", f_first, { 0 }, 0, false },
    { "last", f_last, { 0 }, 0, false },
    { "items", f_items, { 0 }, 0, false },
    { "map", f_map, { 0 }, 0, true },
    { "select", f_select, { 0 }, 0, true },
    { "reject", f_reject, { 0 }, 0, true },
    { "selectattr", f_selectattr, { 0 }, 0, true },
    { "rejectattr", f_rejectattr, { 0 }, 0, true },
    { "sort", f_sort, { "reverse", "case_sensitive", "attribute" }, 0, false },
    { "dictsort", f_dictsort, { "case_sensitive", "by", "reverse" }, 0, false },
    { "groupby", f_groupby, { "attribute", "default", "case_sensitive" }, 1, false },
    { "unique", f_unique, { "case_sensitive", "attribute" }, 0, false },
    { "min", f_min, { "case_sensitive", "attribute" }, 0, false },
    { "max", f_max, { "case_sensitive", "attribute" }, 0, false },
    { "sum", f_sum, { "attribute", "start" }, 0, false },
    { "batch", f_batch, { "linecount", "fill_with" }, 1, false },
    { "slice", f_slice, { "slices", "fill_with" }, 1, false },
    { "reverse", f_reverse, { 0 }, 0, false },
    { 0 },
};
