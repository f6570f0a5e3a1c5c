/* SPDX-License-Identifier: Apache-2.0 */
/* Filters on text and numbers, and the look-up of all filters. */
#include "template/define.h"
#include "template/value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

FILTER_IS(f_upper, tv_case(r, tv_to_str(r, v), CASE_UPPER))
FILTER_IS(f_lower, tv_case(r, tv_to_str(r, v), CASE_LOWER))
FILTER_IS(f_capitalize, tv_case(r, tv_to_str(r, v), CASE_CAPITALIZE))
FILTER_IS(f_string, tv_to_str(r, v))
FILTER_IS(f_trim, tv_strip(r, tv_to_str(r, v), a[0], 3))
FILTER_IS(f_escape, tv_escape(r, v))

FILTER(f_forceescape) {
    UNUSED_FILTER;
    v = tv_to_str(r, v);
    v.flags &= (uint8_t)~TV_SAFE;
    return tv_escape(r, v);
}

FILTER(f_safe) {
    UNUSED_FILTER;
    v = tv_to_str(r, v);
    v.flags |= TV_SAFE;
    return v;
}

/* Words begin behind white space and - ( { [ <, unlike with str.title. */
FILTER(f_title) {
    UNUSED_FILTER;
    v = tv_to_str(r, v);
    size_t mark = tr_mark(r), start = 0;
    bool   in_word = false;
    for (size_t pos = 0; pos <= v.len;) {
        size_t   from = pos;
        unsigned cp = pos < v.len ? uc_next(v.u.s, v.len, &pos) : (pos++, ' ');
        bool     splits = uc_is_space(cp) || (cp < 0x80 && cp && strchr("-({[<", (int)cp));
        if (from < v.len && !splits && !in_word) {
            in_word = true;
            start = from;
        } else if (splits && in_word) { /* upper first character, the rest lowered as a string of its own */
            size_t   first = start;
            unsigned out[3];
            int      n = uc_upper(uc_next(v.u.s, v.len, &first), out);
            for (int i = 0; i < n; i++) tr_put_cp(r, out[i]);
            tv rest = tv_case(r, tv_sub(r, v, first, from), CASE_LOWER);
            tr_put(r, rest.u.s, rest.len);
            in_word = false;
        }
        if (splits && from < v.len) tr_put(r, v.u.s + from, pos - from);
    }
    return tr_take(r, mark);
}

FILTER(f_replace) {
    UNUSED_FILTER;
    tv s = tv_to_str(r, v), old = tv_to_str(r, a[0]), neu = tv_to_str(r, a[1]);
    s.flags &= (uint8_t)~TV_SAFE;
    int64_t count = tv_given(a[2]) && a[2].kind != TV_NONE ? tv_index_arg(r, a[2], "count") : -1;
    return tv_replace(r, s, tv_view(old), tv_view(neu), count);
}

FILTER_IS(f_center, tv_pad(r, tv_to_str(r, v), tv_given(a[0]) ? tv_index_arg(r, a[0], "width") : 80, view_of(" "), 0))

FILTER(f_indent) {
    UNUSED_FILTER;
    if (v.kind == TV_UNDEF) tr_fail_undef(r, v);
    tv_str_arg(r, v, "indent");
    tv by = tv_str_c("    ");
    if (tv_given(a[0]))
        by = a[0].kind == TV_STR ? a[0] : tv_pad(r, tv_str_c(""), tv_index_arg(r, a[0], "indent"), view_of(" "), -1);
    bool   first = template_flag(r, a[1]), blank = template_flag(r, a[2]);
    size_t mark = tr_mark(r);
    tr_put(r, v.u.s, v.len);
    tr_put_c(r, "\n"); /* so that text ending in a newline keeps its last, empty line */
    tv_list lines = *tv_splitlines(r, tr_take(r, mark), false).u.list;
    mark = tr_mark(r);
    if (first) tr_put(r, by.u.s, by.len);
    for (size_t i = 0; i < lines.count; i++) {
        if (i) {
            tr_put_c(r, "\n");
            if (blank || lines.items[i].len) tr_put(r, by.u.s, by.len);
        }
        tr_put(r, lines.items[i].u.s, lines.items[i].len);
    }
    tv out = tr_take(r, mark);
    out.flags |= v.flags & TV_SAFE;
    return out;
}

FILTER(f_truncate) {
    UNUSED_FILTER;
    tv      end = tv_given(a[2]) ? a[2] : tv_str_c("...");
    int64_t length = tv_given(a[0]) ? tv_index_arg(r, a[0], "length") : 255;
    int64_t leeway = tv_given(a[3]) && a[3].kind != TV_NONE ? tv_index_arg(r, a[3], "leeway") : 5;
    int64_t end_len = (int64_t)tv_length(r, end);
    if (length < end_len) tr_fail(r, "expected length >= %lld, got %lld", (long long)end_len, (long long)length);
    if (leeway < 0) tr_fail(r, "expected leeway >= 0, got %lld", (long long)leeway);
    if ((tv_wide)tv_length(r, v) <= (tv_wide)length + leeway) return v;
    tv cut = tv_slice(r, v, tv_none(), tv_int(length - end_len), tv_none());
    if (cut.kind != TV_STR || end.kind != TV_STR) tr_fail(r, "truncate expects a string");
    if (!template_flag(r, a[1])) cut = tv_split(r, cut, tv_str_c(" "), 1, true).u.list->items[0];
    size_t mark = tr_mark(r);
    tr_put(r, cut.u.s, cut.len);
    tr_put(r, end.u.s, end.len);
    return tr_take(r, mark);
}

FILTER(f_wordcount) {
    UNUSED_FILTER;
    v = tv_to_str(r, v);
    int64_t n = 0;
    bool    in_word = false;
    for (size_t pos = 0; pos < v.len;) {
        bool word = uc_is_word(uc_next(v.u.s, v.len, &pos));
        n += word && !in_word;
        in_word = word;
    }
    return tv_int(n);
}

FILTER(f_format) {
    UNUSED_FILTER;
    if (raw->n_pos && raw->n_kw) tr_fail(r, "can't handle positional and keyword arguments at the same time");
    tv args = tv_list_new(r, raw->n_pos);
    args.kind = TV_TUPLE;
    if (raw->n_pos) memcpy(args.u.list->items, raw->pos, raw->n_pos * sizeof(tv));
    if (raw->n_kw) {
        tv_dict *d = tv_dict_new(r, raw->n_kw);
        for (size_t i = 0; i < raw->n_kw; i++)
            tv_dict_put(r, d, tv_str(r, raw->kw_names[i].data, raw->kw_names[i].len), raw->kw[i]);
        args = tv_of_dict(d);
    }
    return tv_percent(r, tv_to_str(r, v), args);
}

FILTER(f_striptags) {
    UNUSED_FILTER;
    v = tv_to_str(r, v);
    size_t mark = tr_mark(r);
    for (size_t i = 0; i < v.len;) { /* comments first, then tags */
        if (v.len - i >= 4 && memcmp(v.u.s + i, "<!--", 4) == 0) {
            tr_charge(r, v.len - i); /* many openings without an end */
            const char *end = memmem(v.u.s + i + 4, v.len - i - 4, "-->", 3);
            if (end) {
                i = (size_t)(end - v.u.s) + 3;
                continue;
            }
        }
        tr_put(r, v.u.s + i++, 1);
    }
    tv no_comments = tr_take(r, mark);
    mark = tr_mark(r);
    for (size_t i = 0; i < no_comments.len;) {
        if (no_comments.u.s[i] == '<') tr_charge(r, no_comments.len - i);
        const char *end =
            no_comments.u.s[i] == '<' ? memchr(no_comments.u.s + i + 1, '>', no_comments.len - i - 1) : NULL;
        if (end)
            i = (size_t)(end - no_comments.u.s) + 1;
        else
            tr_put(r, no_comments.u.s + i++, 1);
        tr_charge(r, 16);
    }
    tv_list words = *tv_split(r, tr_take(r, mark), tv_none(), -1, false).u.list;
    mark = tr_mark(r);
    static const struct {
        const char *name, *text;
    } entities[] = { { "&amp;", "&" },  { "&lt;", "<" },  { "&gt;", ">" },
                     { "&#34;", "\"" }, { "&#39;", "'" }, { "&quot;", "\"" } };
    for (size_t w = 0; w < words.count; w++) {
        if (w) tr_put_c(r, " ");
        tv x = words.items[w];
        for (size_t i = 0; i < x.len;) {
            size_t k = 0, n = sizeof entities / sizeof *entities;
            while (k < n && !(x.len - i >= strlen(entities[k].name) &&
                              memcmp(x.u.s + i, entities[k].name, strlen(entities[k].name)) == 0))
                k++;
            tr_put(r, k < n ? entities[k].text : x.u.s + i, 1);
            i += k < n ? strlen(entities[k].name) : 1;
        }
    }
    return tr_take(r, mark);
}

static void put_quoted(tr *r, tv v, bool query) {
    static const char hex[] = "0123456789ABCDEF";
    v = tv_to_str(r, v);
    for (size_t i = 0; i < v.len; i++) {
        unsigned char c = (unsigned char)v.u.s[i];
        bool          plain = (c < 0x80 && ((c | 0x20) >= 'a' && (c | 0x20) <= 'z')) || (c >= '0' && c <= '9') ||
                     (c && strchr("_.-~", c)) || (c == '/' && !query);
        if (plain) {
            tr_put(r, v.u.s + i, 1);
        } else if (query && c == ' ') {
            tr_put_c(r, "+");
        } else {
            char text[3] = { '%', hex[c >> 4], hex[c & 15] };
            tr_put(r, text, 3);
        }
    }
}

FILTER(f_urlencode) {
    UNUSED_FILTER;
    size_t mark = tr_mark(r);
    if (v.kind == TV_STR || !tv_iterable(v)) {
        put_quoted(r, v, false);
        return tr_take(r, mark);
    }
    tv_list l = tv_items(r, v.kind == TV_DICT ? (tv){ .kind = TV_VIEW, .sub = TV_ITEMS, .u.dict = v.u.dict } : v);
    for (size_t i = 0; i < l.count; i++) {
        tv_list pair = tv_items(r, l.items[i]);
        if (pair.count != 2) tr_fail(r, "urlencode expects pairs");
        if (i) tr_put_c(r, "&");
        put_quoted(r, pair.items[0], true);
        tr_put_c(r, "=");
        put_quoted(r, pair.items[1], true);
    }
    return tr_take(r, mark);
}

FILTER(f_xmlattr) {
    UNUSED_FILTER;
    if (v.kind != TV_DICT) tr_fail(r, "xmlattr expects a mapping");
    size_t mark = tr_mark(r);
    bool   any = false;
    for (size_t i = 0; i < v.u.dict->count; i++) {
        tv key = v.u.dict->entries[i].key, value = v.u.dict->entries[i].value;
        if (value.kind == TV_NONE || value.kind == TV_UNDEF) continue;
        view k = tv_str_arg(r, key, "xmlattr");
        for (size_t c = 0; c < k.len; c++) {
            if (strchr(" \t\n\r\f\v/>=", k.data[c]) && k.data[c]) tr_fail(r, "Invalid character in attribute name");
        }
        tv ek = tv_escape(r, key), ev = tv_escape(r, value);
        if (any || !tv_given(a[0]) || tv_truth(r, a[0])) tr_put_c(r, " ");
        tr_put(r, ek.u.s, ek.len);
        tr_put_c(r, "=\"");
        tr_put(r, ev.u.s, ev.len);
        tr_put_c(r, "\"");
        any = true;
    }
    return tr_take(r, mark);
}

/* int(float) without overflow: where Python's integer would not fit 128 bits, an error. */
static tv int_of_double(tr *r, double f) {
    if (fabs(f) >= 1.7e38) tr_fail(r, "integer is too large (more than 128 bits)");
    return tv_wide_of(r, (tv_wide)f);
}

FILTER(f_int) {
    UNUSED_FILTER;
    tv     dflt = tv_given(a[0]) ? a[0] : tv_int(0), out;
    double f;
    if (v.kind == TV_UNDEF) tr_fail_undef(r, v);
    if (tv_is_int(v)) return tv_positive(r, v);
    if (v.kind == TV_FLOAT) {
        if (isnan(v.u.f)) return dflt;
        if (isinf(v.u.f)) tr_fail(r, "cannot convert float infinity to integer");
        return int_of_double(r, v.u.f);
    }
    if (v.kind != TV_STR) return dflt;
    int64_t base = tv_given(a[1]) ? tv_index_arg(r, a[1], "base") : 10;
    bool    base_ok = base == 0 || (base >= 2 && base <= 36);
    if (base_ok && tv_parse_int(r, tv_view(v), (int)base, &out)) return out;
    if (!tv_parse_float(tv_view(v), &f) || !isfinite(f)) return dflt;
    return int_of_double(r, f);
}

FILTER(f_float) {
    UNUSED_FILTER;
    double f;
    if (v.kind == TV_UNDEF) tr_fail_undef(r, v);
    if (tv_is_num(v)) return tv_float(tv_double(r, v));
    if (v.kind == TV_STR && tv_parse_float(tv_view(v), &f)) return tv_float(f);
    return tv_given(a[0]) ? a[0] : tv_float(0);
}

FILTER(f_abs) {
    UNUSED_FILTER;
    if (v.kind == TV_UNDEF) tr_fail(r, "bad operand type for abs(): 'Undefined'");
    if (v.kind == TV_FLOAT) return tv_float(fabs(v.u.f));
    if (!tv_is_int(v)) tr_fail(r, "bad operand type for abs(): '%s'", tv_type_name(v));
    return tv_wide_get(v) < 0 ? tv_negate(r, v) : tv_positive(r, v);
}

/* round(): to even, decided on the exact decimal value, which printf gives. */
static tv round_double(double f, int64_t digits) {
    char text[700];
    if (!isfinite(f)) return tv_float(f);
    if (digits > 323) return tv_float(f);
    if (digits >= 0) {
        snprintf(text, sizeof text, "%.*f", (int)digits, f);
        return tv_float(strtod(text, NULL));
    }
    if (digits < -308) return tv_float(copysign(0, f));
    double unit = pow(10, (double)-digits), q = nearbyint(f / unit);
    if (fabs(f / unit - trunc(f / unit)) == 0.5) q = 2 * nearbyint(f / unit / 2);
    return tv_float(q * unit);
}

static tv round_int(tr *r, tv v, int64_t digits) {
    if (digits >= 0) return tv_positive(r, v);
    tv_wide unit = 1, w = tv_wide_get(v);
    for (int64_t i = 0; i > digits; i--) {
        if (unit > ((tv_wide)1 << 120)) return tv_int(0);
        unit *= 10;
    }
    tv_wide rest = w % unit, low;
    if (rest < 0) rest += unit;
    bool over = __builtin_sub_overflow(w, rest, &low);
    bool up = !over && (rest * 2 > unit || (rest * 2 == unit && (low / unit) % 2 != 0));
    if (over || (up && __builtin_add_overflow(low, unit, &low)))
        tr_fail(r, "integer result is too large (more than 128 bits)");
    return tv_wide_of(r, low);
}

FILTER(f_round) {
    UNUSED_FILTER;
    int64_t precision = tv_given(a[0]) && a[0].kind != TV_NONE ? tv_index_arg(r, a[0], "precision") : 0;
    view    method = tv_given(a[1]) ? tv_str_arg(r, a[1], "round") : view_of("common");
    bool    up = view_eq_c(method, "ceil");
    if (!up && !view_eq_c(method, "floor") && !view_eq_c(method, "common"))
        tr_fail(r, "method must be common, ceil or floor");
    if (v.kind == TV_UNDEF) tr_fail_undef(r, v);
    if (!tv_is_num(v)) tr_fail(r, "type %s doesn't define __round__ method", tv_type_name(v));
    if (view_eq_c(method, "common")) {
        if (v.kind != TV_FLOAT) return round_int(r, v, precision);
        return tv_given(a[0]) && a[0].kind == TV_NONE ? int_of_double(r, nearbyint(v.u.f))
                                                      : round_double(v.u.f, precision);
    }
    double unit = pow(10, (double)precision), scaled = tv_double(r, v) * unit;
    if (!isfinite(scaled)) tr_fail(r, "cannot convert float to integer");
    return tv_float(((up ? ceil(scaled) : floor(scaled)) + 0.0) / unit); /* an integer there: no negative zero */
}

FILTER(f_filesizeformat) {
    UNUSED_FILTER;
    static const char *const units[2][8] = { { "kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB" },
                                             { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB" } };
    bool                     binary = template_flag(r, a[0]);
    double                   base = binary ? 1024 : 1000, bytes = 0, unit = base;
    char                     text[64];
    if (v.kind == TV_UNDEF) tr_fail_undef(r, v);
    if (tv_is_num(v))
        bytes = tv_double(r, v);
    else if (v.kind != TV_STR || !tv_parse_float(tv_view(v), &bytes))
        tr_fail(r, "could not convert to float");
    if (bytes == 1) return tv_str_c("1 Byte");
    if (bytes < base) {
        snprintf(text, sizeof text, "%.0f Bytes", trunc(bytes) + 0.0);
    } else {
        int i = 0;
        for (unit *= base; bytes >= unit && i < 7; i++) unit *= base;
        snprintf(text, sizeof text, "%.1f %s", base * bytes / unit, units[binary][i]);
    }
    return tv_str_copy(r, text, strlen(text));
}

FILTER(f_tojson) {
    UNUSED_FILTER;
    bool ascii = template_flag(r, a[0]), has_indent = tv_given(a[1]) && a[1].kind != TV_NONE;
    tv   indent = tv_str_c("");
    view item_sep = view_of(has_indent ? "," : ", "), key_sep = view_of(": ");
    if (has_indent)
        indent =
            a[1].kind == TV_STR ? a[1] : tv_pad(r, tv_str_c(""), tv_index_arg(r, a[1], "indent"), view_of(" "), -1);
    if (tv_given(a[2]) && a[2].kind != TV_NONE) {
        tv_list s = tv_items(r, a[2]);
        if (s.count != 2) tr_fail(r, "separators must be a pair");
        item_sep = tv_str_arg(r, s.items[0], "separators");
        key_sep = tv_str_arg(r, s.items[1], "separators");
    }
    size_t mark = tr_mark(r);
    tv_put_json(r, v, ascii, has_indent ? indent.u.s : NULL, indent.len, item_sep, key_sep, template_flag(r, a[3]), 0);
    return tr_take(r, mark);
}

FILTER(f_default) {
    UNUSED_FILTER;
    if (v.kind == TV_UNDEF || (template_flag(r, a[1]) && !tv_truth(r, v))) return tv_given(a[0]) ? a[0] : tv_str_c("");
    return v;
}

FILTER(f_attr) {
    UNUSED_FILTER;
    tv   out;
    view name = tv_str_arg(r, a[0], "attr");
    if (v.kind == TV_UNDEF) tr_fail_undef(r, v);
    return tv_has_attr(r, v, name, &out) ? out : tv_undef_attr(r, v, a[0]);
}

FILTER(f_refused) {
    UNUSED_FILTER;
    tr_fail(r, "this filter is not supported in chat templates");
}

const tv_filter tv_filters_text[] = {
    { "upper", f_upper, { 0 }, 0, false },
    { "lower", f_lower, { 0 }, 0, false },
    { "capitalize", f_capitalize, { 0 }, 0, false },
    { "title", f_title, { 0 }, 0, false },
    { "string", f_string, { 0 }, 0, false },
    { "trim", f_trim, { "chars" }, 0, false },
    { "tojson", f_tojson, { "ensure_ascii", "indent", "separators", "sort_keys" }, 0, false },
    { "default", f_default, { "default_value", "boolean" }, 0, false },
    { "d", f_default, { "default_value", "boolean" }, 0, false },
    { "replace", f_replace, { "old", "new", "count" }, 2, false },
    { "e", f_escape, { 0 }, 0, false },
    { "escape", f_escape, { 0 }, 0, false },
    { "forceescape", f_forceescape, { 0 }, 0, false },
    { "safe", f_safe, { 0 }, 0, false },
    { "center", f_center, { "width" }, 0, false },
    { "indent", f_indent, { "width", "first", "blank" }, 0, false },
    { "truncate", f_truncate, { "length", "killwords", "end", "leeway" }, 0, false },
    { "wordcount", f_wordcount, { 0 }, 0, false },
    { "format", f_format, { 0 }, 0, true },
    { "striptags", f_striptags, { 0 }, 0, false },
    { "urlencode", f_urlencode, { 0 }, 0, false },
    { "xmlattr", f_xmlattr, { "autospace" }, 0, false },
    { "int", f_int, { "default", "base" }, 0, false },
    { "float", f_float, { "default" }, 0, false },
    { "abs", f_abs, { 0 }, 0, false },
    { "round", f_round, { "precision", "method" }, 0, false },
    { "filesizeformat", f_filesizeformat, { "binary" }, 0, false },
    { "attr", f_attr, { "name" }, 1, false },
    { "pprint", f_refused, { 0 }, 0, true },
    { "random", f_refused, { 0 }, 0, true },
    { "urlize", f_refused, { 0 }, 0, true },
    { "wordwrap", f_refused, { 0 }, 0, true },
    { 0 },
};

const tv_filter *tv_filter_find(view name) {
    for (const tv_filter *f = tv_filters_text; f->name; f++) {
        if (view_eq_c(name, f->name)) return f;
    }
    for (const tv_filter *f = tv_filters_list; f->name; f++) {
        if (view_eq_c(name, f->name)) return f;
    }
    return NULL;
}

tv tv_filter_apply(tr *r, const tv_filter *f, tv on, const tv_args *args) {
    tv  argv[6] = { { 0 } }; /* all MISSING */
    int n = 0;
    if (f->raw) return f->fn(r, on, argv, args);
    while (n < 6 && f->params[n]) n++;
    tv_bind(r, f->name, args, f->params, n, f->required, argv);
    return f->fn(r, on, argv, args);
}
