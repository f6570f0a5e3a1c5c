/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiktoken rank files: one token per line, its bytes in base64 and its rank, which is also its id.
 *
 * tiktoken joins the neighbours whose joined bytes have the lowest rank, so every way to cut a token into two tokens is
 * a merge with that token's rank. A word that is a token is taken whole.
 */
#include "tokenizer/internal.h"

#include <stdlib.h>
#include <string.h>

static int read_lines(tok *t, const char *data, size_t bytes, err *e) {
    size_t number = 0;
    str    raw, text;
    int    rc = 0;
    str_init(&raw);
    str_init(&text);
    for (size_t i = 0; i < bytes && rc == 0;) {
        const char *eol = memchr(data + i, '\n', bytes - i);
        size_t      end = eol ? (size_t)(eol - data) : bytes, stop = end, k = i;
        int64_t     rank = 0;
        number++;
        if (stop > i && data[stop - 1] == '\r') stop--;
        while (k < stop && data[k] != ' ') k++;
        str_clear(&raw);
        str_clear(&text);
        size_t digits = k + 1;
        for (; digits < stop && data[digits] >= '0' && data[digits] <= '9' && rank < TOK_MAX_TOKENS; digits++)
            rank = rank * 10 + (data[digits] - '0');
        if (stop == i) {
            i = end + 1;
            continue; /* an empty line */
        }
        bool decoded = base64_decode(data + i, k - i, &raw);
        if (!str_ok(&raw))
            rc = err_set_nomem(e);
        else if (k >= stop || digits == k + 1 || digits != stop || !decoded || raw.len == 0)
            rc = err_set(e, ERR_FORMAT, "line %zu is not base64 text and rank", number);
        else if (rank >= (int64_t)bytes)
            rc = err_set(e, ERR_FORMAT, "line %zu: the rank %lld is out of range", number, (long long)rank);
        else if (rank < t->v.n && t->v.cls[rank] != TOK_UNDEFINED)
            rc = err_set(e, ERR_FORMAT, "line %zu: the rank %lld appears twice", number, (long long)rank);
        else {
            byte_level_encode(raw.data, raw.len, &text);
            rc = !str_ok(&text) ? err_set_nomem(e)
                                : vocab_set(&t->v, (uint32_t)rank, str_cstr(&text), text.len, TOK_NORMAL, 0, e);
        }
        i = end + 1;
    }
    str_deinit(&raw);
    str_deinit(&text);
    return rc;
}

/* Every cut of every token into two tokens; adds the merge or only counts. */
static size_t each_cut(tok *t, bool add) {
    size_t n = 0;
    for (uint32_t id = 0; id < t->v.n; id++) {
        view s = vocab_text(&t->v, id);
        for (size_t i = 1; i < s.len; i++) {
            if (((uint8_t)s.data[i] & 0xC0) == 0x80) continue;
            int32_t a = vocab_find(&t->v, s.data, i), b = a >= 0 ? vocab_find(&t->v, s.data + i, s.len - i) : -1;
            if (b < 0) continue;
            n++;
            if (add) bpe_merge_add(t, (uint32_t)a, (uint32_t)b, id, id);
        }
    }
    return n;
}

int bpe_merges_from_ranks(tok *t, err *e) {
    int rc;
    if (t->v.max_len > 4096)
        return err_set(e, ERR_LIMIT, "a token of more than 2048 bytes"); /* cuts are quadratic in it */
    if ((rc = bpe_merges_reserve(t, each_cut(t, false), e)) < 0) return rc;
    each_cut(t, true);
    return 0;
}

static int build(tok *t, const char *data, size_t bytes, const char *pre, err *e) {
    const pre_name *p = pre_name_find(view_of(pre));
    int             rc;
    if (!p) return err_set(e, ERR_UNSUPPORTED, "the pre-tokenizer '%.60s' is not known; --pre NAME overrides it", pre);
    if ((rc = read_lines(t, data, bytes, e)) < 0) return rc;
    if (t->v.max_len > 4096)
        return err_set(e, ERR_LIMIT, "a token of more than 2048 bytes"); /* cuts are quadratic in it */
    if ((rc = vocab_index(&t->v, e)) < 0) return rc;
    t->model = MODEL_BPE;
    t->kind_name = "byte-level bpe";
    t->byte_level = t->ignore_merges = true;
    if ((rc = bpe_merges_from_ranks(t, e)) < 0) return rc;
    if (!tok_dec_add(t, DEC_BYTE_LEVEL, e)) return ERR_LIMIT;
    if ((rc = pre_name_apply(t, p, e)) < 0) return rc;
    return tok_finish(t, e);
}

int tok_open_tiktoken(tok **out, const char *data, size_t bytes, const char *pre, err *e) {
    tok *t = tok_new();
    int  rc;
    *out = NULL;
    if (!t) return err_set_nomem(e);
    rc = bytes > TOK_MAX_FILE_BYTES ? err_set(e, ERR_LIMIT, "%zu bytes are too many", bytes)
                                    : build(t, data, bytes, pre, e);
    if (rc < 0) {
        tok_free(t);
        return err_wrap(e, rc, "tiktoken file");
    }
    *out = t;
    return 0;
}
