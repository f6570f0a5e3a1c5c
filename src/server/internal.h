/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's insides: connections, exchanges, requests. An exchange is an HTTP request with its answer; a request is
 * one for inference, of which an exchange may have many. Everything belongs to the I/O thread except what a comment
 * gives to another one.
 */
#ifndef SERVER_INTERNAL_H
#define SERVER_INTERNAL_H

#include "base/queue.h"
#include "server/exchange.h"
#include "server/ops/metrics.h"
#include "server/server.h"

#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/uio.h>
#include <time.h>

enum {
    OUTPUT_HIGH = 32 * 1024,    /* bytes queued on a socket above which its requests are paused */
    OUTPUT_LOW = 8 * 1024,      /* and at which they go on */
    SOCKET_BYTES = 128 * 1024,  /* of answers that the system holds per connection before a client counts as slow */
    PIPELINE_BYTES = 64 * 1024, /* of further requests while one is answered */
    MAX_LISTENERS = 8,
    REQUESTS_IN_FLIGHT = 16, /* of one exchange */
    INTAKE_THREADS = 2,
    SLOW_THREADS = 2,
    INTAKE_WAITING = 4096,
};

typedef struct conn conn;

/* Where an answer goes: a connection of HTTP/1 (http/conn.c), or a stream of one of HTTP/2 (http/h2.c). It is the first
 * member of either. */
typedef struct sink sink;

typedef struct sink_kind {
    /* The head if it was not sent yet, then what the exchange has put, with `last` also the end. False: out of memory. */
    bool (*send)(sink *k, exchange *x, bool last);
    bool (*congested)(const sink *k); /* the client reads more slowly than it is answered */
    bool (*answering)(const sink *k); /* the request is complete */
    void (*resume)(sink *k);          /* an upload has room again */
    void (*answered)(sink *k, exchange *x);
    void (*give_up)(sink *k); /* ends it at once; detaches its exchange */
} sink_kind;

struct sink {
    const sink_kind *kind;
    bool             is_unix, is_loopback;
};

/* What another thread hands to the I/O thread. */
typedef struct post post;
struct post {
    post *next;
    void (*take)(post *p); /* on the I/O thread */
};

typedef struct listener {
    struct evconnlistener *ev;
    bool                   is_unix, is_tls, is_loopback;
    server                *server;
} listener;

struct server {
    server_options options;
    http_limits    limits;
    auth          *keys;
    struct kept   *kept; /* of the responses endpoint */
    metrics        metrics;
    int64_t        started_us;

    struct event_base *base;
    listener           listeners[MAX_LISTENERS];
    size_t             n_listeners;
    struct ssl_ctx_st *tls;
    int                port;
    char              *socket_path;
    uint64_t           socket_dev, socket_ino; /* of the socket we made: only that one is removed */

    conn     *conns;
    int       n_conns, n_streams; /* of all connections of HTTP/2 */
    exchange *exchanges;          /* all that are not freed, newest first */
    int       n_exchanges;
    size_t    body_bytes; /* buffered, of all connections and exchanges */
    uint64_t  next_number;
    uint64_t  id_salt;

    int           wake_fd;
    struct event *wake_event, *drain_timer, *retry_timer, *tick_timer;
    atomic_int    asked; /* bits 1 << SERVER_DRAIN, ... from signal handlers and other threads */
    void (*told)(void *ctx, int what);
    void *told_ctx;
    void (*tick)(void);
    const struct config_values *latest;        /* the I/O thread's; NULL: the options' settings still stand */
    pthread_mutex_t             settings_lock; /* guards the file of settings: it is read, changed and written */
    bool                        draining, cutting;
    bool                        stopped;   /* the loop is over, and the host may be gone */
    arena                       event_mem; /* of the event at hand */

    pthread_mutex_t post_lock; /* guards the posts */
    post           *posts, **posts_end;

    struct events *events;
    struct health *health; /* NULL: nobody watches */

    queue    *intake, *slow, *watch; /* watch: host_stat */
    pthread_t threads[INTAKE_THREADS + SLOW_THREADS + 1];
    size_t    n_threads;
};

void server_post(server *s, post *p); /* from any thread */

/* --- listen.c --- */
int  server_listen(server *s, err *e);
void server_close_listeners(server *s);

/* --- conn.c --- */
typedef enum conn_phase {
    CONN_IDLE,
    CONN_HEAD,
    CONN_BODY,
    CONN_ANSWER,
    CONN_FLUSH,
    CONN_LINGER,
    CONN_H2, /* everything is h2.c's */
} conn_phase;

struct conn {
    sink                sink;
    conn               *prev, *next;
    server             *server;
    struct bufferevent *bev;
    struct event       *timer;
    http_parser         parser;
    exchange           *x; /* being received or answered */
    conn_phase          phase;
    int64_t             phase_us; /* when it began */
    int64_t             moved_us; /* when output last moved, or was empty */
    int64_t             sent_us;  /* when something was last written */
    bool                is_tls, advancing, dead, first;
    bool                chosen;      /* between HTTP/1 and HTTP/2 */
    bool                held;        /* reading stopped: an upload waits for the disk */
    bool                rest_unread; /* the request's body was refused, its bytes may still come */
    size_t              body_counted, lingered;
    struct h2          *h2; /* NULL: HTTP/1 */
};

void conn_accept(server *s, int fd, const listener *l);
void conn_free(conn *c);
void conn_write_parts(conn *c, struct iovec *parts, int n); /* one system call; changes the parts */
bool conn_congested(const conn *c);
bool conn_stalled(const conn *c); /* the client has not read for too long */
void conn_arm(conn *c, double seconds);
void conn_shut(conn *c);         /* closes it behind what was written */
void conn_close_idle(server *s); /* those without a request */

/* --- answer.c --- */
void answer_put_fields(const exchange *x, str *out); /* the lines of a head that HTTP/1 and HTTP/2 have alike */
bool answer_send(sink *k, exchange *x, bool last);   /* of a conn */

/* --- h2.c --- */
bool h2_open(conn *c); /* before its first byte is taken; false: out of memory */
void h2_free(conn *c);
void h2_read(conn *c);
void h2_write(conn *c); /* the socket takes more */
void h2_tick(conn *c);
void h2_drain(conn *c); /* takes no further streams, and closes behind the last */

/* --- exchange.c --- */
struct exchange_core {
    exchange *self, *prev, *next;
    sink     *sink; /* NULL: the client has gone, or everything is sent */
    post      handled;
    bool      in_handler;   /* then the answer, the work and the requests below are the handler's */
    int       cancel_asked; /* meanwhile: the code of an error, or 0 */
    route     lost;         /* of a path that is none */
    bool      is_unix;
    bool      is_rpc;           /* a call of gRPC: the answer ends with trailers that say how it went */
    bool      head_only, close; /* HEAD; the connection closes behind the answer */
    int64_t   begin_us;
    uint64_t  key_id;
    char      key_name[64];
    bool      by_owner; /* over the Unix socket, or with the capability token */
    /* Set by the I/O thread while the handler has the exchange, which submits nothing from then on. */
    atomic_bool gone;

    /* The answer. */
    bool    replied, streaming, head_sent, over, cancelled, failed;
    int     status;
    char    type[48];
    str     headers, out;
    str     ignored; /* "a, b" */
    failure failure;

    struct event *deadline; /* of a call of gRPC; NULL: none */

    struct feed *feed; /* another thread writes the answer; in_flight counts it */

    /* Inference. */
    exchange_work   work;
    struct request *requests; /* work.n_requests of them, once it was run */
    size_t          next_request, in_flight, requests_over;
    bool            paused;
    int             prompt_tokens, generated_tokens, cached_tokens;
    int64_t         first_token_us, last_token_us, stalled_us;
};

exchange *exchange_open(server *s, sink *k, http_request *r); /* takes r by reference; NULL: out of memory */
void      exchange_admit(exchange *x);                        /* after the head: may answer */
void      exchange_start(exchange *x);                        /* after the body: owns the request now */
void      exchange_piece(exchange *x, bool last);             /* with ROUTE_PIECES: more of the body has come */
bool      exchange_flush(exchange *x);            /* sends what callbacks left; false: the connection has let go of x */
void      exchange_detach(exchange *x);           /* the client has gone */
void      exchange_cancel(exchange *x, int code); /* ERR_CANCELLED, ERR_DEADLINE; ERR_BUSY: the server is stopping */
void exchange_refuse(exchange *x, int status, const char *why); /* its head or body makes no sense, or is too much */
void exchange_fail(exchange *x, const err *e);                  /* on the I/O thread; exchange_flush must follow */
void exchange_begin_stream(exchange *x);
void exchange_beat(exchange *x);   /* nothing was sent for a while */
void exchange_settle(exchange *x); /* frees it if nobody needs it */
int  server_start_intake(server *s, err *e);
void server_stop_intake(server *s);

/* --- request.c --- */
void requests_start(exchange *x);  /* on the handler's thread: submits; may answer with an error */
void requests_attach(exchange *x); /* the handler has returned: their events are handed over from now on */
void requests_resume(exchange *x);
void requests_cancel(exchange *x);
void requests_free(exchange *x);

/* --- error_field.c --- */
void error_find_field(failure *f, const node *body); /* fills param, if the body has the field */

/* --- admit.c --- */
bool admit_host(const exchange *x);
/* Sets CORS headers; false: this origin may not ask (answered). */
bool admit_origin(exchange *x);
bool admit_key(exchange *x);    /* false: answered with 401 or 429 */
bool admit_coding(exchange *x); /* false: answered with 415 */

#endif
