/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mask thread: computes the token masks of guided sequences while the engine thread runs a step.
 *
 * A sequence has at most one mask under way. Between mask_ask and the return of mask_wait or mask_forget its guide
 * belongs to the mask thread, at any other time to the engine thread.
 */
#ifndef ENGINE_MASKS_H
#define ENGINE_MASKS_H

#include "engine/engine.h"

#include <pthread.h>

typedef enum mask_state { MASK_NONE, MASK_ASKED, MASK_READY } mask_state;

/* Part of a sequence. */
typedef struct mask_work {
    engine_guide     *guide; /* NULL: free text */
    uint32_t         *mask;
    mask_state        state; /* guarded by mask_thread.lock, as next */
    int               rc;    /* of guide->mask */
    err               error;
    struct mask_work *next;
} mask_work;

typedef struct mask_thread {
    pthread_t       thread;
    bool            started, stop; /* stop, queue, state and next of works, masks and seconds are guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t  wake, done;
    mask_work      *queue, **tail;
    mask_work      *current;
    uint64_t        masks;
    double          seconds;
} mask_thread;

int  mask_thread_init(mask_thread *t, err *e);
void mask_thread_deinit(mask_thread *t); /* nothing may be under way */

void mask_ask(mask_thread *t, mask_work *w);    /* starts on the next mask, unless one is there or under way */
int  mask_wait(mask_thread *t, mask_work *w);   /* the mask's result; it must have been asked for */
void mask_forget(mask_thread *t, mask_work *w); /* the guide is the caller's again */

#endif
