/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine: many requests on one model.
 *
 * One thread owns every sequence, every cache page and the step loop; requests come in through a queue and events go
 * out through the request's callback, which that thread calls. A step takes one token of every sequence that is
 * generating and fills the rest of its token budget with pieces of prompts. What was computed before is found in the
 * prefix tree and not computed again. When pages run out, the least recently used cached ones go first; then the
 * sequence with the lowest priority that came last gives way and continues later from what the cache still has.
 * A paused sequence gives way before all others. Among requests of one priority the client that was given the fewest
 * evaluated tokens goes first.
 *
 * The answer to a request depends on the request alone: not on what else runs, on threads, on chunking or on the cache.
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "base/err.h"
#include "engine/drafter.h"
#include "nn/backend.h"
#include "sampling/sampling.h"
#include "tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct engine engine;

/* Who drafts. */
typedef enum engine_speculate {
    ENGINE_SPECULATE_OFF,
    ENGINE_SPECULATE_AUTO,   /* everybody there is */
    ENGINE_SPECULATE_LOOKUP, /* what stood in the text before */
    ENGINE_SPECULATE_DRAFT,  /* the draft model */
    ENGINE_SPECULATE_MTP,    /* the model's head for further tokens */
    ENGINE_SPECULATE_EAGLE,  /* a head of EAGLE-3 */
    ENGINE_SPECULATE_COUNT
} engine_speculate;

enum { ENGINE_DRAFT_PLACES = 8 };

typedef struct engine_options {
    int        n_ctx;          /* positions of one sequence; 0: the model's own, or what the cache has room for */
    size_t     cache_bytes;    /* for keys, values and states; 0: two full sequences, or cache_room with n_ctx 0 */
    size_t     cache_room;     /* what it may take where nobody said how long or how large; 0: two sequences of 8192 */
    int        page_tokens;    /* 0: PAGE_TOKENS */
    int        max_seqs;       /* that compute at once; 0: 16, on a GPU 128, or 32 with fixed states */
    int        step_tokens;    /* tokens of one step; 0: 256, 2048 on a GPU */
    int        span_tokens;    /* of the longest span or prompt of one step, beside a token of every sequence */
    int        max_waiting;    /* requests in the queue (and as many again of clients with few of them); 0: 1024 */
    int        target_step_ms; /* while somebody generates, prompt pieces shrink until a step takes this; 0: off */
    int        n_threads;      /* 0: one per core */
    nn_kv_type k_type, v_type; /* of pages; see nn_kv_types for these three */
    int        precise_layers;
    bool       k_open;
    bool       kv_auto; /* instead: the best of engine_kv_choices at which n_ctx fits into the cache */
    unsigned   cpu;     /* instruction sets that may be used */
    bool       no_prefix_cache;

    /* Speculation (speculate.h); it never changes an answer. */
    engine_speculate speculate;
    int              draft_max;    /* tokens of one draft; 0: 16, at most DRAFT_MOST */
    bool             draft_always; /* as deep as there are drafts, whether it pays or not: for tests */
    const nn_model  *draft_model;  /* of the same vocabulary; NULL: none. Must outlive the engine */
    const nn_next   *next;         /* a head that goes on from its states; NULL: none. Likewise */
    drafter         *drafter;      /* asked before all others: for tests and measurements. Belongs to the caller */

    /* Experts that a router chooses (docs/big-models.md). */
    size_t expert_bytes; /* memory for streamed ones; 0: all stay where the file is mapped */
    bool   experts_auto; /* instead: streamed where the model needs more than memory_room (need.h), in what it leaves */
    uint64_t memory_room; /* what the model may take of the machine's memory; 0: not known. Neither is the engine's */

    const char       *device;   /* "cpu", "cuda:0" ...; NULL or "auto": the preferred one of this machine. Must stay */
    int               max_gpus; /* how many may share a model whose device nobody named; 0: all */
    const nn_backend *backend;  /* instead of the device's own, on its first device: tests wrap one. NULL: none */

    /* Tokens are told while the next step runs, which need not wait for it: always so on a GPU, this is for tests. Whoever
     * cancels or pauses because of a token hears one more. */
    bool late;

    /* Called around the events of a step by the thread that gives them out, so that whoever passes them on can do so
     * once per step. NULL: nobody wants to know. Events outside of steps have no such frame. */
    void (*on_batch)(void *ctx, bool begins);
    void *batch_ctx;

    /* What the prefix cache has no room for (docs/cache.md). */
    size_t      host_cache_bytes; /* goes to host memory; 0: is forgotten */
    const char *disk_cache_dir;   /* and is kept here beyond the engine's end; NULL: is not. Copied */
    uint64_t    disk_cache_bytes; /* of all files there; 0: 8 GiB */
} engine_options;

typedef enum engine_event_kind {
    ENGINE_TOKEN,     /* a token was generated; text may be empty while a character or a stop string is incomplete */
    ENGINE_PROGRESS,  /* a piece of the prompt was evaluated, the last one too; one comes every two seconds */
    ENGINE_EMBEDDING, /* the vector of a request with pooling; DONE follows */
    ENGINE_PROMPT,    /* only if score_prompt: a token of the prompt, its logprob and rivals; the first has none */
    ENGINE_DONE,      /* the last event of a choice */
    ENGINE_ERROR,     /* the last event of a choice */
} engine_event_kind;

typedef enum engine_finish { ENGINE_STOP_TOKEN, ENGINE_STOP_STRING, ENGINE_LENGTH, ENGINE_CANCELLED } engine_finish;

typedef struct engine_usage {
    int    prompt_tokens, cached_tokens, generated_tokens;
    int    drafted_tokens, accepted_tokens; /* accepted ones are generated ones that were drafted */
    double queued_s, prompt_s, generate_s;
} engine_usage;

/* Plain data, valid during the callback only. */
typedef struct engine_event {
    engine_event_kind       kind;
    int                     choice;
    int32_t                 token; /* TOKEN, PROMPT */
    view                    text;  /* TOKEN, DONE (what was held back): UTF-8 */
    float                   logprob;
    const sampling_logprob *top;
    int                     n_top;
    int                     done, total, cached; /* PROGRESS: of the prompt; cached ones count as done */
    const float            *vector;              /* EMBEDDING */
    int                     n_vector;
    engine_finish           finish;     /* DONE */
    int                     stop_index; /* DONE by STOP_STRING: which one */
    engine_usage            usage;      /* DONE */
    const err              *error;      /* ERROR */
} engine_event;

/*
 * Decides what may come next in one choice. mask is called by the engine's mask thread, the rest by the engine thread
 * (clone: by the one that submits), never two at once. Masks are made while the step runs: after accept(t) the next one
 * is computed while the backend evaluates t.
 */
typedef struct engine_guide engine_guide;
struct engine_guide {
    /* Fills mask (engine_vocab bits, lowest first; a 0 forbids) and returns 1; 0: everything is allowed, mask
     * untouched; negative: the request fails with e. End tokens are part of it: allowed where the text may end. Where a
     * mask allows nothing but end tokens they may come although min_tokens or ignore_eos says otherwise. */
    int (*mask)(engine_guide *self, uint32_t *mask, err *e);
    /* A token was picked; neither the prompt's nor end tokens are reported. Negative: the request fails with e. */
    int (*accept)(engine_guide *self, int32_t token, err *e);
    /* Takes back the last accepted tokens, any number up to all of them: afterwards masks and must_stop are those of a
     * guide that never saw them. Cannot fail. */
    void (*rollback)(engine_guide *self, int n_tokens);
    bool (*must_stop)(engine_guide *self); /* nothing may follow: the choice ends with ENGINE_STOP_TOKEN at once */
    engine_guide *(*clone)(engine_guide *self, err *e); /* for n_choices > 1, before anything was accepted */
    void (*free)(engine_guide *self);
};

/* Which of the last layer's rows (behind the final norm) make the vector: all, the first or the last one. The first row
 * of a model that looks at earlier tokens only knows the first token alone, so CLS is for the others. */
typedef enum engine_pooling {
    ENGINE_POOL_NONE,
    ENGINE_POOL_MEAN,
    ENGINE_POOL_CLS,
    ENGINE_POOL_LAST,
    ENGINE_POOL_MAX, /* of every element */
    ENGINE_POOL_SUM, /* divided by the root of the count */
    ENGINE_POOL_COUNT
} engine_pooling;

enum { ENGINE_KEY_BYTES = 16 };

/* Rows of a prompt whose embedding is supplied: an image's. Their tokens are placeholders. */
typedef struct engine_rows {
    int          first, n;                  /* positions */
    const float *embd;                      /* [n][engine_input_size], as the first layer gets them */
    uint8_t      content[ENGINE_KEY_BYTES]; /* what content and preprocessing hash to: the same rows are computed once,
                                               others are never taken for them */
    bool         whole;                     /* each of them sees all of them */
    /* Where positions have axes (time, row, column): a grid, so many beside each other, at one time; the text behind it goes
     * on `advance` after its beginning. 0: one after the other, as tokens. */
    int across, advance;
    /* Axes are the place in the prompt, column, row and which of such grids it is, each from 0; the first row and the last one
     * stand in no grid, and all of them advance. */
    bool counted;
} engine_rows;

typedef struct engine_request {
    const int32_t     *tokens; /* the prompt; at least one */
    size_t             n_tokens;
    const engine_rows *rows; /* rising, none within another */
    size_t             n_rows;
    /* Every position of the prompt sees all of them, and only the answer what is before it. Such a prompt is computed in one
     * step, and what was computed is used again for equal prompts only. */
    bool prompt_whole;
    /* NULL: the model alone; must outlive the request. Prefixes are shared within sets of one key only, and with the
     * model alone below the position from which the set counts. */
    const nn_adapter_set *adapters;
    int                   adapters_from;
    sampling_params       sampling;
    int                   max_tokens; /* <= 0: until the context is full */
    int                   min_tokens; /* no end token before */
    bool                  ignore_eos;
    const char *const    *stop;
    const size_t         *stop_bytes;
    size_t                n_stop;
    int                   n_choices; /* 0: 1; choice i draws with seed + i */
    int                   priority;  /* higher goes first */
    bool                  want_logprob;
    int                   n_top;        /* at most 20 */
    bool                  score_prompt; /* PROMPT events; nothing of the prefix cache is used */
    bool                  no_answer;    /* the choice ends behind the prompt, with ENGINE_LENGTH */
    bool                  keep_special; /* special tokens appear in the text */
    bool                  no_drafts;    /* nobody drafts for it */
    int                   draft_max;    /* tokens of one draft; 0: the engine's */
    int                   draft_min;    /* a draft with fewer tokens is left out, forced ones aside */
    float          draft_p_min; /* a drafter that computes stops at a token that it finds less likely; 0: never */
    const int32_t *hint;        /* what the answer may look like: drafts are taken from it. NULL: nothing */
    size_t         n_hint;
    const int32_t *shown; /* special tokens that appear in the text although keep_special is not set */
    size_t         n_shown;
    bool           no_cache; /* neither use nor leave anything in the prefix tree */
    const int32_t *marks;    /* rising positions where later requests are likely to branch (message ends) */
    size_t         n_marks;
    uint64_t       client;    /* shares are fair between clients; 0: all that do not say */
    engine_guide  *guide;     /* NULL: free text; belongs to the engine once engine_submit succeeded */
    engine_pooling pooling;   /* not NONE: an embedding is made, nothing is generated */
    bool           normalize; /* the vector has length 1 */
    int pool_from; /* MEAN, MAX, SUM: the first position that counts; a prompt in front of the text may not */
    int second;    /* where the second text of a pair begins; 0: there is one text */
    void (*on_event)(void *ctx, const engine_event *ev);
    void *ctx;
} engine_request;

/* The model and the tokenizer (may be NULL: no text in events) must outlive the engine. */
int  engine_open(engine **out, const nn_model *m, const tok *t, const engine_options *o, err *e);
void engine_free(engine *g); /* cancels what is under way; accepts NULL */

/* Copies the request. On success *id names it for engine_cancel; on failure no event will come. ERR_BUSY: the queue is
 * full. ERR_LOST: the device is gone; the engine can only be freed. Callbacks may submit and cancel, too. */
int  engine_submit(engine *g, const engine_request *r, uint64_t *id, err *e);
void engine_cancel(engine *g, uint64_t id); /* takes effect before the next step; unknown ids are ignored */
/* A paused request computes nothing and says nothing; it keeps its pages as long as nobody else needs them, counts as
 * running or waiting as before, and can be cancelled. Both take effect before the next step, on all its choices; what
 * comes out is what would have come without a pause. */
void engine_pause(engine *g, uint64_t id);
void engine_resume(engine *g, uint64_t id);
void engine_wait_idle(engine *g); /* until nothing waits or runs; paused ones do */

typedef struct engine_stats {
    uint64_t steps, tokens_evaluated, tokens_cached, tokens_generated, preemptions;
    double   step_s, between_s;        /* time in steps, and between two of them, a GPU's start included, while
                                     * there was work */
    uint64_t failed_steps;             /* that the device did not carry out; their requests ended with its reason */
    int      running, waiting, paused; /* paused ones are also counted in one of the others */
    int      pages_total, pages_unused, pages_cached; /* group 0 */
    uint64_t guide_masks;
    double   guide_s, guide_wait_s; /* time that masks took, and how much of it steps waited for them */

    /* The prefix cache's tiers: what they hold, and pages and states that moved. */
    size_t   states, state_bytes, host_pages, host_bytes, disk_entries;
    uint64_t disk_bytes, to_host, from_host, from_disk, to_disk, not_written;
    uint64_t evictions; /* cached pages that made room for others */

    uint64_t drafts, drafted, accepted; /* drafts that were evaluated; their tokens; and those that were right */
    /* The same by place in the draft: tokens that stood there, and those that were right. The last one counts all behind. */
    uint64_t drafted_at[ENGINE_DRAFT_PLACES], accepted_at[ENGINE_DRAFT_PLACES];

    nn_streaming experts; /* all 0 where none are streamed; its bytes also count while a step is under way */

    size_t pages_bytes, heap_bytes; /* taken when it was opened: as in engine_memory */
} engine_stats;
void engine_stat(engine *g, engine_stats *out);

/* What an engine would take, without taking it. */
typedef struct engine_memory {
    int           n_ctx, page_tokens;
    int           full_sequences; /* of n_ctx positions that the cache holds */
    size_t        pages_bytes;    /* the cache's arena: pages of all groups; touched as it fills */
    size_t        states_bytes;   /* limit of the fixed states that the cache keeps beside its pages */
    size_t        device_bytes; /* activations, scratch, fixed states of running sequences: where the device computes */
    size_t        weights_bytes;  /* and its copies of weights; 0: they are read where the file is mapped */
    size_t        heap_bytes;     /* tables and masks, in host memory whatever the device */
    size_t        all_page_bytes; /* of page_tokens positions in all layers */
    size_t        page_bytes;     /* and in the layers that see all of them */
    size_t        window_bytes;   /* of one full sequence in the layers with a window */
    size_t        slot_bytes;     /* of one sequence's fixed states */
    size_t        mapped_bytes;   /* of a model on several devices: weights that are read where the file is mapped */
    char          device[64];
    device_memory beside; /* of pages, device_bytes and weights: what does not lie in the machine's own memory */

    nn_expert_memory experts;
} engine_memory;
int engine_measure(engine_memory *out, const nn_model *m, const engine_options *o, err *e);

/* Page types worth choosing among, the most precise first: what kv_auto tries in turn. */
typedef struct engine_kv_choice {
    const char *name;
    nn_kv_type  k, v;
} engine_kv_choice;
const engine_kv_choice *engine_kv_choices(int *n);

int     engine_context(const engine *g);        /* positions that a sequence may have */
int     engine_sequences(const engine *g);      /* that compute at once */
int64_t engine_vocab(const engine *g);          /* bits of a mask: rows of the model's head */
int     engine_embedding_size(const engine *g); /* n_vector of embeddings */
bool    engine_generates(const engine *g);      /* false: an encoder, which makes vectors only */
int     engine_input_size(const engine *g);     /* floats of a row of engine_rows, all parts of it */

#endif
