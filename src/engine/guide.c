/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/guide.h"

#include "base/clock.h"

static void *guide_main(void *arg) {
    guide_thread *t = arg;
    pthread_mutex_lock(&t->lock);
    for (;;) {
        while (!t->queue && !t->stop) pthread_cond_wait(&t->wake, &t->lock);
        if (t->stop) break;
        guide_work *w = t->current = t->queue;
        t->queue = w->next;
        if (!t->queue) t->tail = &t->queue;
        pthread_mutex_unlock(&t->lock);

        double begin = clock_s();
        w->error = (err){ 0 };
        w->rc = w->guide->mask(w->guide, w->mask, &w->error);
        double took = clock_s() - begin;

        pthread_mutex_lock(&t->lock);
        w->state = GUIDE_READY;
        t->current = NULL;
        t->masks++;
        t->seconds += took;
        pthread_cond_broadcast(&t->done);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

int guide_thread_init(guide_thread *t, err *e) {
    *t = (guide_thread){ 0 };
    t->tail = &t->queue;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    pthread_cond_init(&t->done, NULL);
    t->started = pthread_create(&t->thread, NULL, guide_main, t) == 0;
    return t->started ? 0 : err_set(e, ERR_NOMEM, "cannot start the engine's guide thread");
}

void guide_thread_deinit(guide_thread *t) {
    if (!t->tail) return; /* never begun */
    if (t->started) {
        pthread_mutex_lock(&t->lock);
        t->stop = true;
        pthread_cond_signal(&t->wake);
        pthread_mutex_unlock(&t->lock);
        pthread_join(t->thread, NULL);
    }
    pthread_cond_destroy(&t->done);
    pthread_cond_destroy(&t->wake);
    pthread_mutex_destroy(&t->lock);
    *t = (guide_thread){ 0 };
}

void guide_ask(guide_thread *t, guide_work *w) {
    if (!w->guide) return;
    pthread_mutex_lock(&t->lock);
    if (w->state == GUIDE_NONE) {
        w->state = GUIDE_ASKED;
        w->next = NULL;
        *t->tail = w;
        t->tail = &w->next;
        pthread_cond_signal(&t->wake);
    }
    pthread_mutex_unlock(&t->lock);
}

int guide_wait(guide_thread *t, guide_work *w) {
    pthread_mutex_lock(&t->lock);
    while (w->state != GUIDE_READY) pthread_cond_wait(&t->done, &t->lock);
    w->state = GUIDE_NONE;
    pthread_mutex_unlock(&t->lock);
    return w->rc;
}

void guide_forget(guide_thread *t, guide_work *w) {
    if (!w->guide) return;
    pthread_mutex_lock(&t->lock);
    if (w->state == GUIDE_ASKED && t->current != w) {
        guide_work **at = &t->queue;
        while (*at != w) at = &(*at)->next;
        *at = w->next;
        if (!*at) t->tail = at;
    } else {
        while (w->state == GUIDE_ASKED) pthread_cond_wait(&t->done, &t->lock);
    }
    w->state = GUIDE_NONE;
    pthread_mutex_unlock(&t->lock);
}
