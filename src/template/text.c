/* SPDX-License-Identifier: Apache-2.0 */
/* Values as text: Python's str() and repr(), json.dumps, HTML escaping; and text as numbers: int() and float(). */
#include "template/ast.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The shortest digits that read back as f; exponent form below 1e-4 and from 1e16 on, as Python prints. */
size_t tv_float_repr(char out[40], double f) {
    if (isnan(f)) return (size_t)sprintf(out, "nan");
    if (isinf(f)) return (size_t)sprintf(out, f < 0 ? "-inf" : "inf");
    char sci[40];
    for (int precision = 0; precision < 18; precision++) {
        snprintf(sci, sizeof sci, "%.*e", precision, f);
        if (precision == 17 || strtod(sci, NULL) == f) break;
    }
    char  digits[24] = "0";
    int   n = 0, exp = atoi(strchr(sci, 'e') + 1);
    char *o = out;
    for (const char *c = sci; *c != 'e'; c++) {
        if (*c >= '0' && *c <= '9') digits[n++] = *c;
    }
    if (sci[0] == '-') *o++ = '-';
    if (exp < -4 || exp >= 16) {
        *o++ = digits[0];
        if (n > 1) {
            *o++ = '.';
            memcpy(o, digits + 1, (size_t)n - 1);
            o += n - 1;
        }
        o += sprintf(o, "e%c%02d", exp < 0 ? '-' : '+', abs(exp));
    } else if (exp < 0) {
        o += sprintf(o, "0.");
        for (int i = -1; i > exp; i--) *o++ = '0';
        memcpy(o, digits, (size_t)n);
        o += n;
    } else {
        for (int i = 0; i <= exp; i++) *o++ = i < n ? digits[i] : '0';
        *o++ = '.';
        if (n > exp + 1) {
            memcpy(o, digits + exp + 1, (size_t)(n - exp - 1));
            o += n - exp - 1;
        } else {
            *o++ = '0';
        }
    }
    *o = '\0';
    return (size_t)(o - out);
}

/* Magnitude and sign in a base up to 16; binary numbers may have 127 digits, so they get their own buffer elsewhere. */
size_t tv_wide_print(char out[48], tv_wide w, unsigned base, bool upper) {
    const char       *set = upper ? "0123456789ABCDEF" : "0123456789abcdef";
    char              rev[48];
    size_t            n = 0, len = 0;
    unsigned __int128 m = w < 0 ? -(unsigned __int128)w : (unsigned __int128)w;
    do {
        rev[n++] = set[(unsigned)(m % base)];
        m /= base;
    } while (m && n < sizeof rev - 2);
    if (w < 0) out[len++] = '-';
    while (n) out[len++] = rev[--n];
    out[len] = '\0';
    return len;
}

static void put_number(tr *r, tv v) {
    char   text[48];
    size_t n = v.kind == TV_FLOAT ? tv_float_repr(text, v.u.f) : tv_wide_print(text, tv_wide_get(v), 10, false);
    tr_put(r, text, n);
}

static void put_text_repr(tr *r, tv v) {
    view s = tv_view(v);
    char quote = memchr(s.data, '\'', s.len) && !memchr(s.data, '"', s.len) ? '"' : '\'', text[16];
    tr_put(r, &quote, 1);
    for (size_t pos = 0; pos < s.len;) {
        size_t   from = pos;
        unsigned cp = uc_next(s.data, s.len, &pos);
        if (cp == (unsigned char)quote || cp == '\\') {
            text[0] = '\\';
            text[1] = (char)cp;
            tr_put(r, text, 2);
        } else if (cp == '\n' || cp == '\r' || cp == '\t') {
            tr_put_c(r, cp == '\n' ? "\\n" : cp == '\r' ? "\\r" : "\\t");
        } else if (uc_is_printable(cp)) {
            tr_put(r, s.data + from, pos - from);
        } else {
            snprintf(text, sizeof text, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
            tr_put_c(r, text);
        }
    }
    tr_put(r, &quote, 1);
}

static void put_items(tr *r, const tv_list *l, const char *open, const char *close) {
    tr_put_c(r, open);
    for (size_t i = 0; i < l->count; i++) {
        if (i) tr_put(r, ", ", 2);
        tv_put_repr(r, l->items[i]);
    }
    tr_put_c(r, close);
}

static void put_dict(tr *r, const tv_dict *d) {
    tr_put(r, "{", 1);
    for (size_t i = 0; i < d->count; i++) {
        if (i) tr_put(r, ", ", 2);
        tv_put_repr(r, d->entries[i].key);
        tr_put(r, ": ", 2);
        tv_put_repr(r, d->entries[i].value);
    }
    tr_put(r, "}", 1);
}

static void put_object(tr *r, tv v) {
    char    text[200];
    tv_list l;
    switch ((tv_kind)v.kind) {
    case TV_VIEW:
        tr_put_c(r, tv_type_name(v));
        l = tv_items(r, v);
        put_items(r, &l, "([", "])");
        return;
    case TV_RANGE:
        if (v.u.range->step == 1)
            snprintf(text, sizeof text, "range(%lld, %lld)", (long long)v.u.range->start, (long long)v.u.range->stop);
        else
            snprintf(text, sizeof text, "range(%lld, %lld, %lld)", (long long)v.u.range->start,
                     (long long)v.u.range->stop, (long long)v.u.range->step);
        break;
    case TV_NAMESPACE:
        tr_put_c(r, "<Namespace ");
        put_dict(r, v.u.dict);
        tr_put_c(r, ">");
        return;
    case TV_MACRO:
        tr_put_c(r, "<Macro ");
        if (v.u.macro->name)
            tv_put_repr(r, tv_str(r, v.u.macro->name, v.u.macro->name_len));
        else
            tr_put_c(r, "anonymous");
        tr_put_c(r, ">");
        return;
    case TV_LOOP:
        tr_loop_fill(r, v.u.loop, SIZE_MAX);
        snprintf(text, sizeof text, "<LoopContext %zu/%zu>", v.u.loop->index0 + 1, v.u.loop->count);
        break;
    default: snprintf(text, sizeof text, "<%s object>", tv_type_name(v)); /* Python shows an address here */
    }
    tr_put_c(r, text);
}

void tv_put_repr(tr *r, tv v) {
    tr_enter(r);
    switch ((tv_kind)v.kind) {
    case TV_MISSING:
    case TV_UNDEF: tr_put_c(r, "Undefined"); break;
    case TV_NONE: tr_put_c(r, "None"); break;
    case TV_BOOL: tr_put_c(r, v.u.b ? "True" : "False"); break;
    case TV_INT:
    case TV_BIG:
    case TV_FLOAT: put_number(r, v); break;
    case TV_STR:
        if (v.flags & TV_SAFE) tr_put_c(r, "Markup(");
        put_text_repr(r, v);
        if (v.flags & TV_SAFE) tr_put_c(r, ")");
        break;
    case TV_LIST: put_items(r, v.u.list, "[", "]"); break;
    case TV_TUPLE: put_items(r, v.u.list, "(", v.u.list->count == 1 ? ",)" : ")"); break;
    case TV_DICT: put_dict(r, v.u.dict); break;
    default: put_object(r, v);
    }
    tr_leave(r);
}

void tv_put_str(tr *r, tv v) {
    if (v.kind == TV_STR)
        tr_put(r, v.u.s, v.len);
    else if (v.kind != TV_UNDEF && v.kind != TV_MISSING)
        tv_put_repr(r, v);
}

tv tv_to_str(tr *r, tv v) {
    if (v.kind == TV_STR) return v;
    size_t mark = tr_mark(r);
    tv_put_str(r, v);
    return tr_take(r, mark);
}

tv tv_repr(tr *r, tv v) {
    size_t mark = tr_mark(r);
    tv_put_repr(r, v);
    return tr_take(r, mark);
}

/* --- JSON --- */

static void put_json_text(tr *r, view s, bool ascii) {
    char   text[16];
    size_t plain = 0;
    tr_put(r, "\"", 1);
    for (size_t pos = 0; pos < s.len;) {
        size_t   from = pos;
        unsigned cp = uc_next(s.data, s.len, &pos);
        if (cp >= 0x20 && cp != '"' && cp != '\\' && (!ascii || cp < 0x7F)) continue;
        tr_put(r, s.data + plain, from - plain);
        plain = pos;
        switch (cp) {
        case '"': tr_put(r, "\\\"", 2); break;
        case '\\': tr_put(r, "\\\\", 2); break;
        case '\n': tr_put(r, "\\n", 2); break;
        case '\r': tr_put(r, "\\r", 2); break;
        case '\t': tr_put(r, "\\t", 2); break;
        case '\f': tr_put(r, "\\f", 2); break;
        case '\b': tr_put(r, "\\b", 2); break;
        default:
            if (cp >= 0x10000)
                snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xD800 + ((cp - 0x10000) >> 10),
                         0xDC00 + ((cp - 0x10000) & 0x3FF));
            else
                snprintf(text, sizeof text, "\\u%04x", cp);
            tr_put_c(r, text);
        }
    }
    tr_put(r, s.data + plain, s.len - plain);
    tr_put(r, "\"", 1);
}

static void put_json_number(tr *r, tv v) {
    if (v.kind == TV_FLOAT && !isfinite(v.u.f))
        tr_put_c(r, isnan(v.u.f) ? "NaN" : v.u.f < 0 ? "-Infinity" : "Infinity");
    else
        put_number(r, v);
}

static void put_json_key(tr *r, tv key, bool ascii) {
    if (key.kind == TV_STR) {
        put_json_text(r, tv_view(key), ascii);
        return;
    }
    if (!tv_is_num(key) && key.kind != TV_NONE)
        tr_fail(r, "keys must be str, int, float, bool or None, not %s", tv_type_name(key));
    tr_put(r, "\"", 1);
    if (key.kind == TV_NONE)
        tr_put_c(r, "null");
    else if (key.kind == TV_BOOL)
        tr_put_c(r, key.u.b ? "true" : "false");
    else
        put_json_number(r, key);
    tr_put(r, "\"", 1);
}

static void json_newline(tr *r, const char *indent, size_t indent_len, int level) {
    if (!indent) return;
    tr_put(r, "\n", 1);
    for (int i = 0; i < level; i++) tr_put(r, indent, indent_len);
}

/* Insertion sort would be quadratic: merge sort on keys. */
static void sort_entries(tr *r, tv_entry *x, tv_entry *tmp, size_t n) {
    if (n < 2) return;
    size_t half = n / 2, i = 0, j = half, k = 0;
    sort_entries(r, x, tmp, half);
    sort_entries(r, x + half, tmp, n - half);
    while (i < half && j < n) tmp[k++] = tv_less(r, x[j].key, x[i].key, "<") ? x[j++] : x[i++];
    while (i < half) tmp[k++] = x[i++];
    while (j < n) tmp[k++] = x[j++];
    memcpy(x, tmp, n * sizeof *x);
}

void tv_put_json(tr *r, tv v, bool ascii, const char *indent, size_t indent_len, view item_sep, view key_sep, bool sort,
                 int level) {
    tr_enter(r);
    switch ((tv_kind)v.kind) {
    case TV_NONE: tr_put_c(r, "null"); break;
    case TV_BOOL: tr_put_c(r, v.u.b ? "true" : "false"); break;
    case TV_INT:
    case TV_BIG:
    case TV_FLOAT: put_json_number(r, v); break;
    case TV_STR: put_json_text(r, tv_view(v), ascii); break;
    case TV_LIST:
    case TV_TUPLE:
        tr_put(r, "[", 1);
        for (size_t i = 0; i < v.u.list->count; i++) {
            if (i) tr_put(r, item_sep.data, item_sep.len);
            json_newline(r, indent, indent_len, level + 1);
            tv_put_json(r, v.u.list->items[i], ascii, indent, indent_len, item_sep, key_sep, sort, level + 1);
        }
        if (v.u.list->count) json_newline(r, indent, indent_len, level);
        tr_put(r, "]", 1);
        break;
    case TV_DICT: {
        size_t    n = v.u.dict->count;
        tv_entry *x = v.u.dict->entries;
        if (sort && n) {
            x = tr_alloc_array(r, n * 2, sizeof *x);
            memcpy(x, v.u.dict->entries, n * sizeof *x);
            sort_entries(r, x, x + n, n);
        }
        tr_put(r, "{", 1);
        for (size_t i = 0; i < n; i++) {
            if (i) tr_put(r, item_sep.data, item_sep.len);
            json_newline(r, indent, indent_len, level + 1);
            put_json_key(r, x[i].key, ascii);
            tr_put(r, key_sep.data, key_sep.len);
            tv_put_json(r, x[i].value, ascii, indent, indent_len, item_sep, key_sep, sort, level + 1);
        }
        if (n) json_newline(r, indent, indent_len, level);
        tr_put(r, "}", 1);
        break;
    }
    default: tr_fail(r, "Object of type %s is not JSON serializable", tv_type_name(v));
    }
    tr_leave(r);
}

/* --- numbers from text --- */

static view trim_space(view s) {
    while (s.len) {
        size_t pos = 0;
        if (!uc_is_space(uc_next(s.data, s.len, &pos))) break;
        s.data += pos;
        s.len -= pos;
    }
    while (s.len) {
        size_t at = uc_prev(s.data, s.len), pos = at;
        if (!uc_is_space(uc_next(s.data, s.len, &pos))) break;
        s.len = at;
    }
    return s;
}

bool tv_parse_int(tr *r, view s, int base, tv *out) {
    bool    negative = false;
    tv_wide w = 0;
    s = trim_space(s);
    if (s.len && (s.data[0] == '-' || s.data[0] == '+')) {
        negative = s.data[0] == '-';
        s.data++;
        s.len--;
    }
    bool prefixed = false;
    if (s.len > 1 && s.data[0] == '0') {
        char c = (char)(s.data[1] | 0x20);
        int  implied = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
        if (implied && (base == implied || base == 0)) {
            base = implied;
            s.data += 2;
            s.len -= 2;
            prefixed = true;
        }
    }
    if (base == 0) {
        base = 10;
        for (size_t i = 1; s.len > 1 && s.data[0] == '0' && i < s.len; i++) {
            if (s.data[i] != '0' && s.data[i] != '_') return false; /* int('012', 0) is not a number */
        }
    }
    if (!s.len) return false;
    bool digit_before = prefixed;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.data[i];
        int  d = c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'z' ? (c | 0x20) - 'a' + 10 : -1;
        if (c == '_' && digit_before && i + 1 < s.len) {
            digit_before = false;
            continue;
        }
        if (d < 0 || d >= base) return false;
        digit_before = true;
        if (__builtin_mul_overflow(w, (tv_wide)base, &w) || __builtin_add_overflow(w, (tv_wide)d, &w))
            tr_fail(r, "integer is too large (more than 128 bits)");
    }
    *out = tv_wide_of(r, negative ? -w : w);
    return true;
}

bool tv_parse_float(view s, double *out) {
    char   buffer[512];
    size_t n = 0;
    s = trim_space(s);
    if (s.len == 0 || s.len >= sizeof buffer) return false;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.data[i];
        bool inner = i > 0 && i + 1 < s.len && s.data[i - 1] >= '0' && s.data[i - 1] <= '9' && s.data[i + 1] >= '0' &&
                     s.data[i + 1] <= '9';
        if (c == '_' && inner) continue;
        if (c == 'x' || c == 'X' || c == 'p' || c == 'P' || c == '(' || c == '\0')
            return false; /* strtod takes hex and nan(...) */
        buffer[n++] = c;
    }
    buffer[n] = '\0';
    char *end;
    if (uc_is_space((unsigned char)buffer[0])) return false;
    *out = strtod(buffer, &end);
    return end == buffer + n && end != buffer;
}

tv tv_escape(tr *r, tv v) {
    v = tv_to_str(r, v);
    if (v.flags & TV_SAFE) return v;
    size_t mark = tr_mark(r);
    for (size_t i = 0; i < v.len; i++) {
        switch (v.u.s[i]) {
        case '&': tr_put_c(r, "&amp;"); break;
        case '<': tr_put_c(r, "&lt;"); break;
        case '>': tr_put_c(r, "&gt;"); break;
        case '"': tr_put_c(r, "&#34;"); break;
        case '\'': tr_put_c(r, "&#39;"); break;
        default: tr_put(r, v.u.s + i, 1);
        }
    }
    tv out = tr_take(r, mark);
    out.flags |= TV_SAFE;
    return out;
}
