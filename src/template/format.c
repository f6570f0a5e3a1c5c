/* SPDX-License-Identifier: Apache-2.0 */
/* Formatting: the % operator, str.format and the format-specification language that it uses. */
#include "template/value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PRECISION = 1000 };

/* --- numbers as text --- */

/* A double as C's printf writes it for type, which is Python's writing too except for nan and inf. */
static size_t print_double(char *out, size_t cap, double f, char type, int precision, bool alt) {
    char fmt[16];
    if (!isfinite(f)) {
        bool upper = type >= 'A' && type <= 'Z';
        return (size_t)snprintf(out, cap, "%s%s", f < 0 ? "-" : "",
                                isnan(f) ? (upper ? "NAN" : "nan")
                                : upper  ? "INF"
                                         : "inf");
    }
    snprintf(fmt, sizeof fmt, "%%%s.*%c", alt ? "#" : "", type);
    return (size_t)snprintf(out, cap, fmt, precision, f);
}

/* Digits of an integer in any base of printf and format; room for 128 binary ones. */
static size_t print_wide(char out[140], tv_wide w, unsigned base, bool upper) {
    if (base != 2) return tv_wide_print(out, w, base, upper);
    unsigned __int128 m = w < 0 ? -(unsigned __int128)w : (unsigned __int128)w;
    size_t            n = 0;
    char              rev[130];
    do rev[n++] = (char)('0' + (int)(m & 1));
    while (m >>= 1);
    size_t len = 0;
    if (w < 0) out[len++] = '-';
    while (n) out[len++] = rev[--n];
    out[len] = '\0';
    return len;
}

/* --- % --- */

typedef struct percent {
    bool    left, plus, blank, zero, alt;
    int64_t width;
    int     precision; /* -1: none */
} percent;

/* sign and prefix, then digits; zeros go between them. */
static void put_padded(tr *r, const percent *p, const char *head, const char *digits, size_t n_digits, bool numeric) {
    size_t head_len = strlen(head), chars = head_len + uc_count((view){ digits, n_digits });
    size_t pad = p->width > (int64_t)chars ? (size_t)p->width - chars : 0;
    bool   zeros = p->zero && !p->left && numeric;
    if (!p->left && !zeros) tr_put_char(r, ' ', pad);
    tr_put(r, head, head_len);
    if (zeros) tr_put_char(r, '0', pad);
    tr_put(r, digits, n_digits);
    if (p->left) tr_put_char(r, ' ', pad);
}

static const char *sign_of(const percent *p, bool negative) {
    return negative ? "-" : p->plus ? "+" : p->blank ? " " : "";
}

static void percent_int(tr *r, percent *p, char type, tv v) {
    char digits[140], head[8], *text = digits;
    if (v.kind == TV_FLOAT && strchr("diu", type)) {
        if (!isfinite(v.u.f) || fabs(v.u.f) >= 1.7e38) tr_fail(r, "cannot convert this float to integer");
        v = tv_wide_of(r, (tv_wide)v.u.f);
    }
    if (!tv_is_int(v)) tr_fail(r, "%%%c format: a number is required, not %s", type, tv_type_name(v));
    tv_wide  w = tv_wide_get(v);
    unsigned base = type == 'o' ? 8 : type == 'x' || type == 'X' ? 16 : 10;
    size_t   n = print_wide(digits, w, base, type == 'X');
    if (w < 0) {
        text++;
        n--;
    }
    snprintf(head, sizeof head, "%s%s", sign_of(p, w < 0),
             !p->alt || base == 10 ? ""
             : type == 'o'         ? "0o"
             : type == 'x'         ? "0x"
                                   : "0X");
    if (p->precision > (int)n) {
        size_t mark = tr_mark(r);
        tr_put_char(r, '0', (size_t)p->precision - n);
        tr_put(r, text, n);
        tv padded = tr_take(r, mark);
        put_padded(r, p, head, padded.u.s, padded.len, true);
        return;
    }
    put_padded(r, p, head, text, n, true);
}

static void percent_float(tr *r, percent *p, char type, tv v) {
    char *text = tr_alloc(r, MAX_PRECISION + 400);
    if (v.kind == TV_UNDEF) tr_fail_undef(r, v);
    if (!tv_is_num(v)) tr_fail(r, "must be real number, not %s", tv_type_name(v));
    double f = tv_double(r, v);
    size_t n = print_double(text, MAX_PRECISION + 400, f, type, p->precision < 0 ? 6 : p->precision, p->alt);
    bool   negative = text[0] == '-';
    put_padded(r, p, sign_of(p, negative), text + negative, n - negative, true);
}

static void percent_char(tr *r, percent *p, tv v) {
    if (v.kind == TV_STR) {
        if (tv_chars(r, v) != 1) tr_fail(r, "%%c requires int or char");
        put_padded(r, p, "", v.u.s, v.len, false);
        return;
    }
    if (!tv_is_int(v)) tr_fail(r, "%%c requires int or char");
    tv_wide w = tv_wide_get(v);
    if (w < 0 || w > 0x10FFFF) tr_fail(r, "%%c arg not in range(0x110000)");
    size_t mark = tr_mark(r);
    tr_put_cp(r, (unsigned)w);
    tv c = tr_take(r, mark);
    put_padded(r, p, "", c.u.s, c.len, false);
}

static tv ascii_repr(tr *r, tv v) {
    tv     s = tv_repr(r, v);
    size_t mark = tr_mark(r);
    char   text[16];
    for (size_t pos = 0; pos < s.len;) {
        unsigned cp = uc_next(s.u.s, s.len, &pos);
        snprintf(text, sizeof text,
                 cp < 0x80      ? "%c"
                 : cp < 0x100   ? "\\x%02x"
                 : cp < 0x10000 ? "\\u%04x"
                                : "\\U%08x",
                 cp);
        tr_put_c(r, text);
    }
    return tr_take(r, mark);
}

static void percent_text(tr *r, percent *p, tv s) {
    size_t n = s.len;
    if (p->precision >= 0 && (size_t)p->precision < tv_chars(r, s)) n = uc_offset(tv_view(s), (size_t)p->precision);
    put_padded(r, p, "", s.u.s, n, false);
}

typedef struct percent_args {
    tv     args;
    tv     current; /* chosen by %(name) */
    bool   mapped;
    size_t next;
} percent_args;

static tv next_arg(tr *r, percent_args *a) {
    if (a->mapped) return a->current;
    if (a->args.kind == TV_TUPLE) {
        if (a->next >= a->args.u.list->count) tr_fail(r, "not enough arguments for format string");
        return a->args.u.list->items[a->next++];
    }
    if (a->next++) tr_fail(r, "not enough arguments for format string");
    return a->args;
}

static int64_t star_or_number(tr *r, view f, size_t *i, percent_args *a) {
    int64_t n = 0;
    if (*i < f.len && f.data[*i] == '*') {
        ++*i;
        tv v = next_arg(r, a);
        if (!tv_is_int(v)) tr_fail(r, "* wants int");
        return tv_index_arg(r, v, "width");
    }
    while (*i < f.len && f.data[*i] >= '0' && f.data[*i] <= '9') {
        n = n * 10 + (f.data[(*i)++] - '0');
        if (n > INT32_MAX) tr_fail_limit(r, "output");
    }
    return n;
}

static void percent_one(tr *r, view f, size_t *i, percent_args *a, bool safe) {
    percent p = { .precision = -1 };
    a->mapped = false;
    if (*i < f.len && f.data[*i] == '(') {
        size_t from = ++*i, depth = 1;
        for (; *i < f.len && depth; ++*i) depth += f.data[*i] == '(' ? 1 : f.data[*i] == ')' ? (size_t)-1 : 0;
        if (depth) tr_fail(r, "incomplete format key");
        if (a->args.kind != TV_DICT) tr_fail(r, "format requires a mapping");
        tv *v = tv_dict_find_str(r, a->args.u.dict, (view){ f.data + from, *i - 1 - from });
        if (!v)
            tr_fail(r, "format: key '%.*s' is missing", (int)(*i - 1 - from < 60 ? *i - 1 - from : 60), f.data + from);
        a->current = *v;
        a->mapped = true;
    }
    for (; *i < f.len && strchr("-+ 0#", f.data[*i]) && f.data[*i]; ++*i) {
        char c = f.data[*i];
        *(c == '-' ? &p.left : c == '+' ? &p.plus : c == ' ' ? &p.blank : c == '0' ? &p.zero : &p.alt) = true;
    }
    p.width = star_or_number(r, f, i, a);
    if (p.width < 0) {
        p.left = true;
        p.width = -p.width;
    }
    if (*i < f.len && f.data[*i] == '.') {
        ++*i;
        int64_t n = star_or_number(r, f, i, a);
        if (n > MAX_PRECISION) tr_fail(r, "precision too large");
        p.precision = n < 0 ? 0 : (int)n;
    }
    while (*i < f.len && strchr("hlL", f.data[*i]) && f.data[*i]) ++*i;
    if (*i >= f.len) tr_fail(r, "incomplete format");
    char type = f.data[(*i)++];
    if (type == '%') {
        tr_put_c(r, "%");
        return;
    }
    tv v = next_arg(r, a);
    switch (type) {
    case 's': percent_text(r, &p, safe ? tv_escape(r, v) : tv_to_str(r, v)); return;
    case 'r': percent_text(r, &p, tv_repr(r, v)); return;
    case 'a': percent_text(r, &p, ascii_repr(r, v)); return;
    case 'c': percent_char(r, &p, v); return;
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o': percent_int(r, &p, type, v); return;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G': percent_float(r, &p, type, v); return;
    default: tr_fail(r, "unsupported format character '%c'", type);
    }
}

tv tv_percent(tr *r, tv fmt, tv args) {
    percent_args a = { .args = args };
    view         f = tv_view(fmt);
    size_t       mark = tr_mark(r);
    bool         used_key = false;
    for (size_t i = 0; i < f.len;) {
        const char *hit = memchr(f.data + i, '%', f.len - i);
        size_t      to = hit ? (size_t)(hit - f.data) : f.len;
        tr_put(r, f.data + i, to - i);
        i = to;
        if (!hit) break;
        i++;
        percent_one(r, f, &i, &a, fmt.flags & TV_SAFE);
        used_key |= a.mapped;
    }
    bool all = a.args.kind == TV_TUPLE ? a.next == a.args.u.list->count
                                       : a.next > 0 || used_key || a.args.kind == TV_DICT || a.args.kind == TV_LIST ||
                                             a.args.kind == TV_RANGE || a.args.kind == TV_UNDEF;
    if (!all) tr_fail(r, "not all arguments converted during string formatting");
    tv out = tr_take(r, mark);
    out.flags |= fmt.flags & TV_SAFE;
    return out;
}

/* --- format specifications: [[fill]align][sign][z][#][0][width][grouping][.precision][type] --- */

typedef struct fspec {
    view    fill;
    char    align, sign, group, type;
    bool    alt, zero;
    int64_t width;
    int     precision;
} fspec;

static fspec parse_spec(tr *r, view s) {
    fspec  f = { .fill = { " ", 1 }, .precision = -1 };
    size_t i = 0, after = 0;
    if (s.len) uc_next(s.data, s.len, &after);
    if (after && after < s.len && strchr("<>=^", s.data[after])) {
        f.fill = (view){ s.data, after };
        f.align = s.data[after];
        i = after + 1;
    } else if (s.len && s.data[0] && strchr("<>=^", s.data[0])) {
        f.align = s.data[i++];
    }
    if (i < s.len && s.data[i] && strchr("+- ", s.data[i])) f.sign = s.data[i++];
    if (i < s.len && s.data[i] == '#') f.alt = ++i;
    if (i < s.len && s.data[i] == '0') {
        f.zero = ++i;
        if (!f.align) {
            f.align = '=';
            f.fill = (view){ "0", 1 };
        }
    }
    for (; i < s.len && s.data[i] >= '0' && s.data[i] <= '9'; i++) {
        f.width = f.width * 10 + (s.data[i] - '0');
        if (f.width > INT32_MAX) tr_fail_limit(r, "output");
    }
    if (i < s.len && (s.data[i] == ',' || s.data[i] == '_')) f.group = s.data[i++];
    if (i < s.len && s.data[i] == '.') {
        size_t from = ++i;
        int    n = 0;
        for (; i < s.len && s.data[i] >= '0' && s.data[i] <= '9'; i++) {
            n = n * 10 + (s.data[i] - '0');
            if (n > MAX_PRECISION) tr_fail(r, "precision too large");
        }
        if (i == from) tr_fail(r, "Format specifier missing precision");
        f.precision = n;
    }
    if (i < s.len) f.type = s.data[i++];
    if (i < s.len) tr_fail(r, "Invalid format specifier");
    return f;
}

static void put_fill(tr *r, view fill, size_t n) {
    if (n > r->out.limit) tr_fail_limit(r, "output");
    for (size_t i = 0; i < n; i++) tr_put(r, fill.data, fill.len);
}

static void put_aligned(tr *r, const fspec *f, char dflt, const char *head, const char *text, size_t n) {
    char   align = f->align ? f->align : dflt;
    size_t chars = strlen(head) + uc_count((view){ text, n }),
           pad = f->width > (int64_t)chars ? (size_t)f->width - chars : 0;
    size_t left = align == '>' ? pad : align == '^' ? pad / 2 : 0;
    put_fill(r, f->fill, left);
    tr_put_c(r, head);
    if (align == '=') put_fill(r, f->fill, pad);
    tr_put(r, text, n);
    put_fill(r, f->fill, align == '=' ? 0 : pad - left);
}

/* Puts separators between groups of digits of the whole part; the buffer has room. */
static size_t group_digits(char *out, const char *digits, size_t whole, size_t n, char sep, int every) {
    size_t len = 0;
    for (size_t i = 0; i < whole; i++) {
        if (i && (whole - i) % (size_t)every == 0) out[len++] = sep;
        out[len++] = digits[i];
    }
    memcpy(out + len, digits + whole, n - whole);
    return len + n - whole;
}

static void put_grouped(tr *r, const fspec *f, const char *head, const char *text, size_t n, int every) {
    char  *grouped;
    size_t whole = 0;
    while (whole < n && ((text[whole] >= '0' && text[whole] <= '9') ||
                         (every == 4 && (text[whole] | 0x20) >= 'a' && (text[whole] | 0x20) <= 'f')))
        whole++;
    if (!f->group) {
        put_aligned(r, f, '>', head, text, n);
        return;
    }
    if (f->zero && f->align == '=' && f->fill.len == 1 &&
        f->fill.data[0] == '0') { /* zeros take part in the grouping */
        size_t have = strlen(head) + n - whole, digits = whole;
        if (f->width > 100000) tr_fail_limit(r, "output");
        while ((int64_t)(have + digits + (digits ? (digits - 1) / (size_t)every : 0)) < f->width) digits++;
        char *padded = tr_alloc(r, digits + n + 1);
        memset(padded, '0', digits - whole);
        memcpy(padded + digits - whole, text, n);
        text = padded;
        n += digits - whole;
        whole = digits;
    }
    grouped = tr_alloc(r, n * 2 + 2);
    n = group_digits(grouped, text, whole, n, f->group, every);
    put_aligned(r, f, '>', head, grouped, n);
}

static void spec_float(tr *r, const fspec *f, double d, char type) {
    size_t cap = MAX_PRECISION + 400, n;
    char  *text = tr_alloc(r, cap + 8), head[4] = "";
    bool   hundredths = type == '%';
    if (hundredths) {
        d *= 100;
        type = 'f';
    }
    if (!type && f->precision < 0) {
        n = tv_float_repr(text, d);
        if (f->alt && !strchr(text, '.')) tr_fail(r, "'#' without a type is not supported");
    } else if (!type) { /* like g, but with at least one digit behind the point */
        n = print_double(text, cap, d, 'g', f->precision ? f->precision : 1, f->alt);
        char *e = strchr(text, 'e');
        int   exp = 0;
        if (isfinite(d) && d != 0) {
            char sci[64];
            snprintf(sci, sizeof sci, "%.*e", f->precision > 0 ? (f->precision < 40 ? f->precision - 1 : 39) : 0, d);
            exp = atoi(strchr(sci, 'e') + 1);
        }
        if (!e && isfinite(d) && !strchr(text, '.') && exp >= (f->precision ? f->precision : 1) - 1 && exp > 0)
            n = print_double(text, cap, d, 'e', (f->precision ? f->precision : 1) - 1,
                             false); /* 12.0 with .2 is 1.2e+01 */
        else if (!e && isfinite(d) && !strchr(text, '.'))
            n += (size_t)sprintf(text + n, ".0");
    } else {
        n = print_double(text, cap, d, type == 'n' ? 'g' : type, f->precision < 0 ? 6 : f->precision, f->alt);
    }
    bool negative = text[0] == '-';
    if (hundredths) text[n++] = '%';
    if (negative || f->sign == '+' || f->sign == ' ') head[0] = negative ? '-' : f->sign;
    put_grouped(r, f, head, text + negative, n - negative, 3);
}

static void spec_int(tr *r, const fspec *f, tv v) {
    char    text[140], head[8], type = f->type ? f->type : 'd';
    tv_wide w = tv_wide_get(v);
    if (strchr("eEfFgG%", type)) {
        spec_float(r, f, tv_double(r, v), type);
        return;
    }
    if (type == 'c') {
        if (w < 0 || w > 0x10FFFF) tr_fail(r, "%%c arg not in range(0x110000)");
        if (f->sign) tr_fail(r, "Sign not allowed with integer format specifier 'c'");
        size_t mark = tr_mark(r);
        tr_put_cp(r, (unsigned)w);
        tv c = tr_take(r, mark);
        put_aligned(r, f, '>', "", c.u.s, c.len);
        return;
    }
    if (f->precision >= 0) tr_fail(r, "Precision not allowed in integer format specifier");
    unsigned base = type == 'b' ? 2 : type == 'o' ? 8 : type == 'x' || type == 'X' ? 16 : 10;
    if (base == 10 && type != 'd' && type != 'n') tr_fail(r, "Unknown format code '%c' for object of type 'int'", type);
    if (f->group == ',' && base != 10) tr_fail(r, "Cannot specify ',' with '%c'.", type);
    size_t n = print_wide(text, w, base, type == 'X');
    bool   negative = w < 0;
    snprintf(head, sizeof head, "%s%s",
             negative         ? "-"
             : f->sign == '+' ? "+"
             : f->sign == ' ' ? " "
                              : "",
             !f->alt || base == 10 ? ""
             : base == 2           ? "0b"
             : base == 8           ? "0o"
             : type == 'X'         ? "0X"
                                   : "0x");
    put_grouped(r, f, head, text + negative, n - negative, base == 10 ? 3 : 4);
}

static void tv_format_spec(tr *r, tv v, view s) {
    if (s.len == 0) {
        tv_put_str(r, v);
        return;
    }
    fspec f = parse_spec(r, s);
    if (v.kind == TV_STR) {
        if (f.align == '=' && f.zero) f.align = '<'; /* a width that begins with 0 fills text with zeros on the right */
        if ((f.type && f.type != 's') || f.sign || f.alt || f.group || f.align == '=')
            tr_fail(r, "Invalid format specifier for object of type 'str'");
        size_t n = v.len;
        if (f.precision >= 0 && (size_t)f.precision < tv_chars(r, v)) n = uc_offset(tv_view(v), (size_t)f.precision);
        put_aligned(r, &f, '<', "", v.u.s, n);
    } else if (v.kind == TV_FLOAT) {
        if (f.type && !strchr("eEfFgGn%", f.type))
            tr_fail(r, "Unknown format code '%c' for object of type 'float'", f.type);
        spec_float(r, &f, v.u.f, f.type);
    } else if (tv_is_int(v)) {
        spec_int(r, &f, v);
    } else {
        tr_fail(r, "unsupported format string passed to %s.__format__", tv_type_name(v));
    }
}

/* --- str.format --- */

typedef struct formatter {
    const tv_args *args;
    tv             mapping; /* format_map, or MISSING */
    int64_t        next;    /* of {} fields; -1 once numbers were used */
} formatter;

static tv field_root(tr *r, formatter *f, view name) {
    bool number = name.len > 0;
    for (size_t i = 0; i < name.len; i++) number &= name.data[i] >= '0' && name.data[i] <= '9';
    if (name.len == 0 || number) {
        tv      key;
        int64_t index;
        if (name.len == 0) {
            if (f->next < 0) tr_fail(r, "cannot switch from manual field specification to automatic field numbering");
            index = f->next++;
        } else {
            if (f->next > 0) tr_fail(r, "cannot switch from automatic field numbering to manual field specification");
            f->next = -1;
            if (!tv_parse_int(r, name, 10, &key)) tr_fail(r, "bad field number");
            index = tv_index_arg(r, key, "field");
        }
        if (index >= (int64_t)f->args->n_pos)
            tr_fail(r, "Replacement index %lld out of range for positional args tuple", (long long)index);
        return f->args->pos[index];
    }
    for (size_t i = 0; i < f->args->n_kw; i++) {
        if (view_eq(f->args->kw_names[i], name)) return f->args->kw[i];
    }
    if (f->mapping.kind == TV_DICT) {
        const tv *v = tv_dict_find_str(r, f->mapping.u.dict, name);
        if (v) return *v;
    }
    tr_fail(r, "format: key '%.*s' is missing", (int)(name.len < 60 ? name.len : 60), name.data);
}

static tv field_value(tr *r, formatter *f, view field) {
    size_t i = 0;
    while (i < field.len && field.data[i] != '.' && field.data[i] != '[') i++;
    tv v = field_root(r, f, (view){ field.data, i });
    while (i < field.len) {
        bool   item = field.data[i] == '[';
        size_t from = ++i;
        if (item) {
            while (i < field.len && field.data[i] != ']') i++;
            if (i >= field.len) tr_fail(r, "Missing ']' in format string");
        } else {
            while (i < field.len && field.data[i] != '.' && field.data[i] != '[') i++;
        }
        view part = { field.data + from, i - from };
        if (part.len == 0) tr_fail(r, "Empty attribute in format string");
        if (item) {
            tv   key;
            bool number = true;
            for (size_t k = 0; k < part.len; k++) number &= part.data[k] >= '0' && part.data[k] <= '9';
            if (!number || !tv_parse_int(r, part, 10, &key)) key = tv_str(r, part.data, part.len);
            v = tv_getitem(r, v, key);
            i++;
            if (i < field.len && field.data[i] != '.' && field.data[i] != '[')
                tr_fail(r, "Only '.' or '[' may follow ']' in format field specifier");
        } else {
            v = tv_getattr(r, v, part);
        }
    }
    return v;
}

static void format_into(tr *r, formatter *f, view s, int depth, bool safe);

/* The inside of one {...}. */
static void format_field(tr *r, formatter *f, view inner, int depth, bool safe) {
    size_t name = 0, nest = 0;
    while (name < inner.len && (nest || (inner.data[name] != '!' && inner.data[name] != ':'))) {
        nest += inner.data[name] == '[' ? 1 : inner.data[name] == ']' && nest ? (size_t)-1 : 0;
        name++;
    }
    tv     v = field_value(r, f, (view){ inner.data, name });
    size_t i = name;
    if (i < inner.len && inner.data[i] == '!') {
        if (i + 1 >= inner.len) tr_fail(r, "end of string while looking for conversion specifier");
        char c = inner.data[i + 1];
        i += 2;
        if (i < inner.len && inner.data[i] != ':') tr_fail(r, "expected ':' after conversion specifier");
        if (c != 's' && c != 'r' && c != 'a') tr_fail(r, "Unknown conversion specifier %c", c);
        v = c == 's' ? tv_to_str(r, v) : c == 'r' ? tv_repr(r, v) : ascii_repr(r, v);
    }
    view spec = { "", 0 };
    if (i < inner.len) {
        size_t mark = tr_mark(r);
        format_into(r, f, (view){ inner.data + i + 1, inner.len - i - 1 }, depth + 1, false);
        spec = tv_view(tr_take(r, mark));
    }
    if (safe && spec.len == 0) {
        tv e = tv_escape(r, v);
        tr_put(r, e.u.s, e.len);
        return;
    }
    tv_format_spec(r, v, spec);
}

static void format_into(tr *r, formatter *f, view s, int depth, bool safe) {
    if (depth > 2) tr_fail(r, "Max string recursion exceeded");
    for (size_t i = 0; i < s.len;) {
        char c = s.data[i];
        if (c != '{' && c != '}') {
            tr_put(r, s.data + i++, 1);
            continue;
        }
        if (i + 1 < s.len && s.data[i + 1] == c) {
            tr_put(r, &c, 1);
            i += 2;
            continue;
        }
        if (c == '}') tr_fail(r, "Single '}' encountered in format string");
        size_t from = ++i, nest = 1;
        for (; i < s.len && nest; i++) nest += s.data[i] == '{' ? 1 : s.data[i] == '}' ? (size_t)-1 : 0;
        if (nest)
            tr_fail(r, i == from ? "Single '{' encountered in format string" : "expected '}' before end of string");
        format_field(r, f, (view){ s.data + from, i - 1 - from }, depth, safe);
    }
}

tv tv_str_format(tr *r, tv fmt, const tv_args *args, tv mapping) {
    formatter f = { .args = args, .mapping = mapping };
    size_t    mark = tr_mark(r);
    tr_charge(r, fmt.len);
    format_into(r, &f, tv_view(fmt), 1, fmt.flags & TV_SAFE);
    tv v = tr_take(r, mark);
    v.flags |= fmt.flags & TV_SAFE;
    return v;
}
