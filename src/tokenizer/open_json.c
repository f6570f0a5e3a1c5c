/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokenizer.json. The vocabulary and the merges, nearly all of the file, are read from the stream straight into the
 * tables; the other parts are small and are read as trees (json_parts.c).
 */
#include "tokenizer/internal.h"

#include <stdlib.h>
#include <string.h>

#define PARTS_LIMIT ((size_t)64 << 20) /* memory for the trees of the small parts */

typedef struct entry {
    uint32_t off, len;
    int64_t  id;
    double   score;
} entry;

typedef struct merge_text {
    uint32_t off, left, right; /* both parts lie one after the other */
} merge_text;

typedef struct loader {
    tok              *t;
    arena             trees;
    str               text; /* vocabulary and merge texts */
    entry            *vocab;
    size_t            n_vocab, vocab_cap;
    merge_text       *merges;
    size_t            n_merges, merges_cap;
    bool              has_vocab, has_merges, list_vocab;
    const json_value *added, *normalizer, *pre, *post, *decoder;
    /* scalars of "model" */
    char    type[24], unk_text[512];
    bool    has_unk, byte_fallback, fuse_unk, ignore_merges;
    view    prefix, suffix;
    int64_t unk_id, max_chars;
    double  dropout;
} loader;

static int json_failed(const json_reader *r, err *e) {
    if (e) *e = r->error;
    return r->error.code ? r->error.code : ERR_FORMAT;
}

static bool keep_text(loader *l, view v, uint32_t *off) {
    if (l->text.len + v.len > UINT32_MAX - 1) return false;
    *off = (uint32_t)l->text.len;
    str_append(&l->text, v.data, v.len);
    return str_ok(&l->text);
}

static bool grow(void **data, size_t n, size_t *cap, size_t item) {
    if (n < *cap) return true;
    size_t want = *cap ? *cap * 2 : 4096;
    void  *p = realloc(*data, want * item);
    if (!p) return false;
    *data = p;
    *cap = want;
    return true;
}

static int put_vocab(loader *l, uint32_t off, uint32_t len, int64_t id, double score, err *e) {
    if (!grow((void **)&l->vocab, l->n_vocab, &l->vocab_cap, sizeof *l->vocab)) return err_set_nomem(e);
    if (l->n_vocab >= TOK_MAX_TOKENS)
        return err_set(e, ERR_LIMIT, "model.vocab has more than %d tokens", TOK_MAX_TOKENS);
    l->vocab[l->n_vocab++] = (entry){ off, len, id, score };
    return 0;
}

/* {"text": id, ...} */
static int read_vocab_object(loader *l, json_reader *r, err *e) {
    json_event ev;
    int        rc;
    while ((ev = json_next(r)) == JSON_KEY) {
        uint32_t off, len = (uint32_t)r->text.len;
        if (r->text.len > TOK_MAX_TOKEN_BYTES)
            return err_set(e, ERR_LIMIT, "model.vocab: a token of %zu bytes", r->text.len);
        if (!keep_text(l, r->text, &off)) return err_set_nomem(e);
        if ((ev = json_next(r)) != JSON_INT)
            return ev == JSON_ERROR ? json_failed(r, e)
                                    : err_set(e, ERR_FORMAT, "model.vocab: an id is not an integer");
        if ((rc = put_vocab(l, off, len, r->integer, 0, e)) < 0) return rc;
    }
    return ev == JSON_OBJECT_END ? 0 : json_failed(r, e);
}

/* [["text", score], ...] of Unigram */
static int read_vocab_list(loader *l, json_reader *r, err *e) {
    json_event ev;
    int        rc;
    l->list_vocab = true;
    while ((ev = json_next(r)) == JSON_ARRAY_BEGIN) {
        uint32_t off, len;
        if ((ev = json_next(r)) != JSON_STRING)
            return ev == JSON_ERROR ? json_failed(r, e)
                                    : err_set(e, ERR_FORMAT, "model.vocab: a piece is not a string");
        len = (uint32_t)r->text.len;
        if (r->text.len > TOK_MAX_TOKEN_BYTES)
            return err_set(e, ERR_LIMIT, "model.vocab: a token of %zu bytes", r->text.len);
        if (!keep_text(l, r->text, &off)) return err_set_nomem(e);
        ev = json_next(r);
        if (ev != JSON_INT && ev != JSON_REAL)
            return ev == JSON_ERROR ? json_failed(r, e)
                                    : err_set(e, ERR_FORMAT, "model.vocab: a score is not a number");
        double score = r->real;
        if (score != score) return err_set(e, ERR_FORMAT, "model.vocab: a score is NaN");
        if ((ev = json_next(r)) != JSON_ARRAY_END)
            return ev == JSON_ERROR ? json_failed(r, e)
                                    : err_set(e, ERR_FORMAT, "model.vocab: a piece with more than two parts");
        if ((rc = put_vocab(l, off, len, (int64_t)l->n_vocab, score, e)) < 0) return rc;
    }
    return ev == JSON_ARRAY_END ? 0
           : ev == JSON_ERROR   ? json_failed(r, e)
                                : err_set(e, ERR_FORMAT, "model.vocab: an entry is not a pair");
}

/* "a b" or ["a", "b"] */
static int read_merges(loader *l, json_reader *r, err *e) {
    json_event ev;
    while ((ev = json_next(r)) == JSON_STRING || ev == JSON_ARRAY_BEGIN) {
        merge_text m = { 0 };
        uint32_t   off;
        if (!grow((void **)&l->merges, l->n_merges, &l->merges_cap, sizeof *l->merges)) return err_set_nomem(e);
        if (ev == JSON_STRING) {
            const char *space = memchr(r->text.data, ' ', r->text.len);
            if (!space || memchr(space + 1, ' ', r->text.len - (size_t)(space + 1 - r->text.data)))
                return err_set(e, ERR_FORMAT, "model.merges: entry %zu has not exactly two parts", l->n_merges);
            m.left = (uint32_t)(space - r->text.data);
            m.right = (uint32_t)(r->text.len - m.left - 1);
            if (!keep_text(l, (view){ r->text.data, m.left }, &m.off) ||
                !keep_text(l, (view){ space + 1, m.right }, &off))
                return err_set_nomem(e);
        } else {
            if (json_next(r) != JSON_STRING)
                return r->failed ? json_failed(r, e)
                                 : err_set(e, ERR_FORMAT, "model.merges: entry %zu is not a pair", l->n_merges);
            m.left = (uint32_t)r->text.len;
            if (!keep_text(l, r->text, &m.off)) return err_set_nomem(e);
            if (json_next(r) != JSON_STRING)
                return r->failed ? json_failed(r, e)
                                 : err_set(e, ERR_FORMAT, "model.merges: entry %zu is not a pair", l->n_merges);
            m.right = (uint32_t)r->text.len;
            if (!keep_text(l, r->text, &off)) return err_set_nomem(e);
            if (json_next(r) != JSON_ARRAY_END)
                return r->failed ? json_failed(r, e)
                                 : err_set(e, ERR_FORMAT, "model.merges: entry %zu is not a pair", l->n_merges);
        }
        l->merges[l->n_merges++] = m;
    }
    return ev == JSON_ARRAY_END ? 0
           : ev == JSON_ERROR   ? json_failed(r, e)
                                : err_set(e, ERR_FORMAT, "model.merges: an entry is not a string");
}

static int read_model_scalar(loader *l, const char *key, json_reader *r, json_event ev, err *e) {
    if (strcmp(key, "type") == 0 && ev == JSON_STRING) {
        if (r->text.len >= sizeof l->type) return err_set(e, ERR_UNSUPPORTED, "model: this type is not supported");
        memcpy(l->type, r->text.data, r->text.len);
        l->type[r->text.len] = '\0';
    } else if (strcmp(key, "unk_token") == 0 && ev == JSON_STRING) {
        if (r->text.len >= sizeof l->unk_text) return err_set(e, ERR_LIMIT, "model.unk_token is too long");
        memcpy(l->unk_text, r->text.data, r->text.len);
        l->unk_text[r->text.len] = '\0';
        l->has_unk = true;
    } else if (strcmp(key, "continuing_subword_prefix") == 0 && ev == JSON_STRING) {
        if (r->text.len > TOK_MAX_ADDED_BYTES)
            return err_set(e, ERR_LIMIT, "model.continuing_subword_prefix is too long");
        l->prefix = tok_keep(l->t, r->text.data, r->text.len);
        if (!l->prefix.data) return err_set_nomem(e);
    } else if (strcmp(key, "end_of_word_suffix") == 0 && ev == JSON_STRING) {
        if (r->text.len > TOK_MAX_ADDED_BYTES) return err_set(e, ERR_LIMIT, "model.end_of_word_suffix is too long");
        l->suffix = tok_keep(l->t, r->text.data, r->text.len);
        if (!l->suffix.data) return err_set_nomem(e);
    } else if (strcmp(key, "unk_id") == 0 && ev == JSON_INT) {
        l->unk_id = r->integer;
    } else if (strcmp(key, "max_input_chars_per_word") == 0 && ev == JSON_INT) {
        l->max_chars = r->integer;
    } else if (strcmp(key, "dropout") == 0 && (ev == JSON_INT || ev == JSON_REAL)) {
        l->dropout = r->real;
    } else if (strcmp(key, "byte_fallback") == 0) {
        l->byte_fallback = ev == JSON_TRUE;
    } else if (strcmp(key, "fuse_unk") == 0) {
        l->fuse_unk = ev == JSON_TRUE;
    } else if (strcmp(key, "ignore_merges") == 0) {
        l->ignore_merges = ev == JSON_TRUE;
    }
    return json_skip(r, ev) ? 0 : json_failed(r, e);
}

static int read_model(loader *l, json_reader *r, err *e) {
    json_event ev;
    int        rc;
    while ((ev = json_next(r)) == JSON_KEY) {
        char key[40] = "";
        if (r->text.len < sizeof key) memcpy(key, r->text.data, r->text.len);
        ev = json_next(r);
        if (ev == JSON_ERROR) break;
        if (strcmp(key, "vocab") == 0 && (ev == JSON_OBJECT_BEGIN || ev == JSON_ARRAY_BEGIN)) {
            if (l->has_vocab) return err_set(e, ERR_FORMAT, "model.vocab appears twice");
            l->has_vocab = true;
            rc = ev == JSON_OBJECT_BEGIN ? read_vocab_object(l, r, e) : read_vocab_list(l, r, e);
        } else if (strcmp(key, "merges") == 0 && ev == JSON_ARRAY_BEGIN) {
            if (l->has_merges) return err_set(e, ERR_FORMAT, "model.merges appears twice");
            l->has_merges = true;
            rc = read_merges(l, r, e);
        } else {
            rc = read_model_scalar(l, key, r, ev, e);
        }
        if (rc < 0) return rc;
    }
    return ev == JSON_OBJECT_END ? 0 : json_failed(r, e);
}

/* The value that begins with the event just read, as a tree. */
static int read_tree(loader *l, json_reader *r, json_event ev, const json_value **out, err *e) {
    size_t start = r->start;
    if (!json_skip(r, ev)) return json_failed(r, e);
    return json_parse(out, r->src + start, r->pos - start, &l->trees, e);
}

static int read_file(loader *l, json_reader *r, err *e) {
    json_event ev;
    int        rc;
    bool       has_model = false;
    if ((ev = json_next(r)) != JSON_OBJECT_BEGIN)
        return ev == JSON_ERROR ? json_failed(r, e) : err_set(e, ERR_FORMAT, "not an object");
    while ((ev = json_next(r)) == JSON_KEY) {
        const json_value **tree = view_eq_c(r->text, "added_tokens")     ? &l->added
                                  : view_eq_c(r->text, "normalizer")     ? &l->normalizer
                                  : view_eq_c(r->text, "pre_tokenizer")  ? &l->pre
                                  : view_eq_c(r->text, "post_processor") ? &l->post
                                  : view_eq_c(r->text, "decoder")        ? &l->decoder
                                                                         : NULL;
        bool               model = view_eq_c(r->text, "model");
        if ((ev = json_next(r)) == JSON_ERROR) break;
        if (model && ev == JSON_OBJECT_BEGIN) {
            if (has_model) return err_set(e, ERR_FORMAT, "\"model\" appears twice");
            has_model = true;
            rc = read_model(l, r, e);
        } else if (tree) {
            rc = read_tree(l, r, ev, tree, e);
        } else {
            rc = json_skip(r, ev) ? 0 : json_failed(r, e);
        }
        if (rc < 0) return rc;
    }
    if (ev != JSON_OBJECT_END || json_next(r) != JSON_END) return json_failed(r, e);
    return has_model ? 0 : err_set(e, ERR_FORMAT, "there is no \"model\"");
}

/* ---- building ---- */

static int fill_vocab(loader *l, err *e) {
    int64_t limit = (int64_t)l->n_vocab * 4 + 65536; /* ids far beyond the count would waste memory */
    int     rc;
    if (!vocab_reserve(&l->t->v, (uint32_t)l->n_vocab, l->text.len, l->list_vocab)) return err_set_nomem(e);
    for (size_t i = 0; i < l->n_vocab; i++) {
        const entry *x = &l->vocab[i];
        if (x->id < 0 || x->id >= limit)
            return err_set(e, ERR_FORMAT, "model.vocab: the id %lld is out of range", (long long)x->id);
        if ((rc = vocab_set(&l->t->v, (uint32_t)x->id, str_cstr(&l->text) + x->off, x->len, TOK_NORMAL, x->score, e)) <
            0)
            return rc;
    }
    return vocab_index(&l->t->v, e);
}

/* Added tokens join the vocabulary; those that the model does not know are marked. */
static int fill_added(loader *l, err *e) {
    tok    *t = l->t;
    int64_t limit = ((int64_t)t->v.n + (int64_t)t->n_added) * 4 + 65536;
    bool    grew = false;
    int     rc;
    for (size_t i = 0; i < t->n_added; i++) {
        added_token *a = &t->added[i];
        int32_t      known = vocab_find(&t->v, a->content.data, a->content.len);
        tok_class    k = a->special ? TOK_CONTROL : TOK_USER;
        if (known >= 0) { /* the model's own id wins, as in the reference */
            a->id = known;
            t->v.cls[known] = (uint8_t)k;
            continue;
        }
        if (a->id >= limit) return err_set(e, ERR_FORMAT, "added_tokens: the id %d is out of range", a->id);
        if ((uint32_t)a->id < t->v.n && t->v.cls[a->id] != TOK_UNDEFINED)
            return err_set(e, ERR_FORMAT, "added_tokens: the id %d of '%.60s' is taken by another token", a->id,
                           a->content.data);
        if ((rc = vocab_set(&t->v, (uint32_t)a->id, a->content.data, a->content.len, k, 0, e)) < 0) return rc;
        t->v.cls[a->id] |= VOCAB_OUTSIDE;
        grew = true;
    }
    return grew ? vocab_index(&t->v, e) : 0;
}

static int fill_merges(loader *l, err *e) {
    tok   *t = l->t;
    str    joined;
    size_t skip = l->prefix.len;
    int    rc = bpe_merges_reserve(t, l->n_merges, e);
    str_init(&joined);
    for (size_t i = 0; i < l->n_merges && rc == 0; i++) {
        const merge_text *m = &l->merges[i];
        const char       *p = str_cstr(&l->text) + m->off;
        int32_t           a = vocab_find(&t->v, p, m->left), b = vocab_find(&t->v, p + m->left, m->right), c;
        if (skip == 0) {
            c = vocab_find(&t->v, p, (size_t)m->left + m->right);
        } else {
            str_clear(&joined);
            str_append(&joined, p, m->left);
            if (m->right >= skip) str_append(&joined, p + m->left + skip, m->right - skip);
            c = vocab_find(&t->v, str_cstr(&joined), joined.len);
        }
        if (!str_ok(&joined))
            rc = err_set_nomem(e);
        else if (a < 0 || b < 0 || c < 0)
            rc = err_set(e, ERR_FORMAT, "model.merges: entry %zu ('%.*s' + '%.*s') is not made of tokens", i,
                         (int)(m->left < 40 ? m->left : 40), p, (int)(m->right < 40 ? m->right : 40), p + m->left);
        else
            bpe_merge_add(t, (uint32_t)a, (uint32_t)b, (uint32_t)i, (uint32_t)c);
    }
    str_deinit(&joined);
    return rc;
}

/* Without a type the model is known by its members, as old files need it. */
static const char *model_type(const loader *l) {
    if (l->type[0]) return l->type;
    if (l->has_merges) return "BPE";
    if (l->list_vocab) return "Unigram";
    return l->max_chars >= 0 ? "WordPiece" : "WordLevel";
}

static int set_model(loader *l, err *e) {
    tok        *t = l->t;
    const char *type = model_type(l);
    t->prefix = l->prefix;
    t->suffix = l->suffix;
    t->byte_fallback = l->byte_fallback;
    t->fuse_unk = l->fuse_unk;
    t->ignore_merges = l->ignore_merges;
    if (strcmp(type, "BPE") == 0) {
        t->model = MODEL_BPE;
        t->kind_name = "bpe";
        if (l->dropout != 0) return err_set(e, ERR_UNSUPPORTED, "model.dropout is not supported");
        if (l->list_vocab) return err_set(e, ERR_FORMAT, "model.vocab of a BPE model is a list");
    } else if (strcmp(type, "Unigram") == 0) {
        t->model = MODEL_UNIGRAM;
        t->kind_name = "unigram";
        t->all_pieces = true;
        if (!l->list_vocab && l->has_vocab)
            return err_set(e, ERR_FORMAT, "model.vocab of a Unigram model is not a list");
        if (l->unk_id >= (int64_t)l->n_vocab) return err_set(e, ERR_FORMAT, "model.unk_id lies beyond the vocabulary");
        t->unk = l->unk_id >= 0 ? (int32_t)l->unk_id : -1;
    } else if (strcmp(type, "WordPiece") == 0) {
        t->model = MODEL_WORDPIECE;
        t->kind_name = "wordpiece";
        t->max_word_chars = l->max_chars >= 0 && l->max_chars < 100000 ? (size_t)l->max_chars : 100;
        if (!t->prefix.data) t->prefix = view_of("##");
    } else if (strcmp(type, "WordLevel") == 0) {
        t->model = MODEL_WORDLEVEL;
        t->kind_name = "word list";
    } else {
        return err_set(e, ERR_UNSUPPORTED, "model: the type '%s' is not supported", type);
    }
    if (t->model == MODEL_WORDPIECE || t->model == MODEL_WORDLEVEL) {
        if (!l->has_unk) {
            strcpy(l->unk_text, t->model == MODEL_WORDPIECE ? "[UNK]" : "<unk>");
            l->has_unk = true;
        }
        if (l->list_vocab) return err_set(e, ERR_FORMAT, "model.vocab is a list");
    }
    return 0;
}

/* GPT-2's alphabet as the last step: the model then works on raw bytes, which is the same and faster. */
static void defer_byte_level(tok *t) {
    if (t->model != MODEL_BPE || t->prefix.len || t->suffix.len || t->byte_fallback || t->n_pre == 0 ||
        t->pre[t->n_pre - 1].kind != PRE_BYTE_LEVEL)
        return;
    for (size_t i = 0; i + 1 < t->n_pre; i++) {
        if (t->pre[i].kind == PRE_BYTE_LEVEL) return;
    }
    t->n_pre--;
    t->byte_level = true;
    t->kind_name = "byte-level bpe";
}

static int build(loader *l, err *e) {
    tok *t = l->t;
    int  rc;
    if (!l->has_vocab) return err_set(e, ERR_FORMAT, "there is no model.vocab");
    if ((rc = set_model(l, e)) < 0 || (rc = fill_vocab(l, e)) < 0) return rc;
    if (l->has_unk && t->model != MODEL_UNIGRAM) {
        t->unk = vocab_find(&t->v, l->unk_text, strlen(l->unk_text));
        if (t->unk < 0 && t->model == MODEL_BPE)
            return err_set(e, ERR_FORMAT, "model.unk_token '%.60s' is not in the vocabulary", l->unk_text);
    }
    if (t->model == MODEL_BPE && (rc = fill_merges(l, e)) < 0) return rc;
    if ((rc = json_load_added(t, l->added, e)) < 0 || (rc = json_load_normalizer(t, l->normalizer, e)) < 0 ||
        (rc = json_load_pre_tokenizer(t, l->pre, e)) < 0 || (rc = json_load_post_processor(t, l->post, e)) < 0 ||
        (rc = json_load_decoder(t, l->decoder, e)) < 0)
        return rc;
    if ((rc = fill_added(l, e)) < 0) return rc;
    defer_byte_level(t);
    return tok_finish(t, e);
}

int tok_open_json(tok **out, const char *data, size_t bytes, err *e) {
    loader      l = { .unk_id = -1, .max_chars = -1 };
    json_reader r;
    int         rc;
    *out = NULL;
    if (bytes > TOK_MAX_FILE_BYTES)
        return err_set(e, ERR_LIMIT, "tokenizer.json has %zu bytes, more than %zu", bytes, TOK_MAX_FILE_BYTES);
    l.t = tok_new();
    arena_init(&l.trees, PARTS_LIMIT);
    str_init(&l.text);
    json_reader_init(&r, data, bytes);
    rc = l.t ? read_file(&l, &r, e) : err_set_nomem(e);
    if (rc == 0) rc = build(&l, e);
    json_reader_deinit(&r);
    arena_deinit(&l.trees);
    str_deinit(&l.text);
    free(l.vocab);
    free(l.merges);
    if (rc < 0) {
        tok_free(l.t);
        return err_wrap(e, rc, "tokenizer.json");
    }
    *out = l.t;
    return 0;
}
