/* SPDX-License-Identifier: Apache-2.0 */
/* Who computes what of a tape, and what goes from one part to another. */
#include "nn/plan.h"
#include "backend/divided/divided.h"
#include "nn/divide.h"

#include <stdlib.h>
#include <string.h>

static int choose_parts(divided_exec *x, const divided_place *p, err *e) {
    const nn_tape *t = x->x.model->tape;
    uint64_t       memory[BACKEND_MAX_PARTS];
    int            n[BACKEND_MAX_PARTS];
    if (backend_parts_whole(&p->parts, t->n_layer, nn_mixtures(t))) {
        memset(x->part_of, x->n_parts - 1, (size_t)t->n_ops);
        return 0;
    }
    if (p->parts.experts) return nn_divide_experts(t, p->parts.part[1].n, x->part_of, e);
    for (int i = 0; i < x->n_parts; i++) {
        memory[i] = p->device[i].total_bytes;
        n[i] = p->parts.part[i].n;
    }
    if (n[1] < 0) backend_parts_share(t->n_layer, memory, x->n_parts, n);
    return nn_divide_layers(t, n + 1, x->n_parts - 1, x->part_of, e);
}

/* Runs of ops of one part, within the executor's own part of the tape. */
static int find_segments(divided_exec *x, err *e) {
    const nn_exec_options *o = &x->x.options;
    int                    segments_of[BACKEND_MAX_PARTS] = { 0 };
    x->segments = arena_calloc(&x->mem, (size_t)(o->end_op - o->first_op) + 1, sizeof *x->segments);
    if (!x->segments) return err_set_nomem(e);
    for (int i = o->first_op; i < o->end_op; i++) {
        int  part = x->part_of[i];
        bool more = x->n_segments && x->segments[x->n_segments - 1].part == part;
        if (!more) x->segments[x->n_segments++] = (divided_segment){ .part = part, .first = i };
        segments_of[part] += !more;
        x->segments[x->n_segments - 1].end = i + 1;
        x->ops[part][i] = true;
    }
    for (int i = 0; i < x->n_segments; i++) x->segments[i].alone = segments_of[x->segments[i].part] == 1;
    return 0;
}

/* Where the rows of a buffer are. What nobody has made everybody has: whoever begins in the middle of a tape writes it. */
typedef struct whereabouts {
    uint16_t has; /* a bit for each part */
    uint8_t  made_by;
} whereabouts;

static int need(divided_exec *x, divided_segment *s, nn_buf b, whereabouts *at, err *e) {
    if (!b || at[b].has >> s->part & 1) return 0;
    if (!s->needs && !(s->needs = arena_calloc(&x->mem, (size_t)x->x.model->tape->n_bufs, sizeof *s->needs)))
        return err_set_nomem(e);
    s->needs[s->n_needs++] = (divided_need){ b, at[b].made_by };
    at[b].has = (uint16_t)(at[b].has | 1u << s->part);
    return 0;
}

/* What an op writes is with its own part alone from then on. */
static int find_needs(divided_exec *x, whereabouts *at, err *e) {
    const nn_tape *t = x->x.model->tape;
    int            rc = 0;
    for (int i = 0; i < t->n_bufs; i++) at[i] = (whereabouts){ .has = UINT16_MAX };
    for (int i = 0; i < x->n_segments; i++) {
        divided_segment *s = &x->segments[i];
        for (int k = s->first; k < s->end && rc == 0; k++) {
            const nn_op *op = &t->ops[k];
            for (int j = 0; j < NN_MAX_IN && rc == 0; j++) rc = need(x, s, op->in[j], at, e);
            if (op->acc && rc == 0) rc = need(x, s, op->out, at, e);
            at[op->out] = (whereabouts){ (uint16_t)(1u << s->part), (uint8_t)s->part };
        }
    }
    return rc;
}

static int make_entry(divided_exec *x, err *e) {
    int most = 0;
    for (int i = 0; i < x->n_segments; i++) most = x->segments[i].n_needs > most ? x->segments[i].n_needs : most;
    x->entry = arena_calloc(&x->mem, (size_t)most + 1, sizeof *x->entry);
    return x->entry ? 0 : err_set_nomem(e);
}

int divided_plan(divided_exec *x, const divided_place *p, err *e) {
    size_t n = (size_t)x->x.model->tape->n_ops;
    x->n_parts = p->parts.n;
    x->part_of = arena_calloc(&x->mem, n, sizeof *x->part_of);
    if (!x->part_of) return err_set_nomem(e);
    for (int k = 0; k < x->n_parts; k++) {
        if (!(x->ops[k] = arena_calloc(&x->mem, n, sizeof *x->ops[k]))) return err_set_nomem(e);
    }
    whereabouts *at = malloc((size_t)x->x.model->tape->n_bufs * sizeof *at);
    int          rc = at ? choose_parts(x, p, e) : err_set_nomem(e);
    if (rc == 0) rc = find_segments(x, e);
    if (rc == 0) rc = find_needs(x, at, e);
    free(at);
    return rc < 0 ? rc : make_entry(x, e);
}

size_t divided_carried_bytes(const divided_exec *x) {
    size_t most = 0;
    for (int i = 0; i < x->n_segments; i++) {
        size_t sum = 0;
        for (int k = 0; k < x->segments[i].n_needs; k++) {
            const nn_buf_info *b = &x->x.model->tape->bufs[x->segments[i].needs[k].buf];
            sum += nn_rows_max(&x->x.options.limits, b) * (size_t)b->width * sizeof(float);
        }
        most = sum > most ? sum : most;
    }
    return most;
}

int divided_part_of(const divided_exec *x, nn_buf b, int end) {
    for (int i = end - 1; i >= x->x.options.first_op; i--) {
        if (x->x.model->tape->ops[i].out == b) return x->part_of[i];
    }
    return x->segments[x->n_segments - 1].part;
}
