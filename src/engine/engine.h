/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine: many requests on one model.
 *
 * One thread owns every sequence, every cache page and the step loop; requests come in through a queue and events go
 * out through the request's callback, which that thread calls. A step takes one token of every sequence that is
 * generating and fills the rest of its token budget with pieces of prompts. What was computed before is found in the
 * prefix tree and not computed again. When pages run out, the least recently used cached ones go first; then the
 * sequence with the lowest priority that came last gives way and continues later from what the cache still has.
 *
 * The answer to a request depends on the request alone: not on what else runs, on threads, on chunking or on the cache.
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "base/err.h"
#include "nn/model.h"
#include "sampling/sampling.h"
#include "tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct engine engine;

typedef struct engine_options {
    int      n_ctx;          /* positions of one sequence; 0: the model's own, at most 8192 */
    size_t   cache_bytes;    /* for keys and values; 0: two full sequences */
    int      page_tokens;    /* 0: 32 */
    int      max_seqs;       /* that compute at once; 0: 16 */
    int      step_tokens;    /* tokens of one step; 0: 256 */
    int      max_waiting;    /* requests in the queue; 0: 1024 */
    int      target_step_ms; /* while somebody generates, prompt pieces shrink until a step takes this; 0: 0 (off) */
    int      n_threads;      /* 0: one per core */
    int      k_type, v_type; /* kv_type of pages */
    unsigned cpu;            /* instruction sets that may be used */
    bool     no_prefix_cache;
} engine_options;

typedef enum engine_event_kind {
    ENGINE_TOKEN,    /* a token was generated; text may be empty while a character or a stop string is incomplete */
    ENGINE_PROGRESS, /* a piece of the prompt was evaluated */
    ENGINE_DONE,     /* the last event of a choice */
    ENGINE_ERROR,    /* the last event of a choice */
} engine_event_kind;

typedef enum engine_finish { ENGINE_STOP_TOKEN, ENGINE_STOP_STRING, ENGINE_LENGTH, ENGINE_CANCELLED } engine_finish;

typedef struct engine_usage {
    int    prompt_tokens, cached_tokens, generated_tokens;
    double queued_s, prompt_s, generate_s;
} engine_usage;

/* Plain data, valid during the callback only. */
typedef struct engine_event {
    engine_event_kind       kind;
    int                     choice;
    int32_t                 token; /* TOKEN */
    view                    text;  /* TOKEN, DONE (what was held back): UTF-8 */
    float                   logprob;
    const sampling_logprob *top;
    int                     n_top;
    int                     done, total; /* PROGRESS */
    engine_finish           finish;      /* DONE */
    int                     stop_index;  /* DONE by STOP_STRING: which one */
    engine_usage            usage;       /* DONE */
    const err              *error;       /* ERROR */
} engine_event;

typedef struct engine_request {
    const int32_t     *tokens; /* the prompt; at least one */
    size_t             n_tokens;
    sampling_params    sampling;
    int                max_tokens; /* <= 0: until the context is full */
    int                min_tokens; /* no end token before */
    bool               ignore_eos;
    const char *const *stop;
    const size_t      *stop_bytes;
    size_t             n_stop;
    int                n_choices; /* 0: 1; choice i draws with seed + i */
    int                priority;  /* higher goes first */
    bool               want_logprob;
    int                n_top;        /* at most 20 */
    bool               keep_special; /* special tokens appear in the text */
    bool               no_cache;     /* neither use nor leave anything in the prefix tree */
    const int32_t     *marks;        /* rising positions where later requests are likely to branch (message ends) */
    size_t             n_marks;
    void (*on_event)(void *ctx, const engine_event *ev);
    void *ctx;
} engine_request;

/* The model and the tokenizer (may be NULL: no text in events) must outlive the engine. */
int  engine_open(engine **out, const nn_model *m, const tok *t, const engine_options *o, err *e);
void engine_free(engine *g); /* cancels what is under way; accepts NULL */

/* Copies the request. On success *id names it for engine_cancel; on failure no event will come. */
int  engine_submit(engine *g, const engine_request *r, uint64_t *id, err *e);
void engine_cancel(engine *g, uint64_t id); /* takes effect before the next step; unknown ids are ignored */
void engine_wait_idle(engine *g);           /* until nothing waits or runs */

typedef struct engine_stats {
    uint64_t steps, tokens_evaluated, tokens_cached, tokens_generated, preemptions;
    int      running, waiting;
    int      pages_total, pages_unused, pages_cached; /* group 0 */
} engine_stats;
void engine_stat(engine *g, engine_stats *out);

int engine_context(const engine *g); /* positions that a sequence may have */

#endif
