/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /v1/completions: texts go on. Several prompts times n choices; choice k of prompt i has the index i * n + k.
 * With best_of more are generated than sent: those with the highest mean log-probability win.
 */
#include "server/constraints.h"
#include "server/handlers.h"
#include "server/openai/openai.h"
#include "server/params.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PROMPTS = 128, DEFAULT_TOKENS = 16 };

/* The legacy form of log-probabilities: parallel lists. */
typedef struct lists {
    str     tokens, logprobs, top, offsets;
    size_t  offset; /* characters so far */
    double  sum;
    int64_t count;
} lists;

typedef struct complete_state {
    char     id[40];
    view     model;
    collect *answers; /* one per prompt */
    lists   *lists;   /* one per prompt and choice */
    size_t   n_prompts, n, best_of;
    bool     stream, include_usage, logprobs;
    str      prefix, chunk;
} complete_state;

static void lists_clear(lists *l) {
    str_clear(&l->tokens);
    str_clear(&l->logprobs);
    str_clear(&l->top);
    str_clear(&l->offsets);
}

static void state_free(void *p) {
    complete_state *s = p;
    for (size_t i = 0; s->answers && i < s->n_prompts; i++) collect_deinit(&s->answers[i]);
    for (size_t i = 0; s->lists && i < s->n_prompts * s->best_of; i++) {
        str_deinit(&s->lists[i].tokens);
        str_deinit(&s->lists[i].logprobs);
        str_deinit(&s->lists[i].top);
        str_deinit(&s->lists[i].offsets);
    }
    free(s->answers);
    free(s->lists);
    str_deinit(&s->prefix);
    str_deinit(&s->chunk);
    free(s);
}

static size_t count_characters(view v) {
    size_t n = 0;
    for (size_t i = 0; i < v.len; i++) n += ((unsigned char)v.data[i] & 0xc0) != 0x80;
    return n;
}

static void add_token(lists *l, const runtime_event *ev) {
    const char *comma = l->tokens.len ? "," : "";
    bool        first = ev->of_prompt && !l->tokens.len; /* nothing stands before it */
    if (!ev->of_prompt) {
        l->sum += ev->logprob;
        l->count++;
    }
    str_puts(&l->tokens, comma);
    str_put_json(&l->tokens, ev->bytes.data, ev->bytes.len);
    if (first)
        str_puts(&l->logprobs, "null");
    else
        str_printf(&l->logprobs, "%s%.9g", comma, (double)(ev->logprob < -9999 ? -9999 : ev->logprob));
    str_printf(&l->offsets, "%s%zu", comma, l->offset);
    l->offset += count_characters(ev->bytes);
    str_puts(&l->top, comma);
    if (first) {
        str_puts(&l->top, "null");
        return;
    }
    jw w = jw_of(&l->top);
    jw_open(&w, '{');
    for (int i = 0; i < ev->n_top; i++) {
        jw one = { &l->top, i > 0 };
        if (one.comma) str_push(&l->top, ',');
        str_put_json(&l->top, ev->top[i].bytes.data, ev->top[i].bytes.len);
        str_printf(&l->top, ":%.9g", (double)(ev->top[i].logprob < -9999 ? -9999 : ev->top[i].logprob));
    }
    str_push(&l->top, '}');
}

static void put_lists(str *out, const lists *l, bool wanted) {
    if (!wanted || !l->tokens.len) {
        str_puts(out, ",\"logprobs\":null");
        return;
    }
    str_printf(out,
               ",\"logprobs\":{\"tokens\":[%s],\"token_logprobs\":[%s],\"top_logprobs\":[%s],\"text_offset\":[%s]}",
               str_cstr(&l->tokens), str_cstr(&l->logprobs), str_cstr(&l->top), str_cstr(&l->offsets));
}

static void put_choice(str *out, size_t index, view text, const lists *l, bool logprobs, const char *finish) {
    str_printf(out, "{\"index\":%zu,\"text\":", index);
    str_put_json(out, text.data, text.len);
    put_lists(out, l, logprobs);
    if (finish)
        str_printf(out, ",\"finish_reason\":\"%s\"}", finish);
    else
        str_puts(out, ",\"finish_reason\":null}");
}

/* --- events --- */

static void stream_piece(exchange *x, complete_state *s, size_t request, const runtime_event *ev) {
    lists      *l = &s->lists[request * s->best_of + (size_t)ev->choice];
    const char *finish = ev->kind == RUNTIME_DONE ? openai_finish(ev->finish) : NULL;
    view        text = ev->kind == RUNTIME_DONE ? (view){ "", 0 } : ev->text;
    str_clear(&s->chunk);
    str_append(&s->chunk, str_cstr(&s->prefix), s->prefix.len);
    str_puts(&s->chunk, "\"choices\":[");
    put_choice(&s->chunk, request * s->n + (size_t)ev->choice, text, l, s->logprobs, finish);
    str_puts(&s->chunk, s->include_usage ? "],\"usage\":null}" : "]}");
    lists_clear(l);
    openai_put_event(x, &s->chunk);
}

static void on_event(exchange *x, size_t request, const runtime_event *ev) {
    complete_state *s = x->state;
    bool            of_choice = ev->choice >= 0 && (size_t)ev->choice < s->best_of;
    if (ev->kind == RUNTIME_TOKEN && of_choice) add_token(&s->lists[request * s->best_of + (size_t)ev->choice], ev);
    if (!s->stream || ev->kind == RUNTIME_DONE || ev->kind == RUNTIME_STARTED) collect_event(&s->answers[request], ev);
    if (s->stream && of_choice && (ev->kind == RUNTIME_CONTENT || ev->kind == RUNTIME_DONE))
        stream_piece(x, s, request, ev);
}

static double mean_logprob(const lists *l) { return l->count ? l->sum / (double)l->count : -1e9; }

/* The best not yet taken; ties go to the lower number. */
static size_t take_best(const complete_state *s, size_t prompt, bool *taken) {
    size_t best = s->best_of;
    for (size_t k = 0; k < s->best_of; k++) {
        const lists *l = &s->lists[prompt * s->best_of];
        if (!taken[k] && (best == s->best_of || mean_logprob(&l[k]) > mean_logprob(&l[best]))) best = k;
    }
    taken[best] = true;
    return best;
}

static void reply_whole(exchange *x) {
    complete_state *s = x->state;
    runtime_usage   u;
    str             b;
    bool            ok = true;
    collect_usage_of(s->answers, s->n_prompts, &u);
    str_init(&b);
    jw w = jw_of(&b);
    jw_open(&w, '{');
    jw_put_cstr(&w, "id", s->id);
    jw_put_cstr(&w, "object", "text_completion");
    jw_put_int(&w, "created", x->created);
    jw_put_text(&w, "model", s->model);
    jw_key(&w, "choices");
    jw_open(&w, '[');
    for (size_t i = 0; i < s->n_prompts; i++) {
        bool taken[128] = { false };
        ok = ok && collect_ok(&s->answers[i]);
        for (size_t k = 0; k < s->n; k++) {
            size_t                from = s->best_of > s->n ? take_best(s, i, taken) : k;
            const collect_choice *c = &s->answers[i].choices[from];
            if (i || k) str_push(&b, ',');
            put_choice(&b, i * s->n + k, (view){ str_cstr(&c->content), c->content.len },
                       &s->lists[i * s->best_of + from], s->logprobs, openai_finish(c->finish));
        }
    }
    jw_close(&w, ']');
    openai_put_usage(&w, &u);
    openai_put_timings(&w, &u);
    jw_close(&w, '}');
    if (!ok) exchange_error_nomem(x);
    exchange_reply(x, 200, "application/json", &b);
}

static void stream_over(exchange *x) {
    complete_state *s = x->state;
    runtime_usage   u;
    if (s->include_usage) {
        collect_usage_of(s->answers, s->n_prompts, &u);
        str_clear(&s->chunk);
        str_append(&s->chunk, str_cstr(&s->prefix), s->prefix.len);
        str_puts(&s->chunk, "\"choices\":[]");
        jw w = { &s->chunk, true };
        openai_put_usage(&w, &u);
        str_puts(&s->chunk, "}");
        openai_put_event(x, &s->chunk);
    }
    exchange_put(x, "data: [DONE]\n\n", 14);
}

/* --- the request --- */

static bool open_state(exchange *x, complete_state *s) {
    x->state = s;
    x->state_free = state_free;
    s->answers = calloc(s->n_prompts, sizeof *s->answers);
    s->lists = calloc(s->n_prompts * s->best_of, sizeof *s->lists);
    if (!s->answers || !s->lists) return false;
    for (size_t i = 0; i < s->n_prompts; i++) {
        if (!collect_init(&s->answers[i], s->best_of)) return false;
    }
    jw w = jw_of(&s->prefix);
    jw_open(&w, '{');
    jw_put_cstr(&w, "id", s->id);
    jw_put_cstr(&w, "object", "text_completion");
    jw_put_int(&w, "created", x->created);
    jw_put_text(&w, "model", s->model);
    str_puts(&s->prefix, ",");
    return str_ok(&s->prefix);
}

static void read_numbers(exchange *x, runtime_request *q, int64_t *n, int64_t *best_of) {
    int64_t v;
    bool    flag;
    q->max_tokens = DEFAULT_TOKENS;
    if (read_int(&x->in, &x->body, "max_tokens", -1, PARAMS_MAX_TOKENS, &v)) {
        q->max_tokens = v < 0 ? 0 : (int)v; /* -1: until the text ends, as local servers have it */
        q->no_answer = v == 0;
    }
    *n = 1;
    read_int(&x->in, &x->body, "n", 1, 128, n);
    *best_of = *n;
    if (read_int(&x->in, &x->body, "best_of", 1, 128, best_of) && *best_of < *n) {
        node at = node_get(&x->body, "best_of");
        reader_fail(&x->in, &at, "must not be less than n");
    }
    if (read_int(&x->in, &x->body, "logprobs", 0, 20, &v)) {
        q->want_logprob = true;
        q->n_top = (int)v;
    }
    if (read_bool(&x->in, &x->body, "echo", &flag)) q->echo = flag;
    if (read_string(&x->in, &x->body, "suffix", &q->suffix) && q->suffix.len) q->task = RUNTIME_INFILL;
    read_any(&x->in, &x->body, "user");
    node other = read_any(&x->in, &x->body, "prompt_logprobs");
    if (node_is(&other) != NODE_ABSENT)
        reader_fail(&x->in, &other, "is not supported; echo together with logprobs gives them");
}

bool openai_read_complete(exchange *x, openai_complete_asked *a) {
    runtime_request common, *q = NULL;
    node            options;
    *a = (openai_complete_asked){ 0 };
    bool known = params_model(x, &x->body, !params_one_model(x), &a->model);
    if (!known && !x->in.failed) return false;
    runtime_request_init(&common);
    common.task = RUNTIME_COMPLETE;
    node prompt = read_any(&x->in, &x->body, "prompt");
    params_prompts(x, &prompt, MAX_PROMPTS, &q, &a->n_prompts);
    read_numbers(x, &common, &a->n, &a->best_of);
    params_sampling(x, &x->body, SAMPLING_BY_OPENAI, &common);
    params_stop(x, &x->body, "stop", &common);
    params_grammar(x, &x->body, &common);
    if (read_object(&x->in, &x->body, "response_format", &options)) params_format(x, &options, &common, false);
    params_extras(x, &x->body, &common);
    read_bool(&x->in, &x->body, "stream", &a->stream);
    if (read_object(&x->in, &x->body, "stream_options", &options))
        read_bool(&x->in, &options, "include_usage", &a->include_usage);
    if (a->stream && a->best_of > a->n) reader_fail(&x->in, NULL, "best_of: cannot be used together with stream");
    if (x->in.failed) {
        exchange_reject(x);
        return false;
    }
    if (!q) return false;
    a->q = q;
    a->logprobs = common.want_logprob;
    if (a->best_of > a->n) common.want_logprob = true;
    common.n_choices = (int)a->best_of;
    for (size_t i = 0; i < a->n_prompts; i++) {
        runtime_request r = common;
        r.text = q[i].text;
        r.tokens = q[i].tokens;
        r.n_tokens = q[i].n_tokens;
        r.client = q[i].client;
        q[i] = r;
    }
    return true;
}

void openai_complete(exchange *x) {
    openai_complete_asked a;
    if (!openai_read_complete(x, &a)) return;
    complete_state *s = calloc(1, sizeof *s);
    if (s) {
        snprintf(s->id, sizeof s->id, "cmpl-%s", x->id + 4);
        s->model = a.model;
        s->stream = a.stream;
        s->include_usage = a.include_usage;
        s->logprobs = a.logprobs;
        s->n_prompts = a.n_prompts;
        s->n = (size_t)a.n;
        s->best_of = (size_t)a.best_of;
    }
    if (!s || !open_state(x, s)) {
        exchange_error_nomem(x);
        return;
    }
    exchange_run(x, &(exchange_work){ .model = a.model,
                                      .keep_alive_ms = HOST_KEEP_DEFAULT,
                                      .requests = a.q,
                                      .n_requests = a.n_prompts,
                                      .stream_type = a.stream ? "text/event-stream" : NULL,
                                      .on_event = on_event,
                                      .on_over = stream_over,
                                      .on_reply = reply_whole });
}
