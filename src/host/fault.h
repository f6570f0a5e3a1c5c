/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Things that go wrong on purpose, for tests: host_options.debug_fault, sent to the worker with its first frame.
 *
 *     segv:N  abort:N  hang:N  exit:N  garbage:N    with the Nth event; at N = 0 while loading
 *     socket  open:PATH                             before the model is opened, behind the sandbox
 */
#ifndef HOST_FAULT_H
#define HOST_FAULT_H

#include "base/err.h"

#include <stdatomic.h>

typedef enum fault_kind {
    FAULT_NONE,
    FAULT_SEGV,
    FAULT_ABORT,
    FAULT_HANG,
    FAULT_EXIT,
    FAULT_GARBAGE,
    FAULT_SOCKET,
    FAULT_OPEN
} fault_kind;

typedef struct fault {
    fault_kind  kind;
    int         at;
    const char *path;
    atomic_int  seen;
} fault;

int  fault_parse(fault *f, const char *text, err *e); /* "" is no fault; text stays */
int  fault_at_load(fault *f, err *e);
void fault_at_event(fault *f, int socket);

#endif
