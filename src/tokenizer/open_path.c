/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tokenizer from a directory or one of its files.
 *
 * Preferred in this order: tokenizer.json, tekken.json, a SentencePiece or tiktoken model, vocab.json + merges.txt, vocab.txt.
 * Beside it, tokenizer_config.json names begin and end tokens, further added tokens (added_tokens_decoder) and whether
 * BOS and EOS are added; generation_config.json and config.json list the tokens that end a generation.
 */
#include "base/file.h"
#include "tokenizer/internal.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG_LIMIT ((size_t)16 << 20)

typedef struct sidecar {
    arena             a;
    const json_value *config, *special_map, *generation, *model;
} sidecar;

/* The path of a file in a directory; *out is NULL where there is none. */
static int exists_in(char **out, const char *dir, const char *name, err *e) {
    *out = path_join(dir, name);
    if (!*out) return err_set_nomem(e);
    if (!file_exists(*out)) {
        free(*out);
        *out = NULL;
    }
    return 0;
}

/* A JSON file beside the tokenizer; absent is fine, broken is not. */
static int load_tree(sidecar *s, const char *dir, const char *name, const json_value **out, err *e) {
    char  *path, *data = NULL;
    size_t bytes;
    int    rc = exists_in(&path, dir, name, e);
    if (rc < 0 || !path) return rc;
    rc = file_read(&data, &bytes, path, CONFIG_LIMIT, e);
    if (rc == 0) rc = json_parse(out, data, bytes, &s->a, e);
    free(data);
    free(path);
    return rc < 0 ? err_wrap(e, rc, "%s", name) : 0;
}

/* ---- special tokens ---- */

/* "text" or {"content": "text"}; the id or -1. */
static int32_t token_of(const tok *t, const json_value *v) {
    if (json_is(v, JSON_K_OBJECT)) v = json_get(v, "content");
    return json_is(v, JSON_K_STRING) ? vocab_find(&t->v, v->u.string.data, v->u.string.len) : -1;
}

static int32_t named_token(const tok *t, const sidecar *s, const char *key) {
    int32_t id = token_of(t, json_get(s->config, key));
    return id >= 0 ? id : token_of(t, json_get(s->special_map, key));
}

static bool has_added(const tok *t, view content) {
    for (size_t i = 0; i < t->n_added; i++) {
        if (view_eq(t->added[i].content, content)) return true;
    }
    return false;
}

/* Adds tokens to an open tokenizer (nobody uses it yet). */
static int extend(tok *t, const json_value *decoder, err *e) {
    size_t       n = json_is(decoder, JSON_K_OBJECT) ? decoder->u.object.count : 0;
    added_token *list = n ? realloc(t->added, (t->n_added + n) * sizeof *list) : NULL;
    int          rc;
    if (n == 0) return 0;
    if (!list) return err_set_nomem(e);
    t->added = list;
    for (size_t i = 0; i < n; i++) {
        const json_member *m = &decoder->u.object.members[i];
        const json_value  *content = json_get(&m->value, "content");
        long long          id = 0;
        size_t             k = 0;
        for (; k < m->key.len && k < 9 && m->key.data[k] >= '0' && m->key.data[k] <= '9'; k++)
            id = id * 10 + (m->key.data[k] - '0');
        if (k == 0 || k != m->key.len || !json_is(content, JSON_K_STRING) || id > (long long)t->v.n + 65536)
            return err_set(e, ERR_FORMAT, "tokenizer_config.json: added_tokens_decoder has a bad entry");
        if (content->u.string.len == 0 || content->u.string.len > TOK_MAX_ADDED_BYTES ||
            has_added(t, content->u.string))
            continue;
        added_token a = { .special = json_bool(json_get(&m->value, "special"), false),
                          .lstrip = json_bool(json_get(&m->value, "lstrip"), false),
                          .rstrip = json_bool(json_get(&m->value, "rstrip"), false),
                          .single_word = json_bool(json_get(&m->value, "single_word"), false) };
        int32_t     known = vocab_find(&t->v, content->u.string.data, content->u.string.len);
        a.id = known >= 0 ? known : (int32_t)id;
        a.content = tok_keep(t, content->u.string.data, content->u.string.len);
        if (!a.content.data) return err_set_nomem(e);
        tok_class cls = a.special ? TOK_CONTROL : TOK_USER;
        if (known >= 0) {
            if (vocab_class(&t->v, (uint32_t)known) == TOK_NORMAL) t->v.cls[known] = (uint8_t)cls;
        } else {
            uint32_t old = t->v.n;
            if ((uint32_t)id < old && vocab_class(&t->v, (uint32_t)id) != TOK_UNDEFINED)
                continue; /* the model's token stays */
            if ((rc = vocab_set(&t->v, (uint32_t)id, a.content.data, a.content.len, cls, 0, e)) < 0) return rc;
            t->v.cls[id] |= VOCAB_OUTSIDE;
        }
        t->added[t->n_added++] = a;
    }
    return tok_refresh(t, e);
}

static int add_ends(tok *t, const json_value *v, err *e) {
    int64_t id;
    if (json_int(v, &id)) return tok_add_end(t, id) < 0 ? err_set_nomem(e) : 0;
    for (size_t i = 0; i < json_count(v) && json_is(v, JSON_K_ARRAY); i++) {
        if (json_int(json_at(v, i), &id) && tok_add_end(t, id) < 0) return err_set_nomem(e);
    }
    return 0;
}

static bool class_starts(const sidecar *s, const char *prefix) {
    const char *name = json_cstr(json_get(s->config, "tokenizer_class"));
    return name && strncmp(name, prefix, strlen(prefix)) == 0;
}

/* Classes of the reference that build their begin and end tokens from tokenizer_config.json. */
static bool builds_template(const sidecar *s) {
    return class_starts(s, "LlamaTokenizer") || class_starts(s, "CodeLlamaTokenizer") ||
           class_starts(s, "GemmaTokenizer") || class_starts(s, "CohereTokenizer");
}

static int apply(tok *t, const sidecar *s, bool from_json, err *e) {
    const json_value *add_bos = json_get(s->config, "add_bos_token"), *add_eos = json_get(s->config, "add_eos_token");
    int32_t           id;
    int               rc;
    if (!from_json && (rc = extend(t, json_get(s->config, "added_tokens_decoder"), e)) < 0) return rc;
    if ((id = named_token(t, s, "bos_token")) >= 0 || (id = named_token(t, s, "cls_token")) >= 0) t->bos = id;
    if ((id = named_token(t, s, "eos_token")) >= 0) t->eos = id;
    if ((id = named_token(t, s, "pad_token")) >= 0) t->pad = id;
    if ((id = named_token(t, s, "sep_token")) >= 0) t->sep = id;
    if ((id = named_token(t, s, "mask_token")) >= 0) t->mask = id;
    if (t->unk < 0 && t->model != MODEL_BPE && (id = named_token(t, s, "unk_token")) >= 0) t->unk = id;
    if (!from_json || builds_template(s)) {
        if (json_is(add_bos, JSON_K_BOOL)) {
            t->n_before = 0;
            if (json_bool(add_bos, false) && t->bos >= 0) t->before[t->n_before++] = t->bos;
        }
        if (json_is(add_eos, JSON_K_BOOL)) {
            t->n_after = 0;
            if (json_bool(add_eos, false) && t->eos >= 0) t->after[t->n_after++] = t->eos;
        }
    }
    if (t->bos < 0 && t->n_before) t->bos = t->before[0];
    if (tok_add_end(t, t->eos) < 0) return err_set_nomem(e);
    if ((rc = add_ends(t, json_get(s->generation, "eos_token_id"), e)) < 0) return rc;
    if ((rc = add_ends(t, json_get(s->model, "eos_token_id"), e)) < 0) return rc;
    return tok_known_ends(t, false, e);
}

/* ---- kinds of files ---- */

static bool looks_like_json(const file_map *f) {
    size_t i = 0;
    while (i < f->bytes && (f->data[i] <= ' ' || f->data[i] == 0xEF || f->data[i] == 0xBB || f->data[i] == 0xBF)) i++;
    return i < f->bytes && f->data[i] == '{';
}

/* Base64, a blank, digits: tiktoken. A protocol buffer begins with a field key. */
static bool looks_like_tiktoken(const file_map *f) {
    size_t i = 0;
    while (i < f->bytes && i < 200 && f->data[i] > ' ' && f->data[i] < 127) i++;
    return i > 0 && i + 1 < f->bytes && f->data[i] == ' ' && f->data[i + 1] >= '0' && f->data[i + 1] <= '9';
}

static bool contains(const char *text, const char *part) { return strstr(text, part) != NULL; }

static const char *file_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Which pattern goes with a tiktoken file: its name, else the model's type. */
static const char *tiktoken_pre(const char *path, const sidecar *s) {
    const char *name = file_name(path), *type = json_cstr(json_get(s->model, "model_type"));
    if (contains(name, "o200k")) return "gpt-4o";
    if (contains(name, "cl100k")) return "llama-bpe";
    if (contains(name, "qwen")) return "qwen2";
    if (contains(name, "p50k") || contains(name, "r50k") || contains(name, "gpt2")) return "gpt-2";
    if (contains(name, "tiktoken.model") || (type && contains(type, "kimi"))) return "kimi-k2";
    if (type && contains(type, "qwen")) return "qwen2";
    if (strcmp(name, "tokenizer.model") == 0 || (type && contains(type, "llama"))) return "llama-bpe";
    return NULL;
}

static const char *bpe_files_pre(const sidecar *s) {
    if (class_starts(s, "Qwen2")) return "qwen2";
    if (class_starts(s, "Roberta")) return "roberta-bpe";
    if (class_starts(s, "Bloom")) return "bloom";
    return "gpt-2";
}

static int open_bpe_pair(tok **out, const char *vocab_path, const char *dir, const file_map *vocab_file,
                         const char *pre, const sidecar *s, err *e) {
    char    *merges_path;
    file_map merges = { 0 };
    int      rc = exists_in(&merges_path, dir, "merges.txt", e);
    if (rc < 0) return rc;
    if (!merges_path) return err_set(e, ERR_NOTFOUND, "%s: merges.txt is not beside it", file_name(vocab_path));
    rc = file_map_open(&merges, merges_path, e);
    if (rc == 0)
        rc = tok_open_bpe_files(out, (const char *)vocab_file->data, vocab_file->bytes, (const char *)merges.data,
                                merges.bytes, pre ? pre : bpe_files_pre(s), e);
    file_map_close(&merges);
    free(merges_path);
    return rc;
}

/* DeBERTa's file: its tokens stand around texts as BERT's do, which the reference knows by the tokenizer's class. */
static void frame_bert(tok *t) {
    int32_t cls = vocab_find(&t->v, "[CLS]", 5), sep = vocab_find(&t->v, "[SEP]", 5);
    if (cls < 0 || sep < 0) return;
    t->n_before = t->n_after = t->n_pair_before = t->n_between = t->n_pair_after = 1;
    t->before[0] = t->pair_before[0] = cls;
    t->after[0] = t->between[0] = t->pair_after[0] = sep;
    t->pair = t->pair_types = true;
}

/* The same for what would change every text before the model sees it; no published file asks for it. */
static int check_bert_frame(const sidecar *s, err *e) {
    static const char *const fields[] = { "do_lower_case", "split_by_punct" };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (json_bool(json_get(s->config, fields[i]), false))
            return err_set(e, ERR_UNSUPPORTED, "tokenizer_config.json: \"%s\" is not supported for spm.model",
                           fields[i]);
    }
    return 0;
}

static int open_file(tok **out, const char *path, const char *dir, const tok_options *o, const sidecar *s,
                     bool *from_json, err *e) {
    file_map    f = { 0 };
    const char *name = file_name(path), *pre = o ? o->pre : NULL;
    int         rc = file_map_open(&f, path, e);
    size_t      len = strlen(name);
    *from_json = false;
    if (rc < 0) return rc;
    if (f.bytes == 0) {
        rc = err_set(e, ERR_FORMAT, "the file is empty");
    } else if (strcmp(name, "vocab.json") == 0 && looks_like_json(&f)) {
        rc = open_bpe_pair(out, path, dir, &f, pre, s, e);
    } else if (strcmp(name, "tekken.json") == 0) {
        *from_json = true;
        rc = pre ? err_set(e, ERR_ARG, "--pre does not apply: tekken.json brings its own pattern")
                 : tok_open_tekken(out, (const char *)f.data, f.bytes, e);
    } else if (looks_like_json(&f)) {
        *from_json = true;
        rc = pre ? err_set(e, ERR_ARG, "--pre does not apply: tokenizer.json brings its own pre-tokenizer")
                 : tok_open_json(out, (const char *)f.data, f.bytes, e);
    } else if (looks_like_tiktoken(&f)) {
        if (!pre) pre = tiktoken_pre(path, s);
        rc = pre ? tok_open_tiktoken(out, (const char *)f.data, f.bytes, pre, e)
                 : err_set(e, ERR_ARG,
                           "the file's name does not tell its pattern; --pre NAME does (for example gpt-4o, llama-bpe, "
                           "qwen2)");
    } else if (pre) {
        rc = err_set(e, ERR_ARG, "--pre does not apply to this kind of tokenizer");
    } else if (len > 4 && strcmp(name + len - 4, ".txt") == 0) {
        rc = tok_open_bert_vocab(out, (const char *)f.data, f.bytes,
                                 json_bool(json_get(s->config, "do_lower_case"), true), e);
    } else {
        const bool bert = strcmp(name, "spm.model") == 0;
        rc = bert ? check_bert_frame(s, e) : 0;
        if (rc == 0) rc = tok_open_sentencepiece(out, f.data, f.bytes, e);
        if (rc == 0 && bert) frame_bert(*out);
    }
    file_map_close(&f);
    return rc;
}

/* The tokenizer file of a directory; *out is NULL when there is none. */
static int find_in(char **out, const char *dir, err *e) {
    static const char *const names[] = {
        "tokenizer.json", "tekken.json",    "tokenizer.model", "spiece.model", "sentencepiece.bpe.model",
        "spm.model",      "tiktoken.model", "vocab.json",      "vocab.txt"
    };
    int rc = 0;
    *out = NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if ((rc = exists_in(out, dir, names[i], e)) < 0 || *out) return rc;
    DIR           *d = opendir(dir);
    struct dirent *entry;
    while (d && !*out && rc == 0 && (entry = readdir(d))) {
        size_t n = strlen(entry->d_name);
        if (n > 9 && strcmp(entry->d_name + n - 9, ".tiktoken") == 0) rc = exists_in(out, dir, entry->d_name, e);
    }
    if (d) closedir(d);
    return rc;
}

int tok_open_path(tok **out, const char *path, const tok_options *o, err *e) {
    bool        is_dir = dir_exists(path), from_json = false;
    const char *slash = strrchr(path, '/');
    char       *dir = is_dir ? strdup(path) : slash ? strndup(path, (size_t)(slash - path)) : strdup(".");
    char       *file = is_dir ? NULL : strdup(path);
    sidecar     s = { 0 };
    int         rc = is_dir ? find_in(&file, path, e) : 0;
    *out = NULL;
    arena_init(&s.a, CONFIG_LIMIT * 8);
    if (!dir || (!file && !is_dir)) rc = err_set_nomem(e);
    if (rc == 0 && !file)
        rc = err_set(e, ERR_NOTFOUND,
                     "the directory has no tokenizer file (tokenizer.json, tekken.json, tokenizer.model, vocab.json, "
                     "*.tiktoken)");
    if (rc == 0) rc = load_tree(&s, *dir ? dir : "/", "tokenizer_config.json", &s.config, e);
    if (rc == 0) rc = load_tree(&s, *dir ? dir : "/", "special_tokens_map.json", &s.special_map, e);
    if (rc == 0) rc = load_tree(&s, *dir ? dir : "/", "generation_config.json", &s.generation, e);
    if (rc == 0) rc = load_tree(&s, *dir ? dir : "/", "config.json", &s.model, e);
    if (rc == 0) rc = open_file(out, file, dir, o, &s, &from_json, e);
    if (rc == 0 && (rc = apply(*out, &s, from_json, e)) < 0) {
        tok_free(*out);
        *out = NULL;
    }
    arena_deinit(&s.a);
    free(file);
    free(dir);
    return rc;
}
