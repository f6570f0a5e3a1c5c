/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the experts of a model lie in its files, and how they will lie in slots.
 *
 * The arrays of one expert are stretches of files; each is widened to multiples of FILE_READER_ALIGN, and those that touch
 * then become one extent: gate and up that lie row by row in one tensor, or the tensors of one expert one behind the
 * other. In the slot the extents stand one behind the other, so an array has the same place within a page as in the
 * file, and kernels meet the alignment that they would meet in the mapping.
 */
#include "backend/cpu/store.h"

#include "base/num.h"
#include "nn/divide.h"

#include <stdlib.h>
#include <string.h>

enum { KEPT_BELOW = 512, ARRAYS = STORE_OPS * STORE_ARRAYS };

/* One array of an expert. */
typedef struct stretch {
    int      file;
    uint64_t at;
    size_t   bytes;
    size_t  *place; /* where to say where it is in the slot */
} stretch;

static int by_place(const void *a, const void *b) {
    const stretch *x = a, *y = b;
    if (x->file != y->file) return x->file < y->file ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Bytes from the first to the last that kernels read: rows may lie apart. */
static bool array_bytes(const tensor_mat *m, int which, size_t *out) {
    size_t one;
    if (which == 0) {
        if (!tensor_row_bytes((int)m->type, m->cols, &one)) one = m->row_bytes;
        return num_mul_size((size_t)(m->rows - 1), m->row_bytes, out) && num_add_size(*out, one, out);
    }
    size_t rows = (size_t)((m->rows + num_max(m->group_rows, 1) - 1) / num_max(m->group_rows, 1));
    size_t across = (size_t)((m->cols + num_max(m->group, 1) - 1) / num_max(m->group, 1));
    return tensor_row_bytes((int)m->scale_type, (int64_t)across, &one) &&
           num_mul_size(rows - 1, m->scale_row_bytes, out) && num_add_size(*out, one, out);
}

static const void **array_of(tensor_mat *m, int which) {
    return which == 0 ? &m->data : which == 1 ? &m->scales : &m->biases;
}

/* What is known while the experts are gone through. */
typedef struct finding {
    store_layout   *out;
    const nn_model *model;
    bool            copy;
    arena          *mem;
    err            *e;
} finding;

static int keep_array(finding *f, const void **data, size_t bytes) {
    f->out->table_bytes += bytes;
    if (!f->copy) return 0;
    void *copy = arena_alloc(f->mem, bytes);
    if (!copy) return err_set_nomem(f->e);
    memcpy(copy, *data, bytes);
    *data = copy;
    return 0;
}

/* The arrays of one matrix that are streamed. */
static int add_arrays(finding *f, store_mat *s, const nn_mat *w, stretch *list, int *n) {
    for (int k = 0; k < STORE_ARRAYS; k++) {
        const void **data = array_of(&s->mat, k);
        size_t       bytes;
        s->at[k] = STORE_KEPT;
        if (!*data) continue;
        if (!array_bytes(&s->mat, k, &bytes))
            return err_set(f->e, ERR_UNSUPPORTED, "tensor %s: experts of this shape cannot be streamed", w->name);
        if (bytes < KEPT_BELOW) {
            int rc = keep_array(f, data, bytes);
            if (rc < 0) return rc;
            continue;
        }
        stretch one = { .bytes = bytes, .place = &s->at[k] };
        one.file = model_file_locate(f->model->file, *data, bytes, &one.at);
        if (one.file < 0)
            return err_set(f->e, ERR_UNSUPPORTED,
                           "tensor %s does not lie in the file as it is computed with: its experts cannot be streamed",
                           w->name);
        f->out->file_bytes += bytes;
        list[(*n)++] = one;
    }
    return 0;
}

static uint64_t align_down(uint64_t v) { return v / FILE_READER_ALIGN * FILE_READER_ALIGN; }

/* Extents of an expert from its stretches; its bytes in a slot. */
static size_t join(store_expert *x, stretch *list, int n) {
    size_t to = 0;
    qsort(list, (size_t)n, sizeof *list, by_place);
    x->n_extents = 0;
    for (int i = 0; i < n; i++) {
        uint64_t            begin = align_down(list[i].at), end = list[i].at + list[i].bytes;
        file_reader_extent *last = x->n_extents ? &x->extents[x->n_extents - 1] : NULL;
        if (!last || last->file != list[i].file || begin > last->at + last->bytes) {
            last = &x->extents[x->n_extents++];
            *last = (file_reader_extent){ .file = list[i].file, .at = begin, .to = to };
        }
        if (end - last->at > last->least) last->least = (size_t)(end - last->at);
        last->bytes = (last->least + FILE_READER_ALIGN - 1) / FILE_READER_ALIGN * FILE_READER_ALIGN;
        *list[i].place = last->to + (size_t)(list[i].at - last->at);
        to = last->to + last->bytes;
    }
    return to;
}

static int find_expert(finding *f, store_mixture *m, int e) {
    const nn_tape *t = f->model->tape;
    store_expert  *x = &m->experts[e];
    stretch        list[ARRAYS];
    int            n = 0, rc = 0;
    for (int k = 0; k < m->n_ops && rc == 0; k++) {
        const nn_mat *w = t->ops[m->ops[k]].u.linear.w;
        x->mats[k].mat = w->at[e];
        rc = add_arrays(f, &x->mats[k], w, list, &n);
    }
    if (rc < 0) return rc;
    if (!(x->extents = arena_calloc(f->mem, (size_t)n + 1, sizeof *x->extents))) return err_set_nomem(f->e);
    size_t bytes = join(x, list, n);
    if (bytes > m->slot_bytes) m->slot_bytes = bytes;
    return 0;
}

/* The layer whose state was touched last in front of an op. */
static int layer_before(const nn_tape *t, int op) {
    while (op > 0 && t->ops[op].layer < 0) op--;
    return t->ops[op].layer;
}

static bool runs_in_waves(nn_op_kind kind) {
    return kind == NN_OP_EXPERTS || kind == NN_OP_GLU || kind == NN_OP_ACT || kind == NN_OP_CLAMP ||
           kind == NN_OP_WEIGH;
}

static int find_mixture(finding *f, store_mixture *m, const nn_mixture *at, const nn_exec_options *o) {
    const nn_tape *t = f->model->tape;
    *m = (store_mixture){ .layer = layer_before(t, at->first), .n_used = at->n_used };
    for (int i = at->first; i <= at->last; i++) {
        const nn_op *op = &t->ops[i];
        if (!runs_in_waves(op->kind) || (op->kind == NN_OP_EXPERTS && m->n_ops == STORE_OPS))
            return err_set(f->e, ERR_UNSUPPORTED, "layer %d: experts with an op of the kind %s cannot be streamed",
                           m->layer, nn_op_name(op->kind));
        if (op->kind != NN_OP_EXPERTS || !nn_exec_runs(o, i)) continue;
        m->ops[m->n_ops++] = i;
        m->n_expert = op->u.linear.w->n_stack;
    }
    if (m->n_ops == 0) return 0;
    if (!(m->experts = arena_calloc(f->mem, (size_t)m->n_expert, sizeof *m->experts))) return err_set_nomem(f->e);
    int rc = 0;
    for (int e = 0; e < m->n_expert && rc == 0; e++) rc = find_expert(f, m, e);
    return rc;
}

int store_layout_find(store_layout *out, const nn_model *m, const nn_exec_options *o, bool copy, arena *mem, err *e) {
    finding    f = { out, m, copy, mem, e };
    nn_mixture at;
    size_t     largest = 0, most_used = 0;
    *out = (store_layout){ .mixtures = arena_calloc(mem, (size_t)nn_mixtures(m->tape) + 1, sizeof *out->mixtures) };
    if (!out->mixtures) return err_set_nomem(e);
    if (!m->file) return err_set(e, ERR_UNSUPPORTED, "this model has no file that its experts could be streamed from");
    for (int from = 0; nn_mixture_next(m->tape, from, &at); from = at.sum + 1) {
        store_mixture *x = &out->mixtures[out->n_mixtures];
        size_t         before = out->file_bytes;
        int            rc = find_mixture(&f, x, &at, o);
        if (rc < 0) return rc;
        if (x->n_ops == 0) continue;
        out->n_mixtures++;
        out->n_experts += x->n_expert;
        out->table_bytes += (size_t)x->n_expert * (sizeof *x->experts + ARRAYS * sizeof(file_reader_extent));
        size_t used = (size_t)num_min(x->n_used, x->n_expert);
        out->token_bytes += (out->file_bytes - before) / (size_t)x->n_expert * used;
        out->all_bytes += (size_t)x->n_expert * x->slot_bytes;
        out->share_bytes += used * x->slot_bytes;
        if (x->slot_bytes > largest) largest = x->slot_bytes;
        if (used > most_used) most_used = used;
    }
    out->least_bytes = (size_t)num_min(2 * (int64_t)most_used, out->n_experts) * largest;
    if (out->share_bytes < out->least_bytes) out->least_bytes = out->share_bytes;
    return 0;
}

/* One ring of slots that any expert fits into. */
static void divide_ring(store_layout *l, size_t bytes) {
    size_t largest = l->mixtures[0].slot_bytes;
    for (int i = 1; i < l->n_mixtures; i++) {
        if (l->mixtures[i].slot_bytes > largest) largest = l->mixtures[i].slot_bytes;
    }
    l->ring = true;
    l->n_slots = (int)num_min((int64_t)(bytes / largest), l->n_experts);
    l->slots_bytes = (size_t)l->n_slots * largest;
    for (int i = 0; i < l->n_mixtures; i++) {
        l->mixtures[i].slot_bytes = largest;
        l->mixtures[i].n_slots = l->n_slots;
    }
}

/* As many as a token uses for every layer, then one more for each in turn while there is room. */
static void divide_shares(store_layout *l, size_t bytes) {
    bool more = true;
    for (int i = 0; i < l->n_mixtures; i++) {
        store_mixture *m = &l->mixtures[i];
        m->n_slots = (int)num_min(m->n_used, m->n_expert);
        l->slots_bytes += (size_t)m->n_slots * m->slot_bytes;
    }
    while (more) {
        more = false;
        for (int i = 0; i < l->n_mixtures; i++) {
            store_mixture *m = &l->mixtures[i];
            if (m->n_slots == m->n_expert || m->slot_bytes > bytes - l->slots_bytes) continue;
            m->n_slots++;
            l->slots_bytes += m->slot_bytes;
            more = true;
        }
    }
    for (int i = 0; i < l->n_mixtures; i++) {
        l->mixtures[i].first_slot = l->n_slots;
        l->n_slots += l->mixtures[i].n_slots;
    }
}

int store_layout_divide(store_layout *l, size_t bytes, err *e) {
    if (l->n_mixtures == 0) return err_set(e, ERR_UNSUPPORTED, "there are no experts that the CPU could stream");
    if (bytes < l->least_bytes)
        return err_set(e, ERR_LIMIT,
                       "%.1f MiB for experts: streaming them takes at least %.1f MiB, what two layers use for a token",
                       (double)bytes / (1 << 20), (double)l->least_bytes / (1 << 20));
    l->n_slots = 0;
    l->slots_bytes = 0;
    if (bytes < l->share_bytes)
        divide_ring(l, bytes);
    else
        divide_shares(l, bytes);
    return 0;
}

int store_layout_mixture(const store_layout *l, int op) {
    for (int i = 0; i < l->n_mixtures; i++) {
        const store_mixture *m = &l->mixtures[i];
        if (op >= m->ops[0] && op <= m->ops[m->n_ops - 1]) return i;
    }
    return -1;
}
