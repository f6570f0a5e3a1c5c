/* SPDX-License-Identifier: Apache-2.0 */
/* What came out of a step: tokens, text, ends. */
#include "engine/internal.h"

#include <stdlib.h>
#include <string.h>

static void emit(const sequence *s, engine_event *ev) {
    ev->choice = s->choice;
    s->job->r.on_event(s->job->r.ctx, ev);
}

/* The sequence leaves; the last one of a job takes the job along. */
static void leave(engine *g, sequence *s) {
    job *j = s->job;
    schedule_release(g, s);
    sequence_free(s);
    j->prompt_ready = true; /* nobody else will make it */
    if (--j->n_open == 0) job_free(j);
}

void step_fail(engine *g, sequence *s, const err *why) {
    engine_event ev = { .kind = ENGINE_ERROR, .error = why };
    emit(s, &ev);
    leave(g, s);
}

void step_end(engine *g, sequence *s, engine_finish finish, int stop_index) {
    double now = engine_now();
    str_clear(&s->out);
    if (g->tok && finish != ENGINE_STOP_STRING) {
        str_clear(&s->piece);
        tok_stream_finish(&s->stream, &s->piece);
        if (s->stop) {
            (void)stop_feed(s->stop, str_cstr(&s->piece), s->piece.len, &s->out);
            stop_finish(s->stop, &s->out);
        } else {
            str_append(&s->out, str_cstr(&s->piece), s->piece.len);
        }
    }
    s->usage.generated_tokens = sequence_generated(s);
    s->usage.queued_s = (s->started_at > 0 ? s->started_at : now) - s->submitted_at;
    if (s->started_at > 0) s->usage.prompt_s = (s->prompt_done_at > 0 ? s->prompt_done_at : now) - s->started_at;
    if (s->prompt_done_at > 0) s->usage.generate_s = now - s->prompt_done_at;
    if (s->slot >= 0 && !s->job->r.no_cache) cache_remember(&g->cache, &s->tables, s->tokens, s->n_evaluated, s->slot);
    engine_event ev = { .kind = ENGINE_DONE,
                        .finish = finish,
                        .stop_index = stop_index,
                        .usage = s->usage,
                        .text = { str_cstr(&s->out), s->out.len } };
    emit(s, &ev);
    leave(g, s);
}

/* The text of a token, as far as it may be shown. Returns the stop string that was reached, or -1. */
static int add_text(engine *g, sequence *s, int32_t token) {
    str_clear(&s->piece);
    str_clear(&s->out);
    if (!g->tok) return -1;
    if (tok_stream_push(&s->stream, token, &s->piece, NULL) < 0) return -1;
    if (s->stop) return stop_feed(s->stop, str_cstr(&s->piece), s->piece.len, &s->out);
    str_append(&s->out, str_cstr(&s->piece), s->piece.len);
    return -1;
}

static void pick(engine *g, sequence *s, const float *logits) {
    const engine_request *r = &s->job->r;
    sampling_result       got;
    err                   e = { 0 };
    bool                  no_end = r->ignore_eos || sequence_generated(s) < r->min_tokens;
    memcpy(g->row, logits, (size_t)g->n_vocab * sizeof *g->row);
    sampling_request q = { .logits = g->row,
                           .mask = no_end ? g->no_end_mask : NULL,
                           .position = (uint64_t)s->n_tokens,
                           .want_logprob = r->want_logprob,
                           .n_top = r->n_top,
                           .top = g->top };
    if (sampler_pick(s->sampler, g->work, &q, &got, &e) < 0) {
        step_fail(g, s, &e);
        return;
    }
    if (s->prompt_done_at == 0) s->prompt_done_at = engine_now();
    sampler_accept(s->sampler, got.token);
    s->tokens[s->n_tokens++] = got.token; /* there is room: a full sequence has ended */
    g->counts.tokens_generated++;
    if (g->tok && tok_is_end(g->tok, got.token)) {
        step_end(g, s, ENGINE_STOP_TOKEN, -1);
        return;
    }
    int          stopped = add_text(g, s, got.token);
    engine_event ev = { .kind = ENGINE_TOKEN,
                        .token = got.token,
                        .text = { str_cstr(&s->out), s->out.len },
                        .logprob = got.logprob,
                        .top = g->top,
                        .n_top = r->n_top };
    emit(s, &ev);
    if (stopped >= 0)
        step_end(g, s, ENGINE_STOP_STRING, stopped);
    else if ((r->max_tokens > 0 && sequence_generated(s) >= r->max_tokens) || s->n_tokens >= s->n_ctx)
        step_end(g, s, ENGINE_LENGTH, -1);
}

void step_results(engine *g) {
    const float *logits = nn_exec_logits(g->exec, &g->n_vocab);
    for (int i = 0; i < g->n_shares; i++) {
        const share *h = &g->shares[i];
        sequence    *s = h->s;
        bool         cached = !s->job->r.no_cache || s->job->r.n_choices > 1;
        bool         in_prompt = s->n_evaluated < s->n_prompt;
        s->n_evaluated += h->n;
        g->counts.tokens_evaluated += (uint64_t)h->n;
        if (h->out < 0) { /* a piece of a prompt */
            if (cached) cache_remember(&g->cache, &s->tables, s->tokens, s->n_evaluated, s->slot);
            engine_event ev = { .kind = ENGINE_PROGRESS, .done = s->n_evaluated, .total = s->n_prompt };
            emit(s, &ev);
        } else {
            /* A model with fixed states left a snapshot one token earlier, where a repeated prompt can use it. */
            if (in_prompt && cached && !g->cache.slot_bytes)
                cache_remember(&g->cache, &s->tables, s->tokens, s->n_evaluated, s->slot);
            s->job->prompt_ready = true;
        }
        cache_trim(&g->cache, &s->tables, s->n_evaluated);
        if (h->out >= 0) pick(g, s, logits + (int64_t)h->out * g->n_vocab);
    }
}
