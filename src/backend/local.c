/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/local.h"

#include <stdlib.h>
#include <string.h>

int local_init(local_exec *l, const nn_backend *backend, const nn_device *d, const nn_model *m,
               const nn_exec_options *o, err *e) {
    int rc;
    arena_init(&l->mem, 0);
    if ((rc = nn_exec_init(&l->x, backend, d, m, o, &l->mem, e)) < 0) return rc;
    if ((rc = nn_plan_arena(&l->plan, m->tape, &o->limits, o->expert_bytes > 0, &l->mem, e)) < 0) return rc;
    l->x.memory.heap_bytes = l->plan.bytes;
    if (l->planned) return 0;
    l->arena = aligned_alloc(64, l->plan.bytes ? l->plan.bytes : 64);
    if (!l->arena) return err_set(e, ERR_NOMEM, "no memory for %zu bytes of activations", l->plan.bytes);
    memset(l->arena, 0, l->plan.bytes);
    return 0;
}

void local_deinit(local_exec *l) {
    free(l->arena);
    arena_deinit(&l->mem);
}

nn_ticket local_ticket(nn_exec *x) { return ++((local_exec *)x)->last; }

int local_submit(nn_exec *x, const nn_batch *b, nn_ticket *step, err *e) {
    int rc = x->backend->begin(x, b, e);
    for (int i = 0; i < b->n_entry && rc == 0; i++) rc = x->backend->write(x, b->entry[i].buf, b->entry[i].rows, e);
    if (rc == 0) rc = x->backend->run(x, x->options.first_op, x->options.end_op, e);
    if (rc == 0) *step = local_ticket(x);
    return rc;
}

int local_wait(nn_exec *x, nn_ticket ticket, err *e) {
    const local_exec *l = (const local_exec *)x;
    if (ticket == 0 || ticket > l->last)
        return err_set(e, ERR_ARG, "ticket %llu was never given out", (unsigned long long)ticket);
    return 0;
}

int local_fetch(nn_exec *x, nn_fetch_what what, int64_t first, int64_t n, float *to, err *e) {
    const local_exec *l = (const local_exec *)x;
    const nn_tape    *t = x->model->tape;
    nn_buf            b = nn_fetch_buf(t, what);
    int64_t           width = t->bufs[b].width, rows = local_rows(l, b);
    if (first < 0 || n < 0 || n > rows || first > rows - n)
        return err_set(e, ERR_ARG, "%lld rows from row %lld on; there are %lld", (long long)n, (long long)first,
                       (long long)rows);
    memcpy(to, local_buf(l, b) + first * width, (size_t)(n * width) * sizeof *to);
    return 0;
}

/* Bytes of a buffer's rows in the batch; 0 with an error for a buffer that does not exist. */
static int row_bytes(const local_exec *l, nn_buf b, size_t *out, err *e) {
    const nn_tape *t = l->x.model->tape;
    *out = 0;
    if (b <= 0 || b >= t->n_bufs) return err_set(e, ERR_ARG, "buffer %d of %d", b, t->n_bufs - 1);
    *out = (size_t)(local_rows(l, b) * t->bufs[b].width) * sizeof(float);
    return 0;
}

int local_read(nn_exec *x, nn_buf b, float *to, err *e) {
    const local_exec *l = (const local_exec *)x;
    size_t            bytes;
    int               rc = row_bytes(l, b, &bytes, e);
    if (rc == 0) memcpy(to, local_buf(l, b), bytes);
    return rc;
}

int local_write(nn_exec *x, nn_buf b, const float *from, err *e) {
    const local_exec *l = (const local_exec *)x;
    size_t            bytes;
    int               rc = row_bytes(l, b, &bytes, e);
    if (rc == 0) memcpy(local_buf(l, b), from, bytes);
    return rc;
}
