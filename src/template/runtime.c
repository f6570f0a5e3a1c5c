/* SPDX-License-Identifier: Apache-2.0 */
/* One rendering from outside: limits, failure, text buffer, conversion of the variables. */
#include "template/ast.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tmpl_fault_init(tmpl_fault *f) {
    f->kind = TMPL_FAULT_NONE;
    f->line = 0;
    str_init(&f->message);
}

void tmpl_fault_deinit(tmpl_fault *f) { str_deinit(&f->message); }

_Noreturn void tr_fail_kind(tr *r, tmpl_fault_kind kind, const char *text, size_t bytes) {
    r->fault->kind = kind;
    r->fault->line = r->line;
    str_clear(&r->fault->message);
    str_append(&r->fault->message, text, bytes);
    longjmp(r->fail, 1);
}

_Noreturn void tr_fail(tr *r, const char *fmt, ...) {
    char    text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    tr_fail_kind(r, TMPL_FAULT_RUNTIME, text, strlen(text));
}

_Noreturn void tr_fail_limit(tr *r, const char *what) {
    char text[80];
    snprintf(text, sizeof text, "the %s limit of the rendering was reached", what);
    tr_fail_kind(r, TMPL_FAULT_LIMIT, text, strlen(text));
}

_Noreturn static void fail_nomem(tr *r) {
    r->nomem = true;
    tr_fail_kind(r, TMPL_FAULT_LIMIT, "out of memory", 13);
}

/* After a failed append to r->out. */
_Noreturn static void fail_output(tr *r) {
    if (r->out.failed && !r->out.at_limit) fail_nomem(r);
    tr_fail_limit(r, "output");
}

_Noreturn void tr_fail_undef(tr *r, tv u) {
    const tv_undef *d = u.u.undef;
    if (!d || d->hint) tr_fail(r, "%s", d ? d->hint : "undefined value");
    size_t mark = tr_mark(r);
    if (d->has_owner) {
        tr_put_c(r, d->name.kind == TV_STR ? "'" : "");
        tr_put_c(r, d->owner);
        tr_put_c(r, d->name.kind == TV_STR ? "' has no attribute " : " has no element ");
        tv_put_repr(r, d->name);
    } else {
        tv_put_repr(r, d->name);
        tr_put_c(r, " is undefined");
    }
    tv text = tr_take(r, mark);
    tr_fail(r, "%.*s", (int)(text.len < 300 ? text.len : 300), text.u.s);
}

void *tr_alloc(tr *r, size_t bytes) {
    void *m = arena_alloc(&r->mem, bytes ? bytes : 1);
    if (!m && !r->mem.at_limit) fail_nomem(r);
    if (!m) tr_fail_limit(r, "memory");
    return m;
}

void *tr_alloc_array(tr *r, size_t count, size_t bytes) {
    size_t total;
    if (__builtin_mul_overflow(count, bytes, &total)) tr_fail_limit(r, "memory");
    return tr_alloc(r, total);
}

size_t tr_mark(tr *r) { return r->out.len; }

tv tr_take(tr *r, size_t mark) {
    if (r->out.failed) fail_output(r);
    size_t n = r->out.len - mark;
    char  *copy = tr_alloc(r, n + 1);
    if (n) memcpy(copy, r->out.data + mark, n);
    copy[n] = '\0';
    r->out.len = mark;
    return tv_str(r, copy, n);
}

void tr_put(tr *r, const char *s, size_t n) {
    str_append(&r->out, s, n);
    if (r->out.failed) fail_output(r);
}

void tr_put_c(tr *r, const char *s) { tr_put(r, s, strlen(s)); }

void tr_put_char(tr *r, char c, size_t times) {
    if (times > r->out.limit) tr_fail_limit(r, "output");
    if (!str_reserve(&r->out, times)) fail_output(r);
    for (size_t i = 0; i < times; i++) str_push(&r->out, c);
}

void tr_put_cp(tr *r, unsigned cp) {
    str_put_utf8(&r->out, cp);
    if (r->out.failed) fail_output(r);
}

static tv tv_from_json(tr *r, const json_value *j) {
    tv v;
    switch (j->kind) {
    case JSON_K_NULL: return tv_none();
    case JSON_K_BOOL: return tv_bool(j->u.boolean);
    case JSON_K_INT: return tv_int(j->u.integer);
    case JSON_K_REAL: return tv_float(j->u.real);
    case JSON_K_STRING: return tv_str(r, j->u.string.data, j->u.string.len);
    case JSON_K_ARRAY:
        v = tv_list_new(r, j->u.array.count);
        for (size_t i = 0; i < j->u.array.count; i++) v.u.list->items[i] = tv_from_json(r, &j->u.array.items[i]);
        return v;
    case JSON_K_OBJECT:
        v = tv_of_dict(tv_dict_new(r, j->u.object.count));
        for (size_t i = 0; i < j->u.object.count; i++) {
            const json_member *m = &j->u.object.members[i];
            tv_dict_put(r, v.u.dict, tv_str(r, m->key.data, m->key.len), tv_from_json(r, &m->value));
        }
        return v;
    }
    return tv_none();
}

static size_t or_default(size_t given, size_t dflt) { return given ? given : dflt; }

static int fail_code(const tmpl_fault *f) { return f->kind == TMPL_FAULT_LIMIT ? ERR_LIMIT : ERR_ARG; }

/* The part between setjmp and its return: only r, which does not change, is used after a jump. */
static int run(tr *r, const tmpl_input *in, str *out, err *e) {
    if (setjmp(r->fail))
        return r->nomem || !str_ok(&r->fault->message)
                   ? err_set_nomem(e)
                   : err_set(e, fail_code(r->fault), "line %d: %s", r->fault->line, str_cstr(&r->fault->message));
    r->vars = tv_dict_new(r, in->n_vars);
    for (size_t i = 0; i < in->n_vars; i++)
        tv_dict_put(r, r->vars, tv_str(r, in->vars[i].name.data, in->vars[i].name.len),
                    tv_from_json(r, in->vars[i].value));
    tr_run(r);
    str_append(out, str_cstr(&r->out), r->out.len);
    return out->failed ? err_set_nomem(e) : 0;
}

int tmpl_render(const tmpl *t, const tmpl_input *in, str *out, tmpl_fault *fault, err *e) {
    tmpl_fault own;
    tr        *r = calloc(1, sizeof *r);
    if (!r) return err_set_nomem(e);
    tmpl_fault_init(&own);
    r->t = t;
    r->fault = fault ? fault : &own;
    r->fault->kind = TMPL_FAULT_NONE;
    r->now = in->now;
    r->step_limit = or_default(in->limits.steps, (size_t)50 * 1000 * 1000);
    r->depth_limit = (int)or_default(in->limits.depth, 2400);
    r->line = 1;
    r->seed = (uint64_t)(uintptr_t)r * 0x9E3779B97F4A7C15u; /* hostile keys cannot be chosen to collide */
    size_t memory = or_default(in->limits.memory_bytes, (size_t)256 << 20);
    arena_init(&r->mem, memory < UINT32_MAX ? memory : UINT32_MAX - 1); /* string lengths have 32 bits */
    str_init(&r->out);
    r->out.limit = or_default(in->limits.output_bytes, (size_t)64 << 20);
    int rc = run(r, in, out, e);
    str_deinit(&r->out);
    arena_deinit(&r->mem);
    tmpl_fault_deinit(&own);
    free(r);
    return rc;
}

int tmpl_clock_parse(tmpl_clock *out, const char *text, err *e) {
    tmpl_clock c = { 0 };
    int        used = 0, more = 0;
    char       sep = 0;
    if (sscanf(text, "%4d-%2d-%2d%n", &c.year, &c.month, &c.day, &used) == 3 && used > 0 && text[used] != '\0') {
        if (sscanf(text + used, "%c%2d:%2d:%2d%n", &sep, &c.hour, &c.minute, &c.second, &more) != 4 ||
            (sep != 'T' && sep != ' '))
            used = 0;
        else
            used += more;
    }
    static const int days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
    bool             leap = c.year % 4 == 0 && (c.year % 100 != 0 || c.year % 400 == 0);
    if (used == 0 || text[used] != '\0' || c.year < 1 || c.month < 1 || c.month > 12 || c.day < 1 ||
        c.day > days[c.month - 1] + (leap && c.month == 2) || c.hour < 0 || c.hour > 23 || c.minute < 0 ||
        c.minute > 59 || c.second < 0 || c.second > 59)
        return err_set(e, ERR_ARG, "'%s' is not a time of the form 2026-01-02T15:04:05", text);
    *out = c;
    return 0;
}
