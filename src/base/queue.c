/* SPDX-License-Identifier: Apache-2.0 */
#include "base/queue.h"

#include <pthread.h>
#include <stdlib.h>

struct queue {
    pthread_mutex_t lock; /* guards everything below */
    pthread_cond_t  not_empty, not_full;
    size_t          capacity, head, count;
    bool            closed;
    void           *items[];
};

int queue_open(queue **out, size_t capacity, err *e) {
    *out = NULL;
    if (capacity == 0 || capacity > (size_t)1 << 24) return err_set(e, ERR_ARG, "queue capacity %zu", capacity);
    queue *q = calloc(1, sizeof *q + capacity * sizeof q->items[0]);
    if (!q) return err_set_nomem(e);
    q->capacity = capacity;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->not_empty, NULL);
    pthread_cond_init(&q->not_full, NULL);
    *out = q;
    return 0;
}

void queue_free(queue *q) {
    if (!q) return;
    pthread_cond_destroy(&q->not_full);
    pthread_cond_destroy(&q->not_empty);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

static bool push(queue *q, void *item, bool wait) {
    pthread_mutex_lock(&q->lock);
    while (wait && q->count == q->capacity && !q->closed) pthread_cond_wait(&q->not_full, &q->lock);
    bool ok = !q->closed && q->count < q->capacity;
    if (ok) {
        q->items[(q->head + q->count++) % q->capacity] = item;
        pthread_cond_signal(&q->not_empty);
    }
    pthread_mutex_unlock(&q->lock);
    return ok;
}

static bool pop(queue *q, void **out, bool wait) {
    pthread_mutex_lock(&q->lock);
    while (wait && q->count == 0 && !q->closed) pthread_cond_wait(&q->not_empty, &q->lock);
    bool ok = q->count > 0;
    if (ok) {
        *out = q->items[q->head];
        q->head = (q->head + 1) % q->capacity;
        q->count--;
        pthread_cond_signal(&q->not_full);
    }
    pthread_mutex_unlock(&q->lock);
    return ok;
}

bool queue_push(queue *q, void *item) { return push(q, item, true); }
bool queue_try_push(queue *q, void *item) { return push(q, item, false); }
bool queue_pop(queue *q, void **out) { return pop(q, out, true); }
bool queue_try_pop(queue *q, void **out) { return pop(q, out, false); }

void queue_close(queue *q) {
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    pthread_cond_broadcast(&q->not_empty);
    pthread_cond_broadcast(&q->not_full);
    pthread_mutex_unlock(&q->lock);
}

size_t queue_count(queue *q) {
    pthread_mutex_lock(&q->lock);
    size_t n = q->count;
    pthread_mutex_unlock(&q->lock);
    return n;
}
