/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the host's files share.
 *
 * Threads: callers; the keeper, which decides what is loaded; one thread per worker (child.h), which delivers events.
 *
 * Locking: host.lock guards everything in host, model and host_request. No callback is called with it held, and nothing
 * that may wait for a worker. A child's own lock is taken inside it (child_send, child_stop, child_distrust), never the
 * other way round.
 *
 * A host_request is a request for inference, or a call, from its beginning to its last event. The thread of its worker
 * ends it once it was sent; before that its caller or the keeper does. While `sending` is set it belongs to the thread
 * that sends it: an end that comes meanwhile is only noted.
 */
#ifndef HOST_PARENT_INTERNAL_H
#define HOST_PARENT_INTERNAL_H

#include "host/host.h"
#include "host/parent/child.h"
#include "host/parent/quarantine.h"

#include <pthread.h>

typedef struct model        model;
typedef struct host_request host_request;

struct host_request {
    host_request          *prev, *next; /* of its model */
    model                 *model;       /* whose worker has it, or will */
    model                 *named;       /* by whose name it came */
    uint64_t               id;          /* its low bits are its place in host.slots */
    const runtime_request *q;           /* NULL: a call */
    void (*on_event)(void *ctx, const host_event *ev);
    void   *ctx;
    int64_t since;
    bool    sent, sending, cancelled, paused;
    bool    encoded; /* while sending: q is not read any more, so its last event may come */
    bool    ended;   /* while sending: it came */
    bool    orphan;  /* while sending: its worker ended */
    /* a call's */
    bool     done;
    err      result;
    tok_ids *ids;
    str     *text;
    size_t  *count;
};

typedef enum model_phase {
    MODEL_DOWN,
    MODEL_MEASURING, /* its worker runs and finds out how much memory it needs */
    MODEL_IN_LINE,   /* it knows, and waits for a place; the worker has loaded nothing */
    MODEL_LOADING,
    MODEL_UP,
    MODEL_STOPPING, /* the worker was told to end */
    MODEL_OVER,     /* its process is gone; the keeper has to clean up */
} model_phase;

struct model {
    model      *next;
    host       *host;
    host_model  info;
    char       *template_text;
    model_phase phase;
    child      *child;
    int         holders;     /* threads that use the child outside the lock */
    bool        placed;      /* it takes a place and memory: from the permission to load until its process is gone */
    int         moved;       /* how often its worker has said anew what it needs */
    bool        wanted;      /* somebody waits for it */
    bool        ahead;       /* or will: it is loaded although nobody does (host_want) */
    bool        leaving;     /* unload as soon as nobody uses it */
    bool        yielding;    /* the same, because another model has waited long enough; new requests wait */
    bool        removed;     /* nobody finds it any more; the keeper frees it as soon as nobody uses it */
    bool        load_failed; /* those who wait have not been told yet */
    int         users;       /* requests at the worker, and callers that hold it */
    int         paused;      /* of the users: requests that are paused */
    int         waiters;     /* callers that wait for it */
    int64_t     keep_ms;     /* of the last request */
    int64_t     last_used;   /* monotonic ms */
    int64_t     wanted_at;   /* since when it stands in line */
    int64_t     load_begin;
    err         load_error;    /* of the last attempt */
    uint64_t    failed_newest; /* the last request that it concerns */
    err         end_why;       /* of the last worker */
    uint64_t    loads;         /* attempts that are over */
    /* As the owner wishes; never changed. */
    runtime_settings *settings;
    int64_t           own_keep_ms;
    host_request     *requests;
    uint64_t          worker; /* the number of the worker that runs, or of the next one */
    arena             mem;    /* of the child's thread: for the frame at hand */

    device_memory need; /* as its last worker said; info.need_bytes is the sum */

    /* share.c. One that shares has no worker: of what stands above, only what is said of a name. */
    model   *shares;      /* whose worker it uses; NULL: its own */
    int      sharers;     /* models that use its worker */
    int      asked;       /* requests and callers under way that came by its name */
    bool     used;        /* its name was, since the worker began, and was not unloaded since */
    uint64_t readable_by; /* the worker that can read its adapters */
};

struct host {
    host_options    options;
    pthread_mutex_t lock;
    pthread_cond_t  keeper_wake, changed;
    pthread_t       keeper;
    bool            keeper_runs, closing;
    model          *models;
    uint64_t        next_id, last_worker;
    int             n_requests;
    int             inside; /* callers that wait in here */
    host_request   *slots[HOST_MAX_REQUESTS];
    runtime_stats   gone; /* counters of workers that ended */
    quarantine      quarantine;
    void (*on_batch)(void *ctx, bool begins); /* set before the first worker starts */
    void    *batch_ctx;
    uint64_t crashes;
};

/* requests.c; all with the lock held. */
int  host_request_enlist(host *h, model *m, host_request *r, err *e); /* a number and a place; ERR_BUSY */
void host_request_end(host *h, host_request *r);                      /* gives them back */
void host_request_send(host *h, host_request *r); /* hands a request to the worker; releases the lock meanwhile */
void host_request_steer(host_request *r, wire_type how); /* CANCEL, PAUSE, RESUME, if it was sent */
/* WITHOUT the lock, after host_request_end: its last event; frees. */
void host_request_fail(host_request *r, const err *why);
/* Tells those who wait, up to this number: who comes later is not meant. Releases the lock meanwhile. */
void host_request_fail_waiting(host *h, model *m, uint64_t newest, const err *why);
bool model_has_waiting(const model *m);
void model_release(model *m); /* one holder less */

/* A worker's frames and end, on its thread. */
int            model_take_frame(void *ctx, const wire_frame *f, err *e);
child_activity model_activity(void *ctx);
void           model_take_end(void *ctx, const child_end *end);
/* Adds what was counted; of a model that is up also what is there at the moment. */
void model_add_stats(runtime_stats *to, const runtime_stats *s, bool up);

/* keeper.c */
void *keeper_main(void *ctx);
void  model_free(model *m);

/* share.c; all with the lock held. A worker is named by the model that has it. */
model                  *model_carrier(model *m);
const runtime_settings *model_wishes(const model *m);  /* that its requests bring; NULL: none */
void                    model_join(host *h, model *m); /* finds a worker for a new model, if one can be shared */
void                    model_part(model *m);
bool                    model_reaches(const host *h, const model *w, const model *m); /* reads all its adapters */
/* The adapters of all that share, which the worker that begins now will read; the caller frees *out, NULL: no memory. */
size_t  model_paths(host *h, model *w, const char ***out);
bool    model_pinned(const model *w);
int64_t model_expiry(const model *w);
bool    model_used_otherwise(const model *m); /* by another name */
void    model_unused(model *w);               /* the worker is gone: only names that are still asked for use the next */
bool    model_bears(const model *m);          /* the name under which the worker's memory is listed */
void    model_parent(const model *m, char *out, size_t cap); /* the name of the same file without adapters, or "" */

#endif
