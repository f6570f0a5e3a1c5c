/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /api/generate and /api/chat.
 *
 * Both give lines of JSON, one per piece of the answer, or a single object with stream: false. They differ in where the
 * text stands: at the top (response, thinking) or inside message. A call of a tool is one line, when it is complete or
 * the limit has cut it off.
 */
#include "base/clock.h"
#include "registry/modelfile.h"
#include "server/adapters.h"
#include "server/collect.h"
#include "server/content.h"
#include "server/conversation.h"
#include "server/handlers.h"
#include "server/internal.h"
#include "server/ollama/ollama.h"
#include "server/openai/input.h"
#include "server/openai/openai.h"
#include "server/params.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CONTEXT = 1 << 20 };

typedef struct answer_state {
    view    model;
    bool    chat, stream, logprobs;
    int64_t begin_us;
    collect all;
    str     context; /* "[1,2]", for the last line of /api/generate */
    str     line;    /* reused */
    str     pending; /* log-probabilities whose text has not come; or all of them */
} answer_state;

static void state_free(void *p) {
    answer_state *s = p;
    collect_deinit(&s->all);
    str_deinit(&s->line);
    str_deinit(&s->pending);
    str_deinit(&s->context);
    free(s);
}

/* --- pieces --- */

static void put_head(jw *w, const answer_state *s) {
    jw_open(w, '{');
    jw_put_text(w, "model", s->model);
    ollama_put_now(w, "created_at");
}

static void put_calls(jw *w, const collect_call *calls, size_t n, size_t first) {
    jw_key(w, "tool_calls");
    jw_open(w, '[');
    for (size_t i = 0; i < n; i++) {
        jw_open(w, '{');
        jw_put_text(w, "id", (view){ str_cstr(&calls[i].id), calls[i].id.len });
        jw_key(w, "function");
        jw_open(w, '{');
        jw_put_int(w, "index", (int64_t)(first + i));
        jw_put_text(w, "name", (view){ str_cstr(&calls[i].name), calls[i].name.len });
        jw_key(w, "arguments");
        collect_put_object(&calls[i], w->out);
        w->comma = true;
        jw_close(w, '}');
        jw_close(w, '}');
    }
    jw_close(w, ']');
}

static void put_text(jw *w, const answer_state *s, view content, view thinking, const collect_call *calls,
                     size_t n_calls, size_t first_call) {
    if (s->chat) {
        jw_key(w, "message");
        jw_open(w, '{');
        jw_put_cstr(w, "role", "assistant");
    }
    jw_put_text(w, s->chat ? "content" : "response", content);
    if (thinking.len) jw_put_text(w, "thinking", thinking);
    if (n_calls) put_calls(w, calls, n_calls, first_call);
    if (s->chat) jw_close(w, '}');
}

static void put_logprobs(jw *w, answer_state *s) {
    if (!s->logprobs || !s->pending.len) return;
    jw_key(w, "logprobs");
    jw_open(w, '[');
    jw_raw(w, (view){ s->pending.data, s->pending.len });
    jw_close(w, ']');
    str_clear(&s->pending);
}

static void put_end(jw *w, const answer_state *s) {
    runtime_usage u;
    collect_usage(&s->all, &u);
    jw_put_bool(w, "done", true);
    jw_put_cstr(w, "done_reason", s->all.choices[0].finish == RUNTIME_LENGTH ? "length" : "stop");
    if (s->context.len) {
        jw_key(w, "context");
        jw_raw(w, (view){ s->context.data, s->context.len });
    }
    ollama_put_durations(w, s->begin_us, &u);
    jw_close(w, '}');
}

static void send_piece(exchange *x, answer_state *s, view content, view thinking, const collect_call *call,
                       size_t index) {
    str_clear(&s->line);
    jw w = jw_of(&s->line);
    put_head(&w, s);
    put_text(&w, s, content, thinking, call, call ? 1 : 0, index);
    jw_put_bool(&w, "done", false);
    put_logprobs(&w, s);
    jw_close(&w, '}');
    str_push(&s->line, '\n');
    exchange_put(x, str_cstr(&s->line), s->line.len);
}

/* --- events --- */

static void put_context(answer_state *s, const runtime_event *ev) {
    jw w = jw_of(&s->context);
    jw_open(&w, '[');
    for (size_t i = 0; i < ev->n_context; i++) jw_int(&w, ev->context[i]);
    jw_close(&w, ']');
}

static void on_event(exchange *x, size_t request, const runtime_event *ev) {
    answer_state         *s = x->state;
    const collect_choice *c = &s->all.choices[0];
    const view            none = { "", 0 };
    (void)request;
    if (ev->kind == RUNTIME_TOKEN) {
        jw w = { &s->pending, s->pending.len > 0 };
        openai_put_logprob(&w, ev, false);
        return;
    }
    if (ev->kind == RUNTIME_DONE && ev->n_context) put_context(s, ev);
    if (!s->stream || (ev->kind != RUNTIME_CONTENT && ev->kind != RUNTIME_REASONING)) collect_event(&s->all, ev);
    if (!s->stream) return;
    if (ev->kind == RUNTIME_CONTENT) send_piece(x, s, ev->text, none, NULL, 0);
    if (ev->kind == RUNTIME_REASONING) send_piece(x, s, none, ev->text, NULL, 0);
    if (ev->kind == RUNTIME_TOOL_END && ev->index >= 0 && (size_t)ev->index < c->n_calls)
        send_piece(x, s, none, none, &c->calls[ev->index], (size_t)ev->index);
    if (ev->kind == RUNTIME_DONE && c->n_calls && !c->calls[c->n_calls - 1].over)
        send_piece(x, s, none, none, &c->calls[c->n_calls - 1], c->n_calls - 1);
}

static void on_over(exchange *x) {
    answer_state         *s = x->state;
    const collect_choice *c = &s->all.choices[0];
    str                   b;
    if (!s->stream && !collect_ok(&s->all)) {
        exchange_error_nomem(x);
        return;
    }
    str_init(&b);
    jw w = jw_of(&b);
    put_head(&w, s);
    if (s->stream) /* everything was sent */
        put_text(&w, s, (view){ "", 0 }, (view){ "", 0 }, NULL, 0, 0);
    else
        put_text(&w, s, (view){ str_cstr(&c->content), c->content.len },
                 (view){ str_cstr(&c->reasoning), c->reasoning.len }, c->calls, c->n_calls, 0);
    put_logprobs(&w, s);
    put_end(&w, s);
    if (!s->stream) {
        exchange_reply(x, 200, "application/json", &b);
        return;
    }
    str_push(&b, '\n');
    exchange_put(x, str_cstr(&b), b.len);
    str_deinit(&b);
}

/* --- requests --- */

/* An empty prompt loads the model, with keep_alive 0 it unloads it; both answer at once in one line. */
static void load_only(exchange *x, view model, int64_t keep_alive_ms, bool chat) {
    bool unload = keep_alive_ms == 0;
    err  e = { 0 };
    str  b;
    int  rc = unload ? host_unload(x->host, adapters_base(x, model), &e)
                     : host_load(x->host, adapters_base(x, model), keep_alive_ms, &e);
    if (rc < 0) {
        exchange_error_from(x, &e);
        return;
    }
    str_init(&b);
    answer_state s = { .model = model, .chat = chat };
    jw           w = jw_of(&b);
    put_head(&w, &s);
    put_text(&w, &s, (view){ "", 0 }, (view){ "", 0 }, NULL, 0, 0);
    jw_put_bool(&w, "done", true);
    jw_put_cstr(&w, "done_reason", unload ? "unload" : "load");
    jw_close(&w, '}');
    str_push(&b, '\n');
    exchange_reply(x, 200, "application/json", &b);
}

static void start(exchange *x, view model, int64_t keep_alive_ms, runtime_request *q, bool stream, bool chat) {
    answer_state *s = calloc(1, sizeof *s);
    if (s) {
        x->state = s;
        x->state_free = state_free;
    }
    if (!s || !collect_init(&s->all, 1)) {
        exchange_error_nomem(x);
        return;
    }
    s->model = model;
    s->chat = chat;
    s->stream = stream;
    s->logprobs = q->want_logprob;
    s->begin_us = clock_us();
    exchange_run(x, &(exchange_work){ .model = model,
                                      .keep_alive_ms = keep_alive_ms,
                                      .requests = q,
                                      .n_requests = 1,
                                      .stream_type = stream ? "application/x-ndjson" : NULL,
                                      .on_event = on_event,
                                      .on_over = on_over });
}

static void read_common(exchange *x, runtime_request *q, bool *stream, int64_t *keep_alive_ms) {
    int64_t n;
    bool    flag;
    *stream = true;
    *keep_alive_ms = HOST_KEEP_DEFAULT;
    read_bool(&x->in, &x->body, "stream", stream);
    params_keep_alive(x, &x->body, "keep_alive", keep_alive_ms);
    ollama_read_options(x, q);
    ollama_read_format(x, q);
    ollama_read_think(x, q);
    if (read_bool(&x->in, &x->body, "logprobs", &flag)) q->want_logprob = flag;
    if (read_int(&x->in, &x->body, "top_logprobs", 0, 20, &n)) q->n_top = (int)n;
}

/* Pictures in base64, and sounds, which have no place of their own there; they stand before the text. */
static void read_images(content_reader *c, const node *o) {
    node images;
    if (!read_array(&c->x->in, o, "images", RUNTIME_MAX_BLOBS, &images)) return;
    for (size_t i = 0; i < node_count(&images) && !c->x->in.failed; i++) {
        node one = node_at(&images, i);
        if (need_kind(&c->x->in, &one, NODE_STRING)) content_medium_base64(c, &one, node_text(&one));
    }
}

/* system, prompt and pictures as a conversation. */
static void make_messages(exchange *x, view system, view prompt, runtime_request *q) {
    content_reader c;
    str            text;
    str_init(&text);
    jw w = jw_of(&text);
    jw_open(&w, '[');
    if (system.len) {
        jw_open(&w, '{');
        jw_put_cstr(&w, "role", "system");
        jw_put_text(&w, "content", system);
        jw_close(&w, '}');
    }
    jw_open(&w, '{');
    jw_put_cstr(&w, "role", "user");
    content_init(&c, x, q);
    read_images(&c, &x->body);
    content_text(&c, prompt);
    content_put(&c, &w);
    content_deinit(&c);
    jw_close(&w, '}');
    jw_close(&w, ']');
    if (!x->in.failed) exchange_copy(x, &text, &q->messages);
    str_deinit(&text);
}

/* The conversation so far, as an earlier answer gave it. */
static void read_context(exchange *x, runtime_request *q) {
    node list;
    if (!read_array(&x->in, &x->body, "context", MAX_CONTEXT, &list) || !node_count(&list)) return;
    int32_t *ids = arena_calloc(&x->arena, node_count(&list), sizeof *ids);
    for (size_t i = 0; ids && i < node_count(&list) && !x->in.failed; i++) {
        node at = node_at(&list, i);
        if (!need_kind(&x->in, &at, NODE_INT)) return;
        if (node_int(&at) < 0 || node_int(&at) > INT32_MAX) reader_fail(&x->in, &at, "is not a token");
        ids[i] = (int32_t)node_int(&at);
    }
    q->tokens = ids;
    q->n_tokens = ids ? node_count(&list) : 0;
    if (!ids) exchange_error_nomem(x);
}

/* Jinja, or one of the plain templates in Go's language that can be turned into it. */
static void read_template(exchange *x, runtime_request *q) {
    modelfile m;
    view      text;
    err       e = { 0 };
    str       copy;
    if (!read_string(&x->in, &x->body, "template", &text) || !text.len) return;
    node at = node_get(&x->body, "template");
    modelfile_init(&m);
    str_init(&copy);
    str_append(&copy, text.data, text.len);
    if (memchr(text.data, '\0', text.len)) {
        reader_fail(&x->in, &at, "must not contain NUL characters");
    } else if (modelfile_set_template(&m, str_cstr(&copy), &e) < 0) {
        reader_fail(&x->in, &at, "%s", e.msg);
    } else {
        str_clear(&copy);
        str_puts(&copy, m.template_text);
        exchange_copy(x, &copy, &q->template_text);
    }
    str_deinit(&copy);
    modelfile_deinit(&m);
}

void ollama_generate(exchange *x) {
    runtime_request *q = exchange_requests(x, 1);
    view             model, prompt = { "", 0 }, system = { "", 0 };
    bool             stream, raw = false;
    int64_t          keep;
    if (!q) return;
    bool known = params_model(x, &x->body, true, &model);
    if (!known && !x->in.failed) return;
    read_string(&x->in, &x->body, "prompt", &prompt);
    read_string(&x->in, &x->body, "system", &system);
    read_string(&x->in, &x->body, "suffix", &q->suffix);
    read_bool(&x->in, &x->body, "raw", &raw);
    read_common(x, q, &stream, &keep);
    node images = read_any(&x->in, &x->body, "images");
    read_context(x, q);
    read_template(x, q);
    if ((raw || q->suffix.len) && (q->n_tokens || q->template_text.len || (raw && system.len)))
        reader_fail(&x->in, NULL, "%s: cannot be used together with template, system or context",
                    raw ? "raw" : "suffix");
    if (x->core->replied) return;
    if (x->in.failed) {
        exchange_reject(x);
        return;
    }
    if (prompt.len == 0 && q->suffix.len == 0) {
        load_only(x, model, keep, false);
        return;
    }
    q->task = q->suffix.len ? RUNTIME_INFILL : raw ? RUNTIME_COMPLETE : RUNTIME_CHAT;
    q->text = prompt;
    if (q->task != RUNTIME_CHAT && node_count(&images))
        reader_fail(&x->in, &images, "can only be used with a prompt that is not raw");
    if (q->task == RUNTIME_CHAT) make_messages(x, system, prompt, q);
    q->want_context =
        q->task == RUNTIME_CHAT && !q->n_blobs; /* tokens alone cannot say what a picture or a sound was */
    if (x->core->replied) return;
    if (x->in.failed) {
        exchange_reject(x);
        return;
    }
    start(x, model, keep, q, stream, false);
}

/* --- the conversation of /api/chat --- */

static void put_history_calls(exchange *x, jw *w, const node *calls, size_t message) {
    jw_key(w, "tool_calls");
    jw_open(w, '[');
    for (size_t i = 0; i < node_count(calls) && !x->in.failed; i++) {
        node call = node_at(calls, i), function, arguments;
        view name = { "", 0 }, id = { "", 0 };
        char made[48];
        if (!need_kind(&x->in, &call, NODE_OBJECT)) break;
        if (!read_object(&x->in, &call, "function", &function)) {
            need_kind(&x->in, &function, NODE_OBJECT);
            break;
        }
        need_string(&x->in, &function, "name", &name);
        if (!read_object(&x->in, &function, "arguments", &arguments)) need_kind(&x->in, &arguments, NODE_OBJECT);
        if (!read_string(&x->in, &call, "id", &id)) { /* their protocol needs none */
            snprintf(made, sizeof made, "call_%zu_%zu", message, i);
            id = view_of(made);
        }
        conversation_put_call_object(w, id, name, &arguments);
    }
    jw_close(w, ']');
}

static void put_message(exchange *x, jw *w, const node *m, size_t index, runtime_request *q) {
    content_reader           c;
    static const char *const roles[] = { "system", "user", "assistant", "tool", NULL };
    int                      role = 0;
    view                     text = { "", 0 }, name;
    node                     calls;
    if (!need_kind(&x->in, m, NODE_OBJECT) || !need_string(&x->in, m, "role", &text)) return;
    if (!read_choice(&x->in, m, "role", roles, &role)) return;
    text = (view){ "", 0 };
    read_string(&x->in, m, "content", &text);
    jw_open(w, '{');
    jw_put_cstr(w, "role", roles[role]);
    content_init(&c, x, q);
    read_images(&c, m);
    content_text(&c, text);
    content_put(&c, w);
    content_deinit(&c);
    if (read_string(&x->in, m, "thinking", &text)) jw_put_text(w, "reasoning_content", text);
    if (role == 2 && read_array(&x->in, m, "tool_calls", 256, &calls) && node_count(&calls))
        put_history_calls(x, w, &calls, index);
    if (read_string(&x->in, m, "tool_call_id", &name)) jw_put_text(w, "tool_call_id", name);
    if (read_string(&x->in, m, "tool_name", &name)) jw_put_text(w, "name", name);
    jw_close(w, '}');
}

static void read_messages(exchange *x, const node *list, runtime_request *q) {
    str text;
    str_init(&text);
    jw w = jw_of(&text);
    jw_open(&w, '[');
    for (size_t i = 0; i < node_count(list) && !x->in.failed; i++) {
        node m = node_at(list, i);
        put_message(x, &w, &m, i, q);
    }
    jw_close(&w, ']');
    if (!x->in.failed) exchange_copy(x, &text, &q->messages);
    str_deinit(&text);
}

/* A tool's name alone chooses it; every other form is OpenAI's. */
static void read_bare_choice(exchange *x) {
    node choice = node_get(&x->body, "tool_choice"), tools = node_get(&x->body, "tools");
    view name = node_text(&choice);
    str  text;
    for (size_t i = 0; i < node_count(&tools); i++) {
        node tool = node_at(&tools, i), function = node_get(&tool, "function"), own = node_get(&function, "name");
        if (!name.len || !view_eq(node_text(&own), name)) continue;
        str_init(&text);
        jw w = jw_of(&text);
        jw_open(&w, '{');
        jw_put_cstr(&w, "type", "function");
        jw_key(&w, "function");
        jw_open(&w, '{');
        jw_put_text(&w, "name", name);
        jw_close(&w, '}');
        jw_close(&w, '}');
        if (!str_ok(&text) || !node_set_json(&x->body, "tool_choice", (view){ text.data, text.len }))
            reader_fail(&x->in, NULL, "out of memory");
        str_deinit(&text);
        return;
    }
}

void ollama_chat(exchange *x) {
    runtime_request *q = exchange_requests(x, 1);
    view             model;
    node             list = { 0 };
    bool             stream;
    int64_t          keep;
    if (!q) return;
    q->task = RUNTIME_CHAT;
    bool known = params_model(x, &x->body, true, &model);
    if (!known && !x->in.failed) return;
    read_array(&x->in, &x->body, "messages", OPENAI_MAX_MESSAGES, &list);
    read_common(x, q, &stream, &keep);
    read_bare_choice(x);
    openai_read_tools(x, &x->body, q, false);
    if (!x->in.failed) read_messages(x, &list, q);
    if (x->in.failed) {
        exchange_reject(x);
        return;
    }
    if (node_count(&list) == 0)
        load_only(x, model, keep, true);
    else
        start(x, model, keep, q, stream, true);
}
