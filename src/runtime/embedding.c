/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a model makes one vector of a text: pooling, dense layers, prompts, as its files say it.
 *
 * A directory of sentence-transformers lists its modules (modules.json): the model itself, Pooling, Dense layers,
 * Normalize. Prompts stand in config_sentence_transformers.json, the longest text in sentence_bert_config.json. A GGUF
 * says pooling_type and has dense_2 and dense_3. A module or a way of pooling that is not known here is refused by name:
 * the vectors would not be the model's.
 */
#include "base/file.h"
#include "runtime/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILE = 1 << 20 };

/* A small JSON file of the model's directory; NULL: it is not there. */
static int read_json(const runtime *r, const char *name, arena *a, const json_value **out, err *e) {
    char  *text = NULL, *path = path_join(model_file_path(r->file), name);
    size_t bytes = 0;
    *out = NULL;
    if (!path) return err_set_nomem(e);
    int rc = 0;
    if (file_exists(path)) {
        rc = file_read(&text, &bytes, path, MAX_FILE, e);
        if (rc == 0) rc = json_parse(out, text, bytes, a, e);
        if (rc < 0) err_wrap(e, rc, "%s", name);
    }
    free(path);
    free(text);
    return rc;
}

/* --- pooling --- */

static const struct {
    const char    *old, *name;
    engine_pooling pooling;
} poolings[] = { { "pooling_mode_cls_token", "cls", ENGINE_POOL_CLS },
                 { "pooling_mode_mean_tokens", "mean", ENGINE_POOL_MEAN },
                 { "pooling_mode_max_tokens", "max", ENGINE_POOL_MAX },
                 { "pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", ENGINE_POOL_SUM },
                 { "pooling_mode_lasttoken", "lasttoken", ENGINE_POOL_LAST },
                 { "pooling_mode_weightedmean_tokens", "weightedmean", ENGINE_POOL_NONE } };

static int read_pooling(runtime *r, const char *path, arena *a, err *e) {
    const json_value *v;
    char              name[160];
    snprintf(name, sizeof name, "%s/config.json", path);
    int rc = read_json(r, name, a, &v, e);
    if (rc < 0 || !v) return rc;
    const json_value *mode = json_get(v, "pooling_mode");
    int               found = 0;
    if (json_is(mode, JSON_K_ARRAY) && json_count(mode) == 1) mode = json_at(mode, 0);
    for (size_t i = 0; i < sizeof poolings / sizeof *poolings; i++) {
        bool is = json_cstr(mode) ? strcmp(json_cstr(mode), poolings[i].name) == 0
                                  : json_bool(json_get(v, poolings[i].old), false);
        if (is) r->embed.pooling = poolings[i].pooling;
        found += is;
    }
    if (found > 1)
        return err_set(e, ERR_UNSUPPORTED, "%s: several ways of pooling side by side are not supported", name);
    if (found == 0 ? json_cstr(mode) || json_is(mode, JSON_K_ARRAY) : r->embed.pooling == ENGINE_POOL_NONE)
        return err_set(e, ERR_UNSUPPORTED, "%s: this way of pooling is not supported", name);
    r->embed.skip_prompt = !json_bool(json_get(v, "include_prompt"), true);
    return 0;
}

/* --- dense layers --- */

int embedding_activation(const char *name, head_act *out, err *e) {
    static const struct {
        const char *name;
        head_act    act;
    } rows[] = { { "Identity", HEAD_NONE }, { "Tanh", HEAD_TANH },       { "ReLU", HEAD_RELU },
                 { "GELU", HEAD_GELU },     { "Sigmoid", HEAD_SIGMOID }, { "SiLU", HEAD_SILU } };
    const char *last = name && strrchr(name, '.') ? strrchr(name, '.') + 1 : name;
    for (size_t i = 0; last && i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(last, rows[i].name) != 0) continue;
        *out = rows[i].act;
        return 0;
    }
    return err_set(e, ERR_UNSUPPORTED, "the activation function \"%.80s\" is not supported", name ? name : "");
}

static int add_dense(runtime *r, const model_file *m, const char *name, head_act act, err *e) {
    if (r->embed.n_dense == EMBEDDING_DENSE) return err_set(e, ERR_LIMIT, "more than %d dense layers", EMBEDDING_DENSE);
    head_layer *h = &r->embed.dense[r->embed.n_dense];
    int         rc = head_read(h, m, name, r->embed.size, act, &r->mem, e);
    if (rc < 0) return rc;
    r->embed.size = h->out;
    r->embed.n_dense++;
    return 0;
}

static int read_dense(runtime *r, const char *path, arena *a, err *e) {
    const json_value *v;
    model_file       *m = NULL;
    head_act          act = HEAD_TANH; /* what the module does where its file is silent */
    char              name[160];
    snprintf(name, sizeof name, "%s/config.json", path);
    int rc = read_json(r, name, a, &v, e);
    if (rc < 0) return rc;
    if (!v) return err_set(e, ERR_NOTFOUND, "%s is missing", name);
    const char *fn = json_cstr(json_get(v, "activation_function")),
               *input = json_cstr(json_get(v, "module_input_name"));
    if (input && strcmp(input, "sentence_embedding") != 0)
        return err_set(e, ERR_UNSUPPORTED, "%s: module_input_name \"%.60s\" is not supported", name, input);
    if (fn && (rc = embedding_activation(fn, &act, e)) < 0) return rc;
    snprintf(name, sizeof name, "%s/model.safetensors", path);
    char *file = path_join(model_file_path(r->file), name);
    if (!file) return err_set_nomem(e);
    rc = model_file_open(&m, file, e);
    if (rc == 0) rc = add_dense(r, m, "linear", act, e);
    model_file_free(m);
    free(file);
    return rc;
}

/* --- what the files say --- */

static int read_module(runtime *r, const json_value *module, arena *a, err *e) {
    const char *type = json_cstr(json_get(module, "type")), *path = json_cstr(json_get(module, "path"));
    const char *kind = type && strrchr(type, '.') ? strrchr(type, '.') + 1 : type;
    if (!kind || !path || strlen(path) > 100 || strstr(path, "..") || *path == '/')
        return err_set(e, ERR_FORMAT, "modules.json: a module without a type or a path of its own");
    if (strcmp(kind, "Pooling") == 0) return read_pooling(r, path, a, e);
    if (strcmp(kind, "Dense") == 0) return read_dense(r, path, a, e);
    if (strcmp(kind, "Transformer") == 0 && !*path) return 0;
    if (strcmp(kind, "Normalize") == 0) return 0;
    return err_set(e, ERR_UNSUPPORTED, "modules.json: the module \"%.80s\" is not supported", type);
}

static int read_prompts(runtime *r, const json_value *v, err *e) {
    const json_value *list = json_get(v, "prompts");
    const char       *dflt = json_cstr(json_get(v, "default_prompt_name"));
    size_t            n = json_is(list, JSON_K_OBJECT) ? list->u.object.count : 0;
    r->embed.prompts = arena_calloc(&r->mem, n + 1, sizeof *r->embed.prompts);
    if (!r->embed.prompts) return err_set_nomem(e);
    for (size_t i = 0; i < n; i++) {
        const json_member *m = &list->u.object.members[i];
        embedding_prompt  *p = &r->embed.prompts[r->embed.n_prompts];
        if (!json_cstr(&m->value)) continue;
        p->name = arena_strndup(&r->mem, m->key.data, m->key.len);
        p->text = arena_strdup(&r->mem, json_cstr(&m->value));
        if (!p->name || !p->text) return err_set_nomem(e);
        r->embed.n_prompts++;
        if (dflt && strcmp(dflt, p->name) == 0) r->embed.dflt = p;
    }
    return 0;
}

static int read_directory(runtime *r, err *e) {
    const json_value *v;
    arena             a;
    int64_t           longest = 0;
    arena_init(&a, 0);
    int rc = read_json(r, "modules.json", &a, &v, e);
    for (size_t i = 0; rc == 0 && i < json_count(v); i++) rc = read_module(r, json_at(v, i), &a, e);
    if (rc == 0 && !v) rc = read_pooling(r, "1_Pooling", &a, e);
    if (rc == 0) rc = read_json(r, "config_sentence_transformers.json", &a, &v, e);
    if (rc == 0 && v) rc = read_prompts(r, v, e);
    if (rc == 0) rc = read_json(r, "sentence_bert_config.json", &a, &v, e);
    if (rc == 0 && json_int(json_get(v, "max_seq_length"), &longest) && longest > 0 && longest < INT32_MAX)
        r->embed.longest = (int)longest;
    arena_deinit(&a);
    return rc;
}

static int read_gguf(runtime *r, err *e) {
    char    key[96];
    int64_t type = 0;
    int     rc = 0;
    snprintf(key, sizeof key, "%s.pooling_type", model_file_arch(r->file) ? model_file_arch(r->file) : "");
    if (meta_int(model_file_meta(r->file, key), &type) && type >= 1 && type <= 3)
        r->embed.pooling = type == 1 ? ENGINE_POOL_MEAN : type == 2 ? ENGINE_POOL_CLS : ENGINE_POOL_LAST;
    static const char *const dense[] = { "dense_2", "dense_3" };
    for (size_t i = 0; i < 2 && rc == 0; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s.weight", dense[i]);
        if (model_file_tensor(r->file, name)) rc = add_dense(r, r->file, dense[i], HEAD_NONE, e);
    }
    return rc;
}

int embedding_open(runtime *r, err *e) {
    r->embed.size = engine_embedding_size(r->engine);
    r->embed.pooling = ENGINE_POOL_MEAN;
    int rc = model_file_format(r->file) == MODEL_GGUF ? read_gguf(r, e)
             : dir_exists(model_file_path(r->file))   ? read_directory(r, e)
                                                      : 0;
    r->embed.widest = engine_embedding_size(r->engine);
    for (int i = 0; i < r->embed.n_dense; i++) {
        if (r->embed.dense[i].out > r->embed.widest) r->embed.widest = r->embed.dense[i].out;
    }
    return rc;
}

/* --- prompts --- */

/* What people call the two sides of a search. */
static const char *const sides[2][5] = { { "query", "search_query", "retrieval.query", "Retrieval-query", NULL },
                                         { "document", "passage", "search_document", "corpus", NULL } };

static const embedding_prompt *named_prompt(const runtime *r, view name) {
    for (int i = 0; i < r->embed.n_prompts; i++) {
        if (view_eq_c(name, r->embed.prompts[i].name)) return &r->embed.prompts[i];
    }
    return NULL;
}

int embedding_prompt_for(const runtime *r, const runtime_request *q, const embedding_prompt **out, err *e) {
    *out = r->embed.dflt;
    if (q->prompt_name.len == 0) return 0;
    if ((*out = named_prompt(r, q->prompt_name))) return 0;
    for (int s = 0; s < 2 && q->prompt_is_side; s++) {
        bool here = false;
        for (int i = 0; sides[s][i]; i++) here = here || view_eq_c(q->prompt_name, sides[s][i]);
        for (int i = 0; here && sides[s][i] && !*out; i++) *out = named_prompt(r, view_of(sides[s][i]));
    }
    if (*out || q->prompt_is_side) return 0;
    return err_set(e, ERR_ARG, "prompt_name: this model has no prompt \"%.*s\"",
                   (int)(q->prompt_name.len < 80 ? q->prompt_name.len : 80), q->prompt_name.data);
}
