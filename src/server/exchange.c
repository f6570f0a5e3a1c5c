/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exchanges: from a complete request to the last byte of its answer.
 *
 * An exchange is freed when three parties have let go of it: the connection (answered or gone), the handler on its
 * intake thread, and the requests (each has delivered its last event). Callbacks only store what they want to say;
 * exchange_flush sends it, so that a handler on another thread and an event on this one look the same. A handler that
 * wants inference has submitted its requests before it returns (request.c); the I/O thread only learns of it.
 */
#include "base/clock.h"
#include "base/log.h"
#include "server/adapters.h"
#include "server/error_table.h"
#include "server/grpc/grpc.h"
#include "server/handlers.h"
#include "server/http/feed.h"
#include "server/http/json_out.h"
#include "server/http/upload.h"
#include "server/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_BYTES = 256 << 20, SMALL_BODY = 64 << 10 };

/* --- what adapters say; from the handler's thread or the I/O thread --- */

void exchange_reply(exchange *x, int status, const char *type, str *body) {
    exchange_core *c = x->core;
    bool           ok = str_ok(body);
    if (c->replied || c->streaming) {
        str_deinit(body);
        return;
    }
    if (ok && status < 400 && x->route->api->put_reply) {
        status = x->route->api->put_reply(x, status, type, body);
        ok = str_ok(body);
    }
    c->replied = true;
    c->status = status;
    snprintf(c->type, sizeof c->type, "%s", type);
    str_deinit(&c->out);
    c->out = *body;
    memset(body, 0, sizeof *body);
    if (!ok) {
        str_deinit(&c->out);
        str_init(&c->out);
        c->status = 503;
    }
}

static void reply_failure(exchange *x, failure *f) {
    str body;
    error_find_field(f, &x->body);
    str_init(&body);
    x->core->failed = true;
    x->core->failure = *f;
    if (f->status == 503 && !x->core->replied) exchange_header(x, "Retry-After", "1");
    if (!x->core->is_rpc) x->route->api->put_error(&body, f); /* else the trailers say it */
    exchange_reply(x, f->status, "application/json", &body);
}

void exchange_error(exchange *x, int status, const char *code, const char *param, const char *fmt, ...) {
    failure f = { .status = status };
    va_list ap;
    snprintf(f.code, sizeof f.code, "%s", code ? code : "");
    snprintf(f.param, sizeof f.param, "%s", param ? param : "");
    va_start(ap, fmt);
    vsnprintf(f.message, sizeof f.message, fmt, ap);
    va_end(ap);
    reply_failure(x, &f);
}

static void failure_from(failure *f, const err *e) {
    const error_kind *kind = error_kind_of(e->code);
    *f = (failure){ .status = kind->status };
    snprintf(f->code, sizeof f->code, "%s", kind->name);
    snprintf(f->message, sizeof f->message, "%s", e->msg[0] ? e->msg : "unknown error");
}

void exchange_error_from(exchange *x, const err *e) {
    failure f;
    failure_from(&f, e);
    reply_failure(x, &f);
}

void exchange_error_nomem(exchange *x) {
    err e;
    err_set_nomem(&e);
    exchange_error_from(x, &e);
}

void exchange_reject(exchange *x) { exchange_error(x, 400, "invalid_value", x->in.param, "%s", x->in.message); }

void exchange_header(exchange *x, const char *name, const char *fmt, ...) {
    char    value[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(value, sizeof value, fmt, ap);
    va_end(ap);
    for (char *p = value; *p; p++) {
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = ' ';
    }
    str_printf(&x->core->headers, "%s: %s\r\n", name, value);
}

void exchange_run(exchange *x, const exchange_work *w) {
    x->core->work = *w;
    if (!x->core->replied && w->n_requests && !adapters_apply(x, &x->core->work)) return;
    if (!x->core->replied && w->n_requests) requests_start(x);
}

void exchange_run_one(exchange *x, view model, runtime_request *q, bool stream, const exchange_work *callbacks) {
    exchange_work w = *callbacks;
    w.model = model;
    w.keep_alive_ms = HOST_KEEP_DEFAULT;
    w.requests = q;
    w.n_requests = 1;
    w.stream_type = stream ? "text/event-stream" : NULL;
    exchange_run(x, &w);
}

void exchange_put(exchange *x, const void *data, size_t bytes) { str_append(&x->core->out, data, bytes); }

runtime_request *exchange_requests(exchange *x, size_t n) {
    runtime_request *q = arena_calloc(&x->arena, n, sizeof *q);
    if (!q) {
        exchange_error_nomem(x);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        runtime_request_init(&q[i]);
        q[i].client = x->core->key_id;
    }
    return q;
}

char *exchange_copy(exchange *x, const str *text, view *out) {
    char *p = str_ok(text) ? arena_strndup(&x->arena, str_cstr(text), text->len) : NULL;
    if (p)
        *out = (view){ p, text->len };
    else
        exchange_error_nomem(x);
    return p;
}

/* --- life --- */

exchange *exchange_open(server *s, sink *k, http_request *r) {
    exchange *x = calloc(1, sizeof *x);
    if (x) x->core = calloc(1, sizeof *x->core);
    if (!x || !x->core) {
        free(x);
        return NULL;
    }
    x->server = s;
    x->host = s->options.host;
    x->http = r;
    x->created = (int64_t)time(NULL);
    arena_init(&x->arena, ARENA_BYTES);
    uint64_t number = ++s->next_number;
    snprintf(x->id, sizeof x->id, "req-%016llx", (unsigned long long)(s->id_salt ^ number * 0x9e3779b97f4a7c15u));
    x->core->self = x;
    x->core->sink = k;
    x->core->is_unix = k->is_unix;
    x->core->begin_us = clock_us();
    x->core->next = s->exchanges;
    if (x->core->next) x->core->next->core->prev = x;
    s->exchanges = x;
    s->n_exchanges++;
    return x;
}

static void log_exchange(const exchange *x, int64_t took_us) {
    const exchange_core *c = x->core;
    if (!log_enabled(LOG_INFO) || x->server->options.no_request_log) return;
    if ((x->route->flags & ROUTE_QUIET) && c->status < 400) return;
    char fields[512];
    snprintf(fields, sizeof fields,
             "\"request\":\"%s\",\"api\":\"%s\",\"path\":\"%s\",\"status\":%d,\"ms\":%.1f,\"key\":\"%s\",\"prompt_"
             "tokens\":%d,"
             "\"cached_tokens\":%d,\"generated_tokens\":%d,\"cancelled\":%s",
             x->id, x->route->api->name, x->route->path, c->status, (double)took_us / 1e3, c->key_name,
             c->prompt_tokens, c->cached_tokens, c->generated_tokens, c->cancelled ? "true" : "false");
    char tokens[96] = "";
    if (c->prompt_tokens || c->generated_tokens)
        snprintf(tokens, sizeof tokens, ", %d prompt tokens (%d cached), %d generated", c->prompt_tokens,
                 c->cached_tokens, c->generated_tokens);
    bool broke = c->failed && c->status >= 500;
    log_write_fields(LOG_INFO, "server", fields, "%s %s %s %d %.1f ms%s%s%s%s", x->id, x->route->method, x->route->path,
                     c->status, (double)took_us / 1e3, tokens, c->cancelled ? ", the client closed the connection" : "",
                     broke ? ": " : "", broke ? c->failure.message : "");
}

static void exchange_free(exchange *x) {
    server        *s = x->server;
    exchange_core *c = x->core;
    int64_t        took = clock_us() - c->begin_us;
    if (x->route && (c->status || c->cancelled)) {
        if (c->cancelled && !c->status) c->status = 499;
        if (!(x->route->flags & ROUTE_UNCOUNTED) || c->status >= 400)
            metrics_request(&s->metrics, x->route->api->name, c->status, (double)took / 1e6);
        log_exchange(x, took);
    }
    auth_key *key = c->key_id ? auth_by_id(s->keys, c->key_id) : NULL;
    if (key) auth_charge(key, clock_us(), c->prompt_tokens - c->cached_tokens + c->generated_tokens);
    if (x->state_free) x->state_free(x->state);
    requests_free(x);
    feed_free(c->feed);
    json_doc_deinit(&x->doc);
    arena_deinit(&x->arena);
    if (x->http) {
        s->body_bytes -= x->http->body.len;
        http_request_free(x->http);
    }
    if (c->prev)
        c->prev->core->next = c->next;
    else
        s->exchanges = c->next;
    if (c->next) c->next->core->prev = c->prev;
    s->n_exchanges--;
    if (c->deadline) event_free(c->deadline);
    str_deinit(&c->headers);
    str_deinit(&c->ignored);
    str_deinit(&c->out);
    free(c);
    free(x);
    if (s->draining && s->n_exchanges == 0) server_signal(s, SERVER_DRAIN); /* the loop looks again */
}

void exchange_settle(exchange *x) {
    exchange_core *c = x->core;
    if (!c->sink && !c->in_handler && c->in_flight == 0) exchange_free(x);
}

void exchange_detach(exchange *x) {
    exchange_core *c = x->core;
    c->sink = NULL;
    if (!c->over) c->cancelled = true;
    c->over = true;
    if (c->in_handler) {
        atomic_store(&c->gone, true); /* handled() does the rest */
        return;
    }
    requests_cancel(x);
    feed_detach(c->feed);
    exchange_settle(x);
}

/* --- sending --- */

/* Ends the connection's part in it. */
static void finish(exchange *x) {
    exchange_core *c = x->core;
    sink          *k = c->sink;
    c->over = true;
    c->sink = NULL;
    k->kind->answered(k, x);
    exchange_settle(x);
}

bool exchange_flush(exchange *x) {
    exchange_core *c = x->core;
    bool           last = c->replied || c->over;
    if (!c->sink) return false;
    if (!c->replied && !c->streaming) return true;
    if (x->server->draining && !c->head_sent) c->close = true;
    bool ok = c->sink->kind->send(c->sink, x, last);
    c->head_sent = true;
    str_clear(&c->out);
    if (ok && !last) return true;
    if (!ok)
        c->sink->kind->give_up(c->sink); /* out of memory in the middle: an answer with a hole would be worse */
    else
        finish(x);
    return false;
}

static void put_stream_error(exchange *x, const failure *f) {
    const api *a = x->route->api;
    str        body;
    if (!a->put_stream_error) return;
    str_init(&body);
    a->put_error(&body, f);
    a->put_stream_error(x, f, &body);
    str_deinit(&body);
}

/* Fails an exchange on the I/O thread, whatever it has sent already. */
static void fail_with(exchange *x, failure *f) {
    exchange_core *c = x->core;
    if (c->over || c->replied) return;
    if (!c->streaming) {
        reply_failure(x, f);
    } else {
        error_find_field(f, &x->body);
        c->failed = true;
        c->failure = *f;
        put_stream_error(x, f);
        c->over = true;
    }
    requests_cancel(x);
    feed_detach(c->feed);
}

void exchange_fail(exchange *x, const err *e) {
    failure f;
    failure_from(&f, e);
    fail_with(x, &f);
}

static const char *why_cancelled(int code) {
    return code == ERR_DEADLINE ? "the deadline of the call has passed"
           : code == ERR_BUSY   ? "the server is stopping"
                                : "the request was cancelled";
}

void exchange_cancel(exchange *x, int code) {
    err e;
    if (x->core->in_handler) { /* the answer is another thread's until it comes back */
        x->core->cancel_asked = code;
        atomic_store(&x->core->gone, true);
        return;
    }
    err_set(&e, code, "%s", why_cancelled(code));
    exchange_fail(x, &e);
    exchange_flush(x);
}

void exchange_beat(exchange *x) {
    exchange_core *c = x->core;
    if (c->in_handler || c->over || c->replied || !c->work.stream_type || !c->work.n_requests ||
        !x->route->api->heartbeat)
        return;
    exchange_begin_stream(x);
    x->route->api->heartbeat(x);
    exchange_flush(x);
}

void exchange_begin_stream(exchange *x) {
    exchange_core *c = x->core;
    if (c->streaming || !c->work.stream_type) return;
    c->streaming = true;
    c->status = 200;
    snprintf(c->type, sizeof c->type, "%s", c->work.stream_type);
}

/* --- from the head to the handler --- */

/* "/v1//models/" is "/v1/models": clients join addresses carelessly. */
static void trim_slashes(http_request *r) {
    char  *p = r->decoded.data;
    size_t n = 0;
    if (!p || r->path.data != p) return;
    for (size_t i = 0; i < r->path.len; i++) {
        if (p[i] != '/' || n == 0 || p[n - 1] != '/') p[n++] = p[i];
    }
    if (n > 1 && p[n - 1] == '/') n--;
    r->path.len = n;
}

/* A path that is not a route still has the errors of its protocol. */
static void set_lost(exchange *x, view path) {
    x->core->lost = (route){ "*", "unknown", x->core->is_rpc ? &api_grpc : route_api(path), NULL, 0 };
    x->route = &x->core->lost;
}

/* A call of gRPC finds methods only, and whoever does not call finds none. */
static bool find_method(exchange *x) {
    view path = x->http->path;
    int  n = path.len > 100 ? 100 : (int)path.len;
    x->route = grpc_find(path);
    if (x->route && x->core->is_rpc && view_eq_c(x->http->method, "POST")) return true;
    bool is_rpc = x->core->is_rpc, found = x->route != NULL;
    set_lost(x, path);
    if (!is_rpc)
        exchange_error(x, 415, "unsupported_media_type", NULL,
                       "%.*s is a method of gRPC: it is called over HTTP/2 with the content type application/grpc", n,
                       path.data);
    else if (found)
        exchange_error(x, 405, "method_not_allowed", NULL, "a call of gRPC is a POST");
    else
        exchange_error(x, 501, "not_implemented", NULL, "there is no method %.*s here", n, path.data);
    return false;
}

static bool find_route(exchange *x) {
    bool known = false;
    bool head = view_eq_c(x->http->method, "HEAD");
    trim_slashes(x->http);
    if (x->core->is_rpc || grpc_find(x->http->path)) return find_method(x);
    x->route = route_find(head ? view_of("GET") : x->http->method, x->http->path, &x->tail, &known);
    if (head && !x->route) x->route = route_find(x->http->method, x->http->path, &x->tail, &known);
    x->core->head_only = head;
    if (x->route) return true;
    set_lost(x, x->http->path);
    int n = x->http->path.len > 100 ? 100 : (int)x->http->path.len;
    if (view_eq_c(x->http->method, "OPTIONS")) return true;
    if (known) {
        str allow;
        str_init(&allow);
        route_allow(x->http->path, &allow);
        exchange_header(x, "Allow", "%s", str_cstr(&allow));
        exchange_error(x, 405, "method_not_allowed", NULL, "%.*s is not a method of %.*s; allowed: %s",
                       (int)x->http->method.len, x->http->method.data, n, x->http->path.data, str_cstr(&allow));
        str_deinit(&allow);
    } else {
        exchange_error(x, 404, "not_found", NULL, "%.*s does not exist here", n, x->http->path.data);
    }
    return false;
}

static void answer_options(exchange *x) {
    str empty;
    str_init(&empty);
    if (!view_eq_c(x->http->path, "*")) {
        str allow;
        str_init(&allow);
        route_allow(x->http->path, &allow);
        exchange_header(x, "Allow", "%s", str_cstr(&allow));
        str_deinit(&allow);
    }
    exchange_reply(x, 204, "text/plain", &empty);
}

void exchange_refuse(exchange *x, int status, const char *why) {
    if (!x->route) set_lost(x, x->http ? x->http->path : view_of("/"));
    exchange_error(x, status, NULL, NULL, "%s", why);
    exchange_flush(x);
}

static void on_deadline(evutil_socket_t fd, short what, void *ctx) {
    (void)fd;
    (void)what;
    exchange_cancel(ctx, ERR_DEADLINE);
}

/* How long a call of gRPC may take is its client's to say. False: answered. */
static bool set_deadline(exchange *x) {
    exchange_core *c = x->core;
    const view    *v = c->is_rpc ? http_request_get(x->http, "grpc-timeout") : NULL;
    int64_t        us;
    if (!v) return true;
    if (!grpc_timeout(*v, &us)) {
        exchange_error(x, 400, "invalid_value", "grpc-timeout",
                       "grpc-timeout: expected up to 8 digits and H, M, S, m, u or n");
        return false;
    }
    struct timeval tv = { .tv_sec = us / 1000000, .tv_usec = us % 1000000 };
    c->deadline = event_new(x->server->base, -1, 0, on_deadline, x);
    if (c->deadline && event_add(c->deadline, &tv) == 0) return true;
    exchange_error_nomem(x);
    return false;
}

void exchange_admit(exchange *x) {
    exchange_core *c = x->core;
    bool           body = x->http->chunked || x->http->content_length > 0;
    bool           options = view_eq_c(x->http->method, "OPTIONS");
    c->close = !x->http->keep_alive || x->server->draining;
    bool routed = find_route(x);
    if (!admit_host(x)) {
        c->replied = false;
        exchange_error(
            x, 403, "forbidden", NULL,
            "the Host header does not name a loopback address; use localhost, or allow the name with --allow-host");
        routed = false;
    }
    if (routed && (!admit_origin(x) || (!options && !admit_key(x)))) routed = false;
    if (routed && options) {
        answer_options(x);
        routed = false;
    }
    if (routed && body && !admit_coding(x)) routed = false;
    if (routed && !set_deadline(x)) routed = false;
    if (routed && (x->route->flags & ROUTE_UPLOAD) && !upload_admit(x)) routed = false;
    if (routed) return; /* the body, then exchange_start */
    /* What follows on the connection is still good if the body is none or short: it is read first, then answered. Who
     * has no key sends no bodies. */
    bool known = c->status == 404 || c->status == 405 || c->status == 415 || c->status == 204;
    bool small = known && !x->http->chunked && !x->http->expect_continue && x->http->content_length <= SMALL_BODY;
    if (!body || small) return;
    c->close = true;
    exchange_flush(x);
}

/* A model that is here may be called by where it came from ("hf.co/owner/repo:Q4_K_M"): the adapters see its own name.
 */
static void resolve_model(exchange *x) {
    static const char *const keys[] = { "model", "name" };
    library                 *l = x->server->options.library;
    for (size_t i = 0; l && i < 2; i++) {
        node  n = node_get(&x->body, keys[i]);
        char *own = NULL;
        view  said = node_text(&n);
        if (node_is(&n) != NODE_STRING || said.len == 0 || host_find(x->host, said, &(host_model){ 0 }, NULL) == 0)
            continue;
        if (library_resolve(l, said, &own)) node_set_text(&x->body, keys[i], own);
        free(own);
    }
}

static void run_handler(exchange *x) {
    err e = { 0 };
    if ((x->route->flags & ROUTE_BODY) && x->route->api->read_body) {
        if (!x->route->api->read_body(x)) return;
        x->body = node_root(&x->doc);
    } else if (x->route->flags & ROUTE_BODY) {
        if (json_doc_parse(&x->doc, str_cstr(&x->http->body), x->http->body.len, &e) < 0) {
            if (e.code == ERR_NOMEM)
                exchange_error_nomem(x);
            else
                exchange_error(x, 400, "invalid_json", NULL, "%s", e.msg);
            return;
        }
        x->body = node_root(&x->doc);
    }
    reader_init(&x->in);
    if (!(x->route->flags & ROUTE_INLINE)) library_refresh(x->server->options.library);
    if ((x->route->flags & (ROUTE_BODY | ROUTE_NAMES)) == ROUTE_BODY) resolve_model(x);
    x->route->handle(x);
    /* A refused request was not read to its end. */
    bool        refused = x->core->replied && x->core->status >= 400;
    void       *cursor = NULL;
    const char *unknown;
    while ((x->route->flags & ROUTE_BODY) && !refused && (unknown = reader_unknown(&x->in, &x->body, &cursor)))
        exchange_ignore(x, view_of(unknown));
    if (!refused && x->core->work.n_requests > 0) library_used(x->server->options.library, x->core->work.model);
}

/* The handler has returned; everything is the I/O thread's again. */
static void handled(exchange *x) {
    exchange_core *c = x->core;
    if (x->stats && c->sink && !c->replied) run_handler(x);
    c->in_handler = false;
    if (c->feed) {
        if (!c->sink)
            feed_detach(c->feed);
        else if (c->cancel_asked)
            exchange_cancel(x, c->cancel_asked);
        feed_attached(c->feed); /* may be the end of x */
        return;
    }
    requests_attach(x);
    if (!c->sink) {
        requests_cancel(x);
        exchange_settle(x);
        return;
    }
    if (!c->replied && c->cancel_asked) {
        err e;
        err_set(&e, c->cancel_asked, "%s", why_cancelled(c->cancel_asked));
        exchange_error_from(x, &e);
        requests_cancel(x);
    } else if (!c->replied && !c->requests) {
        exchange_error(x, 500, NULL, NULL, "the handler of %s gave no answer", x->route->path);
    }
    exchange_flush(x);
}

static void take_handled(post *p) {
    exchange_core *c = (exchange_core *)((char *)p - offsetof(exchange_core, handled));
    handled(c->self);
}

/* It may be asked to fetch a picture (fetch.h): whoever names a slow host must not hold up the others. */
static bool may_fetch(const exchange *x) {
    const str *body = &x->http->body;
    return x->server->options.pictures.n_hosts && (x->route->flags & ROUTE_BODY) && body->len &&
           memmem(body->data, body->len, "https:", 6);
}

void exchange_start(exchange *x) {
    server *s = x->server;
    if (x->core->replied) { /* refused by its head alone */
        exchange_flush(x);
        return;
    }
    x->core->in_handler = true;
    if ((x->route->flags & (ROUTE_INLINE | ROUTE_STATS)) == ROUTE_INLINE) {
        run_handler(x);
        handled(x);
        return;
    }
    x->core->handled.take = take_handled;
    bool slow = (x->route->flags & ROUTE_SLOW) || may_fetch(x);
    if (queue_try_push(x->route->flags & ROUTE_STATS ? s->watch : slow ? s->slow : s->intake, x)) return;
    err e;
    err_set(&e, ERR_BUSY, "too many requests are waiting");
    exchange_error_from(x, &e);
    handled(x);
}

void exchange_piece(exchange *x, bool last) {
    exchange_core *c = x->core;
    if (c->replied) { /* refused by its head alone */
        if (last) exchange_flush(x);
        return;
    }
    c->work.stream_type = GRPC_TYPE;
    x->route->handle(x);
    if (last && !c->replied && !c->over) {
        exchange_begin_stream(x);
        c->over = true;
    }
    if (!c->over && c->sink->kind->congested(c->sink)) {
        err e;
        err_set(&e, ERR_BUSY, "the answers are not read");
        exchange_fail(x, &e);
    }
    exchange_flush(x);
}

static void ask_stats(exchange *x) {
    host_stats *s = arena_calloc(&x->arena, 1, sizeof *s);
    if (s)
        host_stat(x->host, s);
    else
        exchange_error_nomem(x);
    x->stats = s;
}

static void *intake_main(void *ctx) {
    queue *q = ctx;
    void  *item;
    while (queue_pop(q, &item)) {
        exchange *x = item;
        if (x->route->flags & ROUTE_STATS)
            ask_stats(x);
        else
            run_handler(x);
        server_post(x->server, &x->core->handled);
    }
    return NULL;
}

int server_start_intake(server *s, err *e) {
    int rc;
    if ((rc = queue_open(&s->intake, INTAKE_WAITING, e)) < 0 || (rc = queue_open(&s->slow, INTAKE_WAITING, e)) < 0 ||
        (rc = queue_open(&s->watch, INTAKE_WAITING, e)) < 0)
        return rc;
    for (size_t i = 0; i < INTAKE_THREADS + SLOW_THREADS + 1; i++) {
        queue *q = i == 0 ? s->watch : i <= INTAKE_THREADS ? s->intake : s->slow;
        rc = pthread_create(&s->threads[i], NULL, intake_main, q);
        if (rc != 0) return err_set(e, ERR_IO, "cannot start a thread: %s", strerror(rc));
        s->n_threads++;
    }
    return 0;
}

void server_stop_intake(server *s) {
    if (s->intake) queue_close(s->intake);
    if (s->slow) queue_close(s->slow);
    if (s->watch) queue_close(s->watch);
    for (size_t i = 0; i < s->n_threads; i++) pthread_join(s->threads[i], NULL);
    s->n_threads = 0;
    queue_free(s->intake);
    queue_free(s->slow);
    queue_free(s->watch);
    s->intake = s->slow = s->watch = NULL;
}
