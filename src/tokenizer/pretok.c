/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pre-tokenizers: from a text to pieces. Each step reads the pieces of the step before; steps that change the text
 * (prefix spaces, U+2581, GPT-2's alphabet) write it anew together with its pieces.
 */
#include "tokenizer/internal.h"

#include <stdlib.h>
#include <string.h>

bool piece_grow(piece_list *l) {
    size_t cap = l->cap ? l->cap * 2 : 256;
    piece *p = l->failed ? NULL : realloc(l->data, cap * sizeof *p);
    if (!p) {
        l->failed = true;
        return false;
    }
    l->data = p;
    l->cap = cap;
    return true;
}

#define IS_MATCH 0x80000000u

static void push_match(piece_list *l, size_t start, size_t end, bool match) {
    piece_push(l, start, end);
    if (match && !l->failed) l->data[l->count - 1].len |= IS_MATCH;
}

/* ---- what a pattern finds in one piece: ranges that cover it, each a match or not ---- */

static int find_regex(const pre_step *s, tok_ctx *c, const char *text, piece p, piece_list *m, err *e) {
    /* The piece is a text of its own: look-around must not see beyond it. */
    const char *base = text + p.start;
    size_t      from = 0, kept = 0, start, end, last_end = SIZE_MAX;
    int         rc;
    while (from <= p.len && (rc = regex_next(s->re, c, base, p.len, from, &start, &end, e)) != 0) {
        if (rc < 0) return rc;
        if (start == end && start == last_end) { /* no empty match right behind a match */
            if (start >= p.len) break;
            from = start + utf8_length((uint8_t)base[start]);
            continue;
        }
        if (kept < start) push_match(m, p.start + kept, p.start + start, false);
        push_match(m, p.start + start, p.start + end, true);
        kept = end;
        last_end = end;
        from = end;
        if (start == end) {
            if (start >= p.len) break;
            from += utf8_length((uint8_t)base[start]);
        }
    }
    if (kept < p.len) push_match(m, p.start + kept, p.start + p.len, false);
    return 0;
}

static void find_string(view pattern, const char *text, piece p, piece_list *m) {
    const char *base = text + p.start;
    size_t      from = 0;
    while (pattern.len && from < p.len) {
        const char *hit = memmem(base + from, p.len - from, pattern.data, pattern.len);
        if (!hit) break;
        size_t at = (size_t)(hit - base);
        if (from < at) push_match(m, p.start + from, p.start + at, false);
        push_match(m, p.start + at, p.start + at + pattern.len, true);
        from = at + pattern.len;
    }
    if (from < p.len) push_match(m, p.start + from, p.start + p.len, false);
}

static bool is_punctuation(unsigned cp, unsigned f) {
    if (cp < 0x80) return cp > 32 && cp < 127 && !(f & (UC_L | UC_N));
    return f & UC_P;
}

static bool char_matches(const pre_step *s, unsigned cp, unsigned f) {
    switch (s->kind) {
    case PRE_WHITESPACE_SPLIT: return f & UC_WS;
    case PRE_PUNCTUATION: return is_punctuation(cp, f);
    case PRE_DIGITS: return f & UC_N;
    case PRE_DELIMITER: return cp == s->delimiter;
    default: return false;
    }
}

static void find_chars(const pre_step *s, const char *text, piece p, piece_list *m) {
    const uc_table *uc = uc_get();
    size_t          kept = p.start, end = (size_t)p.start + p.len;
    for (size_t i = p.start; i < end;) {
        unsigned n, cp = uc_decode((const uint8_t *)text + i, &n);
        if (char_matches(s, cp, uc_class(uc, cp))) {
            if (kept < i) push_match(m, kept, i, false);
            push_match(m, i, i + n, true);
            kept = i + n;
        }
        i += n;
    }
    if (kept < end) push_match(m, kept, end, false);
}

/* ---- from matches to pieces ---- */

static void join(piece_list *out, size_t mark, size_t start, size_t end, bool with_last) {
    if (with_last && out->count > mark) {
        piece *l = &out->data[out->count - 1];
        l->len = (uint32_t)(end - l->start);
    } else {
        piece_push(out, start, end);
    }
}

static void behave(piece_list *m, split_behavior how, bool invert, piece_list *out) {
    size_t mark = out->count;
    bool   before = false;
    if (how == SPLIT_MERGED_NEXT) { /* a match joins what follows it, unless that is a match too */
        for (size_t i = 0; i < m->count; i++) {
            size_t start = m->data[i].start, len = m->data[i].len & ~IS_MATCH;
            bool   match = !!(m->data[i].len & IS_MATCH) != invert;
            /* From the right, a match merges when the one to its right is not a match that was itself merged; runs of
             * matches pair up from their right end, so count the matches up to the next non-match. */
            size_t run = 0;
            while (match && i + run < m->count && (!!(m->data[i + run].len & IS_MATCH) != invert)) run++;
            if (!match) {
                piece_push(out, start, start + len);
                continue;
            }
            for (size_t k = 0; k + 1 < run; k++)
                piece_push(out, m->data[i + k].start, (size_t)m->data[i + k].start + (m->data[i + k].len & ~IS_MATCH));
            i += run - 1;
            size_t end = (size_t)m->data[i].start + (m->data[i].len & ~IS_MATCH);
            if (i + 1 < m->count) {
                end = (size_t)m->data[i + 1].start + (m->data[i + 1].len & ~IS_MATCH);
                piece_push(out, m->data[i].start, end);
                i++;
            } else {
                piece_push(out, m->data[i].start, end);
            }
        }
        return;
    }
    for (size_t i = 0; i < m->count; i++) {
        size_t start = m->data[i].start, end = start + (m->data[i].len & ~IS_MATCH);
        bool   match = !!(m->data[i].len & IS_MATCH) != invert;
        switch (how) {
        case SPLIT_REMOVED:
            if (!match) piece_push(out, start, end);
            break;
        case SPLIT_ISOLATED: piece_push(out, start, end); break;
        case SPLIT_MERGED_PREVIOUS: join(out, mark, start, end, match && !before); break;
        case SPLIT_CONTIGUOUS: join(out, mark, start, end, match == before); break;
        case SPLIT_MERGED_NEXT: break;
        }
        before = match;
    }
}

static void drop_empty(piece_list *l) {
    size_t n = 0;
    for (size_t i = 0; i < l->count; i++) {
        if (l->data[i].len) l->data[n++] = l->data[i];
    }
    l->count = n;
}

/* ---- steps that rewrite the text ---- */

static bool starts_with(const char *text, piece p, view what) {
    return p.len >= what.len && memcmp(text + p.start, what.data, what.len) == 0;
}

static void rewrite(const pre_step *s, const char *text, bool first, piece_list *in, str *to, piece_list *out) {
    const view space = { " ", 1 };
    for (size_t i = 0; i < in->count; i++) {
        piece  p = in->data[i];
        size_t start = to->len;
        if (s->kind == PRE_PREFIX_SPACE) {
            if (!starts_with(text, p, space)) str_push(to, ' ');
            str_append(to, text + p.start, p.len);
        } else if (s->kind == PRE_BYTE_LEVEL) {
            byte_level_encode(text + p.start, p.len, to);
        } else { /* METASPACE */
            bool has = starts_with(text, p, s->pattern) || starts_with(text, p, space);
            if (!has && (s->scheme == 2 || (s->scheme == 1 && first && p.start == 0)))
                str_append(to, s->pattern.data, s->pattern.len);
            for (size_t k = p.start; k < (size_t)p.start + p.len; k++) {
                if (text[k] == ' ')
                    str_append(to, s->pattern.data, s->pattern.len);
                else
                    str_push(to, text[k]);
            }
        }
        piece_push(out, start, to->len);
    }
}

static void split_fixed(const pre_step *s, const char *text, piece p, piece_list *out) {
    size_t i = p.start, end = (size_t)p.start + p.len;
    while (i < end) {
        size_t start = i;
        for (size_t k = 0; k < s->length && i < end; k++) i += utf8_length((uint8_t)text[i]);
        piece_push(out, start, i);
    }
}

static void split_words(const char *text, piece p, piece_list *out) {
    const uc_table *uc = uc_get();
    size_t          i = p.start, end = (size_t)p.start + p.len, start = i;
    unsigned        kind = UC_WS; /* of the run from start: UC_WS, UC_WORD, or 0 for the rest */
    while (i < end) {
        unsigned n, f = uc_class(uc, uc_decode((const uint8_t *)text + i, &n));
        unsigned now = f & UC_WORD ? UC_WORD : f & UC_WS;
        if (now != kind) {
            if (kind != UC_WS && start < i) piece_push(out, start, i);
            start = i;
            kind = now;
        }
        i += n;
    }
    if (kind != UC_WS && start < end) piece_push(out, start, end);
}

static int apply(const pre_step *s, tok_ctx *c, view *text, bool first, err *e) {
    piece_list *in = &c->pieces, *out = &c->pieces2, *m = &c->matches;
    int         rc;
    out->count = 0;
    if (s->kind == PRE_PREFIX_SPACE || s->kind == PRE_BYTE_LEVEL || s->kind == PRE_METASPACE) {
        str *to = text->data == c->pre.data && c->pre.data ? &c->pre2 : &c->pre;
        str_clear(to);
        rewrite(s, text->data, first, in, to, out);
        if (!str_ok(to)) return err_set_nomem(e);
        if (to->len > TOK_MAX_TEXT_BYTES) return err_set(e, ERR_LIMIT, "the text is too long");
        *text = (view){ str_cstr(to), to->len };
        if (s->kind != PRE_METASPACE || !s->split) return 0;
        piece_list swap = *in;
        *in = *out;
        *out = swap;
        out->count = 0;
    }
    for (size_t i = 0; i < in->count; i++) {
        piece p = in->data[i];
        if (s->kind == PRE_SPLITTER) {
            split_run(&s->fast, text->data, p.start, (size_t)p.start + p.len, out);
            continue;
        }
        if (s->kind == PRE_WORDS) {
            split_words(text->data, p, out);
            continue;
        }
        if (s->kind == PRE_FIXED) {
            split_fixed(s, text->data, p, out);
            continue;
        }
        m->count = 0;
        if (s->kind == PRE_REGEX) {
            if ((rc = find_regex(s, c, text->data, p, m, e)) < 0) return rc;
        } else if (s->kind == PRE_STRING || s->kind == PRE_METASPACE) {
            find_string(s->pattern, text->data, p, m);
        } else {
            find_chars(s, text->data, p, m);
        }
        behave(m, s->kind == PRE_METASPACE ? SPLIT_MERGED_NEXT : s->behavior, s->invert, out);
    }
    if (s->kind != PRE_SPLITTER) drop_empty(out);
    return 0;
}

int pretokenize(const tok *t, tok_ctx *c, view *text, bool first, err *e) {
    int rc;
    c->pieces.count = 0;
    if (text->len == 0) return 0;
    piece_push(&c->pieces, 0, text->len);
    for (size_t i = 0; i < t->n_pre; i++) {
        if ((rc = apply(&t->pre[i], c, text, first, e)) < 0) return rc;
        piece_list swap = c->pieces;
        c->pieces = c->pieces2;
        c->pieces2 = swap;
    }
    return c->pieces.failed || c->pieces2.failed || c->matches.failed ? err_set_nomem(e) : 0;
}
