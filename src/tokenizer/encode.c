/* SPDX-License-Identifier: Apache-2.0 */
/* The pipeline from text to ids, the scratch contexts, and the life of a tokenizer. */
#include "base/num.h"
#include "tokenizer/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- ids ---- */

void tok_ids_deinit(tok_ids *ids) {
    free(ids->data);
    *ids = (tok_ids){ 0 };
}

bool tok_ids_push(tok_ids *ids, int32_t id) {
    if (ids->count == ids->cap) {
        size_t   cap = ids->cap ? ids->cap * 2 : 256;
        int32_t *p = realloc(ids->data, cap * sizeof *p);
        if (!p) return false;
        ids->data = p;
        ids->cap = cap;
    }
    ids->data[ids->count++] = id;
    return true;
}

/* ---- scratch ---- */

static void ctx_free(tok_ctx *c) {
    if (!c) return;
    str *const        strings[] = { &c->clean, &c->norm, &c->tmp, &c->pre, &c->pre2, &c->word };
    piece_list *const lists[] = { &c->pieces, &c->pieces2, &c->matches, &c->segments, &c->segments2 };
    for (size_t i = 0; i < sizeof strings / sizeof strings[0]; i++) str_deinit(strings[i]);
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) free(lists[i]->data);
    free(c->segment_ids);
    free(c->segment_ids2);
    free(c->sym);
    free(c->prev);
    free(c->next_sym);
    free(c->pos);
    free(c->heap);
    free(c->best);
    free(c->taken);
    word_cache_free(c->cache);
    regex_scratch_free(c);
    free(c);
}

tok_ctx *tok_ctx_take(const tok *t) {
    tok     *m = (tok *)t; /* the pool is the one part that changes; the lock guards it */
    tok_ctx *c;
    pthread_mutex_lock(&m->lock);
    c = m->free_ctx;
    if (c) m->free_ctx = c->next;
    pthread_mutex_unlock(&m->lock);
    return c ? c : calloc(1, sizeof *c);
}

void tok_ctx_give(const tok *t, tok_ctx *c) {
    tok *m = (tok *)t;
    if (!c) return;
    piece_list *const lists[] = { &c->pieces, &c->pieces2, &c->matches, &c->segments, &c->segments2 };
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) lists[i]->failed = false;
    pthread_mutex_lock(&m->lock);
    c->next = m->free_ctx;
    m->free_ctx = c;
    pthread_mutex_unlock(&m->lock);
}

bool ctx_symbols(tok_ctx *c, size_t n) {
    if (n <= c->sym_cap) return true;
    size_t          cap = n + n / 2 + 64;
    uint32_t *const old[] = { c->sym, c->prev, c->next_sym, c->pos };
    for (size_t i = 0; i < 4; i++) free(old[i]);
    c->sym = malloc(cap * sizeof *c->sym);
    c->prev = malloc(cap * sizeof *c->prev);
    c->next_sym = malloc(cap * sizeof *c->next_sym);
    c->pos = malloc(cap * sizeof *c->pos);
    c->sym_cap = c->sym && c->prev && c->next_sym && c->pos ? cap : 0;
    return c->sym_cap != 0;
}

/* A heap with four children per node: fewer cache misses than with two. */
bool ctx_heap_push(tok_ctx *c, uint64_t key) {
    if (c->heap_n == c->heap_cap) {
        size_t    cap = c->heap_cap ? c->heap_cap * 2 : 1024;
        uint64_t *p = realloc(c->heap, cap * sizeof *p);
        if (!p) return false;
        c->heap = p;
        c->heap_cap = cap;
    }
    size_t i = c->heap_n++;
    while (i > 0) {
        size_t parent = (i - 1) / 4;
        if (c->heap[parent] <= key) break;
        c->heap[i] = c->heap[parent];
        i = parent;
    }
    c->heap[i] = key;
    return true;
}

uint64_t ctx_heap_pop(tok_ctx *c) {
    uint64_t top = c->heap[0], last = c->heap[--c->heap_n];
    size_t   n = c->heap_n, i = 0;
    for (;;) {
        size_t child = i * 4 + 1, best = child;
        if (child >= n) break;
        size_t end = child + 4 < n ? child + 4 : n;
        for (size_t k = child + 1; k < end; k++) {
            if (c->heap[k] < c->heap[best]) best = k;
        }
        if (c->heap[best] >= last) break;
        c->heap[i] = c->heap[best];
        i = best;
    }
    if (n) c->heap[i] = last;
    return top;
}

/* ---- the tokenizer ---- */

tok *tok_new(void) {
    tok *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    arena_init(&t->names, (size_t)64 << 20);
    pthread_mutex_init(&t->lock, NULL);
    t->bos = t->eos = t->eot = t->eom = t->pad = t->sep = t->mask = t->unk = -1;
    for (int i = 0; i < 256; i++) {
        t->base[i] = UINT32_MAX;
        t->byte_ids[i] = -1;
    }
    return t;
}

void tok_free(tok *t) {
    if (!t) return;
    while (t->free_ctx) {
        tok_ctx *c = t->free_ctx;
        t->free_ctx = c->next;
        ctx_free(c);
    }
    for (size_t i = 0; i < t->n_norm; i++) regex_free(t->norm[i].re);
    for (size_t i = 0; i < t->n_pre; i++) regex_free(t->pre[i].re);
    for (size_t i = 0; i < t->n_dec; i++) regex_free(t->dec[i].re);
    added_set *const sets[] = { &t->raw_special, &t->raw_plain, &t->norm_special, &t->norm_plain };
    for (size_t i = 0; i < 4; i++) added_set_deinit(sets[i]);
    charsmap_deinit(&t->map);
    trie_deinit(&t->user);
    trie_deinit(&t->words);
    trie_deinit(&t->conts);
    vocab_deinit(&t->v);
    str_deinit(&t->raw);
    free(t->raw_off);
    free(t->raw_slots);
    free(t->merges);
    free(t->ranks);
    free(t->extra_off);
    free(t->extra_ids);
    free(t->added);
    free(t->shown);
    free(t->ends);
    arena_deinit(&t->names);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

view tok_keep(tok *t, const char *text, size_t bytes) {
    char *p = arena_strndup(&t->names, text, bytes);
    return (view){ p, p ? bytes : 0 };
}

static bool steps_full(size_t n, const char *what, err *e) {
    if (n < TOK_MAX_STEPS) return false;
    err_set(e, ERR_LIMIT, "more than %d %s", TOK_MAX_STEPS, what);
    return true;
}

norm_step *tok_norm_add(tok *t, norm_kind kind, err *e) {
    if (steps_full(t->n_norm, "normalizers", e)) return NULL;
    norm_step *s = &t->norm[t->n_norm++];
    *s = (norm_step){ .kind = kind };
    return s;
}

pre_step *tok_pre_add(tok *t, pre_kind kind, err *e) {
    if (steps_full(t->n_pre, "pre-tokenizers", e)) return NULL;
    pre_step *s = &t->pre[t->n_pre++];
    *s = (pre_step){ .kind = kind, .behavior = SPLIT_ISOLATED };
    return s;
}

dec_step *tok_dec_add(tok *t, dec_kind kind, err *e) {
    if (steps_full(t->n_dec, "decoders", e)) return NULL;
    dec_step *s = &t->dec[t->n_dec++];
    *s = (dec_step){ .kind = kind };
    return s;
}

int tok_pre_add_pattern(tok *t, const char *pattern, size_t bytes, split_behavior behavior, bool invert, unsigned flags,
                        err *e) {
    pre_step *s = tok_pre_add(t, PRE_REGEX, e);
    splitter  fast = split_find(pattern, bytes, flags & REGEX_MULTILINE);
    bool      covers = fast.kind == SPLIT_LLAMA3 || fast.kind == SPLIT_GPT4O ||
                  (fast.kind == SPLIT_GPT2 && bytes > 4 && memcmp(pattern + bytes - 4, "|\\s+", 4) == 0);
    if (!s) return e ? e->code : ERR_LIMIT;
    s->behavior = behavior;
    s->invert = invert;
    /* Where the pattern takes every character, keeping only its matches is the same as isolating them. */
    if (fast.kind != SPLIT_NONE && (behavior == SPLIT_ISOLATED || (behavior == SPLIT_REMOVED && invert && covers))) {
        s->kind = PRE_SPLITTER;
        s->fast = fast;
        return 0;
    }
    return regex_open(&s->re, pattern, bytes, flags, e);
}

int tok_add_end(tok *t, int64_t id) {
    if (id < 0 || id >= t->v.n || tok_is_end(t, (int32_t)id)) return 0;
    int32_t *p = realloc(t->ends, (t->n_ends + 1) * sizeof *p);
    if (!p) return ERR_NOMEM;
    t->ends = p;
    t->ends[t->n_ends++] = (int32_t)id;
    return 0;
}

/* True if no token has a U+2581 behind another character: then words can be encoded one by one. */
static bool words_are_apart(const tok *t) {
    for (uint32_t id = 0; id < t->v.n; id++) {
        view s = vocab_text(&t->v, id);
        if (vocab_class(&t->v, id) == TOK_CONTROL) continue;
        for (size_t i = 1; i + 3 <= s.len; i++) {
            if ((uint8_t)s.data[i] == 0xE2 && memcmp(s.data + i, "\xE2\x96\x81", 3) == 0 &&
                (i < 3 || memcmp(s.data + i - 3, "\xE2\x96\x81", 3) != 0))
                return false;
        }
    }
    return true;
}

static int check_frame(const tok *t, err *e) {
    const int32_t *part[] = { t->pair_before, t->between, t->pair_after };
    const size_t   n[] = { t->n_pair_before, t->n_between, t->n_pair_after };
    for (int p = 0; p < 3 && t->pair; p++) {
        for (size_t i = 0; i < n[p]; i++) {
            if (part[p][i] < 0 || (uint32_t)part[p][i] >= t->v.n)
                return err_set(e, ERR_FORMAT, "a token around a pair has the id %d, beyond the vocabulary", part[p][i]);
        }
    }
    return 0;
}

static int check_ids(const tok *t, err *e) {
    for (size_t i = 0; i < t->n_added; i++) {
        if (t->added[i].id < 0 || (uint32_t)t->added[i].id >= t->v.n)
            return err_set(e, ERR_FORMAT, "added token '%.100s' has the id %d, beyond the vocabulary",
                           t->added[i].content.data, t->added[i].id);
    }
    for (size_t i = 0; i < t->n_before; i++) {
        if (t->before[i] < 0 || (uint32_t)t->before[i] >= t->v.n)
            return err_set(e, ERR_FORMAT, "a begin token has the id %d, beyond the vocabulary", t->before[i]);
    }
    for (size_t i = 0; i < t->n_after; i++) {
        if (t->after[i] < 0 || (uint32_t)t->after[i] >= t->v.n)
            return err_set(e, ERR_FORMAT, "an end token has the id %d, beyond the vocabulary", t->after[i]);
    }
    return check_frame(t, e);
}

/* The reference decodes such tokens to their normalized text. */
static bool show_as(tok *t, int32_t id, int32_t added) {
    if (!t->shown) {
        t->shown = malloc((size_t)t->v.n * sizeof *t->shown);
        if (!t->shown) return false;
        memset(t->shown, 0xFF, (size_t)t->v.n * sizeof *t->shown);
    }
    t->shown[id] = added;
    return true;
}

/* Normalized added tokens are looked for in their normalized form. */
static int normalize_added(tok *t, err *e) {
    tok_ctx *c = t->n_norm ? tok_ctx_take(t) : NULL;
    int      rc = 0;
    if (t->n_norm && !c) return err_set_nomem(e);
    for (size_t i = 0; i < t->n_added && c && rc == 0; i++) {
        view out;
        if (!t->added[i].normalized) continue;
        rc = normalize_text(t, c, t->added[i].content, &out, e);
        if (rc == 0 && !view_eq(out, t->added[i].content)) {
            t->added[i].content = tok_keep(t, out.data, out.len);
            if (!t->added[i].content.data || !show_as(t, t->added[i].id, (int32_t)i)) rc = err_set_nomem(e);
        }
    }
    tok_ctx_give(t, c);
    return rc;
}

int tok_finish(tok *t, err *e) {
    int rc = 0;
    if (!uc_init()) return err_set_nomem(e);
    if (t->v.n == 0) return err_set(e, ERR_FORMAT, "the vocabulary is empty");
    if (!t->v.slots && (rc = vocab_index(&t->v, e)) < 0) return rc;
    for (int b = 0; b < 256; b++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
        t->byte_ids[b] = vocab_find(&t->v, name, 6);
    }
    switch (t->model) {
    case MODEL_BPE: rc = bpe_prepare(t, e); break;
    case MODEL_SPM: rc = spm_prepare(t, e); break;
    case MODEL_UNIGRAM: rc = unigram_prepare(t, e); break;
    case MODEL_WORDPIECE: rc = wordpiece_prepare(t, e); break;
    case MODEL_WORDLEVEL: break;
    }
    if (rc < 0) return rc;
    if (t->model == MODEL_SPM) t->split_words = words_are_apart(t);
    if ((rc = check_ids(t, e)) < 0 || (rc = normalize_added(t, e)) < 0 || (rc = tok_refresh(t, e)) < 0) return rc;
    if (tok_add_end(t, t->eos) < 0 || tok_add_end(t, t->eot) < 0 || tok_add_end(t, t->eom) < 0) return err_set_nomem(e);
    return 0;
}

int tok_refresh(tok *t, err *e) {
    added_set *const sets[] = { &t->raw_special, &t->raw_plain, &t->norm_special, &t->norm_plain };
    int              rc = check_ids(t, e);
    if (rc == 0 && t->v.n_indexed != t->v.n) rc = vocab_index(&t->v, e);
    if (rc < 0) return rc;
    for (size_t i = 0; i < 4; i++) {
        added_set_deinit(sets[i]);
        *sets[i] = (added_set){ 0 };
    }
    if ((rc = added_set_build(&t->raw_special, t->added, t->n_added, false, true, e)) < 0) return rc;
    if ((rc = added_set_build(&t->raw_plain, t->added, t->n_added, false, false, e)) < 0) return rc;
    if ((rc = added_set_build(&t->norm_special, t->added, t->n_added, true, true, e)) < 0) return rc;
    if ((rc = added_set_build(&t->norm_plain, t->added, t->n_added, true, false, e)) < 0) return rc;
    return 0;
}

/* ---- encoding ---- */

static int encode_pieces(const tok *t, tok_ctx *c, view text, tok_ids *out, err *e) {
    int rc = 0;
    for (size_t i = 0; i < c->pieces.count && rc == 0; i++) {
        const char *p = text.data + c->pieces.data[i].start;
        size_t      n = c->pieces.data[i].len;
        switch (t->model) {
        case MODEL_BPE: rc = bpe_encode(t, c, p, n, out, e); break;
        case MODEL_SPM: rc = spm_encode(t, c, p, n, out, e); break;
        case MODEL_UNIGRAM: rc = unigram_encode(t, c, p, n, out, e); break;
        case MODEL_WORDPIECE: rc = wordpiece_encode(t, c, p, n, out, e); break;
        case MODEL_WORDLEVEL: rc = wordlevel_encode(t, c, p, n, out, e); break;
        }
    }
    return rc;
}

/* A stretch of text between added tokens. */
static int encode_plain(const tok *t, tok_ctx *c, view text, bool first, unsigned flags, tok_ids *out, err *e) {
    const added_set *set = flags & TOK_PARSE_SPECIAL ? &t->norm_special : &t->norm_plain;
    view             norm;
    int              rc = normalize_text(t, c, text, &norm, e);
    if (rc < 0) return rc;
    if (!set->any) {
        rc = pretokenize(t, c, &norm, first, e);
        return rc < 0 ? rc : encode_pieces(t, c, norm, out, e);
    }
    rc = added_split(t, c, set, norm, &c->segments2, &c->segment_ids2, &c->segment_cap2, e);
    for (size_t i = 0; i < c->segments2.count && rc == 0; i++) {
        piece p = c->segments2.data[i];
        if (c->segment_ids2[i] >= 0) {
            if (!tok_ids_push(out, c->segment_ids2[i])) rc = err_set_nomem(e);
            continue;
        }
        view part = { norm.data + p.start, p.len };
        rc = pretokenize(t, c, &part, first && p.start == 0, e);
        if (rc == 0) rc = encode_pieces(t, c, part, out, e);
    }
    return rc;
}

/* Invalid bytes become U+FFFD. */
static bool clean(tok_ctx *c, view *text) {
    size_t valid = utf8_valid_prefix(text->data, text->len), i = 0;
    if (valid == text->len) return true;
    str_clear(&c->clean);
    while (i < text->len) {
        valid = utf8_valid_prefix(text->data + i, text->len - i);
        str_append(&c->clean, text->data + i, valid);
        i += valid;
        if (i < text->len) {
            str_put_utf8(&c->clean, 0xFFFD);
            i++;
        }
    }
    *text = (view){ str_cstr(&c->clean), c->clean.len };
    return str_ok(&c->clean);
}

int tok_encode(const tok *t, const char *text, size_t bytes, unsigned flags, tok_ids *out, err *e) {
    view     in = { text, bytes };
    int      rc = 0;
    tok_ctx *c;
    if (bytes > TOK_MAX_TEXT_BYTES)
        return err_set(e, ERR_LIMIT, "a text of %zu bytes is too long (limit %zu)", bytes, TOK_MAX_TEXT_BYTES);
    if (!(c = tok_ctx_take(t))) return err_set_nomem(e);
    if (!clean(c, &in)) rc = err_set_nomem(e);
    for (size_t i = 0; flags & TOK_ADD_SPECIAL && i < t->n_before && rc == 0; i++) {
        if (!tok_ids_push(out, t->before[i])) rc = err_set_nomem(e);
    }
    if (rc == 0) {
        const added_set *set = flags & TOK_PARSE_SPECIAL ? &t->raw_special : &t->raw_plain;
        rc = added_split(t, c, set, in, &c->segments, &c->segment_ids, &c->segment_cap, e);
    }
    for (size_t i = 0; rc == 0 && i < c->segments.count; i++) {
        piece p = c->segments.data[i];
        if (c->segment_ids[i] >= 0) {
            if (!tok_ids_push(out, c->segment_ids[i])) rc = err_set_nomem(e);
        } else {
            rc = encode_plain(t, c, (view){ in.data + p.start, p.len }, p.start == 0, flags, out, e);
        }
    }
    for (size_t i = 0; flags & TOK_ADD_SPECIAL && i < t->n_after && rc == 0; i++) {
        if (!tok_ids_push(out, t->after[i])) rc = err_set_nomem(e);
    }
    tok_ctx_give(t, c);
    return rc;
}

/* What stands around two texts. Without a frame of its own a vocabulary follows BERT ("[CLS] a [SEP] b [SEP]"), or
 * RoBERTa where texts begin with "<s>": two separators, and nobody tells the texts apart. */
typedef struct frame {
    const int32_t *part[3];
    size_t         n[3], repeat; /* repeat: how often the middle part stands */
    bool           types;
} frame;

static frame frame_of(const tok *t) {
    if (t->pair)
        return (frame){ { t->pair_before, t->between, t->pair_after },
                        { t->n_pair_before, t->n_between, t->n_pair_after },
                        1,
                        t->pair_types };
    bool roberta = t->n_before && view_eq_c(tok_text(t, t->before[0]), "<s>");
    return (frame){ { t->before, t->after, t->after },
                    { t->n_before, t->n_after, t->n_after },
                    roberta ? 2 : 1,
                    t->model == MODEL_WORDPIECE };
}

static bool put_part(const frame *f, int part, tok_ids *out) {
    bool ok = true;
    for (size_t r = 0; r < (part == 1 ? f->repeat : 1); r++) {
        for (size_t i = 0; i < f->n[part]; i++) ok = ok && tok_ids_push(out, f->part[part][i]);
    }
    return ok;
}

int tok_encode_pair(const tok *t, view a, view b, size_t limit, tok_ids *out, size_t *second, err *e) {
    frame   f = frame_of(t);
    tok_ids ids[2] = { { 0 }, { 0 } };
    size_t  around = f.n[0] + f.n[1] * f.repeat + f.n[2];
    int     rc = tok_encode(t, a.len ? a.data : "", a.len, 0, &ids[0], e);
    if (rc == 0) rc = tok_encode(t, b.len ? b.data : "", b.len, 0, &ids[1], e);
    while (rc == 0 && limit && ids[0].count + ids[1].count + around > limit && ids[0].count + ids[1].count > 0)
        ids[ids[0].count > ids[1].count ? 0 : 1].count--;
    bool ok = true;
    out->count = 0;
    for (int i = 0; rc == 0 && i < 2; i++) {
        ok = put_part(&f, i, out) && ok;
        if (i == 1) *second = f.types ? out->count : 0;
        for (size_t k = 0; k < ids[i].count; k++) ok = ok && tok_ids_push(out, ids[i].data[k]);
    }
    if (rc == 0) ok = put_part(&f, 2, out) && ok;
    tok_ids_deinit(&ids[0]);
    tok_ids_deinit(&ids[1]);
    return rc == 0 && !ok ? err_set_nomem(e) : rc;
}

void tok_trim_added(const tok *t, const int32_t **ids, size_t *count) {
    if (t->n_before && *count >= t->n_before && memcmp(*ids, t->before, t->n_before * sizeof **ids) == 0) {
        *ids += t->n_before;
        *count -= t->n_before;
    }
    if (t->n_after && *count >= t->n_after &&
        memcmp(*ids + *count - t->n_after, t->after, t->n_after * sizeof **ids) == 0)
        *count -= t->n_after;
}

/* ---- facts ---- */

int32_t     tok_count(const tok *t) { return (int32_t)t->v.n; }
const char *tok_kind(const tok *t) { return t->kind_name; }
int32_t     tok_bos(const tok *t) { return t->bos; }
int32_t     tok_eos(const tok *t) { return t->eos; }

bool tok_adds_bos(const tok *t) { return t->n_before > 0; }
bool tok_adds_eos(const tok *t) { return t->n_after > 0; }

tok_class tok_class_of(const tok *t, int32_t id) {
    return id >= 0 && (uint32_t)id < t->v.n ? vocab_class(&t->v, (uint32_t)id) : TOK_UNDEFINED;
}

bool tok_is_special(const tok *t, int32_t id) { return tok_class_of(t, id) == TOK_CONTROL; }
bool tok_score(const tok *t, int32_t id, double *out) {
    if (!t->v.score || id < 0 || (uint32_t)id >= t->v.n) return false;
    *out = t->v.score[id];
    return true;
}

view    tok_text(const tok *t, int32_t id) { return id >= 0 ? vocab_text(&t->v, (uint32_t)id) : (view){ "", 0 }; }
int32_t tok_find(const tok *t, const char *text, size_t bytes) { return vocab_find(&t->v, text, bytes); }

const int32_t *tok_end_ids(const tok *t, size_t *count) {
    *count = t->n_ends;
    return t->ends;
}

bool tok_is_end(const tok *t, int32_t id) {
    for (size_t i = 0; i < t->n_ends; i++) {
        if (t->ends[i] == id) return true;
    }
    return false;
}
