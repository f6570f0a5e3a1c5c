/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sequence.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE_BYTES = 256 }; /* more than the text of any token but the strangest; grows if it must */

static void *keep(arena *mem, const void *data, size_t count, size_t bytes) {
    void *p = arena_calloc(mem, count ? count : 1, bytes);
    if (p && count) memcpy(p, data, count * bytes);
    return p;
}

int request_open(request **out, const engine_request *r, err *e) {
    *out = NULL;
    request *q = calloc(1, sizeof *q);
    if (!q) return err_set_nomem(e);
    arena_init(&q->mem, 0);
    q->r = *r;
    if (q->r.n_choices < 1) q->r.n_choices = 1;
    char **stop = arena_calloc(&q->mem, r->n_stop + 1, sizeof *stop);
    bool   ok = stop != NULL;
    for (size_t i = 0; ok && i < r->n_stop; i++)
        ok = (stop[i] = arena_strndup(&q->mem, r->stop[i], r->stop_bytes[i])) != NULL;
    q->r.stop = (const char *const *)stop;
    ok = ok && (q->r.stop_bytes = keep(&q->mem, r->stop_bytes, r->n_stop, sizeof *r->stop_bytes));
    ok = ok && (q->r.tokens = keep(&q->mem, r->tokens, r->n_tokens, sizeof *r->tokens));
    ok = ok && (q->r.shown = keep(&q->mem, r->shown, r->n_shown, sizeof *r->shown));
    ok = ok && (q->r.marks = keep(&q->mem, r->marks, r->n_marks, sizeof *r->marks));
    if (!ok) {
        request_free(q);
        return err_set_nomem(e);
    }
    /* The samplers copied these; the request's own arrays end with the call. */
    q->r.sampling.bias = NULL;
    q->r.sampling.dry_breakers = NULL;
    *out = q;
    return 0;
}

void request_free(request *q) {
    if (!q) return;
    arena_deinit(&q->mem);
    free(q);
}

static int open_guide(sequence *s, const sequence_shape *shape, err *e) {
    engine_guide *guide = s->request->r.guide;
    if (!guide) return 0;
    s->guide.mask = calloc(((size_t)shape->n_vocab + 31) / 32, sizeof *s->guide.mask);
    if (!s->guide.mask) return err_set_nomem(e);
    s->guide.guide = s->choice == 0 ? guide : guide->clone(guide, e);
    return s->guide.guide ? 0 : ERR_NOMEM;
}

int sequence_open(sequence **out, request *q, int choice, const sequence_shape *shape, err *e) {
    const engine_request *r = &q->r;
    sampling_params       p = r->sampling;
    int                   rc;
    *out = NULL;
    sequence *s = calloc(1, sizeof *s);
    if (!s) return err_set_nomem(e);
    *s = (sequence){ .request = q, .choice = choice, .slot = -1, .n_ctx = shape->n_ctx, .n_prompt = (int)r->n_tokens };
    p.seed += (uint64_t)choice;
    if (sequence_embeds(s)) {
        s->pooled = calloc((size_t)shape->n_hidden, sizeof *s->pooled);
        if (!s->pooled) goto nomem;
    } else if ((rc = sampler_open(&s->sampler, &p, (size_t)s->n_ctx, e)) < 0) {
        goto fail;
    }
    if (r->n_stop && (rc = stop_open(&s->stop, r->stop, r->stop_bytes, r->n_stop, e)) < 0) goto fail;
    if ((rc = cache_tables_init(shape->cache, &s->tables, e)) < 0) goto fail;
    s->tokens = calloc((size_t)s->n_ctx, sizeof *s->tokens);
    if (!s->tokens || !str_reserve(&s->piece, PIECE_BYTES) || !str_reserve(&s->out, PIECE_BYTES)) goto nomem;
    memcpy(s->tokens, r->tokens, r->n_tokens * sizeof *s->tokens);
    s->n_tokens = s->n_prompt;
    for (int i = 0; s->sampler && i < s->n_prompt; i++) sampler_accept(s->sampler, s->tokens[i]);
    if (shape->tok) {
        tok_stream_init(&s->stream, shape->tok, !r->keep_special);
        s->stream.first = false; /* the text continues the prompt */
    }
    s->usage.prompt_tokens = s->n_prompt;
    if ((rc = open_guide(s, shape, e)) < 0) goto fail;
    *out = s;
    return 0;
nomem:
    rc = err_set_nomem(e);
fail:
    if (choice == 0) s->guide.guide = NULL;
    sequence_free(s);
    return rc;
}

void sequence_free(sequence *s) {
    if (!s) return;
    if (s->guide.guide) s->guide.guide->free(s->guide.guide);
    free(s->guide.mask);
    free(s->pooled);
    sampler_free(s->sampler);
    stop_free(s->stop);
    cache_tables_deinit(&s->tables);
    str_deinit(&s->piece);
    str_deinit(&s->out);
    free(s->tokens);
    free(s);
}
