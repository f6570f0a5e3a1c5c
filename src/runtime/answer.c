/* SPDX-License-Identifier: Apache-2.0 */
/* Engine events become runtime events. Runs on the engine's thread; nothing here may block for long. */
#include "base/map.h"
#include "runtime/internal.h"

#include <math.h>
#include <string.h>

/* --- the parsers --- */

int answer_markers(const chat *c, tok_ids *out, err *e) {
    const tok *t = chat_tokenizer(c);
    for (size_t i = 0;; i++) {
        const char *text = chat_format_marker(chat_answer_format(c), i);
        if (!text) return 0;
        int32_t id = tok_find(t, text, strlen(text));
        if (id >= 0 && tok_is_special(t, id) && !tok_is_end(t, id) && !tok_ids_push(out, id)) return err_set_nomem(e);
    }
}

/* A name for a call whose syntax has none: nine letters and digits, which is what Mistral's templates insist on. */
static void make_id(request *x, const request_choice *c, int call, char out[10]) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    uint64_t          parts[3] = { x->id, (uint64_t)(c - x->choices), (uint64_t)call };
    uint64_t          h = hash_bytes(parts, sizeof parts, x->owner->id_seed);
    for (int i = 0; i < 9; i++, h /= 62) out[i] = letters[h % 62];
    out[9] = '\0';
}

static void give_error(request *x, int choice, const err *why) {
    runtime_event ev = { .kind = RUNTIME_ERROR, .choice = choice, .error = why };
    request_emit(x, &ev);
}

/* Memory is out: this answer ends, and with it the request in the engine. */
static void give_up(request *x, int choice, const err *why) {
    if (x->choices[choice].over) return;
    give_error(x, choice, why);
    engine_cancel(x->owner->engine, x->engine_id);
}

static void give_up_nomem(request *x, int choice) {
    err e;
    err_set_nomem(&e);
    give_up(x, choice, &e);
}

static void emit_shown(request_choice *c) {
    if (!str_ok(&c->shown)) {
        give_up_nomem(c->owner, (int)(c - c->owner->choices));
        return;
    }
    runtime_event ev = { .kind = RUNTIME_CONTENT,
                         .choice = (int)(c - c->owner->choices),
                         .text = { str_cstr(&c->shown), c->shown.len } };
    if (c->shown.len) request_emit(c->owner, &ev);
    str_clear(&c->shown);
}

/* Content goes out as far as no stop text can begin in it. The engine is stopped when all answers have reached one. */
static void give_content(request_choice *c, view text) {
    request *x = c->owner;
    c->stopped = stop_feed(c->stop, text.data, text.len, &c->shown);
    emit_shown(c);
    if (c->stopped >= 0 && --x->n_unstopped == 0) engine_cancel(x->owner->engine, x->engine_id);
}

static void on_part(void *ctx, const chat_event *p) {
    request_choice *c = ctx;
    request        *x = c->owner;
    if (c->stopped >= 0 || c->over) return; /* the engine does not know yet */
    if (c->broken) return;
    if (x->only_calls && p->part == CHAT_CONTENT) return; /* the beginning of a call that was cut off */
    if (c->stop && p->part == CHAT_CONTENT) {
        give_content(c, p->text);
        return;
    }
    if (c->stop) { /* a stop text does not reach across a call */
        stop_finish(c->stop, &c->shown);
        emit_shown(c);
        if (c->over) return;
    }
    runtime_event ev = { .choice = (int)(c - x->choices), .text = p->text, .index = p->index };
    char          id[10];
    switch (p->part) {
    case CHAT_CONTENT: ev.kind = RUNTIME_CONTENT; break;
    case CHAT_REASONING: ev.kind = RUNTIME_REASONING; break;
    case CHAT_TOOL_ARGUMENTS: ev.kind = RUNTIME_TOOL_ARGUMENTS; break;
    case CHAT_TOOL_END: ev.kind = RUNTIME_TOOL_END; break;
    case CHAT_TOOL_BEGIN:
        ev.kind = RUNTIME_TOOL_BEGIN;
        ev.name = p->name;
        ev.id = p->id;
        if (!p->id.len) {
            make_id(x, c, p->index, id);
            ev.id = view_of(id);
        }
        break;
    case CHAT_TOOL_CUT: return; /* a call without its end */
    case CHAT_TOOL_FAILED:      /* its grammar had a hole, and it was told as a call */
        c->broken = c->finishing;
        if (c->broken) return;
        ev.kind = RUNTIME_TOOL_END;
        break;
    }
    request_emit(x, &ev);
}

int answer_open(request *x, const trees *t, const prompt *p, bool stream_calls, err *e) {
    const runtime_request *q = &x->q;
    chat_parser_options    o = { .starts_in_reasoning = p->in_reasoning, .stream_arguments = stream_calls };
    int                    rc = 0;
    if (q->task != RUNTIME_CHAT || q->raw_answer) return 0;
    if (q->tool_choice != RUNTIME_TOOLS_NONE) o.tools = t->tools;
    for (int i = 0; i < q->n_choices && rc == 0; i++) {
        request_choice *c = &x->choices[i];
        c->owner = x;
        c->stopped = -1;
        rc = chat_parser_open(&c->parser, chat_answer_format(x->owner->chat), &o, on_part, c, e);
        if (rc == 0 && q->n_stop) rc = stop_open(&c->stop, x->stop, x->stop_bytes, q->n_stop, e);
    }
    return rc;
}

void answer_close(request *x) {
    for (int i = 0; x->choices && i < x->q.n_choices; i++) {
        chat_parser_free(x->choices[i].parser);
        stop_free(x->choices[i].stop);
        str_deinit(&x->choices[i].shown);
    }
}

/* --- text --- */

static void give_text(request *x, int choice, view text) {
    runtime_event   ev = { .kind = RUNTIME_CONTENT, .choice = choice, .text = text };
    request_choice *c = &x->choices[choice];
    err             e; /* set where it is used: this is once per token */
    ev.text = text = dictation_text(x, text);
    if (!c->parser) {
        if (text.len) request_emit(x, &ev);
    } else if (chat_parser_feed(c->parser, text.data, text.len, &e) < 0) {
        give_up(x, choice, &e);
    }
}

/* A token belongs to the thoughts when they were open before it or are open behind it. */
static void give_token_text(request *x, const engine_event *g) {
    request_choice *c = &x->choices[g->choice];
    bool            before = c->parser && chat_parser_in_reasoning(c->parser);
    c->tokens++;
    give_text(x, g->choice, dictation_token_text(x, g));
    if (before || (c->parser && chat_parser_in_reasoning(c->parser))) c->reasoning_tokens++;
}

/* Appends what a token stands for; one that only the model knows has no bytes. */
static bool add_bytes(const tok *t, int32_t id, str *out) { return tok_bytes(t, id, out) || id >= tok_count(t); }

/* The bytes of the token and of its rivals lie one behind the other in x->bytes. */
static void give_token(request *x, const engine_event *g) {
    const tok    *t = chat_tokenizer(x->owner->chat);
    runtime_event ev = { .kind = RUNTIME_TOKEN, .choice = g->choice, .token = g->token, .logprob = g->logprob };
    size_t        ends[21] = { 0 };
    str_clear(&x->bytes);
    ev.of_prompt = g->kind == ENGINE_PROMPT;
    /* A begin token that was put in front of a text is no part of it. */
    bool   hidden = ev.of_prompt && !x->q.n_tokens && g->token == tok_bos(t) && tok_adds_bos(t);
    bool   ok = hidden || add_bytes(t, g->token, &x->bytes);
    size_t own = x->bytes.len;
    for (int i = 0; i < g->n_top; i++) {
        ok = ok && add_bytes(t, g->top[i].token, &x->bytes);
        ends[i] = x->bytes.len;
    }
    if (!ok) {
        give_up_nomem(x, g->choice);
        return;
    }
    const char *base = str_cstr(&x->bytes);
    for (int i = 0; i < g->n_top; i++) {
        size_t from = i ? ends[i - 1] : own;
        x->top[i] = (runtime_top){ g->top[i].token, g->top[i].logprob, { base + from, ends[i] - from } };
    }
    ev.bytes = (view){ base, own };
    ev.top = x->top;
    ev.n_top = g->n_top;
    request_emit(x, &ev);
}

/* The dense layers, one after the other: between the two halves of x->vector. */
static const float *through_dense(const request *x, const float *v, int *n) {
    const embedding *m = &x->owner->embed;
    for (int i = 0; i < m->n_dense; i++) {
        float *to = x->vector + (i % 2 ? 0 : m->widest);
        head_run(&m->dense[i], v, to);
        v = to;
        *n = m->dense[i].out;
    }
    return v;
}

/* The first dimensions of a vector, brought to length 1. */
static void give_vector(request *x, const engine_event *g) {
    runtime_event ev = { .kind = RUNTIME_EMBEDDING, .vector = g->vector, .n_vector = g->n_vector };
    if (x->q.task == RUNTIME_RERANK)
        ev = (runtime_event){ .kind = RUNTIME_SCORE,
                              .score = rerank_score(x->owner, g->vector, g->n_vector, x->vector) };
    else if (x->q.task == RUNTIME_CLASSIFY)
        ev = (runtime_event){ .kind = RUNTIME_CLASSES,
                              .vector = classify_probs(x->owner, g->vector, x->vector),
                              .n_vector = x->owner->classes.n_classes,
                              .text = x->owner->classes.labels };
    else if (x->vector) {
        double       sum = 0;
        const float *v = through_dense(x, g->vector, &ev.n_vector);
        if (x->q.dimensions) ev.n_vector = x->q.dimensions;
        ev.vector = x->vector;
        for (int i = 0; i < ev.n_vector; i++) sum += (double)v[i] * (double)v[i];
        double scale = sum > 0 ? 1 / sqrt(sum) : 0;
        for (int i = 0; i < ev.n_vector; i++) x->vector[i] = (float)((double)v[i] * scale);
    }
    request_emit(x, &ev);
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

static void give_done(request *x, const engine_event *g) {
    request_choice *c = &x->choices[g->choice];
    err             e = { 0 };
    runtime_event   ev = { .kind = RUNTIME_DONE,
                           .choice = g->choice,
                           .finish = finish_of(g->finish),
                           .stop_index = g->stop_index,
                           .usage = { .prompt_tokens = g->usage.prompt_tokens,
                                      .cached_tokens = g->usage.cached_tokens,
                                      .generated_tokens = g->usage.generated_tokens,
                                      .drafted_tokens = g->usage.drafted_tokens,
                                      .accepted_tokens = g->usage.accepted_tokens,
                                      .predicted = x->q.prediction.len > 0,
                                      .prepare_s = x->prepared_at - x->submitted_at,
                                      .queued_s = g->usage.queued_s,
                                      .prompt_s = g->usage.prompt_s,
                                      .generate_s = g->usage.generate_s } };
    give_text(x, g->choice, g->text);
    if (!c->over && dictation_goes_on(x, ev.finish, &ev.usage)) {
        x->heard.more = true;
        return;
    }
    c->finishing = true;
    bool cut = g->finish == ENGINE_LENGTH || g->finish == ENGINE_CANCELLED;
    if (!c->over && c->parser && chat_parser_finish(c->parser, cut, &e) < 0) give_up(x, g->choice, &e);
    if (c->stop && c->stopped < 0 && !c->over) {
        stop_finish(c->stop, &c->shown);
        emit_shown(c);
    } else if (c->stop) {
        ev.finish = RUNTIME_STOP_STRING;
        ev.stop_index = c->stopped;
        ev.usage.generated_tokens = c->tokens;
    }
    if (c->parser && ev.finish == RUNTIME_STOP && chat_parser_calls(c->parser) > 0) ev.finish = RUNTIME_TOOL_CALLS;
    if (x->owner_stops) ev.stop_index = -1;
    ev.usage.reasoning_tokens = c->reasoning_tokens;
    if (x->q.want_context && g->choice == 0) {
        ev.context = x->context.data;
        ev.n_context = x->context.count;
    }
    if (!c->over) request_emit(x, &ev);
}

static void give(request *x, const engine_event *g) {
    switch (g->kind) {
    case ENGINE_PROGRESS: {
        runtime_event ev = {
            .kind = RUNTIME_PROGRESS, .choice = g->choice, .done = g->done, .total = g->total, .cached = g->cached
        };
        if (x->q.want_progress) request_emit(x, &ev);
        break;
    }
    case ENGINE_TOKEN:
        atomic_fetch_add(&x->generated_tokens, 1);
        dictation_token(x, g->token);
        if (x->q.want_context && g->choice == 0 && !tok_ids_push(&x->context, g->token)) give_up_nomem(x, 0);
        if (!x->choices[g->choice].over && (x->q.want_logprob || x->q.n_top > 0)) give_token(x, g);
        if (!x->choices[g->choice].over) give_token_text(x, g);
        break;
    case ENGINE_PROMPT: give_token(x, g); break;
    case ENGINE_EMBEDDING: give_vector(x, g); break;
    case ENGINE_DONE: give_done(x, g); break;
    case ENGINE_ERROR: give_error(x, g->choice, g->error); break;
    }
}

/* The next part of a sound: back to where requests with sounds begin, with the engine's reference. */
static void listen_on(request *x) {
    runtime *r = x->owner;
    err      e;
    pthread_mutex_lock(&r->lock);
    x->engine_id = 0;
    bool over = r->closing || x->cancelled;
    pthread_mutex_unlock(&r->lock);
    x->heard.again = true;
    atomic_store(&x->phase, RUNTIME_PREPARING);
    if (!over && queue_try_push(r->looking, x)) return;
    if (over) {
        request_end_cancelled(x);
    } else {
        err_set(&e, ERR_BUSY, "the queue is full: too many requests are waiting to be prepared");
        request_fail(x, &e);
    }
    request_unref(x);
}

void answer_event(void *ctx, const engine_event *g) {
    request *x = ctx;
    pthread_mutex_lock(&x->order);
    if (atomic_load(&x->phase) != RUNTIME_GENERATING) atomic_store(&x->phase, RUNTIME_GENERATING);
    const request_choice *c = &x->choices[g->choice];
    bool stopped = c->stop && c->stopped >= 0 && (g->kind == ENGINE_TOKEN || g->kind == ENGINE_PROGRESS);
    if (!c->over && !stopped) give(x, g);
    bool over = (g->kind == ENGINE_DONE || g->kind == ENGINE_ERROR) && --x->n_engine_open == 0, more = x->heard.more;
    x->heard.more = false;
    if (over && more) x->n_engine_open = x->q.n_choices;
    pthread_mutex_unlock(&x->order);
    if (over && more)
        listen_on(x);
    else if (over)
        request_unref(x);
}
