/* SPDX-License-Identifier: Apache-2.0 */
/* Moving pages and fixed states of the reference backend. In host memory a page is its layers' keys, values and keys of
 * an index, a slot its layers' states, in order. */
#include "backend/scalar/scalar.h"

#include <string.h>

/* One array's part of a move: `bytes` per number, at `at` bytes into the host buffer. */
static void copy(const nn_move *m, void *array, size_t bytes, size_t *at) {
    uint8_t *host = (uint8_t *)m->host + *at, *base = array;
    if (bytes == 0 || m->from == m->to) return;
    memcpy(m->to == NN_HOST ? host : base + (size_t)m->to * bytes,
           m->from == NN_HOST ? host : base + (size_t)m->from * bytes, bytes);
    *at += bytes;
}

static void move_one(scalar_exec *x, const nn_move *m) {
    size_t tokens = (size_t)x->base.x.options.limits.page_tokens, at = 0;
    for (int i = 0; i < x->base.x.model->dims->n_layer; i++) {
        const scalar_layer *y = &x->layers[i];
        if (m->kind == NN_MOVE_SLOT) {
            copy(m, y->fixed, y->fixed_floats * sizeof(float), &at);
        } else if (x->base.x.groups.of_layer[i] == m->group) {
            copy(m, y->k, tokens * (size_t)y->k_width * sizeof(float), &at);
            copy(m, y->v, tokens * (size_t)y->v_width * sizeof(float), &at);
            copy(m, y->index, tokens * (size_t)y->index_width * sizeof(float), &at);
        }
    }
}

int scalar_move(nn_exec *base, const nn_move *moves, int n, nn_ticket *ticket, err *e) {
    int rc = nn_exec_check_moves(base, moves, n, e);
    for (int i = 0; i < n && rc == 0; i++) move_one((scalar_exec *)base, &moves[i]);
    if (rc == 0) *ticket = local_ticket(base);
    return rc;
}
