/* SPDX-License-Identifier: Apache-2.0 */
/* POST /v1/chat/completions */
#include "base/clock.h"
#include "server/constraints.h"
#include "server/handlers.h"
#include "server/internal.h"
#include "server/openai/input.h"
#include "server/openai/openai.h"
#include "server/openai/tool_names.h"
#include "server/params.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct custom_call {
    bool open;
    int  index;
    str  arguments;
} custom_call;

typedef struct chat_state {
    char         id[40];
    view         model;
    collect      all; /* whole answers, or only their ends when streaming */
    bool         stream, include_usage, logprobs, timings;
    bool         legacy;   /* asked with functions: a call is function_call */
    str          prefix;   /* {"id":...,"model":"...", of every chunk */
    str         *pending;  /* per choice: log-probabilities whose text has not come */
    custom_call *custom;   /* per choice: of a custom tool, the one that is being written */
    tool_names   tools;    /* custom ones */
    str          chunk;    /* reused */
    int64_t      n_tokens; /* with timings */
    int64_t      begin_us;
} chat_state;

static void state_free(void *p) {
    chat_state *s = p;
    for (size_t i = 0; s->pending && i < s->all.n; i++) str_deinit(&s->pending[i]);
    for (size_t i = 0; s->custom && i < s->all.n; i++) str_deinit(&s->custom[i].arguments);
    free(s->pending);
    free(s->custom);
    collect_deinit(&s->all);
    str_deinit(&s->prefix);
    str_deinit(&s->chunk);
    free(s);
}

/* --- streaming --- */

static jw begin_chunk(chat_state *s, int choice) {
    str_clear(&s->chunk);
    str_append(&s->chunk, str_cstr(&s->prefix), s->prefix.len);
    jw w = jw_of(&s->chunk);
    str_puts(&s->chunk, "\"choices\":[{\"index\":");
    jw_int(&w, choice);
    str_puts(&s->chunk, ",\"delta\":{");
    return jw_of(&s->chunk);
}

/* finish: NULL while it goes on. */
static void end_chunk(exchange *x, chat_state *s, int choice, const char *finish) {
    str_puts(&s->chunk, "}");
    if (s->logprobs) {
        str *p = &s->pending[choice];
        if (p->len)
            str_printf(&s->chunk, ",\"logprobs\":{\"content\":[%s],\"refusal\":null}", str_cstr(p));
        else
            str_puts(&s->chunk, ",\"logprobs\":null");
        str_clear(p);
    }
    if (finish)
        str_printf(&s->chunk, ",\"finish_reason\":\"%s\"}]", finish);
    else
        str_puts(&s->chunk, ",\"finish_reason\":null}]");
    if (s->timings && s->n_tokens) {
        double ms = (double)(clock_us() - s->begin_us) / 1e3;
        str_printf(&s->chunk, ",\"timings\":{\"predicted_n\":%lld,\"predicted_ms\":%.3f,\"predicted_per_second\":%.3f}",
                   (long long)s->n_tokens, ms, ms > 0 ? 1e3 * (double)s->n_tokens / ms : 0.0);
    }
    if (s->include_usage) str_puts(&s->chunk, ",\"usage\":null");
    str_puts(&s->chunk, "}");
    openai_put_event(x, &s->chunk);
}

static void stream_progress(exchange *x, chat_state *s, const runtime_event *ev) {
    static const char name[] = "event: prefill_progress\n";
    str_clear(&s->chunk);
    str_printf(&s->chunk, "{\"total\":%d,\"processed\":%d,\"cached\":%d}", ev->total, ev->done, ev->cached);
    exchange_put(x, name, sizeof name - 1);
    openai_put_event(x, &s->chunk);
}

static const char *finish_of(const chat_state *s, runtime_finish f) {
    return s->legacy && f == RUNTIME_TOOL_CALLS ? "function_call" : openai_finish(f);
}

/* A piece of a tool call; its beginning says whose it is. */
static void put_call_piece(jw *w, const runtime_event *ev, const char *type, const char *field, view text) {
    jw_key(w, "tool_calls");
    jw_open(w, '[');
    jw_open(w, '{');
    jw_put_int(w, "index", ev->index);
    if (ev->kind == RUNTIME_TOOL_BEGIN) {
        jw_put_text(w, "id", ev->id);
        jw_put_cstr(w, "type", type);
    }
    jw_key(w, type);
    jw_open(w, '{');
    if (ev->kind == RUNTIME_TOOL_BEGIN) jw_put_text(w, "name", ev->name);
    jw_put_text(w, field, text);
    jw_close(w, '}');
    jw_close(w, '}');
    jw_close(w, ']');
}

static void stream_call(chat_state *s, const runtime_event *ev) {
    jw w = jw_of(&s->chunk);
    if (s->legacy) {
        jw_key(&w, "function_call");
        jw_open(&w, '{');
        if (ev->kind == RUNTIME_TOOL_BEGIN) jw_put_text(&w, "name", ev->name);
        jw_put_text(&w, "arguments", ev->kind == RUNTIME_TOOL_BEGIN ? (view){ "", 0 } : ev->text);
        jw_close(&w, '}');
        return;
    }
    put_call_piece(&w, ev, "function", "arguments", ev->kind == RUNTIME_TOOL_BEGIN ? (view){ "", 0 } : ev->text);
}

/* The text of a custom tool is known when its call is over: a beginning without it, then all of it. */
static void put_custom_piece(exchange *x, chat_state *s, const runtime_event *ev, view text) {
    jw w = begin_chunk(s, ev->choice);
    put_call_piece(&w, ev, "custom", "input", text);
    end_chunk(x, s, ev->choice, NULL);
}

static void end_custom(exchange *x, chat_state *s, int choice, custom_call *call) {
    runtime_event ev = { .kind = RUNTIME_TOOL_ARGUMENTS, .choice = choice, .index = call->index };
    str           text;
    if (!call->open) return;
    str_init(&text);
    custom_text((view){ str_cstr(&call->arguments), call->arguments.len }, &text);
    put_custom_piece(x, s, &ev, (view){ str_cstr(&text), text.len });
    str_deinit(&text);
    call->open = false;
}

/* False: a function's call, or not part of a call. */
static bool stream_custom(exchange *x, chat_state *s, const runtime_event *ev) {
    custom_call *call = s->custom && ev->choice >= 0 && (size_t)ev->choice < s->all.n ? &s->custom[ev->choice] : NULL;
    if (!call) return false;
    if (ev->kind == RUNTIME_TOOL_BEGIN && tool_names_find(&s->tools, ev->name)) {
        call->open = true;
        call->index = ev->index;
        str_clear(&call->arguments);
        put_custom_piece(x, s, ev, (view){ "", 0 });
        return true;
    }
    bool mine = call->open && (ev->kind == RUNTIME_TOOL_ARGUMENTS || ev->kind == RUNTIME_TOOL_END);
    if (mine && ev->kind == RUNTIME_TOOL_ARGUMENTS) str_append(&call->arguments, ev->text.data, ev->text.len);
    if (ev->kind == RUNTIME_TOOL_END || ev->kind == RUNTIME_DONE) end_custom(x, s, ev->choice, call);
    return mine;
}

static void stream_event(exchange *x, chat_state *s, const runtime_event *ev) {
    jw w;
    if (stream_custom(x, s, ev)) return;
    switch (ev->kind) {
    case RUNTIME_STARTED:
        for (int i = 0; i < (int)s->all.n; i++) {
            begin_chunk(s, i);
            str_puts(&s->chunk, "\"role\":\"assistant\",\"content\":\"\"");
            end_chunk(x, s, i, NULL);
        }
        break;
    case RUNTIME_PROGRESS: stream_progress(x, s, ev); break;
    case RUNTIME_CONTENT:
        w = begin_chunk(s, ev->choice);
        jw_put_text(&w, "content", ev->text);
        end_chunk(x, s, ev->choice, NULL);
        break;
    case RUNTIME_REASONING: /* clients differ in the name they read */
        w = begin_chunk(s, ev->choice);
        jw_put_text(&w, "reasoning_content", ev->text);
        jw_put_text(&w, "reasoning", ev->text);
        end_chunk(x, s, ev->choice, NULL);
        break;
    case RUNTIME_TOOL_BEGIN:
    case RUNTIME_TOOL_ARGUMENTS:
        begin_chunk(s, ev->choice);
        stream_call(s, ev);
        end_chunk(x, s, ev->choice, NULL);
        break;
    case RUNTIME_DONE:
        begin_chunk(s, ev->choice);
        end_chunk(x, s, ev->choice, finish_of(s, ev->finish));
        collect_event(&s->all, ev);
        break;
    default: break;
    }
}

static void stream_over(exchange *x) {
    chat_state   *s = x->state;
    runtime_usage u;
    if (s->include_usage) {
        collect_usage(&s->all, &u);
        str_clear(&s->chunk);
        str_append(&s->chunk, str_cstr(&s->prefix), s->prefix.len);
        str_puts(&s->chunk, "\"choices\":[]");
        jw w = { &s->chunk, true };
        openai_put_usage(&w, &u);
        openai_put_timings(&w, &u);
        str_puts(&s->chunk, "}");
        openai_put_event(x, &s->chunk);
    }
    exchange_put(x, "data: [DONE]\n\n", 14);
}

/* --- one piece --- */

static void put_custom(jw *w, const collect_call *call) {
    str text;
    str_init(&text);
    custom_text((view){ str_cstr(&call->arguments), call->arguments.len }, &text);
    jw_put_cstr(w, "type", "custom");
    jw_key(w, "custom");
    jw_open(w, '{');
    jw_put_text(w, "name", (view){ str_cstr(&call->name), call->name.len });
    jw_put_text(w, "input", (view){ str_cstr(&text), text.len });
    jw_close(w, '}');
    str_deinit(&text);
}

static void put_call(jw *w, const char *key, const collect_call *call) {
    jw_key(w, key);
    jw_open(w, '{');
    jw_put_text(w, "name", (view){ str_cstr(&call->name), call->name.len });
    jw_put_text(w, "arguments", (view){ str_cstr(&call->arguments), call->arguments.len });
    jw_close(w, '}');
}

static void put_calls(jw *w, const chat_state *s, const collect_choice *c) {
    jw_key(w, "tool_calls");
    jw_open(w, '[');
    for (size_t k = 0; k < c->n_calls; k++) {
        const collect_call *call = &c->calls[k];
        jw_open(w, '{');
        jw_put_text(w, "id", (view){ str_cstr(&call->id), call->id.len });
        if (tool_names_find(&s->tools, (view){ str_cstr(&call->name), call->name.len })) {
            put_custom(w, call);
        } else {
            jw_put_cstr(w, "type", "function");
            put_call(w, "function", call);
        }
        jw_close(w, '}');
    }
    jw_close(w, ']');
}

static void put_message(jw *w, const chat_state *s, const collect_choice *c) {
    jw_key(w, "message");
    jw_open(w, '{');
    jw_put_cstr(w, "role", "assistant");
    if (c->content.len || !c->n_calls)
        jw_put_text(w, "content", (view){ str_cstr(&c->content), c->content.len });
    else
        jw_put_null(w, "content");
    jw_put_null(w, "refusal");
    if (c->reasoning.len) {
        jw_put_text(w, "reasoning_content", (view){ c->reasoning.data, c->reasoning.len });
        jw_put_text(w, "reasoning", (view){ c->reasoning.data, c->reasoning.len });
    }
    if (c->n_calls && s->legacy) put_call(w, "function_call", &c->calls[0]);
    if (c->n_calls && !s->legacy) put_calls(w, s, c);
    jw_close(w, '}');
}

static void reply_whole(exchange *x) {
    chat_state   *s = x->state;
    runtime_usage u;
    str           b;
    collect_usage(&s->all, &u);
    str_init(&b);
    jw w = jw_of(&b);
    jw_open(&w, '{');
    jw_put_cstr(&w, "id", s->id);
    jw_put_cstr(&w, "object", "chat.completion");
    jw_put_int(&w, "created", x->created);
    jw_put_text(&w, "model", s->model);
    jw_key(&w, "choices");
    jw_open(&w, '[');
    for (size_t i = 0; i < s->all.n; i++) {
        const collect_choice *c = &s->all.choices[i];
        jw_open(&w, '{');
        jw_put_int(&w, "index", (int64_t)i);
        put_message(&w, s, c);
        jw_key(&w, "logprobs");
        if (s->logprobs) {
            str_printf(&b, "{\"content\":[%s],\"refusal\":null}", str_cstr(&s->pending[i]));
            w.comma = true;
        } else {
            jw_null(&w);
        }
        jw_put_cstr(&w, "finish_reason", finish_of(s, c->finish));
        jw_close(&w, '}');
    }
    jw_close(&w, ']');
    openai_put_usage(&w, &u);
    openai_put_timings(&w, &u);
    jw_put_cstr(&w, "system_fingerprint", "hearth");
    jw_close(&w, '}');
    if (!collect_ok(&s->all)) exchange_error_nomem(x);
    exchange_reply(x, 200, "application/json", &b);
}

/* --- events --- */

static void on_event(exchange *x, size_t request, const runtime_event *ev) {
    chat_state *s = x->state;
    (void)request;
    if (ev->kind == RUNTIME_TOKEN) {
        if (s->n_tokens++ == 0) s->begin_us = clock_us();
        if (!s->logprobs || ev->choice < 0 || (size_t)ev->choice >= s->all.n) return;
        str *p = &s->pending[ev->choice];
        jw   w = { p, p->len > 0 };
        openai_put_logprob(&w, ev, false);
    } else if (s->stream) {
        stream_event(x, s, ev);
    } else {
        collect_event(&s->all, ev);
    }
}

/* --- the request --- */

static bool open_state(exchange *x, chat_state **out, size_t n_choices, const tool_names *tools) {
    chat_state *s = calloc(1, sizeof *s);
    bool        custom = tools->n > 0;
    if (s) {
        x->state = s;
        x->state_free = state_free;
        s->pending = collect_init(&s->all, n_choices) ? calloc(n_choices, sizeof *s->pending) : NULL;
        s->custom = s->pending && custom ? calloc(n_choices, sizeof *s->custom) : NULL;
        s->tools = *tools;
    }
    *out = s;
    if (s && s->pending && (s->custom || !custom)) return true;
    exchange_error_nomem(x);
    return false;
}

static void read_lengths(exchange *x, runtime_request *q) {
    int64_t n;
    params_max_tokens(x, &x->body, "max_tokens", q);
    params_max_tokens(x, &x->body, "max_completion_tokens", q);
    if (read_int(&x->in, &x->body, "thinking_budget", 0, PARAMS_MAX_TOKENS, &n)) q->thinking_budget = (int)n;
    q->n_choices = 1;
    if (read_int(&x->in, &x->body, "n", 1, 128, &n)) q->n_choices = (int)n;
}

static void read_logprobs(exchange *x, runtime_request *q) {
    bool    flag = false;
    int64_t n;
    if (read_bool(&x->in, &x->body, "logprobs", &flag)) q->want_logprob = flag;
    if (!read_int(&x->in, &x->body, "top_logprobs", 0, 20, &n)) return;
    node at = node_get(&x->body, "top_logprobs");
    if (!flag) reader_fail(&x->in, &at, "requires logprobs: true");
    q->n_top = (int)n;
}

static void read_stream(exchange *x, bool *stream, bool *include_usage) {
    node options;
    read_bool(&x->in, &x->body, "stream", stream);
    if (!read_object(&x->in, &x->body, "stream_options", &options)) return;
    if (!*stream) reader_fail(&x->in, &options, "is only allowed with stream: true");
    read_bool(&x->in, &options, "include_usage", include_usage);
}

/* Accounts, storage and billing of a hosted service, hints of how an answer should be, and a search that it would run.
 */
static const char *const hosted[] = { "user",
                                      "store",
                                      "metadata",
                                      "service_tier",
                                      "prompt_cache_key",
                                      "safety_identifier",
                                      "prompt_cache_retention",
                                      "verbosity",
                                      "web_search_options",
                                      NULL };

/* What the answer will mostly be: {"type": "content", "content": text or parts}. */
static void read_prediction(exchange *x, runtime_request *q) {
    node n, content;
    view kind;
    if (!read_object(&x->in, &x->body, "prediction", &n)) return;
    if (read_string(&x->in, &n, "type", &kind) && !view_eq_c(kind, "content")) {
        node at = node_get(&n, "type");
        reader_fail(&x->in, &at, "only content is supported");
    }
    content = read_any(&x->in, &n, "content");
    if (node_is(&content) == NODE_ARRAY && node_count(&content) > 0) {
        node part = node_at(&content, 0);
        content = read_any(&x->in, &part, "text");
        (void)read_any(&x->in, &part, "type");
    }
    if (node_is(&content) == NODE_STRING)
        q->prediction = node_text(&content);
    else
        reader_fail(&x->in, &n, "needs content: a text, or a list with one");
}

/* How much to think, in the form that several hosted services share: {"effort": ..., "enabled": ...}. */
static void read_reasoning(exchange *x, runtime_request *q) {
    node n;
    bool flag;
    if (!read_object(&x->in, &x->body, "reasoning", &n)) return;
    openai_read_effort(x, &n, "effort", q);
    if (read_bool(&x->in, &n, "enabled", &flag)) q->thinking = flag ? RUNTIME_THINK_WISH : RUNTIME_THINK_OFF;
}

static void refuse_media(exchange *x) {
    static const char *const names[] = { "audio", "prompt_logprobs", NULL };
    node                     list;
    for (size_t i = 0; names[i]; i++) {
        node n = read_any(&x->in, &x->body, names[i]);
        if (node_is(&n) != NODE_ABSENT) reader_fail(&x->in, &n, "is not supported");
    }
    if (!read_array(&x->in, &x->body, "modalities", 8, &list)) return;
    for (size_t i = 0; i < node_count(&list); i++) {
        node n = node_at(&list, i);
        if (!view_eq_c(node_text(&n), "text")) reader_fail(&x->in, &n, "only text is supported");
    }
}

bool openai_read_chat(exchange *x, openai_chat_asked *a) {
    runtime_request *q = exchange_requests(x, 1);
    node             format;
    *a = (openai_chat_asked){ .q = q };
    if (!q) return false;
    q->task = RUNTIME_CHAT;
    bool known = params_model(x, &x->body, !params_one_model(x), &a->model);
    if (!known && !x->in.failed) return false;
    openai_read_messages(x, &x->body, q);
    custom_flatten(x, &a->tools);
    a->legacy = openai_read_tools(x, &x->body, q, false);
    read_lengths(x, q);
    read_logprobs(x, q);
    read_stream(x, &a->stream, &a->include_usage);
    params_sampling(x, &x->body, SAMPLING_BY_OPENAI, q);
    params_stop(x, &x->body, "stop", q);
    params_grammar(x, &x->body, q);
    if (read_object(&x->in, &x->body, "response_format", &format)) params_format(x, &format, q, false);
    params_extras(x, &x->body, q);
    read_prediction(x, q);
    openai_read_template(x, &x->body, q);
    read_reasoning(x, q);
    read_bool(&x->in, &x->body, "timings_per_token", &a->timings);
    exchange_ignore_members(x, hosted);
    refuse_media(x);
    if (x->in.failed) exchange_reject(x);
    return !x->in.failed;
}

void openai_chat(exchange *x) {
    openai_chat_asked a;
    chat_state       *s;
    if (!openai_read_chat(x, &a) || !open_state(x, &s, (size_t)a.q->n_choices, &a.tools)) return;
    a.q->stream_calls = a.stream;
    s->model = a.model;
    s->legacy = a.legacy;
    s->stream = a.stream;
    s->include_usage = a.include_usage;
    s->logprobs = a.q->want_logprob;
    s->timings = a.timings && a.stream;
    if (s->timings) a.q->want_logprob = true; /* counts tokens */
    snprintf(s->id, sizeof s->id, "chatcmpl-%s", x->id + 4);
    jw w = jw_of(&s->prefix);
    jw_open(&w, '{');
    jw_put_cstr(&w, "id", s->id);
    jw_put_cstr(&w, "object", "chat.completion.chunk");
    jw_put_int(&w, "created", x->created);
    jw_put_text(&w, "model", a.model);
    jw_put_cstr(&w, "system_fingerprint", "hearth");
    str_puts(&s->prefix, ",");
    exchange_run_one(x, a.model, a.q, a.stream,
                     &(exchange_work){ .on_event = on_event, .on_over = stream_over, .on_reply = reply_whole });
}
