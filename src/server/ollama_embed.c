/* SPDX-License-Identifier: Apache-2.0 */
/* POST /api/embed (one text or several) and the older /api/embeddings (one). */
#include "server/handlers.h"
#include "server/internal.h"
#include "server/ollama.h"
#include "server/params.h"
#include "server/vectors.h"

#include <stdlib.h>

enum { MAX_INPUTS = 2048 };

typedef struct embed_state {
    view    model;
    bool    old; /* /api/embeddings */
    int64_t begin_us;
    vectors v;
} embed_state;

static void state_free(void *p) {
    embed_state *s = p;
    vectors_deinit(&s->v);
    free(s);
}

static void on_event(exchange *x, size_t request, const runtime_event *ev) {
    embed_state *s = x->state;
    vectors_event(&s->v, request, ev);
}

static void put_vector(jw *w, const vectors *v, size_t i) {
    jw_open(w, '[');
    for (int k = 0; k < v->sizes[i]; k++) jw_real(w, v->at[i][k]);
    jw_close(w, ']');
}

static void on_over(exchange *x) {
    embed_state *s = x->state;
    str          b;
    if (s->v.failed) {
        exchange_error(x, 503, "out_of_memory", NULL, "out of memory");
        return;
    }
    str_init(&b);
    jw w = jw_of(&b);
    jw_open(&w, '{');
    if (s->old) {
        jw_key(&w, "embedding");
        put_vector(&w, &s->v, 0);
    } else {
        jw_put_text(&w, "model", s->model);
        jw_key(&w, "embeddings");
        jw_open(&w, '[');
        for (size_t i = 0; i < s->v.n; i++) put_vector(&w, &s->v, i);
        jw_close(&w, ']');
        jw_put_int(&w, "total_duration", (mono_us() - s->begin_us) * 1000);
        jw_put_int(&w, "load_duration", 0);
        jw_put_int(&w, "prompt_eval_count", s->v.prompt_tokens);
    }
    jw_close(&w, '}');
    exchange_reply(x, 200, "application/json", &b);
}

static void embed(exchange *x, bool old) {
    runtime_request *q = NULL, unused = { 0 };
    size_t           n = 0;
    int64_t          dimensions = 0, keep = HOST_KEEP_DEFAULT;
    bool             truncate;
    view             model;
    bool             known = params_model(x, &x->body, true, &model);
    if (!known && !x->in.failed) return;
    params_keep_alive(x, &x->body, "keep_alive", &keep);
    read_int(&x->in, &x->body, "dimensions", 1, 1 << 20, &dimensions);
    read_bool(&x->in, &x->body, "truncate", &truncate); /* too long a text is an error either way */
    ollama_read_options(x, &unused);                    /* checked; nothing of it changes an embedding */
    node input = read_any(&x->in, &x->body, old ? "prompt" : "input");
    if (old && !x->in.failed) need_kind(&x->in, &input, NODE_STRING);
    if (!x->in.failed) params_prompts(x, &input, MAX_INPUTS, &q, &n);
    if (x->in.failed) {
        exchange_reject(x);
        return;
    }
    if (!q) return;
    embed_state *s = calloc(1, sizeof *s);
    if (s) {
        x->state = s;
        x->state_free = state_free;
    }
    if (!s || !vectors_init(&s->v, n)) {
        exchange_error(x, 503, "out_of_memory", NULL, "out of memory");
        return;
    }
    for (size_t i = 0; i < n; i++) {
        q[i].task = RUNTIME_EMBED;
        q[i].dimensions = (int)dimensions;
    }
    s->model = model;
    s->old = old;
    s->begin_us = mono_us();
    exchange_run(x, &(exchange_work){ .model = model,
                                      .keep_alive_ms = keep,
                                      .requests = q,
                                      .n_requests = n,
                                      .on_event = on_event,
                                      .on_over = on_over });
}

void ollama_embed(exchange *x) { embed(x, false); }
void ollama_embeddings(exchange *x) { embed(x, true); }
