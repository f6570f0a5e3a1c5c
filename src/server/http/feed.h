/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An answer that another thread writes, piece by piece: the progress of a pull, of an upload, of a creation.
 *
 * A handler makes a feed (exchange_feed) and hands it to a thread, which puts text and ends it exactly once. The
 * exchange lives until then. When the client leaves, on_gone is called once on the I/O thread; what is put afterwards
 * is dropped.
 */
#ifndef SERVER_HTTP_FEED_H
#define SERVER_HTTP_FEED_H

#include "server/exchange.h"

typedef struct feed feed;

/* In a handler. With a stream type the answer is a stream that begins with the first piece; without, it is one JSON
 * answer. NULL: out of memory (answered). */
feed *exchange_feed(exchange *x, const char *stream_type);

/* In the handler: the client's leaving is told after it has returned. */
void feed_status(feed *f, int status); /* of an answer without a stream; 200 otherwise */
void feed_on_gone(feed *f, void (*on_gone)(void *ctx, feed *f), void *ctx);
/* From any thread. */
void feed_put(feed *f, const void *data, size_t bytes);
/* The last call for this feed. With an error: its status if nothing was put, else a line in the stream. */
void feed_end(feed *f, const err *e);

/* --- for exchange.c, on the I/O thread --- */
void feed_attached(feed *f); /* the handler has returned: what was put meanwhile is sent */
void feed_detach(feed *f);   /* accepts NULL */
void feed_free(feed *f);     /* accepts NULL */

#endif
