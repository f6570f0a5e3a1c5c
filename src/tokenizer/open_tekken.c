/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tekken.json, Mistral's own file.
 *
 *     config           pattern: words are cut by it; default_vocab_size, default_num_special_tokens; version
 *     vocab            [{rank, token_bytes in base64}, ...]: as many of them as fit count, ranks join as tiktoken's do
 *     special_tokens   [{rank, token_str, is_control}, ...]; files up to version 7 may lack them and mean those below
 *
 * Special tokens come first: an id is a special token's rank, or their number plus a word's rank. Numbers of special tokens that
 * have no name are called <SPECIAL_n>.
 */
#include "tokenizer/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A tree of a file of n bytes takes less. */
#define TREE_BYTES(n) ((size_t)1 << 20 | (n)*24)

static const char *const old_specials[] = { "<unk>",
                                            "<s>",
                                            "</s>",
                                            "[INST]",
                                            "[/INST]",
                                            "[AVAILABLE_TOOLS]",
                                            "[/AVAILABLE_TOOLS]",
                                            "[TOOL_RESULTS]",
                                            "[/TOOL_RESULTS]",
                                            "[TOOL_CALLS]",
                                            "[IMG]",
                                            "<pad>",
                                            "[IMG_BREAK]",
                                            "[IMG_END]",
                                            "[PREFIX]",
                                            "[MIDDLE]",
                                            "[SUFFIX]",
                                            "[SYSTEM_PROMPT]",
                                            "[/SYSTEM_PROMPT]",
                                            "[TOOL_CONTENT]" };

/* --- words --- */

static int read_word(tok *t, const json_value *v, int64_t n, int64_t shift, size_t at, str *raw, str *text, err *e) {
    const json_value *bytes = json_get(v, "token_bytes");
    int64_t           rank = -1;
    str_clear(raw);
    str_clear(text);
    if (!json_int(json_get(v, "rank"), &rank) || !json_is(bytes, JSON_K_STRING))
        return err_set(e, ERR_FORMAT, "vocab: entry %zu has no rank or no token_bytes", at);
    if (rank < 0 || rank >= n) return err_set(e, ERR_FORMAT, "vocab: entry %zu has the rank %lld", at, (long long)rank);
    bool decoded = base64_decode(bytes->u.string.data, bytes->u.string.len, raw);
    if (decoded) byte_level_encode(raw->data, raw->len, text);
    if (!str_ok(raw) || !str_ok(text)) return err_set_nomem(e);
    if (!decoded || raw->len == 0) return err_set(e, ERR_FORMAT, "vocab: token_bytes of entry %zu is not base64", at);
    uint32_t id = (uint32_t)(rank + shift);
    if (id < t->v.n && t->v.cls[id] != TOK_UNDEFINED)
        return err_set(e, ERR_FORMAT, "vocab: the rank %lld appears twice", (long long)rank);
    return vocab_set(&t->v, id, str_cstr(text), text->len, TOK_NORMAL, 0, e);
}

static int read_words(tok *t, const json_value *words, int64_t n, int64_t shift, err *e) {
    str raw, text;
    int rc = 0;
    str_init(&raw);
    str_init(&text);
    for (size_t i = 0; i < (size_t)n && rc == 0; i++) rc = read_word(t, json_at(words, i), n, shift, i, &raw, &text, e);
    str_deinit(&raw);
    str_deinit(&text);
    if (rc == 0) rc = vocab_index(&t->v, e);
    if (rc == 0) rc = bpe_merges_from_ranks(t, e);
    return rc;
}

/* --- special tokens --- */

static int add_special(tok *t, int64_t id, view text, bool control, err *e) {
    added_token *a = &t->added[t->n_added];
    tok_class    cls = control ? TOK_CONTROL : TOK_USER;
    if (text.len == 0 || text.len > TOK_MAX_ADDED_BYTES)
        return err_set(e, ERR_FORMAT, "special_tokens: %lld has a name of %zu bytes", (long long)id, text.len);
    if (t->v.cls[id] != TOK_UNDEFINED)
        return err_set(e, ERR_FORMAT, "special_tokens: the rank %lld appears twice", (long long)id);
    *a = (added_token){ .id = (int32_t)id, .content = tok_keep(t, text.data, text.len), .special = control };
    if (!a->content.data) return err_set_nomem(e);
    int rc = vocab_set(&t->v, (uint32_t)id, text.data, text.len, cls, 0, e);
    if (rc < 0) return rc;
    t->v.cls[id] |= VOCAB_OUTSIDE;
    t->n_added++;
    return 0;
}

static int read_named(tok *t, const json_value *list, int64_t n, err *e) {
    int rc = 0;
    if (!json_is(list, JSON_K_ARRAY)) return err_set(e, ERR_FORMAT, "special_tokens is not a list");
    for (size_t i = 0; i < json_count(list) && rc == 0; i++) {
        const json_value *v = json_at(list, i), *text = json_get(v, "token_str");
        int64_t           id = -1;
        if (!json_int(json_get(v, "rank"), &id) || !json_is(text, JSON_K_STRING) || id < 0 || id >= n)
            return err_set(e, ERR_FORMAT, "special_tokens: entry %zu has no token_str or no rank below %lld", i,
                           (long long)n);
        rc = add_special(t, id, text->u.string, json_bool(json_get(v, "is_control"), true), e);
    }
    return rc;
}

static int read_old(tok *t, const char *version, int64_t n, err *e) {
    static const char *const old[] = { "v1", "v2", "v3", "v7" };
    bool                     known = false;
    int                      rc = 0;
    for (size_t i = 0; version && i < sizeof old / sizeof *old; i++) known = known || strcmp(version, old[i]) == 0;
    if (!known) return err_set(e, ERR_FORMAT, "a file of version %.20s has no special_tokens", version ? version : "?");
    for (int64_t i = 0; i < (int64_t)(sizeof old_specials / sizeof *old_specials) && i < n && rc == 0; i++)
        rc = add_special(t, i, view_of(old_specials[i]), true, e);
    return rc;
}

static int read_specials(tok *t, const json_value *file, const char *version, int64_t n, err *e) {
    const json_value *list = json_get(file, "special_tokens");
    t->added = calloc((size_t)n + 1, sizeof *t->added);
    if (!t->added) return err_set_nomem(e);
    int rc = list && !json_is(list, JSON_K_NULL) ? read_named(t, list, n, e) : read_old(t, version, n, e);
    for (int64_t i = 0; i < n && rc == 0; i++) {
        char name[40];
        if (t->v.cls[i] != TOK_UNDEFINED) continue;
        snprintf(name, sizeof name, "<SPECIAL_%lld>", (long long)i);
        rc = add_special(t, i, view_of(name), true, e);
    }
    if (rc == 0) rc = vocab_index(&t->v, e);
    return rc;
}

/* A special token by its name; words may have the same text. */
static int32_t named(const tok *t, const char *text) {
    for (size_t i = 0; i < t->n_added; i++) {
        if (view_eq_c(t->added[i].content, text)) return t->added[i].id;
    }
    return -1;
}

/* --- all of it --- */

static int build(tok *t, const json_value *file, size_t bytes, err *e) {
    const json_value *config = json_get(file, "config"), *words = json_get(file, "vocab"),
                     *pattern = json_get(config, "pattern");
    int64_t size = -1, special = -1;
    int     rc;
    (void)json_int(json_get(config, "default_vocab_size"), &size);
    (void)json_int(json_get(config, "default_num_special_tokens"), &special);
    if (!json_is(pattern, JSON_K_STRING) || !json_is(words, JSON_K_ARRAY))
        return err_set(e, ERR_FORMAT, "there is no config.pattern or no vocab");
    if (special < 0 || size <= special || size > TOK_MAX_TOKENS || size - special > (int64_t)json_count(words) ||
        special > (int64_t)bytes)
        return err_set(e, ERR_FORMAT, "%lld tokens with %lld special ones do not fit a vocab of %zu", (long long)size,
                       (long long)special, json_count(words));
    t->model = MODEL_BPE;
    t->kind_name = "byte-level bpe";
    t->byte_level = t->ignore_merges = true;
    if ((rc = read_words(t, words, size - special, special, e)) < 0) return rc;
    if ((rc = read_specials(t, file, json_cstr(json_get(config, "version")), special, e)) < 0) return rc;
    if (!tok_dec_add(t, DEC_BYTE_LEVEL, e)) return ERR_LIMIT;
    rc = tok_pre_add_pattern(t, pattern->u.string.data, pattern->u.string.len, SPLIT_ISOLATED, false, 0, e);
    if (rc < 0) return err_wrap(e, rc, "config.pattern");
    t->bos = named(t, "<s>");
    t->eos = named(t, "</s>");
    t->pad = named(t, "<pad>");
    if (t->bos >= 0) t->before[t->n_before++] = t->bos;
    return tok_finish(t, e);
}

int tok_open_tekken(tok **out, const char *data, size_t bytes, err *e) {
    tok              *t = tok_new();
    const json_value *file;
    arena             mem;
    int               rc = t ? 0 : err_set_nomem(e);
    *out = NULL;
    arena_init(&mem, TREE_BYTES(bytes));
    if (rc == 0 && bytes > TOK_MAX_FILE_BYTES) rc = err_set(e, ERR_LIMIT, "%zu bytes are too many", bytes);
    if (rc == 0) rc = json_parse(&file, data, bytes, &mem, e);
    if (rc == 0) rc = build(t, file, bytes, e);
    arena_deinit(&mem);
    if (rc < 0) {
        tok_free(t);
        return err_wrap(e, rc, "tekken.json");
    }
    *out = t;
    return 0;
}
