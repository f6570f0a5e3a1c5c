/* SPDX-License-Identifier: Apache-2.0 */
/* The older pairs of files: vocab.json with merges.txt (GPT-2), vocab.txt (BERT). */
#include "tokenizer/internal.h"

#include <stdlib.h>
#include <string.h>

/* The lines of a text, without their ends; *out is owned by the caller and points into data. */
static int split_file(const char *data, size_t bytes, view **out, size_t *count, err *e) {
    size_t n = 0, cap = 0;
    view  *lines = NULL;
    for (size_t i = 0; i < bytes;) {
        const char *eol = memchr(data + i, '\n', bytes - i);
        size_t      end = eol ? (size_t)(eol - data) : bytes, stop = end;
        if (stop > i && data[stop - 1] == '\r') stop--;
        if (n == cap) {
            cap = cap ? cap * 2 : 1024;
            view *p = realloc(lines, cap * sizeof *p);
            if (!p) {
                free(lines);
                return err_set_nomem(e);
            }
            lines = p;
        }
        lines[n++] = (view){ data + i, stop - i };
        i = end + 1;
    }
    *out = lines;
    *count = n;
    return 0;
}

static int read_vocab_json(tok *t, const char *data, size_t bytes, err *e) {
    json_reader r;
    int         rc = 0;
    json_reader_init(&r, data, bytes);
    if (json_next(&r) != JSON_OBJECT_BEGIN)
        rc = r.failed ? ERR_FORMAT : err_set(e, ERR_FORMAT, "vocab.json is not an object");
    while (rc == 0 && json_next(&r) == JSON_KEY) {
        str text;
        str_init(&text);
        str_append(&text, r.text.data, r.text.len);
        if (json_next(&r) != JSON_INT)
            rc = r.failed ? ERR_FORMAT : err_set(e, ERR_FORMAT, "vocab.json: an id is not an integer");
        else if (r.integer < 0 || r.integer > (int64_t)bytes)
            rc = err_set(e, ERR_FORMAT, "vocab.json: the id %lld is out of range", (long long)r.integer);
        else if (!str_ok(&text))
            rc = err_set_nomem(e);
        else
            rc = vocab_set(&t->v, (uint32_t)r.integer, str_cstr(&text), text.len, TOK_NORMAL, 0, e);
        str_deinit(&text);
    }
    if (r.failed) {
        if (e) *e = r.error;
        rc = r.error.code ? r.error.code : ERR_FORMAT;
    }
    json_reader_deinit(&r);
    return rc;
}

static int add_merges(tok *t, const view *lines, size_t n, err *e) {
    uint32_t rank = 0;
    int      rc = bpe_merges_reserve(t, n, e);
    str      joined;
    str_init(&joined);
    for (size_t i = 0; i < n && rc == 0; i++) {
        view        m = lines[i];
        const char *space = memchr(m.data, ' ', m.len);
        if (m.len == 0 || (i == 0 && view_starts(m, "#version"))) continue;
        if (!space) {
            rc = err_set(e, ERR_FORMAT, "merges.txt: line %zu has no two parts", i + 1);
            break;
        }
        size_t left = (size_t)(space - m.data), right = m.len - left - 1;
        str_clear(&joined);
        str_append(&joined, m.data, left);
        str_append(&joined, space + 1, right);
        int32_t a = vocab_find(&t->v, m.data, left), b = vocab_find(&t->v, space + 1, right),
                c = vocab_find(&t->v, str_cstr(&joined), joined.len);
        if (!str_ok(&joined))
            rc = err_set_nomem(e);
        else if (a < 0 || b < 0 || c < 0)
            rc = err_set(e, ERR_FORMAT, "merges.txt: line %zu is not made of tokens", i + 1);
        else
            bpe_merge_add(t, (uint32_t)a, (uint32_t)b, rank++, (uint32_t)c);
    }
    str_deinit(&joined);
    return rc;
}

int tok_open_bpe_files(tok **out, const char *vocab_data, size_t vocab_bytes, const char *merges, size_t merges_bytes,
                       const char *pre, err *e) {
    tok            *t = tok_new();
    view           *lines = NULL;
    size_t          n = 0;
    const pre_name *p = pre_name_find(view_of(pre));
    int             rc = 0;
    *out = NULL;
    if (!t) return err_set_nomem(e);
    if (!p) rc = err_set(e, ERR_UNSUPPORTED, "the pre-tokenizer '%.60s' is not known; --pre NAME overrides it", pre);
    if (rc == 0) rc = read_vocab_json(t, vocab_data, vocab_bytes, e);
    if (rc == 0) rc = vocab_index(&t->v, e);
    if (rc == 0) rc = split_file(merges, merges_bytes, &lines, &n, e);
    if (rc == 0) rc = add_merges(t, lines, n, e);
    free(lines);
    if (rc == 0) {
        t->model = MODEL_BPE;
        t->kind_name = "byte-level bpe";
        t->byte_level = true;
        rc = tok_dec_add(t, DEC_BYTE_LEVEL, e) ? pre_name_apply(t, p, e) : ERR_LIMIT;
    }
    if (rc == 0) rc = tok_finish(t, e);
    if (rc < 0) {
        tok_free(t);
        return rc;
    }
    *out = t;
    return 0;
}

int tok_open_bert_vocab(tok **out, const char *data, size_t bytes, bool lower, err *e) {
    static const char *const special[] = { "[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]" };
    tok                     *t = tok_new();
    view                    *lines = NULL;
    size_t                   n = 0;
    int                      rc;
    *out = NULL;
    if (!t) return err_set_nomem(e);
    rc = split_file(data, bytes, &lines, &n, e);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = vocab_set(&t->v, (uint32_t)i, lines[i].data, lines[i].len, TOK_NORMAL, 0, e);
    free(lines);
    if (rc == 0) rc = vocab_index(&t->v, e);
    if (rc == 0 && !(t->added = calloc(8, sizeof *t->added))) rc = err_set_nomem(e);
    for (size_t i = 0; i < 5 && rc == 0; i++) {
        int32_t id = vocab_find(&t->v, special[i], 5 + (i == 4));
        if (id < 0) continue;
        t->v.cls[id] = i == 0 ? TOK_UNKNOWN : TOK_CONTROL;
        t->added[t->n_added++] = (added_token){ .id = id, .content = vocab_text(&t->v, (uint32_t)id), .special = true };
        if (i == 0) t->unk = id;
        if (i == 1) t->before[t->n_before++] = t->bos = id;
        if (i == 2) t->after[t->n_after++] = t->sep = id;
        if (i == 3) t->pad = id;
        if (i == 4) t->mask = id;
    }
    norm_step *ns = rc == 0 ? tok_norm_add(t, NORM_BERT, e) : NULL;
    pre_step  *ws = ns ? tok_pre_add(t, PRE_WHITESPACE_SPLIT, e) : NULL;
    dec_step  *ds = ws && tok_pre_add(t, PRE_PUNCTUATION, e) ? tok_dec_add(t, DEC_WORDPIECE, e) : NULL;
    if (ds) {
        ns->clean = ns->chinese = true;
        ns->lower = ns->strip_accents = lower;
        ws->behavior = SPLIT_REMOVED;
        ds->pattern = t->prefix = view_of("##");
        ds->cleanup = true;
        t->model = MODEL_WORDPIECE;
        t->kind_name = "wordpiece";
        t->max_word_chars = 100;
        rc = tok_finish(t, e);
    } else if (rc == 0) {
        rc = err_set_nomem(e);
    }
    if (rc < 0) {
        tok_free(t);
        return rc;
    }
    *out = t;
    return 0;
}
