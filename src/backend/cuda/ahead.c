/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes on beside a product of few rows, so that the kernel behind it need not wait. A norm's weights are read once
 * per step, from memory, by a product that can do nothing before it has them: the product in front asks for them. And
 * attention of one row is a chain of waits, of which the first are over when it starts beside the product in front.
 *
 * Weights of the next product are not asked for: 4 to 8 MB of them changed nothing, more made a step slower.
 */
#include "backend/cuda/cuda.h"

/* The norm in front of the next product, from op `number` on or in the next step. */
cuda_ahead cuda_ahead_of(const cuda_exec *x, int number) {
    const nn_tape *t = x->x.model->tape;
    int            first = x->x.options.first_op, end = x->x.options.end_op;
    cuda_ahead     a = { 0 };
    if (!x->whole || x->batch.n_tok > CUDA_FEW) return a;
    for (int k = 0, i = number; k < end - first; k++, i++) {
        if (i >= end) i = first;
        const nn_op *op = &t->ops[i];
        if (!nn_exec_runs(&x->x.options, i)) continue;
        if (cuda_product_of(op)) return a;
        const nn_vec *w = op->kind == NN_OP_NORM ? op->u.norm.w : NULL;
        if (w && w->n % 4 == 0) a = (cuda_ahead){ cuda_vec_of(x, w->data), (uint32_t)w->n * sizeof(float) };
    }
    return a;
}

size_t cuda_beside(const cuda_exec *x, int number) {
    const nn_tape *t = x->x.model->tape;
    if (!x->whole || x->batch.n_tok != 1) return 0;
    for (int i = number; i < x->x.options.end_op && i < number + 4; i++) {
        if (t->ops[i].kind == NN_OP_ATTN) return CUDA_ATTN_BESIDE;
        if (t->ops[i].kind != NN_OP_ROPE && t->ops[i].kind != NN_OP_KV_STORE) return 0;
    }
    return 0;
}
