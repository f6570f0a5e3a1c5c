/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP server.
 *
 * One I/O thread (the caller of server_run) owns the event loop, the sockets and every exchange. Handlers of requests
 * run on a few intake threads; events of models arrive from the host's threads and wake the I/O thread once per batch.
 * Nothing but the I/O thread touches a connection. How a protocol is added: exchange.h.
 */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include "base/err.h"
#include "host/host.h"
#include "registry/chats.h"
#include "server/fetch.h"
#include "server/http/auth.h"
#include "server/library.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct server server;

typedef struct log_ring log_ring;

typedef struct server_options {
    host    *host;    /* borrowed */
    library *library; /* borrowed; NULL: the models are fixed, nothing is pulled, created or removed */
    chats   *chats;   /* borrowed; NULL: none are kept */
    const struct config_values *settings;      /* borrowed: what holds, and why; NULL: not told */
    const char                 *settings_path; /* borrowed: of server.yaml, which may be absent; NULL: there is none */
    const engine_options       *engine;        /* borrowed: how models are opened, for /v1/fit; NULL: not told */
    void (*doctor)(void *ctx, str *out);       /* the checks of `hearth doctor` as JSON; may take a while; NULL: none */
    log_ring   *logs;                          /* borrowed; NULL: none are kept */
    const char *version;                       /* for /health and /props */
    /* Models that were asked for at the start: /health/ready waits for them. Borrowed. */
    const char *const *preloaded;
    size_t             n_preloaded;
    const char        *default_model; /* for requests that name none where the protocol allows that; NULL: none */

    const char *tcp_host;    /* NULL: no TCP */
    int         tcp_port;    /* 0: any free one */
    const char *socket_path; /* NULL: no Unix socket */
    const int  *inherited;   /* listening sockets from the service manager; then nothing else is opened */
    size_t      n_inherited;
    const char *tls_cert, *tls_key; /* PEM files for TCP; NULL: no TLS */

    const char *const *cors_origins; /* "*" or "https://host[:port]" */
    size_t             n_cors_origins;
    const char *const *allow_hosts; /* further names for the Host header on loopback */
    size_t             n_allow_hosts;
    fetch_rules        pictures; /* by address; the lists are borrowed */
    bool               health_needs_key, metrics_open, no_metrics, no_request_log, no_ui;

    size_t head_bytes, body_bytes; /* 0: 32 KiB, 64 MiB */
    size_t total_body_bytes;       /* of all requests that are being received or read; 0: 512 MiB */
    int    max_connections;        /* 0: 4096 */
    double head_seconds, idle_seconds, body_seconds, stall_seconds, heartbeat_seconds; /* 0: 15, 75, 20, 30, 10 */
    double drain_seconds;                                                              /* 0: 30 */
    int    n_slots;      /* sequences of a model that compute at once, for those who ask; 0: 16 */
    size_t kept_bytes;   /* of responses that can be asked for again; 0: none */
    double kept_seconds; /* how long; 0: an hour; negative: for ever */
    size_t stream_bytes; /* events that may wait for a slow reader; 0: 1 MiB */
} server_options;

/* Keys are taken over by reference; server_set_keys replaces them. Listening begins here. */
int  server_open(server **out, const server_options *o, auth *keys, err *e);
void server_free(server *s); /* accepts NULL */

int         server_port(const server *s);        /* TCP port, or 0 */
const char *server_socket_path(const server *s); /* or NULL */

/* Returns after draining: everything has ended, or was cut at the limit. Then free the host, then the server. */
int server_run(server *s, err *e);

/* From any thread and from signal handlers: 1: drain, 2: stop at once, 3: read settings again. */
enum { SERVER_DRAIN = 1, SERVER_STOP = 2, SERVER_RELOAD = 3 };
void server_signal(server *s, int what);
/* On the I/O thread: called when a reload is asked for (SERVER_RELOAD), and once when draining begins (SERVER_DRAIN). */
void server_on_signal(server *s, void (*fn)(void *ctx, int what), void *ctx);
/* On the I/O thread, every so often while the loop runs; before server_run, once. */
int  server_every(server *s, double seconds, void (*fn)(void), err *e);
void server_set_keys(server *s, auth *keys); /* on the I/O thread */
/* What a start would make of flags, environment and file now; borrowed. On the I/O thread. */
void server_set_latest(server *s, const struct config_values *latest);

#endif
