/* SPDX-License-Identifier: Apache-2.0 */
#include "server/http/feed.h"

#include "server/internal.h"

#include <stdlib.h>
#include <string.h>

struct feed {
    post      post;
    exchange *x;
    int       status;
    bool      waits; /* of the I/O thread: posted while the handler still had the exchange */

    pthread_mutex_t lock; /* guards the rest */
    str             pending;
    bool            posted, over, gone, failed;
    err             error;
    void (*on_gone)(void *ctx, feed *f);
    void *ctx;
};

/* The exchange counts a feed as one piece of work in flight. */
static void take_posted(post *p) {
    feed          *f = (feed *)((char *)p - offsetof(feed, post));
    exchange      *x = f->x;
    exchange_core *c = x->core;
    str            text;
    f->waits = c->in_handler;
    if (f->waits) return;
    pthread_mutex_lock(&f->lock);
    text = f->pending;
    str_init(&f->pending);
    f->posted = false;
    bool over = f->over, failed = f->failed, kept = !over && !c->work.stream_type;
    if (kept) f->pending = text; /* one answer at the end */
    pthread_mutex_unlock(&f->lock);
    if (kept) return;
    bool heard = c->sink && !c->over && !c->replied;
    if (heard && c->work.stream_type && text.len) {
        exchange_begin_stream(x);
        exchange_put(x, text.data, text.len);
    } else if (heard && !failed && over) {
        if (c->work.stream_type)
            exchange_begin_stream(x);
        else
            exchange_reply(x, f->status, text.len ? "application/json" : "text/plain", &text);
    }
    str_deinit(&text);
    if (over) {
        if (heard && failed)
            exchange_fail(x, &f->error);
        else if (heard && c->streaming)
            c->over = true;
        c->in_flight--;
    }
    if (c->sink)
        exchange_flush(x);
    else
        exchange_settle(x);
}

void feed_attached(feed *f) {
    if (f->waits) take_posted(&f->post);
}

feed *exchange_feed(exchange *x, const char *stream_type) {
    feed *f = calloc(1, sizeof *f);
    if (!f) {
        exchange_error_nomem(x);
        return NULL;
    }
    f->x = x;
    f->status = 200;
    f->post.take = take_posted;
    pthread_mutex_init(&f->lock, NULL);
    str_init(&f->pending);
    f->pending.limit = 4 << 20; /* a reader that never reads */
    x->core->work.stream_type = stream_type;
    x->core->feed = f;
    x->core->in_flight++;
    return f;
}

void feed_status(feed *f, int status) { f->status = status; }

static void post_once(feed *f, bool last, const err *e) {
    pthread_mutex_lock(&f->lock);
    if (last) {
        f->over = true;
        f->failed = e != NULL;
        if (e) f->error = *e;
    }
    bool first = !f->posted;
    f->posted = true;
    server *s = f->x->server;
    pthread_mutex_unlock(&f->lock);
    if (first) server_post(s, &f->post);
}

void feed_put(feed *f, const void *data, size_t bytes) {
    pthread_mutex_lock(&f->lock);
    if (!f->gone) str_append(&f->pending, data, bytes);
    pthread_mutex_unlock(&f->lock);
    post_once(f, false, NULL);
}

void feed_end(feed *f, const err *e) { post_once(f, true, e); }

void feed_on_gone(feed *f, void (*on_gone)(void *ctx, feed *f), void *ctx) {
    pthread_mutex_lock(&f->lock);
    f->on_gone = on_gone;
    f->ctx = ctx;
    pthread_mutex_unlock(&f->lock);
}

void feed_detach(feed *f) {
    if (!f) return;
    pthread_mutex_lock(&f->lock);
    void (*on_gone)(void *ctx, feed *g) = f->gone || f->over ? NULL : f->on_gone;
    void *ctx = f->ctx;
    f->gone = true;
    pthread_mutex_unlock(&f->lock);
    if (on_gone) on_gone(ctx, f);
}

void feed_free(feed *f) {
    if (!f) return;
    pthread_mutex_destroy(&f->lock);
    str_deinit(&f->pending);
    free(f);
}
