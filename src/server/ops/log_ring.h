/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The newest log records, for those who look at a running server. A fixed number of them in fixed memory: whatever is
 * logged, nothing is allocated, and a long message is cut. From any thread.
 */
#ifndef SERVER_OPS_LOG_RING_H
#define SERVER_OPS_LOG_RING_H

#include "base/err.h"
#include "base/log.h"

typedef struct log_ring log_ring;

int  log_ring_open(log_ring **out, err *e);
void log_ring_free(log_ring *r); /* accepts NULL */
void log_ring_add(log_ring *r, const log_record *record);

/* Records after number `after` (-1: from the oldest) as members of a JSON array, each with its number ("seq"). Returns
 * the number of the newest record, or `after` where there is none. */
int64_t log_ring_write(log_ring *r, int64_t after, log_level least, str *out);

#endif
