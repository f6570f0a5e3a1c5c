/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine's own state, shared by its files:
 *
 *     engine.c     the thread, orders and questions
 *     open.c       beginning and end
 *     submit.c     the way in
 *     schedule.c   who computes
 *     front.c      shared beginnings
 *     step.c       what came out
 *     ahead.c      the next step before it is known what came out
 *     cache.c      pages, prefix tree, tiers
 *     adapters.c   adapter sets of running sequences
 *     masks.c      the mask thread
 *     fair.c       shares of clients
 *     speculate.c  drafts; depth.c how deep, draft_*.c where from
 */
#ifndef ENGINE_INTERNAL_H
#define ENGINE_INTERNAL_H

#include "base/clock.h"
#include "engine/sequence.h"

#include <pthread.h>
#include <string.h>

enum {
    ENGINE_SNAPSHOT_EVERY = 8192,
    ENGINE_CLIENTS = 256,
    ENGINE_WINDOW = 128,    /* tokens of penalties; sequences with more ask for themselves */
    ENGINE_PIECE_MS = 1500, /* a piece of a prompt takes no longer, so that progress shows and a cancel is quick */
};

/* One sequence's rows of the step under way. */
typedef struct share {
    sequence *s;
    int       from; /* position of the first token */
    int       n;    /* tokens, a draft's among them */
    int       n_draft;
    int       out; /* row of the last token's logits, those of a draft behind it, or -1; an embedding: its first hidden
                         row of n_rows */
    bool      scores; /* all its tokens have rows of logits, one behind the other */
    int       n_rows;
    int       shown, n_shown; /* a prompt's rows whose hidden states drafters read: output row, how many */
    bool      decodes;        /* else a piece of a prompt */
    bool      mark;           /* ends where somebody may want to continue */

    /* What came out. */
    bool          ends, over, failed; /* ends: everything known is evaluated; over, failed: that was the last step */
    engine_finish finish;
    int           stop_index;

    bool            asked; /* the device was asked for the pick, and this is its answer */
    sampling_result picked;
    bool            again; /* nothing was picked: the row is gone, and is computed once more */
} share;

/* A step that was started and will be waited for. */
typedef struct ahead_step {
    nn_ticket ticket;
    int       n_tok;
    bool      waited;
    int       rc; /* once it was waited for */
    err       error;
} ahead_step;

/* The step behind the one whose tokens are picked next (ahead.c). */
typedef struct ahead {
    bool          can;
    bool          followed;  /* one was started behind the step under way, or tried: its rows are gone */
    bool          under_way; /* a step that was not taken yet */
    ahead_step    step;
    share        *shares; /* [max_seqs]: its rows; s NULL: dropped */
    int           n;
    int32_t      *from;  /* [max_seqs]: rows of logits of the step in front */
    sampling_row *guess; /* by row of logits of a batch */
} ahead;

/* What somebody wants done with a request before the next step. */
typedef struct order {
    uint64_t id;
    enum { ORDER_CANCEL, ORDER_PAUSE, ORDER_RESUME } what;
} order;

struct engine {
    const nn_model   *model;
    const tok        *tok;
    engine_options    o;
    const nn_backend *backend;
    nn_device         device;
    nn_exec          *exec;
    int64_t           n_vocab, n_hidden, n_input;
    int               n_ctx, n_ctx_held; /* held: what the cache can hold of it */
    bool              whole;             /* inputs are computed in one step */
    size_t            page_bytes;        /* of one page in all layers together */
    int               room_pages;        /* that the room decided; 0: the context did */
    mask_thread       guides;

    pthread_t thread;
    bool      started;
    pthread_mutex_t
                   lock; /* guards incoming, orders, n_orders, cap_orders, n_queued, stop, busy, lost, next_id, stats */
    pthread_cond_t wake; /* something came in, or stop */
    pthread_cond_t idle; /* busy became false */
    sequence      *incoming, **incoming_tail;
    order         *orders;
    size_t         n_orders, cap_orders;
    int            n_queued;                  /* sequences that were submitted and do not run yet */
    int            queued_of[ENGINE_CLIENTS]; /* of them by client; clients may share an entry */
    bool           stop, busy;
    err            lost; /* code not 0: the device is gone, and why */
    uint64_t       next_id;
    engine_stats   stats;

    /* The engine thread's own. */
    cache      cache;
    sequence **running; /* max_seqs of room, in order of arrival */
    int        n_running;
    sequence  *waiting; /* best first */
    bool      *slot_used;
    struct {
        const nn_adapter_set *set;
        int                   users;
    } * sets; /* [max_seqs + 1]: number i + 1 on the device; one more for a sequence that another gives way to */
    fair             fair;
    speculation      spec;
    int              prompt_budget; /* tokens of prompts per step while somebody generates */
    int              piece_budget;  /* and while nobody does */
    bool             generating;    /* somebody generates in the step under way */
    bool             late;          /* tokens are told when the next step has begun */
    sequence       **told_late;     /* [max_seqs] whose token is still to be told */
    engine_event    *late_events;   /* its event; the text is the sequence's */
    int              n_late;
    bool             framed;   /* between the two calls of on_batch */
    double           step_end; /* when the last step ended; 0: nothing was to be done since */
    engine_stats     counts;   /* published in stats once per step */
    sampling_work   *work;
    sampling_count  *window;  /* of a sequence's penalties; NULL where the device does not sample */
    sampling_count  *windows; /* [max_seqs][ENGINE_WINDOW]: of those that are asked for at once */
    sampling_row    *asks;    /* [max_seqs] picks that a step asks for at once, of output rows ask_rows */
    int32_t         *ask_rows;
    sampling_result *picks;
    float           *row;         /* one row that was fetched: logits or hidden state */
    uint32_t        *no_end_mask; /* every token but those that end an answer */
    uint32_t        *mask;        /* a guide's and this */
    float           *vector;      /* an embedding */
    sampling_logprob top[20];

    /* The batch under construction; allocated once. */
    share        *shares;
    int           n_shares;
    ahead         ahead;
    int32_t      *token, *pos, *seq_of, *q_start, *kv_len, *slot, *out_rows, *hidden_rows, *pages[KV_MAX_GROUPS];
    int32_t      *adapter, *row_begin, *row_end, *segment; /* used by batches that have such rows */
    int32_t      *axes;                                    /* [ENGINE_AXES][n_tok] */
    const float **embd;
};

/* submit.c: how many of a client wait; under the lock. */
int *engine_queued_of(engine *g, const request *q);

/* open.c: a page with the types of the options, and what all pages may take; kv_choice.c: with kv_auto finds the types */
int    engine_page_bytes(engine *g, nn_memory *one, err *e);
size_t engine_cache_room(const engine *g, const nn_memory *one);
int    engine_choose_kv(engine *g, nn_memory *one, err *e);

/* schedule.c */
void schedule_enter(engine *g, sequence *s);   /* a new sequence */
void schedule_admit(engine *g);                /* lets waiting sequences start while there is room */
void schedule_make_room(engine *g);            /* for the tokens of the next step */
bool schedule_batch(engine *g, nn_batch *b);   /* false: nothing to do */
void schedule_begin(engine *g, nn_batch *b);   /* an empty batch in the engine's arrays */
void schedule_release(engine *g, sequence *s); /* takes it off the running ones and gives its pages back */
void schedule_charge(sequence *s);             /* its client pays for tokens that are new */

/* The budget that brings a step with pieces of prompts, which took so long, closer to the target. */
int schedule_adapt(int budget, int least, int most, double seconds, double target);

/* Of equal priority the client that has had the least goes first. */
bool schedule_before(const sequence *a, const sequence *b);
/* Whether a prompt that sees itself whole is longer than the window of some layer. */
bool schedule_wide(const engine *g, size_t n_prompt);

/* front.c */
bool front_wait(engine *g, sequence *s);         /* lets s wait behind a running one, if that is worth it */
bool front_waits(sequence *s);                   /* whether it still has to */
void front_leaves(engine *g, const sequence *r); /* r does not run any more: nobody waits behind it */
int  front_next(const engine *g, const sequence *r, int most); /* where the next one behind r parts from it, or most */
void front_lead(engine *g);                                    /* fills `lead` of all running ones */

/* ahead.c */
int  ahead_open(engine *g, err *e);
void ahead_close(engine *g);
void ahead_describe(engine *g, nn_batch *b);  /* says how the tokens of a batch will be picked */
void ahead_start(engine *g);                  /* behind the step that was just started, or taken */
bool ahead_take(engine *g, ahead_step *step); /* what is left of it becomes the step under way; false: nothing */
int  ahead_wait(engine *g, ahead_step *s, err *e);
void ahead_finish(engine *g);                  /* nothing is under way afterwards; it can still be taken */
void ahead_drop(engine *g, const sequence *s); /* its row is worthless */
void ahead_judge(engine *g, const share *h);   /* a token was picked: whether its row is */

/* adapters.c: a sequence that starts gets a number for its set, which the device is told; when the last one that uses it
 * stops running, the number is free again. */
int  adapters_enter(engine *g, sequence *s, err *e);
void adapters_leave(engine *g, sequence *s);

/* step.c: the first one is part of the step and allocates nothing; the second leaves what was computed in the cache and
 * lets go of what is over. */
void step_results(engine *g);
void step_tell(engine *g);                  /* what was to be told late */
int  score_rows(engine *g, const share *h); /* score.c: of a share of a prompt whose tokens are scored */
void step_settle(engine *g);
void step_end(engine *g, sequence *s, engine_finish finish, int stop_index); /* the sequence is gone afterwards */
void step_fail(engine *g, sequence *s, const err *why);

void *engine_main(void *arg);    /* the engine thread: engine.c */
void  engine_publish(engine *g); /* what engine_stat tells */

#endif
