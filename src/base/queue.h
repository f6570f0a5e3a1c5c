/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounded work queue of pointers between threads: many producers, many consumers, first in, first out.
 * A closed queue takes nothing more, and hands out what it still holds before it says so.
 */
#ifndef BASE_QUEUE_H
#define BASE_QUEUE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct queue queue;

int    queue_open(queue **out, size_t capacity, err *e);
void   queue_free(queue *q);                 /* accepts NULL; no thread may be inside */
bool   queue_push(queue *q, void *item);     /* waits for room; false: closed */
bool   queue_try_push(queue *q, void *item); /* false: full or closed */
bool   queue_pop(queue *q, void **out);      /* waits; false: closed and empty */
bool   queue_try_pop(queue *q, void **out);  /* false: empty */
void   queue_close(queue *q);
size_t queue_count(queue *q);

#endif
