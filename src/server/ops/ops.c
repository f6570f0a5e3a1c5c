/* SPDX-License-Identifier: Apache-2.0 */
/* What operators ask: metrics, statistics, the requests under way. All on the I/O thread, which owns most of
 * it; what workers have to be asked for was asked before.
 */
#include "base/clock.h"
#include "server/handlers.h"
#include "server/http/json_out.h"
#include "server/internal.h"
#include "server/ops/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void put_answers(str *b, const metrics *m) {
    metrics_put_head(b, "requests_total", "counter", "Answered requests, by protocol and status.");
    for (size_t i = 0; i < m->n_codes; i++)
        str_printf(b, "hearth_requests_total{api=\"%s\",code=\"%d\"} %" PRIu64 "\n", m->codes[i].api, m->codes[i].code,
                   m->codes[i].n);
    metrics_put_histogram(b, "request_duration_seconds", "Seconds from the head of a request to the end of its answer.",
                          &m->duration);
    metrics_put_histogram(b, "time_to_first_token_seconds",
                          "Seconds from the head of a request to the first token of its answer.", &m->first_token);
    metrics_put_histogram(b, "inter_token_seconds", "Seconds between two pieces of one answer.", &m->inter_token);
    metrics_put(b, "prompt_tokens_total", "counter", "Prompt tokens.", (double)m->prompt_tokens);
    metrics_put(b, "prompt_tokens_cached_total", "counter", "Prompt tokens that were found in the cache.",
                (double)m->cached_tokens);
    metrics_put(b, "tokens_generated_total", "counter", "Generated tokens.", (double)m->generated_tokens);
}

static void put_places(str *b, const char *name, const char *help, const uint64_t *counts) {
    metrics_put_head(b, name, "counter", help);
    for (int i = 0; i < ENGINE_DRAFT_PLACES; i++)
        str_printf(b, "hearth_%s{place=\"%d\"} %llu\n", name, i + 1, (unsigned long long)counts[i]);
}

static void put_experts(str *b, const nn_streaming *x) {
    metrics_put(b, "expert_hits_total", "counter", "Streamed experts that a step found in memory.", (double)x->hits);
    metrics_put(b, "expert_misses_total", "counter", "Streamed experts that had to be read.", (double)x->misses);
    metrics_put(b, "expert_evictions_total", "counter", "Experts that made room for others.", (double)x->evicted);
    metrics_put(b, "expert_read_bytes_total", "counter", "Bytes of experts that were read.", (double)x->bytes);
    metrics_put(b, "expert_wait_seconds_total", "counter", "Time in which steps waited for experts.", x->wait_s);
    if (!x->slots) return;
    metrics_put(b, "expert_slots", "gauge", "Experts that there is room for where they are streamed.", x->slots);
    metrics_put(b, "experts", "gauge", "Experts of the models whose experts are streamed.", x->experts);
}

/* Counters begin with the server and outlive models; a gauge is there while what it measures is. */
static void put_engines(str *b, const runtime_stats *r) {
    const engine_stats *g = &r->engine;
    metrics_put(b, "requests_running", "gauge", "Sequences that are running.", g->running);
    metrics_put(b, "requests_waiting", "gauge", "Sequences that are waiting.", g->waiting + r->preparing);
    metrics_put(b, "requests_paused", "gauge", "Sequences that are paused because their clients read too slowly.",
                g->paused);
    metrics_put(b, "steps_total", "counter", "Steps that the engines have run.", (double)g->steps);
    metrics_put(b, "steps_seconds_total", "counter", "Time in these steps.", g->step_s);
    metrics_put(b, "between_steps_seconds_total", "counter",
                "Time between two steps while there was work: a GPU has nothing to do then.", g->between_s);
    metrics_put(b, "tokens_evaluated_total", "counter", "Tokens that were computed by a model.",
                (double)g->tokens_evaluated);
    if (g->steps)
        metrics_put(b, "batch_tokens", "gauge", "Mean number of tokens per step since the server started.",
                    (double)g->tokens_evaluated / (double)g->steps);
    metrics_put(b, "spec_drafts_total", "counter", "Drafts that were evaluated.", (double)g->drafts);
    metrics_put(b, "spec_drafted_total", "counter", "Tokens of these drafts.", (double)g->drafted);
    metrics_put(b, "spec_accepted_total", "counter", "Drafted tokens that were right.", (double)g->accepted);
    put_places(b, "spec_drafted_at_total", "Drafted tokens by their place in the draft, the last one and all behind.",
               g->drafted_at);
    put_places(b, "spec_accepted_at_total", "Those of them that were right.", g->accepted_at);
    metrics_put(b, "preemptions_total", "counter", "Sequences that were interrupted because pages ran out.",
                (double)g->preemptions);
    metrics_put(b, "kv_evictions_total", "counter", "Cached pages that were dropped to make room for others.",
                (double)g->evictions);
    metrics_put(b, "prefix_cache_hit_tokens_total", "counter", "Tokens that were found in the prefix cache.",
                (double)g->tokens_cached);
    put_experts(b, &g->experts);
    if (g->pages_total) {
        metrics_put(b, "kv_pages_used", "gauge", "Pages of the cache that are in use.",
                    g->pages_total - g->pages_unused);
        metrics_put(b, "kv_pages_total", "gauge", "Pages of the cache.", g->pages_total);
    }
}

static void put_process(str *b, const server *s, const host_stats *h) {
    metrics_put(b, "models_loaded", "gauge", "Models in memory.", h->n_loaded);
    metrics_put_head(b, "memory_bytes", "gauge", "Memory in bytes, by kind.");
    str_printf(b,
               "hearth_memory_bytes{kind=\"resident\"} %" PRIu64 "\nhearth_memory_bytes{kind=\"models\"} %" PRIu64 "\n",
               report_resident_bytes(), h->loaded_bytes);
    str_printf(b, "hearth_memory_bytes{kind=\"request_bodies\"} %zu\n", s->body_bytes);
    metrics_put_head(b, "device_memory_bytes", "gauge",
                     "Memory of a device: the budget of models, and what loaded ones count for.");
    for (size_t i = 0; i < h->budget.n; i++) {
        const device_bytes *d = &h->budget.on[i];
        if (d->bytes == HOST_NO_LIMIT) continue;
        str_printf(b, "hearth_device_memory_bytes{device=\"%s\",kind=\"budget\"} %" PRIu64 "\n", d->device, d->bytes);
        str_printf(b, "hearth_device_memory_bytes{device=\"%s\",kind=\"models\"} %" PRIu64 "\n", d->device,
                   device_memory_on(&h->need, d->device));
    }
    metrics_put(b, "connections", "gauge", "Open connections.", s->n_conns);
    metrics_put(b, "connections_refused_total", "counter",
                "Connections that were refused because the limit was reached.", (double)s->metrics.connections_refused);
    metrics_put(b, "uptime_seconds", "gauge", "Seconds since the server started.", report_uptime(s));
}

void ops_metrics(exchange *x) {
    const server *s = x->server;
    str           b;
    if (s->options.no_metrics) {
        exchange_error(x, 404, "not_found", NULL, "metrics are switched off in the settings (telemetry.metrics)");
        return;
    }
    str_init(&b);
    put_answers(&b, &s->metrics);
    put_engines(&b, &x->stats->runtime);
    put_process(&b, s, x->stats);
    exchange_reply(x, 200, "text/plain; version=0.0.4; charset=utf-8", &b);
}

void ops_stats(exchange *x) {
    str b;
    str_init(&b);
    report_stats(x->server, x->stats, &b);
    exchange_reply(x, 200, "application/json", &b);
}

void ops_requests(exchange *x) {
    str b;
    str_init(&b);
    report_requests(x->server, x, &b);
    exchange_reply(x, 200, "application/json", &b);
}

void ops_cancel(exchange *x) {
    str b;
    for (exchange *o = x->server->exchanges; o; o = o->core->next) {
        if (o == x || !view_eq_c(x->tail, o->id)) continue;
        exchange_cancel(o, ERR_CANCELLED);
        str_init(&b);
        str_puts(&b, "{\"id\":");
        str_put_json(&b, x->tail.data, x->tail.len);
        str_puts(&b, ",\"cancelled\":true}");
        exchange_reply(x, 200, "application/json", &b);
        return;
    }
    exchange_error(x, 404, "not_found", NULL, "there is no request %.*s under way",
                   (int)(x->tail.len > 40 ? 40 : x->tail.len), x->tail.data);
}

void ops_slots(exchange *x) {
    str     b;
    int64_t slot = 0;
    str_init(&b);
    jw w = jw_of(&b);
    jw_open(&w, '[');
    for (exchange *o = x->server->exchanges; o; o = o->core->next) {
        const exchange_core *c = o->core;
        if (o == x || c->in_handler || !c->requests) continue;
        jw_open(&w, '{');
        jw_put_int(&w, "id", slot++);
        jw_put_cstr(&w, "id_task", o->id);
        jw_put_bool(&w, "is_processing", c->in_flight > 0);
        jw_put_text(&w, "model", c->work.model);
        jw_put_int(&w, "n_prompt_tokens", c->prompt_tokens);
        jw_close(&w, '}');
    }
    jw_close(&w, ']');
    exchange_reply(x, 200, "application/json", &b);
}
