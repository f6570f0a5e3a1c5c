/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of a rendering and the runtime that owns them.
 *
 * A value is 16 bytes, copied freely; what it points to lives in the rendering's arena (or in the template's, for
 * constants) and is immutable, except namespaces, iterators, loops, cyclers and joiners. Strings are UTF-8 with
 * Python's semantics by code point. Integers are 64 bits inline and 128 bits behind a pointer (TV_BIG, only when they
 * do not fit); beyond that an error, where Python would go on.
 *
 * A failure anywhere below jumps back to tmpl_render (tr_fail): everything allocated lies in the arena, so nothing
 * leaks, and several hundred small functions need no error path. Text is built at the tail of the output buffer between
 * tr_mark and tr_take, which nest like a stack.
 */
#ifndef TEMPLATE_VALUE_H
#define TEMPLATE_VALUE_H

#include "base/arena.h"
#include "base/str.h"
#include "template/template.h"

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef __int128 tv_wide;

typedef enum tv_kind {
    TV_MISSING, /* no value yet: an unset slot, an argument that was not given */
    TV_UNDEF,
    TV_NONE,
    TV_BOOL,
    TV_INT,
    TV_BIG,
    TV_FLOAT,
    TV_STR,
    TV_LIST,
    TV_TUPLE,
    TV_DICT,
    TV_VIEW, /* dict.keys(), values(), items(): sub */
    TV_RANGE,
    TV_ITER, /* a generator: consumed once */
    TV_NAMESPACE,
    TV_MACRO,
    TV_LOOP,
    TV_CYCLER,
    TV_JOINER,
    TV_METHOD, /* bound method of a built-in type */
    TV_FUNC,   /* global function: sub */
} tv_kind;

enum { TV_SAFE = 1, TV_ASCII = 2, TV_GROUP = 4 }; /* flags: Markup; known ASCII; a groupby tuple */
enum { TV_KEYS, TV_VALUES, TV_ITEMS };

typedef struct tv      tv;
typedef struct tv_dict tv_dict;
typedef struct tr      tr;
typedef struct node    node;

typedef struct tv_list {
    tv    *items;
    size_t count;
} tv_list;

typedef struct tv_range {
    int64_t start, stop, step;
    size_t  count;
} tv_range;

typedef struct tv_undef  tv_undef;
typedef struct tv_iter   tv_iter;
typedef struct tv_macro  tv_macro;
typedef struct tv_loop   tv_loop;
typedef struct tv_bound  tv_bound;
typedef struct tv_cycler tv_cycler;

struct tv {
    uint8_t  kind, flags;
    uint16_t sub;
    uint32_t len; /* TV_STR: bytes */
    union {
        bool            b;
        int64_t         i;
        double          f;
        const tv_wide  *big;
        const char     *s;
        tv_list        *list; /* LIST, TUPLE */
        tv_dict        *dict; /* DICT, VIEW, NAMESPACE */
        tv_range       *range;
        const tv_undef *undef;
        tv_iter        *iter;
        tv_macro       *macro;
        tv_loop        *loop;
        tv_cycler      *cycler; /* CYCLER, JOINER */
        tv_bound       *bound;
    } u;
};

struct tv_undef {
    const char *hint; /* the whole message, or NULL */
    bool        has_owner;
    const char *owner; /* type name of the object without that attribute */
    tv          name;
};

typedef struct tv_entry {
    tv       key, value;
    uint64_t hash;
} tv_entry;

struct tv_dict {
    tv_entry *entries; /* in insertion order */
    size_t    count, cap;
    uint32_t *index; /* open addressing over entries + 1; NULL while small */
    size_t    index_cap;
};

/* Arguments of a call. */
typedef struct tv_args {
    tv    *pos;
    size_t n_pos;
    view  *kw_names;
    tv    *kw;
    size_t n_kw;
} tv_args;

/* A generator that fills itself at its first use: make() gives the list. */
struct tv_iter {
    const tv_list *items; /* NULL: not made yet */
    size_t         next;
    tv_list *(*make)(tr *r, tv_iter *it);
    tv          source;
    tv_args     args;
    int         mode;
    const char *type_name;
};

struct tv_cycler {
    tv_list items;
    size_t  pos;
    tv      sep;
    bool    used;
};

typedef struct tv_method tv_method;
struct tv_bound {
    tv               self;
    const tv_method *method;
    const char      *name;
};

typedef struct frame {
    struct frame *parent;
    tv            slots[];
} frame;

struct tv_macro {
    const node *def;
    frame      *env;
    const char *name; /* NULL: anonymous */
    uint32_t    name_len;
};

/* A loop under way. Items that an `if` behind the iterable must pass are tested only when they are needed, because the
 * body may change what the test sees. */
struct tv_loop {
    tv_list     source;
    size_t      source_pos; /* tested so far */
    tv         *items;      /* those that passed */
    size_t      count;
    size_t      index0;
    int         depth0;
    const node *def;
    frame      *env;  /* around the loop */
    frame      *test; /* of the test, or NULL */
    tv          changed;
    bool        has_changed;
};

struct tr {
    const tmpl *t;
    arena       mem;
    str         out;
    size_t      steps, step_limit;
    int         depth, depth_limit;
    bool        nomem; /* it fails because memory is out, not for a limit of its own */
    int         line;
    tv_dict    *vars;
    frame      *root;
    tmpl_clock  now;
    uint64_t    seed;
    tv          captured; /* what a filter block or set block filters */
    jmp_buf     fail;
    tmpl_fault *fault;
};

/* --- runtime (runtime.c) --- */
_Noreturn void     tr_fail(tr *r, const char *fmt, ...) BASE_PRINTF(2, 3);
_Noreturn void     tr_fail_kind(tr *r, tmpl_fault_kind kind, const char *text, size_t bytes);
_Noreturn void     tr_fail_limit(tr *r, const char *what);
_Noreturn void     tr_fail_undef(tr *r, tv u);
void              *tr_alloc(tr *r, size_t bytes);
void              *tr_alloc_array(tr *r, size_t count, size_t bytes);
static inline void tr_step(tr *r) {
    if (++r->steps > r->step_limit) tr_fail_limit(r, "step");
}
static inline void tr_charge(tr *r, size_t bytes) {
    r->steps += bytes >> 4;
    if (r->steps > r->step_limit) tr_fail_limit(r, "step");
}
static inline void tr_enter(tr *r) {
    tr_step(r);
    if (++r->depth > r->depth_limit) tr_fail_limit(r, "depth");
}
static inline void tr_leave(tr *r) { r->depth--; }

size_t tr_mark(tr *r);
tv     tr_take(tr *r, size_t mark); /* the text since mark as a string, removed from the buffer */
void   tr_put(tr *r, const char *s, size_t n);
void   tr_put_c(tr *r, const char *s);
void   tr_put_char(tr *r, char c, size_t times);
void   tr_put_cp(tr *r, unsigned cp);

/* --- values (value.c) --- */
static inline tv   tv_none(void) { return (tv){ .kind = TV_NONE }; }
static inline tv   tv_missing(void) { return (tv){ .kind = TV_MISSING }; }
static inline tv   tv_bool(bool b) { return (tv){ .kind = TV_BOOL, .u.b = b }; }
static inline tv   tv_int(int64_t i) { return (tv){ .kind = TV_INT, .u.i = i }; }
static inline tv   tv_float(double f) { return (tv){ .kind = TV_FLOAT, .u.f = f }; }
static inline bool tv_given(tv v) { return v.kind != TV_MISSING; }
static inline bool tv_is_int(tv v) { return v.kind == TV_INT || v.kind == TV_BIG || v.kind == TV_BOOL; }
static inline bool tv_is_num(tv v) { return tv_is_int(v) || v.kind == TV_FLOAT; }
static inline bool tv_is_seq(tv v) { return v.kind == TV_LIST || v.kind == TV_TUPLE; }
static inline view tv_view(tv v) { return (view){ v.u.s, v.len }; }

tv          tv_wide_of(tr *r, tv_wide w);
tv_wide     tv_wide_get(tv v);                      /* of an integer */
double      tv_double(tr *r, tv v);                 /* of a number; Python's OverflowError where it does not fit */
tv          tv_str(tr *r, const char *s, size_t n); /* borrows s, which must live in an arena */
tv          tv_str_copy(tr *r, const char *s, size_t n);
tv          tv_str_c(const char *s);          /* borrows a constant, ASCII */
tv          tv_list_new(tr *r, size_t count); /* items are none */
tv          tv_tuple2(tr *r, tv a, tv b);
tv          tv_undef_name(tr *r, view name);
tv          tv_undef_hint(tr *r, const char *fmt, ...) BASE_PRINTF(2, 3);
tv          tv_undef_attr(tr *r, tv owner, tv name);
const char *tv_type_name(tv v);

tv_dict *tv_dict_new(tr *r, size_t expected);
void     tv_dict_put(tr *r, tv_dict *d, tv key, tv value); /* fails on unhashable keys */
tv      *tv_dict_find(tr *r, const tv_dict *d, tv key);
tv      *tv_dict_find_str(tr *r, const tv_dict *d, view key);
tv       tv_of_dict(tv_dict *d);
bool     tv_hashable(tv v);

bool   tv_truth(tr *r, tv v);
bool   tv_equal(tr *r, tv a, tv b);
bool   tv_identical(tv a, tv b);
bool   tv_less(tr *r, tv a, tv b, const char *op); /* a < b; op names the operator in errors */
bool   tv_compare(tr *r, int op, tv a, tv b);      /* tok_kind of a comparison, OP_IN, OP_NOT_IN */
bool   tv_contains(tr *r, tv item, tv container);
tv     tv_binary(tr *r, int op, tv a, tv b);
tv     tv_negate(tr *r, tv a);
tv     tv_positive(tr *r, tv a);
size_t tv_length(tr *r, tv v); /* len(); fails where Python does */

/* Iteration: a copy of the items; strings by code point, dicts by key, generators are consumed. */
bool    tv_iterable(tv v);
tv_list tv_items(tr *r, tv v);

/* --- text (text.c) --- */
void   tv_put_str(tr *r, tv v);  /* str(v) */
void   tv_put_repr(tr *r, tv v); /* repr(v) */
tv     tv_to_str(tr *r, tv v);   /* a string as it is, anything else as str(v) */
tv     tv_repr(tr *r, tv v);
size_t tv_float_repr(char out[40], double f);
size_t tv_wide_print(char out[48], tv_wide w, unsigned base, bool upper);
void tv_put_json(tr *r, tv v, bool ascii, const char *indent, size_t indent_len, view item_sep, view key_sep, bool sort,
                 int level);
bool tv_parse_int(tr *r, view s, int base, tv *out);
bool tv_parse_float(view s, double *out);
tv   tv_escape(tr *r, tv v); /* HTML; safe strings stay */

/* --- attributes, items, calls --- */
tv   tv_getattr(tr *r, tv obj, view name);
tv   tv_getitem(tr *r, tv obj, tv key);
tv   tv_slice(tr *r, tv obj, tv start, tv stop, tv step);
tv   tv_call(tr *r, tv callee, const tv_args *args);
bool tv_callable(tv v);
bool tv_has_attr(tr *r, tv obj, view name, tv *out); /* the Python attribute alone, no item */

/* Binds positional and keyword arguments to n named parameters; out[i] stays MISSING where none was given. */
void    tv_bind(tr *r, const char *what, const tv_args *args, const char *const *names, int n, int required, tv *out);
int64_t tv_index_arg(tr *r, tv v, const char *what); /* an integer argument that fits 64 bits */
view    tv_str_arg(tr *r, tv v, const char *what);

/* --- code points (unicode.c) --- */
bool     uc_is_space(unsigned cp);
bool     uc_is_printable(unsigned cp);
bool     uc_is_alpha(unsigned cp);
bool     uc_is_decimal(unsigned cp);
bool     uc_is_digit(unsigned cp);
bool     uc_is_numeric(unsigned cp);
bool     uc_is_word(unsigned cp);
bool     uc_is_upper(unsigned cp);
bool     uc_is_lower(unsigned cp);
bool     uc_is_cased(unsigned cp);
bool     uc_is_id_start(unsigned cp);
bool     uc_is_id_continue(unsigned cp);
int      uc_upper(unsigned cp, unsigned out[3]);
int      uc_lower(unsigned cp, unsigned out[3]);
int      uc_title(unsigned cp, unsigned out[3]);
int      uc_fold(unsigned cp, unsigned out[3]);
unsigned uc_next(const char *s, size_t n, size_t *pos); /* invalid bytes give U+FFFD */
size_t   uc_prev(const char *s, size_t pos);            /* start of the code point before pos */
size_t   uc_count(view s);
bool     uc_ascii(const char *s, size_t n);
size_t   uc_offset(view s, size_t index); /* byte offset of code point index (clamped to the end) */
size_t   tv_chars(tr *r, tv s);           /* length in code points */

/* --- strings (strings.c) --- */
typedef enum uc_case { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITALIZE, CASE_SWAP, CASE_FOLD } uc_case;
const char *tv_search(const char *s, size_t n, view x); /* first x in s, or NULL; linear */
tv          tv_case(tr *r, tv s, uc_case how);
tv          tv_strip(tr *r, tv s, tv chars, int sides);  /* 1: left, 2: right */
tv          tv_sub(tr *r, tv s, size_t from, size_t to); /* bytes */
tv          tv_replace(tr *r, tv s, view old, view neu, int64_t count);
tv          tv_splitlines(tr *r, tv s, bool keep);
tv          tv_pad(tr *r, tv s, int64_t width, view fill, int align); /* align: -1 left, 0 center, 1 right */
bool        tv_is_case(tv s, bool upper);                             /* isupper, islower */
tv          tv_split(tr *r, tv s, tv sep, int64_t max, bool from_right);

/* --- formats (format.c, format_spec.c) --- */
tv tv_percent(tr *r, tv fmt, tv args);                            /* fmt % args */
tv tv_str_format(tr *r, tv fmt, const tv_args *args, tv mapping); /* str.format */

/* --- built-ins --- */
typedef struct tv_filter {
    const char *name;
    tv (*fn)(tr *r, tv on, const tv *argv, const tv_args *raw);
    const char *params[6]; /* empty for filters that take raw arguments */
    int         required;
    bool        raw;
} tv_filter;
typedef struct tv_test {
    const char *name;
    bool (*fn)(tr *r, tv on, const tv *argv);
    const char *param; /* NULL: none */
} tv_test;
const tv_filter       *tv_filter_find(view name);
const tv_test         *tv_test_find(view name);
tv                     tv_filter_apply(tr *r, const tv_filter *f, tv on, const tv_args *args);
bool                   tv_test_apply(tr *r, const tv_test *t, tv on, const tv_args *args);
extern const tv_filter tv_filters_text[], tv_filters_list[]; /* end with a NULL name */

struct tv_method {
    const char *name;
    tv (*fn)(tr *r, tv self, const tv *argv, const tv_args *raw);
    const char *params[3];
    int         max, required;
    bool        keywords, raw;
};
extern const tv_method tv_methods_str[], tv_methods_list[], tv_methods_tuple[], tv_methods_dict[], tv_methods_num[],
    tv_methods_other[];
tv tv_global(tr *r, view name); /* a global function or MISSING */
tv tv_call_global(tr *r, int which, const tv_args *args);

/* --- evaluation (eval.c) --- */
tv   tr_call_macro(tr *r, tv_macro *m, const tv_args *args, tv caller);
tv   tr_call_loop(tr *r, tv_loop *l, tv iterable);
void tr_loop_fill(tr *r, tv_loop *l, size_t wanted); /* tests until `wanted` items passed or none are left */
void tr_run(tr *r);

#endif
