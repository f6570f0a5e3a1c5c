/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/serve/options.h"

#include "cli/serve/workers.h"

#include <string.h>

int serve_host_options(settings *s, host_options *out, err *e) {
    const config_values *v = &s->server;
    double               keep = config_real(v, "models.keep_alive");
    memset(out, 0, sizeof *out);
    out->max_loaded = (int)config_int(v, "models.max_loaded");
    out->keep_alive_ms = keep < 0 ? HOST_KEEP_FOREVER : (int64_t)(keep * 1000);
    out->no_sandbox = !config_bool(v, "security.sandbox");
    serve_workers(v, out);
    return settings_engine(s, &out->runtime, e);
}

void serve_server_options(const config_values *v, server_options *out) {
    const config_value *origins = config_get(v, "transport.cors_origins");
    const config_value *hosts = config_get(v, "transport.allowed_hosts");
    const config_value *preload = config_get(v, "models.preload");
    const config_value *images = config_get(v, "security.image_hosts");
    const config_value *networks = config_get(v, "security.image_networks");
    *out = (server_options){
        .tcp_host = config_bool(v, "transport.tcp") ? config_text(v, "transport.host") : NULL,
        .tcp_port = (int)config_int(v, "transport.port"),
        .socket_path = config_bool(v, "transport.unix_socket") ? config_text(v, "transport.socket") : NULL,
        .tls_cert = config_text(v, "transport.tls_cert"),
        .tls_key = config_text(v, "transport.tls_key"),
        .cors_origins = origins->texts,
        .n_cors_origins = origins->n_texts,
        .allow_hosts = hosts->texts,
        .n_allow_hosts = hosts->n_texts,
        .pictures = { images->texts, images->n_texts, networks->texts, networks->n_texts, NULL },
        .preloaded = preload->texts,
        .n_preloaded = preload->n_texts,
        .health_needs_key = config_bool(v, "security.health_needs_key"),
        .no_ui = !config_bool(v, "transport.ui"),
        .no_metrics = !config_bool(v, "telemetry.metrics"),
        .no_request_log = !config_bool(v, "telemetry.request_log"),
        .head_bytes = (size_t)config_int(v, "transport.max_head_bytes"),
        .body_bytes = (size_t)config_int(v, "transport.max_body_bytes"),
        .total_body_bytes = (size_t)config_int(v, "transport.max_total_body_bytes"),
        .metrics_open = config_bool(v, "security.metrics_open"),
        .n_slots = (int)config_int(v, "scheduler.max_sequences"),
        .kept_bytes = (size_t)config_int(v, "responses.bytes"),
        .kept_seconds = config_real(v, "responses.keep"),
        .stream_bytes = (size_t)config_int(v, "transport.stream_bytes"),
        .max_connections = (int)config_int(v, "transport.max_connections"),
        .head_seconds = config_real(v, "transport.head_timeout"),
        .idle_seconds = config_real(v, "transport.idle_timeout"),
        .body_seconds = config_real(v, "transport.body_timeout"),
        .stall_seconds = config_real(v, "transport.stall_timeout"),
        .heartbeat_seconds = config_real(v, "transport.heartbeat"),
        .drain_seconds = config_real(v, "transport.drain_timeout"),
    };
}
