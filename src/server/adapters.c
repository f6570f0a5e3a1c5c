/* SPDX-License-Identifier: Apache-2.0 */
#include "server/adapters.h"

#include "server/handlers.h"
#include "server/http/json_out.h"
#include "server/http/query.h"
#include "server/internal.h"

#include <stdlib.h>
#include <string.h>

/* --- what the registry has --- */

typedef struct known {
    registry_adapter *list;
    size_t            n;
} known;

static void known_free(known *k) {
    for (size_t i = 0; i < k->n; i++) registry_adapter_deinit(&k->list[i]);
    free(k->list);
    *k = (known){ 0 };
}

static known known_of(exchange *x, view model) {
    known k = { 0 };
    char *name = strndup(model.data, model.len);
    if (name) library_adapters(x->server->options.library, name, &k.list, &k.n);
    free(name);
    return k;
}

static const registry_adapter *by_name(const known *k, view name) {
    for (size_t i = 0; i < k->n; i++) {
        if (view_eq_c(name, k->list[i].name)) return &k->list[i];
    }
    return NULL;
}

/* Cuts "base+name"; false: there is no '+', or the whole is a model's name. */
static bool split(exchange *x, view model, view *base, view *name) {
    for (size_t i = model.len; i-- > 1;) {
        if (model.data[i] != '+') continue;
        if (host_find(x->host, model, &(host_model){ 0 }, NULL) == 0) return false;
        *base = (view){ model.data, i };
        *name = (view){ model.data + i + 1, model.len - i - 1 };
        return true;
    }
    return false;
}

view adapters_base(exchange *x, view model) {
    view base, name;
    return split(x, model, &base, &name) ? base : model;
}

bool adapters_known(exchange *x, view model) {
    view base, name;
    if (!split(x, model, &base, &name) || host_find(x->host, base, &(host_model){ 0 }, NULL) < 0) return false;
    known k = known_of(x, base);
    bool  found = by_name(&k, name) != NULL;
    known_free(&k);
    return found;
}

/* --- the member lora --- */

void adapters_read(exchange *x, const node *o, runtime_request *q) {
    node list;
    if (!read_array(&x->in, o, "lora", RUNTIME_MAX_LORA, &list)) return;
    size_t        n = node_count(&list);
    runtime_lora *lora = arena_calloc(&x->arena, n + 1, sizeof *lora);
    for (size_t i = 0; lora && i < n && !x->in.failed; i++) {
        node    item = node_at(&list, i), id = node_get(&item, "id");
        int64_t number = 0;
        if (!need_kind(&x->in, &item, NODE_OBJECT)) return;
        lora[i].scale = 1;
        read_real(&x->in, &item, "scale", -1000, 1000, &lora[i].scale);
        if (read_string(&x->in, &item, "name", &lora[i].path)) continue;
        if (node_is(&id) == NODE_STRING) {
            read_string(&x->in, &item, "id", &lora[i].path);
        } else if (read_int(&x->in, &item, "id", 0, 100000, &number)) {
            char *text = arena_calloc(&x->arena, 16, 1);
            if (text) snprintf(text, 16, "#%lld", (long long)number); /* no name begins so */
            lora[i].path = text ? view_of(text) : (view){ 0 };
        } else if (!x->in.failed) {
            reader_fail(&x->in, &item, "needs an id or a name");
        }
    }
    q->lora = lora;
    q->n_lora = lora ? n : 0;
    q->own_lora = true;
}

/* --- before requests are sent --- */

static const registry_adapter *find(const known *k, view said) {
    if (said.len < 2 || said.data[0] != '#') return by_name(k, said);
    size_t number = (size_t)strtoul(said.data + 1, NULL, 10);
    return number < k->n ? &k->list[number] : NULL;
}

static bool keep_path(exchange *x, const registry_adapter *a, double scale, runtime_lora *out) {
    char *path = arena_strdup(&x->arena, a->path);
    *out = (runtime_lora){ view_of(path ? path : ""), scale };
    return path != NULL;
}

static bool unknown(exchange *x, view model, view name) {
    exchange_error(x, 404, "adapter_not_found", "lora", "The model '%.*s' has no adapter '%.*s'",
                   (int)(model.len > 100 ? 100 : model.len), model.data, (int)(name.len > 60 ? 60 : name.len),
                   name.data);
    return false;
}

/* The adapter of the model's name comes first, then those of lora; a request without either has those that always count. */
static bool fill(exchange *x, view model, const registry_adapter *named, const known *k, runtime_request *q) {
    runtime_lora *all = arena_calloc(&x->arena, q->n_lora + k->n + 1, sizeof *all);
    size_t        n = 0;
    bool          ok = all != NULL;
    if (ok && named) ok = keep_path(x, named, named->scale, &all[n++]);
    for (size_t i = 0; ok && i < q->n_lora; i++) {
        const registry_adapter *a = find(k, q->lora[i].path);
        if (!a) return unknown(x, model, q->lora[i].path);
        ok = keep_path(x, a, q->lora[i].scale, &all[n++]);
    }
    for (size_t i = 0; ok && !named && !q->own_lora && i < k->n; i++) {
        if (k->list[i].always != 0) ok = keep_path(x, &k->list[i], k->list[i].always, &all[n++]);
    }
    if (!ok) {
        exchange_error_nomem(x);
        return false;
    }
    q->lora = all;
    q->n_lora = n;
    q->own_lora = q->own_lora || named;
    return true;
}

bool adapters_apply(exchange *x, exchange_work *w) {
    view                    base = w->model, name = { 0 };
    const registry_adapter *named = NULL;
    bool                    plus = split(x, w->model, &base, &name), ok = true, asked = plus;
    for (size_t i = 0; i < w->n_requests; i++) asked = asked || w->requests[i].n_lora;
    known k = known_of(x, base);
    if (plus && !(named = by_name(&k, name))) ok = asked = unknown(x, base, name);
    for (size_t i = 0; ok && (asked || k.n) && i < w->n_requests; i++) ok = fill(x, base, named, &k, &w->requests[i]);
    known_free(&k);
    w->model = base;
    return ok;
}

/* --- /lora-adapters, as llama.cpp has it --- */

static bool asked_model(exchange *x, char *name, size_t cap, view *model) {
    const char *dflt = x->server->options.default_model;
    *model = dflt ? view_of(dflt) : (view){ "", 0 };
    if (query_get(x->http->query, "model", name, cap)) *model = view_of(name);
    if (host_find(x->host, *model, &(host_model){ 0 }, NULL) == 0) return true;
    exchange_error(x, 404, "model_not_found", "model", "The model '%.*s' does not exist here",
                   (int)(model->len > 100 ? 100 : model->len), model->data);
    return false;
}

static void put_list(exchange *x, view model) {
    known k = known_of(x, model);
    str   b;
    str_init(&b);
    jw w = jw_of(&b);
    jw_open(&w, '[');
    for (size_t i = 0; i < k.n; i++) {
        jw_open(&w, '{');
        jw_put_int(&w, "id", (int64_t)i);
        jw_put_cstr(&w, "name", k.list[i].name);
        jw_put_cstr(&w, "path", k.list[i].path);
        jw_put_real(&w, "scale", k.list[i].always);
        jw_close(&w, '}');
    }
    jw_close(&w, ']');
    known_free(&k);
    exchange_reply(x, 200, "application/json", &b);
}

void native_adapters(exchange *x) {
    char name[256];
    view model;
    if (asked_model(x, name, sizeof name, &model)) put_list(x, model);
}

/* As in llama.cpp: adapters that are not in the list get the scale 0. */
static int set_scales(exchange *x, const char *model, const known *k, const double *scales, err *e) {
    registry *r = NULL;
    int       rc = library_registry(x->server->options.library, &r, e);
    for (size_t i = 0; rc == 0 && i < k->n; i++) rc = registry_adapter_always(r, model, k->list[i].id, scales[i], e);
    registry_close(r);
    library_refresh(x->server->options.library);
    return rc;
}

/* The body is an array, which is read as the member of an object. */
static bool parse_scales(exchange *x, node *list) {
    str  text;
    err  e = { 0 };
    bool ok = false;
    str_init(&text);
    str_puts(&text, "{\"adapters\":");
    str_append(&text, str_cstr(&x->http->body), x->http->body.len);
    str_push(&text, '}');
    if (json_doc_parse(&x->doc, str_cstr(&text), text.len, &e) < 0) {
        exchange_error(x, 400, "invalid_json", NULL, "the body is not an array of {id, scale}");
    } else {
        x->body = node_root(&x->doc);
        ok = read_array(&x->in, &x->body, "adapters", 1000, list);
        if (!ok) exchange_error(x, 400, "invalid_json", NULL, "the body is not an array of {id, scale}");
    }
    str_deinit(&text);
    return ok;
}

static bool read_scales(exchange *x, const node *list, const known *k, double *scales) {
    for (size_t i = 0; i < node_count(list) && !x->in.failed; i++) {
        node    item = node_at(list, i);
        int64_t id = 0;
        double  scale = 1;
        if (!need_kind(&x->in, &item, NODE_OBJECT)) return false;
        if (!read_int(&x->in, &item, "id", 0, k->n ? (int64_t)k->n - 1 : 0, &id) || k->n == 0) {
            if (!x->in.failed) reader_fail(&x->in, &item, "needs the id of an adapter");
            return false;
        }
        read_real(&x->in, &item, "scale", -1000, 1000, &scale);
        scales[id] = scale;
    }
    return !x->in.failed;
}

void native_set_adapters(exchange *x) {
    char name[256];
    view model;
    err  e = { 0 };
    node list;
    if (!asked_model(x, name, sizeof name, &model) || !parse_scales(x, &list)) return;
    known   k = known_of(x, model);
    double *scales = arena_calloc(&x->arena, k.n + 1, sizeof *scales);
    char   *own = arena_strndup(&x->arena, model.data, model.len);
    if (!scales || !own)
        exchange_error_nomem(x);
    else if (!read_scales(x, &list, &k, scales))
        exchange_reject(x);
    else if (k.n && set_scales(x, own, &k, scales, &e) < 0)
        exchange_error_from(x, &e);
    else
        put_list(x, model);
    known_free(&k);
}
