/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One HTTP request and its answer: all that a protocol adapter sees of the server. What it asks of a model is a request
 * each, of which an exchange may have many.
 *
 * How an adapter is written
 *
 * 1. An `api` says how this protocol writes errors. A row in route.c binds METHOD and path to a handler.
 *
 * 2. The handler runs on an intake thread, never on the I/O thread. With ROUTE_BODY the body was parsed: x->body is its
 *    root, x->in its reader. The handler reads fields (json_in.h), then ends with exactly one of
 *
 *        exchange_reply(x, 200, "application/json", &text)      a complete answer
 *        exchange_error(x, 400, "code", "param", "sentence")    in the api's own shape
 *        exchange_reject(x)                                     the mistake that x->in holds
 *        exchange_run(x, &work)                                 inference: requests for a model, callbacks for their
 *                                                               events
 *        exchange_feed(x, type)                                 another thread writes the answer (http/feed.h)
 *
 *    exchange_run submits right there, so x->state must be complete before; if the requests cannot be submitted it
 *    answers with an error.
 *
 *    Memory with the exchange's lifetime comes from x->arena. Blocking functions of host.h need ROUTE_SLOW.
 *
 * 3. Callbacks of a work run on the I/O thread, in order, after the handler has returned, and must be quick. An
 *    event is read from the worker's bytes right before its callback and is gone behind it. They use x->state, and
 *
 *        exchange_put(x, bytes, n)         appends to a stream (work.stream_type set); everything that was put during
 *                                          one wake-up goes out in one write
 *        exchange_reply, exchange_error    as above, if nothing was put yet
 *
 *    The stream begins with the first STARTED event: until then an error still is an HTTP status. on_over ends the
 *    answer: a stream must have put its closing lines, a plain answer must have called exchange_reply. A failed request
 *    never reaches on_over: the core answers it with api->put_error, or api->put_stream_error inside a stream.
 *
 * 4. Sockets, chunks, back-pressure, disconnects (work is cancelled, no further callback comes), heartbeats, rate
 *    limits, metrics and logs are the core's. collect.h gathers events for answers that are sent in one piece.
 */
#ifndef SERVER_EXCHANGE_H
#define SERVER_EXCHANGE_H

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"
#include "host/host.h"
#include "server/http/json_in.h"
#include "server/http/parser.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct exchange exchange;
typedef struct server   server;

typedef struct failure {
    int  status;
    char code[48];   /* "model_not_found", "invalid_value", ...; may be empty */
    char param[160]; /* path of the field at fault; may be empty */
    char message[640];
} failure;

typedef struct api {
    const char *name;                              /* in metrics and logs */
    void (*put_error)(str *out, const failure *f); /* a JSON body */
    /* Inside a stream, with the body that put_error wrote; NULL: the stream just ends. */
    void (*put_stream_error)(exchange *x, const failure *f, const str *body);
    void (*heartbeat)(exchange *x); /* puts a comment; NULL: none */
    const char *id_header;          /* X-Request-Id as its clients call it; NULL: so */
    /* Of a protocol whose bodies and answers are not JSON. */
    bool (*read_body)(exchange *x); /* fills x->doc; false: answered. NULL: the body is JSON */
    int (*put_reply)(exchange *x, int status, const char *type,
                     str *body);                       /* makes its own of a good answer; its status */
    void (*put_trailers)(const exchange *x, str *out); /* lines "name: value\r\n": how it went */
} api;

enum {
    ROUTE_BODY = 1,        /* has a JSON body */
    ROUTE_SLOW = 2,        /* may wait for a model: has threads of its own */
    ROUTE_INLINE = 4,      /* runs on the I/O thread: must not wait */
    ROUTE_OPEN = 8,        /* needs no key unless the server is told so */
    ROUTE_RAW = 16,        /* a body that the handler reads itself (may be empty) */
    ROUTE_STATS = 32,      /* with ROUTE_INLINE: x->stats was filled before, on a thread that may wait for workers */
    ROUTE_UPLOAD = 64,     /* the body goes to disk while it arrives, whatever its size (upload.h) */
    ROUTE_NAMES = 128,     /* names in the body need not be of models that are here */
    ROUTE_UNCOUNTED = 256, /* reads the metrics: an answer is not counted in them */
    ROUTE_QUIET = 1024,    /* an answer without an error is not logged */
    ROUTE_PIECES = 2048,   /* gRPC: the handler is called on the I/O thread whenever more of the body has come */
    ROUTE_PUBLIC = 512,    /* never needs a key: says nothing about models or requests */
};

typedef struct route {
    const char *method;
    const char *path; /* may hold one "{name}": any text, slashes too; it becomes x->tail */
    const api  *api;
    void (*handle)(exchange *x);
    unsigned flags;
} route;

extern const route server_routes[]; /* ends with a NULL method */
const route       *route_find(view method, view path, view *tail, bool *path_known);
void               route_allow(view path, str *out); /* "GET, HEAD": the methods of a path */
const api         *route_api(view path);             /* whose errors a path has that is not a route */

typedef struct exchange_work {
    view             model;
    int64_t          keep_alive_ms; /* HOST_KEEP_DEFAULT, ... */
    runtime_request *requests;      /* in the arena; their own callbacks are not used */
    size_t           n_requests;
    const char      *stream_type; /* a content type, or NULL: one answer at the end */
    void (*on_event)(exchange *x, size_t request, const runtime_event *ev); /* never ERROR */
    void (*on_over)(exchange *x);
    void (*on_reply)(exchange *x); /* instead of on_over where there is no stream; NULL: on_over does both */
} exchange_work;

typedef struct exchange_core exchange_core; /* the server's own side of it */

struct exchange {
    server       *server;
    host         *host;
    const route  *route;
    http_request *http;
    view          tail; /* what {name} stood for */
    arena         arena;
    json_doc      doc;
    node          body; /* with ROUTE_BODY */
    reader        in;
    void         *state; /* the adapter's */
    void (*state_free)(void *state);
    const host_stats *stats;   /* with ROUTE_STATS */
    char              id[32];  /* "req-..." */
    int64_t           created; /* seconds since 1970 */
    exchange_core    *core;
};

void exchange_reply(exchange *x, int status, const char *type, str *body); /* takes the body's memory */
void exchange_error(exchange *x, int status, const char *code, const char *param, const char *fmt, ...)
    BASE_PRINTF(5, 6);
void exchange_error_from(exchange *x, const err *e); /* status by the code: error_table.h */
void exchange_error_nomem(exchange *x);
void exchange_reject(exchange *x); /* 400 with what x->in found */
void exchange_header(exchange *x, const char *name, const char *fmt, ...)
    BASE_PRINTF(3, 4); /* before the answer begins */
/* What the client asked for is a hint, or a service of a hosted provider, and changes nothing here: the answer names it
 * in X-Hearth-Ignored, the log once. Whatever would change an answer is honoured or refused instead. */
void exchange_ignore(exchange *x, view name);
/* The same for those of these members of the body that are there. The list ends with NULL. */
void exchange_ignore_members(exchange *x, const char *const *names);
void exchange_run(exchange *x, const exchange_work *w);
/* One request whose answer comes as server-sent events or in one piece; `callbacks` of a work are all that is set. */
void exchange_run_one(exchange *x, view model, runtime_request *q, bool stream, const exchange_work *callbacks);
void exchange_put(exchange *x, const void *data, size_t bytes);

/* n requests of the exchange's client in its arena, with nothing set. NULL after answering with an error. */
runtime_request *exchange_requests(exchange *x, size_t n);
char *exchange_copy(exchange *x, const str *text, view *out); /* into the arena; NULL: out of memory (answered) */

#endif
