/* SPDX-License-Identifier: Apache-2.0 */
/* What all executors share: options, the page groups, the activation arena. */
#include "nn/backend.h"

#include <stdlib.h>
#include <string.h>

int nn_exec_init(nn_exec *x, const nn_backend *backend, const nn_model *m, const nn_exec_options *o, err *e) {
    const nn_limits *l = &o->limits;
    int              rc;
    x->backend = backend;
    x->model = m;
    x->options = *o;
    arena_init(&x->mem, 0);
    if (l->max_tokens <= 0 || l->max_seqs <= 0 || l->max_outputs <= 0 || l->page_tokens <= 0 || l->max_pages <= 0 ||
        l->n_pages <= 0)
        return err_set(e, ERR_ARG, "limits of a step must be positive");
    if ((rc = nn_groups_make(&x->groups, m, &x->mem, e)) < 0) return rc;
    if ((rc = nn_plan_arena(&x->plan, m->tape, l, &x->mem, e)) < 0) return rc;
    x->arena_bytes = x->plan.bytes;
    x->heap_bytes = x->arena_bytes;
    if (o->plan_only) return 0;
    x->arena = aligned_alloc(64, x->arena_bytes ? x->arena_bytes : 64);
    if (!x->arena) return err_set(e, ERR_NOMEM, "no memory for %zu bytes of activations", x->arena_bytes);
    memset(x->arena, 0, x->arena_bytes);
    return 0;
}

void nn_exec_deinit(nn_exec *x) {
    free(x->arena);
    arena_deinit(&x->mem);
}

int nn_exec_step(nn_exec *x, const nn_batch *b, err *e) {
    int rc = x->backend->begin(x, b, e);
    if (rc < 0) return rc;
    x->backend->run(x, 0, x->model->tape->n_ops);
    return 0;
}

float *nn_exec_buf(nn_exec *x, nn_buf b) { return (float *)(void *)(x->arena + x->plan.offset[b]); }

int64_t nn_exec_rows(const nn_exec *x, nn_buf b) {
    const nn_buf_info *i = &x->model->tape->bufs[b];
    int                outputs = i->rows == NN_ROWS_LOGITS ? x->batch.n_out - x->batch.n_hidden : x->batch.n_out;
    return (int64_t)(i->rows == NN_ROWS_TOKENS ? x->batch.n_tok : outputs) * i->mult;
}

const float *nn_exec_logits(nn_exec *x, int64_t *n_vocab) {
    nn_buf b = x->model->tape->logits;
    if (n_vocab) *n_vocab = x->model->tape->bufs[b].width;
    return nn_exec_buf(x, b);
}

const float *nn_exec_hidden(nn_exec *x, int64_t *width) {
    nn_buf b = x->model->tape->hidden;
    if (width) *width = x->model->tape->bufs[b].width;
    return nn_exec_buf(x, b);
}

void nn_exec_free(nn_exec *x) {
    if (x) x->backend->free(x);
}
