/* SPDX-License-Identifier: Apache-2.0 */
/* What strings can do, by code point: case, strip, split, replace, pad. The methods in str_methods.c call these. */
#include "template/value.h"

#include <string.h>
#include <utf8proc.h>

/* Most searches end at one of the first few candidates; memmem, which is linear for any needle, takes over from there.
 */
const char *tv_search(const char *s, size_t n, view x) {
    const char *end = s + n;
    if (x.len == 0) return s;
    for (int tries = 0; tries < 32; tries++) {
        if ((size_t)(end - s) < x.len) return NULL;
        s = memchr(s, x.data[0], (size_t)(end - s) - x.len + 1);
        if (!s || x.len == 1 || memcmp(s, x.data, x.len) == 0) return s;
        s++;
    }
    return memmem(s, (size_t)(end - s), x.data, x.len);
}

tv tv_sub(tr *r, tv s, size_t from, size_t to) {
    (void)r;
    return (tv){ .kind = TV_STR, .flags = s.flags, .len = (uint32_t)(to - from), .u.s = s.u.s + from };
}

/* Marks, modifiers and punctuation that a word-final sigma looks through. */
static bool case_ignorable(unsigned cp) {
    if (cp < 0x80) return cp == '\'' || cp == '.' || cp == ':' || cp == '^' || cp == '`';
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default:
        return cp == 0xB7 || cp == 0x387 || cp == 0x55F || cp == 0x5F4 || cp == 0x2018 || cp == 0x2019 ||
               cp == 0x2024 || cp == 0x2027 || cp == 0xFE13 || cp == 0xFE52 || cp == 0xFE55 || cp == 0xFF07 ||
               cp == 0xFF0E || cp == 0xFF1A;
    }
}

/* Capital sigma at [from, behind): final when a cased letter stands before and none behind. */
static bool sigma_is_final(tv s, size_t from, size_t behind) {
    bool before = false;
    while (from > 0) {
        size_t   at = uc_prev(s.u.s, from), pos = at;
        unsigned cp = uc_next(s.u.s, s.len, &pos);
        from = at;
        if (case_ignorable(cp)) continue;
        before = uc_is_cased(cp);
        break;
    }
    if (!before) return false;
    while (behind < s.len) {
        unsigned cp = uc_next(s.u.s, s.len, &behind);
        if (!case_ignorable(cp)) return !uc_is_cased(cp);
    }
    return true;
}

static int lower_at(tr *r, tv s, size_t from, size_t behind, unsigned cp, unsigned out[3]) {
    if (cp == 0x3A3) {
        tr_charge(r, s.len);
        out[0] = sigma_is_final(s, from, behind) ? 0x3C2 : 0x3C3;
        return 1;
    }
    return uc_lower(cp, out);
}

static tv case_ascii(tr *r, tv s, bool upper) {
    char *out = tr_alloc(r, (size_t)s.len + 1);
    for (size_t i = 0; i < s.len; i++) {
        char c = s.u.s[i];
        out[i] = upper ? (char)(c >= 'a' && c <= 'z' ? c - 32 : c) : (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
    }
    out[s.len] = '\0';
    return (tv){ .kind = TV_STR, .flags = s.flags, .len = s.len, .u.s = out };
}

tv tv_case(tr *r, tv s, uc_case how) {
    tr_charge(r, s.len);
    if (s.flags & TV_ASCII && (how == CASE_UPPER || how == CASE_LOWER || how == CASE_FOLD))
        return case_ascii(r, s, how == CASE_UPPER);
    size_t mark = tr_mark(r);
    bool   cased_before = false;
    for (size_t pos = 0; pos < s.len;) {
        size_t   from = pos;
        unsigned cp = uc_next(s.u.s, s.len, &pos), out[3];
        int      n = 0;
        switch (how) {
        case CASE_UPPER: n = uc_upper(cp, out); break;
        case CASE_LOWER: n = lower_at(r, s, from, pos, cp, out); break;
        case CASE_FOLD: n = uc_fold(cp, out); break;
        case CASE_SWAP:
            n = uc_is_upper(cp) ? lower_at(r, s, from, pos, cp, out) : uc_is_lower(cp) ? uc_upper(cp, out) : 0;
            break;
        case CASE_CAPITALIZE: n = from == 0 ? uc_title(cp, out) : lower_at(r, s, from, pos, cp, out); break;
        case CASE_TITLE: n = cased_before ? lower_at(r, s, from, pos, cp, out) : uc_title(cp, out); break;
        }
        cased_before = uc_is_cased(cp);
        if (n == 0) tr_put_cp(r, cp);
        for (int i = 0; i < n; i++) tr_put_cp(r, out[i]);
    }
    tv v = tr_take(r, mark);
    v.flags |= s.flags & TV_SAFE;
    return v;
}

bool tv_is_case(tv s, bool upper) {
    bool cased = false;
    for (size_t pos = 0; pos < s.len;) {
        unsigned cp = uc_next(s.u.s, s.len, &pos);
        bool     up = uc_is_upper(cp), low = uc_is_lower(cp);
        if (upper ? low : up) return false;
        if (!up && !low && uc_is_cased(cp)) return false; /* title case */
        cased |= upper ? up : low;
    }
    return cased;
}

static bool in_set(unsigned cp, tv chars) {
    if (chars.kind != TV_STR) return uc_is_space(cp);
    for (size_t pos = 0; pos < chars.len;) {
        if (uc_next(chars.u.s, chars.len, &pos) == cp) return true;
    }
    return false;
}

tv tv_strip(tr *r, tv s, tv chars, int sides) {
    size_t from = 0, to = s.len;
    if (tv_given(chars) && chars.kind != TV_NONE && chars.kind != TV_STR)
        tr_fail(r, "strip arg must be None or str, not %s", tv_type_name(chars));
    while (sides & 1 && from < to) {
        size_t pos = from;
        if (!in_set(uc_next(s.u.s, to, &pos), chars)) break;
        from = pos;
        tr_charge(r, chars.kind == TV_STR ? chars.len : 0);
    }
    while (sides & 2 && to > from) {
        size_t at = uc_prev(s.u.s, to), pos = at;
        if (!in_set(uc_next(s.u.s, to, &pos), chars)) break;
        to = at;
        tr_charge(r, chars.kind == TV_STR ? chars.len : 0);
    }
    tr_charge(r, s.len - (to - from));
    return tv_sub(r, s, from, to);
}

tv tv_replace(tr *r, tv s, view old, view neu, int64_t count) {
    size_t mark = tr_mark(r), pos = 0;
    if (count < 0) count = INT64_MAX;
    tr_charge(r, s.len);
    if (old.len == 0) { /* between all code points and at both ends */
        for (; count > 0; count--) {
            tr_put(r, neu.data, neu.len);
            if (pos >= s.len) break;
            size_t from = pos;
            uc_next(s.u.s, s.len, &pos);
            tr_put(r, s.u.s + from, pos - from);
        }
    } else {
        while (count-- > 0) {
            const char *hit = tv_search(s.u.s + pos, s.len - pos, old);
            if (!hit) {
                if (pos == 0) return s;
                break;
            }
            size_t at = (size_t)(hit - s.u.s);
            tr_step(r);
            tr_put(r, s.u.s + pos, at - pos);
            tr_put(r, neu.data, neu.len);
            pos = at + old.len;
        }
    }
    tr_put(r, s.u.s + pos, s.len - pos);
    tv v = tr_take(r, mark);
    v.flags |= s.flags & TV_SAFE;
    return v;
}

/* A list that grows; in arena memory, so doubling is the price of not freeing. */
typedef struct builder {
    tv    *items;
    size_t count, cap;
} builder;

static void add(tr *r, builder *b, tv v) {
    if (b->count == b->cap) {
        size_t cap = b->cap ? b->cap * 2 : 8;
        tv    *grown = tr_alloc_array(r, cap, sizeof *grown);
        if (b->count) memcpy(grown, b->items, b->count * sizeof *grown);
        b->items = grown;
        b->cap = cap;
    }
    tr_step(r);
    b->items[b->count++] = v;
}

static tv built(tr *r, const builder *b) {
    tv_list *l = tr_alloc(r, sizeof *l);
    *l = (tv_list){ b->items, b->count };
    return (tv){ .kind = TV_LIST, .u.list = l };
}

static void reverse(builder *b) {
    for (size_t i = 0; i < b->count / 2; i++) {
        tv t = b->items[i];
        b->items[i] = b->items[b->count - 1 - i];
        b->items[b->count - 1 - i] = t;
    }
}

static void split_space(tr *r, tv s, int64_t max, builder *b) {
    size_t pos = 0;
    for (;;) {
        size_t at = pos;
        while (pos < s.len && uc_is_space(uc_next(s.u.s, s.len, &at))) pos = at;
        if (pos >= s.len) return;
        if (max-- == 0) {
            add(r, b, tv_sub(r, s, pos, s.len));
            return;
        }
        size_t from = pos;
        while (pos < s.len) {
            at = pos;
            if (uc_is_space(uc_next(s.u.s, s.len, &at))) break;
            pos = at;
        }
        add(r, b, tv_sub(r, s, from, pos));
    }
}

static void rsplit_space(tr *r, tv s, int64_t max, builder *b) {
    size_t end = s.len;
    for (;;) {
        while (end > 0) {
            size_t before = uc_prev(s.u.s, end), at = before;
            if (!uc_is_space(uc_next(s.u.s, s.len, &at))) break;
            end = before;
        }
        if (end == 0) break;
        if (max-- == 0) {
            add(r, b, tv_sub(r, s, 0, end));
            break;
        }
        size_t from = end;
        while (from > 0) {
            size_t before = uc_prev(s.u.s, from), at = before;
            if (uc_is_space(uc_next(s.u.s, s.len, &at))) break;
            from = before;
        }
        add(r, b, tv_sub(r, s, from, end));
        end = from;
    }
    reverse(b);
}

static void split_text(tr *r, tv s, view sep, int64_t max, builder *b) {
    size_t pos = 0;
    while (max-- > 0) {
        const char *hit = tv_search(s.u.s + pos, s.len - pos, sep);
        if (!hit) break;
        add(r, b, tv_sub(r, s, pos, (size_t)(hit - s.u.s)));
        pos = (size_t)(hit - s.u.s) + sep.len;
    }
    add(r, b, tv_sub(r, s, pos, s.len));
}

static void rsplit_text(tr *r, tv s, view sep, int64_t max, builder *b) {
    size_t end = s.len;
    while (max-- > 0) {
        bool   found = false;
        size_t at = end;
        while (at >= sep.len && !found) {
            at = at - sep.len;
            tr_charge(r, sep.len);
            found = memcmp(s.u.s + at, sep.data, sep.len) == 0;
            if (!found) at = at + sep.len - 1;
        }
        if (!found) break;
        add(r, b, tv_sub(r, s, at + sep.len, end));
        end = at;
    }
    add(r, b, tv_sub(r, s, 0, end));
    reverse(b);
}

tv tv_split(tr *r, tv s, tv sep, int64_t max, bool from_right) {
    builder b = { 0 };
    if (max < 0) max = INT64_MAX;
    tr_charge(r, s.len);
    if (!tv_given(sep) || sep.kind == TV_NONE) {
        if (from_right)
            rsplit_space(r, s, max, &b);
        else
            split_space(r, s, max, &b);
    } else {
        view text = tv_str_arg(r, sep, "split");
        if (text.len == 0) tr_fail(r, "empty separator");
        if (from_right)
            rsplit_text(r, s, text, max, &b);
        else
            split_text(r, s, text, max, &b);
    }
    return built(r, &b);
}

static bool is_line_end(unsigned cp) {
    return (cp >= 0x0A && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 || cp == 0x2028 || cp == 0x2029;
}

tv tv_splitlines(tr *r, tv s, bool keep) {
    builder b = { 0 };
    size_t  from = 0;
    tr_charge(r, s.len);
    for (size_t pos = 0; pos < s.len;) {
        size_t   at = pos;
        unsigned cp = uc_next(s.u.s, s.len, &pos);
        if (!is_line_end(cp)) continue;
        if (cp == '\r' && pos < s.len && s.u.s[pos] == '\n') pos++;
        add(r, &b, tv_sub(r, s, from, keep ? pos : at));
        from = pos;
    }
    if (from < s.len) add(r, &b, tv_sub(r, s, from, s.len));
    return built(r, &b);
}

tv tv_pad(tr *r, tv s, int64_t width, view fill, int align) {
    size_t  n = tv_chars(r, s);
    int64_t missing = width > (int64_t)n ? width - (int64_t)n : 0;
    if (uc_count(fill) != 1) tr_fail(r, "The fill character must be exactly one character long");
    if (missing == 0) return s;
    if ((uint64_t)missing > r->out.limit) tr_fail_limit(r, "output");
    int64_t left = align > 0 ? missing : align < 0 ? 0 : missing / 2 + (missing & width & 1);
    size_t  mark = tr_mark(r);
    for (int64_t i = 0; i < left; i++) tr_put(r, fill.data, fill.len);
    tr_put(r, s.u.s, s.len);
    for (int64_t i = left; i < missing; i++) tr_put(r, fill.data, fill.len);
    tv v = tr_take(r, mark);
    v.flags |= s.flags & TV_SAFE;
    return v;
}
