/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fast backend beside the reference, op by op.
 *
 * After each op both results are compared, then the reference takes over the fast one's numbers, so that every op is
 * judged on the same inputs. The bound is relative to the root mean square of the op's result: wide for products with
 * int8 activations, narrow for everything else. A product of a few weight rows may come out near zero by chance, which
 * makes the rounding of its inputs no smaller: there the size that such products usually have counts. Both plans lay
 * buffers out alike, so a buffer number is enough.
 */
#include "backend/backend.h"

#include "kernels/kvpage.h"
#include "kernels/matmul.h"
#include "tensor/codec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double bound_of(const nn_exec *fast, const nn_op *op) {
    bool product = op->kind == NN_OP_LINEAR || op->kind == NN_OP_HEAD_LINEAR || op->kind == NN_OP_EXPERTS;
    if (product && matmul_input((int)op->u.linear.w->at[0].type) == MATMUL_ACT8) return 0.15;
    if ((op->kind == NN_OP_ATTN || op->kind == NN_OP_LATENT_ATTN) && fast->options.k_type != KV_F32)
        return fast->options.k_type == KV_F16 || fast->options.k_type == KV_BF16 ? 3e-2 : 3e-1;
    return 2e-4;
}

/* |w| |x| / sqrt(n) of the first weight row and the largest input row: what a product of n inputs is like when nothing
 * speaks for a direction. 0 where there are results enough to see it. */
static double usual_size(nn_exec *x, const nn_op *op) {
    const nn_mat *w = op->u.linear.w;
    double        weights = 0, largest = 0;
    float        *row;
    if (op->kind != NN_OP_LINEAR || w->rows >= 16 || !(row = malloc((size_t)w->cols * sizeof *row))) return 0;
    tensor_mat_dequant_row(w->at, 0, 0, row);
    for (int64_t k = 0; k < w->cols; k++) weights += (double)row[k] * (double)row[k];
    free(row);
    const float *in = nn_exec_buf(x, op->in[0]);
    for (int64_t i = 0; i < nn_exec_rows(x, op->in[0]); i++, in += w->cols) {
        double sum = 0;
        for (int64_t k = 0; k < w->cols; k++) sum += (double)in[k] * (double)in[k];
        largest = fmax(largest, sum);
    }
    return sqrt(weights * largest / (double)w->cols);
}

/* Expert numbers are compared as such; ties may fall either way, so the weights decide. */
static double difference(const nn_op *op, const float *a, const float *b, int64_t n, double *rms) {
    double worst = 0, sum = 0;
    for (int64_t i = 0; i < n; i++) {
        if (op->kind == NN_OP_ROUTE && i % 2 == 0) continue;
        double d = fabs((double)a[i] - (double)b[i]);
        if (!(d <= worst)) worst = d; /* NaN counts as the worst */
        sum += (double)b[i] * (double)b[i];
    }
    *rms = sqrt(sum / (double)(n ? n : 1));
    return worst;
}

int backend_compare(nn_exec *fast, nn_exec *reference, const nn_batch *b, int *bad_op, str *report, err *e) {
    const nn_tape *t = fast->model->tape;
    int            rc;
    *bad_op = -1;
    if ((rc = fast->backend->begin(fast, b, e)) < 0) return rc;
    if ((rc = reference->backend->begin(reference, b, e)) < 0) return rc;
    for (int i = 0; i < t->n_ops; i++) {
        const nn_op *op = &t->ops[i];
        fast->backend->run(fast, i, i + 1);
        if (*bad_op >= 0) continue;
        reference->backend->run(reference, i, i + 1);
        if (!op->out) continue;
        int64_t n = nn_exec_rows(fast, op->out) * t->bufs[op->out].width;
        float  *a = nn_exec_buf(fast, op->out), *r = nn_exec_buf(reference, op->out);
        double  rms, worst = difference(op, a, r, n, &rms);
        double  bound = bound_of(fast, op) * fmax(rms, usual_size(reference, op));
        if (!(worst <= bound + 1e-9)) {
            *bad_op = i;
            str_printf(report, "op %d differs by %.3g, bound %.3g (root mean square %.3g): ", i, worst, bound, rms);
            nn_op_print(t, op, report);
        }
        memcpy(r, a, (size_t)n * sizeof *r);
    }
    return 0;
}
