/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One walk that writes and one that reads.
 *
 * Every token passes here twice, so the walks touch the output string only where it must grow, and lists whose items
 * lie in memory as they do in a frame are copied in one piece.
 */
#include "host/wire_codec.h"

#include "base/num.h"

#include <string.h>

enum { NUMBER_BYTES = 8, FIRST_BYTES = 112 };

/* What went wrong; the first sentence stays. */
typedef struct flaw {
    const char *field, *why;
    int         code;
} flaw;

typedef struct writer {
    str  *out;
    char *at, *end;
    flaw  bad;
} writer;

typedef struct reader {
    const char *at, *end;
    arena      *mem;
    flaw        bad;
} reader;

static const char out_of_range[] = "lies outside its range", cut_off[] = "is cut off", too_long[] = "is too long",
                  missing[] = "is missing", has_zero[] = "contains a zero byte", not_utf8[] = "is not UTF-8",
                  no_bool[] = "is neither true nor false", too_large[] = "are too large together",
                  too_many[] = "are too many";

static bool fail(flaw *bad, const wire_field *f, const char *why, int code) {
    *bad = (flaw){ f->name, why, code };
    return false;
}

/* Items of a list do not know its name. */
static bool fail_inside(flaw *bad, const wire_field *f) {
    if (!bad->field) bad->field = f->name;
    return false;
}

/* --- both --- */

/* Most text is plain ASCII, and most texts are shorter than a word or two. */
static inline bool is_ascii(const char *p, size_t n) {
    uint64_t seen = 0, eight;
    uint32_t first, last;
    if (n >= 8) {
        for (size_t i = 0; i < n - 8; i += 8) {
            memcpy(&eight, p + i, 8);
            seen |= eight;
        }
        memcpy(&eight, p + n - 8, 8);
        seen |= eight;
    } else if (n >= 4) {
        memcpy(&first, p, 4);
        memcpy(&last, p + n - 4, 4);
        seen = first | last;
    } else if (n) {
        seen = (unsigned char)p[0] | (unsigned char)p[n / 2] | (unsigned char)p[n - 1];
    }
    return !(seen & 0x8080808080808080u);
}

bool wire_is_utf8(view t) {
    unsigned cp;
    size_t   n;
    if (is_ascii(t.data, t.len)) return true;
    for (size_t i = 0; i < t.len; i += n) {
        if (!((unsigned char)t.data[i] & 0x80))
            n = 1;
        else if (!(n = utf8_decode(t.data + i, t.len - i, &cp)))
            return false;
    }
    return true;
}

/* Of an enumeration that was checked before. */
static const wire_table *the_case(const wire_field *f, const char *base) {
    int32_t x;
    memcpy(&x, base + f->count_at, sizeof x);
    return &f->of[x];
}

/* The rarer numbers with a range. */
static bool in_range(const wire_field *f, const char *p) {
    int32_t  i;
    uint32_t u;
    int64_t  wide;
    uint64_t uwide;
    float    x;
    switch ((wire_kind)f->kind) {
    case WIRE_K_I32: memcpy(&i, p, 4); return i >= f->min && i <= f->max;
    case WIRE_K_U32: memcpy(&u, p, 4); return u <= f->max;
    case WIRE_K_I64: memcpy(&wide, p, 8); return wide >= f->min && wide <= f->max;
    case WIRE_K_U64: memcpy(&uwide, p, 8); return uwide <= (uint64_t)f->max;
    case WIRE_K_F32: memcpy(&x, p, 4); return x >= (float)f->min && x <= (float)f->max;
    default: return true;
    }
}

/* Items that lie in memory as in a frame: are their values allowed? */
static bool items_in_range(const wire_table *t, const char *items, size_t n) {
    for (uint32_t k = 0; k < t->n_fields; k++) {
        const wire_field *f = &t->fields[k];
        if (!(f->flags & WIRE_BOUNDED)) continue;
        for (size_t i = 0; i < n; i++) {
            if (!in_range(f, items + i * t->bytes + f->offset)) return false;
        }
    }
    return true;
}

/* --- writing --- */

/* From here on it writes between the string's end and the end of its memory. */
static void take_over(writer *w) {
    const str *s = w->out;
    w->at = s->data + s->len;
    w->end = s->data + (s->limit && s->limit < s->cap - 1 ? s->limit : s->cap - 1);
}

static bool grow(writer *w, const wire_field *f, size_t n) {
    w->out->len = (size_t)(w->at - w->out->data);
    if (!str_reserve(w->out, n)) return fail(&w->bad, f, "", ERR_NOMEM);
    take_over(w);
    return true;
}

static inline bool have(writer *w, const wire_field *f, size_t n) {
    return (size_t)(w->end - w->at) >= n || grow(w, f, n);
}

static inline void write4(writer *w, const void *p) {
    memcpy(w->at, p, 4);
    w->at += 4;
}

static inline void write8(writer *w, const void *p) {
    memcpy(w->at, p, 8);
    w->at += 8;
}

static bool put_view(writer *w, const wire_field *f, view v) {
    if (v.len > (uint64_t)f->max || v.len > UINT32_MAX) return fail(&w->bad, f, too_long, ERR_LIMIT);
    if (v.len && !v.data) return fail(&w->bad, f, missing, ERR_ARG);
    if ((f->flags & WIRE_UTF8) && !wire_is_utf8(v)) return fail(&w->bad, f, not_utf8, ERR_ARG);
    if (!have(w, f, v.len + 4)) return false;
    uint32_t n = (uint32_t)v.len;
    write4(w, &n);
    if (n) memcpy(w->at, v.data, n);
    w->at += n;
    return true;
}

/* Whether there is something; the walk has made room for a number. */
static bool put_there(writer *w, const wire_field *f, const void *p) {
    if (!p && !(f->flags & WIRE_NULLABLE)) return fail(&w->bad, f, missing, ERR_ARG);
    if (f->flags & WIRE_NULLABLE) *w->at++ = p != NULL;
    return true;
}

static bool put_cstr(writer *w, const wire_field *f, const char *text) {
    if (!put_there(w, f, text)) return false;
    return text ? put_view(w, f, view_of(text)) : true;
}

static bool read_count(flaw *bad, const wire_field *f, const char *base, size_t *n) {
    int small;
    if (f->count_bytes == sizeof *n) {
        memcpy(n, base + f->count_at, sizeof *n);
    } else {
        memcpy(&small, base + f->count_at, sizeof small);
        if (small < 0) return fail(bad, f, out_of_range, ERR_ARG);
        *n = (size_t)small;
    }
    return *n <= (uint64_t)f->max || fail(bad, f, f->kind == WIRE_K_BLOBS ? too_many : too_long, ERR_LIMIT);
}

static bool put_fields(writer *w, const wire_table *t, const char *base);

static bool put_items(writer *w, const wire_field *f, const char *base) {
    const char *items = base + f->offset;
    size_t      n, bytes;
    if (!read_count(&w->bad, f, base, &n)) return false;
    if (f->kind == WIRE_K_LIST) memcpy(&items, base + f->offset, sizeof items);
    if (n && !items) return fail(&w->bad, f, missing, ERR_ARG);
    uint32_t count = (uint32_t)n;
    write4(w, &count);
    if (n && f->of->is_plain) {
        if (!num_mul_size(n, f->of->bytes, &bytes)) return fail(&w->bad, f, too_long, ERR_LIMIT);
        if (!have(w, f, bytes)) return false;
        if (!items_in_range(f->of, items, n)) return fail(&w->bad, f, out_of_range, ERR_ARG);
        memcpy(w->at, items, bytes);
        w->at += bytes;
        return true;
    }
    for (size_t i = 0; i < n; i++) {
        if (!put_fields(w, f->of, items + i * f->of->bytes)) return fail_inside(&w->bad, f);
    }
    return true;
}

static bool put_blobs(writer *w, const wire_field *f, const char *base) {
    const view *list;
    size_t      n;
    uint64_t    sum = 0;
    if (!read_count(&w->bad, f, base, &n)) return false;
    memcpy(&list, base + f->offset, sizeof list);
    if (n && !list) return fail(&w->bad, f, missing, ERR_ARG);
    uint32_t count = (uint32_t)n;
    write4(w, &count);
    for (size_t i = 0; i < n; i++) {
        uint64_t bytes = list[i].len;
        if (bytes > f->sum_bytes - sum) return fail(&w->bad, f, too_large, ERR_LIMIT);
        if (bytes && !list[i].data) return fail(&w->bad, f, missing, ERR_ARG);
        if (!have(w, f, (size_t)bytes + 8)) return false;
        sum += bytes;
        write8(w, &bytes);
        if (bytes) memcpy(w->at, list[i].data, (size_t)bytes);
        w->at += bytes;
    }
    return true;
}

static bool put_pointer(writer *w, const wire_field *f, const char *p) {
    const char *one;
    memcpy(&one, p, sizeof one);
    if (!put_there(w, f, one)) return false;
    return !one || put_fields(w, f->of, one) || fail_inside(&w->bad, f);
}

/* What is not a number. */
static bool put_other(writer *w, const wire_field *f, const char *base) {
    const char *p = base + f->offset, *text;
    switch ((wire_kind)f->kind) {
    case WIRE_K_CSTR: memcpy(&text, p, sizeof text); return put_cstr(w, f, text);
    case WIRE_K_CHARS: return put_view(w, f, (view){ p, strnlen(p, (size_t)f->max) });
    case WIRE_K_STRUCT: return put_fields(w, f->of, p);
    case WIRE_K_POINTER: return put_pointer(w, f, p);
    case WIRE_K_LIST:
    case WIRE_K_ARRAY: return put_items(w, f, base);
    case WIRE_K_BLOBS: return put_blobs(w, f, base);
    default: return true; /* UNSENT */
    }
}

static bool put_fields(writer *w, const wire_table *t, const char *base) {
    const wire_field *f = t->fields, *end = f + t->n_fields;
    char             *at = w->at; /* in a register: everything that is written might be *w */
    for (; f < end; f++) {
        const char *p = base + f->offset;
        int32_t     i;
        view        v;
        if ((size_t)(w->end - at) < NUMBER_BYTES) {
            w->at = at;
            if (!grow(w, f, NUMBER_BYTES)) return false;
            at = w->at;
        }
        switch ((wire_kind)f->kind) {
        case WIRE_K_BOOL:
            if (*(const unsigned char *)p > 1) return fail(&w->bad, f, no_bool, ERR_ARG);
            *at++ = *p;
            continue;
        case WIRE_K_I32:
            memcpy(&i, p, 4);
            if ((f->flags & WIRE_BOUNDED) && (i < f->min || i > f->max)) return fail(&w->bad, f, out_of_range, ERR_ARG);
            memcpy(at, &i, 4);
            at += 4;
            continue;
        case WIRE_K_U32:
        case WIRE_K_F32:
            if ((f->flags & WIRE_BOUNDED) && !in_range(f, p)) return fail(&w->bad, f, out_of_range, ERR_ARG);
            memcpy(at, p, 4);
            at += 4;
            continue;
        case WIRE_K_I64:
        case WIRE_K_U64:
        case WIRE_K_F64:
            if ((f->flags & WIRE_BOUNDED) && !in_range(f, p)) return fail(&w->bad, f, out_of_range, ERR_ARG);
            memcpy(at, p, 8);
            at += 8;
            continue;
        case WIRE_K_CASES: w->at = at; return put_fields(w, the_case(f, base), base);
        case WIRE_K_VIEW:
            memcpy(&v, p, sizeof v);
            w->at = at;
            if (!put_view(w, f, v)) return false;
            break;
        default:
            w->at = at;
            if (!put_other(w, f, base)) return false;
            break;
        }
        at = w->at;
    }
    w->at = at;
    return true;
}

/* --- reading --- */

static inline size_t left(const reader *r) { return (size_t)(r->end - r->at); }

static bool get_u32(reader *r, const wire_field *f, uint32_t *out) {
    if (left(r) < 4) return fail(&r->bad, f, cut_off, ERR_FORMAT);
    memcpy(out, r->at, 4);
    r->at += 4;
    return true;
}

static bool get_view(reader *r, const wire_field *f, view *out) {
    uint32_t n;
    if (!get_u32(r, f, &n)) return false;
    if (n > f->max) return fail(&r->bad, f, too_long, ERR_LIMIT);
    if (left(r) < n) return fail(&r->bad, f, cut_off, ERR_FORMAT);
    *out = (view){ r->at, n };
    r->at += n;
    return !(f->flags & WIRE_UTF8) || wire_is_utf8(*out) || fail(&r->bad, f, not_utf8, ERR_FORMAT);
}

/* Of a text that will be terminated. */
static bool get_whole(reader *r, const wire_field *f, view *out) {
    if (!get_view(r, f, out)) return false;
    return !memchr(out->data, 0, out->len) || fail(&r->bad, f, has_zero, ERR_FORMAT);
}

static bool get_there(reader *r, const wire_field *f, bool *there) {
    *there = true;
    if (!(f->flags & WIRE_NULLABLE)) return true;
    if (left(r) < 1) return fail(&r->bad, f, cut_off, ERR_FORMAT);
    unsigned char x = (unsigned char)*r->at++;
    if (x > 1) return fail(&r->bad, f, no_bool, ERR_FORMAT);
    *there = x != 0;
    return true;
}

static bool get_cstr(reader *r, const wire_field *f, char *to) {
    const char *text = NULL;
    view        v;
    bool        there;
    if (!get_there(r, f, &there)) return false;
    if (there && !get_whole(r, f, &v)) return false;
    if (there && !(text = arena_strndup(r->mem, v.data, v.len))) return fail(&r->bad, f, "", ERR_NOMEM);
    memcpy(to, &text, sizeof text);
    return true;
}

static bool get_chars(reader *r, const wire_field *f, char *to) {
    view v;
    if (!get_whole(r, f, &v)) return false;
    memcpy(to, v.data, v.len);
    to[v.len] = '\0';
    return true;
}

static void write_count(const wire_field *f, char *base, uint32_t n) {
    size_t wide = n;
    int    small = (int)n; /* max of every counted field fits */
    if (f->count_bytes == sizeof wide)
        memcpy(base + f->count_at, &wide, sizeof wide);
    else
        memcpy(base + f->count_at, &small, sizeof small);
}

static bool get_count(reader *r, const wire_field *f, uint32_t *n) {
    if (!get_u32(r, f, n)) return false;
    return *n <= (uint64_t)f->max || fail(&r->bad, f, f->kind == WIRE_K_BLOBS ? too_many : too_long, ERR_LIMIT);
}

/* Memory for n items of which each takes at least `least` bytes of the frame. */
static void *room(reader *r, const wire_field *f, size_t n, size_t bytes, size_t least) {
    if (n && left(r) / least < n) {
        fail(&r->bad, f, cut_off, ERR_FORMAT);
        return NULL;
    }
    void *p = arena_calloc(r->mem, n + 1, bytes);
    if (!p) fail(&r->bad, f, "", ERR_NOMEM);
    return p;
}

static bool get_fields(reader *r, const wire_table *t, char *base);

static bool get_items(reader *r, const wire_field *f, char *base) {
    size_t   item = f->of->bytes;
    char    *items = base + f->offset;
    uint32_t n;
    if (!get_count(r, f, &n)) return false;
    if (f->kind == WIRE_K_LIST && !(items = room(r, f, n, item, f->of->least_bytes))) return false;
    if (n && f->of->is_plain) {
        if (left(r) / item < n) return fail(&r->bad, f, cut_off, ERR_FORMAT);
        if (!items_in_range(f->of, r->at, n)) return fail(&r->bad, f, out_of_range, ERR_FORMAT);
        memcpy(items, r->at, n * item);
        r->at += n * item;
    } else {
        for (uint32_t i = 0; i < n; i++) {
            if (!get_fields(r, f->of, items + i * item)) return fail_inside(&r->bad, f);
        }
    }
    if (f->kind == WIRE_K_LIST) memcpy(base + f->offset, &items, sizeof items);
    write_count(f, base, n);
    return true;
}

static bool get_blobs(reader *r, const wire_field *f, char *base) {
    uint64_t bytes, sum = 0;
    uint32_t n;
    view    *list;
    if (!get_count(r, f, &n) || !(list = room(r, f, n, sizeof *list, sizeof bytes))) return false;
    for (uint32_t i = 0; i < n; i++) {
        if (left(r) < sizeof bytes) return fail(&r->bad, f, cut_off, ERR_FORMAT);
        memcpy(&bytes, r->at, sizeof bytes);
        r->at += sizeof bytes;
        if (bytes > f->sum_bytes - sum) return fail(&r->bad, f, too_large, ERR_LIMIT);
        if (left(r) < bytes) return fail(&r->bad, f, cut_off, ERR_FORMAT);
        sum += bytes;
        list[i] = (view){ r->at, (size_t)bytes };
        r->at += bytes;
    }
    memcpy(base + f->offset, &list, sizeof list);
    write_count(f, base, n);
    return true;
}

static bool get_pointer(reader *r, const wire_field *f, char *to) {
    char *one = NULL;
    bool  there;
    if (!get_there(r, f, &there)) return false;
    if (there && !(one = arena_calloc(r->mem, 1, f->of->bytes))) return fail(&r->bad, f, "", ERR_NOMEM);
    if (there && !get_fields(r, f->of, one)) return fail_inside(&r->bad, f);
    memcpy(to, &one, sizeof one);
    return true;
}

/* What is not a number. */
static bool get_other(reader *r, const wire_field *f, char *base) {
    char *p = base + f->offset;
    switch ((wire_kind)f->kind) {
    case WIRE_K_CSTR: return get_cstr(r, f, p);
    case WIRE_K_CHARS: return get_chars(r, f, p);
    case WIRE_K_STRUCT: return get_fields(r, f->of, p);
    case WIRE_K_POINTER: return get_pointer(r, f, p);
    case WIRE_K_LIST:
    case WIRE_K_ARRAY: return get_items(r, f, base);
    case WIRE_K_BLOBS: return get_blobs(r, f, base);
    default: return true; /* UNSENT */
    }
}

static bool get_fields(reader *r, const wire_table *t, char *base) {
    const wire_field *f = t->fields, *last = f + t->n_fields;
    const char *at = r->at, *const end = r->end; /* in registers: everything that is written might be *r */
    for (; f < last; f++) {
        char   *p = base + f->offset;
        int32_t i;
        view    v;
        switch ((wire_kind)f->kind) {
        case WIRE_K_BOOL:
            if (at == end) return fail(&r->bad, f, cut_off, ERR_FORMAT);
            if (*(const unsigned char *)at > 1) return fail(&r->bad, f, no_bool, ERR_FORMAT);
            *p = *at++;
            continue;
        case WIRE_K_I32:
            if (end - at < 4) return fail(&r->bad, f, cut_off, ERR_FORMAT);
            memcpy(&i, at, 4);
            if ((f->flags & WIRE_BOUNDED) && (i < f->min || i > f->max))
                return fail(&r->bad, f, out_of_range, ERR_FORMAT);
            memcpy(p, &i, 4);
            at += 4;
            continue;
        case WIRE_K_U32:
        case WIRE_K_F32:
            if (end - at < 4) return fail(&r->bad, f, cut_off, ERR_FORMAT);
            if ((f->flags & WIRE_BOUNDED) && !in_range(f, at)) return fail(&r->bad, f, out_of_range, ERR_FORMAT);
            memcpy(p, at, 4);
            at += 4;
            continue;
        case WIRE_K_I64:
        case WIRE_K_U64:
        case WIRE_K_F64:
            if (end - at < 8) return fail(&r->bad, f, cut_off, ERR_FORMAT);
            if ((f->flags & WIRE_BOUNDED) && !in_range(f, at)) return fail(&r->bad, f, out_of_range, ERR_FORMAT);
            memcpy(p, at, 8);
            at += 8;
            continue;
        case WIRE_K_CASES: r->at = at; return get_fields(r, the_case(f, base), base);
        case WIRE_K_VIEW:
            r->at = at;
            if (!get_view(r, f, &v)) return false;
            memcpy(p, &v, sizeof v);
            break;
        default:
            r->at = at;
            if (!get_other(r, f, base)) return false;
            break;
        }
        at = r->at;
    }
    r->at = at;
    return true;
}

/* --- whole messages --- */

static int tell(const flaw *bad, int code, err *e) {
    if (code == ERR_NOMEM) return err_set_nomem(e);
    return err_set(e, code, "%s%s%s", bad->field ? bad->field : "a field", bad->why ? " " : "",
                   bad->why ? bad->why : "");
}

static bool check(flaw *bad, const wire_table *t, const void *message) {
    const char *sentence = t->check ? t->check(message) : NULL;
    if (sentence) *bad = (flaw){ sentence, NULL, ERR_ARG };
    return !sentence;
}

int wire_encode(str *out, size_t head, const wire_table *t, const void *message, err *e) {
    size_t begin = out->len;
    writer w = { .out = out };
    if (!str_reserve(out, head + FIRST_BYTES)) {
        out->failed = false;
        return err_set_nomem(e);
    }
    take_over(&w);
    memset(w.at, 0, head);
    w.at += head;
    bool ok = put_fields(&w, t, message) && check(&w.bad, t, message);
    out->failed = false; /* the frames before this one are whole */
    out->len = ok ? (size_t)(w.at - out->data) : begin;
    out->data[out->len] = '\0';
    return ok ? 0 : tell(&w.bad, w.bad.code, e);
}

int wire_decode(view body, const wire_table *t, arena *mem, void *message, err *e) {
    reader r = { .at = body.data, .end = body.data + body.len, .mem = mem };
    if (!get_fields(&r, t, message) || !check(&r.bad, t, message))
        return tell(&r.bad, r.bad.code == ERR_NOMEM ? ERR_NOMEM : ERR_FORMAT, e);
    if (r.at != r.end) return err_set(e, ERR_FORMAT, "%zu bytes too many", left(&r));
    return 0;
}

/* --- items --- */

static const wire_field int_fields[] = { { .kind = WIRE_K_I32, .bytes = 4 } };
static const wire_field float_fields[] = { { .kind = WIRE_K_F32, .bytes = 4 } };
static const wire_field text_fields[] = {
    { .kind = WIRE_K_VIEW, .flags = WIRE_UTF8, .bytes = sizeof(view), .max = INT32_MAX }
};
static const wire_field cstr_fields[] = { { .kind = WIRE_K_CSTR, .bytes = sizeof(const char *), .max = INT32_MAX } };

const wire_table wire_item_int = WIRE_PLAIN_ITEM(int32_t, int_fields);
const wire_table wire_item_float = WIRE_PLAIN_ITEM(float, float_fields);
const wire_table wire_item_text = WIRE_ITEM(view, text_fields, 4);
const wire_table wire_item_cstr = WIRE_ITEM(const char *, cstr_fields, 4);
