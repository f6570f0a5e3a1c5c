/* SPDX-License-Identifier: Apache-2.0 */
/* A model on two devices: opening, ending, adapters. */
#include "backend/pair/pair.h"

#include "backend/backend.h"
#include "base/num.h"
#include "nn/plan.h"

#include <stdio.h>
#include <stdlib.h>

static void pair_free(nn_exec *base) {
    pair_exec *x = (pair_exec *)base;
    for (int k = 0; k < PAIR_PARTS; k++) nn_exec_free(x->part[k]);
    for (int i = 0; x->carried && i < x->cut.n_cross; i++) free(x->carried[i]);
    free(x->moves);
    arena_deinit(&x->mem);
    free(x);
}

/* --- what it takes ------------------------------------------------------------------------------------------------- */

static const nn_mat *weights_of(const nn_op *op) {
    switch (op->kind) {
    case NN_OP_EMBED:
    case NN_OP_EMBED_POS:
    case NN_OP_EMBED_SEG: return op->u.embed.table;
    case NN_OP_LINEAR:
    case NN_OP_HEAD_LINEAR:
    case NN_OP_EXPERTS: return op->u.linear.w;
    default: return NULL;
    }
}

/* Weights that the first part reads in the file. */
static size_t mapped_bytes(const nn_tape *t, int end) {
    size_t sum = 0;
    for (int i = 0; i < end; i++) {
        const nn_mat *m = weights_of(&t->ops[i]);
        if (m) sum += (size_t)(m->rows * num_max(m->n_stack, 1)) * (m->at[0].row_bytes + m->at[0].scale_row_bytes);
    }
    return sum;
}

static size_t carried_bytes(const pair_exec *x, int i) {
    const nn_buf_info *b = &x->x.model->tape->bufs[x->cut.cross[i]];
    return nn_rows_max(&x->x.options.limits, b) * (size_t)b->width * sizeof(float);
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

/* Which device beside the CPU, and how many layers it has. */
typedef struct place {
    const nn_backend *backend[PAIR_PARTS];
    nn_device         device[PAIR_PARTS];
    int               layers;
} place;

static int find_place(place *p, const nn_device *d, err *e) {
    char id[sizeof d->id];
    int  rc = backend_pair_id(d->id, id, &p->layers, e);
    if (rc == 0) rc = backend_find("cpu", &p->backend[PAIR_CPU], &p->device[PAIR_CPU], e);
    if (rc == 0) rc = backend_find(id, &p->backend[PAIR_OTHER], &p->device[PAIR_OTHER], e);
    return rc;
}

/* The part of the tape that side k computes; false: none. */
static bool part_options(const pair_exec *x, int k, nn_exec_options *o) {
    *o = x->x.options;
    if (k == PAIR_CPU && x->cut.at < o->end_op) o->end_op = x->cut.at;
    if (k == PAIR_OTHER && x->cut.at > o->first_op) o->first_op = x->cut.at;
    return o->first_op < o->end_op;
}

static int open_part(pair_exec *x, const place *p, int k, bool planned, err *e) {
    nn_exec_options o;
    nn_memory       m = { 0 };
    int             rc;
    if (!part_options(x, k, &o)) return 0;
    if (planned)
        rc = p->backend[k]->measure(&m, &p->device[k], x->x.model, &o, e);
    else if ((rc = p->backend[k]->open(&x->part[k], &p->device[k], x->x.model, &o, e)) == 0)
        m = x->part[k]->memory;
    if (rc == 0) add(&x->x.memory, &m, k == PAIR_OTHER && p->device[k].kind == NN_DEVICE_GPU);
    return rc;
}

/* Room for what crosses; ops in front of the executor's own part bring nothing. */
static int open_carried(pair_exec *x, bool planned, err *e) {
    size_t n = (size_t)x->cut.n_cross;
    x->entry = arena_calloc(&x->mem, n + 1, sizeof *x->entry);
    x->carried = arena_calloc(&x->mem, n + 1, sizeof *x->carried);
    if (!x->entry || !x->carried) return err_set_nomem(e);
    for (size_t i = 0; i < n; i++) {
        size_t bytes = carried_bytes(x, (int)i);
        x->x.memory.heap_bytes += bytes;
        if (planned) continue;
        if (!(x->carried[i] = malloc(bytes ? bytes : 1))) return err_set_nomem(e);
        x->entry[i] = (nn_rows){ x->cut.cross[i], x->carried[i] };
    }
    return 0;
}

/* Pages of one arrangement mean nothing in another. */
static uint64_t arithmetic_of(const pair_exec *x) {
    uint64_t all = (uint64_t)x->cut.at;
    for (int k = 0; k < PAIR_PARTS; k++) all = all * 0x9E3779B97F4A7C15u + (x->part[k] ? x->part[k]->arithmetic : 1);
    return all;
}

static int make(pair_exec **out, bool planned, const nn_device *d, const nn_model *m, const nn_exec_options *o,
                err *e) {
    pair_exec *x = calloc(1, sizeof *x);
    place      p;
    int        rc, n_layer = m->tape->n_layer;
    *out = NULL;
    if (!x) return err_set_nomem(e);
    arena_init(&x->mem, 0);
    rc = nn_exec_init(&x->x, &backend_pair, d, m, o, &x->mem, e);
    if (rc == 0) rc = find_place(&p, d, e);
    if (rc == 0 && p.layers <= n_layer) rc = nn_cut_before_layer(&x->cut, m->tape, n_layer - p.layers, &x->mem, e);
    for (int k = 0; k < PAIR_PARTS && rc == 0; k++) rc = open_part(x, &p, k, planned, e);
    if (rc == 0) rc = open_carried(x, planned, e);
    if (rc < 0) {
        pair_free(&x->x);
        return rc;
    }
    x->x.memory.mapped_bytes = mapped_bytes(m->tape, x->cut.at);
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
    int              k = both->part[PAIR_CPU] && op < both->cut.at ? PAIR_CPU : PAIR_OTHER;
    return both->part[k]->device.kind;
}

const nn_backend backend_pair = {
    .name = "pair",
    .can = NN_BATCH_EMBD | NN_BATCH_ROW_END | NN_BATCH_SEGMENT | NN_BATCH_ADAPTER | NN_BATCH_AXES | NN_BATCH_ROW_BEGIN |
           NN_BATCH_DEEP | NN_BATCH_STRICT,
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
