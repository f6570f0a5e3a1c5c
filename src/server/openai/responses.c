/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /v1/responses: a request brings its whole conversation, or goes on with one that was kept (kept.h).
 *
 * The answer is a list of items: reasoning, message, function_call. Events open an item, feed it and close it; the same
 * list, built without events, is the answer in one piece.
 */
#include "server/adapters.h"
#include "server/constraints.h"
#include "server/error_table.h"
#include "server/handlers.h"
#include "server/internal.h"
#include "server/openai/input.h"
#include "server/openai/kept.h"
#include "server/openai/openai.h"
#include "server/openai/responses_input.h"
#include "server/openai/responses_logprobs.h"
#include "server/openai/responses_refs.h"
#include "server/openai/responses_tools.h"
#include "server/params.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ITEMS = 300 };
typedef enum item_kind { ITEM_REASONING, ITEM_MESSAGE, ITEM_CALL, ITEM_CUSTOM } item_kind;

typedef struct item {
    item_kind kind;
    char      id[48];
    str       text;     /* or a call's arguments */
    str       logprobs; /* of a message's tokens: JSON objects with commas between them */
    str       name, call_id, space;
    int       tool; /* the event's index */
    bool      open;
    bool      cut; /* the answer was cut off within it */
} item;

typedef struct responses_state {
    char           id[40];
    view           model;
    bool           stream, failed, store, logprobs;
    waiting        tokens;         /* with logprobs */
    view           echo;           /* members of the response that repeat the request */
    view           input, earlier; /* items of this request and of those before it, to be kept */
    tool_names     tools;
    item          *items;
    size_t         n;
    int64_t        sequence;
    runtime_usage  usage;
    bool           over;
    runtime_finish finish;
    str            chunk;
} responses_state;

static void state_free(void *p) {
    responses_state *s = p;
    for (size_t i = 0; i < s->n; i++) {
        str_deinit(&s->items[i].text);
        str_deinit(&s->items[i].logprobs);
        str_deinit(&s->items[i].name);
        str_deinit(&s->items[i].call_id);
        str_deinit(&s->items[i].space);
    }
    free(s->items);
    waiting_deinit(&s->tokens);
    str_deinit(&s->chunk);
    free(s);
}

static view text_of(const str *s) { return (view){ str_cstr(s), s->len }; }

/* --- JSON of items and of the response --- */

static void put_logprobs(jw *w, view objects) {
    jw_key(w, "logprobs");
    jw_open(w, '[');
    if (objects.len) jw_raw(w, objects);
    jw_close(w, ']');
}

static void put_part(jw *w, const item *it, view text) {
    jw_open(w, '{');
    jw_put_cstr(w, "type", it->kind == ITEM_MESSAGE ? "output_text" : "reasoning_text");
    jw_put_text(w, "text", text);
    if (it->kind == ITEM_MESSAGE) {
        jw_key(w, "annotations");
        jw_raw(w, view_of("[]"));
        put_logprobs(w, text.len ? text_of(&it->logprobs) : text);
    }
    jw_close(w, '}');
}

static bool is_call(const item *it) { return it->kind == ITEM_CALL || it->kind == ITEM_CUSTOM; }

static void put_item(jw *w, const item *it, const char *status) {
    static const char *const types[] = { "reasoning", "message", "function_call", "custom_tool_call" };
    bool                     fresh = strcmp(status, "in_progress") == 0;
    jw_open(w, '{');
    jw_put_cstr(w, "id", it->id);
    jw_put_cstr(w, "type", types[it->kind]);
    jw_put_cstr(w, "status", status);
    if (is_call(it)) {
        jw_put_text(w, "call_id", text_of(&it->call_id));
        jw_put_text(w, "name", text_of(&it->name));
        if (it->space.len) jw_put_text(w, "namespace", text_of(&it->space));
        jw_put_text(w, it->kind == ITEM_CALL ? "arguments" : "input", fresh ? (view){ "", 0 } : text_of(&it->text));
    } else {
        if (it->kind == ITEM_MESSAGE)
            jw_put_cstr(w, "role", "assistant");
        else {
            jw_key(w, "summary");
            jw_raw(w, view_of("[]"));
        }
        jw_key(w, "content");
        jw_open(w, '[');
        if (!fresh) put_part(w, it, text_of(&it->text));
        jw_close(w, ']');
    }
    jw_close(w, '}');
}

static void put_usage(jw *w, const runtime_usage *u) {
    jw_key(w, "usage");
    jw_open(w, '{');
    jw_put_int(w, "input_tokens", u->prompt_tokens);
    jw_key(w, "input_tokens_details");
    jw_open(w, '{');
    jw_put_int(w, "cached_tokens", u->cached_tokens);
    jw_close(w, '}');
    jw_put_int(w, "output_tokens", u->generated_tokens);
    jw_key(w, "output_tokens_details");
    jw_open(w, '{');
    jw_put_int(w, "reasoning_tokens", u->reasoning_tokens);
    jw_close(w, '}');
    jw_put_int(w, "total_tokens", u->prompt_tokens + u->generated_tokens);
    jw_close(w, '}');
}

static void put_response(jw *w, const exchange *x, const responses_state *s, const failure *f) {
    bool        cut = s->over && s->finish == RUNTIME_LENGTH;
    const char *status = f ? "failed" : !s->over ? "in_progress" : cut ? "incomplete" : "completed";
    jw_open(w, '{');
    jw_put_cstr(w, "id", s->id);
    jw_put_cstr(w, "object", "response");
    jw_put_int(w, "created_at", x->created);
    jw_put_cstr(w, "status", status);
    jw_key(w, "error");
    if (f) {
        jw_open(w, '{');
        jw_put_cstr(w, "code", error_status_of(f->status)->responses);
        jw_put_cstr(w, "message", f->message);
        jw_close(w, '}');
    } else {
        jw_null(w);
    }
    jw_key(w, "incomplete_details");
    if (cut)
        jw_raw(w, view_of("{\"reason\":\"max_output_tokens\"}"));
    else
        jw_null(w);
    jw_put_text(w, "model", s->model);
    jw_key(w, "output");
    jw_open(w, '[');
    for (size_t i = 0; i < s->n && s->over; i++)
        put_item(w, &s->items[i], s->items[i].cut ? "incomplete" : "completed");
    jw_close(w, ']');
    jw_raw(w, s->echo);
    if (s->over)
        put_usage(w, &s->usage);
    else
        jw_put_null(w, "usage");
    jw_close(w, '}');
}

/* --- events --- */

/* "event: type", and data with type and sequence_number; the caller adds members and calls end_event. */
static jw begin_event(exchange *x, responses_state *s, const char *type) {
    exchange_put(x, "event: ", 7);
    exchange_put(x, type, strlen(type));
    exchange_put(x, "\n", 1);
    str_clear(&s->chunk);
    jw w = jw_of(&s->chunk);
    jw_open(&w, '{');
    jw_put_cstr(&w, "type", type);
    jw_put_int(&w, "sequence_number", s->sequence++);
    return w;
}

static void end_event(exchange *x, responses_state *s, jw *w) {
    jw_close(w, '}');
    openai_put_event(x, &s->chunk);
}

static jw begin_item_event(exchange *x, responses_state *s, const char *type, const item *it) {
    jw w = begin_event(x, s, type);
    jw_put_cstr(&w, "item_id", it->id);
    jw_put_int(&w, "output_index", it - s->items);
    if (!is_call(it)) jw_put_int(&w, "content_index", 0);
    return w;
}

static void say_response(exchange *x, responses_state *s, const char *type, const failure *f) {
    jw w = begin_event(x, s, type);
    jw_key(&w, "response");
    put_response(&w, x, s, f);
    end_event(x, s, &w);
}

static void say_item(exchange *x, responses_state *s, const char *type, const item *it, const char *status) {
    jw w = begin_event(x, s, type);
    jw_put_int(&w, "output_index", it - s->items);
    jw_key(&w, "item");
    put_item(&w, it, status);
    end_event(x, s, &w);
}

static void say_part(exchange *x, responses_state *s, const char *type, const item *it, view text) {
    jw w = begin_item_event(x, s, type, it);
    jw_key(&w, "part");
    put_part(&w, it, text);
    end_event(x, s, &w);
}

static void say_delta(exchange *x, responses_state *s, const item *it, view text, view logprobs) {
    static const char *const types[] = { "response.reasoning_text.delta", "response.output_text.delta",
                                         "response.function_call_arguments.delta",
                                         "response.custom_tool_call_input.delta" };
    jw                       w = begin_item_event(x, s, types[it->kind], it);
    jw_put_text(&w, "delta", text);
    if (it->kind == ITEM_MESSAGE) put_logprobs(&w, logprobs);
    end_event(x, s, &w);
}

static void say_done(exchange *x, responses_state *s, const item *it) {
    static const char *const types[] = { "response.reasoning_text.done", "response.output_text.done",
                                         "response.function_call_arguments.done",
                                         "response.custom_tool_call_input.done" };
    jw                       w = begin_item_event(x, s, types[it->kind], it);
    static const char *const keys[] = { "text", "text", "arguments", "input" };
    jw_put_text(&w, keys[it->kind], text_of(&it->text));
    if (it->kind == ITEM_CALL) jw_put_text(&w, "name", text_of(&it->name));
    if (it->kind == ITEM_MESSAGE) put_logprobs(&w, text_of(&it->logprobs));
    end_event(x, s, &w);
    if (!is_call(it)) say_part(x, s, "response.content_part.done", it, text_of(&it->text));
}

/* --- items --- */

static void close_item(exchange *x, responses_state *s, item *it, bool cut) {
    if (!it->open) return;
    it->open = false;
    it->cut = cut;
    if (it->kind == ITEM_CUSTOM) { /* its text is known when the call is whole */
        str text;
        str_init(&text);
        custom_text(text_of(&it->text), &text);
        str_deinit(&it->text);
        it->text = text;
        if (s->stream && text.len) say_delta(x, s, it, text_of(&it->text), (view){ "", 0 });
    }
    if (!s->stream) return;
    say_done(x, s, it);
    say_item(x, s, "response.output_item.done", it, cut ? "incomplete" : "completed");
}

/* Under the names that the client gave it. */
static void name_call(item *it, const responses_state *s, const runtime_event *ev) {
    const tool_name *t = tool_names_find(&s->tools, ev->name);
    view             name = t ? t->name : ev->name;
    it->tool = ev->index;
    str_append(&it->name, name.data, name.len);
    str_append(&it->call_id, ev->id.data, ev->id.len);
    if (t) str_append(&it->space, t->space.data, t->space.len);
    if (t && t->custom) it->kind = ITEM_CUSTOM;
}

static item *open_item(exchange *x, responses_state *s, item_kind kind, const runtime_event *ev) {
    static const char *const prefixes[] = { "rs", "msg", "fc", "ctc" };
    if (s->n) close_item(x, s, &s->items[s->n - 1], false);
    item *bigger = s->n < MAX_ITEMS ? realloc(s->items, (s->n + 1) * sizeof *bigger) : NULL;
    if (!bigger) {
        s->failed = true;
        return NULL;
    }
    s->items = bigger;
    item *it = &s->items[s->n];
    memset(it, 0, sizeof *it);
    it->kind = kind;
    it->open = true;
    if (kind == ITEM_CALL) name_call(it, s, ev);
    snprintf(it->id, sizeof it->id, "%s_%s%02zx", prefixes[it->kind], x->id + 4, s->n);
    s->n++;
    if (!s->stream) return it;
    say_item(x, s, "response.output_item.added", it, "in_progress");
    if (!is_call(it)) say_part(x, s, "response.content_part.added", it, (view){ "", 0 });
    return it;
}

static void feed_item(exchange *x, responses_state *s, item_kind kind, const runtime_event *ev) {
    item *it = s->n ? &s->items[s->n - 1] : NULL;
    bool  fits = it && it->open && (it->kind == kind || (kind == ITEM_CALL && it->kind == ITEM_CUSTOM));
    if (!fits) it = kind == ITEM_CALL ? NULL : open_item(x, s, kind, ev);
    if (!it) return;
    size_t had = it->logprobs.len;
    if (kind == ITEM_MESSAGE)
        waiting_take(&s->tokens, !it->text.len, ev->text.len, &it->logprobs);
    else
        waiting_drop(&s->tokens);
    view fresh = text_of(&it->logprobs);
    if (had && fresh.len > had) had++; /* the comma */
    fresh = (view){ fresh.data + had, fresh.len - had };
    str_append(&it->text, ev->text.data, ev->text.len);
    if (s->stream && it->kind != ITEM_CUSTOM) say_delta(x, s, it, ev->text, fresh);
}

static void on_event(exchange *x, size_t request, const runtime_event *ev) {
    responses_state *s = x->state;
    (void)request;
    switch (ev->kind) {
    case RUNTIME_STARTED:
        if (!s->stream) break;
        say_response(x, s, "response.created", NULL);
        say_response(x, s, "response.in_progress", NULL);
        break;
    case RUNTIME_TOKEN:
        if (s->logprobs) waiting_add(&s->tokens, ev);
        break;
    case RUNTIME_CONTENT: feed_item(x, s, ITEM_MESSAGE, ev); break;
    case RUNTIME_REASONING: feed_item(x, s, ITEM_REASONING, ev); break;
    case RUNTIME_TOOL_BEGIN: open_item(x, s, ITEM_CALL, ev); break;
    case RUNTIME_TOOL_ARGUMENTS: feed_item(x, s, ITEM_CALL, ev); break;
    case RUNTIME_TOOL_END:
        if (s->n) close_item(x, s, &s->items[s->n - 1], false);
        break;
    case RUNTIME_DONE:
        s->finish = ev->finish;
        s->usage = ev->usage;
        if (s->n) close_item(x, s, &s->items[s->n - 1], ev->finish == RUNTIME_LENGTH);
        break;
    default: break;
    }
}

static void keep(exchange *x, const responses_state *s) {
    kept_response r = { 0 };
    jw            w = jw_of(&r.response), talk = jw_of(&r.talk);
    if (!s->store || s->failed) return;
    put_response(&w, x, s, NULL);
    str_append(&r.input, s->input.data, s->input.len);
    if (s->earlier.len) jw_raw(&talk, s->earlier);
    jw_raw(&talk, s->input);
    for (size_t i = 0; i < s->n; i++) put_item(&talk, &s->items[i], "completed");
    kept_put(x->server->kept, s->id, x->core->key_id, &r);
}

static void on_over(exchange *x) {
    responses_state *s = x->state;
    str              b;
    s->over = true;
    keep(x, s);
    if (s->stream) {
        say_response(x, s, s->finish == RUNTIME_LENGTH ? "response.incomplete" : "response.completed", NULL);
        return;
    }
    if (s->failed || s->tokens.failed) {
        exchange_error(x, 503, "out_of_memory", NULL, "the answer has too many items");
        return;
    }
    str_init(&b);
    jw w = jw_of(&b);
    put_response(&w, x, s, NULL);
    exchange_reply(x, 200, "application/json", &b);
}

static void put_stream_error(exchange *x, const failure *f, const str *body) {
    responses_state *s = x->state;
    (void)body;
    say_response(x, s, "response.failed", f);
}

const api api_responses = { "openai", openai_put_error, put_stream_error, .heartbeat = openai_heartbeat };

/* --- the request --- */

static void refuse_absent(exchange *x) {
    bool flag;
    node v = read_any(&x->in, &x->body, "conversation");
    if (node_is(&v) != NODE_ABSENT)
        reader_fail(&x->in, &v, "conversations are not stored here; use previous_response_id to continue a response");
    v = read_any(&x->in, &x->body, "prompt");
    if (node_is(&v) != NODE_ABSENT) reader_fail(&x->in, &v, "prompts are not stored here; send the text of the prompt");
    if (read_bool(&x->in, &x->body, "background", &flag) && flag)
        reader_fail(&x->in, NULL, "background: is not supported");
}

static void read_logprobs(exchange *x, runtime_request *q) {
    int64_t n;
    node    list;
    if (read_int(&x->in, &x->body, "top_logprobs", 0, 20, &n)) {
        q->n_top = (int)n;
        q->want_logprob = n > 0;
    }
    if (!read_array(&x->in, &x->body, "include", 32, &list)) return;
    for (size_t i = 0; i < node_count(&list); i++) {
        node one = node_at(&list, i);
        if (!need_kind(&x->in, &one, NODE_STRING)) return;
        if (view_eq_c(node_text(&one), "message.output_text.logprobs"))
            q->want_logprob = true;
        else
            exchange_ignore(x, view_of("include")); /* what tools of a hosted service found */
    }
}

/* Members of the response that say how it was asked for; they stand between "output" and "usage". */
static bool make_echo(exchange *x, view *echo) {
    static const char *const echoed[] = {
        "instructions",      "metadata",  "temperature", "top_p",      "tools", "tool_choice",
        "max_output_tokens", "reasoning", "text",        "truncation", "user",  "previous_response_id",
        "top_logprobs"
    };
    static const char *const absent[] = { "null",
                                          "{}",
                                          "null",
                                          "null",
                                          "[]",
                                          "\"auto\"",
                                          "null",
                                          "{\"effort\":null,\"summary\":null}",
                                          "{\"format\":{\"type\":\"text\"}}",
                                          "\"disabled\"",
                                          "null",
                                          "null",
                                          "0" };
    str                      out;
    bool                     parallel = true, store = true;
    str_init(&out);
    for (size_t i = 0; i < sizeof echoed / sizeof echoed[0]; i++) {
        node n = read_any(&x->in, &x->body, echoed[i]);
        str_printf(&out, "%s\"%s\":", i ? "," : "", echoed[i]);
        if (node_is(&n) == NODE_ABSENT)
            str_puts(&out, absent[i]);
        else
            node_write(&n, &out);
    }
    read_bool(&x->in, &x->body, "parallel_tool_calls", &parallel);
    read_bool(&x->in, &x->body, "store", &store);
    str_printf(&out, ",\"parallel_tool_calls\":%s,\"store\":%s,\"background\":false", parallel ? "true" : "false",
               store ? "true" : "false");
    bool ok = exchange_copy(x, &out, echo) != NULL;
    str_deinit(&out);
    return ok;
}

static void read_forms(exchange *x, runtime_request *q) {
    static const char *const truncations[] = { "auto", "disabled", NULL };
    node                     text, format, reasoning, metadata;
    view                     word;
    int                      truncation;
    if (read_object(&x->in, &x->body, "text", &text)) {
        if (read_object(&x->in, &text, "format", &format)) params_format(x, &format, q, true);
        if (read_string(&x->in, &text, "verbosity", &word)) exchange_ignore(x, view_of("text.verbosity"));
    }
    if (read_object(&x->in, &x->body, "reasoning", &reasoning)) openai_read_effort(x, &reasoning, "effort", q);
    if (read_choice(&x->in, &x->body, "truncation", truncations, &truncation) && truncation == 0)
        exchange_ignore(x, view_of("truncation"));
    read_object(&x->in, &x->body, "metadata", &metadata);
}

/* The conversation so far; false: the response is not here (answered). */
static bool read_earlier(exchange *x, view *out, json_doc *doc) {
    kept_response r;
    view          id;
    str           list;
    if (!read_string(&x->in, &x->body, "previous_response_id", &id)) return true;
    if (!kept_get(x->server->kept, id, x->core->key_id, &r)) {
        exchange_error(x, 400, "previous_response_not_found", "previous_response_id",
                       "Previous response with id '%.*s' not found.", (int)(id.len > 60 ? 60 : id.len), id.data);
        return false;
    }
    str_init(&list);
    str_printf(&list, "{\"items\":[%s]}", str_cstr(&r.talk));
    bool ok = exchange_copy(x, &r.talk, out) && str_ok(&list) && json_doc_parse(doc, list.data, list.len, NULL) == 0;
    str_deinit(&list);
    kept_response_deinit(&r);
    if (!ok) exchange_error_nomem(x);
    return ok;
}

/* The request's own items as they are kept: each has an id. */
static bool copy_input(exchange *x, view *out) {
    node input = node_get(&x->body, "input");
    str  text;
    char id[48];
    str_init(&text);
    jw w = jw_of(&text);
    if (node_is(&input) == NODE_STRING) {
        str_printf(&text, "{\"id\":\"msg_%sin00\",\"type\":\"message\",\"role\":\"user\",\"content\":[", x->id + 4);
        jw_open(&w, '{');
        jw_put_cstr(&w, "type", "input_text");
        jw_put_text(&w, "text", node_text(&input));
        jw_close(&w, '}');
        str_puts(&text, "]}");
    }
    for (size_t i = 0; i < node_count(&input); i++) {
        node one = node_at(&input, i), own = node_get(&one, "id"), type = node_get(&one, "type");
        snprintf(id, sizeof id, "msg_%sin%02zx", x->id + 4, i);
        if (node_is(&own) == NODE_ABSENT) node_set_text(&one, "id", id);
        if (node_is(&type) == NODE_ABSENT) node_set_text(&one, "type", "message");
        if (i) str_push(&text, ',');
        node_write(&one, &text);
    }
    bool ok = exchange_copy(x, &text, out) != NULL;
    str_deinit(&text);
    return ok;
}

/* What a prompt is made of. False: answered. */
static bool read_prompt(exchange *x, runtime_request *q, tool_names *tools, view *earlier) {
    json_doc doc = { 0 };
    if (!responses_resolve(x) || !read_earlier(x, earlier, &doc)) return false;
    node root = node_root(&doc), items = node_get(&root, "items");
    q->task = RUNTIME_CHAT;
    responses_flatten_tools(x, tools);
    responses_read_input(x, &x->body, &items, q);
    json_doc_deinit(&doc);
    if (!x->in.failed) openai_read_tools(x, &x->body, q, true);
    read_forms(x, q);
    refuse_absent(x);
    return true;
}

static responses_state *open_state(exchange *x) {
    responses_state *s = calloc(1, sizeof *s);
    if (!s) exchange_error_nomem(x);
    x->state = s;
    x->state_free = s ? state_free : NULL;
    return s;
}

void openai_responses(exchange *x) {
    /* Accounts and caches of a hosted service, and how often its tools may run. */
    static const char *const hosted[] = { "service_tier",     "max_tool_calls",
                                          "prompt_cache_key", "safety_identifier",
                                          "stream_options",   "prompt_cache_retention",
                                          "client_metadata",  NULL };
    runtime_request         *q = exchange_requests(x, 1);
    responses_state         *s = q ? open_state(x) : NULL;
    view                     model;
    int64_t                  n;
    bool                     known = s && params_model(x, &x->body, !params_one_model(x), &model);
    if (!s || (!known && !x->in.failed) || !make_echo(x, &s->echo)) return;
    if (!read_prompt(x, q, &s->tools, &s->earlier)) return;
    params_sampling(x, &x->body, SAMPLING_BY_OPENAI, q);
    params_grammar(x, &x->body, q);
    params_extras(x, &x->body, q);
    read_logprobs(x, q);
    s->logprobs = q->want_logprob;
    if (read_int(&x->in, &x->body, "max_output_tokens", 1, PARAMS_MAX_TOKENS, &n)) q->max_tokens = (int)n;
    read_bool(&x->in, &x->body, "stream", &s->stream);
    s->store = true;
    read_bool(&x->in, &x->body, "store", &s->store);
    exchange_ignore_members(x, hosted);
    if (x->in.failed) {
        exchange_reject(x);
        return;
    }
    if (s->store && !copy_input(x, &s->input)) return;
    snprintf(s->id, sizeof s->id, "resp_%s", x->id + 4);
    s->model = model;
    q->stream_calls = s->stream;
    exchange_run(x, &(exchange_work){ .model = model,
                                      .keep_alive_ms = HOST_KEEP_DEFAULT,
                                      .requests = q,
                                      .n_requests = 1,
                                      .stream_type = s->stream ? "text/event-stream" : NULL,
                                      .on_event = on_event,
                                      .on_over = on_over });
}

void openai_responses_count(exchange *x) {
    runtime_request *q = exchange_requests(x, 1);
    tool_names       tools;
    view             model, earlier;
    size_t           n = 0;
    err              e = { 0 };
    str              b;
    bool             known = q && params_model(x, &x->body, !params_one_model(x), &model);
    if (!q || (!known && !x->in.failed) || !read_prompt(x, q, &tools, &earlier)) return;
    if (x->in.failed) {
        exchange_reject(x);
    } else if (host_count(x->host, adapters_base(x, model), q, &n, &e) < 0) {
        exchange_error_from(x, &e);
    } else {
        str_init(&b);
        str_printf(&b, "{\"object\":\"response.input_tokens\",\"input_tokens\":%zu}", n);
        exchange_reply(x, 200, "application/json", &b);
    }
}
