/* SPDX-License-Identifier: Apache-2.0 */
/* Adapter sets on the reference backend, row by row as nn/adapter.h defines them. */
#include "backend/scalar/scalar.h"

#include "base/err.h"
#include "tensor/codec.h"

#include <string.h>

int scalar_adapt_set(nn_exec *base, int number, const nn_adapter_set *set, err *e) {
    scalar_exec *x = (scalar_exec *)base;
    if (number < 1 || number > NN_MAX_SETS) return err_set(e, ERR_LIMIT, "adapter set %d of %d", number, NN_MAX_SETS);
    x->sets[number] = set;
    return 0;
}

int scalar_adapt_begin(scalar_exec *x, err *e) {
    const nn_batch *b = &x->base.batch;
    for (int t = 0; b->adapter && t < b->n_tok; t++) {
        int s = b->adapter[t];
        if (s < 0 || s > NN_MAX_SETS || (s > 0 && !x->sets[s]))
            return err_set(e, ERR_ARG, "row %d: there is no adapter set %d", t, s);
    }
    return 0;
}

const nn_set_op *scalar_adapt_of(const scalar_exec *x, const nn_op *op, int64_t row) {
    const nn_batch    *b = &x->base.batch;
    const nn_tape     *t = x->base.x.model->tape;
    const nn_buf_info *i = &t->bufs[op->out];
    if (!b->adapter) return NULL;
    int64_t token = row / i->mult;
    if (i->rows != NN_ROWS_TOKENS) token = b->out_rows[token];
    const nn_adapter_set *s = x->sets[b->adapter[token]];
    return b->adapter[token] ? s->ops[op - t->ops] : NULL;
}

/* y += scale * gain * B t */
static void expand(const nn_lora *l, const nn_set_part *p, const double *t, double scale, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int j = 0; j < l->used; j++) sum += (double)nn_lora_b(l, i, j) * t[j];
        y[i] = (float)((double)y[i] +
                       sum * scale * (double)l->scale * (double)p->scale * (p->gain ? (double)p->gain[i] : 1));
    }
}

void scalar_adapt_row(scalar_exec *x, const nn_set_op *o, const tensor_mat *m, int expert, const float *bias,
                      const float *in, float *out, bool acc) {
    for (int64_t r = 0; r < m->rows; r++) {
        double sum = 0;
        tensor_mat_dequant_row(m, 0, r, x->row);
        for (int64_t i = 0; i < m->cols; i++)
            sum += (double)x->row[i] * (double)in[i] * (o->in_gain ? (double)o->in_gain[i] : 1);
        if (o->gain) sum *= (double)o->gain[r];
        if (bias) sum += (double)bias[r] * (o->bias_gain ? (double)o->bias_gain[r] : 1);
        out[r] = (float)(acc ? (double)out[r] + sum : sum);
    }
    for (int k = 0; k < o->n_parts; k++) {
        const nn_lora *l = &o->parts[k].patch->lora[expert];
        double         t[NN_ADAPTER_MAX_RANK] = { 0 };
        for (int j = 0; j < l->used; j++) {
            for (int64_t i = 0; i < m->cols; i++) t[j] += (double)nn_lora_a(l, j, i) * (double)in[i];
        }
        expand(l, &o->parts[k], t, 1, out, m->rows);
    }
}

void scalar_adapt_embed(const nn_set_op *o, const nn_op *op, int32_t token, float *y) {
    for (int k = 0; k < o->n_parts; k++) {
        const nn_lora *l = o->parts[k].patch->lora;
        double         t[NN_ADAPTER_MAX_RANK];
        for (int j = 0; j < l->used; j++) t[j] = (double)nn_lora_a(l, j, token);
        expand(l, &o->parts[k], t, (double)op->u.embed.scale, y, op->u.embed.table->cols);
    }
}
