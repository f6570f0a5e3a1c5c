/* SPDX-License-Identifier: Apache-2.0 */
/* hearth debug options: what `hearth serve` with these flags would hand to the host and the server, as JSON. */
#include "cli/serve/options.h"

#include <stdio.h>
#include <string.h>

static void put_text(str *out, const char *name, const char *text) {
    str_printf(out, "%s\"%s\": ", out->data && out->data[out->len - 1] == '{' ? "" : ", ", name);
    if (text)
        str_put_json(out, text, strlen(text));
    else
        str_puts(out, "null");
}

static void put_number(str *out, const char *name, double v) {
    str_printf(out, "%s\"%s\": %.17g", out->data && out->data[out->len - 1] == '{' ? "" : ", ", name, v);
}

static void put_list(str *out, const char *name, const char *const *list, size_t n) {
    str_printf(out, ", \"%s\": [", name);
    for (size_t i = 0; i < n; i++) {
        if (i) str_puts(out, ", ");
        str_put_json(out, list[i], strlen(list[i]));
    }
    str_push(out, ']');
}

static void put_server(const server_options *o, str *out) {
    put_text(out, "tcp_host", o->tcp_host);
    put_number(out, "tcp_port", o->tcp_port);
    put_text(out, "socket_path", o->socket_path);
    put_text(out, "tls_cert", o->tls_cert);
    put_text(out, "tls_key", o->tls_key);
    put_list(out, "cors_origins", o->cors_origins, o->n_cors_origins);
    put_list(out, "allow_hosts", o->allow_hosts, o->n_allow_hosts);
    put_list(out, "image_hosts", o->pictures.hosts, o->pictures.n_hosts);
    put_list(out, "image_networks", o->pictures.networks, o->pictures.n_networks);
    put_number(out, "health_needs_key", o->health_needs_key);
    put_number(out, "no_metrics", o->no_metrics);
    put_number(out, "no_request_log", o->no_request_log);
    put_number(out, "no_ui", o->no_ui);
    put_number(out, "head_bytes", (double)o->head_bytes);
    put_number(out, "body_bytes", (double)o->body_bytes);
    put_number(out, "total_body_bytes", (double)o->total_body_bytes);
    put_number(out, "metrics_open", o->metrics_open);
    put_number(out, "kept_bytes", (double)o->kept_bytes);
    put_number(out, "kept_seconds", o->kept_seconds);
    put_number(out, "stream_bytes", (double)o->stream_bytes);
    put_number(out, "max_connections", o->max_connections);
    put_number(out, "head_seconds", o->head_seconds);
    put_number(out, "idle_seconds", o->idle_seconds);
    put_number(out, "body_seconds", o->body_seconds);
    put_number(out, "stall_seconds", o->stall_seconds);
    put_number(out, "heartbeat_seconds", o->heartbeat_seconds);
    put_number(out, "drain_seconds", o->drain_seconds);
}

static void put_host(const host_options *h, str *out) {
    const engine_options *g = &h->runtime.engine;
    uint64_t              limit = device_memory_on(&h->budget, DEVICE_CPU);
    put_number(out, "max_loaded", h->max_loaded);
    put_number(out, "max_bytes", limit == HOST_NO_LIMIT ? -1 : (double)limit);
    put_number(out, "keep_alive_ms", h->keep_alive_ms == HOST_KEEP_FOREVER ? -1 : (double)h->keep_alive_ms);
    put_number(out, "no_sandbox", h->no_sandbox);
    put_number(out, "max_preparing", h->runtime.max_preparing);
    put_number(out, "grammar_bytes", (double)h->runtime.grammar_bytes);
    put_number(out, "n_ctx", g->n_ctx);
    put_number(out, "cache_bytes", (double)g->cache_bytes);
    put_number(out, "page_tokens", g->page_tokens);
    put_number(out, "max_seqs", g->max_seqs);
    put_number(out, "step_tokens", g->step_tokens);
    put_number(out, "max_waiting", g->max_waiting);
    put_number(out, "target_step_ms", g->target_step_ms);
    put_number(out, "n_threads", g->n_threads);
    put_number(out, "speculate", g->speculate);
    put_number(out, "draft_max", g->draft_max);
    put_text(out, "device", g->device);
    put_number(out, "expert_bytes", (double)g->expert_bytes);
    put_number(out, "experts_auto", g->experts_auto);
    put_number(out, "k_type", g->k_type);
    put_number(out, "v_type", g->v_type);
    put_number(out, "precise_layers", g->precise_layers);
    put_number(out, "k_open", g->k_open);
    put_number(out, "kv_auto", g->kv_auto);
    put_number(out, "no_prefix_cache", g->no_prefix_cache);
    put_number(out, "host_cache_bytes", (double)g->host_cache_bytes);
    put_text(out, "disk_cache_dir", g->disk_cache_dir);
    put_number(out, "disk_cache_bytes", (double)g->disk_cache_bytes);
}

static void put_settings(const runtime_settings *r, str *out) {
    put_number(out, "sampling_set", r->sampling_set);
    for (int i = 0; i < SAMPLING_PARAM_COUNT; i++)
        put_number(out, sampling_param_fields[i].key, sampling_get(&r->sampling, (sampling_param)i));
    put_number(out, "max_tokens", r->max_tokens);
    put_number(out, "min_tokens", r->min_tokens);
    put_list(out, "stop", r->stop, r->n_stop);
    put_text(out, "system", r->system);
    put_text(out, "messages", r->messages);
    put_text(out, "template", r->template_text);
    put_number(out, "context", r->n_ctx);
    put_text(out, "rope_type", r->rope_type);
    put_number(out, "rope_factor", r->rope_factor);
    put_text(out, "speculate", r->speculate);
    put_text(out, "draft", r->draft);
    put_number(out, "draft_max", r->draft_max);
    put_number(out, "rope_original_context", r->rope_original_context);
}

static int run(const cli_args *a) {
    settings       all;
    model_settings m = { 0 };
    host_options   h;
    server_options o;
    err            e = { 0 };
    str            out;
    int            rc = settings_load(&all, a, &e);
    str_init(&out);
    if (rc == 0) rc = serve_host_options(&all, &h, &e);
    if (rc == 0) rc = settings_model(&all, a, cli_arg(a, 0) ? cli_arg(a, 0) : "demo", NULL, &m, &e);
    if (rc == 0) {
        serve_server_options(&all.server, &o);
        str_puts(&out, "{\"server\": {");
        put_server(&o, &out);
        str_puts(&out, "}, \"host\": {");
        put_host(&h, &out);
        str_puts(&out, "}, \"model\": {");
        put_settings(&m.runtime, &out);
        str_puts(&out, "}}");
        puts(str_cstr(&out));
    }
    str_deinit(&out);
    model_settings_deinit(&m);
    settings_deinit(&all);
    return rc == 0 ? CLI_OK : rc == ERR_ARG ? cli_usage_error(a, "%s", e.msg) : cli_fail(a, &e);
}

const cli_command cli_cmd_debug_options = { "options",
                                            "[MODEL] [options of 'hearth serve']",
                                            "Print as JSON what 'hearth serve' would pass to the host and the server.",
                                            cli_serve_options,
                                            0,
                                            1,
                                            run };
