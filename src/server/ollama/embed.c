/* SPDX-License-Identifier: Apache-2.0 */
/* POST /api/embed (one text or several) and the older /api/embeddings (one). */
#include "base/clock.h"
#include "server/handlers.h"
#include "server/internal.h"
#include "server/ollama/ollama.h"
#include "server/params.h"
#include "server/vectors.h"

enum { FORM_MANY, FORM_ONE };

static void put_answer(const vectors *v, str *out) {
    jw w = jw_of(out);
    jw_open(&w, '{');
    if (v->form == FORM_ONE) {
        jw_key(&w, "embedding");
        vectors_put(&w, v, 0);
    } else {
        jw_put_text(&w, "model", v->model);
        jw_key(&w, "embeddings");
        jw_open(&w, '[');
        for (size_t i = 0; i < v->n; i++) vectors_put(&w, v, i);
        jw_close(&w, ']');
        jw_put_int(&w, "total_duration", (clock_us() - v->begin_us) * 1000);
        jw_put_int(&w, "load_duration", 0);
        jw_put_int(&w, "prompt_eval_count", v->prompt_tokens);
    }
    jw_close(&w, '}');
}

/* Nothing to embed is no mistake in their protocol. */
static bool is_nothing(const node *input) {
    return node_is(input) == NODE_ABSENT || (node_is(input) == NODE_STRING && node_text(input).len == 0) ||
           (node_is(input) == NODE_ARRAY && node_count(input) == 0);
}

static void reply_nothing(exchange *x, view model, int form) {
    vectors v = { .model = model, .form = form, .begin_us = clock_us() };
    str     b;
    str_init(&b);
    if (form == FORM_ONE)
        str_puts(&b, "{\"embedding\":[]}");
    else
        put_answer(&v, &b);
    exchange_reply(x, 200, "application/json", &b);
}

static void embed(exchange *x, int form) {
    runtime_request *q = NULL, options = { 0 };
    size_t           n = 0;
    int64_t          dimensions = 0, keep = HOST_KEEP_DEFAULT;
    bool             truncate = true;
    vectors_prompt   prompt;
    view             model;
    bool             known = params_model(x, &x->body, true, &model);
    if (!known && !x->in.failed) return;
    params_keep_alive(x, &x->body, "keep_alive", &keep);
    read_int(&x->in, &x->body, "dimensions", 1, 1 << 20, &dimensions);
    read_bool(&x->in, &x->body, "truncate", &truncate);
    vectors_read_prompt(x, &prompt);
    ollama_read_options(x, &options); /* of which num_ctx matters here */
    node input = read_any(&x->in, &x->body, form == FORM_ONE ? "prompt" : "input");
    if (!x->in.failed && is_nothing(&input)) {
        reply_nothing(x, model, form);
        return;
    }
    if (form == FORM_ONE && !x->in.failed) need_kind(&x->in, &input, NODE_STRING);
    if (!x->in.failed) params_prompts(x, &input, VECTORS_MAX_TEXTS, &q, &n);
    for (size_t i = 0; q && i < n; i++) {
        q[i].truncate = truncate;
        q[i].n_ctx = options.n_ctx;
    }
    if (x->in.failed)
        exchange_reject(x);
    else if (q)
        vectors_run(x, model, keep, q, n, (int)dimensions, &prompt, form, "application/json", put_answer);
}

void ollama_embed(exchange *x) { embed(x, FORM_MANY); }
void ollama_embeddings(exchange *x) { embed(x, FORM_ONE); }
