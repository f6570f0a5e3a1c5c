/* SPDX-License-Identifier: Apache-2.0 */
/* GET /v1/fit?model=NAME&ctx=N&type=TYPE: what a model needs of the memory that is free. GET /v1/catalogue: well-known models.
 * GET /v1/hub?q=WORDS: what the hub has. */
#include "base/machine.h"
#include "registry/known.h"
#include "runtime/need.h"
#include "server/handlers.h"
#include "server/http/json_out.h"
#include "server/http/query.h"
#include "server/internal.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_CONTEXT = 1 << 24, HUB_HITS = 20, HUB_MOST = 100 };

static void put_memory(jw *w, const need *n) {
    const char *from = NULL;
    uint64_t    total = device_memory_on(&n->bytes, DEVICE_CPU), available = machine_memory_available(&from);
    jw_key(w, "memory");
    jw_open(w, '{');
    jw_put_int(w, "weights", (int64_t)n->weights_bytes);
    jw_put_int(w, "cache", (int64_t)n->cache_bytes);
    jw_put_int(w, "cache_per_1k", (int64_t)n->cache_bytes_per_1k);
    jw_put_int(w, "scratch", (int64_t)n->scratch_bytes);
    jw_put_int(w, "other", (int64_t)n->other_bytes);
    jw_put_int(w, "total", (int64_t)total);
    if (n->limits.n) {
        jw_put_int(w, "device", (int64_t)device_memory_beside(&n->bytes));
        jw_put_int(w, "device_limit", (int64_t)device_memory_sum(&n->limits));
    }
    if (available) {
        jw_put_int(w, "available", (int64_t)available);
        jw_put_bool(w, "fits", need_fits(n, available));
    } else {
        jw_put_null(w, "available");
        jw_put_null(w, "fits");
    }
    jw_close(w, '}');
}

static void reply_need(exchange *x, const char *name, const need *n) {
    str b;
    str_init(&b);
    jw w = jw_of(&b);
    jw_open(&w, '{');
    jw_put_cstr(&w, "model", name);
    jw_put_int(&w, "context", n->n_ctx);
    jw_put_int(&w, "context_trained", n->n_ctx_train);
    jw_put_int(&w, "sequences", n->n_sequences);
    jw_put_cstr(&w, "device", n->device);
    put_memory(&w, n);
    jw_close(&w, '}');
    exchange_reply(x, 200, "application/json", &b);
}

/* What the question says in place of the server's own options. */
static bool read_options(exchange *x, engine_options *o) {
    char text[16], type[32], *end = text;
    err  e = { 0 };
    if (query_get(x->http->query, "type", type, sizeof type) && runtime_cache_types(type, NULL, NULL, o, &e) < 0) {
        exchange_error(x, 400, "invalid_value", "type", "type: %s", e.msg);
        return false;
    }
    if (!query_get(x->http->query, "ctx", text, sizeof text)) return true;
    long ctx = strtol(text, &end, 10);
    if (*end || ctx < 0 || ctx > MAX_CONTEXT) {
        exchange_error(x, 400, "invalid_value", "ctx", "ctx: expected a number from 0 to %d", MAX_CONTEXT);
        return false;
    }
    if (ctx) o->n_ctx = (int)ctx;
    return true;
}

void ops_fit(exchange *x) {
    engine_options o = { 0 };
    char           name[512];
    host_model     m;
    need           n;
    err            e = { 0 };
    if (!query_get(x->http->query, "model", name, sizeof name)) {
        exchange_error(x, 400, "invalid_value", "model", "model: is required (/v1/fit?model=NAME&ctx=N&type=TYPE)");
        return;
    }
    if (x->server->options.engine) o = *x->server->options.engine;
    if (!read_options(x, &o)) return;
    if (host_find(x->host, view_of(name), &m, &e) < 0)
        exchange_error(x, 404, "model_not_found", "model", "The model '%.100s' does not exist here", name);
    else if (need_of_path(&n, m.path, &o, 0, &e) < 0)
        exchange_error_from(x, &e);
    else
        reply_need(x, name, &n);
}

void ops_catalogue(exchange *x) {
    registry *r = NULL;
    uint64_t  memory = machine_memory_available(NULL);
    str       b;
    if (x->server->options.library) library_registry(x->server->options.library, &r, NULL);
    str_init(&b);
    str_puts(&b, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < known_n_models; i++) {
        if (i) str_push(&b, ',');
        known_write_json(&known_models[i], known_is_here(r, &known_models[i]), memory, &b);
    }
    str_puts(&b, "]");
    if (x->server->options.library)
        str_printf(&b, ",\"disk_free\":%llu", (unsigned long long)library_free_bytes(x->server->options.library));
    str_puts(&b, "}");
    registry_close(r);
    exchange_reply(x, 200, "application/json", &b);
}

static bool read_limit(exchange *x, long *limit) {
    char text[16], *end = text;
    *limit = HUB_HITS;
    if (!query_get(x->http->query, "limit", text, sizeof text)) return true;
    *limit = strtol(text, &end, 10);
    if (!*end && *limit >= 1 && *limit <= HUB_MOST) return true;
    exchange_error(x, 400, "invalid_value", "limit", "limit: expected a number from 1 to %d", HUB_MOST);
    return false;
}

void ops_hub(exchange *x) {
    search_hits hits = { 0 };
    library    *l = ops_library(x);
    char        words[256];
    long        limit;
    err         e = { 0 };
    str         b;
    if (!l || !read_limit(x, &limit)) return;
    if (!query_get(x->http->query, "q", words, sizeof words) || !words[0]) {
        exchange_error(x, 400, "invalid_value", "q", "q: is required: words to search for (/v1/hub?q=WORDS)");
        return;
    }
    if (library_search(l, words, (int)limit, &hits, &e) < 0) {
        exchange_error(x, 502, "hub_failed", NULL, "%s", e.msg);
        return;
    }
    str_init(&b);
    jw w = jw_list(&b);
    for (size_t i = 0; i < hits.n; i++) {
        if (i) str_push(&b, ',');
        search_write_json(&hits.list[i], &b);
    }
    jw_list_end(&w);
    search_hits_deinit(&hits);
    exchange_reply(x, 200, "application/json", &b);
}
