/* SPDX-License-Identifier: Apache-2.0 */
/* What all executors share: the device list, options, checks, and the two-call forms in one. */
#include "nn/backend.h"

#include "nn/plan.h"

int nn_device_list(const nn_backend *const *backends, nn_device *out, int cap) {
    int n = 0;
    for (; *backends && n < cap; backends++) n += (*backends)->devices(out + n, cap - n);
    return n;
}

/* The layers whose state the executor's part of the tape touches. */
static const bool *layers_of(const nn_exec *x, arena *mem) {
    const nn_tape *t = x->model->tape;
    bool          *has = arena_calloc(mem, (size_t)t->n_layer + 1, sizeof *has);
    for (int i = x->options.first_op; has && i < x->options.end_op; i++) {
        if (t->ops[i].layer >= 0 && nn_exec_runs(&x->options, i)) has[t->ops[i].layer] = true;
    }
    return has;
}

int nn_exec_init(nn_exec *x, const nn_backend *backend, const nn_device *d, const nn_model *m, const nn_exec_options *o,
                 arena *mem, err *e) {
    const nn_limits *l = &o->limits;
    x->backend = backend;
    x->device = *d;
    x->model = m;
    x->options = *o;
    x->idle_s = -1;
    if (x->options.first_op == 0 && x->options.end_op == 0) x->options.end_op = m->tape->n_ops;
    if (l->max_tokens <= 0 || l->max_seqs <= 0 || l->max_outputs <= 0 || l->page_tokens <= 0 || l->max_pages <= 0 ||
        l->n_pages <= 0)
        return err_set(e, ERR_ARG, "limits of a step must be positive");
    if (x->options.first_op < 0 || x->options.first_op >= x->options.end_op || x->options.end_op > m->tape->n_ops)
        return err_set(e, ERR_ARG, "ops %d to %d of a tape of %d", x->options.first_op, x->options.end_op,
                       m->tape->n_ops);
    if ((unsigned)o->k_type >= NN_KV_TYPE_COUNT || (unsigned)o->v_type >= NN_KV_TYPE_COUNT)
        return err_set(e, ERR_ARG, "page types %d and %d are not known", (int)o->k_type, (int)o->v_type);
    if (o->expert_bytes && !backend->streams)
        return err_set(e, ERR_UNSUPPORTED, "%s cannot stream experts; the CPU can, also for a GPU (%s/experts:0)",
                       d->id, d->id);
    if (!(x->has_layer = layers_of(x, mem))) return err_set_nomem(e);
    return nn_groups_make(&x->groups, m, mem, e);
}

int nn_exec_step(nn_exec *x, const nn_batch *b, err *e) {
    nn_ticket step;
    int       rc = x->backend->submit(x, b, &step, e);
    return rc < 0 ? rc : x->backend->wait(x, step, e);
}

int nn_exec_move(nn_exec *x, const nn_move *moves, int n, err *e) {
    nn_ticket ticket;
    if (n == 0) return 0;
    int rc = x->backend->move(x, moves, n, &ticket, e);
    return rc < 0 ? rc : x->backend->wait(x, ticket, e);
}

nn_buf nn_fetch_buf(const nn_tape *t, nn_fetch_what what) {
    return what == NN_FETCH_LOGITS ? t->logits : what == NN_FETCH_HIDDEN ? t->hidden : t->inner;
}

int64_t nn_exec_width(const nn_exec *x, nn_fetch_what what) {
    const nn_tape *t = x->model->tape;
    return t->bufs[nn_fetch_buf(t, what)].width;
}

int nn_exec_check(const nn_exec *x, const nn_batch *b, err *e) {
    const nn_op *first = &x->model->tape->ops[0];
    int64_t      n_vocab = first->kind == NN_OP_EMBED ? first->u.embed.table->rows : x->model->dims->n_vocab;
    if (b->ahead && !x->ahead) return err_set(e, ERR_UNSUPPORTED, "guessed tokens are not supported by this executor");
    if (b->pos_axes && b->n_axes < x->model->tape->n_axes)
        return err_set(e, ERR_ARG, "positions with %d axes; this model has %d", b->n_axes, x->model->tape->n_axes);
    return nn_batch_check(b, x->model->tape, &x->options.limits, &x->groups, (int)n_vocab, x->backend->can, e);
}

static int check_move(const nn_exec *x, const nn_move *m, err *e) {
    const nn_limits *l = &x->options.limits;
    bool             page = m->kind == NN_MOVE_PAGE;
    int32_t          most = page ? l->n_pages : l->n_slots;
    if (page && (m->group < 0 || m->group >= x->groups.n))
        return err_set(e, ERR_ARG, "a page of group %d; there are %d", m->group, x->groups.n);
    if (m->from < NN_HOST || m->from >= most || m->to < NN_HOST || m->to >= most)
        return err_set(e, ERR_ARG, "%s %d to %d; there are %d", page ? "page" : "slot", m->from, m->to, most);
    if (m->from == NN_HOST && m->to == NN_HOST) return err_set(e, ERR_ARG, "a move from host memory to host memory");
    if ((m->from == NN_HOST || m->to == NN_HOST) && !m->host)
        return err_set(e, ERR_ARG, "a move without its host buffer");
    return 0;
}

int nn_exec_check_moves(const nn_exec *x, const nn_move *m, int n, err *e) {
    for (int i = 0; i < n; i++) {
        int rc = check_move(x, &m[i], e);
        if (rc < 0) return err_wrap(e, rc, "move %d", i);
    }
    return 0;
}

void nn_exec_free(nn_exec *x) {
    if (x) x->backend->free(x);
}
