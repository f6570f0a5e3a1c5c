/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sequence.h"

#include "base/sha256.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE_BYTES = 256 }; /* more than the text of any token but the strangest; grows if it must */

static void *keep(arena *mem, const void *data, size_t count, size_t bytes) {
    void *p = arena_calloc(mem, count ? count : 1, bytes);
    if (p && count) memcpy(p, data, count * bytes);
    return p;
}

/* The supplied embeddings, and their spans. */
static bool keep_rows(request *q, const engine_request *r) {
    engine_rows *rows = keep(&q->mem, r->rows, r->n_rows, sizeof *rows);
    for (size_t i = 0; rows && i < r->n_rows; i++) {
        size_t floats = (size_t)rows[i].n * (size_t)q->input_size;
        if (!(rows[i].embd = keep(&q->mem, r->rows[i].embd, floats, sizeof(float)))) return false;
    }
    q->r.rows = rows;
    return rows != NULL;
}

int request_keep(request **out, const engine_request *r, int64_t input_size, err *e) {
    *out = NULL;
    request *q = calloc(1, sizeof *q);
    if (!q) return err_set_nomem(e);
    arena_init(&q->mem, 0);
    q->r = *r;
    q->input_size = input_size;
    if (q->r.n_choices < 1) q->r.n_choices = 1;
    char **stop = arena_calloc(&q->mem, r->n_stop + 1, sizeof *stop);
    bool   ok = stop != NULL;
    for (size_t i = 0; ok && i < r->n_stop; i++)
        ok = (stop[i] = arena_strndup(&q->mem, r->stop[i], r->stop_bytes[i])) != NULL;
    q->r.stop = (const char *const *)stop;
    ok = ok && (q->r.stop_bytes = keep(&q->mem, r->stop_bytes, r->n_stop, sizeof *r->stop_bytes));
    ok = ok && (q->r.hint = keep(&q->mem, r->hint, r->n_hint, sizeof *r->hint));
    ok = ok && (q->r.tokens = keep(&q->mem, r->tokens, r->n_tokens, sizeof *r->tokens));
    ok = ok && (q->r.shown = keep(&q->mem, r->shown, r->n_shown, sizeof *r->shown));
    ok = ok && keep_rows(q, r);
    ok = ok && (q->r.marks = keep(&q->mem, r->marks, r->n_marks, sizeof *r->marks));
    if (!ok) {
        request_drop(q);
        return err_set_nomem(e);
    }
    /* The samplers copied these; the request's own arrays end with the call. */
    q->r.sampling.bias = NULL;
    q->r.sampling.dry_breakers = NULL;
    *out = q;
    return 0;
}

void request_drop(request *q) {
    if (!q) return;
    arena_deinit(&q->mem);
    free(q);
}

static int open_guide(sequence *s, const sequence_shape *shape, err *e) {
    engine_guide *guide = s->request->r.guide;
    if (!guide) return 0;
    s->guide.mask = calloc(((size_t)shape->n_vocab + 31) / 32, sizeof *s->guide.mask);
    if (!s->guide.mask) return err_set_nomem(e);
    if (shape->drafts) {
        s->draft.masks = calloc((DRAFT_MOST + 1) * (((size_t)shape->n_vocab + 31) / 32), sizeof *s->draft.masks);
        if (!s->draft.masks) return err_set_nomem(e);
    }
    s->guide.guide = s->choice == 0 ? guide : guide->clone(guide, e);
    return s->guide.guide ? 0 : ERR_NOMEM;
}

static void mark_start(sequence *s, const engine_request *r) {
    kv_key *at = &s->keys[r->adapters_from];
    uint8_t digest[SHA256_BYTES];
    sha256  h;
    sha256_init(&h);
    sha256_feed(&h, at->b, sizeof at->b);
    sha256_feed(&h, r->adapters->key, sizeof r->adapters->key);
    sha256_finish(&h, digest);
    memcpy(at->b, digest, sizeof at->b);
}

/* What is computed at any position of a prompt that sees itself whole depends on all of it: it has a namespace of its own. */
static void mark_whole(sequence *s, const engine_request *r) {
    uint8_t digest[SHA256_BYTES];
    sha256  h;
    sha256_init(&h);
    sha256_feed(&h, s->text.space.b, sizeof s->text.space.b);
    if (r->adapters) sha256_feed(&h, r->adapters->key, sizeof r->adapters->key);
    if (r->adapters) sha256_feed(&h, &r->adapters_from, sizeof r->adapters_from);
    sha256_feed(&h, &r->n_tokens, sizeof r->n_tokens);
    sha256_feed(&h, r->tokens, r->n_tokens * sizeof *r->tokens);
    for (size_t i = 0; i < r->n_rows; i++) {
        const int32_t place[2] = { r->rows[i].first, r->rows[i].n };
        sha256_feed(&h, place, sizeof place);
        sha256_feed(&h, r->rows[i].content, sizeof r->rows[i].content);
    }
    sha256_finish(&h, digest);
    memcpy(s->text.space.b, digest, sizeof s->text.space.b);
}

/* What the tokens do not say: the namespace, and a key for every supplied row. */
static bool open_text(sequence *s) {
    const engine_request *r = &s->request->r;
    s->text.tokens = s->tokens;
    bool later = r->adapters && r->adapters_from > 0;
    if (r->adapters && !later) memcpy(s->text.space.b, r->adapters->key, sizeof s->text.space.b);
    if (r->prompt_whole) mark_whole(s, r);
    if (r->n_rows == 0 && !later) return true;
    s->text.rows = s->keys = calloc((size_t)s->n_ctx, sizeof *s->keys);
    for (size_t i = 0; s->keys && i < r->n_rows; i++) {
        for (int32_t k = 0; k < r->rows[i].n; k++) {
            uint8_t digest[SHA256_BYTES];
            sha256  h;
            sha256_init(&h);
            sha256_feed(&h, r->rows[i].content, sizeof r->rows[i].content);
            sha256_feed(&h, &k, sizeof k);
            sha256_finish(&h, digest);
            memcpy(s->keys[r->rows[i].first + k].b, digest, KV_KEY_BYTES);
        }
    }
    /* Where a set begins to count later, its first position says so: what is before it is the model's alone. */
    if (s->keys && later && r->adapters_from < s->n_ctx) mark_start(s, r);
    return s->keys != NULL;
}

int sequence_cut(const sequence *s, int position) {
    const engine_request *r = &s->request->r;
    if (s->whole && position < s->n_prompt) return 0;
    if (r->prompt_whole) return position < s->n_prompt ? 0 : position;
    for (size_t i = 0; i < r->n_rows; i++) {
        const engine_rows *w = &r->rows[i];
        if (w->whole && w->first < position && position < w->first + w->n) return w->first;
    }
    return position;
}

int sequence_whole(const sequence *s, int position) {
    const engine_request *r = &s->request->r;
    if (s->whole && position == 0) return s->n_prompt;
    if (r->prompt_whole && position < s->n_prompt) return s->n_prompt;
    for (size_t i = 0; i < r->n_rows; i++) {
        if (r->rows[i].whole && r->rows[i].first == position) return position + r->rows[i].n;
    }
    return position;
}

const float *sequence_embd(const sequence *s, int position) {
    const engine_request *r = &s->request->r;
    for (size_t i = 0; i < r->n_rows; i++) {
        int k = position - r->rows[i].first;
        if (k >= 0 && k < r->rows[i].n) return r->rows[i].embd + (int64_t)k * s->request->input_size;
    }
    return NULL;
}

bool sequence_has_grids(const sequence *s) {
    const engine_request *r = &s->request->r;
    for (size_t i = 0; i < r->n_rows; i++) {
        if (r->rows[i].across) return true;
    }
    return false;
}

void sequence_axes(const sequence *s, int position, int32_t out[ENGINE_AXES]) {
    const engine_request *r = &s->request->r;
    int                   saved = 0, counted = 0; /* positions that the grids so far did not take; grids */
    for (size_t i = 0; i < r->n_rows && r->rows[i].first <= position; i++) {
        const engine_rows *g = &r->rows[i];
        int                k = position - g->first, at = g->first - saved;
        if (!g->across) continue;
        if (g->counted && k > 0 && k < g->n - 1) {
            out[0] = position;
            out[1] = (k - 1) % g->across;
            out[2] = (k - 1) / g->across;
            out[3] = counted;
            return;
        }
        counted += g->counted;
        if (k < g->n && !g->counted) {
            out[3] = out[0] = at;
            out[1] = at + k / g->across;
            out[2] = at + k % g->across;
            return;
        }
        saved += g->n - g->advance;
    }
    for (int a = 0; a < ENGINE_AXES; a++) out[a] = position - saved;
}

int sequence_open(sequence **out, request *q, int choice, const sequence_shape *shape, err *e) {
    const engine_request *r = &q->r;
    sampling_params       p = r->sampling;
    int                   rc;
    *out = NULL;
    sequence *s = calloc(1, sizeof *s);
    if (!s) return err_set_nomem(e);
    *s = (sequence){ .request = q,
                     .choice = choice,
                     .slot = -1,
                     .twin = -1,
                     .seat = -1,
                     .n_ctx = shape->n_ctx,
                     .n_prompt = (int)r->n_tokens,
                     .whole = shape->whole };
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
    if (!open_text(s)) goto nomem;
    for (int i = 0; s->sampler && i < s->n_prompt; i++) {
        if (!sequence_embd(s, i)) sampler_accept(s->sampler, s->tokens[i]); /* placeholders were never said */
    }
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
    free(s->draft.masks);
    free(s->pooled);
    sampler_free(s->sampler);
    stop_free(s->stop);
    cache_tables_deinit(&s->tables);
    str_deinit(&s->piece);
    str_deinit(&s->out);
    free(s->keys);
    free(s->tokens);
    free(s);
}
