/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Anthropic: POST /v1/messages and /v1/messages/count_tokens.
 *
 * An answer is a list of blocks: thoughts, text, calls of tools. In a stream every block has a beginning, deltas and an
 * end, and only one is open at a time; the events come in the order in which the model wrote, so a block ends when
 * something of another kind begins.
 */
#include "server/adapters.h"
#include "server/anthropic/anthropic.h"

#include "server/collect.h"
#include "server/error_table.h"
#include "server/handlers.h"
#include "server/http/json_out.h"
#include "server/internal.h"
#include "server/params.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Thoughts that come back are taken whatever their signature says; clients only insist on having one. */
#define SIGNATURE "unsigned"

typedef enum block { BLOCK_NONE, BLOCK_THINKING, BLOCK_TEXT, BLOCK_CALL } block;

typedef struct message_state {
    char                   id[40];
    view                   model;
    const runtime_request *request;
    bool                   stream;
    collect                all;
    str                    chunk; /* reused */
    block                  open;
    int                    index, call;                  /* of the open block; which call it is */
    bool                   begun;                        /* message_start was sent */
    int                    prompt_tokens, cached_tokens; /* as it said */
} message_state;

static void state_free(void *p) {
    message_state *s = p;
    collect_deinit(&s->all);
    str_deinit(&s->chunk);
    free(s);
}

/* --- errors --- */

static void put_error(str *out, const failure *f) {
    jw w = jw_of(out);
    jw_open(&w, '{');
    jw_put_cstr(&w, "type", "error");
    jw_key(&w, "error");
    jw_open(&w, '{');
    jw_put_cstr(&w, "type", error_status_of(f->status)->anthropic);
    jw_put_cstr(&w, "message", f->message);
    jw_close(&w, '}');
    jw_close(&w, '}');
}

static void put_event(exchange *x, const char *name, const str *json) {
    exchange_put(x, "event: ", 7);
    exchange_put(x, name, strlen(name));
    exchange_put(x, "\ndata: ", 7);
    exchange_put(x, str_cstr(json), json->len);
    exchange_put(x, "\n\n", 2);
}

static void put_stream_error(exchange *x, const failure *f, const str *body) {
    (void)f;
    put_event(x, "error", body);
}

static void heartbeat(exchange *x) {
    static const char ping[] = "event: ping\ndata: {\"type\":\"ping\"}\n\n";
    exchange_put(x, ping, sizeof ping - 1);
}

const api api_anthropic = { "anthropic", put_error, put_stream_error, .heartbeat = heartbeat,
                            .id_header = "Request-Id" };

/* --- parts of an answer --- */

static const char *stop_reason(runtime_finish f) {
    switch (f) {
    case RUNTIME_LENGTH: return "max_tokens";
    case RUNTIME_STOP_STRING: return "stop_sequence";
    case RUNTIME_TOOL_CALLS: return "tool_use";
    default: return "end_turn";
    }
}

static void put_stop(jw *w, const message_state *s, const collect_choice *c) {
    jw_put_cstr(w, "stop_reason", stop_reason(c->finish));
    if (c->finish == RUNTIME_STOP_STRING && c->stop_index >= 0 && (size_t)c->stop_index < s->request->n_stop)
        jw_put_text(w, "stop_sequence", s->request->stop[c->stop_index]);
    else
        jw_put_null(w, "stop_sequence");
}

/* Tokens that were read from the cache are counted apart, as the hosted service does. */
static void put_usage(jw *w, const runtime_usage *u) {
    jw_key(w, "usage");
    jw_open(w, '{');
    jw_put_int(w, "input_tokens", u->prompt_tokens - u->cached_tokens);
    jw_put_int(w, "cache_creation_input_tokens", 0);
    jw_put_int(w, "cache_read_input_tokens", u->cached_tokens);
    jw_put_int(w, "output_tokens", u->generated_tokens);
    jw_close(w, '}');
}

static void put_head(exchange *x, jw *w, const message_state *s) {
    (void)x;
    jw_put_cstr(w, "id", s->id);
    jw_put_cstr(w, "type", "message");
    jw_put_cstr(w, "role", "assistant");
    jw_put_text(w, "model", s->model);
}

/* --- one piece --- */

static void put_call(jw *w, const collect_call *call) {
    jw_put_cstr(w, "type", "tool_use");
    jw_put_text(w, "id", (view){ str_cstr(&call->id), call->id.len });
    jw_put_text(w, "name", (view){ str_cstr(&call->name), call->name.len });
    jw_key(w, "input");
    collect_put_object(call, w->out);
    w->comma = true;
}

static void put_blocks(jw *w, const collect_choice *c) {
    jw_key(w, "content");
    jw_open(w, '[');
    for (size_t i = 0; i < c->n_parts; i++) {
        const collect_part *p = &c->parts[i];
        const char         *text = p->kind == COLLECT_CONTENT ? c->content.data : c->reasoning.data;
        jw_open(w, '{');
        switch (p->kind) {
        case COLLECT_CONTENT:
            jw_put_cstr(w, "type", "text");
            jw_put_text(w, "text", (view){ text + p->from, p->to - p->from });
            break;
        case COLLECT_REASONING:
            jw_put_cstr(w, "type", "thinking");
            jw_put_text(w, "thinking", (view){ text + p->from, p->to - p->from });
            jw_put_cstr(w, "signature", SIGNATURE);
            break;
        case COLLECT_CALL: put_call(w, &c->calls[p->from]); break;
        }
        jw_close(w, '}');
    }
    jw_close(w, ']');
}

static void reply_whole(exchange *x) {
    message_state        *s = x->state;
    const collect_choice *c = &s->all.choices[0];
    runtime_usage         u;
    str                   b;
    if (!collect_ok(&s->all)) {
        exchange_error_nomem(x);
        return;
    }
    collect_usage(&s->all, &u);
    str_init(&b);
    jw w = jw_of(&b);
    jw_open(&w, '{');
    put_head(x, &w, s);
    put_blocks(&w, c);
    put_stop(&w, s, c);
    put_usage(&w, &u);
    jw_close(&w, '}');
    exchange_reply(x, 200, "application/json", &b);
}

/* --- streaming --- */

static jw begin_event(message_state *s, const char *type) {
    str_clear(&s->chunk);
    jw w = jw_of(&s->chunk);
    jw_open(&w, '{');
    jw_put_cstr(&w, "type", type);
    return w;
}

static void delta(exchange *x, message_state *s, const char *type, const char *key, view text) {
    jw w = begin_event(s, "content_block_delta");
    jw_put_int(&w, "index", s->index);
    jw_key(&w, "delta");
    jw_open(&w, '{');
    jw_put_cstr(&w, "type", type);
    jw_put_text(&w, key, text);
    jw_close(&w, '}');
    jw_close(&w, '}');
    put_event(x, "content_block_delta", &s->chunk);
}

static void close_block(exchange *x, message_state *s) {
    if (s->open == BLOCK_NONE) return;
    if (s->open == BLOCK_THINKING) delta(x, s, "signature_delta", "signature", view_of(SIGNATURE));
    jw w = begin_event(s, "content_block_stop");
    jw_put_int(&w, "index", s->index);
    jw_close(&w, '}');
    put_event(x, "content_block_stop", &s->chunk);
    s->open = BLOCK_NONE;
    s->index++;
}

static void open_block(exchange *x, message_state *s, block kind, const runtime_event *ev) {
    if (s->open == kind && (kind != BLOCK_CALL || s->call == ev->index)) return;
    close_block(x, s);
    s->open = kind;
    s->call = ev->index;
    jw w = begin_event(s, "content_block_start");
    jw_put_int(&w, "index", s->index);
    jw_key(&w, "content_block");
    jw_open(&w, '{');
    if (kind == BLOCK_CALL) {
        jw_put_cstr(&w, "type", "tool_use");
        jw_put_text(&w, "id", ev->id);
        jw_put_text(&w, "name", ev->name);
        jw_key(&w, "input");
        jw_raw(&w, view_of("{}"));
    } else if (kind == BLOCK_THINKING) {
        jw_put_cstr(&w, "type", "thinking");
        jw_put_cstr(&w, "thinking", "");
        jw_put_cstr(&w, "signature", "");
    } else {
        jw_put_cstr(&w, "type", "text");
        jw_put_cstr(&w, "text", "");
    }
    jw_close(&w, '}');
    jw_close(&w, '}');
    put_event(x, "content_block_start", &s->chunk);
}

/* When the first piece of the prompt was evaluated it is known what came from the cache, and clients add up what they
 * are told here and at the end. */
static void stream_start(exchange *x, message_state *s) {
    runtime_usage u = { .prompt_tokens = s->prompt_tokens, .cached_tokens = s->cached_tokens };
    if (s->begun) return;
    s->begun = true;
    jw w = begin_event(s, "message_start");
    jw_key(&w, "message");
    jw_open(&w, '{');
    put_head(x, &w, s);
    jw_key(&w, "content");
    jw_raw(&w, view_of("[]"));
    jw_put_null(&w, "stop_reason");
    jw_put_null(&w, "stop_sequence");
    put_usage(&w, &u);
    jw_close(&w, '}');
    jw_close(&w, '}');
    put_event(x, "message_start", &s->chunk);
    heartbeat(x);
}

static void stream_event(exchange *x, message_state *s, const runtime_event *ev) {
    if (ev->kind == RUNTIME_STARTED) s->prompt_tokens = ev->prompt_tokens;
    if (ev->kind == RUNTIME_PROGRESS) s->cached_tokens = ev->cached;
    if (ev->kind != RUNTIME_STARTED) stream_start(x, s);
    switch (ev->kind) {
    case RUNTIME_REASONING:
        open_block(x, s, BLOCK_THINKING, ev);
        delta(x, s, "thinking_delta", "thinking", ev->text);
        break;
    case RUNTIME_CONTENT:
        open_block(x, s, BLOCK_TEXT, ev);
        delta(x, s, "text_delta", "text", ev->text);
        break;
    case RUNTIME_TOOL_BEGIN: open_block(x, s, BLOCK_CALL, ev); break;
    case RUNTIME_TOOL_ARGUMENTS: delta(x, s, "input_json_delta", "partial_json", ev->text); break;
    case RUNTIME_TOOL_END: close_block(x, s); break;
    case RUNTIME_DONE: collect_event(&s->all, ev); break;
    default: break;
    }
}

static void stream_over(exchange *x) {
    message_state *s = x->state;
    runtime_usage  u;
    close_block(x, s);
    collect_usage(&s->all, &u);
    u.prompt_tokens = s->prompt_tokens;
    u.cached_tokens = s->cached_tokens;
    jw w = begin_event(s, "message_delta");
    jw_key(&w, "delta");
    jw_open(&w, '{');
    put_stop(&w, s, &s->all.choices[0]);
    jw_close(&w, '}');
    put_usage(&w, &u);
    jw_close(&w, '}');
    put_event(x, "message_delta", &s->chunk);
    w = begin_event(s, "message_stop");
    jw_close(&w, '}');
    put_event(x, "message_stop", &s->chunk);
}

/* --- the request --- */

static void on_event(exchange *x, size_t request, const runtime_event *ev) {
    message_state *s = x->state;
    (void)request;
    if (s->stream)
        stream_event(x, s, ev);
    else
        collect_event(&s->all, ev);
}

static message_state *open_state(exchange *x) {
    message_state *s = calloc(1, sizeof *s);
    if (s) {
        x->state = s;
        x->state_free = state_free;
        if (collect_init(&s->all, 1)) return s;
    }
    exchange_error_nomem(x);
    return NULL;
}

void anthropic_messages(exchange *x) {
    runtime_request *q = exchange_requests(x, 1);
    message_state   *s;
    view             model;
    bool             stream = false;
    if (!q) return;
    q->task = RUNTIME_CHAT;
    bool known = params_model(x, &x->body, true, &model);
    if (!known && !x->in.failed) return;
    anthropic_read(x, q, false);
    read_bool(&x->in, &x->body, "stream", &stream);
    if (x->in.failed) {
        exchange_reject(x);
        return;
    }
    if (!(s = open_state(x))) return;
    s->model = model;
    s->stream = q->stream_calls = q->want_progress = stream;
    s->request = q;
    snprintf(s->id, sizeof s->id, "msg_%s", x->id + 4);
    exchange_run_one(x, model, q, stream,
                     &(exchange_work){ .on_event = on_event, .on_over = stream_over, .on_reply = reply_whole });
}

void anthropic_count(exchange *x) {
    runtime_request *q = exchange_requests(x, 1);
    view             model;
    size_t           n = 0;
    err              e = { 0 };
    str              b;
    if (!q) return;
    q->task = RUNTIME_CHAT;
    bool known = params_model(x, &x->body, true, &model);
    if (!known && !x->in.failed) return;
    anthropic_read(x, q, true);
    if (x->in.failed) {
        exchange_reject(x);
        return;
    }
    if (host_count(x->host, adapters_base(x, model), q, &n, &e) < 0) {
        exchange_error_from(x, &e);
        return;
    }
    str_init(&b);
    str_printf(&b, "{\"input_tokens\":%zu}", n);
    exchange_reply(x, 200, "application/json", &b);
}
