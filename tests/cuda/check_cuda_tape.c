/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the CUDA backend finds out about a tape before it starts kernels, which needs no device: a buffer counts as dead
 * exactly where nothing behind it reads what it holds. Compared with the usual analysis from the end of the tape on, over
 * random models of all kinds of layers. --seed N repeats a run.
 */
#include "backend/backend.h"
#include "backend/cuda/cuda.h"
#include "backend/gen.h"
#include "kernels/check.h"

#include <stdio.h>
#include <stdlib.h>

enum { MODELS = 200 };

/* Which buffers are read behind op i, from those that are read behind op i + 1. */
static void step_back(const nn_tape *t, const nn_op *op, bool *live) {
    if (op->out) live[op->out] = op->acc;
    for (int k = 0; k < NN_MAX_IN; k++) {
        if (op->in[k]) live[op->in[k]] = true;
    }
    live[t->logits] = live[t->hidden] = live[t->inner] = true; /* they are fetched at the end; 0 counts for nothing */
}

static void check_model(check *c, const nn_model *m) {
    const nn_tape *t = m->tape;
    cuda_exec     *x = calloc(1, sizeof *x);
    bool          *live = calloc((size_t)t->n_bufs, sizeof *live);
    if (!x || !live) abort();
    x->x.model = m;
    live[t->logits] = live[t->hidden] = live[t->inner] = true;
    for (int i = t->n_ops - 1; i >= 0; i--) {
        for (nn_buf b = 1; b < t->n_bufs; b++)
            CHECK(c, cuda_is_dead(x, b, i) == !live[b], "buffer %d behind op %d (%s) of %d", b, i,
                  nn_op_name(t->ops[i].kind), t->n_ops);
        step_back(t, &t->ops[i], live);
    }
    free(live);
    free(x);
}

/* An op that writes a buffer which was there before says that it reads it, too: else both sides would overlook that. */
static void check_marks(check *c, const nn_tape *t) {
    bool *there = calloc((size_t)t->n_bufs, sizeof *there);
    if (!there) abort();
    for (int i = 0; i < t->n_ops; i++) {
        const nn_op *op = &t->ops[i];
        CHECK(c, !op->out || there[op->out] == op->acc, "op %d (%s) writes buffer %d", i, nn_op_name(op->kind),
              op->out);
        there[op->out] = true;
    }
    free(there);
}

int main(int argc, char **argv) {
    check c;
    if (!check_begin(&c, argc, argv)) return check_end(&c);
    suite s = { .backend = &backend_cuda, .random = c.rng, .rounds = 1 };
    for (int i = 0; i < (c.quick ? MODELS / 10 : MODELS); i++) {
        nn_model *m = gen_model(&s, (gen_want){ .type = GEN_ANY, .mixer = i % (GEN_STEP + 1), .ffn = i % GEN_FFNS });
        check_model(&c, m);
        check_marks(&c, m->tape);
        for (int k = 0; k < 3; k++) { /* any buffer may be what is fetched for a further head */
            m->tape->inner = check_int(&c, 1, m->tape->n_bufs - 1);
            check_model(&c, m);
        }
        gen_free(m);
    }
    return check_end(&c);
}
