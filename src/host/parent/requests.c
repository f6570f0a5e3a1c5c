/* SPDX-License-Identifier: Apache-2.0 */
/* Requests and calls on their way to a worker and back. */
#include "base/clock.h"
#include "base/log.h"
#include "host/parent/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int host_request_enlist(host *h, model *m, host_request *r, err *e) {
    if (h->n_requests >= HOST_MAX_REQUESTS)
        return err_set(e, ERR_BUSY, "%d requests are under way already", HOST_MAX_REQUESTS);
    do {
        r->id = ++h->next_id;
    } while (h->slots[r->id % HOST_MAX_REQUESTS]);
    h->slots[r->id % HOST_MAX_REQUESTS] = r;
    h->n_requests++;
    r->named = m;
    r->model = m = model_carrier(m);
    r->named->asked++;
    r->since = clock_ms();
    r->next = m->requests;
    if (r->next) r->next->prev = r;
    m->requests = r;
    return 0;
}

void host_request_end(host *h, host_request *r) {
    model *m = r->model;
    h->slots[r->id % HOST_MAX_REQUESTS] = NULL;
    *(r->prev ? &r->prev->next : &m->requests) = r->next;
    if (r->next) r->next->prev = r->prev;
    r->prev = r->next = NULL;
    if (r->sent) m->users--;
    if (r->sent && r->paused) m->paused--;
    h->n_requests--;
    r->named->asked--;
    m->last_used = r->named->last_used = clock_ms();
    if (r->named->removed) pthread_cond_signal(&h->keeper_wake);
    if (m->users == 0) pthread_cond_signal(&h->keeper_wake);
}

void host_request_fail(host_request *r, const err *why) {
    host_event ev = { .kind = RUNTIME_ERROR, .choice = -1, .last = true, .error = why };
    r->on_event(r->ctx, &ev);
    free(r);
}

void host_request_steer(host_request *r, wire_type how) {
    str s;
    if (!r->sent || r->sending || !r->model->child) return; /* host_request_send sees the marks */
    str_init(&s);
    if (wire_put_empty(&s, how, r->id, NULL) == 0) (void)child_send(r->model->child, s.data, s.len, NULL);
    str_deinit(&s);
}

/* The worker ended before it could see the request: it waits for the next one. */
static void go_back(model *m, host_request *r) {
    r->sent = r->orphan = false;
    m->users--;
    if (r->paused) m->paused--;
    m->wanted = true;
    if (m->phase == MODEL_UP) m->phase = MODEL_STOPPING; /* by itself; nothing more is sent */
    pthread_cond_signal(&m->host->keeper_wake);
}

/* The frame is made without the lock: it may be megabytes. */
void host_request_send(host *h, host_request *r) {
    model *m = r->model;
    child *c = m->child;
    err    e = { 0 };
    str    s;
    r->sent = r->sending = true;
    m->users++;
    m->holders++;
    if (r->paused) m->paused++;
    pthread_mutex_unlock(&h->lock);
    str_init(&s);
    runtime_request q = *r->q;
    q.settings = model_wishes(r->named); /* they stay: the name is in use */
    int rc = wire_put_request(&s, WIRE_SUBMIT, r->id, &q, &e);
    pthread_mutex_lock(&h->lock);
    r->encoded = true;
    pthread_mutex_unlock(&h->lock);
    if (rc == 0) rc = child_send(c, s.data, s.len, &e);
    str_deinit(&s);
    pthread_mutex_lock(&h->lock);
    r->sending = r->encoded = false;
    model_release(m);
    if (r->ended) {
        free(r);
    } else if (rc == ERR_IO && !r->cancelled) {
        go_back(m, r);
    } else if (rc < 0 || r->orphan) {
        if (rc == 0) e = m->end_why;
        host_request_end(h, r);
        pthread_mutex_unlock(&h->lock);
        host_request_fail(r, &e);
        pthread_mutex_lock(&h->lock);
    } else {
        if (r->paused) host_request_steer(r, WIRE_PAUSE);
        if (r->cancelled) host_request_steer(r, WIRE_CANCEL);
    }
}

void model_release(model *m) {
    if (--m->holders) return;
    if (m->phase != MODEL_UP || m->removed) pthread_cond_signal(&m->host->keeper_wake);
    if (m->host->closing) pthread_cond_broadcast(&m->host->changed);
}

bool model_has_waiting(const model *m) {
    for (const host_request *r = m->requests; r; r = r->next) {
        if (!r->sent) return true;
    }
    return false;
}

void host_request_fail_waiting(host *h, model *m, uint64_t newest, const err *why) {
    for (;;) {
        host_request *r = m->requests, *last = NULL;
        for (; r; r = r->next) {
            /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): an ended request is in no list */
            if (!r->sent && r->id <= newest) last = r; /* new ones stand in front: the oldest is told first */
        }
        if (!last) return;
        host_request_end(h, last);
        pthread_mutex_unlock(&h->lock);
        host_request_fail(last, why);
        pthread_mutex_lock(&h->lock);
    }
}

/* --- frames of a worker --- */

/* Only the beginning of an event is looked at here: it is read where it is used. */
static int take_event(model *m, const wire_frame *f, err *e) {
    host           *h = m->host;
    wire_event_head head;
    int             rc = wire_get_event_head(f->body, &head, e);
    if (rc < 0) return rc;
    host_event ev = { .kind = head.kind, .choice = head.choice, .last = head.last, .body = f->body };
    void (*on_event)(void *ctx, const host_event *ev) = NULL;
    void *ctx = NULL;
    bool  release = false;
    pthread_mutex_lock(&h->lock);
    host_request *r = h->slots[f->id % HOST_MAX_REQUESTS];
    /* A worker that talks about a request before it can know it would end it under its sender's hands. */
    bool known = r && r->id == f->id && r->model == m && r->q && r->sent && (!r->sending || r->encoded);
    /* Only an error may be of no choice: callers use the number as an index. */
    if (known && (head.choice >= 0 || head.kind == RUNTIME_ERROR) &&
        head.choice < (r->q->n_choices > 1 ? r->q->n_choices : 1)) {
        ev.worker = m->worker;
        on_event = r->on_event;
        ctx = r->ctx;
    }
    if (on_event && head.last) {
        host_request_end(h, r);
        release = !r->sending;
        r->ended = true;
    }
    pthread_mutex_unlock(&h->lock);
    if (!on_event) return err_set(e, ERR_FORMAT, "an event that belongs to no request");
    if (release) free(r);
    on_event(ctx, &ev);
    return 0;
}

static int take_result(model *m, const wire_frame *f, err *e) {
    host       *h = m->host;
    wire_result got;
    int         rc = wire_get_result(f->body, &m->mem, &got, e);
    if (rc < 0) return rc;
    pthread_mutex_lock(&h->lock);
    host_request *r = h->slots[f->id % HOST_MAX_REQUESTS];
    if (!r || r->id != f->id || r->model != m || !r->sent || r->q || r->done) {
        pthread_mutex_unlock(&h->lock);
        return err_set(e, ERR_FORMAT, "a result that belongs to no call");
    }
    r->result = got.error;
    for (size_t i = 0; r->ids && i < got.n_ids && r->result.code == 0; i++) {
        if (!tok_ids_push(r->ids, got.ids[i])) err_set_nomem(&r->result);
    }
    if (r->text) str_append(r->text, got.text.data, got.text.len);
    if (r->text && !str_ok(r->text)) err_set_nomem(&r->result);
    if (r->count) *r->count = (size_t)got.count;
    r->done = true;
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
    d->n_seqs = i.n_seqs;
    d->n_vocab = i.n_vocab;
    d->can_chat = i.can_chat;
    d->can_tools = i.can_tools;
    d->can_think = i.can_think;
    d->can_embed = i.can_embed;
    d->can_infill = i.can_infill;
    d->can_generate = i.can_generate;
    d->can_see = i.can_see;
    d->can_hear = i.can_hear;
    d->described = true;
    free(m->template_text);
    m->template_text = text;
    if (m->phase == MODEL_LOADING) {
        int64_t now = clock_ms();
        m->phase = MODEL_UP;
        d->load_seconds = (double)(now - m->load_begin) / 1000;
        m->load_error = (err){ 0 };
        m->loads++;
        for (model *o = h->models; o; o = o->next) {
            if (model_carrier(o) == m) o->last_used = now;
        }
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

/* How often a worker may say while it loads that the model will be somewhere else: a GPU that others use takes a smaller part
 * of it each time, then none. */
enum { MOST_MOVES = 20 };

static int take_need(model *m, const wire_frame *f, err *e) {
    need          n;
    device_memory bytes = { 0 };
    int           rc = wire_get_need(f->body, &n, e);
    if (rc < 0) return rc;
    if (!device_memory_add_all(&bytes, &n.bytes)) return err_set(e, ERR_FORMAT, "a NEED with a device without a name");
    pthread_mutex_lock(&m->host->lock);
    m->need = bytes;
    m->info.need = bytes;
    m->info.need_bytes = device_memory_sum(&bytes);
    snprintf(m->info.device, sizeof m->info.device, "%s", n.device);
    bool again =
        m->phase == MODEL_LOADING && m->moved < MOST_MOVES; /* it computes elsewhere, which needs a place of its own */
    if (m->phase == MODEL_MEASURING || again) {
        m->phase = MODEL_IN_LINE;
        m->placed = false;
        m->moved = again ? m->moved + 1 : 0;
        pthread_cond_signal(&m->host->keeper_wake);
    } else if (m->phase == MODEL_UP) { /* adapters came or went: others may have to make room, or fit now */
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
static host_request *take_sent(host *h, model *m, const err *why) {
    host_request *chain = NULL;
    for (host_request *r = m->requests, *next; r; r = next) {
        next = r->next;
        if (!r->sent || r->done) continue;
        if (!r->q) {
            r->result = *why;
            r->done = true;
        } else if (r->sending) {
            r->orphan = true;
        } else {
            host_request_end(h, r);
            r->next = chain;
            chain = r;
        }
    }
    return chain;
}

void model_add_stats(runtime_stats *to, const runtime_stats *s, bool up) {
    to->engine.steps += s->engine.steps;
    to->engine.step_s += s->engine.step_s;
    to->engine.between_s += s->engine.between_s;
    to->engine.tokens_evaluated += s->engine.tokens_evaluated;
    to->engine.tokens_cached += s->engine.tokens_cached;
    to->engine.tokens_generated += s->engine.tokens_generated;
    to->engine.preemptions += s->engine.preemptions;
    to->engine.drafts += s->engine.drafts;
    to->engine.drafted += s->engine.drafted;
    to->engine.accepted += s->engine.accepted;
    for (int i = 0; i < ENGINE_DRAFT_PLACES; i++) {
        to->engine.drafted_at[i] += s->engine.drafted_at[i];
        to->engine.accepted_at[i] += s->engine.accepted_at[i];
    }
    to->engine.failed_steps += s->engine.failed_steps;
    to->engine.evictions += s->engine.evictions;
    to->engine.experts.hits += s->engine.experts.hits;
    to->engine.experts.misses += s->engine.experts.misses;
    to->engine.experts.evicted += s->engine.experts.evicted;
    to->engine.experts.bytes += s->engine.experts.bytes;
    to->engine.experts.wait_s += s->engine.experts.wait_s;
    to->requests += s->requests;
    to->errors += s->errors;
    to->cancelled += s->cancelled;
    to->grammar_hits += s->grammar_hits;
    to->grammar_misses += s->grammar_misses;
    if (!up) return;
    to->preparing += s->preparing;
    to->grammars += s->grammars;
    to->engine.running += s->engine.running;
    to->engine.waiting += s->engine.waiting;
    to->engine.paused += s->engine.paused;
    to->engine.pages_total += s->engine.pages_total;
    to->engine.pages_unused += s->engine.pages_unused;
    to->engine.pages_cached += s->engine.pages_cached;
    to->engine.experts.slots += s->engine.experts.slots;
    to->engine.experts.experts += s->engine.experts.experts;
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
        if (end->crashed && quarantine_note(&h->quarantine, identity, clock_ms()))
            log_error("host", "%s: its workers crashed %d times; it is not loaded again before the file changes",
                      m->info.name, QUARANTINE_CRASHES);
    }
    if (m->phase == MODEL_LOADING || m->phase == MODEL_MEASURING || m->phase == MODEL_IN_LINE)
        load_failed(m, &end->why);
    model_add_stats(&h->gone, &end->stats, false);
    m->worker = ++h->last_worker; /* what it said is still read, but it cannot be ended again */
    m->phase = MODEL_OVER;        /* the keeper waits for this thread's end before it touches the child */
    host_request *chain = take_sent(h, m, &end->why);
    pthread_cond_signal(&h->keeper_wake);
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
    while (chain) {
        host_request *r = chain;
        chain = r->next;
        host_request_fail(r, &end->why);
    }
}
