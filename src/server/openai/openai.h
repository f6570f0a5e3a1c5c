/* SPDX-License-Identifier: Apache-2.0 */
/* What OpenAI's endpoints share. */
#ifndef SERVER_OPENAI_OPENAI_H
#define SERVER_OPENAI_OPENAI_H

#include "server/collect.h"
#include "server/exchange.h"
#include "server/http/json_out.h"

void openai_put_error(str *out, const failure *f);
void openai_heartbeat(exchange *x);

/* One server-sent event: "data: " + json + an empty line. */
void openai_put_event(exchange *x, const str *json);

void        openai_put_usage(jw *w, const runtime_usage *u);   /* a member "usage" */
void        openai_put_timings(jw *w, const runtime_usage *u); /* a member "timings" */
const char *openai_finish(runtime_finish f);

/* {"token","logprob","bytes","top_logprobs"} of a TOKEN event; ids: with the tokens' numbers, as llama.cpp has them. */
void openai_put_logprob(jw *w, const runtime_event *ev, bool ids);

#endif
