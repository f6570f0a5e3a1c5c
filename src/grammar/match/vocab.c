/* SPDX-License-Identifier: Apache-2.0 */
#include "grammar/match/vocab.h"

#include "base/num.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static atomic_uint_fast64_t last_id; /* only to tell vocabularies apart */

enum { MAX_TOKENS = 1 << 24 };

void grammar_vocab_free(grammar_vocab *v) {
    if (!v) return;
    free(v->tries[0].nodes);
    free(v->tries[1].nodes);
    free(v->same);
    for (int i = 0; i < VOCAB_SLICES + 1; i++) free(v->slices[i]);
    free(v->bytes);
    free(v->offsets);
    free(v->ends);
    free(v);
}

size_t grammar_vocab_mask_words(const grammar_vocab *v) { return v->n_words; }

/* The number of characters of a plain text; 0 for every other one. */
static uint32_t plain_chars(const char *p, size_t n) {
    uint32_t count = 0;
    unsigned c;
    for (size_t at = 0, k; at < n; at += k, count++) {
        if (!(k = utf8_decode(p + at, n - at, &c))) return 0;
        if (c < 0x20 || c == '"' || c == '\\' || c == 0x2028 || c == 0x2029) return 0;
    }
    return count <= VOCAB_SLICES ? count : 0;
}

static int by_bytes(const void *a, const void *b, void *ctx) {
    const grammar_vocab *v = ctx;
    uint32_t             x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    size_t               nx = v->offsets[x + 1] - v->offsets[x], ny = v->offsets[y + 1] - v->offsets[y];
    int                  c = memcmp(v->bytes + v->offsets[x], v->bytes + v->offsets[y], nx < ny ? nx : ny);
    if (c) return c;
    if (nx != ny) return nx < ny ? -1 : 1;
    return x < y ? -1 : 1;
}

/* A trie of the tokens in list, which is sorted by bytes. */
static int trie_build(grammar_vocab *v, vocab_trie *t, const uint32_t *list, size_t n, const uint32_t *chars, err *e) {
    uint32_t path[VOCAB_MAX_TOKEN + 1] = { 0 };
    size_t   total = 1, depth = 0;
    for (size_t i = 0; i < n; i++) total += v->offsets[list[i] + 1] - v->offsets[list[i]];
    if (total > UINT32_MAX || !(t->nodes = malloc(total * sizeof *t->nodes))) return err_set_nomem(e);
    t->nodes[0] = (vocab_node){ .token = -1 };
    t->n = 1;
    for (size_t i = 0; i < n; i++) {
        const char *p = v->bytes + v->offsets[list[i]];
        size_t      len = v->offsets[list[i] + 1] - v->offsets[list[i]], same = 0;
        while (same < depth && same < len && t->nodes[path[same + 1]].byte == (uint8_t)p[same]) same++;
        for (; depth > same; depth--) t->nodes[path[depth]].next = t->n;
        for (; depth < len; depth++) {
            path[depth + 1] = t->n;
            t->nodes[t->n++] = (vocab_node){ .token = -1, .depth = (uint16_t)(depth + 1), .byte = (uint8_t)p[depth] };
        }
        for (size_t k = 0; k <= depth; k++)
            if (t->nodes[path[k]].longest < chars[list[i]]) t->nodes[path[k]].longest = (uint8_t)chars[list[i]];
        v->same[list[i]] = t->nodes[path[depth]].token;
        t->nodes[path[depth]].token = (int32_t)list[i];
    }
    for (; depth > 0; depth--) t->nodes[path[depth]].next = t->n;
    t->nodes[0].next = t->n;
    {
        vocab_node *fit = realloc(t->nodes, t->n * sizeof *fit);
        if (fit) t->nodes = fit;
    }
    return 0;
}

static int slices_build(grammar_vocab *v, const uint32_t *chars, err *e) {
    for (uint32_t s = 0; s < VOCAB_SLICES + 1; s++) {
        if (!(v->slices[s] = calloc(v->n_words, sizeof **v->slices))) return err_set_nomem(e);
        for (uint32_t i = 0; i < v->n_tokens; i++)
            if (chars[i] && chars[i] <= s) v->slices[s][i >> 5] |= 1u << (i & 31);
    }
    return 0;
}

int grammar_vocab_open_texts(grammar_vocab **out, const view *texts, size_t n, const int32_t *end_ids, size_t n_end_ids,
                             err *e) {
    grammar_vocab *v = calloc(1, sizeof *v);
    uint32_t      *lists[2] = { NULL, NULL }, *chars = NULL;
    size_t         counts[2] = { 0, 0 }, total = 0;
    int            rc = ERR_NOMEM;
    *out = NULL;
    if (!v) return err_set_nomem(e);
    v->id = atomic_fetch_add(&last_id, 1) + 1;
    if (n == 0 || n > MAX_TOKENS) {
        rc = err_set(e, ERR_ARG, "a vocabulary of %zu tokens is not supported", n);
        goto fail;
    }
    v->n_tokens = (uint32_t)n;
    v->n_words = (uint32_t)((n + 31) / 32);
    for (size_t i = 0; i < n; i++)
        if (texts[i].len <= VOCAB_MAX_TOKEN) total += texts[i].len;
    if (total > UINT32_MAX) {
        rc = err_set(e, ERR_LIMIT, "the vocabulary's texts are too long");
        goto fail;
    }
    v->bytes = malloc(total + 1);
    v->offsets = malloc((n + 1) * sizeof *v->offsets);
    v->same = malloc(n * sizeof *v->same);
    v->ends = malloc((n_end_ids + 1) * sizeof *v->ends);
    chars = calloc(n, sizeof *chars);
    lists[0] = malloc(n * sizeof **lists);
    lists[1] = malloc(n * sizeof **lists);
    if (!v->bytes || !v->offsets || !v->same || !v->ends || !chars || !lists[0] || !lists[1]) {
        rc = err_set_nomem(e);
        goto fail;
    }
    total = 0;
    for (size_t i = 0; i < n; i++) {
        /* Longer tokens exist in no vocabulary; one is never allowed. */
        size_t len = texts[i].len <= VOCAB_MAX_TOKEN ? texts[i].len : 0;
        int    which;
        v->offsets[i] = (uint32_t)total;
        v->same[i] = -1;
        if (!len) continue;
        memcpy(v->bytes + total, texts[i].data, len);
        total += len;
        if (len > v->longest) v->longest = (uint32_t)len;
        chars[i] = plain_chars(texts[i].data, len);
        which = chars[i] ? VOCAB_PLAIN : VOCAB_OTHER;
        lists[which][counts[which]++] = (uint32_t)i;
    }
    v->offsets[n] = (uint32_t)total;
    for (int k = 0; k < 2; k++) {
        qsort_r(lists[k], counts[k], sizeof **lists, by_bytes, v);
        if ((rc = trie_build(v, &v->tries[k], lists[k], counts[k], chars, e)) < 0) goto fail;
    }
    if ((rc = slices_build(v, chars, e)) < 0) goto fail;
    for (size_t i = 0; i < n_end_ids; i++)
        if (end_ids[i] >= 0 && (size_t)end_ids[i] < n) v->ends[v->n_ends++] = end_ids[i];
    *out = v;
    v = NULL;
    rc = 0;
fail:
    free(lists[0]);
    free(lists[1]);
    free(chars);
    grammar_vocab_free(v);
    return rc;
}

static bool is_text(const tok *t, int32_t id) {
    tok_class c = tok_class_of(t, id);
    return (c == TOK_NORMAL || c == TOK_USER || c == TOK_BYTE) && !tok_is_special(t, id) && !tok_is_end(t, id);
}

int grammar_vocab_open(grammar_vocab **out, const tok *t, err *e) {
    size_t         n = (size_t)tok_count(t), n_ends, *offsets = malloc((n + 1) * sizeof *offsets);
    view          *texts = calloc(n + 1, sizeof *texts);
    const int32_t *ends = tok_end_ids(t, &n_ends);
    str            all;
    int            rc = ERR_NOMEM;
    *out = NULL;
    str_init(&all);
    if (!texts || !offsets) goto fail;
    for (size_t i = 0; i < n; i++) {
        offsets[i] = all.len;
        if (is_text(t, (int32_t)i)) tok_bytes(t, (int32_t)i, &all);
    }
    offsets[n] = all.len;
    if (!str_ok(&all)) goto fail;
    for (size_t i = 0; i < n; i++) texts[i] = (view){ str_cstr(&all) + offsets[i], offsets[i + 1] - offsets[i] };
    rc = grammar_vocab_open_texts(out, texts, n, ends, n_ends, e);
fail:
    if (rc == ERR_NOMEM) err_set_nomem(e);
    str_deinit(&all);
    free(texts);
    free(offsets);
    return rc;
}
