/* SPDX-License-Identifier: Apache-2.0 */
/* What OpenAI's endpoints share. */
#ifndef SERVER_OPENAI_OPENAI_H
#define SERVER_OPENAI_OPENAI_H

#include "server/collect.h"
#include "server/exchange.h"
#include "server/http/json_out.h"
#include "server/openai/tool_names.h"
#include "server/vectors.h"

/* What the body asks for, whatever form its answer has. False: answered. */
typedef struct openai_chat_asked {
    runtime_request *q;
    view             model;
    tool_names       tools;  /* custom ones */
    bool             legacy; /* asked with functions */
    bool             stream, include_usage, timings;
} openai_chat_asked;
bool openai_read_chat(exchange *x, openai_chat_asked *a);

typedef struct openai_complete_asked {
    runtime_request *q; /* one per prompt */
    size_t           n_prompts;
    view             model;
    int64_t          n, best_of;
    bool             logprobs, stream, include_usage;
} openai_complete_asked;
bool openai_read_complete(exchange *x, openai_complete_asked *a);

/* put writes the answer, which is of this type */
void openai_embed_with(exchange *x, const char *type, void (*put)(const vectors *v, str *out));

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
