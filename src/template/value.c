/* SPDX-License-Identifier: Apache-2.0 */
/* Making values, dictionaries, truth, equality, order, membership, length and iteration: Python's rules. */
#include "template/ast.h"

#include "base/map.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

tv tv_wide_of(tr *r, tv_wide w) {
    if (w >= INT64_MIN && w <= INT64_MAX) return tv_int((int64_t)w);
    tv_wide *big = tr_alloc(r, sizeof *big);
    *big = w;
    return (tv){ .kind = TV_BIG, .u.big = big };
}

tv_wide tv_wide_get(tv v) { return v.kind == TV_BIG ? *v.u.big : v.kind == TV_BOOL ? (tv_wide)v.u.b : (tv_wide)v.u.i; }

double tv_double(tr *r, tv v) {
    (void)r;
    return v.kind == TV_FLOAT ? v.u.f : (double)tv_wide_get(v);
}

tv tv_str(tr *r, const char *s, size_t n) {
    if (n > UINT32_MAX) tr_fail_limit(r, "memory");
    return (tv){ .kind = TV_STR, .flags = uc_ascii(s, n) ? TV_ASCII : 0, .len = (uint32_t)n, .u.s = s };
}

tv tv_str_copy(tr *r, const char *s, size_t n) {
    char *copy = tr_alloc(r, n + 1);
    if (n) memcpy(copy, s, n);
    copy[n] = '\0';
    return tv_str(r, copy, n);
}

tv tv_str_c(const char *s) { return (tv){ .kind = TV_STR, .flags = TV_ASCII, .len = (uint32_t)strlen(s), .u.s = s }; }

tv tv_list_new(tr *r, size_t count) {
    tv_list *l = tr_alloc(r, sizeof *l);
    l->items = tr_alloc_array(r, count, sizeof *l->items);
    l->count = count;
    for (size_t i = 0; i < count; i++) l->items[i] = tv_none();
    return (tv){ .kind = TV_LIST, .u.list = l };
}

tv tv_tuple2(tr *r, tv a, tv b) {
    tv t = tv_list_new(r, 2);
    t.kind = TV_TUPLE;
    t.u.list->items[0] = a;
    t.u.list->items[1] = b;
    return t;
}

tv tv_undef_name(tr *r, view name) {
    tv_undef *d = tr_alloc(r, sizeof *d);
    *d = (tv_undef){ .name = tv_str(r, name.data, name.len) };
    return (tv){ .kind = TV_UNDEF, .u.undef = d };
}

tv tv_undef_hint(tr *r, const char *fmt, ...) {
    char    text[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    tv_undef *d = tr_alloc(r, sizeof *d);
    char     *hint = tr_alloc(r, strlen(text) + 1);
    *d = (tv_undef){ .hint = strcpy(hint, text) };
    return (tv){ .kind = TV_UNDEF, .u.undef = d };
}

tv tv_undef_attr(tr *r, tv owner, tv name) {
    tv_undef *d = tr_alloc(r, sizeof *d);
    *d = (tv_undef){ .has_owner = true, .owner = owner.kind == TV_NONE ? "None" : tv_type_name(owner), .name = name };
    return (tv){ .kind = TV_UNDEF, .u.undef = d };
}

const char *tv_type_name(tv v) {
    switch ((tv_kind)v.kind) {
    case TV_MISSING: return "missing";
    case TV_UNDEF: return "Undefined";
    case TV_NONE: return "NoneType";
    case TV_BOOL: return "bool";
    case TV_INT:
    case TV_BIG: return "int";
    case TV_FLOAT: return "float";
    case TV_STR: return v.flags & TV_SAFE ? "Markup" : "str";
    case TV_LIST: return "list";
    case TV_TUPLE: return "tuple";
    case TV_DICT: return "dict";
    case TV_VIEW: return v.sub == TV_KEYS ? "dict_keys" : v.sub == TV_VALUES ? "dict_values" : "dict_items";
    case TV_RANGE: return "range";
    case TV_ITER: return v.u.iter->type_name ? v.u.iter->type_name : "generator";
    case TV_NAMESPACE: return "Namespace";
    case TV_MACRO: return "Macro";
    case TV_LOOP: return "LoopContext";
    case TV_CYCLER: return "Cycler";
    case TV_JOINER: return "Joiner";
    case TV_METHOD: return "builtin_function_or_method";
    case TV_FUNC: return "function";
    }
    return "object";
}

/* --- dictionaries --- */

enum { SMALL_DICT = 8 };

tv tv_of_dict(tv_dict *d) { return (tv){ .kind = TV_DICT, .u.dict = d }; }

tv_dict *tv_dict_new(tr *r, size_t expected) {
    tv_dict *d = tr_alloc(r, sizeof *d);
    *d = (tv_dict){ .cap = expected };
    if (expected) d->entries = tr_alloc_array(r, expected, sizeof *d->entries);
    return d;
}

bool tv_hashable(tv v) {
    if (v.kind == TV_TUPLE) {
        for (size_t i = 0; i < v.u.list->count; i++) {
            if (!tv_hashable(v.u.list->items[i])) return false;
        }
        return true;
    }
    return v.kind != TV_LIST && v.kind != TV_DICT && !(v.kind == TV_VIEW && v.sub != TV_VALUES);
}

/* Equal numbers hash alike, whatever their type. */
static uint64_t hash_number(tr *r, tv v) {
    if (v.kind == TV_FLOAT) {
        double f = v.u.f;
        if (f == floor(f) && fabs(f) < 1e18) {
            int64_t i = (int64_t)f;
            return hash_bytes(&i, sizeof i, r->seed);
        }
        if (f == floor(f) && fabs(f) < 1.6e38) {
            tv_wide w = (tv_wide)f;
            if (w >= INT64_MIN && w <= INT64_MAX) {
                int64_t i = (int64_t)w;
                return hash_bytes(&i, sizeof i, r->seed);
            }
            return hash_bytes(&w, sizeof w, r->seed);
        }
        return hash_bytes(&f, sizeof f, r->seed);
    }
    if (v.kind == TV_BIG) return hash_bytes(v.u.big, sizeof *v.u.big, r->seed);
    int64_t i = (int64_t)tv_wide_get(v);
    return hash_bytes(&i, sizeof i, r->seed);
}

static uint64_t tv_hash(tr *r, tv v) {
    if (v.kind == TV_STR) return hash_bytes(v.u.s, v.len, r->seed);
    if (tv_is_num(v)) return hash_number(r, v);
    if (v.kind == TV_TUPLE) {
        uint64_t h = r->seed;
        tr_enter(r);
        for (size_t i = 0; i < v.u.list->count; i++) h = h * 31 + tv_hash(r, v.u.list->items[i]);
        tr_leave(r);
        return h;
    }
    if (v.kind == TV_NONE || v.kind == TV_UNDEF) return v.kind;
    if (!tv_hashable(v)) tr_fail(r, "unhashable type: '%s'", tv_type_name(v));
    return v.kind == TV_RANGE ? v.u.range->count : (uint64_t)(uintptr_t)v.u.dict;
}

/* Python's key comparison: identical or equal. */
static bool same_key(tr *r, tv a, tv b) {
    if (a.kind == TV_STR && b.kind == TV_STR) return a.len == b.len && memcmp(a.u.s, b.u.s, a.len) == 0;
    return tv_equal(r, a, b);
}

static size_t dict_slot(tr *r, const tv_dict *d, tv key, uint64_t hash) {
    size_t mask = d->index_cap - 1, at = (size_t)hash & mask;
    while (d->index[at]) {
        const tv_entry *x = &d->entries[d->index[at] - 1];
        if (x->hash == hash && same_key(r, x->key, key)) break;
        at = (at + 1) & mask;
    }
    return at;
}

static tv_entry *dict_entry(tr *r, const tv_dict *d, tv key, uint64_t hash) {
    if (d->index) {
        size_t at = dict_slot(r, d, key, hash);
        return d->index[at] ? &d->entries[d->index[at] - 1] : NULL;
    }
    for (size_t i = 0; i < d->count; i++) {
        if (d->entries[i].hash == hash && same_key(r, d->entries[i].key, key)) return &d->entries[i];
    }
    return NULL;
}

static void dict_reindex(tr *r, tv_dict *d) {
    d->index_cap = d->index_cap ? d->index_cap * 2 : 32;
    d->index = tr_alloc_array(r, d->index_cap, sizeof *d->index);
    memset(d->index, 0, d->index_cap * sizeof *d->index);
    for (size_t i = 0; i < d->count; i++) {
        size_t mask = d->index_cap - 1, at = (size_t)d->entries[i].hash & mask;
        while (d->index[at]) at = (at + 1) & mask;
        d->index[at] = (uint32_t)i + 1;
    }
}

void tv_dict_put(tr *r, tv_dict *d, tv key, tv value) {
    uint64_t  hash = tv_hash(r, key);
    tv_entry *x = dict_entry(r, d, key, hash);
    if (x) {
        x->value = value;
        return;
    }
    if (d->count == d->cap) {
        size_t    cap = d->cap < 4 ? 4 : d->cap * 2;
        tv_entry *grown = tr_alloc_array(r, cap, sizeof *grown);
        if (d->count) memcpy(grown, d->entries, d->count * sizeof *grown);
        d->entries = grown;
        d->cap = cap;
    }
    d->entries[d->count++] = (tv_entry){ key, value, hash };
    if (d->count > SMALL_DICT) {
        if (!d->index || d->count * 3 > d->index_cap * 2)
            dict_reindex(r, d);
        else
            d->index[dict_slot(r, d, key, hash)] = (uint32_t)d->count;
    }
}

tv *tv_dict_find(tr *r, const tv_dict *d, tv key) {
    tv_entry *x = dict_entry(r, d, key, tv_hash(r, key));
    return x ? &x->value : NULL;
}

tv *tv_dict_find_str(tr *r, const tv_dict *d, view key) {
    if (d->count == 0) return NULL;
    return tv_dict_find(r, d, (tv){ .kind = TV_STR, .len = (uint32_t)key.len, .u.s = key.data });
}

/* --- truth, length --- */

static bool tv_has_length(tv v) {
    return v.kind == TV_STR || tv_is_seq(v) || v.kind == TV_DICT || v.kind == TV_VIEW || v.kind == TV_RANGE ||
           v.kind == TV_UNDEF || v.kind == TV_LOOP;
}

size_t tv_length(tr *r, tv v) {
    switch ((tv_kind)v.kind) {
    case TV_STR: return tv_chars(r, v);
    case TV_LIST:
    case TV_TUPLE: return v.u.list->count;
    case TV_DICT:
    case TV_VIEW: return v.u.dict->count;
    case TV_RANGE: return v.u.range->count;
    case TV_LOOP: tr_loop_fill(r, v.u.loop, SIZE_MAX); return v.u.loop->count;
    case TV_UNDEF: return 0;
    default: tr_fail(r, "object of type '%s' has no len()", tv_type_name(v));
    }
}

bool tv_truth(tr *r, tv v) {
    switch ((tv_kind)v.kind) {
    case TV_MISSING:
    case TV_UNDEF:
    case TV_NONE: return false;
    case TV_BOOL: return v.u.b;
    case TV_INT: return v.u.i != 0;
    case TV_FLOAT: return v.u.f != 0;
    case TV_STR: return v.len != 0;
    default: return tv_has_length(v) ? tv_length(r, v) != 0 : true;
    }
}

/* --- equality and order --- */

static bool seq_equal(tr *r, const tv_list *a, const tv_list *b) {
    if (a->count != b->count) return false;
    tr_enter(r);
    for (size_t i = 0; i < a->count; i++) {
        if (!tv_identical(a->items[i], b->items[i]) && !tv_equal(r, a->items[i], b->items[i])) {
            tr_leave(r);
            return false;
        }
    }
    tr_leave(r);
    return true;
}

static bool dict_equal(tr *r, const tv_dict *a, const tv_dict *b, bool keys_only) {
    if (a->count != b->count) return false;
    tr_enter(r);
    for (size_t i = 0; i < a->count; i++) {
        const tv *other = tv_dict_find(r, b, a->entries[i].key);
        if (!other ||
            (!keys_only && !tv_identical(a->entries[i].value, *other) && !tv_equal(r, a->entries[i].value, *other))) {
            tr_leave(r);
            return false;
        }
    }
    tr_leave(r);
    return true;
}

/* -1, 0, 1; exact also where an integer is beyond a double's precision. 2: not comparable (NaN). */
static int number_order(tv a, tv b) {
    if (a.kind != TV_FLOAT && b.kind != TV_FLOAT) {
        tv_wide x = tv_wide_get(a), y = tv_wide_get(b);
        return x < y ? -1 : x > y;
    }
    if (a.kind == TV_FLOAT && b.kind == TV_FLOAT) {
        double x = a.u.f, y = b.u.f;
        return isnan(x) || isnan(y) ? 2 : x < y ? -1 : x > y;
    }
    if (a.kind != TV_FLOAT) {
        int o = number_order(b, a);
        return o == 2 ? 2 : -o;
    }
    double f = a.u.f;
    if (isnan(f)) return 2;
    if (f >= 1.7e38) return 1;
    if (f <= -1.7e38) return -1;
    tv_wide whole = (tv_wide)f, y = tv_wide_get(b);
    if (whole != y) return whole < y ? -1 : 1;
    double rest = f - (double)whole;
    return rest < 0 ? -1 : rest > 0;
}

bool tv_identical(tv a, tv b) {
    if (a.kind != b.kind) return false;
    switch ((tv_kind)a.kind) {
    case TV_MISSING:
    case TV_NONE: return true;
    case TV_BOOL: return a.u.b == b.u.b;
    case TV_INT: return a.u.i == b.u.i;
    case TV_BIG: return *a.u.big == *b.u.big;
    case TV_FLOAT: {
        uint64_t x, y; /* the same bits: a NaN is itself, 0.0 is not -0.0 */
        memcpy(&x, &a.u.f, sizeof x);
        memcpy(&y, &b.u.f, sizeof y);
        return x == y;
    }
    case TV_STR: return a.len == b.len && (a.u.s == b.u.s || memcmp(a.u.s, b.u.s, a.len) == 0);
    case TV_METHOD: return a.u.bound == b.u.bound;
    case TV_FUNC: return a.sub == b.sub;
    default: return a.u.dict == b.u.dict && a.sub == b.sub;
    }
}

bool tv_equal(tr *r, tv a, tv b) {
    tr_step(r);
    if (tv_is_num(a) && tv_is_num(b)) return number_order(a, b) == 0;
    if (a.kind == TV_UNDEF || b.kind == TV_UNDEF) return a.kind == b.kind;
    if (a.kind == TV_VIEW && b.kind == TV_VIEW && a.sub == b.sub && a.sub != TV_VALUES)
        return dict_equal(r, a.u.dict, b.u.dict, a.sub == TV_KEYS);
    if (a.kind != b.kind) return false;
    switch ((tv_kind)a.kind) {
    case TV_STR:
        if (a.len != b.len) return false;
        tr_charge(r, a.len);
        return memcmp(a.u.s, b.u.s, a.len) == 0;
    case TV_LIST:
    case TV_TUPLE: return seq_equal(r, a.u.list, b.u.list);
    case TV_DICT: return dict_equal(r, a.u.dict, b.u.dict, false);
    case TV_RANGE:
        return a.u.range->count == b.u.range->count &&
               (a.u.range->count == 0 || (a.u.range->start == b.u.range->start &&
                                          (a.u.range->count == 1 || a.u.range->step == b.u.range->step)));
    case TV_METHOD: return a.u.bound->method == b.u.bound->method && tv_identical(a.u.bound->self, b.u.bound->self);
    default: return tv_identical(a, b);
    }
}

static int text_order(tr *r, tv a, tv b) {
    size_t n = a.len < b.len ? a.len : b.len;
    tr_charge(r, n);
    int o = n ? memcmp(a.u.s, b.u.s, n) : 0; /* UTF-8 sorts like its code points */
    return o ? o : a.len < b.len ? -1 : a.len > b.len;
}

_Noreturn static void fail_order(tr *r, tv a, tv b, const char *op) {
    if (a.kind == TV_UNDEF) tr_fail_undef(r, a);
    if (b.kind == TV_UNDEF) tr_fail_undef(r, b);
    tr_fail(r, "'%s' not supported between instances of '%s' and '%s'", op, tv_type_name(a), tv_type_name(b));
}

/* op: "<", "<=", ">", ">=" */
static bool ordered(tr *r, tv a, tv b, const char *op) {
    bool less = op[0] == '<', or_equal = op[1] == '=';
    int  o;
    tr_step(r);
    if (tv_is_num(a) && tv_is_num(b)) {
        o = number_order(a, b);
        if (o == 2) return false;
    } else if (a.kind == TV_STR && b.kind == TV_STR) {
        o = text_order(r, a, b);
    } else if (tv_is_seq(a) && a.kind == b.kind) {
        const tv_list *x = a.u.list, *y = b.u.list;
        size_t         n = x->count < y->count ? x->count : y->count, i = 0;
        tr_enter(r);
        while (i < n && (tv_identical(x->items[i], y->items[i]) || tv_equal(r, x->items[i], y->items[i]))) i++;
        bool result;
        if (i < n)
            result = ordered(r, x->items[i], y->items[i], op);
        else
            result = x->count == y->count ? or_equal : less == (x->count < y->count);
        tr_leave(r);
        return result;
    } else {
        fail_order(r, a, b, op);
    }
    return o == 0 ? or_equal : less == (o < 0);
}

bool tv_less(tr *r, tv a, tv b, const char *op) { return ordered(r, a, b, op); }

bool tv_compare(tr *r, int op, tv a, tv b) {
    switch (op) {
    case TOK_EQ: return tv_equal(r, a, b);
    case TOK_NE: return !tv_equal(r, a, b);
    case TOK_LT: return ordered(r, a, b, "<");
    case TOK_LE: return ordered(r, a, b, "<=");
    case TOK_GT: return ordered(r, a, b, ">");
    case TOK_GE: return ordered(r, a, b, ">=");
    case OP_IN: return tv_contains(r, a, b);
    default: return !tv_contains(r, a, b);
    }
}

bool tv_contains(tr *r, tv item, tv in) {
    switch ((tv_kind)in.kind) {
    case TV_STR:
        if (item.kind != TV_STR)
            tr_fail(r, "'in <string>' requires string as left operand, not %s", tv_type_name(item));
        tr_charge(r, in.len);
        return item.len == 0 || memmem(in.u.s, in.len, item.u.s, item.len) != NULL;
    case TV_DICT: return tv_dict_find(r, in.u.dict, item) != NULL;
    case TV_VIEW:
        if (in.sub == TV_KEYS) return tv_dict_find(r, in.u.dict, item) != NULL;
        break;
    case TV_UNDEF: return false;
    default: break;
    }
    if (!tv_iterable(in)) tr_fail(r, "argument of type '%s' is not iterable", tv_type_name(in));
    if (in.kind == TV_ITER) { /* stops behind the match, as a generator does */
        tv_iter *it = in.u.iter;
        if (!it->items) it->items = it->make(r, it);
        while (it->next < it->items->count) {
            tv x = it->items->items[it->next++];
            if (tv_identical(x, item) || tv_equal(r, x, item)) return true;
        }
        return false;
    }
    tv_list l = tv_items(r, in);
    for (size_t i = 0; i < l.count; i++) {
        if (tv_identical(l.items[i], item) || tv_equal(r, l.items[i], item)) return true;
    }
    return false;
}

/* --- iteration --- */

bool tv_iterable(tv v) {
    return v.kind == TV_STR || tv_is_seq(v) || v.kind == TV_DICT || v.kind == TV_VIEW || v.kind == TV_RANGE ||
           v.kind == TV_ITER || v.kind == TV_UNDEF;
}

static tv_list list_of(tr *r, size_t count) {
    r->steps += count;
    if (r->steps > r->step_limit) tr_fail_limit(r, "step");
    return (tv_list){ tr_alloc_array(r, count, sizeof(tv)), count };
}

tv_list tv_items(tr *r, tv v) {
    static tv nothing; /* so that the items of an empty list have an address, too */
    tv_list   l = { &nothing, 0 };
    size_t    i = 0;
    switch ((tv_kind)v.kind) {
    case TV_LIST:
    case TV_TUPLE: return *v.u.list; /* immutable: no copy needed */
    case TV_STR:
        l = list_of(r, tv_chars(r, v));
        for (size_t pos = 0; pos < v.len; i++) {
            size_t from = pos;
            uc_next(v.u.s, v.len, &pos);
            l.items[i] = (tv){ .kind = TV_STR, .len = (uint32_t)(pos - from), .u.s = v.u.s + from };
            if (pos - from == 1) l.items[i].flags |= TV_ASCII;
        }
        return l;
    case TV_DICT:
    case TV_VIEW:
        l = list_of(r, v.u.dict->count);
        for (; i < l.count; i++) {
            const tv_entry *x = &v.u.dict->entries[i];
            l.items[i] = v.kind == TV_DICT || v.sub == TV_KEYS ? x->key
                         : v.sub == TV_VALUES                  ? x->value
                                                               : tv_tuple2(r, x->key, x->value);
        }
        return l;
    case TV_RANGE:
        l = list_of(r, v.u.range->count);
        for (; i < l.count; i++) l.items[i] = tv_int(v.u.range->start + (int64_t)i * v.u.range->step);
        return l;
    case TV_ITER:
        if (!v.u.iter->items) v.u.iter->items = v.u.iter->make(r, v.u.iter);
        l = (tv_list){ v.u.iter->items->items + v.u.iter->next, v.u.iter->items->count - v.u.iter->next };
        v.u.iter->next = v.u.iter->items->count;
        return l;
    case TV_UNDEF: return l;
    default: tr_fail(r, "'%s' object is not iterable", tv_type_name(v));
    }
}
