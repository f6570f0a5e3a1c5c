/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a request: copied in, listed, counted, its events numbered off, freed. */
#include "base/clock.h"
#include "runtime/internal.h"

#include <stdlib.h>
#include <string.h>

void runtime_request_init(runtime_request *q) {
    *q = (runtime_request){ .parallel_tools = true, .thinking_budget = -1, .n_choices = 1 };
    sampling_params_default(&q->sampling);
}

int request_mistake(err *e, int rc, const char *field) {
    if (rc == ERR_FORMAT || rc == ERR_NOTFOUND) e->code = rc = ERR_ARG;
    return err_wrap(e, rc, "%s", field);
}

/* --- copying --- */

static bool keep_view(arena *a, view *v) {
    char *copy = arena_strndup(a, v->len ? v->data : "", v->len);
    v->data = copy;
    return copy != NULL;
}

static bool keep_views(arena *a, const view **list, size_t n) {
    view *copy = arena_calloc(a, n + 1, sizeof *copy);
    if (!copy) return false;
    for (size_t i = 0; i < n; i++) {
        copy[i] = (*list)[i];
        if (!keep_view(a, &copy[i])) return false;
    }
    *list = copy;
    return true;
}

static const void *keep(arena *a, const void *data, size_t n, size_t bytes) {
    void *copy = arena_calloc(a, n + 1, bytes);
    if (copy && n) memcpy(copy, data, n * bytes);
    return copy;
}

static bool keep_lora(arena *a, const runtime_lora **list, size_t n) {
    runtime_lora *copy = arena_calloc(a, n + 1, sizeof *copy);
    for (size_t i = 0; copy && i < n; i++) {
        copy[i] = (*list)[i];
        if (!keep_view(a, &copy[i].path)) return false;
    }
    *list = copy;
    return copy != NULL;
}

static bool keep_stops(request *x) {
    size_t n = x->q.n_stop;
    x->stop = arena_calloc(&x->mem, n + 1, sizeof *x->stop);
    x->stop_bytes = arena_calloc(&x->mem, n + 1, sizeof *x->stop_bytes);
    for (size_t i = 0; x->stop && x->stop_bytes && i < n; i++) {
        x->stop[i] = x->q.stop[i].data;
        x->stop_bytes[i] = x->q.stop[i].len;
    }
    return x->stop && x->stop_bytes;
}

static bool keep_request(request *x) {
    runtime_request *q = &x->q;
    arena           *a = &x->mem;
    view *texts[] = { &q->messages,  &q->tools,  &q->template_vars,   &q->template_text, &q->text,      &q->suffix,
                      &q->tool_name, &q->effort, &q->constraint.text, &q->prompt_name,   &q->prediction };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (!keep_view(a, texts[i])) return false;
    sampling_params *p = &q->sampling;
    return keep_lora(a, &q->lora, q->n_lora) && keep_views(a, &q->blobs, q->n_blobs) &&
           keep_views(a, &q->stop, q->n_stop) && keep_views(a, &q->dry_breakers, q->n_dry_breakers) &&
           (q->tokens = keep(a, q->tokens, q->n_tokens, sizeof *q->tokens)) &&
           (p->bias = keep(a, p->bias, p->n_bias, sizeof *p->bias)) &&
           (p->dry_breakers = keep(a, p->dry_breakers, p->n_dry_breakers, sizeof *p->dry_breakers)) &&
           (x->choices = arena_calloc(a, (size_t)q->n_choices, sizeof *x->choices)) &&
           (x->top = arena_calloc(a, (size_t)q->n_top + 1, sizeof *x->top)) && keep_stops(x);
}

static int own_wishes(request *x, const runtime_settings *s, err *e) {
    x->q.settings = x->settings = runtime_settings_copy(s);
    return x->settings ? settings_read(x->owner, x->settings, &x->mem, &x->wishes, e) : err_set_nomem(e);
}

/* Copies what is asked for; the caller has the one reference. */
static int request_open(request **out, runtime *r, const runtime_request *q, err *e) {
    *out = NULL;
    request *x = calloc(1, sizeof *x);
    if (!x) return err_set_nomem(e);
    x->owner = r;
    x->refs = 1;
    x->q = *q;
    x->wishes = r->wishes;
    x->heard.language = -1;
    x->submitted_at = clock_s();
    if (x->q.n_choices < 1) x->q.n_choices = 1;
    x->n_open = x->n_engine_open = x->n_unstopped = x->q.n_choices;
    arena_init(&x->mem, 0);
    str_init(&x->bytes);
    pthread_mutex_init(&x->order, NULL);
    int rc = q->settings ? own_wishes(x, q->settings, e) : 0;
    if (rc == 0) {
        settings_fill(&x->wishes, &x->q);
        x->owner_stops = q->n_stop == 0 && x->q.n_stop > 0;
        if (!keep_request(x)) rc = err_set_nomem(e);
    }
    if (rc < 0)
        request_unref(x);
    else
        *out = x;
    return rc;
}

/* --- references and the list --- */

static void request_free(request *x) {
    answer_close(x);
    adapters_give_back(x->owner->adapters, x->set);
    runtime_settings_free(x->settings);
    str_deinit(&x->bytes);
    tok_ids_deinit(&x->context);
    arena_deinit(&x->mem);
    pthread_mutex_destroy(&x->order);
    free(x);
}

void request_ref(request *x) {
    pthread_mutex_lock(&x->owner->lock);
    x->refs++;
    pthread_mutex_unlock(&x->owner->lock);
}

void request_unref(request *x) {
    runtime *r = x->owner;
    pthread_mutex_lock(&r->lock);
    bool gone = --x->refs == 0;
    if (gone && x->id) {
        *(x->prev ? &x->prev->next : &r->first) = x->next;
        *(x->next ? &x->next->prev : &r->last) = x->prev;
    }
    pthread_mutex_unlock(&r->lock);
    if (gone) request_free(x);
}

bool request_is_cancelled(request *x) {
    pthread_mutex_lock(&x->owner->lock);
    bool yes = x->cancelled;
    pthread_mutex_unlock(&x->owner->lock);
    return yes;
}

int runtime_submit(runtime *r, const runtime_request *q, uint64_t *id, err *e) {
    request *x;
    if (!q->on_event) return err_set(e, ERR_ARG, "a request needs a callback");
    if (q->n_top < 0 || q->n_top > 20) return err_set(e, ERR_ARG, "top_logprobs: %d is not between 0 and 20", q->n_top);
    if (q->n_choices < 0 || q->n_choices > 128)
        return err_set(e, ERR_ARG, "n: %d is not between 1 and 128", q->n_choices);
    if (q->n_lora > RUNTIME_MAX_LORA)
        return err_set(e, ERR_ARG, "lora: at most %d adapters can be used at once", RUNTIME_MAX_LORA);
    int rc = request_open(&x, r, q, e);
    if (rc < 0) return rc;
    pthread_mutex_lock(&r->lock);
    *id = x->id = ++r->next_id;
    x->prev = r->last;
    *(r->last ? &r->last->next : &r->first) = x;
    r->last = x;
    r->stats.requests++;
    pthread_mutex_unlock(&r->lock);
    if (queue_try_push(x->q.n_blobs && r->looking ? r->looking : r->incoming, x)) return 0;
    rc = err_set(e, ERR_BUSY, "the queue is full: %zu requests are waiting to be prepared", queue_count(r->incoming));
    request_unref(x);
    return rc;
}

void runtime_cancel(runtime *r, uint64_t id) {
    pthread_mutex_lock(&r->lock);
    for (request *x = r->first; x; x = x->next) {
        if (x->id != id) continue;
        x->cancelled = true;
        if (x->engine_id) engine_cancel(r->engine, x->engine_id);
    }
    pthread_mutex_unlock(&r->lock);
}

static void set_paused(runtime *r, uint64_t id, bool paused) {
    pthread_mutex_lock(&r->lock);
    for (request *x = r->first; x; x = x->next) {
        if (x->id != id) continue;
        x->paused = paused;
        if (x->engine_id) (paused ? engine_pause : engine_resume)(r->engine, x->engine_id);
    }
    pthread_mutex_unlock(&r->lock);
}

void runtime_pause(runtime *r, uint64_t id) { set_paused(r, id, true); }

void runtime_resume(runtime *r, uint64_t id) { set_paused(r, id, false); }

/* --- events --- */

void request_emit(request *x, runtime_event *ev) {
    if (ev->kind == RUNTIME_DONE || ev->kind == RUNTIME_ERROR) {
        if (ev->choice >= 0) x->choices[ev->choice].over = true;
        x->n_open = ev->choice < 0 ? 0 : x->n_open - 1;
        ev->last = x->n_open == 0;
        pthread_mutex_lock(&x->owner->lock);
        x->owner->stats.errors += ev->kind == RUNTIME_ERROR;
        x->owner->stats.cancelled += ev->kind == RUNTIME_DONE && ev->finish == RUNTIME_CANCELLED;
        pthread_mutex_unlock(&x->owner->lock);
    }
    x->q.on_event(x->q.ctx, ev);
}

void request_fail(request *x, const err *why) {
    runtime_event ev = { .kind = RUNTIME_ERROR, .choice = -1, .error = why };
    pthread_mutex_lock(&x->order);
    request_emit(x, &ev);
    pthread_mutex_unlock(&x->order);
}

void request_end_cancelled(request *x) {
    pthread_mutex_lock(&x->order);
    for (int i = 0; i < x->q.n_choices; i++) {
        runtime_event ev = { .kind = RUNTIME_DONE, .choice = i, .finish = RUNTIME_CANCELLED };
        ev.usage.prepare_s = clock_s() - x->submitted_at;
        request_emit(x, &ev);
    }
    pthread_mutex_unlock(&x->order);
}
