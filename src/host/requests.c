/* SPDX-License-Identifier: Apache-2.0 */
/* Requests and calls on their way to a worker and back. */
#include "base/log.h"
#include "host/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int ticket_enlist(host *h, model *m, ticket *t, err *e) {
    if (h->n_tickets >= HOST_MAX_REQUESTS)
        return err_set(e, ERR_BUSY, "%d requests are under way already", HOST_MAX_REQUESTS);
    do {
        t->id = ++h->next_id;
    } while (h->slots[t->id % HOST_MAX_REQUESTS]);
    h->slots[t->id % HOST_MAX_REQUESTS] = t;
    h->n_tickets++;
    t->model = m;
    t->since = host_now_ms();
    t->next = m->tickets;
    if (t->next) t->next->prev = t;
    m->tickets = t;
    return 0;
}

void ticket_end(host *h, ticket *t) {
    model *m = t->model;
    h->slots[t->id % HOST_MAX_REQUESTS] = NULL;
    *(t->prev ? &t->prev->next : &m->tickets) = t->next;
    if (t->next) t->next->prev = t->prev;
    t->prev = t->next = NULL;
    if (t->sent) m->users--;
    if (t->sent && t->paused) m->paused--;
    h->n_tickets--;
    m->last_used = host_now_ms();
    if (m->users == 0) pthread_cond_signal(&h->keeper_wake);
}

void ticket_fail(ticket *t, const err *why) {
    runtime_event ev = { .kind = RUNTIME_ERROR, .choice = -1, .last = true, .error = why };
    t->q->on_event(t->q->ctx, &ev);
    free(t);
}

void ticket_steer(ticket *t, wire_type how) {
    str s;
    if (!t->sent || t->sending || !t->model->child) return; /* ticket_send sees the marks */
    str_init(&s);
    if (wire_put_empty(&s, how, t->id, NULL) == 0) (void)child_send(t->model->child, s.data, s.len, NULL);
    str_deinit(&s);
}

/* The worker ended before it could see the request: it waits for the next one. */
static void go_back(model *m, ticket *t) {
    t->sent = t->orphan = false;
    m->users--;
    if (t->paused) m->paused--;
    m->wanted = true;
    if (m->phase == MODEL_UP) m->phase = MODEL_STOPPING; /* by itself; nothing more is sent */
    pthread_cond_signal(&m->host->keeper_wake);
}

/* The frame is made without the lock: it may be megabytes. */
void ticket_send(host *h, ticket *t) {
    model *m = t->model;
    child *c = m->child;
    err    e = { 0 };
    str    s;
    t->sent = t->sending = true;
    m->users++;
    m->holders++;
    if (t->paused) m->paused++;
    pthread_mutex_unlock(&h->lock);
    str_init(&s);
    int rc = wire_put_request(&s, WIRE_SUBMIT, t->id, t->q, &e);
    if (rc == 0) rc = child_send(c, s.data, s.len, &e);
    str_deinit(&s);
    pthread_mutex_lock(&h->lock);
    t->sending = false;
    model_release(m);
    if (t->ended) {
        free(t);
    } else if (rc == ERR_IO && !t->cancelled) {
        go_back(m, t);
    } else if (rc < 0 || t->orphan) {
        if (rc == 0) e = m->end_why;
        ticket_end(h, t);
        pthread_mutex_unlock(&h->lock);
        ticket_fail(t, &e);
        pthread_mutex_lock(&h->lock);
    } else {
        if (t->paused) ticket_steer(t, WIRE_PAUSE);
        if (t->cancelled) ticket_steer(t, WIRE_CANCEL);
    }
}

void model_release(model *m) {
    if (--m->holders) return;
    if (m->phase != MODEL_UP || m->removed) pthread_cond_signal(&m->host->keeper_wake);
    if (m->host->closing) pthread_cond_broadcast(&m->host->changed);
}

bool model_has_waiting(const model *m) {
    for (const ticket *t = m->tickets; t; t = t->next) {
        if (!t->sent) return true;
    }
    return false;
}

void ticket_fail_waiting(host *h, model *m, uint64_t newest, const err *why) {
    for (;;) {
        ticket *t = m->tickets, *last = NULL;
        for (; t; t = t->next) {
            /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): an ended ticket is in no list */
            if (!t->sent && t->id <= newest) last = t; /* new ones stand in front: the oldest is told first */
        }
        if (!last) return;
        ticket_end(h, last);
        pthread_mutex_unlock(&h->lock);
        ticket_fail(last, why);
        pthread_mutex_lock(&h->lock);
    }
}

/* --- frames of a worker --- */

static int take_event(model *m, const wire_frame *f, err *e) {
    host         *h = m->host;
    runtime_event ev;
    int           rc = wire_get_event(f->body, &m->mem, &ev, e);
    if (rc < 0) return rc;
    pthread_mutex_lock(&h->lock);
    ticket                *t = h->slots[f->id % HOST_MAX_REQUESTS];
    const runtime_request *q = NULL;
    bool                   release = false;
    if (t && t->id == f->id && t->model == m && t->sent && t->q) q = t->q;
    if (q && ev.choice >= (q->n_choices > 1 ? q->n_choices : 1)) q = NULL;
    if (q && ev.kind == RUNTIME_DONE && ev.finish == RUNTIME_STOP_STRING &&
        (ev.stop_index < -1 || ev.stop_index >= (int)q->n_stop)) /* -1: a text of the settings */
        q = NULL;
    if (q && ev.last) {
        ticket_end(h, t);
        release = !t->sending;
        t->ended = true;
    }
    pthread_mutex_unlock(&h->lock);
    if (!q) return err_set(e, ERR_FORMAT, "an event that belongs to no request");
    if (release) free(t);
    q->on_event(q->ctx, &ev);
    return 0;
}

static int take_result(model *m, const wire_frame *f, err *e) {
    host       *h = m->host;
    wire_result r;
    int         rc = wire_get_result(f->body, &m->mem, &r, e);
    if (rc < 0) return rc;
    pthread_mutex_lock(&h->lock);
    ticket *t = h->slots[f->id % HOST_MAX_REQUESTS];
    if (!t || t->id != f->id || t->model != m || !t->sent || t->q || t->done) {
        pthread_mutex_unlock(&h->lock);
        return err_set(e, ERR_FORMAT, "a result that belongs to no call");
    }
    t->result = r.error;
    for (size_t i = 0; t->ids && i < r.n_ids && t->result.code == 0; i++) {
        if (!tok_ids_push(t->ids, r.ids[i])) err_set_nomem(&t->result);
    }
    if (t->text) str_append(t->text, r.text.data, r.text.len);
    if (t->text && !str_ok(t->text)) err_set_nomem(&t->result);
    if (t->count) *t->count = (size_t)r.count;
    t->done = true;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
    return 0;
}

static int take_ready(model *m, const wire_frame *f, err *e) {
    host        *h = m->host;
    runtime_info i;
    host_model  *d = &m->info;
    int          rc = wire_get_ready(f->body, &m->mem, &i, e);
    if (rc < 0) return rc;
    char *text = i.template_text ? strdup(i.template_text) : NULL;
    pthread_mutex_lock(&h->lock);
    if (m->phase != MODEL_LOADING && m->phase != MODEL_STOPPING) {
        pthread_mutex_unlock(&h->lock);
        free(text);
        return err_set(e, ERR_FORMAT, "a second READY");
    }
    snprintf(d->family, sizeof d->family, "%s", i.family ? i.family : "");
    snprintf(d->format, sizeof d->format, "%s", i.format ? i.format : "");
    snprintf(d->quant, sizeof d->quant, "%s", i.quant ? i.quant : "");
    d->n_params = i.n_params;
    d->file_bytes = i.file_bytes ? i.file_bytes : d->file_bytes;
    d->n_ctx = i.n_ctx;
    d->n_ctx_train = i.n_ctx_train;
    d->n_layer = i.n_layer;
    d->n_embd = i.n_embd;
    d->n_vocab = i.n_vocab;
    d->can_chat = i.can_chat;
    d->can_tools = i.can_tools;
    d->can_think = i.can_think;
    d->can_embed = i.can_embed;
    d->can_infill = i.can_infill;
    d->described = true;
    free(m->template_text);
    m->template_text = text;
    if (m->phase == MODEL_LOADING) {
        int64_t now = host_now_ms();
        m->phase = MODEL_UP;
        d->load_seconds = (double)(now - m->load_begin) / 1000;
        m->load_error = (err){ 0 };
        m->loads++;
        m->last_used = now;
        log_info("host", "loaded %s in %lld ms", d->name, (long long)(now - m->load_begin));
        pthread_cond_signal(&h->keeper_wake);
        pthread_cond_broadcast(&h->changed);
    }
    pthread_mutex_unlock(&h->lock);
    return 0;
}

/* With the lock held. */
static void load_failed(model *m, const err *why) {
    log_error("host", "cannot load %s: %s", m->info.name, why->msg);
    m->load_error = *why;
    m->failed_newest = m->host->next_id;
    m->load_failed = true;
    m->wanted = false; /* by those who are told; who comes from now on wants another attempt */
    m->loads++;
    pthread_cond_signal(&m->host->keeper_wake);
    pthread_cond_broadcast(&m->host->changed);
}

static int take_need(model *m, const wire_frame *f, err *e) {
    need          n;
    device_memory bytes = { 0 };
    int           rc = wire_get_need(f->body, &n, e);
    if (rc < 0) return rc;
    if (!device_memory_add_all(&bytes, &n.bytes)) return err_set(e, ERR_FORMAT, "a NEED with a device without a name");
    pthread_mutex_lock(&m->host->lock);
    m->need = bytes;
    m->info.need_bytes = device_memory_sum(&bytes);
    if (m->phase == MODEL_MEASURING) {
        m->phase = MODEL_IN_LINE;
        pthread_cond_signal(&m->host->keeper_wake);
    } else if (m->phase != MODEL_STOPPING) {
        rc = err_set(e, ERR_FORMAT, "a second NEED");
    }
    pthread_mutex_unlock(&m->host->lock);
    return rc;
}

static int take_failed(model *m, const wire_frame *f, err *e) {
    err why;
    int rc = wire_get_failed(f->body, &why, e);
    if (rc < 0) return rc;
    if (!why.code) err_set(&why, ERR_IO, "no reason was given");
    pthread_mutex_lock(&m->host->lock);
    if (m->phase == MODEL_LOADING || m->phase == MODEL_MEASURING) {
        load_failed(m, &why);
        m->phase = MODEL_STOPPING;
        child_stop(m->child);
    }
    pthread_mutex_unlock(&m->host->lock);
    return 0;
}

int model_take_frame(void *ctx, const wire_frame *f, err *e) {
    model *m = ctx;
    int    rc;
    float  fraction;
    switch (f->type) {
    case WIRE_EVENT: rc = take_event(m, f, e); break;
    case WIRE_RESULT: rc = take_result(m, f, e); break;
    case WIRE_READY: rc = take_ready(m, f, e); break;
    case WIRE_FAILED: rc = take_failed(m, f, e); break;
    case WIRE_NEED: rc = take_need(m, f, e); break;
    case WIRE_LOADING:
        rc = wire_get_loading(f->body, &fraction, e);
        pthread_mutex_lock(&m->host->lock);
        if (rc == 0) m->info.load_fraction = fraction;
        pthread_mutex_unlock(&m->host->lock);
        break;
    default: rc = err_set(e, ERR_FORMAT, "a frame that is not expected here"); break;
    }
    if (m->mem.used_bytes > (1 << 20))
        arena_deinit(&m->mem);
    else if (m->mem.used_bytes)
        arena_reset(&m->mem);
    return rc;
}

child_activity model_activity(void *ctx) {
    model         *m = ctx;
    child_activity is = CHILD_IDLE;
    pthread_mutex_lock(&m->host->lock);
    if (m->phase == MODEL_MEASURING || m->phase == MODEL_LOADING)
        is = CHILD_LOADING;
    else if (m->users > m->paused)
        is = CHILD_WORKING;
    pthread_mutex_unlock(&m->host->lock);
    return is;
}

/* --- its end --- */

/* Takes what was sent to the worker out of the lists; calls are answered here. */
static ticket *take_sent(host *h, model *m, const err *why) {
    ticket *chain = NULL;
    for (ticket *t = m->tickets, *next; t; t = next) {
        next = t->next;
        if (!t->sent || t->done) continue;
        if (!t->q) {
            t->result = *why;
            t->done = true;
        } else if (t->sending) {
            t->orphan = true;
        } else {
            ticket_end(h, t);
            t->next = chain;
            chain = t;
        }
    }
    return chain;
}

void model_add_counters(runtime_stats *to, const runtime_stats *s) {
    to->engine.steps += s->engine.steps;
    to->engine.tokens_evaluated += s->engine.tokens_evaluated;
    to->engine.tokens_cached += s->engine.tokens_cached;
    to->engine.tokens_generated += s->engine.tokens_generated;
    to->engine.preemptions += s->engine.preemptions;
    to->engine.failed_steps += s->engine.failed_steps;
    to->engine.evictions += s->engine.evictions;
    to->requests += s->requests;
    to->errors += s->errors;
    to->cancelled += s->cancelled;
    to->grammar_hits += s->grammar_hits;
    to->grammar_misses += s->grammar_misses;
}

void model_take_end(void *ctx, const child_end *end) {
    model   *m = ctx;
    host    *h = m->host;
    uint64_t identity = end->crashed ? quarantine_identity(m->info.path) : 0;
    pthread_mutex_lock(&h->lock);
    m->end_why = end->why;
    if (end->asked) {
        log_info("host", "unloaded %s", m->info.name);
    } else {
        log_error("host", "%s: %s", m->info.name, end->why.msg);
        h->crashes++;
        m->info.crashes++;
        if (end->crashed && quarantine_note(&h->quarantine, identity, host_now_ms()))
            log_error("host", "%s: its workers crashed %d times; it is not loaded again before the file changes",
                      m->info.name, QUARANTINE_CRASHES);
    }
    if (m->phase == MODEL_LOADING || m->phase == MODEL_MEASURING || m->phase == MODEL_IN_LINE)
        load_failed(m, &end->why);
    model_add_counters(&h->gone, &end->stats);
    m->phase = MODEL_OVER; /* the keeper waits for this thread's end before it touches the child */
    ticket *chain = take_sent(h, m, &end->why);
    pthread_cond_signal(&h->keeper_wake);
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
    while (chain) {
        ticket *t = chain;
        chain = t->next;
        ticket_fail(t, &end->why);
    }
}
