/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A head of EAGLE-3 for a model that is open. Its fc takes three inner states side by side; that is the sum of three
 * products, which the model's tape computes where the states are, so that only the sum leaves the device.
 */
#include "nn/next.h"

#include <stdlib.h>
#include <string.h>

bool nn_eagle_is(const model_file *file) {
    static const char *const marks[] = { "midlayer.hidden_norm.weight", "model.midlayer.hidden_norm.weight",
                                         "layers.0.hidden_norm.weight", "model.layers.0.hidden_norm.weight" };
    const char              *arch = model_file_arch(file);
    if (arch && strcmp(arch, "eagle3") == 0) return true;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        if (model_file_tensor(file, marks[i])) return true;
    }
    return false;
}

/* Column ranges of fc as matrices of their own: copies in its own type. */
static int split(arena *mem, const nn_mat *fc, nn_linear *out, err *e) {
    const tensor_mat *all = fc->at;
    int64_t           cols = fc->cols / NN_EAGLE_TAPS;
    size_t            part = all->row_bytes / NN_EAGLE_TAPS;
    if (all->scales || all->row_bytes % NN_EAGLE_TAPS || cols % tensor_type_get((int)all->type)->block_elems)
        return err_set(e, ERR_UNSUPPORTED, "tensor %s of type %s does not divide into %d parts", fc->name,
                       tensor_type_name(all->type), NN_EAGLE_TAPS);
    for (int i = 0; i < NN_EAGLE_TAPS; i++) {
        tensor_mat *at = arena_calloc(mem, 1, sizeof *at);
        nn_mat     *m = arena_calloc(mem, 1, sizeof *m);
        uint8_t    *data = arena_alloc(mem, (size_t)fc->rows * part);
        if (!at || !m || !data) return err_set_nomem(e);
        for (int64_t r = 0; r < fc->rows; r++)
            memcpy(data + (size_t)r * part, (const uint8_t *)all->data + (size_t)r * all->row_bytes + (size_t)i * part,
                   part);
        *at = *all;
        at->cols = cols;
        at->row_bytes = part;
        at->data = data;
        *m = (nn_mat){ fc->name, fc->rows, cols, 0, at, NULL };
        out[i] = (nn_linear){ .w = m };
    }
    return 0;
}

static int64_t integer_at(const model_tensor *t, int64_t i) {
    int64_t wide;
    int32_t narrow;
    if (t->type == TENSOR_I64) {
        memcpy(&wide, t->data + (size_t)i * sizeof wide, sizeof wide);
        return wide;
    }
    memcpy(&narrow, t->data + (size_t)i * sizeof narrow, sizeof narrow);
    return narrow;
}

/* Which token each logit is for: Hugging Face's files hold the distance to it, GGUF's the token. */
static int read_ids(nn_next *x, const nn_model *target, err *e) {
    const model_file   *f = x->model->file;
    const model_tensor *t = model_file_tensor(f, "d2t");
    int64_t             n = x->model->tape->bufs[x->model->tape->logits].width;
    bool                gguf = nn_config_gguf(&x->model->config);
    if (!t && !(t = model_file_tensor(f, "model.d2t"))) return 0;
    if ((t->type != TENSOR_I64 && t->type != TENSOR_I32) || t->dims[0] < n)
        return err_set(e, ERR_FORMAT, "tensor %s has %lld values of type %s where %lld integers were expected", t->name,
                       (long long)t->dims[0], tensor_type_name(t->type), (long long)n);
    int32_t *ids = arena_calloc(&x->model->mem, (size_t)n, sizeof *ids);
    if (!ids) return err_set_nomem(e);
    for (int64_t i = 0; i < n; i++) {
        int64_t v = integer_at(t, i), id = v < -INT32_MAX || v > INT32_MAX ? -1 : v + (gguf ? 0 : i);
        if (id < 0 || id >= target->dims->n_vocab)
            return err_set(e, ERR_FORMAT, "tensor %s names token %lld; the vocabulary has %d", t->name, (long long)id,
                           target->dims->n_vocab);
        ids[i] = (int32_t)id;
    }
    x->ids = ids;
    return 0;
}

/* The layers that it reads: those that it names, or the published choice. */
static int choose_taps(const nn_eagle_dims *d, int n_layer, int *out, err *e) {
    const int usual[NN_EAGLE_TAPS] = { 2, n_layer / 2, n_layer - 3 };
    for (int i = 0; i < NN_EAGLE_TAPS; i++) {
        out[i] = d->taps[i] >= 0 ? d->taps[i] : usual[i];
        if (out[i] < 0 || out[i] >= n_layer)
            return err_set(e, ERR_UNSUPPORTED, "it reads the input of layer %d, the model has %d", out[i], n_layer);
    }
    return 0;
}

static int open_eagle(nn_next *x, nn_model *target, err *e) {
    const nn_eagle_dims *d = x->model->net.hp;
    const nn_eagle_top  *top = x->model->net.top;
    const nn_op         *first = &target->tape->ops[0];
    nn_linear            parts[NN_EAGLE_TAPS];
    int                  taps[NN_EAGLE_TAPS], rc;
    if (!x->model->tape->logits)
        return err_set(e, ERR_UNSUPPORTED, "a head without an output matrix of its own is not supported");
    if (!target->tape->logits || target->tape->inner)
        return err_set(e, ERR_UNSUPPORTED, "this model does not write, or has such a head already");
    if (d->n_target != target->dims->n_embd)
        return err_set(e, ERR_UNSUPPORTED, "it is for inner states of %d, the model's have %d", d->n_target,
                       target->dims->n_embd);
    x->embd = top->embd ? top->embd : first->kind == NN_OP_EMBED ? first->u.embed.table : NULL;
    x->scale = top->embd ? 1.0f : first->u.embed.scale;
    x->n_hidden = d->d.n_embd;
    x->reads = NN_FETCH_INNER;
    x->alone = true;
    if (!x->embd || x->embd->cols != x->n_hidden)
        return err_set(e, ERR_UNSUPPORTED, "it has no embedding of its own, and the model's does not fit");
    if ((rc = choose_taps(d, target->dims->n_layer, taps, e)) < 0) return rc;
    if ((rc = read_ids(x, target, e)) < 0) return rc;
    if ((rc = split(&x->model->mem, top->fc, parts, e)) < 0) return rc;
    return nn_tape_tap(target->tape, taps, parts, NN_EAGLE_TAPS, e);
}

int nn_eagle_open(nn_next **out, nn_model *target, const model_file *file, const nn_arch *arch, err *e) {
    nn_part part = { .arch = arch, .config = model_file_config(file), .keys = "eagle3" };
    *out = NULL;
    nn_next *x = calloc(1, sizeof *x);
    if (!x) return err_set_nomem(e);
    int rc = nn_model_open_part(&x->model, file, &part, e);
    if (rc == 0 && (rc = open_eagle(x, target, e)) < 0)
        rc = err_wrap(e, rc, "%s: the head of EAGLE-3", model_file_path(file));
    if (rc < 0) {
        nn_next_free(x);
        return rc;
    }
    *out = x;
    return 0;
}
