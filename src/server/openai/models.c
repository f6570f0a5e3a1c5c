/* SPDX-License-Identifier: Apache-2.0 */
/* GET /v1/models, GET /v1/models/{id} */
#include "server/handlers.h"
#include "server/openai/openai.h"

#include <stdlib.h>

static void put_model(jw *w, const host_model *m) {
    jw_open(w, '{');
    jw_put_cstr(w, "id", m->name);
    jw_put_cstr(w, "object", "model");
    jw_put_int(w, "created", m->modified);
    jw_put_cstr(w, "owned_by", "hearth");
    jw_put_cstr(w, "status", m->state == HOST_LOADED ? "loaded" : m->state == HOST_LOADING ? "loading" : "unloaded");
    if (m->described) {
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

void openai_models(exchange *x) {
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
    jw_put_cstr(&w, "object", "list");
    jw_key(&w, "data");
    jw_open(&w, '[');
    for (size_t i = 0; i < n; i++) put_model(&w, &list[i]);
    jw_close(&w, ']');
    jw_close(&w, '}');
    free(list);
    exchange_reply(x, 200, "application/json", &b);
}

void openai_model(exchange *x) {
    host_model m;
    str        b;
    if (host_find(x->host, x->tail, &m, NULL) < 0) {
        exchange_error(x, 404, "model_not_found", "model", "The model '%.*s' does not exist here",
                       (int)(x->tail.len > 100 ? 100 : x->tail.len), x->tail.data);
        return;
    }
    str_init(&b);
    jw w = jw_of(&b);
    put_model(&w, &m);
    exchange_reply(x, 200, "application/json", &b);
}
