/* SPDX-License-Identifier: Apache-2.0 */
/* GET /v1/models, GET /v1/models/{id}: in OpenAI's form, or in Anthropic's for clients that send anthropic-version. */
#include "server/handlers.h"
#include "server/internal.h"
#include "server/openai/openai.h"

#include <stdlib.h>
#include <time.h>

static void put_model(jw *w, const host_model *m) {
    jw_open(w, '{');
    jw_put_cstr(w, "id", m->name);
    jw_put_cstr(w, "object", "model");
    jw_put_int(w, "created", m->modified);
    jw_put_cstr(w, "owned_by", "hearth");
    jw_put_cstr(w, "status", m->state == HOST_LOADED ? "loaded" : m->state == HOST_LOADING ? "loading" : "unloaded");
    if (m->parent[0]) jw_put_cstr(w, "parent", m->parent);
    if (m->described) {
        jw_key(w, "input_modalities");
        jw_open(w, '[');
        jw_cstr(w, "text");
        if (m->can_see) jw_cstr(w, "image");
        if (m->can_hear) jw_cstr(w, "audio");
        jw_close(w, ']');
        jw_key(w, "meta");
        jw_open(w, '{');
        jw_put_cstr(w, "family", m->family);
        jw_put_cstr(w, "quantization", m->quant);
        jw_put_int(w, "n_params", (int64_t)m->n_params);
        jw_put_int(w, "size", (int64_t)m->file_bytes);
        jw_put_int(w, "n_ctx", m->n_ctx);
        jw_put_int(w, "n_ctx_train", m->n_ctx_train);
        jw_put_int(w, "n_embd", m->n_embd);
        jw_put_int(w, "n_vocab", m->n_vocab);
        jw_close(w, '}');
    }
    jw_close(w, '}');
}

/* "base+name": a model like any other, whose parent says on which it stands. */
static void put_adapter(jw *w, const host_model *m, const registry_adapter *a) {
    str id;
    str_init(&id);
    str_printf(&id, "%s+%s", m->name, a->name);
    jw_open(w, '{');
    jw_put_cstr(w, "id", str_cstr(&id));
    jw_put_cstr(w, "object", "model");
    jw_put_int(w, "created", a->created_at);
    jw_put_cstr(w, "owned_by", "hearth");
    jw_put_cstr(w, "status", m->state == HOST_LOADED ? "loaded" : m->state == HOST_LOADING ? "loading" : "unloaded");
    jw_put_cstr(w, "parent", m->name);
    jw_put_cstr(w, "root", m->name);
    jw_close(w, '}');
    str_deinit(&id);
}

static void put_adapters(exchange *x, jw *w, const host_model *m) {
    registry_adapter *list;
    size_t            n;
    library_adapters(x->server->options.library, m->name, &list, &n);
    for (size_t i = 0; i < n; i++) {
        put_adapter(w, m, &list[i]);
        registry_adapter_deinit(&list[i]);
    }
    free(list);
}

/* --- for Anthropic's clients, who say so --- */

static bool for_anthropic(exchange *x) {
    if (x->core->is_rpc || !http_request_get(x->http, "anthropic-version")) return false;
    x->core->lost = *x->route; /* with their errors */
    x->core->lost.api = &api_anthropic;
    x->route = &x->core->lost;
    return true;
}

static void put_anthropic_model(jw *w, const host_model *m) {
    struct tm tm;
    char      made[32] = "";
    time_t    t = (time_t)m->modified;
    gmtime_r(&t, &tm);
    strftime(made, sizeof made, "%Y-%m-%dT%H:%M:%SZ", &tm);
    jw_open(w, '{');
    jw_put_cstr(w, "type", "model");
    jw_put_cstr(w, "id", m->name);
    jw_put_cstr(w, "display_name", m->name);
    jw_put_cstr(w, "created_at", made);
    if (m->described) jw_put_int(w, "max_input_tokens", m->n_ctx);
    if (m->described) jw_put_int(w, "max_tokens", m->n_ctx);
    jw_close(w, '}');
}

static void reply_anthropic(exchange *x, const host_model *list, size_t n) {
    str b;
    str_init(&b);
    jw w = jw_of(&b);
    jw_open(&w, '{');
    jw_key(&w, "data");
    jw_open(&w, '[');
    for (size_t i = 0; i < n; i++) put_anthropic_model(&w, &list[i]);
    jw_close(&w, ']');
    jw_put_bool(&w, "has_more", false);
    jw_put_cstr(&w, "first_id", n ? list[0].name : NULL);
    jw_put_cstr(&w, "last_id", n ? list[n - 1].name : NULL);
    jw_close(&w, '}');
    exchange_reply(x, 200, "application/json", &b);
}

void openai_models(exchange *x) {
    host_model *list = NULL;
    size_t      n = 0;
    err         e = { 0 };
    str         b;
    bool        theirs = for_anthropic(x);
    if (host_list(x->host, &list, &n, &e) < 0) {
        exchange_error_from(x, &e);
        return;
    }
    if (theirs) {
        reply_anthropic(x, list, n);
        free(list);
        return;
    }
    str_init(&b);
    jw w = jw_list(&b);
    for (size_t i = 0; i < n; i++) {
        put_model(&w, &list[i]);
        put_adapters(x, &w, &list[i]);
    }
    jw_list_end(&w);
    free(list);
    exchange_reply(x, 200, "application/json", &b);
}

/* "base+name" of an adapter that is here. */
static bool reply_adapter(exchange *x) {
    host_model        m;
    registry_adapter *list;
    size_t            n, cut = x->tail.len;
    str               b;
    bool              found = false;
    while (cut > 0 && x->tail.data[cut - 1] != '+') cut--;
    if (cut < 2 || host_find(x->host, (view){ x->tail.data, cut - 1 }, &m, NULL) < 0) return false;
    view name = { x->tail.data + cut, x->tail.len - cut };
    str_init(&b);
    jw w = jw_of(&b);
    library_adapters(x->server->options.library, m.name, &list, &n);
    for (size_t i = 0; i < n; i++) {
        if (!found && view_eq_c(name, list[i].name)) {
            put_adapter(&w, &m, &list[i]);
            found = true;
        }
        registry_adapter_deinit(&list[i]);
    }
    free(list);
    if (found)
        exchange_reply(x, 200, "application/json", &b);
    else
        str_deinit(&b);
    return found;
}

void openai_model(exchange *x) {
    host_model m;
    str        b;
    bool       theirs = for_anthropic(x);
    if (!theirs && host_find(x->host, x->tail, &m, NULL) < 0 && reply_adapter(x)) return;
    if (host_find(x->host, x->tail, &m, NULL) < 0) {
        exchange_error(x, 404, "model_not_found", "model", "The model '%.*s' does not exist here",
                       (int)(x->tail.len > 100 ? 100 : x->tail.len), x->tail.data);
        return;
    }
    str_init(&b);
    jw w = jw_of(&b);
    if (theirs)
        put_anthropic_model(&w, &m);
    else
        put_model(&w, &m);
    exchange_reply(x, 200, "application/json", &b);
}
