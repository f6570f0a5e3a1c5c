/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guide thread: computes the token masks of guided sequences while the engine thread runs a step.
 *
 * A sequence has at most one mask under way. Between guide_ask and the return of guide_wait or guide_forget its guide
 * belongs to the guide thread, at any other time to the engine thread.
 */
#ifndef ENGINE_GUIDE_H
#define ENGINE_GUIDE_H

#include "engine/engine.h"

#include <pthread.h>

typedef enum guide_mask_state { GUIDE_NONE, GUIDE_ASKED, GUIDE_READY } guide_mask_state;

/* Part of a sequence. */
typedef struct guide_work {
    engine_guide      *guide; /* NULL: free text */
    uint32_t          *mask;
    guide_mask_state   state; /* guarded by guide_thread.lock, as next */
    int                rc;    /* of guide->mask */
    err                error;
    struct guide_work *next;
} guide_work;

typedef struct guide_thread {
    pthread_t       thread;
    bool            started, stop; /* stop, queue, state and next of works, masks and seconds are guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t  wake, done;
    guide_work     *queue, **tail;
    guide_work     *current;
    uint64_t        masks;
    double          seconds;
} guide_thread;

int  guide_thread_init(guide_thread *t, err *e);
void guide_thread_deinit(guide_thread *t); /* nothing may be under way */

void guide_ask(guide_thread *t, guide_work *w);    /* starts on the next mask, unless one is there or under way */
int  guide_wait(guide_thread *t, guide_work *w);   /* the mask's result; it must have been asked for */
void guide_forget(guide_thread *t, guide_work *w); /* the guide is the caller's again */

#endif
