/* SPDX-License-Identifier: Apache-2.0 */
/* Endpoints of our own and those that llama.cpp's users know: tokenize, detokenize, apply-template, rerank,
 * props, load and unload. */
#include "server/adapters.h"
#include "server/handlers.h"
#include "server/http/query.h"
#include "server/internal.h"
#include "server/openai/input.h"
#include "server/openai/openai.h"
#include "server/openai/tool_names.h"
#include "server/params.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DOCUMENTS = 1024 };

/* --- text and tokens --- */

void native_tokenize(exchange *x) {
    view    model, text = { "", 0 };
    bool    add_special = false, parse_special = true, pieces = false;
    tok_ids ids = { 0 };
    err     e = { 0 };
    str     b;
    bool    known = params_model(x, &x->body, false, &model);
    if (!known && !x->in.failed) return;
    need_string(&x->in, &x->body, "content", &text);
    read_bool(&x->in, &x->body, "add_special", &add_special);
    read_bool(&x->in, &x->body, "parse_special", &parse_special);
    read_bool(&x->in, &x->body, "with_pieces", &pieces);
    if (x->in.failed) {
        exchange_reject(x);
        return;
    }
    int rc = host_tokenize(x->host, adapters_base(x, model), text, add_special, parse_special, &ids, &e);
    str_init(&b);
    jw w = jw_of(&b);
    jw_open(&w, '{');
    jw_key(&w, "tokens");
    jw_open(&w, '[');
    for (size_t i = 0; i < ids.count && rc == 0; i++) {
        if (!pieces) {
            jw_int(&w, ids.data[i]);
            continue;
        }
        str piece;
        str_init(&piece);
        rc = host_detokenize(x->host, adapters_base(x, model), &ids.data[i], 1, true, &piece, &e);
        jw_open(&w, '{');
        jw_put_int(&w, "id", ids.data[i]);
        jw_put_text(&w, "piece", (view){ str_cstr(&piece), piece.len });
        jw_close(&w, '}');
        str_deinit(&piece);
    }
    jw_close(&w, ']');
    jw_close(&w, '}');
    tok_ids_deinit(&ids);
    if (rc < 0) {
        str_deinit(&b);
        exchange_error_from(x, &e);
        return;
    }
    exchange_reply(x, 200, "application/json", &b);
}

/* {"key": text}, with the tokens of a prompt if they are not negative, or the error; releases the text. */
static void reply_text(exchange *x, int rc, const char *key, str *text, int64_t prompt_tokens, const err *e) {
    str b;
    if (rc < 0) {
        exchange_error_from(x, e);
    } else {
        str_init(&b);
        jw w = jw_of(&b);
        jw_open(&w, '{');
        jw_put_text(&w, key, (view){ str_cstr(text), text->len });
        if (prompt_tokens >= 0) jw_put_int(&w, "prompt_tokens", prompt_tokens);
        jw_close(&w, '}');
        exchange_reply(x, 200, "application/json", &b);
    }
    str_deinit(text);
}

void native_detokenize(exchange *x) {
    view             model;
    runtime_request *q = NULL;
    size_t           n = 0;
    err              e = { 0 };
    str              text;
    bool             special = true, known = params_model(x, &x->body, false, &model);
    node             list;
    if (!known && !x->in.failed) return;
    read_bool(&x->in, &x->body, "keep_special", &special);
    if (need_array(&x->in, &x->body, "tokens", 1 << 20, &list) && node_count(&list)) {
        node first = node_at(&list, 0); /* a list of texts would be one of prompts */
        if (need_kind(&x->in, &first, NODE_INT)) params_prompts(x, &list, 1, &q, &n);
    }
    if (x->in.failed) {
        exchange_reject(x);
        return;
    }
    str_init(&text);
    int rc = q ? host_detokenize(x->host, adapters_base(x, model), q->tokens, q->n_tokens, special, &text, &e) : 0;
    reply_text(x, rc, "content", &text, -1, &e);
}

/* A conversation that is not to be answered; NULL: answered with an error. */
static runtime_request *read_conversation(exchange *x, view *model) {
    tool_names       tools;
    runtime_request *q = exchange_requests(x, 1);
    bool             known = q && params_model(x, &x->body, false, model);
    if (!q || (!known && !x->in.failed)) return NULL;
    q->task = RUNTIME_CHAT;
    openai_read_messages(x, &x->body, q);
    custom_flatten(x, &tools);
    openai_read_tools(x, &x->body, q, false);
    openai_read_template(x, &x->body, q);
    if (!x->in.failed) return q;
    exchange_reject(x);
    return NULL;
}

void native_apply_template(exchange *x) {
    view             model;
    err              e = { 0 };
    str              text;
    size_t           n = 0;
    runtime_request *q = read_conversation(x, &model);
    if (!q) return;
    str_init(&text);
    int rc = host_render(x->host, adapters_base(x, model), q, &text, &e);
    if (rc == 0) rc = host_count(x->host, adapters_base(x, model), q, &n, &e);
    reply_text(x, rc, "prompt", &text, (int64_t)n, &e);
}

void native_count(exchange *x) {
    view             model;
    size_t           n = 0;
    err              e = { 0 };
    str              b;
    runtime_request *q = read_conversation(x, &model);
    if (!q) return;
    if (host_count(x->host, adapters_base(x, model), q, &n, &e) < 0) {
        exchange_error_from(x, &e);
        return;
    }
    str_init(&b);
    str_printf(&b, "{\"input_tokens\":%zu}", n);
    exchange_reply(x, 200, "application/json", &b);
}

/* --- rerank --- */

typedef struct rank {
    size_t index;
    float  score;
} rank;

typedef struct rerank_state {
    view    model;
    rank   *ranks;
    size_t  n, top;
    int64_t prompt_tokens;
} rerank_state;

static void rerank_free(void *p) {
    rerank_state *s = p;
    free(s->ranks);
    free(s);
}

static void rerank_event(exchange *x, size_t request, const runtime_event *ev) {
    rerank_state *s = x->state;
    if (ev->kind == RUNTIME_STARTED) s->prompt_tokens += ev->prompt_tokens;
    if (ev->kind == RUNTIME_SCORE) s->ranks[request].score = ev->score;
}

static int by_score(const void *a, const void *b) {
    const rank *p = a, *q = b;
    if (p->score != q->score) return p->score < q->score ? 1 : -1;
    return p->index < q->index ? -1 : 1;
}

static void rerank_over(exchange *x) {
    rerank_state *s = x->state;
    str           b;
    qsort(s->ranks, s->n, sizeof *s->ranks, by_score);
    str_init(&b);
    jw w = jw_of(&b);
    jw_open(&w, '{');
    jw_put_text(&w, "model", s->model);
    jw_put_cstr(&w, "object", "list");
    jw_key(&w, "results");
    jw_open(&w, '[');
    for (size_t i = 0; i < s->top; i++) {
        jw_open(&w, '{');
        jw_put_int(&w, "index", (int64_t)s->ranks[i].index);
        jw_put_real(&w, "relevance_score", s->ranks[i].score);
        jw_close(&w, '}');
    }
    jw_close(&w, ']');
    jw_key(&w, "usage");
    jw_open(&w, '{');
    jw_put_int(&w, "prompt_tokens", s->prompt_tokens);
    jw_put_int(&w, "total_tokens", s->prompt_tokens);
    jw_close(&w, '}');
    jw_close(&w, '}');
    exchange_reply(x, 200, "application/json", &b);
}

void native_rerank(exchange *x) {
    view             model, query = { "", 0 };
    int64_t          top = 0;
    node             list;
    runtime_request *q = NULL;
    size_t           n = 0;
    bool             known = params_model(x, &x->body, false, &model);
    if (!known && !x->in.failed) return;
    need_string(&x->in, &x->body, "query", &query);
    if (!read_array(&x->in, &x->body, "documents", MAX_DOCUMENTS, &list) && !x->in.failed)
        need_array(&x->in, &x->body, "texts", MAX_DOCUMENTS, &list);
    read_int(&x->in, &x->body, "top_n", 1, INT32_MAX, &top);
    for (size_t i = 0; i < node_count(&list) && !x->in.failed; i++) {
        node item = node_at(&list, i);
        need_kind(&x->in, &item, NODE_STRING);
    }
    if (!x->in.failed) params_prompts(x, &list, MAX_DOCUMENTS, &q, &n);
    if (x->in.failed) {
        exchange_reject(x);
        return;
    }
    if (!q) return;
    rerank_state *s = calloc(1, sizeof *s);
    if (s) {
        x->state = s;
        x->state_free = rerank_free;
        s->ranks = calloc(n, sizeof *s->ranks);
    }
    if (!s || !s->ranks) {
        exchange_error_nomem(x);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        q[i].task = RUNTIME_RERANK;
        q[i].suffix = q[i].text;
        q[i].text = query;
        s->ranks[i].index = i;
    }
    s->model = model;
    s->n = n;
    s->top = top > 0 && (size_t)top < n ? (size_t)top : n;
    exchange_run(x, &(exchange_work){ .model = model,
                                      .keep_alive_ms = HOST_KEEP_DEFAULT,
                                      .requests = q,
                                      .n_requests = n,
                                      .on_event = rerank_event,
                                      .on_over = rerank_over });
}

/* --- models --- */

static void change_model(exchange *x, bool load) {
    view    model;
    err     e = { 0 };
    int64_t keep = HOST_KEEP_DEFAULT;
    str     b;
    bool    known = params_model(x, &x->body, true, &model);
    if (!known && !x->in.failed) return;
    if (load) params_keep_alive(x, &x->body, "keep_alive", &keep);
    if (x->in.failed) {
        exchange_reject(x);
        return;
    }
    if ((load ? host_load(x->host, adapters_base(x, model), keep, &e)
              : host_unload(x->host, adapters_base(x, model), &e)) < 0) {
        exchange_error_from(x, &e);
        return;
    }
    str_init(&b);
    jw w = jw_of(&b);
    jw_open(&w, '{');
    jw_put_text(&w, "model", model);
    jw_put_cstr(&w, "status", load ? "loaded" : "unloaded");
    jw_close(&w, '}');
    exchange_reply(x, 200, "application/json", &b);
}

void native_load(exchange *x) { change_model(x, true); }
void native_unload(exchange *x) { change_model(x, false); }

void native_props(exchange *x) {
    const char *name = x->server->options.default_model;
    char        asked[sizeof(((host_model *)0)->name)];
    host_model  m = { 0 };
    str         b, text;
    err         e = { 0 };
    bool        named = query_get(x->http->query, "model", asked, sizeof asked);
    if (named) name = asked;
    bool known = name && host_find(x->host, adapters_base(x, view_of(name)), &m, &e) == 0;
    if (named && !known) {
        exchange_error_from(x, &e);
        return;
    }
    str_init(&text);
    /* A question about the server must not load a model. */
    if (known && m.state == HOST_LOADED) host_template(x->host, view_of(m.name), &text, NULL);
    str_init(&b);
    jw w = jw_of(&b);
    jw_open(&w, '{');
    jw_put_cstr(&w, "build_info", x->server->options.version);
    jw_put_cstr(&w, "default_model", known ? m.name : NULL);
    jw_put_cstr(&w, "model_path", known ? m.path : NULL);
    jw_put_bool(&w, "loaded", known && m.state == HOST_LOADED);
    if (text.len) jw_put_text(&w, "chat_template", (view){ text.data, text.len });
    /* Before the model is loaded, nobody knows what its device takes. */
    int slots = m.n_seqs ? m.n_seqs : x->server->options.n_slots;
    jw_put_int(&w, "total_slots", slots > 0 ? slots : 16);
    jw_key(&w, "default_generation_settings");
    jw_open(&w, '{');
    jw_put_int(&w, "n_ctx", m.n_ctx);
    jw_close(&w, '}');
    jw_key(&w, "modalities");
    jw_open(&w, '{');
    jw_put_bool(&w, "vision", m.can_see);
    jw_put_bool(&w, "audio", m.can_hear);
    jw_close(&w, '}');
    jw_close(&w, '}');
    str_deinit(&text);
    exchange_reply(x, 200, "application/json", &b);
}
