/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker process: one model behind a socket (wire.h).
 *
 * The main thread reads frames and answers pings; a second thread loads the model and then does the calls that take
 * time (tokenizing, rendering); a third one writes. Events are encoded by the engine's thread into a buffer; behind a
 * step that thread hands it to the socket in one call that does not wait, and what the socket does not take is the
 * writer's. Where the other side does not read, the buffer ends at queue_bytes: a request that has more to say is
 * cancelled then, its further events are dropped, and its last one says so.
 */
#ifndef HOST_WORKER_WORKER_H
#define HOST_WORKER_WORKER_H

#include "base/err.h"

enum { WORKER_EXIT_LOST = 5 }; /* the process's exit code when its device is gone: a new process may get it back */

/* Serves until the other end of the socket is closed or says so. parent: the process that must live, 0: any. The caller
 * has installed a log sink that does not wait. Returns 0 or WORKER_EXIT_LOST, the exit code, or an error after which the
 * process must end at once. */
int worker_run(int socket, long parent, err *e);

#endif
