/* SPDX-License-Identifier: Apache-2.0 */
/* The way in: a request is checked, copied and put into the queue. */
#include "engine/internal.h"

#include <string.h>

int *engine_queued_of(engine *g, const request *q) { return &g->queued_of[(q->r.client * 0x9E3779B97F4A7C15u) >> 56]; }

/* The queue is bounded. Behind the bound there is room for clients that have hardly anything in it, so that one client
 * cannot keep the others out. */
static bool queue_takes(engine *g, const request *q) {
    int n = q->r.n_choices, few = g->o.max_waiting / 16 > 1 ? g->o.max_waiting / 16 : 1;
    return g->n_queued + n <= g->o.max_waiting ||
           (*engine_queued_of(g, q) + n <= few && g->n_queued + n <= 2 * g->o.max_waiting);
}

static int check_guide(const engine_request *r, err *e) {
    const engine_guide *guide = r->guide;
    if (!guide) return 0;
    if (r->pooling != ENGINE_POOL_NONE) return err_set(e, ERR_ARG, "an embedding cannot be constrained");
    if (!guide->mask || !guide->accept || !guide->rollback || !guide->must_stop || !guide->free ||
        (r->n_choices > 1 && !guide->clone))
        return err_set(e, ERR_ARG, "the guide lacks a function");
    return 0;
}

static int check_pooling(const engine *g, const engine_request *r, err *e) {
    if (r->pooling < ENGINE_POOL_NONE || r->pooling >= ENGINE_POOL_COUNT)
        return err_set(e, ERR_ARG, "pooling: there is no kind %d", (int)r->pooling);
    if (r->pooling != ENGINE_POOL_NONE && r->n_choices > 1)
        return err_set(e, ERR_ARG, "n: an embedding has one choice");
    if (r->pooling == ENGINE_POOL_NONE && !engine_generates(g))
        return err_set(e, ERR_UNSUPPORTED, "this model makes vectors of texts; it does not write");
    if (r->pool_from < 0 || (r->pool_from > 0 && (size_t)r->pool_from >= r->n_tokens))
        return err_set(e, ERR_ARG, "nothing is left of a text of %zu tokens behind the first %d", r->n_tokens,
                       r->pool_from);
    if (r->second < 0 || (size_t)r->second > r->n_tokens)
        return err_set(e, ERR_ARG, "the second text begins at %d of %zu tokens", r->second, r->n_tokens);
    return 0;
}

/* Refused at once: what can never fit, with the bytes that are missing. */
static int check_room(const engine *g, const engine_request *r, err *e) {
    size_t answer = r->pooling == ENGINE_POOL_NONE && !r->no_answer ? 1 : 0, P = (size_t)g->cache.page_tokens;
    if (r->n_tokens + answer > (size_t)g->n_ctx)
        return err_set(e, ERR_CONTEXT, "the prompt has %zu tokens, the context holds %d%s (a longer one: --ctx)",
                       r->n_tokens, g->n_ctx, answer ? " and needs room for an answer" : "");
    if (cache_fits(&g->cache, (int)(r->n_tokens + answer))) return 0;
    size_t need = (r->n_tokens + answer + P - 1) / P, has = (size_t)kv_pool_total(g->cache.pool, 0);
    return err_set(e, ERR_CONTEXT,
                   "the prompt has %zu tokens and needs %zu bytes of cache; there are %zu, %zu are missing "
                   "(a shorter context: --ctx; a larger cache: --cache-mb)",
                   r->n_tokens, need * g->page_bytes, has * g->page_bytes, (need - has) * g->page_bytes);
}

/* A step of its own beside all that may be generating, and their drafts. */
static int room_for_span(const engine *g) { return g->o.step_tokens - g->o.max_seqs + 1 - speculate_rows(g); }

static int check_whole(const engine *g, const engine_request *r, err *e) {
    if (r->score_prompt || r->pooling != ENGINE_POOL_NONE)
        return err_set(e, ERR_UNSUPPORTED,
                       "a prompt that sees itself whole is not scored, and no vector is made of it");
    if (r->n_tokens > (size_t)room_for_span(g))
        return err_set(e, ERR_LIMIT,
                       "the prompt has %zu tokens that all see each other and come in one step, which has room for %d",
                       r->n_tokens, room_for_span(g));
    return 0;
}

/* What a prompt holds beyond tokens: whether the device can do it is the backend's answer. */
static int check_rows(const engine *g, const engine_request *r, err *e) {
    unsigned holds =
        (r->n_rows ? NN_BATCH_EMBD : 0u) | (r->adapters ? NN_BATCH_ADAPTER : 0u) | (r->second ? NN_BATCH_SEGMENT : 0u);
    int64_t from = 0;
    int     rc = r->prompt_whole ? check_whole(g, r, e) : 0;
    if (rc < 0) return rc;
    if (r->prompt_whole) holds |= NN_BATCH_ROW_END;
    if (r->prompt_whole && schedule_wide(g, r->n_tokens)) holds |= NN_BATCH_ROW_BEGIN;
    for (size_t i = 0; i < r->n_rows; i++) {
        const engine_rows *s = &r->rows[i];
        if (s->first < from || s->n <= 0 || (int64_t)s->first + s->n > (int64_t)r->n_tokens || !s->embd)
            return err_set(e, ERR_ARG, "supplied rows %zu: %d from position %d on, in a prompt of %zu", i, s->n,
                           s->first, r->n_tokens);
        from = (int64_t)s->first + s->n;
        int outside = s->counted ? 2 : 0;
        if (s->across && (s->across < 0 || s->n <= outside || (s->n - outside) % s->across || s->advance < 1 ||
                          s->advance > s->n || (s->counted && s->advance != s->n)))
            return err_set(e, ERR_ARG, "supplied rows %zu: %d in a grid of %d beside each other, %d positions long", i,
                           s->n, s->across, s->advance);
        if (s->across && g->model->tape->n_axes != (s->counted ? ENGINE_AXES : ENGINE_AXES_PLAIN))
            return err_set(e, ERR_UNSUPPORTED, "supplied rows %zu: the positions of this model have no such axes", i);
        if (s->across) holds |= NN_BATCH_AXES;
        if (!s->whole) continue;
        holds |= NN_BATCH_ROW_END;
        if (s->n > room_for_span(g))
            return err_set(e, ERR_LIMIT, "supplied rows %zu: %d that see each other; a step has room for %d", i, s->n,
                           room_for_span(g));
    }
    if (r->adapters_from < 0) return err_set(e, ERR_ARG, "adapters from position %d on", r->adapters_from);
    return nn_batch_allow(nn_batch_for(g->model->tape, holds), g->backend->can, e);
}

/* Placeholders of supplied rows may be any number. */
static int check_tokens(const engine *g, const engine_request *r, err *e) {
    size_t span = 0;
    for (size_t i = 0; i < r->n_tokens; i++) {
        while (span < r->n_rows && (size_t)r->rows[span].first + (size_t)r->rows[span].n <= i) span++;
        if (span < r->n_rows && (size_t)r->rows[span].first <= i) continue;
        if (r->tokens[i] < 0 || r->tokens[i] >= g->n_vocab)
            return err_set(e, ERR_ARG, "token %zu of the prompt is %d; the vocabulary has %lld", i, r->tokens[i],
                           (long long)g->n_vocab);
    }
    return 0;
}

static int check_request(const engine *g, const engine_request *r, err *e) {
    int rc;
    if (r->n_tokens == 0) return err_set(e, ERR_ARG, "the prompt is empty");
    if ((rc = check_room(g, r, e)) < 0) return rc;
    if ((rc = check_rows(g, r, e)) < 0 || (rc = check_tokens(g, r, e)) < 0) return rc;
    if (r->n_top < 0 || r->n_top > 20) return err_set(e, ERR_ARG, "top_logprobs: %d is not between 0 and 20", r->n_top);
    if (r->n_choices > 128) return err_set(e, ERR_ARG, "n: %d is not between 1 and 128", r->n_choices);
    if (!r->on_event) return err_set(e, ERR_ARG, "a request needs a callback");
    if ((rc = check_guide(r, e)) < 0) return rc;
    return check_pooling(g, r, e);
}

static void free_list(sequence *list) {
    while (list) {
        sequence *next = list->next;
        if (list->choice == 0) list->guide.guide = NULL; /* the caller's still */
        sequence_free(list);
        list = next;
    }
}

int engine_submit(engine *g, const engine_request *r, uint64_t *id, err *e) {
    request       *q = NULL;
    sequence      *list = NULL;
    sequence_shape shape = {
        &g->cache, g->tok, g->n_ctx_held, g->n_vocab, g->n_hidden, g->whole, g->spec.most > 0 && !r->no_drafts
    };
    int rc = check_request(g, r, e);
    if (rc < 0 || (rc = request_keep(&q, r, g->n_input, e)) < 0) return rc;
    q->r.no_cache = q->r.no_cache || g->o.no_prefix_cache;
    q->r.sampling.bias = r->sampling.bias;
    q->r.sampling.dry_breakers = r->sampling.dry_breakers;
    for (int i = q->r.n_choices - 1; i >= 0; i--) {
        sequence *s;
        if ((rc = sequence_open(&s, q, i, &shape, e)) < 0) break;
        s->next = list;
        list = s;
    }
    q->r.sampling.bias = NULL;
    q->r.sampling.dry_breakers = NULL;
    if (rc == 0) {
        pthread_mutex_lock(&g->lock);
        if (g->stop) {
            rc = err_set(e, ERR_BUSY, "the engine is closing");
        } else if (g->lost.code) {
            rc = err_set(e, ERR_LOST, "%s", g->lost.msg);
        } else if (!queue_takes(g, q)) {
            rc = err_set(e, ERR_BUSY, "the queue is full: %d requests are waiting", g->n_queued);
        } else {
            *id = q->id = ++g->next_id;
            q->n_open = q->r.n_choices;
            g->n_queued += q->r.n_choices;
            *engine_queued_of(g, q) += q->r.n_choices;
            double now = clock_s();
            for (sequence *s = list; s; s = s->next) {
                s->order = q->id;
                s->submitted_at = now;
            }
            *g->incoming_tail = list;
            while (*g->incoming_tail) g->incoming_tail = &(*g->incoming_tail)->next;
            list = NULL;
            g->busy = true;
            pthread_cond_signal(&g->wake);
        }
        pthread_mutex_unlock(&g->lock);
    }
    if (rc < 0) {
        free_list(list);
        request_drop(q);
    }
    return rc;
}
