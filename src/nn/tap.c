/* SPDX-License-Identifier: Apache-2.0 */
/* Inner states as a result: ops put into a tape that was recorded already. */
#include "nn/tape.h"

#include <string.h>

/* The buffer to which the layers add; 0: there is none. */
static nn_buf stream_of(const nn_tape *t) {
    for (int i = t->n_ops - 1; i >= 0; i--) {
        if (t->ops[i].kind == NN_OP_OUTPUTS) return t->ops[i].in[0];
    }
    return 0;
}

/* Where a layer begins: the last norm of the stream before the layer's state is touched. -1: not known. */
static int layer_begin(const nn_tape *t, nn_buf stream, int layer) {
    int at = 0;
    while (at < t->n_ops && t->ops[at].layer != layer) at++;
    if (at == t->n_ops) return -1;
    while (at >= 0 && !(t->ops[at].kind == NN_OP_NORM && t->ops[at].in[0] == stream)) at--;
    return at;
}

/* The ops from `from` on are moved in front of op `at`. */
static void move_ops(nn_tape *t, int from, int at) {
    nn_op moved[2];
    int   n = t->n_ops - from;
    memcpy(moved, t->ops + from, (size_t)n * sizeof *moved);
    memmove(t->ops + at + n, t->ops + at, (size_t)(from - at) * sizeof *moved);
    memcpy(t->ops + at, moved, (size_t)n * sizeof *moved);
}

/* Buffers are numbered in the order of their first use (plan.c). */
static int renumber(nn_tape *t, err *e) {
    size_t       n = (size_t)t->n_bufs;
    nn_buf      *now = arena_calloc(t->mem, n, sizeof *now), next = 1;
    nn_buf_info *bufs = arena_calloc(t->mem, n, sizeof *bufs);
    if (!now || !bufs) return err_set_nomem(e);
    for (int i = 0; i < t->n_ops; i++) {
        for (int k = -1; k < NN_MAX_IN; k++) {
            nn_buf *b = k < 0 ? &t->ops[i].out : &t->ops[i].in[k];
            if (!*b) continue;
            if (!now[*b]) {
                bufs[next] = t->bufs[*b];
                now[*b] = next++;
            }
            *b = now[*b];
        }
    }
    t->bufs = bufs;
    t->cap_bufs = t->n_bufs;
    t->n_bufs = next;
    t->hidden = now[t->hidden];
    t->logits = now[t->logits];
    t->inner = now[t->inner];
    return 0;
}

int nn_tape_tap(nn_tape *t, const int *layers, const nn_linear *w, int n, err *e) {
    nn_buf stream = stream_of(t), sum = 0;
    for (int i = 0; i < n; i++) {
        int at = stream ? layer_begin(t, stream, layers[i]) : -1, from = t->n_ops;
        if (at < 0 || (i > 0 && layers[i] < layers[i - 1]))
            return err_set(e, ERR_UNSUPPORTED, "the input of layer %d is not a result that this family has", layers[i]);
        nn_buf rows = nn_outputs(t, stream);
        if (i == 0)
            sum = nn_project(t, rows, w[i]);
        else
            nn_project_add(t, sum, rows, w[i]);
        if (t->failed) {
            if (e) *e = t->error;
            return t->error.code;
        }
        move_ops(t, from, at);
    }
    t->inner = sum;
    return renumber(t, e);
}
