/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/masks.h"

#include "base/clock.h"

static void *guide_main(void *arg) {
    mask_thread *t = arg;
    pthread_mutex_lock(&t->lock);
    for (;;) {
        while (!t->queue && !t->stop) pthread_cond_wait(&t->wake, &t->lock);
        if (t->stop) break;
        mask_work *w = t->current = t->queue;
        t->queue = w->next;
        if (!t->queue) t->tail = &t->queue;
        pthread_mutex_unlock(&t->lock);

        double begin = clock_s();
        w->error = (err){ 0 };
        w->rc = w->guide->mask(w->guide, w->mask, &w->error);
        double took = clock_s() - begin;

        pthread_mutex_lock(&t->lock);
        w->state = MASK_READY;
        t->current = NULL;
        t->masks++;
        t->seconds += took;
        pthread_cond_broadcast(&t->done);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

int mask_thread_init(mask_thread *t, err *e) {
    *t = (mask_thread){ 0 };
    t->tail = &t->queue;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    pthread_cond_init(&t->done, NULL);
    t->started = pthread_create(&t->thread, NULL, guide_main, t) == 0;
    return t->started ? 0 : err_set(e, ERR_NOMEM, "cannot start the engine's mask thread");
}

void mask_thread_deinit(mask_thread *t) {
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
    *t = (mask_thread){ 0 };
}

void mask_ask(mask_thread *t, mask_work *w) {
    if (!w->guide) return;
    pthread_mutex_lock(&t->lock);
    if (w->state == MASK_NONE) {
        w->state = MASK_ASKED;
        w->next = NULL;
        *t->tail = w;
        t->tail = &w->next;
        pthread_cond_signal(&t->wake);
    }
    pthread_mutex_unlock(&t->lock);
}

int mask_wait(mask_thread *t, mask_work *w) {
    pthread_mutex_lock(&t->lock);
    while (w->state != MASK_READY) pthread_cond_wait(&t->done, &t->lock);
    w->state = MASK_NONE;
    pthread_mutex_unlock(&t->lock);
    return w->rc;
}

void mask_forget(mask_thread *t, mask_work *w) {
    if (!w->guide) return;
    pthread_mutex_lock(&t->lock);
    if (w->state == MASK_ASKED && t->current != w) {
        mask_work **at = &t->queue;
        while (*at != w) at = &(*at)->next;
        *at = w->next;
        if (!*at) t->tail = at;
    } else {
        while (w->state == MASK_ASKED) pthread_cond_wait(&t->done, &t->lock);
    }
    w->state = MASK_NONE;
    pthread_mutex_unlock(&t->lock);
}
