/* SPDX-License-Identifier: Apache-2.0 */
/* The event loop: posts from other threads, signals, draining. */
#include "server/server.h"

#include "base/clock.h"
#include "base/log.h"
#include "server/grpc/grpc.h"
#include "server/http/upload.h"
#include "server/internal.h"
#include "server/openai/kept.h"
#include "server/ops/events.h"

#include <openssl/ssl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

enum { CUT_GRACE_US = 1500000 };

/* --- from other threads --- */

/* The event is edge-triggered: every write wakes, and nobody has to read the counter. */
static void wake(server *s) {
    uint64_t one = 1;
    (void)!write(s->wake_fd, &one, sizeof one); /* async-signal-safe */
}

/* What this thread is in the middle of. While events of a step come in, waking waits for the last of them. */
static _Thread_local struct { bool open, owed; } batch;

static void on_batch(void *ctx, bool begins) {
    bool owed = batch.owed;
    batch.open = begins;
    batch.owed = false;
    if (owed) wake(ctx);
}

void server_post(server *s, post *p) {
    p->next = NULL;
    pthread_mutex_lock(&s->post_lock);
    bool first = s->posts == NULL;
    *s->posts_end = p;
    s->posts_end = &p->next;
    pthread_mutex_unlock(&s->post_lock);
    if (first && batch.open)
        batch.owed = true;
    else if (first)
        wake(s);
}

void server_signal(server *s, int what) {
    atomic_fetch_or(&s->asked, 1 << what);
    wake(s);
}

static void take_posts(server *s) {
    pthread_mutex_lock(&s->post_lock);
    post *list = s->posts;
    s->posts = NULL;
    s->posts_end = &s->posts;
    pthread_mutex_unlock(&s->post_lock);
    while (list) {
        post *p = list;
        list = p->next; /* p may be gone after take */
        p->take(p);
    }
}

/* --- draining --- */

static void set_timer(struct event *t, double seconds) {
    struct timeval tv = { .tv_sec = (time_t)seconds,
                          .tv_usec = (suseconds_t)((seconds - (double)(time_t)seconds) * 1e6) };
    event_add(t, &tv);
}

static void begin_drain(server *s) {
    if (s->draining) return;
    s->draining = true;
    if (s->told) s->told(s->told_ctx, SERVER_DRAIN);
    log_info("server", "draining: %d requests are still running", s->n_exchanges);
    server_close_listeners(s);
    health_end(s);
    events_end(s->events); /* a page that looks on would keep the server up */
    conn_close_idle(s);
    set_timer(s->drain_timer, s->options.drain_seconds);
}

/* The limit is over: what still runs is cancelled, and its clients are told, so that they ask another server, or this one later. */
static void cut(server *s) {
    s->cutting = true;
    log_warn("server", "cutting off %d requests", s->n_exchanges);
    for (exchange *x = s->exchanges, *next; x; x = next) {
        next = x->core->next;
        sink *k = x->core->sink;
        if (k && k->kind->answering(k)) exchange_cancel(x, ERR_BUSY);
    }
    for (conn *c = s->conns, *next; c; c = next) {
        next = c->next;
        if (c->phase == CONN_IDLE || c->phase == CONN_HEAD || c->phase == CONN_BODY) conn_free(c);
    }
    set_timer(s->drain_timer, CUT_GRACE_US / 1e6);
}

static void on_drain_timer(evutil_socket_t fd, short what, void *ctx) {
    server *s = ctx;
    (void)fd;
    (void)what;
    if (s->cutting)
        event_base_loopbreak(s->base);
    else
        cut(s);
}

static void on_retry(evutil_socket_t fd, short what, void *ctx) {
    server *s = ctx;
    (void)fd;
    (void)what;
    for (size_t i = 0; i < s->n_listeners; i++) evconnlistener_enable(s->listeners[i].ev);
}

/* Over when every request is, or only connections without one are left. */
static void look_if_drained(server *s) {
    if (!s->draining) return;
    conn_close_idle(s);
    if (s->n_conns == 0 && s->n_exchanges == 0) event_base_loopbreak(s->base);
}

static void on_wake(evutil_socket_t fd, short what, void *ctx) {
    server *s = ctx;
    (void)fd;
    (void)what;
    int asked = atomic_exchange(&s->asked, 0);
    if ((asked & (1 << SERVER_RELOAD)) && s->told) s->told(s->told_ctx, SERVER_RELOAD);
    if (asked & (1 << SERVER_DRAIN)) begin_drain(s);
    if ((asked & (1 << SERVER_STOP)) && !s->cutting) {
        begin_drain(s);
        cut(s);
    }
    take_posts(s);
    look_if_drained(s);
}

/* --- life --- */

static void set_defaults(server_options *o) {
    if (!o->head_bytes) o->head_bytes = 32 << 10;
    if (!o->body_bytes) o->body_bytes = 64 << 20;
    if (!o->total_body_bytes) o->total_body_bytes = 512u << 20;
    if (!o->max_connections) o->max_connections = 4096;
    if (o->head_seconds <= 0) o->head_seconds = 15;
    if (o->idle_seconds <= 0) o->idle_seconds = 75;
    if (o->body_seconds <= 0) o->body_seconds = 20;
    if (o->stall_seconds <= 0) o->stall_seconds = 30;
    if (o->heartbeat_seconds <= 0) o->heartbeat_seconds = 10;
    if (o->drain_seconds <= 0) o->drain_seconds = 30;
    if (!o->stream_bytes) o->stream_bytes = 1 << 20;
    if (o->kept_seconds == 0) o->kept_seconds = 3600;
    if (o->kept_seconds < 0 || o->kept_seconds > 1e9) o->kept_seconds = 1e9;
}

static int open_loop(server *s, err *e) {
    s->base = event_base_new();
    s->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (!s->base || s->wake_fd < 0) return err_set_errno(e, "cannot create an event loop");
    s->wake_event = event_new(s->base, s->wake_fd, EV_READ | EV_PERSIST | EV_ET, on_wake, s);
    s->drain_timer = evtimer_new(s->base, on_drain_timer, s);
    s->retry_timer = evtimer_new(s->base, on_retry, s);
    if (!s->wake_event || !s->drain_timer || !s->retry_timer) return err_set_nomem(e);
    event_add(s->wake_event, NULL);
    return 0;
}

int server_open(server **out, const server_options *o, auth *keys, err *e) {
    server *s = calloc(1, sizeof *s);
    int     rc;
    *out = NULL;
    if (!s) return err_set_nomem(e);
    s->options = *o;
    set_defaults(&s->options);
    s->limits = (http_limits){ s->options.head_bytes, s->options.body_bytes, upload_has_no_limit };
    s->keys = keys;
    s->started_us = clock_us();
    s->wake_fd = -1;
    s->posts_end = &s->posts;
    arena_init(&s->event_mem, 0);
    pthread_mutex_init(&s->post_lock, NULL);
    pthread_mutex_init(&s->settings_lock, NULL);
    if (getrandom(&s->id_salt, sizeof s->id_salt, 0) < 0) s->id_salt = (uint64_t)s->started_us;
    if ((rc = fetch_rules_check(&s->options.pictures, e)) < 0 ||
        (rc = kept_open(&s->kept, s->options.kept_bytes, s->options.kept_seconds, e)) < 0 ||
        (rc = open_loop(s, e)) < 0 || (rc = server_listen(s, e)) < 0 || (rc = server_start_intake(s, e)) < 0 ||
        (rc = events_open(&s->events, s, e)) < 0) {
        s->keys = NULL;
        server_free(s);
        return rc;
    }
    host_on_batch(s->options.host, on_batch, s);
    *out = s;
    return 0;
}

void server_free(server *s) {
    if (!s) return;
    events_stop(s->events);
    server_stop_intake(s);
    server_close_listeners(s);
    while (s->conns) conn_free(s->conns);
    if (s->base) take_posts(s);
    for (exchange *x = s->exchanges, *next; x; x = next) { /* cut while a model still worked: the host is gone by now */
        next = x->core->next;
        x->core->in_flight = 0;
        x->core->in_handler = false;
        exchange_settle(x);
    }
    events_free(s->events);
    health_free(s);
    if (s->wake_event) event_free(s->wake_event);
    if (s->drain_timer) event_free(s->drain_timer);
    if (s->retry_timer) event_free(s->retry_timer);
    if (s->tick_timer) event_free(s->tick_timer);
    if (s->base) event_base_free(s->base);
    if (s->wake_fd >= 0) close(s->wake_fd);
    if (s->tls) SSL_CTX_free(s->tls);
    kept_free(s->kept);
    auth_free(s->keys);
    arena_deinit(&s->event_mem);
    pthread_mutex_destroy(&s->post_lock);
    pthread_mutex_destroy(&s->settings_lock);
    free(s->socket_path);
    free(s);
}

int         server_port(const server *s) { return s->port; }
const char *server_socket_path(const server *s) { return s->socket_path; }

void server_on_signal(server *s, void (*fn)(void *ctx, int what), void *ctx) {
    s->told = fn;
    s->told_ctx = ctx;
}

static void on_tick(evutil_socket_t fd, short what, void *ctx) {
    server *s = ctx;
    (void)fd;
    (void)what;
    s->tick();
}

int server_every(server *s, double seconds, void (*fn)(void), err *e) {
    s->tick = fn;
    s->tick_timer = event_new(s->base, -1, EV_PERSIST, on_tick, s);
    if (!s->tick_timer) return err_set_nomem(e);
    set_timer(s->tick_timer, seconds);
    return 0;
}

void server_set_keys(server *s, auth *keys) {
    auth_inherit(keys, s->keys);
    auth_free(s->keys);
    s->keys = keys;
}

void server_set_latest(server *s, const struct config_values *latest) { s->latest = latest; }

int server_run(server *s, err *e) {
    signal(SIGPIPE, SIG_IGN);
    int rc = event_base_dispatch(s->base) < 0 ? err_set_errno(e, "the event loop failed") : 0;
    server_close_listeners(s);
    events_stop(s->events);
    server_stop_intake(s);
    while (s->conns) conn_free(s->conns); /* cancels what was cut */
    take_posts(s);
    s->stopped = true;
    return rc;
}
