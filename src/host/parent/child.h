/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's side of one worker process.
 *
 * A child has a thread of its own that starts the process, sends and receives, watches its heartbeat, passes on its log
 * lines and waits for its end. That thread is the process's parent in the kernel's eyes (PR_SET_PDEATHSIG), so it stays
 * until the process is gone.
 *
 * Sending never waits: what the socket does not take at once is kept and goes out later.
 */
#ifndef HOST_PARENT_CHILD_H
#define HOST_PARENT_CHILD_H

#include "host/wire.h"

#include <sys/types.h>

typedef struct child child;

/* How a worker ended. */
typedef struct child_end {
    bool          asked;   /* child_stop was called before: nothing went wrong */
    bool          crashed; /* by its own fault: a signal other than a person's, an exit code, a hang, a broken frame */
    err           why;     /* a sentence for those who waited for its answers */
    runtime_stats stats;   /* what it last said */
} child_end;

/* What is expected of a worker right now. */
typedef enum child_activity {
    CHILD_IDLE,
    CHILD_LOADING,
    CHILD_WORKING, /* answers are awaited */
} child_activity;

typedef struct child_options {
    const char  *program; /* to be run as `PROGRAM worker` */
    char *const *env;     /* its environment; NULL: empty */
    wire_open    open;    /* copied */
    int64_t      hang_ms; /* no sign of progress for so long while work is under way: it is killed; 0: 30 s */
    int64_t      load_ms; /* the longest time for loading; 0: 15 minutes */
    int64_t      stop_ms; /* from child_stop to SIGKILL; 0: 30 s */

    /* All from the child's thread. on_frame gets every frame but PONG; negative: the worker
     * is beyond help. on_end comes once, as the last one, when the process is gone. */
    int (*on_frame)(void *ctx, const wire_frame *f, err *e);
    child_activity (*activity)(void *ctx);
    void (*on_batch)(void *ctx, bool begins); /* around the frames of one read; NULL: not wanted */
    void *batch_ctx;
    void (*on_end)(void *ctx, const child_end *end);
    void *ctx;
} child_options;

int  child_open(child **out, const child_options *o, err *e);
void child_free(child *c); /* after on_end; accepts NULL */

/* Whole frames. ERR_BUSY: the worker does not keep up with reading. ERR_IO: it has ended and will never see them. */
int child_send(child *c, const char *frames, size_t bytes, err *e);

void child_stop(child *c); /* graceful, then SIGKILL */

/* It has said something that was not understood only later: it is killed, and on_end tells why. The first one counts.
 */
void child_distrust(child *c, const err *why);
void child_not_understood(err *why); /* makes of what is wrong with a frame the sentence that clients get */

/* What the worker said last about itself; asks for news and waits for them for wait_ms at most. */
void  child_stat(child *c, runtime_stats *out, int wait_ms);
pid_t child_pid(child *c); /* 0: not started yet, or gone */

#endif
