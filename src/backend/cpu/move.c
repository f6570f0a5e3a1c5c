/* SPDX-License-Identifier: Apache-2.0 */
/* Moving pages and fixed states. In host memory a slot's bytes are its layers' states in order. */
#include "backend/cpu/cpu.h"

#include <string.h>

static void move_page(cpu_exec *x, const nn_move *m) {
    size_t   bytes = x->base.x.memory.page_bytes[m->group];
    uint8_t *pages = x->pages[m->group];
    if (bytes == 0 || m->from == m->to) return; /* a model without positions; nothing to do */
    const void *from = m->from == NN_HOST ? m->host : pages + (size_t)m->from * bytes;
    memcpy(m->to == NN_HOST ? m->host : pages + (size_t)m->to * bytes, from, bytes);
}

static void move_slot(cpu_exec *x, const nn_move *m) {
    size_t at = 0;
    for (int i = 0; i < x->base.x.model->dims->n_layer && m->from != m->to; i++) {
        const cpu_layer *y = &x->layers[i];
        size_t           bytes = y->fixed_floats * sizeof *y->fixed;
        if (bytes == 0) continue;
        void       *host = (uint8_t *)m->host + at;
        const void *from = m->from == NN_HOST ? host : y->fixed + (size_t)m->from * y->fixed_floats;
        memcpy(m->to == NN_HOST ? host : y->fixed + (size_t)m->to * y->fixed_floats, from, bytes);
        at += bytes;
    }
}

int cpu_move(nn_exec *base, const nn_move *moves, int n, nn_ticket *ticket, err *e) {
    int rc = nn_exec_check_moves(base, moves, n, e);
    for (int i = 0; i < n && rc == 0; i++)
        (moves[i].kind == NN_MOVE_PAGE ? move_page : move_slot)((cpu_exec *)base, &moves[i]);
    if (rc == 0) *ticket = local_ticket(base);
    return rc;
}
