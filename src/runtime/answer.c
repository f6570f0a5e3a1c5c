/* SPDX-License-Identifier: Apache-2.0 */
/* Engine events become runtime events. Runs on the engine's thread; nothing here may block for long. */
#include "runtime/internal.h"

#include <math.h>

static void give_text(rq *x, int choice, view text) {
    runtime_event ev = { .kind = RUNTIME_CONTENT, .choice = choice, .text = text };
    if (text.len) rq_emit(x, &ev);
}

/* The bytes of the token and of its rivals lie one behind the other in x->bytes. */
static void give_token(rq *x, const engine_event *g) {
    const tok    *t = chat_tokenizer(x->owner->chat);
    runtime_event ev = { .kind = RUNTIME_TOKEN, .choice = g->choice, .token = g->token, .logprob = g->logprob };
    size_t        ends[21];
    str_clear(&x->bytes);
    (void)tok_bytes(t, g->token, &x->bytes);
    size_t own = x->bytes.len;
    for (int i = 0; i < g->n_top; i++) {
        (void)tok_bytes(t, g->top[i].token, &x->bytes);
        ends[i] = x->bytes.len;
    }
    const char *base = str_cstr(&x->bytes);
    for (int i = 0; i < g->n_top; i++) {
        size_t from = i ? ends[i - 1] : own;
        x->top[i] = (runtime_top){ g->top[i].token, g->top[i].logprob, { base + from, ends[i] - from } };
    }
    ev.bytes = (view){ base, own };
    ev.top = x->top;
    ev.n_top = g->n_top;
    rq_emit(x, &ev);
}

/* The first dimensions of a vector of length 1, brought back to length 1. */
static void give_vector(rq *x, const engine_event *g) {
    runtime_event ev = { .kind = RUNTIME_EMBEDDING, .vector = g->vector, .n_vector = g->n_vector };
    if (x->vector) {
        double sum = 0;
        ev.n_vector = x->q.dimensions;
        ev.vector = x->vector;
        for (int i = 0; i < ev.n_vector; i++) sum += (double)g->vector[i] * (double)g->vector[i];
        double scale = sum > 0 ? 1 / sqrt(sum) : 0;
        for (int i = 0; i < ev.n_vector; i++) x->vector[i] = (float)((double)g->vector[i] * scale);
    }
    rq_emit(x, &ev);
}

static runtime_finish finish_of(engine_finish f) {
    switch (f) {
    case ENGINE_STOP_TOKEN: return RUNTIME_STOP;
    case ENGINE_STOP_STRING: return RUNTIME_STOP_STRING;
    case ENGINE_LENGTH: return RUNTIME_LENGTH;
    case ENGINE_CANCELLED: break;
    }
    return RUNTIME_CANCELLED;
}

static void give_done(rq *x, const engine_event *g) {
    runtime_event ev = { .kind = RUNTIME_DONE,
                         .choice = g->choice,
                         .finish = finish_of(g->finish),
                         .stop_index = g->stop_index,
                         .usage = { .prompt_tokens = g->usage.prompt_tokens,
                                    .cached_tokens = g->usage.cached_tokens,
                                    .generated_tokens = g->usage.generated_tokens,
                                    .prepare_s = x->prepared_at - x->submitted_at,
                                    .queued_s = g->usage.queued_s,
                                    .prompt_s = g->usage.prompt_s,
                                    .generate_s = g->usage.generate_s } };
    give_text(x, g->choice, g->text);
    rq_emit(x, &ev);
}

void answer_event(void *ctx, const engine_event *g) {
    rq *x = ctx;
    pthread_mutex_lock(&x->order);
    if (atomic_load(&x->phase) != RUNTIME_GENERATING) atomic_store(&x->phase, RUNTIME_GENERATING);
    switch (g->kind) {
    case ENGINE_PROGRESS: {
        runtime_event ev = {
            .kind = RUNTIME_PROGRESS, .choice = g->choice, .done = g->done, .total = g->total, .cached = g->cached
        };
        if (x->q.want_progress) rq_emit(x, &ev);
        break;
    }
    case ENGINE_TOKEN:
        atomic_fetch_add(&x->generated_tokens, 1);
        if (x->q.want_logprob || x->q.n_top > 0) give_token(x, g);
        give_text(x, g->choice, g->text);
        break;
    case ENGINE_EMBEDDING: give_vector(x, g); break;
    case ENGINE_DONE: give_done(x, g); break;
    case ENGINE_ERROR: {
        runtime_event ev = { .kind = RUNTIME_ERROR, .choice = g->choice, .error = g->error };
        rq_emit(x, &ev);
        break;
    }
    }
    bool over = x->n_open == 0;
    pthread_mutex_unlock(&x->order);
    if (over) rq_unref(x);
}
