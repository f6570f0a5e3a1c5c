/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backend interface: a model's tape on a device. docs/writing-a-backend.md says how one is written.
 *
 * A backend owns everything that a step touches: its copy of the weights (where it needs another layout, open makes
 * it), its activations, its pages and its slots. Nobody outside holds a pointer into them: rows are fetched, pages and
 * slots are moved, and both are named by number. open picks kernels, plans memory and refuses an op or a type that it
 * cannot run by name; there is no fallback.
 *
 * Time
 *
 * Steps and moves are started by one call and finished by another; between the two the device works. They take effect
 * in the order in which they were started: a step sees the pages that an earlier move brought, and a page may be given
 * to somebody else as soon as a move out of it was started. Memory of the caller is different: the batch and what it
 * points at are only needed until submit returns, but the host side of a move must stay, and may be read only, until
 * its ticket was waited for. Nothing allocates between submit and the end of wait.
 *
 * Failure
 *
 * Every call may fail, at its start or when it is waited for, with a sentence. A failed step has written nothing but
 * positions, slots and rows of its own batch; a failed move has left its destination undefined. The executor can be
 * used further, except after ERR_LOST: then the device is gone for this process, every later call fails in the same
 * way, and only free may follow.
 *
 * Going ahead
 *
 * An executor with `ahead` guesses the token behind each row of logits as soon as it is there, as the batch's `guess`
 * says it will be picked. A step may then be submitted while another one is under way, with guessed tokens (`ahead` of its
 * batch). It is the caller who picks, from the step in front as soon as that was waited for; where the pick is not what
 * was guessed, the rows of the step behind that came from it are worthless. Of a step that another one follows, `sample`
 * knows only what came with it, and leaves more rows to the host than otherwise; nothing of it can be fetched.
 *
 * An executor is used by one thread at a time.
 */
#ifndef NN_BACKEND_H
#define NN_BACKEND_H

#include "base/device_memory.h"
#include "base/err.h"
#include "base/file_reader.h"
#include "nn/adapter.h"
#include "nn/batch.h"
#include "nn/kv_type.h"
#include "nn/model.h"
#include "params/sampling.h"

#include <stdatomic.h>

typedef struct nn_exec    nn_exec;
typedef struct nn_backend nn_backend;

/* Names work that was started. Tickets of one executor rise. */
typedef uint64_t nn_ticket;

/* --- devices ---------------------------------------------------------------------------------------------------- */

typedef enum nn_device_kind {
    NN_DEVICE_CPU,
    NN_DEVICE_GPU,
    NN_DEVICE_REFERENCE, /* slow and exact: for comparisons, never chosen by itself */
    NN_DEVICE_MIXED,     /* several that are not all GPUs */
} nn_device_kind;

typedef struct nn_device {
    char           id[64];   /* "cpu", "cuda:0": what an option names */
    char           name[96]; /* for people */
    nn_device_kind kind;
    bool           divided;                 /* the id names several, which share a model */
    uint64_t       total_bytes, free_bytes; /* of its memory; 0: not known */
} nn_device;

enum { NN_MAX_DEVICES = 16, NN_MAX_SETS = 1024 };

/* All devices of these backends (NULL ends the list), in their order. Returns how many were written, at most cap. */
int nn_device_list(const nn_backend *const *backends, nn_device *out, int cap);

/* --- opening ---------------------------------------------------------------------------------------------------- */

/* Sees a row of the input of a product with w before it is computed; expert: which matrix of a stack, else 0. */
typedef void (*nn_observe)(void *ctx, const nn_mat *w, int expert, const float *row);

typedef struct nn_exec_options {
    nn_limits  limits;
    nn_kv_type k_type, v_type;
    int        precise_layers;   /* nn_kv_types.precise */
    bool       k_open;           /* nn_kv_types.k_open */
    int        first_op, end_op; /* the part of the tape that this executor runs; both 0: all of it */
    const bool
        *ops; /* [n_ops]: which ops of that part, for the executor's life; NULL: all. Others are of somebody whose
                        results are written between runs */

    /* The CPU's. */
    int      n_threads; /* 0: one per core */
    bool     pin;
    bool     steady; /* all threads in every step, even where other programs hold the cores: for tests */
    unsigned cpu;    /* instruction sets that may be used; those absent are dropped */
    /* Memory for experts that a router chooses: they are read from the file when they are needed, and the last ones stay
     * (backend/cpu/store.h). 0: they are read where the file is mapped, as all other weights are. */
    size_t                  expert_bytes;
    const file_reader_hook *reader; /* reads instead of pread, for tests; copied. NULL: pread */

    nn_observe observe; /* NULL: nobody looks. Called by one thread, rows in their order */
    void      *observe_ctx;
} nn_exec_options;

/* Whether an op of the tape is in the executor's part. */
static inline bool nn_exec_runs(const nn_exec_options *o, int op) {
    return op >= o->first_op && op < o->end_op && (!o->ops || o->ops[op]);
}

/* The types of one layer's pages. */
static inline void nn_exec_kv_types(const nn_exec_options *o, const nn_model *m, int layer, nn_kv_type *k,
                                    nn_kv_type *v) {
    const nn_kv_types t = { o->k_type, o->v_type, o->precise_layers, o->k_open };
    nn_kv_types_of_layer(&t, m, layer, k, v);
}

/* Experts that a router chooses, where the CPU computes them. Measuring fills it whether they are streamed or not. */
typedef struct nn_expert_memory {
    size_t bytes;    /* room for streamed ones; 0: none are streamed */
    size_t streamed; /* of the file: what is read into that room, and not where it is mapped */
    size_t least,
        most; /* what that room may be: the least that works, and enough for all; 0: they cannot be streamed */
    size_t file, token;  /* what all of them take of the file, and those that one token uses */
    int    slots, count; /* how many there is room for, and how many there are */
} nn_expert_memory;

/* What an executor takes of its device's memory. */
typedef struct nn_memory {
    size_t page_bytes[NN_MAX_GROUPS]; /* one page; its bytes are opaque outside the backend */
    size_t slot_bytes;                /* one slot's fixed states; 0: the model has none */
    size_t pages_bytes;               /* all pages of all groups */
    size_t heap_bytes;                /* activations, scratch, tables, slots */
    size_t weights_bytes;             /* copies of weights; 0: they are read where the file is mapped */
    /* Of a model on several devices; elsewhere nothing. */
    device_memory beside;       /* of pages, heap and weights: what does not lie in the machine's own memory */
    size_t        mapped_bytes; /* and the weights that are read where the file is mapped */

    nn_expert_memory experts; /* beside heap_bytes */
} nn_memory;

/* What streaming does. Counters rise; written by the thread that runs steps. */
typedef struct nn_streaming {
    int      slots;                 /* experts that there is room for */
    int      experts;               /* that there are */
    uint64_t hits, misses, evicted; /* experts that a step wanted: there or not; and those that made room */
    uint64_t bytes;                 /* read */
    double   wait_s;                /* in which nothing was computed because a read was not done */
} nn_streaming;

/* What everybody may know of an executor; a backend's own struct begins with it. */
struct nn_exec {
    const nn_backend *backend;
    nn_device         device;
    const nn_model   *model;
    nn_exec_options   options;
    nn_groups         groups;
    const bool       *has_layer; /* [n_layer]: its part of the tape touches the layer's state; others have no memory */
    nn_memory         memory;
    uint64_t          arithmetic;  /* executors of one backend with the same number compute the same bits */
    bool              ahead;       /* guesses tokens, and takes batches that begin with them */
    const nn_streaming *streaming; /* NULL: no experts are streamed */
    /* How many bytes of them were read, also while a step is under way: any thread may look. NULL: as above. */
    const atomic_uint_least64_t *bytes_read;
    double idle_s; /* by the device's clock: how long it had nothing to do between the step that was waited
                                     for last and the one before; -1: not known */
};

/* --- moving ----------------------------------------------------------------------------------------------------- */

typedef enum nn_move_kind { NN_MOVE_PAGE, NN_MOVE_SLOT } nn_move_kind;

/* One page (of a group) or one slot, from number to number. NN_HOST on one side means the host buffer, which has
 * page_bytes[group] or slot_bytes. */
typedef struct nn_move {
    nn_move_kind kind;
    int          group; /* of pages */
    int32_t      from, to;
    void        *host; /* read when from is NN_HOST, written when to is */
} nn_move;
enum { NN_HOST = -1 };

/* --- what comes out --------------------------------------------------------------------------------------------- */

typedef enum nn_fetch_what {
    NN_FETCH_LOGITS, /* [n_out - n_hidden][n_vocab] */
    NN_FETCH_HIDDEN, /* [n_out][width]: what the head reads */
    NN_FETCH_INNER,  /* [n_out][width]: what was made of inner states for a further head (nn_tape_tap) */
} nn_fetch_what;

nn_buf nn_fetch_buf(const nn_tape *t, nn_fetch_what what); /* where they are; 0: the model has none */

/* --- the backend ------------------------------------------------------------------------------------------------ */

struct nn_backend {
    const char *name;
    unsigned    can;     /* NN_BATCH_*: what a batch may hold beyond tokens (nn/batch.h) */
    bool        streams; /* experts, with nn_exec_options.expert_bytes; others refuse it */

    int (*devices)(nn_device *out, int cap); /* returns how many it wrote; none is not an error */
    /* The first call of a process that will be walled in: starts the driver, with all that opening an executor on the
     * device (NULL: the first one) will need of files, executable memory and threads. NULL: nothing is needed. */
    int (*prepare)(const char *device, err *e);
    int (*measure)(nn_memory *out, const nn_device *d, const nn_model *m, const nn_exec_options *o, err *e);
    int (*open)(nn_exec **out, const nn_device *d, const nn_model *m, const nn_exec_options *o, err *e);
    void (*free)(nn_exec *x); /* waits for what is under way */

    /*
     * Makes `number` (1 .. NN_MAX_SETS) mean this adapter set in the batches that follow; NULL: nothing any more. The
     * set stays where it is until it is taken away. May allocate; not while a step is under way. NULL: no adapters.
     */
    int (*adapt)(nn_exec *x, int number, const nn_adapter_set *set, err *e);

    /*
     * Memory of the executor where the supplied rows of the next step may be put, one behind the other, as many as a batch
     * may have: rows that lie there, each in its place, are not copied. What is there stays until somebody writes there.
     * NULL: rows come from anywhere.
     */
    float *(*input)(nn_exec *x);

    /* One step over the executor's part of the tape. Only one may be under way, and one behind it that goes ahead. */
    int (*submit)(nn_exec *x, const nn_batch *b, nn_ticket *step, err *e);
    int (*wait)(nn_exec *x, nn_ticket ticket, err *e); /* of a step or a move; once each */
    /* Rows of the last step that was waited for; they are there until the next submit. */
    int (*fetch)(nn_exec *x, nn_fetch_what what, int64_t first, int64_t n, float *to, err *e);

    /*
     * Picks a token from each of n rows of the last step's logits, as params/sampling.h defines it; every rows[i].params
     * is one that sampling_on_device allows. A row that allows no token gives token -1; SAMPLING_LEFT leaves the row to
     * the host. NULL: the host samples.
     */
    int (*sample)(nn_exec *x, const int32_t *out_rows, const sampling_row *rows, int n, sampling_result *out, err *e);

    /* n pages and slots at once; the moves do not depend on each other. */
    int (*move)(nn_exec *x, const nn_move *moves, int n, nn_ticket *ticket, err *e);

    /*
     * Op by op and synchronous: for comparing backends, and for a tape that is cut in two. begin takes the batch of a
     * step (borrowed until the last run), run computes a range of ops, read and write copy all rows that the batch has
     * in a buffer. nn_batch_rows says how many those are.
     */
    int (*begin)(nn_exec *x, const nn_batch *b, err *e);
    int (*run)(nn_exec *x, int first_op, int end_op, err *e);
    int (*read)(nn_exec *x, nn_buf b, float *to, err *e);
    int (*write)(nn_exec *x, nn_buf b, const float *from, err *e);
};

/* Fills the common part and checks the options; the groups lie in mem. */
int nn_exec_init(nn_exec *x, const nn_backend *backend, const nn_device *d, const nn_model *m, const nn_exec_options *o,
                 arena *mem, err *e);

int     nn_exec_step(nn_exec *x, const nn_batch *b, err *e);                    /* submit and wait */
int     nn_exec_move(nn_exec *x, const nn_move *moves, int n, err *e);          /* move and wait */
int64_t nn_exec_width(const nn_exec *x, nn_fetch_what what);                    /* floats of a row that is fetched */
int     nn_exec_check(const nn_exec *x, const nn_batch *b, err *e);             /* nn_batch_check for this executor */
int     nn_exec_check_moves(const nn_exec *x, const nn_move *m, int n, err *e); /* numbers and buffers */
void    nn_exec_free(nn_exec *x);                                               /* accepts NULL */

#endif
