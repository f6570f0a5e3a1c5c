/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /v1/events: what the server does, as server-sent events, for a page that is open. One thread asks the workers once
 * a second while somebody listens and hands the figures to the I/O thread, which owns the rest and writes to all
 * listeners; without one it sleeps.
 */
#ifndef SERVER_OPS_EVENTS_H
#define SERVER_OPS_EVENTS_H

#include "base/err.h"

typedef struct server server;
typedef struct events events;

int  events_open(events **out, server *s, err *e);
void events_end(events *v);  /* on the I/O thread: every stream ends, and none begins any more; accepts NULL */
void events_stop(events *v); /* after the loop, before the host goes; accepts NULL */
void events_free(events *v); /* when no post is left; accepts NULL */

#endif
