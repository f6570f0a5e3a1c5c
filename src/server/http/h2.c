/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections of HTTP/2: nghttp2 reads and writes the frames, a stream is the sink of one exchange.
 *
 * A head is written down as HTTP/1 has it and goes through the same parser (parser.h), so that a target, a Host and a
 * length are judged in one place. A body is kept with its request; its limit holds because the windows are opened by
 * hand, behind the check. What an exchange sends waits in its stream until nghttp2 has window for it: a stream whose
 * client does not read pauses its own requests and nobody else's, and is reset when it does not move for
 * stall_seconds.
 *
 * nghttp2 is asked for bytes only outside of its own callbacks: an answer asks for a turn (`turn`), which comes behind
 * everything that the loop is about to do. So the tokens of all streams of a step leave in one write.
 *
 * Streams are freed when nghttp2 closes them, which happens while it reads or writes, and with the connection.
 */
#include "base/clock.h"
#include "base/log.h"
#include "server/http/upload.h"
#include "server/internal.h"

#include <event2/buffer.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    MAX_STREAMS = 128,            /* of one connection */
    STREAM_WINDOW = 256 << 10,    /* of a body that may be on its way */
    CONN_WINDOW = 1 << 20,        /* of all bodies of a connection */
    BATCH_BYTES = 64 << 10,       /* of frames that leave in one write */
    MAX_FIELDS = 64,              /* of an answer's head */
    RESETS_BURST = 200,           /* streams that a client may reset at once, */
    RESETS_PER_S = 33,            /* and then every second */
    CALM_BURST = 200,             /* the same of frames that ask for nothing */
    CALM_PER_S = 20,              /* */
    MAX_CONTINUATIONS = 8,        /* frames of one head */
    BODY_BYTES_PER_S = 16 * 1024, /* a slow link's speed */
};

typedef struct stream stream;
struct stream {
    sink          sink;
    conn         *conn;
    stream       *prev, *next;
    int32_t       id;
    exchange     *x;                            /* NULL: answered, or not begun */
    http_request *http;                         /* until its body is complete */
    str           method, target, host, fields; /* of the head while it arrives */
    bool          is_rpc;
    bool          complete;                    /* the request */
    size_t        body_counted, held;          /* held: bytes that wait for an upload's disk, not given back yet */
    int64_t       begin_us, moved_us, sent_us; /* moved: when output was taken, or there was none */
    str           out;                         /* what nghttp2 has not taken: from `at` on */
    size_t        at;
    bool          over; /* nothing follows in out */
    str           trailers;
};

struct h2 {
    nghttp2_session *session;
    struct event    *turn;
    stream          *streams;
    int              n_streams;
    str              batch;
    double           calm; /* frames that may still come without asking for anything */
    int64_t          calm_us, idle_us;
    int              draining; /* 1: told, 2: no further stream is taken */
};

static const sink_kind kind;

static void turn(conn *c);

/* --- the life of a stream --- */

static stream *stream_of(const conn *c, int32_t id) { return nghttp2_session_get_stream_user_data(c->h2->session, id); }

static stream *stream_open(conn *c, int32_t id) {
    struct h2 *h = c->h2;
    stream    *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->sink = (sink){ &kind, c->sink.is_unix, c->sink.is_loopback };
    s->conn = c;
    s->id = id;
    s->begin_us = s->moved_us = s->sent_us = clock_us();
    s->next = h->streams;
    if (s->next) s->next->prev = s;
    h->streams = s;
    h->n_streams++;
    c->server->n_streams++;
    return s;
}

static void count_body(stream *s, size_t bytes) {
    s->conn->server->body_bytes += bytes - s->body_counted;
    s->body_counted = bytes;
}

/* The exchange ends without an answer: the client has gone, or it is given up. */
static void let_go(stream *s) {
    exchange *x = s->x;
    if (!x) return;
    s->x = NULL;
    if (x->http == s->http) x->http = NULL;
    exchange_detach(x);
}

static void stream_free(stream *s) {
    struct h2 *h = s->conn->h2;
    let_go(s);
    count_body(s, 0);
    http_request_free(s->http);
    if (s->prev)
        s->prev->next = s->next;
    else
        h->streams = s->next;
    if (s->next) s->next->prev = s->prev;
    h->n_streams--;
    s->conn->server->n_streams--;
    h->idle_us = clock_us();
    str_deinit(&s->method);
    str_deinit(&s->target);
    str_deinit(&s->host);
    str_deinit(&s->fields);
    str_deinit(&s->out);
    str_deinit(&s->trailers);
    free(s);
}

/* --- as the sink of its exchange --- */

static size_t waiting(const stream *s) { return s->out.len - s->at; }

static void ask_turn(conn *c) { event_active(c->h2->turn, EV_TIMEOUT, 0); }

static nghttp2_nv field(const char *name, size_t n_name, const char *value, size_t n_value) {
    return (nghttp2_nv){ (uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, n_name, n_value,
                         NGHTTP2_NV_FLAG_NONE };
}

/* Lines "Name: value\r\n" as fields, whose names become lower case. */
static size_t cut_lines(str *lines, nghttp2_nv *out, size_t n) {
    char *p = lines->data, *end = p ? p + lines->len : p;
    while (p < end && n < MAX_FIELDS) {
        char *colon = memchr(p, ':', (size_t)(end - p)), *stop = memchr(p, '\r', (size_t)(end - p));
        if (!colon || !stop || colon > stop) break;
        for (char *q = p; q < colon; q++) {
            if (*q >= 'A' && *q <= 'Z') *q = (char)(*q + 32);
        }
        char *value = colon + 1;
        while (value < stop && *value == ' ') value++;
        out[n++] = field(p, (size_t)(colon - p), value, (size_t)(stop - value));
        p = stop + 2;
    }
    return n;
}

/* Gives what waits to nghttp2, as far as the windows let it. */
static ssize_t read_out(nghttp2_session *session, int32_t id, uint8_t *to, size_t room, uint32_t *flags,
                        nghttp2_data_source *source, void *user) {
    stream *s = source->ptr;
    size_t  n = waiting(s) < room ? waiting(s) : room;
    (void)user;
    if (n == 0 && !s->over) return NGHTTP2_ERR_DEFERRED;
    if (n) memcpy(to, s->out.data + s->at, n);
    s->at += n;
    s->moved_us = clock_us();
    if (waiting(s) == 0) {
        str_clear(&s->out);
        s->at = 0;
    }
    if (waiting(s) || !s->over) return (ssize_t)n;
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (s->trailers.len) {
        nghttp2_nv list[MAX_FIELDS];
        size_t     n_list = cut_lines(&s->trailers, list, 0);
        *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
        if (nghttp2_submit_trailer(session, id, list, n_list) != 0) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    return (ssize_t)n;
}

/* alone: nothing follows the head but what it holds itself. */
static bool send_head(stream *s, const exchange *x, bool alone) {
    const exchange_core  *c = x->core;
    nghttp2_data_provider from = { .source.ptr = s, .read_callback = read_out };
    nghttp2_nv            list[MAX_FIELDS];
    char                  status[16], length[24];
    size_t                n = 0;
    str                   lines;
    bool                  bare = c->status == 204 || c->status == 304;
    const char           *type = c->is_rpc ? "application/grpc" : c->type;
    snprintf(status, sizeof status, "%d", c->is_rpc ? 200 : c->status);
    snprintf(length, sizeof length, "%zu", c->out.len);
    list[n++] = field(":status", 7, status, strlen(status));
    if (!bare) list[n++] = field("content-type", 12, type, strlen(type));
    if (!c->streaming && !bare && !c->is_rpc) list[n++] = field("content-length", 14, length, strlen(length));
    if (c->streaming && !c->is_rpc) list[n++] = field("cache-control", 13, "no-cache", 8);
    str_init(&lines);
    answer_put_fields(x, &lines);
    if (alone) str_append(&lines, str_cstr(&s->trailers), s->trailers.len);
    bool ok = str_ok(&lines);
    n = cut_lines(&lines, list, n);
    ok = ok && nghttp2_submit_response(s->conn->h2->session, s->id, list, n, alone ? NULL : &from) == 0;
    str_deinit(&lines);
    return ok;
}

static bool send_answer(sink *k, exchange *x, bool last) {
    stream        *s = (stream *)k;
    exchange_core *c = x->core;
    if (waiting(s) == 0) s->moved_us = clock_us();
    s->sent_us = clock_us();
    if (!c->head_only) str_append(&s->out, c->out.data, c->out.len);
    if (last && c->is_rpc) x->route->api->put_trailers(x, &s->trailers);
    if (!str_ok(&c->out) || !str_ok(&s->out) || !str_ok(&s->trailers)) return false;
    s->over = last;
    if (!c->head_sent && !send_head(s, x, last && waiting(s) == 0)) return false;
    if (c->head_sent) nghttp2_session_resume_data(s->conn->h2->session, s->id); /* says so if it was not deferred */
    ask_turn(s->conn);
    return true;
}

static bool is_congested(const sink *k) { return waiting((const stream *)k) > OUTPUT_HIGH; }
static bool is_answering(const sink *k) { return ((const stream *)k)->complete; }

static void resume(sink *k) {
    stream *s = (stream *)k;
    if (s->held) nghttp2_session_consume_stream(s->conn->h2->session, s->id, s->held);
    s->held = 0;
    ask_turn(s->conn);
}

static void answered(sink *k, exchange *x) {
    stream *s = (stream *)k;
    if (x->http == s->http) x->http = NULL;
    s->x = NULL;
}

static void give_up(sink *k) {
    stream *s = (stream *)k;
    nghttp2_submit_rst_stream(s->conn->h2->session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_CANCEL);
    let_go(s);
    ask_turn(s->conn);
}

static const sink_kind kind = { send_answer, is_congested, is_answering, resume, answered, give_up };

/* --- a request --- */

/* "application/grpc", with "+proto" or parameters behind it. */
static bool names_rpc(view type) {
    static const char name[] = "application/grpc";
    size_t            n = sizeof name - 1;
    return type.len >= n && strncasecmp(type.data, name, n) == 0 &&
           (type.len == n || type.data[n] == '+' || type.data[n] == ';' || type.data[n] == ' ');
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user) {
    conn   *c = user;
    server *v = c->server;
    stream *s = NULL;
    int32_t id = frame->hd.stream_id;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    if (v->n_conns + v->n_streams < v->options.max_connections) s = stream_open(c, id);
    if (s)
        nghttp2_session_set_stream_user_data(session, id, s);
    else
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id, NGHTTP2_REFUSED_STREAM);
    return 0;
}

/* What is too long is cut off one byte behind the limit: the parser refuses it. */
static void keep(const stream *s, str *to, const uint8_t *text, size_t n) {
    size_t room = s->conn->server->limits.head_bytes + 1;
    room = to->len < room ? room - to->len : 0;
    str_append(to, text, n < room ? n : room);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t n_name,
                     const uint8_t *value, size_t n_value, uint8_t flags, void *user) {
    conn   *c = user;
    stream *s = stream_of(c, frame->hd.stream_id);
    view    key = { (const char *)name, n_name }, text = { (const char *)value, n_value };
    (void)session;
    (void)flags;
    if (!s || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    if (memchr(value, '\r', n_value) || memchr(value, '\n', n_value) || memchr(value, '\0', n_value))
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* nghttp2 lets none through */
    if (view_eq_c(key, ":method")) {
        keep(s, &s->method, value, n_value);
    } else if (view_eq_c(key, ":path")) {
        keep(s, &s->target, value, n_value);
    } else if (view_eq_c(key, ":authority") || view_eq_c(key, "host")) {
        bool other = s->host.len && !view_eq((view){ s->host.data, s->host.len }, text);
        if (other) keep(s, &s->fields, (const uint8_t *)"host: \r\n", 8); /* two hosts: the parser refuses them */
        if (!s->host.len) keep(s, &s->host, value, n_value);
    } else if (n_name && name[0] != ':') {
        if (view_eq_c(key, "content-type")) s->is_rpc = names_rpc(text);
        keep(s, &s->fields, name, n_name);
        keep(s, &s->fields, (const uint8_t *)": ", 2);
        keep(s, &s->fields, value, n_value);
        keep(s, &s->fields, (const uint8_t *)"\r\n", 2);
    }
    return 0;
}

/* The head as HTTP/1 has it. A client of a Unix socket names whatever it likes as its host. */
static void write_head(const stream *s, str *out) {
    str_append(out, str_cstr(&s->method), s->method.len);
    str_push(out, ' ');
    str_append(out, str_cstr(&s->target), s->target.len);
    str_puts(out, " HTTP/1.1\r\nhost: ");
    if (s->sink.is_unix || !s->host.len)
        str_puts(out, s->sink.is_unix ? "localhost" : "");
    else
        str_append(out, s->host.data, s->host.len);
    str_puts(out, "\r\n");
    str_append(out, str_cstr(&s->fields), s->fields.len);
    str_puts(out, "\r\n");
}

static http_request *read_head(const stream *s, int *status, const char **reason) {
    http_parser   p;
    http_request *r = NULL;
    str           head;
    size_t        used = 0;
    str_init(&head);
    write_head(s, &head);
    http_parser_init(&p, s->conn->server->limits);
    bool       ok = str_ok(&s->method) && str_ok(&s->target) && str_ok(&s->host) && str_ok(&s->fields) && str_ok(&head);
    http_event ev = ok ? http_parser_feed(&p, head.data, head.len, &used) : HTTP_ERROR;
    *status = !ok ? 503 : ev == HTTP_ERROR ? p.status : 431;
    *reason = !ok ? "out of memory" : ev == HTTP_ERROR ? p.reason : "the head is too large";
    if (ev == HTTP_HEAD) {
        r = p.request;
        p.request = NULL;
    }
    http_parser_deinit(&p);
    str_deinit(&head);
    return r;
}

static void complete(stream *s) {
    exchange *x = s->x;
    s->complete = true;
    if (!x) return;
    s->http = NULL;
    s->body_counted = 0; /* the exchange counts it from now on */
    s->moved_us = s->sent_us = clock_us();
    if (x->route->flags & ROUTE_PIECES)
        exchange_piece(x, true);
    else
        exchange_start(x);
}

static void on_head(stream *s, bool last) {
    const char *reason;
    int         status;
    s->http = read_head(s, &status, &reason);
    exchange *x = exchange_open(s->conn->server, &s->sink, s->http);
    if (!x) {
        give_up(&s->sink);
        return;
    }
    s->x = x;
    x->core->is_rpc = s->is_rpc;
    str_deinit(&s->fields);
    if (!s->http) {
        exchange_refuse(x, status, reason);
        return;
    }
    bool waits = s->http->expect_continue;
    s->http->chunked = !last && s->http->content_length == 0;
    exchange_admit(x);
    if (waits && s->x == x && !x->core->replied) { /* else it was answered, and may be gone */
        nghttp2_nv go_on = field(":status", 7, "100", 3);
        nghttp2_submit_headers(s->conn->h2->session, NGHTTP2_FLAG_NONE, s->id, NULL, &go_on, 1, NULL);
    }
    if (last) complete(s);
}

static void refuse_body(stream *s, int status, const char *reason) {
    exchange_refuse(s->x, status, reason); /* lets go of the request */
    count_body(s, 0);
    http_request_free(s->http);
    s->http = NULL;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data, size_t n, void *user) {
    conn   *c = user;
    stream *s = stream_of(c, id);
    (void)flags;
    if (!s || !s->x || !s->http ||
        s->x->core->replied) { /* nobody reads it; the answer is on its way, or waits for it */
        nghttp2_session_consume(session, id, n);
        return 0;
    }
    str *body = &s->http->body;
    str_append(body, data, n);
    nghttp2_session_consume_connection(session, n);
    if (!str_ok(body)) {
        refuse_body(s, 503, "out of memory");
        return 0;
    }
    if (s->http->no_limit) {
        upload_take(s->x, body);
        s->held += n;
        if (upload_full(s->x)) return 0; /* where the disk is slow the client waits */
        n = s->held;
        s->held = 0;
    }
    if (s->x->route->flags & ROUTE_PIECES) exchange_piece(s->x, false);
    if (!s->x) return 0;
    count_body(s, body->len);
    if (body->len > c->server->limits.body_bytes)
        refuse_body(s, 413, "the body is too large");
    else if (c->server->body_bytes > c->server->options.total_body_bytes)
        refuse_body(s, 503, "too many large requests are being sent at once");
    if (s->x) nghttp2_session_consume_stream(session, id, n);
    return 0;
}

/* Frames that cost us something and ask for nothing. */
static void keep_calm(conn *c) {
    struct h2 *h = c->h2;
    int64_t    now = clock_us();
    h->calm += (double)(now - h->calm_us) / 1e6 * CALM_PER_S;
    if (h->calm > CALM_BURST) h->calm = CALM_BURST;
    h->calm_us = now;
    if ((h->calm -= 1) < 0) nghttp2_session_terminate_session(h->session, NGHTTP2_ENHANCE_YOUR_CALM);
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user) {
    conn   *c = user;
    stream *s = stream_of(c, frame->hd.stream_id);
    bool    last = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    (void)session;
    switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
        if (s && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
            on_head(s, last);
        else if (s && last)
            complete(s);
        break;
    case NGHTTP2_DATA:
        if (s && last) complete(s);
        if (!last && frame->hd.length == 0) keep_calm(c);
        break;
    case NGHTTP2_PING:
    case NGHTTP2_SETTINGS:
    case NGHTTP2_PRIORITY:
        if (!(frame->hd.flags & NGHTTP2_FLAG_ACK)) keep_calm(c);
        break;
    default: break;
    }
    return 0;
}

/* The whole answer has left before the whole request came: nobody wants the rest. */
static int on_sent(nghttp2_session *session, const nghttp2_frame *frame, void *user) {
    conn   *c = user;
    stream *s = stream_of(c, frame->hd.stream_id);
    bool    data = frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA;
    if (data && s && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) && !s->complete)
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_NO_ERROR);
    return 0;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t code, void *user) {
    conn   *c = user;
    stream *s = stream_of(c, id);
    (void)session;
    (void)code;
    if (s) stream_free(s);
    return 0;
}

/* --- the connection --- */

static bool open_session(conn *c) {
    struct h2                 *h = c->h2;
    nghttp2_session_callbacks *calls = NULL;
    nghttp2_option            *o = NULL;
    nghttp2_settings_entry     list[] = {
            { NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, MAX_STREAMS },
            { NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW },
            { NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, (uint32_t)c->server->limits.head_bytes },
    };
    bool ok = nghttp2_session_callbacks_new(&calls) == 0 && nghttp2_option_new(&o) == 0;
    if (ok) {
        nghttp2_session_callbacks_set_on_begin_headers_callback(calls, on_begin_headers);
        nghttp2_session_callbacks_set_on_header_callback(calls, on_header);
        nghttp2_session_callbacks_set_on_data_chunk_recv_callback(calls, on_data);
        nghttp2_session_callbacks_set_on_frame_recv_callback(calls, on_frame);
        nghttp2_session_callbacks_set_on_frame_send_callback(calls, on_sent);
        nghttp2_session_callbacks_set_on_stream_close_callback(calls, on_close);
        nghttp2_option_set_no_auto_window_update(o, 1);
        nghttp2_option_set_stream_reset_rate_limit(o, RESETS_BURST, RESETS_PER_S);
        nghttp2_option_set_max_continuations(o, MAX_CONTINUATIONS);
        ok = nghttp2_session_server_new2(&h->session, calls, c, o) == 0;
    }
    nghttp2_session_callbacks_del(calls);
    nghttp2_option_del(o);
    return ok && nghttp2_submit_settings(h->session, NGHTTP2_FLAG_NONE, list, sizeof list / sizeof list[0]) == 0 &&
           nghttp2_session_set_local_window_size(h->session, NGHTTP2_FLAG_NONE, 0, CONN_WINDOW) == 0;
}

static void on_turn(evutil_socket_t fd, short what, void *ctx) {
    conn *c = ctx;
    (void)fd;
    (void)what;
    if (c->phase == CONN_H2) turn(c);
}

static void arm(conn *c) {
    const server_options *o = &c->server->options;
    double                soon = o->stall_seconds / 4 < 1 ? o->stall_seconds / 4 : 1;
    conn_arm(c, c->h2->n_streams || c->h2->draining ? soon : o->idle_seconds);
}

bool h2_open(conn *c) {
    struct h2 *h = c->h2 = calloc(1, sizeof *h);
    if (!h) return false;
    h->calm = CALM_BURST;
    h->calm_us = h->idle_us = clock_us();
    h->turn = event_new(c->server->base, -1, 0, on_turn, c);
    if (!h->turn || !open_session(c)) return false;
    arm(c);
    if (c->server->draining) h2_drain(c);
    return true;
}

void h2_free(conn *c) {
    struct h2 *h = c->h2;
    if (!h) return;
    for (stream *s = h->streams, *next; s; s = next) {
        next = s->next;
        stream_free(s);
    }
    nghttp2_session_del(h->session);
    if (h->turn) event_free(h->turn);
    str_deinit(&h->batch);
    free(h);
    c->h2 = NULL;
}

static void write_batch(conn *c) {
    struct h2   *h = c->h2;
    struct iovec part = { h->batch.data, h->batch.len };
    if (!str_ok(&h->batch)) c->dead = true;
    if (h->batch.len && !c->dead) conn_write_parts(c, &part, 1);
    str_clear(&h->batch);
}

/* What nghttp2 has to say, as far as the socket takes it. */
static void write_frames(conn *c) {
    struct h2     *h = c->h2;
    const uint8_t *frame;
    ssize_t        n = 0;
    while (!c->dead && !conn_congested(c) && (n = nghttp2_session_mem_send(h->session, &frame)) > 0) {
        str_append(&h->batch, frame, (size_t)n);
        if (h->batch.len >= BATCH_BYTES) write_batch(c);
    }
    if (n < 0) c->dead = true;
    write_batch(c);
}

/* Streams that were full and are no longer. */
static void resume_streams(conn *c) {
    for (stream *s = c->h2->streams; s; s = s->next) {
        if (s->x && s->x->core->paused && waiting(s) <= OUTPUT_LOW) requests_resume(s->x);
    }
}

static void turn(conn *c) {
    struct h2 *h = c->h2;
    bool       busy = h->n_streams > 0;
    if (c->advancing) return;
    c->advancing = true; /* who frees it now only marks it */
    write_frames(c);
    if (!c->dead) resume_streams(c);
    c->advancing = false;
    if (c->dead) {
        conn_free(c);
        return;
    }
    if (h->draining && !h->n_streams && h->draining < 3) {
        h->draining = 3;
        nghttp2_session_terminate_session(h->session, NGHTTP2_NO_ERROR);
        ask_turn(c);
        return;
    }
    if (!nghttp2_session_want_read(h->session) && !nghttp2_session_want_write(h->session)) {
        for (stream *s = h->streams; s; s = s->next) let_go(s);
        conn_shut(c);
        return;
    }
    if (busy != (h->n_streams > 0)) arm(c);
}

void h2_read(conn *c) {
    struct evbuffer *in = bufferevent_get_input(c->bev);
    bool             busy = c->h2->n_streams > 0;
    c->advancing = true;
    while (!c->dead && evbuffer_get_length(in)) {
        struct evbuffer_iovec v = { 0 };
        evbuffer_peek(in, -1, NULL, &v, 1);
        ssize_t n = nghttp2_session_mem_recv(c->h2->session, v.iov_base, v.iov_len);
        if (n < 0) {
            log_debug("server", "HTTP/2: %s", nghttp2_strerror((int)n));
            c->dead = true;
        } else {
            evbuffer_drain(in, (size_t)n);
        }
    }
    c->advancing = false;
    if (!busy && c->h2->n_streams) arm(c);
    turn(c);
}

void h2_write(conn *c) { turn(c); }

/* --- time --- */

static bool late(int64_t since_us, double seconds) { return (double)(clock_us() - since_us) / 1e6 >= seconds; }

static void stream_tick(stream *s) {
    const server_options *o = &s->conn->server->options;
    if (waiting(s) && late(s->moved_us, o->stall_seconds * 0.99)) {
        log_info("server", "a stream whose client did not read it was reset");
        give_up(&s->sink);
        return;
    }
    if (!s->x) return;
    uint64_t bytes = !s->http ? 0 : s->http->no_limit ? upload_received(s->x) : s->http->body.len;
    if (!s->complete && s->http && !s->held && !(s->x->route->flags & ROUTE_PIECES) &&
        late(s->begin_us, o->body_seconds + (double)bytes / BODY_BYTES_PER_S))
        refuse_body(s, 408, "the body did not arrive in time");
    else if (s->complete && late(s->sent_us, o->heartbeat_seconds * 0.9))
        exchange_beat(s->x);
}

void h2_tick(conn *c) {
    struct h2 *h = c->h2;
    if (conn_stalled(c)) {
        log_info("server", "a client that did not read its answers was disconnected");
        conn_free(c);
        return;
    }
    for (stream *s = h->streams; s; s = s->next) stream_tick(s);
    if (h->draining == 1) { /* what was on its way when it was told has come by now */
        h->draining = 2;
        nghttp2_submit_goaway(h->session, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(h->session),
                              NGHTTP2_NO_ERROR, NULL, 0);
    }
    /* Nothing was said for a while, and a stream waits: what lies between must not think that nobody is there. */
    if (h->n_streams && late(c->sent_us, c->server->options.heartbeat_seconds * 0.9))
        nghttp2_submit_ping(h->session, NGHTTP2_FLAG_NONE, NULL);
    if (!h->n_streams && !h->draining && late(h->idle_us, c->server->options.idle_seconds * 0.99)) h2_drain(c);
    arm(c);
    turn(c);
}

void h2_drain(conn *c) {
    struct h2 *h = c->h2;
    if (h->draining) return;
    h->draining = 1;
    if (h->n_streams) nghttp2_submit_shutdown_notice(h->session);
    arm(c);
    ask_turn(c);
}
