/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gRPC: calls over HTTP/2 whose bodies are messages of Protocol Buffers, each behind five bytes (whether it is
 * compressed, and its length), and whose answers end with trailers that say how it went.
 *
 * A method is a route like others: its message becomes the JSON body of a REST path, so most methods have the handler of
 * their REST twin, whose JSON answer becomes a message again. What streams, and what is large, writes messages itself.
 */
#ifndef SERVER_GRPC_GRPC_H
#define SERVER_GRPC_GRPC_H

#include "server/exchange.h"
#include "server/grpc/schema.h"

#define GRPC_TYPE "application/grpc" /* of an answer that is made of messages already */

const route *grpc_find(view path);                     /* NULL: no method */
bool         grpc_timeout(view text, int64_t *out_us); /* "100m" */

/* A message of its own in a stream: what is put between belongs to it. */
size_t grpc_open(str *out);
void   grpc_close(str *out, size_t at);
/* The next message of a body, cut off from its front. False: it is not complete, or *e says what is wrong. */
bool grpc_next(view *body, view *message, err *e);

/* infer.c */
void grpc_chat(exchange *x);
void grpc_chat_stream(exchange *x);
void grpc_complete(exchange *x);
void grpc_complete_stream(exchange *x);
void grpc_embed(exchange *x);

/* health.c */
void health_check(exchange *x);
void health_watch(exchange *x);
void health_end(server *s); /* the server takes no further calls */
void health_free(server *s);

/* reflect.c */
void reflect_call(exchange *x);
void reflect_file(const grpc_file *f, str *out); /* as protoc describes it */

#endif
