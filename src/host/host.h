/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which models are loaded.
 *
 * A host knows models by name. The first request for a model loads it, in a worker process of its own (docs/host.md);
 * the model stays for its keep-alive after its last request and leaves earlier when another one needs its place (least
 * recently used first, never one that is working). host_submit returns at once, and a request for a model that is still
 * loading waits for it. The server reaches models through this header alone.
 *
 * A worker that dies or hangs ends its requests with an ERROR event each, and nothing else; the next request starts it
 * again. A file whose workers crashed three times within ten minutes is left alone until it changes or somebody loads
 * it by name (host_load).
 *
 * Events of a request come as runtime.h says, from an internal thread and exactly one of them with `last` set, but as
 * the bytes that the worker sent: the thread that has the events of all requests looks at no more than it needs to know
 * whose they are. Who uses an event reads it (host_read_event), in its own time and on its own thread. A worker is not
 * trusted: its bytes may turn out to make no sense. Who finds that ends the request, and tells host_distrust, which
 * ends the worker.
 */
#ifndef HOST_HOST_H
#define HOST_HOST_H

#include "base/arena.h"
#include "host/parent/budget.h"
#include "pixels/pixels.h"
#include "runtime/runtime.h"
#include "sound/sound.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct host host;

#define HOST_KEEP_DEFAULT INT64_MIN /* as a keep-alive: what the host's options say */
#define HOST_KEEP_FOREVER INT64_MAX

#define HOST_NO_LIMIT UINT64_MAX

enum { HOST_MAX_REQUESTS = 4096 }; /* under way at once, waiting ones too */

typedef struct host_options {
    int max_loaded; /* models at once; 0: 4 */
    /* Memory of loaded models together, by device, as docs/host.md counts it; HOST_NO_LIMIT. DEVICE_CPU missing or 0: 80%
     * of what is available now. A model that needs a device without an entry is refused. */
    device_memory   budget;
    int64_t         keep_alive_ms; /* HOST_KEEP_DEFAULT: five minutes */
    runtime_options runtime;       /* for every model; path is ignored */

    const char  *program;     /* that has the command `worker`; NULL: this one */
    char *const *worker_env;  /* the environment of workers; NULL: empty. Must stay */
    bool         no_sandbox;  /* workers may do what this process may: the owner asked for it */
    int64_t      hang_ms;     /* a worker without a sign of progress for so long is ended; 0: 30 s */
    int64_t      wait_ms;     /* how long a request waits for a place among busy models; 0: 5 minutes */
    int64_t      yield_ms;    /* a place is asked of a busy model after so long; 0: 2 s */
    const char  *debug_fault; /* tests only: "MODEL=FAULT", several with ";" between; see fault.h; must stay */
} host_options;

int  host_open(host **out, const host_options *o, err *e);
void host_free(host *h); /* ends what is under way; accepts NULL */

/* Events come in groups (those of a step): fn is called before and after each, on the thread that delivers them. Events
 * that belong to no group come without it. To be set before the first model is loaded. */
void host_on_batch(host *h, void (*fn)(void *ctx, bool begins), void *ctx);

/* The name is what clients say; "x" and "x:latest" are the same. Replaces nothing: a known name is ERR_ARG. */
int host_add_model(host *h, const char *name, const char *path, err *e);

/* What is particular about one model. */
typedef struct host_model_options {
    const runtime_settings *settings;      /* NULL: none; copied */
    int64_t                 keep_alive_ms; /* of requests that say nothing; HOST_KEEP_DEFAULT: what the host says */
    bool                    pinned; /* never makes room for another one, and stays until it is unloaded by name */
} host_model_options;
int host_add_model_with(host *h, const char *name, const char *path, const host_model_options *o, err *e);
/* The name is unknown, and free for another model, at once. Requests under way end as they would; the model is unloaded
 * behind them. Does not wait. */
int host_remove_model(host *h, view name, err *e);

typedef enum host_state { HOST_UNLOADED, HOST_LOADING, HOST_LOADED } host_state;

typedef struct host_model {
    char       name[128];
    char       path[512];
    char       parent[128]; /* of one made with adapters: the model without them, if there is one; else "" */
    host_state state;
    uint64_t   file_bytes;
    int64_t    modified;   /* of the file, seconds since 1970 */
    int64_t    expires_ms; /* until it is unloaded, from now; HOST_KEEP_FOREVER; 0 while unloaded */
    int        active;     /* requests under way */
    bool       described;  /* the fields below are known: the model was loaded once */
    char       family[64], format[32], quant[32];
    uint64_t   n_params;
    int        n_ctx, n_ctx_train, n_layer, n_embd;
    int        n_seqs; /* that compute at once */
    int64_t    n_vocab;
    bool       can_chat, can_tools, can_think, can_embed, can_infill, can_generate, can_see, can_hear;

    bool          pinned;
    float         load_fraction; /* while loading */
    double        load_seconds;  /* so far, or that the last load took */
    uint64_t      need_bytes;    /* what it counts for in the budgets of all devices; 0: not known yet */
    device_memory need;          /* the same by device */
    char          device[64];    /* where it computes; "cuda:0/20": the CPU, too */
    int           pid;           /* of its worker; 0: none */
    bool          quarantined;
    int           crashes; /* of its workers since the host was opened */
} host_model;

/* The caller frees *out with free. In the order of addition. */
int host_list(host *h, host_model **out, size_t *n, err *e);
int host_find(host *h, view name, host_model *out, err *e); /* ERR_NOTFOUND */

/* Valid during the callback only. */
typedef struct host_event {
    runtime_event_kind kind;
    int                choice; /* one of the request's; of an ERROR also -1 */
    bool               last;
    uint64_t           worker; /* who says it, for host_distrust */
    view               body;   /* for host_read_event; may be copied and read later */
    const err         *error;  /* of an ERROR that the host itself made, whose body is empty; else NULL */
} host_event;

/* q (whose own callback is not used) and what it points at must stay until the event with `last`. An unknown model is
 * ERR_NOTFOUND at once; a model that cannot be loaded is an ERROR event. From any thread; events may come before it
 * returns. */
int host_submit(host *h, view model, const runtime_request *q, int64_t keep_alive_ms,
                void (*on_event)(void *ctx, const host_event *ev), void *ctx, uint64_t *id, err *e);
/* The event of q that body is. Views point into body, arrays into mem. ERR_FORMAT: it makes no sense. */
int host_read_event(const runtime_request *q, view body, arena *mem, runtime_event *out, err *e);
/* This worker has said something that host_read_event refused: why, which becomes a sentence for the client. It is
 * ended as beyond help, once, however many events of it are refused; one that is gone already stays in peace. */
void host_distrust(host *h, uint64_t worker, err *why);
void host_cancel(host *h, uint64_t id);
/* As runtime.h says: the request makes no further events until it is resumed; events on their way still come. For a
 * client that reads too slowly. Returns at once; unknown ids are ignored. */
void host_pause(host *h, uint64_t id);
void host_resume(host *h, uint64_t id);

/* Begins to load a model, as a request would, and returns at once. A failure stands in the log. */
int host_want(host *h, view model, err *e);

/* These wait for a model that is not loaded; not for the I/O thread. */
int host_load(host *h, view model, int64_t keep_alive_ms, err *e); /* ends a quarantine */
int host_unload(host *h, view model, err *e);                      /* cancels its requests */
int host_tokenize(host *h, view model, view text, bool add_special, bool parse_special, tok_ids *out, err *e);
int host_detokenize(host *h, view model, const int32_t *tokens, size_t n, bool keep_special, str *out, err *e);
int host_render(host *h, view model, const runtime_request *q, str *out, err *e);
int host_count(host *h, view model, const runtime_request *q, size_t *out, err *e);
/* A picture or a sound from the bytes of a file, in a process of its own (decoder.h). */
int host_read_picture(host *h, view file, pixels *out, err *e);
int host_read_sound(host *h, view file, sound *out, err *e);
int host_template(host *h, view model, str *out, err *e); /* the chat template's text, appended; empty if none */

/* Sums over the loaded models; counters go on when a model is unloaded. */
typedef struct host_stats {
    int           n_models, n_loaded, n_loading;
    uint64_t      loaded_bytes;            /* files of loaded models */
    uint64_t      need_bytes, limit_bytes; /* memory of the machine that they count for, and its budget */
    device_memory need, budget;            /* the same for every device */
    uint64_t      crashes;                 /* of workers */
    runtime_stats runtime;
} host_stats;
void host_stat(host *h, host_stats *out);

#endif
