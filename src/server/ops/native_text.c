/* SPDX-License-Identifier: Apache-2.0 */
/* POST /completion and /infill, as llama.cpp answers them: a text goes on, or what stands between two is written. */
#include "server/constraints.h"
#include "server/handlers.h"
#include "server/openai/openai.h"
#include "server/params.h"

#include <stdlib.h>

typedef struct text_state {
    view    model;
    bool    stream;
    collect all;
    str     chunk;
} text_state;

static void text_free(void *p) {
    text_state *s = p;
    collect_deinit(&s->all);
    str_deinit(&s->chunk);
    free(s);
}

static void put_end(jw *w, const text_state *s) {
    const collect_choice *c = &s->all.choices[0];
    jw_put_text(w, "model", s->model);
    jw_put_bool(w, "stop", true);
    jw_put_cstr(w, "stop_type",
                c->finish == RUNTIME_LENGTH        ? "limit"
                : c->finish == RUNTIME_STOP_STRING ? "word"
                                                   : "eos");
    jw_put_int(w, "tokens_evaluated", c->usage.prompt_tokens);
    jw_put_int(w, "tokens_predicted", c->usage.generated_tokens);
    jw_put_int(w, "tokens_cached", c->usage.cached_tokens);
    openai_put_timings(w, &c->usage);
}

static void text_event(exchange *x, size_t request, const runtime_event *ev) {
    text_state *s = x->state;
    (void)request;
    if (!s->stream || ev->kind == RUNTIME_DONE) collect_event(&s->all, ev);
    if (!s->stream || ev->kind != RUNTIME_CONTENT) return;
    str_clear(&s->chunk);
    jw w = jw_of(&s->chunk);
    jw_open(&w, '{');
    jw_put_text(&w, "content", ev->text);
    jw_put_bool(&w, "stop", false);
    jw_close(&w, '}');
    openai_put_event(x, &s->chunk);
}

static void text_over(exchange *x) {
    text_state *s = x->state;
    str         b;
    str_init(&b);
    jw w = jw_of(&b);
    jw_open(&w, '{');
    jw_put_text(&w, "content", (view){ str_cstr(&s->all.choices[0].content), s->all.choices[0].content.len });
    put_end(&w, s);
    jw_close(&w, '}');
    if (s->stream) {
        openai_put_event(x, &b);
        str_deinit(&b);
    } else {
        exchange_reply(x, 200, "application/json", &b);
    }
}

static void run(exchange *x, view model, runtime_request *q, bool stream) {
    text_state *s = calloc(1, sizeof *s);
    if (s) {
        x->state = s;
        x->state_free = text_free;
    }
    if (!s || !collect_init(&s->all, 1)) {
        exchange_error_nomem(x);
        return;
    }
    s->model = model;
    s->stream = stream;
    exchange_run_one(x, model, q, stream, &(exchange_work){ .on_event = text_event, .on_over = text_over });
}

static void read_common(exchange *x, runtime_request *q, bool *stream) {
    int64_t n;
    if (read_int(&x->in, &x->body, "n_predict", -1, PARAMS_MAX_TOKENS, &n) && n > 0) q->max_tokens = (int)n;
    params_max_tokens(x, &x->body, "max_tokens", q);
    read_bool(&x->in, &x->body, "stream", stream);
    params_sampling(x, &x->body, SAMPLING_BY_NATIVE, q);
    params_stop(x, &x->body, "stop", q);
    params_extras(x, &x->body, q);
    params_grammar(x, &x->body, q);
}

void native_infill(exchange *x) {
    view             model, extra = { "", 0 };
    bool             stream = false;
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
    read_common(x, q, &stream);
    if (x->in.failed)
        exchange_reject(x);
    else
        run(x, model, q, stream);
}

void native_complete(exchange *x) {
    view             model;
    bool             stream = false, known = params_model(x, &x->body, false, &model);
    runtime_request *q = NULL;
    size_t           n = 0;
    node             prompt = read_any(&x->in, &x->body, "prompt");
    if (!known && !x->in.failed) return;
    params_prompts(x, &prompt, 1, &q, &n);
    if (q) {
        q->task = RUNTIME_COMPLETE;
        read_common(x, q, &stream);
    }
    if (x->in.failed)
        exchange_reject(x);
    else if (q)
        run(x, model, q, stream);
}
