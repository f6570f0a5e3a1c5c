/* SPDX-License-Identifier: Apache-2.0 */
/* hearth.v1.Inference: answers and events as messages. What a body asks for is read as the REST paths read it. */
#include "server/collect.h"
#include "server/grpc/grpc.h"
#include "server/internal.h"
#include "server/openai/openai.h"

#include <stdlib.h>
#include <string.h>

typedef struct infer_state {
    view     model;
    bool     stream;
    collect *answers; /* one per prompt */
    str     *tokens;  /* one per choice of all prompts: messages Token, if they were asked for */
    size_t   n_prompts, n;
    str      out; /* reused */
} infer_state;

static void state_free(void *p) {
    infer_state *s = p;
    for (size_t i = 0; s->answers && i < s->n_prompts; i++) collect_deinit(&s->answers[i]);
    for (size_t i = 0; s->tokens && i < s->n_prompts * s->n; i++) str_deinit(&s->tokens[i]);
    free(s->answers);
    free(s->tokens);
    str_deinit(&s->out);
    free(s);
}

/* --- parts that answers and events share --- */

static view view_str(const str *s) { return (view){ str_cstr(s), s->len }; }

static int finish_of(runtime_finish f) {
    return f == RUNTIME_LENGTH ? FINISH_LENGTH : f == RUNTIME_TOOL_CALLS ? FINISH_TOOL_CALLS : FINISH_STOP;
}

static void put_usage(str *out, int number, const runtime_usage *u) {
    size_t at = pb_open(out, number);
    pb_put_int(out, USAGE_PROMPT, u->prompt_tokens);
    pb_put_int(out, USAGE_CACHED, u->cached_tokens);
    pb_put_int(out, USAGE_GENERATED, u->generated_tokens);
    pb_put_int(out, USAGE_REASONING, u->reasoning_tokens);
    pb_put_int(out, USAGE_DRAFTED, u->drafted_tokens);
    pb_put_int(out, USAGE_ACCEPTED, u->accepted_tokens);
    pb_put_double(out, USAGE_QUEUED_S, u->queued_s);
    pb_put_double(out, USAGE_PROMPT_S, u->prompt_s);
    pb_put_double(out, USAGE_GENERATE_S, u->generate_s);
    pb_close(out, at);
}

static void put_token(str *out, int number, const runtime_event *ev) {
    size_t at = pb_open(out, number);
    pb_put_int(out, TOKEN_ID, ev->token);
    pb_put_text(out, TOKEN_TEXT, ev->bytes);
    pb_put_double(out, TOKEN_LOGPROB, ev->logprob);
    for (int i = 0; i < ev->n_top; i++) {
        size_t top = pb_open(out, TOKEN_TOP);
        pb_put_int(out, TOKEN_ID, ev->top[i].token);
        pb_put_text(out, TOKEN_TEXT, ev->top[i].bytes);
        pb_put_double(out, TOKEN_LOGPROB, ev->top[i].logprob);
        pb_close(out, top);
    }
    pb_put_int(out, TOKEN_OF_PROMPT, ev->of_prompt);
    pb_close(out, at);
}

/* --- events --- */

/* A text that is empty still is an event. */
static void put_kind_text(str *out, int number, view text) {
    if (text.len == 0) pb_close(out, pb_open(out, number));
    pb_put_utf8(out, number, text);
}

static void put_call(str *out, const runtime_event *ev, int number) {
    size_t at = pb_open(out, number);
    pb_put_int(out, CALL_INDEX, ev->index);
    if (ev->kind == RUNTIME_TOOL_BEGIN) {
        pb_put_utf8(out, CALL_ID, ev->id);
        pb_put_utf8(out, CALL_NAME, ev->name);
    } else if (ev->kind == RUNTIME_TOOL_ARGUMENTS) {
        pb_put_utf8(out, CALL_TEXT, ev->text);
    }
    pb_close(out, at);
}

static void put_started(const exchange *x, const infer_state *s, str *out, const runtime_event *ev) {
    size_t at = pb_open(out, EVENT_STARTED);
    pb_put_text(out, STARTED_ID, view_of(x->id));
    pb_put_utf8(out, STARTED_MODEL, s->model);
    pb_put_int(out, STARTED_PROMPT_TOKENS, ev->prompt_tokens);
    pb_close(out, at);
}

static void put_done(str *out, const runtime_event *ev) {
    size_t at = pb_open(out, EVENT_DONE);
    pb_put_int(out, DONE_FINISH, finish_of(ev->finish));
    put_usage(out, DONE_USAGE, &ev->usage);
    pb_close(out, at);
}

static void put_progress(str *out, const runtime_event *ev) {
    size_t at = pb_open(out, EVENT_PROGRESS);
    pb_put_int(out, PROGRESS_DONE, ev->done);
    pb_put_int(out, PROGRESS_TOTAL, ev->total);
    pb_put_int(out, PROGRESS_CACHED, ev->cached);
    pb_close(out, at);
}

static void stream_event(exchange *x, infer_state *s, size_t request, const runtime_event *ev) {
    str *out = &s->out;
    str_clear(out);
    size_t at = grpc_open(out);
    pb_put_int(out, EVENT_CHOICE, (int64_t)(request * s->n) + (ev->choice > 0 ? ev->choice : 0));
    switch (ev->kind) {
    case RUNTIME_STARTED: put_started(x, s, out, ev); break;
    case RUNTIME_PROGRESS: put_progress(out, ev); break;
    case RUNTIME_TOKEN: put_token(out, EVENT_TOKEN, ev); break;
    case RUNTIME_CONTENT: put_kind_text(out, EVENT_CONTENT, ev->text); break;
    case RUNTIME_REASONING: put_kind_text(out, EVENT_REASONING, ev->text); break;
    case RUNTIME_TOOL_BEGIN: put_call(out, ev, EVENT_TOOL_BEGIN); break;
    case RUNTIME_TOOL_ARGUMENTS: put_call(out, ev, EVENT_TOOL_ARGUMENTS); break;
    case RUNTIME_TOOL_END: put_call(out, ev, EVENT_TOOL_END); break;
    case RUNTIME_DONE: put_done(out, ev); break;
    default: return;
    }
    grpc_close(out, at);
    if (!str_ok(out)) {
        err e = { 0 };
        err_set_nomem(&e);
        exchange_fail(x, &e);
        return;
    }
    exchange_put(x, out->data, out->len);
}

static void on_event(exchange *x, size_t request, const runtime_event *ev) {
    infer_state *s = x->state;
    if (s->stream) {
        stream_event(x, s, request, ev);
        return;
    }
    bool of_choice = ev->choice >= 0 && (size_t)ev->choice < s->n;
    if (ev->kind == RUNTIME_TOKEN && of_choice)
        put_token(&s->tokens[request * s->n + (size_t)ev->choice], CHOICE_TOKENS, ev);
    collect_event(&s->answers[request], ev);
}

static void stream_over(exchange *x) { (void)x; }

/* --- whole answers --- */

static void put_choice(str *out, size_t index, const collect_choice *c, const str *tokens) {
    size_t at = pb_open(out, ANSWER_CHOICES);
    pb_put_int(out, CHOICE_INDEX, (int64_t)index);
    pb_put_utf8(out, CHOICE_CONTENT, view_str(&c->content));
    pb_put_utf8(out, CHOICE_REASONING, view_str(&c->reasoning));
    for (size_t k = 0; k < c->n_calls; k++) {
        size_t call = pb_open(out, CHOICE_TOOL_CALLS);
        pb_put_utf8(out, TOOL_CALL_ID, view_str(&c->calls[k].id));
        pb_put_utf8(out, TOOL_CALL_NAME, view_str(&c->calls[k].name));
        pb_put_utf8(out, TOOL_CALL_ARGUMENTS, view_str(&c->calls[k].arguments));
        pb_close(out, call);
    }
    pb_put_int(out, CHOICE_FINISH, finish_of(c->finish));
    str_append(out, str_cstr(tokens), tokens->len);
    pb_close(out, at);
}

static void reply_whole(exchange *x) {
    infer_state  *s = x->state;
    runtime_usage u;
    str           out;
    bool          ok = true;
    str_init(&out);
    size_t at = grpc_open(&out);
    pb_put_text(&out, ANSWER_ID, view_of(x->id));
    pb_put_utf8(&out, ANSWER_MODEL, s->model);
    for (size_t i = 0; i < s->n_prompts; i++) {
        ok = ok && collect_ok(&s->answers[i]);
        for (size_t k = 0; k < s->n; k++) {
            const str *tokens = &s->tokens[i * s->n + k];
            ok = ok && str_ok(tokens);
            put_choice(&out, i * s->n + k, &s->answers[i].choices[k], tokens);
        }
    }
    if (s->n_prompts == 1)
        collect_usage(&s->answers[0], &u);
    else
        collect_usage_of(s->answers, s->n_prompts, &u);
    put_usage(&out, ANSWER_USAGE, &u);
    grpc_close(&out, at);
    if (!ok) exchange_error_nomem(x);
    exchange_reply(x, 200, GRPC_TYPE, &out);
    str_deinit(&out);
}

/* --- the calls --- */

static void run(exchange *x, view model, runtime_request *q, size_t n_prompts, bool stream) {
    infer_state *s = calloc(1, sizeof *s);
    size_t       n = q->n_choices > 0 ? (size_t)q->n_choices : 1;
    bool         ok = s != NULL;
    if (s) {
        x->state = s;
        x->state_free = state_free;
        s->model = model;
        s->stream = stream;
        s->n_prompts = n_prompts;
        s->n = n;
        s->answers = calloc(n_prompts, sizeof *s->answers);
        s->tokens = calloc(n_prompts * n, sizeof *s->tokens);
        ok = s->answers && s->tokens;
        for (size_t i = 0; i < n_prompts && ok; i++) ok = collect_init(&s->answers[i], n);
    }
    if (!ok) {
        exchange_error_nomem(x);
        return;
    }
    exchange_run(x, &(exchange_work){ .model = model,
                                      .keep_alive_ms = HOST_KEEP_DEFAULT,
                                      .requests = q,
                                      .n_requests = n_prompts,
                                      .stream_type = stream ? GRPC_TYPE : NULL,
                                      .on_event = on_event,
                                      .on_over = stream_over,
                                      .on_reply = reply_whole });
}

static void chat(exchange *x, bool stream) {
    openai_chat_asked a;
    if (!openai_read_chat(x, &a)) return;
    a.q->stream_calls = stream;
    run(x, a.model, a.q, 1, stream);
}

static void complete(exchange *x, bool stream) {
    openai_complete_asked a;
    if (openai_read_complete(x, &a)) run(x, a.model, a.q, a.n_prompts, stream);
}

void grpc_chat(exchange *x) { chat(x, false); }
void grpc_chat_stream(exchange *x) { chat(x, true); }
void grpc_complete(exchange *x) { complete(x, false); }
void grpc_complete_stream(exchange *x) { complete(x, true); }

/* --- vectors --- */

static void put_vectors(const vectors *v, str *out) {
    for (size_t i = 0; i < v->n; i++) {
        size_t at = grpc_open(out);
        pb_put_int(out, VECTOR_INDEX, (int64_t)i);
        pb_put_floats(out, VECTOR_VALUES, v->at[i], (size_t)v->sizes[i]);
        if (i + 1 == v->n) pb_put_int(out, VECTOR_PROMPT_TOKENS, v->prompt_tokens);
        grpc_close(out, at);
    }
}

void grpc_embed(exchange *x) { openai_embed_with(x, GRPC_TYPE, put_vectors); }
