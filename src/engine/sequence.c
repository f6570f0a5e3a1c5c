/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sequence.h"

#include <stdlib.h>
#include <string.h>

static void *keep(arena *mem, const void *data, size_t count, size_t bytes) {
    void *p = arena_calloc(mem, count ? count : 1, bytes);
    if (p && count) memcpy(p, data, count * bytes);
    return p;
}

int job_open(job **out, const engine_request *r, err *e) {
    *out = NULL;
    job *j = calloc(1, sizeof *j);
    if (!j) return err_set_nomem(e);
    arena_init(&j->mem, 0);
    j->r = *r;
    if (j->r.n_choices < 1) j->r.n_choices = 1;
    char **stop = arena_calloc(&j->mem, r->n_stop + 1, sizeof *stop);
    bool   ok = stop != NULL;
    for (size_t i = 0; ok && i < r->n_stop; i++)
        ok = (stop[i] = arena_strndup(&j->mem, r->stop[i], r->stop_bytes[i])) != NULL;
    j->r.stop = (const char *const *)stop;
    ok = ok && (j->r.stop_bytes = keep(&j->mem, r->stop_bytes, r->n_stop, sizeof *r->stop_bytes));
    ok = ok && (j->r.tokens = keep(&j->mem, r->tokens, r->n_tokens, sizeof *r->tokens));
    ok = ok && (j->r.marks = keep(&j->mem, r->marks, r->n_marks, sizeof *r->marks));
    if (!ok) {
        job_free(j);
        return err_set_nomem(e);
    }
    /* The samplers copied these; the request's own arrays end with the call. */
    j->r.sampling.bias = NULL;
    j->r.sampling.dry_breakers = NULL;
    *out = j;
    return 0;
}

void job_free(job *j) {
    if (!j) return;
    arena_deinit(&j->mem);
    free(j);
}

int sequence_open(sequence **out, job *j, int choice, const cache *c, const tok *t, int n_ctx, err *e) {
    const engine_request *r = &j->r;
    sampling_params       p = r->sampling;
    int                   rc;
    *out = NULL;
    sequence *s = calloc(1, sizeof *s);
    if (!s) return err_set_nomem(e);
    *s = (sequence){ .job = j, .choice = choice, .slot = -1, .n_ctx = n_ctx, .n_prompt = (int)r->n_tokens };
    p.seed += (uint64_t)choice;
    if ((rc = sampler_open(&s->sampler, &p, (size_t)n_ctx, e)) < 0) goto fail;
    if (r->n_stop && (rc = stop_open(&s->stop, r->stop, r->stop_bytes, r->n_stop, e)) < 0) goto fail;
    if ((rc = cache_tables_init(c, &s->tables, e)) < 0) goto fail;
    s->tokens = calloc((size_t)n_ctx, sizeof *s->tokens);
    if (!s->tokens) {
        rc = err_set_nomem(e);
        goto fail;
    }
    memcpy(s->tokens, r->tokens, r->n_tokens * sizeof *s->tokens);
    s->n_tokens = s->n_prompt;
    for (int i = 0; i < s->n_prompt; i++) sampler_accept(s->sampler, s->tokens[i]);
    if (t) {
        tok_stream_init(&s->stream, t, !r->keep_special);
        s->stream.first = false; /* the text continues the prompt */
    }
    s->usage.prompt_tokens = s->n_prompt;
    *out = s;
    return 0;
fail:
    sequence_free(s);
    return rc;
}

void sequence_free(sequence *s) {
    if (!s) return;
    sampler_free(s->sampler);
    stop_free(s->stop);
    cache_tables_deinit(&s->tables);
    str_deinit(&s->piece);
    str_deinit(&s->out);
    free(s->tokens);
    free(s);
}
