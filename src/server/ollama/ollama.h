/* SPDX-License-Identifier: Apache-2.0 */
/* What Ollama's endpoints share. */
#ifndef SERVER_OLLAMA_OLLAMA_H
#define SERVER_OLLAMA_OLLAMA_H

#include "registry/registry.h"
#include "server/exchange.h"
#include "server/http/json_out.h"
#include "server/library.h"

/* A member with the time of now, or of a moment in seconds since 1970, as their server writes it. */
void ollama_put_now(jw *w, const char *key);
void ollama_put_time(jw *w, const char *key, int64_t seconds);

/* "demo" is said as "demo:latest". */
void ollama_put_name(jw *w, const char *key, const char *name);

/* total_duration (of the exchange so far, nanoseconds), load_duration and what the usage says. */
void ollama_put_durations(jw *w, int64_t begin_us, const runtime_usage *u);

/* options, format, keep_alive, think of generate and chat. */
void ollama_read_options(exchange *x, runtime_request *q);
void ollama_read_format(exchange *x, runtime_request *q);
void ollama_read_think(exchange *x, runtime_request *q);

/* For what works on the registry. NULL: answered (the server has none, a field is missing, out of memory). */
library *ollama_library(exchange *x);
char    *ollama_copy(exchange *x, view text);
char    *ollama_need_model(exchange *x); /* a mistake is left in x->in */
/* A model by any of its names; one that only the host knows has no name in *m, only a path. */
int ollama_find_base(exchange *x, registry *r, const char *name, registry_model *m, err *e);
/* Pulls; the answer is a stream of this type, in pieces that `write` makes. */
void ollama_pull_with(exchange *x, pull_writer *write, const char *stream_type);

#endif
