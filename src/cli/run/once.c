/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run/once.h"

#include <pthread.h>

typedef struct waiter {
    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t  done;
    bool            over;
    str            *text;
    runtime_usage   usage;
    err             why;
} waiter;

static void on_event(void *ctx, const runtime_event *ev) {
    waiter *w = ctx;
    pthread_mutex_lock(&w->lock);
    if (ev->kind == RUNTIME_CONTENT && w->text) str_append(w->text, ev->text.data, ev->text.len);
    if (ev->kind == RUNTIME_DONE) w->usage = ev->usage;
    if (ev->kind == RUNTIME_ERROR) w->why = *ev->error;
    if (ev->last) {
        w->over = true;
        pthread_cond_signal(&w->done);
    }
    pthread_mutex_unlock(&w->lock);
}

int once_ask(runtime *r, const runtime_request *q, str *text, runtime_usage *usage, err *e) {
    waiter          w = { .lock = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER, .text = text };
    uint64_t        id;
    runtime_request own = *q;
    own.on_event = on_event;
    own.ctx = &w;
    int rc = runtime_submit(r, &own, &id, e);
    if (rc < 0) return rc;
    pthread_mutex_lock(&w.lock);
    while (!w.over) pthread_cond_wait(&w.done, &w.lock);
    pthread_mutex_unlock(&w.lock);
    *usage = w.usage;
    return w.why.code ? err_set(e, w.why.code, "%s", w.why.msg) : 0;
}
