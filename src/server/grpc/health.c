/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grpc.health.v1: whether the server, a service of it or a model ("model/NAME") takes calls. A model that is not loaded
 * does: it is loaded by the first. Whoever watches is told when it changes, and when the server stops.
 */
#include "server/grpc/grpc.h"
#include "server/http/feed.h"
#include "server/internal.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_WATCHERS = 256, TICK_MS = 500 };

typedef struct watcher {
    feed *feed; /* NULL: a free place */
    char  name[160];
    int   told;
} watcher;

struct health {
    watcher       list[MAX_WATCHERS];
    struct event *timer;
};

static bool is_service(view name) {
    for (const grpc_file *const *f = grpc_files; *f; f++) {
        for (const grpc_service *const *s = (*f)->services; *s; s++) {
            if (view_eq_c(name, (*s)->name)) return true;
        }
    }
    return false;
}

static int status_of(server *s, view name) {
    host_model m;
    int        up = s->draining ? NOT_SERVING : SERVING;
    if (name.len == 0 || is_service(name)) return up;
    if (!view_starts(name, "model/") || host_find(s->options.host, (view){ name.data + 6, name.len - 6 }, &m, NULL) < 0)
        return SERVICE_UNKNOWN;
    return m.quarantined ? NOT_SERVING : up;
}

static void put_status(str *out, int status) {
    size_t at = grpc_open(out);
    pb_put_int(out, pb_health_response.fields[0].number, status);
    grpc_close(out, at);
}

static void reply_status(exchange *x, int status) {
    str out;
    str_init(&out);
    put_status(&out, status);
    exchange_reply(x, 200, GRPC_TYPE, &out);
}

void health_check(exchange *x) {
    view name = { "", 0 };
    read_string(&x->in, &x->body, pb_health_request.fields[0].name, &name);
    int status = status_of(x->server, name);
    if (status == SERVICE_UNKNOWN)
        exchange_error(x, 404, "not_found", "service", "there is no service or model of this name");
    else
        reply_status(x, status);
}

/* --- watching --- */

static void tell(server *s, watcher *w) {
    int status = status_of(s, view_of(w->name));
    str out;
    if (!w->feed || status == w->told) return;
    w->told = status;
    str_init(&out);
    put_status(&out, status);
    if (str_ok(&out)) feed_put(w->feed, out.data, out.len);
    str_deinit(&out);
}

static void on_tick(evutil_socket_t fd, short what, void *ctx) {
    server *s = ctx;
    int     n = 0;
    (void)fd;
    (void)what;
    for (size_t i = 0; i < MAX_WATCHERS; i++) {
        n += s->health->list[i].feed != NULL;
        tell(s, &s->health->list[i]);
    }
    if (n == 0) event_del(s->health->timer);
}

static void on_gone(void *ctx, feed *f) {
    server *s = ctx;
    for (size_t i = 0; i < MAX_WATCHERS; i++) {
        if (s->health->list[i].feed != f) continue;
        s->health->list[i].feed = NULL;
        feed_end(f, NULL);
    }
}

/* A free place; NULL: out of memory, or too many watch. */
static watcher *find_place(server *s) {
    if (!s->health) {
        s->health = calloc(1, sizeof *s->health);
        if (s->health) s->health->timer = event_new(s->base, -1, EV_PERSIST, on_tick, s);
    }
    for (size_t i = 0; s->health && s->health->timer && i < MAX_WATCHERS; i++) {
        if (!s->health->list[i].feed) return &s->health->list[i];
    }
    return NULL;
}

void health_watch(exchange *x) {
    struct timeval tv = { .tv_usec = TICK_MS * 1000 };
    view           name = { "", 0 };
    server        *s = x->server;
    read_string(&x->in, &x->body, pb_health_request.fields[0].name, &name);
    if (s->draining || name.len >= sizeof(((watcher *)0)->name)) { /* it will not change */
        reply_status(x, status_of(s, name));
        return;
    }
    watcher *w = find_place(s);
    if (!w) {
        exchange_error(x, 503, "overloaded", NULL, "too many are watching");
        return;
    }
    feed *f = exchange_feed(x, GRPC_TYPE);
    if (!f) return;
    *w = (watcher){ .feed = f, .told = -1 };
    memcpy(w->name, name.data, name.len);
    feed_on_gone(f, on_gone, s);
    tell(s, w);
    if (!event_pending(s->health->timer, EV_TIMEOUT, NULL)) event_add(s->health->timer, &tv);
}

void health_end(server *s) {
    for (size_t i = 0; s->health && i < MAX_WATCHERS; i++) {
        watcher *w = &s->health->list[i];
        feed    *f = w->feed;
        if (!f) continue;
        tell(s, w);
        w->feed = NULL;
        feed_end(f, NULL);
    }
    if (s->health && s->health->timer) event_del(s->health->timer);
}

void health_free(server *s) {
    if (!s->health) return;
    if (s->health->timer) event_free(s->health->timer);
    free(s->health);
    s->health = NULL;
}
