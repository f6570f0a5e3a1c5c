/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Byte pair encoding.
 *
 * A word becomes a row of symbols (bytes for byte-level vocabularies, characters otherwise); the neighbouring pair with
 * the lowest rank is merged until none is left, leftmost first among equals. Short words are merged by scanning; long
 * ones with a heap over a linked list, n log n. Results of short words are kept in a cache that belongs to the scratch
 * context. Merging works on ids: pair of ids -> rank and id of the result, in one open-addressed table.
 *
 * A GGUF may list merges whose parts or results are not tokens. They still take part in merging there, so such texts get
 * ids behind the vocabulary ("extra" symbols) that come out as the tokens of their single bytes, if those exist.
 */
#include "base/map.h"
#include "base/num.h"
#include "tokenizer/internal.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

enum { SHORT_WORD = 48, CACHE_SLOTS = 16384, CACHE_KEY = 26, CACHE_IDS = 8 };

typedef struct cache_slot {
    uint32_t tag; /* of the hash; 0: free */
    uint8_t  len, n_ids;
    char     key[CACHE_KEY];
    int32_t  ids[CACHE_IDS];
} cache_slot;

struct word_cache {
    cache_slot slots[CACHE_SLOTS];
};

void word_cache_free(word_cache *w) { free(w); }

/* ---- the merge table ---- */

static inline uint64_t merge_hash(uint64_t pair) {
    pair = (pair ^ pair >> 32) * 0x9E3779B97F4A7C15u;
    return (pair ^ pair >> 29) * 0xD6E8FEB86659FD93u >> 20;
}

int bpe_merges_reserve(tok *t, size_t n, err *e) {
    size_t slots = 64;
    if (n > (size_t)1 << 27) return err_set(e, ERR_LIMIT, "%zu merges are too many", n);
    while (slots < n * 2) slots *= 2;
    t->merges = malloc(slots * sizeof *t->merges);
    if (!t->merges) return err_set_nomem(e);
    memset(t->merges, 0xFF, slots * sizeof *t->merges);
    t->merge_mask = (uint32_t)(slots - 1);
    return 0;
}

int bpe_merge_add(tok *t, uint32_t left, uint32_t right, uint32_t rank, uint32_t id) {
    uint64_t pair = (uint64_t)left << 32 | right, i = merge_hash(pair) & t->merge_mask;
    while (t->merges[i].pair != UINT64_MAX) {
        if (t->merges[i].pair == pair) return 0;
        i = (i + 1) & t->merge_mask;
    }
    t->merges[i] = (merge_slot){ pair, rank, id };
    return 0;
}

static inline const merge_slot *merge_find(const tok *t, uint32_t left, uint32_t right) {
    uint64_t pair = (uint64_t)left << 32 | right, i = merge_hash(pair) & t->merge_mask;
    for (;;) {
        const merge_slot *m = &t->merges[i];
        if (m->pair == pair) return m;
        if (m->pair == UINT64_MAX) return NULL;
        i = (i + 1) & t->merge_mask;
    }
}

/* ---- loading ---- */

/* Decodes all tokens from GPT-2's alphabet and fills the byte table. */
static int prepare_byte_level(tok *t, err *e) {
    t->raw_off = malloc(((size_t)t->v.n + 1) * sizeof *t->raw_off);
    if (!t->raw_off || !str_reserve(&t->raw, t->v.blob.len)) return err_set_nomem(e);
    for (uint32_t id = 0; id < t->v.n; id++) {
        view text = vocab_text(&t->v, id);
        t->raw_off[id] = (uint32_t)t->raw.len;
        /* Added tokens of a GGUF are plain text: a user-defined U+00FD is that letter, not the byte FD. */
        bool plain = t->gguf_added && vocab_class(&t->v, id) != TOK_NORMAL;
        if (plain || !byte_level_decode(text, &t->raw)) str_append(&t->raw, text.data, text.len);
    }
    t->raw_off[t->v.n] = (uint32_t)t->raw.len;
    if (!str_ok(&t->raw)) return err_set_nomem(e);
    for (unsigned b = 0; b < 256; b++) {
        char     text[2];
        unsigned cp = byte_to_char[b];
        size_t   n = 1;
        if (t->base[b] != NONE) continue; /* an extra symbol, set by the loader */
        if (cp < 0x80) {
            text[0] = (char)cp;
        } else {
            text[0] = (char)(0xC0 | cp >> 6);
            text[1] = (char)(0x80 | (cp & 63));
            n = 2;
        }
        int32_t id = vocab_find(&t->v, text, n);
        if (id >= 0) t->base[b] = (uint32_t)id;
    }
    return 0;
}

/* Index over the raw bytes of tokens; the last of equals wins, as in the text index. */
static int prepare_raw_index(tok *t, err *e) {
    uint32_t n_slots = 64;
    while (n_slots < t->v.n * 2) n_slots *= 2;
    t->raw_slots = calloc(n_slots, sizeof *t->raw_slots);
    if (!t->raw_slots) return err_set_nomem(e);
    t->raw_n_slots = n_slots;
    for (uint32_t id = 0; id < t->v.n; id++) {
        const char *p = t->raw.data + t->raw_off[id];
        uint32_t    n = t->raw_off[id + 1] - t->raw_off[id];
        if (n == 0) continue;
        uint32_t h = vocab_hash(&t->v, p, n), i = h & (n_slots - 1);
        for (; t->raw_slots[i]; i = (i + 1) & (n_slots - 1)) {
            uint32_t other = (uint32_t)t->raw_slots[i] - 1;
            if ((uint32_t)(t->raw_slots[i] >> 32) == h && t->raw_off[other + 1] - t->raw_off[other] == n &&
                memcmp(t->raw.data + t->raw_off[other], p, n) == 0)
                break;
        }
        t->raw_slots[i] = (uint64_t)h << 32 | (id + 1);
    }
    return 0;
}

static int32_t raw_find(const tok *t, const char *word, size_t bytes) {
    if (bytes > t->v.max_len) return -1;
    uint32_t h = vocab_hash(&t->v, word, bytes), mask = t->raw_n_slots - 1;
    for (uint32_t i = h & mask; t->raw_slots[i]; i = (i + 1) & mask) {
        uint32_t id = (uint32_t)t->raw_slots[i] - 1;
        if ((uint32_t)(t->raw_slots[i] >> 32) == h && t->raw_off[id + 1] - t->raw_off[id] == bytes &&
            memcmp(t->raw.data + t->raw_off[id], word, bytes) == 0)
            return (int32_t)id;
    }
    return -1;
}

int bpe_prepare(tok *t, err *e) {
    int rc = 0;
    if (!t->merges && (rc = bpe_merges_reserve(t, 1, e)) < 0) return rc;
    if (t->byte_level) {
        rc = prepare_byte_level(t, e);
        if (rc == 0 && t->ignore_merges) rc = prepare_raw_index(t, e);
    }
    t->cache_words = true;
    return rc;
}

/* ---- encoding ---- */

static bool put(const tok *t, tok_ids *out, uint32_t sym) {
    if (sym < t->v.n) return tok_ids_push(out, (int32_t)sym);
    size_t k = sym - t->v.n;
    for (uint32_t i = t->extra_off[k]; i < t->extra_off[k + 1]; i++) {
        if (!tok_ids_push(out, t->extra_ids[i])) return false;
    }
    return true;
}

/* The symbols of a word into c->sym; the count, or SIZE_MAX when out of memory. */
static size_t symbols_of_chars(const tok *t, tok_ctx *c, const char *word, size_t bytes) {
    size_t n = 0, room = bytes * (1 + t->prefix.len + t->suffix.len) + 2;
    bool   unk_waits = false;
    if (!ctx_symbols(c, room)) return SIZE_MAX;
    for (size_t i = 0; i < bytes;) {
        size_t      len = utf8_length((uint8_t)word[i]);
        const char *s = word + i;
        size_t      s_len = len;
        bool        last = i + len >= bytes;
        if ((t->prefix.len && i > 0) || (t->suffix.len && last)) {
            str_clear(&c->word);
            if (i > 0) str_append(&c->word, t->prefix.data, t->prefix.len);
            str_append(&c->word, s, s_len);
            if (last) str_append(&c->word, t->suffix.data, t->suffix.len);
            if (!str_ok(&c->word)) return SIZE_MAX;
            s = c->word.data;
            s_len = c->word.len;
        }
        i += len;
        int32_t id = vocab_find(&t->v, s, s_len);
        if (id >= 0 && !tok_in_model(t, (uint32_t)id)) id = -1;
        if (id >= 0) {
            if (unk_waits) c->sym[n++] = (uint32_t)t->unk;
            unk_waits = false;
            c->sym[n++] = (uint32_t)id;
            continue;
        }
        if (t->byte_fallback) {
            size_t k = 0;
            while (k < s_len && t->byte_ids[(uint8_t)s[k]] >= 0) k++;
            if (k == s_len) {
                for (k = 0; k < s_len; k++) c->sym[n++] = (uint32_t)t->byte_ids[(uint8_t)s[k]];
                continue;
            }
        }
        if (t->unk < 0) continue;
        if (unk_waits && !t->fuse_unk) c->sym[n++] = (uint32_t)t->unk;
        unk_waits = true;
    }
    if (unk_waits) c->sym[n++] = (uint32_t)t->unk;
    return n;
}

static size_t symbols_of_bytes(const tok *t, tok_ctx *c, const char *word, size_t bytes) {
    size_t n = 0;
    bool   was_unk = false;
    if (!ctx_symbols(c, bytes)) return SIZE_MAX;
    for (size_t i = 0; i < bytes; i++) {
        uint32_t s = t->base[(uint8_t)word[i]];
        if (s != NONE) {
            c->sym[n++] = s;
            was_unk = false;
        } else if (t->unk >= 0) {
            if (!(was_unk && t->fuse_unk)) c->sym[n++] = (uint32_t)t->unk;
            was_unk = true;
        }
    }
    return n;
}

/* Merges n symbols in place by repeated scans; the number that is left. */
static size_t merge_short(const tok *t, uint32_t *sym, size_t n) {
    uint32_t rank[SHORT_WORD], id[SHORT_WORD];
    for (size_t i = 0; i + 1 < n; i++) {
        const merge_slot *m = merge_find(t, sym[i], sym[i + 1]);
        rank[i] = m ? m->rank : NONE;
        id[i] = m ? m->id : 0;
    }
    while (n > 1) {
        size_t   best = 0;
        uint32_t lowest = rank[0];
        for (size_t i = 1; i + 1 < n; i++) {
            if (rank[i] < lowest) {
                lowest = rank[i];
                best = i;
            }
        }
        if (lowest == NONE) break;
        sym[best] = id[best];
        n--;
        memmove(sym + best + 1, sym + best + 2, (n - best - 1) * sizeof *sym);
        memmove(rank + best, rank + best + 1, (n - best) * sizeof *rank);
        memmove(id + best, id + best + 1, (n - best) * sizeof *id);
        for (size_t k = best ? best - 1 : 0; k <= best && k + 1 < n; k++) {
            const merge_slot *m = merge_find(t, sym[k], sym[k + 1]);
            rank[k] = m ? m->rank : NONE;
            id[k] = m ? m->id : 0;
        }
    }
    return n;
}

static bool push_pair(const tok *t, tok_ctx *c, uint32_t left, uint32_t right) {
    const merge_slot *m = merge_find(t, c->sym[left], c->sym[right]);
    return !m || ctx_heap_push(c, (uint64_t)m->rank << 32 | left);
}

static bool merge_long(const tok *t, tok_ctx *c, size_t n, tok_ids *out) {
    c->heap_n = 0;
    for (uint32_t i = 0; i < n; i++) {
        c->prev[i] = i - 1; /* NONE for the first */
        c->next_sym[i] = i + 1 < n ? i + 1 : NONE;
        if (i + 1 < n && !push_pair(t, c, i, i + 1)) return false;
    }
    while (c->heap_n) {
        uint64_t key = ctx_heap_pop(c);
        uint32_t left = (uint32_t)key, right;
        if (c->sym[left] == NONE || (right = c->next_sym[left]) == NONE) continue;
        const merge_slot *m = merge_find(t, c->sym[left], c->sym[right]);
        if (!m || m->rank != (uint32_t)(key >> 32)) continue; /* the pair has changed since */
        c->sym[left] = m->id;
        c->sym[right] = NONE;
        c->next_sym[left] = c->next_sym[right];
        if (c->next_sym[left] != NONE) c->prev[c->next_sym[left]] = left;
        if (c->prev[left] != NONE && !push_pair(t, c, c->prev[left], left)) return false;
        if (c->next_sym[left] != NONE && !push_pair(t, c, left, c->next_sym[left])) return false;
    }
    for (uint32_t i = 0; i != NONE; i = c->next_sym[i]) {
        if (!put(t, out, c->sym[i])) return false;
    }
    return true;
}

static int encode_word(const tok *t, tok_ctx *c, const char *word, size_t bytes, tok_ids *out, err *e) {
    if (t->ignore_merges || (t->newline_words && word[0] == '\n')) {
        int32_t id = t->byte_level ? raw_find(t, word, bytes) : vocab_find(&t->v, word, bytes);
        if (id >= 0 && tok_in_model(t, (uint32_t)id)) return tok_ids_push(out, id) ? 0 : err_set_nomem(e);
    }
    size_t n = t->byte_level ? symbols_of_bytes(t, c, word, bytes) : symbols_of_chars(t, c, word, bytes);
    if (n == SIZE_MAX) return err_set_nomem(e);
    if (n == 0) return 0;
    if (n > SHORT_WORD) return merge_long(t, c, n, out) ? 0 : err_set_nomem(e);
    n = merge_short(t, c->sym, n);
    for (size_t i = 0; i < n; i++) {
        if (!put(t, out, c->sym[i])) return err_set_nomem(e);
    }
    return 0;
}

static inline uint64_t mix(uint64_t h, uint64_t w) {
    h = (h ^ w) * 0x9E3779B97F4A7C15u;
    return h ^ h >> 29;
}

int bpe_encode(const tok *t, tok_ctx *c, const char *word, size_t bytes, tok_ids *out, err *e) {
    if (bytes > CACHE_KEY || bytes == 0 || !t->cache_words) return bytes ? encode_word(t, c, word, bytes, out, e) : 0;
    if (bytes == 1 && t->byte_level && !t->ignore_merges && t->base[(uint8_t)word[0]] < t->v.n)
        return tok_ids_push(out, (int32_t)t->base[(uint8_t)word[0]]) ? 0 : err_set_nomem(e);
    if (!c->cache && !(c->cache = calloc(1, sizeof *c->cache))) return err_set_nomem(e);
    uint64_t k[4] = { 0 };
    memcpy(k, word, bytes);
    uint64_t    h = mix(mix(mix(mix(bytes, k[0]), k[1]), k[2]), k[3]);
    cache_slot *s = &c->cache->slots[h & (CACHE_SLOTS - 1)];
    uint32_t    tag = (uint32_t)(h >> 32) | 1;
    if (s->tag == tag && s->len == bytes && memcmp(s->key, word, bytes) == 0) {
        if (out->cap - out->count < CACHE_IDS) {
            for (unsigned i = 0; i < s->n_ids; i++) {
                if (!tok_ids_push(out, s->ids[i])) return err_set_nomem(e);
            }
            return 0;
        }
        memcpy(out->data + out->count, s->ids, sizeof s->ids);
        out->count += s->n_ids;
        return 0;
    }
    size_t before = out->count;
    int    rc = encode_word(t, c, word, bytes, out, e);
    if (rc < 0) return rc;
    size_t n = out->count - before;
    if (n <= CACHE_IDS) {
        s->tag = tag;
        s->len = (uint8_t)bytes;
        s->n_ids = (uint8_t)n;
        memcpy(s->key, word, bytes);
        if (n) memcpy(s->ids, out->data + before, n * sizeof *s->ids);
    }
    return 0;
}

/* ---- SentencePiece's BPE: the pair whose joined text has the best score is merged ---- */

static int compare_scores(const void *pa, const void *pb, void *scores) {
    const double *s = scores;
    double        a = s[*(const uint32_t *)pa], b = s[*(const uint32_t *)pb];
    return a > b ? -1 : a < b;
}

int spm_prepare(tok *t, err *e) {
    uint32_t *order = malloc((size_t)t->v.n * sizeof *order + 1);
    t->ranks = malloc((size_t)t->v.n * sizeof *t->ranks + 1);
    if (!order || !t->ranks) {
        free(order);
        return err_set_nomem(e);
    }
    for (uint32_t i = 0; i < t->v.n; i++) order[i] = i;
    if (t->v.score && t->v.n > 1) qsort_r(order, t->v.n, sizeof *order, compare_scores, t->v.score);
    for (uint32_t i = 0, rank = 0; i < t->v.n; i++) {
        if (i > 0 && t->v.score && t->v.score[order[i]] != t->v.score[order[i - 1]]) rank = i;
        t->ranks[order[i]] = rank; /* equal scores share a rank: the leftmost pair goes first */
    }
    free(order);
    t->cache_words = true;
    return 0;
}

static bool mergeable(const tok *t, int32_t id) {
    if (t->gguf_added) return true;
    if (!tok_in_model(t, (uint32_t)id)) return false;
    tok_class k = vocab_class(&t->v, (uint32_t)id);
    return k == TOK_NORMAL || k == TOK_USER || k == TOK_UNUSED;
}

/* The token that joins the symbols left and right, or -1. pos[i] is the byte where symbol i starts; pos[n] the end. */
static int32_t spm_joined(const tok *t, const tok_ctx *c, const char *word, uint32_t left, uint32_t right,
                          size_t bytes) {
    uint32_t after = c->next_sym[right];
    size_t   end = after == NONE ? bytes : c->pos[after];
    if (c->sym[left] == 1 || c->sym[right] == 1) return -1; /* frozen */
    int32_t id = vocab_find(&t->v, word + c->pos[left], end - c->pos[left]);
    return id >= 0 && mergeable(t, id) ? id : -1;
}

static bool spm_push(const tok *t, tok_ctx *c, const char *word, uint32_t left, uint32_t right, size_t bytes) {
    int32_t id = spm_joined(t, c, word, left, right, bytes);
    return id < 0 || ctx_heap_push(c, (uint64_t)t->ranks[id] << 32 | left);
}

static bool spm_put(const tok *t, const char *text, size_t len, bool *was_unk, tok_ids *out) {
    int32_t id = vocab_find(&t->v, text, len);
    if (id >= 0 && mergeable(t, id)) {
        *was_unk = false;
        return tok_ids_push(out, id);
    }
    if (t->byte_fallback) {
        *was_unk = false;
        for (size_t i = 0; i < len; i++) {
            int32_t b = t->byte_ids[(uint8_t)text[i]];
            if (b >= 0 ? !tok_ids_push(out, b) : t->unk >= 0 && !tok_ids_push(out, t->unk)) return false;
        }
        return true;
    }
    if (t->unk < 0 || (*was_unk && t->fuse_unk)) return true;
    *was_unk = true;
    return tok_ids_push(out, t->unk);
}

static int spm_word(const tok *t, tok_ctx *c, const char *word, size_t bytes, bool *was_unk, tok_ids *out, err *e) {
    uint32_t n = 0;
    if (!ctx_symbols(c, bytes)) return err_set_nomem(e);
    for (size_t i = 0; i < bytes; n++) {
        size_t len = utf8_length((uint8_t)word[i]), frozen = 0;
        if (t->user.nodes) { /* user-defined symbols stay whole */
            uint32_t node = 0;
            for (size_t k = i; k < bytes && (node = trie_step(&t->user, node, (uint8_t)word[k])); k++) {
                if (t->user.nodes[node].value >= 0) frozen = k + 1 - i;
            }
        }
        c->pos[n] = (uint32_t)i;
        c->sym[n] = frozen ? 1 : 0;
        c->prev[n] = n - 1;
        c->next_sym[n] = n + 1;
        i += frozen ? frozen : len;
    }
    c->next_sym[n - 1] = NONE;
    c->heap_n = 0;
    for (uint32_t i = 0; i + 1 < n; i++) {
        if (!spm_push(t, c, word, i, i + 1, bytes)) return err_set_nomem(e);
    }
    while (c->heap_n) {
        uint64_t key = ctx_heap_pop(c);
        uint32_t left = (uint32_t)key, right;
        if (c->sym[left] == 2 || (right = c->next_sym[left]) == NONE) continue; /* 2: merged into its left neighbour */
        int32_t id = spm_joined(t, c, word, left, right, bytes);
        if (id < 0 || t->ranks[id] != (uint32_t)(key >> 32)) continue;
        c->sym[right] = 2;
        c->next_sym[left] = c->next_sym[right];
        if (c->next_sym[left] != NONE) c->prev[c->next_sym[left]] = left;
        if (c->prev[left] != NONE && !spm_push(t, c, word, c->prev[left], left, bytes)) return err_set_nomem(e);
        if (c->next_sym[left] != NONE && !spm_push(t, c, word, left, c->next_sym[left], bytes)) return err_set_nomem(e);
    }
    for (uint32_t i = 0; i != NONE; i = c->next_sym[i]) {
        size_t end = c->next_sym[i] == NONE ? bytes : c->pos[c->next_sym[i]];
        if (!spm_put(t, word + c->pos[i], end - c->pos[i], was_unk, out)) return err_set_nomem(e);
    }
    return 0;
}

int spm_encode(const tok *t, tok_ctx *c, const char *text, size_t bytes, tok_ids *out, err *e) {
    bool   was_unk = false;
    size_t start = 0;
    int    rc;
    if (bytes == 0) return 0;
    if (!t->split_words) return spm_word(t, c, text, bytes, &was_unk, out, e);
    /* No token crosses the start of a word (a U+2581 behind something else), so words can be merged one by one. */
    for (size_t i = 3; i <= bytes; i++) {
        bool cut = i == bytes;
        if (!cut && (uint8_t)text[i] == 0xE2 && bytes - i >= 3 && memcmp(text + i, "\xE2\x96\x81", 3) == 0)
            cut = memcmp(text + i - 3, "\xE2\x96\x81", 3) != 0;
        if (!cut) continue;
        if ((rc = spm_word(t, c, text + start, i - start, &was_unk, out, e)) < 0) return rc;
        start = i;
    }
    return start < bytes ? spm_word(t, c, text + start, bytes - start, &was_unk, out, e) : 0;
}
