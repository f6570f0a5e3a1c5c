/* SPDX-License-Identifier: Apache-2.0 */
/* The methods of str, as a table: name, function, parameters. Positions and lengths count code points. */
#include "template/define.h"
#include "template/value.h"

#include <string.h>

/* Markup escapes the string arguments of its methods; a plain string takes them as they are. */
static view text_arg(tr *r, tv s, tv v, const char *what) {
    view t = tv_str_arg(r, v, what);
    if (!(s.flags & TV_SAFE)) return t;
    return tv_view(tv_escape(r, v));
}

METHOD_IS(m_upper, tv_case(r, s, CASE_UPPER))
METHOD_IS(m_lower, tv_case(r, s, CASE_LOWER))
METHOD_IS(m_title, tv_case(r, s, CASE_TITLE))
METHOD_IS(m_capitalize, tv_case(r, s, CASE_CAPITALIZE))
METHOD_IS(m_swapcase, tv_case(r, s, CASE_SWAP))
METHOD_IS(m_casefold, tv_case(r, s, CASE_FOLD))
METHOD_IS(m_strip, tv_strip(r, s, a[0], 3))
METHOD_IS(m_lstrip, tv_strip(r, s, a[0], 1))
METHOD_IS(m_rstrip, tv_strip(r, s, a[0], 2))

static int64_t max_arg(tr *r, tv v) { return tv_given(v) ? tv_index_arg(r, v, "maxsplit") : -1; }

METHOD_IS(m_split, tv_split(r, s, a[0], max_arg(r, a[1]), false))
METHOD_IS(m_rsplit, tv_split(r, s, a[0], max_arg(r, a[1]), true))
METHOD_IS(m_splitlines, tv_splitlines(r, s, tv_given(a[0]) && tv_truth(r, a[0])))

METHOD(m_replace) {
    UNUSED_METHOD;
    view old = text_arg(r, s, a[0], "replace"), neu = text_arg(r, s, a[1], "replace");
    return tv_replace(r, s, old, neu, tv_given(a[2]) ? tv_index_arg(r, a[2], "count") : -1);
}

/* The byte range that optional start and end positions select; false when start lies behind the end. */
static bool bounds(tr *r, tv s, tv start, tv end, size_t *from, size_t *to) {
    int64_t n = (int64_t)tv_chars(r, s);
    int64_t lo = tv_given(start) && start.kind != TV_NONE ? tv_index_arg(r, start, "start") : 0;
    int64_t hi = tv_given(end) && end.kind != TV_NONE ? tv_index_arg(r, end, "end") : n;
    if (lo < 0) lo = lo + n < 0 ? 0 : lo + n;
    if (hi < 0) hi = hi + n < 0 ? 0 : hi + n;
    if (hi > n) hi = n;
    if (lo > n || lo > hi) return false;
    *from = s.flags & TV_ASCII ? (size_t)lo : uc_offset(tv_view(s), (size_t)lo);
    *to = s.flags & TV_ASCII ? (size_t)hi : uc_offset(tv_view(s), (size_t)hi);
    return true;
}

static bool affix(tr *r, tv s, const tv *a, bool suffix) {
    size_t  from, to;
    tv      one[1] = { a[0] };
    tv_list l = { one, 1 };
    if (a[0].kind == TV_TUPLE) l = *a[0].u.list;
    bool inside = bounds(r, s, a[1], a[2], &from, &to);
    for (size_t i = 0; i < l.count; i++) {
        view x = tv_str_arg(r, l.items[i], suffix ? "endswith" : "startswith");
        if (!inside || to - from < x.len) continue;
        if (memcmp(suffix ? s.u.s + to - x.len : s.u.s + from, x.data, x.len) == 0) return true;
    }
    return false;
}

METHOD_IS(m_startswith, tv_bool(affix(r, s, a, false)))
METHOD_IS(m_endswith, tv_bool(affix(r, s, a, true)))

/* Byte offset of x in [from, to), or -1. */
static int64_t search(tr *r, tv s, view x, size_t from, size_t to, bool last) {
    if (to - from < x.len) return -1;
    tr_charge(r, to - from);
    if (!last) {
        if (x.len == 0) return (int64_t)from;
        const char *hit = tv_search(s.u.s + from, to - from, x);
        return hit ? hit - s.u.s : -1;
    }
    for (size_t at = to - x.len + 1; at-- > from;) {
        tr_charge(r, x.len);
        if (memcmp(s.u.s + at, x.data, x.len) == 0) return (int64_t)at;
    }
    return -1;
}

static int64_t find(tr *r, tv s, const tv *a, bool last) {
    size_t from, to;
    view   x = tv_str_arg(r, a[0], "find");
    if (!bounds(r, s, a[1], a[2], &from, &to)) return -1;
    int64_t at = search(r, s, x, from, to, last);
    if (at <= 0 || s.flags & TV_ASCII) return at;
    return (int64_t)uc_count((view){ s.u.s, (size_t)at });
}

METHOD_IS(m_find, tv_int(find(r, s, a, false)))
METHOD_IS(m_rfind, tv_int(find(r, s, a, true)))

static tv found(tr *r, int64_t at) {
    if (at < 0) tr_fail(r, "substring not found");
    return tv_int(at);
}

METHOD_IS(m_index, found(r, find(r, s, a, false)))
METHOD_IS(m_rindex, found(r, find(r, s, a, true)))

METHOD(m_count) {
    UNUSED_METHOD;
    size_t  from, to;
    int64_t n = 0;
    view    x = tv_str_arg(r, a[0], "count");
    if (!bounds(r, s, a[1], a[2], &from, &to)) return tv_int(0);
    if (x.len == 0) return tv_int((int64_t)uc_count((view){ s.u.s + from, to - from }) + 1);
    tr_charge(r, to - from);
    for (const char *hit; (hit = tv_search(s.u.s + from, to - from, x)); from = (size_t)(hit - s.u.s) + x.len) n++;
    return tv_int(n);
}

METHOD(m_join) {
    UNUSED_METHOD;
    size_t  mark = tr_mark(r);
    tv_list l = tv_items(r, a[0]);
    for (size_t i = 0; i < l.count; i++) {
        tv x = l.items[i];
        if (s.flags & TV_SAFE)
            x = tv_escape(r, x);
        else if (x.kind != TV_STR)
            tr_fail(r, "sequence item %zu: expected str instance, %s found", i, tv_type_name(x));
        if (i) tr_put(r, s.u.s, s.len);
        tr_put(r, x.u.s, x.len);
    }
    tv v = tr_take(r, mark);
    v.flags |= s.flags & TV_SAFE;
    return v;
}

METHOD_IS(m_format, tv_str_format(r, s, raw, tv_missing()))
METHOD_IS(m_format_map, tv_str_format(r, s, &(tv_args){ 0 }, a[0]))

METHOD(m_zfill) {
    UNUSED_METHOD;
    int64_t width = tv_index_arg(r, a[0], "zfill");
    size_t  n = tv_chars(r, s), mark = tr_mark(r);
    bool    sign = s.len && (s.u.s[0] == '-' || s.u.s[0] == '+');
    if (width <= (int64_t)n) return s;
    if (sign) tr_put(r, s.u.s, 1);
    tr_put_char(r, '0', (size_t)width - n);
    tr_put(r, s.u.s + sign, s.len - sign);
    return tr_take(r, mark);
}

static tv pad(tr *r, tv s, const tv *a, int align) {
    return tv_pad(r, s, tv_index_arg(r, a[0], "width"), tv_given(a[1]) ? tv_str_arg(r, a[1], "fill") : view_of(" "),
                  align);
}

METHOD_IS(m_center, pad(r, s, a, 0))
METHOD_IS(m_ljust, pad(r, s, a, -1))
METHOD_IS(m_rjust, pad(r, s, a, 1))

static tv all_are(tv s, bool (*is)(unsigned)) {
    for (size_t pos = 0; pos < s.len;) {
        if (!is(uc_next(s.u.s, s.len, &pos))) return tv_bool(false);
    }
    return tv_bool(s.len > 0);
}

static bool is_alnum(unsigned cp) { return uc_is_alpha(cp) || uc_is_numeric(cp) || uc_is_digit(cp); }

METHOD_IS(m_isdigit, all_are(s, uc_is_digit))
METHOD_IS(m_isdecimal, all_are(s, uc_is_decimal))
METHOD_IS(m_isnumeric, all_are(s, uc_is_numeric))
METHOD_IS(m_isalpha, all_are(s, uc_is_alpha))
METHOD_IS(m_isalnum, all_are(s, is_alnum))
METHOD_IS(m_isspace, all_are(s, uc_is_space))
METHOD_IS(m_isascii, tv_bool(uc_ascii(s.u.s, s.len)))
METHOD_IS(m_isupper, tv_bool(tv_is_case(s, true)))
METHOD_IS(m_islower, tv_bool(tv_is_case(s, false)))
METHOD_IS(m_isprintable, s.len ? all_are(s, uc_is_printable) : tv_bool(true))

METHOD(m_isidentifier) {
    UNUSED_METHOD;
    for (size_t pos = 0, first = 1; pos < s.len; first = 0) {
        unsigned cp = uc_next(s.u.s, s.len, &pos);
        if (first ? !uc_is_id_start(cp) : !uc_is_id_continue(cp)) return tv_bool(false);
    }
    return tv_bool(s.len > 0);
}

METHOD(m_istitle) {
    UNUSED_METHOD;
    bool cased = false, before = false;
    for (size_t pos = 0; pos < s.len;) {
        unsigned cp = uc_next(s.u.s, s.len, &pos);
        bool     low = uc_is_lower(cp), up = !low && uc_is_cased(cp);
        if ((up && before) || (low && !before)) return tv_bool(false);
        before = up || low;
        cased |= before;
    }
    return tv_bool(cased);
}

METHOD(m_removeprefix) {
    UNUSED_METHOD;
    view x = tv_str_arg(r, a[0], "removeprefix");
    return s.len >= x.len && memcmp(s.u.s, x.data, x.len) == 0 ? tv_sub(r, s, x.len, s.len) : s;
}

METHOD(m_removesuffix) {
    UNUSED_METHOD;
    view x = tv_str_arg(r, a[0], "removesuffix");
    return s.len >= x.len && memcmp(s.u.s + s.len - x.len, x.data, x.len) == 0 ? tv_sub(r, s, 0, s.len - x.len) : s;
}

static tv partition(tr *r, tv s, tv sep, bool last) {
    view x = tv_str_arg(r, sep, "partition");
    tv   parts = tv_list_new(r, 3), empty = tv_sub(r, s, 0, 0);
    parts.kind = TV_TUPLE;
    if (x.len == 0) tr_fail(r, "empty separator");
    int64_t at = search(r, s, x, 0, s.len, last);
    tv     *p = parts.u.list->items;
    p[0] = p[1] = p[2] = empty;
    if (at < 0) {
        p[last ? 2 : 0] = s;
    } else {
        p[0] = tv_sub(r, s, 0, (size_t)at);
        p[1] = tv_sub(r, s, (size_t)at, (size_t)at + x.len);
        p[2] = tv_sub(r, s, (size_t)at + x.len, s.len);
    }
    return parts;
}

METHOD_IS(m_partition, partition(r, s, a[0], false))
METHOD_IS(m_rpartition, partition(r, s, a[0], true))

METHOD(m_expandtabs) {
    UNUSED_METHOD;
    int64_t size = tv_given(a[0]) ? tv_index_arg(r, a[0], "tabsize") : 8, column = 0;
    size_t  mark = tr_mark(r);
    for (size_t pos = 0; pos < s.len;) {
        size_t   from = pos;
        unsigned cp = uc_next(s.u.s, s.len, &pos);
        if (cp == '\t') {
            int64_t n = size > 0 ? size - column % size : 0;
            tr_put_char(r, ' ', (size_t)n);
            column += n;
            continue;
        }
        tr_put(r, s.u.s + from, pos - from);
        column = cp == '\n' || cp == '\r' ? 0 : column + 1;
    }
    return tr_take(r, mark);
}

METHOD(m_refused) {
    UNUSED_METHOD;
    tr_fail(r, "this string method is not supported in chat templates");
}

const tv_method tv_methods_str[] = {
    { "upper", m_upper, { 0 }, 0, 0, false, false },
    { "lower", m_lower, { 0 }, 0, 0, false, false },
    { "title", m_title, { 0 }, 0, 0, false, false },
    { "capitalize", m_capitalize, { 0 }, 0, 0, false, false },
    { "swapcase", m_swapcase, { 0 }, 0, 0, false, false },
    { "casefold", m_casefold, { 0 }, 0, 0, false, false },
    { "strip", m_strip, { 0 }, 1, 0, false, false },
    { "lstrip", m_lstrip, { 0 }, 1, 0, false, false },
    { "rstrip", m_rstrip, { 0 }, 1, 0, false, false },
    { "split", m_split, { "sep", "maxsplit" }, 2, 0, true, false },
    { "rsplit", m_rsplit, { "sep", "maxsplit" }, 2, 0, true, false },
    { "splitlines", m_splitlines, { "keepends" }, 1, 0, true, false },
    { "replace", m_replace, { 0 }, 3, 2, false, false },
    { "startswith", m_startswith, { 0 }, 3, 1, false, false },
    { "endswith", m_endswith, { 0 }, 3, 1, false, false },
    { "find", m_find, { 0 }, 3, 1, false, false },
    { "rfind", m_rfind, { 0 }, 3, 1, false, false },
    { "index", m_index, { 0 }, 3, 1, false, false },
    { "rindex", m_rindex, { 0 }, 3, 1, false, false },
    { "count", m_count, { 0 }, 3, 1, false, false },
    { "join", m_join, { 0 }, 1, 1, false, false },
    { "format", m_format, { 0 }, 0, 0, false, true },
    { "format_map", m_format_map, { 0 }, 1, 1, false, false },
    { "zfill", m_zfill, { 0 }, 1, 1, false, false },
    { "center", m_center, { 0 }, 2, 1, false, false },
    { "ljust", m_ljust, { 0 }, 2, 1, false, false },
    { "rjust", m_rjust, { 0 }, 2, 1, false, false },
    { "isdigit", m_isdigit, { 0 }, 0, 0, false, false },
    { "isdecimal", m_isdecimal, { 0 }, 0, 0, false, false },
    { "isnumeric", m_isnumeric, { 0 }, 0, 0, false, false },
    { "isalpha", m_isalpha, { 0 }, 0, 0, false, false },
    { "isalnum", m_isalnum, { 0 }, 0, 0, false, false },
    { "isspace", m_isspace, { 0 }, 0, 0, false, false },
    { "isascii", m_isascii, { 0 }, 0, 0, false, false },
    { "isupper", m_isupper, { 0 }, 0, 0, false, false },
    { "islower", m_islower, { 0 }, 0, 0, false, false },
    { "istitle", m_istitle, { 0 }, 0, 0, false, false },
    { "isprintable", m_isprintable, { 0 }, 0, 0, false, false },
    { "isidentifier", m_isidentifier, { 0 }, 0, 0, false, false },
    { "removeprefix", m_removeprefix, { 0 }, 1, 1, false, false },
    { "removesuffix", m_removesuffix, { 0 }, 1, 1, false, false },
    { "partition", m_partition, { 0 }, 1, 1, false, false },
    { "rpartition", m_rpartition, { 0 }, 1, 1, false, false },
    { "expandtabs", m_expandtabs, { "tabsize" }, 1, 0, true, false },
    { "encode", m_refused, { 0 }, 0, 0, false, true },
    { "translate", m_refused, { 0 }, 0, 0, false, true },
    { "maketrans", m_refused, { 0 }, 0, 0, false, true },
    { 0 },
};
