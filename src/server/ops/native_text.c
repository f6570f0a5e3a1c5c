/* SPDX-License-Identifier: Apache-2.0 */
/* POST /completion and /infill, as llama.cpp answers them: texts go on, or what stands between two is written. */
#include "server/constraints.h"
#include "server/handlers.h"
#include "server/openai/openai.h"
#include "server/params.h"

#include <stdlib.h>

enum { MAX_PROMPTS = 128, MAX_PROBS = 20 };

/* One prompt's answer. */
typedef struct text_answer {
    collect all;
    str     probs, tokens; /* JSON of its tokens; of those that were not sent yet when streaming */
} text_answer;

typedef struct text_state {
    view                   model;
    bool                   stream, list, probs, tokens; /* list: the prompts were one */
    text_answer           *answers;
    size_t                 n;
    const runtime_request *requests;
    str                    chunk;
} text_state;

static void text_free(void *p) {
    text_state *s = p;
    for (size_t i = 0; s->answers && i < s->n; i++) {
        collect_deinit(&s->answers[i].all);
        str_deinit(&s->answers[i].probs);
        str_deinit(&s->answers[i].tokens);
    }
    free(s->answers);
    str_deinit(&s->chunk);
    free(s);
}

static void add_token(const text_state *s, text_answer *a, const runtime_event *ev) {
    if (s->tokens) str_printf(&a->tokens, "%s%d", a->tokens.len ? "," : "", (int)ev->token);
    if (!s->probs) return;
    jw w = { &a->probs, a->probs.len > 0 };
    openai_put_logprob(&w, ev, true);
}

/* The text and what belongs to its tokens. */
static void put_text(jw *w, const text_state *s, size_t i, view text) {
    text_answer *a = &s->answers[i];
    jw_put_int(w, "index", (int64_t)i);
    jw_put_text(w, "content", text);
    jw_key(w, "tokens");
    jw_open(w, '[');
    jw_raw(w, (view){ str_cstr(&a->tokens), a->tokens.len });
    jw_close(w, ']');
    if (s->probs) {
        jw_key(w, "completion_probabilities");
        jw_open(w, '[');
        jw_raw(w, (view){ str_cstr(&a->probs), a->probs.len });
        jw_close(w, ']');
    }
    str_clear(&a->tokens);
    str_clear(&a->probs);
}

static void put_answer(jw *w, const text_state *s, size_t i) {
    const collect_choice  *c = &s->answers[i].all.choices[0];
    const runtime_request *q = &s->requests[i];
    bool                   word = c->finish == RUNTIME_STOP_STRING;
    jw_open(w, '{');
    put_text(w, s, i, (view){ str_cstr(&c->content), c->content.len });
    jw_put_text(w, "model", s->model);
    jw_put_bool(w, "stop", true);
    jw_put_cstr(w, "stop_type", c->finish == RUNTIME_LENGTH ? "limit" : word ? "word" : "eos");
    jw_put_text(w, "stopping_word",
                word && c->stop_index >= 0 && (size_t)c->stop_index < q->n_stop ? q->stop[c->stop_index]
                                                                                : (view){ "", 0 });
    jw_put_bool(w, "truncated", false); /* a prompt that does not fit is refused */
    jw_put_int(w, "tokens_evaluated", c->usage.prompt_tokens);
    jw_put_int(w, "tokens_predicted", c->usage.generated_tokens);
    jw_put_int(w, "tokens_cached", c->usage.cached_tokens);
    openai_put_timings(w, &c->usage);
    jw_close(w, '}');
}

static void text_event(exchange *x, size_t request, const runtime_event *ev) {
    text_state  *s = x->state;
    text_answer *a = &s->answers[request];
    if (ev->kind == RUNTIME_TOKEN) add_token(s, a, ev);
    if (!s->stream || ev->kind == RUNTIME_DONE) collect_event(&a->all, ev);
    if (!s->stream || ev->kind != RUNTIME_CONTENT) return;
    str_clear(&s->chunk);
    jw w = jw_of(&s->chunk);
    jw_open(&w, '{');
    put_text(&w, s, request, ev->text);
    jw_put_bool(&w, "stop", false);
    jw_close(&w, '}');
    openai_put_event(x, &s->chunk);
}

static void stream_over(exchange *x) {
    text_state *s = x->state;
    for (size_t i = 0; i < s->n; i++) {
        str_clear(&s->chunk);
        jw w = jw_of(&s->chunk);
        put_answer(&w, s, i);
        openai_put_event(x, &s->chunk);
    }
}

static void reply_whole(exchange *x) {
    text_state *s = x->state;
    str         b;
    bool        ok = true;
    str_init(&b);
    jw w = jw_of(&b);
    if (s->list) jw_open(&w, '[');
    for (size_t i = 0; i < s->n; i++) {
        put_answer(&w, s, i);
        ok = ok && collect_ok(&s->answers[i].all) && str_ok(&s->answers[i].probs);
    }
    if (s->list) jw_close(&w, ']');
    if (!ok) exchange_error_nomem(x);
    exchange_reply(x, 200, "application/json", &b);
}

static bool open_answers(text_state *s, size_t n) {
    s->answers = calloc(n, sizeof *s->answers);
    s->n = s->answers ? n : 0;
    for (size_t i = 0; i < s->n; i++) {
        if (!collect_init(&s->answers[i].all, 1)) return false;
    }
    return s->answers != NULL;
}

/* How llama.cpp's answers are asked for; the requests take the rest from the first. */
static void run(exchange *x, view model, runtime_request *q, size_t n, const text_state *asked) {
    text_state *s = calloc(1, sizeof *s);
    if (s) {
        *s = *asked;
        x->state = s;
        x->state_free = text_free;
    }
    if (!s || !open_answers(s, n)) {
        exchange_error_nomem(x);
        return;
    }
    s->model = model;
    s->requests = q;
    for (size_t i = 1; i < n; i++) {
        runtime_request r = q[0];
        r.text = q[i].text;
        r.tokens = q[i].tokens;
        r.n_tokens = q[i].n_tokens;
        q[i] = r;
    }
    exchange_run(x, &(exchange_work){ .model = model,
                                      .keep_alive_ms = HOST_KEEP_DEFAULT,
                                      .requests = q,
                                      .n_requests = n,
                                      .stream_type = s->stream ? "text/event-stream" : NULL,
                                      .on_event = text_event,
                                      .on_over = stream_over,
                                      .on_reply = reply_whole });
}

/* n_predict: below 0 without a limit, 0 for the prompt alone, which is in the cache then. */
static void read_common(exchange *x, runtime_request *q, text_state *s) {
    int64_t n;
    if (read_int(&x->in, &x->body, "n_predict", -2, PARAMS_MAX_TOKENS, &n) && n >= 0) {
        q->max_tokens = (int)n;
        q->no_answer = n == 0 && q->task == RUNTIME_COMPLETE;
    }
    params_max_tokens(x, &x->body, "max_tokens", q);
    read_bool(&x->in, &x->body, "stream", &s->stream);
    read_bool(&x->in, &x->body, "return_tokens", &s->tokens);
    if (read_int(&x->in, &x->body, "n_probs", 0, MAX_PROBS, &n)) {
        s->probs = n > 0;
        q->n_top = (int)n;
    }
    q->want_logprob = s->probs || s->tokens;
    params_sampling(x, &x->body, SAMPLING_BY_NATIVE, q);
    params_stop(x, &x->body, "stop", q);
    params_extras(x, &x->body, q);
    params_grammar(x, &x->body, q);
}

void native_infill(exchange *x) {
    view             model, extra = { "", 0 };
    text_state       asked = { 0 };
    runtime_request *q = exchange_requests(x, 1);
    bool             known = q && params_model(x, &x->body, false, &model);
    if (!q || (!known && !x->in.failed)) return;
    q->task = RUNTIME_INFILL;
    need_string(&x->in, &x->body, "input_prefix", &q->text);
    need_string(&x->in, &x->body, "input_suffix", &q->suffix);
    if (read_string(&x->in, &x->body, "prompt", &extra) && extra.len) { /* what was typed behind the prefix */
        str joined;
        str_init(&joined);
        str_append(&joined, q->text.data, q->text.len);
        str_append(&joined, extra.data, extra.len);
        exchange_copy(x, &joined, &q->text);
        str_deinit(&joined);
    }
    read_common(x, q, &asked);
    if (x->in.failed)
        exchange_reject(x);
    else
        run(x, model, q, 1, &asked);
}

void native_complete(exchange *x) {
    view             model;
    bool             known = params_model(x, &x->body, false, &model);
    text_state       asked = { 0 };
    runtime_request *q = NULL;
    size_t           n = 0;
    node             prompt = read_any(&x->in, &x->body, "prompt");
    if (!known && !x->in.failed) return;
    params_prompts(x, &prompt, MAX_PROMPTS, &q, &n);
    if (q) {
        q->task = RUNTIME_COMPLETE;
        asked.list = n > 1;
        read_common(x, q, &asked);
    }
    if (x->in.failed)
        exchange_reject(x);
    else if (q)
        run(x, model, q, n, &asked);
}
