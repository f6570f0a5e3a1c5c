/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers: the runtime's events, copied and kept until hearth_next asks for them, or handed to the caller's function.
 *
 * Every event is one block of memory: the structure, then its texts and numbers. An answer that nobody reads grows by
 * what the model writes, which max_tokens and the context bound.
 */
#include "api/api.h"
#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct node {
    struct node *next;
    hearth_event ev;
} node;

struct hearth_answer {
    hearth_model *model;
    uint64_t      id;
    void (*on_event)(void *context, const hearth_event *ev);
    void           *context;
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t  moved;
    node           *first, **tail;
    node           *shown;    /* what hearth_next gave out */
    bool            finished; /* the last event came and its callback returned */
    bool            given;    /* the last event was given out */
    bool            lost;     /* memory was out for an event */
    hearth_event    no_memory;
};

/* --- copying --- */

static char *put(char **at, const void *data, size_t bytes) {
    char *to = *at;
    if (bytes) memcpy(to, data, bytes);
    to[bytes] = '\0';
    *at += bytes + 1;
    return to;
}

static void copy_usage(hearth_event *to, const runtime_event *ev) {
    to->finish = (int)ev->finish; /* the enumerations agree */
    to->stop_index = ev->stop_index;
    to->prompt_tokens = ev->usage.prompt_tokens;
    to->cached_tokens = ev->usage.cached_tokens;
    to->generated_tokens = ev->usage.generated_tokens;
    to->reasoning_tokens = ev->usage.reasoning_tokens;
    to->wait_seconds = ev->usage.prepare_s + ev->usage.queued_s;
    to->prompt_seconds = ev->usage.prompt_s;
    to->generate_seconds = ev->usage.generate_s;
}

static int kind_of(runtime_event_kind k) {
    switch (k) {
    case RUNTIME_STARTED: return HEARTH_STARTED;
    case RUNTIME_PROGRESS: return HEARTH_PROGRESS;
    case RUNTIME_TOKEN: return HEARTH_TOKEN;
    case RUNTIME_CONTENT: return HEARTH_CONTENT;
    case RUNTIME_REASONING: return HEARTH_REASONING;
    case RUNTIME_TOOL_BEGIN: return HEARTH_TOOL_BEGIN;
    case RUNTIME_TOOL_ARGUMENTS: return HEARTH_TOOL_ARGUMENTS;
    case RUNTIME_TOOL_END: return HEARTH_TOOL_END;
    case RUNTIME_EMBEDDING: return HEARTH_EMBEDDING;
    case RUNTIME_SCORE: return HEARTH_SCORE;
    case RUNTIME_DONE: return HEARTH_DONE;
    case RUNTIME_CLASSES: /* no task of the header asks for them */
    case RUNTIME_ERROR: break;
    }
    return HEARTH_FAILED;
}

/* Behind the structure: vector and top (aligned), then the texts with a NUL each. */
static node *copy_event(const runtime_event *ev) {
    view   text = ev->error ? view_of(ev->error->msg) : ev->text;
    size_t vector_bytes = (size_t)ev->n_vector * sizeof *ev->vector, top_bytes = (size_t)ev->n_top * sizeof(hearth_top);
    size_t bytes = sizeof(node) + vector_bytes + top_bytes + text.len + ev->id.len + ev->name.len + ev->bytes.len + 4;
    for (int i = 0; i < ev->n_top; i++) bytes += ev->top[i].bytes.len + 1;
    node *n = calloc(1, bytes);
    if (!n) return NULL;
    hearth_event *to = &n->ev;
    hearth_top   *top = (hearth_top *)(void *)(n + 1);
    float        *vector = (float *)(void *)((char *)top + top_bytes);
    char         *at = (char *)vector + vector_bytes;
    if (vector_bytes) memcpy(vector, ev->vector, vector_bytes);
    to->kind = kind_of(ev->kind);
    to->choice = ev->choice;
    to->last = ev->last;
    to->call = ev->index;
    copy_usage(to, ev);
    if (ev->kind == RUNTIME_STARTED) to->prompt_tokens = ev->prompt_tokens;
    if (ev->kind == RUNTIME_PROGRESS) to->prompt_tokens = ev->total;
    to->done = ev->done;
    to->token = ev->token;
    to->logprob = ev->logprob;
    to->code = ev->error ? ev->error->code : 0;
    to->vector = ev->n_vector ? vector : NULL;
    to->n_vector = ev->n_vector;
    to->score = ev->score;
    to->text = put(&at, text.data, text.len);
    to->text_bytes = text.len;
    to->id = put(&at, ev->id.data, ev->id.len);
    to->name = put(&at, ev->name.data, ev->name.len);
    to->bytes = put(&at, ev->bytes.data, ev->bytes.len);
    to->n_bytes = ev->bytes.len;
    to->top = ev->n_top ? top : NULL;
    to->n_top = ev->n_top;
    for (int i = 0; i < ev->n_top; i++)
        top[i] = (hearth_top){ ev->top[i].token, ev->top[i].logprob,
                               put(&at, ev->top[i].bytes.data, ev->top[i].bytes.len), ev->top[i].bytes.len };
    return n;
}

/* --- events come in --- */

static void on_event(void *ctx, const runtime_event *ev) {
    hearth_answer *a = ctx;
    node          *n = copy_event(ev);
    if (n && a->on_event) {
        a->on_event(a->context, &n->ev);
        free(n);
        n = NULL;
    } else if (!n && a->on_event && ev->last) {
        a->on_event(a->context, &a->no_memory);
    }
    pthread_mutex_lock(&a->lock);
    if (n) {
        *a->tail = n;
        a->tail = &n->next;
    } else if (!a->on_event) {
        a->lost = true;
    }
    if (ev->last) a->finished = true;
    pthread_cond_broadcast(&a->moved);
    pthread_mutex_unlock(&a->lock);
}

hearth_answer *hearth_submit(hearth_model *m, const hearth_request *q, hearth_error *e) {
    hearth_request  full;
    runtime_request r;
    view           *stop = NULL;
    err             why = { 0 };
    hearth_answer  *a = calloc(1, sizeof *a);
    int             rc = a ? api_request(q, &full, &why) : err_set_nomem(&why);
    if (rc == 0) rc = api_runtime_request(&full, &r, &stop, &why);
    if (rc == 0) {
        a->model = m;
        a->on_event = full.on_event;
        a->context = full.context;
        a->tail = &a->first;
        a->no_memory = (hearth_event){ .kind = HEARTH_FAILED,
                                       .choice = -1,
                                       .last = 1,
                                       .code = HEARTH_ERR_NOMEM,
                                       .text = "memory is out",
                                       .text_bytes = strlen("memory is out"),
                                       .id = "",
                                       .name = "",
                                       .bytes = "" };
        clock_cond_init(&a->moved);
        pthread_mutex_init(&a->lock, NULL);
        r.on_event = on_event;
        r.ctx = a;
        if ((rc = runtime_submit(m->r, &r, &a->id, &why)) < 0) {
            pthread_cond_destroy(&a->moved);
            pthread_mutex_destroy(&a->lock);
        }
    }
    free(stop);
    if (rc == 0) return a;
    free(a);
    api_fail(e, &why);
    return NULL;
}

/* --- and out --- */

const hearth_event *hearth_next(hearth_answer *a, int timeout_ms) {
    struct timespec     until = clock_after(timeout_ms > 0 ? timeout_ms : 0);
    const hearth_event *ev = NULL;
    pthread_mutex_lock(&a->lock);
    free(a->shown);
    a->shown = NULL;
    int rc = 0;
    while (!a->first && !a->finished && rc != ETIMEDOUT)
        rc = timeout_ms < 0 ? pthread_cond_wait(&a->moved, &a->lock)
                            : pthread_cond_timedwait(&a->moved, &a->lock, &until);
    if (a->first) {
        a->shown = a->first;
        a->first = a->first->next;
        if (!a->first) a->tail = &a->first;
        ev = &a->shown->ev;
        if (a->lost && ev->last) ev = &a->no_memory;
    } else if (a->finished && !a->given && a->lost) {
        ev = &a->no_memory;
    }
    if (ev && ev->last) a->given = true;
    pthread_mutex_unlock(&a->lock);
    return ev;
}

int hearth_answer_over(hearth_answer *a) {
    pthread_mutex_lock(&a->lock);
    bool over = a->finished && (a->on_event || a->given);
    pthread_mutex_unlock(&a->lock);
    return over;
}

static void drop_events(hearth_answer *a) {
    for (node *n = a->first; n;) {
        node *next = n->next;
        free(n);
        n = next;
    }
    free(a->shown);
    a->shown = NULL;
    a->first = NULL;
    a->tail = &a->first;
}

void hearth_answer_wait(hearth_answer *a) {
    pthread_mutex_lock(&a->lock);
    while (!a->finished) pthread_cond_wait(&a->moved, &a->lock);
    drop_events(a);
    a->given = true;
    pthread_mutex_unlock(&a->lock);
}

void hearth_cancel(hearth_answer *a) { runtime_cancel(a->model->r, a->id); }

void hearth_answer_free(hearth_answer *a) {
    if (!a) return;
    hearth_cancel(a);
    hearth_answer_wait(a);
    pthread_cond_destroy(&a->moved);
    pthread_mutex_destroy(&a->lock);
    free(a);
}
