/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adapters in the matrices that they change. A set says per op of the tape what to add (nn/adapter.h); here it is per row
 * of a tensor of the file, found by where the op's matrix points.
 */
#include "convert/merge_impl.h"

#include "base/map.h"
#include "base/xxh64.h"
#include "tensor/codec.h"
#include "tensor/half.h"

#include <stdlib.h>
#include <string.h>

/* What happens to one row of a tensor; op NULL: nothing. */
typedef struct row_change {
    const nn_set_op *op;
    const nn_mat    *mat;
    int64_t          row;
    int              expert;
    bool             embed;
} row_change;

typedef struct changed {
    row_source  from;
    const char *name;
    tensor_type type;
    int64_t     cols;
    row_change *rows;
} changed;

typedef struct work {
    const nn_model       *m;
    const nn_adapter_set *set;
    const merge_options  *o;
    arena                 mem;
    hf_plan               plan;
    map                   names; /* tensor -> place in the plan */
    merge_result         *out;
} work;

/* --- one row ------------------------------------------------------------------------------------------------------- */

static void add_product(const nn_lora *l, float scale, int64_t row, float *w, int64_t cols) {
    for (int k = 0; k < l->used; k++) {
        float b = scale * nn_lora_b(l, row, k);
        for (int64_t c = 0; c < cols; c++) w[c] += b * nn_lora_a(l, k, c);
    }
}

/* An embedding's inputs are its rows. */
static void add_looked_up(const nn_lora *l, float scale, int64_t row, float *w, int64_t cols) {
    for (int k = 0; k < l->used; k++) {
        float a = scale * nn_lora_a(l, k, row);
        for (int64_t c = 0; c < cols; c++) w[c] += a * nn_lora_b(l, c, k);
    }
}

static void change_row(const row_change *x, float *w, int64_t cols) {
    const nn_set_op *o = x->op;
    float            gain = o->gain ? o->gain[x->row] : 1;
    for (int64_t c = 0; c < cols; c++) w[c] *= gain * (o->in_gain ? o->in_gain[c] : 1);
    for (int i = 0; i < o->n_parts; i++) {
        const nn_set_part *p = &o->parts[i];
        const nn_lora     *l = &p->patch->lora[x->mat->n_stack ? x->expert : 0];
        float              scale = p->scale * l->scale * (p->gain ? p->gain[x->row] : 1);
        if (l->rank) (x->embed ? add_looked_up : add_product)(l, scale, x->row, w, cols);
    }
}

static int make_row(const void *ctx, int64_t row, void *out, float *scratch, err *e) {
    const changed    *t = ctx;
    const row_change *x = &t->rows[row];
    size_t            bytes = 0;
    if (!x->op && t->from.raw && t->from.type == t->type) { /* a part of a fused matrix that stays as it is */
        tensor_row_bytes((int)t->type, t->cols, &bytes);
        memcpy(out, t->from.raw(t->from.ctx, row), bytes);
        return 0;
    }
    row_source_floats(&t->from, row, scratch, t->cols);
    if (x->op) change_row(x, scratch, t->cols);
    if (!tensor_quant_row((int)t->type, scratch, out, t->cols))
        return err_set(e, ERR_UNSUPPORTED, "%s: it cannot become %s", t->name, tensor_type_name((int)t->type));
    return 0;
}

/* --- where rows lie ------------------------------------------------------------------------------------------------ */

static const model_tensor *tensor_at(const model_file *m, const uint8_t *p) {
    for (size_t i = 0; i < model_file_tensor_count(m); i++) {
        const model_tensor *t = model_file_tensor_at(m, i);
        if (p >= t->data && p < t->data + t->bytes) return t;
    }
    return NULL;
}

static changed *change_of(work *w, const model_tensor *t, err *e) {
    uint64_t at;
    if (!map_get_c(&w->names, t->name, &at)) {
        err_set(e, ERR_UNSUPPORTED, "%s: stacked experts of MLX cannot be merged", t->name);
        return NULL;
    }
    plan_tensor *x = &w->plan.tensors[at];
    if (x->from.make) return (changed *)(uintptr_t)x->from.ctx;
    changed *c = arena_calloc(&w->mem, 1, sizeof *c);
    if (c) c->rows = arena_calloc(&w->mem, (size_t)plan_rows(x), sizeof *c->rows);
    if (!c || !c->rows) {
        err_set_nomem(e);
        return NULL;
    }
    if (merge_change(x, w->o, w->out, e) < 0) return NULL;
    c->from = x->from;
    c->name = x->name;
    c->type = x->type;
    c->cols = x->dims[0];
    x->from = (row_source){ .make = make_row, .ctx = c, .scratch = (size_t)x->dims[0] };
    return c;
}

static int place_rows(work *w, const nn_set_op *op, const nn_mat *mat, bool embed, err *e) {
    for (int s = 0; s < (mat->n_stack ? mat->n_stack : 1); s++) {
        const tensor_mat   *at = &mat->at[s];
        const model_tensor *t = tensor_at(w->m->file, at->data);
        if (!t || (at->scales && tensor_mat_scale_whole(at)))
            return err_set(e, ERR_UNSUPPORTED, "%s: it does not lie in the file as it is used, and cannot be merged",
                           mat->name);
        changed *c = change_of(w, t, e);
        if (!c) return ERR_UNSUPPORTED;
        int64_t rows = 1;
        for (int d = 1; d < t->n_dims; d++) rows *= t->dims[d];
        size_t row_bytes = t->bytes / (size_t)rows;
        for (int64_t r = 0; r < mat->rows; r++) {
            size_t offset = (size_t)((const uint8_t *)at->data - t->data) + (size_t)r * at->row_bytes;
            if (offset % row_bytes) return err_set(e, ERR_UNSUPPORTED, "%s: its rows are not the file's", mat->name);
            row_change *x = &c->rows[offset / row_bytes];
            if (x->op)
                return err_set(e, ERR_UNSUPPORTED,
                               "%s is used twice, as an embedding and as the head, and cannot change for one alone",
                               t->name);
            *x = (row_change){ .op = op, .mat = mat, .row = r, .expert = s, .embed = embed };
        }
    }
    return 0;
}

/* The matrix has another use, which the set leaves as it is. */
static bool is_shared(const nn_model *m, int which, const nn_mat *mat) {
    for (int i = 0; i < m->tape->n_ops; i++) {
        const nn_op *op = &m->tape->ops[i];
        if (i == which) continue;
        if (op->kind == NN_OP_EMBED && op->u.embed.table == mat) return true;
        if ((op->kind == NN_OP_LINEAR || op->kind == NN_OP_EXPERTS) && op->u.linear.w == mat) return true;
    }
    return false;
}

static int place_op(work *w, int i, err *e) {
    const nn_op     *op = &w->m->tape->ops[i];
    const nn_set_op *o = w->set->ops[i];
    bool             embed = op->kind == NN_OP_EMBED;
    const nn_mat    *mat = embed ? op->u.embed.table : op->u.linear.w;
    if (is_shared(w->m, i, mat))
        return err_set(e, ERR_UNSUPPORTED,
                       "%s is the embedding and the head at once; the adapter changes one of them alone", mat->name);
    if (o->bias_gain && op->kind != NN_OP_EMBED && op->u.linear.b)
        return err_set(e, ERR_UNSUPPORTED, "%s: the adapter scales its bias, which cannot be merged", mat->name);
    return place_rows(w, o, mat, embed, e);
}

int merge_adapters(const nn_model *m, const nn_adapter_set *set, const merge_options *o, pool *p, merge_result *out,
                   err *e) {
    work w = { .m = m, .set = set, .o = o, .out = out };
    int  rc;
    memset(out, 0, sizeof *out);
    arena_init(&w.mem, 0);
    map_init(&w.names);
    rc = merge_plan(&w.plan, m->file, &w.mem, e);
    for (size_t i = 0; i < w.plan.n && rc == 0; i++)
        if (!map_put(&w.names, w.plan.tensors[i].name, strlen(w.plan.tensors[i].name), i)) rc = err_set_nomem(e);
    for (int i = 0; i < set->n_uses && rc == 0; i++)
        if (set->uses[i].adapter->n_invocation)
            rc = err_set(e, ERR_UNSUPPORTED, "an adapter that counts from certain tokens on cannot be merged");
    for (int i = 0; i < m->tape->n_ops && rc == 0; i++)
        if (set->ops[i]) rc = place_op(&w, i, e);
    if (rc == 0) rc = merge_write(m->file, &w.plan, o, xxh64(set->key, sizeof set->key), p, out, e);
    map_deinit(&w.names);
    arena_deinit(&w.mem);
    return rc;
}
