/* SPDX-License-Identifier: Apache-2.0 */
#include "server/ops/events.h"

#include "base/clock.h"
#include "server/handlers.h"
#include "server/http/feed.h"
#include "server/http/query.h"
#include "server/internal.h"
#include "server/ops/log_ring.h"
#include "server/ops/report.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_LISTENERS_OF_EVENTS = 64, TICK_MS = 1000 };

typedef struct listener_of_events {
    feed    *feed; /* NULL: a free place */
    unsigned topics;
    int64_t  logged; /* number of the last record that was sent */
} listener_of_events;

struct events {
    post               post;
    server            *server;
    listener_of_events list[MAX_LISTENERS_OF_EVENTS]; /* of the I/O thread */
    bool               ended;                         /* of the I/O thread */
    host_stats         stats; /* of the thread until it posts, then of the I/O thread until told */

    pthread_t       thread;
    bool            started;
    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t  changed;
    int             n_listening;
    bool            posted, stop, soon;
};

enum { TOPIC_STATS = 1, TOPIC_REQUESTS = 2, TOPIC_LOGS = 4, TOPIC_PULLS = 8 };
static const struct {
    const char *name;
    unsigned    bit;
} topic_names[] = { { "stats", TOPIC_STATS },
                    { "requests", TOPIC_REQUESTS },
                    { "logs", TOPIC_LOGS },
                    { "pulls", TOPIC_PULLS },
                    { "models", TOPIC_STATS } };

/* --- the thread --- */

static void *events_main(void *ctx) {
    events *v = ctx;
    pthread_mutex_lock(&v->lock);
    while (!v->stop) {
        if (v->posted || !v->n_listening) {
            pthread_cond_wait(&v->changed, &v->lock);
            continue;
        }
        pthread_mutex_unlock(&v->lock);
        host_stat(v->server->options.host, &v->stats);
        pthread_mutex_lock(&v->lock);
        v->posted = true;
        server_post(v->server, &v->post);
        struct timespec until = clock_after(TICK_MS);
        while (!v->stop && !v->soon && pthread_cond_timedwait(&v->changed, &v->lock, &until) == 0) {
        }
        v->soon = false;
    }
    pthread_mutex_unlock(&v->lock);
    return NULL;
}

/* --- on the I/O thread --- */

static void put_event(feed *f, const char *name, const str *data) {
    str text;
    str_init(&text);
    str_printf(&text, "event: %s\ndata: %s\n\n", name, str_cstr(data));
    if (str_ok(&text)) feed_put(f, str_cstr(&text), text.len);
    str_deinit(&text);
}

static void send_logs(events *v, listener_of_events *l) {
    str data;
    if (!v->server->options.logs) return;
    str_init(&data);
    str_puts(&data, "{\"data\":[");
    int64_t newest = log_ring_write(v->server->options.logs, l->logged, LOG_DEBUG, &data);
    str_puts(&data, "]}");
    if (newest != l->logged) put_event(l->feed, "logs", &data);
    l->logged = newest;
    str_deinit(&data);
}

static unsigned wanted(const events *v) {
    unsigned all = 0;
    for (int i = 0; i < MAX_LISTENERS_OF_EVENTS; i++) all |= v->list[i].feed ? v->list[i].topics : 0;
    return all;
}

static void send_all(events *v, unsigned topic, const char *name,
                     void (*put)(server *s, const host_stats *h, str *out)) {
    str data;
    if (!(wanted(v) & topic)) return;
    str_init(&data);
    put(v->server, &v->stats, &data);
    for (int i = 0; i < MAX_LISTENERS_OF_EVENTS && str_ok(&data); i++) {
        if (v->list[i].feed && (v->list[i].topics & topic)) put_event(v->list[i].feed, name, &data);
    }
    str_deinit(&data);
}

static void put_requests(server *s, const host_stats *h, str *out) {
    (void)h;
    report_requests(s, NULL, out);
}

static void put_pulls(server *s, const host_stats *h, str *out) {
    (void)h;
    library_write_pulls(s->options.library, out);
}

static void take_tick(post *p) {
    events *v = (events *)((char *)p - offsetof(events, post));
    send_all(v, TOPIC_STATS, "stats", report_stats);
    send_all(v, TOPIC_REQUESTS, "requests", put_requests);
    send_all(v, TOPIC_PULLS, "pulls", put_pulls);
    for (int i = 0; i < MAX_LISTENERS_OF_EVENTS; i++) {
        if (v->list[i].feed && (v->list[i].topics & TOPIC_LOGS)) send_logs(v, &v->list[i]);
    }
    pthread_mutex_lock(&v->lock);
    v->posted = false;
    pthread_cond_signal(&v->changed);
    pthread_mutex_unlock(&v->lock);
}

static void count_listeners(events *v, int change) {
    pthread_mutex_lock(&v->lock);
    v->n_listening += change;
    v->soon = change > 0;
    pthread_cond_signal(&v->changed);
    pthread_mutex_unlock(&v->lock);
}

static void drop(events *v, listener_of_events *l) {
    feed *f = l->feed;
    l->feed = NULL;
    count_listeners(v, -1);
    feed_end(f, NULL);
}

static void on_gone(void *ctx, feed *f) {
    events *v = ctx;
    for (int i = 0; i < MAX_LISTENERS_OF_EVENTS; i++) {
        if (v->list[i].feed == f) drop(v, &v->list[i]);
    }
}

static bool read_topics(exchange *x, unsigned *out) {
    char text[128];
    view list = { "stats", 5 };
    *out = 0;
    if (query_get(x->http->query, "topics", text, sizeof text)) list = view_of(text);
    for (size_t at = 0; at <= list.len;) {
        size_t   n = 0;
        unsigned bit = 0;
        while (at + n < list.len && list.data[at + n] != ',') n++;
        for (size_t i = 0; i < sizeof topic_names / sizeof topic_names[0]; i++) {
            if (view_eq_c((view){ list.data + at, n }, topic_names[i].name)) bit = topic_names[i].bit;
        }
        if (!bit) {
            exchange_error(x, 400, "invalid_value", "topics",
                           "'%.*s' is not a topic; the topics are stats, requests, logs, pulls and models",
                           n > 40 ? 40 : (int)n, list.data + at);
            return false;
        }
        *out |= bit;
        at += n + 1;
    }
    return true;
}

void ops_events(exchange *x) {
    events  *v = x->server->events;
    unsigned topics;
    int      at = 0;
    if (!read_topics(x, &topics)) return;
    while (at < MAX_LISTENERS_OF_EVENTS && v->list[at].feed) at++;
    if (v->ended || at == MAX_LISTENERS_OF_EVENTS) {
        exchange_error(x, 503, "overloaded", NULL,
                       v->ended ? "the server is stopping" : "%d pages are already listening", MAX_LISTENERS_OF_EVENTS);
        return;
    }
    if (x->core->head_only) { /* a stream without a body would never end */
        str none;
        str_init(&none);
        exchange_reply(x, 200, "text/event-stream", &none);
        return;
    }
    feed *f = exchange_feed(x, "text/event-stream");
    if (!f) return;
    v->list[at] = (listener_of_events){ f, topics, -1 };
    feed_on_gone(f, on_gone, v);
    feed_put(f, ": hearth\n\n", 10);
    count_listeners(v, 1);
}

/* --- life --- */

int events_open(events **out, server *s, err *e) {
    events *v = calloc(1, sizeof *v);
    *out = v;
    if (!v) return err_set_nomem(e);
    v->server = s;
    v->post.take = take_tick;
    pthread_mutex_init(&v->lock, NULL);
    clock_cond_init(&v->changed);
    int rc = pthread_create(&v->thread, NULL, events_main, v);
    if (rc != 0) return err_set(e, ERR_IO, "cannot start a thread: %s", strerror(rc));
    v->started = true;
    return 0;
}

void events_end(events *v) {
    if (!v) return;
    v->ended = true;
    for (int i = 0; i < MAX_LISTENERS_OF_EVENTS; i++) {
        if (v->list[i].feed) drop(v, &v->list[i]);
    }
}

void events_stop(events *v) {
    if (!v || !v->started) return;
    pthread_mutex_lock(&v->lock);
    v->stop = true;
    pthread_cond_signal(&v->changed);
    pthread_mutex_unlock(&v->lock);
    pthread_join(v->thread, NULL);
    v->started = false;
}

void events_free(events *v) {
    if (!v) return;
    events_stop(v);
    pthread_cond_destroy(&v->changed);
    pthread_mutex_destroy(&v->lock);
    free(v);
}
