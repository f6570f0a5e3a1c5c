/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The small parts of a tokenizer.json: normalizer, pre_tokenizer, decoder, post_processor, added_tokens. Each is an
 * object with a "type", or a Sequence of such. A type or setting that is not known is refused by name, never skipped.
 */
#include "tokenizer/internal.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_NESTING = 8 };

static const char *type_of(const json_value *v) { return json_cstr(json_get(v, "type")); }

static int unknown(const char *part, const json_value *v, err *e) {
    const char *type = type_of(v);
    if (!type) return err_set(e, ERR_FORMAT, "%s: an object without a type", part);
    return err_set(e, ERR_UNSUPPORTED, "%s: the type '%.60s' is not supported", part, type);
}

static int flag(const json_value *v, const char *key, bool dflt, bool *out, err *e) {
    const json_value *x = json_get(v, key);
    *out = dflt;
    if (!x || json_is(x, JSON_K_NULL)) return 0;
    if (!json_is(x, JSON_K_BOOL)) return err_set(e, ERR_FORMAT, "%s is not a boolean", key);
    *out = json_bool(x, dflt);
    return 0;
}

static int text(tok *t, const json_value *v, const char *key, view *out, err *e) {
    const json_value *x = json_get(v, key);
    if (!json_is(x, JSON_K_STRING)) return err_set(e, ERR_FORMAT, "%s is not a string", key);
    *out = tok_keep(t, x->u.string.data, x->u.string.len);
    return out->data ? 0 : err_set_nomem(e);
}

/* The one character of a string. */
static int character(const json_value *v, const char *key, unsigned *out, err *e) {
    const json_value *x = json_get(v, key);
    if (!json_is(x, JSON_K_STRING) || utf8_decode(x->u.string.data, x->u.string.len, out) != x->u.string.len ||
        x->u.string.len == 0)
        return err_set(e, ERR_FORMAT, "%s is not one character", key);
    return 0;
}

static int size(const json_value *v, const char *key, size_t dflt, size_t *out, err *e) {
    const json_value *x = json_get(v, key);
    int64_t           n;
    *out = dflt;
    if (!x) return 0;
    if (!json_int(x, &n) || n < 0 || n > INT32_MAX) return err_set(e, ERR_FORMAT, "%s is not a size", key);
    *out = (size_t)n;
    return 0;
}

/* {"String": s} or {"Regex": r}. */
static int pattern(tok *t, const json_value *v, view *plain, regex **re, err *e) {
    const json_value *p = json_get(v, "pattern"), *s = json_get(p, "String"), *r = json_get(p, "Regex");
    *re = NULL;
    *plain = (view){ "", 0 };
    if (json_is(s, JSON_K_STRING)) return text(t, p, "String", plain, e);
    if (json_is(r, JSON_K_STRING)) return regex_open(re, r->u.string.data, r->u.string.len, REGEX_MULTILINE, e);
    return err_set(e, ERR_FORMAT, "pattern has neither a String nor a Regex");
}

/* ---- normalizers ---- */

static int norm_replace(tok *t, const json_value *v, err *e) {
    norm_step *s = tok_norm_add(t, NORM_REPLACE, e);
    int        rc;
    if (!s) return ERR_LIMIT;
    if ((rc = pattern(t, v, &s->pattern, &s->re, e)) < 0) return rc;
    return text(t, v, "content", &s->content, e);
}

static int norm_bert(tok *t, const json_value *v, err *e) {
    norm_step *s = tok_norm_add(t, NORM_BERT, e);
    int        rc;
    if (!s) return ERR_LIMIT;
    s->keep_unassigned = true; /* unlike the first implementation, which takes unassigned code points for controls */
    if ((rc = flag(v, "clean_text", true, &s->clean, e)) < 0 ||
        (rc = flag(v, "handle_chinese_chars", true, &s->chinese, e)) < 0 ||
        (rc = flag(v, "lowercase", true, &s->lower, e)) < 0)
        return rc;
    return flag(v, "strip_accents", s->lower, &s->strip_accents, e);
}

static int norm_charsmap(tok *t, const json_value *v, err *e) {
    const json_value *x = json_get(v, "precompiled_charsmap");
    str               data;
    int               rc;
    if (json_is(x, JSON_K_NULL)) return 0;
    if (!json_is(x, JSON_K_STRING)) return err_set(e, ERR_FORMAT, "precompiled_charsmap is not a string");
    if (t->map.units) return err_set(e, ERR_UNSUPPORTED, "more than one precompiled_charsmap");
    str_init(&data);
    if (!base64_decode(x->u.string.data, x->u.string.len, &data))
        rc = err_set(e, ERR_FORMAT, "precompiled_charsmap is not base64");
    else
        rc = charsmap_open(&t->map, str_cstr(&data), data.len, e);
    str_deinit(&data);
    if (rc < 0) return rc;
    return tok_norm_add(t, NORM_CHARSMAP, e) ? 0 : ERR_LIMIT;
}

static int normalizer(tok *t, const json_value *v, int depth, err *e) {
    static const struct {
        const char *type;
        norm_kind   kind;
    } plain[] = { { "NFC", NORM_NFC },
                  { "NFD", NORM_NFD },
                  { "NFKC", NORM_NFKC },
                  { "NFKD", NORM_NFKD },
                  { "Lowercase", NORM_LOWERCASE },
                  { "Nmt", NORM_NMT },
                  { "StripAccents", NORM_STRIP_ACCENTS },
                  { "ByteLevel", NORM_BYTE_LEVEL } };
    const char *type = type_of(v);
    int         rc = 0;
    if (!type || depth > MAX_NESTING) return unknown("normalizer", v, e);
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        if (strcmp(type, plain[i].type) == 0) return tok_norm_add(t, plain[i].kind, e) ? 0 : ERR_LIMIT;
    }
    if (strcmp(type, "Sequence") == 0) {
        const json_value *list = json_get(v, "normalizers");
        if (!json_is(list, JSON_K_ARRAY)) return err_set(e, ERR_FORMAT, "normalizer: a Sequence without a list");
        for (size_t i = 0; i < json_count(list) && rc == 0; i++) rc = normalizer(t, json_at(list, i), depth + 1, e);
        return rc;
    }
    if (strcmp(type, "Replace") == 0) return norm_replace(t, v, e);
    if (strcmp(type, "BertNormalizer") == 0) return norm_bert(t, v, e);
    if (strcmp(type, "Precompiled") == 0) return norm_charsmap(t, v, e);
    if (strcmp(type, "Prepend") == 0) {
        norm_step *s = tok_norm_add(t, NORM_PREPEND, e);
        return s ? text(t, v, "prepend", &s->content, e) : ERR_LIMIT;
    }
    if (strcmp(type, "Strip") == 0) {
        norm_step *s = tok_norm_add(t, NORM_STRIP, e);
        if (!s) return ERR_LIMIT;
        if ((rc = flag(v, "strip_left", true, &s->left, e)) < 0) return rc;
        return flag(v, "strip_right", true, &s->right, e);
    }
    return unknown("normalizer", v, e);
}

int json_load_normalizer(tok *t, const json_value *v, err *e) {
    return !v || json_is(v, JSON_K_NULL) ? 0 : normalizer(t, v, 0, e);
}

/* ---- pre-tokenizers ---- */

static int behavior(const json_value *v, split_behavior dflt, split_behavior *out, err *e) {
    static const struct {
        const char    *name;
        split_behavior value;
    } names[] = { { "Removed", SPLIT_REMOVED },
                  { "Isolated", SPLIT_ISOLATED },
                  { "MergedWithPrevious", SPLIT_MERGED_PREVIOUS },
                  { "MergedWithNext", SPLIT_MERGED_NEXT },
                  { "Contiguous", SPLIT_CONTIGUOUS } };
    const json_value *x = json_get(v, "behavior");
    *out = dflt;
    if (!x) return 0;
    for (size_t i = 0; json_is(x, JSON_K_STRING) && i < sizeof names / sizeof names[0]; i++) {
        if (view_eq_c(x->u.string, names[i].name)) {
            *out = names[i].value;
            return 0;
        }
    }
    return err_set(e, ERR_UNSUPPORTED, "behavior: '%.40s' is not supported",
                   json_is(x, JSON_K_STRING) ? json_cstr(x) : "(no string)");
}

#define GPT2_PATTERN "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

static int pre_byte_level(tok *t, const json_value *v, err *e) {
    bool prefix, use_regex;
    int  rc;
    if ((rc = flag(v, "add_prefix_space", true, &prefix, e)) < 0 ||
        (rc = flag(v, "use_regex", true, &use_regex, e)) < 0)
        return rc;
    if (prefix && !tok_pre_add(t, PRE_PREFIX_SPACE, e)) return ERR_LIMIT;
    if (use_regex && (rc = tok_pre_add_pattern(t, GPT2_PATTERN, strlen(GPT2_PATTERN), SPLIT_ISOLATED, false, 0, e)) < 0)
        return rc;
    return tok_pre_add(t, PRE_BYTE_LEVEL, e) ? 0 : ERR_LIMIT;
}

static int pre_split(tok *t, const json_value *v, err *e) {
    const json_value *p = json_get(v, "pattern"), *r = json_get(p, "Regex");
    split_behavior    how;
    bool              invert;
    int               rc;
    if ((rc = behavior(v, SPLIT_ISOLATED, &how, e)) < 0 || (rc = flag(v, "invert", false, &invert, e)) < 0) return rc;
    if (json_is(r, JSON_K_STRING))
        return tok_pre_add_pattern(t, r->u.string.data, r->u.string.len, how, invert, REGEX_MULTILINE, e);
    pre_step *s = tok_pre_add(t, PRE_STRING, e);
    if (!s) return ERR_LIMIT;
    s->behavior = how;
    s->invert = invert;
    if (!json_is(json_get(p, "String"), JSON_K_STRING))
        return err_set(e, ERR_FORMAT, "pattern has neither a String nor a Regex");
    return text(t, p, "String", &s->pattern, e);
}

static int metaspace(tok *t, const json_value *v, view *replacement, int *scheme, bool *split, err *e) {
    const json_value *x = json_get(v, "prepend_scheme"), *add = json_get(v, "add_prefix_space");
    int               rc;
    unsigned          cp;
    if ((rc = character(v, "replacement", &cp, e)) < 0 || (rc = text(t, v, "replacement", replacement, e)) < 0)
        return rc;
    if ((rc = flag(v, "split", true, split, e)) < 0) return rc;
    *scheme = 2;
    if (json_is(x, JSON_K_STRING)) {
        view s = x->u.string;
        if (view_eq_c(s, "never"))
            *scheme = 0;
        else if (view_eq_c(s, "first"))
            *scheme = 1;
        else if (!view_eq_c(s, "always"))
            return err_set(e, ERR_UNSUPPORTED, "prepend_scheme: '%.40s' is not supported", s.data);
    } else if (json_is(add, JSON_K_BOOL) && !json_bool(add, true)) {
        *scheme = 0;
    }
    return 0;
}

static int pre_punctuation_like(tok *t, const char *type, const json_value *v, err *e) {
    bool      single;
    int       rc;
    pre_step *s;
    if (strcmp(type, "Punctuation") == 0) {
        if (!(s = tok_pre_add(t, PRE_PUNCTUATION, e))) return ERR_LIMIT;
        return behavior(v, SPLIT_ISOLATED, &s->behavior, e);
    }
    if ((rc = flag(v, "individual_digits", false, &single, e)) < 0) return rc;
    if (!(s = tok_pre_add(t, PRE_DIGITS, e))) return ERR_LIMIT;
    s->behavior = single ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS;
    return 0;
}

static int pre_tokenizer(tok *t, const json_value *v, int depth, err *e) {
    const char *type = type_of(v);
    pre_step   *s;
    int         rc = 0;
    if (!type || depth > MAX_NESTING) return unknown("pre_tokenizer", v, e);
    if (strcmp(type, "Sequence") == 0) {
        const json_value *list = json_get(v, "pretokenizers");
        if (!json_is(list, JSON_K_ARRAY)) return err_set(e, ERR_FORMAT, "pre_tokenizer: a Sequence without a list");
        for (size_t i = 0; i < json_count(list) && rc == 0; i++) rc = pre_tokenizer(t, json_at(list, i), depth + 1, e);
        return rc;
    }
    if (strcmp(type, "ByteLevel") == 0) return pre_byte_level(t, v, e);
    if (strcmp(type, "Split") == 0) return pre_split(t, v, e);
    if (strcmp(type, "Punctuation") == 0 || strcmp(type, "Digits") == 0) return pre_punctuation_like(t, type, v, e);
    if (strcmp(type, "Whitespace") == 0) return tok_pre_add(t, PRE_WORDS, e) ? 0 : ERR_LIMIT;
    if (strcmp(type, "WhitespaceSplit") == 0 || strcmp(type, "BertPreTokenizer") == 0) {
        if (!(s = tok_pre_add(t, PRE_WHITESPACE_SPLIT, e))) return ERR_LIMIT;
        s->behavior = SPLIT_REMOVED;
        return strcmp(type, "WhitespaceSplit") == 0 || tok_pre_add(t, PRE_PUNCTUATION, e) ? 0 : ERR_LIMIT;
    }
    if (strcmp(type, "CharDelimiterSplit") == 0) {
        if (!(s = tok_pre_add(t, PRE_DELIMITER, e))) return ERR_LIMIT;
        s->behavior = SPLIT_REMOVED;
        return character(v, "delimiter", &s->delimiter, e);
    }
    if (strcmp(type, "Metaspace") == 0) {
        if (!(s = tok_pre_add(t, PRE_METASPACE, e))) return ERR_LIMIT;
        return metaspace(t, v, &s->pattern, &s->scheme, &s->split, e);
    }
    if (strcmp(type, "FixedLength") == 0) {
        if (!(s = tok_pre_add(t, PRE_FIXED, e))) return ERR_LIMIT;
        if ((rc = size(v, "length", 5, &s->length, e)) < 0) return rc;
        return s->length ? 0 : err_set(e, ERR_FORMAT, "FixedLength: length is 0");
    }
    return unknown("pre_tokenizer", v, e);
}

int json_load_pre_tokenizer(tok *t, const json_value *v, err *e) {
    return !v || json_is(v, JSON_K_NULL) ? 0 : pre_tokenizer(t, v, 0, e);
}

/* ---- decoders ---- */

static int decoder(tok *t, const json_value *v, int depth, err *e) {
    const char *type = type_of(v);
    dec_step   *s;
    int         rc = 0;
    bool        split;
    if (!type || depth > MAX_NESTING) return unknown("decoder", v, e);
    if (strcmp(type, "Sequence") == 0) {
        const json_value *list = json_get(v, "decoders");
        if (!json_is(list, JSON_K_ARRAY)) return err_set(e, ERR_FORMAT, "decoder: a Sequence without a list");
        for (size_t i = 0; i < json_count(list) && rc == 0; i++) rc = decoder(t, json_at(list, i), depth + 1, e);
        return rc;
    }
    if (strcmp(type, "ByteLevel") == 0) return tok_dec_add(t, DEC_BYTE_LEVEL, e) ? 0 : ERR_LIMIT;
    if (strcmp(type, "ByteFallback") == 0) return tok_dec_add(t, DEC_BYTE_FALLBACK, e) ? 0 : ERR_LIMIT;
    if (strcmp(type, "Fuse") == 0) return tok_dec_add(t, DEC_FUSE, e) ? 0 : ERR_LIMIT;
    if (strcmp(type, "Metaspace") == 0) {
        if (!(s = tok_dec_add(t, DEC_METASPACE, e))) return ERR_LIMIT;
        return metaspace(t, v, &s->pattern, &s->scheme, &split, e);
    }
    if (strcmp(type, "WordPiece") == 0) {
        if (!(s = tok_dec_add(t, DEC_WORDPIECE, e))) return ERR_LIMIT;
        if ((rc = text(t, v, "prefix", &s->pattern, e)) < 0) return rc;
        return flag(v, "cleanup", true, &s->cleanup, e);
    }
    if (strcmp(type, "BPEDecoder") == 0)
        return (s = tok_dec_add(t, DEC_BPE, e)) ? text(t, v, "suffix", &s->pattern, e) : ERR_LIMIT;
    if (strcmp(type, "Replace") == 0) {
        if (!(s = tok_dec_add(t, DEC_REPLACE, e))) return ERR_LIMIT;
        if ((rc = pattern(t, v, &s->pattern, &s->re, e)) < 0) return rc;
        return text(t, v, "content", &s->content, e);
    }
    if (strcmp(type, "Strip") == 0) {
        if (!(s = tok_dec_add(t, DEC_STRIP, e))) return ERR_LIMIT;
        for (size_t i = 0; i + 1 < t->n_dec; i++) s->fused = s->fused || t->dec[i].kind == DEC_FUSE;
        if ((rc = character(v, "content", &s->ch, e)) < 0 || (rc = size(v, "start", 0, &s->start, e)) < 0) return rc;
        return size(v, "stop", 0, &s->stop, e);
    }
    return unknown("decoder", v, e);
}

int json_load_decoder(tok *t, const json_value *v, err *e) {
    if (!v || json_is(v, JSON_K_NULL)) return tok_dec_add(t, DEC_JOIN_SPACE, e) ? 0 : ERR_LIMIT;
    return decoder(t, v, 0, e);
}

/* ---- post-processors: what goes around one text ---- */

static int around(tok *t, bool before, int64_t id, err *e) {
    size_t *n = before ? &t->n_before : &t->n_after;
    if (id < 0 || id >= TOK_MAX_TOKENS) return err_set(e, ERR_FORMAT, "post_processor: a token without a valid id");
    if (*n == sizeof t->before / sizeof t->before[0]) return err_set(e, ERR_LIMIT, "post_processor: too many tokens");
    if (before) {
        t->before[(*n)++] = (int32_t)id;
    } else {
        t->after[(*n)++] = (int32_t)id;
    }
    return 0;
}

/* One more token of a pair's frame: before the first text, between the two, or behind the second. */
static int around_pair(tok *t, int texts, int64_t id, err *e) {
    int32_t *to = texts == 0 ? t->pair_before : texts == 1 ? t->between : t->pair_after;
    size_t  *n = texts == 0 ? &t->n_pair_before : texts == 1 ? &t->n_between : &t->n_pair_after;
    if (id < 0 || id >= TOK_MAX_TOKENS) return err_set(e, ERR_FORMAT, "post_processor: a token without a valid id");
    if (*n == sizeof t->between / sizeof t->between[0])
        return err_set(e, ERR_LIMIT, "post_processor: too many tokens around a pair");
    to[(*n)++] = (int32_t)id;
    return 0;
}

/* A pair's frame; one that has another form than A then B is left out, so that nobody uses it. */
static int pair_template(tok *t, const json_value *v, err *e) {
    const json_value *pair = json_get(v, "pair"), *tokens = json_get(v, "special_tokens");
    int               texts = 0, rc = 0;
    for (size_t i = 0; i < json_count(pair) && rc == 0; i++) {
        const json_value *item = json_at(pair, i), *text = json_get(item, "Sequence");
        const char       *name = json_cstr(json_get(text ? text : json_get(item, "SpecialToken"), "id"));
        int64_t           type = 0;
        if (text) {
            if (!name || strcmp(name, texts == 0 ? "A" : "B") != 0 || texts == 2) return 0;
            (void)json_int(json_get(text, "type_id"), &type);
            if (++texts == 2) t->pair_types = type == 1;
            continue;
        }
        const json_value *ids = name ? json_get(json_get(tokens, name), "ids") : NULL;
        for (size_t k = 0; k < json_count(ids) && rc == 0; k++) {
            int64_t id = -1;
            (void)json_int(json_at(ids, k), &id);
            rc = around_pair(t, texts, id, e);
        }
    }
    t->pair = texts == 2;
    return rc;
}

static int template(tok *t, const json_value *v, err *e) {
    const json_value *single = json_get(v, "single"), *tokens = json_get(v, "special_tokens");
    bool              seen = false;
    int               rc = 0;
    if (!json_is(single, JSON_K_ARRAY))
        return err_set(e, ERR_FORMAT, "post_processor: TemplateProcessing without \"single\"");
    for (size_t i = 0; i < json_count(single) && rc == 0; i++) {
        const json_value *item = json_at(single, i), *special = json_get(item, "SpecialToken");
        if (json_get(item, "Sequence")) {
            if (seen) return err_set(e, ERR_UNSUPPORTED, "post_processor: a template that repeats the text");
            seen = true;
            continue;
        }
        const char       *name = json_cstr(json_get(special, "id"));
        const json_value *ids = name ? json_get(json_get(tokens, name), "ids") : NULL;
        if (!json_is(ids, JSON_K_ARRAY))
            return err_set(e, ERR_FORMAT, "post_processor: '%.60s' is not in special_tokens", name ? name : "?");
        for (size_t k = 0; k < json_count(ids) && rc == 0; k++) {
            int64_t id = -1;
            (void)json_int(json_at(ids, k), &id);
            rc = around(t, !seen, id, e);
        }
    }
    if (rc == 0 && !seen) return err_set(e, ERR_UNSUPPORTED, "post_processor: a template without the text");
    return rc < 0 ? rc : pair_template(t, v, e);
}

static int post_processor(tok *t, const json_value *v, int depth, err *e) {
    const char *type = type_of(v);
    int         rc = 0;
    if (!type || depth > MAX_NESTING) return unknown("post_processor", v, e);
    if (strcmp(type, "Sequence") == 0) {
        const json_value *list = json_get(v, "processors");
        if (!json_is(list, JSON_K_ARRAY)) return err_set(e, ERR_FORMAT, "post_processor: a Sequence without a list");
        for (size_t i = 0; i < json_count(list) && rc == 0; i++) rc = post_processor(t, json_at(list, i), depth + 1, e);
        return rc;
    }
    if (strcmp(type, "ByteLevel") == 0) return 0; /* it moves offsets only */
    if (strcmp(type, "TemplateProcessing") == 0) return template(t, v, e);
    if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0) {
        int64_t cls = -1, sep = -1;
        (void)json_int(json_at(json_get(v, "cls"), 1), &cls);
        (void)json_int(json_at(json_get(v, "sep"), 1), &sep);
        if ((rc = around(t, true, cls, e)) < 0 || (rc = around_pair(t, 0, cls, e)) < 0) return rc;
        t->pair_types = *type == 'B';
        t->pair = true;
        for (int i = *type == 'B'; i < 2 && rc == 0; i++) rc = around_pair(t, 1, sep, e);
        if (rc == 0) rc = around_pair(t, 2, sep, e);
        return rc < 0 ? rc : around(t, false, sep, e);
    }
    return unknown("post_processor", v, e);
}

int json_load_post_processor(tok *t, const json_value *v, err *e) {
    return !v || json_is(v, JSON_K_NULL) ? 0 : post_processor(t, v, 0, e);
}

/* ---- added tokens ---- */

int json_load_added(tok *t, const json_value *v, err *e) {
    size_t n = json_count(v);
    int    rc;
    if (!v || json_is(v, JSON_K_NULL)) return 0;
    if (!json_is(v, JSON_K_ARRAY)) return err_set(e, ERR_FORMAT, "added_tokens is not a list");
    t->added = calloc(n + 1, sizeof *t->added);
    if (!t->added) return err_set_nomem(e);
    for (size_t i = 0; i < n; i++) {
        const json_value *x = json_at(v, i), *content = json_get(x, "content");
        added_token      *a = &t->added[t->n_added];
        int64_t           id;
        if (!json_is(content, JSON_K_STRING) || !json_int(json_get(x, "id"), &id) || id < 0 || id >= TOK_MAX_TOKENS)
            return err_set(e, ERR_FORMAT, "added_tokens: entry %zu has no content or no id", i);
        if (content->u.string.len == 0) continue;
        if (content->u.string.len > TOK_MAX_ADDED_BYTES)
            return err_set(e, ERR_LIMIT, "added_tokens: entry %zu has %zu bytes, more than %d", i,
                           content->u.string.len, TOK_MAX_ADDED_BYTES);
        if ((rc = flag(x, "special", false, &a->special, e)) < 0 ||
            (rc = flag(x, "normalized", !a->special, &a->normalized, e)) < 0 ||
            (rc = flag(x, "lstrip", false, &a->lstrip, e)) < 0 || (rc = flag(x, "rstrip", false, &a->rstrip, e)) < 0 ||
            (rc = flag(x, "single_word", false, &a->single_word, e)) < 0)
            return err_wrap(e, rc, "added_tokens: entry %zu", i);
        a->id = (int32_t)id;
        a->content = tok_keep(t, content->u.string.data, content->u.string.len);
        if (!a->content.data) return err_set_nomem(e);
        t->n_added++;
    }
    return 0;
}
