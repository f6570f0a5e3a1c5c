/* SPDX-License-Identifier: Apache-2.0 */
/* Models: opening, facts, tokens, the log. */
#include "api/api.h"

#include "base/file.h"
#include "base/log.h"
#include "runtime/demo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *hearth_version(void) { return HEARTH_VERSION; }

int api_fail(hearth_error *e, const err *why) {
    if (e) {
        e->code = why->code;
        snprintf(e->text, sizeof e->text, "%s", why->msg);
    }
    return why->code;
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

void hearth_model_options_init(hearth_model_options *o, size_t size) {
    memset(o, 0, size);
    o->size = size;
}

/* --- opening --- */

static int read_options(const hearth_model_options *o, runtime_options *out, err *e) {
    hearth_model_options full;
    hearth_model_options_init(&full, sizeof full);
    if (o) {
        if (o->size < sizeof o->size) return err_set(e, ERR_ARG, "options: call hearth_model_options_init first");
        memcpy(&full, o, smaller(o->size, sizeof full));
    }
    if (full.context < 0) return err_set(e, ERR_ARG, "context: %d is negative", full.context);
    if (full.threads < 0 || full.threads > 1024)
        return err_set(e, ERR_ARG, "threads: %d is not between 0 and 1024", full.threads);
    if (full.max_running < 0) return err_set(e, ERR_ARG, "max_running: %d is negative", full.max_running);
    out->engine.n_ctx = full.context;
    out->engine.n_threads = full.threads;
    out->engine.max_seqs = full.max_running;
    out->engine.cache_bytes = (size_t)full.cache_bytes;
    out->engine.host_cache_bytes = (size_t)full.host_cache_bytes;
    out->engine.disk_cache_dir = full.disk_cache_dir;
    out->engine.disk_cache_bytes = full.disk_cache_bytes;
    out->template_text = full.chat_template;
    out->engine.precise_layers = full.precise_layers > 0 ? full.precise_layers : 0;
    if (full.precise_layers == 0) out->engine.precise_layers = NN_KV_PRECISE_USUAL;
    out->settings.speculate = full.speculate ? full.speculate : "auto";
    out->settings.draft = full.draft;
    out->settings.mmproj = full.mmproj;
    return runtime_cache_types(full.cache_type, full.cache_type_k, full.cache_type_v, &out->engine, e);
}

static int find_path(char **out, const char *path, err *e) {
    if (!path) return err_set(e, ERR_ARG, "path: none was given");
    if (runtime_is_demo(path) && !file_exists(path) && !dir_exists(path)) return runtime_demo_path(out, path, e);
    *out = strdup(path);
    return *out ? 0 : err_set_nomem(e);
}

hearth_model *hearth_model_open(const char *path, const hearth_model_options *options, hearth_error *e) {
    runtime_options o = { 0 };
    err             why = { 0 };
    char           *found = NULL;
    hearth_model   *m = calloc(1, sizeof *m);
    int             rc = m ? 0 : err_set_nomem(&why);
    if (rc == 0) rc = read_options(options, &o, &why);
    if (rc == 0) rc = find_path(&found, path, &why);
    o.path = found;
    if (rc == 0) rc = runtime_open(&m->r, &o, &why);
    free(found);
    if (rc == 0) return m;
    free(m);
    api_fail(e, &why);
    return NULL;
}

void hearth_model_free(hearth_model *m) {
    if (!m) return;
    runtime_free(m->r);
    free(m);
}

void hearth_model_describe(const hearth_model *m, hearth_model_info *out, size_t size) {
    runtime_info i;
    runtime_describe(m->r, &i);
    hearth_model_info full = { .path = i.path,
                               .name = i.name,
                               .family = i.family,
                               .format = i.format,
                               .quantization = i.quant,
                               .parameters = i.n_params,
                               .file_bytes = i.file_bytes,
                               .context = i.n_ctx,
                               .trained_context = i.n_ctx_train,
                               .layers = i.n_layer,
                               .embedding_size = i.n_embd,
                               .vocabulary = (int)i.n_vocab,
                               .can_chat = i.can_chat,
                               .can_use_tools = i.can_tools,
                               .can_think = i.can_think,
                               .can_embed = i.can_embed,
                               .can_infill = i.can_infill,
                               .can_rerank = i.can_rerank,
                               .can_generate = i.can_generate,
                               .vector_size = i.n_vector,
                               .can_see = i.can_see,
                               .can_hear = i.can_hear };
    memset(out, 0, size);
    memcpy(out, &full, smaller(size, sizeof full));
}

void hearth_model_stats(hearth_model *m, hearth_stats *out, size_t size) {
    runtime_stats s;
    runtime_stat(m->r, &s);
    hearth_stats full = { .requests = s.requests,
                          .tokens_evaluated = s.engine.tokens_evaluated,
                          .tokens_cached = s.engine.tokens_cached,
                          .tokens_generated = s.engine.tokens_generated,
                          .steps = s.engine.steps,
                          .preparing = s.preparing,
                          .waiting = s.engine.waiting,
                          .running = s.engine.running };
    memset(out, 0, size);
    memcpy(out, &full, smaller(size, sizeof full));
}

/* --- texts and tokens --- */

int64_t hearth_tokenize(const hearth_model *m, const char *text, size_t bytes, int special, int32_t *out, size_t cap,
                        hearth_error *e) {
    tok_ids ids = { 0 };
    err     why = { 0 };
    int64_t n;
    int     rc = runtime_tokenize(m->r, (view){ text, bytes }, special != 0, special != 0, &ids, &why);
    if (rc == 0) {
        n = (int64_t)ids.count;
        if (cap && ids.count) memcpy(out, ids.data, smaller(cap, ids.count) * sizeof *out);
    } else {
        n = api_fail(e, &why);
    }
    tok_ids_deinit(&ids);
    return n;
}

/* The caller gets the text, or NULL and a sentence. */
static char *hand_out(str *text, int rc, err *why, hearth_error *e) {
    char *out = rc == 0 ? (str_push(text, '\0'), str_take(text)) : NULL;
    if (rc == 0 && !out) err_set_nomem(why);
    if (!out) {
        str_deinit(text);
        api_fail(e, why);
    }
    return out;
}

char *hearth_detokenize(const hearth_model *m, const int32_t *tokens, size_t n, int special, hearth_error *e) {
    err why = { 0 };
    str text;
    str_init(&text);
    return hand_out(&text, runtime_detokenize(m->r, tokens, n, special != 0, &text, &why), &why, e);
}

char *hearth_render(const hearth_model *m, const hearth_request *q, hearth_error *e) {
    hearth_request  full;
    runtime_request r;
    view           *stop = NULL;
    err             why = { 0 };
    str             text;
    str_init(&text);
    int rc = api_request(q, &full, &why);
    if (rc == 0) rc = api_runtime_request(&full, &r, &stop, &why);
    if (rc == 0) rc = runtime_render(m->r, &r, &text, &why);
    free(stop);
    return hand_out(&text, rc, &why, e);
}

int64_t hearth_count(const hearth_model *m, const hearth_request *q, hearth_error *e) {
    hearth_request  full;
    runtime_request r;
    view           *stop = NULL;
    size_t          n = 0;
    err             why = { 0 };
    int             rc = api_request(q, &full, &why);
    if (rc == 0) rc = api_runtime_request(&full, &r, &stop, &why);
    if (rc == 0) rc = runtime_count(m->r, &r, &n, &why);
    free(stop);
    return rc == 0 ? (int64_t)n : api_fail(e, &why);
}

void hearth_text_free(char *text) { free(text); }

/* --- the log --- */

static struct {
    void (*sink)(void *context, int level, const char *module, const char *message);
    void *context;
} log_to;

static void pass_on(void *ctx, const log_record *r) {
    (void)ctx;
    if (log_to.sink) log_to.sink(log_to.context, (int)r->level, r->module, r->message);
}

void hearth_log(void (*sink)(void *context, int level, const char *module, const char *message), void *context,
                int level) {
    if (level < HEARTH_LOG_DEBUG || level > HEARTH_LOG_OFF) level = HEARTH_LOG_WARN;
    log_to.sink = sink;
    log_to.context = context;
    log_set_sink(pass_on, NULL, sink ? (log_level)level : LOG_OFF);
}
