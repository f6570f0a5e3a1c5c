/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may ask: the Host header against DNS rebinding, the Origin header against foreign web pages, keys and rates. And
 * how: bodies are not compressed.
 *
 * A page in a browser can send requests to loopback. Its Origin must be listed, be a loopback page itself, or be the
 * server's own; anything else is refused before it has an effect. Credentials are allowed only to origins that are
 * listed by name, never to "*".
 */
#include "base/clock.h"
#include "server/internal.h"

#include <arpa/inet.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* The host without its port; brackets of IPv6 stay. */
static view host_name(view h) {
    if (h.len == 0) return h;
    if (h.data[0] == '[') {
        const char *end = memchr(h.data, ']', h.len);
        return end ? (view){ h.data, (size_t)(end - h.data) + 1 } : h;
    }
    const char *colon = memchr(h.data, ':', h.len);
    return colon ? (view){ h.data, (size_t)(colon - h.data) } : h;
}

static bool name_is(view v, const char *text) { return v.len == strlen(text) && strncasecmp(v.data, text, v.len) == 0; }

static bool is_loopback_name(view name) {
    char              text[64];
    struct in_addr    ip;
    static const char tail[] = ".localhost";
    if (name_is(name, "localhost") || name_is(name, "[::1]")) return true;
    if (name.len > sizeof tail && strncasecmp(name.data + name.len - (sizeof tail - 1), tail, sizeof tail - 1) == 0)
        return true;
    if (name.len >= sizeof text) return false;
    memcpy(text, name.data, name.len);
    text[name.len] = '\0';
    return inet_pton(AF_INET, text, &ip) == 1 && (ntohl(ip.s_addr) >> 24) == 127;
}

bool admit_host(const exchange *x) {
    const server_options *o = &x->server->options;
    const sink           *k = x->core->sink;
    view                  name = host_name(x->http->host);
    if (k->is_unix || !k->is_loopback) return true;
    if (x->http->host.len == 0) return x->http->minor == 0;
    if (is_loopback_name(name)) return true;
    for (size_t i = 0; i < o->n_allow_hosts; i++) {
        if (name_is(name, o->allow_hosts[i])) return true;
    }
    return false;
}

/* "scheme://host[:port]" -> host[:port] */
static view origin_host(view origin) {
    for (size_t i = 0; i + 3 <= origin.len; i++) {
        if (memcmp(origin.data + i, "://", 3) == 0) return (view){ origin.data + i + 3, origin.len - i - 3 };
    }
    return (view){ origin.data, 0 };
}

/* Pages of programs on this machine: editors and desktop programs have schemes of their own. */
static bool is_program(view origin) {
    static const char *const schemes[] = { "app://", "file://", "tauri://", "vscode-webview://", "vscode-file://" };
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        size_t n = strlen(schemes[i]);
        if (origin.len >= n && strncasecmp(origin.data, schemes[i], n) == 0) return true;
    }
    return false;
}

bool admit_origin(exchange *x) {
    const server_options *o = &x->server->options;
    const view           *origin = http_request_get(x->http, "origin");
    bool                  any = false, listed = false;
    if (!origin) return true;
    for (size_t i = 0; i < o->n_cors_origins; i++) {
        if (strcmp(o->cors_origins[i], "*") == 0)
            any = true;
        else if (name_is(*origin, o->cors_origins[i]))
            listed = true;
    }
    view where = origin_host(*origin);
    bool own =
        where.len && where.len == x->http->host.len && strncasecmp(where.data, x->http->host.data, where.len) == 0;
    bool local = is_program(*origin) || is_loopback_name(host_name(where)) || name_is(host_name(where), "0.0.0.0");
    if (!listed && !any && !own && !local) {
        exchange_error(x, 403, "forbidden", NULL,
                       "web pages of this origin may not send requests; --cors-origin allows an origin");
        return false;
    }
    if (listed || !any)
        exchange_header(x, "Access-Control-Allow-Origin", "%.*s", (int)origin->len, origin->data);
    else
        exchange_header(x, "Access-Control-Allow-Origin", "*");
    exchange_header(x, "Vary", "Origin");
    if (listed) exchange_header(x, "Access-Control-Allow-Credentials", "true");
    exchange_header(x, "Access-Control-Expose-Headers", "X-Request-Id, Request-Id, X-Hearth-Ignored, Retry-After");
    if (!view_eq_c(x->http->method, "OPTIONS")) return true;
    exchange_header(x, "Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, DELETE, OPTIONS");
    const view *asked = http_request_get(x->http, "access-control-request-headers");
    if (asked && asked->len < 400)
        exchange_header(x, "Access-Control-Allow-Headers", "%.*s", (int)asked->len, asked->data);
    else
        exchange_header(x, "Access-Control-Allow-Headers", "Authorization, Content-Type, X-Api-Key");
    exchange_header(x, "Access-Control-Max-Age", "600");
    return true;
}

/* --- codings --- */

bool admit_coding(exchange *x) {
    const view *v = http_request_get(x->http, "content-encoding");
    if (!v || v->len == 0 || name_is(*v, "identity")) return true;
    exchange_header(x, "Accept-Encoding", "identity");
    exchange_error(x, 415, "unsupported_content_encoding", NULL,
                   "Content-Encoding: %.*s is not supported; send the body uncompressed",
                   (int)(v->len < 40 ? v->len : 40), v->data);
    return false;
}

/* --- keys --- */

static view presented_key(const http_request *r) {
    const view *v = http_request_get(r, "authorization");
    if (v && v->len > 7 && strncasecmp(v->data, "Bearer ", 7) == 0) {
        view key = { v->data + 7, v->len - 7 };
        while (key.len && key.data[0] == ' ') {
            key.data++;
            key.len--;
        }
        return key;
    }
    v = http_request_get(r, "x-api-key");
    return v ? *v : (view){ "", 0 };
}

bool admit_key(exchange *x) {
    server  *s = x->server;
    unsigned flags = x->route->flags;
    bool     open = (flags & ROUTE_PUBLIC) || ((flags & ROUTE_OPEN) && !s->options.health_needs_key) ||
                ((flags & ROUTE_UNCOUNTED) && s->options.metrics_open);
    view      presented = presented_key(x->http);
    auth_key *key = presented.len ? auth_find(s->keys, presented) : NULL;
    double    wait = 0;
    if (open) return true;
    if (!key && auth_required(s->keys, x->core->is_unix)) {
        exchange_header(x, "WWW-Authenticate", "Bearer");
        exchange_error(x, 401, "invalid_api_key", NULL,
                       presented.len ? "the API key is not valid" : "an API key is needed: Authorization: Bearer KEY");
        return false;
    }
    x->core->by_owner = x->core->is_unix || (key && auth_key_is_owner(key));
    if (!key) return true;
    x->core->key_id = auth_key_id(key);
    snprintf(x->core->key_name, sizeof x->core->key_name, "%s", auth_key_name(key));
    if (auth_admit(key, clock_us(), &wait)) return true;
    exchange_header(x, "Retry-After", "%.0f", ceil(wait));
    exchange_error(x, 429, "rate_limit_exceeded", NULL, "the key '%s' has reached its rate limit; try again in %.0f s",
                   auth_key_name(key), ceil(wait));
    x->core->key_id = 0;
    return false;
}
