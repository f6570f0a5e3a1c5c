/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/draft_exec.h"

#include <math.h>
#include <stdlib.h>

nn_batch draft_exec_batch(draft_exec *x) {
    nn_batch b = { .token = x->token,
                   .pos = x->pos,
                   .seq_of = x->seq_of,
                   .q_start = x->q_start,
                   .kv_len = x->kv_len,
                   .pages_stride = x->max_pages,
                   .state_slot = x->slot,
                   .out_rows = x->out_rows };
    for (int k = 0; k < x->exec->groups.n; k++) b.pages[k] = x->pages;
    x->q_start[0] = 0;
    return b;
}

void draft_exec_add(draft_exec *x, nn_batch *b, int seat, int from, int n, bool out) {
    int s = b->n_seq;
    for (int i = 0; i < n; i++, b->n_tok++) {
        x->pos[b->n_tok] = from + i;
        x->seq_of[b->n_tok] = s;
    }
    x->q_start[++b->n_seq] = b->n_tok;
    x->kv_len[s] = from + n;
    x->slot[s] = 0;
    for (int i = 0; i < x->max_pages; i++) x->pages[s * x->max_pages + i] = seat * x->max_pages + i;
    if (out) x->out_rows[b->n_out++] = b->n_tok - 1;
}

static int32_t likeliest(const float *row, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++) {
        if (row[i] > row[best]) best = i;
    }
    return (int32_t)best;
}

/* The row in the engine's vocabulary; tokens that this one does not have are out of the question. */
static bool fetch_row(draft_exec *x, int out_row) {
    float *to = x->ids ? x->said : x->row;
    if (x->exec->backend->fetch(x->exec, NN_FETCH_LOGITS, out_row, 1, to, NULL) < 0) return false;
    float none = to[0] - 1e9f;
    for (int64_t i = x->ids ? 0 : x->n_rows; i < x->n_vocab; i++) x->row[i] = none;
    for (int64_t i = 0; x->ids && i < x->n_rows; i++) x->row[x->ids[i]] = x->said[i];
    return true;
}

/* Whether a token's share of the row is smaller. */
static bool unlikely(const float *row, int64_t n, int32_t token, float p_min) {
    double sum = 0;
    if (p_min <= 0) return false;
    for (int64_t i = 0; i < n; i++) sum += exp((double)row[i] - (double)row[token]);
    return 1.0 < (double)p_min * sum;
}

int32_t draft_exec_pick(draft_exec *x, const draft_ask *a, int out_row) {
    sampling_result        got = { 0 };
    sampling_request       q = { .logits = x->row, .position = (uint64_t)(a->seq.n_tokens + a->n) };
    const sampling_params *p = a->seq.sampler ? sampler_params(a->seq.sampler) : NULL;
    if (!fetch_row(x, out_row)) return -1;
    if (!p || p->temperature <= 0 || p->mirostat)
        got.token = likeliest(x->row, x->n_vocab);
    else if (sampler_pick(a->seq.sampler, x->work, &q, &got, NULL) < 0)
        return -1;
    if (got.token < 0 || got.token >= x->n_vocab) return -1;
    return unlikely(x->row, x->n_vocab, got.token, a->p_min) ? -1 : got.token;
}

void draft_measure(double *known, double seconds, int n) {
    double each = seconds / n, rate = each < *known ? 0.7 : 0.1; /* other work only makes it longer */
    *known = *known > 0 ? *known + rate * ((each < 2 * *known ? each : 2 * *known) - *known) : each;
}

static bool take_arrays(draft_exec *x) {
    size_t tokens = (size_t)x->step_tokens, seats = (size_t)x->n_places;
    bool   ok = (x->row = calloc((size_t)(x->n_vocab > x->n_rows ? x->n_vocab : x->n_rows), sizeof *x->row));
    ok = ok && (x->said = calloc((size_t)x->n_rows, sizeof *x->said));
    ok = ok && (x->token = calloc(tokens, sizeof *x->token)) && (x->pos = calloc(tokens, sizeof *x->pos));
    ok = ok && (x->seq_of = calloc(tokens, sizeof *x->seq_of));
    ok = ok && (x->q_start = calloc(seats + 1, sizeof *x->q_start)) && (x->kv_len = calloc(seats, sizeof *x->kv_len));
    ok = ok && (x->slot = calloc(seats, sizeof *x->slot)) && (x->out_rows = calloc(seats, sizeof *x->out_rows));
    return ok && (x->pages = calloc(seats * (size_t)x->max_pages, sizeof *x->pages));
}

nn_exec_options draft_model_options(const draft_model_shape *s) {
    int max_pages = (s->n_ctx + s->page_tokens - 1) / s->page_tokens;
    return (nn_exec_options){ .limits = { .max_tokens = s->step_tokens,
                                          .max_seqs = s->n_places,
                                          .max_outputs = s->n_places,
                                          .page_tokens = s->page_tokens,
                                          .max_pages = max_pages,
                                          .n_pages = s->n_places * max_pages,
                                          .n_slots = 1 },
                              .k_type = s->k_type,
                              .v_type = s->v_type,
                              .precise_layers = s->precise_layers,
                              .n_threads = s->n_threads,
                              .cpu = s->cpu };
}

int draft_exec_open(draft_exec *x, const nn_device *device, const nn_backend *backend, const nn_model *m,
                    const int32_t *ids, const draft_model_shape *shape, err *e) {
    nn_exec_options o = draft_model_options(shape);
    int             rc;
    *x = (draft_exec){ .n_places = shape->n_places,
                       .n_ctx = shape->n_ctx,
                       .max_pages = o.limits.max_pages,
                       .step_tokens = shape->step_tokens,
                       .n_vocab = shape->n_vocab,
                       .ids = ids,
                       .n_rows = m->tape->bufs[m->tape->logits].width };
    if (!take_arrays(x)) return err_set_nomem(e);
    if ((rc = sampling_work_open(&x->work, (size_t)x->n_vocab, e)) < 0) return rc;
    x->gpu = device->kind == NN_DEVICE_GPU;
    return backend->open(&x->exec, device, m, &o, e);
}

void draft_exec_close(draft_exec *x) {
    nn_exec_free(x->exec);
    sampling_work_free(x->work);
    free(x->row);
    free(x->said);
    free(x->token);
    free(x->pos);
    free(x->seq_of);
    free(x->q_start);
    free(x->kv_len);
    free(x->slot);
    free(x->out_rows);
    free(x->pages);
    *x = (draft_exec){ 0 };
}
