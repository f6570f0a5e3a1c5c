/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unigram: the segmentation with the highest sum of scores, by dynamic programming over byte positions. The work is
 * bounded by the text's length times the longest piece. Also WordPiece (longest match first) and plain word lists.
 */
#include "tokenizer/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct cell {
    double   score;
    uint32_t start; /* where the best piece that ends here begins; UINT32_MAX: none yet */
    int32_t  id;
} cell;

static int build_trie(tok *t, trie *out, int (*pick)(const tok *t, uint32_t id, view *text), err *e) {
    size_t    n = 0;
    int       rc;
    trie_key *keys = malloc((size_t)t->v.n * sizeof *keys + 1);
    if (!keys) return err_set_nomem(e);
    for (uint32_t id = 0; id < t->v.n; id++) {
        view text = vocab_text(&t->v, id);
        if (!pick(t, id, &text) || text.len == 0) continue;
        keys[n++] = (trie_key){ text.data, (uint32_t)text.len, (int32_t)id };
    }
    rc = trie_build(out, keys, n, e);
    free(keys);
    return rc;
}

static int pick_piece(const tok *t, uint32_t id, view *text) {
    tok_class k = vocab_class(&t->v, (uint32_t)id);
    (void)text;
    if (!tok_in_model(t, id)) return 0;
    if (t->all_pieces) return k != TOK_UNDEFINED;
    return k == TOK_NORMAL || k == TOK_USER || (k == TOK_UNUSED && t->gguf_added);
}

int unigram_prepare(tok *t, err *e) {
    double lowest = INFINITY, highest = -INFINITY;
    for (uint32_t id = 0; id < t->v.n && t->v.score; id++) {
        if (t->all_pieces ? vocab_class(&t->v, (uint32_t)id) == TOK_UNDEFINED || !tok_in_model(t, id)
                          : vocab_class(&t->v, (uint32_t)id) != TOK_NORMAL)
            continue;
        if (t->v.score[id] < lowest) lowest = t->v.score[id];
        if (t->v.score[id] > highest) highest = t->v.score[id];
    }
    if (!isfinite(lowest)) lowest = highest = 0;
    t->min_score = lowest;
    t->max_score = highest;
    t->unk_score = t->float_scores ? (float)((float)lowest - 10.0f) : lowest - 10.0;
    return build_trie(t, &t->words, pick_piece, e);
}

static double piece_score(const tok *t, int32_t id, size_t len) {
    if (vocab_class(&t->v, (uint32_t)id) == TOK_USER && !t->all_pieces)
        return t->gguf_added ? 0.0 : (double)(float)((double)((float)len * (float)t->max_score) - 0.1);
    return t->v.score ? t->v.score[id] : 0;
}

static inline void offer(const tok *t, cell *to, double base, double score, uint32_t start, int32_t id) {
    double sum = t->float_scores ? (double)((float)score + (float)base) : score + base;
    if (to->start == UINT32_MAX || sum > to->score) *to = (cell){ sum, start, id };
}

/* Consecutive unknown characters come out as one unknown token, or as their bytes. */
static bool put_unknown(const tok *t, const char *text, size_t bytes, tok_ids *out) {
    /* A fused run may itself be a piece. */
    int32_t id = t->all_pieces ? vocab_find(&t->v, text, bytes) : -1;
    if (id >= 0 && tok_in_model(t, (uint32_t)id)) return tok_ids_push(out, id);
    if (t->byte_fallback) {
        size_t k = 0;
        while (k < bytes && t->byte_ids[(uint8_t)text[k]] >= 0) k++;
        if (k == bytes) {
            for (k = 0; k < bytes; k++) {
                if (!tok_ids_push(out, t->byte_ids[(uint8_t)text[k]])) return false;
            }
            return true;
        }
    }
    return tok_ids_push(out, t->unk);
}

int unigram_encode(const tok *t, tok_ctx *c, const char *text, size_t bytes, tok_ids *out, err *e) {
    if (bytes == 0) return 0;
    if (c->best_cap < bytes + 1) {
        free(c->best);
        c->best_cap = 0;
        size_t cap = bytes + bytes / 2 + 64;
        if (!(c->best = malloc(cap * sizeof(cell)))) return err_set_nomem(e);
        c->best_cap = cap;
    }
    cell *best = c->best;
    for (size_t i = 0; i <= bytes; i++) best[i] = (cell){ 0, UINT32_MAX, -1 };
    for (size_t i = 0; i < bytes;) {
        size_t   len = utf8_length((uint8_t)text[i]);
        uint32_t node = 0;
        bool     single = false;
        for (size_t k = i; k < bytes && (node = trie_step(&t->words, node, (uint8_t)text[k])); k++) {
            int32_t id = t->words.nodes[node].value;
            if (id < 0) continue;
            offer(t, &best[k + 1], best[i].score, piece_score(t, id, k + 1 - i), (uint32_t)i, id);
            if (k + 1 - i == len) single = true;
        }
        if (!single) {
            if (t->unk < 0)
                return err_set(e, ERR_UNSUPPORTED,
                               "the text has a character that is in no piece, and the vocabulary has no unknown token");
            offer(t, &best[i + len], best[i].score, t->unk_score, (uint32_t)i, t->unk);
        }
        i += len;
    }
    /* Walk back, then forward: starts are chained through best[].id's neighbour cells. */
    uint32_t next = (uint32_t)bytes;
    for (uint32_t at = (uint32_t)bytes; at > 0;) {
        uint32_t start = best[at].start;
        best[at].start = next; /* now: where the piece behind this one ends */
        next = at;
        at = start;
    }
    for (uint32_t start = 0, end = next; start < bytes;) {
        int32_t  id = best[end].id;
        uint32_t after = best[end].start;
        if (id == t->unk) {
            uint32_t from = start;
            while (end < bytes && best[after].id == t->unk) {
                end = after;
                after = best[end].start;
            }
            if (!put_unknown(t, text + from, end - from, out)) return err_set_nomem(e);
        } else if (!tok_ids_push(out, id)) {
            return err_set_nomem(e);
        }
        start = end;
        end = after;
    }
    return 0;
}

/* ---- WordPiece ---- */

static bool word_start(const tok *t, uint32_t id, view *text) {
    if (vocab_class(&t->v, (uint32_t)id) == TOK_UNDEFINED || !tok_in_model(t, id)) return false;
    if (!t->gguf_added) return true;
    if (!view_starts(*text, "\xE2\x96\x81")) return false;
    *text = (view){ text->data + 3, text->len - 3 };
    return true;
}

static int pick_start(const tok *t, uint32_t id, view *text) { return word_start(t, id, text); }

static int pick_continuation(const tok *t, uint32_t id, view *text) {
    if (vocab_class(&t->v, (uint32_t)id) == TOK_UNDEFINED || !tok_in_model(t, id)) return false;
    if (t->gguf_added) return !view_starts(*text, "\xE2\x96\x81") && vocab_class(&t->v, (uint32_t)id) == TOK_NORMAL;
    if (text->len < t->prefix.len || memcmp(text->data, t->prefix.data, t->prefix.len) != 0) return false;
    *text = (view){ text->data + t->prefix.len, text->len - t->prefix.len };
    return true;
}

int wordpiece_prepare(tok *t, err *e) {
    int rc = build_trie(t, &t->words, pick_start, e);
    return rc < 0 ? rc : build_trie(t, &t->conts, pick_continuation, e);
}

int wordpiece_encode(const tok *t, tok_ctx *c, const char *word, size_t bytes, tok_ids *out, err *e) {
    size_t before = out->count, chars = 0;
    bool   bad = false;
    (void)c;
    for (size_t i = 0; i < bytes; i++) chars += ((uint8_t)word[i] & 0xC0) != 0x80;
    if (chars == 0) return 0;
    bad = chars > t->max_word_chars;
    for (size_t i = 0; i < bytes && !bad;) {
        const trie *dict = i == 0 ? &t->words : &t->conts;
        uint32_t    node = 0;
        size_t      end = 0;
        int32_t     id = -1;
        for (size_t k = i; k < bytes && dict->nodes && (node = trie_step(dict, node, (uint8_t)word[k])); k++) {
            if (dict->nodes[node].value >= 0) {
                id = dict->nodes[node].value;
                end = k + 1;
            }
        }
        if (id < 0) {
            bad = true;
        } else {
            if (!tok_ids_push(out, id)) return err_set_nomem(e);
            i = end;
        }
    }
    if (!bad) return 0;
    out->count = before;
    if (t->unk < 0) return err_set(e, ERR_UNSUPPORTED, "a word is not in the vocabulary, which has no unknown token");
    return tok_ids_push(out, t->unk) ? 0 : err_set_nomem(e);
}

int wordlevel_encode(const tok *t, tok_ctx *c, const char *word, size_t bytes, tok_ids *out, err *e) {
    int32_t id = vocab_find(&t->v, word, bytes);
    (void)c;
    if (id >= 0 && !tok_in_model(t, (uint32_t)id)) id = -1;
    if (id < 0) id = t->unk;
    if (id < 0) return err_set(e, ERR_UNSUPPORTED, "a word is not in the vocabulary, which has no unknown token");
    return tok_ids_push(out, id) ? 0 : err_set_nomem(e);
}
