/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests: one inference request each, between the host's threads and the I/O thread.
 *
 * An event's bytes are appended to the request's list under its lock; the first one of a batch posts the request, which
 * wakes the I/O thread once however many requests a step has fed. The I/O thread takes the whole list, reads the events
 * one by one and hands them to the adapter. While the client's socket is congested the list stays where it is and the
 * model pauses these requests; other streams do not notice. conn.c gives up a client that reads nothing for
 * stall_seconds; one whose events, made before the pause took hold, are more than stream_bytes is given up at once.
 * Nothing is ever dropped from a stream that goes on.
 *
 * Who owns what. Until the handler has returned, the requests and everything about them in the core are its thread's:
 * requests_start submits there. Events that come meanwhile, on the worker's thread, only gather in their lists, because
 * a request begins as `posted`: nobody puts it into the server's list before requests_attach, on the I/O thread, whose
 * everything is from then on. The one thing that crosses the border earlier is core.gone, by which the I/O thread tells
 * that the client has left or that somebody cancelled: what is not submitted yet never is, and what was submitted is
 * cancelled behind the handler.
 *
 * Events lie in slabs one behind the other, of which a request keeps one: a token costs no allocation.
 *
 * A request counts as in flight until its event with `last` was taken.
 */
#include "base/clock.h"
#include "server/internal.h"

#include <stdlib.h>
#include <string.h>

enum { SLAB_BYTES = 4000, READ_BYTES = 1 << 20 /* of what events were read into, kept for the next one */ };

typedef struct slab slab;
struct slab {
    slab  *next;
    size_t used, cap;
    _Alignas(16) char data[];
};

/* Then come the event's bytes, then the next item of its slab, aligned. */
typedef struct item {
    int64_t  at_us;
    uint64_t worker;
    size_t   body_bytes;
    bool     last;
    bool     own; /* an ERROR that the host made: what follows is an err */
} item;

typedef struct request {
    post      post;
    exchange *x;
    size_t    index;
    uint64_t  id;
    bool      in_flight;

    pthread_mutex_t lock; /* guards the rest */
    slab           *slabs, *last, *spare;
    size_t          bytes;
    bool            posted; /* in the server's list, or not to be put there yet */
    bool            lost, last_lost;
} request;

/* --- the worker's thread --- */

static size_t item_bytes(size_t body_bytes) { return (sizeof(item) + body_bytes + 15) & ~(size_t)15; }

/* Room for one item at the end of the request's slabs, which are locked. */
static item *add_room(request *r, size_t bytes) {
    slab *s = r->last;
    if (!s || s->cap - s->used < bytes) {
        if (r->spare && r->spare->cap >= bytes) {
            s = r->spare;
            r->spare = NULL;
        } else {
            size_t cap = bytes > SLAB_BYTES ? bytes : SLAB_BYTES;
            s = malloc(sizeof *s + cap);
            if (!s) return NULL;
            s->cap = cap;
        }
        s->next = NULL;
        s->used = 0;
        *(r->last ? &r->last->next : &r->slabs) = s;
        r->last = s;
    }
    item *it = (item *)(void *)(s->data + s->used);
    s->used += bytes;
    r->bytes += bytes;
    return it;
}

static bool keep_event(request *r, const host_event *ev) {
    view  body = ev->error ? (view){ (const char *)ev->error, sizeof *ev->error } : ev->body;
    item *it = add_room(r, item_bytes(body.len));
    if (!it) return false;
    *it = (item){
        .at_us = clock_us(), .worker = ev->worker, .body_bytes = body.len, .last = ev->last, .own = ev->error != NULL
    };
    memcpy(it + 1, body.data, body.len);
    return true;
}

static void on_event(void *ctx, const host_event *ev) {
    request *r = ctx;
    pthread_mutex_lock(&r->lock);
    if (!keep_event(r, ev)) {
        r->lost = true;
        r->last_lost |= ev->last;
    }
    bool first = !r->posted;
    r->posted = true;
    server *s = r->x->server;
    pthread_mutex_unlock(&r->lock);
    /* After the last event the request may be gone as soon as the I/O thread sees it: it can only see it once it is
     * posted. */
    if (first) server_post(s, &r->post);
}

/* --- submitting; the handler's thread, later the I/O thread --- */

static bool may_submit(const exchange_core *c) {
    return c->next_request < c->work.n_requests && c->in_flight < REQUESTS_IN_FLIGHT;
}

static int submit_next(exchange *x, err *e) {
    exchange_core *c = x->core;
    request       *r = &c->requests[c->next_request];
    int            rc =
        host_submit(x->host, c->work.model, &c->work.requests[r->index], c->work.keep_alive_ms, on_event, r, &r->id, e);
    if (rc < 0) return rc;
    r->in_flight = true;
    c->next_request++;
    c->in_flight++;
    return 0;
}

static void cancel_all(exchange *x) {
    exchange_core *c = x->core;
    for (size_t i = 0; i < c->next_request; i++) {
        if (c->requests[i].in_flight) host_cancel(x->host, c->requests[i].id);
    }
}

static void take_posted(post *p);

void requests_start(exchange *x) {
    exchange_core *c = x->core;
    err            e = { 0 };
    int            rc = 0;
    c->requests = calloc(c->work.n_requests, sizeof *c->requests);
    if (!c->requests) {
        exchange_error_nomem(x);
        return;
    }
    for (size_t i = 0; i < c->work.n_requests; i++) {
        request *r = &c->requests[i];
        *r = (request){ .x = x, .index = i, .post.take = take_posted, .posted = true };
        pthread_mutex_init(&r->lock, NULL);
    }
    while (rc == 0 && may_submit(c) && !atomic_load(&c->gone)) rc = submit_next(x, &e);
    if (rc == 0) return;
    exchange_error_from(x, &e);
    cancel_all(x);
}

/* From now on its events are handed over as they come; those that have come already are due. */
static void attach(request *r) {
    pthread_mutex_lock(&r->lock);
    bool due = r->slabs || r->lost;
    r->posted = due;
    server *s = r->x->server;
    pthread_mutex_unlock(&r->lock);
    if (due) server_post(s, &r->post);
}

void requests_attach(exchange *x) {
    exchange_core *c = x->core;
    for (size_t i = 0; i < c->next_request; i++) attach(&c->requests[i]);
}

/* --- the I/O thread --- */

static void submit_more(exchange *x) {
    exchange_core *c = x->core;
    while (!c->over && !c->failed && !c->paused && may_submit(c)) {
        err      e = { 0 };
        request *r = &c->requests[c->next_request];
        if (submit_next(x, &e) < 0)
            exchange_fail(x, &e);
        else
            attach(r);
    }
}

static void note(exchange *x, int64_t at_us, const runtime_event *ev) {
    exchange_core *c = x->core;
    metrics       *m = &x->server->metrics;
    switch (ev->kind) {
    case RUNTIME_STARTED: c->prompt_tokens += ev->prompt_tokens; break;
    case RUNTIME_CONTENT:
    case RUNTIME_REASONING:
    case RUNTIME_TOOL_BEGIN:
    case RUNTIME_TOOL_ARGUMENTS:
        if (!c->first_token_us) {
            c->first_token_us = at_us;
            metrics_observe(&m->first_token, (double)(at_us - c->begin_us) / 1e6);
        } else {
            metrics_observe(&m->inter_token, (double)(at_us - c->last_token_us) / 1e6);
        }
        c->last_token_us = at_us;
        break;
    case RUNTIME_DONE:
        c->generated_tokens += ev->usage.generated_tokens;
        if (ev->choice <= 0) c->cached_tokens += ev->usage.cached_tokens;
        if (ev->choice <= 0) m->prompt_tokens += (uint64_t)ev->usage.prompt_tokens;
        if (ev->choice <= 0) m->cached_tokens += (uint64_t)ev->usage.cached_tokens;
        m->generated_tokens += (uint64_t)ev->usage.generated_tokens;
        break;
    default: break;
    }
}

/* What makes no sense fails the request; its worker is not asked again. */
static void refuse(exchange *x, uint64_t worker, err *why) {
    if (why->code != ERR_NOMEM && !x->server->stopped) host_distrust(x->host, worker, why);
    exchange_fail(x, why);
}

static void give_event(exchange *x, const request *r, int64_t at_us, const runtime_event *ev) {
    exchange_core *c = x->core;
    note(x, at_us, ev);
    if (c->over || c->replied || !c->sink) return;
    if (ev->kind == RUNTIME_ERROR) {
        exchange_fail(x, ev->error);
        return;
    }
    if (ev->kind == RUNTIME_DONE && ev->finish == RUNTIME_CANCELLED) {
        err e = { 0 };
        err_set(&e, ERR_CANCELLED, "the request was cancelled");
        exchange_fail(x, &e);
        return;
    }
    if (ev->kind == RUNTIME_STARTED) exchange_begin_stream(x);
    c->work.on_event(x, r->index, ev);
}

static void take_event(exchange *x, request *r, const item *it) {
    exchange_core *c = x->core;
    arena         *mem = &x->server->event_mem;
    view           body = { (const char *)(it + 1), it->body_bytes };
    runtime_event  ev;
    err            e; /* set where it is used: this is once per token */
    int            rc = 0;
    if (it->last) {
        r->in_flight = false;
        c->in_flight--;
        c->requests_over++;
    }
    if (it->own)
        ev = (runtime_event){ .kind = RUNTIME_ERROR, .choice = -1, .last = true, .error = (const void *)body.data };
    else
        rc = host_read_event(&c->work.requests[r->index], body, mem, &ev, &e);
    if (rc < 0)
        refuse(x, it->worker, &e);
    else
        give_event(x, r, it->at_us, &ev);
    if (mem->used_bytes > READ_BYTES)
        arena_deinit(mem);
    else if (mem->used_bytes)
        arena_reset(mem);
}

/* Hands over what has arrived, unless the socket is full. Only for a request whose post was just taken: the post must
 * not be in the server's list when `posted` is cleared, and the thread of the last event must be done with the request.
 */
static void drain(exchange *x, request *r) {
    exchange_core *c = x->core;
    bool           lost, last_lost, wait = c->paused && c->sink && !c->over;
    pthread_mutex_lock(&r->lock);
    bool full = r->bytes > x->server->options.stream_bytes;
    if (wait && !full) {
        r->posted = false;
        pthread_mutex_unlock(&r->lock);
        return;
    }
    slab *list = r->slabs, *kept = NULL;
    r->slabs = r->last = NULL;
    r->bytes = 0;
    r->posted = false;
    lost = r->lost;
    last_lost = r->last_lost;
    pthread_mutex_unlock(&r->lock);
    if (wait) c->sink->kind->give_up(c->sink); /* detaches x, which stays for its requests */
    while (list) {
        slab *s = list;
        list = s->next;
        for (size_t at = 0; at < s->used;) {
            const item *it = (const item *)(void *)(s->data + at);
            at += item_bytes(it->body_bytes);
            take_event(x, r, it);
        }
        if (s->cap == SLAB_BYTES && !kept)
            kept = s;
        else
            free(s);
    }
    pthread_mutex_lock(&r->lock);
    slab *other = r->spare;
    r->spare = kept;
    pthread_mutex_unlock(&r->lock);
    free(other);
    if (lost) {
        err e = { 0 };
        err_set_nomem(&e);
        exchange_fail(x, &e);
    }
    if (last_lost && r->in_flight) {
        r->in_flight = false;
        c->in_flight--;
    }
}

/* The client reads more slowly than the model writes. */
static void hold_back(exchange *x) {
    exchange_core *c = x->core;
    c->paused = true;
    for (size_t i = 0; i < c->next_request; i++) {
        if (c->requests[i].in_flight) host_pause(x->host, c->requests[i].id);
    }
}

static void proceed(exchange *x) {
    exchange_core *c = x->core;
    submit_more(x);
    if (!c->over && !c->replied && !c->failed && c->sink && c->requests_over == c->work.n_requests) {
        if (c->work.on_reply && !c->work.stream_type)
            c->work.on_reply(x);
        else
            c->work.on_over(x);
        if (c->streaming)
            c->over = true;
        else if (!c->replied)
            exchange_error(x, 500, NULL, NULL, "no answer was written");
    }
    if (!c->sink) {
        exchange_settle(x);
        return;
    }
    if (exchange_flush(x) && !c->paused && c->sink->kind->congested(c->sink)) hold_back(x);
}

static void take_posted(post *p) {
    request  *r = (request *)((char *)p - offsetof(request, post));
    exchange *x = r->x;
    drain(x, r);
    proceed(x);
}

/* What waited while the exchange was paused. */
static void post_due(exchange *x, request *r) {
    pthread_mutex_lock(&r->lock);
    bool due = r->slabs && !r->posted;
    if (due) r->posted = true;
    pthread_mutex_unlock(&r->lock);
    if (due) server_post(x->server, &r->post);
}

void requests_resume(exchange *x) {
    exchange_core *c = x->core;
    if (!c->paused || c->sink->kind->congested(c->sink)) return;
    c->paused = false;
    for (size_t i = 0; i < c->next_request; i++) {
        if (c->requests[i].in_flight) host_resume(x->host, c->requests[i].id);
        post_due(x, &c->requests[i]);
    }
    if (c->next_request < c->work.n_requests) proceed(x);
}

void requests_cancel(exchange *x) {
    exchange_core *c = x->core;
    cancel_all(x);
    for (size_t i = 0; c->paused && i < c->next_request; i++) post_due(x, &c->requests[i]);
    c->paused = false;
}

void requests_free(exchange *x) {
    exchange_core *c = x->core;
    for (size_t i = 0; c->requests && i < c->work.n_requests; i++) {
        slab *list = c->requests[i].slabs;
        while (list) {
            slab *next = list->next;
            free(list);
            list = next;
        }
        free(c->requests[i].spare);
        pthread_mutex_destroy(&c->requests[i].lock);
    }
    free(c->requests);
    c->requests = NULL;
}
