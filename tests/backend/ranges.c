/* SPDX-License-Identifier: Apache-2.0 */
/* A tape in two parts: an executor with the first ops, another with the rest, and between them the buffers that cross
 * the border. Both together give what one gives, bit for bit. */
#include "backend/gen.h"
#include "backend/world.h"

#include <stdlib.h>
#include <string.h>

static bool reads(const nn_op *op, nn_buf b) {
    for (int i = 0; i < NN_MAX_IN; i++) {
        if (op->in[i] == b) return true;
    }
    return op->out == b && op->acc;
}

/* A buffer that is written before op k and read from there on, or fetched at the end. */
static bool crosses(const nn_tape *t, int k, nn_buf b) {
    bool written = false;
    for (int i = 0; i < k; i++) written = written || t->ops[i].out == b;
    if (b == t->hidden) return written;
    for (int i = k; i < t->n_ops && written; i++) {
        if (reads(&t->ops[i], b)) return true;
        if (t->ops[i].out == b) return false;
    }
    return false;
}

/* No layer's state is touched on both sides. */
static bool may_cut(const nn_tape *t, int k) {
    for (int i = 0; i < k; i++) {
        for (int j = k; j < t->n_ops; j++) {
            if (t->ops[i].layer >= 0 && t->ops[i].layer == t->ops[j].layer) return false;
        }
    }
    return true;
}

static int carry(nn_exec *from, nn_exec *to, const nn_batch *b, int k, err *e) {
    const nn_tape *t = from->model->tape;
    int            rc = 0;
    for (nn_buf buf = 1; buf < t->n_bufs && rc == 0; buf++) {
        if (!crosses(t, k, buf)) continue;
        float *v = malloc((size_t)(nn_batch_rows(b, t, buf) * t->bufs[buf].width + 1) * sizeof *v);
        if (!v) return err_set_nomem(e);
        rc = from->backend->read(from, buf, v, e);
        if (rc == 0) rc = to->backend->write(to, buf, v, e);
        free(v);
    }
    return rc;
}

static int run_both(nn_exec *a, nn_exec *b, const nn_batch *batch, int k, err *e) {
    int rc;
    if ((rc = a->backend->begin(a, batch, e)) < 0) return rc;
    if ((rc = a->backend->run(a, 0, k, e)) < 0) return rc;
    if ((rc = b->backend->begin(b, batch, e)) < 0) return rc;
    if ((rc = carry(a, b, batch, k, e)) < 0) return rc;
    return b->backend->run(b, k, b->model->tape->n_ops, e);
}

/* Every buffer of what comes out. */
static void same_ends(suite *s, nn_exec *one, nn_exec *two, const nn_batch *b, int k) {
    const nn_tape *t = one->model->tape;
    const nn_buf   bufs[2] = { t->logits, t->hidden };
    for (int i = 0; i < 2; i++) {
        size_t n = (size_t)(nn_batch_rows(b, t, bufs[i]) * t->bufs[bufs[i]].width);
        float *v = calloc(2 * n + 1, sizeof *v);
        err    e = { 0 };
        int    rc = v ? one->backend->fetch(one, i ? NN_FETCH_HIDDEN : NN_FETCH_LOGITS, 0,
                                         i ? b->n_out : b->n_out - b->n_hidden, v, &e)
                      : err_set_nomem(&e);
        if (rc == 0) rc = two->backend->read(two, bufs[i], v + n, &e);
        FACT(s, rc == 0, "%s", e.msg);
        FACT(s, rc < 0 || memcmp(v, v + n, n * sizeof *v) == 0, "cut before op %d of %d (%s): %s are other bits", k,
             t->n_ops, nn_op_name(t->ops[k].kind), i ? "hidden states" : "logits");
        free(v);
    }
}

static void check_cut(suite *s, const nn_model *m, int k) {
    nn_exec_options o = world_options(s), first = o, rest = o;
    nn_exec        *a = NULL, *b = NULL;
    world          *w = malloc(sizeof *w);
    err             e = { 0 };
    if (!w) exit(1);
    first.end_op = rest.first_op = k;
    rest.end_op = m->tape->n_ops;
    if (world_open(w, s, m, &o)) {
        int rc = s->backend->open(&a, &s->device, m, &first, &e);
        if (rc == 0) rc = s->backend->open(&b, &s->device, m, &rest, &e);
        while (rc == 0 && world_random_batch(w, false)) {
            if ((rc = nn_exec_step(w->x, &w->batch, &e)) < 0) break;
            if ((rc = run_both(a, b, &w->batch, k, &e)) == 0) same_ends(s, w->x, b, &w->batch, k);
        }
        FACT(s, rc == 0, "cut before op %d: %s", k, e.msg);
        nn_exec_free(a);
        nn_exec_free(b);
        world_close(w);
    }
    free(w);
}

void suite_ranges(suite *s) {
    for (int i = 0; i < suite_models(s, 12); i++) {
        nn_model *m =
            gen_model(s, (gen_want){ .type = GEN_ANY, .mixer = i % GEN_MIXERS, .ffn = GEN_ANY, .n_layer = 2 });
        for (int tries = 0; tries < 3; tries++) {
            int k = suite_int(s, 1, m->tape->n_ops - 1);
            while (!may_cut(m->tape, k)) k = k % (m->tape->n_ops - 1) + 1;
            check_cut(s, m, k);
        }
        gen_free(m);
    }
}
