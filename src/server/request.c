/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs: one inference request each, between the host's threads and the I/O thread.
 *
 * An event is copied into the job's list under its lock; the first one of a batch posts the job, which wakes the I/O
 * thread once however many jobs a step has fed. The I/O thread takes the whole list and hands the events to the
 * adapter. While the client's socket is congested the list stays where it is and the model pauses these requests; other
 * streams do not notice. conn.c gives up a client that reads nothing for stall_seconds; one whose events, made before
 * the pause took hold, are more than stream_bytes is given up at once. Nothing is ever dropped from a stream that goes
 * on.
 *
 * Events lie in slabs one behind the other, of which a job keeps one: a token costs no allocation.
 *
 * A job counts as in flight until its event with `last` was taken.
 */
#include "server/internal.h"

#include <stdlib.h>
#include <string.h>

enum { SLAB_BYTES = 4000 };

typedef struct slab slab;
struct slab {
    slab  *next;
    size_t used, cap;
    _Alignas(16) char data[];
};

/* bytes long in all, then comes the next one of its slab. */
typedef struct item {
    int64_t       at_us;
    size_t        bytes;
    runtime_event ev; /* its pointers lead behind this struct */
} item;

struct job {
    post      post;
    exchange *x;
    size_t    index;
    uint64_t  id;
    bool      in_flight;

    pthread_mutex_t lock; /* guards the rest */
    slab           *slabs, *last, *spare;
    size_t          bytes;
    bool            posted, lost, last_lost;
};

/* --- copying; any thread --- */

static char *keep(char **at, const void *data, size_t n) {
    char *p = *at;
    if (n) memcpy(p, data, n);
    *at += (n + 7) & ~(size_t)7;
    return p;
}

static view keep_view(char **at, view v) { return (view){ keep(at, v.data, v.len), v.len }; }

/* Room for one item at the end of the job's slabs, which are locked. */
static void *add_room(job *j, size_t bytes) {
    slab *s = j->last;
    if (!s || s->cap - s->used < bytes) {
        if (j->spare && j->spare->cap >= bytes) {
            s = j->spare;
            j->spare = NULL;
        } else {
            size_t cap = bytes > SLAB_BYTES ? bytes : SLAB_BYTES;
            s = malloc(sizeof *s + cap);
            if (!s) return NULL;
            s->cap = cap;
        }
        s->next = NULL;
        s->used = 0;
        *(j->last ? &j->last->next : &j->slabs) = s;
        j->last = s;
    }
    void *p = s->data + s->used;
    s->used += bytes;
    j->bytes += bytes;
    return p;
}

static item *copy_event(job *j, const runtime_event *ev) {
    size_t n_top = ev->top && ev->n_top > 0 ? (size_t)ev->n_top : 0;
    size_t n_vector = ev->vector && ev->n_vector > 0 ? (size_t)ev->n_vector : 0;
    size_t bytes = sizeof(item) + ev->text.len + ev->id.len + ev->name.len + ev->bytes.len +
                   n_top * sizeof(runtime_top) + n_vector * sizeof(float) + (ev->error ? sizeof *ev->error : 0) +
                   ev->n_context * sizeof *ev->context + 8 * (8 + n_top);
    for (size_t i = 0; i < n_top; i++) bytes += ev->top[i].bytes.len;
    bytes = (bytes + 15) & ~(size_t)15;
    item *it = add_room(j, bytes);
    if (!it) return NULL;
    char *at = (char *)(it + 1);
    it->bytes = bytes;
    it->at_us = mono_us();
    it->ev = *ev;
    runtime_top *top = (runtime_top *)(void *)keep(&at, ev->top, n_top * sizeof *top);
    it->ev.top = n_top ? top : NULL;
    it->ev.n_top = (int)n_top;
    it->ev.vector = (const float *)(void *)keep(&at, ev->vector, n_vector * sizeof(float));
    it->ev.n_vector = (int)n_vector;
    it->ev.context = (const int32_t *)(void *)keep(&at, ev->context, ev->n_context * sizeof *ev->context);
    it->ev.text = keep_view(&at, ev->text);
    it->ev.id = keep_view(&at, ev->id);
    it->ev.name = keep_view(&at, ev->name);
    it->ev.bytes = keep_view(&at, ev->bytes);
    for (size_t i = 0; i < n_top; i++) top[i].bytes = keep_view(&at, ev->top[i].bytes);
    if (ev->error) it->ev.error = (const err *)(void *)keep(&at, ev->error, sizeof *ev->error);
    return it;
}

static void on_event(void *ctx, const runtime_event *ev) {
    job *j = ctx;
    pthread_mutex_lock(&j->lock);
    if (!copy_event(j, ev)) {
        j->lost = true;
        j->last_lost |= ev->last;
    }
    bool first = !j->posted;
    j->posted = true;
    server *s = j->x->server;
    pthread_mutex_unlock(&j->lock);
    /* After the last event the job may be gone as soon as the I/O thread sees it: it can only see it once it is posted.
     */
    if (first) server_post(s, &j->post);
}

/* --- the I/O thread --- */

static void submit_more(exchange *x) {
    exchange_core *c = x->core;
    while (!c->over && !c->failed && !c->paused && c->next_job < c->work.n_requests && c->in_flight < JOBS_IN_FLIGHT) {
        job             *j = &c->jobs[c->next_job++];
        runtime_request *q = &c->work.requests[j->index];
        err              e = { 0 };
        q->on_event = on_event;
        q->ctx = j;
        j->in_flight = true;
        c->in_flight++;
        if (host_submit(x->host, c->work.model, q, c->work.keep_alive_ms, &j->id, &e) < 0) {
            j->in_flight = false;
            c->in_flight--;
            exchange_fail(x, &e);
        }
    }
}

static void note(exchange *x, const item *it) {
    exchange_core *c = x->core;
    metrics       *m = &x->server->metrics;
    switch (it->ev.kind) {
    case RUNTIME_STARTED: c->prompt_tokens += it->ev.prompt_tokens; break;
    case RUNTIME_CONTENT:
    case RUNTIME_REASONING:
    case RUNTIME_TOOL_BEGIN:
    case RUNTIME_TOOL_ARGUMENTS:
        if (!c->first_token_us) {
            c->first_token_us = it->at_us;
            metrics_observe(&m->first_token, (double)(it->at_us - c->begin_us) / 1e6);
        } else {
            metrics_observe(&m->inter_token, (double)(it->at_us - c->last_token_us) / 1e6);
        }
        c->last_token_us = it->at_us;
        break;
    case RUNTIME_DONE:
        c->generated_tokens += it->ev.usage.generated_tokens;
        if (it->ev.choice <= 0) c->cached_tokens += it->ev.usage.cached_tokens;
        if (it->ev.choice <= 0) m->prompt_tokens += (uint64_t)it->ev.usage.prompt_tokens;
        if (it->ev.choice <= 0) m->cached_tokens += (uint64_t)it->ev.usage.cached_tokens;
        m->generated_tokens += (uint64_t)it->ev.usage.generated_tokens;
        break;
    default: break;
    }
}

static void take_event(exchange *x, job *j, const item *it) {
    exchange_core *c = x->core;
    note(x, it);
    if (it->ev.last) {
        j->in_flight = false;
        c->in_flight--;
        c->jobs_over++;
    }
    if (c->over || c->replied || !c->conn) return;
    if (it->ev.kind == RUNTIME_ERROR) {
        exchange_fail(x, it->ev.error);
        return;
    }
    if (it->ev.kind == RUNTIME_DONE && it->ev.finish == RUNTIME_CANCELLED) {
        err e = { 0 };
        err_set(&e, ERR_CANCELLED, "the request was cancelled");
        exchange_fail(x, &e);
        return;
    }
    if (it->ev.kind == RUNTIME_STARTED) exchange_begin_stream(x);
    c->work.on_event(x, j->index, &it->ev);
}

/* Hands over what has arrived, unless the socket is full. Only for a job whose post was just taken: the post must not
 * be in the server's list when `posted` is cleared, and the thread of the last event must be done with the job. */
static void drain(exchange *x, job *j) {
    exchange_core *c = x->core;
    bool           lost, last_lost, wait = c->paused && c->conn && !c->over;
    pthread_mutex_lock(&j->lock);
    bool full = j->bytes > x->server->options.stream_bytes;
    if (wait && !full) {
        j->posted = false;
        pthread_mutex_unlock(&j->lock);
        return;
    }
    slab *list = j->slabs, *kept = NULL;
    j->slabs = j->last = NULL;
    j->bytes = 0;
    j->posted = false;
    lost = j->lost;
    last_lost = j->last_lost;
    pthread_mutex_unlock(&j->lock);
    if (wait) conn_free(c->conn); /* detaches x, which stays for its jobs */
    while (list) {
        slab *s = list;
        list = s->next;
        for (size_t at = 0; at < s->used;) {
            const item *it = (const item *)(void *)(s->data + at);
            at += it->bytes;
            take_event(x, j, it);
        }
        if (s->cap == SLAB_BYTES && !kept)
            kept = s;
        else
            free(s);
    }
    pthread_mutex_lock(&j->lock);
    slab *other = j->spare;
    j->spare = kept;
    pthread_mutex_unlock(&j->lock);
    free(other);
    if (lost) {
        err e = { 0 };
        err_set_nomem(&e);
        exchange_fail(x, &e);
    }
    if (last_lost && j->in_flight) {
        j->in_flight = false;
        c->in_flight--;
    }
}

/* The client reads more slowly than the model writes. */
static void hold_back(exchange *x) {
    exchange_core *c = x->core;
    c->paused = true;
    for (size_t i = 0; i < c->next_job; i++) {
        if (c->jobs[i].in_flight) host_pause(x->host, c->jobs[i].id);
    }
}

static void proceed(exchange *x) {
    exchange_core *c = x->core;
    submit_more(x);
    if (!c->over && !c->replied && !c->failed && c->conn && c->jobs_over == c->work.n_requests) {
        c->work.on_over(x);
        if (c->streaming)
            c->over = true;
        else if (!c->replied)
            exchange_error(x, 500, NULL, NULL, "no answer was written");
    }
    if (!c->conn) {
        exchange_settle(x);
        return;
    }
    if (exchange_flush(x) && !c->paused && conn_congested(c->conn)) hold_back(x);
}

static void take_posted(post *p) {
    job      *j = (job *)((char *)p - offsetof(job, post));
    exchange *x = j->x;
    drain(x, j);
    proceed(x);
}

void jobs_start(exchange *x) {
    exchange_core *c = x->core;
    c->jobs = calloc(c->work.n_requests, sizeof *c->jobs);
    if (!c->jobs) {
        exchange_error(x, 503, "out_of_memory", NULL, "out of memory");
        return;
    }
    for (size_t i = 0; i < c->work.n_requests; i++) {
        job *j = &c->jobs[i];
        j->x = x;
        j->index = i;
        j->post.take = take_posted;
        pthread_mutex_init(&j->lock, NULL);
    }
    submit_more(x);
}

/* What waited while the exchange was paused. */
static void post_due(exchange *x, job *j) {
    pthread_mutex_lock(&j->lock);
    bool due = j->slabs && !j->posted;
    if (due) j->posted = true;
    pthread_mutex_unlock(&j->lock);
    if (due) server_post(x->server, &j->post);
}

void jobs_resume(exchange *x) {
    exchange_core *c = x->core;
    if (!c->paused || conn_congested(c->conn)) return;
    c->paused = false;
    for (size_t i = 0; i < c->next_job; i++) {
        if (c->jobs[i].in_flight) host_resume(x->host, c->jobs[i].id);
        post_due(x, &c->jobs[i]);
    }
    if (c->next_job < c->work.n_requests) proceed(x);
}

void jobs_cancel(exchange *x) {
    exchange_core *c = x->core;
    for (size_t i = 0; i < c->next_job; i++) {
        if (c->jobs[i].in_flight) host_cancel(x->host, c->jobs[i].id);
        if (c->paused) post_due(x, &c->jobs[i]);
    }
    c->paused = false;
}

void jobs_free(exchange *x) {
    exchange_core *c = x->core;
    for (size_t i = 0; c->jobs && i < c->work.n_requests; i++) {
        slab *list = c->jobs[i].slabs;
        while (list) {
            slab *next = list->next;
            free(list);
            list = next;
        }
        free(c->jobs[i].spare);
        pthread_mutex_destroy(&c->jobs[i].lock);
    }
    free(c->jobs);
    c->jobs = NULL;
}
