/* SPDX-License-Identifier: Apache-2.0 */
#include "server/ops/report.h"

#include "base/clock.h"
#include "base/machine.h"
#include "server/handlers.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

uint64_t report_resident_bytes(void) {
    unsigned long long total = 0, resident = 0;
    FILE              *f = fopen("/proc/self/statm", "r");
    if (!f) return 0;
    if (fscanf(f, "%llu %llu", &total, &resident) != 2) resident = 0;
    fclose(f);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

double report_uptime(const server *s) { return (double)(clock_us() - s->started_us) / 1e6; }

static void put_quantiles(jw *w, const char *key, const histogram *h) {
    jw_key(w, key);
    jw_open(w, '{');
    jw_put_int(w, "count", (int64_t)h->total);
    jw_put_real(w, "mean", h->total ? h->sum / (double)h->total : 0);
    jw_put_real(w, "p50", metrics_quantile(h, .5));
    jw_put_real(w, "p99", metrics_quantile(h, .99));
    jw_key(w, "buckets");
    jw_open(w, '[');
    for (int i = 0; i <= METRICS_BUCKETS; i++) {
        jw_open(w, '[');
        if (i < METRICS_BUCKETS)
            jw_real(w, metrics_bound(i));
        else
            jw_null(w);
        jw_int(w, (int64_t)h->count[i]);
        jw_close(w, ']');
    }
    jw_close(w, ']');
    jw_close(w, '}');
}

/* By status code, of all protocols together; codes in the order in which they first came. */
static void put_codes(jw *w, const metrics *m) {
    jw_key(w, "responses");
    jw_open(w, '{');
    for (size_t i = 0; i < m->n_codes; i++) {
        char     name[16];
        uint64_t n = 0;
        bool     before = false;
        for (size_t k = 0; k < m->n_codes; k++) {
            if (m->codes[k].code != m->codes[i].code) continue;
            n += m->codes[k].n;
            before = before || k < i;
        }
        snprintf(name, sizeof name, "%d", m->codes[i].code);
        if (!before) jw_put_int(w, name, (int64_t)n);
    }
    jw_close(w, '}');
}

static void put_machine(jw *w) {
    jw_key(w, "machine");
    jw_open(w, '{');
    jw_put_int(w, "memory_bytes", (int64_t)machine_memory_total());
    jw_put_int(w, "memory_available_bytes", (int64_t)machine_memory_available(NULL));
    jw_close(w, '}');
}

void report_capabilities(jw *w, const host_model *m) {
    jw_key(w, "capabilities");
    jw_open(w, '[');
    if (m->can_generate) jw_cstr(w, "completion");
    if (m->can_see) jw_cstr(w, "vision");
    if (m->can_hear) jw_cstr(w, "audio");
    if (m->can_tools) jw_cstr(w, "tools");
    if (m->can_think) jw_cstr(w, "thinking");
    if (m->can_infill) jw_cstr(w, "insert");
    if (m->can_embed && !m->can_chat) jw_cstr(w, "embedding"); /* clients take it for a model that does nothing else */
    jw_close(w, ']');
}

/* {"cpu": bytes, "cuda:0": bytes} */
static void put_devices(jw *w, const char *key, const device_memory *m) {
    jw_key(w, key);
    jw_open(w, '{');
    for (size_t i = 0; i < m->n; i++) {
        if (m->on[i].bytes == HOST_NO_LIMIT)
            jw_put_null(w, m->on[i].device);
        else
            jw_put_int(w, m->on[i].device, (int64_t)m->on[i].bytes);
    }
    jw_close(w, '}');
}

static void put_model(jw *w, const host_model *m) {
    static const char *const states[] = { [HOST_LOADED] = "loaded", [HOST_LOADING] = "loading" };
    jw_open(w, '{');
    jw_put_cstr(w, "name", m->name);
    jw_put_cstr(w, "state", m->state == HOST_UNLOADED ? "unloaded" : states[m->state]);
    jw_put_int(w, "file_bytes", (int64_t)m->file_bytes);
    jw_put_int(w, "active", m->active);
    if (m->state != HOST_UNLOADED) {
        jw_put_int(w, "memory_bytes", (int64_t)m->need_bytes);
        put_devices(w, "device_bytes", &m->need);
        if (m->need_bytes) jw_put_cstr(w, "device", m->device);
        jw_put_int(w, "pid", m->pid);
    }
    if (m->state == HOST_LOADING) {
        jw_put_real(w, "load_fraction", (double)m->load_fraction);
        jw_put_real(w, "load_seconds", m->load_seconds);
    }
    if (m->quarantined) jw_put_bool(w, "quarantined", true);
    if (m->described) report_capabilities(w, m);
    if (m->state == HOST_LOADED) {
        jw_put_int(w, "context_length", m->n_ctx);
        if (m->expires_ms == HOST_KEEP_FOREVER)
            jw_put_null(w, "expires_seconds");
        else
            jw_put_real(w, "expires_seconds", (double)m->expires_ms / 1000);
    }
    jw_close(w, '}');
}

static void put_models(jw *w, host *h) {
    host_model *list = NULL;
    size_t      n = 0;
    jw_key(w, "models");
    jw_open(w, '[');
    if (host_list(h, &list, &n, NULL) < 0) n = 0;
    for (size_t i = 0; i < n; i++) put_model(w, &list[i]);
    free(list);
    jw_close(w, ']');
}

void report_stats(server *s, const host_stats *h, str *out) {
    const metrics *m = &s->metrics;
    jw             w = jw_of(out);
    jw_open(&w, '{');
    jw_put_real(&w, "uptime_seconds", report_uptime(s));
    jw_put_int(&w, "connections", s->n_conns);
    jw_put_int(&w, "requests", s->n_exchanges - 1); /* without this one */
    jw_put_int(&w, "running", h->runtime.engine.running);
    jw_put_int(&w, "waiting", h->runtime.engine.waiting + h->runtime.preparing);
    jw_put_int(&w, "paused", h->runtime.engine.paused);
    jw_put_int(&w, "prompt_tokens", (int64_t)m->prompt_tokens);
    jw_put_int(&w, "prompt_tokens_cached", (int64_t)m->cached_tokens);
    jw_put_int(&w, "tokens_generated", (int64_t)m->generated_tokens);
    jw_put_int(&w, "steps", (int64_t)h->runtime.engine.steps);
    jw_put_int(&w, "tokens_evaluated", (int64_t)h->runtime.engine.tokens_evaluated);
    jw_put_int(&w, "tokens_drafted", (int64_t)h->runtime.engine.drafted);
    jw_put_int(&w, "tokens_drafted_accepted", (int64_t)h->runtime.engine.accepted);
    jw_put_int(&w, "preemptions", (int64_t)h->runtime.engine.preemptions);
    jw_put_int(&w, "kv_pages_total", h->runtime.engine.pages_total);
    jw_put_int(&w, "kv_pages_unused", h->runtime.engine.pages_unused);
    jw_put_int(&w, "kv_pages_cached", h->runtime.engine.pages_cached);
    const nn_streaming *x = &h->runtime.engine.experts;
    jw_put_int(&w, "expert_slots", x->slots);
    jw_put_int(&w, "expert_hits", (int64_t)x->hits);
    jw_put_int(&w, "expert_misses", (int64_t)x->misses);
    jw_put_int(&w, "expert_read_bytes", (int64_t)x->bytes);
    jw_put_real(&w, "expert_wait_seconds", x->wait_s);
    jw_put_int(&w, "grammar_hits", (int64_t)h->runtime.grammar_hits);
    jw_put_int(&w, "grammar_misses", (int64_t)h->runtime.grammar_misses);
    jw_put_int(&w, "resident_bytes", (int64_t)report_resident_bytes());
    put_quantiles(&w, "request_seconds", &m->duration);
    put_quantiles(&w, "first_token_seconds", &m->first_token);
    put_quantiles(&w, "inter_token_seconds", &m->inter_token);
    put_devices(&w, "budget_bytes", &h->budget);
    put_codes(&w, m);
    put_machine(&w);
    put_models(&w, s->options.host);
    jw_close(&w, '}');
}

static const char *state_name(const exchange_core *c) {
    if (!c->sink) return "ending";
    if (c->in_handler) return "reading";
    if (!c->requests) return "receiving";
    if (c->paused) return "paused";
    if (c->first_token_us) return "generating";
    return c->prompt_tokens ? "prompt" : "preparing";
}

void report_requests(server *s, const exchange *but, str *out) {
    jw w = jw_list(out);
    for (exchange *o = s->exchanges; o; o = o->core->next) {
        const exchange_core *c = o->core;
        if (o == but || !o->route || (o->route->flags & ROUTE_QUIET)) continue; /* who looks on is none */
        jw_open(&w, '{');
        jw_put_cstr(&w, "id", o->id);
        jw_put_cstr(&w, "api", o->route->api->name);
        jw_put_cstr(&w, "path", o->route->path);
        if (!c->in_handler && c->work.n_requests) jw_put_text(&w, "model", c->work.model);
        jw_put_cstr(&w, "state", state_name(c));
        jw_put_cstr(&w, "key", c->key_name[0] ? c->key_name : NULL);
        jw_put_int(&w, "sequences", c->in_handler ? 0 : (int64_t)c->in_flight);
        jw_put_int(&w, "prompt_tokens", c->prompt_tokens);
        jw_put_int(&w, "generated_tokens", c->generated_tokens);
        jw_put_real(&w, "age_seconds", (double)(clock_us() - c->begin_us) / 1e6);
        jw_close(&w, '}');
    }
    jw_list_end(&w);
}
