/* SPDX-License-Identifier: Apache-2.0 */
#include "bundle/template.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "formats/model_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TEMPLATE_BYTES = 1 << 20, MAX_CONFIG_BYTES = 64 << 20, MAX_VOCAB_BYTES = 256 << 20 };

void bundle_template_deinit(bundle_template *b) {
    tmpl_free(b->chat);
    tmpl_free(b->tool_use);
    free(b->bos);
    free(b->eos);
    memset(b, 0, sizeof *b);
}

const tmpl *bundle_template_pick(const bundle_template *b, bool with_tools) {
    return with_tools && b->tool_use ? b->tool_use : b->chat;
}

/* --- the built-in ones --- */

/* Which built-in template fits: has(ctx, token) tells whether the vocabulary knows a special token. NULL: none. */
static const char *bundle_template_guess(const char *arch, bool (*has)(const void *ctx, const char *token),
                                         const void *ctx) {
    static const struct {
        const char *token, *also, *name;
    } by_token[] = {
        { "<|im_start|>", NULL, "chatml" },
        { "<|start_header_id|>", NULL, "llama3" },
        { "<start_of_turn>", NULL, "gemma" },
        { "<|START_OF_TURN_TOKEN|>", NULL, "command-r" },
        { "<|start_of_role|>", NULL, "granite" },
        { "<｜User｜>", NULL, "deepseek" },
        { "[gMASK]", "<|assistant|>", "glm4" },
        { "[|assistant|]", NULL, "exaone" },
        { "<|end|>", "<|assistant|>", "phi3" },
        { "<|assistant|>", NULL, "zephyr" },
        { "[INST]", "[SYSTEM_PROMPT]", "mistral-tekken" },
        { "[INST]", NULL, "mistral" },
    };
    static const struct {
        const char *prefix, *name;
    } by_arch[] = {
        { "qwen", "chatml" },     { "mistral", "mistral" },     { "mixtral", "mistral" },  { "gemma", "gemma" },
        { "phi3", "phi3" },       { "command-r", "command-r" }, { "cohere", "command-r" }, { "deepseek", "deepseek" },
        { "granite", "granite" }, { "chatglm", "glm4" },        { "glm4", "glm4" },        { "exaone", "exaone" },
        { "llama", "llama2" },    { "internlm2", "chatml" },    { "yi", "chatml" },        { "olmo2", "zephyr" },
        { "stablelm", "zephyr" }, { "smollm", "chatml" },
    };
    if (arch && strcmp(arch, "paligemma") == 0) return arch; /* the words of Gemma's turns are there, and of no use */
    for (size_t i = 0; i < sizeof by_token / sizeof *by_token; i++) {
        if (has(ctx, by_token[i].token) && (!by_token[i].also || has(ctx, by_token[i].also))) return by_token[i].name;
    }
    for (size_t i = 0; arch && i < sizeof by_arch / sizeof *by_arch; i++) {
        if (strncmp(arch, by_arch[i].prefix, strlen(by_arch[i].prefix)) == 0) return by_arch[i].name;
    }
    return NULL;
}

static int open_builtin(bundle_template *b, const char *name, const char *arch, err *e) {
    if (!name)
        return err_set(e, ERR_NOTFOUND,
                       "the model carries no chat template and none is built in for its architecture (%.60s)",
                       arch ? arch : "unknown");
    const char *source = tmpl_builtin(name);
    snprintf(b->origin, sizeof b->origin, "built-in %s", name);
    return tmpl_open(&b->chat, source, strlen(source), e);
}

/* --- one template or a list of named ones --- */

static int open_text(tmpl **out, view text, err *e) {
    int rc = tmpl_open(out, text.data, text.len, e);
    return rc < 0 ? err_wrap(e, rc, "chat template") : 0;
}

/* A string, or [{"name": "default", "template": ...}, ...]. *found tells whether there was anything. */
static int open_value(bundle_template *b, const json_value *v, const char *origin, bool *found, err *e) {
    int rc = 0;
    *found = false;
    if (json_is(v, JSON_K_STRING)) {
        if ((rc = open_text(&b->chat, v->u.string, e)) < 0) return rc;
    } else if (json_is(v, JSON_K_ARRAY)) {
        const json_value *first = NULL;
        for (size_t i = 0; i < json_count(v); i++) {
            const char       *name = json_cstr(json_get(json_at(v, i), "name"));
            const json_value *text = json_get(json_at(v, i), "template");
            if (!name || !json_is(text, JSON_K_STRING)) continue;
            if (!first) first = text;
            tmpl **slot = strcmp(name, "default") == 0 ? &b->chat : strcmp(name, "tool_use") == 0 ? &b->tool_use : NULL;
            if (slot && !*slot && (rc = open_text(slot, text->u.string, e)) < 0) return rc;
        }
        if (!b->chat && first && (rc = open_text(&b->chat, first->u.string, e)) < 0) return rc;
    }
    if (!b->chat) return 0;
    *found = true;
    snprintf(b->origin, sizeof b->origin, "%s", origin);
    return 0;
}

/* --- directories --- */

typedef struct dir_text {
    char  *data;
    size_t bytes;
} dir_text;

/* Reads dir/name when it is there; absence is not an error. */
static int read_optional(dir_text *out, const char *dir, const char *name, size_t limit, err *e) {
    char *path = path_join(dir, name);
    int   rc = 0;
    *out = (dir_text){ 0 };
    if (!path) return err_set_nomem(e);
    if (file_exists(path)) rc = file_read(&out->data, &out->bytes, path, limit, e);
    free(path);
    return rc;
}

static int read_json(const json_value **out, const char *dir, const char *name, arena *a, err *e) {
    dir_text t;
    *out = NULL;
    int rc = read_optional(&t, dir, name, MAX_CONFIG_BYTES, e);
    if (rc < 0 || !t.data) return rc;
    char *copy = arena_strndup(a, t.data, t.bytes); /* strings of the tree may point into it */
    rc = copy ? json_parse(out, copy, t.bytes, a, e) : err_set_nomem(e);
    free(t.data);
    return rc < 0 ? err_wrap(e, rc, "%s", name) : 0;
}

/* "bos_token": "<s>", or an added-token object with "content"; an absent one leaves *out as it is. */
static int take_token(char **out, const json_value *config, const char *key, err *e) {
    const json_value *v = json_get(config, key);
    if (json_is(v, JSON_K_OBJECT)) v = json_get(v, "content");
    if (*out || !json_is(v, JSON_K_STRING)) return 0;
    *out = strndup(v->u.string.data, v->u.string.len);
    return *out ? 0 : err_set_nomem(e);
}

static int take_tokens(bundle_template *b, const json_value *config, err *e) {
    int rc = take_token(&b->bos, config, "bos_token", e);
    return rc < 0 ? rc : take_token(&b->eos, config, "eos_token", e);
}

enum { VOCAB_FILES = 4 };

typedef struct raw_vocab {
    dir_text parts[VOCAB_FILES];
} raw_vocab;

/* A special token stands in the tokenizer's JSON as a quoted string. */
static bool raw_has(const void *ctx, const char *token) {
    const raw_vocab *v = ctx;
    char             quoted[80];
    int              n = snprintf(quoted, sizeof quoted, "\"%s\"", token);
    for (size_t i = 0; i < VOCAB_FILES; i++) {
        if (v->parts[i].data && memmem(v->parts[i].data, v->parts[i].bytes, quoted, (size_t)n)) return true;
    }
    return false;
}

static int open_dir_builtin(bundle_template *b, const char *dir, arena *a, err *e) {
    static const char *const names[VOCAB_FILES] = { "tokenizer_config.json", "tokenizer.json",
                                                    "special_tokens_map.json", "tekken.json" };
    raw_vocab                v = { 0 };
    const json_value        *config = NULL;
    int                      rc = read_json(&config, dir, "config.json", a, e);
    for (size_t i = 0; rc >= 0 && i < VOCAB_FILES; i++)
        rc = read_optional(&v.parts[i], dir, names[i], MAX_VOCAB_BYTES, e);
    /* Nothing but the vocabulary itself names them there. */
    if (rc >= 0 && v.parts[VOCAB_FILES - 1].data && !b->bos) rc = (b->bos = strdup("<s>")) ? 0 : err_set_nomem(e);
    if (rc >= 0 && v.parts[VOCAB_FILES - 1].data && !b->eos) rc = (b->eos = strdup("</s>")) ? 0 : err_set_nomem(e);
    if (rc >= 0) {
        const char *arch = json_cstr(json_get(config, "model_type"));
        rc = open_builtin(b, bundle_template_guess(arch, raw_has, &v), arch, e);
    }
    for (size_t i = 0; i < VOCAB_FILES; i++) free(v.parts[i].data);
    return rc;
}

static int open_dir_files(bundle_template *b, const char *dir, arena *a, err *e) {
    const json_value *config = NULL, *map = NULL, *own = NULL;
    dir_text          plain = { 0 }, tools = { 0 };
    bool              found = false;
    int               rc;
    if ((rc = read_json(&config, dir, "tokenizer_config.json", a, e)) < 0) return rc;
    if ((rc = read_json(&map, dir, "special_tokens_map.json", a, e)) < 0) return rc;
    if ((rc = take_tokens(b, config, e)) < 0 || (rc = take_tokens(b, map, e)) < 0) return rc;
    if ((rc = read_optional(&plain, dir, "chat_template.jinja", MAX_TEMPLATE_BYTES, e)) < 0) return rc;
    if (plain.data) {
        rc = open_text(&b->chat, (view){ plain.data, plain.bytes }, e);
        free(plain.data);
        if (rc < 0) return rc;
        snprintf(b->origin, sizeof b->origin, "chat_template.jinja");
        if ((rc = read_optional(&tools, dir, "additional_chat_templates/tool_use.jinja", MAX_TEMPLATE_BYTES, e)) < 0)
            return rc;
        if (tools.data) rc = open_text(&b->tool_use, (view){ tools.data, tools.bytes }, e);
        free(tools.data);
        return rc;
    }
    if ((rc = read_json(&own, dir, "chat_template.json", a, e)) < 0) return rc;
    if ((rc = open_value(b, json_get(own, "chat_template"), "chat_template.json", &found, e)) < 0 || found) return rc;
    if ((rc = open_value(b, json_get(config, "chat_template"), "tokenizer_config.json", &found, e)) < 0 || found)
        return rc;
    return open_dir_builtin(b, dir, a, e);
}

/* --- GGUF --- */

typedef struct gguf_vocab {
    const meta_value *tokens;
} gguf_vocab;

/* Special tokens stand at the ends of a vocabulary, but a scan of it all costs a millisecond, once. */
static bool gguf_has(const void *ctx, const char *token) {
    const gguf_vocab *v = ctx;
    view              text;
    for (size_t i = 0; v->tokens && i < v->tokens->count; i++) {
        if (meta_at_string(v->tokens, i, &text) && view_eq_c(text, token)) return true;
    }
    return false;
}

/* The text of the token that a key names; *out stays NULL where it names none. */
static int gguf_token(char **out, const model_file *m, const meta_value *tokens, const char *key, err *e) {
    int64_t id;
    view    text;
    if (!meta_int(model_file_meta(m, key), &id) || id < 0 || !tokens || (uint64_t)id >= tokens->count) return 0;
    if (!meta_at_string(tokens, (size_t)id, &text)) return 0;
    *out = strndup(text.data, text.len);
    return *out ? 0 : err_set_nomem(e);
}

static int open_gguf(bundle_template *b, const char *path, err *e) {
    model_file *m = NULL;
    view        text;
    int         rc = model_file_open(&m, path, e);
    if (rc < 0) return rc;
    gguf_vocab v = { model_file_meta(m, "tokenizer.ggml.tokens") };
    rc = gguf_token(&b->bos, m, v.tokens, "tokenizer.ggml.bos_token_id", e);
    if (rc >= 0) rc = gguf_token(&b->eos, m, v.tokens, "tokenizer.ggml.eos_token_id", e);
    if (rc < 0) {
        model_file_free(m);
        return rc;
    }
    if (meta_string(model_file_meta(m, "tokenizer.chat_template"), &text) && text.len) {
        snprintf(b->origin, sizeof b->origin, "tokenizer.chat_template");
        rc = open_text(&b->chat, text, e);
        if (rc >= 0 && meta_string(model_file_meta(m, "tokenizer.chat_template.tool_use"), &text) && text.len)
            rc = open_text(&b->tool_use, text, e);
    } else {
        rc = open_builtin(b, bundle_template_guess(model_file_arch(m), gguf_has, &v), model_file_arch(m), e);
    }
    model_file_free(m);
    return rc;
}

/* --- any path --- */

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

static bool is_gguf(const char *path) {
    char  magic[4] = { 0 };
    FILE *f = fopen(path, "rb");
    bool  yes = f && fread(magic, 1, 4, f) == 4 && memcmp(magic, "GGUF", 4) == 0;
    if (f) fclose(f);
    return yes || ends_with(path, ".gguf");
}

static int open_file(bundle_template *b, const char *path, arena *a, err *e) {
    char  *text = NULL;
    size_t bytes = 0;
    bool   found = false;
    int    rc;
    if (is_gguf(path)) return open_gguf(b, path, e);
    bool json = ends_with(path, ".json");
    if ((rc = file_read(&text, &bytes, path, json ? MAX_CONFIG_BYTES : MAX_TEMPLATE_BYTES, e)) < 0) return rc;
    if (json) {
        const json_value *v = NULL;
        rc = json_parse(&v, text, bytes, a, e);
        if (rc >= 0) rc = take_tokens(b, v, e);
        if (rc >= 0) rc = open_value(b, json_get(v, "chat_template"), "chat_template", &found, e);
        if (rc >= 0 && !found) rc = err_set(e, ERR_NOTFOUND, "there is no chat_template in it");
    } else {
        snprintf(b->origin, sizeof b->origin, "file");
        rc = tmpl_open(&b->chat, text, bytes, e);
    }
    free(text);
    return rc;
}

int bundle_template_open(bundle_template *out, const char *path, err *e) {
    arena a;
    memset(out, 0, sizeof *out);
    arena_init(&a, (size_t)512 << 20);
    int rc = dir_exists(path) ? open_dir_files(out, path, &a, e) : open_file(out, path, &a, e);
    arena_deinit(&a);
    if (rc >= 0) return 0;
    bundle_template_deinit(out);
    return err_wrap(e, rc, "%s", path);
}
