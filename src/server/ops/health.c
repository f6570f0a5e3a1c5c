/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three questions about health. /health: what the server is doing, with numbers, for people and older clients. /health/live:
 * does the process answer at all; whoever restarts it asks this, so a model that loads for minutes, or a worker that does not
 * answer, must not matter. /health/ready: should requests come here; it needs the models that the server was told to load at
 * its start. One of them that was up and has crashed does not count: the next request starts it again, and without requests
 * nothing would. A quarantined one does.
 */
#include "server/handlers.h"
#include "server/http/json_out.h"
#include "server/internal.h"
#include "server/ops/report.h"

#include <string.h>

void ops_health(exchange *x) {
    const host_stats *h = x->stats;
    str               b;
    server           *s = x->server;
    const char       *status = "ok";
    if (h->n_loading && !h->n_loaded) status = "loading";
    if (s->draining) status = "draining";
    bool ok = strcmp(status, "ok") == 0;
    str_init(&b);
    jw w = jw_of(&b);
    jw_open(&w, '{');
    jw_put_cstr(&w, "status", status);
    jw_put_cstr(&w, "version", s->options.version);
    jw_put_real(&w, "uptime_seconds", report_uptime(s));
    jw_key(&w, "models");
    jw_open(&w, '{');
    jw_put_int(&w, "known", h->n_models);
    jw_put_int(&w, "loaded", h->n_loaded);
    jw_put_int(&w, "loading", h->n_loading);
    jw_close(&w, '}');
    jw_key(&w, "requests");
    jw_open(&w, '{');
    jw_put_int(&w, "running", h->runtime.engine.running);
    jw_put_int(&w, "waiting", h->runtime.engine.waiting + h->runtime.preparing);
    jw_put_int(&w, "paused", h->runtime.engine.paused);
    jw_close(&w, '}');
    jw_key(&w, "memory");
    jw_open(&w, '{');
    jw_put_int(&w, "resident_bytes", (int64_t)report_resident_bytes());
    jw_put_int(&w, "model_bytes", (int64_t)h->loaded_bytes);
    jw_close(&w, '}');
    jw_close(&w, '}');
    if (!ok) exchange_header(x, "Retry-After", "1");
    exchange_reply(x, ok ? 200 : 503, "application/json", &b);
}

static void reply_status(exchange *x, bool ok, const char *status, const char *model) {
    str b;
    str_init(&b);
    jw w = jw_of(&b);
    jw_open(&w, '{');
    jw_put_cstr(&w, "status", status);
    if (model) jw_put_cstr(&w, "model", model);
    jw_close(&w, '}');
    if (!ok) exchange_header(x, "Retry-After", "1");
    exchange_reply(x, ok ? 200 : 503, "application/json", &b);
}

void ops_live(exchange *x) { reply_status(x, true, "ok", NULL); }

void ops_ready(exchange *x) {
    const server_options *o = &x->server->options;
    host_model            m;
    if (x->server->draining) {
        reply_status(x, false, "draining", NULL);
        return;
    }
    for (size_t i = 0; i < o->n_preloaded; i++) {
        const char *name = o->preloaded[i];
        bool        known = host_find(x->host, view_of(name), &m, NULL) == 0;
        if (known && m.described && !m.quarantined) continue;
        bool loading = known && m.state == HOST_LOADING;
        reply_status(x, false, loading ? "loading" : "unloaded", name);
        return;
    }
    reply_status(x, true, "ok", NULL);
}
