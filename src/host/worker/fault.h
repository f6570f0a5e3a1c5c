/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Things that go wrong on purpose, for tests: host_options.debug_fault, sent to the worker with its first frame.
 *
 *     segv:N  abort:N  hang:N  exit:N  garbage:N    with the Nth event; at N = 0 while loading
 *     lost:N                                        the device is lost with the Nth step
 *     full:N                                        the first N attempts to load: a device that nobody named is full
 *     broken:N  stray:N                             the Nth event is a whole frame whose body makes no sense, or
 *                                                   belongs to no choice
 *     socket  open:PATH                             before the model is opened, behind the sandbox
 *     need:DEVICE=BYTES                             the model says that it needs this, too
 */
#ifndef HOST_WORKER_FAULT_H
#define HOST_WORKER_FAULT_H

#include "base/err.h"
#include "engine/engine.h"
#include "host/parent/budget.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

typedef enum fault_kind {
    FAULT_NONE,
    FAULT_SEGV,
    FAULT_ABORT,
    FAULT_HANG,
    FAULT_EXIT,
    FAULT_GARBAGE,
    FAULT_BROKEN,
    FAULT_STRAY,
    FAULT_LOST,
    FAULT_FULL,
    FAULT_SOCKET,
    FAULT_OPEN,
    FAULT_NEED,
} fault_kind;

typedef struct fault {
    fault_kind  kind;
    int         at;
    const char *path;
    char        device[64]; /* NEED */
    uint64_t    bytes;
    atomic_int  seen;
} fault;

int  fault_parse(fault *f, const char *text, err *e); /* "" is not a fault; text stays */
int  fault_at_load(fault *f, err *e);
void fault_at_open(const fault *f, engine_options *o); /* may put a backend of its own in front */
int  fault_at_place(fault *f, bool *may_leave, err *e);
void fault_at_need(const fault *f, device_memory *bytes);
bool fault_at_event(fault *f, int socket);                   /* true: this event is to be broken */
void fault_break(const fault *f, char *event, size_t bytes); /* its body */

#endif
