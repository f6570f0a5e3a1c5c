/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's own state, shared by its files: engine.c (threads), schedule.c (who computes), step.c (what came out).
 */
#ifndef ENGINE_INTERNAL_H
#define ENGINE_INTERNAL_H

#include "engine/sequence.h"

#include <pthread.h>

enum { ENGINE_SNAPSHOT_EVERY = 8192 };

/* One sequence's rows of the step under way. */
typedef struct share {
    sequence *s;
    int       n;   /* tokens */
    int       out; /* row of the logits, or -1 */
} share;

struct engine {
    const nn_model *model;
    const tok      *tok;
    engine_options  o;
    nn_exec        *exec;
    int64_t         n_vocab;
    int             n_ctx;

    pthread_t thread;
    bool      started;
    pthread_mutex_t
                   lock; /* guards incoming, cancels, n_cancels, cap_cancels, n_queued, stop, busy, next_id and stats */
    pthread_cond_t wake; /* something came in, or stop */
    pthread_cond_t idle; /* busy became false */
    sequence      *incoming, **incoming_tail;
    uint64_t      *cancels;
    size_t         n_cancels, cap_cancels;
    int            n_queued; /* sequences that were submitted and do not run yet */
    bool           stop, busy;
    uint64_t       next_id;
    engine_stats   stats;

    /* The engine thread's own. */
    cache            cache;
    sequence       **running; /* max_seqs of room, in order of arrival */
    int              n_running;
    sequence        *waiting; /* best first */
    bool            *slot_used;
    int              prompt_budget; /* tokens of prompts per step while somebody generates */
    engine_stats     counts;        /* published in stats once per step */
    sampling_work   *work;
    float           *row;
    uint32_t        *no_end_mask; /* every token but those that end an answer */
    sampling_logprob top[20];

    /* The batch under construction; allocated once. */
    share   *shares;
    int      n_shares;
    int32_t *token, *pos, *seq_of, *q_start, *kv_len, *slot, *out_rows, *pages[KV_MAX_GROUPS];
};

double engine_now(void);

/* schedule.c */
void schedule_add(engine *g, sequence *s);     /* puts it into the waiting list by priority and arrival */
void schedule_admit(engine *g);                /* lets waiting sequences start while there is room */
bool schedule_batch(engine *g, nn_batch *b);   /* false: nothing to do */
void schedule_release(engine *g, sequence *s); /* takes it off the running ones and gives its pages back */

/* step.c */
void step_results(engine *g);
void step_end(engine *g, sequence *s, engine_finish finish, int stop_index); /* the sequence is gone afterwards */
void step_fail(engine *g, sequence *s, const err *why);

#endif
