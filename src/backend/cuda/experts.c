/* SPDX-License-Identifier: Apache-2.0 */
/* Mixtures of experts as kernel launches: the choice, and the products with matrices of a row's own. */
#include "backend/cuda/cuda.h"

/* Lists of rows by their experts, where they are not there yet. */
static int sort_rows(cuda_exec *x, const nn_op *op, int item_rows, err *e) {
    if (x->sorted_of == op->in[1] && x->item_rows == item_rows) return 0;
    x->sorted_of = op->in[1];
    x->item_rows = item_rows;
    return cuda_op_sort((int32_t *)(void *)(x->heap + x->areas.order), (int32_t *)(void *)(x->heap + x->areas.items),
                        cuda_buf(x, op->in[1]), cuda_buf_rows(x, op->out), op->u.linear.w->n_stack, item_rows,
                        x->stream, e);
}

/* Experts and heads. */
int cuda_run_grouped(cuda_exec *x, const nn_op *op, err *e) {
    const nn_mat   *m = op->u.linear.w;
    const cuda_mat *w = cuda_mat_of(x, m);
    bool            experts = op->kind == NN_OP_EXPERTS;
    cuda_grouped    a = { .type = w->type,
                          .rows = m->rows,
                          .cols = m->cols,
                          .mats = (const void *const *)(const void *)(x->weights + w->table_at),
                          .n_mats = m->n_stack,
                          .xf = cuda_buf(x, op->in[0]),
                          .w_scale = w->w_scale,
                          .bias = cuda_vector(x, op->u.linear.b),
                          .n = cuda_buf_rows(x, op->out) * (experts ? 1 : m->n_stack),
                          .in_div = 1,
                          .out = cuda_buf(x, op->out) };
    int             rc = 0;
    if (experts) {
        a.in_div = cuda_info(x, op->in[0])->mult == 1 ? cuda_info(x, op->out)->mult : 1;
        a.chosen = cuda_buf(x, op->in[1]);
        a.order = (const int32_t *)(const void *)(x->heap + x->areas.order);
        a.items = (const int32_t *)(const void *)(x->heap + x->areas.items);
    }
    if (w->type == TENSOR_F32) return cuda_op_grouped(&a, x->stream, e);
    if (experts) rc = sort_rows(x, op, CUDA_ITEM_ROWS, e);
    if (rc == 0) rc = cuda_make_image(x, op->in[0], experts ? 1 : m->n_stack, &a.x, e);
    return rc < 0 ? rc : cuda_op_grouped(&a, x->stream, e);
}

/* Whether the two products of experts from `number` on have the same rows and shapes, and the gated unit of them follows. */
static bool is_gate_up(const cuda_exec *x, int number, int end) {
    const nn_op *op = &x->x.model->tape->ops[number], *next = op + 1;
    if (number + 3 > end || next->kind != NN_OP_EXPERTS || op[2].kind != NN_OP_GLU || op->acc || next->acc ||
        cuda_adapt_touches(x, number) || cuda_adapt_touches(x, number + 1))
        return false;
    const nn_mat   *m = op->u.linear.w, *u = next->u.linear.w;
    const cuda_mat *a = cuda_mat_of(x, m), *b = cuda_mat_of(x, u);
    return next->in[0] == op->in[0] && next->in[1] == op->in[1] && a->type == b->type && u->rows == m->rows &&
           u->cols == m->cols && a->each == b->each && op[2].out == op->out && op[2].in[0] == next->out &&
           cuda_is_dead(x, next->out, number + 2);
}

/* Whether the weighted sum `number` is only added to other rows by the op behind it. */
bool cuda_is_summed(const cuda_exec *x, int number, int end) {
    const nn_op *op = &x->x.model->tape->ops[number], *add = op + 1;
    return x->whole && number + 2 <= end && add->kind == NN_OP_ADD && add->in[0] == op->out && add->u.scale == 1.0f &&
           add->out != op->out && cuda_info(x, add->out)->rows == cuda_info(x, op->out)->rows &&
           cuda_info(x, add->out)->mult == 1 && cuda_is_dead(x, op->out, number + 1);
}

/* n: 2 where the sum behind it is made, too. */
int cuda_run_combine(cuda_exec *x, const nn_op *op, int n, err *e) {
    return cuda_op_combine(cuda_buf(x, op[n - 1].out), cuda_buf(x, op->in[0]),
                           op->u.combine.even ? NULL : cuda_buf(x, op->in[1]), x->batch.n_tok, op->u.combine.n_used,
                           cuda_info(x, op->out)->width, n == 2, x->stream, e);
}

/* How many of the ops from `number` on are one kernel of a few tokens' experts: gate, up and the gated unit, or down,
 * the weighted sum and where it is added. 0: none. */
int cuda_few_experts(const cuda_exec *x, int number, int end) {
    const nn_op    *op = &x->x.model->tape->ops[number], *next = op + 1;
    const cuda_mat *w = cuda_mat_of(x, op->u.linear.w);
    bool            many = cuda_info(x, op->in[0])->mult == 1; /* one row for all experts of a token */
    int             n_used = cuda_info(x, op->out)->mult;
    if (!x->whole || op->acc || cuda_buf_rows(x, op->out) != (int64_t)x->batch.n_tok * n_used) return 0;
    if (cuda_adapt_touches(x, number)) return 0;
    if (!cuda_can_experts(w->type, op->u.linear.w->cols, x->batch.n_tok, n_used)) return 0;
    if (many && is_gate_up(x, number, end)) return 3;
    if (many || number + 2 > end || next->kind != NN_OP_COMBINE || next->in[0] != op->out ||
        (!next->u.combine.even && next->in[1] != op->in[1]) || next->u.combine.n_used != n_used ||
        !cuda_is_dead(x, op->out, number + 1))
        return 0;
    if (cuda_is_summed(x, number + 1, end)) return 3;
    /* Blocks still read the rows while others write the sum. */
    return cuda_overlap(x, op->in[0], next->out) || cuda_overlap(x, op->in[1], next->out) ? 0 : 2;
}

int cuda_run_few_experts(cuda_exec *x, int number, int n, err *e) {
    const nn_op    *op = &x->x.model->tape->ops[number];
    const nn_mat   *m = op->u.linear.w;
    const cuda_mat *w = cuda_mat_of(x, m);
    bool            up = op[1].kind == NN_OP_EXPERTS;
    cuda_experts    a = { .type = w->type,
                          .rows = m->rows,
                          .cols = m->cols,
                          .gate = x->weights + w->at,
                          .each = w->each,
                          .gate_scale = w->w_scale,
                          .gate_bias = cuda_vector(x, op->u.linear.b),
                          .x = cuda_buf(x, op->in[0]),
                          .chosen = cuda_buf(x, op->in[1]),
                          .out = cuda_buf(x, op[n - 1].out),
                          .n_tok = x->batch.n_tok,
                          .n_used = cuda_info(x, op->out)->mult };
    if (up) {
        const cuda_mat *u = cuda_mat_of(x, op[1].u.linear.w);
        int             rc = cuda_make_image(x, op->in[0], 1, &a.rows16, e);
        if (rc < 0) return rc;
        a.up = x->weights + u->at;
        a.up_scale = u->w_scale;
        a.up_bias = cuda_vector(x, op[1].u.linear.b);
        a.act = cuda_act_of(op[2].u.glu.act);
        a.limit = op[2].u.glu.limit;
        a.alpha = op[2].u.glu.alpha;
        x->up_end = number + n;
    } else {
        a.even = op[1].u.combine.even;
        a.add = n == 3;
        a.known = x->up_end == number;
    }
    return cuda_op_experts(&a, x->stream, e);
}

/* How many of the ops from `number` on are one kernel of many tokens' experts: gate, up and the gated unit, or a product
 * alone. 0: grouped.cu's. */
int cuda_many_ops(const cuda_exec *x, int number, int end) {
    const nn_op  *op = &x->x.model->tape->ops[number];
    const nn_mat *m = op->u.linear.w;
    if (!cuda_can_many_experts(cuda_mat_of(x, m)->type, m->cols)) return 0;
    return x->whole && is_gate_up(x, number, end) ? 3 : 1;
}

int cuda_run_many(cuda_exec *x, int number, int n, err *e) {
    const nn_op      *op = &x->x.model->tape->ops[number];
    const nn_mat     *m = op->u.linear.w;
    const cuda_mat   *w = cuda_mat_of(x, m);
    cuda_many_experts a = { .type = w->type,
                            .rows = m->rows,
                            .cols = m->cols,
                            .gate = x->weights + w->at,
                            .each = w->each,
                            .n_mats = m->n_stack,
                            .gate_scale = w->w_scale,
                            .gate_bias = cuda_vector(x, op->u.linear.b),
                            .in_div = cuda_info(x, op->in[0])->mult == 1 ? cuda_info(x, op->out)->mult : 1,
                            .order = (const int32_t *)(const void *)(x->heap + x->areas.order),
                            .items = (const int32_t *)(const void *)(x->heap + x->areas.items),
                            .n = cuda_buf_rows(x, op->out),
                            .out = cuda_buf(x, op->out) };
    if (n == 3) {
        const cuda_mat *u = cuda_mat_of(x, op[1].u.linear.w);
        a.up = x->weights + u->at;
        a.up_scale = u->w_scale;
        a.up_bias = cuda_vector(x, op[1].u.linear.b);
        a.act = cuda_act_of(op[2].u.glu.act);
        a.limit = op[2].u.glu.limit;
        a.alpha = op[2].u.glu.alpha;
    }
    a.item_rows = cuda_item_rows(w->type, a.n, m->n_stack, m->cols);
    int rc = sort_rows(x, op, a.item_rows, e);
    if (rc == 0) rc = cuda_make_image(x, op->in[0], 1, &a.x, e);
    return rc < 0 ? rc : cuda_op_many_experts(&a, x->stream, e);
}

static cuda_route route_args(const cuda_exec *x, const nn_op *op) {
    return (cuda_route){ .logits = cuda_buf(x, op->in[0]),
                         .bias = cuda_vector(x, op->u.route.bias),
                         .expert_scale = cuda_vector(x, op->u.route.expert_scale),
                         .out = cuda_buf(x, op->out),
                         .rows = cuda_buf_rows(x, op->out),
                         .n_expert = op->u.route.n_expert,
                         .n_used = op->u.route.n_used,
                         .n_group = op->u.route.n_group,
                         .top_group = op->u.route.top_group,
                         .softmax = op->u.route.score == NN_SCORE_SOFTMAX,
                         .renorm = op->u.route.renorm,
                         .group_best = op->u.route.group_best,
                         .sparsemixer = op->u.route.score == NN_SCORE_SPARSEMIXER,
                         .jitter = op->u.route.jitter,
                         .renorm_eps = op->u.route.renorm_eps,
                         .scale = op->u.route.scale };
}

int cuda_run_route(cuda_exec *x, const nn_op *op, err *e) {
    cuda_route a = route_args(x, op);
    return cuda_op_route(&a, x->stream, e);
}

bool cuda_is_router(const cuda_exec *x, int number, int end) {
    const nn_op *op = &x->x.model->tape->ops[number], *product = op + 1, *route = op + 2;
    int64_t      width = cuda_info(x, op->out)->width;
    if (!x->whole || number + 3 > end || product->kind != NN_OP_LINEAR || route->kind != NN_OP_ROUTE ||
        op->u.norm.kind != NN_NORM_RMS || op->u.norm.b || op->u.norm.group != width || product->in[0] != op->out ||
        route->in[0] != product->out || product->acc || cuda_mat_of(x, product->u.linear.w)->type != TENSOR_F32 ||
        cuda_buf_rows(x, route->out) != cuda_buf_rows(x, op->out) || cuda_adapt_touches(x, number + 1))
        return false;
    /* Blocks still read the rows while others write results. */
    for (int i = 0; i < 3; i++) {
        if (cuda_overlap(x, op->in[0], op[i].out)) return false;
    }
    return cuda_can_router(width, route->u.route.n_expert, cuda_buf_rows(x, op->out));
}

int cuda_run_router(cuda_exec *x, const nn_op *op, err *e) {
    const nn_linear *l = &op[1].u.linear;
    cuda_router      a = { .x = cuda_buf(x, op->in[0]),
                           .norm_w = cuda_vector(x, op->u.norm.w),
                           .eps = op->u.norm.eps,
                           .normed = cuda_buf(x, op->out),
                           .w = (const float *)(const void *)(x->weights + cuda_mat_of(x, l->w)->at),
                           .bias = cuda_vector(x, l->b),
                           .logits = cuda_buf(x, op[1].out),
                           .count = (unsigned *)(void *)(x->heap + x->areas.route),
                           .route = route_args(x, op + 2),
                           .cols = l->w->cols };
    x->image_of = 0;
    (void)cuda_image_of(x, op->out, 1, &a.rows16);
    return cuda_op_router(&a, x->stream, e);
}
