/* SPDX-License-Identifier: Apache-2.0 */
/* What came out of a step: tokens, text, embeddings; then what remains of it: the cache, the ends. */
#include "base/noalloc.h"
#include "engine/internal.h"

#include <math.h>
#include <string.h>

static void emit(const sequence *s, engine_event *ev) {
    int depth = noalloc_pause();
    ev->choice = s->choice;
    s->request->r.on_event(s->request->r.ctx, ev);
    noalloc_resume(depth);
}

void step_tell(engine *g) {
    bool frame = !g->framed && g->o.on_batch && g->n_late > 0;
    int  depth = noalloc_pause();
    if (frame) g->o.on_batch(g->o.batch_ctx, true);
    for (int i = 0; i < g->n_late; i++) emit(g->told_late[i], &g->late_events[i]);
    g->n_late = 0;
    if (frame) g->o.on_batch(g->o.batch_ctx, false);
    noalloc_resume(depth);
}

/* A token. What it points at must stay until the next step has begun: the text does. */
static void tell(engine *g, const share *h, engine_event *ev) {
    if (!g->late || h->n_draft > 0 || ev->n_top > 0) {
        emit(h->s, ev);
        return;
    }
    g->told_late[g->n_late] = h->s;
    g->late_events[g->n_late++] = *ev;
}

/* The sequence leaves; the last one of a request takes the request along. */
static void leave(engine *g, sequence *s) {
    request *q = s->request;
    mask_forget(&g->guides, &s->guide);
    schedule_release(g, s);
    fair_leave(&g->fair, s->client);
    sequence_free(s);
    if (--q->n_open == 0) request_drop(q);
}

void step_fail(engine *g, sequence *s, const err *why) {
    step_tell(g);
    engine_event ev = { .kind = ENGINE_ERROR, .error = why };
    emit(s, &ev);
    leave(g, s);
}

void step_end(engine *g, sequence *s, engine_finish finish, int stop_index) {
    double now = clock_s();
    step_tell(g);
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
        if (!str_ok(&s->piece) || !str_ok(&s->out)) {
            err_set_nomem(&s->error);
            step_fail(g, s, &s->error);
            return;
        }
    }
    s->usage.generated_tokens = sequence_generated(s);
    s->usage.queued_s = (s->started_at > 0 ? s->started_at : now) - s->submitted_at;
    if (s->started_at > 0) s->usage.prompt_s = (s->prompt_done_at > 0 ? s->prompt_done_at : now) - s->started_at;
    if (s->prompt_done_at > 0) s->usage.generate_s = now - s->prompt_done_at;
    if (s->slot >= 0 && !s->request->r.no_cache && sequence_caches(s))
        cache_remember(&g->cache, &s->tables, &s->text, s->n_evaluated, s->slot, CACHE_END);
    engine_event ev = { .kind = ENGINE_DONE,
                        .finish = finish,
                        .stop_index = stop_index,
                        .usage = s->usage,
                        .text = { str_cstr(&s->out), s->out.len } };
    emit(s, &ev);
    leave(g, s);
}

static bool shows_special(const engine_request *r, int32_t token) {
    bool shown = r->keep_special;
    for (size_t i = 0; i < r->n_shown && !shown; i++) shown = r->shown[i] == token;
    return shown;
}

/* The text of a token, as far as it may be shown; *stopped is the stop string that was reached, or -1. A token that only
 * the model knows, not the tokenizer, has no text. */
static int add_text(engine *g, sequence *s, int32_t token, int *stopped) {
    *stopped = -1;
    str_clear(&s->piece);
    str_clear(&s->out);
    if (!g->tok) return 0;
    s->stream.skip_special = !shows_special(&s->request->r, token);
    int rc = tok_stream_push(&s->stream, token, &s->piece, NULL);
    if (rc == 0 && s->stop)
        *stopped = stop_feed(s->stop, str_cstr(&s->piece), s->piece.len, &s->out);
    else if (rc == 0)
        str_append(&s->out, str_cstr(&s->piece), s->piece.len);
    return rc == ERR_NOMEM || !str_ok(&s->out) ? err_set_nomem(&s->error) : 0;
}

/* The guide's mask behind so many drafted tokens; 0: everything is allowed. */
static int guide_mask(engine *g, sequence *s, int drafted, const uint32_t **mask) {
    const sequence_draft *d = &s->draft;
    if (d->n_masks > 0) { /* made before the step */
        *mask = d->masks + (size_t)drafted * (((size_t)g->n_vocab + 31) / 32);
        return drafted == 0 ? d->first_rc : !d->all[drafted];
    }
    double begin = clock_s();
    int    rc = mask_wait(&g->guides, &s->guide);
    g->counts.guide_wait_s += clock_s() - begin;
    *mask = s->guide.mask;
    return rc;
}

/* What may be picked; NULL: everything. Fails with the guide's error. */
static int mask_for(engine *g, sequence *s, int drafted, const uint32_t **mask, err *e) {
    const engine_request *r = &s->request->r;
    const uint32_t       *guide = NULL;
    bool                  no_end = r->ignore_eos || sequence_generated(s) < r->min_tokens;
    *mask = no_end ? g->no_end_mask : NULL;
    if (!s->guide.guide) return 0;
    int rc = guide_mask(g, s, drafted, &guide);
    if (rc < 0) *e = s->guide.error;
    if (rc <= 0) return rc;
    *mask = guide;
    if (!no_end) return 0;
    uint32_t any = 0;
    size_t   words = ((size_t)g->n_vocab + 31) / 32;
    for (size_t i = 0; i < words; i++) any |= g->mask[i] = guide[i] & g->no_end_mask[i];
    if (any) *mask = g->mask; /* else nothing but the end is possible */
    return 0;
}

static void end(share *h, engine_finish finish, int stop_index) {
    h->over = true;
    h->finish = finish;
    h->stop_index = stop_index;
}

/* What the guide says to a token. */
static int guide_accept(sequence *s, int32_t token, bool *must_stop) {
    engine_guide *guide = s->guide.guide;
    *must_stop = false;
    if (!guide) return 0;
    int depth = noalloc_pause(), rc = guide->accept(guide, token, &s->error);
    if (rc >= 0) *must_stop = guide->must_stop(guide);
    noalloc_resume(depth);
    return rc;
}

/* Nothing may be said at all. */
static bool guide_forbids(const sequence *s) {
    engine_guide *guide = s->guide.guide;
    if (!guide || sequence_generated(s) > 0) return false;
    int  depth = noalloc_pause();
    bool stop = guide->must_stop(guide);
    noalloc_resume(depth);
    return stop;
}

static sampling_row row_of(const sequence *s, const uint32_t *mask) {
    return (sampling_row){ .params = sampler_params(s->sampler),
                           .mask = mask,
                           .position = (uint64_t)s->n_tokens,
                           .want_logprob = s->request->r.want_logprob };
}

/* By the device, from the row where it lies; SAMPLING_LEFT: it cannot. */
static int device_pick(engine *g, const share *h, int drafted, const uint32_t *mask, sampling_result *out, err *e) {
    const sequence *s = h->s;
    int32_t         at = h->out + drafted;
    sampling_row    row = row_of(s, mask);
    row.counts = g->window;
    row.n_counts = sampler_counts(s->sampler, g->work, g->window);
    row.n_top = s->request->r.n_top;
    row.top = g->top;
    return g->backend->sample(g->exec, &at, &row, 1, out, e);
}

/* Whether its pick can be asked for beside others': it needs no memory that a single one has. */
static bool asks_early(const share *h) {
    const sequence        *s = h->s;
    const engine_request  *r = &s->request->r;
    const sampling_params *p;
    if (sequence_embeds(s) || r->no_answer || r->n_top > 0 || h->n_draft > 0 || s->guide.guide) return false;
    if (s->n_evaluated + h->n != s->n_tokens) return false;
    p = sampler_params(s->sampler);
    bool fits = p->repeat_last_n >= 0 && p->repeat_last_n <= ENGINE_WINDOW;
    return sampling_on_device(p) && (fits || !sampling_penalizes(p));
}

/* One question to the device instead of one per sequence. Where it fails, every sequence asks for itself. */
static void ask_early(engine *g) {
    int n = 0, k = 0;
    err e = { 0 };
    for (int i = 0; i < g->n_shares && g->backend->sample; i++) {
        share          *h = &g->shares[i];
        const uint32_t *mask;
        if (!(h->asked = asks_early(h))) continue;
        (void)mask_for(g, h->s, 0, &mask, &e);
        g->asks[n] = row_of(h->s, mask);
        g->asks[n].counts = g->windows + (size_t)n * ENGINE_WINDOW;
        g->asks[n].n_counts = sampler_counts(h->s->sampler, g->work, g->windows + (size_t)n * ENGINE_WINDOW);
        g->ask_rows[n++] = h->out;
    }
    if (n == 0) return;
    bool well = g->backend->sample(g->exec, g->ask_rows, g->asks, n, g->picks, &e) == 0;
    for (int i = 0; i < g->n_shares; i++) {
        share *h = &g->shares[i];
        if (h->asked) h->picked = g->picks[k++];
        h->asked = h->asked && well;
    }
}

/* By the host, from a copy of the row. */
static int host_pick(engine *g, const share *h, int drafted, const uint32_t *mask, sampling_result *out, err *e) {
    const sequence       *s = h->s;
    const engine_request *r = &s->request->r;
    sampling_request      q = { .logits = g->row,
                                .mask = mask,
                                .position = (uint64_t)s->n_tokens,
                                .want_logprob = r->want_logprob,
                                .n_top = r->n_top,
                                .top = g->top };
    int                   rc = g->backend->fetch(g->exec, NN_FETCH_LOGITS, h->out + drafted, 1, g->row, e);
    return rc < 0 ? rc : sampler_pick(s->sampler, g->work, &q, out, e);
}

static int pick_token(engine *g, const share *h, int drafted, const uint32_t *mask, sampling_result *out, err *e) {
    int rc = 0;
    out->token = SAMPLING_LEFT;
    if (h->asked)
        *out = h->picked;
    else if (g->backend->sample && sampling_on_device(sampler_params(h->s->sampler)))
        rc = device_pick(g, h, drafted, mask, out, e);
    if (rc == 0 && out->token == -1) rc = err_set(e, ERR_ARG, "no token is allowed at this place");
    if (rc == 0 && out->token == SAMPLING_LEFT && g->ahead.followed) return 0; /* its row is gone */
    return rc < 0 || out->token != SAMPLING_LEFT ? rc : host_pick(g, h, drafted, mask, out, e);
}

/* The token behind the known ones and so many drafted ones, which are right. */
static void pick(engine *g, share *h, int drafted) {
    sequence             *s = h->s;
    const engine_request *r = &s->request->r;
    const uint32_t       *mask;
    sampling_result       got = { 0 };
    bool                  must_stop;
    if (s->prompt_done_at == 0) s->prompt_done_at = clock_s();
    if (r->no_answer) {
        end(h, ENGINE_LENGTH, -1);
        return;
    }
    h->failed = mask_for(g, s, drafted, &mask, &s->error) < 0;
    if (!h->failed && guide_forbids(s)) end(h, ENGINE_STOP_TOKEN, -1);
    if (h->failed || h->over) return;
    if ((h->failed = pick_token(g, h, drafted, mask, &got, &s->error) < 0)) return;
    if (got.token == SAMPLING_LEFT) {
        h->again = true;
        s->n_evaluated--;
        return;
    }
    sampler_accept_pick(s->sampler, &got);
    s->tokens[s->n_tokens++] = got.token; /* there is room: a full sequence has ended */
    schedule_charge(s);
    g->counts.tokens_generated++;
    if (g->tok && tok_is_end(g->tok, got.token)) {
        end(h, ENGINE_STOP_TOKEN, -1);
        return;
    }
    if ((h->failed = guide_accept(s, got.token, &must_stop) < 0)) return;
    int stopped;
    if ((h->failed = add_text(g, s, got.token, &stopped) < 0)) return;
    engine_event ev = { .kind = ENGINE_TOKEN,
                        .token = got.token,
                        .text = { str_cstr(&s->out), s->out.len },
                        .logprob = got.logprob,
                        .top = g->top,
                        .n_top = r->n_top };
    tell(g, h, &ev);
    if (stopped >= 0)
        end(h, ENGINE_STOP_STRING, stopped);
    else if (must_stop)
        end(h, ENGINE_STOP_TOKEN, -1);
    else if ((r->max_tokens > 0 && sequence_generated(s) >= r->max_tokens) || s->n_tokens >= s->n_ctx)
        end(h, ENGINE_LENGTH, -1);
}

/*
 * What was picked is final. It is also what was drafted: then the next row is that of this very text, and the token
 * behind it is picked from there, as a step of its own would have done. Anything else makes the rows behind it worthless.
 */
static void pick_all(engine *g, share *h) {
    sequence *s = h->s;
    int       right = 0, known = h->from + h->n - h->n_draft;
    pick(g, h, 0);
    while (!h->failed && !h->over && right < h->n_draft && s->tokens[s->n_tokens - 1] == s->draft.tokens[right]) {
        s->n_evaluated++;
        pick(g, h, ++right);
    }
    speculate_learn(g, s, right);
    if (!h->failed && !h->over) speculate_show(g, s, h->out, right + 1, known - 1);
    if (!h->failed && !h->over) mask_ask(&g->guides, &s->guide);
    if (s->twin < 0) return;
    bool spoiled = s->n_evaluated < h->from + h->n;
    g->slot_used[spoiled ? s->slot : s->twin] = false;
    if (spoiled) { /* the tokens that were right are evaluated again, behind the state that was kept */
        s->slot = s->twin;
        s->n_evaluated = h->from;
    }
    s->twin = -1;
}

static void pool_row(const engine *g, sequence *s) {
    bool first = s->n_pooled++ == 0;
    for (int64_t i = 0; i < g->n_hidden; i++) {
        double v = (double)g->row[i];
        if (s->request->r.pooling != ENGINE_POOL_MAX)
            s->pooled[i] += v;
        else if (first || v > s->pooled[i])
            s->pooled[i] = v;
    }
}

/* Rows of an embedding are added in the order of their positions, so that pieces make no difference. */
static void pool_rows(engine *g, share *h) {
    sequence *s = h->s;
    for (int r = 0; r < h->n_rows && !h->failed; r++) {
        h->failed = g->backend->fetch(g->exec, NN_FETCH_HIDDEN, h->out + r, 1, g->row, &s->error) < 0;
        if (!h->failed) pool_row(g, s);
    }
}

static void give_embedding(engine *g, share *h) {
    sequence *s = h->s;
    double    scale = 1.0, sum = 0;
    if (s->request->r.pooling == ENGINE_POOL_MEAN) scale = 1.0 / s->n_pooled;
    if (s->request->r.pooling == ENGINE_POOL_SUM) scale = 1.0 / sqrt(s->n_pooled);
    for (int64_t i = 0; i < g->n_hidden; i++) sum += s->pooled[i] * s->pooled[i];
    if (s->request->r.normalize && sum > 0) scale = 1.0 / sqrt(sum);
    for (int64_t i = 0; i < g->n_hidden; i++) g->vector[i] = (float)(s->pooled[i] * scale);
    s->prompt_done_at = clock_s();
    engine_event ev = { .kind = ENGINE_EMBEDDING, .vector = g->vector, .n_vector = (int)g->n_hidden };
    emit(s, &ev);
    end(h, ENGINE_STOP_TOKEN, -1);
}

/* Of a prompt that gave way and catches up nothing is said. */
static void say_progress(const sequence *s) {
    engine_event ev = {
        .kind = ENGINE_PROGRESS, .done = s->n_evaluated, .total = s->n_prompt, .cached = s->usage.cached_tokens
    };
    if (sequence_generated(s) == 0) emit(s, &ev);
}

void step_results(engine *g) {
    ask_early(g);
    for (int i = 0; i < g->n_shares; i++) {
        share    *h = &g->shares[i];
        sequence *s = h->s;
        s->n_evaluated += h->n - h->n_draft;
        h->ends = s->n_evaluated == s->n_tokens;
        if (sequence_embeds(s)) pool_rows(g, h);
        if (h->scores) h->failed = score_rows(g, h) < 0;
        speculate_show(g, s, h->shown, h->n_shown, s->n_evaluated - (h->ends ? 1 : 0) - h->n_shown);
        if (h->ends && !sequence_embeds(s) && !h->failed) {
            say_progress(s);
            pick_all(g, h);
            ahead_judge(g, h);
        } else if (h->ends && sequence_embeds(s) && !h->failed) {
            give_embedding(g, h);
        }
        g->counts.tokens_evaluated += (uint64_t)(s->n_evaluated - h->from);
        s->decodes = h->ends;
    }
}

void step_settle(engine *g) {
    for (int i = 0; i < g->n_shares; i++) {
        share    *h = &g->shares[i];
        sequence *s = h->s;
        bool      in_prompt = h->from < s->n_prompt;
        if (!h->ends) { /* a piece of a prompt */
            cache_moment when = h->mark ? CACHE_MARK : CACHE_PIECE;
            if (sequence_caches(s)) cache_remember(&g->cache, &s->tables, &s->text, s->n_evaluated, s->slot, when);
            say_progress(s);
        } else {
            /* A model with fixed states left a snapshot one token earlier, where a repeated prompt can use it. */
            if (in_prompt && sequence_caches(s) && !g->cache.slot_bytes)
                cache_remember(&g->cache, &s->tables, &s->text, s->n_evaluated, s->slot, CACHE_PIECE);
        }
        if (h->n_draft > 0) cache_retract(&g->cache, &s->tables, s->n_tokens);
        cache_trim(&g->cache, &s->tables, s->n_evaluated);
        if (h->failed)
            step_fail(g, s, &s->error);
        else if (h->over)
            step_end(g, s, h->finish, h->stop_index);
    }
}
