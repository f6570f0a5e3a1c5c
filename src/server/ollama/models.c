/* SPDX-License-Identifier: Apache-2.0 */
/* GET /api/tags, GET /api/ps, POST /api/show */
#include "base/json.h"
#include "base/sha256.h"
#include "formats/model_file.h"
#include "registry/modelfile.h"
#include "server/handlers.h"
#include "server/internal.h"
#include "server/ollama/ollama.h"
#include "server/ops/report.h"
#include "server/params.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* "19.8M", "8.0B" */
static void put_size(jw *w, const char *key, uint64_t n) {
    char text[32] = "";
    if (n >= 1000000000)
        snprintf(text, sizeof text, "%.1fB", (double)n / 1e9);
    else if (n > 0)
        snprintf(text, sizeof text, "%.1fM", (double)n / 1e6);
    jw_put_cstr(w, key, text);
}

/* Names the file as it is now: its path, size and time. Clients compare it; hashing the weights would take minutes. */
static void put_digest(jw *w, const host_model *m) {
    sha256  s;
    uint8_t sum[SHA256_BYTES];
    char    text[2 * SHA256_BYTES + 1];
    sha256_init(&s);
    sha256_feed(&s, m->path, strlen(m->path));
    sha256_feed(&s, &m->file_bytes, sizeof m->file_bytes);
    sha256_feed(&s, &m->modified, sizeof m->modified);
    sha256_finish(&s, sum);
    for (size_t i = 0; i < sizeof sum; i++) snprintf(text + 2 * i, 3, "%02x", sum[i]);
    jw_put_cstr(w, "digest", text);
}

static void put_details(jw *w, const host_model *m) {
    jw_key(w, "details");
    jw_open(w, '{');
    jw_put_cstr(w, "parent_model", "");
    jw_put_cstr(w, "format", strcmp(m->format, "GGUF") == 0 || !m->described ? "gguf" : "safetensors");
    jw_put_cstr(w, "family", m->family);
    jw_key(w, "families");
    jw_open(w, '[');
    if (m->family[0]) jw_cstr(w, m->family);
    jw_close(w, ']');
    put_size(w, "parameter_size", m->n_params);
    jw_put_cstr(w, "quantization_level", m->quant);
    jw_close(w, '}');
}

/* Of a model that runs on a GPU the size is its memory, which their clients take the share of size_vram of. */
static void put_model(jw *w, const host_model *m, bool running) {
    bool elsewhere = running && device_memory_beside(&m->need) > 0;
    ollama_put_name(w, "name", m->name);
    ollama_put_name(w, "model", m->name);
    jw_put_int(w, "size", (int64_t)(elsewhere ? m->need_bytes : m->file_bytes));
    put_digest(w, m);
    put_details(w, m);
}

static void put_running(jw *w, const host_model *m) {
    int64_t now = (int64_t)time(NULL);
    /* Their clients read a moment far away as for ever. */
    ollama_put_time(w, "expires_at",
                    m->expires_ms == HOST_KEEP_FOREVER ? now + 10ll * 365 * 86400 : now + m->expires_ms / 1000);
    jw_put_int(w, "size_vram", (int64_t)device_memory_beside(&m->need));
    jw_put_int(w, "context_length", m->n_ctx);
}

/* What a file holds the host knows once it was opened; of a registered one it was written down. */
static void complete(exchange *x, host_model *m) {
    registry_model r;
    if (m->described || !library_find(x->server->options.library, m->name, &r)) return;
    snprintf(m->family, sizeof m->family, "%s", r.family ? r.family : "");
    snprintf(m->quant, sizeof m->quant, "%s", r.quant ? r.quant : "");
    snprintf(m->format, sizeof m->format, "%s", r.format ? r.format : "");
    m->n_params = (uint64_t)r.params;
    if (r.size > 0) m->file_bytes = (uint64_t)r.size;
    m->described = true; /* this copy */
    registry_model_deinit(&r);
}

static void list_models(exchange *x, bool running) {
    host_model *list = NULL;
    size_t      n = 0;
    err         e = { 0 };
    str         b;
    if (host_list(x->host, &list, &n, &e) < 0) {
        exchange_error_from(x, &e);
        return;
    }
    str_init(&b);
    jw w = jw_of(&b);
    jw_open(&w, '{');
    jw_key(&w, "models");
    jw_open(&w, '[');
    for (size_t i = 0; i < n; i++) {
        if (running && list[i].state != HOST_LOADED) continue;
        complete(x, &list[i]);
        jw_open(&w, '{');
        put_model(&w, &list[i], running);
        if (running)
            put_running(&w, &list[i]);
        else
            ollama_put_time(&w, "modified_at", list[i].modified);
        jw_close(&w, '}');
    }
    jw_close(&w, ']');
    jw_close(&w, '}');
    free(list);
    exchange_reply(x, 200, "application/json", &b);
}

void ollama_tags(exchange *x) { list_models(x, false); }
void ollama_ps(exchange *x) { list_models(x, true); }

static void put_info(jw *w, const host_model *m) {
    char key[96];
    jw_key(w, "model_info");
    jw_open(w, '{');
    jw_put_cstr(w, "general.architecture", m->family);
    jw_put_int(w, "general.parameter_count", (int64_t)m->n_params);
    snprintf(key, sizeof key, "%s.context_length", m->family);
    jw_put_int(w, key, m->n_ctx_train);
    snprintf(key, sizeof key, "%s.embedding_length", m->family);
    jw_put_int(w, key, m->n_embd);
    snprintf(key, sizeof key, "%s.block_count", m->family);
    jw_put_int(w, key, m->n_layer);
    snprintf(key, sizeof key, "%s.vocab_size", m->family);
    jw_put_int(w, key, m->n_vocab);
    jw_close(w, '}');
}

static void put_meta(jw *w, const meta_value *v, bool verbose) {
    int64_t n;
    double  real;
    bool    flag;
    view    text;
    size_t  count = v->type == META_ARRAY ? v->count : 0;
    if (meta_bool(v, &flag)) {
        jw_bool(w, flag);
    } else if (meta_int(v, &n)) {
        jw_int(w, n);
    } else if (meta_real(v, &real)) {
        jw_real(w, real);
    } else if (meta_string(v, &text)) {
        jw_text(w, text);
    } else if (v->type != META_ARRAY || !verbose) {
        jw_null(w);
    } else {
        jw_open(w, '[');
        for (size_t i = 0; i < count; i++) {
            if (meta_at_bool(v, i, &flag))
                jw_bool(w, flag);
            else if (meta_at_int(v, i, &n))
                jw_int(w, n);
            else if (meta_at_real(v, i, &real))
                jw_real(w, real);
            else if (meta_at_string(v, i, &text))
                jw_text(w, text);
            else
                jw_null(w);
        }
        jw_close(w, ']');
    }
}

/* All that a GGUF file says of itself; lists only if they are asked for. False: it is another kind of file. */
static bool put_all_info(jw *w, const host_model *m, bool verbose) {
    model_file *f;
    if (model_file_open(&f, m->path, NULL) < 0) return false;
    size_t n = model_file_meta_count(f);
    if (n) {
        jw_key(w, "model_info");
        jw_open(w, '{');
        jw_put_int(w, "general.parameter_count", (int64_t)m->n_params);
        for (size_t i = 0; i < n; i++) {
            if (strcmp(model_file_meta_key(f, i), "general.parameter_count") == 0) continue;
            if (strcmp(model_file_meta_key(f, i), "tokenizer.chat_template") == 0) continue; /* stands in "template" */
            jw_key(w, model_file_meta_key(f, i));
            put_meta(w, model_file_meta_at(f, i), verbose);
        }
        jw_close(w, '}');
    }
    model_file_free(f);
    return n > 0;
}

/* What was set for the model here: by a Modelfile, by /api/create, by the registry it came from. */
static void put_settings(exchange *x, jw *w, const host_model *m) {
    char             *settings = NULL;
    const json_value *v = NULL;
    arena             a;
    str               file, params;
    library_settings(x->server->options.library, m->name, &settings);
    arena_init(&a, 64 << 20);
    str_init(&file);
    str_init(&params);
    if (settings) json_parse(&v, settings, strlen(settings), &a, NULL);
    if (modelfile_print(m->path, settings, &file, NULL) < 0) { /* a text that no Modelfile can hold */
        str_clear(&file);
        str_printf(&file, "FROM %s\n", m->path);
    }
    if (settings) modelfile_print_params(settings, &params, NULL);
    const char *license = json_cstr(json_get(v, "license")), *system = json_cstr(json_get(v, "system"));
    jw_put_cstr(w, "license", license ? license : "");
    jw_put_cstr(w, "modelfile", str_cstr(&file));
    jw_put_cstr(w, "parameters", str_cstr(&params));
    if (system) jw_put_cstr(w, "system", system);
    if (json_get(v, "messages")) {
        str list;
        str_init(&list);
        json_write(json_get(v, "messages"), &list);
        jw_key(w, "messages");
        jw_raw(w, (view){ str_cstr(&list), list.len });
        str_deinit(&list);
    }
    str_deinit(&file);
    str_deinit(&params);
    arena_deinit(&a);
    free(settings);
}

void ollama_show(exchange *x) {
    host_model m;
    view       name = { "", 0 };
    err        e = { 0 };
    str        b, text;
    bool       verbose = false;
    if (!read_string(&x->in, &x->body, "model", &name))
        need_string(&x->in, &x->body, "name", &name); /* older clients */
    read_bool(&x->in, &x->body, "verbose", &verbose);
    if (x->in.failed) {
        exchange_reject(x);
        return;
    }
    if (host_find(x->host, name, &m, &e) < 0) {
        exchange_error(x, 404, "model_not_found", "model", "model '%.*s' not found",
                       (int)(name.len > 100 ? 100 : name.len), name.data);
        return;
    }
    /* What a file holds is known once it was opened. */
    if (!m.described && (host_load(x->host, name, HOST_KEEP_DEFAULT, &e) < 0 || host_find(x->host, name, &m, &e) < 0)) {
        exchange_error_from(x, &e);
        return;
    }
    str_init(&text);
    host_template(x->host, name, &text, NULL);
    str_init(&b);
    jw w = jw_of(&b);
    jw_open(&w, '{');
    put_settings(x, &w, &m);
    jw_put_text(&w, "template", (view){ str_cstr(&text), text.len });
    put_details(&w, &m);
    if (!put_all_info(&w, &m, verbose)) put_info(&w, &m);
    report_capabilities(&w, &m);
    ollama_put_time(&w, "modified_at", m.modified);
    jw_close(&w, '}');
    str_deinit(&text);
    exchange_reply(x, 200, "application/json", &b);
}
