/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of pictures: parts of a supplied row that a model adds behind its first layers (nn_add_supplied), and columns of
 * several buffers side by side. Supplied embeddings themselves go the way of all embeddings (step.c), unless they lie where
 * the copy begins, or on the device already.
 */
#include "backend/cuda/cuda.h"

static int64_t part_width(const nn_tape *t) { return t->bufs[t->ops[0].out].width; }

int64_t cuda_deep_width(const cuda_exec *x) {
    const nn_tape *t = x->x.model->tape;
    return t->n_parts > 1 ? (t->n_parts - 1) * part_width(t) : 0;
}

/* Rows that lie equally far apart are one copy. */
int cuda_deep_send(cuda_exec *x, err *e) {
    const nn_batch *b = &x->batch;
    size_t          part = (size_t)part_width(x->x.model->tape), wide = (size_t)cuda_deep_width(x);
    int             rc = wide && b->embd ? cuda_wait(x->stream, e) : 0; /* nobody reads the rows before any more */
    for (int t = 0, n; wide && b->embd && t < b->n_tok && rc == 0; t += n) {
        n = 1;
        if (!b->embd[t]) continue;
        size_t stride = part + wide;
        while (t + n < b->n_tok && b->embd[t + n] == b->embd[t] + (size_t)n * stride) n++;
        rc = cuda_copy_rows_in(x->heap + x->areas.deep + (size_t)t * wide * sizeof(float), b->embd[t] + part,
                               wide * sizeof(float), stride * sizeof(float), (size_t)n, e);
    }
    return rc;
}

int cuda_deep_add(cuda_exec *x, const nn_op *op, err *e) {
    const float *rows = (const float *)(const void *)(x->heap + x->areas.deep);
    int64_t      width = part_width(x->x.model->tape);
    if (!x->on_device.given) return 0;
    return cuda_op_add_supplied(cuda_buf(x, op->out), rows + (op->u.part - 1) * width, cuda_deep_width(x),
                                x->on_device.given, x->batch.n_tok, width, x->stream, e);
}

int cuda_join(cuda_exec *x, const nn_op *op, err *e) {
    const nn_buf_info *bufs = x->x.model->tape->bufs;
    int64_t            at = 0;
    int                rc = 0;
    for (int k = 0; k < NN_MAX_IN && op->in[k] && rc == 0; k++) {
        rc = cuda_op_join(cuda_buf(x, op->out), bufs[op->out].width, at, cuda_buf(x, op->in[k]),
                          cuda_buf_rows(x, op->out), bufs[op->in[k]].width, x->stream, e);
        at += bufs[op->in[k]].width;
    }
    return rc;
}

float *cuda_input(nn_exec *base) {
    cuda_exec *x = (cuda_exec *)base;
    return x->n_embeds && x->embeds[0].op == 0 ? x->embeds[0].host : NULL;
}

/* The rows that the other one has left are as long together as those of the batch. */
int cuda_check_from(const cuda_exec *x, const nn_batch *b, err *e) {
    const cuda_exec *from = (const cuda_exec *)b->from;
    const nn_tape   *t = x->x.model->tape;
    if (b->from->backend != x->x.backend || from->device.number != x->device.number)
        return err_set(e, ERR_ARG, "rows of an executor of %s for one of %s", b->from->device.id, x->x.device.id);
    nn_buf  hidden = nn_fetch_buf(from->x.model->tape, NN_FETCH_HIDDEN);
    int64_t there = hidden ? cuda_buf_rows(from, hidden) * from->x.model->tape->bufs[hidden].width : 0;
    int64_t width = t->bufs[t->ops[0].out].width;
    if (b->embd || x->n_embeds != 1 || x->embeds[0].op != 0 || there != b->n_tok * width)
        return err_set(e, ERR_ARG, "%d rows of %lld floats of another executor, which has left %lld", b->n_tok,
                       (long long)width, (long long)there);
    return 0;
}
