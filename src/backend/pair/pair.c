/* SPDX-License-Identifier: Apache-2.0 */
/* A model on two devices: opening, ending, adapters. */
#include "backend/pair/pair.h"

#include "backend/backend.h"
#include "base/num.h"

#include <stdlib.h>

static void pair_free(nn_exec *base) {
    pair_exec *x = (pair_exec *)base;
    for (int k = 0; k < PAIR_SIDES; k++) nn_exec_free(x->part[k]);
    free(x->carried);
    free(x->moves);
    arena_deinit(&x->mem);
    free(x);
}

/* --- what it takes ------------------------------------------------------------------------------------------------- */

/* Weights that the CPU reads in the file. */
static size_t mapped_bytes(const pair_exec *x) {
    const nn_tape *t = x->x.model->tape;
    size_t         sum = 0;
    for (int i = 0; i < t->n_ops; i++) {
        const nn_mat *m = x->ops[PAIR_CPU][i] ? nn_op_weights(&t->ops[i]) : NULL;
        if (m) sum += (size_t)(m->rows * num_max(m->n_stack, 1)) * (m->at[0].row_bytes + m->at[0].scale_row_bytes);
    }
    return sum;
}

static void add(nn_memory *to, const nn_memory *part, bool beside) {
    for (int g = 0; g < NN_MAX_GROUPS; g++) to->page_bytes[g] += part->page_bytes[g];
    to->slot_bytes += part->slot_bytes;
    to->pages_bytes += part->pages_bytes;
    to->heap_bytes += part->heap_bytes;
    to->weights_bytes += part->weights_bytes;
    if (beside) to->beside_bytes += part->pages_bytes + part->heap_bytes + part->weights_bytes;
}

/* --- opening ------------------------------------------------------------------------------------------------------- */

static int find_place(pair_place *p, const nn_device *d, err *e) {
    char id[sizeof d->id];
    int  rc = backend_pair_id(d->id, id, &p->n, &p->experts, e);
    if (rc == 0) rc = backend_find("cpu", &p->backend[PAIR_CPU], &p->device[PAIR_CPU], e);
    if (rc == 0) rc = backend_find(id, &p->backend[PAIR_OTHER], &p->device[PAIR_OTHER], e);
    return rc;
}

static bool has_ops(const pair_exec *x, int k) {
    for (int i = 0; i < x->n_segments; i++) {
        if (x->segments[i].side == k) return true;
    }
    return false;
}

static int open_part(pair_exec *x, const pair_place *p, int k, bool planned, err *e) {
    nn_exec_options o = x->x.options;
    nn_memory       m = { 0 };
    int             rc;
    o.ops = x->ops[k];
    if (k == PAIR_OTHER) o.expert_bytes = 0; /* its experts are there to stay */
    if (!has_ops(x, k)) return 0;
    if (planned)
        rc = p->backend[k]->measure(&m, &p->device[k], x->x.model, &o, e);
    else if ((rc = p->backend[k]->open(&x->part[k], &p->device[k], x->x.model, &o, e)) == 0)
        m = x->part[k]->memory;
    if (rc == 0 && k == PAIR_CPU) x->x.memory.experts = m.experts;
    if (rc == 0) add(&x->x.memory, &m, k == PAIR_OTHER && p->device[k].kind == NN_DEVICE_GPU);
    return rc;
}

/* Pages of one arrangement mean nothing in another. */
static uint64_t arithmetic_of(const pair_exec *x) {
    uint64_t all = 0;
    for (int i = 0; i < x->x.model->tape->n_ops; i++) all = all * 0x9E3779B97F4A7C15u + x->side[i] + 1;
    for (int k = 0; k < PAIR_SIDES; k++) all = all * 0x9E3779B97F4A7C15u + (x->part[k] ? x->part[k]->arithmetic : 1);
    return all;
}

static int make(pair_exec **out, bool planned, const nn_device *d, const nn_model *m, const nn_exec_options *o,
                err *e) {
    pair_exec *x = calloc(1, sizeof *x);
    pair_place p;
    *out = NULL;
    if (!x) return err_set_nomem(e);
    arena_init(&x->mem, 0);
    int rc = nn_exec_init(&x->x, &backend_pair, d, m, o, &x->mem, e);
    if (rc == 0) rc = find_place(&p, d, e);
    if (rc == 0) rc = pair_plan(x, &p, e);
    for (int k = 0; k < PAIR_SIDES && rc == 0; k++) rc = open_part(x, &p, k, planned, e);
    size_t carried = rc == 0 ? pair_carried_bytes(x) : 0;
    if (rc == 0 && !planned && !(x->carried = malloc(carried + 1))) rc = err_set_nomem(e);
    if (rc < 0) {
        pair_free(&x->x);
        return rc;
    }
    x->x.memory.heap_bytes += carried;
    x->x.memory.mapped_bytes = mapped_bytes(x) - x->x.memory.experts.streamed;
    if (x->part[PAIR_CPU]) {
        x->x.streaming = x->part[PAIR_CPU]->streaming;
        x->x.bytes_read = x->part[PAIR_CPU]->bytes_read;
    }
    x->x.arithmetic = arithmetic_of(x);
    *out = x;
    return 0;
}

static int pair_open(nn_exec **out, const nn_device *d, const nn_model *m, const nn_exec_options *o, err *e) {
    pair_exec *x;
    int        rc = make(&x, false, d, m, o, e);
    *out = x ? &x->x : NULL;
    return rc;
}

static int pair_measure(nn_memory *out, const nn_device *d, const nn_model *m, const nn_exec_options *o, err *e) {
    pair_exec *x;
    int        rc = make(&x, true, d, m, o, e);
    *out = x ? x->x.memory : (nn_memory){ 0 };
    if (x) pair_free(&x->x);
    return rc;
}

/* Ways to divide a model are named (backend_find), not listed. */
static int pair_devices(nn_device *out, int cap) {
    (void)out;
    (void)cap;
    return 0;
}

/* --- adapters ------------------------------------------------------------------------------------------------------ */

static int adapt_part(pair_exec *x, int k, int number, const nn_adapter_set *set, err *e) {
    return x->part[k] ? x->part[k]->backend->adapt(x->part[k], number, set, e) : 0;
}

/* Each side takes what its ops need. Where the second has no room the first goes back to what the number meant. */
static int pair_adapt(nn_exec *base, int number, const nn_adapter_set *set, err *e) {
    pair_exec *x = (pair_exec *)base;
    int        rc = adapt_part(x, PAIR_CPU, number, set, e);
    if (rc < 0) return rc;
    if ((rc = adapt_part(x, PAIR_OTHER, number, set, e)) == 0)
        x->sets[number] = set;
    else if (number >= 1 && number <= NN_MAX_SETS)
        (void)adapt_part(x, PAIR_CPU, number, x->sets[number], NULL);
    return rc;
}

nn_device_kind backend_kind_at(const nn_exec *x, int op) {
    if (x->backend != &backend_pair) return x->device.kind;
    const pair_exec *both = (const pair_exec *)x;
    return both->part[both->side[op]]->device.kind;
}

const nn_backend backend_pair = {
    .name = "pair",
    .can = NN_BATCH_EMBD | NN_BATCH_ROW_END | NN_BATCH_SEGMENT | NN_BATCH_ADAPTER | NN_BATCH_AXES | NN_BATCH_ROW_BEGIN |
           NN_BATCH_DEEP | NN_BATCH_STRICT,
    .streams = true,
    .devices = pair_devices,
    .measure = pair_measure,
    .open = pair_open,
    .free = pair_free,
    .adapt = pair_adapt,
    .submit = pair_submit,
    .wait = pair_wait,
    .fetch = pair_fetch,
    .sample = pair_sample,
    .move = pair_move,
    .begin = pair_begin,
    .run = pair_run,
    .read = pair_read,
    .write = pair_write,
};
