/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Added tokens: texts that are cut out of the input before anything else.
 *
 * Two rules exist. tokenizer.json: scan from the left, at each place the longest token wins. GGUF: the longest token of
 * the vocabulary is cut out everywhere first, then the next longest in what is left, and so on; here with a heap of the
 * candidates (longest first, then leftmost), so that the cost does not grow with the number of tokens.
 */
#include "tokenizer/internal.h"

#include <stdlib.h>
#include <string.h>

void added_set_deinit(added_set *s) { trie_deinit(&s->t); }

int added_set_build(added_set *s, added_token *tokens, size_t n, bool normalized, bool with_special, err *e) {
    size_t    count = 0;
    trie_key *keys = malloc(n * sizeof *keys + 1);
    int       rc;
    if (!keys) return err_set_nomem(e);
    s->tokens = tokens;
    for (size_t i = 0; i < n; i++) {
        if (tokens[i].normalized != normalized || tokens[i].content.len == 0) continue;
        if (tokens[i].special && !with_special) continue;
        keys[count++] = (trie_key){ tokens[i].content.data, (uint32_t)tokens[i].content.len, (int32_t)i };
        s->first[(uint8_t)tokens[i].content.data[0]] = 1;
    }
    s->any = count > 0;
    rc = trie_build(&s->t, keys, count, e);
    free(keys);
    return rc;
}

static bool put(piece_list *out, int32_t **ids, size_t *cap, size_t start, size_t end, int32_t id) {
    piece_push(out, start, end);
    if (out->failed) return false;
    if (out->count > *cap) {
        size_t   want = out->cap;
        int32_t *p = realloc(*ids, want * sizeof *p);
        if (!p) return false;
        *ids = p;
        *cap = want;
    }
    (*ids)[out->count - 1] = id;
    return true;
}

/* The longest token at pos that is at most `limit` bytes; its index or -1. */
static int32_t longest_at(const added_set *s, view text, size_t pos, size_t limit, size_t *len) {
    int32_t  found = -1;
    uint32_t node = 0;
    for (size_t k = pos; k < text.len && k - pos < limit; k++) {
        node = trie_step(&s->t, node, (uint8_t)text.data[k]);
        if (!node) break;
        if (s->t.nodes[node].value >= 0) {
            found = s->t.nodes[node].value;
            *len = k + 1 - pos;
        }
    }
    return found;
}

/* Next place where a token may begin. */
static size_t next_candidate(const added_set *s, view text, size_t pos) {
    while (pos < text.len && !s->first[(uint8_t)text.data[pos]]) pos++;
    return pos;
}

static size_t char_before(view text, size_t pos) {
    do pos--;
    while (pos > 0 && ((uint8_t)text.data[pos] & 0xC0) == 0x80);
    return pos;
}

static unsigned class_before(view text, size_t pos, unsigned *cp) {
    unsigned n;
    if (pos == 0) return *cp = 0;
    *cp = uc_decode((const uint8_t *)text.data + char_before(text, pos), &n);
    return uc_class(uc_get(), *cp);
}

static unsigned class_at(view text, size_t pos, unsigned *cp, unsigned *n) {
    *n = 0;
    if (pos >= text.len) return *cp = 0;
    *cp = uc_decode((const uint8_t *)text.data + pos, n);
    return uc_class(uc_get(), *cp);
}

static size_t strip_left(view text, size_t start, size_t floor) {
    unsigned cp;
    while (start > floor && class_before(text, start, &cp) & UC_WS) start = char_before(text, start);
    return start < floor ? floor : start;
}

static size_t strip_right(view text, size_t end, size_t ceiling) {
    unsigned cp, n;
    while (end < ceiling && class_at(text, end, &cp, &n) & UC_WS) end += n;
    return end;
}

static int split_leftmost(const added_set *s, view text, piece_list *out, int32_t **ids, size_t *cap, err *e) {
    size_t kept = 0, pos = 0, len = 0;
    while ((pos = next_candidate(s, text, pos)) < text.len) {
        int32_t i = longest_at(s, text, pos, SIZE_MAX, &len);
        if (i < 0) {
            pos++;
            continue;
        }
        const added_token *a = &s->tokens[i];
        size_t             start = pos, end = pos + len;
        unsigned           cp, n;
        pos = end;                  /* a discarded match still ends the search inside it */
        if (start < kept) continue; /* its beginning went with the white space of the one before */
        if (a->single_word) {
            unsigned f = class_before(text, start, &cp);
            bool     joined = start > 0 && f & UC_WORD;
            f = class_at(text, end, &cp, &n);
            if (joined || (n && f & UC_WORD)) continue;
        }
        if (a->lstrip) start = strip_left(text, start, kept);
        if (a->rstrip) end = strip_right(text, end, text.len);
        if ((kept < start && !put(out, ids, cap, kept, start, -1)) || !put(out, ids, cap, start, end, a->id))
            return err_set_nomem(e);
        kept = end;
    }
    if (kept < text.len && !put(out, ids, cap, kept, text.len, -1)) return err_set_nomem(e);
    return 0;
}

static uint64_t candidate_key(size_t len, size_t start) {
    return (uint64_t)(UINT32_MAX - (uint32_t)len) << 32 | (uint32_t)start;
}

static int split_longest(const added_set *s, tok_ctx *c, view text, piece_list *out, int32_t **ids, size_t *cap,
                         err *e) {
    size_t len = 0;
    c->heap_n = 0;
    for (size_t pos = 0; (pos = next_candidate(s, text, pos)) < text.len; pos++) {
        if (longest_at(s, text, pos, SIZE_MAX, &len) < 0) continue;
        if (!ctx_heap_push(c, candidate_key(len, pos))) return err_set_nomem(e);
    }
    if (c->heap_n == 0) return put(out, ids, cap, 0, text.len, -1) ? 0 : err_set_nomem(e);
    if (c->taken_cap < text.len) {
        free(c->taken);
        c->taken_cap = 0;
        if (!(c->taken = malloc(text.len))) return err_set_nomem(e);
        c->taken_cap = text.len;
    }
    memset(c->taken, 0,
           text.len); /* bits: 1 inside a token or its stripped white space, 2 its first byte, 4 its last */
    while (c->heap_n) {
        uint64_t key = ctx_heap_pop(c);
        size_t   start = (uint32_t)key, want = UINT32_MAX - (uint32_t)(key >> 32), end = start + want, stop = start;
        while (stop < end && !c->taken[stop]) stop++;
        if (stop == start) continue;
        if (stop < end) { /* try what fits in front of the token that is in the way */
            if (longest_at(s, text, start, stop - start, &len) >= 0 && !ctx_heap_push(c, candidate_key(len, start)))
                return err_set_nomem(e);
            continue;
        }
        const added_token *a = &s->tokens[longest_at(s, text, start, want, &len)];
        size_t             from = start, to = end;
        if (a->lstrip) {
            size_t floor = start;
            while (floor > 0 && !c->taken[floor - 1]) floor--;
            from = strip_left(text, start, floor);
        }
        if (a->rstrip) {
            size_t ceiling = end;
            while (ceiling < text.len && !c->taken[ceiling]) ceiling++;
            to = strip_right(text, end, ceiling);
        }
        memset(c->taken + from, 1, to - from);
        c->taken[start] |= 2;
        c->taken[end - 1] |= 4;
    }
    for (size_t pos = 0; pos < text.len;) {
        size_t start = pos;
        while (pos < text.len && !c->taken[pos]) pos++;
        if (pos > start && !put(out, ids, cap, start, pos, -1)) return err_set_nomem(e);
        if (pos < text.len && c->taken[pos] & 2) {
            size_t limit = pos + 1;
            while (!(c->taken[limit - 1] & 4)) limit++;
            int32_t i = longest_at(s, text, pos, limit - pos, &len);
            if (i < 0 || !put(out, ids, cap, pos, pos + len, s->tokens[i].id)) return err_set_nomem(e);
            pos += len;
        } else if (pos < text.len) {
            pos++; /* stripped white space */
        }
    }
    return 0;
}

int added_split(const tok *t, tok_ctx *c, const added_set *s, view text, piece_list *out, int32_t **ids, size_t *cap,
                err *e) {
    out->count = 0;
    if (text.len == 0) return 0;
    if (!s->any) return put(out, ids, cap, 0, text.len, -1) ? 0 : err_set_nomem(e);
    return t->gguf_added ? split_longest(s, c, text, out, ids, cap, e) : split_leftmost(s, text, out, ids, cap, e);
}
