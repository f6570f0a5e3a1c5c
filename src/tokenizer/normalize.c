/* SPDX-License-Identifier: Apache-2.0 */
/* Normalizers: each reads valid UTF-8 and appends valid UTF-8. Text that a step cannot change is not copied. */
#include "tokenizer/internal.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static bool is_ascii(view s) {
    size_t i = 0;
    for (; i + 8 <= s.len; i += 8) {
        uint64_t w;
        memcpy(&w, s.data + i, 8);
        if (w & 0x8080808080808080u) return false;
    }
    for (; i < s.len; i++) {
        if ((uint8_t)s.data[i] >= 0x80) return false;
    }
    return true;
}

/* No character from U+0300 on: composed text stays as it is. */
static bool is_latin(view s) {
    for (size_t i = 0; i < s.len; i++) {
        if ((uint8_t)s.data[i] >= 0xCC) return false;
    }
    return true;
}

static int unicode_form(view in, utf8proc_option_t options, str *out, err *e) {
    utf8proc_uint8_t *text = NULL;
    utf8proc_ssize_t  n = utf8proc_map((const utf8proc_uint8_t *)in.data, (utf8proc_ssize_t)in.len, &text, options);
    if (n < 0)
        return n == UTF8PROC_ERROR_NOMEM ? err_set_nomem(e)
                                         : err_set(e, ERR_FORMAT, "normalization: %s", utf8proc_errmsg(n));
    str_append(out, text, (size_t)n);
    free(text);
    return str_ok(out) ? 0 : err_set_nomem(e);
}

static void put_lower(str *out, unsigned cp) {
    if (cp == 0x130) { /* the one character whose lower case has two */
        str_puts(out, "i\xCC\x87");
    } else {
        str_put_utf8(out, (unsigned)utf8proc_tolower((utf8proc_int32_t)cp));
    }
}

static void lowercase(view in, str *out) {
    for (size_t i = 0; i < in.len;) {
        unsigned n, cp = uc_decode((const uint8_t *)in.data + i, &n);
        if (cp < 0x80)
            str_push(out, (char)(cp - 'A' < 26u ? cp + 32 : cp));
        else
            put_lower(out, cp);
        i += n;
    }
}

static void filter(view in, unsigned unwanted, str *out) {
    const uc_table *uc = uc_get();
    for (size_t i = 0; i < in.len;) {
        unsigned n, cp = uc_decode((const uint8_t *)in.data + i, &n);
        if (!(uc_class(uc, cp) & unwanted)) str_append(out, in.data + i, n);
        i += n;
    }
}

static void nmt(view in, str *out) {
    for (size_t i = 0; i < in.len;) {
        unsigned n, c = uc_decode((const uint8_t *)in.data + i, &n);
        bool drop = (c >= 1 && c <= 8) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
        bool space = c == 9 || c == 10 || c == 12 || c == 13 || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
                     c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
        if (space)
            str_push(out, ' ');
        else if (!drop)
            str_append(out, in.data + i, n);
        i += n;
    }
}

static int bert(const norm_step *s, tok_ctx *c, view in, str *out, err *e) {
    const uc_table *uc = uc_get();
    str            *a = &c->word;
    int             rc;
    str_clear(a);
    for (size_t i = 0; i < in.len;) {
        unsigned n, cp = uc_decode((const uint8_t *)in.data + i, &n), f = uc_class(uc, cp);
        bool     control =
            f & UC_OTHER && cp != '\t' && cp != '\n' && cp != '\r' && !(s->keep_unassigned && f & UC_UNASSIGNED);
        if (!s->clean || !(cp == 0 || cp == 0xFFFD || control)) {
            if (s->clean && f & UC_WS) {
                str_push(a, ' ');
            } else if (s->chinese && f & UC_CJK) {
                str_push(a, ' ');
                str_append(a, in.data + i, n);
                str_push(a, ' ');
            } else {
                str_append(a, in.data + i, n);
            }
        }
        i += n;
    }
    if (!str_ok(a)) return err_set_nomem(e);
    view v = { str_cstr(a), a->len };
    if (!s->strip_accents || is_ascii(v)) {
        if (s->lower)
            lowercase(v, out);
        else
            str_append(out, v.data, v.len);
        return 0;
    }
    str nfd;
    str_init(&nfd);
    rc = unicode_form(v, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, &nfd, e);
    if (rc == 0) {
        str_clear(a);
        filter((view){ str_cstr(&nfd), nfd.len }, UC_MN, a);
        v = (view){ str_cstr(a), a->len };
        if (s->lower)
            lowercase(v, out);
        else
            str_append(out, v.data, v.len);
        if (!str_ok(a)) rc = err_set_nomem(e);
    }
    str_deinit(&nfd);
    return rc;
}

static int replace(const norm_step *s, tok_ctx *c, view in, str *out, err *e) {
    size_t from = 0, kept = 0, start, end;
    int    rc;
    if (!s->re) {
        if (s->pattern.len == 0) {
            str_append(out, in.data, in.len);
            return 0;
        }
        while (from < in.len) {
            const char *hit = memmem(in.data + from, in.len - from, s->pattern.data, s->pattern.len);
            if (!hit) break;
            str_append(out, in.data + from, (size_t)(hit - (in.data + from)));
            str_append(out, s->content.data, s->content.len);
            from = (size_t)(hit - in.data) + s->pattern.len;
        }
        str_append(out, in.data + from, in.len - from);
        return 0;
    }
    while (from <= in.len && (rc = regex_next(s->re, c, in.data, in.len, from, &start, &end, e)) != 0) {
        if (rc < 0) return rc;
        str_append(out, in.data + kept, start - kept);
        str_append(out, s->content.data, s->content.len);
        kept = end;
        from = end;
        if (end == start) from += end < in.len ? utf8_length((uint8_t)in.data[end]) : 1;
    }
    str_append(out, in.data + kept, in.len - kept);
    return 0;
}

static view strip(view in, bool left, bool right) {
    const uc_table *uc = uc_get();
    size_t          a = 0, b = in.len;
    unsigned        n;
    while (left && a < b && uc_class(uc, uc_decode((const uint8_t *)in.data + a, &n)) & UC_WS) a += n;
    while (right && b > a) {
        size_t p = b - 1;
        while (p > a && ((uint8_t)in.data[p] & 0xC0) == 0x80) p--;
        if (!(uc_class(uc, uc_decode((const uint8_t *)in.data + p, &n)) & UC_WS)) break;
        b = p;
    }
    return (view){ in.data + a, b - a };
}

/* The character map as tokenizer.json applies it: per grapheme if that is short, else per character. */
static void charsmap_graphemes(const tok *t, view in, str *out) {
    for (size_t i = 0; i < in.len;) {
        utf8proc_int32_t state = 0;
        unsigned         n, cp = uc_decode((const uint8_t *)in.data + i, &n);
        size_t           end = i + n;
        view             r;
        while (end < in.len) {
            unsigned n2, next = uc_decode((const uint8_t *)in.data + end, &n2);
            if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)cp, (utf8proc_int32_t)next, &state)) break;
            cp = next;
            end += n2;
        }
        if (end - i < 6 && charsmap_exact(&t->map, in.data + i, end - i, &r)) {
            str_append(out, r.data, r.len);
            i = end;
            continue;
        }
        while (i < end) {
            size_t len = utf8_length((uint8_t)in.data[i]);
            if (charsmap_exact(&t->map, in.data + i, len, &r))
                str_append(out, r.data, r.len);
            else
                str_append(out, in.data + i, len);
            i += len;
        }
    }
}

/* One step of SentencePiece's normalizer: what the beginning of the text turns into, and how many bytes that takes. */
static size_t spaces_prefix(const tok *t, const norm_step *s, const char *p, size_t left, view *to) {
    if (t->user.nodes) {
        uint32_t node = 0;
        size_t   len = 0;
        for (size_t k = 0; k < left && (node = trie_step(&t->user, node, (uint8_t)p[k])); k++) {
            if (t->user.nodes[node].value >= 0) len = k + 1;
        }
        if (len) {
            *to = (view){ p, len };
            return len;
        }
    }
    size_t n = s->use_charsmap ? charsmap_longest(&t->map, p, left, to) : 0;
    if (n) return n;
    n = utf8_length((uint8_t)*p);
    *to = (view){ p, n };
    return n;
}

static void spaces(const tok *t, const norm_step *s, view in, str *out) {
    const char *space = s->escape ? "\xE2\x96\x81" : " ";
    size_t      space_len = s->escape ? 3 : 1, i = 0, n, mark = out->len;
    bool        was_space = s->remove_extra;
    view        to;
    while (s->remove_extra && i < in.len) {
        n = spaces_prefix(t, s, in.data + i, in.len - i, &to);
        if (!(to.len == 1 && to.data[0] == ' ')) break;
        i += n;
    }
    if (i == in.len) return;
    if (s->dummy_prefix && !s->suffix) str_append(out, space, space_len);
    while (i < in.len) {
        n = spaces_prefix(t, s, in.data + i, in.len - i, &to);
        while (was_space && to.len && to.data[0] == ' ') {
            to.data++;
            to.len--;
        }
        for (size_t k = 0; k < to.len; k++) {
            if (to.data[k] == ' ')
                str_append(out, space, space_len);
            else
                str_push(out, to.data[k]);
        }
        if (to.len) was_space = to.data[to.len - 1] == ' ';
        if (!s->remove_extra) was_space = false;
        i += n;
    }
    if (s->remove_extra) {
        while (out->len - mark >= space_len && memcmp(out->data + out->len - space_len, space, space_len) == 0)
            out->len -= space_len;
    }
    if (s->dummy_prefix && s->suffix) str_append(out, space, space_len);
}

static int apply(const tok *t, const norm_step *s, tok_ctx *c, view in, str *out, err *e) {
    const utf8proc_option_t stable = UTF8PROC_STABLE;
    switch (s->kind) {
    case NORM_NFC: return unicode_form(in, stable | UTF8PROC_COMPOSE, out, e);
    case NORM_NFD: return unicode_form(in, stable | UTF8PROC_DECOMPOSE, out, e);
    case NORM_NFKC: return unicode_form(in, stable | UTF8PROC_COMPOSE | UTF8PROC_COMPAT, out, e);
    case NORM_NFKD: return unicode_form(in, stable | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, out, e);
    case NORM_LOWERCASE: lowercase(in, out); return 0;
    case NORM_STRIP_ACCENTS: filter(in, UC_M, out); return 0;
    case NORM_REPLACE: return replace(s, c, in, out, e);
    case NORM_PREPEND:
        if (in.len) str_append(out, s->content.data, s->content.len);
        str_append(out, in.data, in.len);
        return 0;
    case NORM_CHARSMAP: charsmap_graphemes(t, in, out); return 0;
    case NORM_BERT: return bert(s, c, in, out, e);
    case NORM_NMT: nmt(in, out); return 0;
    case NORM_BYTE_LEVEL: byte_level_encode(in.data, in.len, out); return 0;
    case NORM_SPACES: spaces(t, s, in, out); return 0;
    case NORM_STRIP: break;
    }
    return 0;
}

int normalize_text(const tok *t, tok_ctx *c, view in, view *out, err *e) {
    str *dst = &c->norm, *other = &c->tmp;
    int  rc;
    for (size_t i = 0; i < t->n_norm; i++) {
        const norm_step *s = &t->norm[i];
        if (s->kind == NORM_STRIP) {
            in = strip(in, s->left, s->right);
            continue;
        }
        if (s->kind == NORM_NFC && is_latin(in)) continue;
        if ((s->kind <= NORM_NFKD || s->kind == NORM_STRIP_ACCENTS) && is_ascii(in)) continue;
        str_clear(dst);
        if ((rc = apply(t, s, c, in, dst, e)) < 0) return rc;
        if (!str_ok(dst)) return err_set_nomem(e);
        if (dst->len > TOK_MAX_TEXT_BYTES) return err_set(e, ERR_LIMIT, "the normalized text is too long");
        in = (view){ str_cstr(dst), dst->len };
        str *swap = dst;
        dst = other;
        other = swap;
    }
    *out = in;
    return 0;
}
