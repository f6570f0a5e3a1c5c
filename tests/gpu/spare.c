/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of launches that have ended, for the next ones: most kernels are small, and memory that comes from the system
 * and goes back each time costs more than they do.
 */
#include "gpu/run.h"

#include <pthread.h>
#include <stdlib.h>

enum { SPARES = 6 };

static struct {
    pthread_mutex_t lock;
    struct {
        void  *at;
        size_t bytes;
    } kept[SPARES];
} spare = { .lock = PTHREAD_MUTEX_INITIALIZER };

void *spare_take(size_t *bytes) {
    const size_t wanted = (*bytes + 4095) & ~(size_t)4095;
    void        *found = NULL;
    int          best = -1;
    pthread_mutex_lock(&spare.lock);
    for (int i = 0; i < SPARES; i++) {
        if (spare.kept[i].at && spare.kept[i].bytes >= wanted &&
            (best < 0 || spare.kept[i].bytes < spare.kept[best].bytes))
            best = i;
    }
    if (best >= 0) {
        found = spare.kept[best].at;
        *bytes = spare.kept[best].bytes;
        spare.kept[best].at = NULL;
    }
    pthread_mutex_unlock(&spare.lock);
    if (found) return found;
    *bytes = wanted;
    return aligned_alloc(64, wanted);
}

void spare_give(void *at, size_t bytes) {
    int place = 0;
    if (!at) return;
    pthread_mutex_lock(&spare.lock);
    for (int i = 0; i < SPARES; i++) { /* an empty place, or that of the smallest */
        if (!spare.kept[i].at || (spare.kept[place].at && spare.kept[i].bytes < spare.kept[place].bytes)) place = i;
        if (!spare.kept[place].at) break;
    }
    if (!spare.kept[place].at || spare.kept[place].bytes < bytes) {
        void *const other = spare.kept[place].at;
        spare.kept[place].at = at;
        spare.kept[place].bytes = bytes;
        at = other;
    }
    pthread_mutex_unlock(&spare.lock);
    free(at);
}
