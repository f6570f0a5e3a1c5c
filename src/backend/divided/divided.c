/* SPDX-License-Identifier: Apache-2.0 */
/* A model on several devices: opening, ending, adapters. */
#include "backend/divided/divided.h"

#include "backend/backend.h"
#include "base/num.h"

#include <stdlib.h>

static void divided_free(nn_exec *base) {
    divided_exec *x = (divided_exec *)base;
    for (int k = 0; k < x->n_parts; k++) nn_exec_free(x->part[k]);
    free(x->carried);
    free(x->moves);
    arena_deinit(&x->mem);
    free(x);
}

/* --- what it takes ------------------------------------------------------------------------------------------------- */

/* Weights that parts without copies of their own read in the file. */
static size_t mapped_bytes(const divided_exec *x, int k) {
    const nn_tape *t = x->x.model->tape;
    size_t         sum = 0;
    for (int i = 0; i < t->n_ops; i++) {
        const nn_mat *m = x->ops[k][i] ? nn_op_weights(&t->ops[i]) : NULL;
        if (m) sum += (size_t)(m->rows * num_max(m->n_stack, 1)) * (m->at[0].row_bytes + m->at[0].scale_row_bytes);
    }
    return sum;
}

static void add(nn_memory *to, const nn_memory *part, const nn_device *d) {
    for (int g = 0; g < NN_MAX_GROUPS; g++) to->page_bytes[g] += part->page_bytes[g];
    to->slot_bytes += part->slot_bytes;
    to->pages_bytes += part->pages_bytes;
    to->heap_bytes += part->heap_bytes;
    to->weights_bytes += part->weights_bytes;
    if (d->kind == NN_DEVICE_GPU)
        (void)device_memory_add(&to->beside, d->id, part->pages_bytes + part->heap_bytes + part->weights_bytes);
}

/* --- opening ------------------------------------------------------------------------------------------------------- */

static int find_place(divided_place *p, const nn_device *d, err *e) {
    int rc = backend_parts_read(&p->parts, d->id, e);
    for (int i = 0; i < p->parts.n && rc == 0; i++)
        rc = backend_find(p->parts.part[i].device, &p->backend[i], &p->device[i], e);
    return rc;
}

/* From its first to its last op; false: it has none. */
static bool find_range(const divided_exec *x, int k, nn_exec_options *o) {
    bool any = false;
    for (int i = 0; i < x->n_segments; i++) {
        const divided_segment *s = &x->segments[i];
        if (s->part != k) continue;
        if (!any) o->first_op = s->first;
        o->end_op = s->end;
        any = true;
    }
    return any;
}

static int open_part(divided_exec *x, const divided_place *p, int k, bool planned, err *e) {
    nn_exec_options o = x->x.options;
    nn_memory       m = { 0 };
    int             rc;
    o.ops = x->ops[k];
    if (k > 0) o.expert_bytes = 0; /* experts of other devices are there to stay */
    if (!find_range(x, k, &o)) return 0;
    if (planned)
        rc = p->backend[k]->measure(&m, &p->device[k], x->x.model, &o, e);
    else if ((rc = p->backend[k]->open(&x->part[k], &p->device[k], x->x.model, &o, e)) == 0)
        m = x->part[k]->memory;
    if (rc < 0) return rc;
    add(&x->x.memory, &m, &p->device[k]);
    if (!m.weights_bytes) x->x.memory.mapped_bytes += mapped_bytes(x, k) - m.experts.streamed;
    if (k > 0) return 0;
    x->x.memory.experts = m.experts;
    if (x->part[k]) {
        x->x.streaming = x->part[k]->streaming;
        x->x.bytes_read = x->part[k]->bytes_read;
    }
    return 0;
}

/* Pages of one arrangement mean nothing in another. */
static uint64_t arithmetic_of(const divided_exec *x) {
    uint64_t all = 0;
    for (int i = 0; i < x->x.model->tape->n_ops; i++) all = all * 0x9E3779B97F4A7C15u + x->part_of[i] + 1;
    for (int k = 0; k < x->n_parts; k++) all = all * 0x9E3779B97F4A7C15u + (x->part[k] ? x->part[k]->arithmetic : 1);
    return all;
}

static int make(divided_exec **out, bool planned, const nn_device *d, const nn_model *m, const nn_exec_options *o,
                err *e) {
    divided_exec *x = calloc(1, sizeof *x);
    divided_place p;
    *out = NULL;
    if (!x) return err_set_nomem(e);
    arena_init(&x->mem, 0);
    int rc = nn_exec_init(&x->x, &backend_divided, d, m, o, &x->mem, e);
    if (rc == 0) rc = find_place(&p, d, e);
    if (rc == 0) rc = divided_plan(x, &p, e);
    for (int k = 0; k < x->n_parts && rc == 0; k++) rc = open_part(x, &p, k, planned, e);
    size_t carried = rc == 0 ? divided_carried_bytes(x) : 0;
    if (rc == 0 && !planned && !(x->carried = malloc(carried + 1))) rc = err_set_nomem(e);
    if (rc < 0) {
        divided_free(&x->x);
        return rc;
    }
    x->x.memory.heap_bytes += carried;
    x->x.arithmetic = arithmetic_of(x);
    *out = x;
    return 0;
}

static int divided_open(nn_exec **out, const nn_device *d, const nn_model *m, const nn_exec_options *o, err *e) {
    divided_exec *x;
    int           rc = make(&x, false, d, m, o, e);
    *out = x ? &x->x : NULL;
    return rc;
}

static int divided_measure(nn_memory *out, const nn_device *d, const nn_model *m, const nn_exec_options *o, err *e) {
    divided_exec *x;
    int           rc = make(&x, true, d, m, o, e);
    *out = x ? x->x.memory : (nn_memory){ 0 };
    if (x) divided_free(&x->x);
    return rc;
}

/* Ways to divide a model are named (backend_find), not listed. */
static int divided_devices(nn_device *out, int cap) {
    (void)out;
    (void)cap;
    return 0;
}

/* --- adapters ------------------------------------------------------------------------------------------------------ */

static int adapt_part(divided_exec *x, int k, int number, const nn_adapter_set *set, err *e) {
    return x->part[k] ? x->part[k]->backend->adapt(x->part[k], number, set, e) : 0;
}

/* Each part takes what its ops need. Where one has no room those before it go back to what the number meant. */
static int divided_adapt(nn_exec *base, int number, const nn_adapter_set *set, err *e) {
    divided_exec *x = (divided_exec *)base;
    int           rc = 0, done = 0;
    while (done < x->n_parts && (rc = adapt_part(x, done, number, set, e)) == 0) done++;
    if (rc == 0)
        x->sets[number] = set;
    else if (number >= 1 && number <= NN_MAX_SETS) {
        for (int k = 0; k < done; k++) (void)adapt_part(x, k, number, x->sets[number], NULL);
    }
    return rc;
}

nn_device_kind backend_kind_at(const nn_exec *x, int op) {
    if (x->backend != &backend_divided) return x->device.kind;
    const divided_exec *all = (const divided_exec *)x;
    return all->part[all->part_of[op]]->device.kind;
}

const nn_backend backend_divided = {
    .name = "divided",
    .can = NN_BATCH_EMBD | NN_BATCH_ROW_END | NN_BATCH_SEGMENT | NN_BATCH_ADAPTER | NN_BATCH_AXES | NN_BATCH_ROW_BEGIN |
           NN_BATCH_DEEP | NN_BATCH_STRICT | NN_BATCH_WIDE,
    .streams = true,
    .devices = divided_devices,
    .measure = divided_measure,
    .open = divided_open,
    .free = divided_free,
    .adapt = divided_adapt,
    .submit = divided_submit,
    .wait = divided_wait,
    .fetch = divided_fetch,
    .sample = divided_sample,
    .move = divided_move,
    .begin = divided_begin,
    .run = divided_run,
    .read = divided_read,
    .write = divided_write,
};
