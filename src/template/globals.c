/* SPDX-License-Identifier: Apache-2.0 */
/* Global functions: range, dict, namespace, cycler, joiner, raise_exception and strftime_now. */
#include "template/value.h"

#include <stdio.h>
#include <string.h>

enum { MAX_RANGE = 100000 }; /* the reference's sandbox has the same limit */

typedef enum global { G_RANGE, G_DICT, G_NAMESPACE, G_CYCLER, G_JOINER, G_RAISE, G_STRFTIME, G_LIPSUM } global;

static const char *const NAMES[] = { "range",           "dict",         "namespace", "cycler", "joiner",
                                     "raise_exception", "strftime_now", "lipsum" };

tv tv_global(tr *r, view name) {
    (void)r;
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        if (view_eq_c(name, NAMES[i])) return (tv){ .kind = TV_FUNC, .sub = (uint16_t)i };
    }
    return tv_missing();
}

static tv make_range(tr *r, const tv_args *args) {
    tv a[3];
    if (args->n_kw || args->n_pos < 1 || args->n_pos > 3) tr_fail(r, "range expected 1 to 3 arguments");
    for (size_t i = 0; i < args->n_pos; i++) a[i] = args->pos[i];
    int64_t start = args->n_pos > 1 ? tv_index_arg(r, a[0], "range") : 0;
    int64_t stop = tv_index_arg(r, args->n_pos > 1 ? a[1] : a[0], "range");
    int64_t step = args->n_pos > 2 ? tv_index_arg(r, a[2], "range") : 1;
    if (step == 0) tr_fail(r, "range() arg 3 must not be zero");
    tv_wide span = step > 0 ? (tv_wide)stop - start : (tv_wide)start - stop,
            stride = step > 0 ? (tv_wide)step : -(tv_wide)step;
    tv_wide count = span > 0 ? (span - 1) / stride + 1 : 0;
    if (count > MAX_RANGE)
        tr_fail(r, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", MAX_RANGE);
    tv_range *g = tr_alloc(r, sizeof *g);
    *g = (tv_range){ start, stop, step, (size_t)count };
    return (tv){ .kind = TV_RANGE, .u.range = g };
}

static tv_dict *make_dict(tr *r, const tv_args *args) {
    tv_dict *d = tv_dict_new(r, args->n_kw);
    if (args->n_pos > 1) tr_fail(r, "dict expected at most 1 argument, got %zu", args->n_pos);
    if (args->n_pos) {
        tv from = args->pos[0];
        if (from.kind == TV_DICT) {
            for (size_t i = 0; i < from.u.dict->count; i++)
                tv_dict_put(r, d, from.u.dict->entries[i].key, from.u.dict->entries[i].value);
        } else {
            if (from.kind == TV_UNDEF) tr_fail_undef(r, from);
            tv_list l = tv_items(r, from);
            for (size_t i = 0; i < l.count; i++) {
                tv_list pair = tv_items(r, l.items[i]);
                if (pair.count != 2)
                    tr_fail(r, "dictionary update sequence element #%zu has length %zu; 2 is required", i, pair.count);
                tv_dict_put(r, d, pair.items[0], pair.items[1]);
            }
        }
    }
    for (size_t i = 0; i < args->n_kw; i++)
        tv_dict_put(r, d, tv_str(r, args->kw_names[i].data, args->kw_names[i].len), args->kw[i]);
    return d;
}

static tv make_cycler(tr *r, const tv_args *args) {
    if (args->n_kw) tr_fail(r, "cycler takes no keyword arguments");
    if (!args->n_pos) tr_fail(r, "at least one item has to be provided");
    tv_cycler *c = tr_alloc(r, sizeof *c);
    *c = (tv_cycler){ .items = { args->pos, args->n_pos } };
    return (tv){ .kind = TV_CYCLER, .u.cycler = c };
}

static tv make_joiner(tr *r, const tv_args *args) {
    static const char *const names[] = { "sep" };
    tv                       sep;
    tv_bind(r, "joiner", args, names, 1, 0, &sep);
    tv_cycler *c = tr_alloc(r, sizeof *c);
    *c = (tv_cycler){ .sep = tv_given(sep) ? sep : tv_str_c(", ") };
    return (tv){ .kind = TV_JOINER, .u.cycler = c };
}

/* --- the clock --- */

static const char *const DAYS[] = { "Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday" };
static const char *const MONTHS[] = { "January", "February", "March",     "April",   "May",      "June",
                                      "July",    "August",   "September", "October", "November", "December" };

static bool leap(int year) { return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0); }

static int day_of_year(const tmpl_clock *c) {
    static const int before[] = { 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334 };
    return before[c->month - 1] + c->day + (c->month > 2 && leap(c->year));
}

/* 0 is Sunday. */
static int week_day(const tmpl_clock *c) {
    long y = c->year - 1;
    return (int)((y * 365 + y / 4 - y / 100 + y / 400 + day_of_year(c)) % 7);
}

static int iso_weeks(int year) { /* a year has 53 weeks when it begins on a Thursday, or on a Wednesday and is leap */
    int first = week_day(&(tmpl_clock){ .year = year, .month = 1, .day = 1 });
    return first == 4 || (first == 3 && leap(year)) ? 53 : 52;
}

static void iso_week(const tmpl_clock *c, int *year, int *week) {
    int wd = (week_day(c) + 6) % 7; /* Monday is 0 */
    *year = c->year;
    *week = (day_of_year(c) - wd + 9) / 7;
    if (*week < 1)
        *week = iso_weeks(--*year);
    else if (*week > iso_weeks(*year)) {
        ++*year;
        *week = 1;
    }
}

typedef struct spec {
    char flag; /* - no padding, _ blanks, 0 zeros, ^ upper case, or 0 */
} spec;

static void put_num(tr *r, const spec *s, int value, int width, char pad) {
    char text[32];
    if (s->flag == '-')
        snprintf(text, sizeof text, "%d", value);
    else if (s->flag == '_' || (pad == ' ' && s->flag != '0'))
        snprintf(text, sizeof text, "%*d", width, value);
    else
        snprintf(text, sizeof text, "%0*d", width, value);
    tr_put_c(r, text);
}

static void put_name(tr *r, const spec *s, const char *name, size_t n) {
    for (size_t i = 0; i < n && name[i]; i++) {
        char c = name[i];
        if (s->flag == '^' && c >= 'a' && c <= 'z') c = (char)(c - 32);
        tr_put(r, &c, 1);
    }
}

static void put_fields(tr *r, const char *codes);

static bool put_field(tr *r, const spec *s, char code) {
    const tmpl_clock *c = &r->now;
    int               wd = week_day(c), yd = day_of_year(c), hour12 = c->hour % 12 ? c->hour % 12 : 12, year, week;
    switch (code) {
    case 'Y': put_num(r, s, c->year, 1, '0'); return true;
    case 'C': put_num(r, s, c->year / 100, 2, '0'); return true;
    case 'y': put_num(r, s, c->year % 100, 2, '0'); return true;
    case 'm': put_num(r, s, c->month, 2, '0'); return true;
    case 'd': put_num(r, s, c->day, 2, '0'); return true;
    case 'e': put_num(r, s, c->day, 2, ' '); return true;
    case 'H': put_num(r, s, c->hour, 2, '0'); return true;
    case 'k': put_num(r, s, c->hour, 2, ' '); return true;
    case 'I': put_num(r, s, hour12, 2, '0'); return true;
    case 'l': put_num(r, s, hour12, 2, ' '); return true;
    case 'M': put_num(r, s, c->minute, 2, '0'); return true;
    case 'S': put_num(r, s, c->second, 2, '0'); return true;
    case 'f': put_num(r, s, 0, 6, '0'); return true;
    case 'j': put_num(r, s, yd, 3, '0'); return true;
    case 'u': put_num(r, s, wd ? wd : 7, 1, '0'); return true;
    case 'w': put_num(r, s, wd, 1, '0'); return true;
    case 'U': put_num(r, s, (yd + 6 - wd) / 7, 2, '0'); return true;
    case 'W': put_num(r, s, (yd + 6 - (wd + 6) % 7) / 7, 2, '0'); return true;
    case 'V':
    case 'G':
    case 'g':
        iso_week(c, &year, &week);
        if (code == 'V')
            put_num(r, s, week, 2, '0');
        else if (code == 'G')
            put_num(r, s, year, 4, '0');
        else
            put_num(r, s, year % 100, 2, '0');
        return true;
    case 'A': put_name(r, s, DAYS[wd], 20); return true;
    case 'a': put_name(r, s, DAYS[wd], 3); return true;
    case 'B': put_name(r, s, MONTHS[c->month - 1], 20); return true;
    case 'b':
    case 'h': put_name(r, s, MONTHS[c->month - 1], 3); return true;
    case 'p': put_name(r, s, c->hour < 12 ? "AM" : "PM", 2); return true;
    case 'P': put_name(r, s, c->hour < 12 ? "am" : "pm", 2); return true;
    case 'n': tr_put_c(r, "\n"); return true;
    case 't': tr_put_c(r, "\t"); return true;
    case '%': tr_put_c(r, "%"); return true;
    case 'z':
    case 'Z': return true; /* the clock has no zone */
    case 'T':
    case 'X': put_fields(r, "H:M:S"); return true;
    case 'R': put_fields(r, "H:M"); return true;
    case 'r': put_fields(r, "I:M:S p"); return true;
    case 'D':
    case 'x': put_fields(r, "m/d/y"); return true;
    case 'F': put_fields(r, "Y-m-d"); return true;
    case 'c': put_fields(r, "a b e H:M:S Y"); return true;
    default: return false;
    }
}

static void put_fields(tr *r, const char *codes) {
    spec none = { 0 };
    for (; *codes; codes++) {
        if (strchr(":/- ", *codes))
            tr_put(r, codes, 1);
        else
            put_field(r, &none, *codes);
    }
}

static tv tv_strftime(tr *r, view fmt) {
    size_t mark = tr_mark(r);
    if (r->now.month < 1) tr_fail(r, "strftime_now: no clock was given");
    for (size_t i = 0; i < fmt.len; i++) {
        size_t start = i;
        spec   s = { 0 };
        if (fmt.data[i] != '%' || i + 1 >= fmt.len) {
            tr_put(r, fmt.data + i, 1);
            continue;
        }
        i++;
        if (strchr("-_0^#", fmt.data[i]) && fmt.data[i] && i + 1 < fmt.len) s.flag = fmt.data[i++];
        if (!put_field(r, &s, fmt.data[i])) tr_put(r, fmt.data + start, i - start + 1);
    }
    return tr_take(r, mark);
}

tv tv_call_global(tr *r, int which, const tv_args *args) {
    static const char *const message[] = { "message" }, *const format[] = { "format" };
    tv v;
    switch ((global)which) {
    case G_RANGE: return make_range(r, args);
    case G_DICT: return tv_of_dict(make_dict(r, args));
    case G_NAMESPACE: return (tv){ .kind = TV_NAMESPACE, .u.dict = make_dict(r, args) };
    case G_CYCLER: return make_cycler(r, args);
    case G_JOINER: return make_joiner(r, args);
    case G_RAISE:
        tv_bind(r, "raise_exception", args, message, 1, 1, &v);
        v = tv_to_str(r, v);
        tr_fail_kind(r, TMPL_FAULT_RAISED, v.u.s, v.len);
    case G_STRFTIME:
        tv_bind(r, "strftime_now", args, format, 1, 1, &v);
        return tv_strftime(r, tv_str_arg(r, v, "strftime_now"));
    default: tr_fail(r, "%s is not supported in chat templates", NAMES[which]);
    }
}
