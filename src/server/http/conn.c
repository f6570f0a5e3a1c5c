/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections: bytes in, one exchange at a time, bytes out.
 *
 * Reading is never switched off, so that the end of a client is noticed at once, also while a model works for it. Bytes
 * of further requests wait in the input buffer; a client that sends more than PIPELINE_BYTES of them is closed, because
 * behind a full buffer its end could not be seen. Every phase has a deadline that does not move when bytes trickle in.
 */
#include "base/clock.h"
#include "base/log.h"
#include "server/error_table.h"
#include "server/http/upload.h"
#include "server/internal.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent_ssl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LINGER_US = 2000000, LINGER_BYTES = 16 << 20, BODY_BYTES_PER_S = 16 * 1024 };

static void advance(conn *c);

/* --- deadlines --- */

void conn_arm(conn *c, double seconds) {
    struct timeval tv = { .tv_sec = (time_t)seconds,
                          .tv_usec = (suseconds_t)((seconds - (double)(time_t)seconds) * 1e6) };
    event_add(c->timer, &tv);
}

static void enter(conn *c, conn_phase phase) {
    const server_options *o = &c->server->options;
    c->phase = phase;
    c->phase_us = clock_us();
    switch (phase) {
    case CONN_IDLE: conn_arm(c, c->first ? o->head_seconds : o->idle_seconds); break;
    case CONN_HEAD: conn_arm(c, o->head_seconds); break;
    case CONN_BODY: conn_arm(c, o->body_seconds); break;
    case CONN_ANSWER:
        c->moved_us = c->sent_us = c->phase_us;
        conn_arm(c, o->heartbeat_seconds < o->stall_seconds ? o->heartbeat_seconds : o->stall_seconds);
        break;
    case CONN_FLUSH: conn_arm(c, o->stall_seconds); break;
    case CONN_LINGER: conn_arm(c, LINGER_US / 1e6); break;
    case CONN_H2: break; /* h2.c does */
    }
}

static void refuse(conn *c, int status, const char *reason);

/* A body may take its base time plus what its bytes need at a slow link's speed. */
static void body_deadline(conn *c) {
    double   elapsed = (double)(clock_us() - c->phase_us) / 1e6;
    uint64_t bytes = c->parser.request->no_limit ? upload_received(c->x) : c->parser.request->body.len;
    double   allowed = c->server->options.body_seconds + (double)bytes / BODY_BYTES_PER_S;
    if (c->held) /* our disk is slow, not the client */
        conn_arm(c, c->server->options.body_seconds);
    else if (elapsed < allowed)
        conn_arm(c, allowed - elapsed + 0.01);
    else
        refuse(c, 408, "the body did not arrive in time");
}

bool conn_stalled(const conn *c) {
    size_t queued = evbuffer_get_length(bufferevent_get_output(c->bev));
    return queued && (double)(clock_us() - c->moved_us) / 1e6 >= c->server->options.stall_seconds * 0.99;
}

static void answer_tick(conn *c) {
    const server_options *o = &c->server->options;
    if (conn_stalled(c)) {
        log_info("server", "a client that did not read its answer was disconnected");
        conn_free(c);
        return;
    }
    conn_arm(c, o->heartbeat_seconds < o->stall_seconds ? o->heartbeat_seconds : o->stall_seconds);
    if ((double)(clock_us() - c->sent_us) / 1e6 >= o->heartbeat_seconds * 0.9) exchange_beat(c->x);
}

static void on_timer(evutil_socket_t fd, short what, void *ctx) {
    conn *c = ctx;
    (void)fd;
    (void)what;
    switch (c->phase) {
    case CONN_IDLE: conn_free(c); break;
    case CONN_HEAD: refuse(c, 408, "the head did not arrive in time"); break;
    case CONN_BODY: body_deadline(c); break;
    case CONN_ANSWER: answer_tick(c); break;
    case CONN_FLUSH:
        if (conn_stalled(c))
            conn_free(c);
        else
            conn_arm(c, c->server->options.stall_seconds / 4);
        break;
    case CONN_LINGER: conn_free(c); break;
    case CONN_H2: h2_tick(c); break;
    }
}

/* --- writing --- */

/* Straight to the socket while nothing waits: saves a round through the event loop per token. */
void conn_write_parts(conn *c, struct iovec *parts, int n) {
    size_t done = 0;
    c->sent_us = clock_us();
    if (evbuffer_get_length(bufferevent_get_output(c->bev)) == 0) {
        c->moved_us = c->sent_us; /* nothing was waiting until now */
        if (!c->is_tls) {
            struct msghdr m = { .msg_iov = parts, .msg_iovlen = (size_t)n };
            ssize_t       sent = sendmsg(bufferevent_getfd(c->bev), &m, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (sent > 0) done = (size_t)sent;
        }
    }
    /* An error of the socket comes back as an event of the bufferevent. */
    for (int i = 0; i < n; i++) {
        size_t skip = done < parts[i].iov_len ? done : parts[i].iov_len;
        done -= skip;
        if (parts[i].iov_len == skip) continue;
        if (bufferevent_write(c->bev, (const char *)parts[i].iov_base + skip, parts[i].iov_len - skip) != 0)
            c->dead = true;
    }
}

static void conn_write(conn *c, const void *data, size_t bytes) {
    struct iovec part = { (void *)(uintptr_t)data, bytes };
    conn_write_parts(c, &part, 1);
}

bool conn_congested(const conn *c) { return evbuffer_get_length(bufferevent_get_output(c->bev)) > OUTPUT_HIGH; }

static void on_drained(struct evbuffer *b, const struct evbuffer_cb_info *info, void *ctx) {
    conn *c = ctx;
    (void)b;
    if (info->n_deleted) c->moved_us = clock_us();
}

/* --- the end of an answer --- */

static void begin_linger(conn *c) {
    evutil_socket_t fd = bufferevent_getfd(c->bev);
    enter(c, CONN_LINGER);
    if (c->is_tls) SSL_shutdown(bufferevent_openssl_get_ssl(c->bev));
    shutdown(fd, SHUT_WR);
}

static void flushed(conn *c) {
    if (c->rest_unread)
        begin_linger(c); /* closing now would reset the connection and lose the answer on its way */
    else
        conn_free(c);
}

static void count_body(conn *c, size_t bytes) {
    c->server->body_bytes += bytes - c->body_counted;
    c->body_counted = bytes;
}

static void answered(sink *k, exchange *x) {
    conn *c = (conn *)k;
    bool  keep = !x->core->close;
    if (x->http == c->parser.request) x->http = NULL; /* still the parser's */
    c->x = NULL;
    if (keep && !c->rest_unread) {
        enter(c, CONN_IDLE);
        if (!c->advancing) advance(c); /* a pipelined request may wait */
        return;
    }
    enter(c, CONN_FLUSH);
    if (evbuffer_get_length(bufferevent_get_output(c->bev)) == 0 && !c->advancing) flushed(c);
}

void conn_shut(conn *c) {
    c->rest_unread = true;
    enter(c, CONN_FLUSH);
    if (evbuffer_get_length(bufferevent_get_output(c->bev)) == 0) begin_linger(c);
}

/* An answer to something that is not a request. */
static void refuse(conn *c, int status, const char *reason) {
    str body, text;
    if (c->x) { /* its body failed */
        exchange *x = c->x;
        c->x = NULL;
        x->http = NULL;
        count_body(c, 0);
        exchange_detach(x);
    }
    str_init(&body);
    str_init(&text);
    str_puts(&body, "{\"error\":{\"message\":");
    str_put_json(&body, reason, strlen(reason));
    str_puts(&body, ",\"type\":\"invalid_request_error\",\"param\":null,\"code\":null}}");
    str_printf(&text,
               "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
               status, error_status_of(status)->text, body.len);
    str_append(&text, str_cstr(&body), body.len);
    metrics_request(&c->server->metrics, "http", status, 0);
    log_debug("server", "refused: %d %s", status, reason);
    c->rest_unread = true;
    enter(c, CONN_FLUSH);
    if (str_ok(&text)) conn_write(c, text.data, text.len);
    str_deinit(&body);
    str_deinit(&text);
    if (evbuffer_get_length(bufferevent_get_output(c->bev)) == 0) begin_linger(c);
}

/* --- reading --- */

static void on_head(conn *c) {
    exchange *x = exchange_open(c->server, &c->sink, c->parser.request);
    if (!x) {
        refuse(c, 503, "out of memory");
        return;
    }
    c->x = x;
    c->first = false;
    bool body = c->parser.request->chunked || c->parser.request->content_length > 0;
    c->rest_unread = body;
    exchange_admit(x);
    if (c->x != x || !body) return; /* answered, or nothing to wait for */
    if (c->parser.request->expect_continue) {
        static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
        conn_write(c, go_on, sizeof go_on - 1);
    }
    enter(c, CONN_BODY);
}

static void on_complete(conn *c) {
    c->rest_unread = false;
    enter(c, CONN_ANSWER);
    c->x->http = http_parser_take(&c->parser);
    c->body_counted = 0; /* the exchange counts it from now on */
    exchange_start(c->x);
}

/* What arrives of an upload is the disk's; where that is slow the socket waits. */
static void take_upload(conn *c) {
    upload_take(c->x, &c->parser.request->body);
    c->held = upload_full(c->x);
    if (c->held) bufferevent_disable(c->bev, EV_READ);
}

static void resume(sink *k) {
    conn *c = (conn *)k;
    if (!c->held) return;
    c->held = false;
    bufferevent_enable(c->bev, EV_READ);
    if (!c->advancing) advance(c);
}

/* --- as the sink of its exchange --- */

static bool is_congested(const sink *k) { return conn_congested((const conn *)k); }
static bool is_answering(const sink *k) { return ((const conn *)k)->phase == CONN_ANSWER; }
static void give_up(sink *k) { conn_free((conn *)k); }

static const sink_kind kind = { answer_send, is_congested, is_answering, resume, answered, give_up };

/* --- HTTP/1 or HTTP/2 --- */

/* By what the TLS handshake agreed on, else by the first bytes. False: they do not say it yet. */
static bool choose(conn *c) {
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    char              begin[sizeof preface - 1];
    bool              second = false;
    ssize_t           n = evbuffer_copyout(bufferevent_get_input(c->bev), begin, sizeof begin);
    if (n <= 0) return true;
    if (c->is_tls) {
        const unsigned char *name = NULL;
        unsigned             len = 0;
        SSL_get0_alpn_selected(bufferevent_openssl_get_ssl(c->bev), &name, &len);
        second = len == 2 && memcmp(name, "h2", 2) == 0;
    } else if (memcmp(begin, preface, (size_t)n) == 0) {
        if ((size_t)n < sizeof begin) return false;
        second = true;
    }
    c->chosen = true;
    if (!second) return true;
    c->phase = CONN_H2;
    if (!h2_open(c)) c->dead = true;
    return true;
}

/* Takes what has arrived until a request is being answered or nothing is left. */
static void advance(conn *c) {
    struct evbuffer *in = bufferevent_get_input(c->bev);
    c->advancing = true;
    while (!c->dead && !c->held && (c->phase == CONN_IDLE || c->phase == CONN_HEAD || c->phase == CONN_BODY)) {
        struct evbuffer_iovec v = { 0 };
        size_t                used = 0;
        if (!c->chosen && !choose(c)) {
            if (c->phase == CONN_IDLE) enter(c, CONN_HEAD);
            break;
        }
        if (c->phase == CONN_H2) break;
        evbuffer_peek(in, -1, NULL, &v, 1);
        if (v.iov_len == 0) v.iov_base = "";
        if (c->phase == CONN_IDLE && v.iov_len) enter(c, CONN_HEAD);
        http_event ev = http_parser_feed(&c->parser, v.iov_base, v.iov_len, &used);
        evbuffer_drain(in, used);
        if (c->phase == CONN_BODY && c->parser.request && c->parser.request->no_limit) take_upload(c);
        if (c->parser.request) count_body(c, c->parser.request->body.len);
        if (ev == HTTP_MORE && v.iov_len == 0) break;
        if (ev == HTTP_ERROR)
            refuse(c, c->parser.status, c->parser.reason);
        else if (ev == HTTP_HEAD)
            on_head(c);
        else if (ev == HTTP_COMPLETE)
            on_complete(c);
        else if (c->server->body_bytes > c->server->options.total_body_bytes)
            refuse(c, 503, "too many large requests are being sent at once");
    }
    c->advancing = false;
    if (c->phase == CONN_FLUSH && evbuffer_get_length(bufferevent_get_output(c->bev)) == 0)
        flushed(c);
    else if (c->dead)
        conn_free(c);
    else if (c->phase == CONN_H2)
        h2_read(c);
}

static void on_read(struct bufferevent *bev, void *ctx) {
    conn            *c = ctx;
    struct evbuffer *in = bufferevent_get_input(bev);
    if (c->phase == CONN_FLUSH || c->phase == CONN_LINGER) {
        c->lingered += evbuffer_get_length(in);
        evbuffer_drain(in, evbuffer_get_length(in));
        if (c->lingered > LINGER_BYTES) conn_free(c);
    } else if (c->phase == CONN_ANSWER) {
        if (evbuffer_get_length(in) > PIPELINE_BYTES) conn_free(c);
    } else if (c->phase == CONN_H2) {
        h2_read(c);
    } else {
        advance(c);
    }
}

static void on_write(struct bufferevent *bev, void *ctx) {
    conn *c = ctx;
    if (c->phase == CONN_FLUSH && evbuffer_get_length(bufferevent_get_output(bev)) == 0)
        flushed(c);
    else if (c->phase == CONN_ANSWER && c->x)
        requests_resume(c->x);
    else if (c->phase == CONN_H2)
        h2_write(c);
}

static void on_event(struct bufferevent *bev, short what, void *ctx) {
    conn *c = ctx;
    (void)bev;
    if ((what & BEV_EVENT_EOF) && !(what & BEV_EVENT_ERROR) && c->phase == CONN_ANSWER && c->x &&
        (c->x->route->flags & ROUTE_STATS)) { /* asked, and will say no more: it is answered in a moment */
        c->x->core->close = true;
        return;
    }
    if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR | BEV_EVENT_TIMEOUT)) conn_free(ctx);
}

/* --- the life of a connection --- */

static struct bufferevent *open_bufferevent(server *s, int fd, bool is_tls) {
    if (!is_tls) return bufferevent_socket_new(s->base, fd, BEV_OPT_CLOSE_ON_FREE);
    SSL *ssl = SSL_new(s->tls);
    if (!ssl) return NULL;
    struct bufferevent *b =
        bufferevent_openssl_socket_new(s->base, fd, ssl, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE);
    if (b) bufferevent_openssl_set_allow_dirty_shutdown(b, 1);
    return b;
}

void conn_accept(server *s, int fd, const listener *l) {
    int   one = 1;
    conn *c = NULL;
    if (s->n_conns >= s->options.max_connections) {
        static const char full[] =
            "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        if (!l->is_tls) (void)!send(fd, full, sizeof full - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        close(fd);
        s->metrics.connections_refused++;
        return;
    }
    int held = SOCKET_BYTES;
    if (!l->is_unix) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &held, sizeof held);
    c = calloc(1, sizeof *c);
    if (!c) {
        close(fd);
        return;
    }
    c->server = s;
    c->sink = (sink){ &kind, l->is_unix, l->is_loopback };
    c->is_tls = l->is_tls;
    c->first = true;
    http_parser_init(&c->parser, s->limits);
    c->bev = open_bufferevent(s, fd, l->is_tls);
    c->timer = evtimer_new(s->base, on_timer, c);
    if (!c->bev || !c->timer) {
        if (!c->bev)
            close(fd);
        else
            bufferevent_free(c->bev);
        if (c->timer) event_free(c->timer);
        http_parser_deinit(&c->parser);
        free(c);
        return;
    }
    c->next = s->conns;
    if (c->next) c->next->prev = c;
    s->conns = c;
    s->n_conns++;
    bufferevent_setcb(c->bev, on_read, on_write, on_event, c);
    bufferevent_setwatermark(c->bev, EV_WRITE, OUTPUT_LOW, 0);
    evbuffer_add_cb(bufferevent_get_output(c->bev), on_drained, c);
    enter(c, CONN_IDLE);
    bufferevent_enable(c->bev, EV_READ | EV_WRITE);
}

void conn_free(conn *c) {
    server *s = c->server;
    if (c->advancing) { /* its loop frees it */
        c->dead = true;
        return;
    }
    if (c->x) {
        exchange *x = c->x;
        c->x = NULL;
        if (x->http == c->parser.request) x->http = NULL;
        exchange_detach(x);
    }
    h2_free(c);
    s->body_bytes -= c->body_counted;
    if (c->prev)
        c->prev->next = c->next;
    else
        s->conns = c->next;
    if (c->next) c->next->prev = c->prev;
    s->n_conns--;
    if (s->draining && s->n_conns == 0) server_signal(s, SERVER_DRAIN); /* the loop looks if all is over */
    event_free(c->timer);
    bufferevent_free(c->bev);
    http_parser_deinit(&c->parser);
    free(c);
}

void conn_close_idle(server *s) {
    for (conn *c = s->conns, *next; c; c = next) {
        next = c->next;
        if (c->phase == CONN_IDLE)
            conn_free(c);
        else if (c->phase == CONN_H2)
            h2_drain(c);
    }
}
