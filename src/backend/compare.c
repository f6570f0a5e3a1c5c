/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fast backend beside the reference, op by op.
 *
 * After each op both results are compared, then the reference takes over the fast one's numbers, so that every op is
 * judged on the same inputs. The bound is relative to the root mean square of the op's result: wide for products with
 * int8 activations, narrow for everything else. A product of a few weight rows may come out near zero by chance, which
 * makes the rounding of its inputs no smaller: there the size that such products usually have counts. And a product rounds
 * each row by itself: one that is larger than the others differs by more. Of what an indexer chose, a share may differ.
 */
#include "backend/backend.h"

#include "kernels/matmul.h"
#include "tensor/codec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What rounding keys and values may change, in parts of the result. A row that sees few positions does not average it
 * away. */
static double page_bound(nn_kv_type type) {
    static const double bounds[NN_KV_TYPE_COUNT] = {
        [NN_KV_F16] = 3e-2, [NN_KV_BF16] = 3e-2, [NN_KV_Q8_0] = 1e-1, [NN_KV_Q4_0] = 6e-1, [NN_KV_Q5_0] = 3e-1,
        [NN_KV_TQ4] = 6e-1, [NN_KV_TQ3] = 9e-1,  [NN_KV_TQ2] = 1.5,   [NN_KV_FP8] = 3e-1,
    };
    return bounds[type];
}

/* A GPU multiplies f16 numbers; F32 weights stay as they are. */
static double gpu_product_bound(tensor_type type) {
    if (type == TENSOR_F32) return 2e-4;
    return type == TENSOR_BF16 || type == TENSOR_F16 ? 8e-3 : 1.5e-2;
}

static bool is_product(const nn_op *op) {
    return op->kind == NN_OP_LINEAR || op->kind == NN_OP_HEAD_LINEAR || op->kind == NN_OP_EXPERTS;
}

/* Whether a GPU computes an op. */
static bool on_gpu(const nn_exec *x, const nn_op *op) {
    return backend_kind_at(x, (int)(op - x->model->tape->ops)) == NN_DEVICE_GPU;
}

static double bound_of(const nn_exec *fast, const nn_op *op) {
    const bool product = is_product(op);
    if (product && on_gpu(fast, op)) return gpu_product_bound(op->u.linear.w->at[0].type);
    if (product && matmul_input((int)op->u.linear.w->at[0].type) == MATMUL_ACT8) return 0.15;
    if (op->kind == NN_OP_LATENT_ATTN) return fmax(2e-4, 1.5 * page_bound(fast->options.k_type)); /* as below */
    if (op->kind == NN_OP_ATTN && on_gpu(fast, op) &&
        fast->model->state[op->layer].kind == NN_STATE_STEP) /* it may round a step's own keys and values to f16 */
        return 2.5 * page_bound(NN_KV_F16);
    if (op->kind == NN_OP_ATTN) /* rounded keys move the weights, which may take all of a row elsewhere */
        return fmax(2e-4, 1.5 * page_bound(fast->options.k_type) + page_bound(fast->options.v_type));
    return 2e-4;
}

/* The numbers of both sides for one op, and of its input. */
typedef struct numbers {
    float *fast, *reference, *in;
} numbers;

static void numbers_free(numbers *n) {
    free(n->fast);
    free(n->reference);
    free(n->in);
    *n = (numbers){ 0 };
}

static size_t floats_of(const nn_exec *x, const nn_batch *b, nn_buf buf) {
    const nn_tape *t = x->model->tape;
    return buf ? (size_t)nn_batch_rows(b, t, buf) * (size_t)t->bufs[buf].width : 0;
}

/* Room for an op's result and its first input. */
static int numbers_open(numbers *n, const nn_exec *x, const nn_batch *b, const nn_op *op, err *e) {
    size_t out = floats_of(x, b, op->out) + 1, in = floats_of(x, b, op->in[0]) + 1;
    *n = (numbers){ malloc(out * sizeof(float)), malloc(out * sizeof(float)), malloc(in * sizeof(float)) };
    if (n->fast && n->reference && n->in) return 0;
    numbers_free(n);
    return err_set_nomem(e);
}

/* |w| |x| / sqrt(n) of the first weight row and the largest input row: what a product of n inputs is like when nothing
 * speaks for a direction. 0 where there are results enough to see it; the rows that experts read are of very different
 * size. */
static double usual_size(nn_exec *x, const nn_batch *b, const nn_op *op, float *in) {
    const nn_mat *w = op->u.linear.w;
    double        weights = 0, largest = 0;
    float        *row;
    if (op->kind != NN_OP_EXPERTS && (op->kind != NN_OP_LINEAR || w->rows >= 16)) return 0;
    if (!(row = malloc((size_t)w->cols * sizeof *row))) return 0;
    tensor_mat_dequant_row(w->at, 0, 0, row);
    for (int64_t k = 0; k < w->cols; k++) weights += (double)row[k] * (double)row[k];
    free(row);
    if (x->backend->read(x, op->in[0], in, NULL) < 0) return 0;
    for (int64_t i = 0; i < nn_batch_rows(b, x->model->tape, op->in[0]); i++, in += w->cols) {
        double sum = 0;
        for (int64_t k = 0; k < w->cols; k++) sum += (double)in[k] * (double)in[k];
        largest = fmax(largest, sum);
    }
    return sqrt(weights * largest / (double)w->cols);
}

/* Root mean square of n results. Expert numbers are compared as such; ties may fall either way, so the weights decide. */
static double size_of(const nn_op *op, const float *v, int64_t n) {
    double sum = 0;
    for (int64_t i = op->kind == NN_OP_ROUTE; i < n; i += op->kind == NN_OP_ROUTE ? 2 : 1)
        sum += (double)v[i] * (double)v[i];
    return sqrt(sum / (double)(n ? n : 1));
}

static double worst_of(const nn_op *op, const float *a, const float *b, int64_t n) {
    double worst = 0;
    for (int64_t i = op->kind == NN_OP_ROUTE; i < n; i += op->kind == NN_OP_ROUTE ? 2 : 1) {
        double d = fabs((double)a[i] - (double)b[i]);
        if (!(d <= worst)) worst = d; /* NaN counts as the worst */
    }
    return worst;
}

/* The bound in parts of a result's size, and the least size. */
typedef struct measure {
    double  part, least;
    int64_t width; /* of what has a size of its own */
} measure;

static measure measure_of(nn_exec *reference, const nn_exec *fast, const nn_batch *b, const nn_op *op, const float *out,
                          float *in) {
    const int64_t n = (int64_t)floats_of(fast, b, op->out);
    measure       m = { bound_of(fast, op), fmax(size_of(op, out, n), usual_size(reference, b, op, in)), n };
    /* A GPU has the factors of adapters in f16, however they are kept. */
    bool adapted = op->kind == NN_OP_EMBED || op->kind == NN_OP_LINEAR || op->kind == NN_OP_EXPERTS;
    if (adapted && b->adapter && on_gpu(fast, op)) m.part = fmax(m.part, gpu_product_bound(TENSOR_F16));
    if (is_product(op) && n) m.width = fast->model->tape->bufs[op->out].width;
    return m;
}

static double bound_at(const measure *m, const nn_op *op, const float *row) {
    return m->part * fmax(m->least, size_of(op, row, m->width)) + 1e-9;
}

int backend_bound(nn_exec *x, const nn_batch *b, int i, double *bound, err *e) {
    const nn_op *op = &x->model->tape->ops[i];
    numbers      v;
    int          rc;
    *bound = 0;
    if (!op->out) return 0;
    if ((rc = numbers_open(&v, x, b, op, e)) < 0) return rc;
    if ((rc = x->backend->read(x, op->out, v.fast, e)) == 0) {
        measure m = measure_of(x, x, b, op, v.fast, v.in);
        int64_t n = (int64_t)floats_of(x, b, op->out);
        for (int64_t at = 0; at < n; at += m.width) *bound = fmax(*bound, bound_at(&m, op, v.fast + at));
    }
    numbers_free(&v);
    return rc;
}

/* In parts of all that was chosen by rows that could not see all, what the other did not choose; ids are rising. More
 * than 1: one of them is broken. */
static double apart(const nn_op *op, const nn_batch *batch, const float *a, const float *b, int64_t n) {
    const nn_choose_spec *s = &op->u.choose;
    const int64_t         wide = 1 + (int64_t)s->top;
    double                other = 0, all = 0;
    for (int64_t line = 0; line * wide < n; line++, a += wide, b += wide) {
        const int64_t n_block = batch->pos[line / s->n_group] / s->block + 1;
        int32_t       count[2], x, y, last = -1;
        memcpy(&count[0], a, sizeof *count);
        memcpy(&count[1], b, sizeof *count);
        if (count[0] != count[1] || count[0] != (n_block < s->top ? n_block : s->top)) return 2;
        if (n_block > s->top) all += count[0];
        for (int i = 1, j = 1; i <= count[0]; i++, last = x) {
            memcpy(&x, &a[i], sizeof x);
            if (x <= last || x >= n_block) return 2;
            for (memcpy(&y, &b[j], sizeof y); y < x && j < count[1]; memcpy(&y, &b[j], sizeof y)) j++;
            other += y != x;
        }
    }
    return all > 0 ? other / all : 0;
}

/* Where keys are rounded, some are chosen whose scores are nearly those of others. */
static double choice_bound(const nn_exec *fast) { return fast->options.k_type == NN_KV_F32 ? 0.02 : 0.25; }

/* Both results, compared; the reference then has the fast one's. */
static int judge(nn_exec *fast, nn_exec *reference, const nn_batch *b, int i, numbers *v, bool *bad, str *report,
                 err *e) {
    const nn_tape *t = fast->model->tape;
    const nn_op   *op = &t->ops[i];
    const int64_t  n = (int64_t)floats_of(fast, b, op->out);
    int            rc;
    if ((rc = fast->backend->read(fast, op->out, v->fast, e)) < 0) return rc;
    if ((rc = reference->backend->read(reference, op->out, v->reference, e)) < 0) return rc;
    if (op->kind == NN_OP_CHOOSE) {
        double part = apart(op, b, v->fast, v->reference, n);
        *bad = part > choice_bound(fast);
        if (*bad) str_printf(report, "op %d chooses others, %.3g of all, bound %.3g: ", i, part, choice_bound(fast));
        if (*bad) nn_op_print(t, op, report);
        return reference->backend->write(reference, op->out, v->fast, e);
    }
    const measure m = measure_of(reference, fast, b, op, v->reference, v->in);
    for (int64_t at = 0; at < n && !*bad; at += m.width) {
        double worst = worst_of(op, v->fast + at, v->reference + at, m.width);
        double bound = bound_at(&m, op, v->reference + at);
        if (worst <= bound) continue;
        *bad = true;
        str_printf(report, "op %d differs by %.3g, bound %.3g (%.3g of %.3g): ", i, worst, bound, m.part,
                   bound / m.part);
        nn_op_print(t, op, report);
    }
    return reference->backend->write(reference, op->out, v->fast, e);
}

int backend_compare_op(nn_exec *fast, nn_exec *reference, const nn_batch *b, int i, bool *bad, str *report, err *e) {
    const nn_op *op = &fast->model->tape->ops[i];
    numbers      v;
    int          rc;
    *bad = false;
    if ((rc = fast->backend->run(fast, i, i + 1, e)) < 0) return rc;
    if ((rc = reference->backend->run(reference, i, i + 1, e)) < 0 || !op->out) return rc;
    if ((rc = numbers_open(&v, fast, b, op, e)) < 0) return rc;
    rc = judge(fast, reference, b, i, &v, bad, report, e);
    numbers_free(&v);
    return rc;
}

int backend_compare(nn_exec *fast, nn_exec *reference, const nn_batch *b, int *bad_op, str *report, err *e) {
    int rc, n_ops = fast->model->tape->n_ops;
    *bad_op = -1;
    if ((rc = fast->backend->begin(fast, b, e)) < 0) return rc;
    if ((rc = reference->backend->begin(reference, b, e)) < 0) return rc;
    for (int i = 0; i < n_ops && rc == 0; i++) {
        bool bad;
        if (*bad_op >= 0) return fast->backend->run(fast, i, n_ops, e);
        rc = backend_compare_op(fast, reference, b, i, &bad, report, e);
        if (bad) *bad_op = i;
    }
    return rc;
}
