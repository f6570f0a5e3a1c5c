/* SPDX-License-Identifier: Apache-2.0 */
#include "bundle/tokenizer.h"

#include "base/file.h"

#include <stdlib.h>
#include <string.h>

static int64_t meta_id(const model_file *m, const char *key) {
    int64_t v;
    return meta_int(model_file_meta(m, key), &v) && v >= 0 && v <= INT32_MAX ? v : -1;
}

static int meta_flag(const model_file *m, const char *key) {
    bool v;
    return meta_bool(model_file_meta(m, key), &v) ? v : -1;
}

/* An array of strings; an absent key gives none. */
static int meta_strings(const model_file *m, const char *key, const view **out, size_t *count, err *e) {
    const meta_value *v = model_file_meta(m, key);
    *out = NULL;
    *count = 0;
    if (!v) return 0;
    if (v->type != META_ARRAY || v->elem_type != META_STRING)
        return err_set(e, ERR_FORMAT, "%s is not an array of strings", key);
    *out = v->strings;
    *count = v->count;
    return 0;
}

typedef struct arrays {
    float *scores;
    int   *types;
} arrays;

static int load_arrays(const model_file *m, size_t n, arrays *a, err *e) {
    const meta_value *scores = model_file_meta(m, "tokenizer.ggml.scores");
    const meta_value *types = model_file_meta(m, "tokenizer.ggml.token_type");
    if (scores) {
        if (scores->type != META_ARRAY || scores->count < n)
            return err_set(e, ERR_FORMAT, "tokenizer.ggml.scores has fewer entries than tokenizer.ggml.tokens");
        a->scores = malloc(n * sizeof *a->scores + 1);
        if (!a->scores) return err_set_nomem(e);
        for (size_t i = 0; i < n; i++) {
            double v;
            if (!meta_at_real(scores, i, &v))
                return err_set(e, ERR_FORMAT, "tokenizer.ggml.scores has entries that are not numbers");
            a->scores[i] = (float)v;
        }
    }
    if (types) {
        if (types->type != META_ARRAY || types->count < n)
            return err_set(e, ERR_FORMAT, "tokenizer.ggml.token_type has fewer entries than tokenizer.ggml.tokens");
        a->types = malloc(n * sizeof *a->types + 1);
        if (!a->types) return err_set_nomem(e);
        for (size_t i = 0; i < n; i++) {
            int64_t v;
            if (!meta_at_int(types, i, &v))
                return err_set(e, ERR_FORMAT, "tokenizer.ggml.token_type has entries that are not integers");
            a->types[i] = v >= 0 && v < 64 ? (int)v : 0;
        }
    }
    return 0;
}

static int open_gguf(tok **out, const model_file *m, const tok_options *o, err *e) {
    tok_vocab_source  s;
    arrays            a = { 0 };
    const meta_value *map = model_file_meta(m, "tokenizer.ggml.precompiled_charsmap");
    int               rc;
    tok_vocab_source_init(&s);
    if (!meta_string(model_file_meta(m, "tokenizer.ggml.model"), &s.model))
        return err_set(e, ERR_NOTFOUND, "the file has no tokenizer (tokenizer.ggml.model is absent)");
    (void)meta_string(model_file_meta(m, "tokenizer.ggml.pre"), &s.pre);
    (void)meta_string(model_file_meta(m, "general.name"), &s.name);
    if ((rc = meta_strings(m, "tokenizer.ggml.tokens", &s.tokens, &s.n_tokens, e)) < 0) return rc;
    if ((rc = meta_strings(m, "tokenizer.ggml.merges", &s.merges, &s.n_merges, e)) < 0) return rc;
    if (map && map->type == META_ARRAY && (map->elem_type == META_U8 || map->elem_type == META_I8))
        s.charsmap = (view){ (const char *)map->data, map->count };
    s.bos = meta_id(m, "tokenizer.ggml.bos_token_id");
    if (s.bos < 0) s.bos = meta_id(m, "tokenizer.ggml.cls_token_id"); /* BERT vocabularies begin with CLS */
    s.eos = meta_id(m, "tokenizer.ggml.eos_token_id");
    s.eot = meta_id(m, "tokenizer.ggml.eot_token_id");
    s.eom = meta_id(m, "tokenizer.ggml.eom_token_id");
    s.unk = meta_id(m, "tokenizer.ggml.unknown_token_id");
    s.sep = meta_id(m, "tokenizer.ggml.seperator_token_id"); /* the format's spelling */
    s.pad = meta_id(m, "tokenizer.ggml.padding_token_id");
    s.mask = meta_id(m, "tokenizer.ggml.mask_token_id");
    s.add_bos = meta_flag(m, "tokenizer.ggml.add_bos_token");
    s.add_eos = meta_flag(m, "tokenizer.ggml.add_eos_token");
    s.add_sep = meta_flag(m, "tokenizer.ggml.add_sep_token");
    s.add_space_prefix = meta_flag(m, "tokenizer.ggml.add_space_prefix");
    s.remove_extra_whitespaces = meta_flag(m, "tokenizer.ggml.remove_extra_whitespaces");
    s.lowercase = meta_flag(m, "tokenizer.ggml.normalizer.lowercase");
    s.strip_accents = meta_flag(m, "tokenizer.ggml.normalizer.strip_accents");
    rc = load_arrays(m, s.n_tokens, &a, e);
    s.scores = a.scores;
    s.types = a.types;
    if (rc == 0) rc = tok_open_vocab(out, &s, o, e);
    free(a.scores);
    free(a.types);
    return rc;
}

int bundle_tokenizer_open(tok **out, const model_file *m, const tok_options *o, err *e) {
    int rc;
    *out = NULL;
    rc = model_file_format(m) == MODEL_GGUF ? open_gguf(out, m, o, e) : tok_open_path(out, model_file_path(m), o, e);
    return rc < 0 ? err_wrap(e, rc, "%s", model_file_path(m)) : 0;
}

static bool has_suffix(const char *path, const char *suffix) {
    size_t a = strlen(path), b = strlen(suffix);
    return a >= b && strcmp(path + a - b, suffix) == 0;
}

int bundle_tokenizer_open_path(tok **out, const char *path, const tok_options *o, err *e) {
    model_file *m;
    int         rc;
    *out = NULL;
    if (!dir_exists(path) && (has_suffix(path, ".json") || has_suffix(path, ".model") ||
                              has_suffix(path, ".tiktoken") || has_suffix(path, ".txt"))) {
        rc = tok_open_path(out, path, o, e);
        return rc < 0 ? err_wrap(e, rc, "%s", path) : 0;
    }
    if ((rc = model_file_open(&m, path, e)) < 0) return rc;
    rc = bundle_tokenizer_open(out, m, o, e);
    model_file_free(m);
    return rc;
}
